/* hetmpi.Op: the operations of reductions, and premultiplied sums. */
#include "core.h"

struct op {
    PyObject_HEAD
    const char *name;
    MPI_Op op;               /* MPI_OP_NULL: HETMPI_AVG, whose handle is there from MPI_Init on */
    bool owned;
};

static PyTypeObject *op_class;

static const struct {
    const char *name;
    MPI_Op op;
} named[] = {
    {"SUM", MPI_SUM}, {"PROD", MPI_PROD}, {"MIN", MPI_MIN}, {"MAX", MPI_MAX}, {"BAND", MPI_BAND}, {"BOR", MPI_BOR},
    {"BXOR", MPI_BXOR}, {"LAND", MPI_LAND}, {"LOR", MPI_LOR}, {"LXOR", MPI_LXOR}, {"AVG", MPI_OP_NULL},
};

static struct op *op_new(const char *name, MPI_Op op, bool owned)
{
    struct op *self = PyObject_New(struct op, op_class);

    if (self) {
        self->name = name;
        self->op = op;
        self->owned = owned;
    }
    return self;
}

static void op_dealloc(struct op *self)
{
    int finalized = 0;

    if (self->owned && MPI_Finalized(&finalized) == MPI_SUCCESS && !finalized)
        hetmpi_op_free(&self->op);
    object_free(self);
}

static PyObject *op_repr(struct op *self)
{
    return PyUnicode_FromFormat("hetmpi.%s", self->name);
}

int op_get(PyObject *object, MPI_Op *op)
{
    if (Py_TYPE(object) != op_class) {
        PyErr_Format(PyExc_TypeError, "op: %R is no operation: hetmpi.SUM, PROD, MIN, MAX, AVG, BAND, BOR, BXOR, LAND, LOR, "
                     "LXOR and hetmpi.premul_sum are", object);
        return -1;
    }
    *op = ((struct op *)object)->op;
    if (*op == MPI_OP_NULL)
        *op = hetmpi_own_op_avg();
    return 0;
}

static PyObject *premul_sum(PyObject *module, PyObject *scalar)
{
    struct array array;
    MPI_Op op = MPI_OP_NULL;
    int code;

    (void)module;
    if (array_get(&array, scalar, "premul_sum: scalar", false, NULL) < 0)
        return NULL;
    if (array.count != 1) {
        PyErr_Format(PyExc_ValueError, "premul_sum: the scalar has %zu elements, not 1", array.count);
        array_release(&array);
        return NULL;
    }
    UNLOCKED(code = hetmpi_op_create_premul_sum(array.data, dtype_mpi(array.type), &op));
    array_release(&array);
    return code ? error_raise(code, "premul_sum") : (PyObject *)op_new("premul_sum(...)", op, true);
}

static PyMethodDef methods[] = {
    {"premul_sum", premul_sum, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "An operation of reductions."},
    {Py_tp_dealloc, op_dealloc},
    {Py_tp_repr, op_repr},
    {0, NULL},
};
static PyType_Spec spec = {"hetmpi.Op", sizeof(struct op), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

int ops_add(PyObject *module)
{
    op_class = (PyTypeObject *)PyType_FromSpec(&spec);
    if (!op_class || PyModule_AddType(module, op_class) < 0 || PyModule_AddFunctions(module, methods) < 0)
        return -1;
    for (size_t i = 0; i < sizeof(named) / sizeof(*named); i++) {
        PyObject *op = (PyObject *)op_new(named[i].name, named[i].op, false);
        int code = op ? PyModule_AddObjectRef(module, named[i].name, op) : -1;

        Py_XDECREF(op);
        if (code < 0)
            return -1;
    }
    return 0;
}
