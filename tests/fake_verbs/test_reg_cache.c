/* Registered memory on the provider without hardware: which way is taken, what is kept, and what never is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/log.h"
#include "hetmpi.h"
#include "mem/mem.h"
#include "mem/reg_cache.h"

#define LOCAL IBV_ACCESS_LOCAL_WRITE
#define REMOTE (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)
#define KIB ((size_t)1 << 10)

static struct {
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct reg_cache *cache;
} nic;

/* A NIC that behaves as told, and a cache for it. */
static void nic_open(const char *dmabuf, const char *peer, const char *memlock, const struct reg_limits *limits)
{
    struct ibv_device **list;

    setenv("FAKE_VERBS_DMABUF", dmabuf, 1);
    setenv("FAKE_VERBS_PEER", peer, 1);
    if (memlock)
        setenv("FAKE_VERBS_MEMLOCK", memlock, 1);
    else
        unsetenv("FAKE_VERBS_MEMLOCK");
    list = ibv_get_device_list(NULL);
    assert_non_null(list);
    nic.context = ibv_open_device(list[0]);
    assert_non_null(nic.context);
    ibv_free_device_list(list);
    nic.pd = ibv_alloc_pd(nic.context);
    assert_int_equal(reg_cache_create(nic.pd, limits, &nic.cache), HETMPI_SUCCESS);
}

/* The protection domain can be freed only when every registration has ended. */
static void nic_close(void)
{
    reg_cache_destroy(nic.cache);
    assert_int_equal(ibv_dealloc_pd(nic.pd), 0);
    assert_int_equal(ibv_close_device(nic.context), 0);
}

static struct reg_stats stats(void)
{
    struct reg_stats out;

    reg_cache_stats(nic.cache, &out);
    return out;
}

static int start(void **state)
{
    struct mem_setup setup = {.vendor = "nvidia", .device = -1, .fault = ""};

    (void)state;
    return mem_init(&setup);
}

static int end(void **state)
{
    (void)state;
    mem_fini();
    return 0;
}

static void *pinned(size_t bytes)
{
    void *ptr = NULL;

    assert_int_equal(mem_host_alloc(bytes, &ptr), HETMPI_SUCCESS);
    return ptr;
}

static void keeps_pinned_memory(void **state)
{
    char *buffer = pinned(64 * KIB);
    const struct reg *first, *second, *other;
    uint32_t key;

    (void)state;
    nic_open("ok", "ok", NULL, NULL);
    assert_int_equal(reg_get(nic.cache, buffer + 100, 50, LOCAL, &first), HETMPI_SUCCESS);
    assert_int_equal(first->way, REG_HOST);
    assert_int_equal(first->base, (uintptr_t)buffer);   /* all of it */
    assert_int_equal(first->bytes, 64 * KIB);
    key = first->lkey;
    assert_int_equal(reg_get(nic.cache, buffer, 64 * KIB, LOCAL, &second), HETMPI_SUCCESS);
    assert_ptr_equal(first, second);
    assert_int_equal(reg_get(nic.cache, buffer, 64 * KIB, LOCAL | IBV_ACCESS_MW_BIND, &other), HETMPI_SUCCESS);
    assert_int_not_equal(other->lkey, key);             /* other rights are another registration */
    reg_put(nic.cache, first);
    reg_put(nic.cache, second);
    reg_put(nic.cache, other);
    assert_int_equal(reg_get(nic.cache, buffer, 1, LOCAL, &first), HETMPI_SUCCESS);
    assert_int_equal(first->lkey, key);
    reg_put(nic.cache, first);
    assert_int_equal(stats().hits, 2);
    assert_int_equal(stats().misses, 2);
    nic_close();
    mem_host_free(buffer);
}

