/*
 * Registered memory: what a NIC may read and write without the CPU. One cache for each protection domain finds the way
 * that works for a buffer, keeps registrations that will be used again, and never uses one for memory that has been freed.
 *
 * Device memory is registered by dma-buf, else by its address (peer-memory modules of the vendors: nvidia-peermem), else
 * not at all: the caller stages it. Host memory is registered by its address.
 *
 * What is kept is kept by allocation: the device runtime's id of the buffer (mem_query), which is never used twice, so that
 * memory which was freed and allocated again at the same address is other memory here. Plain host memory has no such id, and
 * nothing tells for sure that an address was unmapped and mapped again (hooks of malloc and munmap miss the calls of other
 * libraries and of the kernel, userfaultfd tells too late): it is registered for the time of one use. hetmpi_malloc and
 * hetmpi_register give host memory an id.
 *
 * A key that a peer may use (IBV_ACCESS_REMOTE_*) covers exactly the bytes asked for and ends with reg_put; only
 * registrations that serve this process alone are kept.
 *
 * Functions are thread-safe. Nothing of verbs can be used in a child process after fork: calls there answer
 * HETMPI_ERR_STATE or do nothing, so that the parent's registrations stay as they are.
 */
#ifndef HETMPI_REG_CACHE_H
#define HETMPI_REG_CACHE_H

#include <stddef.h>
#include <stdint.h>

struct ibv_pd;
struct reg_cache;

enum reg_way {
    REG_UNTRIED,
    REG_STAGED,        /* cannot be registered */
    REG_HOST,          /* host memory, by its address */
    REG_PEER,          /* device memory, by its address */
    REG_DMABUF,        /* device memory, by a dma-buf */
};

/* A registration, in use from reg_get to reg_put. It covers at least the bytes asked for, at their own addresses. */
struct reg {
    uintptr_t base;
    size_t bytes;
    uint32_t lkey, rkey;
    enum reg_way way;
};

/* What is kept while nobody uses it; the least recently used goes first. */
struct reg_limits { size_t bytes, entries; };

struct reg_stats { size_t entries, bytes, hits, misses, dropped; };   /* entries, bytes: registered now */

/* Once, before the first device is opened: makes fork() safe where the kernel does not, or warns that it is not. */
void reg_fork_init(void);

int reg_cache_create(struct ibv_pd *pd, const struct reg_limits *limits, struct reg_cache **cache);  /* NULL: defaults */
void reg_cache_destroy(struct reg_cache *cache);   /* every reg_get has had its reg_put; NULL is fine */

/* access: IBV_ACCESS_*. HETMPI_ERR_UNSUPPORTED: the memory cannot be registered (now), and the message says why;
 * stage it, or ask for less. */
int reg_get(struct reg_cache *cache, const void *ptr, size_t bytes, unsigned access, const struct reg **reg);
void reg_put(struct reg_cache *cache, const struct reg *reg);

void reg_cache_stats(struct reg_cache *cache, struct reg_stats *stats);
/* How device memory was registered last, and in words why no better way was taken ("" if it was the best). */
enum reg_way reg_cache_way(struct reg_cache *cache, char *why, size_t bytes);
const char *reg_way_name(enum reg_way way);

/* The memory at ptr is about to be freed: no cache keeps it any longer. */
void reg_forget(const void *ptr);

#endif
