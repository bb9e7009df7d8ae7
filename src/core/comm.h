/*
 * What hetmpi knows of a communicator: topology, settings, the control segments of the ranks of this node, provider,
 * wires, and the queue of collectives. Cached on the MPI_Comm as an attribute.
 */
#ifndef HETMPI_COMM_H
#define HETMPI_COMM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <mpi.h>

#include "core/config.h"
#include "core/seg.h"
#include "core/sched.h"
#include "core/topo.h"
#include "mem/mem.h"

#define CTL_LINE 64
#define CTL_SLOTS 16          /* most slots of an island's board */
#define CTL_SMALL_MAX 16384   /* most payload bytes of a meeting */
#define CTL_INLINE 40         /* payload bytes that share a cache line with the meeting's header */

/* One rank's part in one meeting: what it called, and its data if small. The line is written before `seq`. */
struct ctl_meet {
    _Alignas(CTL_LINE) _Atomic uint64_t seq;   /* number of the meeting, from 1 */
    _Atomic uint64_t what;                     /* kind, type, op, flags, root packed; see meet.h */
    _Atomic uint64_t count;
    unsigned char data[CTL_INLINE];            /* the first bytes of the payload */
    unsigned char more[CTL_SMALL_MAX];         /* the rest */
};

struct ctl_word { _Alignas(CTL_LINE) _Atomic uint64_t value; };

/* A larger memory region of one rank that peers map when they need it. */
enum ctl_region_kind { REGION_BOARD, REGION_WIRE, REGION_IPC, REGION_KINDS };
struct ctl_region {
    _Alignas(CTL_LINE) _Atomic uint64_t ready; /* 0: not there yet, 1: there, 2: could not be made */
    struct seg_name name;                      /* host memory, */
    mem_ipc_t ipc;                             /* device memory of the rank's vendor, or both: by kind */
};

/* What a rank is doing, for reports of others. Written by the rank, read any time (relaxed); see status.h. */
struct ctl_status {
    _Alignas(CTL_LINE) _Atomic uint64_t finished;   /* number of the last collective that ended here */
    _Alignas(CTL_LINE) _Atomic uint64_t call;  /* the collective that the next five are about */
    _Atomic uint32_t phase, step;              /* enum sched_phase, enum sched_kind */
    _Atomic uint64_t chunk, chunks;
    _Atomic int32_t waits_for;                 /* communicator rank, -1: none in particular */
    /* What a thread of the rank waits in, said every few milliseconds. */
    _Atomic uint32_t wait;                     /* enum status_wait */
    _Atomic uint64_t beat_ns;                  /* when: the node's monotonic clock */
    _Atomic int32_t wait_peer, wait_tag;       /* of a message */
    _Atomic uint64_t wait_bytes, wait_call, wait_what;
};

/* One rank's control segment. Only that rank writes it, except `failure`, `claim` and `dumped`. */
struct ctl {
    uint64_t cookie;                           /* of seg */
    int32_t pid, rank;
    struct ctl_meet meet[2];                   /* by parity of the meeting's number */
    struct ctl_word published[CTL_SLOTS];      /* island board: number + 1 of the local operation whose data stands there */
    struct ctl_word done[CTL_SLOTS];           /* ... that this rank has finished reading (everybody's slot) */
    struct ctl_region region[REGION_KINDS];
    struct ctl_status status;
    struct ctl_word verdict[2];                /* of a meeting over several nodes: number; see meet.c */
    uint64_t verdict_data[2][8];
    struct ctl_word claim, dumped;             /* the lowest rank's: who reports for the node, see report.c, dump.c */
    struct ctl_word failure;                   /* first failure on this communicator: see comm_fail */
    char failure_text[512];
};

struct island;
struct wire;
struct wire_net;
struct op;

