/* The verbs wire: larger messages, the sender's side. The peer grants pieces of its memory; a piece is written there in
 * stripes, one or more a link, each staged in a slot. */
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "hetmpi.h"
#include "mem/reg_cache.h"
#include "wire/verbs/verbs.h"

#define STRAIGHT_MOST ((size_t)1 << 20)  /* bytes of a stripe that no slot limits: what one link carries is seen soon */
#define STRIPE_UNIT 256                  /* stripes are multiples of so many elements */

static struct verbs_out *out_new(struct verbs *v)
{
    struct verbs_out *out = v->free_outs;

    if (out) {
        v->free_outs = out->next;
        return out;
    }
    out = calloc(1, sizeof(*out));
    if (out) {
        out->older = v->all_outs;
        v->all_outs = out;
    }
    return out;
}

static struct verbs_stripe *stripe_new(struct verbs *v)
{
    struct verbs_stripe *stripe = v->free_stripes;

    if (stripe) {
        v->free_stripes = stripe->next;
        return stripe;
    }
    stripe = calloc(1, sizeof(*stripe));
    if (stripe) {
        stripe->older = v->all_stripes;
        v->all_stripes = stripe;
    }
    return stripe;
}

static int no_memory(const struct verbs_peer *peer)
{
    return err_set(HETMPI_ERR_MEMORY, "verbs wire: no memory for a message to rank %d", peer->rank);
}

/* How much of what is not issued each link shall carry. */
static void share(struct verbs_out *out)
{
    struct verbs_peer *peer = out->message->peer;
    size_t left = out->head.bytes - out->issued, element = out->message->view.element;
    size_t threshold = peer->verbs->wire.comm->cfg->stripe, backlog[VERBS_RAILS_MAX];
    double rate[VERBS_RAILS_MAX];

    for (int l = 0; l < peer->n_links; l++) {
        const struct verbs_link *link = &peer->links[l];
        rate[l] = link->state == LINK_UP ? link->rate : 0;
        backlog[l] = link->backlog;
    }
    verbs_stripe(left, peer->n_links, rate, backlog, left >= threshold ? VERBS_STRIPE_LEAST : left,
                 STRIPE_UNIT * element, out->shares);
}

static int out_start(struct verbs_out *out, struct verbs_message *m)
{
    int rc;

    if (out->head.total != m->total)
        return err_set(HETMPI_ERR_INTERNAL, "verbs wire: rank %d expects %llu bytes where %zu are sent on channel %u",
                       m->peer->rank, (unsigned long long)out->head.total, m->total, m->channel);
    if (out->head.bytes % m->view.element || out->grant.offset % m->view.element)
        return err_set(HETMPI_ERR_INTERNAL, "verbs wire: rank %d asks for parts of elements", m->peer->rank);
    out->message = m;
    share(out);
    rc = verbs_place_begin(m, out->grant.offset, out->head.bytes, 0, &out->place);
    return rc == COMM_AGAIN ? HETMPI_SUCCESS : rc;
}

int verbs_send_granted(struct verbs_peer *peer, const struct verbs_head *head, const void *data)
{
    struct verbs_out *out, **end = &peer->grants;

    if (peer->n_grants == VERBS_PIECES_MAX)
        return err_set(HETMPI_ERR_INTERNAL, "verbs wire: rank %d grants more than it may", peer->rank);
    out = out_new(peer->verbs);
    if (!out)
        return no_memory(peer);
    *out = (struct verbs_out){.head = *head, .older = out->older};
    memcpy(&out->grant, data, sizeof(out->grant));
    while (*end)
        end = &(*end)->next;
    *end = out;
    peer->n_grants++;
    if (!head->bytes || head->bytes > head->total || out->grant.offset > head->total - head->bytes ||
        out->grant.piece >= VERBS_PIECES_MAX || out->grant.generation >= VERBS_GENERATIONS)
        return err_set(HETMPI_ERR_INTERNAL, "verbs wire: a grant of rank %d is damaged", peer->rank);
    for (struct verbs_message *m = peer->sends; m; m = m->next)
        if (verbs_same(m, head))
            return out_start(out, m);
    return HETMPI_SUCCESS;
}

int verbs_send_begin(struct verbs_message *m)
{
    for (struct verbs_out *out = m->peer->grants; out; out = out->next) {
        int rc = !out->message && verbs_same(m, &out->head) ? out_start(out, m) : HETMPI_SUCCESS;
        if (rc)
            return rc;
    }
    return HETMPI_SUCCESS;
}

/* ---- stripes ---- */

/* The link that has most left to carry of the piece; -1: none that works. */
static int next_link(struct verbs_out *out)
{
    const struct verbs_peer *peer = out->message->peer;

    if (peer->over_mpi) {
        out->shares[0] = out->head.bytes - out->issued;
        return 0;
    }
    for (int attempt = 0; attempt < 2; attempt++) {
        int most = -1;
        for (int l = 0; l < peer->n_links; l++)
            if (peer->links[l].state == LINK_UP && out->shares[l] && (most < 0 || out->shares[l] > out->shares[most]))
                most = l;
        if (most >= 0)
            return most;
        share(out);   /* a link was lost since */
    }
    return -1;
}

