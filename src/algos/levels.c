/* Two levels: segments cut into slices that islands of a node carry, and the exchanges inside a node. See levels.h. */
#include "algos/levels.h"

#include <stdlib.h>

enum { SLICES_MAX = 12 };   /* beyond it some islands of a node carry a slice more than others */

static int common_divisor(int x, int y)
{
    while (y) {
        int rest = x % y;
        x = y;
        y = rest;
    }
    return x;
}

int algo_slices(const struct topo *topo)
{
    int common = 1;
    for (int m = 0; m < topo->nodes && common <= SLICES_MAX; m++) {
        int k = topo_node_islands(topo, m);
        common *= k / common_divisor(common, k);
    }
    return common <= SLICES_MAX ? common : topo_most_islands(topo);
}

/* Number, among the islands of a node, of the one that carries the slice. Each carries one at least. */
static int carrier_of(const struct topo *topo, int node, int slices, int slice)
{
    return (int)((long)slice * topo_node_islands(topo, node) / slices);
}

int algo_cells_room(const struct topo *topo)
{
    int slices = algo_slices(topo), most = topo_most_islands(topo);
    /* A cell takes a scratch for each other island of the node and each other node, and one for the node's result. */
    int scratches = (ALGO_SCRATCHES - 8) / slices / (most + topo->nodes), channels = ALGO_CHANNELS / (2 * slices);
    return scratches < channels ? scratches : channels;
}

static bool more_room(struct algo *a, void **array, int used, int *room, size_t element)
{
    if (used < *room)
        return true;
    int more = *room ? 2 * *room : 2 * a->topo->nodes + 16;
    void *bigger = realloc(*array, (size_t)more * element);
    if (!bigger) {
        a->no_memory = true;
        return false;
    }
    *array = bigger;
    *room = more;
    return true;
}

/* The owner of the walk's segment in the island. */
static bool add_peer(struct algo *a, struct algo_cells *c, const struct algo_walk *w, int island)
{
    if (!more_room(a, (void **)&c->peers, c->n_peers, &c->room_peers, sizeof(*c->peers)))
        return false;
    c->peers[c->n_peers++] = (struct algo_peer){topo_member(a->topo, island, w->owner[island]), w->number[island]};
    return true;
}

static bool add_cell(struct algo *a, struct algo_cells *c, const struct algo_walk *w, int mates, int slice)
{
    const struct topo *t = a->topo;
    if (!more_room(a, (void **)&c->at, c->n, &c->room, sizeof(*c->at)))
        return false;
    struct algo_cell *cell = &c->at[c->n++];
    *cell = (struct algo_cell){.range = algo_divide(w->segment, c->slices, slice), .slice = slice, .mates = mates,
                               .carrier = carrier_of(t, c->node, c->slices, slice), .carriers = c->n_peers};
    cell->mine = cell->carrier == c->me;
    for (int m = 0; m < t->nodes && cell->mine; m++)
        if (!add_peer(a, c, w, topo_mate(t, m, carrier_of(t, m, c->slices, slice))))
            return false;
    return true;
}

bool algo_cells_open(struct algo *a, struct algo_cells *c)
{
    const struct topo *t = a->topo;
    struct algo_walk w;
    *c = (struct algo_cells){.slices = algo_slices(t), .node = t->island_node[a->island], .me = t->mate_of[a->island]};
    c->mates = topo_node_islands(t, c->node);
    if (!algo_walk_open(a, &w, algo_my_part(a, SPACE_VECTOR, 0)))
        return false;
    bool good = true;
    while (good && algo_walk_next(a, &w)) {
        int mates = c->n_peers;
        for (int i = 0; i < c->mates && good; i++)
            good = add_peer(a, c, &w, topo_mate(t, c->node, i));
        for (int slice = 0; slice < c->slices && good; slice++)
            good = add_cell(a, c, &w, mates, slice);
    }
    algo_walk_close(&w);
    if (!good)
        algo_cells_close(c);
    return good;
}

void algo_cells_close(struct algo_cells *c)
{
    free(c->at);
    free(c->peers);
    c->at = NULL;
    c->peers = NULL;
}

struct algo_peer algo_cell_mate(const struct algo_cells *c, const struct algo_cell *cell, int number)
{
    return c->peers[cell->mates + number];
}

