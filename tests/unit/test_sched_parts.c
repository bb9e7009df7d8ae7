/* The arithmetic of schedules: cuts, ranges, views of memory, the order of local steps, sizes and limits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "algos/levels.h"
#include "core/sched.h"
#include "hetmpi.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#endif

static uint64_t random_state = 12345;

static uint64_t draw(uint64_t below)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (random_state >> 33) % below;
}

/* Islands of the sizes given, 0 at the end; weights 1..most. Nodes of so many islands, with two levels. */
static int islands_of_node = 1;

static void build(struct topo *topo, const int *sizes, uint64_t most, int rank)
{
    char why[96];
    int ranks = 0, at = 0;
    for (int i = 0; sizes[i]; i++)
        ranks += sizes[i];
    struct topo_rank *facts = malloc((size_t)ranks * sizeof(*facts));
    assert_non_null(facts);
    for (int i = 0; sizes[i]; i++)
        for (int p = 0; p < sizes[i]; p++)
            facts[at++] = (struct topo_rank){(uint64_t)i, (uint64_t)(i / islands_of_node), (uint32_t)(1 + draw(most))};
    assert_int_equal(topo_build(topo, facts, ranks, rank), HETMPI_SUCCESS);
    topo_choose_levels(topo, islands_of_node > 1 ? 2 : 1, why, sizeof(why));
    free(facts);
}

static void names(void **state)
{
    (void)state;
    for (int k = 0; k < COLL_KINDS; k++) {
        assert_string_not_equal(coll_name((enum coll_kind)k), "none");
        for (int j = 0; j < k; j++)
            assert_string_not_equal(coll_name((enum coll_kind)k), coll_name((enum coll_kind)j));
    }
    assert_string_equal(coll_name(COLL_REDUCE_SCATTER_BLOCK), "reduce_scatter_block");
    assert_string_equal(coll_name(COLL_KINDS), "none");
    for (int p = PHASE_MEET; p <= PHASE_STAGE; p++)
        assert_string_not_equal(sched_phase_name((enum sched_phase)p), "none");
    assert_string_equal(sched_phase_name((enum sched_phase)99), "none");
    sched_free(NULL);
}

static long double fraction(const struct topo *t, struct sched_cut c)
{
    int size = topo_island_size(t, c.island);
    if (c.how == CUT_BLOCK)
        return (long double)c.position / size;
    long double before = (long double)topo_weight_before(t, c.island, c.position);
    return before / (long double)topo_weight_before(t, c.island, size);
}

/* Cuts of any islands and kinds stand in the order of their fractions, less than SCHED_ALIGN below the exact place. */
static void cuts_in_order(void **state)
{
    (void)state;
    static const int sizes[][5] = {{1}, {8, 4}, {3, 1}, {5, 7, 2}, {13, 1, 1, 6}};
    for (int round = 0; round < 3000; round++) {
        struct topo t;
        build(&t, sizes[round % 5], round % 3 ? 65535 : 3, 0);
        size_t L = round % 2 ? 1 + draw(100) : 1 + draw(20000);
        uint8_t space = round % 4 < 2 ? SPACE_VECTOR : SPACE_BLOCKS;
        int home = (int)draw((uint64_t)t.islands);
        struct sched_chunk chunk = {.length = L};
        size_t length = sched_space_length(&t, space, home, &chunk);
        assert_true(length == (space == SPACE_BLOCKS ? (size_t)topo_island_size(&t, home) * L : L));
        struct sched_cut cuts[2];
        size_t at[2];
        for (int i = 0; i < 2; i++) {
            cuts[i].how = space == SPACE_BLOCKS && draw(2) ? CUT_BLOCK : CUT_WEIGHT;
            cuts[i].island = cuts[i].how == CUT_BLOCK ? home : (int)draw((uint64_t)t.islands);
            cuts[i].position = (int)draw((uint64_t)topo_island_size(&t, cuts[i].island) + 1);
            at[i] = sched_cut_at(&t, &cuts[i], space, home, &chunk);
            long double exact = fraction(&t, cuts[i]) * (long double)length;
            assert_true((long double)at[i] <= exact + 1e-9L);
            assert_true((long double)at[i] > exact - (length >= SCHED_ALIGN_FROM ? SCHED_ALIGN : 1) - 1e-9L);
            if (length >= SCHED_ALIGN_FROM && at[i] < length)
                assert_true(at[i] % L % SCHED_ALIGN == 0);
        }
        long double x = fraction(&t, cuts[0]), y = fraction(&t, cuts[1]);
        assert_true(x > y + 1e-15L ? at[0] >= at[1] : x < y - 1e-15L ? at[0] <= at[1] : at[0] == at[1]);
        topo_clear(&t);
    }
}

