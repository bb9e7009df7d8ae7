/* hetmpi.Array: memory of this rank's device or of the host, that other packages can take over by DLPack, the CUDA array
 * interface or, on the host, as a buffer. hetmpi.Stream: a stream of the device. */
#include "core.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dlpack.h"

struct array_object {
    PyObject_HEAD
    const struct dtype *type;
    void *data;
    size_t count;
    bool device;
    int ndim;
    int64_t *shape;          /* ndim of them, then the buffer protocol's as many strides, in bytes */
};

struct stream {
    PyObject_HEAD
    hetmpi_stream_t stream;
    PyObject *kept;          /* a list: what calls on the stream may still use */
};

static PyTypeObject *array_class, *stream_class;

/* empty(shape, dtype, on the device) */
static PyObject *empty(PyObject *module, PyObject *args)
{
    struct array_object *self = NULL;
    PyObject *shape;
    const struct dtype *type;
    const char *name;
    int64_t *sizes;
    void *data = NULL;
    Py_ssize_t n;
    size_t count = 1;
    int device, code;

    (void)module;
    if (!PyArg_ParseTuple(args, "O!sp:empty", &PyTuple_Type, &shape, &name, &device))
        return NULL;
    type = dtype_by_name(name);
    if (!type) {
        PyErr_Format(PyExc_TypeError, "empty: there are no elements of type %s", name);
        return NULL;
    }
    n = PyTuple_Size(shape);
    sizes = calloc(2 * (size_t)n + 1, sizeof(*sizes));
    if (!sizes)
        return PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < n && !PyErr_Occurred(); i++) {
        sizes[i] = PyLong_AsLongLong(PyTuple_GetItem(shape, i));
        if (!PyErr_Occurred() && (sizes[i] < 0 || __builtin_mul_overflow(count, (size_t)sizes[i], &count)))
            PyErr_SetString(PyExc_ValueError, "empty: a size is negative, or the array is too large");
    }
    if (PyErr_Occurred() || count > PY_SSIZE_T_MAX / type->bytes) {
        if (!PyErr_Occurred())
            PyErr_NoMemory();
        goto fail;
    }
    for (Py_ssize_t i = n - 1, stride = (Py_ssize_t)type->bytes; i >= 0; stride *= sizes[i--])
        sizes[n + i] = stride;
    UNLOCKED(code = hetmpi_malloc(count * type->bytes, device ? HETMPI_MEM_DEVICE : HETMPI_MEM_HOST, &data));
    if (code) {
        error_raise(code, "empty");
        goto fail;
    }
    self = PyObject_New(struct array_object, array_class);
    if (!self) {
        hetmpi_free(data);
        goto fail;
    }
    self->type = type;
    self->data = data;
    self->count = count;
    self->device = device && device_type() != DL_CPU;
    self->ndim = (int)n;
    self->shape = sizes;
    return (PyObject *)self;

fail:
    free(sizes);
    return NULL;
}

static void array_dealloc(struct array_object *self)
{
    hetmpi_free(self->data);
    free(self->shape);
    object_free(self);
}

bool memory_is_array(PyObject *object)
{
    return Py_TYPE(object) == array_class;
}

void memory_array(PyObject *object, struct array *array)
{
    const struct array_object *self = (struct array_object *)object;

    array->data = self->data;
    array->count = self->count;
    array->type = self->type;
    array->keeps = Py_NewRef(object);
}

static PyObject *array_shape(struct array_object *self, void *unused)
{
    PyObject *shape = PyTuple_New(self->ndim);

    (void)unused;
    for (int i = 0; shape && i < self->ndim; i++)
        PyTuple_SetItem(shape, i, PyLong_FromLongLong(self->shape[i]));
    return shape;
}

static PyObject *array_dtype(struct array_object *self, void *unused)
{
    (void)unused;
    return PyUnicode_FromString(self->type->name);
}

static PyObject *array_nbytes(struct array_object *self, void *unused)
{
    (void)unused;
    return PyLong_FromSize_t(self->count * self->type->bytes);
}

static PyObject *array_ptr(struct array_object *self, void *unused)
{
    (void)unused;
    return PyLong_FromVoidPtr(self->data);
}

static PyObject *array_device(struct array_object *self, void *unused)
{
    (void)unused;
    return PyUnicode_FromString(self->device ? "device" : "host");
}

