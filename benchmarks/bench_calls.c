/*
 * One call of the collective: hetmpi's in the form that was asked for, or MPI's own blocking one.
 */
#include <limits.h>

#include "bench.h"

/* Arguments of the current shape, as both libraries take them. */
static const void *input_of(const struct bench *bench, const unsigned char *send)
{
    return bench->shape.send == 0 ? MPI_IN_PLACE : send;
}

static void start_ours(struct bench *bench)
{
    const void *send = input_of(bench, bench->send);
    size_t count = bench->shape.count;
    MPI_Datatype type = bench->type;
    MPI_Comm comm = bench->comm;
    hetmpi_request_t *request = &bench->request;

    switch (bench->options->kind) {
    case BENCH_ALLREDUCE:
        HETMPI(hetmpi_iallreduce(send, bench->recv, count, type, bench->op, comm, request));
        break;
    case BENCH_REDUCE:
        HETMPI(hetmpi_ireduce(send, bench->recv, count, type, bench->op, bench->options->root, comm, request));
        break;
    case BENCH_BCAST:
        HETMPI(hetmpi_ibcast(bench->recv, count, type, bench->options->root, comm, request));
        break;
    case BENCH_ALLGATHER:
        HETMPI(hetmpi_iallgather(send, count, type, bench->recv, count, type, comm, request));
        break;
    case BENCH_REDUCE_SCATTER:
        HETMPI(hetmpi_ireduce_scatter_block(send, bench->recv, count, type, bench->op, comm, request));
        break;
    default:
        HETMPI(hetmpi_ibarrier(comm, request));
        break;
    }
}

static void block_ours(struct bench *bench)
{
    const void *send = input_of(bench, bench->send);
    size_t count = bench->shape.count;
    MPI_Datatype type = bench->type;
    MPI_Comm comm = bench->comm;

    switch (bench->options->kind) {
    case BENCH_ALLREDUCE:
        HETMPI(hetmpi_allreduce(send, bench->recv, count, type, bench->op, comm));
        break;
    case BENCH_REDUCE:
        HETMPI(hetmpi_reduce(send, bench->recv, count, type, bench->op, bench->options->root, comm));
        break;
    case BENCH_BCAST:
        HETMPI(hetmpi_bcast(bench->recv, count, type, bench->options->root, comm));
        break;
    case BENCH_ALLGATHER:
        HETMPI(hetmpi_allgather(send, count, type, bench->recv, count, type, comm));
        break;
    case BENCH_REDUCE_SCATTER:
        HETMPI(hetmpi_reduce_scatter_block(send, bench->recv, count, type, bench->op, comm));
        break;
    default:
        HETMPI(hetmpi_barrier(comm));
        break;
    }
}

void calls_open(struct bench *bench)
{
    const void *send = input_of(bench, bench->send);
    size_t count = bench->shape.count;
    MPI_Datatype type = bench->type;
    MPI_Comm comm = bench->comm;
    hetmpi_request_t *request = &bench->request;
    int root = bench->options->root;

    *request = HETMPI_REQUEST_NULL;
    if (bench->options->form != FORM_PERSISTENT)
        return;
    switch (bench->options->kind) {
    case BENCH_ALLREDUCE:
        HETMPI(hetmpi_allreduce_init(send, bench->recv, count, type, bench->op, comm, MPI_INFO_NULL, request));
        break;
    case BENCH_REDUCE:
        HETMPI(hetmpi_reduce_init(send, bench->recv, count, type, bench->op, root, comm, MPI_INFO_NULL, request));
        break;
    case BENCH_BCAST:
        HETMPI(hetmpi_bcast_init(bench->recv, count, type, root, comm, MPI_INFO_NULL, request));
        break;
    case BENCH_ALLGATHER:
        HETMPI(hetmpi_allgather_init(send, count, type, bench->recv, count, type, comm, MPI_INFO_NULL, request));
        break;
    case BENCH_REDUCE_SCATTER:
        HETMPI(hetmpi_reduce_scatter_block_init(send, bench->recv, count, type, bench->op, comm, MPI_INFO_NULL,
                                                request));
        break;
    default:
        HETMPI(hetmpi_barrier_init(comm, MPI_INFO_NULL, request));
        break;
    }
}

void calls_close(struct bench *bench)
{
    if (bench->options->form == FORM_PERSISTENT)
        HETMPI(hetmpi_request_free(&bench->request));
}

void call_ours(struct bench *bench)
{
    switch (bench->options->form) {
    case FORM_BLOCKING:
        block_ours(bench);
        return;
    case FORM_NONBLOCKING:
        start_ours(bench);
        break;
    case FORM_PERSISTENT:
        HETMPI(hetmpi_start(&bench->request));
        break;
    }
    HETMPI(hetmpi_wait(&bench->request, MPI_STATUS_IGNORE));
}

static void block_other(const struct bench *bench, const unsigned char *send_buffer, unsigned char *recv)
{
    const void *send = input_of(bench, send_buffer);
    int count = (int)bench->shape.count, root = bench->options->root;
    MPI_Datatype type = bench->type;
    MPI_Comm comm = bench->comm;

    switch (bench->options->kind) {
    case BENCH_ALLREDUCE:
        MPI(MPI_Allreduce(send, recv, count, type, bench->op, comm));
        break;
    case BENCH_REDUCE:
        MPI(MPI_Reduce(send, recv, count, type, bench->op, root, comm));
        break;
    case BENCH_BCAST:
        MPI(MPI_Bcast(recv, count, type, root, comm));
        break;
    case BENCH_ALLGATHER:
        MPI(MPI_Allgather(send, count, type, recv, count, type, comm));
        break;
    case BENCH_REDUCE_SCATTER:
        MPI(MPI_Reduce_scatter_block(send, recv, count, type, bench->op, comm));
        break;
    default:
        MPI(MPI_Barrier(comm));
        break;
    }
}

/* MPI on device buffers: input copied to the host, the call, output copied back, and no byte more than needed. */
void call_other(struct bench *bench)
{
    const struct bench_shape *shape = &bench->shape;
    size_t block = shape->count * bench->element, all = shape->recv * bench->element;
    size_t mine = block * (size_t)bench->rank;
    bool at_root = bench->rank == bench->options->root;

    if (!bench->device) {
        block_other(bench, bench->send, bench->recv);
        return;
    }
    if (shape->send > 0)
        HETMPI(hetmpi_memcpy(bench->host_send, bench->send, shape->send * bench->element));
    else if (bench->options->kind == BENCH_ALLGATHER)
        HETMPI(hetmpi_memcpy(bench->host_recv + mine, bench->recv + mine, block));
    else if (bench->options->kind != BENCH_BCAST || at_root)
        HETMPI(hetmpi_memcpy(bench->host_recv, bench->recv, all));

    block_other(bench, bench->host_send, bench->host_recv);

    switch (bench->options->kind) {
    case BENCH_REDUCE:
        if (at_root)
            HETMPI(hetmpi_memcpy(bench->recv, bench->host_recv, all));
        break;
    case BENCH_BCAST:
        if (!at_root)
            HETMPI(hetmpi_memcpy(bench->recv, bench->host_recv, all));
        break;
    case BENCH_REDUCE_SCATTER:
        HETMPI(hetmpi_memcpy(bench->recv, bench->host_recv, block));
        break;
    default:
        HETMPI(hetmpi_memcpy(bench->recv, bench->host_recv, all));
        break;
    }
}
