/*
 * All six collectives: blocking, nonblocking, persistent and on a stream; every root; every kind of memory, also
 * another one on each rank; in place as MPI and as NCCL mean it; counts from 0 to many chunks. Every byte of the
 * receive buffer is compared (what a call does not define as its result must stay), and guards and input too.
 *
 *     collectives [single|multiple]
 */
#include "oracle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum coll { ALLREDUCE, REDUCE, BCAST, ALLGATHER, REDUCE_SCATTER, BARRIER, COLLS };
enum form { BLOCKING, NONBLOCKING, PERSISTENT, STREAM, FORMS };
/* SEPARATE; MPI_IN_PLACE; the aliasing that counts as in place: equal pointers, or this rank's block of the other. */
enum way { SEPARATE, IN_PLACE, ALIASED, WAYS };

static const char *const coll_names[] = { "allreduce", "reduce", "bcast", "allgather", "reduce_scatter_block",
                                          "barrier" };
static const char *const form_names[] = { "blocking", "nonblocking", "persistent", "on_stream" };
static const char *const way_names[] = { "separate", "in place", "aliased" };

#define STARTS 3         /* of a persistent request */
#define STALE 0x5A
#define BLOCK_MAX 70003  /* elements */

struct scenario {
    enum coll coll;
    enum form form;
    enum way way;
    enum t_fmt fmt;
    size_t count;
    int root;
    unsigned turn;
};

static bool stream_works = true;
static hetmpi_stream_t stream;
static unsigned char **patterns, *sum;       /* one pattern of each rank, and of the reduction */
static struct t_buf send[T_PLACES], recv[T_PLACES];
static unsigned char *send_image, *recv_image, *want_image, *got_image;
static const enum t_place places[][2] = {
    { T_PAGEABLE, T_PAGEABLE }, { T_DEVICE, T_DEVICE }, { T_PINNED, T_PINNED }, { T_PAGEABLE, T_DEVICE },
    { T_DEVICE, T_PINNED },
};
#define PAIRS (sizeof places / sizeof *places)

static bool has_send(const struct scenario *s)
{
    return s->coll != BCAST && s->coll != BARRIER;
}

static bool has_recv(const struct scenario *s)
{
    return s->coll == BCAST || (s->coll != BARRIER && (s->coll != REDUCE || t_rank == s->root));
}

/* This rank passes one buffer for both: then everything happens in the receive buffer's image. */
static bool one_buffer(const struct scenario *s)
{
    return s->way != SEPARATE && has_send(s) && has_recv(s);
}

static size_t send_elements(const struct scenario *s)
{
    return !has_send(s) ? 0 : s->coll == REDUCE_SCATTER ? s->count * (size_t)t_ranks : s->count;
}

static size_t recv_elements(const struct scenario *s)
{
    size_t all = s->count * (size_t)t_ranks;
    if (!has_recv(s))
        return 0;
    if (s->coll == REDUCE_SCATTER && s->way != SEPARATE)
        return all; /* the input stands there too */
    return s->coll == ALLGATHER ? all : s->count;
}

/* Before and after: what send and receive buffer hold. */
static void make_images(const struct scenario *s, uint64_t seed)
{
    size_t size = t_size(s->fmt), n = s->count, block = n * size, mine = (size_t)t_rank;
    bool reduces = s->coll == ALLREDUCE || s->coll == REDUCE || s->coll == REDUCE_SCATTER;
    for (int r = 0; r < t_ranks; r++)
        t_pattern(s->fmt, T_SUM, T_EXACT, seed, r, patterns[r]);
    if (reduces)
        t_oracle(s->fmt, T_SUM, (const void *const *)patterns, t_ranks, sum);
    t_repeat(send_image, patterns[t_rank], size, 0, send_elements(s));
    memset(recv_image, STALE, recv_elements(s) * size);
    if (one_buffer(s)) {
        if (s->coll == ALLGATHER)
            t_repeat(recv_image + mine * block, patterns[t_rank], size, 0, n);
        else
            t_repeat(recv_image, patterns[t_rank], size, 0, recv_elements(s));
    }
    if (s->coll == BCAST && t_rank == s->root)
        t_repeat(recv_image, patterns[t_rank], size, 0, n);
    memcpy(want_image, recv_image, recv_elements(s) * size);
    if (!has_recv(s))
        return;
    if (s->coll == ALLREDUCE || s->coll == REDUCE) {
        t_repeat(want_image, sum, size, 0, n);
    } else if (s->coll == BCAST) {
        t_repeat(want_image, patterns[s->root], size, 0, n);
    } else if (s->coll == ALLGATHER) {
        for (size_t r = 0; r < (size_t)t_ranks; r++)
            t_repeat(want_image + r * block, patterns[r], size, 0, n);
    } else {
        size_t at = s->way == ALIASED ? mine * block : 0;
        t_repeat(want_image + at, sum, size, mine * n, n);
    }
}

