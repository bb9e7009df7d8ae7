/*
 * Counts that only two ranks have in common (gatherv, scatterv, alltoallv): posted in the meeting, where all ranks
 * share memory, so that every rank finds the first pair that disagrees, before anything is moved.
 */
#ifndef HETMPI_TABLES_H
#define HETMPI_TABLES_H

#include "core/engine.h"

#define TABLES_RANKS 128                       /* every rank compares all pairs: more cost more than they tell */
#define TABLES_ROOM (2 * TABLES_RANKS)         /* numbers that a rank posts at most */

/* What this rank posts: how many numbers, 0 where nothing is compared. */
size_t tables_payload(const struct comm *comm, const struct call *call, size_t numbers[TABLES_ROOM]);
/* After the meeting; HETMPI_ERR_MISMATCH on all ranks alike. */
int tables_check(const struct comm *comm, const struct call *call, uint64_t number);

#endif
