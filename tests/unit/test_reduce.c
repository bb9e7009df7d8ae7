/* What the reductions promise, by example: names, sizes, pairs, NaN, zeros, rounding, wrapping, averages, and the
 * caller's floating-point settings. */
#include <fenv.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include <cmocka.h>

#include "reduce/kernels.h"
#include "reduce/reduce.h"

#define ROWS(table) (sizeof(table) / sizeof((table)[0]))

/* One element of each input through both ways; they must agree. Elements are given and returned as bits. */
static uint64_t reduce1(enum red_type type, enum red_op op, uint32_t divide_by, uint32_t n, const uint64_t *values)
{
    uint64_t scalar = 0, vector = 0;
    const void *srcs[RED_MAX_INPUTS];
    for (uint32_t k = 0; k < n; k++)
        srcs[k] = &values[k];
    struct red_call call = { .type = type, .op = op, .divide_by = divide_by, .n = n, .srcs = srcs, .dst = &scalar,
                             .count = 1 };
    assert_true(red_size(type) <= sizeof(uint64_t));
    red_run_scalar(&call);
    call.dst = &vector;
    red_run(&call);
    assert_int_equal(vector, scalar);
    return vector;
}

static uint64_t reduce2(enum red_type type, enum red_op op, uint64_t a, uint64_t b)
{
    return reduce1(type, op, 1, 2, (uint64_t[]){ a, b });
}

static void names_and_sizes(void **state)
{
    static const struct { enum red_type type; const char *name; size_t size, wide; } types[] = {
        { RED_INT8, "int8", 1, 1 }, { RED_UINT8, "uint8", 1, 1 }, { RED_INT16, "int16", 2, 2 },
        { RED_UINT16, "uint16", 2, 2 }, { RED_INT32, "int32", 4, 4 }, { RED_UINT32, "uint32", 4, 4 },
        { RED_INT64, "int64", 8, 8 }, { RED_UINT64, "uint64", 8, 8 }, { RED_FLOAT16, "float16", 2, 4 },
        { RED_BFLOAT16, "bfloat16", 2, 4 }, { RED_FLOAT32, "float32", 4, 4 }, { RED_FLOAT64, "float64", 8, 8 },
        { RED_COMPLEX64, "complex64", 8, 8 }, { RED_COMPLEX128, "complex128", 16, 16 },
        { RED_E4M3, "float8_e4m3", 1, 4 }, { RED_E5M2, "float8_e5m2", 1, 4 },
        { RED_E4M3_FNUZ, "float8_e4m3fnuz", 1, 4 }, { RED_E5M2_FNUZ, "float8_e5m2fnuz", 1, 4 },
        { RED_BOOL, "bool", 1, 1 }, { RED_BYTE, "byte", 1, 1 }, { RED_CHAR, "char", 1, 1 },
        { RED_WCHAR, "wchar", sizeof(wchar_t), sizeof(wchar_t) },
    };
    static const char *const ops[] = { "sum", "prod", "min", "max", "band", "bor", "bxor", "land", "lor", "lxor",
                                       "avg" };
    (void)state;
    assert_int_equal(ROWS(types), RED_TYPES);
    for (size_t i = 0; i < ROWS(types); i++) {
        assert_int_equal(types[i].type, i);   /* the order is part of the wire protocol */
        assert_string_equal(red_type_name(types[i].type), types[i].name);
        assert_int_equal(red_size(types[i].type), types[i].size);
        assert_int_equal(red_wide_size(types[i].type), types[i].wide);
    }
    assert_int_equal(ROWS(ops), RED_OPS);
    for (int op = 0; op < RED_OPS; op++)
        assert_string_equal(red_op_name((enum red_op)op), ops[op]);
    assert_string_equal(red_isa(), red_kernels_usable()[0]->name);
}

