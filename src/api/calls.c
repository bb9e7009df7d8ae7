/*
 * Checking the arguments of collectives: everything that a rank can find wrong by itself, before anything is changed,
 * and the call in hetmpi's terms.
 */
#include "api/calls.h"

#include <string.h>

#include "core/log.h"
#include "core/tables.h"

/* What a buffer holds on this rank. */
enum shape { SHAPE_NONE, SHAPE_VECTOR, SHAPE_BLOCK, SHAPE_BLOCKS };

/* The arguments of one side of a call. */
struct side {
    const char *buffer, *count, *type_name;   /* the arguments' names */
    bool used;
    MPI_Datatype type;
    size_t number;
    const size_t *counts, *displs;
};

/* Bytes of a buffer that a call reads or writes, from its start. */
struct span { size_t first, last; };

static bool two_types(enum coll_kind kind)
{
    switch (kind) {
    case COLL_ALLGATHER:
    case COLL_ALLGATHERV:
    case COLL_GATHER:
    case COLL_GATHERV:
    case COLL_SCATTER:
    case COLL_SCATTERV:
    case COLL_ALLTOALL:
    case COLL_ALLTOALLV:
        return true;
    default:
        return false;
    }
}

/* Where MPI lets MPI_IN_PLACE be given by all ranks or by none. */
static bool all_in_place(enum coll_kind kind)
{
    switch (kind) {
    case COLL_ALLREDUCE:
    case COLL_ALLGATHER:
    case COLL_ALLGATHERV:
    case COLL_ALLTOALL:
    case COLL_ALLTOALLV:
        return true;
    default:
        return false;
    }
}

static bool scatters(enum coll_kind kind) { return kind == COLL_SCATTER || kind == COLL_SCATTERV; }
static bool gathers(enum coll_kind kind) { return kind == COLL_GATHER || kind == COLL_GATHERV; }

static int check_premul(const struct raw *raw, const struct types_premul *premul, struct call *call)
{
    if (premul->type != call->type)
        return err_set(HETMPI_ERR_OP, "%s: this premultiplied sum was made for %s, the data are %s: make one with a scalar "
                       "of their type", raw->function, red_type_name(premul->type), red_type_name(call->type));
    call->op = RED_SUM;
    call->premul = true;
    memcpy(call->scale, premul->scale, sizeof(call->scale));
    return HETMPI_SUCCESS;
}

static int check_op(const struct raw *raw, struct call *call)
{
    struct types_premul premul;
    int code = types_find_op(raw->op, &call->op);

    if (code == HETMPI_ERR_OP && types_find_premul(raw->op, &premul))
        return check_premul(raw, &premul, call);
    if (code == HETMPI_ERR_OP)
        return err_set(code, "%s: the operation is none that hetmpi knows (user-defined ones are not supported)",
                       raw->function);
    if (code)
        return code;
    if (!red_supported(call->type, call->op))
        return err_set(HETMPI_ERR_OP, "%s: %s does not exist for %s (the table is in hetmpi.h)", raw->function,
                       red_op_name(call->op), red_type_name(call->type));
    if (coll_traits(call->kind) & COLL_CHAIN && call->op == RED_AVG)
        return err_set(HETMPI_ERR_OP, "%s: HETMPI_AVG has no meaning for the first ranks alone: use MPI_SUM",
                       raw->function);
    return HETMPI_SUCCESS;
}

/* Which arguments count on this rank. */
static void sides_of(const struct comm *comm, const struct raw *raw, struct side side[2])
{
    bool root = comm->rank == raw->root;

    side[SIDE_SEND] = (struct side){"sendbuf", raw->sendcounts ? "sendcounts" : "sendcount", "sendtype", true,
                                    raw->sendtype, raw->sendcount, raw->sendcounts, raw->sdispls};
    side[SIDE_RECV] = (struct side){"recvbuf", raw->recvcounts ? "recvcounts" : "recvcount", "recvtype", true,
                                    raw->recvtype, raw->recvcount, raw->recvcounts, raw->rdispls};
    if (!two_types(raw->kind)) {
        side[SIDE_SEND].used = false;
    } else if (scatters(raw->kind)) {
        side[SIDE_SEND].used = root;
        side[SIDE_RECV].used = !root || raw->recvbuf != MPI_IN_PLACE;
    } else {
        side[SIDE_SEND].used = raw->sendbuf != MPI_IN_PLACE;
        side[SIDE_RECV].used = !gathers(raw->kind) || root;
    }
}

