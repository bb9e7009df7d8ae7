/*
 * What the builders of schedules share: a growing schedule, places where vectors stand, and walks over the parts of
 * islands. A builder writes the steps of one rank in an order in which each step follows all that it depends on.
 *
 * Channels. Two ranks of different islands a, b exchange, for one meaning and direction, one message for each segment
 * in which both their parts lie. Where segments are cut by third islands too (common refinement), the number of the
 * segment inside the intersection of the two parts is the same seen from both sides, and that number makes the channel.
 */
#ifndef HETMPI_ALGOS_H
#define HETMPI_ALGOS_H

#include "core/sched.h"

/* Channels of one pair and direction (the limit of the wires), and scratches of one schedule (16-bit indices). */
#define ALGO_CHANNELS 8192
#define ALGO_SCRATCHES 65536

/* The steps first .. last-1; none when equal. */
struct algo_span { int first, last; };

struct algo {
    const struct topo *topo;
    const struct sched_call *call;
    struct sched *sched;
    int room_steps, room_refs, room_scratch;
    int island, position, size, islands;   /* this rank's island, its place there, ranks in it; islands in all */
    bool two_levels;                       /* the islands of a node are joined first: see levels.h */
    bool shared;                           /* reduce: the islands without the root reduce: see reduce.c */
    bool no_memory;                        /* sticky: steps went to the spare ones since then */
    struct sched_step spare_step;
    struct sched_ref spare_ref;
    struct sched_scratch spare_scratch;
};

/* A buffer in which ranges stand, and the steps that fill it (none: it is there from the start). */
struct algo_place {
    uint8_t buffer;
    uint16_t scratch;
    struct algo_span made;
};

/* Cuts and ranges. */
struct sched_cut algo_cut(int island, int position);         /* by weight */
struct sched_cut algo_block_cut(int island, int position);
struct sched_range algo_range(uint8_t space, int space_island, struct sched_cut lo, struct sched_cut hi);
struct sched_range algo_whole(const struct algo *a, uint8_t space, int space_island);
struct sched_range algo_nothing(const struct algo *a, uint8_t space, int space_island);
struct sched_range algo_my_part(const struct algo *a, uint8_t space, int space_island);   /* by weight */
struct sched_range algo_my_block(const struct algo *a);      /* of SPACE_BLOCKS(own island) */
struct sched_range algo_block_of(const struct algo *a, int rank);
struct sched_range algo_divide(struct sched_range range, int parts, int part);

/* Steps. Each returns the new step's index. */
int algo_send(struct algo *a, struct algo_place from, struct sched_range range, int peer, int channel);
int algo_recv(struct algo *a, struct algo_place to, struct sched_range range, int peer, int channel);
int algo_copy(struct algo *a, struct algo_place from, struct algo_place to, struct sched_range range);
int algo_copy_block(struct algo *a, struct algo_place from, struct sched_range in, struct algo_place to,
                    struct sched_range out);   /* COLL_PAIRS: a block may have another number where it goes */
int algo_local_reduce(struct algo *a, struct algo_place from, struct sched_range space, enum sched_owners owners,
                      struct algo_place to, struct sched_range part, bool final);
/* `in` may be an empty range (not an owner), and `out` too (not a reader). */
int algo_local_spread(struct algo *a, struct algo_place from, struct sched_range in, enum sched_owners owners,
                      struct algo_place to, struct sched_range out, enum sched_readers readers, int root, int lag);
/* Begins a reduction; its operands follow, in order, before any other algo_reduce. */
int algo_reduce(struct algo *a, struct algo_place to, struct sched_range range, bool final);
void algo_operand(struct algo *a, int reduce, struct algo_place from);
/* The step waits for the span. At most three spans that do not touch each other. */
void algo_after(struct algo *a, int step, struct algo_span span);
struct algo_span algo_since(const struct algo *a, int first);   /* first .. the last step so far */

