/* The engine: queues of collectives, and their progress. See engine.h. */
#define _GNU_SOURCE
#include "core/engine.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "core/notice.h"
#include "core/proc.h"
#include "core/tables.h"
#include "hetmpi.h"
#include "island/island.h"
#include "wire/wire.h"

static bool progress_comm(struct comm *comm);

/* Staging of a short cut: what this rank posts, then the result. */
#define STAGE_IN_BYTES (CTL_SMALL_MAX)
#define STAGE_OUT_BYTES (256u << 10)

static struct {
    pthread_mutex_t lock;
    pthread_cond_t work;           /* something was queued */
    pthread_t thread;
    bool thread_runs;              /* under lock */
    _Atomic bool thread_stop;
    _Atomic int pending;           /* ops under way */
    mem_stream_t *stage_stream;    /* copies of short cuts */
} engine = {.lock = PTHREAD_MUTEX_INITIALIZER, .work = PTHREAD_COND_INITIALIZER};

void engine_lock(void) { pthread_mutex_lock(&engine.lock); }
void engine_unlock(void) { pthread_mutex_unlock(&engine.lock); }
bool engine_trylock(void) { return pthread_mutex_trylock(&engine.lock) == 0; }

int engine_pending(void) { return atomic_load_explicit(&engine.pending, memory_order_relaxed); }

/* Counters that are written under the lock alone, and read anywhere. */
static void count(_Atomic int *counter, int by)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + by, memory_order_release);
}

static void op_begin(struct op *op, bool wake)
{
    op->id = ++op->comm->ops;
    count(&engine.pending, 1);
    if (wake && engine.thread_runs)
        pthread_cond_signal(&engine.work);
}

void engine_op_begin(struct op *op)
{
    op_begin(op, true);
}

void engine_op_end(struct op *op, int code)
{
    struct comm *comm = op->comm;

    op->state = OP_DONE;
    op->error = code;
    if (code)
        snprintf(op->text, sizeof(op->text), "%s", err_text());
    if (op->event) {
        mem_event_destroy(op->event);
        op->event = NULL;
    }
    if (op->stream_value) {
        if (code && !comm->async_code) {
            snprintf(comm->async_text, sizeof(comm->async_text), "%s", op->text);
            atomic_store_explicit(&comm->async_code, code, memory_order_release);
        }
        /* The stream goes on even after an error: it must never hang. */
        atomic_store_explicit(op->stream_word, op->stream_value, memory_order_release);
    }
    atomic_fetch_add_explicit(&comm->progress, 1, memory_order_relaxed);
    count(&engine.pending, -1);
    if (op->orphan)
        op->release(op);
    else
        atomic_store_explicit(&op->done, true, memory_order_release);
}

/* Short cuts move when their callers wait: waking the thread for one would cost more than the whole of it. */
static bool wants_thread(const struct op *op)
{
    return !op->small || op->stream_value || op->comm->cfg->progress == CFG_PROGRESS_THREAD;
}

void engine_submit(struct op *op)
{
    struct comm *comm = op->comm;

    op->next = NULL;
    op->error = HETMPI_SUCCESS;
    op->text[0] = '\0';
    if (!op->planned) {
        op->small = small_fits(comm, &op->call);
        op->stage = false;
    }
    atomic_store_explicit(&op->done, false, memory_order_relaxed);
    engine_lock();
    op->state = op->met ? OP_MEET : op->event && op->stream_value ? OP_WAIT_STREAM : OP_QUEUED;
    if (comm->tail)
        comm->tail->next = op;
    else
        comm->head = op;
    comm->tail = op;
    count(&comm->queued, 1);
    op_begin(op, wants_thread(op));
    if (comm->head == op)
        progress_comm(comm);   /* posts it, so that peers need not wait until this rank does */
    engine_unlock();
}

