/*
 * What each rank of a communicator is doing: every rank publishes it in its control segment, those of its node read it
 * there at any time, and other nodes ask for it (see ask.h). For reports and dumps.
 */
#ifndef HETMPI_STATUS_H
#define HETMPI_STATUS_H

#include "core/engine.h"

enum status_life { LIFE_UNKNOWN, LIFE_RUNS, LIFE_STOPPED, LIFE_ENDED };   /* UNKNOWN: no answer */

/* What a thread of the rank waits in, beside a collective of this communicator. ELSEWHERE: in one of another. */
enum status_wait { WAIT_NOTHING, WAIT_COLLECTIVE, WAIT_SEND, WAIT_RECV, WAIT_ELSEWHERE, WAIT_SETUP };

/* One rank, as it was a moment ago. Plain bytes: nodes send it to each other. */
struct status_rank {
    int32_t rank, pid;
    uint32_t life, wait;
    uint32_t idle_ms;                    /* since a thread last waited in hetmpi there; UINT32_MAX: never */
    uint32_t phase, step;                /* of the collective, if `call` of its status is `posted` */
    int32_t waits_for;
    int32_t peer, tag;                   /* of the message in WAIT_SEND, WAIT_RECV */
    uint64_t bytes;
    uint64_t posted, finished;           /* numbers of the last collective that it came to, and that ended there */
    uint64_t what, count;                /* of `posted`: see meet.h */
    uint64_t chunk, chunks;
    uint64_t other_call, other_what;     /* in WAIT_ELSEWHERE */
};

#define STATUS_FRESH_MS 500u             /* a thread that waits says so at least this often, on a busy machine too */

/* Under the engine's lock: this process says on all its communicators that a thread of it waits, on `comm` (NULL: in the
 * set-up of one) in `call` or, where that is NULL, for `op` or the head of the queue. */
void status_beat(struct comm *comm, const struct call *call, const struct op *op);
/* A rank that shares memory with this one, or this one; others are LIFE_UNKNOWN. What it posted in collective `number`
 * where that is one of its last two, else (or 0) in its last. */
void status_read(const struct comm *comm, int rank, uint64_t number, struct status_rank *out);

static inline bool status_in_collective(const struct status_rank *s) { return s->posted > s->finished; }
static inline bool status_waits(const struct status_rank *s) { return s->idle_ms < STATUS_FRESH_MS; }
/* "in call 7: allreduce(count 3, int32, sum), exchange between islands, chunk 2 of 9, receives from rank 1". */
void status_describe(const struct status_rank *s, char *text, size_t bytes);

#endif