/* Places. */
struct algo_place algo_user(uint8_t buffer);
struct algo_place algo_scratch(struct algo *a, struct sched_range range, bool wide);
static inline struct algo_place algo_scratch_at(int index)   /* one that was made before; index: sched->n_scratch then */
{
    return (struct algo_place){.buffer = BUF_SCRATCH, .scratch = (uint16_t)index};
}
/* The send buffer for the space: itself, or with stage_send a scratch filled by a copy. */
struct algo_place algo_input(struct algo *a, uint8_t space, int space_island);
/* Where results of the space go: the receive buffer, or with stage_recv a scratch. */
struct algo_place algo_output(struct algo *a, uint8_t space, int space_island);
/* With stage_recv: copies `range` of the output to the receive buffer, after the spans. */
void algo_deliver(struct algo *a, struct algo_place out, struct sched_range range, struct algo_span one,
                  struct algo_span two);
/*
 * This island's partial result of the space, for `part` of it which this rank owns: by a local reduction; in an island
 * of one it is the input itself, or with `exact` a wide copy, so that all operands of an exchange have one format.
 * *read: the steps that read the user's send buffer; none when the place is that buffer.
 */
struct algo_place algo_partial(struct algo *a, struct algo_place input, uint8_t space, int space_island,
                               enum sched_owners owners, struct sched_range part, struct algo_span *read);

/* Gathering (allgather.c). Where this rank's block is read from, staged if need be; `out`: where the blocks of its island
 * go. in_place: it stands in the receive buffer. */
struct algo_place algo_own_block(struct algo *a, struct algo_place out, bool in_place);
/* Own island: every rank's block to the readers, and to the receive buffer. */
void algo_spread_blocks(struct algo *a, struct algo_place from, struct algo_place out, bool in_place,
                        enum sched_readers readers, int root);

/* Number of an island among those without the root. */
static inline int algo_guest(int island, int root_island)
{
    return island - (island > root_island);
}

/* -1, 0, 1: order of two cuts of one space, by exact fractions. */
int algo_cut_order(const struct algo *a, struct sched_cut x, struct sched_cut y);

/*
 * Walk over the parts of another island (by weight or by block) that meet `range`: one segment each.
 *     for (struct algo_meet m = algo_meet(a, range, CUT_WEIGHT, island); algo_meet_next(a, &m);)
 */
struct algo_meet {
    struct sched_range range, segment;
    uint8_t how;
    int island, position, next;
};
struct algo_meet algo_meet(const struct algo *a, struct sched_range range, uint8_t how, int island);
bool algo_meet_next(const struct algo *a, struct algo_meet *m);

/* Walk over the common refinement of the weight parts of other islands (all, or those of a list) inside `range`; this
 * rank's own may be among them, but does not count. */
struct algo_walk {
    struct sched_range range, segment;
    const int *list; /* [count] islands; NULL: all */
    int count;
    int *owner;      /* [count] position that owns the segment in each of them, but this rank's own */
    int *number;     /* [count] of the segment in the intersection of `range` with that owner's part */
    bool started;
};
static inline int algo_walk_island(const struct algo_walk *w, int number)
{
    return w->list ? w->list[number] : number;
}
bool algo_walk_open(struct algo *a, struct algo_walk *w, struct sched_range range);
void algo_walk_over(struct algo_walk *w, struct sched_range range, const int *list, int count);   /* begins another one */
bool algo_walk_next(const struct algo *a, struct algo_walk *w);
void algo_walk_close(struct algo_walk *w);
/* The whole intersection of w->range with the part of that island's owner; valid where its `number` is 0. */
struct sched_range algo_walk_message(const struct algo *a, const struct algo_walk *w, int number);

/*
 * The end of a reduction over islands whose result this rank owns (`range`): receives the partial results of the other
 * islands, one message for each pair of owners, and reduces them with its own, in the order of the list, to `to`. Returns
 * the reductions.
 */
struct algo_collect {
    const int *list;           /* [count] islands, this rank's among them; NULL: all */
    int count;
    int channel;
    struct algo_place own, to;
    struct sched_range range;
    bool final;
    struct algo_span before;   /* what must have happened before `to` may be written */
};
struct algo_span algo_collect(struct algo *a, const struct algo_collect *c);

/* The builders; a collective with blocks of different lengths has the steps of the one with equal blocks. */
void algo_allreduce(struct algo *a);
void algo_reduce_to_root(struct algo *a);
void algo_bcast(struct algo *a);
void algo_allgather(struct algo *a);
void algo_reduce_scatter_block(struct algo *a);
void algo_gather(struct algo *a);
void algo_scatter(struct algo *a);
void algo_alltoall(struct algo *a);
void algo_scan(struct algo *a);

#endif
