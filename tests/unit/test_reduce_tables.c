/* The reductions against tables that numpy and ml_dtypes made (gen_reduce_tables.py): every conversion of the 8- and
 * 16-bit formats, every pair of 8-bit codes, remarkable and random values of the rest, in each instruction set. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "reduce/kernels.h"
#include "reduce/reduce.h"
#include "reduce_tables.h"

#define ROWS(table) (sizeof(table) / sizeof((table)[0]))
#define MAX_N 8
#define SWEEP ((size_t)65536 * 48)

static uint64_t mix(uint64_t z)
{
    z += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static bool is_complex(enum red_type type)
{
    return type == RED_COMPLEX64 || type == RED_COMPLEX128;
}

/* A word is an element, or a part of a complex number. */
static size_t word_size(enum red_type type, bool wide)
{
    size_t size = wide ? red_wide_size(type) : red_size(type);
    return is_complex(type) ? size / 2 : size;
}

static void put(void *words, size_t size, size_t i, uint64_t value)
{
    memcpy((char *)words + i * size, &value, size);   /* little-endian, as everything that hetmpi runs on */
}

static uint64_t hash_words(const void *words, size_t size, size_t count)
{
    uint64_t hash = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t word = 0;
        memcpy(&word, (const char *)words + i * size, size);
        hash += mix(word ^ mix(i * 0x9e3779b97f4a7c15u));
    }
    return hash;
}

/* What is being tested: a table of kernels, or NULL for the scalar source. */
struct subject {
    const struct red_kernels *kernels;
    char *in[MAX_N], *out;   /* room for the largest case each */
};

static const char *subject_name(const struct subject *subject)
{
    return subject->kernels ? subject->kernels->name : "scalar";
}

static uint64_t run(const struct subject *subject, struct red_call call)
{
    call.srcs = (const void *const *)subject->in;
    call.dst = subject->out;
    memset(subject->out, 0xa5, call.count * red_wide_size(call.type));
    if (subject->kernels)
        red_run_with(subject->kernels, &call);
    else
        red_run_scalar(&call);
    return hash_words(subject->out, word_size(call.type, call.dst_wide), call.count * (is_complex(call.type) ? 2 : 1));
}

static void fill_random(const struct subject *subject, enum red_type type, bool wide, uint32_t n)
{
    size_t words = TABLE_COUNT * (is_complex(type) ? 2 : 1);
    for (uint64_t k = 0; k < n; k++)
        for (size_t i = 0; i < words; i++)
            put(subject->in[k], word_size(type, wide), i, mix(i + (k << 32)));
}

static void fill_near(const struct subject *subject, enum red_type type, bool wide, uint32_t n)
{
    enum red_type part = type == RED_COMPLEX64 || wide ? RED_FLOAT32 : type == RED_COMPLEX128 ? RED_FLOAT64 : type;
    size_t row = 0, words = TABLE_COUNT * (is_complex(type) ? 2 : 1), size = red_size(part);
    while (table_formats[row].type != part)
        row++;
    int mantissa = table_formats[row].mantissa;
    for (uint64_t k = 0; k < n; k++)
        for (size_t i = 0; i < words; i++) {
            uint64_t r = mix(i + (k << 32));
            uint64_t e = (uint64_t)table_formats[row].near_exponent + (r >> 55) % TABLE_NEAR_EXPONENTS;
            put(subject->in[k], size, i,
                (r >> 63) << (8 * size - 1) | e << mantissa | (r & (((uint64_t)1 << mantissa) - 1)));
        }
}

static size_t fill_pairs(const struct subject *subject, enum red_type type)
{
    size_t n = 256, size = word_size(type, false), parts = is_complex(type) ? 2 : 1;
    const uint64_t *values = NULL;
    for (size_t row = 0; row < ROWS(table_special); row++)
        if (table_special[row].type == type) {
            n = table_special[row].n;
            values = table_special[row].values;
        }
    assert_true(values != NULL || size == 1);
    for (size_t i = 0; i < n * n; i++) {
        uint64_t a = values ? values[i % n] : i % n, b = values ? values[i / n] : i / n;
        put(subject->in[0], size, parts * i, a);
        put(subject->in[1], size, parts * i, b);
        if (parts == 2) {
            put(subject->in[0], size, 2 * i + 1, b);
            put(subject->in[1], size, 2 * i, b);
            put(subject->in[1], size, 2 * i + 1, a);
        }
    }
    return n * n;
}

