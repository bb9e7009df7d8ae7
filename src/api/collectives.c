/*
 * Entry points of the collectives. Every form of every collective is one line of the table at the end: it fills in
 * struct raw, and the rest is common: check the arguments, then run, queue or keep the call.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "core/log.h"
#include "core/proc.h"

/* A call as the application made it. */
struct raw {
    const char *function;
    enum coll_kind kind;
    const void *send;
    void *recv;
    size_t send_count, count;
    MPI_Datatype send_type, type;
    MPI_Op op;
    int root;
};

static bool reduces(enum coll_kind kind)
{
    return kind == COLL_ALLREDUCE || kind == COLL_REDUCE || kind == COLL_REDUCE_SCATTER_BLOCK;
}

static bool rooted(enum coll_kind kind)
{
    return kind == COLL_REDUCE || kind == COLL_BCAST;
}

static int check_type(const struct raw *raw, MPI_Datatype type, enum red_type *found)
{
    char name[MPI_MAX_OBJECT_NAME + 1];
    int code = types_find(type, found);

    if (code != HETMPI_ERR_TYPE)
        return code;
    types_describe(type, name, sizeof(name));
    return err_set(code, "%s: %s is not a type that hetmpi supports (the table is in hetmpi.h)", raw->function, name);
}

static int check_op(const struct raw *raw, struct call *call)
{
    int code = types_find_op(raw->op, &call->op);

    if (code == HETMPI_ERR_OP)
        return err_set(code, "%s: the operation is none that hetmpi knows (user-defined ones are not supported)",
                       raw->function);
    if (code)
        return code;
    if (!red_supported(call->type, call->op))
        return err_set(HETMPI_ERR_OP, "%s: %s does not exist for %s (the table is in hetmpi.h)", raw->function,
                       red_op_name(call->op), red_type_name(call->type));
    return HETMPI_SUCCESS;
}

static bool overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
    uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;

    return a_bytes && b_bytes && x < y + b_bytes && y < x + a_bytes;
}

static int null_buffer(const struct raw *raw, const char *name)
{
    return err_set(HETMPI_ERR_BUFFER, "%s: %s is NULL, and the count is %zu", raw->function, name, raw->count);
}

/* Both buffers of this rank, with the sizes they have here: not NULL, and no overlap but what counts as in place. */
static int check_pair(const struct raw *raw, const void *send, size_t send_bytes, void *recv, size_t recv_bytes,
                      const void *allowed)
{
    if (!send)
        return null_buffer(raw, "sendbuf");
    if (send != allowed && overlap(send, send_bytes, recv, recv_bytes))
        return err_set(HETMPI_ERR_BUFFER, "%s: sendbuf (%p, %zu bytes) and recvbuf (%p, %zu bytes) overlap, and not as "
                       "in-place buffers may: use MPI_IN_PLACE or separate buffers", raw->function, send, send_bytes,
                       (void *)recv, recv_bytes);
    return HETMPI_SUCCESS;
}

static int check_buffers(const struct comm *comm, const struct raw *raw, struct call *call)
{
    size_t bytes = call->count * red_size(call->type), all = bytes * (size_t)comm->size;
    size_t mine = bytes * (size_t)comm->rank;
    bool in_place = raw->send == MPI_IN_PLACE;

    call->send = raw->send;
    call->recv = raw->recv;
    if (in_place && rooted(call->kind) && comm->rank != call->root)
        return err_set(HETMPI_ERR_BUFFER, "%s: MPI_IN_PLACE is for the root alone, rank %d is not the root (%d)",
                       raw->function, comm->rank, call->root);
    if (call->count == 0 || call->kind == COLL_BARRIER) {
        call->send = call->recv = NULL;
        return HETMPI_SUCCESS;
    }
    if (raw->recv == MPI_IN_PLACE && (call->kind != COLL_REDUCE || comm->rank == call->root))
        return err_set(HETMPI_ERR_BUFFER, "%s: MPI_IN_PLACE stands where a buffer must stand: it is for sendbuf alone",
                       raw->function);
    if (!raw->recv && (call->kind != COLL_REDUCE || comm->rank == call->root))
        return null_buffer(raw, call->kind == COLL_BCAST ? "buffer" : "recvbuf");
    switch (call->kind) {
    case COLL_BCAST:
        call->send = call->recv;
        return HETMPI_SUCCESS;
    case COLL_REDUCE:
        if (comm->rank != call->root) {
            call->recv = NULL;
            return raw->send ? HETMPI_SUCCESS : null_buffer(raw, "sendbuf");
        }
        /* fall through - the root's buffers are as in allreduce */
    case COLL_ALLREDUCE:
        if (in_place)
            call->send = raw->recv;
        return check_pair(raw, call->send, bytes, raw->recv, bytes, raw->recv);
    case COLL_ALLGATHER:
        call->in_place = in_place || raw->send == (const char *)raw->recv + mine;
        if (call->in_place)
            call->send = (const char *)raw->recv + mine;
        return check_pair(raw, call->send, bytes, raw->recv, all, call->in_place ? call->send : NULL);
    default:
        if (in_place) {
            call->in_place = true;
            call->send = raw->recv;
            return HETMPI_SUCCESS;
        }
        return check_pair(raw, raw->send, all, raw->recv, bytes, (const void *)((uintptr_t)raw->recv - mine));
    }
}

