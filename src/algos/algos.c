/* What the builders of schedules share: steps, places, partial results, delivery, the collecting end of reductions. */
#include "algos/algos.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct sched_range algo_whole(const struct algo *a, uint8_t space, int space_island)
{
    return algo_range(space, space_island, algo_cut(a->island, 0), algo_cut(a->island, a->size));
}

struct sched_range algo_nothing(const struct algo *a, uint8_t space, int space_island)
{
    return algo_range(space, space_island, algo_cut(a->island, 0), algo_cut(a->island, 0));
}

struct sched_range algo_my_part(const struct algo *a, uint8_t space, int space_island)
{
    return algo_range(space, space_island, algo_cut(a->island, a->position), algo_cut(a->island, a->position + 1));
}

struct sched_range algo_my_block(const struct algo *a)
{
    return algo_block_of(a, a->topo->rank);
}

struct sched_range algo_block_of(const struct algo *a, int rank)
{
    int island = a->topo->island_of[rank], position = a->topo->position_of[rank];
    return algo_range(SPACE_BLOCKS, island, algo_block_cut(island, position), algo_block_cut(island, position + 1));
}

/* Makes room for one more element; false when memory ran out, and from then on. */
static bool grow(struct algo *a, void **array, int used, int *room, size_t element)
{
    if (a->no_memory)
        return false;
    if (used < *room)
        return true;
    int more = *room ? *room * 2 : 4 * a->islands + 16;   /* enough where no island cuts another's parts */
    void *bigger = realloc(*array, (size_t)more * element);
    if (!bigger) {
        a->no_memory = true;
        return false;
    }
    *array = bigger;
    *room = more;
    return true;
}

/* The indices of steps that did not find room are of no use, but writing to them must be harmless. */
static struct sched_step *step_at(struct algo *a, int step)
{
    return a->no_memory ? &a->spare_step : &a->sched->steps[step];
}

static struct sched_ref ref_to(struct algo_place place, struct sched_range range)
{
    return (struct sched_ref){.buffer = place.buffer, .scratch = place.scratch, .range = range};
}

static int new_step(struct algo *a, enum sched_kind kind, enum sched_phase phase)
{
    struct sched *s = a->sched;
    bool fits = grow(a, (void **)&s->steps, s->n_steps, &a->room_steps, sizeof(*s->steps));
    int index = fits ? s->n_steps++ : s->n_steps;
    struct sched_step *step = step_at(a, index);
    memset(step, 0, sizeof(*step));
    step->kind = (uint8_t)kind;
    step->phase = (uint8_t)phase;
    /* Unused refs are empty ranges. */
    step->in.range = step->out.range = algo_nothing(a, SPACE_VECTOR, 0);
    return index;
}

void algo_after(struct algo *a, int step, struct algo_span span)
{
    if (span.first >= span.last || a->no_memory)
        return;
    struct sched_step *s = step_at(a, step);
    assert(span.last <= step);
    for (int i = 0; i < 3; i++) {
        struct sched_deps *d = &s->deps[i];
        if (d->first == d->last) {
            *d = (struct sched_deps){span.first, span.last};
            return;
        }
        if (span.first <= d->last && span.last >= d->first) {
            d->first = span.first < d->first ? span.first : d->first;
            d->last = span.last > d->last ? span.last : d->last;
            return;
        }
    }
    assert(!"more than three spans of dependencies");
}

struct algo_span algo_since(const struct algo *a, int first)
{
    return (struct algo_span){first, a->sched->n_steps};
}

int algo_send(struct algo *a, struct algo_place from, struct sched_range range, int peer, int channel)
{
    assert(channel < ALGO_CHANNELS);
    int step = new_step(a, STEP_SEND, PHASE_EXCHANGE);
    struct sched_step *s = step_at(a, step);
    s->peer = peer;
    s->channel = (uint16_t)channel;
    s->in = ref_to(from, range);
    algo_after(a, step, from.made);
    return step;
}

int algo_recv(struct algo *a, struct algo_place to, struct sched_range range, int peer, int channel)
{
    assert(channel < ALGO_CHANNELS);
    int step = new_step(a, STEP_RECV, PHASE_EXCHANGE);
    struct sched_step *s = step_at(a, step);
    s->peer = peer;
    s->channel = (uint16_t)channel;
    s->out = ref_to(to, range);
    return step;
}

int algo_copy_block(struct algo *a, struct algo_place from, struct sched_range in, struct algo_place to,
                    struct sched_range out)
{
    int step = new_step(a, STEP_COPY, PHASE_STAGE);
    struct sched_step *s = step_at(a, step);
    s->in = ref_to(from, in);
    s->out = ref_to(to, out);
    algo_after(a, step, from.made);
    return step;
}

int algo_copy(struct algo *a, struct algo_place from, struct algo_place to, struct sched_range range)
{
    return algo_copy_block(a, from, range, to, range);
}

int algo_local_reduce(struct algo *a, struct algo_place from, struct sched_range space, enum sched_owners owners,
                      struct algo_place to, struct sched_range part, bool final)
{
    int step = new_step(a, STEP_LOCAL_REDUCE, PHASE_ISLAND_REDUCE);
    struct sched_step *s = step_at(a, step);
    s->owners = (uint8_t)owners;
    s->final = final;
    s->in = ref_to(from, space);
    s->out = ref_to(to, part);
    algo_after(a, step, from.made);
    return step;
}

