/*
 * A device that fails: the N-th copy, kernel, allocation, pinning, opening of another process's memory or creation of a
 * stream, on one rank, for every N that a short program of collectives and messages comes to. Each call must give its
 * result, or an error: on all ranks the same one, or on some (others were done) and then on all ranks from the next
 * call on. Never a wrong result, a wait that only a timeout ends, a crash, or memory, descriptors or threads that stay;
 * and the next communicator works. Messages between ranks that have not heard of the failure yet may still arrive.
 *
 *     faults [STRIDE [KIND:RANK:N]]      every STRIDE-th N; that one alone
 *     faults cold                        what HETMPI_SIM_FAULT says, in a process that has nothing yet
 */
#include "common.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mem/sim.h"

enum { LONG = 20011, BLOCK = 3001, SHORT = 7 };

static int32_t *in, *out;            /* on the device */
static int32_t *host;
static hetmpi_stream_t stream;
static MPI_Comm comm;
static long all_erred;               /* communicators that failed */

static int32_t value(int rank, size_t i, int step)
{
    return (int32_t)(i * 7) + rank * 1000 + step * 13;
}

/* The sum of value() over ranks 0 .. n-1. */
static int32_t sum(int n, size_t i, int step)
{
    return n * value(0, i, step) + 1000 * (n * (n - 1) / 2);
}

/*
 * The calls. Each works on in (value() of LONG elements) and out.
 */
static int run_allreduce(void)
{
    return hetmpi_allreduce(in, out, LONG, MPI_INT32_T, MPI_SUM, comm);
}

static int run_short(void)
{
    return hetmpi_allreduce(in, out, SHORT, MPI_INT32_T, MPI_SUM, comm);
}

static int run_allgather(void)
{
    hetmpi_request_t request;
    int code = hetmpi_iallgather(in, BLOCK, MPI_INT32_T, out, BLOCK, MPI_INT32_T, comm, &request);
    return code ? code : hetmpi_wait(&request, MPI_STATUS_IGNORE);
}

static int run_reduce_scatter(void)
{
    return hetmpi_reduce_scatter_block(in, out, BLOCK, MPI_INT32_T, MPI_SUM, comm);
}

static int run_persistent(void)
{
    hetmpi_request_t request = HETMPI_REQUEST_NULL;
    int code = hetmpi_allreduce_init(in, out, LONG, MPI_INT32_T, MPI_SUM, comm, MPI_INFO_NULL, &request);
    for (int i = 0; i < 2 && !code; i++) {
        code = hetmpi_start(&request);
        if (!code)
            code = hetmpi_wait(&request, MPI_STATUS_IGNORE);
    }
    if (request != HETMPI_REQUEST_NULL)
        T_OK(hetmpi_request_free(&request));
    return code;
}

static int run_bcast(void)
{
    return hetmpi_bcast(t_rank == t_ranks - 1 ? in : out, LONG, MPI_INT32_T, t_ranks - 1, comm);
}

static int run_alltoall(void)
{
    return hetmpi_alltoall(in, BLOCK, MPI_INT32_T, out, BLOCK, MPI_INT32_T, comm);
}

static int run_on_stream(void)
{
    int error = HETMPI_SUCCESS, code;
    code = hetmpi_allreduce_on_stream(in, out, LONG, MPI_INT32_T, MPI_SUM, comm, stream);
    int synced = hetmpi_stream_synchronize(stream);
    T_OK(hetmpi_comm_error(comm, &error));
    return code ? code : error ? error : synced;
}

static int run_scan(void)
{
    return hetmpi_scan(in, out, LONG, MPI_INT32_T, MPI_SUM, comm);
}

static int run_ring(void)
{
    return hetmpi_sendrecv(in, LONG, MPI_INT32_T, (t_rank + 1) % t_ranks, 3, out, LONG, MPI_INT32_T,
                           (t_rank + t_ranks - 1) % t_ranks, 3, comm, MPI_STATUS_IGNORE);
}

