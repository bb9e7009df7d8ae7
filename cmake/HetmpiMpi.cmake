# Finds MPI, and makes sure that its library and its mpiexec belong together: with another MPI's mpiexec a job of n
# ranks is n jobs of one rank, and every test of one rank passes. Also: what ranks need in their environment
# (mpi_environment).
find_package(MPI REQUIRED COMPONENTS C)
option(HETMPI_CHECK_MPIEXEC "Run two ranks when configuring, to see that mpiexec and the MPI library fit" ON)

# Root (containers, CI) and more ranks than cores are refused by Open MPI unless told otherwise; others ignore this.
set(mpi_environment OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
                    PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe)

set(mpi_pair "${MPI_C_LIBRARIES} ${MPIEXEC_EXECUTABLE}")
if(HETMPI_CHECK_MPIEXEC AND NOT mpi_pair STREQUAL "${HETMPI_MPI_CHECKED}")
    if(NOT MPIEXEC_EXECUTABLE)
        message(FATAL_ERROR "No mpiexec was found for the MPI library ${MPI_C_LIBRARIES}. Name one with "
                            "-DMPIEXEC_EXECUTABLE=..., or build without running: -DHETMPI_CHECK_MPIEXEC=OFF.")
    endif()
    set(program ${PROJECT_BINARY_DIR}/mpi_check)
    try_compile(compiled ${PROJECT_BINARY_DIR}/mpi_check_build SOURCES ${CMAKE_CURRENT_LIST_DIR}/mpi_check.c
                LINK_LIBRARIES MPI::MPI_C OUTPUT_VARIABLE log COPY_FILE ${program})
    if(NOT compiled)
        message(FATAL_ERROR "A small MPI program does not compile with ${MPI_C_COMPILER}:\n${log}")
    endif()
    execute_process(COMMAND ${CMAKE_COMMAND} -E env ${mpi_environment}
                            ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} 2 ${program}
                    RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output TIMEOUT 120)
    file(REMOVE ${program})
    if(NOT result EQUAL 0)
        message(FATAL_ERROR "mpiexec and the MPI library do not work together.\n"
            "  library: ${MPI_C_LIBRARIES}\n  mpiexec: ${MPIEXEC_EXECUTABLE}\n"
            "Two ranks were started (result ${result}):\n${output}\n"
            "Choose both at once, in an empty build folder: -DMPI_EXECUTABLE_SUFFIX=.openmpi or .mpich, or "
            "-DMPI_HOME=<prefix>. (-DMPI_C_COMPILER alone keeps the default mpiexec.)")
    endif()
    set(HETMPI_MPI_CHECKED "${mpi_pair}" CACHE INTERNAL "MPI library and mpiexec that were seen to work together")
endif()

message(STATUS "MPI library ${MPI_C_LIBRARIES}, started by ${MPIEXEC_EXECUTABLE}")
