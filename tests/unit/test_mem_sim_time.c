/*
 * The timing model of the simulated device. A busy machine makes a measurement too long, never too short: the lower
 * bound must hold always, the upper one in one of several trials.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <sys/resource.h>
#include <time.h>

#include "check_codes.h"
#include "mem/mem.h"

#define TRIALS 100
#define CHUNK ((size_t)65536)
#define CHUNKS 64
#define RATE 200e6
#define CHUNK_SECONDS ((double)CHUNK / RATE)

/* Sanitizers make the memory itself slower than the link. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define TOLERANCE 1.5
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define TOLERANCE 1.5
#endif
#endif
#ifndef TOLERANCE
#define TOLERANCE 1.03
#endif

static char *device, *host;
static mem_stream_t *a, *b;

/* Threads run and memory is touched before anything is measured. */
static void begin(double bandwidth, double latency)
{
    struct mem_setup setup = {.vendor = "nvidia", .device = -1, .fault = "", .bandwidth = bandwidth,
                              .latency = latency};

    ok(mem_init(&setup));
    ok(mem_alloc(2 * CHUNKS * CHUNK, (void **)&device));
    ok(mem_host_alloc(2 * CHUNKS * CHUNK, (void **)&host));
    memset(host, 1, 2 * CHUNKS * CHUNK);
    ok(mem_stream_create(&a));
    ok(mem_stream_create(&b));
    ok(mem_set_async(device, 1, CHUNKS * CHUNK, a));
    ok(mem_set_async(device + CHUNKS * CHUNK, 1, CHUNKS * CHUNK, b));
    ok(mem_stream_synchronize(a));
    ok(mem_stream_synchronize(b));
}

