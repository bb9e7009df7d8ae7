/*
 * What the NICs give a program that knows libibverbs alone, as the measure for the verbs wire: one-sided writes over
 * reliable queue pairs between two ranks, checked, every rail at once with a loop of its own.
 *
 *     raw_verbs latency|bw|bibw [MIN MAX [SECONDS]]
 *
 * latency: a ping-pong of inline writes (sizes that a queue pair cannot take inline are left out), half a round trip.
 * bw, bibw: writes one way or both ways, WINDOW under way on each rail; the bandwidth of one direction, of all rails.
 * Waiting yields: Soft-RoCE's own work needs the processor that a rank would spin on.
 * HETMPI_RAILS names the rank's NICs (else: the first one that is up); rail i of one rank is joined to rail i of the other.
 */
#include <infiniband/verbs.h>
#include <mpi.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { RAILS_MAX = 8, WINDOW = 16, PORT = 1, SIGNAL_EACH = WINDOW / 2, INLINE_WANTED = 220, ROUND_TRIPS_MOST = 100000 };

/* One end of a queue pair, as the other end needs it. */
struct end {
    union ibv_gid gid;
    uint64_t address;
    uint32_t qp, rkey;
    uint16_t lid;
    uint8_t mtu, gid_index;
};

struct rail {
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    struct ibv_mr *mr;
    uint32_t inline_most;
    int under_way, unsignalled;   /* requests, or groups of them of which the last is signalled; the rest */
    struct end here, there;
};

static int rank;
static int n_rails;
static struct rail rails[RAILS_MAX];
static size_t room;                /* for one message */
static unsigned char *memory;     /* what is sent, then for each rail what comes */
static size_t memory_bytes;

