/* The random differential test: what a case is. See fuzz.h. */
#include "fuzz.h"

#include <stdio.h>
#include <string.h>

const char *const fz_kind_names[FZ_KINDS] = {
    "allreduce", "reduce", "reduce_scatter_block", "reduce_scatter", "scan", "exscan", "bcast", "allgather",
    "allgatherv", "gather", "gatherv", "scatter", "scatterv", "alltoall", "alltoallv", "barrier", "send/recv",
    "sendrecv" };
const char *const fz_form_names[FZ_FORMS] = { "blocking", "nonblocking", "on_stream", "persistent" };

bool fz_reduces(enum fz_kind kind)
{
    return kind <= FZ_EXSCAN;
}

bool fz_has_counts(enum fz_kind kind)
{
    return kind == FZ_REDUCE_SCATTER || kind == FZ_ALLGATHERV || kind == FZ_GATHERV || kind == FZ_SCATTERV ||
           kind == FZ_ALLTOALLV;
}

/* How many blocks of n elements the largest buffer has. */
static size_t blocks_of(enum fz_kind kind, int ranks)
{
    switch (kind) {
    case FZ_ALLREDUCE: case FZ_REDUCE: case FZ_SCAN: case FZ_EXSCAN: case FZ_BCAST: case FZ_MESSAGE: case FZ_SENDRECV:
        return 1;
    default:
        return (size_t)ranks;
    }
}

static size_t near(struct fz_random *random, size_t x)
{
    size_t y = x + fz_pick(random, 5);
    return y < 2 ? 0 : y - 2;
}

/* Elements: few, odd tails, around the limits of the short cut and of chunks, now and then many. */
static size_t draw_count(struct fz_random *random, const struct fz_comm *comm, size_t size, size_t blocks)
{
    static const size_t automatic[] = { 65536, 131072, 262144, 1 << 20 };
    size_t chunk = comm->chunk ? comm->chunk : automatic[fz_pick(random, 4)], many = fz_pick(random, 4);
    size_t n, most = (many ? (size_t)2 << 20 : (size_t)12 << 20) / size / blocks;
    switch (fz_pick(random, 14)) {
    case 0: n = 0; break;
    case 1: n = 1; break;
    case 2: n = 2 + fz_pick(random, 16); break;
    case 3: n = near(random, comm->small / size); break;
    case 4: n = near(random, comm->small / size / blocks); break;
    case 5: n = near(random, 16384 / size / blocks); break;
    case 6: n = near(random, (1 + fz_pick(random, 4)) * chunk / size); break;
    case 7: n = near(random, (1 + fz_pick(random, 4)) * chunk / size / blocks); break;
    case 8: n = near(random, 4096u * (1 + fz_pick(random, 3))); break;
    case 9: n = fz_pick(random, 65536) / size; break;
    case 10: n = fz_pick(random, 5) ? fz_pick(random, 30000) : fz_draw(random) % (most + 1); break;
    default: n = fz_pick(random, 2000);
    }
    return n < most ? n : most;
}

static void draw_numbers(struct fz_random *random, struct fz_case *c)
{
    do {
        c->fmt = (enum t_fmt)fz_pick(random, T_FMTS);
        c->op = (enum t_op)fz_pick(random, T_OPS);
    } while (fz_reduces(c->kind) && !t_supported(c->fmt, c->op));
    c->premul = fz_reduces(c->kind) && t_supported(c->fmt, T_SUM) && fz_pick(random, 6) == 0;
    if (c->premul)
        c->op = T_SUM;
    /* AVG of a prefix is an error. */
    if ((c->kind == FZ_SCAN || c->kind == FZ_EXSCAN) && c->op == T_AVG)
        c->op = T_SUM;
    unsigned data = fz_pick(random, 4);
    c->data = T_EXACT;
    if (fz_reduces(c->kind) && data == 1 && (t_is_float(c->fmt) || t_is_complex(c->fmt)))
        c->data = T_RANDOM;
    if (fz_reduces(c->kind) && data == 2 && t_is_float(c->fmt) && c->op != T_PROD && !c->premul)
        c->data = T_SPECIAL;
}

static enum fz_form draw_form(struct fz_random *random, const struct fz_case *c, const struct fz_rules *rules)
{
    for (;;) {
        enum fz_form form = c->kind == FZ_SENDRECV ? FZ_BLOCKING : (enum fz_form)fz_pick(random, FZ_FORMS);
        bool message = c->kind == FZ_MESSAGE;
        if (form == FZ_BLOCKING && !rules->blocking)
            continue;
        if (form == FZ_STREAM && !(message ? rules->messages_on_streams : rules->streams))
            continue;
        if (form == FZ_PERSISTENT && message)
            continue;
        return form;
    }
}

