/*
 * The part of the vendors' kernel language that src/mem/gpu_kernels.cu uses, for an ordinary C++ compiler. A launch queues a
 * function that runs the kernel for one thread of the grid after the other, so kernels must not wait for each other's threads.
 */
#ifndef FAKE_KERNEL_H
#define FAKE_KERNEL_H

#include <cstddef>

#undef __global__
#undef __device__
#undef __forceinline__
#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(threads)

namespace {
thread_local dim3 gridDim, blockDim, blockIdx, threadIdx;
}

/* fake.h has these for C. */
typedef void (*fake_kernel)(void);
struct fake_grid { unsigned blocks, threads; };
extern "C" int fake_launch(fake_kernel kernel, void (*run)(fake_kernel kernel, fake_grid grid, void *argument), fake_grid grid,
                           const void *argument, size_t bytes, void *stream);

namespace {
template <class A> void fake_run(fake_kernel kernel, fake_grid grid, void *argument)
{
    void (*function)(A) = reinterpret_cast<void (*)(A)>(kernel);

    gridDim = dim3(grid.blocks);
    blockDim = dim3(grid.threads);
    for (blockIdx.x = 0; blockIdx.x < grid.blocks; blockIdx.x++)
        for (threadIdx.x = 0; threadIdx.x < grid.threads; threadIdx.x++)
            function(*static_cast<A *>(argument));
}

template <class A> int fake_launch_typed(void (*kernel)(A), unsigned blocks, unsigned threads, A &argument, void *stream)
{
    return fake_launch(reinterpret_cast<fake_kernel>(kernel), fake_run<A>, {blocks, threads}, &argument, sizeof(A), stream);
}
}

#define GPU_LAUNCH(kernel, blocks, threads, argument, stream)                                                         \
    static_cast<GPU(Error_t)>(fake_launch_typed(kernel, blocks, threads, argument, stream))

#endif
