/* Compile check: arith.h is C++ too. Every pair's functions are instantiated. */
#include "reduce/arith.h"

#define PAIR(T, O, f, acc, op)                                                                                        \
    arith_##f##_t reduce_##T##_##O(arith_##f##_t a, arith_##f##_t b);                                                 \
    arith_##f##_t reduce_##T##_##O(arith_##f##_t a, arith_##f##_t b)                                                  \
    {                                                                                                                 \
        arith_##acc##_t value = arith_##acc##_##op(arith_##acc##_from_##f(a), arith_##acc##_from_##f(b));             \
        return arith_##f##_from_##acc(arith_##acc##_div(arith_##acc##_canon(value), 3));                              \
    }
ARITH_PAIRS(PAIR)
