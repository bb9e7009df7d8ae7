/*
 * Every (type, operation) pair through hetmpi_allreduce against the oracle: exact data bit by bit, random data within
 * the error of the documented roundings, special values; all counts, in place and not, every kind of memory; and what
 * is not supported is refused on all ranks with the buffers untouched.
 */
#include "oracle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT_MAX 300001

static const size_t small_counts[] = { 0, 1, 2, 3, 5, 17, 1000 };
static const size_t large_counts[] = { 4099, 65537, COUNT_MAX };
enum { SMALL_COUNTS = sizeof small_counts / sizeof *small_counts, LARGE_COUNTS = 3 };
enum in_place { SEPARATE, IN_PLACE, SAME_POINTER, WAYS };

static int islands, joined; /* joined: nodes whose islands are joined first */
static unsigned char **patterns; /* [ranks], T_PATTERN elements each */
static unsigned char *want, *input, *result;
static struct t_buf send[T_PLACES], recv[T_PLACES];

struct reduction {
    enum t_fmt fmt;
    enum t_op op;
    MPI_Datatype type;
    const char *type_name;
};

/* Which memory this rank uses: all ranks alike, or each another one. */
static void choose_places(unsigned turn, struct t_buf **from, struct t_buf **to)
{
    static const enum t_place pairs[][2] = {
        { T_PAGEABLE, T_PAGEABLE }, { T_DEVICE, T_DEVICE }, { T_PINNED, T_PINNED }, { T_PAGEABLE, T_DEVICE },
        { T_DEVICE, T_PAGEABLE },
    };
    unsigned n = sizeof pairs / sizeof *pairs;
    unsigned pick = turn % (n + 1);
    if (pick == n)
        pick = (unsigned)t_rank % n;
    *from = &send[pairs[pick][0]];
    *to = &recv[pairs[pick][1]];
}

static const char *const way_names[] = { "", ", MPI_IN_PLACE", ", same pointer" };

/* One allreduce; returns the result in `result`. The patterns and `want` are set. */
static bool call_once(const struct reduction *r, size_t count, enum in_place way, unsigned turn, int expected)
{
    size_t bytes = count * t_size(r->fmt);
    struct t_buf *from, *to;
    choose_places(turn, &from, &to);
    t_stage("%s %s, count %zu, %s to %s%s", r->type_name, t_op_name(r->op), count, t_place_name(from->place),
            t_place_name(to->place), way_names[way]);
    size_t shift = turn % 3 * t_size(r->fmt); /* not always aligned to a cache line */
    t_buf_use(from, bytes, shift);
    t_buf_use(to, bytes, shift);
    t_repeat(input, patterns[t_rank], t_size(r->fmt), 0, count);
    t_buf_put(from, input);
    /* Stale bytes in the receive buffer: a result that takes them in is seen (NaN in most formats). */
    t_buf_fill(to, 0xFF);
    if (way != SEPARATE)
        t_buf_put(to, input);
    const void *sendbuf = way == SEPARATE ? from->data : way == IN_PLACE ? MPI_IN_PLACE : to->data;
    if (count == 0 && turn % 2 && way == SEPARATE) {
        bool ok = T_CODE(expected, hetmpi_allreduce(NULL, NULL, 0, r->type, t_mpi_op(r->op), MPI_COMM_WORLD));
        return ok;
    }
    bool ok = T_CODE(expected, hetmpi_allreduce(sendbuf, to->data, count, r->type, t_mpi_op(r->op), MPI_COMM_WORLD));
    t_buf_get(to, result);
    ok &= t_buf_guards(to) && t_buf_guards(from);
    if (expected != HETMPI_SUCCESS) { /* nothing may have changed */
        bool same = true;
        for (size_t i = 0; i < bytes && same; i++)
            same = result[i] == (way == SEPARATE ? 0xFF : input[i]);
        ok &= T_CHECK(same, "a refused call wrote its receive buffer");
    }
    if (way == SEPARATE) {
        unsigned char *after = t_malloc(bytes);
        t_buf_get(from, after);
        ok &= T_CHECK(memcmp(after, input, bytes) == 0, "the send buffer was changed");
        free(after);
    }
    return ok;
}

static void make(const struct reduction *r, enum t_data data, uint64_t seed)
{
    for (int rank = 0; rank < t_ranks; rank++)
        t_pattern(r->fmt, r->op, data, seed, rank, patterns[rank]);
    t_oracle(r->fmt, r->op, (const void *const *)patterns, t_ranks, want);
}