static int check_types(const struct raw *raw, const struct side side[2], struct call *call)
{
    enum red_type other;
    int code, main = side[SIDE_RECV].used ? SIDE_RECV : SIDE_SEND;

    code = types_want(raw->function, side[main].type, &call->type);
    if (code || main == SIDE_SEND || !side[SIDE_SEND].used)
        return code;
    code = types_want(raw->function, side[SIDE_SEND].type, &other);
    if (!code && other != call->type)
        code = err_set(HETMPI_ERR_TYPE, "%s: sendtype is %s, recvtype %s: they must be the same", raw->function,
                       red_type_name(other), red_type_name(call->type));
    return code;
}

static int too_many(const struct comm *comm, const struct raw *raw, const struct call *call, size_t count)
{
    if (count > SIZE_MAX / 2)
        return err_set(HETMPI_ERR_COUNT, "%s: count is negative (%lld)", raw->function, (long long)count);
    return err_set(HETMPI_ERR_COUNT, "%s: count %zu of %s on %d ranks is more than memory can hold (%zu bytes)",
                   raw->function, count, red_type_name(call->type), comm->size, (size_t)API_MOST_BYTES);
}

static size_t most_elements(const struct call *call) { return API_MOST_BYTES / red_size(call->type); }

/* A table of counts, and of displacements where the call has them. *most: the longest block. */
static int check_table(const struct comm *comm, const struct raw *raw, const struct call *call,
                       const struct side *side, bool displaced, size_t *most)
{
    if (!side->counts || (displaced && !side->displs))
        return err_set(HETMPI_ERR_ARG, "%s: the array of %s of %s is NULL", raw->function,
                       side->counts ? "displacements" : "counts", side->buffer);
    for (int r = 0; r < comm->size; r++) {
        if (side->counts[r] > most_elements(call) / (size_t)comm->size)
            return too_many(comm, raw, call, side->counts[r]);
        if (displaced && side->counts[r] && side->displs[r] > most_elements(call))
            return err_set(HETMPI_ERR_COUNT, "%s: displacement %zu of rank %d in %s is more than memory can hold",
                           raw->function, side->displs[r], r, side->buffer);
        if (side->counts[r] > *most)
            *most = side->counts[r];
    }
    return HETMPI_SUCCESS;
}

/* What this rank sends to itself must be what it receives from itself. */
static int check_own(const struct comm *comm, const struct raw *raw, size_t sends, size_t receives)
{
    if (sends == receives)
        return HETMPI_SUCCESS;
    return err_set(HETMPI_ERR_COUNT, "%s: rank %d sends %zu elements to itself and receives %zu: they must be the same",
                   raw->function, comm->rank, sends, receives);
}

/* The same on all ranks with the same counts. */
static uint64_t hash_counts(const size_t *counts, int n)
{
    uint64_t hash = 0x9e3779b97f4a7c15u;

    for (int i = 0; i < n; i++) {
        hash = (hash ^ counts[i]) * 0xbf58476d1ce4e5b9u;
        hash ^= hash >> 29;
    }
    return hash;
}

static int check_alltoallv(const struct comm *comm, const struct raw *raw, const struct side side[2],
                           struct call *call)
{
    int code = check_table(comm, raw, call, &side[SIDE_RECV], true, &call->count);

    if (!code && side[SIDE_SEND].used)
        code = check_table(comm, raw, call, &side[SIDE_SEND], true, &call->count);
    if (code)
        return code;
    for (int s = SIDE_SEND; s <= SIDE_RECV; s++) {
        const struct side *from = side[s].used ? &side[s] : &side[SIDE_RECV];   /* in place: one table for both */
        call->counts[s] = from->counts;
        call->displs[s] = from->displs;
    }
    return check_own(comm, raw, call->counts[SIDE_SEND][comm->rank], call->counts[SIDE_RECV][comm->rank]);
}

/* Blocks of different lengths that stand in the buffer of one side. */
static int check_blocks(const struct comm *comm, const struct raw *raw, const struct side side[2], int table,
                        bool displaced, struct call *call)
{
    int code = check_table(comm, raw, call, &side[table], displaced, &call->count);

    if (code)
        return code;
    call->counts[SIDE_SEND] = call->counts[SIDE_RECV] = side[table].counts;
    if (displaced)
        call->displs[table] = side[table].displs;
    if (side[!table].used)
        return table == SIDE_RECV ? check_own(comm, raw, side[SIDE_SEND].number, side[SIDE_RECV].counts[comm->rank])
                                  : check_own(comm, raw, side[SIDE_SEND].counts[comm->rank], side[SIDE_RECV].number);
    return HETMPI_SUCCESS;
}

