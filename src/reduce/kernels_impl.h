/*
 * The source of every kernel table: loops over arith.h, which the compiler vectorises for the instruction set that the
 * including file is compiled for. That file defines RED_KERNELS, the table's name, and RED_KERNELS_NAME.
 *
 * No loop carries anything from one iteration to the next: an output may be an input, element for element, which the
 * compiler must be told lest it tests for overlap and takes the scalar loop.
 */
#include "reduce/arith.h"
#include "reduce/kernels.h"

#if defined(__F16C__)
#include <immintrin.h>
#endif

#if defined(__clang__)
#pragma clang diagnostic ignored "-Wpass-failed"   /* under sanitizers the loops stay scalar: slow, but right */
#define EACH(i, count) _Pragma("clang loop vectorize(assume_safety)") for (size_t i = 0; i < (count); i++)
#else
#define EACH(i, count) _Pragma("GCC ivdep") for (size_t i = 0; i < (count); i++)
#endif

/* Elements as they stand in a user's buffer: anywhere. */
#define ANYWHERE __attribute__((aligned(1), may_alias))
typedef arith_i8_t any_i8 ANYWHERE;
typedef arith_u8_t any_u8 ANYWHERE;
typedef arith_i16_t any_i16 ANYWHERE;
typedef arith_u16_t any_u16 ANYWHERE;
typedef arith_i32_t any_i32 ANYWHERE;
typedef arith_u32_t any_u32 ANYWHERE;
typedef arith_i64_t any_i64 ANYWHERE;
typedef arith_u64_t any_u64 ANYWHERE;
typedef arith_f16_t any_f16 ANYWHERE;
typedef arith_bf16_t any_bf16 ANYWHERE;
typedef arith_e4m3_t any_e4m3 ANYWHERE;
typedef arith_e5m2_t any_e5m2 ANYWHERE;
typedef arith_e4m3fnuz_t any_e4m3fnuz ANYWHERE;
typedef arith_e5m2fnuz_t any_e5m2fnuz ANYWHERE;
typedef arith_f32_t any_f32 ANYWHERE;
typedef arith_f64_t any_f64 ANYWHERE;

/*
 * Formats that are their own accumulator.
 */
#define COMBINE_OWN(T, O, f, op)                                                                                      \
    static void combine_##T##_##O(void *dst, const void *a, const void *b, size_t count)                              \
    {                                                                                                                 \
        any_##f *d = dst;                                                                                             \
        const any_##f *x = a, *y = b;                                                                                 \
        EACH(i, count)                                                                                                \
            d[i] = arith_##f##_##op(x[i], y[i]);                                                                      \
    }
/* Sums of complex numbers are sums of their parts. */
#define COMBINE_PARTS(T, O, part, op)                                                                                 \
    static void combine_##T##_##O(void *dst, const void *a, const void *b, size_t count)                              \
    {                                                                                                                 \
        any_##part *d = dst;                                                                                          \
        const any_##part *x = a, *y = b;                                                                              \
        EACH(i, 2 * count)                                                                                            \
            d[i] = arith_##part##_##op(x[i], y[i]);                                                                   \
    }
#define COMBINE_COMPLEX(T, O, f, part, op)                                                                            \
    static void combine_##T##_##O(void *dst, const void *a, const void *b, size_t count)                              \
    {                                                                                                                 \
        any_##part *d = dst;                                                                                          \
        const any_##part *x = a, *y = b;                                                                              \
        EACH(i, count) {                                                                                              \
            arith_##f##_t p = { x[2 * i], x[2 * i + 1] }, q = { y[2 * i], y[2 * i + 1] };                             \
            arith_##f##_t r = arith_##f##_##op(p, q);                                                                 \
            d[2 * i] = r.re;                                                                                          \
            d[2 * i + 1] = r.im;                                                                                      \
        }                                                                                                             \
    }
