/*
 * Several nodes: the bytes that each node sends over the network are those that the bounds in src/algos say, with one
 * level and with two, and small blocks of alltoall go in as many messages as stated. Messages between nodes are counted
 * where they go to MPI: this program's own MPI_Isend stands before the library's.
 */
#include "common.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NODES = 8, N = 100003, SMALL_BLOCK = 64, LARGE_BLOCK = 20011 };

static struct { long bytes, messages; } sent[64];   /* by destination */
static int node_of[64], island_of[64], nodes, islands, island_node[64], island_ranks[64], node_ranks[MAX_NODES];

static void count_sent(int count, MPI_Datatype type, int dest, int tag)
{
    int size = 0;
    if (tag < 8192 && dest >= 0 && dest < t_ranks) {   /* meetings and notices have higher tags */
        MPI_Type_size(type, &size);
        sent[dest].bytes += (long)count * size;
        sent[dest].messages++;
    }
}

int MPI_Isend(const void *buf, int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm, MPI_Request *request)
{
    count_sent(count, type, dest, tag);
    return PMPI_Isend(buf, count, type, dest, tag, comm, request);
}

int MPI_Issend(const void *buf, int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm, MPI_Request *request)
{
    count_sent(count, type, dest, tag);
    return PMPI_Issend(buf, count, type, dest, tag, comm, request);
}

/* What each node sent to others since the last call, on every rank. */
struct traffic { long bytes[MAX_NODES], messages[MAX_NODES]; };

static struct traffic traffic(void)
{
    struct traffic mine, all;
    memset(&mine, 0, sizeof mine);
    for (int r = 0; r < t_ranks; r++) {
        if (node_of[r] != node_of[t_rank]) {
            mine.bytes[node_of[t_rank]] += sent[r].bytes;
            mine.messages[node_of[t_rank]] += sent[r].messages;
        }
        sent[r].bytes = sent[r].messages = 0;
    }
    T_MPI(MPI_Allreduce(&mine, &all, 2 * MAX_NODES, MPI_LONG, MPI_SUM, MPI_COMM_WORLD));
    return all;
}

