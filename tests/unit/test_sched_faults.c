/*
 * Does the symbolic checker see faults? Breaks right schedules in every way there is, one at a time, at every step of
 * every rank, and demands that each is found. A change that changes nothing (a range that is as long as before, a
 * dependency that others imply) is not a fault, and left out by stated rules only.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "check_broken.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#endif
#ifdef SANITIZED
enum { STRIDE = 13 };
#else
enum { STRIDE = 1 };
#endif

enum { L = 64, CHUNKS = 3 };

/* A broken copy of one rank's schedule. */
struct broken {
    const struct topo *topo;
    struct sched *s;
    int step;
};

static size_t length_of(const struct broken *b, const struct sched_range *r, size_t *first)
{
    size_t length;
    sched_range_at(b->topo, r, &(struct sched_chunk){.length = L}, first, &length);
    return length;
}

static bool empty(const struct broken *b, const struct sched_range *r)
{
    size_t first;
    return length_of(b, r, &first) == 0;
}

/* Moves a range's end, or its part, in one of 8 ways; false when it stays the same. */
enum { RANGE_WAYS = 8 };
static bool move_range(const struct broken *b, struct sched_range *r, int way)
{
    size_t first, was_first, was = length_of(b, r, &was_first);
    switch (way) {
    case 0: r->lo.position++; break;
    case 1: r->lo.position--; break;
    case 2: r->hi.position++; break;
    case 3: r->hi.position--; break;
    case 4: r->part++; break;
    case 5: r->part--; break;
    case 6: r->parts++; break;
    default: r->lo = r->hi; break;
    }
    if (was == 0)
        return false;   /* an unused ref */
    for (int i = 0; i < 2; i++) {
        const struct sched_cut *c = i ? &r->hi : &r->lo;
        if (c->position < 0 || c->position > topo_island_size(b->topo, c->island))
            return true;
    }
    if (r->part < 0 || r->part >= r->parts)
        return true;
    size_t now = length_of(b, r, &first);
    return now != was || first != was_first;
}

static struct sched_range nothing(void)
{
    return (struct sched_range){.parts = 1};
}

/* Faults. Each has `ways`, and says whether that way is a fault at this step. */
static bool drop_step(struct broken *b, int way)
{
    (void)way;
    struct sched_step *s = &b->s->steps[b->step];
    struct sched_deps deps[3];
    memcpy(deps, s->deps, sizeof(deps));
    *s = (struct sched_step){.kind = STEP_COPY, .in = {.range = nothing()}, .out = {.range = nothing()}};
    memcpy(s->deps, deps, sizeof(deps));
    return true;
}

/* Marks what the step waits for, by way of other steps too. */
static void reach(const struct sched *s, int step, bool *seen)
{
    for (int d = 0; d < 3; d++) {
        for (int j = s->steps[step].deps[d].first; j < s->steps[step].deps[d].last; j++) {
            if (!seen[j]) {
                seen[j] = true;
                reach(s, j, seen);
            }
        }
    }
}

static bool drop_dependency(struct broken *b, int way)
{
    struct sched_deps *d = &b->s->steps[b->step].deps[way], was = *d;
    *d = (struct sched_deps){0, 0};
    bool *seen = calloc((size_t)b->s->n_steps, sizeof(*seen)), fault = false;
    assert_non_null(seen);
    reach(b->s, b->step, seen);
    for (int j = was.first; j < was.last; j++)
        fault |= !seen[j];
    free(seen);
    return fault;
}

static bool wait_for_later(struct broken *b, int way)
{
    struct sched_deps *d = &b->s->steps[b->step].deps[way];
    *d = way == 0 ? (struct sched_deps){b->step, b->step + 1} : (struct sched_deps){-1, 1};
    return true;
}

static bool wrong_peer(struct broken *b, int way)
{
    struct sched_step *s = &b->s->steps[b->step];
    s->peer = way == b->topo->ranks ? -1 : way > b->topo->ranks ? b->topo->ranks : way;
    return (s->kind == STEP_SEND || s->kind == STEP_RECV) && way <= b->topo->ranks + 1;
}

static bool is_other_peer(const struct sched *old, const struct broken *b)
{
    return old->steps[b->step].peer != b->s->steps[b->step].peer;
}

static bool wrong_channel(struct broken *b, int way)
{
    struct sched_step *s = &b->s->steps[b->step];
    s->channel = (uint16_t)(way == 0 ? s->channel + 1 : way == 1 ? s->channel - 1 : s->channel + 2);
    return s->kind == STEP_SEND || s->kind == STEP_RECV;
}