static void does_not_know_memory_again_by_its_address(void **state)
{
    size_t bytes = 16 * KIB;
    void *page = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const struct reg *reg;
    uint32_t key;

    (void)state;
    assert_ptr_not_equal(page, MAP_FAILED);
    nic_open("ok", "ok", NULL, NULL);
    assert_int_equal(mem_host_register(page, bytes), HETMPI_SUCCESS);
    assert_int_equal(reg_get(nic.cache, page, bytes, LOCAL, &reg), HETMPI_SUCCESS);
    key = reg->lkey;
    reg_put(nic.cache, reg);
    assert_int_equal(mem_host_unregister(page), HETMPI_SUCCESS);
    assert_ptr_equal(mmap(page, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), page);
    assert_int_equal(mem_host_register(page, bytes), HETMPI_SUCCESS);
    assert_int_equal(reg_get(nic.cache, page, bytes, LOCAL, &reg), HETMPI_SUCCESS);
    assert_int_not_equal(reg->lkey, key);
    reg_put(nic.cache, reg);
    assert_int_equal(stats().entries, 1);               /* what was freed is given up */
    assert_int_equal(stats().dropped, 1);
    mem_host_unregister(page);
    nic_close();
    munmap(page, bytes);
}

static void plain_memory_is_registered_for_one_use(void **state)
{
    static char plain[16 * 1024];
    const struct reg *first, *second;

    (void)state;
    nic_open("ok", "ok", NULL, NULL);
    assert_int_equal(reg_get(nic.cache, plain + 10, 5000, LOCAL, &first), HETMPI_SUCCESS);
    assert_int_equal(reg_get(nic.cache, plain + 10, 5000, LOCAL, &second), HETMPI_SUCCESS);
    assert_ptr_not_equal(first, second);
    assert_int_equal(first->base, (uintptr_t)plain + 10);
    assert_int_equal(first->bytes, 5000);
    assert_int_equal(stats().bytes, 10000);
    reg_put(nic.cache, first);
    reg_put(nic.cache, second);
    assert_int_equal(stats().entries, 0);
    nic_close();
}

static void a_key_for_a_peer_covers_what_is_meant_and_ends(void **state)
{
    char *buffer = pinned(64 * KIB);
    const struct reg *reg;
    uint32_t key;

    (void)state;
    nic_open("ok", "ok", NULL, NULL);
    assert_int_equal(reg_get(nic.cache, buffer + 1000, 3000, REMOTE, &reg), HETMPI_SUCCESS);
    assert_int_equal(reg->base, (uintptr_t)buffer + 1000);
    assert_int_equal(reg->bytes, 3000);
    key = reg->rkey;
    reg_put(nic.cache, reg);
    assert_int_equal(stats().entries, 0);
    assert_int_equal(reg_get(nic.cache, buffer + 1000, 3000, REMOTE, &reg), HETMPI_SUCCESS);
    assert_int_not_equal(reg->rkey, key);
    reg_put(nic.cache, reg);
    nic_close();
    mem_host_free(buffer);
}

static void drops_the_least_recently_used(void **state)
{
    struct reg_limits limits = {.bytes = 100 * KIB, .entries = 3};
    const struct reg *reg, *held[3];
    void *buffer[5];

    (void)state;
    nic_open("ok", "ok", NULL, &limits);
    for (int i = 0; i < 5; i++)
        buffer[i] = pinned(32 * KIB);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(reg_get(nic.cache, buffer[i], 1, LOCAL, &reg), HETMPI_SUCCESS);
        reg_put(nic.cache, reg);
    }
    assert_int_equal(reg_get(nic.cache, buffer[0], 1, LOCAL, &reg), HETMPI_SUCCESS);   /* 1 is the oldest now */
    reg_put(nic.cache, reg);
    assert_int_equal(reg_get(nic.cache, buffer[3], 1, LOCAL, &reg), HETMPI_SUCCESS);
    reg_put(nic.cache, reg);
    assert_int_equal(stats().entries, 3);
    assert_int_equal(stats().dropped, 1);
    assert_int_equal(reg_get(nic.cache, buffer[0], 1, LOCAL, &held[0]), HETMPI_SUCCESS);
    assert_int_equal(stats().misses, 4);                                               /* still there */
    assert_int_equal(reg_get(nic.cache, buffer[1], 1, LOCAL, &held[1]), HETMPI_SUCCESS);
    assert_int_equal(stats().misses, 5);                                               /* that one had gone */
    assert_int_equal(reg_get(nic.cache, buffer[2], 1, LOCAL, &held[2]), HETMPI_SUCCESS);
    /* All are in use: one more is for this use alone, and takes no other's place. */
    assert_int_equal(reg_get(nic.cache, buffer[4], 100, LOCAL, &reg), HETMPI_SUCCESS);
    assert_int_equal(reg->bytes, 100);
    assert_int_equal(stats().entries, 4);
    reg_put(nic.cache, reg);
    assert_int_equal(stats().entries, 3);
    for (int i = 0; i < 3; i++)
        reg_put(nic.cache, held[i]);
    nic_close();
    for (int i = 0; i < 5; i++)
        mem_host_free(buffer[i]);
}

