/* The verbs wire: its operations. See verbs.h for how it works. */
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "core/proc.h"
#include "hetmpi.h"
#include "wire/verbs/verbs.h"

enum { SENDING, RECEIVING, OVER_MPI };   /* wire_xfer.state */

_Static_assert(sizeof(struct verbs_facts) <= sizeof(struct wire_net), "what a rank publishes of its rails");

/* ---- what a rank has ---- */

bool wire_verbs_present(void)
{
    int n = 0;
    struct ibv_device **list = ibv_get_device_list(&n);

    if (list)
        ibv_free_device_list(list);
    return n > 0;
}

int wire_verbs_net(const struct cfg *cfg, struct wire_net *net)
{
    struct verbs_facts facts = {0};
    const struct verbs_port *ports;
    int chosen[VERBS_RAILS_MAX], n, rc;

    memset(net, 0, sizeof(*net));
    rc = verbs_ports_chosen(cfg, chosen, &n);
    if (rc)
        return rc;
    verbs_ports(&ports);
    facts.n = (uint32_t)n;
    for (int i = 0; i < n; i++)
        facts.rails[i] = ports[chosen[i]].facts;
    memcpy(net, &facts, sizeof(facts));
    return HETMPI_SUCCESS;
}

bool wire_verbs_reaches(const struct wire_net *a, const struct wire_net *b)
{
    struct verbs_facts facts[2];
    struct verbs_pair pairs[VERBS_RAILS_MAX];

    memcpy(&facts[0], a, sizeof(facts[0]));
    memcpy(&facts[1], b, sizeof(facts[1]));
    return verbs_facts_sane(&facts[0]) && verbs_facts_sane(&facts[1]) &&
           verbs_pair_rails(&facts[0], &facts[1], pairs) > 0;
}

/* ---- the wire ---- */

static void verbs_close(struct wire *wire)
{
    struct verbs *v = (struct verbs *)wire;

    if (v->parted)
        verbs_wait_parted(v);
    stage_lane_clear(&v->out_lane);
    stage_lane_clear(&v->in_lane);
    /* Queue pairs first: after that nobody writes here. */
    for (int p = 0; p < v->n_list; p++)
        for (int l = 0; l < v->list[p]->n_links; l++)
            verbs_link_destroy(&v->list[p]->links[l]);
    for (int p = 0; p < VERBS_PIECES_MAX; p++)
        if (v->pieces[p].place.base)
            verbs_place_end(v->pieces[p].message->peer, &v->pieces[p].place);
    for (struct verbs_out *out = v->all_outs; out; out = out->older)
        if (out->place.base)
            verbs_place_end(out->message->peer, &out->place);
    for (int p = 0; p < v->n_list; p++)
        verbs_peer_free(v->list[p]);
    verbs_place_tell(v);
    verbs_pool_clear(&v->out);
    verbs_pool_clear(&v->in);
    for (int r = 0; r < v->n_rails; r++)
        verbs_rail_close(&v->rails[r]);
    for (struct verbs_message *m = v->all_messages, *older; m; m = older) {
        older = m->older;
        free(m);
    }
    for (struct verbs_out *out = v->all_outs, *older; out; out = older) {
        older = out->older;
        free(out);
    }
    for (struct verbs_stripe *stripe = v->all_stripes, *older; stripe; stripe = older) {
        older = stripe->older;
        free(stripe);
    }
    for (struct verbs_stray *stray = v->all_strays, *older; stray; stray = older) {
        older = stray->older;
        if (stray->event)
            mem_event_destroy(stray->event);
        free(stray);
    }
    free(v->peers);
    free(v->list);
    free(v->letter);
    free(v);
}

static int verbs_open(struct comm *comm, struct wire **wire)
{
    const struct verbs_port *ports;
    int chosen[VERBS_RAILS_MAX], n, rc;
    struct verbs *v;

    rc = verbs_ports_chosen(comm->cfg, chosen, &n);
    if (rc)
        return rc;
    verbs_ports(&ports);
    v = calloc(1, sizeof(*v));
    if (!v)
        return err_set(HETMPI_ERR_MEMORY, "verbs wire: no memory for its state");
    v->wire = (struct wire){.ops = &wire_verbs, .comm = comm};
    v->peers = calloc((size_t)comm->size, sizeof(*v->peers));
    v->list = calloc((size_t)comm->size, sizeof(*v->list));
    if (!v->peers || !v->list) {
        rc = err_set(HETMPI_ERR_MEMORY, "verbs wire: no memory for a table of %d ranks", comm->size);
        goto fail;
    }
    for (v->ring_depth = 8; v->ring_depth < comm->cfg->queue_depth; v->ring_depth *= 2)
        ;
    verbs_pools_open(v);
    verbs_recv_open(v);
    for (int r = 0; r < n; r++) {
        rc = verbs_rail_open(v, &v->rails[r], &ports[chosen[r]]);
        if (rc)
            goto fail;
        v->n_rails = r + 1;
    }
    *wire = &v->wire;
    return HETMPI_SUCCESS;

fail:
    verbs_close(&v->wire);
    return rc;
}

