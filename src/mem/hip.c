/*
 * What HIP has to itself: see gpu.h. The same source serves AMD's runtime and, through the map in hip_nvidia/, NVIDIA's.
 */
#include "mem/gpu.h"

#include <dlfcn.h>
#include <stdlib.h>

#include "core/log.h"
#include "hetmpi.h"

#if HIP_VERSION_MAJOR >= 6
#define memory_type type
#else
#define memory_type memoryType
#endif

const char *mem_backend(void)
{
    return "hip";
}

const char *gpu_vendor_name(void)
{
    return "amd";
}

int gpu_vendor_start(void)
{
    return HETMPI_SUCCESS;
}

/* HIP does not tell a device that was chosen from its default, number 0. */
bool gpu_vendor_chosen(int *device)
{
    return hipGetDevice(device) == hipSuccess && *device != 0;
}

int gpu_vendor_use(int device)
{
    (void)device;
    return HETMPI_SUCCESS;
}

int gpu_vendor_push(int device, struct gpu_scope *scope)
{
    hipError_t error = hipGetDevice(&scope->before);

    scope->context = NULL;
    if (error == hipSuccess && scope->before != device) {
        scope->context = scope;
        error = hipSetDevice(device);
    }
    return gpu_result(error, "making device %d current", device);
}

void gpu_leave(const struct gpu_scope *scope)
{
    if (scope->context)
        (void)hipSetDevice(scope->before);
}

void gpu_vendor_query(const void *ptr, struct gpu_pointer *out)
{
    hipPointerAttribute_t what;
    hipDeviceptr_t base = NULL;
    size_t bytes = 0;
    uint64_t id = 0;

    *out = (struct gpu_pointer){.known = false};
    if (hipPointerGetAttributes(&what, ptr) != hipSuccess) {
        (void)hipGetLastError();   /* plain host memory is an error before HIP 6 */
        return;
    }
    out->device = what.memory_type == hipMemoryTypeDevice || what.isManaged;
    out->known = out->device || what.memory_type == hipMemoryTypeHost;
    out->ordinal = what.device;
    if (!out->known)
        return;
    if (hipMemGetAddressRange(&base, &bytes, (hipDeviceptr_t)(uintptr_t)ptr) != hipSuccess ||
        hipPointerGetAttribute(&id, HIP_POINTER_ATTRIBUTE_BUFFER_ID, (hipDeviceptr_t)(uintptr_t)ptr) != hipSuccess)
        (void)hipGetLastError();
    out->base = (void *)base;
    out->bytes = bytes;
    out->id = id;
}

enum gpu_place gpu_vendor_place(const void *ptr)
{
    hipPointerAttribute_t what;

    if (hipPointerGetAttributes(&what, ptr) != hipSuccess) {
        (void)hipGetLastError();
        return GPU_PAGEABLE;
    }
    if (what.memory_type == hipMemoryTypeDevice || what.isManaged)
        return GPU_DEVICE;
    return what.memory_type == hipMemoryTypeHost ? GPU_PINNED : GPU_PAGEABLE;
}

int gpu_vendor_host_alloc(size_t bytes, void **ptr)
{
    return gpu_result(hipHostMalloc(ptr, bytes, hipHostMallocPortable | hipHostMallocMapped),
                      "%zu bytes of pinned host memory", bytes);
}

int gpu_vendor_host_free(void *ptr)
{
    return gpu_result(hipHostFree(ptr), "free of pinned host memory %p", ptr);
}

/* Of the runtime below HIP, which has loaded it: ROCm 5.6 and newer. */
int gpu_vendor_dmabuf(const void *ptr, size_t bytes, int *fd, uint64_t *offset)
{
    int (*export)(const void *, size_t, int *, uint64_t *) = NULL;
    void *hsa = dlopen("libhsa-runtime64.so.1", RTLD_NOW | RTLD_NOLOAD);
    int made = -1, result;

    if (hsa)
        *(void **)&export = dlsym(hsa, "hsa_amd_portable_export_dmabuf");
    if (!export) {
        if (hsa)
            dlclose(hsa);
        return err_set(HETMPI_ERR_UNSUPPORTED, "dma-buf: libhsa-runtime64 has no hsa_amd_portable_export_dmabuf (ROCm 5.6 or "
                       "newer is needed)");
    }
    result = export(ptr, bytes, &made, offset);
    dlclose(hsa);
    if (result)
        return err_set(HETMPI_ERR_DEVICE, "dma-buf: %zu bytes of memory of device %d at %p are not exported: HSA answers %d",
                       bytes, gpu_device(), ptr, result);
    *fd = made;
    return HETMPI_SUCCESS;
}

/* A NIC's writes go to the device's memory, past its caches, which every kernel begins by dropping. */
int gpu_vendor_flush(void)
{
    return HETMPI_SUCCESS;
}

/* hipLaunchHostFunc is declared by HIP 5 and missing in its library, so that the older call is used. */
struct callback { void (*function)(void *); void *data; };

static void run_callback(hipStream_t stream, hipError_t status, void *data)
{
    struct callback *callback = data;

    (void)stream;
    (void)status;
    callback->function(callback->data);
    free(callback);
}

int gpu_vendor_call_back(hipStream_t stream, void (*function)(void *), void *data)
{
    struct callback *callback = malloc(sizeof(*callback));
    hipError_t error;

    if (!callback)
        return err_set(HETMPI_ERR_MEMORY, "no memory for a host function on a stream");
    *callback = (struct callback){function, data};
    error = hipStreamAddCallback(stream, run_callback, callback, 0);
    if (error != hipSuccess)
        free(callback);
    return gpu_result(error, "a host function on a stream");
}

/*
 * A stream that waits keeps its hardware queue, and with it other streams of the same queue. Our own streams have another
 * priority than an application's, hence other queues, so that they go on.
 */
int gpu_vendor_wait_value(hipStream_t stream, void *word, uint64_t value)
{
    return gpu_result(hipStreamWaitValue64(stream, word, value, hipStreamWaitValueGte, UINT64_MAX),
                      "a stream's wait for a value at %p", word);
}

int gpu_vendor_write_value(hipStream_t stream, void *word, uint64_t value)
{
    return gpu_result(hipStreamWriteValue64(stream, word, value, 0), "a value written by a stream to %p", word);
}
