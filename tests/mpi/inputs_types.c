/*
 * Inputs that people's programs met elsewhere: every type from 1 B to 4 MiB, in place and not; every (type, operation)
 * pair in every reduction: right, or the same error everywhere and the buffers untouched.
 */
#include "oracle.h"

#include <stdlib.h>
#include <string.h>

#define LARGEST ((size_t)4 << 20)
#define RANKS_MAX 8

static unsigned char *image, *patterns[RANKS_MAX], *sum;
static struct t_buf from, to;

static void make(enum t_fmt fmt, enum t_op op, uint64_t seed)
{
    for (int r = 0; r < t_ranks; r++)
        t_pattern(fmt, op, T_EXACT, seed, r, patterns[r]);
    t_oracle(fmt, op, (const void *const *)patterns, t_ranks, sum);
}

static void put_input(struct t_buf *buf, enum t_fmt fmt, size_t n)
{
    t_repeat(image, patterns[t_rank], t_size(fmt), 0, n);
    t_buf_put(buf, image);
}

/* Types that are never reduced are moved. */
static void check_size(enum t_fmt fmt, enum t_op op, size_t n, bool in_place)
{
    bool reduced = t_supported(fmt, op);
    MPI_Datatype type = t_mpi_type(fmt);
    int root = (int)(n % (size_t)t_ranks);
    t_stage("%s %s x %zu%s", t_fmt_name(fmt), reduced ? t_op_name(op) : "moved", n, in_place ? ", in place" : "");
    t_buf_use(&from, n * t_size(fmt), 0);
    t_buf_use(&to, n * t_size(fmt), 0);
    put_input(&from, fmt, n);
    t_buf_fill(&to, 0xEE);
    if (in_place || (!reduced && t_rank == root))
        put_input(&to, fmt, n);
    if (reduced)
        T_OK(hetmpi_allreduce(in_place ? MPI_IN_PLACE : from.data, to.data, n, type, t_mpi_op(op), MPI_COMM_WORLD));
    else
        T_OK(hetmpi_bcast(to.data, n, type, root, MPI_COMM_WORLD));
    t_buf_get(&to, image);
    t_expect(fmt, image, reduced ? sum : patterns[root], 0, n, "result");
    t_buf_guards(&to);
    t_buf_guards(&from);
}

static void check_sizes(enum t_place place)
{
    t_buf_new(&from, place, LARGEST);
    t_buf_new(&to, place, LARGEST);
    for (int f = 0; f < T_FMTS; f++) {
        enum t_fmt fmt = (enum t_fmt)f;
        enum t_op op = T_SUM;
        while (op < T_AVG && !t_supported(fmt, op))
            op = (enum t_op)(op + 1);
        make(fmt, op, (uint64_t)f);
        for (size_t bytes = 1; bytes <= LARGEST; bytes *= 2)
            if (bytes >= t_size(fmt)) {
                check_size(fmt, op, bytes / t_size(fmt), false);
                /* The largest of all types in both ways would be most of the time. */
                if (bytes < LARGEST || fmt == T_F32)
                    check_size(fmt, op, bytes / t_size(fmt), true);
            }
    }
    t_buf_free(&from);
    t_buf_free(&to);
}

enum reduction { ALLREDUCE, REDUCE, REDUCE_SCATTER_BLOCK, REDUCE_SCATTER, SCAN, EXSCAN, REDUCTIONS };

static int call(enum reduction which, const void *in, void *out, size_t n, MPI_Datatype type, MPI_Op op)
{
    size_t counts[RANKS_MAX];
    for (int r = 0; r < t_ranks; r++)
        counts[r] = n;
    switch (which) {
    case ALLREDUCE: return hetmpi_allreduce(in, out, n, type, op, MPI_COMM_WORLD);
    case REDUCE: return hetmpi_reduce(in, out, n, type, op, 0, MPI_COMM_WORLD);
    case REDUCE_SCATTER_BLOCK: return hetmpi_reduce_scatter_block(in, out, n, type, op, MPI_COMM_WORLD);
    case REDUCE_SCATTER: return hetmpi_reduce_scatter(in, out, counts, type, op, MPI_COMM_WORLD);
    case SCAN: return hetmpi_scan(in, out, n, type, op, MPI_COMM_WORLD);
    default: return hetmpi_exscan(in, out, n, type, op, MPI_COMM_WORLD);
    }
}

