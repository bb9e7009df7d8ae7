/*
 * Messages that never come: with a timeout every way of waiting for one ends with HETMPI_ERR_TIMEOUT and says from or
 * to whom; an abort ends them too; buffers are the caller's again afterwards; other communicators work.
 */
#include "common.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LARGE 3000000

enum kind { RECV, WAIT, TEST, WAITANY, SEND, HALF, ABORT, FREE, KINDS };

static unsigned char *data;

/* What rank 0 does; rank 1 does nothing that would let it end. */
static int call(enum kind kind, struct t_buf *buf, MPI_Comm comm)
{
    hetmpi_request_t requests[2] = { HETMPI_REQUEST_NULL, HETMPI_REQUEST_NULL };
    int code, flag = 0, index = -1;
    switch (kind) {
    case RECV: return hetmpi_recv(buf->data, LARGE, MPI_BYTE, 1, 23, comm, MPI_STATUS_IGNORE);
    case SEND: return hetmpi_send(buf->data, LARGE, MPI_BYTE, 1, 23, comm);
    case HALF: /* the envelope has come, what it announces will not */
        return hetmpi_recv(buf->data, LARGE, MPI_BYTE, 1, 24, comm, MPI_STATUS_IGNORE);
    default: break;
    }
    code = hetmpi_irecv(buf->data, LARGE, MPI_BYTE, 1, 23, comm, &requests[kind == WAITANY]);
    if (code)
        return code;
    switch (kind) {
    case TEST:
        while (!flag && !code)
            code = hetmpi_test(&requests[0], &flag, MPI_STATUS_IGNORE);
        return code;
    case WAITANY: return hetmpi_waitany(2, requests, &index, MPI_STATUS_IGNORE);
    case ABORT:
        T_OK(hetmpi_comm_abort(comm));
        break;
    case FREE: /* nobody waits: the communicator's end does */
        return hetmpi_request_free(&requests[0]);
    default: break;
    }
    return hetmpi_wait(&requests[0], MPI_STATUS_IGNORE);
}

static void check(enum kind kind, enum t_place place, MPI_Info info, MPI_Comm others)
{
    static const char *const names[] = { "recv", "wait", "test", "waitany", "send", "half a recv", "abort", "free" };
    MPI_Comm comm;
    hetmpi_request_t request;
    struct t_buf buf;
    int error = 0, x = 1, expected = kind == ABORT ? HETMPI_ERR_ABORTED : HETMPI_ERR_TIMEOUT;
    t_stage("%s, %s memory", names[kind], t_place_name(place));
    T_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    T_MPI(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    T_OK(hetmpi_comm_attach(comm, info));
    t_buf_new(&buf, place, LARGE);
    t_buf_use(&buf, LARGE, 0);
    if (t_rank == 1 && kind == HALF)
        T_OK(hetmpi_isend(buf.data, LARGE, MPI_BYTE, 0, 24, comm, &request));
    T_MPI(MPI_Barrier(MPI_COMM_WORLD));
    if (t_rank == 0) {
        double started = t_now(), took;
        int code = call(kind, &buf, comm);
        char text[512];
        took = t_now() - started;
        snprintf(text, sizeof text, "%s", hetmpi_last_error());
        if (kind == FREE) {
            T_OK(code);
        } else {
            T_CODE(expected, code);
            T_CHECK(took < 0.4 + (t_sanitized() ? 6 : 2), "the call took %.2f s", took);
            T_CHECK(kind == ABORT || took > 0.35, "the call ended after %.2f s", took);
            T_CHECK(kind == ABORT || (strstr(text, "rank 1") && strstr(text, kind == HALF ? "tag 24" : "tag 23")),
                    "the message names neither rank nor tag: %s", text);
            T_CODE(expected, hetmpi_send(data, 1, MPI_BYTE, 1, 1, comm));
            T_CODE(expected, hetmpi_irecv(data, 1, MPI_BYTE, 1, 1, comm, &request));
            T_OK(hetmpi_comm_error(comm, &error));
            T_CODE(expected, error);
            t_buf_fill(&buf, 0);
            t_buf_guards(&buf);
        }
    }
    if (kind == HALF) /* until then rank 1 makes no call that would move its message on */
        T_MPI(MPI_Barrier(MPI_COMM_WORLD));
    T_OK(hetmpi_allreduce(MPI_IN_PLACE, &x, 1, MPI_INT, MPI_SUM, others));
    T_CHECK(x == t_ranks, "sum of ones on another communicator is %d", x);
    if (t_rank == 1 && kind == HALF)
        T_CODE(expected, hetmpi_wait(&request, MPI_STATUS_IGNORE));
    T_MPI(MPI_Barrier(MPI_COMM_WORLD));
    T_MPI(MPI_Comm_free(&comm));
    t_buf_free(&buf);
}

int main(int argc, char **argv)
{
    MPI_Info info;
    t_begin(&argc, &argv, "p2p_timeout", MPI_THREAD_SINGLE);
    if (t_ranks < 2)
        t_skip("one rank waits for nobody");
    data = t_malloc(LARGE);
    T_OK(hetmpi_comm_attach(MPI_COMM_WORLD, MPI_INFO_NULL));
    T_MPI(MPI_Info_create(&info));
    T_MPI(MPI_Info_set(info, "timeout", "400ms"));
    for (int kind = 0; kind < KINDS; kind++)
        check((enum kind)kind, kind % 2 ? T_DEVICE : T_PAGEABLE, info, MPI_COMM_WORLD);
    check(SEND, T_DEVICE, info, MPI_COMM_WORLD);
    check(HALF, T_PAGEABLE, info, MPI_COMM_WORLD);
    T_MPI(MPI_Info_free(&info));
    free(data);
    return t_end();
}
