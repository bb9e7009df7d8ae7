/* What the files of the engine share. Called under the engine's lock, but for what frees. */
#ifndef HETMPI_ENGINE_PARTS_H
#define HETMPI_ENGINE_PARTS_H

#include "core/engine.h"

/* engine.c: one step of everything that is under way; true if something moved. */
bool engine_progress_all(void);

/* engine_thread.c: something was queued. */
void thread_wake(void);

/* engine_stage.c: a short cut whose buffers the CPU may not touch. Copies begin, and have ended when comm->small_event has
 * come; stage_begin_in combines what was posted, and is done at once where this rank gets nothing. */
bool stage_needed(const struct op *op);
int stage_reserve(struct comm *comm);
int stage_begin_out(struct comm *comm, struct op *op);
int stage_begin_in(struct comm *comm, struct op *op, bool *done);
void stage_finish(void);   /* waits for the copies */
/* Frees what a communicator had, and at the end of the process what all had. */
void stage_release(struct comm *comm);
void stage_stop(void);

#endif
