/*
 * The numbers that a run sends, and what must come out, bit for bit.
 *
 * Values depend on rank, index and seed. For floating point they are small whole numbers, chosen so that every partial
 * sum in any order is exact in the format, down to fp8: there, only some of the ranks have a number other than zero at
 * an index, others at the next. So a lost, doubled or stale contribution shows whatever the order of additions, and no
 * tolerance is needed. Integers are arbitrary and wrap.
 */
#include <math.h>
#include <string.h>

#include "bench.h"

static uint32_t mix(uint32_t rank, uint32_t index, uint32_t seed)
{
    uint32_t x = (index + 1) * 0x9E3779B1u ^ (rank + 1) * 0x85EBCA77u ^ (seed + 1) * 0xC2B2AE3Du;

    x ^= x >> 16;
    x *= 0x7FEB352Du;
    x ^= x >> 15;
    x *= 0x846CA68Bu;
    return x ^ x >> 16;
}

static int component_bytes(const struct bench_type *type)
{
    return type->class == TYPE_COMPLEX ? type->bytes / 2 : type->bytes;
}

/* Whole numbers up to this are exact in the format. */
static int64_t exact_limit(const struct bench_type *type)
{
    if (type->class == TYPE_FLOAT || type->class == TYPE_COMPLEX)
        return (int64_t)1 << (type->mantissa < 30 ? type->mantissa + 1 : 31);
    return type->bytes >= 4 ? INT32_MAX : type->bytes == 2 ? INT16_MAX : INT8_MAX;
}

/* A number of the type's width, seen as a 64-bit one. */
static int64_t narrow(const struct bench_type *type, uint64_t value)
{
    int shift = 64 - 8 * type->bytes;

    if (type->class == TYPE_SIGNED)
        return (int64_t)(value << shift) >> shift;
    return (int64_t)(value << shift >> shift);
}

/* For SUM and AVG: magnitudes 1..most, and so few ranks at one index that no sum passes the limit. */
static int64_t sum_value(const struct bench_type *type, uint32_t ranks, uint32_t rank, uint32_t index, uint32_t seed)
{
    int64_t limit = exact_limit(type), most = limit >= 32768 ? 64 : limit >= 2048 ? 32 : limit >= 127 ? 8 : 2;
    uint32_t active = (uint32_t)(limit / most) < ranks ? (uint32_t)(limit / most) : ranks;
    uint32_t groups = (ranks + active - 1) / active, h = mix(rank, index, seed);
    int64_t value = 1 + (int64_t)((h >> 8) & (uint32_t)(most - 1));

    if (rank % groups != mix(~0u, index, seed) % groups)
        return 0;
    return type->class != TYPE_UNSIGNED && h & 1 ? -value : value;
}

/* For PROD of floating point: signs, and one rank with a factor up to 3. */
static int64_t product_value(uint32_t ranks, uint32_t rank, uint32_t index, uint32_t seed)
{
    uint32_t common = mix(~0u, index, seed);
    int64_t value = common % ranks == rank ? 1 + (common >> 16) % 3 : 1;

    return mix(rank, index, seed) & 1 ? -value : value;
}

static int64_t integer_value(const struct bench_type *type, enum bench_op op, uint32_t rank, uint32_t index,
                             uint32_t seed)
{
    uint64_t h = mix(rank, index, seed) | (uint64_t)mix(rank, index, ~seed) << 32;

    switch (op) {
    case OP_PROD: return narrow(type, h | 1);
    case OP_BAND: return narrow(type, h | h >> 7 | h << 9);         /* mostly ones */
    case OP_BOR: return narrow(type, h & h >> 7 & h << 9);          /* mostly zeroes */
    case OP_LAND: return h % 5 ? narrow(type, h | 1) : 0;
    case OP_LOR: return h % 5 ? 0 : narrow(type, h | 1);
    case OP_LXOR: return h % 2 ? narrow(type, h | 1) : 0;
    default: return narrow(type, h);
    }
}

/* What rank has at an index; for complex numbers an index of components, and PROD is elsewhere. */
static int64_t value_at(const struct bench *bench, uint32_t rank, uint32_t index, uint32_t seed)
{
    const struct bench_type *type = bench->options->type;
    enum bench_op op = bench->options->op;
    uint32_t ranks = (uint32_t)bench->ranks;

    if (type->class == TYPE_BOOL)
        return integer_value(type, op, rank, index, seed) != 0;
    if (op == OP_AVG || ((type->class == TYPE_FLOAT || type->class == TYPE_COMPLEX) && op != OP_PROD))
        return sum_value(type, ranks, rank, index, seed);
    if (type->class == TYPE_FLOAT)
        return product_value(ranks, rank, index, seed);
    return integer_value(type, op, rank, index, seed);
}

static int64_t combine(const struct bench_type *type, enum bench_op op, int64_t a, int64_t b)
{
    bool less = type->class == TYPE_UNSIGNED ? (uint64_t)a < (uint64_t)b : a < b;

    switch (op) {
    case OP_PROD: return (int64_t)((uint64_t)a * (uint64_t)b);
    case OP_MIN: return less ? a : b;
    case OP_MAX: return less ? b : a;
    case OP_BAND: return a & b;
    case OP_BOR: return a | b;
    case OP_BXOR: return a ^ b;
    case OP_LAND: return a && b;
    case OP_LOR: return a || b;
    case OP_LXOR: return !a != !b;
    default: return (int64_t)((uint64_t)a + (uint64_t)b);
    }
}

