/* Schedules as data: where a chunk's ranges stand, in the virtual vector and in memory, the order of local steps. */
#include "core/sched.h"

#include <stdlib.h>

const unsigned char coll_traits_of[COLL_KINDS] = {
#define TRAITS(Name, name, NAME, traits, ...) [COLL_##NAME] = traits,
    COLL_ALL(TRAITS)
#undef TRAITS
};

const char *coll_name(enum coll_kind kind)
{
    static const char *const names[COLL_KINDS] = {
#define NAME_OF(Name, name, NAME, ...) [COLL_##NAME] = #name,
        COLL_ALL(NAME_OF)
#undef NAME_OF
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

const char *sched_step_name(enum sched_kind kind)
{
    switch (kind) {
    case STEP_LOCAL_REDUCE: return "reduction in the island";
    case STEP_LOCAL_SPREAD: return "spreading in the island";
    case STEP_SEND: return "sends";
    case STEP_RECV: return "receives";
    case STEP_REDUCE: return "reduction";
    case STEP_COPY: return "copy";
    }
    return NULL;
}

struct sched *sched_share(struct sched *sched)
{
    atomic_fetch_add_explicit(&sched->shares, 1, memory_order_relaxed);
    return sched;
}

void sched_free(struct sched *sched)
{
    if (!sched || atomic_fetch_sub_explicit(&sched->shares, 1, memory_order_acq_rel) > 0)
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

/* Where the block of a position begins in the blocks of its island; position == size: where they end. */
static size_t block_at(const struct topo *topo, int island, int position, const struct sched_chunk *chunk)
{
    size_t at = 0;
    if (!chunk->counts)
        return (size_t)position * chunk->length;
    for (int p = 0; p < position; p++)
        at += sched_piece(chunk, topo_member(topo, island, p));
    return at;
}

size_t sched_space_length(const struct topo *topo, uint8_t space, int island, const struct sched_chunk *chunk)
{
    return space == SPACE_BLOCKS ? block_at(topo, island, topo_island_size(topo, island), chunk) : chunk->length;
}

/*
 * Monotone in the exact fraction of the space's blocks that a cut stands for, whatever its kind: builders order cuts
 * by these fractions alone. Hence weight cuts are aligned relative to the start of their block (SPACE_VECTOR is one
 * block), so that aligning down never passes a block's start.
 */
size_t sched_cut_at(const struct topo *topo, const struct sched_cut *cut, uint8_t space, int island,
                    const struct sched_chunk *chunk)
{
    if (cut->position <= 0)
        return 0;
    size_t space_length = sched_space_length(topo, space, island, chunk);
    if (cut->position >= topo_island_size(topo, cut->island))
        return space_length;
    if (cut->how == CUT_BLOCK)
        return block_at(topo, cut->island, cut->position, chunk);
    uint64_t total = topo_weight_before(topo, cut->island, topo_island_size(topo, cut->island));
    uint64_t before = topo_weight_before(topo, cut->island, cut->position);
    int blocks = space == SPACE_BLOCKS ? topo_island_size(topo, island) : 1;
    unsigned __int128 place = (unsigned __int128)before * (unsigned)blocks;
    int block = (int)(place / total);
    size_t length = space == SPACE_BLOCKS ? sched_piece(chunk, topo_member(topo, island, block)) : chunk->length;
    size_t inside = (size_t)(length * (place % total) / total);
    if (space_length >= SCHED_ALIGN_FROM)
        inside -= inside % SCHED_ALIGN;
    return (space == SPACE_BLOCKS ? block_at(topo, island, block, chunk) : 0) + inside;
}

/* Where sub-range `part` of `parts` begins in a range of `length` elements. */
static size_t part_at(size_t length, int part, int parts)
{
    if (part >= parts)
        return length;
    size_t at = (size_t)((unsigned __int128)length * (unsigned)part / (unsigned)parts);
    return length >= SCHED_ALIGN_FROM ? at - at % SCHED_ALIGN : at;
}

void sched_range_at(const struct topo *topo, const struct sched_range *range, const struct sched_chunk *chunk,
                    size_t *first, size_t *length)
{
    size_t lo = sched_cut_at(topo, &range->lo, range->space, range->island, chunk);
    size_t hi = sched_cut_at(topo, &range->hi, range->space, range->island, chunk);
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

/* The part of a position of the rank's own island, by weight or by block. */
static void part_by(const struct topo *topo, const struct sched_step *step, uint8_t how, int position,
                    const struct sched_chunk *chunk, size_t *first, size_t *length)
{
    const struct sched_range *in = &step->in.range;
    struct sched_cut cut = {.how = how, .island = topo->island_of[topo->rank], .position = position};
    *first = sched_cut_at(topo, &cut, in->space, in->island, chunk);
    cut.position++;
    *length = sched_cut_at(topo, &cut, in->space, in->island, chunk) - *first;
}

void sched_owner_part(const struct topo *topo, const struct sched_step *step, int position,
                      const struct sched_chunk *chunk, size_t *first, size_t *length)
{
    const struct sched_range *in = &step->in.range;
    if (step->owners == OWNERS_ROOT) {
        *first = 0;
        *length = position == step->root ? sched_space_length(topo, in->space, in->island, chunk) : 0;
        return;
    }
    part_by(topo, step, step->owners == OWNERS_BLOCK ? CUT_BLOCK : CUT_WEIGHT, position, chunk, first, length);
}

void sched_reader_part(const struct topo *topo, const struct sched_step *step, int position,
                       const struct sched_chunk *chunk, size_t *first, size_t *length)
{
    const struct sched_range *in = &step->in.range;
    if (step->readers == READERS_WEIGHT || step->readers == READERS_BLOCK) {
        part_by(topo, step, step->readers == READERS_BLOCK ? CUT_BLOCK : CUT_WEIGHT, position, chunk, first, length);
        return;
    }
    *first = 0;
    *length = step->readers == READERS_ALL || position == step->root
                  ? sched_space_length(topo, in->space, in->island, chunk) : 0;
}

/* The block of that number and the next one are one piece of memory. */
static bool joined(const struct sched_view *view, int block)
{
    int rank = view->ranks[block], next = view->ranks[block + 1];
    return view->displs ? view->displs[next] == view->displs[rank] + view->counts[rank] : next == rank + 1;
}

/* sched_view_run for blocks of different lengths. */
static size_t uneven_run(const struct sched_view *view, size_t v, size_t length, void **address)
{
    struct sched_chunk chunk = {view->chunk_first, view->L, view->counts};
    int block = 0;
    size_t inside = v, piece, at = 0, run;
    while (inside >= (piece = sched_piece(&chunk, view->ranks[block]))) {
        inside -= piece;
        block++;
    }
    int rank = view->ranks[block];
    if (view->layout == LAYOUT_BLOCKS && view->displs)
        at = view->displs[rank];
    for (int r = 0; r < rank && view->layout == LAYOUT_BLOCKS && !view->displs; r++)
        at += view->counts[r];
    *address = view->base + (at + view->chunk_first + inside) * view->element;
    run = piece - inside;
    while (run < length && view->layout == LAYOUT_BLOCKS && view->chunk_first == 0 &&
           piece == view->counts[view->ranks[block]] && joined(view, block)) {
        piece = sched_piece(&chunk, view->ranks[++block]);
        run += piece;
    }
    return length < run ? length : run;
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
        if (view->counts)
            return uneven_run(view, v, length, address);
        inside = v % view->L;
        *address = view->base + (view->chunk_first + inside) * view->element;
        run = view->L - inside;
        return length < run ? length : run;
    case LAYOUT_BLOCKS:
        break;
    }
    if (view->counts)
        return uneven_run(view, v, length, address);
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
