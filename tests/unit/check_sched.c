/* Symbolic checker of schedules: the memory of all ranks, what should be in it at the end, the order of the checks. */
#include "check_inside.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Memory for one check, kept for the next one: checks come by the hundred thousand. */
static struct block { struct block *next; size_t used, size; _Alignas(32) char data[]; } *blocks;

void *check_take(size_t bytes)
{
    bytes = (bytes + 31) / 32 * 32;
    struct block *b = blocks;
    while (b && b->size - b->used < bytes)
        b = b->next;
    if (!b) {
        size_t size = bytes > (1u << 20) ? bytes : 1u << 20;
        b = aligned_alloc(32, (sizeof(*b) + size + 31) / 32 * 32);
        if (!b)
            abort();
        *b = (struct block){.next = blocks, .size = size};
        blocks = b;
    }
    void *p = b->data + b->used;
    b->used += bytes;
    return memset(p, 0, bytes);
}

static void take_back(void)
{
    for (struct block *b = blocks; b; b = b->next)
        b->used = 0;
}

void check_end(void)
{
    while (blocks) {
        struct block *next = blocks->next;
        free(blocks);
        blocks = next;
    }
}

void check_fail(struct check *k, const char *format, ...)
{
    if (k->failed)
        return;
    k->failed = true;
    va_list args;
    va_start(args, format);
    vsnprintf(k->why, CHECK_WHY, format, args);
    va_end(args);
}

uint64_t check_mix(uint64_t x)
{
    x ^= x >> 31;
    x *= 0x9e3779b97f4a7c15u;
    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9u;
    return x ^ x >> 32;
}

uint64_t check_fold(uint64_t order, uint64_t next)
{
    return check_mix(order * 31 + 0x51ed + next);
}

struct value check_leaf(const struct check *k, int rank, size_t element)
{
    uint64_t r = (uint64_t)rank + 1;
    return (struct value){.set = k->topo->ranks <= 64 ? (uint64_t)1 << rank : 0,
                          .sum = check_mix(k->c->seed + r * 0x100000001b3u + element * 0x9e3779b97f4a7c15u),
                          .order = r * 0xd6e8feb86659fd93u, .count = 1};
}

int check_build(const struct topo *topo, const struct check_case *c, struct sched **scheds)
{
    memset(scheds, 0, (size_t)topo->ranks * sizeof(*scheds));
    for (int r = 0; r < topo->ranks; r++) {
        struct topo t = *topo;
        struct sched_call call = c->call;
        t.rank = r;
        call.stage_send = c->staged && (c->staged[r] & CHECK_STAGE_SEND);
        call.stage_recv = c->staged && (c->staged[r] & CHECK_STAGE_RECV);
        int code = sched_build(&t, &call, &scheds[r]);
        if (code) {
            check_free(topo, scheds);
            return code;
        }
    }
    return 0;
}

void check_free(const struct topo *topo, struct sched **scheds)
{
    for (int r = 0; r < topo->ranks; r++) {
        sched_free(scheds[r]);
        scheds[r] = NULL;
    }
}

struct sched_chunk check_chunk(const struct check *k, int rank, uint8_t buffer, int variant)
{
    return (struct sched_chunk){.first = k->c->counts ? (size_t)variant * k->c->chunk : 0, .length = k->L[variant],
                                .counts = k->machines[rank].counts[buffer != BUF_SEND]};
}

size_t check_block_length(const struct check *k, int rank, int side, int block)
{
    const size_t *counts = k->machines[rank].counts[side];
    return counts ? counts[block] : k->c->count;
}

size_t check_block_at(const struct check *k, int rank, int side, int block)
{
    const struct machine *m = &k->machines[rank];
    if (m->displs[side])
        return m->displs[side][block];
    size_t at = 0;
    for (int r = 0; r < block; r++)
        at += check_block_length(k, rank, side, r);
    return at;
}

