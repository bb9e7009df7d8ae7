/* Reduction kernels for the instruction set that every machine of this architecture has. */
#define RED_KERNELS red_kernels_baseline
#define RED_KERNELS_NAME "baseline"
#include "reduce/kernels_impl.h"
