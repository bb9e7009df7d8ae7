/* The random differential test: buffers of a case, and what they hold before and must hold after. See fuzz.h. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#define STALE 0x5A

static bool gathers(const struct fz_run *r) { return r->c.kind == FZ_GATHER || r->c.kind == FZ_GATHERV; }
static bool scatters(const struct fz_run *r) { return r->c.kind == FZ_SCATTER || r->c.kind == FZ_SCATTERV; }
static bool exchanges(const struct fz_run *r) { return r->c.kind == FZ_ALLTOALL || r->c.kind == FZ_ALLTOALLV; }
static bool allgathers(const struct fz_run *r) { return r->c.kind == FZ_ALLGATHER || r->c.kind == FZ_ALLGATHERV; }
static bool scatters_sum(const struct fz_run *r)
{
    return r->c.kind == FZ_REDUCE_SCATTER || r->c.kind == FZ_REDUCE_SCATTER_BLOCK;
}

bool fz_is_root(const struct fz_run *r)
{
    return r->comm->rank == r->c.root;
}

static size_t block(const struct fz_run *r, int number)
{
    static const size_t sparse[] = { 0, 0, 7, 0, 1 };
    size_t n = r->c.n;
    switch (r->c.how) {
    case FZ_SPARSE: return n / 8 * (number % 5 == 3) + sparse[number % 5];
    case FZ_GROWING: return n + 3 * (size_t)number;
    case FZ_LAST_ONLY: return number == r->comm->ranks - 1 ? n : 0;
    case FZ_HASHED: return t_hash64(r->c.seed, (uint64_t)number, 77) % (n + 1);
    case FZ_NOTHING: return 0;
    default: return n;
    }
}

size_t fz_between(const struct fz_run *r, int i, int j)
{
    if (exchanges(r) && r->c.way == FZ_IN_PLACE && i > j)
        return fz_between(r, j, i);   /* both ways have the same */
    switch (r->c.kind) {
    case FZ_ALLGATHER: case FZ_ALLGATHERV: return block(r, i);
    case FZ_GATHER: case FZ_GATHERV: return j == r->c.root ? block(r, i) : 0;
    case FZ_SCATTER: case FZ_SCATTERV: return i == r->c.root ? block(r, j) : 0;
    case FZ_ALLTOALL: case FZ_ALLTOALLV: return block(r, (i * 3 + j) % (r->comm->ranks + 2));
    case FZ_REDUCE_SCATTER: case FZ_REDUCE_SCATTER_BLOCK: return block(r, j);
    default: return 0;
    }
}

size_t fz_first(const struct fz_run *r, int j)
{
    return scatters(r) || exchanges(r) ? 61 * (size_t)j : 0;
}

size_t fz_before(const struct fz_run *r, int rank)
{
    size_t sum = 0;
    for (int i = 0; i < rank; i++)
        sum += block(r, i);
    return sum;
}

size_t fz_vector(const struct fz_run *r)
{
    return scatters_sum(r) ? fz_before(r, r->comm->ranks) : r->c.n;
}

bool fz_has_recv(const struct fz_run *r)
{
    switch (r->c.kind) {
    case FZ_REDUCE: case FZ_GATHER: case FZ_GATHERV: return fz_is_root(r);
    case FZ_EXSCAN: return r->comm->rank > 0;
    case FZ_MESSAGE: return r->comm->rank == r->c.peer;
    case FZ_BARRIER: return false;
    default: return true;
    }
}

/* This rank passes one buffer for both. */
static bool one_buffer(const struct fz_run *r)
{
    if (r->c.way == FZ_SEPARATE)
        return false;
    return !(gathers(r) || scatters(r) || r->c.kind == FZ_REDUCE) || fz_is_root(r);
}

/* ... the send buffer: the root's of a scatter. */
static bool stands_in_send(const struct fz_run *r)
{
    return one_buffer(r) && scatters(r);
}

size_t fz_send_elements(const struct fz_run *r)
{
    if (one_buffer(r) && !scatters(r))
        return 0;
    if (fz_reduces(r->c.kind))
        return fz_vector(r);
    switch (r->c.kind) {
    case FZ_ALLGATHER: case FZ_ALLGATHERV: case FZ_GATHER: case FZ_GATHERV: return block(r, r->comm->rank);
    case FZ_SCATTER: case FZ_SCATTERV: return fz_is_root(r) ? r->out.total : 0;
    case FZ_ALLTOALL: case FZ_ALLTOALLV: return r->out.total;
    case FZ_MESSAGE: return fz_is_root(r) ? r->c.n : 0;
    case FZ_SENDRECV: return r->c.n;
    default: return 0;
    }
}

