/*
 * Cost of building schedules: time, memory and steps a rank, from 16 to 16384 ranks, in islands of 8, alone and two on a
 * node, and in two islands.
 *     sched_bench [-n RANKS] [-r REPEATS]
 * Checks what can be checked without building the schedules of all ranks: dependencies, peers, the other ends of some
 * messages, and the bytes sent. The exit code says whether that was right.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/log.h"
#include "core/sched.h"
#include "hetmpi.h"

enum { SAMPLES = 4, L = 1 << 20 };   /* ranks of each communicator; elements of the chunk for the checks */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static size_t length_of(const struct topo *topo, const struct sched_range *range, size_t *first)
{
    size_t length;
    sched_range_at(topo, range, &(struct sched_chunk){.length = L}, first, &length);
    return length;
}

/* The step of `s` that is the other end of `mine`, or NULL. */
static const struct sched_step *other_end(const struct topo *topo, const struct sched *s, const struct sched_step *mine,
                                          int rank)
{
    for (int i = 0; i < s->n_steps; i++) {
        const struct sched_step *p = &s->steps[i];
        if (p->kind + mine->kind != STEP_SEND + STEP_RECV || (p->kind != STEP_SEND && p->kind != STEP_RECV) ||
            p->peer != rank || p->channel != mine->channel)
            continue;
        const struct sched_ref *a = mine->kind == STEP_SEND ? &mine->in : &mine->out;
        const struct sched_ref *b = p->kind == STEP_SEND ? &p->in : &p->out;
        size_t x, y, n = length_of(topo, &a->range, &x), m = length_of(topo, &b->range, &y);
        if (n == m && (n == 0 || x == y))
            return p;
    }
    return NULL;
}

/* The same with two islands of one size on each of n nodes: a half of each segment is this rank's to carry. */
static double two_level_share(const struct topo *t, const struct sched_call *call)
{
    int island = t->island_of[t->rank], size = topo_island_size(t, island), root = t->island_of[call->root];
    double n = t->nodes, part = (double)L / size, gate = (double)L * (n - 1);
    bool at_root = t->island_node[root] == t->island_node[island];
    switch (call->kind) {
    case COLL_ALLREDUCE: return part * (n > 2 ? (n - 1) / n : n > 1 ? 0.5 : 0) + part;
    case COLL_REDUCE: return at_root ? part * (island == root ? 0.5 : 1) : part;
    case COLL_BCAST:
        return island == root ? part * 1.5 : at_root ? part * 0.5 : part * 0.5 * ((n - 2) / (n - 1) + 1);
    case COLL_ALLGATHER: return (double)L * n + gate;
    case COLL_REDUCE_SCATTER_BLOCK: return (double)L + gate + gate;
    default: return 0;
    }
}

/* Elements that the rank should send, exactly but for rounding; tolerance: a cut and each segment may be rounded. */
static double fair_share(const struct topo *t, const struct sched_call *call)
{
    int island = t->island_of[t->rank], size = topo_island_size(t, island);
    double k = t->islands, part = (double)L / size;
    bool root = t->island_of[call->root] == island;
    if (t->levels == 2)
        return two_level_share(t, call);
    switch (call->kind) {
    case COLL_ALLREDUCE: return 2 * part * (k - 1) / k;
    case COLL_REDUCE: return root && k < 3 ? 0 : part;
    case COLL_BCAST: return root ? (k > 1 ? part : 0) : part * (k - 2) / (k - 1);
    case COLL_ALLGATHER: return (double)L * (k - 1);
    case COLL_REDUCE_SCATTER_BLOCK: return (double)L * (t->ranks - size) / size;
    default: return 0;
    }
}

static bool check(const struct topo *topo, const struct sched_call *call, const struct sched *s)
{
    double sent = 0;
    int messages = 0, seen = 0;
    for (int i = 0; i < s->n_steps; i++) {
        const struct sched_step *p = &s->steps[i];
        for (int d = 0; d < 3; d++) {
            if (p->deps[d].first < 0 || p->deps[d].first > p->deps[d].last || p->deps[d].last > i) {
                fprintf(stderr, "%s: step %d depends on steps that do not come before\n", coll_name(call->kind), i);
                return false;
            }
        }
        if (p->kind != STEP_SEND && p->kind != STEP_RECV)
            continue;
        messages++;
        if (p->peer < 0 || p->peer >= topo->ranks || topo->island_of[p->peer] == topo->island_of[topo->rank]) {
            fprintf(stderr, "%s: step %d has peer %d\n", coll_name(call->kind), i, p->peer);
            return false;
        }
        size_t first;
        if (p->kind == STEP_SEND)
            sent += (double)length_of(topo, &p->in.range, &first);
    }
    /* The other ends of a few messages. */
    for (int i = 0; i < s->n_steps; i++) {
        const struct sched_step *p = &s->steps[i];
        if ((p->kind != STEP_SEND && p->kind != STEP_RECV) || seen++ % (messages / 8 + 1))
            continue;
        struct topo peer_topo = *topo;
        struct sched *peer = NULL;
        peer_topo.rank = p->peer;
        if (sched_build(&peer_topo, call, &peer))
            return false;
        bool found = other_end(topo, peer, p, topo->rank);
        sched_free(peer);
        if (!found) {
            fprintf(stderr, "%s: rank %d, step %d: rank %d has no other end for it\n", coll_name(call->kind),
                    topo->rank, i, p->peer);
            return false;
        }
    }
    double share = fair_share(topo, call), tolerance = SCHED_ALIGN * (2.0 * messages + 2);
    if (sent > share + tolerance || sent < share - tolerance) {
        fprintf(stderr, "%s: rank %d sends %.0f elements of a chunk of %d, not %.0f\n", coll_name(call->kind),
                topo->rank, sent, L, share);
        return false;
    }
    return true;
}

