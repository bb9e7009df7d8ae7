/* Planning a run: the schedule from the communicator's cache, sizes of chunks, the window, and scratch memory. */
#include <stdlib.h>

#include "core/exec.h"
#include "core/log.h"
#include "hetmpi.h"

#define CHUNK_MIN (32u << 10)
#define CHUNK_LOCAL (256u << 10)   /* inside one island there is no link to fill and drain: see docs/performance.md */
#define PIECE_MIN (32u << 10)   /* of a block, between pairs */
#define WINDOW_HOST 8
#define WINDOW_DEVICE 16    /* work on a device is known to be done only when it is asked for */
#define GATHERED_MAX 4096u   /* bytes of a block of alltoall: beyond it a message is worth its start, a detour is not */
#define CACHE_ENTRIES 32

struct sched_cache {
    struct { struct sched_call key; struct sched *sched; } entries[CACHE_ENTRIES];
    int used, next;
};

/* The schedule for a call, from the communicator's cache. */
static int find_sched(struct comm *comm, const struct sched_call *key, const struct sched **sched)
{
    struct sched_cache *cache = comm->cache;
    struct sched *built;
    int code, at;

    if (!cache) {
        cache = comm->cache = calloc(1, sizeof(*cache));
        if (!cache)
            return err_set(HETMPI_ERR_MEMORY, "no memory for the schedules of a communicator");
    }
    for (int i = 0; i < cache->used; i++)
        if (memcmp(&cache->entries[i].key, key, sizeof(*key)) == 0) {
            *sched = cache->entries[i].sched;
            return HETMPI_SUCCESS;
        }
    code = sched_build(&comm->topo, key, &built);
    if (code)
        return code;
    at = cache->used < CACHE_ENTRIES ? cache->used++ : cache->next++ % CACHE_ENTRIES;
    sched_free(cache->entries[at].sched);
    cache->entries[at].key = *key;
    cache->entries[at].sched = built;
    *sched = built;
    return HETMPI_SUCCESS;
}

static int largest_island(const struct topo *topo)
{
    int most = 1;

    for (int i = 0; i < topo->islands; i++)
        if (topo_island_size(topo, i) > most)
            most = topo_island_size(topo, i);
    return most;
}

/* Bytes that a local step may move for each element of a chunk: a whole virtual vector. */
static size_t space_element(const struct comm *comm, const struct call *call)
{
    bool blocks = coll_traits(call->kind) & COLL_BLOCKS;

    return red_size(call->type) * (blocks ? (size_t)largest_island(&comm->topo) : 1);
}

/* Most bytes of a virtual vector of one chunk; room for at least one element of any type, whatever the setting. */
static size_t slot_bytes(const struct comm *comm)
{
    size_t least = 16 * (size_t)largest_island(&comm->topo);

    return comm->chunk_max > least ? comm->chunk_max : least;
}

/* Elements of a block that go in one message between a pair: from what all ranks know, for none knows all counts. */
static size_t choose_piece(const struct comm *comm, const struct call *call)
{
    size_t bytes = comm->chunk_max / (size_t)comm->size;

    if (bytes < PIECE_MIN && !comm->cfg->chunk)
        bytes = PIECE_MIN;
    bytes /= red_size(call->type);
    return bytes ? bytes : 1;
}

/* Elements of a chunk: the same on all ranks. Large enough to be worth a step, small enough that filling and draining
 * the pipeline is a small part of the whole. */
static size_t choose_chunk(const struct comm *comm, const struct call *call)
{
    size_t each = space_element(comm, call), total = call->count * each, bytes, elements;
    unsigned traits = coll_traits(call->kind);

    if (traits & COLL_PAIRS && !(traits & COLL_CHAIN)) {
        elements = choose_piece(comm, call);
        return elements < call->count ? elements : call->count;
    }
    if (comm->cfg->chunk) {
        bytes = comm->cfg->chunk;
    } else {
        bool local = comm->topo.islands == 1 && !(traits & COLL_CHAIN);
        bytes = local ? CHUNK_LOCAL : total / 64;
        if (bytes < CHUNK_MIN)
            bytes = CHUNK_MIN;
        if (bytes > comm->chunk_max)
            bytes = comm->chunk_max;
    }
    elements = bytes / each;
    if (elements > 2 * SCHED_ALIGN)
        elements -= elements % SCHED_ALIGN;
    if (elements < 1)
        elements = 1;
    return elements < call->count ? elements : call->count;
}

