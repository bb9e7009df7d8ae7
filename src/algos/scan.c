/*
 * Scan and exscan: a chain through the ranks, in their order whatever their islands, pipelined by chunks. A rank
 * receives the prefix of those before it, reduces it with its own input, and sends that on.
 *
 * With exact the prefix travels in the accumulator's format (the engine asks for that where the type is narrower), so
 * that a result is rounded once, when its rank takes it: the same bits as one reduction of all operands in rank order.
 * Without, the prefix is the result itself. With in_place both buffers are the same pointer.
 * Wire bytes: every rank but the last sends N.
 */
#include "algos/algos.h"

static const struct algo_span none = {0, 0};

/* The operand as all of a reduction must be: wide with exact. */
static struct algo_place widened(struct algo *a, struct algo_place in, struct sched_range all)
{
    if (!a->call->exact)
        return in;
    struct algo_place wide = algo_scratch(a, all, true);
    int step = algo_reduce(a, wide, all, false);
    algo_operand(a, step, in);
    wide.made = algo_since(a, step);
    return wide;
}

/* The first rank: its input is the prefix, and in scan the result. */
static void begin_chain(struct algo *a, struct algo_place in, struct sched_range all)
{
    if (a->topo->ranks > 1)
        algo_send(a, widened(a, in, all), all, 1, 0);
    if (a->sched->kind == COLL_SCAN && (!a->call->in_place || a->call->scale))
        algo_copy(a, a->call->scale ? in : algo_user(BUF_SEND), algo_user(BUF_RECV), all);
}

/* prefix op own input -> to. Returns the step. */
static int join(struct algo *a, struct algo_place prefix, struct algo_place own, struct algo_place to,
                struct sched_range all, bool final)
{
    int step = algo_reduce(a, to, all, final);
    algo_operand(a, step, prefix);
    algo_operand(a, step, own);
    return step;
}

/* A prefix in the format in which it travels, as a result at `out`, after the span. */
static void take_result(struct algo *a, struct algo_place prefix, struct algo_place out, struct sched_range all,
                        struct algo_span after)
{
    int step;
    if (a->call->exact) {
        step = algo_reduce(a, out, all, true);
        algo_operand(a, step, prefix);
    } else {
        step = algo_copy(a, prefix, out, all);
    }
    algo_after(a, step, after);
    algo_deliver(a, out, all, algo_since(a, step), none);
}

static void scan_rank(struct algo *a, struct algo_place prefix, struct algo_place own, struct algo_place out,
                      struct sched_range all, bool last)
{
    bool exact = a->call->exact;
    if (exact && !last) {
        struct algo_place next = algo_scratch(a, all, true);
        int step = join(a, prefix, own, next, all, false);
        next.made = algo_since(a, step);
        algo_send(a, next, all, a->topo->rank + 1, 0);
        take_result(a, next, out, all, none);
        return;
    }
    int step = join(a, prefix, own, out, all, exact);
    struct algo_span made = algo_since(a, step);
    out.made = made;
    if (!last)
        algo_send(a, out, all, a->topo->rank + 1, 0);
    algo_deliver(a, out, all, made, none);
}

static void exscan_rank(struct algo *a, struct algo_place prefix, struct algo_place own, struct algo_place out,
                        struct sched_range all, bool last)
{
    struct algo_span read = none;
    if (!last) {
        struct algo_place next = algo_scratch(a, all, a->call->exact);
        int step = join(a, prefix, own, next, all, false);
        read = next.made = algo_since(a, step);
        algo_send(a, next, all, a->topo->rank + 1, 0);
    }
    if (prefix.buffer != out.buffer || prefix.scratch != out.scratch)
        take_result(a, prefix, out, all, read);
    else
        algo_deliver(a, out, all, prefix.made, read);
}

void algo_scan(struct algo *a)
{
    int me = a->topo->rank;
    bool last = me + 1 == a->topo->ranks, scan = a->sched->kind == COLL_SCAN, exact = a->call->exact;
    struct sched_range all = algo_whole(a, SPACE_VECTOR, 0);
    a->sched->send_layout = a->sched->recv_layout = LAYOUT_VECTOR;
    bool reads = a->topo->ranks > 1 && (scan || !last);
    struct algo_place in = reads ? algo_input(a, SPACE_VECTOR, 0) : algo_user(BUF_SEND);
    if (me == 0) {
        begin_chain(a, in, all);
        return;
    }
    struct algo_place out = algo_output(a, SPACE_VECTOR, 0), prefix;
    struct algo_place own = reads ? widened(a, in, all) : in;
    /* exscan's prefix is its result: received where that belongs, if it needs no rounding and nothing stands there. */
    bool straight = !scan && !exact && (!a->call->in_place || out.buffer == BUF_SCRATCH);
    prefix = straight ? out : algo_scratch(a, all, exact);
    int step = algo_recv(a, prefix, all, me - 1, 0);
    prefix.made = algo_since(a, step);
    if (scan)
        scan_rank(a, prefix, own, out, all, last);
    else
        exscan_rank(a, prefix, own, out, all, last);
}
