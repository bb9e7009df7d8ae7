/*
 * Failures across nodes. Ranks that share memory see each other's failure there; groups of ranks that do not are told
 * by a message from the rank that failed to the groups' leaders, who look for one while they wait.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/notice.h"

#include "core/proc.h"
#include "hetmpi.h"

struct notice { int32_t code, rank; char text[sizeof(((struct comm *)0)->failed_text) - 32]; };

/* Sends under way: the notice must stay until MPI has taken it. */
struct notice_send {
    struct notice notice;
    int n;
    MPI_Request requests[];
};

static int my_leader(const struct comm *comm) { return comm->ctl ? comm->local[0] : comm->rank; }

void notice_send(struct comm *comm, int code, const char *text)
{
    struct notice_send *send;

    if (comm->one_node || comm->shadow == MPI_COMM_NULL || comm->notice || !proc_may_call_mpi())
        return;
    send = calloc(1, sizeof(*send) + (size_t)comm->n_groups * sizeof(*send->requests));
    if (!send)
        return;
    comm->notice = send;
    send->notice.code = code;
    send->notice.rank = comm->rank;
    snprintf(send->notice.text, sizeof(send->notice.text), "%s", text);
    for (int g = 0; g < comm->n_groups; g++)
        if (comm->leaders[g] != my_leader(comm) &&
            MPI_Isend(&send->notice, sizeof(send->notice), MPI_BYTE, comm->leaders[g], TAG_NOTICE, comm->shadow,
                      &send->requests[send->n]) == MPI_SUCCESS)
            send->n++;
}

int notice_look(struct comm *comm)
{
    struct notice notice;
    char text[sizeof(comm->failed_text)];
    MPI_Status status;
    int flag = 0;

    if (comm->one_node || comm->shadow == MPI_COMM_NULL || my_leader(comm) != comm->rank || !proc_may_call_mpi())
        return HETMPI_SUCCESS;
    if (MPI_Iprobe(MPI_ANY_SOURCE, TAG_NOTICE, comm->shadow, &flag, &status) != MPI_SUCCESS || !flag)
        return HETMPI_SUCCESS;
    if (MPI_Recv(&notice, sizeof(notice), MPI_BYTE, status.MPI_SOURCE, TAG_NOTICE, comm->shadow,
                 MPI_STATUS_IGNORE) != MPI_SUCCESS)
        return HETMPI_SUCCESS;
    snprintf(text, sizeof(text), "rank %d reported: %s", (int)notice.rank, notice.text);
    return comm_fail_here(comm, notice.code, text);
}

void notice_release(struct comm *comm)
{
    int done = 1;

    if (!comm->notice)
        return;
    /* A receiver that is gone never takes its notice, and MPI keeps the pointer: then the memory is left to it. */
    for (int i = 0; i < comm->notice->n && done; i++)
        if (MPI_Test(&comm->notice->requests[i], &done, MPI_STATUS_IGNORE) != MPI_SUCCESS)
            done = 0;
    if (done)
        free(comm->notice);
    comm->notice = NULL;
}
