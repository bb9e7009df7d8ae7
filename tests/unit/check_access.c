/* Symbolic checker of schedules: what can be found without running. Memory, dependencies, messages. */
#include <stdlib.h>
#include <string.h>

#include "check_inside.h"

/* A contiguous piece of memory that a step uses; v: the virtual element at its start. */
struct piece { const char *lo, *hi; size_t v; int step; uint8_t space; int32_t island; bool write; };
struct pieces { struct piece *at; size_t n, room; };

static bool is_local(const struct sched_step *s)
{
    return s->kind == STEP_LOCAL_REDUCE || s->kind == STEP_LOCAL_SPREAD;
}

static bool ref_wide(const struct sched *s, const struct sched_ref *ref)
{
    return ref->buffer == BUF_SCRATCH && s->scratch[ref->scratch].wide;
}

/* Collectives that only move blocks leave staging to the wires, where those do all the work. */
static bool wires_take_host(const struct check *k)
{
    enum coll_kind kind = k->c->call.kind;
    return kind == COLL_GATHER || kind == COLL_SCATTER || kind == COLL_GATHERV || kind == COLL_SCATTERV ||
           ((coll_traits(kind) & COLL_PAIRS) && !(coll_traits(kind) & COLL_CHAIN));
}

/* Are the elements in the buffer: in a scratch's range, or by the layout of a user's buffer? A buffer that must be
 * staged is there for copies alone. */
static bool buffer_fits(const struct check *k, int rank, const struct sched_step *step, const struct sched_ref *ref,
                        struct extent e, size_t chunk)
{
    struct sched_view view = check_view(k, rank, ref, chunk);
    bool blocks = ref->range.space == SPACE_BLOCKS;
    if (ref->buffer == BUF_SCRATCH) {
        const struct machine *m = &k->machines[rank];
        struct extent own = m->scratch[variant_of(k, chunk)][ref->scratch];
        const struct sched_range *r = &m->sched->scratch[ref->scratch].range;
        return r->space == ref->range.space && (!blocks || r->island == ref->range.island) && e.first >= own.first &&
               e.first + e.length <= own.first + own.length;
    }
    /* An input that is to be scaled is there for the copy that scales it alone. */
    if (k->c->call.scale && ref->buffer == BUF_SEND && step->out.buffer != BUF_SCRATCH)
        return false;
    int staged = ref->buffer == BUF_SEND ? CHECK_STAGE_SEND : CHECK_STAGE_RECV;
    bool wire = step->kind == STEP_SEND || step->kind == STEP_RECV;
    if (k->c->staged && (k->c->staged[rank] & staged) && step->kind != STEP_COPY && !(wire && wires_take_host(k)))
        return false;
    switch ((enum sched_layout)view.layout) {
    case LAYOUT_NONE: return false;
    case LAYOUT_VECTOR: return !blocks;
    case LAYOUT_BLOCKS: return blocks;
    case LAYOUT_BLOCK: break;
    }
    struct sched_chunk c = check_chunk(k, rank, ref->buffer, variant_of(k, chunk));
    size_t at = 0;
    for (int p = 0; p < k->topo->position_of[rank]; p++)
        at += sched_piece(&c, topo_member(k->topo, k->topo->island_of[rank], p));
    return blocks && ref->range.island == k->topo->island_of[rank] && e.first >= at &&
           e.first + e.length <= at + sched_piece(&c, rank);
}

/* Cuts a use of memory into pieces, all of which must lie inside the buffer. */
static void add_use(struct check *k, int rank, int step, const struct sched_ref *ref, struct extent e, size_t chunk,
                    bool write, struct pieces *out)
{
    struct machine *m = &k->machines[rank];
    struct sched_view view = check_view(k, rank, ref, chunk);
    if (e.length == 0 || k->failed)
        return;
    const struct value *lo = ref->buffer == BUF_SEND ? m->send : m->recv, *hi = lo;
    if (!buffer_fits(k, rank, &m->sched->steps[step], ref, e, chunk)) {
        check_fail(k, "rank %d: step %d uses elements that the buffer does not have, or a buffer that must be staged",
                   rank, step);
        return;
    }
    if (ref->buffer != BUF_SCRATCH) {
        hi = lo + m->length[ref->buffer != BUF_SEND];
    }
    for (size_t v = e.first; v < e.first + e.length;) {
        void *address;
        size_t n = sched_view_run(&view, v, e.first + e.length - v, &address);
        const char *from = address, *to = from + n * sizeof(struct value);
        if (n == 0 || (ref->buffer != BUF_SCRATCH && (from < (const char *)lo || to > (const char *)hi))) {
            check_fail(k, "rank %d: step %d leaves a user's buffer", rank, step);
            return;
        }
        if (out->n == out->room) {
            size_t room = out->room ? 2 * out->room : 64;
            struct piece *more = check_take(room * sizeof(*more));
            if (out->n)
                memcpy(more, out->at, out->n * sizeof(*more));
            out->at = more;
            out->room = room;
        }
        out->at[out->n++] = (struct piece){.lo = from, .hi = to, .v = v, .step = step, .space = ref->range.space,
                                           .island = ref->range.island, .write = write};
        v += n;
    }
}