static void check_exact(const struct reduction *r, enum t_data data, size_t count, enum in_place way, unsigned turn,
                        uint64_t *hash)
{
    char what[96];
    snprintf(what, sizeof what, "allreduce of %s data", data == T_EXACT ? "exact" : "special");
    if (!call_once(r, count, way, turn, HETMPI_SUCCESS) || count == 0)
        return;
    t_expect(r->fmt, result, want, 0, count, what);
    *hash = t_fold(*hash, result, count * t_size(r->fmt));
}

static void check_random(const struct reduction *r, size_t count, unsigned turn, uint64_t *hash)
{
    /* Narrow formats round once an island, once a node of several, and once at the end, fp32 and wider at every
     * addition. */
    bool narrow = t_size(r->fmt) < 4;
    int roundings = (narrow ? islands + joined : t_ranks) + 2;
    if (!call_once(r, count, (enum in_place)(turn % WAYS), turn, HETMPI_SUCCESS))
        return;
    t_expect_close(r->fmt, r->op, result, (const void *const *)patterns, t_ranks, roundings, 0, count,
                   "allreduce of random data");
    *hash = t_fold(*hash, result, count * t_size(r->fmt));
}

static void check_pair(const struct reduction *r, unsigned turn, uint64_t *hash)
{
    make(r, T_EXACT, turn);
    for (int c = 0; c < SMALL_COUNTS; c++)
        for (int way = 0; way < WAYS; way++)
            check_exact(r, T_EXACT, small_counts[c], (enum in_place)way, turn + (unsigned)(3 * c + way), hash);
    /* The largest for one pair in four only: data of 8 ranks is made and compared on few cores. */
    size_t large = turn % 4 == 3 ? large_counts[2] : large_counts[turn % 2];
    check_exact(r, T_EXACT, large, (enum in_place)(turn % WAYS), turn / 2, hash);
    if (t_is_float(r->fmt) || t_is_complex(r->fmt)) {
        make(r, T_RANDOM, turn + 1000);
        check_random(r, 1000, turn, hash);
        check_random(r, 4099, turn + 1, hash);
    }
    if (t_is_float(r->fmt) && r->op != T_PROD) {
        make(r, T_SPECIAL, turn + 2000);
        check_exact(r, T_SPECIAL, 1000, SEPARATE, turn, hash);
        check_exact(r, T_SPECIAL, 1000, IN_PLACE, turn + 1, hash);
        check_exact(r, T_SPECIAL, 20011, SEPARATE, turn + 1, hash);
    }
}

static void check_all_pairs(void)
{
    unsigned turn = 0;
    for (int fmt = 0; fmt < T_FMTS; fmt++) {
        uint64_t hash = 0;
        for (int op = 0; op < T_OPS; op++) {
            struct reduction r = { (enum t_fmt)fmt, (enum t_op)op, t_mpi_type((enum t_fmt)fmt),
                                   t_fmt_name((enum t_fmt)fmt) };
            int exists = -1;
            T_OK(hetmpi_op_supported(r.type, t_mpi_op(r.op), &exists));
            T_CHECK(exists == t_supported(r.fmt, r.op), "%s: hetmpi_op_supported gave %d", t_fmt_name(r.fmt), exists);
            if (t_supported(r.fmt, r.op)) {
                check_pair(&r, turn++, &hash);
            } else {
                make(&r, T_EXACT, turn);
                call_once(&r, 3, SEPARATE, turn, HETMPI_ERR_OP);
                call_once(&r, 1000, IN_PLACE, turn + 1, HETMPI_ERR_OP);
                call_once(&r, 65537, SAME_POINTER, turn + 2, HETMPI_ERR_OP);
            }
        }
        t_stage("%s", t_fmt_name((enum t_fmt)fmt));
        t_same_everywhere(MPI_COMM_WORLD, hash, "results of all operations");
    }
}