/* Reads the table in the comment of include/hetmpi.h: the row that starts with `label`, its five columns. */
static void read_public_row(const char *label, bool column[5])
{
    char path[4096], line[256];
    bool found = false;
    const char *slash = strrchr(__FILE__, '/');
    snprintf(path, sizeof(path), "%.*s/../../include/hetmpi.h", slash ? (int)(slash - __FILE__) : 1,
             slash ? __FILE__ : ".");
    FILE *header = fopen(path, "r");
    if (!header)
        fail_msg("cannot open %s: compile the test by its full path", path);
    while (!found && fgets(line, sizeof(line), header)) {
        char *at = strstr(line, " *   ");
        if (!at || strncmp(at + 5, label, strlen(label)) != 0)
            continue;
        found = true;
        char *word = strtok(at + 5 + strlen(label), " \n");
        for (int i = 0; i < 5; i++, word = strtok(NULL, " \n")) {
            bool moved = strstr(label, "MPI_CHAR") != NULL;   /* its row says in words that it is never reduced */
            if (!moved && (!word || (strcmp(word, "yes") != 0 && strcmp(word, "-") != 0)))
                fail_msg("hetmpi.h: row \"%s\" has no yes or - in column %d", label, i);
            column[i] = !moved && strcmp(word, "yes") == 0;
        }
    }
    fclose(header);
    if (!found)
        fail_msg("hetmpi.h: no row \"%s\" in the table of types and operations", label);
}

static void pairs_are_those_of_the_public_header(void **state)
{
    static const struct { const char *label; int n; enum red_type types[8]; } rows[] = {
        { "signed, unsigned integers", 8, { RED_INT8, RED_UINT8, RED_INT16, RED_UINT16, RED_INT32, RED_UINT32,
                                            RED_INT64, RED_UINT64 } },
        { "fp16 bf16 fp8, float, double", 8, { RED_FLOAT16, RED_BFLOAT16, RED_FLOAT32, RED_FLOAT64, RED_E4M3, RED_E5M2,
                                               RED_E4M3_FNUZ, RED_E5M2_FNUZ } },
        { "complex", 2, { RED_COMPLEX64, RED_COMPLEX128 } },
        { "MPI_C_BOOL", 1, { RED_BOOL } },
        { "MPI_BYTE", 1, { RED_BYTE } },
        { "MPI_CHAR, MPI_WCHAR", 2, { RED_CHAR, RED_WCHAR } },
    };
    static const int column_of[RED_OPS] = { 0, 0, 1, 1, 3, 3, 3, 4, 4, 4, 2 };
    int types = 0;
    (void)state;
    for (size_t row = 0; row < ROWS(rows); row++) {
        bool column[5];
        read_public_row(rows[row].label, column);
        for (int t = 0; t < rows[row].n; t++, types++)
            for (int op = 0; op < RED_OPS; op++) {
                bool is = red_supported(rows[row].types[t], (enum red_op)op);
                if (is != column[column_of[op]])
                    fail_msg("%s %s: %s, but hetmpi.h says otherwise", red_type_name(rows[row].types[t]),
                             red_op_name((enum red_op)op), is ? "supported" : "not supported");
            }
    }
    assert_int_equal(types, RED_TYPES);
    assert_false(red_supported(RED_TYPES, RED_SUM));
    assert_false(red_supported(RED_INT32, RED_OPS));
    assert_false(red_supported((enum red_type)-1, RED_SUM));
}

