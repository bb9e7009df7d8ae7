/*
 * The local providers `shm` and `ipc`: every member of the island has a board, a few slots of memory that all members
 * can read: host memory shared by the processes of the node (shm), or memory of its device (ipc). Operation n uses
 * slot n % SLOTS of every board.
 *
 *   REDUCE  every member puts its operands for the others' parts on its own board; the owner of a part reduces its own
 *           operand with those on the boards.
 *   SPREAD  the owner of a part puts it on its board; the readers copy what they read from there.
 *
 * Flags are words of the control segments, n + 1 for operation n, each written by one member alone: `published[slot]`
 * when the data stand on its board, `done[slot]` when it needs nobody's slot any more. A slot is used again when all
 * members are done with it. On a rank without a device everything is done inline; with one, copies and kernels run on
 * the provider's streams and are observed by events.
 */
#include "island/island.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "core/log.h"
#include "hetmpi.h"
#include "island/parts.h"

#define SLOTS 8
_Static_assert(SLOTS <= CTL_SLOTS && (SLOTS & (SLOTS - 1)) == 0, "slots are a power of two, one flag each");

/* Before the slots, a page: shared memory begins with its cookie, and slots should begin a page. */
#define HEAD 4096
#define DRAIN_SECONDS 5.0
#define DRAIN_YIELDS 200

/* What an operation still waits for: bits of op->state. */
enum {
    PUBLISHING = 1,   /* our data are on their way to our board */
    READING = 2,      /* others' data are missing */
    WORKING = 4,      /* our copies or kernel from the boards are queued */
};
/* op->own */
enum {
    OWN_NEXT,         /* positions before this one are finished */
    OWN_TAKEN,        /* SPREAD: bit i: position OWN_NEXT + i is finished too */
    OWN_END,          /* SPREAD: no parts at or after this position */
};

struct member {
    struct seg seg;
    char *base;       /* of its board, NULL: not mapped yet */
    bool registered;
    struct ctl *ctl;
};

struct board {
    struct island island;
    bool device;            /* work is queued on streams */
    bool in_device;         /* the boards are device memory */
    size_t stride;          /* bytes from slot to slot */
    uint64_t next;          /* number of the operation to start next */
    uint64_t finished[SLOTS];   /* number + 1 of our last finished operation */
    struct member *members;     /* [island.members], ours among them */
    mem_stream_t *publish, *reduce, *spread;
    mem_event_t *published_event[SLOTS], *finished_event[SLOTS];
    struct part_reducer reducer;
};

static unsigned slot_of(uint64_t number) { return (unsigned)(number % SLOTS); }

static struct sched_view slot_view(const struct board *b, int position, uint64_t number, size_t element)
{
    return part_flat(b->members[position].base + HEAD + slot_of(number) * b->stride, element, 0);
}

/* Opening and closing */

static int make_board(struct board *b)
{
    struct member *mine = &b->members[b->island.position];
    size_t bytes = HEAD + SLOTS * b->stride;
    struct seg_name name;
    mem_ipc_t ipc;
    void *base;
    int code;

    if (b->in_device) {
        code = mem_alloc(bytes, &base);
        if (code != HETMPI_SUCCESS)
            goto tell;
        mine->base = base;
        code = mem_ipc_export(base, &ipc);
        if (code != HETMPI_SUCCESS)
            goto tell;
        return comm_region_publish(b->island.comm, REGION_BOARD, NULL, &ipc);
    }
    code = seg_create(&mine->seg, bytes, &name);
    if (code != HETMPI_SUCCESS)
        goto tell;
    if (b->device) {
        code = mem_host_register(mine->seg.base, bytes);
        if (code != HETMPI_SUCCESS)
            goto tell;
        mine->registered = true;
    }
    mine->base = mine->seg.base;
    return comm_region_publish(b->island.comm, REGION_BOARD, &name, NULL);

tell:   /* the others must not wait for this board */
    return comm_region_lost(b->island.comm, REGION_BOARD, code);
}

