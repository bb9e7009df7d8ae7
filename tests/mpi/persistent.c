/*
 * Persistent collectives: starting one costs no allocation and no system call, the whole round no allocation; they can be
 * started and waited for in any order, again after an error, while others are planned, and freed while active.
 * Argument "costs": the first; else the rest.
 */
#include "common.h"
#include "watched.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind { ALLREDUCE, PREMUL, REDUCE, BCAST, ALLGATHER, REDUCE_SCATTER, UNEVEN, ALLTOALL, GATHERV, SCATTERV, SCAN, BARRIER,
            KINDS };
static const char *const names[KINDS] = { "allreduce", "premultiplied allreduce", "reduce", "bcast", "allgather",
                                          "reduce_scatter_block", "reduce_scatter", "alltoall", "gatherv", "scatterv",
                                          "scan", "barrier" };

#define UNTOUCHED ((int64_t)0xEEEEEEEEEEEEEEEE)

/* One persistent call of 64-bit integers; element i of rank r's input is r * 1000 + i % 911 + round. */
struct call {
    enum kind kind;
    size_t count;              /* of a block, for kinds of blocks */
    hetmpi_request_t request;
    struct t_buf send, recv;
    int64_t *host;
    int64_t round;
};

static MPI_Op twice;           /* a premultiplied sum: each rank's elements times (rank + 1) */

static bool has_blocks(enum kind kind)
{
    return kind == ALLGATHER || kind == REDUCE_SCATTER || kind == UNEVEN || kind == ALLTOALL || kind == GATHERV ||
           kind == SCATTERV;
}

/* From another island data may come before this rank asks for them: where none flow back, or it waits for a third rank.
 * The root of gatherv and scatterv is the last rank, and the one before it is of another island where there are several. */
static bool gets_early(enum kind kind)
{
    if (kind == GATHERV || kind == SCATTERV)
        return t_rank != (kind == GATHERV ? t_ranks - 2 : t_ranks - 1);
    return kind == BCAST || t_ranks > 2;
}

static int64_t input(int rank, size_t i, int64_t round)
{
    return rank * 1000 + (int64_t)(i % 911) + round;
}

static void fill(struct call *c)
{
    size_t n = c->send.bytes / sizeof(int64_t);

    c->round++;
    for (size_t i = 0; i < n; i++)
        c->host[i] = input(t_rank, i, c->round);
    t_buf_put(&c->send, c->host);
    if (c->kind == BCAST && t_rank == 0)
        t_buf_put(&c->recv, c->host);
    else
        t_buf_fill(&c->recv, (unsigned char)UNTOUCHED);
}

static size_t uneven(int rank, size_t count)
{
    return rank % 2 ? count / 2 : count;
}

/* What element i of this rank's result is. */
static int64_t expected(const struct call *c, size_t i)
{
    int64_t sum = 0;
    size_t at = i;

    switch (c->kind) {
    case BCAST:
        return input(0, i, c->round);
    case ALLGATHER:
        return input((int)(i / c->count), i % c->count, c->round);
    case ALLTOALL:
        return input((int)(i / c->count), (size_t)t_rank * c->count + i % c->count, c->round);
    case GATHERV:
        return i % c->count < uneven((int)(i / c->count), c->count) ? input((int)(i / c->count), i % c->count, c->round)
                                                                    : UNTOUCHED;
    case SCATTERV:
        return input(t_ranks - 1, (size_t)t_rank * c->count + i, c->round);
    case REDUCE_SCATTER:
        at = (size_t)t_rank * c->count + i;
        break;
    case UNEVEN:
        for (int r = 0; r < t_rank; r++)
            at += uneven(r, c->count);
        break;
    default:
        break;
    }
    for (int r = 0; r < (c->kind == SCAN ? t_rank + 1 : t_ranks); r++)
        sum += input(r, at, c->round) * (c->kind == PREMUL ? r + 1 : 1);
    return sum;
}

