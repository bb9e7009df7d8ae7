/*
 * The verbs wire: lost links are taken back. The lower rank of a pair asks now and then, when its own port is active;
 * both ends make new queue pairs and go through address, readiness and probe again, by mail, as in verbs_connect.c;
 * nothing waits for it. An attempt that fails is repeated later, at growing intervals.
 */
#include "core/log.h"
#include "core/proc.h"
#include "hetmpi.h"
#include "wire/verbs/verbs.h"

#define FIRST_NS 500000000u
#define MOST_NS 30000000000u
#define PATIENCE_NS 10000000000u         /* an attempt that the other end does not answer is given up */

static void say(struct verbs_link *link, enum verbs_back step, uint32_t good)
{
    verbs_say(link->peer, &(struct verbs_mail){.type = MAIL_BACK, .links = good, .link = (uint32_t)link->number,
                                               .step = step, .attempt = link->attempt,
                                               .address = {.qp = link->qp ? link->qp->qp_num : 0, .psn = link->psn}});
}

static void later(struct verbs_link *link)
{
    link->back = BACK_NONE;
    link->state = LINK_DOWN;
    link->pause_ns = link->pause_ns < MOST_NS / 2 ? 2 * link->pause_ns : MOST_NS;
    link->again_ns = proc_now_ns() + link->pause_ns;
}

static bool port_is_active(const struct verbs_link *link)
{
    struct ibv_port_attr attr;

    return !ibv_query_port(link->rail->port->context, link->rail->port->number, &attr) && attr.state == IBV_PORT_ACTIVE;
}

/* A new queue pair; the other end learns its address. */
static void begin(struct verbs_link *link)
{
    verbs_link_destroy(link);
    link->back = BACK_ADDRESS;
    link->back_until_ns = proc_now_ns() + PATIENCE_NS;
    link->got_address = link->got_ready = link->got_result = false;
    if (!port_is_active(link) || verbs_link_create(link)) {
        say(link, BACK_RESULT, 0);
        later(link);
        return;
    }
    say(link, BACK_ADDRESS, 0);
}

static int up_again(struct verbs_link *link)
{
    struct verbs_peer *peer = link->peer;

    link->back = BACK_NONE;
    link->pause_ns = FIRST_NS;
    peer->n_lost--;
    log_warn("verbs: the link of ranks %d and %d over %s is back", peer->verbs->wire.comm->rank, peer->rank,
             link->rail->port->name);
    return verbs_link_up(link);
}

static int step(struct verbs_link *link)
{
    const struct verbs_facts *theirs = verbs_facts_of(link->peer->verbs, link->peer->rank);

    if ((link->got_result && !link->good) || proc_now_ns() > link->back_until_ns) {
        if (!link->got_result)
            say(link, BACK_RESULT, 0);
        later(link);
        return HETMPI_SUCCESS;
    }
    switch (link->back) {
    case BACK_ADDRESS:
        if (!link->got_address)
            return HETMPI_SUCCESS;
        if (verbs_link_connect(link, &link->address, &theirs->rails[link->theirs])) {
            say(link, BACK_RESULT, 0);
            later(link);
            return HETMPI_SUCCESS;
        }
        link->state = LINK_PROBED;
        link->back = BACK_READY;
        say(link, BACK_READY, 0);
        return HETMPI_SUCCESS;
    case BACK_READY:
        if (!link->got_ready)
            return HETMPI_SUCCESS;
        link->back = BACK_PROBE;
        return verbs_link_probe(link);
    case BACK_PROBE:
        if (link->state == LINK_PROBED && !link->probe_done)
            return HETMPI_SUCCESS;
        link->back = BACK_RESULT;
        say(link, BACK_RESULT, link->state == LINK_PROBED);
        if (link->state != LINK_PROBED)
            later(link);
        return HETMPI_SUCCESS;
    case BACK_RESULT:
        return link->got_result ? up_again(link) : HETMPI_SUCCESS;
    default:
        return HETMPI_SUCCESS;
    }
}

/* A link has been lost for good: when it is asked for again. */
void verbs_return_later(struct verbs_link *link)
{
    link->peer->n_lost++;
    link->pause_ns = FIRST_NS;
    link->again_ns = proc_now_ns() + FIRST_NS;
    link->back = BACK_NONE;
}

int verbs_return_progress(struct verbs_peer *peer)
{
    bool asks = peer->verbs->wire.comm->rank < peer->rank;

    for (int l = 0; l < peer->n_links; l++) {
        struct verbs_link *link = &peer->links[l];
        int rc = HETMPI_SUCCESS;
        if (link->back != BACK_NONE) {
            rc = step(link);
        } else if (asks && link->state == LINK_DOWN && link->pause_ns && proc_now_ns() > link->again_ns) {
            link->attempt++;
            begin(link);
        }
        if (rc)
            return rc;
    }
    return HETMPI_SUCCESS;
}

/* What the other end says of a link that is to come back. */
void verbs_return_told(struct verbs_peer *peer, const struct verbs_mail *mail)
{
    struct verbs_link *link = &peer->links[mail->link];
    bool asks = peer->verbs->wire.comm->rank < peer->rank;

    if (!asks && mail->step == BACK_ADDRESS && link->pause_ns &&
        (link->state == LINK_DOWN || link->state == LINK_PROBED)) {
        link->attempt = mail->attempt;   /* of a new attempt, whatever became of the last */
        link->state = LINK_DOWN;
        begin(link);
    }
    if (link->back == BACK_NONE || mail->attempt != link->attempt)
        return;
    switch (mail->step) {
    case BACK_ADDRESS:
        link->got_address = true;
        link->address = mail->address;
        break;
    case BACK_READY:
        link->got_ready = true;
        break;
    default:
        link->got_result = true;
        link->good = mail->links != 0;
    }
}