struct sched_view check_view(const struct check *k, int rank, const struct sched_ref *ref, size_t chunk)
{
    const struct machine *m = &k->machines[rank];
    int variant = variant_of(k, chunk);
    struct sched_view view = {.element = sizeof(struct value), .layout = LAYOUT_NONE, .L = k->L[variant],
                              .count = k->c->count, .chunk_first = chunk * k->c->chunk};
    if (ref->buffer == BUF_SCRATCH) {
        view.base = (char *)(m->slots + chunk % (size_t)k->window * m->slot_elements + m->scratch_at[ref->scratch]);
        view.first = m->scratch[variant][ref->scratch].first;
        return view;
    }
    view.base = (char *)(ref->buffer == BUF_SEND ? m->send : m->recv);
    view.layout = ref->buffer == BUF_SEND ? m->sched->send_layout : m->sched->recv_layout;
    if (ref->range.space == SPACE_BLOCKS)
        view.ranks = k->topo->members + k->topo->island_first[ref->range.island];
    view.counts = m->counts[ref->buffer != BUF_SEND];
    view.displs = m->displs[ref->buffer != BUF_SEND];
    return view;
}

static struct value *allocate(struct machine *m, int which, size_t elements)
{
    m->elements[which] = elements;
    return m->memory[which] = check_take((elements + 1) * sizeof(struct value));
}

static void set_input(struct machine *m, struct value *at, size_t elements)
{
    m->input = at;
    m->inputs = elements;
}

/* Displacements: gaps, and for some seeds the blocks in reverse order. *end: where the last ends. */
static const size_t *displace(const struct check *k, const size_t *counts, size_t *end)
{
    int n = k->topo->ranks;
    size_t *displs = check_take((size_t)n * sizeof(*displs)), at = 0;
    for (int i = 0; i < n; i++) {
        int r = k->c->seed % 2 ? i : n - 1 - i;
        displs[r] = at;
        at += counts[r] + k->c->gap;
    }
    *end = at;
    return displs;
}

/* The tables of a rank. *send, *recv: elements of buffers that have all blocks. */
static void make_tables(struct check *k, int rank, size_t *send, size_t *recv)
{
    struct machine *m = &k->machines[rank];
    enum coll_kind kind = k->c->call.kind;
    size_t n = (size_t)k->topo->ranks;
    *send = *recv = k->c->count * n;
    if (!k->c->counts)
        return;
    m->counts[0] = m->counts[1] = k->c->counts;
    if (kind == COLL_ALLTOALLV) {
        size_t *from = check_take(n * sizeof(size_t));
        for (size_t r = 0; r < n; r++)
            from[r] = k->c->counts[r * n + (size_t)rank];
        m->counts[0] = k->c->counts + (size_t)rank * n;
        m->counts[1] = from;
    }
    *send = check_block_at(k, rank, 0, (int)n);
    *recv = check_block_at(k, rank, 1, (int)n);
    if (kind == COLL_SCATTERV || kind == COLL_ALLTOALLV)
        m->displs[0] = displace(k, m->counts[0], send);
    if (kind == COLL_GATHERV || kind == COLL_ALLGATHERV || kind == COLL_ALLTOALLV)
        m->displs[1] = displace(k, m->counts[1], recv);
}

