/*
 * What a reduction must give, computed in higher precision from hetmpi's documented rules, and data for it by seed.
 * Shares no code with the library: the number formats are written down here a second time.
 *
 * Long vectors repeat a pattern of T_PATTERN elements (a prime, so that data moved by a chunk or a block is seen), so
 * that the oracle computes T_PATTERN results and every element of the vector is still compared.
 */
#ifndef HETMPI_TESTS_MPI_ORACLE_H
#define HETMPI_TESTS_MPI_ORACLE_H

#include "common.h"

#define T_PATTERN 509

enum t_fmt {
    T_I8, T_U8, T_I16, T_U16, T_I32, T_U32, T_I64, T_U64, T_F16, T_BF16, T_F32, T_F64, T_C64, T_C128,
    T_E4M3, T_E5M2, T_E4M3_FNUZ, T_E5M2_FNUZ, T_BOOL, T_BYTE, T_CHAR, T_WCHAR, T_FMTS
};
enum t_op { T_SUM, T_PROD, T_MIN, T_MAX, T_BAND, T_BOR, T_BXOR, T_LAND, T_LOR, T_LXOR, T_AVG, T_OPS };
enum t_data {
    T_EXACT,    /* every partial result of the operation is exact in the format, in any order */
    T_RANDOM,   /* floats with rounding */
    T_SPECIAL,  /* NaN, infinities, zeros of both signs, extremes */
};

size_t t_size(enum t_fmt fmt);
const char *t_fmt_name(enum t_fmt fmt);
const char *t_op_name(enum t_op op);
MPI_Datatype t_mpi_type(enum t_fmt fmt);    /* one MPI name of the format; after MPI_Init */
MPI_Op t_mpi_op(enum t_op op);
bool t_is_float(enum t_fmt fmt);            /* real, not complex */
bool t_is_complex(enum t_fmt fmt);
bool t_supported(enum t_fmt fmt, enum t_op op);   /* the table of hetmpi.h */

long double t_float(enum t_fmt fmt, const void *element);         /* of a real format */
void t_set_float(enum t_fmt fmt, void *element, long double x);   /* rounds once, to nearest even */

/* A number of any format but the logical ones: integers get four times x, so that quarters count, and complex numbers
 * x + (x / 4 - 1)i. */
void t_set_number(enum t_fmt fmt, void *element, double x);
/* The product, rounded once: what a premultiplied sum sums. */
void t_multiply(enum t_fmt fmt, const void *a, const void *b, void *out);

/* T_PATTERN elements of one rank. */
void t_pattern(enum t_fmt fmt, enum t_op op, enum t_data data, uint64_t seed, int rank, void *out);
/* Element i of the vector is element (first + i) mod T_PATTERN of the pattern. */
void t_repeat(void *vector, const void *pattern, size_t size, size_t first, size_t n);
/* The result over the ranks' patterns, T_PATTERN elements, rounded once from the exact one. */
void t_oracle(enum t_fmt fmt, enum t_op op, const void *const *patterns, int ranks, void *out);

/* Compares n elements with the repeated pattern (bits; any NaN is equal to any other). False after a report. */
bool t_expect(enum t_fmt fmt, const void *got, const void *pattern, size_t first, size_t n, const char *what);
/* The same for T_RANDOM data: within the error that so many roundings allow. */
bool t_expect_close(enum t_fmt fmt, enum t_op op, const void *got, const void *const *patterns, int ranks,
                    int roundings, size_t first, size_t n, const char *what);

#endif
