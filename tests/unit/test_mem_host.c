/* The runtime of ranks without a device: everything happens inline, in host memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "core/log.h"
#include "hetmpi.h"
#include "mem/mem.h"

/* Sanitizers end a program that asks for far too much, unless told that malloc may fail. */
const char *__asan_default_options(void);
const char *__tsan_default_options(void);
const char *__asan_default_options(void) { return "allocator_may_return_null=1"; }
const char *__tsan_default_options(void) { return "allocator_may_return_null=1"; }

static int start(void **state)
{
    struct mem_setup setup = {.vendor = "cpu", .device = -1, .fault = ""};

    (void)state;
    return mem_init(&setup);
}

static int end(void **state)
{
    (void)state;
    mem_fini();
    return 0;
}

static void says_what_it_is(void **state)
{
    mem_ipc_t handle;
    void *ptr = NULL;

    (void)state;
    assert_string_equal(mem_vendor(), "cpu");
    assert_false(mem_has_device());
    assert_int_equal(mem_device(), -1);
    assert_int_equal(mem_ipc_export(&handle, &handle), HETMPI_ERR_UNSUPPORTED);
    assert_int_equal(mem_ipc_open(&handle, &ptr), HETMPI_ERR_UNSUPPORTED);
    assert_int_equal(mem_ipc_close(ptr), HETMPI_ERR_UNSUPPORTED);
}

static void allocates(void **state)
{
    static const size_t sizes[] = {1, 255, 4096, 100000, (size_t)9 << 20};
    struct mem_pointer query;
    uint64_t last_id = 0;
    void *ptr = &query;

    (void)state;
    assert_int_equal(mem_alloc(0, &ptr), 0);
    assert_null(ptr);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        for (int pinned = 0; pinned < 2; pinned++) {
            assert_int_equal(pinned ? mem_host_alloc(sizes[i], &ptr) : mem_alloc(sizes[i], &ptr), 0);
            assert_int_equal((uintptr_t)ptr % 256, 0);
            memset(ptr, 0x5a, sizes[i]);
            assert_int_equal(mem_query((char *)ptr + sizes[i] - 1, &query), 0);
            assert_int_equal(query.kind, MEM_HOST_PINNED);
            assert_ptr_equal(query.base, ptr);
            assert_int_equal(query.bytes, sizes[i]);
            assert_true(query.id > last_id);
            last_id = query.id;
            assert_int_equal(pinned ? mem_free(ptr) : mem_host_free(ptr), 0);
            assert_int_equal(mem_query(ptr, &query), 0);
            assert_int_equal(query.kind, MEM_HOST);
            assert_int_equal(query.id, 0);
        }
    }
    assert_int_equal(mem_free(NULL), 0);
    assert_int_equal(mem_free(ptr), HETMPI_ERR_ARG);
    assert_int_equal(mem_alloc(SIZE_MAX - 100, &ptr), HETMPI_ERR_MEMORY);
    assert_int_equal(mem_alloc((size_t)1 << 60, &ptr), HETMPI_ERR_MEMORY);
    assert_non_null(strstr(err_text(), "1152921504606846976"));
}

static void registers(void **state)
{
    static char memory[10000];
    struct mem_pointer query;

    (void)state;
    assert_int_equal(mem_host_register(memory + 100, 5000), 0);
    mem_query(memory + 99, &query);
    assert_int_equal(query.kind, MEM_HOST);
    mem_query(memory + 5099, &query);
    assert_int_equal(query.kind, MEM_HOST_PINNED);
    assert_ptr_equal(query.base, memory + 100);
    assert_int_equal(query.bytes, 5000);
    mem_query(memory + 5100, &query);
    assert_int_equal(query.kind, MEM_HOST);
    assert_int_equal(mem_host_register(memory, 101), HETMPI_ERR_ARG);
    assert_int_equal(mem_host_register(NULL, 101), HETMPI_ERR_ARG);
    assert_int_equal(mem_host_register(memory, 0), HETMPI_ERR_ARG);
    assert_int_equal(mem_free(memory + 100), HETMPI_ERR_ARG);
    assert_int_equal(mem_host_unregister(memory), HETMPI_ERR_ARG);
    assert_int_equal(mem_host_unregister(memory + 100), 0);
    assert_int_equal(mem_host_unregister(memory + 100), HETMPI_ERR_ARG);
}

