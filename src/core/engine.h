/*
 * The engine: one a process, serves all communicators. Collectives of a communicator run one after the other, in call
 * order (which is the same on all ranks, so they cannot deadlock); those of different communicators run together.
 * Everything is driven by engine_progress, from whoever waits and from the progress thread; nothing in it blocks.
 */
#ifndef HETMPI_ENGINE_H
#define HETMPI_ENGINE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/comm.h"
#include "core/meet.h"
#include "core/p2p.h"
#include "core/sched.h"
#include "reduce/reduce.h"

/* One collective call, checked, in hetmpi's terms. */
struct call {
    enum coll_kind kind;
    enum red_type type;
    enum red_op op;
    int root;                  /* 0 where there is none */
    size_t count;              /* elements of the vector, or of the longest block that this rank knows */
    const void *send;          /* never MPI_IN_PLACE: points to where the input is */
    void *recv;
    bool in_place;             /* as in struct sched_call; reduce_scatter: the input is in recv */
    bool premul;               /* a sum of operands that each rank multiplies by its own `scale` first */
    _Alignas(RED_SCALE_BYTES) unsigned char scale[RED_SCALE_BYTES];
    /* Blocks of different lengths, by rank, in the send and in the receive buffer: NULL where all have `count`. Without
     * displs they follow each other. The caller's arrays; copies of them in a request. */
    const size_t *counts[2], *displs[2];
    uint64_t agree;            /* what all ranks must have alike: the count, or a hash of the counts; COLL_OWN_TABLE: a
                                * number, which all ranks' add up to 0 when their tables fit */
    bool asked_in_place;       /* MPI_IN_PLACE was given, in a call where all ranks must give it or none */
};
enum { SIDE_SEND, SIDE_RECV };

static inline uint64_t call_what(const struct call *call)
{
    return meet_what(call->kind, call->type, call->op, call->root, call->asked_in_place) |
           (call->premul ? MEET_PREMUL : 0);
}

enum op_state { OP_IDLE, OP_QUEUED, OP_WAIT_STREAM, OP_STAGE_OUT, OP_MEET, OP_TABLES, OP_RUN, OP_STAGE_IN, OP_DONE };

struct op;

/* A wait under way: see watch.c. All zero is a good start too. */
struct watch {
    uint64_t began_ns, progress, looked_ns;
    unsigned polls;
    bool locked;               /* the caller holds the engine's lock */
    uint64_t id;               /* of that op, where the watch outlives the wait */
    const struct op *op;       /* what is waited for, NULL: anything; only read during a call */
};

/* A collective, or a message, under way; lives in its request. */
struct op {
    struct comm *comm;
    struct op *next;
    uint64_t id;               /* never used twice on a communicator */
    bool p2p;                  /* a message: `message` counts, not what follows up to `meet` */
    struct call call;
    int state;
    bool planned;              /* a persistent call: the next two and `plan` were found when it was made */
    bool small;                /* the one-exchange short cut */
    bool stage;                /* a short cut whose buffers the CPU may not touch */
    struct exec_plan *plan;    /* of a schedule, see exec.c; NULL: made when it runs */
    struct meet meet;
    bool met;                  /* it was held before the op was submitted */
    mem_event_t *event;        /* on_stream: where the caller's stream must come to */
    uint64_t stream_value;     /* on_stream: what the stream waits for; 0: not on a stream */
    _Atomic uint64_t *stream_word;   /* ... where */
    struct watch watch;        /* on_stream: nobody waits but the stream, so the progress thread looks around */
    bool orphan;               /* nobody waits: the engine calls release when done */
    void (*release)(struct op *op);
    _Atomic bool done;
    int error;                 /* valid when done */
    char text[512];
    struct p2p_msg message;
};

/* The engine's lock guards communicators' queues, the list of communicators and all progress. */
void engine_lock(void);
void engine_unlock(void);
bool engine_trylock(void);

/* How many ops are under way on all communicators. */
int engine_pending(void);
/* For p2p.c, under the lock: an op is under way from now on; it has ended. The op may be gone when end returns. */
void engine_op_begin(struct op *op);
void engine_op_end(struct op *op, int code);

