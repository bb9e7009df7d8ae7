/*
 * The verbs wire: two ranks make their links. Each creates its queue pairs and greets the other with their addresses;
 * then connects them and says so; then, knowing that the other's are ready, sends a probe over each; and tells which
 * got through. Links that both found good are used. All of it by mails over MPI, at the first message of the pair.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "core/mail.h"
#include "core/proc.h"
#include "hetmpi.h"
#include "wire/verbs/verbs.h"

#define PART_NS 10000000000u             /* the longest wait for a rank that said its goodbye */

static void post_mail(struct verbs_peer *peer, const void *data, size_t bytes)
{
    mail_send(peer->verbs->wire.comm, TAG_VERBS, &peer->rank, 1, data, bytes);
}

void verbs_say(struct verbs_peer *peer, const struct verbs_mail *mail)
{
    post_mail(peer, mail, sizeof(*mail));
}

static void say(struct verbs_peer *peer, enum verbs_mail_type type, uint32_t links)
{
    verbs_say(peer, &(struct verbs_mail){.type = type, .links = links});
}

const struct verbs_facts *verbs_facts_of(const struct verbs *v, int rank)
{
    return (const struct verbs_facts *)&v->wire.comm->nets[rank];
}

static struct verbs_peer *peer_new(struct verbs *v, int rank)
{
    struct verbs_peer *peer = calloc(1, sizeof(*peer));

    if (!peer)
        return NULL;
    peer->rank = rank;
    peer->verbs = v;
    v->peers[rank] = peer;
    v->list[v->n_list++] = peer;
    return peer;
}

void verbs_peer_free(struct verbs_peer *peer)
{
    for (int l = 0; l < peer->n_links; l++)
        verbs_link_destroy(&peer->links[l]);
    verbs_ring_clear(&peer->out);
    verbs_ring_clear(&peer->in);
    free(peer);
}

/* Rings of our end, and queue pairs: a link whose port is down is one that may come later. */
static int make_links(struct verbs_peer *peer)
{
    struct verbs *v = peer->verbs;
    const struct comm *comm = v->wire.comm;
    const struct verbs_facts *mine = verbs_facts_of(v, comm->rank), *theirs = verbs_facts_of(v, peer->rank);
    bool first = comm->rank < peer->rank;
    struct verbs_pair pairs[VERBS_RAILS_MAX];
    int rc = verbs_ring_open(peer, (uint32_t)v->ring_depth);

    if (rc)
        return rc;
    peer->n_links = verbs_pair_rails(first ? mine : theirs, first ? theirs : mine, pairs);
    for (int l = 0; l < peer->n_links; l++) {
        struct verbs_link *link = &peer->links[l];
        link->peer = peer;
        link->number = l;
        link->rail = &v->rails[first ? pairs[l].a : pairs[l].b];
        link->theirs = first ? pairs[l].b : pairs[l].a;
        if (verbs_link_create(link))
            log_info("%s", err_text());
    }
    return HETMPI_SUCCESS;
}

static void greet(struct verbs_peer *peer)
{
    struct verbs_hello hello = {.type = MAIL_HELLO};

    peer->state = PEER_GREETED;
    if (make_links(peer) != HETMPI_SUCCESS) {
        log_warn("%s", err_text());
        peer->failed = true;
        post_mail(peer, &hello, sizeof(hello));
        return;
    }
    hello.links = (uint32_t)peer->n_links;
    hello.depth = (uint32_t)peer->verbs->ring_depth;
    hello.ring = (uintptr_t)peer->in.base;
    for (int l = 0; l < peer->n_links; l++) {
        const struct verbs_link *link = &peer->links[l];
        hello.link[l] = (struct verbs_hello_link){.qp = link->qp ? link->qp->qp_num : 0, .psn = link->psn,
                                                  .ring_rkey = peer->in.mr[verbs_rail_of(link)]->rkey};
    }
    post_mail(peer, &hello, sizeof(hello));
}

static int want_peer(struct verbs *v, int rank, struct verbs_peer **peer)
{
    *peer = v->peers[rank];
    if (*peer)
        return HETMPI_SUCCESS;
    *peer = peer_new(v, rank);
    if (!*peer)
        return err_set(HETMPI_ERR_MEMORY, "verbs wire: no memory for the state of rank %d", rank);
    v->n_connecting++;
    greet(*peer);
    return HETMPI_SUCCESS;
}

