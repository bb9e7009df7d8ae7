# The local provider over MPI: programs of local operations, on communicators made by hand (so internals are linked).
add_executable(island_mpi ${CMAKE_CURRENT_LIST_DIR}/island_mpi.c)
target_link_libraries(island_mpi PRIVATE hetmpi_internal Threads::Threads m)
foreach(ranks 1 2 3 5)
    hetmpi_mpi_test(NAME island_mpi_${ranks} SOURCE ${CMAKE_CURRENT_LIST_DIR}/island_mpi.c RANKS ${ranks}
                    TIMEOUT 120 BACKENDS host sim)
endforeach()
