/*
 * Collectives whose blocks go between single ranks, have different lengths, or follow the order of the ranks:
 * reduce_scatter, allgatherv, gather(v), scatter(v), alltoall(v), scan, exscan. In every form, in place and not, with
 * zeros among the counts, NULL buffers where there is nothing, gaps between displacements, every root, any kind of
 * memory. Every byte of the receive buffer is compared, guards and input too; the arrays of counts are overwritten as
 * soon as a call returned. Then calls that differ between ranks, and wrong arguments.
 *
 *     collectives_v [single|multiple]
 */
#include "common.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum coll { REDUCE_SCATTER, ALLGATHERV, GATHER, GATHERV, SCATTER, SCATTERV, ALLTOALL, ALLTOALLV, SCAN, EXSCAN, COLLS };
enum form { BLOCKING, NONBLOCKING, PERSISTENT, STREAM, FORMS };
enum way { SEPARATE, IN_PLACE, ALIASED, WAYS };
enum pattern { EVEN, SPARSE, GROWING, LAST_ONLY, HASHED, PATTERNS };
enum { I32, U8, F64, TYPES };

static const char *const coll_names[] = { "reduce_scatter", "allgatherv", "gather", "gatherv", "scatter", "scatterv",
                                          "alltoall", "alltoallv", "scan", "exscan" };
static const char *const form_names[] = { "blocking", "nonblocking", "persistent", "on_stream" };
static const char *const way_names[] = { "separate", "in place", "aliased" };
static const size_t type_sizes[] = { 4, 1, 8 };

#define STARTS 2
#define STALE 0x5A
#define BYTES_MAX ((size_t)6 << 20)
#define RANKS_MAX 64

struct scenario {
    enum coll coll;
    enum form form;
    enum way way;
    enum pattern pattern;
    int type, root;
    size_t n;
    unsigned turn;
};

/* Blocks by rank in one buffer, in elements. */
struct blocks { size_t count[RANKS_MAX], displ[RANKS_MAX], total; };

static bool stream_works = true;
static hetmpi_stream_t stream;
static struct t_buf send[T_PLACES], recv[T_PLACES];
static unsigned char *send_image, *recv_image, *want_image, *got_image;
static struct blocks out, in;              /* what this rank sends to each, gets from each */
static size_t arrays[4][RANKS_MAX];        /* what a call gets: counts and displacements */

static bool is_reduction(enum coll c) { return c == REDUCE_SCATTER || c == SCAN || c == EXSCAN; }
static bool is_gather(enum coll c) { return c == GATHER || c == GATHERV; }
static bool is_scatter(enum coll c) { return c == SCATTER || c == SCATTERV; }
static bool is_alltoall(enum coll c) { return c == ALLTOALL || c == ALLTOALLV; }
static bool is_even(enum coll c) { return c == GATHER || c == SCATTER || c == ALLTOALL || c == SCAN || c == EXSCAN; }

static size_t pattern_count(const struct scenario *s, int number)
{
    static const size_t sparse[] = { 0, 0, 7, 0, 1 };
    switch (is_even(s->coll) ? EVEN : s->pattern) {
    case EVEN: return s->n;
    case SPARSE: return s->n / 8 * (number % 5 == 3) + sparse[number % 5];
    case GROWING: return s->n + 3 * (size_t)number;
    case LAST_ONLY: return number == t_ranks - 1 ? s->n : 0;
    default: return t_hash64(s->turn, (uint64_t)number, s->n) % (s->n + 1);
    }
}

/* Elements that rank i sends to rank j; in place, both ways have the same. */
static size_t between(const struct scenario *s, int i, int j)
{
    if (is_alltoall(s->coll) && s->way == IN_PLACE && i > j)
        return between(s, j, i);
    switch (s->coll) {
    case ALLGATHERV: return pattern_count(s, i);
    case GATHER:
    case GATHERV: return j == s->root ? pattern_count(s, i) : 0;
    case SCATTER:
    case SCATTERV: return i == s->root ? pattern_count(s, j) : 0;
    default: return pattern_count(s, (i * 3 + j) % (t_ranks + 2));
    }
}

