/*
 * All collectives over all small topologies, and many random ones, through the symbolic checker. Two processes share
 * the cases; every case follows from its number and HETMPI_TEST_SEED (printed), and HETMPI_TEST_CASE runs one alone.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "check_sched.h"
#include "core/log.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#endif
#ifdef SANITIZED
enum { STRIDE = 17 };   /* sanitizers cost a factor of ten and more: every 17th case */
#else
enum { STRIDE = 1 };
#endif

enum { WORKERS = 2, MAX_RANKS = 256, COUNTS = 68, KINDS = COLL_BARRIER };
enum { MAX_TABLE = 64 };   /* ranks with a length for each pair */

struct random { uint64_t state; };

static uint64_t draw(struct random *r, uint64_t below)
{
    r->state = r->state * 6364136223846793005u + 1442695040888963407u;
    uint64_t x = r->state ^ r->state >> 29;
    x = x * 0xbf58476d1ce4e5b9u;
    return (x ^ x >> 32) % below;
}

static bool chance(struct random *r, uint64_t of) { return draw(r, of) == 0; }

/* Everything but the islands of the ranks. */
static void finish_facts(struct random *r, struct topo_rank *facts, int ranks)
{
    uint64_t weights = draw(r, 3), nodes = 1 + draw(r, 4);
    for (int i = 0; i < ranks; i++) {
        facts[i].node_key = facts[i].island_key % nodes;
        facts[i].weight = (uint32_t)(weights == 0 ? 1 : 1 + draw(r, weights == 1 ? 4 : 65535));
    }
}

struct job {
    int levels;                /* asked for: 0 or 1 */
    struct topo_rank facts[MAX_RANKS];
    int ranks;
    struct check_case c;
    unsigned char staged[MAX_RANKS];
    size_t counts[MAX_TABLE * MAX_TABLE];
};

/* Blocks of different lengths, at most job->c.count: zeros among them, or all but one, or none at all. */
static void make_counts(struct random *r, struct job *job)
{
    struct check_case *c = &job->c;
    int n = c->call.kind == COLL_ALLTOALLV ? job->ranks * job->ranks : job->ranks;
    size_t most = 0;
    uint64_t how = draw(r, 4);
    for (int i = 0; i < n; i++) {
        job->counts[i] = how == 0 && !chance(r, 4) ? 0 : how == 1 ? c->count - draw(r, c->count / 8 + 1)
                                                                 : draw(r, c->count + 1);
        if (how == 3 && chance(r, 3))
            job->counts[i] = 0;
    }
    /* In place, what two ranks exchange is of one length. */
    for (int i = 0; i < n && c->call.kind == COLL_ALLTOALLV && c->call.in_place; i++)
        job->counts[i % job->ranks * job->ranks + i / job->ranks] = job->counts[i];
    for (int i = 0; i < n; i++)
        most = job->counts[i] > most ? job->counts[i] : most;
    c->count = most;
    c->counts = job->counts;
    c->gap = draw(r, 3);
}

