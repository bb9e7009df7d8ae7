/*
 * hetmpi: collectives for MPI jobs whose ranks sit on GPUs of different vendors.
 *
 * The calls are MPI's own, MPI_ replaced by hetmpi_, on the application's own communicators; buffers may lie in host
 * memory or in the memory of the device that this copy of the library was built for. What is not said here is as in
 * the MPI standard (4.0): arguments, MPI_IN_PLACE, completion, error handlers, thread levels.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef HETMPI_H
#define HETMPI_H

#include <stddef.h>
#include <stdint.h>

#include <mpi.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HETMPI_VERSION_MAJOR 0
#define HETMPI_VERSION_MINOR 1
#define HETMPI_VERSION_PATCH 0

/*
 * Errors
 *
 * Every call returns HETMPI_SUCCESS or one of these. An error that belongs to a communicator also goes through its MPI
 * error handler: with MPI's default, MPI_ERRORS_ARE_FATAL, the program stops with the message; with MPI_ERRORS_RETURN
 * (or a handler that returns) the call returns the code. The handler gets an MPI error code of hetmpi's own, for which
 * MPI_Error_string gives the message. Wrong arguments are found before anything is changed.
 *
 * Nonblocking and persistent calls report what is found later from hetmpi_wait and its kin; on_stream calls from
 * hetmpi_comm_error and from the next call on that communicator.
 */
enum hetmpi_error {
    HETMPI_SUCCESS = 0,
    HETMPI_ERR_ARG,          /* an argument is wrong in a way that no other code names */
    HETMPI_ERR_TYPE,         /* data type not supported */
    HETMPI_ERR_OP,           /* operation not supported, or not for this type */
    HETMPI_ERR_COUNT,        /* count out of range */
    HETMPI_ERR_ROOT,         /* root is not a rank of the communicator */
    HETMPI_ERR_RANK,         /* peer is not a rank of the communicator */
    HETMPI_ERR_TAG,          /* tag out of range */
    HETMPI_ERR_BUFFER,       /* NULL buffer with data, or overlapping buffers */
    HETMPI_ERR_MISMATCH,     /* the ranks called different things; the communicator stays usable */
    HETMPI_ERR_TIMEOUT,      /* nothing happened for the time set; the communicator is unusable */
    HETMPI_ERR_PEER,         /* a rank of the communicator died; the communicator is unusable */
    HETMPI_ERR_DEVICE,       /* the device runtime failed, or there is no device */
    HETMPI_ERR_MPI,          /* a call of the MPI library failed */
    HETMPI_ERR_MEMORY,       /* out of memory */
    HETMPI_ERR_CONFIG,       /* a setting is unknown, wrong, or differs between ranks */
    HETMPI_ERR_UNSUPPORTED,  /* right, but not possible here */
    HETMPI_ERR_STATE,        /* call out of order (MPI not initialised, request active, ...) */
    HETMPI_ERR_ABORTED,      /* hetmpi_comm_abort was called */
    HETMPI_ERR_TRUNCATE,     /* message longer than the receive buffer */
    HETMPI_ERR_INTERNAL,     /* a fault of hetmpi itself: please report */
    HETMPI_ERR_LAST
};

/* A constant text for an error code, as "invalid count". Never NULL. Thread-safe. */
const char *hetmpi_error_string(int code);
/* This thread's last error message, with the facts: rank, call, values, what to do. "" if there was none. Valid until
 * the thread's next hetmpi call. */
const char *hetmpi_last_error(void);

