/* Symbolic checker of schedules: runs all ranks at once, completing steps in the order that the case asks for. */
#include <string.h>

#include "check_inside.h"

/* What may happen next. A message moves when both ends have begun (no end completes before), a local operation when all
 * ranks of the island have begun it; ends of both are then told apart, in any order. */
enum what { STEP_RUNS, MESSAGE_MOVES, ISLAND_RUNS, STEP_ENDS };
struct event { enum what what; int rank, step; size_t chunk; };   /* ISLAND_RUNS: rank: island, chunk: number */

struct island_state { int *joined; };   /* [local step number] ranks that began it */

struct run {
    struct check *k;
    struct event *events;
    size_t n, first, room;
    struct island_state *islands;
    uint64_t random;
};

static void add_event(struct run *run, struct event e)
{
    if (run->first + run->n == run->room) {
        size_t room = run->n * 2 + 64;
        struct event *more = check_take(room * sizeof(*more));
        if (run->n)
            memcpy(more, run->events + run->first, run->n * sizeof(*more));
        run->events = more;
        run->first = 0;
        run->room = room;
    }
    run->events[run->first + run->n++] = e;
}

static struct event take_event(struct run *run)
{
    struct event *at = run->events + run->first;
    size_t i = 0;
    switch (run->k->c->order) {
    case CHECK_NEWEST:
        i = run->n - 1;
        break;
    case CHECK_RANDOM:
        run->random = run->random * 6364136223846793005u + 1442695040888963407u;
        i = (size_t)(run->random >> 33) % run->n;
        break;
    case CHECK_LOW_RANKS:
    case CHECK_HIGH_RANKS:
        for (size_t j = 1; j < run->n && j < 64; j++)   /* not all: there may be thousands */
            if (run->k->c->order == CHECK_LOW_RANKS ? at[j].rank < at[i].rank : at[j].rank > at[i].rank)
                i = j;
        break;
    default:
        break;
    }
    struct event e = at[i];
    if (i == 0)
        run->first++;
    else
        at[i] = at[run->n - 1];
    run->n--;
    return e;
}

static size_t slot_of(const struct check *k, size_t chunk) { return chunk % (size_t)k->window; }

static int *wait_of(const struct check *k, int rank, size_t chunk, int step)
{
    const struct machine *m = &k->machines[rank];
    return &m->waits[slot_of(k, chunk) * (size_t)m->sched->n_steps + (size_t)step];
}

static bool in_flight(const struct check *k, int rank, size_t chunk, int step)
{
    const struct machine *m = &k->machines[rank];
    return chunk < m->started && m->slot_chunk[slot_of(k, chunk)] == chunk &&
           *wait_of(k, rank, chunk, step) == STEP_STARTED;
}

/* Elements v .. v+n-1 of a ref stand at `at` in one piece. */
static size_t piece(const struct sched_view *view, size_t v, size_t length, struct value **at)
{
    void *address;
    size_t n = sched_view_run(view, v, length, &address);
    *at = address;
    return n;
}

/* Adds an operand; true if it may be one. */
static bool add(struct value *sum, const struct value *v, bool first, bool wide)
{
    sum->set |= v->set;
    sum->sum += v->sum;
    sum->count += v->count;
    sum->order = first ? v->order : check_fold(sum->order, v->order);
    return v->count > 0 && !v->final && v->wide == wide;
}

static bool is_wide(const struct sched *s, const struct sched_ref *ref)
{
    return ref->buffer == BUF_SCRATCH && s->scratch[ref->scratch].wide;
}

/* Reduces n operands of elements v .. to one place. With several operands the first is folded into nothing. */
static bool reduce_piece(struct value *const *at, int n, struct value *to, size_t length, bool wide_in, bool wide_out,
                         bool final)
{
    bool good = true;
    for (size_t e = 0; e < length; e++) {
        struct value sum = {0};
        for (int i = 0; i < n; i++)
            good &= add(&sum, &at[i][e], n == 1, wide_in);
        sum.wide = wide_out;
        sum.final = final;
        to[e] = sum;
    }
    return good;
}

static void run_reduce(struct check *k, int rank, size_t chunk, int step)
{
    struct machine *m = &k->machines[rank];
    const struct sched *s = m->sched;
    const struct sched_step *p = &s->steps[step];
    struct extent e = m->uses[variant_of(k, chunk)][use_out(step)];
    struct sched_view out = check_view(k, rank, &p->out, chunk);
    struct value *to, *at[256];
    if (p->n_in > 256) {
        check_fail(k, "rank %d: step %d has more operands than the checker takes", rank, step);
        return;
    }
    for (size_t v = e.first, end = e.first + e.length; v < end;) {
        size_t n = piece(&out, v, end - v, &to);
        for (int i = 0; i < p->n_in; i++) {
            struct sched_view in = check_view(k, rank, &s->refs[p->first_in + i], chunk);
            n = piece(&in, v, n, &at[i]);
        }
        if (!reduce_piece(at, p->n_in, to, n, is_wide(s, &s->refs[p->first_in]), is_wide(s, &p->out), p->final)) {
            check_fail(k, "rank %d: step %d of chunk %zu reduces what is undefined, final, or of another format", rank,
                       step, chunk);
            return;
        }
        v += n;
    }
}

