/*
 * The local provider `mpi`: the general fall-back, for members on different nodes or of different vendors. Members
 * send parts straight to each other over the communicator's shadow:
 *
 *   REDUCE  every member sends its operands to the owner of each part, who reduces them, in island order.
 *   SPREAD  the owner of a part sends to the readers what they read of it.
 *
 * A part travels in pieces of a size that all members know, one at a time in each direction between two members. Host
 * memory is sent and received in place where a piece stands in one run; everything else goes through staging memory.
 * An operation needs one context, which has room for one piece a lane, so that operations that have begun never wait
 * for memory; contexts are given in the order of the operations, so the oldest one always goes on.
 */
#include "island/island.h"

#include <limits.h>
#include <stdlib.h>
#include <time.h>

#include "core/log.h"
#include "hetmpi.h"
#include "island/parts.h"

#define CONTEXTS 8                       /* most operations at once */
#define PIECE_ALIGN ((size_t)4096)
#define TAGS 8192                        /* TAG_ISLAND .. TAG_MEET - 1 */
#define CLOSE_SECONDS 0.1                /* patience with messages of a failed communicator */

enum lane_state {
    LANE_OFF,      /* nothing to move (any more) */
    LANE_IDLE,     /* the next piece may begin */
    LANE_COPYING,  /* between user's memory and staging, on a stream */
    LANE_MESSAGE,  /* with MPI */
    LANE_HERE,     /* REDUCE: the operand is in staging */
};

/* What goes between this rank and one member in one direction, in one operation. */
struct lane {
    int state;
    bool staged;             /* this piece goes through `stage` */
    char *stage;
    size_t next, end;        /* virtual elements not yet moved */
    size_t piece;            /* elements under way, from `next` */
    MPI_Request request;
    mem_event_t *event;      /* with a device */
};

struct context {
    bool busy;
    char *staging;           /* NULL until first used */
    struct lane *send, *recv;   /* [members] */
    size_t next, end;        /* REDUCE: what is left of our own part */
    size_t piece;            /* elements whose operands are gathered, from `next` */
    bool working;            /* the piece's kernel, or the copy of our own part, is queued */
    mem_event_t *event;
};

struct exchange {
    struct island island;
    bool device;
    size_t slot_bytes, piece_bytes;
    uint64_t next;           /* number of the operation to start next */
    int n_contexts;
    struct context *contexts;
    mem_stream_t *leave, *arrive;   /* copies to staging; copies and kernels from staging */
    struct part_reducer reducer;
};

static struct context *context_of(const struct exchange *x, uint64_t number)
{
    return &x->contexts[number % (uint64_t)x->n_contexts];
}

static int rank_of(const struct exchange *x, int position)
{
    const struct comm *comm = x->island.comm;

    return topo_member(&comm->topo, comm->topo.island_of[comm->rank], position);
}

static int tag_of(const struct island_op *op) { return TAG_ISLAND + (int)(op->number % TAGS); }

static int mpi_failed(const struct exchange *x, int error, const char *what, int position)
{
    char text[MPI_MAX_ERROR_STRING] = "unknown error";
    int length;

    MPI_Error_string(error, text, &length);
    return err_set(HETMPI_ERR_MPI, "island mpi: %s rank %d failed: %s", what, rank_of(x, position), text);
}

/* Opening and closing */

static int open_lanes(struct exchange *x, struct lane **lanes)
{
    int code;

    *lanes = calloc((size_t)x->island.members, sizeof(**lanes));
    if (!*lanes)
        return err_set(HETMPI_ERR_MEMORY, "no memory for the lanes of %d members", x->island.members);
    for (int i = 0; i < x->island.members; i++)
        (*lanes)[i].request = MPI_REQUEST_NULL;
    for (int i = 0; x->device && i < x->island.members; i++) {
        code = mem_event_create(&(*lanes)[i].event);
        if (code != HETMPI_SUCCESS)
            return code;
    }
    return HETMPI_SUCCESS;
}

static int open_contexts(struct exchange *x)
{
    int code;

    for (int i = 0; i < x->n_contexts; i++) {
        struct context *c = &x->contexts[i];
        code = open_lanes(x, &c->send);
        if (code == HETMPI_SUCCESS)
            code = open_lanes(x, &c->recv);
        if (code == HETMPI_SUCCESS && x->device)
            code = mem_event_create(&c->event);
        if (code != HETMPI_SUCCESS)
            return code;
    }
    return HETMPI_SUCCESS;
}