/* Element e of what rank i sends to rank j, or of its vector. */
static uint64_t value(const struct scenario *s, unsigned round, int i, int j, size_t e)
{
    uint64_t to = is_scatter(s->coll) || is_alltoall(s->coll) ? (uint64_t)j : 0;
    return t_hash64((uint64_t)i, to, e * 16 + round + s->turn * 16000000u) % 61;
}

static void put(unsigned char *image, int type, size_t at, uint64_t x)
{
    int32_t i = (int32_t)x;
    double d = (double)x;
    if (type == U8)
        image[at] = (unsigned char)x;
    else if (type == I32)
        memcpy(image + 4 * at, &i, 4);
    else
        memcpy(image + 8 * at, &d, 8);
}

/* Where blocks stand. v-variants have gaps, and every other time the blocks in reverse order. */
static void lay_out(const struct scenario *s, struct blocks *b)
{
    bool displaced = !is_even(s->coll) && s->coll != REDUCE_SCATTER;
    b->total = 0;
    for (int i = 0; i < t_ranks; i++) {
        int r = displaced && s->turn % 2 ? t_ranks - 1 - i : i;
        b->total += displaced ? s->turn % 3 : 0;
        b->displ[r] = b->total;
        b->total += b->count[r];
    }
    b->total += displaced ? 2 : 0;
}

static bool has_send(const struct scenario *s) { return !is_scatter(s->coll) || t_rank == s->root; }
static bool has_recv(const struct scenario *s)
{
    return is_gather(s->coll) ? t_rank == s->root : s->coll != EXSCAN || t_rank > 0;
}
static bool one_buffer(const struct scenario *s)
{
    if (s->way == SEPARATE)
        return false;
    return !(is_gather(s->coll) || is_scatter(s->coll)) || t_rank == s->root;
}
/* The one buffer is the send buffer: the root's of a scatter. */
static bool stands_in_send(const struct scenario *s) { return one_buffer(s) && is_scatter(s->coll); }

static size_t vector_length(const struct scenario *s)
{
    size_t all = 0;
    for (int r = 0; r < t_ranks; r++)
        all += pattern_count(s, r);
    return s->coll == REDUCE_SCATTER ? all : s->n;
}

/* Elements of the buffers as the call gets them. */
static size_t send_elements(const struct scenario *s)
{
    if (!has_send(s) || (one_buffer(s) && !is_scatter(s->coll)))
        return 0;
    if (is_reduction(s->coll))
        return vector_length(s);
    return s->coll == ALLGATHERV || is_gather(s->coll) ? between(s, t_rank, is_gather(s->coll) ? s->root : 0)
                                                       : out.total;
}

static size_t recv_elements(const struct scenario *s)
{
    if (stands_in_send(s) || (!has_recv(s) && !one_buffer(s)))
        return 0;
    if (is_reduction(s->coll))
        return s->coll == REDUCE_SCATTER && s->way == SEPARATE ? pattern_count(s, t_rank) : vector_length(s);
    return is_scatter(s->coll) ? between(s, s->root, t_rank) : in.total;
}

static void want_reduction(const struct scenario *s, unsigned round)
{
    size_t first = 0, n = vector_length(s), at = 0;
    int from = 0, to = t_ranks;
    if (s->coll == REDUCE_SCATTER) {
        for (int r = 0; r < t_rank; r++)
            first += pattern_count(s, r);
        n = pattern_count(s, t_rank);
        at = s->way == ALIASED ? first : 0;
    } else {
        to = s->coll == SCAN ? t_rank + 1 : t_rank;
    }
    for (size_t e = 0; e < n && to > 0; e++) {
        uint64_t sum = 0;
        for (int r = from; r < to; r++)
            sum += value(s, round, r, 0, first + e);
        put(want_image, s->type, at + e, sum);
    }
}