static void bounds_bytes(void **state)
{
    struct reg_limits limits = {.bytes = 100 * KIB, .entries = 10};
    void *small = pinned(60 * KIB), *other = pinned(60 * KIB), *large = pinned(200 * KIB);
    const struct reg *reg;

    (void)state;
    nic_open("ok", "ok", NULL, &limits);
    assert_int_equal(reg_get(nic.cache, small, 1, LOCAL, &reg), HETMPI_SUCCESS);
    reg_put(nic.cache, reg);
    assert_int_equal(reg_get(nic.cache, other, 1, LOCAL, &reg), HETMPI_SUCCESS);
    reg_put(nic.cache, reg);
    assert_int_equal(stats().bytes, 60 * KIB);
    assert_int_equal(reg_get(nic.cache, large, 150 * KIB, LOCAL, &reg), HETMPI_SUCCESS);
    assert_int_equal(reg->bytes, 150 * KIB);   /* too large to keep */
    reg_put(nic.cache, reg);
    assert_int_equal(stats().bytes, 60 * KIB);
    nic_close();
    mem_host_free(small);
    mem_host_free(other);
    mem_host_free(large);
}

static void forgets_what_will_be_freed(void **state)
{
    void *idle = pinned(KIB), *used = pinned(KIB);
    const struct reg *reg, *again;

    (void)state;
    nic_open("ok", "ok", NULL, NULL);
    assert_int_equal(reg_get(nic.cache, idle, 1, LOCAL, &reg), HETMPI_SUCCESS);
    reg_put(nic.cache, reg);
    reg_forget(idle);
    assert_int_equal(stats().entries, 0);
    assert_int_equal(reg_get(nic.cache, used, 1, LOCAL, &reg), HETMPI_SUCCESS);
    reg_forget(used);
    assert_int_equal(stats().entries, 1);      /* until its user is done */
    assert_int_equal(reg_get(nic.cache, used, 1, LOCAL, &again), HETMPI_SUCCESS);
    assert_ptr_not_equal(again, reg);
    reg_put(nic.cache, again);
    reg_put(nic.cache, reg);
    assert_int_equal(stats().entries, 1);
    nic_close();
    mem_host_free(idle);
    mem_host_free(used);
}

/* The limit of locked memory: a message with the number; idle registrations make way; what still fits goes. */
static void memlock_is_too_small(void **state)
{
    static char plain[256 * 1024];
    struct rlimit before, limit;
    void *first = pinned(48 * KIB), *second = pinned(48 * KIB);
    const struct reg *reg;

    (void)state;
    nic_open("ok", "ok", "65536", NULL);
    getrlimit(RLIMIT_MEMLOCK, &before);
    limit = before;
    limit.rlim_cur = 65536;
    assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
    assert_int_equal(reg_get(nic.cache, plain, sizeof(plain), LOCAL, &reg), HETMPI_ERR_UNSUPPORTED);
    assert_non_null(strstr(err_text(), "65536 bytes (ulimit -l)"));
    assert_non_null(strstr(err_text(), "262144 bytes"));
    assert_int_equal(stats().entries, 0);
    assert_int_equal(reg_get(nic.cache, first, 1, LOCAL, &reg), HETMPI_SUCCESS);
    reg_put(nic.cache, reg);
    assert_int_equal(reg_get(nic.cache, second, 1, LOCAL, &reg), HETMPI_SUCCESS);
    assert_int_equal(stats().dropped, 1);
    /* In use, 16 KiB are left: not for all of the first one, but for what is asked for. */
    const struct reg *part;
    assert_int_equal(reg_get(nic.cache, first, 8 * KIB, LOCAL, &part), HETMPI_SUCCESS);
    assert_int_equal(part->bytes, 8 * KIB);
    reg_put(nic.cache, part);
    reg_put(nic.cache, reg);
    setrlimit(RLIMIT_MEMLOCK, &before);
    nic_close();
    mem_host_free(first);
    mem_host_free(second);
}