/* What the call gets. */
static void arguments(const struct scenario *s, struct t_buf *from, struct t_buf *to, const void **sendbuf,
                      void **recvbuf)
{
    size_t mine = (size_t)t_rank * s->count * t_size(s->fmt);
    bool none = s->count == 0 && s->turn % 2;
    *sendbuf = none ? NULL : from->data;
    *recvbuf = none || !has_recv(s) ? NULL : to->data;
    if (!one_buffer(s))
        return;
    if (s->way == IN_PLACE)
        *sendbuf = MPI_IN_PLACE;
    else if (none)
        *sendbuf = NULL;
    else if (s->coll == ALLGATHER)
        *sendbuf = to->data + mine;
    else
        *sendbuf = to->data;
    if (s->way == ALIASED && s->coll == REDUCE_SCATTER && !none)
        *recvbuf = to->data + mine;
}

/* One call in one of its forms; `...`: the arguments before the communicator. */
#define IN_FORM(name, ...)                                                                                  \
    (s->form == BLOCKING      ? hetmpi_##name(__VA_ARGS__, MPI_COMM_WORLD)                                  \
     : s->form == NONBLOCKING ? hetmpi_i##name(__VA_ARGS__, MPI_COMM_WORLD, request)                        \
     : s->form == PERSISTENT  ? hetmpi_##name##_init(__VA_ARGS__, MPI_COMM_WORLD, MPI_INFO_NULL, request)   \
                              : hetmpi_##name##_on_stream(__VA_ARGS__, MPI_COMM_WORLD, stream))

static int call(const struct scenario *s, const void *in, void *out, hetmpi_request_t *request)
{
    MPI_Datatype type = t_mpi_type(s->fmt);
    size_t n = s->count;
    switch (s->coll) {
    case ALLREDUCE: return IN_FORM(allreduce, in, out, n, type, MPI_SUM);
    case REDUCE: return IN_FORM(reduce, in, out, n, type, MPI_SUM, s->root);
    case BCAST: return IN_FORM(bcast, out, n, type, s->root);
    case ALLGATHER: return IN_FORM(allgather, in, n, type, out, n, type);
    case REDUCE_SCATTER: return IN_FORM(reduce_scatter_block, in, out, n, type, MPI_SUM);
    case BARRIER: break;
    case COLLS: break;
    }
    return s->form == BLOCKING      ? hetmpi_barrier(MPI_COMM_WORLD)
           : s->form == NONBLOCKING ? hetmpi_ibarrier(MPI_COMM_WORLD, request)
           : s->form == PERSISTENT  ? hetmpi_barrier_init(MPI_COMM_WORLD, MPI_INFO_NULL, request)
                                    : hetmpi_barrier_on_stream(MPI_COMM_WORLD, stream);
}

static bool finish(const struct scenario *s, hetmpi_request_t *request)
{
    if (s->form == BLOCKING)
        return true;
    if (s->form == STREAM) {
        int error = -1;
        bool ok = T_OK(hetmpi_stream_synchronize(stream));
        return T_OK(hetmpi_comm_error(MPI_COMM_WORLD, &error)) && T_CODE(HETMPI_SUCCESS, error) && ok;
    }
    if (s->turn % 2 == 0)
        return T_OK(hetmpi_wait(request, MPI_STATUS_IGNORE));
    for (int flag = 0; !flag; t_yield())
        if (!T_OK(hetmpi_test(request, &flag, MPI_STATUS_IGNORE)))
            return false;
    return true;
}

static void compare(const struct scenario *s, struct t_buf *from, struct t_buf *to)
{
    size_t size = t_size(s->fmt), bytes = recv_elements(s) * size;
    if (bytes > 0) {
        t_buf_get(to, got_image);
        size_t i = 0;
        while (i < bytes && got_image[i] == want_image[i])
            i++;
        if (i < bytes) {
            size_t wrong = 0;
            for (size_t k = i; k < bytes; k++)
                wrong += got_image[k] != want_image[k];
            t_fail(__FILE__, __LINE__, "%zu of %zu bytes wrong in the receive buffer, the first in element %zu: "
                   "0x%02x instead of 0x%02x", wrong, bytes, i / size, got_image[i], want_image[i]);
        }
    }
    t_buf_guards(to);
    t_buf_guards(from);
    if (has_send(s) && !one_buffer(s)) {
        t_buf_get(from, got_image);
        T_CHECK(memcmp(got_image, send_image, from->bytes) == 0, "the send buffer was changed");
    }
}

static void run(const struct scenario *s)
{
    if (s->form == STREAM && !stream_works)
        return;
    unsigned pick = s->turn % (PAIRS + 1);
    if (pick == PAIRS)
        pick = (unsigned)t_rank % PAIRS; /* each rank another kind of memory */
    struct t_buf *from = &send[places[pick][0]], *to = &recv[places[pick][1]];
    t_stage("%s %s %s, %s x %zu, root %d, %s to %s", form_names[s->form], coll_names[s->coll], way_names[s->way],
            t_fmt_name(s->fmt), s->count, s->root, t_place_name(from->place), t_place_name(to->place));
    size_t shift = s->turn % 4 * t_size(s->fmt);
    t_buf_use(from, send_elements(s) * t_size(s->fmt), shift);
    t_buf_use(to, recv_elements(s) * t_size(s->fmt), shift);
    const void *sendbuf;
    void *recvbuf;
    arguments(s, from, to, &sendbuf, &recvbuf);
    hetmpi_request_t request = HETMPI_REQUEST_NULL;
    int rounds = s->form == PERSISTENT ? STARTS : 1;
    for (int round = 0; round < rounds; round++) {
        make_images(s, s->turn + 100000u * (unsigned)round);
        t_buf_put(from, send_image);
        t_buf_put(to, recv_image);
        if (round == 0 && !T_OK(call(s, sendbuf, recvbuf, &request)))
            return;
        if (s->form == PERSISTENT && !T_OK(hetmpi_start(&request)))
            return;
        if (!finish(s, &request))
            return;
        if (s->form == NONBLOCKING)
            T_CHECK(request == HETMPI_REQUEST_NULL, "the request is not HETMPI_REQUEST_NULL after completion");
        compare(s, from, to);
    }
    if (s->form == PERSISTENT) {
        T_CHECK(request != HETMPI_REQUEST_NULL, "a persistent request is gone after wait");
        T_OK(hetmpi_request_free(&request));
        T_CHECK(request == HETMPI_REQUEST_NULL, "hetmpi_request_free left the handle");
    }
}

static unsigned turn;

static void run_all_forms(enum coll coll, enum way way, enum t_fmt fmt, size_t count, int root)
{
    for (int form = 0; form < FORMS; form++) {
        struct scenario s = { coll, (enum form)form, way, fmt, count, root, turn++ };
        run(&s);
    }
}

static void run_collective(enum coll coll)
{
    static const size_t counts[] = { 0, 1, 2, 3, 7, 64, 1000, 4099, 5003 };
    static const enum t_fmt fmts[] = { T_I32, T_U8, T_F64, T_BF16, T_F32 };
    int roots = coll == REDUCE || coll == BCAST ? t_ranks : 1;
    int ways = coll == BCAST || coll == BARRIER ? 1 : WAYS;
    for (int root = 0; root < roots; root++) {
        for (int way = 0; way < ways; way++) {
            for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
                run_all_forms(coll, (enum way)way, fmts[(c + (size_t)root) % 5], counts[c], root);
            /* Many chunks, and tails that no number of ranks divides; one form each. */
            struct scenario large = { coll, (enum form)(turn % FORMS), (enum way)way, fmts[turn % 5], BLOCK_MAX - 2,
                                      root, turn };
            run(&large);
            turn++;
            large.form = BLOCKING;
            large.turn = turn++;
            large.fmt = T_F64;
            large.count = BLOCK_MAX;
            run(&large);
        }
    }
}

/* A barrier must not let go before the last rank came. */
static void check_barrier(void)
{
    for (int form = 0; form < FORMS; form++) {
        if (form == STREAM && !stream_works)
            continue;
        for (int late = 0; late < t_ranks; late++) {
            struct scenario s = { BARRIER, (enum form)form, SEPARATE, T_U8, 0, 0, turn++ };
            hetmpi_request_t request = HETMPI_REQUEST_NULL;
            t_stage("%s barrier, rank %d late", form_names[form], late);
            if (t_rank == late)
                t_sleep(0.01);
            double entered = t_now();
            T_OK(call(&s, NULL, NULL, &request));
            if (form == PERSISTENT)
                T_OK(hetmpi_start(&request));
            finish(&s, &request);
            double left = t_now(), last = 0, first = 0;
            if (form == PERSISTENT)
                T_OK(hetmpi_request_free(&request));
            /* All ranks are on one machine: one monotonic clock. */
            T_MPI(MPI_Allreduce(&entered, &last, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD));
            T_MPI(MPI_Allreduce(&left, &first, 1, MPI_DOUBLE, MPI_MIN, MPI_COMM_WORLD));
            T_CHECK(first >= last, "a rank left the barrier %.0f us before the last entered", 1e6 * (last - first));
        }
    }
}

/* Ten calls in a row in one stream, each using the result of the one before, observed once at the end. */
static void check_stream_order(void)
{
    enum { N = 3001, CALLS = 10 };
    if (!stream_works)
        return;
    struct t_buf *buf = &recv[T_DEVICE];
    int64_t *x = t_malloc(N * sizeof *x);
    t_stage("order in a stream");
    t_buf_use(buf, N * sizeof *x, 0);
    for (int64_t i = 0; i < N; i++)
        x[i] = t_rank == 0 ? i : 0;
    t_buf_put(buf, x);
    int64_t factor = 1;
    for (int c = 0; c < CALLS; c++) {
        if (c % 2 == 0) {
            T_OK(hetmpi_bcast_on_stream(buf->data, N, MPI_INT64_T, 0, MPI_COMM_WORLD, stream));
        } else {
            T_OK(hetmpi_allreduce_on_stream(MPI_IN_PLACE, buf->data, N, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD, stream));
            factor *= t_ranks;
        }
    }
    T_OK(hetmpi_stream_synchronize(stream));
    t_buf_get(buf, x);
    for (int64_t i = 0; i < N; i++)
        if (!T_CHECK(x[i] == i * factor, "element %lld is %lld, not %lld", (long long)i, (long long)x[i],
                     (long long)(i * factor)))
            break;
    free(x);
}

/* Registering is optional, so it may be for a part of a buffer too. */
static void check_partly_registered(void)
{
    enum { N = 40009, PART = 4096 };
    int32_t *x = t_malloc(N * sizeof *x);
    t_stage("a buffer of which a part is registered");
    for (int part = 0; part < 2; part++) {
        char *begin = (char *)x + (part ? PART : 0);
        for (int32_t i = 0; i < N; i++)
            x[i] = i;
        T_OK(hetmpi_register(begin, PART));
        T_OK(hetmpi_allreduce(MPI_IN_PLACE, x, N, MPI_INT32_T, MPI_SUM, MPI_COMM_WORLD));
        for (int32_t i = 0; i < N; i++)
            if (!T_CHECK(x[i] == i * t_ranks, "element %d is %d, not %d", i, x[i], i * t_ranks))
                break;
        T_OK(hetmpi_deregister(begin));
    }
    free(x);
}

int main(int argc, char **argv)
{
    bool multiple = argc > 1 && strcmp(argv[1], "multiple") == 0;
    t_begin(&argc, &argv, "collectives", multiple ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE);
    size_t bytes = BLOCK_MAX * 8 * (size_t)t_ranks;
    unsigned char **images[] = { &send_image, &recv_image, &want_image, &got_image };
    for (int i = 0; i < 4; i++)
        *images[i] = t_malloc(bytes);
    patterns = t_malloc((size_t)t_ranks * sizeof *patterns);
    for (int r = 0; r < t_ranks; r++)
        patterns[r] = t_malloc(T_PATTERN * 8);
    sum = t_malloc(T_PATTERN * 8);
    for (int p = 0; p < T_PLACES; p++) {
        t_buf_new(&send[p], (enum t_place)p, bytes);
        t_buf_new(&recv[p], (enum t_place)p, bytes);
    }
    stream_works = t_open_stream(&stream);
    if (t_rank == 0)
        printf("on_stream: %s\n", stream_works ? "works" : "not supported here");
    for (int coll = 0; coll < BARRIER; coll++) {
        run_collective((enum coll)coll);
        T_MPI(MPI_Barrier(MPI_COMM_WORLD));
    }
    check_barrier();
    check_stream_order();
    check_partly_registered();
    for (int p = 0; p < T_PLACES; p++) {
        t_buf_free(&send[p]);
        t_buf_free(&recv[p]);
    }
    T_OK(hetmpi_stream_destroy(stream));
    for (int r = 0; r < t_ranks; r++)
        free(patterns[r]);
    for (int i = 0; i < 4; i++)
        free(*images[i]);
    free(patterns);
    free(sum);
    return t_end();
}
