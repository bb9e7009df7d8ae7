/* The device of this rank, its memory, and that of other processes: see gpu.h. */
#include "mem/gpu.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/log.h"
#include "hetmpi.h"

#define MAGIC 0x7570676970746568ull   /* of a handle */

static struct {
    pthread_mutex_t lock;
    _Atomic int device;          /* in use; -1: not found yet */
    bool started;
    int wanted;                  /* setting DEVICE, -1: none */
    int local_rank;
    bool one_queue;
} gpu = {.lock = PTHREAD_MUTEX_INITIALIZER, .device = -1, .wanted = -1};

struct ipc_handle {
    uint64_t magic, id, bytes;
    int32_t pid, device;
    char vendor[8];
    GPU(IpcMemHandle_t) memory;
};
_Static_assert(sizeof(struct ipc_handle) <= MEM_IPC_BYTES, "the handle does not fit");

int gpu_result(GPU(Error_t) answer, const char *what, ...)
{
    char text[256];
    va_list args;

    if (answer == GPU(Success))
        return HETMPI_SUCCESS;
    va_start(args, what);
    vsnprintf(text, sizeof(text), what, args);
    va_end(args);
    (void)GPU(GetLastError)();   /* it would be reported again by an unrelated call of the application */
    return err_set(answer == GPU(ErrorMemoryAllocation) ? HETMPI_ERR_MEMORY : HETMPI_ERR_DEVICE, "%s: %s answers %d (%s)",
                   text, GPU_NAME, (int)answer, GPU(GetErrorString)(answer));
}

/* The device of the setting, or that the application made current in this thread, or by the rank on the node. */
static int find_device(int *device)
{
    int count = 0;
    int code = gpu_result(GPU(GetDeviceCount)(&count), "no %s device can be used (is a GPU in this machine, and its driver "
                          "loaded? ranks without a GPU need a library built with HETMPI_BACKEND=host)", gpu_vendor_name());

    if (code)
        return code;
    if (count == 0)
        return err_set(HETMPI_ERR_DEVICE, "this machine has no %s device that this process may see (ranks without a GPU "
                       "need a library built with HETMPI_BACKEND=host)", gpu_vendor_name());
    if (gpu.wanted >= count)
        return err_set(HETMPI_ERR_CONFIG, "DEVICE=%d: this process sees %d devices, numbered from 0", gpu.wanted, count);
    code = gpu_vendor_start();
    if (code)
        return code;
    *device = gpu.wanted;
    if (*device < 0 && !gpu_vendor_chosen(device))
        *device = gpu.local_rank % count;
    return gpu_vendor_use(*device);
}

static int load_kernels(int device)
{
    struct gpu_scope scope;
    int code = gpu_vendor_push(device, &scope);

    if (code)
        return code;
    code = gpu_result(gpu_kernels_load(), "loading the library's kernels to device %d (is it older than those the library "
                      "was built for?)", device);
    gpu_leave(&scope);
    return code;
}

int gpu_device(void)
{
    return atomic_load_explicit(&gpu.device, memory_order_acquire);
}

int gpu_enter(struct gpu_scope *scope)
{
    int device = gpu_device(), code = HETMPI_SUCCESS;

    if (device < 0) {
        pthread_mutex_lock(&gpu.lock);
        device = gpu_device();
        if (device < 0) {
            code = find_device(&device);
            if (!code)
                code = load_kernels(device);
            if (!code)
                atomic_store_explicit(&gpu.device, device, memory_order_release);
        }
        pthread_mutex_unlock(&gpu.lock);
        if (code)
            return code;
    }
    return gpu_vendor_push(device, scope);
}

bool gpu_one_queue(void)
{
    return gpu.one_queue;
}

int mem_init(const struct mem_setup *setup)
{
    const char *queues = getenv(GPU_QUEUES);

    gpu.wanted = setup->device;
    gpu.local_rank = setup->local_rank;
    gpu.one_queue = queues && strcmp(queues, "1") == 0;
    gpu.started = true;
    return HETMPI_SUCCESS;
}

/* At the end of the process the vendor's runtime may be gone already, so that its memory is left to it. */
void mem_fini(void)
{
    gpu_streams_clear();
    gpu_release_clear();
}

const char *mem_vendor(void)
{
    return gpu_vendor_name();
}

bool mem_has_device(void)
{
    return gpu.started;
}

int mem_threads(void)
{
    return 0;
}

int mem_device(void)
{
    struct gpu_scope scope;

    if (gpu_device() < 0) {
        if (gpu_enter(&scope))
            return -1;
        gpu_leave(&scope);
    }
    return gpu_device();
}

/* Queueing a chunk's copies, kernel and events takes some ten microseconds, in which a link moves half a megabyte. */
void mem_chunk_limits(size_t *least, size_t *most)
{
    *least = (size_t)512 << 10;
    *most = (size_t)4 << 20;
}

/*
 * Memory
 */

static int allocate(size_t bytes, void **memory)
{
    gpu_release_aside();
    return gpu_result(GPU(Malloc)(memory, bytes), "%zu bytes of memory of device %d", bytes, gpu_device());
}

