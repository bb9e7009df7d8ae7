/* Cuts, their order, and the walks over the parts of other islands. All by exact fractions: no length is known yet. */
#include <stdlib.h>

#include "algos/algos.h"

struct sched_cut algo_cut(int island, int position)
{
    return (struct sched_cut){.how = CUT_WEIGHT, .island = island, .position = position};
}

struct sched_cut algo_block_cut(int island, int position)
{
    return (struct sched_cut){.how = CUT_BLOCK, .island = island, .position = position};
}

struct sched_range algo_range(uint8_t space, int space_island, struct sched_cut lo, struct sched_cut hi)
{
    return (struct sched_range){.space = space, .island = space_island, .lo = lo, .hi = hi, .parts = 1};
}

struct sched_range algo_divide(struct sched_range range, int parts, int part)
{
    range.parts = parts;
    range.part = part;
    return range;
}

/* A cut as a fraction of its space. */
struct fraction { uint64_t over, under; };

static struct fraction place(const struct topo *t, struct sched_cut c)
{
    int size = topo_island_size(t, c.island);
    if (c.how == CUT_BLOCK)
        return (struct fraction){(uint64_t)c.position, (uint64_t)size};
    return (struct fraction){topo_weight_before(t, c.island, c.position), topo_weight_before(t, c.island, size)};
}

static int order(struct fraction x, struct fraction y)
{
    unsigned __int128 l = (unsigned __int128)x.over * y.under, r = (unsigned __int128)y.over * x.under;
    return (l > r) - (l < r);
}

int algo_cut_order(const struct algo *a, struct sched_cut x, struct sched_cut y)
{
    return order(place(a->topo, x), place(a->topo, y));
}

/* The last part that begins at or before the cut; parts are never empty as weights are not. */
static int part_of(const struct algo *a, uint8_t how, int island, struct sched_cut cut)
{
    struct fraction at = place(a->topo, cut);
    int lo = 0, hi = topo_island_size(a->topo, island);
    while (hi - lo > 1) {
        int middle = lo + (hi - lo) / 2;
        struct sched_cut c = {.how = how, .island = island, .position = middle};
        if (order(place(a->topo, c), at) <= 0)
            lo = middle;
        else
            hi = middle;
    }
    return lo;
}

struct algo_meet algo_meet(const struct algo *a, struct sched_range range, uint8_t how, int island)
{
    return (struct algo_meet){.range = range, .how = how, .island = island,
                              .next = part_of(a, how, island, range.lo)};
}

bool algo_meet_next(const struct algo *a, struct algo_meet *m)
{
    if (m->next >= topo_island_size(a->topo, m->island))
        return false;
    struct sched_cut lo = {.how = m->how, .island = m->island, .position = m->next}, hi = lo;
    hi.position++;
    if (algo_cut_order(a, lo, m->range.hi) >= 0)
        return false;
    m->segment = m->range;
    if (algo_cut_order(a, lo, m->range.lo) > 0)
        m->segment.lo = lo;
    if (algo_cut_order(a, hi, m->range.hi) < 0)
        m->segment.hi = hi;
    m->position = m->next++;
    return true;
}

bool algo_walk_open(struct algo *a, struct algo_walk *w, struct sched_range range)
{
    size_t k = (size_t)a->islands;
    *w = (struct algo_walk){.range = range, .count = a->islands, .owner = malloc(2 * k * sizeof(int))};
    if (!w->owner) {
        a->no_memory = true;
        return false;
    }
    w->number = w->owner + k;
    return true;
}

void algo_walk_over(struct algo_walk *w, struct sched_range range, const int *list, int count)
{
    w->range = range;
    w->list = list;
    w->count = count;
    w->started = false;
}

bool algo_walk_next(const struct algo *a, struct algo_walk *w)
{
    struct sched_cut from;
    if (!w->started) {
        w->started = true;
        from = w->range.lo;
        for (int j = 0; j < w->count; j++) {
            w->owner[j] = part_of(a, CUT_WEIGHT, algo_walk_island(w, j), from);
            w->number[j] = 0;
        }
    } else {
        from = w->segment.hi;
        if (algo_cut_order(a, from, w->range.hi) >= 0)
            return false;
        for (int j = 0; j < w->count; j++) {
            int island = algo_walk_island(w, j);
            if (island == a->island)
                continue;
            if (algo_cut_order(a, algo_cut(island, w->owner[j] + 1), from) <= 0) {
                w->owner[j]++;
                w->number[j] = 0;
            } else {
                w->number[j]++;
            }
        }
    }
    struct sched_cut to = w->range.hi;
    for (int j = 0; j < w->count; j++) {
        int island = algo_walk_island(w, j);
        struct sched_cut end = algo_cut(island, w->owner[j] + 1);
        if (island != a->island && algo_cut_order(a, end, to) < 0)
            to = end;
    }
    w->segment = w->range;
    w->segment.lo = from;
    w->segment.hi = to;
    return true;
}

void algo_walk_close(struct algo_walk *w)
{
    free(w->owner);
    w->owner = w->number = NULL;
}

struct sched_range algo_walk_message(const struct algo *a, const struct algo_walk *w, int number)
{
    struct sched_range message = w->range;
    struct sched_cut end = algo_cut(algo_walk_island(w, number), w->owner[number] + 1);
    message.lo = w->segment.lo;
    if (algo_cut_order(a, end, message.hi) < 0)
        message.hi = end;
    return message;
}
