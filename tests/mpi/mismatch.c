/*
 * Ranks that call different things: every rank gets HETMPI_ERR_MISMATCH with a message that names the rank and the
 * field, no receive buffer is written, and the next call on the communicator is right. Whatever the rank that
 * differs, the size of the message and the form of the call.
 *
 *     mismatch [multiple]
 */
#include "common.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind { ALLREDUCE, REDUCE, BCAST, ALLGATHER, REDUCE_SCATTER, BARRIER };
enum form { BLOCKING, NONBLOCKING, PERSISTENT, STREAM, FORMS };

struct what {
    enum kind kind;
    size_t count;
    MPI_Datatype type;
    MPI_Op op;
    int root;
    bool in_place;
};

#define COUNT_MAX 300001
#define STALE 0x3C

static struct t_buf send[T_PLACES], recv[T_PLACES];
static unsigned char *image;
static hetmpi_stream_t stream;
static bool stream_works;
static size_t used;   /* bytes of each buffer that a call of any kind may reach */

#define IN_FORM(name, ...)                                                             \
    (form == BLOCKING      ? hetmpi_##name(__VA_ARGS__, comm)                          \
     : form == NONBLOCKING ? hetmpi_i##name(__VA_ARGS__, comm, request)                \
     : form == STREAM      ? hetmpi_##name##_on_stream(__VA_ARGS__, comm, stream)      \
                           : hetmpi_##name##_init(__VA_ARGS__, comm, MPI_INFO_NULL, request))

static int call(const struct what *w, enum form form, void *in, void *out, MPI_Comm comm, hetmpi_request_t *request)
{
    if (w->in_place)
        in = MPI_IN_PLACE;
    switch (w->kind) {
    case ALLREDUCE: return IN_FORM(allreduce, in, out, w->count, w->type, w->op);
    case REDUCE: return IN_FORM(reduce, in, out, w->count, w->type, w->op, w->root);
    case BCAST: return IN_FORM(bcast, out, w->count, w->type, w->root);
    case ALLGATHER: return IN_FORM(allgather, in, w->count, w->type, out, w->count, w->type);
    case REDUCE_SCATTER: return IN_FORM(reduce_scatter_block, in, out, w->count, w->type, w->op);
    case BARRIER: break;
    }
    return form == BLOCKING      ? hetmpi_barrier(comm)
           : form == NONBLOCKING ? hetmpi_ibarrier(comm, request)
           : form == STREAM      ? hetmpi_barrier_on_stream(comm, stream)
                                 : hetmpi_barrier_init(comm, MPI_INFO_NULL, request);
}

static int call_and_wait(const struct what *w, enum form form, void *in, void *out, MPI_Comm comm, char *text)
{
    hetmpi_request_t request = HETMPI_REQUEST_NULL;
    MPI_Status status = { .MPI_ERROR = -1 };
    int code = call(w, form, in, out, comm, &request);
    if (form == PERSISTENT && code == HETMPI_SUCCESS)
        code = hetmpi_start(&request);
    if (form == STREAM) {
        T_OK(code);
        T_OK(hetmpi_stream_synchronize(stream));
        T_OK(hetmpi_comm_error(comm, &code));
        if (code)
            T_CODE(code, hetmpi_barrier(comm)); /* the next call tells it too, once */
    } else if (form != BLOCKING && code == HETMPI_SUCCESS) {
        code = hetmpi_wait(&request, &status);
        T_CHECK(status.MPI_ERROR == code, "wait returned %d, MPI_ERROR of the status is %d", code, status.MPI_ERROR);
    }
    snprintf(text, 512, "%s", hetmpi_last_error());
    if (form == PERSISTENT)
        T_OK(hetmpi_request_free(&request));
    else
        T_CHECK(request == HETMPI_REQUEST_NULL, "the request is still there after the error");
    return code;
}

static void next_call_is_right(MPI_Comm comm)
{
    int64_t x[300], sum = (int64_t)t_ranks * (t_ranks - 1) / 2;
    for (int i = 0; i < 300; i++)
        x[i] = t_rank + i;
    T_OK(hetmpi_allreduce(MPI_IN_PLACE, x, 300, MPI_INT64_T, MPI_SUM, comm));
    for (int i = 0; i < 300; i++)
        if (!T_CHECK(x[i] == sum + (int64_t)i * t_ranks, "the next call: element %d is %lld, not %lld", i,
                     (long long)x[i], (long long)(sum + (int64_t)i * t_ranks)))
            return;
}

static void differ(const struct what *base, const struct what *other, int bad, enum form form, const char *field,
                   unsigned turn, MPI_Comm comm)
{
    struct t_buf *from = &send[turn % T_PLACES], *to = &recv[(turn / 2) % T_PLACES];
    char text[512];
    t_stage("%s differs on rank %d, count %zu, form %d, %s to %s", field, bad, base->count, (int)form,
            t_place_name(from->place), t_place_name(to->place));
    t_buf_use(from, used, 0);
    t_buf_use(to, used, 0);
    t_buf_fill(from, 1);
    t_buf_fill(to, STALE);
    int code = call_and_wait(t_rank == bad ? other : base, form, from->data, to->data, comm, text);
    T_CHECK(code == HETMPI_ERR_MISMATCH, "%s instead of MISMATCH: %s", t_code_name(code), text);
    T_CHECK(t_names_rank(text, bad), "the message does not name rank %d: %s", bad, text);
    T_CHECK(strstr(text, field) != NULL, "the message does not name the field %s: %s", field, text);
    t_buf_get(to, image);
    size_t i = 0;
    while (i < used && image[i] == STALE)
        i++;
    T_CHECK(i == used, "byte %zu of the receive buffer was written", i);
    t_buf_guards(to);
    next_call_is_right(comm);
}

static void check_fields(MPI_Comm comm)
{
    static const size_t counts[] = { 1, 100, 5000, COUNT_MAX };
    const int bads[] = { 0, 1, t_ranks - 1 };
    int n_bads = t_ranks == 2 ? 2 : 3;
    unsigned turn = 0;
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        size_t n = counts[c], block = n / (size_t)t_ranks + 1;
        used = (n + 8 * (size_t)t_ranks) * 4;
        const struct what base = { ALLREDUCE, n, MPI_FLOAT, MPI_SUM, 0, false };
        const struct what reduce = { REDUCE, n, MPI_INT32_T, MPI_MAX, 0, false };
        const struct what bcast = { BCAST, n, MPI_FLOAT, MPI_SUM, 0, false };
        const struct what gather = { ALLGATHER, block, MPI_FLOAT, MPI_SUM, 0, false };
        const struct what scatter = { REDUCE_SCATTER, block, MPI_FLOAT, MPI_SUM, 0, false };
        struct { const char *field; struct what a, b; } cases[] = {
            { "kind", base, base }, { "kind", bcast, bcast }, { "kind", gather, scatter }, { "kind", reduce, reduce },
            { "count", base, base }, { "count", bcast, bcast }, { "count", gather, gather },
            { "count", scatter, scatter }, { "type", base, base }, { "type", scatter, scatter },
            { "type", gather, gather },
            { "op", base, base }, { "op", reduce, reduce }, { "op", scatter, scatter },
            { "root", bcast, bcast }, { "root", reduce, reduce },
            { "MPI_IN_PLACE", base, base }, { "MPI_IN_PLACE", gather, gather },
        };
        cases[0].b.kind = REDUCE;
        cases[1].b.kind = ALLREDUCE;
        cases[3].b = (struct what){ BARRIER, 0, MPI_FLOAT, MPI_SUM, 0, false };
        cases[4].b.count = n + 1;
        cases[5].b.count = 0;
        cases[6].b.count = block + 1;
        cases[7].b.count = block - 1;
        cases[8].b.type = MPI_INT32_T;    /* of the same size */
        cases[9].b.type = MPI_UINT8_T;
        cases[10].b.type = MPI_UINT32_T;
        cases[11].b.op = MPI_PROD;
        cases[12].b.op = MPI_MIN;
        cases[13].b.op = HETMPI_AVG;
        cases[14].b.root = t_ranks - 1;
        cases[15].b.root = 1;
        cases[16].b.in_place = true;
        cases[17].a.in_place = true;
        for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
            for (int b = 0; b < n_bads; b++, turn++) /* large ones: one form each */
                for (int form = 0; form < (stream_works ? FORMS : STREAM); form++)
                    if (n <= 100 || (int)(turn % (stream_works ? FORMS : STREAM)) == form)
                        differ(&cases[k].a, &cases[k].b, bads[b], (enum form)form, cases[k].field, turn, comm);
    }
}

