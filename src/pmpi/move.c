/*
 * Calls that only move data, on hetmpi as bytes. Each side of a call, what this rank gives and what it takes, is one
 * block or one a rank; where the type has gaps its data is packed into memory of ours, and unpacked from there.
 */
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>

#include "hetmpi.h"
#include "pmpi/layout.h"
#include "pmpi/pmpi.h"

#define FEW_RANKS 64

/* Which blocks of a side are copied between the program's buffer and ours. */
enum which { NO_BLOCKS, OWN_BLOCK, OTHER_BLOCKS, ALL_BLOCKS };

struct side {
    /* As the program gave it. */
    const void *buffer;
    MPI_Datatype type;
    long long count;
    struct pmpi_array item_counts, item_displs;
    bool used, table;                /* table: blocks of different lengths, with arrays */
    int blocks;                      /* 1, or one a rank */
    enum which packs, unpacks;
    /* As hetmpi takes it. */
    struct layout layout;
    char *base;
    size_t bytes;                    /* of each block, where all have the same length */
    size_t *counts, *displs;         /* else of each, in bytes */
    char *packed;
    size_t *few;                     /* room for the tables of few ranks */
};

struct move {
    const struct pmpi_args *args;
    int rank, ranks;
    bool in_place;
    struct side send, recv;
};

/* What became of a side. */
enum { RIGHT = MPI_SUCCESS, MPI_ANSWERS = INT_MIN };

static size_t block_count(const struct side *side, int block)
{
    return (size_t)(side->table ? pmpi_item(&side->item_counts, block) : side->count);
}

/* Bytes in front of a block among all that are packed. */
static size_t packed_offset(const struct side *side, int block)
{
    return side->counts ? side->displs[block] : (size_t)block * side->bytes;
}

static bool concerns(enum which which, int block, int own)
{
    return which == ALL_BLOCKS || (which == OWN_BLOCK && block == own) || (which == OTHER_BLOCKS && block != own);
}

/* ---- opening ---- */

static bool counts_right(const struct side *side)
{
    if (!side->table)
        return side->count >= 0;
    if (!side->item_counts.at || !side->item_displs.at)
        return false;
    for (int b = 0; b < side->blocks; b++)
        if (pmpi_item(&side->item_counts, b) < 0)
            return false;
    return true;
}

/* Lengths and places in bytes. Displacements may be negative: hetmpi's count from the lowest one. */
static size_t fill_tables(struct side *side)
{
    bool in_buffer = side->layout.plain;
    long long lowest = LLONG_MAX;
    size_t total = 0;

    for (int b = 0; b < side->blocks && in_buffer; b++) {
        long long at = pmpi_item(&side->item_displs, b) * (long long)side->layout.extent;
        if (at < lowest && block_count(side, b))
            lowest = at;
    }
    for (int b = 0; b < side->blocks; b++) {
        side->counts[b] = block_count(side, b) * side->layout.size;
        side->displs[b] = total;
        if (in_buffer)
            side->displs[b] = !side->counts[b] ? 0 : (size_t)(pmpi_item(&side->item_displs, b) *
                                                              (long long)side->layout.extent - lowest);
        total += side->counts[b];
    }
    if (total && in_buffer)
        side->base = (char *)((uintptr_t)side->base + (uintptr_t)lowest);
    return total;
}

/* Where a block lies in the program's buffer. */
static void *block_at(const struct side *side, int block)
{
    long long elements = side->table ? pmpi_item(&side->item_displs, block) : block * side->count;

    return layout_at(side->buffer, &side->layout, elements);
}

static int pack(const struct move *move, struct side *side, size_t total)
{
    side->packed = malloc(total);
    if (!side->packed)
        return pmpi_error(move->args->comm, MPI_ERR_NO_MEM, "pmpi: no memory (%zu bytes) to pack a data type with gaps",
                          total);
    side->base = side->packed;
    for (int b = 0; b < side->blocks; b++) {
        int code = RIGHT;
        if (concerns(side->packs, b, move->rank))
            code = layout_pack(move->args->comm, &side->layout, block_at(side, b), block_count(side, b),
                               side->packed + packed_offset(side, b));
        if (code)
            return code;
    }
    return RIGHT;
}

