/* Comparing the counts of pairs of ranks in a meeting: see tables.h. */
#include "core/tables.h"

#include <string.h>

#include "core/log.h"
#include "hetmpi.h"

static bool compared(const struct comm *comm, const struct call *call)
{
    return coll_traits(call->kind) & COLL_OWN_TABLE && comm->cfg->check && comm->one_node && comm->size <= TABLES_RANKS;
}

size_t tables_payload(const struct comm *comm, const struct call *call, size_t numbers[TABLES_ROOM])
{
    size_t n = (size_t)comm->size;

    if (!compared(comm, call))
        return 0;
    if (call->kind != COLL_ALLTOALLV && comm->rank != call->root) {
        numbers[0] = call->count;
        return 1;
    }
    memcpy(numbers, call->counts[SIDE_SEND], n * sizeof(*numbers));
    memcpy(numbers + n, call->counts[SIDE_RECV], n * sizeof(*numbers));
    return 2 * n;
}

/* Number i of what a rank posted. */
static size_t posted(const struct comm *comm, int rank, uint64_t number, int i)
{
    size_t value;

    memcpy(&value, meet_data(comm, rank, number) + (size_t)i * sizeof(value), sizeof(value));
    return value;
}

static int differ(const struct call *call, uint64_t number, int from, size_t sends, int to, size_t receives)
{
    return err_set(HETMPI_ERR_MISMATCH, "collective call %llu: the counts of ranks %d and %d differ: in %s rank %d "
                   "sends %zu elements to rank %d, which receives %zu", (unsigned long long)number, from, to,
                   coll_name(call->kind), from, sends, to, receives);
}

int tables_check(const struct comm *comm, const struct call *call, uint64_t number)
{
    int n = comm->size, root = call->root;

    if (!compared(comm, call))
        return HETMPI_SUCCESS;
    for (int a = 0; a < n; a++) {
        if (call->kind != COLL_ALLTOALLV) {
            size_t theirs = posted(comm, a, number, 0), ours = posted(comm, root, number, a);
            if (a == root || theirs == ours)
                continue;
            return call->kind == COLL_GATHERV ? differ(call, number, a, theirs, root, ours)
                                              : differ(call, number, root, ours, a, theirs);
        }
        for (int b = 0; b < n; b++) {
            size_t sends = posted(comm, a, number, b), receives = posted(comm, b, number, n + a);
            if (sends != receives)
                return differ(call, number, a, sends, b, receives);
        }
    }
    return HETMPI_SUCCESS;
}