/* Everything that this rank can find wrong by itself, before anything is changed. */
static int check_call(const struct comm *comm, const struct raw *raw, struct call *call)
{
    enum red_type send_type;
    int code;

    memset(call, 0, sizeof(*call));
    call->kind = raw->kind;
    if (raw->kind == COLL_BARRIER)
        return HETMPI_SUCCESS;
    call->count = raw->count;
    code = check_type(raw, raw->type, &call->type);
    if (code)
        return code;
    if (reduces(raw->kind)) {
        code = check_op(raw, call);
        if (code)
            return code;
    }
    if (rooted(raw->kind)) {
        if (raw->root < 0 || raw->root >= comm->size)
            return err_set(HETMPI_ERR_ROOT, "%s: root %d is not a rank of a communicator of %d", raw->function,
                           raw->root, comm->size);
        call->root = raw->root;
    }
    if (raw->count > SIZE_MAX / 4 / red_size(call->type) / (size_t)comm->size)
        return err_set(HETMPI_ERR_COUNT, "%s: count %zu of %s on %d ranks is more than memory can hold", raw->function,
                       raw->count, red_type_name(call->type), comm->size);
    if (raw->kind == COLL_ALLGATHER && raw->send != MPI_IN_PLACE) {
        code = check_type(raw, raw->send_type, &send_type);
        if (code)
            return code;
        if (raw->send_count != raw->count || send_type != call->type)
            return err_set(send_type != call->type ? HETMPI_ERR_TYPE : HETMPI_ERR_COUNT,
                           "%s: sendcount %zu of %s, recvcount %zu of %s: they must be the same", raw->function,
                           raw->send_count, red_type_name(send_type), raw->count, red_type_name(call->type));
    }
    return check_buffers(comm, raw, call);
}

/* A communicator of one rank: every collective is a copy, or nothing. */
static bool copy_of_one(const struct call *call, size_t *bytes)
{
    *bytes = call->count * red_size(call->type);
    return *bytes && call->kind != COLL_BCAST && call->kind != COLL_BARRIER && call->send != call->recv &&
           !call->in_place;
}

static int run_alone(const struct call *call)
{
    size_t bytes;

    return copy_of_one(call, &bytes) ? mem_copy(call->recv, call->send, bytes) : HETMPI_SUCCESS;
}

static bool cpu_can_touch(const void *buffer)
{
    struct mem_pointer what;

    if (!buffer || !mem_has_device())
        return true;
    mem_query(buffer, &what);
    return what.kind != MEM_DEVICE;
}

/* The communicator, the checked call, and errors that earlier on_stream calls left. */
static int prepare(MPI_Comm user, MPI_Info info, const struct raw *raw, struct comm **comm, struct call *call)
{
    int code = comm_get(user, info, comm);

    if (code)
        return code;
    if (atomic_load_explicit(&(*comm)->async_code, memory_order_acquire)) {
        code = atomic_exchange(&(*comm)->async_code, HETMPI_SUCCESS);
        err_copy(code, (*comm)->async_text);
        if (code)
            return code;
    }
    return check_call(*comm, raw, call);
}

