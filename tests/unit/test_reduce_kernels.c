/* red_run in every instruction set of this machine gives the same bytes as red_run_scalar, wherever the buffers lie. */
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

#define ROWS(table) (sizeof(table) / sizeof((table)[0]))
#define MOST_INPUTS 8
#define MOST_ELEMENTS 2311   /* more than a block of partial results of any 4-byte or wider format */
#define MARGIN 64
#define ROOM (MOST_ELEMENTS * 16 + 2 * MARGIN)

static uint64_t rng_state;

static uint64_t rng(void)
{
    rng_state ^= rng_state << 13;
    rng_state ^= rng_state >> 7;
    rng_state ^= rng_state << 17;
    return rng_state;
}

/* Random bits, with every kind of remarkable value of every format strewn in. */
static void fill(char *bytes)
{
    static const uint64_t remarkable[] = {
        0, 0x8080808080808080u, 0x8000800080008000u, 0x8000000080000000u, 0x8000000000000000u,   /* -0, least */
        0x7f8000007f800000u, 0xff800000ff800000u, 0x7ff0000000000000u, 0xfff0000000000000u,      /* infinities */
        0x7c007c007c007c00u, 0xfc00fc00fc00fc00u, 0x7f807f80ff80ff80u, 0x7c7c7c7cfcfcfcfcu,
        0x7fc000017f800001u, 0xffffffffffffffffu, 0x7ff0000000000001u, 0xfff8000000000123u,      /* NaN */
        0x7e017c01fe00ffffu, 0x7f817fc1ff81ffc1u, 0x7f7f7e7dfffefd80u,
        0x0000000100000001u, 0x807fffff007fffffu, 0x000fffffffffffffu, 0x8000000000000001u,      /* subnormals */
        0x000103ff800183ffu, 0x0001007f8001807fu, 0x0102030481828384u,
        0x0101010101010101u, 0x3f8000003f800000u, 0x3ff0000000000000u, 0x7f7fffff7f7fffffu,      /* one, largest */
    };
    for (size_t i = 0; i < ROOM; i += 8) {
        uint64_t word = rng(), how = rng();
        if (how % 3 == 0)
            word = remarkable[how / 3 % ROWS(remarkable)];
        memcpy(bytes + i, &word, ROOM - i < 8 ? ROOM - i : 8);
    }
}

static char inputs[MOST_INPUTS][ROOM], scratch[ROOM], expected[ROOM], result[ROOM];

static void describe(const struct red_kernels *kernels, const struct red_call *call, const char *where)
{
    print_error("%s: %s %s of %u inputs, %zu elements, src_wide %d, dst_wide %d, divide_by %u, %s: not as scalar\n",
                kernels->name, red_type_name(call->type), red_op_name(call->op), call->n, call->count, call->src_wide,
                call->dst_wide, call->divide_by, where);
}

/* Offsets of the sources (different ones) and of the result from alignment. */
struct place { const char *name; unsigned src, dst; };

static int check_apart(const struct red_kernels *kernels, struct red_call call, const struct place *place)
{
    const void *srcs[MOST_INPUTS];
    for (uint32_t k = 0; k < call.n; k++)
        srcs[k] = inputs[k] + (place->src ? place->src + k : 0);
    call.srcs = srcs;
    memset(expected, 0x5a, ROOM);
    memset(result, 0x5a, ROOM);   /* and nothing outside the result is written */
    call.dst = expected + MARGIN + place->dst;
    red_run_scalar(&call);
    call.dst = result + MARGIN + place->dst;
    red_run_with(kernels, &call);
    if (memcmp(expected, result, ROOM) == 0)
        return 0;
    describe(kernels, &call, place->name);
    return 1;
}

