/*
 * The providers shm and ipc: random programs between forked processes against a plain oracle, the protocol's promises
 * one by one between boards of one process, grouped reductions, and the choice of a provider. No MPI is started.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "island/parts.h"
#include "island_program.h"

#define MAX_RANKS 9

/* A communicator made by hand: ranks of island key 1 share memory, with the control segments in `ctls`. */
struct fake {
    struct comm comm;
    struct cfg cfg;
    struct ctl *ctls[MAX_RANKS];
    char vendors[MAX_RANKS][8];
    struct topo_rank facts[MAX_RANKS];
};

static void fake_make(struct fake *f, struct ctl *ctls, const struct topo_rank *facts, int ranks, int rank)
{
    memset(f, 0, sizeof(*f));
    memcpy(f->facts, facts, (size_t)ranks * sizeof(*facts));
    f->comm = (struct comm){.user = MPI_COMM_NULL, .shadow = MPI_COMM_NULL, .rank = rank, .size = ranks, .cfg = &f->cfg,
                            .vendors = f->vendors, .ctls = f->ctls, .ctl = &ctls[rank]};
    f->cfg.timeout = 20;
    for (int i = 0; i < ranks; i++) {
        f->ctls[i] = facts[i].island_key == facts[rank].island_key ? &ctls[i] : NULL;
        snprintf(f->vendors[i], sizeof(f->vendors[i]), "%s", mem_vendor());
    }
    assert_int_equal(topo_build(&f->comm.topo, facts, ranks, rank), HETMPI_SUCCESS);
}

static void fake_clear(struct fake *f) { topo_clear(&f->comm.topo); }