/* The user's buffers of a rank, as the collective defines them, and not as the schedule says. */
static void make_buffers(struct check *k, int rank)
{
    struct machine *m = &k->machines[rank];
    const struct sched_call *call = &k->c->call;
    size_t n = k->c->count, all_send, all_recv, own;
    enum sched_layout send = LAYOUT_NONE, recv = LAYOUT_NONE;
    bool root = rank == call->root, placed = call->in_place;
    make_tables(k, rank, &all_send, &all_recv);
    own = check_block_length(k, rank, 0, rank);
    switch (call->kind) {
    case COLL_ALLREDUCE:
    case COLL_REDUCE:
    case COLL_SCAN:
    case COLL_EXSCAN:
        send = LAYOUT_VECTOR;
        m->send = allocate(m, 0, n);
        set_input(m, m->send, n);
        if (call->kind == COLL_REDUCE && !root)
            break;
        recv = LAYOUT_VECTOR;
        m->recv = k->c->same || placed ? m->send : allocate(m, 1, n);
        break;
    case COLL_BCAST:
        recv = LAYOUT_VECTOR;
        m->recv = allocate(m, 1, n);
        if (root)
            set_input(m, m->recv, n);
        break;
    case COLL_ALLGATHER:
    case COLL_ALLGATHERV:
    case COLL_GATHER:
    case COLL_GATHERV:
        if (call->kind == COLL_ALLGATHER || call->kind == COLL_ALLGATHERV || root) {
            recv = LAYOUT_BLOCKS;
            m->recv = allocate(m, 1, all_recv);
        }
        if (placed && m->recv) {
            set_input(m, m->recv + check_block_at(k, rank, 1, rank), own);
        } else {
            send = LAYOUT_BLOCK;
            m->send = allocate(m, 0, own);
            set_input(m, m->send, own);
        }
        break;
    case COLL_SCATTER:
    case COLL_SCATTERV:
        if (root) {
            send = LAYOUT_BLOCKS;
            m->send = allocate(m, 0, all_send);
            set_input(m, m->send, all_send);
        }
        if (!root || !placed) {
            recv = LAYOUT_BLOCK;
            m->recv = allocate(m, 1, check_block_length(k, rank, 1, rank));
        }
        break;
    case COLL_ALLTOALL:
    case COLL_ALLTOALLV:
        recv = LAYOUT_BLOCKS;
        m->recv = allocate(m, 1, all_recv);
        if (placed) {
            set_input(m, m->recv, all_recv);
        } else {
            send = LAYOUT_BLOCKS;
            m->send = allocate(m, 0, all_send);
            set_input(m, m->send, all_send);
        }
        break;
    case COLL_REDUCE_SCATTER_BLOCK:
    case COLL_REDUCE_SCATTER:
        send = LAYOUT_BLOCKS;
        recv = LAYOUT_BLOCK;
        m->send = allocate(m, 0, all_send);
        set_input(m, m->send, all_send);
        m->recv = placed ? m->send : k->c->same ? m->send + check_block_at(k, rank, 0, rank) : allocate(m, 1, own);
        m->length[1] = own;
        break;
    default:
        check_fail(k, "no such collective");
        return;
    }
    m->length[0] = m->send ? m->elements[0] : 0;
    if (m->recv && !m->length[1])
        m->length[1] = m->recv == m->memory[0] ? m->elements[0] : m->elements[1];
    if (m->sched->kind != call->kind || m->sched->send_layout != send || m->sched->recv_layout != recv)
        check_fail(k, "rank %d: wrong kind or layouts %d, %d", rank, m->sched->send_layout, m->sched->recv_layout);
}

/* What the ranks contribute. Elements are numbered as they stand in the rank's input. */
static void fill_buffers(struct check *k)
{
    for (int r = 0; r < k->topo->ranks; r++) {
        struct machine *m = &k->machines[r];
        for (size_t e = 0; e < m->inputs; e++)
            m->input[e] = check_leaf(k, r, e);
        for (int i = 0; i < 2; i++) {
            m->start[i] = check_take((m->elements[i] + 1) * sizeof(struct value));
            if (m->elements[i])
                memcpy(m->start[i], m->memory[i], m->elements[i] * sizeof(struct value));
        }
    }
}

/* Adds an island's contributions to `all`; returns the order of its partial result. */
static uint64_t reduced_island(const struct check *k, int island, size_t e, struct value *all)
{
    uint64_t order = 0;
    int size = topo_island_size(k->topo, island);
    for (int p = 0; p < size; p++) {
        struct value v = check_leaf(k, topo_member(k->topo, island, p), e);
        all->set |= v.set;
        all->sum += v.sum;
        all->count++;
        order = size == 1 ? v.order : check_fold(order, v.order);
    }
    return order;
}

/* The reduction of element `e` by the rule: islands in order, in each of them ranks in order; with two levels nodes in
 * order, in each of them islands in order. */
static struct value reduced(const struct check *k, size_t e)
{
    const struct topo *t = k->topo;
    struct value all = {.final = true};
    if (check_by_nodes(k)) {
        for (int m = 0; m < t->nodes; m++) {
            uint64_t order = 0;
            int islands = topo_node_islands(t, m);
            for (int i = 0; i < islands; i++) {
                uint64_t partial = reduced_island(k, topo_mate(t, m, i), e, &all);
                order = islands == 1 ? partial : check_fold(order, partial);
            }
            all.order = check_fold(all.order, order);
        }
        return all;
    }
    for (int i = 0; i < t->islands; i++) {
        uint64_t order = reduced_island(k, i, e, &all);
        all.order = t->islands == 1 ? order : check_fold(all.order, order);
    }
    return all;
}

