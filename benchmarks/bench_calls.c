/*
 * One call of the collective: hetmpi's in the form that was asked for, or MPI's own blocking one. All of them come from
 * the library's table of names and parameters.
 */
#include <stdlib.h>

#include "bench.h"

/* A row of the library's table of collectives as a call: parameters in terms of bench_arguments. */
#define GIVE(kind, name) GIVE_##kind
#define GIVE_IN a->send
#define GIVE_OUT a->recv
#define GIVE_BUFFER a->recv
#define GIVE_COUNT a->count
#define GIVE_COUNTS a->counts
#define GIVE_DISPLS a->displs
#define GIVE_TYPE a->type
#define GIVE_OP a->op
#define GIVE_ROOT a->root
#define GIVE_COMM a->comm

#define BLOCKING(Name, name, NAME, traits, ...)                                                                        \
    case BENCH_##NAME: return hetmpi_##name(COLL_EACH(GIVE, __VA_ARGS__));
#define NONBLOCKING(Name, name, NAME, traits, ...)                                                                     \
    case BENCH_##NAME: return hetmpi_i##name(COLL_EACH(GIVE, __VA_ARGS__), request);
#define PERSISTENT(Name, name, NAME, traits, ...)                                                                      \
    case BENCH_##NAME: return hetmpi_##name##_init(COLL_EACH(GIVE, __VA_ARGS__), MPI_INFO_NULL, request);
#define OTHER(Name, name, NAME, traits, ...)                                                                           \
    case BENCH_##NAME: return MPI_##Name(COLL_EACH(GIVE, __VA_ARGS__));

static int blocking(enum bench_kind kind, const struct bench_arguments *a)
{
    switch (kind) {
    COLL_ALL(BLOCKING)
    default: abort();
    }
}

static int nonblocking(enum bench_kind kind, const struct bench_arguments *a, hetmpi_request_t *request)
{
    switch (kind) {
    COLL_ALL(NONBLOCKING)
    default: abort();
    }
}

static int persistent(enum bench_kind kind, const struct bench_arguments *a, hetmpi_request_t *request)
{
    switch (kind) {
    COLL_ALL(PERSISTENT)
    default: abort();
    }
}

static int other(enum bench_kind kind, const struct bench_mpi_arguments *a)
{
    switch (kind) {
    COLL_ALL(OTHER)
    default: abort();
    }
}

/* The buffers as the current shape wants them. */
static void place(const struct bench *bench, unsigned char *send_buffer, unsigned char *recv_buffer, const void **send,
                  void **recv)
{
    bool scatters = kind_facts(bench->options->kind)->send == EXTENT_ALL_AT_ROOT;

    *send = bench->shape.in_place && !scatters ? MPI_IN_PLACE : send_buffer;
    *recv = bench->shape.in_place && scatters ? MPI_IN_PLACE : recv_buffer;
}

static void *table(const struct bench *bench, size_t each)
{
    void *memory = calloc((size_t)bench->ranks, each);

    if (!memory)
        die("out of memory: counts of %d ranks", bench->ranks);
    return memory;
}

/* MPI's counts are ints; where they do not fit, MPI is not called (see run_size). */
static void set_arguments(struct bench *bench)
{
    struct bench_arguments *ours = &bench->ours;
    struct bench_mpi_arguments *mpi = &bench->mpi;
    unsigned char *send = bench->device ? bench->host_send : bench->send;
    unsigned char *recv = bench->device ? bench->host_recv : bench->recv;

    *ours = (struct bench_arguments){.count = bench->shape.count, .type = bench->type, .op = bench->op,
                                     .root = bench->options->root, .comm = bench->comm};
    *mpi = (struct bench_mpi_arguments){.count = (int)bench->shape.count, .type = bench->type, .op = bench->op,
                                        .root = bench->options->root, .comm = bench->comm};
    place(bench, bench->send, bench->recv, &ours->send, &ours->recv);
    place(bench, send, recv, &mpi->send, &mpi->recv);
    ours->counts = table(bench, sizeof(size_t));
    ours->displs = table(bench, sizeof(size_t));
    mpi->counts = table(bench, sizeof(int));
    mpi->displs = table(bench, sizeof(int));
    for (int rank = 0; rank < bench->ranks; rank++) {
        ours->counts[rank] = ours->count;
        ours->displs[rank] = ours->count * (size_t)rank;
        mpi->counts[rank] = mpi->count;
        mpi->displs[rank] = (int)ours->displs[rank];
    }
}

void calls_open(struct bench *bench)
{
    set_arguments(bench);
    bench->request = HETMPI_REQUEST_NULL;
    if (bench->options->form == FORM_PERSISTENT)
        HETMPI(persistent(bench->options->kind, &bench->ours, &bench->request));
}

void calls_close(struct bench *bench)
{
    if (bench->options->form == FORM_PERSISTENT)
        HETMPI(hetmpi_request_free(&bench->request));
    free(bench->ours.counts);
    free(bench->ours.displs);
    free(bench->mpi.counts);
    free(bench->mpi.displs);
}

void call_ours(struct bench *bench)
{
    enum bench_kind kind = bench->options->kind;

    if (kind_is(kind, KIND_MESSAGES)) {
        messages_ours(bench);
        return;
    }
    switch (bench->options->form) {
    case FORM_BLOCKING:
        HETMPI(blocking(kind, &bench->ours));
        return;
    case FORM_NONBLOCKING:
        HETMPI(nonblocking(kind, &bench->ours, &bench->request));
        break;
    case FORM_PERSISTENT:
        HETMPI(hetmpi_start(&bench->request));
        break;
    }
    HETMPI(hetmpi_wait(&bench->request, MPI_STATUS_IGNORE));
}

/* MPI on device buffers: input copied to the host, the call, output copied back, and no byte more than needed. */
void call_other(struct bench *bench)
{
    enum bench_kind kind = bench->options->kind;
    struct bench_input input;
    size_t e = bench->element, result;

    if (kind_is(kind, KIND_MESSAGES)) {
        messages_other(bench);
        return;
    }
    if (!bench->device) {
        MPI(other(kind, &bench->mpi));
        return;
    }
    input = input_of(bench);
    result = kind == BENCH_BCAST && input.count ? 0 : result_elements(bench);
    if (input.count)
        HETMPI(hetmpi_memcpy((input.in_recv ? bench->host_recv : bench->host_send) + input.first * e,
                             (input.in_recv ? bench->recv : bench->send) + input.first * e, input.count * e));
    MPI(other(kind, &bench->mpi));
    if (result)
        HETMPI(hetmpi_memcpy(bench->recv, bench->host_recv, result * e));
}
