/*
 * Reduce. Reduce-scatter inside each island; with two islands the owners of the other one send their parts to the owners
 * in the root's island, who reduce them in island order; those hand the result to the root.
 *
 * With k islands more than N would come into the root's island that way. So it is bcast turned round: each segment (the
 * common refinement of all islands' parts) is divided into k-1 sub-ranges, one for each island but the root's, whose
 * owner collects it from all others, reduces it in island order, and sends the result to the owner in the root's island.
 *
 * Wire bytes: each island sends N and receives N; with two islands the root's sends nothing.
 *
 * Two levels (levels.h): every node reduces each slice on its carrier; those send to the carriers of the root's node,
 * who reduce in the order of the nodes and hand the result to the root's island. Each node but the root's sends N over
 * the network, its k islands equal shares. Inside their node they send N (k-1)/k each; in the root's node those without
 * the root N.
 */
#include "algos/algos.h"
#include "algos/levels.h"

/* The root's node: a cell that this rank carries, from all nodes, to `to`. */
static void collect_cell(struct algo *a, struct algo_cells *c, struct algo_cell *cell, struct algo_place to)
{
    int n = a->topo->nodes, scratch = a->sched->n_scratch, first = a->sched->n_steps;
    for (int m = 0; m < n; m++)
        if (m != c->node)
            algo_cell_recv(a, c, cell, algo_scratch(a, cell->range, a->call->exact), cell->range,
                           algo_cell_carrier(c, cell, m), 0);
    struct algo_span recvs = algo_since(a, first);
    int step = algo_reduce(a, to, cell->range, true);
    for (int m = 0; m < n; m++)
        algo_operand(a, step, m == c->node ? cell->partial : algo_scratch_at(scratch++));
    algo_after(a, step, recvs);
    cell->made = algo_since(a, step);
}

/* Two levels. `out`: where the root's island puts its parts. Returns the steps that complete this rank's part there. */
static struct algo_span through_nodes(struct algo *a, struct algo_place partial, struct algo_place out)
{
    int root_island = a->topo->island_of[a->call->root];
    int home = a->topo->mate_of[root_island], home_node = a->topo->island_node[root_island];
    struct algo_cells c;
    if (!algo_cells_open(a, &c))
        return (struct algo_span){0, 0};
    algo_node_reduce(a, &c, partial);
    int first = a->sched->n_steps;
    for (int i = 0; i < c.n; i++) {
        struct algo_cell *cell = &c.at[i];
        if (!cell->mine)
            continue;
        if (c.node != home_node) {
            algo_cell_send(a, &c, cell, cell->partial, cell->range, algo_cell_carrier(&c, cell, home_node), 0);
            continue;
        }
        struct algo_place to = c.me == home ? out : algo_scratch(a, cell->range, false);
        collect_cell(a, &c, cell, to);
        to.made = cell->made;
        if (c.me != home)
            algo_cell_send(a, &c, cell, to, cell->range, algo_cell_mate(&c, cell, home), 1);
    }
    if (a->island == root_island)
        algo_node_recv(a, &c, out);
    algo_cells_close(&c);
    return algo_since(a, first);
}

/* This rank's part of the partial result to the root's island. */
static void send_part(struct algo *a, struct algo_place partial, struct sched_range mine, int home)
{
    for (struct algo_meet m = algo_meet(a, mine, CUT_WEIGHT, home); algo_meet_next(a, &m);)
        algo_send(a, partial, m.segment, topo_member(a->topo, home, m.position), 0);
}

/* This rank's part of the partial result to the islands that reduce it, segment by segment. */
static void send_shares(struct algo *a, struct algo_walk *w, struct algo_place partial, int home)
{
    int k = a->islands;
    for (w->started = false; algo_walk_next(a, w);) {
        for (int i = 1; i < k; i++) {
            int j = (a->island + i) % k;
            if (j != home)
                algo_send(a, partial, algo_divide(w->segment, k - 1, algo_guest(j, home)),
                          topo_member(a->topo, j, w->owner[j]), w->number[j]);
        }
    }
}

/* Many islands, not the root's: reduces a sub-range of each segment. Segment s has its messages and scratches next to
 * each other, number i - 1 for island (own + i) % k. */