/*
 * Data types and operations
 *
 * Types are MPI_Datatypes: the predefined C and fixed-width integer types, MPI_FLOAT, MPI_DOUBLE, MPI_C_FLOAT_COMPLEX,
 * MPI_C_DOUBLE_COMPLEX, MPI_C_BOOL, MPI_BYTE, MPI_AINT, MPI_OFFSET, MPI_COUNT, the Fortran names of the same formats,
 * and the types below, which MPI lacks. Everything else (derived types, MPI_LONG_DOUBLE, pairs) is HETMPI_ERR_TYPE.
 *
 *   type                         SUM PROD | MIN MAX | AVG | BAND BOR BXOR | LAND LOR LXOR
 *                                and premultiplied sums stand where SUM does
 *   signed, unsigned integers     yes       yes      yes    yes             yes
 *   fp16 bf16 fp8, float, double  yes       yes      yes    -               -
 *   complex                       yes       -        yes    -               -
 *   MPI_C_BOOL                    -         -        -      -               yes
 *   MPI_BYTE                      -         -        -      yes             -
 *   MPI_CHAR, MPI_WCHAR           moved, never reduced
 * Every other pair, and user-defined operations, are HETMPI_ERR_OP.
 *
 * Arithmetic. Integers wrap (two's complement). fp16, bf16 and fp8 are accumulated in fp32 inside an island and rounded
 * once, to nearest even; between islands partial results travel in the element's type, or as fp32 with the setting
 * WIRE_PRECISION=exact. Where several nodes have several islands each, the islands of a node are joined first, and what
 * that gives is rounded again unless exact. MIN and MAX propagate NaN whatever rank holds it, and order -0 below +0. AVG
 * is the sum, then one division by the number of ranks; integers truncate toward zero. NaN results are one quiet NaN per
 * format. Every rank gets the same bits, and the same call with the same settings gives them again.
 *
 * fp8. The OCP formats and the FNUZ formats give the same bytes other values, and nothing converts between them: ranks
 * that name types of different families in one call get HETMPI_ERR_MISMATCH, with a message that says so. Every rank,
 * of whatever vendor, can move and reduce both families, so a job agrees on one.
 *
 * The HETMPI_ types are expressions of type MPI_Datatype, HETMPI_AVG one of type MPI_Op: handles made on first use
 * (after MPI_Init; thread-safe), owned by hetmpi, freed in MPI_Finalize. The types can be used in MPI's own calls that
 * move data; HETMPI_AVG and premultiplied sums only in hetmpi's.
 */
enum hetmpi_own_type {
    HETMPI_OWN_FLOAT16, HETMPI_OWN_BFLOAT16, HETMPI_OWN_FLOAT8_E4M3, HETMPI_OWN_FLOAT8_E5M2,
    HETMPI_OWN_FLOAT8_E4M3_FNUZ, HETMPI_OWN_FLOAT8_E5M2_FNUZ
};
/* The handle of a type of hetmpi's own: what the names below stand for. */
MPI_Datatype hetmpi_own_datatype(enum hetmpi_own_type type);
/* The handle of HETMPI_AVG. */
MPI_Op hetmpi_own_op_avg(void);
#define HETMPI_FLOAT16 (hetmpi_own_datatype(HETMPI_OWN_FLOAT16))
#define HETMPI_BFLOAT16 (hetmpi_own_datatype(HETMPI_OWN_BFLOAT16))
#define HETMPI_FLOAT8_E4M3 (hetmpi_own_datatype(HETMPI_OWN_FLOAT8_E4M3))
#define HETMPI_FLOAT8_E5M2 (hetmpi_own_datatype(HETMPI_OWN_FLOAT8_E5M2))
#define HETMPI_FLOAT8_E4M3_FNUZ (hetmpi_own_datatype(HETMPI_OWN_FLOAT8_E4M3_FNUZ))
#define HETMPI_FLOAT8_E5M2_FNUZ (hetmpi_own_datatype(HETMPI_OWN_FLOAT8_E5M2_FNUZ))
#define HETMPI_AVG (hetmpi_own_op_avg())

