/* The calls that both vendors' runtimes have: see fake.h. */
#include "fake.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "hetmpi.h"

static struct { pthread_mutex_t lock; bool started; int device; } device = {.lock = PTHREAD_MUTEX_INITIALIZER};
static _Thread_local struct { GPU(Error_t) error; char text[320]; } last;

GPU(Error_t) fake_wrong(GPU(Error_t) error, const char *why)
{
    last.error = error;
    snprintf(last.text, sizeof(last.text), "%s", why);
    return error;
}

GPU(Error_t) fake_error(int code)
{
    return code == HETMPI_SUCCESS ? GPU(Success) : fake_wrong(code == HETMPI_ERR_MEMORY ? GPU(ErrorMemoryAllocation)
                                    : code == HETMPI_ERR_ARG ? GPU(ErrorInvalidValue) : GPU(ErrorLaunchFailure), err_text());
}

const char *GPU(GetErrorString)(GPU(Error_t) error)
{
    return error == GPU(Success) ? "no error" : error == GPU(ErrorNotReady) ? "not ready" : last.text;
}

GPU(Error_t) GPU(GetLastError)(void)
{
    GPU(Error_t) error = last.error;

    last.error = GPU(Success);
    return error;
}

int fake_setting(const char *name, int otherwise)
{
    const char *value = getenv(name);

    return value && *value ? atoi(value) : otherwise;
}

bool fake_plants(const char *fault)
{
    const char *wrong = getenv("FAKE_GPU_WRONG");

    return wrong && strcmp(wrong, fault) == 0;
}

int fake_devices(void)
{
    return fake_setting("FAKE_GPU_DEVICES", 2);
}

static int start(void)
{
    const char *latency = getenv("FAKE_GPU_LATENCY"), *fault = getenv("FAKE_GPU_FAULT");
    struct mem_setup setup = {.vendor = fake_vendor(), .device = fake_current(), .latency = latency ? atof(latency) : 0,
                              .fault = fault ? fault : ""};
    int code = mem_init(&setup);

    if (code)
        return code;
    device.device = setup.device;
    device.started = true;
    return fake_start();
}

GPU(Error_t) fake_enter(void)
{
    int code = HETMPI_SUCCESS;

    if (fake_devices() < 1)
        return fake_wrong(GPU(ErrorNoDevice), "no device");
    if (fake_forbidden())
        return fake_wrong(GPU(ErrorStreamCaptureUnsupported), "not permitted while a stream is captured");
    pthread_mutex_lock(&device.lock);
    if (!device.started)
        code = start();
    pthread_mutex_unlock(&device.lock);
    if (code)
        return fake_error(code);
    if (fake_current() != device.device)
        return fake_wrong(GPU(ErrorInvalidDevice), "another device is current than the process has begun to use");
    return GPU(Success);
}

/*
 * Devices
 */

GPU(Error_t) GPU(GetDeviceCount)(int *count)
{
    *count = fake_devices();
    return *count > 0 ? GPU(Success) : fake_wrong(GPU(ErrorNoDevice), "no device is detected");
}

GPU(Error_t) GPU(GetDevice)(int *out)
{
    *out = fake_current();
    return fake_devices() > 0 ? GPU(Success) : fake_wrong(GPU(ErrorNoDevice), "no device is detected");
}

GPU(Error_t) GPU(SetDevice)(int which)
{
    if (which < 0 || which >= fake_devices())
        return fake_wrong(GPU(ErrorInvalidDevice), "invalid device ordinal");
    fake_make_current(which);
    return GPU(Success);
}

GPU(Error_t) GPU(DeviceGetStreamPriorityRange)(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return fake_enter();
}

/*
 * Memory
 */

GPU(Error_t) GPU(Malloc)(void **ptr, size_t bytes)
{
    GPU(Error_t) error = fake_enter();

    return error != GPU(Success) ? error : fake_error(mem_alloc(bytes, ptr));
}

GPU(Error_t) GPU(Free)(void *ptr)
{
    GPU(Error_t) error = fake_enter();

    if (error != GPU(Success))
        return error;
    fake_wait_idle();
    return fake_error(mem_free(ptr));
}

GPU(Error_t) GPU(HostRegister)(void *ptr, size_t bytes, unsigned flags)
{
    GPU(Error_t) error = fake_enter();

    (void)flags;
    return error != GPU(Success) ? error : fake_error(mem_host_register(ptr, bytes));
}

GPU(Error_t) GPU(HostUnregister)(void *ptr)
{
    GPU(Error_t) error = fake_enter();

    return error != GPU(Success) ? error : fake_error(mem_host_unregister(ptr));
}

