/* The shm wire: shared regions, made and mapped; see shm.h. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>

#include "core/log.h"
#include "hetmpi.h"
#include "wire/shm.h"

#define SHM_SLOT_BYTES ((size_t)256 << 10)   /* of a slot, when CHUNK is not set */
#define SHM_SLOT_LEAST ((size_t)4096)        /* a page; far above any element */
#define SHM_SLOTS_LEAST 4
#define SHM_SLOTS_PER_PEER 8

/* Where everything stands by the region's shape; returns the bytes of shared memory. Slots in device memory are somewhere
 * else. */
static size_t region_place(struct shm_region *r, char *base)
{
    size_t at = sizeof(struct shm_head), locals = r->shape.locals;

    r->starving = (struct ctl_word *)(base + at);
    at += locals * sizeof(*r->starving);
    r->rings = (struct shm_desc *)(base + at);
    at += locals * r->shape.descs * sizeof(*r->rings);
    r->released = (struct ctl_word *)(base + at);
    at += r->shape.slots * sizeof(*r->released);
    at = (at + SHM_SLOT_LEAST - 1) / SHM_SLOT_LEAST * SHM_SLOT_LEAST;
    if (r->in_device)
        return at;
    r->slots = base + at;
    return at + r->shape.slots * r->shape.slot_bytes;
}

/* Whether the slots of a region of that shape, or the rings of all its ranks, can be in so many bytes. */
static bool slots_fit(const struct shm_shape *s, size_t bytes)
{
    return s->slot_bytes && s->slot_bytes % SHM_SLOT_LEAST == 0 && s->slots <= bytes / s->slot_bytes;
}

static bool rings_fit(const struct shm_shape *s, size_t bytes)
{
    return s->slots && s->slots < s->descs && !(s->descs & (s->descs - 1)) &&
           s->locals && s->descs <= bytes / sizeof(struct shm_desc) / s->locals;
}

static void region_register(struct shm *shm, struct shm_region *r, int owner)
{
    if (!shm->device || r->in_device)
        return;
    r->registered = !mem_host_register(r->seg.base, r->seg.bytes);
    if (!r->registered)
        log_warn("%s wire: the region of rank %d could not be registered for the device, so copies are slower: %s",
                 shm_name(shm), owner, err_text());
}

void shm_region_clear(struct shm_region *r)
{
    if (!r->seg.base)
        return;
    if (r->registered)
        mem_host_unregister(r->seg.base);
    if (r->in_device && r->slots) {
        if (r->mine)
            mem_free(r->slots);
        else
            mem_ipc_close(r->slots);
    }
    seg_clear(&r->seg);
    *r = (struct shm_region){ .seg.fd = -1 };
}

/* Pieces of a chunk are on their way earlier than the whole; but where queueing a copy is dear they cost more than that. */
static size_t slot_bytes_for(const struct comm *comm)
{
    size_t most = comm->cfg->staging / 2 / SHM_SLOTS_LEAST;
    size_t bytes = comm->cfg->chunk || comm->chunk_min > SHM_SLOT_BYTES ? comm->chunk_max : SHM_SLOT_BYTES;

    if (bytes > most)
        bytes = most;
    if (bytes > UINT32_MAX / 2)
        bytes = UINT32_MAX / 2;
    if (bytes < SHM_SLOT_LEAST)
        return SHM_SLOT_LEAST;
    return bytes / SHM_SLOT_LEAST * SHM_SLOT_LEAST;
}

/* The slots of our own region, where they are device memory, and the name of that for others. */
static int make_slots(struct shm_region *r, size_t bytes, mem_ipc_t *ipc)
{
    void *memory;
    int rc = mem_alloc(bytes, &memory);

    if (rc)
        return rc;
    r->slots = memory;
    return mem_ipc_export(memory, ipc);
}