static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Ends the messages that a failed communicator left under way. False: one may still touch its memory. */
static bool end_messages(const struct exchange *x, struct lane *lanes, bool receives, double until)
{
    bool all = true;

    for (int i = 0; lanes && i < x->island.members; i++) {
        MPI_Request *request = &lanes[i].request;
        int flag = 0;

        if (*request == MPI_REQUEST_NULL)
            continue;
        if (receives)
            MPI_Cancel(request);
        do {
            if (MPI_Test(request, &flag, MPI_STATUS_IGNORE) != MPI_SUCCESS)
                break;
        } while (!flag && seconds() < until);
        if (!flag && *request != MPI_REQUEST_NULL) {
            MPI_Request_free(request);
            all = false;
        }
    }
    return all;
}

static void close_lanes(const struct exchange *x, struct lane *lanes)
{
    for (int i = 0; lanes && i < x->island.members; i++) {
        if (lanes[i].event)
            mem_event_destroy(lanes[i].event);
    }
    free(lanes);
}

static void exchange_close(struct island *island)
{
    struct exchange *x = (struct exchange *)island;
    double until = seconds() + CLOSE_SECONDS;

    if (x->leave)
        mem_stream_destroy(x->leave);
    if (x->arrive)
        mem_stream_destroy(x->arrive);
    for (int i = 0; x->contexts && i < x->n_contexts; i++) {
        struct context *c = &x->contexts[i];
        bool ended = end_messages(x, c->recv, true, until);
        ended = end_messages(x, c->send, false, until) && ended;
        if (ended)
            mem_host_free(c->staging);
        else
            log_debug("island mpi: staging memory stays with a message that MPI could not end");
        close_lanes(x, c->send);
        close_lanes(x, c->recv);
        if (c->event)
            mem_event_destroy(c->event);
    }
    free(x->contexts);
    part_reducer_close(&x->reducer);
    free(x);
}

static int exchange_open(struct comm *comm, size_t slot_bytes, struct island **island)
{
    const struct topo *topo = &comm->topo;
    int members = topo_island_size(topo, topo->island_of[comm->rank]), code;
    size_t piece = (slot_bytes / (size_t)members + PIECE_ALIGN) / PIECE_ALIGN * PIECE_ALIGN;
    size_t context = members > 1 ? 2 * (size_t)(members - 1) * piece : 1;
    size_t fit = comm->cfg->staging / 2 / context;
    struct exchange *x;

    if (piece > INT_MAX)
        return err_set(HETMPI_ERR_UNSUPPORTED, "island mpi: pieces of %zu bytes; choose a smaller CHUNK", piece);
    if (members > 1 && comm->shadow == MPI_COMM_NULL)
        return err_set(HETMPI_ERR_INTERNAL, "island mpi: the communicator has no duplicate to send on");
    x = calloc(1, sizeof(*x));
    if (!x)
        return err_set(HETMPI_ERR_MEMORY, "no memory for the island's exchange");
    x->island = (struct island){.ops = &island_mpi, .comm = comm, .members = members,
                                .position = topo->position_of[comm->rank]};
    x->device = mem_has_device();
    x->slot_bytes = slot_bytes;
    x->piece_bytes = piece;
    x->n_contexts = fit < 1 ? 1 : fit > CONTEXTS ? CONTEXTS : (int)fit;
    x->contexts = calloc((size_t)x->n_contexts, sizeof(*x->contexts));
    if (!x->contexts) {
        code = err_set(HETMPI_ERR_MEMORY, "no memory for the island's exchange");
        goto close;
    }
    code = open_contexts(x);
    if (code == HETMPI_SUCCESS)
        code = part_reducer_open(&x->reducer, (uint32_t)members, x->device);
    if (code == HETMPI_SUCCESS && x->device)
        code = mem_stream_create(&x->leave);
    if (code == HETMPI_SUCCESS && x->device)
        code = mem_stream_create(&x->arrive);
    if (code != HETMPI_SUCCESS)
        goto close;
    *island = &x->island;
    return HETMPI_SUCCESS;

close:
    exchange_close(&x->island);
    return code;
}

