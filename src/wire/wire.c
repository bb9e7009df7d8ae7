/* Which wire joins a pair of ranks, and opening it at its first use. */
#include "wire/wire.h"

#include "core/log.h"
#include "hetmpi.h"

/* WIRE is about islands; inside one that its provider serves through device memory, pairs of ranks do as that does. */
static const struct wire_ops *choose(const struct comm *comm, int peer)
{
    if (comm->island_ipc && comm->topo.island_of[peer] == comm->topo.island_of[comm->rank])
        return &wire_ipc;
    switch (comm->cfg->wire) {
    case CFG_WIRE_MPI:
        return &wire_mpi;
    case CFG_WIRE_SHM:
        return &wire_shm;
    case CFG_WIRE_VERBS:
        return NULL;
    default:
        return comm_is_local(comm, peer) ? &wire_shm : &wire_mpi;
    }
}

const char *wire_name_for(const struct comm *comm, int peer)
{
    const struct wire_ops *ops = choose(comm, peer);

    return ops ? ops->name : "verbs";
}

int wire_for(struct comm *comm, int peer, struct wire **wire)
{
    const struct wire_ops *ops = choose(comm, peer);
    struct wire **kept;

    if (!ops)
        return err_set(HETMPI_ERR_UNSUPPORTED, "WIRE=verbs: the verbs wire is not built into this copy of hetmpi; "
                       "use auto, mpi or shm");
    if (ops == &wire_shm && !comm_is_local(comm, peer))
        return err_set(HETMPI_ERR_CONFIG, "WIRE=shm: ranks %d and %d share no memory (different nodes); use auto or "
                       "mpi", comm->rank, peer);
    kept = ops == &wire_shm ? &comm->wire_shm : ops == &wire_ipc ? &comm->wire_ipc : &comm->wire_mpi;
    if (!*kept) {
        struct wire *opened;
        int rc = ops->open(comm, &opened);
        if (rc)
            return rc;
        *kept = opened;
        log_debug("wire %s opened by rank %d for its peer %d", ops->name, comm->rank, peer);
    }
    *wire = *kept;
    return HETMPI_SUCCESS;
}
