/*
 * Scatter: gather turned round. For each island, the root hands its blocks to the ranks of its own island, each one's
 * weight part, and those send them to the blocks' owners; the blocks of its own island go to their owners at once. With
 * in_place the root's block stays where it is in its BUF_SEND, and its BUF_RECV is not used.
 *
 * Wire bytes: the root's island of m ranks sends (n - m) N for n ranks in all, in proportion to its ranks' weights; the
 * others send nothing.
 *
 * Scatterv takes the same steps: all ranks know the lengths from their meeting; the ranks of the root's island then share
 * the blocks, not the bytes. Straight, where they do not know them or the blocks are short: the root sends every block to
 * its owner itself. Wire bytes: all blocks but its own.
 */
#include "algos/algos.h"

static void go_straight(struct algo *a)
{
    const struct topo *t = a->topo;
    int root = a->call->root, n = t->ranks;
    if (t->rank != root) {
        algo_recv(a, algo_user(BUF_RECV), algo_my_block(a), root, 0);
        return;
    }
    for (int i = 1; i < n; i++) {
        int rank = (root + i) % n;
        algo_send(a, algo_user(BUF_SEND), algo_block_of(a, rank), rank, 0);
    }
    if (!a->call->in_place)
        algo_copy(a, algo_user(BUF_SEND), algo_user(BUF_RECV), algo_my_block(a));
}

/* Root's island: the root's blocks for one island, each reader's part of them to `to`. What the root reads itself
 * stands where it is. Returns the step. */
static int hand_out(struct algo *a, int island, struct algo_place to, struct sched_range part,
                    enum sched_readers readers)
{
    bool am_root = a->topo->rank == a->call->root;
    struct algo_place from = am_root ? algo_input(a, SPACE_BLOCKS, island) : to;
    struct sched_range in = am_root ? algo_whole(a, SPACE_BLOCKS, island) : algo_nothing(a, SPACE_BLOCKS, island);
    return algo_local_spread(a, from, in, OWNERS_ROOT, am_root ? from : to, part, readers,
                             a->topo->position_of[a->call->root], 0);
}

/* Root's island: the blocks of another one. The root sends its part from where it stands; wires read any memory. */
static void pass_on(struct algo *a, int island, bool am_root)
{
    struct sched_range mine = algo_my_part(a, SPACE_BLOCKS, island);
    struct algo_place from = am_root ? algo_user(BUF_SEND) : algo_scratch(a, mine, false);
    if (a->size > 1) {
        int step = hand_out(a, island, from, mine, READERS_WEIGHT);
        if (!am_root)
            from.made = algo_since(a, step);
    }
    for (struct algo_meet m = algo_meet(a, mine, CUT_BLOCK, island); algo_meet_next(a, &m);)
        algo_send(a, from, m.segment, topo_member(a->topo, island, m.position), 0);
}

/* Root's island: its own blocks. */
static void keep(struct algo *a, bool am_root, bool placed)
{
    struct sched_range block = algo_my_block(a);
    struct algo_place to = algo_user(BUF_RECV);
    if (a->size > 1) {
        if (!am_root && a->call->stage_recv)
            to = algo_scratch(a, block, false);
        int step = hand_out(a, a->island, to, block, READERS_BLOCK);
        if (!am_root)
            algo_deliver(a, to, block, algo_since(a, step), (struct algo_span){0, 0});
    }
    if (am_root && !placed)
        algo_copy(a, algo_user(BUF_SEND), algo_user(BUF_RECV), block);
}

void algo_scatter(struct algo *a)
{
    const struct topo *t = a->topo;
    int k = a->islands, root = a->call->root, home = t->island_of[root];
    bool am_root = t->rank == root, placed = am_root && a->call->in_place;
    a->sched->send_layout = am_root ? LAYOUT_BLOCKS : LAYOUT_NONE;
    a->sched->recv_layout = placed ? LAYOUT_NONE : LAYOUT_BLOCK;

    if (a->call->straight) {
        go_straight(a);
        return;
    }
    if (a->island == home) {
        for (int i = 1; i < k; i++)   /* the others first: they need a wire */
            pass_on(a, (home + i) % k, am_root);
        keep(a, am_root, placed);
        return;
    }
    for (struct algo_meet m = algo_meet(a, algo_my_block(a), CUT_WEIGHT, home); algo_meet_next(a, &m);)
        algo_recv(a, algo_user(BUF_RECV), m.segment, topo_member(t, home, m.position), 0);
}