/* The bits of a finite number that is in the format's range, rounded to nearest even. */
static uint32_t encode(const struct bench_type *type, double value)
{
    uint32_t sign = signbit(value) ? 1u << (8 * type->bytes - 1) : 0;
    int exponent = 0;

    if (value == 0)
        return type->unsigned_zero ? 0 : sign;
    frexp(value, &exponent);
    if (--exponent < 1 - type->bias)
        exponent = 1 - type->bias;                                  /* subnormal */
    /* The leading one, where there is one, adds the missing 1 to the exponent; so does a carry from rounding. */
    uint32_t digits = (uint32_t)nearbyint(ldexp(fabs(value), type->mantissa - exponent));
    uint32_t bits = ((uint32_t)(exponent + type->bias - 1) << type->mantissa) + digits;
    return bits == 0 && type->unsigned_zero ? 0 : bits | sign;
}

static void store_real(const struct bench_type *type, double value, unsigned char *to)
{
    float single = (float)value;

    if (type->mantissa == 52) {
        memcpy(to, &value, sizeof(value));
    } else if (type->mantissa == 23) {
        memcpy(to, &single, sizeof(single));
    } else {
        uint32_t bits = encode(type, value);
        uint16_t two = (uint16_t)bits;
        if (type->bytes == 1)
            *to = (unsigned char)bits;
        else
            memcpy(to, &two, sizeof(two));
    }
}

static void store(const struct bench_type *type, int64_t value, unsigned char *to)
{
    if (type->class == TYPE_FLOAT || type->class == TYPE_COMPLEX) {
        store_real(type, (double)value, to);
        return;
    }
    uint8_t one = (uint8_t)value;
    uint16_t two = (uint16_t)value;
    uint32_t four = (uint32_t)value;
    const void *from = type->bytes == 1 ? (void *)&one : type->bytes == 2 ? (void *)&two
                     : type->bytes == 4 ? (void *)&four : (void *)&value;
    memcpy(to, from, (size_t)type->bytes);
}

/* AVG: the sum, then one division; in single precision for all formats up to it. */
static void store_average(const struct bench_type *type, int64_t sum, int ranks, unsigned char *to)
{
    if (type->class == TYPE_SIGNED)
        store(type, sum / ranks, to);
    else if (type->class == TYPE_UNSIGNED)
        store(type, (int64_t)((uint64_t)sum / (uint64_t)ranks), to);
    else if (type->mantissa == 52)
        store_real(type, (double)sum / ranks, to);
    else
        store_real(type, (double)((float)sum / (float)ranks), to);
}

/* PROD of complex numbers: signs, and two ranks with 2 + i and 3 + i, so that no part of the result is a zero, whose
 * sign would depend on the order of multiplications. */
static void complex_product(const struct bench *bench, int first, int last, uint32_t seed, size_t elements,
                            unsigned char *table)
{
    const struct bench_type *type = bench->options->type;

    for (uint32_t i = 0; i < elements; i++) {
        int special = (int)(mix(~0u, i, seed) % (uint32_t)bench->ranks);
        int64_t real = 1, imaginary = 0;
        for (int rank = first; rank < last; rank++) {
            int64_t sign = mix((uint32_t)rank, i, seed) & 1 ? -1 : 1, kept = real;
            int64_t a = rank == special ? 2 : rank == (special + 1) % bench->ranks ? 3 : 1, b = a > 1;
            real = sign * (kept * a - imaginary * b);
            imaginary = sign * (kept * b + imaginary * a);
        }
        store(type, real, table + i * bench->element);
        store(type, imaginary, table + i * bench->element + type->bytes / 2);
    }
}

static bool is_complex_product(const struct bench *bench)
{
    return bench->options->type->class == TYPE_COMPLEX && bench->options->op == OP_PROD;
}

/* Data that is only moved is bytes; a bool must be 0 or 1. */
static void moved_bytes(const struct bench *bench, int rank, uint32_t seed, size_t bytes, unsigned char *table)
{
    unsigned char mask = bench->options->type->class == TYPE_BOOL ? 1 : 0xff;

    for (size_t i = 0; i < bytes; i++)
        table[i] = (unsigned char)(mix((uint32_t)rank, (uint32_t)i, seed) >> 11) & mask;
}

void data_input(const struct bench *bench, int rank, uint32_t seed, size_t elements, unsigned char *table)
{
    const struct bench_type *type = bench->options->type;
    size_t step = (size_t)component_bytes(type), n;

    if (elements > PERIOD)
        elements = PERIOD;
    if (!bench->reduces) {
        moved_bytes(bench, rank, seed, elements * bench->element, table);
    } else if (is_complex_product(bench)) {
        complex_product(bench, rank, rank + 1, seed, elements, table);
    } else {
        n = elements * bench->element / step;
        for (size_t i = 0; i < n; i++)
            store(type, value_at(bench, (uint32_t)rank, (uint32_t)i, seed), table + i * step);
    }
}

void data_expected(const struct bench *bench, int ranks, uint32_t seed, size_t elements, unsigned char *table)
{
    const struct bench_type *type = bench->options->type;
    enum bench_op op = bench->options->op;
    size_t step = (size_t)component_bytes(type), n;

    if (elements > PERIOD)
        elements = PERIOD;
    if (is_complex_product(bench)) {
        complex_product(bench, 0, ranks, seed, elements, table);
        return;
    }
    n = elements * bench->element / step;
    for (size_t i = 0; i < n; i++) {
        int64_t result = value_at(bench, 0, (uint32_t)i, seed);
        for (int rank = 1; rank < ranks; rank++)
            result = combine(type, op, result, value_at(bench, (uint32_t)rank, (uint32_t)i, seed));
        if (op == OP_AVG)
            store_average(type, result, ranks, table + i * step);
        else
            store(type, result, table + i * step);
    }
}
