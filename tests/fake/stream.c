/*
 * Streams on hardware queues, and kernels: see fake.h. A lane is a stream of the simulated device. Where the number of queues
 * is limited several streams share one, in the order in which their work came, so that one that waits holds up the others.
 */
#include "fake.h"

#include <fenv.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/log.h"
#include "hetmpi.h"
#include "mem/sim.h"

#define QUEUES_MOST 32
#define KERNELS_MOST 4096
#define HOST_ADDRESSES ((uintptr_t)0x500000000000)       /* of programs, heaps, mappings and stacks on 64-bit Linux */
#define HOST_ADDRESSES_END ((uintptr_t)0x800000000000)

struct fake_stream {
    struct fake_stream *next;
    mem_stream_t *lane;
    mem_event_t *last;       /* the end of its work, where others share the lane */
};

static struct {
    pthread_mutex_t lock;
    struct fake_stream *list;
    struct fake_stream *legacy;                 /* that NULL names */
    mem_stream_t *queues[QUEUES_MOST];
    int made;                                   /* streams so far, the one that NULL names too */
    fake_kernel loaded[KERNELS_MOST];           /* at their addresses' remainders */
} all = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Called with the lock held. */
static int new_stream(struct fake_stream **out)
{
    int queues = fake_setting(fake_queues_setting(), 0), code = HETMPI_SUCCESS;
    struct fake_stream *stream = calloc(1, sizeof(*stream));

    if (!stream)
        return err_set(HETMPI_ERR_MEMORY, "no memory for a stream");
    if (queues > 0) {
        mem_stream_t **queue = &all.queues[all.made % (queues < QUEUES_MOST ? queues : QUEUES_MOST)];

        if (!*queue)
            code = mem_stream_create(queue);
        stream->lane = *queue;
        if (!code)
            code = mem_event_create(&stream->last);
    } else {
        code = mem_stream_create(&stream->lane);
    }
    if (code) {
        free(stream);
        return code;
    }
    all.made++;
    stream->next = all.list;
    all.list = stream;
    *out = stream;
    return HETMPI_SUCCESS;
}

static void nothing(void *data)
{
    (void)data;
}

int fake_start(void)
{
    int code;

    pthread_mutex_lock(&all.lock);
    code = new_stream(&all.legacy);
    pthread_mutex_unlock(&all.lock);
    return code ? code : sim_call_async(OP_CALL, nothing, NULL, all.legacy->lane);
}

struct fake_stream *fake_stream_of(GPU(Stream_t) stream)
{
    return stream ? (struct fake_stream *)stream : all.legacy;
}

static void nap(void *data)
{
    struct timespec time = {0, (long)(uintptr_t)data};

    nanosleep(&time, NULL);
}

mem_stream_t *fake_lane(GPU(Stream_t) stream)
{
    static _Atomic uint64_t drawn = 1;
    mem_stream_t *lane = fake_stream_of(stream)->lane;
    int jitter = fake_setting("FAKE_GPU_JITTER", 0);

    if (jitter > 0) {
        uint64_t random = atomic_fetch_add(&drawn, 1) * 0x9e3779b97f4a7c15u >> 32;

        (void)sim_call_async(OP_CALL, nap, (void *)(uintptr_t)(random % (uint64_t)jitter * 1000), lane);
    }
    return lane;
}

int fake_queued(GPU(Stream_t) stream, int code)
{
    struct fake_stream *on = fake_stream_of(stream);

    return code || !on->last ? code : mem_event_record(on->last, on->lane);
}

static int await(mem_event_t *event)
{
    struct backoff backoff = {0};
    bool done = false;
    int code = mem_event_query(event, &done);

    while (!code && !done) {
        backoff_wait(&backoff);
        code = mem_event_query(event, &done);
    }
    return code;
}

int fake_synchronize(GPU(Stream_t) stream)
{
    struct fake_stream *on = fake_stream_of(stream);

    return on->last ? await(on->last) : mem_stream_synchronize(on->lane);
}

void fake_wait_idle(void)
{
    mem_event_t *events[256];
    int n = 0;

    pthread_mutex_lock(&all.lock);
    for (struct fake_stream *stream = all.list; stream && n < 256; stream = stream->next) {
        if (mem_event_create(&events[n]))
            break;
        if (mem_event_record(events[n], stream->lane))
            mem_event_destroy(events[n]);
        else
            n++;
    }
    pthread_mutex_unlock(&all.lock);
    while (n-- > 0) {
        (void)await(events[n]);
        mem_event_destroy(events[n]);
    }
}

