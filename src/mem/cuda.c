/*
 * What CUDA has to itself: see gpu.h. The driver's entry points are looked up when the device is first used, so that the
 * library loads, and says what is missing, on a machine without a driver.
 */
#include "mem/gpu.h"

#include <cuda.h>
#include <unistd.h>

#include "core/log.h"
#include "hetmpi.h"

static struct {
    CUresult (*ctx_get)(CUcontext *);
    CUresult (*ctx_push)(CUcontext);
    CUresult (*ctx_pop)(CUcontext *);
    CUresult (*retain)(CUcontext *, CUdevice);
    CUresult (*attributes)(unsigned, CUpointer_attribute *, void **, CUdeviceptr);
    CUresult (*device_attribute)(int *, CUdevice_attribute, CUdevice);
    CUresult (*flush)(CUflushGPUDirectRDMAWritesTarget, CUflushGPUDirectRDMAWritesScope);
    CUresult (*export_range)(void *, CUdeviceptr, size_t, CUmemRangeHandleType, unsigned long long);
    CUresult (*write_value)(CUstream, CUdeviceptr, cuuint64_t, unsigned);
    CUresult (*wait_value)(CUstream, CUdeviceptr, cuuint64_t, unsigned);
} driver;

static CUcontext primary;
static int writes_seen;   /* by whom, without a flush: CU_GPU_DIRECT_RDMA_WRITES_ORDERING_* */

const char *mem_backend(void)
{
    return "cuda";
}

const char *gpu_vendor_name(void)
{
    return "nvidia";
}

static int look_up(const char *name, void *entry)
{
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    cudaError_t error = cudaGetDriverEntryPointByVersion(name, entry, 12000, cudaEnableDefault, &found);

    if (error != cudaSuccess)
        return gpu_result(error, "looking up %s in the driver", name);
    if (found != cudaDriverEntryPointSuccess)
        return err_set(HETMPI_ERR_DEVICE, "the driver has no %s: it is older than CUDA 12", name);
    return HETMPI_SUCCESS;
}

int gpu_vendor_start(void)
{
    static const struct { const char *name; void *entry; } entries[] = {
        {"cuCtxGetCurrent", &driver.ctx_get}, {"cuCtxPushCurrent", &driver.ctx_push},
        {"cuCtxPopCurrent", &driver.ctx_pop}, {"cuDevicePrimaryCtxRetain", &driver.retain},
        {"cuPointerGetAttributes", &driver.attributes}, {"cuDeviceGetAttribute", &driver.device_attribute},
        {"cuMemGetHandleForAddressRange", &driver.export_range},
        {"cuFlushGPUDirectRDMAWrites", &driver.flush}, {"cuStreamWriteValue64", &driver.write_value},
        {"cuStreamWaitValue64", &driver.wait_value},
    };
    int code = HETMPI_SUCCESS;

    for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]) && !code; i++)
        code = look_up(entries[i].name, entries[i].entry);
    return code;
}

/* cudaSetDevice makes a context current, and so does whatever else an application has done with a device. */
bool gpu_vendor_chosen(int *device)
{
    CUcontext current = NULL;

    return driver.ctx_get(&current) == CUDA_SUCCESS && current && cudaGetDevice(device) == cudaSuccess;
}

/* The context that the runtime uses, kept until the process ends. */
int gpu_vendor_use(int device)
{
    CUresult result = driver.retain(&primary, device);

    (void)driver.device_attribute(&writes_seen, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING, device);
    return result == CUDA_SUCCESS ? HETMPI_SUCCESS
                                  : err_set(HETMPI_ERR_DEVICE, "device %d cannot be used (the driver answers %d): it is "
                                            "full, or its mode does not allow another process", device, (int)result);
}

/* Work of ours must not end an application's stream capture in any mode. */
static enum cudaStreamCaptureMode capture_mode(enum cudaStreamCaptureMode mode)
{
    (void)cudaThreadExchangeStreamCaptureMode(&mode);
    return mode;
}

int gpu_vendor_push(int device, struct gpu_scope *scope)
{
    CUcontext current = NULL;

    (void)device;
    (void)driver.ctx_get(&current);
    scope->context = NULL;
    if (current != primary) {
        if (driver.ctx_push(primary) != CUDA_SUCCESS)
            return err_set(HETMPI_ERR_DEVICE, "the context of device %d cannot be made current", device);
        scope->context = primary;
    }
    scope->before = (int)capture_mode(cudaStreamCaptureModeRelaxed);
    return HETMPI_SUCCESS;
}

void gpu_leave(const struct gpu_scope *scope)
{
    CUcontext ours;

    (void)capture_mode((enum cudaStreamCaptureMode)scope->before);
    if (scope->context)
        (void)driver.ctx_pop(&ours);
}

