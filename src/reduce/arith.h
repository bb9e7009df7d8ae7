/*
 * The arithmetic of every reduction: number formats, the binary operations, and the table of (type, op) pairs.
 *
 * One source for all compilers (gcc and clang as C, g++, nvcc, hipcc), values in and values out, so that every
 * device runtime computes the same bits. Compile what includes it without -ffast-math and, where the target has
 * fused multiply-add, with -ffp-contract=off (nvcc and clang are told so here).
 *
 * NaN. Every result that is NaN is the one of its format, each part of a complex number on its own:
 *   fp32 0x7fc00000   fp64 0x7ff8000000000000   fp16 0x7e00   bf16 0x7fc0
 *   E4M3 0x7f         E5M2 0x7e                 E4M3_FNUZ, E5M2_FNUZ 0x80
 * Overflow. Rounding to a format that has an infinity (fp16, bf16, E5M2) gives infinity; one that has none (E4M3,
 * both FNUZ formats) gives NaN, for infinite inputs as well. The FNUZ formats have no -0: it becomes +0.
 */
#ifndef HETMPI_REDUCE_ARITH_H
#define HETMPI_REDUCE_ARITH_H

#include <float.h>
#include <stdint.h>
#include <string.h>

#if defined(__CUDACC__) || defined(__HIPCC__)
#define ARITH_FN static inline __host__ __device__ __attribute__((always_inline))
#else
#define ARITH_FN static inline __attribute__((always_inline))
#endif

#if defined(__FAST_MATH__)
#error "arith.h: fast-math changes the results; compile without it"
#endif
#if FLT_EVAL_METHOD != 0
#error "arith.h: needs float and double evaluated in their own precision (on x86: SSE2)"
#endif

/* What an element of each format is stored in. Formats that C lacks are integers. */
typedef int8_t arith_i8_t;
typedef uint8_t arith_u8_t;
typedef int16_t arith_i16_t;
typedef uint16_t arith_u16_t;
typedef int32_t arith_i32_t;
typedef uint32_t arith_u32_t;
typedef int64_t arith_i64_t;
typedef uint64_t arith_u64_t;
typedef uint16_t arith_f16_t;
typedef uint16_t arith_bf16_t;
typedef uint8_t arith_e4m3_t;
typedef uint8_t arith_e5m2_t;
typedef uint8_t arith_e4m3fnuz_t;
typedef uint8_t arith_e5m2fnuz_t;
typedef float arith_f32_t;
typedef double arith_f64_t;
typedef struct { float re, im; } arith_c64_t;
typedef struct { double re, im; } arith_c128_t;

/* clang's own memcpy needs no declaration for the device. */
#if defined(__clang__)
#define ARITH_COPY __builtin_memcpy
#else
#define ARITH_COPY memcpy
#endif

#define ARITH_F32_NAN 0x7fc00000u
#define ARITH_F64_NAN 0x7ff8000000000000ull

ARITH_FN uint32_t arith_bits(float x)
{
    uint32_t u;
    ARITH_COPY(&u, &x, sizeof(u));
    return u;
}

ARITH_FN float arith_float(uint32_t u)
{
    float x;
    ARITH_COPY(&x, &u, sizeof(x));
    return x;
}

ARITH_FN uint64_t arith_bits64(double x)
{
    uint64_t u;
    ARITH_COPY(&u, &x, sizeof(u));
    return u;
}

ARITH_FN double arith_double(uint64_t u)
{
    double x;
    ARITH_COPY(&x, &u, sizeof(x));
    return x;
}

/* The four IEEE operations, each rounded on its own: on the devices through the intrinsics that are never fused. */
#if defined(__CUDA_ARCH__)
#define ARITH_ADD32(a, b) __fadd_rn((a), (b))
#define ARITH_SUB32(a, b) __fsub_rn((a), (b))
#define ARITH_MUL32(a, b) __fmul_rn((a), (b))
#define ARITH_DIV32(a, b) __fdiv_rn((a), (b))
#define ARITH_ADD64(a, b) __dadd_rn((a), (b))
#define ARITH_SUB64(a, b) __dsub_rn((a), (b))
#define ARITH_MUL64(a, b) __dmul_rn((a), (b))
#define ARITH_DIV64(a, b) __ddiv_rn((a), (b))
#else
#define ARITH_ADD32(a, b) ((a) + (b))
#define ARITH_SUB32(a, b) ((a) - (b))
#define ARITH_MUL32(a, b) ((a) * (b))
#define ARITH_DIV32(a, b) ((a) / (b))
#define ARITH_ADD64(a, b) ((a) + (b))
#define ARITH_SUB64(a, b) ((a) - (b))
#define ARITH_MUL64(a, b) ((a) * (b))
#define ARITH_DIV64(a, b) ((a) / (b))
#endif
/* First in the functions whose products an addition could be fused with. */
#if defined(__clang__)
#define ARITH_NO_FUSING _Pragma("clang fp contract(off)")
#else
#define ARITH_NO_FUSING
#endif