static PyObject *array_cuda_interface(struct array_object *self, void *unused)
{
    PyObject *shape;
    char typestr[8];
    const char *kinds = "iuf_Vcb";

    (void)unused;
    if (!self->device || (device_type() != DL_CUDA && device_type() != DL_ROCM)) {
        PyErr_SetString(PyExc_AttributeError, "__cuda_array_interface__: this array is not in a GPU's memory");
        return NULL;
    }
    shape = array_shape(self, NULL);
    snprintf(typestr, sizeof(typestr), "%c%c%d", self->type->bytes == 1 ? '|' : '<',
             self->type->dl_code < strlen(kinds) ? kinds[self->type->dl_code] : 'V', (int)self->type->bytes);
    return shape ? Py_BuildValue("{sNsss(NO)si}", "shape", shape, "typestr", typestr, "data",
                                 PyLong_FromVoidPtr(self->data), Py_False, "version", 3)
                 : NULL;
}

static PyObject *array_dlpack_device(PyObject *object, PyObject *unused)
{
    const struct array_object *self = (struct array_object *)object;
    int number = self->device ? device_number() : 0;

    (void)unused;
    return number < 0 ? NULL : Py_BuildValue("(ii)", self->device ? device_type() : DL_CPU, number);
}

static void release_managed(struct dl_managed *managed)
{
    PyGILState_STATE state = PyGILState_Ensure();

    Py_DECREF(managed->context);
    PyGILState_Release(state);
    free(managed);
}

static void release_versioned(struct dl_versioned *managed)
{
    PyGILState_STATE state = PyGILState_Ensure();

    Py_DECREF(managed->context);
    PyGILState_Release(state);
    free(managed);
}

/* Nobody took the capsule: what it holds goes with it. */
static void capsule_dealloc(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, "dltensor"))
        release_managed(PyCapsule_GetPointer(capsule, "dltensor"));
    else if (PyCapsule_IsValid(capsule, "dltensor_versioned"))
        release_versioned(PyCapsule_GetPointer(capsule, "dltensor_versioned"));
}

static int fill_tensor(struct array_object *self, struct dl_tensor *tensor)
{
    int number = self->device ? device_number() : 0;

    if (number < 0)
        return -1;
    tensor->data = self->data;
    tensor->device.type = self->device ? device_type() : DL_CPU;
    tensor->device.id = number;
    tensor->ndim = self->ndim;
    tensor->dtype.code = self->type->dl_code;
    tensor->dtype.bits = (uint8_t)(self->type->bytes * 8);
    tensor->dtype.lanes = 1;
    tensor->shape = self->shape;
    return 0;
}

/* __dlpack__(*, stream=None, max_version=None, dl_device=None, copy=None). Nothing of hetmpi's is under way on the array
 * that the caller has not waited for, so that the consumer's stream has nothing to wait for either. */
static PyObject *array_dlpack(PyObject *object, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"stream", "max_version", "dl_device", "copy", NULL};
    struct array_object *self = (struct array_object *)object;
    PyObject *stream = NULL, *version = Py_None, *device = Py_None, *copy = Py_None, *capsule, *major;
    bool versioned = false;

    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|$OOOO:__dlpack__", names, &stream, &version, &device, &copy))
        return NULL;
    if (device != Py_None || copy == Py_True) {
        PyObject *own = array_dlpack_device(object, NULL);
        int same = own && copy != Py_True ? PyObject_RichCompareBool(own, device, Py_EQ) : 0;

        Py_XDECREF(own);
        if (same != 1) {
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_BufferError, "__dlpack__: hetmpi makes no copies, and none on another device");
            return NULL;
        }
    }
    if (version != Py_None) {
        major = PySequence_GetItem(version, 0);
        versioned = major && PyLong_AsLong(major) >= 1;
        Py_XDECREF(major);
        if (PyErr_Occurred())
            return NULL;
    }
    if (versioned) {
        struct dl_versioned *managed = calloc(1, sizeof(*managed));

        if (!managed)
            return PyErr_NoMemory();
        managed->version.major = 1;
        managed->context = self;
        managed->deleter = release_versioned;
        capsule = fill_tensor(self, &managed->tensor) == 0 ? PyCapsule_New(managed, "dltensor_versioned", capsule_dealloc)
                                                           : NULL;
        if (!capsule)
            free(managed);
    } else {
        struct dl_managed *managed = calloc(1, sizeof(*managed));

        if (!managed)
            return PyErr_NoMemory();
        managed->context = self;
        managed->deleter = release_managed;
        capsule = fill_tensor(self, &managed->tensor) == 0 ? PyCapsule_New(managed, "dltensor", capsule_dealloc) : NULL;
        if (!capsule)
            free(managed);
    }
    if (capsule)
        Py_INCREF(object);
    return capsule;
}

