/* The simulated device: memory that the host cannot touch, work on streams, events, injected faults. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check_codes.h"
#include "mem/mem.h"

static void begin(const char *vendor, const char *fault)
{
    struct mem_setup setup = {.vendor = vendor, .device = -1, .fault = fault};

    ok(mem_init(&setup));
}

static int end(void **state)
{
    (void)state;
    mem_fini();
    return 0;
}

static int await(mem_event_t *event)
{
    bool done = false;
    int rc = 0;

    while (!done) {
        rc = mem_event_query(event, &done);
        if (!done)
            nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    }
    return rc;
}

/*
 * Memory
 */

/* The signal that ends a child which touches the memory; 0: none does. */
static int signal_of_touch(volatile char *ptr, bool write)
{
    int status;
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        struct rlimit none = {0, 0};

        setrlimit(RLIMIT_CORE, &none);
        signal(SIGSEGV, SIG_DFL);   /* a sanitizer's handler would turn it into an exit code */
        signal(SIGBUS, SIG_DFL);
        if (write)
            *ptr = 1;
        else
            (void)*ptr;
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void host_cannot_touch(void **state)
{
    void *device, *pinned;

    (void)state;
    begin("nvidia", "");
    ok(mem_alloc(10000, &device));
    ok(mem_host_alloc(10000, &pinned));
    assert_int_equal(signal_of_touch(device, false), SIGSEGV);
    assert_int_equal(signal_of_touch((char *)device + 9999, true), SIGSEGV);
    assert_int_equal(signal_of_touch(pinned, true), 0);
    ok(mem_free(device));
    assert_int_equal(signal_of_touch(device, false), SIGSEGV);
}

static void expect_query(const void *ptr, enum mem_kind kind, const void *base, size_t bytes)
{
    struct mem_pointer query;

    ok(mem_query(ptr, &query));
    assert_int_equal(query.kind, kind);
    assert_ptr_equal(query.base, base);
    assert_int_equal(query.bytes, bytes);
    assert_int_equal(query.id != 0, bytes != 0);
    assert_int_equal(query.device, kind == MEM_DEVICE ? mem_device() : -1);
}

static void query_is_exact(void **state)
{
    static char memory[9000];
    struct mem_pointer first, second;
    void *a, *b, *host;

    (void)state;
    begin("amd", "");
    assert_string_equal(mem_vendor(), "amd");
    assert_true(mem_has_device());
    assert_int_equal(mem_device(), 0);
    ok(mem_alloc(5000, &a));
    ok(mem_alloc(1, &b));
    ok(mem_host_alloc(300, &host));
    ok(mem_host_register(memory + 1, 8000));
    assert_int_equal((uintptr_t)a % 256, 0);
    expect_query(a, MEM_DEVICE, a, 5000);
    expect_query((char *)a + 4999, MEM_DEVICE, a, 5000);
    expect_query((char *)a + 5000, MEM_DEVICE, NULL, 0);
    expect_query(b, MEM_DEVICE, b, 1);
    expect_query((char *)host + 299, MEM_HOST_PINNED, host, 300);
    expect_query(memory, MEM_HOST, NULL, 0);
    expect_query(memory + 8000, MEM_HOST_PINNED, memory + 1, 8000);
    expect_query(memory + 8001, MEM_HOST, NULL, 0);
    expect_query(NULL, MEM_HOST, NULL, 0);
    expect_query((void *)UINTPTR_MAX, MEM_HOST, NULL, 0);
    mem_query(b, &first);
    ok(mem_free(b));
    expect_query(b, MEM_DEVICE, NULL, 0);
    ok(mem_alloc(1, &a));
    assert_ptr_equal(a, b);   /* the same place, another buffer */
    mem_query(a, &second);
    assert_true(second.id > first.id);
    fails(mem_host_register(memory + 8000, 10), HETMPI_ERR_ARG, "already registered");
    fails(mem_host_register(a, 1), HETMPI_ERR_ARG, "device memory");
    ok(mem_host_unregister(memory + 1));
    fails(mem_host_unregister(memory + 1), HETMPI_ERR_ARG, "unregistering");
    fails(mem_free(host), HETMPI_ERR_ARG, "device memory");
    fails(mem_host_free(a), HETMPI_ERR_ARG, "pinned host memory");
    ok(mem_host_free(host));
}

static long shared_kib(void)
{
    char line[256];
    long kib = -1;
    FILE *file = fopen("/proc/self/status", "r");

    assert_non_null(file);
    while (fgets(line, sizeof(line), file))
        (void)sscanf(line, "RssShmem: %ld", &kib);
    fclose(file);
    assert_true(kib >= 0);
    return kib;
}

static void freed_memory_goes_back(void **state)
{
    void *part[3], *all, *small;
    long before, full;

    (void)state;
    begin("nvidia", "");
    for (int i = 0; i < 3; i++)
        ok(mem_alloc((size_t)8 << 20, &part[i]));
    ok(mem_alloc(100, &small));
    before = shared_kib();
    for (int i = 0; i < 3; i++)
        ok(mem_set_async(part[i], 1, (size_t)8 << 20, NULL));
    ok(mem_stream_synchronize(NULL));
    full = shared_kib();
    assert_true(full - before > 23 * 1024);
    ok(mem_free(part[0]));
    ok(mem_free(part[2]));
    ok(mem_free(part[1]));
    assert_true(shared_kib() - before < 1024);
    ok(mem_alloc((size_t)24 << 20, &all));   /* the three pieces became one, and it fits best */
    assert_ptr_equal(all, part[0]);
    fails(mem_alloc((size_t)1 << 50, &all), HETMPI_ERR_MEMORY, "1125899906842624");
    fails(mem_alloc(SIZE_MAX, &all), HETMPI_ERR_MEMORY, "18446744073709551615");
    ok(mem_alloc(0, &all));
    assert_null(all);
    ok(mem_free(NULL));
    fails(mem_free((char *)small + 1), HETMPI_ERR_ARG, "start");
}

static void many_allocations(void **state)
{
    enum { N = 400 };
    static unsigned char *ptr[N];
    unsigned char byte = 0;

    (void)state;
    begin("nvidia", "");
    for (int round = 0; round < 3; round++) {
        for (int i = round ? 1 : 0; i < N; i += round ? 2 : 1) {
            ok(mem_alloc(1 + (size_t)i * 37 % 20000, (void **)&ptr[i]));
            ok(mem_set_async(ptr[i], i & 255, 1 + (size_t)i * 37 % 20000, NULL));
        }
        ok(mem_stream_synchronize(NULL));
        for (int i = 0; i < N; i++) {
            ok(mem_copy(&byte, ptr[i] + (size_t)i * 37 % 20000, 1));
            assert_int_equal(byte, i & 255);
        }
        for (int i = 1; i < N; i += 2)
            ok(mem_free(ptr[i]));
        for (int i = 1; i < N; i += 2)
            ok(mem_alloc(50, (void **)&ptr[i]));
        for (int i = 1; i < N; i += 2)
            ok(mem_free(ptr[i]));
    }
}

/*
 * Copies and kernels
 */

static void copies_between_all_kinds(void **state)
{
    enum { BYTES = 5001 };
    static char plain[2][BYTES];
    void *ends[3][2] = {{plain[0], plain[1]}};
    char pattern[BYTES], back[BYTES];
    mem_stream_t *stream;

    (void)state;
    begin("nvidia", "");
    ok(mem_stream_create(&stream));
    for (int i = 0; i < 2; i++) {
        ok(mem_host_alloc(BYTES, &ends[1][i]));
        ok(mem_alloc(BYTES, &ends[2][i]));
    }
    for (int round = 0; round < 9; round++) {
        char *src = ends[round / 3][0], *dst = ends[round % 3][1];

        for (int i = 0; i < BYTES; i++)
            pattern[i] = (char)(i * 7 + round);
        ok(mem_copy(src, pattern, BYTES));
        ok(mem_set_async(dst, 0x11, BYTES, stream));
        ok(mem_copy_async(dst + 3, src + 3, BYTES - 6, stream));
        ok(mem_stream_synchronize(stream));
        ok(mem_copy(back, dst, BYTES));
        assert_memory_equal(back + 3, pattern + 3, BYTES - 6);
        assert_true(back[0] == 0x11 && back[2] == 0x11 && back[BYTES - 3] == 0x11 && back[BYTES - 1] == 0x11);
    }
    ok(mem_copy_async(NULL, NULL, 0, stream));
    ok(mem_copy(NULL, NULL, 0));
    ok(mem_set_async(NULL, 0, 0, stream));
}

static void wrong_addresses_are_errors(void **state)
{
    char host[64] = {0}, where[32];
    char *a;

    (void)state;
    begin("nvidia", "");
    ok(mem_alloc(100, (void **)&a));
    snprintf(where, sizeof(where), "%p", (void *)(a + 60));
    fails(mem_copy(a + 60, host, 41), HETMPI_ERR_DEVICE, where);
    fails(mem_copy(a + 60, host, 41), HETMPI_ERR_DEVICE, "41 bytes");
    fails(mem_copy_async(host, a + 100, 1, NULL), HETMPI_ERR_DEVICE, "outside any allocation");
    fails(mem_copy_async(host, a + ((size_t)1 << 20), 1, NULL), HETMPI_ERR_DEVICE, "outside any allocation");
    fails(mem_copy_async(host, a, SIZE_MAX - 5, NULL), HETMPI_ERR_DEVICE, "bytes");
    fails(mem_copy_async(NULL, a, 1, NULL), HETMPI_ERR_DEVICE, "copy to");
    fails(mem_set_async(a, 0, 101, NULL), HETMPI_ERR_DEVICE, "goes beyond its allocation of 100 bytes");
    ok(mem_copy(a + 60, host, 40));
    ok(mem_free(a));
    fails(mem_copy(a, host, 1), HETMPI_ERR_DEVICE, "outside any allocation");
    fails(mem_set_async(a, 0, 1, NULL), HETMPI_ERR_DEVICE, "outside any allocation");
    fails(mem_free(a), HETMPI_ERR_ARG, "twice");
    ok(mem_stream_synchronize(NULL));
}

static void kernels(void **state)
{
    enum { COUNT = 1000 };
    static int32_t plain[COUNT];
    int32_t *input[RED_MAX_INPUTS], *output, *host, factor = 3;
    const void *srcs[RED_MAX_INPUTS];
    struct red_call call = {.type = RED_INT32, .op = RED_SUM, .srcs = srcs, .count = COUNT};

    (void)state;
    begin("nvidia", "");
    ok(mem_alloc(sizeof(plain), (void **)&output));
    ok(mem_host_alloc(sizeof(plain), (void **)&host));
    for (int i = 0; i < RED_MAX_INPUTS; i++) {
        ok(mem_alloc(sizeof(plain), (void **)&input[i]));
        for (int j = 0; j < COUNT; j++)
            plain[j] = (i + 1) * 1000 + j;
        ok(mem_copy(input[i], plain, sizeof(plain)));
    }
    for (uint32_t n = 1; n <= RED_MAX_INPUTS; n = n < 4 ? n + 1 : n * 2) {
        for (uint32_t i = 0; i < n; i++)
            srcs[i] = input[i];
        call.n = n;
        call.dst = output;
        ok(mem_reduce_async(&call, NULL));
        memset(srcs, 0, sizeof(srcs));   /* the call was copied */
        ok(mem_copy_async(plain, output, sizeof(plain), NULL));
        ok(mem_stream_synchronize(NULL));
        for (int j = 0; j < COUNT; j++)
            assert_int_equal(plain[j], (int)(n * (n + 1) / 2) * 1000 + (int)n * j);
    }
    srcs[0] = input[0];
    srcs[1] = host;
    call.n = 2;
    memset(host, 0, sizeof(plain));
    call.dst = host;
    ok(mem_reduce_async(&call, NULL));   /* pinned host memory is fine, in place too */
    ok(mem_stream_synchronize(NULL));
    assert_int_equal(host[7], 1007);
    call.n = 1;
    call.scale = &factor;
    ok(mem_reduce_async(&call, NULL));
    factor = 0;   /* it was copied */
    ok(mem_stream_synchronize(NULL));
    assert_int_equal(host[7], 3021);
    call.n = 2;
    call.scale = NULL;
    srcs[1] = plain;
    fails(mem_reduce_async(&call, NULL), HETMPI_ERR_DEVICE, "pin it");
    srcs[1] = host;
    call.dst = plain;
    fails(mem_reduce_async(&call, NULL), HETMPI_ERR_DEVICE, "pin it");
    call.dst = output + 1;
    fails(mem_reduce_async(&call, NULL), HETMPI_ERR_DEVICE, "goes beyond");
    call.count = 0;
    ok(mem_reduce_async(&call, NULL));
    for (int i = 0; i < RED_MAX_INPUTS; i++)
        ok(mem_free(input[i]));   /* would wait for ever if a refused call still held one */
}

/*
 * Streams and events
 */

static void streams_are_in_order_and_overlap(void **state)
{
    _Atomic uint64_t *word;
    mem_stream_t *a, *b;
    mem_event_t *in_a, *in_b;
    bool done;
    char *device, host = 0;

    (void)state;
    begin("nvidia", "");
    ok(mem_host_alloc(64, (void **)&word));
    memset((void *)word, 0, 64);
    ok(mem_alloc(8, (void **)&device));
    ok(mem_set_async(device, 1, 1, NULL));
    ok(mem_stream_synchronize(NULL));
    ok(mem_stream_create(&a));
    ok(mem_stream_create(&b));
    ok(mem_event_create(&in_a));
    ok(mem_event_create(&in_b));
    ok(mem_event_query(in_a, &done));
    assert_true(done);   /* never recorded */
    ok(mem_stream_wait_event(a, in_a));

    ok(mem_stream_wait_value(a, &word[0], 1));
    ok(mem_set_async(device, 2, 1, a));
    ok(mem_event_record(in_a, a));
    ok(mem_stream_wait_event(b, in_a));
    ok(mem_copy_async(&host, device, 1, b));
    ok(mem_stream_write_value(b, &word[1], 77));
    ok(mem_event_record(in_b, b));
    ok(mem_set_async(device, 3, 1, NULL));   /* another stream does not wait */
    ok(mem_stream_synchronize(NULL));
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    ok(mem_event_query(in_a, &done));
    assert_false(done);
    ok(mem_event_query(in_b, &done));
    assert_false(done);
    assert_int_equal(atomic_load(&word[1]), 0);
    atomic_store(&word[0], 5);               /* more than was waited for */
    ok(await(in_b));
    ok(await(in_a));
    assert_int_equal(host, 2);
    assert_int_equal(atomic_load(&word[1]), 77);
    fails(mem_stream_wait_value(a, (_Atomic uint64_t *)&done, 1), HETMPI_ERR_DEVICE, "pin it");
    fails(mem_stream_write_value(a, (_Atomic uint64_t *)device, 1), HETMPI_ERR_DEVICE, "device");
    mem_event_destroy(in_a);
    mem_event_destroy(in_b);
    mem_event_destroy(NULL);
    ok(mem_stream_destroy(a));
    ok(mem_stream_destroy(b));
    ok(mem_stream_destroy(NULL));
}

static void event_recorded_again(void **state)
{
    _Atomic uint64_t *word;
    mem_stream_t *stream, *other;
    mem_event_t *event;
    bool done;

    (void)state;
    begin("nvidia", "");
    ok(mem_host_alloc(64, (void **)&word));
    memset((void *)word, 0, 64);
    ok(mem_stream_create(&stream));
    ok(mem_event_create(&event));
    ok(mem_stream_wait_value(stream, word, 1));
    ok(mem_event_record(event, stream));
    ok(mem_stream_wait_value(stream, word, 2));
    ok(mem_event_record(event, stream));
    atomic_store(word, 1);
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    ok(mem_event_query(event, &done));
    assert_false(done);                      /* the last recording counts */
    ok(mem_stream_create(&other));
    ok(mem_event_record(event, other));
    ok(await(event));                        /* it is in another stream now */
    atomic_store(word, 2);
    ok(mem_stream_synchronize(stream));
    ok(mem_event_query(event, &done));
    assert_true(done);                       /* and an earlier one that comes later changes nothing */
    ok(mem_stream_wait_value(stream, word, 3));
    ok(mem_event_record(event, stream));
    mem_event_destroy(event);                /* while a recording is queued */
    atomic_store(word, 3);
    ok(mem_stream_destroy(stream));          /* finishes the work first */
}

static void *write_later(void *word)
{
    nanosleep(&(struct timespec){.tv_nsec = 30000000}, NULL);
    atomic_store((_Atomic uint64_t *)word, 1);
    return NULL;
}

/* Freeing waits for the work that uses the memory, and for no other. */
static void free_waits_for_the_work(void **state)
{
    _Atomic uint64_t *word;
    mem_stream_t *stream;
    pthread_t thread;
    void *used, *unused, *pinned;

    (void)state;
    begin("nvidia", "");
    ok(mem_host_alloc(64, (void **)&word));
    memset((void *)word, 0, 64);
    ok(mem_alloc(100, &used));
    ok(mem_alloc(100, &unused));
    ok(mem_host_alloc(100, &pinned));
    ok(mem_stream_create(&stream));
    ok(mem_stream_wait_value(stream, word, 1));
    ok(mem_copy_async(pinned, used, 100, stream));
    ok(mem_free(unused));
    assert_int_equal(atomic_load(word), 0);
    assert_int_equal(pthread_create(&thread, NULL, write_later, word), 0);
    ok(mem_free(used));
    assert_int_equal(atomic_load(word), 1);
    ok(mem_host_free(pinned));
    pthread_join(thread, NULL);
}

/* A long queue: 20,000 operations behind a wait, none lost, in order; then freeing waits for the work. */
static void long_queue(void **state)
{
    enum { N = 20000 };
    _Atomic uint64_t *word;
    uint32_t *device;
    static uint32_t host[N];
    mem_stream_t *stream;

    (void)state;
    begin("amd", "");
    ok(mem_host_alloc(64, (void **)&word));
    memset((void *)word, 0, 64);
    ok(mem_alloc(sizeof(host), (void **)&device));
    ok(mem_stream_create(&stream));
    ok(mem_set_async(device, 0, sizeof(host), stream));
    ok(mem_stream_wait_value(stream, word, 1));
    for (uint32_t i = 0; i < N; i++)
        host[i] = i;
    for (uint32_t i = 0; i < N; i++)
        ok(mem_copy_async(device + N - 1 - i, &host[i], 4, stream));
    atomic_store(word, 1);
    ok(mem_stream_synchronize(stream));
    ok(mem_copy(host, device, sizeof(host)));
    for (uint32_t i = 0; i < N; i++)
        assert_int_equal(host[i], N - 1 - i);
    for (int i = 0; i < 50; i++)
        ok(mem_set_async(device, i, sizeof(host), stream));
    ok(mem_free(device));
    fails(mem_set_async(device, 1, 1, stream), HETMPI_ERR_DEVICE, "outside");
}

static void *hammer(void *stream)
{
    char *device, host[256];
    mem_event_t *event;

    if (mem_event_create(&event))
        return "event";
    for (int i = 0; i < 200; i++) {
        if (mem_alloc(256 + (size_t)i, (void **)&device) || mem_set_async(device, i & 127, 256, stream) ||
            mem_copy_async(host, device, 256, stream) || mem_event_record(event, stream) || await(event))
            return "call";
        if (host[0] != (i & 127) || host[255] != (i & 127))
            return "data";
        if (mem_free(device))
            return "free";
    }
    mem_event_destroy(event);
    return NULL;
}

static void threads_share_the_runtime(void **state)
{
    pthread_t threads[4];
    mem_stream_t *stream;
    void *failure;

    (void)state;
    begin("nvidia", "");
    ok(mem_stream_create(&stream));
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, hammer, i < 2 ? stream : NULL), 0);
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], &failure);
        assert_null(failure);
    }
}

