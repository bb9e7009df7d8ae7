/*
 * Work of the simulated device: copies, kernels (reductions), values in host memory. Operands are checked and pinned
 * down when the work is queued; the stream's thread then does the work on the runtime's own mapping, and lets it take
 * the time that the model says:
 *
 *   device <-> host    the host link, one lane each way
 *   other process's device memory    the lane to or from that process
 *   all else           as fast as this machine is
 * and the latency on top, which takes no time of a lane: the next transfer on the same lane may follow at once, all
 * other work of the stream waits for it.
 */
#include "mem/sim.h"

#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "hetmpi.h"

#define SIDES_ALL (1u << SIDE_HOST | 1u << SIDE_PINNED | 1u << SIDE_DEVICE | 1u << SIDE_PEER)
#define SIDES_KERNEL (1u << SIDE_PINNED | 1u << SIDE_DEVICE | 1u << SIDE_PEER)
#define SIDES_WORD (1u << SIDE_PINNED)

static bool on_host(const struct sim_place *place)
{
    return place->side == SIDE_HOST || place->side == SIDE_PINNED;
}

/* Books a lane for an operation: when its last byte is over, and whether another lane was booked before. */
struct booking { int64_t ready, end; const struct sim_lane *lane; int lanes; };

static void book(struct booking *booking, struct sim_lane *lane, size_t bytes)
{
    int64_t end;

    if (lane->bandwidth <= 0)
        return;
    end = sim_lane_book(lane, booking->ready, bytes);
    if (end > booking->end)
        booking->end = end;
    booking->lane = lane;
    booking->lanes++;
}

/* The lane that a copy goes over; of several the slower end counts. */
static struct sim_lane *host_lane_of_copy(const struct sim_place *dst, const struct sim_place *src)
{
    if (on_host(dst) && !on_host(src))
        return &sim.to_host;
    if (!on_host(dst) && on_host(src))
        return &sim.to_device;
    return NULL;
}

static void book_copy(struct booking *booking, const struct sim_op *op)
{
    struct sim_lane *host = host_lane_of_copy(&op->dst, &op->src);

    if (host)
        book(booking, host, op->bytes);
    if (op->src.side == SIDE_PEER)
        book(booking, &op->src.block->peer->read, op->bytes);
    if (op->dst.side == SIDE_PEER)
        book(booking, &op->dst.block->peer->write, op->bytes);
}

/* A kernel's loads and stores of memory that is not its own device's. */
static void book_kernel(struct booking *booking, const struct sim_op *op)
{
    for (uint32_t i = 0; i < op->call.n; i++) {
        const struct sim_place *place = &op->inputs->place[i];

        if (place->side == SIDE_PEER)
            book(booking, &place->block->peer->read, op->src_bytes);
        else if (on_host(place))
            book(booking, &sim.to_device, op->src_bytes);
    }
    if (op->dst.side == SIDE_PEER)
        book(booking, &op->dst.block->peer->write, op->bytes);
    else if (on_host(&op->dst))
        book(booking, &sim.to_host, op->bytes);
}

/* When an operation can begin in the model: it does not wait for the latency of a transfer before it on its lane. */
static int64_t ready_time(const struct sim_op *op, const struct sim_clock *clock)
{
    int64_t ready = clock->done;

    if (op->kind == OP_COPY && clock->lane && clock->lane == host_lane_of_copy(&op->dst, &op->src) &&
        op->src.side != SIDE_PEER && op->dst.side != SIDE_PEER)
        ready = clock->lane_done;
    return ready > op->queued ? ready : op->queued;
}

static void touch_memory(struct sim_op *op)
{
    if (op->kind == OP_COPY) {
        if (op->dst.at != op->src.at)
            memcpy(op->dst.at, op->src.at, op->bytes);
    } else if (op->kind == OP_SET) {
        memset(op->dst.at, op->byte, op->bytes);
    } else if (op->kind == OP_KERNEL) {
        op->function(op->data);
    } else {
        for (uint32_t i = 0; i < op->call.n; i++)
            op->inputs->at[i] = op->inputs->place[i].at;
        op->call.srcs = op->inputs->at;
        op->call.dst = op->dst.at;
        if (op->call.scale)
            op->call.scale = op->scale;
        red_run(&op->call);
    }
}

