# Tests of the wires between processes; they use internal functions, so their program is not linked with libhetmpi.so.
add_executable(wire_mpi ${CMAKE_CURRENT_LIST_DIR}/wire_mpi.c)
target_link_libraries(wire_mpi PRIVATE hetmpi_internal)
set(wires mpi far shm)
if(HETMPI_BACKEND STREQUAL "sim")
    list(APPEND wires ipc)
endif()
if(NOT HETMPI_SANITIZE MATCHES "thread")
    # MPI's way between nodes, though these are none: Open MPI's variables, and MPICH's.
    set(env_far ENV OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,tcp OMPI_MCA_btl_tcp_if_include=lo MPIR_CVAR_NOLOCAL=1)
endif()
foreach(wire ${wires})
    foreach(ranks 2 3)
        hetmpi_mpi_test(NAME wire_${wire}_${ranks} SOURCE ${CMAKE_CURRENT_LIST_DIR}/wire_mpi.c RANKS ${ranks}
                        ARGS ${wire} TIMEOUT 120 ${env_${wire}})
    endforeach()
endforeach()