/* The end of the runtime does not wait for what never comes, and frees what was left. */
static void fini_with_everything_pending(void **state)
{
    _Atomic uint64_t *word;
    mem_stream_t *streams[3];
    mem_event_t *event;
    void *device;

    (void)state;
    begin("nvidia", "");
    ok(mem_host_alloc(64, (void **)&word));
    memset((void *)word, 0, 64);
    ok(mem_alloc(1000, &device));
    ok(mem_event_create(&event));
    for (int i = 0; i < 3; i++)
        ok(mem_stream_create(&streams[i]));
    ok(mem_stream_wait_value(streams[0], word, 1));
    ok(mem_event_record(event, streams[0]));
    ok(mem_stream_wait_event(streams[1], event));
    ok(mem_set_async(device, 1, 1000, streams[1]));
    ok(mem_stream_wait_value(NULL, word, 1));
    nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
}

/*
 * Faults, settings
 */

static void failed_copies(void **state)
{
    mem_event_t *first, *second, *third, *late;
    mem_stream_t *stream, *other;
    char *device, host = 9;

    (void)state;
    begin("nvidia", "copy@2,kernel@1,copy@4");
    ok(mem_alloc(1, (void **)&device));
    ok(mem_stream_create(&stream));
    ok(mem_stream_create(&other));
    ok(mem_event_create(&first));
    ok(mem_event_create(&second));
    ok(mem_event_create(&third));
    ok(mem_event_create(&late));
    ok(mem_copy_async(device, &host, 1, stream));
    ok(mem_event_record(first, stream));
    host = 0;
    ok(mem_copy_async(&host, device, 1, stream));        /* fails later */
    ok(mem_event_record(second, stream));
    ok(mem_stream_wait_event(other, second));
    ok(mem_set_async(device, 1, 1, other));
    ok(mem_event_record(third, other));
    ok(await(first));
    fails(await(third), HETMPI_ERR_DEVICE, "copy 2 ");   /* came over with the event */
    fails(await(second), HETMPI_ERR_DEVICE, "copy 2 ");
    fails(await(second), HETMPI_ERR_DEVICE, "copy 2 ");  /* each time */
    assert_int_equal(host, 0);
    ok(mem_copy_async(&host, device, 1, stream));        /* the stream goes on */
    ok(mem_event_record(late, stream));
    ok(await(late));
    assert_int_equal(host, 1);
    fails(mem_stream_synchronize(stream), HETMPI_ERR_DEVICE, "copy 2 ");
    ok(mem_stream_synchronize(stream));                  /* once */
    fails(mem_copy(&host, device, 1), HETMPI_ERR_DEVICE, "copy 4 ");
    ok(mem_copy(&host, device, 1));
    ok(mem_stream_destroy(stream));
}

