/*
 * A random program of local operations that all members of an island run, each checked against a plain oracle. Used by
 * the unit test of the boards (forked processes) and by the test of the mpi provider (under mpirun).
 *
 * Kinds, owners, readers, spaces, lengths, types and operations are drawn from the seed alone, so all members agree;
 * layouts of buffers, aliasing and the order of polls are each member's own.
 */
#ifndef HETMPI_TESTS_ISLAND_PROGRAM_H
#define HETMPI_TESTS_ISLAND_PROGRAM_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/log.h"
#include "hetmpi.h"
#include "island/island.h"

struct random { uint64_t state; };

static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}
static struct random random_from(uint64_t a, uint64_t b, uint64_t c)
{
    return (struct random){mix(mix(mix(a) ^ b) ^ c)};
}
static uint64_t draw(struct random *r, uint64_t below) { return below ? mix(r->state++) % below : 0; }

/* A buffer, and what it must hold in the end. */
struct buffer { char *memory, *image; size_t bytes; };

struct task {
    struct sched_step step;
    struct island_op op;
    struct buffer in, out;
    bool alias;               /* out lies in the buffer `in` */
    bool running;
    int *ranks;
};

struct program {
    struct comm *comm;
    struct island *island;
    uint64_t seed;
    size_t slot_bytes;
    int n_tasks;
    int window;               /* most operations in flight */
    struct task *tasks;
};

/* The element at virtual index v, without the code under test. */
static size_t place_of(const struct sched_view *view, size_t v)
{
    switch ((enum sched_layout)view->layout) {
    case LAYOUT_NONE: return v - view->first;
    case LAYOUT_VECTOR: return view->chunk_first + v;
    case LAYOUT_BLOCKS: return (size_t)view->ranks[v / view->L] * view->count + view->chunk_first + v % view->L;
    case LAYOUT_BLOCK: return view->chunk_first + v % view->L;
    }
    abort();
}

/* Operand v of member `position` in task n. */
static void operand(const struct program *p, int n, int position, enum red_type type, size_t element, size_t v,
                    unsigned char *to)
{
    uint64_t words[2];

    words[0] = mix(p->seed * 31 + (uint64_t)n * 1000003 + (uint64_t)position * 7919 + (v << 20));
    words[1] = mix(words[0]);
    memcpy(to, words, element);
    if (type == RED_BOOL)
        *to &= 1;
}

static int take_buffer(struct buffer *b, size_t bytes, uint64_t salt)
{
    void *memory = NULL;

    b->bytes = bytes + 64;   /* a margin that must stay as it is */
    b->image = malloc(b->bytes);
    if (!b->image || mem_alloc(b->bytes, &memory) != HETMPI_SUCCESS)
        return 1;
    b->memory = memory;
    for (size_t i = 0; i < b->bytes; i++)
        b->image[i] = (char)mix(salt + i);
    return 0;
}

static void give_buffer(struct buffer *b)
{
    mem_free(b->memory);
    free(b->image);
    *b = (struct buffer){0};
}

static size_t space_length(const struct program *p, const struct task *t)
{
    int last = t->step.owners == OWNERS_ROOT ? t->step.root : p->island->members - 1;
    size_t first, length;

    sched_owner_part(&p->comm->topo, &t->step, last, &t->op.chunk, &first, &length);
    return first + length;
}

