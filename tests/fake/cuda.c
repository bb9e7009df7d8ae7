/* What CUDA has to itself: contexts, captures, and the driver's calls that the runtime looks up. See fake.h. */
#include "fake.h"

#include <cuda.h>
#include <string.h>

#include "core/log.h"
#include "mem/sim.h"

#define DEVICES_MOST 16
#define CONTEXTS_DEEP 16

struct CUctx_st { int device; };

static struct CUctx_st primary[DEVICES_MOST];
static _Thread_local struct { CUcontext stack[CONTEXTS_DEEP]; int depth; } contexts;
static _Thread_local enum cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;
static cudaStream_t captured;        /* at most one, for as long as the process lives */
static enum cudaStreamCaptureMode captured_mode;
static _Thread_local bool captures;  /* this thread began it */

const char *fake_vendor(void)
{
    return "nvidia";
}

const char *fake_queues_setting(void)
{
    return "CUDA_DEVICE_MAX_CONNECTIONS";
}

static CUcontext context_of(int device)
{
    primary[device].device = device;
    return &primary[device];
}

void fake_make_current(int device)
{
    if (contexts.depth == 0)
        contexts.depth = 1;
    contexts.stack[contexts.depth - 1] = context_of(device);
}

int fake_current(void)
{
    return contexts.depth > 0 ? contexts.stack[contexts.depth - 1]->device : 0;
}

bool fake_forbidden(void)
{
    if (contexts.depth == 0)
        fake_make_current(0);   /* as any call of the runtime's does */
    return captured && thread_mode != cudaStreamCaptureModeRelaxed &&
           (captured_mode == cudaStreamCaptureModeGlobal || (captured_mode == cudaStreamCaptureModeThreadLocal && captures));
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    if (captured || !stream)
        return fake_wrong(cudaErrorStreamCaptureUnsupported, "another stream is being captured, or this one cannot be");
    captured_mode = mode;
    captures = true;
    captured = stream;
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
    *status = captured && stream == captured ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
    enum cudaStreamCaptureMode before = thread_mode;

    thread_mode = *mode;
    *mode = before;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr which, int device)
{
    if (which != cudaDevAttrMultiProcessorCount || device < 0 || device >= fake_devices())
        return fake_wrong(cudaErrorInvalidValue, "no such attribute or device");
    *value = 2;
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **ptr, size_t bytes, unsigned flags)
{
    cudaError_t error = fake_enter();

    (void)flags;
    return error != cudaSuccess ? error : fake_error(mem_host_alloc(bytes, ptr));
}

cudaError_t cudaFreeHost(void *ptr)
{
    cudaError_t error = fake_enter();

    if (error != cudaSuccess)
        return error;
    fake_wait_idle();
    return fake_error(mem_host_free(ptr));
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data)
{
    cudaError_t error = fake_enter();

    return error != cudaSuccess ? error
                                : fake_error(fake_queued(stream, sim_call_async(OP_CALL, function, data, fake_lane(stream))));
}

/*
 * The driver
 */

static CUresult context_get(CUcontext *out)
{
    *out = contexts.depth > 0 ? contexts.stack[contexts.depth - 1] : NULL;
    return CUDA_SUCCESS;
}

static CUresult context_push(CUcontext context)
{
    if (!context || contexts.depth == CONTEXTS_DEEP)
        return CUDA_ERROR_INVALID_CONTEXT;
    contexts.stack[contexts.depth++] = context;
    return CUDA_SUCCESS;
}

