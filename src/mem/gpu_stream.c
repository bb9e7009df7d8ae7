/*
 * Streams, events, and the work on them: see gpu.h. A mem_stream_t is the vendor's own stream, so that an application's
 * streams can be used as they are.
 *
 * Copies that touch pageable host memory would make the caller wait (for what the stream waits for, perhaps for this
 * very thread). They go through pinned pieces instead, which the runtime's callback thread fills or empties.
 */
#include "mem/gpu.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "hetmpi.h"

#define PIECE_BYTES ((size_t)1 << 20)

struct piece {
    struct piece *next;
    void *pinned;
    void *user;
    size_t bytes;
};

static struct {
    pthread_mutex_t lock;
    struct piece *free;
} pieces = {.lock = PTHREAD_MUTEX_INITIALIZER};

static GPU(Stream_t) native(mem_stream_t *stream)
{
    return (GPU(Stream_t))stream;
}

/*
 * Pageable memory
 */

static int piece_take(struct piece **piece)
{
    int code;

    pthread_mutex_lock(&pieces.lock);
    *piece = pieces.free;
    if (*piece)
        pieces.free = (*piece)->next;
    pthread_mutex_unlock(&pieces.lock);
    if (*piece)
        return HETMPI_SUCCESS;
    *piece = calloc(1, sizeof(**piece));
    if (!*piece)
        return err_set(HETMPI_ERR_MEMORY, "no memory for a copy of pageable memory");
    code = gpu_vendor_host_alloc(PIECE_BYTES, &(*piece)->pinned);
    if (code)
        free(*piece);
    return code;
}

static void piece_give(struct piece *piece)
{
    pthread_mutex_lock(&pieces.lock);
    piece->next = pieces.free;
    pieces.free = piece;
    pthread_mutex_unlock(&pieces.lock);
}

/* These four run in the runtime's callback thread. */
static void piece_fill(void *data)
{
    struct piece *piece = data;

    memcpy(piece->pinned, piece->user, piece->bytes);
}

static void piece_done(void *data)
{
    piece_give(data);
}

static void piece_empty(void *data)
{
    struct piece *piece = data;

    memcpy(piece->user, piece->pinned, piece->bytes);
    piece_give(piece);
}

struct host_work { void *dst; const void *src; size_t bytes; int byte; };

static void host_work_run(void *data)
{
    struct host_work *work = data;

    if (work->src)
        memmove(work->dst, work->src, work->bytes);
    else
        memset(work->dst, work->byte, work->bytes);
    free(work);
}

static int host_work_add(void *dst, const void *src, size_t bytes, int byte, mem_stream_t *stream)
{
    struct host_work *work = malloc(sizeof(*work));
    int code;

    if (!work)
        return err_set(HETMPI_ERR_MEMORY, "no memory for a copy of %zu bytes of host memory", bytes);
    *work = (struct host_work){.dst = dst, .src = src, .bytes = bytes, .byte = byte};
    code = gpu_vendor_call_back(native(stream), host_work_run, work);
    if (code)
        free(work);
    return code;
}

/* What the whole range is: memory of which only a part is registered counts as pageable. */
static enum gpu_place place_of(const void *ptr, size_t bytes)
{
    enum gpu_place place = gpu_vendor_place(ptr);
    struct gpu_pointer what;

    if (place != GPU_PINNED)
        return place;
    gpu_vendor_query(ptr, &what);
    return what.known && (uintptr_t)ptr + bytes <= (uintptr_t)what.base + what.bytes ? GPU_PINNED : GPU_PAGEABLE;
}

static int copy_native(void *dst, const void *src, size_t bytes, mem_stream_t *stream)
{
    return gpu_result(GPU(MemcpyAsync)(dst, src, bytes, GPU(MemcpyDefault), native(stream)),
                      "copy of %zu bytes from %p to %p", bytes, src, dst);
}