/*
 * Makes and frees a premultiplied sum, an operation for reductions of one type. `type` is that type (the operation
 * fits every one: allreduce, reduce, reduce_scatter, reduce_scatter_block, scan, exscan). Each rank's elements are
 * multiplied by the scalar of the operation that this rank passes, then summed: the result has, bit for bit, what
 * MPI_SUM gives for a buffer of those products, each rounded once to the element's type, to nearest even (integers
 * wrap, complex numbers multiply as with MPI_PROD). So in a format narrower than fp32 the product is rounded before
 * the sum. The input buffers are not changed.
 *
 * The ranks' scalars may differ; their types must not. `scalar` points to one element, in host memory or in memory of
 * this rank's device; it is read before the call returns. HETMPI_ERR_OP: the type has no SUM, or a reduction of
 * another type is given the operation. Freed with hetmpi_op_free (HETMPI_ERR_OP for any other operation), at any time:
 * calls under way and persistent requests keep what they took from it. What is left is freed in MPI_Finalize.
 */
int hetmpi_op_create_premul_sum(const void *scalar, MPI_Datatype type, MPI_Op *op);
int hetmpi_op_free(MPI_Op *op);

/* Bytes of one element of a supported type. HETMPI_ERR_TYPE: it is not supported. */
int hetmpi_type_size(MPI_Datatype type, size_t *bytes);
/* Whether reductions of this type by this operation exist: *flag, by the table of types and operations. Any handles
 * may be asked about. */
int hetmpi_op_supported(MPI_Datatype type, MPI_Op op, int *flag);

/*
 * Requests and streams
 *
 * A request belongs to the caller until hetmpi_wait or its kin completed it (then it is HETMPI_REQUEST_NULL) or
 * hetmpi_request_free. One request must not be used by two threads at once.
 */
typedef struct hetmpi_request *hetmpi_request_t;
#define HETMPI_REQUEST_NULL ((hetmpi_request_t)0)
typedef void *hetmpi_stream_t; /* cudaStream_t, hipStream_t, or from hetmpi_stream_create; NULL: the default stream */

/*
 * Collectives
 *
 * Each X has four forms:
 *   hetmpi_X            blocking
 *   hetmpi_iX           nonblocking; completes in hetmpi_wait, hetmpi_test, ...
 *   hetmpi_X_on_stream  ordered after earlier and before later work of the stream; returns without waiting (on a rank
 *                       without a device streams run in the caller, which waits; so it does where the environment lets
 *                       all streams share one hardware queue, CUDA_DEVICE_MAX_CONNECTIONS=1). Needs a progress thread
 *                       (see the setting PROGRESS), else HETMPI_ERR_UNSUPPORTED
 *   hetmpi_X_init       persistent: hetmpi_start, wait, start again; collective, in the same order on all ranks.
 *                       Everything is checked, looked up and allocated here, once: the buffers must stay allocated (and
 *                       registered, where they are) until the request is freed
 *
 * All ranks of a communicator must make its collective calls in the same order, with matching count, type, op and
 * root, and MPI_IN_PLACE on all ranks or none where MPI asks for that (allreduce, allgather(v), alltoall(v)); ranks that
 * disagree all get HETMPI_ERR_MISMATCH, no receive buffer is written, and the communicator stays usable. Whether buffers
 * lie in host or device memory need not match. The first call on a communicator sets it up. Intercommunicators are
 * HETMPI_ERR_ARG.
 *
 * Blocking and nonblocking calls read the buffers from when they are called: device work that writes them must have
 * finished (synchronise its stream first, or use the on_stream form). The buffers stay the caller's and must not be
 * freed or written before completion. Counts are in elements, of any size; zero is legal, with NULL buffers too, and
 * still takes part in the order of calls. Buffers that overlap other than in place (MPI_IN_PLACE, or the same pointer
 * where noted) are HETMPI_ERR_BUFFER. Different communicators may be used from different threads at once when MPI was
 * initialised with MPI_THREAD_MULTIPLE.
 */
#define HETMPI_ARGS_(...) __VA_ARGS__
#define HETMPI_DECLARE_(name, args)                                                                 \
    int hetmpi_##name(HETMPI_ARGS_ args, MPI_Comm comm);                                            \
    int hetmpi_i##name(HETMPI_ARGS_ args, MPI_Comm comm, hetmpi_request_t *request);                \
    int hetmpi_##name##_on_stream(HETMPI_ARGS_ args, MPI_Comm comm, hetmpi_stream_t stream);        \
    int hetmpi_##name##_init(HETMPI_ARGS_ args, MPI_Comm comm, MPI_Info info, hetmpi_request_t *request);