static int run_messages(void)
{
    hetmpi_request_t requests[2] = { HETMPI_REQUEST_NULL, HETMPI_REQUEST_NULL };
    int left = (t_rank + t_ranks - 1) % t_ranks, right = (t_rank + 1) % t_ranks;
    int received = hetmpi_irecv(out, SHORT, MPI_INT32_T, left, 4, comm, &requests[0]);
    int sent = hetmpi_isend(in, SHORT, MPI_INT32_T, right, 4, comm, &requests[1]);
    int code = hetmpi_waitall(2, requests, MPI_STATUSES_IGNORE);
    return received ? received : sent ? sent : code;
}

static int run_gather(void)
{
    return hetmpi_gather(in, BLOCK, MPI_INT32_T, out, BLOCK, MPI_INT32_T, 0, comm);
}

static int run_barrier(void)
{
    return hetmpi_barrier(comm);
}

/*
 * What they must give: element i of the result on this rank.
 */
static int32_t want_sum(size_t i, int step)
{
    return sum(t_ranks, i, step);
}

static int32_t want_blocks(size_t i, int step)
{
    return value((int)(i / BLOCK), i % BLOCK, step);
}

static int32_t want_my_sum(size_t i, int step)
{
    return sum(t_ranks, (size_t)t_rank * BLOCK + i, step);
}

static int32_t want_last(size_t i, int step)
{
    return value(t_ranks - 1, i, step);
}

static int32_t want_transposed(size_t i, int step)
{
    return value((int)(i / BLOCK), (size_t)t_rank * BLOCK + i % BLOCK, step);
}

static int32_t want_prefix(size_t i, int step)
{
    return sum(t_rank + 1, i, step);
}

static int32_t want_left(size_t i, int step)
{
    return value((t_rank + t_ranks - 1) % t_ranks, i, step);
}

static const struct step {
    const char *name;
    int (*run)(void);
    int32_t (*want)(size_t i, int step);
    size_t count, blocks;          /* of the result: count elements, and so many for each rank */
    int only;                      /* the rank that has it; -1: all */
    bool not_last;                 /* the last rank has none */
    bool messages;
} steps[] = {
    { "allreduce", run_allreduce, want_sum, LONG, 0, -1, false, false },
    { "allreduce, short", run_short, want_sum, SHORT, 0, -1, false, false },
    { "iallgather", run_allgather, want_blocks, 0, BLOCK, -1, false, false },
    { "sendrecv", run_ring, want_left, LONG, 0, -1, false, true },
    { "reduce_scatter_block", run_reduce_scatter, want_my_sum, BLOCK, 0, -1, false, false },
    { "persistent allreduce", run_persistent, want_sum, LONG, 0, -1, false, false },
    { "bcast", run_bcast, want_last, LONG, 0, -1, true, false },
    { "alltoall", run_alltoall, want_transposed, 0, BLOCK, -1, false, false },
    { "allreduce on a stream", run_on_stream, want_sum, LONG, 0, -1, false, false },
    { "isend, irecv", run_messages, want_left, SHORT, 0, -1, false, true },
    { "scan", run_scan, want_prefix, LONG, 0, -1, false, false },
    { "gather", run_gather, want_blocks, 0, BLOCK, 0, false, false },
    { "barrier", run_barrier, NULL, 0, 0, -1, false, false },
};
enum { STEPS = sizeof steps / sizeof *steps };

static const char *const kind_names[] = { [FAULT_COPY] = "copy", [FAULT_KERNEL] = "kernel", [FAULT_ALLOC] = "alloc",
                                          [FAULT_PIN] = "pin", [FAULT_IPC] = "ipc", [FAULT_STREAM] = "stream" };
enum { KINDS = FAULT_STREAM + 1 };

/* The test's own copies may be the ones that fail: they say so, and the next attempt works. */
static void move(void *dst, const void *src, size_t bytes)
{
    int code = hetmpi_memcpy(dst, src, bytes);
    if (!code)
        return;
    T_CHECK(code == HETMPI_ERR_DEVICE, "hetmpi_memcpy: %s", hetmpi_last_error());
    T_OK(hetmpi_memcpy(dst, src, bytes));
}

