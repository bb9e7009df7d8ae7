/*
 * Running a schedule: keeps a window of chunks in flight, starts each step as soon as what it depends on is done and
 * its resources are free, and polls what was started. Nothing here blocks; memory is taken when a communicator first
 * needs it and kept.
 */
#include <stdio.h>
#include <stdlib.h>

#include "core/exec.h"
#include "core/log.h"
#include "core/proc.h"
#include "hetmpi.h"

/* Messages refused in one pass: no later message of the same direction and peer may go before them. */
struct refusals {
    int n;                     /* more than fit: everything counts as refused */
    struct { uint8_t kind; int32_t peer; } list[16];
};

static void next_local(struct exec *exec)
{
    exec->cursor_valid = sched_cursor_next(exec->sched, exec->chunks, exec->delay, &exec->cursor, &exec->cursor_chunk,
                                           &exec->cursor_step);
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
        code = exec_start_local(comm, exec, step, exec->cursor_chunk, run);
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
        code = message ? exec_start_message(comm, exec, step, chunk, run)
                       : exec_start_on_stream(comm, exec, step, chunk, run);
        if (code == COMM_AGAIN) {
            note_refusal(refused, step);
            return HETMPI_SUCCESS;
        }
        if (code)
            return code;
        exec->started[index]++;
    }
    if (run->state == RUN_STARTED)
        code = exec_poll_step(comm, exec, step, run);
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
    struct ctl_status *status = &comm->mine->status;
    int peer = -1, phase = PHASE_ISLAND_REDUCE, kind = STEP_LOCAL_REDUCE;

    for (int i = 0; i < exec->sched->n_steps && exec->first < exec->opened; i++)
        if (run_of(exec, exec->first, i)->state != RUN_DONE) {
            const struct sched_step *step = &exec->sched->steps[i];
            phase = step->phase;
            kind = step->kind;
            if (step->kind == STEP_SEND || step->kind == STEP_RECV)
                peer = step->peer;
            break;
        }
    atomic_store_explicit(&status->call, exec->number, memory_order_relaxed);
    atomic_store_explicit(&status->phase, (uint32_t)phase, memory_order_relaxed);
    atomic_store_explicit(&status->step, (uint32_t)kind, memory_order_relaxed);
    atomic_store_explicit(&status->chunk, exec->first, memory_order_relaxed);
    atomic_store_explicit(&status->chunks, exec->chunks, memory_order_relaxed);
    atomic_store_explicit(&status->waits_for, peer, memory_order_relaxed);
}

/* All chunks are done: the result that was made aside goes where the input was. */
static int put_result(struct comm *comm, struct exec *exec, bool *done)
{
    size_t bytes = exec->call.counts[SIDE_RECV][comm->rank] * exec->element;
    int code;

    if (exec->aside_event) {
        code = mem_event_query(exec->aside_event, done);
        if (*done || code) {
            exec_give_event(exec, exec->aside_event);
            exec->aside_event = NULL;
        }
        return code;
    }
    *done = !bytes || !mem_has_device();
    code = exec_want_stream(&exec->copy_stream);
    if (!code && bytes)
        code = mem_copy_async(exec->call.recv, exec->aside, bytes, exec->copy_stream);
    if (code || *done)
        return code;
    code = exec_take_event(exec, &exec->aside_event);
    return code ? code : mem_event_record(exec->aside_event, exec->copy_stream);
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
    if (*done && exec->aside)
        code = put_result(comm, exec, done);
    if (*done && !code)
        exec_ended(exec);
    return code;
}

void exec_describe(const struct comm *comm, char *text, size_t bytes)
{
    const struct exec *exec = comm->exec;

    text[0] = '\0';
    if (!exec || !exec->sched || exec->first >= exec->opened)
        return;
    for (int i = 0; i < exec->sched->n_steps; i++) {
        const struct sched_step *step = &exec->sched->steps[i];
        if (run_of(exec, exec->first, i)->state == RUN_DONE)
            continue;
        if (step->kind == STEP_SEND || step->kind == STEP_RECV)
            snprintf(text, bytes, "%s, chunk %zu of %zu, %s %s rank %d over the %s wire", sched_phase_name(step->phase),
                     exec->first, exec->chunks, sched_step_name(step->kind), step->kind == STEP_SEND ? "to" : "from",
                     step->peer, wire_name_for(comm, step->peer));
        else
            snprintf(text, bytes, "%s, chunk %zu of %zu, %s", sched_phase_name(step->phase), exec->first, exec->chunks,
                     sched_step_name(step->kind));
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
                exec_give_event(exec, run->event);
        }
    exec->first = exec->opened = 0;
    exec->running = false;
}

void exec_release(struct comm *comm)
{
    struct exec *exec = comm->exec;

    exec_cache_release(comm);
    if (!exec)
        return;
    end_stream(&exec->reduce_stream);
    end_stream(&exec->copy_stream);
    for (int i = 0; i < exec->n_events; i++)
        mem_event_destroy(exec->events[i]);
    if (exec->aside_event)
        mem_event_destroy(exec->aside_event);
    if (exec->scratch)
        mem_free(exec->scratch);
    free(exec->events);
    free(exec->runs);
    free(exec->started);
    free(exec->srcs);
    sched_free(exec->own.sched);
    free(exec->own.scratch_at);
    free(exec->counts);
    free(exec);
    comm->exec = NULL;
}
