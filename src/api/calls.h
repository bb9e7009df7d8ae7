/* Collective calls as the application made them, and as hetmpi takes them. */
#ifndef HETMPI_API_CALLS_H
#define HETMPI_API_CALLS_H

#include "api/api.h"

/* What the entry points fill in: parameters by the names that the table of collectives has for them. A call with one
 * count or type uses those of the receiving side; with one buffer, both are that. */
struct raw {
    const char *function;
    enum coll_kind kind;
    const void *sendbuf;
    void *recvbuf;
    size_t sendcount, recvcount;
    const size_t *sendcounts, *sdispls, *recvcounts, *rdispls;
    MPI_Datatype sendtype, recvtype;
    MPI_Op op;
    int root;
    MPI_Comm comm;
};

/* Everything that this rank can find wrong by itself, before anything is changed; fills *call. */
int calls_check(const struct comm *comm, const struct raw *raw, struct call *call);
/* A communicator of one rank: every collective is a copy (true), or nothing. */
bool calls_copy_of_one(const struct call *call, void **dst, const void **src, size_t *bytes);
/* ... and of a premultiplied sum: recv, where the copy is, must then be scaled. */
bool calls_scales_one(const struct call *call);

/* A request outlives the caller's tables: bytes that its call's tables take, and copying them there. */
size_t calls_tables(const struct call *call, int ranks);
void calls_keep_tables(struct call *call, int ranks, size_t *memory);

#endif
