/* Topology of a communicator: islands and nodes found from the facts that the ranks published. */
#include "core/topo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "hetmpi.h"

struct keyed { uint64_t key; int rank; };

static int keyed_compare(const void *pa, const void *pb)
{
    const struct keyed *a = pa, *b = pb;
    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    return (a->rank > b->rank) - (a->rank < b->rank);
}

/* Groups ranks of equal keys and numbers the groups by their lowest rank. `order` is sorted here; `number` is scratch
 * of as many entries. Returns how many groups there are. */
static int group(struct keyed *order, int *number, int ranks, int *group_of)
{
    qsort(order, (size_t)ranks, sizeof(*order), keyed_compare);
    int found = 0;
    for (int i = 0; i < ranks; i++) {
        if (i == 0 || order[i].key != order[i - 1].key)
            number[found++] = -1;
        group_of[order[i].rank] = found - 1;
    }
    int next = 0;
    for (int r = 0; r < ranks; r++) {
        int *n = &number[group_of[r]];
        if (*n < 0)
            *n = next++;
        group_of[r] = *n;
    }
    return found;
}

/* Which islands stand on which node. */
static void place_islands(struct topo *t)
{
    for (int r = 0; r < t->ranks; r++)
        t->straddles |= t->node_of[r] != t->island_node[t->island_of[r]];
    /* Islands come in ascending order, so those of a node do too. */
    for (int i = 0; i < t->islands; i++)
        t->mate_of[i] = t->node_first[t->island_node[i] + 1]++;
    for (int m = 0; m < t->nodes; m++)
        t->node_first[m + 1] += t->node_first[m];
    for (int i = 0; i < t->islands; i++)
        t->node_islands[t->node_first[t->island_node[i]] + t->mate_of[i]] = i;
}

int topo_build(struct topo *topo, const struct topo_rank *facts, int ranks, int rank)
{
    memset(topo, 0, sizeof(*topo));
    if (ranks < 1 || rank < 0 || rank >= ranks)
        return err_set(HETMPI_ERR_ARG, "topology: rank %d of %d does not exist", rank, ranks);
    for (int r = 0; r < ranks; r++) {
        if (facts[r].weight < 1 || facts[r].weight > 65535)
            return err_set(HETMPI_ERR_ARG, "topology: rank %d has weight %u, it must be 1..65535", r,
                           (unsigned)facts[r].weight);
    }

    size_t n = (size_t)ranks;
    struct topo t = {.ranks = ranks, .rank = rank, .levels = 1};
    struct keyed *order = malloc(n * sizeof(*order));
    int *number = malloc(n * sizeof(*number));
    t.island_of = malloc(n * sizeof(int));
    t.position_of = malloc(n * sizeof(int));
    t.node_of = malloc(n * sizeof(int));
    t.members = malloc(n * sizeof(int));
    if (!order || !number || !t.island_of || !t.position_of || !t.node_of || !t.members)
        goto no_memory;

    for (int r = 0; r < ranks; r++)
        order[r] = (struct keyed){facts[r].node_key, r};
    t.nodes = group(order, number, ranks, t.node_of);
    for (int r = 0; r < ranks; r++)
        order[r] = (struct keyed){facts[r].island_key, r};
    t.islands = group(order, number, ranks, t.island_of);

    size_t k = (size_t)t.islands;
    t.island_first = calloc(k + 1, sizeof(int));
    t.island_node = malloc(k * sizeof(int));
    t.weight_before = malloc((n + k) * sizeof(uint64_t));
    t.node_first = calloc((size_t)t.nodes + 1, sizeof(int));
    t.node_islands = malloc(k * sizeof(int));
    t.mate_of = malloc(k * sizeof(int));
    if (!t.island_first || !t.island_node || !t.weight_before || !t.node_first || !t.node_islands || !t.mate_of)
        goto no_memory;

    /* Ranks come in ascending order, so positions in the island do too. */
    for (int r = 0; r < ranks; r++)
        t.position_of[r] = t.island_first[t.island_of[r] + 1]++;
    for (int i = 0; i < t.islands; i++)
        t.island_first[i + 1] += t.island_first[i];
    for (int r = 0; r < ranks; r++)
        t.members[t.island_first[t.island_of[r]] + t.position_of[r]] = r;
    for (int i = 0; i < t.islands; i++) {
        t.island_node[i] = t.node_of[topo_member(&t, i, 0)];
        uint64_t *before = t.weight_before + t.island_first[i] + i, sum = 0;
        int size = topo_island_size(&t, i);
        for (int p = 0; p < size; p++) {
            before[p] = sum;
            sum += facts[topo_member(&t, i, p)].weight;
        }
        before[size] = sum;
    }
    place_islands(&t);

    free(order);
    free(number);
    *topo = t;
    return HETMPI_SUCCESS;

no_memory:
    free(order);
    free(number);
    topo_clear(&t);
    return err_set(HETMPI_ERR_MEMORY, "topology: no memory for the tables of %d ranks", ranks);
}

void topo_clear(struct topo *topo)
{
    free(topo->island_of);
    free(topo->position_of);
    free(topo->node_of);
    free(topo->island_first);
    free(topo->members);
    free(topo->island_node);
    free(topo->node_first);
    free(topo->node_islands);
    free(topo->mate_of);
    free(topo->weight_before);
    memset(topo, 0, sizeof(*topo));
}

int topo_most_islands(const struct topo *topo)
{
    int most = 1;

    for (int m = 0; m < topo->nodes; m++)
        if (topo_node_islands(topo, m) > most)
            most = topo_node_islands(topo, m);
    return most;
}

void topo_choose_levels(struct topo *topo, int asked, char *why, size_t bytes)
{
    topo->levels = 1;
    if (topo->nodes == 1) {
        snprintf(why, bytes, "one node");
    } else if (topo->nodes == topo->ranks) {
        snprintf(why, bytes, "one rank on each node");
    } else if (topo->straddles) {
        snprintf(why, bytes, "an island has ranks on several nodes");
    } else if (asked == 1) {
        snprintf(why, bytes, "LEVELS=1");
    } else {
        topo->levels = 2;
        if (topo->islands == topo->nodes)
            snprintf(why, bytes, "one island on each node: for small blocks of alltoall alone");
        else
            snprintf(why, bytes, "%d islands on %d nodes", topo->islands, topo->nodes);
    }
}
