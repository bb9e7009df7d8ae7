/*
 * A rank that never calls: with HETMPI_TIMEOUT=1 the others end with HETMPI_ERR_TIMEOUT and a message that names the
 * rank and the collective, later calls fail at once, other communicators work, and the late rank fails too. Calls on a
 * stream, for which no thread of the program waits, are no exception.
 *
 *     timeout [multiple]
 */
#include "common.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LONG 100003

enum kind { SMALL_ALLREDUCE, LONG_ALLREDUCE, NONBLOCKING, PERSISTENT, BCAST, BARRIER, STREAM, KINDS };
static const char *const names[KINDS] = { "allreduce", "allreduce", "allreduce", "allreduce", "bcast", "barrier",
                                          "allreduce" };

static int32_t data[LONG];

static int on_stream(MPI_Comm comm)
{
    hetmpi_stream_t stream;
    int code, error = HETMPI_SUCCESS;
    T_OK(hetmpi_stream_create(&stream));
    code = hetmpi_allreduce_on_stream(MPI_IN_PLACE, data, LONG, MPI_INT32_T, MPI_SUM, comm, stream);
    T_OK(hetmpi_stream_synchronize(stream));
    T_OK(hetmpi_stream_destroy(stream));
    T_OK(hetmpi_comm_error(comm, &error));
    return code ? code : error;
}

static int call(enum kind kind, MPI_Comm comm, int root)
{
    hetmpi_request_t request = HETMPI_REQUEST_NULL;
    int code;
    switch (kind) {
    case SMALL_ALLREDUCE: return hetmpi_allreduce(MPI_IN_PLACE, data, 3, MPI_INT32_T, MPI_SUM, comm);
    case LONG_ALLREDUCE: return hetmpi_allreduce(MPI_IN_PLACE, data, LONG, MPI_INT32_T, MPI_SUM, comm);
    case NONBLOCKING:
        code = hetmpi_iallreduce(MPI_IN_PLACE, data, LONG, MPI_INT32_T, MPI_SUM, comm, &request);
        if (code)
            return code;
        for (int flag = 0; !flag && !code; t_yield()) /* a program may poll and never wait */
            code = hetmpi_test(&request, &flag, MPI_STATUS_IGNORE);
        return code;
    case PERSISTENT:
        code = hetmpi_allreduce_init(MPI_IN_PLACE, data, 3, MPI_INT32_T, MPI_SUM, comm, MPI_INFO_NULL, &request);
        if (!code)
            code = hetmpi_start(&request);
        if (!code)
            code = hetmpi_wait(&request, MPI_STATUS_IGNORE);
        if (request != HETMPI_REQUEST_NULL) {
            char text[512];
            snprintf(text, sizeof text, "%s", hetmpi_last_error());
            T_OK(hetmpi_request_free(&request));
        }
        return code;
    case BCAST: return hetmpi_bcast(data, LONG, MPI_INT32_T, root, comm);
    case BARRIER: return hetmpi_barrier(comm);
    case STREAM: return on_stream(comm);
    case KINDS: break;
    }
    return HETMPI_SUCCESS;
}