static int open_side(const struct move *move, struct side *side)
{
    MPI_Comm comm = move->args->comm;
    size_t total;

    if (!side->used)
        return RIGHT;
    if (side->type == MPI_DATATYPE_NULL || side->buffer == MPI_IN_PLACE || !counts_right(side))
        return MPI_ANSWERS;
    if (layout_of(comm, side->type, &side->layout))
        return MPI_ANSWERS;
    side->base = (char *)(uintptr_t)side->buffer;
    if (side->table) {
        side->counts = side->few;
        if (side->blocks > FEW_RANKS)
            side->counts = malloc(2 * (size_t)side->blocks * sizeof(*side->counts));
        if (!side->counts)
            return pmpi_error(comm, MPI_ERR_NO_MEM, "pmpi: no memory for the counts of %d ranks", side->blocks);
        side->displs = side->counts + side->blocks;
        total = fill_tables(side);
    } else {
        side->bytes = (size_t)side->count * side->layout.size;
        total = (size_t)side->blocks * side->bytes;
    }
    if (!total)
        return RIGHT;
    if (!side->layout.plain)
        return pack(move, side, total);
    return side->buffer ? RIGHT : MPI_ANSWERS;
}

/* ---- closing ---- */

static int unpack(const struct move *move, const struct side *side)
{
    int code = RIGHT;

    for (int b = 0; b < side->blocks && side->packed && !code; b++)
        if (concerns(side->unpacks, b, move->rank))
            code = layout_unpack(move->args->comm, &side->layout, side->packed + packed_offset(side, b),
                                 block_count(side, b), block_at(side, b));
    return code;
}

static void free_side(struct side *side)
{
    free(side->packed);
    if (side->counts != side->few)
        free(side->counts);
}

/* ---- the calls ---- */

/* Which sides this rank has, and what of them is copied. */
static void describe_sides(struct move *move, bool root)
{
    struct side *send = &move->send, *recv = &move->recv;

    switch (move->args->call) {
    case PMPI_CALL_BCAST:
        recv->used = true;
        recv->packs = root ? ALL_BLOCKS : NO_BLOCKS;
        recv->unpacks = root ? NO_BLOCKS : ALL_BLOCKS;
        break;
    case PMPI_CALL_ALLGATHERV:
        recv->table = true;
        /* fall through */
    case PMPI_CALL_ALLGATHER:
        send->used = !move->in_place;
        recv->used = true;
        recv->blocks = move->ranks;
        recv->packs = move->in_place ? OWN_BLOCK : NO_BLOCKS;
        recv->unpacks = move->in_place ? OTHER_BLOCKS : ALL_BLOCKS;
        break;
    case PMPI_CALL_GATHERV:
        recv->table = true;
        /* fall through */
    case PMPI_CALL_GATHER:
        send->used = !move->in_place;
        recv->used = root;
        recv->blocks = move->ranks;
        recv->unpacks = move->in_place ? OTHER_BLOCKS : ALL_BLOCKS;
        break;
    case PMPI_CALL_SCATTERV:
        send->table = true;
        /* fall through */
    case PMPI_CALL_SCATTER:
        send->used = root;
        send->blocks = move->ranks;
        send->packs = move->in_place ? OTHER_BLOCKS : ALL_BLOCKS;
        recv->used = !move->in_place;
        recv->unpacks = ALL_BLOCKS;
        break;
    case PMPI_CALL_ALLTOALLV:
        send->table = recv->table = true;
        /* fall through */
    default:   /* alltoall */
        send->used = !move->in_place;
        recv->used = true;
        send->blocks = recv->blocks = move->ranks;
        recv->packs = move->in_place ? ALL_BLOCKS : NO_BLOCKS;
        recv->unpacks = ALL_BLOCKS;
    }
}

