/*
 * Broadcast. BUF_RECV is the buffer on every rank, the root's too; there is no BUF_SEND. Spread inside the root's
 * island, then every rank of it sends its part to the other islands, then spread inside those.
 *
 * Wire bytes. The root's island sends N in all: with two islands each segment goes to its owner in the other one; with
 * k each segment (the common refinement of all islands' parts) is divided into k-1 sub-ranges, one for each other
 * island, whose owner relays it to the owners in the remaining ones: N (k-2)/(k-1) an island.
 *
 * Two levels (levels.h): the root's island gives each slice to its carrier in the root's node; those deal it to the
 * carriers on the other nodes, who relay it to each other as islands do above; and all carriers hand it to the other
 * islands of their nodes. Over the network the root's node sends N, each of n others N (n-1)/n, its k islands equal
 * shares. Inside its node an island sends N (k-1)/k; in the root's node the root's island 2 N (k-1)/k, the others
 * N (k-2)/k.
 */
#include "algos/algos.h"
#include "algos/levels.h"

/* The root's island: this rank's part to the other islands. */
static void send_part(struct algo *a, struct algo_place buffer)
{
    struct sched_range mine = algo_my_part(a, SPACE_VECTOR, 0);
    struct algo_walk w;
    if (!algo_walk_open(a, &w, mine))
        return;
    while (algo_walk_next(a, &w)) {
        for (int i = 0; i < a->islands - 1; i++) {
            int j = (a->island + 1 + i) % a->islands;
            algo_send(a, buffer, algo_divide(w.segment, a->islands - 1, algo_guest(j, a->island)),
                      topo_member(a->topo, j, w.owner[j]), w.number[j]);
        }
    }
    algo_walk_close(&w);
}

/* Another island: this rank's part, one sub-range of each segment from the root's island, which goes on to the other
 * islands, whose sub-ranges come from there. Returns the receives. */
static struct algo_span relay_part(struct algo *a, struct algo_place buffer, int root_island)
{
    struct sched_range mine = algo_my_part(a, SPACE_VECTOR, 0);
    struct algo_span none = {0, 0};
    int k = a->islands, own = algo_guest(a->island, root_island);
    struct algo_walk w;
    if (!algo_walk_open(a, &w, mine))
        return none;
    int first = a->sched->n_steps, s = 0;
    while (algo_walk_next(a, &w))
        algo_recv(a, buffer, algo_divide(w.segment, k - 1, own),
                  topo_member(a->topo, root_island, w.owner[root_island]), w.number[root_island]);
    for (w.started = false; algo_walk_next(a, &w);) {
        for (int i = 1; i < k; i++) {
            int j = (a->island + i) % k;
            if (j != root_island)
                algo_recv(a, buffer, algo_divide(w.segment, k - 1, algo_guest(j, root_island)),
                          topo_member(a->topo, j, w.owner[j]), w.number[j]);
        }
    }
    struct algo_span recvs = algo_since(a, first);
    for (w.started = false; algo_walk_next(a, &w); s++) {
        for (int i = 1; i < k; i++) {
            int j = (a->island + i) % k;
            if (j == root_island)
                continue;
            int step = algo_send(a, buffer, algo_divide(w.segment, k - 1, own), topo_member(a->topo, j, w.owner[j]),
                                 w.number[j]);
            algo_after(a, step, (struct algo_span){first + s, first + s + 1});
        }
    }
    algo_walk_close(&w);
    return recvs;
}

/* Number of a node among those without the root. */
static int guest_node(int node, int root_node)
{
    return node - (node > root_node);
}

/* Two levels: the cells that this rank does not have, unless it is of the root's island. */
static void recv_cells(struct algo *a, struct algo_cells *c, struct algo_place buffer, int root_node, int root_mate)
{
    int n = a->topo->nodes;
    for (int i = 0; i < c->n; i++) {
        struct algo_cell *cell = &c->at[i];
        int first = a->sched->n_steps;
        if (!cell->mine)
            continue;
        if (c->node == root_node) {
            algo_cell_recv(a, c, cell, buffer, cell->range, algo_cell_mate(c, cell, root_mate), 0);
        } else {
            algo_cell_recv(a, c, cell, buffer, algo_cell_part(cell, n - 1, guest_node(c->node, root_node)),
                           algo_cell_carrier(c, cell, root_node), 0);
            for (int o = 1; o < n; o++) {
                int m = (c->node + o) % n;
                if (m != root_node)
                    algo_cell_recv(a, c, cell, buffer, algo_cell_part(cell, n - 1, guest_node(m, root_node)),
                                   algo_cell_carrier(c, cell, m), 0);
            }
        }
        cell->made = algo_since(a, first);
    }
    algo_node_recv(a, c, buffer);
}

