/*
 * What a persistent allreduce saves over a nonblocking one: the time of start and wait together, and of the start alone,
 * for both, in one run. Blocks of calls of both forms take turns; the figures are medians over the blocks, of the mean
 * over ranks. Usage: hetmpi_start_bench [bytes [calls a block]]
 */
#include <stdio.h>
#include <stdlib.h>

#include "bench.h"

enum { BLOCKS = 40, FORMS = 2 };   /* FORMS: nonblocking, persistent */

struct start_bench {
    MPI_Comm comm;
    int rank, ranks;
    size_t count;
    int calls;
    float *send, *recv;
    hetmpi_request_t persistent;
    double clock;              /* what reading the clock adds to a time */
};

/* Seconds of one call: of the start alone, and of all. */
struct times { double start, all; };

static struct times time_call(struct start_bench *bench, bool persistent)
{
    hetmpi_request_t request = bench->persistent;
    double begin, started, end;

    MPI(MPI_Barrier(bench->comm));
    begin = seconds_now();
    if (persistent)
        HETMPI(hetmpi_start(&request));
    else
        HETMPI(hetmpi_iallreduce(bench->send, bench->recv, bench->count, MPI_FLOAT, MPI_SUM, bench->comm, &request));
    started = seconds_now();
    HETMPI(hetmpi_wait(&request, MPI_STATUS_IGNORE));
    end = seconds_now();
    return (struct times){started - begin - bench->clock, end - begin - 2 * bench->clock};
}

/* The mean over a block and the ranks, in microseconds; and every result is checked. */
static struct times time_block(struct start_bench *bench, bool persistent, float seed)
{
    double sums[2] = {0, 0}, means[2];

    for (size_t i = 0; i < bench->count; i++)
        bench->send[i] = seed + (float)bench->rank;
    for (int i = 0; i < bench->calls; i++) {
        struct times times = time_call(bench, persistent);
        sums[0] += times.start;
        sums[1] += times.all;
    }
    for (size_t i = 0; i < bench->count; i++)
        if (bench->recv[i] != (float)bench->ranks * (seed + (float)(bench->ranks - 1) / 2))
            die("wrong result: element %zu is %g", i, (double)bench->recv[i]);
    MPI(MPI_Allreduce(sums, means, 2, MPI_DOUBLE, MPI_SUM, bench->comm));
    double each = 1e6 / bench->calls / bench->ranks;
    return (struct times){means[0] * each, means[1] * each};
}

static double clock_cost(void)
{
    double costs[101];

    for (int i = 0; i < 101; i++) {
        double begin = seconds_now();
        for (int k = 0; k < 100; k++)
            seconds_now();
        costs[i] = (seconds_now() - begin) / 101;
    }
    return median(costs, 101);
}

static void print_row(const struct start_bench *bench, const char *what, double *nonblocking, double *persistent)
{
    double a = median(nonblocking, BLOCKS), b = median(persistent, BLOCKS);

    if (bench->rank == 0)
        printf("%-16s %14.3f %14.3f %10.2f\n", what, a, b, b / a);
}

static void run(struct start_bench *bench)
{
    double start[FORMS][BLOCKS], all[FORMS][BLOCKS];
    struct times times;

    bench->clock = clock_cost();
    for (int block = -2; block < BLOCKS; block++)   /* the first two warm up */
        for (int turn = 0; turn < FORMS; turn++) {
            int form = (turn + block) & 1;
            times = time_block(bench, form, (float)(8 + block));
            if (block < 0)
                continue;
            start[form][block] = times.start;
            all[form][block] = times.all;
        }
    if (bench->rank == 0)
        printf("# hetmpi: start of an allreduce of %zu bytes on %d ranks, %d blocks of %d calls\n%-16s %14s %14s %10s\n",
               bench->count * sizeof(float), bench->ranks, BLOCKS, bench->calls, "# us", "nonblocking", "persistent",
               "ratio");
    print_row(bench, "start", start[0], start[1]);
    print_row(bench, "start and wait", all[0], all[1]);
}

static long argument(int argc, char **argv, int i, long otherwise)
{
    long value = argc > i ? atol(argv[i]) : otherwise;

    if (value < 1)
        die("usage: %s [bytes [calls a block]]", argv[0]);
    return value;
}

int main(int argc, char **argv)
{
    struct start_bench bench = {.comm = MPI_COMM_WORLD};
    int level;

    MPI(MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level));
    MPI(MPI_Comm_set_errhandler(bench.comm, MPI_ERRORS_RETURN));
    MPI(MPI_Comm_rank(bench.comm, &bench.rank));
    MPI(MPI_Comm_size(bench.comm, &bench.ranks));
    bench.count = ((size_t)argument(argc, argv, 1, 8) + sizeof(float) - 1) / sizeof(float);
    bench.calls = (int)argument(argc, argv, 2, 500);
    bench.send = malloc(bench.count * sizeof(float));
    bench.recv = malloc(bench.count * sizeof(float));
    if (!bench.send || !bench.recv)
        die("no memory for %zu elements", bench.count);
    HETMPI(hetmpi_allreduce_init(bench.send, bench.recv, bench.count, MPI_FLOAT, MPI_SUM, bench.comm, MPI_INFO_NULL,
                                 &bench.persistent));
    run(&bench);
    HETMPI(hetmpi_request_free(&bench.persistent));
    free(bench.send);
    free(bench.recv);
    MPI(MPI_Finalize());
    return EXIT_RIGHT;
}