static struct sim_error *run_timed(struct sim_op *op, struct sim_clock *clock)
{
    struct booking booking = {.ready = ready_time(op, clock)};
    int64_t begun = sim_now();

    if (op->fault)
        return sim_error_new(HETMPI_ERR_DEVICE, "sim: injected fault: %s %llu (%zu bytes) fails",
                             op->kind == OP_COPY ? "copy" : "kernel", (unsigned long long)op->fault, op->bytes);
    if (op->kind == OP_COPY)
        book_copy(&booking, op);
    else if (op->kind == OP_REDUCE)
        book_kernel(&booking, op);
    else if (op->dst.side == SIDE_PEER)
        book(&booking, &op->dst.block->peer->write, op->bytes);
    touch_memory(op);
    if (booking.lanes == 0)
        booking.end = booking.ready + (sim_now() - begun);
    booking.end += op->slow;
    clock->lane = booking.lanes == 1 ? booking.lane : NULL;
    clock->lane_done = booking.end;
    clock->done = booking.end + sim.latency;
    sim_sleep_until(clock->done);
    return NULL;
}

static void wait_value(const struct sim_op *op, struct sim_clock *clock)
{
    struct backoff backoff = {0};
    bool waited = false;

    while (atomic_load_explicit(op->word, memory_order_acquire) < op->value && !atomic_load(&sim.stopping)) {
        backoff_wait(&backoff);
        waited = true;
    }
    if (waited && clock->done < sim_now())
        clock->done = sim_now();
    clock->lane = NULL;
}

struct sim_error *sim_op_run(struct sim_op *op, struct sim_clock *clock)
{
    struct sim_error *error;
    int64_t when;

    switch (op->kind) {
    case OP_WAIT_EVENT:
        error = sim_event_await(op->event, op->ticket, &when);
        if (clock->done < when)
            clock->done = when;
        clock->lane = NULL;
        return error;
    case OP_WRITE_VALUE:
        atomic_store_explicit(op->word, op->value, memory_order_release);
        return NULL;
    case OP_WAIT_VALUE:
        wait_value(op, clock);
        return NULL;
    case OP_CALL:
        op->function(op->data);
        return NULL;
    default:
        return run_timed(op, clock);
    }
}

void sim_op_release(struct sim_op *op)
{
    sim_place_give(&op->dst);
    sim_place_give(&op->src);
    if (op->kind == OP_KERNEL)
        free(op->data);
    for (uint32_t i = 0; op->inputs && i < op->call.n; i++)
        sim_place_give(&op->inputs->place[i]);
}

/* Queues an operation whose places are taken, or gives them back. */
static int push(struct sim_op *op, mem_stream_t *stream)
{
    int rc = sim_stream_push(stream, op, NULL, 0);

    if (rc)
        sim_op_release(op);
    return rc;
}

static int make_copy(void *dst, const void *src, size_t bytes, struct sim_op *op)
{
    int rc;

    *op = (struct sim_op){.kind = OP_COPY, .bytes = bytes};
    rc = sim_place_take(src, bytes, SIDES_ALL, "copy from", &op->src);
    if (rc)
        return rc;
    rc = sim_place_take(dst, bytes, SIDES_ALL, "copy to", &op->dst);
    if (rc) {
        sim_place_give(&op->src);
        return rc;
    }
    op->fault = sim_fault_hit(FAULT_COPY);
    op->slow = sim_fault_slow();
    return HETMPI_SUCCESS;
}

int mem_copy_async(void *dst, const void *src, size_t bytes, mem_stream_t *stream)
{
    struct sim_op op;
    int rc;

    if (!sim.has_device) {
        plain_copy(dst, src, bytes);
        return HETMPI_SUCCESS;
    }
    if (bytes == 0)
        return HETMPI_SUCCESS;
    rc = make_copy(dst, src, bytes, &op);
    return rc ? rc : push(&op, stream);
}

int mem_copy(void *dst, const void *src, size_t bytes)
{
    struct sim_clock clock = {0};
    struct sim_error *error;
    struct sim_op op;
    int rc;

    if (!sim.has_device) {
        plain_copy(dst, src, bytes);
        return HETMPI_SUCCESS;
    }
    if (bytes == 0)
        return HETMPI_SUCCESS;
    rc = make_copy(dst, src, bytes, &op);
    if (rc)
        return rc;
    op.queued = sim_now();
    error = sim_op_run(&op, &clock);
    sim_op_release(&op);
    return error ? sim_error_report(error) : HETMPI_SUCCESS;
}