/* The call of bytes; a side that this rank has not is empty. */
static int run(const struct move *move)
{
    const struct pmpi_args *args = move->args;
    const struct side *send = &move->send, *recv = &move->recv;
    const void *from = move->in_place ? MPI_IN_PLACE : send->base;
    int root = args->root;
    MPI_Comm comm = args->comm;

    switch (args->call) {
    case PMPI_CALL_BCAST:
        return hetmpi_bcast(recv->base, recv->bytes, MPI_BYTE, root, comm);
    case PMPI_CALL_ALLGATHER:
        return hetmpi_allgather(from, send->bytes, MPI_BYTE, recv->base, recv->bytes, MPI_BYTE, comm);
    case PMPI_CALL_ALLGATHERV:
        return hetmpi_allgatherv(from, send->bytes, MPI_BYTE, recv->base, recv->counts, recv->displs, MPI_BYTE, comm);
    case PMPI_CALL_GATHER:
        return hetmpi_gather(from, send->bytes, MPI_BYTE, recv->base, recv->bytes, MPI_BYTE, root, comm);
    case PMPI_CALL_GATHERV:
        return hetmpi_gatherv(from, send->bytes, MPI_BYTE, recv->base, recv->counts, recv->displs, MPI_BYTE, root,
                              comm);
    case PMPI_CALL_SCATTER:
        return hetmpi_scatter(send->base, send->bytes, MPI_BYTE, move->in_place ? MPI_IN_PLACE : recv->base,
                              recv->bytes, MPI_BYTE, root, comm);
    case PMPI_CALL_SCATTERV:
        return hetmpi_scatterv(send->base, send->counts, send->displs, MPI_BYTE,
                               move->in_place ? MPI_IN_PLACE : recv->base, recv->bytes, MPI_BYTE, root, comm);
    case PMPI_CALL_ALLTOALL:
        return hetmpi_alltoall(from, send->bytes, MPI_BYTE, recv->base, recv->bytes, MPI_BYTE, comm);
    default:
        return hetmpi_alltoallv(from, send->counts, send->displs, MPI_BYTE, recv->base, recv->counts, recv->displs,
                                MPI_BYTE, comm);
    }
}

static bool move_data(struct move *move, int *answer)
{
    int code = open_side(move, &move->send);

    if (!code)
        code = open_side(move, &move->recv);
    if (code == MPI_ANSWERS)
        return false;
    if (!code)
        code = pmpi_answer(run(move));
    if (!code)
        code = unpack(move, &move->recv);
    *answer = code;
    return true;
}

bool pmpi_move(const struct pmpi_args *args, int *answer)
{
    size_t few[2][2 * FEW_RANKS];
    struct move move = {
        .args = args,
        .send = {.buffer = args->sendbuf, .type = args->sendtype, .count = args->sendcount, .blocks = 1,
                 .item_counts = args->sendcounts, .item_displs = args->sdispls, .packs = ALL_BLOCKS, .few = few[0]},
        .recv = {.buffer = args->recvbuf, .type = args->recvtype, .count = args->recvcount, .blocks = 1,
                 .item_counts = args->recvcounts, .item_displs = args->rdispls, .few = few[1]},
    };
    bool rooted = pmpi_traits(args->call) & COLL_ROOTED, root, served;

    if (args->call == PMPI_CALL_BARRIER) {
        *answer = pmpi_answer(hetmpi_barrier(args->comm));
        return true;
    }
    PMPI_Comm_rank(args->comm, &move.rank);
    PMPI_Comm_size(args->comm, &move.ranks);
    if (rooted && (args->root < 0 || args->root >= move.ranks))
        return false;
    root = args->root == move.rank;
    if (args->call == PMPI_CALL_SCATTER || args->call == PMPI_CALL_SCATTERV)
        move.in_place = args->recvbuf == MPI_IN_PLACE;
    else
        move.in_place = args->call != PMPI_CALL_BCAST && args->sendbuf == MPI_IN_PLACE;
    if (move.in_place && rooted && !root)
        return false;
    describe_sides(&move, root);
    served = move_data(&move, answer);
    free_side(&move.send);
    free_side(&move.recv);
    return served;
}
