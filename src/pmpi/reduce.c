/* Reductions on hetmpi: the arguments stand as they are, since every rank gives the same type. */
#include <stdlib.h>

#include "hetmpi.h"
#include "pmpi/pmpi.h"

#define FEW_RANKS 64

long long pmpi_item(const struct pmpi_array *array, int index)
{
    return array->width == sizeof(int) ? ((const int *)array->at)[index] : ((const long long *)array->at)[index];
}
_Static_assert(sizeof(MPI_Count) == sizeof(long long) && sizeof(MPI_Aint) == sizeof(long long),
               "counts are int or long long");

/* Buffers and counts that MPI allows on this rank. */
static bool right(const struct pmpi_args *args, size_t count, bool receives)
{
    if (!count)
        return true;
    if (!args->sendbuf || (receives && (!args->recvbuf || args->recvbuf == MPI_IN_PLACE)))
        return false;
    return args->sendbuf != MPI_IN_PLACE || (receives && args->recvbuf);
}

/* The counts of reduce_scatter; false if there are none, or negative ones. */
static bool read_counts(const struct pmpi_args *args, int ranks, size_t *counts, size_t *total)
{
    *total = 0;
    for (int r = 0; r < ranks; r++) {
        long long count = pmpi_item(&args->recvcounts, r);
        if (count < 0)
            return false;
        counts[r] = (size_t)count;
        *total += counts[r];
    }
    return true;
}

static bool reduce_scatter(const struct pmpi_args *args, int *answer)
{
    size_t few[FEW_RANKS], *counts = few, total;
    int ranks, rank;
    bool served = false;

    PMPI_Comm_size(args->comm, &ranks);
    PMPI_Comm_rank(args->comm, &rank);
    if (!args->recvcounts.at)
        return false;
    if (ranks > FEW_RANKS)
        counts = malloc((size_t)ranks * sizeof(*counts));
    if (!counts) {
        *answer = pmpi_error(args->comm, MPI_ERR_NO_MEM, "reduce_scatter: no memory for the counts of %d ranks", ranks);
        return true;
    }
    if (read_counts(args, ranks, counts, &total) && args->recvbuf != MPI_IN_PLACE &&
        (!total || args->sendbuf) && (!counts[rank] || args->recvbuf)) {
        *answer = pmpi_answer(hetmpi_reduce_scatter(args->sendbuf, args->recvbuf, counts, args->recvtype, args->op,
                                                    args->comm));
        served = true;
    }
    if (counts != few)
        free(counts);
    return served;
}

bool pmpi_reduce(const struct pmpi_args *args, int *answer)
{
    size_t count = (size_t)args->recvcount;
    int rank = 0, ranks, code;
    bool receives = true;

    if (args->recvcount < 0)
        return false;
    if (args->call == PMPI_CALL_REDUCE || args->call == PMPI_CALL_EXSCAN)
        PMPI_Comm_rank(args->comm, &rank);
    if (args->call == PMPI_CALL_REDUCE) {
        PMPI_Comm_size(args->comm, &ranks);
        if (args->root < 0 || args->root >= ranks)
            return false;
        receives = rank == args->root;
    }
    if (args->call == PMPI_CALL_EXSCAN)
        receives = rank != 0 || args->sendbuf == MPI_IN_PLACE;
    if (args->call != PMPI_CALL_REDUCE_SCATTER && !right(args, count, receives))
        return false;
    switch (args->call) {
    case PMPI_CALL_ALLREDUCE:
        code = hetmpi_allreduce(args->sendbuf, args->recvbuf, count, args->recvtype, args->op, args->comm);
        break;
    case PMPI_CALL_REDUCE:
        code = hetmpi_reduce(args->sendbuf, args->recvbuf, count, args->recvtype, args->op, args->root, args->comm);
        break;
    case PMPI_CALL_REDUCE_SCATTER_BLOCK:
        code = hetmpi_reduce_scatter_block(args->sendbuf, args->recvbuf, count, args->recvtype, args->op, args->comm);
        break;
    case PMPI_CALL_SCAN:
        code = hetmpi_scan(args->sendbuf, args->recvbuf, count, args->recvtype, args->op, args->comm);
        break;
    case PMPI_CALL_EXSCAN:
        code = hetmpi_exscan(args->sendbuf, args->recvbuf, count, args->recvtype, args->op, args->comm);
        break;
    default:
        return reduce_scatter(args, answer);
    }
    *answer = pmpi_answer(code);
    return true;
}
