/* Reduction kernels for x86 with AVX2 and F16C (options.cmake adds the compiler's options). */
#if defined(__x86_64__)
#define RED_KERNELS red_kernels_avx2
#define RED_KERNELS_NAME "avx2"
#include "reduce/kernels_impl.h"
#else
typedef int kernels_avx2_not_here;
#endif