/* With blocks of different lengths, too, cuts stand in the order of their fractions, in their own blocks. */
static void uneven_cuts(void **state)
{
    (void)state;
    static const int sizes[][5] = {{1}, {8, 4}, {3, 1}, {5, 7, 2}, {13, 1, 1, 6}};
    for (int round = 0; round < 3000; round++) {
        struct topo t;
        size_t counts[32], starts[32];
        build(&t, sizes[round % 5], round % 3 ? 65535 : 3, 0);
        for (int r = 0; r < t.ranks; r++)
            counts[r] = draw(3) ? draw(round % 2 ? 100 : 5000) : 0;
        struct sched_chunk chunk = {.first = draw(60), .length = draw(4000), .counts = counts};
        int home = (int)draw((uint64_t)t.islands), blocks = topo_island_size(&t, home);
        starts[0] = 0;
        for (int b = 0; b < blocks; b++) {
            size_t n = counts[topo_member(&t, home, b)], piece = sched_piece(&chunk, topo_member(&t, home, b));
            size_t left = n < chunk.first ? 0 : n - chunk.first;
            assert_true(piece == (left < chunk.length ? left : chunk.length));
            starts[b + 1] = starts[b] + piece;
        }
        assert_true(sched_space_length(&t, SPACE_BLOCKS, home, &chunk) == starts[blocks]);
        struct sched_cut cuts[2];
        size_t at[2];
        for (int i = 0; i < 2; i++) {
            cuts[i].how = draw(2) ? CUT_BLOCK : CUT_WEIGHT;
            cuts[i].island = cuts[i].how == CUT_BLOCK ? home : (int)draw((uint64_t)t.islands);
            cuts[i].position = (int)draw((uint64_t)topo_island_size(&t, cuts[i].island) + 1);
            at[i] = sched_cut_at(&t, &cuts[i], SPACE_BLOCKS, home, &chunk);
            int block = (int)(fraction(&t, cuts[i]) * blocks + 1e-12L);
            assert_true(at[i] >= starts[block] && at[i] <= starts[block < blocks ? block + 1 : block]);
            if (cuts[i].how == CUT_BLOCK)
                assert_true(at[i] == starts[cuts[i].position]);
        }
        long double x = fraction(&t, cuts[0]), y = fraction(&t, cuts[1]);
        assert_true(x > y + 1e-15L ? at[0] >= at[1] : x < y - 1e-15L ? at[0] <= at[1] : at[0] == at[1]);
        topo_clear(&t);
    }
}

/* More than 64 bits in between, and the whole length at the end. */
static void long_vectors(void **state)
{
    (void)state;
    static const int sizes[] = {4, 0};
    struct topo t;
    build(&t, sizes, 1, 0);
    size_t L = ((size_t)1 << 62) + 3;
    struct sched_chunk chunk = {.length = L}, empty = {0};
    struct sched_cut cut = {.how = CUT_WEIGHT, .island = 0, .position = 3};
    assert_true(sched_cut_at(&t, &cut, SPACE_VECTOR, 0, &chunk) == (size_t)3 << 60);
    cut.position = 4;
    assert_true(sched_cut_at(&t, &cut, SPACE_VECTOR, 0, &chunk) == L);
    assert_true(sched_cut_at(&t, &cut, SPACE_VECTOR, 0, &empty) == 0);
    topo_clear(&t);
    assert_true(sched_chunks(0, 8) == 0 && sched_chunks(8, 8) == 1 && sched_chunks(9, 8) == 2);
}

/* Parts of a range follow each other without a gap. */
static void parts_of_ranges(void **state)
{
    (void)state;
    static const int sizes[] = {3, 2, 0};
    struct topo t;
    build(&t, sizes, 9, 0);
    for (size_t L = 0; L < 12000; L += L < 70 ? 1 : 997) {
        struct sched_chunk chunk = {.length = L};
        for (int parts = 1; parts < 9; parts++) {
            struct sched_range r = {.lo = {.island = 0, .position = 1}, .hi = {.island = 1, .position = 2}, .parts = 1};
            size_t begin, whole, first, length, at;
            sched_range_at(&t, &r, &chunk, &begin, &whole);
            at = begin;
            r.parts = parts;
            for (r.part = 0; r.part < parts; r.part++) {
                sched_range_at(&t, &r, &chunk, &first, &length);
                assert_true(first == at);
                assert_true(length <= whole / (size_t)parts + SCHED_ALIGN + (size_t)parts);
                at += length;
            }
            assert_true(at == begin + whole && at == L);
        }
        struct sched_range backwards = {.lo = {.position = 2}, .hi = {.position = 1}, .parts = 1};
        size_t first, length;
        sched_range_at(&t, &backwards, &chunk, &first, &length);
        assert_true(length == 0);
    }
    topo_clear(&t);
}

