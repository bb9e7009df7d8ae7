/* Running a schedule: what planning a run, its steps, and their order share. See exec.c. */
#ifndef HETMPI_EXEC_H
#define HETMPI_EXEC_H

#include <string.h>

#include "core/engine.h"
#include "island/island.h"
#include "wire/wire.h"

#define WINDOW_MAX 64

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

/* What is known of a run before it. */
struct exec_plan {
    struct sched *sched;             /* shared with the cache */
    size_t chunk, chunks;
    int window;
    size_t *scratch_at, scratch_at_room;   /* see struct exec */
    size_t scratch_slot, aside_at;
    bool aside, scale_straight;
    bool pairs;                      /* sched_pairs */
    struct exec_plan *brief;         /* instead of this one, where the meeting tells that all blocks are short, or NULL */
};

/* How much of what runs share there is, or is wanted. */
struct exec_room { size_t runs, started, srcs, events, scratch; };

struct exec {
    struct call call;
    uint64_t number;
    size_t *counts;                  /* [communicator ranks] of call, where the meeting told them */
    struct exec_plan own;            /* of calls that come without one */
    bool running;
    /* Persistent calls are planned while others run: memory grows between runs, to the most that a plan asked for. */
    struct exec_room room, want;
    const struct sched *sched;
    size_t element, chunk, chunks;   /* chunk: elements */
    int window, delay;
    size_t first, opened;            /* chunks first .. opened-1 are in flight, chunk c in slots[c % window] */
    struct slot *slots;
    struct step_run *runs;
    size_t *started;                 /* [n_steps] how many chunks have started the step: they start in order */
    const void **srcs;               /* operands of a reduction of more than RED_MAX_INPUTS */
    struct sched_cursor cursor;      /* local steps, in the island's order */
    bool cursor_valid;
    size_t cursor_chunk;
    int cursor_step;
    char *scratch;                   /* window copies of all scratch ranges */
    size_t scratch_slot;
    const size_t *scratch_at;        /* [n_scratch + 1] offset in a slot's copy; the last: groups of large reductions */
    bool scale_straight;             /* a premultiplied sum: the kernel that scales can read the input where it is */
    char *aside;                     /* the result of a reduce_scatter in place until all inputs were read, or NULL */
    mem_event_t *aside_event;
    mem_stream_t *reduce_stream, *copy_stream;
    mem_event_t **events;            /* idle ones */
    int n_events, events_room;
    struct slot slot_array[WINDOW_MAX];
};

static inline size_t chunk_length(const struct exec *exec, size_t chunk)
{
    size_t left = exec->call.count - chunk * exec->chunk;

    return left < exec->chunk ? left : exec->chunk;
}

/* A chunk as ranges of a buffer see it. */
static inline struct sched_chunk chunk_for(const struct exec *exec, uint8_t buffer, size_t chunk)
{
    return (struct sched_chunk){.first = chunk * exec->chunk, .length = chunk_length(exec, chunk),
                                .counts = exec->call.counts[buffer == BUF_SEND ? SIDE_SEND : SIDE_RECV]};
}

static inline void range_of(const struct comm *comm, const struct exec *exec, const struct sched_ref *ref, size_t chunk,
                     size_t *first, size_t *length)
{
    struct sched_chunk c = chunk_for(exec, ref->buffer, chunk);

    sched_range_at(&comm->topo, &ref->range, &c, first, length);
}

static inline size_t ref_element(const struct exec *exec, const struct sched_ref *ref)
{
    if (ref->buffer == BUF_SCRATCH && exec->sched->scratch[ref->scratch].wide)
        return red_wide_size(exec->call.type);
    return exec->element;
}

static inline struct step_run *run_of(const struct exec *exec, size_t chunk, int step)
{
    return &exec->slots[chunk % (size_t)exec->window].runs[step];
}

/* exec_steps.c: starting and polling one step of one chunk. A start may answer COMM_AGAIN. */
int exec_start_on_stream(struct comm *comm, struct exec *exec, const struct sched_step *step, size_t chunk,
                         struct step_run *run);
int exec_start_message(struct comm *comm, struct exec *exec, const struct sched_step *step, size_t chunk,
                       struct step_run *run);
int exec_start_local(struct comm *comm, struct exec *exec, const struct sched_step *step, size_t chunk,
                     struct step_run *run);
int exec_poll_step(struct comm *comm, struct exec *exec, const struct sched_step *step, struct step_run *run);
/* Idle events, and a stream of the run's own, made at its first use. */
int exec_take_event(struct exec *exec, mem_event_t **event);
void exec_give_event(struct exec *exec, mem_event_t *event);
int exec_want_stream(mem_stream_t **stream);

/* exec_plan.c */
void exec_cache_release(struct comm *comm);
void exec_ended(struct exec *exec);   /* no run is under way: memory may grow */

#endif
