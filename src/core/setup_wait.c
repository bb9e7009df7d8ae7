/*
 * MPI's own collectives during set-up, none of which may block in MPI: a rank may be late, or dead. Other work goes on
 * meanwhile.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "core/comm.h"
#include "core/engine.h"
#include "core/log.h"
#include "core/proc.h"
#include "core/report.h"
#include "hetmpi.h"

/* It stays within reach, so that tools do not take it for a leak. */
void comm_leave_to_mpi(void *memory)
{
    static struct left { struct left *next; void *memory; } *_Atomic all;
    struct left *left = malloc(sizeof(*left));

    if (!left)
        return;
    left->memory = memory;
    left->next = atomic_load(&all);
    while (!atomic_compare_exchange_weak(&all, &left->next, left))
        ;
}

/* Set-up ends here, whatever the others do. */
static int give_up(struct comm *comm, int code)
{
    comm->stillborn = true;
    engine_lock();
    report_setup(err_text());
    engine_unlock();
    return code;
}

int comm_wait_mpi(struct comm *comm, MPI_Request *request)
{
    double timeout = comm->cfg ? comm->cfg->timeout : 0;
    uint64_t began = proc_now_ns();
    struct watch watch = {0};
    unsigned idle = 0;
    int done = 0, dead, code;

    for (;;) {
        code = MPI_Test(request, &done, MPI_STATUS_IGNORE);
        if (code != MPI_SUCCESS)
            return comm_mpi_error(code, "setting up a communicator");
        if (done)
            return HETMPI_SUCCESS;
        if (timeout > 0 && (double)(proc_now_ns() - began) > timeout * 1e9)
            return give_up(comm, err_set(HETMPI_ERR_TIMEOUT, "setting up a communicator of %d ranks: rank %d waited %.3g "
                                         "s (setting TIMEOUT) and some rank has not made its first hetmpi call on it",
                                         comm->size, comm->rank, timeout));
        if (engine_progress())
            idle = 0;
        else if (++idle < 1000)
            sched_yield();
        else {   /* a yield may give the core to nobody */
            proc_nap(50000);
            watch_setup(&watch);
            dead = idle % 64 ? -1 : watch_find_dead(comm);
            if (dead >= 0)
                return give_up(comm, err_set(HETMPI_ERR_PEER, "setting up a communicator of %d ranks: rank %d (process "
                                             "%d) has died", comm->size, dead, comm->pids[dead]));
        }
    }
}

int comm_duplicate(struct comm *comm, MPI_Comm *made)
{
    MPI_Comm *handle = malloc(sizeof(*handle));
    MPI_Request request;
    int code;

    if (!handle)
        return err_set(HETMPI_ERR_MEMORY, "no memory to set up a communicator");
    if (comm->size == 1) {
        code = comm_mpi_error(MPI_Comm_dup(comm->user, handle), "MPI_Comm_dup");
    } else {
        code = comm_mpi_error(MPI_Comm_idup(comm->user, handle, &request), "MPI_Comm_idup");
        if (!code)
            code = comm_wait_mpi(comm, &request);
    }
    if (code) {
        comm_leave_to_mpi(handle);
        return code;
    }
    *made = *handle;
    free(handle);
    MPI_Comm_set_errhandler(*made, MPI_ERRORS_RETURN);
    return HETMPI_SUCCESS;
}
