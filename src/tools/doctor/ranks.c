/* What MPI and hetmpi say, and a test of every rank with itself and with every other: see doctor.h. */
#include "doctor.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "hetmpi.h"

#define TEST_BYTES ((size_t)1 << 20)
#define WORDS (TEST_BYTES / sizeof(uint64_t))
#define LATENCY_TRIPS 20
#define TIMEOUT "30"           /* seconds: the setting */

struct buffers { uint64_t *host; void *out, *in; };

/*
 * MPI
 */

/* Asked at run time: what a library was built with says little. -1: it does not tell. */
static int mpi_takes_device_memory(const char *vendor)
{
    bool amd = strcmp(vendor, "amd") == 0;
    int (*ask)(void) = NULL;

    *(void **)&ask = dlsym(RTLD_DEFAULT, amd ? "MPIX_Query_rocm_support" : "MPIX_Query_cuda_support");
    if (!ask && amd)
        *(void **)&ask = dlsym(RTLD_DEFAULT, "MPIX_Query_hip_support");
    return ask ? ask() != 0 : -1;
}

static void describe_mpi(struct json_object *rank, const char *vendor)
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length, aware = mpi_takes_device_memory(vendor);

    MPI_Get_library_version(text, &length);
    text[strcspn(text, ",\n")] = '\0';
    for (char *at = text; *at; at++)
        if (*at == '\t')
            *at = ' ';
    add_text(rank, "mpi", text);
    add_text(rank, "gpu_aware_mpi", aware < 0 ? "unknown" : aware ? "yes" : "no");
}

/*
 * hetmpi on MPI_COMM_WORLD
 */

static int attach(struct doctor *doctor, hetmpi_comm_info_t *info)
{
    MPI_Info settings;
    int code;

    MPI_Info_create(&settings);
    MPI_Info_set(settings, "timeout", TIMEOUT);
    code = hetmpi_comm_attach(MPI_COMM_WORLD, settings);
    MPI_Info_free(&settings);
    if (!code)
        code = hetmpi_comm_info(MPI_COMM_WORLD, info);
    if (code)
        find(doctor, FAULT, "hetmpi", "hetmpi cannot be used by this job", "see the message; HETMPI_LOG=debug tells more",
             "set-up fails: %s", hetmpi_last_error());
    return code;
}

static void describe_rank(struct json_object *rank, const hetmpi_comm_info_t *info)
{
    json_object_object_add(rank, "node", json_object_new_int(info->node));
    json_object_object_add(rank, "island", json_object_new_int(info->island));
    json_object_object_add(rank, "device", json_object_new_int(info->device));
    add_text(rank, "vendor", info->vendor);
    add_text(rank, "provider", info->provider);
    add_text(rank, "wire", info->wire);
}

static void check_ways(struct doctor *doctor, const hetmpi_comm_info_t *info)
{
    if (strcmp(info->vendor, "cpu") != 0 && info->island_ranks > 1 && strcmp(info->provider, "ipc") != 0)
        find(doctor, WARNING, "peer-access", "data between these devices go through host memory", "nvidia-smi topo -p2p r, or "
             "rocm-smi --showtopoaccess, shows what the devices can; containers of one node need --ipc=host and --pid=host; "
             "HETMPI_LOG=info says what hetmpi found", "%s devices of island %d do not reach each other's memory (provider %s)",
             info->vendor, info->island, info->provider);
    if (doctor->leader && info->nodes > 1 && facts_nics(doctor) > 0 && !strstr(info->wire, "verbs"))
        find(doctor, WARNING, "wire", "traffic between nodes is MPI's, copied through host memory", "HETMPI_WIRE=verbs says why "
             "it is not taken; hetmpi must be built with HETMPI_WITH_VERBS=ON", "there are RDMA NICs, but the wire between nodes "
             "is %s", info->wire);
}

/*
 * Tests. Patterns differ by pair and batch, so that nothing old can pass for new.
 */

static uint64_t pattern(uint64_t seed, size_t i)
{
    uint64_t x = (seed << 32 | i) * 0x9e3779b97f4a7c15u;

    return x ^ x >> 29;
}

static int fill(struct buffers *buffers, uint64_t seed)
{
    for (size_t i = 0; i < WORDS; i++)
        buffers->host[i] = pattern(seed, i);
    return hetmpi_memcpy(buffers->out, buffers->host, TEST_BYTES);
}

