/*
 * The verbs wire: memory of messages that NICs write and read themselves. A larger message whose elements stand in one
 * piece is registered at both ends, and goes from memory to memory; one end alone may do so too, and what cannot be
 * registered is staged. A key that a peer may write by covers what it was granted, and ends when that has come.
 */
#include <stdio.h>

#include "core/log.h"
#include "hetmpi.h"
#include "mem/reg_cache.h"
#include "wire/verbs/verbs.h"

/* The bytes of the message from `offset` on, where NICs may get at them: NULL if they may not. */
static char *place_of(struct verbs_message *m, size_t offset)
{
    size_t least = m->peer->verbs->wire.comm->cfg->zero_copy;
    char *base = least && m->total >= least && !m->staged ? stage_span(&m->view, m->first, m->length) : NULL;

    return base ? base + offset : NULL;
}

void verbs_place_end(struct verbs_peer *peer, struct verbs_place *place)
{
    for (int r = 0; r < peer->verbs->n_rails; r++) {
        if (place->reg[r])
            reg_put(peer->verbs->rails[r].cache, place->reg[r]);
        place->reg[r] = NULL;
    }
    place->base = NULL;
}

/* COMM_AGAIN: it cannot be registered, now or at all; the rest of the message is staged. */
int verbs_place_begin(struct verbs_message *m, size_t offset, size_t bytes, unsigned access, struct verbs_place *place)
{
    struct verbs_peer *peer = m->peer;
    struct verbs *v = peer->verbs;

    *place = (struct verbs_place){.base = place_of(m, offset)};
    if (!place->base)
        return COMM_AGAIN;
    for (int l = 0; l < peer->n_links; l++) {
        size_t r = verbs_rail_of(&peer->links[l]);
        int rc = place->reg[r] ? HETMPI_SUCCESS :
                 reg_get(v->rails[r].cache, place->base, bytes, access, &place->reg[r]);
        if (!rc)
            continue;
        place->reg[r] = NULL;
        verbs_place_end(peer, place);
        m->staged = true;
        return rc == HETMPI_ERR_UNSUPPORTED ? COMM_AGAIN : rc;
    }
    return HETMPI_SUCCESS;
}

/* What the wire did with the bytes of larger messages, and why. */
void verbs_place_tell(const struct verbs *v)
{
    char why[160] = "";
    enum reg_way way = REG_UNTRIED;

    if (log_get_level() < LOG_INFO || !(v->straight + v->by_device + v->by_cpu))
        return;
    if (v->n_rails)
        way = reg_cache_way(v->rails[0].cache, why, sizeof(why));
    log_info("verbs: of larger messages rank %d had %zu bytes moved straight by its NICs, %zu copied by its device, "
             "%zu by its CPU; device memory: %s%s%s", v->wire.comm->rank, v->straight, v->by_device, v->by_cpu,
             reg_way_name(way), *why ? ": " : "", why);
}
