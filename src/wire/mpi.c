/*
 * The mpi wire: messages over MPI point-to-point on the shadow communicator, tag TAG_WIRE + channel.
 *
 * What the CPU can touch and stands in one piece is sent and received in place. All else goes through slots of
 * registered host memory: a send copies to a slot, then sends that; a receive receives into a slot, then copies from
 * it. Messages of one pair and channel match by order alone, so sends are posted in the order in which they began.
 *
 * The slots are bounded by the setting STAGING, half for each direction. The bound gives way for the oldest chunk: a
 * message that no holder of a slot is older than always gets one, so a chunk never waits for slots that later chunks
 * hold, and no set of ranks can deadlock on them.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "core/log.h"
#include "hetmpi.h"
#include "wire/stage.h"
#include "wire/wire.h"

#define MPI_SLOT_UNIT ((size_t)64 << 10)  /* slots are multiples of it, so that chunks of nearly one size share them */
#define MPI_SLOTS_LEAST 2                 /* of a direction, whatever the bound */
#define MPI_CLOSE_SECONDS 0.2             /* time given to requests that cannot be cancelled */

struct mpi_slot {
    char *base;
    size_t bytes;
    bool busy;
    uint64_t op;           /* of the holder */
    uint32_t chunk;
    mem_event_t *event;
};

/* The slots of one direction. */
struct mpi_pool {
    struct mpi_slot **slots;
    int n, room;
    size_t bytes, bound;
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
    MPI_Request request;
    struct mpi_message *next;   /* sends not yet posted, in order; or the free list */
    struct mpi_message *older;  /* all that were ever allocated */
};

struct mpi {
    struct wire wire;
    struct mpi_pool out, in;
    struct stage_lane out_lane, in_lane;
    struct mpi_message *unposted, **unposted_end;
    struct mpi_message *free, *all;
};

static int wire_error(int mpi_code, const char *call, const struct mpi_message *m)
{
    char text[96];

    if (mpi_code == MPI_SUCCESS)
        return HETMPI_SUCCESS;
    snprintf(text, sizeof(text), "mpi wire: %s, peer %d, channel %u, %zu bytes", call, m->peer, m->channel, m->bytes);
    return comm_mpi_error(mpi_code, text);
}

/* ---- slots ---- */

static int slot_new(struct mpi_pool *pool, size_t bytes, struct mpi_slot **out)
{
    struct mpi_slot *slot;
    void *base;
    int rc;

    if (pool->n == pool->room) {
        int room = pool->room ? 2 * pool->room : 16;
        struct mpi_slot **slots = realloc(pool->slots, (size_t)room * sizeof(struct mpi_slot *));
        if (!slots)
            return err_set(HETMPI_ERR_MEMORY, "mpi wire: no memory for a table of %d slots", room);
        pool->slots = slots;
        pool->room = room;
    }
    slot = calloc(1, sizeof(*slot));
    if (!slot)
        return err_set(HETMPI_ERR_MEMORY, "mpi wire: no memory for a slot's state");
    rc = mem_host_alloc(bytes, &base);
    if (rc) {
        free(slot);
        return rc;
    }
    slot->base = base;
    slot->bytes = bytes;
    pool->slots[pool->n++] = slot;
    pool->bytes += bytes;
    *out = slot;
    return HETMPI_SUCCESS;
}

/* keep_memory: MPI may still write to it. */
static void slot_free(struct mpi_slot *slot, bool keep_memory)
{
    if (slot->event)
        mem_event_destroy(slot->event);
    if (!keep_memory)
        mem_host_free(slot->base);
    free(slot);
}

/* Frees idle slots, which are all too small, until `bytes` more fit under the bound. */
static void pool_shrink(struct mpi_pool *pool, size_t bytes)
{
    for (int i = 0; i < pool->n && pool->bytes + bytes > pool->bound;) {
        struct mpi_slot *slot = pool->slots[i];
        if (slot->busy) {
            i++;
            continue;
        }
        pool->bytes -= slot->bytes;
        slot_free(slot, false);
        pool->slots[i] = pool->slots[--pool->n];
    }
}

static bool older(uint64_t op, uint32_t chunk, const struct mpi_slot *than)
{
    return op < than->op || (op == than->op && chunk < than->chunk);
}

/* A slot for `bytes`, the smallest that fits; COMM_AGAIN when there is none to be had now. */
static int pool_take(struct mpi_pool *pool, size_t bytes, const struct wire_xfer *x, struct mpi_slot **out)
{
    struct mpi_slot *best = NULL;
    bool oldest = true;
    size_t wanted = (bytes + MPI_SLOT_UNIT - 1) / MPI_SLOT_UNIT * MPI_SLOT_UNIT;
    int rc;

    for (int i = 0; i < pool->n; i++) {
        struct mpi_slot *slot = pool->slots[i];
        if (slot->busy)
            oldest = oldest && (older(x->op, x->chunk, slot) || (slot->op == x->op && slot->chunk == x->chunk));
        else if (slot->bytes >= bytes && (!best || slot->bytes < best->bytes))
            best = slot;
    }
    if (!best) {
        pool_shrink(pool, wanted);
        if (pool->n >= MPI_SLOTS_LEAST && pool->bytes + wanted > pool->bound && !oldest)
            return COMM_AGAIN;
        rc = slot_new(pool, wanted, &best);
        if (rc)
            return rc;
    }
    best->busy = true;
    best->op = x->op;
    best->chunk = x->chunk;
    *out = best;
    return HETMPI_SUCCESS;
}