static bool right(struct call *c)
{
    size_t n = c->recv.bytes / sizeof(int64_t);

    t_buf_guards(&c->recv);
    if (c->kind == BARRIER || ((c->kind == REDUCE || c->kind == GATHERV) && t_rank != t_ranks - 1))
        return true;
    if (c->kind == UNEVEN || c->kind == SCATTERV)
        n = uneven(t_rank, c->count);
    t_buf_get(&c->recv, c->host);
    for (size_t i = 0; i < n; i++)
        if (!T_CHECK(c->host[i] == expected(c, i), "%s of %zu, round %lld: element %zu is %lld, not %lld", names[c->kind],
                     c->count, (long long)c->round, i, (long long)c->host[i], (long long)expected(c, i)))
            return false;
    return true;
}

static void open_call(struct call *c, enum kind kind, size_t count, enum t_place place, MPI_Comm comm)
{
    size_t all = count * (size_t)t_ranks, send = kind == BARRIER ? 0 : kind == ALLGATHER ? count : all;
    size_t recv = kind == BARRIER ? 0 : kind == ALLGATHER || kind == ALLTOALL || kind == GATHERV ? all : count;
    size_t counts[64], displs[64], own = uneven(t_rank, count);
    MPI_Datatype type = MPI_INT64_T;
    int code;

    if (!has_blocks(kind) && kind != BARRIER)
        send = count;
    *c = (struct call){.kind = kind, .count = count};
    c->host = t_malloc(all * sizeof(int64_t) + 1);
    t_buf_new(&c->send, place, send * sizeof(int64_t));
    t_buf_new(&c->recv, place, recv * sizeof(int64_t));
    t_buf_use(&c->send, send * sizeof(int64_t), 0);
    t_buf_use(&c->recv, recv * sizeof(int64_t), 0);
    for (int r = 0; r < t_ranks; r++) {
        counts[r] = uneven(r, count);
        displs[r] = (size_t)r * count;
    }
    void *in = c->send.data, *out = c->recv.data;
#define INIT(name, ...) hetmpi_##name##_init(__VA_ARGS__, comm, MPI_INFO_NULL, &c->request)
    switch (kind) {
    case ALLREDUCE: code = INIT(allreduce, in, out, count, type, MPI_SUM); break;
    case PREMUL: code = INIT(allreduce, in, out, count, type, twice); break;
    case REDUCE: code = INIT(reduce, in, out, count, type, MPI_SUM, t_ranks - 1); break;
    case BCAST: code = INIT(bcast, out, count, type, 0); break;
    case ALLGATHER: code = INIT(allgather, in, count, type, out, count, type); break;
    case REDUCE_SCATTER: code = INIT(reduce_scatter_block, in, out, count, type, MPI_SUM); break;
    case UNEVEN: code = INIT(reduce_scatter, in, out, counts, type, MPI_SUM); break;
    case ALLTOALL: code = INIT(alltoall, in, count, type, out, count, type); break;
    case GATHERV: code = INIT(gatherv, in, own, type, out, counts, displs, type, t_ranks - 1); break;
    case SCATTERV: code = INIT(scatterv, in, counts, displs, type, out, own, type, t_ranks - 1); break;
    case SCAN: code = INIT(scan, in, out, count, type, MPI_SUM); break;
    default: code = hetmpi_barrier_init(comm, MPI_INFO_NULL, &c->request); break;
    }
#undef INIT
    memset(displs, 0xFF, sizeof displs);
    memset(counts, 0xFF, sizeof counts);   /* a persistent call keeps the counts that it was made with */
    if (!T_OK(code))
        t_fatal("%s_init: %s", names[kind], hetmpi_last_error());
}

static void close_call(struct call *c)
{
    T_OK(hetmpi_request_free(&c->request));
    T_CHECK(c->request == HETMPI_REQUEST_NULL, "hetmpi_request_free left the handle");
    t_buf_free(&c->send);
    t_buf_free(&c->recv);
    free(c->host);
}

/* ---- costs ---- */

enum { WARM = 3, ROUNDS = 20 };

/* One round; `whole`: the wait is measured too. */
static void measure(struct call *c, bool whole, bool first)
{
    struct watched start, round = {0, -1};
    int code, waited;

    fill(c);
    watched_begin(true);
    code = hetmpi_start(&c->request);
    start = watched_end();
    watched_begin(false);
    waited = hetmpi_wait(&c->request, MPI_STATUS_IGNORE);
    round = watched_end();
    T_OK(code);
    T_OK(waited);
    right(c);
    T_CHECK(start.allocations == 0, "%s of %zu: starting it made %ld calls of memory functions", names[c->kind], c->count,
            start.allocations);
    T_CHECK(start.first_call == -1, "%s of %zu: starting it made system call %ld", names[c->kind], c->count,
            start.first_call);
    if (whole && !first)
        T_CHECK(round.allocations == 0, "%s of %zu: waiting for it made %ld calls of memory functions", names[c->kind],
                c->count, round.allocations);
}

