/*
 * Random differential test: communicators of random shapes and settings, all collectives and messages in all forms,
 * random counts, types, operations, roots, kinds of memory; several in flight on one and several communicators, in
 * groups, completed in any order, communicators freed before; compared with an oracle and with MPI's own result.
 *
 *     fuzz_collectives [SECONDS [SEED [single|funneled|serialized|multiple]]]
 *
 * SECONDS 0: one round. SEED 0, or none: by the clock. Round i of a run has the seed SEED + i, and depends on nothing
 * else, so that `fuzz_collectives 0 SEED` runs one again.
 */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROUND_SECONDS 100u   /* a round that lasts longer hangs */

static hetmpi_stream_t streams[FZ_STREAMS];
static bool streams_work, streams_run, multiple;   /* run: by themselves, all ranks having devices */
static uint64_t seed;                              /* of the round */
static long done[FZ_KINDS][FZ_FORMS], rounds;      /* cases; counted by the first rank of their communicators */

struct batch {
    struct fz_run runs[FZ_FLIGHT];
    int n, wave;
    bool grouped, freed;                           /* freed: the communicators, while all this is pending */
    struct fz_rules rules;
    struct fz_random own;
};

static void stage(const struct fz_run *r, const char *what)
{
    char text[256];
    fz_describe(&r->c, r->comm, text);
    t_stage("seed %llu, %s: %s", (unsigned long long)seed, what, text);
}

static bool waits(const struct fz_run *r)
{
    return r->active && !r->broken && r->request != HETMPI_REQUEST_NULL;
}

static void broken(struct fz_run *r)
{
    r->broken = true;
    r->active = false;
}

/* Makes the call, or starts one made before. */
static void launch(struct fz_run *r)
{
    bool persistent = r->c.form == FZ_PERSISTENT;
    stage(r, persistent ? "start" : "call");
    if (r->broken)
        return;
    r->active = true;
    if (!T_OK(persistent ? hetmpi_start(&r->request) : fz_call(r, streams)))
        broken(r);
}

/* Calls on one communicator keep their order; which communicator's comes next is each rank's own choice. */
static void order_of(struct batch *b, int order[FZ_FLIGHT])
{
    const struct fz_comm *turn[FZ_FLIGHT];
    bool taken[FZ_FLIGHT] = { false };
    int shuffled[FZ_FLIGHT];
    fz_shuffle(&b->own, shuffled, b->n);
    for (int i = 0; i < b->n; i++)
        turn[i] = b->runs[b->rules.reordered ? shuffled[i] : i].comm;
    for (int i = 0; i < b->n; i++)
        for (int k = 0; k < b->n; k++)
            if (!taken[k] && b->runs[k].comm == turn[i]) {
                taken[k] = true;
                order[i] = k;
                break;
            }
}

/* A test in between must do no harm; what it completes is complete. */
static void test_one(struct batch *b)
{
    struct fz_run *r = &b->runs[fz_pick(&b->own, (unsigned)b->n)];
    int flag;
    if (waits(r) && !b->grouped && !T_OK(hetmpi_test(&r->request, &flag, &r->status)))
        broken(r);
    else if (waits(r) && !b->grouped && flag)
        r->active = false;
}

static void launch_all(struct batch *b)
{
    int order[FZ_FLIGHT];
    hetmpi_request_t together[FZ_FLIGHT];
    bool startall = b->wave > 0 && fz_pick(&b->own, 2);
    int n = 0;
    order_of(b, order);
    if (b->grouped)
        T_OK(hetmpi_group_start());
    for (int i = 0; i < b->n; i++) {
        struct fz_run *r = &b->runs[order[i]];
        if (b->wave >= r->c.starts || r->broken)
            continue;
        if (startall) {
            r->active = true;
            together[n++] = r->request;
            continue;
        }
        launch(r);
        if (fz_pick(&b->own, 6) == 0)
            test_one(b);
    }
    if (startall && n)
        T_OK(hetmpi_startall(n, together));
    if (b->grouped)
        T_OK(hetmpi_group_end());
}

