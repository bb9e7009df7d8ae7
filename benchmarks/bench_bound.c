/*
 * --bound: the time that the machine allows at best, from speeds measured in the same run.
 *
 * Host memory (all ranks on one node). A collective must read and write at least the bytes below, over all n ranks,
 * for a vector of N bytes (a block of one rank for allgather, gather, scatter and alltoall). As many of these as make pairs cost what a copy costs, the rest
 * what a pure read or write costs, measured with all ranks at work at once on buffers of that size; n ranks share the
 * work.
 *
 *                     read     written
 *   allreduce         nN       nN            every input read once, every result written once
 *   reduce            nN       N
 *   bcast             N        (n-1)N
 *   allgather         nN       n*nN          in place (n-1)nN
 *   reduce_scatter    nN       N
 *   gather, scatter   nN       nN            in place (n-1)N
 *   alltoall          n*nN     n*nN          in place n(n-1)N
 *   scan              nN       nN            in place (n-1)N written
 *   exscan            (n-1)N   (n-1)N
 *
 * Device buffers, several islands. Whatever the algorithm, island j must move these bytes over its ranks' host links
 * (out of the devices / into them); the links of its ranks work together, so B_j below is the sum of their bandwidths,
 * measured with both directions and all ranks at work. The reduction is done on the devices. k islands, m_j ranks:
 *
 *   allreduce         max over j of N / B_j, and 2(k-1)N / sum of B_j   (k equal islands: 2N(k-1)/k / B_j each way)
 *   reduce            other islands N / out_j; the root's N / in_j
 *   bcast             the root's N / out_j; other islands N / in_j
 *   allgather         m_j N / out_j, (n - m_j) N / in_j
 *   reduce_scatter    (n - m_j) N/n / out_j, m_j N/n / in_j
 *   gather            other islands m_j N / out_j; the root's (n - m_j) N / in_j
 *   scatter           the root's (n - m_j) N / out_j; other islands m_j N / in_j
 *   alltoall          m_j (n - m_j) N / out_j and / in_j
 *   scan, exscan      p_j N / out_j, q_j N / in_j: in the order of the ranks island j is left p_j times and entered q_j
 *                     times, each time with another sum
 *
 * Latency is not part of either, so small messages are far from their bound.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

#define LINK_REPEATS 8
#define MEMORY_REPEATS 8
#define MEMORY_SECONDS 0.004
#define LINK_SECONDS 0.04
#define LINK_BYTES ((size_t)8 << 20)

/* What one island's links carry each way at most, how many ranks share that, and how often the ranks in their order
 * leave and enter the island. */
struct island_link { double in, out; int ranks, left, entered; };

enum traffic { TRAFFIC_COPY, TRAFFIC_READ, TRAFFIC_WRITE };

static const void *volatile keep;   /* so that the compiler cannot drop a read */

static void move(const struct bench *bench, enum traffic traffic, size_t bytes)
{
    switch (traffic) {
    case TRAFFIC_COPY:
        memcpy(bench->scratch[1], bench->scratch[0], bytes);
        keep = bench->scratch[1];
        break;
    case TRAFFIC_READ:
        keep = memchr(bench->scratch[0], 1, bytes);   /* all zeroes: it reads to the end, as fast as the CPU can */
        break;
    case TRAFFIC_WRITE:
        memset(bench->scratch[1], 0, bytes);
        keep = bench->scratch[1];
        break;
    }
}

static double move_time(const struct bench *bench, enum traffic traffic, size_t bytes, int times)
{
    MPI(MPI_Barrier(bench->comm));
    double start = seconds_now();
    for (int i = 0; i < times; i++)
        move(bench, traffic, bytes);
    return largest(bench, (seconds_now() - start) / times);
}

/* Seconds a byte, when every rank of the node does the same at once: the best of a few trials, each
 * short enough to fit between two disturbances. */
static double byte_time(const struct bench *bench, enum traffic traffic, size_t bytes)
{
    double best = move_time(bench, traffic, bytes, 1);
    double times = best > 0 ? MEMORY_SECONDS / best : 10000;

    for (int i = 0; i < MEMORY_REPEATS; i++) {
        double next = move_time(bench, traffic, bytes, times < 1 ? 1 : times > 10000 ? 10000 : (int)times);
        best = next < best ? next : best;
    }
    return best / (double)bytes;
}

