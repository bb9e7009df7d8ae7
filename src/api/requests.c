/* Completion: wait, test, start, free. */
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "core/log.h"
#include "core/proc.h"

void api_fill_status(MPI_Status *status, int source, int tag, size_t bytes, int error)
{
    if (status == MPI_STATUS_IGNORE)
        return;
    status->MPI_SOURCE = source;
    status->MPI_TAG = tag;
    status->MPI_ERROR = error;
    /* Outside of MPI's time these calls stop the program, and nobody could ask the status anything. */
    if (!proc_mpi_is_up())
        return;
    MPI_Status_set_cancelled(status, 0);
    MPI_Status_set_elements_x(status, MPI_BYTE, (MPI_Count)bytes);
}

static void empty_status(MPI_Status *status)
{
    api_fill_status(status, MPI_ANY_SOURCE, MPI_ANY_TAG, 0, HETMPI_SUCCESS);
}

void api_message_status(MPI_Status *status, const struct op *op)
{
    const struct p2p_msg *m = &op->message;

    if (m->send)
        api_fill_status(status, MPI_ANY_SOURCE, MPI_ANY_TAG, 0, op->error);
    else
        api_fill_status(status, m->peer, m->tag, op->error ? 0 : m->bytes, op->error);
}

static bool is_active(const struct hetmpi_request *request)
{
    return request && request->active;
}

/* A request that is done: hands out its result; it becomes inactive, or goes. */
static int complete(hetmpi_request_t *handle, MPI_Status *status)
{
    struct hetmpi_request *request = *handle;
    int code = request->op.error;
    MPI_Comm user = comm_lives_still(request->comm_serial, &request->generation) ? request->user : MPI_COMM_NULL;
    const char *function = request->function;

    if (code)
        err_copy(code, request->op.text);
    if (request->op.p2p)
        api_message_status(status, &request->op);
    else
        api_fill_status(status, MPI_ANY_SOURCE, MPI_ANY_TAG, code ? 0 : request->bytes, code);
    request->active = false;
    if (!request->persistent) {
        free(request);
        *handle = HETMPI_REQUEST_NULL;
    }
    return code ? api_report(user, function, code) : HETMPI_SUCCESS;
}

static int null_argument(const char *function, const char *name)
{
    return api_report(MPI_COMM_NULL, function, err_set(HETMPI_ERR_ARG, "%s: %s is NULL", function, name));
}

/* A request that only the end of a group will start cannot complete. */
static int in_group(const char *function, const struct hetmpi_request *request)
{
    if (!request || !request->grouped)
        return HETMPI_SUCCESS;
    return api_report(request->user, function,
                      err_set(HETMPI_ERR_STATE, "%s: this %s starts at hetmpi_group_end, which has not been called",
                              function, request->function));
}

int hetmpi_wait(hetmpi_request_t *request, MPI_Status *status)
{
    int code;

    if (!request)
        return null_argument("wait", "request");
    code = in_group("wait", *request);
    if (code)
        return code;
    if (!is_active(*request)) {
        empty_status(status);
        return HETMPI_SUCCESS;
    }
    engine_wait(&(*request)->op);
    return complete(request, status);
}

static bool is_done(const struct hetmpi_request *request)
{
    return atomic_load_explicit(&request->op.done, memory_order_acquire);
}

#define LOOK_AT_OTHERS 16   /* pauses of a waitany in which it watches one request of many, then all */

/* Time passes in tests too: a program that only tests must learn of dead peers and timeouts. */
static void look_while_testing(struct hetmpi_request *request)
{
    struct op *op = &request->op;

    if (is_done(request))
        return;
    if (op->watch.op != op || op->watch.id != op->id) {
        watch_begin(&op->watch, op->comm, op);
        op->watch.id = op->id;
    }
    watch_look(&op->watch, op->comm);
}

int hetmpi_test(hetmpi_request_t *request, int *flag, MPI_Status *status)
{
    int code;

    if (!request)
        return null_argument("test", "request");
    if (!flag)
        return null_argument("test", "flag");
    code = in_group("test", *request);
    if (code)
        return code;
    *flag = 1;
    if (!is_active(*request)) {
        empty_status(status);
        return HETMPI_SUCCESS;
    }
    if (!is_done(*request))
        engine_progress();
    if (is_done(*request))
        return complete(request, status);
    look_while_testing(*request);
    *flag = 0;
    return HETMPI_SUCCESS;
}

static MPI_Status *status_of(MPI_Status statuses[], int i)
{
    return statuses == MPI_STATUSES_IGNORE ? MPI_STATUS_IGNORE : &statuses[i];
}