/* Staging: the send lanes' pieces, then the receive lanes'; none for ourselves. */
static int stage_context(struct exchange *x, struct context *c)
{
    int members = x->island.members, mine = x->island.position, code;
    void *staging;

    if (c->staging || members == 1)
        return HETMPI_SUCCESS;
    code = mem_host_alloc(2 * (size_t)(members - 1) * x->piece_bytes, &staging);
    if (code != HETMPI_SUCCESS)
        return code;
    c->staging = staging;
    for (int i = 0; i < members; i++) {
        size_t place = (size_t)(i < mine ? i : i - 1);
        if (i == mine)
            continue;
        c->send[i].stage = c->staging + place * x->piece_bytes;
        c->recv[i].stage = c->staging + ((size_t)(members - 1) + place) * x->piece_bytes;
    }
    return HETMPI_SUCCESS;
}

/* Starting */

static void set_lane(struct lane *lane, size_t first, size_t length)
{
    lane->state = length > 0 ? LANE_IDLE : LANE_OFF;
    lane->next = first;
    lane->end = first + length;
    lane->piece = 0;
}

static void set_lanes(struct exchange *x, struct context *c, const struct island_op *op)
{
    bool reduce = op->step->kind == STEP_LOCAL_REDUCE;
    int mine = x->island.position;
    size_t own_first, own_length, first, length;

    part_of(x->island.comm, op, mine, &own_first, &own_length);
    for (int i = 0; i < x->island.members; i++) {
        struct lane *theirs = reduce ? &c->send[i] : &c->recv[i];   /* carries the part of member i */
        struct lane *ours = reduce ? &c->recv[i] : &c->send[i];     /* carries our part */

        if (reduce) {
            part_of(x->island.comm, op, i, &first, &length);
        } else {
            part_taken(x->island.comm, op, i, mine, &first, &length);
            part_taken(x->island.comm, op, mine, i, &own_first, &own_length);
        }
        set_lane(theirs, first, i != mine ? length : 0);
        set_lane(ours, own_first, i != mine ? own_length : 0);
    }
}

static int exchange_start(struct island *island, struct island_op *op)
{
    struct exchange *x = (struct exchange *)island;
    struct context *c = context_of(x, op->number);
    bool reduce = op->step->kind == STEP_LOCAL_REDUCE, reader = part_is_reader(op, island->position);
    size_t bytes, first, length;
    int code;

    if (op->number != x->next)
        return err_set(HETMPI_ERR_INTERNAL, "island mpi: operation %llu started when %llu was due",
                       (unsigned long long)op->number, (unsigned long long)x->next);
    if (c->busy)
        return COMM_AGAIN;
    bytes = part_space(island->comm, op, island->members) *
            (reduce || !reader ? op->in.element : op->out.element);
    if (bytes > x->slot_bytes)
        return err_set(HETMPI_ERR_INTERNAL, "island mpi: %zu bytes in a space of at most %zu", bytes, x->slot_bytes);
    code = stage_context(x, c);
    if (code != HETMPI_SUCCESS)
        return code;
    set_lanes(x, c, op);
    part_of(island->comm, op, island->position, &first, &length);
    c->working = false;
    c->next = first;
    c->end = reduce ? first + length : first;
    if (!reduce)
        part_taken(island->comm, op, island->position, island->position, &first, &length);
    if (!reduce && length > 0) {
        code = part_copy(&op->out, &op->in, first, length, x->device, x->arrive);
        if (code == HETMPI_SUCCESS && x->device) {
            c->working = true;
            code = mem_event_record(c->event, x->arrive);
        }
        if (code != HETMPI_SUCCESS)
            return code;
    }
    c->busy = true;
    x->next++;
    return HETMPI_SUCCESS;
}

/* Moving */

/* How much of the lane goes next, and where: in the user's memory if it is the host's and in one run. */
static char *next_piece(const struct exchange *x, struct lane *lane, const struct sched_view *view)
{
    size_t most = x->piece_bytes / view->element;
    void *address;

    lane->piece = lane->end - lane->next < most ? lane->end - lane->next : most;
    lane->staged = x->device || sched_view_run(view, lane->next, lane->piece, &address) < lane->piece;
    return lane->staged ? lane->stage : address;
}

