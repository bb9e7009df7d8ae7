/*
 * Point to point, as the OSU micro-benchmarks do it: rank i and rank i + n/2 are a pair.
 *   latency   a round trip of one message
 *   bw        a window of messages one way, then a short answer
 *   bibw      a window both ways at once
 *   mbw_mr    bw of all pairs at once
 *   p2p       latency, then bw
 * A call is one of these. With --compare on device buffers, MPI's messages go through host copies, and those count.
 */
#include "bench.h"

#define WINDOW 64
#define TAG_DATA 1
#define TAG_ANSWER 2

bool messages_are_trips(const struct bench *bench)
{
    return bench->options->kind == BENCH_LATENCY || (bench->options->kind == BENCH_P2P && !bench->windowed);
}

bool messages_fit(enum bench_kind kind, int ranks)
{
    return kind == BENCH_MBW_MR ? ranks % 2 == 0 : ranks == 2;
}

double messages_of_call(const struct bench *bench)
{
    switch (bench->options->kind) {
    case BENCH_LATENCY: return 2;
    case BENCH_P2P: return bench->windowed ? WINDOW : 2;
    case BENCH_BW: return WINDOW;
    case BENCH_BIBW: return 2 * WINDOW;
    case BENCH_MBW_MR: return WINDOW * (bench->ranks / 2);
    default: return 1;
    }
}

static bool is_first(const struct bench *bench)
{
    return bench->rank < bench->ranks / 2;
}

static int peer_of(const struct bench *bench)
{
    return (bench->rank + bench->ranks / 2) % bench->ranks;
}

static void round_trip_ours(const struct bench *bench)
{
    const struct bench_arguments *a = &bench->ours;
    int peer = peer_of(bench);

    if (is_first(bench))
        HETMPI(hetmpi_send(a->send, a->count, a->type, peer, TAG_DATA, a->comm));
    HETMPI(hetmpi_recv(a->recv, a->count, a->type, peer, TAG_DATA, a->comm, MPI_STATUS_IGNORE));
    if (!is_first(bench))
        HETMPI(hetmpi_send(a->send, a->count, a->type, peer, TAG_DATA, a->comm));
}

static void window_ours(const struct bench *bench, bool sends, bool receives)
{
    const struct bench_arguments *a = &bench->ours;
    hetmpi_request_t requests[2 * WINDOW];
    char answer = 0;
    int peer = peer_of(bench), n = 0;

    for (int i = 0; receives && i < WINDOW; i++)
        HETMPI(hetmpi_irecv(a->recv, a->count, a->type, peer, TAG_DATA, a->comm, &requests[n++]));
    for (int i = 0; sends && i < WINDOW; i++)
        HETMPI(hetmpi_isend(a->send, a->count, a->type, peer, TAG_DATA, a->comm, &requests[n++]));
    HETMPI(hetmpi_waitall(n, requests, MPI_STATUSES_IGNORE));
    if (sends && receives)
        return;
    if (sends)
        HETMPI(hetmpi_recv(&answer, 1, MPI_BYTE, peer, TAG_ANSWER, a->comm, MPI_STATUS_IGNORE));
    else
        HETMPI(hetmpi_send(&answer, 1, MPI_BYTE, peer, TAG_ANSWER, a->comm));
}

/* Between device memory and MPI's host copies, once a message. */
static void copy_out(const struct bench *bench)
{
    if (bench->device)
        HETMPI(hetmpi_memcpy(bench->host_send, bench->send, bench->shape.send * bench->element));
}

static void copy_in(const struct bench *bench)
{
    if (bench->device)
        HETMPI(hetmpi_memcpy(bench->recv, bench->host_recv, bench->shape.recv * bench->element));
}

static void round_trip_other(const struct bench *bench)
{
    const struct bench_mpi_arguments *a = &bench->mpi;
    int peer = peer_of(bench);

    if (is_first(bench)) {
        copy_out(bench);
        MPI(MPI_Send(a->send, a->count, a->type, peer, TAG_DATA, a->comm));
    }
    MPI(MPI_Recv(a->recv, a->count, a->type, peer, TAG_DATA, a->comm, MPI_STATUS_IGNORE));
    copy_in(bench);
    if (!is_first(bench)) {
        copy_out(bench);
        MPI(MPI_Send(a->send, a->count, a->type, peer, TAG_DATA, a->comm));
    }
}

static void window_other(const struct bench *bench, bool sends, bool receives)
{
    const struct bench_mpi_arguments *a = &bench->mpi;
    MPI_Request requests[2 * WINDOW];
    char answer = 0;
    int peer = peer_of(bench), n = 0;

    for (int i = 0; receives && i < WINDOW; i++)
        MPI(MPI_Irecv(a->recv, a->count, a->type, peer, TAG_DATA, a->comm, &requests[n++]));
    for (int i = 0; sends && i < WINDOW; i++) {
        copy_out(bench);
        MPI(MPI_Isend(a->send, a->count, a->type, peer, TAG_DATA, a->comm, &requests[n++]));
    }
    MPI(MPI_Waitall(n, requests, MPI_STATUSES_IGNORE));
    for (int i = 0; receives && i < WINDOW && bench->device; i++)
        copy_in(bench);
    if (sends && receives)
        return;
    if (sends)
        MPI(MPI_Recv(&answer, 1, MPI_BYTE, peer, TAG_ANSWER, a->comm, MPI_STATUS_IGNORE));
    else
        MPI(MPI_Send(&answer, 1, MPI_BYTE, peer, TAG_ANSWER, a->comm));
}

void messages_ours(struct bench *bench)
{
    if (messages_are_trips(bench))
        round_trip_ours(bench);
    else
        window_ours(bench, is_first(bench) || bench->options->kind == BENCH_BIBW,
                    !is_first(bench) || bench->options->kind == BENCH_BIBW);
}

void messages_other(struct bench *bench)
{
    if (messages_are_trips(bench))
        round_trip_other(bench);
    else
        window_other(bench, is_first(bench) || bench->options->kind == BENCH_BIBW,
                     !is_first(bench) || bench->options->kind == BENCH_BIBW);
}