static void check_result(const struct step *step, int number)
{
    size_t n = step->count + step->blocks * (size_t)t_ranks;
    if (!step->want || (step->only >= 0 && step->only != t_rank) || (step->not_last && t_rank == t_ranks - 1))
        return;
    move(host, out, n * sizeof *host);
    for (size_t i = 0; i < n; i++)
        if (!T_CHECK(host[i] == step->want(i, number), "%s: element %zu of %zu is %" PRId32 ", not %" PRId32, step->name,
                     i, n, host[i], step->want(i, number)))
            return;
}

static bool expected(int code)
{
    return code == HETMPI_ERR_DEVICE || code == HETMPI_ERR_MEMORY;
}

/* Whether all ranks have the same code; *any: one of the codes that are not 0. */
static bool compare_codes(int code, const char *text, const char *name, int *any)
{
    int codes[16];
    bool same = true;
    T_MPI(MPI_Allgather(&code, 1, MPI_INT, codes, 1, MPI_INT, MPI_COMM_WORLD));
    *any = HETMPI_SUCCESS;
    for (int r = 0; r < t_ranks; r++) {
        same &= codes[r] == codes[0];
        *any = codes[r] ? codes[r] : *any;
    }
    T_CHECK(!code || expected(code), "%s: %s: %s", name, t_code_name(code), text);
    return same;
}