static int array_getbuffer(PyObject *object, Py_buffer *view, int flags)
{
    struct array_object *self = (struct array_object *)object;

    view->obj = NULL;
    if (self->device || !dtype_format(self->type)) {
        PyErr_Format(PyExc_BufferError, self->device ? "an array in device memory is no buffer: copy it to the host "
                     "(hetmpi.copy)" : "a buffer cannot say that it holds %s: use DLPack", self->type->name);
        return -1;
    }
    memset(view, 0, sizeof(*view));
    view->buf = self->data;
    view->len = (Py_ssize_t)(self->count * self->type->bytes);
    view->itemsize = (Py_ssize_t)self->type->bytes;
    view->format = flags & PyBUF_FORMAT ? (char *)dtype_format(self->type) : NULL;
    view->ndim = self->ndim;
    if (flags & PyBUF_ND)
        view->shape = (Py_ssize_t *)self->shape;
    if ((flags & PyBUF_STRIDES) == PyBUF_STRIDES)
        view->strides = (Py_ssize_t *)self->shape + self->ndim;
    view->obj = Py_NewRef(object);
    return 0;
}

static PyObject *copy(PyObject *module, PyObject *args)
{
    PyObject *to, *from;
    struct array dst, src;
    size_t bytes;
    int code;

    (void)module;
    if (!PyArg_ParseTuple(args, "OO:copy", &to, &from) || array_get(&dst, to, "copy: dst", true, NULL) < 0)
        return NULL;
    if (array_get(&src, from, "copy: src", false, NULL) < 0) {
        array_release(&dst);
        return NULL;
    }
    bytes = dst.count * dst.type->bytes;
    if (dst.type != src.type || dst.count != src.count) {
        PyErr_Format(PyExc_ValueError, "copy: dst has %zu elements of type %s, and src %zu of type %s", dst.count,
                     dst.type->name, src.count, src.type->name);
        code = -1;
    } else {
        UNLOCKED(code = hetmpi_memcpy(dst.data, src.data, bytes));
        if (code)
            error_raise(code, "copy");
    }
    array_release(&src);
    array_release(&dst);
    return code ? NULL : Py_NewRef(to);
}

static PyObject *stream_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    struct stream *self;
    hetmpi_stream_t stream;
    PyObject *kept;
    int code;

    if (!PyArg_ParseTuple(args, ":Stream") || (keywords && PyDict_Size(keywords))) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "Stream takes no arguments");
        return NULL;
    }
    UNLOCKED(code = hetmpi_stream_create(&stream));
    if (code)
        return error_raise(code, "stream_create");
    kept = PyList_New(0);
    self = kept ? PyObject_New(struct stream, type) : NULL;
    if (!self) {
        Py_XDECREF(kept);
        hetmpi_stream_destroy(stream);
        return NULL;
    }
    self->stream = stream;
    self->kept = kept;
    return (PyObject *)self;
}

static void stream_dealloc(struct stream *self)
{
    /* Finishes its work: then nothing needs what it keeps. */
    UNLOCKED(hetmpi_stream_destroy(self->stream));
    Py_XDECREF(self->kept);
    object_free(self);
}