/* One side is device memory, the other pageable. */
static int copy_pageable(char *dst, const char *src, size_t bytes, bool to_host, mem_stream_t *stream)
{
    for (size_t at = 0, n; at < bytes; at += n) {
        struct piece *piece;
        int code = piece_take(&piece);

        if (code)
            return code;
        n = bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES;
        piece->bytes = n;
        piece->user = to_host ? dst + at : (char *)(uintptr_t)src + at;
        if (to_host) {
            code = copy_native(piece->pinned, src + at, n, stream);
            if (!code)
                code = gpu_vendor_call_back(native(stream), piece_empty, piece);
        } else {
            code = gpu_vendor_call_back(native(stream), piece_fill, piece);
            if (!code)
                code = copy_native(dst + at, piece->pinned, n, stream);
            if (!code)
                code = gpu_vendor_call_back(native(stream), piece_done, piece);
        }
        if (code)
            return code;   /* the stream is broken; the piece may still be in use by what was queued */
    }
    return HETMPI_SUCCESS;
}

void gpu_streams_clear(void)
{
    while (pieces.free) {
        struct piece *piece = pieces.free;

        pieces.free = piece->next;
        free(piece);   /* its pinned memory ends with the process, as the runtime does */
    }
}

/*
 * Work
 */

static int copy_on_stream(void *dst, const void *src, size_t bytes, mem_stream_t *stream)
{
    enum gpu_place from = place_of(src, bytes), to = place_of(dst, bytes);

    if (from != GPU_DEVICE && to != GPU_DEVICE)
        return host_work_add(dst, src, bytes, 0, stream);
    if (from == GPU_PAGEABLE || to == GPU_PAGEABLE)
        return copy_pageable(dst, src, bytes, to == GPU_PAGEABLE, stream);
    return copy_native(dst, src, bytes, stream);
}

int mem_copy_async(void *dst, const void *src, size_t bytes, mem_stream_t *stream)
{
    int code = HETMPI_SUCCESS;

    if (bytes > 0 && dst != src)
        GPU_WITHIN(code, copy_on_stream(dst, src, bytes, stream));
    return code;
}

static int set_on_stream(void *dst, int byte, size_t bytes, mem_stream_t *stream)
{
    if (gpu_vendor_place(dst) != GPU_DEVICE)
        return host_work_add(dst, NULL, bytes, byte, stream);
    return gpu_result(GPU(MemsetAsync)(dst, byte, bytes, native(stream)), "setting %zu bytes at %p", bytes, dst);
}

int mem_set_async(void *dst, int byte, size_t bytes, mem_stream_t *stream)
{
    int code = HETMPI_SUCCESS;

    if (bytes > 0)
        GPU_WITHIN(code, set_on_stream(dst, byte, bytes, stream));
    return code;
}

/* One input that is neither converted nor divided is a copy, bit for bit. */
static bool is_copy(const struct red_call *call)
{
    bool convert = call->src_wide != call->dst_wide && red_size(call->type) != red_wide_size(call->type);

    return call->n == 1 && !call->scale && !convert && !(call->op == RED_AVG && call->divide_by > 1);
}

int mem_reduce_async(const struct red_call *call, mem_stream_t *stream)
{
    int code;

    if (call->count == 0)
        return HETMPI_SUCCESS;
    if (is_copy(call))
        return mem_copy_async(call->dst, call->srcs[0],
                              call->count * (call->src_wide ? red_wide_size(call->type) : red_size(call->type)), stream);
    GPU_CALL(code, gpu_reduce_launch(call, native(stream)), "a reduction (%s, %s) of %u inputs of %zu elements",
             red_type_name(call->type), red_op_name(call->op), call->n, call->count);
    return code;
}

int mem_stream_write_value(mem_stream_t *stream, _Atomic uint64_t *word, uint64_t value)
{
    int code;

    GPU_WITHIN(code, gpu_vendor_write_value(native(stream), (void *)word, value));
    return code;
}

/* A stream that waited in the only hardware queue would hold up what it waits for, so the caller waits instead of it. */
static int wait_here(const _Atomic uint64_t *word, uint64_t value)
{
    static _Atomic bool warned;

    if (!atomic_exchange(&warned, true))
        log_warn(GPU_QUEUES "=1: all streams share one hardware queue, so calls on a stream wait in the caller until they are "
                 "complete; set it to 8 or more, or not at all, for calls that return at once");
    plain_wait_value(word, value);
    return HETMPI_SUCCESS;
}

