/* The verbs wire of a build without libibverbs: there is none, and it says so. */
#include <string.h>

#include "core/log.h"
#include "hetmpi.h"
#include "wire/wire.h"

bool wire_verbs_present(void) { return false; }

int wire_verbs_net(const struct cfg *cfg, struct wire_net *net)
{
    (void)cfg;
    memset(net, 0, sizeof(*net));
    return HETMPI_SUCCESS;
}

bool wire_verbs_reaches(const struct wire_net *a, const struct wire_net *b)
{
    (void)a;
    (void)b;
    return false;
}

static int not_built(struct comm *comm, struct wire **wire)
{
    (void)comm;
    (void)wire;
    return err_set(HETMPI_ERR_UNSUPPORTED, "the verbs wire is not built into this copy of hetmpi (HETMPI_WITH_VERBS)");
}

const struct wire_ops wire_verbs = {.name = "verbs", .open = not_built};
