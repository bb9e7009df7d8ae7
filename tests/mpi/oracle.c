/* Reductions in higher precision: see oracle.h. */
#include "oracle.h"

#include <complex.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <wchar.h>

/*
 * Formats
 */
enum special { IEEE, ONE_NAN, FNUZ }; /* infinities and NaNs; all ones is NaN, no infinity; 0x80.. is the only NaN */
static const struct format {
    const char *name;
    uint8_t size;
    bool is_signed;
    uint8_t exponent, mantissa; /* small floats alone */
    int16_t bias;
    uint8_t special;
} formats[T_FMTS] = {
    [T_I8] = { "int8", 1, true, 0, 0, 0, 0 }, [T_U8] = { "uint8", 1, false, 0, 0, 0, 0 },
    [T_I16] = { "int16", 2, true, 0, 0, 0, 0 }, [T_U16] = { "uint16", 2, false, 0, 0, 0, 0 },
    [T_I32] = { "int32", 4, true, 0, 0, 0, 0 }, [T_U32] = { "uint32", 4, false, 0, 0, 0, 0 },
    [T_I64] = { "int64", 8, true, 0, 0, 0, 0 }, [T_U64] = { "uint64", 8, false, 0, 0, 0, 0 },
    [T_F16] = { "float16", 2, true, 5, 10, 15, IEEE }, [T_BF16] = { "bfloat16", 2, true, 8, 7, 127, IEEE },
    [T_F32] = { "float32", 4, true, 8, 23, 127, IEEE }, [T_F64] = { "float64", 8, true, 11, 52, 1023, IEEE },
    [T_C64] = { "complex64", 8, true, 8, 23, 127, IEEE }, [T_C128] = { "complex128", 16, true, 11, 52, 1023, IEEE },
    [T_E4M3] = { "e4m3", 1, true, 4, 3, 7, ONE_NAN }, [T_E5M2] = { "e5m2", 1, true, 5, 2, 15, IEEE },
    [T_E4M3_FNUZ] = { "e4m3fnuz", 1, true, 4, 3, 8, FNUZ }, [T_E5M2_FNUZ] = { "e5m2fnuz", 1, true, 5, 2, 16, FNUZ },
    [T_BOOL] = { "bool", sizeof(_Bool), false, 0, 0, 0, 0 }, [T_BYTE] = { "byte", 1, false, 0, 0, 0, 0 },
    [T_CHAR] = { "char", 1, false, 0, 0, 0, 0 }, [T_WCHAR] = { "wchar", sizeof(wchar_t), false, 0, 0, 0, 0 },
};

size_t t_size(enum t_fmt fmt)
{
    return formats[fmt].size;
}

const char *t_fmt_name(enum t_fmt fmt)
{
    return formats[fmt].name;
}

bool t_is_complex(enum t_fmt fmt)
{
    return fmt == T_C64 || fmt == T_C128;
}

bool t_is_float(enum t_fmt fmt)
{
    return formats[fmt].exponent != 0 && !t_is_complex(fmt);
}

static bool is_integer(enum t_fmt fmt)
{
    return fmt <= T_U64;
}

const char *t_op_name(enum t_op op)
{
    static const char *const names[T_OPS] = { "sum", "prod", "min", "max", "band", "bor", "bxor", "land", "lor",
                                              "lxor", "avg" };
    return names[op];
}

MPI_Datatype t_mpi_type(enum t_fmt fmt)
{
    switch (fmt) {
    case T_I8: return MPI_INT8_T;
    case T_U8: return MPI_UINT8_T;
    case T_I16: return MPI_INT16_T;
    case T_U16: return MPI_UINT16_T;
    case T_I32: return MPI_INT32_T;
    case T_U32: return MPI_UINT32_T;
    case T_I64: return MPI_INT64_T;
    case T_U64: return MPI_UINT64_T;
    case T_F16: return HETMPI_FLOAT16;
    case T_BF16: return HETMPI_BFLOAT16;
    case T_F32: return MPI_FLOAT;
    case T_F64: return MPI_DOUBLE;
    case T_C64: return MPI_C_FLOAT_COMPLEX;
    case T_C128: return MPI_C_DOUBLE_COMPLEX;
    case T_E4M3: return HETMPI_FLOAT8_E4M3;
    case T_E5M2: return HETMPI_FLOAT8_E5M2;
    case T_E4M3_FNUZ: return HETMPI_FLOAT8_E4M3_FNUZ;
    case T_E5M2_FNUZ: return HETMPI_FLOAT8_E5M2_FNUZ;
    case T_BOOL: return MPI_C_BOOL;
    case T_BYTE: return MPI_BYTE;
    case T_CHAR: return MPI_CHAR;
    case T_WCHAR: return MPI_WCHAR;
    case T_FMTS: break;
    }
    t_fatal("no format %d", (int)fmt);
}

