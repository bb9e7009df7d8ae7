/*
 * Inside the simulated device runtime: the state of the process's device and what its files share.
 *
 *   sim.c         the device, its memory, what a pointer is
 *   sim_space.c   which parts of a stretch of addresses are free
 *   sim_ipc.c     device memory of other processes
 *   sim_lane.c    the timing model: links, clocks, sleeping
 *   sim_stream.c  streams (threads with a queue) and events
 *   sim_work.c    copies, kernels, values: checked when queued, run by the stream's thread
 *   sim_fault.c   injected faults
 */
#ifndef HETMPI_MEM_SIM_H
#define HETMPI_MEM_SIM_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mem/common.h"
#include "mem/mem.h"

#define SIM_PAGE ((size_t)4096)
#define SIM_VENDOR_BYTES 8
#define SIM_ERROR_BYTES 256

static inline size_t sim_pages(size_t bytes)      /* whole pages */
{
    return bytes + (SIM_PAGE - 1) - (bytes + (SIM_PAGE - 1)) % SIM_PAGE;
}

/* ---- sim_space.c: the free parts of a stretch of addresses, as offsets. The caller locks. */
struct sim_hole { size_t at, bytes; };
struct sim_space {
    size_t bytes, used;
    struct sim_hole *holes;      /* sorted, never touching */
    size_t n, room, taken;       /* taken: parts given out; room is always enough for giving them all back */
};
int sim_space_init(struct sim_space *space, size_t first, size_t bytes);   /* offsets first .. bytes-1 are free */
void sim_space_clear(struct sim_space *space);
/* Best fit. False: no hole is large enough, or no memory for the list. bytes: a multiple of the page. */
bool sim_space_take(struct sim_space *space, size_t bytes, size_t *at);
void sim_space_give(struct sim_space *space, size_t at, size_t bytes);
size_t sim_space_largest(const struct sim_space *space);

/* ---- sim_lane.c: a link that carries one byte after the other, on a clock of its own. Times are ns of
 * CLOCK_MONOTONIC. */
#define SIM_GAPS 32
struct sim_lane {
    pthread_mutex_t lock;
    double bandwidth;                             /* bytes/s; 0: unlimited */
    int64_t free_at;                              /* booked up to here, except ... */
    int gaps;                                     /* ... the last idle times, oldest first */
    struct { int64_t from, to; } gap[SIM_GAPS];
};
void sim_lane_init(struct sim_lane *lane, double bandwidth);
void sim_lane_clear(struct sim_lane *lane);
/* Books `bytes` at the first times from `ready` on at which the lane is idle; returns when the last byte is over. */
int64_t sim_lane_book(struct sim_lane *lane, int64_t ready, size_t bytes);
int64_t sim_now(void);
void sim_sleep_until(int64_t when);               /* returns early when the runtime is stopping */

/* ---- sim_fault.c */
enum sim_fault_kind { FAULT_COPY, FAULT_KERNEL, FAULT_ALLOC, FAULT_PIN, FAULT_IPC, FAULT_STREAM, FAULT_SLOW, FAULT_KINDS };
int sim_fault_set(const char *text);              /* also resets the counters; "" or NULL: none */
/* Counts an operation of this kind; its number when it is to fail, else 0. */
uint64_t sim_fault_hit(enum sim_fault_kind kind);
/* Operations of this kind so far, since the faults were set; 0 without any. */
uint64_t sim_fault_count(enum sim_fault_kind kind);
/* Counts an operation of any stream; the ns by which it is slowed. */
int64_t sim_fault_slow(void);

/* ---- sim.c */
struct sim_peer {                                 /* another process whose memory was opened */
    struct sim_peer *next;
    uint64_t cookie;
    struct sim_lane read, write;                  /* as seen from here */
};

/* The runtime's record of a range, never freed before mem_fini, so that it can be looked at without a lock. */
struct sim_block {
    _Atomic uint64_t id;                          /* of the range; 0: not in use */
    _Atomic uint32_t busy;                        /* queued operations that use it */
    intptr_t shift;                               /* address for users -> address for the runtime */
    struct sim_peer *peer;                        /* RANGE_PEER */
    int slot;                                     /* in the arena's head; -1: never exported */
    struct sim_block *next;                       /* of the free ones */
};

/* The start of the arena, read by other processes: who it is, and which exported allocations are alive. */
#define SIM_MAGIC 0x6d697369706d7468ull
#define SIM_HEAD_BYTES ((size_t)65536)
#define SIM_SLOTS 8000
struct sim_head {
    uint64_t magic, cookie;
    int32_t pid, device;
    char vendor[SIM_VENDOR_BYTES];
    _Atomic uint64_t live[SIM_SLOTS];             /* buffer id, 0: none */
};
_Static_assert(sizeof(struct sim_head) <= SIM_HEAD_BYTES, "the head does not fit");

/* A stretch of addresses that users see and nobody can touch. */
struct sim_window {
    _Atomic uintptr_t base;                       /* 0: not there yet */
    _Atomic size_t bytes;
    struct sim_space space;
};

struct sim_error {                                /* an error of queued work */
    struct sim_error *next;
    int code;
    _Atomic bool reported;
    char text[SIM_ERROR_BYTES];
};

struct sim {
    pthread_mutex_t lock;                         /* of all that follows but atomics and lanes */
    bool ready, has_device;
    char vendor[SIM_VENDOR_BYTES];
    int device;
    double peer_bandwidth;
    int64_t latency;
    struct sim_lane to_host, to_device;

