/*
 * The runtime of ranks without a device: memory is host memory, work runs inline in the calling thread, events are done
 * at once. These calls are on the data path of host collectives, so each is as little as it can be.
 */
#include "mem/mem.h"

#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "hetmpi.h"
#include "mem/common.h"

/* Objects with nothing in them, so that memory checkers see a forgotten or doubled destroy. */
struct mem_stream { char unused; };
struct mem_event { char unused; };

int mem_init(const struct mem_setup *setup)
{
    (void)setup;
    return HETMPI_SUCCESS;
}

void mem_fini(void)
{
    plain_clear();
}

const char *mem_backend(void)
{
    return "host";
}

const char *mem_vendor(void)
{
    return "cpu";
}

bool mem_has_device(void)
{
    return false;
}

int mem_threads(void)
{
    return 0;
}

int mem_device(void)
{
    return -1;
}

void mem_chunk_limits(size_t *least, size_t *most)
{
    *least = (size_t)32 << 10;
    *most = (size_t)256 << 10;
}

int mem_alloc(size_t bytes, void **ptr)
{
    return plain_alloc(bytes, ptr);
}

int mem_free(void *ptr)
{
    return plain_free(ptr);
}

int mem_host_alloc(size_t bytes, void **ptr)
{
    return plain_alloc(bytes, ptr);
}

int mem_host_free(void *ptr)
{
    return plain_free(ptr);
}

int mem_host_register(void *ptr, size_t bytes)
{
    return plain_register(ptr, bytes);
}

int mem_host_unregister(void *ptr)
{
    return plain_unregister(ptr);
}

int mem_query(const void *ptr, struct mem_pointer *out)
{
    plain_query(ptr, out);
    return HETMPI_SUCCESS;
}

int mem_ipc_export(const void *ptr, mem_ipc_t *handle)
{
    (void)ptr;
    (void)handle;
    return plain_no_ipc();
}

int mem_ipc_open(const mem_ipc_t *handle, void **ptr)
{
    (void)handle;
    (void)ptr;
    return plain_no_ipc();
}

int mem_ipc_close(void *ptr)
{
    (void)ptr;
    return plain_no_ipc();
}

int mem_dmabuf(const void *ptr, size_t bytes, int *fd, uint64_t *offset)
{
    (void)ptr;
    (void)bytes;
    (void)fd;
    (void)offset;
    return plain_no_dmabuf();
}

int mem_flush_remote_writes(void)
{
    return HETMPI_SUCCESS;
}

int mem_stream_create(mem_stream_t **stream)
{
    mem_stream_t *made = calloc(1, sizeof(*made));

    if (!made)
        return err_set(HETMPI_ERR_MEMORY, "stream: no memory for %zu bytes", sizeof(*made));
    *stream = made;
    return HETMPI_SUCCESS;
}

int mem_stream_create_user(mem_stream_t **stream)
{
    return mem_stream_create(stream);
}

int mem_stream_destroy(mem_stream_t *stream)
{
    free(stream);
    return HETMPI_SUCCESS;
}

int mem_stream_synchronize(mem_stream_t *stream)
{
    (void)stream;
    return HETMPI_SUCCESS;
}

int mem_event_create(mem_event_t **event)
{
    mem_event_t *made = calloc(1, sizeof(*made));

    if (!made)
        return err_set(HETMPI_ERR_MEMORY, "event: no memory for %zu bytes", sizeof(*made));
    *event = made;
    return HETMPI_SUCCESS;
}

void mem_event_destroy(mem_event_t *event)
{
    free(event);
}

int mem_event_record(mem_event_t *event, mem_stream_t *stream)
{
    (void)event;
    (void)stream;
    return HETMPI_SUCCESS;
}

int mem_event_query(mem_event_t *event, bool *done)
{
    (void)event;
    *done = true;
    return HETMPI_SUCCESS;
}

int mem_stream_wait_event(mem_stream_t *stream, mem_event_t *event)
{
    (void)stream;
    (void)event;
    return HETMPI_SUCCESS;
}

int mem_copy_async(void *dst, const void *src, size_t bytes, mem_stream_t *stream)
{
    (void)stream;
    plain_copy(dst, src, bytes);
    return HETMPI_SUCCESS;
}

int mem_set_async(void *dst, int byte, size_t bytes, mem_stream_t *stream)
{
    (void)stream;
    if (bytes > 0)
        memset(dst, byte, bytes);
    return HETMPI_SUCCESS;
}

int mem_reduce_async(const struct red_call *call, mem_stream_t *stream)
{
    (void)stream;
    red_run(call);
    return HETMPI_SUCCESS;
}

int mem_stream_write_value(mem_stream_t *stream, _Atomic uint64_t *word, uint64_t value)
{
    (void)stream;
    atomic_store_explicit(word, value, memory_order_release);
    return HETMPI_SUCCESS;
}

/* Later work runs in this thread, so that waiting here is the only way to run it after the value is there. */
int mem_stream_wait_value(mem_stream_t *stream, _Atomic uint64_t *word, uint64_t value)
{
    (void)stream;
    plain_wait_value(word, value);
    return HETMPI_SUCCESS;
}

int mem_copy(void *dst, const void *src, size_t bytes)
{
    plain_copy(dst, src, bytes);
    return HETMPI_SUCCESS;
}