static int check_array(const char *function, int n, const hetmpi_request_t requests[])
{
    if (n < 0)
        return api_report(MPI_COMM_NULL, function, err_set(HETMPI_ERR_ARG, "%s: n is %d", function, n));
    return n > 0 && !requests ? null_argument(function, "requests") : HETMPI_SUCCESS;
}

int hetmpi_waitall(int n, hetmpi_request_t requests[], MPI_Status statuses[])
{
    int first = check_array("waitall", n, requests), code;

    if (first)
        return first;
    for (int i = 0; i < n; i++) {
        code = hetmpi_wait(&requests[i], status_of(statuses, i));
        first = first ? first : code;
    }
    return first;
}

int hetmpi_testall(int n, hetmpi_request_t requests[], int *flag, MPI_Status statuses[])
{
    int code = check_array("testall", n, requests);

    if (code)
        return code;
    if (!flag)
        return null_argument("testall", "flag");
    engine_progress();
    for (int i = 0; i < n; i++)
        if (is_active(requests[i]) && !is_done(requests[i])) {
            look_while_testing(requests[i]);
            *flag = 0;
            return HETMPI_SUCCESS;
        }
    *flag = 1;
    return hetmpi_waitall(n, requests, statuses);
}

int hetmpi_waitany(int n, hetmpi_request_t requests[], int *index, MPI_Status *status)
{
    struct hetmpi_request *one = NULL;
    struct watch watch;
    int code = check_array("waitany", n, requests);

    if (code)
        return code;
    if (!index)
        return null_argument("waitany", "index");
    for (int i = 0; i < n && !code; i++)
        code = in_group("waitany", requests[i]);
    if (code)
        return code;
    for (int i = 0; i < n && !one; i++)
        if (is_active(requests[i]))
            one = requests[i];
    if (!one) {
        *index = MPI_UNDEFINED;
        empty_status(status);
        return HETMPI_SUCCESS;
    }
    for (unsigned round = 1;; round++) {
        for (int i = 0; i < n; i++)
            if (is_active(requests[i]) && is_done(requests[i])) {
                *index = i;
                return complete(&requests[i], status);
            }
        if (round == 1)   /* not before: the communicator of a call that is done may have been freed */
            watch_begin(&watch, one->op.comm, &one->op);
        if (engine_progress() || is_done(one))
            continue;
        watch_pause(&watch, one->op.comm, NULL, NULL);
        /* Any of the others may be the one that will never be done. */
        for (int i = 0; i < n && round % LOOK_AT_OTHERS == 0; i++)
            if (is_active(requests[i]) && requests[i] != one)
                look_while_testing(requests[i]);
    }
}

int hetmpi_start(hetmpi_request_t *request)
{
    int code;

    if (!request)
        return null_argument("start", "request");
    if (!*request || !(*request)->persistent)
        return api_report(MPI_COMM_NULL, "start",
                          err_set(HETMPI_ERR_STATE, "start: the request is not persistent (from hetmpi_X_init)"));
    code = in_group("start", *request);
    if (code)
        return code;
    if ((*request)->active)
        return api_report((*request)->user, "start",
                          err_set(HETMPI_ERR_STATE, "start: the %s request is active: complete it first",
                                  (*request)->function));
    if (!comm_lives_still((*request)->comm_serial, &(*request)->generation))
        return api_report(MPI_COMM_NULL, "start",
                          err_set(HETMPI_ERR_STATE, "start: the communicator of this %s request was freed",
                                  (*request)->function));
    code = api_start(*request);
    return code ? api_report((*request)->user, "start", code) : HETMPI_SUCCESS;
}

int hetmpi_startall(int n, hetmpi_request_t requests[])
{
    int code = check_array("startall", n, requests);

    for (int i = 0; i < n && !code; i++)
        code = hetmpi_start(&requests[i]);
    return code;
}

int hetmpi_request_free(hetmpi_request_t *request)
{
    struct hetmpi_request *gone;
    int code;

    if (!request)
        return null_argument("request_free", "request");
    code = in_group("request_free", *request);
    if (code)
        return code;
    gone = *request;
    *request = HETMPI_REQUEST_NULL;
    if (!gone)
        return HETMPI_SUCCESS;
    engine_lock();
    if (gone->active && !is_done(gone)) {
        gone->op.orphan = true;   /* the engine frees it when it is done */
        gone = NULL;
    }
    engine_unlock();
    if (gone)
        engine_plan_free(&gone->op);
    free(gone);
    return HETMPI_SUCCESS;
}
