/*
 * Operations beyond MPI's own. A premultiplied sum is, bit for bit, MPI_SUM of the products, which are computed here a
 * second time: every type, every reduction, in place and not, every kind of memory, short and long. HETMPI_AVG in every
 * reduction. The two families of fp8 formats do not mix.
 */
#include "oracle.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT_MAX 65537

enum kind { ALLREDUCE, REDUCE, BLOCK, UNEVEN, SCAN, EXSCAN, KINDS };
static const char *const names[KINDS] = { "allreduce", "reduce", "reduce_scatter_block", "reduce_scatter", "scan",
                                          "exscan" };
enum form { BLOCKING, NONBLOCKING, PERSISTENT, FORMS };

static struct t_buf send[T_PLACES], recv[T_PLACES];
static unsigned char *input, *products, *result, *wanted, *pattern, *product;

static bool multiplies(enum t_fmt fmt) { return t_supported(fmt, T_SUM); }

/* ---- the products ---- */

/* Every rank another factor, and another again with each seed. */
static void make_factor(enum t_fmt fmt, int rank, unsigned seed, void *element)
{
    static const double factors[] = { 2, -0.5, 1, 3, 0.75, -1, 1.25, 0.3125, 0, -0.0 };
    unsigned n = sizeof factors / sizeof *factors;

    if (seed % 7 == 6 && rank == 1 && t_is_float(fmt))
        t_set_float(fmt, element, seed % 2 ? (long double)NAN : 1e30L);
    else
        t_set_number(fmt, element, factors[((unsigned)rank + seed) % n]);
}

/* ---- calls ---- */

struct shape { size_t in, out; size_t counts[64]; };

static struct shape shape_of(enum kind kind, size_t count)
{
    struct shape s = { count, count, { 0 } };
    if (kind == BLOCK) {
        s.out = count / (size_t)t_ranks;
        s.in = s.out * (size_t)t_ranks;
    } else if (kind == UNEVEN) {
        s.in = 0;
        for (int r = 0; r < t_ranks; r++)
            s.in += s.counts[r] = r == 1 ? 0 : count / (size_t)t_ranks + (size_t)r * 3;
        s.out = s.counts[t_rank];
    } else if (kind == REDUCE) {
        s.out = t_rank == t_ranks - 1 ? count : 0;
    } else if (kind == EXSCAN) {
        s.out = t_rank ? count : 0;
    }
    return s;
}