static void completed(struct fz_run *r, int code)
{
    bool persistent = r->c.form == FZ_PERSISTENT;
    if (!T_CODE(HETMPI_SUCCESS, code))
        broken(r);
    r->active = false;
    T_CHECK((r->request != HETMPI_REQUEST_NULL) == persistent, "%s request after completion: %p",
            fz_form_names[r->c.form], (void *)r->request);
}

/* All at once: the requests are copied, since a run keeps its own. */
static void wait_together(struct batch *b, int how)
{
    static const char *const names[] = { "waitall", "testall", "waitany" };
    hetmpi_request_t requests[FZ_FLIGHT];
    MPI_Status statuses[FZ_FLIGHT];
    struct fz_run *whose[FZ_FLIGHT];
    int n = 0, flag = 0, code = HETMPI_SUCCESS;
    for (int i = 0; i < b->n; i++)
        if (waits(&b->runs[i])) {
            whose[n] = &b->runs[i];
            requests[n++] = b->runs[i].request;
        }
    t_stage("seed %llu: %s of %d requests", (unsigned long long)seed, names[how], n);
    if (how == 0)
        code = hetmpi_waitall(n, requests, statuses);
    else if (how == 1)
        for (; !flag && code == HETMPI_SUCCESS; t_yield())
            code = hetmpi_testall(n, requests, &flag, statuses);
    for (int i = 0; i < n && how == 2; i++) {
        int index = -1;
        MPI_Status status;
        T_OK(hetmpi_waitany(n, requests, &index, &status));
        if (!T_CHECK(index >= 0 && index < n && whose[index]->active, "waitany gives index %d", index))
            return;
        whose[index]->request = requests[index];
        whose[index]->status = status;
        completed(whose[index], HETMPI_SUCCESS);
    }
    for (int i = 0; i < n && how < 2; i++) {
        whose[i]->request = requests[i];
        whose[i]->status = statuses[i];
        completed(whose[i], code);
    }
}

static void wait_one(struct batch *b, struct fz_run *r)
{
    int flag = 0, code = HETMPI_SUCCESS, tests = fz_pick(&b->own, 2) ? 0 : (int)fz_pick(&b->own, 30);
    stage(r, "wait");
    for (; tests > 0 && !flag && code == HETMPI_SUCCESS; tests--)
        code = hetmpi_test(&r->request, &flag, &r->status);
    if (!flag && code == HETMPI_SUCCESS)
        code = hetmpi_wait(&r->request, &r->status);
    completed(r, code);
}

static void synchronise(struct batch *b)
{
    bool used[FZ_STREAMS] = { false };
    for (int i = 0; i < b->n; i++)
        if (b->runs[i].active && b->runs[i].c.form == FZ_STREAM)
            used[b->runs[i].c.stream] = true;
    for (int i = 0; i < FZ_STREAMS; i++)
        if (used[i]) {
            t_stage("seed %llu: synchronise stream %d", (unsigned long long)seed, i);
            T_OK(hetmpi_stream_synchronize(streams[i]));
        }
    for (int i = 0; i < b->n; i++) {
        struct fz_run *r = &b->runs[i];
        int error = 0;
        if (!r->active || r->c.form != FZ_STREAM)
            continue;
        r->active = false;
        stage(r, "error of a call on a stream");
        if (!b->freed && !(T_OK(hetmpi_comm_error(r->comm->comm, &error)) && T_CODE(HETMPI_SUCCESS, error)))
            broken(r);
    }
}

static void complete(struct batch *b)
{
    int order[FZ_FLIGHT], how = (int)fz_pick(&b->own, 6);
    bool streams_first = fz_pick(&b->own, 2);
    if (streams_first)
        synchronise(b);
    if (how < 3)
        wait_together(b, how);
    fz_shuffle(&b->own, order, b->n);
    for (int i = 0; i < b->n; i++)
        if (waits(&b->runs[order[i]]))
            wait_one(b, &b->runs[order[i]]);
    if (!streams_first)
        synchronise(b);
}