/* Elements first .. of one rank's `in` to another's `out`, where they are elements `at` .. */
static void move(struct check *k, int from, int in_step, int to, int out_step, size_t chunk, struct extent e, size_t at)
{
    const struct sched *fs = k->machines[from].sched, *ts = k->machines[to].sched;
    struct sched_view in = check_view(k, from, &fs->steps[in_step].in, chunk);
    struct sched_view out = check_view(k, to, &ts->steps[out_step].out, chunk);
    for (size_t v = e.first, end = e.first + e.length; v < end;) {
        struct value *source, *target;
        size_t n = piece(&in, v, end - v, &source);
        n = piece(&out, at + (v - e.first), n, &target);
        for (size_t i = 0; i < n; i++) {
            if (source[i].count == 0) {
                check_fail(k, "rank %d: step %d of chunk %zu moves what is undefined", from, in_step, chunk);
                return;
            }
        }
        if (source != target)
            memmove(target, source, n * sizeof(*target));
        v += n;
    }
}

static void run_island(struct check *k, int island, size_t number)
{
    const struct topo *t = k->topo;
    int size = topo_island_size(t, island), head = topo_member(t, island, 0);
    const struct machine *h = &k->machines[head];
    size_t chunk = h->op_chunk[number];
    const struct sched_step *first = &h->sched->steps[h->op_step[number]];
    for (int p = 1; p < size; p++) {
        const struct machine *m = &k->machines[topo_member(t, island, p)];
        const struct sched_step *s = &m->sched->steps[m->op_step[number]];
        if (m->op_chunk[number] != chunk || s->kind != first->kind || s->owners != first->owners ||
            s->readers != first->readers || s->root != first->root || s->final != first->final ||
            s->lag != first->lag || s->in.range.space != first->in.range.space ||
            s->in.range.island != first->in.range.island ||
            is_wide(m->sched, &s->out) != is_wide(h->sched, &first->out)) {
            check_fail(k, "ranks %d and %d of one island differ in their local operation %zu", head,
                       topo_member(t, island, p), number);
            return;
        }
    }
    struct sched_chunk c = check_chunk(k, head, BUF_RECV, variant_of(k, chunk));
    struct sched_view views[256];
    for (int p = 0; p < size && first->kind == STEP_LOCAL_REDUCE; p++) {
        int r = topo_member(t, island, p);
        const struct machine *m = &k->machines[r];
        views[p] = check_view(k, r, &m->sched->steps[m->op_step[number]].in, chunk);
    }
    for (int p = 0; p < size && !k->failed; p++) {
        int owner = topo_member(t, island, p), step = k->machines[owner].op_step[number];
        struct machine *m = &k->machines[owner];
        const struct sched_step *s = &m->sched->steps[step];
        size_t v, length;
        sched_owner_part(&m->topo, s, p, &c, &v, &length);
        if (first->kind == STEP_LOCAL_SPREAD) {
            for (int q = 0; q < size && length; q++) {
                int reader = topo_member(t, island, q);
                size_t lo, hi;
                sched_reader_part(&m->topo, s, q, &c, &lo, &hi);
                hi = lo + hi < v + length ? lo + hi : v + length;
                lo = lo > v ? lo : v;
                if (lo < hi)
                    move(k, owner, step, reader, k->machines[reader].op_step[number], chunk,
                         (struct extent){lo, hi - lo}, lo);
            }
            continue;
        }
        struct sched_view out = check_view(k, owner, &s->out, chunk);
        for (size_t end = v + length; v < end;) {
            struct value *to, *at[256];
            size_t n = piece(&out, v, end - v, &to);
            for (int q = 0; q < size; q++)
                n = piece(&views[q], v, n, &at[q]);
            if (!reduce_piece(at, size, to, n, false, is_wide(m->sched, &s->out), s->final)) {
                check_fail(k, "island %d: chunk %zu reduces what is undefined or reduced", island, chunk);
                return;
            }
            v += n;
        }
    }
}

/* The next local step in the order of this rank. */
static void next_local(struct check *k, struct machine *m)
{
    if (!sched_cursor_next(m->sched, k->chunks, k->c->delay, &m->cursor, &m->local_chunk, &m->local_step))
        m->local_step = -1;
}

