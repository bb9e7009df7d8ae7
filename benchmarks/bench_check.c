/*
 * Validation: one call on fresh data with a poisoned result buffer. Every rank compares every byte of its result, and
 * looks whether the call wrote anything that is not its result: its input, a non-root's receive buffer, the blocks
 * behind an in-place reduce_scatter's result, a guard behind each buffer.
 */
#include <stdio.h>
#include <unistd.h>

#include "bench.h"

/* This rank's result: the first `count` elements of recv, which stand in the table of results at `from`. */
struct region { size_t count, from; };

static struct region result_of(const struct bench *bench)
{
    const struct bench_shape *shape = &bench->shape;

    switch (bench->options->kind) {
    case BENCH_REDUCE:
        return (struct region){bench->rank == bench->options->root ? shape->count : 0, 0};
    case BENCH_REDUCE_SCATTER:
        return (struct region){shape->count, shape->count * (size_t)bench->rank};
    default:
        return (struct region){shape->recv, 0};
    }
}

static size_t table_elements(const struct bench *bench)
{
    size_t elements = bench->shape.bytes / bench->element;

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
    size_t e = bench->element, n = table_elements(bench);
    enum bench_kind kind = bench->options->kind;

    data_input(bench, bench->rank, seed, n, bench->input);
    if (shape->send > 0) {
        buffer_fill(bench, bench->send, 0, shape->send * e, bench->input, n * e, 0);
        buffer_poison(bench, bench->send, shape->send * e, GUARD_BYTES, poison);
    }
    buffer_poison(bench, bench->recv, 0, shape->recv * e + GUARD_BYTES, poison);
    if (kind == BENCH_BCAST && bench->rank == bench->options->root)
        buffer_fill(bench, bench->recv, 0, shape->recv * e, bench->input, n * e, 0);
    else if (kind == BENCH_ALLGATHER && shape->send == 0)
        buffer_fill(bench, bench->recv, shape->count * (size_t)bench->rank * e, shape->count * e, bench->input, n * e,
                    0);
    else if (kind != BENCH_BCAST && shape->send == 0)
        buffer_fill(bench, bench->recv, 0, shape->recv * e, bench->input, n * e, 0);
}

/* For the test of this very validation: one wrong bit on one rank. */
static void corrupt(const struct bench *bench)
{
    int victim = bench->options->kind == BENCH_REDUCE ? bench->options->root : bench->ranks - 1;
    struct region result = result_of(bench);
    unsigned char byte;

    if (bench->rank != victim)
        return;
    unsigned char *at = bench->recv + result.count * bench->element - 1;
    HETMPI(hetmpi_memcpy(&byte, at, 1));
    byte ^= 1;
    HETMPI(hetmpi_memcpy(at, &byte, 1));
}

static bool check_result(struct bench *bench, uint32_t seed, size_t *wrong)
{
    const struct bench_shape *shape = &bench->shape;
    struct region result = result_of(bench);
    size_t e = bench->element, n = table_elements(bench), block = shape->count * e;

    switch (bench->options->kind) {
    case BENCH_BCAST:
        data_input(bench, bench->options->root, seed, n, bench->expected);
        break;
    case BENCH_ALLGATHER:
        for (int rank = 0; rank < bench->ranks; rank++) {
            data_input(bench, rank, seed, n, bench->expected);
            if (!buffer_check(bench, bench->recv, block * (size_t)rank, block, bench->expected, n * e, 0, wrong))
                return false;
        }
        return true;
    default:
        if (result.count == 0)
            return true;
        data_expected(bench, seed, n, bench->expected);
        break;
    }
    return buffer_check(bench, bench->recv, 0, result.count * e, bench->expected, n * e, result.from * e, wrong);
}

static bool check_untouched(const struct bench *bench, unsigned char poison)
{
    const struct bench_shape *shape = &bench->shape;
    struct region result = result_of(bench);
    size_t e = bench->element, n = table_elements(bench), wrong = 0;
    size_t behind = result.count * e, end = shape->recv * e;
    bool in_place_blocks = bench->options->kind == BENCH_REDUCE_SCATTER && shape->send == 0;

    if (shape->send > 0 &&
        (!buffer_check(bench, bench->send, 0, shape->send * e, bench->input, n * e, 0, &wrong) ||
         !buffer_poisoned(bench, bench->send, shape->send * e, GUARD_BYTES, poison, &wrong))) {
        report(bench, "send", wrong, "the call wrote to it");
        return false;
    }
    if (in_place_blocks &&
        !buffer_check(bench, bench->recv, behind, end - behind, bench->input, n * e, behind, &wrong)) {
        report(bench, "receive", wrong, "the call wrote to input behind its result");
        return false;
    }
    if (in_place_blocks)
        behind = end;
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