/* Takes the head of the queue off, with its result. The op may be gone when this returns. */
static void finish(struct comm *comm, int code)
{
    struct op *op = comm->head;

    if (!code || code == HETMPI_ERR_MISMATCH)
        atomic_store_explicit(&comm->mine->status.finished, comm->meetings, memory_order_relaxed);
    comm->head = op->next;
    if (!comm->head)
        comm->tail = NULL;
    count(&comm->queued, -1);
    engine_op_end(op, code);
}

/* A short cut whose buffers the CPU may not touch? */
static bool needs_stage(const struct op *op)
{
    return op->small && (mem_on_device(op->call.send) || mem_on_device(op->call.recv));
}

static int stage_reserve(struct comm *comm)
{
    int code = HETMPI_SUCCESS;

    if (!comm->small_stage)
        code = mem_host_alloc(STAGE_IN_BYTES + STAGE_OUT_BYTES, &comm->small_stage);
    if (!code && !engine.stage_stream)
        code = mem_stream_create(&engine.stage_stream);
    if (!code && !comm->small_event)
        code = mem_event_create(&comm->small_event);
    return code;
}

/* Copies this rank's part of a short cut to where the CPU can read it. */
static int begin_stage_out(struct comm *comm, struct op *op)
{
    const void *data;
    size_t bytes;
    int code = stage_reserve(comm);

    if (code)
        return code;
    small_payload(comm, &op->call, &data, &bytes);
    if (bytes)
        code = mem_copy_async(comm->small_stage, data, bytes, engine.stage_stream);
    return code ? code : mem_event_record(comm->small_event, engine.stage_stream);
}

/* A packed result of blocks to where each belongs. */
static int copy_blocks(struct comm *comm, const struct call *call, const char *packed)
{
    size_t element = red_size(call->type);
    int code = HETMPI_SUCCESS;

    for (int r = 0; r < comm->size && !code; r++) {
        size_t bytes = call->counts[SIDE_RECV][r] * element;
        if (bytes)
            code = mem_copy_async((char *)call->recv + call->displs[SIDE_RECV][r] * element, packed, bytes,
                                  engine.stage_stream);
        packed += bytes;
    }
    return code;
}

static int begin_stage_in(struct comm *comm, struct op *op, bool *done)
{
    char *result = (char *)comm->small_stage + STAGE_IN_BYTES;
    size_t bytes = small_result_bytes(comm, &op->call);
    int code = small_combine(comm, &op->call, op->meet.number, result, true);

    *done = bytes == 0;
    if (code || !bytes)
        return code;
    if (op->call.displs[SIDE_RECV])
        code = copy_blocks(comm, &op->call, result);
    else
        code = mem_copy_async(op->call.recv, result, bytes, engine.stage_stream);
    return code ? code : mem_event_record(comm->small_event, engine.stage_stream);
}

static int post(struct comm *comm, struct op *op)
{
    const void *data = NULL;
    size_t bytes = 0;

    op->state = OP_MEET;
    if (op->small) {
        small_payload(comm, &op->call, &data, &bytes);
        return small_post(comm, &op->meet, &op->call, op->stage ? comm->small_stage : data, bytes);
    }
    if (coll_traits(op->call.kind) & COLL_OWN_TABLE)
        return pairs_post(comm, &op->meet, &op->call, pairs_may(comm, &op->call) && !mem_on_device(op->call.send) &&
                          !mem_on_device(op->call.recv));
    return meet_post(comm, &op->meet, call_what(&op->call), op->call.agree, NULL, 0);
}

static int step_queued(struct comm *comm, struct op *op)
{
    int code;

    if (!op->planned)
        op->stage = needs_stage(op);
    if (!op->stage)
        return post(comm, op);
    code = begin_stage_out(comm, op);
    op->state = OP_STAGE_OUT;
    return code;
}

