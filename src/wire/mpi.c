/*
 * The mpi wire: messages over MPI point-to-point on the shadow communicator, tag TAG_WIRE + channel.
 *
 * What the CPU can touch and stands in one piece is sent and received in place. All else goes through slots
 * (mpi_slots.h): a send copies to a slot, then sends that; a receive receives into a slot, then copies from
 * it. Messages of one pair and channel match by order alone, so sends are posted in the order in which they began.
 *
 * Between nodes a message goes in pieces (MPI_PIECE) so short that MPI sends them without asking, over TCP up to 64 KiB
 * with its own header: over a slow link a question waits behind the bytes that are under way, in both directions, and
 * the link stands still meanwhile. The last piece of a message asks all the same, so that no sender runs ahead of its
 * receiver by more than the caller's window, which is also the most that MPI keeps for a receiver that is late; and Open
 * MPI moves to the next of several links only when it asks, so it is what makes use of them all.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "core/log.h"
#include "hetmpi.h"
#include "wire/mpi_slots.h"
#include "wire/stage.h"
#include "wire/wire.h"

#define MPI_CLOSE_SECONDS 0.2             /* time given to requests that cannot be cancelled */
#define MPI_PIECES_MAX 32                 /* of a message */

/* The messages of one peer, channel and direction, in the order in which MPI matches them. */
struct mpi_order {
    uint16_t channel;
    bool send;
    struct mpi_message *last;   /* of those that are not over the wire yet */
    struct mpi_order *next;     /* of the same peer */
};

struct mpi_message {
    enum { MESSAGE_IDLE, SEND_COPY, SEND_WIRE, RECV_WIRE, RECV_COPY } state;
    int peer;
    uint16_t channel;
    bool device;           /* staged by the copy engine */
    struct sched_view view;
    size_t first, length, bytes;
    void *place;           /* what MPI reads or writes: the elements themselves, or the slot */
    struct mpi_slot *slot; /* NULL: in place */
    int pieces, over;      /* ... of them over the wire */
    MPI_Request requests[MPI_PIECES_MAX];
    struct mpi_order *order;
    struct mpi_message *before, *after;   /* in that order */
    struct mpi_message *next;   /* sends not yet posted, in order; or the free list */
    struct mpi_message *older;  /* all that were ever allocated */
};

struct mpi {
    struct wire wire;
    struct mpi_pool out, in;
    struct stage_lane out_lane, in_lane;
    struct mpi_message *unposted, **unposted_end;
    struct mpi_message *free, *all;
    struct mpi_order **orders;  /* [ranks] */
};

static int wire_error(int mpi_code, const char *call, const struct mpi_message *m)
{
    char text[96];

    if (mpi_code == MPI_SUCCESS)
        return HETMPI_SUCCESS;
    snprintf(text, sizeof(text), "mpi wire: %s, peer %d, channel %u, %zu bytes", call, m->peer, m->channel, m->bytes);
    return comm_mpi_error(mpi_code, text);
}

/* ---- messages ---- */

/* In how many pieces a message goes: both ends find the same. */
static int choose_pieces(const struct comm *comm, int peer, size_t bytes)
{
    size_t piece = comm->cfg->mpi_piece, pieces;

    if (!piece || comm_is_local(comm, peer))
        return 1;
    pieces = (bytes + piece - 1) / piece;
    return pieces < MPI_PIECES_MAX ? (int)pieces : MPI_PIECES_MAX;
}

static size_t piece_at(const struct mpi_message *m, int piece)
{
    return m->bytes / (size_t)m->pieces * (size_t)piece;
}

static size_t piece_bytes(const struct mpi_message *m, int piece)
{
    return (piece + 1 < m->pieces ? piece_at(m, piece + 1) : m->bytes) - piece_at(m, piece);
}

static struct mpi_order *find_order(struct mpi *mpi, int peer, uint16_t channel, bool send)
{
    struct mpi_order *order = mpi->orders[peer];

    while (order && (order->channel != channel || order->send != send))
        order = order->next;
    if (order)
        return order;
    order = calloc(1, sizeof(*order));
    if (!order)
        return NULL;
    order->channel = channel;
    order->send = send;
    order->next = mpi->orders[peer];
    mpi->orders[peer] = order;
    return order;
}

/* The message is over the wire; it was the first of its order. */
static void leave_order(struct mpi_message *m)
{
    if (m->after)
        m->after->before = NULL;
    else
        m->order->last = NULL;
    m->after = NULL;
}

