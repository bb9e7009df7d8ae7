/* Topology: islands and nodes from published facts, for any interleaving of ranks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "core/topo.h"
#include "hetmpi.h"

/* Keys that sort in another order than they appear in. */
static uint64_t key(int label) { return (uint64_t)(label + 1) * 0x9e3779b97f4a7c15u; }

/* What must hold of any topology. */
static void check_consistent(const struct topo *t, const struct topo_rank *facts)
{
    int seen = 0, seen_nodes = 0;
    for (int r = 0; r < t->ranks; r++) {
        assert_in_range(t->island_of[r], 0, t->islands - 1);
        assert_in_range(t->node_of[r], 0, t->nodes - 1);
        assert_int_equal(topo_member(t, t->island_of[r], t->position_of[r]), r);
        /* Islands and nodes are numbered as their lowest ranks come. */
        assert_true(t->island_of[r] <= seen && t->node_of[r] <= seen_nodes);
        seen += t->island_of[r] == seen;
        seen_nodes += t->node_of[r] == seen_nodes;
    }
    assert_int_equal(seen, t->islands);
    assert_int_equal(seen_nodes, t->nodes);
    assert_int_equal(t->island_first[0], 0);
    assert_int_equal(t->island_first[t->islands], t->ranks);
    for (int i = 0; i < t->islands; i++) {
        int size = topo_island_size(t, i);
        uint64_t sum = 0;
        assert_true(size > 0);
        for (int p = 0; p < size; p++) {
            int r = topo_member(t, i, p);
            assert_true(p == 0 || topo_member(t, i, p - 1) < r);
            assert_true(facts[r].island_key == facts[topo_member(t, i, 0)].island_key);
            assert_true(topo_weight_before(t, i, p) == sum);
            sum += facts[r].weight;
        }
        assert_true(topo_weight_before(t, i, size) == sum);
        assert_int_equal(t->island_node[i], t->node_of[topo_member(t, i, 0)]);
        for (int j = 0; j < i; j++)
            assert_true(facts[topo_member(t, i, 0)].island_key != facts[topo_member(t, j, 0)].island_key);
    }
    assert_int_equal(t->node_first[0], 0);
    assert_int_equal(t->node_first[t->nodes], t->islands);
    assert_int_equal(t->levels, 1);
    for (int m = 0; m < t->nodes; m++) {
        for (int n = 0; n < topo_node_islands(t, m); n++) {
            int island = topo_mate(t, m, n);
            assert_int_equal(t->island_node[island], m);
            assert_int_equal(t->mate_of[island], n);
            assert_true(n == 0 || topo_mate(t, m, n - 1) < island);
        }
    }
}

/* Labels of the ranks' islands and nodes, one letter each; the islands expected, one digit each. */
static void expect(const char *islands, const char *nodes, const char *numbers, int n_nodes)
{
    struct topo_rank facts[64];
    struct topo t;
    int ranks = (int)strlen(islands);
    for (int r = 0; r < ranks; r++)
        facts[r] = (struct topo_rank){key(islands[r]), key(nodes[r]), (uint32_t)(1 + r)};
    for (int rank = 0; rank < ranks; rank++) {
        assert_int_equal(topo_build(&t, facts, ranks, rank), HETMPI_SUCCESS);
        assert_int_equal(t.ranks, ranks);
        assert_int_equal(t.rank, rank);
        assert_int_equal(t.nodes, n_nodes);
        check_consistent(&t, facts);
        for (int r = 0; r < ranks; r++)
            assert_int_equal(t.island_of[r], numbers[r] - '0');
        topo_clear(&t);
        assert_null(t.members);
    }
}

static void one_rank(void **state)
{
    (void)state;
    expect("n", "0", "0", 1);
}

static void interleaved(void **state)
{
    (void)state;
    expect("nanna", "00000", "01001", 1);
    expect("annan", "00000", "01101", 1);
    expect("zyxzyx", "000000", "012012", 1);
}

static void uneven(void **state)
{
    (void)state;
    expect("nnnnnnnnaaaa", "000000000000", "000000001111", 1);
    expect("nnna", "0000", "0001", 1);
    expect("annn", "0000", "0111", 1);
    expect("acnnnnn", "0000000", "0122222", 1);
}

static void several_nodes(void **state)
{
    (void)state;
    /* Keys differ by node and vendor: n, a on node 0; m, b on node 1. */
    expect("nambnamb", "00110011", "01230123", 2);
    /* An island over two nodes stands where its first rank does. */
    expect("nnaan", "01001", "00110", 2);
    expect("abcd", "3210", "0123", 4);
}

/* A sub-communicator of the same ranks in reverse: the same islands, numbered anew. */
static void reversed(void **state)
{
    (void)state;
    const char *labels = "nanna";
    struct topo_rank facts[5];
    struct topo t;
    for (int r = 0; r < 5; r++)
        facts[r] = (struct topo_rank){key(labels[4 - r]), key(0), 1};
    assert_int_equal(topo_build(&t, facts, 5, 2), HETMPI_SUCCESS);
    check_consistent(&t, facts);
    static const int numbers[] = {0, 1, 1, 0, 1};
    assert_memory_equal(t.island_of, numbers, sizeof(numbers));
    assert_int_equal(topo_member(&t, 0, 0), 0);
    assert_int_equal(topo_member(&t, 0, 1), 3);
    topo_clear(&t);
}

