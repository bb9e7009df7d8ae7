/* The shm wire and the choice of wires, with ranks that are threads of this process and communicators made by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <pthread.h>
#include <unistd.h>

#include "hetmpi.h"

#include "../wire_traffic.h"

#define RANKS_MAX 4

struct job {
    int ranks;
    struct cfg cfg;
    struct comm comms[RANKS_MAX];
    struct ctl *ctls[RANKS_MAX];
    int local[RANKS_MAX];
    int32_t pids[RANKS_MAX];
    struct traffic traffic[RANKS_MAX];
    bool good[RANKS_MAX];
};

/* islands: the island of each rank, "01", "010", ... */
static struct job *job_make(const char *islands, size_t chunk, size_t staging)
{
    struct job *job = calloc(1, sizeof(*job));
    struct topo_rank facts[RANKS_MAX];

    assert_non_null(job);
    job->ranks = (int)strlen(islands);
    job->cfg.wire = CFG_WIRE_SHM;
    job->cfg.chunk = chunk;
    job->cfg.staging = staging;
    job->cfg.timeout = 1;
    for (int r = 0; r < job->ranks; r++) {
        facts[r] = (struct topo_rank){ .island_key = (uint64_t)islands[r], .node_key = 1, .weight = 1 };
        job->local[r] = r;
        job->pids[r] = getpid();
        job->ctls[r] = aligned_alloc(CTL_LINE, sizeof(struct ctl));
        assert_non_null(job->ctls[r]);
        memset(job->ctls[r], 0, sizeof(struct ctl));
    }
    for (int r = 0; r < job->ranks; r++) {
        struct comm *comm = &job->comms[r];
        *comm = (struct comm){ .user = MPI_COMM_NULL, .shadow = MPI_COMM_NULL, .rank = r, .size = job->ranks,
                               .cfg = &job->cfg, .pids = job->pids, .ctl = job->ctls[r], .ctls = job->ctls,
                               .local = job->local, .n_local = job->ranks, .one_node = true };
        assert_int_equal(topo_build(&comm->topo, facts, job->ranks, r), HETMPI_SUCCESS);
    }
    return job;
}

static void job_free(struct job *job)
{
    for (int r = 0; r < job->ranks; r++)
        if (job->comms[r].wire_shm)
            job->comms[r].wire_shm->ops->close(job->comms[r].wire_shm);
    for (int r = 0; r < job->ranks; r++) {
        topo_clear(&job->comms[r].topo);
        free(job->ctls[r]);
    }
    free(job);
}

static void *rank_main(void *argument)
{
    struct traffic *t = argument;

    return traffic_run(t) ? t : NULL;
}

static int job_run(struct job *job, const struct traffic *template)
{
    pthread_t threads[RANKS_MAX];
    int refused = 0;

    for (int r = 0; r < job->ranks; r++) {
        job->traffic[r] = *template;
        job->traffic[r].comm = &job->comms[r];
        assert_int_equal(pthread_create(&threads[r], NULL, rank_main, &job->traffic[r]), 0);
    }
    for (int r = 0; r < job->ranks; r++) {
        void *good;
        pthread_join(threads[r], &good);
        job->good[r] = good != NULL;
    }
    for (int r = 0; r < job->ranks; r++) {
        if (!job->good[r])
            fail_msg("%s", job->traffic[r].error);
        assert_true(job->traffic[r].moved > 0);
        refused += job->traffic[r].refused;
    }
    return refused;
}

/* Both sides send first, in a window, with messages of one and of many slots, all layouts. */
static void test_traffic(void **state)
{
    static const char *const islands[] = { "01", "010", "0123" };

    (void)state;
    for (int i = 0; i < 3; i++) {
        struct job *job = job_make(islands[i], 16 << 10, 1 << 20);
        for (uint32_t seed = 1; seed <= 2; seed++)
            job_run(job, &(struct traffic){ .seed = seed, .ops = 3, .chunks = 5, .channels = 3, .window = 3,
                                            .most = 20000, .device = true, .seconds = 60 });
        job_free(job);
    }
}

/* The least staging memory: four slots of a page. */
static void test_back_pressure(void **state)
{
    struct job *job = job_make("012", 0, 0);

    (void)state;
    int refused = job_run(job, &(struct traffic){ .seed = 7, .ops = 2, .chunks = 6, .channels = 2, .window = 4,
                                                  .most = 8000, .device = true, .seconds = 60 });
    assert_true(refused > 0);
    job_free(job);
}

/* What is wanted first was sent last, behind more than the slots hold. */
static void test_backwards(void **state)
{
    struct job *job = job_make("01", 0, 0);

    (void)state;
    job_run(job, &(struct traffic){ .seed = 11, .ops = 2, .chunks = 10, .channels = 2, .most = 6000, .device = true,
                                    .order = TRAFFIC_BACKWARDS, .seconds = 60 });
    job_free(job);
}

static struct wire *wire_of(struct job *job, int rank, int peer)
{
    struct wire *wire;

    assert_int_equal(wire_for(&job->comms[rank], peer, &wire), HETMPI_SUCCESS);
    return wire;
}