static void works_inline(void **state)
{
    int32_t a[4] = {1, 2, 3, 4}, b[4] = {10, 20, 30, 40}, c[4] = {0};
    const void *inputs[2] = {a, b};
    struct red_call call = {.type = RED_INT32, .op = RED_SUM, .n = 2, .srcs = inputs, .dst = c, .count = 4};
    _Atomic uint64_t word = 0;
    mem_stream_t *streams[2] = {NULL, NULL};
    mem_event_t *event;
    bool done = false;

    (void)state;
    assert_int_equal(mem_stream_create(&streams[0]), 0);
    assert_int_equal(mem_event_create(&event), 0);
    for (int i = 0; i < 2; i++) {
        mem_stream_t *stream = streams[i];

        assert_int_equal(mem_set_async(c, 0xff, sizeof(c), stream), 0);
        assert_int_equal(c[3], -1);
        assert_int_equal(mem_reduce_async(&call, stream), 0);
        assert_true(c[0] == 11 && c[1] == 22 && c[2] == 33 && c[3] == 44);
        assert_int_equal(mem_copy_async(c, a, 8, stream), 0);
        assert_true(c[0] == 1 && c[1] == 2 && c[2] == 33 && c[3] == 44);
        assert_int_equal(mem_stream_write_value(stream, &word, 9), 0);
        assert_int_equal(word, 9);
        assert_int_equal(mem_stream_wait_value(stream, &word, 9), 0);
        assert_int_equal(mem_event_record(event, stream), 0);
        done = false;
        assert_int_equal(mem_event_query(event, &done), 0);
        assert_true(done);
        assert_int_equal(mem_stream_wait_event(stream, event), 0);
        assert_int_equal(mem_stream_synchronize(stream), 0);
    }
    assert_int_equal(mem_copy(b, a, sizeof(a)), 0);
    assert_memory_equal(a, b, sizeof(a));
    assert_int_equal(mem_copy(NULL, NULL, 0), 0);
    assert_int_equal(mem_copy_async(NULL, NULL, 0, NULL), 0);
    assert_int_equal(mem_set_async(NULL, 1, 0, NULL), 0);
    mem_event_destroy(event);
    assert_int_equal(mem_stream_destroy(streams[0]), 0);
    assert_int_equal(mem_stream_destroy(NULL), 0);
}

static void *write_later(void *word)
{
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    atomic_store((_Atomic uint64_t *)word, 5);
    return NULL;
}

static void waits_inline_for_a_value(void **state)
{
    static _Atomic uint64_t word;
    pthread_t thread;

    (void)state;
    atomic_store(&word, 0);
    assert_int_equal(pthread_create(&thread, NULL, write_later, &word), 0);
    assert_int_equal(mem_stream_wait_value(NULL, &word, 4), 0);
    assert_int_equal(atomic_load(&word), 5);
    pthread_join(thread, NULL);
}

/* What was not given back is freed at the end: the leak checker looks. */
static void leaves_nothing(void **state)
{
    void *ptr;

    (void)state;
    for (int i = 0; i < 100; i++)
        assert_int_equal(mem_alloc(1000, &ptr), 0);
    mem_fini();
    assert_int_equal(mem_free(ptr), HETMPI_ERR_ARG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(says_what_it_is),  cmocka_unit_test(allocates),
        cmocka_unit_test(registers),        cmocka_unit_test(works_inline),
        cmocka_unit_test(waits_inline_for_a_value), cmocka_unit_test(leaves_nothing),
    };

    if (strcmp(mem_backend(), "host") != 0) {
        printf("skipped: this is the %s runtime, not host\n", mem_backend());
        return 77;
    }
    return cmocka_run_group_tests(tests, start, end);
}