/* The reduction of all ranks' `count` elements, on every rank. In place: sendbuf MPI_IN_PLACE, or equal to recvbuf. */
HETMPI_DECLARE_(allreduce, (const void *sendbuf, void *recvbuf, size_t count, MPI_Datatype type, MPI_Op op))
/* The reduction of all ranks' elements, on the root alone. recvbuf means something there only. In place at the root:
 * MPI_IN_PLACE or equal pointers. */
HETMPI_DECLARE_(reduce, (const void *sendbuf, void *recvbuf, size_t count, MPI_Datatype type, MPI_Op op, int root))
/* The root's buffer, on every rank. */
HETMPI_DECLARE_(bcast, (void *buffer, size_t count, MPI_Datatype type, int root))
/* Rank r's sendcount elements as block r of everybody's recvbuf. sendcount and sendtype must be recvcount and recvtype.
 * In place: sendbuf MPI_IN_PLACE, or this rank's block of recvbuf. */
HETMPI_DECLARE_(allgather, (const void *sendbuf, size_t sendcount, MPI_Datatype sendtype, void *recvbuf,
                            size_t recvcount, MPI_Datatype recvtype))
/* Block r (recvcount elements) of the reduction over all ranks, on rank r. In place: sendbuf MPI_IN_PLACE (input in
 * recvbuf, result in its first block; the rest of recvbuf stays as it was), or recvbuf this rank's block of sendbuf. */
HETMPI_DECLARE_(reduce_scatter_block, (const void *sendbuf, void *recvbuf, size_t recvcount, MPI_Datatype type,
                                       MPI_Op op))

/* The reduction over all ranks, cut into blocks of recvcounts[r] elements for rank r. All ranks must give the same
 * counts, and zeros are fine. In place: MPI_IN_PLACE (the result at the start of recvbuf), or recvbuf this rank's
 * block of sendbuf. */
HETMPI_DECLARE_(reduce_scatter, (const void *sendbuf, void *recvbuf, const size_t recvcounts[], MPI_Datatype type,
                                 MPI_Op op))

/*
 * Blocks
 *
 * Counts and displacements are in elements, one for each rank; what lies between the blocks of a receive buffer
 * is never written. Arrays of counts and displacements may be changed as soon as the call returned, in all forms; a
 * persistent call keeps those it was made with. Send and receive types must be the same, and so must the counts of two
 * ranks for what one sends to the other. In place is MPI_IN_PLACE as in MPI, or where a rank's own block stands in the
 * other buffer, that address. allgatherv: all ranks must give the same recvcounts (displacements may differ); a rank
 * that differs is found. gatherv, scatterv, alltoallv: two ranks whose counts differ are found, and both are named.
 */
/* Rank r's block, of recvcounts[r] elements, at displs[r] of everybody's recvbuf. */
HETMPI_DECLARE_(allgatherv, (const void *sendbuf, size_t sendcount, MPI_Datatype sendtype, void *recvbuf,
                             const size_t recvcounts[], const size_t displs[], MPI_Datatype recvtype))
/* Every rank's block, in rank order, in the root's recvbuf. */
HETMPI_DECLARE_(gather, (const void *sendbuf, size_t sendcount, MPI_Datatype sendtype, void *recvbuf,
                         size_t recvcount, MPI_Datatype recvtype, int root))
/* Every rank's block, of any length, at its place in the root's recvbuf. */
HETMPI_DECLARE_(gatherv, (const void *sendbuf, size_t sendcount, MPI_Datatype sendtype, void *recvbuf,
                          const size_t recvcounts[], const size_t displs[], MPI_Datatype recvtype, int root))
/* Block r of the root's sendbuf, on rank r. */
HETMPI_DECLARE_(scatter, (const void *sendbuf, size_t sendcount, MPI_Datatype sendtype, void *recvbuf,
                          size_t recvcount, MPI_Datatype recvtype, int root))
