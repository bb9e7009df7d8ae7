/* Communicators: attach, detach, what they look like, abort, asynchronous errors. */
#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "core/log.h"
#include "core/proc.h"
#include "island/island.h"
#include "wire/wire.h"

int hetmpi_comm_attach(MPI_Comm comm, MPI_Info info)
{
    struct comm *found;
    int code = comm_get(comm, info, &found);

    return code ? api_report(comm, "comm_attach", code) : HETMPI_SUCCESS;
}

int hetmpi_comm_detach(MPI_Comm comm)
{
    struct comm *found;
    int code = proc_start();

    if (code)
        return api_report(comm, "comm_detach", code);
    if (comm == MPI_COMM_NULL)
        return api_report(comm, "comm_detach", err_set(HETMPI_ERR_ARG, "comm_detach: the communicator is MPI_COMM_NULL"));
    found = comm_find(comm);
    code = found ? comm_detach(found) : HETMPI_SUCCESS;
    return code ? api_report(comm, "comm_detach", code) : HETMPI_SUCCESS;
}

/* Which wires this rank uses to the owners in other islands, and over how many links in all. */
static void describe_wires(const struct comm *comm, hetmpi_comm_info_t *info)
{
    static const char *const names[] = {"shm", "verbs", "mpi"};
    int rails[3] = {0};

    for (int r = 0; r < comm->size; r++) {
        const char *name = wire_name_for(comm, r);
        if (comm->topo.island_of[r] == comm->topo.island_of[comm->rank])
            continue;
        for (int w = 0; w < 3; w++)
            if (strcmp(names[w], name) == 0 && rails[w] < wire_rails(comm, r))
                rails[w] = wire_rails(comm, r);
    }
    for (int w = 0; w < 3; w++) {
        if (!rails[w])
            continue;
        if (info->rails)
            strcat(info->wire, "+");
        strcat(info->wire, names[w]);
        info->rails += rails[w];
    }
    if (!info->rails)
        strcpy(info->wire, "none");
}

int hetmpi_comm_info(MPI_Comm user, hetmpi_comm_info_t *info)
{
    const struct island_ops *provider;
    struct comm *comm;
    int code, island;

    if (!info)
        return api_report(user, "comm_info", err_set(HETMPI_ERR_ARG, "comm_info: info is NULL"));
    code = comm_get(user, MPI_INFO_NULL, &comm);
    if (code)
        return api_report(user, "comm_info", code);
    island = comm->topo.island_of[comm->rank];
    memset(info, 0, sizeof(*info));
    info->ranks = comm->size;
    info->rank = comm->rank;
    info->nodes = comm->topo.nodes;
    info->node = comm->topo.node_of[comm->rank];
    info->islands = comm->topo.islands;
    info->island = island;
    info->island_ranks = topo_island_size(&comm->topo, island);
    info->island_rank = comm->topo.position_of[comm->rank];
    info->device = mem_device();
    snprintf(info->vendor, sizeof(info->vendor), "%s", mem_vendor());
    provider = info->island_ranks > 1 ? island_choose(comm) : NULL;
    snprintf(info->provider, sizeof(info->provider), "%s", provider ? provider->name : "none");
    describe_wires(comm, info);
    return HETMPI_SUCCESS;
}

int hetmpi_comm_abort(MPI_Comm user)
{
    struct comm *comm = NULL;
    char text[128];
    int code = HETMPI_SUCCESS;

    if (user == MPI_COMM_NULL)
        code = err_set(HETMPI_ERR_ARG, "the communicator is MPI_COMM_NULL");
    /* From any thread, while another may be in MPI: hetmpi is not started here. */
    if (!code && proc_started())
        comm = comm_find(user);
    /* Never set up here: that is collective, and the other ranks need not come. */
    if (!code && !comm)
        code = err_set(HETMPI_ERR_STATE, "nothing to abort: this communicator has seen no hetmpi call yet");
    if (code && proc_started() && !proc_may_interrupt_mpi()) {
        log_print(LOG_ERROR, "hetmpi_comm_abort: %s", err_text());
        return code;   /* the error handler is MPI's */
    }
    if (code)
        return api_report(user, "comm_abort", code);
    snprintf(text, sizeof(text), "hetmpi_comm_abort was called on rank %d", comm->rank);
    comm_abort(comm, text);
    return HETMPI_SUCCESS;
}

int hetmpi_comm_error(MPI_Comm user, int *error)
{
    struct comm *comm;
    int code = proc_start();

    if (!code && user == MPI_COMM_NULL)
        code = err_set(HETMPI_ERR_ARG, "the communicator is MPI_COMM_NULL");
    if (!code && !error)
        code = err_set(HETMPI_ERR_ARG, "comm_error: error is NULL");
    if (code)
        return api_report(user, "comm_error", code);
    comm = comm_find(user);
    *error = HETMPI_SUCCESS;
    if (!comm)
        return HETMPI_SUCCESS;
    *error = comm_failed(comm);
    if (!*error) {
        *error = atomic_load_explicit(&comm->async_code, memory_order_acquire);
        if (*error)
            err_copy(*error, comm->async_text);
    }
    return HETMPI_SUCCESS;
}