/* keep_memory: some slot's memory is still MPI's. */
static void pool_clear(struct mpi_pool *pool, const struct mpi *mpi)
{
    for (int i = 0; i < pool->n; i++) {
        bool keep = false;
        for (const struct mpi_message *m = mpi->all; m; m = m->older)
            keep = keep || (m->slot == pool->slots[i] && m->request != MPI_REQUEST_NULL);
        slot_free(pool->slots[i], keep);
    }
    free(pool->slots);
}

/* ---- messages ---- */

/* A message for x, in place or with a slot. */
static int message_begin(struct mpi *mpi, struct wire_xfer *x, struct mpi_pool *pool, struct mpi_message **out)
{
    size_t bytes = x->length * x->view.element;
    struct mpi_slot *slot = NULL;
    struct mpi_message *m;
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
        rc = pool_take(pool, bytes, x, &slot);
        if (rc)
            return rc;
        place = slot->base;
    }
    m = mpi->free;
    if (m) {
        mpi->free = m->next;
    } else {
        m = malloc(sizeof(*m));
        if (!m) {
            if (slot)
                slot->busy = false;
            return err_set(HETMPI_ERR_MEMORY, "mpi wire: no memory for a message to or from rank %d", x->peer);
        }
        m->older = mpi->all;
        mpi->all = m;
    }
    *m = (struct mpi_message){ .peer = x->peer, .channel = x->channel, .device = device, .view = x->view,
                               .first = x->first, .length = x->length, .bytes = bytes, .place = place, .slot = slot,
                               .request = MPI_REQUEST_NULL, .older = m->older };
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

/* An earlier send of the same peer and channel is still being copied. */
static bool must_wait(const struct mpi *mpi, const struct mpi_message *m)
{
    for (const struct mpi_message *before = mpi->unposted; before && before != m; before = before->next)
        if (before->peer == m->peer && before->channel == m->channel)
            return true;
    return false;
}

static int post_send(struct mpi *mpi, struct mpi_message *m)
{
    m->state = SEND_WIRE;
    return wire_error(MPI_Isend(m->place, (int)m->bytes, MPI_BYTE, m->peer, TAG_WIRE + m->channel,
                                mpi->wire.comm->shadow, &m->request), "MPI_Isend", m);
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
        if (!ready || must_wait(mpi, m)) {
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
    if (!m->device && !must_wait(mpi, m))
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
    return wire_error(MPI_Irecv(m->place, (int)m->bytes, MPI_BYTE, m->peer, TAG_WIRE + m->channel,
                                mpi->wire.comm->shadow, &m->request), "MPI_Irecv", m);
}

/* Whether the message is on this side of the wire; checks what came. */
static int test_wire(struct mpi_message *m, bool *done)
{
    MPI_Status status;
    int flag, count, class = MPI_SUCCESS;
    int mpi_code = MPI_Test(&m->request, &flag, &status);

    if (mpi_code != MPI_SUCCESS)
        MPI_Error_class(mpi_code, &class);
    if (class == MPI_ERR_TRUNCATE)
        return err_set(HETMPI_ERR_INTERNAL, "mpi wire: rank %d sent more than the %zu bytes that are expected on "
                       "channel %u", m->peer, m->bytes, m->channel);
    if (mpi_code != MPI_SUCCESS)
        return wire_error(mpi_code, "MPI_Test", m);
    *done = flag;
    if (!flag || m->state != RECV_WIRE)
        return HETMPI_SUCCESS;
    MPI_Get_count(&status, MPI_BYTE, &count);
    if ((size_t)count != m->bytes)
        return err_set(HETMPI_ERR_INTERNAL, "mpi wire: rank %d sent %d bytes where %zu are expected on channel %u",
                       m->peer, count, m->bytes, m->channel);
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
    if (!mpi)
        return err_set(HETMPI_ERR_MEMORY, "mpi wire: no memory for its state");
    mpi->wire = (struct wire){ .ops = &wire_mpi, .comm = comm };
    mpi->out.bound = mpi->in.bound = comm->cfg->staging / 2;
    mpi->unposted_end = &mpi->unposted;
    *wire = &mpi->wire;
    return HETMPI_SUCCESS;
}

/* Ends what a failure left behind. Receives are cancelled; a send to a rank that is gone can only be given up, and then
 * its memory stays MPI's. */
static void requests_end(struct mpi *mpi)
{
    struct timespec start, now;
    int pending;

    for (struct mpi_message *m = mpi->all; m; m = m->older)
        if (m->state == RECV_WIRE && m->request != MPI_REQUEST_NULL)
            MPI_Cancel(&m->request);
    clock_gettime(CLOCK_MONOTONIC, &start);
    do {
        pending = 0;
        for (struct mpi_message *m = mpi->all; m; m = m->older) {
            int flag = 1;
            if (m->request != MPI_REQUEST_NULL && MPI_Test(&m->request, &flag, MPI_STATUS_IGNORE) != MPI_SUCCESS)
                m->request = MPI_REQUEST_NULL;
            pending += !flag;
        }
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
    pool_clear(&mpi->out, mpi);
    pool_clear(&mpi->in, mpi);
    for (struct mpi_message *m = mpi->all, *next; m; m = next) {
        next = m->older;
        if (m->request != MPI_REQUEST_NULL)
            MPI_Request_free(&m->request);
        free(m);
    }
    free(mpi);
}

static int mpi_rails(const struct wire *wire, int peer)
{
    (void)wire;
    (void)peer;
    return 1;
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
