/* The verbs wire: registered memory that messages are staged in. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "core/log.h"
#include "hetmpi.h"
#include "wire/verbs/verbs.h"

#define SLOT_BYTES ((size_t)256 << 10)   /* when CHUNK is not set */
#define SLOT_UNIT ((size_t)4096)
#define SLOTS_LEAST 4

void verbs_unregister(struct ibv_mr *mr[VERBS_RAILS_MAX])
{
    for (int r = 0; r < VERBS_RAILS_MAX; r++) {
        if (mr[r])
            ibv_dereg_mr(mr[r]);
        mr[r] = NULL;
    }
}

int verbs_register(struct verbs *v, void *base, size_t bytes, int access, struct ibv_mr *mr[VERBS_RAILS_MAX])
{
    for (int r = 0; r < v->n_rails; r++) {
        struct rlimit limit = {0};
        int error;

        mr[r] = ibv_reg_mr(v->rails[r].pd, base, bytes, access);
        if (mr[r])
            continue;
        error = errno;
        verbs_unregister(mr);
        getrlimit(RLIMIT_MEMLOCK, &limit);
        return err_set(HETMPI_ERR_MEMORY, "verbs wire: port %s cannot register %zu bytes: %s; ulimit -l is %zu KiB, "
                       "\"unlimited\" is what it should be", v->rails[r].port->name, bytes, strerror(error),
                       (size_t)limit.rlim_cur >> 10);
    }
    return HETMPI_SUCCESS;
}

void verbs_pools_open(struct verbs *v)
{
    const struct comm *comm = v->wire.comm;
    size_t half = comm->cfg->staging / 2, bytes = comm->cfg->chunk ? comm->chunk_max : SLOT_BYTES;

    if (bytes > half / SLOTS_LEAST)
        bytes = half / SLOTS_LEAST;
    if (bytes > UINT32_MAX / 2)
        bytes = UINT32_MAX / 2;
    bytes = bytes < SLOT_UNIT ? SLOT_UNIT : bytes / SLOT_UNIT * SLOT_UNIT;
    v->out.slot_bytes = v->in.slot_bytes = bytes;
    v->out.most = v->in.most = (int)(half / bytes < SLOTS_LEAST ? SLOTS_LEAST : half / bytes);
    v->out.access = 0;
    v->in.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
}

static int slot_new(struct verbs *v, struct verbs_pool *pool, struct verbs_slot **out)
{
    struct verbs_slot *slot;
    void *base;
    int rc;

    if (pool->n == pool->room) {
        int room = pool->room ? 2 * pool->room : 16;
        struct verbs_slot **slots = realloc(pool->slots, (size_t)room * sizeof(*slots));
        if (!slots)
            return err_set(HETMPI_ERR_MEMORY, "verbs wire: no memory for a table of %d slots", room);
        pool->slots = slots;
        pool->room = room;
    }
    slot = calloc(1, sizeof(*slot));
    if (!slot)
        return err_set(HETMPI_ERR_MEMORY, "verbs wire: no memory for a slot's state");
    rc = mem_host_alloc(pool->slot_bytes, &base);
    if (rc)
        goto free_slot;
    rc = verbs_register(v, base, pool->slot_bytes, pool->access, slot->mr);
    if (rc)
        goto free_base;
    slot->base = base;
    pool->slots[pool->n++] = slot;
    *out = slot;
    return HETMPI_SUCCESS;

free_base:
    mem_host_free(base);
free_slot:
    free(slot);
    return rc;
}

void verbs_pool_clear(struct verbs_pool *pool)
{
    for (int i = 0; i < pool->n; i++) {
        struct verbs_slot *slot = pool->slots[i];
        if (slot->event)
            mem_event_destroy(slot->event);
        verbs_unregister(slot->mr);
        mem_host_free(slot->base);
        free(slot);
    }
    free(pool->slots);
    *pool = (struct verbs_pool){0};
}

/* A larger pool; a smaller one than planned serves too, if the process may not lock more memory. */
static int grow(struct verbs *v, struct verbs_pool *pool, struct verbs_slot **slot)
{
    int rc;

    if (pool->full)
        return COMM_AGAIN;
    rc = slot_new(v, pool, slot);
    if (rc != HETMPI_ERR_MEMORY || pool->n < 1)
        return rc;
    log_warn("%s; the wire works with %d slots of %zu bytes", err_text(), pool->n, pool->slot_bytes);
    pool->full = true;
    return COMM_AGAIN;
}

/* COMM_AGAIN: none is free, and one of an older chunk than m's waits too. As in the mpi wire the oldest may go beyond
 * the bound, so that what later chunks hold never starves an earlier one. */
int verbs_slot_take(struct verbs *v, struct verbs_pool *pool, const struct verbs_message *m, struct verbs_slot **slot)
{
    bool oldest = true;
    int rc;

    *slot = NULL;
    for (int i = 0; i < pool->n; i++) {
        struct verbs_slot *s = pool->slots[i];
        if (!s->busy) {
            *slot = s;
            break;
        }
        oldest = oldest && (m->op < s->op || (m->op == s->op && m->chunk < s->chunk));
    }
    if (!*slot) {
        if (pool->n >= pool->most && !oldest)
            return COMM_AGAIN;
        rc = grow(v, pool, slot);
        if (rc)
            return rc;
    }
    (*slot)->busy = true;
    (*slot)->op = m->op;
    (*slot)->chunk = m->chunk;
    return HETMPI_SUCCESS;
}
