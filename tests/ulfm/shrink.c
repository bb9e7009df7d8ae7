/*
 * With a fault-tolerant MPI (mpiexec --with-ft ulfm): ranks die one after another, in collectives of several forms and in
 * messages, with calls pending; the survivors get an error, free the old communicator, and on the one that
 * MPIX_Comm_shrink gives them the next hetmpi call just works. Down to two ranks.
 *
 *     shrink ROUND...    each round kills the last rank: short, long, pending, stream, messages
 */
#include <mpi.h>
#if defined(OPEN_MPI)
#include <mpi-ext.h>
#endif

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../mpi/common.h"

#ifdef OMPI_HAVE_MPI_EXT_FTMPI
#define LONG 100003

static struct t_buf in, out;
static int32_t *host;
static hetmpi_stream_t stream;

static void fill(int value)
{
    for (size_t i = 0; i < LONG; i++)
        host[i] = value + (int32_t)i;
    t_buf_put(&in, host);
}

/* What every communicator must be able to do. */
static void check_works(MPI_Comm comm)
{
    int rank, ranks;
    size_t counts[] = { 5, LONG };
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &ranks);
    t_stage("a communicator of %d ranks works", ranks);
    for (int i = 0; i < 2; i++) {
        size_t n = counts[i];
        fill(rank);
        T_OK(hetmpi_allreduce(in.data, out.data, n, MPI_INT32_T, MPI_SUM, comm));
        t_buf_get(&out, host);
        int32_t want = (int32_t)(n - 1) * ranks + ranks * (ranks - 1) / 2;
        T_CHECK(host[n - 1] == want, "allreduce of %zu on %d ranks: %d, not %d", n, ranks, host[n - 1], want);
        T_OK(hetmpi_sendrecv(in.data, n, MPI_INT32_T, (rank + 1) % ranks, 1, out.data, n, MPI_INT32_T,
                             (rank + ranks - 1) % ranks, 1, comm, MPI_STATUS_IGNORE));
        t_buf_get(&out, host);
        want = (int32_t)(n - 1) + (rank + ranks - 1) % ranks;
        T_CHECK(host[n - 1] == want, "sendrecv of %zu on %d ranks: %d, not %d", n, ranks, host[n - 1], want);
    }
    T_OK(hetmpi_barrier(comm));
}

static int run(const char *what, MPI_Comm comm, int rank, int ranks)
{
    hetmpi_request_t pending[2] = { HETMPI_REQUEST_NULL, HETMPI_REQUEST_NULL };
    int error, code;
    if (strcmp(what, "short") == 0)
        return hetmpi_allreduce(in.data, out.data, 5, MPI_INT32_T, MPI_SUM, comm);
    if (strcmp(what, "long") == 0)
        return hetmpi_allreduce(in.data, out.data, LONG, MPI_INT32_T, MPI_SUM, comm);
    if (strcmp(what, "messages") == 0)
        return hetmpi_sendrecv(in.data, LONG, MPI_INT32_T, (rank + 1) % ranks, 1, out.data, LONG, MPI_INT32_T,
                               (rank + ranks - 1) % ranks, 1, comm, MPI_STATUS_IGNORE);
    if (strcmp(what, "stream") == 0) {
        code = hetmpi_allreduce_on_stream(in.data, out.data, LONG, MPI_INT32_T, MPI_SUM, comm, stream);
        T_OK(hetmpi_stream_synchronize(stream));
        T_OK(hetmpi_comm_error(comm, &error));
        return code ? code : error;
    }
    if (strcmp(what, "pending") != 0)
        t_fatal("no such round: %s", what);
    code = hetmpi_iallreduce(in.data, out.data, LONG, MPI_INT32_T, MPI_SUM, comm, &pending[0]);
    if (!code)
        code = hetmpi_ibarrier(comm, &pending[1]);
    error = hetmpi_waitall(2, pending, MPI_STATUSES_IGNORE);
    return code ? code : error;
}

/* The last rank dies on its way; the communicator of the others. */
static MPI_Comm lose_one(const char *what, MPI_Comm comm)
{
    MPI_Comm smaller;
    int rank, ranks, left, code = HETMPI_SUCCESS, at = 0;
    double died = 0;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &ranks);
    t_stage("%s: rank %d of %d dies", what, ranks - 1, ranks);
    fill(rank);
    for (; code == HETMPI_SUCCESS; at++) {
        if (rank == ranks - 1 && at == 20)
            raise(SIGKILL);
        died = t_now();   /* of the last call: it cannot have died before */
        code = run(what, comm, rank, ranks);
    }
    double seconds = t_now() - died;
    T_CHECK(code == HETMPI_ERR_PEER || code == HETMPI_ERR_TIMEOUT || code == HETMPI_ERR_MPI, "%s: %s: %s", what,
            t_code_name(code), hetmpi_last_error());
    T_CHECK(seconds < 6, "%s: the error came after %.1f s", what, seconds);
    MPIX_Comm_revoke(comm);
    T_MPI(MPIX_Comm_shrink(comm, &smaller));
    T_MPI(MPI_Comm_set_errhandler(smaller, MPI_ERRORS_RETURN));
    T_MPI(MPI_Comm_free(&comm));
    MPI_Comm_size(smaller, &left);
    T_CHECK(left == ranks - 1, "%d ranks are left of %d", left, ranks);
    check_works(smaller);
    return smaller;
}

int main(int argc, char **argv)
{
    t_begin(&argc, &argv, "shrink", MPI_THREAD_MULTIPLE);
    MPI_Comm comm;
    int mine, all = 1, rank;
    if (argc < 2 || t_ranks < argc + 1)
        t_fatal("usage: shrink short|long|pending|stream|messages..., on two ranks more than there are rounds");
    host = t_malloc(LONG * sizeof *host);
    t_buf_new(&in, T_DEVICE, LONG * sizeof *host);
    t_buf_new(&out, T_DEVICE, LONG * sizeof *host);
    t_buf_use(&in, LONG * sizeof *host, 0);
    t_buf_use(&out, LONG * sizeof *host, 0);
    T_OK(hetmpi_stream_create(&stream));
    T_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    T_MPI(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    check_works(comm);
    for (int i = 1; i < argc; i++)
        comm = lose_one(argv[i], comm);
    mine = t_failures();
    T_MPI(MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_SUM, comm));
    MPI_Comm_rank(comm, &rank);
    if (rank == 0)
        printf("shrink: %d ranks lost, one after another: %s (%d failures)\n", argc - 1, all ? "FAILED" : "passed", all);
    fflush(NULL);
    _exit(all != 0);   /* MPI_Finalize may wait for the dead */
}
#else
int main(int argc, char **argv)
{
    t_begin(&argc, &argv, "shrink", MPI_THREAD_SINGLE);
    t_skip("this MPI has no fault tolerance");
}
#endif