/* Waiting costs no allocation where no device and no MPI works for the call, and where nothing comes early: a wire moves
 * that out of the way of a sender that is far ahead. */
static void costs_of(enum kind kind, size_t count, enum t_place place, bool whole)
{
    struct call c;

    t_stage("%s of %zu in %s memory", names[kind], count, t_place_name(place));
    open_call(&c, kind, count, place, MPI_COMM_WORLD);
    for (int i = 0; i < WARM + ROUNDS; i++)
        measure(&c, whole, i < WARM);
    close_call(&c);
}

/* The first waits of the process that last: they look around, and let MPI work. */
static void check_long_waits(void)
{
    struct call c;

    t_stage("waits that last");
    open_call(&c, BARRIER, 0, T_PAGEABLE, MPI_COMM_WORLD);
    for (int late = 0; late < t_ranks; late++) {
        if (t_rank == late)
            t_sleep(0.03);
        measure(&c, true, false);
    }
    close_call(&c);
}

static void check_costs(void)
{
    static const size_t counts[] = { 1, 200, 60001 };   /* 8 bytes, the short cut, the pipeline */
    const char *reason = watched_open();
    hetmpi_comm_info_t info;
    int why = reason != NULL, any;

    T_MPI(MPI_Allreduce(&why, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD));
    if (any)
        t_skip("%s", reason ? reason : "another rank cannot watch itself");
    T_OK(hetmpi_comm_info(MPI_COMM_WORLD, &info));
    check_long_waits();
    for (int kind = 0; kind < KINDS; kind++)
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
            bool small = counts[i] < 1000;
            bool whole = small || (info.device < 0 && (info.islands == 1 || !gets_early(kind)));
            costs_of((enum kind)kind, counts[i], T_PAGEABLE, whole);
            if (!small && info.device >= 0)   /* where a short message is copied first, that is the device's business */
                costs_of((enum kind)kind, counts[i], T_DEVICE, false);
        }
}

/* ---- the rest ---- */

enum { CALLS = 5 };

static void start_and_wait(struct call calls[CALLS], int turn)
{
    static const int orders[4][CALLS] = { { 4, 3, 2, 1, 0 }, { 2, 0, 4, 1, 3 }, { 0, 1, 2, 3, 4 }, { 1, 4, 0, 3, 2 } };
    hetmpi_request_t all[CALLS];
    int flag = 0, index;

    for (int i = 0; i < CALLS; i++) {
        fill(&calls[i]);
        if (turn % 3 == 0)
            T_OK(hetmpi_start(&calls[i].request));
        all[i] = calls[i].request;
    }
    if (turn % 3 == 1) {
        T_OK(hetmpi_startall(CALLS, all));
    } else if (turn % 3 == 2) {
        T_OK(hetmpi_group_start());
        T_OK(hetmpi_startall(CALLS, all));
        T_OK(hetmpi_group_end());
    }
    if (turn % 4 == 3) {
        for (int i = 0; i < CALLS; i++)
            T_OK(hetmpi_waitany(CALLS, all, &index, MPI_STATUS_IGNORE));
    } else if (turn % 4 == 2) {
        while (T_OK(hetmpi_testall(CALLS, all, &flag, MPI_STATUSES_IGNORE)) && !flag)
            t_yield();
    } else {
        for (int i = 0; i < CALLS; i++)
            T_OK(hetmpi_wait(&calls[orders[(turn + t_rank) % 4][i]].request, MPI_STATUS_IGNORE));
    }
    for (int i = 0; i < CALLS; i++)
        right(&calls[i]);
}

