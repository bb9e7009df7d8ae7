/* Entry points of messages: check the arguments, then run the message, start it, or order it in a stream. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "core/log.h"
#include "core/proc.h"

/* One end of a message, as the application gave it. */
struct raw {
    const char *function;
    bool send, on_stream;
    void *buffer;
    size_t count;
    MPI_Datatype type;
    int peer, tag;
};

/* From the parameters of a call. */
#define SEND(name, streamed)                                                                                      \
    (&(struct raw){.function = name, .send = true, .on_stream = streamed, .buffer = (void *)(uintptr_t)buf,       \
                   .count = count, .type = type, .peer = dest, .tag = tag})
#define RECV(name, streamed)                                                                                      \
    (&(struct raw){.function = name, .on_stream = streamed, .buffer = buf, .count = count, .type = type,          \
                   .peer = source, .tag = tag})

/* The communicator, which must be set up already: one that is not would need all its ranks. */
static int find_comm(MPI_Comm user, const char *function, struct comm **comm)
{
    int code = proc_start();

    if (code)
        return code;
    if (user == MPI_COMM_NULL)
        return err_set(HETMPI_ERR_ARG, "%s: the communicator is MPI_COMM_NULL", function);
    *comm = comm_find(user);
    if (!*comm)
        return err_set(HETMPI_ERR_STATE, "%s: this communicator is not set up: all its ranks must have called "
                       "hetmpi_comm_attach, or a collective, on it", function);
    if (!proc_may_call_mpi())
        return err_set(HETMPI_ERR_STATE, "%s: MPI was initialised for calls from the main thread alone", function);
    code = comm_take_async(*comm);
    return code ? code : p2p_want(*comm);
}

static int check_peer(const struct comm *comm, const struct raw *raw)
{
    if (raw->peer == MPI_PROC_NULL || (raw->peer >= 0 && raw->peer < comm->size))
        return HETMPI_SUCCESS;
    if (raw->peer == MPI_ANY_SOURCE && !raw->send) {
        if (!raw->on_stream)
            return HETMPI_SUCCESS;
        return err_set(HETMPI_ERR_RANK, "%s: MPI_ANY_SOURCE is not for calls on a stream", raw->function);
    }
    return err_set(HETMPI_ERR_RANK, "%s: %s %d is not a rank of a communicator of %d", raw->function,
                   raw->send ? "dest" : "source", raw->peer, comm->size);
}

static int check_tag(const struct comm *comm, const struct raw *raw)
{
    int most = p2p_tag_max(comm);

    if (raw->tag >= 0 && raw->tag <= most)
        return HETMPI_SUCCESS;
    if (raw->tag == MPI_ANY_TAG && !raw->send) {
        if (!raw->on_stream)
            return HETMPI_SUCCESS;
        return err_set(HETMPI_ERR_TAG, "%s: MPI_ANY_TAG is not for calls on a stream", raw->function);
    }
    return err_set(HETMPI_ERR_TAG, "%s: tag %d is not in 0..%d", raw->function, raw->tag, most);
}

/* All that this rank can find wrong; fills in the op. */
static int check(struct comm *comm, const struct raw *raw, struct op *op)
{
    enum red_type type;
    int code = types_want(raw->function, raw->type, &type);

    if (!code)
        code = check_peer(comm, raw);
    if (!code)
        code = check_tag(comm, raw);
    if (code)
        return code;
    if (raw->count > API_MOST_BYTES / red_size(type))
        return err_set(HETMPI_ERR_COUNT, "%s: count %zu of %s is more than memory can hold (%zu bytes)", raw->function,
                       raw->count, red_type_name(type), (size_t)API_MOST_BYTES);
    if (raw->count && (!raw->buffer || raw->buffer == MPI_IN_PLACE))
        return err_set(HETMPI_ERR_BUFFER, "%s: buf is %s, and the count is %zu", raw->function,
                       raw->buffer ? "MPI_IN_PLACE" : "NULL", raw->count);
    op->comm = comm;
    op->p2p = true;
    op->message.send = raw->send;
    op->message.peer = raw->peer;
    op->message.tag = raw->tag;
    op->message.buffer = raw->buffer;
    op->message.room = raw->count * red_size(type);
    return HETMPI_SUCCESS;
}