static void owners(void **state)
{
    (void)state;
    static const int sizes[] = {2, 3, 0};
    struct topo t;
    build(&t, sizes, 1, 3);   /* rank 3: position 1 of island 1 */
    struct sched_step s = {.owners = OWNERS_WEIGHT, .in = {.range = {.parts = 1}}};
    struct sched_chunk chunk = {.length = 30};
    size_t first, length;
    sched_owner_part(&t, &s, 1, &chunk, &first, &length);
    assert_true(first == 10 && length == 10);
    s.in.range.space = SPACE_BLOCKS;
    s.in.range.island = 0;
    sched_owner_part(&t, &s, 2, &chunk, &first, &length);
    assert_true(first == 40 && length == 20);
    s.in.range.island = 1;
    s.owners = OWNERS_BLOCK;
    sched_owner_part(&t, &s, 2, &chunk, &first, &length);
    assert_true(first == 60 && length == 30);
    s.owners = OWNERS_ROOT;
    s.root = 2;
    sched_owner_part(&t, &s, 2, &chunk, &first, &length);
    assert_true(first == 0 && length == 90);
    sched_owner_part(&t, &s, 0, &chunk, &first, &length);
    assert_true(length == 0);
    /* Readers: all, one, or each its own part. */
    s.in.range.island = 0;
    s.readers = READERS_ALL;
    sched_reader_part(&t, &s, 1, &chunk, &first, &length);
    assert_true(first == 0 && length == 60);
    s.readers = READERS_ROOT;
    sched_reader_part(&t, &s, 1, &chunk, &first, &length);
    assert_true(length == 0);
    sched_reader_part(&t, &s, 2, &chunk, &first, &length);
    assert_true(first == 0 && length == 60);
    s.readers = READERS_WEIGHT;
    sched_reader_part(&t, &s, 1, &chunk, &first, &length);
    assert_true(first == 20 && length == 20);
    s.in.range.island = 1;
    s.readers = READERS_BLOCK;
    sched_reader_part(&t, &s, 1, &chunk, &first, &length);
    assert_true(first == 30 && length == 30);
    topo_clear(&t);
}

/* The address of one element, told the slow way. */
static char *element_at(const struct sched_view *v, size_t e)
{
    size_t at = v->layout == LAYOUT_NONE ? e - v->first
              : v->layout == LAYOUT_VECTOR ? v->chunk_first + e
              : v->layout == LAYOUT_BLOCK ? v->chunk_first + e % v->L
              : (size_t)v->ranks[e / v->L] * v->count + v->chunk_first + e % v->L;
    return v->base + at * v->element;
}

static void views(void **state)
{
    (void)state;
    static char memory[1 << 16];
    static const int ranks[] = {0, 1, 2, 4, 5, 9, 10};
    for (int round = 0; round < 4000; round++) {
        struct sched_view v = {.base = memory, .element = 1 + draw(9), .layout = (uint8_t)draw(4), .ranks = ranks};
        v.count = 1 + draw(40);
        v.L = round % 3 ? 1 + draw(v.count) : v.count;
        v.chunk_first = draw(v.count - v.L + 1);
        size_t space = 7 * v.L, at = draw(space), length = 1 + draw(space - at);
        if (v.layout == LAYOUT_BLOCK) {
            at = 2 * v.L + draw(v.L);
            length = 1 + draw(3 * v.L - at);
        }
        v.first = v.layout == LAYOUT_NONE ? draw(at + 1) : 0;
        int runs = 0;
        for (size_t e = at; e < at + length;) {
            void *address;
            size_t n = sched_view_run(&v, e, at + length - e, &address);
            assert_true(n >= 1 && n <= at + length - e);
            for (size_t i = 0; i < n; i++)
                assert_ptr_equal((char *)address + i * v.element, element_at(&v, e + i));
            e += n;
            runs++;
        }
        if (v.layout != LAYOUT_BLOCKS)
            assert_int_equal(runs, 1);
        if (v.layout == LAYOUT_BLOCKS && v.L == v.count)
            assert_true(runs <= 3);   /* 0 1 2, 4 5, 9 10 */
        void *address;
        assert_true(sched_view_run(&v, at, 0, &address) == 0);
    }
    struct sched_view nothing = {.layout = LAYOUT_BLOCKS};
    void *address;
    assert_true(sched_view_run(&nothing, 0, 0, &address) == 0);
}

