/*
 * Facts: the record of 512 bytes in which each rank tells the others of a communicator who it is. Made here, and checked
 * here before anything is decided from it.
 */
#ifndef HETMPI_FACTS_H
#define HETMPI_FACTS_H

#include "core/comm.h"

/* What one rank tells the others. Its size never changes, so that different versions can read each other's head. */
struct comm_facts {
    char magic[8];
    uint32_t protocol;
    int32_t error;             /* this rank cannot take part: its code, */
    char error_text[192];      /* and why */
    char version[16];
    char vendor[8];
    int32_t pid, world_rank, device;
    uint32_t weight;
    uint64_t node_key, island_key;
    struct seg_name ctl;       /* bytes 0: none */
    uint32_t agree[CFG_AGREE_MAX];
    uint32_t chunk_least, chunk_most;   /* that this rank's device likes */
    uint8_t rdma;              /* its machine has NICs for it, and its library can use them */
    char spare[512 - 393];
};
_Static_assert(sizeof(struct comm_facts) == 512, "the facts' size is part of the protocol");
_Static_assert(sizeof(((struct comm_facts *)0)->agree) == 96, "CFG_AGREE_MAX is part of the protocol");

/* This rank's facts; also makes its control segment. An error is a fact too. */
void facts_fill(struct comm *comm, struct comm_facts *facts);
/* The same verdict on every rank, whatever the bytes are; only the words on a rank's own error (`me`) differ. After
 * success every field can be relied on. */
int facts_check(const struct comm_facts *facts, int size, int me);

#endif