#if defined(__AVX512F__)
/* AVX-512 has vfmaddsub, and gcc (12, at least) makes it of this product whatever -ffp-contract says: use AVX2's. */
#undef COMBINE_COMPLEX
#define COMBINE_COMPLEX(T, O, f, part, op)                                                                            \
    static void combine_##T##_##O(void *dst, const void *a, const void *b, size_t count)                              \
    {                                                                                                                 \
        red_kernels_avx2.combine[RED_##T][RED_##O](dst, a, b, count);                                                 \
    }
#endif
#define DIVIDE(T, f, PER)                                                                                             \
    static void divide_##T(void *data, size_t count, uint32_t divisor)                                                \
    {                                                                                                                 \
        any_##f *x = data;                                                                                            \
        EACH(i, (PER) * count)                                                                                        \
            x[i] = arith_##f##_div(x[i], divisor);                                                                    \
    }
DIVIDE(INT8, i8, 1)
DIVIDE(UINT8, u8, 1)
DIVIDE(INT16, i16, 1)
DIVIDE(UINT16, u16, 1)
DIVIDE(INT32, i32, 1)
DIVIDE(UINT32, u32, 1)
DIVIDE(INT64, i64, 1)
DIVIDE(UINT64, u64, 1)
DIVIDE(FLOAT32, f32, 1)
DIVIDE(FLOAT64, f64, 1)
DIVIDE(COMPLEX64, f32, 2)
DIVIDE(COMPLEX128, f64, 2)

/*
 * Formats narrower than fp32.
 */
#define COMBINE_NARROW(T, O, f, op)                                                                                   \
    static void combine_##T##_##O(void *dst, const void *a, const void *b, size_t count)                              \
    {                                                                                                                 \
        any_##f *d = dst;                                                                                             \
        const any_##f *x = a, *y = b;                                                                                 \
        EACH(i, count)                                                                                                \
            d[i] = arith_##f##_from_f32(arith_f32_##op(arith_f32_from_##f(x[i]), arith_f32_from_##f(y[i])));          \
    }                                                                                                                 \
    ACCUMULATE(T, O, f, op)
#define ACCUMULATE(T, O, f, op)                                                                                       \
    static void accumulate_##T##_##O(float *acc, const void *src, size_t count)                                       \
    {                                                                                                                 \
        const any_##f *x = src;                                                                                       \
        EACH(i, count)                                                                                                \
            acc[i] = arith_f32_##op(acc[i], arith_f32_from_##f(x[i]));                                                \
    }
#define CONVERT(T, f)                                                                                                 \
    static void widen_##T(void *dst, const void *src, size_t count)                                                   \
    {                                                                                                                 \
        any_f32 *d = dst;                                                                                             \
        const any_##f *x = src;                                                                                       \
        EACH(i, count)                                                                                                \
            d[i] = arith_f32_canon(arith_f32_from_##f(x[i]));                                                         \
    }                                                                                                                 \
    static void narrow_##T(void *dst, const void *src, size_t count)                                                  \
    {                                                                                                                 \
        any_##f *d = dst;                                                                                             \
        const any_f32 *x = src;                                                                                       \
        EACH(i, count)                                                                                                \
            d[i] = arith_##f##_from_f32(x[i]);                                                                        \
    }
CONVERT(BFLOAT16, bf16)
CONVERT(E4M3, e4m3)
CONVERT(E5M2, e5m2)
CONVERT(E4M3_FNUZ, e4m3fnuz)
CONVERT(E5M2_FNUZ, e5m2fnuz)

#if defined(__F16C__)
/*
 * fp16 with the processor's own conversions, eight at a time: the same bits but for NaN, which must be canonical before
 * f16_store. The compilers do not vectorise loops around them, so the operations of arith.h are written out here.
 */
#define F16_LANES 8

static inline __m256 f16_load(const any_f16 *x)
{
    __m256 wide = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i_u *)x));
#if defined(__clang__)
    __asm__("" : "+x"(wide));   /* clang 14 takes the conversion apart, lane by lane, to merge it with what follows */
#endif
    return wide;
}

static inline void f16_store(any_f16 *d, __m256 x)
{
    _mm_storeu_si128((__m128i_u *)d, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}

static inline uint16_t f16_store_one(float x)
{
    return _cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT);
}

