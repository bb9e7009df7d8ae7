/* sched_build: checks what a schedule's indices can hold, and calls the collective's builder. */
#include <stdlib.h>
#include <string.h>

#include "algos/algos.h"
#include "algos/levels.h"
#include "core/log.h"
#include "hetmpi.h"

/* A place where a part begins, as a fraction of the vector. */
struct place { uint64_t over, under; };

static int place_compare(const void *pa, const void *pb)
{
    const struct place *a = pa, *b = pb;
    unsigned __int128 l = (unsigned __int128)a->over * b->under, r = (unsigned __int128)b->over * a->under;
    return (l > r) - (l < r);
}

static bool same_parts(const struct topo *t, int i, int j)
{
    int size = topo_island_size(t, i);
    return size == topo_island_size(t, j) &&
           memcmp(t->weight_before + t->island_first[i] + i, t->weight_before + t->island_first[j] + j,
                  (size_t)(size + 1) * sizeof(uint64_t)) == 0;
}

/* How many of the n sorted places lie below x (or at x too). */
static int places_below(const struct place *places, int n, struct place x, bool too)
{
    int lo = 0, hi = n;
    while (lo < hi) {
        int middle = lo + (hi - lo) / 2;
        if (place_compare(&places[middle], &x) < (too ? 1 : 0))
            lo = middle + 1;
        else
            hi = middle;
    }
    return lo;
}

/*
 * The most segments that the parts of all islands cut any rank's part into: what decides the number of channels and
 * scratches with more than two islands. Same result on every rank, as all must refuse alike. Islands that are cut like
 * an earlier one (all of them, usually) add nothing.
 */
static int most_segments(const struct topo *t, int enough, int *most)
{
    long bound = 1;
    for (int i = 0; i < t->islands; i++) {
        if (i == 0 || (!same_parts(t, i, 0) && !same_parts(t, i, i - 1)))
            bound += topo_island_size(t, i) - 1;
    }
    *most = (int)bound;
    if (bound <= enough)
        return HETMPI_SUCCESS;

    struct place *places = malloc((size_t)t->ranks * sizeof(*places));
    if (!places)
        return err_set(HETMPI_ERR_MEMORY, "schedule: no memory to compare the parts of %d ranks", t->ranks);
    int n = 0;
    for (int i = 0; i < t->islands; i++) {
        uint64_t total = topo_weight_before(t, i, topo_island_size(t, i));
        for (int p = 1; p < topo_island_size(t, i); p++)
            places[n++] = (struct place){topo_weight_before(t, i, p), total};
    }
    qsort(places, (size_t)n, sizeof(*places), place_compare);
    int different = 0;
    for (int i = 0; i < n; i++) {
        if (different == 0 || place_compare(&places[different - 1], &places[i]) != 0)
            places[different++] = places[i];
    }
    *most = 1;
    for (int i = 0; i < t->islands; i++) {
        int size = topo_island_size(t, i);
        uint64_t total = topo_weight_before(t, i, size);
        for (int p = 0; p < size; p++) {
            struct place lo = {topo_weight_before(t, i, p), total}, hi = {topo_weight_before(t, i, p + 1), total};
            int inside = places_below(places, different, hi, false) - places_below(places, different, lo, true);
            *most = inside + 1 > *most ? inside + 1 : *most;
        }
    }
    free(places);
    return HETMPI_SUCCESS;
}

/* With more than two islands, messages of a pair are told apart by the segments inside it: allreduce takes two channels
 * for each, and a scratch for each and every other island; bcast takes one channel. The rest has one message a pair and
 * at most three scratches an island; alltoall in place has one for each other rank. */
static int check_limits(const struct topo *t, const struct sched_call *call)
{
    int most = 1, room = ALGO_CHANNELS;
    enum coll_kind kind = call->kind;
    if (sched_pairs(call)) {
        if (t->ranks > ALGO_SCRATCHES)
            return err_set(HETMPI_ERR_UNSUPPORTED, "schedule: %s over %d ranks: at most %d", coll_name(kind), t->ranks,
                           ALGO_SCRATCHES);
        return HETMPI_SUCCESS;
    }
    if (t->islands <= 2)
        return HETMPI_SUCCESS;
    if (kind == COLL_ALLREDUCE || kind == COLL_BCAST) {
        int scratches = (ALGO_SCRATCHES - 8) / (t->islands - 1);
        if (kind == COLL_ALLREDUCE)
            room = scratches < ALGO_CHANNELS / 2 ? scratches : ALGO_CHANNELS / 2;
        int code = most_segments(t, room, &most);
        if (code)
            return code;
    }
    if (most > room || t->islands > ALGO_SCRATCHES / 3 - 2)
        return err_set(HETMPI_ERR_UNSUPPORTED,
                       "schedule: %s over %d islands whose parts cut each other into %d segments a rank: too many; "
                       "join islands with the setting ISLANDS, or give their ranks equal weights", coll_name(kind),
                       t->islands, most);
    return HETMPI_SUCCESS;
}

