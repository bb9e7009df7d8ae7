/*
 * The verbs wire: links that are lost. The end that finds out (a request that failed, the port's event) closes its
 * queue pair, so that nothing comes over it any more, and tells the other by mail how much did come; the other does the
 * same. When both know, what did not arrive is sent over the links that are left, from memory that was kept for this. A
 * link counts what it sends and receives, so nothing is sent twice. Without links all goes by mail, over MPI, unless
 * RAILS_LOST=error.
 */
#include <errno.h>
#include <stdlib.h>

#include "core/log.h"
#include "core/mail.h"
#include "core/proc.h"
#include "hetmpi.h"
#include "wire/verbs/verbs.h"

/* From a queue pair's end to the last completion of what came before. */
#define DRAIN_NS 2000000u

static int links_up(const struct verbs_peer *peer)
{
    int n = 0;

    for (int l = 0; l < peer->n_links; l++)
        n += peer->links[l].state == LINK_UP;
    return n;
}

int verbs_link_lost(struct verbs_link *link, const char *why)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    struct verbs_peer *peer = link->peer;

    if (link->state == LINK_PROBED)
        link->state = LINK_DOWN;
    if (link->state != LINK_UP)
        return HETMPI_SUCCESS;
    if (ibv_modify_qp(link->qp, &attr, IBV_QP_STATE))
        return err_set(HETMPI_ERR_INTERNAL, "verbs wire: a queue pair of port %s cannot be closed: %s",
                       link->rail->port->name, strerror(errno));
    link->state = LINK_CLOSING;
    link->closed_ns = proc_now_ns();
    peer->verbs->n_closing++;
    log_warn("verbs: the link of ranks %d and %d over %s is lost (%s); %d of %d are left", peer->verbs->wire.comm->rank,
             peer->rank, link->rail->port->name, why, links_up(peer), peer->n_links);
    return HETMPI_SUCCESS;
}

/* Both ends have closed the link, and know what arrived. */
static int resolve(struct verbs_link *link)
{
    struct verbs_peer *peer = link->peer;

    if (link->arrived < link->retired || link->arrived > link->sent)
        return err_set(HETMPI_ERR_INTERNAL, "verbs wire: rank %d says that %llu of %llu requests arrived, and %llu "
                       "were acknowledged", peer->rank, (unsigned long long)link->arrived,
                       (unsigned long long)link->sent, (unsigned long long)link->retired);
    link->state = LINK_DOWN;
    peer->verbs->n_closing--;
    peer->verbs->n_over_mpi += !links_up(peer) - peer->over_mpi;
    peer->over_mpi = !links_up(peer);
    if (peer->over_mpi && peer->verbs->wire.comm->cfg->rails_lost == CFG_LOST_ERROR)
        return err_set(HETMPI_ERR_PEER, "verbs wire: all links of ranks %d and %d are lost (RAILS_LOST=error)",
                       peer->verbs->wire.comm->rank, peer->rank);
    if (peer->over_mpi)
        log_warn("verbs: ranks %d and %d have no link left, and use MPI", peer->verbs->wire.comm->rank, peer->rank);
    verbs_link_retire(link, link->arrived);
    for (; link->retired < link->sent; link->retired++) {
        struct verbs_posted *lost = &link->posted[link->retired % link->depth];
        if (lost->kind == VERBS_RING)
            verbs_ring_again(peer, lost->serial);
        else if (lost->kind == VERBS_DATA)
            verbs_stripe_again(lost->stripe);
        else if (lost->kind == VERBS_CREDIT)
            peer->credit_due = true;
    }
    link->backlog = 0;
    verbs_return_later(link);
    return HETMPI_SUCCESS;
}

/* A link comes into use. The other end, which is a step ahead, may have lost it already. */
int verbs_link_up(struct verbs_link *link)
{
    link->state = LINK_UP;
    link->peer->verbs->n_over_mpi -= link->peer->over_mpi;
    link->peer->over_mpi = false;
    return link->told ? verbs_link_lost(link, "the other end's report") : HETMPI_SUCCESS;
}

int verbs_loss_told(struct verbs_peer *peer, const struct verbs_mail *mail)
{
    struct verbs_link *link = &peer->links[mail->link];

    if (link->state == LINK_NONE || link->state == LINK_DOWN)
        return HETMPI_SUCCESS;
    link->arrived = mail->received;
    link->told = true;
    if (link->state == LINK_UP)
        return verbs_link_lost(link, "the other end's report");
    return link->state == LINK_CLOSED ? resolve(link) : HETMPI_SUCCESS;
}