size_t fz_recv_elements(const struct fz_run *r)
{
    if (stands_in_send(r) || (!fz_has_recv(r) && !one_buffer(r)))
        return 0;
    if (scatters_sum(r))
        return r->c.way == FZ_SEPARATE ? block(r, r->comm->rank) : fz_vector(r);
    if (scatters(r))
        return fz_between(r, r->c.root, r->comm->rank);
    return allgathers(r) || gathers(r) || exchanges(r) ? r->in.total : r->c.n;
}

size_t fz_result(const struct fz_run *r, size_t *at, size_t *first)
{
    *at = *first = 0;
    if (!fz_has_recv(r))
        return 0;
    if (!scatters_sum(r))
        return r->c.n;
    *first = fz_before(r, r->comm->rank);
    *at = r->c.way == FZ_ALIASED ? *first : 0;
    return block(r, r->comm->rank);
}

int fz_combined(const struct fz_run *r)
{
    return r->c.kind == FZ_SCAN ? r->comm->rank + 1 : r->c.kind == FZ_EXSCAN ? r->comm->rank : r->comm->ranks;
}

static void lay_out(const struct fz_run *r, struct fz_blocks *b, bool receives)
{
    bool displaced = fz_has_counts(r->c.kind) && r->c.kind != FZ_REDUCE_SCATTER;
    int ranks = r->comm->ranks;
    *b = (struct fz_blocks){ .total = 0 };
    for (int i = 0; i < ranks; i++) {
        int rank = displaced && r->c.backwards ? ranks - 1 - i : i;
        b->count[rank] = receives ? fz_between(r, rank, r->comm->rank) : fz_between(r, r->comm->rank, rank);
        b->total += displaced && r->c.gaps ? 1 + (size_t)(i % 3) : 0;
        b->displ[rank] = b->total;
        b->total += b->count[rank];
    }
    if (displaced && r->c.gaps)
        b->total += 2;
}

/* The pointers as the call gets them. */
static void point(struct fz_run *r)
{
    int me = r->comm->rank;
    r->sendbuf = fz_send_elements(r) || !r->c.bare ? r->from.data : NULL;
    r->recvbuf = fz_recv_elements(r) || !r->c.bare ? r->to.data : NULL;
    if (!one_buffer(r))
        return;
    if (stands_in_send(r)) {
        r->recvbuf = r->c.way == FZ_IN_PLACE ? MPI_IN_PLACE : r->from.data + r->out.displ[me] * r->size;
        return;
    }
    r->sendbuf = r->c.way == FZ_IN_PLACE            ? MPI_IN_PLACE
                 : allgathers(r) || gathers(r)      ? r->to.data + r->in.displ[me] * r->size
                                                    : r->recvbuf;
    if (r->c.way == FZ_ALIASED && scatters_sum(r)) {
        r->sendbuf = r->to.data;
        r->recvbuf = r->to.data + fz_before(r, me) * r->size;
    }
}

void fz_open(struct fz_run *r)
{
    r->size = t_size(r->c.fmt);
    lay_out(r, &r->out, false);
    lay_out(r, &r->in, true);
    size_t send = fz_send_elements(r) * r->size, recv = fz_recv_elements(r) * r->size;
    t_buf_new(&r->from, r->c.from, send);
    t_buf_new(&r->to, r->c.to, recv);
    t_buf_use(&r->from, send, r->c.from_shift);
    t_buf_use(&r->to, recv, r->c.to_shift);
    r->send_image = t_malloc(send);
    r->recv_image = t_malloc(recv);
    r->want_image = t_malloc(recv);
    r->got = t_malloc(send > recv ? send : recv);
    r->patterns = t_malloc(T_PATTERN * r->size * (size_t)r->comm->ranks);
    r->sum = t_malloc(T_PATTERN * r->size);
    r->operands = r->c.premul ? t_malloc(T_PATTERN * r->size * (size_t)r->comm->ranks) : r->patterns;
    point(r);
    memcpy(r->arrays[0], r->in.count, sizeof r->in.count);
    memcpy(r->arrays[1], r->in.displ, sizeof r->in.displ);
    memcpy(r->arrays[2], r->out.count, sizeof r->out.count);
    memcpy(r->arrays[3], r->out.displ, sizeof r->out.displ);
    if (r->c.kind == FZ_REDUCE_SCATTER)
        memcpy(r->arrays[0], r->out.count, sizeof r->out.count);
}

void fz_close(struct fz_run *r)
{
    if (r->request != HETMPI_REQUEST_NULL)
        T_OK(hetmpi_request_free(&r->request));
    t_buf_free(&r->from);
    t_buf_free(&r->to);
    free(r->send_image);
    free(r->recv_image);
    free(r->want_image);
    free(r->got);
    if (r->operands != r->patterns)
        free(r->operands);
    free(r->patterns);
    free(r->sum);
}

static const unsigned char *pattern_of(const struct fz_run *r, int rank)
{
    return r->patterns + (size_t)rank * T_PATTERN * r->size;
}