/* The value itself, or its format's NaN. */
ARITH_FN float arith_f32_canon(float x)
{
    return arith_float(x != x ? ARITH_F32_NAN : arith_bits(x));
}

ARITH_FN double arith_f64_canon(double x)
{
    return arith_double(x != x ? ARITH_F64_NAN : arith_bits64(x));
}

/*
 * Formats narrower than fp32: `mantissa` bits, exponent bias `bias`.
 */

/* Value of a magnitude (no sign bit), taken as a finite number. */
ARITH_FN float arith_decode(uint32_t magnitude, int mantissa, int bias)
{
    uint32_t u = (magnitude << (23 - mantissa)) + ((uint32_t)(127 - bias) << 23);
    /* A subnormal's fraction on top of the smallest normal number, less that number: exact, and no fp32 subnormals. */
    float subnormal = ARITH_SUB32(arith_float(u + (1u << 23)), arith_float((uint32_t)(128 - bias) << 23));
    return (magnitude >> mantissa) == 0 ? subnormal : arith_float(u);
}

/* Magnitude of |x|, given by its fp32 bits, rounded to nearest even; past the largest exponent it just goes on. */
ARITH_FN uint32_t arith_encode(uint32_t u, int mantissa, int bias)
{
    int shift = 23 - mantissa;
    uint32_t rounded = u + ((u >> shift) & 1) + ((1u << (shift - 1)) - 1);
    uint32_t normal = (rounded >> shift) - ((uint32_t)(127 - bias) << mantissa);
    /* The last bit of `magic` weighs as much as the last bit of a subnormal: the addition rounds there. */
    uint32_t magic = (uint32_t)(127 + 24 - bias - mantissa) << 23;
    uint32_t subnormal = arith_bits(ARITH_ADD32(arith_float(u), arith_float(magic))) - magic;
    return u < ((uint32_t)(128 - bias) << 23) ? subnormal : normal;
}

/* arith_f32_from_*: exact; NaN stays some NaN (operations and arith_f32_canon make it the one). */
ARITH_FN float arith_f32_from_f16(uint16_t h)
{
    uint32_t magnitude = h & 0x7fffu, sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t finite = arith_bits(arith_decode(magnitude, 10, 15));
    uint32_t special = 0x7f800000u | ((h & 0x3ffu) << 13);
    return arith_float(sign | (magnitude >= 0x7c00u ? special : finite));
}

ARITH_FN uint16_t arith_f16_from_f32(float x)
{
    uint32_t u = arith_bits(x) & 0x7fffffffu, sign = (arith_bits(x) >> 16) & 0x8000u;
    uint32_t code = arith_encode(u, 10, 15);
    code = sign | (code > 0x7c00u ? 0x7c00u : code);
    return (uint16_t)(x != x ? 0x7e00u : code);
}

ARITH_FN float arith_f32_from_bf16(uint16_t h)
{
    return arith_float((uint32_t)h << 16);
}

ARITH_FN uint16_t arith_bf16_from_f32(float x)
{
    uint32_t u = arith_bits(x);
    uint32_t code = (u + 0x7fffu + ((u >> 16) & 1)) >> 16;
    return (uint16_t)(x != x ? 0x7fc0u : code);
}

ARITH_FN float arith_f32_from_e4m3(uint8_t b)
{
    uint32_t magnitude = b & 0x7fu, sign = (uint32_t)(b & 0x80u) << 24;
    uint32_t finite = arith_bits(arith_decode(magnitude, 3, 7));
    return arith_float(sign | (magnitude == 0x7fu ? ARITH_F32_NAN : finite));
}

ARITH_FN uint8_t arith_e4m3_from_f32(float x)
{
    uint32_t u = arith_bits(x) & 0x7fffffffu, sign = (arith_bits(x) >> 24) & 0x80u;
    uint32_t code = arith_encode(u, 3, 7);   /* infinity and NaN come out above the largest number, 0x7e */
    return (uint8_t)(code > 0x7eu ? 0x7fu : sign | code);
}

ARITH_FN float arith_f32_from_e5m2(uint8_t b)
{
    uint32_t magnitude = b & 0x7fu, sign = (uint32_t)(b & 0x80u) << 24;
    uint32_t finite = arith_bits(arith_decode(magnitude, 2, 15));
    uint32_t special = 0x7f800000u | ((b & 3u) << 21);
    return arith_float(sign | (magnitude >= 0x7cu ? special : finite));
}

