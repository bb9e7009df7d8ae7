/*
 * Reductions on the device, from the arithmetic that the CPU uses (src/reduce/arith.h): the same bits. Compiled by nvcc
 * or hipcc.
 */
#include <cstring>

#if defined(HETMPI_GPU_HIP)
#include <hip/hip_runtime.h>
#else
#include <cuda_runtime.h>
#endif

#include "mem/gpu_names.h"
#include "reduce/arith.h"

#if defined(__CUDACC__)
#define GRID_CONSTANT __grid_constant__   /* operands stay in the constant bank, no copy in each thread */
#else
#define GRID_CONSTANT
#endif

namespace {

constexpr int BLOCK = 256;              /* threads */
constexpr size_t VECTOR = 16;           /* bytes a load */
constexpr unsigned BLOCKS_PER_SM = 8;

struct reduction {
    const void *srcs[RED_MAX_INPUTS];
    void *dst;
    size_t count;
    size_t head;                        /* elements before the first aligned vector; count: there are no vectors */
    uint32_t n, divide_by;
    bool src_wide, dst_wide;
    bool scaled;                        /* the one input is multiplied by `scale`, an element */
    alignas(16) unsigned char scale[RED_SCALE_BYTES];
};

struct alignas(VECTOR) vector_bytes { unsigned char byte[VECTOR]; };

/* One (type, op) pair: an element is read, carried in the accumulator's format, combined, written. */
#define PAIR(T, O, f, acc, op)                                                                                        \
    struct pair_##T##_##O {                                                                                           \
        typedef arith_##f##_t element;                                                                                \
        typedef arith_##acc##_t wide;                                                                                 \
        static constexpr bool is_product = RED_##O == RED_PROD;                                                       \
        static __device__ __forceinline__ wide widen(element x) { return arith_##acc##_from_##f(x); }                 \
        static __device__ __forceinline__ element narrow(wide x) { return arith_##f##_from_##acc(x); }                \
        static __device__ __forceinline__ wide canon(wide x) { return arith_##acc##_canon(x); }                       \
        static __device__ __forceinline__ wide combine(wide a, wide b) { return arith_##acc##_##op(a, b); }           \
        static __device__ __forceinline__ wide divide(wide x, uint32_t d) { return arith_##acc##_div(x, d); }         \
    };
ARITH_PAIRS(PAIR)

template <class P> __device__ typename P::wide finish(typename P::wide x, const reduction &r)
{
    if constexpr (P::is_product)
        if (r.scaled)
            return P::combine(P::widen(*reinterpret_cast<const typename P::element *>(r.scale)), x);
    if (r.n == 1)
        x = P::canon(x);
    return r.divide_by > 1 ? P::divide(x, r.divide_by) : x;
}

template <class P> __device__ typename P::wide load_one(const reduction &r, uint32_t k, size_t i)
{
    return r.src_wide ? static_cast<const typename P::wide *>(r.srcs[k])[i]
                      : P::widen(static_cast<const typename P::element *>(r.srcs[k])[i]);
}

template <class P> __device__ void reduce_one(const reduction &r, size_t i)
{
    typename P::wide acc = load_one<P>(r, 0, i);

    for (uint32_t k = 1; k < r.n; k++)
        acc = P::combine(acc, load_one<P>(r, k, i));
    acc = finish<P>(acc, r);
    if (r.dst_wide)
        static_cast<typename P::wide *>(r.dst)[i] = acc;
    else
        static_cast<typename P::element *>(r.dst)[i] = P::narrow(acc);
}

/* Vectors of elements from aligned addresses; neither side wide. */
template <class P> __device__ void reduce_vectors(const reduction &r, size_t first, size_t vectors)
{
    constexpr int N = VECTOR / sizeof(typename P::element);
    size_t stride = (size_t)gridDim.x * BLOCK;

    for (size_t v = (size_t)blockIdx.x * BLOCK + threadIdx.x; v < vectors; v += stride) {
        typename P::wide acc[N];
        typename P::element in[N];
        vector_bytes raw = static_cast<const vector_bytes *>(static_cast<const void *>(
            static_cast<const typename P::element *>(r.srcs[0]) + first))[v];

        memcpy(in, &raw, VECTOR);
#pragma unroll
        for (int i = 0; i < N; i++)
            acc[i] = P::widen(in[i]);
#pragma unroll 4
        for (uint32_t k = 1; k < r.n; k++) {
            raw = static_cast<const vector_bytes *>(static_cast<const void *>(
                static_cast<const typename P::element *>(r.srcs[k]) + first))[v];
            memcpy(in, &raw, VECTOR);
#pragma unroll
            for (int i = 0; i < N; i++)
                acc[i] = P::combine(acc[i], P::widen(in[i]));
        }
#pragma unroll
        for (int i = 0; i < N; i++)
            in[i] = P::narrow(finish<P>(acc[i], r));
        memcpy(&raw, in, VECTOR);
        static_cast<vector_bytes *>(static_cast<void *>(static_cast<typename P::element *>(r.dst) + first))[v] = raw;
    }
}

template <class P> __global__ void __launch_bounds__(BLOCK) reduce_kernel(GRID_CONSTANT const reduction r)
{
    constexpr size_t N = VECTOR / sizeof(typename P::element);
    size_t at = (size_t)blockIdx.x * BLOCK + threadIdx.x, stride = (size_t)gridDim.x * BLOCK;
    size_t vectors = (r.count - r.head) / N, tail = r.head + vectors * N;

    for (size_t i = at; i < r.head; i += stride)
        reduce_one<P>(r, i);
    if (vectors > 0)
        reduce_vectors<P>(r, r.head, vectors);
    for (size_t i = tail + at; i < r.count; i += stride)
        reduce_one<P>(r, i);
}

typedef void (*kernel_fn)(const reduction);

kernel_fn kernel_of(red_type type, red_op op)
{
    switch ((int)type * RED_OPS + (int)op) {
#define KERNEL(T, O, f, acc, op) case (int)RED_##T * RED_OPS + (int)RED_##O: return reduce_kernel<pair_##T##_##O>;
        ARITH_PAIRS(KERNEL)
    default:
        return nullptr;
    }
}

#define LOADED(T, O, f, acc, op) reinterpret_cast<const void *>(reduce_kernel<pair_##T##_##O>),
const void *const all_kernels[] = { ARITH_PAIRS(LOADED) };

/* How many elements come before a place where all operands are aligned; count if there is no such place. */
size_t head_of(const red_call *call, size_t size)
{
    uintptr_t at = (uintptr_t)call->dst % VECTOR;
    size_t head = ((VECTOR - at) % VECTOR) / size;

    if (at % size != 0 || head >= call->count)
        return call->count;
    for (uint32_t k = 0; k < call->n; k++)
        if ((uintptr_t)call->srcs[k] % VECTOR != at)
            return call->count;
    return head;
}

unsigned processors()
{
    static int count[64];
    int device = 0;

    if (GPU(GetDevice)(&device) != GPU(Success) || device < 0 || device >= 64)
        return 64;
    if (count[device] == 0 &&
        GPU(DeviceGetAttribute)(&count[device], GPU_PROCESSORS, device) != GPU(Success))
        return 64;
    return (unsigned)count[device];
}

#ifndef GPU_LAUNCH   /* the stand-ins of tests/fake have their own, which must know the argument's type */
#define GPU_LAUNCH launch
GPU(Error_t) launch(kernel_fn kernel, unsigned blocks, unsigned threads, reduction &argument, GPU(Stream_t) stream)
{
    void *arguments[] = {&argument};

    return GPU(LaunchKernel)(reinterpret_cast<const void *>(kernel), dim3(blocks), dim3(threads), arguments, 0, stream);
}
#endif

} // namespace

extern "C" GPU(Error_t) gpu_kernels_load(void)
{
    GPU(Error_t) error = GPU(Success);
    GPU(FuncAttributes) attributes;

    for (size_t i = 0; i < sizeof(all_kernels) / sizeof(all_kernels[0]) && error == GPU(Success); i++)
        error = GPU(FuncGetAttributes)(&attributes, all_kernels[i]);
    return error;
}

extern "C" GPU(Error_t) gpu_reduce_launch(const red_call *call, GPU(Stream_t) stream)
{
    size_t size = red_size(call->type), work, blocks;
    bool narrow = size != red_wide_size(call->type);
    kernel_fn kernel = kernel_of(call->type, call->scale ? RED_PROD : call->op);
    reduction r = {};

    memcpy(r.srcs, call->srcs, call->n * sizeof(r.srcs[0]));
    r.dst = call->dst;
    r.count = call->count;
    r.n = call->n;
    r.divide_by = call->op == RED_AVG && !call->scale ? call->divide_by : 0;
    r.scaled = call->scale != nullptr;
    if (call->scale)
        memcpy(r.scale, call->scale, size);
    r.src_wide = narrow && call->src_wide;
    r.dst_wide = narrow && call->dst_wide;
    r.head = r.src_wide || r.dst_wide ? call->count : head_of(call, size);
    work = r.head < call->count ? call->count * size / VECTOR : call->count;
    blocks = (work + BLOCK - 1) / BLOCK;
    if (blocks > processors() * BLOCKS_PER_SM)
        blocks = processors() * BLOCKS_PER_SM;
    return GPU_LAUNCH(kernel, (unsigned)(blocks ? blocks : 1), BLOCK, r, stream);
}