static int choose_window(const struct comm *comm, const struct exec *exec)
{
    size_t window = comm->cfg->window > 0 ? (size_t)comm->cfg->window : comm->any_device ? WINDOW_DEVICE : WINDOW_HOST;

    if (window > WINDOW_MAX)
        window = WINDOW_MAX;
    return (int)(window < exec->chunks ? window : exec->chunks);
}

/* Most elements that a scratch range has in any chunk. Blocks that end in a chunk can move its cuts by less than an
 * alignment, so that a later chunk may have a little more than the first. */
static size_t most_of(const struct comm *comm, const struct exec *exec, const struct sched_range *range)
{
    struct sched_chunk begin = chunk_for(exec, BUF_SCRATCH, 0), end = chunk_for(exec, BUF_SCRATCH, exec->chunks - 1);
    size_t first, length, last;

    sched_range_at(&comm->topo, range, &begin, &first, &length);
    sched_range_at(&comm->topo, range, &end, &first, &last);
    return (length > last ? length : last) + (begin.counts ? 2 * SCHED_ALIGN : 0);
}

static void *grow(void *memory, size_t *room, size_t need, size_t each)
{
    void *larger;

    if (need <= *room)
        return memory;
    larger = realloc(memory, need * each);
    if (larger)
        *room = need;
    return larger;
}

/* Places of the scratch ranges in a slot. */
static int lay_out_scratch(struct comm *comm, struct exec *exec)
{
    const struct sched *sched = exec->sched;
    bool aside = exec->call.kind == COLL_REDUCE_SCATTER && exec->call.in_place;
    size_t at = 0, need, groups = 0, *places;

    places = grow(exec->scratch_at, &exec->scratch_at_room, (size_t)sched->n_scratch + 1, sizeof(*places));
    if (!places)
        return err_set(HETMPI_ERR_MEMORY, "no memory for a schedule of %d scratch ranges", sched->n_scratch);
    exec->scratch_at = places;
    for (int s = 0; s < sched->n_scratch; s++) {
        size_t each = sched->scratch[s].wide ? red_wide_size(exec->call.type) : exec->element;
        places[s] = at;
        at += (most_of(comm, exec, &sched->scratch[s].range) * each + 255) / 256 * 256;
    }
    places[sched->n_scratch] = at;
    for (int i = 0; i < sched->n_steps; i++) {
        const struct sched_step *step = &sched->steps[i];
        if (step->kind != STEP_REDUCE || step->n_in <= RED_MAX_INPUTS)
            continue;
        need = (size_t)((step->n_in + RED_MAX_INPUTS - 1) / RED_MAX_INPUTS) *
               most_of(comm, exec, &step->out.range) * red_wide_size(exec->call.type);
        groups = need > groups ? need : groups;
    }
    exec->scratch_slot = at + (groups + 255) / 256 * 256;
    need = exec->scratch_slot * (size_t)exec->window;
    at = need;
    if (aside)
        need += exec->call.counts[SIDE_RECV][comm->rank] * exec->element;
    if (need > exec->scratch_room) {
        void *memory;
        int code = mem_alloc(need, &memory);
        if (code)
            return code;
        if (exec->scratch)
            mem_free(exec->scratch);
        exec->scratch = memory;
        exec->scratch_room = need;
    }
    exec->aside = aside ? exec->scratch + at : NULL;
    return HETMPI_SUCCESS;
}

/* Most bytes that a buffer of the call may take here. Blocks of different lengths may stand anywhere. */
static size_t most_bytes(const struct comm *comm, const struct call *call, int side)
{
    size_t bytes = call->count * red_size(call->type);

    if (call->counts[side])
        return SIZE_MAX / 2;
    switch (call->kind) {
    case COLL_ALLREDUCE:
    case COLL_REDUCE:
    case COLL_BCAST:
    case COLL_SCAN:
    case COLL_EXSCAN:
        return bytes;
    default:
        return bytes * (size_t)comm->size;
    }
}

