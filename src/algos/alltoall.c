/*
 * Alltoall and alltoallv: every rank sends to every other one its block, straight and all at once. Each begins with the
 * rank that follows it in its island, and in each island at another place, so that at no time all send to one.
 *
 * BUF_SEND has a block for each rank, BUF_RECV one from each, both in rank order. With in_place BUF_RECV has what is
 * sent, too: each block is received aside and takes the place of the one that was there when that has been sent.
 * Wire bytes: a rank sends its blocks for the other ranks. Steps: one message each way for each other rank.
 *
 * Gathered (small blocks, alltoall alone: of alltoallv's lengths no rank knows more than its own): what two islands of p
 * and q ranks on different nodes send each other goes over the network in min(p, q) messages each way, not p q. With
 * p >= q each rank of the receiving island has an agent in the sending one, who collects the p blocks for it and sends
 * them as one message; with p < q each rank of the sending island sends its q blocks as one message to its agent in the
 * receiving one, who deals them out. Agents are spread over the island, so that all of its ranks carry. Wire bytes: over
 * the network the same p q N for an island pair; as many again inside the islands.
 */
#include <stdlib.h>

#include "algos/algos.h"
#include "algos/levels.h"

struct exchange {
    struct algo *a;
    struct algo_place from, to;   /* the user's blocks: to send, to receive */
    bool in_place;
    int *read;                    /* in_place, [ranks] the step that reads the block for a rank */
    struct algo_place *came;      /* in_place, [ranks] where the block of a rank stands, and the step that received it */
};

/* How the blocks of one island reach another: straight, by agents in the sending or in the receiving island. */
enum way { STRAIGHT, AGENTS_SEND, AGENTS_RECEIVE };

static enum way way_of(const struct algo *a, int from, int to)
{
    const struct topo *t = a->topo;
    int p = topo_island_size(t, from), q = topo_island_size(t, to);
    /* A channel each way for each island, at most two scratches for each, and in place one for each rank. */
    if (!a->call->gathered || t->island_node[from] == t->island_node[to] || p * (long)q == 1 ||
        2 * t->islands + 2 > ALGO_CHANNELS || t->ranks + 2 * t->islands > ALGO_SCRATCHES)
        return STRAIGHT;
    return p >= q ? AGENTS_SEND : AGENTS_RECEIVE;
}

/* Position, in the larger island, of the agent for a position of the smaller one. No two have the same. */
static int agent(const struct topo *t, int large, int small, int position)
{
    int p = topo_island_size(t, large), q = topo_island_size(t, small);
    return (int)(((long)position * p / q + small) % p);
}

/* Whose agent in the larger island this rank is: a position of the smaller one, or -1. */
static int client(const struct algo *a, int large, int small)
{
    const struct topo *t = a->topo;
    int p = topo_island_size(t, large), q = topo_island_size(t, small);
    long place = (a->position - small % p + p) % p, first = (place * q + p - 1) / p;
    return first < q && agent(t, large, small, (int)first) == a->position ? (int)first : -1;
}

static int to_agent(int island) { return 1 + 2 * island; }
static int from_agent(int island) { return 2 + 2 * island; }

static struct sched_range blocks_of(const struct algo *a, int island)
{
    return algo_whole(a, SPACE_BLOCKS, island);
}

static void note_read(struct exchange *x, int island, int position, int step)
{
    if (x->read && !x->a->no_memory)
        x->read[topo_member(x->a->topo, island, position)] = step;
}

/* Where blocks of other ranks are received: where they belong, or aside. */
static struct algo_place landing(struct exchange *x, struct sched_range range)
{
    return x->in_place ? algo_scratch(x->a, range, false) : x->to;
}

static void note_came(struct exchange *x, int island, int position, struct algo_place where, int step)
{
    where.made = algo_since(x->a, step);
    if (x->came && !x->a->no_memory)
        x->came[topo_member(x->a->topo, island, position)] = where;
}

/* This rank's blocks for an island, from the user's buffer. */
static void send_own(struct exchange *x, int island)
{
    struct algo *a = x->a;
    const struct topo *t = a->topo;
    int q = topo_island_size(t, island);
    enum way way = way_of(a, a->island, island);
    if (way == AGENTS_RECEIVE) {
        int peer = topo_member(t, island, agent(t, island, a->island, a->position));
        int step = algo_send(a, x->from, blocks_of(a, island), peer, 0);
        for (int i = 0; i < q; i++)
            note_read(x, island, i, step);
        return;
    }
    for (int i = 0; i < q; i++) {
        int at = (a->position + i) % q, rank = topo_member(t, island, at), peer = rank, channel = 0;
        if (way == AGENTS_SEND) {
            peer = topo_member(t, a->island, agent(t, a->island, island, at));
            channel = to_agent(island);
        }
        if (peer != t->rank)
            note_read(x, island, at, algo_send(a, x->from, algo_block_of(a, rank), peer, channel));
    }
}

