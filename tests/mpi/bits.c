/*
 * The same bits on every rank, in every repeat and for every chunk size, with data whose sum depends on the order of
 * the additions; and the rules that fix the bits: one rounding an island, AVG, WIRE_PRECISION=exact.
 */
#include "oracle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REPEATS 6

static int islands;

/* A communicator of all ranks with settings of its own. */
static MPI_Comm attached(const char *key, const char *value)
{
    MPI_Comm comm;
    MPI_Info info;
    t_stage("attach with %s=%s", key, value);
    T_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    T_MPI(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    T_MPI(MPI_Info_create(&info));
    T_MPI(MPI_Info_set(info, key, value));
    T_OK(hetmpi_comm_attach(comm, info));
    T_MPI(MPI_Info_free(&info));
    return comm;
}

/* Waiting of random length before a call, so that ranks come in another order each time. */
static void stagger(uint64_t seed)
{
    uint64_t wait = t_hash64(seed, (uint64_t)t_rank, 99) % 4;
    if (wait)
        t_sleep(1e-4 * (double)wait);
}

static uint64_t hash_of_result(MPI_Comm comm, enum t_place place, const unsigned char *input, size_t count,
                               enum t_fmt fmt, enum t_op op, int repeat)
{
    struct t_buf from, to;
    size_t bytes = count * t_size(fmt);
    unsigned char *result = t_malloc(bytes);
    t_buf_new(&from, place, bytes);
    t_buf_new(&to, place, bytes);
    t_buf_use(&from, bytes, 0);
    t_buf_use(&to, bytes, 0);
    t_buf_put(&from, input);
    t_buf_put(&to, input);
    stagger((uint64_t)repeat * 131 + count);
    /* Four collectives that must agree on what the sum is. */
    uint64_t hash = 0;
    if (repeat % 2)
        T_OK(hetmpi_allreduce(MPI_IN_PLACE, to.data, count, t_mpi_type(fmt), t_mpi_op(op), comm));
    else
        T_OK(hetmpi_allreduce(from.data, to.data, count, t_mpi_type(fmt), t_mpi_op(op), comm));
    t_buf_get(&to, result);
    hash = t_fold(hash, result, bytes);
    t_buf_free(&from);
    t_buf_free(&to);
    free(result);
    return hash;
}

static void cancelling(float *data, size_t count)
{
    /* In rank order {2^25, 1, -2^25, 1}: 1, 2 or 0 come out by the order of the additions. */
    static const float values[4] = { 33554432.0f, 1.0f, -33554432.0f, 1.0f };
    for (size_t i = 0; i < count; i++)
        data[i] = values[((size_t)t_rank + i) % 4];
}

static void check_orders(MPI_Comm *comms, int n_comms)
{
    static const size_t counts[] = { 1, 2, 13, 1000, 4099, 30011, 100003 };
    static const enum t_fmt fmts[] = { T_F32, T_F16, T_BF16, T_F64, T_E4M3 };
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        for (int kind = 0; kind < 3; kind++) {
            size_t count = counts[c];
            enum t_fmt fmt = kind == 0 ? T_F32 : fmts[(c + (size_t)kind) % 5];
            unsigned char *input = t_malloc(count * t_size(fmt)), pattern[T_PATTERN * 8];
            if (kind == 0) {
                cancelling((float *)input, count);
            } else {
                t_pattern(fmt, T_SUM, T_RANDOM, c, t_rank, pattern);
                t_repeat(input, pattern, t_size(fmt), 0, count);
            }
            uint64_t first = 0;
            for (int comm = 0; comm < n_comms; comm++) {
                for (int repeat = 0; repeat < (count > 10000 ? 2 : REPEATS); repeat++) {
                    t_stage("%s x %zu, %s data, communicator %d, repeat %d", t_fmt_name(fmt), count,
                            kind == 0 ? "cancelling" : "random", comm, repeat);
                    enum t_place place = repeat == 1 ? T_DEVICE : T_PAGEABLE;
                    uint64_t hash = hash_of_result(comms[comm], place, input, count, fmt, T_SUM, repeat);
                    if (comm == 0 && repeat == 0)
                        first = hash;
                    T_CHECK(hash == first, "other bits than those of communicator 0, repeat 0");
                }
            }
            t_same_everywhere(MPI_COMM_WORLD, first, "sum");
            free(input);
        }
    }
}