static int piece_compare(const void *pa, const void *pb)
{
    const struct piece *a = pa, *b = pb;
    return a->lo != b->lo ? (a->lo < b->lo ? -1 : 1) : (a->step > b->step) - (a->step < b->step);
}

/* Inside one step, a result may replace an operand element by element, nothing else. */
static bool same_elements(const struct piece *a, const struct piece *b)
{
    return a->space == b->space && (a->space == SPACE_VECTOR || a->island == b->island) &&
           a->lo - a->v * sizeof(struct value) == b->lo - b->v * sizeof(struct value);
}

/* Two uses of the same memory, one a write, in two steps that nothing orders. */
static void check_conflicts(struct check *k, int rank, struct pieces *all, const uint64_t *before, size_t words)
{
    const struct sched *s = k->machines[rank].sched;
    if (all->n)
        qsort(all->at, all->n, sizeof(*all->at), piece_compare);
    for (size_t i = 0; i < all->n; i++) {
        const struct piece *a = &all->at[i];
        for (size_t j = i + 1; j < all->n && all->at[j].lo < a->hi; j++) {
            const struct piece *b = &all->at[j];
            if (!a->write && !b->write)
                continue;
            int first = a->step < b->step ? a->step : b->step, second = a->step < b->step ? b->step : a->step;
            if (first == second) {
                if (s->steps[first].kind == STEP_COPY || !same_elements(a, b))
                    check_fail(k, "rank %d: step %d writes where it still reads", rank, first);
            } else if (!(before[(size_t)second * words + (size_t)first / 64] >> (first % 64) & 1)) {
                check_fail(k, "rank %d: steps %d and %d use the same memory in no order", rank, first, second);
            }
        }
    }
}

/* What a step must be by its kind. */
static void check_step(struct check *k, int rank, int i, int variant)
{
    struct machine *m = &k->machines[rank];
    const struct sched *s = m->sched;
    const struct sched_step *p = &s->steps[i];
    struct extent in = m->uses[variant][use_in(i)], out = m->uses[variant][use_out(i)];
    int position = k->topo->position_of[rank], island = k->topo->island_of[rank];
    size_t first, length, whole;
    struct sched_chunk c = check_chunk(k, rank, BUF_RECV, variant);
    bool wide_in = ref_wide(s, &p->in), wide_out = ref_wide(s, &p->out);

    whole = sched_space_length(k->topo, p->in.range.space, p->in.range.island, &c);
    if (is_local(p)) {
        if (topo_island_size(k->topo, island) < 2)
            check_fail(k, "rank %d: step %d is local, but the island has one rank", rank, i);
        if (p->in.range.space != p->out.range.space ||
            (p->in.range.space == SPACE_BLOCKS && p->in.range.island != p->out.range.island))
            check_fail(k, "rank %d: step %d is local and in two spaces", rank, i);
        sched_owner_part(&m->topo, p, position, &c, &first, &length);
    }
    switch ((enum sched_kind)p->kind) {
    case STEP_LOCAL_REDUCE:
        if (in.first != 0 || in.length != whole || wide_in)
            check_fail(k, "rank %d: step %d does not reduce all of the space", rank, i);
        if (out.length != length || (length && out.first != first))
            check_fail(k, "rank %d: step %d: result is not the owner's part", rank, i);
        if (p->final ? wide_out : wide_out != k->c->call.exact)
            check_fail(k, "rank %d: step %d: result has the wrong format", rank, i);
        break;
    case STEP_LOCAL_SPREAD:
        if (in.length != length || (length && in.first != first) || wide_in)
            check_fail(k, "rank %d: step %d does not give the owner's part", rank, i);
        sched_reader_part(&m->topo, p, position, &c, &first, &length);
        if (out.length != length || (length && out.first != first))
            check_fail(k, "rank %d: step %d does not read what a reader gets", rank, i);
        if (wide_out)
            check_fail(k, "rank %d: step %d: result has the wrong format", rank, i);
        break;
    case STEP_REDUCE:
        for (int j = 0; j < p->n_in; j++) {
            const struct sched_ref *ref = &s->refs[p->first_in + j];
            struct extent e = m->uses[variant][use_ref(s, p->first_in + j)];
            if (e.length != out.length || (out.length && e.first != out.first) ||
                ref->range.space != p->out.range.space)
                check_fail(k, "rank %d: step %d: operand %d has another range", rank, i, j);
            if (ref_wide(s, ref) != ref_wide(s, &s->refs[p->first_in]))
                check_fail(k, "rank %d: step %d: operand %d has another format", rank, i, j);
        }
        if (p->final ? wide_out : wide_out != k->c->call.exact)
            check_fail(k, "rank %d: step %d: result has the wrong format", rank, i);
        break;
    case STEP_COPY:
        if (in.length != out.length || (in.length && in.first != out.first && same_ranges(k)) || wide_in != wide_out)
            check_fail(k, "rank %d: step %d copies between unlike ranges", rank, i);
        break;
    case STEP_SEND:
    case STEP_RECV:
        if (p->peer < 0 || p->peer >= k->topo->ranks || p->peer == rank ||
            (k->topo->island_of[p->peer] == island && !sched_pairs(&k->c->call)))
            check_fail(k, "rank %d: step %d has peer %d", rank, i, p->peer);
        if (p->channel > 8191)
            check_fail(k, "rank %d: step %d has channel %d", rank, i, p->channel);
        break;
    }
}

