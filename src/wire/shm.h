/*
 * The shm wire: ranks of one node exchange through shared memory that both sides registered with their devices, so
 * that copy engines write and read it directly. The ipc wire is the same with slots in the sender's device memory, which
 * the receiver has opened: between ranks of one island, whose data need not leave their devices' own links.
 *
 * Each rank makes one region at its first send: a ring of descriptors for each rank of the node, and a pool of slots.
 * A message is cut into fragments of at most a slot. The sender copies a fragment into a slot and then publishes it at
 * the end of the receiver's ring; the receiver takes descriptors from the ring in order into its own memory, copies out
 * what belongs to the receives that are under way, in any order, and hands each slot back by storing the fragment's
 * ticket in the slot's `released` word. A rank writes its own region only, but for the released words, which belong to
 * whom the slot was published to.
 *
 * No deadlock: each peer has one slot of the pool to itself, so none can starve another; and a
 * receiver that waits in vain while the sender is out of slots moves fragments that nobody asked for out of the way.
 */
#ifndef HETMPI_WIRE_SHM_H
#define HETMPI_WIRE_SHM_H

#include "wire/stage.h"
#include "wire/wire.h"

/* One fragment of a message. */
struct shm_part {
    uint64_t op, total, offset, ticket;      /* bytes of the message, bytes from its start */
    uint32_t chunk, slot, bytes;
    uint16_t channel;
};

/* An entry of the ring of (owner, receiver). */
struct shm_desc {
    _Alignas(CTL_LINE) _Atomic uint64_t seq; /* place in the ring's order, from 1; stored last */
    struct shm_part part;
};
_Static_assert(sizeof(struct shm_desc) == CTL_LINE, "a descriptor is one cache line");

/* How a region is laid out, and whose it is. */
struct shm_shape {
    uint64_t slot_bytes;
    uint32_t slots, descs, locals;
    int32_t rank;
};

struct shm_head {
    _Alignas(CTL_LINE) uint64_t cookie;      /* of seg */
    struct shm_shape shape;
};

/* A mapped region. */
struct shm_region {
    bool mine, in_device;                    /* in_device: the slots are an allocation of their own */
    struct seg seg;
    struct shm_shape shape;                  /* of its head, read once and checked: the owner may write there any time */
    struct ctl_word *starving;               /* [locals] 1: the owner waits for slots for that rank */
    struct shm_desc *rings;                  /* [locals][descs] */
    struct ctl_word *released;               /* [slots] */
    char *slots;
    bool registered;
};

/* A slot of our own region. */
struct shm_slot {
    enum { SLOT_FREE, SLOT_COPYING, SLOT_PUBLISHED } state;
    int local;                               /* whom it is for */
    uint64_t ticket, offset;
    uint32_t bytes;
    mem_event_t *event;
    int next;                                /* of the same message, -1: none */
};

struct shm_message {
    int local;
    uint64_t op;
    uint32_t chunk;
    uint16_t channel;
    struct sched_view view;
    size_t first, length, total;             /* elements, elements, bytes */
    size_t issued, moved;                    /* bytes whose copy was begun, and finished */
    int copying;                             /* sends: first slot being filled, -1: none */
    struct shm_frag *reading;                /* receives: fragments being copied out */
    struct shm_message *next;                /* receives of one peer; or the free list */
    struct shm_message *older;               /* all that were ever allocated */
};

/* A fragment that was taken from a peer's ring. */
struct shm_frag {
    struct shm_part part;
    char *stash;                             /* moved out of its slot to here, else NULL */
    mem_event_t *event;
    struct shm_frag *next, *older;
};

/* One rank of the node, by its index in comm->local. */
struct shm_peer {
    bool reserves;                           /* has a slot of our pool to itself */
    int held;                                /* slots of our pool that are for it */
    uint64_t published;
    struct shm_message *filling;             /* the send to it that has fragments left to copy */
    struct shm_region region;                /* its region, once mapped */
    bool mapped;
    uint64_t taken;                          /* descriptors taken from its ring */
    struct shm_frag *pending, **pending_end; /* ... and not yet copied out */
    struct shm_message *receives;
};

struct shm {
    struct wire wire;
    int me;                                  /* our index in comm->local */
    struct shm_peer *peers;                  /* [n_local] */
    int n_peers;                             /* that reserve */
    struct shm_region region;                /* ours; base NULL before the first send */
    struct shm_slot *slots;
    int *free;                               /* stack of free slots */
    int n_free, n_slots, idle;               /* idle: reserving peers that hold none */
    uint64_t ticket, fruitless;
    uint64_t still_ns;                       /* ipc: since when nothing has moved */
    struct stage_lane out, in;
    struct shm_message *free_messages, *all_messages;
    size_t n_messages;
    struct shm_frag *free_frags, *all_frags;
    bool device;
    bool in_device;                          /* the ipc wire */
};

static inline enum ctl_region_kind shm_region_kind(const struct shm *shm)
{
    return shm->in_device ? REGION_IPC : REGION_WIRE;
}
static inline const char *shm_name(const struct shm *shm) { return shm->wire.ops->name; }

/* shm_region.c */
int shm_region_make(struct shm *shm);              /* our own region, at the first send */
int shm_region_map(struct shm *shm, int local);    /* a peer's; COMM_AGAIN until it is there */
void shm_region_clear(struct shm_region *r);

/* shm_send.c */
bool shm_send_ready(struct shm *shm, int local);   /* a send to that rank could begin now */
int shm_frags_reserve(struct shm *shm, size_t more);   /* more fragments of peers may be here at once */
int shm_send_fill(struct shm *shm, struct shm_message *m);      /* begins further copies, as far as slots go */
int shm_send_publish(struct shm *shm, struct shm_message *m);   /* publishes the fragments whose copies have ended */
bool shm_send_read(struct shm *shm);               /* all that was published has been read */

/* shm_recv.c */
int shm_recv_progress(struct shm *shm, struct shm_message *m);
int shm_stalled(struct shm *shm);                  /* to be called when nothing moved: frees what peers may wait for */

#endif