static void draw_step(const struct program *p, int n, struct task *t)
{
    static const size_t lengths[] = {0, 1, 2, 3, 7, 16, 67, 255, 1000, 4096, 5000, SIZE_MAX};
    const struct topo *topo = &p->comm->topo;
    struct random r = random_from(p->seed, (uint64_t)n, 0);
    int own = topo->island_of[topo->rank], members = topo_island_size(topo, own), island = own;
    size_t most, space_ranks = 1;

    t->step = (struct sched_step){.kind = draw(&r, 2) ? STEP_LOCAL_REDUCE : STEP_LOCAL_SPREAD};
    t->step.owners = (uint8_t)draw(&r, 3);
    t->step.readers = t->step.owners != OWNERS_ROOT && draw(&r, 4) == 0 ? READERS_ROOT : READERS_ALL;
    t->step.root = (int32_t)draw(&r, (uint64_t)members);
    t->step.in.range.space = t->step.owners == OWNERS_BLOCK || draw(&r, 2) ? SPACE_BLOCKS : SPACE_VECTOR;
    t->step.in.range.parts = 1;
    if (t->step.in.range.space == SPACE_BLOCKS) {
        if (t->step.owners != OWNERS_BLOCK)
            island = (int)draw(&r, (uint64_t)topo->islands);
        space_ranks = (size_t)topo_island_size(topo, island);
    }
    t->step.in.range.island = island;
    t->step.out = t->step.in;
    do {
        t->op.type = (enum red_type)draw(&r, RED_TYPES);
        t->op.op = (enum red_op)draw(&r, RED_OPS);
    } while (!red_supported(t->op.type, t->op.op));
    t->op.divide_by = t->op.op == RED_AVG && draw(&r, 2) ? (uint32_t)members : 0;
    t->op.out_wide = draw(&r, 3) == 0;
    most = p->slot_bytes / space_ranks / red_size(t->op.type);
    t->op.chunk.length = lengths[draw(&r, sizeof(lengths) / sizeof(lengths[0]))];
    if (t->op.chunk.length > most)
        t->op.chunk.length = most;
    t->op.number = (uint64_t)n;
    t->op.step = &t->step;
}

/* A view of the whole space (or of `part` alone, as a scratch), and how many elements its buffer needs. */
static size_t draw_view(const struct program *p, struct random *r, struct task *t, struct sched_view *view,
                        size_t element, bool part_only, size_t first, size_t length, size_t space)
{
    const struct topo *topo = &p->comm->topo;
    bool own_block = t->step.owners == OWNERS_BLOCK && part_only;

    *view = (struct sched_view){.element = element, .L = t->op.chunk.length};
    view->count = t->op.chunk.length + draw(r, 2) * draw(r, 50);
    view->chunk_first = draw(r, view->count - t->op.chunk.length + 1);
    if (draw(r, 3) == 0) {
        view->layout = LAYOUT_NONE;
        view->first = part_only ? first : 0;
        return part_only ? length : space;
    }
    if (t->step.in.range.space == SPACE_VECTOR) {
        view->layout = LAYOUT_VECTOR;
        return view->count;
    }
    view->ranks = t->ranks;
    if (own_block && draw(r, 2)) {
        view->layout = LAYOUT_BLOCK;
        return view->count;
    }
    view->layout = LAYOUT_BLOCKS;
    return view->count * (size_t)topo->ranks;
}

static void put(struct buffer *b, size_t base, const struct sched_view *view, size_t v, const void *element)
{
    memcpy(b->image + base + place_of(view, v) * view->element, element, view->element);
}

/* Buffers of a REDUCE, filled. After this, images hold what must be there in the end. */
static int make_reduce(const struct program *p, int n, struct task *t, struct random *r)
{
    const struct topo *topo = &p->comm->topo;
    int members = p->island->members, position = p->island->position, i;
    size_t element = red_size(t->op.type), wide = red_wide_size(t->op.type), out_element, first, length, space;
    unsigned char *operands[64], *result, one[16];
    const void *srcs[64];
    struct red_call call;

    sched_owner_part(topo, &t->step, position, &t->op.chunk, &first, &length);
    space = space_length(p, t);
    out_element = t->op.out_wide ? wide : element;
    if (take_buffer(&t->in, draw_view(p, r, t, &t->op.in, element, false, 0, 0, space) * element, p->seed + 1))
        return 1;
    for (size_t v = 0; v < space; v++) {
        operand(p, n, position, t->op.type, element, v, one);
        put(&t->in, 0, &t->op.in, v, one);
    }
    t->op.in.base = t->in.memory;
    if (mem_copy(t->in.memory, t->in.image, t->in.bytes) != HETMPI_SUCCESS)
        return 1;
    if (length == 0) {
        t->op.out = (struct sched_view){.layout = LAYOUT_NONE};
        return 0;
    }
    t->alias = out_element == element && draw(r, 2);
    if (t->alias) {
        t->op.out = t->op.in;
        if (t->step.owners == OWNERS_BLOCK && t->op.in.layout == LAYOUT_BLOCKS && draw(r, 2))
            t->op.out.layout = LAYOUT_BLOCK;   /* the result in the first block, as reduce_scatter_block in place */
    } else {
        size_t count = draw_view(p, r, t, &t->op.out, out_element, true, first, length, space);
        if (take_buffer(&t->out, count * out_element, p->seed + 2) ||
            mem_copy(t->out.memory, t->out.image, t->out.bytes) != HETMPI_SUCCESS)
            return 1;
        t->op.out.base = t->out.memory;
    }
    result = malloc(length * out_element);
    for (i = 0; i < members; i++) {
        operands[i] = malloc(length * element);
        if (!operands[i] || !result)
            return 1;
        for (size_t v = 0; v < length; v++)
            operand(p, n, i, t->op.type, element, first + v, operands[i] + v * element);
        srcs[i] = operands[i];
    }
    call = (struct red_call){.type = t->op.type, .op = t->op.op, .dst_wide = t->op.out_wide, .dst = result,
                             .divide_by = t->op.divide_by, .n = (uint32_t)members, .srcs = srcs, .count = length};
    red_run_scalar(&call);
    for (size_t v = 0; v < length; v++)
        put(t->alias ? &t->in : &t->out, 0, &t->op.out, first + v, result + v * out_element);
    for (i = 0; i < members; i++)
        free(operands[i]);
    free(result);
    return 0;
}