static void make_images(const struct scenario *s, unsigned round)
{
    size_t size = type_sizes[s->type];
    for (int r = 0; r < t_ranks; r++) {
        out.count[r] = between(s, t_rank, r);
        in.count[r] = between(s, r, t_rank);
    }
    lay_out(s, &out);
    lay_out(s, &in);
    memset(send_image, STALE, (out.total + s->n + 1) * size);
    memset(recv_image, STALE, recv_elements(s) * size);
    unsigned char *input = one_buffer(s) && !is_scatter(s->coll) ? recv_image : send_image;
    if (is_reduction(s->coll)) {
        for (size_t e = 0; e < vector_length(s); e++)
            put(input, s->type, e, value(s, round, t_rank, 0, e));
    } else if (s->coll == ALLGATHERV || is_gather(s->coll)) {
        size_t at = input == recv_image ? in.displ[t_rank] : 0;
        for (size_t e = 0; e < between(s, t_rank, is_gather(s->coll) ? s->root : 0); e++)
            put(input, s->type, at + e, value(s, round, t_rank, 0, e));
    } else if (has_send(s)) {
        const struct blocks *b = input == recv_image ? &in : &out;
        for (int r = 0; r < t_ranks; r++)
            for (size_t e = 0; e < b->count[r]; e++)
                put(input, s->type, b->displ[r] + e, value(s, round, t_rank, r, e));
    }
    memcpy(want_image, recv_image, recv_elements(s) * size);
    if (!has_recv(s) || stands_in_send(s))
        return;
    if (is_reduction(s->coll)) {
        want_reduction(s, round);
        return;
    }
    for (int r = 0; r < t_ranks; r++) {
        if (is_scatter(s->coll) && r != s->root)
            continue;
        size_t at = is_scatter(s->coll) ? 0 : in.displ[r];
        for (size_t e = 0; e < in.count[r]; e++)
            put(want_image, s->type, at + e, value(s, round, r, t_rank, e));
    }
}

static MPI_Datatype type_of(int type)
{
    return type == I32 ? MPI_INT32_T : type == U8 ? MPI_UINT8_T : MPI_DOUBLE;
}

