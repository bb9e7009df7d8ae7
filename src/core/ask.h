/*
 * What the ranks of other nodes are doing: asked over MPI, answered by any rank of theirs that waits in hetmpi, for its
 * whole node. Who does not answer in time is not waited for.
 */
#ifndef HETMPI_ASK_H
#define HETMPI_ASK_H

#include "core/status.h"

/* Fills in all[size] for the ranks of other nodes (number: as in status_read), within about `seconds`. HETMPI_SUCCESS, or
 * the failure of the communicator that came meanwhile from another rank. */
int ask_nodes(struct comm *comm, uint64_t number, struct status_rank *all, double seconds);
/* Answers what others ask, on all communicators of the process. Under the engine's lock. */
void ask_serve(void);
/* Takes in one answer to question `id`, whatever its bytes are (aligned as malloc does). */
void ask_read_answer(const struct comm *comm, const void *data, size_t bytes, uint64_t id, struct status_rank *all);

#endif
