/*
 * Streams and events of the simulated device. A stream is a thread with an in-order queue; the thread starts with the
 * stream's first work. NULL names the default stream, which is a stream like any other (it does not wait for others).
 *
 * Errors of queued work: an operation that fails leaves its error with the stream. Every event whose recording the
 * stream comes to afterwards carries the error, until somebody has been told of it (by mem_event_query or
 * mem_stream_synchronize); events that carry it report it each time they are asked. A stream that waits for such an
 * event takes the error over. mem_stream_synchronize reports each error once. Later work of the stream runs.
 */
#define _GNU_SOURCE
#include "mem/sim.h"

#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "core/log.h"
#include "hetmpi.h"

#define QUEUE_MOST 65536     /* operations; then a call waits until the stream comes on, as a GPU's driver does */
#define BLOCK_OPS 64

struct op_block { struct op_block *next; struct sim_op ops[BLOCK_OPS]; };

struct mem_stream {
    pthread_mutex_t lock;
    pthread_cond_t work;                  /* the queue is no longer empty, or the stream is to end */
    pthread_cond_t progress;              /* an operation was completed, and somebody waits for it */
    struct sim_op *head, **tail;
    uint64_t queued, completed;           /* operations, ever */
    int waiting;                          /* threads at `progress` */
    bool has_thread, ending;
    pthread_t thread;

    struct op_block *blocks;              /* memory of the operations, and those not in use */
    struct sim_op *ops_free;
    struct sim_operands *operands_free;

    struct sim_error *error;              /* for events, until it was reported */
    struct sim_error *error_for_sync;
    struct mem_stream *next, *before;     /* of sim.streams */
};

struct mem_event {
    _Atomic uint64_t recorded;            /* ticket of the last recording that was queued */
    _Atomic uint64_t done;                /* ... and of the last that the streams came to */
    _Atomic(struct sim_error *) error;    /* of `done` */
    _Atomic uint32_t references;          /* the user's and those of queued operations */
    int64_t when;                         /* time of `done` in the model */
    pthread_mutex_t lock;
    pthread_cond_t came;
    int waiting;
    struct mem_event *next, *before;      /* of sim.events */
};

/*
 * Queue
 */

static bool pool_grow(struct mem_stream *stream)
{
    struct op_block *block = calloc(1, sizeof(*block));

    if (!block)
        return false;
    block->next = stream->blocks;
    stream->blocks = block;
    for (int i = 0; i < BLOCK_OPS; i++) {
        block->ops[i].next = stream->ops_free;
        stream->ops_free = &block->ops[i];
    }
    return true;
}

/* A queue element, with an operands' element if n > 0. Called with the stream's lock held. */
static struct sim_op *pool_take(struct mem_stream *stream, uint32_t n, struct sim_operands **operands)
{
    struct sim_op *op;

    *operands = NULL;
    if (!stream->ops_free && !pool_grow(stream))
        return NULL;
    if (n > 0) {
        *operands = stream->operands_free ? stream->operands_free : malloc(sizeof(**operands));
        if (!*operands)
            return NULL;
        if (*operands == stream->operands_free)
            stream->operands_free = stream->operands_free->next;
    }
    op = stream->ops_free;
    stream->ops_free = op->next;
    return op;
}

static void pool_give(struct mem_stream *stream, struct sim_op *op)
{
    if (op->inputs) {
        op->inputs->next = stream->operands_free;
        stream->operands_free = op->inputs;
        op->inputs = NULL;
    }
    op->next = stream->ops_free;
    stream->ops_free = op;
}

static void keep_error(struct mem_stream *stream, struct sim_error *error)
{
    if (!stream->error || atomic_load_explicit(&stream->error->reported, memory_order_relaxed))
        stream->error = error;
    if (!stream->error_for_sync)
        stream->error_for_sync = error;
}

static void event_release(struct mem_event *event);

/* What an operation holds. Called by the stream's thread, or without one. */
static void drop_op(struct sim_op *op)
{
    sim_op_release(op);
    if (op->event)
        event_release(op->event);
    op->event = NULL;
}

static void run_op(struct mem_stream *stream, struct sim_op *op, struct sim_clock *clock)
{
    struct sim_error *error = NULL;

    if (op->kind == OP_RECORD) {
        pthread_mutex_lock(&stream->lock);
        if (stream->error && !atomic_load_explicit(&stream->error->reported, memory_order_relaxed))
            error = stream->error;
        pthread_mutex_unlock(&stream->lock);
        sim_event_finish(op->event, op->ticket, clock->done > op->queued ? clock->done : op->queued, error);
        return;
    }
    error = sim_op_run(op, clock);
    if (error) {
        pthread_mutex_lock(&stream->lock);
        keep_error(stream, error);
        pthread_mutex_unlock(&stream->lock);
    }
}