static enum fz_way draw_way(struct fz_random *random, enum fz_kind kind)
{
    enum fz_way way = (enum fz_way)fz_pick(random, 3);
    switch (kind) {
    case FZ_BCAST: case FZ_BARRIER: case FZ_MESSAGE: case FZ_SENDRECV: return FZ_SEPARATE;
    case FZ_ALLTOALL: case FZ_ALLTOALLV: return way == FZ_ALIASED ? FZ_SEPARATE : way;
    default: return way;
    }
}

/* Calls in place match others that are not, but where MPI wants MPI_IN_PLACE on all ranks or on none. */
static enum fz_way draw_own_way(struct fz_random *own, const struct fz_case *c)
{
    switch (c->kind) {
    case FZ_ALLTOALL: case FZ_ALLTOALLV: return c->way;
    case FZ_ALLREDUCE: case FZ_ALLGATHER: case FZ_ALLGATHERV:
        return c->way == FZ_IN_PLACE ? FZ_IN_PLACE : fz_pick(own, 2) ? FZ_SEPARATE : FZ_ALIASED;
    default: return draw_way(own, c->kind);
    }
}

static enum fz_kind draw_kind(struct fz_random *random, const struct fz_comm *comm, const struct fz_rules *rules)
{
    enum fz_kind kind = (enum fz_kind)fz_pick(random, FZ_KINDS);
    /* Messages need a communicator that is set up, and somebody else; the blocking ones one order of all ranks. */
    if (kind == FZ_MESSAGE && (!comm->attached || comm->ranks < 2))
        return FZ_ALLREDUCE;
    if (kind == FZ_SENDRECV && (!comm->attached || !rules->blocking))
        return FZ_ALLTOALL;
    return kind;
}

void fz_draw_case(struct fz_case *c, const struct fz_comm *comm, int comm_number, uint64_t seed, int number,
                  const struct fz_rules *rules)
{
    struct fz_random random = fz_common(seed, 1000 + (uint64_t)number);
    struct fz_random own = fz_own(seed, 1000 + (uint64_t)number);
    *c = (struct fz_case){ .number = number };
    c->seed = fz_draw(&random);
    c->kind = draw_kind(&random, comm, rules);
    draw_numbers(&random, c);
    c->form = draw_form(&random, c, rules);
    c->way = draw_way(&random, c->kind);
    c->how = fz_has_counts(c->kind) ? (enum fz_blocks_how)fz_pick(&random, FZ_HOWS) : FZ_EVEN;
    c->root = (int)fz_pick(&random, (unsigned)comm->ranks);
    c->peer = comm->ranks < 2 ? 0 : (c->root + 1 + (int)fz_pick(&random, (unsigned)comm->ranks - 1)) % comm->ranks;
    c->n = c->kind == FZ_BARRIER ? 0 : draw_count(&random, comm, t_size(c->fmt), blocks_of(c->kind, comm->ranks));
    c->stream = rules->reordered ? comm_number : (int)fz_pick(&random, FZ_STREAMS);
    c->starts = c->form != FZ_PERSISTENT || rules->once ? 1 : 1 + (int)fz_pick(&random, 3);
    c->reference = fz_pick(&random, 4) == 0;
    c->gaps = fz_pick(&random, 2);
    c->backwards = fz_pick(&random, 2);
    /* The forms of one call match each other; a persistent one is made by all. */
    bool mixed = fz_pick(&random, 8) == 0;
    if (mixed && c->form != FZ_PERSISTENT && c->kind != FZ_SENDRECV)
        do
            c->form = draw_form(&own, c, rules);
        while (c->form == FZ_PERSISTENT);
    if (fz_pick(&random, 4) == 0)
        c->way = draw_own_way(&own, c);
    c->from = (enum t_place)fz_pick(&own, T_PLACES);
    c->to = (enum t_place)fz_pick(&own, T_PLACES);
    c->from_shift = fz_pick(&own, 4) * t_size(c->fmt);
    c->to_shift = fz_pick(&own, 4) * t_size(c->fmt);
    c->bare = fz_pick(&own, 2);
}

void fz_describe(const struct fz_case *c, const struct fz_comm *comm, char text[256])
{
    static const char *const ways[] = { "", " in place", " aliased" };
    static const char *const hows[] = { "even", "sparse", "growing", "last only", "hashed", "no" };
    char ends[40] = "", blocks[24] = "";
    if (c->kind == FZ_MESSAGE)
        snprintf(ends, sizeof ends, ", %d to %d", c->root, c->peer);
    else
        snprintf(ends, sizeof ends, ", root %d", c->root);
    if (fz_has_counts(c->kind))
        snprintf(blocks, sizeof blocks, ", %s blocks", hows[c->how]);
    snprintf(text, 256, "case %d: %s %s%s, %s %s x %zu%s%s, %s to %s, rank %d of %d, %s", c->number,
             fz_form_names[c->form], fz_kind_names[c->kind], ways[c->way], t_fmt_name(c->fmt),
             c->premul ? "premultiplied sum" : fz_reduces(c->kind) ? t_op_name(c->op) : "", c->n, blocks, ends, t_place_name(c->from),
             t_place_name(c->to), comm->rank, comm->ranks, comm->what);
}