/* Blocks of different lengths, displaced or not: every element where the slow way finds it. */
static void uneven_views(void **state)
{
    (void)state;
    static char memory[1 << 16];
    static const int ranks[] = {0, 1, 2, 4, 5, 9, 10};
    for (int round = 0; round < 4000; round++) {
        size_t counts[11], displs[11], packed[12] = {0};
        for (int r = 0; r < 11; r++)
            counts[r] = draw(3) ? draw(40) : 0;
        for (int r = 0, at = 0; r < 11; r++) {
            displs[10 - r] = (size_t)at;
            at += (int)(counts[10 - r] + draw(2));
            packed[r + 1] = packed[r] + counts[r];
        }
        struct sched_view v = {.base = memory, .element = 1 + draw(9), .ranks = ranks, .counts = counts,
                               .layout = draw(4) ? LAYOUT_BLOCKS : LAYOUT_BLOCK, .displs = draw(2) ? displs : NULL};
        v.chunk_first = draw(3) ? 0 : draw(40);
        v.L = draw(2) ? 40 : 1 + draw(40);
        struct sched_chunk chunk = {v.chunk_first, v.L, counts};
        char *want[7 * 40];
        size_t n = 0, block_first = 0, block = draw(7);
        for (size_t b = 0; b < 7; b++) {
            size_t place = v.layout == LAYOUT_BLOCK ? 0 : v.displs ? displs[ranks[b]] : packed[ranks[b]];
            block_first = b == block ? n : block_first;
            for (size_t e = 0; e < sched_piece(&chunk, ranks[b]); e++)
                want[n++] = memory + (place + v.chunk_first + e) * v.element;
        }
        size_t first = 0, end = n;
        if (v.layout == LAYOUT_BLOCK) {
            first = block_first;
            end = first + sched_piece(&chunk, ranks[block]);
        }
        for (size_t e = first; e < end;) {
            void *address;
            size_t run = sched_view_run(&v, e, end - e, &address);
            assert_true(run >= 1 && run <= end - e);
            for (size_t i = 0; i < run; i++)
                assert_ptr_equal((char *)address + i * v.element, want[e + i]);
            e += run;
        }
    }
}

/* Chunk and step of each local step, as "c.s ". */
static void expect_order(const struct sched *s, size_t chunks, int delay, const char *expected)
{
    struct sched_cursor cursor = {0};
    char text[256] = "";
    size_t chunk;
    int step;
    while (sched_cursor_next(s, chunks, delay, &cursor, &chunk, &step))
        sprintf(text + strlen(text), "%zu.%d ", chunk, step);
    assert_string_equal(text, expected);
    assert_false(sched_cursor_next(s, chunks, delay, &cursor, &chunk, &step));
}

static void local_order(void **state)
{
    (void)state;
    struct sched_step steps[] = {
        {.kind = STEP_LOCAL_REDUCE}, {.kind = STEP_SEND}, {.kind = STEP_LOCAL_SPREAD, .lag = 1}, {.kind = STEP_REDUCE},
        {.kind = STEP_LOCAL_SPREAD}, {.kind = STEP_LOCAL_SPREAD, .lag = 1}, {.kind = STEP_COPY},
    };
    struct sched s = {.n_steps = 7, .steps = steps};
    expect_order(&s, 3, 1, "0.0 0.4 1.0 1.4 0.2 0.5 2.0 2.4 1.2 1.5 2.2 2.5 ");
    expect_order(&s, 2, 0, "0.0 0.4 0.2 0.5 1.0 1.4 1.2 1.5 ");
    expect_order(&s, 2, 4, "0.0 0.4 1.0 1.4 0.2 0.5 1.2 1.5 ");
    expect_order(&s, 0, 2, "");
    s.n_steps = 0;
    expect_order(&s, 3, 1, "");
}

