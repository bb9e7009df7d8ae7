/*
 * Reduce. Reduce-scatter inside each island; the owners of other islands send their parts to the owners in the root's
 * island, who reduce them in island order; those hand the result to the root.
 *
 * Wire bytes: each island but the root's sends N; the root's sends nothing.
 */
#include "algos/algos.h"

void algo_reduce_to_root(struct algo *a)
{
    const struct topo *t = a->topo;
    int root = a->call->root, root_island = t->island_of[root];
    bool am_root = t->rank == root, home = a->island == root_island;
    struct sched_range all = algo_whole(a, SPACE_VECTOR, 0), mine = algo_my_part(a, SPACE_VECTOR, 0);
    a->sched->send_layout = LAYOUT_VECTOR;
    a->sched->recv_layout = am_root ? LAYOUT_VECTOR : LAYOUT_NONE;

    struct algo_place in = algo_input(a, SPACE_VECTOR, 0);
    if (!home) {
        struct algo_span read;
        struct algo_place partial = algo_partial(a, in, SPACE_VECTOR, 0, OWNERS_WEIGHT, mine, &read);
        for (struct algo_meet m = algo_meet(a, mine, CUT_WEIGHT, root_island); algo_meet_next(a, &m);)
            algo_send(a, partial, m.segment, topo_member(t, root_island, m.position), 0);
        return;
    }

    /* The root's own part is reduced where it belongs. */
    struct algo_place out = am_root ? algo_output(a, SPACE_VECTOR, 0) : algo_scratch(a, mine, false);
    struct algo_span made;
    if (a->islands > 1) {
        struct algo_span read;
        struct algo_place partial = algo_partial(a, in, SPACE_VECTOR, 0, OWNERS_WEIGHT, mine, &read);
        algo_collect(a, partial, mine, out, (struct algo_span){0, 0}, &made);
    } else if (a->size > 1) {
        int step = algo_local_reduce(a, in, all, OWNERS_WEIGHT, out, mine, true);
        made = algo_since(a, step);
    } else {
        int step = algo_reduce(a, out, all, true);
        algo_operand(a, step, in);
        made = algo_since(a, step);
    }
    if (a->size > 1) {
        int step = algo_local_spread(a, out, mine, OWNERS_WEIGHT, out, am_root ? all : algo_nothing(a, SPACE_VECTOR, 0),
                                     READERS_ROOT, t->position_of[root], 1);
        algo_after(a, step, made);
        made = algo_since(a, step);
    }
    if (am_root)
        algo_deliver(a, out, all, made, (struct algo_span){0, 0});
}