/* The most scratches that a gate takes. */
static long gate_scratches(const struct topo *t)
{
    return (long)t->islands * (3 + topo_most_islands(t)) + t->nodes;
}

/* Two levels where the topology has them, the collective has a use for them, and the indices suffice; all ranks decide
 * alike. */
static int choose_levels(const struct topo *t, enum coll_kind kind, bool *two)
{
    int most = 1, room, code;
    *two = false;
    if (t->levels < 2 || t->islands == t->nodes)
        return HETMPI_SUCCESS;
    switch (kind) {
    case COLL_ALLREDUCE:
    case COLL_REDUCE:
    case COLL_BCAST:
        room = algo_cells_room(t);
        code = most_segments(t, room, &most);
        *two = code == HETMPI_SUCCESS && most <= room;
        return code;
    case COLL_ALLGATHER:
    case COLL_ALLGATHERV:
    case COLL_REDUCE_SCATTER_BLOCK:
    case COLL_REDUCE_SCATTER:
        /* A channel for each island; at the gates three scratches, and one for each other island of the node. */
        *two = t->islands < ALGO_CHANNELS && gate_scratches(t) <= ALGO_SCRATCHES;
        return HETMPI_SUCCESS;
    default:
        return HETMPI_SUCCESS;
    }
}

/* Reduce with more than two islands: all of them reduce, but the root's, where the indices suffice: a channel for each
 * segment, a scratch for it and each island. All ranks decide alike. */
static int choose_shared(const struct topo *t, enum coll_kind kind, bool *shared)
{
    int room = (ALGO_SCRATCHES - 8) / t->islands, most = 1, code;
    *shared = false;
    if (kind != COLL_REDUCE || t->islands <= 2)
        return HETMPI_SUCCESS;
    room = room < ALGO_CHANNELS ? room : ALGO_CHANNELS;
    code = most_segments(t, room, &most);
    *shared = code == HETMPI_SUCCESS && most <= room;
    return code;
}

/* Gives back the room that was not needed. */
static void trim(void **array, int used, size_t element)
{
    if (used == 0) {
        free(*array);
        *array = NULL;
        return;
    }
    void *smaller = realloc(*array, (size_t)used * element);
    if (smaller)
        *array = smaller;
}

int sched_build(const struct topo *topo, const struct sched_call *call, struct sched **out)
{
    static void (*const builders[COLL_KINDS])(struct algo *) = {
        [COLL_ALLREDUCE] = algo_allreduce, [COLL_REDUCE] = algo_reduce_to_root, [COLL_BCAST] = algo_bcast,
        [COLL_ALLGATHER] = algo_allgather, [COLL_REDUCE_SCATTER_BLOCK] = algo_reduce_scatter_block,
        [COLL_REDUCE_SCATTER] = algo_reduce_scatter_block, [COLL_ALLGATHERV] = algo_allgather,
        [COLL_GATHER] = algo_gather, [COLL_SCATTER] = algo_scatter, [COLL_GATHERV] = algo_gather,
        [COLL_SCATTERV] = algo_scatter, [COLL_ALLTOALL] = algo_alltoall, [COLL_ALLTOALLV] = algo_alltoall,
        [COLL_SCAN] = algo_scan, [COLL_EXSCAN] = algo_scan,
    };
    if ((unsigned)call->kind >= COLL_KINDS || !builders[call->kind])
        return err_set(HETMPI_ERR_ARG, "schedule: collective %d (%s) has none", (int)call->kind, coll_name(call->kind));
    if ((coll_traits(call->kind) & COLL_ROOTED) && (call->root < 0 || call->root >= topo->ranks))
        return err_set(HETMPI_ERR_ARG, "schedule: %s has root %d, but the communicator %d ranks", coll_name(call->kind),
                       call->root, topo->ranks);
    bool two_levels, shared = false;
    int code = choose_levels(topo, call->kind, &two_levels);
    if (!code && !two_levels)
        code = check_limits(topo, call);
    if (!code && !two_levels)
        code = choose_shared(topo, call->kind, &shared);
    if (code)
        return code;

    struct sched *s = calloc(1, sizeof(*s));
    if (!s)
        return err_set(HETMPI_ERR_MEMORY, "schedule: no memory");
    s->kind = call->kind;
    int island = topo->island_of[topo->rank];
    struct algo a = {.topo = topo, .call = call, .sched = s, .island = island,
                     .position = topo->position_of[topo->rank], .size = topo_island_size(topo, island),
                     .islands = topo->islands, .two_levels = two_levels, .shared = shared};
    builders[call->kind](&a);
    if (a.no_memory) {
        sched_free(s);
        return err_set(HETMPI_ERR_MEMORY, "schedule: no memory for %s over %d islands", coll_name(call->kind),
                       topo->islands);
    }
    trim((void **)&s->steps, s->n_steps, sizeof(*s->steps));
    trim((void **)&s->refs, s->n_refs, sizeof(*s->refs));
    trim((void **)&s->scratch, s->n_scratch, sizeof(*s->scratch));
    *out = s;
    return HETMPI_SUCCESS;
}
