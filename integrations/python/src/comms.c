/* hetmpi.Comm: a communicator of MPI's, whoever made it, and what hetmpi can do with it. */
#include "core.h"

#include <string.h>

static PyTypeObject *comm_class;
static bool started;         /* MPI is ours to end */

static PyObject *comm_new(MPI_Comm handle, PyObject *keeps)
{
    struct comm *self;
    int rank, size, code = MPI_Comm_rank(handle, &rank);

    if (code == MPI_SUCCESS)
        code = MPI_Comm_size(handle, &size);
    if (code != MPI_SUCCESS)
        return error_raise_mpi(code, "Comm");
    self = PyObject_New(struct comm, comm_class);
    if (!self)
        return NULL;
    self->comm = handle;
    self->rank = rank;
    self->size = size;
    Py_XINCREF(keeps);
    self->keeps = keeps;
    return (PyObject *)self;
}

static void comm_dealloc(struct comm *self)
{
    Py_XDECREF(self->keeps);
    object_free(self);
}

struct comm *comm_get(PyObject *object)
{
    struct comm *comm = (struct comm *)object;

    if (Py_TYPE(object) != comm_class) {
        PyErr_Format(PyExc_TypeError, "comm: %R is no communicator of hetmpi's or mpi4py's", object);
        return NULL;
    }
    if (comm->comm == MPI_COMM_NULL) {
        PyErr_SetString(PyExc_ValueError, "comm: this communicator was freed");
        return NULL;
    }
    return comm;
}

/* The world, after MPI was started if nobody has; errors come back then, to be exceptions. */
static PyObject *comm_world(PyObject *module, PyObject *unused)
{
    int initialized, finalized, provided, code = MPI_SUCCESS;

    (void)module;
    (void)unused;
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    if (finalized) {
        PyErr_SetString(PyExc_RuntimeError, "MPI is finalized already");
        return NULL;
    }
    if (!initialized) {
        UNLOCKED(code = MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided));
        if (code != MPI_SUCCESS)
            return error_raise_mpi(code, "MPI_Init_thread");
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
        started = true;
    }
    return comm_new(MPI_COMM_WORLD, NULL);
}

/* Ends MPI if comm_world started it; with an argument that is true, the whole job. */
static PyObject *finish(PyObject *module, PyObject *failed)
{
    int finalized = 0;

    (void)module;
    MPI_Finalized(&finalized);
    if (started && !finalized) {
        if (PyObject_IsTrue(failed))
            MPI_Abort(MPI_COMM_WORLD, 1);
        UNLOCKED(MPI_Finalize());
        started = false;
    }
    Py_RETURN_NONE;
}

/* (address of an MPI_Comm, the object it is in) */
static PyObject *comm_at(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    MPI_Comm *address = given == 2 ? PyLong_AsVoidPtr(args[0]) : NULL;

    (void)module;
    if (!address) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "comm_at takes the address of an MPI_Comm, and its owner");
        return NULL;
    }
    if (*address == MPI_COMM_NULL) {
        PyErr_SetString(PyExc_ValueError, "comm: is MPI_COMM_NULL");
        return NULL;
    }
    return comm_new(*address, args[1]);
}

static PyObject *mpi_version(PyObject *module, PyObject *unused)
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;

    (void)module;
    (void)unused;
    MPI_Get_library_version(text, &length);
    return PyUnicode_FromStringAndSize(text, (Py_ssize_t)strnlen(text, sizeof(text)));
}

