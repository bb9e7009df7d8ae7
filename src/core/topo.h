/*
 * Topology of a communicator: which ranks form which island, and which islands stand on which node.
 *
 * Made from facts that every rank published (topo_rank), never from rank order. Islands are numbered by their lowest
 * communicator rank, the ranks of an island by communicator rank; both orders are the order of operands in reductions.
 * Pure data: no MPI, no I/O.
 */
#ifndef HETMPI_TOPO_H
#define HETMPI_TOPO_H

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
    uint64_t *weight_before;   /* [ranks + islands] prefix sums: see topo_weight_before */
};

/* Fills *topo from the facts of all ranks; HETMPI_ERR_MEMORY leaves it empty. topo_clear frees it. */
int topo_build(struct topo *topo, const struct topo_rank *facts, int ranks, int rank);
void topo_clear(struct topo *topo);

static inline int topo_island_size(const struct topo *t, int island)
{
    return t->island_first[island + 1] - t->island_first[island];
}
static inline int topo_member(const struct topo *t, int island, int position)
{
    return t->members[t->island_first[island] + position];
}
/* Sum of the weights of the island's positions 0 .. position-1; position == size gives the total. */
static inline uint64_t topo_weight_before(const struct topo *t, int island, int position)
{
    return t->weight_before[t->island_first[island] + island + position];
}

#endif
