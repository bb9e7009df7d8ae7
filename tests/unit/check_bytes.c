/*
 * Symbolic checker of schedules: bytes on the wires. With one level what an island sends, and each rank's share of that;
 * with two levels what crosses the network, and apart from it what stays inside a node.
 */
#include "algos/levels.h"
#include "check_inside.h"

/* Elements of a rank's block, or of what it sends to another, that lie in the chunk. */
static double piece_of(const struct check *k, int rank, int block, int variant)
{
    struct sched_chunk c = check_chunk(k, rank, BUF_SEND, variant);
    return (double)sched_piece(&c, block);
}

/* Which other islands' blocks. */
enum whose { OF_ALL, OF_MATES, OF_FAR, THROUGH_GATE, PAST_GATE };

static bool counts(const struct topo *t, int own, int island, enum whose whose)
{
    int node = t->island_node[own];
    bool far = t->island_node[island] != node;
    if (island == own || whose == OF_ALL)
        return island != own;
    if (!far || whose == OF_MATES)
        return whose == OF_MATES && !far;
    return whose == OF_FAR || (algo_gate(t, node, island) == own) == (whose == THROUGH_GATE);
}

/* Elements of the blocks of other islands that the rank carries by weight, or its island. */
static double carried(const struct check *k, int rank, int variant, bool share, enum whose whose)
{
    const struct topo *t = k->topo;
    int own = t->island_of[rank], size = topo_island_size(t, own), p = t->position_of[rank];
    double total = (double)topo_weight_before(t, own, size), sum = 0;
    double lo = share ? (double)topo_weight_before(t, own, p) / total : 0;
    double hi = share ? (double)topo_weight_before(t, own, p + 1) / total : 1;
    for (int j = 0; j < t->islands; j++) {
        int blocks = topo_island_size(t, j);
        if (!counts(t, own, j, whose))
            continue;
        for (int b = 0; b < blocks; b++) {
            double from = lo * blocks > b ? lo * blocks : b, to = hi * blocks < b + 1 ? hi * blocks : b + 1;
            if (from < to)
                sum += piece_of(k, rank, topo_member(t, j, b), variant) * (to - from);
        }
    }
    return sum;
}

/* What the island sends when each of its ranks sends so much. */
static double sum_over(const struct check *k, int rank, int variant, bool share,
                       double (*one)(const struct check *, int, int))
{
    const struct topo *t = k->topo;
    int island = t->island_of[rank];
    double sum = 0;
    if (share)
        return one(k, rank, variant);
    for (int p = 0; p < topo_island_size(t, island); p++)
        sum += one(k, topo_member(t, island, p), variant);
    return sum;
}

static double own_block(const struct check *k, int rank, int variant) { return piece_of(k, rank, rank, variant); }

static double to_others(const struct check *k, int rank, int variant)
{
    double sum = 0;
    if ((coll_traits(k->c->call.kind) & COLL_ROOTED) && rank != k->c->call.root)
        return 0;
    for (int r = 0; r < k->topo->ranks; r++)
        sum += r == rank ? 0 : k->c->call.in_place && k->c->call.kind == COLL_ALLTOALLV
               ? (double)sched_piece(&(struct sched_chunk){(size_t)variant * k->c->chunk, k->L[variant],
                                                           k->machines[rank].counts[1]}, r)
               : piece_of(k, rank, r, variant);
    return sum;
}

static double to_root(const struct check *k, int rank, int variant)
{
    return rank == k->c->call.root ? 0 : own_block(k, rank, variant);
}

static double along_chain(const struct check *k, int rank, int variant)
{
    return rank + 1 < k->topo->ranks ? (double)k->L[variant] : 0;
}

/* Elements that a rank may send for a chunk of L, all islands of its own counted if `share` is not set, and how many
 * more rounding may make it. */
struct bound { double elements, slack; };