/* The result in the place of input `in_place`; a second input that is the same buffer as well when `twice`. */
static int check_in_place(const struct red_kernels *kernels, struct red_call call, uint32_t in_place, bool twice)
{
    const void *srcs[MOST_INPUTS];
    for (uint32_t k = 0; k < call.n; k++)
        srcs[k] = inputs[k];
    if (twice)
        srcs[(in_place + 1) % call.n] = srcs[in_place];
    call.srcs = srcs;
    memset(expected, 0x5a, ROOM);
    call.dst = expected;
    red_run_scalar(&call);
    size_t bytes = call.count * (call.dst_wide ? red_wide_size(call.type) : red_size(call.type));

    memcpy(scratch, inputs[in_place], ROOM);
    for (uint32_t k = 0; k < call.n; k++)
        if (srcs[k] == inputs[in_place])
            srcs[k] = scratch;
    call.dst = scratch;
    red_run_with(kernels, &call);
    if (memcmp(expected, scratch, bytes) == 0
        && memcmp(inputs[in_place] + bytes, scratch + bytes, ROOM - bytes) == 0)
        return 0;
    describe(kernels, &call, twice ? "in place of two inputs" : "in place");
    return 1;
}

static int check_call(const struct red_kernels *kernels, const struct red_call *call)
{
    static const struct place places[] = { { "aligned", 0, 0 }, { "misaligned", 1, 3 } };
    int wrong = 0;
    for (size_t i = 0; i < ROWS(places); i++)
        wrong += check_apart(kernels, *call, &places[i]);
    if (red_size(call->type) == red_wide_size(call->type) || call->src_wide == call->dst_wide) {
        wrong += check_in_place(kernels, *call, 0, false);
        wrong += check_in_place(kernels, *call, call->n - 1, false);
        wrong += check_in_place(kernels, *call, call->n / 2, call->n > 1);
    }
    return wrong;
}

static int check_pair(const struct red_kernels *kernels, enum red_type type, enum red_op op)
{
#if defined(__SANITIZE_THREAD__)   /* it slows this down fifty times, and there is one thread here */
    static const uint32_t ns[] = { 2, 3 };
    static const size_t counts[] = { 1, 263 };
#else
    static const uint32_t ns[] = { 1, 2, 3, 4, 5, 8 };
    static const size_t counts[] = { 0, 1, 2, 3, 7, 8, 17, 100, 263, MOST_ELEMENTS };
#endif
    static const uint32_t divisors[] = { 1, 3, 70001 };
    bool narrow = red_size(type) != red_wide_size(type);
    int wrong = 0;
    for (int wide = 0; wide < (narrow ? 4 : 1); wide++)
        for (size_t n = 0; n < ROWS(ns); n++)
            for (size_t c = 0; c < ROWS(counts); c++)
                for (size_t d = 0; d < (op == RED_AVG ? ROWS(divisors) : 1); d++) {
                    struct red_call call = { .type = type, .op = op, .src_wide = wide & 1, .dst_wide = wide >> 1,
                                             .divide_by = divisors[d], .n = ns[n], .count = counts[c] };
                    wrong += check_call(kernels, &call);
                }
    return wrong;
}

static void every_kernel_is_as_scalar(void **state)
{
    int wrong = 0;
    (void)state;
    rng_state = 0x2545f4914f6cdd1du;
    for (int k = 0; k < MOST_INPUTS; k++)
        fill(inputs[k]);
    for (const struct red_kernels *const *kernels = red_kernels_usable(); *kernels; kernels++)
        for (int type = 0; type < RED_TYPES; type++)
            for (int op = 0; op < RED_OPS; op++)
                if (red_supported((enum red_type)type, (enum red_op)op))
                    wrong += check_pair(*kernels, (enum red_type)type, (enum red_op)op);
    assert_int_equal(wrong, 0);
}

/* Products with one factor: every factor of 8-bit formats with every element, some of the others'. */
static void scaling_is_as_scalar(void **state)
{
    static const size_t counts[] = { 0, 1, 7, 263, MOST_ELEMENTS };
    unsigned char every[256], factors[256][RED_SCALE_BYTES];
    int wrong = 0;
    (void)state;
    for (int i = 0; i < 256; i++) {
        every[i] = (unsigned char)i;
        memcpy(factors[i], inputs[1] + 8 * i, RED_SCALE_BYTES);
    }
    for (const struct red_kernels *const *kernels = red_kernels_usable(); *kernels; kernels++)
        for (int type = 0; type < RED_TYPES; type++) {
            struct red_call call = { .type = (enum red_type)type, .n = 1 };
            if (!red_supported(call.type, RED_PROD))
                continue;
            for (size_t c = 0; c < ROWS(counts); c++) {
                call.count = counts[c];
                call.scale = factors[c * 31 % 256];
                wrong += check_call(*kernels, &call);
            }
            for (int f = 0; f < 256; f++) {
                memcpy(inputs[0], every, sizeof(every));
                call.count = sizeof(every) / red_size(call.type);
                call.scale = red_size(call.type) == 1 ? &every[f] : factors[f];
                wrong += check_apart(*kernels, call, &(struct place){ "every element", 0, 0 });
            }
        }
    assert_int_equal(wrong, 0);
}

