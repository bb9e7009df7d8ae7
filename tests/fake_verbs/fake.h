/*
 * A verbs provider without hardware: the ABI of libibverbs, as far as hetmpi uses it, with NICs that are made of memory.
 * Linked into a test, or put in front of the real library as libibverbs.so.1.
 *
 *   device.c    devices, ports, addresses
 *   memory.c    protection domains and memory regions; registration fails as told
 *
 * Told by environment variables, read when a device is opened:
 *   FAKE_VERBS_DEVICES   how many there are (1)
 *   FAKE_VERBS_DMABUF    ok, or the error of ibv_reg_dmabuf_mr, as EOPNOTSUPP (ok)
 *   FAKE_VERBS_PEER      the same of ibv_reg_mr for addresses that this process cannot touch: device memory (ok)
 *   FAKE_VERBS_MEMLOCK   bytes of host memory that can be registered, as with ulimit -l (no limit)
 */
#ifndef FAKE_VERBS_H
#define FAKE_VERBS_H

#include <stdatomic.h>
#include <stdint.h>

#include <infiniband/verbs.h>
#undef ibv_query_port   /* the macros of the header call what is defined here */
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

#define FAKE_REGIONS 4096        /* a power of two */

/* A memory region, as every process can see it. */
struct fake_region {
    _Atomic uint32_t key;        /* 0: free */
    uint32_t access, pd;
    uint64_t base, bytes;
    int32_t fd;                  /* of a dma-buf, in its owner; -1: host memory */
    uint64_t offset;
    uint32_t reachable;          /* the CPU may touch it by its address */
};

struct fake_context {
    struct ibv_context context;
    int dmabuf_error, peer_error;
    size_t memlock;
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