static void clear(struct op *op)
{
    memset(op, 0, offsetof(struct op, text));
    op->text[0] = '\0';
    memset(&op->message, 0, sizeof(op->message));
}

/* As MPI: nothing is sent to or received from MPI_PROC_NULL, at once. */
static bool to_nobody(struct op *op)
{
    if (op->message.peer != MPI_PROC_NULL)
        return false;
    op->message.tag = MPI_ANY_TAG;
    op->message.bytes = 0;
    atomic_store_explicit(&op->done, true, memory_order_release);
    return true;
}

static int blocking(MPI_Comm user, const struct raw *raw, MPI_Status *status)
{
    struct comm *comm;
    struct op op;
    int code = api_refuse_in_group(raw->function);

    if (!code)
        code = find_comm(user, raw->function, &comm);
    if (!code) {
        clear(&op);
        code = check(comm, raw, &op);
    }
    if (code)
        return api_report(user, raw->function, code);
    if (!to_nobody(&op)) {
        code = comm_lose_call(comm, p2p_run(&op));
        if (code)
            op.error = code;   /* of one that could not even begin, too */
    }
    if (!raw->send)
        api_message_status(status, &op);
    return code ? api_report(user, raw->function, code) : HETMPI_SUCCESS;
}

int msg_start(struct hetmpi_request *request)
{
    struct op *op = &request->op;
    struct comm *comm = op->comm;
    int code;

    request->active = true;
    if (to_nobody(op))
        return HETMPI_SUCCESS;
    /* Large messages move while the application computes, where MPI allows a thread of ours. */
    if ((comm->cfg->progress == CFG_PROGRESS_THREAD || op->message.room > comm->cfg->eager) &&
        engine_p2p_thread_allowed(comm)) {
        code = engine_want_p2p_thread(comm);
        if (code)
            return code;
    }
    return p2p_start(op);
}

static void free_request(struct op *op)
{
    free(op);   /* the op is the request's first member */
}

static int make_request(MPI_Comm user, const struct raw *raw, struct hetmpi_request **out)
{
    struct hetmpi_request *request = NULL;
    struct comm *comm;
    int code = find_comm(user, raw->function, &comm);

    if (code)
        return code;
    request = calloc(1, sizeof(*request));
    if (!request)
        return comm_lose_call(comm, err_set(HETMPI_ERR_MEMORY, "%s: no memory for a request", raw->function));
    code = check(comm, raw, &request->op);
    if (code) {
        free(request);
        return code;
    }
    request->op.release = free_request;
    request->user = user;
    request->comm_serial = comm->serial;
    request->generation = comm_generation();
    request->function = raw->function;
    *out = request;
    return HETMPI_SUCCESS;
}

static int nonblocking(MPI_Comm user, const struct raw *raw, hetmpi_request_t *out)
{
    struct hetmpi_request *request = NULL;
    int code = api_want_request(raw->function, out);

    if (!code)
        code = make_request(user, raw, &request);
    return api_launch(user, raw->function, code, request, out);
}

static int on_stream(MPI_Comm user, const struct raw *raw, hetmpi_stream_t stream)
{
    struct hetmpi_request *request = NULL;
    struct comm *comm;
    int code = make_request(user, raw, &request);

    if (!code && raw->peer == MPI_PROC_NULL) {
        free(request);
        return HETMPI_SUCCESS;
    }
    if (!code) {
        comm = request->op.comm;
        code = engine_want_p2p_thread(comm);
        if (code)
            free(request);
        else
            code = api_start_on_stream(request, stream);
        code = comm_lose_call(comm, code);
    }
    return code ? api_report(user, raw->function, code) : HETMPI_SUCCESS;
}

