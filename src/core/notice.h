/* Failures across nodes: see notice.c. */
#ifndef HETMPI_NOTICE_H
#define HETMPI_NOTICE_H

#include "core/comm.h"

/* Tells the ranks that share no memory with this one, once for a communicator. Where this thread may not call MPI: as
 * soon as another comes by, */
void notice_send(struct comm *comm, int code, const char *text);
/* ... and does this. */
void notice_send_due(struct comm *comm);
/* ... which another thread is asked for. */
void notice_send_later(struct comm *comm);
/* Looks for such a message; then the communicator is failed on this node, and its code returned. */
int notice_look(struct comm *comm);
/* What a message from rank `from` tells, whatever its bytes are: the failure's code, and its words in text. */
int notice_read(const struct comm *comm, int from, const void *data, size_t length, char *text, size_t bytes);

#endif