/* All have come and agree: combines a short cut, or starts the schedule. */
static int step_met(struct comm *comm, struct op *op, bool *done)
{
    bool others = coll_traits(op->call.kind) & COLL_OWN_TABLE;   /* may have blocks where this rank has none */
    bool all_here;
    size_t most = op->call.count;
    int code = tables_check(comm, &op->call, &op->meet);

    if (code == COMM_AGAIN) {
        op->state = OP_TABLES;
        return HETMPI_SUCCESS;
    }
    if (code)
        return code;
    /* Not before: what the others posted stands only until they have posted twice more. */
    all_here = pairs_may(comm, &op->call) && pairs_all_here(comm, op->meet.number);
    if (pairs_tell(comm, op->call.kind))
        most = pairs_told(comm, op->meet.number, NULL);
    if (!op->small && !all_here && op->call.kind != COLL_BARRIER && (most || others))
        comm->ran = true;
    if (op->call.kind == COLL_BARRIER || most == 0) {
        *done = true;
        return HETMPI_SUCCESS;
    }
    if (all_here) {
        pairs_combine(comm, &op->call, op->meet.number);
        *done = true;
        return HETMPI_SUCCESS;
    }
    if (!op->small) {
        op->state = OP_RUN;
        return exec_begin(comm, &op->call, op->plan, op->meet.number);
    }
    if (op->stage) {
        op->state = OP_STAGE_IN;
        return begin_stage_in(comm, op, done);
    }
    *done = true;
    return small_combine(comm, &op->call, op->meet.number, op->call.recv, false);
}

/* One step of the op at the head of comm's queue. */
static int advance(struct comm *comm, struct op *op, bool *moved, bool *done)
{
    int state = op->state, code;
    bool ready = false;

    switch (state) {
    case OP_WAIT_STREAM:
    case OP_STAGE_OUT:
    case OP_STAGE_IN:
        code = mem_event_query(state == OP_WAIT_STREAM ? op->event : comm->small_event, &ready);
        if (code || !ready)
            return code;
        if (state == OP_WAIT_STREAM)
            code = step_queued(comm, op);
        else if (state == OP_STAGE_OUT)
            code = post(comm, op);
        else
            *done = true;
        break;
    case OP_QUEUED:
        code = step_queued(comm, op);
        break;
    case OP_MEET:
        code = meet_poll(comm, &op->meet, &ready);
        if (code || !ready)
            return code;
        code = step_met(comm, op, done);
        break;
    case OP_TABLES:
        code = step_met(comm, op, done);
        if (!code && op->state == OP_TABLES && !*done)
            return HETMPI_SUCCESS;
        break;
    default:
        return exec_poll(comm, moved, done);
    }
    *moved = true;
    return code;
}

/* After a failure nothing may go on writing the callers' buffers: transfers are cancelled, then the queue ends. */
static void end_queue(struct comm *comm, int code)
{
    exec_stop(comm);
    if (comm->head && comm->head->stage && engine.stage_stream)
        mem_stream_synchronize(engine.stage_stream);   /* its error, if any, is this failure or one more */
    comm_close_paths(comm);
    while (comm->head) {
        err_copy(code, comm->failed_text);
        finish(comm, code);
    }
}

/* A failure that belongs to comm's collective `kind`: ends the use of comm. The message is this thread's. */
static int fail_comm(struct comm *comm, enum coll_kind kind, int code)
{
    char text[sizeof(comm->failed_text)];

    snprintf(text, sizeof(text), "%s on rank %d: %.400s", coll_name(kind), comm->rank, err_text());
    return comm_fail(comm, code, text);
}

static bool progress_comm(struct comm *comm)
{
    bool moved = false, done = false;
    int code;

    if (!comm->head || (comm->shadow != MPI_COMM_NULL && !proc_may_call_mpi()))
        return false;
    code = comm_failed(comm);
    if (code) {
        notice_send_due(comm);
        end_queue(comm, code);
        return true;
    }
    code = comm->wire_verbs ? comm->wire_verbs->ops->progress(comm->wire_verbs) : HETMPI_SUCCESS;
    if (!code)
        code = advance(comm, comm->head, &moved, &done);
    if (code == HETMPI_ERR_MISMATCH) {
        finish(comm, code);   /* all ranks know, nothing was moved: the communicator stays usable */
    } else if (code) {
        code = fail_comm(comm, comm->head->call.kind, code);
        end_queue(comm, code);
    } else if (done) {
        finish(comm, HETMPI_SUCCESS);
    }
    if (moved)
        atomic_fetch_add_explicit(&comm->progress, 1, memory_order_relaxed);
    return moved || done || code;
}