/* reduce and reduce_scatter_block are as reproducible as allreduce: the same bits in each repeat. */
static void check_others(MPI_Comm comm)
{
    enum { N = 20011 };
    size_t all = (size_t)N * (size_t)t_ranks;
    float *in = t_malloc(all * sizeof *in), *out = t_malloc(all * sizeof *out);
    float pattern[T_PATTERN];
    uint64_t first[2] = { 0, 0 };
    t_pattern(T_F32, T_SUM, T_RANDOM, 77, t_rank, pattern);
    t_repeat(in, pattern, sizeof *in, 0, all);
    for (int repeat = 0; repeat < 3; repeat++) {
        t_stage("reduce and reduce_scatter_block, repeat %d", repeat);
        stagger((uint64_t)repeat);
        memset(out, 0, all * sizeof *out);
        T_OK(hetmpi_reduce(in, out, N, MPI_FLOAT, MPI_SUM, t_ranks - 1, comm));
        uint64_t reduce = t_fold(0, out, N * sizeof *out);
        memset(out, 0, all * sizeof *out);
        T_OK(hetmpi_reduce_scatter_block(in, out, N, MPI_FLOAT, MPI_SUM, comm));
        uint64_t scatter = t_fold(0, out, N * sizeof *out);
        if (repeat == 0) {
            first[0] = reduce;
            first[1] = scatter;
        }
        T_CHECK(reduce == first[0], "reduce gave other bits than before");
        T_CHECK(scatter == first[1], "reduce_scatter_block gave other bits than before");
    }
    free(in);
    free(out);
}

static void expect_all(enum t_fmt fmt, const unsigned char *got, size_t count, long double want, const char *what)
{
    unsigned char bits[8];
    t_set_float(fmt, bits, want);
    for (size_t i = 0; i < count; i++)
        if (!T_CHECK(memcmp(got + i * t_size(fmt), bits, t_size(fmt)) == 0,
                     "%s: element %zu of %zu is %.9Lg, not %.9Lg", what, i, count,
                     t_float(fmt, got + i * t_size(fmt)), t_float(fmt, bits)))
            return;
}

/* 512 + 1 is 512 in bf16: with additions rounded one by one seven ones are lost. In fp32 with one rounding an island
 * the sum is 520, however 8 ranks are spread over islands. */
static void check_bf16_sum(void)
{
    static const size_t counts[] = { 1, 40, 5000, 70001 };
    for (size_t c = 0; t_ranks == 8 && c < sizeof counts / sizeof *counts; c++) {
        size_t n = counts[c];
        unsigned char *x = t_malloc(n * 2);
        for (int big = 0; big < t_ranks; big += 3) {
            t_stage("bf16, 512 on rank %d, ones elsewhere, count %zu", big, n);
            for (size_t i = 0; i < n; i++)
                t_set_float(T_BF16, x + 2 * i, t_rank == big ? 512 : 1);
            T_OK(hetmpi_allreduce(MPI_IN_PLACE, x, n, HETMPI_BFLOAT16, MPI_SUM, MPI_COMM_WORLD));
            expect_all(T_BF16, x, n, 520, "512 and seven ones");
        }
        free(x);
    }
}

/* One rounding in all, whatever the islands: exact in fp32, so the result is the exact sum rounded once. */
static void check_exact_wire(MPI_Comm exact)
{
    static const enum t_fmt fmts[] = { T_F16, T_BF16, T_E4M3, T_E5M2, T_E4M3_FNUZ, T_E5M2_FNUZ };
    static const size_t counts[] = { 5, 1000, 50021 };
    for (size_t f = 0; f < sizeof fmts / sizeof *fmts; f++) {
        enum t_fmt fmt = fmts[f];
        size_t size = t_size(fmt);
        unsigned char *patterns[64], want[T_PATTERN * 2];
        for (int r = 0; r < t_ranks; r++) {
            patterns[r] = t_malloc(T_PATTERN * size);
            for (size_t i = 0; i < T_PATTERN; i++) {
                /* Integers that the format holds, with sums that it does not: 8 ranks of up to 28 fit fp8's range. */
                long limit = size == 1 ? 28 : fmt == T_BF16 ? 255 : 2047;
                uint64_t random = t_hash64(f, (uint64_t)r, i);
                long x = (long)(random >> 8) % (limit + 1);
                t_set_float(fmt, patterns[r] + i * size, random & 1 ? -labs(x) : labs(x));
            }
        }
        t_oracle(fmt, T_SUM, (const void *const *)patterns, t_ranks, want);
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
            unsigned char *x = t_malloc(counts[c] * size);
            t_stage("wire_precision=exact, %s x %zu", t_fmt_name(fmt), counts[c]);
            t_repeat(x, patterns[t_rank], size, 0, counts[c]);
            T_OK(hetmpi_allreduce(MPI_IN_PLACE, x, counts[c], t_mpi_type(fmt), MPI_SUM, exact));
            t_expect(fmt, x, want, 0, counts[c], "exact wire");
            if (islands == 1) { /* then it is the rule of every communicator */
                t_repeat(x, patterns[t_rank], size, 0, counts[c]);
                T_OK(hetmpi_allreduce(MPI_IN_PLACE, x, counts[c], t_mpi_type(fmt), MPI_SUM, MPI_COMM_WORLD));
                t_expect(fmt, x, want, 0, counts[c], "one island");
            }
            free(x);
        }
        for (int r = 0; r < t_ranks; r++)
            free(patterns[r]);
    }
}

