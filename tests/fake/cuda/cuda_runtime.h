/* For kernels: see cuda_runtime_api.h and kernel.h. */
#include <cuda_runtime_api.h>
#include "kernel.h"
