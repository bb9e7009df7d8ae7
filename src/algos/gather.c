/*
 * Gather: allgather with one reader. The blocks of an island go to the ranks of the root's island, cut by their weight
 * parts, so that all of them carry; those hand what they received to the root. With in_place the root's block stands in
 * its BUF_RECV already, and its BUF_SEND is not used.
 *
 * Wire bytes: an island of m ranks sends m N, a rank its own block; the root's island sends nothing.
 *
 * Gatherv takes the same steps: all ranks know the lengths from their meeting; the ranks of the root's island then share
 * the blocks, not the bytes. Straight, where they do not know them or the blocks are short: every rank sends its block to
 * the root itself. Wire bytes: its block. Steps: one message, at the root one for each other rank.
 */
#include "algos/algos.h"

static void go_straight(struct algo *a)
{
    const struct topo *t = a->topo;
    int root = a->call->root, n = t->ranks;
    if (t->rank != root) {
        algo_send(a, algo_user(BUF_SEND), algo_my_block(a), root, 0);
        return;
    }
    for (int i = 1; i < n; i++) {
        int rank = (root + i) % n;
        algo_recv(a, algo_user(BUF_RECV), algo_block_of(a, rank), rank, 0);
    }
    if (!a->call->in_place)
        algo_copy(a, algo_user(BUF_SEND), algo_user(BUF_RECV), algo_my_block(a));
}

void algo_gather(struct algo *a)
{
    const struct topo *t = a->topo;
    int k = a->islands, own = a->island, root = a->call->root, home = t->island_of[root];
    bool am_root = t->rank == root, placed = am_root && a->call->in_place;
    struct sched_range block = algo_my_block(a);
    a->sched->send_layout = placed ? LAYOUT_NONE : LAYOUT_BLOCK;
    a->sched->recv_layout = am_root ? LAYOUT_BLOCKS : LAYOUT_NONE;

    if (a->call->straight) {
        go_straight(a);
        return;
    }
    if (own != home) {   /* wires read any memory */
        for (struct algo_meet m = algo_meet(a, block, CUT_WEIGHT, home); algo_meet_next(a, &m);)
            algo_send(a, algo_user(BUF_SEND), m.segment, topo_member(t, home, m.position), 0);
        return;
    }

    bool alone = a->size == 1;
    struct algo_place out = am_root && !alone ? algo_output(a, SPACE_BLOCKS, own) : algo_user(BUF_RECV);
    struct algo_place from = alone ? algo_user(BUF_SEND) : algo_own_block(a, out, placed);
    algo_spread_blocks(a, from, out, placed, READERS_ROOT, t->position_of[root]);
    for (int i = 1; i < k; i++) {
        int j = (own - i + k) % k;
        struct sched_range mine = algo_my_part(a, SPACE_BLOCKS, j), all = algo_whole(a, SPACE_BLOCKS, j);
        struct algo_place to = algo_user(BUF_RECV);
        if (!am_root)
            to = algo_scratch(a, mine, false);
        else if (!alone)
            to = algo_output(a, SPACE_BLOCKS, j);
        int first = a->sched->n_steps;
        for (struct algo_meet m = algo_meet(a, mine, CUT_BLOCK, j); algo_meet_next(a, &m);)
            algo_recv(a, to, m.segment, topo_member(t, j, m.position), 0);
        if (alone)
            continue;
        struct algo_span made = algo_since(a, first);
        int step = algo_local_spread(a, to, mine, OWNERS_WEIGHT, to, am_root ? all : algo_nothing(a, SPACE_BLOCKS, j),
                                     READERS_ROOT, t->position_of[root], 1);
        algo_after(a, step, made);
        if (am_root)
            algo_deliver(a, to, all, algo_since(a, step), (struct algo_span){0, 0});
    }
}
