/* The shm wire: its operations; see shm.h for how it works. */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "core/log.h"
#include "hetmpi.h"
#include "wire/shm.h"

#define SHM_CLOSE_SECONDS 60.0   /* longest wait at close for receivers that still read our slots, without TIMEOUT */
#define SHM_CLOSE_SPIN 0.005     /* ... until it sleeps between looks */
#define SHM_CLOSE_LOOK 0.2       /* ... until it looks whether they live */

static struct shm_message *message_new(struct shm *shm)
{
    struct shm_message *m = calloc(1, sizeof(*m));

    if (m) {
        m->older = shm->all_messages;
        shm->all_messages = m;
        shm->n_messages++;
    }
    return m;
}

static int shm_reserve(struct wire *wire, size_t messages)
{
    struct shm *shm = (struct shm *)wire;

    while (shm->n_messages < messages) {
        struct shm_message *m = message_new(shm);
        if (!m)
            return err_set(HETMPI_ERR_MEMORY, "%s wire: no memory for %zu messages", shm_name(shm),
                           messages);
        m->next = shm->free_messages;
        shm->free_messages = m;
    }
    return HETMPI_SUCCESS;
}

static struct shm_message *message_get(struct shm *shm, struct wire_xfer *x, int local)
{
    struct shm_message *m = shm->free_messages;

    if (m)
        shm->free_messages = m->next;
    else
        m = message_new(shm);
    if (!m)
        return NULL;
    *m = (struct shm_message){ .local = local, .op = x->op, .chunk = x->chunk, .channel = x->channel, .view = x->view,
                               .first = x->first, .length = x->length, .total = x->length * x->view.element,
                               .copying = -1, .older = m->older };
    x->request = m;
    return m;
}

static void message_put(struct shm *shm, struct wire_xfer *x)
{
    struct shm_message *m = x->request;

    m->next = shm->free_messages;
    shm->free_messages = m;
    x->request = NULL;
}

static int local_index(const struct comm *comm, int rank)
{
    for (int i = 0; i < comm->n_local; i++)
        if (comm->local[i] == rank)
            return i;
    return -1;
}

/* The ranks that this wire may send to. */
static bool serves(const struct shm *shm, int rank)
{
    const struct comm *comm = shm->wire.comm;

    return rank != comm->rank && (!shm->in_device || comm->topo.island_of[rank] == comm->topo.island_of[comm->rank]);
}

static int open_with(struct comm *comm, struct wire **wire, const struct wire_ops *ops, bool in_device)
{
    struct shm *shm = calloc(1, sizeof(*shm));

    if (shm)
        shm->peers = calloc((size_t)comm->n_local, sizeof(*shm->peers));
    if (!shm || !shm->peers) {
        free(shm);
        return err_set(HETMPI_ERR_MEMORY, "%s wire: no memory for its state (%d ranks on the node)", ops->name,
                       comm->n_local);
    }
    shm->wire = (struct wire){ .ops = ops, .comm = comm };
    shm->in_device = in_device;
    shm->me = local_index(comm, comm->rank);
    shm->device = mem_has_device();
    shm->region.seg.fd = -1;
    for (int i = 0; i < comm->n_local; i++) {
        struct shm_peer *peer = &shm->peers[i];
        peer->region.seg.fd = -1;
        peer->pending_end = &peer->pending;
        peer->reserves = serves(shm, comm->local[i]);
        shm->n_peers += peer->reserves;
    }
    *wire = &shm->wire;
    return HETMPI_SUCCESS;
}

static int shm_open(struct comm *comm, struct wire **wire)
{
    return open_with(comm, wire, &wire_shm, false);
}

static int ipc_open(struct comm *comm, struct wire **wire)
{
    return open_with(comm, wire, &wire_ipc, true);
}

static bool reader_died(const struct shm *shm)
{
    const struct comm *comm = shm->wire.comm;

    for (int i = 0; i < comm->n_local; i++)
        if (shm->peers[i].held && comm->pids && kill(comm->pids[comm->local[i]], 0) && errno == ESRCH)
            return true;
    return false;
}

/* Peers that finish later may still read our slots, or may not even have mapped them yet. */
static void wait_for_readers(struct shm *shm)
{
    struct comm *comm = shm->wire.comm;
    double most = comm->cfg->timeout > 0 ? comm->cfg->timeout : SHM_CLOSE_SECONDS, waited = 0;
    struct timespec start, now;

    clock_gettime(CLOCK_MONOTONIC, &start);
    while (!shm_send_read(shm) && !comm_failed(comm)) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        waited = (double)(now.tv_sec - start.tv_sec) + 1e-9 * (double)(now.tv_nsec - start.tv_nsec);
        if (waited > most || (waited > SHM_CLOSE_LOOK && reader_died(shm)))
            return;
        if (waited > SHM_CLOSE_SPIN)
            nanosleep(&(struct timespec){ .tv_nsec = 200000 }, NULL);
        else
            sched_yield();
    }
}

