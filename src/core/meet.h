/*
 * Meetings: every collective begins with one. Each rank posts what it called (and, for small messages, its data) in its
 * control segment and reads what the others posted; between groups of ranks that share no memory, the lowest rank of
 * each group speaks for it over MPI. After a meeting every rank knows that all have come and that all called the same.
 *
 * Words. In a call with MEET_WORDS the data of every rank begin with a word of 8 bytes, and after the meeting every rank
 * knows all ranks' words, of other nodes too: the leaders' messages carry those of their groups, and each leader leaves
 * the table of all where its own data stood.
 */
#ifndef HETMPI_MEET_H
#define HETMPI_MEET_H

#include <stdbool.h>
#include <stdint.h>

#include "core/comm.h"

/* kind, type, op, MPI_IN_PLACE (where all ranks must give it) and root of a call in one word, for comparing; and whether
 * the counts are added up instead of compared. A premultiplied sum is a sum with a mark: the scalars are each rank's.
 * gatherv, scatterv: all but the root know their own count alone, and tell it by the word. */
#define MEET_IN_PLACE (UINT64_C(1) << 24)
#define MEET_SUMS (UINT64_C(1) << 25)
#define MEET_PREMUL (UINT64_C(1) << 26)
#define MEET_WORDS (UINT64_C(1) << 27)
static inline uint64_t meet_what(enum coll_kind kind, enum red_type type, enum red_op op, int root, bool in_place)
{
    return (uint64_t)kind | (uint64_t)type << 8 | (uint64_t)op << 16 | (in_place ? MEET_IN_PLACE : 0) |
           (coll_traits(kind) & COLL_OWN_TABLE ? MEET_SUMS : 0) |
           (coll_tells(kind) ? MEET_WORDS : 0) | (uint64_t)(uint32_t)root << 32;
}

/* Most ranks whose words a meeting carries: the table must fit the place of the data. */
#define MEET_WORDS_MAX ((int)((CTL_INLINE + CTL_SMALL_MAX) / sizeof(uint64_t)))

struct meet {
    uint64_t number;
    int arrived;     /* ranks of comm->local seen, in order */
    uint64_t sum;    /* COLL_OWN_TABLE, when done: of all ranks' counts as posted; 0 when their tables fit: see tables.h */
};

/* Memory for meetings, taken once; the first post does it else. */
int meet_open(struct comm *comm);
/* A post in two steps: begin says where this rank's data go (at most CTL_SMALL_MAX + CTL_INLINE bytes), and what is written
 * there is for others when it is published. */
int meet_begin(struct comm *comm, struct meet *meet, unsigned char **data);
void meet_publish(struct comm *comm, const struct meet *meet, uint64_t what, uint64_t count);
/* Both in one. `data` may be NULL when bytes is 0. */
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
/* MEET_WORDS, at most MEET_WORDS_MAX ranks: the word of a rank, in a meeting that is done and not yet followed by another. */
uint64_t meet_word(const struct comm *comm, int rank, uint64_t number);
void meet_release(struct comm *comm);
/* "allreduce(count 3, int32, sum)", of the two words that are compared. */
void meet_describe(uint64_t what, uint64_t count, char *text, size_t bytes);

#endif
