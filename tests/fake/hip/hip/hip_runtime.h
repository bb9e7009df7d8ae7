/* For kernels: AMD's own interface, without its compiler's language. See kernel.h. */
#include <hip/hip_runtime_api.h>
#include "kernel.h"
