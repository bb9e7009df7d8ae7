/*
 * Entry points of the collectives. All forms of all of them are made from the table of collectives at the end: each
 * fills in struct raw, and the rest is common: check the arguments (calls.c), then run, queue or keep the call.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/calls.h"
#include "core/log.h"
#include "core/proc.h"

/* A premultiplied sum over one rank: the copy in recv, scaled. */
static struct red_call product_of_one(const struct call *call, const void **src)
{
    *src = call->recv;
    return (struct red_call){.type = call->type, .n = 1, .srcs = src, .dst = call->recv, .count = call->count,
                             .scale = call->scale};
}

static int scale_alone(const struct call *call)
{
    const void *src;
    struct red_call product = product_of_one(call, &src);
    mem_stream_t *stream;
    int code, ended;

    if (!mem_on_device(call->recv)) {
        red_run(&product);
        return HETMPI_SUCCESS;
    }
    code = mem_stream_create(&stream);
    if (code)
        return code;
    code = mem_reduce_async(&product, stream);
    ended = mem_stream_synchronize(stream);
    mem_stream_destroy(stream);
    return code ? code : ended;
}

static int run_alone(struct comm *comm, const struct call *call)
{
    const void *src;
    void *dst;
    size_t bytes;
    int code = comm_failed(comm);   /* it may have been aborted */

    if (!code && calls_copy_of_one(call, &dst, &src, &bytes))
        code = mem_copy(dst, src, bytes);
    return code || !calls_scales_one(call) ? code : scale_alone(call);
}

/* The communicator, the checked call, and errors that earlier on_stream calls left. */
static int prepare(const struct raw *raw, struct comm **comm, struct call *call)
{
    int code = comm_get(raw->comm, MPI_INFO_NULL, comm);

    if (code)
        return code;
    code = comm_take_async(*comm);
    return code ? code : calls_check(*comm, raw, call);
}

static int run_blocking(struct comm *comm, const struct call *call)
{
    struct op op;
    struct meet meet;
    bool met = false;

    if (comm->size == 1)
        return run_alone(comm, call);
    if (atomic_load_explicit(&comm->queued, memory_order_acquire) == 0 && !mem_on_device(call->send) &&
        !mem_on_device(call->recv)) {
        if (small_fits(comm, call) && (comm->one_node || call->kind != COLL_BARRIER))
            return small_run(comm, call);
        if (pairs_may(comm, call)) {
            int code = pairs_run(comm, call, &meet);
            if (code != COMM_AGAIN)
                return code;
            met = true;
        }
    }
    memset(&op, 0, offsetof(struct op, text));
    op.comm = comm;
    op.call = *call;
    op.met = met;
    if (met)
        op.meet = meet;
    engine_submit(&op);
    return engine_wait(&op);
}

static int blocking(const struct raw *raw)
{
    struct comm *comm;
    struct call call;
    int code = api_refuse_in_group(raw->function);

    if (!code)
        code = prepare(raw, &comm, &call);
    if (!code)
        code = run_blocking(comm, &call);
    return code ? api_report(raw->comm, raw->function, code) : HETMPI_SUCCESS;
}

static void free_request(struct op *op)
{
    engine_plan_free(op);
    free(op);   /* the op is the request's first member */
}

static int make_request(const struct raw *raw, const struct comm *comm, const struct call *call,
                        struct hetmpi_request **out)
{
    struct hetmpi_request *request = calloc(1, sizeof(*request) + calls_tables(call, comm->size));

    if (!request)
        return err_set(HETMPI_ERR_MEMORY, "%s: no memory for a request", raw->function);
    request->op.comm = (struct comm *)(uintptr_t)comm;
    request->op.call = *call;
    calls_keep_tables(&request->op.call, comm->size, (size_t *)(request + 1));
    request->op.release = free_request;
    request->user = raw->comm;
    request->comm_serial = comm->serial;
    request->generation = comm_generation();
    request->function = raw->function;
    request->bytes = small_result_bytes(comm, call);
    request->alone = comm->size == 1;
    *out = request;
    return HETMPI_SUCCESS;
}

/* Large messages move while the application computes, where MPI allows a thread of ours. */
static int want_thread(struct comm *comm, bool small)
{
    if (small && comm->cfg->progress != CFG_PROGRESS_THREAD)
        return HETMPI_SUCCESS;
    return engine_thread_allowed(comm) ? engine_want_thread(comm) : HETMPI_SUCCESS;
}

int coll_start(struct hetmpi_request *request)
{
    struct op *op = &request->op;
    struct comm *comm = op->comm;
    int code;

    request->active = true;
    if (op->planned) {   /* all was found when the request was made; whoever waits drives it */
        engine_submit(op);
        return HETMPI_SUCCESS;
    }
    if (request->alone) {
        op->error = run_alone(comm, &op->call);
        if (op->error)
            snprintf(op->text, sizeof(op->text), "%s", err_text());
        atomic_store_explicit(&op->done, true, memory_order_release);
        return HETMPI_SUCCESS;
    }
    code = want_thread(comm, small_fits(comm, &op->call));
    if (code) {
        request->active = false;   /* a wait for it would never end */
        return code;
    }
    engine_submit(op);
    engine_progress();
    return HETMPI_SUCCESS;
}