/* The rest of a call: how it is cut, in place, staged, ordered. Small: few elements. */
static void finish_call(struct random *r, struct job *job)
{
    struct check_case *c = &job->c;
    enum coll_kind kind = c->call.kind;
    c->call.exact = chance(r, 3);
    bool shared = chance(r, 2);
    c->call.in_place = shared && kind != COLL_ALLREDUCE && kind != COLL_REDUCE && kind != COLL_BCAST &&
                       kind != COLL_REDUCE_SCATTER && (kind != COLL_REDUCE_SCATTER_BLOCK || chance(r, 2));
    c->same = shared && !c->call.in_place && (kind == COLL_ALLREDUCE || kind == COLL_REDUCE ||
                                              kind == COLL_REDUCE_SCATTER_BLOCK || kind == COLL_REDUCE_SCATTER);
    if (coll_traits(kind) & (COLL_TABLE | COLL_OWN_TABLE))
        make_counts(r, job);
    if (c->chunk == 0) {
        size_t pieces = 1 + draw(r, 5);
        c->chunk = c->count / pieces + draw(r, 3);
        if (c->chunk == 0)
            c->chunk = 1;
    }
    job->levels = chance(r, 4);
    c->call.gathered = kind == COLL_ALLTOALL && chance(r, 2);
    c->call.straight = coll_tells(kind) && chance(r, 4);
    c->window = (int)(1 + draw(r, 6));
    c->delay = c->window / 2;
    c->order = (enum check_order)draw(r, CHECK_ORDERS);
    c->seed = draw(r, UINT64_MAX);
    c->call.scale = job->ranks > 1 && coll_traits(kind) & COLL_REDUCES && chance(r, 8);
    if (c->call.scale || chance(r, 3)) {
        for (int i = 0; i < job->ranks; i++) {
            job->staged[i] = (unsigned char)(draw(r, 4) | (c->call.scale ? CHECK_STAGE_SEND : 0));
            if ((c->call.in_place || c->same) && job->staged[i])
                job->staged[i] = CHECK_STAGE_SEND | CHECK_STAGE_RECV;
        }
        c->staged = job->staged;
    }
}

/* Compositions: rank i and i+1 are in one island where the bit is not set. */
enum { SMALL = 8, COMPOSITIONS = (1 << SMALL) - 1 };
enum { EVERY_COUNT = COLL_REDUCE_SCATTER, SOME_COUNTS = 12 };   /* kinds with every count; counts of the others */

static void composition_job(struct random *r, uint64_t number, struct job *job)
{
    uint64_t which = number % COMPOSITIONS + 1;
    number /= COMPOSITIONS;
    job->ranks = 64 - __builtin_clzll(which);
    for (int i = 1; i < job->ranks; i++)
        job->facts[i].island_key = job->facts[i - 1].island_key + (which >> (i - 1) & 1);
    finish_facts(r, job->facts, job->ranks);
    bool all = number < (uint64_t)COUNTS * EVERY_COUNT;
    if (all) {
        job->c.count = number % COUNTS;
        job->c.call.kind = (enum coll_kind)(number / COUNTS);
    } else {
        number -= (uint64_t)COUNTS * EVERY_COUNT;
        job->c.count = draw(r, COUNTS);
        job->c.call.kind = (enum coll_kind)(EVERY_COUNT + number / SOME_COUNTS);
    }
    job->c.call.root = (int)draw(r, (uint64_t)job->ranks);
    finish_call(r, job);
}

/* Interleavings: all ways to part up to 6 ranks into islands, as strings in which each new island is one more. */
enum { LONGEST = 6, MOST_PARTITIONS = 512, REPEATS = 14 };
static unsigned char partitions[MOST_PARTITIONS][LONGEST + 1];   /* [0]: ranks */
static int n_partitions;

static void list_partitions(unsigned char *string, int at, int ranks, int islands)
{
    if (at == ranks) {
        partitions[n_partitions][0] = (unsigned char)ranks;
        memcpy(partitions[n_partitions++] + 1, string, (size_t)ranks);
        return;
    }
    for (int i = 0; i <= islands; i++) {
        string[at] = (unsigned char)i;
        list_partitions(string, at + 1, ranks, i == islands ? islands + 1 : islands);
    }
}

static void interleaving_job(struct random *r, uint64_t number, struct job *job)
{
    const unsigned char *p = partitions[number % (uint64_t)n_partitions];
    number /= (uint64_t)n_partitions;
    job->ranks = p[0];
    for (int i = 0; i < job->ranks; i++)
        job->facts[i].island_key = p[1 + i];
    finish_facts(r, job->facts, job->ranks);
    job->c.call.kind = (enum coll_kind)(number % KINDS);
    job->c.call.root = (int)(number / KINDS) % job->ranks;   /* every root */
    job->c.count = draw(r, COUNTS);
    finish_call(r, job);
}

