/*
 * What the device runtimes of this folder share: the table of memory ranges that answers mem_query, pinned host memory,
 * and the behaviour of a rank without a device (work runs inline, events are done at once).
 */
#ifndef HETMPI_MEM_COMMON_H
#define HETMPI_MEM_COMMON_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mem/mem.h"

/*
 * The table of ranges: allocations, registrations and mappings of the process, none overlapping another. Lookups take
 * no lock and make no system call.
 */
enum range_kind {
    RANGE_HEAP,        /* pinned host memory that the runtime allocated */
    RANGE_REGISTERED,  /* pinned host memory that belongs to somebody else */
    RANGE_DEVICE,      /* memory of the rank's own device */
    RANGE_PEER,        /* memory of another process's device, opened from a handle */
};

struct range {
    uintptr_t base;
    size_t bytes;
    uint64_t id;             /* never used twice in a process */
    enum range_kind kind;
    void *owner;             /* the runtime's own record, or NULL */
};

/* An id that was never given out before, from 1. */
uint64_t range_new_id(void);
/* Enters *range. HETMPI_ERR_ARG when it overlaps an entered range, HETMPI_ERR_MEMORY. */
int range_add(const struct range *range);
/* The range that holds the address. */
bool range_find(uintptr_t address, struct range *out);
/* Removes the range that begins at base when its kind is in the set of bits (1 << kind) `kinds`. */
bool range_remove(uintptr_t base, unsigned kinds, struct range *out);
/* Removes any range; false when none is left. */
bool range_take(struct range *out);
/* Frees the table itself; no lookup may be running. */
void range_clear(void);

#define RANGE_BIT(kind) (1u << (kind))

/* Waiting for what another thread or process does, without burning a core: starts with yields, then sleeps for about an
 * eighth of the time waited so far, at most 1 ms. Start with all zero. */
struct backoff { unsigned calls; int64_t since; };
void backoff_wait(struct backoff *backoff);

/* A rank without a device; each does what mem_... of the same name says. plain_free serves mem_free and mem_host_free:
 * all memory is host memory then. */
int plain_alloc(size_t bytes, void **ptr);
int plain_free(void *ptr);
int plain_register(void *ptr, size_t bytes);
int plain_unregister(void *ptr);
void plain_clear(void);                                   /* frees what is left and the table */
void plain_query(const void *ptr, struct mem_pointer *out);
void plain_copy(void *dst, const void *src, size_t bytes);
void plain_wait_value(const _Atomic uint64_t *word, uint64_t value);
int plain_no_ipc(void);                                   /* the error of the mem_ipc_ calls */
int plain_no_dmabuf(void);

/* Host memory aligned for vectors, pages, huge pages; NULL: none left. Freed by free(). */
void *heap_alloc(size_t bytes);
/* Whether memory can be registered: HETMPI_ERR_ARG for nothing, or what wraps round the end. */
int register_check(const void *ptr, size_t bytes);

#endif
