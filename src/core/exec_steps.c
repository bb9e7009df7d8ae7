/* The steps of a run: where their memory stands, starting them, and seeing that they are done. */
#include <stdlib.h>

#include "core/exec.h"
#include "core/log.h"
#include "hetmpi.h"

static struct sched_view view_of(const struct comm *comm, const struct exec *exec, const struct sched_ref *ref,
                                 size_t chunk)
{
    const struct topo *topo = &comm->topo;
    struct sched_view view = {.element = ref_element(exec, ref), .chunk_first = chunk * exec->chunk,
                              .L = chunk_length(exec, chunk), .count = exec->call.count};
    size_t length;
    int side = ref->buffer == BUF_SEND ? SIDE_SEND : SIDE_RECV;

    if (ref->range.space == SPACE_BLOCKS)
        view.ranks = topo->members + topo->island_first[ref->range.island];
    view.counts = exec->call.counts[side];
    view.displs = exec->call.displs[side];
    switch (ref->buffer) {
    case BUF_SEND:
        view.base = (char *)(uintptr_t)exec->call.send;
        view.layout = exec->sched->send_layout;
        break;
    case BUF_RECV:
        view.base = exec->aside ? exec->aside : exec->call.recv;
        view.layout = exec->sched->recv_layout;
        break;
    default:
        view.base = exec->scratch + exec->scratch_slot * (chunk % (size_t)exec->window) + exec->scratch_at[ref->scratch];
        view.layout = LAYOUT_NONE;
        struct sched_chunk c = chunk_for(exec, BUF_SCRATCH, chunk);
        sched_range_at(topo, &exec->sched->scratch[ref->scratch].range, &c, &view.first, &length);
    }
    return view;
}

int exec_take_event(struct exec *exec, mem_event_t **event)
{
    if (exec->n_events) {
        *event = exec->events[--exec->n_events];
        return HETMPI_SUCCESS;
    }
    return mem_event_create(event);
}

void exec_give_event(struct exec *exec, mem_event_t *event)
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

int exec_want_stream(mem_stream_t **stream)
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
    size_t first, length, at, run;
    const void *few[RED_MAX_INPUTS], **srcs = few;
    struct sched_view in, out = view_of(comm, exec, &step->out, chunk);
    const struct sched_ref *refs = exec->sched->refs + step->first_in;
    struct red_call call = {.type = exec->call.type, .op = exec->call.op, .n = (uint32_t)step->n_in,
                            .src_wide = ref_element(exec, refs) != exec->element,
                            .dst_wide = ref_element(exec, &step->out) != exec->element,
                            .divide_by = step->final && exec->call.op == RED_AVG ? (uint32_t)comm->size : 0};
    int code = exec_want_stream(&exec->reduce_stream);

    if (step->n_in > RED_MAX_INPUTS)
        srcs = exec->srcs;
    range_of(comm, exec, &step->out, chunk, &first, &length);
    for (at = 0; at < length && !code; at += run) {
        run = sched_view_run(&out, first + at, length - at, &call.dst);
        for (int i = 0; i < step->n_in; i++) {
            size_t begin, all, here;
            void *address;
            in = view_of(comm, exec, &refs[i], chunk);
            range_of(comm, exec, &refs[i], chunk, &begin, &all);
            here = sched_view_run(&in, begin + at, run, &address);
            srcs[i] = address;
            run = here < run ? here : run;
        }
        call.srcs = srcs;
        call.count = run;
        code = reduce_run(exec, chunk, &call);
    }
    return code;
}

/* The staging copy of a premultiplied sum. */
static int copy_scaled(struct exec *exec, void *dst, const void *src, size_t count)
{
    struct red_call call = {.type = exec->call.type, .n = 1, .srcs = &src, .dst = dst, .count = count,
                            .scale = exec->call.scale};
    int code;

    if (!exec->scale_straight) {
        code = mem_copy_async(dst, src, count * exec->element, exec->copy_stream);
        if (code)
            return code;
        src = dst;
    }
    return mem_reduce_async(&call, exec->copy_stream);
}

static int start_copy(struct comm *comm, struct exec *exec, const struct sched_step *step, size_t chunk)
{
    size_t from, to, length, run, at;
    struct sched_view in = view_of(comm, exec, &step->in, chunk), out = view_of(comm, exec, &step->out, chunk);
    void *src, *dst;
    bool scale = exec->call.premul && step->in.buffer == BUF_SEND;
    int code = exec_want_stream(&exec->copy_stream);

    range_of(comm, exec, &step->in, chunk, &from, &length);
    range_of(comm, exec, &step->out, chunk, &to, &length);
    for (at = 0; at < length && !code; at += run) {
        run = sched_view_run(&in, from + at, length - at, &src);
        run = sched_view_run(&out, to + at, run, &dst);
        if (scale)
            code = copy_scaled(exec, dst, src, run);
        else if (src != dst)
            code = mem_copy_async(dst, src, run * in.element, exec->copy_stream);
    }
    return code;
}

/* Work on a stream of ours: done at once without a device, else when an event says so. */
int exec_start_on_stream(struct comm *comm, struct exec *exec, const struct sched_step *step, size_t chunk,
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
    code = exec_take_event(exec, &run->event);
    if (!code)
        code = mem_event_record(run->event, step->kind == STEP_REDUCE ? exec->reduce_stream : exec->copy_stream);
    run->state = RUN_STARTED;
    return code;
}

int exec_start_message(struct comm *comm, struct exec *exec, const struct sched_step *step, size_t chunk,
                       struct step_run *run)
{
    const struct sched_ref *ref = step->kind == STEP_SEND ? &step->in : &step->out;
    struct wire_xfer *xfer = &run->xfer;
    int code;

    memset(xfer, 0, sizeof(*xfer));
    range_of(comm, exec, ref, chunk, &xfer->first, &xfer->length);
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

int exec_start_local(struct comm *comm, struct exec *exec, const struct sched_step *step, size_t chunk,
                     struct step_run *run)
{
    struct island_op *op = &run->local;
    int code;

    memset(op, 0, sizeof(*op));
    op->number = comm->local_ops;
    op->step = step;
    op->chunk = chunk_for(exec, BUF_RECV, chunk);
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

int exec_poll_step(struct comm *comm, struct exec *exec, const struct sched_step *step, struct step_run *run)
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
            exec_give_event(exec, run->event);
            run->event = NULL;
        }
    }
    if (done)
        run->state = RUN_DONE;
    return code;
}
