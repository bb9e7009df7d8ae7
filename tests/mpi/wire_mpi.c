/*
 * The wires between processes: random traffic over the mpi, the shm and the ipc wire, with communicators made by hand,
 * then what must go wrong in the right way. Arguments: the wire's name; "far": the mpi wire, each rank on its own node.
 */
#include <unistd.h>

#include "hetmpi.h"

#include "../wire_traffic.h"

static int failures;

static void expect(const struct comm *comm, bool good, const char *what)
{
    if (good)
        return;
    failures++;
    fprintf(stderr, "rank %d: FAILED: %s (last error: %s)\n", comm->rank, what, err_text());
}

static bool ipc, far;   /* what is tested */

/* The ranks of MPI_COMM_WORLD, each an island of its own (ipc: in one), all on one node (far: each on its own). */
static void comm_make(struct comm *comm, struct cfg *cfg)
{
    struct topo_rank facts[64];
    struct seg_name mine, names[64];

    memset(comm, 0, sizeof(*comm));
    comm->cfg = cfg;
    comm->user = MPI_COMM_WORLD;
    MPI_Comm_rank(MPI_COMM_WORLD, &comm->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &comm->size);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm->shadow);
    MPI_Comm_set_errhandler(comm->shadow, MPI_ERRORS_RETURN);
    comm->ctls = calloc((size_t)comm->size, sizeof(*comm->ctls));
    comm->ctl_segs = calloc((size_t)comm->size, sizeof(*comm->ctl_segs));
    comm->local = calloc((size_t)comm->size, sizeof(*comm->local));
    comm->pids = calloc((size_t)comm->size, sizeof(*comm->pids));
    comm->n_local = far ? 1 : comm->size;
    comm->one_node = !far;
    comm->island_ipc = ipc;
    if (seg_create(&comm->ctl_seg, sizeof(struct ctl), &mine))
        MPI_Abort(MPI_COMM_WORLD, 2);
    MPI_Allgather(&mine, sizeof(mine), MPI_BYTE, names, sizeof(mine), MPI_BYTE, MPI_COMM_WORLD);
    for (int r = 0; r < comm->size; r++) {
        facts[r] = (struct topo_rank){ .island_key = ipc ? 1 : (uint64_t)r + 1,
                                        .node_key = far ? (uint64_t)r + 1 : 1, .weight = 1 };
        comm->local[r] = far ? comm->rank : r;
        comm->pids[r] = names[r].pid;
        if (far && r != comm->rank)
            continue;
        if (r != comm->rank && seg_open(&comm->ctl_segs[r], &names[r]))
            MPI_Abort(MPI_COMM_WORLD, 2);
        comm->ctls[r] = r == comm->rank ? comm->ctl_seg.base : comm->ctl_segs[r].base;
    }
    comm->ctl = comm->ctl_seg.base;
    if (topo_build(&comm->topo, facts, comm->size, comm->rank))
        MPI_Abort(MPI_COMM_WORLD, 2);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void comm_drop(struct comm *comm)
{
    double start = traffic_now();

    if (comm->wire_mpi)
        comm->wire_mpi->ops->close(comm->wire_mpi);
    if (comm->wire_shm)
        comm->wire_shm->ops->close(comm->wire_shm);
    if (comm->wire_ipc)
        comm->wire_ipc->ops->close(comm->wire_ipc);
    expect(comm, traffic_now() - start < 20, "close comes to an end");
    MPI_Barrier(MPI_COMM_WORLD);
    for (int r = 0; r < comm->size; r++)
        seg_clear(&comm->ctl_segs[r]);
    seg_clear(&comm->ctl_seg);
    topo_clear(&comm->topo);
    free(comm->ctls);
    free(comm->ctl_segs);
    free(comm->local);
    free(comm->pids);
    MPI_Comm_free(&comm->shadow);
}