static bool equal(const struct value *a, const struct value *b)
{
    return a->set == b->set && a->sum == b->sum && a->order == b->order && a->count == b->count &&
           a->wide == b->wide && a->final == b->final;
}

static void expect(struct check *k, int rank, const char *what, size_t e, const struct value *is, struct value should)
{
    if (!equal(is, &should))
        check_fail(k, "rank %d: %s element %zu is wrong: %u contributions%s%s%s%s, should be %u", rank, what, e,
                   is->count, is->sum == should.sum && is->set == should.set ? "" : ", not the right ones",
                   is->order == should.order ? "" : ", in another order",
                   is->final == should.final ? "" : is->final ? ", final" : ", not final", is->wide ? ", wide" : "",
                   should.count);
}

/* The reduction of element `e` over ranks 0 .. last, in rank order. */
static struct value prefix(const struct check *k, int last, size_t e)
{
    struct value all = check_leaf(k, 0, e);
    for (int r = 1; r <= last; r++) {
        struct value v = check_leaf(k, r, e);
        all.set |= v.set;
        all.sum += v.sum;
        all.count++;
        all.order = check_fold(check_fold(0, all.order), v.order);
    }
    return all;
}

/* What rank `to` gets from rank `from`. */
static struct value moved(const struct check *k, int from, int to, size_t e)
{
    switch (k->c->call.kind) {
    case COLL_SCATTER:
    case COLL_SCATTERV:
        return check_leaf(k, from, check_block_at(k, from, 0, to) + e);
    case COLL_ALLTOALL:
    case COLL_ALLTOALLV:
        return check_leaf(k, from, check_block_at(k, from, k->c->call.in_place, to) + e);
    default:
        return check_leaf(k, from, e);
    }
}

/* What should be in the receive buffer of a rank at the end; it has what was there at the beginning. vector: the
 * reduction, if there is one. */
static void want_result(struct check *k, int rank, const struct value *vector, struct value *want)
{
    const struct sched_call *call = &k->c->call;
    size_t n = k->c->count;
    switch (call->kind) {
    case COLL_ALLREDUCE:
    case COLL_REDUCE:
    case COLL_BCAST:
        for (size_t e = 0; e < n; e++)
            want[e] = vector ? vector[e] : check_leaf(k, call->root, e);
        break;
    case COLL_REDUCE_SCATTER_BLOCK:
    case COLL_REDUCE_SCATTER:
        for (size_t e = 0; e < check_block_length(k, rank, 0, rank); e++)
            want[e] = reduced(k, check_block_at(k, rank, 0, rank) + e);
        break;
    case COLL_SCAN:
    case COLL_EXSCAN:
        for (size_t e = 0; e < n && (rank > 0 || call->kind == COLL_SCAN); e++) {
            want[e] = prefix(k, call->kind == COLL_SCAN ? rank : rank - 1, e);
            want[e].final = call->exact && rank > 0;
        }
        break;
    case COLL_SCATTER:
    case COLL_SCATTERV:
        for (size_t e = 0; e < check_block_length(k, rank, 1, rank); e++)
            want[e] = moved(k, call->root, rank, e);
        break;
    default:
        for (int r = 0; r < k->topo->ranks; r++)
            for (size_t e = 0; e < check_block_length(k, rank, 1, r); e++)
                want[check_block_at(k, rank, 1, r) + e] = moved(k, r, rank, e);
    }
}