static double memory_bound(const struct bench *bench)
{
    double n = bench->ranks, N = (double)bench->shape.bytes, read, written;
    bool in_place = bench->options->in_place;

    if (bench->node_ranks < bench->ranks || (n == 1 && in_place))
        return -1;
    switch (bench->options->kind) {
    case BENCH_ALLREDUCE: read = n * N, written = n * N; break;
    case BENCH_REDUCE:
    case BENCH_REDUCE_SCATTER:
    case BENCH_REDUCE_SCATTER_BLOCK: read = n * N, written = N; break;
    case BENCH_BCAST: read = N, written = (n - 1) * N; break;
    case BENCH_ALLGATHER:
    case BENCH_ALLGATHERV: read = n * N, written = (in_place ? n - 1 : n) * n * N; break;
    case BENCH_GATHER:
    case BENCH_GATHERV:
    case BENCH_SCATTER:
    case BENCH_SCATTERV: read = written = (in_place ? n - 1 : n) * N; break;
    case BENCH_ALLTOALL:
    case BENCH_ALLTOALLV: read = written = (in_place ? n - 1 : n) * n * N; break;
    case BENCH_SCAN: read = n * N, written = (in_place ? n - 1 : n) * N; break;
    case BENCH_EXSCAN: read = written = (n - 1) * N; break;
    default: return -1;
    }
    if (written == 0)
        return -1;

    size_t send = bench->shape.send, recv = bench->shape.recv;
    size_t bytes = (send > recv ? send : recv) * bench->element;
    double pairs = read < written ? read : written;
    double time = pairs * byte_time(bench, TRAFFIC_COPY, bytes);
    if (read > pairs)
        time += (read - pairs) * byte_time(bench, TRAFFIC_READ, bytes);
    if (written > pairs)
        time += (written - pairs) * byte_time(bench, TRAFFIC_WRITE, bytes);
    return time / n;
}

/* One direction of a rank's link. Run by a thread, so no MPI call in here. */
struct lane {
    void *to;
    const void *from;
    int times, code;
    double seconds;
    char message[256];
};

static void *lane_run(void *argument)
{
    struct lane *lane = argument;
    double start = seconds_now();

    for (int i = 0; i < lane->times && lane->code == HETMPI_SUCCESS; i++)
        lane->code = hetmpi_memcpy(lane->to, lane->from, LINK_BYTES);
    lane->seconds = (seconds_now() - start) / lane->times;
    if (lane->code != HETMPI_SUCCESS)
        strncpy(lane->message, hetmpi_last_error(), sizeof(lane->message) - 1);
    return NULL;
}

/* Both directions at once, on all ranks at once. */
static void lanes_run(const struct bench *bench, struct lane lanes[2], int times)
{
    pthread_t thread;

    lanes[0].times = lanes[1].times = times;
    MPI(MPI_Barrier(bench->comm));
    if (pthread_create(&thread, NULL, lane_run, &lanes[1]) != 0)
        die("--bound: a thread cannot be made");
    lane_run(&lanes[0]);
    pthread_join(thread, NULL);
    for (int i = 0; i < 2; i++) {
        if (lanes[i].code != HETMPI_SUCCESS)
            die("--bound: hetmpi_memcpy: %s", lanes[i].message);
    }
}

static void lane_open(struct lane *lane, void *device, void *host, bool out)
{
    memset(lane, 0, sizeof(*lane));
    lane->to = out ? host : device;
    lane->from = out ? device : host;
}

/* Fills bench->link with bytes/s out of and into every rank's device. Collective. */
static void measure_links(struct bench *bench)
{
    void *memory[4] = {NULL};
    struct lane lanes[2];
    double mine[2] = {0, 0};

    for (int i = 0; i < 4; i++) {
        HETMPI(hetmpi_malloc(LINK_BYTES, i < 2 ? HETMPI_MEM_DEVICE : HETMPI_MEM_HOST, &memory[i]));
        HETMPI(hetmpi_memset(memory[i], 0, LINK_BYTES));
    }
    lane_open(&lanes[0], memory[0], memory[2], true);
    lane_open(&lanes[1], memory[1], memory[3], false);
    lanes_run(bench, lanes, 1);
    double slower = lanes[0].seconds > lanes[1].seconds ? lanes[0].seconds : lanes[1].seconds;
    double times = LINK_SECONDS / largest(bench, slower);
    for (int i = 0; i < LINK_REPEATS; i++) {
        lanes_run(bench, lanes, times < 1 ? 1 : times > 1000 ? 1000 : (int)times);
        for (int way = 0; way < 2; way++) {
            double speed = (double)LINK_BYTES / lanes[way].seconds;
            mine[way] = speed > mine[way] ? speed : mine[way];
        }
    }
    for (int i = 0; i < 4; i++)
        HETMPI(hetmpi_free(memory[i]));
    MPI(MPI_Allgather(mine, 2, MPI_DOUBLE, bench->link, 2, MPI_DOUBLE, bench->comm));
}

