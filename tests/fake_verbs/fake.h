/*
 * A verbs provider without hardware: the ABI of libibverbs, as far as hetmpi uses it, with NICs that are made of memory.
 * Linked into a test, or put in front of the real library as libibverbs.so.1. Processes of one machine reach each other: each
 * has a hub in shared memory, whose pid is its address; the sender of a message does all the work.
 *
 *   device.c    devices, ports, addresses, events
 *   hub.c       the shared memory of a process, and how others reach it and its buffers
 *   memory.c    protection domains and memory regions; registration fails as told
 *   queues.c    completion queues and their channels, shared receive queues
 *   transfer.c  queue pairs; writes, with immediate data or without, that are complete when they are posted
 *
 * Told by environment variables, read when a device is opened:
 *   FAKE_VERBS_DEVICES   how many there are (1)
 *   FAKE_VERBS_DMABUF    ok, or the error of ibv_reg_dmabuf_mr, as EOPNOTSUPP (ok)
 *   FAKE_VERBS_PEER      the same of ibv_reg_mr for addresses that this process cannot touch: device memory (ok)
 *   FAKE_VERBS_MEMLOCK   bytes of host memory that can be registered, as with ulimit -l (no limit)
 *   FAKE_VERBS_MOVE      the most bytes of one write that are moved; of larger ones all else happens, to measure what a sender
 *                        costs: 8192 leaves the wire its control messages (no limit)
 *   FAKE_VERBS_FAIL      DEVICE:N, the N-th post on that device in this process, and all later ones, get no answer
 */
#ifndef FAKE_VERBS_H
#define FAKE_VERBS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <infiniband/verbs.h>
#undef ibv_query_port   /* the macros of the header call what is defined here */
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

#define FAKE_REGIONS 4096        /* powers of two */
#define FAKE_QPS 1024
#define FAKE_CQS 64
#define FAKE_SRQS 64
#define FAKE_RING 8192

/*
 * The hub. A place in one of its tables is taken where its number is not 0; numbers are never used twice.
 */
struct fake_region {
    _Atomic uint32_t key;
    uint32_t access, pd;
    uint64_t base, bytes;
    int32_t fd;                  /* of a file, in its owner, that holds the bytes from `offset` on; -1: host memory */
    uint64_t offset;
    uint32_t host;               /* host memory: counts as locked */
};

struct fake_cq_ring {
    pthread_mutex_t lock;        /* robust: a process may be killed in it */
    _Atomic uint32_t number;
    uint32_t armed;
    int32_t event_fd;            /* the owner's end of the channel to write to, -1: none */
    uint64_t head, tail, room;   /* tail: pushed so far */
    struct ibv_wc wc[FAKE_RING];
};

struct fake_srq_ring {
    pthread_mutex_t lock;
    _Atomic uint32_t number;
    uint64_t head, tail, room;
    uint64_t wr_id[FAKE_RING];   /* receives without memory: the sender says where its bytes go */
};

struct fake_qp_place {
    _Atomic uint32_t number;
    _Atomic uint32_t ready;      /* takes messages from others */
    uint32_t pd, cq, srq;        /* places of the receive side; numbers there */
};

struct fake_hub {
    uint64_t magic;
    int32_t pid;
    _Atomic uint32_t last_number;
    struct fake_region region[FAKE_REGIONS];
    struct fake_qp_place qp[FAKE_QPS];
    struct fake_cq_ring cq[FAKE_CQS];
    struct fake_srq_ring srq[FAKE_SRQS];
};

/* A process as this one sees it. */
struct fake_mapping { uint32_t key; char *at; size_t bytes; uint64_t first; };
struct fake_peer {
    int pid;
    struct fake_hub *hub;
    pthread_mutex_t lock;
    struct fake_mapping mapping[FAKE_REGIONS];
    struct { uint32_t number; int fd; } channel[FAKE_CQS];
    struct fake_peer *next;
};

struct fake_peer *fake_self(void);
struct fake_peer *fake_peer_of(int pid);         /* NULL: no such process, or it has no hub */
/* Its region that the key names, if it holds these bytes and has these rights; pd 0: any. */
const struct fake_region *fake_find(struct fake_peer *peer, uint32_t key, uint64_t at, uint64_t bytes, unsigned access,
                                    uint32_t pd);
/* Where this process can touch bytes of a region that lies in a file; NULL: not at all. */
char *fake_touch(struct fake_peer *peer, const struct fake_region *region, uint64_t at);
int fake_open(int pid, int fd, int flags);       /* another process's descriptor */
void fake_lock(pthread_mutex_t *lock);
uint32_t fake_number(uint32_t place, uint32_t places);   /* a new number that tells its place */

/* queues.c. False: the queue is full, or empty. */
bool fake_cq_push(struct fake_peer *peer, uint32_t number, const struct ibv_wc *wc);
bool fake_srq_pop(struct fake_peer *peer, uint32_t number, uint64_t *wr_id);
int fake_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc);
int fake_req_notify_cq(struct ibv_cq *cq, int solicited);
int fake_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int fake_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);   /* transfer.c */

struct fake_context {
    struct ibv_context context;
    int dmabuf_error, peer_error;
    size_t memlock;
    size_t move_most;
    uint64_t fail_from;          /* posts, from 1; 0: never */
    _Atomic uint64_t posts;
    _Atomic size_t locked;
    _Atomic uint32_t pds;
};

struct fake_pd {
    struct ibv_pd pd;
    uint32_t number;             /* never used twice in a process */
    _Atomic uint32_t users;
};

static inline struct fake_context *fake_context_of(struct ibv_context *context)
{
    return (struct fake_context *)context;
}

#endif