static int check_counts(const struct comm *comm, const struct raw *raw, const struct side side[2], struct call *call)
{
    bool root = comm->rank == call->root;
    int code = HETMPI_SUCCESS;

    switch (call->kind) {
    case COLL_REDUCE_SCATTER:
        code = check_blocks(comm, raw, side, SIDE_RECV, false, call);
        break;
    case COLL_ALLGATHERV:
        code = check_blocks(comm, raw, side, SIDE_RECV, true, call);
        break;
    case COLL_ALLTOALLV:
        return check_alltoallv(comm, raw, side, call);
    case COLL_GATHERV:
        if (root)
            return check_blocks(comm, raw, side, SIDE_RECV, true, call);
        call->count = side[SIDE_SEND].number;
        break;
    case COLL_SCATTERV:
        if (root)
            return check_blocks(comm, raw, side, SIDE_SEND, true, call);
        call->count = side[SIDE_RECV].number;
        break;
    default:
        call->count = side[SIDE_RECV].used ? side[SIDE_RECV].number : side[SIDE_SEND].number;
        if (side[SIDE_SEND].used && side[SIDE_RECV].used && side[SIDE_SEND].number != side[SIDE_RECV].number)
            return err_set(HETMPI_ERR_COUNT, "%s: sendcount %zu of %s, recvcount %zu of %s: they must be the same",
                           raw->function, side[SIDE_SEND].number, red_type_name(call->type), side[SIDE_RECV].number,
                           red_type_name(call->type));
    }
    if (code)
        return code;
    if (call->count > most_elements(call) / (size_t)comm->size)
        return too_many(comm, raw, call, call->count);
    if (coll_traits(call->kind) & COLL_TABLE)
        call->agree = hash_counts(call->counts[SIDE_RECV], comm->size);
    else if (!(coll_traits(call->kind) & COLL_OWN_TABLE))
        call->agree = call->count;
    return HETMPI_SUCCESS;
}

/* ---- buffers ---- */

static void shapes_of(const struct comm *comm, const struct call *call, enum shape shape[2])
{
    bool root = comm->rank == call->root;

    shape[SIDE_SEND] = shape[SIDE_RECV] = SHAPE_VECTOR;
    switch (call->kind) {
    case COLL_REDUCE:
        shape[SIDE_RECV] = root ? SHAPE_VECTOR : SHAPE_NONE;
        break;
    case COLL_BCAST:
        shape[SIDE_SEND] = SHAPE_NONE;
        break;
    case COLL_EXSCAN:
        shape[SIDE_RECV] = comm->rank ? SHAPE_VECTOR : SHAPE_NONE;
        break;
    case COLL_ALLGATHER:
    case COLL_ALLGATHERV:
        shape[SIDE_SEND] = SHAPE_BLOCK;
        shape[SIDE_RECV] = SHAPE_BLOCKS;
        break;
    case COLL_GATHER:
    case COLL_GATHERV:
        shape[SIDE_SEND] = SHAPE_BLOCK;
        shape[SIDE_RECV] = root ? SHAPE_BLOCKS : SHAPE_NONE;
        break;
    case COLL_SCATTER:
    case COLL_SCATTERV:
        shape[SIDE_SEND] = root ? SHAPE_BLOCKS : SHAPE_NONE;
        shape[SIDE_RECV] = SHAPE_BLOCK;
        break;
    case COLL_REDUCE_SCATTER_BLOCK:
    case COLL_REDUCE_SCATTER:
        shape[SIDE_SEND] = SHAPE_BLOCKS;
        shape[SIDE_RECV] = SHAPE_BLOCK;
        break;
    case COLL_ALLTOALL:
    case COLL_ALLTOALLV:
        shape[SIDE_SEND] = shape[SIDE_RECV] = SHAPE_BLOCKS;
        break;
    default:
        break;
    }
}

/* One rank's block among all. */
static struct span block_span(const struct call *call, int side, int rank)
{
    const size_t *counts = call->counts[side], *displs = call->displs[side];
    size_t element = red_size(call->type), first = 0, count = counts ? counts[rank] : call->count;

    if (displs)
        first = displs[rank];
    else if (!counts)
        first = (size_t)rank * call->count;
    else
        for (int r = 0; r < rank; r++)
            first += counts[r];
    return (struct span){first * element, (first + count) * element};
}

static struct span span_of(const struct comm *comm, const struct call *call, enum shape shape, int side)
{
    struct span all = {SIZE_MAX, 0}, none = {0, 0};
    size_t element = red_size(call->type);