static void reduce_shares(struct algo *a, struct algo_place partial, int home)
{
    int k = a->islands, own = a->island, s = 0;
    struct algo_walk w;
    if (!algo_walk_open(a, &w, algo_my_part(a, SPACE_VECTOR, 0)))
        return;
    int first_recv = a->sched->n_steps, first_scratch = a->sched->n_scratch;
    while (algo_walk_next(a, &w)) {
        struct sched_range sub = algo_divide(w.segment, k - 1, algo_guest(own, home));
        for (int i = 1; i < k; i++) {
            int j = (own + i) % k;
            algo_recv(a, algo_scratch(a, sub, a->call->exact), sub, topo_member(a->topo, j, w.owner[j]), w.number[j]);
        }
    }
    send_shares(a, &w, partial, home);
    for (w.started = false; algo_walk_next(a, &w); s++) {
        struct sched_range sub = algo_divide(w.segment, k - 1, algo_guest(own, home));
        struct algo_place result = algo_scratch(a, sub, false);
        int recvs = first_recv + s * (k - 1), scratch = first_scratch + s * (k - 1);
        int step = algo_reduce(a, result, sub, true);
        for (int j = 0; j < k; j++)
            algo_operand(a, step, j == own ? partial : algo_scratch_at(scratch + (j - own - 1 + k) % k));
        algo_after(a, step, (struct algo_span){recvs, recvs + k - 1});
        result.made = algo_since(a, step);
        algo_send(a, result, sub, topo_member(a->topo, home, w.owner[home]), w.number[home]);
    }
    algo_walk_close(&w);
}

/* The root's island: its partial result to the others, and the result from them. Returns the steps after which this rank's
 * part is complete in `out`, and may replace the input: that has been read, and sent. */
static struct algo_span collect_shares(struct algo *a, struct algo_place partial, struct algo_span read,
                                       struct algo_place out)
{
    int k = a->islands, own = a->island;
    struct algo_walk w;
    if (!algo_walk_open(a, &w, algo_my_part(a, SPACE_VECTOR, 0)))
        return (struct algo_span){0, 0};
    int first = a->sched->n_steps, sent = first;
    send_shares(a, &w, partial, own);
    for (w.started = false; algo_walk_next(a, &w);) {
        for (int i = 1; i < k; i++, sent++) {
            int j = (own + i) % k;
            int step = algo_recv(a, out, algo_divide(w.segment, k - 1, algo_guest(j, own)),
                                 topo_member(a->topo, j, w.owner[j]), w.number[j]);
            if (out.buffer == BUF_RECV && !a->call->stage_send)
                algo_after(a, step, read);
            if (out.buffer == BUF_RECV && partial.buffer == BUF_SEND)
                algo_after(a, step, (struct algo_span){sent, sent + 1});
        }
    }
    algo_walk_close(&w);
    return algo_since(a, first);
}

void algo_reduce_to_root(struct algo *a)
{
    const struct topo *t = a->topo;
    int root = a->call->root, root_island = t->island_of[root];
    bool am_root = t->rank == root, home = a->island == root_island;
    struct sched_range all = algo_whole(a, SPACE_VECTOR, 0), mine = algo_my_part(a, SPACE_VECTOR, 0);
    a->sched->send_layout = LAYOUT_VECTOR;
    a->sched->recv_layout = am_root ? LAYOUT_VECTOR : LAYOUT_NONE;

    struct algo_place in = algo_input(a, SPACE_VECTOR, 0);
    if (!home) {
        struct algo_span read;
        struct algo_place partial = algo_partial(a, in, SPACE_VECTOR, 0, OWNERS_WEIGHT, mine, &read);
        if (a->two_levels)
            through_nodes(a, partial, partial);
        else if (a->shared)
            reduce_shares(a, partial, root_island);
        else
            send_part(a, partial, mine, root_island);
        return;
    }

    /* The root's own part is reduced where it belongs. */
    struct algo_place out = am_root ? algo_output(a, SPACE_VECTOR, 0) : algo_scratch(a, mine, false);
    struct algo_span made;
    if (a->islands > 1) {
        struct algo_span read;
        struct algo_place partial = algo_partial(a, in, SPACE_VECTOR, 0, OWNERS_WEIGHT, mine, &read);
        if (a->two_levels)
            made = through_nodes(a, partial, out);
        else if (a->shared)
            made = collect_shares(a, partial, read, out);
        else
            made = algo_collect(a, &(struct algo_collect){.count = a->islands, .own = partial, .range = mine, .to = out,
                                                      .final = true});
    } else if (a->size > 1) {
        int step = algo_local_reduce(a, in, all, OWNERS_WEIGHT, out, mine, true);
        made = algo_since(a, step);
    } else {
        int step = algo_reduce(a, out, all, true);
        algo_operand(a, step, in);
        made = algo_since(a, step);
    }
    if (a->size > 1) {
        int step = algo_local_spread(a, out, mine, OWNERS_WEIGHT, out, am_root ? all : algo_nothing(a, SPACE_VECTOR, 0),
                                     READERS_ROOT, t->position_of[root], 1);
        algo_after(a, step, made);
        made = algo_since(a, step);
    }
    if (am_root)
        algo_deliver(a, out, all, made, (struct algo_span){0, 0});
}