static struct mpi_message *take_message(struct mpi *mpi)
{
    struct mpi_message *m = mpi->free;

    if (m) {
        mpi->free = m->next;
        return m;
    }
    m = malloc(sizeof(*m));
    if (!m)
        return NULL;
    m->older = mpi->all;
    m->pieces = m->over = 0;
    m->state = MESSAGE_IDLE;
    mpi->all = m;
    return m;
}

/* A message for x, in place or with a slot. */
static int message_begin(struct mpi *mpi, struct wire_xfer *x, struct mpi_pool *pool, struct mpi_message **out)
{
    size_t bytes = x->length * x->view.element;
    struct mpi_slot *slot = NULL;
    struct mpi_message *m = NULL;
    struct mpi_order *order;
    struct mem_pointer what;
    void *place;
    bool device = false;
    int rc;

    if (bytes > INT_MAX)
        return err_set(HETMPI_ERR_UNSUPPORTED, "mpi wire: a message of %zu bytes to or from rank %d, MPI's counts end "
                       "at %d: set a smaller CHUNK", bytes, x->peer, INT_MAX);
    place = stage_span(&x->view, x->first, x->length);
    if (mem_has_device()) {
        rc = mem_query(x->view.base, &what);
        if (rc)
            return rc;
        device = what.kind == MEM_DEVICE;
    }
    if (!place || device) {
        rc = mpi_pool_take(pool, bytes, x, &slot);
        if (rc)
            return rc;
        place = slot->base;
    }
    order = find_order(mpi, x->peer, x->channel, pool == &mpi->out);
    if (order)
        m = take_message(mpi);
    if (!m) {
        if (slot)
            slot->busy = false;
        return err_set(HETMPI_ERR_MEMORY, "mpi wire: no memory for a message to or from rank %d", x->peer);
    }
    m->state = MESSAGE_IDLE;
    m->peer = x->peer;
    m->channel = x->channel;
    m->device = device;
    m->view = x->view;
    m->first = x->first;
    m->length = x->length;
    m->bytes = bytes;
    m->place = place;
    m->slot = slot;
    m->pieces = choose_pieces(mpi->wire.comm, x->peer, bytes);
    m->over = 0;
    for (int i = 0; i < m->pieces; i++)
        m->requests[i] = MPI_REQUEST_NULL;
    m->order = order;
    m->before = order->last;
    m->after = NULL;
    if (m->before)
        m->before->after = m;
    order->last = m;
    x->ops = &wire_mpi;
    x->request = m;
    x->moved = 0;
    *out = m;
    return HETMPI_SUCCESS;
}

static void message_end(struct mpi *mpi, struct wire_xfer *x)
{
    struct mpi_message *m = x->request;

    if (m->slot)
        m->slot->busy = false;
    m->slot = NULL;
    m->state = MESSAGE_IDLE;
    m->next = mpi->free;
    mpi->free = m;
    x->moved = m->bytes;
    x->request = NULL;
}

/* An earlier send of the same peer and channel is still being copied: sends are posted in their order. */
static bool must_wait(const struct mpi_message *m)
{
    return m->before && m->before->state == SEND_COPY;
}

static int post_send(struct mpi *mpi, struct mpi_message *m)
{
    int rc = HETMPI_SUCCESS;

    m->state = SEND_WIRE;
    for (int i = 0; i < m->pieces && !rc; i++) {
        const void *place = (char *)m->place + piece_at(m, i);
        int bytes = (int)piece_bytes(m, i), tag = TAG_WIRE + m->channel;
        bool asks = m->pieces > 1 && i + 1 == m->pieces;
        rc = wire_error(asks ? MPI_Issend(place, bytes, MPI_BYTE, m->peer, tag, mpi->wire.comm->shadow, &m->requests[i])
                             : MPI_Isend(place, bytes, MPI_BYTE, m->peer, tag, mpi->wire.comm->shadow, &m->requests[i]),
                        "MPI_Isend", m);
    }
    return rc;
}

/* Posts the sends whose copies have ended and whose turn it is. */
static int post_sends(struct mpi *mpi)
{
    for (struct mpi_message **link = &mpi->unposted; *link;) {
        struct mpi_message *m = *link;
        bool ready = true;
        int rc;
        if (m->device && (rc = mem_event_query(m->slot->event, &ready)))
            return rc;
        if (!ready || must_wait(m)) {
            link = &m->next;
            continue;
        }
        *link = m->next;
        if (!*link)
            mpi->unposted_end = link;
        rc = post_send(mpi, m);
        if (rc)
            return rc;
    }
    return HETMPI_SUCCESS;
}

