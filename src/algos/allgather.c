/*
 * Allgather. The blocks of the own island are spread inside it; each block goes to every other island once, cut by the
 * weight parts of that island, which then spreads what its ranks received.
 *
 * With in_place this rank's block stands in BUF_RECV already, and BUF_SEND is not used.
 * Wire bytes: an island of m ranks sends m N to each other island, which is what must arrive there; a rank sends its own
 * block, and receives in proportion to its weight. Steps: one message for each segment, and a spread an island.
 */
#include "algos/algos.h"

/* Own island: every rank's block to all. Returns the step, or none. */
static struct algo_span spread_own(struct algo *a, struct algo_place from, struct algo_place out)
{
    struct sched_range all = algo_whole(a, SPACE_BLOCKS, a->island), block = algo_my_block(a);
    int step;
    if (a->size > 1) {
        step = algo_local_spread(a, from, block, OWNERS_BLOCK, out, all, READERS_ALL, 0, 0);
    } else if (from.buffer != out.buffer || from.scratch != out.scratch) {
        step = algo_copy(a, from, out, block);
    } else {
        return from.made;
    }
    return algo_since(a, step);
}

void algo_allgather(struct algo *a)
{
    const struct topo *t = a->topo;
    int k = a->islands, own = a->island;
    struct sched_range block = algo_my_block(a);
    struct algo_span none = {0, 0};
    bool in_place = a->call->in_place;
    a->sched->send_layout = in_place ? LAYOUT_NONE : LAYOUT_BLOCK;
    a->sched->recv_layout = LAYOUT_BLOCKS;

    struct algo_place from, out = algo_output(a, SPACE_BLOCKS, own);
    if (in_place && a->call->stage_recv) {
        from = out;
        int step = algo_copy(a, algo_user(BUF_RECV), from, block);
        from.made = algo_since(a, step);
    } else if (in_place) {
        from = algo_user(BUF_RECV);
    } else if (a->call->stage_send) {
        from = algo_scratch(a, block, false);
        int step = algo_copy(a, algo_user(BUF_SEND), from, block);
        from.made = algo_since(a, step);
    } else {
        from = algo_user(BUF_SEND);
    }

    /* Sends first: they need nothing but the input. */
    for (int i = 1; i < k; i++) {
        int j = (own + i) % k;
        for (struct algo_meet m = algo_meet(a, block, CUT_WEIGHT, j); algo_meet_next(a, &m);)
            algo_send(a, from, m.segment, topo_member(t, j, m.position), 0);
    }
    algo_deliver(a, out, algo_whole(a, SPACE_BLOCKS, own), spread_own(a, from, out), none);

    for (int i = 1; i < k; i++) {
        int j = (own - i + k) % k;
        struct sched_range mine = algo_my_part(a, SPACE_BLOCKS, j), all = algo_whole(a, SPACE_BLOCKS, j);
        struct algo_place to = algo_output(a, SPACE_BLOCKS, j);
        int first = a->sched->n_steps;
        for (struct algo_meet m = algo_meet(a, mine, CUT_BLOCK, j); algo_meet_next(a, &m);)
            algo_recv(a, to, m.segment, topo_member(t, j, m.position), 0);
        struct algo_span made = algo_since(a, first);
        if (a->size > 1) {
            int step = algo_local_spread(a, to, mine, OWNERS_WEIGHT, to, all, READERS_ALL, 0, 1);
            algo_after(a, step, made);
            made = algo_since(a, step);
        }
        algo_deliver(a, to, all, made, none);
    }
}