/* Our own region, at the first send. */
int shm_region_make(struct shm *shm)
{
    struct comm *comm = shm->wire.comm;
    size_t slot_bytes = slot_bytes_for(comm);
    size_t slots = comm->cfg->staging / 2 / slot_bytes, descs = 1;
    struct shm_region *r = &shm->region;
    struct seg_name name;
    mem_ipc_t ipc;
    int rc;

    r->mine = true;
    r->in_device = shm->in_device;
    if (slots > (size_t)SHM_SLOTS_PER_PEER * (size_t)(shm->n_peers + 1))
        slots = (size_t)SHM_SLOTS_PER_PEER * (size_t)(shm->n_peers + 1);
    if (slots < SHM_SLOTS_LEAST)
        slots = SHM_SLOTS_LEAST;
    if (slots < (size_t)shm->n_peers + 1)
        slots = (size_t)shm->n_peers + 1;
    while (descs <= slots)   /* more than slots: then an entry that is written again was surely read (see publish) */
        descs *= 2;

    shm->slots = calloc(slots, sizeof(*shm->slots));
    shm->free = malloc(slots * sizeof(*shm->free));
    if (!shm->slots || !shm->free) {
        rc = err_set(HETMPI_ERR_MEMORY, "%s wire: no memory for the state of %zu slots", shm_name(shm), slots);
        goto fail;
    }
    r->shape = (struct shm_shape){.slot_bytes = slot_bytes, .slots = (uint32_t)slots, .descs = (uint32_t)descs,
                                  .locals = (uint32_t)comm->n_local, .rank = comm->rank};
    rc = seg_create(&r->seg, region_place(r, NULL), &name);
    if (rc)
        goto fail;
    region_place(r, r->seg.base);
    ((struct shm_head *)r->seg.base)->shape = r->shape;
    rc = r->in_device ? make_slots(r, slots * slot_bytes, &ipc) : HETMPI_SUCCESS;
    if (rc) {
        shm_region_clear(r);
        goto fail;
    }
    region_register(shm, r, comm->rank);
    for (size_t i = 0; i < slots; i++)
        shm->free[i] = (int)(slots - 1 - i);
    shm->n_slots = shm->n_free = (int)slots;
    shm->idle = shm->n_peers;
    rc = comm_region_publish(comm, shm_region_kind(shm), &name, r->in_device ? &ipc : NULL);
    if (!rc)
        return HETMPI_SUCCESS;
    shm->n_slots = 0;
    shm_region_clear(r);
fail:
    free(shm->slots);
    free(shm->free);
    shm->slots = NULL;
    shm->free = NULL;
    return comm_region_lost(comm, shm_region_kind(shm), rc);
}

/* A peer's slots in device memory. *fit: they are as many as its shape says. */
static int open_slots(struct shm_region *r, const mem_ipc_t *ipc, bool *fit)
{
    struct mem_pointer what;
    void *memory;
    int rc = mem_ipc_open(ipc, &memory);

    if (rc)
        return rc;
    r->slots = memory;
    mem_query(memory, &what);
    *fit = slots_fit(&r->shape, what.bytes);
    return HETMPI_SUCCESS;
}

static int no_region(const struct shm *shm, int rank)
{
    return err_set(HETMPI_ERR_INTERNAL, "%s wire: the region that rank %d published for rank %d is not one of this "
                   "communicator", shm_name(shm), rank, shm->wire.comm->rank);
}

/* A peer's region; COMM_AGAIN until it is there. */
int shm_region_map(struct shm *shm, int local)
{
    struct comm *comm = shm->wire.comm;
    struct shm_peer *peer = &shm->peers[local];
    struct shm_region *r = &peer->region;
    struct seg_name name;
    mem_ipc_t ipc;
    bool ours = true;
    int rank = comm->local[local];
    int rc = comm_region_name(comm, rank, shm_region_kind(shm), &name, &ipc);

    if (rc)
        return rc;
    rc = seg_open(&r->seg, &name);
    if (rc) {
        int failed = comm_failed(comm);   /* then the peer has closed its wire, and the failure is what to report */
        if (!failed && kill(name.pid, 0) && errno == ESRCH)
            return err_set(HETMPI_ERR_PEER, "%s wire: rank %d (process %d) died", shm_name(shm), rank, name.pid);
        return failed ? failed : rc;
    }
    r->in_device = shm->in_device;
    if (r->seg.bytes >= sizeof(struct shm_head))
        r->shape = ((const struct shm_head *)r->seg.base)->shape;
    if (r->shape.rank != rank || r->shape.locals != (uint32_t)comm->n_local || !rings_fit(&r->shape, r->seg.bytes) ||
        (!r->in_device && !slots_fit(&r->shape, r->seg.bytes)) || region_place(r, r->seg.base) > r->seg.bytes) {
        shm_region_clear(r);
        return no_region(shm, rank);
    }
    rc = r->in_device ? open_slots(r, &ipc, &ours) : HETMPI_SUCCESS;
    if (rc || (r->in_device && !ours)) {
        shm_region_clear(r);
        return rc ? rc : no_region(shm, rank);
    }
    region_register(shm, r, rank);
    peer->mapped = true;
    return shm_frags_reserve(shm, r->shape.slots);   /* each of its slots holds one at most */
}