struct verbs_link *verbs_best_link(struct verbs_peer *peer, size_t bytes)
{
    struct verbs_link *best = NULL;
    double best_time = 0;

    for (int l = 0; l < peer->n_links; l++) {
        struct verbs_link *link = &peer->links[l];
        double time = (double)(link->backlog + bytes) / link->rate;
        if (link->state != LINK_UP || !verbs_link_has_room(link) || (best && time >= best_time))
            continue;
        best = link;
        best_time = time;
    }
    return best;
}

int verbs_progress(struct verbs *v)
{
    uint64_t now = proc_now_ns();
    bool look = now - v->looked_ns > VERBS_LOOK_NS;
    int rc;

    if (v->parted)
        return HETMPI_SUCCESS;
    rc = verbs_poll_queues(v);
    if (look) {
        v->looked_ns = now;
        verbs_events(v);
    }
    if (!rc)
        rc = verbs_mail_progress(v, look);
    for (int p = 0; p < v->n_list && !rc; p++) {
        struct verbs_peer *peer = v->list[p];
        if (v->n_closing)
            rc = verbs_loss_progress(peer);
        if (!rc && peer->n_lost)
            rc = verbs_return_progress(peer);
        if (!rc && (peer->out.unposted || peer->credit_due))
            rc = verbs_ring_progress(peer);
        if (!rc && (peer->grants || peer->unposted))
            rc = verbs_send_progress(peer);
    }
    return rc;
}

static int progress(struct wire *wire)
{
    return verbs_progress((struct verbs *)wire);
}

static void part(struct wire *wire)
{
    verbs_part((struct verbs *)wire);
}

/* ---- messages ---- */

static struct verbs_message *message_new(struct verbs *v)
{
    struct verbs_message *m = calloc(1, sizeof(*m));

    if (m) {
        m->older = v->all_messages;
        v->all_messages = m;
    }
    return m;
}

static int message_begin(struct verbs_peer *peer, struct wire_xfer *x, struct verbs_message **list,
                         struct verbs_message **out)
{
    struct verbs *v = peer->verbs;
    struct verbs_message *m = v->free_messages;
    size_t total = x->length * x->view.element;

    if (m)
        v->free_messages = m->next;
    else
        m = message_new(v);
    if (!m)
        return err_set(HETMPI_ERR_MEMORY, "verbs wire: no memory for a message to or from rank %d", x->peer);
    *m = (struct verbs_message){.peer = peer, .op = x->op, .chunk = x->chunk, .channel = x->channel,
                                .eager = total <= VERBS_EAGER_MOST, .device = mem_on_device(x->view.base),
                                .view = x->view, .first = x->first, .length = x->length, .total = total,
                                .next = *list, .older = m->older};
    *list = m;
    x->request = m;
    *out = m;
    return HETMPI_SUCCESS;
}

static void message_end(struct verbs *v, struct verbs_message **list, struct wire_xfer *x)
{
    struct verbs_message *m = x->request;

    while (*list != m)
        list = &(*list)->next;
    *list = m->next;
    m->next = v->free_messages;
    v->free_messages = m;
    x->request = NULL;
}

/* A pair that has no links. */
static int over_mpi(struct verbs *v, struct wire_xfer *x, bool sending)
{
    int rc;

    if (v->wire.comm->cfg->wire == CFG_WIRE_VERBS)
        return err_set(HETMPI_ERR_UNSUPPORTED, "WIRE=verbs: ranks %d and %d cannot reach each other over RDMA (no "
                       "probe came through): see RAILS and GID_INDEX, or use WIRE=auto", v->wire.comm->rank, x->peer);
    rc = v->mpi ? HETMPI_SUCCESS : wire_want(v->wire.comm, &wire_mpi, &v->mpi);
    if (rc)
        return rc;
    rc = sending ? v->mpi->ops->send(v->mpi, x) : v->mpi->ops->recv(v->mpi, x);
    x->ops = &wire_verbs;
    x->state = OVER_MPI;
    return rc;
}

