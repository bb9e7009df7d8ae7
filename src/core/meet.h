/*
 * Meetings: every collective begins with one. Each rank posts what it called (and, for small messages, its data) in its
 * control segment and reads what the others posted; between groups of ranks that share no memory, the lowest rank of
 * each group speaks for it over MPI. After a meeting every rank knows that all have come and that all called the same.
 */
#ifndef HETMPI_MEET_H
#define HETMPI_MEET_H

#include <stdbool.h>
#include <stdint.h>

#include "core/comm.h"

/* kind, type, op and root of a call in one word, for comparing. */
static inline uint64_t meet_what(enum coll_kind kind, enum red_type type, enum red_op op, int root)
{
    return (uint64_t)kind | (uint64_t)type << 8 | (uint64_t)op << 16 | (uint64_t)(uint32_t)root << 32;
}

struct meet {
    uint64_t number;
    int arrived;     /* ranks of comm->local seen, in order */
};

/* Posts this rank's part. `data` (at most CTL_SMALL_MAX + CTL_INLINE bytes) may be NULL when bytes is 0. */
int meet_post(struct comm *comm, struct meet *meet, uint64_t what, uint64_t count, const void *data, size_t bytes);
/* *done when all have posted. HETMPI_ERR_MISMATCH (with *done): they called different things; every rank gets the same
 * verdict. Never blocks. */
int meet_poll(struct comm *comm, struct meet *meet, bool *done);
/* The first rank that has not come, for reports; -1: none known. */
int meet_missing(const struct comm *comm, const struct meet *meet);
/* What a rank of this node posted in a meeting that is done and not yet followed by another. */
static inline const unsigned char *meet_data(const struct comm *comm, int rank, uint64_t number)
{
    return comm->ctls[rank]->meet[number & 1].data;
}
void meet_release(struct comm *comm);

#endif
