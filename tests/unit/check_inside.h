/* What the parts of the symbolic checker share. */
#ifndef HETMPI_CHECK_INSIDE_H
#define HETMPI_CHECK_INSIDE_H

#include "check_sched.h"

/* One element: which contributions are in it. */
struct value {
    uint64_t set;      /* the ranks, exactly, when there are at most 64 */
    uint64_t sum;      /* of a random token for each (rank, element) */
    uint64_t order;    /* hash of the tree of operands */
    uint32_t count;    /* contributions; 0: undefined */
    bool wide, final;
};

struct extent { size_t first, length; };

/* One use of memory by a step. Number of a step's `in`, `out`, and of a reduction's operands in the tables below. */
static inline int use_in(int step) { return 2 * step; }
static inline int use_out(int step) { return 2 * step + 1; }
static inline int use_ref(const struct sched *s, int ref) { return 2 * s->n_steps + ref; }

/* Other end of a message. */
struct partner { int rank, step; };

/* One rank. Chunks come in two lengths: variant 0 all but the last, variant 1 the last. With blocks of different
 * lengths each chunk is a variant of its own. */
struct machine {
    struct topo topo;
    const struct sched *sched;
    struct value *send, *recv;          /* what the buffers point to */
    struct value *memory[2];            /* what is allocated; [1] NULL when both buffers are in [0] */
    struct value *input;                /* this rank's contributions */
    size_t inputs;
    struct value *start[2];             /* what was there at the beginning */
    size_t elements[2];
    size_t length[2];                   /* elements of the send and the receive buffer */
    const size_t *counts[2], *displs[2];   /* of their blocks, NULL: all have `count` */
    struct extent **uses;               /* [variant][use] */
    struct extent **scratch;            /* [variant][scratch] */
    size_t *scratch_at;                 /* [scratch] offset in a slot */
    struct value *slots;
    size_t slot_elements;
    struct partner *partner;            /* [step] of sends and receives */
    int *follow_first, *follow;         /* follow[follow_first[s] .. follow_first[s+1]): steps that wait for step s */

    /* Of a run. A slot is a place in the window: chunk % window. */
    size_t started, completed;          /* chunks */
    size_t *slot_chunk;                 /* [window] */
    int *left;                          /* [window] steps to do */
    int *waits;                         /* [window][step] dependencies to do, or a state below */
    struct sched_cursor cursor;
    size_t local_chunk;
    int local_step;                     /* next local step; -1: no more */
    size_t issued;
    size_t *op_chunk;                   /* [local step number] */
    int *op_step;
};
enum { STEP_STARTED = -1, STEP_DONE = -2 };

struct check {
    const struct topo *topo;
    const struct check_case *c;
    size_t *L, chunks;                  /* L: [variants] */
    int variants;
    int window;
    struct machine *machines;
    char *why;
    bool failed;
};

void *check_take(size_t bytes);         /* zeroed; until the end of this check */
void check_fail(struct check *k, const char *format, ...) __attribute__((format(printf, 2, 3)));
static inline int variant_of(const struct check *k, size_t chunk)
{
    return k->c->counts ? (int)chunk : chunk + 1 == k->chunks;
}
/* Are ranges of messages the same at both ends? Not where each rank numbers its blocks. */
static inline bool same_ranges(const struct check *k)
{
    return k->c->call.kind != COLL_ALLTOALL && k->c->call.kind != COLL_ALLTOALLV;
}
/* Do islands of a node exchange first? */
static inline bool check_by_nodes(const struct check *k)
{
    switch (k->c->call.kind) {
    case COLL_ALLREDUCE:
    case COLL_REDUCE:
    case COLL_BCAST:
    case COLL_ALLGATHER:
    case COLL_ALLGATHERV:
    case COLL_REDUCE_SCATTER_BLOCK:
    case COLL_REDUCE_SCATTER:
        return k->topo->levels == 2 && k->topo->islands > k->topo->nodes;
    default:
        return false;
    }
}
struct sched_chunk check_chunk(const struct check *k, int rank, uint8_t buffer, int variant);
/* A rank's block in a buffer (0: send, 1: receive): where it begins, and its elements. */
size_t check_block_at(const struct check *k, int rank, int side, int block);
size_t check_block_length(const struct check *k, int rank, int side, int block);
struct sched_view check_view(const struct check *k, int rank, const struct sched_ref *ref, size_t chunk);
struct value check_leaf(const struct check *k, int rank, size_t element);
uint64_t check_fold(uint64_t order, uint64_t next);
uint64_t check_mix(uint64_t x);

/* Fills partner tables, and finds what can be found without running. */
void check_static(struct check *k);
void check_messages(struct check *k);
void check_wire_bytes(struct check *k);
/* Runs; the results are in the machines' memory. */
void check_execute(struct check *k);

#endif