static int copy_piece(const struct exchange *x, struct lane *lane, const struct sched_view *view, bool to_stage,
                      mem_stream_t *stream)
{
    struct sched_view stage = part_flat(lane->stage, view->element, lane->next);
    const struct sched_view *to = to_stage ? &stage : view, *from = to_stage ? view : &stage;
    int code = part_copy(to, from, lane->next, lane->piece, x->device, stream);

    if (code == HETMPI_SUCCESS && x->device) {
        lane->state = LANE_COPYING;
        code = mem_event_record(lane->event, stream);
    }
    return code;
}

static void end_piece(struct lane *lane)
{
    lane->next += lane->piece;
    lane->piece = 0;
    lane->state = lane->next < lane->end ? LANE_IDLE : LANE_OFF;
}

static int test_message(const struct exchange *x, struct lane *lane, int position, bool receive, bool *here)
{
    int flag, error = MPI_Test(&lane->request, &flag, MPI_STATUS_IGNORE);

    if (error != MPI_SUCCESS)
        return mpi_failed(x, error, receive ? "receiving from" : "sending to", position);
    *here = flag;
    return HETMPI_SUCCESS;
}

static int send_message(const struct exchange *x, const struct island_op *op, struct lane *lane, const char *from,
                        int position)
{
    int error = MPI_Isend(from, (int)(lane->piece * op->in.element), MPI_BYTE, rank_of(x, position), tag_of(op),
                          x->island.comm->shadow, &lane->request);

    if (error != MPI_SUCCESS)
        return mpi_failed(x, error, "sending to", position);
    lane->state = LANE_MESSAGE;
    return HETMPI_SUCCESS;
}

static int recv_message(const struct exchange *x, const struct island_op *op, struct lane *lane, char *to,
                        size_t element, int position)
{
    int error = MPI_Irecv(to, (int)(lane->piece * element), MPI_BYTE, rank_of(x, position), tag_of(op),
                          x->island.comm->shadow, &lane->request);

    if (error != MPI_SUCCESS)
        return mpi_failed(x, error, "receiving from", position);
    lane->state = LANE_MESSAGE;
    return HETMPI_SUCCESS;
}

static int poll_send(const struct exchange *x, const struct island_op *op, struct lane *lane, int position)
{
    bool done = false;
    const char *from;
    int code;

    switch (lane->state) {
    case LANE_IDLE:
        from = next_piece(x, lane, &op->in);
        if (lane->staged) {
            code = copy_piece(x, lane, &op->in, true, x->leave);
            if (code != HETMPI_SUCCESS || lane->state == LANE_COPYING)
                return code;
        }
        return send_message(x, op, lane, from, position);
    case LANE_COPYING:
        code = mem_event_query(lane->event, &done);
        return code == HETMPI_SUCCESS && done ? send_message(x, op, lane, lane->stage, position) : code;
    case LANE_MESSAGE:
        code = test_message(x, lane, position, false, &done);
        if (code == HETMPI_SUCCESS && done)
            end_piece(lane);
        return code;
    default:
        return HETMPI_SUCCESS;
    }
}

/* A part of another owner, for SPREAD. */
static int poll_recv(const struct exchange *x, const struct island_op *op, struct lane *lane, int position)
{
    bool done = false;
    char *to;
    int code;

    switch (lane->state) {
    case LANE_IDLE:
        to = next_piece(x, lane, &op->out);
        return recv_message(x, op, lane, to, op->out.element, position);
    case LANE_MESSAGE:
        code = test_message(x, lane, position, true, &done);
        if (code != HETMPI_SUCCESS || !done)
            return code;
        if (lane->staged) {
            code = copy_piece(x, lane, &op->out, false, x->arrive);
            if (code != HETMPI_SUCCESS || lane->state == LANE_COPYING)
                return code;
        }
        end_piece(lane);
        return HETMPI_SUCCESS;
    case LANE_COPYING:
        code = mem_event_query(lane->event, &done);
        if (code == HETMPI_SUCCESS && done)
            end_piece(lane);
        return code;
    default:
        return HETMPI_SUCCESS;
    }
}

