/*
 * The verbs wire: rings of small entries. Messages that fit, and grants, are written to the next entry of the ring that
 * the peer keeps for us, from our copy of it. Entries are numbered without end; number n stands at n % depth. The peer
 * releases entries in order, and tells how many by a credit, or in the head of what it sends anyway.
 */
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "hetmpi.h"
#include "mem/reg_cache.h"
#include "wire/verbs/verbs.h"

#define CREDIT_MASK 0x3fffffffu

static struct verbs_entry *entry_of(struct verbs_ring *ring, uint32_t serial)
{
    return &ring->entries[serial % ring->depth];
}

static char *memory_of(const struct verbs_ring *ring, uint32_t serial)
{
    return ring->base + (size_t)(serial % ring->depth) * VERBS_RING_BYTES;
}

static int open_one(struct verbs *v, struct verbs_ring *ring, uint32_t depth, int access)
{
    void *base;
    int rc;

    ring->entries = calloc(depth, sizeof(*ring->entries));
    if (!ring->entries)
        return err_set(HETMPI_ERR_MEMORY, "verbs wire: no memory for a ring of %u entries", depth);
    rc = mem_host_alloc((size_t)depth * VERBS_RING_BYTES, &base);
    if (rc)
        return rc;
    ring->base = base;
    ring->depth = depth;
    return verbs_register(v, base, (size_t)depth * VERBS_RING_BYTES, access, ring->mr);
}