MPI_Op t_mpi_op(enum t_op op)
{
    switch (op) {
    case T_SUM: return MPI_SUM;
    case T_PROD: return MPI_PROD;
    case T_MIN: return MPI_MIN;
    case T_MAX: return MPI_MAX;
    case T_BAND: return MPI_BAND;
    case T_BOR: return MPI_BOR;
    case T_BXOR: return MPI_BXOR;
    case T_LAND: return MPI_LAND;
    case T_LOR: return MPI_LOR;
    case T_LXOR: return MPI_LXOR;
    case T_AVG: return HETMPI_AVG;
    case T_OPS: break;
    }
    t_fatal("no operation %d", (int)op);
}

bool t_supported(enum t_fmt fmt, enum t_op op)
{
    switch (op) {
    case T_SUM: case T_PROD: case T_AVG: return is_integer(fmt) || t_is_float(fmt) || t_is_complex(fmt);
    case T_MIN: case T_MAX: return is_integer(fmt) || t_is_float(fmt);
    case T_BAND: case T_BOR: case T_BXOR: return is_integer(fmt) || fmt == T_BYTE;
    case T_LAND: case T_LOR: case T_LXOR: return is_integer(fmt) || fmt == T_BOOL;
    case T_OPS: break;
    }
    return false;
}

/*
 * Numbers
 */
static long double small_value(const struct format *f, unsigned bits)
{
    unsigned width = 8u * f->size, sign = bits >> (width - 1);
    unsigned e = (bits >> f->mantissa) & ((1u << f->exponent) - 1), m = bits & ((1u << f->mantissa) - 1);
    if (f->special == FNUZ && bits == 1u << (width - 1))
        return NAN;
    if (e == (1u << f->exponent) - 1) {
        if (f->special == IEEE)
            return m ? (long double)NAN : sign ? -(long double)INFINITY : (long double)INFINITY;
        if (f->special == ONE_NAN && m == (1u << f->mantissa) - 1)
            return NAN;
    }
    long double x = e ? ldexpl(m + (1u << f->mantissa), (int)e - f->bias - f->mantissa)
                      : ldexpl(m, 1 - f->bias - f->mantissa);
    return sign ? -x : x;
}

static unsigned small_nan(const struct format *f)
{
    unsigned sign = 1u << (8u * f->size - 1);
    return f->special == FNUZ ? sign : f->special == ONE_NAN ? sign - 1 : sign - (1u << (f->mantissa - 1));
}

static unsigned small_bits(const struct format *f, long double x)
{
    unsigned sign = signbit(x) ? 1u << (8u * f->size - 1) : 0;
    unsigned top = (1u << (8u * f->size - 1)) - 1;   /* all ones but the sign */
    unsigned infinity = top - ((1u << f->mantissa) - 1);
    unsigned largest = f->special == IEEE ? infinity - 1 : f->special == ONE_NAN ? top - 1 : top;
    if (isnan(x))
        return small_nan(f);
    if (x == 0)
        return f->special == FNUZ ? 0 : sign;
    unsigned bits = largest + 1;
    if (!isinf(x)) {
        int e = ilogbl(x);
        if (e < 1 - f->bias)
            e = 1 - f->bias;
        if (e <= f->bias + 1) {
            unsigned r = (unsigned)rintl(ldexpl(fabsl(x), f->mantissa - e));
            /* r has the hidden bit, or not (subnormal); a carry into the exponent comes out by itself. */
            bits = ((unsigned)(e + f->bias - 1) << f->mantissa) + r;
        }
    }
    if (bits > largest)
        return f->special == IEEE ? sign | infinity : small_nan(f);
    return f->special == FNUZ && bits == 0 ? 0 : sign | bits;
}

