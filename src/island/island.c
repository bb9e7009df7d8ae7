/* Which local provider serves this rank's island: decided by settings and facts alone, the same on all its members. */
#include "island/island.h"

#include <string.h>

#include "core/log.h"
#include "hetmpi.h"

/* The first member that shares no memory with this rank, -1: all do. */
static int first_remote(const struct comm *comm)
{
    const struct topo *topo = &comm->topo;
    int island = topo->island_of[comm->rank];

    for (int i = 0; i < topo_island_size(topo, island); i++) {
        int rank = topo_member(topo, island, i);
        if (rank != comm->rank && !comm_is_local(comm, rank))
            return rank;
    }
    return -1;
}

/* The first member of another vendor, -1: none. */
static int first_foreign(const struct comm *comm)
{
    const struct topo *topo = &comm->topo;
    int island = topo->island_of[comm->rank];

    for (int i = 0; i < topo_island_size(topo, island); i++) {
        int rank = topo_member(topo, island, i);
        if (strncmp(comm->vendors[rank], comm->vendors[comm->rank], sizeof(comm->vendors[rank])) != 0)
            return rank;
    }
    return -1;
}

/* Ranks of vendor "cpu" may or may not have a (simulated) device, and peers cannot tell: never device memory there. */
static bool device_vendor(const struct comm *comm)
{
    return mem_has_device() && strncmp(comm->vendors[comm->rank], "cpu", sizeof(comm->vendors[comm->rank])) != 0;
}

static const struct island_ops *choose_shm(const struct comm *comm)
{
    int remote = first_remote(comm);

    if (remote < 0)
        return &island_shm;
    err_set(HETMPI_ERR_CONFIG, "PROVIDER=shm cannot serve the island of rank %d: rank %d is on another node (use "
            "PROVIDER=auto or mpi)", comm->rank, remote);
    return NULL;
}

static const struct island_ops *choose_ipc(const struct comm *comm)
{
    int remote = first_remote(comm), foreign = first_foreign(comm);

    if (!device_vendor(comm))
        err_set(HETMPI_ERR_CONFIG, "PROVIDER=ipc cannot serve the island of rank %d: this rank has no device (backend "
                "%s, vendor %s; use PROVIDER=auto or shm)", comm->rank, mem_backend(), comm->vendors[comm->rank]);
    else if (remote >= 0)
        err_set(HETMPI_ERR_CONFIG, "PROVIDER=ipc cannot serve the island of rank %d: rank %d is on another node (use "
                "PROVIDER=auto or mpi)", comm->rank, remote);
    else if (foreign >= 0)
        err_set(HETMPI_ERR_CONFIG, "PROVIDER=ipc cannot serve the island of rank %d (%s): rank %d has a device of "
                "another vendor (%s; use PROVIDER=auto or shm)", comm->rank, comm->vendors[comm->rank], foreign,
                comm->vendors[foreign]);
    else
        return &island_ipc;
    return NULL;
}

bool island_reaches_devices(const struct comm *comm)
{
    return (comm->cfg->provider == CFG_PROVIDER_AUTO || comm->cfg->provider == CFG_PROVIDER_IPC) && device_vendor(comm) &&
           first_remote(comm) < 0 && first_foreign(comm) < 0;
}

const struct island_ops *island_choose(const struct comm *comm)
{
    switch ((enum cfg_provider)comm->cfg->provider) {
    case CFG_PROVIDER_AUTO:
        if (first_remote(comm) >= 0)
            return &island_mpi;
        return device_vendor(comm) && first_foreign(comm) < 0 ? &island_ipc : &island_shm;
    case CFG_PROVIDER_SHM:
        return choose_shm(comm);
    case CFG_PROVIDER_IPC:
        return choose_ipc(comm);
    case CFG_PROVIDER_MPI:
        return &island_mpi;
    case CFG_PROVIDER_NCCL:
    case CFG_PROVIDER_RCCL:
        err_set(HETMPI_ERR_UNSUPPORTED, "PROVIDER=%s: not built into this library (use PROVIDER=auto, ipc, shm or mpi)",
                comm->cfg->provider == CFG_PROVIDER_NCCL ? "nccl" : "rccl");
        return NULL;
    }
    err_set(HETMPI_ERR_INTERNAL, "provider setting %d is unknown", comm->cfg->provider);
    return NULL;
}
