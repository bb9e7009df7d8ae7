/*
 * Rails that fail while a collective is on them. The script that starts this makes the faults, on orders in the pipe
 * RDMA_FAULTS, "KIND RAIL" a line; it answers "heal" with a line in the pipe RDMA_HEALED.
 *
 *     rail_loss moments ROUNDS SEED    a rail fails at a random moment of an allreduce
 *     rail_loss return                 a rail fails, returns, and must then do without the other one
 *     rail_loss all                    no rail is left: HETMPI_RAILS_LOST says what must follow
 */
#include "common.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT 700001u
#define ROUND_S 100          /* a round that lasts longer hangs */
#define RETURN_S 20.0        /* in which a healed rail must be in use again */
#define LATE_S 10.0          /* a call that lasts so much longer than another hangs */

static const char *const kinds[] = { "down_here", "down_there", "silent", "silent_here", "silent_there" };
enum { KINDS = sizeof kinds / sizeof *kinds, RAILS = 2 };

static FILE *faults, *healed;
static int32_t *x, *y;

static void order(const char *kind, int rail)
{
    if (t_rank == 0 && (fprintf(faults, "%s %d\n", kind, rail) < 0 || fflush(faults) != 0))
        t_fatal("the pipe RDMA_FAULTS is broken");
}

static void heal(void)
{
    char line[64];
    order("heal", 0);
    if (t_rank == 0 && !fgets(line, sizeof line, healed))
        t_fatal("the pipe RDMA_HEALED is broken");
    T_MPI(MPI_Barrier(MPI_COMM_WORLD));
}

struct planned { const char *kind; int rail; double seconds; };

static void *fail_later(void *planned)
{
    const struct planned *p = planned;
    t_sleep(p->seconds);
    order(p->kind, p->rail);
    return NULL;
}

/* One allreduce: its code; *seconds of the slowest rank; *right: every element. */
static int call(MPI_Comm comm, int round, size_t count, double *seconds, bool *right)
{
    for (size_t i = 0; i < count; i++)
        x[i] = (int32_t)i * 7 + t_rank * 13 + round;
    memset(y, 0xA5, count * sizeof *y);
    T_MPI(MPI_Barrier(MPI_COMM_WORLD));
    double start = t_now();
    int code = hetmpi_allreduce(x, y, count, MPI_INT32_T, MPI_SUM, comm);
    *seconds = t_now() - start;
    *right = code == HETMPI_SUCCESS;
    for (size_t i = 0; i < count && *right; i++)
        *right = y[i] == ((int32_t)i * 7 + round) * t_ranks + 13 * t_ranks * (t_ranks - 1) / 2;
    T_MPI(MPI_Allreduce(MPI_IN_PLACE, seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD));
    T_MPI(MPI_Allreduce(MPI_IN_PLACE, right, 1, MPI_C_BOOL, MPI_LAND, MPI_COMM_WORLD));
    return code;
}

static void must_be_right(MPI_Comm comm, int round, const char *when, double *seconds)
{
    bool right;
    int code = call(comm, round, COUNT, seconds, &right);
    T_CHECK(right, "round %d, %s: %s: %s", round, when, code ? t_code_name(code) : "a result is wrong",
            code ? hetmpi_last_error() : "");
}