static void bad_calls(void **state)
{
    (void)state;
    static const int sizes[] = {2, 2, 0};
    struct topo t;
    struct sched *s = NULL;
    build(&t, sizes, 1, 0);
    struct sched_call call = {.kind = COLL_BARRIER};
    assert_int_equal(sched_build(&t, &call, &s), HETMPI_ERR_ARG);
    call.kind = COLL_KINDS;
    assert_int_equal(sched_build(&t, &call, &s), HETMPI_ERR_ARG);
    call = (struct sched_call){.kind = COLL_BCAST, .root = 4};
    assert_int_equal(sched_build(&t, &call, &s), HETMPI_ERR_ARG);
    call = (struct sched_call){.kind = COLL_REDUCE, .root = -1};
    assert_int_equal(sched_build(&t, &call, &s), HETMPI_ERR_ARG);
    assert_null(s);
    topo_clear(&t);
}

/* Sizes follow from islands and their ranks, not from all ranks, but where a rank talks to all. */
static void sizes_of_schedules(void **state)
{
    (void)state;
    int eights[16384 / 8 + 1] = {0};
    for (int i = 0; i < 16384 / 8; i++)
        eights[i] = 8;
    static const int halves[] = {8192, 8192, 0};
    for (int layout = 0; layout < 3; layout++) {
        islands_of_node = layout == 2 ? 2 : 1;
        for (int rank = 0; rank < 16384; rank += 5461) {
            struct topo t;
            build(&t, layout == 1 ? halves : eights, 1, rank);
            assert_int_equal(t.levels, layout == 2 ? 2 : 1);
            for (int kind = 0; kind < COLL_BARRIER; kind++) {
                struct sched_call call = {.kind = (enum coll_kind)kind, .root = 77, .straight = kind == COLL_SCATTERV};
                struct sched *s;
                assert_int_equal(sched_build(&t, &call, &s), HETMPI_SUCCESS);
                bool pairs = sched_pairs(&call);
                assert_true(sched_bytes(s) <= 2048 + (pairs ? 512 * (size_t)t.ranks : 1024 * (size_t)t.islands));
                sched_free(s);
            }
            topo_clear(&t);
        }
    }
    islands_of_node = 1;
}

/* Steps of a rank's schedule, with the levels of the topology or with one. */
static int steps_of(struct topo *t, enum coll_kind kind, int levels)
{
    struct sched_call call = {.kind = kind};
    struct sched *s;
    int was = t->levels, steps;
    t->levels = levels;
    assert_int_equal(sched_build(t, &call, &s), HETMPI_SUCCESS);
    t->levels = was;
    steps = s->n_steps;
    sched_free(s);
    return steps;
}

/* Two levels where the indices of a schedule suffice for them, else one. */
static void too_many_cells(void **state)
{
    (void)state;
    static const int few[] = {1, 1, 1000, 1, 0}, many[] = {1, 1, 3000, 1, 0};
    islands_of_node = 2;
    for (int rank = 0; rank < 1002; rank += 167) {
        struct topo t;
        random_state = 7;
        build(&t, few, 65535, rank);
        assert_int_equal(algo_slices(&t), 2);
        assert_true(algo_cells_room(&t) > 1000);
        assert_int_not_equal(steps_of(&t, COLL_ALLREDUCE, 2), steps_of(&t, COLL_ALLREDUCE, 1));
        topo_clear(&t);
        random_state = 7;
        build(&t, many, 65535, rank);
        assert_true(algo_cells_room(&t) < 3000);
        assert_int_equal(steps_of(&t, COLL_ALLREDUCE, 2), steps_of(&t, COLL_ALLREDUCE, 1));
        topo_clear(&t);
    }
    islands_of_node = 1;
}

/* Among nodes of as many islands each island is the gate for one of each other node; a node with more islands than
 * another uses no gate twice for it. */
static void gates(void **state)
{
    (void)state;
    static const int even[] = {1, 2, 3, 1, 2, 3, 4, 1, 1, 0}, uneven[] = {1, 1, 2, 1, 1, 0};
    for (int islands = 3; islands >= 2; islands--) {
        struct topo t;
        islands_of_node = islands;
        build(&t, islands == 3 ? even : uneven, 1, 0);
        for (int node = 0; node < t.nodes; node++) {
            for (int from = 0; from < t.nodes; from++) {
                int used[3] = {0};
                for (int i = 0; i < topo_node_islands(&t, from) && from != node; i++) {
                    int gate = algo_gate(&t, node, topo_mate(&t, from, i));
                    assert_int_equal(t.island_node[gate], node);
                    used[t.mate_of[gate]]++;
                }
                for (int i = 0; i < topo_node_islands(&t, node) && from != node; i++)
                    assert_in_range(used[i], topo_node_islands(&t, from) / topo_node_islands(&t, node),
                                    (topo_node_islands(&t, from) + topo_node_islands(&t, node) - 1) /
                                        topo_node_islands(&t, node));
            }
        }
        topo_clear(&t);
    }
    islands_of_node = 1;
}