/* Bits of each floating format: its NaN, another NaN, one, -0 and +0 (FNUZ: neither other NaN nor -0), infinity. */
struct format { enum red_type type; uint64_t nan, other_nan, one, minus_zero, infinity, minus_infinity; };
static const struct format formats[] = {
    { RED_FLOAT16, 0x7e00, 0xfd55, 0x3c00, 0x8000, 0x7c00, 0xfc00 },
    { RED_BFLOAT16, 0x7fc0, 0xffa5, 0x3f80, 0x8000, 0x7f80, 0xff80 },
    { RED_FLOAT32, 0x7fc00000, 0xffa55555, 0x3f800000, 0x80000000, 0x7f800000, 0xff800000 },
    { RED_FLOAT64, 0x7ff8000000000000, 0xfff5555555555555, 0x3ff0000000000000, 0x8000000000000000,
      0x7ff0000000000000, 0xfff0000000000000 },
    { RED_E4M3, 0x7f, 0xff, 0x38, 0x80, 0, 0 },
    { RED_E5M2, 0x7e, 0xfd, 0x3c, 0x80, 0x7c, 0xfc },
    { RED_E4M3_FNUZ, 0x80, 0x80, 0x40, 0, 0, 0 },
    { RED_E5M2_FNUZ, 0x80, 0x80, 0x40, 0, 0, 0 },
};

static void nan_wins_whoever_holds_it(void **state)
{
    static const enum red_op ops[] = { RED_SUM, RED_PROD, RED_MIN, RED_MAX };
    (void)state;
    for (size_t i = 0; i < ROWS(formats); i++)
        for (size_t o = 0; o < ROWS(ops); o++) {
            const struct format *f = &formats[i];
            uint64_t nans[] = { f->nan, f->other_nan };
            for (size_t k = 0; k < 2; k++) {
                assert_int_equal(reduce2(f->type, ops[o], nans[k], f->one), f->nan);
                assert_int_equal(reduce2(f->type, ops[o], f->one, nans[k]), f->nan);
                assert_int_equal(reduce2(f->type, ops[o], nans[k], nans[1 - k]), f->nan);
                for (int place = 0; place < 5; place++) {
                    uint64_t values[5] = { f->one, f->one, 0, f->one, f->one };
                    values[place] = nans[k];
                    assert_int_equal(reduce1(f->type, ops[o], 1, 5, values), f->nan);
                }
                assert_int_equal(reduce1(f->type, RED_AVG, 3, 1, &nans[k]), f->nan);
            }
            if (f->infinity != 0) {
                assert_int_equal(reduce2(f->type, RED_SUM, f->infinity, f->minus_infinity), f->nan);
                assert_int_equal(reduce2(f->type, RED_PROD, f->minus_zero, f->infinity), f->nan);
                assert_int_equal(reduce2(f->type, RED_SUM, f->infinity, f->one), f->infinity);
                assert_int_equal(reduce2(f->type, RED_MIN, f->minus_infinity, f->one), f->minus_infinity);
                assert_int_equal(reduce2(f->type, RED_MAX, f->infinity, f->one), f->infinity);
            }
        }
}

static void a_single_input_is_copied_bit_for_bit(void **state)
{
    (void)state;
    for (size_t i = 0; i < ROWS(formats); i++) {
        assert_int_equal(reduce1(formats[i].type, RED_SUM, 1, 1, &formats[i].other_nan), formats[i].other_nan);
        assert_int_equal(reduce1(formats[i].type, RED_AVG, 1, 1, &formats[i].minus_zero), formats[i].minus_zero);
    }
    assert_int_equal(reduce1(RED_INT32, RED_LAND, 1, 1, (uint64_t[]){ 5 }), 5);
}

static void minus_zero_is_below_zero(void **state)
{
    (void)state;
    for (size_t i = 0; i < ROWS(formats); i++) {
        const struct format *f = &formats[i];
        assert_int_equal(reduce2(f->type, RED_MIN, f->minus_zero, 0), f->minus_zero);
        assert_int_equal(reduce2(f->type, RED_MIN, 0, f->minus_zero), f->minus_zero);
        assert_int_equal(reduce2(f->type, RED_MAX, f->minus_zero, 0), 0);
        assert_int_equal(reduce2(f->type, RED_MAX, 0, f->minus_zero), 0);
        assert_int_equal(reduce2(f->type, RED_SUM, f->minus_zero, 0), 0);
        assert_int_equal(reduce2(f->type, RED_SUM, f->minus_zero, f->minus_zero), f->minus_zero);
    }
    /* FNUZ has no -0: a negative number that vanishes becomes +0. */
    assert_int_equal(reduce2(RED_E4M3_FNUZ, RED_PROD, 0x81, 0x01), 0);
    assert_int_equal(reduce2(RED_E5M2_FNUZ, RED_PROD, 0x81, 0x01), 0);
    assert_int_equal(reduce2(RED_E4M3, RED_PROD, 0x81, 0x01), 0x80);
}

