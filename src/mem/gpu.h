/*
 * Inside the device runtimes of real GPUs. CUDA and HIP offer the same calls under two names, so that one source serves
 * both (gpu_names.h). What differs between them is behind the gpu_vendor_ functions.
 *
 *   gpu.c          the device, its memory, what a pointer is, memory of other processes
 *   gpu_free.c     freeing memory while streams wait
 *   gpu_stream.c   streams, events, copies
 *   gpu_kernels.cu reductions, compiled by nvcc or hipcc
 *   cuda.c, hip.c  what one vendor has to itself: contexts, pointer attributes, values written and awaited by streams
 */
#ifndef HETMPI_MEM_GPU_H
#define HETMPI_MEM_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mem/common.h"
#include "mem/gpu_names.h"
#include "mem/mem.h"

/*
 * Between these two calls the rank's device is current in the calling thread; what was current before is so again
 * afterwards. gpu_enter finds the device at its first call: HETMPI_ERR_DEVICE where there is none.
 */
struct gpu_scope { int before; void *context; };
int gpu_enter(struct gpu_scope *scope);
void gpu_leave(const struct gpu_scope *scope);   /* cuda.c, hip.c */
int gpu_device(void);            /* the device in use; -1 as long as none was found */
bool gpu_one_queue(void);        /* all streams share one hardware queue: one that waits holds up all others */

/* What a call of the runtime's answered, as a code. For a failed one stores the message: what was tried, the runtime's
 * own words. */
int gpu_result(GPU(Error_t) answer, const char *what, ...) __attribute__((format(printf, 2, 3)));

/* An expression that gives a code, with the device current. */
#define GPU_WITHIN(code, expression)                                                                                  \
    do {                                                                                                              \
        struct gpu_scope scope_;                                                                                      \
        (code) = gpu_enter(&scope_);                                                                                  \
        if (!(code)) {                                                                                                \
            (code) = (expression);                                                                                    \
            gpu_leave(&scope_);                                                                                       \
        }                                                                                                             \
    } while (0)
/* One call of the runtime, as for gpu_result. */
#define GPU_CALL(code, call, ...) GPU_WITHIN(code, gpu_result(call, __VA_ARGS__))

void gpu_streams_clear(void);    /* gpu_stream.c: frees what it holds */

/* ---- gpu_free.c. The device is current in all but the last. */
int gpu_wait_value(GPU(Stream_t) stream, _Atomic uint64_t *word, uint64_t value);
int gpu_release(void *ptr, int (*release)(void *ptr));   /* now, or by a later call once no stream waits for a value */
void gpu_release_aside(void);                            /* what was put aside, if no stream waits */
void gpu_release_clear(void);

/* ---- cuda.c, hip.c */
struct gpu_pointer { bool known, device; void *base; size_t bytes; uint64_t id; int ordinal; };
const char *gpu_vendor_name(void);
bool gpu_vendor_chosen(int *device);           /* the application has made a device current in this thread */
int gpu_vendor_start(void);                    /* once, before any other of these */
int gpu_vendor_use(int device);                /* once: the device that gpu_vendor_push makes current */
int gpu_vendor_push(int device, struct gpu_scope *scope);   /* gpu_leave ends it */
void gpu_vendor_query(const void *ptr, struct gpu_pointer *out);
enum gpu_place { GPU_PAGEABLE, GPU_PINNED, GPU_DEVICE };
enum gpu_place gpu_vendor_place(const void *ptr);   /* the same, for copies: less and faster */
int gpu_vendor_host_alloc(size_t bytes, void **ptr);
int gpu_vendor_host_free(void *ptr);
int gpu_vendor_dmabuf(const void *ptr, size_t bytes, int *fd, uint64_t *offset);   /* as mem_dmabuf */
int gpu_vendor_flush(void);                    /* as mem_flush_remote_writes */
int gpu_vendor_call_back(GPU(Stream_t) stream, void (*function)(void *), void *data);
int gpu_vendor_write_value(GPU(Stream_t) stream, void *word, uint64_t value);
int gpu_vendor_wait_value(GPU(Stream_t) stream, void *word, uint64_t value);

#endif