static MPI_Comm attached(const char *levels)
{
    MPI_Comm comm;
    MPI_Info info;
    T_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    T_MPI(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    T_MPI(MPI_Info_create(&info));
    T_MPI(MPI_Info_set(info, "levels", levels));
    T_OK(hetmpi_comm_attach(comm, info));
    T_MPI(MPI_Info_free(&info));
    return comm;
}

enum kind { ALLREDUCE, REDUCE, BCAST, ALLGATHER, REDUCE_SCATTER_BLOCK, ALLTOALL_SMALL, ALLTOALL_LARGE, KINDS };
static const char *const names[] = { "allreduce", "reduce", "bcast", "allgather", "reduce_scatter_block",
                                     "alltoall of small blocks", "alltoall of large blocks" };
static int root;

static void run(enum kind kind, MPI_Comm comm, int *in, int *out)
{
    switch (kind) {
    case ALLREDUCE: T_OK(hetmpi_allreduce(in, out, N, MPI_INT, MPI_SUM, comm)); break;
    case REDUCE: T_OK(hetmpi_reduce(in, out, N, MPI_INT, MPI_SUM, root, comm)); break;
    case BCAST: T_OK(hetmpi_bcast(in, N, MPI_INT, root, comm)); break;
    case ALLGATHER: T_OK(hetmpi_allgather(in, N, MPI_INT, out, N, MPI_INT, comm)); break;
    case REDUCE_SCATTER_BLOCK: T_OK(hetmpi_reduce_scatter_block(in, out, N, MPI_INT, MPI_SUM, comm)); break;
    default: {
        size_t n = kind == ALLTOALL_SMALL ? SMALL_BLOCK : LARGE_BLOCK;
        T_OK(hetmpi_alltoall(in, n, MPI_INT, out, n, MPI_INT, comm));
    }
    }
}

/* Elements that a node sends over the network, with two levels. */
static double two_levels(enum kind kind, int node)
{
    double n = nodes, ranks = node_ranks[node], others = t_ranks - ranks;
    bool at_root = node == node_of[root];
    switch (kind) {
    case ALLREDUCE: return N * (n > 2 ? 2 * (n - 1) / n : 1);
    case REDUCE: return at_root ? 0 : N;
    case BCAST: return at_root ? N : N * (n - 2) / (n - 1);
    case ALLGATHER: return N * ranks * (n - 1);
    case REDUCE_SCATTER_BLOCK: return N * others;
    default: return (kind == ALLTOALL_SMALL ? SMALL_BLOCK : LARGE_BLOCK) * ranks * others;
    }
}

/* The same with one: what each island sends to those of other nodes. Of allreduce, reduce (k > 2) and bcast over k islands
 * each pair of islands gets as much as any other. */
static double one_level(enum kind kind, int node)
{
    double sum = 0, k = islands, ranks = node_ranks[node], others = t_ranks - ranks, far = 0, near = 0;
    int root_island = island_of[root];
    for (int i = 0; i < islands; i++)
        *(island_node[i] == node ? &near : &far) += 1;
    for (int i = 0; i < islands; i++) {
        if (island_node[i] != node)
            continue;
        switch (kind) {
        case ALLREDUCE: sum += 2 * N * far / k; break;
        case REDUCE: sum += k > 2 ? N / (k - 1) * far : node == node_of[root] ? 0 : N; break;
        case BCAST: sum += N / (k - 1) * (far - (i != root_island && node != node_of[root])); break;
        case ALLGATHER: sum += (double)N * island_ranks[i] * far; break;
        case REDUCE_SCATTER_BLOCK: sum += N * others; break;
        default: return two_levels(kind, node);
        }
    }
    return sum;
}

/* Messages of alltoall of small blocks: one for each rank of the smaller of two islands. */
static long gathered_messages(int node)
{
    long sum = 0;
    for (int i = 0; i < islands; i++)
        for (int j = 0; j < islands && island_node[i] == node; j++)
            if (island_node[j] != node)
                sum += island_ranks[i] < island_ranks[j] ? island_ranks[i] : island_ranks[j];
    return sum;
}

static void check(enum kind kind, int levels, const struct traffic *t)
{
    char line[512];
    size_t used = (size_t)snprintf(line, sizeof line, "%s, %d level%s:", names[kind], levels, levels > 1 ? "s" : "");
    for (int m = 0; m < nodes; m++) {
        double want = 4 * (levels == 2 ? two_levels(kind, m) : one_level(kind, m)), got = (double)t->bytes[m];
        /* Sub-ranges of which some stay at home begin at multiples of 16 elements: a little of each chunk. */
        bool parts = kind == ALLREDUCE || kind == BCAST || (kind == REDUCE && levels == 1);
        double slack = (levels == 1 || nodes > 2) && parts ? 0.02 * want : 0;
        T_CHECK(got <= want + slack && got >= want - slack, "%s, %d levels: node %d sends %.0f bytes, not %.0f",
                names[kind], levels, m, got, want);
        if (kind == ALLTOALL_SMALL && levels == 2)
            T_CHECK(t->messages[m] == gathered_messages(m), "%s: node %d sends %ld messages, not %ld", names[kind], m,
                    t->messages[m], gathered_messages(m));
        used += (size_t)snprintf(line + used, sizeof line - used, " node %d sends %ld bytes in %ld messages%s", m,
                                 t->bytes[m], t->messages[m], m + 1 < nodes ? "," : "");
    }
    if (t_rank == 0)
        printf("%s\n", line);
}

static void find_places(void)
{
    hetmpi_comm_info_t info;
    memset(&info, 0, sizeof info);
    T_OK(hetmpi_comm_info(MPI_COMM_WORLD, &info));
    nodes = info.nodes;
    islands = info.islands;
    T_MPI(MPI_Allgather(&info.node, 1, MPI_INT, node_of, 1, MPI_INT, MPI_COMM_WORLD));
    T_MPI(MPI_Allgather(&info.island, 1, MPI_INT, island_of, 1, MPI_INT, MPI_COMM_WORLD));
    for (int r = 0; r < t_ranks; r++) {
        node_ranks[node_of[r]]++;
        island_node[island_of[r]] = node_of[r];
        island_ranks[island_of[r]]++;
    }
}

int main(int argc, char **argv)
{
    t_begin(&argc, &argv, "nodes", MPI_THREAD_SINGLE);
    T_OK(hetmpi_comm_attach(MPI_COMM_WORLD, MPI_INFO_NULL));
    find_places();
    if (nodes < 2 || nodes > MAX_NODES)
        t_skip("%d nodes", nodes);
    MPI_Comm comms[] = { attached("1"), attached("2") };
    size_t all = (size_t)N * (size_t)t_ranks;
    int *in = t_malloc(all * sizeof *in), *out = t_malloc(all * sizeof *out);
    for (size_t i = 0; i < all; i++)
        in[i] = (int)t_hash64(1, (uint64_t)t_rank, i);
    root = t_ranks - 1;
    for (int levels = 1; levels <= 2; levels++)
        for (enum kind kind = 0; kind < KINDS; kind++) {
            t_stage("%s with %d levels", names[kind], levels);
            traffic();
            run(kind, comms[levels - 1], in, out);
            struct traffic t = traffic();
            check(kind, levels, &t);
        }
    free(in);
    free(out);
    T_MPI(MPI_Comm_free(&comms[0]));
    T_MPI(MPI_Comm_free(&comms[1]));
    return t_end();
}
