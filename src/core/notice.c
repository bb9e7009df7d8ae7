/*
 * Failures across nodes. Ranks that share memory see each other's failure there; all others are told by a message from
 * the rank that failed, and look for one while they wait: a rank of a node may wait for one that failed when its
 * neighbours have done their part, and are in no call of hetmpi.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/mail.h"
#include "core/notice.h"
#include "core/proc.h"
#include "hetmpi.h"

struct notice { int32_t code, rank; char text[sizeof(((struct comm *)0)->failed_text) - 32]; };

void notice_send(struct comm *comm, int code, const char *text)
{
    struct notice notice = {.code = code, .rank = comm->rank};
    int *ranks, n = 0;

    if (comm->one_node || comm->shadow == MPI_COMM_NULL)
        return;
    if (!proc_may_call_mpi()) {
        atomic_store(&comm->notice_due, true);
        return;
    }
    ranks = malloc((size_t)comm->size * sizeof(*ranks));
    if (!ranks || atomic_exchange(&comm->notice_sent, true)) {
        free(ranks);
        return;
    }
    snprintf(notice.text, sizeof(notice.text), "%s", text);
    for (int r = 0; r < comm->size; r++)
        if (r != comm->rank && !comm_is_local(comm, r))
            ranks[n++] = r;
    mail_send(comm, TAG_NOTICE, ranks, n, &notice, sizeof(notice));
    free(ranks);
}

void notice_send_later(struct comm *comm)
{
    atomic_store(&comm->notice_due, true);
}

void notice_send_due(struct comm *comm)
{
    int code = atomic_load(&comm->notice_due) ? comm_failed(comm) : HETMPI_SUCCESS;

    if (code && proc_may_call_mpi() && atomic_exchange(&comm->notice_due, false))
        notice_send(comm, code, comm->failed_text);
}

int notice_read(const struct comm *comm, int from, const void *data, size_t length, char *text, size_t bytes)
{
    struct notice notice;

    if (length == sizeof(notice)) {
        memcpy(&notice, data, sizeof(notice));
        if (notice.code > 0 && notice.code < HETMPI_ERR_LAST && notice.rank >= 0 && notice.rank < comm->size) {
            snprintf(text, bytes, "rank %d reported: %.*s", (int)notice.rank, (int)sizeof(notice.text) - 1, notice.text);
            return notice.code;
        }
    }
    snprintf(text, bytes, "rank %d sent a notice of a failure that cannot be read (%zu bytes)", from, length);
    return HETMPI_ERR_INTERNAL;
}

int notice_look(struct comm *comm)
{
    char text[sizeof(comm->failed_text)];
    size_t bytes;
    int code;
    void *data;
    int from;

    if (!mail_possible(comm) || !mail_look(comm, TAG_NOTICE, &from, &data, &bytes))
        return HETMPI_SUCCESS;
    code = notice_read(comm, from, data, bytes, text, sizeof(text));
    free(data);
    return comm_fail_here(comm, code, text);
}
