/*
 * Two levels: the islands of a node exchange among themselves before and after anything crosses the network.
 *
 * Vectors. Each rank's part is cut into segments, the common refinement of the parts of all islands, and each segment
 * into as many equal slices as make shares of every node's islands. On each node one island carries a slice: the
 * owner of the segment there collects it from the other islands of its node, exchanges it with the carriers of the same
 * slice on other nodes, and hands the result back. So all ranks of a node carry, and a node sends and receives what one
 * vector takes, however many islands it has. A slice of a segment is a cell.
 *
 * Blocks. What goes between an island and another node goes by way of one island there, whole: see algo_gate.
 *
 * The order of operands: inside a node as in one level (islands in order, in each of them ranks in order), then node by
 * node. What leaves a node is rounded once more where types are narrow and partial results not exact.
 */
#ifndef HETMPI_ALGOS_LEVELS_H
#define HETMPI_ALGOS_LEVELS_H

#include "algos/algos.h"

/* Another owner of a segment; the number of the segment in the intersection of both parts. */
struct algo_peer { int rank, number; };

struct algo_cell {
    struct sched_range range;
    int slice, carrier;        /* carrier: number, among the islands of this node, of the one that carries it */
    bool mine;                 /* that is this rank's */
    int mates, carriers;       /* first of its peers: owners in the islands of this node; if mine, carriers on the nodes */
    struct algo_place partial; /* if mine: this node's partial result, after algo_node_reduce */
    struct algo_span read;     /* ... and what has read this island's partial result where the cell stands */
    struct algo_span made;     /* what fills the cell of the result: the builders' own */
};

struct algo_cells {
    int slices, node, me, mates;   /* node: this one; me: number of this island there; mates: islands there */
    int n, n_peers, room, room_peers;
    struct algo_cell *at;
    struct algo_peer *peers;
};

/* Slices of a segment: the same on all ranks. */
int algo_slices(const struct topo *topo);
/* Segments of a part for which the channels and scratches of a schedule suffice. */
int algo_cells_room(const struct topo *topo);

/* This rank's part of SPACE_VECTOR as cells, in ascending order; false without memory. */
bool algo_cells_open(struct algo *a, struct algo_cells *c);
void algo_cells_close(struct algo_cells *c);

/* Owner of the cell in an island of this node, by its number; carrier, on a node, of a cell that is mine. */
struct algo_peer algo_cell_mate(const struct algo_cells *c, const struct algo_cell *cell, int number);
struct algo_peer algo_cell_carrier(const struct algo_cells *c, const struct algo_cell *cell, int node);
/* Number `part` of `parts` equal sub-ranges of a cell. */
struct sched_range algo_cell_part(const struct algo_cell *cell, int parts, int part);
/* Messages of a cell: at most two from one rank to another, told apart by the phase (0, 1). */
int algo_cell_send(struct algo *a, const struct algo_cells *c, const struct algo_cell *cell, struct algo_place from,
                   struct sched_range range, struct algo_peer peer, int phase);
int algo_cell_recv(struct algo *a, const struct algo_cells *c, const struct algo_cell *cell, struct algo_place to,
                   struct sched_range range, struct algo_peer peer, int phase);

/* Reduce-scatter over the islands of this node (phase 0), of which `own` is this island's partial result. */
void algo_node_reduce(struct algo *a, struct algo_cells *c, struct algo_place own);
/* A step that writes the cell in `out`, which may be where the input stands: it comes after what reads that. */
void algo_cell_read(struct algo *a, int step, const struct algo_cell *cell, struct algo_place out);
/* Receives the cells that are not mine from their carriers (phase 1). */
void algo_node_recv(struct algo *a, struct algo_cells *c, struct algo_place out);
/* The other end: a cell that is mine, when made, to the other islands but number `without` (-1: to all). */
void algo_node_send(struct algo *a, const struct algo_cells *c, const struct algo_cell *cell, struct algo_place from,
                    int without);

/* The island of `node` by way of which the island of another node exchanges blocks with it. */
int algo_gate(const struct topo *topo, int node, int island);

#endif
