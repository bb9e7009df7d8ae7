/*
 * hetmpi_comm_abort from a thread that does nothing else, while the other ranks wait in calls of every form that its own
 * rank never makes: all end with HETMPI_ERR_ABORTED; of a call on a stream the asynchronous error tells, and the stream goes
 * on. Then every call on that communicator fails at once, on all ranks, and others work.
 */
#include "common.h"

#include <pthread.h>
#include <stdlib.h>

enum form { BLOCKING, NONBLOCKING, PERSISTENT, STREAM, BARRIER, RECEIVE, SETS };
static const char *const names[SETS] = { "blocking", "nonblocking", "persistent", "on a stream", "barrier", "receive" };

enum { N = 30011 };
static int32_t x[N];

static void *abort_soon(void *comm)
{
    t_sleep(0.03);
    T_OK(hetmpi_comm_abort(*(MPI_Comm *)comm));
    return NULL;
}

static int on_stream(MPI_Comm comm)
{
    hetmpi_stream_t stream;
    int error = HETMPI_SUCCESS, code;
    T_OK(hetmpi_stream_create(&stream));
    code = hetmpi_allreduce_on_stream(MPI_IN_PLACE, x, N, MPI_INT32_T, MPI_SUM, comm, stream);
    T_OK(hetmpi_stream_synchronize(stream)); /* the failed call holds nothing up */
    T_OK(hetmpi_comm_error(comm, &error));
    T_OK(hetmpi_stream_destroy(stream));
    return code ? code : error;
}

static int call(enum form form, MPI_Comm comm)
{
    hetmpi_request_t request = HETMPI_REQUEST_NULL;
    int code;
    switch (form) {
    case NONBLOCKING:
        code = hetmpi_iallreduce(MPI_IN_PLACE, x, N, MPI_INT32_T, MPI_SUM, comm, &request);
        return code ? code : hetmpi_wait(&request, MPI_STATUS_IGNORE);
    case PERSISTENT:
        T_OK(hetmpi_allreduce_init(MPI_IN_PLACE, x, N, MPI_INT32_T, MPI_SUM, comm, MPI_INFO_NULL, &request));
        code = hetmpi_start(&request);
        if (!code)
            code = hetmpi_wait(&request, MPI_STATUS_IGNORE);
        T_OK(hetmpi_request_free(&request));
        return code;
    case STREAM: return on_stream(comm);
    case BARRIER: return hetmpi_barrier(comm);
    case RECEIVE: return hetmpi_recv(x, N, MPI_INT32_T, 0, 5, comm, MPI_STATUS_IGNORE);
    default: return hetmpi_allreduce(MPI_IN_PLACE, x, N, MPI_INT32_T, MPI_SUM, comm);
    }
}

static void check(enum form form)
{
    MPI_Comm comm;
    pthread_t thread;
    int error = HETMPI_SUCCESS;
    t_stage("%s", names[form]);
    T_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    T_MPI(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    T_OK(hetmpi_barrier(comm));
    T_MPI(MPI_Barrier(MPI_COMM_WORLD)); /* some may be in hetmpi's barrier still when others are through */
    if (t_rank == 0) {
        if (pthread_create(&thread, NULL, abort_soon, &comm) != 0)
            t_fatal("no thread");
        pthread_join(thread, NULL);
    } else {
        T_CODE(HETMPI_ERR_ABORTED, call(form, comm));
    }
    double start = t_now();
    T_CODE(HETMPI_ERR_ABORTED, hetmpi_barrier(comm));
    T_CHECK(t_now() - start < 1, "the next call took %.2f s", t_now() - start);
    T_OK(hetmpi_comm_error(comm, &error));
    T_CODE(HETMPI_ERR_ABORTED, error);
    T_MPI(MPI_Comm_free(&comm));
    int32_t one = 1;
    T_OK(hetmpi_allreduce(MPI_IN_PLACE, &one, 1, MPI_INT32_T, MPI_SUM, MPI_COMM_WORLD));
    T_CHECK(one == t_ranks, "the world's sum of ones is %d", one);
}

int main(int argc, char **argv)
{
    t_begin(&argc, &argv, "aborts", MPI_THREAD_MULTIPLE);
    for (int form = 0; form < SETS; form++)
        check((enum form)form);
    return t_end();
}