/* How many words of what was received are wrong. */
static int count_wrong(struct buffers *buffers, uint64_t seed, size_t *wrong)
{
    int code = hetmpi_memcpy(buffers->host, buffers->in, TEST_BYTES);

    *wrong = 0;
    for (size_t i = 0; i < WORDS && !code; i++)
        *wrong += buffers->host[i] != pattern(seed, i);
    return code;
}

static int buffers_make(struct buffers *buffers)
{
    int code = hetmpi_malloc(TEST_BYTES, HETMPI_MEM_HOST, (void **)&buffers->host);

    if (!code)
        code = hetmpi_malloc(TEST_BYTES, HETMPI_MEM_DEVICE, &buffers->out);
    if (!code)
        code = hetmpi_malloc(TEST_BYTES, HETMPI_MEM_DEVICE, &buffers->in);
    return code;
}

static void buffers_free(struct buffers *buffers)
{
    hetmpi_free(buffers->in);
    hetmpi_free(buffers->out);
    hetmpi_free(buffers->host);
}

static void tell_wrong(struct doctor *doctor, int a, int b, size_t wrong)
{
    find(doctor, FAULT, "data", "results are wrong", "stop using these machines; memory tests (dcgmi diag -r 3, rvs), cables, "
         "NIC firmware", "ranks %d and %d: %zu of %zu words arrived wrong", a, b, wrong, WORDS);
}