static CUresult context_pop(CUcontext *out)
{
    if (contexts.depth == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    *out = contexts.stack[--contexts.depth];
    return CUDA_SUCCESS;
}

static CUresult context_retain(CUcontext *out, CUdevice device)
{
    if (device < 0 || device >= fake_devices() || device >= DEVICES_MOST)
        return CUDA_ERROR_INVALID_DEVICE;
    *out = context_of(device);
    return CUDA_SUCCESS;
}

static CUresult attribute(CUpointer_attribute which, const struct mem_pointer *what, void *out)
{
    bool known = what->base;
    int managed = 0, whole = what->kind == MEM_DEVICE;
    CUmemorytype type = !known ? 0 : what->kind == MEM_DEVICE ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;

    switch (which) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE: memcpy(out, &type, sizeof(type)); break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID: memcpy(out, &what->id, sizeof(what->id)); break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: memcpy(out, &what->base, sizeof(what->base)); break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE: memcpy(out, &what->bytes, sizeof(what->bytes)); break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: memcpy(out, &what->device, sizeof(what->device)); break;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: memcpy(out, &whole, sizeof(whole)); break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED: memcpy(out, &managed, sizeof(managed)); break;
    default: return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

static CUresult pointer_attributes(unsigned n, CUpointer_attribute *which, void **values, CUdeviceptr ptr)
{
    struct mem_pointer what;
    CUresult result = CUDA_SUCCESS;

    if (contexts.depth == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    mem_query((void *)(uintptr_t)ptr, &what);
    for (unsigned i = 0; i < n && result == CUDA_SUCCESS; i++)
        result = attribute(which[i], &what, values[i]);
    return result;
}

/* The device exports no dma-buf: a memfd could not begin in the middle of another. */
static CUresult device_attribute(int *value, CUdevice_attribute which, CUdevice device)
{
    if ((which != CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED && which != CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING) ||
        device < 0 || device >= fake_devices())
        return CUDA_ERROR_INVALID_VALUE;
    *value = 0;   /* no dma-buf; a NIC's writes are ordered by a flush alone */
    return CUDA_SUCCESS;
}

static CUresult flush(CUflushGPUDirectRDMAWritesTarget target, CUflushGPUDirectRDMAWritesScope scope)
{
    return target == CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX && scope == CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER
               ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult export_range(void *handle, CUdeviceptr ptr, size_t bytes, CUmemRangeHandleType type, unsigned long long flags)
{
    (void)handle;
    (void)ptr;
    (void)bytes;
    (void)type;
    (void)flags;
    return CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult value_result(CUstream stream, int code)
{
    return fake_queued((cudaStream_t)stream, code) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult write_value(CUstream stream, CUdeviceptr word, cuuint64_t value, unsigned flags)
{
    if (flags != CU_STREAM_WRITE_VALUE_DEFAULT || fake_enter() != cudaSuccess)
        return CUDA_ERROR_INVALID_VALUE;
    return value_result(stream, mem_stream_write_value(fake_lane((cudaStream_t)stream), (void *)(uintptr_t)word, value));
}

static CUresult wait_value(CUstream stream, CUdeviceptr word, cuuint64_t value, unsigned flags)
{
    if (flags != CU_STREAM_WAIT_VALUE_GEQ || fake_enter() != cudaSuccess)
        return CUDA_ERROR_INVALID_VALUE;
    return value_result(stream, mem_stream_wait_value(fake_lane((cudaStream_t)stream), (void *)(uintptr_t)word, value));
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **entry, unsigned version, unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *found)
{
    static const struct { const char *name; void (*entry)(void); } entries[] = {
        {"cuCtxGetCurrent", (void (*)(void))context_get}, {"cuCtxPushCurrent", (void (*)(void))context_push},
        {"cuCtxPopCurrent", (void (*)(void))context_pop}, {"cuDevicePrimaryCtxRetain", (void (*)(void))context_retain},
        {"cuPointerGetAttributes", (void (*)(void))pointer_attributes},
        {"cuDeviceGetAttribute", (void (*)(void))device_attribute},
        {"cuMemGetHandleForAddressRange", (void (*)(void))export_range},
        {"cuFlushGPUDirectRDMAWrites", (void (*)(void))flush},
        {"cuStreamWriteValue64", (void (*)(void))write_value}, {"cuStreamWaitValue64", (void (*)(void))wait_value},
    };

    (void)version;
    (void)flags;
    *found = cudaDriverEntryPointSymbolNotFound;
    for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++)
        if (strcmp(symbol, entries[i].name) == 0) {
            memcpy(entry, &entries[i].entry, sizeof(entries[i].entry));
            *found = cudaDriverEntryPointSuccess;
        }
    return cudaSuccess;
}