int info_get(PyObject *settings, MPI_Info *info)
{
    PyObject *key, *value;
    Py_ssize_t at = 0;

    *info = MPI_INFO_NULL;
    if (settings == Py_None)
        return 0;
    if (!PyDict_Check(settings)) {
        PyErr_SetString(PyExc_TypeError, "settings: not a dict");
        return -1;
    }
    if (PyDict_Size(settings) == 0)
        return 0;
    MPI_Info_create(info);
    while (PyDict_Next(settings, &at, &key, &value)) {
        PyObject *text = PyObject_Str(value);
        PyObject *name_bytes = PyUnicode_Check(key) ? PyUnicode_AsUTF8String(key) : NULL;
        PyObject *text_bytes = text ? PyUnicode_AsUTF8String(text) : NULL;
        int code = -1;

        if (name_bytes && text_bytes)
            code = MPI_Info_set(*info, PyBytes_AsString(name_bytes), PyBytes_AsString(text_bytes));
        Py_XDECREF(text_bytes);
        Py_XDECREF(name_bytes);
        Py_XDECREF(text);
        if (code != MPI_SUCCESS) {
            if (!PyErr_Occurred())
                PyErr_Format(PyExc_ValueError, "settings: %R is no name for MPI, or its value is too long", key);
            MPI_Info_free(info);
            return -1;
        }
    }
    return 0;
}

static PyObject *comm_attach(PyObject *object, PyObject *args, PyObject *settings)
{
    struct comm *self = comm_get(object);
    MPI_Info info;
    int code;

    if (!self || !PyArg_ParseTuple(args, ":attach") || info_get(settings ? settings : Py_None, &info) < 0)
        return NULL;
    UNLOCKED(code = hetmpi_comm_attach(self->comm, info));
    if (info != MPI_INFO_NULL)
        MPI_Info_free(&info);
    if (code)
        return error_raise(code, "comm_attach");
    Py_INCREF(object);
    return object;
}

static PyObject *comm_detach(PyObject *object, PyObject *unused)
{
    struct comm *self = comm_get(object);
    int code;

    (void)unused;
    if (!self)
        return NULL;
    UNLOCKED(code = hetmpi_comm_detach(self->comm));
    if (code)
        return error_raise(code, "comm_detach");
    Py_RETURN_NONE;
}

static PyObject *comm_info(PyObject *object, PyObject *unused)
{
    struct comm *self = comm_get(object);
    hetmpi_comm_info_t i;
    int code;

    (void)unused;
    if (!self)
        return NULL;
    UNLOCKED(code = hetmpi_comm_info(self->comm, &i));
    if (code)
        return error_raise(code, "comm_info");
    return Py_BuildValue("{sisisisisisisisisisissssss}", "ranks", i.ranks, "rank", i.rank, "nodes", i.nodes, "node", i.node,
                         "islands", i.islands, "island", i.island, "island_ranks", i.island_ranks, "island_rank",
                         i.island_rank, "device", i.device, "rails", i.rails, "vendor", i.vendor, "provider", i.provider,
                         "wire", i.wire);
}

static PyObject *comm_abort(PyObject *object, PyObject *unused)
{
    struct comm *self = comm_get(object);
    int code;

    (void)unused;
    if (!self)
        return NULL;
    UNLOCKED(code = hetmpi_comm_abort(self->comm));
    if (code)
        return error_raise(code, "comm_abort");
    Py_RETURN_NONE;
}

static PyObject *comm_check(PyObject *object, PyObject *unused)
{
    struct comm *self = comm_get(object);
    int code, error = HETMPI_SUCCESS;

    (void)unused;
    if (!self)
        return NULL;
    UNLOCKED(code = hetmpi_comm_error(self->comm, &error));
    if (code)
        return error_raise(code, "comm_error");
    if (error)
        return error_raise(error, "comm_error");
    Py_RETURN_NONE;
}

static PyObject *comm_split(PyObject *object, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"color", "key", NULL};
    struct comm *self = comm_get(object);
    PyObject *color = Py_None;
    MPI_Comm made;
    int key = 0, number = MPI_UNDEFINED, code;

    if (!self || !PyArg_ParseTupleAndKeywords(args, keywords, "O|i:split", names, &color, &key))
        return NULL;
    if (color != Py_None)
        number = (int)PyLong_AsLong(color);
    if (PyErr_Occurred())
        return NULL;
    UNLOCKED(code = MPI_Comm_split(self->comm, number, key, &made));
    if (code != MPI_SUCCESS)
        return error_raise_mpi(code, "split");
    if (made == MPI_COMM_NULL)
        Py_RETURN_NONE;
    return comm_new(made, NULL);
}