static int reserve(struct op *op)
{
    struct comm *comm = op->comm;
    int code = meet_open(comm);

    op->small = small_fits(comm, &op->call);
    op->stage = needs_stage(op);
    if (code || op->call.kind == COLL_BARRIER || (op->call.count == 0 && !pairs_tell(comm, op->call.kind)))
        return code;
    if (!op->small)
        return exec_plan_make(comm, &op->call, &op->plan);
    code = small_reserve(comm);
    return code || !op->stage ? code : stage_reserve(comm);
}

int engine_plan(struct op *op)
{
    struct comm *comm = op->comm;
    int code = comm_failed(comm);

    if (code)
        return code;
    proc_let_mpi_progress();   /* a long wait does: here it takes what it takes the first time */
    engine_lock();
    code = reserve(op);
    if (code)
        code = fail_comm(comm, op->call.kind, code);   /* the others' calls would wait for this rank's */
    op->planned = !code;
    engine_unlock();
    return code;
}

void engine_plan_free(struct op *op)
{
    exec_plan_free(op->plan);
    op->plan = NULL;
}

static bool progress_all(void)
{
    bool moved = false;

    for (struct comm *comm = comm_first(), *next; comm; comm = next) {
        next = comm->next;
        moved |= progress_comm(comm);
        moved |= p2p_progress(comm);
    }
    return moved;
}

bool engine_progress(void)
{
    bool moved;

    if (!engine_trylock())
        return false;
    moved = progress_all();
    engine_unlock();
    return moved;
}

/* A short cut that is next: its peers are likely to post any moment, and looking again costs less than letting go of
 * the lock in between. */
#define HURRY_POLLS 64

static void hurry(struct op *op)
{
    struct comm *comm = op->comm;
    int most = comm->spin < HURRY_POLLS ? comm->spin : HURRY_POLLS;

    if (!engine_trylock())
        return;
    for (int i = 0; i < most && comm->head == op; i++)
        progress_comm(comm);
    engine_unlock();
}

int engine_wait(struct op *op)
{
    struct comm *comm = op->comm;
    struct watch watch;

    if (op->small && !op->p2p && !atomic_load_explicit(&op->done, memory_order_acquire))
        hurry(op);
    if (!atomic_load_explicit(&op->done, memory_order_acquire)) {
        watch_begin(&watch, comm, op);
        while (!atomic_load_explicit(&op->done, memory_order_acquire)) {
            if (engine_progress()) {
                watch.polls = 0;
                continue;
            }
            if (!atomic_load_explicit(&op->done, memory_order_acquire))
                watch_pause(&watch, comm, NULL, NULL);   /* a failure ends the op in the next progress */
        }
    }
    if (op->error)
        err_copy(op->error, op->text);
    return op->error;
}

void engine_drain(struct comm *comm)
{
    struct watch watch;

    watch_begin(&watch, comm, NULL);
    while (atomic_load_explicit(&comm->queued, memory_order_acquire) || p2p_pending(comm))
        if (engine_progress())
            watch.polls = 0;
        else
            watch_pause(&watch, comm, NULL, NULL);
}

void engine_comm_release(struct comm *comm)
{
    exec_release(comm);
    tables_release(comm);
    free(comm->small_partials);
    comm->small_partials = NULL;
    if (comm->small_stage)
        mem_host_free(comm->small_stage);
    comm->small_stage = NULL;
    mem_event_destroy(comm->small_event);
    comm->small_event = NULL;
    if (comm->stream_word)
        mem_host_free(comm->stream_word);
    comm->stream_word = NULL;
}