/* Maps the board of a member, once. COMM_AGAIN: it is not there yet. */
static int map_board(struct board *b, int position)
{
    struct member *m = &b->members[position];
    struct comm *comm = b->island.comm;
    int code, rank = topo_member(&comm->topo, comm->topo.island_of[comm->rank], position);
    struct seg_name name;
    mem_ipc_t ipc;
    void *base;

    if (m->base)
        return HETMPI_SUCCESS;
    code = comm_region_name(comm, rank, REGION_BOARD, &name, &ipc);
    if (code != HETMPI_SUCCESS)
        return code;
    if (b->in_device) {
        code = mem_ipc_open(&ipc, &base);
        if (code == HETMPI_SUCCESS)
            m->base = base;
        return code;
    }
    code = seg_open(&m->seg, &name);
    if (code != HETMPI_SUCCESS)
        return code;
    if (m->seg.bytes < HEAD + SLOTS * b->stride)
        return err_set(HETMPI_ERR_INTERNAL, "island board: that of rank %d has %zu bytes, not %zu", rank, m->seg.bytes,
                       HEAD + SLOTS * b->stride);
    if (b->device) {
        code = mem_host_register(m->seg.base, m->seg.bytes);
        if (code != HETMPI_SUCCESS)
            return code;
        m->registered = true;
    }
    m->base = m->seg.base;
    return HETMPI_SUCCESS;
}

static void clear_member(struct board *b, int position)
{
    struct member *m = &b->members[position];

    if (b->in_device && m->base) {
        if (position == b->island.position)
            mem_free(m->base);
        else
            mem_ipc_close(m->base);
    }
    if (m->registered)
        mem_host_unregister(m->seg.base);
    seg_clear(&m->seg);
    m->base = NULL;
}

static int make_streams(struct board *b)
{
    mem_stream_t **streams[] = {&b->publish, &b->reduce, &b->spread};
    int code;

    for (size_t i = 0; i < sizeof(streams) / sizeof(streams[0]); i++) {
        code = mem_stream_create(streams[i]);
        if (code != HETMPI_SUCCESS)
            return code;
    }
    for (int i = 0; i < SLOTS; i++) {
        code = mem_event_create(&b->published_event[i]);
        if (code == HETMPI_SUCCESS)
            code = mem_event_create(&b->finished_event[i]);
        if (code != HETMPI_SUCCESS)
            return code;
    }
    return HETMPI_SUCCESS;
}

static void clear_streams(struct board *b)
{
    mem_stream_t *streams[] = {b->publish, b->reduce, b->spread};

    for (size_t i = 0; i < sizeof(streams) / sizeof(streams[0]); i++) {
        if (streams[i])
            mem_stream_destroy(streams[i]);
    }
    for (int i = 0; i < SLOTS; i++) {
        if (b->published_event[i])
            mem_event_destroy(b->published_event[i]);
        if (b->finished_event[i])
            mem_event_destroy(b->finished_event[i]);
    }
}

/* All members are done with the last operations of every slot. */
static bool drained(const struct board *b)
{
    uint64_t oldest = b->next > SLOTS ? b->next - SLOTS : 0;

    for (uint64_t number = oldest; number < b->next; number++) {
        unsigned slot = slot_of(number);
        for (int i = 0; i < b->island.members; i++) {
            const struct ctl *ctl = b->members[i].ctl;
            if (ctl && atomic_load_explicit(&ctl->done[slot].value, memory_order_acquire) < number + 1)
                return false;
        }
    }
    return true;
}

static bool anyone_failed(const struct board *b)
{
    if (atomic_load_explicit(&b->island.comm->failed, memory_order_relaxed))
        return true;
    for (int i = 0; i < b->island.members; i++) {
        const struct ctl *ctl = b->members[i].ctl;
        if (!ctl)
            continue;
        if (atomic_load_explicit(&ctl->failure.value, memory_order_relaxed))
            return true;
        if (ctl->pid > 0 && kill(ctl->pid, 0) != 0 && errno == ESRCH)
            return true;
    }
    return false;
}

/* Others may still read our board, or be about to map it, when all our own operations are finished: it must stay until
 * they are done. They need nothing from us for that, so this ends; a failed communicator is not waited for. */
