/* Finds where the elements of a Python object lie: hetmpi.Array, the buffer protocol, DLPack, __cuda_array_interface__ and
 * __array_interface__, in this order. What hetmpi cannot send as one piece is refused, with the reason. */
#include "core.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dlpack.h"

/* "(3, 4)" of up to eight numbers. */
static void write_tuple(char *text, size_t room, int n, const int64_t *numbers)
{
    size_t length = (size_t)snprintf(text, room, "(");

    for (int i = 0; i < n && length < room; i++)
        length += (size_t)snprintf(text + length, room - length, "%s%lld", i ? ", " : "", (long long)numbers[i]);
    if (length < room)
        snprintf(text + length, room - length, "%s)", n == 1 ? "," : "");
}

/* Sets the count; ValueError unless the elements stand in one piece, rows first. Strides are in units of `unit` bytes. */
static int set_shape(struct array *array, const char *what, int n, const int64_t *shape, const int64_t *strides, size_t unit)
{
    int64_t expected = (int64_t)(array->type->bytes / unit), gap = 0;

    array->count = 1;
    for (int i = 0; i < n; i++)
        array->count *= (size_t)shape[i];
    for (int i = n - 1; strides && array->count && i >= 0; expected *= shape[i--])
        if (shape[i] != 1 && strides[i] != expected)
            gap = 1;
    if (gap) {
        char shape_text[96], strides_text[160];

        write_tuple(shape_text, sizeof(shape_text), n, shape);
        write_tuple(strides_text, sizeof(strides_text), n, strides);
        PyErr_Format(PyExc_ValueError, "%s: an array of shape %s with strides %s (%s) is not contiguous, rows first. Give a "
                     "contiguous copy.", what, shape_text, strides_text, unit == 1 ? "bytes" : "elements");
        return -1;
    }
    return 0;
}

static int refuse_type(const char *what, const char *type)
{
    PyErr_Format(PyExc_TypeError, "%s: elements of type %s are not supported: bool, int8 to int64, uint8 to uint64, float16, "
                 "bfloat16, float8_e4m3fn, float8_e5m2, float8_e4m3fnuz, float8_e5m2fnuz, float32, float64, complex64 and "
                 "complex128 are (in this machine's byte order).", what, type);
    return -1;
}

static int refuse_device(const char *what, int type)
{
    PyErr_Format(PyExc_ValueError, "%s: lies on %s, and this libhetmpi is built for %s alone (%s)", what,
                 device_name(type), device_type() == DL_CPU ? "the CPU" : device_name(device_type()), hetmpi_build_info());
    return -1;
}

static int from_buffer(struct array *array, PyObject *object, const char *what)
{
    int64_t shape[64], strides[64];
    const Py_buffer *view = &array->view;

    if (PyObject_GetBuffer(object, &array->view, PyBUF_STRIDES | PyBUF_FORMAT) < 0)
        return -1;
    array->data = view->buf;
    array->readonly = view->readonly;
    array->type = dtype_by_format(view->format, (size_t)view->itemsize);
    if (!array->type)
        return refuse_type(what, view->format);
    /* ctypes leaves the strides away, though they were asked for. */
    for (int i = 0; i < view->ndim; i++) {
        shape[i] = view->shape[i];
        strides[i] = view->strides ? view->strides[i] : 0;
    }
    return set_shape(array, what, view->ndim, shape, view->strides ? strides : NULL, 1);
}

/* Device work on what an exchange gives is finished before hetmpi reads it: this stream waits for the producer's. */
static int exchange_stream(hetmpi_stream_t *stream)
{
    static hetmpi_stream_t made;
    int code = made ? HETMPI_SUCCESS : hetmpi_stream_create(&made);

    *stream = made;
    if (code)
        error_raise(code, "stream_create");
    return code ? -1 : 0;
}

/* The value of a stream in the two exchange protocols: on CUDA 1 is the default stream. */
static PyObject *stream_number(hetmpi_stream_t stream, int device)
{
    return PyLong_FromVoidPtr(stream || device == DL_ROCM ? stream : (hetmpi_stream_t)1);
}

/* Calls __dlpack__, with the arguments of its first version where the producer knows no other. */
static PyObject *ask_dlpack(PyObject *object, PyObject *stream)
{
    PyObject *method = PyObject_GetAttrString(object, "__dlpack__"), *none = PyTuple_New(0), *capsule = NULL;
    PyObject *arguments = stream ? Py_BuildValue("{s(ii)sO}", "max_version", 1, 0, "stream", stream)
                                 : Py_BuildValue("{s(ii)}", "max_version", 1, 0);

    if (method && none && arguments) {
        capsule = PyObject_Call(method, none, arguments);
        if (!capsule && PyErr_ExceptionMatches(PyExc_TypeError)) {
            PyErr_Clear();
            PyDict_DelItemString(arguments, "max_version");
            capsule = PyObject_Call(method, none, arguments);
        }
    }
    Py_XDECREF(arguments);
    Py_XDECREF(none);
    Py_XDECREF(method);
    return capsule;
}

