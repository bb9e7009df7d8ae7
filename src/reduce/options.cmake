# Options of the reduction kernels: the same source, compiled once for each instruction set and chosen at run time.
# Fused multiply-add and reassociation would change results; floating-point traps are never taken (red_fp_enter).
set(reduce_options -ffp-contract=off -fno-trapping-math -fno-math-errno)
# A debug build stays debuggable; all others want the vectoriser whatever their level.
set(reduce_vector_options ${reduce_options} "$<$<NOT:$<CONFIG:Debug>>:-O3>")
set(reduce_dir ${CMAKE_CURRENT_LIST_DIR})

set_source_files_properties(${reduce_dir}/reduce.c ${reduce_dir}/scalar.c PROPERTIES
    COMPILE_OPTIONS "${reduce_options}")
set_source_files_properties(${reduce_dir}/kernels_baseline.c PROPERTIES COMPILE_OPTIONS "${reduce_vector_options}")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
    set(reduce_avx2 -mavx2 -mf16c)
    set(reduce_avx512 ${reduce_avx2} -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512)
    set_source_files_properties(${reduce_dir}/kernels_avx2.c PROPERTIES
        COMPILE_OPTIONS "${reduce_vector_options};${reduce_avx2}")
    set_source_files_properties(${reduce_dir}/kernels_avx512.c PROPERTIES
        COMPILE_OPTIONS "${reduce_vector_options};${reduce_avx512}")
endif()