static void overflow_goes_where_the_format_says(void **state)
{
    (void)state;
    assert_int_equal(reduce2(RED_FLOAT16, RED_SUM, 0x7bff, 0x7bff), 0x7c00);
    assert_int_equal(reduce2(RED_FLOAT16, RED_SUM, 0xfbff, 0xfbff), 0xfc00);
    assert_int_equal(reduce2(RED_BFLOAT16, RED_SUM, 0x7f7f, 0x7f7f), 0x7f80);
    assert_int_equal(reduce2(RED_E5M2, RED_SUM, 0x7b, 0x7b), 0x7c);
    assert_int_equal(reduce2(RED_E4M3, RED_SUM, 0x7e, 0x58), 0x7e);        /* 448 + 16: the tie goes to 448 */
    assert_int_equal(reduce2(RED_E4M3, RED_SUM, 0x7e, 0x59), 0x7f);        /* 448 + 18: NaN */
    assert_int_equal(reduce2(RED_E4M3, RED_SUM, 0xfe, 0xfe), 0x7f);
    assert_int_equal(reduce2(RED_E4M3_FNUZ, RED_SUM, 0x7f, 0x7f), 0x80);
    assert_int_equal(reduce2(RED_E5M2_FNUZ, RED_SUM, 0xff, 0xff), 0x80);
    assert_int_equal(reduce2(RED_FLOAT32, RED_PROD, 0x7f7fffff, 0x40000000), 0x7f800000);
}

static void subnormals_are_numbers(void **state)
{
    (void)state;
    assert_int_equal(reduce2(RED_FLOAT32, RED_SUM, 1, 2), 3);
    assert_int_equal(reduce2(RED_FLOAT32, RED_PROD, 0x00800000, 0x3f000000), 0x00400000);
    assert_int_equal(reduce2(RED_FLOAT64, RED_SUM, 1, 0x000fffffffffffff), 0x0010000000000000);
    assert_int_equal(reduce2(RED_FLOAT16, RED_SUM, 0x0001, 0x03ff), 0x0400);
    assert_int_equal(reduce2(RED_BFLOAT16, RED_SUM, 0x0001, 0x0001), 0x0002);
    assert_int_equal(reduce2(RED_E4M3, RED_SUM, 0x01, 0x07), 0x08);
    assert_int_equal(reduce2(RED_E5M2, RED_SUM, 0x81, 0x83), 0x84);
    assert_int_equal(reduce2(RED_E4M3_FNUZ, RED_SUM, 0x01, 0x07), 0x08);
    assert_int_equal(reduce2(RED_E5M2_FNUZ, RED_SUM, 0x81, 0x83), 0x84);
}

static void integers_wrap(void **state)
{
    (void)state;
    assert_int_equal(reduce2(RED_INT8, RED_SUM, 0x7f, 1), 0x80);
    assert_int_equal(reduce2(RED_UINT16, RED_PROD, 0xffff, 0xffff), 1);
    assert_int_equal(reduce2(RED_INT32, RED_SUM, 0x7fffffff, 1), 0x80000000);
    assert_int_equal(reduce2(RED_INT32, RED_PROD, 0x10001, 0x10001), 0x20001);
    assert_int_equal(reduce2(RED_INT64, RED_SUM, 0x8000000000000000, UINT64_MAX), 0x7fffffffffffffff);
    assert_int_equal(reduce2(RED_UINT64, RED_PROD, 0x100000001, 0x100000001), 0x200000001);
    assert_int_equal(reduce2(RED_INT8, RED_MIN, 0x80, 0x7f), 0x80);
    assert_int_equal(reduce2(RED_UINT8, RED_MIN, 0x80, 0x7f), 0x7f);
    assert_int_equal(reduce2(RED_INT64, RED_MAX, UINT64_MAX, 0), 0);
    assert_int_equal(reduce2(RED_UINT64, RED_MAX, UINT64_MAX, 0), UINT64_MAX);
}

