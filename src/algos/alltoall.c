/*
 * Alltoall and alltoallv: every rank sends to every other one its block, straight and all at once. Each begins with the
 * rank that follows it, so that at no time all send to one.
 *
 * BUF_SEND has a block for each rank, BUF_RECV one from each, both in rank order. With in_place BUF_RECV has what is
 * sent, too: each block is received aside and takes the place of the one that was there when that has been sent.
 * Wire bytes: a rank sends its blocks for the other ranks. Steps: one message each way for each other rank.
 */
#include "algos/algos.h"

void algo_alltoall(struct algo *a)
{
    int n = a->topo->ranks, me = a->topo->rank, first_scratch = a->sched->n_scratch;
    bool in_place = a->call->in_place;
    struct algo_place from = algo_user(in_place ? BUF_RECV : BUF_SEND), to = algo_user(BUF_RECV);
    a->sched->send_layout = in_place ? LAYOUT_NONE : LAYOUT_BLOCKS;
    a->sched->recv_layout = LAYOUT_BLOCKS;

    int first_send = a->sched->n_steps;
    for (int i = 1; i < n; i++)
        algo_send(a, from, algo_block_of(a, (me + i) % n), (me + i) % n, 0);
    int first_recv = a->sched->n_steps;
    for (int i = 1; i < n; i++) {
        int rank = (me - i + n) % n;
        struct sched_range block = algo_block_of(a, rank);
        algo_recv(a, in_place ? algo_scratch(a, block, false) : to, block, rank, 0);
    }
    if (!in_place) {
        algo_copy(a, from, to, algo_my_block(a));
        return;
    }
    for (int i = 1; i < n; i++) {
        int rank = (me - i + n) % n, send = first_send + n - 1 - i, recv = first_recv + i - 1;
        struct algo_place aside = {.buffer = BUF_SCRATCH, .scratch = (uint16_t)(first_scratch + i - 1)};
        int step = algo_copy(a, aside, to, algo_block_of(a, rank));
        algo_after(a, step, (struct algo_span){send, send + 1});
        algo_after(a, step, (struct algo_span){recv, recv + 1});
    }
}