int mem_stream_wait_value(mem_stream_t *stream, _Atomic uint64_t *word, uint64_t value)
{
    int code;

    if (gpu_one_queue())
        return wait_here(word, value);
    GPU_WITHIN(code, gpu_wait_value(native(stream), word, value));
    return code;
}

/* A copy from pageable memory has only been read when the runtime's call returns, not yet written. */
static GPU(Error_t) copy_and_wait(void *dst, const void *src, size_t bytes)
{
    GPU(Error_t) error = GPU(Memcpy)(dst, src, bytes, GPU(MemcpyDefault));

    return error == GPU(Success) ? GPU(StreamSynchronize)(NULL) : error;
}

int mem_copy(void *dst, const void *src, size_t bytes)
{
    int code = HETMPI_SUCCESS;

    if (bytes > 0 && dst != src)
        GPU_CALL(code, copy_and_wait(dst, src, bytes), "copy of %zu bytes from %p to %p", bytes, src, dst);
    return code;
}

/*
 * Streams and events
 */

/*
 * A stream that waits for a value holds up its hardware queue, and streams of one priority may share queues. The library's
 * own streams are above an application's, in queues of their own: what these wait for goes on.
 */
static GPU(Error_t) make_stream(GPU(Stream_t) *made, bool own)
{
    int least, greatest;
    GPU(Error_t) error = GPU(DeviceGetStreamPriorityRange)(&least, &greatest);

    return error == GPU(Success) ? GPU(StreamCreateWithPriority)(made, GPU(StreamNonBlocking), own ? greatest : least)
                                 : error;
}

static int create_stream(mem_stream_t **stream, bool own)
{
    GPU(Stream_t) made = NULL;
    int code;

    GPU_CALL(code, make_stream(&made, own), "a stream of device %d", gpu_device());
    if (!code)
        *stream = (mem_stream_t *)made;
    return code;
}

int mem_stream_create(mem_stream_t **stream)
{
    return create_stream(stream, true);
}

int mem_stream_create_user(mem_stream_t **stream)
{
    return create_stream(stream, false);
}

static GPU(Error_t) finish_and_destroy(GPU(Stream_t) stream)
{
    GPU(Error_t) error = GPU(StreamSynchronize)(stream);

    return error == GPU(Success) ? GPU(StreamDestroy)(stream) : error;
}

int mem_stream_destroy(mem_stream_t *stream)
{
    int code;

    GPU_CALL(code, finish_and_destroy(native(stream)), "the end of a stream");
    return code;
}

int mem_stream_synchronize(mem_stream_t *stream)
{
    int code;

    GPU_CALL(code, GPU(StreamSynchronize)(native(stream)), "waiting for a stream");
    return code;
}

int mem_event_create(mem_event_t **event)
{
    GPU(Event_t) made = NULL;
    int code;

    GPU_CALL(code, GPU(EventCreateWithFlags)(&made, GPU(EventDisableTiming)), "an event of device %d", gpu_device());
    if (!code)
        *event = (mem_event_t *)made;
    return code;
}

void mem_event_destroy(mem_event_t *event)
{
    struct gpu_scope scope;

    if (!event || gpu_enter(&scope))
        return;
    (void)GPU(EventDestroy)((GPU(Event_t))event);
    gpu_leave(&scope);
}

int mem_event_record(mem_event_t *event, mem_stream_t *stream)
{
    int code;

    GPU_CALL(code, GPU(EventRecord)((GPU(Event_t))event, native(stream)), "recording an event");
    return code;
}

static int ask_event(GPU(Event_t) event, bool *done)
{
    GPU(Error_t) answer = GPU(EventQuery)(event);

    *done = answer == GPU(Success);
    return answer == GPU(ErrorNotReady) ? HETMPI_SUCCESS : gpu_result(answer, "the work before an event");
}

int mem_event_query(mem_event_t *event, bool *done)
{
    int code;

    GPU_WITHIN(code, ask_event((GPU(Event_t))event, done));
    return code;
}

int mem_stream_wait_event(mem_stream_t *stream, mem_event_t *event)
{
    int code;

    GPU_CALL(code, GPU(StreamWaitEvent)(native(stream), (GPU(Event_t))event, 0), "making a stream wait for an event");
    return code;
}