/* (device type, number) of __dlpack_device__ */
static int dlpack_device(PyObject *object, int *type)
{
    PyObject *pair = PyObject_CallMethod(object, "__dlpack_device__", NULL);
    PyObject *first = pair ? PySequence_GetItem(pair, 0) : NULL;

    *type = first ? (int)PyLong_AsLong(first) : 0;
    Py_XDECREF(first);
    Py_XDECREF(pair);
    return PyErr_Occurred() ? -1 : 0;
}

static int from_tensor(struct array *array, const struct dl_tensor *tensor, const char *what)
{
    array->data = tensor->data ? (char *)tensor->data + tensor->byte_offset : NULL;
    if (tensor->dtype.lanes == 1)
        array->type = dtype_by_dlpack(tensor->dtype.code, tensor->dtype.bits);
    if (!array->type) {
        char text[64];

        snprintf(text, sizeof(text), "DLPack code %d, %d bits, %d lanes", tensor->dtype.code, tensor->dtype.bits,
                 tensor->dtype.lanes);
        return refuse_type(what, text);
    }
    return set_shape(array, what, tensor->ndim, tensor->shape, tensor->strides, array->type->bytes);
}

static int from_dlpack(struct array *array, PyObject *object, const char *what, const hetmpi_stream_t *on)
{
    hetmpi_stream_t stream = NULL;
    PyObject *number = NULL;
    int type, code = HETMPI_SUCCESS;

    if (dlpack_device(object, &type) < 0)
        return -1;
    if (!device_fits(type))
        return refuse_device(what, type);
    if (type == DL_CUDA || type == DL_CUDA_MANAGED || type == DL_ROCM) {
        if (on)
            stream = *on;
        else if (exchange_stream(&stream) < 0)
            return -1;
        number = stream_number(stream, type);
        if (!number)
            return -1;
    }
    array->keeps = ask_dlpack(object, number);
    if (array->keeps && number && !on)
        UNLOCKED(code = hetmpi_stream_synchronize(stream));
    Py_XDECREF(number);
    if (!array->keeps)
        return -1;
    if (code) {
        error_raise(code, "stream_synchronize");
        return -1;
    }

    /* The capsule keeps its name: nobody else can take it from here, and its own destructor frees what it holds. */
    if (PyCapsule_IsValid(array->keeps, "dltensor_versioned")) {
        const struct dl_versioned *managed = PyCapsule_GetPointer(array->keeps, "dltensor_versioned");

        if (managed->version.major != 1) {
            PyErr_Format(PyExc_BufferError, "%s: DLPack %d is not known", what, (int)managed->version.major);
            return -1;
        }
        array->readonly = managed->flags & DL_READ_ONLY;
        return from_tensor(array, &managed->tensor, what);
    }
    const struct dl_managed *managed = PyCapsule_GetPointer(array->keeps, "dltensor");

    return managed ? from_tensor(array, &managed->tensor, what) : -1;
}

/* Numbers of a tuple. Returns how many, -1 with an exception. */
static int read_tuple(PyObject *tuple, const char *what, int64_t *numbers)
{
    Py_ssize_t n = tuple ? PySequence_Size(tuple) : -1;

    if (n > 64) {
        PyErr_Format(PyExc_ValueError, "%s: %zd dimensions", what, n);
        return -1;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = PySequence_GetItem(tuple, i);

        numbers[i] = item ? PyLong_AsLongLong(item) : -1;
        Py_XDECREF(item);
        if (PyErr_Occurred())
            return -1;
    }
    return (int)n;
}

/* The element type of an array interface: formats that NumPy lacks are "V2" there, and the array's dtype has their name. */
static int interface_type(struct array *array, PyObject *object, PyObject *interface, const char *what)
{
    PyObject *typestr = PyDict_GetItemString(interface, "typestr"), *text = typestr ? PyUnicode_AsUTF8String(typestr) : NULL;
    PyObject *dtype = NULL, *name = NULL;
    const char *code = text ? PyBytes_AsString(text) : NULL;

    if (!code) {
        PyErr_Format(PyExc_TypeError, "%s: its array interface has no typestr", what);
        return -1;
    }
    if (strlen(code) >= 3) {
        char format[] = {code[0] == '|' ? '=' : code[0], 'b', '\0'};

        if (dtype_by_format(format, 1))   /* this machine's byte order */
            array->type = dtype_by_kind(code[1], strtoul(code + 2, NULL, 10));
    }
    if (!array->type && (dtype = PyObject_GetAttrString(object, "dtype")) != NULL) {
        name = PyObject_GetAttrString(dtype, "name");
        if (name && PyUnicode_Check(name)) {
            PyObject *bytes = PyUnicode_AsUTF8String(name);

            array->type = bytes ? dtype_by_name(PyBytes_AsString(bytes)) : NULL;
            Py_XDECREF(bytes);
        }
    }
    PyErr_Clear();
    if (array->type && array->type->bytes != strtoul(code + 2, NULL, 10))
        array->type = NULL;
    if (!array->type)
        refuse_type(what, code);
    Py_XDECREF(name);
    Py_XDECREF(dtype);
    Py_DECREF(text);
    return array->type ? 0 : -1;
}