static int run_blocking(struct comm *comm, const struct call *call)
{
    struct op op;

    if (comm->size == 1)
        return run_alone(call);
    if (atomic_load_explicit(&comm->queued, memory_order_acquire) == 0 && small_fits(comm, call) &&
        (comm->one_node || call->kind != COLL_BARRIER) && cpu_can_touch(call->send) && cpu_can_touch(call->recv))
        return small_run(comm, call);
    memset(&op, 0, offsetof(struct op, text));
    op.comm = comm;
    op.call = *call;
    engine_submit(&op);
    return engine_wait(&op);
}

static int blocking(MPI_Comm user, const struct raw *raw)
{
    struct comm *comm;
    struct call call;
    int code = prepare(user, MPI_INFO_NULL, raw, &comm, &call);

    if (!code)
        code = run_blocking(comm, &call);
    return code ? api_report(user, raw->function, code) : HETMPI_SUCCESS;
}

static void free_request(struct op *op)
{
    free(op);   /* the op is the request's first member */
}

static int make_request(MPI_Comm user, const struct raw *raw, const struct comm *comm, const struct call *call,
                        struct hetmpi_request **out)
{
    struct hetmpi_request *request = calloc(1, sizeof(*request));

    if (!request)
        return err_set(HETMPI_ERR_MEMORY, "%s: no memory for a request", raw->function);
    request->op.comm = (struct comm *)(uintptr_t)comm;
    request->op.call = *call;
    request->op.release = free_request;
    request->user = user;
    request->comm_serial = comm->serial;
    request->function = raw->function;
    request->bytes = small_result_bytes(comm, call);
    request->alone = comm->size == 1;
    *out = request;
    return HETMPI_SUCCESS;
}

int coll_start(struct hetmpi_request *request)
{
    struct op *op = &request->op;
    struct comm *comm = op->comm;

    request->active = true;
    if (request->alone) {
        op->error = run_alone(&op->call);
        if (op->error)
            snprintf(op->text, sizeof(op->text), "%s", err_text());
        atomic_store_explicit(&op->done, true, memory_order_release);
        return HETMPI_SUCCESS;
    }
    /* Large messages move while the application computes, where MPI allows a thread of ours. */
    if (comm->cfg->progress == CFG_PROGRESS_THREAD || !small_fits(comm, &op->call)) {
        int code = engine_thread_allowed(comm) ? engine_want_thread(comm) : HETMPI_SUCCESS;
        if (code) {
            request->active = false;   /* a wait for it would never end */
            return code;
        }
    }
    engine_submit(op);
    engine_progress();
    return HETMPI_SUCCESS;
}

static int nonblocking(MPI_Comm user, const struct raw *raw, hetmpi_request_t *out)
{
    struct hetmpi_request *request;
    struct comm *comm;
    struct call call;
    int code;

    if (!out)
        return api_report(user, raw->function, err_set(HETMPI_ERR_ARG, "%s: request is NULL", raw->function));
    code = prepare(user, MPI_INFO_NULL, raw, &comm, &call);
    if (!code)
        code = make_request(user, raw, comm, &call, &request);
    if (!code) {
        code = coll_start(request);
        if (code)
            free(request);
    }
    if (code)
        return api_report(user, raw->function, code);
    *out = request;
    return HETMPI_SUCCESS;
}

static int persistent(MPI_Comm user, MPI_Info info, const struct raw *raw, hetmpi_request_t *out)
{
    struct hetmpi_request *request;
    struct comm *comm;
    struct call call;
    int code;

    (void)info;   /* as MPI: hints for the operation; hetmpi knows none */
    if (!out)
        return api_report(user, raw->function, err_set(HETMPI_ERR_ARG, "%s: request is NULL", raw->function));
    code = prepare(user, MPI_INFO_NULL, raw, &comm, &call);
    if (!code)
        code = make_request(user, raw, comm, &call, &request);
    if (code)
        return api_report(user, raw->function, code);
    request->persistent = true;
    *out = request;
    return HETMPI_SUCCESS;
}

/* One rank: the copy is simply the stream's work. */
static int stream_alone(const struct call *call, mem_stream_t *stream)
{
    size_t bytes;

    return copy_of_one(call, &bytes) ? mem_copy_async(call->recv, call->send, bytes, stream) : HETMPI_SUCCESS;
}