static void logical_results_are_zero_or_one(void **state)
{
    (void)state;
    assert_int_equal(reduce2(RED_INT32, RED_LAND, 6, 8), 1);
    assert_int_equal(reduce2(RED_INT32, RED_LOR, 0, 0x80000000), 1);
    assert_int_equal(reduce2(RED_INT16, RED_LXOR, 6, 8), 0);
    assert_int_equal(reduce2(RED_UINT64, RED_LXOR, 0, (uint64_t)1 << 63), 1);
    assert_int_equal(reduce2(RED_BOOL, RED_LXOR, 1, 1), 0);
    assert_int_equal(reduce1(RED_INT8, RED_LXOR, 1, 3, (uint64_t[]){ 2, 4, 8 }), 1);
}

static void averages(void **state)
{
    uint64_t ones[8], minus = (uint32_t)-1;
    (void)state;
    assert_int_equal(reduce1(RED_INT32, RED_AVG, 3, 3, (uint64_t[]){ 1, 2, 4 }), 2);
    assert_int_equal(reduce1(RED_INT32, RED_AVG, 3, 3, (uint64_t[]){ minus, minus - 1, minus - 3 }), (uint32_t)-2);
    assert_int_equal(reduce1(RED_INT8, RED_AVG, 300, 2, (uint64_t[]){ 0x80, 0x7f }), 0);
    assert_int_equal(reduce1(RED_INT8, RED_AVG, 2, 2, (uint64_t[]){ 0x7f, 1 }), 0xc0);   /* the sum wraps to -128 */
    assert_int_equal(reduce1(RED_UINT8, RED_AVG, 2, 2, (uint64_t[]){ 0x7f, 1 }), 0x40);
    assert_int_equal(reduce1(RED_UINT32, RED_AVG, 4294967295u, 1, (uint64_t[]){ 4294967295u }), 1);
    assert_int_equal(reduce1(RED_UINT32, RED_AVG, 4294967295u, 1, (uint64_t[]){ 4294967294u }), 0);
    assert_int_equal(reduce1(RED_UINT64, RED_AVG, 3, 3, (uint64_t[]){ 0xfffffffffffffff0, 7, 4 }), 0x5555555555555553);
    assert_int_equal(reduce1(RED_INT64, RED_AVG, 3, 2, (uint64_t[]){ 0x8000000000000000, 1 }),
                     (uint64_t)(-0x7fffffffffffffff / 3));
    assert_int_equal(reduce1(RED_INT64, RED_AVG, 2, 2, (uint64_t[]){ (uint64_t)9007199254740993, 0 }),
                     4503599627370496);
    /* 512 and seven ones: bf16 alone would stay at 512, fp32 inside the one call does not. */
    for (int i = 0; i < 8; i++)
        ones[i] = 0x3f80;
    ones[0] = 0x4400;
    assert_int_equal(reduce1(RED_BFLOAT16, RED_SUM, 1, 8, ones), 0x4402);         /* 519 rounds to 520 */
    assert_int_equal(reduce1(RED_BFLOAT16, RED_AVG, 8, 8, ones), 0x4282);         /* 64.875 rounds to 65 */
    /* One rounding: 1/3 of a sum that fp16 could not hold. */
    assert_int_equal(reduce1(RED_FLOAT16, RED_AVG, 3, 3, (uint64_t[]){ 0x7bff, 0x7bff, 0x7bff }), 0x7bff);
    assert_int_equal(reduce1(RED_FLOAT32, RED_AVG, 3, 2, (uint64_t[]){ 0x3f800000, 0 }), 0x3eaaaaab);
    /* Other operations do not divide, and 0 and 1 divide nothing. */
    assert_int_equal(reduce1(RED_INT32, RED_SUM, 3, 2, (uint64_t[]){ 4, 5 }), 9);
    assert_int_equal(reduce1(RED_INT32, RED_AVG, 0, 2, (uint64_t[]){ 4, 5 }), 9);
}