static void failed_kernel(void **state)
{
    const void *src;
    void *device;
    struct red_call call = {.type = RED_FLOAT32, .op = RED_SUM, .n = 1, .srcs = &src, .count = 4};
    mem_stream_t *stream;

    (void)state;
    begin("nvidia", "kernel@2");
    ok(mem_alloc(16, &device));
    ok(mem_stream_create(&stream));
    src = call.dst = device;
    ok(mem_reduce_async(&call, stream));
    ok(mem_stream_synchronize(stream));
    ok(mem_reduce_async(&call, stream));
    fails(mem_stream_destroy(stream), HETMPI_ERR_DEVICE, "kernel 2 ");   /* nobody had been told */
}

static void failed_allocation(void **state)
{
    void *device, *kept;

    (void)state;
    begin("nvidia", "alloc@2");
    ok(mem_alloc(16, &device));
    kept = device;
    fails(mem_alloc(16, &device), HETMPI_ERR_MEMORY, "allocation 2 ");
    assert_ptr_equal(device, kept);
    ok(mem_alloc(16, &device));
}

static void slow_operations(void **state)
{
    struct timespec from, to;
    void *device;
    double seconds;

    (void)state;
    begin("nvidia", "slow@3:30ms");
    ok(mem_alloc(16, &device));
    for (int i = 0; i < 4; i++) {
        clock_gettime(CLOCK_MONOTONIC, &from);
        ok(mem_set_async(device, 0, 16, NULL));
        ok(mem_stream_synchronize(NULL));
        clock_gettime(CLOCK_MONOTONIC, &to);
        seconds = (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec) * 1e-9;
        if (i >= 2)
            assert_true(seconds >= 0.030);
    }
}