static void weights(void **state)
{
    (void)state;
    struct topo_rank facts[] = {{key(0), 0, 65535}, {key(1), 0, 3}, {key(0), 0, 1}, {key(1), 0, 5}, {key(1), 0, 7}};
    struct topo t;
    assert_int_equal(topo_build(&t, facts, 5, 0), HETMPI_SUCCESS);
    check_consistent(&t, facts);
    assert_true(topo_weight_before(&t, 0, 2) == 65536);
    assert_true(topo_weight_before(&t, 1, 0) == 0);
    assert_true(topo_weight_before(&t, 1, 2) == 8);
    assert_true(topo_weight_before(&t, 1, 3) == 15);
    topo_clear(&t);
}

static void bad_arguments(void **state)
{
    (void)state;
    struct topo_rank facts[] = {{1, 1, 1}, {1, 1, 1}};
    struct topo t;
    assert_int_equal(topo_build(&t, facts, 2, 2), HETMPI_ERR_ARG);
    assert_int_equal(topo_build(&t, facts, 2, -1), HETMPI_ERR_ARG);
    assert_int_equal(topo_build(&t, facts, 0, 0), HETMPI_ERR_ARG);
    facts[1].weight = 0;
    assert_int_equal(topo_build(&t, facts, 2, 0), HETMPI_ERR_ARG);
    facts[1].weight = 65536;
    assert_int_equal(topo_build(&t, facts, 2, 0), HETMPI_ERR_ARG);
    assert_null(t.members);
    topo_clear(&t);
}

static void expect_levels(const char *islands, const char *nodes, int asked, int levels, const char *reason)
{
    struct topo_rank facts[64];
    struct topo t;
    char why[96];
    int ranks = (int)strlen(islands);
    for (int r = 0; r < ranks; r++)
        facts[r] = (struct topo_rank){key(islands[r]), key(nodes[r]), 1};
    assert_int_equal(topo_build(&t, facts, ranks, 0), HETMPI_SUCCESS);
    topo_choose_levels(&t, asked, why, sizeof(why));
    assert_int_equal(t.levels, levels);
    assert_string_equal(why, reason);
    topo_clear(&t);
}

/* Two levels wherever whole islands share a node and there is another one, unless one is asked for. */
static void levels(void **state)
{
    (void)state;
    expect_levels("nana", "0000", 0, 1, "one node");
    expect_levels("nana", "0000", 2, 1, "one node");
    expect_levels("nabc", "0123", 0, 1, "one rank on each node");
    expect_levels("naan", "0011", 0, 1, "an island has ranks on several nodes");
    expect_levels("nnaan", "01111", 2, 1, "an island has ranks on several nodes");
    expect_levels("namb", "0011", 0, 2, "4 islands on 2 nodes");
    expect_levels("namb", "0011", 2, 2, "4 islands on 2 nodes");
    expect_levels("namb", "0011", 1, 1, "LEVELS=1");
    expect_levels("nam", "001", 0, 2, "3 islands on 2 nodes");
    expect_levels("nnm", "001", 0, 2, "one island on each node: for small blocks of alltoall alone");
}

/* Random islands, and sizes at which quadratic work would show. */
static void many_ranks(void **state)
{
    (void)state;
    enum { MOST = 16384 };
    struct topo_rank *facts = malloc(MOST * sizeof(*facts));
    struct topo t;
    uint64_t random = 1;
    assert_non_null(facts);
    struct timespec from, to;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &from);
    for (int round = 0; round < 20; round++) {
        uint64_t islands = round % 4 == 0 ? MOST : round % 4 == 1 ? 2 : round % 4 == 2 ? 1 : MOST / 8;
        for (int r = 0; r < MOST; r++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            uint64_t label = round % 2 ? (random >> 33) % islands : (uint64_t)r % islands;
            facts[r] = (struct topo_rank){key((int)label), key((int)(label / 3)), (uint32_t)(1 + random % 65535)};
        }
        assert_int_equal(topo_build(&t, facts, MOST, round), HETMPI_SUCCESS);
        if (round < 4)
            check_consistent(&t, facts);
        topo_clear(&t);
        if (round == 3)   /* the checks above are slow themselves */
            clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &from);
    }
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &to);
    double seconds = (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec) * 1e-9;
    printf("16 topologies of %d ranks: %.3f s\n", MOST, seconds);
    assert_true(seconds < 5);   /* sanitizers included; quadratic work would take minutes */
    free(facts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank), cmocka_unit_test(interleaved), cmocka_unit_test(uneven),
        cmocka_unit_test(several_nodes), cmocka_unit_test(reversed), cmocka_unit_test(weights),
        cmocka_unit_test(bad_arguments), cmocka_unit_test(levels), cmocka_unit_test(many_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
