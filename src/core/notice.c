/*
 * Failures across nodes. Ranks that share memory see each other's failure there; groups of ranks that do not are told
 * by a message from the rank that failed to the groups' leaders, who look for one while they wait.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/engine.h"
#include "core/notice.h"
#include "core/proc.h"
#include "hetmpi.h"

struct notice { int32_t code, rank; char text[sizeof(((struct comm *)0)->failed_text) - 32]; };

/* Sends under way: the notice must stay until MPI has taken it. A receiver that is gone never takes it, and nobody may
 * wait for that: such notices outlive their communicator. */
struct notice_send {
    struct notice_send *next;
    struct notice notice;
    int n;
    MPI_Request requests[];
};

void notice_send(struct comm *comm, int code, const char *text)
{
    struct notice_send *send;

    if (comm->one_node || comm->shadow == MPI_COMM_NULL || comm->notice)
        return;
    if (!proc_may_call_mpi()) {
        atomic_store(&comm->notice_due, true);
        return;
    }
    send = calloc(1, sizeof(*send) + (size_t)comm->n_groups * sizeof(*send->requests));
    if (!send)
        return;
    comm->notice = send;
    send->notice.code = code;
    send->notice.rank = comm->rank;
    snprintf(send->notice.text, sizeof(send->notice.text), "%s", text);
    for (int g = 0; g < comm->n_groups; g++)
        if (comm->leaders[g] != comm_leader(comm) &&
            MPI_Isend(&send->notice, sizeof(send->notice), MPI_BYTE, comm->leaders[g], TAG_NOTICE, comm->shadow,
                      &send->requests[send->n]) == MPI_SUCCESS)
            send->n++;
}

void notice_send_due(struct comm *comm)
{
    int code = comm_failed(comm);

    if (code && proc_may_call_mpi() && atomic_exchange(&comm->notice_due, false))
        notice_send(comm, code, comm->failed_text);
}

int notice_look(struct comm *comm)
{
    struct notice notice;
    char text[sizeof(comm->failed_text)];
    MPI_Status status;
    int flag = 0;

    if (comm->one_node || comm->shadow == MPI_COMM_NULL || comm_leader(comm) != comm->rank || !proc_may_call_mpi())
        return HETMPI_SUCCESS;
    if (MPI_Iprobe(MPI_ANY_SOURCE, TAG_NOTICE, comm->shadow, &flag, &status) != MPI_SUCCESS || !flag)
        return HETMPI_SUCCESS;
    if (MPI_Recv(&notice, sizeof(notice), MPI_BYTE, status.MPI_SOURCE, TAG_NOTICE, comm->shadow,
                 MPI_STATUS_IGNORE) != MPI_SUCCESS)
        return HETMPI_SUCCESS;
    snprintf(text, sizeof(text), "rank %d reported: %s", (int)notice.rank, notice.text);
    return comm_fail_here(comm, notice.code, text);
}

static bool is_sent(struct notice_send *send)
{
    int done = 1;

    for (int i = 0; i < send->n && done; i++)
        if (MPI_Test(&send->requests[i], &done, MPI_STATUS_IGNORE) != MPI_SUCCESS)
            done = 0;
    return done;
}

void notice_release(struct comm *comm)
{
    static struct notice_send *undelivered;   /* under the engine's lock */

    notice_send_due(comm);
    if (!comm->notice)
        return;
    engine_lock();
    comm->notice->next = undelivered;
    undelivered = comm->notice;
    comm->notice = NULL;
    for (struct notice_send **link = &undelivered; *link;) {
        struct notice_send *send = *link;
        if (is_sent(send)) {
            *link = send->next;
            free(send);
        } else {
            link = &send->next;
        }
    }
    engine_unlock();
}