/* The block of any length that the root's sendbuf has for rank r, on rank r. */
HETMPI_DECLARE_(scatterv, (const void *sendbuf, const size_t sendcounts[], const size_t displs[],
                           MPI_Datatype sendtype, void *recvbuf, size_t recvcount, MPI_Datatype recvtype, int root))
/* Block r of rank q's sendbuf as block q of rank r's recvbuf, for all q and r. */
HETMPI_DECLARE_(alltoall, (const void *sendbuf, size_t sendcount, MPI_Datatype sendtype, void *recvbuf,
                           size_t recvcount, MPI_Datatype recvtype))
/* Blocks of any length, at any place, from every rank to every rank. */
HETMPI_DECLARE_(alltoallv, (const void *sendbuf, const size_t sendcounts[], const size_t sdispls[],
                            MPI_Datatype sendtype, void *recvbuf, const size_t recvcounts[], const size_t rdispls[],
                            MPI_Datatype recvtype))

/*
 * Prefix reductions
 *
 * Narrow formats are rounded once. HETMPI_AVG is HETMPI_ERR_OP. In place: MPI_IN_PLACE, or equal pointers.
 */
/* The reduction of the ranks up to this one, in rank order. */
HETMPI_DECLARE_(scan, (const void *sendbuf, void *recvbuf, size_t count, MPI_Datatype type, MPI_Op op))
/* The reduction of the ranks before this one, in rank order. recvbuf of rank 0 is not touched and may be NULL. */
HETMPI_DECLARE_(exscan, (const void *sendbuf, void *recvbuf, size_t count, MPI_Datatype type, MPI_Op op))

/*
 * Barrier
 *
 * Its forms are those of the other collectives.
 */
/* Ends when all ranks have entered it. */
int hetmpi_barrier(MPI_Comm comm);
int hetmpi_ibarrier(MPI_Comm comm, hetmpi_request_t *request);
int hetmpi_barrier_on_stream(MPI_Comm comm, hetmpi_stream_t stream);
int hetmpi_barrier_init(MPI_Comm comm, MPI_Info info, hetmpi_request_t *request);

/*
 * Point to point
 *
 * As in MPI, on a communicator that is set up: all its ranks have called hetmpi_comm_attach or a collective on it, else
 * HETMPI_ERR_STATE. The buffers of the two ends may lie in any memory, of host or device, whatever the vendors.
 * Messages match as in MPI, in the order of the calls, those on streams included; a rank may send to itself.
 * MPI_PROC_NULL, MPI_ANY_SOURCE, MPI_ANY_TAG and MPI_STATUS_IGNORE mean what they mean in MPI (the two ANYs not on
 * streams: HETMPI_ERR_RANK, HETMPI_ERR_TAG). A message of at most EAGER bytes (a setting) is sent whether or not its
 * receive is posted; the blocking send of a longer one may wait for it.
 *
 * A message longer than the receive's buffer is HETMPI_ERR_TRUNCATE at the receiver, with both sizes in the text;
 * nothing is written, and the communicator stays usable. Waiting for a message that never comes ends with
 * HETMPI_ERR_TIMEOUT, if a timeout is set, and then the communicator is unusable.
 *
 * Calls on a stream need MPI_THREAD_MULTIPLE (HETMPI_ERR_UNSUPPORTED otherwise). The stream waits until the message is
 * complete: two ranks that both send first on a stream and then receive wait for each other, unless both calls stand in
 * a group.
 */
/* Sends a message to rank dest. */
int hetmpi_send(const void *buf, size_t count, MPI_Datatype type, int dest, int tag, MPI_Comm comm);
/* Receives a message of at most `count` elements from rank source. */
int hetmpi_recv(void *buf, size_t count, MPI_Datatype type, int source, int tag, MPI_Comm comm, MPI_Status *status);
/* Begins to send; completes in hetmpi_wait, hetmpi_test, ... */
int hetmpi_isend(const void *buf, size_t count, MPI_Datatype type, int dest, int tag, MPI_Comm comm,
                 hetmpi_request_t *request);