/* Two levels: a cell that this rank carries goes on. In the root's node to all others, in the others this node's
 * sub-range, the first that was received. */
static void send_cell(struct algo *a, struct algo_cells *c, struct algo_cell *cell, struct algo_place buffer,
                      int root_node, int root_mate)
{
    int n = a->topo->nodes;
    struct algo_span ready = cell->made;
    if (c->node != root_node)
        ready.last = ready.first + 1;
    for (int o = 1; o < n; o++) {
        int m = (c->node + o) % n;
        if (m == root_node)
            continue;
        int part = guest_node(c->node == root_node ? m : c->node, root_node);
        int step = algo_cell_send(a, c, cell, buffer, algo_cell_part(cell, n - 1, part), algo_cell_carrier(c, cell, m),
                                  0);
        algo_after(a, step, ready);
    }
    algo_node_send(a, c, cell, buffer, c->node == root_node ? root_mate : -1);
}

/* Two levels; in the root's island `buffer` is complete after buffer.made. Returns the receives. */
static struct algo_span through_nodes(struct algo *a, struct algo_place buffer, int root_island)
{
    int root_node = a->topo->island_node[root_island], root_mate = a->topo->mate_of[root_island];
    struct algo_cells c;
    if (!algo_cells_open(a, &c))
        return (struct algo_span){0, 0};
    int first = a->sched->n_steps;
    if (a->island != root_island)
        recv_cells(a, &c, buffer, root_node, root_mate);
    struct algo_span recvs = algo_since(a, first);
    for (int i = 0; i < c.n; i++) {
        struct algo_cell *cell = &c.at[i];
        if (cell->mine)
            send_cell(a, &c, cell, buffer, root_node, root_mate);
        else if (a->island == root_island)
            algo_cell_send(a, &c, cell, buffer, cell->range, algo_cell_mate(&c, cell, cell->carrier), 0);
    }
    algo_cells_close(&c);
    return recvs;
}

void algo_bcast(struct algo *a)
{
    const struct topo *t = a->topo;
    int root = a->call->root, root_island = t->island_of[root];
    bool am_root = t->rank == root;
    struct sched_range all = algo_whole(a, SPACE_VECTOR, 0), none = algo_nothing(a, SPACE_VECTOR, 0);
    a->sched->send_layout = LAYOUT_NONE;
    a->sched->recv_layout = LAYOUT_VECTOR;

    bool used = t->ranks > 1;
    struct algo_place buffer = used ? algo_output(a, SPACE_VECTOR, 0) : algo_user(BUF_RECV);
    if (am_root && buffer.buffer == BUF_SCRATCH) {
        int step = algo_copy(a, algo_user(BUF_RECV), buffer, all);
        buffer.made = algo_since(a, step);
    }
    struct algo_span made = {0, 0};
    if (a->island == root_island) {
        if (a->size > 1) {
            int step = algo_local_spread(a, buffer, am_root ? all : none, OWNERS_ROOT, buffer, all, READERS_ALL,
                                         t->position_of[root], 0);
            made = algo_since(a, step);
        }
        if (a->islands > 1) {
            struct algo_place from = buffer;
            from.made = am_root ? buffer.made : made;
            if (a->two_levels)
                through_nodes(a, from, root_island);
            else
                send_part(a, from);
        }
    } else {
        made = a->two_levels ? through_nodes(a, buffer, root_island) : relay_part(a, buffer, root_island);
        if (a->size > 1) {
            int step = algo_local_spread(a, buffer, algo_my_part(a, SPACE_VECTOR, 0), OWNERS_WEIGHT, buffer, all,
                                         READERS_ALL, 0, 0);
            algo_after(a, step, made);
            made = algo_since(a, step);
        }
    }
    if (!am_root)
        algo_deliver(a, buffer, all, made, (struct algo_span){0, 0});
}