/* Is there anything that the progress thread could drive? */
static bool any_queued(void)
{
    for (const struct comm *comm = comm_first(); comm; comm = comm->next)
        if (comm->head || (p2p_pending(comm) && proc_may_call_mpi()))
            return true;
    return false;
}

/* Nobody but a stream waits for a call on it: dead ranks and the timeout are looked for here. What the stream itself has
 * to do before the call is no wait for others. Called with the lock held. */
static void look_for_streams(void)
{
    for (struct comm *comm = comm_first(); comm; comm = comm->next) {
        struct op *op = comm->head;
        if (!op || !op->stream_value || op->state == OP_WAIT_STREAM)
            continue;
        op->watch.locked = true;
        watch_look(&op->watch, comm);   /* a failure ends the op in the next progress */
    }
}

/* The progress thread sleeps while nothing is queued, and naps when nothing moves: those who wait poll themselves. */
static void *thread_main(void *unused)
{
    unsigned idle = 0;
    bool moved;

    (void)unused;
    proc_mark_progress_thread();
    engine_lock();
    while (!atomic_load(&engine.thread_stop)) {
        if (!any_queued()) {
            pthread_cond_wait(&engine.work, &engine.lock);
            idle = 0;
            continue;
        }
        moved = progress_all();
        idle = moved ? 0 : idle + 1;
        if (idle)
            look_for_streams();
        engine_unlock();
        if (idle)
            proc_nap(idle < 50 ? 10000 : 50000);
        engine_lock();
    }
    engine_unlock();
    return NULL;
}

bool engine_thread_allowed(const struct comm *comm)
{
    return comm->cfg->progress != CFG_PROGRESS_WAIT &&
           (comm->shadow == MPI_COMM_NULL || proc_thread_level() == MPI_THREAD_MULTIPLE);
}

bool engine_p2p_thread_allowed(const struct comm *comm)
{
    return comm->cfg->progress != CFG_PROGRESS_WAIT && proc_thread_level() == MPI_THREAD_MULTIPLE;
}

static int start_thread(void)
{
    int error;

    engine_lock();
    if (!engine.thread_runs) {
        error = pthread_create(&engine.thread, NULL, thread_main, NULL);
        if (error) {
            engine_unlock();
            return err_set(HETMPI_ERR_MEMORY, "cannot start the progress thread: %s", strerror(error));
        }
        engine.thread_runs = true;
    }
    engine_unlock();
    return HETMPI_SUCCESS;
}

static int no_thread(const struct comm *comm, const char *why)
{
    return err_set(HETMPI_ERR_UNSUPPORTED, "a call on a stream needs a progress thread: %s",
                   comm->cfg->progress == CFG_PROGRESS_WAIT ? "the setting PROGRESS=wait forbids it" : why);
}

int engine_want_thread(struct comm *comm)
{
    if (!engine_thread_allowed(comm))
        return no_thread(comm, "this communicator uses MPI between its ranks, so initialise MPI with "
                         "MPI_THREAD_MULTIPLE");
    return start_thread();
}

int engine_want_p2p_thread(struct comm *comm)
{
    if (!engine_p2p_thread_allowed(comm))
        return no_thread(comm, "messages go over MPI, so initialise MPI with MPI_THREAD_MULTIPLE");
    return start_thread();
}

void engine_stop(void)
{
    bool runs;

    engine_lock();
    runs = engine.thread_runs;
    engine.thread_runs = false;
    atomic_store(&engine.thread_stop, true);
    pthread_cond_signal(&engine.work);
    engine_unlock();
    if (runs)
        pthread_join(engine.thread, NULL);
    atomic_store(&engine.thread_stop, false);
    if (engine.stage_stream)
        mem_stream_destroy(engine.stage_stream);
    engine.stage_stream = NULL;
}
