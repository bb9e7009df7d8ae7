/* The verbs wire: links that are lost. */
#include "core/log.h"
#include "hetmpi.h"
#include "wire/verbs/verbs.h"

int verbs_link_lost(struct verbs_link *link, const char *why)
{
    if (link->state == LINK_PROBED)
        link->state = LINK_DOWN;
    if (link->state != LINK_UP)
        return HETMPI_SUCCESS;
    return err_set(HETMPI_ERR_PEER, "verbs wire: the link to rank %d over %s is lost: %s", link->peer->rank,
                   link->rail->port->name, why);
}

int verbs_loss_told(struct verbs_peer *peer, const struct verbs_mail *mail)
{
    (void)peer;
    (void)mail;
    return HETMPI_SUCCESS;
}