static void check_orders(enum t_place place)
{
    struct call calls[CALLS];

    t_stage("several, in %s memory", t_place_name(place));
    open_call(&calls[0], ALLREDUCE, 1, place, MPI_COMM_WORLD);
    open_call(&calls[1], ALLREDUCE, 30011, place, MPI_COMM_WORLD);
    open_call(&calls[2], PREMUL, 70001, place, MPI_COMM_WORLD);
    open_call(&calls[3], ALLTOALL, 3, place, MPI_COMM_WORLD);
    open_call(&calls[4], BCAST, 20011, place, MPI_COMM_WORLD);
    for (int turn = 0; turn < 12; turn++)
        start_and_wait(calls, turn);
    for (int i = 0; i < CALLS; i++)
        close_call(&calls[i]);
}

/* Planned while a smaller call runs: what both use must not move under it. */
static void check_planning_meanwhile(void)
{
    hetmpi_request_t running;
    struct call later, small;
    size_t n = 40009;
    int64_t *x = t_malloc(n * sizeof *x);

    for (int turn = 0; turn < 4; turn++) {
        t_stage("planned while another runs, turn %d", turn);
        for (size_t i = 0; i < n; i++)
            x[i] = input(t_rank, i, turn);
        T_OK(hetmpi_iallreduce(MPI_IN_PLACE, x, n, MPI_INT64_T, MPI_MAX, MPI_COMM_WORLD, &running));
        open_call(&later, turn % 2 ? ALLREDUCE : UNEVEN, 150001, turn < 2 ? T_PAGEABLE : T_DEVICE, MPI_COMM_WORLD);
        open_call(&small, SCAN, 7, T_PAGEABLE, MPI_COMM_WORLD);
        for (int i = 0; i < 2; i++) {
            fill(&later);
            fill(&small);
            T_OK(hetmpi_start(&later.request));
            T_OK(hetmpi_start(&small.request));
            T_OK(hetmpi_wait(&running, MPI_STATUS_IGNORE));
            T_OK(hetmpi_wait(&small.request, MPI_STATUS_IGNORE));
            T_OK(hetmpi_wait(&later.request, MPI_STATUS_IGNORE));
            right(&later);
            right(&small);
        }
        for (size_t i = 0; i < n; i += 97)
            if (!T_CHECK(x[i] == input(t_ranks - 1, i, turn), "element %zu of the call that ran is %lld", i, (long long)x[i]))
                break;
        close_call(&later);
        close_call(&small);
    }
    free(x);
}

/* More schedules than a communicator keeps, while a request holds one of them. */
static void check_kept_schedule(void)
{
    size_t n = 30011;
    struct call kept;
    int64_t *x = t_malloc(n * sizeof *x), *y = t_malloc(n * (size_t)t_ranks * sizeof *y);
    uint16_t *half = t_malloc(n * (size_t)t_ranks * sizeof *half);
    MPI_Comm comm = MPI_COMM_WORLD;

    t_stage("a schedule that a request holds");
    memset(x, 0, n * sizeof *x);
    memset(half, 0, n * (size_t)t_ranks * sizeof *half);
    open_call(&kept, ALLREDUCE, n, T_PAGEABLE, comm);
    for (int root = 0; root < t_ranks; root++) {
        T_OK(hetmpi_bcast(x, n, MPI_INT64_T, root, comm));
        T_OK(hetmpi_reduce(x, y, n, MPI_INT64_T, MPI_SUM, root, comm));
        T_OK(hetmpi_gather(x, n, MPI_INT64_T, y, n, MPI_INT64_T, root, comm));
        T_OK(hetmpi_scatter(y, n, MPI_INT64_T, x, n, MPI_INT64_T, root, comm));
        T_OK(hetmpi_reduce(x, y, n, MPI_INT64_T, twice, root, comm));
        T_OK(hetmpi_gather(t_rank == root ? MPI_IN_PLACE : x, n, MPI_INT64_T, y, n, MPI_INT64_T, root, comm));
        T_OK(hetmpi_scatter(y, n, MPI_INT64_T, t_rank == root ? MPI_IN_PLACE : x, n, MPI_INT64_T, root, comm));
    }
    T_OK(hetmpi_scan(half, half + n, n, HETMPI_BFLOAT16, MPI_SUM, comm));
    T_OK(hetmpi_alltoall(half, n / (size_t)t_ranks, HETMPI_BFLOAT16, y, n / (size_t)t_ranks, HETMPI_BFLOAT16, comm));
    fill(&kept);
    T_OK(hetmpi_start(&kept.request));
    T_OK(hetmpi_wait(&kept.request, MPI_STATUS_IGNORE));
    right(&kept);
    close_call(&kept);
    free(x);
    free(y);
    free(half);
}

