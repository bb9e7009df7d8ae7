/*
 * The table of kinds: how large the buffers of each are, where its input stands, and where its result comes from. What
 * else differs between them is the calls themselves (bench_calls.c) and their bounds (bench_bound.c).
 */
#include "bench.h"

static const struct bench_kind_facts kinds[BENCH_KINDS] = {
    [BENCH_ALLREDUCE] = {"allreduce", "Allreduce", KIND_REDUCES | KIND_PLACES, EXTENT_ONE, EXTENT_ONE},
    [BENCH_REDUCE] = {"reduce", "Reduce", KIND_REDUCES | KIND_ROOTED | KIND_PLACES, EXTENT_ONE, EXTENT_ONE},
    [BENCH_BCAST] = {"bcast", "Broadcast", KIND_ROOTED, EXTENT_NONE, EXTENT_ONE},
    [BENCH_REDUCE_SCATTER] = {"reduce_scatter", "Reduce_scatter", KIND_REDUCES | KIND_PLACES | KIND_CUTS, EXTENT_ALL,
                              EXTENT_ONE},
    [BENCH_REDUCE_SCATTER_BLOCK] = {"reduce_scatter_block", "Reduce_scatter_block",
                                    KIND_REDUCES | KIND_PLACES | KIND_CUTS, EXTENT_ALL, EXTENT_ONE},
    [BENCH_ALLGATHER] = {"allgather", "Allgather", KIND_PLACES, EXTENT_ONE, EXTENT_ALL},
    [BENCH_ALLGATHERV] = {"allgatherv", "Allgatherv", KIND_PLACES, EXTENT_ONE, EXTENT_ALL},
    [BENCH_GATHER] = {"gather", "Gather", KIND_ROOTED | KIND_PLACES, EXTENT_ONE, EXTENT_ALL_AT_ROOT},
    [BENCH_GATHERV] = {"gatherv", "Gatherv", KIND_ROOTED | KIND_PLACES, EXTENT_ONE, EXTENT_ALL_AT_ROOT},
    [BENCH_SCATTER] = {"scatter", "Scatter", KIND_ROOTED | KIND_PLACES, EXTENT_ALL_AT_ROOT, EXTENT_ONE},
    [BENCH_SCATTERV] = {"scatterv", "Scatterv", KIND_ROOTED | KIND_PLACES, EXTENT_ALL_AT_ROOT, EXTENT_ONE},
    [BENCH_ALLTOALL] = {"alltoall", "Alltoall", KIND_PLACES, EXTENT_ALL, EXTENT_ALL},
    [BENCH_ALLTOALLV] = {"alltoallv", "Alltoallv", KIND_PLACES, EXTENT_ALL, EXTENT_ALL},
    [BENCH_SCAN] = {"scan", "Scan", KIND_REDUCES | KIND_PLACES | KIND_PREFIX, EXTENT_ONE, EXTENT_ONE},
    [BENCH_EXSCAN] = {"exscan", "Exscan", KIND_REDUCES | KIND_PLACES | KIND_PREFIX, EXTENT_ONE, EXTENT_ONE},
    [BENCH_BARRIER] = {"barrier", "Barrier", KIND_EMPTY, EXTENT_NONE, EXTENT_NONE},
    [BENCH_LATENCY] = {"latency", "Latency", KIND_MESSAGES, EXTENT_ONE, EXTENT_ONE},
    [BENCH_BW] = {"bw", "Bandwidth", KIND_MESSAGES, EXTENT_ONE, EXTENT_ONE},
    [BENCH_BIBW] = {"bibw", "Bi-Directional Bandwidth", KIND_MESSAGES, EXTENT_ONE, EXTENT_ONE},
    [BENCH_MBW_MR] = {"mbw_mr", "Multiple Bandwidth / Message Rate", KIND_MESSAGES, EXTENT_ONE, EXTENT_ONE},
    [BENCH_P2P] = {"p2p", "Point-to-Point", KIND_MESSAGES, EXTENT_ONE, EXTENT_ONE},
};

const struct bench_kind_facts *kind_facts(enum bench_kind kind)
{
    return &kinds[kind];
}

const char *kind_name(enum bench_kind kind)
{
    return kinds[kind].name;
}

bool kind_is(enum bench_kind kind, unsigned trait)
{
    return kinds[kind].traits & trait;
}