struct comm {
    MPI_Comm user;             /* the application's; never used for point-to-point */
    MPI_Comm shadow;           /* our duplicate; MPI_COMM_NULL when everything stays on one node */
    uint64_t serial;           /* never used twice in a process */
    int rank, size;
    const struct cfg *cfg;     /* of this communicator */
    struct cfg *cfg_own;       /* non-NULL: allocated for it */
    bool islands_own;          /* ISLANDS was given for it: one label for each of its ranks, not of the job's */
    struct topo topo;
    int32_t *pids;             /* [size] */
    char (*vendors)[8];        /* [size] */

    /* This node. */
    struct seg ctl_seg;
    struct ctl *ctl;           /* ours; NULL when no other rank shares our node */
    struct ctl *mine;          /* the same, or where it is NULL one that nobody else sees; NULL: one rank alone */
    struct ctl **ctls;         /* [size] of ranks on this node, else NULL */
    struct seg *ctl_segs;      /* [size] */
    int *local;                /* [n_local] ranks on this node with shared memory, ascending, ours among them */
    int n_local;
    bool one_node;             /* all ranks are in local */
    int *leaders;              /* [n_groups] lowest rank of each group of ranks that share memory, ascending */
    int n_groups;              /* 1 with one_node */
    int spin;                  /* polls before yielding */
    bool crowded;              /* this node has more ranks, with what works for them, than cores */
    size_t chunk_min;          /* fewest bytes of a chunk that pay, as the ranks' devices have it */
    size_t chunk_max;          /* most bytes of a chunk, the same on all ranks */
    bool any_device;           /* some rank has a device */
    bool small_ok;             /* the small-message short cut can serve this communicator */

    struct island *island;     /* opened at the first collective that needs it */
    struct wire *wire_shm, *wire_ipc, *wire_mpi, *wire_verbs;
    struct wire_net *nets;     /* [size] what ranks published for the verbs wire; NULL: it serves no pair */
    bool island_ipc;           /* the members of this rank's island reach each other's device memory */

    uint64_t meetings;         /* number of the last meeting begun */
    struct tables *tables;     /* finding out whose counts differ: see tables.c */
    struct meet_net *net;      /* exchange of meetings between groups: see meet.c */
    uint64_t local_ops;        /* number of the next local operation of the island */

    /* Queue of collectives: one runs at a time, in call order, which is the same on all ranks. */
    struct op *head, *tail;
    _Atomic int queued;
    uint64_t ops;              /* queued so far */
    struct exec *exec;         /* runs the schedule of the head: see exec.c */
    struct sched_cache *cache;
    unsigned char *small_partials;  /* island results of a short cut over several islands */
    void *small_stage;         /* pinned host memory for short cuts with device buffers: see engine_stage.c */
    mem_event_t *small_event;  /* ... and the end of their copies: one is under way at a time */
    _Atomic uint64_t *stream_word; /* pinned: number of on_stream calls completed */
    uint64_t stream_calls;
    _Atomic int async_code;    /* error of an on_stream call that nobody has seen yet */
    char async_text[512];
    struct p2p *p2p;           /* messages: see p2p.c; a communicator of one rank has it from its first message on */
    _Atomic uint64_t progress; /* grows whenever something moved; watched by waits */

    bool ran;                  /* some rank has begun a schedule: known to all */
    bool goodbye_said;
    bool stillborn;            /* of set-up that timed out, or what ended with a lost rank, only the failure is kept */
    struct mail *mail;         /* short messages to other nodes that MPI still holds: see mail.c */
    _Atomic bool notice_sent;          /* this rank has told other nodes about its failure: see notice.c */
    _Atomic bool notice_due;   /* ... or has to tell them, once a thread comes that may call MPI */
    _Atomic int failed;        /* 0, or the code that ended this communicator's use */
    char failed_text[512];
    struct comm *next;         /* all communicators of the process */
};

/* What hetmpi holds for a communicator, set up now (collectively) if it is not there. */
int comm_get(MPI_Comm user, MPI_Info info, struct comm **comm);
/* Only if it is there; else NULL. Not collective. */
struct comm *comm_find(MPI_Comm user);
/* Frees it after what is pending. An error that comes up in that is returned; after the loss of a rank the failure stays
 * with the MPI communicator, so that later calls end at once. */
