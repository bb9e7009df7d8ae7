/*
 * A rank that dies on purpose, and what the survivors leave for the script that judges: a folder with the file "death" (of
 * the victim) and "rank.R" of each survivor.
 */
#ifndef HETMPI_TESTS_MPI_DEATH_H
#define HETMPI_TESTS_MPI_DEATH_H

#include <stdbool.h>

/* The folder, and by which signal: SIGKILL, or SIGSTOP. First thing: also ignores what mpiexec sends to the survivors. */
void death_prepare(const char *folder, int signal);
/* In the victim: the process gets the signal after so many seconds; phase() (or NULL) then names what it is in. */
void death_plan(double seconds, const char *(*phase)(void));
/* When it was, on t_now()'s clock; *victim: the process. False: not yet. */
bool death_happened(double *when, int *victim);
void death_write(const char *name, const char *text);
/* Ends a survivor: the first that leaves may make mpiexec end the rest, so all wait until all have written. */
void death_leave(int victim) __attribute__((noreturn));

#endif