static bool wrong_in(struct broken *b, int way)
{
    struct sched_step *s = &b->s->steps[b->step];
    return s->kind != STEP_RECV && s->kind != STEP_REDUCE && move_range(b, &s->in.range, way);
}

static bool wrong_out(struct broken *b, int way)
{
    struct sched_step *s = &b->s->steps[b->step];
    return s->kind != STEP_SEND && move_range(b, &s->out.range, way);
}

static bool wrong_operand(struct broken *b, int way)
{
    struct sched_step *s = &b->s->steps[b->step];
    int i = way / RANGE_WAYS;
    return s->kind == STEP_REDUCE && i < s->n_in && move_range(b, &b->s->refs[s->first_in + i].range, way % RANGE_WAYS);
}

/* A whole step shorter, with all its operands: every range agrees, but elements are missing. */
static bool shorter_step(struct broken *b, int way)
{
    struct sched_step *s = &b->s->steps[b->step];
    way = way == 0 ? 0 : way == 1 ? 3 : 7;
    if (s->kind != STEP_REDUCE && s->kind != STEP_COPY)
        return false;
    for (int i = 0; s->kind == STEP_REDUCE && i < s->n_in; i++)
        move_range(b, &b->s->refs[s->first_in + i].range, way);
    move_range(b, &s->in.range, way);
    return move_range(b, &s->out.range, way);
}

static bool wrong_space(struct broken *b, int way)
{
    struct sched_step *s = &b->s->steps[b->step];
    struct sched_ref *ref = way % 2 ? &s->out : &s->in;
    if ((way % 2 ? s->kind == STEP_SEND : s->kind == STEP_RECV || s->kind == STEP_REDUCE) || empty(b, &ref->range))
        return false;
    if (way < 2) {
        ref->range.space = ref->range.space == SPACE_VECTOR ? SPACE_BLOCKS : SPACE_VECTOR;
        return true;
    }
    ref->range.island = (ref->range.island + 1) % b->topo->islands;
    return ref->range.space == SPACE_BLOCKS && b->topo->islands > 1;
}

static bool swapped_operands(struct broken *b, int way)
{
    struct sched_step *s = &b->s->steps[b->step];
    if (s->kind != STEP_REDUCE || way + 1 >= s->n_in)
        return false;
    struct sched_ref *r = &b->s->refs[s->first_in + way], first = r[0];
    r[0] = r[1];
    r[1] = first;
    return true;
}

static bool double_operand(struct broken *b, int way)
{
    struct sched_step *s = &b->s->steps[b->step];
    if (s->kind != STEP_REDUCE || s->n_in < 2 || way >= s->n_in)
        return false;
    b->s->refs[s->first_in + way] = b->s->refs[s->first_in + (way + 1) % s->n_in];
    return true;
}

static bool other_number_of_operands(struct broken *b, int way)
{
    struct sched_step *s = &b->s->steps[b->step];
    s->n_in += way == 0 ? -1 : 1;
    return s->kind == STEP_REDUCE;
}

static bool not_final(struct broken *b, int way)
{
    (void)way;
    struct sched_step *s = &b->s->steps[b->step];
    s->final = !s->final;
    return s->kind == STEP_REDUCE || s->kind == STEP_LOCAL_REDUCE;
}

static bool wrong_lag(struct broken *b, int way)
{
    struct sched_step *s = &b->s->steps[b->step];
    s->lag = (uint8_t)(way == 0 ? !s->lag : 2);
    return is_local(s);
}

static bool wrong_owners(struct broken *b, int way)
{
    struct sched_step *s = &b->s->steps[b->step];
    uint8_t was = s->owners;
    s->owners = (uint8_t)way;
    return is_local(s) && was != way;
}

static bool wrong_readers(struct broken *b, int way)
{
    struct sched_step *s = &b->s->steps[b->step];
    if (way == 0)
        s->readers = s->readers == READERS_ALL ? READERS_ROOT : READERS_ALL;
    else
        s->root++;
    return s->kind == STEP_LOCAL_SPREAD &&
           (way == 0 || s->owners == OWNERS_ROOT || s->readers == READERS_ROOT);
}

static bool wrong_buffer_of(const struct broken *b, struct sched_ref *ref, int way)
{
    uint8_t was = ref->buffer;
    ref->buffer = (uint8_t)way;
    ref->scratch = 0;
    return was != way && !empty(b, &ref->range);
}

static bool wrong_in_buffer(struct broken *b, int way)
{
    struct sched_step *s = &b->s->steps[b->step];
    return s->kind != STEP_RECV && s->kind != STEP_REDUCE && wrong_buffer_of(b, &s->in, way);
}

