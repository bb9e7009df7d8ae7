/*
 * HIP's calls on NVIDIA's runtime: only those that the device runtime of this folder makes. Lets the library that AMD ranks
 * use run, unchanged, on NVIDIA GPUs, which is how it is tested where there is no AMD GPU.
 */
#ifndef HETMPI_HIP_ON_CUDA_H
#define HETMPI_HIP_ON_CUDA_H

#include <cuda.h>
#include <cuda_runtime_api.h>

#define HIP_VERSION_MAJOR 6
#define GPU_QUEUES "CUDA_DEVICE_MAX_CONNECTIONS"

#define hipError_t cudaError_t
#define hipStream_t cudaStream_t
#define hipEvent_t cudaEvent_t
#define hipIpcMemHandle_t cudaIpcMemHandle_t
#define hipDeviceptr_t void *

#define hipSuccess cudaSuccess
#define hipErrorNotReady cudaErrorNotReady
#define hipErrorMemoryAllocation cudaErrorMemoryAllocation
#define hipMemcpyDefault cudaMemcpyDefault
#define hipStreamNonBlocking cudaStreamNonBlocking
#define hipEventDisableTiming cudaEventDisableTiming
#define hipHostRegisterPortable cudaHostRegisterPortable
#define hipHostRegisterMapped cudaHostRegisterMapped
#define hipHostMallocPortable cudaHostAllocPortable
#define hipHostMallocMapped cudaHostAllocMapped
#define hipIpcMemLazyEnablePeerAccess cudaIpcMemLazyEnablePeerAccess
#define hipDeviceAttributeMultiprocessorCount cudaDevAttrMultiProcessorCount
#define hipStreamWaitValueGte CU_STREAM_WAIT_VALUE_GEQ

#define hipGetErrorString cudaGetErrorString
#define hipGetLastError cudaGetLastError
#define hipGetDeviceCount cudaGetDeviceCount
#define hipGetDevice cudaGetDevice
#define hipSetDevice cudaSetDevice
#define hipDeviceGetAttribute cudaDeviceGetAttribute
#define hipDeviceGetStreamPriorityRange cudaDeviceGetStreamPriorityRange
#define hipMalloc cudaMalloc
#define hipFree cudaFree
#define hipHostMalloc cudaHostAlloc
#define hipHostFree cudaFreeHost
#define hipHostRegister cudaHostRegister
#define hipHostUnregister cudaHostUnregister
#define hipIpcGetMemHandle cudaIpcGetMemHandle
#define hipIpcOpenMemHandle cudaIpcOpenMemHandle
#define hipIpcCloseMemHandle cudaIpcCloseMemHandle
#define hipMemcpy cudaMemcpy
#define hipMemcpyAsync cudaMemcpyAsync
#define hipMemsetAsync cudaMemsetAsync
#define hipStreamCreateWithPriority cudaStreamCreateWithPriority
#define hipStreamDestroy cudaStreamDestroy
#define hipStreamSynchronize cudaStreamSynchronize
#define hipLaunchKernel cudaLaunchKernel
#define hipFuncAttributes cudaFuncAttributes
#define hipFuncGetAttributes cudaFuncGetAttributes
#define hipStreamWaitEvent cudaStreamWaitEvent
#define hipStreamAddCallback cudaStreamAddCallback
#define hipEventCreateWithFlags cudaEventCreateWithFlags
#define hipEventDestroy cudaEventDestroy
#define hipEventRecord cudaEventRecord
#define hipEventQuery cudaEventQuery

enum hip_memory_type { hipMemoryTypeUnregistered, hipMemoryTypeHost, hipMemoryTypeDevice };
typedef struct {
    enum hip_memory_type type;
    int device;
    int isManaged;
} hipPointerAttribute_t;

static inline hipError_t hipPointerGetAttributes(hipPointerAttribute_t *out, const void *ptr)
{
    struct cudaPointerAttributes what;
    cudaError_t error = cudaPointerGetAttributes(&what, ptr);

    if (error != cudaSuccess)
        return error;
    out->isManaged = what.type == cudaMemoryTypeManaged;
    out->type = what.type == cudaMemoryTypeHost ? hipMemoryTypeHost
              : what.type == cudaMemoryTypeUnregistered ? hipMemoryTypeUnregistered : hipMemoryTypeDevice;
    out->device = what.device;
    return cudaSuccess;
}

/* Calls that CUDA has in its driver only. */
static inline cudaError_t hip_on_cuda_entry(const char *name, void *entry)
{
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    cudaError_t error = cudaGetDriverEntryPointByVersion(name, (void **)entry, 12000, cudaEnableDefault, &found);

    return error == cudaSuccess && found != cudaDriverEntryPointSuccess ? cudaErrorSymbolNotFound : error;
}

static inline hipError_t hipMemGetAddressRange(hipDeviceptr_t *base, size_t *bytes, hipDeviceptr_t ptr)
{
    static CUresult (*entry)(CUdeviceptr *, size_t *, CUdeviceptr);
    CUdeviceptr first = 0;
    cudaError_t error = entry ? cudaSuccess : hip_on_cuda_entry("cuMemGetAddressRange", &entry);

    if (error != cudaSuccess)
        return error;
    if (entry(&first, bytes, (CUdeviceptr)ptr) != CUDA_SUCCESS)
        return cudaErrorInvalidValue;
    *base = (void *)first;
    return cudaSuccess;
}

#define HIP_POINTER_ATTRIBUTE_BUFFER_ID CU_POINTER_ATTRIBUTE_BUFFER_ID
static inline hipError_t hipPointerGetAttribute(void *value, CUpointer_attribute which, hipDeviceptr_t ptr)
{
    static CUresult (*entry)(void *, CUpointer_attribute, CUdeviceptr);
    cudaError_t error = entry ? cudaSuccess : hip_on_cuda_entry("cuPointerGetAttribute", &entry);

    if (error != cudaSuccess)
        return error;
    return entry(value, which, (CUdeviceptr)ptr) == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

static inline hipError_t hipStreamWriteValue64(hipStream_t stream, void *word, cuuint64_t value, unsigned flags)
{
    static CUresult (*entry)(CUstream, CUdeviceptr, cuuint64_t, unsigned);
    cudaError_t error = entry ? cudaSuccess : hip_on_cuda_entry("cuStreamWriteValue64", &entry);

    if (error != cudaSuccess)
        return error;
    return entry((CUstream)stream, (CUdeviceptr)word, value, flags) == CUDA_SUCCESS ? cudaSuccess
                                                                                    : cudaErrorInvalidValue;
}

static inline hipError_t hipStreamWaitValue64(hipStream_t stream, void *word, cuuint64_t value, unsigned flags,
                                              cuuint64_t mask)
{
    static CUresult (*entry)(CUstream, CUdeviceptr, cuuint64_t, unsigned);
    cudaError_t error = entry ? cudaSuccess : hip_on_cuda_entry("cuStreamWaitValue64", &entry);

    (void)mask;
    if (error != cudaSuccess)
        return error;
    return entry((CUstream)stream, (CUdeviceptr)word, value, flags) == CUDA_SUCCESS ? cudaSuccess
                                                                                    : cudaErrorInvalidValue;
}

#endif
