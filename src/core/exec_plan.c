/* Planning a run: the schedule from the communicator's cache, sizes of chunks, the window, and scratch memory. */
#include <stdlib.h>

#include "core/exec.h"
#include "core/log.h"
#include "hetmpi.h"

#define CHUNKS 64                  /* of a long vector */
#define CHUNKS_DEEP 128            /* ... where a chunk goes a long way, which fills by a chunk a hop */
#define CHUNK_LOCAL (256u << 10)   /* inside one island there is no link to fill and drain: see docs/performance.md */
#define PIECE_MIN (32u << 10)   /* of a block, between pairs */
#define WINDOW_HOST 8
#define WINDOW_NODES 64     /* between nodes MPI asks before it sends, behind what is on its way already */
#define WINDOW_DEVICE 16    /* work on a device is known to be done only when it is asked for */
#define GATHERED_MAX 4096u   /* bytes of a block of alltoall: beyond it a message is worth its start, a detour is not */
#define STRAIGHT_MAX 8192u   /* bytes of the longest block of gatherv and scatterv: up to it sharing gains less than it costs */
#define CACHE_ENTRIES 32

struct sched_cache {
    struct { struct sched_call key; struct sched *sched; } entries[CACHE_ENTRIES];
    int used, next;
};

/* The schedule for a call, from the communicator's cache. */
static int find_sched(struct comm *comm, const struct sched_call *key, struct sched **sched)
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
static size_t choose_chunk(const struct comm *comm, const struct call *call, bool pairs)
{
    size_t each = space_element(comm, call), total = call->count * each, bytes, elements;
    unsigned traits = coll_traits(call->kind);

    if (pairs && !(traits & COLL_CHAIN)) {
        elements = choose_piece(comm, call);
        return elements < call->count ? elements : call->count;
    }
    if (comm->cfg->chunk) {
        bytes = comm->cfg->chunk;
    } else {
        bool local = comm->topo.islands == 1 && !(traits & COLL_CHAIN);
        bool deep = traits & COLL_CHAIN || (call->kind == COLL_REDUCE && comm->topo.islands > 2);
        bytes = local && comm->chunk_min < CHUNK_LOCAL ? CHUNK_LOCAL : total / (deep ? CHUNKS_DEEP : CHUNKS);
        if (bytes < comm->chunk_min)
            bytes = comm->chunk_min;
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

static int choose_window(const struct comm *comm, size_t chunks)
{
    size_t window = comm->cfg->window > 0 ? (size_t)comm->cfg->window
                  : comm->topo.nodes > 1 && !comm->any_device ? WINDOW_NODES
                  : comm->any_device ? WINDOW_DEVICE : WINDOW_HOST;

    if (window > WINDOW_MAX)
        window = WINDOW_MAX;
    return (int)(window < chunks ? window : chunks);
}

/* Most elements that a scratch range has in any chunk. Blocks that end in a chunk can move its cuts by less than an
 * alignment, so that a later chunk may have a little more than the first. */
static size_t most_of(const struct comm *comm, const struct call *call, const struct exec_plan *plan,
                      const struct sched_range *range)
{
    size_t before = (plan->chunks - 1) * plan->chunk, first, length, last;
    struct sched_chunk begin = {0, plan->chunk, call->counts[SIDE_RECV]};
    struct sched_chunk end = {before, call->count - before, call->counts[SIDE_RECV]};
    bool uneven = coll_traits(call->kind) & (COLL_TABLE | COLL_OWN_TABLE);

    sched_range_at(&comm->topo, range, &begin, &first, &length);
    sched_range_at(&comm->topo, range, &end, &first, &last);
    return (length > last ? length : last) + (uneven ? 2 * SCHED_ALIGN : 0);
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

/* Places of the scratch ranges in a slot, and the bytes of all. */
static int lay_out_scratch(const struct comm *comm, const struct call *call, struct exec_plan *plan, size_t *bytes)
{
    const struct sched *sched = plan->sched;
    size_t element = red_size(call->type), at = 0, need, groups = 0, *places;

    places = grow(plan->scratch_at, &plan->scratch_at_room, (size_t)sched->n_scratch + 1, sizeof(*places));
    if (!places)
        return err_set(HETMPI_ERR_MEMORY, "no memory for a schedule of %d scratch ranges", sched->n_scratch);
    plan->scratch_at = places;
    for (int s = 0; s < sched->n_scratch; s++) {
        size_t each = sched->scratch[s].wide ? red_wide_size(call->type) : element;
        places[s] = at;
        at += (most_of(comm, call, plan, &sched->scratch[s].range) * each + 255) / 256 * 256;
    }
    places[sched->n_scratch] = at;
    for (int i = 0; i < sched->n_steps; i++) {
        const struct sched_step *step = &sched->steps[i];
        if (step->kind != STEP_REDUCE || step->n_in <= RED_MAX_INPUTS)
            continue;
        need = (size_t)((step->n_in + RED_MAX_INPUTS - 1) / RED_MAX_INPUTS) *
               most_of(comm, call, plan, &step->out.range) * red_wide_size(call->type);
        groups = need > groups ? need : groups;
    }
    plan->scratch_slot = at + (groups + 255) / 256 * 256;
    plan->aside = call->kind == COLL_REDUCE_SCATTER && call->in_place;
    plan->aside_at = *bytes = plan->scratch_slot * (size_t)plan->window;
    if (plan->aside)
        *bytes += call->counts[SIDE_RECV][comm->rank] * element;
    return HETMPI_SUCCESS;
}

/* Most bytes that a buffer of the call may take here. Blocks of different lengths may stand anywhere. */
static size_t most_bytes(const struct comm *comm, const struct call *call, int side)
{
    size_t bytes = call->count * red_size(call->type);

    if (call->displs[side] || (call->counts[side] && call->kind == COLL_REDUCE_SCATTER))
        return SIZE_MAX / 2;
    if (call->counts[side])
        return call->counts[side][comm->rank] * red_size(call->type);
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

/* Are both buffers the same, or one a part of the other? */
static bool aliased(const struct comm *comm, const struct call *call)
{
    uintptr_t send = (uintptr_t)call->send, recv = (uintptr_t)call->recv;

    return call->in_place || (recv >= send && recv - send < most_bytes(comm, call, SIDE_SEND));
}

/* Gatherv and scatterv: do the blocks go straight to and from the root? All ranks decide alike: count is the longest block
 * where the ranks told each other. */
static bool goes_straight(const struct comm *comm, const struct call *call)
{
    return coll_tells(call->kind) && (!pairs_tell(comm, call->kind) || call->count <= STRAIGHT_MAX / red_size(call->type));
}

static struct sched_call sched_key(const struct comm *comm, const struct call *call)
{
    struct sched_call key;

    memset(&key, 0, sizeof(key));   /* padding too: keys are compared as bytes */
    key.kind = call->kind;
    key.root = call->root;
    key.exact = red_wide_size(call->type) != red_size(call->type) &&
                (comm->cfg->wire_precision == CFG_PRECISION_EXACT || coll_traits(call->kind) & COLL_CHAIN);
    key.in_place = call->in_place && call->kind != COLL_REDUCE_SCATTER;
    key.straight = goes_straight(comm, call);
    key.scale = call->premul;
    key.stage_send = key.scale || needs_staging(call->send, most_bytes(comm, call, SIDE_SEND));
    /* Buffers in place are staged both or not at all. */
    key.stage_recv = (needs_staging(call->recv, most_bytes(comm, call, SIDE_RECV)) ||
                      (key.scale && aliased(comm, call))) && key.in_place == call->in_place;
    key.gathered = call->kind == COLL_ALLTOALL && comm->topo.levels == 2 &&
                   call->count * red_size(call->type) <= GATHERED_MAX;
    return key;
}

/* How often a run may have work on streams under way: each has an event. */
static size_t most_events(const struct exec_plan *plan)
{
    size_t n = 0;

    for (int i = 0; i < plan->sched->n_steps; i++)
        n += plan->sched->steps[i].kind == STEP_REDUCE || plan->sched->steps[i].kind == STEP_COPY;
    return n * (size_t)plan->window + 1;
}

static size_t most_inputs(const struct sched *sched)
{
    int most = 1;

    for (int i = 0; i < sched->n_steps; i++)
        if (sched->steps[i].kind == STEP_REDUCE && sched->steps[i].n_in > most)
            most = sched->steps[i].n_in;
    return (size_t)most;
}

static void raise_to(size_t *want, size_t need)
{
    *want = *want > need ? *want : need;
}

/* Fills in a plan, and adds what it needs to what the communicator's runs want. */
static int make_plan(struct comm *comm, const struct call *call, struct exec_plan *plan)
{
    struct exec_room *want = &comm->exec->want;
    struct sched_call key = sched_key(comm, call);
    struct sched *sched = NULL;
    size_t n, scratch = 0;
    int code = find_sched(comm, &key, &sched);

    if (code)
        return code;
    sched_share(sched);
    sched_free(plan->sched);
    plan->sched = sched;
    plan->pairs = sched_pairs(&key);
    plan->scale_straight = !needs_staging(call->send, most_bytes(comm, call, SIDE_SEND));
    plan->chunk = choose_chunk(comm, call, plan->pairs);
    plan->chunks = sched_chunks(call->count, plan->chunk);
    plan->window = choose_window(comm, plan->chunks);
    code = lay_out_scratch(comm, call, plan, &scratch);
    if (code)
        return code;
    n = (size_t)sched->n_steps;
    raise_to(&want->runs, n * (size_t)plan->window + 1);
    raise_to(&want->started, n + 1);
    raise_to(&want->srcs, most_inputs(sched));
    raise_to(&want->scratch, scratch);
    return HETMPI_SUCCESS;
}

static int grow_scratch(struct exec *exec)
{
    void *memory;
    int code;

    if (exec->want.scratch <= exec->room.scratch)
        return HETMPI_SUCCESS;
    code = mem_alloc(exec->want.scratch, &memory);
    if (code)
        return code;
    if (exec->scratch)
        mem_free(exec->scratch);
    exec->scratch = memory;
    exec->room.scratch = exec->want.scratch;
    return HETMPI_SUCCESS;
}

static int grow_events(struct exec *exec)
{
    while (exec->room.events < exec->want.events) {
        mem_event_t *event;
        int code = mem_event_create(&event);
        if (code)
            return code;
        exec_give_event(exec, event);
        exec->room.events++;
    }
    return HETMPI_SUCCESS;
}

/* Between runs: as much memory as is wanted. */
static int fit(struct exec *exec)
{
    struct step_run *runs = grow(exec->runs, &exec->room.runs, exec->want.runs, sizeof(*runs));
    size_t *started = NULL;
    const void **srcs = NULL;
    int code;

    if (runs) {
        exec->runs = runs;
        started = grow(exec->started, &exec->room.started, exec->want.started, sizeof(*started));
    }
    if (started) {
        exec->started = started;
        srcs = grow(exec->srcs, &exec->room.srcs, exec->want.srcs, sizeof(*srcs));
    }
    if (!srcs)
        return err_set(HETMPI_ERR_MEMORY, "no memory to run a schedule of %zu steps", exec->want.started - 1);
    exec->srcs = srcs;
    code = grow_events(exec);
    return code ? code : grow_scratch(exec);
}

void exec_ended(struct exec *exec)
{
    exec->running = false;
    fit(exec);   /* an error is found again, and told, by the run that needs the memory */
}

static int want_exec(struct comm *comm)
{
    struct exec *exec = comm->exec;

    if (exec)
        return HETMPI_SUCCESS;
    exec = calloc(1, sizeof(*exec));
    if (exec)
        exec->counts = malloc((size_t)comm->size * sizeof(*exec->counts));
    if (!exec || !exec->counts) {
        free(exec);
        return err_set(HETMPI_ERR_MEMORY, "no memory to run a collective");
    }
    comm->exec = exec;
    return HETMPI_SUCCESS;
}

/* The provider, and the wires that the schedule uses. A wire that cannot be opened is told by the message that needs it:
 * with few elements there may be none. */
static int open_paths(struct comm *comm, const struct exec_plan *plan)
{
    struct wire *wire;
    size_t messages = 0;
    int code = HETMPI_SUCCESS;

    for (int i = 0; i < plan->sched->n_steps; i++) {
        const struct sched_step *step = &plan->sched->steps[i];
        if (step->kind == STEP_SEND || step->kind == STEP_RECV) {
            wire_for(comm, step->peer, &wire);
            messages += (size_t)plan->window;
        }
    }
    struct wire *opened[] = {comm->wire_shm, comm->wire_ipc, comm->wire_mpi, comm->wire_verbs};
    for (size_t w = 0; w < sizeof(opened) / sizeof(opened[0]) && !code; w++) {
        wire = opened[w];
        if (wire && wire->ops->reserve)
            code = wire->ops->reserve(wire, messages);
    }
    return code || plan->pairs ? code : open_island(comm);
}

static int plan_one(struct comm *comm, const struct call *call, struct exec_plan **out)
{
    struct exec_plan *plan = calloc(1, sizeof(*plan));
    int code;

    if (!plan)
        return err_set(HETMPI_ERR_MEMORY, "no memory to plan a collective");
    code = want_exec(comm);
    if (!code)
        code = make_plan(comm, call, plan);
    if (code)
        goto free_plan;
    if (mem_has_device())
        raise_to(&comm->exec->want.events, most_events(plan));
    if (!comm->exec->running)
        code = fit(comm->exec);
    if (!code)
        code = open_paths(comm, plan);
    if (code)
        goto free_plan;
    *out = plan;
    return HETMPI_SUCCESS;

free_plan:
    exec_plan_free(plan);
    return code;
}

int exec_plan_make(struct comm *comm, const struct call *call, struct exec_plan **out)
{
    struct call assumed = *call;
    int code;

    if (!pairs_tell(comm, call->kind))
        return plan_one(comm, call, out);
    /* Only the meeting will tell the counts: room for the longest blocks that there can be, and for those that go straight. */
    assumed.counts[SIDE_SEND] = assumed.counts[SIDE_RECV] = NULL;
    assumed.count = SIZE_MAX / 2 / (red_size(call->type) * (size_t)comm->size);
    code = plan_one(comm, &assumed, out);
    if (code)
        return code;
    assumed.count = STRAIGHT_MAX / red_size(call->type);
    code = plan_one(comm, &assumed, &(*out)->brief);
    if (code) {
        exec_plan_free(*out);
        *out = NULL;
    }
    return code;
}

void exec_plan_free(struct exec_plan *plan)
{
    if (!plan)
        return;
    exec_plan_free(plan->brief);
    sched_free(plan->sched);
    free(plan->scratch_at);
    free(plan);
}

/* All ranks' counts, from the meeting: from here on the call is like one that all ranks made with them. */
static void learn_counts(const struct comm *comm, struct exec *exec)
{
    exec->call.count = pairs_told(comm, exec->number, exec->counts);
    exec->call.counts[SIDE_SEND] = exec->call.counts[SIDE_RECV] = exec->counts;
}

int exec_begin(struct comm *comm, const struct call *call, const struct exec_plan *plan, uint64_t number)
{
    struct exec *exec;
    size_t n;
    int code = want_exec(comm);

    if (code)
        return code;
    exec = comm->exec;
    exec->call = *call;
    exec->number = number;
    if (pairs_tell(comm, call->kind))
        learn_counts(comm, exec);
    if (plan && plan->brief && goes_straight(comm, &exec->call))
        plan = plan->brief;
    if (!plan) {
        code = make_plan(comm, &exec->call, &exec->own);
        if (!code && !exec->own.pairs)
            code = open_island(comm);
        plan = &exec->own;
    }
    if (!code)
        code = fit(exec);
    if (code)
        return code;
    exec->running = true;
    exec->sched = plan->sched;
    exec->element = red_size(call->type);
    /* A plan that was made before the counts were known has room for at least these. */
    exec->chunk = choose_chunk(comm, &exec->call, plan->pairs);
    exec->chunks = sched_chunks(exec->call.count, exec->chunk);
    exec->window = choose_window(comm, exec->chunks);
    exec->delay = exec->window / 2;
    exec->scratch_slot = plan->scratch_slot;
    exec->scratch_at = plan->scratch_at;
    exec->scale_straight = plan->scale_straight;
    exec->aside = plan->aside ? exec->scratch + plan->aside_at : NULL;
    exec->slots = exec->slot_array;
    n = (size_t)exec->sched->n_steps;
    memset(exec->started, 0, n * sizeof(*exec->started));
    for (int s = 0; s < exec->window; s++)
        exec->slots[s].runs = exec->runs + (size_t)s * n;
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
