/* The collectives. Each takes (form, comm, stream or settings, result, ...): hetmpi/api.py has them for people. */
#include "core.h"

#include <stdlib.h>

/* Calls a collective in the form that was asked for, without the interpreter lock. */
#define LAUNCH(call, code, name, ...)                                                                                     \
    UNLOCKED(                                                                                                             \
        switch ((call)->form) {                                                                                           \
        case BLOCKING: code = hetmpi_##name(__VA_ARGS__, (call)->comm->comm); break;                                      \
        case NONBLOCKING: code = hetmpi_i##name(__VA_ARGS__, (call)->comm->comm, &(call)->pending->request); break;       \
        case ON_STREAM: code = hetmpi_##name##_on_stream(__VA_ARGS__, (call)->comm->comm, (call)->stream); break;         \
        default: code = hetmpi_##name##_init(__VA_ARGS__, (call)->comm->comm, (call)->info, &(call)->pending->request);   \
        })

#define SEND(call) (&(call)->pending->arrays[0])
#define RECV(call) (&(call)->pending->arrays[1])
#define ARGS PyObject *module, PyObject *const *args, Py_ssize_t given

/* x, then out: how most calls begin. The first of a call's own arguments is args[4]. */
static int begin(struct call *call, const char *name, PyObject *const *args, Py_ssize_t given, Py_ssize_t wanted)
{
    if (call_begin(call, name, args, given, wanted) < 0)
        return -1;
    if (call_array(call, 0, args[4], "x", false) < 0 || call_array(call, 1, args[5], "out", true) < 0) {
        call_drop(call);
        return -1;
    }
    return 0;
}

/* Counts of elements, one a rank. NULL with an exception. */
static size_t *read_counts(struct call *call, PyObject *list, const char *what)
{
    size_t *counts = calloc((size_t)call->comm->size, sizeof(*counts));
    Py_ssize_t n = counts ? PySequence_Size(list) : 0;

    if (!counts)
        return (size_t *)PyErr_NoMemory();
    if (n != call->comm->size) {
        if (n >= 0)
            PyErr_Format(PyExc_ValueError, "%s: %s has %zd numbers, not one for each of the %d ranks", call->name, what, n,
                         call->comm->size);
        free(counts);
        return NULL;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = PySequence_GetItem(list, i), *number = item ? PyNumber_Index(item) : NULL;

        counts[i] = number ? PyLong_AsSize_t(number) : 0;
        Py_XDECREF(number);
        Py_XDECREF(item);
        if (PyErr_Occurred()) {
            free(counts);
            return NULL;
        }
    }
    return counts;
}

/* Blocks of an array: counts and displacements; with None for these, one block behind the other. */
struct blocks {
    size_t *counts, *displs;
};

static void blocks_free(struct blocks *blocks)
{
    free(blocks->counts);
    free(blocks->displs);
}

static int blocks_get(struct call *call, struct blocks *blocks, PyObject *counts, PyObject *displs, const struct array *array,
                      const char *what)
{
    size_t end = 0;

    blocks->displs = NULL;
    blocks->counts = read_counts(call, counts, "counts");
    if (!blocks->counts)
        return -1;
    blocks->displs = displs == Py_None ? calloc((size_t)call->comm->size, sizeof(*blocks->displs))
                                       : read_counts(call, displs, "displs");
    if (!blocks->displs) {
        if (!PyErr_Occurred())
            PyErr_NoMemory();
        blocks_free(blocks);
        return -1;
    }
    for (int r = 0; r < call->comm->size; r++) {
        if (displs == Py_None)
            blocks->displs[r] = end;
        end = blocks->displs[r] + blocks->counts[r];
        if (array->type && blocks->counts[r] && (end > array->count || end < blocks->counts[r])) {
            PyErr_Format(PyExc_ValueError, "%s: block %d, of %zu elements from element %zu on, is not inside %s, which has %zu",
                         call->name, r, blocks->counts[r], blocks->displs[r], what, array->count);
            blocks_free(blocks);
            return -1;
        }
    }
    return 0;
}

struct rooted {
    MPI_Datatype type;
    int root;
    bool mine;               /* this rank is the root */
};

static bool is_root(struct call *call, PyObject *object, int *root)
{
    *root = (int)PyLong_AsLong(object);
    return *root == call->comm->rank;
}

/* x, out, and a root, which is the last of the arguments; finds the type of the two arrays. */
static int begin_rooted(struct call *call, const char *name, PyObject *const *args, Py_ssize_t given, Py_ssize_t wanted,
                        struct rooted *at)
{
    bool ok;