/* An operand of our own part, for REDUCE: always into staging. */
static int poll_operand(const struct exchange *x, const struct island_op *op, struct lane *lane, int position)
{
    bool done = false;
    int code;

    switch (lane->state) {
    case LANE_IDLE: {
        size_t most = x->piece_bytes / op->in.element;
        lane->piece = lane->end - lane->next < most ? lane->end - lane->next : most;
        return recv_message(x, op, lane, lane->stage, op->in.element, position);
    }
    case LANE_MESSAGE:
        code = test_message(x, lane, position, true, &done);
        if (code == HETMPI_SUCCESS && done)
            lane->state = LANE_HERE;
        return code;
    default:
        return HETMPI_SUCCESS;
    }
}

/* Reduces the operands of the piece, which are in staging, with ours. */
static int reduce_piece(struct exchange *x, struct context *c, const struct island_op *op)
{
    for (int i = 0; i < x->island.members; i++)
        x->reducer.inputs[i] = i == x->island.position ? op->in : part_flat(c->recv[i].stage, op->in.element, c->next);
    return part_reduce(&x->reducer, op, c->next, c->piece, x->arrive);
}

static void end_own_piece(const struct exchange *x, struct context *c)
{
    c->next += c->piece;
    for (int i = 0; i < x->island.members; i++) {
        if (i != x->island.position)
            end_piece(&c->recv[i]);
    }
}

/* Whether all operands are there, and the result may be written: a block's result may take the place of an operand
 * that has yet to leave (reduce_scatter_block in place). Blocks are single pieces, for which everybody has posted all
 * receives, so waiting for our sends cannot stop anybody. */
static bool may_reduce(const struct exchange *x, const struct context *c, const struct island_op *op)
{
    for (int i = 0; i < x->island.members; i++) {
        if (i == x->island.position)
            continue;
        if (c->recv[i].state != LANE_HERE || (op->step->owners == OWNERS_BLOCK && c->send[i].state != LANE_OFF))
            return false;
    }
    return true;
}

/* Our own part of a REDUCE, piece by piece. */
static int poll_own_part(struct exchange *x, struct context *c, const struct island_op *op)
{
    size_t most = x->piece_bytes / op->in.element;
    int code;

    for (int i = 0; i < x->island.members; i++) {
        code = poll_operand(x, op, &c->recv[i], i);
        if (code != HETMPI_SUCCESS)
            return code;
    }
    if (!may_reduce(x, c, op))
        return HETMPI_SUCCESS;
    c->piece = c->end - c->next < most ? c->end - c->next : most;
    code = reduce_piece(x, c, op);
    if (code == HETMPI_SUCCESS && x->device) {
        c->working = true;
        return mem_event_record(c->event, x->arrive);
    }
    end_own_piece(x, c);
    return code;
}

static int poll_work(const struct exchange *x, struct context *c)
{
    bool done = false;
    int code = mem_event_query(c->event, &done);

    if (code != HETMPI_SUCCESS || !done)
        return code;
    c->working = false;
    if (c->next < c->end)
        end_own_piece(x, c);
    return HETMPI_SUCCESS;
}

static int poll_lanes(const struct exchange *x, struct context *c, const struct island_op *op)
{
    bool spread = op->step->kind == STEP_LOCAL_SPREAD;

    for (int i = 0; i < x->island.members; i++) {
        int code = poll_send(x, op, &c->send[i], i);
        if (code == HETMPI_SUCCESS && spread)
            code = poll_recv(x, op, &c->recv[i], i);
        if (code != HETMPI_SUCCESS)
            return code;
    }
    return HETMPI_SUCCESS;
}

static int exchange_poll(struct island *island, struct island_op *op, bool *done)
{
    struct exchange *x = (struct exchange *)island;
    struct context *c = context_of(x, op->number);
    int code = poll_lanes(x, c, op);

    *done = false;
    if (code == HETMPI_SUCCESS && c->working)
        code = poll_work(x, c);
    if (code == HETMPI_SUCCESS && !c->working && c->next < c->end)
        code = poll_own_part(x, c, op);
    if (code != HETMPI_SUCCESS || c->working || c->next < c->end)
        return code;
    for (int i = 0; i < island->members; i++) {
        if (c->send[i].state != LANE_OFF || c->recv[i].state != LANE_OFF)
            return HETMPI_SUCCESS;
    }
    c->busy = false;
    *done = true;
    return HETMPI_SUCCESS;
}

const struct island_ops island_mpi = {
    .name = "mpi", .needs_mpi = true,
    .open = exchange_open, .close = exchange_close, .start = exchange_start, .poll = exchange_poll,
};
