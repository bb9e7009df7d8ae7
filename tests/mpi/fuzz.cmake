# The random differential test: by hand for minutes with new seeds, here for seconds with the same ones, so that a change is
# what makes a difference; and with planted faults, which it must find.
set(fuzz_sources fuzz_collectives.c fuzz_comms.c fuzz_draw.c fuzz_run.c fuzz_call.c fuzz_check.c)
list(TRANSFORM fuzz_sources PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
add_executable(fuzz_collectives ${fuzz_sources})
target_link_libraries(fuzz_collectives PRIVATE mpi_test_common hetmpi Threads::Threads m)
set(fuzz_5 HETMPI_SIM_VENDORS=nvidia,amd,nvidia,nvidia,amd HETMPI_SIM_NODES=0,0,1,1,1 HETMPI_TIMEOUT=40)
set(fuzz_3 HETMPI_SIM_VENDORS=nvidia,amd,nvidia HETMPI_TIMEOUT=40)

# At length in one build alone; the others show what depends on the compiler and on the MPI.
set(fuzz_at_length OFF)
if(HETMPI_BACKEND STREQUAL sim AND NOT HETMPI_SANITIZE AND NOT MPI_EXECUTABLE_SUFFIX AND CMAKE_C_COMPILER_ID STREQUAL GNU)
    set(fuzz_at_length ON)
endif()
if(fuzz_at_length)
    hetmpi_mpi_test(NAME fuzz_collectives.3 SOURCE fuzz_collectives.c RANKS 3 ENV ${fuzz_3} ARGS 20 1 TIMEOUT 180)
    hetmpi_mpi_test(NAME fuzz_collectives.5 SOURCE fuzz_collectives.c RANKS 5 ENV ${fuzz_5} ARGS 20 100000 TIMEOUT 180)
elseif(HETMPI_SANITIZE)
    hetmpi_mpi_test(NAME fuzz_collectives SOURCE fuzz_collectives.c RANKS 3 ENV ${fuzz_3} ARGS 15 200000 TIMEOUT 120)
elseif(HETMPI_BACKEND STREQUAL host)
    hetmpi_mpi_test(NAME fuzz_collectives SOURCE fuzz_collectives.c RANKS 3 ENV HETMPI_ISLANDS=a,b,a HETMPI_TIMEOUT=40
                    ARGS 10 300000 TIMEOUT 180)
else()
    hetmpi_mpi_test(NAME fuzz_collectives SOURCE fuzz_collectives.c RANKS 3 ENV ${fuzz_3} ARGS 10 400000 TIMEOUT 180)
endif()

# The library's own objects with a file between them that plants faults (--wrap), and no second copy of the library.
if(fuzz_at_length)
    add_executable(fuzz_fault ${fuzz_sources} ${CMAKE_CURRENT_LIST_DIR}/fuzz_fault.c ${CMAKE_CURRENT_LIST_DIR}/common.c
                              ${CMAKE_CURRENT_LIST_DIR}/oracle.c)
    target_link_libraries(fuzz_fault PRIVATE hetmpi_internal Threads::Threads m)
    target_link_options(fuzz_fault PRIVATE -Wl,--wrap=red_run,--wrap=sched_build)
endif()