static int begin(enum kind kind, enum form form, const void *in, void *out, const struct shape *s, size_t count,
                 MPI_Datatype type, MPI_Op op, hetmpi_request_t *request)
{
    MPI_Comm comm = MPI_COMM_WORLD;
#define CALL(name, ...)                                                                      \
    (form == BLOCKING      ? hetmpi_##name(__VA_ARGS__, comm)                                \
     : form == NONBLOCKING ? hetmpi_i##name(__VA_ARGS__, comm, request)                      \
                           : hetmpi_##name##_init(__VA_ARGS__, comm, MPI_INFO_NULL, request))
    switch (kind) {
    case ALLREDUCE: return CALL(allreduce, in, out, count, type, op);
    case REDUCE: return CALL(reduce, in, out, count, type, op, t_ranks - 1);
    case BLOCK: return CALL(reduce_scatter_block, in, out, count / (size_t)t_ranks, type, op);
    case UNEVEN: return CALL(reduce_scatter, in, out, s->counts, type, op);
    case SCAN: return CALL(scan, in, out, count, type, op);
    default: return CALL(exscan, in, out, count, type, op);
    }
#undef CALL
}

/* One call on `data`: its result, s->out elements, to `to`. False: something was wrong. */
static bool run(enum kind kind, enum form form, enum t_fmt fmt, MPI_Op op, size_t count, bool in_place,
                const enum t_place place[2], const unsigned char *data, unsigned char *to)
{
    struct shape s = shape_of(kind, count);
    size_t size = t_size(fmt), room = in_place && s.in > s.out ? s.in : s.out;
    struct t_buf *from = &send[place[0]], *into = &recv[place[1]];
    bool shared = in_place && (kind != REDUCE || t_rank == t_ranks - 1), ok;
    hetmpi_request_t request = HETMPI_REQUEST_NULL;

    t_buf_use(from, s.in * size, 0);
    t_buf_use(into, room * size, 0);
    t_buf_fill(into, 0x5A);
    t_buf_put(from, data);
    if (shared) {
        memcpy(result, data, s.in * size);
        memset(result + s.in * size, 0x5A, room > s.in ? (room - s.in) * size : 0);
        t_buf_put(into, result);
    }
    ok = T_OK(begin(kind, form, shared ? MPI_IN_PLACE : from->data, into->data, &s, count, t_mpi_type(fmt), op, &request));
    for (int i = 0; i < (form == PERSISTENT ? 2 : 1) && form != BLOCKING && ok; i++) {
        if (form == PERSISTENT) {
            if (shared)   /* the last result stands there */
                t_buf_put(into, result);
            ok = T_OK(hetmpi_start(&request));
        }
        ok &= T_OK(hetmpi_wait(&request, MPI_STATUS_IGNORE));
    }
    if (form == PERSISTENT)
        ok &= T_OK(hetmpi_request_free(&request));
    ok &= t_buf_guards(from);
    ok &= t_buf_guards(into);
    if (!shared) {
        t_buf_get(from, result);
        ok &= T_CHECK(memcmp(result, data, s.in * size) == 0, "the send buffer was changed");
    }
    t_buf_get(into, result);
    memcpy(to, result, s.out * size);
    return ok;
}

static void choose_places(unsigned turn, enum t_place place[2], bool in_place)
{
    static const enum t_place pairs[][2] = { { T_PAGEABLE, T_PAGEABLE }, { T_DEVICE, T_DEVICE }, { T_PINNED, T_PINNED },
                                             { T_PAGEABLE, T_DEVICE }, { T_DEVICE, T_PAGEABLE } };
    unsigned pick = (turn % 6 == 5 ? turn + (unsigned)t_rank : turn) % 5;
    place[0] = pairs[pick][0];
    place[1] = pairs[pick][1];
    if (in_place)
        place[0] = T_PAGEABLE;
}

/* ---- premultiplied sums ---- */

static void compare(enum kind kind, enum form form, enum t_fmt fmt, size_t count, bool in_place, unsigned turn,
                    enum t_data data, uint64_t *hash)
{
    size_t size = t_size(fmt), all = shape_of(kind, count).in, out = shape_of(kind, count).out;
    unsigned char factor[16];
    enum t_place place[2];
    MPI_Op op;

    choose_places(turn, place, in_place);
    t_stage("%s %s, count %zu%s, form %d, %s to %s", t_fmt_name(fmt), names[kind], count, in_place ? ", in place" : "",
            (int)form, t_place_name(place[0]), t_place_name(place[1]));
    t_pattern(fmt, T_SUM, data, turn, t_rank, pattern);
    make_factor(fmt, t_rank, turn, factor);
    for (size_t i = 0; i < T_PATTERN; i++)
        t_multiply(fmt, factor, pattern + i * size, product + i * size);
    t_repeat(input, pattern, size, 0, all);
    t_repeat(products, product, size, 0, all);
    if (!T_OK(hetmpi_op_create_premul_sum(factor, t_mpi_type(fmt), &op)))
        return;
    memset(factor, 0xFF, sizeof factor);   /* it was read */
    bool ok = run(kind, form, fmt, op, count, in_place, place, input, wanted + out * size);
    T_OK(hetmpi_op_free(&op));
    T_CHECK(op == MPI_OP_NULL, "hetmpi_op_free left the handle");
    ok &= run(kind, BLOCKING, fmt, MPI_SUM, count, in_place, place, products, wanted);
    for (size_t i = 0; ok && i < out * size; i++)
        ok = T_CHECK(wanted[i] == wanted[out * size + i], "byte %zu of %zu differs from the sum of the products", i,
                     out * size);
    if (kind == ALLREDUCE)
        *hash = t_fold(*hash, wanted + out * size, out * size);
}

static void check_premul(void)
{
    static const size_t counts[] = { 1, 17, 1000, 9001, COUNT_MAX };
    uint64_t hash = 0;
    unsigned turn = 0;

    for (int fmt = 0; fmt < T_FMTS; fmt++) {
        if (!multiplies((enum t_fmt)fmt))
            continue;
        for (int kind = 0; kind < KINDS; kind++)
            for (int large = 0; large < 2; large++, turn++) {
                size_t count = large ? counts[turn % 8 == 3 ? 4 : 3] : counts[turn % 3];
                compare((enum kind)kind, (enum form)(turn / 2 % FORMS), (enum t_fmt)fmt, count, turn / 3 % 2, turn,
                        turn % 5 ? T_RANDOM : T_SPECIAL, &hash);
            }
    }
    /* In place and not, of every kind of memory: what is staged, and in which order, depends on them. */
    for (int kind = 0; kind < KINDS; kind++)
        for (int p = 0; p < 12; p++)
            compare((enum kind)kind, BLOCKING, T_BF16, p % 4 ? 20011 : 400, p >= 6, (unsigned)p, T_RANDOM, &hash);
    t_same_everywhere(MPI_COMM_WORLD, hash, "premultiplied sums");
}

static bool says(const char *what)
{
    return T_CHECK(strstr(hetmpi_last_error(), what) != NULL, "the message does not say \"%s\": %s", what,
                   hetmpi_last_error());
}

static void check_op_handles(void)
{
    float factor = 3, x = 2, y = 0;
    void *there;
    MPI_Datatype derived;
    MPI_Op op = MPI_OP_NULL, other = MPI_OP_NULL;

    t_stage("handles of operations");
    T_CODE(HETMPI_ERR_ARG, hetmpi_op_create_premul_sum(NULL, MPI_FLOAT, &op));
    T_CODE(HETMPI_ERR_ARG, hetmpi_op_create_premul_sum(&factor, MPI_FLOAT, NULL));
    T_CODE(HETMPI_ERR_ARG, hetmpi_op_free(NULL));
    T_CODE(HETMPI_ERR_OP, hetmpi_op_create_premul_sum(&factor, MPI_BYTE, &op));
    says("byte");
    T_CODE(HETMPI_ERR_OP, hetmpi_op_create_premul_sum(&factor, MPI_C_BOOL, &op));
    says("bool");
    T_CODE(HETMPI_ERR_OP, hetmpi_op_create_premul_sum(&factor, MPI_CHAR, &op));
    says("char");
    T_CODE(HETMPI_ERR_TYPE, hetmpi_op_create_premul_sum(&factor, MPI_LONG_DOUBLE, &op));
    T_MPI(MPI_Type_contiguous(2, MPI_FLOAT, &derived));
    T_CODE(HETMPI_ERR_TYPE, hetmpi_op_create_premul_sum(&factor, derived, &op));
    T_MPI(MPI_Type_free(&derived));
    T_CHECK(op == MPI_OP_NULL, "a refused hetmpi_op_create_premul_sum wrote its handle");
    op = MPI_SUM;
    T_CODE(HETMPI_ERR_OP, hetmpi_op_free(&op));
    op = HETMPI_AVG;
    T_CODE(HETMPI_ERR_OP, hetmpi_op_free(&op));

    T_OK(hetmpi_op_create_premul_sum(&factor, MPI_FLOAT, &op));
    T_OK(hetmpi_malloc(sizeof factor, HETMPI_MEM_DEVICE, &there));
    factor = 5;
    T_OK(hetmpi_memcpy(there, &factor, sizeof factor));
    T_OK(hetmpi_op_create_premul_sum(there, MPI_FLOAT, &other));
    T_OK(hetmpi_free(there));
    T_CODE(HETMPI_ERR_OP, hetmpi_allreduce(&x, &y, 1, MPI_INT, op, MPI_COMM_WORLD));
    says("float32");
    says("int32");
    T_CHECK(y == 0, "a refused call wrote its receive buffer");
    T_OK(hetmpi_allreduce(&x, &y, 1, MPI_FLOAT, op, MPI_COMM_WORLD));
    T_CHECK(y == 6 * (float)t_ranks, "sum of 2 * 3 over %d ranks is %g", t_ranks, (double)y);
    T_OK(hetmpi_allreduce(&x, &y, 1, MPI_FLOAT, other, MPI_COMM_WORLD));
    T_CHECK(y == 10 * (float)t_ranks, "sum of 2 * 5 over %d ranks is %g", t_ranks, (double)y);
    T_OK(hetmpi_op_free(&op));   /* `other` is freed in MPI_Finalize */
    T_CODE(HETMPI_ERR_OP, hetmpi_op_free(&op));
    T_CODE(HETMPI_ERR_OP, hetmpi_allreduce(&x, &y, 1, MPI_FLOAT, op, MPI_COMM_WORLD));
}

/* A request keeps its operation. */
static void check_freed_op(size_t count)
{
    float factor = 0.5f, *x = t_malloc(count * sizeof *x), *y = t_malloc(count * sizeof *y);
    hetmpi_request_t request;
    MPI_Op op;

    t_stage("an operation that is freed first, count %zu", count);
    T_OK(hetmpi_op_create_premul_sum(&factor, MPI_FLOAT, &op));
    T_OK(hetmpi_allreduce_init(x, y, count, MPI_FLOAT, op, MPI_COMM_WORLD, MPI_INFO_NULL, &request));
    T_OK(hetmpi_op_free(&op));
    for (int turn = 0; turn < 3; turn++) {
        for (size_t i = 0; i < count; i++)
            x[i] = (float)(turn + t_rank);
        T_OK(hetmpi_start(&request));
        T_OK(hetmpi_wait(&request, MPI_STATUS_IGNORE));
        float want = 0.5f * (float)(t_ranks * turn + t_ranks * (t_ranks - 1) / 2);
        for (size_t i = 0; i < count; i++)
            if (!T_CHECK(y[i] == want, "element %zu is %g, not %g", i, (double)y[i], (double)want))
                break;
    }
    T_OK(hetmpi_request_free(&request));
    free(x);
    free(y);
}

static void check_stream(void)
{
    enum { COUNT = 3001 };
    double factor = 1.0 + t_rank, host[COUNT];
    hetmpi_stream_t stream;
    struct t_buf *x = &send[T_DEVICE];
    MPI_Op op;
    int code;

    t_stage("on a stream");
    T_OK(hetmpi_op_create_premul_sum(&factor, MPI_DOUBLE, &op));
    T_OK(hetmpi_stream_create(&stream));
    t_buf_use(x, sizeof host, 0);
    for (int i = 0; i < COUNT; i++)
        host[i] = i;
    t_buf_put(x, host);
    code = hetmpi_allreduce_on_stream(MPI_IN_PLACE, x->data, COUNT, MPI_DOUBLE, op, MPI_COMM_WORLD, stream);
    if (code != HETMPI_ERR_UNSUPPORTED && T_OK(code)) {   /* no thread of hetmpi's own is allowed here */
        T_OK(hetmpi_stream_synchronize(stream));
        t_buf_get(x, host);
        for (int i = 0; i < COUNT; i++)
            if (!T_CHECK(host[i] == i * t_ranks * (t_ranks + 1) / 2.0, "element %d is %g", i, host[i]))
                break;
    }
    T_OK(hetmpi_stream_destroy(stream));
    T_OK(hetmpi_op_free(&op));
}

/* ---- averages ---- */

static void check_avg_kinds(void)
{
    static const size_t counts[] = { 12, 1000, 30011 };
    const unsigned char *patterns[64];
    unsigned char *all = t_malloc((size_t)t_ranks * T_PATTERN * 16);
    enum t_place place[2];
    unsigned turn = 0;

    for (int fmt = 0; fmt < T_FMTS; fmt++) {
        if (!t_supported((enum t_fmt)fmt, T_AVG))
            continue;
        size_t size = t_size((enum t_fmt)fmt);
        for (int kind = ALLREDUCE; kind <= UNEVEN; kind++, turn++) {
            size_t count = counts[turn % 3], first = 0;
            bool in_place = turn / 3 % 2;
            struct shape s = shape_of((enum kind)kind, count);
            for (int r = 0; r < t_ranks; r++) {
                patterns[r] = all + (size_t)r * T_PATTERN * size;
                t_pattern((enum t_fmt)fmt, T_AVG, T_EXACT, turn, r, all + (size_t)r * T_PATTERN * size);
            }
            t_oracle((enum t_fmt)fmt, T_AVG, (const void *const *)patterns, t_ranks, product);
            t_repeat(input, patterns[t_rank], size, 0, s.in);
            choose_places(turn, place, in_place);
            t_stage("average, %s %s, count %zu", t_fmt_name((enum t_fmt)fmt), names[kind], count);
            for (int r = 0; r < t_rank; r++)
                first += kind == BLOCK ? s.out : s.counts[r];
            if (run((enum kind)kind, (enum form)(turn % FORMS), (enum t_fmt)fmt, HETMPI_AVG, count, in_place, place, input,
                    wanted) && s.out)
                t_expect((enum t_fmt)fmt, wanted, product, first, s.out, "average");
        }
    }
    T_CODE(HETMPI_ERR_OP, hetmpi_scan(input, wanted, 1, MPI_INT, HETMPI_AVG, MPI_COMM_WORLD));
    T_CODE(HETMPI_ERR_OP, hetmpi_exscan(input, wanted, 1, MPI_INT, HETMPI_AVG, MPI_COMM_WORLD));
    free(all);
}

/* What programs met elsewhere. */
static void check_avg_cases(void)
{
    static const int32_t up[3] = { 1, 2, 4 };
    int32_t i, whole;
    float f, third;
    uint16_t copy[40], from[40];

    t_stage("averages of three ranks, and of one");
    if (t_ranks == 3) {
        for (int sign = 1; sign >= -1; sign -= 2) {
            i = sign * up[t_rank];
            T_OK(hetmpi_allreduce(&i, &whole, 1, MPI_INT32_T, HETMPI_AVG, MPI_COMM_WORLD));
            T_CHECK(whole == sign * 2, "average of %d {1,2,4} is %d", sign, whole);
            f = (float)i;
            T_OK(hetmpi_allreduce(&f, &third, 1, MPI_FLOAT, HETMPI_AVG, MPI_COMM_WORLD));
            T_CHECK(third == (float)sign * (7.0f / 3.0f), "average of %d {1,2,4} is %.9g", sign, (double)third);
        }
    }
    for (int n = 0; n < 40; n++)
        t_set_float(T_BF16, &from[n], n + 1);
    T_OK(hetmpi_allreduce(from, copy, 40, HETMPI_BFLOAT16, HETMPI_AVG, MPI_COMM_SELF));
    T_CHECK(memcmp(copy, from, sizeof copy) == 0, "an average over one rank is no copy");
    T_OK(hetmpi_allreduce(from, copy, 40, HETMPI_BFLOAT16, HETMPI_AVG, MPI_COMM_WORLD));   /* all ranks have the same */
    T_CHECK(memcmp(copy, from, sizeof copy) == 0, "an average of equal numbers is another");
}

/* ---- what does not go together ---- */

static void check_families(void)
{
    static const enum t_fmt pairs[][2] = { { T_E4M3, T_E4M3_FNUZ }, { T_E5M2_FNUZ, T_E5M2 }, { T_E4M3, T_E5M2_FNUZ } };
    static const size_t counts[] = { 5, 40000 };
    unsigned char *x = t_malloc(40000), *y = t_malloc(40000 * (size_t)t_ranks);

    if (t_ranks == 1)
        goto done;
    for (unsigned turn = 0; turn < 6; turn++) {
        size_t n = counts[turn % 2];
        const enum t_fmt *pair = pairs[turn / 2];
        MPI_Datatype type = t_mpi_type(pair[t_rank > 0]);
        bool first_ocp = pair[0] == T_E4M3 || pair[0] == T_E5M2;
        t_stage("families of fp8, turn %u", turn);
        memset(x, 0, n);
        memset(y, 0x77, n * (size_t)t_ranks);
        for (int what = 0; what < 3; what++) {
            int code = what == 0   ? hetmpi_allreduce(x, y, n, type, MPI_SUM, MPI_COMM_WORLD)
                       : what == 1 ? hetmpi_bcast(y, n, type, 0, MPI_COMM_WORLD)
                                   : hetmpi_allgather(x, n, type, y, n, type, MPI_COMM_WORLD);
            T_CODE(HETMPI_ERR_MISMATCH, code);
            says("type of rank 1");
            says(first_ocp ? "of the FNUZ family and of the OCP family (rank 0's)"
                           : "of the OCP family and of the FNUZ family (rank 0's)");
            says("let all ranks use one family");
            for (size_t i = 0; i < n * (size_t)t_ranks; i++)
                if (!T_CHECK(y[i] == 0x77, "a refused call wrote byte %zu", i))
                    break;
        }
        /* One family on all ranks, whatever their vendors: fine. */
        T_OK(hetmpi_allreduce(x, y, n, t_mpi_type(pair[0]), MPI_SUM, MPI_COMM_WORLD));
        T_CHECK(y[0] == 0 && y[n - 1] == 0, "a sum of zeros is none");
    }
    /* Types of one family that differ: a plain mismatch. */
    T_CODE(HETMPI_ERR_MISMATCH, hetmpi_bcast(y, 3, t_mpi_type(t_rank ? T_E4M3 : T_E5M2), 0, MPI_COMM_WORLD));
    T_CHECK(!strstr(hetmpi_last_error(), "family"), "one family is told as two: %s", hetmpi_last_error());
done:
    free(x);
    free(y);
}

static void check_premul_mismatch(size_t count)
{
    float factor = 2, *x = t_malloc(count * sizeof *x), *y = t_malloc(count * sizeof *y);
    MPI_Op op;

    t_stage("a premultiplied sum on some ranks");
    for (size_t i = 0; i < count; i++)
        x[i] = y[i] = 1;
    T_OK(hetmpi_op_create_premul_sum(&factor, MPI_FLOAT, &op));
    if (t_ranks > 1) {
        T_CODE(HETMPI_ERR_MISMATCH, hetmpi_allreduce(x, y, count, MPI_FLOAT, t_rank ? op : MPI_SUM, MPI_COMM_WORLD));
        says("the op of rank 1 differs");
        says("premul_sum");
        T_CHECK(y[0] == 1, "a refused call wrote its receive buffer");
    }
    T_OK(hetmpi_allreduce(x, y, count, MPI_FLOAT, op, MPI_COMM_WORLD));
    T_CHECK(y[count - 1] == 2 * (float)t_ranks, "the sum is %g", (double)y[count - 1]);
    T_OK(hetmpi_op_free(&op));
    free(x);
    free(y);
}

int main(int argc, char **argv)
{
    size_t room = (COUNT_MAX + 1024) * 16;

    t_begin(&argc, &argv, "ops", MPI_THREAD_MULTIPLE);
    input = t_malloc(room);
    products = t_malloc(room);
    result = t_malloc(room);
    wanted = t_malloc(2 * room);
    pattern = t_malloc(T_PATTERN * 16);
    product = t_malloc(T_PATTERN * 16);
    for (int p = 0; p < T_PLACES; p++) {
        t_buf_new(&send[p], (enum t_place)p, room);
        t_buf_new(&recv[p], (enum t_place)p, room);
    }
    check_premul();
    check_op_handles();
    check_freed_op(3);
    check_freed_op(30011);
    check_stream();
    check_avg_kinds();
    check_avg_cases();
    check_families();
    check_premul_mismatch(2);
    check_premul_mismatch(30011);
    for (int p = 0; p < T_PLACES; p++) {
        t_buf_free(&send[p]);
        t_buf_free(&recv[p]);
    }
    free(input);
    free(products);
    free(result);
    free(wanted);
    free(pattern);
    free(product);
    return t_end();
}