static uint64_t fold_with_divisors(const struct subject *subject, uint64_t fold, struct red_call call, uint32_t d1,
                                   uint32_t d2)
{
    if (call.op != RED_AVG)
        return mix(fold ^ run(subject, call));
    call.divide_by = d1;
    fold = mix(fold ^ run(subject, call));
    call.divide_by = d2;
    return mix(fold ^ run(subject, call));
}

static uint64_t hash_pairs(const struct subject *subject, enum red_type type, enum red_op op)
{
    struct red_call call = { .type = type, .op = op, .n = 2, .count = fill_pairs(subject, type) };
    return fold_with_divisors(subject, 0, call, 2, 3);
}

static uint64_t hash_random(const struct subject *subject, enum red_type type, enum red_op op, bool near)
{
    static const uint32_t ns[] = { 2, 3, 8 };
    uint64_t fold = 0;
    if (near && !(type >= RED_FLOAT16 && type <= RED_E5M2_FNUZ))
        return 0;
    for (size_t i = 0; i < ROWS(ns); i++) {
        struct red_call call = { .type = type, .op = op, .n = ns[i], .count = TABLE_COUNT };
        (near ? fill_near : fill_random)(subject, type, false, ns[i]);
        fold = fold_with_divisors(subject, fold, call, ns[i], 300);
    }
    return fold;
}

static uint64_t hash_wide(const struct subject *subject, enum red_type type, enum red_op op)
{
    static const struct { bool src, dst; } ends[] = { { false, true }, { true, false }, { true, true } };
    uint64_t fold = 0;
    if (red_size(type) == red_wide_size(type))
        return 0;
    for (size_t end = 0; end < ROWS(ends); end++)
        for (uint32_t n = 2; n <= 3; n++)
            for (int random = 0; random < 2; random++) {
                struct red_call call = { .type = type, .op = op, .src_wide = ends[end].src, .dst_wide = ends[end].dst,
                                         .n = n, .divide_by = op == RED_AVG ? n : 1, .count = TABLE_COUNT };
                (random ? fill_random : fill_near)(subject, type, ends[end].src, n);
                fold = mix(fold ^ run(subject, call));
            }
    return fold;
}

static int expect(const struct subject *subject, enum red_type type, const char *what, uint64_t is, uint64_t should)
{
    if (is == should)
        return 0;
    print_error("%s: %s %s differs from the table\n", subject_name(subject), red_type_name(type), what);
    return 1;
}

static int check_pairs(const struct subject *subject)
{
    static const char *const inputs[] = { "pairs", "random bits", "random numbers", "wide ends" };
    int wrong = 0;
    for (size_t row = 0; row < ROWS(table_pairs); row++) {
        enum red_type type = table_pairs[row].type;
        enum red_op op = table_pairs[row].op;
        uint64_t hash[4] = { hash_pairs(subject, type, op), hash_random(subject, type, op, false),
                             hash_random(subject, type, op, true), hash_wide(subject, type, op) };
        for (int i = 0; i < 4; i++)
            if (expect(subject, type, inputs[i], hash[i], table_pairs[row].hash[i])) {
                print_error("  (operation %s)\n", red_op_name(op));
                wrong++;
            }
    }
    return wrong;
}