ARITH_FN uint8_t arith_e5m2_from_f32(float x)
{
    uint32_t u = arith_bits(x) & 0x7fffffffu, sign = (arith_bits(x) >> 24) & 0x80u;
    uint32_t code = arith_encode(u, 2, 15);
    code = sign | (code > 0x7cu ? 0x7cu : code);
    return (uint8_t)(x != x ? 0x7eu : code);
}

ARITH_FN float arith_f32_from_e4m3fnuz(uint8_t b)
{
    uint32_t sign = (uint32_t)(b & 0x80u) << 24;
    uint32_t finite = sign | arith_bits(arith_decode(b & 0x7fu, 3, 8));
    uint32_t nan = 0u - (uint32_t)(b == 0x80u);   /* a mask: a branch here keeps gcc from vectorising MIN and MAX */
    return arith_float((finite & ~nan) | (ARITH_F32_NAN & nan));
}

ARITH_FN uint8_t arith_e4m3fnuz_from_f32(float x)
{
    uint32_t u = arith_bits(x) & 0x7fffffffu, sign = (arith_bits(x) >> 24) & 0x80u;
    uint32_t code = arith_encode(u, 3, 8);
    return (uint8_t)(code > 0x7fu ? 0x80u : code == 0 ? 0u : sign | code);
}

ARITH_FN float arith_f32_from_e5m2fnuz(uint8_t b)
{
    uint32_t sign = (uint32_t)(b & 0x80u) << 24;
    uint32_t finite = sign | arith_bits(arith_decode(b & 0x7fu, 2, 16));
    uint32_t nan = 0u - (uint32_t)(b == 0x80u);   /* a mask: a branch here keeps gcc from vectorising MIN and MAX */
    return arith_float((finite & ~nan) | (ARITH_F32_NAN & nan));
}

ARITH_FN uint8_t arith_e5m2fnuz_from_f32(float x)
{
    uint32_t u = arith_bits(x) & 0x7fffffffu, sign = (arith_bits(x) >> 24) & 0x80u;
    uint32_t code = arith_encode(u, 2, 16);
    return (uint8_t)(code > 0x7fu ? 0x80u : code == 0 ? 0u : sign | code);
}

/* Formats that are their own accumulator: conversions by the same naming rule. */
#define ARITH_OWN_(f) ARITH_FN arith_##f##_t arith_##f##_from_##f(arith_##f##_t x) { return x; }
#define ARITH_CANON_(f) ARITH_FN arith_##f##_t arith_##f##_canon(arith_##f##_t x) { return x; }
ARITH_OWN_(f32) ARITH_OWN_(f64) ARITH_OWN_(c64) ARITH_OWN_(c128)
ARITH_OWN_(i8) ARITH_OWN_(u8) ARITH_OWN_(i16) ARITH_OWN_(u16)
ARITH_OWN_(i32) ARITH_OWN_(u32) ARITH_OWN_(i64) ARITH_OWN_(u64)
ARITH_CANON_(i8) ARITH_CANON_(u8) ARITH_CANON_(i16) ARITH_CANON_(u16)
ARITH_CANON_(i32) ARITH_CANON_(u32) ARITH_CANON_(i64) ARITH_CANON_(u64)

/*
 * Integers: sums and products wrap, computed unsigned so that nothing is undefined.
 */
#define ARITH_INT_(f, T, wrap)                                                                                        \
    ARITH_FN T arith_##f##_sum(T a, T b) { return (T)((wrap)a + (wrap)b); }                                           \
    ARITH_FN T arith_##f##_prod(T a, T b) { return (T)((wrap)a * (wrap)b); }                                          \
    ARITH_FN T arith_##f##_min(T a, T b) { return a < b ? a : b; }                                                    \
    ARITH_FN T arith_##f##_max(T a, T b) { return a > b ? a : b; }                                                    \
    ARITH_FN T arith_##f##_band(T a, T b) { return (T)(a & b); }                                                      \
    ARITH_FN T arith_##f##_bor(T a, T b) { return (T)(a | b); }                                                       \
    ARITH_FN T arith_##f##_bxor(T a, T b) { return (T)(a ^ b); }                                                      \
    ARITH_FN T arith_##f##_land(T a, T b) { return (T)((a != 0) & (b != 0)); }                                        \
    ARITH_FN T arith_##f##_lor(T a, T b) { return (T)((a | b) != 0); }                                                \
    ARITH_FN T arith_##f##_lxor(T a, T b) { return (T)((a != 0) ^ (b != 0)); }