static MPI_Comm fresh(void)
{
    MPI_Comm comm;
    T_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    T_MPI(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    T_OK(hetmpi_comm_attach(comm, MPI_INFO_NULL));
    return comm;
}

static int rails_of(MPI_Comm comm)
{
    hetmpi_comm_info_t info = { 0 };
    T_OK(hetmpi_comm_info(comm, &info));
    return info.rails;
}

/* What the NICs take to give a packet up. */
static double retry_seconds(void)
{
    const char *count = getenv("HETMPI_RETRY_COUNT"), *timeout = getenv("HETMPI_RETRY_TIMEOUT");
    return ((count ? atoi(count) : 6) + 1) * 4.096e-6 * (double)(1u << (timeout ? atoi(timeout) : 14));
}

static void lose_at_moments(int rounds, uint64_t seed)
{
    int in_time = 0;
    double worst = 0;
    for (int round = 0; round < rounds && t_failures() == 0; round++) {
        uint64_t drawn = t_hash64(seed, 3, (uint64_t)round);
        t_watchdog(ROUND_S);
        t_stage("round %d, set-up", round);
        MPI_Comm comm = fresh();
        double before, during, after;
        t_stage("round %d, undisturbed", round);
        bool right;
        T_OK(call(comm, round, 3000, &before, &right));   /* makes the links */
        must_be_right(comm, round, "undisturbed", &before);
        struct planned planned = { kinds[drawn % KINDS], (int)((drawn >> 8) % RAILS),
                                   before * (double)((drawn >> 16) % 1000) / 1000 };
        t_stage("round %d, %s on rail %d after %.0f ms of %.0f", round, planned.kind, planned.rail, planned.seconds * 1e3,
                before * 1e3);
        pthread_t thread;
        if (t_rank == 0 && pthread_create(&thread, NULL, fail_later, &planned) != 0)
            t_fatal("no thread");
        must_be_right(comm, round, planned.kind, &during);
        if (t_rank == 0)
            pthread_join(thread, NULL);
        must_be_right(comm, round, "on what is left", &after);
        /* A fault at the very end is found by the call after it. */
        double usual = before > after ? before : after, lost = during - usual;
        worst = lost > worst ? lost : worst;
        in_time += lost <= 2 * retry_seconds();
        T_CHECK(lost < LATE_S, "round %d, %s on rail %d: %.1f s, %.1f s undisturbed", round, planned.kind, planned.rail,
                during, usual);
        if (t_rank == 0)
            printf("round %d: %s on rail %d after %.0f ms: %.0f ms, before %.0f, after %.0f\n", round, planned.kind,
                   planned.rail, planned.seconds * 1e3, during * 1e3, before * 1e3, after * 1e3);
        t_stage("round %d, heal", round);
        heal();
        t_stage("round %d, free", round);
        T_MPI(MPI_Comm_free(&comm));
    }
    if (t_rank == 0)
        printf("%d of %d within 2 x the retry time (%.2f s); the worst lost %.2f s\n", in_time, rounds, retry_seconds(),
               worst);
}

static void lose_and_return(void)
{
    MPI_Comm comm = fresh();
    double seconds;
    must_be_right(comm, 0, "undisturbed", &seconds);
    T_CHECK(rails_of(comm) == RAILS, "%d rails at first, expected %d", rails_of(comm), RAILS);
    order("down_here", 0);
    must_be_right(comm, 1, "rail 0 lost", &seconds);
    must_be_right(comm, 2, "rail 0 lost", &seconds);
    T_CHECK(rails_of(comm) == RAILS - 1, "%d rails without rail 0", rails_of(comm));
    heal();
    double start = t_now();
    bool returned = false;
    for (int round = 3; !returned && t_now() - start < RETURN_S && t_failures() == 0; round++) {
        must_be_right(comm, round, "rail 0 healed", &seconds);
        returned = rails_of(comm) == RAILS;
        T_MPI(MPI_Allreduce(MPI_IN_PLACE, &returned, 1, MPI_C_BOOL, MPI_LAND, MPI_COMM_WORLD));
        double waited = t_now() - start;
        T_MPI(MPI_Bcast(&waited, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD));
        start = t_now() - waited;
    }
    T_CHECK(returned, "rail 0 is not in use %.0f s after its return", RETURN_S);
    if (t_rank == 0)
        printf("the rail was back in use after %.1f s\n", t_now() - start);
    order("down_there", 1);
    must_be_right(comm, 1000, "rail 1 lost, rail 0 back", &seconds);
    must_be_right(comm, 1001, "rail 1 lost, rail 0 back", &seconds);
    heal();
    T_MPI(MPI_Comm_free(&comm));
}

static void lose_all(void)
{
    const char *setting = getenv("HETMPI_RAILS_LOST");
    bool goes_on = !setting || strcmp(setting, "mpi") == 0, right;
    MPI_Comm comm = fresh();
    double seconds;
    must_be_right(comm, 0, "undisturbed", &seconds);
    for (int rail = 0; rail < RAILS; rail++)
        order("down_here", rail);
    int code = call(comm, 1, COUNT, &seconds, &right);
    if (goes_on)
        T_CHECK(right, "no rail left: %s: %s", t_code_name(code), hetmpi_last_error());
    else
        T_CODE(HETMPI_ERR_PEER, code);
    T_CHECK(seconds < LATE_S, "that took %.1f s", seconds);
    if (goes_on)
        must_be_right(comm, 2, "no rail left", &seconds);
    if (t_rank == 0 && code)
        printf("%s: %s\n", t_code_name(code), hetmpi_last_error());
    heal();
    T_MPI(MPI_Comm_free(&comm));
}

static FILE *open_pipe(const char *variable, const char *mode)
{
    const char *name = getenv(variable);
    FILE *pipe = name ? fopen(name, mode) : NULL;
    if (!pipe)
        t_fatal("%s: %s cannot be opened", variable, name ? name : "not set");
    return pipe;
}

int main(int argc, char **argv)
{
    t_begin(&argc, &argv, "rail_loss", MPI_THREAD_SERIALIZED);
    const char *what = argc > 1 ? argv[1] : "";
    if (t_rank == 0) {
        faults = open_pipe("RDMA_FAULTS", "w");
        healed = open_pipe("RDMA_HEALED", "r");
    }
    x = t_malloc(COUNT * sizeof *x);
    y = t_malloc(COUNT * sizeof *y);
    if (strcmp(what, "moments") == 0 && argc == 4)
        lose_at_moments(atoi(argv[2]), strtoull(argv[3], NULL, 10));
    else if (strcmp(what, "return") == 0)
        lose_and_return();
    else if (strcmp(what, "all") == 0)
        lose_all();
    else
        t_fatal("usage: rail_loss moments ROUNDS SEED | return | all");
    free(x);
    free(y);
    return t_end();
}
