/*
 * Number formats and n-ary reductions: what the operations mean, and the one call that runs them on the CPU.
 *
 * The arithmetic itself lives in arith.h, which gcc, g++, nvcc and hipcc compile alike, so that every device
 * runtime gives the same bits. This header needs only the C standard headers.
 */
#ifndef HETMPI_REDUCE_H
#define HETMPI_REDUCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Element formats. The order is part of the wire protocol: append only. */
enum red_type {
    RED_INT8, RED_UINT8, RED_INT16, RED_UINT16, RED_INT32, RED_UINT32, RED_INT64, RED_UINT64,
    RED_FLOAT16, RED_BFLOAT16, RED_FLOAT32, RED_FLOAT64, RED_COMPLEX64, RED_COMPLEX128,
    RED_E4M3, RED_E5M2, RED_E4M3_FNUZ, RED_E5M2_FNUZ,   /* fp8: OCP, then the FNUZ family */
    RED_BOOL,                                           /* one byte, 0 or 1: logical ops only */
    RED_BYTE,                                           /* one byte without a number in it: bitwise ops only */
    RED_CHAR,                                           /* one byte, moved but never reduced (MPI_CHAR) */
    RED_WCHAR,                                          /* sizeof(wchar_t), moved but never reduced */
    RED_TYPES
};

/* Reductions. AVG is SUM with one division at the end (struct red_call.divide_by). A premultiplied sum is a SUM of
 * operands that were scaled before, each by its rank (struct red_call.scale). */
enum red_op {
    RED_SUM, RED_PROD, RED_MIN, RED_MAX, RED_BAND, RED_BOR, RED_BXOR, RED_LAND, RED_LOR, RED_LXOR, RED_AVG,
    RED_OPS
};

/* Most inputs one red_run takes. Callers with more combine in groups, in order, over wide partials. */
#define RED_MAX_INPUTS 64

/*
 * One n-ary reduction: dst[i] = srcs[0][i] op srcs[1][i] op ... in this order, for i < count.
 *
 * Formats narrower than fp32 (fp16, bf16, fp8) are accumulated in fp32 and rounded once, to nearest even.
 * src_wide / dst_wide: the inputs / the output hold the accumulator format (fp32 for those formats; for all others
 * the accumulator is the element itself and the flags change nothing), which is how partial results cross a wire
 * with wire_precision=exact.
 * divide_by > 1: the result is divided by it before the one rounding (integers truncate toward zero). Only AVG looks
 * at it; AVG with 0 or 1 is a plain sum.
 * n == 1 is legal and means: convert and divide (where neither applies a copy, bit for bit, NaN too).
 * scale, where not NULL, is one element: dst[i] = *scale * srcs[0][i], with the arithmetic and the one rounding of PROD.
 * Then n is 1, nothing is wide, the type has PROD, and op and divide_by mean nothing.
 * dst may be the same pointer as any of srcs (same range); no other overlap. No alignment is required.
 * The caller's rounding mode, flushing of subnormals and floating-point traps have no effect.
 * NaN results are one fixed quiet NaN per format, so that all runtimes agree (the list is in arith.h).
 */
struct red_call {
    enum red_type type;
    enum red_op op;
    bool src_wide, dst_wide;
    uint32_t divide_by;
    uint32_t n;
    const void *const *srcs;
    void *dst;
    size_t count;
    const void *scale;
};
#define RED_SCALE_BYTES 16   /* room for an element of any type that can be scaled */

size_t red_size(enum red_type type);                      /* bytes of one element */
size_t red_wide_size(enum red_type type);                 /* bytes of one accumulator (>= red_size) */
const char *red_type_name(enum red_type type);   /* "none" for a number that is no type, as other processes may send; */
const char *red_op_name(enum red_op op);         /* ... or no operation */
bool red_supported(enum red_type type, enum red_op op);   /* the one table of (type, op) pairs */

/* Runs the reduction on the CPU with the best instruction set of this machine; same bits as red_run_scalar.
 * The pair must be supported and n between 1 and RED_MAX_INPUTS (asserted). Thread-safe; no allocation. */
void red_run(const struct red_call *call);
/* The reference: the scalar source, one element after the other. */
void red_run_scalar(const struct red_call *call);
/* The instruction set that red_run uses here: "avx512", "avx2", "baseline". */
const char *red_isa(void);

#endif