/* A mismatch of one call among several in flight ends that call alone. */
static void check_one_of_several(MPI_Comm comm)
{
    enum { CALLS = 5, N = 20000 };
    int32_t *x[CALLS];
    hetmpi_request_t requests[CALLS];
    t_stage("one mismatch among %d calls in flight", CALLS);
    for (int c = 0; c < CALLS; c++) {
        x[c] = t_malloc(N * sizeof **x);
        for (int i = 0; i < N; i++)
            x[c][i] = i + c;
        size_t n = c == 2 && t_rank == 1 ? N - 1 : N;
        T_OK(hetmpi_iallreduce(MPI_IN_PLACE, x[c], n, MPI_INT32_T, MPI_SUM, comm, &requests[c]));
    }
    for (int c = 0; c < CALLS; c++)
        T_CODE(c == 2 ? HETMPI_ERR_MISMATCH : HETMPI_SUCCESS, hetmpi_wait(&requests[c], MPI_STATUS_IGNORE));
    for (int c = 0; c < CALLS; c++) {
        int factor = c == 2 ? 1 : t_ranks;
        for (int i = 0; i < N; i++)
            if (!T_CHECK(x[c][i] == (i + c) * factor, "call %d: element %d is %d, not %d", c, i, x[c][i],
                         (i + c) * factor))
                break;
        free(x[c]);
    }
}

