/* MPI_Datatype and MPI_Op handles in hetmpi's terms, and the handles that hetmpi itself makes. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <wchar.h>

#include "api/api.h"
#include "core/log.h"
#include "core/proc.h"

#define TABLE_SIZE 256   /* a power of two, well above the number of names below */

static struct {
    pthread_mutex_t lock;
    _Atomic int known;         /* enum known */
    struct { MPI_Datatype handle; enum red_type type; bool used; } table[TABLE_SIZE];   /* MPI's */
    MPI_Datatype own[6];
    MPI_Op avg;
    struct { MPI_Op handle; enum red_op op; } ops[RED_OPS];                             /* MPI's */
    int n_ops;
} types = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* MPI's handles are known as soon as MPI is up; hetmpi's own, which must be freed, once hetmpi has started. */
enum known { KNOWN_NONE, KNOWN_MPI, KNOWN_ALL };

static const struct { const char *name; enum red_type type; int bytes; } own_types[6] = {
    {"HETMPI_FLOAT16", RED_FLOAT16, 2},           {"HETMPI_BFLOAT16", RED_BFLOAT16, 2},
    {"HETMPI_FLOAT8_E4M3", RED_E4M3, 1},          {"HETMPI_FLOAT8_E5M2", RED_E5M2, 1},
    {"HETMPI_FLOAT8_E4M3_FNUZ", RED_E4M3_FNUZ, 1}, {"HETMPI_FLOAT8_E5M2_FNUZ", RED_E5M2_FNUZ, 1}};

/* The last look-up of this thread: programs use one type again and again. */
static _Thread_local struct { MPI_Datatype handle; enum red_type type; bool valid; } last;

static size_t hash_of(MPI_Datatype handle)
{
    uint64_t bits = 0;

    memcpy(&bits, &handle, sizeof(handle));
    return (size_t)(bits * 0x9e3779b97f4a7c15u >> 56) & (TABLE_SIZE - 1);
}

static void add(MPI_Datatype handle, enum red_type type)
{
    size_t at;

    if (handle == MPI_DATATYPE_NULL)   /* an MPI without Fortran */
        return;
    for (at = hash_of(handle); types.table[at].used; at = (at + 1) & (TABLE_SIZE - 1))
        if (types.table[at].handle == handle)
            return;
    types.table[at].handle = handle;
    types.table[at].type = type;
    types.table[at].used = true;
}

/* A signed or unsigned integer of whatever size this MPI gives it. */
static void add_integer(MPI_Datatype handle, bool is_signed)
{
    int size = 0;

    if (handle == MPI_DATATYPE_NULL || MPI_Type_size(handle, &size) != MPI_SUCCESS)
        return;
    switch (size) {
    case 1: add(handle, is_signed ? RED_INT8 : RED_UINT8); break;
    case 2: add(handle, is_signed ? RED_INT16 : RED_UINT16); break;
    case 4: add(handle, is_signed ? RED_INT32 : RED_UINT32); break;
    case 8: add(handle, is_signed ? RED_INT64 : RED_UINT64); break;
    default: break;
    }
}

/* A Fortran real or complex: compilers can be told to make them wider. */
static void add_real(MPI_Datatype handle, int parts)
{
    int size = 0;

    if (handle == MPI_DATATYPE_NULL || MPI_Type_size(handle, &size) != MPI_SUCCESS)
        return;
    if (size == 4 * parts)
        add(handle, parts == 1 ? RED_FLOAT32 : RED_COMPLEX64);
    if (size == 8 * parts)
        add(handle, parts == 1 ? RED_FLOAT64 : RED_COMPLEX128);
}