/* An address that the driver does not know leaves all attributes zero. Ids are promised to be unique for memory of cudaMalloc
 * alone, not for that of pools and of address ranges that are mapped by hand. */
void gpu_vendor_query(const void *ptr, struct gpu_pointer *out)
{
    CUmemorytype type = 0;
    unsigned long long id = 0;
    CUdeviceptr base = 0;
    size_t bytes = 0;
    int ordinal = -1, managed = 0, whole = 0;
    CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_BUFFER_ID,
                                   CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                                   CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                   CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE};
    void *values[] = {&type, &id, &base, &bytes, &ordinal, &managed, &whole};
    CUresult result = driver.attributes(sizeof(which) / sizeof(which[0]), which, values, (CUdeviceptr)(uintptr_t)ptr);

    *out = (struct gpu_pointer){.known = result == CUDA_SUCCESS && type != 0};
    if (!out->known)
        return;
    out->device = type == CU_MEMORYTYPE_DEVICE || managed;
    out->base = (void *)(uintptr_t)base;
    out->bytes = bytes;
    out->id = out->device && !whole ? 0 : id;
    out->ordinal = ordinal;
}

enum gpu_place gpu_vendor_place(const void *ptr)
{
    CUmemorytype type = 0;
    int managed = 0;
    CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED};
    void *values[] = {&type, &managed};

    if (driver.attributes(2, which, values, (CUdeviceptr)(uintptr_t)ptr) != CUDA_SUCCESS || type == 0)
        return GPU_PAGEABLE;
    return type == CU_MEMORYTYPE_DEVICE || managed ? GPU_DEVICE : GPU_PINNED;
}

int gpu_vendor_host_alloc(size_t bytes, void **ptr)
{
    return gpu_result(cudaHostAlloc(ptr, bytes, cudaHostAllocPortable | cudaHostAllocMapped),
                      "%zu bytes of pinned host memory", bytes);
}

int gpu_vendor_host_free(void *ptr)
{
    return gpu_result(cudaFreeHost(ptr), "free of pinned host memory %p", ptr);
}

/* The driver exports whole pages. */
int gpu_vendor_dmabuf(const void *ptr, size_t bytes, int *fd, uint64_t *offset)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)ptr;
    uintptr_t first = at - at % page, end = at + bytes + (page - 1) - (at + bytes + (page - 1)) % page;
    int supported = 0, made = -1;
    CUresult result;

    if (driver.device_attribute(&supported, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, gpu_device()) != CUDA_SUCCESS ||
        !supported)
        return err_set(HETMPI_ERR_UNSUPPORTED, "dma-buf: the driver of device %d exports none (NVIDIA's open kernel modules "
                       "are needed, and Linux 5.12 or newer)", gpu_device());
    result = driver.export_range(&made, first, end - first, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
    if (result != CUDA_SUCCESS)
        return err_set(HETMPI_ERR_DEVICE, "dma-buf: %zu bytes of memory of device %d at %p are not exported: the driver "
                       "answers %d", bytes, gpu_device(), ptr, (int)result);
    *fd = made;
    *offset = at - first;
    return HETMPI_SUCCESS;
}

/* Where the device orders a NIC's writes before what it is told later, there is nothing to do. */
int gpu_vendor_flush(void)
{
    CUresult result;

    if (writes_seen >= CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER)
        return HETMPI_SUCCESS;
    result = driver.flush(CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX, CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER);
    return result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_SUPPORTED
               ? HETMPI_SUCCESS : err_set(HETMPI_ERR_DEVICE, "what the NIC wrote cannot be flushed to device %d: the driver "
                                          "answers %d", gpu_device(), (int)result);
}

int gpu_vendor_call_back(cudaStream_t stream, void (*function)(void *), void *data)
{
    return gpu_result(cudaLaunchHostFunc(stream, function, data), "a host function on a stream");
}

int gpu_vendor_write_value(cudaStream_t stream, void *word, uint64_t value)
{
    CUresult result = driver.write_value((CUstream)stream, (CUdeviceptr)(uintptr_t)word, value,
                                         CU_STREAM_WRITE_VALUE_DEFAULT);

    return result == CUDA_SUCCESS ? HETMPI_SUCCESS
                                  : err_set(HETMPI_ERR_DEVICE, "a value written by a stream to %p: the driver answers %d",
                                            word, (int)result);
}

int gpu_vendor_wait_value(cudaStream_t stream, void *word, uint64_t value)
{
    CUresult result = driver.wait_value((CUstream)stream, (CUdeviceptr)(uintptr_t)word, value, CU_STREAM_WAIT_VALUE_GEQ);

    return result == CUDA_SUCCESS ? HETMPI_SUCCESS
                                  : err_set(HETMPI_ERR_DEVICE, "a stream's wait for a value at %p: the driver answers %d",
                                            word, (int)result);
}