static void drain(const struct board *b)
{
    double limit = b->island.comm->cfg->timeout > 0 ? b->island.comm->cfg->timeout : DRAIN_SECONDS;
    struct timespec begin, now;
    unsigned polls = 0;

    for (uint64_t number = b->next > SLOTS ? b->next - SLOTS : 0; number < b->next; number++) {
        if (b->finished[slot_of(number)] != number + 1)
            return;   /* closed in the middle of an operation */
    }
    clock_gettime(CLOCK_MONOTONIC, &begin);
    while (!drained(b) && !anyone_failed(b)) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        if ((double)(now.tv_sec - begin.tv_sec) + 1e-9 * (double)(now.tv_nsec - begin.tv_nsec) > limit) {
            log_warn("island board: freed while other members still had to read it (waited %.3g s)", limit);
            return;
        }
        if (polls++ < DRAIN_YIELDS)
            sched_yield();
        else
            nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    }
}

static void board_close(struct island *island)
{
    struct board *b = (struct board *)island;

    clear_streams(b);   /* finishes what is queued, so nothing of ours touches a board below */
    drain(b);
    for (int i = 0; i < island->members; i++)
        clear_member(b, i);
    part_reducer_close(&b->reducer);
    free(b->members);
    free(b);
}

static int board_open(struct comm *comm, size_t slot_bytes, struct island **island, const struct island_ops *ops,
                      bool in_device)
{
    const struct topo *topo = &comm->topo;
    int mine = topo->island_of[comm->rank], members = topo_island_size(topo, mine), code;
    struct board *b = calloc(1, sizeof(*b));

    if (!b)
        return err_set(HETMPI_ERR_MEMORY, "no memory for the island's board");
    b->island = (struct island){.ops = ops, .comm = comm, .members = members,
                                .position = topo->position_of[comm->rank]};
    b->device = mem_has_device();
    b->in_device = in_device;
    b->stride = (slot_bytes + HEAD - 1) / HEAD * HEAD;
    b->members = calloc((size_t)members, sizeof(*b->members));
    if (!b->members) {
        code = err_set(HETMPI_ERR_MEMORY, "no memory for the boards of %d members", members);
        goto close;
    }
    for (int i = 0; i < members; i++) {
        int rank = topo_member(topo, mine, i);
        b->members[i].seg.fd = -1;
        b->members[i].ctl = rank == comm->rank ? comm->ctl : comm->ctls[rank];
    }
    code = part_reducer_open(&b->reducer, (uint32_t)members, b->device);
    if (code == HETMPI_SUCCESS && b->device)
        code = make_streams(b);
    if (code == HETMPI_SUCCESS && members > 1)
        code = make_board(b);
    if (code != HETMPI_SUCCESS)
        goto close;
    *island = &b->island;
    return HETMPI_SUCCESS;

close:
    if (b->members) {
        board_close(&b->island);
    } else {
        free(b);
    }
    return code;
}

static int shm_open_board(struct comm *comm, size_t slot_bytes, struct island **island)
{
    return board_open(comm, slot_bytes, island, &island_shm, false);
}

static int ipc_open_board(struct comm *comm, size_t slot_bytes, struct island **island)
{
    return board_open(comm, slot_bytes, island, &island_ipc, true);
}

/* Operations */

static bool slot_free(const struct board *b, uint64_t number)
{
    unsigned slot = slot_of(number);
    uint64_t before;

    if (number < SLOTS)
        return true;
    before = number - SLOTS + 1;
    if (b->finished[slot] < before)
        return false;
    for (int i = 0; i < b->island.members; i++) {
        const struct ctl *ctl = b->members[i].ctl;
        if (ctl && atomic_load_explicit(&ctl->done[slot].value, memory_order_acquire) < before)
            return false;
    }
    return true;
}

static bool has_published(const struct board *b, int position, uint64_t number)
{
    const struct ctl *ctl = b->members[position].ctl;

    return atomic_load_explicit(&ctl->published[slot_of(number)].value, memory_order_acquire) > number;
}

static void tell_published(struct board *b, struct island_op *op)
{
    struct ctl *ctl = b->members[b->island.position].ctl;

    atomic_store_explicit(&ctl->published[slot_of(op->number)].value, op->number + 1, memory_order_release);
    op->state &= ~PUBLISHING;
}