/* The rules that this batch plays by. */
static void draw_rules(struct batch *b, int number, bool last, struct fz_comm *comms, int n_comms)
{
    struct fz_random random = fz_common(seed, 200 + (uint64_t)number);
    unsigned mode = fz_pick(&random, 5);
    b->freed = last && fz_pick(&random, 3) == 0;
    b->grouped = mode == 3;
    b->rules = (struct fz_rules){ .blocking = mode < 3, .reordered = mode >= 3, .once = b->freed,
                                  .streams = streams_work && (streams_run || b->grouped || mode < 3) };
    b->rules.messages_on_streams = b->rules.streams && multiple;
    /* A call that sets up its communicator waits for the others, which may be about to set up another one. */
    for (int i = 0; i < n_comms && b->rules.reordered; i++)
        if (comms[i].member)
            comms[i].attached = T_OK(hetmpi_comm_attach(comms[i].comm, MPI_INFO_NULL));
}

static void run_batch(int number, bool last, struct fz_comm *comms, int n_comms)
{
    static struct batch batch;
    struct batch *b = &batch;
    struct fz_random random = fz_common(seed, 300 + (uint64_t)number);
    int cases = 1 + (int)fz_pick(&random, FZ_FLIGHT), waves = 1;
    *b = (struct batch){ .own = fz_own(seed, 300 + (uint64_t)number) };
    draw_rules(b, number, last, comms, n_comms);
    for (int i = 0; i < cases; i++) {
        int which = (int)fz_pick(&random, (unsigned)n_comms);
        struct fz_run *r = &b->runs[b->n];
        if (!comms[which].member)
            continue;
        r->seed = seed;
        r->comm = &comms[which];
        fz_draw_case(&r->c, r->comm, which, seed, number * FZ_FLIGHT + i, &b->rules);
        stage(r, "buffers");
        fz_open(r);
        fz_fill(r, 0);
        if (r->c.form == FZ_PERSISTENT && !T_OK(fz_call(r, streams)))
            broken(r);
        waves = r->c.starts > waves ? r->c.starts : waves;
        if (r->comm->rank == 0)
            done[r->c.kind][r->c.form] += r->c.starts;
        b->n++;
    }
    for (b->wave = 0; b->wave < waves; b->wave++) {
        for (int i = 0; i < b->n && b->wave > 0; i++)
            if (b->wave < b->runs[i].c.starts && !b->runs[i].broken)
                fz_fill(&b->runs[i], b->wave);
        if (b->n)
            launch_all(b);
        for (int i = 0; i < n_comms && b->freed; i++) {
            t_stage("seed %llu: free of a communicator with calls pending", (unsigned long long)seed);
            fz_comm_free(&comms[i]);
        }
        if (b->n)
            complete(b);
        for (int i = 0; i < b->n; i++)
            if (b->wave < b->runs[i].c.starts)
                fz_check(&b->runs[i], b->wave);
    }
    for (int i = 0; i < b->n; i++)
        fz_close(&b->runs[i]);
}

static void run_round(void)
{
    struct fz_comm comms[FZ_COMMS];
    struct fz_random random = fz_common(seed, 1);
    t_stage("seed %llu: communicators", (unsigned long long)seed);
    int n = fz_comms_make(seed, comms), batches = 2 + (int)fz_pick(&random, 6);
    for (int i = 0; i < batches; i++)
        run_batch(i, i == batches - 1, comms, n);
    t_stage("seed %llu: end of the round", (unsigned long long)seed);
    fz_comms_end(comms, n);
    rounds++;
}