#define IN_FORM(name, ...)                                                                                  \
    (s->form == BLOCKING      ? hetmpi_##name(__VA_ARGS__, MPI_COMM_WORLD)                                  \
     : s->form == NONBLOCKING ? hetmpi_i##name(__VA_ARGS__, MPI_COMM_WORLD, request)                        \
     : s->form == PERSISTENT  ? hetmpi_##name##_init(__VA_ARGS__, MPI_COMM_WORLD, MPI_INFO_NULL, request)   \
                              : hetmpi_##name##_on_stream(__VA_ARGS__, MPI_COMM_WORLD, stream))

static int call(const struct scenario *s, const void *from, void *to, hetmpi_request_t *request)
{
    MPI_Datatype type = type_of(s->type);
    size_t n = s->n, mine = between(s, t_rank, is_gather(s->coll) ? s->root : 0);
    size_t handed = between(s, s->root, t_rank);
    bool root = t_rank == s->root;
    /* What means nothing on this rank is nonsense. */
    const size_t *rc = arrays[0], *rd = arrays[1], *sc = arrays[2], *sd = arrays[3];
    switch (s->coll) {
    case REDUCE_SCATTER:
        for (int r = 0; r < t_ranks; r++)
            arrays[0][r] = pattern_count(s, r);
        return IN_FORM(reduce_scatter, from, to, rc, type, MPI_SUM);
    case ALLGATHERV: return IN_FORM(allgatherv, from, mine, type, to, rc, rd, type);
    case GATHER: return IN_FORM(gather, from, n, type, to, root ? n : 77, root ? type : MPI_DATATYPE_NULL, s->root);
    case GATHERV:
        return root ? IN_FORM(gatherv, from, mine, type, to, rc, rd, type, s->root)
                    : IN_FORM(gatherv, from, mine, type, NULL, NULL, NULL, MPI_DATATYPE_NULL, s->root);
    case SCATTER: return IN_FORM(scatter, from, root ? n : 77, root ? type : MPI_DATATYPE_NULL, to, n, type, s->root);
    case SCATTERV:
        return root ? IN_FORM(scatterv, from, sc, sd, type, to, handed, type, s->root)
                    : IN_FORM(scatterv, NULL, NULL, NULL, MPI_DATATYPE_NULL, to, handed, type, s->root);
    case ALLTOALL: return IN_FORM(alltoall, from, n, type, to, n, type);
    case ALLTOALLV: return IN_FORM(alltoallv, from, sc, sd, type, to, rc, rd, type);
    case SCAN: return IN_FORM(scan, from, to, n, type, MPI_SUM);
    default: return IN_FORM(exscan, from, to, n, type, MPI_SUM);
    }
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
    return T_OK(hetmpi_wait(request, MPI_STATUS_IGNORE));
}

static void compare(const struct scenario *s, struct t_buf *from, struct t_buf *to)
{
    size_t size = type_sizes[s->type], bytes = recv_elements(s) * size, i = 0;
    if (bytes) {
        t_buf_get(to, got_image);
        while (i < bytes && got_image[i] == want_image[i])
            i++;
        T_CHECK(i == bytes, "byte %zu (element %zu of %zu) of the receive buffer is 0x%02x instead of 0x%02x", i,
                i / size, bytes / size, got_image[i], want_image[i]);
    }
    t_buf_guards(to);
    t_buf_guards(from);
    if (send_elements(s)) {
        t_buf_get(from, got_image);
        T_CHECK(memcmp(got_image, send_image, from->bytes) == 0, "the send buffer was changed");
    }
}

/* Pointers as the call gets them. */
static void arguments(const struct scenario *s, struct t_buf *from, struct t_buf *to, const void **sendbuf,
                      void **recvbuf)
{
    size_t size = type_sizes[s->type], before = 0;
    bool bare = s->turn / 2 % 2;
    *sendbuf = send_elements(s) || !bare ? from->data : NULL;
    *recvbuf = recv_elements(s) || !bare ? to->data : NULL;
    if (!one_buffer(s))
        return;
    if (stands_in_send(s)) {
        *recvbuf = s->way == IN_PLACE ? MPI_IN_PLACE : from->data + out.displ[t_rank] * size;
        return;
    }
    for (int r = 0; r < t_rank; r++)
        before += pattern_count(s, r);
    *sendbuf = s->way == IN_PLACE                                ? MPI_IN_PLACE
               : s->coll == ALLGATHERV || is_gather(s->coll)     ? to->data + in.displ[t_rank] * size
                                                                 : to->data;
    if (s->way == ALIASED && s->coll == REDUCE_SCATTER)
        *recvbuf = to->data + before * size;
}

static void run(const struct scenario *s)
{
    static const enum t_place places[][2] = { { T_PAGEABLE, T_PAGEABLE }, { T_DEVICE, T_DEVICE },
                                              { T_PAGEABLE, T_DEVICE }, { T_DEVICE, T_PINNED } };
    unsigned pick = s->turn % 5;
    if ((s->form == STREAM && !stream_works) || (s->way == ALIASED && is_alltoall(s->coll)))
        return;
    if (pick == 4)
        pick = (unsigned)t_rank % 4;
    struct t_buf *from = &send[places[pick][0]], *to = &recv[places[pick][1]];
    t_stage("%s %s %s, pattern %d, %zu elements of %zu, root %d, %s to %s, turn %u", form_names[s->form],
            coll_names[s->coll], way_names[s->way], s->pattern, s->n, type_sizes[s->type], s->root,
            t_place_name(from->place), t_place_name(to->place), s->turn);
    make_images(s, 0);
    size_t shift = s->turn % 3 * type_sizes[s->type];
    t_buf_use(from, send_elements(s) * type_sizes[s->type], shift);
    t_buf_use(to, recv_elements(s) * type_sizes[s->type], shift);
    hetmpi_request_t request = HETMPI_REQUEST_NULL;
    const void *sendbuf;
    void *recvbuf;
    for (unsigned round = 0; round < (s->form == PERSISTENT ? STARTS : 1); round++) {
        make_images(s, round);
        t_buf_put(from, send_image);
        t_buf_put(to, recv_image);
        if (round == 0) {
            arguments(s, from, to, &sendbuf, &recvbuf);
            memcpy(arrays[0], in.count, sizeof in.count);
            memcpy(arrays[1], in.displ, sizeof in.displ);
            memcpy(arrays[2], out.count, sizeof out.count);
            memcpy(arrays[3], out.displ, sizeof out.displ);
            int code = call(s, sendbuf, recvbuf, &request);
            memset(arrays, 0xEE, sizeof arrays);
            if (!T_OK(code))
                return;
        }
        if ((s->form == PERSISTENT && !T_OK(hetmpi_start(&request))) || !finish(s, &request))
            return;
        compare(s, from, to);
    }
    if (s->form == PERSISTENT)
        T_OK(hetmpi_request_free(&request));
}

static void run_collective(enum coll coll, size_t large)
{
    static unsigned turn;
    const size_t sizes[] = { 1, 40, 1500, large };
    bool rooted = is_gather(coll) || is_scatter(coll);
    for (int root = 0; root < (rooted ? t_ranks : 1); root++) {
        for (int way = 0; way < WAYS; way++) {
            for (int i = 0; i < 4; i++) {
                for (int p = 0; p < (is_even(coll) ? 1 : PATTERNS); p++) {
                    /* All forms of a small one; the others in turn. */
                    bool all = i == 1 && (p == SPARSE || is_even(coll)) && root < 2;
                    for (int form = 0; form < (all ? FORMS : 1); form++, turn++) {
                        struct scenario s = { coll, (enum form)(all ? form : (int)(turn % FORMS)), (enum way)way,
                                              (enum pattern)p, (int)(turn % TYPES), root, sizes[i], turn };
                        run(&s);
                    }
                }
            }
        }
    }
    struct scenario none = { coll, BLOCKING, SEPARATE, EVEN, I32, t_ranks - 1, 0, turn++ };
    run(&none);
}

static uint16_t to_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

/* 256 and ones in bf16: rounding at each rank would never get past 256. */
static void check_rounding(size_t n)
{
    uint16_t *x = t_malloc(n * 2), *y = t_malloc(n * 2);
    t_stage("scan of bf16, %zu elements", n);
    for (size_t i = 0; i < n; i++) {
        x[i] = to_bf16(t_rank ? 1.0f : 256.0f);
        y[i] = 0;
    }
    T_OK(hetmpi_scan(x, y, n, HETMPI_BFLOAT16, MPI_SUM, MPI_COMM_WORLD));
    for (size_t i = 0; i < n; i++)
        if (!T_CHECK(y[i] == to_bf16(256.0f + (float)t_rank), "scan: element %zu is 0x%04x", i, y[i]))
            break;
    T_OK(hetmpi_exscan(MPI_IN_PLACE, x, n, HETMPI_BFLOAT16, MPI_SUM, MPI_COMM_WORLD));
    uint16_t want = to_bf16(t_rank ? 255.0f + (float)t_rank : 256.0f);
    for (size_t i = 0; i < n; i++)
        if (!T_CHECK(x[i] == want, "exscan: element %zu is 0x%04x", i, x[i]))
            break;
    free(x);
    free(y);
}

/* All ranks get the mismatch, with the field's name, and the next call is right. */
static void expect_mismatch(int code, const char *field)
{
    char text[512];
    snprintf(text, sizeof text, "%s", hetmpi_last_error());
    T_CHECK(code == HETMPI_ERR_MISMATCH, "%s instead of MISMATCH: %s", t_code_name(code), text);
    T_CHECK(strstr(text, field) != NULL, "the message does not name the field %s: %s", field, text);
    int32_t x = t_rank, sum = -1;
    T_OK(hetmpi_scan(&x, &sum, 1, MPI_INT32_T, MPI_SUM, MPI_COMM_WORLD));
    T_CHECK(sum == t_rank * (t_rank + 1) / 2, "the next call gives %d", sum);
}

/* Counts that one rank has and the other has not: found where all ranks share memory. */
static void check_pairs(size_t n, int32_t *x, int32_t *y)
{
    size_t scounts[RANKS_MAX], rcounts[RANKS_MAX], displs[RANKS_MAX];
    hetmpi_request_t request = HETMPI_REQUEST_NULL;
    int bad = t_ranks - 1;
    MPI_Comm world = MPI_COMM_WORLD;
    for (int r = 0; r < t_ranks; r++) {
        scounts[r] = rcounts[r] = n;
        displs[r] = n * (size_t)r;
    }
    t_stage("mismatch between pairs, %zu elements", n);
    expect_mismatch(hetmpi_gatherv(x, t_rank == bad ? n - 1 : n, MPI_INT32_T, y, rcounts, displs, MPI_INT32_T, 0,
                                   world), "counts");
    expect_mismatch(hetmpi_scatterv(x, scounts, displs, MPI_INT32_T, y, t_rank == bad ? 0 : n, MPI_INT32_T, 0, world),
                    "counts");
    if (t_rank == bad)
        scounts[0] = 0;
    T_OK(hetmpi_ialltoallv(x, scounts, displs, MPI_INT32_T, y, rcounts, displs, MPI_INT32_T, world, &request));
    expect_mismatch(hetmpi_wait(&request, MPI_STATUS_IGNORE), "counts");
    expect_mismatch(hetmpi_alltoallv(x, scounts, displs, MPI_INT32_T, y, rcounts, displs, MPI_INT32_T, world),
                    "counts");
    T_OK(hetmpi_alltoallv_init(x, scounts, displs, MPI_INT32_T, y, rcounts, displs, MPI_INT32_T, world, MPI_INFO_NULL,
                               &request));
    for (int round = 0; round < 2; round++) {
        T_OK(hetmpi_start(&request));
        expect_mismatch(hetmpi_wait(&request, MPI_STATUS_IGNORE), "counts");
    }
    T_OK(hetmpi_request_free(&request));
    /* Two wrong counts whose sum is right. */
    if (t_rank == bad) {
        scounts[0] = n + 1;
        scounts[1 % t_ranks] = t_ranks > 2 ? n - 1 : n;
    }
    expect_mismatch(hetmpi_alltoallv(x, scounts, displs, MPI_INT32_T, y, rcounts, displs, MPI_INT32_T, world),
                    "counts");
    if (stream_works) {
        int error = HETMPI_SUCCESS;
        T_OK(hetmpi_gatherv_on_stream(x, t_rank == bad ? n - 1 : n, MPI_INT32_T, y, rcounts, displs, MPI_INT32_T, 0, world,
                                      stream));
        T_OK(hetmpi_stream_synchronize(stream));
        T_OK(hetmpi_comm_error(world, &error));
        T_CODE(HETMPI_ERR_MISMATCH, error);
        expect_mismatch(hetmpi_barrier(world), "counts"); /* what the stream left, to the next call, once */
    }
    T_OK(hetmpi_barrier(world));
}

static void check_mismatch(size_t n)
{
    size_t all = n * (size_t)t_ranks, counts[RANKS_MAX], displs[RANKS_MAX], at = 0;
    int32_t *x = t_malloc(all * 4), *y = t_malloc((all + 1) * 4);
    bool bad = t_rank == t_ranks - 1;
    MPI_Comm world = MPI_COMM_WORLD;
    memset(x, 0, all * 4);
    for (int r = 0; r < t_ranks; r++) {
        counts[r] = n;
        displs[r] = at;
        at += n;
    }
    t_stage("mismatch, %zu elements", n);
    /* The same sum and the same block here; two others differ. */
    if (bad && t_ranks > 2) {
        counts[0]--;
        counts[1]++;
    } else if (bad) {
        counts[0]--;
    }
    expect_mismatch(hetmpi_reduce_scatter(x, y, counts, MPI_INT32_T, MPI_SUM, world), "counts");
    expect_mismatch(hetmpi_allgatherv(x, n, MPI_INT32_T, y, counts, displs, MPI_INT32_T, world), "counts");
    counts[0] = counts[1] = n;
    expect_mismatch(bad ? hetmpi_allgather(x, n, MPI_INT32_T, y, n, MPI_INT32_T, world)
                        : hetmpi_allgatherv(x, n, MPI_INT32_T, y, counts, displs, MPI_INT32_T, world), "kind");
    expect_mismatch(hetmpi_gather(x, bad ? n - 1 : n, MPI_INT32_T, y, n, MPI_INT32_T, 0, world), "count");
    expect_mismatch(hetmpi_alltoall(x, bad ? n - 1 : n, MPI_INT32_T, y, bad ? n - 1 : n, MPI_INT32_T, world), "count");
    expect_mismatch(hetmpi_scatter(x, n, MPI_INT32_T, y, n, MPI_INT32_T, bad ? 1 : 0, world), "root");
    expect_mismatch(hetmpi_exscan(x, y, n, MPI_INT32_T, bad ? MPI_MAX : MPI_SUM, world), "op");
    expect_mismatch(hetmpi_gatherv(x, n, bad ? MPI_UINT32_T : MPI_INT32_T, y, counts, displs, MPI_INT32_T, 0, world),
                    "type");
    check_pairs(n, x, y);
    free(x);
    free(y);
}

static void check_arguments(void)
{
    enum { N = 4 };
    size_t counts[RANKS_MAX], displs[RANKS_MAX];
    int32_t x[N * RANKS_MAX] = { 0 }, y[N * RANKS_MAX];
    MPI_Comm world = MPI_COMM_WORLD;
    t_stage("wrong arguments");
    for (int r = 0; r < t_ranks; r++) {
        counts[r] = N;
        displs[r] = N * (size_t)r;
    }
    T_CODE(HETMPI_ERR_OP, hetmpi_scan(x, y, N, MPI_INT32_T, HETMPI_AVG, world));
    T_CODE(HETMPI_ERR_OP, hetmpi_exscan(x, y, N, MPI_INT32_T, HETMPI_AVG, world));
    T_CODE(HETMPI_ERR_ARG, hetmpi_reduce_scatter(x, y, NULL, MPI_INT32_T, MPI_SUM, world));
    T_CODE(HETMPI_ERR_ARG, hetmpi_allgatherv(x, N, MPI_INT32_T, y, counts, NULL, MPI_INT32_T, world));
    T_CODE(HETMPI_ERR_COUNT, hetmpi_allgatherv(x, N - 1, MPI_INT32_T, y, counts, displs, MPI_INT32_T, world));
    T_CODE(HETMPI_ERR_COUNT, hetmpi_alltoall(x, N, MPI_INT32_T, y, N + 1, MPI_INT32_T, world));
    T_CODE(HETMPI_ERR_TYPE, hetmpi_alltoall(x, N, MPI_INT32_T, y, N, MPI_FLOAT, world));
    T_CODE(HETMPI_ERR_ROOT, hetmpi_gather(x, N, MPI_INT32_T, y, N, MPI_INT32_T, t_ranks, world));
    T_CODE(HETMPI_ERR_BUFFER, hetmpi_alltoall(x, N, MPI_INT32_T, x, N, MPI_INT32_T, world));
    T_CODE(HETMPI_ERR_BUFFER, hetmpi_alltoall(NULL, N, MPI_INT32_T, y, N, MPI_INT32_T, world));
    T_CODE(HETMPI_ERR_BUFFER, hetmpi_scan(x, x + 1, N, MPI_INT32_T, MPI_SUM, world));
    T_CODE(HETMPI_ERR_BUFFER, hetmpi_scatter(MPI_IN_PLACE, N, MPI_INT32_T, MPI_IN_PLACE, N, MPI_INT32_T, t_rank,
                                             world));
    if (t_ranks > 1)
        T_CODE(HETMPI_ERR_BUFFER, hetmpi_gather(MPI_IN_PLACE, N, MPI_INT32_T, y, N, MPI_INT32_T,
                                                (t_rank + 1) % t_ranks, world));
}

int main(int argc, char **argv)
{
    bool multiple = argc > 1 && strcmp(argv[1], "multiple") == 0;
    t_begin(&argc, &argv, "collectives_v", multiple ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE);
    if (t_ranks > RANKS_MAX)
        t_skip("made for at most %d ranks", RANKS_MAX);
    unsigned char **images[] = { &send_image, &recv_image, &want_image, &got_image };
    for (int i = 0; i < 4; i++)
        *images[i] = t_malloc(BYTES_MAX);
    for (int p = 0; p < T_PLACES; p++) {
        t_buf_new(&send[p], (enum t_place)p, BYTES_MAX);
        t_buf_new(&recv[p], (enum t_place)p, BYTES_MAX);
    }
    stream_works = t_open_stream(&stream);
    const char *only = getenv("COLLECTIVES_V_ONLY");   /* one of them, to look at a failure */
    for (int coll = 0; coll < COLLS; coll++) {
        if (only && strcmp(only, coll_names[coll]) != 0)
            continue;
        run_collective((enum coll)coll, 200003 / (size_t)t_ranks);
        T_MPI(MPI_Barrier(MPI_COMM_WORLD));
    }
    check_rounding(5);
    check_rounding(40000);
    if (t_ranks > 1) {
        check_mismatch(3);
        check_mismatch(30000);
    }
    check_arguments();
    for (int p = 0; p < T_PLACES; p++) {
        t_buf_free(&send[p]);
        t_buf_free(&recv[p]);
    }
    T_OK(hetmpi_stream_destroy(stream));
    for (int i = 0; i < 4; i++)
        free(*images[i]);
    return t_end();
}
