/*
 * Freeing memory while streams wait: see gpu.h. The vendors' runtimes free memory when the device is idle and let the caller wait
 * until then. A stream that waits for a value keeps it from being idle, and what would end that wait may be behind this very
 * caller, the engine say. So as long as a stream waits, memory is put aside instead and freed by a later call.
 */
#include "mem/gpu.h"

#include <pthread.h>
#include <stdlib.h>

#include "core/log.h"
#include "hetmpi.h"

struct waiting { const _Atomic uint64_t *word; uint64_t value; };
struct aside { void *ptr; int (*release)(void *ptr); };

static struct {
    pthread_mutex_t lock;        /* held while memory is freed, too: no stream begins to wait then */
    struct waiting *waiting;
    struct aside *aside;
    size_t waits, waits_room, asides, asides_room;
} pending = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Room for one element more in a list. */
static bool make_room(void **list, size_t n, size_t *room, size_t size)
{
    size_t more = *room ? 2 * *room : 16;
    void *larger;

    if (n < *room)
        return true;
    larger = realloc(*list, more * size);
    if (!larger)
        return false;
    *list = larger;
    *room = more;
    return true;
}

/* Called with the lock held. Words are read that may themselves have been put aside, never freed ones. */
static bool a_stream_waits(void)
{
    for (size_t i = 0; i < pending.waits;) {
        const struct waiting *w = &pending.waiting[i];

        if (atomic_load_explicit(w->word, memory_order_acquire) < w->value)
            i++;
        else
            pending.waiting[i] = pending.waiting[--pending.waits];
    }
    return pending.waits > 0;
}

int gpu_wait_value(GPU(Stream_t) stream, _Atomic uint64_t *word, uint64_t value)
{
    int code = HETMPI_SUCCESS;

    pthread_mutex_lock(&pending.lock);
    if (pending.waits == pending.waits_room)
        (void)a_stream_waits();
    if (!make_room((void **)&pending.waiting, pending.waits, &pending.waits_room, sizeof(*pending.waiting)))
        code = err_set(HETMPI_ERR_MEMORY, "no memory for a stream's wait for a value");
    if (!code)
        code = gpu_vendor_wait_value(stream, (void *)word, value);
    if (!code)
        pending.waiting[pending.waits++] = (struct waiting){word, value};
    pthread_mutex_unlock(&pending.lock);
    return code;
}

/* Called with the lock held, when no stream waits. */
static void free_asides(void)
{
    while (pending.asides > 0) {
        struct aside aside = pending.aside[--pending.asides];

        if (aside.release(aside.ptr))
            log_warn("memory that was put aside is not freed: %s", err_text());
    }
}

int gpu_release(void *ptr, int (*release)(void *ptr))
{
    int code = HETMPI_SUCCESS;

    pthread_mutex_lock(&pending.lock);
    if (!a_stream_waits()) {
        free_asides();
        code = release(ptr);
    } else if (make_room((void **)&pending.aside, pending.asides, &pending.asides_room, sizeof(*pending.aside))) {
        pending.aside[pending.asides++] = (struct aside){ptr, release};
    } else {
        code = err_set(HETMPI_ERR_MEMORY, "no memory to put aside %p, which cannot be freed while a stream waits", ptr);
    }
    pthread_mutex_unlock(&pending.lock);
    return code;
}

void gpu_release_aside(void)
{
    pthread_mutex_lock(&pending.lock);
    if (pending.asides > 0 && !a_stream_waits())
        free_asides();
    pthread_mutex_unlock(&pending.lock);
}

void gpu_release_clear(void)
{
    free(pending.waiting);
    free(pending.aside);
    pending.waiting = NULL;
    pending.aside = NULL;
    pending.waits = pending.waits_room = pending.asides = pending.asides_room = 0;
}