static int end(void **state)
{
    (void)state;
    mem_fini();
    return 0;
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Runs work until it once took no more than the tolerance allows; it must never take less than `bound`. */
static void takes(void (*work)(void), double bound)
{
    double best = 1e9;

    for (int trial = 0; trial < TRIALS && best > bound * TOLERANCE; trial++) {
        double seconds = now();

        work();
        seconds = now() - seconds;
        if (seconds < bound * 0.9999)
            fail_msg("%.3f ms are less than the link's %.3f ms", seconds * 1e3, bound * 1e3);
        if (seconds < best)
            best = seconds;
    }
    print_message("             bound %.3f ms, best %.3f ms (%.4f)\n", bound * 1e3, best * 1e3, best / bound);
    if (best > bound * TOLERANCE)
        fail_msg("%.3f ms at best, the link needs %.3f ms", best * 1e3, bound * 1e3);
}

static void to_host(int chunk, mem_stream_t *stream)
{
    ok(mem_copy_async(host + (size_t)chunk * CHUNK, device + (size_t)chunk * CHUNK, CHUNK, stream));
}

static void to_device(int chunk, mem_stream_t *stream)
{
    ok(mem_copy_async(device + (size_t)chunk * CHUNK, host + (size_t)chunk * CHUNK, CHUNK, stream));
}

static void finish(void)
{
    ok(mem_stream_synchronize(a));
    ok(mem_stream_synchronize(b));
}

static void down_one_stream(void)
{
    for (int i = 0; i < CHUNKS; i++)
        to_host(i, a);
    finish();
}

static void down_and_up(void)
{
    for (int i = 0; i < CHUNKS; i++) {
        to_host(i, a);
        to_device(CHUNKS + i, b);
    }
    finish();
}

static void down_two_streams(void)
{
    for (int i = 0; i < CHUNKS; i++)
        to_host(i, i % 2 ? a : b);
    finish();
}

/* Each chunk goes down in one stream, then up in the other, which waits for it by an event. */
static void down_then_up(void)
{
    mem_event_t *event;

    ok(mem_event_create(&event));
    for (int i = 0; i < CHUNKS; i++) {
        to_host(i, a);
        ok(mem_event_record(event, a));
        ok(mem_stream_wait_event(b, event));
        to_device(i, b);
    }
    finish();
    mem_event_destroy(event);
}

/* One stream: a transfer on the other lane waits for the one before, and for its latency. */
static void alternating(void)
{
    for (int i = 0; i < 8; i++) {
        to_host(i, a);
        to_device(i, a);
    }
    finish();
}

static void one_blocking_copy(void)
{
    ok(mem_copy(host, device, CHUNKS * CHUNK));
}

static void link_rate(void **state)
{
    (void)state;
    begin(RATE, 0);
    takes(down_one_stream, CHUNKS * CHUNK_SECONDS);
    takes(one_blocking_copy, CHUNKS * CHUNK_SECONDS);
}

static void directions_overlap(void **state)
{
    (void)state;
    begin(RATE, 0);
    takes(down_and_up, CHUNKS * CHUNK_SECONDS);
}

static void streams_share_a_lane(void **state)
{
    (void)state;
    begin(RATE, 0);
    takes(down_two_streams, CHUNKS * CHUNK_SECONDS);
}

static void events_carry_the_time(void **state)
{
    (void)state;
    begin(RATE, 0);
    takes(down_then_up, (CHUNKS + 1) * CHUNK_SECONDS);
}

/* The latency is paid once by transfers that follow each other on a lane, each time by all others. */
static void latency_overlaps(void **state)
{
    (void)state;
    begin(RATE, 4e-3);
    takes(down_one_stream, CHUNKS * CHUNK_SECONDS + 4e-3);
    takes(alternating, 16 * (CHUNK_SECONDS + 4e-3));
}

static double cpu_seconds(void)
{
    struct rusage use;

    getrusage(RUSAGE_SELF, &use);
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
           (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) * 1e-6;
}

/* Waiting for a slow link costs next to no CPU time: what it costs is the copy itself. */
static void sleeping_is_free(void **state)
{
    double cpu, copy;

    (void)state;
    begin(20e6, 0);
    memset(host, 2, CHUNKS * CHUNK);
    copy = cpu_seconds();
    for (int i = 0; i < 10; i++) {
        memcpy(host + CHUNKS * CHUNK, host, CHUNKS * CHUNK);
        host[i]++;
    }
    copy = (cpu_seconds() - copy) / 10;
    cpu = cpu_seconds();
    down_one_stream();
    cpu = cpu_seconds() - cpu;
    print_message("             210 ms of transfer: %.2f ms of CPU time (a copy alone: %.2f ms)\n", cpu * 1e3,
                  copy * 1e3);
    assert_true(cpu < 0.02 + 5 * copy);
}

static void waiting_for_a_value_is_cheap(void **state)
{
    _Atomic uint64_t *word = (_Atomic uint64_t *)host;
    double cpu;

    (void)state;
    begin(0, 0);
    memset(host, 0, 64);
    word = (_Atomic uint64_t *)host;
    ok(mem_stream_wait_value(a, word, 1));
    cpu = cpu_seconds();
    nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
    cpu = cpu_seconds() - cpu;
    *word = 1;
    ok(mem_stream_synchronize(a));
    assert_true(cpu < 0.04);
}

/* Without a bandwidth nothing sleeps: a thousand small copies take what the thread's queue takes. */
static void unlimited(void **state)
{
    double seconds = 1e9;

    (void)state;
    begin(0, 0);
    for (int trial = 0; trial < 10 && seconds > 0.05; trial++) {
        seconds = now();
        for (int i = 0; i < 1000; i++)
            ok(mem_copy_async(host, device, 64, a));
        finish();
        seconds = now() - seconds;
    }
    print_message("             %.3f us a copy\n", seconds * 1e3);
    assert_true(seconds < 0.05);
}

#define TEST(name) cmocka_unit_test_teardown(name, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(link_rate), TEST(directions_overlap), TEST(streams_share_a_lane), TEST(events_carry_the_time),
        TEST(latency_overlaps), TEST(sleeping_is_free), TEST(waiting_for_a_value_is_cheap), TEST(unlimited),
    };

    if (strcmp(mem_backend(), "sim") != 0) {
        printf("skipped: this is the %s runtime, not sim\n", mem_backend());
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