static void add_all(void)
{
    const MPI_Datatype signed_ones[] = {MPI_SIGNED_CHAR, MPI_SHORT, MPI_INT, MPI_LONG, MPI_LONG_LONG, MPI_INT8_T,
                                        MPI_INT16_T, MPI_INT32_T, MPI_INT64_T, MPI_AINT, MPI_OFFSET, MPI_COUNT,
                                        MPI_INTEGER, MPI_INTEGER1, MPI_INTEGER2, MPI_INTEGER4, MPI_INTEGER8};
    const MPI_Datatype unsigned_ones[] = {MPI_UNSIGNED_CHAR, MPI_UNSIGNED_SHORT, MPI_UNSIGNED, MPI_UNSIGNED_LONG,
                                          MPI_UNSIGNED_LONG_LONG, MPI_UINT8_T, MPI_UINT16_T, MPI_UINT32_T,
                                          MPI_UINT64_T};
    const MPI_Datatype reals[] = {MPI_FLOAT, MPI_DOUBLE, MPI_REAL, MPI_DOUBLE_PRECISION, MPI_REAL4, MPI_REAL8};
    const MPI_Datatype complexes[] = {MPI_C_FLOAT_COMPLEX, MPI_C_DOUBLE_COMPLEX, MPI_C_COMPLEX, MPI_COMPLEX,
                                      MPI_DOUBLE_COMPLEX, MPI_COMPLEX8, MPI_COMPLEX16, MPI_CXX_FLOAT_COMPLEX,
                                      MPI_CXX_DOUBLE_COMPLEX};

    for (size_t i = 0; i < sizeof(signed_ones) / sizeof(signed_ones[0]); i++)
        add_integer(signed_ones[i], true);
    for (size_t i = 0; i < sizeof(unsigned_ones) / sizeof(unsigned_ones[0]); i++)
        add_integer(unsigned_ones[i], false);
    for (size_t i = 0; i < sizeof(reals) / sizeof(reals[0]); i++)
        add_real(reals[i], 1);
    for (size_t i = 0; i < sizeof(complexes) / sizeof(complexes[0]); i++)
        add_real(complexes[i], 2);
    add(MPI_C_BOOL, RED_BOOL);
    add(MPI_CXX_BOOL, RED_BOOL);
    add(MPI_BYTE, RED_BYTE);
    add(MPI_CHAR, RED_CHAR);
    add(MPI_CHARACTER, RED_CHAR);
    add(MPI_WCHAR, RED_WCHAR);
#ifdef MPIX_C_FLOAT16
    add(MPIX_C_FLOAT16, RED_FLOAT16);
#endif
#ifdef MPIX_BFLOAT16
    add(MPIX_BFLOAT16, RED_BFLOAT16);
#endif
#ifdef MPIX_C_BF16
    add(MPIX_C_BF16, RED_BFLOAT16);
#endif
}

/* HETMPI_AVG in a call of MPI's own: there is no way to return an error from here. */
static void avg_in_mpi(void *in, void *inout, int *count, MPI_Datatype *type)
{
    (void)in, (void)inout, (void)count, (void)type;
    log_print(LOG_ERROR, "HETMPI_AVG was given to a call of MPI itself: it works in hetmpi's calls only");
    MPI_Abort(MPI_COMM_WORLD, HETMPI_ERR_OP);
}

static void free_all(void)
{
    for (int i = 0; i < 6; i++)
        if (types.own[i] != MPI_DATATYPE_NULL)
            MPI_Type_free(&types.own[i]);
    if (types.avg != MPI_OP_NULL)
        MPI_Op_free(&types.avg);
    atomic_store(&types.known, KNOWN_NONE);
}

static int make_own(void)
{
    for (int i = 0; i < 6; i++)
        types.own[i] = MPI_DATATYPE_NULL;
    types.avg = MPI_OP_NULL;
    for (int i = 0; i < 6; i++) {
        if (MPI_Type_contiguous(own_types[i].bytes, MPI_BYTE, &types.own[i]) != MPI_SUCCESS ||
            MPI_Type_commit(&types.own[i]) != MPI_SUCCESS)
            return err_set(HETMPI_ERR_MPI, "cannot make the data type %s", own_types[i].name);
        MPI_Type_set_name(types.own[i], own_types[i].name);
    }
    if (MPI_Op_create(avg_in_mpi, 1, &types.avg) != MPI_SUCCESS)
        return err_set(HETMPI_ERR_MPI, "cannot make the operation HETMPI_AVG");
    return HETMPI_SUCCESS;
}

static void add_ops(void)
{
    types.n_ops = 0;
#define OP(handle_, op_) types.ops[types.n_ops].handle = (handle_), types.ops[types.n_ops++].op = (op_)
    OP(MPI_SUM, RED_SUM), OP(MPI_MAX, RED_MAX), OP(MPI_MIN, RED_MIN);
    OP(MPI_PROD, RED_PROD), OP(MPI_BAND, RED_BAND), OP(MPI_BOR, RED_BOR), OP(MPI_BXOR, RED_BXOR);
    OP(MPI_LAND, RED_LAND), OP(MPI_LOR, RED_LOR), OP(MPI_LXOR, RED_LXOR);
#undef OP
}

static bool is_known(enum known known)
{
    return atomic_load_explicit(&types.known, memory_order_acquire) >= (int)known;
}

static int get_to_know(enum known known)
{
    int code = HETMPI_SUCCESS;

    pthread_mutex_lock(&types.lock);
    if (!is_known(KNOWN_MPI)) {
        memset(types.table, 0, sizeof(types.table));
        add_all();
        add_ops();
        atomic_store_explicit(&types.known, KNOWN_MPI, memory_order_release);
    }
    if (!is_known(known)) {
        code = make_own();
        if (!code) {
            proc_at_finalize(free_all);
            atomic_store_explicit(&types.known, KNOWN_ALL, memory_order_release);
        }
    }
    pthread_mutex_unlock(&types.lock);
    return code;
}