/* Our data have been copied (or the copies are queued). */
static int published(struct board *b, struct island_op *op)
{
    op->state |= PUBLISHING;
    if (b->device)
        return mem_event_record(b->published_event[slot_of(op->number)], b->publish);
    tell_published(b, op);
    return HETMPI_SUCCESS;
}

static int start_reduce(struct board *b, struct island_op *op)
{
    size_t first, length, space = part_space(b->island.comm, op, b->island.members);
    struct sched_view slot;
    int code;

    part_of(b->island.comm, op, b->island.position, &first, &length);
    if (length > 0)
        op->state |= READING;
    else
        first = space;
    if (length == space)
        return HETMPI_SUCCESS;   /* nobody else owns anything */
    slot = slot_view(b, b->island.position, op->number, op->in.element);
    code = part_copy(&slot, &op->in, 0, first, b->device, b->publish);
    if (code == HETMPI_SUCCESS)
        code = part_copy(&slot, &op->in, first + length, space - first - length, b->device, b->publish);
    return code == HETMPI_SUCCESS ? published(b, op) : code;
}

static int start_spread(struct board *b, struct island_op *op)
{
    bool reader = part_is_reader(op, b->island.position);
    size_t first, length;
    int from, to, code;

    part_owners(op, b->island.members, &from, &to);
    op->own[OWN_NEXT] = (uint64_t)from;
    op->own[OWN_TAKEN] = 0;
    op->own[OWN_END] = (uint64_t)to;
    if (reader)
        op->state |= READING;
    part_of(b->island.comm, op, b->island.position, &first, &length);
    if (length == 0)
        return HETMPI_SUCCESS;
    if (b->island.members > 1 && !(op->step->readers == READERS_ROOT && reader)) {
        struct sched_view slot = slot_view(b, b->island.position, op->number, op->in.element);
        code = part_copy(&slot, &op->in, first, length, b->device, b->publish);
        if (code == HETMPI_SUCCESS)
            code = published(b, op);
        if (code != HETMPI_SUCCESS)
            return code;
    }
    part_taken(b->island.comm, op, b->island.position, b->island.position, &first, &length);
    return part_copy(&op->out, &op->in, first, length, b->device, b->spread);
}

static int board_start(struct island *island, struct island_op *op)
{
    struct board *b = (struct board *)island;
    bool reduce = op->step->kind == STEP_LOCAL_REDUCE;
    size_t bytes;
    int code;

    if (op->number != b->next)
        return err_set(HETMPI_ERR_INTERNAL, "island %s: operation %llu started when %llu was due", island->ops->name,
                       (unsigned long long)op->number, (unsigned long long)b->next);
    if (!slot_free(b, op->number))
        return COMM_AGAIN;
    bytes = part_space(island->comm, op, island->members) *
            (reduce || !part_is_reader(op, island->position) ? op->in.element : op->out.element);
    if (bytes > b->stride)
        return err_set(HETMPI_ERR_INTERNAL, "island %s: %zu bytes do not fit a slot of %zu", island->ops->name, bytes,
                       b->stride);
    op->state = 0;
    op->own[OWN_NEXT] = 0;
    code = reduce ? start_reduce(b, op) : start_spread(b, op);
    if (code == HETMPI_SUCCESS)
        b->next++;
    return code;
}

/* The work that reads the boards is done, or queued on `stream`. */
static int read_all(struct board *b, struct island_op *op, mem_stream_t *stream)
{
    op->state &= ~READING;
    if (!b->device)
        return HETMPI_SUCCESS;
    op->state |= WORKING;
    return mem_event_record(b->finished_event[slot_of(op->number)], stream);
}