static bool wrong_out_buffer(struct broken *b, int way)
{
    struct sched_step *s = &b->s->steps[b->step];
    return s->kind != STEP_SEND && wrong_buffer_of(b, &s->out, way);
}

static bool wrong_operand_buffer(struct broken *b, int way)
{
    struct sched_step *s = &b->s->steps[b->step];
    return s->kind == STEP_REDUCE && way / 3 < s->n_in &&
           wrong_buffer_of(b, &b->s->refs[s->first_in + way / 3], way % 3);
}

static bool wrong_scratch(struct broken *b, int way)
{
    struct sched_step *s = &b->s->steps[b->step];
    struct sched_ref *ref = way % 2 ? &s->out : &s->in;
    if ((way % 2 ? s->kind == STEP_SEND : s->kind == STEP_RECV || s->kind == STEP_REDUCE) || empty(b, &ref->range))
        return false;
    int was = ref->scratch;
    ref->scratch = (uint16_t)(way / 2);
    return ref->buffer == BUF_SCRATCH && was != way / 2 && way / 2 <= b->s->n_scratch;
}

/* Faults of scratches: `step` is the scratch. */
static bool short_scratch(struct broken *b, int way)
{
    if (b->step >= b->s->n_scratch)
        return false;
    way = way == 0 ? 0 : way == 1 ? 3 : 7;
    return move_range(b, &b->s->scratch[b->step].range, way);
}

static bool wrong_format(struct broken *b, int way)
{
    (void)way;
    if (b->step >= b->s->n_scratch)
        return false;
    b->s->scratch[b->step].wide = !b->s->scratch[b->step].wide;
    return true;
}

static bool wrong_layout(struct broken *b, int way)
{
    uint8_t *layout = way < 4 ? &b->s->send_layout : &b->s->recv_layout, was = *layout;
    *layout = (uint8_t)(way % 4);
    return b->step == 0 && was != *layout;
}

static const struct fault {
    const char *name;
    int ways;
    bool (*make)(struct broken *b, int way);
} faults[] = {
    {"a step is missing", 1, drop_step}, {"a dependency is missing", 3, drop_dependency},
    {"a step waits for itself or nothing", 2, wait_for_later}, {"wrong peer", MAX_RANKS + 2, wrong_peer},
    {"wrong channel", 3, wrong_channel}, {"wrong range read", RANGE_WAYS, wrong_in},
    {"wrong range written", RANGE_WAYS, wrong_out}, {"wrong range of an operand", 4 * RANGE_WAYS, wrong_operand},
    {"a step does a part of its range", 3, shorter_step}, {"wrong space", 4, wrong_space},
    {"operands in another order", 3, swapped_operands}, {"an operand twice", 4, double_operand},
    {"another number of operands", 2, other_number_of_operands}, {"final or not", 1, not_final},
    {"wrong lag", 2, wrong_lag}, {"wrong owners", 3, wrong_owners}, {"wrong readers or root", 2, wrong_readers},
    {"wrong buffer read", 3, wrong_in_buffer}, {"wrong buffer written", 3, wrong_out_buffer},
    {"wrong buffer of an operand", 12, wrong_operand_buffer}, {"wrong scratch", 24, wrong_scratch},
    {"a scratch too small", 3, short_scratch}, {"wrong format", 1, wrong_format}, {"wrong layout", 8, wrong_layout},
};
enum { FAULTS = sizeof(faults) / sizeof(*faults) };
static long made[FAULTS];

/* The island of each rank; behind a colon its node. */
static const char *const topologies[] = {"0", "00", "000", "01", "0101", "0001", "012", "0012", "010212", "0011222",
                                         "0123", "0011:0011", "00011:00011", "012:001", "0123:0011", "00123:00011",
                                         "012345:001122"};
enum { TOPOLOGIES = sizeof(topologies) / sizeof(*topologies) };

/* Is it found in one of the ways to use the schedule: buffers apart, or in place where the schedule serves both? */
static bool found(const struct topo *topo, struct check_case *c, struct sched *const *scheds, char *why)
{
    bool both = c->call.kind == COLL_ALLREDUCE || c->call.kind == COLL_REDUCE ||
                ((c->call.kind == COLL_REDUCE_SCATTER_BLOCK || c->call.kind == COLL_REDUCE_SCATTER) &&
                 !c->call.in_place);
    for (int same = 0; same <= both; same++) {
        c->same = same;
        if (!check_schedules(topo, c, scheds, why))
            return true;
    }
    return false;
}

