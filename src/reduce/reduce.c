/* Names, sizes and the support table of the element formats, and red_run: n-ary reductions by blocks of kernels. */
#include "reduce/reduce.h"

#include <assert.h>
#include <stdatomic.h>
#include <string.h>
#include <wchar.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "reduce/arith.h"
#include "reduce/kernels.h"

/* Partial results of a block stay in the first-level cache. */
#define BLOCK_BYTES 8192

static const struct {
    const char *name;
    uint8_t size, wide;
    bool floating;   /* results depend on the thread's floating-point settings */
} formats[RED_TYPES] = {
    [RED_INT8] = { "int8", 1, 1, false },
    [RED_UINT8] = { "uint8", 1, 1, false },
    [RED_INT16] = { "int16", 2, 2, false },
    [RED_UINT16] = { "uint16", 2, 2, false },
    [RED_INT32] = { "int32", 4, 4, false },
    [RED_UINT32] = { "uint32", 4, 4, false },
    [RED_INT64] = { "int64", 8, 8, false },
    [RED_UINT64] = { "uint64", 8, 8, false },
    [RED_FLOAT16] = { "float16", 2, 4, true },
    [RED_BFLOAT16] = { "bfloat16", 2, 4, true },
    [RED_FLOAT32] = { "float32", 4, 4, true },
    [RED_FLOAT64] = { "float64", 8, 8, true },
    [RED_COMPLEX64] = { "complex64", 8, 8, true },
    [RED_COMPLEX128] = { "complex128", 16, 16, true },
    [RED_E4M3] = { "float8_e4m3", 1, 4, true },
    [RED_E5M2] = { "float8_e5m2", 1, 4, true },
    [RED_E4M3_FNUZ] = { "float8_e4m3fnuz", 1, 4, true },
    [RED_E5M2_FNUZ] = { "float8_e5m2fnuz", 1, 4, true },
    [RED_BOOL] = { "bool", 1, 1, false },
    [RED_BYTE] = { "byte", 1, 1, false },
    [RED_CHAR] = { "char", 1, 1, false },
    [RED_WCHAR] = { "wchar", sizeof(wchar_t), sizeof(wchar_t), false },
};

static const char *const op_names[RED_OPS] = {
    [RED_SUM] = "sum", [RED_PROD] = "prod", [RED_MIN] = "min", [RED_MAX] = "max", [RED_BAND] = "band",
    [RED_BOR] = "bor", [RED_BXOR] = "bxor", [RED_LAND] = "land", [RED_LOR] = "lor", [RED_LXOR] = "lxor",
    [RED_AVG] = "avg",
};

#define SUPPORTED(T, O, f, acc, op) [RED_##T][RED_##O] = true,
static const bool supported[RED_TYPES][RED_OPS] = { ARITH_PAIRS(SUPPORTED) };

size_t red_size(enum red_type type)
{
    return formats[type].size;
}

size_t red_wide_size(enum red_type type)
{
    return formats[type].wide;
}

const char *red_type_name(enum red_type type)
{
    return (unsigned)type < RED_TYPES ? formats[type].name : "none";
}

const char *red_op_name(enum red_op op)
{
    return (unsigned)op < RED_OPS ? op_names[op] : "none";
}

bool red_supported(enum red_type type, enum red_op op)
{
    return (unsigned)type < RED_TYPES && (unsigned)op < RED_OPS && supported[type][op];
}

#if defined(__x86_64__)
/* clang's __builtin_cpu_supports does not know "f16c". */
static bool has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) != 0;
}

const struct red_kernels *const *red_kernels_usable(void)
{
    static const struct red_kernels *const tables[] = {
        &red_kernels_avx512, &red_kernels_avx2, &red_kernels_baseline, NULL
    };
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !has_f16c())
        return tables + 2;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw")
        || !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl"))
        return tables + 1;
    return tables;
}
#else
const struct red_kernels *const *red_kernels_usable(void)
{
    static const struct red_kernels *const tables[] = { &red_kernels_baseline, NULL };
    return tables;
}
#endif

/* Threads that come here first at the same time find the same answer. */
static const struct red_kernels *best_kernels(void)
{
    static _Atomic(const struct red_kernels *) best;
    const struct red_kernels *kernels = atomic_load_explicit(&best, memory_order_relaxed);
    if (__builtin_expect(kernels == NULL, 0)) {
        kernels = red_kernels_usable()[0];
        atomic_store_explicit(&best, kernels, memory_order_relaxed);
    }
    return kernels;
}

const char *red_isa(void)
{
    return best_kernels()->name;
}

static const char *at(const void *base, size_t first, size_t size)
{
    return (const char *)base + first * size;
}

