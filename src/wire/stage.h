/*
 * Copies between the elements of a message and staging memory, for the wires: asynchronous on a few streams where the
 * rank has a device, plain memcpy where all memory is host memory.
 */
#ifndef HETMPI_STAGE_H
#define HETMPI_STAGE_H

#include <stdbool.h>
#include <stddef.h>

#include "core/sched.h"
#include "mem/mem.h"

/* The streams of one direction. Two of them, used in turn, hide the start of each copy behind another's data. */
#define STAGE_STREAMS 2
struct stage_lane {
    mem_stream_t *streams[STAGE_STREAMS];   /* created at the first asynchronous copy */
    unsigned turn;
};

enum stage_way { STAGE_OUT, STAGE_IN };     /* elements -> staging memory; staging memory -> elements */

/* Address of the elements first .. first+length of the view when they stand in one piece, else NULL. */
void *stage_span(const struct sched_view *view, size_t first, size_t length);

/* The copy, on the calling CPU. */
void stage_copy_now(enum stage_way way, const struct sched_view *view, size_t first, size_t length, void *staging);

/* The copy, queued on the lane's next stream; *event (created when NULL, reused after) marks its end. */
int stage_copy_async(struct stage_lane *lane, enum stage_way way, const struct sched_view *view, size_t first,
                     size_t length, void *staging, mem_event_t **event);

/* Finishes the lane's work and frees its streams; the first error of their work is returned. */
int stage_lane_clear(struct stage_lane *lane);

#endif