long double t_float(enum t_fmt fmt, const void *element)
{
    const struct format *f = &formats[fmt];
    float f32;
    double f64;
    uint8_t b8;
    uint16_t b16;
    switch (f->size) {
    case 1: memcpy(&b8, element, 1); return small_value(f, b8);
    case 2: memcpy(&b16, element, 2); return small_value(f, b16);
    case 4: memcpy(&f32, element, 4); return f32;
    default: memcpy(&f64, element, 8); return f64;
    }
}

void t_set_float(enum t_fmt fmt, void *element, long double x)
{
    const struct format *f = &formats[fmt];
    uint8_t b8;
    uint16_t b16;
    float f32;
    double f64;
    switch (f->size) {
    case 1: b8 = (uint8_t)small_bits(f, x); memcpy(element, &b8, 1); break;
    case 2: b16 = (uint16_t)small_bits(f, x); memcpy(element, &b16, 2); break;
    case 4: f32 = (float)x; memcpy(element, &f32, 4); break;
    default: f64 = (double)x; memcpy(element, &f64, 8); break;
    }
}

static uint64_t get_int(enum t_fmt fmt, const void *element)
{
    uint64_t u = 0;
    size_t size = formats[fmt].size;
    memcpy(&u, element, size); /* little-endian, as all machines of hetmpi's are */
    if (formats[fmt].is_signed && size < 8 && (u >> (8 * size - 1)) & 1)
        u |= ~UINT64_C(0) << (8 * size);
    return u;
}

/* CMPLXL, which not every compiler has with every C library. */
static long double complex make_complex(long double re, long double im)
{
    const long double parts[2] = { re, im };
    long double complex z;
    memcpy(&z, parts, sizeof z);
    return z;
}

static long double complex get_complex(enum t_fmt fmt, const void *element)
{
    enum t_fmt part = fmt == T_C64 ? T_F32 : T_F64;
    return make_complex(t_float(part, element), t_float(part, (const char *)element + t_size(part)));
}

static void set_complex(enum t_fmt fmt, void *element, long double complex z)
{
    enum t_fmt part = fmt == T_C64 ? T_F32 : T_F64;
    t_set_float(part, element, creall(z));
    t_set_float(part, (char *)element + t_size(part), cimagl(z));
}

/*
 * Data
 */
static long double exact_float(enum t_fmt fmt, enum t_op op, uint64_t random, int rank)
{
    bool negative = random & 1;
    random >>= 1;
    if (op == T_PROD) { /* powers of two that cancel between even and odd ranks: fp8 FNUZ ends at 240 */
        long double x = random & 1 ? (rank & 1 ? 0.5L : 2.0L) : 1.0L;
        return negative ? -x : x;
    }
    /* sums of 8 ranks keep to the integers that the mantissa can hold */
    int64_t limit = t_size(fmt) == 1 ? 1 : fmt == T_BF16 ? 32 : fmt == T_F16 ? 64 : fmt == T_F32 ? 1 << 20
                                                                                  : INT64_C(1) << 40;
    int64_t x = (int64_t)(random % (uint64_t)(limit + 1));
    return (long double)(negative ? -x : x);
}

static long double special_float(enum t_fmt fmt, enum t_op op, uint64_t random)
{
    static const long double values[] = { 1, -1, 0.0L, -0.0L, 2, -0.5L, 0.25L, -2 };
    bool infinite = formats[fmt].special == IEEE;
    /* Partial sums must be exact in the format, since they may cross a wire in it. */
    unsigned usable = t_size(fmt) == 1 && (op == T_SUM || op == T_AVG) ? 4 : 8;
    unsigned pick = random % 16;
    if (pick == 0 && (random >> 8) % 4 == 0)
        return NAN;
    if (pick == 1 && (random >> 8) % 2)
        return infinite ? (long double)INFINITY : 1.0L;
    if (pick == 2 && (random >> 8) % 2)
        return infinite ? -(long double)INFINITY : -1.0L;
    return values[(random >> 16) % usable];
}