/* Begins local steps as long as the next one in order is ready. */
static void issue_local(struct run *run, int rank)
{
    struct check *k = run->k;
    struct machine *m = &k->machines[rank];
    int island = k->topo->island_of[rank];
    while (m->local_step >= 0 && m->local_chunk < m->started &&
           m->slot_chunk[slot_of(k, m->local_chunk)] == m->local_chunk &&
           *wait_of(k, rank, m->local_chunk, m->local_step) == 0) {
        *wait_of(k, rank, m->local_chunk, m->local_step) = STEP_STARTED;
        size_t number = m->issued++;
        m->op_chunk[number] = m->local_chunk;
        m->op_step[number] = m->local_step;
        if (++run->islands[island].joined[number] == topo_island_size(k->topo, island))
            add_event(run, (struct event){.what = ISLAND_RUNS, .rank = island, .chunk = number});
        next_local(k, m);
    }
}

/* A step whose dependencies are done. */
static void begin_step(struct run *run, int rank, size_t chunk, int step)
{
    struct check *k = run->k;
    struct machine *m = &k->machines[rank];
    const struct sched_step *p = &m->sched->steps[step];
    if (p->kind == STEP_LOCAL_REDUCE || p->kind == STEP_LOCAL_SPREAD) {
        issue_local(run, rank);
        return;
    }
    *wait_of(k, rank, chunk, step) = STEP_STARTED;
    struct event e = {.what = STEP_RUNS, .rank = rank, .step = step, .chunk = chunk};
    if (p->kind == STEP_SEND || p->kind == STEP_RECV) {
        size_t length = m->uses[variant_of(k, chunk)][p->kind == STEP_SEND ? use_in(step) : use_out(step)].length;
        struct partner other = m->partner[step];
        e.what = STEP_ENDS;
        if (length) {
            if (!in_flight(k, other.rank, chunk, other.step))
                return;
            e.what = MESSAGE_MOVES;
            if (p->kind == STEP_RECV) {
                e.rank = other.rank;
                e.step = other.step;
            }
        }
    }
    add_event(run, e);
}

/* Starts the chunks for which there is a place in the window. */
static void start_chunks(struct run *run, int rank)
{
    struct check *k = run->k;
    struct machine *m = &k->machines[rank];
    while (m->started < k->chunks && m->left[slot_of(k, m->started)] == 0) {
        size_t chunk = m->started, slot = slot_of(k, chunk);
        m->slot_chunk[slot] = chunk;
        m->left[slot] = m->sched->n_steps;
        m->started++;
        memset(m->slots + slot * m->slot_elements, 0, m->slot_elements * sizeof(struct value));
        if (m->sched->n_steps == 0)
            m->completed++;
        for (int i = 0; i < m->sched->n_steps; i++) {
            int waits = 0;
            for (int d = 0; d < 3; d++)
                waits += m->sched->steps[i].deps[d].last - m->sched->steps[i].deps[d].first;
            *wait_of(k, rank, chunk, i) = waits;
        }
        for (int i = 0; i < m->sched->n_steps; i++)
            if (*wait_of(k, rank, chunk, i) == 0)
                begin_step(run, rank, chunk, i);
    }
}

static void end_step(struct run *run, int rank, size_t chunk, int step)
{
    struct check *k = run->k;
    struct machine *m = &k->machines[rank];
    *wait_of(k, rank, chunk, step) = STEP_DONE;
    for (int i = m->follow_first[step]; i < m->follow_first[step + 1]; i++) {
        if (--*wait_of(k, rank, chunk, m->follow[i]) == 0)
            begin_step(run, rank, chunk, m->follow[i]);
    }
    if (--m->left[slot_of(k, chunk)] == 0) {
        m->completed++;
        start_chunks(run, rank);
    }
}