static void shm_close(struct wire *wire)
{
    struct shm *shm = (struct shm *)wire;

    stage_lane_clear(&shm->out);
    stage_lane_clear(&shm->in);
    if (shm->region.seg.base)
        wait_for_readers(shm);
    for (int i = 0; i < shm->n_slots; i++)
        if (shm->slots[i].event)
            mem_event_destroy(shm->slots[i].event);
    for (struct shm_frag *f = shm->all_frags, *older; f; f = older) {
        older = f->older;
        if (f->event)
            mem_event_destroy(f->event);
        free(f->stash);
        free(f);
    }
    for (struct shm_message *m = shm->all_messages, *older; m; m = older) {
        older = m->older;
        free(m);
    }
    for (int i = 0; i < wire->comm->n_local; i++)
        shm_region_clear(&shm->peers[i].region);
    shm_region_clear(&shm->region);
    free(shm->slots);
    free(shm->free);
    free(shm->peers);
    free(shm);
}

static int message_begin(struct shm *shm, struct wire_xfer *x, int *local)
{
    *local = local_index(shm->wire.comm, x->peer);
    if (*local < 0)
        return err_set(HETMPI_ERR_INTERNAL, "%s wire: rank %d does not share memory with rank %d", shm_name(shm),
                       x->peer, shm->wire.comm->rank);
    x->ops = shm->wire.ops;
    x->request = NULL;
    x->moved = 0;
    return HETMPI_SUCCESS;
}

enum { SENDING, RECEIVING };   /* wire_xfer.state */

static int shm_send(struct wire *wire, struct wire_xfer *x)
{
    struct shm *shm = (struct shm *)wire;
    struct shm_message *m;
    int local;
    int rc = message_begin(shm, x, &local);

    if (!rc && !shm->region.seg.base)
        rc = shm_region_make(shm);
    if (rc)
        return rc;
    if (!shm_send_ready(shm, local))
        return (rc = shm_stalled(shm)) ? rc : COMM_AGAIN;
    if (!(m = message_get(shm, x, local)))
        return err_set(HETMPI_ERR_MEMORY, "%s wire: no memory for a message to rank %d", shm_name(shm), x->peer);
    x->state = SENDING;
    return shm_send_fill(shm, m);
}

static int shm_recv(struct wire *wire, struct wire_xfer *x)
{
    struct shm *shm = (struct shm *)wire;
    struct shm_message *m;
    int local;
    int rc = message_begin(shm, x, &local);

    if (rc)
        return rc;
    if (!(m = message_get(shm, x, local)))
        return err_set(HETMPI_ERR_MEMORY, "%s wire: no memory for a message from rank %d", shm_name(shm), x->peer);
    m->next = shm->peers[local].receives;
    shm->peers[local].receives = m;
    x->state = RECEIVING;
    return HETMPI_SUCCESS;
}

static int poll_send(struct shm *shm, struct shm_message *m)
{
    int rc = shm_send_publish(shm, m);

    if (!rc && m->issued < m->total)
        rc = shm_send_fill(shm, m);
    return rc;
}

static int shm_poll(struct wire *wire, struct wire_xfer *x, bool *done)
{
    struct shm *shm = (struct shm *)wire;
    struct shm_message *m = x->request;
    int rc;

    *done = !m;
    if (!m)
        return HETMPI_SUCCESS;
    size_t before = m->moved + m->issued;
    rc = x->state == SENDING ? poll_send(shm, m) : shm_recv_progress(shm, m);
    if (rc)
        return rc;
    x->moved = m->moved;
    if (shm->in_device && before != m->moved + m->issued)
        shm->fruitless = 0;
    if (m->moved == m->total) {
        if (x->state == RECEIVING) {
            struct shm_message **link = &shm->peers[m->local].receives;
            while (*link != m)
                link = &(*link)->next;
            *link = m->next;
        }
        message_put(shm, x);
        *done = true;
        return HETMPI_SUCCESS;
    }
    return before == m->moved + m->issued ? shm_stalled(shm) : HETMPI_SUCCESS;
}

static int shm_rails(const struct wire *wire, int peer)
{
    (void)wire;
    (void)peer;
    return 1;
}

const struct wire_ops wire_shm = {
    .name = "shm",
    .open = shm_open,
    .close = shm_close,
    .send = shm_send,
    .recv = shm_recv,
    .poll = shm_poll,
    .rails = shm_rails,
    .reserve = shm_reserve,
};

const struct wire_ops wire_ipc = {
    .name = "ipc",
    .open = ipc_open,
    .close = shm_close,
    .send = shm_send,
    .recv = shm_recv,
    .poll = shm_poll,
    .rails = shm_rails,
    .reserve = shm_reserve,
};