/* The command that runs this round again: the settings are part of it. */
static void print_replay(const char *program, const char *level)
{
    extern char **environ;
    char command[2048] = "env";
    for (char **e = environ; *e; e++) {
        size_t used = strlen(command);
        if (strncmp(*e, "HETMPI_", 7) == 0 && strncmp(*e, "HETMPI_TEST_RANKS", 17) != 0)
            snprintf(command + used, sizeof command - used, " %s", *e);
    }
    fprintf(stderr, "fuzz_collectives: rank %d: run this round again: %s mpiexec -n %d %s 0 %llu %s\n", t_rank, command,
            t_ranks, program, (unsigned long long)seed, level);
    fflush(stderr);
}

static void print_cases(double seconds)
{
    long all[FZ_KINDS][FZ_FORMS], sum = 0;
    T_MPI(MPI_Reduce(done, all, FZ_KINDS * FZ_FORMS, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD));
    if (t_rank != 0)
        return;
    printf("%-22s", "cases");
    for (int f = 0; f < FZ_FORMS; f++)
        printf("%12s", fz_form_names[f]);
    for (int k = 0; k < FZ_KINDS; k++) {
        printf("\n%-22s", fz_kind_names[k]);
        for (int f = 0; f < FZ_FORMS; f++) {
            printf("%12ld", all[k][f]);
            sum += all[k][f];
        }
    }
    printf("\n%ld cases in %ld rounds, %.0f s\n", sum, rounds, seconds);
}

/* The form is there or not on all ranks alike. */
static void probe_streams(void)
{
    for (int i = 0; i < FZ_STREAMS; i++)
        streams_work = t_open_stream(&streams[i]);
    hetmpi_comm_info_t info = { .device = -1 };
    T_OK(hetmpi_comm_info(MPI_COMM_WORLD, &info));
    int device = info.device >= 0, all;
    T_MPI(MPI_Allreduce(&device, &all, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD));
    streams_run = all;
}

int main(int argc, char **argv)
{
    static const struct { const char *name; int level; } levels[] = {
        { "single", MPI_THREAD_SINGLE }, { "funneled", MPI_THREAD_FUNNELED }, { "serialized", MPI_THREAD_SERIALIZED },
        { "multiple", MPI_THREAD_MULTIPLE } };
    int level = 3, provided = 0, failed = 0, stop = 0;
    double seconds = argc > 1 ? atof(argv[1]) : 10;
    uint64_t first = argc > 2 ? strtoull(argv[2], NULL, 0) : 0;
    for (int i = 0; i < 4 && argc > 3; i++)
        if (strcmp(argv[3], levels[i].name) == 0)
            level = i;
    t_begin(&argc, &argv, "fuzz_collectives", levels[level].level);
    MPI_Query_thread(&provided);
    multiple = provided == MPI_THREAD_MULTIPLE;
    if (t_ranks > FZ_RANKS)
        t_skip("made for at most %d ranks", FZ_RANKS);
    if (first == 0)
        first = (uint64_t)time(NULL) * 1000003 % 1000000000 + 1;
    T_MPI(MPI_Bcast(&first, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD));
    if (t_rank == 0)
        printf("seed %llu, %g s, %d ranks, %s\n", (unsigned long long)first, seconds, t_ranks, levels[level].name);
    fflush(stdout);
    probe_streams();
    double start = t_now();
    for (seed = first; !stop; seed++) {
        t_watchdog(ROUND_SECONDS * (t_sanitized() ? 3 : 1));
        run_round();
        if (t_failures())
            print_replay(argv[0], levels[level].name);
        int flags[2] = { t_failures() > 0, t_rank == 0 && t_now() - start >= seconds }, all[2];
        T_MPI(MPI_Allreduce(flags, all, 2, MPI_INT, MPI_LOR, MPI_COMM_WORLD));
        failed = all[0];
        stop = failed || all[1];
    }
    seed--;
    print_cases(t_now() - start);
    if (!failed)
        for (int i = 0; i < FZ_STREAMS; i++)
            T_OK(hetmpi_stream_destroy(streams[i]));
    return t_end();
}
