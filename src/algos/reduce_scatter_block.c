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
 */
#include "algos/algos.h"

void algo_reduce_scatter_block(struct algo *a)
{
    const struct topo *t = a->topo;
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
        bool replaced = a->call->in_place && j == 0;   /* rank 0's block, the first of island 0 */
        if (replaced)
            before = read;
        if (j == own) {
            mine = partial;
            continue;
        }
        for (struct algo_meet m = algo_meet(a, part, CUT_BLOCK, j); algo_meet_next(a, &m);) {
            int step = algo_send(a, partial, m.segment, topo_member(t, j, m.position), 0);
            if (replaced && m.position == 0 && partial.buffer == BUF_SEND)
                before = algo_since(a, step);
        }
    }
    algo_collect(a, mine, block, out, out.buffer == BUF_RECV ? before : none, &made);
    algo_deliver(a, out, block, made, before);
}