static void check_results(struct check *k)
{
    const struct sched_call *call = &k->c->call;
    size_t n = k->c->count;
    struct value *vector = NULL;
    if (call->kind == COLL_ALLREDUCE || call->kind == COLL_REDUCE) {
        vector = check_take((n + 1) * sizeof(*vector));
        for (size_t e = 0; e < n; e++)
            vector[e] = reduced(k, e);
    }
    for (int r = 0; r < k->topo->ranks && !k->failed; r++) {
        struct machine *m = &k->machines[r];
        bool one = m->recv && m->memory[0] && m->recv >= m->memory[0] && m->recv <= m->memory[0] + m->elements[0] &&
                   !m->memory[1];
        int place = one ? 0 : 1;
        if (m->recv)
            want_result(k, r, vector, m->start[place] + (m->recv - m->memory[place]));
        /* What is not the result is as it was. */
        for (int i = 0; i < 2; i++)
            for (size_t e = 0; e < m->elements[i]; e++)
                expect(k, r, i == place ? "result" : "input", e, &m->memory[i][e], m->start[i][e]);
    }
}

/* What the engine makes room for where a plan comes before the counts. */
static size_t room_for_any(const struct check *k, const struct sched_range *range)
{
    struct sched_chunk whole = {0, k->c->chunk, NULL};
    size_t first, length;
    sched_range_at(k->topo, range, &whole, &first, &length);
    return length + 2 * SCHED_ALIGN;
}

/* Tables of one rank's schedule: where its ranges are, and where its scratches stand in a slot. */
static void measure(struct check *k, int rank)
{
    struct machine *m = &k->machines[rank];
    const struct sched *s = m->sched;
    size_t uses = 2 * (size_t)s->n_steps + (size_t)s->n_refs;
    m->scratch_at = check_take((size_t)s->n_scratch * sizeof(size_t));
    m->uses = check_take((size_t)k->variants * sizeof(*m->uses));
    m->scratch = check_take((size_t)k->variants * sizeof(*m->scratch));
    for (int v = 0; v < k->variants; v++) {
        struct sched_chunk chunks[] = {check_chunk(k, rank, BUF_SEND, v), check_chunk(k, rank, BUF_RECV, v)};
        if (v == 1 && !k->c->counts && k->L[1] == k->L[0]) {
            m->uses[1] = m->uses[0];
            m->scratch[1] = m->scratch[0];
            break;
        }
        m->uses[v] = check_take(uses * sizeof(struct extent));
        m->scratch[v] = check_take((size_t)s->n_scratch * sizeof(struct extent));
        for (int i = 0; i < s->n_steps; i++) {
            const struct sched_ref *in = &s->steps[i].in, *out = &s->steps[i].out;
            struct extent *from = &m->uses[v][use_in(i)], *to = &m->uses[v][use_out(i)];
            sched_range_at(k->topo, &in->range, &chunks[in->buffer != BUF_SEND], &from->first, &from->length);
            sched_range_at(k->topo, &out->range, &chunks[out->buffer != BUF_SEND], &to->first, &to->length);
        }
        for (int i = 0; i < s->n_refs; i++) {
            struct extent *ref = &m->uses[v][use_ref(s, i)];
            sched_range_at(k->topo, &s->refs[i].range, &chunks[s->refs[i].buffer != BUF_SEND], &ref->first,
                           &ref->length);
        }
        for (int i = 0; i < s->n_scratch; i++) {
            struct extent *e = &m->scratch[v][i];
            sched_range_at(k->topo, &s->scratch[i].range, &chunks[1], &e->first, &e->length);
        }
    }
    for (int i = 0; i < s->n_scratch; i++) {
        /* What the engine makes room for, knowing the first chunk and the last. */
        size_t a = m->scratch[0][i].length, b = m->scratch[k->variants - 1][i].length;
        size_t most = (a > b ? a : b) + (k->c->counts ? 2 * SCHED_ALIGN : 0);
        if (coll_tells(k->c->call.kind))
            most = room_for_any(k, &s->scratch[i].range);
        for (int v = 0; v < k->variants; v++)
            if (m->scratch[v][i].length > most)
                check_fail(k, "rank %d: scratch %d takes %zu elements in chunk %d, there is room for %zu", rank, i,
                           m->scratch[v][i].length, v, most);
        m->scratch_at[i] = m->slot_elements;
        m->slot_elements += most;
    }
    m->slots = check_take((m->slot_elements * (size_t)k->window + 1) * sizeof(struct value));
}

