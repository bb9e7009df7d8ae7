/* red_run_scalar: arith.h applied to one element after the other, the meaning of red_run spelled out. */
#include <assert.h>

#include "reduce/arith.h"
#include "reduce/kernels.h"
#include "reduce/reduce.h"

#define SCALAR(T, O, f, acc, op)                                                                                      \
    static arith_##acc##_t load_##T##_##O(const void *src, size_t i, bool wide)                                       \
    {                                                                                                                 \
        arith_##f##_t element;                                                                                        \
        arith_##acc##_t value;                                                                                        \
        if (wide) {                                                                                                   \
            memcpy(&value, (const char *)src + i * sizeof(value), sizeof(value));                                     \
            return value;                                                                                             \
        }                                                                                                             \
        memcpy(&element, (const char *)src + i * sizeof(element), sizeof(element));                                   \
        return arith_##acc##_from_##f(element);                                                                       \
    }                                                                                                                 \
    static void scalar_##T##_##O(const struct red_call *call)                                                         \
    {                                                                                                                 \
        bool divide = RED_##O == RED_AVG && call->divide_by > 1;                                                      \
        for (size_t i = 0; i < call->count; i++) {                                                                    \
            arith_##acc##_t value = load_##T##_##O(call->srcs[0], i, call->src_wide);                                 \
            arith_##f##_t element;                                                                                    \
            if (call->n == 1)                                                                                         \
                value = arith_##acc##_canon(value);                                                                   \
            for (uint32_t k = 1; k < call->n; k++)                                                                    \
                value = arith_##acc##_##op(value, load_##T##_##O(call->srcs[k], i, call->src_wide));                  \
            if (divide)                                                                                               \
                value = arith_##acc##_div(value, call->divide_by);                                                    \
            if (call->dst_wide) {                                                                                     \
                memcpy((char *)call->dst + i * sizeof(value), &value, sizeof(value));                                 \
            } else {                                                                                                  \
                element = arith_##f##_from_##acc(value);                                                              \
                memcpy((char *)call->dst + i * sizeof(element), &element, sizeof(element));                           \
            }                                                                                                         \
        }                                                                                                             \
    }
ARITH_PAIRS(SCALAR)

#define ENTRY(T, O, f, acc, op) [RED_##T][RED_##O] = scalar_##T##_##O,
static void (*const scalar[RED_TYPES][RED_OPS])(const struct red_call *call) = { ARITH_PAIRS(ENTRY) };

static void run_scaled(const struct red_call *call)
{
    size_t size = red_size(call->type);

    for (size_t i = 0; i < call->count; i++) {
        const void *factors[2] = {call->scale, (const char *)call->srcs[0] + i * size};
        red_run_scalar(&(struct red_call){.type = call->type, .op = RED_PROD, .n = 2, .srcs = factors,
                                          .dst = (char *)call->dst + i * size, .count = 1});
    }
}

void red_run_scalar(const struct red_call *call)
{
    if (call->scale) {
        run_scaled(call);
        return;
    }
    assert(red_supported(call->type, call->op));
    assert(call->n >= 1 && call->n <= RED_MAX_INPUTS);
    bool narrow = red_size(call->type) != red_wide_size(call->type);
    bool same = !narrow || call->src_wide == call->dst_wide;
    if (call->n == 1 && same && !(call->op == RED_AVG && call->divide_by > 1)) {
        if (call->count != 0 && call->dst != call->srcs[0])
            memcpy(call->dst, call->srcs[0],
                   call->count * (call->dst_wide ? red_wide_size(call->type) : red_size(call->type)));
        return;
    }
    red_fp_t fp = red_fp_enter();
    scalar[call->type][call->op](call);
    red_fp_leave(fp);
}