/* Two islands of one and a large one: all of its parts are segments of the pair of the first two. */
static void many_channels(void **state)
{
    (void)state;
    static const int below[] = {1, 1, 4000, 0}, above[] = {1, 1, 5000, 0};
    for (int from = 0; from < 2; from++) {
        struct topo t;
        struct sched *s;
        struct sched_call call = {.kind = COLL_ALLREDUCE};
        build(&t, below, 65535, from);
        assert_int_equal(sched_build(&t, &call, &s), HETMPI_SUCCESS);
        bool *used[2] = {calloc(8192, 1), calloc(8192, 1)};
        int messages = 0;
        for (int i = 0; i < s->n_steps; i++) {
            const struct sched_step *p = &s->steps[i];
            if (p->kind > STEP_RECV || p->kind < STEP_SEND || p->peer != 1 - from)
                continue;
            assert_true(p->channel < 8192);
            assert_false(used[p->kind == STEP_RECV][p->channel]);
            used[p->kind == STEP_RECV][p->channel] = true;
            messages++;
        }
        assert_int_equal(messages, 4 * 4000);
        free(used[0]);
        free(used[1]);
        sched_free(s);
        topo_clear(&t);
    }
    /* Too many for the channels of an allreduce: refused, by every rank alike. */
    for (int rank = 0; rank < 5002; rank += rank < 4 ? 1 : 1249) {
        struct topo t;
        struct sched *s = NULL;
        random_state = 99;
        build(&t, above, 65535, rank);
        for (int kind = 0; kind < COLL_BARRIER; kind++) {
            struct sched_call call = {.kind = (enum coll_kind)kind};
            int code = sched_build(&t, &call, &s);
            assert_int_equal(code, kind == COLL_ALLREDUCE ? HETMPI_ERR_UNSUPPORTED : HETMPI_SUCCESS);
            if (code == HETMPI_SUCCESS)
                sched_free(s);
            s = NULL;
        }
        topo_clear(&t);
    }
}

/* No memory for the steps: an error, no crash. In a process of its own, whose memory is bounded. */
static void no_memory(void **state)
{
    (void)state;
#ifdef SANITIZED
    skip();
#else
    static int ones[16385];
    struct topo t;
    for (int i = 0; i < 16384; i++)
        ones[i] = 1;
    build(&t, ones, 1, 5);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        long pages = 0;
        FILE *f = fopen("/proc/self/statm", "r");
        if (!f || fscanf(f, "%ld", &pages) != 1)
            _exit(2);
        rlim_t most = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE);
        int missing = 0;
        /* 6 MB more, then 0.5 MB more: the steps' tables fail at different sizes. */
        for (int more = 12; more > 0; more--) {
            struct rlimit limit = {most + (rlim_t)more * (1 << 19), RLIM_INFINITY};
            struct sched_call call = {.kind = (enum coll_kind)(more % COLL_BARRIER)};
            struct sched *s = NULL;
            if (setrlimit(RLIMIT_AS, &limit))
                _exit(3);
            int code = sched_build(&t, &call, &s);
            if (code != HETMPI_SUCCESS && (code != HETMPI_ERR_MEMORY || s))
                _exit(4);
            missing += code == HETMPI_ERR_MEMORY;
            sched_free(s);
        }
        _exit(missing > 0 ? 0 : 5);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    topo_clear(&t);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names), cmocka_unit_test(cuts_in_order), cmocka_unit_test(uneven_cuts),
        cmocka_unit_test(long_vectors),
        cmocka_unit_test(parts_of_ranges), cmocka_unit_test(owners), cmocka_unit_test(views),
        cmocka_unit_test(uneven_views),
        cmocka_unit_test(local_order), cmocka_unit_test(bad_calls), cmocka_unit_test(sizes_of_schedules),
        cmocka_unit_test(too_many_cells), cmocka_unit_test(gates), cmocka_unit_test(many_channels), cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