static int check_conversions(const struct subject *subject)
{
    int wrong = 0;
    for (size_t row = 0; row < ROWS(table_formats); row++) {
        enum red_type type = table_formats[row].type;
        size_t size = red_size(type);
        if (size == red_wide_size(type))
            continue;
        struct red_call decode = { .type = type, .op = RED_SUM, .dst_wide = true, .n = 1,
                                   .count = (size_t)1 << (8 * size) };
        for (size_t i = 0; i < decode.count; i++)
            put(subject->in[0], size, i, i);
        wrong += expect(subject, type, "to float32", run(subject, decode), table_formats[row].decode);

        struct red_call encode = { .type = type, .op = RED_SUM, .src_wide = true, .n = 1, .count = SWEEP };
        for (size_t i = 0; i < SWEEP; i++) {
            uint32_t low = (uint32_t)(i % 48 / 3 * 0x1000 + i % 3 - 1);
            put(subject->in[0], 4, i, (i / 48) << 16 | (low & 0xffff));
        }
        wrong += expect(subject, type, "from float32", run(subject, encode), table_formats[row].encode);
    }
    return wrong;
}

static int check_values(const struct subject *subject)
{
    static const struct { enum red_type type; const uint32_t *values; } fp8[] = {
        { RED_E4M3, table_e4m3 }, { RED_E5M2, table_e5m2 }, { RED_E4M3_FNUZ, table_e4m3_fnuz },
        { RED_E5M2_FNUZ, table_e5m2_fnuz }
    };
    int wrong = 0;
    for (size_t row = 0; row < ROWS(fp8); row++) {
        struct red_call call = { .type = fp8[row].type, .op = RED_MAX, .dst_wide = true, .n = 1, .count = 256 };
        for (size_t i = 0; i < 256; i++)
            put(subject->in[0], 1, i, i);
        run(subject, call);
        for (size_t i = 0; i < 256; i++)
            if (memcmp(subject->out + 4 * i, &fp8[row].values[i], 4) != 0) {
                print_error("%s: %s code %zu has the wrong value\n", subject_name(subject),
                            red_type_name(fp8[row].type), i);
                wrong++;
            }
    }
    return wrong;
}

static void check_all_subjects(int (*check)(const struct subject *subject))
{
    struct subject subject = { 0 };
    int wrong = 0;
    subject.out = malloc(SWEEP * 4);
    assert_non_null(subject.out);
    for (int k = 0; k < MAX_N; k++) {
        subject.in[k] = malloc(k == 0 ? SWEEP * 4 : (size_t)1 << 20);   /* SPECIAL pairs and TABLE_COUNT elements fit */
        assert_non_null(subject.in[k]);
    }
#if !defined(__SANITIZE_THREAD__)   /* it slows this down fifty times, and there is one thread here */
    wrong += check(&subject);
#endif
    for (const struct red_kernels *const *kernels = red_kernels_usable(); *kernels; kernels++) {
        subject.kernels = *kernels;
        wrong += check(&subject);
#if defined(__SANITIZE_THREAD__)
        break;
#endif
    }
    for (int k = 0; k < MAX_N; k++)
        free(subject.in[k]);
    free(subject.out);
    assert_int_equal(wrong, 0);
}

static void every_pair_matches_the_tables(void **state)
{
    (void)state;
    check_all_subjects(check_pairs);
}

static void every_conversion_matches_the_tables(void **state)
{
    (void)state;
    check_all_subjects(check_conversions);
}

static void fp8_codes_have_their_values(void **state)
{
    (void)state;
    check_all_subjects(check_values);
}

/* A pair that the tables forget would go untested. */
static void the_tables_have_every_supported_pair(void **state)
{
    bool seen[RED_TYPES][RED_OPS] = { 0 };
    (void)state;
    for (size_t row = 0; row < ROWS(table_pairs); row++)
        seen[table_pairs[row].type][table_pairs[row].op] = true;
    for (int type = 0; type < RED_TYPES; type++)
        for (int op = 0; op < RED_OPS; op++)
            assert_int_equal(seen[type][op], red_supported((enum red_type)type, (enum red_op)op));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_tables_have_every_supported_pair),
        cmocka_unit_test(fp8_codes_have_their_values),
        cmocka_unit_test(every_conversion_matches_the_tables),
        cmocka_unit_test(every_pair_matches_the_tables),
    };
    return cmocka_run_group_tests_name("reduce_tables", tests, NULL, NULL);
}