/* x, or the NaN where a or b is one. */
static inline __m256 f16_canon(__m256 x, __m256 a, __m256 b)
{
    return _mm256_blendv_ps(x, _mm256_set1_ps(arith_float(ARITH_F32_NAN)), _mm256_cmp_ps(a, b, _CMP_UNORD_Q));
}

static inline __m256 f16_sum(__m256 a, __m256 b)
{
    __m256 x = _mm256_add_ps(a, b);
    return f16_canon(x, x, x);
}

static inline __m256 f16_prod(__m256 a, __m256 b)
{
    __m256 x = _mm256_mul_ps(a, b);
    return f16_canon(x, x, x);
}

static inline __m256 f16_min(__m256 a, __m256 b)
{
    __m256 x = _mm256_blendv_ps(b, a, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
    return f16_canon(_mm256_blendv_ps(x, _mm256_or_ps(a, b), _mm256_cmp_ps(a, b, _CMP_EQ_OQ)), a, b);
}

static inline __m256 f16_max(__m256 a, __m256 b)
{
    __m256 x = _mm256_blendv_ps(b, a, _mm256_cmp_ps(a, b, _CMP_GT_OQ));
    return f16_canon(_mm256_blendv_ps(x, _mm256_and_ps(a, b), _mm256_cmp_ps(a, b, _CMP_EQ_OQ)), a, b);
}

static void widen_FLOAT16(void *dst, const void *src, size_t count)
{
    any_f32 *d = dst;
    const any_f16 *x = src;
    size_t i = 0;
    for (; i + F16_LANES <= count; i += F16_LANES) {
        __m256 wide = f16_load(x + i);
        _mm256_storeu_ps((float *)(d + i), f16_canon(wide, wide, wide));
    }
    for (; i < count; i++)
        d[i] = arith_f32_canon(_cvtsh_ss(x[i]));
}

static void narrow_FLOAT16(void *dst, const void *src, size_t count)
{
    any_f16 *d = dst;
    const any_f32 *x = src;
    size_t i = 0;
    for (; i + F16_LANES <= count; i += F16_LANES) {
        __m256 wide = _mm256_loadu_ps((const float *)(x + i));
        f16_store(d + i, f16_canon(wide, wide, wide));
    }
    for (; i < count; i++)
        d[i] = f16_store_one(arith_f32_canon(x[i]));
}

#define COMBINE_F16(T, O, f, op)                                                                                      \
    static void accumulate_##T##_##O(float *acc, const void *src, size_t count)                                       \
    {                                                                                                                 \
        const any_f16 *x = src;                                                                                       \
        size_t i = 0;                                                                                                 \
        for (; i + F16_LANES <= count; i += F16_LANES)                                                                \
            _mm256_storeu_ps(acc + i, f16_##op(_mm256_loadu_ps(acc + i), f16_load(x + i)));                           \
        for (; i < count; i++)                                                                                        \
            acc[i] = arith_f32_##op(acc[i], _cvtsh_ss(x[i]));                                                         \
    }                                                                                                                 \
    static void combine_##T##_##O(void *dst, const void *a, const void *b, size_t count)                              \
    {                                                                                                                 \
        any_f16 *d = dst;                                                                                             \
        const any_f16 *x = a, *y = b;                                                                                 \
        size_t i = 0;                                                                                                 \
        for (; i + F16_LANES <= count; i += F16_LANES)                                                                \
            f16_store(d + i, f16_##op(f16_load(x + i), f16_load(y + i)));                                             \
        for (; i < count; i++)                                                                                        \
            d[i] = f16_store_one(arith_f32_##op(_cvtsh_ss(x[i]), _cvtsh_ss(y[i])));                                   \
    }
#else
CONVERT(FLOAT16, f16)
#define COMBINE_F16 COMBINE_NARROW
#endif

/* Which of these makes the kernels of a format. */
#define KERNELS_i8(T, O, f, op) COMBINE_OWN(T, O, f, op)
#define KERNELS_u8(T, O, f, op) COMBINE_OWN(T, O, f, op)
#define KERNELS_i16(T, O, f, op) COMBINE_OWN(T, O, f, op)
#define KERNELS_u16(T, O, f, op) COMBINE_OWN(T, O, f, op)
#define KERNELS_i32(T, O, f, op) COMBINE_OWN(T, O, f, op)
#define KERNELS_u32(T, O, f, op) COMBINE_OWN(T, O, f, op)
#define KERNELS_i64(T, O, f, op) COMBINE_OWN(T, O, f, op)
#define KERNELS_u64(T, O, f, op) COMBINE_OWN(T, O, f, op)
#define KERNELS_f32(T, O, f, op) COMBINE_OWN(T, O, f, op)
#define KERNELS_f64(T, O, f, op) COMBINE_OWN(T, O, f, op)
#define KERNELS_c64(T, O, f, op) KERNELS_complex_##op(T, O, f, f32, op)
#define KERNELS_c128(T, O, f, op) KERNELS_complex_##op(T, O, f, f64, op)
#define KERNELS_complex_sum(T, O, f, part, op) COMBINE_PARTS(T, O, part, op)
#define KERNELS_complex_prod(T, O, f, part, op) COMBINE_COMPLEX(T, O, f, part, op)
#define KERNELS_f16(T, O, f, op) COMBINE_F16(T, O, f, op)
#define KERNELS_bf16(T, O, f, op) COMBINE_NARROW(T, O, f, op)
#define KERNELS_e4m3(T, O, f, op) COMBINE_NARROW(T, O, f, op)
#define KERNELS_e5m2(T, O, f, op) COMBINE_NARROW(T, O, f, op)
#define KERNELS_e4m3fnuz(T, O, f, op) COMBINE_NARROW(T, O, f, op)
#define KERNELS_e5m2fnuz(T, O, f, op) COMBINE_NARROW(T, O, f, op)

#define KERNELS(T, O, f, acc, op) KERNELS_##f(T, O, f, op)
ARITH_PAIRS(KERNELS)

#define COMBINE_ENTRY(T, O, f, acc, op) [RED_##T][RED_##O] = combine_##T##_##O,
#define ACCUMULATE_ENTRY(T, O, f, acc, op) [RED_##T][RED_##O] = accumulate_##T##_##O,
#define NARROW_PAIRS(X)                                                                                               \
    ARITH_PAIRS_REAL_(X, FLOAT16, f16, f32) ARITH_PAIRS_REAL_(X, BFLOAT16, bf16, f32)                                 \
    ARITH_PAIRS_REAL_(X, E4M3, e4m3, f32) ARITH_PAIRS_REAL_(X, E5M2, e5m2, f32)                                       \
    ARITH_PAIRS_REAL_(X, E4M3_FNUZ, e4m3fnuz, f32) ARITH_PAIRS_REAL_(X, E5M2_FNUZ, e5m2fnuz, f32)
#define ENTRY(part, T) [RED_##T] = part##_##T

const struct red_kernels RED_KERNELS = {
    .name = RED_KERNELS_NAME,
    .combine = { ARITH_PAIRS(COMBINE_ENTRY) },
    .accumulate = { NARROW_PAIRS(ACCUMULATE_ENTRY) },
    .widen = { ENTRY(widen, FLOAT16), ENTRY(widen, BFLOAT16), ENTRY(widen, E4M3), ENTRY(widen, E5M2),
               ENTRY(widen, E4M3_FNUZ), ENTRY(widen, E5M2_FNUZ) },
    .narrow = { ENTRY(narrow, FLOAT16), ENTRY(narrow, BFLOAT16), ENTRY(narrow, E4M3), ENTRY(narrow, E5M2),
                ENTRY(narrow, E4M3_FNUZ), ENTRY(narrow, E5M2_FNUZ) },
    .divide = { ENTRY(divide, INT8), ENTRY(divide, UINT8), ENTRY(divide, INT16), ENTRY(divide, UINT16),
                ENTRY(divide, INT32), ENTRY(divide, UINT32), ENTRY(divide, INT64), ENTRY(divide, UINT64),
                ENTRY(divide, FLOAT32), ENTRY(divide, FLOAT64), ENTRY(divide, COMPLEX64),
                ENTRY(divide, COMPLEX128) },
};
