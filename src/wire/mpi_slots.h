/*
 * Slots of registered host memory, through which the mpi wire passes what MPI cannot reach or take in one piece.
 *
 * The slots are bounded by the setting STAGING, half for each direction. The bound gives way for the oldest chunk: a
 * message that no holder of a slot is older than always gets one, so a chunk never waits for slots that later chunks
 * hold, and no set of ranks can deadlock on them.
 */
#ifndef HETMPI_MPI_SLOTS_H
#define HETMPI_MPI_SLOTS_H

#include "mem/mem.h"
#include "wire/wire.h"

struct mpi_slot {
    char *base;
    size_t bytes;
    bool busy;
    uint64_t op;           /* of the holder */
    uint32_t chunk;
    mem_event_t *event;
    bool lost;             /* MPI may still read or write it after the wire is closed */
};

/* The slots of one direction. */
struct mpi_pool {
    struct mpi_slot **slots;
    int n, room;
    size_t bytes, bound;
};

/* A slot for `bytes`, the smallest that fits; COMM_AGAIN when there is none to be had now. */
int mpi_pool_take(struct mpi_pool *pool, size_t bytes, const struct wire_xfer *x, struct mpi_slot **out);
void mpi_pool_clear(struct mpi_pool *pool);

#endif