static void happen(struct run *run, struct event e)
{
    struct check *k = run->k;
    struct machine *m = &k->machines[e.rank];   /* not of ISLAND_RUNS */
    const struct extent *uses = e.what == ISLAND_RUNS ? NULL : m->uses[variant_of(k, e.chunk)];
    switch (e.what) {
    case STEP_RUNS:
        if (m->sched->steps[e.step].kind == STEP_COPY)
            move(k, e.rank, e.step, e.rank, e.step, e.chunk, uses[use_in(e.step)], uses[use_out(e.step)].first);
        else
            run_reduce(k, e.rank, e.chunk, e.step);
        e.what = STEP_ENDS;
        add_event(run, e);
        break;
    case MESSAGE_MOVES: {
        struct partner to = m->partner[e.step];
        move(k, e.rank, e.step, to.rank, to.step, e.chunk, uses[use_in(e.step)],
             k->machines[to.rank].uses[variant_of(k, e.chunk)][use_out(to.step)].first);
        e.what = STEP_ENDS;
        add_event(run, e);
        add_event(run, (struct event){.what = STEP_ENDS, .rank = to.rank, .step = to.step, .chunk = e.chunk});
        break;
    }
    case ISLAND_RUNS:
        run_island(k, e.rank, e.chunk);
        for (int p = 0; p < topo_island_size(k->topo, e.rank); p++) {
            int rank = topo_member(k->topo, e.rank, p);
            add_event(run, (struct event){.what = STEP_ENDS, .rank = rank,
                                          .step = k->machines[rank].op_step[e.chunk],
                                          .chunk = k->machines[rank].op_chunk[e.chunk]});
        }
        break;
    case STEP_ENDS:
        end_step(run, e.rank, e.chunk, e.step);
        break;
    }
}

/* Turns the dependencies of one rank's steps round. */
static void list_followers(struct machine *m)
{
    const struct sched *s = m->sched;
    int *first = check_take(((size_t)s->n_steps + 2) * sizeof(int));
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < s->n_steps; i++) {
            for (int d = 0; d < 3; d++) {
                for (int j = s->steps[i].deps[d].first; j < s->steps[i].deps[d].last; j++) {
                    /* first[j + 1]: where to write next; it ends up as the place where the followers of j + 1 begin. */
                    if (pass == 0)
                        first[j + 2]++;
                    else
                        m->follow[first[j + 1]++] = i;
                }
            }
        }
        for (int j = 0; pass == 0 && j < s->n_steps; j++)
            first[j + 2] += first[j + 1];
        if (pass == 0)
            m->follow = check_take((size_t)first[s->n_steps + 1] * sizeof(int));
    }
    m->follow_first = first;
}

void check_execute(struct check *k)
{
    struct run run = {.k = k, .random = check_mix(k->c->seed)};
    size_t window = (size_t)k->window;
    run.islands = check_take((size_t)k->topo->islands * sizeof(*run.islands));
    for (int r = 0; r < k->topo->ranks; r++) {
        struct machine *m = &k->machines[r];
        size_t steps = (size_t)m->sched->n_steps, locals = 0;
        for (int i = 0; i < m->sched->n_steps; i++)
            locals += m->sched->steps[i].kind == STEP_LOCAL_REDUCE || m->sched->steps[i].kind == STEP_LOCAL_SPREAD;
        list_followers(m);
        m->slot_chunk = check_take(window * sizeof(*m->slot_chunk));
        m->left = check_take(window * sizeof(*m->left));
        m->waits = check_take(window * steps * sizeof(*m->waits));
        m->op_chunk = check_take(locals * k->chunks * sizeof(*m->op_chunk));
        m->op_step = check_take(locals * k->chunks * sizeof(*m->op_step));
        struct island_state *island = &run.islands[k->topo->island_of[r]];
        if (k->topo->position_of[r] == 0)
            island->joined = check_take((locals * k->chunks + 1) * sizeof(*island->joined));
        if (topo_island_size(k->topo, k->topo->island_of[r]) > 256 || k->c->delay < 0) {
            check_fail(k, "the checker takes islands of at most 256 ranks");
            return;
        }
        /* All members must have as many local steps, or else their operations cannot be numbered alike. */
        int head = topo_member(k->topo, k->topo->island_of[r], 0);
        const struct sched *h = k->machines[head].sched;
        size_t others = 0;
        for (int i = 0; i < h->n_steps; i++)
            others += h->steps[i].kind == STEP_LOCAL_REDUCE || h->steps[i].kind == STEP_LOCAL_SPREAD;
        if (others != locals) {
            check_fail(k, "ranks %d and %d of one island have %zu and %zu local steps", head, r, others, locals);
            return;
        }
    }
    for (int r = 0; r < k->topo->ranks; r++)
        next_local(k, &k->machines[r]);
    for (int r = 0; r < k->topo->ranks; r++)
        start_chunks(&run, r);
    while (run.n && !k->failed)
        happen(&run, take_event(&run));

    for (int r = 0; r < k->topo->ranks; r++) {
        struct machine *m = &k->machines[r];
        if (m->completed == k->chunks)
            continue;
        size_t chunk = m->started - 1;
        for (size_t s = 0; s < window; s++)
            if (m->left[s] > 0 && m->slot_chunk[s] < chunk)
                chunk = m->slot_chunk[s];
        int step = 0;
        while (step + 1 < m->sched->n_steps && *wait_of(k, r, chunk, step) == STEP_DONE)
            step++;
        check_fail(k, "deadlock: rank %d waits in chunk %zu for step %d", r, chunk, step);
    }
}