/* Different forms, places and ways of one call are no mismatch. */
static void check_equal_calls(MPI_Comm comm)
{
    enum { N = 3000 };
    int32_t *in = t_malloc(N * sizeof *in);
    t_stage("different forms of one call");
    for (int round = 0; round < 6; round++) {
        struct t_buf *to = &recv[(t_rank + round) % T_PLACES];
        enum form form = (enum form)((t_rank + round / 2) % FORMS);
        const struct what w = { ALLREDUCE, N, MPI_INT32_T, MPI_SUM, 0, false };
        if (form == STREAM && !stream_works)
            form = BLOCKING;
        bool in_place = (t_rank + round) % 2;
        char text[512];
        for (int i = 0; i < N; i++)
            in[i] = i + t_rank;
        t_buf_use(to, N * sizeof *in, 0);
        t_buf_put(to, in);
        int code = call_and_wait(&w, form, in_place ? (void *)to->data : in, to->data, comm, text);
        T_CHECK(code == HETMPI_SUCCESS, "%s: %s", t_code_name(code), text);
        t_buf_get(to, in);
        for (int i = 0; i < N; i++)
            if (!T_CHECK(in[i] == i * t_ranks + t_ranks * (t_ranks - 1) / 2, "element %d is %d", i, in[i]))
                break;
    }
    /* MPI_INT and MPI_INT32_T are one format, as MPI_INTEGER is. */
    int32_t one = 1;
    T_OK(hetmpi_allreduce(MPI_IN_PLACE, &one, 1, t_rank % 2 ? MPI_INT : MPI_INT32_T, MPI_SUM, comm));
    T_CHECK(one == t_ranks, "sum of ones is %d", one);
    free(in);
}

int main(int argc, char **argv)
{
    bool multiple = argc > 1 && strcmp(argv[1], "multiple") == 0;
    t_begin(&argc, &argv, "mismatch", multiple ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE);
    if (t_ranks < 2)
        t_skip("one rank cannot disagree");
    size_t capacity = ((size_t)COUNT_MAX + 8 * (size_t)t_ranks) * 4;
    image = t_malloc(capacity);
    for (int p = 0; p < T_PLACES; p++) {
        t_buf_new(&send[p], (enum t_place)p, capacity);
        t_buf_new(&recv[p], (enum t_place)p, capacity);
    }
    stream_works = t_open_stream(&stream);
    check_fields(MPI_COMM_WORLD);
    check_one_of_several(MPI_COMM_WORLD);
    check_equal_calls(MPI_COMM_WORLD);
    for (int p = 0; p < T_PLACES; p++) {
        t_buf_free(&send[p]);
        t_buf_free(&recv[p]);
    }
    T_OK(hetmpi_stream_destroy(stream));
    free(image);
    return t_end();
}