/* A handle of the simulated device's fits, but for the vendor at its end. */
_Static_assert(sizeof(GPU(IpcMemHandle_t)) == 64, "handles have another size");

GPU(Error_t) GPU(IpcGetMemHandle)(GPU(IpcMemHandle_t) *handle, void *ptr)
{
    GPU(Error_t) error = fake_enter();
    mem_ipc_t made;

    if (error != GPU(Success))
        return error;
    error = fake_error(mem_ipc_export(ptr, &made));
    if (error == GPU(Success))
        memcpy(handle, made.bytes, sizeof(*handle));
    return error;
}

GPU(Error_t) GPU(IpcOpenMemHandle)(void **ptr, GPU(IpcMemHandle_t) handle, unsigned flags)
{
    GPU(Error_t) error = fake_enter();
    mem_ipc_t made = {{0}};

    (void)flags;
    if (error != GPU(Success))
        return error;
    memcpy(made.bytes, &handle, sizeof(handle));
    return mem_ipc_open(&made, ptr) ? fake_wrong(GPU(ErrorMapBufferObjectFailed), err_text()) : GPU(Success);
}

GPU(Error_t) GPU(IpcCloseMemHandle)(void *ptr)
{
    GPU(Error_t) error = fake_enter();

    if (error != GPU(Success))
        return error;
    fake_wait_idle();
    return fake_error(mem_ipc_close(ptr));
}

/*
 * Work
 */

static bool pageable(const void *ptr, size_t bytes)
{
    struct mem_pointer what;

    mem_query(ptr, &what);
    return what.kind == MEM_HOST || (what.kind == MEM_HOST_PINNED &&
                                     (uintptr_t)ptr + bytes > (uintptr_t)what.base + what.bytes);
}

GPU(Error_t) GPU(MemcpyAsync)(void *dst, const void *src, size_t bytes, enum GPU(MemcpyKind) kind, GPU(Stream_t) stream)
{
    GPU(Error_t) error = fake_enter();

    (void)kind;
    if (error != GPU(Success) || bytes == 0)
        return error;
    error = fake_error(fake_queued(stream, mem_copy_async(dst, src, bytes, fake_lane(stream))));
    if (error == GPU(Success) && (pageable(dst, bytes) || pageable(src, bytes)))
        error = fake_error(fake_synchronize(stream));
    return error;
}

GPU(Error_t) GPU(Memcpy)(void *dst, const void *src, size_t bytes, enum GPU(MemcpyKind) kind)
{
    GPU(Error_t) error = GPU(MemcpyAsync)(dst, src, bytes, kind, NULL);

    return error == GPU(Success) ? fake_error(fake_synchronize(NULL)) : error;
}

GPU(Error_t) GPU(MemsetAsync)(void *dst, int byte, size_t bytes, GPU(Stream_t) stream)
{
    GPU(Error_t) error = fake_enter();

    if (error != GPU(Success) || bytes == 0)
        return error;
    if (pageable(dst, bytes))
        return fake_wrong(GPU(ErrorInvalidValue), "the device cannot set pageable memory");
    return fake_error(fake_queued(stream, mem_set_async(dst, byte, bytes, fake_lane(stream))));
}

/*
 * Events
 */

GPU(Error_t) GPU(EventCreateWithFlags)(GPU(Event_t) *event, unsigned flags)
{
    GPU(Error_t) error = fake_enter();

    (void)flags;
    return error != GPU(Success) ? error : fake_error(mem_event_create((mem_event_t **)event));
}

GPU(Error_t) GPU(EventDestroy)(GPU(Event_t) event)
{
    mem_event_destroy((mem_event_t *)event);
    return GPU(Success);
}

GPU(Error_t) GPU(EventRecord)(GPU(Event_t) event, GPU(Stream_t) stream)
{
    GPU(Error_t) error = fake_enter();

    return error != GPU(Success) ? error
           : fake_error(fake_queued(stream, mem_event_record((mem_event_t *)event, fake_lane(stream))));
}

GPU(Error_t) GPU(EventQuery)(GPU(Event_t) event)
{
    GPU(Error_t) error = fake_enter();
    bool done;

    if (error != GPU(Success))
        return error;
    error = fake_error(mem_event_query((mem_event_t *)event, &done));
    return error != GPU(Success) || done || fake_plants("events") ? error : GPU(ErrorNotReady);
}

GPU(Error_t) GPU(StreamWaitEvent)(GPU(Stream_t) stream, GPU(Event_t) event, unsigned flags)
{
    GPU(Error_t) error = fake_enter();

    (void)flags;
    return error != GPU(Success) ? error
           : fake_error(fake_queued(stream, mem_stream_wait_event(fake_lane(stream), (mem_event_t *)event)));
}