/* Queues an op (comm and call filled in), and posts it if it is the first. The op must stay in place until done. */
void engine_submit(struct op *op);
/* Finds and allocates, once, what every run of a persistent op needs (comm and call filled in). */
int engine_plan(struct op *op);
void engine_plan_free(struct op *op);
/* Lets everything move that can; true if something did. Skips what another thread is doing. */
bool engine_progress(void);
/* Waits until op is done, with the settings' timeout; returns its error (text in err_text). */
int engine_wait(struct op *op);
/* Waits until nothing is under way on comm (or it failed). */
void engine_drain(struct comm *comm);
void engine_comm_release(struct comm *comm);
/* A thread of our own drives progress from now on. HETMPI_ERR_UNSUPPORTED where MPI does not allow it for comm. */
int engine_want_thread(struct comm *comm);
bool engine_thread_allowed(const struct comm *comm);
/* The same for messages, which always go over MPI. */
int engine_want_p2p_thread(struct comm *comm);
bool engine_p2p_thread_allowed(const struct comm *comm);
void engine_stop(void);

/* small.c: the short cut. */
bool small_fits(const struct comm *comm, const struct call *call);
/* Blocking, buffers in host memory, nothing queued on comm. */
int small_run(struct comm *comm, const struct call *call);
/* Waits until all have come to the meeting. */
int small_wait(struct comm *comm, struct meet *meet, const struct call *call);
/* What this rank posts, but for the scaling of a premultiplied sum: small_post does that. */
void small_payload(const struct comm *comm, const struct call *call, const void **data, size_t *bytes);
/* meet_post for a short cut; data: host memory. */
int small_post(struct comm *comm, struct meet *meet, const struct call *call, const void *data, size_t bytes);
/* Memory that short cuts of this communicator need, taken once. */
int small_reserve(struct comm *comm);
/* After the meeting: result to `out` (host memory), as recv is laid out, or packed: blocks without gaps. */
int small_combine(struct comm *comm, const struct call *call, uint64_t number, void *out, bool packed);
/* Bytes of the result, packed (0: this rank gets none). */
size_t small_result_bytes(const struct comm *comm, const struct call *call);

/* small_pairs.c: those whose counts only pairs of ranks know (COLL_OWN_TABLE). The short cut may be tried (all ranks
 * alike); posts this rank's part, with its data if it may, the CPU can read them, and they are few; all posts have data;
 * and after that. */
bool pairs_may(const struct comm *comm, const struct call *call);
int pairs_post(struct comm *comm, struct meet *meet, const struct call *call, bool may);
bool pairs_all_here(const struct comm *comm, uint64_t number);
void pairs_combine(const struct comm *comm, const struct call *call, uint64_t number);
/* gatherv, scatterv: after the meeting every rank knows the lengths of all blocks; all ranks alike. Not so in one island,
 * where there is nothing to share, and with too many ranks. The greatest; fills counts [size], or NULL. */
bool pairs_tell(const struct comm *comm, enum coll_kind kind);
size_t pairs_told(const struct comm *comm, uint64_t number, size_t *counts);
/* Blocking, as small_run. COMM_AGAIN: the meeting is over, and the rest is the engine's: see op->met. */
int pairs_run(struct comm *comm, const struct call *call, struct meet *meet);

/* exec.c: schedules. */
struct exec;
struct exec_plan;
/* All that can be known of a run before it: schedule, chunks, places in memory; and the memory and paths it will need.
 * Under the engine's lock. */
int exec_plan_make(struct comm *comm, const struct call *call, struct exec_plan **plan);
void exec_plan_free(struct exec_plan *plan);
/* plan: of this call, or NULL. */
int exec_begin(struct comm *comm, const struct call *call, const struct exec_plan *plan, uint64_t number);
/* One pass; *moved is set if something did; *done when the collective is complete. */
int exec_poll(struct comm *comm, bool *moved, bool *done);
void exec_describe(const struct comm *comm, char *text, size_t bytes);   /* where it stands, for reports */
/* After a failure: queued device work is finished, so that nothing touches the caller's buffers any more. */
void exec_stop(struct comm *comm);
void exec_release(struct comm *comm);

/* watch.c: waiting. */
void watch_begin(struct watch *watch, const struct comm *comm, const struct op *op);
/* Between two polls: spins, yields, later sleeps; finds failures of others, dead ranks and the timeout (then the
 * communicator is failed; returns the code). meet and call are of a short cut; NULL: the watch's message, or the head
 * of comm's queue. */
int watch_look(struct watch *watch, struct comm *comm);   /* the same without spinning or yielding */
/* MPI, memory or a device gave an error: did a rank of this node die? Then the communicator is failed for that, and the
 * code returned. */
int watch_blame_dead(struct comm *comm, int code_so_far);
/* A rank of this node whose process has ended; -1: none, as far as is known. */
int watch_find_dead(const struct comm *comm);
/* In a wait for MPI's own set-up calls: lets others learn, answers them. */
void watch_setup(struct watch *watch);
int watch_pause(struct watch *watch, struct comm *comm, const struct meet *meet, const struct call *call);

#endif