void bound_open(struct bench *bench)
{
    size_t n = (size_t)bench->ranks;
    int k = bench->info.islands;

    if (!bench->options->bound || !bench->device || k < 2)
        return;
    bench->link = calloc(2 * n, sizeof(double));
    bench->island_of = calloc(n, sizeof(int));
    if (!bench->link || !bench->island_of)
        die("out of memory: link speeds of %zu ranks", n);
    MPI(MPI_Allgather(&bench->info.island, 1, MPI_INT, bench->island_of, 1, MPI_INT, bench->comm));
    measure_links(bench);
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

static double allreduce_bound(const struct island_link *link, int k, double N)
{
    double in = 0, out = 0, bound = 0;

    for (int j = 0; j < k; j++) {
        in += link[j].in;
        out += link[j].out;
        bound = larger(bound, larger(N / link[j].in, N / link[j].out));
    }
    return larger(bound, 2 * (k - 1) * N / (in < out ? in : out));
}

static double link_bound(const struct bench *bench)
{
    int k = bench->info.islands, root_island = bench->island_of[bench->options->root];
    double N = (double)bench->shape.bytes, n = bench->ranks, bound = 0;
    struct island_link *link = calloc((size_t)k, sizeof(*link));

    if (!link)
        die("out of memory: %d islands", k);
    for (int rank = 0; rank < bench->ranks; rank++) {
        struct island_link *island = &link[bench->island_of[rank]];
        island->out += bench->link[2 * rank];
        island->in += bench->link[2 * rank + 1];
        island->ranks++;
        if (rank > 0 && bench->island_of[rank] != bench->island_of[rank - 1]) {
            island->entered++;
            link[bench->island_of[rank - 1]].left++;
        }
    }
    if (bench->options->kind == BENCH_ALLREDUCE)
        bound = allreduce_bound(link, k, N);
    for (int j = 0; j < k; j++) {
        double m = link[j].ranks, out = 0, in = 0;
        switch (bench->options->kind) {
        case BENCH_REDUCE: out = j == root_island ? 0 : N, in = j == root_island ? N : 0; break;
        case BENCH_BCAST: out = j == root_island ? N : 0, in = j == root_island ? 0 : N; break;
        case BENCH_ALLGATHER:
        case BENCH_ALLGATHERV: out = m * N, in = (n - m) * N; break;
        case BENCH_REDUCE_SCATTER:
        case BENCH_REDUCE_SCATTER_BLOCK: out = (n - m) * N / n, in = m * N / n; break;
        case BENCH_GATHER:
        case BENCH_GATHERV: out = j == root_island ? 0 : m * N, in = j == root_island ? (n - m) * N : 0; break;
        case BENCH_SCATTER:
        case BENCH_SCATTERV: out = j == root_island ? (n - m) * N : 0, in = j == root_island ? 0 : m * N; break;
        case BENCH_ALLTOALL:
        case BENCH_ALLTOALLV: out = in = m * (n - m) * N; break;
        case BENCH_SCAN:
        case BENCH_EXSCAN: out = link[j].left * N, in = link[j].entered * N; break;
        default: break;
        }
        bound = larger(bound, larger(out / link[j].out, in / link[j].in));
    }
    free(link);
    return bound;
}

double bound_time(struct bench *bench)
{
    if (!bench->options->bound || kind_is(bench->options->kind, KIND_EMPTY | KIND_MESSAGES))
        return -1;
    if (!bench->device)
        return memory_bound(bench);
    return bench->link ? link_bound(bench) : -1;
}