static void complex_products_are_not_fused(void **state)
{
    /* re: (1 + 2^-12)^2 - (1 + 2^-11) is 0 when the square is rounded first, 2^-24 when it is fused. */
    enum { COUNT = 37 };
    float a[COUNT][2], b[COUNT][2], r[COUNT][2];
    const void *srcs[] = { a, b };
    (void)state;
    for (int i = 0; i < COUNT; i++) {
        a[i][0] = b[i][0] = 1.0f + 0x1p-12f;
        a[i][1] = 1.0f + 0x1p-11f;
        b[i][1] = 1.0f;
    }
    for (const struct red_kernels *const *kernels = red_kernels_usable(); *kernels; kernels++) {
        struct red_call call = { .type = RED_COMPLEX64, .op = RED_PROD, .n = 2, .srcs = srcs, .dst = r,
                                 .count = COUNT };
        red_run_with(*kernels, &call);
        for (int i = 0; i < COUNT; i++)
            assert_true(r[i][0] == 0.0f);
    }
}

/* An application may round otherwise, flush subnormals (as -ffast-math sets it up) or trap: no result changes, no trap
 * is taken, and its settings are as before. */
static void floating_point_settings_do_not_matter(void **state)
{
    (void)state;
    assert_int_equal(fesetround(FE_UPWARD), 0);
    uint64_t sum = reduce2(RED_FLOAT32, RED_SUM, 0x3f800000, 0x00800000);
    int mode = fegetround();
    fesetround(FE_TONEAREST);
    assert_int_equal(sum, 0x3f800000);
    assert_int_equal(mode, FE_UPWARD);

    fesetround(FE_TOWARDZERO);
    uint64_t half = reduce2(RED_FLOAT16, RED_SUM, 0x3c00, 0x1201);   /* just above a tie of 1 */
    fesetround(FE_TONEAREST);
    assert_int_equal(half, 0x3c01);

#if defined(__x86_64__)
    unsigned saved = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(saved | 0x8040);      /* flush to zero, denormals are zero */
    uint64_t subnormal = reduce2(RED_FLOAT32, RED_SUM, 1, 2);
    uint64_t least = reduce2(RED_FLOAT64, RED_MIN, 1, 0);
    unsigned kept = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(saved);
    assert_int_equal(subnormal, 3);
    assert_int_equal(least, 0);
    assert_int_equal(kept & 0x8040, 0x8040);

    __builtin_ia32_ldmxcsr(saved & ~0x1f80u);    /* trap on everything */
    uint64_t nan = reduce2(RED_FLOAT32, RED_SUM, 0x7f800000, 0xff800000);
    __builtin_ia32_ldmxcsr(saved);
    assert_int_equal(nan, 0x7fc00000);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_sizes),
        cmocka_unit_test(pairs_are_those_of_the_public_header),
        cmocka_unit_test(nan_wins_whoever_holds_it),
        cmocka_unit_test(a_single_input_is_copied_bit_for_bit),
        cmocka_unit_test(minus_zero_is_below_zero),
        cmocka_unit_test(overflow_goes_where_the_format_says),
        cmocka_unit_test(subnormals_are_numbers),
        cmocka_unit_test(integers_wrap),
        cmocka_unit_test(logical_results_are_zero_or_one),
        cmocka_unit_test(averages),
        cmocka_unit_test(complex_products_are_not_fused),
        cmocka_unit_test(floating_point_settings_do_not_matter),
    };
    return cmocka_run_group_tests_name("reduce", tests, NULL, NULL);
}
