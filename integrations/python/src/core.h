/* What the files of the extension share. Everything here wants the interpreter lock, which is given up only around calls
 * of libhetmpi and MPI. */
#ifndef CORE_H
#define CORE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>

#include <hetmpi.h>

/* Runs a statement without the interpreter lock. */
#define UNLOCKED(statement)      \
    do {                         \
        Py_BEGIN_ALLOW_THREADS   \
        statement;               \
        Py_END_ALLOW_THREADS     \
    } while (0)

/* Frees an object of one of these classes, when what it holds is gone. */
static inline void object_free(void *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);

    PyObject_Free(self);
    Py_DECREF((PyObject *)type);
}

/* errors.c: hetmpi.Error */
int errors_add(PyObject *module);
/* Raises hetmpi.Error for a code of hetmpi's, with this thread's message; returns NULL. */
PyObject *error_raise(int code, const char *function);
/* The same for an error code of MPI. */
PyObject *error_raise_mpi(int mpi_code, const char *function);

/* dtypes.c: element types, by the names that they have in NumPy and ml_dtypes */
struct dtype {
    const char *name;
    size_t bytes;
    uint8_t dl_code;         /* DLPack's */
    int own;                 /* enum hetmpi_own_type, or -1: MPI has it */
    MPI_Datatype mpi;
};
const struct dtype *dtype_by_name(const char *name);
const struct dtype *dtype_by_dlpack(uint8_t code, size_t bits);
/* kind: one of NumPy's, b i u f c. */
const struct dtype *dtype_by_kind(char kind, size_t bytes);
/* By the format of the struct module, as the buffer protocol has it. NULL: no such type, or not in this byte order. */
const struct dtype *dtype_by_format(const char *format, size_t bytes);
/* ... and back; NULL where struct has none. */
const char *dtype_format(const struct dtype *type);
MPI_Datatype dtype_mpi(const struct dtype *type);

/* device.c: which device's arrays the library takes */
enum { DL_CPU = 1, DL_CUDA = 2, DL_CUDA_HOST = 3, DL_ROCM = 10, DL_ROCM_HOST = 11, DL_EXT = 12, DL_CUDA_MANAGED = 13 };
/* The type of this library's device memory; DL_CPU where there is none. */
int device_type(void);
bool device_fits(int type);
/* The number of this rank's device, or -1 with an exception. */
int device_number(void);
const char *device_name(int type);

/* arrays.c: where an array's elements lie */
struct array {
    void *data;
    size_t count;
    const struct dtype *type;
    bool readonly;
    PyObject *keeps;         /* what keeps the memory: the object, or a DLPack capsule */
    Py_buffer view;          /* or this, if view.obj */
};
/* Any object with elements in one piece, rows first. `what` names it in exceptions ("allreduce: out"). A producer's
 * device work on it is finished on return; with `stream`, only ordered before what that stream does next. */
int array_get(struct array *array, PyObject *object, const char *what, bool writable, const hetmpi_stream_t *stream);
void array_release(struct array *array);

/* memory.c: hetmpi.Array and hetmpi.Stream */
int memory_add(PyObject *module);
bool memory_is_array(PyObject *object);
/* The array of a hetmpi.Array; nothing is to be released. */
void memory_array(PyObject *object, struct array *array);
/* From hetmpi.Stream, torch.cuda.Stream, cupy.cuda.Stream, an address or None (the default stream). */
int stream_get(PyObject *object, hetmpi_stream_t *stream);
/* Takes over what a call on the stream holds, until the stream was synchronised. Others' streams keep nothing: their
 * owners' allocators know what a stream still uses. */
struct pending;
int stream_keep(PyObject *stream, struct pending *pending);

/* ops.c: hetmpi.Op */
int ops_add(PyObject *module);
int op_get(PyObject *object, MPI_Op *op);

/* comms.c: hetmpi.Comm */
struct comm {
    PyObject_HEAD
    MPI_Comm comm;
    int rank, size;
    PyObject *keeps;         /* whose communicator it is */
};
int comms_add(PyObject *module);
struct comm *comm_get(PyObject *object);
/* An MPI_Info of a dict of settings or None. Freed by the caller unless MPI_INFO_NULL. */
int info_get(PyObject *settings, MPI_Info *info);

/* requests.c: hetmpi.Request, and what a call under way holds */
struct pending {
    hetmpi_request_t request;
    const char *name;        /* of the call */
    bool persistent, active;
    bool receives;           /* wait gives a status */
    struct array arrays[2];
    PyObject *result;
    struct pending *next;    /* of those that nobody waits for */
};
int requests_add(PyObject *module);
/* Takes over `pending` (freed on failure too, when its request has ended). */
PyObject *request_new(struct pending *pending);
struct pending *pending_new(void);
void pending_free(struct pending *pending);
/* (source, tag, elements) of a received message. */
PyObject *status_new(const MPI_Status *status, const struct dtype *type);
PyObject *requests_waitany(PyObject *module, PyObject *requests);
PyObject *requests_testall(PyObject *module, PyObject *requests);

/* collectives.c, messages.c: the calls */
enum form { BLOCKING, NONBLOCKING, ON_STREAM, PERSISTENT };
struct call {
    const char *name;
    enum form form;
    struct comm *comm;
    PyObject *where;         /* a stream or settings */
    hetmpi_stream_t stream;
    MPI_Info info;
    struct pending *pending; /* its two arrays are the call's: what is sent, what is received */
};
/* call.c: one call from its first arguments, (form, comm, stream or settings, result), to its end */
int call_begin(struct call *call, const char *name, PyObject *const *args, Py_ssize_t given, Py_ssize_t wanted);
/* An argument that is an array. None and IN_PLACE leave the array empty (data NULL or MPI_IN_PLACE, no type). */
int call_array(struct call *call, int which, PyObject *object, const char *what, bool writable);
bool call_in_place(const struct array *array);
/* The call has returned `code`: gives what Python gets. */
PyObject *call_end(struct call *call, int code);
/* Gives up before libhetmpi was called. Returns NULL. */
PyObject *call_drop(struct call *call);
/* TypeError unless both arrays have one type, which it gives. */
MPI_Datatype call_type(struct call *call, bool *ok);
/* ValueError: "allreduce: x has 3 elements, and out 4: ..." Returns false. */
bool call_expect(struct call *call, const char *what, size_t is, size_t wanted, const char *why);
int call_add(PyObject *module);
extern PyMethodDef collectives_methods[], messages_methods[];

#endif