/* Every other MPI name of a format: it must be known, and be that format (signed or not, size). */
static void check_names(void)
{
    const enum t_fmt lint = sizeof(long) == 8 ? T_I64 : T_I32, lunsigned = sizeof(long) == 8 ? T_U64 : T_U32;
    const struct { MPI_Datatype type; enum t_fmt fmt; const char *name; } names[] = {
        { MPI_SIGNED_CHAR, T_I8, "MPI_SIGNED_CHAR" }, { MPI_UNSIGNED_CHAR, T_U8, "MPI_UNSIGNED_CHAR" },
        { MPI_SHORT, T_I16, "MPI_SHORT" }, { MPI_UNSIGNED_SHORT, T_U16, "MPI_UNSIGNED_SHORT" },
        { MPI_INT, T_I32, "MPI_INT" }, { MPI_UNSIGNED, T_U32, "MPI_UNSIGNED" },
        { MPI_LONG, lint, "MPI_LONG" }, { MPI_UNSIGNED_LONG, lunsigned, "MPI_UNSIGNED_LONG" },
        { MPI_LONG_LONG, T_I64, "MPI_LONG_LONG" }, { MPI_LONG_LONG_INT, T_I64, "MPI_LONG_LONG_INT" },
        { MPI_UNSIGNED_LONG_LONG, T_U64, "MPI_UNSIGNED_LONG_LONG" },
        { MPI_AINT, T_I64, "MPI_AINT" }, { MPI_OFFSET, T_I64, "MPI_OFFSET" }, { MPI_COUNT, T_I64, "MPI_COUNT" },
        { MPI_C_COMPLEX, T_C64, "MPI_C_COMPLEX" },
        { MPI_INTEGER, T_I32, "MPI_INTEGER" }, { MPI_REAL, T_F32, "MPI_REAL" },
        { MPI_DOUBLE_PRECISION, T_F64, "MPI_DOUBLE_PRECISION" }, { MPI_COMPLEX, T_C64, "MPI_COMPLEX" },
        { MPI_DOUBLE_COMPLEX, T_C128, "MPI_DOUBLE_COMPLEX" },
        { MPI_INTEGER1, T_I8, "MPI_INTEGER1" }, { MPI_INTEGER2, T_I16, "MPI_INTEGER2" },
        { MPI_INTEGER4, T_I32, "MPI_INTEGER4" }, { MPI_INTEGER8, T_I64, "MPI_INTEGER8" },
        { MPI_REAL4, T_F32, "MPI_REAL4" }, { MPI_REAL8, T_F64, "MPI_REAL8" },
        { MPI_COMPLEX8, T_C64, "MPI_COMPLEX8" }, { MPI_COMPLEX16, T_C128, "MPI_COMPLEX16" },
    };
    uint64_t hash = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (names[i].type == MPI_DATATYPE_NULL) /* an MPI built without Fortran */
            continue;
        size_t bytes = 0;
        t_stage("%s", names[i].name);
        T_OK(hetmpi_type_size(names[i].type, &bytes));
        T_CHECK(bytes == t_size(names[i].fmt), "%s: hetmpi_type_size gave %zu, not %zu", names[i].name, bytes,
                t_size(names[i].fmt));
        const enum t_op ops[] = { T_SUM, T_AVG, t_is_complex(names[i].fmt) ? T_PROD : T_MAX };
        for (int o = 0; o < 3; o++) {
            struct reduction r = { names[i].fmt, ops[o], names[i].type, names[i].name };
            make(&r, T_EXACT, i);
            check_exact(&r, T_EXACT, 17, SEPARATE, 0, &hash);
        }
    }
    t_same_everywhere(MPI_COMM_WORLD, hash, "results by other names of types");
    for (int fmt = 0; fmt < T_FMTS; fmt++) {
        size_t bytes = 0;
        T_OK(hetmpi_type_size(t_mpi_type((enum t_fmt)fmt), &bytes));
        T_CHECK(bytes == t_size((enum t_fmt)fmt), "%s: size %zu", t_fmt_name((enum t_fmt)fmt), bytes);
        T_CHECK(t_mpi_type((enum t_fmt)fmt) == t_mpi_type((enum t_fmt)fmt), "%s: the handle changes",
                t_fmt_name((enum t_fmt)fmt));
    }
}

static void add_ints(void *in, void *inout, int *n, MPI_Datatype *type)
{
    (void)type;
    for (int i = 0; i < *n; i++)
        ((int *)inout)[i] += ((int *)in)[i];
}

static void refused(MPI_Datatype type, MPI_Op op, int expected, const char *what)
{
    unsigned char data[2][256];
    memset(data[0], 1, sizeof data[0]);
    memset(data[1], 0xA5, sizeof data[1]);
    t_stage("%s", what);
    int exists = -1;
    T_OK(hetmpi_op_supported(type, op, &exists));
    T_CHECK(exists == 0, "hetmpi_op_supported gave %d", exists);
    T_CODE(expected, hetmpi_allreduce(data[0], data[1], 2, type, op, MPI_COMM_WORLD));
    T_CHECK(hetmpi_last_error()[0] != '\0', "no message");
    hetmpi_request_t request = HETMPI_REQUEST_NULL;
    T_CODE(expected, hetmpi_iallreduce(data[0], data[1], 2, type, op, MPI_COMM_WORLD, &request));
    T_CHECK(request == HETMPI_REQUEST_NULL, "a refused call gave a request");
    for (size_t i = 0; i < sizeof data[1]; i++)
        if (!T_CHECK(data[1][i] == 0xA5 && data[0][i] == 1, "a refused call wrote byte %zu", i))
            break;
}

