/* Element types by the names, codes and formats that Python's worlds have for them. */
#include "core.h"

#include <string.h>

enum { DL_INT, DL_UINT, DL_FLOAT, DL_BFLOAT = 4, DL_COMPLEX, DL_BOOL,
       DL_E4M3FN = 10, DL_E4M3FNUZ, DL_E5M2, DL_E5M2FNUZ };

#define OF_MPI(name, bytes, code, mpi) {name, bytes, code, -1, mpi}
#define OF_HETMPI(name, bytes, code, own) {name, bytes, code, HETMPI_OWN_##own, MPI_DATATYPE_NULL}
static const struct dtype types[] = {
    OF_MPI("bool", 1, DL_BOOL, MPI_C_BOOL),
    OF_MPI("int8", 1, DL_INT, MPI_INT8_T),
    OF_MPI("int16", 2, DL_INT, MPI_INT16_T),
    OF_MPI("int32", 4, DL_INT, MPI_INT32_T),
    OF_MPI("int64", 8, DL_INT, MPI_INT64_T),
    OF_MPI("uint8", 1, DL_UINT, MPI_UINT8_T),
    OF_MPI("uint16", 2, DL_UINT, MPI_UINT16_T),
    OF_MPI("uint32", 4, DL_UINT, MPI_UINT32_T),
    OF_MPI("uint64", 8, DL_UINT, MPI_UINT64_T),
    OF_HETMPI("float16", 2, DL_FLOAT, FLOAT16),
    OF_HETMPI("bfloat16", 2, DL_BFLOAT, BFLOAT16),
    OF_HETMPI("float8_e4m3fn", 1, DL_E4M3FN, FLOAT8_E4M3),
    OF_HETMPI("float8_e5m2", 1, DL_E5M2, FLOAT8_E5M2),
    OF_HETMPI("float8_e4m3fnuz", 1, DL_E4M3FNUZ, FLOAT8_E4M3_FNUZ),
    OF_HETMPI("float8_e5m2fnuz", 1, DL_E5M2FNUZ, FLOAT8_E5M2_FNUZ),
    OF_MPI("float32", 4, DL_FLOAT, MPI_FLOAT),
    OF_MPI("float64", 8, DL_FLOAT, MPI_DOUBLE),
    OF_MPI("complex64", 8, DL_COMPLEX, MPI_C_FLOAT_COMPLEX),
    OF_MPI("complex128", 16, DL_COMPLEX, MPI_C_DOUBLE_COMPLEX),
};
#define TYPES (sizeof(types) / sizeof(*types))

const struct dtype *dtype_by_name(const char *name)
{
    for (size_t i = 0; i < TYPES; i++)
        if (strcmp(types[i].name, name) == 0)
            return &types[i];
    return NULL;
}

const struct dtype *dtype_by_dlpack(uint8_t code, size_t bits)
{
    for (size_t i = 0; i < TYPES; i++)
        if (types[i].dl_code == code && types[i].bytes * 8 == bits)
            return &types[i];
    return NULL;
}

const struct dtype *dtype_by_kind(char kind, size_t bytes)
{
    switch (kind) {
    case 'b': return dtype_by_dlpack(DL_BOOL, bytes * 8);
    case 'i': return dtype_by_dlpack(DL_INT, bytes * 8);
    case 'u': return dtype_by_dlpack(DL_UINT, bytes * 8);
    case 'f': return dtype_by_dlpack(DL_FLOAT, bytes * 8);
    case 'c': return dtype_by_dlpack(DL_COMPLEX, bytes * 8);
    default: return NULL;
    }
}

const struct dtype *dtype_by_format(const char *format, size_t bytes)
{
    const uint16_t one = 1;
    char native = *(const char *)&one ? '<' : '>', kind;

    if (!format)
        return dtype_by_kind('u', bytes);
    if (*format == '@' || *format == '=' || *format == native)
        format++;
    if (*format == 'Z') {
        kind = strchr("fd", format[1]) ? 'c' : '\0';
        format++;
    } else if (*format == '?') {
        kind = 'b';
    } else if (*format && strchr("bhilqn", *format)) {
        kind = 'i';
    } else if (*format && strchr("cBHILQN", *format)) {
        kind = 'u';
    } else if (*format && strchr("efd", *format)) {
        kind = 'f';
    } else {
        kind = '\0';
    }
    return kind && format[1] == '\0' ? dtype_by_kind(kind, bytes) : NULL;
}

const char *dtype_format(const struct dtype *type)
{
    static const char *const integers[] = {"b", "h", "i", "q", "B", "H", "I", "Q"};
    int log = type->bytes == 1 ? 0 : type->bytes == 2 ? 1 : type->bytes == 4 ? 2 : 3;

    switch (type->dl_code) {
    case DL_BOOL: return "?";
    case DL_INT: return integers[log];
    case DL_UINT: return integers[4 + log];
    case DL_FLOAT: return log == 1 ? "e" : log == 2 ? "f" : "d";
    case DL_COMPLEX: return type->bytes == 8 ? "Zf" : "Zd";
    default: return NULL;
    }
}

MPI_Datatype dtype_mpi(const struct dtype *type)
{
    return type->own < 0 ? type->mpi : hetmpi_own_datatype((enum hetmpi_own_type)type->own);
}