/* AVG divides once, at the end: of a sum that no rank's share could hold, of negative integers toward zero. */
static void check_avg(void)
{
    static const size_t counts[] = { 1, 3, 1000, 40009 };
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        size_t n = counts[c];
        int32_t *i32 = t_malloc(n * sizeof *i32);
        float *f32 = t_malloc(n * sizeof *f32);
        int ranks = t_ranks, sum = -(ranks * (ranks + 1) / 2) - 1; /* of -(rank + 1), and -1 more on rank 0 */
        t_stage("AVG, count %zu", n);
        for (size_t i = 0; i < n; i++) {
            i32[i] = -(t_rank + 1) - (t_rank == 0);
            f32[i] = (float)(t_rank == 0) + (float)i;
        }
        T_OK(hetmpi_allreduce(MPI_IN_PLACE, i32, n, MPI_INT32_T, HETMPI_AVG, MPI_COMM_WORLD));
        T_OK(hetmpi_allreduce(MPI_IN_PLACE, f32, n, MPI_FLOAT, HETMPI_AVG, MPI_COMM_WORLD));
        for (size_t i = 0; i < n; i++) {
            float want = (float)(1 + (int)i * ranks) / (float)ranks;
            if (!T_CHECK(i32[i] == sum / ranks, "int32 %zu of %zu: %d, not %d", i, n, i32[i], sum / ranks) ||
                !T_CHECK(f32[i] == want, "fp32 %zu of %zu: %.9g, not %.9g", i, n, (double)f32[i], (double)want))
                break;
        }
        /* reduce and reduce_scatter_block divide too, and only once. */
        int32_t *all = t_malloc(n * (size_t)ranks * sizeof *all), *mine = t_malloc(n * sizeof *mine);
        for (size_t i = 0; i < n * (size_t)ranks; i++)
            all[i] = -(t_rank + 1) - (t_rank == 0);
        T_OK(hetmpi_reduce_scatter_block(all, mine, n, MPI_INT32_T, HETMPI_AVG, MPI_COMM_WORLD));
        for (size_t i = 0; i < n; i++)
            if (!T_CHECK(mine[i] == sum / ranks, "reduce_scatter_block: element %zu is %d, not %d", i, mine[i],
                         sum / ranks))
                break;
        T_OK(hetmpi_reduce(all, mine, n, MPI_INT32_T, HETMPI_AVG, 0, MPI_COMM_WORLD));
        for (size_t i = 0; t_rank == 0 && i < n; i++)
            if (!T_CHECK(mine[i] == sum / ranks, "reduce: element %zu is %d, not %d", i, mine[i], sum / ranks))
                break;
        free(i32);
        free(f32);
        free(all);
        free(mine);
    }
}

int main(int argc, char **argv)
{
    t_begin(&argc, &argv, "bits", MPI_THREAD_SINGLE);
    hetmpi_comm_info_t info;
    if (!T_OK(hetmpi_comm_info(MPI_COMM_WORLD, &info)))
        return t_end();
    islands = info.islands;
    MPI_Comm comms[] = { MPI_COMM_WORLD, attached("chunk", "4K"), attached("chunk", "13K"), attached("chunk", "256K") };
    int n = sizeof comms / sizeof *comms;
    MPI_Comm exact = attached("wire_precision", "exact");
    check_orders(comms, n);
    check_others(comms[1]);
    check_bf16_sum();
    check_exact_wire(exact);
    check_avg();
    for (int i = 1; i < n; i++)
        T_MPI(MPI_Comm_free(&comms[i]));
    T_MPI(MPI_Comm_free(&exact));
    return t_end();
}