/* What it means, by hand: the product rounded once to the element's format. */
static void scaling_rounds_once(void **state)
{
    static const struct { enum red_type type; uint64_t factor, element, product; } cases[] = {
        { RED_INT8, 3, 0x7f, 0x7d },                        /* 381 wraps to 125 */
        { RED_UINT32, 0xffffffff, 2, 0xfffffffe },
        { RED_BFLOAT16, 0x3f81, 0x3f81, 0x3f82 },           /* (1 + 2^-7)^2 = 1.01568... */
        { RED_FLOAT16, 0x7bff, 0x4000, 0x7c00 },            /* twice the largest */
        { RED_FLOAT32, 0x3eaaaaab, 0x40400000, 0x3f800000 },
        { RED_E4M3, 0x7e, 0x40, 0x7f },                     /* past the largest: no infinity there */
        { RED_E5M2, 0x7b, 0x40, 0x7c },
        { RED_E4M3_FNUZ, 0xc8, 0x00, 0x00 },                /* no -0 */
        { RED_E5M2_FNUZ, 0x7f, 0x44, 0x80 },
    };
    (void)state;
    for (size_t i = 0; i < ROWS(cases); i++) {
        const void *src = &cases[i].element;
        uint64_t product = 0;
        red_run(&(struct red_call){ .type = cases[i].type, .n = 1, .srcs = &src, .dst = &product, .count = 1,
                                    .scale = &cases[i].factor });
        assert_int_equal(product, cases[i].product);
    }
}

/* On formats that are their own accumulator the wide flags change nothing. */
static void wide_flags_mean_nothing_to_wide_formats(void **state)
{
    const void *srcs[] = { inputs[0], inputs[1], inputs[2] };
    (void)state;
    for (int type = 0; type < RED_TYPES; type++)
        for (int op = 0; op < RED_OPS; op++) {
            if (!red_supported((enum red_type)type, (enum red_op)op)
                || red_size((enum red_type)type) != red_wide_size((enum red_type)type))
                continue;
            struct red_call call = { .type = (enum red_type)type, .op = (enum red_op)op, .n = 3, .divide_by = 3,
                                     .srcs = srcs, .dst = expected, .count = 100 };
            memset(expected, 0, ROOM);
            red_run_scalar(&call);
            for (int wide = 1; wide < 4; wide++) {
                call.src_wide = wide & 1;
                call.dst_wide = wide >> 1;
                call.dst = result;
                memset(result, 0, ROOM);
                red_run(&call);
                assert_memory_equal(result, expected, ROOM);
                memset(result, 0, ROOM);
                red_run_scalar(&call);
                assert_memory_equal(result, expected, ROOM);
            }
        }
}

/* The most inputs that one call takes. */
static void sixty_four_inputs(void **state)
{
    static const enum red_type types[] = { RED_BFLOAT16, RED_FLOAT32, RED_INT64, RED_E5M2 };
    const void *srcs[RED_MAX_INPUTS];
    (void)state;
    for (int k = 0; k < RED_MAX_INPUTS; k++)
        srcs[k] = inputs[k % MOST_INPUTS] + k;
    for (size_t i = 0; i < ROWS(types); i++) {
        struct red_call call = { .type = types[i], .op = RED_SUM, .n = RED_MAX_INPUTS, .srcs = srcs, .dst = expected,
                                 .count = 1501 };
        memset(expected, 0, ROOM);
        memset(result, 0, ROOM);
        red_run_scalar(&call);
        call.dst = result;
        red_run(&call);
        assert_memory_equal(result, expected, ROOM);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kernel_is_as_scalar),
        cmocka_unit_test(scaling_is_as_scalar),
        cmocka_unit_test(scaling_rounds_once),
        cmocka_unit_test(wide_flags_mean_nothing_to_wide_formats),
        cmocka_unit_test(sixty_four_inputs),
    };
    return cmocka_run_group_tests_name("reduce_kernels", tests, NULL, NULL);
}
