/* The shm wire: reading what peers published; see shm.h. */
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "core/proc.h"
#include "hetmpi.h"
#include "wire/shm.h"

#define SHM_STALL 1024                       /* fruitless polls until unexpected fragments are moved away */
#define SHM_STALL_LOOK 64                    /* ipc: fruitless polls until the clock is looked at */
#define SHM_STALL_NS 2000000                 /* ... and how long nothing may have moved: moving costs far more */
#define SHM_STALL_MAP 65536                  /* ... until peers are mapped to look for such */

static struct shm_frag *frag_new(struct shm *shm)
{
    struct shm_frag *f = calloc(1, sizeof(*f));

    if (f) {
        f->older = shm->all_frags;
        shm->all_frags = f;
    }
    return f;
}

static struct shm_frag *frag_get(struct shm *shm)
{
    struct shm_frag *f = shm->free_frags;

    if (f) {
        shm->free_frags = f->next;
        return f;
    }
    return frag_new(shm);
}

int shm_frags_reserve(struct shm *shm, size_t more)
{
    for (; more > 0; more--) {
        struct shm_frag *f = frag_new(shm);
        if (!f)
            return err_set(HETMPI_ERR_MEMORY, "%s wire: no memory for the messages of %d ranks", shm_name(shm),
                           shm->wire.comm->n_local);
        f->next = shm->free_frags;
        shm->free_frags = f;
    }
    return HETMPI_SUCCESS;
}

/* Takes what a mapped peer has published for us. */
static int take(struct shm *shm, int local)
{
    struct shm_peer *peer = &shm->peers[local];
    const struct shm_shape *shape = &peer->region.shape;
    struct shm_desc *ring = peer->region.rings + (size_t)shm->me * shape->descs;

    for (;;) {
        struct shm_desc *d = &ring[(peer->taken + 1) & (shape->descs - 1)];
        if (atomic_load_explicit(&d->seq, memory_order_acquire) != peer->taken + 1)
            return HETMPI_SUCCESS;
        struct shm_frag *f = frag_get(shm);
        if (!f)
            return err_set(HETMPI_ERR_MEMORY, "%s wire: no memory for a message of rank %d", shm_name(shm),
                           shm->wire.comm->local[local]);
        f->part = d->part;
        if (f->part.slot >= shape->slots || f->part.bytes > shape->slot_bytes) {
            int code = err_set(HETMPI_ERR_INTERNAL, "%s wire: rank %d published %u bytes in slot %u, of %u slots of "
                               "%llu bytes", shm_name(shm), shm->wire.comm->local[local], f->part.bytes, f->part.slot,
                               shape->slots, (unsigned long long)shape->slot_bytes);
            f->next = shm->free_frags;
            shm->free_frags = f;
            return code;
        }
        f->next = NULL;
        *peer->pending_end = f;
        peer->pending_end = &f->next;
        peer->taken++;
    }
}

static bool matches(const struct shm_message *m, const struct shm_part *part)
{
    return m->op == part->op && m->chunk == part->chunk && m->channel == part->channel;
}

static void slot_release(struct shm_region *r, const struct shm_part *part)
{
    atomic_store_explicit(&r->released[part->slot].value, part->ticket, memory_order_release);
}

/* The fragment has been copied to where it belongs. */
static void frag_done(struct shm *shm, struct shm_message *m, struct shm_frag *f)
{
    if (!f->stash)
        slot_release(&shm->peers[m->local].region, &f->part);
    free(f->stash);
    f->stash = NULL;
    m->moved += f->part.bytes;
    f->next = shm->free_frags;
    shm->free_frags = f;
}

/* Begins to copy one fragment of the message to its place. */
static int frag_read(struct shm *shm, struct shm_message *m, struct shm_frag *f)
{
    const struct shm_region *r = &shm->peers[m->local].region;
    size_t element = m->view.element;

    /* With fragments that overlap, more than all would come. */
    if (f->part.total != m->total || f->part.offset % element || f->part.bytes % element ||
        f->part.offset > m->total || f->part.bytes > m->total - f->part.offset || f->part.bytes > m->total - m->issued)
        return err_set(HETMPI_ERR_INTERNAL, "%s wire: rank %d sent %llu bytes (op %llu, chunk %u, channel %u) where "
                       "rank %d expects %zu", shm_name(shm), shm->wire.comm->local[m->local],
                       (unsigned long long)f->part.total,
                       (unsigned long long)m->op, m->chunk, m->channel, shm->wire.comm->rank, m->total);
    char *memory = f->stash ? f->stash : r->slots + (size_t)f->part.slot * r->shape.slot_bytes;
    size_t at = m->first + f->part.offset / element, n = f->part.bytes / element;
    m->issued += f->part.bytes;
    if (!shm->device) {
        stage_copy_now(STAGE_IN, &m->view, at, n, memory);
        frag_done(shm, m, f);
        return HETMPI_SUCCESS;
    }
    f->next = m->reading;
    m->reading = f;
    return stage_copy_async(&shm->in, STAGE_IN, &m->view, at, n, memory, &f->event);
}