/* Runs the program on a communicator of its own; returns how many steps failed. */
static int program(void)
{
    int failed = 0, any;
    bool ended = false;   /* some ranks failed where others did not: nothing works any more */
    T_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    T_MPI(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    for (int s = 0; s < STEPS; s++) {
        char text[600];
        for (size_t i = 0; i < LONG; i++)
            host[i] = value(t_rank, i, s);
        move(in, host, LONG * sizeof *host);
        int code = steps[s].run();
        snprintf(text, sizeof text, "%s", code ? hetmpi_last_error() : "");
        if (!code)
            check_result(&steps[s], s);
        bool same = compare_codes(code, text, steps[s].name, &any);
        failed += any != HETMPI_SUCCESS;
        T_CHECK(!ended || code || steps[s].messages, "%s works after a call that failed on some ranks", steps[s].name);
        ended |= !same;
    }
    T_MPI(MPI_Comm_free(&comm));
    return failed;
}

struct facts { long fds, threads, rss; size_t device; };

static struct facts facts(void)
{
    return (struct facts){ .fds = t_open_fds(), .threads = t_threads(), .rss = t_rss_kib(),
                           .device = sim.arena.space.used };
}

/* The program with one fault; returns how many operations of the kind the rank came to. */
static uint64_t with_fault(enum sim_fault_kind kind, int rank, uint64_t number, int *failed, const struct facts *before)
{
    char text[64];
    uint64_t count;
    t_stage("%s:%d:%" PRIu64, kind_names[kind], rank, number);
    snprintf(text, sizeof text, "%s@%" PRIu64, kind_names[kind], number);
    T_OK(sim_fault_set(t_rank == rank ? text : ""));
    *failed = program();
    count = sim_fault_count(kind);
    T_OK(sim_fault_set(""));
    T_MPI(MPI_Bcast(&count, 1, MPI_UINT64_T, rank, MPI_COMM_WORLD));
    struct facts now = facts();
    T_CHECK(now.fds <= before->fds, "%ld file descriptors, %ld before", now.fds, before->fds);
    T_CHECK(now.threads <= before->threads, "%ld threads, %ld before", now.threads, before->threads);
    T_CHECK(now.device <= before->device, "%zu bytes of device memory, %zu before", now.device, before->device);
    return count;
}

static void all_numbers(enum sim_fault_kind kind, int rank, uint64_t stride, const struct facts *before)
{
    int failed, stop = 0;
    if (kind != FAULT_COPY && kind != FAULT_KERNEL)
        stride = (stride + 7) / 8;   /* there are few of them */
    uint64_t runs = 0, erred = 0, count = with_fault(kind, rank, UINT64_MAX, &failed, before);
    T_CHECK(failed == 0, "the program fails without a fault");
    /* Where a stride begins depends on the rank, so that a bounded run meets more operations. */
    for (uint64_t number = 1 + (uint64_t)rank % stride; number <= count && !stop; number += stride, runs++) {
        with_fault(kind, rank, number, &failed, before);
        erred += failed > 0;
        all_erred += failed > 0;
        int mine = t_failures() > 10;
        T_MPI(MPI_Allreduce(&mine, &stop, 1, MPI_INT, MPI_LOR, MPI_COMM_WORLD));
    }
    if (t_rank == 0)
        printf("%s on rank %d: %" PRIu64 " faults in %" PRIu64 " operations; %" PRIu64 " ended in an error\n",
               kind_names[kind], rank, runs, count, erred);
}

static void one_number(const char *text, const struct facts *before)
{
    char name[16];
    int rank, failed;
    uint64_t number;
    if (sscanf(text, "%15[a-z]:%d:%" SCNu64, name, &rank, &number) != 3)
        t_fatal("%s is not KIND:RANK:N", text);
    for (int kind = 0; kind < KINDS; kind++)
        if (strcmp(kind_names[kind], name) == 0) {
            uint64_t count = with_fault((enum sim_fault_kind)kind, rank, number, &failed, before);
            if (t_rank == 0)
                printf("%s: %d calls failed; %" PRIu64 " operations\n", text, failed, count);
            return;
        }
    t_fatal("%s: no such kind", name);
}

static void *device_memory(size_t bytes)
{
    void *memory = NULL;
    int code = hetmpi_malloc(bytes, HETMPI_MEM_DEVICE, &memory);
    if (code && T_CHECK(expected(code), "hetmpi_malloc: %s", hetmpi_last_error()))
        T_OK(hetmpi_malloc(bytes, HETMPI_MEM_DEVICE, &memory));
    return memory;
}

int main(int argc, char **argv)
{
    t_begin(&argc, &argv, "faults", MPI_THREAD_MULTIPLE);
    bool cold = argc > 1 && strcmp(argv[1], "cold") == 0;
    uint64_t stride = argc > 1 && !cold ? strtoull(argv[1], NULL, 10) : 1;
    t_watchdog(stride == 1 ? 3000 : T_WATCHDOG);
    if (stride < 1 || t_ranks > 16)
        t_fatal("usage: faults [STRIDE [KIND:RANK:N]] or faults cold, on up to 16 ranks");
    host = t_malloc((size_t)LONG * (size_t)(t_ranks + 1) * sizeof *host);
    in = device_memory(LONG * sizeof *in);
    out = device_memory((size_t)LONG * (size_t)t_ranks * sizeof *out);
    int code = hetmpi_stream_create(&stream);
    if (code && T_CHECK(expected(code), "hetmpi_stream_create: %s", hetmpi_last_error()))
        T_OK(hetmpi_stream_create(&stream));
    if (cold)
        all_erred += program() > 0;
    T_OK(sim_fault_set(""));
    for (int i = 0; i < 3; i++)
        T_CHECK(program() == 0, "the program fails without a fault");
    struct facts before = facts();
    if (argc > 2)
        one_number(argv[2], &before);
    for (int kind = 0; kind < KINDS && argc <= 2 && !cold; kind++)
        for (int rank = 0; rank < t_ranks; rank++)
            all_numbers((enum sim_fault_kind)kind, rank, stride, &before);
    /* A failed communicator leaves its duplicates, and messages that nobody took, to MPI_Finalize. */
    long grown = t_rss_kib() - before.rss, most = 8192 + 64 * all_erred;
    T_CHECK(t_sanitized() || grown < most, "VmRSS grew by %ld KiB, more than %ld", grown, most);
    T_CHECK(program() == 0, "the program fails after all faults");
    T_OK(hetmpi_stream_destroy(stream));
    T_OK(hetmpi_free(out));
    T_OK(hetmpi_free(in));
    free(host);
    return t_end();
}