static struct bound bound_of(const struct check *k, int rank, bool share, int variant, double segments)
{
    size_t L = k->L[variant];
    const struct topo *t = k->topo;
    int island = t->island_of[rank], position = t->position_of[rank];
    double islands = t->islands, size = topo_island_size(t, island), part = 1, length = (double)L, grain = 1;
    if (share)
        part = (double)(topo_weight_before(t, island, position + 1) - topo_weight_before(t, island, position)) /
               (double)topo_weight_before(t, island, (int)size);
    /* Cuts are rounded down, to a multiple of SCHED_ALIGN in long spaces. */
    if (L * (size_t)t->ranks >= SCHED_ALIGN_FROM)
        grain = SCHED_ALIGN;
    bool root = t->islands > 1 && t->island_of[k->c->call.root] == island;
    double cut = share ? grain : 0;
    switch (k->c->call.kind) {
    case COLL_ALLREDUCE:
        return (struct bound){2 * length * (islands - 1) / islands * part,
                              2 * cut + (islands - 2) * grain * segments};
    case COLL_REDUCE:
        return (struct bound){islands < 2 || (root && islands < 3) ? 0 : length * part, cut};
    case COLL_BCAST:
        if (islands < 2)
            return (struct bound){0, 0};
        return root ? (struct bound){length * part, cut}
                    : (struct bound){length * (islands - 2) / (islands - 1) * part,
                                     islands > 2 ? cut + (islands - 2) * grain * segments : 0};
    case COLL_ALLGATHER:
    case COLL_ALLGATHERV:
        return (struct bound){sum_over(k, rank, variant, share, own_block) * (islands - 1), 0};
    case COLL_REDUCE_SCATTER_BLOCK:
    case COLL_REDUCE_SCATTER:
        return (struct bound){carried(k, rank, variant, share, OF_ALL), cut * (islands - 1)};
    case COLL_GATHER:
    case COLL_GATHERV:
        if (k->c->call.straight)
            return (struct bound){sum_over(k, rank, variant, share, to_root), 0};
        return (struct bound){root || islands < 2 ? 0 : sum_over(k, rank, variant, share, own_block), 0};
    case COLL_SCATTER:
    case COLL_SCATTERV:
        if (k->c->call.straight)
            return (struct bound){sum_over(k, rank, variant, share, to_others), 0};
        return (struct bound){root ? carried(k, rank, variant, share, OF_ALL) : 0, root ? cut * (islands - 1) : 0};
    case COLL_ALLTOALL:
    case COLL_ALLTOALLV:
        return (struct bound){sum_over(k, rank, variant, share, to_others), 0};
    case COLL_SCAN:
    case COLL_EXSCAN:
        return (struct bound){sum_over(k, rank, variant, share, along_chain), 0};
    default:
        return (struct bound){0, 0};
    }
}

/* Two levels: the part of a segment that an island of a node carries, at most and at least. Slices are as many as give
 * all islands of all nodes equal parts, unless that were more than 12. */
static void carried_part(const struct topo *t, int node, double *most, double *least)
{
    int common = 1, largest = 1, k = topo_node_islands(t, node);
    for (int m = 0; m < t->nodes; m++) {
        int x = topo_node_islands(t, m), multiple = common;
        largest = x > largest ? x : largest;
        while (common <= 12 && multiple % x)
            multiple += common;
        common = multiple;
    }
    int slices = common <= 12 ? common : largest;
    *most = (double)((slices + k - 1) / k) / slices;
    *least = (double)(slices / k) / slices;
}

/* A rank's share of its island's part of a vector, or all of it. */
static double weight_share(const struct topo *t, int rank, bool share)
{
    int island = t->island_of[rank], p = t->position_of[rank];
    return !share ? 1 : (double)(topo_weight_before(t, island, p + 1) - topo_weight_before(t, island, p)) /
                        (double)topo_weight_before(t, island, topo_island_size(t, island));
}

/* What may cross the network, and what may stay inside the node. */
struct two { double far, near; };

static struct two two_level_bound(const struct check *k, int rank, bool share, int variant)
{
    const struct topo *t = k->topo;
    int island = t->island_of[rank], node = t->island_node[island], root = t->island_of[k->c->call.root];
    double n = t->nodes, mates = topo_node_islands(t, node), most, least, own;
    double part = (double)k->L[variant] * weight_share(t, rank, share);
    bool at_root = node == t->island_node[root];
    carried_part(t, node, &most, &least);
    switch (k->c->call.kind) {
    case COLL_ALLREDUCE:
        return (struct two){part * most * (n > 2 ? 2 * (n - 1) / n : 1), part * (1 - least + most * (mates - 1))};
    case COLL_REDUCE:
        return (struct two){at_root ? 0 : part * most, part * (1 - least + (at_root && island != root ? most : 0))};
    case COLL_BCAST:
        if (island == root)
            return (struct two){part * most, part * (1 - least + most * (mates - 1))};
        return (struct two){part * most * (at_root ? 1 : (n - 2) / (n - 1)), part * most * (mates - (at_root ? 2 : 1))};
    case COLL_ALLGATHER:
    case COLL_ALLGATHERV:
        own = sum_over(k, rank, variant, share, own_block);
        return (struct two){own * (n - 1),
                            (own + carried(k, rank, variant, share, THROUGH_GATE)) * (mates - 1)};
    default:
        return (struct two){carried(k, rank, variant, share, THROUGH_GATE),
                            carried(k, rank, variant, share, PAST_GATE) + carried(k, rank, variant, share, OF_MATES)};
    }
}

