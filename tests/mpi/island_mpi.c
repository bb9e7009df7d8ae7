/*
 * The provider mpi: random programs of local operations against a plain oracle. All ranks take part, in one to three
 * islands at once; programs, weights and islands are drawn anew each round. Then: order and size are checked, and a
 * failed communicator closes at once, with messages under way.
 */
#include "../unit/island_program.h"

#define ROUNDS 12

static int ranks, rank;

static int open_comm(struct comm *comm, struct cfg *cfg, struct topo_rank *facts, MPI_Comm *shadow)
{
    *comm = (struct comm){.user = MPI_COMM_WORLD, .rank = rank, .size = ranks, .cfg = cfg};
    if (MPI_Comm_dup(MPI_COMM_WORLD, shadow) != MPI_SUCCESS)
        return 1;
    MPI_Comm_set_errhandler(*shadow, MPI_ERRORS_RETURN);
    comm->shadow = *shadow;
    return topo_build(&comm->topo, facts, ranks, rank) != HETMPI_SUCCESS;
}

static int close_comm(struct comm *comm, MPI_Comm *shadow)
{
    topo_clear(&comm->topo);
    return MPI_Comm_free(shadow) != MPI_SUCCESS;
}

static int run_round(int round)
{
    struct topo_rank *facts = calloc((size_t)ranks, sizeof(*facts));
    struct cfg cfg = {.staging = round % 4 == 3 ? 1 : (size_t)8 << 20};   /* 1: no room but for one operation at once */
    uint64_t seed = 5000 + (uint64_t)round;
    struct comm comm;
    struct program p = {.comm = &comm, .seed = seed, .slot_bytes = round % 3 ? 65536 : 5000, .n_tasks = 50,
                        .window = 1 + (int)(mix(seed) % 12)};
    MPI_Comm shadow;
    int wrong;

    if (!facts)
        return 1;
    draw_facts(seed, facts, ranks, ranks - (int)(mix(seed + 7) % (uint64_t)((ranks + 1) / 2)));
    if (open_comm(&comm, &cfg, facts, &shadow))
        return 1;
    if (island_mpi.open(&comm, p.slot_bytes, &p.island) != HETMPI_SUCCESS)
        return say(&p, 0, "open");
    wrong = run_program(&p, 60);
    island_mpi.close(p.island);
    wrong += close_comm(&comm, &shadow);
    free(facts);
    return wrong;
}

/* Receives what nobody received, so that MPI does not complain. */
static void take_leftovers(MPI_Comm shadow)
{
    static char bytes[4096];
    int there = 1;

    MPI_Barrier(MPI_COMM_WORLD);
    while (there) {
        MPI_Status status;
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, shadow, &there, &status);
        if (there)
            MPI_Recv(bytes, sizeof(bytes), MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, shadow, MPI_STATUS_IGNORE);
    }
}

/* The last rank takes no part: the others' receives never complete. */
static int run_failure(void)
{
    struct topo_rank *facts = calloc((size_t)ranks, sizeof(*facts));
    struct cfg cfg = {.staging = 1 << 20};
    struct sched_step step = {.kind = STEP_LOCAL_SPREAD, .owners = OWNERS_WEIGHT, .readers = READERS_ALL,
                              .in.range.parts = 1};
    struct island *island;
    struct comm comm;
    MPI_Comm shadow;
    void *memory;
    bool done = false;
    int wrong = 0;
    time_t began;

    if (!facts)
        return 1;
    for (int i = 0; i < ranks; i++)
        facts[i] = (struct topo_rank){1, 1, 1};
    if (open_comm(&comm, &cfg, facts, &shadow) || island_mpi.open(&comm, 4096, &island) != HETMPI_SUCCESS ||
        mem_alloc(4096, &memory) != HETMPI_SUCCESS)
        return 1;
    began = time(NULL);
    if (rank < ranks - 1) {
        struct sched_view view = {.base = memory, .element = 4, .layout = LAYOUT_VECTOR, .L = 1000, .count = 1000};
        struct island_op op = {.number = 1, .step = &step, .chunk.length = 1000, .in = view, .out = view};
        wrong += island_mpi.start(island, &op) != HETMPI_ERR_INTERNAL;
        op.number = 0;
        op.chunk.length = 10000;
        wrong += island_mpi.start(island, &op) != HETMPI_ERR_INTERNAL;
        op.chunk.length = 1000;
        wrong += island_mpi.start(island, &op) != HETMPI_SUCCESS;
        for (int i = 0; i < 100; i++)
            wrong += island_mpi.poll(island, &op, &done) != HETMPI_SUCCESS || done;
        comm.failed = HETMPI_ERR_PEER;
    }
    island_mpi.close(island);
    wrong += time(NULL) - began > 3;
    mem_free(memory);
    free(facts);
    take_leftovers(shadow);
    return wrong + close_comm(&comm, &shadow);
}

int main(int argc, char **argv)
{
    const char *wanted = getenv("HETMPI_TEST_RANKS");
    struct mem_setup setup = {.vendor = "nvidia", .device = -1, .fault = ""};
    int wrong = 0, all;

    MPI_Init(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (wanted && atoi(wanted) != ranks) {
        fprintf(stderr, "%d ranks, %s were asked for: mpiexec is not this MPI's\n", ranks, wanted);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    if (mem_init(&setup) != HETMPI_SUCCESS)
        wrong++;
    for (int round = 0; round < ROUNDS && !wrong; round++) {
        wrong = run_round(round);
        if (wrong)   /* the others wait for this rank's messages */
            MPI_Abort(MPI_COMM_WORLD, 1);
    }
    if (ranks > 1)
        wrong += run_failure();
    mem_fini();
    MPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%d ranks: %s\n", ranks, all ? "FAILED" : "passed");
    MPI_Finalize();
    return all != 0;
}