    if (begin(call, name, args, given, wanted) < 0)
        return -1;
    at->mine = is_root(call, args[3 + wanted], &at->root);
    at->type = call_type(call, &ok);
    if (ok && !PyErr_Occurred())
        return 0;
    call_drop(call);
    return -1;
}

/* allreduce, scan, exscan: (x, out, op) of one length */
#define SAME_LENGTH(name)                                                                                                 \
    static PyObject *name(ARGS)                                                                                           \
    {                                                                                                                     \
        struct call call;                                                                                                 \
        MPI_Datatype type;                                                                                                \
        MPI_Op op;                                                                                                        \
        bool ok;                                                                                                          \
        int code;                                                                                                         \
                                                                                                                          \
        (void)module;                                                                                                     \
        if (begin(&call, #name, args, given, 3) < 0)                                                                      \
            return NULL;                                                                                                  \
        type = call_type(&call, &ok);                                                                                     \
        if (!ok || op_get(args[6], &op) < 0 ||                                                                            \
            (!call_in_place(SEND(&call)) &&                                                                               \
             !call_expect(&call, "out", RECV(&call)->count, SEND(&call)->count, "as x has")))                             \
            return call_drop(&call);                                                                                      \
        LAUNCH(&call, code, name, SEND(&call)->data, RECV(&call)->data, RECV(&call)->count, type, op);                    \
        return call_end(&call, code);                                                                                     \
    }
SAME_LENGTH(allreduce)
SAME_LENGTH(scan)
SAME_LENGTH(exscan)

/* (x, out, op, root) */
static PyObject *reduce(ARGS)
{
    struct call call;
    struct rooted at;
    MPI_Op op;
    int code;

    (void)module;
    if (begin_rooted(&call, "reduce", args, given, 4, &at) < 0)
        return NULL;
    if (op_get(args[6], &op) < 0 ||
        (at.mine && !call_in_place(SEND(&call)) &&
         !call_expect(&call, "out", RECV(&call)->count, SEND(&call)->count, "as x has")))
        return call_drop(&call);
    LAUNCH(&call, code, reduce, SEND(&call)->data, RECV(&call)->data,
           call_in_place(SEND(&call)) ? RECV(&call)->count : SEND(&call)->count, at.type, op, at.root);
    return call_end(&call, code);
}

/* (x, root) */
static PyObject *bcast(ARGS)
{
    struct call call;
    int code, root;
    bool mine;

    (void)module;
    if (call_begin(&call, "bcast", args, given, 2) < 0)
        return NULL;
    mine = is_root(&call, args[5], &root);
    if (PyErr_Occurred() || call_array(&call, 1, args[4], "x", !mine) < 0)
        return call_drop(&call);
    if (!RECV(&call)->type) {
        PyErr_SetString(PyExc_TypeError, "bcast: x is no array");
        return call_drop(&call);
    }
    LAUNCH(&call, code, bcast, RECV(&call)->data, RECV(&call)->count, dtype_mpi(RECV(&call)->type), root);
    return call_end(&call, code);
}

/* (x, out, op) */
static PyObject *reduce_scatter_block(ARGS)
{
    struct call call;
    MPI_Datatype type;
    MPI_Op op;
    size_t count;
    bool ok;
    int code;

    (void)module;
    if (begin(&call, "reduce_scatter_block", args, given, 3) < 0)
        return NULL;
    type = call_type(&call, &ok);
    if (!ok || op_get(args[6], &op) < 0)
        return call_drop(&call);
    count = RECV(&call)->count;
    if (call_in_place(SEND(&call))) {
        count /= (size_t)call.comm->size;
        ok = call_expect(&call, "out", RECV(&call)->count, count * (size_t)call.comm->size, "one block a rank");
    } else {
        ok = call_expect(&call, "x", SEND(&call)->count, count * (size_t)call.comm->size, "out's, for each rank");
    }
    if (!ok)
        return call_drop(&call);
    LAUNCH(&call, code, reduce_scatter_block, SEND(&call)->data, RECV(&call)->data, count, type, op);
    return call_end(&call, code);
}

/* (x, out, counts, op) */
static PyObject *reduce_scatter(ARGS)
{
    struct call call;
    MPI_Datatype type;
    MPI_Op op;
    size_t *counts, all = 0;
    bool ok;
    int code;

    (void)module;
    if (begin(&call, "reduce_scatter", args, given, 4) < 0)
        return NULL;
    type = call_type(&call, &ok);
    if (!ok || op_get(args[7], &op) < 0 || (counts = read_counts(&call, args[6], "counts")) == NULL)
        return call_drop(&call);
    for (int r = 0; r < call.comm->size; r++)
        all += counts[r];
    if (call_in_place(SEND(&call)))
        ok = call_expect(&call, "out", RECV(&call)->count, all, "the sum of counts");
    else
        ok = call_expect(&call, "x", SEND(&call)->count, all, "the sum of counts") &&
             call_expect(&call, "out", RECV(&call)->count, counts[call.comm->rank], "this rank's count");
    if (!ok) {
        free(counts);
        return call_drop(&call);
    }
    LAUNCH(&call, code, reduce_scatter, SEND(&call)->data, RECV(&call)->data, counts, type, op);
    free(counts);
    return call_end(&call, code);
}

/* (x, out) */
static PyObject *allgather(ARGS)
{
    struct call call;
    MPI_Datatype type;
    size_t count;
    bool ok;
    int code;

    (void)module;
    if (begin(&call, "allgather", args, given, 2) < 0)
        return NULL;
    type = call_type(&call, &ok);
    count = ok && RECV(&call)->type ? RECV(&call)->count / (size_t)call.comm->size : 0;
    if (!ok || !call_expect(&call, "out", RECV(&call)->count,
                            (call_in_place(SEND(&call)) ? count : SEND(&call)->count) * (size_t)call.comm->size,
                            "x's, for each rank"))
        return call_drop(&call);
    LAUNCH(&call, code, allgather, SEND(&call)->data, count, type, RECV(&call)->data, count, type);
    return call_end(&call, code);
}

/* (x, out, counts, displs) */
static PyObject *allgatherv(ARGS)
{
    struct call call;
    struct blocks blocks;
    MPI_Datatype type;
    bool ok;
    int code;

    (void)module;
    if (begin(&call, "allgatherv", args, given, 4) < 0)
        return NULL;
    type = call_type(&call, &ok);
    if (!ok || blocks_get(&call, &blocks, args[6], args[7], RECV(&call), "out") < 0)
        return call_drop(&call);
    if (!call_in_place(SEND(&call)) &&
        !call_expect(&call, "x", SEND(&call)->count, blocks.counts[call.comm->rank], "this rank's count")) {
        blocks_free(&blocks);
        return call_drop(&call);
    }
    LAUNCH(&call, code, allgatherv, SEND(&call)->data, blocks.counts[call.comm->rank], type, RECV(&call)->data, blocks.counts,
           blocks.displs, type);
    blocks_free(&blocks);
    return call_end(&call, code);
}

/* (x, out, root); out is the root's */
static PyObject *gather(ARGS)
{
    struct call call;
    struct rooted at;
    size_t count;
    int code;

    (void)module;
    if (begin_rooted(&call, "gather", args, given, 3, &at) < 0)
        return NULL;
    count = call_in_place(SEND(&call)) ? RECV(&call)->count / (size_t)call.comm->size : SEND(&call)->count;
    if (at.mine && !call_expect(&call, "out", RECV(&call)->count, count * (size_t)call.comm->size, "x's, for each rank"))
        return call_drop(&call);
    LAUNCH(&call, code, gather, SEND(&call)->data, count, at.type, RECV(&call)->data, count, at.type, at.root);
    return call_end(&call, code);
}

/* (x, out, counts, displs, root); counts and displs are the root's */
static PyObject *gatherv(ARGS)
{
    struct call call;
    struct blocks blocks = {NULL, NULL};
    struct rooted at;
    int code;

    (void)module;
    if (begin_rooted(&call, "gatherv", args, given, 5, &at) < 0)
        return NULL;
    if (at.mine && blocks_get(&call, &blocks, args[6], args[7], RECV(&call), "out") < 0)
        return call_drop(&call);
    LAUNCH(&call, code, gatherv, SEND(&call)->data,
           call_in_place(SEND(&call)) && at.mine ? blocks.counts[at.root] : SEND(&call)->count, at.type, RECV(&call)->data,
           blocks.counts, blocks.displs, at.type, at.root);
    blocks_free(&blocks);
    return call_end(&call, code);
}

/* (x, out, root); x is the root's */
static PyObject *scatter(ARGS)
{
    struct call call;
    struct rooted at;
    size_t count;
    int code;

    (void)module;
    if (begin_rooted(&call, "scatter", args, given, 3, &at) < 0)
        return NULL;
    count = call_in_place(RECV(&call)) ? SEND(&call)->count / (size_t)call.comm->size : RECV(&call)->count;
    if (at.mine && !call_expect(&call, "x", SEND(&call)->count, count * (size_t)call.comm->size, "out's, for each rank"))
        return call_drop(&call);
    LAUNCH(&call, code, scatter, SEND(&call)->data, count, at.type, RECV(&call)->data, count, at.type, at.root);
    return call_end(&call, code);
}

/* (x, out, counts, displs, root); x, counts and displs are the root's */
static PyObject *scatterv(ARGS)
{
    struct call call;
    struct blocks blocks = {NULL, NULL};
    struct rooted at;
    int code;

    (void)module;
    if (begin_rooted(&call, "scatterv", args, given, 5, &at) < 0)
        return NULL;
    if (at.mine && blocks_get(&call, &blocks, args[6], args[7], SEND(&call), "x") < 0)
        return call_drop(&call);
    LAUNCH(&call, code, scatterv, SEND(&call)->data, blocks.counts, blocks.displs, at.type, RECV(&call)->data,
           call_in_place(RECV(&call)) && at.mine ? blocks.counts[at.root] : RECV(&call)->count, at.type, at.root);
    blocks_free(&blocks);
    return call_end(&call, code);
}

/* (x, out) */
static PyObject *alltoall(ARGS)
{
    struct call call;
    MPI_Datatype type;
    size_t count;
    bool ok;
    int code;

    (void)module;
    if (begin(&call, "alltoall", args, given, 2) < 0)
        return NULL;
    type = call_type(&call, &ok);
    if (!ok)
        return call_drop(&call);
    count = RECV(&call)->count / (size_t)call.comm->size;
    if (!call_expect(&call, "out", RECV(&call)->count, count * (size_t)call.comm->size, "one block a rank") ||
        (!call_in_place(SEND(&call)) && !call_expect(&call, "x", SEND(&call)->count, RECV(&call)->count, "as out has")))
        return call_drop(&call);
    LAUNCH(&call, code, alltoall, SEND(&call)->data, count, type, RECV(&call)->data, count, type);
    return call_end(&call, code);
}

/* (x, out, sendcounts, senddispls, recvcounts, recvdispls) */
static PyObject *alltoallv(ARGS)
{
    struct call call;
    struct blocks send = {NULL, NULL}, recv = {NULL, NULL};
    MPI_Datatype type;
    bool ok;
    int code;

    (void)module;
    if (begin(&call, "alltoallv", args, given, 6) < 0)
        return NULL;
    type = call_type(&call, &ok);
    if (!ok || (!call_in_place(SEND(&call)) && blocks_get(&call, &send, args[6], args[7], SEND(&call), "x") < 0))
        return call_drop(&call);
    if (blocks_get(&call, &recv, args[8], args[9], RECV(&call), "out") < 0) {
        blocks_free(&send);
        return call_drop(&call);
    }
    LAUNCH(&call, code, alltoallv, SEND(&call)->data, send.counts, send.displs, type, RECV(&call)->data, recv.counts,
           recv.displs, type);
    blocks_free(&send);
    blocks_free(&recv);
    return call_end(&call, code);
}

/* () */
static PyObject *barrier(ARGS)
{
    struct call call;
    MPI_Comm comm;
    int code;

    (void)module;
    if (call_begin(&call, "barrier", args, given, 0) < 0)
        return NULL;
    comm = call.comm->comm;
    UNLOCKED(
        switch (call.form) {
        case BLOCKING: code = hetmpi_barrier(comm); break;
        case NONBLOCKING: code = hetmpi_ibarrier(comm, &call.pending->request); break;
        case ON_STREAM: code = hetmpi_barrier_on_stream(comm, call.stream); break;
        default: code = hetmpi_barrier_init(comm, call.info, &call.pending->request);
        });
    return call_end(&call, code);
}

#define METHOD(name) {#name, (PyCFunction)(void (*)(void))name, METH_FASTCALL, NULL}
PyMethodDef collectives_methods[] = {
    METHOD(allreduce), METHOD(reduce), METHOD(bcast), METHOD(reduce_scatter_block), METHOD(reduce_scatter), METHOD(allgather),
    METHOD(allgatherv), METHOD(gather), METHOD(gatherv), METHOD(scatter), METHOD(scatterv), METHOD(alltoall),
    METHOD(alltoallv), METHOD(scan), METHOD(exscan), METHOD(barrier), {NULL, NULL, 0, NULL},
};
