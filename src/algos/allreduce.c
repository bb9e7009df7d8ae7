/*
 * Allreduce. Reduce-scatter inside each island, exchange between the owners of the same elements, spread inside the
 * island.
 *
 * Wire bytes. Two islands swap whole vectors in one trip: each sends N bytes. k islands divide each segment (the common
 * refinement of all islands' parts) into k sub-ranges, one reduced by each island's owner, and then hand the results
 * round: each island sends 2 N (k-1)/k. Inside an island a rank sends in proportion to its weight. The operands stand
 * in island order wherever they are reduced, so with two islands both sides compute the same bits.
 *
 * Two levels (levels.h): a node of k islands reduces each slice on its carrier, the carriers of n nodes exchange as
 * islands do above, and hand the result back inside their nodes. A node sends over the network N with two nodes,
 * 2 N (n-1)/n with more, its islands equal shares of that; inside the node an island sends 2 N (k-1)/k.
 */
#include "algos/algos.h"
#include "algos/levels.h"

/* Two islands: both owners of a segment reduce it. */
static struct algo_span swap(struct algo *a, struct algo_place partial, struct algo_place out)
{
    int other = 1 - a->island;
    struct sched_range mine = algo_my_part(a, SPACE_VECTOR, 0);
    int recvs = a->sched->n_steps, segments = 0;
    struct algo_place theirs = algo_scratch(a, mine, a->call->exact);
    for (struct algo_meet m = algo_meet(a, mine, CUT_WEIGHT, other); algo_meet_next(a, &m); segments++)
        algo_recv(a, theirs, m.segment, topo_member(a->topo, other, m.position), 0);
    int sends = a->sched->n_steps;
    for (struct algo_meet m = algo_meet(a, mine, CUT_WEIGHT, other); algo_meet_next(a, &m);)
        algo_send(a, partial, m.segment, topo_member(a->topo, other, m.position), 0);

    int reduces = a->sched->n_steps, i = 0;
    for (struct algo_meet m = algo_meet(a, mine, CUT_WEIGHT, other); algo_meet_next(a, &m); i++) {
        int step = algo_reduce(a, out, m.segment, true);
        algo_operand(a, step, a->island == 0 ? partial : theirs);
        algo_operand(a, step, a->island == 0 ? theirs : partial);
        algo_after(a, step, (struct algo_span){recvs + i, recvs + i + 1});
        /* In place the result replaces what is being sent. */
        if (partial.buffer == BUF_SEND)
            algo_after(a, step, (struct algo_span){sends + i, sends + i + 1});
    }
    return algo_since(a, reduces);
}

/* More islands: *reduces and *recvs are the steps that complete this rank's part in `out`. `read`: see algo_partial. */
static void reduce_and_hand_round(struct algo *a, struct algo_place partial, struct algo_span read,
                                  struct algo_place out, struct algo_span *reduces, struct algo_span *recvs)
{
    int k = a->islands, others = k - 1, own = a->island;
    struct sched_range mine = algo_my_part(a, SPACE_VECTOR, 0);
    struct algo_walk w;
    if (!algo_walk_open(a, &w, mine))
        return;

    /* Peers in an order of one's own, so that not all begin with the same island. Segment s has its `others` messages
     * and scratches next to each other, in this order: number i is for island (own + 1 + i) % k. */
    int first_recv = a->sched->n_steps, first_scratch = a->sched->n_scratch, segments = 0;
    while (algo_walk_next(a, &w)) {
        segments++;
        for (int i = 0; i < others; i++) {
            int j = (own + 1 + i) % k;
            struct sched_range sub = algo_divide(w.segment, k, own);
            algo_recv(a, algo_scratch(a, sub, a->call->exact), sub, topo_member(a->topo, j, w.owner[j]),
                      2 * w.number[j]);
        }
    }
    int first_send = a->sched->n_steps;
    for (w.started = false; algo_walk_next(a, &w);) {
        for (int i = 0; i < others; i++) {
            int j = (own + 1 + i) % k;
            algo_send(a, partial, algo_divide(w.segment, k, j), topo_member(a->topo, j, w.owner[j]), 2 * w.number[j]);
        }
    }