static int want_ready(void)
{
    int code = proc_start();

    return code || is_known(KNOWN_ALL) ? code : get_to_know(KNOWN_ALL);
}

static bool find_type(MPI_Datatype type, enum red_type *found)
{
    for (size_t at = hash_of(type); types.table[at].used; at = (at + 1) & (TABLE_SIZE - 1))
        if (types.table[at].handle == type) {
            *found = types.table[at].type;
            return true;
        }
    for (int i = 0; i < 6 && is_known(KNOWN_ALL); i++)
        if (types.own[i] == type) {
            *found = own_types[i].type;
            return true;
        }
    return false;
}

static bool find_op(MPI_Op op, enum red_op *found)
{
    if (is_known(KNOWN_ALL) && op == types.avg) {
        *found = RED_AVG;
        return true;
    }
    for (int i = 0; i < types.n_ops; i++)
        if (types.ops[i].handle == op) {
            *found = types.ops[i].op;
            return true;
        }
    return false;
}

int types_find(MPI_Datatype type, enum red_type *found)
{
    int code;

    if (last.valid && last.handle == type) {
        *found = last.type;
        return HETMPI_SUCCESS;
    }
    code = want_ready();
    if (code)
        return code;
    if (!find_type(type, found))
        return HETMPI_ERR_TYPE;
    last.handle = type;
    last.type = *found;
    last.valid = true;
    return HETMPI_SUCCESS;
}

int types_find_op(MPI_Op op, enum red_op *found)
{
    int code = want_ready();

    if (code)
        return code;
    return find_op(op, found) ? HETMPI_SUCCESS : HETMPI_ERR_OP;
}

void types_describe(MPI_Datatype type, char *text, size_t bytes)
{
    char name[MPI_MAX_OBJECT_NAME + 1] = "";
    int length = 0;

    if (type == MPI_DATATYPE_NULL)
        snprintf(name, sizeof(name), "MPI_DATATYPE_NULL");
    else
        MPI_Type_get_name(type, name, &length);
    snprintf(text, bytes, "%s", name[0] ? name : "a derived type");
}

int types_want(const char *function, MPI_Datatype type, enum red_type *found)
{
    char name[MPI_MAX_OBJECT_NAME + 1];
    int code = types_find(type, found);

    if (code != HETMPI_ERR_TYPE)
        return code;
    types_describe(type, name, sizeof(name));
    return err_set(code, "%s: %s is not a type that hetmpi supports (the table is in hetmpi.h)", function, name);
}

MPI_Datatype hetmpi_own_datatype(enum hetmpi_own_type type)
{
    if (want_ready() || (unsigned)type > HETMPI_OWN_FLOAT8_E5M2_FNUZ)
        return MPI_DATATYPE_NULL;
    return types.own[type];
}

MPI_Op hetmpi_own_op_avg(void)
{
    return want_ready() ? MPI_OP_NULL : types.avg;
}

/* MPI's handles: the same on all ranks, even where one of them cannot start, since they must not go different ways. */
static int want_mpi_handles(void)
{
    int code = is_known(KNOWN_MPI) ? HETMPI_SUCCESS : proc_want_mpi();

    return code || is_known(KNOWN_MPI) ? code : get_to_know(KNOWN_MPI);
}

int hetmpi_op_supported(MPI_Datatype type, MPI_Op op, int *flag)
{
    enum red_type found_type = 0;
    enum red_op found_op = 0;
    int code;

    if (!flag)
        code = err_set(HETMPI_ERR_ARG, "op_supported: flag is NULL");
    else
        code = want_mpi_handles();
    if (code)
        return api_report(MPI_COMM_NULL, "op_supported", code);
    *flag = find_type(type, &found_type) && find_op(op, &found_op) && red_supported(found_type, found_op);
    return HETMPI_SUCCESS;
}

int hetmpi_type_size(MPI_Datatype type, size_t *bytes)
{
    enum red_type found;
    char name[MPI_MAX_OBJECT_NAME + 1];
    int code;

    if (!bytes)
        return api_report(MPI_COMM_NULL, "type_size", err_set(HETMPI_ERR_ARG, "type_size: bytes is NULL"));
    code = types_find(type, &found);
    if (code == HETMPI_ERR_TYPE) {
        types_describe(type, name, sizeof(name));
        err_set(code, "type_size: %s is not a type that hetmpi supports", name);
    }
    if (code)
        return api_report(MPI_COMM_NULL, "type_size", code);
    *bytes = red_size(found);
    return HETMPI_SUCCESS;
}