/* Refused begins of all ranks. */
static int traffic(struct cfg *cfg, struct traffic t)
{
    struct comm comm;
    int refused;

    comm_make(&comm, cfg);
    t.comm = &comm;
    t.seconds = 100;
    if (!traffic_run(&t)) {
        fprintf(stderr, "%s\n", t.error);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    expect(&comm, t.moved > 0, "something was sent");
    MPI_Allreduce(&t.refused, &refused, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    comm_drop(&comm);
    return refused;
}

/* Rank 0 sends `sent` bytes where rank 1 expects `expected`. */
static void sizes_differ(struct cfg *cfg, size_t sent, size_t expected)
{
    struct comm comm;
    char data[400] = "";
    struct wire *wire;
    int rc = HETMPI_SUCCESS;
    bool done = false;

    comm_make(&comm, cfg);
    if (comm.rank < 2) {
        struct wire_xfer x = traffic_plain(1 - comm.rank, data, comm.rank ? expected : sent);
        double until = traffic_now() + 30;
        expect(&comm, !wire_for(&comm, x.peer, &wire), "wire_for");
        rc = comm.rank ? wire->ops->recv(wire, &x) : wire->ops->send(wire, &x);
        expect(&comm, !rc, "begin");
        while (!rc && !done && traffic_now() < until)
            rc = wire->ops->poll(wire, &x, &done);
        expect(&comm, comm.rank ? rc == HETMPI_ERR_INTERNAL : done, "a message of another size is found");
        expect(&comm, !comm.rank || strstr(err_text(), "rank 0 sent"), "the sender is named");
    }
    MPI_Barrier(MPI_COMM_WORLD);
    atomic_store(&comm.failed, HETMPI_ERR_INTERNAL);
    comm_drop(&comm);
}

static const int swapped[2] = { 1, 0 };

/* A message in two blocks, so that it is staged wherever it lies. */
static struct wire_xfer blocks_xfer(int peer, uint32_t chunk, void *base)
{
    return (struct wire_xfer){ .peer = peer, .op = 1, .chunk = chunk, .channel = (uint16_t)chunk, .length = 1000,
                               .view = { .base = base, .element = 1, .layout = LAYOUT_BLOCKS, .ranks = swapped,
                                         .L = 500, .count = 600 } };
}

/* Receives that nobody sends for, and sends that nobody receives, end with the wire. */
static void given_up(struct cfg *cfg)
{
    enum { BYTES = 3 << 20 };
    struct comm comm;
    struct wire *wire;
    struct wire_xfer out, in, blocks;
    char *memory = calloc(3, BYTES);

    comm_make(&comm, cfg);
    if (comm.rank < 2) {
        out = traffic_plain(1 - comm.rank, memory, BYTES);
        in = traffic_plain(1 - comm.rank, memory + BYTES, BYTES);
        in.channel = 1;
        blocks = blocks_xfer(1 - comm.rank, 2, memory + 2 * BYTES);
        expect(&comm, !wire_for(&comm, out.peer, &wire), "wire_for");
        expect(&comm, !wire->ops->send(wire, &out), "send");
        expect(&comm, !wire->ops->recv(wire, &in), "recv");
        expect(&comm, !wire->ops->recv(wire, &blocks), "recv of blocks");
        atomic_store(&comm.failed, HETMPI_ERR_ABORTED);
    }
    comm_drop(&comm);
    MPI_Barrier(MPI_COMM_WORLD);
    free(memory);
}

/* Later chunks hold all slots for receives whose sender waits for an earlier chunk: it gets a slot all the same. */
static void oldest_first(struct cfg *cfg)
{
    struct comm comm;
    struct wire *wire;
    struct wire_xfer x[4];
    static const uint32_t chunks[4] = { 5, 6, 1, 7 };
    static char data[4][1200], copy[4][1200];

    comm_make(&comm, cfg);
    memset(data, 9, sizeof(data));
    for (int i = 0; i < 4 && comm.rank < 2; i++)
        x[i] = blocks_xfer(1 - comm.rank, chunks[i], comm.rank ? copy[i] : data[i]);
    expect(&comm, comm.rank > 1 || !wire_for(&comm, 1 - comm.rank, &wire), "wire_for");
    if (comm.rank == 1) {
        expect(&comm, !wire->ops->recv(wire, &x[0]) && !wire->ops->recv(wire, &x[1]), "two receives, two slots");
        expect(&comm, wire->ops->recv(wire, &x[3]) == COMM_AGAIN, "a later message has to wait for a slot");
        expect(&comm, !wire->ops->recv(wire, &x[2]), "the oldest message gets a slot beyond the bound");
        expect(&comm, traffic_finish(wire, &x[2]), "the oldest message comes");
        MPI_Send(NULL, 0, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
        expect(&comm, traffic_finish(wire, &x[0]) && traffic_finish(wire, &x[1]), "the later ones come");
        expect(&comm, !memcmp(copy[0] + 600, data[0], 500) && !memcmp(copy[2], data[2], 500) && copy[2][500] == 0,
               "what came is right");
    } else if (comm.rank == 0) {
        expect(&comm, !wire->ops->send(wire, &x[2]) && traffic_finish(wire, &x[2]), "the oldest message goes");
        MPI_Recv(NULL, 0, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int i = 0; i < 2; i++)
            expect(&comm, !wire->ops->send(wire, &x[i]) && traffic_finish(wire, &x[i]), "a later one goes");
    }
    comm_drop(&comm);
}

/* Between nodes, where MPI takes all pieces of a message but the last without asking: a send has not ended before its
 * receive has begun, however late, and what came before that is right. */
static void late_receiver(struct cfg *cfg)
{
    enum { BYTES = 200001, MESSAGES = 5 };
    struct comm comm;
    struct wire *wire;
    struct wire_xfer x[MESSAGES];
    bool done, early = false;
    unsigned char *data = malloc((size_t)MESSAGES * BYTES);

    comm_make(&comm, cfg);
    for (size_t i = 0; i < (size_t)MESSAGES * BYTES; i++)
        data[i] = comm.rank ? 0 : (unsigned char)(i * 7 % 251);
    for (int i = 0; i < MESSAGES && comm.rank < 2; i++) {
        x[i] = traffic_plain(1 - comm.rank, data + (size_t)i * BYTES, BYTES);
        x[i].chunk = (uint32_t)i;
    }
    expect(&comm, comm.rank > 1 || !wire_for(&comm, 1 - comm.rank, &wire), "wire_for");
    if (comm.rank == 0) {
        double until = traffic_now() + 0.3;
        for (int i = 0; i < MESSAGES; i++)
            expect(&comm, !wire->ops->send(wire, &x[i]), "send");
        while (traffic_now() < until)
            for (int i = 0; i < MESSAGES; i++)
                early = early || wire->ops->poll(wire, &x[i], &done) || done;
        expect(&comm, !early, "no send ends before its receive begins");
        MPI_Send(NULL, 0, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
    } else if (comm.rank == 1) {
        MPI_Recv(NULL, 0, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);   /* takes in what MPI sent already */
        for (int i = 0; i < MESSAGES; i++)
            expect(&comm, !wire->ops->recv(wire, &x[i]), "recv");
    }
    for (int i = 0; i < MESSAGES && comm.rank < 2; i++)
        expect(&comm, traffic_finish(wire, &x[i]), "each message comes to its end");
    for (size_t i = 0; i < (size_t)MESSAGES * BYTES && comm.rank == 1; i++)
        if (data[i] != (unsigned char)(i * 7 % 251)) {
            expect(&comm, false, "what came late is right");
            break;
        }
    comm_drop(&comm);
    free(data);
}

/* Device memory goes from device to device: over the links to the hosts this would take twice LINK_TIME. */
#define LINK_SPEED 20e6
#define LINK_BYTES ((size_t)16 << 20)
#define LINK_TIME ((double)LINK_BYTES / LINK_SPEED)
static void beside_the_links(struct cfg *cfg)
{
    struct comm comm;
    struct wire *wire;
    void *memory;

    comm_make(&comm, cfg);
    if (mem_alloc(LINK_BYTES, &memory))
        MPI_Abort(MPI_COMM_WORLD, 2);
    if (comm.rank < 2) {
        struct wire_xfer x = traffic_plain(1 - comm.rank, memory, LINK_BYTES);
        double start = traffic_now();
        expect(&comm, !wire_for(&comm, x.peer, &wire) && wire == comm.wire_ipc, "the ipc wire serves an island");
        expect(&comm, !(comm.rank ? wire->ops->recv(wire, &x) : wire->ops->send(wire, &x)), "begin");
        expect(&comm, traffic_finish(wire, &x), "the message comes");
        expect(&comm, traffic_now() - start < LINK_TIME * 0.8, "the message does not take the links to the hosts");
    }
    comm_drop(&comm);
    mem_free(memory);
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "mpi", *wanted = getenv("HETMPI_TEST_RANKS");
    struct cfg *cfg = calloc(1, sizeof(*cfg));
    int rank, size, refused, all;

    MPI_Init(&argc, &argv);
    /* MPICH reports what MPI_Test finds to these two, not to the message's communicator. */
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size < 2 || (wanted && atoi(wanted) != size)) {
        fprintf(stderr, "%d ranks, wanted %s\n", size, wanted ? wanted : "2 or more");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    ipc = strcmp(name, "ipc") == 0;
    far = strcmp(name, "far") == 0;
    /* Copies slow enough that messages overtake each other inside a rank. */
    if (mem_init(&(struct mem_setup){ .vendor = rank % 2 && !ipc ? "amd" : "nvidia", .device = -1,
                                      .bandwidth = ipc ? LINK_SPEED : 400e6, .latency = 20e-6, .fault = "" }))
        MPI_Abort(MPI_COMM_WORLD, 2);
    cfg->wire = strcmp(name, "shm") == 0 ? CFG_WIRE_SHM : CFG_WIRE_MPI;

    cfg->mpi_piece = 56 << 10;
    cfg->staging = 8 << 20;
    traffic(cfg, (struct traffic){ .seed = 1, .ops = 3, .chunks = 6, .channels = 3, .window = 4, .most = 20000,
                                   .device = true });
    traffic(cfg, (struct traffic){ .seed = 2, .ops = 1, .chunks = 4, .channels = 1, .window = 2, .most = 300000,
                                   .device = true, .one_way = true });
    cfg->staging = 0;
    refused = traffic(cfg, (struct traffic){ .seed = 3, .ops = 2, .chunks = 8, .channels = 3, .window = 6, .most = 6000,
                                             .device = true });
    if (refused == 0 && rank == 0) {
        fprintf(stderr, "with the least staging memory nothing was ever refused\n");
        failures++;
    }
    if (cfg->wire == CFG_WIRE_MPI && !ipc)
        oldest_first(cfg);
    cfg->staging = 8 << 20;
    if (ipc)
        beside_the_links(cfg);
    if (far)
        late_receiver(cfg);
    sizes_differ(cfg, 200, 300);
    sizes_differ(cfg, 300, 200);
    given_up(cfg);

    MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf("wire %s, %d ranks, %s: %s\n", name, size, mem_backend(), all ? "FAILED" : "passed");
    MPI_Finalize();
    mem_fini();
    free(cfg);
    return all != 0;
}