static void check_refusals(void)
{
    size_t bytes = 7;
    MPI_Datatype contiguous, vector;
    MPI_Op own;
    T_MPI(MPI_Type_contiguous(4, MPI_INT, &contiguous));
    T_MPI(MPI_Type_commit(&contiguous));
    T_MPI(MPI_Type_vector(2, 1, 3, MPI_FLOAT, &vector));
    T_MPI(MPI_Type_commit(&vector));
    T_MPI(MPI_Op_create(add_ints, 1, &own));
    refused(contiguous, MPI_SUM, HETMPI_ERR_TYPE, "derived type (contiguous)");
    refused(vector, MPI_SUM, HETMPI_ERR_TYPE, "derived type (vector)");
    refused(MPI_LONG_DOUBLE, MPI_SUM, HETMPI_ERR_TYPE, "MPI_LONG_DOUBLE");
    refused(MPI_FLOAT_INT, MPI_MAXLOC, HETMPI_ERR_TYPE, "MPI_FLOAT_INT");
    refused(MPI_2INT, MPI_MINLOC, HETMPI_ERR_TYPE, "MPI_2INT");
    refused(MPI_DATATYPE_NULL, MPI_SUM, HETMPI_ERR_TYPE, "MPI_DATATYPE_NULL");
    refused(MPI_INT, own, HETMPI_ERR_OP, "user-defined operation");
    refused(MPI_INT, MPI_OP_NULL, HETMPI_ERR_OP, "MPI_OP_NULL");
    refused(MPI_INT, MPI_REPLACE, HETMPI_ERR_OP, "MPI_REPLACE");
    refused(MPI_INT, MPI_MAXLOC, HETMPI_ERR_OP, "MPI_MAXLOC");
    T_CODE(HETMPI_ERR_TYPE, hetmpi_type_size(contiguous, &bytes));
    T_CODE(HETMPI_ERR_TYPE, hetmpi_type_size(MPI_DATATYPE_NULL, &bytes));
    T_CHECK(bytes == 7, "a refused hetmpi_type_size wrote %zu", bytes);
    MPI_Type_free(&contiguous);
    MPI_Type_free(&vector);
    MPI_Op_free(&own);
}

/* The types that MPI lacks must work in MPI's own calls that move data. */
static void check_own_types_in_mpi(void)
{
    const enum t_fmt own[] = { T_F16, T_BF16, T_E4M3, T_E5M2, T_E4M3_FNUZ, T_E5M2_FNUZ };
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        unsigned char data[2 * 5], expect[2 * 5];
        int size = 0;
        t_stage("MPI_Bcast of %s", t_fmt_name(own[i]));
        memset(expect, 0x31, sizeof expect);
        memset(data, t_rank == 0 ? 0x31 : 0, sizeof data);
        T_MPI(MPI_Type_size(t_mpi_type(own[i]), &size));
        T_CHECK((size_t)size == t_size(own[i]), "MPI_Type_size of %s gave %d", t_fmt_name(own[i]), size);
        T_MPI(MPI_Bcast(data, 5, t_mpi_type(own[i]), 0, MPI_COMM_WORLD));
        T_CHECK(memcmp(data, expect, 5 * t_size(own[i])) == 0, "MPI_Bcast moved other bytes");
    }
}

int main(int argc, char **argv)
{
    t_begin(&argc, &argv, "types_ops", MPI_THREAD_SINGLE);
    hetmpi_comm_info_t info;
    if (!T_OK(hetmpi_comm_info(MPI_COMM_WORLD, &info)))
        return t_end();
    islands = info.islands;
    joined = info.nodes > 1 && info.nodes < islands ? info.nodes : 0;
    patterns = t_malloc((size_t)t_ranks * sizeof *patterns);
    for (int r = 0; r < t_ranks; r++)
        patterns[r] = t_malloc(T_PATTERN * 16);
    want = t_malloc(T_PATTERN * 16);
    input = t_malloc(COUNT_MAX * 16);
    result = t_malloc(COUNT_MAX * 16);
    for (int p = 0; p < T_PLACES; p++) {
        t_buf_new(&send[p], (enum t_place)p, COUNT_MAX * 16);
        t_buf_new(&recv[p], (enum t_place)p, COUNT_MAX * 16);
    }
    check_all_pairs();
    check_names();
    check_refusals();
    check_own_types_in_mpi();
    for (int p = 0; p < T_PLACES; p++) {
        t_buf_free(&send[p]);
        t_buf_free(&recv[p]);
    }
    for (int r = 0; r < t_ranks; r++)
        free(patterns[r]);
    free(patterns);
    free(want);
    free(input);
    free(result);
    return t_end();
}
