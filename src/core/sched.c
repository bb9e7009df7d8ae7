/* Schedules as data: where a chunk's ranges stand, in the virtual vector and in memory, the order of local steps. */
#include "core/sched.h"

#include <stdlib.h>

const char *coll_name(enum coll_kind kind)
{
    static const char *const names[COLL_KINDS] = {
        [COLL_ALLREDUCE] = "allreduce", [COLL_REDUCE] = "reduce", [COLL_BCAST] = "bcast",
        [COLL_ALLGATHER] = "allgather", [COLL_REDUCE_SCATTER_BLOCK] = "reduce_scatter_block",
        [COLL_BARRIER] = "barrier",
    };
    return (unsigned)kind < COLL_KINDS ? names[kind] : "none";
}

const char *sched_phase_name(enum sched_phase phase)
{
    switch (phase) {
    case PHASE_MEET: return "meeting of the ranks";
    case PHASE_ISLAND_REDUCE: return "reduction inside the island";
    case PHASE_EXCHANGE: return "exchange between islands";
    case PHASE_ISLAND_SPREAD: return "spread inside the island";
    case PHASE_STAGE: return "staging of host buffers";
    }
    return "none";
}

void sched_free(struct sched *sched)
{
    if (!sched)
        return;
    free(sched->steps);
    free(sched->refs);
    free(sched->scratch);
    free(sched);
}

size_t sched_bytes(const struct sched *sched)
{
    return sizeof(*sched) + (size_t)sched->n_steps * sizeof(*sched->steps) +
           (size_t)sched->n_refs * sizeof(*sched->refs) + (size_t)sched->n_scratch * sizeof(*sched->scratch);
}

size_t sched_space_length(const struct topo *topo, uint8_t space, int island, size_t L)
{
    return space == SPACE_BLOCKS ? (size_t)topo_island_size(topo, island) * L : L;
}

/*
 * Monotone in the exact fraction of the space that a cut stands for, whatever its kind: builders order cuts by these
 * fractions alone. Hence weight cuts are aligned relative to the start of their block (a space of L elements is one
 * block), so that aligning down never passes a block's start.
 */
size_t sched_cut_at(const struct topo *topo, const struct sched_cut *cut, size_t space_length, size_t L)
{
    if (cut->position >= topo_island_size(topo, cut->island))
        return space_length;
    if (cut->position <= 0)
        return 0;
    if (cut->how == CUT_BLOCK)
        return (size_t)cut->position * L;
    uint64_t total = topo_weight_before(topo, cut->island, topo_island_size(topo, cut->island));
    uint64_t before = topo_weight_before(topo, cut->island, cut->position);
    size_t at = (size_t)((unsigned __int128)space_length * before / total);
    if (space_length >= SCHED_ALIGN_FROM)
        at -= at % L % SCHED_ALIGN;
    return at;
}

/* Where sub-range `part` of `parts` begins in a range of `length` elements. */
static size_t part_at(size_t length, int part, int parts)
{
    if (part >= parts)
        return length;
    size_t at = (size_t)((unsigned __int128)length * (unsigned)part / (unsigned)parts);
    return length >= SCHED_ALIGN_FROM ? at - at % SCHED_ALIGN : at;
}

void sched_range_at(const struct topo *topo, const struct sched_range *range, size_t L, size_t *first, size_t *length)
{
    size_t space = sched_space_length(topo, range->space, range->island, L);
    size_t lo = sched_cut_at(topo, &range->lo, space, L), hi = sched_cut_at(topo, &range->hi, space, L);
    if (hi <= lo) {
        *first = lo;
        *length = 0;
        return;
    }
    if (range->parts > 1) {
        size_t whole = hi - lo;
        hi = lo + part_at(whole, range->part + 1, range->parts);
        lo += part_at(whole, range->part, range->parts);
    }
    *first = lo;
    *length = hi - lo;
}

void sched_owner_part(const struct topo *topo, const struct sched_step *step, int position, size_t L, size_t *first,
                      size_t *length)
{
    int own = topo->island_of[topo->rank];
    const struct sched_range *in = &step->in.range;
    size_t space = sched_space_length(topo, in->space, in->island, L);
    if (step->owners == OWNERS_ROOT) {
        *first = 0;
        *length = position == step->root ? space : 0;
        return;
    }
    struct sched_cut cut = {.how = step->owners == OWNERS_BLOCK ? CUT_BLOCK : CUT_WEIGHT, .island = own,
                            .position = position};
    *first = sched_cut_at(topo, &cut, space, L);
    cut.position++;
    *length = sched_cut_at(topo, &cut, space, L) - *first;
}

size_t sched_view_run(const struct sched_view *view, size_t v, size_t length, void **address)
{
    size_t block, inside, run;
    if (length == 0) {
        *address = view->base;
        return 0;
    }
    switch ((enum sched_layout)view->layout) {
    case LAYOUT_NONE:
        *address = view->base + (v - view->first) * view->element;
        return length;
    case LAYOUT_VECTOR:
        *address = view->base + (view->chunk_first + v) * view->element;
        return length;
    case LAYOUT_BLOCK:
        inside = v % view->L;
        *address = view->base + (view->chunk_first + inside) * view->element;
        run = view->L - inside;
        return length < run ? length : run;
    case LAYOUT_BLOCKS:
        break;
    }
    block = v / view->L;
    inside = v % view->L;
    *address = view->base + ((size_t)view->ranks[block] * view->count + view->chunk_first + inside) * view->element;
    run = view->L - inside;
    /* Whole blocks of ranks that follow each other are one piece. */
    while (run < length && view->L == view->count && view->ranks[block + 1] == view->ranks[block] + 1) {
        run += view->L;
        block++;
    }
    return length < run ? length : run;
}

bool sched_cursor_next(const struct sched *sched, size_t chunks, int delay, struct sched_cursor *cursor, size_t *chunk,
                       int *step)
{
    size_t late = (size_t)delay;
    while (cursor->time < chunks + late) {
        bool live = cursor->lag ? cursor->time >= late : cursor->time < chunks;
        while (live && cursor->step < sched->n_steps) {
            const struct sched_step *s = &sched->steps[cursor->step++];
            if ((s->kind == STEP_LOCAL_REDUCE || s->kind == STEP_LOCAL_SPREAD) && s->lag == cursor->lag) {
                *chunk = cursor->lag ? cursor->time - late : cursor->time;
                *step = cursor->step - 1;
                return true;
            }
        }
        cursor->step = 0;
        cursor->time += cursor->lag ? 1 : 0;
        cursor->lag = !cursor->lag;
    }
    return false;
}
