/*
 * The device runtime: one small interface that host.c, sim.c, cuda.c and hip.c implement. Exactly one of them is
 * linked (HETMPI_BACKEND), so these are plain functions, not a table.
 *
 * Every function returns HETMPI_SUCCESS or an enum hetmpi_error code after err_set() stored the message. Nothing
 * here calls MPI. Functions are thread-safe; those named *_async and the event calls never block.
 * The caller's current device is as it was when a call returns.
 */
#ifndef HETMPI_MEM_H
#define HETMPI_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "reduce/reduce.h"

typedef struct mem_stream mem_stream_t; /* an in-order queue of device work; NULL names the default stream */
typedef struct mem_event mem_event_t;   /* a point in a stream's work that can be polled */

enum mem_kind {
    MEM_HOST,       /* ordinary host memory: kernels may not touch it, copies may */
    MEM_HOST_PINNED,/* host memory registered for the device: kernels and copy engines may touch it directly */
    MEM_DEVICE,     /* device memory: the CPU may not touch it */
};

/* What a pointer is. base, bytes and id describe the whole allocation or registration (0 for plain host memory);
 * id is never used twice in a process, so a freed and re-allocated address shows as another buffer (0: the runtime does not
 * promise that for this memory). */
struct mem_pointer {
    enum mem_kind kind;
    void *base;
    size_t bytes;
    uint64_t id;
    int device;
};

/* Handle of a device allocation for another process: fixed size, plain bytes, sent as it is. */
#define MEM_IPC_BYTES 128
typedef struct { unsigned char bytes[MEM_IPC_BYTES]; } mem_ipc_t;

/* What the simulated runtime must know of the job; ignored by the others. vendor is "cpu", "nvidia" or "amd". */
struct mem_setup {
    const char *vendor;     /* claimed vendor of this rank */
    int device;             /* which device to use; -1: the runtime's default */
    int local_rank;         /* of this process on its node, which spreads processes over devices by default */
    double bandwidth;       /* bytes/s of the host link, each way; 0: unlimited */
    double peer_bandwidth;  /* bytes/s of each peer lane; 0: unlimited */
    double latency;         /* seconds added to each copy and kernel */
    const char *fault;      /* SIM_FAULT, "" for none */
};

/* Starts the runtime; called once, before all else, and cheap: no device is touched before the first call that
 * needs it. A machine without the device gives HETMPI_ERR_DEVICE from those, never a crash. */
int mem_init(const struct mem_setup *setup);
void mem_fini(void);                     /* ends streams and frees what is left; safe without mem_init */
const char *mem_backend(void);           /* "host", "sim", "cuda", "hip" */
const char *mem_vendor(void);            /* "cpu", "nvidia", "amd" */
bool mem_has_device(void);               /* false: all memory is host memory, work runs inline, events are done at once */
int mem_threads(void);                   /* CPU threads that do this rank's device work: they need cores too */
int mem_device(void);                    /* the device in use, -1: none */
/* Bytes of a pipeline's chunk: fewer do not pay for queueing its work, more gain nothing. */
void mem_chunk_limits(size_t *least, size_t *most);

/* Memory. mem_alloc gives device memory (host memory where mem_has_device() is false); at least 256-byte aligned. */
int mem_alloc(size_t bytes, void **ptr);
int mem_free(void *ptr);                 /* after the device's work on it, which may be later; NULL is fine */
int mem_host_alloc(size_t bytes, void **ptr);   /* pinned host memory */
int mem_host_free(void *ptr);
int mem_host_register(void *ptr, size_t bytes); /* pins existing host memory, a shared mapping too */
int mem_host_unregister(void *ptr);
int mem_query(const void *ptr, struct mem_pointer *out);   /* never fails for any address; no system call */

/* Memory that the CPU may not touch? NULL is none. */
static inline bool mem_on_device(const void *ptr)
{
    struct mem_pointer what;

    if (!ptr || !mem_has_device())
        return false;
    mem_query(ptr, &what);
    return what.kind == MEM_DEVICE;
}

/* Another process's device memory. Opening a handle of another vendor or of a freed allocation is
 * HETMPI_ERR_DEVICE with a message that says so. An opened mapping is MEM_DEVICE for all calls here. */
int mem_ipc_export(const void *ptr, mem_ipc_t *handle);    /* ptr: as returned by mem_alloc */
int mem_ipc_open(const mem_ipc_t *handle, void **ptr);
int mem_ipc_close(void *ptr);

/* A dma-buf through which a NIC reaches device memory: its descriptor, which the caller closes, and where in it ptr lies.
 * The NIC's driver may still refuse it. HETMPI_ERR_UNSUPPORTED: this runtime, or its driver, has none;
 * HETMPI_ERR_DEVICE: not for this memory. */
int mem_dmabuf(const void *ptr, size_t bytes, int *fd, uint64_t *offset);
/* What a NIC has written to device memory, and reported as written, is seen by device work that is queued from now on. */
int mem_flush_remote_writes(void);

/* Streams and events. A stream has one lane of work; different streams overlap. */
int mem_stream_create(mem_stream_t **stream);              /* for the library's own work */
int mem_stream_create_user(mem_stream_t **stream);         /* for an application: never holds up the library's own */
int mem_stream_destroy(mem_stream_t *stream);              /* finishes the work first */
int mem_stream_synchronize(mem_stream_t *stream);          /* blocks; reports an asynchronous error of the stream */
int mem_event_create(mem_event_t **event);
void mem_event_destroy(mem_event_t *event);
int mem_event_record(mem_event_t *event, mem_stream_t *stream);
int mem_event_query(mem_event_t *event, bool *done);       /* never blocks; an error of the recorded work is returned */
int mem_stream_wait_event(mem_stream_t *stream, mem_event_t *event);

/* Work on a stream; returns when queued. Any mix of memory kinds in copies; a kernel (mem_reduce_async) takes
 * MEM_DEVICE and MEM_HOST_PINNED operands only. */
int mem_copy_async(void *dst, const void *src, size_t bytes, mem_stream_t *stream);
int mem_set_async(void *dst, int byte, size_t bytes, mem_stream_t *stream);
/* *call, its srcs array and what `scale` points to (host memory) are copied. */
int mem_reduce_async(const struct red_call *call, mem_stream_t *stream);
/* The stream stores value at a word of pinned host memory after its earlier work (release order), or waits until
 * *word >= value (as unsigned numbers) before its later work; where all streams share one hardware queue the caller waits
 * until then. */
int mem_stream_write_value(mem_stream_t *stream, _Atomic uint64_t *word, uint64_t value);
int mem_stream_wait_value(mem_stream_t *stream, _Atomic uint64_t *word, uint64_t value);

/* Blocking copy between any two places. */
int mem_copy(void *dst, const void *src, size_t bytes);

#endif
