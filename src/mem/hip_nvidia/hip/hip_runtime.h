/* For kernels: see hip_runtime_api.h. */
#include <cuda_runtime.h>
#include <hip/hip_runtime_api.h>