static void check_pair(enum reduction which, enum t_fmt fmt, enum t_op op, size_t n, int *codes)
{
    bool blocks = which == REDUCE_SCATTER_BLOCK || which == REDUCE_SCATTER, prefix = which == SCAN || which == EXSCAN;
    bool supported = t_supported(fmt, op) && !(prefix && op == T_AVG);
    bool written = (which != REDUCE || t_rank == 0) && (which != EXSCAN || t_rank > 0);
    size_t all = blocks ? n * (size_t)t_ranks : n, size = t_size(fmt);
    int combined = which == SCAN ? t_rank + 1 : which == EXSCAN ? t_rank : t_ranks;
    t_stage("reduction %d of %s %s x %zu", (int)which, t_fmt_name(fmt), t_op_name(op), n);
    t_buf_use(&from, all * size, 0);
    t_buf_use(&to, n * size, 0);
    put_input(&from, fmt, all);
    t_buf_fill(&to, 0xEE);
    *codes = call(which, from.data, to.data, n, t_mpi_type(fmt), t_mpi_op(op));
    T_CODE(supported ? HETMPI_SUCCESS : HETMPI_ERR_OP, *codes);
    t_buf_get(&to, image);
    if (supported && written) {
        t_oracle(fmt, op, (const void *const *)patterns, combined, sum);
        t_expect(fmt, image, sum, blocks ? n * (size_t)t_rank : 0, n, "result");
    } else {
        for (size_t i = 0; i < n * size; i++)
            if (!T_CHECK(image[i] == 0xEE, "byte %zu of a receive buffer without a result was written", i))
                break;
    }
    t_repeat(image + all * size, patterns[t_rank], size, 0, all);
    t_buf_get(&from, image);
    T_CHECK(memcmp(image, image + all * size, all * size) == 0, "the send buffer was changed");
    t_buf_guards(&to);
}

static void check_pairs(void)
{
    enum { PAIRS = T_FMTS * T_OPS * REDUCTIONS };
    static int codes[PAIRS], first[PAIRS];
    size_t n = 3000;   /* of a type in four; else 5 */
    t_buf_new(&from, T_DEVICE, n * 16 * (size_t)t_ranks);
    t_buf_new(&to, T_DEVICE, n * 16);
    for (int i = 0; i < PAIRS; i++) {
        enum t_fmt fmt = (enum t_fmt)(i / (T_OPS * REDUCTIONS));
        enum t_op op = (enum t_op)(i / REDUCTIONS % T_OPS);
        if (i % REDUCTIONS == 0)
            make(fmt, op, (uint64_t)i);
        check_pair((enum reduction)(i % REDUCTIONS), fmt, op, (fmt + op) % 4 ? 5 : n, &codes[i]);
    }
    memcpy(first, codes, sizeof codes);
    T_MPI(MPI_Bcast(first, PAIRS, MPI_INT, 0, MPI_COMM_WORLD));
    for (int i = 0; i < PAIRS; i++)
        T_CHECK(codes[i] == first[i], "pair %d: %s here, %s on rank 0", i, t_code_name(codes[i]),
                t_code_name(first[i]));
    t_buf_free(&from);
    t_buf_free(&to);
}

int main(int argc, char **argv)
{
    t_begin(&argc, &argv, "inputs_types", MPI_THREAD_SINGLE);
    if (t_ranks > RANKS_MAX)
        t_skip("made for at most %d ranks", RANKS_MAX);
    image = t_malloc(LARGEST);
    sum = t_malloc(T_PATTERN * 16);
    for (int r = 0; r < t_ranks; r++)
        patterns[r] = t_malloc(T_PATTERN * 16);
    check_sizes(T_DEVICE);
    check_pairs();
    for (int r = 0; r < t_ranks; r++)
        free(patterns[r]);
    free(sum);
    free(image);
    return t_end();
}