GPU(Error_t) GPU(StreamCreateWithPriority)(GPU(Stream_t) *stream, unsigned flags, int priority)
{
    GPU(Error_t) error = fake_enter();
    struct fake_stream *made = NULL;

    (void)flags;
    if (error != GPU(Success))
        return error;
    if (priority > 0 || priority < -5)
        return fake_wrong(GPU(ErrorInvalidValue), "no such priority");
    pthread_mutex_lock(&all.lock);
    error = fake_error(new_stream(&made));
    pthread_mutex_unlock(&all.lock);
    *stream = (GPU(Stream_t))made;
    return error;
}

GPU(Error_t) GPU(StreamDestroy)(GPU(Stream_t) stream)
{
    GPU(Error_t) error = fake_enter();
    struct fake_stream *gone = (struct fake_stream *)stream, **link = &all.list;

    if (error != GPU(Success))
        return error;
    pthread_mutex_lock(&all.lock);
    while (*link && *link != gone)
        link = &(*link)->next;
    if (*link)
        *link = gone->next;
    pthread_mutex_unlock(&all.lock);
    if (gone->last)
        mem_event_destroy(gone->last);
    else
        error = fake_error(mem_stream_destroy(gone->lane));
    free(gone);
    return error;
}

GPU(Error_t) GPU(StreamSynchronize)(GPU(Stream_t) stream)
{
    GPU(Error_t) error = fake_enter();

    return error != GPU(Success) ? error : fake_error(fake_synchronize(stream));
}

/*
 * Kernels
 */

/* Whether the kernel was on the device; it is now. */
static bool load(fake_kernel kernel)
{
    size_t at = ((uintptr_t)kernel >> 4) % KERNELS_MOST;
    bool was;

    pthread_mutex_lock(&all.lock);
    while (all.loaded[at] && all.loaded[at] != kernel)
        at = (at + 1) % KERNELS_MOST;
    was = all.loaded[at] != NULL;
    all.loaded[at] = kernel;
    pthread_mutex_unlock(&all.lock);
    return was;
}

GPU(Error_t) GPU(FuncGetAttributes)(struct GPU(FuncAttributes) *out, const void *function)
{
    GPU(Error_t) error = fake_enter();

    memset(out, 0, sizeof(*out));
    if (error == GPU(Success))
        (void)load((fake_kernel)(uintptr_t)function);
    return error;
}

struct launch {
    fake_kernel kernel;
    void (*run)(fake_kernel kernel, struct fake_grid grid, void *argument);
    struct fake_grid grid;
    _Alignas(16) unsigned char argument[];
};

static void run_kernel(void *data)
{
    struct launch *launch = data;

    (void)fesetenv(FE_DFL_ENV);   /* the stream's thread has that of whoever made it */
    launch->run(launch->kernel, launch->grid, launch->argument);
}

/*
 * The argument's pointers to device memory become addresses that the CPU may touch. What a GPU could not reach is refused:
 * freed memory, and host memory that is not pinned. Other values are far below the addresses of such memory.
 */
static bool translate(unsigned char *argument, size_t bytes)
{
    struct mem_pointer what;
    void *word;

    for (size_t at = 0; at + sizeof(word) <= bytes; at += sizeof(word)) {
        memcpy(&word, argument + at, sizeof(word));
        if ((uintptr_t)word < HOST_ADDRESSES || (uintptr_t)word >= HOST_ADDRESSES_END)
            continue;
        mem_query(word, &what);
        if (!what.base)
            return false;
        word = sim_address(word);
        memcpy(argument + at, &word, sizeof(word));
    }
    return true;
}

int fake_launch(fake_kernel kernel, void (*run)(fake_kernel kernel, struct fake_grid grid, void *argument),
                struct fake_grid grid, const void *argument, size_t bytes, void *stream)
{
    GPU(Error_t) error = fake_enter();
    struct launch *launch;
    int code;

    if (error != GPU(Success))
        return (int)error;
    if (!load(kernel))
        fake_wait_idle();
    launch = malloc(sizeof(*launch) + bytes);
    if (!launch)
        return (int)fake_wrong(GPU(ErrorMemoryAllocation), "no memory for a launch");
    *launch = (struct launch){.kernel = kernel, .run = run, .grid = grid};
    memcpy(launch->argument, argument, bytes);
    if (!translate(launch->argument, bytes)) {
        free(launch);
        return (int)fake_wrong(GPU(ErrorIllegalAddress), "a kernel's operand is freed or pageable memory");
    }
    if (fake_plants("kernels")) {
        run_kernel(launch);
        free(launch);
        return GPU(Success);
    }
    code = sim_call_async(OP_KERNEL, run_kernel, launch, fake_lane(stream));   /* which frees it, come what may */
    return (int)fake_error(fake_queued(stream, code));
}
