# Inputs that people's programs met elsewhere, a test each (docs/testing.md lists them). One backend shows most of them.
function(inputs_program name)
    cmake_parse_arguments(PARSE_ARGV 1 p "INTERNAL" "" "")
    list(TRANSFORM p_UNPARSED_ARGUMENTS PREPEND ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/ OUTPUT_VARIABLE sources)
    if(p_INTERNAL) # the library's objects themselves, and no second copy of it
        add_executable(${name} ${sources} ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/common.c)
        target_link_libraries(${name} PRIVATE hetmpi_internal Threads::Threads m)
    else()
        add_executable(${name} ${sources})
        target_link_libraries(${name} PRIVATE mpi_test_common hetmpi Threads::Threads m)
    endif()
endfunction()

inputs_program(inputs_types inputs_types.c)
inputs_program(inputs_calls inputs_calls.c)
inputs_program(inputs_comms inputs_comms.c)
inputs_program(inputs_numbers inputs_numbers.c)
inputs_program(inputs_device INTERNAL inputs_device.c)
inputs_program(inputs_exit inputs_exit.c)
inputs_program(inputs_libraries inputs_libraries.c)

# Two libraries that use hetmpi: one linked, one loaded.
add_library(inputs_linked SHARED ${CMAKE_CURRENT_LIST_DIR}/inputs_library.c)
add_library(inputs_plugin MODULE ${CMAKE_CURRENT_LIST_DIR}/inputs_library.c)
foreach(library linked plugin)
    target_compile_definitions(inputs_${library} PRIVATE LIBRARY=${library})
    target_link_libraries(inputs_${library} PRIVATE hetmpi)
endforeach()
target_link_libraries(inputs_libraries PRIVATE inputs_linked ${CMAKE_DL_LIBS})
add_dependencies(inputs_libraries inputs_plugin)

set(two_and_two HETMPI_SIM_VENDORS=nvidia,nvidia,amd,amd)
set(two_and_one HETMPI_SIM_VENDORS=nvidia,amd,nvidia)
set(two_and_three HETMPI_SIM_VENDORS=nvidia,nvidia,amd,amd,amd)
set(four_and_four HETMPI_SIM_VENDORS=nvidia,nvidia,nvidia,nvidia,amd,amd,amd,amd)

if(NOT HETMPI_SANITIZE) # sizes and numbers: nothing new for a sanitizer
    hetmpi_mpi_test(NAME inputs_types.1_1 SOURCE inputs_types.c RANKS 2 BACKENDS sim ENV HETMPI_SIM_VENDORS=nvidia,amd)
    hetmpi_mpi_test(NAME inputs_types.2_2 SOURCE inputs_types.c RANKS 4 BACKENDS sim ENV ${two_and_two})
    hetmpi_mpi_test(NAME inputs_numbers.4_4 SOURCE inputs_numbers.c RANKS 8 BACKENDS sim ENV ${four_and_four})
endif()
hetmpi_mpi_test(NAME inputs_calls.2_1 SOURCE inputs_calls.c RANKS 3 BACKENDS sim ENV ${two_and_one})
hetmpi_mpi_test(NAME inputs_calls.2_3 SOURCE inputs_calls.c RANKS 5 BACKENDS sim ENV ${two_and_three})
hetmpi_mpi_test(NAME inputs_comms.2_2 SOURCE inputs_comms.c RANKS 4 BACKENDS sim ENV ${two_and_two})
hetmpi_mpi_test(NAME inputs_device SOURCE inputs_device.c RANKS 3 BACKENDS sim
                ENV ${two_and_one} HETMPI_SIM_LATENCY=1ms)
hetmpi_mpi_test(NAME inputs_exit.late SOURCE inputs_exit.c RANKS 2 ENV HETMPI_SIM_VENDORS=nvidia,amd ARGS late)
hetmpi_mpi_test(NAME inputs_libraries SOURCE inputs_libraries.c RANKS 3 ENV ${two_and_one}
                ARGS $<TARGET_FILE:inputs_plugin>)