int hetmpi_send(const void *buf, size_t count, MPI_Datatype type, int dest, int tag, MPI_Comm comm)
{
    return blocking(comm, SEND("send", false), MPI_STATUS_IGNORE);
}

int hetmpi_recv(void *buf, size_t count, MPI_Datatype type, int source, int tag, MPI_Comm comm, MPI_Status *status)
{
    return blocking(comm, RECV("recv", false), status);
}

int hetmpi_isend(const void *buf, size_t count, MPI_Datatype type, int dest, int tag, MPI_Comm comm,
                 hetmpi_request_t *request)
{
    return nonblocking(comm, SEND("isend", false), request);
}

int hetmpi_irecv(void *buf, size_t count, MPI_Datatype type, int source, int tag, MPI_Comm comm,
                 hetmpi_request_t *request)
{
    return nonblocking(comm, RECV("irecv", false), request);
}

int hetmpi_send_on_stream(const void *buf, size_t count, MPI_Datatype type, int dest, int tag, MPI_Comm comm,
                          hetmpi_stream_t stream)
{
    return on_stream(comm, SEND("send_on_stream", true), stream);
}

int hetmpi_recv_on_stream(void *buf, size_t count, MPI_Datatype type, int source, int tag, MPI_Comm comm,
                          hetmpi_stream_t stream)
{
    return on_stream(comm, RECV("recv_on_stream", true), stream);
}

static int check_apart(const struct p2p_msg *out, const struct p2p_msg *in)
{
    uintptr_t a = (uintptr_t)out->buffer, b = (uintptr_t)in->buffer;

    if (!out->room || !in->room || out->peer == MPI_PROC_NULL || in->peer == MPI_PROC_NULL || a >= b + in->room ||
        b >= a + out->room)
        return HETMPI_SUCCESS;
    return err_set(HETMPI_ERR_BUFFER, "sendrecv: sendbuf (%p, %zu bytes) and recvbuf (%p, %zu bytes) overlap",
                   (void *)out->buffer, out->room, (void *)in->buffer, in->room);
}

/* Sends while it receives: neither waits for the other. The receive's error comes first. */
static int exchange(struct op *out, struct op *in)
{
    int sent = HETMPI_SUCCESS, received = HETMPI_SUCCESS;
    bool begun = false;

    if (!to_nobody(out)) {
        sent = comm_lose_call(out->comm, p2p_start(out));
        begun = !sent;
    }
    if (!sent && !to_nobody(in))
        received = comm_lose_call(in->comm, p2p_run(in));
    if (received) {
        in->error = received;
        snprintf(in->text, sizeof(in->text), "%s", err_text());
    }
    if (begun)
        sent = engine_wait(out);
    if (received)
        err_copy(received, in->text);
    if (sent && !in->error)
        in->error = sent;
    return in->error;
}

int hetmpi_sendrecv(const void *sendbuf, size_t sendcount, MPI_Datatype sendtype, int dest, int sendtag, void *recvbuf,
                    size_t recvcount, MPI_Datatype recvtype, int source, int recvtag, MPI_Comm comm, MPI_Status *status)
{
    const struct raw send = {.function = "sendrecv", .send = true, .buffer = (void *)(uintptr_t)sendbuf,
                             .count = sendcount, .type = sendtype, .peer = dest, .tag = sendtag};
    const struct raw recv = {.function = "sendrecv", .buffer = recvbuf, .count = recvcount, .type = recvtype,
                             .peer = source, .tag = recvtag};
    struct comm *found;
    struct op out, in;
    int code = api_refuse_in_group("sendrecv");

    if (!code)
        code = find_comm(comm, "sendrecv", &found);
    if (!code) {
        clear(&out);
        clear(&in);
        code = check(found, &send, &out);
    }
    if (!code)
        code = check(found, &recv, &in);
    if (!code)
        code = check_apart(&out.message, &in.message);
    if (code)
        return api_report(comm, "sendrecv", code);
    code = exchange(&out, &in);
    api_message_status(status, &in);
    return code ? api_report(comm, "sendrecv", code) : HETMPI_SUCCESS;
}