static int stream_queue(MPI_Comm user, const struct raw *raw, struct comm *comm, const struct call *call,
                        mem_stream_t *stream)
{
    struct hetmpi_request *request;
    void *word;
    int code;

    if (comm->size == 1)
        return stream_alone(call, stream);
    code = comm_failed(comm);
    if (code)
        return code;
    code = engine_want_thread(comm);
    if (code)
        return code;
    if (!comm->stream_word) {
        code = mem_host_alloc(64, &word);
        if (code)
            return code;
        memset(word, 0, 64);
        comm->stream_word = word;
    }
    code = make_request(user, raw, comm, call, &request);
    if (code)
        return code;
    code = mem_event_create(&request->op.event);
    if (code)
        goto free_request;
    code = mem_event_record(request->op.event, stream);
    if (code)
        goto destroy_event;
    request->op.orphan = true;
    request->op.stream_value = ++comm->stream_calls;
    engine_submit(&request->op);
    /* Calls of a communicator complete in order, so one growing number serves them all. */
    return mem_stream_wait_value(stream, comm->stream_word, comm->stream_calls);

destroy_event:
    mem_event_destroy(request->op.event);
free_request:
    free(request);
    return code;
}

static int on_stream(MPI_Comm user, const struct raw *raw, hetmpi_stream_t stream)
{
    struct comm *comm;
    struct call call;
    int code = prepare(user, MPI_INFO_NULL, raw, &comm, &call);

    if (!code)
        code = stream_queue(user, raw, comm, &call, stream);
    return code ? api_report(user, raw->function, code) : HETMPI_SUCCESS;
}

/* The four forms of one collective. The last argument fills struct raw from the parameters. */
#define COLLECTIVE(name, args, ...)                                                                             \
    int hetmpi_##name(HETMPI_ARGS_ args MPI_Comm comm)                                                          \
    {                                                                                                           \
        return blocking(comm, &(struct raw){.function = #name, __VA_ARGS__});                                   \
    }                                                                                                           \
    int hetmpi_i##name(HETMPI_ARGS_ args MPI_Comm comm, hetmpi_request_t *request)                              \
    {                                                                                                           \
        return nonblocking(comm, &(struct raw){.function = "i" #name, __VA_ARGS__}, request);                   \
    }                                                                                                           \
    int hetmpi_##name##_on_stream(HETMPI_ARGS_ args MPI_Comm comm, hetmpi_stream_t stream)                      \
    {                                                                                                           \
        return on_stream(comm, &(struct raw){.function = #name "_on_stream", __VA_ARGS__}, stream);             \
    }                                                                                                           \
    int hetmpi_##name##_init(HETMPI_ARGS_ args MPI_Comm comm, MPI_Info info, hetmpi_request_t *request)         \
    {                                                                                                           \
        return persistent(comm, info, &(struct raw){.function = #name "_init", __VA_ARGS__}, request);          \
    }

COLLECTIVE(allreduce, (const void *sendbuf, void *recvbuf, size_t count, MPI_Datatype type, MPI_Op op, ),
           .kind = COLL_ALLREDUCE, .send = sendbuf, .recv = recvbuf, .count = count, .type = type, .op = op)
COLLECTIVE(reduce, (const void *sendbuf, void *recvbuf, size_t count, MPI_Datatype type, MPI_Op op, int root, ),
           .kind = COLL_REDUCE, .send = sendbuf, .recv = recvbuf, .count = count, .type = type, .op = op, .root = root)
COLLECTIVE(bcast, (void *buffer, size_t count, MPI_Datatype type, int root, ),
           .kind = COLL_BCAST, .send = buffer, .recv = buffer, .count = count, .type = type, .root = root)
COLLECTIVE(allgather, (const void *sendbuf, size_t sendcount, MPI_Datatype sendtype, void *recvbuf, size_t recvcount,
                       MPI_Datatype recvtype, ),
           .kind = COLL_ALLGATHER, .send = sendbuf, .send_count = sendcount, .send_type = sendtype, .recv = recvbuf,
           .count = recvcount, .type = recvtype)
COLLECTIVE(reduce_scatter_block, (const void *sendbuf, void *recvbuf, size_t recvcount, MPI_Datatype type, MPI_Op op, ),
           .kind = COLL_REDUCE_SCATTER_BLOCK, .send = sendbuf, .recv = recvbuf, .count = recvcount, .type = type,
           .op = op)
COLLECTIVE(barrier, (), .kind = COLL_BARRIER)