static int make_spread(const struct program *p, int n, struct task *t, struct random *r)
{
    const struct topo *topo = &p->comm->topo;
    int members = p->island->members, position = p->island->position;
    size_t element = red_size(t->op.type), first, length, space;
    bool reader = t->step.readers == READERS_ALL || t->step.root == position;
    unsigned char one[16];

    space = space_length(p, t);
    sched_owner_part(topo, &t->step, position, &t->op.chunk, &first, &length);
    t->op.in = t->op.out = (struct sched_view){.layout = LAYOUT_NONE, .element = reader || length ? element : 0};
    if (reader) {
        size_t count = draw_view(p, r, t, &t->op.out, element, false, 0, 0, space);
        if (take_buffer(&t->out, count * element, p->seed + 3))
            return 1;
    }
    t->alias = reader && length > 0 && draw(r, 2);
    if (t->alias) {
        t->op.in = t->op.out;
    } else if (length > 0) {
        size_t count = draw_view(p, r, t, &t->op.in, element, true, first, length, space);
        if (take_buffer(&t->in, count * element, p->seed + 4))
            return 1;
    }
    for (size_t v = first; v < first + length; v++) {
        operand(p, n, position, t->op.type, element, v, one);
        put(t->alias ? &t->out : &t->in, 0, &t->op.in, v, one);
    }
    if (t->in.bytes && mem_copy(t->in.memory, t->in.image, t->in.bytes) != HETMPI_SUCCESS)
        return 1;
    if (t->out.bytes && mem_copy(t->out.memory, t->out.image, t->out.bytes) != HETMPI_SUCCESS)
        return 1;
    t->op.out.base = t->out.memory;
    t->op.in.base = t->alias ? t->out.memory : t->in.memory;
    for (int i = 0; reader && i < members; i++) {
        sched_owner_part(topo, &t->step, i, &t->op.chunk, &first, &length);
        for (size_t v = first; v < first + length; v++) {
            operand(p, n, i, t->op.type, element, v, one);
            put(&t->out, 0, &t->op.out, v, one);
        }
    }
    return 0;
}

static int make_task(const struct program *p, int n, struct task *t)
{
    struct random r = random_from(p->seed, (uint64_t)n, (uint64_t)p->island->position + 1);
    const struct topo *topo = &p->comm->topo;
    int island, size;

    draw_step(p, n, t);
    island = t->step.in.range.island;
    size = topo_island_size(topo, island);
    t->ranks = malloc((size_t)size * sizeof(int));
    if (!t->ranks)
        return 1;
    for (int i = 0; i < size; i++)
        t->ranks[i] = topo_member(topo, island, i);
    return t->step.kind == STEP_LOCAL_REDUCE ? make_reduce(p, n, t, &r) : make_spread(p, n, t, &r);
}

