/* Memory and streams: the device runtime, as one program text for every backend sees it. */
#include <string.h>

#include "api/api.h"
#include "core/log.h"
#include "core/proc.h"
#include "mem/reg_cache.h"

static int report(const char *function, int code)
{
    return code ? api_report(MPI_COMM_NULL, function, code) : HETMPI_SUCCESS;
}

int hetmpi_malloc(size_t bytes, hetmpi_mem_t where, void **ptr)
{
    int code;

    if (!ptr)
        return report("malloc", err_set(HETMPI_ERR_ARG, "malloc: ptr is NULL"));
    if (where != HETMPI_MEM_HOST && where != HETMPI_MEM_DEVICE)
        return report("malloc", err_set(HETMPI_ERR_ARG, "malloc: where is %d, not HETMPI_MEM_HOST or HETMPI_MEM_DEVICE",
                                        (int)where));
    code = proc_start_device();
    if (!code && bytes == 0) {
        *ptr = NULL;
        return HETMPI_SUCCESS;
    }
    if (!code)
        code = where == HETMPI_MEM_DEVICE && mem_has_device() ? mem_alloc(bytes, ptr) : mem_host_alloc(bytes, ptr);
    return report("malloc", code);
}

int hetmpi_free(void *ptr)
{
    struct mem_pointer what;
    int code;

    if (!ptr)
        return HETMPI_SUCCESS;
    code = proc_start_device();
    if (code)
        return report("free", code);
    mem_query(ptr, &what);
    if (what.kind == MEM_HOST || what.base != ptr)
        return report("free", err_set(HETMPI_ERR_ARG, "free: %p was not returned by hetmpi_malloc, or is freed already",
                                      ptr));
    reg_forget(ptr);
    return report("free", what.kind == MEM_DEVICE ? mem_free(ptr) : mem_host_free(ptr));
}

int hetmpi_memcpy(void *dst, const void *src, size_t bytes)
{
    int code = proc_start_device();

    if (!code && bytes && (!dst || !src))
        code = err_set(HETMPI_ERR_ARG, "memcpy: %s is NULL, and bytes is %zu", dst ? "src" : "dst", bytes);
    if (!code && bytes)
        code = mem_copy(dst, src, bytes);
    return report("memcpy", code);
}

int hetmpi_memset(void *dst, int byte, size_t bytes)
{
    mem_stream_t *stream = NULL;
    int code = proc_start_device();

    if (!code && bytes && !dst)
        code = err_set(HETMPI_ERR_ARG, "memset: dst is NULL, and bytes is %zu", bytes);
    if (code || !bytes)
        return report("memset", code);
    code = mem_stream_create(&stream);
    if (code)
        return report("memset", code);
    code = mem_set_async(dst, byte, bytes, stream);
    if (!code)
        code = mem_stream_synchronize(stream);
    mem_stream_destroy(stream);
    return report("memset", code);
}

int hetmpi_mem_where(const void *ptr, hetmpi_mem_t *where)
{
    int code = proc_start_device();

    if (!code && !where)
        code = err_set(HETMPI_ERR_ARG, "mem_where: where is NULL");
    if (!code)
        *where = mem_on_device(ptr) ? HETMPI_MEM_DEVICE : HETMPI_MEM_HOST;
    return report("mem_where", code);
}

int hetmpi_stream_create(hetmpi_stream_t *stream)
{
    mem_stream_t *made;
    int code = proc_start_device();

    if (!code && !stream)
        code = err_set(HETMPI_ERR_ARG, "stream_create: stream is NULL");
    if (!code)
        code = mem_stream_create_user(&made);
    if (!code)
        *stream = made;
    return report("stream_create", code);
}

int hetmpi_stream_destroy(hetmpi_stream_t stream)
{
    int code = proc_start_device();

    if (!code && !stream)
        code = err_set(HETMPI_ERR_ARG, "stream_destroy: the default stream cannot be destroyed");
    return report("stream_destroy", code ? code : mem_stream_destroy(stream));
}

int hetmpi_stream_synchronize(hetmpi_stream_t stream)
{
    int code = proc_start_device();

    return report("stream_synchronize", code ? code : mem_stream_synchronize(stream));
}

int hetmpi_register(void *ptr, size_t bytes)
{
    int code = proc_start_device();

    if (!code && (!ptr || !bytes))
        code = err_set(HETMPI_ERR_ARG, "register: ptr is %p, bytes is %zu", ptr, bytes);
    return report("register", code ? code : mem_host_register(ptr, bytes));
}

int hetmpi_deregister(void *ptr)
{
    int code = proc_start_device();

    if (!code && !ptr)
        code = err_set(HETMPI_ERR_ARG, "deregister: ptr is NULL");
    if (!code)
        reg_forget(ptr);
    return report("deregister", code ? code : mem_host_unregister(ptr));
}