/* Elements that are their own accumulator; fp32 partial results of narrower formats are such too. */
static void run_own(const struct red_kernels *kernels, const struct red_call *call, enum red_type type)
{
    red_combine_fn combine = kernels->combine[type][call->op];
    size_t size = red_size(type), block = BLOCK_BYTES / size;
    uint32_t last = call->n - 1;
    _Alignas(64) char acc[BLOCK_BYTES];

    for (size_t first = 0; first < call->count; first += block) {
        size_t part = call->count - first < block ? call->count - first : block;
        char *dst = (char *)call->dst + first * size;
        const void *so_far = at(call->srcs[0], first, size);
        for (uint32_t k = 1; k < last; k++) {
            combine(acc, so_far, at(call->srcs[k], first, size), part);
            so_far = acc;
        }
        if (last > 0)
            combine(dst, so_far, at(call->srcs[last], first, size), part);
        else if (dst != so_far)
            memcpy(dst, so_far, part * size);
        if (call->op == RED_AVG && call->divide_by > 1)
            kernels->divide[type](dst, part, call->divide_by);
    }
}

/* Narrow formats with a conversion at one end or both. */
static void run_narrow(const struct red_kernels *kernels, const struct red_call *call)
{
    enum { BLOCK = BLOCK_BYTES / sizeof(float) };
    red_combine_fn combine = kernels->combine[RED_FLOAT32][call->op];
    red_accumulate_fn accumulate = kernels->accumulate[call->type][call->op];
    size_t size = red_size(call->type);
    size_t src_size = call->src_wide ? sizeof(float) : size, dst_size = call->dst_wide ? sizeof(float) : size;
    _Alignas(64) float acc[BLOCK];

    for (size_t first = 0; first < call->count; first += BLOCK) {
        size_t part = call->count - first < BLOCK ? call->count - first : BLOCK;
        const void *so_far = at(call->srcs[0], first, src_size);
        if (call->src_wide) {
            for (uint32_t k = 1; k < call->n; k++) {
                combine(acc, so_far, at(call->srcs[k], first, src_size), part);
                so_far = acc;
            }
            if (so_far != acc)
                memcpy(acc, so_far, part * sizeof(float));
        } else {
            kernels->widen[call->type](acc, so_far, part);
            for (uint32_t k = 1; k < call->n; k++)
                accumulate(acc, at(call->srcs[k], first, src_size), part);
        }
        if (call->op == RED_AVG && call->divide_by > 1)
            kernels->divide[RED_FLOAT32](acc, part, call->divide_by);
        char *dst = (char *)call->dst + first * dst_size;
        if (call->dst_wide)
            memcpy(dst, acc, part * sizeof(float));
        else
            kernels->narrow[call->type](dst, acc, part);
    }
}

/* A product with one factor for all: the other operand of the kernel is a block of it. */
static void run_scaled(const struct red_kernels *kernels, const struct red_call *call)
{
    size_t size = red_size(call->type), block = BLOCK_BYTES / size, filled = call->count < block ? call->count : block;
    _Alignas(64) char factors[BLOCK_BYTES];
    red_fp_t fp = red_fp_enter();

    assert(red_supported(call->type, RED_PROD) && call->n == 1 && !call->src_wide && !call->dst_wide);
    for (size_t i = 0; i < filled; i++)
        memcpy(factors + i * size, call->scale, size);
    for (size_t first = 0; first < call->count; first += block)
        kernels->combine[call->type][RED_PROD]((char *)call->dst + first * size, factors,
                                               at(call->srcs[0], first, size),
                                               call->count - first < block ? call->count - first : block);
    red_fp_leave(fp);
}

void red_run_with(const struct red_kernels *kernels, const struct red_call *call)
{
    if (call->scale) {
        run_scaled(kernels, call);
        return;
    }
    assert(red_supported(call->type, call->op));
    assert(call->n >= 1 && call->n <= RED_MAX_INPUTS);
    if (call->count == 0)
        return;

    bool narrow = formats[call->type].size != formats[call->type].wide;
    bool divide = call->op == RED_AVG && call->divide_by > 1;
    bool convert = narrow && call->src_wide != call->dst_wide;
    /* What the elements are in memory, where source and destination agree. */
    enum red_type type = narrow && call->src_wide ? RED_FLOAT32 : call->type;

    if (call->n == 1 && !convert && !divide) {
        if (call->dst != call->srcs[0])
            memcpy(call->dst, call->srcs[0], call->count * formats[type].size);
        return;
    }
    if (call->n == 2 && !convert && !divide && !formats[type].floating) {   /* reading the settings takes 5 ns */
        kernels->combine[type][call->op](call->dst, call->srcs[0], call->srcs[1], call->count);
        return;
    }
    red_fp_t fp = red_fp_enter();
    if (call->n == 2 && !convert && !divide)
        kernels->combine[type][call->op](call->dst, call->srcs[0], call->srcs[1], call->count);
    else if (convert || (narrow && !call->src_wide))
        run_narrow(kernels, call);
    else
        run_own(kernels, call, type);
    red_fp_leave(fp);
}

void red_run(const struct red_call *call)
{
    red_run_with(best_kernels(), call);
}
