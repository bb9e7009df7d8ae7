/* Which way a NIC can reach a piece of memory, tried from the best to the least. One record of what was learnt for each
 * protection domain; the caller locks. */
#ifndef HETMPI_REG_REGISTER_H
#define HETMPI_REG_REGISTER_H

#include <stddef.h>

#include "mem/mem.h"
#include "mem/reg_cache.h"

struct ibv_mr;

enum reg_seen { SEEN_UNTRIED, SEEN_WORKING, SEEN_FAILING };
#define REG_WHY_BYTES 512

struct reg_ways {
    struct ibv_pd *pd;
    enum reg_seen dmabuf, peer;        /* what has never worked here is not tried again */
    enum reg_way device;               /* how device memory was registered last */
    char no_dmabuf[REG_WHY_BYTES], no_peer[REG_WHY_BYTES];   /* why not */
};

/* Registers memory of that kind. HETMPI_ERR_UNSUPPORTED: no way; HETMPI_ERR_MEMORY: it may work once something else is
 * given up. `held`: bytes that are registered already, for messages. */
int reg_register(struct reg_ways *ways, enum mem_kind kind, void *base, size_t bytes, unsigned access, size_t held,
                 struct ibv_mr **mr, enum reg_way *way);
/* Device memory is known to be out of reach: the message says why, nothing is tried. */
int reg_out_of_reach(const struct reg_ways *ways);
void reg_why(const struct reg_ways *ways, char *text, size_t bytes);

#endif