/* Version 3 of the CUDA interface names the stream whose work a reader must wait for. */
static int interface_wait(PyObject *interface, const hetmpi_stream_t *on)
{
    PyObject *number = PyDict_GetItemString(interface, "stream");
    hetmpi_stream_t stream;
    int code;

    if (!number || number == Py_None)
        return 0;
    stream = PyLong_AsVoidPtr(number);
    if (PyErr_Occurred())
        return -1;
    if (stream == (void *)1)
        stream = NULL;
    if (on && *on == stream)
        return 0;
    UNLOCKED(code = hetmpi_stream_synchronize(stream));
    if (code)
        error_raise(code, "stream_synchronize");
    return code ? -1 : 0;
}

static int from_interface(struct array *array, PyObject *object, PyObject *interface, const char *what)
{
    int64_t shape[64], strides[64];
    PyObject *data = NULL, *address, *readonly, *gaps;
    int n;

    if (PyDict_Check(interface))
        data = PyDict_GetItemString(interface, "data");
    address = data && PyTuple_Check(data) ? PyTuple_GetItem(data, 0) : NULL;
    readonly = address ? PyTuple_GetItem(data, 1) : NULL;
    if (!readonly) {
        PyErr_Format(PyExc_TypeError, "%s: its array interface has no data of (address, read-only)", what);
        return -1;
    }
    array->data = PyLong_AsVoidPtr(address);
    array->readonly = PyObject_IsTrue(readonly) != 0;
    if (PyErr_Occurred() || interface_type(array, object, interface, what) < 0)
        return -1;
    n = read_tuple(PyDict_GetItemString(interface, "shape"), what, shape);
    gaps = PyDict_GetItemString(interface, "strides");
    if (n < 0 || (gaps && gaps != Py_None && read_tuple(gaps, what, strides) != n)) {
        if (!PyErr_Occurred())
            PyErr_Format(PyExc_TypeError, "%s: its array interface has no shape, or strides that do not fit it", what);
        return -1;
    }
    Py_INCREF(object);
    array->keeps = object;
    return set_shape(array, what, n, shape, gaps && gaps != Py_None ? strides : NULL, 1);
}

/* The attribute, or NULL without an exception. */
static PyObject *interface_of(PyObject *object, const char *name)
{
    PyObject *interface = PyObject_GetAttrString(object, name);

    if (!interface)
        PyErr_Clear();
    return interface;
}

static int find(struct array *array, PyObject *object, const char *what, const hetmpi_stream_t *stream)
{
    PyObject *interface;
    int code;

    if (memory_is_array(object)) {
        memory_array(object, array);
        return 0;
    }
    if (PyObject_CheckBuffer(object)) {
        code = from_buffer(array, object, what);
        /* NumPy shows no formats of others in a buffer. */
        if (code == 0 || array->view.obj || !PyObject_HasAttrString(object, "__array_interface__"))
            return code;
        PyErr_Clear();
    } else if (PyObject_HasAttrString(object, "__dlpack__")) {
        return from_dlpack(array, object, what, stream);
    } else if ((interface = interface_of(object, "__cuda_array_interface__")) != NULL) {
        code = device_type() == DL_CUDA || device_type() == DL_ROCM ? interface_wait(interface, stream)
                                                                    : refuse_device(what, DL_CUDA);
        if (code == 0)
            code = from_interface(array, object, interface, what);
        Py_DECREF(interface);
        return code;
    }
    if ((interface = interface_of(object, "__array_interface__")) != NULL) {
        code = from_interface(array, object, interface, what);
        Py_DECREF(interface);
        return code;
    }
    PyErr_Format(PyExc_TypeError, "%s: %R is no array: it has no buffer, __dlpack__, __cuda_array_interface__ or "
                 "__array_interface__", what, Py_TYPE(object));
    return -1;
}

int array_get(struct array *array, PyObject *object, const char *what, bool writable, const hetmpi_stream_t *stream)
{
    memset(array, 0, sizeof(*array));
    if (find(array, object, what, stream) < 0) {
        array_release(array);
        return -1;
    }
    if (writable && array->readonly) {
        PyErr_Format(PyExc_BufferError, "%s: is read-only, and the call writes it", what);
        array_release(array);
        return -1;
    }
    return 0;
}

void array_release(struct array *array)
{
    if (array->view.obj)
        PyBuffer_Release(&array->view);
    Py_CLEAR(array->keeps);
}
