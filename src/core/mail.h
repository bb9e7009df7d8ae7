/*
 * Short messages between the nodes of a communicator that nobody waits for: sent at once, kept until MPI has taken them.
 * A receiver that is gone never takes them, so they may outlive their communicator.
 */
#ifndef HETMPI_MAIL_H
#define HETMPI_MAIL_H

#include "core/comm.h"

/* May anything be sent or received now, by this thread? */
bool mail_possible(const struct comm *comm);
/* A copy of `data` to each of the n ranks, as far as MPI takes it. */
void mail_send(struct comm *comm, int tag, const int *ranks, int n, const void *data, size_t bytes);
/* Has one come? Then it is received: *from, and its bytes in *data, which the caller frees. */
bool mail_look(struct comm *comm, int tag, int *from, void **data, size_t *bytes);
void mail_release(struct comm *comm);

#endif