static struct ctl *shared_ctls(void)
{
    struct ctl *ctls = mmap(NULL, MAX_RANKS * sizeof(*ctls), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    assert_ptr_not_equal(ctls, MAP_FAILED);
    return ctls;
}

static void start_device(void)
{
    struct mem_setup setup = {.vendor = "nvidia", .device = -1, .fault = ""};

    if (mem_init(&setup) != HETMPI_SUCCESS) {
        fprintf(stderr, "mem_init: %s\n", err_text());
        exit(1);
    }
}

/* Random programs */

static int run_member(struct ctl *ctls, uint64_t seed, const struct topo_rank *facts, int ranks, int rank,
                      const struct island_ops *ops, size_t slot_bytes)
{
    struct fake f;
    struct program p = {.comm = &f.comm, .seed = seed, .slot_bytes = slot_bytes, .n_tasks = 60,
                        .window = 1 + (int)(mix(seed) % 12)};
    int wrong;

    start_device();
    fake_make(&f, ctls, facts, ranks, rank);
    if (ops->open(&f.comm, slot_bytes, &p.island) != HETMPI_SUCCESS)
        return say(&p, 0, "open");
    wrong = run_program(&p, 60);
    f.comm.failed = wrong;
    ops->close(p.island);
    fake_clear(&f);
    mem_fini();
    return wrong;
}

static void run_members(const struct island_ops *ops, int members, uint64_t seed)
{
    struct topo_rank facts[MAX_RANKS];
    struct ctl *ctls = shared_ctls();
    int ranks = members + (int)(mix(seed) % (MAX_RANKS - 5 + 1)), n = 0, status, faults = 0;
    size_t slot_bytes = mix(seed + 1) % 3 ? 65536 : 5000;
    pid_t pids[MAX_RANKS];

    draw_facts(seed, facts, ranks, members);
    fflush(NULL);
    for (int rank = 0; rank < ranks; rank++) {
        if (facts[rank].island_key != 1)
            continue;
        pids[n] = fork();
        assert_true(pids[n] >= 0);
        if (pids[n] == 0) {
            alarm(100);
            exit(run_member(ctls, seed, facts, ranks, rank, ops, slot_bytes) != 0);
        }
        n++;
    }
    for (int i = 0; i < n; i++) {
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
            faults++;
    }
    munmap(ctls, MAX_RANKS * sizeof(*ctls));
    if (faults)
        fail_msg("%d of %d members failed (provider %s, seed %llu)", faults, members, ops->name,
                 (unsigned long long)seed);
}

static void random_programs_shm(void **state)
{
    (void)state;
    for (int members = 1; members <= 5; members++) {
        for (uint64_t seed = 0; seed < 6; seed++)
            run_members(&island_shm, members, 100 * (uint64_t)members + seed);
    }
}

static void random_programs_ipc(void **state)
{
    (void)state;
    if (strcmp(mem_backend(), "host") == 0)
        skip();
    for (int members = 1; members <= 5; members++) {
        for (uint64_t seed = 0; seed < 6; seed++)
            run_members(&island_ipc, members, 1000 + 100 * (uint64_t)members + seed);
    }
}

/* Boards of one process: the protocol step by step, provider shm */

#define STEP_BYTES 4096
struct trio {
    struct ctl *ctls;
    struct fake fakes[3];
    struct island *islands[3];
    int members;
};

static void trio_open(struct trio *t, int members)
{
    struct topo_rank facts[3] = {{1, 1, 1}, {1, 1, 1}, {1, 1, 1}};

    t->members = members;
    t->ctls = shared_ctls();
    for (int i = 0; i < members; i++) {
        fake_make(&t->fakes[i], t->ctls, facts, members, i);
        assert_int_equal(island_shm.open(&t->fakes[i].comm, STEP_BYTES, &t->islands[i]), HETMPI_SUCCESS);
    }
}

static void trio_close(struct trio *t)
{
    for (int i = 0; i < t->members; i++) {
        if (t->islands[i])
            island_shm.close(t->islands[i]);
        fake_clear(&t->fakes[i]);
    }
    munmap(t->ctls, MAX_RANKS * sizeof(*t->ctls));
}

static struct sched_view vector_view(void *base, size_t L)
{
    return (struct sched_view){.base = base, .element = 4, .layout = LAYOUT_VECTOR, .L = L, .count = L};
}

static struct island_op local_op(const struct sched_step *step, uint64_t number, size_t L, void *in, void *out)
{
    return (struct island_op){.number = number, .step = step, .chunk.length = L, .in = vector_view(in, L),
                              .out = vector_view(out, L), .type = RED_INT32, .op = RED_SUM};
}

static bool poll_op(struct trio *t, int member, struct island_op *op)
{
    bool done;

    assert_int_equal(island_shm.poll(t->islands[member], op, &done), HETMPI_SUCCESS);
    return done;
}

/* Polls until done; asynchronous work gets a second. */
static bool poll_soon(struct trio *t, int member, struct island_op *op)
{
    for (int i = 0; i < 10000; i++) {
        if (poll_op(t, member, op))
            return true;
        usleep(100);
    }
    return false;
}

static int32_t *numbers(size_t n, int32_t value)
{
    void *memory;
    int32_t *image = malloc(n * sizeof(*image));

    assert_int_equal(mem_alloc(n * sizeof(*image), &memory), HETMPI_SUCCESS);
    assert_non_null(image);
    for (size_t i = 0; i < n; i++)
        image[i] = value;
    assert_int_equal(mem_copy(memory, image, n * sizeof(*image)), HETMPI_SUCCESS);
    free(image);
    return memory;
}

static int32_t number_at(const int32_t *memory, size_t i)
{
    int32_t value;

    assert_int_equal(mem_copy(&value, memory + i, sizeof(value)), HETMPI_SUCCESS);
    return value;
}

/* A reader takes the parts that are there while one owner has not even begun. */
static void slow_member_delays_only_its_part(void **state)
{
    struct sched_step step = {.kind = STEP_LOCAL_SPREAD, .owners = OWNERS_WEIGHT, .readers = READERS_ALL,
                              .in.range.parts = 1};
    struct island_op ops[3];
    int32_t *memory[3];
    struct trio t;

    (void)state;
    trio_open(&t, 3);
    for (int i = 0; i < 3; i++) {
        memory[i] = numbers(30, i + 1);
        ops[i] = local_op(&step, 0, 30, memory[i], memory[i]);
    }
    assert_int_equal(island_shm.start(t.islands[0], &ops[0]), HETMPI_SUCCESS);
    assert_int_equal(island_shm.start(t.islands[2], &ops[2]), HETMPI_SUCCESS);
    for (int i = 0; i < 10000 && (number_at(memory[0], 25) != 3 || number_at(memory[2], 5) != 1); i++) {
        assert_false(poll_op(&t, 0, &ops[0]));
        assert_false(poll_op(&t, 2, &ops[2]));
        usleep(100);
    }
    assert_int_equal(number_at(memory[0], 25), 3);
    assert_int_equal(number_at(memory[2], 5), 1);
    assert_int_equal(number_at(memory[0], 15), 1);   /* member 1's part: still what was there */
    assert_int_equal(island_shm.start(t.islands[1], &ops[1]), HETMPI_SUCCESS);
    for (int i = 0; i < 3; i++) {
        int member = (i + 1) % 3;
        assert_true(poll_soon(&t, member, &ops[member]));
        for (size_t v = 0; v < 30; v++)
            assert_int_equal(number_at(memory[member], v), (int)(v / 10) + 1);
    }
    for (int i = 0; i < 3; i++)
        mem_free(memory[i]);
    trio_close(&t);
}

/* Slots are used again only when everybody, idle members too, is done with them. */
static void slots_wait_for_all_members(void **state)
{
    struct sched_step step = {.kind = STEP_LOCAL_SPREAD, .owners = OWNERS_ROOT, .root = 0, .readers = READERS_ALL,
                              .in.range.parts = 1};
    int32_t *source = numbers(8, 5), *sink = numbers(8, 0);
    struct island_op mine[64], theirs[64];
    int started, slots;
    struct trio t;

    (void)state;
    trio_open(&t, 2);
    for (int i = 0; i < 64; i++) {
        mine[i] = local_op(&step, (uint64_t)i, 8, source, source);
        theirs[i] = local_op(&step, (uint64_t)i, 8, NULL, sink);
    }
    for (started = 0; started < 64; started++) {
        int code = island_shm.start(t.islands[0], &mine[started]);
        if (code == COMM_AGAIN)
            break;
        assert_int_equal(code, HETMPI_SUCCESS);
        assert_true(poll_soon(&t, 0, &mine[started]));
    }
    slots = started;
    assert_in_range(slots, 1, CTL_SLOTS);
    for (int i = 0; i < slots; i++) {
        assert_int_equal(island_shm.start(t.islands[1], &theirs[i]), HETMPI_SUCCESS);
        assert_int_equal(island_shm.start(t.islands[0], &mine[slots + i]), COMM_AGAIN);
        assert_true(poll_soon(&t, 1, &theirs[i]));
        assert_int_equal(island_shm.start(t.islands[0], &mine[slots + i]), HETMPI_SUCCESS);
        assert_true(poll_soon(&t, 0, &mine[slots + i]));
    }
    for (int i = slots; i < 2 * slots; i++) {
        assert_int_equal(island_shm.start(t.islands[1], &theirs[i]), HETMPI_SUCCESS);
        assert_true(poll_soon(&t, 1, &theirs[i]));
    }
    assert_int_equal(number_at(sink, 7), 5);
    mem_free(source);
    mem_free(sink);
    trio_close(&t);
}

static void wrong_order_and_size_are_errors(void **state)
{
    struct sched_step step = {.kind = STEP_LOCAL_REDUCE, .owners = OWNERS_WEIGHT, .in.range.parts = 1};
    size_t too_many = 1 << 20;
    struct island_op op = local_op(&step, 3, 8, NULL, NULL);
    struct trio t;

    (void)state;
    trio_open(&t, 2);
    assert_int_equal(island_shm.start(t.islands[0], &op), HETMPI_ERR_INTERNAL);
    op = local_op(&step, 0, too_many, NULL, NULL);
    assert_int_equal(island_shm.start(t.islands[0], &op), HETMPI_ERR_INTERNAL);
    trio_close(&t);
}

/* A failed communicator is closed at once, operations under way or not; a member whose board could not be made is an
 * error to those who need it. */
static void failures_do_not_hang(void **state)
{
    struct sched_step step = {.kind = STEP_LOCAL_REDUCE, .owners = OWNERS_WEIGHT, .in.range.parts = 1};
    int32_t *memory = numbers(100, 1), *other = numbers(100, 1);
    struct island_op mine = local_op(&step, 0, 100, memory, memory), theirs = local_op(&step, 0, 100, other, other);
    int code = HETMPI_SUCCESS;
    time_t began = time(NULL);
    bool done;
    struct trio t;

    (void)state;
    trio_open(&t, 2);
    t.ctls[1].region[REGION_BOARD].ready = 2;
    assert_int_equal(island_shm.start(t.islands[0], &mine), HETMPI_SUCCESS);
    assert_int_equal(island_shm.start(t.islands[1], &theirs), HETMPI_SUCCESS);
    for (int i = 0; i < 10000 && code == HETMPI_SUCCESS; i++) {
        code = island_shm.poll(t.islands[0], &mine, &done);
        assert_false(done);
        if (code == HETMPI_SUCCESS)
            island_shm.poll(t.islands[1], &theirs, &done);
        usleep(100);
    }
    assert_int_equal(code, HETMPI_ERR_MEMORY);
    t.fakes[0].comm.failed = HETMPI_ERR_MEMORY;
    island_shm.close(t.islands[0]);
    t.islands[0] = NULL;
    assert_in_range(time(NULL) - began, 0, 4);
    t.fakes[1].comm.failed = HETMPI_ERR_PEER;
    mem_free(memory);
    mem_free(other);
    trio_close(&t);
}

/* A board stays until the last reader has read it. */
static void close_waits_for_readers(void **state)
{
    struct sched_step step = {.kind = STEP_LOCAL_SPREAD, .owners = OWNERS_ROOT, .root = 0, .readers = READERS_ALL,
                              .in.range.parts = 1};
    struct topo_rank facts[2] = {{1, 1, 1}, {1, 1, 1}};
    struct ctl *ctls = shared_ctls();
    int status;

    (void)state;
    fflush(NULL);
    for (int rank = 0; rank < 2; rank++) {
        if (fork() == 0) {
            struct island *island;
            struct fake f;
            struct island_op op;
            bool done = false;
            int32_t *memory;

            alarm(60);
            start_device();
            fake_make(&f, ctls, facts, 2, rank);
            if (island_shm.open(&f.comm, STEP_BYTES, &island) != HETMPI_SUCCESS)
                exit(1);
            memory = numbers(100, 7 - 7 * rank);
            op = local_op(&step, 0, 100, memory, memory);
            if (rank == 1)
                usleep(300000);   /* the root has finished, and closes */
            if (island_shm.start(island, &op) != HETMPI_SUCCESS)
                exit(2);
            while (!done) {
                if (island_shm.poll(island, &op, &done) != HETMPI_SUCCESS)
                    exit(3);
            }
            island_shm.close(island);
            exit(number_at(memory, 99) == 7 ? 0 : 4);
        }
    }
    for (int i = 0; i < 2; i++) {
        assert_true(wait(&status) > 0);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
    munmap(ctls, MAX_RANKS * sizeof(*ctls));
}

/* More operands than one reduction takes: groups, in order, over wide partials, one rounding. */
static void groups_reduce_in_order(void **state)
{
    enum { N = 150, COUNT = 40000 };
    struct part_reducer r;
    uint16_t *operands[N], *out = malloc(COUNT * sizeof(*out));
    struct island_op op = {.type = RED_BFLOAT16, .op = RED_AVG, .divide_by = N};
    void *device_out;
    mem_stream_t *stream;

    (void)state;
    assert_int_equal(part_reducer_open(&r, N, mem_has_device()), HETMPI_SUCCESS);
    assert_int_equal(mem_stream_create(&stream), HETMPI_SUCCESS);
    for (int i = 0; i < N; i++) {
        uint16_t *image = malloc(COUNT * sizeof(*image));
        void *memory;
        assert_int_equal(mem_alloc(COUNT * sizeof(*image), &memory), HETMPI_SUCCESS);
        for (int v = 0; v < COUNT; v++) {
            float value = (float)((i * 7 + v) % 100);   /* sums are exact in fp32, not in bf16 */
            uint32_t bits;
            memcpy(&bits, &value, sizeof(bits));
            image[v] = (uint16_t)(bits >> 16);
        }
        assert_int_equal(mem_copy(memory, image, COUNT * sizeof(*image)), HETMPI_SUCCESS);
        free(image);
        operands[i] = memory;
        r.inputs[i] = part_flat(operands[i], 2, 100);
    }
    assert_int_equal(mem_alloc(COUNT * sizeof(*out), &device_out), HETMPI_SUCCESS);
    op.out = part_flat(device_out, 2, 100);
    assert_int_equal(part_reduce(&r, &op, 100, COUNT, stream), HETMPI_SUCCESS);
    assert_int_equal(mem_stream_synchronize(stream), HETMPI_SUCCESS);
    assert_int_equal(mem_copy(out, device_out, COUNT * sizeof(*out)), HETMPI_SUCCESS);
    for (int v = 0; v < COUNT; v++) {
        float sum = 0;
        uint32_t bits;
        for (int i = 0; i < N; i++)
            sum += (float)((i * 7 + v) % 100);
        sum /= N;
        memcpy(&bits, &sum, sizeof(bits));
        bits += 0x7fff + (bits >> 16 & 1);
        assert_int_equal(out[v], bits >> 16);
    }
    for (int i = 0; i < N; i++)
        mem_free(operands[i]);
    mem_free(device_out);
    free(out);
    mem_stream_destroy(stream);
    part_reducer_close(&r);
    assert_int_equal(part_reducer_open(&r, RED_MAX_INPUTS * RED_MAX_INPUTS + 1, false), HETMPI_ERR_UNSUPPORTED);
}

/* Which provider serves an island */

static const char *chosen(struct fake *f, enum cfg_provider provider)
{
    const struct island_ops *ops;

    f->cfg.provider = provider;
    ops = island_choose(&f->comm);
    return ops ? ops->name : err_name(err_code());
}

static void provider_follows_facts_and_setting(void **state)
{
    struct topo_rank facts[3] = {{1, 1, 1}, {2, 1, 1}, {1, 1, 1}};
    struct ctl *ctls = shared_ctls();
    struct fake f;

    (void)state;
    fake_make(&f, ctls, facts, 3, 0);
    assert_string_equal(chosen(&f, CFG_PROVIDER_AUTO), mem_has_device() ? "ipc" : "shm");
    assert_string_equal(chosen(&f, CFG_PROVIDER_SHM), "shm");
    assert_string_equal(chosen(&f, CFG_PROVIDER_MPI), "mpi");
    assert_string_equal(chosen(&f, CFG_PROVIDER_IPC), mem_has_device() ? "ipc" : "HETMPI_ERR_CONFIG");
    assert_string_equal(chosen(&f, CFG_PROVIDER_NCCL), "HETMPI_ERR_UNSUPPORTED");
    assert_non_null(strstr(err_text(), "nccl"));
    assert_string_equal(chosen(&f, CFG_PROVIDER_RCCL), "HETMPI_ERR_UNSUPPORTED");

    strcpy(f.vendors[1], "amd");   /* another island: of no interest */
    assert_string_equal(chosen(&f, CFG_PROVIDER_AUTO), mem_has_device() ? "ipc" : "shm");
    strcpy(f.vendors[2], "amd");   /* ISLANDS put two vendors together */
    assert_string_equal(chosen(&f, CFG_PROVIDER_AUTO), "shm");
    assert_string_equal(chosen(&f, CFG_PROVIDER_IPC), "HETMPI_ERR_CONFIG");
    if (mem_has_device())
        assert_non_null(strstr(err_text(), "rank 2"));

    f.ctls[2] = NULL;   /* on another node */
    assert_string_equal(chosen(&f, CFG_PROVIDER_AUTO), "mpi");
    assert_string_equal(chosen(&f, CFG_PROVIDER_SHM), "HETMPI_ERR_CONFIG");
    assert_non_null(strstr(err_text(), "rank 2"));
    fake_clear(&f);
    munmap(ctls, MAX_RANKS * sizeof(*ctls));
}

static int start(void **state)
{
    (void)state;
    start_device();
    return 0;
}

static int finish(void **state)
{
    (void)state;
    mem_fini();
    return 0;
}

int main(void)
{
    /* The forking tests first: the device of the simulated runtime has threads, which do not survive a fork. */
    const struct CMUnitTest forking[] = {
        cmocka_unit_test(random_programs_shm),
        cmocka_unit_test(random_programs_ipc),
        cmocka_unit_test(close_waits_for_readers),
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slow_member_delays_only_its_part),
        cmocka_unit_test(slots_wait_for_all_members),
        cmocka_unit_test(wrong_order_and_size_are_errors),
        cmocka_unit_test(failures_do_not_hang),
        cmocka_unit_test(groups_reduce_in_order),
        cmocka_unit_test(provider_follows_facts_and_setting),
    };
    int failed = cmocka_run_group_tests_name("forking", forking, NULL, NULL);

    return failed + cmocka_run_group_tests(tests, start, finish) != 0;
}
