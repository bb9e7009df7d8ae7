/*
 * Inputs that people's programs met elsewhere: nonblocking reductions waited for in reverse order; two collectives on
 * two communicators that half of the ranks start the other way round, also from two threads; counts smaller than the
 * number of ranks, and blocks of nothing.
 */
#include "oracle.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define RANKS_MAX 8
#define ROUNDS 200

/* ireduce, iallreduce, ireduce_scatter in flight give the bits of the blocking calls. */
static void check_reverse(enum t_fmt fmt, size_t n)
{
    size_t size = t_size(fmt), counts[RANKS_MAX], all = n * (size_t)t_ranks;
    unsigned char *in = t_malloc(all * size), *pattern = t_malloc(T_PATTERN * size), *blocking[3], *later[3];
    MPI_Datatype type = t_mpi_type(fmt);
    hetmpi_request_t requests[3];
    t_stage("three reductions in flight, %s x %zu", t_fmt_name(fmt), n);
    t_pattern(fmt, T_SUM, T_RANDOM, n, t_rank, pattern);
    t_repeat(in, pattern, size, 0, all);
    for (int i = 0; i < 3; i++) {
        blocking[i] = t_malloc(n * size);
        later[i] = t_malloc(n * size);
        memset(blocking[i], 0x5A, n * size);
        memset(later[i], 0x5A, n * size);
    }
    for (int r = 0; r < t_ranks; r++)
        counts[r] = n;
    T_OK(hetmpi_reduce(in, blocking[0], n, type, MPI_SUM, 1 % t_ranks, MPI_COMM_WORLD));
    T_OK(hetmpi_allreduce(in, blocking[1], n, type, MPI_SUM, MPI_COMM_WORLD));
    T_OK(hetmpi_reduce_scatter(in, blocking[2], counts, type, MPI_SUM, MPI_COMM_WORLD));
    T_OK(hetmpi_ireduce(in, later[0], n, type, MPI_SUM, 1 % t_ranks, MPI_COMM_WORLD, &requests[0]));
    T_OK(hetmpi_iallreduce(in, later[1], n, type, MPI_SUM, MPI_COMM_WORLD, &requests[1]));
    T_OK(hetmpi_ireduce_scatter(in, later[2], counts, type, MPI_SUM, MPI_COMM_WORLD, &requests[2]));
    for (int i = 2; i >= 0; i--)
        T_OK(hetmpi_wait(&requests[i], MPI_STATUS_IGNORE));
    for (int i = 0; i < 3; i++) {
        T_CHECK(memcmp(blocking[i], later[i], n * size) == 0, "call %d gives other bits than the blocking one", i);
        free(blocking[i]);
        free(later[i]);
    }
    free(in);
    free(pattern);
}

/* One communicator of the two, and what is called on it. */
struct side {
    MPI_Comm comm;
    bool exchanges;
    int round;
    int32_t in[RANKS_MAX], out[RANKS_MAX];
    hetmpi_request_t request;
};

static void start(struct side *s)
{
    for (int r = 0; r < t_ranks; r++) {
        s->in[r] = t_rank * 100 + r + s->round;
        s->out[r] = -1;
    }
    if (s->exchanges)
        T_OK(hetmpi_ialltoall(s->in, 1, MPI_INT32_T, s->out, 1, MPI_INT32_T, s->comm, &s->request));
    else
        T_OK(hetmpi_iallreduce(s->in, s->out, (size_t)t_ranks, MPI_INT32_T, MPI_SUM, s->comm, &s->request));
}

static void finish(struct side *s)
{
    T_OK(hetmpi_wait(&s->request, MPI_STATUS_IGNORE));
    for (int r = 0; r < t_ranks; r++) {
        int32_t want = s->exchanges ? r * 100 + t_rank + s->round
                                    : t_ranks * (t_ranks - 1) / 2 * 100 + t_ranks * (r + s->round);
        if (!T_CHECK(s->out[r] == want, "%s, round %d: element %d is %d, not %d",
                     s->exchanges ? "ialltoall" : "iallreduce", s->round, r, s->out[r], want))
            return;
    }
}

static void check_crossed(struct side *a, struct side *b)
{
    t_stage("two communicators, the other way round on odd ranks");
    for (int round = 0; round < ROUNDS; round++) {
        struct side *first = t_rank % 2 ? b : a, *second = t_rank % 2 ? a : b;
        a->round = b->round = round;
        start(first);
        start(second);
        finish(round % 2 ? first : second);
        finish(round % 2 ? second : first);
    }
}

static void *one_side(void *arg)
{
    struct side *s = arg;
    for (s->round = 0; s->round < ROUNDS; s->round++) {
        start(s);
        finish(s);
    }
    return NULL;
}

static void check_threads(struct side *a, struct side *b)
{
    pthread_t thread;
    t_stage("two communicators, a thread for each");
    if (pthread_create(&thread, NULL, one_side, a))
        t_fatal("pthread_create failed");
    one_side(b);
    pthread_join(thread, NULL);
}