/* Counts around chunk borders, and lengths from which cuts are aligned. */
enum { BORDERS = 6000 };

static void border_job(struct random *r, uint64_t number, struct job *job)
{
    job->ranks = (int)(1 + draw(r, 8));
    uint64_t islands = 1 + draw(r, 4);
    for (int i = 0; i < job->ranks; i++)
        job->facts[i].island_key = draw(r, islands);
    finish_facts(r, job->facts, job->ranks);
    job->c.call.kind = (enum coll_kind)(number % KINDS);
    job->c.call.root = (int)draw(r, (uint64_t)job->ranks);
    static const size_t chunks[] = {1, 16, 17, 64, SCHED_ALIGN_FROM / 4, SCHED_ALIGN_FROM - 1, SCHED_ALIGN_FROM + 100};
    job->c.chunk = chunks[number / KINDS % 7];
    size_t whole = draw(r, job->c.chunk > 100 ? 2 : 6);
    job->c.count = (whole + 1) * job->c.chunk - 1 + draw(r, 3);
    finish_call(r, job);
}

/* Up to 256 ranks. */
enum { LARGE = 2400 };

static void large_job(struct random *r, uint64_t number, struct job *job)
{
    uint64_t most = draw(r, 8) == 0 ? MAX_RANKS : draw(r, 4) == 1 ? 100 : 40;
    job->c.call.kind = (enum coll_kind)(number % KINDS);
    if (coll_traits(job->c.call.kind) & COLL_PAIRS && most > MAX_TABLE)
        most = MAX_TABLE;
    job->ranks = (int)(1 + draw(r, most));
    uint64_t islands = draw(r, 16) == 3 ? 60 : 1 + draw(r, 12);
    bool blocks = chance(r, 2);
    for (int i = 0; i < job->ranks; i++)
        job->facts[i].island_key = blocks ? (uint64_t)i * islands / (uint64_t)job->ranks : draw(r, islands);
    finish_facts(r, job->facts, job->ranks);
    job->c.call.root = (int)draw(r, (uint64_t)job->ranks);
    job->c.count = draw(r, job->ranks > 64 ? 12 : 68);
    if (job->c.call.kind <= COLL_BCAST && job->ranks <= 64 && chance(r, 4))
        job->c.count = SCHED_ALIGN_FROM + draw(r, 200);
    finish_call(r, job);
}

static const struct part {
    const char *name;
    void (*make)(struct random *, uint64_t, struct job *);
} parts[] = {
    {"compositions of up to 8 ranks", composition_job},
    {"interleavings of up to 6 ranks", interleaving_job},
    {"chunk borders and alignment", border_job},
    {"up to 256 ranks", large_job},
};
enum { PARTS = sizeof(parts) / sizeof(*parts) };

static uint64_t part_size(int part)
{
    switch (part) {
    case 0: return (uint64_t)COMPOSITIONS * (COUNTS * EVERY_COUNT + SOME_COUNTS * (KINDS - EVERY_COUNT));
    case 1: return (uint64_t)n_partitions * KINDS * REPEATS;
    case 2: return BORDERS;
    default: return LARGE;
    }
}