int verbs_loss_progress(struct verbs_peer *peer)
{
    for (int l = 0; l < peer->n_links; l++) {
        struct verbs_link *link = &peer->links[l];
        int rc;
        if (link->state != LINK_CLOSING || proc_now_ns() - link->closed_ns < DRAIN_NS)
            continue;
        /* All that came has been taken from the completion queue, since that is read before this is called. */
        link->state = LINK_CLOSED;
        verbs_link_end(link);   /* which lets go of memory that half a message is written to */
        verbs_say(peer, &(struct verbs_mail){.type = MAIL_CLOSED, .link = (uint32_t)l, .received = link->received});
        rc = link->told ? resolve(link) : HETMPI_SUCCESS;
        if (rc)
            return rc;
    }
    return HETMPI_SUCCESS;
}

/* ---- the ports' own word ---- */

static void port_down(struct verbs *v, const struct ibv_context *context, int number)
{
    for (int r = 0; r < v->n_rails; r++) {
        struct verbs_rail *rail = &v->rails[r];
        if (rail->port->context != context || (number && rail->port->number != number))
            continue;
        for (uint32_t l = 0; l < rail->n_links; l++)
            verbs_link_lost(rail->links[l], number ? "its port went down" : "its NIC failed");
    }
}

/* Events of the NICs are the process's: those that one communicator's wire reads are told to all. */
void verbs_events(struct verbs *v)
{
    for (int r = 0; r < v->n_rails; r++) {
        struct ibv_context *context = v->rails[r].port->context;
        struct ibv_async_event event;
        while (!ibv_get_async_event(context, &event)) {
            int number = event.event_type == IBV_EVENT_PORT_ERR ? event.element.port_num : 0;
            bool down = number || event.event_type == IBV_EVENT_DEVICE_FATAL;
            log_info("verbs: event of %s: %s", v->rails[r].port->name, ibv_event_type_str(event.event_type));
            ibv_ack_async_event(&event);
            for (const struct comm *comm = comm_first(); down && comm; comm = comm->next)
                if (comm->wire_verbs)
                    port_down((struct verbs *)comm->wire_verbs, context, number);
        }
    }
}

/* ---- no link left: what would be written is mailed ---- */

int verbs_mail_write(struct verbs_peer *peer, uint32_t imm, size_t offset, const void *data, size_t bytes)
{
    struct verbs *v = peer->verbs;
    struct verbs_write *mail = v->letter;
    int rc;

    if (v->letter_room < sizeof(*mail) + bytes) {
        mail = realloc(v->letter, sizeof(*mail) + bytes);
        if (!mail)
            return err_set(HETMPI_ERR_MEMORY, "verbs wire: no memory for a mail to rank %d", peer->rank);
        v->letter = mail;
        v->letter_room = sizeof(*mail) + bytes;
    }
    *mail = (struct verbs_write){.type = MAIL_WRITE, .imm = imm, .offset = offset, .bytes = bytes};
    rc = bytes ? mem_copy(mail + 1, data, bytes) : HETMPI_SUCCESS;   /* it may be a device's */
    if (rc)
        return rc;
    mail_send(v->wire.comm, TAG_VERBS, &peer->rank, 1, mail, sizeof(*mail) + bytes);
    return HETMPI_SUCCESS;
}

int verbs_mail_written(struct verbs_peer *peer, const void *data, size_t bytes)
{
    const struct verbs_write *mail = data;
    uint32_t rest = VERBS_IMM_REST(mail->imm);

    if (bytes < sizeof(*mail) || mail->bytes != bytes - sizeof(*mail))
        return err_set(HETMPI_ERR_INTERNAL, "verbs wire: a mail of rank %d is damaged (%zu bytes)", peer->rank, bytes);
    switch (VERBS_IMM_KIND(mail->imm)) {
    case VERBS_RING:
        return verbs_ring_mailed(peer, rest, mail + 1, mail->bytes);
    case VERBS_CREDIT:
        verbs_ring_credit(peer, rest);
        return HETMPI_SUCCESS;
    default:
        return verbs_recv_mailed(peer, rest, mail->offset, mail + 1, mail->bytes);
    }
}