int algo_local_spread(struct algo *a, struct algo_place from, struct sched_range in, enum sched_owners owners,
                      struct algo_place to, struct sched_range out, enum sched_readers readers, int root, int lag)
{
    int step = new_step(a, STEP_LOCAL_SPREAD, PHASE_ISLAND_SPREAD);
    struct sched_step *s = step_at(a, step);
    s->owners = (uint8_t)owners;
    s->readers = (uint8_t)readers;
    s->root = root;
    s->lag = (uint8_t)lag;
    s->in = ref_to(from, in);
    s->out = ref_to(to, out);
    algo_after(a, step, from.made);
    return step;
}

int algo_reduce(struct algo *a, struct algo_place to, struct sched_range range, bool final)
{
    int step = new_step(a, STEP_REDUCE, PHASE_EXCHANGE);
    struct sched_step *s = step_at(a, step);
    s->final = final;
    s->out = ref_to(to, range);
    s->first_in = a->sched->n_refs;
    return step;
}

void algo_operand(struct algo *a, int reduce, struct algo_place from)
{
    struct sched *s = a->sched;
    if (!grow(a, (void **)&s->refs, s->n_refs, &a->room_refs, sizeof(*s->refs)))
        return;
    struct sched_step *step = step_at(a, reduce);
    s->refs[s->n_refs++] = ref_to(from, step->out.range);
    step->n_in++;
    algo_after(a, reduce, from.made);
}

struct algo_place algo_user(uint8_t buffer)
{
    return (struct algo_place){.buffer = buffer};
}

struct algo_place algo_scratch(struct algo *a, struct sched_range range, bool wide)
{
    struct sched *s = a->sched;
    assert(s->n_scratch < ALGO_SCRATCHES);
    if (!grow(a, (void **)&s->scratch, s->n_scratch, &a->room_scratch, sizeof(*s->scratch)))
        return algo_scratch_at(0);
    s->scratch[s->n_scratch] = (struct sched_scratch){.range = range, .wide = wide};
    return algo_scratch_at(s->n_scratch++);
}

struct algo_place algo_input(struct algo *a, uint8_t space, int space_island)
{
    if (!a->call->stage_send)
        return algo_user(BUF_SEND);
    struct sched_range all = algo_whole(a, space, space_island);
    struct algo_place to = algo_scratch(a, all, false);
    int step = algo_copy(a, algo_user(BUF_SEND), to, all);
    to.made = (struct algo_span){step, step + 1};
    return to;
}

struct algo_place algo_output(struct algo *a, uint8_t space, int space_island)
{
    if (!a->call->stage_recv)
        return algo_user(BUF_RECV);
    return algo_scratch(a, algo_whole(a, space, space_island), false);
}

void algo_deliver(struct algo *a, struct algo_place out, struct sched_range range, struct algo_span one,
                  struct algo_span two)
{
    if (out.buffer != BUF_SCRATCH)
        return;
    int step = algo_copy(a, out, algo_user(BUF_RECV), range);
    algo_after(a, step, one);
    algo_after(a, step, two);
}

struct algo_place algo_partial(struct algo *a, struct algo_place input, uint8_t space, int space_island,
                               enum sched_owners owners, struct sched_range part, struct algo_span *read)
{
    *read = input.made;
    if (a->size == 1 && !a->call->exact)
        return input;
    struct algo_place to = algo_scratch(a, part, a->call->exact);
    int step;
    if (a->size > 1) {
        step = algo_local_reduce(a, input, algo_whole(a, space, space_island), owners, to, part, false);
    } else {
        step = algo_reduce(a, to, part, false);
        algo_operand(a, step, input);
    }
    to.made = (struct algo_span){step, step + 1};
    if (input.buffer == BUF_SEND)
        *read = to.made;
    return to;
}

struct algo_span algo_collect(struct algo *a, const struct algo_collect *c)
{
    struct algo_walk w;
    if (!algo_walk_open(a, &w, c->range))
        return algo_since(a, a->sched->n_steps);
    algo_walk_over(&w, c->range, c->list, c->count);
    int first_scratch = a->sched->n_scratch, first_recv = a->sched->n_steps;
    for (int j = 0; j < c->count - 1; j++)   /* one for each other island */
        algo_scratch(a, c->range, a->call->exact);

    /* Messages in the order in which they begin: what a reduction needs is then always a run of receives. */
    while (algo_walk_next(a, &w)) {
        for (int j = 0, s = 0; j < c->count; j++) {
            int island = algo_walk_island(&w, j);
            struct algo_place theirs = algo_scratch_at(first_scratch + s);
            if (island == a->island)
                continue;
            s++;
            if (w.number[j] == 0)
                algo_recv(a, theirs, algo_walk_message(a, &w, j), topo_member(a->topo, island, w.owner[j]), c->channel);
        }
    }

    int first_reduce = a->sched->n_steps, begun = first_recv;
    algo_walk_over(&w, c->range, c->list, c->count);
    while (algo_walk_next(a, &w)) {
        int step = algo_reduce(a, c->to, w.segment, c->final);
        for (int j = 0, s = 0; j < c->count; j++) {
            bool mine = algo_walk_island(&w, j) == a->island;
            struct algo_place theirs = algo_scratch_at(first_scratch + s);
            begun += !mine && w.number[j] == 0;
            s += !mine;
            algo_operand(a, step, mine ? c->own : theirs);
        }
        algo_after(a, step, (struct algo_span){first_recv, begun});
        algo_after(a, step, c->before);
    }
    algo_walk_close(&w);
    return algo_since(a, first_reduce);
}
