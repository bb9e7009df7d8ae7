/* What AMD's runtime has to itself: see fake.h. */
#include "fake.h"

#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "mem/sim.h"

static _Thread_local int current;

const char *fake_vendor(void)
{
    return "amd";
}

const char *fake_queues_setting(void)
{
    return "GPU_MAX_HW_QUEUES";
}

int fake_current(void)
{
    return current;
}

void fake_make_current(int device)
{
    current = device;
}

bool fake_forbidden(void)
{
    return false;
}

hipError_t hipDeviceGetAttribute(int *value, hipDeviceAttribute_t which, int device)
{
    if (which != hipDeviceAttributeMultiprocessorCount || device < 0 || device >= fake_devices())
        return fake_wrong(hipErrorInvalidValue, "no such attribute or device");
    *value = 2;
    return hipSuccess;
}

hipError_t hipHostMalloc(void **ptr, size_t bytes, unsigned flags)
{
    hipError_t error = fake_enter();

    (void)flags;
    return error != hipSuccess ? error : fake_error(mem_host_alloc(bytes, ptr));
}

hipError_t hipHostFree(void *ptr)
{
    hipError_t error = fake_enter();

    if (error != hipSuccess)
        return error;
    fake_wait_idle();
    return fake_error(mem_host_free(ptr));
}

/* Before HIP 6 a pointer to plain host memory is an error. */
static hipError_t find(const void *ptr, struct mem_pointer *what)
{
    hipError_t error = fake_enter();

    if (error != hipSuccess)
        return error;
    mem_query(ptr, what);
    return what->base ? hipSuccess : fake_wrong(hipErrorInvalidValue, "no memory of the device's, and not registered");
}

hipError_t hipPointerGetAttributes(hipPointerAttribute_t *out, const void *ptr)
{
    struct mem_pointer what;
    hipError_t error = find(ptr, &what);

    if (error != hipSuccess)
        return error;
    memset(out, 0, sizeof(*out));
#if HIP_VERSION_MAJOR >= 6
    out->type = what.kind == MEM_DEVICE ? hipMemoryTypeDevice : hipMemoryTypeHost;
#else
    out->memoryType = what.kind == MEM_DEVICE ? hipMemoryTypeDevice : hipMemoryTypeHost;
#endif
    out->device = fake_current();
    return hipSuccess;
}

hipError_t hipMemGetAddressRange(hipDeviceptr_t *base, size_t *bytes, hipDeviceptr_t ptr)
{
    struct mem_pointer what;
    hipError_t error = find(ptr, &what);

    if (error == hipSuccess) {
        *base = what.base;
        *bytes = what.bytes;
    }
    return error;
}

hipError_t hipPointerGetAttribute(void *value, hipPointer_attribute which, hipDeviceptr_t ptr)
{
    struct mem_pointer what;
    hipError_t error = find(ptr, &what);

    if (error == hipSuccess && which != HIP_POINTER_ATTRIBUTE_BUFFER_ID)
        return fake_wrong(hipErrorInvalidValue, "no such attribute");
    if (error == hipSuccess)
        memcpy(value, &what.id, sizeof(what.id));
    return error;
}

struct callback { hipStreamCallback_t function; hipStream_t stream; void *data; };

static void call_back(void *data)
{
    struct callback *callback = data;

    callback->function(callback->stream, hipSuccess, callback->data);
    free(callback);
}

hipError_t hipStreamAddCallback(hipStream_t stream, hipStreamCallback_t function, void *data, unsigned flags)
{
    hipError_t error = fake_enter();
    struct callback *callback;

    (void)flags;
    if (error != hipSuccess)
        return error;
    callback = malloc(sizeof(*callback));
    if (!callback)
        return fake_wrong(hipErrorMemoryAllocation, "no memory for a callback");
    *callback = (struct callback){function, stream, data};
    error = fake_error(fake_queued(stream, sim_call_async(OP_CALL, call_back, callback, fake_lane(stream))));
    if (error != hipSuccess)
        free(callback);
    return error;
}

hipError_t hipStreamWaitValue64(hipStream_t stream, void *word, uint64_t value, unsigned flags, uint64_t mask)
{
    hipError_t error = fake_enter();

    if (error != hipSuccess)
        return error;
    if (flags != hipStreamWaitValueGte || mask != UINT64_MAX)
        return fake_wrong(hipErrorInvalidValue, "no such way to wait for a value");
    return fake_error(fake_queued(stream, mem_stream_wait_value(fake_lane(stream), word, value)));
}

hipError_t hipStreamWriteValue64(hipStream_t stream, void *word, uint64_t value, unsigned flags)
{
    hipError_t error = fake_enter();

    (void)flags;
    return error != hipSuccess ? error
                               : fake_error(fake_queued(stream, mem_stream_write_value(fake_lane(stream), word, value)));
}
