/* hetmpi.Request: a call under way, which holds its arrays until it is complete. */
#include "core.h"

#include <stdlib.h>

struct request {
    PyObject_HEAD
    struct pending *pending; /* NULL: complete, or freed */
    PyObject *result;        /* what wait gave */
};

static PyTypeObject *request_class, *status_class;
static struct pending *abandoned; /* under way, though nobody waits: their arrays stay */

struct pending *pending_new(void)
{
    struct pending *pending = calloc(1, sizeof(*pending));

    if (!pending)
        PyErr_NoMemory();
    return pending;
}

void pending_free(struct pending *pending)
{
    array_release(&pending->arrays[0]);
    array_release(&pending->arrays[1]);
    Py_XDECREF(pending->result);
    free(pending);
}

/* Whether a call of completion ended the request: one that stands in a group is refused, and goes on. */
static bool has_ended(const struct pending *pending, int code)
{
    return pending->persistent ? code != HETMPI_ERR_STATE : pending->request == HETMPI_REQUEST_NULL;
}

/* Frees what has come to its end, of the abandoned. */
static void reap(void)
{
    struct pending **at = &abandoned;
    int finalized = 0;

    if (!abandoned || MPI_Finalized(&finalized) != MPI_SUCCESS || finalized)
        return;
    while (*at) {
        struct pending *pending = *at;
        int flag = 0, code = hetmpi_test(&pending->request, &flag, MPI_STATUS_IGNORE);

        if (code ? !has_ended(pending, code) : !flag) {
            at = &pending->next;
            continue;
        }
        *at = pending->next;
        if (pending->persistent)
            hetmpi_request_free(&pending->request);
        pending_free(pending);
    }
}

static void give_up(struct pending *pending)
{
    if (!pending->active && !pending->persistent) {
        pending_free(pending);
        return;
    }
    pending->next = abandoned;
    abandoned = pending;
    reap();
}

PyObject *request_new(struct pending *pending)
{
    struct request *self = PyObject_New(struct request, request_class);

    if (!self) {
        give_up(pending);
        return NULL;
    }
    reap();
    self->pending = pending;
    self->result = NULL;
    return (PyObject *)self;
}

static void request_dealloc(struct request *self)
{
    if (self->pending)
        give_up(self->pending);
    Py_XDECREF(self->result);
    object_free(self);
}

PyObject *status_new(const MPI_Status *status, const struct dtype *type)
{
    PyObject *tuple = PyStructSequence_New(status_class);
    MPI_Count bytes = 0;

    MPI_Get_elements_x(status, MPI_BYTE, &bytes);
    if (tuple) {
        PyStructSequence_SetItem(tuple, 0, PyLong_FromLong(status->MPI_SOURCE));
        PyStructSequence_SetItem(tuple, 1, PyLong_FromLong(status->MPI_TAG));
        PyStructSequence_SetItem(tuple, 2, PyLong_FromLongLong((long long)bytes / (long long)type->bytes));
    }
    return tuple;
}

/* The call has ended: its result is kept, its arrays are let go unless it can be started again. With an error there is
 * no result, and an exception. */
static int complete(struct request *self, int code, const MPI_Status *status)
{
    struct pending *pending = self->pending;

    pending->active = false;
    Py_CLEAR(self->result);
    if (!code && pending->receives)
        self->result = status_new(status, pending->arrays[1].type);
    else if (!code)
        self->result = Py_NewRef(pending->result);
    if (code)
        error_raise(code, pending->name);
    if (!pending->persistent) {
        self->pending = NULL;
        pending_free(pending);
    }
    return code || !self->result ? -1 : 0;
}

static PyObject *result_of(struct request *self)
{
    return Py_NewRef(self->result ? self->result : Py_None);
}

static PyObject *request_wait(struct request *self, PyObject *unused)
{
    MPI_Status status;
    int code;

    (void)unused;
    if (!self->pending || !self->pending->active)
        return result_of(self);
    UNLOCKED(code = hetmpi_wait(&self->pending->request, &status));
    if (!has_ended(self->pending, code))
        return error_raise(code, self->pending->name);
    return complete(self, code, &status) < 0 ? NULL : result_of(self);
}

static PyObject *request_test(struct request *self, PyObject *unused)
{
    MPI_Status status;
    int code, flag;

    (void)unused;
    if (!self->pending || !self->pending->active)
        Py_RETURN_TRUE;
    UNLOCKED(code = hetmpi_test(&self->pending->request, &flag, &status));
    if (!code && !flag)
        Py_RETURN_FALSE;
    if (!has_ended(self->pending, code))
        return error_raise(code, self->pending->name);
    if (complete(self, code, &status) < 0)
        return NULL;
    Py_RETURN_TRUE;
}