static void __attribute__((format(printf, 1, 2), noreturn)) die(const char *format, ...)
{
    va_list arguments;

    fprintf(stderr, "raw_verbs: rank %d: ", rank);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static unsigned char *came_to(int rail)
{
    return memory + (size_t)(rail + 1) * room;
}

/* RoCE v2 with an IPv4 address, if the port has such a GID. */
static void find_gid(struct rail *rail)
{
    static const unsigned char ipv4[12] = {[10] = 0xff, [11] = 0xff};
    struct ibv_gid_entry table[64];
    ssize_t n = ibv_query_gid_table(rail->context, table, sizeof(table) / sizeof(table[0]), 0);

    if (n <= 0)
        die("%s has no GID", ibv_get_device_name(rail->context->device));
    const struct ibv_gid_entry *best = &table[0];
    for (ssize_t i = n - 1; i >= 0; i--) {
        if (table[i].gid_type == IBV_GID_TYPE_ROCE_V2 && memcmp(table[i].gid.raw, ipv4, sizeof(ipv4)) == 0)
            best = &table[i];
    }
    rail->here.gid = best->gid;
    rail->here.gid_index = (uint8_t)best->gid_index;
}

static void make_queue_pair(struct rail *rail)
{
    struct ibv_qp_init_attr attributes = {
        .send_cq = rail->cq, .recv_cq = rail->cq, .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = WINDOW, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1,
                .max_inline_data = INLINE_WANTED},
    };
    struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = PORT, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};

    rail->qp = ibv_create_qp(rail->pd, &attributes);
    if (!rail->qp)
        die("ibv_create_qp: %m");
    rail->inline_most = attributes.cap.max_inline_data;
    if (ibv_modify_qp(rail->qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
        die("the queue pair cannot be initialised: %m");
}

static void open_rail(int number, struct ibv_device *device)
{
    struct rail *rail = &rails[number];
    struct ibv_port_attr port;

    rail->context = ibv_open_device(device);
    if (!rail->context || ibv_query_port(rail->context, PORT, &port))
        die("%s cannot be opened: %m", ibv_get_device_name(device));
    rail->pd = ibv_alloc_pd(rail->context);
    rail->cq = rail->pd ? ibv_create_cq(rail->context, WINDOW, NULL, NULL, 0) : NULL;
    if (!rail->cq)
        die("no protection domain or completion queue: %m");
    rail->mr = ibv_reg_mr(rail->pd, memory, memory_bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    if (!rail->mr)
        die("%zu bytes cannot be registered: %m (ulimit -l)", memory_bytes);
    find_gid(rail);
    make_queue_pair(rail);
    rail->here.qp = rail->qp->qp_num;
    rail->here.lid = port.lid;
    rail->here.mtu = (uint8_t)port.active_mtu;
    rail->here.rkey = rail->mr->rkey;
    rail->here.address = (uint64_t)(uintptr_t)came_to(number);
}

static void connect_rail(struct rail *rail)
{
    const struct end *there = &rail->there;
    struct ibv_qp_attr receive = {
        .qp_state = IBV_QPS_RTR, .path_mtu = rail->here.mtu < there->mtu ? rail->here.mtu : there->mtu,
        .dest_qp_num = there->qp, .max_dest_rd_atomic = 1, .min_rnr_timer = 12,
        .ah_attr = {.dlid = there->lid, .port_num = PORT, .is_global = there->lid == 0,
                    .grh = {.dgid = there->gid, .sgid_index = rail->here.gid_index, .hop_limit = 64}},
    };
    /* A second's timeout: a busy machine is no fault. Soft-RoCE takes 7 retries for endless ones. */
    struct ibv_qp_attr send = {.qp_state = IBV_QPS_RTS, .timeout = 18, .retry_cnt = 6, .rnr_retry = 6, .max_rd_atomic = 1};

    if (ibv_modify_qp(rail->qp, &receive, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                      IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) ||
        ibv_modify_qp(rail->qp, &send, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                      IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC))
        die("the queue pair cannot be connected: %m");
}

static bool is_up(struct ibv_device *device)
{
    struct ibv_context *context = ibv_open_device(device);
    struct ibv_port_attr port;
    bool up = context && ibv_query_port(context, PORT, &port) == 0 && port.state == IBV_PORT_ACTIVE;

    if (context)
        ibv_close_device(context);
    return up;
}

static struct ibv_device *find_device(struct ibv_device **devices, const char *name)
{
    for (; *devices; devices++) {
        if (name ? strcmp(ibv_get_device_name(*devices), name) == 0 : is_up(*devices))
            return *devices;
    }
    die("there is no RDMA device %s", name ? name : "that is up");
}

/* Counts the names of the list, so that memory can be had before the devices are opened. */
static char **names_of(char *list, int *n)
{
    static char *names[RAILS_MAX];

    *n = 0;
    for (char *name = list ? strtok(list, ",") : NULL; name && *n < RAILS_MAX; name = strtok(NULL, ","))
        names[(*n)++] = name;
    return names;
}

static void open_rails(void)
{
    struct ibv_device **devices = ibv_get_device_list(NULL);
    const char *setting = getenv("HETMPI_RAILS");
    char *list = setting ? strdup(setting) : NULL;
    char **names = names_of(list, &n_rails);

    if (!devices)
        die("ibv_get_device_list: %m");
    if (n_rails == 0)
        names[n_rails++] = NULL;
    MPI_Allreduce(MPI_IN_PLACE, &n_rails, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    memory_bytes = (size_t)(n_rails + 1) * room;
    memory = aligned_alloc(4096, memory_bytes);
    if (!memory)
        die("no memory for %zu bytes", memory_bytes);
    memset(memory, 0, memory_bytes);
    for (int i = 0; i < n_rails; i++) {
        open_rail(i, find_device(devices, names[i]));
        MPI_Sendrecv(&rails[i].here, sizeof(struct end), MPI_BYTE, !rank, 0, &rails[i].there, sizeof(struct end), MPI_BYTE,
                     !rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        connect_rail(&rails[i]);
    }
    MPI_Barrier(MPI_COMM_WORLD);   /* nobody writes before the other can take it */
    ibv_free_device_list(devices);
    free(list);
}

static void close_rails(void)
{
    for (int i = 0; i < n_rails; i++) {
        ibv_destroy_qp(rails[i].qp);
        ibv_dereg_mr(rails[i].mr);
        ibv_destroy_cq(rails[i].cq);
        ibv_dealloc_pd(rails[i].pd);
        ibv_close_device(rails[i].context);
    }
    free(memory);
}

static void post_write(struct rail *rail, const void *from, size_t bytes, unsigned flags)
{
    struct ibv_sge piece = {.addr = (uint64_t)(uintptr_t)from, .length = (uint32_t)bytes, .lkey = rail->mr->lkey};
    struct ibv_send_wr request = {.sg_list = &piece, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = flags,
                                  .wr.rdma = {.remote_addr = rail->there.address, .rkey = rail->there.rkey}}, *bad;

    if (ibv_post_send(rail->qp, &request, &bad))
        die("ibv_post_send: %m");
}

/* Takes what completions there are; returns their number. */
static int poll_rail(struct rail *rail)
{
    struct ibv_wc done[WINDOW];
    int n = ibv_poll_cq(rail->cq, WINDOW, done);

    if (n < 0)
        die("ibv_poll_cq failed");
    for (int i = 0; i < n; i++) {
        if (done[i].status != IBV_WC_SUCCESS)
            die("a write over %s failed: %s", ibv_get_device_name(rail->context->device), ibv_wc_status_str(done[i].status));
    }
    return n;
}

static unsigned char byte_at(size_t i, unsigned seed)
{
    return (unsigned char)(i * 2654435761u >> 7 ^ i ^ seed);
}

/* Seconds that `times` writes on every rail take. */
static double time_writes(size_t bytes, long times)
{
    long left[RAILS_MAX], open = (long)n_rails * times;
    double start = now();

    for (int i = 0; i < n_rails; i++)
        left[i] = times;
    while (open > 0) {
        for (int i = 0; i < n_rails; i++) {
            struct rail *rail = &rails[i];

            for (; left[i] > 0 && rail->under_way < WINDOW; left[i]--, rail->under_way++)
                post_write(rail, memory, bytes, IBV_SEND_SIGNALED);
            int ended = poll_rail(rail);
            rail->under_way -= ended;
            open -= ended;
            if (ended == 0)
                sched_yield();
        }
    }
    return now() - start;
}

static void check_writes(size_t bytes, unsigned seed)
{
    for (int i = 0; i < n_rails; i++) {
        for (size_t k = 0; k < bytes; k++) {
            if (came_to(i)[k] != byte_at(k, seed))
                die("rail %d: byte %zu of %zu is wrong", i, k, bytes);
        }
    }
}

/* MB/s of one direction. */
static double bandwidth(size_t bytes, bool both, double seconds)
{
    bool sends = both || rank == 0;
    double took = 0, slower;
    long times;

    for (size_t k = 0; k < bytes; k++)
        memory[k] = byte_at(k, (unsigned)(rank + bytes));
    memset(came_to(0), 0, (size_t)n_rails * room);
    MPI_Barrier(MPI_COMM_WORLD);
    if (sends)
        took = time_writes(bytes, WINDOW) / WINDOW;
    MPI_Allreduce(&took, &slower, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    times = (long)(seconds / slower) + 1;
    took = sends ? time_writes(bytes, times) : 0;
    MPI_Allreduce(&took, &slower, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    if (both || rank == 1)
        check_writes(bytes, (unsigned)(!rank + bytes));
    return (double)bytes * (double)n_rails * (double)times / slower / 1e6;
}

/* Round trips; the last byte of a message, its number, shows that it is there. */
static double time_round_trips(struct rail *rail, size_t bytes, long times, unsigned *number)
{
    volatile unsigned char *last = came_to(0) + bytes - 1;
    double start = now();

    for (long i = 0; i < 2 * times; i++) {
        *number = *number % 255 + 1;
        if (i % 2 != rank) {
            while (*last != *number)
                sched_yield();
            continue;
        }
        memory[bytes - 1] = (unsigned char)*number;
        bool signalled = ++rail->unsignalled == SIGNAL_EACH;
        post_write(rail, memory, bytes, IBV_SEND_INLINE | (signalled ? IBV_SEND_SIGNALED : 0));
        if (!signalled)
            continue;
        rail->unsignalled = 0;
        for (rail->under_way++; rail->under_way > 1;)   /* groups; another one has room beside it */
            rail->under_way -= poll_rail(rail);
    }
    return now() - start;
}

/* Microseconds. */
static double latency(size_t bytes, double seconds)
{
    unsigned number = 0;
    long times;

    for (size_t k = 0; k < bytes; k++)
        memory[k] = byte_at(k, (unsigned)(rank + bytes));
    memset(came_to(0), 0, bytes);
    MPI_Barrier(MPI_COMM_WORLD);
    times = (long)(seconds / time_round_trips(&rails[0], bytes, WINDOW, &number) * WINDOW) + 1;
    times = times < ROUND_TRIPS_MOST ? times : ROUND_TRIPS_MOST;
    MPI_Bcast(&times, 1, MPI_LONG, 0, MPI_COMM_WORLD);
    double took = time_round_trips(&rails[0], bytes, times, &number);
    for (size_t k = 0; k + 1 < bytes; k++) {
        if (came_to(0)[k] != byte_at(k, (unsigned)(!rank + bytes)))
            die("byte %zu of %zu is wrong", k, bytes);
    }
    return took / (double)times / 2 * 1e6;
}

static void run(const char *test, size_t least, size_t most, double seconds)
{
    bool trips = strcmp(test, "latency") == 0;

    if (rank == 0)
        printf("# Raw verbs %s, %d rail%s, MTU %d\n%-10s%20s\n", test, n_rails, n_rails > 1 ? "s" : "",
               128 << rails[0].here.mtu, "# Size", trips ? "Latency (us)" : "Bandwidth (MB/s)");
    for (size_t bytes = least; bytes <= most; bytes *= 2) {
        if (trips && bytes > rails[0].inline_most)
            break;
        double figure = trips ? latency(bytes, seconds) : bandwidth(bytes, strcmp(test, "bibw") == 0, seconds);
        if (rank == 0)
            printf("%-10zu%20.2f\n", bytes, figure);
        fflush(stdout);
    }
}

int main(int argc, char **argv)
{
    int ranks;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const char *test = argc > 1 ? argv[1] : "";
    bool trips = strcmp(test, "latency") == 0;
    size_t least = argc > 3 ? strtoul(argv[2], NULL, 10) : trips ? 8 : 65536;
    size_t most = argc > 3 ? strtoul(argv[3], NULL, 10) : trips ? 128 : 4194304;
    double seconds = argc > 4 ? atof(argv[4]) : 1;
    if (ranks != 2 || (!trips && strcmp(test, "bw") != 0 && strcmp(test, "bibw") != 0) || least < 1 || most < least ||
        most > UINT32_MAX || !(seconds > 0))
        die("usage, with 2 ranks: raw_verbs latency|bw|bibw [MIN MAX [SECONDS]], in bytes");
    room = (most + 4095) / 4096 * 4096;
    open_rails();
    run(test, least, most, seconds);
    MPI_Barrier(MPI_COMM_WORLD);
    close_rails();
    MPI_Finalize();
    return 0;
}
