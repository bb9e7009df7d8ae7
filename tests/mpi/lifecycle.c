/*
 * What communicators cost: set-up time, nothing at all for one rank, and nothing left after 500 of them, nor after 10,000
 * of every collective: file descriptors, threads and memory stay flat.
 */
#include "common.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CYCLES 500
#define WARM_UP 60
#define RSS_SLACK_KIB 4096 /* a control segment (33 KiB) lost in each cycle would be four times as much */

static void cycle(int number, bool with_hetmpi)
{
    enum { LONG = 30011 };
    static int32_t x[LONG];
    MPI_Comm comm;
    t_stage("cycle %d, %s hetmpi", number, with_hetmpi ? "with" : "without");
    T_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    if (with_hetmpi) {
        /* Mostly small calls; now and then a long one, which opens providers and wires. */
        size_t n = number % 4 == 3 ? LONG : 100;
        for (size_t i = 0; i < n; i++)
            x[i] = (int32_t)i;
        T_OK(hetmpi_allreduce(MPI_IN_PLACE, x, n, MPI_INT32_T, MPI_SUM, comm));
        T_CHECK(x[n - 1] == (int32_t)(n - 1) * t_ranks, "last element is %d", x[n - 1]);
        if (number % 5 == 0)
            T_OK(hetmpi_comm_detach(comm));
    }
    T_MPI(MPI_Comm_free(&comm));
}

static void check_flat(void)
{
    int plain = t_ranks <= 3 ? 200 : 60;
    int cycles = t_sanitized() ? 120 : CYCLES;
    for (int i = 0; i < WARM_UP; i++)
        cycle(i, true);
    long rss0 = t_rss_kib();
    for (int i = 0; i < plain; i++)
        cycle(i, false);
    long rss1 = t_rss_kib(), fds = t_open_fds(), threads = t_threads();
    for (int i = 0; i < cycles; i++)
        cycle(i, true);
    long rss2 = t_rss_kib(), mpi_grew = rss1 > rss0 ? (rss1 - rss0) * cycles / plain : 0;
    T_CHECK(t_open_fds() == fds, "%ld file descriptors after %d communicators, %ld before", t_open_fds(), cycles, fds);
    T_CHECK(t_threads() == threads, "%ld threads after %d communicators, %ld before", t_threads(), cycles, threads);
    if (t_rank == 0)
        printf("%d communicators: VmRSS %ld KiB before, %ld KiB after; the MPI's own part of it about %ld KiB\n",
               cycles, rss1, rss2, mpi_grew);
    if (!t_sanitized())
        T_CHECK(rss2 - rss1 <= mpi_grew + RSS_SLACK_KIB, "VmRSS grew from %ld to %ld KiB, of which MPI's %ld", rss1,
                rss2, mpi_grew);
}

/*
 * Every collective, again and again. One rank of each sends and receives `ranks` blocks of 3 elements.
 */
enum { BLOCK = 3, MOST_RANKS = 8, CALLS = 10000 };
static int32_t in[BLOCK * MOST_RANKS], out[BLOCK * MOST_RANKS];
static size_t block_counts[MOST_RANKS], block_places[MOST_RANKS];

