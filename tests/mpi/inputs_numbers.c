/*
 * Inputs that people's programs met elsewhere: a bf16 sum that additions rounded one by one get wrong; fp32 data whose
 * sum depends on the order of the additions, twenty times with each of three chunk sizes. Made for 8 ranks, 4 + 4.
 */
#include "oracle.h"

#include <stdlib.h>
#include <string.h>

/* 512 + 1 is 512 in bf16; the sum of 512 and seven ones is 520 on every rank. */
static void check_bf16(size_t n)
{
    unsigned char *x = t_malloc(n * 2), want[2];
    t_set_float(T_BF16, want, 520);
    for (int big = 0; big < t_ranks; big++) {
        t_stage("bf16: 512 on rank %d, ones elsewhere, count %zu", big, n);
        for (size_t i = 0; i < n; i++)
            t_set_float(T_BF16, x + 2 * i, t_rank == big ? 512 : 1);
        T_OK(hetmpi_allreduce(MPI_IN_PLACE, x, n, HETMPI_BFLOAT16, MPI_SUM, MPI_COMM_WORLD));
        for (size_t i = 0; i < n; i++)
            if (!T_CHECK(memcmp(x + 2 * i, want, 2) == 0, "element %zu is %Lg, not 520", i, t_float(T_BF16, x + 2 * i)))
                break;
    }
    free(x);
}

/* The hash of an allreduce's result. The ranks come in another order each time. */
static uint64_t result(MPI_Comm comm, const float *input, size_t n, int repeat, float *out)
{
    t_sleep(1e-4 * (double)(t_hash64((uint64_t)repeat, (uint64_t)t_rank, n) % 3));
    if (repeat % 2) {
        memcpy(out, input, n * sizeof *out);
        T_OK(hetmpi_allreduce(MPI_IN_PLACE, out, n, MPI_FLOAT, MPI_SUM, comm));
    } else {
        T_OK(hetmpi_allreduce(input, out, n, MPI_FLOAT, MPI_SUM, comm));
    }
    return t_fold(0, out, n * sizeof *out);
}

static void check_repeats(MPI_Comm comm, const char *chunk, size_t n, bool random)
{
    static const float values[4] = { 33554432.0f, 1.0f, -33554432.0f, 1.0f };
    float *in = t_malloc(n * sizeof *in), *out = t_malloc(n * sizeof *out), pattern[T_PATTERN];
    int rank;
    uint64_t first = 0;
    MPI_Comm_rank(comm, &rank);
    t_pattern(T_F32, T_SUM, T_RANDOM, n, rank, pattern);
    t_repeat(in, pattern, sizeof *in, 0, n);
    for (size_t i = 0; i < n && !random; i++)
        in[i] = values[((size_t)rank + i) % 4];
    for (int repeat = 0; repeat < 20; repeat++) {
        t_stage("fp32 x %zu, %s data, chunk %s, repeat %d", n, random ? "random" : "cancelling", chunk, repeat);
        uint64_t hash = result(comm, in, n, repeat, out);
        first = repeat ? first : hash;
        T_CHECK(hash == first, "other bits than the first time");
    }
    t_same_everywhere(comm, first, "sum");
    free(in);
    free(out);
}

/* Four ranks: two of each vendor. */
static void check_order(void)
{
    static const char *const chunks[] = { "4K", "16K", "256K" };
    static const size_t counts[] = { 1, 4099, 65537 };
    MPI_Comm four, comm;
    bool member = t_rank % 4 < 2;
    T_MPI(MPI_Comm_split(MPI_COMM_WORLD, member ? 0 : MPI_UNDEFINED, t_rank, &four));
    if (!member)
        return;
    for (int c = 0; c < 3; c++) {
        MPI_Info info;
        T_MPI(MPI_Comm_dup(four, &comm));
        T_MPI(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
        T_MPI(MPI_Info_create(&info));
        T_MPI(MPI_Info_set(info, "chunk", chunks[c]));
        T_OK(hetmpi_comm_attach(comm, info));
        T_MPI(MPI_Info_free(&info));
        for (int i = 0; i < 6; i++)
            check_repeats(comm, chunks[c], counts[i / 2], i % 2);
        T_MPI(MPI_Comm_free(&comm));
    }
    T_MPI(MPI_Comm_free(&four));
}

int main(int argc, char **argv)
{
    t_begin(&argc, &argv, "inputs_numbers", MPI_THREAD_SINGLE);
    if (t_ranks != 8)
        t_skip("made for 8 ranks");
    check_bf16(4099);
    check_order();
    return t_end();
}
