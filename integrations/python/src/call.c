/* One call from its arguments to its end: what collectives and messages have in common. */
#include "core.h"

#include <stdio.h>
#include <string.h>

static PyObject *in_place;   /* hetmpi.IN_PLACE */

int call_begin(struct call *call, const char *name, PyObject *const *args, Py_ssize_t given, Py_ssize_t wanted)
{
    memset(call, 0, sizeof(*call));
    call->name = name;
    call->info = MPI_INFO_NULL;
    if (given != 4 + wanted) {
        PyErr_Format(PyExc_TypeError, "%s takes %zd arguments here, not %zd", name, 4 + wanted, given);
        return -1;
    }
    call->form = (enum form)PyLong_AsLong(args[0]);
    call->where = args[2];
    call->comm = comm_get(args[1]);
    if (!call->comm || PyErr_Occurred())
        return -1;
    if (call->form == ON_STREAM && stream_get(call->where, &call->stream) < 0)
        return -1;
    if (call->form == PERSISTENT && info_get(call->where, &call->info) < 0)
        return -1;
    call->pending = pending_new();
    if (!call->pending) {
        call_drop(call);
        return -1;
    }
    call->pending->name = name;
    call->pending->result = Py_NewRef(args[3]);
    return 0;
}

int call_array(struct call *call, int which, PyObject *object, const char *what, bool writable)
{
    struct array *array = &call->pending->arrays[which];
    char named[64];

    if (object == Py_None)
        return 0;
    if (object == in_place) {
        array->data = MPI_IN_PLACE;
        return 0;
    }
    snprintf(named, sizeof(named), "%s: %s", call->name, what);
    return array_get(array, object, named, writable, call->form == ON_STREAM ? &call->stream : NULL);
}

bool call_in_place(const struct array *array)
{
    return array->data == MPI_IN_PLACE && !array->type;
}

MPI_Datatype call_type(struct call *call, bool *ok)
{
    const struct dtype *a = call->pending->arrays[0].type, *b = call->pending->arrays[1].type;

    *ok = (a || b) && (!a || !b || a == b);
    if (!a && !b)
        PyErr_Format(PyExc_TypeError, "%s: no array was given", call->name);
    else if (!*ok)
        PyErr_Format(PyExc_TypeError, "%s: x has elements of type %s, and out of type %s", call->name, a->name, b->name);
    return *ok ? dtype_mpi(a ? a : b) : MPI_DATATYPE_NULL;
}

bool call_expect(struct call *call, const char *what, size_t is, size_t wanted, const char *why)
{
    if (is != wanted)
        PyErr_Format(PyExc_ValueError, "%s: %s has %zu elements, not %zu (%s)", call->name, what, is, wanted, why);
    return is == wanted;
}

static void drop_info(struct call *call)
{
    if (call->info != MPI_INFO_NULL)
        MPI_Info_free(&call->info);
}

PyObject *call_drop(struct call *call)
{
    drop_info(call);
    if (call->pending)
        pending_free(call->pending);
    return NULL;
}

PyObject *call_end(struct call *call, int code)
{
    struct pending *pending = call->pending;
    PyObject *result;

    if (code) {
        error_raise(code, call->name);
        return call_drop(call);
    }
    drop_info(call);
    if (call->form == NONBLOCKING || call->form == PERSISTENT) {
        pending->active = call->form == NONBLOCKING;
        pending->persistent = call->form == PERSISTENT;
        return request_new(pending);
    }
    result = Py_NewRef(pending->result);
    if (call->form == BLOCKING)
        pending_free(pending);
    else if (stream_keep(call->where, pending) < 0)
        Py_CLEAR(result);
    return result;
}

static PyType_Slot slots[] = {
    {Py_tp_doc, "The type of hetmpi.IN_PLACE, which stands where the input is already in the other array."},
    {0, NULL},
};
static PyType_Spec spec = {"hetmpi.InPlace", sizeof(PyObject), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

int call_add(PyObject *module)
{
    PyTypeObject *type = (PyTypeObject *)PyType_FromSpec(&spec);

    in_place = type ? PyObject_New(PyObject, type) : NULL;
    Py_XDECREF((PyObject *)type);
    return in_place ? PyModule_AddObjectRef(module, "IN_PLACE", in_place) : -1;
}
