/*
 * Short cuts whose buffers the CPU may not touch: what this rank posts is copied to host memory first, and the result is
 * copied from there.
 */
#include "core/engine_parts.h"
#include "hetmpi.h"

/* What this rank posts, then the result. */
#define STAGE_IN_BYTES (CTL_SMALL_MAX)
#define STAGE_OUT_BYTES (256u << 10)

static mem_stream_t *stream;   /* of the copies, of all communicators; under the engine's lock */

bool stage_needed(const struct op *op)
{
    return op->small && (mem_on_device(op->call.send) || mem_on_device(op->call.recv));
}

int stage_reserve(struct comm *comm)
{
    int code = HETMPI_SUCCESS;

    if (!comm->small_stage)
        code = mem_host_alloc(STAGE_IN_BYTES + STAGE_OUT_BYTES, &comm->small_stage);
    if (!code && !stream)
        code = mem_stream_create(&stream);
    if (!code && !comm->small_event)
        code = mem_event_create(&comm->small_event);
    return code;
}

int stage_begin_out(struct comm *comm, struct op *op)
{
    const void *data;
    size_t bytes;
    int code = stage_reserve(comm);

    if (code)
        return code;
    small_payload(comm, &op->call, &data, &bytes);
    if (bytes)
        code = mem_copy_async(comm->small_stage, data, bytes, stream);
    return code ? code : mem_event_record(comm->small_event, stream);
}

/* A packed result of blocks to where each belongs. */
static int copy_blocks(struct comm *comm, const struct call *call, const char *packed)
{
    size_t element = red_size(call->type);
    int code = HETMPI_SUCCESS;

    for (int r = 0; r < comm->size && !code; r++) {
        size_t bytes = call->counts[SIDE_RECV][r] * element;
        if (bytes)
            code = mem_copy_async((char *)call->recv + call->displs[SIDE_RECV][r] * element, packed, bytes, stream);
        packed += bytes;
    }
    return code;
}

int stage_begin_in(struct comm *comm, struct op *op, bool *done)
{
    char *result = (char *)comm->small_stage + STAGE_IN_BYTES;
    size_t bytes = small_result_bytes(comm, &op->call);
    int code = small_combine(comm, &op->call, op->meet.number, result, true);

    *done = bytes == 0;
    if (code || !bytes)
        return code;
    if (op->call.displs[SIDE_RECV])
        code = copy_blocks(comm, &op->call, result);
    else
        code = mem_copy_async(op->call.recv, result, bytes, stream);
    return code ? code : mem_event_record(comm->small_event, stream);
}

void stage_finish(void)
{
    if (stream)
        mem_stream_synchronize(stream);   /* its error, if any, is that of the op, or one more */
}

void stage_release(struct comm *comm)
{
    if (comm->small_stage)
        mem_host_free(comm->small_stage);
    comm->small_stage = NULL;
    mem_event_destroy(comm->small_event);
    comm->small_event = NULL;
}

void stage_stop(void)
{
    if (stream)
        mem_stream_destroy(stream);
    stream = NULL;
}
