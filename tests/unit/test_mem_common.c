/* The table of memory ranges that every device runtime uses: exact answers, overlap, growth, readers beside writers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <pthread.h>

#include "core/log.h"
#include "hetmpi.h"
#include "mem/common.h"

static struct range make(uintptr_t base, size_t bytes)
{
    return (struct range){.base = base, .bytes = bytes, .id = range_new_id(), .kind = RANGE_REGISTERED};
}

static int clear_table(void **state)
{
    (void)state;
    plain_clear();
    return 0;
}

static void finds_exactly(void **state)
{
    struct range a = make(0x10000, 100), b = make(0x10064, 1), out;

    (void)state;
    assert_false(range_find(0x10000, &out));
    assert_int_equal(range_add(&b), 0);
    assert_int_equal(range_add(&a), 0);
    assert_true(range_find(0x10000, &out) && out.id == a.id && out.base == a.base && out.bytes == 100);
    assert_true(range_find(0x10063, &out) && out.id == a.id);
    assert_true(range_find(0x10064, &out) && out.id == b.id);
    assert_false(range_find(0x10065, &out));
    assert_false(range_find(0xffff, &out));
    assert_false(range_find(UINTPTR_MAX, &out));
    assert_false(range_remove(0x10001, ~0u, &out));
    assert_false(range_remove(0x10000, RANGE_BIT(RANGE_HEAP), &out));
    assert_true(range_remove(0x10000, RANGE_BIT(RANGE_REGISTERED), &out) && out.id == a.id);
    assert_false(range_find(0x10063, &out));
    assert_true(range_find(0x10064, &out));
}

static void refuses_overlap(void **state)
{
    static const struct { uintptr_t base; size_t bytes; bool fits; } tries[] = {
        {0x2000, 0x100, false}, {0x1fff, 2, false}, {0x20ff, 1, false}, {0x1000, 0x5000, false}, {0x2010, 1, false},
        {0x1f00, 0x100, true}, {0x2100, 0x10, true},
    };
    struct range first = make(0x2000, 0x100), out;

    (void)state;
    assert_int_equal(range_add(&first), 0);
    for (size_t i = 0; i < sizeof(tries) / sizeof(tries[0]); i++) {
        struct range range = make(tries[i].base, tries[i].bytes);

        assert_int_equal(range_add(&range), tries[i].fits ? 0 : HETMPI_ERR_ARG);
        if (tries[i].fits)
            assert_true(range_remove(range.base, ~0u, &out) && out.id == range.id);
        else
            assert_non_null(strstr(err_text(), "0x2000"));
    }
}

/* Against a flag for each of 3000 slots, in an order that is not that of the addresses. */
static void grows(void **state)
{
    enum { SLOTS = 3000, STEP = 1009 };
    static uint64_t ids[SLOTS];
    struct range out;

    (void)state;
    for (int i = 0; i < SLOTS; i++) {
        int slot = (int)((long)i * STEP % SLOTS);
        struct range range = make(0x100000 + (uintptr_t)slot * 64, 32);

        assert_int_equal(range_add(&range), 0);
        ids[slot] = range.id;
    }
    for (int slot = 0; slot < SLOTS; slot += 3)
        assert_true(range_remove(0x100000 + (uintptr_t)slot * 64, ~0u, &out) && out.id == ids[slot]);
    for (int slot = 0; slot < SLOTS; slot++) {
        bool found = range_find(0x100000 + (uintptr_t)slot * 64 + 31, &out);

        assert_true(found == (slot % 3 != 0));
        assert_true(!found || out.id == ids[slot]);
        assert_false(range_find(0x100000 + (uintptr_t)slot * 64 + 32, &out));
    }
}

#define FIXED 50
static struct range fixed[FIXED];
static _Atomic bool stop;

static void *reader(void *wrong)
{
    struct range out;

    for (int i = 0; !atomic_load(&stop); i = (i + 1) % FIXED)
        if (!range_find(fixed[i].base + 5, &out) || out.id != fixed[i].id || out.bytes != fixed[i].bytes)
            atomic_fetch_add((_Atomic int *)wrong, 1);
    return NULL;
}

/* Ranges that stay are always found, with all their fields, while others between them come and go. */
static void readers_beside_writers(void **state)
{
    static _Atomic int wrong;
    pthread_t threads[2];
    struct range out;

    (void)state;
    for (int i = 0; i < FIXED; i++) {
        fixed[i] = make(0x100000 + (uintptr_t)i * 4096, 10 + (size_t)i);
        assert_int_equal(range_add(&fixed[i]), 0);
    }
    atomic_store(&stop, false);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, reader, &wrong), 0);
    for (int round = 0; round < 300; round++) {
        for (int i = 0; i < FIXED; i += 1 + round % 3) {
            struct range range = make(0x100000 + (uintptr_t)i * 4096 + 2048, 64);

            assert_int_equal(range_add(&range), 0);
        }
        for (int i = 0; i < FIXED; i += 1 + round % 3)
            assert_true(range_remove(0x100000 + (uintptr_t)i * 4096 + 2048, ~0u, &out));
    }
    atomic_store(&stop, true);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(wrong, 0);
}

static void waits_for_a_value(void **state)
{
    _Atomic uint64_t word = 7;

    (void)state;
    plain_wait_value(&word, 7);
    plain_wait_value(&word, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(finds_exactly, clear_table),
        cmocka_unit_test_teardown(refuses_overlap, clear_table),
        cmocka_unit_test_teardown(grows, clear_table),
        cmocka_unit_test_teardown(readers_beside_writers, clear_table),
        cmocka_unit_test(waits_for_a_value),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
