/*
 * What the local providers share: copying and reducing parts of virtual vectors, run by run, inline on the CPU or on a
 * stream of the device.
 */
#ifndef HETMPI_ISLAND_PARTS_H
#define HETMPI_ISLAND_PARTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "island/island.h"

/* Contiguous memory as a view: virtual element `first` stands at base. */
static inline struct sched_view part_flat(void *base, size_t element, size_t first)
{
    return (struct sched_view){.base = base, .element = element, .layout = LAYOUT_NONE, .first = first};
}

/* The part of `position`, and how long the whole space of the step is. */
static inline void part_of(const struct comm *comm, const struct island_op *op, int position, size_t *first,
                           size_t *length)
{
    sched_owner_part(&comm->topo, op->step, position, &op->chunk, first, length);
}
/* SPREAD: what the member at `to` reads of the part that the member at `from` owns. */
void part_taken(const struct comm *comm, const struct island_op *op, int from, int to, size_t *first, size_t *length);
size_t part_space(const struct comm *comm, const struct island_op *op, int members);

/* True when the positions that can own a part of the step are [*from, *to). */
static inline void part_owners(const struct island_op *op, int members, int *from, int *to)
{
    bool root = op->step->owners == OWNERS_ROOT;
    *from = root ? op->step->root : 0;
    *to = root ? op->step->root + 1 : members;
}
static inline bool part_is_reader(const struct island_op *op, int position)
{
    return op->step->readers != READERS_ROOT || op->step->root == position;
}

/* Virtual elements [first, first + length) from one view to another. Elements that both views have at the same address
 * are left alone. device: queued on the stream; otherwise done when the call returns. */
int part_copy(const struct sched_view *to, const struct sched_view *from, size_t first, size_t length, bool device,
              mem_stream_t *stream);

/* Reduces any number of views; more than RED_MAX_INPUTS in groups, in order, over wide partials. */
struct part_reducer {
    bool device;
    uint32_t n;
    struct sched_view *inputs;    /* [n], in the order of operands; set by the caller before part_reduce */
    const void **srcs;            /* [n] */
    char *partials;               /* one piece for each group; NULL when one group is enough */
    size_t piece;                 /* bytes */
};
int part_reducer_open(struct part_reducer *r, uint32_t n, bool device);
void part_reducer_close(struct part_reducer *r);      /* the stream's work must have finished; fine when zeroed */
/* Elements [first, first + length) of the inputs to `out`, as `op` says. */
int part_reduce(const struct part_reducer *r, const struct island_op *op, size_t first, size_t length,
                mem_stream_t *stream);

#endif