static void *stream_main(void *argument)
{
    struct mem_stream *stream = argument;
    struct sim_clock clock = {0};
    struct sim_op *op;

    (void)prctl(PR_SET_NAME, "hetmpi-sim", 0, 0, 0);
    (void)prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);   /* sleeps end when the model says, not up to 50 us later */
    pthread_mutex_lock(&stream->lock);
    for (;;) {
        while (!stream->head && !stream->ending)
            pthread_cond_wait(&stream->work, &stream->lock);
        if (!stream->head || atomic_load_explicit(&sim.stopping, memory_order_relaxed))
            break;
        op = stream->head;
        pthread_mutex_unlock(&stream->lock);
        run_op(stream, op, &clock);
        drop_op(op);
        pthread_mutex_lock(&stream->lock);
        stream->head = op->next;
        if (!stream->head)
            stream->tail = &stream->head;
        pool_give(stream, op);
        stream->completed++;
        if (stream->waiting > 0)
            pthread_cond_broadcast(&stream->progress);
    }
    pthread_mutex_unlock(&stream->lock);
    return NULL;
}

/* Called with the stream's lock held. Signals stay with the application's threads. */
static int start_thread(struct mem_stream *stream)
{
    sigset_t all, old;
    int error;

    if (stream->has_thread)
        return HETMPI_SUCCESS;
    sigfillset(&all);
    sigdelset(&all, SIGSEGV);
    sigdelset(&all, SIGBUS);
    sigdelset(&all, SIGFPE);
    sigdelset(&all, SIGILL);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    error = pthread_create(&stream->thread, NULL, stream_main, stream);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (error)
        return err_set(HETMPI_ERR_DEVICE, "sim: cannot start the thread of a stream: %s", strerror(error));
    stream->has_thread = true;
    return HETMPI_SUCCESS;
}

static int stream_new(struct mem_stream **out)
{
    struct mem_stream *stream = calloc(1, sizeof(*stream));

    if (!stream)
        return err_set(HETMPI_ERR_MEMORY, "sim: no memory for a stream of %zu bytes", sizeof(*stream));
    pthread_mutex_init(&stream->lock, NULL);
    pthread_cond_init(&stream->work, NULL);
    pthread_cond_init(&stream->progress, NULL);
    stream->tail = &stream->head;
    *out = stream;
    return HETMPI_SUCCESS;
}

/* Called with sim.lock held. */
static void stream_link(struct mem_stream *stream)
{
    stream->next = sim.streams;
    if (sim.streams)
        sim.streams->before = stream;
    sim.streams = stream;
}

/* The stream that a handle names; NULL after an error. */
static int stream_of(struct mem_stream *handle, struct mem_stream **out)
{
    int rc = HETMPI_SUCCESS;

    *out = handle ? handle : atomic_load_explicit(&sim.default_stream, memory_order_acquire);
    if (*out)
        return HETMPI_SUCCESS;
    pthread_mutex_lock(&sim.lock);
    *out = atomic_load_explicit(&sim.default_stream, memory_order_relaxed);
    if (!*out)
        rc = stream_new(out);
    if (!rc && !atomic_load_explicit(&sim.default_stream, memory_order_relaxed)) {
        stream_link(*out);
        atomic_store_explicit(&sim.default_stream, *out, memory_order_release);
    }
    pthread_mutex_unlock(&sim.lock);
    return rc;
}

int sim_stream_push(struct mem_stream *handle, const struct sim_op *op, const struct sim_place *inputs, uint32_t n)
{
    struct sim_operands *operands;
    struct mem_stream *stream;
    struct sim_op *slot;
    int rc = stream_of(handle, &stream);

    if (rc)
        return rc;
    pthread_mutex_lock(&stream->lock);
    while (stream->queued - stream->completed >= QUEUE_MOST) {
        stream->waiting++;
        pthread_cond_wait(&stream->progress, &stream->lock);
        stream->waiting--;
    }
    rc = start_thread(stream);
    if (rc)
        goto unlock;
    slot = pool_take(stream, n, &operands);
    if (!slot) {
        rc = err_set(HETMPI_ERR_MEMORY, "sim: no memory for the queue of a stream (%llu operations wait)",
                     (unsigned long long)(stream->queued - stream->completed));
        goto unlock;
    }
    *slot = *op;
    slot->next = NULL;
    slot->queued = sim_now();
    slot->inputs = operands;
    if (operands)
        memcpy(operands->place, inputs, n * sizeof(*inputs));
    if (!stream->head)
        pthread_cond_signal(&stream->work);
    *stream->tail = slot;
    stream->tail = &slot->next;
    stream->queued++;
unlock:
    pthread_mutex_unlock(&stream->lock);
    return rc;
}