#define IN in, BLOCK, MPI_INT32_T
#define OUT out, BLOCK, MPI_INT32_T
#define BLOCKS(buffer) buffer, block_counts, block_places, MPI_INT32_T
static int call_number(int number, MPI_Comm comm)
{
    switch (number) {
    case 0: return hetmpi_allreduce(in, out, BLOCK, MPI_INT32_T, MPI_SUM, comm);
    case 1: return hetmpi_reduce(in, out, BLOCK, MPI_INT32_T, MPI_SUM, 0, comm);
    case 2: return hetmpi_bcast(IN, 0, comm);
    case 3: return hetmpi_allgather(IN, OUT, comm);
    case 4: return hetmpi_reduce_scatter_block(in, out, BLOCK, MPI_INT32_T, MPI_SUM, comm);
    case 5: return hetmpi_reduce_scatter(in, out, block_counts, MPI_INT32_T, MPI_SUM, comm);
    case 6: return hetmpi_allgatherv(IN, BLOCKS(out), comm);
    case 7: return hetmpi_gather(IN, OUT, 0, comm);
    case 8: return hetmpi_gatherv(IN, BLOCKS(out), 0, comm);
    case 9: return hetmpi_scatter(IN, OUT, 0, comm);
    case 10: return hetmpi_scatterv(BLOCKS(in), OUT, 0, comm);
    case 11: return hetmpi_alltoall(IN, OUT, comm);
    case 12: return hetmpi_alltoallv(BLOCKS(in), BLOCKS(out), comm);
    case 13: return hetmpi_scan(in, out, BLOCK, MPI_INT32_T, MPI_SUM, comm);
    case 14: return hetmpi_exscan(in, out, BLOCK, MPI_INT32_T, MPI_SUM, comm);
    default: return hetmpi_barrier(comm);
    }
}

