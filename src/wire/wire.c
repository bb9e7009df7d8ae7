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
        return &wire_verbs;
    default:
        if (comm_is_local(comm, peer))
            return &wire_shm;
        return comm->topo.node_of[peer] != comm->topo.node_of[comm->rank] && wire_verbs_joins(comm, comm->rank, peer) ?
               &wire_verbs : &wire_mpi;
    }
}

bool wire_verbs_joins(const struct comm *comm, int a, int b)
{
    return comm->nets && wire_verbs_reaches(&comm->nets[a], &comm->nets[b]);
}

static struct wire **place_of(struct comm *comm, const struct wire_ops *ops)
{
    return ops == &wire_shm ? &comm->wire_shm : ops == &wire_ipc ? &comm->wire_ipc :
           ops == &wire_verbs ? &comm->wire_verbs : &comm->wire_mpi;
}

static const struct wire *opened(const struct comm *comm, const struct wire_ops *ops)
{
    return *place_of((struct comm *)(uintptr_t)comm, ops);
}

const char *wire_name_for(const struct comm *comm, int peer)
{
    const struct wire_ops *ops = choose(comm, peer);
    const struct wire *wire = opened(comm, ops);

    return wire && ops->carries ? ops->carries(wire, peer) : ops->name;
}

int wire_rails(const struct comm *comm, int peer)
{
    const struct wire_ops *ops = choose(comm, peer);
    const struct wire *wire = opened(comm, ops);

    return wire ? ops->rails(wire, peer) : 1;
}

int wire_want(struct comm *comm, const struct wire_ops *ops, struct wire **wire)
{
    struct wire **kept = place_of(comm, ops);

    if (!*kept) {
        struct wire *made;
        int rc = ops->open(comm, &made);
        if (rc)
            return rc;
        *kept = made;
        log_debug("wire %s opened by rank %d", ops->name, comm->rank);
    }
    *wire = *kept;
    return HETMPI_SUCCESS;
}

int wire_for(struct comm *comm, int peer, struct wire **wire)
{
    const struct wire_ops *ops = choose(comm, peer);

    if (ops == &wire_shm && !comm_is_local(comm, peer))
        return err_set(HETMPI_ERR_CONFIG, "WIRE=shm: ranks %d and %d share no memory (different nodes); use auto or "
                       "mpi", comm->rank, peer);
    return wire_want(comm, ops, wire);
}