ARITH_INT_(i8, int8_t, uint32_t) ARITH_INT_(u8, uint8_t, uint32_t)
ARITH_INT_(i16, int16_t, uint32_t) ARITH_INT_(u16, uint16_t, uint32_t)
ARITH_INT_(i32, int32_t, uint32_t) ARITH_INT_(u32, uint32_t, uint32_t)
ARITH_INT_(i64, int64_t, uint64_t) ARITH_INT_(u64, uint64_t, uint64_t)

/* Division by the number of ranks, toward zero. Up to 32 bits through double, which vectorises and is exact: a
 * quotient that is no integer is at least 1/d away from one, and its rounding error is below 2^-20 of that. */
#define ARITH_DIV_(f, T)                                                                                              \
    ARITH_FN T arith_##f##_div(T x, uint32_t d) { return (T)((double)x / (double)d); }
ARITH_DIV_(i8, int8_t) ARITH_DIV_(u8, uint8_t) ARITH_DIV_(i16, int16_t) ARITH_DIV_(u16, uint16_t)
ARITH_DIV_(i32, int32_t) ARITH_DIV_(u32, uint32_t)

ARITH_FN int64_t arith_i64_div(int64_t x, uint32_t d)
{
    return x / (int64_t)d;
}

ARITH_FN uint64_t arith_u64_div(uint64_t x, uint32_t d)
{
    return x / d;
}

/*
 * Floating point. Where two numbers are equal their bits are, but for -0 and +0: there OR gives -0 and AND +0.
 */
ARITH_FN float arith_f32_sum(float a, float b)
{
    return arith_f32_canon(ARITH_ADD32(a, b));
}

ARITH_FN float arith_f32_prod(float a, float b)
{
    ARITH_NO_FUSING
    return arith_f32_canon(ARITH_MUL32(a, b));
}

ARITH_FN float arith_f32_min(float a, float b)
{
    uint32_t x = arith_bits(a), y = arith_bits(b);
    uint32_t least = a == b ? (x | y) : a < b ? x : y;
    return arith_float(((a != a) | (b != b)) ? ARITH_F32_NAN : least);
}

ARITH_FN float arith_f32_max(float a, float b)
{
    uint32_t x = arith_bits(a), y = arith_bits(b);
    uint32_t most = a == b ? (x & y) : a > b ? x : y;
    return arith_float(((a != a) | (b != b)) ? ARITH_F32_NAN : most);
}

ARITH_FN float arith_f32_div(float x, uint32_t d)
{
    return arith_f32_canon(ARITH_DIV32(x, (float)d));
}

ARITH_FN double arith_f64_sum(double a, double b)
{
    return arith_f64_canon(ARITH_ADD64(a, b));
}

ARITH_FN double arith_f64_prod(double a, double b)
{
    ARITH_NO_FUSING
    return arith_f64_canon(ARITH_MUL64(a, b));
}

ARITH_FN double arith_f64_min(double a, double b)
{
    uint64_t x = arith_bits64(a), y = arith_bits64(b);
    uint64_t least = a == b ? (x | y) : a < b ? x : y;
    return arith_double(((a != a) | (b != b)) ? ARITH_F64_NAN : least);
}

ARITH_FN double arith_f64_max(double a, double b)
{
    uint64_t x = arith_bits64(a), y = arith_bits64(b);
    uint64_t most = a == b ? (x & y) : a > b ? x : y;
    return arith_double(((a != a) | (b != b)) ? ARITH_F64_NAN : most);
}

ARITH_FN double arith_f64_div(double x, uint32_t d)
{
    return arith_f64_canon(ARITH_DIV64(x, (double)d));
}

