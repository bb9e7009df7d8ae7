/*
 * Starting calls, and groups of calls that start together: between hetmpi_group_start and hetmpi_group_end, nonblocking
 * and on_stream calls are kept, in this thread. At the end all streams are asked first how far they must come, then
 * every call starts, and then the streams are made to wait: so no call of the group waits for another's completion.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "core/log.h"

struct kept {
    struct hetmpi_request *request;
    bool on_stream;
    /* What the stream will wait for: the request may be gone by then. */
    mem_stream_t *stream;
    _Atomic uint64_t *word;
    uint64_t value;
};

static _Thread_local struct {
    int depth;
    struct kept *kept;
    size_t n, room;
} group;

int api_refuse_in_group(const char *function)
{
    if (!group.depth)
        return HETMPI_SUCCESS;
    return err_set(HETMPI_ERR_STATE, "%s: a call that waits stands between hetmpi_group_start and hetmpi_group_end, "
                   "whose calls start at the end: use the nonblocking form", function);
}

static int keep(struct hetmpi_request *request, bool on_stream)
{
    if (group.n == group.room) {
        size_t room = group.room ? 2 * group.room : 16;
        struct kept *larger = realloc(group.kept, room * sizeof(*larger));
        if (!larger)
            return err_set(HETMPI_ERR_MEMORY, "no memory for a group of %zu calls", room);
        group.kept = larger;
        group.room = room;
    }
    group.kept[group.n++] = (struct kept){.request = request, .on_stream = on_stream};
    request->grouped = true;
    return HETMPI_SUCCESS;
}

static int start_now(struct hetmpi_request *request)
{
    request->grouped = false;
    return request->op.p2p ? msg_start(request) : coll_start(request);
}

int api_start(struct hetmpi_request *request)
{
    return group.depth ? keep(request, false) : start_now(request);
}

int api_want_request(const char *function, const hetmpi_request_t *out)
{
    return out ? HETMPI_SUCCESS : err_set(HETMPI_ERR_ARG, "%s: request is NULL", function);
}

int api_launch(MPI_Comm user, const char *function, int code, struct hetmpi_request *request, hetmpi_request_t *out)
{
    if (!code) {
        code = comm_lose_call(request->op.comm, api_start(request));
        if (code)
            free(request);
    }
    if (code)
        return api_report(user, function, code);
    *out = request;
    return HETMPI_SUCCESS;
}

/* What the stream waits for: a word of a message's own; one growing number for all collectives of a communicator, which
 * complete in order. */
static int choose_word(struct op *op)
{
    struct comm *comm = op->comm;
    void *word;
    int code;

    if (op->p2p)
        return p2p_mark_stream(op);
    if (!comm->stream_word) {
        code = mem_host_alloc(64, &word);
        if (code)
            return code;
        memset(word, 0, 64);
        comm->stream_word = word;
    }
    op->stream_word = comm->stream_word;
    op->stream_value = ++comm->stream_calls;
    return HETMPI_SUCCESS;
}

static void drop(struct hetmpi_request *request)
{
    if (request->op.event)
        mem_event_destroy(request->op.event);
    free(request);
}

/* The call comes after the stream's work so far. On an error the request is freed. */
static int mark(struct kept *kept)
{
    struct hetmpi_request *request = kept->request;
    struct op *op = &request->op;
    int code = comm_failed(op->comm);

    op->orphan = true;
    if (!code)
        code = mem_event_create(&op->event);
    if (!code)
        code = mem_event_record(op->event, request->stream);
    if (!code)
        code = choose_word(op);
    if (code) {
        drop(request);
        kept->request = NULL;
        return code;
    }
    kept->stream = request->stream;
    kept->word = op->stream_word;
    kept->value = op->stream_value;
    return HETMPI_SUCCESS;
}

/* Starts a call whose stream is marked; the same on an error. */
static int submit(struct kept *kept)
{
    struct hetmpi_request *request = kept->request;
    int code = HETMPI_SUCCESS;

    kept->request = NULL;
    request->active = true;
    request->grouped = false;
    if (request->op.p2p)
        code = p2p_start(&request->op);
    else
        engine_submit(&request->op);
    if (code) {
        kept->word = NULL;
        p2p_unmark_stream(&request->op);
        drop(request);
    }
    return code;
}

/* The stream's later work comes after the call. */
static int hold(const struct kept *kept)
{
    return kept->word ? mem_stream_wait_value(kept->stream, kept->word, kept->value) : HETMPI_SUCCESS;
}

int api_start_on_stream(struct hetmpi_request *request, mem_stream_t *stream)
{
    struct kept one = {.request = request, .on_stream = true};
    int code;

    request->stream = stream;
    if (group.depth) {
        code = keep(request, true);
        if (code)
            free(request);
        return code;
    }
    code = mark(&one);
    if (!code)
        code = submit(&one);
    return code ? code : hold(&one);
}

/* A nonblocking call of a group that cannot start: its request says so when it is completed. */
static void fail_request(struct hetmpi_request *request, int code)
{
    request->active = true;
    request->op.error = code;
    snprintf(request->op.text, sizeof(request->op.text), "%s", err_text());
    atomic_store_explicit(&request->op.done, true, memory_order_release);
}

/* Starts what was kept. The first error of a call on a stream, with its communicator. */
static int start_all(struct kept *kept, size_t n, MPI_Comm *user)
{
    int first = HETMPI_SUCCESS, code;
    char text[512] = "";

    for (int phase = 0; phase < 3; phase++)
        for (size_t i = 0; i < n; i++) {
            struct comm *comm = kept[i].request ? kept[i].request->op.comm : NULL;
            MPI_Comm of = comm ? kept[i].request->user : MPI_COMM_NULL;
            code = HETMPI_SUCCESS;
            if (kept[i].on_stream && (phase == 2 || kept[i].request)) {
                code = phase == 0 ? mark(&kept[i]) : phase == 1 ? submit(&kept[i]) : hold(&kept[i]);
                code = comm ? comm_lose_call(comm, code) : code;
            } else if (!kept[i].on_stream && phase == 1) {
                int failed = comm_lose_call(comm, start_now(kept[i].request));
                if (failed)
                    fail_request(kept[i].request, failed);
            }
            if (code && !first) {
                first = code;
                *user = of;
                snprintf(text, sizeof(text), "%s", err_text());
            }
        }
    if (first)
        err_copy(first, text);
    return first;
}

int hetmpi_group_start(void)
{
    group.depth++;
    return HETMPI_SUCCESS;
}

int hetmpi_group_end(void)
{
    MPI_Comm user = MPI_COMM_NULL;
    struct kept *kept;
    size_t n;
    int code;

    if (!group.depth)
        return api_report(MPI_COMM_NULL, "group_end",
                          err_set(HETMPI_ERR_STATE, "group_end: this thread has called no hetmpi_group_start"));
    if (--group.depth)
        return HETMPI_SUCCESS;
    kept = group.kept;
    n = group.n;
    group.kept = NULL;
    group.n = group.room = 0;
    code = start_all(kept, n, &user);
    free(kept);
    return code ? api_report(user, "group_end", code) : HETMPI_SUCCESS;
}
