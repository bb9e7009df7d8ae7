/*
 * The loops that red_run is made of, one table of them for each instruction set. Internal to src/reduce and its tests.
 */
#ifndef HETMPI_REDUCE_KERNELS_H
#define HETMPI_REDUCE_KERNELS_H

#include "reduce/reduce.h"

/* dst[i] = a[i] op b[i], all in the element's format. dst may be a or b. */
typedef void (*red_combine_fn)(void *dst, const void *a, const void *b, size_t count);
/* acc[i] = acc[i] op src[i] with acc in fp32 and src in a narrower format. */
typedef void (*red_accumulate_fn)(float *acc, const void *src, size_t count);

struct red_kernels {
    const char *name;
    red_combine_fn combine[RED_TYPES][RED_OPS];        /* AVG: the sum */
    /* The rest is NULL where it makes no sense: formats that are not narrower than fp32, types that are not divided. */
    red_accumulate_fn accumulate[RED_TYPES][RED_OPS];
    void (*widen[RED_TYPES])(void *dst, const void *src, size_t count);    /* element -> fp32 */
    void (*narrow[RED_TYPES])(void *dst, const void *src, size_t count);   /* fp32 -> element */
    void (*divide[RED_TYPES])(void *x, size_t count, uint32_t divisor);    /* in place, accumulator's format */
};

extern const struct red_kernels red_kernels_baseline;
#if defined(__x86_64__)
extern const struct red_kernels red_kernels_avx2;     /* AVX2 and F16C */
extern const struct red_kernels red_kernels_avx512;   /* F, BW, DQ, VL */
#endif

/* The tables that this machine can run, best first, ended by NULL. */
const struct red_kernels *const *red_kernels_usable(void);
void red_run_with(const struct red_kernels *kernels, const struct red_call *call);

/*
 * Results depend on the rounding mode, on flushing of subnormals and on traps; an application may have changed
 * them for its threads. Between these two calls they are the IEEE defaults.
 */
#if defined(__x86_64__)
typedef unsigned red_fp_t;
#define RED_FP_DEFAULT 0x1f80u
#define RED_FP_STATUS 0x3fu   /* bits that tell what happened, not what to do */
static inline red_fp_t red_fp_enter(void)
{
    red_fp_t saved = __builtin_ia32_stmxcsr();
    if ((saved & ~RED_FP_STATUS) != RED_FP_DEFAULT)
        __builtin_ia32_ldmxcsr(RED_FP_DEFAULT);
    return saved;
}

static inline void red_fp_leave(red_fp_t saved)
{
    if ((saved & ~RED_FP_STATUS) != RED_FP_DEFAULT)
        __builtin_ia32_ldmxcsr(saved);
}
#else
#include <fenv.h>
typedef fenv_t red_fp_t;
static inline red_fp_t red_fp_enter(void)
{
    red_fp_t saved;
    fegetenv(&saved);
    fesetenv(FE_DFL_ENV);
    return saved;
}

static inline void red_fp_leave(red_fp_t saved)
{
    fesetenv(&saved);
}
#endif

#endif