static PyObject *stream_synchronize(struct stream *self, PyObject *unused)
{
    Py_ssize_t n = PyList_Size(self->kept);
    int code;

    (void)unused;
    UNLOCKED(code = hetmpi_stream_synchronize(self->stream));
    if (code)
        return error_raise(code, "stream_synchronize");
    if (PyList_SetSlice(self->kept, 0, n, NULL) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *stream_ptr(struct stream *self, void *unused)
{
    (void)unused;
    return PyLong_FromVoidPtr(self->stream);
}

int stream_get(PyObject *object, hetmpi_stream_t *stream)
{
    static const char *const names[] = {"cuda_stream", "ptr"};   /* PyTorch's streams, CuPy's */
    PyObject *number = NULL;

    *stream = NULL;
    if (object == Py_None)
        return 0;
    if (Py_TYPE(object) == stream_class) {
        *stream = ((struct stream *)object)->stream;
        return 0;
    }
    if (PyLong_Check(object))
        number = Py_NewRef(object);
    for (size_t i = 0; !number && i < sizeof(names) / sizeof(*names); i++)
        if (PyObject_HasAttrString(object, names[i]))
            number = PyObject_GetAttrString(object, names[i]);
    if (!number) {
        PyErr_Format(PyExc_TypeError, "stream: %R is none: hetmpi.Stream, torch.cuda.Stream, cupy.cuda.Stream, an address and "
                     "None (the default stream) are", object);
        return -1;
    }
    *stream = PyLong_AsVoidPtr(number);
    Py_DECREF(number);
    return PyErr_Occurred() ? -1 : 0;
}

static void drop_kept(PyObject *capsule)
{
    pending_free(PyCapsule_GetPointer(capsule, NULL));
}

int stream_keep(PyObject *stream, struct pending *pending)
{
    PyObject *capsule;
    int code;

    if (Py_TYPE(stream) != stream_class) {
        pending_free(pending);
        return 0;
    }
    capsule = PyCapsule_New(pending, NULL, drop_kept);
    code = capsule ? PyList_Append(((struct stream *)stream)->kept, capsule) : -1;
    Py_XDECREF(capsule);
    return code;
}

static PyMethodDef array_methods[] = {
    {"__dlpack__", (PyCFunction)(void (*)(void))array_dlpack, METH_VARARGS | METH_KEYWORDS, NULL},
    {"__dlpack_device__", array_dlpack_device, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static PyGetSetDef array_members[] = {
    {"shape", (getter)array_shape, NULL, "Sizes, a tuple.", NULL},
    {"dtype", (getter)array_dtype, NULL, "The name of the elements' type.", NULL},
    {"nbytes", (getter)array_nbytes, NULL, "Bytes in all.", NULL},
    {"ptr", (getter)array_ptr, NULL, "The address.", NULL},
    {"where", (getter)array_device, NULL, "'device' or 'host'.", NULL},
    {"__cuda_array_interface__", (getter)array_cuda_interface, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot array_slots[] = {
    {Py_tp_doc, "Elements in memory of this rank's device or of the host: what hetmpi.empty gives."},
    {Py_tp_dealloc, array_dealloc},
    {Py_tp_methods, array_methods},
    {Py_tp_getset, array_members},
    {Py_bf_getbuffer, array_getbuffer},
    {0, NULL},
};
static PyType_Spec array_spec = {"hetmpi.Array", sizeof(struct array_object), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, array_slots};

static PyMethodDef stream_methods[] = {
    {"synchronize", (PyCFunction)stream_synchronize, METH_NOARGS, "Waits for the stream's work."},
    {NULL, NULL, 0, NULL},
};
static PyGetSetDef stream_members[] = {
    {"ptr", (getter)stream_ptr, NULL, "The address of the device runtime's stream.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot stream_slots[] = {
    {Py_tp_doc, "A stream of this rank's device. It keeps the arrays of calls on it until it is synchronised."},
    {Py_tp_new, stream_new},
    {Py_tp_dealloc, stream_dealloc},
    {Py_tp_methods, stream_methods},
    {Py_tp_getset, stream_members},
    {0, NULL},
};
static PyType_Spec stream_spec = {"hetmpi.Stream", sizeof(struct stream), 0, Py_TPFLAGS_DEFAULT, stream_slots};

static PyMethodDef methods[] = {
    {"empty", empty, METH_VARARGS, NULL},
    {"copy", copy, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

int memory_add(PyObject *module)
{
    array_class = (PyTypeObject *)PyType_FromSpec(&array_spec);
    stream_class = (PyTypeObject *)PyType_FromSpec(&stream_spec);
    if (!array_class || !stream_class || PyModule_AddType(module, array_class) < 0 ||
        PyModule_AddType(module, stream_class) < 0)
        return -1;
    return PyModule_AddFunctions(module, methods);
}