static int break_all(const struct topo *topo, struct check_case *c, struct sched **scheds, long *total)
{
    char why[CHECK_WHY];
    int missed = 0;
    if (found(topo, c, scheds, why)) {
        print_error("%s, unbroken: %s\n", coll_name(c->call.kind), why);
        return 1;
    }
    for (int rank = 0; rank < topo->ranks; rank++) {
        struct sched *good = scheds[rank];
        int places = good->n_steps > good->n_scratch ? good->n_steps : good->n_scratch;
        /* In place, rank 0's result stands where its own block of the input was; all of a scan's does. */
        bool one_buffer = c->call.in_place && ((c->call.kind == COLL_REDUCE_SCATTER_BLOCK && rank == 0) ||
                                               (coll_traits(c->call.kind) & COLL_CHAIN));
        for (int step = 0; step < places; step++) {
            for (size_t f = 0; f < FAULTS; f++) {
                if (one_buffer && (faults[f].make == wrong_in_buffer || faults[f].make == wrong_out_buffer ||
                                   faults[f].make == wrong_operand_buffer))
                    continue;
                bool of_scratch = faults[f].make == short_scratch || faults[f].make == wrong_format;
                for (int way = 0; way < faults[f].ways && (of_scratch || step < good->n_steps); way++) {
                    struct broken b = {.topo = topo, .s = clone(good), .step = step};
                    if (faults[f].make(&b, way) && (faults[f].make != wrong_peer || is_other_peer(good, &b)) &&
                        (*total)++ % STRIDE == 0) {
                        made[f]++;
                        scheds[rank] = b.s;
                        if (!found(topo, c, scheds, why) && missed++ < 5)
                            print_error("not found: %s %s%s%s over %d islands of %d ranks, rank %d, step %d (kind %d): "
                                        "%s, way %d\n", coll_name(c->call.kind), c->call.exact ? "exact" : "",
                                        c->call.in_place ? "in place" : c->call.gathered ? "gathered" : "",
                                        c->staged ? "staged" : "", topo->islands, topo->ranks, rank, step, good->steps[step % good->n_steps].kind, faults[f].name,
                                        way);
                        scheds[rank] = good;
                    }
                    sched_free(b.s);
                }
            }
        }
    }
    return missed;
}

static void every_fault(void **state)
{
    (void)state;
    static const unsigned char all_staged[MAX_RANKS] = {3, 3, 3, 3, 3, 3, 3, 3};
    long total = 0;
    int missed = 0;
    for (size_t i = 0; i < TOPOLOGIES; i++) {
        struct topo topo;
        struct sched *scheds[MAX_RANKS];
        build_topology(&topo, topologies[i]);
        for (int kind = 0; kind < COLL_BARRIER; kind++) {
            bool gathers = kind == COLL_ALLTOALL && topo.levels == 2, tells = coll_tells((enum coll_kind)kind);
            for (int variant = 0; variant < (gathers || tells ? 12 : 6); variant++) {
                bool in_place = variant % 2;
                if (in_place && (kind < COLL_ALLGATHER || kind == COLL_REDUCE_SCATTER))
                    continue;
                /* One rank alone: all its places hold the same data. */
                if (topo.ranks == 1 && variant % 4 != 0)
                    continue;
                struct check_case c = {
                    .call = {.kind = (enum coll_kind)kind, .root = topo.ranks - 1, .exact = variant / 2 % 3 == 1,
                             .in_place = in_place, .gathered = gathers && variant >= 6,
                             .straight = tells && variant >= 6},
                    .staged = variant / 2 % 3 == 2 ? all_staged : NULL, .count = CHUNKS * L, .chunk = L, .window = 2,
                    .delay = 1, .order = CHECK_NEWEST, .seed = 7};
                size_t counts[MAX_RANKS * MAX_RANKS];
                if (coll_traits((enum coll_kind)kind) & (COLL_TABLE | COLL_OWN_TABLE)) {
                    for (int b = 0; b < topo.ranks * topo.ranks; b++)   /* no two alike; the first chunk is full */
                        counts[b] = c.count - 7 * (size_t)((b / topo.ranks + b % topo.ranks) % topo.ranks);
                    c.counts = counts;
                    c.gap = 2;
                }
                assert_int_equal(check_build(&topo, &c, scheds), 0);
                missed += break_all(&topo, &c, scheds, &total);
                check_free(&topo, scheds);
            }
        }
        topo_clear(&topo);
    }
    check_end();
    for (size_t f = 0; f < FAULTS; f++)
        printf("%6ld x %s\n", made[f], faults[f].name);
    assert_int_equal(missed, 0);
    for (size_t f = 0; f < FAULTS; f++)
        assert_true(made[f] > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_fault)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