static bool uses_in(const struct sched_step *s) { return s->kind != STEP_RECV && s->kind != STEP_REDUCE; }
static bool uses_out(const struct sched_step *s) { return s->kind != STEP_SEND; }

/* What a step writes. A spread leaves the owner's part alone where it is in place already. */
static void add_result(struct check *k, int rank, int step, size_t chunk, struct pieces *all)
{
    struct machine *m = &k->machines[rank];
    const struct sched_step *p = &m->sched->steps[step];
    struct extent in = m->uses[variant_of(k, chunk)][use_in(step)], out = m->uses[variant_of(k, chunk)][use_out(step)];
    struct sched_view from = check_view(k, rank, &p->in, chunk), to = check_view(k, rank, &p->out, chunk);
    if (p->kind == STEP_LOCAL_SPREAD && in.length && out.length && buffer_fits(k, rank, p, &p->in, in, chunk) &&
        buffer_fits(k, rank, p, &p->out, out, chunk)) {
        size_t lo = in.first > out.first ? in.first : out.first, in_end = in.first + in.length;
        size_t hi = in_end < out.first + out.length ? in_end : out.first + out.length;
        void *a, *b;
        if (lo < hi) {
            sched_view_run(&from, lo, 1, &a);
            sched_view_run(&to, lo, 1, &b);
            if (a == b) {
                add_use(k, rank, step, &p->out, (struct extent){out.first, lo - out.first}, chunk, true, all);
                add_use(k, rank, step, &p->out, (struct extent){hi, out.first + out.length - hi}, chunk, true, all);
                return;
            }
        }
    }
    add_use(k, rank, step, &p->out, out, chunk, true, all);
}

static void check_rank(struct check *k, int rank, const uint64_t *before, size_t words, size_t chunk)
{
    struct machine *m = &k->machines[rank];
    const struct sched *s = m->sched;
    int variant = variant_of(k, chunk);
    struct extent *uses = m->uses[variant];
    struct pieces all = {0};
    for (int i = 0; i < s->n_steps && !k->failed; i++) {
        const struct sched_step *p = &s->steps[i];
        check_step(k, rank, i, variant);
        if (uses_in(p))
            add_use(k, rank, i, &p->in, uses[use_in(i)], chunk, false, &all);
        if (uses_out(p))
            add_result(k, rank, i, chunk, &all);
        for (int j = p->first_in; p->kind == STEP_REDUCE && j < p->first_in + p->n_in; j++)
            add_use(k, rank, i, &s->refs[j], uses[use_ref(s, j)], chunk, false, &all);
    }
    if (!k->failed)
        check_conflicts(k, rank, &all, before, words);
}

