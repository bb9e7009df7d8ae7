/*
 * One spelling for the calls of CUDA and of HIP: GPU(Malloc) is cudaMalloc or hipMalloc. Also what kernels and the C code
 * around them share; C and C++.
 */
#ifndef HETMPI_MEM_GPU_NAMES_H
#define HETMPI_MEM_GPU_NAMES_H

#if defined(HETMPI_GPU_HIP)
#include <hip/hip_runtime_api.h>
#define GPU(name) hip##name
#define GPU_NAME "HIP"
#define GPU_PROCESSORS hipDeviceAttributeMultiprocessorCount
#ifndef GPU_QUEUES
#define GPU_QUEUES "GPU_MAX_HW_QUEUES"              /* the runtime's variable for the number of hardware queues */
#endif
#else
#include <cuda_runtime_api.h>
#define GPU(name) cuda##name
#define GPU_NAME "CUDA"
#define GPU_PROCESSORS cudaDevAttrMultiProcessorCount
#define GPU_QUEUES "CUDA_DEVICE_MAX_CONNECTIONS"
#endif

#ifdef __cplusplus
extern "C" {
#endif

#include "reduce/reduce.h"

/* gpu_kernels.cu. Brings all kernels to the device: one that is launched for the first time waits until the device is idle,
 * and so for ever while a stream waits for what that kernel is needed for. */
GPU(Error_t) gpu_kernels_load(void);
/* The operands are as the device addresses them, up to RED_MAX_INPUTS of them. */
GPU(Error_t) gpu_reduce_launch(const struct red_call *call, GPU(Stream_t) stream);

#ifdef __cplusplus
}
#endif

#endif