int verbs_ring_open(struct verbs_peer *peer, uint32_t depth)
{
    int rc = open_one(peer->verbs, &peer->out, depth, 0);

    return rc ? rc : open_one(peer->verbs, &peer->in, depth, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
}

void verbs_ring_clear(struct verbs_ring *ring)
{
    for (uint32_t i = 0; i < ring->depth; i++)
        if (ring->entries[i].event)
            mem_event_destroy(ring->entries[i].event);
    verbs_unregister(ring->mr);
    if (ring->base)
        mem_host_free(ring->base);
    free(ring->entries);
    *ring = (struct verbs_ring){0};
}

/* ---- sending ---- */

bool verbs_ring_has_room(const struct verbs_peer *peer)
{
    return peer->out.next - peer->out.released < peer->out.depth;
}

static void entry_begin(struct verbs_peer *peer, uint32_t *serial, struct verbs_entry **entry, struct verbs_head **head)
{
    *serial = peer->out.next++;
    *entry = entry_of(&peer->out, *serial);
    *head = (struct verbs_head *)memory_of(&peer->out, *serial);
    (*entry)->serial = *serial;
    (*entry)->message = NULL;
    (*entry)->state = ENTRY_READY;
    peer->out.unposted++;
}

/* Where no link is left. */
static int entry_mail(struct verbs_peer *peer, uint32_t serial)
{
    struct verbs_entry *entry = entry_of(&peer->out, serial);
    int rc = verbs_mail_write(peer, VERBS_IMM(VERBS_RING, serial & CREDIT_MASK), 0, memory_of(&peer->out, serial),
                              entry->bytes);

    if (!rc)
        verbs_ring_arrived(peer, serial);
    return rc;
}

/* Writes an entry to the peer, if a link has room; else it stays for later. */
static int entry_post(struct verbs_peer *peer, uint32_t serial)
{
    struct verbs_ring *ring = &peer->out;
    struct verbs_entry *entry = entry_of(ring, serial);
    struct verbs_head *head = (struct verbs_head *)memory_of(ring, serial);
    struct verbs_link *link = verbs_best_link(peer, entry->bytes);

    if (!link && !peer->over_mpi)
        return HETMPI_SUCCESS;
    head->released = peer->in.next;
    peer->in.released = peer->in.next;
    entry->state = ENTRY_POSTED;
    ring->unposted--;
    if (!link)
        return entry_mail(peer, serial);
    return verbs_link_post(link, head, entry->bytes, ring->mr[verbs_rail_of(link)]->lkey,
                           peer->ring_address + (size_t)(serial % ring->depth) * VERBS_RING_BYTES, link->ring_rkey,
                           VERBS_IMM(VERBS_RING, serial & CREDIT_MASK),
                           &(struct verbs_posted){.kind = VERBS_RING, .serial = serial,
                                                  .wanted = entry->message != NULL});
}

int verbs_ring_send(struct verbs_peer *peer, struct verbs_message *m)
{
    struct verbs_entry *entry;
    struct verbs_head *head;
    uint32_t serial;
    int rc;

    entry_begin(peer, &serial, &entry, &head);
    *head = (struct verbs_head){.op = m->op, .chunk = m->chunk, .channel = m->channel, .type = HEAD_MESSAGE,
                                .serial = serial, .total = m->total, .bytes = m->total};
    entry->bytes = (uint32_t)(sizeof(*head) + m->total);
    entry->message = m;
    if (!m->device) {
        stage_copy_now(STAGE_OUT, &m->view, m->first, m->length, head + 1);
        return entry_post(peer, serial);
    }
    entry->state = ENTRY_COPYING;
    rc = stage_copy_async(&peer->verbs->out_lane, STAGE_OUT, &m->view, m->first, m->length, head + 1, &entry->event);
    return rc;
}

int verbs_ring_grant(struct verbs_peer *peer, const struct verbs_message *m, const struct verbs_in *in, uint32_t piece)
{
    struct verbs_grant *grant;
    struct verbs_entry *entry;
    struct verbs_head *head;
    uint32_t serial;

    entry_begin(peer, &serial, &entry, &head);
    *head = (struct verbs_head){.op = m->op, .chunk = m->chunk, .channel = m->channel, .type = HEAD_GRANT,
                                .serial = serial, .total = m->total, .bytes = in->bytes};
    grant = (struct verbs_grant *)(head + 1);
    *grant = (struct verbs_grant){.offset = in->offset, .piece = piece, .generation = in->generation,
                                  .address = (uintptr_t)(in->place.base ? in->place.base : in->slot->base)};
    for (int l = 0; l < peer->n_links; l++) {
        size_t rail = verbs_rail_of(&peer->links[l]);
        grant->rkeys[l] = in->place.base ? in->place.reg[rail]->rkey : in->slot->mr[rail]->rkey;
    }
    entry->bytes = sizeof(*head) + sizeof(*grant);
    return entry_post(peer, serial);
}

/* The peer learns how much of its ring it may use again, when that is much. */
static int tell_released(struct verbs_peer *peer)
{
    struct verbs_ring *ring = &peer->in;
    struct verbs_link *link;

    if (ring->next - ring->released < ring->depth / 2 && !peer->credit_due)
        return HETMPI_SUCCESS;
    link = verbs_best_link(peer, 0);
    if (!link && !peer->over_mpi)
        return HETMPI_SUCCESS;   /* later */
    ring->released = ring->next;
    peer->credit_due = false;
    if (!link)
        return verbs_mail_write(peer, VERBS_IMM(VERBS_CREDIT, ring->next & CREDIT_MASK), 0, NULL, 0);
    return verbs_link_post(link, NULL, 0, 0, 0, 0, VERBS_IMM(VERBS_CREDIT, ring->next & CREDIT_MASK),
                           &(struct verbs_posted){.kind = VERBS_CREDIT});
}

/* Sends what waited for a copy or for room. */
int verbs_ring_progress(struct verbs_peer *peer)
{
    struct verbs_ring *ring = &peer->out;

    for (uint32_t serial = ring->released; ring->unposted && serial != ring->next; serial++) {
        struct verbs_entry *entry = entry_of(ring, serial);
        bool ready = entry->state == ENTRY_READY;
        int rc = HETMPI_SUCCESS;
        if (entry->state == ENTRY_COPYING && !(rc = mem_event_query(entry->event, &ready)) && ready)
            entry->state = ENTRY_READY;
        if (!rc && ready)
            rc = entry_post(peer, serial);
        if (rc)
            return rc;
    }
    return peer->credit_due ? tell_released(peer) : HETMPI_SUCCESS;
}

/* An entry is at the peer: nobody reads our copy any more. The place may have been used again since. */
void verbs_ring_arrived(struct verbs_peer *peer, uint32_t serial)
{
    struct verbs_entry *entry = entry_of(&peer->out, serial);

    if (entry->serial != serial || entry->state != ENTRY_POSTED)
        return;
    entry->state = ENTRY_FREE;
    if (entry->message)
        entry->message->moved = entry->message->total;
    entry->message = NULL;
}

/* It was on a link that was lost, and did not arrive. */
void verbs_ring_again(struct verbs_peer *peer, uint32_t serial)
{
    entry_of(&peer->out, serial)->state = ENTRY_READY;
    peer->out.unposted++;
}

/* How many entries the peer has released: a count that wraps; an older one than is known says nothing. */
void verbs_ring_credit(struct verbs_peer *peer, uint32_t released)
{
    struct verbs_ring *ring = &peer->out;
    uint32_t more = (released - ring->released) & CREDIT_MASK;

    if (more > ring->next - ring->released)
        return;
    for (; more && entry_of(ring, ring->released)->state <= ENTRY_POSTED; more--) {
        verbs_ring_arrived(peer, ring->released);
        ring->released++;
    }
}

/* ---- receiving ---- */

static int damaged(const struct verbs_peer *peer, const char *what)
{
    return err_set(HETMPI_ERR_INTERNAL, "verbs wire: what came from rank %d is damaged: %s", peer->rank, what);
}

static struct verbs_message *find_receive(struct verbs_peer *peer, const struct verbs_head *head)
{
    for (struct verbs_message *m = peer->receives; m; m = m->next)
        if (verbs_same(m, head))
            return m;
    return NULL;
}

static int wrong_length(const struct verbs_message *m, const struct verbs_head *head)
{
    return err_set(HETMPI_ERR_INTERNAL, "verbs wire: rank %d sent %llu bytes where %zu are expected on channel %u",
                   m->peer->rank, (unsigned long long)head->total, m->total, m->channel);
}

/* To its place: at once, or by the copy engine. */
static int deliver(struct verbs_message *m, void *data, mem_event_t **event)
{
    m->asked = m->total;
    if (m->device)
        return stage_copy_async(&m->peer->verbs->in_lane, STAGE_IN, &m->view, m->first, m->length, data, event);
    stage_copy_now(STAGE_IN, &m->view, m->first, m->length, data);
    m->moved = m->total;
    return HETMPI_SUCCESS;
}

/* Nobody asked for it yet. */
static int set_aside(struct verbs_peer *peer, const struct verbs_head *head, const void *data)
{
    struct verbs *v = peer->verbs;
    struct verbs_stray *stray = v->free_strays;

    if (stray) {
        v->free_strays = stray->next;
    } else {
        stray = calloc(1, sizeof(*stray));
        if (!stray)
            return err_set(HETMPI_ERR_MEMORY, "verbs wire: no memory for a message of rank %d", peer->rank);
        stray->older = v->all_strays;
        v->all_strays = stray;
    }
    stray->head = *head;
    memcpy(stray->data, data, head->bytes);
    stray->next = peer->strays;
    peer->strays = stray;
    return HETMPI_SUCCESS;
}

/* Entries that are done are the sender's again, in order. */
static void release(struct verbs_peer *peer)
{
    struct verbs_ring *ring = &peer->in;

    while (entry_of(ring, ring->next)->state == ENTRY_DONE) {
        entry_of(ring, ring->next)->state = ENTRY_FREE;
        ring->next++;
    }
}

/* What came in an entry has been checked. */
static int take(struct verbs_peer *peer, struct verbs_entry *entry, const struct verbs_head *head, void *data)
{
    struct verbs_message *m;
    int rc;

    entry->state = ENTRY_DONE;
    if (head->type == HEAD_GRANT)
        return verbs_send_granted(peer, head, data);
    m = find_receive(peer, head);
    if (!m)
        return set_aside(peer, head, data);
    if (m->total != head->total || m->asked)
        return wrong_length(m, head);
    rc = deliver(m, data, &entry->event);
    if (m->device) {
        entry->state = ENTRY_HELD;
        m->entry = entry;
    }
    return rc;
}

int verbs_ring_came(struct verbs_peer *peer, uint32_t rest, uint32_t bytes)
{
    struct verbs_ring *ring = &peer->in;
    uint32_t ahead = (rest - ring->next) & CREDIT_MASK, serial = ring->next + ahead;
    struct verbs_entry *entry = entry_of(ring, serial);
    struct verbs_head head;
    int rc;

    if (ahead >= ring->depth || entry->state != ENTRY_FREE)
        return damaged(peer, "an entry of the ring that was not its turn");
    /* Its writer could change it any time: what is decided is decided from a copy. */
    memcpy(&head, memory_of(ring, serial), sizeof(head));
    if (bytes < sizeof(head) || bytes > VERBS_RING_BYTES || head.serial != serial)
        return damaged(peer, "the number or the length of an entry");
    if (head.type == HEAD_MESSAGE ? head.bytes != bytes - sizeof(head) || head.total != head.bytes || !head.bytes
                                  : head.type != HEAD_GRANT || bytes != sizeof(head) + sizeof(struct verbs_grant))
        return damaged(peer, "the head of an entry");
    verbs_ring_credit(peer, head.released);
    rc = take(peer, entry, &head, (struct verbs_head *)memory_of(ring, serial) + 1);
    if (rc)
        return rc;
    release(peer);
    return tell_released(peer);
}

int verbs_ring_mailed(struct verbs_peer *peer, uint32_t rest, const void *data, size_t bytes)
{
    struct verbs_ring *ring = &peer->in;
    uint32_t ahead = (rest - ring->next) & CREDIT_MASK, serial = ring->next + ahead;

    if (ahead >= ring->depth || bytes > VERBS_RING_BYTES || entry_of(ring, serial)->state != ENTRY_FREE)
        return damaged(peer, "an entry of the ring, by mail");
    memcpy(memory_of(ring, serial), data, bytes);
    return verbs_ring_came(peer, rest, (uint32_t)bytes);
}

int verbs_ring_claim(struct verbs_message *m)
{
    for (struct verbs_stray **link = &m->peer->strays; *link; link = &(*link)->next) {
        struct verbs_stray *stray = *link;
        if (!verbs_same(m, &stray->head))
            continue;
        if (m->total != stray->head.total)
            return wrong_length(m, &stray->head);
        *link = stray->next;
        m->stray = stray;
        return deliver(m, stray->data, &stray->event);
    }
    return HETMPI_SUCCESS;
}

/* A small message has come: is it in its place, and may what held it be used again? */
int verbs_ring_delivered(struct verbs_message *m)
{
    struct verbs_peer *peer = m->peer;
    bool done = true;
    int rc = HETMPI_SUCCESS;

    if (m->device && (m->entry || m->stray))
        rc = mem_event_query(m->entry ? m->entry->event : m->stray->event, &done);
    if (rc || !done)
        return rc;
    if (m->device && (m->entry || m->stray))
        m->moved = m->total;
    if (m->stray) {
        m->stray->next = peer->verbs->free_strays;
        peer->verbs->free_strays = m->stray;
        m->stray = NULL;
    }
    if (m->entry) {
        m->entry->state = ENTRY_DONE;
        m->entry = NULL;
        release(peer);
    }
    return tell_released(peer);
}