/* The next stripe of a piece begins its way, through a slot where the message is not registered. */
static int stripe_begin(struct verbs_out *out, int link, struct verbs_slot *slot)
{
    struct verbs_message *m = out->message;
    struct verbs *v = m->peer->verbs;
    struct verbs_stripe *stripe = stripe_new(v), **end = &m->peer->unposted;
    size_t limit = slot || v->out.slot_bytes > STRAIGHT_MOST ? v->out.slot_bytes : STRAIGHT_MOST;
    size_t most = limit / m->view.element * m->view.element, left = out->head.bytes - out->issued;
    size_t first, length, bytes = out->shares[link] < most ? out->shares[link] : most;

    if (!stripe) {
        if (slot)
            slot->busy = false;
        return no_memory(m->peer);
    }
    if (out->stripes == VERBS_STRIPES_MAX - 1 || bytes > left)
        bytes = left < most ? left : most;
    *stripe = (struct verbs_stripe){.state = STRIPE_READY, .out = out, .offset = out->issued, .bytes = bytes,
                                    .link = link, .number = out->stripes++, .slot = slot, .older = stripe->older};
    while (*end)
        end = &(*end)->next;
    *end = stripe;
    out->issued += bytes;
    out->shares[link] -= bytes < out->shares[link] ? bytes : out->shares[link];
    *(!slot ? &v->straight : m->device ? &v->by_device : &v->by_cpu) += bytes;
    if (!slot)
        return HETMPI_SUCCESS;
    first = m->first + (out->grant.offset + stripe->offset) / m->view.element;
    length = bytes / m->view.element;
    if (m->device) {
        stripe->state = STRIPE_COPYING;
        return stage_copy_async(&v->out_lane, STAGE_OUT, &m->view, first, length, slot->base, &slot->event);
    }
    stage_copy_now(STAGE_OUT, &m->view, first, length, slot->base);
    return HETMPI_SUCCESS;
}

/* link: NULL where none is left. */
static int stripe_post(struct verbs_stripe *stripe, struct verbs_link *link)
{
    const struct verbs_grant *grant = &stripe->out->grant;
    struct verbs_peer *peer = stripe->out->message->peer;
    const struct verbs_place *place = &stripe->out->place;
    const char *from = place->base ? place->base + stripe->offset : stripe->slot->base;
    uint32_t imm = VERBS_IMM(VERBS_DATA, grant->generation << 18 | (uint32_t)stripe->number << 12 | grant->piece);
    int rc;

    stripe->state = STRIPE_POSTED;
    if (link) {
        size_t rail = verbs_rail_of(link);
        uint32_t key = place->base ? place->reg[rail]->lkey : stripe->slot->mr[rail]->lkey;
        return verbs_link_post(link, from, stripe->bytes, key, grant->address + stripe->offset, grant->rkeys[link->number], imm,
                               &(struct verbs_posted){.kind = VERBS_DATA, .stripe = stripe});
    }
    rc = verbs_mail_write(peer, imm, stripe->offset, from, stripe->bytes);
    if (!rc)
        verbs_stripe_arrived(stripe);
    return rc;
}

/* Posts the stripes that are ready and for which there is room. */
static int post_stripes(struct verbs_peer *peer)
{
    for (struct verbs_stripe **at = &peer->unposted; *at;) {
        struct verbs_stripe *stripe = *at;
        struct verbs_link *link = &peer->links[stripe->link];
        bool ready = stripe->state == STRIPE_READY;
        int rc = ready ? HETMPI_SUCCESS : mem_event_query(stripe->slot->event, &ready);
        if (rc)
            return rc;
        if (ready)
            stripe->state = STRIPE_READY;
        if (link->state != LINK_UP)
            link = verbs_best_link(peer, stripe->bytes);
        if (!ready || (link ? !verbs_link_has_room(link) : !peer->over_mpi)) {
            at = &stripe->next;
            continue;
        }
        *at = stripe->next;
        rc = stripe_post(stripe, link);
        if (rc)
            return rc;
    }
    return HETMPI_SUCCESS;
}

int verbs_send_progress(struct verbs_peer *peer)
{
    struct verbs *v = peer->verbs;
    int rc = peer->unposted ? post_stripes(peer) : HETMPI_SUCCESS;
    bool more = false;

    for (struct verbs_out *out = peer->grants; out && !rc; out = out->next)
        while (out->message && out->issued < out->head.bytes && !rc) {
            struct verbs_slot *slot = NULL;
            int link = next_link(out);
            if (link < 0)
                return HETMPI_SUCCESS;
            if (!out->place.base)
                rc = verbs_slot_take(v, &v->out, out->message, &slot);
            if (rc == COMM_AGAIN)
                return HETMPI_SUCCESS;
            if (!rc)
                rc = stripe_begin(out, link, slot);
            more = true;
        }
    return rc || !more ? rc : post_stripes(peer);
}

/* It is in the peer's memory. */
void verbs_stripe_arrived(struct verbs_stripe *stripe)
{
    struct verbs_out *out = stripe->out, **link;
    struct verbs_peer *peer = out->message->peer;
    struct verbs *v = peer->verbs;

    if (stripe->slot)
        stripe->slot->busy = false;
    stripe->next = v->free_stripes;
    v->free_stripes = stripe;
    out->done += stripe->bytes;
    if (out->done < out->head.bytes)
        return;
    verbs_place_end(peer, &out->place);
    out->message->moved += out->head.bytes;
    for (link = &peer->grants; *link != out; link = &(*link)->next)
        ;
    *link = out->next;
    out->next = v->free_outs;
    v->free_outs = out;
    peer->n_grants--;
}

void verbs_stripe_again(struct verbs_stripe *stripe)
{
    struct verbs_peer *peer = stripe->out->message->peer;

    stripe->state = STRIPE_READY;
    stripe->next = peer->unposted;
    peer->unposted = stripe;
}