static void *device_memory(size_t bytes)
{
    void *ptr = NULL;

    if (!mem_has_device())
        skip();
    assert_int_equal(mem_alloc(bytes, &ptr), HETMPI_SUCCESS);
    return ptr;
}

static void device_memory_goes_by_dmabuf(void **state)
{
    char *buffer = device_memory(64 * KIB);
    const struct reg *reg, *exact;
    char why[256];

    (void)state;
    nic_open("ok", "ok", NULL, NULL);
    assert_int_equal(reg_cache_way(nic.cache, why, sizeof(why)), REG_UNTRIED);
    assert_int_equal(reg_get(nic.cache, buffer + 5, 10, LOCAL, &reg), HETMPI_SUCCESS);
    assert_int_equal(reg->way, REG_DMABUF);
    assert_int_equal(reg->base, (uintptr_t)buffer);
    assert_int_equal(reg_get(nic.cache, buffer + 5000, 10, REMOTE, &exact), HETMPI_SUCCESS);
    assert_int_equal(exact->way, REG_DMABUF);
    assert_int_equal(exact->base, (uintptr_t)buffer + 5000);
    assert_int_equal(exact->bytes, 10);
    reg_put(nic.cache, exact);
    reg_put(nic.cache, reg);
    assert_int_equal(reg_cache_way(nic.cache, why, sizeof(why)), REG_DMABUF);
    assert_string_equal(why, "");
    nic_close();
    mem_free(buffer);
}

static void else_by_address(void **state)
{
    void *buffer = device_memory(64 * KIB);
    const struct reg *reg;
    char why[256];

    (void)state;
    nic_open("EOPNOTSUPP", "ok", NULL, NULL);
    assert_int_equal(reg_get(nic.cache, buffer, 10, LOCAL, &reg), HETMPI_SUCCESS);
    assert_int_equal(reg->way, REG_PEER);
    reg_put(nic.cache, reg);
    assert_int_equal(reg_cache_way(nic.cache, why, sizeof(why)), REG_PEER);
    assert_non_null(strstr(why, "ibv_reg_dmabuf_mr"));
    assert_non_null(strstr(why, strerror(EOPNOTSUPP)));
    assert_null(strstr(why, "peer memory"));
    nic_close();
    mem_free(buffer);
}

static void else_it_is_staged(void **state)
{
    void *buffer = device_memory(64 * KIB), *more = device_memory(64 * KIB);
    const struct reg *reg;
    char why[512];

    (void)state;
    nic_open("EINVAL", "EFAULT", NULL, NULL);
    assert_int_equal(reg_get(nic.cache, buffer, 10, LOCAL, &reg), HETMPI_ERR_UNSUPPORTED);
    assert_int_equal(reg_cache_way(nic.cache, why, sizeof(why)), REG_STAGED);
    assert_non_null(strstr(why, "ibv_reg_dmabuf_mr"));
    assert_non_null(strstr(why, "nvidia-peermem"));
    assert_int_equal(stats().misses, 1);
    assert_int_equal(reg_get(nic.cache, more, 10, REMOTE, &reg), HETMPI_ERR_UNSUPPORTED);
    assert_non_null(strstr(err_text(), "nvidia-peermem"));
    assert_int_equal(stats().misses, 1);       /* nothing is tried again */
    assert_int_equal(reg_get(nic.cache, pinned(10), 10, LOCAL, &reg), HETMPI_SUCCESS);   /* host memory is another matter */
    reg_put(nic.cache, reg);
    nic_close();
    mem_free(buffer);
    mem_free(more);
}

static void what_may_pass_is_tried_again(void **state)
{
    void *buffer = device_memory(64 * KIB);
    const struct reg *reg;

    (void)state;
    nic_open("ENOMEM", "EFAULT", NULL, NULL);
    assert_int_equal(reg_get(nic.cache, buffer, 10, LOCAL, &reg), HETMPI_ERR_UNSUPPORTED);
    assert_int_equal(reg_get(nic.cache, buffer, 10, LOCAL, &reg), HETMPI_ERR_UNSUPPORTED);
    assert_int_equal(stats().misses, 2);
    nic_close();
    mem_free(buffer);
}

