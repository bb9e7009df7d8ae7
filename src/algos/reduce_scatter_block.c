/*
 * Reduce-scatter, of equal blocks and of blocks of different lengths, in the same steps. For each island, the local
 * ranks reduce the blocks of that island's ranks: their own ones to the blocks' owners, the others' by weight, from
 * where they go to the blocks' owners over the wire. Those reduce one operand of each island, in island order.
 *
 * BUF_SEND has all blocks, BUF_RECV is this rank's block. With in_place (MPI_IN_PLACE) both begin at the same address,
 * so that the result replaces the block of rank 0 in the input: it is written when that has been read by everybody who
 * needs it. BUF_RECV may also be this rank's own block of BUF_SEND, which nobody else reads.
 * Wire bytes: an island sends m N to an island of m ranks, in proportion to its ranks' weights; N (n - m) for n ranks
 * in all, which is least without a further reduction between the islands.
 *
 * Two levels (levels.h): the islands of a node reduce another node's blocks at the node's gate for their island, which
 * sends them to their owners; those reduce the partial results of their own node's islands, then one of each node. Over
 * the network a node sends (n - m) N for m ranks of its own, the least there is; inside the node an island sends the
 * blocks that it is not the gate for, and those of the node's other islands.
 */
#include <stdlib.h>

#include "algos/algos.h"
#include "algos/levels.h"

/* Channel of what goes on inside a node for another one's island. */
static int collected(int island)
{
    return 1 + island;
}

/* This rank's part of the partial result of an island's blocks: to their owners, or to the gate of this node, or this is
 * the gate, which collects it from the others first. *read: what reads the input, set if that is read from BUF_SEND. */
static void send_partial(struct algo *a, struct algo_place partial, struct sched_range part, int island,
                         struct algo_span *read)
{
    const struct topo *t = a->topo;
    int node = t->island_node[a->island];
    bool far = a->two_levels && t->island_node[island] != node;
    int gate = far ? algo_gate(t, node, island) : a->island, begin = a->sched->n_steps;
    if (gate != a->island) {
        for (struct algo_meet m = algo_meet(a, part, CUT_WEIGHT, gate); algo_meet_next(a, &m);)
            algo_send(a, partial, m.segment, topo_member(t, gate, m.position), collected(island));
    } else {
        struct algo_place from = partial;
        if (far && topo_node_islands(t, node) > 1) {
            from = algo_scratch(a, part, a->call->exact);
            from.made = algo_collect(a, &(struct algo_collect){
                .list = t->node_islands + t->node_first[node], .count = topo_node_islands(t, node),
                .channel = collected(island), .own = partial, .to = from, .range = part});
        }
        for (struct algo_meet m = algo_meet(a, part, CUT_BLOCK, island); algo_meet_next(a, &m);)
            algo_send(a, from, m.segment, topo_member(t, island, m.position), 0);
    }
    if (partial.buffer == BUF_SEND)
        *read = algo_since(a, begin);
}

/* This rank's block of the result, from the partial results of all islands; `own`: of this one. */
static struct algo_span collect_block(struct algo *a, struct algo_place own, struct algo_place out,
                                      struct algo_span before)
{
    const struct topo *t = a->topo;
    int node = t->island_node[a->island];
    struct algo_collect c = {.count = a->islands, .own = own, .to = out, .range = algo_my_block(a), .final = true,
                             .before = before};
    if (!a->two_levels)
        return algo_collect(a, &c);
    if (topo_node_islands(t, node) > 1) {
        struct algo_place partial = algo_scratch(a, c.range, a->call->exact);
        partial.made = algo_collect(a, &(struct algo_collect){
            .list = t->node_islands + t->node_first[node], .count = topo_node_islands(t, node), .own = own,
            .to = partial, .range = c.range});
        c.own = partial;
    }
    int *gates = malloc((size_t)t->nodes * sizeof(*gates));
    if (!gates) {
        a->no_memory = true;
        return (struct algo_span){0, 0};
    }
    for (int m = 0; m < t->nodes; m++)
        gates[m] = m == node ? a->island : algo_gate(t, m, a->island);
    c.list = gates;
    c.count = t->nodes;
    struct algo_span made = algo_collect(a, &c);
    free(gates);
    return made;
}

void algo_reduce_scatter_block(struct algo *a)
{
    int k = a->islands, own = a->island;
    struct sched_range block = algo_my_block(a);
    struct algo_span none = {0, 0}, made;
    a->sched->send_layout = LAYOUT_BLOCKS;
    a->sched->recv_layout = LAYOUT_BLOCK;
    struct algo_place out = a->call->stage_recv ? algo_scratch(a, block, false) : algo_user(BUF_RECV);

    if (k == 1) {
        struct algo_place in = algo_input(a, SPACE_BLOCKS, own), to = out;
        int step;
        if (a->size > 1) {
            /* In place, other ranks of the island still read where rank 0's block was, while the result is made. */
            bool aside = a->call->in_place && a->position != 0 && out.buffer == BUF_RECV;
            if (aside)
                to = algo_scratch(a, block, false);
            step = algo_local_reduce(a, in, algo_whole(a, SPACE_BLOCKS, own), OWNERS_BLOCK, to, block, true);
        } else {
            step = algo_reduce(a, to, block, true);
            algo_operand(a, step, in);
        }
        algo_deliver(a, to, block, algo_since(a, step), none);
        return;
    }

    /* All ranks of this island go through the islands in the same order, their own last: the others need a wire. */
    struct algo_place mine = {0};
    struct algo_span before = none;
    for (int i = 1; i <= k; i++) {
        int j = (own + i) % k;
        struct sched_range part = j == own ? block : algo_my_part(a, SPACE_BLOCKS, j);
        struct algo_span read;
        struct algo_place in = algo_input(a, SPACE_BLOCKS, j);
        struct algo_place partial = algo_partial(a, in, SPACE_BLOCKS, j, j == own ? OWNERS_BLOCK : OWNERS_WEIGHT, part,
                                                 &read);
        if (j == own)
            mine = partial;
        else
            send_partial(a, partial, part, j, &read);
        if (a->call->in_place && j == 0)   /* rank 0's block, the first of island 0, is where the result will be */
            before = read;
    }
    made = collect_block(a, mine, out, out.buffer == BUF_RECV ? before : none);
    algo_deliver(a, out, block, made, before);
}