    switch (shape) {
    case SHAPE_NONE:
        return none;
    case SHAPE_VECTOR:
        return (struct span){0, call->count * element};
    case SHAPE_BLOCK:
        return (struct span){0, (call->counts[side] ? call->counts[side][comm->rank] : call->count) * element};
    case SHAPE_BLOCKS:
        break;
    }
    if (!call->counts[side])
        return (struct span){0, call->count * (size_t)comm->size * element};
    for (int r = 0; r < comm->size; r++) {
        struct span block = block_span(call, side, r);
        if (block.first == block.last)
            continue;
        all.first = block.first < all.first ? block.first : all.first;
        all.last = block.last > all.last ? block.last : all.last;
    }
    return all.last ? all : none;
}

static int null_buffer(const struct raw *raw, const struct call *call, const char *name)
{
    return err_set(HETMPI_ERR_BUFFER, "%s: %s is NULL, and the count is %zu", raw->function, name, call->count);
}

static int check_overlap(const struct raw *raw, const void *send, struct span s, const void *recv, struct span r)
{
    uintptr_t x = (uintptr_t)send, y = (uintptr_t)recv;

    if (s.first == s.last || r.first == r.last || x + s.first >= y + r.last || y + r.first >= x + s.last)
        return HETMPI_SUCCESS;
    return err_set(HETMPI_ERR_BUFFER, "%s: sendbuf (%p, %zu bytes) and recvbuf (%p, %zu bytes) overlap, and not as "
                   "in-place buffers may: use MPI_IN_PLACE or separate buffers", raw->function, send, s.last - s.first,
                   recv, r.last - r.first);
}

/* MPI_IN_PLACE where it may not stand. */
static int check_in_place(const struct comm *comm, const struct raw *raw, const struct call *call)
{
    bool root = !(coll_traits(call->kind) & COLL_ROOTED) || comm->rank == call->root;
    const void *place = scatters(call->kind) ? raw->recvbuf : raw->sendbuf;
    const void *other = scatters(call->kind) ? raw->sendbuf : raw->recvbuf;
    bool significant = scatters(call->kind) || gathers(call->kind) || call->kind == COLL_REDUCE ? root : true;

    if (call->kind == COLL_BCAST)
        place = NULL;
    if (place == MPI_IN_PLACE && !root)
        return err_set(HETMPI_ERR_BUFFER, "%s: MPI_IN_PLACE is for the root alone, rank %d is not the root (%d)",
                       raw->function, comm->rank, call->root);
    if (call->count && other == MPI_IN_PLACE && significant)
        return err_set(HETMPI_ERR_BUFFER, "%s: MPI_IN_PLACE stands where a buffer must stand: it is for %s alone",
                       raw->function, scatters(call->kind) ? "recvbuf" : "sendbuf");
    return HETMPI_SUCCESS;
}

/* What the send buffer's block of this rank is in the other buffer, for kinds where one has all blocks. */
static const char *own_place(const struct comm *comm, const struct call *call, const enum shape shape[2], int side)
{
    const char *base = side == SIDE_SEND ? call->send : call->recv;

    return shape[side] == SHAPE_BLOCKS && base ? base + block_span(call, side, comm->rank).first : base;
}

/* MPI_IN_PLACE, and aliasing that counts as such: points call->send to the input. *apart: they may not overlap. */
static void place_buffers(const struct comm *comm, const struct raw *raw, const enum shape shape[2], struct call *call,
                          bool *apart)
{
    bool in_place = scatters(call->kind) ? raw->recvbuf == MPI_IN_PLACE : raw->sendbuf == MPI_IN_PLACE;

    *apart = true;
    if (in_place && !scatters(call->kind))
        call->send = call->recv;
    switch (call->kind) {
    case COLL_ALLREDUCE:
    case COLL_REDUCE:
        *apart = call->send != call->recv;
        return;
    case COLL_SCAN:
    case COLL_EXSCAN:
        call->in_place = call->send == call->recv;
        break;
    case COLL_REDUCE_SCATTER_BLOCK:
    case COLL_REDUCE_SCATTER:
        call->in_place = in_place;
        *apart = !in_place && call->recv != own_place(comm, call, shape, SIDE_SEND);
        return;
    case COLL_ALLTOALL:
    case COLL_ALLTOALLV:
        call->in_place = in_place;
        break;
    case COLL_SCATTER:
    case COLL_SCATTERV:
        call->in_place = in_place || (shape[SIDE_SEND] && call->recv == own_place(comm, call, shape, SIDE_SEND));
        if (call->in_place)
            call->recv = NULL;
        break;
    case COLL_ALLGATHER:
    case COLL_ALLGATHERV:
    case COLL_GATHER:
    case COLL_GATHERV:
        call->in_place = in_place || (shape[SIDE_RECV] && call->send == own_place(comm, call, shape, SIDE_RECV));
        if (call->in_place)
            call->send = own_place(comm, call, shape, SIDE_RECV);
        break;
    default:
        break;
    }
    *apart = !call->in_place;
}