    int first_reduce = a->sched->n_steps, s = 0;
    for (w.started = false; algo_walk_next(a, &w); s++) {
        int step = algo_reduce(a, out, algo_divide(w.segment, k, own), true);
        for (int j = 0; j < k; j++) {
            struct algo_place theirs = algo_scratch_at(first_scratch + s * others + (j - own - 1 + k) % k);
            algo_operand(a, step, j == own ? partial : theirs);
        }
        algo_after(a, step, (struct algo_span){first_recv + s * others, first_recv + (s + 1) * others});
    }
    *reduces = algo_since(a, first_reduce);

    int first_result = a->sched->n_steps, message = 0;
    for (w.started = false; algo_walk_next(a, &w);) {
        for (int i = 0; i < others; i++, message++) {
            int j = (own + 1 + i) % k;
            int step = algo_recv(a, out, algo_divide(w.segment, k, j), topo_member(a->topo, j, w.owner[j]),
                                 2 * w.number[j] + 1);
            /* In place the result replaces the input: that must have been read. */
            if (!a->call->stage_send && !a->call->stage_recv)
                algo_after(a, step, read);
            if (partial.buffer == BUF_SEND)
                algo_after(a, step, (struct algo_span){first_send + message, first_send + message + 1});
        }
    }
    *recvs = algo_since(a, first_result);

    s = 0;
    for (w.started = false; algo_walk_next(a, &w); s++) {
        for (int i = 0; i < others; i++) {
            int j = (own + 1 + i) % k;
            int step = algo_send(a, out, algo_divide(w.segment, k, own), topo_member(a->topo, j, w.owner[j]),
                                 2 * w.number[j] + 1);
            algo_after(a, step, (struct algo_span){first_reduce + s, first_reduce + s + 1});
        }
    }
    algo_walk_close(&w);
}

/* Carriers: what goes to the carriers of other nodes, and comes from them. Two nodes swap whole cells, more send each
 * other the sub-ranges that the others reduce. Number i of a cell's messages is with node (own + 1 + i) % nodes. */
static void exchange_cells(struct algo *a, struct algo_cells *c)
{
    int n = a->topo->nodes, others = n - 1, parts = n == 2 ? 1 : n;
    for (int i = 0; i < c->n; i++) {
        struct algo_cell *cell = &c->at[i];
        struct sched_range sub = algo_cell_part(cell, parts, n == 2 ? 0 : c->node);
        for (int o = 0; o < others && cell->mine; o++)
            algo_cell_recv(a, c, cell, algo_scratch(a, sub, a->call->exact), sub,
                           algo_cell_carrier(c, cell, (c->node + 1 + o) % n), 0);
    }
    for (int i = 0; i < c->n; i++) {
        struct algo_cell *cell = &c->at[i];
        for (int o = 0; o < others && cell->mine; o++) {
            int m = (c->node + 1 + o) % n;
            algo_cell_send(a, c, cell, cell->partial, algo_cell_part(cell, parts, n == 2 ? 0 : m),
                           algo_cell_carrier(c, cell, m), 0);
        }
    }
}

/* The steps that fill a cell of the result: its reduction, or with more than two nodes that of a sub-range, and the
 * others' results. recvs, sends, scratch: the cell's first ones in exchange_cells. */