static void check(enum kind kind, int absent, double timeout, MPI_Info info, MPI_Comm others)
{
    MPI_Comm comm;
    double slack = t_sanitized() ? 8 : 4, started, longest = 0; /* the machine may be busy */
    int error = 0, x = t_rank, code;
    t_stage("%s, kind %d, rank %d absent, timeout %.1f s", names[kind], (int)kind, absent, timeout);
    T_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    T_MPI(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    T_OK(hetmpi_comm_attach(comm, info));
    T_OK(hetmpi_barrier(comm));
    if (t_rank == absent) {
        /* Stays away until all others have given up; then comes. */
        T_MPI(MPI_Barrier(MPI_COMM_WORLD));
        started = t_now();
        code = call(kind, comm, absent);
        /* A barrier that all others have entered (and left by a timeout) may let a rank of another node through. */
        if (kind == BARRIER && code == HETMPI_SUCCESS)
            code = call(kind, comm, absent);
        T_CHECK(code != HETMPI_SUCCESS, "the late rank's call succeeded");
        T_CHECK(t_now() - started < timeout + slack, "the late rank's call took %.2f s", t_now() - started);
    } else {
        started = t_now();
        code = call(kind, comm, absent);
        double took = t_now() - started;
        char text[512];
        snprintf(text, sizeof text, "%s", hetmpi_last_error());
        T_CHECK(code == HETMPI_ERR_TIMEOUT, "%s instead of TIMEOUT: %s", t_code_name(code), text);
        T_CHECK(took < timeout + slack, "the call ended after %.2f s", took);
        /* A rank that comes late, or learns it from another, waits less; one has waited for all of it. */
        T_MPI(MPI_Allreduce(&took, &longest, 1, MPI_DOUBLE, MPI_MAX, others));
        T_CHECK(longest > 0.9 * timeout, "the longest call ended after %.2f s already", longest);
        if (kind != PERSISTENT && kind != STREAM) /* hetmpi_request_free came between; hetmpi_comm_error told */
            T_CHECK(t_names_rank(text, absent) && strstr(text, names[kind]) != NULL,
                    "the message does not name rank %d and %s: %s", absent, names[kind], text);
        started = t_now();
        T_CODE(HETMPI_ERR_TIMEOUT, hetmpi_allreduce(MPI_IN_PLACE, &x, 1, MPI_INT32_T, MPI_SUM, comm));
        T_CHECK(t_now() - started < 0.3, "a call on the failed communicator took %.2f s", t_now() - started);
        T_OK(hetmpi_comm_error(comm, &error));
        T_CODE(HETMPI_ERR_TIMEOUT, error);
        x = 1;
        T_OK(hetmpi_allreduce(MPI_IN_PLACE, &x, 1, MPI_INT32_T, MPI_SUM, others));
        T_CHECK(x == t_ranks - 1, "sum of ones over the others is %d", x);
        T_MPI(MPI_Barrier(MPI_COMM_WORLD));
    }
    t_stage("freeing the failed communicator");
    T_MPI(MPI_Comm_free(&comm));
}

/* Of two requests on two communicators the one that will never be done is found, whichever is looked at first. */
static void check_several(bool waitany, int absent, MPI_Info short_time, MPI_Info long_time, MPI_Comm others)
{
    MPI_Comm comms[2];
    hetmpi_request_t requests[2];
    int code = HETMPI_SUCCESS, index = 1, flag = 0;
    double started;
    static int32_t x[2][7];
    t_stage("%s of requests on two communicators, rank %d absent", waitany ? "waitany" : "tests", absent);
    for (int c = 0; c < 2; c++) {
        T_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comms[c]));
        T_MPI(MPI_Comm_set_errhandler(comms[c], MPI_ERRORS_RETURN));
        T_OK(hetmpi_comm_attach(comms[c], c ? short_time : long_time));
    }
    if (t_rank != absent) {
        for (int c = 0; c < 2; c++)
            T_OK(hetmpi_iallreduce(MPI_IN_PLACE, x[c], 7, MPI_INT32_T, MPI_SUM, comms[c], &requests[c]));
        started = t_now();
        if (waitany)
            code = hetmpi_waitany(2, requests, &index, MPI_STATUS_IGNORE);
        for (; !waitany && !flag && !code && t_now() - started < 20; t_yield()) {
            int early = 0;
            T_OK(hetmpi_test(&requests[0], &early, MPI_STATUS_IGNORE));
            code = hetmpi_test(&requests[1], &flag, MPI_STATUS_IGNORE);
        }
        T_CODE(HETMPI_ERR_TIMEOUT, code);
        T_CHECK(index == 1, "request %d ended first", index);
        T_CHECK(t_now() - started < 10, "it took %.1f s", t_now() - started);
        T_MPI(MPI_Barrier(others));
    }
    T_MPI(MPI_Barrier(MPI_COMM_WORLD));
    if (t_rank == absent)
        T_OK(hetmpi_iallreduce(MPI_IN_PLACE, x[0], 7, MPI_INT32_T, MPI_SUM, comms[0], &requests[0]));
    T_OK(hetmpi_wait(&requests[0], MPI_STATUS_IGNORE));
    for (int c = 0; c < 2; c++)
        T_MPI(MPI_Comm_free(&comms[c]));
}

int main(int argc, char **argv)
{
    bool multiple = argc > 1 && strcmp(argv[1], "multiple") == 0;
    t_begin(&argc, &argv, "timeout", multiple ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE);
    if (t_ranks < 2)
        t_skip("one rank waits for nobody");
    int absent = t_ranks - 1;
    MPI_Comm others;
    MPI_Info info;
    T_MPI(MPI_Comm_split(MPI_COMM_WORLD, t_rank == absent, t_rank, &others));
    T_MPI(MPI_Comm_set_errhandler(others, MPI_ERRORS_RETURN));
    T_OK(hetmpi_comm_attach(others, MPI_INFO_NULL));
    T_MPI(MPI_Info_create(&info));
    T_MPI(MPI_Info_set(info, "timeout", "400ms"));
    check(SMALL_ALLREDUCE, absent, 1, MPI_INFO_NULL, others);
    for (int kind = LONG_ALLREDUCE; kind < (multiple ? KINDS : STREAM); kind++)
        check((enum kind)kind, absent, 0.4, info, others);
    MPI_Info long_time;
    T_MPI(MPI_Info_create(&long_time));
    T_MPI(MPI_Info_set(long_time, "timeout", "30"));
    check_several(true, absent, info, long_time, others);
    check_several(false, absent, info, long_time, others);
    T_MPI(MPI_Info_free(&long_time));
    T_MPI(MPI_Info_free(&info));
    int32_t one = 1;
    T_OK(hetmpi_allreduce(MPI_IN_PLACE, &one, 1, MPI_INT32_T, MPI_SUM, MPI_COMM_WORLD));
    T_CHECK(one == t_ranks, "sum of ones is %d", one);
    T_MPI(MPI_Comm_free(&others));
    return t_end();
}