static bool run_case(uint64_t seed, int part, uint64_t number)
{
    struct random r = {seed * 1000003 + number * 0x9e3779b97f4a7c15u + (uint64_t)part};
    struct job job = {0};
    struct topo topo;
    struct sched *scheds[MAX_RANKS];
    char why[CHECK_WHY] = "";
    parts[part].make(&r, number, &job);
    if (topo_build(&topo, job.facts, job.ranks, 0)) {
        fprintf(stderr, "%s\n", err_text());
        return false;
    }
    topo_choose_levels(&topo, job.levels, why, sizeof(why));
    job.c.call.gathered &= topo.levels == 2;
    bool good = check_build(&topo, &job.c, scheds) == 0;
    if (!good) {
        snprintf(why, sizeof(why), "%s", err_text());
    } else {
        good = check_schedules(&topo, &job.c, scheds, why);
        check_free(&topo, scheds);
    }
    if (!good) {
        const struct check_case *c = &job.c;
        fprintf(stderr, "HETMPI_TEST_SEED=%llu HETMPI_TEST_CASE=%d:%llu %s of %zu in chunks of %zu, window %d, order "
                "%d, root %d%s%s%s%s%s%s, %d levels over %d islands (node:island ", (unsigned long long)seed, part,
                (unsigned long long)number, coll_name(c->call.kind), c->count, c->chunk, c->window, (int)c->order, c->call.root,
                c->call.exact ? ", exact" : "", c->call.in_place ? ", in place" : "", c->same ? ", same buffer" : "",
                c->staged ? ", staged" : "", c->call.gathered ? ", gathered" : "",
                c->call.straight ? ", straight" : "", topo.levels, topo.islands);
        for (int i = 0; i < job.ranks; i++)
            fprintf(stderr, "%d:%d%s", topo.node_of[i], topo.island_of[i], i + 1 < job.ranks ? "," : "");
        fprintf(stderr, "): %s\n", why);
    }
    topo_clear(&topo);
    return good;
}

/* One worker's cases: how many, or -1 after the first that failed. */
static long work(uint64_t seed, int worker)
{
    long done = 0;
    for (int part = 0; part < PARTS; part++) {
        for (uint64_t i = (uint64_t)worker * STRIDE; i < part_size(part); i += (uint64_t)WORKERS * STRIDE) {
            if (!run_case(seed, part, i))
                return -1;
            done++;
        }
    }
    check_end();
    return done;
}

static void all_topologies(void **state)
{
    (void)state;
    unsigned char string[LONGEST];
    for (int ranks = 1; ranks <= LONGEST; ranks++)
        list_partitions(string, 0, ranks, 0);
    const char *seed_text = getenv("HETMPI_TEST_SEED"), *case_text = getenv("HETMPI_TEST_CASE");
    uint64_t seed = seed_text ? strtoull(seed_text, NULL, 10) : 20260101;
    if (case_text) {
        char *end;
        int part = (int)strtol(case_text, &end, 10);
        assert_true(part >= 0 && part < PARTS && *end == ':');
        assert_true(run_case(seed, part, strtoull(end + 1, NULL, 10)));
        check_end();
        return;
    }

    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    fflush(NULL);
    int results[2];
    assert_int_equal(pipe(results), 0);
    for (int w = 0; w < WORKERS; w++) {
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            long done = work(seed, w);
            bool told = write(results[1], &done, sizeof(done)) == sizeof(done);
            _exit(told && done >= 0 ? 0 : 1);
        }
    }
    close(results[1]);
    long total = 0, expected = 0, done;
    int good = 0, status;
    while (read(results[0], &done, sizeof(done)) == sizeof(done))
        total += done;
    close(results[0]);
    while (wait(&status) > 0)
        good += WIFEXITED(status) && WEXITSTATUS(status) == 0;
    clock_gettime(CLOCK_MONOTONIC, &to);
    for (int part = 0; part < PARTS; part++) {
        expected += (long)((part_size(part) + STRIDE - 1) / STRIDE);
        printf("%s: %llu cases\n", parts[part].name, (unsigned long long)part_size(part) / STRIDE);
    }
    printf("checked %ld cases in %.1f s, seed %llu\n", total, (double)(to.tv_sec - from.tv_sec) +
           (double)(to.tv_nsec - from.tv_nsec) * 1e-9, (unsigned long long)seed);
    assert_int_equal(good, WORKERS);
    assert_int_equal(total, expected);
    assert_true(STRIDE > 1 || total >= 100000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_topologies)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
