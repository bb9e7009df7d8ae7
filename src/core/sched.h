/*
 * Schedules: what one rank does in one collective, as data.
 *
 * A schedule is a template over chunks, and independent of the count: the vector of N elements is cut into chunks,
 * and each chunk is a collective of its own on L elements (L: elements of that chunk), so every range below is a
 * function of the chunk. Its size depends on the numbers of islands and of ranks in an island, never on the message;
 * only collectives whose every rank talks to every other (alltoall), or all straight to the root, have a step for each
 * rank.
 *
 * Spaces. Ranges lie in a *virtual vector* of the chunk:
 *   SPACE_VECTOR     the chunk itself: L elements (allreduce, reduce, bcast, scan)
 *   SPACE_BLOCKS(j)  the blocks of the ranks of island j, in island order, L elements of each: size_j * L elements
 *                    (allgather, reduce_scatter_block: chunk c is the same part of every rank's block). Blocks of
 *                    different lengths (allgatherv, reduce_scatter): of each block what lies in the chunk, so that
 *                    short blocks have nothing in the last chunks
 * Cuts. A range is the part between two cuts; a cut is at a position p of an island i:
 *   CUT_WEIGHT       where the part of position p begins when island i shares the virtual vector by weight, each block
 *                    counting the same whatever its length; never past a CUT_BLOCK that stands for a greater fraction
 *                    (aligned within its block). So the order of cuts does not depend on the lengths
 *   CUT_BLOCK        where the block of position p begins (SPACE_BLOCKS only, i is the space's island)
 * The owner of a part is the rank of that position. Segments between two islands are the intersections of their
 * parts, so a range's two cuts may come from different islands. A range may be divided further into `parts` equal
 * sub-ranges, of which it is number `part`.
 *
 * Builders are pure functions in src/algos; the engine runs schedules; tests run them on sets of contributions.
 */
#ifndef HETMPI_SCHED_H
#define HETMPI_SCHED_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/collectives.h"
#include "core/topo.h"

enum coll_kind {
#define KIND(Name, name, NAME, ...) COLL_##NAME,
    COLL_ALL(KIND)
#undef KIND
    COLL_KINDS
};
const char *coll_name(enum coll_kind kind);

/* Traits. Asked several times in the smallest call. */
extern const unsigned char coll_traits_of[COLL_KINDS] __attribute__((visibility("hidden")));
static inline unsigned coll_traits(enum coll_kind kind)
{
    return (unsigned)kind < COLL_KINDS ? coll_traits_of[kind] : 0;
}

/* Each rank knows the length of its own block, and only the root those of all. */
static inline bool coll_tells(enum coll_kind kind)
{
    return (coll_traits(kind) & (COLL_OWN_TABLE | COLL_ROOTED)) == (COLL_OWN_TABLE | COLL_ROOTED);
}

enum sched_space { SPACE_VECTOR, SPACE_BLOCKS };
enum sched_cut_how { CUT_WEIGHT, CUT_BLOCK };

struct sched_cut { uint8_t how; int32_t island, position; };   /* position may be the island's size: the end */

struct sched_range {
    uint8_t space;             /* enum sched_space */
    int32_t island;            /* of SPACE_BLOCKS */
    struct sched_cut lo, hi;   /* empty when hi <= lo */
    int32_t parts, part;       /* 1, 0: undivided */
};

/* Where the elements of a user's buffer stand. */
enum sched_layout {
    LAYOUT_NONE,     /* this rank has no such buffer (recvbuf of reduce on another rank than the root) */
    LAYOUT_VECTOR,   /* element v of SPACE_VECTOR at chunk_first + v */
    LAYOUT_BLOCKS,   /* one block of N elements for each rank, in rank order */
    LAYOUT_BLOCK,    /* this rank's block alone: N elements */
};

enum sched_buffer { BUF_SEND, BUF_RECV, BUF_SCRATCH };

/* A range of a buffer. For BUF_SCRATCH the range must lie inside the scratch's own range, same space. */
struct sched_ref {
    uint8_t buffer;            /* enum sched_buffer */
    uint16_t scratch;          /* index, of BUF_SCRATCH */
    struct sched_range range;
};

/* Temporary memory: holds `range` of one chunk. One copy of it per chunk in flight, in memory of the rank's device. */
struct sched_scratch {
    struct sched_range range;
    bool wide;                 /* elements in the accumulator's format (see red_call) */
};