static PyObject *comm_dup(PyObject *object, PyObject *unused)
{
    struct comm *self = comm_get(object);
    MPI_Comm made;
    int code;

    (void)unused;
    if (!self)
        return NULL;
    UNLOCKED(code = MPI_Comm_dup(self->comm, &made));
    return code == MPI_SUCCESS ? comm_new(made, NULL) : error_raise_mpi(code, "dup");
}

static PyObject *comm_free(PyObject *object, PyObject *unused)
{
    struct comm *self = comm_get(object);
    int code;

    (void)unused;
    if (!self)
        return NULL;
    if (self->keeps || self->comm == MPI_COMM_WORLD) {
        PyErr_SetString(PyExc_ValueError, "free: only what split and dup gave is freed here");
        return NULL;
    }
    UNLOCKED(code = MPI_Comm_free(&self->comm));
    if (code != MPI_SUCCESS)
        return error_raise_mpi(code, "free");
    Py_RETURN_NONE;
}

static PyObject *comm_rank(struct comm *self, void *unused)
{
    (void)unused;
    return PyLong_FromLong(self->rank);
}

static PyObject *comm_size(struct comm *self, void *unused)
{
    (void)unused;
    return PyLong_FromLong(self->size);
}

static PyMethodDef comm_methods[] = {
    {"attach", (PyCFunction)(void (*)(void))comm_attach, METH_VARARGS | METH_KEYWORDS,
     "attach(**settings): sets the communicator up now, with settings for it (timeout=5, wire='shm', ...). Collective; "
     "point to point wants it, or a collective before. Returns the communicator."},
    {"detach", comm_detach, METH_NOARGS, "Finishes what is pending and frees what hetmpi holds. Collective."},
    {"info", comm_info, METH_NOARGS, "A dict of the islands, wires and so on, as hetmpi_comm_info has them."},
    {"abort", comm_abort, METH_NOARGS, "Ends the use of the communicator on every rank; from any thread."},
    {"check", comm_check, METH_NOARGS, "Raises the error that ended the communicator's use, if one did."},
    {"split", (PyCFunction)(void (*)(void))comm_split, METH_VARARGS | METH_KEYWORDS,
     "split(color, key=0): the communicator of the ranks that gave the same color; None for color None. Collective."},
    {"dup", comm_dup, METH_NOARGS, "Another communicator of the same ranks. Collective."},
    {"free", comm_free, METH_NOARGS, "Frees what split or dup gave. Collective."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef comm_members[] = {
    {"rank", (getter)comm_rank, NULL, "This rank's number in the communicator.", NULL},
    {"size", (getter)comm_size, NULL, "The number of ranks.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "A communicator of MPI's: hetmpi.world(), what split and dup give, or one of mpi4py's."},
    {Py_tp_dealloc, comm_dealloc},
    {Py_tp_methods, comm_methods},
    {Py_tp_getset, comm_members},
    {0, NULL},
};
static PyType_Spec spec = {"hetmpi.Comm", sizeof(struct comm), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                           slots};

static PyMethodDef methods[] = {
    {"world", comm_world, METH_NOARGS, NULL},
    {"finish", finish, METH_O, NULL},
    {"comm_at", (PyCFunction)(void (*)(void))comm_at, METH_FASTCALL, NULL},
    {"mpi_version", mpi_version, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

int comms_add(PyObject *module)
{
    comm_class = (PyTypeObject *)PyType_FromSpec(&spec);
    if (!comm_class || PyModule_AddType(module, comm_class) < 0)
        return -1;
    return PyModule_AddFunctions(module, methods);
}