static long double random_float(enum t_op op, uint64_t random)
{
    long double unit = (long double)(random >> 11) * 0x1p-53L;
    if (op == T_PROD)
        return (random & 1 ? -1 : 1) * (0.75L + 0.75L * unit);
    return 8 * (2 * unit - 1);
}

static void make_element(enum t_fmt fmt, enum t_op op, enum t_data data, uint64_t random, int rank, void *element)
{
    if (t_is_float(fmt)) {
        long double x = data == T_EXACT ? exact_float(fmt, op, random, rank)
                        : data == T_SPECIAL ? special_float(fmt, op, random) : random_float(op, random);
        t_set_float(fmt, element, x);
    } else if (t_is_complex(fmt)) {
        static const int parts[4] = { 1, 2, -1, -2 };
        set_complex(fmt, element,
                    data == T_EXACT ? make_complex(parts[random & 3], parts[(random >> 2) & 3])
                                    : make_complex(random_float(op, random), random_float(op, ~random)));
    } else if (fmt == T_BOOL) {
        _Bool b = random & 1;
        memcpy(element, &b, sizeof b);
    } else {
        bool logical = op == T_LAND || op == T_LOR || op == T_LXOR;
        bool zero = logical && (op == T_LOR ? random % 8 != 0 : op == T_LAND ? random % 8 == 0 : random & 1);
        uint64_t bits = zero ? 0 : random >> 3;
        if (op == T_PROD && bits % 4 != 0)
            bits |= 1;  /* products of many even numbers are 0 and would hide faults */
        memcpy(element, &bits, t_size(fmt));
    }
}

void t_pattern(enum t_fmt fmt, enum t_op op, enum t_data data, uint64_t seed, int rank, void *out)
{
    for (size_t i = 0; i < T_PATTERN; i++)
        make_element(fmt, op, data, t_hash64(seed, (uint64_t)rank, i), rank, (char *)out + i * t_size(fmt));
}

void t_repeat(void *vector, const void *pattern, size_t size, size_t first, size_t n)
{
    char *to = vector;
    for (size_t at = first % T_PATTERN; n > 0; at = 0) {
        size_t run = T_PATTERN - at < n ? T_PATTERN - at : n;
        memcpy(to, (const char *)pattern + at * size, run * size);
        to += run * size;
        n -= run;
    }
}

/*
 * The oracle
 */
static uint64_t reduce_int(enum t_fmt fmt, enum t_op op, const void *const *patterns, int ranks, size_t at)
{
    uint64_t acc = 0;
    /* One rank has nothing to combine: its values come through, whatever the operation. */
    bool logical = ranks > 1 && (op == T_LAND || op == T_LOR || op == T_LXOR);
    for (int r = 0; r < ranks; r++) {
        uint64_t x = get_int(fmt, (const char *)patterns[r] + at);
        if (logical)
            x = x != 0;
        if (r == 0) {
            acc = x;
            continue;
        }
        bool less = formats[fmt].is_signed ? (int64_t)x < (int64_t)acc : x < acc;
        switch (op) {
        case T_SUM: case T_AVG: acc += x; break;
        case T_PROD: acc *= x; break;
        case T_MIN: acc = less ? x : acc; break;
        case T_MAX: acc = less ? acc : x; break;
        case T_BAND: case T_LAND: acc &= x; break;
        case T_BOR: case T_LOR: acc |= x; break;
        case T_BXOR: case T_LXOR: acc ^= x; break;
        case T_OPS: break;
        }
    }
    if (op == T_AVG) { /* of the wrapped sum */
        acc = get_int(fmt, &acc);
        acc = formats[fmt].is_signed ? (uint64_t)((int64_t)acc / ranks) : acc / (uint64_t)ranks;
    }
    return acc;
}

static long double reduce_float(enum t_fmt fmt, enum t_op op, const void *const *patterns, int ranks, size_t at)
{
    long double acc = t_float(fmt, (const char *)patterns[0] + at);
    for (int r = 1; r < ranks; r++) {
        long double x = t_float(fmt, (const char *)patterns[r] + at);
        bool less = x < acc || (x == acc && signbit(x) && !signbit(acc));
        bool nan = isnan(x) || isnan(acc);
        if (op == T_SUM || op == T_AVG)
            acc += x;
        else if (op == T_PROD)
            acc *= x;
        else if (nan)
            acc = NAN;
        else if (op == T_MIN ? less : !less)
            acc = x;
    }
    return op == T_AVG ? acc / ranks : acc;
}

