/* Messages between two ranks, and groups of calls. */
#include "core.h"

#define ARGS PyObject *module, PyObject *const *args, Py_ssize_t given

/* The array, then the other rank and the tag: args[4] to args[6]. */
static int begin(struct call *call, const char *name, PyObject *const *args, Py_ssize_t given, bool receives, int *rank, int *tag)
{
    struct array *array;

    if (call_begin(call, name, args, given, 3) < 0)
        return -1;
    call->pending->receives = receives;
    array = &call->pending->arrays[receives];
    *rank = (int)PyLong_AsLong(args[5]);
    *tag = (int)PyLong_AsLong(args[6]);
    if (!PyErr_Occurred() && call_array(call, receives, args[4], receives ? "out" : "x", receives) == 0 && !array->type)
        PyErr_Format(PyExc_TypeError, "%s: %s is no array", name, receives ? "out" : "x");
    if (PyErr_Occurred()) {
        call_drop(call);
        return -1;
    }
    return 0;
}

/* (x, dest, tag) */
static PyObject *send(ARGS)
{
    struct call call;
    const struct array *x;
    MPI_Comm comm;
    int code, dest, tag;

    (void)module;
    if (begin(&call, "send", args, given, false, &dest, &tag) < 0)
        return NULL;
    x = &call.pending->arrays[0];
    comm = call.comm->comm;
    UNLOCKED(
        switch (call.form) {
        case BLOCKING: code = hetmpi_send(x->data, x->count, dtype_mpi(x->type), dest, tag, comm); break;
        case NONBLOCKING: code = hetmpi_isend(x->data, x->count, dtype_mpi(x->type), dest, tag, comm,
                                              &call.pending->request); break;
        default: code = hetmpi_send_on_stream(x->data, x->count, dtype_mpi(x->type), dest, tag, comm, call.stream);
        });
    return call_end(&call, code);
}

/* (out, source, tag); gives (source, tag, elements) but on a stream */
static PyObject *recv(ARGS)
{
    struct call call;
    const struct array *out;
    PyObject *result;
    MPI_Status status;
    MPI_Comm comm;
    int code, source, tag;

    (void)module;
    if (begin(&call, "recv", args, given, true, &source, &tag) < 0)
        return NULL;
    out = &call.pending->arrays[1];
    comm = call.comm->comm;
    UNLOCKED(
        switch (call.form) {
        case BLOCKING: code = hetmpi_recv(out->data, out->count, dtype_mpi(out->type), source, tag, comm, &status); break;
        case NONBLOCKING: code = hetmpi_irecv(out->data, out->count, dtype_mpi(out->type), source, tag, comm,
                                              &call.pending->request); break;
        default: code = hetmpi_recv_on_stream(out->data, out->count, dtype_mpi(out->type), source, tag, comm, call.stream);
        });
    if (code || call.form != BLOCKING)
        return call_end(&call, code);
    result = status_new(&status, out->type);
    call_drop(&call);
    return result;
}

/* (x, out, dest, sendtag, source, recvtag); gives (source, tag, elements) */
static PyObject *sendrecv(ARGS)
{
    struct call call;
    const struct array *x, *out;
    PyObject *result;
    MPI_Status status;
    int numbers[4], code;

    (void)module;
    if (call_begin(&call, "sendrecv", args, given, 6) < 0)
        return NULL;
    for (int i = 0; i < 4 && !PyErr_Occurred(); i++)
        numbers[i] = (int)PyLong_AsLong(args[6 + i]);
    x = &call.pending->arrays[0];
    out = &call.pending->arrays[1];
    if (PyErr_Occurred() || call_array(&call, 0, args[4], "x", false) < 0 || call_array(&call, 1, args[5], "out", true) < 0)
        return call_drop(&call);
    if (!x->type || !out->type) {
        PyErr_SetString(PyExc_TypeError, "sendrecv: x or out is no array");
        return call_drop(&call);
    }
    UNLOCKED(code = hetmpi_sendrecv(x->data, x->count, dtype_mpi(x->type), numbers[0], numbers[1], out->data, out->count,
                                    dtype_mpi(out->type), numbers[2], numbers[3], call.comm->comm, &status));
    if (code)
        return call_end(&call, code);
    result = status_new(&status, out->type);
    call_drop(&call);
    return result;
}

static PyObject *group_start(PyObject *module, PyObject *unused)
{
    int code = hetmpi_group_start();

    (void)module;
    (void)unused;
    if (code)
        return error_raise(code, "group_start");
    Py_RETURN_NONE;
}

static PyObject *group_end(PyObject *module, PyObject *unused)
{
    int code;

    (void)module;
    (void)unused;
    UNLOCKED(code = hetmpi_group_end());
    if (code)
        return error_raise(code, "group_end");
    Py_RETURN_NONE;
}

#define METHOD(name) {#name, (PyCFunction)(void (*)(void))name, METH_FASTCALL, NULL}
PyMethodDef messages_methods[] = {
    METHOD(send), METHOD(recv), METHOD(sendrecv),
    {"group_start", group_start, METH_NOARGS, NULL},
    {"group_end", group_end, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};