static void bad_settings(void **state)
{
    static const char *const bad[] = {"copy", "copy@", "copy@0", "copy@x", "copy@-1", "cpoy@1", "copy@1:5ms", "slow@1",
                                      "slow@1:", "slow@1:-1ms", "slow@1:5parsec", "copy@1,", "copy@1,,alloc@2", "@1",
                                      "copy@1%2", "copy@99999999999999999999"};
    struct mem_setup setup = {.vendor = "nvidia", .device = -1};

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        setup.fault = bad[i];
        fails(mem_init(&setup), HETMPI_ERR_CONFIG, "SIM_FAULT");
    }
    setup.fault = "kernel@3,cpoy@1";
    fails(mem_init(&setup), HETMPI_ERR_CONFIG, "\"cpoy@1\"");
    setup.fault = "";
    setup.vendor = "intel";
    fails(mem_init(&setup), HETMPI_ERR_CONFIG, "\"intel\"");
    setup.vendor = "amd";
    setup.bandwidth = -1;
    fails(mem_init(&setup), HETMPI_ERR_CONFIG, "-1");
    setup.bandwidth = 0;
    setup.device = 3;
    setup.fault = "copy@1,alloc@2,ipc@3,kernel@4,pin@5,stream@6,slow@7:1us";
    ok(mem_init(&setup));
    assert_int_equal(mem_device(), 3);
    fails(mem_init(&setup), HETMPI_ERR_STATE, "already");
}

