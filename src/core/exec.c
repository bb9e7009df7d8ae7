/*
 * Running a schedule: keeps a window of chunks in flight, starts each step as soon as what it depends on is done and
 * its resources are free, and polls what was started. Nothing here blocks; memory is taken when a communicator first
 * needs it and kept.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/engine.h"
#include "core/log.h"
#include "core/proc.h"
#include "hetmpi.h"
#include "island/island.h"
#include "wire/wire.h"

#define CHUNK_MIN (32u << 10)
#define WINDOW_HOST 8
#define WINDOW_DEVICE 16    /* work on a device is known to be done only when it is asked for */
#define WINDOW_MAX 64
#define CACHE_ENTRIES 32

/* Messages refused in one pass: no later message of the same direction and peer may go before them. */
struct refusals {
    int n;                     /* more than fit: everything counts as refused */
    struct { uint8_t kind; int32_t peer; } list[16];
};

enum run_state { RUN_WAITING, RUN_STARTED, RUN_DONE };

/* One step of one chunk in flight. */
struct step_run {
    uint8_t state;
    struct wire *wire;
    mem_event_t *event;
    union {
        struct wire_xfer xfer;
        struct island_op local;
    };
};

struct slot { int left; struct step_run *runs; };

struct sched_cache {
    struct { struct sched_call key; struct sched *sched; } entries[CACHE_ENTRIES];
    int used, next;
};

struct exec {
    struct call call;
    uint64_t number;
    const struct sched *sched;
    size_t element, chunk, chunks;   /* chunk: elements */
    int window, delay;
    size_t first, opened;            /* chunks first .. opened-1 are in flight, chunk c in slots[c % window] */
    struct slot *slots;
    struct step_run *runs;
    size_t runs_room;
    size_t *started;                 /* [n_steps] how many chunks have started the step: they start in order */
    size_t started_room;
    struct sched_cursor cursor;      /* local steps, in the island's order */
    bool cursor_valid;
    size_t cursor_chunk;
    int cursor_step;
    char *scratch;                   /* window copies of all scratch ranges */
    size_t scratch_room, scratch_slot;
    size_t *scratch_at;              /* [n_scratch + 1] offset in a slot's copy; the last: groups of large reductions */
    size_t scratch_at_room;
    mem_stream_t *reduce_stream, *copy_stream;
    mem_event_t **events;            /* idle ones */
    int n_events, events_room;
    struct slot slot_array[WINDOW_MAX];
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
    bool blocks = call->kind == COLL_ALLGATHER || call->kind == COLL_REDUCE_SCATTER_BLOCK;

    return red_size(call->type) * (blocks ? (size_t)largest_island(&comm->topo) : 1);
}

/* Most bytes of a virtual vector of one chunk; room for at least one element of any type, whatever the setting. */
static size_t slot_bytes(const struct comm *comm)
{
    size_t least = 16 * (size_t)largest_island(&comm->topo);

    return comm->chunk_max > least ? comm->chunk_max : least;
}

/* Elements of a chunk: the same on all ranks. Large enough to be worth a step, small enough that filling and draining
 * the pipeline is a small part of the whole. */