static void finish_cell(struct algo *a, struct algo_cells *c, struct algo_cell *cell, struct algo_place out, int recvs,
                        int sends, int scratch)
{
    int n = a->topo->nodes, others = n - 1, parts = n == 2 ? 1 : n;
    bool sent_from_input = cell->partial.buffer == BUF_SEND;
    int reduce = algo_reduce(a, out, algo_cell_part(cell, parts, n == 2 ? 0 : c->node), true);
    for (int m = 0; m < n; m++)
        algo_operand(a, reduce, m == c->node ? cell->partial : algo_scratch_at(scratch + (m - c->node - 1 + n) % n));
    algo_after(a, reduce, (struct algo_span){recvs, recvs + others});
    /* In place the result replaces what is being sent. */
    if (n == 2 && sent_from_input)
        algo_after(a, reduce, (struct algo_span){sends, sends + 1});
    for (int o = 0; o < others && n > 2; o++) {
        int m = (c->node + 1 + o) % n;
        int step = algo_cell_recv(a, c, cell, out, algo_cell_part(cell, n, m), algo_cell_carrier(c, cell, m), 1);
        if (sent_from_input)
            algo_after(a, step, (struct algo_span){sends + o, sends + o + 1});
        else
            algo_cell_read(a, step, cell, out);
    }
    cell->made = algo_since(a, reduce);
}

/* Two levels. Returns the steps that complete this rank's part in `out`. */
static struct algo_span through_nodes(struct algo *a, struct algo_place partial, struct algo_place out)
{
    struct algo_cells c;
    if (!algo_cells_open(a, &c))
        return (struct algo_span){0, 0};
    int n = a->topo->nodes, carried = 0;
    for (int i = 0; i < c.n; i++)
        carried += c.at[i].mine;
    algo_node_reduce(a, &c, partial);
    int recvs = a->sched->n_steps, sends = recvs + carried * (n - 1), scratch = a->sched->n_scratch;
    exchange_cells(a, &c);

    int first = a->sched->n_steps;
    for (int i = 0, at = 0; i < c.n; i++) {
        if (!c.at[i].mine)
            continue;
        finish_cell(a, &c, &c.at[i], out, recvs + at, sends + at, scratch + at);
        at += n - 1;
    }
    algo_node_recv(a, &c, out);
    struct algo_span made = algo_since(a, first);

    for (int i = 0; i < c.n; i++) {
        struct algo_cell *cell = &c.at[i];
        for (int o = 1; o < n && n > 2 && cell->mine; o++) {
            int step = algo_cell_send(a, &c, cell, out, algo_cell_part(cell, n, c.node),
                                      algo_cell_carrier(&c, cell, (c.node + o) % n), 1);
            algo_after(a, step, (struct algo_span){cell->made.first, cell->made.first + 1});
        }
    }
    for (int i = 0; i < c.n; i++)
        if (c.at[i].mine)
            algo_node_send(a, &c, &c.at[i], out, -1);
    algo_cells_close(&c);
    return made;
}

void algo_allreduce(struct algo *a)
{
    struct sched_range all = algo_whole(a, SPACE_VECTOR, 0), mine = algo_my_part(a, SPACE_VECTOR, 0);
    struct algo_place in = algo_input(a, SPACE_VECTOR, 0), out = algo_output(a, SPACE_VECTOR, 0);
    struct algo_span reduces = {0, 0}, recvs = {0, 0};
    a->sched->send_layout = a->sched->recv_layout = LAYOUT_VECTOR;

    if (a->islands > 1) {
        struct algo_span read;
        struct algo_place partial = algo_partial(a, in, SPACE_VECTOR, 0, OWNERS_WEIGHT, mine, &read);
        if (a->two_levels)
            reduces = through_nodes(a, partial, out);
        else if (a->islands == 2)
            reduces = swap(a, partial, out);
        else
            reduce_and_hand_round(a, partial, read, out, &reduces, &recvs);
    } else {
        int step;
        if (a->size > 1) {
            step = algo_local_reduce(a, in, all, OWNERS_WEIGHT, out, mine, true);
        } else {
            step = algo_reduce(a, out, all, true);
            algo_operand(a, step, in);
        }
        reduces = algo_since(a, step);
    }
    if (a->size > 1) {
        int step = algo_local_spread(a, out, mine, OWNERS_WEIGHT, out, all, READERS_ALL, 0, 1);
        algo_after(a, step, reduces);
        algo_after(a, step, recvs);
        reduces = algo_since(a, step);
        recvs = (struct algo_span){0, 0};
    }
    algo_deliver(a, out, all, reduces, recvs);
}