/* Counts around the number of ranks and below. */
static void check_few(size_t n)
{
    int32_t in[6 * RANKS_MAX] = { 0 }, out[6 * RANKS_MAX];
    size_t ranks = (size_t)t_ranks, me = (size_t)t_rank, all = n * ranks;
    int sum = t_ranks * (t_ranks - 1) / 2;
    MPI_Comm world = MPI_COMM_WORLD;
    t_stage("count %zu", n);
    for (size_t i = 0; i < all; i++)
        in[i] = t_rank * 1000 + (int32_t)i;
#define EXPECT(length, want)                                                                             \
    for (size_t i = 0; i < (length); i++)                                                                \
        if (!T_CHECK(out[i] == (int32_t)(want), "element %zu is %d, not %d", i, out[i], (int)(want)))     \
            break
    T_OK(hetmpi_allreduce(in, out, n, MPI_INT32_T, MPI_SUM, world));
    EXPECT(n, sum * 1000 + t_ranks * (int)i);
    T_OK(hetmpi_reduce_scatter_block(in, out, n, MPI_INT32_T, MPI_SUM, world));
    EXPECT(n, sum * 1000 + t_ranks * (int)(me * n + i));
    T_OK(hetmpi_allgather(in, n, MPI_INT32_T, out, n, MPI_INT32_T, world));
    EXPECT(all, i / n * 1000 + i % n);
    T_OK(hetmpi_alltoall(in, n, MPI_INT32_T, out, n, MPI_INT32_T, world));
    EXPECT(all, i / n * 1000 + me * n + i % n);
    T_OK(hetmpi_scan(in, out, n, MPI_INT32_T, MPI_SUM, world));
    EXPECT(n, t_rank * (t_rank + 1) / 2 * 1000 + (t_rank + 1) * (int)i);
    for (int root = 0; root < t_ranks; root++) {
        memcpy(out, in, sizeof in);
        T_OK(hetmpi_bcast(out, n, MPI_INT32_T, root, world));
        EXPECT(n, root * 1000 + (int)i);
        T_OK(hetmpi_scatter(in, n, MPI_INT32_T, out, n, MPI_INT32_T, root, world));
        EXPECT(n, (size_t)root * 1000 + me * n + i);
        T_OK(hetmpi_reduce(in, out, n, MPI_INT32_T, MPI_SUM, root, world));
        EXPECT(t_rank == root ? n : 0, sum * 1000 + t_ranks * (int)i);
        T_OK(hetmpi_gather(in, n, MPI_INT32_T, out, n, MPI_INT32_T, root, world));
        EXPECT(t_rank == root ? all : 0, i / n * 1000 + i % n);
    }
}

/* Nothing to send, nothing to get: no buffers. Rank r sends one element to rank r + 1 alone. */
static void check_nothing(void)
{
    size_t counts[2][RANKS_MAX] = { { 0 } }, displs[RANKS_MAX] = { 0 }, blocks[RANKS_MAX] = { 0, 0, 7, 0, 1 };
    int32_t mine = 40 + t_rank, got = -1, in[8 + RANKS_MAX], out[8];
    int right = (t_rank + 1) % t_ranks, left = (t_rank + t_ranks - 1) % t_ranks;
    size_t before = 0;
    t_stage("alltoallv of NULL buffers");
    T_OK(hetmpi_alltoallv(NULL, counts[0], displs, MPI_INT32_T, NULL, counts[1], displs, MPI_INT32_T, MPI_COMM_WORLD));
    /* Odd ranks send, their right neighbours alone receive. */
    bool sends = t_rank % 2 == 1, receives = left % 2 == 1;
    counts[0][right] = sends;
    counts[1][left] = receives;
    T_OK(hetmpi_alltoallv(sends ? &mine : NULL, counts[0], displs, MPI_INT32_T, receives ? &got : NULL, counts[1],
                          displs, MPI_INT32_T, MPI_COMM_WORLD));
    T_CHECK(got == (receives ? 40 + left : -1), "got %d from rank %d", got, left);
    t_stage("reduce_scatter of {0, 0, 7, 0, 1}");
    for (int i = 0; i < 8; i++) {
        in[i] = t_rank + 10 * i;
        out[i] = -1;
    }
    for (int r = 0; r < t_rank; r++)
        before += blocks[r];
    T_OK(hetmpi_reduce_scatter(in, blocks[t_rank] ? out : NULL, blocks, MPI_INT32_T, MPI_SUM, MPI_COMM_WORLD));
    for (size_t i = 0; i < 8; i++) {
        int want = i < blocks[t_rank] ? t_ranks * (t_ranks - 1) / 2 + 10 * t_ranks * (int)(before + i) : -1;
        T_CHECK(out[i] == want, "element %zu is %d, not %d", i, out[i], want);
    }
}

int main(int argc, char **argv)
{
    static struct side a = { .exchanges = false }, b = { .exchanges = true };
    int provided = 0;
    t_begin(&argc, &argv, "inputs_calls", MPI_THREAD_MULTIPLE);
    MPI_Query_thread(&provided);
    if (t_ranks > RANKS_MAX)
        t_skip("made for at most %d ranks", RANKS_MAX);
    check_reverse(T_F32, 1);
    check_reverse(T_F32, 65537);
    check_reverse(T_BF16, 1);
    check_reverse(T_BF16, 65537);
    T_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &a.comm));
    T_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &b.comm));
    T_OK(hetmpi_comm_attach(a.comm, MPI_INFO_NULL));
    T_OK(hetmpi_comm_attach(b.comm, MPI_INFO_NULL));
    check_crossed(&a, &b);
    if (provided == MPI_THREAD_MULTIPLE)
        check_threads(&a, &b);
    T_MPI(MPI_Comm_free(&a.comm));
    T_MPI(MPI_Comm_free(&b.comm));
    static const size_t few[] = { 0, 1, 4, 5, 6 };
    for (int i = 0; i < 5; i++)
        check_few(few[i]);
    if (t_ranks >= 5)
        check_nothing();
    return t_end();
}
