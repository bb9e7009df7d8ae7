# Injected faults of the simulated device, one at each operation in turn; the internal symbols set them anew for each run.
# Bounded by strides: docs/testing.md has the whole.
if(HETMPI_BACKEND STREQUAL sim)
    add_executable(faults ${CMAKE_CURRENT_LIST_DIR}/faults.c ${CMAKE_CURRENT_LIST_DIR}/common.c)
    target_link_libraries(faults PRIVATE hetmpi_internal Threads::Threads m)
    set(faults_env HETMPI_CHUNK=16K HETMPI_TIMEOUT=20 HETMPI_LOG=error)
    set(stride 23)
    set(stride_nodes 61)
    if(HETMPI_SANITIZE OR MPI_EXECUTABLE_SUFFIX STREQUAL ".mpich") # MPICH's ranks spin while they wait for cores
        set(stride 67)
        set(stride_nodes 131)
    endif()
    hetmpi_mpi_test(NAME faults SOURCE faults.c RANKS 3 ARGS ${stride} ENV HETMPI_SIM_VENDORS=nvidia,amd,nvidia ${faults_env})
    hetmpi_mpi_test(NAME faults.nodes SOURCE faults.c RANKS 4 ARGS ${stride_nodes} TIMEOUT 100
                    ENV HETMPI_SIM_VENDORS=nvidia,amd,nvidia,nvidia HETMPI_SIM_NODES=0,0,1,1 ${faults_env})
endif()