static void freed_device_memory_is_other_memory(void **state)
{
    void *buffer = device_memory(64 * KIB), *again;
    const struct reg *reg;
    uint32_t key;

    (void)state;
    nic_open("ok", "ok", NULL, NULL);
    assert_int_equal(reg_get(nic.cache, buffer, 10, LOCAL, &reg), HETMPI_SUCCESS);
    key = reg->lkey;
    reg_put(nic.cache, reg);
    mem_free(buffer);
    again = device_memory(64 * KIB);
    assert_ptr_equal(again, buffer);
    assert_int_equal(reg_get(nic.cache, again, 10, LOCAL, &reg), HETMPI_SUCCESS);
    assert_int_not_equal(reg->lkey, key);
    assert_int_equal(stats().entries, 1);
    reg_put(nic.cache, reg);
    nic_close();
    mem_free(again);
}

/* Ends the child without the exit handlers of the test's libraries. */
static void child(void *buffer, const struct reg *held)
{
    const struct reg *reg;
    int code = reg_get(nic.cache, buffer, 10, LOCAL, &reg);

    reg_put(nic.cache, held);
    reg_forget(buffer);
    reg_cache_destroy(nic.cache);
    _exit(code == HETMPI_ERR_STATE ? 0 : 1);
}

static void a_forked_child_leaves_it_alone(void **state)
{
    void *buffer = pinned(KIB);
    const struct reg *reg;
    int status;
    pid_t pid;

    (void)state;
    reg_fork_init();
    nic_open("ok", "ok", NULL, NULL);
    assert_int_equal(reg_get(nic.cache, buffer, 10, LOCAL, &reg), HETMPI_SUCCESS);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        child(buffer, reg);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    reg_put(nic.cache, reg);
    assert_int_equal(stats().entries, 1);
    nic_close();
    mem_host_free(buffer);
}

#define THREADS 4
#define BUFFERS 12
static void *shared_buffer[BUFFERS];

/* Gets and puts at random; what is held covers the buffer all the time. */
static void *use(void *argument)
{
    unsigned seed = *(unsigned *)argument;
    size_t wrong = 0;

    for (int i = 0; i < 2000; i++) {
        const struct reg *reg;
        uintptr_t at = (uintptr_t)shared_buffer[rand_r(&seed) % BUFFERS];

        if (reg_get(nic.cache, (void *)at, 100, rand_r(&seed) % 4 ? LOCAL : REMOTE, &reg))
            return "reg_get";
        wrong += reg->base > at || reg->base + reg->bytes < at + 100;
        if (rand_r(&seed) % 64 == 0)
            reg_forget((void *)at);
        reg_put(nic.cache, reg);
    }
    return wrong ? "wrong range" : NULL;
}

static void threads_share_it(void **state)
{
    struct reg_limits limits = {.bytes = KIB * KIB, .entries = 5};
    unsigned seed[THREADS];
    pthread_t thread[THREADS];

    (void)state;
    nic_open("ok", "ok", NULL, &limits);
    for (int i = 0; i < BUFFERS; i++)
        shared_buffer[i] = pinned(4 * KIB);
    for (unsigned i = 0; i < THREADS; i++) {
        seed[i] = i + 1;
        assert_int_equal(pthread_create(&thread[i], NULL, use, &seed[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        void *failed;

        pthread_join(thread[i], &failed);
        assert_null(failed);
    }
    assert_true(stats().entries <= 5);
    assert_true(stats().dropped > 100);
    nic_close();
    for (int i = 0; i < BUFFERS; i++)
        mem_host_free(shared_buffer[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_pinned_memory),
        cmocka_unit_test(does_not_know_memory_again_by_its_address),
        cmocka_unit_test(plain_memory_is_registered_for_one_use),
        cmocka_unit_test(a_key_for_a_peer_covers_what_is_meant_and_ends),
        cmocka_unit_test(drops_the_least_recently_used),
        cmocka_unit_test(bounds_bytes),
        cmocka_unit_test(forgets_what_will_be_freed),
        cmocka_unit_test(memlock_is_too_small),
        cmocka_unit_test(device_memory_goes_by_dmabuf),
        cmocka_unit_test(else_by_address),
        cmocka_unit_test(else_it_is_staged),
        cmocka_unit_test(what_may_pass_is_tried_again),
        cmocka_unit_test(freed_device_memory_is_other_memory),
        cmocka_unit_test(a_forked_child_leaves_it_alone),
        cmocka_unit_test(threads_share_it),
    };

    return cmocka_run_group_tests(tests, start, end);
}