int mem_set_async(void *dst, int byte, size_t bytes, mem_stream_t *stream)
{
    struct sim_op op = {.kind = OP_SET, .bytes = bytes, .byte = byte};
    int rc;

    if (bytes == 0)
        return HETMPI_SUCCESS;
    if (!sim.has_device) {
        memset(dst, byte, bytes);
        return HETMPI_SUCCESS;
    }
    rc = sim_place_take(dst, bytes, SIDES_ALL, "set", &op.dst);
    if (rc)
        return rc;
    op.slow = sim_fault_slow();
    return push(&op, stream);
}

/* Takes the places of all inputs, or of none. */
static int take_inputs(const struct red_call *call, size_t bytes, struct sim_place *inputs)
{
    int rc;

    for (uint32_t i = 0; i < call->n; i++) {
        rc = sim_place_take(call->srcs[i], bytes, SIDES_KERNEL, "input of a reduction", &inputs[i]);
        if (rc) {
            while (i-- > 0)
                sim_place_give(&inputs[i]);
            return rc;
        }
    }
    return HETMPI_SUCCESS;
}

int mem_reduce_async(const struct red_call *call, mem_stream_t *stream)
{
    struct sim_op op = {.kind = OP_REDUCE, .call = *call};
    struct sim_place inputs[RED_MAX_INPUTS];
    int rc;

    if (!sim.has_device) {
        red_run(call);
        return HETMPI_SUCCESS;
    }
    if (call->n < 1 || call->n > RED_MAX_INPUTS || !red_supported(call->type, call->scale ? RED_PROD : call->op))
        return err_set(HETMPI_ERR_INTERNAL, "sim: a reduction (%s of %s) of %u inputs cannot be run",
                       red_op_name(call->op), red_type_name(call->type), call->n);
    if (call->count == 0)
        return HETMPI_SUCCESS;
    if (call->scale)
        memcpy(op.scale, call->scale, red_size(call->type));
    op.bytes = call->count * (call->dst_wide ? red_wide_size(call->type) : red_size(call->type));
    op.src_bytes = call->count * (call->src_wide ? red_wide_size(call->type) : red_size(call->type));
    rc = take_inputs(call, op.src_bytes, inputs);
    if (rc)
        return rc;
    rc = sim_place_take(call->dst, op.bytes, SIDES_KERNEL, "output of a reduction", &op.dst);
    if (rc)
        goto give_inputs;
    op.fault = sim_fault_hit(FAULT_KERNEL);
    op.slow = sim_fault_slow();
    rc = sim_stream_push(stream, &op, inputs, call->n);
    if (rc)
        goto give_output;
    return HETMPI_SUCCESS;

give_output:
    sim_place_give(&op.dst);
give_inputs:
    for (uint32_t i = 0; i < call->n; i++)
        sim_place_give(&inputs[i]);
    return rc;
}

int sim_call_async(enum sim_op_kind kind, void (*function)(void *), void *data, struct mem_stream *stream)
{
    struct sim_op op = {.kind = kind, .function = function, .data = data};

    if (kind == OP_KERNEL) {
        op.fault = sim_fault_hit(FAULT_KERNEL);
        op.slow = sim_fault_slow();
    }
    return push(&op, stream);
}

static int push_value(enum sim_op_kind kind, mem_stream_t *stream, _Atomic uint64_t *word, uint64_t value)
{
    struct sim_op op = {.kind = kind, .word = word, .value = value};
    int rc = sim_place_take(word, sizeof(*word), SIDES_WORD, "word of a stream's value", &op.dst);

    return rc ? rc : push(&op, stream);
}

int mem_stream_write_value(mem_stream_t *stream, _Atomic uint64_t *word, uint64_t value)
{
    if (sim.has_device)
        return push_value(OP_WRITE_VALUE, stream, word, value);
    atomic_store_explicit(word, value, memory_order_release);
    return HETMPI_SUCCESS;
}

/* Without a device later work runs in this thread, so that waiting here is the only way. */
int mem_stream_wait_value(mem_stream_t *stream, _Atomic uint64_t *word, uint64_t value)
{
    if (sim.has_device)
        return push_value(OP_WAIT_VALUE, stream, word, value);
    plain_wait_value(word, value);
    return HETMPI_SUCCESS;
}