static size_t choose_chunk(const struct comm *comm, const struct call *call)
{
    size_t each = space_element(comm, call), total = call->count * each, bytes, elements;

    if (comm->cfg->chunk) {
        bytes = comm->cfg->chunk;
    } else {
        bytes = comm->topo.islands == 1 ? comm->chunk_max / 2 : total / 64;
        if (bytes > total / 4 && comm->topo.islands == 1)
            bytes = total / 4;
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

static size_t chunk_length(const struct exec *exec, size_t chunk)
{
    size_t left = exec->call.count - chunk * exec->chunk;

    return left < exec->chunk ? left : exec->chunk;
}

static size_t ref_element(const struct exec *exec, const struct sched_ref *ref)
{
    if (ref->buffer == BUF_SCRATCH && exec->sched->scratch[ref->scratch].wide)
        return red_wide_size(exec->call.type);
    return exec->element;
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

/* Places of the scratch ranges in a slot, for the longest chunk and for the last. */
static int lay_out_scratch(struct comm *comm, struct exec *exec)
{
    const struct sched *sched = exec->sched;
    size_t at = 0, first, length, last, need, groups = 0, *places;

    places = grow(exec->scratch_at, &exec->scratch_at_room, (size_t)sched->n_scratch + 1, sizeof(*places));
    if (!places)
        return err_set(HETMPI_ERR_MEMORY, "no memory for a schedule of %d scratch ranges", sched->n_scratch);
    exec->scratch_at = places;
    for (int s = 0; s < sched->n_scratch; s++) {
        size_t each = sched->scratch[s].wide ? red_wide_size(exec->call.type) : exec->element;
        sched_range_at(&comm->topo, &sched->scratch[s].range, exec->chunk, &first, &length);
        sched_range_at(&comm->topo, &sched->scratch[s].range, chunk_length(exec, exec->chunks - 1), &first, &last);
        places[s] = at;
        at += ((length > last ? length : last) * each + 255) / 256 * 256;
    }
    places[sched->n_scratch] = at;
    for (int i = 0; i < sched->n_steps; i++) {
        const struct sched_step *step = &sched->steps[i];
        if (step->kind != STEP_REDUCE || step->n_in <= RED_MAX_INPUTS)
            continue;
        sched_range_at(&comm->topo, &step->out.range, exec->chunk, &first, &length);
        sched_range_at(&comm->topo, &step->out.range, chunk_length(exec, exec->chunks - 1), &first, &last);
        need = (size_t)((step->n_in + RED_MAX_INPUTS - 1) / RED_MAX_INPUTS) * (length > last ? length : last) *
               red_wide_size(exec->call.type);
        groups = need > groups ? need : groups;
    }
    exec->scratch_slot = at + (groups + 255) / 256 * 256;
    need = exec->scratch_slot * (size_t)exec->window;
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
    return HETMPI_SUCCESS;
}

static void next_local(struct exec *exec)
{
    exec->cursor_valid = sched_cursor_next(exec->sched, exec->chunks, exec->delay, &exec->cursor, &exec->cursor_chunk,
                                           &exec->cursor_step);
}

/* Is the buffer one that kernels on this rank's device may not touch? Host memory may be registered in part. */
static bool needs_staging(const void *buffer, size_t bytes)
{
    struct mem_pointer what;

    if (!mem_has_device() || !buffer)
        return false;
    mem_query(buffer, &what);
    return what.kind == MEM_HOST ||
           (what.kind == MEM_HOST_PINNED && (size_t)((const char *)buffer - (const char *)what.base) + bytes > what.bytes);
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
    size_t bytes = call->count * red_size(call->type), all = bytes * (size_t)comm->size;
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
    key.exact = comm->cfg->wire_precision == CFG_PRECISION_EXACT && red_wide_size(call->type) != red_size(call->type);
    key.in_place = call->in_place;
    key.stage_send = needs_staging(call->send, call->kind == COLL_REDUCE_SCATTER_BLOCK ? all : bytes);
    key.stage_recv = needs_staging(call->recv, call->kind == COLL_ALLGATHER ? all : bytes);
    code = find_sched(comm, &key, &exec->sched);
    if (!code)
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
    next_local(exec);
    return HETMPI_SUCCESS;
}

static struct step_run *run_of(const struct exec *exec, size_t chunk, int step)
{
    return &exec->slots[chunk % (size_t)exec->window].runs[step];
}

static void open_chunks(struct exec *exec)
{
    while (exec->opened < exec->chunks && exec->opened < exec->first + (size_t)exec->window) {
        struct slot *slot = &exec->slots[exec->opened % (size_t)exec->window];
        slot->left = exec->sched->n_steps;
        for (int i = 0; i < exec->sched->n_steps; i++)
            slot->runs[i].state = RUN_WAITING;
        exec->opened++;
    }
}

static bool deps_done(const struct exec *exec, size_t chunk, const struct sched_step *step)
{
    for (int d = 0; d < 3; d++)
        for (int i = step->deps[d].first; i < step->deps[d].last; i++)
            if (run_of(exec, chunk, i)->state != RUN_DONE)
                return false;
    return true;
}

static struct sched_view view_of(const struct comm *comm, const struct exec *exec, const struct sched_ref *ref,
                                 size_t chunk)
{
    const struct topo *topo = &comm->topo;
    struct sched_view view = {.element = ref_element(exec, ref), .chunk_first = chunk * exec->chunk,
                              .L = chunk_length(exec, chunk), .count = exec->call.count};
    size_t length;

    if (ref->range.space == SPACE_BLOCKS)
        view.ranks = topo->members + topo->island_first[ref->range.island];
    switch (ref->buffer) {
    case BUF_SEND:
        view.base = (char *)(uintptr_t)exec->call.send;
        view.layout = exec->sched->send_layout;
        break;
    case BUF_RECV:
        view.base = exec->call.recv;
        view.layout = exec->sched->recv_layout;
        break;
    default:
        view.base = exec->scratch + exec->scratch_slot * (chunk % (size_t)exec->window) + exec->scratch_at[ref->scratch];
        view.layout = LAYOUT_NONE;
        sched_range_at(topo, &exec->sched->scratch[ref->scratch].range, view.L, &view.first, &length);
    }
    return view;
}

static int take_event(struct exec *exec, mem_event_t **event)
{
    if (exec->n_events) {
        *event = exec->events[--exec->n_events];
        return HETMPI_SUCCESS;
    }
    return mem_event_create(event);
}

static void give_event(struct exec *exec, mem_event_t *event)
{
    if (exec->n_events == exec->events_room) {
        int room = exec->events_room ? 2 * exec->events_room : 64;
        mem_event_t **larger = realloc(exec->events, (size_t)room * sizeof(mem_event_t *));
        if (!larger) {
            mem_event_destroy(event);
            return;
        }
        exec->events = larger;
        exec->events_room = room;
    }
    exec->events[exec->n_events++] = event;
}

static int want_stream(mem_stream_t **stream)
{
    return *stream || !mem_has_device() ? HETMPI_SUCCESS : mem_stream_create(stream);
}

/* One reduction of `count` elements over contiguous operands. More inputs than a kernel takes are combined in groups,
 * in order, over wide partial results. */
static int reduce_run(struct exec *exec, size_t chunk, const struct red_call *call)
{
    struct red_call part = *call;
    char *groups = exec->scratch + exec->scratch_slot * (chunk % (size_t)exec->window) +
                   exec->scratch_at[exec->sched->n_scratch];
    size_t stride = call->count * red_wide_size(call->type);
    const void *partials[RED_MAX_INPUTS];
    uint32_t n_groups = 0;
    int code;

    if (call->n <= RED_MAX_INPUTS)
        return mem_reduce_async(call, exec->reduce_stream);
    if (call->n > RED_MAX_INPUTS * RED_MAX_INPUTS)
        return err_set(HETMPI_ERR_UNSUPPORTED, "a reduction over %u islands: at most %d", call->n,
                       RED_MAX_INPUTS * RED_MAX_INPUTS);
    part.dst_wide = true;
    part.divide_by = 0;
    for (uint32_t at = 0; at < call->n; at += RED_MAX_INPUTS) {
        part.srcs = call->srcs + at;
        part.n = call->n - at < RED_MAX_INPUTS ? call->n - at : RED_MAX_INPUTS;
        part.dst = groups + stride * n_groups;
        partials[n_groups++] = part.dst;
        code = mem_reduce_async(&part, exec->reduce_stream);
        if (code)
            return code;
    }
    part = *call;
    part.src_wide = true;
    part.srcs = partials;
    part.n = n_groups;
    return mem_reduce_async(&part, exec->reduce_stream);
}

static int start_reduce(struct comm *comm, struct exec *exec, const struct sched_step *step, size_t chunk)
{
    size_t L = chunk_length(exec, chunk), first, length, at, run;
    const void *few[RED_MAX_INPUTS], **srcs = few;
    struct sched_view in, out = view_of(comm, exec, &step->out, chunk);
    const struct sched_ref *refs = exec->sched->refs + step->first_in;
    struct red_call call = {.type = exec->call.type, .op = exec->call.op, .n = (uint32_t)step->n_in,
                            .src_wide = ref_element(exec, refs) != exec->element,
                            .dst_wide = ref_element(exec, &step->out) != exec->element,
                            .divide_by = step->final && exec->call.op == RED_AVG ? (uint32_t)comm->size : 0};
    int code = want_stream(&exec->reduce_stream);

    if (step->n_in > RED_MAX_INPUTS) {
        srcs = malloc((size_t)step->n_in * sizeof(*srcs));
        if (!srcs)
            return err_set(HETMPI_ERR_MEMORY, "no memory for a reduction of %d inputs", step->n_in);
    }
    sched_range_at(&comm->topo, &step->out.range, L, &first, &length);
    for (at = 0; at < length && !code; at += run) {
        run = sched_view_run(&out, first + at, length - at, &call.dst);
        for (int i = 0; i < step->n_in; i++) {
            size_t begin, all, here;
            void *address;
            in = view_of(comm, exec, &refs[i], chunk);
            sched_range_at(&comm->topo, &refs[i].range, L, &begin, &all);
            here = sched_view_run(&in, begin + at, run, &address);
            srcs[i] = address;
            run = here < run ? here : run;
        }
        call.srcs = srcs;
        call.count = run;
        code = reduce_run(exec, chunk, &call);
    }
    if (srcs != few)
        free(srcs);
    return code;
}

static int start_copy(struct comm *comm, struct exec *exec, const struct sched_step *step, size_t chunk)
{
    size_t L = chunk_length(exec, chunk), from, to, length, run, at;
    struct sched_view in = view_of(comm, exec, &step->in, chunk), out = view_of(comm, exec, &step->out, chunk);
    void *src, *dst;
    int code = want_stream(&exec->copy_stream);

    sched_range_at(&comm->topo, &step->in.range, L, &from, &length);
    sched_range_at(&comm->topo, &step->out.range, L, &to, &length);
    for (at = 0; at < length && !code; at += run) {
        run = sched_view_run(&in, from + at, length - at, &src);
        run = sched_view_run(&out, to + at, run, &dst);
        code = src == dst ? HETMPI_SUCCESS : mem_copy_async(dst, src, run * in.element, exec->copy_stream);
    }
    return code;
}

/* Work on a stream of ours: done at once without a device, else when an event says so. */
static int start_on_stream(struct comm *comm, struct exec *exec, const struct sched_step *step, size_t chunk,
                           struct step_run *run)
{
    int code = step->kind == STEP_REDUCE ? start_reduce(comm, exec, step, chunk) : start_copy(comm, exec, step, chunk);

    if (code)
        return code;
    if (!mem_has_device()) {
        run->state = RUN_DONE;
        return HETMPI_SUCCESS;
    }
    run->event = NULL;
    code = take_event(exec, &run->event);
    if (!code)
        code = mem_event_record(run->event, step->kind == STEP_REDUCE ? exec->reduce_stream : exec->copy_stream);
    run->state = RUN_STARTED;
    return code;
}

static int start_message(struct comm *comm, struct exec *exec, const struct sched_step *step, size_t chunk,
                         struct step_run *run)
{
    const struct sched_ref *ref = step->kind == STEP_SEND ? &step->in : &step->out;
    struct wire_xfer *xfer = &run->xfer;
    int code;

    memset(xfer, 0, sizeof(*xfer));
    sched_range_at(&comm->topo, &ref->range, chunk_length(exec, chunk), &xfer->first, &xfer->length);
    if (!xfer->length) {
        run->state = RUN_DONE;
        return HETMPI_SUCCESS;
    }
    code = wire_for(comm, step->peer, &run->wire);
    if (code)
        return code;
    xfer->peer = step->peer;
    xfer->op = exec->number;
    xfer->chunk = (uint32_t)chunk;
    xfer->channel = step->channel;
    xfer->view = view_of(comm, exec, ref, chunk);
    xfer->ops = run->wire->ops;
    code = step->kind == STEP_SEND ? xfer->ops->send(run->wire, xfer) : xfer->ops->recv(run->wire, xfer);
    if (!code)
        run->state = RUN_STARTED;
    return code;
}

static int start_local(struct comm *comm, struct exec *exec, const struct sched_step *step, size_t chunk,
                       struct step_run *run)
{
    struct island_op *op = &run->local;
    int code;

    memset(op, 0, sizeof(*op));
    op->number = comm->local_ops;
    op->step = step;
    op->L = chunk_length(exec, chunk);
    op->in = view_of(comm, exec, &step->in, chunk);
    op->out = view_of(comm, exec, &step->out, chunk);
    op->type = exec->call.type;
    op->op = exec->call.op;
    op->out_wide = op->out.element != exec->element;
    op->divide_by = step->final && exec->call.op == RED_AVG ? (uint32_t)comm->size : 0;
    code = comm->island->ops->start(comm->island, op);
    if (code)
        return code;
    comm->local_ops++;
    run->state = RUN_STARTED;
    return HETMPI_SUCCESS;
}

static int poll_step(struct comm *comm, struct exec *exec, const struct sched_step *step, struct step_run *run)
{
    bool done = false;
    int code;

    switch (step->kind) {
    case STEP_SEND:
    case STEP_RECV:
        code = run->xfer.ops->poll(run->wire, &run->xfer, &done);
        break;
    case STEP_LOCAL_REDUCE:
    case STEP_LOCAL_SPREAD:
        code = comm->island->ops->poll(comm->island, &run->local, &done);
        break;
    default:
        code = mem_event_query(run->event, &done);
        if (done || code) {
            give_event(exec, run->event);
            run->event = NULL;
        }
    }
    if (done)
        run->state = RUN_DONE;
    return code;
}

static bool is_local(const struct sched_step *step)
{
    return step->kind == STEP_LOCAL_REDUCE || step->kind == STEP_LOCAL_SPREAD;
}

/* Starts local steps in the island's order, as far as they can be. */
static int start_locals(struct comm *comm, struct exec *exec, bool *moved)
{
    while (exec->cursor_valid && exec->cursor_chunk < exec->opened) {
        const struct sched_step *step = &exec->sched->steps[exec->cursor_step];
        struct step_run *run = run_of(exec, exec->cursor_chunk, exec->cursor_step);
        int code;

        if (!deps_done(exec, exec->cursor_chunk, step))
            return HETMPI_SUCCESS;
        code = start_local(comm, exec, step, exec->cursor_chunk, run);
        if (code == COMM_AGAIN)
            return HETMPI_SUCCESS;
        if (code)
            return code;
        *moved = true;
        next_local(exec);
    }
    return HETMPI_SUCCESS;
}

static bool was_refused(const struct refusals *refused, const struct sched_step *step)
{
    const int room = (int)(sizeof(refused->list) / sizeof(refused->list[0]));

    for (int i = 0; i < refused->n && i < room; i++)
        if (refused->list[i].kind == step->kind && refused->list[i].peer == step->peer)
            return true;
    return refused->n > room;
}

static void note_refusal(struct refusals *refused, const struct sched_step *step)
{
    if (refused->n < (int)(sizeof(refused->list) / sizeof(refused->list[0]))) {
        refused->list[refused->n].kind = step->kind;
        refused->list[refused->n].peer = step->peer;
    }
    refused->n++;
}

/* Starts or polls one step of an open chunk. */
static int advance(struct comm *comm, struct exec *exec, size_t chunk, int index, struct refusals *refused, bool *moved)
{
    const struct sched_step *step = &exec->sched->steps[index];
    struct step_run *run = run_of(exec, chunk, index);
    uint8_t before = run->state;
    int code = HETMPI_SUCCESS;

    if (before == RUN_WAITING) {
        bool message = step->kind == STEP_SEND || step->kind == STEP_RECV;

        if (is_local(step) || exec->started[index] != chunk || !deps_done(exec, chunk, step))
            return HETMPI_SUCCESS;
        if (message && refused->n && was_refused(refused, step))
            return HETMPI_SUCCESS;
        code = message ? start_message(comm, exec, step, chunk, run) : start_on_stream(comm, exec, step, chunk, run);
        if (code == COMM_AGAIN) {
            note_refusal(refused, step);
            return HETMPI_SUCCESS;
        }
        if (code)
            return code;
        exec->started[index]++;
    }
    if (run->state == RUN_STARTED)
        code = poll_step(comm, exec, step, run);
    if (run->state != before) {
        *moved = true;
        if (run->state == RUN_DONE)
            exec->slots[chunk % (size_t)exec->window].left--;
    }
    return code;
}

/* For other ranks' reports. */
static void publish_status(struct comm *comm, const struct exec *exec)
{
    struct ctl_status *status = comm->ctl ? &comm->ctl->status : NULL;
    int peer = -1, phase = PHASE_ISLAND_REDUCE;

    if (!status)
        return;
    for (int i = 0; i < exec->sched->n_steps && exec->first < exec->opened; i++)
        if (run_of(exec, exec->first, i)->state != RUN_DONE) {
            const struct sched_step *step = &exec->sched->steps[i];
            phase = step->phase;
            if (step->kind == STEP_SEND || step->kind == STEP_RECV)
                peer = step->peer;
            break;
        }
    atomic_store_explicit(&status->call, exec->number, memory_order_relaxed);
    atomic_store_explicit(&status->phase, (uint32_t)phase, memory_order_relaxed);
    atomic_store_explicit(&status->chunk, exec->first, memory_order_relaxed);
    atomic_store_explicit(&status->waits_for, peer, memory_order_relaxed);
}

int exec_poll(struct comm *comm, bool *moved, bool *done)
{
    struct exec *exec = comm->exec;
    struct refusals refused = {.n = 0};
    size_t first = exec->first;
    int code;

    open_chunks(exec);
    code = start_locals(comm, exec, moved);
    for (size_t chunk = exec->first; chunk < exec->opened && !code; chunk++)
        for (int i = 0; i < exec->sched->n_steps && !code; i++)
            if (run_of(exec, chunk, i)->state != RUN_DONE)
                code = advance(comm, exec, chunk, i, &refused, moved);
    if (code)
        return code;
    while (exec->first < exec->opened && exec->slots[exec->first % (size_t)exec->window].left == 0)
        exec->first++;
    if (exec->first != first || !*moved)
        publish_status(comm, exec);
    *done = exec->first == exec->chunks;
    return HETMPI_SUCCESS;
}

void exec_describe(const struct comm *comm, char *text, size_t bytes)
{
    const struct exec *exec = comm->exec;
    static const char *const what[] = {"reduction in the island", "spreading in the island", "sends to", "receives from",
                                       "reduction", "copy"};

    text[0] = '\0';
    if (!exec || !exec->sched || exec->first >= exec->opened)
        return;
    for (int i = 0; i < exec->sched->n_steps; i++) {
        const struct sched_step *step = &exec->sched->steps[i];
        if (run_of(exec, exec->first, i)->state == RUN_DONE)
            continue;
        if (step->kind == STEP_SEND || step->kind == STEP_RECV)
            snprintf(text, bytes, "%s, chunk %zu of %zu, %s rank %d over the %s wire", sched_phase_name(step->phase),
                     exec->first, exec->chunks, what[step->kind], step->peer, wire_name_for(comm, step->peer));
        else
            snprintf(text, bytes, "%s, chunk %zu of %zu, %s", sched_phase_name(step->phase), exec->first, exec->chunks,
                     what[step->kind]);
        return;
    }
}

static void end_stream(mem_stream_t **stream)
{
    if (*stream)
        mem_stream_destroy(*stream);   /* finishes its work first */
    *stream = NULL;
}

void exec_stop(struct comm *comm)
{
    struct exec *exec = comm->exec;

    if (!exec)
        return;
    end_stream(&exec->reduce_stream);
    end_stream(&exec->copy_stream);
    for (size_t chunk = exec->first; chunk < exec->opened; chunk++)
        for (int i = 0; i < exec->sched->n_steps; i++) {
            const struct sched_step *step = &exec->sched->steps[i];
            struct step_run *run = run_of(exec, chunk, i);
            if (run->state == RUN_STARTED && (step->kind == STEP_REDUCE || step->kind == STEP_COPY) && run->event)
                give_event(exec, run->event);
        }
    exec->first = exec->opened = 0;
}

void exec_release(struct comm *comm)
{
    struct exec *exec = comm->exec;

    if (comm->cache)
        for (int i = 0; i < comm->cache->used; i++)
            sched_free(comm->cache->entries[i].sched);
    free(comm->cache);
    comm->cache = NULL;
    if (!exec)
        return;
    end_stream(&exec->reduce_stream);
    end_stream(&exec->copy_stream);
    for (int i = 0; i < exec->n_events; i++)
        mem_event_destroy(exec->events[i]);
    if (exec->scratch)
        mem_free(exec->scratch);
    free(exec->events);
    free(exec->runs);
    free(exec->started);
    free(exec->scratch_at);
    free(exec);
    comm->exec = NULL;
}