static void check_calls(void)
{
    int calls = t_sanitized() ? 300 : CALLS;
    MPI_Comm comm;
    for (int r = 0; r < MOST_RANKS; r++) {
        block_counts[r] = BLOCK;
        block_places[r] = (size_t)r * BLOCK;
    }
    T_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    for (int i = 0; i < 16 * 50; i++)
        T_OK(call_number(i % 16, comm));
    long rss = t_rss_kib(), fds = t_open_fds(), threads = t_threads();
    for (int number = 0; number < 16; number++) {
        t_stage("collective %d", number);
        for (int i = 0; i < calls; i++)
            if (!T_OK(call_number(number, comm)))
                return;
    }
    T_CHECK(t_open_fds() == fds, "%ld file descriptors after %d of every collective, %ld before", t_open_fds(), calls, fds);
    T_CHECK(t_threads() == threads, "%ld threads after %d of every collective, %ld before", t_threads(), calls, threads);
    if (!t_sanitized())
        T_CHECK(t_rss_kib() - rss <= RSS_SLACK_KIB, "VmRSS grew from %ld to %ld KiB in %d of every collective", rss,
                t_rss_kib(), calls);
    if (t_rank == 0)
        printf("%d of every collective: VmRSS %ld KiB before, %ld KiB after\n", calls, rss, t_rss_kib());
    T_MPI(MPI_Comm_free(&comm));
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void check_setup_time(void)
{
    enum { TIMES = 40 };
    double seconds[TIMES];
    MPI_Comm pair, comm;
    t_stage("set-up time of two ranks");
    T_MPI(MPI_Comm_split(MPI_COMM_WORLD, t_rank < 2 ? 0 : MPI_UNDEFINED, t_rank, &pair));
    if (pair == MPI_COMM_NULL)
        return;
    if (t_ranks < 2) {
        T_MPI(MPI_Comm_free(&pair));
        return;
    }
    for (int i = 0; i < TIMES; i++) {
        T_MPI(MPI_Comm_dup(pair, &comm));
        T_MPI(MPI_Barrier(comm));
        double start = t_now();
        T_OK(hetmpi_comm_attach(comm, MPI_INFO_NULL));
        seconds[i] = t_now() - start;
        T_MPI(MPI_Comm_free(&comm));
    }
    qsort(seconds, TIMES, sizeof *seconds, by_value);
    if (t_rank == 0)
        printf("hetmpi_comm_attach of 2 ranks: median %.3f ms, fastest %.3f ms, slowest %.3f ms (goal: 1 ms)\n",
               1e3 * seconds[TIMES / 2], 1e3 * seconds[0], 1e3 * seconds[TIMES - 1]);
    /* A wide bound: the machine may be busy, a sanitizer may be at work. */
    T_CHECK(seconds[TIMES / 2] <= 0.05, "set-up of two ranks took %.1f ms", 1e3 * seconds[TIMES / 2]);
    T_MPI(MPI_Comm_free(&pair));
}

/* Half of the communicators that programs make have one rank: they must cost nothing. */
static void check_single(void)
{
    enum { COMMS = 100 };
    MPI_Comm comms[COMMS];
    t_stage("communicators of one rank");
    T_OK(hetmpi_comm_attach(MPI_COMM_SELF, MPI_INFO_NULL)); /* what the first hetmpi call of a process takes */
    for (int i = 0; i < COMMS; i++)
        T_MPI(MPI_Comm_dup(MPI_COMM_SELF, &comms[i]));
    int32_t first = 0;
    T_OK(hetmpi_allreduce(MPI_IN_PLACE, &first, 1, MPI_INT32_T, MPI_SUM, MPI_COMM_SELF));   /* and its device */
    long fds = t_open_fds(), threads = t_threads(), rss = t_rss_kib();
    double start = t_now();
    for (int i = 0; i < COMMS; i++)
        T_OK(hetmpi_comm_attach(comms[i], MPI_INFO_NULL));
    double seconds = t_now() - start;
    T_CHECK(t_open_fds() == fds, "%d communicators of one rank took %ld file descriptors", COMMS, t_open_fds() - fds);
    T_CHECK(t_threads() == threads, "%d communicators of one rank took %ld threads", COMMS, t_threads() - threads);
    if (!t_sanitized())
        T_CHECK(t_rss_kib() - rss <= 512, "%d communicators of one rank took %ld KiB", COMMS, t_rss_kib() - rss);
    if (t_rank == 0)
        printf("hetmpi_comm_attach of 1 rank: %.1f us, %ld KiB for %d\n", 1e6 * seconds / COMMS, t_rss_kib() - rss,
               COMMS);
    for (int i = 0; i < COMMS; i++) {
        int32_t in = i, out = -1, kept = 7;
        T_OK(hetmpi_allreduce(&in, &out, 1, MPI_INT32_T, MPI_SUM, comms[i]));
        T_CHECK(out == i, "allreduce of one rank gave %d, not %d", out, i);
        T_OK(hetmpi_bcast(&kept, 1, MPI_INT32_T, 0, comms[i]));
        T_OK(hetmpi_reduce_scatter_block(&in, &out, 1, MPI_INT32_T, HETMPI_AVG, comms[i]));
        T_CHECK(out == i && kept == 7, "one rank: %d and %d", out, kept);
        T_OK(hetmpi_barrier(comms[i]));
    }
    T_CHECK(t_open_fds() == fds && t_threads() == threads, "used, they took %ld descriptors, %ld threads",
            t_open_fds() - fds, t_threads() - threads);
    for (int i = 0; i < COMMS; i++)
        T_MPI(MPI_Comm_free(&comms[i]));
}

/* A shared memory object with a name could outlive a killed job: hetmpi maps none. MPI's own are known by name. */
static void check_no_named_memory(void)
{
    static const char *const mpi_names[] = { "vader_segment", "sm_segment", "osc_", "mpich", "ucx_", "psm", "pmix",
                                             "sem.", "MPICH", "hwloc", "openmpi", "ompi" };
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "r");
    t_stage("names in /dev/shm");
    if (!maps)
        return;
    while (fgets(line, sizeof line, maps)) {
        char *name = strstr(line, "/dev/shm/");
        bool known = false;
        for (size_t i = 0; name && i < sizeof mpi_names / sizeof *mpi_names; i++)
            known |= strncmp(name + strlen("/dev/shm/"), mpi_names[i], strlen(mpi_names[i])) == 0;
        if (name)
            T_CHECK(known && !strstr(name, "hetmpi"), "mapped: %.120s", name);
    }
    fclose(maps);
}

int main(int argc, char **argv)
{
    t_begin(&argc, &argv, "lifecycle", MPI_THREAD_SINGLE);
    check_single();
    check_setup_time();
    check_flat();
    check_calls();
    int32_t *x = calloc(1 << 16, sizeof *x);
    if (!x)
        t_fatal("no memory");
    T_OK(hetmpi_allreduce(MPI_IN_PLACE, x, 1 << 16, MPI_INT32_T, MPI_SUM, MPI_COMM_WORLD));
    free(x);
    check_no_named_memory();
    return t_end();
}
