# How tests are declared: hetmpi_unit_test (CMocka, one process) and hetmpi_mpi_test (n ranks under mpiexec).
# A test that cannot run here exits with 77 and is shown as skipped.

set(test_environment ${mpi_environment})
if(HETMPI_SANITIZE MATCHES "address")
    # hwloc would read the whole PCI database under the sanitizer's quarantine: 11 s instead of 1 s for 4 ranks.
    # fast_unwind_on_malloc=0: short stacks of unloaded MPI components match no suppression.
    list(APPEND test_environment HWLOC_COMPONENTS=-pci,-opencl,-gl ASAN_OPTIONS=fast_unwind_on_malloc=0
         LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/cmake/lsan.supp:print_suppressions=0
         UBSAN_OPTIONS=print_stacktrace=1)
endif()
if(HETMPI_SANITIZE MATCHES "thread")
    # Open MPI's other transports have lock-order reports of their own.
    list(APPEND test_environment TSAN_OPTIONS=second_deadlock_stack=1 OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,vader)
endif()
if(HETMPI_SANITIZE)
    # UCX (under MPICH) hooks the memory calls that the sanitizers hook too, and crashes.
    list(APPEND test_environment UCX_MEM_EVENTS=n)
    set(test_time_factor 4)
else()
    set(test_time_factor 1)
endif()

# hetmpi_unit_test(name source...): a CMocka program, linked with every internal symbol.
find_package(PkgConfig REQUIRED)
pkg_check_modules(CMOCKA REQUIRED IMPORTED_TARGET cmocka)
function(hetmpi_unit_test name)
    add_executable(${name} ${ARGN})
    target_link_libraries(${name} PRIVATE hetmpi_internal PkgConfig::CMOCKA)
    add_test(NAME unit.${name} COMMAND ${name})
    math(EXPR seconds "300 * ${test_time_factor}")
    set_tests_properties(unit.${name} PROPERTIES ENVIRONMENT "${test_environment}" SKIP_RETURN_CODE 77
                         TIMEOUT ${seconds} LABELS unit)
endfunction()

# hetmpi_mpi_test(NAME n SOURCE s... RANKS r [ENV A=B ...] [ARGS ...] [LABELS ...] [TIMEOUT s] [BACKENDS host sim])
# Runs the program named like the first SOURCE on r ranks; it is built once, however many tests use it (or made before
# by add_executable). HETMPI_TEST_RANKS tells it r, so that it can check its communicator's size. ENV: more environment.
# BACKENDS: only with these (default: all).
function(hetmpi_mpi_test)
    cmake_parse_arguments(PARSE_ARGV 0 t "" "NAME;RANKS;TIMEOUT" "SOURCE;ENV;ARGS;LABELS;BACKENDS")
    foreach(key NAME SOURCE RANKS)
        if(NOT DEFINED t_${key})
            message(FATAL_ERROR "hetmpi_mpi_test(${t_NAME}): ${key} is missing")
        endif()
    endforeach()
    if(t_UNPARSED_ARGUMENTS)
        message(FATAL_ERROR "hetmpi_mpi_test(${t_NAME}): not understood: ${t_UNPARSED_ARGUMENTS}")
    endif()
    if(t_BACKENDS AND NOT HETMPI_BACKEND IN_LIST t_BACKENDS)
        return()
    endif()
    if(NOT t_TIMEOUT)
        set(t_TIMEOUT 60)
    endif()
    math(EXPR t_TIMEOUT "${t_TIMEOUT} * ${test_time_factor}")
    list(GET t_SOURCE 0 program)
    cmake_path(GET program STEM program)
    if(NOT TARGET ${program})
        add_executable(${program} ${t_SOURCE})
        target_link_libraries(${program} PRIVATE hetmpi Threads::Threads m)
    endif()
    add_test(NAME mpi.${t_NAME} COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${t_RANKS} ${MPIEXEC_PREFLAGS}
                                        $<TARGET_FILE:${program}> ${MPIEXEC_POSTFLAGS} ${t_ARGS})
    # PROCESSORS keeps ctest -j from running ranks of several tests on one core.
    set_tests_properties(mpi.${t_NAME} PROPERTIES PROCESSORS ${t_RANKS} SKIP_RETURN_CODE 77 TIMEOUT ${t_TIMEOUT}
                         ENVIRONMENT "${test_environment};HETMPI_TEST_RANKS=${t_RANKS};${t_ENV}"
                         LABELS "mpi;${t_LABELS}")
endfunction()