static int mpi_send(struct wire *wire, struct wire_xfer *x)
{
    struct mpi *mpi = (struct mpi *)wire;
    struct mpi_message *m;
    int rc = message_begin(mpi, x, &mpi->out, &m);

    if (rc)
        return rc;
    if (m->device)
        rc = stage_copy_async(&mpi->out_lane, STAGE_OUT, &m->view, m->first, m->length, m->place, &m->slot->event);
    else if (m->slot)
        stage_copy_now(STAGE_OUT, &m->view, m->first, m->length, m->place);
    if (rc)
        return rc;
    if (!m->device && !must_wait(m))
        return post_send(mpi, m);
    m->state = SEND_COPY;
    m->next = NULL;
    *mpi->unposted_end = m;
    mpi->unposted_end = &m->next;
    return HETMPI_SUCCESS;
}

static int mpi_recv(struct wire *wire, struct wire_xfer *x)
{
    struct mpi *mpi = (struct mpi *)wire;
    struct mpi_message *m;
    int rc = message_begin(mpi, x, &mpi->in, &m);

    if (rc)
        return rc;
    m->state = RECV_WIRE;
    for (int i = 0; i < m->pieces && !rc; i++)
        rc = wire_error(MPI_Irecv((char *)m->place + piece_at(m, i), (int)piece_bytes(m, i), MPI_BYTE, m->peer,
                                  TAG_WIRE + m->channel, mpi->wire.comm->shadow, &m->requests[i]), "MPI_Irecv", m);
    return rc;
}

/* Whether the next piece is over the wire; checks what came. */
static int test_piece(struct mpi_message *m, bool *done)
{
    size_t expected = piece_bytes(m, m->over);
    MPI_Status status;
    int flag, count, class = MPI_SUCCESS;
    int mpi_code = MPI_Test(&m->requests[m->over], &flag, &status);

    if (mpi_code != MPI_SUCCESS)
        MPI_Error_class(mpi_code, &class);
    if (class == MPI_ERR_TRUNCATE)
        return err_set(HETMPI_ERR_INTERNAL, "mpi wire: rank %d sent more than the %zu bytes that are expected on "
                       "channel %u", m->peer, expected, m->channel);
    if (mpi_code != MPI_SUCCESS)
        return wire_error(mpi_code, "MPI_Test", m);
    *done = flag;
    if (!flag || m->state != RECV_WIRE)
        return HETMPI_SUCCESS;
    MPI_Get_count(&status, MPI_BYTE, &count);
    if ((size_t)count != expected)
        return err_set(HETMPI_ERR_INTERNAL, "mpi wire: rank %d sent %d bytes where %zu are expected on channel %u",
                       m->peer, count, expected, m->channel);
    return HETMPI_SUCCESS;
}

/* Whether the message is over the wire. A test of MPI's is a look at all its connections, so with many messages under
 * way only the first of each order is tested, as far as its pieces have come. */
static int test_wire(struct mpi_message *m, bool *done)
{
    int rc = HETMPI_SUCCESS;
    bool here = true;

    if (m->before)
        return HETMPI_SUCCESS;
    while (m->over < m->pieces && !rc) {
        rc = test_piece(m, &here);
        if (rc || !here)
            return rc;
        m->over++;
    }
    leave_order(m);
    *done = true;
    return HETMPI_SUCCESS;
}

/* A received message goes from its slot to its place. */
static int unpack(struct mpi *mpi, struct mpi_message *m, bool *done)
{
    *done = !m->device;
    if (!m->slot)
        return HETMPI_SUCCESS;
    if (m->device) {
        m->state = RECV_COPY;
        return stage_copy_async(&mpi->in_lane, STAGE_IN, &m->view, m->first, m->length, m->place, &m->slot->event);
    }
    stage_copy_now(STAGE_IN, &m->view, m->first, m->length, m->place);
    return HETMPI_SUCCESS;
}

