/*
 * Local providers do the collectives inside an island. All members start the same local operations in the same order
 * (number 0, 1, 2, ...); several may be in progress, and complete by polling. Nothing blocks, and nothing allocates
 * once the provider is warm.
 */
#ifndef HETMPI_ISLAND_H
#define HETMPI_ISLAND_H

#include <stdbool.h>
#include <stdint.h>

#include "core/comm.h"
#include "core/sched.h"

/* One local step of one chunk, in the caller's memory; stays there until poll says done. Parts: sched_owner_part and
 * sched_reader_part of its chunk. */
struct island_op {
    uint64_t number;                /* place in the island's order */
    const struct sched_step *step;  /* STEP_LOCAL_REDUCE or STEP_LOCAL_SPREAD */
    struct sched_chunk chunk;       /* the lengths of parts follow from it */
    struct sched_view in, out;      /* REDUCE: in whole space, out own part. SPREAD: in own part, out what is read */
    enum red_type type;             /* SPREAD: not used */
    enum red_op op;
    bool out_wide;                  /* REDUCE: the output is in the accumulator's format */
    uint32_t divide_by;             /* REDUCE: as in red_call */
    /* The provider's own. */
    int state;
    uint64_t own[6];
    mem_event_t *event;
};

struct island;

struct island_ops {
    const char *name;               /* "shm", "ipc", "mpi" */
    bool needs_mpi;
    int (*open)(struct comm *comm, size_t slot_bytes, struct island **island);   /* slot_bytes: most a space may take */
    void (*close)(struct island *island);
    int (*start)(struct island *island, struct island_op *op);   /* HETMPI_SUCCESS: begun; COMM_AGAIN; or an error */
    int (*poll)(struct island *island, struct island_op *op, bool *done);
};

struct island {                     /* first member of each provider's own struct */
    const struct island_ops *ops;
    struct comm *comm;
    int members, position;          /* of this rank's island */
};

extern const struct island_ops island_shm, island_ipc, island_mpi;

/* The provider of this rank's island: by setting and facts (no resources taken). */
const struct island_ops *island_choose(const struct comm *comm);
/* Is that `ipc`? comm->island_ipc keeps the answer. */
bool island_reaches_devices(const struct comm *comm);

#endif