static size_t extent(const struct bench *bench, enum bench_extent extent, size_t count)
{
    switch (extent) {
    case EXTENT_ONE: return count;
    case EXTENT_ALL: return count * (size_t)bench->ranks;
    case EXTENT_ALL_AT_ROOT: return bench->rank == bench->options->root ? count * (size_t)bench->ranks : 0;
    default: return 0;
    }
}

/* Sizes are rounded up to whole elements, of each rank where the call cuts the vector into blocks. */
struct bench_shape shape_of(const struct bench *bench, size_t bytes)
{
    const struct bench_kind_facts *kind = kind_facts(bench->options->kind);
    size_t blocks = kind->traits & KIND_CUTS ? (size_t)bench->ranks : 1;
    size_t elements = (bytes + bench->element - 1) / bench->element;
    struct bench_shape shape = {0};

    if (kind->traits & KIND_EMPTY)
        return shape;
    shape.count = elements > blocks ? (elements + blocks - 1) / blocks : 1;
    shape.bytes = shape.count * blocks * bench->element;
    shape.send = extent(bench, kind->send, shape.count);
    shape.recv = extent(bench, kind->recv, shape.count);
    shape.in_place = bench->options->in_place &&
                     (!(kind->traits & KIND_ROOTED) || bench->rank == bench->options->root);
    if (shape.in_place && kind->send == EXTENT_ALL_AT_ROOT) {
        shape.recv = 0;
    } else if (shape.in_place) {
        shape.recv = shape.send > shape.recv ? shape.send : shape.recv;
        shape.send = 0;
    }
    return shape;
}

static bool gathers(const struct bench_kind_facts *kind)
{
    return kind->send == EXTENT_ONE && kind->recv >= EXTENT_ALL;
}

struct bench_input input_of(const struct bench *bench)
{
    const struct bench_shape *shape = &bench->shape;
    const struct bench_kind_facts *kind = kind_facts(bench->options->kind);

    if (shape->send > 0)
        return (struct bench_input){false, 0, shape->send};
    if (bench->options->kind == BENCH_BCAST && bench->rank == bench->options->root)
        return (struct bench_input){true, 0, shape->recv};
    if (!shape->in_place)
        return (struct bench_input){false, 0, 0};
    if (gathers(kind))
        return (struct bench_input){true, shape->count * (size_t)bench->rank, shape->count};
    return (struct bench_input){true, 0, shape->recv};
}

size_t input_elements(const struct bench *bench)
{
    const struct bench_kind_facts *kind = kind_facts(bench->options->kind);

    return kind->send >= EXTENT_ALL ? bench->shape.count * (size_t)bench->ranks : bench->shape.count;
}

/* Of point to point: does this rank receive data? */
static bool receives(const struct bench *bench)
{
    return messages_are_trips(bench) || bench->options->kind == BENCH_BIBW || bench->rank >= bench->ranks / 2;
}

int result_pieces(const struct bench *bench)
{
    const struct bench_kind_facts *kind = kind_facts(bench->options->kind);

    if (bench->shape.recv == 0)
        return 0;
    switch (bench->options->kind) {
    case BENCH_REDUCE: return bench->rank == bench->options->root;
    case BENCH_EXSCAN: return bench->rank > 0;
    default: break;
    }
    if (kind->traits & KIND_MESSAGES)
        return receives(bench);
    return kind->recv >= EXTENT_ALL ? bench->ranks : 1;
}

struct bench_piece result_piece(const struct bench *bench, int number)
{
    const struct bench_kind_facts *kind = kind_facts(bench->options->kind);
    size_t count = bench->shape.count, mine = count * (size_t)bench->rank;
    struct bench_piece piece = {count * (size_t)number, count, number, 0};

    if (kind->traits & KIND_REDUCES) {
        piece.source = SOURCE_REDUCTION;
        piece.from = kind->traits & KIND_CUTS ? mine : 0;
    } else if (kind->traits & KIND_MESSAGES) {
        piece.source = (bench->rank + bench->ranks / 2) % bench->ranks;
    } else if (kind->recv == EXTENT_ONE) {   /* from the root */
        piece.source = bench->options->root;
        piece.from = kind->send == EXTENT_ALL_AT_ROOT ? mine : 0;
    } else if (kind->send == EXTENT_ALL) {
        piece.from = mine;
    }
    return piece;
}

size_t result_elements(const struct bench *bench)
{
    return bench->shape.count * (size_t)result_pieces(bench);
}
