/*
 * The process: settings, the MPI that the application started, the device runtime, and the engine's lock. Started by
 * the first hetmpi call, ended in MPI_Finalize (an attribute of MPI_COMM_SELF) or at exit.
 */
#ifndef HETMPI_PROC_H
#define HETMPI_PROC_H

#include <stdbool.h>
#include <stdint.h>

#include "core/config.h"

/* Starts what needs no MPI: settings, log, device runtime. Thread-safe, cheap after the first call. */
int proc_start_device(void);
/* The same, and MPI must be initialised and not finalised: HETMPI_ERR_STATE otherwise. */
int proc_start(void);

bool proc_mpi_is_up(void);         /* initialised and not finalised, whether or not hetmpi has started */
int proc_want_mpi(void);           /* HETMPI_ERR_STATE, with the message, if it is not */
bool proc_started(void);           /* the last has succeeded, and MPI_Finalize has not been called */

int proc_thread_level(void);       /* MPI_THREAD_* that MPI granted */
bool proc_may_call_mpi(void);      /* this thread may call MPI now */
bool proc_may_interrupt_mpi(void); /* ... even when another thread is in MPI, by the application's leave, at this moment */
void proc_let_mpi_progress(void);  /* a peer may be stuck in an MPI call that needs this process: lets MPI work, if this
                                      thread may call it */
void proc_mark_progress_thread(void);   /* this thread is hetmpi's own */
int proc_comm_keyval(void);        /* attribute of communicators: struct comm */
int proc_world_rank(void);
int proc_world_size(void);

/* Handles that hetmpi makes with MPI and frees in MPI_Finalize are registered here. */
void proc_at_finalize(void (*function)(void));

uint64_t proc_now_ns(void);        /* monotonic clock */

/* Another process of this node: enum status_life (status.h). One that nobody has waited for yet (a zombie) has ended. */
int proc_life(int pid);

/* Sleeps for about that long: the kernel's habit of adding 50 us to every sleep is set aside for it. */
void proc_nap(long ns);

/* A hash for keys (FNV-1a), continued from `seed`. */
uint64_t proc_hash(uint64_t seed, const void *data, size_t bytes);
#define PROC_HASH_START 1469598103934665603u

#endif
