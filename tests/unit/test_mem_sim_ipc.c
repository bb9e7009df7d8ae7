/* Handles of simulated device memory between two processes: the test opens what a forked owner exports. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check_codes.h"
#include "mem/mem.h"

#define COUNT 50000
#define BYTES (COUNT * sizeof(int32_t))

/*
 * The owner: exports COUNT integers (element i is i), then obeys: 'c' checks that element i is now -i, 'f' frees and
 * allocates again (a new buffer in the same place), 'q' ends. It answers 'y' or 'n'.
 */
struct owner { pid_t pid; int to, from; mem_ipc_t handle; };

static int owner_answer(char command, int32_t **device, int32_t *host)
{
    bool right = true;

    if (command == 'f')
        return !mem_free(*device) && !mem_alloc(BYTES, (void **)device);
    if (mem_copy(host, *device, BYTES))
        return 0;
    for (int i = 0; i < COUNT; i++)
        right = right && host[i] == -i;
    return right;
}

static void owner_main(const char *vendor, int in, int out)
{
    struct mem_setup setup = {.vendor = vendor, .device = 1, .fault = ""};
    int32_t *device, *host = malloc(BYTES);
    void *other;
    mem_ipc_t handle;
    char command;

    if (!host || mem_init(&setup) || mem_alloc(1000, &other) || mem_alloc(BYTES, (void **)&device))
        _exit(2);
    for (int i = 0; i < COUNT; i++)
        host[i] = i;
    if (mem_copy(device, host, BYTES) || mem_ipc_export(device, &handle) ||
        write(out, &handle, sizeof(handle)) != sizeof(handle))
        _exit(3);
    while (read(in, &command, 1) == 1 && command != 'q')
        if (write(out, owner_answer(command, &device, host) ? "y" : "n", 1) != 1)
            _exit(4);
    mem_fini();
    free(host);
    _exit(0);
}

static void owner_start(struct owner *owner, const char *vendor)
{
    int down[2], up[2];

    assert_int_equal(pipe(down), 0);
    assert_int_equal(pipe(up), 0);
    owner->pid = fork();
    assert_true(owner->pid >= 0);
    if (owner->pid == 0) {
        close(down[1]);
        close(up[0]);
        owner_main(vendor, down[0], up[1]);
    }
    close(down[0]);
    close(up[1]);
    owner->to = down[1];
    owner->from = up[0];
    assert_int_equal(read(owner->from, &owner->handle, sizeof(owner->handle)), sizeof(owner->handle));
}

static void owner_do(struct owner *owner, char command)
{
    char answer = 0;

    assert_int_equal(write(owner->to, &command, 1), 1);
    assert_int_equal(read(owner->from, &answer, 1), 1);
    assert_int_equal(answer, 'y');
}