static int mpi_poll(struct wire *wire, struct wire_xfer *x, bool *done)
{
    struct mpi *mpi = (struct mpi *)wire;
    struct mpi_message *m = x->request;
    int rc = HETMPI_SUCCESS;

    *done = !m;
    if (!m)
        return HETMPI_SUCCESS;
    if (mpi->unposted && (rc = post_sends(mpi)))
        return rc;
    switch (m->state) {
    case SEND_WIRE:
        rc = test_wire(m, done);
        break;
    case RECV_WIRE:
        rc = test_wire(m, done);
        if (!rc && *done)
            rc = unpack(mpi, m, done);
        break;
    case RECV_COPY:
        rc = mem_event_query(m->slot->event, done);
        break;
    default:
        break;
    }
    if (!rc && *done)
        message_end(mpi, x);
    return rc;
}

/* ---- the wire ---- */

static int mpi_open(struct comm *comm, struct wire **wire)
{
    struct mpi *mpi;

    if (comm->shadow == MPI_COMM_NULL)
        return err_set(HETMPI_ERR_INTERNAL, "mpi wire: the communicator has no shadow to carry its messages");
    mpi = calloc(1, sizeof(*mpi));
    if (mpi)
        mpi->orders = calloc((size_t)comm->size, sizeof(struct mpi_order *));
    if (!mpi || !mpi->orders) {
        free(mpi);
        return err_set(HETMPI_ERR_MEMORY, "mpi wire: no memory for its state");
    }
    mpi->wire = (struct wire){ .ops = &wire_mpi, .comm = comm };
    mpi->out.bound = mpi->in.bound = comm->cfg->staging / 2;
    mpi->unposted_end = &mpi->unposted;
    *wire = &mpi->wire;
    return HETMPI_SUCCESS;
}

/* Tests what is under way of a message; the number of pieces that are still MPI's. */
static int pieces_left(struct mpi_message *m)
{
    int left = 0;

    for (int i = m->over; i < m->pieces; i++) {
        int flag = 1;
        if (m->requests[i] != MPI_REQUEST_NULL && MPI_Test(&m->requests[i], &flag, MPI_STATUS_IGNORE) != MPI_SUCCESS)
            m->requests[i] = MPI_REQUEST_NULL;
        left += !flag;
    }
    if (!left)
        m->over = m->pieces;
    return left;
}

/* Ends what a failure left behind. Receives are cancelled; a send to a rank that is gone can only be given up, and then
 * its memory stays MPI's. */
static void requests_end(struct mpi *mpi)
{
    struct timespec start, now;
    int pending;

    for (struct mpi_message *m = mpi->all; m; m = m->older)
        for (int i = m->over; i < m->pieces && m->state == RECV_WIRE; i++)
            if (m->requests[i] != MPI_REQUEST_NULL)
                MPI_Cancel(&m->requests[i]);
    clock_gettime(CLOCK_MONOTONIC, &start);
    do {
        pending = 0;
        for (struct mpi_message *m = mpi->all; m; m = m->older)
            pending += pieces_left(m);
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (pending && (double)(now.tv_sec - start.tv_sec) + 1e-9 * (double)(now.tv_nsec - start.tv_nsec) <
                            MPI_CLOSE_SECONDS);
    if (pending)
        log_debug("mpi wire: %d messages given up at close", pending);
}

static void mpi_close(struct wire *wire)
{
    struct mpi *mpi = (struct mpi *)wire;

    stage_lane_clear(&mpi->out_lane);
    stage_lane_clear(&mpi->in_lane);
    requests_end(mpi);
    for (struct mpi_message *m = mpi->all; m; m = m->older)
        if (m->slot && m->over < m->pieces)
            m->slot->lost = true;
    mpi_pool_clear(&mpi->out);
    mpi_pool_clear(&mpi->in);
    for (struct mpi_message *m = mpi->all, *next; m; m = next) {
        next = m->older;
        for (int i = m->over; i < m->pieces; i++)
            if (m->requests[i] != MPI_REQUEST_NULL)
                MPI_Request_free(&m->requests[i]);
        free(m);
    }
    for (int peer = 0; peer < mpi->wire.comm->size; peer++)
        for (struct mpi_order *order = mpi->orders[peer], *next; order; order = next) {
            next = order->next;
            free(order);
        }
    free(mpi->orders);
    free(mpi);
}

static int mpi_rails(const struct wire *wire, int peer)
{
    (void)wire;
    (void)peer;
    return 1;   /* MPI chooses links by itself, and does not tell */
}

const struct wire_ops wire_mpi = {
    .name = "mpi",
    .caps = WIRE_NEEDS_MPI,
    .open = mpi_open,
    .close = mpi_close,
    .send = mpi_send,
    .recv = mpi_recv,
    .poll = mpi_poll,
    .rails = mpi_rails,
};
