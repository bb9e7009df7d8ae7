/* The shm wire: slots of our own region, and messages through them; see shm.h. */
#include "wire/shm.h"

#include "hetmpi.h"

/* Takes back the slots whose receivers have read them. */
static void slots_reclaim(struct shm *shm)
{
    for (int i = 0; i < shm->n_slots; i++) {
        struct shm_slot *slot = &shm->slots[i];
        if (slot->state != SLOT_PUBLISHED ||
            atomic_load_explicit(&shm->region.released[i].value, memory_order_acquire) != slot->ticket)
            continue;
        slot->state = SLOT_FREE;
        shm->free[shm->n_free++] = i;
        struct shm_peer *peer = &shm->peers[slot->local];
        if (--peer->held == 0 && peer->reserves)
            shm->idle++;
    }
}

/* A free slot that the other peers' reserves allow this one to have, else -1. With several peers one has half of the
 * pool at most. */
static int slot_free_for(const struct shm *shm, const struct shm_peer *peer)
{
    int others_idle = shm->idle - (peer->reserves && peer->held == 0);
    int most = shm->n_peers > 1 ? (shm->n_slots + 1) / 2 : shm->n_slots;

    return shm->n_free > others_idle && peer->held < most ? shm->free[shm->n_free - 1] : -1;
}

/* As slot_free_for, after another look at what was read; the receiver learns whether its sender is short of slots. */
static int slot_find(struct shm *shm, int local)
{
    struct shm_peer *peer = &shm->peers[local];
    _Atomic uint64_t *starving = &shm->region.starving[local].value;
    int s = slot_free_for(shm, peer);

    if (s < 0) {
        slots_reclaim(shm);
        s = slot_free_for(shm, peer);
    }
    if ((s < 0) != atomic_load_explicit(starving, memory_order_relaxed))
        atomic_store_explicit(starving, s < 0, memory_order_relaxed);
    return s;
}

static int slot_take(struct shm *shm, int local)
{
    struct shm_peer *peer = &shm->peers[local];
    int s = slot_find(shm, local);

    if (s < 0)
        return -1;
    shm->n_free--;
    if (peer->held++ == 0 && peer->reserves)
        shm->idle--;
    shm->slots[s].local = local;
    return s;
}

bool shm_send_ready(struct shm *shm, int local)
{
    /* An older message to that rank that is not all in slots takes the next ones. */
    return !shm->peers[local].filling && slot_find(shm, local) >= 0;
}

/* Puts the fragment in slot s at the end of its receiver's ring. The entry that it overwrites has been read: the ring
 * has more entries than there are slots, so one of the fragments since then has been released, and its receiver read
 * the ring in order. */
static void publish(struct shm *shm, const struct shm_message *m, int s)
{
    struct shm_peer *peer = &shm->peers[m->local];
    struct shm_region *r = &shm->region;
    struct shm_slot *slot = &shm->slots[s];
    struct shm_desc *d = &r->rings[(size_t)m->local * r->shape.descs + (++peer->published & (r->shape.descs - 1))];

    slot->state = SLOT_PUBLISHED;
    slot->ticket = ++shm->ticket;
    d->part = (struct shm_part){ .op = m->op, .chunk = m->chunk, .channel = m->channel, .total = m->total,
                                 .offset = slot->offset, .bytes = slot->bytes, .slot = (uint32_t)s,
                                 .ticket = slot->ticket };
    atomic_store_explicit(&d->seq, peer->published, memory_order_release);
}

int shm_send_fill(struct shm *shm, struct shm_message *m)
{
    struct shm_peer *peer = &shm->peers[m->local];
    size_t each = shm->region.shape.slot_bytes / m->view.element;

    while (m->issued < m->total) {
        int s = slot_take(shm, m->local);
        if (s < 0) {
            peer->filling = m;
            return HETMPI_SUCCESS;
        }
        struct shm_slot *slot = &shm->slots[s];
        char *memory = shm->region.slots + (size_t)s * shm->region.shape.slot_bytes;
        size_t at = m->issued / m->view.element;
        size_t n = m->length - at < each ? m->length - at : each;
        slot->state = SLOT_COPYING;
        slot->offset = m->issued;
        slot->bytes = (uint32_t)(n * m->view.element);
        m->issued += slot->bytes;
        if (shm->device) {
            slot->next = m->copying;
            m->copying = s;
            int rc = stage_copy_async(&shm->out, STAGE_OUT, &m->view, m->first + at, n, memory, &slot->event);
            if (rc)
                return rc;
        } else {
            stage_copy_now(STAGE_OUT, &m->view, m->first + at, n, memory);
            m->moved += slot->bytes;
            publish(shm, m, s);
        }
    }
    if (peer->filling == m)
        peer->filling = NULL;
    return HETMPI_SUCCESS;
}

int shm_send_publish(struct shm *shm, struct shm_message *m)
{
    for (int *link = &m->copying; *link >= 0;) {
        struct shm_slot *slot = &shm->slots[*link];
        bool done;
        int rc = mem_event_query(slot->event, &done);
        if (rc)
            return rc;
        if (!done) {
            link = &slot->next;
            continue;
        }
        int s = *link;
        *link = slot->next;
        m->moved += slot->bytes;
        publish(shm, m, s);
    }
    return HETMPI_SUCCESS;
}

bool shm_send_read(struct shm *shm)
{
    slots_reclaim(shm);
    for (int i = 0; i < shm->n_slots; i++)
        if (shm->slots[i].state == SLOT_PUBLISHED)
            return false;
    return true;
}
