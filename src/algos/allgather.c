/*
 * Allgather and allgatherv. The blocks of the own island are spread inside it; each block goes to every other island
 * once, cut by the weight parts of that island, which then spreads what its ranks received.
 *
 * With in_place this rank's block stands in BUF_RECV already, and BUF_SEND is not used.
 * Wire bytes: an island of m ranks sends m N to each other island, which is what must arrive there; a rank sends its
 * own block, and receives in proportion to its weight. Steps: one message for each segment, and a spread an island.
 * Blocks of different lengths take the same steps; an island's weight parts then share the blocks, not the bytes.
 *
 * Two levels (levels.h): each block goes to every other node once, to the node's gate for the block's island, which
 * hands it to the other islands of its node. An island of m ranks sends m N over the network to each other node, a rank
 * its own block; inside a node of k islands its own m N, and what it is the gate for, to each of the k - 1 others.
 */
#include "algos/algos.h"
#include "algos/levels.h"

/* The receive buffer's part of the own island's blocks: all of them, or in place all but the one that is there. */
static void deliver_own(struct algo *a, struct algo_place out, bool in_place, struct algo_span spread)
{
    struct sched_range all = algo_whole(a, SPACE_BLOCKS, a->island), block = algo_my_block(a), part = all;
    struct algo_span none = {0, 0};
    if (!in_place) {
        algo_deliver(a, out, all, spread, none);
        return;
    }
    part.hi = block.lo;
    if (a->position > 0)
        algo_deliver(a, out, part, spread, none);
    part.lo = block.hi;
    part.hi = all.hi;
    if (a->position + 1 < a->size)
        algo_deliver(a, out, part, spread, none);
}

struct algo_place algo_own_block(struct algo *a, struct algo_place out, bool in_place)
{
    struct algo_place from = algo_user(in_place ? BUF_RECV : BUF_SEND);
    if (!(in_place ? a->call->stage_recv : a->call->stage_send) || a->topo->ranks == 1)
        return from;
    struct sched_range block = algo_my_block(a);
    struct algo_place user = from;
    from = in_place && a->size > 1 ? out : algo_scratch(a, block, false);
    int step = algo_copy(a, user, from, block);
    from.made = algo_since(a, step);
    return from;
}

void algo_spread_blocks(struct algo *a, struct algo_place from, struct algo_place out, bool in_place,
                        enum sched_readers readers, int root)
{
    struct sched_range block = algo_my_block(a);
    bool reader = readers == READERS_ALL || a->position == root;
    if (a->size > 1) {
        int step = algo_local_spread(a, from, block, OWNERS_BLOCK, out, reader
                                     ? algo_whole(a, SPACE_BLOCKS, a->island)
                                     : algo_nothing(a, SPACE_BLOCKS, a->island), readers, root, 0);
        if (reader)
            deliver_own(a, out, in_place, algo_since(a, step));
    } else if (!in_place) {
        algo_copy(a, algo_user(BUF_SEND), algo_user(BUF_RECV), block);
    }
}

/* Channel of what goes on inside a node of another one's island. */
static int passed_on(int island)
{
    return 1 + island;
}

/* This rank's block to the owners in an island. */
static void send_block(struct algo *a, struct algo_place from, int island)
{
    for (struct algo_meet m = algo_meet(a, algo_my_block(a), CUT_WEIGHT, island); algo_meet_next(a, &m);)
        algo_send(a, from, m.segment, topo_member(a->topo, island, m.position), 0);
}

/* This rank's part of another island's blocks: from their ranks, or from the owners in the gate of this node, or this is
 * the gate and hands it to the others. Returns the receives. */
static struct algo_span recv_part(struct algo *a, struct algo_place to, int island)
{
    const struct topo *t = a->topo;
    int own = a->island, node = t->island_node[own], first = a->sched->n_steps;
    bool far = a->two_levels && t->island_node[island] != node;
    int gate = far ? algo_gate(t, node, island) : own;
    struct sched_range mine = algo_my_part(a, SPACE_BLOCKS, island);
    if (gate != own) {
        for (struct algo_meet m = algo_meet(a, mine, CUT_WEIGHT, gate); algo_meet_next(a, &m);)
            algo_recv(a, to, m.segment, topo_member(t, gate, m.position), passed_on(island));
        return algo_since(a, first);
    }
    for (struct algo_meet m = algo_meet(a, mine, CUT_BLOCK, island); algo_meet_next(a, &m);)
        algo_recv(a, to, m.segment, topo_member(t, island, m.position), 0);
    struct algo_span made = algo_since(a, first);
    for (int i = 0; i < topo_node_islands(t, node) && far; i++) {
        int mate = topo_mate(t, node, i);
        for (struct algo_meet m = algo_meet(a, mine, CUT_WEIGHT, mate); mate != own && algo_meet_next(a, &m);) {
            int step = algo_send(a, to, m.segment, topo_member(t, mate, m.position), passed_on(island));
            algo_after(a, step, made);
        }
    }
    return made;
}

/* Sends first: they need nothing but the input. */
static void send_blocks(struct algo *a, struct algo_place from)
{
    const struct topo *t = a->topo;
    int k = a->islands, own = a->island, node = t->island_node[own];
    for (int i = 1; i < t->nodes && a->two_levels; i++)
        send_block(a, from, algo_gate(t, (node + i) % t->nodes, own));
    for (int i = 1; i < k; i++) {
        int j = (own + i) % k;
        if (!a->two_levels || t->island_node[j] == node)
            send_block(a, from, j);
    }
}

void algo_allgather(struct algo *a)
{
    int k = a->islands, own = a->island;
    struct algo_span none = {0, 0};
    bool in_place = a->call->in_place;
    a->sched->send_layout = in_place ? LAYOUT_NONE : LAYOUT_BLOCK;
    a->sched->recv_layout = LAYOUT_BLOCKS;

    /* Where this rank's block is read from, and the own island's blocks are put. An island of one spreads nothing. */
    struct algo_place out = a->size > 1 ? algo_output(a, SPACE_BLOCKS, own) : algo_user(BUF_RECV);
    struct algo_place from = algo_own_block(a, out, in_place);
    send_blocks(a, from);
    algo_spread_blocks(a, from, out, in_place, READERS_ALL, 0);

    for (int i = 1; i < k; i++) {
        int j = (own - i + k) % k;
        struct sched_range all = algo_whole(a, SPACE_BLOCKS, j);
        struct algo_place to = algo_output(a, SPACE_BLOCKS, j);
        struct algo_span made = recv_part(a, to, j);
        if (a->size > 1) {
            int step = algo_local_spread(a, to, algo_my_part(a, SPACE_BLOCKS, j), OWNERS_WEIGHT, to, all, READERS_ALL,
                                         0, 1);
            algo_after(a, step, made);
            made = algo_since(a, step);
        }
        algo_deliver(a, to, all, made, none);
    }
}