/* Messages of a rank to itself, from its device's memory to its device's memory, for that long. */
static int test_alone(struct doctor *doctor, struct json_object *rank, struct buffers *buffers, double seconds)
{
    double began = MPI_Wtime(), moving = 0, bytes = 0;
    size_t wrong = 0;
    int code = HETMPI_SUCCESS;

    for (uint64_t number = 1; !code && !wrong && (number == 1 || MPI_Wtime() - began < seconds); number++) {
        uint64_t seed = number << 24 | (uint64_t)doctor->rank << 12 | (uint64_t)doctor->rank;
        double start;

        code = fill(buffers, seed);
        if (!code)
            code = hetmpi_memset(buffers->in, 0, TEST_BYTES);
        start = MPI_Wtime();
        if (!code)
            code = hetmpi_sendrecv(buffers->out, TEST_BYTES, MPI_BYTE, doctor->rank, 0, buffers->in, TEST_BYTES, MPI_BYTE,
                                   doctor->rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        moving += MPI_Wtime() - start;
        bytes += TEST_BYTES;
        if (!code)
            code = count_wrong(buffers, seed, &wrong);
    }
    if (moving > 0)
        json_object_object_add(rank, "loopback_gb_s", json_object_new_double(bytes / moving * 1e-9));
    if (wrong)
        tell_wrong(doctor, doctor->rank, doctor->rank, wrong);
    return code;
}

struct measure { double latency, bytes, seconds; bool right; };

static int exchange(struct buffers *buffers, size_t bytes, int peer)
{
    return hetmpi_sendrecv(buffers->out, bytes, MPI_BYTE, peer, 1, buffers->in, bytes, MPI_BYTE, peer, 1, MPI_COMM_WORLD,
                           MPI_STATUS_IGNORE);
}

/* The lower rank says how many messages the next batch has; 0: enough, or one of the two has failed. */
static int next_batch(const struct doctor *doctor, MPI_Comm comm, int peer, int batch, int code)
{
    int mine[2] = {batch, code}, theirs[2];

    MPI_Sendrecv(mine, 2, MPI_INT, peer, 2, theirs, 2, MPI_INT, peer, 2, comm, MPI_STATUS_IGNORE);
    if (code || theirs[1])
        return 0;
    return doctor->rank < peer ? batch : theirs[0];
}

static int test_pair(struct doctor *doctor, MPI_Comm comm, struct buffers *buffers, int peer, double seconds,
                     struct measure *measure)
{
    double began = MPI_Wtime(), batch_began, took;
    int code = HETMPI_SUCCESS, batch = 1;
    size_t wrong = 0;

    *measure = (struct measure){.right = true};
    for (int i = 0; i <= LATENCY_TRIPS && !code; i++) {
        if (i == 1)
            began = MPI_Wtime();   /* the first one opens the wire */
        code = exchange(buffers, sizeof(uint64_t), peer);
    }
    measure->latency = (MPI_Wtime() - began) / LATENCY_TRIPS;
    began = MPI_Wtime();
    for (int number = 1;; number++) {
        uint64_t mine = (uint64_t)number << 24 | (uint64_t)doctor->rank << 12 | (uint64_t)peer;
        uint64_t theirs = (uint64_t)number << 24 | (uint64_t)peer << 12 | (uint64_t)doctor->rank;

        batch = next_batch(doctor, comm, peer, number > 1 && MPI_Wtime() - began > seconds ? 0 : batch, code);
        if (batch == 0)
            return code;
        code = fill(buffers, mine);
        if (!code)
            code = hetmpi_memset(buffers->in, 0, TEST_BYTES);
        batch_began = MPI_Wtime();
        for (int i = 0; i < batch && !code; i++)
            code = exchange(buffers, TEST_BYTES, peer);
        took = MPI_Wtime() - batch_began;
        if (!code)
            code = count_wrong(buffers, theirs, &wrong);
        if (!code && wrong && measure->right) {
            measure->right = false;
            tell_wrong(doctor, peer, doctor->rank, wrong);
        }
        measure->bytes += (double)batch * TEST_BYTES;
        measure->seconds += took;
        if (took < seconds / 4)
            batch *= 2;
    }
}

/* Round `round` of a tournament in which each meets each once; -1: this rank rests. */
static int opponent(int rank, int ranks, int round)
{
    int even = ranks + ranks % 2, other;

    if (rank == even - 1)
        other = round;
    else if (rank == round)
        other = even - 1;
    else
        other = (2 * round - rank + 2 * (even - 1)) % (even - 1);
    return other < ranks ? other : -1;
}

static void add_pair(struct doctor *doctor, int peer, const struct measure *measure)
{
    struct json_object *pair = json_object_new_object();

    json_object_object_add(pair, "a", json_object_new_int(doctor->rank));
    json_object_object_add(pair, "b", json_object_new_int(peer));
    json_object_object_add(pair, "latency_us", json_object_new_double(measure->latency * 1e6));
    json_object_object_add(pair, "gb_s", json_object_new_double(measure->bytes / measure->seconds * 1e-9));
    json_object_object_add(pair, "bytes", json_object_new_double(measure->bytes));
    json_object_object_add(pair, "right", json_object_new_boolean(measure->right));
    json_object_array_add(doctor->pairs, pair);
}

/* Each rank with itself, then each with each, in equal shares of the time. */
static void test_all(struct doctor *doctor, struct json_object *rank, MPI_Comm comm)
{
    int rounds = doctor->ranks == 1 ? 0 : doctor->ranks + doctor->ranks % 2 - 1, worst = HETMPI_SUCCESS;
    double share = doctor->options.seconds / (rounds + 1);
    struct buffers buffers = {NULL, NULL, NULL};
    int code = buffers_make(&buffers);

    if (!code)
        code = test_alone(doctor, rank, &buffers, share);
    for (int round = 0; round < rounds; round++) {
        int peer = opponent(doctor->rank, doctor->ranks, round);
        struct measure measure;

        MPI_Allreduce(&code, &worst, 1, MPI_INT, MPI_MAX, comm);
        if (worst)
            break;
        if (peer < 0)
            continue;
        code = test_pair(doctor, comm, &buffers, peer, share, &measure);
        if (!code && doctor->rank < peer)
            add_pair(doctor, peer, &measure);
    }
    buffers_free(&buffers);
    if (code)
        find(doctor, FAULT, "test", "collectives between these ranks fail or hang", "see the message; HETMPI_LOG=debug tells more",
             "rank %d: %s", doctor->rank, hetmpi_last_error());
}

void check_ranks(struct doctor *doctor)
{
    struct json_object *rank = json_object_new_object();
    hetmpi_comm_info_t info = {.vendor = ""};
    MPI_Comm comm;
    int code, worst;

    json_object_object_add(doctor->facts, "rank", rank);
    json_object_object_add(rank, "rank", json_object_new_int(doctor->rank));
    add_text(rank, "host", doctor->host);
    add_text(rank, "hetmpi", hetmpi_build_info());
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    code = attach(doctor, &info);
    describe_mpi(rank, info.vendor);
    MPI_Allreduce(&code, &worst, 1, MPI_INT, MPI_MAX, comm);
    if (!worst) {
        describe_rank(rank, &info);
        check_ways(doctor, &info);
        test_all(doctor, rank, comm);
    }
    MPI_Comm_free(&comm);
}
