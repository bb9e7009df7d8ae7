/*
 * Stand-ins for the vendors' GPU runtimes, libcudart and libamdhip64, so that the library's back ends for GPUs run, as they
 * are, on a machine without one. They stand on the simulated device (src/mem/sim*.c, hidden inside): memory that the CPU
 * cannot touch, streams that are threads, handles for other processes.
 *
 *   gpu.c     the calls that both vendors have, written once as the back end writes them: GPU(Malloc)
 *   cuda.c, hip.c   what one vendor has to itself
 *   stream.c  streams on hardware queues, kernels, waiting for the device
 *   kernel.h  the language of kernels for a C++ compiler
 *   cuda/, hip/     headers: CUDA's, and what AMD's lack
 *
 * Like the real ones: freeing memory and the first launch of a kernel that was not loaded wait until the device is idle;
 * copies of pageable memory wait for the stream; with few hardware queues a stream that waits holds up others.
 *
 * Settings, from the environment:
 *   FAKE_GPU_DEVICES=n      how many there are (2). A process uses the memory of one of them
 *   FAKE_GPU_LATENCY=s      seconds that a copy or kernel takes at least
 *   FAKE_GPU_FAULT=list     as HETMPI_SIM_FAULT
 *   FAKE_GPU_JITTER=us      each piece of work begins late, by a random time up to this
 *   FAKE_GPU_WRONG=events   events are done when asked, whatever their stream does: copies are not awaited
 *   FAKE_GPU_WRONG=kernels  kernels run when launched, whatever their stream has still to do. Tests must see both
 *   CUDA_DEVICE_MAX_CONNECTIONS=n, GPU_MAX_HW_QUEUES=n   hardware queues; else each stream has its own
 */
#ifndef FAKE_H
#define FAKE_H

#include <stdbool.h>
#include <stddef.h>

#include "mem/gpu_names.h"
#include "mem/mem.h"

/* ---- gpu.c. `code` is of the simulated device; its message becomes part of GPU(GetErrorString). */
GPU(Error_t) fake_error(int code);
GPU(Error_t) fake_wrong(GPU(Error_t) error, const char *why);
int fake_devices(void);
int fake_setting(const char *name, int otherwise);
bool fake_plants(const char *fault);        /* FAKE_GPU_WRONG */
/* Begins a call that needs a device: starts the simulated one, checks that it is the thread's current one. */
GPU(Error_t) fake_enter(void);

/* ---- cuda.c, hip.c */
const char *fake_vendor(void);
const char *fake_queues_setting(void);      /* the vendor's variable for the number of hardware queues */
int fake_current(void);                     /* device of this thread */
void fake_make_current(int device);
bool fake_forbidden(void);                  /* a stream capture forbids calls that are not the stream's work */

/* ---- stream.c */
struct fake_stream;
int fake_start(void);        /* the stream that NULL names, with its thread: a runtime has its threads from the start */
struct fake_stream *fake_stream_of(GPU(Stream_t) stream);
mem_stream_t *fake_lane(GPU(Stream_t) stream);        /* the queue for one piece of its work */
int fake_queued(GPU(Stream_t) stream, int code);      /* work was appended to the lane, with this code */
int fake_synchronize(GPU(Stream_t) stream);
void fake_wait_idle(void);                            /* for all that is queued now */

typedef void (*fake_kernel)(void);
struct fake_grid { unsigned blocks, threads; };
int fake_launch(fake_kernel kernel, void (*run)(fake_kernel kernel, struct fake_grid grid, void *argument),
                struct fake_grid grid, const void *argument, size_t bytes, void *stream);

#endif