/* A peer that never receives is refused at some point, and another still gets its slot. */
static void test_slow_peer(void **state)
{
    struct job *job = job_make("012", 0, 0);
    struct wire *wire = wire_of(job, 0, 1), *other = wire_of(job, 2, 0);
    static char data[64], copy[64];
    struct wire_xfer x[64], y = traffic_plain(2, data, sizeof(data)), z = traffic_plain(0, copy, sizeof(copy));
    int sent = 0, rc = HETMPI_SUCCESS;

    (void)state;
    memset(data, 3, sizeof(data));
    for (; sent < 64; sent++) {
        x[sent] = traffic_plain(1, data, sizeof(data));
        x[sent].chunk = (uint32_t)sent;
        rc = wire->ops->send(wire, &x[sent]);
        if (rc)
            break;
        assert_true(traffic_finish(wire, &x[sent]));
    }
    assert_int_equal(rc, COMM_AGAIN);
    assert_true(sent >= 1 && sent < 4);
    assert_int_equal(wire->ops->send(wire, &y), HETMPI_SUCCESS);
    assert_true(traffic_finish(wire, &y));
    assert_int_equal(other->ops->recv(other, &z), HETMPI_SUCCESS);
    assert_true(traffic_finish(other, &z));
    assert_memory_equal(data, copy, sizeof(data));
    for (int r = 0; r < 3; r++)
        atomic_store(&job->comms[r].failed, HETMPI_ERR_ABORTED);   /* rank 1 never reads: close does not wait */
    double start = traffic_now();
    job_free(job);
    assert_true(traffic_now() - start < 0.9);
}

static void test_sizes_differ(void **state)
{
    struct job *job = job_make("01", 0, 1 << 20);
    struct wire *a = wire_of(job, 0, 1), *b = wire_of(job, 1, 0);
    static char data[300];
    struct wire_xfer x = traffic_plain(1, data, 200), y = traffic_plain(0, data, 300);
    double until = traffic_now() + 10;
    int rc = HETMPI_SUCCESS;
    bool done = false;

    (void)state;
    assert_int_equal(a->ops->send(a, &x), HETMPI_SUCCESS);
    assert_true(traffic_finish(a, &x));
    assert_int_equal(b->ops->recv(b, &y), HETMPI_SUCCESS);
    while (!rc && !done && traffic_now() < until)
        rc = b->ops->poll(b, &y, &done);
    assert_int_equal(rc, HETMPI_ERR_INTERNAL);
    assert_non_null(strstr(err_text(), "200 bytes"));
    assert_non_null(strstr(err_text(), "300"));
    for (int r = 0; r < 2; r++)
        atomic_store(&job->comms[r].failed, HETMPI_ERR_INTERNAL);
    job_free(job);
}

/* A peer that could not make its region says so; until it has one, a receive just waits. */
static void test_no_region(void **state)
{
    struct job *job = job_make("01", 0, 1 << 20);
    struct wire *wire = wire_of(job, 0, 1);
    char data[8];
    struct wire_xfer x = traffic_plain(1, data, sizeof(data));
    bool done = true;

    (void)state;
    assert_int_equal(wire->ops->recv(wire, &x), HETMPI_SUCCESS);
    assert_int_equal(wire->ops->poll(wire, &x, &done), HETMPI_SUCCESS);
    assert_false(done);
    atomic_store(&job->ctls[1]->region[REGION_WIRE].ready, 2);   /* as comm_region_lost leaves it */
    assert_int_equal(wire->ops->poll(wire, &x, &done), HETMPI_ERR_MEMORY);
    assert_non_null(strstr(err_text(), "rank 1"));
    job_free(job);
}

static void test_choice(void **state)
{
    struct job *job = job_make("012", 0, 1 << 20);
    struct comm *comm = &job->comms[1];
    struct ctl *two[RANKS_MAX] = { job->ctls[0], job->ctls[1], NULL, NULL };   /* rank 2 shares no memory */
    struct wire *wire = NULL;

    (void)state;
    comm->ctls = two;
    job->cfg.wire = CFG_WIRE_AUTO;
    assert_string_equal(wire_name_for(comm, 0), "shm");
    assert_string_equal(wire_name_for(comm, 2), "mpi");
    assert_null(comm->wire_shm);
    assert_int_equal(wire_for(comm, 0, &wire), HETMPI_SUCCESS);
    assert_string_equal(wire->ops->name, "shm");
    assert_ptr_equal(wire, comm->wire_shm);
    assert_int_equal(wire->ops->rails(wire, 0), 1);
    assert_int_equal(wire->ops->caps & WIRE_CAN_PUT, 0);
    job->cfg.wire = CFG_WIRE_MPI;
    assert_string_equal(wire_name_for(comm, 0), "mpi");
    assert_int_equal(wire_for(comm, 0, &wire), HETMPI_ERR_INTERNAL);   /* no shadow communicator here */
    job->cfg.wire = CFG_WIRE_SHM;
    assert_int_equal(wire_for(comm, 2, &wire), HETMPI_ERR_CONFIG);
    assert_non_null(strstr(err_text(), "ranks 1 and 2"));
    job->cfg.wire = CFG_WIRE_VERBS;
    assert_string_equal(wire_name_for(comm, 0), "verbs");
    assert_false(wire_verbs_joins(comm, 0, 1));   /* nobody published NICs here */
    job_free(job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_traffic),   cmocka_unit_test(test_back_pressure), cmocka_unit_test(test_backwards),
        cmocka_unit_test(test_slow_peer), cmocka_unit_test(test_sizes_differ),  cmocka_unit_test(test_no_region),
        cmocka_unit_test(test_choice),
    };
    int rc;

    if (mem_init(&(struct mem_setup){ .vendor = "nvidia", .device = -1, .bandwidth = 0, .fault = "" })) {
        fprintf(stderr, "mem_init: %s\n", err_text());
        return 1;
    }
    rc = cmocka_run_group_tests(tests, NULL, NULL);
    mem_fini();
    return rc;
}