static int nonblocking(const struct raw *raw, hetmpi_request_t *out)
{
    struct hetmpi_request *request = NULL;
    struct comm *comm;
    struct call call;
    int code = api_want_request(raw->function, out);

    if (!code)
        code = prepare(raw, &comm, &call);
    if (!code)
        code = comm_lose_call(comm, make_request(raw, comm, &call, &request));
    return api_launch(raw->comm, raw->function, code, request, out);
}

static int persistent(const struct raw *raw, hetmpi_request_t *out)
{
    struct hetmpi_request *request = NULL;
    struct comm *comm;
    struct call call;
    int code = api_want_request(raw->function, out);

    if (!code)
        code = prepare(raw, &comm, &call);
    if (!code)
        code = comm_lose_call(comm, make_request(raw, comm, &call, &request));
    if (code)
        return api_report(raw->comm, raw->function, code);
    request->persistent = true;
    if (!request->alone)
        code = engine_plan(&request->op);
    if (!code && !request->alone)
        code = want_thread(comm, request->op.small);
    if (code) {
        free_request(&request->op);
        return api_report(raw->comm, raw->function, comm_lose_call(comm, code));
    }
    *out = request;
    return HETMPI_SUCCESS;
}

/* Kernels cannot touch memory that is not registered: as a device's own copy to such memory, this waits. */
static int stream_scale_alone(const struct call *call, mem_stream_t *stream)
{
    const void *src;
    struct red_call product = product_of_one(call, &src);
    struct mem_pointer what;
    int code;

    mem_query(call->recv, &what);
    if (what.kind != MEM_HOST)
        return mem_reduce_async(&product, stream);
    code = mem_stream_synchronize(stream);
    if (!code)
        red_run(&product);
    return code;
}

/* One rank: the copy is simply the stream's work. */
static int stream_alone(const struct call *call, mem_stream_t *stream)
{
    const void *src;
    void *dst;
    size_t bytes;
    int code = HETMPI_SUCCESS;

    if (calls_copy_of_one(call, &dst, &src, &bytes))
        code = mem_copy_async(dst, src, bytes, stream);
    return code || !calls_scales_one(call) ? code : stream_scale_alone(call, stream);
}

static int stream_queue(const struct raw *raw, struct comm *comm, const struct call *call,
                        mem_stream_t *stream)
{
    struct hetmpi_request *request = NULL;
    int code;

    code = comm_failed(comm);
    if (code)
        return code;
    if (comm->size == 1)
        return stream_alone(call, stream);
    code = engine_want_thread(comm);
    if (!code)
        code = make_request(raw, comm, call, &request);
    if (!code)
        code = api_start_on_stream(request, stream);
    return comm_lose_call(comm, code);
}

static int on_stream(const struct raw *raw, hetmpi_stream_t stream)
{
    struct comm *comm;
    struct call call;
    int code = prepare(raw, &comm, &call);

    if (!code)
        code = stream_queue(raw, comm, &call, stream);
    return code ? api_report(raw->comm, raw->function, code) : HETMPI_SUCCESS;
}

/* The four forms of one collective, from its row of the table. */
#define DECLARE(kind, name) COLL_DECLARE(kind, name, size_t, size_t)
#define FILL(kind, name) FILL_##kind(name)
#define FILL_IN(name) .name = name
#define FILL_OUT(name) .name = name
#define FILL_BUFFER(name) .name = name, .sendbuf = name
#define FILL_COUNT(name) .name = name
#define FILL_COUNTS(name) .name = name
#define FILL_DISPLS(name) .name = name
#define FILL_TYPE(name) .name = name
#define FILL_OP(name) .name = name
#define FILL_ROOT(name) .name = name
#define FILL_COMM(name) .name = name

#define RAW(text, NAME, ...) &(struct raw){.function = text, .kind = COLL_##NAME, COLL_EACH(FILL, __VA_ARGS__)}
#define COLLECTIVE(Name, name, NAME, traits, ...)                                                               \
    int hetmpi_##name(COLL_EACH(DECLARE, __VA_ARGS__))                                                          \
    {                                                                                                           \
        return blocking(RAW(#name, NAME, __VA_ARGS__));                                                         \
    }                                                                                                           \
    int hetmpi_i##name(COLL_EACH(DECLARE, __VA_ARGS__), hetmpi_request_t *request)                              \
    {                                                                                                           \
        return nonblocking(RAW("i" #name, NAME, __VA_ARGS__), request);                                         \
    }                                                                                                           \
    int hetmpi_##name##_on_stream(COLL_EACH(DECLARE, __VA_ARGS__), hetmpi_stream_t stream)                      \
    {                                                                                                           \
        return on_stream(RAW(#name "_on_stream", NAME, __VA_ARGS__), stream);                                   \
    }                                                                                                           \
    int hetmpi_##name##_init(COLL_EACH(DECLARE, __VA_ARGS__), MPI_Info info, hetmpi_request_t *request)         \
    {                                                                                                           \
        (void)info;   /* as MPI: hints for the operation; hetmpi knows none */                                  \
        return persistent(RAW(#name "_init", NAME, __VA_ARGS__), request);                                      \
    }
COLL_ALL(COLLECTIVE)