    int fd;                                       /* the arena: a memfd */
    struct sim_head *head;                        /* its first byte in the runtime's mapping */
    struct sim_window arena, peers;
    int slots_used;                               /* slots below this were given out at least once */
    int slots_free, slot_free[SIM_SLOTS];
    struct sim_peer *peer;

    struct sim_slab *slabs;                       /* memory of the blocks */
    struct sim_block *blocks_free;
    struct sim_error *errors;

    _Atomic bool stopping;
    struct mem_stream *streams;                   /* all, the default one too */
    _Atomic(struct mem_stream *) default_stream;
    struct mem_event *events;
};
extern struct sim sim;

/* Makes the arena if it is not there. Called with the lock held. */
int sim_arena_need(void);
/* Reserves addresses for a window: most bytes, or less where the process may not have so many. */
void *sim_window_reserve(size_t *bytes, int fd);

/* Enters a range with its block, or takes one out: then no operation uses it any more, and its block (whose fields
 * stay readable) must be given back by sim_block_free. `what` names the call in messages. */
int sim_enter(uintptr_t base, size_t bytes, enum range_kind kind, intptr_t shift, struct sim_peer *peer);
int sim_leave(const void *ptr, unsigned kinds, const char *what, struct range *range);
void sim_block_free(struct sim_block *block);

/* An operand of an operation, as the runtime touches it. block: held busy; NULL for ordinary host memory. */
enum sim_side { SIDE_HOST, SIDE_PINNED, SIDE_DEVICE, SIDE_PEER };
struct sim_place { char *at; struct sim_block *block; enum sim_side side; };
/* Checks that `bytes` at ptr are memory that the operation `what` may touch, on one of the sides of `sides` (bits
 * 1 << side), and holds it busy. */
int sim_place_take(const void *ptr, size_t bytes, unsigned sides, const char *what, struct sim_place *place);
void sim_place_give(struct sim_place *place);

struct sim_error *sim_error_new(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
int sim_error_report(struct sim_error *error);    /* to the calling thread; returns its code */

/* ---- sim_ipc.c */
void sim_ipc_clear_peer(const struct range *range);   /* unmaps a taken-out RANGE_PEER; called with the lock held */
void sim_ipc_forget(struct sim_block *block);         /* its handles are stale; called with the lock held */

/* ---- sim_stream.c */
enum sim_op_kind { OP_COPY, OP_SET, OP_REDUCE, OP_KERNEL, OP_CALL, OP_RECORD, OP_WAIT_EVENT, OP_WRITE_VALUE, OP_WAIT_VALUE };

struct sim_operands {                             /* inputs of a reduction */
    struct sim_operands *next;
    const void *at[RED_MAX_INPUTS];
    struct sim_place place[RED_MAX_INPUTS];
};

struct sim_op {
    struct sim_op *next;
    enum sim_op_kind kind;
    int64_t queued, slow;
    uint64_t fault;                               /* number of the operation, when it is to fail */
    struct sim_place dst, src;
    size_t bytes;                                 /* COPY, SET; REDUCE: of dst */
    int byte;                                     /* SET */
    size_t src_bytes;                             /* REDUCE: of each input */
    struct red_call call;
    unsigned char scale[RED_SCALE_BYTES];         /* REDUCE, where call.scale is set */
    struct sim_operands *inputs;
    struct mem_event *event;                      /* RECORD, WAIT_EVENT: holds a reference */
    uint64_t ticket;
    _Atomic uint64_t *word;                       /* values; held busy through dst */
    uint64_t value;
    void (*function)(void *);                     /* KERNEL, CALL */
    void *data;                                   /* ... its argument; of a KERNEL freed by the stream */
};

/* Where a sequence of operations stands on the clock of the timing model. */
struct sim_clock {
    int64_t done;                                 /* all of it is complete */
    const struct sim_lane *lane;                  /* the last one was a transfer on this lane, ... */
    int64_t lane_done;                            /* ... which it left at this time */
};

/* Appends a copy of *op, and of the n inputs. On an error the caller still owns what op holds. */
int sim_stream_push(struct mem_stream *stream, const struct sim_op *op, const struct sim_place *inputs, uint32_t n);
void sim_streams_stop(void);                      /* ends all threads, drops what is queued, frees streams and events */

void sim_event_finish(struct mem_event *event, uint64_t ticket, int64_t when, struct sim_error *error);
/* Waits; when: the time of completion in the model. Returns the error of the work, if any. */
struct sim_error *sim_event_await(struct mem_event *event, uint64_t ticket, int64_t *when);

/* ---- sim_work.c */
/* Runs one operation and waits for its end in the model; the error, if it failed. */
struct sim_error *sim_op_run(struct sim_op *op, struct sim_clock *clock);
void sim_op_release(struct sim_op *op);           /* gives back places and inputs' places */
/* For tests/fake, whose runtimes stand on this one: a function that the stream's thread runs, as the host's (CALL) or as
 * the device's work (KERNEL: it takes time and can be made to fail; `data` is from malloc and freed afterwards). */
int sim_call_async(enum sim_op_kind kind, void (*function)(void *), void *data, struct mem_stream *stream);
void *sim_address(const void *ptr);               /* of device memory, as the runtime touches it; others unchanged */

#endif