/*
 * A step is done on a rank when its result is complete there and nobody will read its `in` any more: the other ranks
 * of the island neither. Steps of one chunk whose order matters have dependencies; steps of different chunks share
 * nothing.
 * User buffers:
 *   bcast                  BUF_RECV is the buffer, on the root too; BUF_SEND is not used
 *   allgather, in_place    this rank's block is read from BUF_RECV; BUF_SEND is not used
 *   reduce_scatter_block   the input is always BUF_SEND: with in_place the engine sets both to recvbuf
 *   reduce_scatter         never in_place: the engine puts the result aside first
 *   gather(v), scatter(v)  in_place is the root's alone: its block is where it belongs, in BUF_RECV, in BUF_SEND
 *   alltoall(v), in_place  what is sent is read from BUF_RECV; BUF_SEND is not used
 *   scan, exscan           in_place: both buffers are the same pointer; without it they are apart
 *   otherwise in place     both buffers are the same pointer; schedules are right for that too. A reduction (local ones
 *                          too) may then have its output on the same elements as its input
 */
enum sched_kind {
    /* Local collectives, done by the island's provider; all ranks of the island have the step (same order).
     * `owners` says who owns which part of the space: by weight, by block, or all at position `root`. */
    STEP_LOCAL_REDUCE,   /* every rank gives all of `in` (whole space); the owner of a part gets the reduction over the
                          * island, in island order, in `out` (its part) */
    STEP_LOCAL_SPREAD,   /* the owner of a part gives it in `in` (its part); each reader gets in `out` what `readers`
                          * says it reads (a part whose `in` and `out` are the same memory is not copied) */
    /* Between two ranks of different islands (sched_pairs: of one island too). Messages of one channel and pair arrive
     * in chunk order. */
    STEP_SEND,           /* `in` to rank `peer` */
    STEP_RECV,           /* `out` from rank `peer` */
    /* On this rank. */
    STEP_REDUCE,         /* refs[first_in .. first_in+n_in), same range, in this order -> `out` */
    STEP_COPY,           /* `in` -> `out` (staging of a host buffer on a rank with a device) */
};

enum sched_owners { OWNERS_WEIGHT, OWNERS_BLOCK, OWNERS_ROOT };
/* All read the whole space; the root alone does; each reads the part that is its own by weight, or its block. */
enum sched_readers { READERS_ALL, READERS_ROOT, READERS_WEIGHT, READERS_BLOCK };

/* Phases, for reports. */
enum sched_phase { PHASE_MEET, PHASE_ISLAND_REDUCE, PHASE_EXCHANGE, PHASE_ISLAND_SPREAD, PHASE_STAGE };
const char *sched_phase_name(enum sched_phase phase);
const char *sched_step_name(enum sched_kind kind);     /* NULL: there is no such step */

struct sched_deps { int32_t first, last; };   /* steps first .. last-1 of the same chunk; all before this step */

struct sched_step {
    uint8_t kind, phase;
    uint8_t owners, readers;   /* local steps */
    bool final;                /* reductions: the result is the end result (AVG divides, wide rounds) */
    uint8_t lag;               /* local steps: 0 or 1, see struct sched */
    uint16_t channel;          /* SEND, RECV: equal on both sides */
    int32_t peer;              /* SEND, RECV: communicator rank */
    int32_t root;              /* local steps: position of OWNERS_ROOT / READERS_ROOT */
    struct sched_ref in, out;  /* empty ranges where not used: `in` of a rank that is not OWNERS_ROOT's, ... */
    int32_t first_in, n_in;    /* STEP_REDUCE */
    struct sched_deps deps[3]; /* unused: first == last */
};

/*
 * One rank's schedule. Local steps are issued in one order on all ranks of an island, as every provider (and NCCL)
 * needs: at time t = 0, 1, 2, ... first the lag-0 steps of chunk t, by index, then the lag-1 steps of chunk t - D,
 * where D (the delay) is half the number W of chunks in flight. So reductions of later chunks run while an earlier
 * chunk is on the wire. D < W, or else chunk t waits for a place in the window that only the lag-1 steps of chunk
 * t - W, which come later in the order, can free: W = 1 has D = 0. The order is walked by sched_cursor_next.
 */
struct sched {
    enum coll_kind kind;
    uint8_t send_layout, recv_layout;   /* enum sched_layout */
    int n_steps, n_refs, n_scratch;
    struct sched_step *steps;
    struct sched_ref *refs;
    struct sched_scratch *scratch;
    _Atomic int shares;                 /* holders beyond the first: see sched_share */
};