/* Begins to receive; completes in hetmpi_wait, hetmpi_test, ... */
int hetmpi_irecv(void *buf, size_t count, MPI_Datatype type, int source, int tag, MPI_Comm comm,
                 hetmpi_request_t *request);
/* Sends when the stream has come to the call. */
int hetmpi_send_on_stream(const void *buf, size_t count, MPI_Datatype type, int dest, int tag, MPI_Comm comm,
                          hetmpi_stream_t stream);
/* Receives when the stream has come to the call. */
int hetmpi_recv_on_stream(void *buf, size_t count, MPI_Datatype type, int source, int tag, MPI_Comm comm,
                          hetmpi_stream_t stream);
/* Sends one message and receives another at once. No order of the ranks can deadlock. The buffers must not overlap. */
int hetmpi_sendrecv(const void *sendbuf, size_t sendcount, MPI_Datatype sendtype, int dest, int sendtag,
                    void *recvbuf, size_t recvcount, MPI_Datatype recvtype, int source, int recvtag, MPI_Comm comm,
                    MPI_Status *status);

/* Begins and ends a group of calls that start together. The nonblocking and on_stream calls (collectives, messages,
 * hetmpi_start) that this thread makes between the two start at the outermost end, in the order in which they were
 * made, and none of them waits for another: no order among them can deadlock. Their arguments are checked at once;
 * their requests can be completed after the end. A blocking call in between, or waiting for one of these requests, is
 * HETMPI_ERR_STATE. group_end returns the first error of starting a call on a stream; other calls have theirs in the
 * request. */
int hetmpi_group_start(void);
int hetmpi_group_end(void);

/*
 * Completion
 *
 * As in MPI. A status gets the message's source and tag (for sends and collectives MPI_ANY_SOURCE and
 * MPI_ANY_TAG), the error code in MPI_ERROR, and the number of bytes received for MPI_Get_count. MPI_STATUS_IGNORE and
 * MPI_STATUSES_IGNORE are fine.
 * The return value is the request's error. HETMPI_REQUEST_NULL and inactive persistent requests complete at once.
 */
/* Waits for a request. */
int hetmpi_wait(hetmpi_request_t *request, MPI_Status *status);
/* Looks whether a request is complete; *flag 1: it is, and is ended as by hetmpi_wait. */
int hetmpi_test(hetmpi_request_t *request, int *flag, MPI_Status *status);
/* Waits for all of n requests. */
int hetmpi_waitall(int n, hetmpi_request_t requests[], MPI_Status *statuses);
/* Looks whether all of n requests are complete; if not, none is changed. */
int hetmpi_testall(int n, hetmpi_request_t requests[], int *flag, MPI_Status *statuses);
/* Waits for one of n requests: *index, MPI_UNDEFINED when none is active. */
int hetmpi_waitany(int n, hetmpi_request_t requests[], int *index, MPI_Status *status);
/* Starts persistent requests. HETMPI_ERR_STATE: one is active, or not persistent. Starting allocates nothing and makes
 * no system call (but to wake a sleeping progress thread, where there is one; and where a short message lies in device
 * memory, what the device's runtime needs to copy it). */
int hetmpi_start(hetmpi_request_t *request);
int hetmpi_startall(int n, hetmpi_request_t requests[]);
/* Frees a persistent request, or gives up the handle of another. An active one completes first, in the background. */
int hetmpi_request_free(hetmpi_request_t *request);

/*
 * Communicators
 *
 * What hetmpi knows of a communicator is kept on the communicator itself.
 */
typedef struct hetmpi_comm_info {
    int ranks, rank;
    int nodes, node;
    int islands, island;            /* numbered by their lowest rank */
    int island_ranks, island_rank;
    int device;                     /* -1: none */
    int rails;                      /* links that carry this rank's traffic to other islands, those that MPI manages
                                     * counted as one; 0 with one island */
    char vendor[16];                /* "cpu", "nvidia", "amd" */
    char provider[16];              /* inside this rank's island: "shm", "ipc", "mpi"; "none" for an island of one */
    char wire[16];                  /* to the other islands: "shm", "mpi", "shm+mpi"; "none" with one island */
} hetmpi_comm_info_t;

