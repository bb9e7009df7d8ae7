/* arith.h on a CUDA device gives the bits of red_run_scalar, for every (type, op) pair; exits with 77 where there is no
 * device, so that it is a compile check at least. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <vector>

#include <cuda_runtime.h>

#include "reduce/arith.h"
extern "C" {
#include "reduce/reduce.h"
}

enum { MOST_INPUTS = 8, COUNT = 1 << 16, STRIDE = COUNT * 16 };

#define CHECK(call)                                                                                                   \
    do {                                                                                                              \
        cudaError_t error_ = (call);                                                                                  \
        if (error_ != cudaSuccess) {                                                                                  \
            fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error_));                                           \
            exit(1);                                                                                                  \
        }                                                                                                             \
    } while (0)

struct form { bool src_wide, dst_wide; uint32_t divide_by, n; };

#define KERNEL(T, O, f, acc, op)                                                                                      \
    __device__ arith_##acc##_t load_##T##_##O(const char *src, size_t i, bool wide)                                   \
    {                                                                                                                 \
        return wide ? ((const arith_##acc##_t *)src)[i] : arith_##acc##_from_##f(((const arith_##f##_t *)src)[i]);    \
    }                                                                                                                 \
    __global__ void kernel_##T##_##O(const char *srcs, char *dst, form how)                                           \
    {                                                                                                                 \
        size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;                                                     \
        arith_##acc##_t value = load_##T##_##O(srcs, i, how.src_wide);                                                \
        if (how.n == 1)                                                                                               \
            value = arith_##acc##_canon(value);                                                                       \
        for (uint32_t k = 1; k < how.n; k++)                                                                          \
            value = arith_##acc##_##op(value, load_##T##_##O(srcs + k * (size_t)STRIDE, i, how.src_wide));            \
        if (how.divide_by > 1)                                                                                        \
            value = arith_##acc##_div(value, how.divide_by);                                                          \
        if (how.dst_wide)                                                                                             \
            ((arith_##acc##_t *)dst)[i] = value;                                                                      \
        else                                                                                                          \
            ((arith_##f##_t *)dst)[i] = arith_##f##_from_##acc(value);                                                \
    }
ARITH_PAIRS(KERNEL)

typedef void (*kernel_fn)(const char *srcs, char *dst, form how);
static const struct { red_type type; red_op op; kernel_fn kernel; } pairs[] = {
#define ENTRY(T, O, f, acc, op) { RED_##T, RED_##O, kernel_##T##_##O },
    ARITH_PAIRS(ENTRY)
};

static uint64_t rng()
{
    static uint64_t state = 0x2545f4914f6cdd1dull;
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

/* Random bits, one word in four made of NaN, infinity, zero and least numbers of some format. */
static void fill(char *bytes, size_t size)
{
    static const uint64_t remarkable[] = {
        0, 0x8080808080808080ull, 0x8000800080008000ull, 0x8000000080000000ull, 0x8000000000000000ull,
        0x7f800000ff800000ull, 0x7ff0000000000000ull, 0xfff0000000000000ull, 0x7c00fc007f80ff80ull,
        0x7fc000017f800001ull, 0xffffffffffffffffull, 0x7ff0000000000001ull, 0x7e017c01fe00ffffull,
        0x0000000100000001ull, 0x807fffff007fffffull, 0x000fffffffffffffull, 0x000103ff800183ffull,
        0x0102030481828384ull, 0x3f8000003f800000ull, 0x7f7fffff7f7fffffull,
    };
    for (size_t i = 0; i < size; i += 8) {
        uint64_t word = rng(), how = rng();
        if (how % 4 == 0)
            word = remarkable[how / 4 % (sizeof(remarkable) / sizeof(remarkable[0]))];
        memcpy(bytes + i, &word, 8);
    }
}

int main()
{
    int devices = 0, wrong = 0, runs = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        puts("no CUDA device: compiled only");
        return 77;
    }
    std::vector<char> host(MOST_INPUTS * (size_t)STRIDE), expected(STRIDE), result(STRIDE);
    const void *srcs[MOST_INPUTS];
    char *device, *dst;
    fill(host.data(), host.size());
    for (int k = 0; k < MOST_INPUTS; k++)
        srcs[k] = host.data() + k * (size_t)STRIDE;
    CHECK(cudaMalloc((void **)&device, host.size()));
    CHECK(cudaMalloc((void **)&dst, STRIDE));
    CHECK(cudaMemcpy(device, host.data(), host.size(), cudaMemcpyHostToDevice));

    for (size_t p = 0; p < sizeof(pairs) / sizeof(pairs[0]); p++)
        for (int wide = 0; wide < 4; wide++)
            for (uint32_t n = 1; n <= MOST_INPUTS; n++) {
                red_call call = {};
                call.type = pairs[p].type;
                call.op = pairs[p].op;
                call.src_wide = wide & 1;
                call.dst_wide = wide >> 1;
                call.divide_by = call.op == RED_AVG ? n + 1 : 1;
                call.n = n;
                call.srcs = srcs;
                call.dst = expected.data();
                call.count = COUNT;
                bool narrow = red_size(call.type) != red_wide_size(call.type);
                if (n == 1 && call.op != RED_AVG && (!narrow || call.src_wide == call.dst_wide))
                    continue;   /* a plain copy, no arithmetic */
                memset(expected.data(), 0, STRIDE);
                red_run_scalar(&call);
                form how = { call.src_wide, call.dst_wide, call.divide_by, n };
                CHECK(cudaMemset(dst, 0, STRIDE));
                pairs[p].kernel<<<COUNT / 256, 256>>>(device, dst, how);
                CHECK(cudaGetLastError());
                CHECK(cudaMemcpy(result.data(), dst, STRIDE, cudaMemcpyDeviceToHost));
                runs++;
                if (memcmp(expected.data(), result.data(), STRIDE) != 0) {
                    fprintf(stderr, "%s %s, %u inputs, src_wide %d, dst_wide %d: the device's bits differ\n",
                            red_type_name(call.type), red_op_name(call.op), n, call.src_wide, call.dst_wide);
                    wrong++;
                }
            }
    printf("%d reductions of %d elements compared, %d differ\n", runs, COUNT, wrong);
    CHECK(cudaFree(device));
    CHECK(cudaFree(dst));
    return wrong != 0;
}