/* A call that not all ranks started: an error, and the request can be used again. */
static void check_after_error(size_t count)
{
    struct call c;
    int64_t x = 1;

    t_stage("again after an error, %zu elements", count);
    open_call(&c, ALLREDUCE, count, T_PAGEABLE, MPI_COMM_WORLD);
    for (int turn = 0; turn < 3; turn++) {
        fill(&c);
        if (t_rank == 0 && t_ranks > 1) {
            T_CODE(HETMPI_ERR_MISMATCH, hetmpi_bcast(&x, 1, MPI_INT64_T, 0, MPI_COMM_WORLD));
        } else if (t_ranks > 1) {
            T_OK(hetmpi_start(&c.request));
            T_CODE(HETMPI_ERR_MISMATCH, hetmpi_wait(&c.request, MPI_STATUS_IGNORE));
        }
        T_OK(hetmpi_start(&c.request));
        T_CODE(HETMPI_ERR_STATE, hetmpi_start(&c.request));
        T_OK(hetmpi_wait(&c.request, MPI_STATUS_IGNORE));
        T_OK(hetmpi_wait(&c.request, MPI_STATUS_IGNORE));   /* inactive: at once */
        right(&c);
    }
    close_call(&c);
}

/* Freed while active: it ends in the background, before what comes later. */
static void check_freed_active(size_t count)
{
    int64_t *x = t_malloc(count * sizeof *x), y = 1;
    hetmpi_request_t request;

    t_stage("freed while active, %zu elements", count);
    for (size_t i = 0; i < count; i++)
        x[i] = t_rank + 1;
    T_OK(hetmpi_allreduce_init(MPI_IN_PLACE, x, count, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &request));
    T_OK(hetmpi_start(&request));
    T_OK(hetmpi_request_free(&request));
    T_CHECK(request == HETMPI_REQUEST_NULL, "hetmpi_request_free left the handle");
    T_OK(hetmpi_allreduce(MPI_IN_PLACE, &y, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD));
    for (size_t i = 0; i < count; i++)
        if (!T_CHECK(x[i] == (int64_t)t_ranks * (t_ranks + 1) / 2, "element %zu is %lld", i, (long long)x[i]))
            break;
    free(x);
}

/* A request that outlives its communicator can only be freed. */
static void check_freed_communicator(size_t count, enum t_place place)
{
    struct call c;
    MPI_Comm comm;

    t_stage("the communicator goes first, %zu elements in %s memory", count, t_place_name(place));
    T_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    T_MPI(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    open_call(&c, ALLREDUCE, count, place, comm);
    fill(&c);
    T_OK(hetmpi_start(&c.request));
    T_OK(hetmpi_wait(&c.request, MPI_STATUS_IGNORE));
    right(&c);
    T_MPI(MPI_Comm_free(&comm));
    T_CODE(HETMPI_ERR_STATE, hetmpi_start(&c.request));
    close_call(&c);
}

int main(int argc, char **argv)
{
    bool costs = argc > 1 && strcmp(argv[1], "costs") == 0, multiple = argc > 1 && strcmp(argv[1], "multiple") == 0;
    int64_t scale;

    t_begin(&argc, &argv, "persistent", multiple ? MPI_THREAD_MULTIPLE : MPI_THREAD_FUNNELED);
    scale = t_rank + 1;
    T_OK(hetmpi_op_create_premul_sum(&scale, MPI_INT64_T, &twice));
    if (costs) {
        check_costs();
    } else {
        check_orders(T_PAGEABLE);
        check_orders(T_DEVICE);
        check_planning_meanwhile();
        check_kept_schedule();
        check_after_error(2);
        check_after_error(50021);
        check_freed_active(3);
        check_freed_active(60013);
        check_freed_communicator(5, T_DEVICE);
        check_freed_communicator(50021, T_PAGEABLE);
    }
    T_OK(hetmpi_op_free(&twice));
    return t_end();
}