/*
 * Streams
 */

int mem_stream_create(mem_stream_t **stream)
{
    uint64_t fault = sim.has_device ? sim_fault_hit(FAULT_STREAM) : 0;
    int rc;

    if (fault)
        return err_set(HETMPI_ERR_DEVICE, "sim: injected fault: creation of stream %llu fails", (unsigned long long)fault);
    rc = stream_new(stream);
    if (rc)
        return rc;
    pthread_mutex_lock(&sim.lock);
    stream_link(*stream);
    pthread_mutex_unlock(&sim.lock);
    return HETMPI_SUCCESS;
}

/* Ends the thread, after the work that is queued or (when the runtime is stopping) after the present operation. */
static void stream_end(struct mem_stream *stream)
{
    pthread_mutex_lock(&stream->lock);
    stream->ending = true;
    pthread_cond_signal(&stream->work);
    pthread_mutex_unlock(&stream->lock);
    if (stream->has_thread)
        pthread_join(stream->thread, NULL);
}

static void stream_free(struct mem_stream *stream)
{
    struct op_block *block, *next_block;
    struct sim_operands *operands, *next_operands;

    for (struct sim_op *op = stream->head, *next; op; op = next) {
        next = op->next;
        drop_op(op);
        pool_give(stream, op);
    }
    for (operands = stream->operands_free; operands; operands = next_operands) {
        next_operands = operands->next;
        free(operands);
    }
    for (block = stream->blocks; block; block = next_block) {
        next_block = block->next;
        free(block);
    }
    pthread_cond_destroy(&stream->progress);
    pthread_cond_destroy(&stream->work);
    pthread_mutex_destroy(&stream->lock);
    free(stream);
}

/* An error that nobody was told of is returned; the stream is gone all the same. */
int mem_stream_create_user(mem_stream_t **stream)
{
    return mem_stream_create(stream);
}

int mem_stream_destroy(mem_stream_t *stream)
{
    struct sim_error *error;

    if (!stream)
        return HETMPI_SUCCESS;
    stream_end(stream);
    pthread_mutex_lock(&sim.lock);
    if (stream->before)
        stream->before->next = stream->next;
    else
        sim.streams = stream->next;
    if (stream->next)
        stream->next->before = stream->before;
    pthread_mutex_unlock(&sim.lock);
    error = stream->error_for_sync;
    stream_free(stream);
    return error && !atomic_load(&error->reported) ? sim_error_report(error) : HETMPI_SUCCESS;
}

int mem_stream_synchronize(mem_stream_t *handle)
{
    struct mem_stream *stream;
    struct sim_error *error;
    uint64_t until;
    int rc;

    if (!sim.has_device)
        return HETMPI_SUCCESS;
    rc = stream_of(handle, &stream);
    if (rc)
        return rc;
    pthread_mutex_lock(&stream->lock);
    until = stream->queued;
    stream->waiting++;
    while (stream->completed < until)
        pthread_cond_wait(&stream->progress, &stream->lock);
    stream->waiting--;
    error = stream->error_for_sync;
    stream->error_for_sync = NULL;
    pthread_mutex_unlock(&stream->lock);
    return error ? sim_error_report(error) : HETMPI_SUCCESS;
}

void sim_streams_stop(void)
{
    struct mem_stream *stream, *next_stream;
    struct mem_event *event, *next_event;

    /* Streams that wait for an event see that the runtime is stopping. */
    pthread_mutex_lock(&sim.lock);
    for (event = sim.events; event; event = event->next) {
        pthread_mutex_lock(&event->lock);
        pthread_cond_broadcast(&event->came);
        pthread_mutex_unlock(&event->lock);
    }
    pthread_mutex_unlock(&sim.lock);
    for (stream = sim.streams; stream; stream = stream->next)
        stream_end(stream);
    for (stream = sim.streams; stream; stream = next_stream) {
        next_stream = stream->next;
        stream_free(stream);
    }
    sim.streams = NULL;
    atomic_store(&sim.default_stream, NULL);
    for (event = sim.events; event; event = next_event) {
        next_event = event->next;
        pthread_cond_destroy(&event->came);
        pthread_mutex_destroy(&event->lock);
        free(event);
    }
    sim.events = NULL;
}

