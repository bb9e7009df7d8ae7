/* The engine: queues of collectives, and their progress. See engine.h. */
#include "core/engine.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/engine_parts.h"
#include "core/log.h"
#include "core/notice.h"
#include "core/proc.h"
#include "core/tables.h"
#include "hetmpi.h"
#include "wire/wire.h"

static _Atomic int pending;   /* ops under way */

static bool progress_comm(struct comm *comm);

int engine_pending(void) { return atomic_load_explicit(&pending, memory_order_relaxed); }

/* Counters that are written under the lock alone, and read anywhere. */
static void count(_Atomic int *counter, int by)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + by, memory_order_release);
}

static void op_begin(struct op *op, bool wake)
{
    op->id = ++op->comm->ops;
    count(&pending, 1);
    if (wake)
        thread_wake();
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
    count(&pending, -1);
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
        op->stage = stage_needed(op);
    if (!op->stage)
        return post(comm, op);
    code = stage_begin_out(comm, op);
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
        return stage_begin_in(comm, op, done);
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
    if (comm->head && comm->head->stage)
        stage_finish();
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
    op->stage = stage_needed(op);
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

bool engine_progress_all(void)
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
    moved = engine_progress_all();
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
    stage_release(comm);
    if (comm->stream_word)
        mem_host_free(comm->stream_word);
    comm->stream_word = NULL;
}