/* What came of it. */
static void tell(const struct verbs_peer *peer, int up)
{
    const struct comm *comm = peer->verbs->wire.comm;

    for (int l = 0; l < peer->n_links; l++)
        log_debug("verbs: rank %d and rank %d, link %d over %s: %s", comm->rank, peer->rank, l,
                  peer->links[l].rail->port->name, peer->good >> l & 1 ? "up" : "its probe did not come through");
    if (up && up < peer->n_links)
        log_warn("verbs: of %d links between ranks %d and %d only %d work", peer->n_links, comm->rank, peer->rank, up);
    if (!up && comm->cfg->wire != CFG_WIRE_VERBS)
        log_warn("verbs: ranks %d and %d cannot reach each other over RDMA, and use MPI", comm->rank, peer->rank);
}

static int finish(struct verbs_peer *peer, uint32_t good)
{
    int up = 0, rc = HETMPI_SUCCESS;

    peer->good = good;
    for (int l = 0; l < peer->n_links; l++)
        up += good >> l & 1;
    tell(peer, up);
    peer->state = up ? PEER_UP : PEER_REFUSED;
    peer->verbs->n_connecting--;
    for (int l = 0; l < peer->n_links && !rc; l++) {
        struct verbs_link *link = &peer->links[l];
        if (good >> l & 1) {
            rc = verbs_link_up(link);
        } else {
            link->state = LINK_DOWN;
            if (up)
                verbs_return_later(link);
        }
    }
    return rc;
}

/* Our queue pairs learn of the peer's. */
static int connect_links(struct verbs_peer *peer)
{
    const struct verbs_facts *theirs = verbs_facts_of(peer->verbs, peer->rank);
    const struct verbs_hello *hello = &peer->hello;

    if (peer->failed || !hello->links)
        return HETMPI_ERR_UNSUPPORTED;
    if (hello->links != (uint32_t)peer->n_links || hello->depth != (uint32_t)peer->verbs->ring_depth)
        return err_set(HETMPI_ERR_INTERNAL, "verbs wire: the greeting of rank %d is damaged", peer->rank);
    peer->ring_address = hello->ring;
    for (int l = 0; l < peer->n_links; l++) {
        struct verbs_link *link = &peer->links[l];
        bool both = link->qp && hello->link[l].qp;
        link->ring_rkey = hello->link[l].ring_rkey;
        link->state = LINK_DOWN;
        if (both && !verbs_link_connect(link, &hello->link[l], &theirs->rails[link->theirs]))
            link->state = LINK_PROBED;
        else if (both)
            log_info("%s", err_text());
    }
    return HETMPI_SUCCESS;
}

static int probe(struct verbs_peer *peer)
{
    for (int l = 0; l < peer->n_links; l++) {
        int rc = peer->links[l].state == LINK_PROBED ? verbs_link_probe(&peer->links[l]) : HETMPI_SUCCESS;
        if (rc)
            return rc;
    }
    return HETMPI_SUCCESS;
}

/* Which links came through; false while some may still. */
static bool probed(const struct verbs_peer *peer, uint32_t *good)
{
    *good = 0;
    for (int l = 0; l < peer->n_links; l++) {
        const struct verbs_link *link = &peer->links[l];
        if (link->state == LINK_PROBED && !link->probe_done)
            return false;
        if (link->state == LINK_PROBED)
            *good |= 1u << l;
    }
    return true;
}

/* The next step of a pair that is on its way, if it can be made. */
static int step(struct verbs_peer *peer)
{
    int rc;

    switch (peer->state) {
    case PEER_GREETED:
        if (!peer->got_hello)
            return HETMPI_SUCCESS;
        rc = connect_links(peer);
        if (rc == HETMPI_ERR_INTERNAL)
            return rc;
        if (rc) {
            /* The other end finds out by this mail, or found it out itself. */
            say(peer, MAIL_RESULT, 0);
            return finish(peer, 0);
        }
        say(peer, MAIL_READY, 0);
        peer->state = PEER_CONNECTED;
        return HETMPI_SUCCESS;
    case PEER_CONNECTED:
        if (!peer->got_ready)
            return peer->got_result ? finish(peer, 0) : HETMPI_SUCCESS;   /* it could not connect */
        peer->state = PEER_PROBING;
        return probe(peer);
    case PEER_PROBING:
        if (!probed(peer, &peer->good))
            return HETMPI_SUCCESS;
        say(peer, MAIL_RESULT, peer->good);
        peer->state = PEER_AGREEING;
        return HETMPI_SUCCESS;
    case PEER_AGREEING:
        return peer->got_result ? finish(peer, peer->good & peer->result) : HETMPI_SUCCESS;
    default:
        return HETMPI_SUCCESS;
    }
}