/*
 * Events
 */

int mem_event_create(mem_event_t **out)
{
    struct mem_event *event = calloc(1, sizeof(*event));

    if (!event)
        return err_set(HETMPI_ERR_MEMORY, "sim: no memory for an event of %zu bytes", sizeof(*event));
    atomic_store(&event->references, 1);
    pthread_mutex_init(&event->lock, NULL);
    pthread_cond_init(&event->came, NULL);
    pthread_mutex_lock(&sim.lock);
    event->next = sim.events;
    if (sim.events)
        sim.events->before = event;
    sim.events = event;
    pthread_mutex_unlock(&sim.lock);
    *out = event;
    return HETMPI_SUCCESS;
}

static void event_release(struct mem_event *event)
{
    if (atomic_fetch_sub(&event->references, 1) != 1)
        return;
    pthread_mutex_lock(&sim.lock);
    if (event->before)
        event->before->next = event->next;
    else
        sim.events = event->next;
    if (event->next)
        event->next->before = event->before;
    pthread_mutex_unlock(&sim.lock);
    pthread_cond_destroy(&event->came);
    pthread_mutex_destroy(&event->lock);
    free(event);
}

void mem_event_destroy(mem_event_t *event)
{
    if (event)
        event_release(event);
}

void sim_event_finish(struct mem_event *event, uint64_t ticket, int64_t when, struct sim_error *error)
{
    pthread_mutex_lock(&event->lock);
    /* Recordings in several streams may come out of order; the one that was queued last counts. */
    if (ticket > atomic_load_explicit(&event->done, memory_order_relaxed)) {
        event->when = when;
        atomic_store_explicit(&event->error, error, memory_order_relaxed);
        atomic_store_explicit(&event->done, ticket, memory_order_release);
    }
    if (event->waiting > 0)
        pthread_cond_broadcast(&event->came);
    pthread_mutex_unlock(&event->lock);
}

struct sim_error *sim_event_await(struct mem_event *event, uint64_t ticket, int64_t *when)
{
    struct sim_error *error;

    pthread_mutex_lock(&event->lock);
    event->waiting++;
    while (atomic_load_explicit(&event->done, memory_order_relaxed) < ticket && !atomic_load(&sim.stopping))
        pthread_cond_wait(&event->came, &event->lock);
    event->waiting--;
    *when = event->when;
    error = atomic_load_explicit(&event->error, memory_order_relaxed);
    pthread_mutex_unlock(&event->lock);
    return error && !atomic_load_explicit(&error->reported, memory_order_relaxed) ? error : NULL;
}

static int push_event_op(enum sim_op_kind kind, struct mem_event *event, uint64_t ticket, mem_stream_t *stream)
{
    struct sim_op op = {.kind = kind, .event = event, .ticket = ticket};
    int rc;

    atomic_fetch_add(&event->references, 1);
    rc = sim_stream_push(stream, &op, NULL, 0);
    if (rc)
        event_release(event);
    return rc;
}

int mem_event_record(mem_event_t *event, mem_stream_t *stream)
{
    uint64_t ticket;
    int rc;

    if (!sim.has_device)
        return HETMPI_SUCCESS;
    ticket = atomic_fetch_add(&event->recorded, 1) + 1;
    rc = push_event_op(OP_RECORD, event, ticket, stream);
    if (rc)
        sim_event_finish(event, ticket, sim_now(), sim_error_new(rc, "%s", err_text()));   /* nobody waits for ever */
    return rc;
}

int mem_event_query(mem_event_t *event, bool *done)
{
    struct sim_error *error;

    *done = atomic_load_explicit(&event->done, memory_order_acquire) >=
            atomic_load_explicit(&event->recorded, memory_order_relaxed);
    if (!*done)
        return HETMPI_SUCCESS;
    error = atomic_load_explicit(&event->error, memory_order_relaxed);
    return error ? sim_error_report(error) : HETMPI_SUCCESS;
}

int mem_stream_wait_event(mem_stream_t *stream, mem_event_t *event)
{
    uint64_t ticket;

    if (!sim.has_device)
        return HETMPI_SUCCESS;
    ticket = atomic_load(&event->recorded);
    /* A finished one may still have to tell the stream its time and its error. */
    return ticket == 0 ? HETMPI_SUCCESS : push_event_op(OP_WAIT_EVENT, event, ticket, stream);
}
