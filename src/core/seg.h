/*
 * Memory shared between the processes of one node, with no name in any file system: a memfd that peers open through
 * the creator's /proc entry, so nothing can be left behind by a crash, and the size of /dev/shm does not matter.
 */
#ifndef HETMPI_SEG_H
#define HETMPI_SEG_H

#include <stddef.h>
#include <stdint.h>

struct seg {
    void *base;    /* NULL: none */
    size_t bytes;
    int fd;        /* creator: open while others may still map it; others: -1 */
};

/* What another process of the node needs to map it. Plain bytes. */
struct seg_name { int32_t pid, fd; uint64_t bytes, cookie; };

/* Creates and maps `bytes` of zeroes, all pages reserved (so a full node is HETMPI_ERR_MEMORY here, never SIGBUS
 * later). The first 8 bytes hold the cookie and belong to seg. */
/* Processes with the same key can open each other's: same kernel, and a process number means the same to both. */
uint64_t seg_host_key(void);
int seg_create(struct seg *seg, size_t bytes, struct seg_name *name);
int seg_open(struct seg *seg, const struct seg_name *name);
void seg_clear(struct seg *seg);   /* unmaps and closes; fine on a zeroed seg */

#endif