static bool range_valid(const struct check *k, const struct sched_range *r)
{
    const struct topo *t = k->topo;
    if (r->space > SPACE_BLOCKS || (r->space == SPACE_BLOCKS && (r->island < 0 || r->island >= t->islands)))
        return false;
    if (r->parts < 1 || r->part < 0 || r->part >= r->parts)
        return false;
    for (int i = 0; i < 2; i++) {
        const struct sched_cut *c = i ? &r->hi : &r->lo;
        if (c->how > CUT_BLOCK || c->island < 0 || c->island >= t->islands || c->position < 0 ||
            c->position > topo_island_size(t, c->island))
            return false;
        if (c->how == CUT_BLOCK && (r->space != SPACE_BLOCKS || r->island != c->island))
            return false;
    }
    return true;
}

static bool ref_valid(const struct check *k, const struct sched *s, const struct sched_ref *ref)
{
    return range_valid(k, &ref->range) && ref->buffer <= BUF_SCRATCH &&
           (ref->buffer != BUF_SCRATCH || ref->scratch < s->n_scratch);
}

/* Indices inside their tables: nothing else may be looked at before. */
static void check_indices(struct check *k, int rank)
{
    const struct sched *s = k->machines[rank].sched;
    for (int i = 0; i < s->n_scratch; i++)
        if (!range_valid(k, &s->scratch[i].range))
            check_fail(k, "rank %d: scratch %d has a range that does not exist", rank, i);
    for (int i = 0; i < s->n_refs; i++)
        if (!ref_valid(k, s, &s->refs[i]))
            check_fail(k, "rank %d: operand %d does not exist", rank, i);
    for (int i = 0; i < s->n_steps; i++) {
        const struct sched_step *p = &s->steps[i];
        if (!ref_valid(k, s, &p->in) || !ref_valid(k, s, &p->out))
            check_fail(k, "rank %d: step %d uses a range or scratch that does not exist", rank, i);
        if (p->kind > STEP_COPY || p->owners > OWNERS_ROOT || p->readers > READERS_BLOCK || p->lag > 1 ||
            p->phase > PHASE_STAGE)
            check_fail(k, "rank %d: step %d has a field out of range", rank, i);
        if (p->kind == STEP_REDUCE && (p->n_in < 1 || p->first_in < 0 || p->first_in + p->n_in > s->n_refs))
            check_fail(k, "rank %d: step %d has %d operands from %d of %d", rank, i, p->n_in, p->first_in, s->n_refs);
        for (int d = 0; d < 3; d++)
            if (p->deps[d].first != p->deps[d].last &&
                (p->deps[d].first < 0 || p->deps[d].last <= p->deps[d].first || p->deps[d].last > i))
                check_fail(k, "rank %d: step %d depends on steps %d..%d", rank, i, p->deps[d].first, p->deps[d].last);
    }
}

bool check_schedules(const struct topo *topo, const struct check_case *c, struct sched *const *scheds,
                     char why[CHECK_WHY])
{
    take_back();
    why[0] = '\0';
    struct check k = {.topo = topo, .c = c, .window = c->window, .why = why};
    k.chunks = sched_chunks(c->count, c->chunk);
    k.variants = !c->counts ? 2 : k.chunks ? (int)k.chunks : 1;
    k.L = check_take((size_t)k.variants * sizeof(*k.L));
    for (int v = 0; v < k.variants; v++)
        k.L[v] = k.chunks > 1 ? c->chunk : c->count;
    if (k.chunks > 1)
        k.L[k.variants - 1] = c->count - (k.chunks - 1) * c->chunk;
    k.machines = check_take((size_t)topo->ranks * sizeof(*k.machines));
    for (int r = 0; r < topo->ranks && !k.failed; r++) {
        k.machines[r].topo = *topo;
        k.machines[r].topo.rank = r;
        k.machines[r].sched = scheds[r];
        check_indices(&k, r);
        if (!k.failed)
            make_buffers(&k, r);
        if (!k.failed)
            measure(&k, r);
    }
    void (*const stages[])(struct check *) = {check_messages, check_static, check_wire_bytes, fill_buffers,
                                              check_execute, check_results};
    for (size_t i = 0; i < sizeof(stages) / sizeof(*stages) && !k.failed; i++)
        stages[i](&k);
    return !k.failed;
}