static int check_buffer(const struct program *p, int n, const struct task *t, const struct buffer *b, const char *which)
{
    char *seen;
    size_t i;

    if (!b->bytes)
        return 0;
    seen = malloc(b->bytes);
    if (!seen || mem_copy(seen, b->memory, b->bytes) != HETMPI_SUCCESS)
        return 1;
    for (i = 0; i < b->bytes && seen[i] == b->image[i]; i++)
        ;
    if (i < b->bytes)
        fprintf(stderr, "rank %d, seed %llu, operation %d (%s, owners %d, readers %d, root %d, L %zu, %s %s): buffer "
                "`%s` of %zu bytes is wrong at byte %zu\n", p->comm->rank, (unsigned long long)p->seed, n,
                t->step.kind == STEP_LOCAL_REDUCE ? "reduce" : "spread", t->step.owners, t->step.readers, t->step.root,
                t->op.chunk.length, red_type_name(t->op.type), red_op_name(t->op.op), which, b->bytes, i);
    free(seen);
    return i < b->bytes;
}

static int end_task(const struct program *p, int n, struct task *t)
{
    int wrong = check_buffer(p, n, t, &t->in, "in") + check_buffer(p, n, t, &t->out, "out");

    give_buffer(&t->in);
    give_buffer(&t->out);
    free(t->ranks);
    t->ranks = NULL;
    t->running = false;
    return wrong;
}

static int say(const struct program *p, int n, const char *what)
{
    fprintf(stderr, "rank %d, seed %llu, operation %d: %s: %s\n", p->comm->rank, (unsigned long long)p->seed, n, what,
            err_text());
    return 1;
}

/* Runs all tasks in a random order of polls; returns the number of faults. `seconds`: bound, a hang is a fault. */
static int run_program(struct program *p, double seconds)
{
    struct random r = random_from(p->seed, 77, (uint64_t)p->comm->rank);
    int next = 0, oldest = 0, made = 0, wrong = 0, code;
    time_t until = time(NULL) + (time_t)seconds + 1;

    p->tasks = calloc((size_t)p->n_tasks, sizeof(*p->tasks));
    if (!p->tasks)
        return 1;
    while (oldest < p->n_tasks && !wrong) {
        if (next < p->n_tasks && next < oldest + p->window && draw(&r, 3) == 0) {
            if (made == next && make_task(p, made++, &p->tasks[next]))
                return say(p, next, "cannot make its buffers");
            code = p->island->ops->start(p->island, &p->tasks[next].op);
            if (code == HETMPI_SUCCESS)
                p->tasks[next++].running = true;
            else if (code != COMM_AGAIN)
                wrong += say(p, next, "start");
        }
        if (next > oldest) {
            int n = oldest + (int)draw(&r, (uint64_t)(next - oldest));
            bool done = false;
            if (p->tasks[n].running) {
                code = p->island->ops->poll(p->island, &p->tasks[n].op, &done);
                if (code != HETMPI_SUCCESS)
                    wrong += say(p, n, "poll");
                if (done)
                    wrong += end_task(p, n, &p->tasks[n]);
            }
        }
        while (oldest < next && !p->tasks[oldest].running)
            oldest++;
        if (time(NULL) > until)
            wrong += say(p, oldest, "not done in time");
        if (draw(&r, 64) == 0)
            nanosleep(&(struct timespec){.tv_nsec = (long)draw(&r, 200000)}, NULL);
    }
    free(p->tasks);
    return wrong;
}

/* Facts of `ranks` ranks, `members` of them in the island of key 1, at random places, with random weights. */
static void draw_facts(uint64_t seed, struct topo_rank *facts, int ranks, int members)
{
    struct random r = random_from(seed, 5, 5);
    int left = members;

    for (int i = 0; i < ranks; i++) {
        bool ours = draw(&r, (uint64_t)(ranks - i)) < (uint64_t)left;
        left -= ours;
        facts[i].island_key = ours ? 1 : 2 + draw(&r, 2);
        facts[i].node_key = facts[i].island_key;
        facts[i].weight = draw(&r, 3) ? 1 : 1 + (uint32_t)draw(&r, 300);
    }
}

#endif
