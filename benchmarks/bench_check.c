/*
 * Validation: one call on fresh data with a poisoned result buffer. Every rank compares every byte of its result, and
 * looks whether the call wrote anything that is not its result: its input, a non-root's receive buffer, the blocks
 * behind an in-place reduce_scatter's result, a guard behind each buffer.
 */
#include <stdio.h>
#include <unistd.h>

#include "bench.h"

/* Elements of the tables that inputs and reductions repeat. */
static size_t table_elements(const struct bench *bench)
{
    size_t elements = input_elements(bench);

    return elements < PERIOD ? elements : PERIOD;
}

static void report(const struct bench *bench, const char *buffer, size_t wrong, const char *what)
{
    fprintf(stderr, "rank %d: %s of %zu bytes: byte %zu of the %s buffer (element %zu): %s\n", bench->rank,
            kind_name(bench->options->kind), bench->shape.bytes, wrong, buffer, wrong / bench->element, what);
}

/* Input, poison and guards. */
static void prepare(struct bench *bench, uint32_t seed, unsigned char poison)
{
    const struct bench_shape *shape = &bench->shape;
    struct bench_input input = input_of(bench);
    size_t e = bench->element, n = table_elements(bench);

    data_input(bench, bench->rank, seed, n, bench->input);
    buffer_poison(bench, bench->send, 0, shape->send * e + GUARD_BYTES, poison);
    buffer_poison(bench, bench->recv, 0, shape->recv * e + GUARD_BYTES, poison);
    if (input.count > 0)
        buffer_fill(bench, input.in_recv ? bench->recv : bench->send, input.first * e, input.count * e, bench->input,
                    n * e, 0);
}

/* For the test of this very validation: one wrong bit on one rank. */
static void corrupt(const struct bench *bench)
{
    bool at_root = bench->options->kind == BENCH_REDUCE ||
                   kind_facts(bench->options->kind)->recv == EXTENT_ALL_AT_ROOT;
    unsigned char byte, *at = bench->recv + result_elements(bench) * bench->element - 1;

    if (bench->rank != (at_root ? bench->options->root : bench->ranks - 1) || at < bench->recv)
        return;
    HETMPI(hetmpi_memcpy(&byte, at, 1));
    byte ^= 1;
    HETMPI(hetmpi_memcpy(at, &byte, 1));
}

/* How many ranks, from rank 0 on, the result of a reduction is over. */
static int reduced_ranks(const struct bench *bench)
{
    switch (bench->options->kind) {
    case BENCH_SCAN: return bench->rank + 1;
    case BENCH_EXSCAN: return bench->rank;
    default: return bench->ranks;
    }
}

static bool check_result(struct bench *bench, uint32_t seed, size_t *wrong)
{
    size_t e = bench->element, n = table_elements(bench);

    for (int i = 0; i < result_pieces(bench); i++) {
        struct bench_piece piece = result_piece(bench, i);
        if (piece.source == SOURCE_REDUCTION)
            data_expected(bench, reduced_ranks(bench), seed, n, bench->expected);
        else
            data_input(bench, piece.source, seed, n, bench->expected);
        if (!buffer_check(bench, bench->recv, piece.at * e, piece.count * e, bench->expected, n * e, piece.from * e,
                          wrong))
            return false;
    }
    return true;
}

static bool check_untouched(const struct bench *bench, unsigned char poison)
{
    const struct bench_shape *shape = &bench->shape;
    struct bench_input input = input_of(bench);
    size_t e = bench->element, n = table_elements(bench), wrong = 0;
    size_t behind = result_elements(bench) * e, end = shape->recv * e;

    if ((shape->send > 0 && !buffer_check(bench, bench->send, 0, shape->send * e, bench->input, n * e, 0, &wrong)) ||
        !buffer_poisoned(bench, bench->send, shape->send * e, GUARD_BYTES, poison, &wrong)) {
        report(bench, "send", wrong, "the call wrote to it");
        return false;
    }
    if (input.in_recv && behind < end) {
        if (!buffer_check(bench, bench->recv, behind, end - behind, bench->input, n * e, behind, &wrong)) {
            report(bench, "receive", wrong, "the call wrote to input behind its result");
            return false;
        }
        behind = end;
    }
    if (!buffer_poisoned(bench, bench->recv, behind, end + GUARD_BYTES - behind, poison, &wrong)) {
        report(bench, "receive", wrong, "the call wrote where it has no result");
        return false;
    }
    return true;
}

/* A barrier: no rank of this node may leave before the last one came, which comes late on purpose, each in its turn.
 * Ranks of one node have one clock. */
static bool check_barrier(struct bench *bench)
{
    bool right = true;

    for (int turn = 0; turn < bench->ranks && turn < 8; turn++) {
        double came, left, last, first;
        int late = bench->ranks <= 8 ? turn : turn * (bench->ranks / 8);
        if (bench->rank == late)
            usleep(2000);
        came = seconds_now();
        if (!(bench->corrupt && bench->rank != late))
            call_ours(bench);
        left = seconds_now();
        if (bench->corrupt && bench->rank != late)
            call_ours(bench);
        MPI(MPI_Allreduce(&came, &last, 1, MPI_DOUBLE, MPI_MAX, bench->node_comm));
        MPI(MPI_Allreduce(&left, &first, 1, MPI_DOUBLE, MPI_MIN, bench->node_comm));
        if (first < last) {
            right = false;
            if (left == first)
                fprintf(stderr, "rank %d: barrier: left %.1f us before the last rank came\n", bench->rank,
                        (last - first) * 1e6);
        }
    }
    return all_agree(bench, right);
}

bool check_call(struct bench *bench)
{
    uint32_t seed = ++bench->seed;
    unsigned char poison = seed % 2 ? 0xa5 : 0x5a;
    size_t wrong = 0;

    if (bench->options->kind == BENCH_BARRIER)
        return check_barrier(bench);
    prepare(bench, seed, poison);
    call_ours(bench);
    if (bench->corrupt)
        corrupt(bench);
    bool right = check_result(bench, seed, &wrong);
    if (!right)
        report(bench, "receive", wrong, "wrong result");
    if (!check_untouched(bench, poison))
        right = false;
    return all_agree(bench, right);
}
