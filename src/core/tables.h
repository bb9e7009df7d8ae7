/*
 * Counts that only two ranks have in common (gatherv, scatterv, alltoallv). Every rank adds up a hash of each pair's count,
 * plus for what it sends, minus for what it receives. The sum over all ranks, which their meeting makes, is 0 when every
 * pair agrees, on any number of ranks and nodes and with no message more. Only when it is not, the ranks find out which
 * pair disagrees: in a second meeting to which they bring their tables, or, between nodes, by an exchange over MPI.
 */
#ifndef HETMPI_TABLES_H
#define HETMPI_TABLES_H

#include "core/engine.h"

/* Elements that this rank sends to that one in the call, and receives from it, as far as this rank knows. NOT_SENT: none
 * in this collective, or to itself. */
#define TABLES_NOT_SENT UINT64_MAX
uint64_t tables_sent_to(const struct comm *comm, const struct call *call, int rank);
uint64_t tables_received_from(const struct comm *comm, const struct call *call, int rank);

/* What the meeting adds up. */
uint64_t tables_sum(const struct comm *comm, const struct call *call);
/* After the meeting; HETMPI_ERR_MISMATCH on all ranks alike. COMM_AGAIN: the ranks are finding out, call again. */
int tables_check(struct comm *comm, const struct call *call, const struct meet *meet);
void tables_release(struct comm *comm);

#endif