static PyObject *request_start(PyObject *object, PyObject *unused)
{
    struct request *self = (struct request *)object;
    int code;

    (void)unused;
    if (!self->pending || !self->pending->persistent) {
        PyErr_SetString(PyExc_ValueError, "start: only what a call ending in _init gave, and was not freed, can be started");
        return NULL;
    }
    UNLOCKED(code = hetmpi_start(&self->pending->request));
    if (code)
        return error_raise(code, "start");
    self->pending->active = true;
    Py_INCREF(object);
    return object;
}

static PyObject *request_free(struct request *self, PyObject *unused)
{
    (void)unused;
    if (self->pending)
        give_up(self->pending);
    self->pending = NULL;
    Py_RETURN_NONE;
}

/* The handles of a list's requests, null where none is under way. *n: how many. Freed by the caller; NULL with an
 * exception. */
static hetmpi_request_t *gather(PyObject *list, Py_ssize_t *n)
{
    hetmpi_request_t *handles;

    *n = PyList_Check(list) ? PyList_Size(list) : -1;
    if (*n < 0) {
        PyErr_SetString(PyExc_TypeError, "requests: not a list");
        return NULL;
    }
    handles = calloc((size_t)*n + 1, sizeof(*handles));
    if (!handles)
        return (hetmpi_request_t *)PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < *n; i++) {
        struct request *request = (struct request *)PyList_GetItem(list, i);

        if (Py_TYPE((PyObject *)request) != request_class) {
            PyErr_Format(PyExc_TypeError, "requests: %R is none", request);
            free(handles);
            return NULL;
        }
        handles[i] = request->pending && request->pending->active ? request->pending->request : HETMPI_REQUEST_NULL;
    }
    return handles;
}

PyObject *requests_waitany(PyObject *module, PyObject *list)
{
    MPI_Status status;
    Py_ssize_t n;
    hetmpi_request_t *handles = gather(list, &n);
    struct request *done;
    int code, index = MPI_UNDEFINED;

    (void)module;
    if (!handles)
        return NULL;
    UNLOCKED(code = hetmpi_waitany((int)n, handles, &index, &status));
    if (index == MPI_UNDEFINED) {
        free(handles);
        if (code)
            return error_raise(code, "waitany");
        Py_RETURN_NONE;
    }
    done = (struct request *)PyList_GetItem(list, index);
    done->pending->request = handles[index];
    free(handles);
    return complete(done, code, &status) < 0 ? NULL : PyLong_FromLong(index);
}

PyObject *requests_testall(PyObject *module, PyObject *list)
{
    Py_ssize_t n;
    hetmpi_request_t *handles = gather(list, &n);
    MPI_Status *statuses = handles ? calloc((size_t)n + 1, sizeof(*statuses)) : NULL;
    int code, flag = 0;

    (void)module;
    if (!statuses) {
        free(handles);
        return handles ? PyErr_NoMemory() : NULL;
    }
    UNLOCKED(code = hetmpi_testall((int)n, handles, &flag, statuses));
    if (code && !flag)
        error_raise(code, "testall");
    for (Py_ssize_t i = 0; flag && i < n; i++) {
        struct request *request = (struct request *)PyList_GetItem(list, i);

        if (!request->pending || !request->pending->active)
            continue;
        request->pending->request = handles[i];
        /* Of several errors the first is raised. */
        if (PyErr_Occurred())
            request->pending->active = false;
        else
            complete(request, statuses[i].MPI_ERROR, &statuses[i]);
    }
    free(statuses);
    free(handles);
    return PyErr_Occurred() ? NULL : PyBool_FromLong(flag);
}

static PyMethodDef methods[] = {
    {"wait", (PyCFunction)request_wait, METH_NOARGS, "Waits; returns what the blocking call returns."},
    {"test", (PyCFunction)request_test, METH_NOARGS, "Whether the call is complete; then as if waited for."},
    {"start", request_start, METH_NOARGS, "Starts a persistent call (again). Returns the request."},
    {"free", (PyCFunction)request_free, METH_NOARGS, "Gives the request up; what is under way completes all the same."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "A call under way. It holds the call's arrays until it is complete, even if it is itself forgotten."},
    {Py_tp_dealloc, request_dealloc},
    {Py_tp_methods, methods},
    {0, NULL},
};
static PyType_Spec spec = {"hetmpi.Request", sizeof(struct request), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

static PyStructSequence_Field status_fields[] = {
    {"source", "The rank that sent it."}, {"tag", NULL}, {"count", "Elements received."}, {NULL, NULL},
};
static PyStructSequence_Desc status_description = {"hetmpi.Status", "What was received.", status_fields, 3};

int requests_add(PyObject *module)
{
    request_class = (PyTypeObject *)PyType_FromSpec(&spec);
    status_class = PyStructSequence_NewType(&status_description);
    if (!request_class || !status_class || PyModule_AddType(module, request_class) < 0)
        return -1;
    return PyModule_AddType(module, status_class);
}
