/* Shared segments: made, opened by name, and refused where the process may not have them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>
#include <sys/resource.h>

#include "core/log.h"
#include "core/seg.h"
#include "hetmpi.h"

#define BYTES ((size_t)1 << 20)

static void opened_by_name(void **state)
{
    struct seg mine = {.fd = -1}, other = {.fd = -1};
    struct seg_name name;

    (void)state;
    assert_int_equal(seg_create(&mine, BYTES, &name), HETMPI_SUCCESS);
    assert_int_equal(seg_open(&other, &name), HETMPI_SUCCESS);
    ((char *)mine.base)[BYTES - 1] = 42;
    assert_int_equal(((char *)other.base)[BYTES - 1], 42);
    seg_clear(&other);
    seg_clear(&mine);
}

/* A number that names another file by now: a shorter one (beyond its end comes SIGBUS), or none that can be mapped. */
static void another_file(void **state)
{
    struct seg mine = {.fd = -1}, other = {.fd = -1};
    struct seg_name name;

    (void)state;
    assert_int_equal(seg_create(&mine, 4096, &name), HETMPI_SUCCESS);
    name.bytes = BYTES;
    assert_int_equal(seg_open(&other, &name), HETMPI_ERR_INTERNAL);
    assert_non_null(strstr(err_text(), "another file"));
    name.bytes = 4;
    assert_int_equal(seg_open(&other, &name), HETMPI_ERR_INTERNAL);
    name.bytes = 4096;
    name.cookie ^= 1;
    assert_int_equal(seg_open(&other, &name), HETMPI_ERR_INTERNAL);
    name.fd = 1 << 20;
    assert_int_equal(seg_open(&other, &name), HETMPI_ERR_MEMORY);
    assert_null(other.base);
    seg_clear(&mine);
}

/* The limit on the size of files holds for memory files too, and its signal would end the program. */
static void limit_on_files(void **state)
{
    struct rlimit before, small;
    struct seg seg = {.fd = -1};
    struct seg_name name;
    int code;

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = BYTES / 2;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    code = seg_create(&seg, BYTES, &name);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(code, HETMPI_ERR_MEMORY);
    assert_non_null(strstr(err_text(), "ulimit -f"));
    assert_null(seg.base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opened_by_name),
        cmocka_unit_test(another_file),
        cmocka_unit_test(limit_on_files),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
