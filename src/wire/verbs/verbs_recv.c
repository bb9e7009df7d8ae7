/* The verbs wire: larger messages, the receiver's side: memory is granted to the sender piece by piece, and what came
 * there is copied to its place. */
#include <string.h>

#include "core/log.h"
#include "hetmpi.h"
#include "wire/verbs/verbs.h"

/* A piece that is written to its place, in slots: the sender may have to stage it, in so many stripes. */
#define STRAIGHT_SLOTS (VERBS_STRIPES_MAX / 2)

void verbs_recv_open(struct verbs *v)
{
    for (int p = 0; p < VERBS_PIECES_MAX; p++)
        v->pieces[p].next_free = p + 1 < VERBS_PIECES_MAX ? p + 1 : -1;
    v->piece_free = 0;
}

/* Grants the next piece of a message. */
static int grant(struct verbs_message *m, int *place)
{
    struct verbs *v = m->peer->verbs;
    int piece = v->piece_free, rc;
    struct verbs_in *in = &v->pieces[piece];
    size_t most = v->in.slot_bytes / m->view.element * m->view.element, left = m->total - m->asked;
    size_t straight = left < STRAIGHT_SLOTS * most ? left : STRAIGHT_SLOTS * most;

    rc = verbs_place_begin(m, m->asked, straight, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, &in->place);
    if (!rc)
        most = straight;
    else if (rc == COMM_AGAIN)
        rc = verbs_slot_take(v, &v->in, m, &in->slot);
    if (rc)
        return rc;
    v->piece_free = in->next_free;
    in->state = IN_GRANTED;
    in->message = m;
    in->offset = m->asked;
    in->bytes = left < most ? left : most;
    in->arrived = 0;
    in->stripes = 0;
    in->generation = (in->generation + 1) % VERBS_GENERATIONS;
    m->asked += in->bytes;
    *place = piece;
    return verbs_ring_grant(m->peer, m, in, (uint32_t)piece);
}

static void piece_end(struct verbs *v, int *place)
{
    struct verbs_in *in = &v->pieces[*place];

    in->message->moved += in->bytes;
    if (in->slot)
        in->slot->busy = false;
    in->slot = NULL;
    in->state = IN_FREE;
    in->message = NULL;
    in->next_free = v->piece_free;
    v->piece_free = *place;
    *place = -1;
}

int verbs_recv_begin(struct verbs_message *m)
{
    for (int i = 0; i < VERBS_MESSAGE_PIECES; i++)
        m->in[i] = -1;
    return m->eager ? verbs_ring_claim(m) : verbs_recv_progress(m);
}

int verbs_recv_progress(struct verbs_message *m)
{
    struct verbs *v = m->peer->verbs;

    if (m->eager)
        return m->asked ? verbs_ring_delivered(m) : HETMPI_SUCCESS;
    for (int i = 0; i < VERBS_MESSAGE_PIECES; i++) {
        int rc = HETMPI_SUCCESS;
        bool done = false;
        if (m->in[i] >= 0 && v->pieces[m->in[i]].state == IN_COPYING)
            rc = mem_event_query(v->pieces[m->in[i]].slot->event, &done);
        else if (m->in[i] >= 0)
            done = v->pieces[m->in[i]].state == IN_COPIED;
        if (done)
            piece_end(v, &m->in[i]);
        if (!rc && m->in[i] < 0 && m->asked < m->total && v->piece_free >= 0 && verbs_ring_has_room(m->peer))
            rc = grant(m, &m->in[i]);
        if (rc)
            return rc == COMM_AGAIN ? HETMPI_SUCCESS : rc;
    }
    return HETMPI_SUCCESS;
}

/* A piece is complete. */
static int unstage(struct verbs *v, struct verbs_in *in)
{
    struct verbs_message *m = in->message;
    size_t first = m->first + in->offset / m->view.element, length = in->bytes / m->view.element;

    if (in->place.base) {
        v->straight += in->bytes;
        in->state = IN_COPIED;
        verbs_place_end(m->peer, &in->place);   /* from now on nobody may write there */
        return m->device ? mem_flush_remote_writes() : HETMPI_SUCCESS;
    }
    *(m->device ? &v->by_device : &v->by_cpu) += in->bytes;
    if (m->device) {
        in->state = IN_COPYING;
        return stage_copy_async(&v->in_lane, STAGE_IN, &m->view, first, length, in->slot->base, &in->slot->event);
    }
    stage_copy_now(STAGE_IN, &m->view, first, length, in->slot->base);
    in->state = IN_COPIED;
    return HETMPI_SUCCESS;
}

/* The piece that a stripe is for, if it was granted for it. */
static struct verbs_in *find_piece(struct verbs_peer *peer, uint32_t rest, size_t bytes)
{
    uint32_t piece = rest & 0xfff, stripe = rest >> 12 & 0x3f, generation = rest >> 18;
    struct verbs_in *in = piece < VERBS_PIECES_MAX ? &peer->verbs->pieces[piece] : NULL;

    if (in && in->state == IN_GRANTED && in->message->peer == peer && in->generation == generation &&
        !(in->stripes >> stripe & 1) && bytes <= in->bytes - in->arrived)
        return in;
    err_set(HETMPI_ERR_INTERNAL, "verbs wire: what came from rank %d is damaged: %zu bytes for a piece that was not "
            "granted for them", peer->rank, bytes);
    return NULL;
}

int verbs_recv_data(struct verbs_peer *peer, uint32_t rest, uint32_t bytes)
{
    struct verbs_in *in = find_piece(peer, rest, bytes);

    if (!in)
        return err_code();
    in->stripes |= (uint64_t)1 << (rest >> 12 & 0x3f);
    in->arrived += bytes;
    return in->arrived == in->bytes ? unstage(peer->verbs, in) : HETMPI_SUCCESS;
}

int verbs_recv_mailed(struct verbs_peer *peer, uint32_t rest, uint64_t offset, const void *data, size_t bytes)
{
    struct verbs_in *in = find_piece(peer, rest, bytes);

    if (!in)
        return err_code();
    if (offset > in->bytes - bytes)
        return err_set(HETMPI_ERR_INTERNAL, "verbs wire: a mail of rank %d goes beyond its piece", peer->rank);
    if (in->place.base) {
        int rc = mem_copy(in->place.base + offset, data, bytes);
        if (rc)
            return rc;
    } else {
        memcpy(in->slot->base + offset, data, bytes);
    }
    return verbs_recv_data(peer, rest, (uint32_t)bytes);
}