/* What a node sends over the network at least, so at most too, but for rounding. */
static double node_bound(const struct check *k, int node, int variant)
{
    const struct topo *t = k->topo;
    double L = (double)k->L[variant], n = t->nodes, sum = 0;
    bool at_root = node == t->island_node[t->island_of[k->c->call.root]];
    switch (k->c->call.kind) {
    case COLL_ALLREDUCE: return n > 2 ? 2 * L * (n - 1) / n : L;
    case COLL_REDUCE: return at_root ? 0 : L;
    case COLL_BCAST: return at_root ? L : L * (n - 2) / (n - 1);
    default: break;
    }
    bool gathers = k->c->call.kind == COLL_ALLGATHER || k->c->call.kind == COLL_ALLGATHERV;
    for (int r = 0; r < t->ranks; r++)
        if (gathers ? t->node_of[r] == node : t->node_of[r] != node)
            sum += own_block(k, r, variant) * (gathers ? n - 1 : 1);
    return sum;
}

/* Alltoall by agents. messages: most that may cross the network. */
static struct two gathered_bound(const struct check *k, int rank, bool share, int variant, double *messages)
{
    const struct topo *t = k->topo;
    int own = t->island_of[rank], p = topo_island_size(t, own);
    double L = (double)k->L[variant], each = share ? 1 : p;
    struct two b = {0, 0};
    *messages = 0;
    for (int j = 0; j < t->islands; j++) {
        int q = topo_island_size(t, j);
        if (t->island_node[j] == t->island_node[own]) {
            b.near += L * (j == own ? q - 1 : q) * each;
            continue;
        }
        *messages += share ? 1 : p < q ? p : q;
        b.far += share ? L * (p > q ? p : q) : L * p * q;
        b.near += p >= q ? L * q * each : L * 0;
        b.near += q < p ? L * (p - 1) * (share ? 1 : q) : 0;
    }
    return b;
}

struct sums { double far, near, far_messages, near_messages, received, receives; };

static struct sums sums_of(const struct check *k, int rank, int variant)
{
    const struct topo *t = k->topo;
    const struct machine *m = &k->machines[rank];
    struct sums s = {0};
    for (int i = 0; i < m->sched->n_steps; i++) {
        const struct sched_step *p = &m->sched->steps[i];
        s.receives += p->kind == STEP_RECV;
        s.received += p->kind == STEP_RECV ? (double)m->uses[variant][use_out(i)].length : 0;
        if (p->kind != STEP_SEND)
            continue;
        double length = (double)m->uses[variant][use_in(i)].length;
        bool far = t->node_of[p->peer] != t->node_of[rank];
        s.far += far ? length : 0;
        s.near += far ? 0 : length;
        s.far_messages += far;
        s.near_messages += !far;
    }
    return s;
}

static void add_sums(struct sums *to, struct sums s)
{
    to->far += s.far;
    to->near += s.near;
    to->far_messages += s.far_messages;
    to->near_messages += s.near_messages;
    to->received += s.received;
    to->receives += s.receives;
}

static void over(struct check *k, const char *who, int number, const char *where, double sent, double bound,
                 double slack, int variant)
{
    if (sent > bound + slack + 1e-6)
        check_fail(k, "%s %d sends %.0f elements of a chunk of %zu %s, its share is %.1f + %.0f", who, number, sent,
                   k->L[variant], where, bound, slack);
}

static const char *const network = "over the network", *const inside = "inside its node";

