/*
 * hetmpi in an MPI that was initialised at any thread level, by the application: it works, starts threads only where
 * it may, never finalises MPI, and MPI_Finalize without a detach is clean.
 *
 *     thread_levels single|funneled|serialized|multiple
 */
#include "common.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREADS 4
#define ROUNDS 60

struct worker {
    pthread_t thread;
    MPI_Comm comm;
    int number;
    pthread_barrier_t *together;
};

static int32_t sum_of_ranks(void)
{
    return t_ranks * (t_ranks - 1) / 2;
}

/* All collectives with values that show a mix-up between threads. */
static void exercise(MPI_Comm comm, int number, int rounds)
{
    enum { MAX = 30011 };
    int32_t *x = t_malloc(MAX * sizeof *x), *all = t_malloc((size_t)t_ranks * 50 * sizeof *all);
    for (int round = 0; round < rounds; round++) {
        size_t n = round % 10 == 9 ? MAX : round % 3 == 0 ? 1 : 777;
        int32_t base = number * 1000 + round;
        for (size_t i = 0; i < n; i++)
            x[i] = base + t_rank + (int32_t)i;
        hetmpi_request_t request = HETMPI_REQUEST_NULL;
        if (round % 2) {
            T_OK(hetmpi_iallreduce(MPI_IN_PLACE, x, n, MPI_INT32_T, MPI_SUM, comm, &request));
            T_OK(hetmpi_wait(&request, MPI_STATUS_IGNORE));
        } else {
            T_OK(hetmpi_allreduce(MPI_IN_PLACE, x, n, MPI_INT32_T, MPI_SUM, comm));
        }
        for (size_t i = 0; i < n; i++) {
            int32_t want = (base + (int32_t)i) * t_ranks + sum_of_ranks();
            if (!T_CHECK(x[i] == want, "thread %d, round %d: element %zu of %zu is %d, not %d", number, round, i, n,
                         x[i], want))
                break;
        }
        int32_t mine = base + t_rank;
        T_OK(hetmpi_allgather(&mine, 1, MPI_INT32_T, all, 1, MPI_INT32_T, comm));
        for (int r = 0; r < t_ranks; r++)
            if (!T_CHECK(all[r] == base + r, "thread %d, round %d: allgather: block %d is %d", number, round, r,
                         all[r]))
                break;
        T_OK(hetmpi_barrier(comm));
    }
    free(x);
    free(all);
}

static void *work(void *arg)
{
    struct worker *w = arg;
    pthread_barrier_wait(w->together); /* so that the communicators are set up at the same time */
    exercise(w->comm, w->number, ROUNDS);
    return NULL;
}

/* Each thread has a communicator of its own; set up, used and freed at the same time as the others'. */
static void check_threads(void)
{
    struct worker workers[THREADS];
    pthread_barrier_t together;
    t_stage("%d threads, each with a communicator", THREADS);
    pthread_barrier_init(&together, NULL, THREADS);
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){ .number = i, .together = &together };
        T_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &workers[i].comm));
        T_MPI(MPI_Comm_set_errhandler(workers[i].comm, MPI_ERRORS_RETURN));
    }
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]))
            t_fatal("pthread_create failed");
    for (int i = 0; i < THREADS; i++)
        pthread_join(workers[i].thread, NULL);
    for (int i = 0; i < THREADS; i++)
        T_MPI(MPI_Comm_free(&workers[i].comm));
    pthread_barrier_destroy(&together);
}

/* Messages are a thread's own. */
static void *wrong_call(void *arg)
{
    int32_t x = 0;
    (void)arg;
    T_CODE(HETMPI_ERR_ROOT, hetmpi_bcast(&x, 1, MPI_INT32_T, -3, MPI_COMM_WORLD));
    T_CHECK(strstr(hetmpi_last_error(), "-3") != NULL, "the message does not show the root: %s", hetmpi_last_error());
    return NULL;
}

static void check_last_error(void)
{
    pthread_t thread;
    int32_t x = 0;
    t_stage("last error of two threads");
    T_CODE(HETMPI_ERR_BUFFER, hetmpi_allreduce(NULL, &x, 1, MPI_INT32_T, MPI_SUM, MPI_COMM_WORLD));
    char before[512];
    snprintf(before, sizeof before, "%s", hetmpi_last_error());
    if (pthread_create(&thread, NULL, wrong_call, NULL))
        t_fatal("pthread_create failed");
    pthread_join(thread, NULL);
    T_CHECK(strcmp(before, hetmpi_last_error()) == 0, "another thread changed the message to %s", hetmpi_last_error());
}

static void check_mpi_is_ours(void)
{
    int finalized = -1, initialized = -1;
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    T_CHECK(initialized == 1 && finalized == 0, "initialized %d, finalized %d", initialized, finalized);
}

int main(int argc, char **argv)
{
    static const struct { const char *name; int level; } levels[] = {
        { "single", MPI_THREAD_SINGLE }, { "funneled", MPI_THREAD_FUNNELED }, { "serialized", MPI_THREAD_SERIALIZED },
        { "multiple", MPI_THREAD_MULTIPLE },
    };
    int level = MPI_THREAD_SINGLE, provided = 0;
    for (int i = 0; argc > 1 && i < 4; i++)
        if (strcmp(argv[1], levels[i].name) == 0)
            level = levels[i].level;
    t_begin(&argc, &argv, "thread_levels", level);
    MPI_Query_thread(&provided);
    MPI_Comm detached, left;
    T_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &detached));
    T_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &left));
    long threads = t_threads();
    t_stage("one thread");
    exercise(MPI_COMM_WORLD, 0, ROUNDS);
    exercise(detached, 1, 20);
    exercise(left, 2, 20);
    if (provided < MPI_THREAD_SERIALIZED && t_rank == 0)
        printf("%ld threads before, %ld after the first collectives\n", threads, t_threads());
    T_OK(hetmpi_comm_detach(detached));
    check_mpi_is_ours();
    T_MPI(MPI_Comm_free(&detached));
    check_mpi_is_ours();
    if (provided == MPI_THREAD_MULTIPLE) {
        check_threads();
        check_last_error();
    }
    check_mpi_is_ours();
    /* `left`, the world, and a request of a collective that is complete stay: MPI_Finalize must cope. */
    int32_t x = t_rank;
    hetmpi_request_t request = HETMPI_REQUEST_NULL;
    T_OK(hetmpi_allreduce_init(MPI_IN_PLACE, &x, 1, MPI_INT32_T, MPI_SUM, left, MPI_INFO_NULL, &request));
    T_OK(hetmpi_start(&request));
    T_OK(hetmpi_wait(&request, MPI_STATUS_IGNORE));
    T_OK(hetmpi_request_free(&request));
    int status = t_verdict();
    t_stage("MPI_Finalize without a detach");
    MPI_Finalize();
    int finalized = 0;
    MPI_Finalized(&finalized);
    return status || !finalized;
}