static int check_buffers(const struct comm *comm, const struct raw *raw, struct call *call)
{
    enum shape shape[2];
    struct span send, recv;
    bool apart;
    int code = check_in_place(comm, raw, call);

    if (code || call->count == 0)
        return code;
    shapes_of(comm, call, shape);
    send = span_of(comm, call, shape[SIDE_SEND], SIDE_SEND);
    recv = span_of(comm, call, shape[SIDE_RECV], SIDE_RECV);
    call->send = shape[SIDE_SEND] ? raw->sendbuf : NULL;
    call->recv = shape[SIDE_RECV] || raw->sendbuf == MPI_IN_PLACE ? raw->recvbuf : NULL;
    if (call->kind == COLL_BCAST) {
        call->send = call->recv;
        return call->recv ? HETMPI_SUCCESS : null_buffer(raw, call, "buffer");
    }
    place_buffers(comm, raw, shape, call, &apart);
    if (raw->sendbuf == MPI_IN_PLACE && send.last && !raw->recvbuf)
        return null_buffer(raw, call, "recvbuf");
    if (send.first != send.last && !call->send)
        return null_buffer(raw, call, "sendbuf");
    if (recv.first != recv.last && !call->recv && !(scatters(call->kind) && call->in_place))
        return null_buffer(raw, call, "recvbuf");
    return apart ? check_overlap(raw, call->send, send, call->recv, recv) : HETMPI_SUCCESS;
}

int calls_check(const struct comm *comm, const struct raw *raw, struct call *call)
{
    struct side side[2];
    int code;

    memset(call, 0, sizeof(*call));
    call->kind = raw->kind;
    if (raw->kind == COLL_BARRIER)
        return HETMPI_SUCCESS;
    if (coll_traits(raw->kind) & COLL_ROOTED) {
        if (raw->root < 0 || raw->root >= comm->size)
            return err_set(HETMPI_ERR_ROOT, "%s: root %d is not a rank of a communicator of %d", raw->function,
                           raw->root, comm->size);
        call->root = raw->root;
    }
    sides_of(comm, raw, side);
    code = check_types(raw, side, call);
    if (!code && coll_traits(raw->kind) & COLL_REDUCES)
        code = check_op(raw, call);
    if (!code)
        code = check_counts(comm, raw, side, call);
    if (code)
        return code;
    call->asked_in_place = all_in_place(raw->kind) && raw->sendbuf == MPI_IN_PLACE;
    if (coll_traits(call->kind) & COLL_OWN_TABLE && comm->cfg->check)
        call->agree = tables_sum(comm, call);
    return check_buffers(comm, raw, call);
}

bool calls_copy_of_one(const struct call *call, void **dst, const void **src, size_t *bytes)
{
    size_t element = red_size(call->type);

    *bytes = call->count * element;
    if (!*bytes || call->kind == COLL_BCAST || call->kind == COLL_BARRIER || call->kind == COLL_EXSCAN ||
        call->send == call->recv || call->in_place)
        return false;
    *src = (const char *)call->send + (call->displs[SIDE_SEND] ? call->displs[SIDE_SEND][0] * element : 0);
    *dst = (char *)call->recv + (call->displs[SIDE_RECV] ? call->displs[SIDE_RECV][0] * element : 0);
    return *dst != *src;
}

bool calls_scales_one(const struct call *call)
{
    return call->premul && call->count && call->kind != COLL_EXSCAN;
}

size_t calls_tables(const struct call *call, int ranks)
{
    size_t n = 0;

    for (int s = SIDE_SEND; s <= SIDE_RECV; s++)
        n += (size_t)(call->counts[s] != NULL) + (size_t)(call->displs[s] != NULL);
    return n * (size_t)ranks * sizeof(size_t);
}

void calls_keep_tables(struct call *call, int ranks, size_t *memory)
{
    for (int s = SIDE_SEND; s <= SIDE_RECV; s++) {
        const size_t **tables[] = {&call->counts[s], &call->displs[s]};
        for (int i = 0; i < 2; i++) {
            if (!*tables[i])
                continue;
            memcpy(memory, *tables[i], (size_t)ranks * sizeof(*memory));
            *tables[i] = memory;
            memory += ranks;
        }
    }
}