void check_static(struct check *k)
{
    for (int r = 0; r < k->topo->ranks && !k->failed; r++) {
        const struct sched *s = k->machines[r].sched;
        size_t words = ((size_t)s->n_steps + 63) / 64;
        uint64_t *before = check_take((size_t)s->n_steps * words * sizeof(*before));
        for (int i = 0; i < s->n_steps; i++) {
            uint64_t *mine = before + (size_t)i * words;
            for (int d = 0; d < 3; d++) {
                for (int j = s->steps[i].deps[d].first; j < s->steps[i].deps[d].last; j++) {
                    for (size_t w = 0; w <= (size_t)j / 64; w++)
                        mine[w] |= before[(size_t)j * words + w];
                    mine[j / 64] |= (uint64_t)1 << (j % 64);
                }
            }
        }
        for (size_t c = 0; c < k->chunks && !k->failed; c++)
            if (k->c->counts || c == 0 || c + 1 == k->chunks)
                check_rank(k, r, before, words, c);
    }
}

/* A message's end: key is (from, to, channel). */
struct end { uint64_t key; int rank, step; };

static int end_compare(const void *pa, const void *pb)
{
    const struct end *a = pa, *b = pb;
    return (a->key > b->key) - (a->key < b->key);
}

void check_messages(struct check *k)
{
    size_t n[2] = {0, 0};
    for (int pass = 0; pass < 2; pass++) {
        for (int r = 0; r < k->topo->ranks; r++)
            for (int i = 0; i < k->machines[r].sched->n_steps; i++)
                n[pass] += k->machines[r].sched->steps[i].kind == (pass ? STEP_RECV : STEP_SEND);
    }
    if (n[0] != n[1]) {
        check_fail(k, "%zu sends, but %zu receives", n[0], n[1]);
        return;
    }
    struct end *ends[2] = {check_take((n[0] + 1) * sizeof(struct end)), check_take((n[1] + 1) * sizeof(struct end))};
    size_t filled[2] = {0, 0};
    for (int r = 0; r < k->topo->ranks; r++) {
        struct machine *m = &k->machines[r];
        m->partner = check_take((size_t)m->sched->n_steps * sizeof(*m->partner));
        for (int i = 0; i < m->sched->n_steps; i++) {
            const struct sched_step *s = &m->sched->steps[i];
            if (s->kind != STEP_SEND && s->kind != STEP_RECV)
                continue;
            int recv = s->kind == STEP_RECV;
            uint64_t from = (uint64_t)(recv ? s->peer : r), to = (uint64_t)(recv ? r : s->peer);
            ends[recv][filled[recv]++] = (struct end){.key = from << 40 | to << 16 | s->channel, .rank = r, .step = i};
        }
    }
    qsort(ends[0], n[0], sizeof(struct end), end_compare);
    qsort(ends[1], n[1], sizeof(struct end), end_compare);
    for (size_t i = 0; i < n[0] && !k->failed; i++) {
        const struct end *a = &ends[0][i], *b = &ends[1][i];
        if (a->key != b->key) {
            check_fail(k, "rank %d: step %d (or rank %d: step %d) is a message without a partner", a->rank, a->step,
                       b->rank, b->step);
            return;
        }
        if (i > 0 && a[-1].key == a->key) {
            check_fail(k, "rank %d: steps %d and %d are two messages of one channel", a->rank, a[-1].step, a->step);
            return;
        }
        struct machine *from = &k->machines[a->rank], *to = &k->machines[b->rank];
        const struct sched_ref *in = &from->sched->steps[a->step].in, *out = &to->sched->steps[b->step].out;
        from->partner[a->step] = (struct partner){b->rank, b->step};
        to->partner[b->step] = (struct partner){a->rank, a->step};
        for (int v = 0; v < k->variants; v++) {
            struct extent x = from->uses[v][use_in(a->step)], y = to->uses[v][use_out(b->step)];
            if (x.length != y.length ||
                (same_ranges(k) && ((x.length && x.first != y.first) || in->range.space != out->range.space ||
                                    (in->range.space == SPACE_BLOCKS && in->range.island != out->range.island))))
                check_fail(k, "rank %d: step %d sends another range than rank %d: step %d receives", a->rank, a->step,
                           b->rank, b->step);
        }
        if (ref_wide(from->sched, in) != ref_wide(to->sched, out))
            check_fail(k, "rank %d: step %d sends another format than rank %d: step %d receives", a->rank, a->step,
                       b->rank, b->step);
    }
}