int comm_detach(struct comm *comm);
int comm_on_delete(MPI_Comm user, int keyval, void *value, void *extra);   /* MPI attribute callback */
void comm_free_all(void);
struct comm *comm_first(void);     /* list of all, under the engine's lock */
bool comm_lives(uint64_t serial);  /* is it still there? */
/* The same, at the price of one look while none has ended since *seen, a comm_generation() at which it lived. */
unsigned comm_generation(void);
bool comm_lives_still(uint64_t serial, unsigned *seen);

/* setup.c: everything that needs all ranks. *comm is ready or untouched. */
int comm_setup(MPI_Comm user, const struct cfg *cfg, struct comm *comm);
void comm_close_paths(struct comm *comm);   /* the provider and the wires; what is under way there is cancelled */
void comm_release(struct comm *comm);   /* frees what setup and later use took, not the struct itself */

/* Ends the use of a communicator: stores code and text, tells the ranks of this node and of others. The first failure
 * wins; returns its code, with the text as this thread's error. */
int comm_fail(struct comm *comm, int code, const char *text);
/* A call whose arguments are right could not begin here, with this code (0: it could): its peers would wait for it, so
 * where memory, the device or MPI failed that ends the communicator's use too. */
int comm_lose_call(struct comm *comm, int code);
/* The same from any thread, whatever the others do in MPI now: where that may be, another thread tells other nodes. */
int comm_abort(struct comm *comm, const char *text);
/* The same for this node alone: the failure came from another one. */
int comm_fail_here(struct comm *comm, int code, const char *text);
/* An error that an earlier on_stream call left, once. */
int comm_take_async(struct comm *comm);
/* HETMPI_SUCCESS, or the failure of this communicator (found here or by another rank of the node). */
int comm_failed(struct comm *comm);
/* Set-up alone. Waits for a collective of MPI's own; another rank may come only after what is under way here on other
 * communicators: that goes on. After a timeout or a death, which make the communicator stillborn, MPI still owns the
 * call's buffers. */
int comm_wait_mpi(struct comm *comm, MPI_Request *request);
/* MPI's duplicate of the user's communicator, returning errors. */
int comm_duplicate(struct comm *comm, MPI_Comm *made);
/* Memory of a collective of MPI's that was given up belongs to MPI until the process ends. */
void comm_leave_to_mpi(void *memory);
/* MPI's answer as a code of ours, with MPI's text. */
int comm_mpi_error(int mpi_code, const char *call);

/* Tags on the shadow communicator. */
enum { TAG_WIRE = 0, TAG_ISLAND = 8192, TAG_MEET = 16384, TAG_NOTICE = 16386, TAG_ASK = 16387, TAG_TELL = 16388,
       TAG_VERBS = 16389,
       TAG_WIRE_MAX = 8191 };

/* A peer's region on this node. Not ready yet: COMM_AGAIN. The mapping belongs to the caller (seg_clear or
 * mem_ipc_close). */
#define COMM_AGAIN (-1)
int comm_region_publish(struct comm *comm, enum ctl_region_kind kind, const struct seg_name *name, const mem_ipc_t *ipc);
int comm_region_name(struct comm *comm, int rank, enum ctl_region_kind kind, struct seg_name *name, mem_ipc_t *ipc);
/* There is none, for the reason that is this thread's error: all ranks are told that first, then that none will come, so that
 * whoever waits for it reports the reason. Returns the code of the communicator's failure. */
int comm_region_lost(struct comm *comm, enum ctl_region_kind kind, int code);
/* The rank that speaks for this rank's group of ranks that share memory. */
static inline int comm_leader(const struct comm *comm) { return comm->ctl ? comm->local[0] : comm->rank; }
/* Its control segment, which has what is the group's; NULL: one rank alone. */
static inline struct ctl *comm_leader_ctl(const struct comm *comm)
{
    return comm->ctl ? comm->ctls[comm->local[0]] : comm->mine;
}
/* Two ranks share memory (same node, control segments mapped). */
static inline bool comm_is_local(const struct comm *comm, int rank) { return comm->ctls && comm->ctls[rank]; }

#endif