static int free_device(void *ptr)
{
    return gpu_result(GPU(Free)(ptr), "free of device memory %p", ptr);
}

int mem_alloc(size_t bytes, void **ptr)
{
    void *memory = NULL;
    int code = HETMPI_SUCCESS;

    if (bytes > 0)
        GPU_WITHIN(code, allocate(bytes, &memory));
    if (!code)
        *ptr = memory;
    return code;
}

int mem_free(void *ptr)
{
    int code = HETMPI_SUCCESS;

    if (ptr)
        GPU_WITHIN(code, gpu_release(ptr, free_device));
    return code;
}

int mem_host_alloc(size_t bytes, void **ptr)
{
    int code = HETMPI_SUCCESS;

    if (bytes == 0)
        *ptr = NULL;
    else
        GPU_WITHIN(code, gpu_vendor_host_alloc(bytes, ptr));
    return code;
}

int mem_host_free(void *ptr)
{
    int code = HETMPI_SUCCESS;

    if (ptr)
        GPU_WITHIN(code, gpu_release(ptr, gpu_vendor_host_free));
    return code;
}

int mem_host_register(void *ptr, size_t bytes)
{
    int code = register_check(ptr, bytes);

    if (!code)
        GPU_CALL(code, GPU(HostRegister)(ptr, bytes, GPU(HostRegisterPortable) | GPU(HostRegisterMapped)),
                 "registering %zu bytes at %p for the device", bytes, ptr);
    return code;
}

int mem_host_unregister(void *ptr)
{
    int code;

    GPU_CALL(code, GPU(HostUnregister)(ptr), "unregistering the memory at %p", ptr);
    return code;
}

int mem_query(const void *ptr, struct mem_pointer *out)
{
    struct gpu_pointer what = {.known = false};
    struct gpu_scope scope;

    *out = (struct mem_pointer){.kind = MEM_HOST, .device = -1};
    if (!ptr || gpu_enter(&scope))
        return HETMPI_SUCCESS;
    gpu_vendor_query(ptr, &what);
    gpu_leave(&scope);
    if (what.known)
        *out = (struct mem_pointer){.kind = what.device ? MEM_DEVICE : MEM_HOST_PINNED, .base = what.base,
                                    .bytes = what.bytes, .id = what.id, .device = what.device ? what.ordinal : -1};
    return HETMPI_SUCCESS;
}

int mem_dmabuf(const void *ptr, size_t bytes, int *fd, uint64_t *offset)
{
    int code;

    GPU_WITHIN(code, gpu_vendor_dmabuf(ptr, bytes, fd, offset));
    return code;
}

int mem_flush_remote_writes(void)
{
    int code;

    GPU_WITHIN(code, gpu_vendor_flush());
    return code;
}

/*
 * Memory of other processes
 */

static int export_memory(const void *ptr, struct ipc_handle *out)
{
    struct gpu_pointer what;

    gpu_vendor_query(ptr, &what);
    if (!what.known || !what.device || what.base != ptr)
        return err_set(HETMPI_ERR_DEVICE, "export of %p: it is not the start of an allocation of this process's device",
                       ptr);
    out->id = what.id;
    out->bytes = what.bytes;
    out->device = gpu_device();
    return gpu_result(GPU(IpcGetMemHandle)(&out->memory, (void *)(uintptr_t)ptr), "export of %zu bytes of device memory at "
                      "%p", what.bytes, ptr);
}

int mem_ipc_export(const void *ptr, mem_ipc_t *handle)
{
    struct ipc_handle out = {.magic = MAGIC, .pid = (int32_t)getpid()};
    int code;

    GPU_WITHIN(code, export_memory(ptr, &out));
    if (code)
        return code;
    snprintf(out.vendor, sizeof(out.vendor), "%s", gpu_vendor_name());
    memset(handle, 0, sizeof(*handle));
    memcpy(handle->bytes, &out, sizeof(out));
    return HETMPI_SUCCESS;
}

int mem_ipc_open(const mem_ipc_t *handle, void **ptr)
{
    struct ipc_handle in;
    void *memory = NULL;
    int code;

    memcpy(&in, handle->bytes, sizeof(in));
    if (in.magic != MAGIC)
        return err_set(HETMPI_ERR_DEVICE, "these bytes are no handle of GPU memory");
    if (strncmp(in.vendor, gpu_vendor_name(), sizeof(in.vendor)) != 0)
        return err_set(HETMPI_ERR_DEVICE, "the handle is of %.8s device memory (process %d); an %s device cannot open it",
                       in.vendor, in.pid, gpu_vendor_name());
    GPU_CALL(code, GPU(IpcOpenMemHandle)(&memory, in.memory, GPU(IpcMemLazyEnablePeerAccess)), "opening %llu bytes of memory "
             "of device %d of process %d (freed there, or the devices cannot reach each other)",
             (unsigned long long)in.bytes, in.device, in.pid);
    if (!code)
        *ptr = memory;
    return code;
}

int mem_ipc_close(void *ptr)
{
    int code;

    GPU_CALL(code, GPU(IpcCloseMemHandle)(ptr), "closing another process's memory at %p", ptr);
    return code;
}