/* One line; false when a schedule is wrong. */
static bool measure(int ranks, int per_island, enum coll_kind kind, struct topo *topo, int repeats)
{
    double best = 1e9, sum = 0;
    size_t bytes = 0;
    int steps = 0;
    struct sched_call call = {.kind = kind, .root = ranks / 3};
    for (int sample = 0; sample < SAMPLES; sample++) {
        topo->rank = sample == 0 ? call.root : (int)((size_t)ranks * (size_t)sample / SAMPLES) + sample % 2;
        for (int i = 0; i < repeats; i++) {
            struct sched *s = NULL;
            double from = now();
            int code = sched_build(topo, &call, &s);
            double took = now() - from;
            if (code) {
                fprintf(stderr, "%s\n", err_text());
                return false;
            }
            best = took < best ? took : best;
            sum += took;
            bytes = sched_bytes(s) > bytes ? sched_bytes(s) : bytes;
            steps = s->n_steps > steps ? s->n_steps : steps;
            bool good = i > 0 || check(topo, &call, s);
            sched_free(s);
            if (!good)
                return false;
        }
    }
    printf("%8d %8d %8d %8d  %-20s %10.1f %10.1f %12zu %8d\n", ranks, topo->islands, per_island, topo->levels,
           coll_name(kind), best * 1e6, sum / (SAMPLES * repeats) * 1e6, bytes, steps);
    return true;
}

static bool measure_topology(int ranks, int per_island, int per_node, int repeats)
{
    char why[96];
    struct topo topo;
    struct topo_rank *facts = malloc((size_t)ranks * sizeof(*facts));
    if (!facts)
        return false;
    for (int r = 0; r < ranks; r++)
        facts[r] = (struct topo_rank){.island_key = (uint64_t)(r / per_island), .weight = 1,
                                      .node_key = (uint64_t)(r / per_node)};
    double from = now();
    int code = topo_build(&topo, facts, ranks, 0);
    double took = now() - from;
    free(facts);
    if (code) {
        fprintf(stderr, "%s\n", err_text());
        return false;
    }
    topo_choose_levels(&topo, per_node > per_island ? 2 : 1, why, sizeof(why));
    printf("%8d %8d %8d %8d  %-20s %10.1f %10.1f %12s %8s\n", ranks, topo.islands, per_island, topo.levels, "(topology)",
           took * 1e6, took * 1e6, "-", "-");
    bool good = true;
    for (int kind = 0; kind <= COLL_REDUCE_SCATTER_BLOCK && good; kind++)
        good = measure(ranks, per_island, (enum coll_kind)kind, &topo, repeats);
    topo_clear(&topo);
    return good;
}

int main(int argc, char **argv)
{
    int most = 16384, repeats = 20, option;
    while ((option = getopt(argc, argv, "n:r:")) != -1) {
        int *value = option == 'n' ? &most : option == 'r' ? &repeats : NULL;
        if (!value || (*value = atoi(optarg)) < (option == 'n' ? 16 : 1)) {
            fprintf(stderr, "usage: %s [-n most ranks, at least 16] [-r repeats]\n", argv[0]);
            return 2;
        }
    }
    printf("# Schedules of one rank; microseconds: the best and the mean of %d builds on each of %d ranks\n", repeats,
           SAMPLES);
    printf("# %6s %8s %8s %8s  %-20s %10s %10s %12s %8s\n", "ranks", "islands", "of", "levels", "collective", "best", "mean", "bytes",
           "steps");
    for (int ranks = 16; ranks <= most; ranks *= 4) {
        if (!measure_topology(ranks, 8, 8, repeats) || !measure_topology(ranks, ranks / 2, ranks / 2, repeats) ||
            (ranks > 16 && !measure_topology(ranks, 8, 16, repeats)))
            return 1;
    }
    return 0;
}
