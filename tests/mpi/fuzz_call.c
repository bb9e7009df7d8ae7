/* The random differential test: one call, in its form. See fuzz.h. */
#include "fuzz.h"

#include <string.h>

#define TAG 5

/* `...`: the arguments before the communicator. */
#define IN_FORM(name, ...)                                                                                  \
    (r->c.form == FZ_BLOCKING      ? hetmpi_##name(__VA_ARGS__, comm)                                       \
     : r->c.form == FZ_NONBLOCKING ? hetmpi_i##name(__VA_ARGS__, comm, &r->request)                         \
     : r->c.form == FZ_PERSISTENT  ? hetmpi_##name##_init(__VA_ARGS__, comm, MPI_INFO_NULL, &r->request)    \
                                   : hetmpi_##name##_on_stream(__VA_ARGS__, comm, stream))

static int call_barrier(struct fz_run *r, MPI_Comm comm, hetmpi_stream_t stream)
{
    switch (r->c.form) {
    case FZ_BLOCKING: return hetmpi_barrier(comm);
    case FZ_NONBLOCKING: return hetmpi_ibarrier(comm, &r->request);
    case FZ_PERSISTENT: return hetmpi_barrier_init(comm, MPI_INFO_NULL, &r->request);
    default: return hetmpi_barrier_on_stream(comm, stream);
    }
}

static int call_message(struct fz_run *r, MPI_Comm comm, hetmpi_stream_t stream)
{
    MPI_Datatype type = t_mpi_type(r->c.fmt);
    size_t n = r->c.n;
    bool blocking = r->c.form == FZ_BLOCKING, streamed = r->c.form == FZ_STREAM;
    if (fz_is_root(r))
        return blocking   ? hetmpi_send(r->sendbuf, n, type, r->c.peer, TAG, comm)
               : streamed ? hetmpi_send_on_stream(r->sendbuf, n, type, r->c.peer, TAG, comm, stream)
                          : hetmpi_isend(r->sendbuf, n, type, r->c.peer, TAG, comm, &r->request);
    if (fz_has_recv(r))
        return blocking   ? hetmpi_recv(r->recvbuf, n, type, r->c.root, TAG, comm, &r->status)
               : streamed ? hetmpi_recv_on_stream(r->recvbuf, n, type, r->c.root, TAG, comm, stream)
                          : hetmpi_irecv(r->recvbuf, n, type, r->c.root, TAG, comm, &r->request);
    return HETMPI_SUCCESS;
}

static int call_shift(struct fz_run *r, MPI_Comm comm)
{
    MPI_Datatype type = t_mpi_type(r->c.fmt);
    int ranks = r->comm->ranks, right = (r->comm->rank + 1) % ranks, left = (r->comm->rank + ranks - 1) % ranks;
    return hetmpi_sendrecv(r->sendbuf, r->c.n, type, right, TAG, r->recvbuf, r->c.n, type, left, TAG, comm,
                           &r->status);
}

static int call(struct fz_run *r, MPI_Comm comm, hetmpi_stream_t stream, MPI_Op op)
{
    MPI_Datatype type = t_mpi_type(r->c.fmt);
    const void *from = r->sendbuf;
    void *to = r->recvbuf;
    const size_t *rc = r->arrays[0], *rd = r->arrays[1], *sc = r->arrays[2], *sd = r->arrays[3];
    size_t n = r->c.n, mine = fz_between(r, r->comm->rank, r->c.root), handed = fz_between(r, r->c.root, r->comm->rank);
    bool root = fz_is_root(r);
    /* What means nothing on this rank is nonsense. */
    size_t root_n = root ? n : 77;
    MPI_Datatype root_type = root ? type : MPI_DATATYPE_NULL;
    switch (r->c.kind) {
    case FZ_ALLREDUCE: return IN_FORM(allreduce, from, to, n, type, op);
    case FZ_REDUCE: return IN_FORM(reduce, from, to, n, type, op, r->c.root);
    case FZ_REDUCE_SCATTER_BLOCK: return IN_FORM(reduce_scatter_block, from, to, n, type, op);
    case FZ_REDUCE_SCATTER: return IN_FORM(reduce_scatter, from, to, rc, type, op);
    case FZ_SCAN: return IN_FORM(scan, from, to, n, type, op);
    case FZ_EXSCAN: return IN_FORM(exscan, from, to, n, type, op);
    case FZ_BCAST: return IN_FORM(bcast, to, n, type, r->c.root);
    case FZ_ALLGATHER: return IN_FORM(allgather, from, n, type, to, n, type);
    case FZ_ALLGATHERV: return IN_FORM(allgatherv, from, mine, type, to, rc, rd, type);
    case FZ_GATHER: return IN_FORM(gather, from, n, type, to, root_n, root_type, r->c.root);
    case FZ_GATHERV:
        return IN_FORM(gatherv, from, mine, type, to, root ? rc : NULL, root ? rd : NULL, root_type, r->c.root);
    case FZ_SCATTER: return IN_FORM(scatter, from, root_n, root_type, to, n, type, r->c.root);
    case FZ_SCATTERV:
        return IN_FORM(scatterv, from, root ? sc : NULL, root ? sd : NULL, root_type, to, handed, type, r->c.root);
    case FZ_ALLTOALL: return IN_FORM(alltoall, from, n, type, to, n, type);
    case FZ_ALLTOALLV: return IN_FORM(alltoallv, from, sc, sd, type, to, rc, rd, type);
    case FZ_BARRIER: return call_barrier(r, comm, stream);
    case FZ_MESSAGE: return call_message(r, comm, stream);
    case FZ_SENDRECV: return call_shift(r, comm);
    case FZ_KINDS: break;
    }
    t_fatal("no collective %d", (int)r->c.kind);
}

int fz_call(struct fz_run *r, const hetmpi_stream_t *streams)
{
    unsigned char factor[FZ_FACTOR_BYTES];
    MPI_Op op = fz_reduces(r->c.kind) ? t_mpi_op(r->c.op) : MPI_OP_NULL;
    if (r->c.premul) {
        fz_factor(r, r->comm->rank, factor);
        if (!T_OK(hetmpi_op_create_premul_sum(factor, t_mpi_type(r->c.fmt), &op)))
            return HETMPI_ERR_OP;
    }
    int code = call(r, r->comm->comm, streams[r->c.stream], op);
    if (r->c.premul)
        T_OK(hetmpi_op_free(&op));   /* calls under way keep what they took from it */
    memset(r->arrays, 0xEE, sizeof r->arrays);   /* the caller may, as soon as the call returned */
    return code;
}