/* Is the buffer one that kernels on this rank's device may not touch? Host memory may be registered in part: if in
 * doubt, it is staged. */
static bool needs_staging(const void *buffer, size_t bytes)
{
    struct mem_pointer what;

    if (!mem_has_device() || !buffer)
        return false;
    mem_query(buffer, &what);
    if (what.kind != MEM_HOST_PINNED)
        return what.kind == MEM_HOST;
    return bytes > what.bytes - (size_t)((const char *)buffer - (const char *)what.base);
}

static int open_island(struct comm *comm)
{
    const struct island_ops *ops;

    if (comm->island || topo_island_size(&comm->topo, comm->topo.island_of[comm->rank]) == 1)
        return HETMPI_SUCCESS;
    ops = island_choose(comm);
    return ops ? ops->open(comm, slot_bytes(comm), &comm->island) : err_code();
}

int exec_begin(struct comm *comm, const struct call *call, uint64_t number)
{
    struct exec *exec = comm->exec;
    struct sched_call key;
    size_t n, *started;
    struct step_run *runs;
    int code;

    if (!exec) {
        exec = comm->exec = calloc(1, sizeof(*exec));
        if (!exec)
            return err_set(HETMPI_ERR_MEMORY, "no memory to run a collective");
    }
    memset(&key, 0, sizeof(key));   /* padding too: keys are compared as bytes */
    key.kind = call->kind;
    key.root = call->root;
    key.exact = red_wide_size(call->type) != red_size(call->type) &&
                (comm->cfg->wire_precision == CFG_PRECISION_EXACT || coll_traits(call->kind) & COLL_CHAIN);
    key.in_place = call->in_place && call->kind != COLL_REDUCE_SCATTER;
    key.stage_send = needs_staging(call->send, most_bytes(comm, call, SIDE_SEND));
    key.stage_recv = needs_staging(call->recv, most_bytes(comm, call, SIDE_RECV)) && key.in_place == call->in_place;
    key.gathered = call->kind == COLL_ALLTOALL && comm->topo.levels == 2 &&
                   call->count * red_size(call->type) <= GATHERED_MAX;
    code = find_sched(comm, &key, &exec->sched);
    if (!code && !(coll_traits(call->kind) & COLL_PAIRS))
        code = open_island(comm);
    if (code)
        return code;
    exec->call = *call;
    exec->number = number;
    exec->element = red_size(call->type);
    exec->chunk = choose_chunk(comm, call);
    exec->chunks = sched_chunks(call->count, exec->chunk);
    exec->window = choose_window(comm, exec);
    exec->delay = exec->window / 2;
    exec->slots = exec->slot_array;
    n = (size_t)exec->sched->n_steps;
    runs = grow(exec->runs, &exec->runs_room, n * (size_t)exec->window + 1, sizeof(*runs));
    started = runs ? grow(exec->started, &exec->started_room, n + 1, sizeof(*started)) : NULL;
    if (runs)
        exec->runs = runs;
    if (!started)
        return err_set(HETMPI_ERR_MEMORY, "no memory to run a schedule of %zu steps", n);
    exec->started = started;
    memset(started, 0, n * sizeof(*started));
    for (int s = 0; s < exec->window; s++)
        exec->slots[s].runs = runs + (size_t)s * n;
    code = lay_out_scratch(comm, exec);
    if (code)
        return code;
    exec->first = exec->opened = 0;
    exec->cursor = (struct sched_cursor){0};
    exec->cursor_valid = sched_cursor_next(exec->sched, exec->chunks, exec->delay, &exec->cursor, &exec->cursor_chunk,
                                           &exec->cursor_step);
    return HETMPI_SUCCESS;
}

void exec_cache_release(struct comm *comm)
{
    if (comm->cache)
        for (int i = 0; i < comm->cache->used; i++)
            sched_free(comm->cache->entries[i].sched);
    free(comm->cache);
    comm->cache = NULL;
}