/* Reduces when all operands are there. Ours must have left too: the result may take the place of an operand. */
static int poll_reduce(struct board *b, struct island_op *op)
{
    size_t first, length;
    int i, code;

    if (op->state & PUBLISHING)
        return HETMPI_SUCCESS;
    for (i = (int)op->own[OWN_NEXT]; i < b->island.members; i++) {
        if (i != b->island.position && !has_published(b, i, op->number))
            break;
    }
    op->own[OWN_NEXT] = (uint64_t)i;
    if (i < b->island.members)
        return HETMPI_SUCCESS;
    for (i = 0; i < b->island.members; i++) {
        if (i == b->island.position) {
            b->reducer.inputs[i] = op->in;
            continue;
        }
        code = map_board(b, i);
        if (code != HETMPI_SUCCESS)
            return code == COMM_AGAIN ? HETMPI_SUCCESS : code;
        b->reducer.inputs[i] = slot_view(b, i, op->number, op->in.element);
    }
    part_of(b->island.comm, op, b->island.position, &first, &length);
    code = part_reduce(&b->reducer, op, first, length, b->reduce);
    return code == HETMPI_SUCCESS ? read_all(b, op, b->reduce) : code;
}

/* Copies what we read of one owner's part from its board. *taken: there is nothing left to do for it. */
static int take_part(struct board *b, struct island_op *op, int position, bool *taken)
{
    struct sched_view slot;
    size_t first, length;
    int code;

    *taken = true;
    if (position == b->island.position)
        return HETMPI_SUCCESS;
    part_taken(b->island.comm, op, position, b->island.position, &first, &length);
    if (length == 0)
        return HETMPI_SUCCESS;
    *taken = false;
    if (!has_published(b, position, op->number))
        return HETMPI_SUCCESS;
    code = map_board(b, position);
    if (code != HETMPI_SUCCESS)
        return code == COMM_AGAIN ? HETMPI_SUCCESS : code;
    *taken = true;
    slot = slot_view(b, position, op->number, op->out.element);
    return part_copy(&op->out, &slot, first, length, b->device, b->spread);
}

/* Takes the parts that are there, in any order. */
static int poll_spread(struct board *b, struct island_op *op)
{
    uint64_t next = op->own[OWN_NEXT], end = op->own[OWN_END], taken = op->own[OWN_TAKEN];
    int code;

    for (uint64_t i = 0; i < 64 && next + i < end; i++) {
        bool now;
        if (taken >> i & 1)
            continue;
        code = take_part(b, op, (int)(next + i), &now);
        if (code != HETMPI_SUCCESS)
            return code;
        taken |= (uint64_t)now << i;
    }
    while (taken & 1) {
        taken >>= 1;
        next++;
    }
    op->own[OWN_NEXT] = next;
    op->own[OWN_TAKEN] = taken;
    return next >= end ? read_all(b, op, b->spread) : HETMPI_SUCCESS;
}

static int poll_work(struct board *b, struct island_op *op)
{
    unsigned slot = slot_of(op->number);
    bool done = false;
    int code = HETMPI_SUCCESS;

    if (op->state & PUBLISHING) {
        code = mem_event_query(b->published_event[slot], &done);
        if (code == HETMPI_SUCCESS && done)
            tell_published(b, op);
    }
    if (code == HETMPI_SUCCESS && op->state & WORKING) {
        code = mem_event_query(b->finished_event[slot], &done);
        if (code == HETMPI_SUCCESS && done)
            op->state &= ~WORKING;
    }
    return code;
}

static int board_poll(struct island *island, struct island_op *op, bool *done)
{
    struct board *b = (struct board *)island;
    unsigned slot = slot_of(op->number);
    struct ctl *ctl;
    int code = HETMPI_SUCCESS;

    *done = false;
    if (b->device && op->state & (PUBLISHING | WORKING))
        code = poll_work(b, op);
    if (code == HETMPI_SUCCESS && op->state & READING)
        code = op->step->kind == STEP_LOCAL_REDUCE ? poll_reduce(b, op) : poll_spread(b, op);
    if (code != HETMPI_SUCCESS || op->state != 0)
        return code;
    b->finished[slot] = op->number + 1;
    ctl = b->members[island->position].ctl;
    if (ctl)
        atomic_store_explicit(&ctl->done[slot].value, op->number + 1, memory_order_release);
    *done = true;
    return HETMPI_SUCCESS;
}

const struct island_ops island_shm = {
    .name = "shm", .open = shm_open_board, .close = board_close, .start = board_start, .poll = board_poll,
};
const struct island_ops island_ipc = {
    .name = "ipc", .open = ipc_open_board, .close = board_close, .start = board_start, .poll = board_poll,
};
