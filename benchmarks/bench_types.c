/*
 * The data types and operations that --type and --op name, and which pairs exist.
 */
#include <string.h>

#include "bench.h"

static const struct bench_type types[] = {
    {.name = "int8", .class = TYPE_SIGNED, .bytes = 1},
    {.name = "uint8", .class = TYPE_UNSIGNED, .bytes = 1},
    {.name = "int16", .class = TYPE_SIGNED, .bytes = 2},
    {.name = "uint16", .class = TYPE_UNSIGNED, .bytes = 2},
    {.name = "int32", .alias = "int", .class = TYPE_SIGNED, .bytes = 4},
    {.name = "uint32", .class = TYPE_UNSIGNED, .bytes = 4},
    {.name = "int64", .class = TYPE_SIGNED, .bytes = 8},
    {.name = "uint64", .class = TYPE_UNSIGNED, .bytes = 8},
    {.name = "float16", .alias = "half", .class = TYPE_FLOAT, .bytes = 2, .mantissa = 10, .bias = 15},
    {.name = "bfloat16", .class = TYPE_FLOAT, .bytes = 2, .mantissa = 7, .bias = 127},
    {.name = "float32", .alias = "float", .class = TYPE_FLOAT, .bytes = 4, .mantissa = 23, .bias = 127},
    {.name = "float64", .alias = "double", .class = TYPE_FLOAT, .bytes = 8, .mantissa = 52, .bias = 1023},
    {.name = "complex64", .class = TYPE_COMPLEX, .bytes = 8, .mantissa = 23, .bias = 127},
    {.name = "complex128", .class = TYPE_COMPLEX, .bytes = 16, .mantissa = 52, .bias = 1023},
    {.name = "float8_e4m3", .alias = "float8_e4m3fn", .class = TYPE_FLOAT, .bytes = 1, .mantissa = 3, .bias = 7},
    {.name = "float8_e5m2", .class = TYPE_FLOAT, .bytes = 1, .mantissa = 2, .bias = 15},
    {.name = "float8_e4m3fnuz", .class = TYPE_FLOAT, .bytes = 1, .mantissa = 3, .bias = 8, .unsigned_zero = true},
    {.name = "float8_e5m2fnuz", .class = TYPE_FLOAT, .bytes = 1, .mantissa = 2, .bias = 16, .unsigned_zero = true},
    {.name = "bool", .class = TYPE_BOOL, .bytes = sizeof(_Bool)},
    {.name = "byte", .class = TYPE_BYTE, .bytes = 1},
    {.name = "char", .class = TYPE_MOVED, .bytes = 1},
    {.name = "wchar", .class = TYPE_MOVED, .bytes = sizeof(wchar_t)},
};
#define TYPES (sizeof(types) / sizeof(types[0]))

static const char *const op_names[OP_COUNT] = {
    [OP_SUM] = "sum", [OP_PROD] = "prod", [OP_MIN] = "min", [OP_MAX] = "max", [OP_AVG] = "avg", [OP_BAND] = "band",
    [OP_BOR] = "bor", [OP_BXOR] = "bxor", [OP_LAND] = "land", [OP_LOR] = "lor", [OP_LXOR] = "lxor",
};

const struct bench_type *type_at(size_t index)
{
    return index < TYPES ? &types[index] : NULL;
}

const struct bench_type *type_find(const char *name)
{
    for (size_t i = 0; i < TYPES; i++) {
        if (strcmp(name, types[i].name) == 0 || (types[i].alias && strcmp(name, types[i].alias) == 0))
            return &types[i];
    }
    return NULL;
}

static MPI_Datatype integer_handle(int bytes, bool with_sign)
{
    switch (bytes) {
    case 1: return with_sign ? MPI_INT8_T : MPI_UINT8_T;
    case 2: return with_sign ? MPI_INT16_T : MPI_UINT16_T;
    case 4: return with_sign ? MPI_INT32_T : MPI_UINT32_T;
    default: return with_sign ? MPI_INT64_T : MPI_UINT64_T;
    }
}

static MPI_Datatype float_handle(const struct bench_type *type)
{
    switch (type->mantissa) {
    case 2: return type->unsigned_zero ? HETMPI_FLOAT8_E5M2_FNUZ : HETMPI_FLOAT8_E5M2;
    case 3: return type->unsigned_zero ? HETMPI_FLOAT8_E4M3_FNUZ : HETMPI_FLOAT8_E4M3;
    case 7: return HETMPI_BFLOAT16;
    case 10: return HETMPI_FLOAT16;
    case 23: return MPI_FLOAT;
    default: return MPI_DOUBLE;
    }
}

MPI_Datatype type_handle(const struct bench_type *type)
{
    switch (type->class) {
    case TYPE_SIGNED: return integer_handle(type->bytes, true);
    case TYPE_UNSIGNED: return integer_handle(type->bytes, false);
    case TYPE_FLOAT: return float_handle(type);
    case TYPE_COMPLEX: return type->bytes == 8 ? MPI_C_FLOAT_COMPLEX : MPI_C_DOUBLE_COMPLEX;
    case TYPE_BOOL: return MPI_C_BOOL;
    case TYPE_BYTE: return MPI_BYTE;
    default: return type->bytes == 1 ? MPI_CHAR : MPI_WCHAR;
    }
}

bool type_in_mpi(const struct bench_type *type)
{
    return type->class != TYPE_FLOAT || type->mantissa >= 23;
}

bool op_find(const char *name, enum bench_op *op)
{
    for (int i = 0; i < OP_COUNT; i++) {
        if (strcmp(name, op_names[i]) == 0) {
            *op = (enum bench_op)i;
            return true;
        }
    }
    return false;
}

const char *op_name(enum bench_op op)
{
    return op_names[op];
}

MPI_Op op_handle(enum bench_op op)
{
    switch (op) {
    case OP_SUM: return MPI_SUM;
    case OP_PROD: return MPI_PROD;
    case OP_MIN: return MPI_MIN;
    case OP_MAX: return MPI_MAX;
    case OP_BAND: return MPI_BAND;
    case OP_BOR: return MPI_BOR;
    case OP_BXOR: return MPI_BXOR;
    case OP_LAND: return MPI_LAND;
    case OP_LOR: return MPI_LOR;
    case OP_LXOR: return MPI_LXOR;
    default: return HETMPI_AVG;
    }
}

bool op_in_mpi(enum bench_op op)
{
    return op != OP_AVG;
}

bool op_defined(const struct bench_type *type, enum bench_op op)
{
    bool bitwise = op == OP_BAND || op == OP_BOR || op == OP_BXOR;
    bool logical = op == OP_LAND || op == OP_LOR || op == OP_LXOR;

    switch (type->class) {
    case TYPE_SIGNED:
    case TYPE_UNSIGNED: return true;
    case TYPE_FLOAT: return !bitwise && !logical;
    case TYPE_COMPLEX: return op == OP_SUM || op == OP_PROD || op == OP_AVG;
    case TYPE_BOOL: return logical;
    case TYPE_BYTE: return bitwise;
    default: return false;
    }
}