static long double complex reduce_complex(enum t_fmt fmt, enum t_op op, const void *const *patterns, int ranks,
                                          size_t at)
{
    long double complex acc = get_complex(fmt, (const char *)patterns[0] + at);
    for (int r = 1; r < ranks; r++) {
        long double complex x = get_complex(fmt, (const char *)patterns[r] + at);
        acc = op == T_PROD ? acc * x : acc + x;
    }
    return op == T_AVG ? make_complex(creall(acc) / ranks, cimagl(acc) / ranks) : acc;
}

void t_oracle(enum t_fmt fmt, enum t_op op, const void *const *patterns, int ranks, void *out)
{
    size_t size = t_size(fmt);
    for (size_t at = 0; at < T_PATTERN * size; at += size) {
        char *to = (char *)out + at;
        if (t_is_float(fmt)) {
            t_set_float(fmt, to, reduce_float(fmt, op, patterns, ranks, at));
        } else if (t_is_complex(fmt)) {
            set_complex(fmt, to, reduce_complex(fmt, op, patterns, ranks, at));
        } else {
            uint64_t u = reduce_int(fmt, op, patterns, ranks, at);
            memcpy(to, &u, size);
        }
    }
}

/*
 * Comparing
 */
static void show(enum t_fmt fmt, const void *element, char text[64])
{
    if (t_is_float(fmt))
        snprintf(text, 64, "%.17Lg", t_float(fmt, element));
    else if (t_is_complex(fmt))
        snprintf(text, 64, "%.9Lg%+.9Lgi", creall(get_complex(fmt, element)), cimagl(get_complex(fmt, element)));
    else
        snprintf(text, 64, "0x%llx", (unsigned long long)get_int(fmt, element));
}

static bool equal(enum t_fmt fmt, const void *a, const void *b)
{
    if (memcmp(a, b, t_size(fmt)) == 0)
        return true;
    if (t_is_float(fmt))
        return isnan(t_float(fmt, a)) && isnan(t_float(fmt, b));
    /* The sign of a zero part of a complex product depends on how factors are grouped. */
    return t_is_complex(fmt) && get_complex(fmt, a) == get_complex(fmt, b);
}

bool t_expect(enum t_fmt fmt, const void *got, const void *pattern, size_t first, size_t n, const char *what)
{
    size_t size = t_size(fmt), wrong = 0, at = 0;
    for (size_t i = 0; i < n;) {
        size_t p = (first + i) % T_PATTERN, run = T_PATTERN - p < n - i ? T_PATTERN - p : n - i;
        const char *g = (const char *)got + i * size, *w = (const char *)pattern + p * size;
        if (memcmp(g, w, run * size) != 0)
            for (size_t k = 0; k < run; k++)
                if (!equal(fmt, g + k * size, w + k * size) && wrong++ == 0)
                    at = i + k;
        i += run;
    }
    if (wrong == 0)
        return true;
    char have[64], want[64];
    show(fmt, (const char *)got + at * size, have);
    show(fmt, (const char *)pattern + (first + at) % T_PATTERN * size, want);
    return t_fail(__FILE__, __LINE__, "%s: %zu of %zu %s wrong, first element %zu: %s instead of %s", what, wrong, n,
                  t_fmt_name(fmt), at, have, want);
}

/* The largest error of one part (real, imaginary) of one element. */
static bool close_part(enum t_fmt part, enum t_op op, const void *got, const void *const *patterns, size_t at,
                       int ranks, int roundings, long double want, long double *error, long double *allowed)
{
    const struct format *f = &formats[part];
    long double magnitude = 0;
    for (int r = 0; r < ranks; r++)
        magnitude += fabsl(t_float(part, (const char *)patterns[r] + at));
    if (op == T_PROD)
        magnitude = 2 * fabsl(want);
    else if (op == T_AVG)
        magnitude /= ranks;
    *allowed = (long double)roundings * magnitude * ldexpl(1, -f->mantissa - 1) + ldexpl(1, 1 - f->bias - f->mantissa);
    *error = fabsl(t_float(part, got) - want);
    return op == T_MIN || op == T_MAX ? *error == 0 : *error <= *allowed;
}

