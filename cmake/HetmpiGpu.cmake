# The device runtimes of real GPUs (HETMPI_BACKEND=cuda or hip). The project stays a C project: nvcc or hipcc is called for
# the one file with kernels, and says what that depends on.
set(HETMPI_HIP_PLATFORM amd CACHE STRING "GPUs that HETMPI_BACKEND=hip is for: amd; nvidia is for tests")
set_property(CACHE HETMPI_HIP_PLATFORM PROPERTY STRINGS amd nvidia)

set(kernels ${PROJECT_SOURCE_DIR}/src/mem/gpu_kernels.cu)
set(kernels_object ${PROJECT_BINARY_DIR}/gpu_kernels.o)
set(kernel_options -O3 -std=c++17 -I${PROJECT_SOURCE_DIR}/src -I${PROJECT_SOURCE_DIR}/include)

if(HETMPI_BACKEND STREQUAL "cuda" OR HETMPI_HIP_PLATFORM STREQUAL "nvidia")
    find_package(CUDAToolkit REQUIRED)
    set(HETMPI_CUDA_ARCHITECTURES 80 90 100 CACHE STRING
        "Compute capabilities with machine code in the library; newer GPUs translate the last one's PTX")
    foreach(architecture IN LISTS HETMPI_CUDA_ARCHITECTURES)
        list(APPEND kernel_options -gencode arch=compute_${architecture},code=sm_${architecture})
    endforeach()
    list(GET HETMPI_CUDA_ARCHITECTURES -1 newest)
    list(APPEND kernel_options -gencode arch=compute_${newest},code=compute_${newest}
         -Xcompiler -fPIC,-fno-exceptions,-fno-rtti)
    set(kernel_compiler ${CUDAToolkit_NVCC_EXECUTABLE} -x cu)
    target_link_libraries(hetmpi_objects PUBLIC CUDA::cudart)
    if(HETMPI_BACKEND STREQUAL "hip")
        set(hip_options -DHETMPI_GPU_HIP -D__HIP_PLATFORM_NVIDIA__)
        list(APPEND kernel_options -I${PROJECT_SOURCE_DIR}/src/mem/hip_nvidia)
        target_include_directories(hetmpi_objects PRIVATE ${PROJECT_SOURCE_DIR}/src/mem/hip_nvidia)
    endif()
else()
    find_program(HETMPI_HIPCC NAMES hipcc HINTS /opt/rocm/bin REQUIRED)
    find_library(HETMPI_AMDHIP NAMES amdhip64 HINTS /opt/rocm/lib REQUIRED)
    set(HETMPI_HIP_ARCHITECTURES gfx90a gfx1030 CACHE STRING "AMD GPUs with machine code in the library")
    foreach(architecture IN LISTS HETMPI_HIP_ARCHITECTURES)
        list(APPEND kernel_options --offload-arch=${architecture})
    endforeach()
    list(APPEND kernel_options -fPIC -fno-exceptions -fno-rtti)
    set(kernel_compiler ${HETMPI_HIPCC} -x hip)
    set(hip_options -DHETMPI_GPU_HIP -D__HIP_PLATFORM_AMD__)
    target_link_libraries(hetmpi_objects PUBLIC ${HETMPI_AMDHIP})
endif()
target_compile_definitions(hetmpi_objects PRIVATE ${hip_options})
target_link_libraries(hetmpi_objects PUBLIC stdc++) # the compilers' stubs for launching kernels use it

add_custom_command(OUTPUT ${kernels_object}
                   COMMAND ${kernel_compiler} ${hip_options} ${kernel_options} -MD -MF ${kernels_object}.d
                           -c ${kernels} -o ${kernels_object}
                   DEPENDS ${kernels} DEPFILE ${kernels_object}.d COMMENT "Compiling the kernels" VERBATIM)
add_custom_target(gpu_kernels DEPENDS ${kernels_object})
foreach(target hetmpi hetmpi_internal)
    add_dependencies(${target} gpu_kernels)
    target_sources(${target} PRIVATE ${kernels_object})
endforeach()
