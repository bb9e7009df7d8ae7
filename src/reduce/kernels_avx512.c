/* Reduction kernels for x86 with AVX-512 F, BW, DQ and VL (options.cmake adds the compiler's options). */
#if defined(__x86_64__)
#define RED_KERNELS red_kernels_avx512
#define RED_KERNELS_NAME "avx512"
#include "reduce/kernels_impl.h"
#else
typedef int kernels_avx512_not_here;
#endif