/* As the agent for a rank of another island: collects this island's blocks for it, and sends them. */
static void send_for(struct exchange *x, int island)
{
    struct algo *a = x->a;
    const struct topo *t = a->topo;
    int at = way_of(a, a->island, island) == AGENTS_SEND ? client(a, a->island, island) : -1;
    if (at < 0)
        return;
    struct sched_range all = blocks_of(a, a->island);
    struct algo_place bundle = algo_scratch(a, all, false);
    int first = a->sched->n_steps, rank = topo_member(t, island, at);
    for (int i = 1; i < a->size; i++) {
        int from = topo_member(t, a->island, (a->position + i) % a->size);
        algo_recv(a, bundle, algo_block_of(a, from), from, to_agent(island));
    }
    int step = algo_copy_block(a, x->from, algo_block_of(a, rank), bundle, algo_my_block(a));
    note_read(x, island, at, step);
    bundle.made = algo_since(a, first);
    algo_send(a, bundle, all, rank, 0);
}

/* As the agent for a rank of another island: receives its blocks for this island, and deals them out. */
static void recv_for(struct exchange *x, int island)
{
    struct algo *a = x->a;
    const struct topo *t = a->topo;
    int at = way_of(a, island, a->island) == AGENTS_RECEIVE ? client(a, a->island, island) : -1;
    if (at < 0)
        return;
    struct sched_range all = blocks_of(a, a->island), theirs = algo_block_of(a, topo_member(t, island, at));
    struct algo_place bundle = algo_scratch(a, all, false);
    int step = algo_recv(a, bundle, all, topo_member(t, island, at), 0);
    bundle.made = algo_since(a, step);
    for (int i = 1; i < a->size; i++) {
        int to = topo_member(t, a->island, (a->position + i) % a->size);
        algo_send(a, bundle, algo_block_of(a, to), to, from_agent(island));
    }
    struct algo_place to = landing(x, theirs);
    step = algo_copy_block(a, bundle, algo_my_block(a), to, theirs);
    note_came(x, island, at, to, step);
}

/* The blocks of an island for this rank. */
static void recv_own(struct exchange *x, int island)
{
    struct algo *a = x->a;
    const struct topo *t = a->topo;
    int p = topo_island_size(t, island);
    enum way way = way_of(a, island, a->island);
    if (way == AGENTS_SEND) {
        struct sched_range all = blocks_of(a, island);
        struct algo_place to = landing(x, all);
        int step = algo_recv(a, to, all, topo_member(t, island, agent(t, island, a->island, a->position)), 0);
        for (int i = 0; i < p; i++)
            note_came(x, island, i, to, step);
        return;
    }
    for (int i = 0; i < p; i++) {
        int at = (a->position - i % p + p) % p, rank = topo_member(t, island, at), peer = rank, channel = 0;
        if (way == AGENTS_RECEIVE) {
            peer = topo_member(t, a->island, agent(t, a->island, island, at));
            channel = from_agent(island);
        }
        if (peer == t->rank)
            continue;   /* this rank itself, or what it deals out: recv_for */
        struct algo_place to = landing(x, algo_block_of(a, rank));
        note_came(x, island, at, to, algo_recv(a, to, algo_block_of(a, rank), peer, channel));
    }
}

/* In place: what came takes the place of what was there, once that has been read. */
static void put_back(struct exchange *x)
{
    struct algo *a = x->a;
    for (int r = 0; r < a->topo->ranks && !a->no_memory; r++) {
        if (r == a->topo->rank)
            continue;
        int step = algo_copy(a, x->came[r], x->to, algo_block_of(a, r));
        algo_after(a, step, (struct algo_span){x->read[r], x->read[r] + 1});
    }
}

void algo_alltoall(struct algo *a)
{
    size_t n = (size_t)a->topo->ranks;
    int k = a->islands;
    struct exchange x = {.a = a, .in_place = a->call->in_place, .to = algo_user(BUF_RECV)};
    x.from = algo_user(x.in_place ? BUF_RECV : BUF_SEND);
    a->sched->send_layout = x.in_place ? LAYOUT_NONE : LAYOUT_BLOCKS;
    a->sched->recv_layout = LAYOUT_BLOCKS;
    if (x.in_place) {
        x.read = calloc(n, sizeof(*x.read));
        x.came = calloc(n, sizeof(*x.came));
        a->no_memory = !x.read || !x.came;
    }
    for (int i = 0; i < k; i++)
        send_own(&x, (a->island + i) % k);
    for (int i = 0; i < k; i++)
        recv_own(&x, (a->island - i + k) % k);
    for (int i = 1; i < k; i++)
        send_for(&x, (a->island + i) % k);
    for (int i = 1; i < k; i++)
        recv_for(&x, (a->island - i + k) % k);
    if (!x.in_place)
        algo_copy(a, x.from, x.to, algo_my_block(a));
    else
        put_back(&x);
    free(x.read);
    free(x.came);
}