/* Mails that nobody received would be taken for those of a communicator to come: each rank says which is its last. */
void verbs_part(struct verbs *v)
{
    for (int p = 0; p < v->n_list; p++)
        verbs_say(v->list[p], &(struct verbs_mail){.type = MAIL_BYE});
    v->parted = true;
}

static bool all_parted(const struct verbs *v)
{
    for (int p = 0; p < v->n_list; p++)
        if (!v->list[p]->got_bye)
            return false;
    return true;
}

void verbs_wait_parted(struct verbs *v)
{
    uint64_t began = proc_now_ns();
    void *data;
    size_t bytes;
    int from;

    while (!all_parted(v) && !comm_failed(v->wire.comm) && proc_now_ns() - began < PART_NS) {
        if (!mail_look(v->wire.comm, TAG_VERBS, &from, &data, &bytes)) {
            proc_nap(20000);
            continue;
        }
        if (v->peers[from] && bytes == sizeof(struct verbs_mail) && ((struct verbs_mail *)data)->type == MAIL_BYE)
            v->peers[from]->got_bye = true;
        free(data);
    }
}

static int damaged(int from, size_t bytes)
{
    return err_set(HETMPI_ERR_INTERNAL, "verbs wire: a mail of rank %d is damaged (%zu bytes)", from, bytes);
}

static int take_short(struct verbs_peer *peer, const struct verbs_mail *mail)
{
    switch (mail->type) {
    case MAIL_BYE:
        peer->got_bye = true;
        return HETMPI_SUCCESS;
    case MAIL_READY:
        peer->got_ready = true;
        return HETMPI_SUCCESS;
    case MAIL_RESULT:
        peer->got_result = true;
        peer->result = mail->links;
        return HETMPI_SUCCESS;
    default:
        if (mail->link >= (uint32_t)peer->n_links || (mail->type != MAIL_CLOSED && mail->type != MAIL_BACK))
            return damaged(peer->rank, sizeof(*mail));
        if (mail->type == MAIL_CLOSED)
            return verbs_loss_told(peer, mail);
        verbs_return_told(peer, mail);
        return HETMPI_SUCCESS;
    }
}

static int take_mail(struct verbs *v, int from, const void *data, size_t bytes)
{
    struct verbs_mail mail;
    struct verbs_peer *peer;
    uint32_t type;
    int rc = want_peer(v, from, &peer);

    if (rc)
        return rc;
    if (bytes < sizeof(type))
        return damaged(from, bytes);
    memcpy(&type, data, sizeof(type));
    if (type == MAIL_WRITE && peer->state == PEER_UP)
        return verbs_mail_written(peer, data, bytes);
    if (type == MAIL_HELLO && bytes == sizeof(peer->hello) && !peer->got_hello) {
        memcpy(&peer->hello, data, bytes);
        peer->got_hello = true;
        return HETMPI_SUCCESS;
    }
    if (bytes != sizeof(mail))
        return damaged(from, bytes);
    memcpy(&mail, data, bytes);
    return take_short(peer, &mail);
}

int verbs_mail_progress(struct verbs *v, bool look)
{
    void *data;
    size_t bytes;
    int from;

    if (!look && !v->n_connecting && !v->n_closing && !v->n_over_mpi)
        return HETMPI_SUCCESS;
    while (mail_look(v->wire.comm, TAG_VERBS, &from, &data, &bytes)) {
        int rc = take_mail(v, from, data, bytes);
        free(data);
        if (rc)
            return rc;
    }
    for (int p = 0; v->n_connecting && p < v->n_list; p++) {
        int rc = v->list[p]->state < PEER_UP ? step(v->list[p]) : HETMPI_SUCCESS;
        if (rc)
            return rc;
    }
    return HETMPI_SUCCESS;
}

/* The peer, greeted if this is the first message. COMM_AGAIN: its links are being made. */
int verbs_peer_want(struct verbs *v, int rank, struct verbs_peer **peer)
{
    int rc = want_peer(v, rank, peer);

    if (rc)
        return rc;
    return (*peer)->state < PEER_UP ? COMM_AGAIN : HETMPI_SUCCESS;
}