/* What a builder must know of a call beyond the topology. */
struct sched_call {
    enum coll_kind kind;
    int root;              /* communicator rank; COLL_ROOTED */
    bool exact;            /* partial results between islands (scan: between ranks) are wide */
    bool in_place;         /* the input, or this rank's block of it, is in the receive buffer: see the list above */
    bool stage_send;       /* the send buffer is host memory on a rank with a device: copy it to scratch first */
    bool stage_recv;       /* likewise the receive buffer: results go to scratch, then are copied */
    bool gathered;         /* alltoall with two levels: the blocks of an island for a rank of another node go as one
                            * message, not one by one */
    bool straight;         /* gatherv, scatterv: each block between its rank and the root, which may alone know the lengths */
    bool scale;            /* reductions, with stage_send: the copy multiplies, so nothing else may read that buffer */
};

/* Messages go between any two ranks, of one island too, and no provider is needed. */
static inline bool sched_pairs(const struct sched_call *call)
{
    return call->straight || coll_traits(call->kind) & COLL_PAIRS;
}

/* Builds this rank's (topo->rank) schedule. COLL_BARRIER has none (the meeting of the ranks is all of it).
 * Root's send_layout etc. are set by the builder. Errors: HETMPI_ERR_MEMORY, HETMPI_ERR_ARG.
 * sched_free(NULL) is fine; a schedule goes with its last holder. */
int sched_build(const struct topo *topo, const struct sched_call *call, struct sched **out);
void sched_free(struct sched *sched);
struct sched *sched_share(struct sched *sched);   /* one more holder */
size_t sched_bytes(const struct sched *sched);   /* memory it takes */

/* Elements of chunk c: the first, and how many (L), when `count` elements are cut into chunks of `chunk` elements. */
static inline size_t sched_chunks(size_t count, size_t chunk) { return count / chunk + (count % chunk != 0); }

/* One chunk, as ranges see it. */
struct sched_chunk {
    size_t first, length;      /* elements [first, first + length) of the vector, or of every block (L is the length) */
    const size_t *counts;      /* [communicator ranks] elements of each rank's block; NULL: no block ends in a chunk */
};
/* Elements of a rank's block that lie in the chunk. */
static inline size_t sched_piece(const struct sched_chunk *chunk, int rank)
{
    if (!chunk->counts)
        return chunk->length;
    size_t left = chunk->counts[rank] > chunk->first ? chunk->counts[rank] - chunk->first : 0;
    return left < chunk->length ? left : chunk->length;
}

/* Length of a space, place of a cut of it, and a range, all for one chunk. Cuts of long vectors are rounded down to
 * multiples of SCHED_ALIGN elements so that kernels see aligned parts. */
#define SCHED_ALIGN 16
#define SCHED_ALIGN_FROM 4096
size_t sched_space_length(const struct topo *topo, uint8_t space, int island, const struct sched_chunk *chunk);
size_t sched_cut_at(const struct topo *topo, const struct sched_cut *cut, uint8_t space, int island,
                    const struct sched_chunk *chunk);
void sched_range_at(const struct topo *topo, const struct sched_range *range, const struct sched_chunk *chunk,
                    size_t *first, size_t *length);
/* The part of the virtual vector that `position` of the rank's own island owns in a local step, or reads in a spread.
 * `topo` is that of a rank of the island. */
void sched_owner_part(const struct topo *topo, const struct sched_step *step, int position,
                      const struct sched_chunk *chunk, size_t *first, size_t *length);
void sched_reader_part(const struct topo *topo, const struct sched_step *step, int position,
                       const struct sched_chunk *chunk, size_t *first, size_t *length);

/* Virtual elements -> memory: a view of a buffer's chunk. sched_view_run gives the address of element v and how many
 * elements stand there in one piece (at most `length`). */
struct sched_view {
    char *base;            /* user buffer, or start of the scratch */
    size_t element;        /* bytes */
    uint8_t layout;        /* enum sched_layout; LAYOUT_NONE here: a scratch, `first` stands at base */
    size_t first;          /* scratch: virtual element that stands at base */
    size_t chunk_first, L; /* of this chunk */
    size_t count;          /* N, elements of a block */
    const int *ranks;      /* SPACE_BLOCKS: members of the space's island, in order; else NULL */
    /* Blocks of different lengths, [communicator ranks]. Without displs they follow each other in rank order. */
    const size_t *counts, *displs;
};
size_t sched_view_run(const struct sched_view *view, size_t v, size_t length, void **address);

/*
 * The order of local steps. A cursor walks (chunk, step) pairs of one schedule in the order described above;
 * next returns false at the end.
 */
struct sched_cursor { size_t time; int lag, step; };   /* start with all zero */
bool sched_cursor_next(const struct sched *sched, size_t chunks, int delay, struct sched_cursor *cursor, size_t *chunk,
                       int *step);

#endif