/* (a + bi)(c + di) = (ac - bd) + (ad + bc)i, each product and sum rounded on its own, infinities not mended. */
#define ARITH_COMPLEX_(f, part, real, ADD, SUB, MUL)                                                                  \
    ARITH_FN arith_##f##_t arith_##f##_make(real re, real im)                                                         \
    {                                                                                                                 \
        arith_##f##_t z;                                                                                              \
        z.re = arith_##part##_canon(re);                                                                              \
        z.im = arith_##part##_canon(im);                                                                              \
        return z;                                                                                                     \
    }                                                                                                                 \
    ARITH_FN arith_##f##_t arith_##f##_canon(arith_##f##_t x) { return arith_##f##_make(x.re, x.im); }                \
    ARITH_FN arith_##f##_t arith_##f##_sum(arith_##f##_t a, arith_##f##_t b)                                          \
    {                                                                                                                 \
        return arith_##f##_make(ADD(a.re, b.re), ADD(a.im, b.im));                                                    \
    }                                                                                                                 \
    ARITH_FN arith_##f##_t arith_##f##_prod(arith_##f##_t a, arith_##f##_t b)                                         \
    {                                                                                                                 \
        ARITH_NO_FUSING                                                                                               \
        real ac = MUL(a.re, b.re), bd = MUL(a.im, b.im), ad = MUL(a.re, b.im), bc = MUL(a.im, b.re);                  \
        return arith_##f##_make(SUB(ac, bd), ADD(ad, bc));                                                            \
    }                                                                                                                 \
    ARITH_FN arith_##f##_t arith_##f##_div(arith_##f##_t x, uint32_t d)                                               \
    {                                                                                                                 \
        arith_##f##_t z;                                                                                              \
        z.re = arith_##part##_div(x.re, d);                                                                           \
        z.im = arith_##part##_div(x.im, d);                                                                           \
        return z;                                                                                                     \
    }
ARITH_COMPLEX_(c64, f32, float, ARITH_ADD32, ARITH_SUB32, ARITH_MUL32)
ARITH_COMPLEX_(c128, f64, double, ARITH_ADD64, ARITH_SUB64, ARITH_MUL64)

/*
 * The pairs that exist, for generating code and tables: X(TYPE, OP, f, acc, op) for RED_TYPE and RED_OP. An element
 * is an arith_<f>_t; the reduction is
 *     acc = arith_<acc>_from_<f>(first);  acc = arith_<acc>_<op>(acc, arith_<acc>_from_<f>(next));  ...
 *     result = arith_<f>_from_<acc>(acc), for AVG after acc = arith_<acc>_div(acc, divide_by).
 */
#define ARITH_PAIRS_SUM_(X, T, f, acc) X(T, SUM, f, acc, sum) X(T, PROD, f, acc, prod) X(T, AVG, f, acc, sum)
#define ARITH_PAIRS_ORDER_(X, T, f, acc) X(T, MIN, f, acc, min) X(T, MAX, f, acc, max)
#define ARITH_PAIRS_BITS_(X, T, f) X(T, BAND, f, f, band) X(T, BOR, f, f, bor) X(T, BXOR, f, f, bxor)
#define ARITH_PAIRS_LOGICAL_(X, T, f) X(T, LAND, f, f, land) X(T, LOR, f, f, lor) X(T, LXOR, f, f, lxor)
#define ARITH_PAIRS_REAL_(X, T, f, acc) ARITH_PAIRS_SUM_(X, T, f, acc) ARITH_PAIRS_ORDER_(X, T, f, acc)
#define ARITH_PAIRS_INT_(X, T, f)                                                                                     \
    ARITH_PAIRS_REAL_(X, T, f, f) ARITH_PAIRS_BITS_(X, T, f) ARITH_PAIRS_LOGICAL_(X, T, f)
#define ARITH_PAIRS(X)                                                                                                \
    ARITH_PAIRS_INT_(X, INT8, i8) ARITH_PAIRS_INT_(X, UINT8, u8)                                                      \
    ARITH_PAIRS_INT_(X, INT16, i16) ARITH_PAIRS_INT_(X, UINT16, u16)                                                  \
    ARITH_PAIRS_INT_(X, INT32, i32) ARITH_PAIRS_INT_(X, UINT32, u32)                                                  \
    ARITH_PAIRS_INT_(X, INT64, i64) ARITH_PAIRS_INT_(X, UINT64, u64)                                                  \
    ARITH_PAIRS_REAL_(X, FLOAT16, f16, f32) ARITH_PAIRS_REAL_(X, BFLOAT16, bf16, f32)                                 \
    ARITH_PAIRS_REAL_(X, FLOAT32, f32, f32) ARITH_PAIRS_REAL_(X, FLOAT64, f64, f64)                                   \
    ARITH_PAIRS_SUM_(X, COMPLEX64, c64, c64) ARITH_PAIRS_SUM_(X, COMPLEX128, c128, c128)                              \
    ARITH_PAIRS_REAL_(X, E4M3, e4m3, f32) ARITH_PAIRS_REAL_(X, E5M2, e5m2, f32)                                       \
    ARITH_PAIRS_REAL_(X, E4M3_FNUZ, e4m3fnuz, f32) ARITH_PAIRS_REAL_(X, E5M2_FNUZ, e5m2fnuz, f32)                     \
    ARITH_PAIRS_LOGICAL_(X, BOOL, u8) ARITH_PAIRS_BITS_(X, BYTE, u8)

#endif