static void owner_end(struct owner *owner)
{
    int status;

    assert_int_equal(write(owner->to, "q", 1), 1);
    close(owner->to);
    close(owner->from);
    assert_int_equal(waitpid(owner->pid, &status, 0), owner->pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void begin(const char *vendor, const char *fault, double peer_bandwidth, double bandwidth)
{
    struct mem_setup setup = {.vendor = vendor, .device = -1, .fault = fault, .peer_bandwidth = peer_bandwidth,
                              .bandwidth = bandwidth};

    ok(mem_init(&setup));
}

static int end(void **state)
{
    (void)state;
    mem_fini();
    return 0;
}

static void reads_and_writes(void **state)
{
    static int32_t host[COUNT];
    struct mem_pointer query;
    struct owner owner;
    int32_t *peer, *mine;
    const void *srcs[2];
    struct red_call call = {.type = RED_INT32, .op = RED_SUM, .n = 2, .srcs = srcs, .count = COUNT};
    int status;
    pid_t child;

    (void)state;
    owner_start(&owner, "nvidia");
    begin("nvidia", "", 0, 0);
    ok(mem_ipc_open(&owner.handle, (void **)&peer));
    ok(mem_query((char *)peer + BYTES - 1, &query));
    assert_int_equal(query.kind, MEM_DEVICE);
    assert_ptr_equal(query.base, peer);
    assert_int_equal(query.bytes, BYTES);
    assert_true(query.id != 0);
    child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        host[0] = *(volatile int32_t *)peer;
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);

    ok(mem_copy(host, peer, BYTES));
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(host[i], i);
    for (int i = 0; i < COUNT; i++)
        host[i] = -2 * i;
    ok(mem_alloc(BYTES, (void **)&mine));
    ok(mem_copy(mine, host, BYTES));
    srcs[0] = peer;
    srcs[1] = mine;
    call.dst = peer;
    ok(mem_reduce_async(&call, NULL));       /* a kernel that reads and writes another device's memory */
    ok(mem_stream_synchronize(NULL));
    owner_do(&owner, 'c');

    fails(mem_copy(host, (char *)peer + 4, BYTES), HETMPI_ERR_DEVICE, "goes beyond");
    fails(mem_free(peer), HETMPI_ERR_ARG, "device memory");
    fails(mem_ipc_close(mine), HETMPI_ERR_ARG, "closing");
    fails(mem_ipc_export(peer, &owner.handle), HETMPI_ERR_DEVICE, "not the start");
    ok(mem_ipc_close(peer));
    fails(mem_copy(host, peer, 4), HETMPI_ERR_DEVICE, "outside any allocation");
    fails(mem_ipc_close(peer), HETMPI_ERR_ARG, "closing");
    owner_end(&owner);
}

/* A mapping that is open when the owner frees or ends stays memory: what it holds means nothing, nobody crashes. */
static void outlives_the_owner(void **state)
{
    struct owner owner;
    int32_t *peer, value;
    void *again;

    (void)state;
    owner_start(&owner, "amd");
    begin("amd", "", 0, 0);
    ok(mem_ipc_open(&owner.handle, (void **)&peer));
    owner_do(&owner, 'f');
    ok(mem_copy(&value, peer + COUNT - 1, sizeof(value)));
    fails(mem_ipc_open(&owner.handle, &again), HETMPI_ERR_DEVICE, "stale");
    owner_end(&owner);
    ok(mem_copy(peer, &value, sizeof(value)));
    fails(mem_ipc_open(&owner.handle, &again), HETMPI_ERR_DEVICE, "ended");
}

static void refuses_what_is_not_for_it(void **state)
{
    struct owner owner;
    mem_ipc_t own, bad;
    void *ptr, *mine;

    (void)state;
    owner_start(&owner, "nvidia");
    begin("amd", "ipc@4", 0, 0);
    fails(mem_ipc_open(&owner.handle, &ptr), HETMPI_ERR_DEVICE, "nvidia");
    memset(&bad, 0x3c, sizeof(bad));
    fails(mem_ipc_open(&bad, &ptr), HETMPI_ERR_DEVICE, "no handle");
    ok(mem_alloc(5000, &mine));
    ok(mem_ipc_export(mine, &own));
    fails(mem_ipc_open(&own, &ptr), HETMPI_ERR_DEVICE, "own memory");
    fails(mem_ipc_open(&own, &ptr), HETMPI_ERR_DEVICE, "injected");
    fails(mem_ipc_export((char *)mine + 256, &own), HETMPI_ERR_DEVICE, "not the start");
    fails(mem_ipc_export(&own, &own), HETMPI_ERR_DEVICE, "not the start");
    owner_end(&owner);
}

/* The bytes of mapped operands go over the peer's lanes: 200 kB at 10 MB/s; reading and writing overlap. */
static void peer_lane_takes_time(void **state)
{
    const double bound = BYTES / 10e6;
    struct timespec from, to;
    struct owner owner;
    int32_t *peer, *mine;
    const void *srcs[2];
    struct red_call call = {.type = RED_INT32, .op = RED_SUM, .n = 2, .srcs = srcs, .count = COUNT};
    double seconds, best[3] = {1e9, 1e9, 1e9};

    (void)state;
    owner_start(&owner, "nvidia");
    begin("nvidia", "", 10e6, 0);
    ok(mem_ipc_open(&owner.handle, (void **)&peer));
    ok(mem_alloc(BYTES, (void **)&mine));
    srcs[0] = peer;
    srcs[1] = mine;
    for (int trial = 0; trial < 18; trial++) {
        int what = trial % 3;   /* read one operand; read and write; no peer at all */

        srcs[0] = what == 2 ? mine : peer;
        call.dst = what == 1 ? peer : mine;
        clock_gettime(CLOCK_MONOTONIC, &from);
        ok(mem_reduce_async(&call, NULL));
        ok(mem_stream_synchronize(NULL));
        clock_gettime(CLOCK_MONOTONIC, &to);
        seconds = (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec) * 1e-9;
        assert_true(what == 2 || seconds >= bound * 0.9999);
        if (seconds < best[what])
            best[what] = seconds;
    }
    print_message("             %.2f ms: read %.2f ms, read and write %.2f ms, local %.2f ms\n", bound * 1e3,
                  best[0] * 1e3, best[1] * 1e3, best[2] * 1e3);
    assert_true(best[0] < bound * 1.5 && best[1] < bound * 1.5 && best[2] < bound * 0.8);
    owner_end(&owner);
}

#define TEST(name) cmocka_unit_test_teardown(name, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(reads_and_writes), TEST(outlives_the_owner), TEST(refuses_what_is_not_for_it), TEST(peer_lane_takes_time),
    };

    if (strcmp(mem_backend(), "sim") != 0) {
        printf("skipped: this is the %s runtime, not sim\n", mem_backend());
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
