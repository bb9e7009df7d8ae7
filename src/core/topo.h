/*
 * Topology of a communicator: which ranks form which island, which islands stand on which node, and whether exchanges
 * join the islands of a node before they cross the network.
 *
 * Made from facts that every rank published (topo_rank), never from rank order. Islands are numbered by their lowest
 * communicator rank, the ranks of an island by communicator rank; both orders are the order of operands in reductions.
 * Pure data: no MPI, no I/O.
 */
#ifndef HETMPI_TOPO_H
#define HETMPI_TOPO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What decides a rank's place. Two ranks are in one island when both numbers are equal. */
struct topo_rank {
    uint64_t island_key;   /* hash of (vendor, node), or of the label that ISLANDS gives the rank */
    uint64_t node_key;     /* hash of the node */
    uint32_t weight;       /* share of wire bytes, proportional to the bandwidth of the rank's rails; 1..65535 */
};

struct topo {
    int ranks, rank;           /* of the communicator; rank: this process */
    int islands, nodes;
    int *island_of;            /* [ranks] island of a rank */
    int *position_of;          /* [ranks] position of a rank in its island */
    int *node_of;              /* [ranks] */
    int *island_first;         /* [islands + 1] island i has members[island_first[i] .. island_first[i+1]) */
    int *members;              /* [ranks] ranks sorted by (island, rank) */
    int *island_node;          /* [islands] node of the island's first member */
    int *node_first;           /* [nodes + 1] node m has the islands node_islands[node_first[m] .. node_first[m+1]) */
    int *node_islands;         /* [islands] sorted by (node, island) */
    int *mate_of;              /* [islands] number of an island among those of its node */
    bool straddles;            /* some island has ranks on several nodes */
    int levels;                /* 1: islands exchange directly; 2: those of a node first. See topo_choose_levels */
    uint64_t *weight_before;   /* [ranks + islands] prefix sums: see topo_weight_before */
};

/* Fills *topo from the facts of all ranks (one level); HETMPI_ERR_MEMORY leaves it empty. topo_clear frees it. */
int topo_build(struct topo *topo, const struct topo_rank *facts, int ranks, int rank);
void topo_clear(struct topo *topo);

/*
 * Flat or two levels: sets topo->levels, the same on all ranks, and says why in a few words. asked: 0 to choose, or the
 * most levels that are wanted. Two levels wherever they exist: each byte then crosses the network once a node instead
 * of once an island, and what is done inside a node first costs less than that.
 */
void topo_choose_levels(struct topo *topo, int asked, char *why, size_t bytes);

static inline int topo_island_size(const struct topo *t, int island)
{
    return t->island_first[island + 1] - t->island_first[island];
}
static inline int topo_member(const struct topo *t, int island, int position)
{
    return t->members[t->island_first[island] + position];
}
int topo_most_islands(const struct topo *topo);   /* of any node */

/* Islands on a node, and one of them by its number there. */
static inline int topo_node_islands(const struct topo *t, int node)
{
    return t->node_first[node + 1] - t->node_first[node];
}
static inline int topo_mate(const struct topo *t, int node, int number)
{
    return t->node_islands[t->node_first[node] + number];
}
/* Sum of the weights of the island's positions 0 .. position-1; position == size gives the total. */
static inline uint64_t topo_weight_before(const struct topo *t, int island, int position)
{
    return t->weight_before[t->island_first[island] + island + position];
}

#endif