/* The peer of a message, ready to be sent to or received from. */
static int message_peer(struct verbs *v, struct wire_xfer *x, struct verbs_peer **peer)
{
    int rc = verbs_peer_want(v, x->peer, peer);

    x->ops = &wire_verbs;
    x->request = NULL;
    x->moved = 0;
    if (rc == COMM_AGAIN) {
        rc = verbs_progress(v);
        if (!rc && (*peer)->state < PEER_UP)
            rc = COMM_AGAIN;
    }
    return rc;
}

static int verbs_send(struct wire *wire, struct wire_xfer *x)
{
    struct verbs *v = (struct verbs *)wire;
    struct verbs_message *m;
    struct verbs_peer *peer;
    int rc = message_peer(v, x, &peer);

    if (rc)
        return rc;
    if (peer->state == PEER_REFUSED)
        return over_mpi(v, x, true);
    if (!verbs_ring_has_room(peer) && x->length * x->view.element <= VERBS_EAGER_MOST) {
        rc = verbs_progress(v);
        return rc ? rc : COMM_AGAIN;
    }
    x->state = SENDING;
    rc = message_begin(peer, x, &peer->sends, &m);
    if (rc)
        return rc;
    return m->eager ? verbs_ring_send(peer, m) : verbs_send_begin(m);
}

static int verbs_recv(struct wire *wire, struct wire_xfer *x)
{
    struct verbs *v = (struct verbs *)wire;
    struct verbs_message *m;
    struct verbs_peer *peer;
    int rc = message_peer(v, x, &peer);

    if (rc)
        return rc;
    if (peer->state == PEER_REFUSED)
        return over_mpi(v, x, false);
    x->state = RECEIVING;
    rc = message_begin(peer, x, &peer->receives, &m);
    return rc ? rc : verbs_recv_begin(m);
}

static int verbs_poll(struct wire *wire, struct wire_xfer *x, bool *done)
{
    struct verbs *v = (struct verbs *)wire;
    struct verbs_message *m = x->request;
    int rc;

    if (x->state == OVER_MPI)
        return v->mpi->ops->poll(v->mpi, x, done);
    *done = !m;
    if (!m)
        return HETMPI_SUCCESS;
    rc = verbs_progress(v);
    if (!rc && x->state == RECEIVING)
        rc = verbs_recv_progress(m);
    if (rc)
        return rc;
    x->moved = m->moved;
    *done = m->moved == m->total && !m->entry && !m->stray;
    if (*done)
        message_end(v, x->state == SENDING ? &m->peer->sends : &m->peer->receives, x);
    return HETMPI_SUCCESS;
}

static int verbs_reserve(struct wire *wire, size_t messages)
{
    struct verbs *v = (struct verbs *)wire;

    for (; v->n_messages < messages; v->n_messages++) {
        struct verbs_message *m = message_new(v);
        if (!m)
            return err_set(HETMPI_ERR_MEMORY, "verbs wire: no memory for %zu messages", messages);
        m->next = v->free_messages;
        v->free_messages = m;
    }
    return HETMPI_SUCCESS;
}

static int verbs_rails(const struct wire *wire, int peer)
{
    const struct verbs_peer *p = ((const struct verbs *)wire)->peers[peer];
    int n = 0;

    if (!p || p->state != PEER_UP)
        return 1;
    for (int l = 0; l < p->n_links; l++)
        n += p->links[l].state == LINK_UP;
    return n;
}

static const char *carries(const struct wire *wire, int peer)
{
    const struct verbs_peer *p = ((const struct verbs *)wire)->peers[peer];

    return p && p->state == PEER_REFUSED ? wire_mpi.name : wire_verbs.name;
}

const struct wire_ops wire_verbs = {
    .name = "verbs",
    .caps = WIRE_NEEDS_MPI,
    .open = verbs_open,
    .close = verbs_close,
    .send = verbs_send,
    .recv = verbs_recv,
    .poll = verbs_poll,
    .rails = verbs_rails,
    .reserve = verbs_reserve,
    .progress = progress,
    .part = part,
    .carries = carries,
};