/* Reads the pending fragments that belong to the message. */
static int recv_match(struct shm *shm, struct shm_message *m)
{
    struct shm_peer *peer = &shm->peers[m->local];

    for (struct shm_frag **link = &peer->pending; *link;) {
        struct shm_frag *f = *link;
        if (!matches(m, &f->part)) {
            link = &f->next;
            continue;
        }
        *link = f->next;
        if (!*link)
            peer->pending_end = link;
        int rc = frag_read(shm, m, f);
        if (rc)
            return rc;
    }
    return HETMPI_SUCCESS;
}

static int recv_finish(struct shm *shm, struct shm_message *m)
{
    for (struct shm_frag **link = &m->reading; *link;) {
        struct shm_frag *f = *link;
        bool done;
        int rc = mem_event_query(f->event, &done);
        if (rc)
            return rc;
        if (!done) {
            link = &f->next;
            continue;
        }
        *link = f->next;
        frag_done(shm, m, f);
    }
    return HETMPI_SUCCESS;
}

static bool expected(const struct shm_peer *peer, const struct shm_part *part)
{
    for (const struct shm_message *m = peer->receives; m; m = m->next)
        if (matches(m, part))
            return true;
    return false;
}

static int stash(const struct shm *shm, void *to, const void *slot, size_t bytes)
{
    if (shm->in_device)
        return mem_copy(to, slot, bytes);
    memcpy(to, slot, bytes);
    return HETMPI_SUCCESS;
}

/* Moves fragments that no receive has asked for out of a starving peer's slots. */
static int unexpected_move(struct shm *shm, int local)
{
    struct shm_peer *peer = &shm->peers[local];
    int rc;

    if (!atomic_load_explicit(&peer->region.starving[shm->me].value, memory_order_relaxed))
        return HETMPI_SUCCESS;
    if ((rc = take(shm, local)))
        return rc;
    for (struct shm_frag *f = peer->pending; f; f = f->next) {
        if (f->stash || expected(peer, &f->part))
            continue;
        f->stash = malloc(f->part.bytes);
        if (!f->stash)
            return err_set(HETMPI_ERR_MEMORY, "%s wire: no memory for %u bytes that came early from rank %d",
                           shm_name(shm), f->part.bytes, shm->wire.comm->local[local]);
        rc = stash(shm, f->stash, peer->region.slots + (size_t)f->part.slot * peer->region.shape.slot_bytes,
                   f->part.bytes);
        if (rc)
            return rc;
        slot_release(&peer->region, &f->part);
    }
    return HETMPI_SUCCESS;
}

/* Nothing has moved for long enough. *map: peers that nothing was received from are worth a look. */
static bool is_stalled(struct shm *shm, bool *map)
{
    uint64_t ns;

    shm->fruitless++;
    *map = shm->in_device || shm->fruitless % SHM_STALL_MAP == 0;
    if (!shm->in_device)
        return shm->fruitless % SHM_STALL == 0;
    if (shm->fruitless % SHM_STALL_LOOK)
        return false;
    ns = proc_now_ns();
    if (shm->fruitless > SHM_STALL_LOOK && ns - shm->still_ns < SHM_STALL_NS)
        return false;
    shm->still_ns = ns;
    return shm->fruitless > SHM_STALL_LOOK;
}

/* Called when nothing moved: now and then frees what peers may be waiting for. */
int shm_stalled(struct shm *shm)
{
    bool map;

    if (!is_stalled(shm, &map))
        return HETMPI_SUCCESS;
    for (int i = 0; i < shm->wire.comm->n_local; i++) {
        struct shm_peer *peer = &shm->peers[i];
        int rc = HETMPI_SUCCESS;
        if (i == shm->me)
            continue;
        if (!peer->mapped && peer->reserves && map)
            rc = shm_region_map(shm, i);
        if (rc && rc != COMM_AGAIN)
            return rc;
        if (peer->mapped && (rc = unexpected_move(shm, i)))
            return rc;
    }
    return HETMPI_SUCCESS;
}

int shm_recv_progress(struct shm *shm, struct shm_message *m)
{
    struct shm_peer *peer = &shm->peers[m->local];
    int rc;

    if (!peer->mapped && (rc = shm_region_map(shm, m->local)))
        return rc == COMM_AGAIN ? HETMPI_SUCCESS : rc;
    if ((rc = recv_finish(shm, m)) || (rc = take(shm, m->local)))
        return rc;
    return recv_match(shm, m);
}
