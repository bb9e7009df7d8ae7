/* Failures across nodes: see notice.c. */
#ifndef HETMPI_NOTICE_H
#define HETMPI_NOTICE_H

#include "core/comm.h"

/* Tells the leaders of the other groups of ranks, if this thread may call MPI. Once for a communicator. */
void notice_send(struct comm *comm, int code, const char *text);
/* Looks for such a message; then the communicator is failed on this node, and its code returned. */
int notice_look(struct comm *comm);
void notice_release(struct comm *comm);

#endif