static void vendor_cpu_has_no_device(void **state)
{
    int32_t a[2] = {1, 2}, b[2] = {3, 4};
    const void *srcs[2] = {a, b};
    struct red_call call = {.type = RED_INT32, .op = RED_SUM, .n = 2, .srcs = srcs, .dst = a, .count = 2};
    _Atomic uint64_t word = 0;
    mem_stream_t *stream;
    mem_event_t *event;
    mem_ipc_t handle;
    bool done = false;
    char *ptr;

    (void)state;
    begin("cpu", "");
    assert_false(mem_has_device());
    assert_string_equal(mem_vendor(), "cpu");
    assert_int_equal(mem_device(), -1);
    ok(mem_alloc(100, (void **)&ptr));
    ptr[99] = 1;
    expect_query(ptr + 99, MEM_HOST_PINNED, ptr, 100);
    ok(mem_stream_create(&stream));
    ok(mem_event_create(&event));
    ok(mem_reduce_async(&call, stream));
    assert_true(a[0] == 4 && a[1] == 6);
    ok(mem_set_async(b, 0, sizeof(b), NULL));
    assert_int_equal(b[1], 0);
    ok(mem_copy_async(b, a, sizeof(a), stream));
    assert_int_equal(b[1], 6);
    ok(mem_stream_write_value(stream, &word, 3));
    ok(mem_stream_wait_value(stream, &word, 3));
    ok(mem_event_record(event, stream));
    ok(mem_stream_wait_event(NULL, event));
    ok(mem_event_query(event, &done));
    assert_true(done);
    ok(mem_stream_synchronize(NULL));
    fails(mem_ipc_export(ptr, &handle), HETMPI_ERR_UNSUPPORTED, "no device");
    ok(mem_host_free(ptr));   /* either call frees it: it is all host memory */
    mem_event_destroy(event);
    ok(mem_stream_destroy(stream));
}

#define TEST(name) cmocka_unit_test_teardown(name, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(host_cannot_touch), TEST(query_is_exact), TEST(freed_memory_goes_back), TEST(many_allocations),
        TEST(copies_between_all_kinds), TEST(wrong_addresses_are_errors), TEST(kernels),
        TEST(streams_are_in_order_and_overlap), TEST(event_recorded_again), TEST(long_queue),
        TEST(free_waits_for_the_work), TEST(threads_share_the_runtime), TEST(fini_with_everything_pending),
        TEST(failed_copies), TEST(failed_kernel), TEST(failed_allocation), TEST(slow_operations),
        TEST(bad_settings), TEST(vendor_cpu_has_no_device),
    };

    if (strcmp(mem_backend(), "sim") != 0) {
        printf("skipped: this is the %s runtime, not sim\n", mem_backend());
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