bool t_expect_close(enum t_fmt fmt, enum t_op op, const void *got, const void *const *patterns, int ranks,
                    int roundings, size_t first, size_t n, const char *what)
{
    size_t size = t_size(fmt);
    for (size_t i = 0; i < n; i++) {
        size_t at = (first + i) % T_PATTERN * size;
        const char *g = (const char *)got + i * size;
        long double error, allowed;
        long double want = t_is_float(fmt) ? reduce_float(fmt, op, patterns, ranks, at)
                                           : creall(reduce_complex(fmt, op, patterns, ranks, at));
        enum t_fmt part = fmt == T_C64 ? T_F32 : fmt == T_C128 ? T_F64 : fmt;
        /* A complex product mixes its parts: compare it in magnitude by the exact data alone. */
        if (t_is_complex(fmt) && op == T_PROD)
            continue;
        if (!close_part(part, op, g, patterns, at, ranks, roundings, want, &error, &allowed))
            return t_fail(__FILE__, __LINE__, "%s: %s element %zu is %.17Lg, not %.17Lg: error %.3Lg, allowed %.3Lg",
                          what, t_fmt_name(fmt), i, t_float(part, g), want, error, allowed);
    }
    return true;
}

void t_set_number(enum t_fmt fmt, void *element, double x)
{
    if (t_is_complex(fmt)) {
        enum t_fmt part = fmt == T_C64 ? T_F32 : T_F64;
        t_set_float(part, element, x);
        t_set_float(part, (char *)element + t_size(part), x / 4 - 1);
    } else if (t_is_float(fmt)) {
        t_set_float(fmt, element, x);
    } else {
        int64_t whole = (int64_t)(x * 4);
        memcpy(element, &whole, t_size(fmt));   /* little-endian */
    }
}

static void multiply_parts(enum t_fmt part, const void *a, const void *b, void *out)
{
    if (part == T_F64) {
        volatile double x, y, z;   /* volatile: every result is rounded to its type, nothing is fused */
        x = (double)t_float(T_F64, a);
        y = (double)t_float(T_F64, b);
        z = x * y;
        t_set_float(T_F64, out, isnan(z) ? NAN : z);   /* one NaN a format */
    } else {
        long double z = t_float(part, a) * t_float(part, b);   /* exact in 64 bits of mantissa, then rounded once */
        t_set_float(part, out, isnan(z) ? NAN : z);
    }
}

static void add_parts(enum t_fmt part, const void *a, const void *b, int sign, void *out)
{
    volatile double x = (double)t_float(part, a), y = sign * (double)t_float(part, b);
    if (part == T_F32) {
        volatile float z = (float)x + (float)y;
        t_set_float(T_F32, out, isnan(z) ? NAN : z);
    } else {
        volatile double z = x + y;
        t_set_float(T_F64, out, isnan(z) ? NAN : z);
    }
}

void t_multiply(enum t_fmt fmt, const void *a, const void *b, void *out)
{
    if (t_is_complex(fmt)) {
        enum t_fmt part = fmt == T_C64 ? T_F32 : T_F64;
        size_t size = t_size(part);
        const char *x = a, *y = b;
        unsigned char rr[8], ii[8], ri[8], ir[8];
        multiply_parts(part, x, y, rr);
        multiply_parts(part, x + size, y + size, ii);
        multiply_parts(part, x, y + size, ri);
        multiply_parts(part, x + size, y, ir);
        add_parts(part, rr, ii, -1, out);
        add_parts(part, ri, ir, 1, (char *)out + size);
    } else if (t_is_float(fmt)) {
        multiply_parts(fmt, a, b, out);
    } else {
        uint64_t x = 0, y = 0;
        memcpy(&x, a, t_size(fmt));
        memcpy(&y, b, t_size(fmt));
        x *= y;
        memcpy(out, &x, t_size(fmt));
    }
}
