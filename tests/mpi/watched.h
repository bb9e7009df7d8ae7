/*
 * What a stretch of code costs its thread: allocations, counted by definitions of the memory functions that stand before
 * the C library's in every program that links watched.c, and whether it makes system calls, found by Linux's system
 * call user dispatch. Neither works under sanitizers.
 */
#ifndef HETMPI_TESTS_MPI_WATCHED_H
#define HETMPI_TESTS_MPI_WATCHED_H

#include <stdbool.h>

struct watched {
    long allocations;          /* and frees */
    long first_call;           /* number of the first system call; -1: none. Later ones are not seen */
};

/* NULL: can be used here; else why not. Tries both out: a planted allocation and system call must be seen. */
const char *watched_open(void);
/* From here on this thread is watched: without system calls, only allocations are counted. */
void watched_begin(bool system_calls);
struct watched watched_end(void);

#endif