/* An island of a chunk, and its ranks; returns what it sends. */
static struct sums check_island(struct check *k, int island, int variant)
{
    const struct topo *t = k->topo;
    bool gathered = k->c->call.gathered;
    size_t L = k->L[variant];
    double grain = L * (size_t)t->ranks >= SCHED_ALIGN_FROM ? SCHED_ALIGN : 1, most = 0;
    struct sums all = {0};
    struct two b;
    int rank = 0;
    for (int p = 0; p < topo_island_size(t, island); p++) {
        rank = topo_member(t, island, p);
        struct sums s = sums_of(k, rank, variant);
        b = gathered ? gathered_bound(k, rank, true, variant, &most) : two_level_bound(k, rank, true, variant);
        double slack = gathered ? 0 : grain;
        over(k, "rank", rank, network, s.far, b.far, slack * (s.far_messages + 2), variant);
        over(k, "rank", rank, inside, s.near, b.near, slack * (s.near_messages + 2), variant);
        add_sums(&all, s);
    }
    b = gathered ? gathered_bound(k, rank, false, variant, &most) : two_level_bound(k, rank, false, variant);
    double slack = gathered ? 0 : grain;
    over(k, "island", island, network, all.far, b.far, slack * all.far_messages, variant);
    over(k, "island", island, inside, all.near, b.near, slack * all.near_messages, variant);
    if (gathered && all.far_messages > most)
        check_fail(k, "island %d sends %.0f messages over the network, at most %.0f", island, all.far_messages, most);
    return all;
}

static void check_two_levels(struct check *k, int variant)
{
    const struct topo *t = k->topo;
    enum coll_kind kind = k->c->call.kind;
    double grain = k->L[variant] * (size_t)t->ranks >= SCHED_ALIGN_FROM ? SCHED_ALIGN : 1;
    for (int m = 0; m < t->nodes; m++) {
        struct sums all = {0};
        for (int i = 0; i < topo_node_islands(t, m); i++)
            add_sums(&all, check_island(k, topo_mate(t, m, i), variant));
        /* Only sub-ranges of which some stay at home are rounded. */
        bool rounded = t->nodes > 2 && (kind == COLL_ALLREDUCE || kind == COLL_BCAST);
        if (!k->c->call.gathered)
            over(k, "node", m, network, all.far, node_bound(k, m, variant), rounded ? grain * all.far_messages : 0,
                 variant);
    }
}

/* Reduce: where all islands have something for one, what that one receives is a bound too. In another than the root's
 * it is sub-ranges, which are rounded. */
static void check_received(struct check *k, int island, int variant)
{
    struct sums all = {0};
    for (int p = 0; p < topo_island_size(k->topo, island); p++)
        add_sums(&all, sums_of(k, topo_member(k->topo, island, p), variant));
    double L = (double)k->L[variant], grain = k->L[variant] * (size_t)k->topo->ranks >= SCHED_ALIGN_FROM ? SCHED_ALIGN : 1;
    double slack = island == k->topo->island_of[k->c->call.root] ? 0 : grain * all.receives;
    if (all.received > L + slack + 1e-6)
        check_fail(k, "island %d receives %.0f elements of a chunk of %zu, at most %.0f + %.0f", island, all.received,
                   k->L[variant], L, slack);
}

static void check_one_level(struct check *k, int v)
{
    const struct topo *t = k->topo;
    for (int i = 0; i < t->islands; i++) {
        struct sums all = {0};
        double per = t->islands > 2 ? t->islands - 2 : 1;   /* messages of a segment */
        for (int p = 0; p < topo_island_size(t, i); p++) {
            int r = topo_member(t, i, p);
            struct sums s = sums_of(k, r, v);
            struct bound b = bound_of(k, r, true, v, t->islands > 1 ? (s.far_messages + s.near_messages) / per : 0);
            over(k, "rank", r, "to others", s.far + s.near, b.elements, b.slack, v);
            add_sums(&all, s);
        }
        struct bound b = bound_of(k, topo_member(t, i, 0), false, v,
                                  t->islands > 1 ? (all.far_messages + all.near_messages) / per : 0);
        over(k, "island", i, "to others", all.far + all.near, b.elements, b.slack, v);
    }
}

/* Bounds hold for each chunk. */
void check_wire_bytes(struct check *k)
{
    for (int v = 0; v < k->variants && k->chunks; v++) {
        if (check_by_nodes(k) || k->c->call.gathered)
            check_two_levels(k, v);
        else
            check_one_level(k, v);
        for (int i = 0; i < k->topo->islands && k->c->call.kind == COLL_REDUCE && !check_by_nodes(k) && !k->failed; i++)
            check_received(k, i, v);
    }
}
