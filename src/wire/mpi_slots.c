/* Slots of registered host memory for the mpi wire: see mpi_slots.h. */
#include "wire/mpi_slots.h"

#include <stdlib.h>

#include "core/log.h"
#include "hetmpi.h"

#define MPI_SLOT_UNIT ((size_t)64 << 10)  /* slots are multiples of it, so that chunks of nearly one size share them */
#define MPI_SLOTS_LEAST 2                 /* of a direction, whatever the bound */

static int slot_new(struct mpi_pool *pool, size_t bytes, struct mpi_slot **out)
{
    struct mpi_slot *slot;
    void *base;
    int rc;

    if (pool->n == pool->room) {
        int room = pool->room ? 2 * pool->room : 16;
        struct mpi_slot **slots = realloc(pool->slots, (size_t)room * sizeof(struct mpi_slot *));
        if (!slots)
            return err_set(HETMPI_ERR_MEMORY, "mpi wire: no memory for a table of %d slots", room);
        pool->slots = slots;
        pool->room = room;
    }
    slot = calloc(1, sizeof(*slot));
    if (!slot)
        return err_set(HETMPI_ERR_MEMORY, "mpi wire: no memory for a slot's state");
    rc = mem_host_alloc(bytes, &base);
    if (rc) {
        free(slot);
        return rc;
    }
    slot->base = base;
    slot->bytes = bytes;
    pool->slots[pool->n++] = slot;
    pool->bytes += bytes;
    *out = slot;
    return HETMPI_SUCCESS;
}

static void slot_free(struct mpi_slot *slot)
{
    if (slot->event)
        mem_event_destroy(slot->event);
    if (!slot->lost)
        mem_host_free(slot->base);
    free(slot);
}

/* Frees idle slots, which are all too small, until `bytes` more fit under the bound. */
static void pool_shrink(struct mpi_pool *pool, size_t bytes)
{
    for (int i = 0; i < pool->n && pool->bytes + bytes > pool->bound;) {
        struct mpi_slot *slot = pool->slots[i];
        if (slot->busy) {
            i++;
            continue;
        }
        pool->bytes -= slot->bytes;
        slot_free(slot);
        pool->slots[i] = pool->slots[--pool->n];
    }
}

static bool older(uint64_t op, uint32_t chunk, const struct mpi_slot *than)
{
    return op < than->op || (op == than->op && chunk < than->chunk);
}

int mpi_pool_take(struct mpi_pool *pool, size_t bytes, const struct wire_xfer *x, struct mpi_slot **out)
{
    struct mpi_slot *best = NULL;
    bool oldest = true;
    size_t wanted = (bytes + MPI_SLOT_UNIT - 1) / MPI_SLOT_UNIT * MPI_SLOT_UNIT;
    int rc;

    for (int i = 0; i < pool->n; i++) {
        struct mpi_slot *slot = pool->slots[i];
        if (slot->busy)
            oldest = oldest && (older(x->op, x->chunk, slot) || (slot->op == x->op && slot->chunk == x->chunk));
        else if (slot->bytes >= bytes && (!best || slot->bytes < best->bytes))
            best = slot;
    }
    if (!best) {
        pool_shrink(pool, wanted);
        if (pool->n >= MPI_SLOTS_LEAST && pool->bytes + wanted > pool->bound && !oldest)
            return COMM_AGAIN;
        rc = slot_new(pool, wanted, &best);
        if (rc)
            return rc;
    }
    best->busy = true;
    best->op = x->op;
    best->chunk = x->chunk;
    *out = best;
    return HETMPI_SUCCESS;
}

void mpi_pool_clear(struct mpi_pool *pool)
{
    for (int i = 0; i < pool->n; i++)
        slot_free(pool->slots[i]);
    free(pool->slots);
}