/* Rank i's data for rank j to `image`. */
static void put(struct fz_run *r, unsigned char *image, int i, int j, size_t n)
{
    t_repeat(image, pattern_of(r, i), r->size, fz_first(r, j), n);
}

static void fill_input(struct fz_run *r)
{
    int me = r->comm->rank;
    bool received = one_buffer(r) && !scatters(r);
    unsigned char *input = received ? r->recv_image : r->send_image;
    const struct fz_blocks *b = received ? &r->in : &r->out;
    if (fz_reduces(r->c.kind)) {
        put(r, input, me, 0, received ? fz_recv_elements(r) : fz_send_elements(r));
    } else if (allgathers(r) || gathers(r)) {
        put(r, input + (received ? r->in.displ[me] : 0) * r->size, me, 0, block(r, me));
    } else if (exchanges(r) || (scatters(r) && fz_is_root(r))) {
        for (int j = 0; j < r->comm->ranks; j++)
            put(r, input + b->displ[j] * r->size, me, j, b->count[j]);
    } else if (r->c.kind == FZ_BCAST && fz_is_root(r)) {
        put(r, r->recv_image, me, 0, r->c.n);
    } else if (r->c.kind == FZ_MESSAGE || r->c.kind == FZ_SENDRECV) {
        put(r, r->send_image, me, 0, fz_send_elements(r));
    }
}

static void fill_want(struct fz_run *r)
{
    int me = r->comm->rank, ranks = r->comm->ranks;
    size_t at, first;
    memcpy(r->want_image, r->recv_image, fz_recv_elements(r) * r->size);
    if (!fz_has_recv(r) || stands_in_send(r))
        return;
    if (fz_reduces(r->c.kind)) {
        size_t n = fz_result(r, &at, &first);
        t_repeat(r->want_image + at * r->size, r->sum, r->size, first, n);
    } else if (r->c.kind == FZ_BCAST || r->c.kind == FZ_MESSAGE) {
        put(r, r->want_image, r->c.root, 0, r->c.n);
    } else if (r->c.kind == FZ_SENDRECV) {
        put(r, r->want_image, (me + ranks - 1) % ranks, 0, r->c.n);
    } else if (scatters(r)) {
        put(r, r->want_image, r->c.root, me, fz_between(r, r->c.root, me));
    } else {
        for (int i = 0; i < ranks; i++)
            put(r, r->want_image + r->in.displ[i] * r->size, i, me, r->in.count[i]);
    }
}

/* With exact data the products and their sums are exact too. */
void fz_factor(const struct fz_run *r, int rank, unsigned char factor[FZ_FACTOR_BYTES])
{
    static const double exact[] = { 1, -1, 0 }, any[] = { 2, -0.5, 3, 0.75, -1.25, 0.3125 };
    uint64_t pick = t_hash64(r->c.seed, (uint64_t)rank, 99);
    memset(factor, 0, FZ_FACTOR_BYTES);
    if (r->c.data != T_EXACT)
        t_set_number(r->c.fmt, factor, any[pick % 6]);
    else if (t_is_complex(r->c.fmt))
        t_set_float(r->c.fmt == T_C64 ? T_F32 : T_F64, factor, exact[pick % 3]);
    else
        t_set_number(r->c.fmt, factor, exact[pick % 3]);
}

static void multiply_patterns(struct fz_run *r)
{
    unsigned char factor[FZ_FACTOR_BYTES];
    for (int i = 0; i < r->comm->ranks; i++) {
        unsigned char *products = r->operands + (size_t)i * T_PATTERN * r->size;
        fz_factor(r, i, factor);
        for (size_t e = 0; e < T_PATTERN; e++)
            t_multiply(r->c.fmt, factor, pattern_of(r, i) + e * r->size, products + e * r->size);
    }
}

void fz_fill(struct fz_run *r, int start)
{
    const void *operands[FZ_RANKS];
    for (int i = 0; i < r->comm->ranks; i++) {
        operands[i] = r->operands + (size_t)i * T_PATTERN * r->size;
        t_pattern(r->c.fmt, fz_reduces(r->c.kind) ? r->c.op : T_SUM, r->c.data, r->c.seed + (uint64_t)start, i,
                  r->patterns + (size_t)i * T_PATTERN * r->size);
    }
    if (r->c.premul)
        multiply_patterns(r);
    if (fz_reduces(r->c.kind) && fz_combined(r) > 0)
        t_oracle(r->c.fmt, r->c.op, operands, fz_combined(r), r->sum);
    memset(r->send_image, STALE, r->from.bytes);
    memset(r->recv_image, STALE, r->to.bytes);
    fill_input(r);
    fill_want(r);
    t_buf_put(&r->from, r->send_image);
    t_buf_put(&r->to, r->recv_image);
}