struct algo_peer algo_cell_carrier(const struct algo_cells *c, const struct algo_cell *cell, int node)
{
    return c->peers[cell->carriers + node];
}

struct sched_range algo_cell_part(const struct algo_cell *cell, int parts, int part)
{
    return algo_divide(cell->range, cell->range.parts * parts, cell->range.part * parts + part);
}

static int channel_of(const struct algo_cells *c, const struct algo_cell *cell, struct algo_peer peer, int phase)
{
    return 2 * (peer.number * c->slices + cell->slice) + phase;
}

int algo_cell_send(struct algo *a, const struct algo_cells *c, const struct algo_cell *cell, struct algo_place from,
                   struct sched_range range, struct algo_peer peer, int phase)
{
    return algo_send(a, from, range, peer.rank, channel_of(c, cell, peer, phase));
}

int algo_cell_recv(struct algo *a, const struct algo_cells *c, const struct algo_cell *cell, struct algo_place to,
                   struct sched_range range, struct algo_peer peer, int phase)
{
    return algo_recv(a, to, range, peer.rank, channel_of(c, cell, peer, phase));
}

void algo_node_reduce(struct algo *a, struct algo_cells *c, struct algo_place own)
{
    int first_recv = a->sched->n_steps, first_scratch = a->sched->n_scratch, others = c->mates - 1, mine = 0;
    for (int i = 0; i < c->n; i++) {
        struct algo_cell *cell = &c->at[i];
        for (int j = 0; j < c->mates && cell->mine; j++)
            if (j != c->me)
                algo_cell_recv(a, c, cell, algo_scratch(a, cell->range, a->call->exact), cell->range,
                               algo_cell_mate(c, cell, j), 0);
    }
    for (int i = 0; i < c->n; i++) {
        struct algo_cell *cell = &c->at[i];
        if (cell->mine)
            continue;
        int step = algo_cell_send(a, c, cell, own, cell->range, algo_cell_mate(c, cell, cell->carrier), 0);
        cell->read = own.buffer == BUF_SEND ? algo_since(a, step) : own.made;
    }
    for (int i = 0; i < c->n; i++) {
        struct algo_cell *cell = &c->at[i];
        if (!cell->mine)
            continue;
        cell->partial = own;
        if (others > 0) {
            int recvs = first_recv + mine * others, theirs = first_scratch + mine * others;
            cell->partial = algo_scratch(a, cell->range, a->call->exact);
            int step = algo_reduce(a, cell->partial, cell->range, false);
            for (int j = 0; j < c->mates; j++)
                algo_operand(a, step, j == c->me ? own : algo_scratch_at(theirs++));
            algo_after(a, step, (struct algo_span){recvs, recvs + others});
            cell->partial.made = algo_since(a, step);
        }
        cell->read = cell->partial.made;
        mine++;
    }
}

void algo_cell_read(struct algo *a, int step, const struct algo_cell *cell, struct algo_place out)
{
    if (out.buffer == BUF_RECV && !a->call->stage_send)
        algo_after(a, step, cell->read);
}

void algo_node_recv(struct algo *a, struct algo_cells *c, struct algo_place out)
{
    for (int i = 0; i < c->n; i++) {
        struct algo_cell *cell = &c->at[i];
        if (cell->mine)
            continue;
        int step = algo_cell_recv(a, c, cell, out, cell->range, algo_cell_mate(c, cell, cell->carrier), 1);
        algo_cell_read(a, step, cell, out);
        cell->made = algo_since(a, step);
    }
}

void algo_node_send(struct algo *a, const struct algo_cells *c, const struct algo_cell *cell, struct algo_place from,
                    int without)
{
    for (int i = 1; i < c->mates; i++) {
        int mate = (c->me + i) % c->mates;
        if (mate == without)
            continue;
        int step = algo_cell_send(a, c, cell, from, cell->range, algo_cell_mate(c, cell, mate), 1);
        algo_after(a, step, cell->made);
    }
}

int algo_gate(const struct topo *topo, int node, int island)
{
    int from = topo->island_node[island], theirs = topo_node_islands(topo, from), ours = topo_node_islands(topo, node);
    int number = (int)((long)topo->mate_of[island] * ours / theirs);
    /* With fewer islands there than here, not always the same ones of ours. */
    return topo_mate(topo, node, theirs < ours ? (number + from) % ours : number);
}