/* Sets a communicator up now, with settings for it. Collective over comm, optional (info keys are the settings' names
 * in lower case: "timeout", "wire", "chunk", ...; MPI_INFO_NULL: none). Attaching again with no info does nothing;
 * with info it is HETMPI_ERR_STATE. */
int hetmpi_comm_attach(MPI_Comm comm, MPI_Info info);
/* Finishes what is pending on a communicator and frees what hetmpi holds for it (so does MPI_Comm_free). Collective. A
 * rank that died or does not come is an error here too; a communicator with such a rank stays unusable, detached or
 * not. */
int hetmpi_comm_detach(MPI_Comm comm);
/* Tells the islands, wires and so on of a communicator. Sets it up if need be (then collective). */
int hetmpi_comm_info(MPI_Comm comm, hetmpi_comm_info_t *info);
/* Ends the use of a communicator. From any thread, on any rank, whatever the thread level: all pending and later calls
 * on comm end with HETMPI_ERR_ABORTED, on every rank of this node at once, elsewhere when they next hear of this rank
 * (below MPI_THREAD_MULTIPLE from the thread that makes its hetmpi calls, if this is another). */
int hetmpi_comm_abort(MPI_Comm comm);
/* The error that ended a communicator's use (of an on_stream call, say). HETMPI_SUCCESS: none. Never collective. */
int hetmpi_comm_error(MPI_Comm comm, int *error);

/*
 * Memory and streams
 *
 * The same on every backend, so that one program text runs on all. Before MPI_Init too.
 */
typedef enum { HETMPI_MEM_HOST, HETMPI_MEM_DEVICE } hetmpi_mem_t; /* pinned host memory; memory of this rank's device */

/* Allocates memory of the host (pinned) or of the device; of the host where there is no device. bytes 0: *ptr is NULL. */
int hetmpi_malloc(size_t bytes, hetmpi_mem_t where, void **ptr);
/* Frees what hetmpi_malloc gave; NULL is fine. */
int hetmpi_free(void *ptr);
/* Copies between any two places that do not overlap; blocking. */
int hetmpi_memcpy(void *dst, const void *src, size_t bytes);
/* Sets bytes in any place; blocking. */
int hetmpi_memset(void *dst, int byte, size_t bytes);
/* Tells where memory is: HETMPI_MEM_DEVICE where the CPU may not touch ptr. Any address may be asked about. */
int hetmpi_mem_where(const void *ptr, hetmpi_mem_t *where);
/* Makes a stream. */
int hetmpi_stream_create(hetmpi_stream_t *stream);
/* Ends a stream; its work is finished first. */
int hetmpi_stream_destroy(hetmpi_stream_t stream);
/* Waits for the work of a stream. */
int hetmpi_stream_synchronize(hetmpi_stream_t stream);
/* Registers host memory with the device now, and ends that. Optional: otherwise it happens at the first use. */
int hetmpi_register(void *ptr, size_t bytes);
int hetmpi_deregister(void *ptr);

/*
 * Information
 *
 * What the library says of itself and of its settings.
 */
/* The version of the library, as "0.1.0". */
const char *hetmpi_version(void);
/* One line on how the library was built: backend, wires, providers, MPI, compiler. */
const char *hetmpi_build_info(void);
/* The process's value of a setting, by its name ("TIMEOUT"), as it would be written. HETMPI_ERR_ARG: no such setting, or
 * the text is longer than bytes; HETMPI_ERR_CONFIG: the settings are wrong. */
int hetmpi_setting(const char *name, char *text, size_t bytes);
/* The MPI error code that error handlers get for one of hetmpi's. MPI_Error_string gives this process's last message of
 * that code. HETMPI_SUCCESS: MPI_SUCCESS; while MPI is not there: MPI_ERR_OTHER. */
int hetmpi_mpi_code(int code);

#ifdef __cplusplus
}
#endif
#endif
