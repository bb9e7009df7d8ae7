/*
 * Wires carry data between islands, and where a schedule says so between ranks of one island. A wire object serves one
 * communicator; which wire a pair of ranks uses is chosen per pair (wire_for). Messages are two-sided, named by
 * (op, chunk, channel), and complete by polling; nothing blocks, and nothing allocates once the wire is warm.
 *
 * Flow control: send and recv answer COMM_AGAIN when no staging slot or credit is free; the caller tries again later,
 * and tries in (op, chunk) order, never letting a later message of the same direction pass an earlier one that was
 * refused. A wire keeps separate slots for sending and receiving, so that two ranks that send first cannot deadlock.
 *
 * Made for RDMA as well: memory that the wire can reach without staging is registered once (reg / dereg; the handle is
 * plain bytes for the peer), and `put` writes into a peer's registered memory and then notifies it. A wire without
 * these has WIRE_CAN_PUT unset and NULL entries.
 */
#ifndef HETMPI_WIRE_H
#define HETMPI_WIRE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/comm.h"
#include "core/sched.h"

/* One message, in the caller's memory; stays there until poll says done. Elements first .. first+length of view;
 * zero-length messages are never passed to a wire. */
struct wire_xfer {
    int peer;                  /* communicator rank */
    uint64_t op;               /* number of the collective: same on both sides */
    uint32_t chunk;
    uint16_t channel;          /* <= TAG_WIRE_MAX */
    struct sched_view view;
    size_t first, length;
    /* The wire's own. */
    const struct wire_ops *ops;
    int state, slot;
    void *request;             /* the wire's object */
    mem_event_t *event;
    size_t moved;
};

struct wire;

enum { WIRE_CAN_PUT = 1, WIRE_NEEDS_MPI = 2 };

struct wire_ops {
    const char *name;          /* "mpi", "shm", "ipc", "verbs" */
    unsigned caps;
    int (*open)(struct comm *comm, struct wire **wire);
    void (*close)(struct wire *wire);                        /* after the last transfer, or after a failure: cancels */
    int (*send)(struct wire *wire, struct wire_xfer *xfer);  /* HETMPI_SUCCESS: begun; COMM_AGAIN; or an error */
    int (*recv)(struct wire *wire, struct wire_xfer *xfer);
    /* Also makes progress. Each transfer under way must be polled: one may wait for those before it. */
    int (*poll)(struct wire *wire, struct wire_xfer *xfer, bool *done);
    int (*rails)(const struct wire *wire, int peer);         /* how many links carry messages to peer */
    int (*reserve)(struct wire *wire, size_t messages);      /* so many may be under way at once, NULL: not needed */
    int (*progress)(struct wire *wire);                      /* what peers need though no message of ours waits; or NULL */
    void (*part)(struct wire *wire);                         /* all had their last transfer, none has closed it; or NULL */
    const char *(*carries)(const struct wire *wire, int peer);  /* its name, but for pairs that it hands on; or NULL */
    /* One-sided, only with WIRE_CAN_PUT. */
    int (*reg)(struct wire *wire, void *base, size_t bytes, void *handle64);
    int (*dereg)(struct wire *wire, void *base);
    int (*put)(struct wire *wire, struct wire_xfer *xfer, const void *peer_handle64, uint64_t peer_offset);
};

struct wire { const struct wire_ops *ops; struct comm *comm; };   /* first member of each wire's own struct */

extern const struct wire_ops wire_mpi, wire_shm, wire_ipc, wire_verbs;

/* The wire between this rank and `peer`, opened on first use. */
int wire_for(struct comm *comm, int peer, struct wire **wire);
/* Which it would be: "shm", "ipc", "verbs", "mpi" (no resources taken). */
const char *wire_name_for(const struct comm *comm, int peer);
/* How many links that wire has to the peer, as far as is known. */
int wire_rails(const struct comm *comm, int peer);
/* A wire of this communicator, opened on first use. */
int wire_want(struct comm *comm, const struct wire_ops *ops, struct wire **wire);
/* Two ranks could use the verbs wire, by what they published: the same answer on all ranks. */
bool wire_verbs_joins(const struct comm *comm, int a, int b);

/* What the verbs wire publishes of a rank at set-up: its own bytes. */
struct wire_net { unsigned char bytes[256]; };
bool wire_verbs_present(void);                               /* this machine has RDMA devices; cheap */
int wire_verbs_net(const struct cfg *cfg, struct wire_net *net);
bool wire_verbs_reaches(const struct wire_net *a, const struct wire_net *b);

#endif
