/*
 * Set-up of a communicator: the ranks tell each other who they are (one MPI_Iallgather on the application's
 * communicator), agree on settings, find islands and nodes, and map each other's control segments.
 *
 * Every decision here is made from the same table on all ranks, so that all ranks decide alike: an error that one rank
 * has is known to all.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/comm.h"
#include "core/engine.h"
#include "core/facts.h"
#include "core/log.h"
#include "core/mail.h"
#include "core/meet.h"
#include "core/notice.h"
#include "core/p2p.h"
#include "core/proc.h"
#include "core/report.h"
#include "hetmpi.h"
#include "island/island.h"
#include "wire/wire.h"

#define CHUNK_NETWORK ((size_t)1 << 20)   /* a message between nodes costs more than a copy */

static int build_topo(struct comm *comm, const struct comm_facts *facts)
{
    struct topo_rank *ranks = malloc((size_t)comm->size * sizeof(*ranks));
    int code;

    if (!ranks)
        return err_set(HETMPI_ERR_MEMORY, "no memory for the facts of %d ranks", comm->size);
    for (int r = 0; r < comm->size; r++)
        ranks[r] = (struct topo_rank){.island_key = facts[r].island_key, .node_key = facts[r].node_key,
                                      .weight = facts[r].weight};
    code = topo_build(&comm->topo, ranks, comm->size, comm->rank);
    free(ranks);
    return code;
}

/* Maps the control segments of the ranks of this node. Any that cannot be mapped: *ok is 0. */
static int map_ctls(struct comm *comm, const struct comm_facts *facts, int *ok)
{
    *ok = comm->ctl_seg.base != NULL;
    comm->ctls = calloc((size_t)comm->size, sizeof(*comm->ctls));
    comm->ctl_segs = calloc((size_t)comm->size, sizeof(*comm->ctl_segs));
    comm->local = malloc((size_t)comm->size * sizeof(*comm->local));
    if (!comm->ctls || !comm->ctl_segs || !comm->local)
        return err_set(HETMPI_ERR_MEMORY, "no memory for the tables of %d ranks", comm->size);
    for (int r = 0; r < comm->size; r++) {
        if (facts[r].node_key != facts[comm->rank].node_key)
            continue;
        comm->local[comm->n_local++] = r;
        if (r == comm->rank) {
            comm->ctls[r] = comm->ctl_seg.base;
        } else if (!*ok || facts[r].ctl.bytes != sizeof(struct ctl) ||
                   seg_open(&comm->ctl_segs[r], &facts[r].ctl) != HETMPI_SUCCESS) {
            *ok = 0;
            break;
        } else {
            comm->ctls[r] = comm->ctl_segs[r].base;
        }
    }
    return HETMPI_SUCCESS;
}

/* Shared memory cannot be had on some node: all ranks do without, and every rank is a group of its own. */
static void unmap_ctls(struct comm *comm)
{
    for (int r = 0; comm->ctl_segs && r < comm->size; r++)
        seg_clear(&comm->ctl_segs[r]);
    seg_clear(&comm->ctl_seg);
    free(comm->ctl_segs);
    free(comm->ctls);
    free(comm->local);
    comm->ctl_segs = NULL;
    comm->ctls = NULL;
    comm->local = NULL;
    comm->ctl = NULL;
    comm->n_local = 0;
}

/* Groups of ranks that share memory; their lowest ranks speak for them in meetings. */
static int find_groups(struct comm *comm, bool shared)
{
    const struct topo *topo = &comm->topo;
    char *seen = calloc((size_t)comm->size, 1);

    comm->leaders = malloc((size_t)comm->size * sizeof(*comm->leaders));
    if (!comm->leaders || !seen) {
        free(seen);
        return err_set(HETMPI_ERR_MEMORY, "no memory for the groups of %d ranks", comm->size);
    }
    for (int r = 0; r < comm->size; r++)
        if (!shared || !seen[topo->node_of[r]]) {
            seen[topo->node_of[r]] = 1;
            comm->leaders[comm->n_groups++] = r;
        }
    free(seen);
    comm->one_node = shared && comm->n_groups == 1;
    return HETMPI_SUCCESS;
}

/* Waiting spins while every rank of the node (and what works for it) can have a core, and yields soon otherwise; so it
 * does where MPI goes to other nodes: the kernel needs a core to move packets, and a yield costs little beside it. */
static void choose_spin(struct comm *comm)
{
    cpu_set_t set;
    int cores = 1;

    if (sched_getaffinity(0, sizeof(set), &set) == 0)
        cores = CPU_COUNT(&set);
    /* A rank that is bound to one core knows nothing of the others' cores. */
    if (cores < (int)sysconf(_SC_NPROCESSORS_ONLN))
        cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
    /* Simulated nodes stand on one machine. */
    comm->crowded = (comm->cfg->sim_nodes[0] ? comm->size : comm->n_local) * (1 + mem_threads()) > cores;
    comm->spin = comm->cfg->spin >= 0 ? comm->cfg->spin
               : comm->crowded || (comm->topo.nodes > 1 && !comm->nets) ? 20 : 4000;
}

static bool all_islands_fit(const struct topo *topo)
{
    if (topo->islands > RED_MAX_INPUTS)
        return false;
    for (int i = 0; i < topo->islands; i++)
        if (topo_island_size(topo, i) > RED_MAX_INPUTS)
            return false;
    return true;
}

/* The ranks' facts, this rank's being in all[size] already. */
static int gather_facts(struct comm *comm, struct comm_facts *all)
{
    MPI_Request request;
    int code;

    code = comm_mpi_error(MPI_Iallgather(&all[comm->size], sizeof(*all), MPI_BYTE, all, sizeof(*all), MPI_BYTE,
                                         comm->user, &request), "MPI_Iallgather");
    return code ? code : comm_wait_mpi(comm, &request);
}

/* The greatest of all ranks' values, and a rank that gave it. */
static int find_worst(struct comm *comm, int value, int *worst, int *rank)
{
    struct { int value, rank; } *pair = malloc(2 * sizeof(*pair));
    MPI_Request request;
    int code;

    if (!pair)
        return err_set(HETMPI_ERR_MEMORY, "no memory to set up a communicator");
    pair[0].value = value;
    pair[0].rank = comm->rank;
    code = comm_mpi_error(MPI_Iallreduce(&pair[0], &pair[1], 1, MPI_2INT, MPI_MAXLOC, comm->user, &request),
                          "MPI_Iallreduce");
    if (!code)
        code = comm_wait_mpi(comm, &request);
    if (code) {
        comm_leave_to_mpi(pair);
        return code;
    }
    *worst = pair[1].value;
    *rank = pair[1].rank;
    free(pair);
    return HETMPI_SUCCESS;
}

static int setup_memory(struct comm *comm, const struct comm_facts *facts)
{
    int code, ok, any_failed, rank;

    if (comm->topo.nodes == comm->size) {
        unmap_ctls(comm);
        return find_groups(comm, false);
    }
    code = map_ctls(comm, facts, &ok);
    if (code)
        ok = 0;
    code = find_worst(comm, !ok, &any_failed, &rank);
    if (code)
        return code;
    if (any_failed) {
        if (!ok)
            log_warn("rank %d cannot share memory with its node (%s): the communicator goes over MPI", comm->rank,
                     err_text());
        unmap_ctls(comm);
        return find_groups(comm, false);
    }
    comm->ctl = comm->ctl_seg.base;
    comm->ctl->pid = getpid();
    comm->ctl->rank = comm->rank;
    return find_groups(comm, true);
}

/* What each rank's NICs are, where that may matter; no rank is asked for more when none, or only one, has any. */
static int gather_nets(struct comm *comm, const struct comm_facts *facts)
{
    bool forced = comm->cfg->wire == CFG_WIRE_VERBS;
    struct wire_net *all;
    MPI_Request request;
    int having = 0, code;

    for (int r = 0; r < comm->size; r++)
        having += facts[r].rdma != 0;
    if (having < 2 || !(forced || (comm->cfg->wire == CFG_WIRE_AUTO && comm->topo.nodes > 1)))
        return HETMPI_SUCCESS;
    all = malloc(((size_t)comm->size + 1) * sizeof(*all));
    if (!all)
        return err_set(HETMPI_ERR_MEMORY, "no memory for what %d ranks have of networks", comm->size);
    wire_verbs_net(comm->cfg, &all[comm->size]);   /* what is wrong with RAILS was a fact */
    code = comm_mpi_error(MPI_Iallgather(&all[comm->size], sizeof(*all), MPI_BYTE, all, sizeof(*all), MPI_BYTE,
                                         comm->user, &request), "MPI_Iallgather");
    if (!code)
        code = comm_wait_mpi(comm, &request);
    if (code) {
        comm_leave_to_mpi(all);
        return code;
    }
    comm->nets = all;
    return HETMPI_SUCCESS;
}

/* WIRE=verbs is for all pairs of islands. */
static int check_verbs(const struct comm *comm)
{
    for (int a = 0; a < comm->size; a++)
        for (int b = a + 1; b < comm->size; b++)
            if (comm->topo.island_of[a] != comm->topo.island_of[b] && !wire_verbs_joins(comm, a, b))
                return err_set(HETMPI_ERR_UNSUPPORTED, "WIRE=verbs: ranks %d and %d are not joined by RDMA: one of "
                               "them has no active NIC (ibv_devinfo), or its hetmpi is built without libibverbs; "
                               "use WIRE=auto", a, b);
    return HETMPI_SUCCESS;
}

/* A wire or provider that is asked for by name must be able to serve; every rank learns of every other's trouble. */
static int check_forced(struct comm *comm)
{
    int mine = HETMPI_SUCCESS, worst, rank, code;

    if (comm->cfg->wire == CFG_WIRE_VERBS && (code = check_verbs(comm)))
        return code;
    if (comm->cfg->wire == CFG_WIRE_SHM && !comm->one_node && comm->topo.islands > 1)
        return err_set(HETMPI_ERR_CONFIG, "WIRE=shm, but the islands of this communicator do not all share memory (%d "
                       "groups of ranks do): use WIRE=auto", comm->n_groups);
    if (comm->cfg->provider == CFG_PROVIDER_AUTO)
        return HETMPI_SUCCESS;
    if (topo_island_size(&comm->topo, comm->topo.island_of[comm->rank]) > 1 && !island_choose(comm))
        mine = err_code();
    code = find_worst(comm, mine, &worst, &rank);
    if (code)
        return code;
    if (worst && !mine)
        return err_set(worst, "the provider asked for cannot serve the island of rank %d (see its message)", rank);
    return mine ? mine : worst;
}

static int setup_shadow(struct comm *comm)
{
    if (comm->one_node && comm->cfg->wire != CFG_WIRE_MPI && comm->cfg->wire != CFG_WIRE_VERBS &&
        comm->cfg->provider != CFG_PROVIDER_MPI)
        return HETMPI_SUCCESS;
    return comm_duplicate(comm, &comm->shadow);
}

static int setup_alone(struct comm *comm)
{
    const struct topo_rank self = {.island_key = 1, .node_key = 1, .weight = 1};

    if (!comm->cfg)
        return err_code();
    comm->one_node = true;
    comm->n_groups = 1;
    return topo_build(&comm->topo, &self, 1, 0);
}

/* What was found, once: rank 0 tells the islands, and the first rank of each island what it chose. */
static void log_map(const struct comm *comm, const char *levels_why)
{
    const struct topo *topo = &comm->topo;
    const struct island_ops *provider;
    char line[256];
    size_t used;

    if (log_get_level() < LOG_INFO)
        return;
    if (comm->rank == 0)
        log_info("communicator: ranks %d, nodes %d, islands %d, levels %d (%s)", comm->size, topo->nodes, topo->islands,
                 topo->levels, levels_why);
    for (int i = 0; i < topo->islands; i++) {
        if (comm->rank != topo_member(topo, i, 0))
            continue;
        used = (size_t)snprintf(line, sizeof(line), "island %d: %s, node %d, ranks", i, comm->vendors[comm->rank],
                                topo->node_of[comm->rank]);
        for (int p = 0; p < topo_island_size(topo, i) && used < sizeof(line) - 16; p++)
            used += (size_t)snprintf(line + used, sizeof(line) - used, " %d", topo_member(topo, i, p));
        provider = topo_island_size(topo, i) > 1 ? island_choose(comm) : NULL;
        log_info("%s; provider %s", line, provider ? provider->name : "none");
        for (int j = 0; j < i; j++)
            log_info("wire between islands %d and %d: %s", j, i, wire_name_for(comm, topo_member(topo, j, 0)));
    }
}

/* What this rank does is written down in one place, whether others can see it or not. */
static int setup_mine(struct comm *comm)
{
    comm->mine = comm->ctl;
    if (comm->mine)
        return HETMPI_SUCCESS;
    comm->mine = aligned_alloc(CTL_LINE, sizeof(*comm->mine));
    if (!comm->mine)
        return err_set(HETMPI_ERR_MEMORY, "no memory (%zu bytes) for the state of a communicator", sizeof(*comm->mine));
    memset(comm->mine, 0, sizeof(*comm->mine));
    return HETMPI_SUCCESS;
}

static int setup_from_facts(struct comm *comm, const struct comm_facts *facts)
{
    int code = facts_check(facts, comm->size, comm->rank);
    char why[96];

    if (code)
        return code;
    comm->pids = malloc((size_t)comm->size * sizeof(*comm->pids));
    comm->vendors = malloc((size_t)comm->size * sizeof(*comm->vendors));
    if (!comm->pids || !comm->vendors)
        return err_set(HETMPI_ERR_MEMORY, "no memory for the tables of %d ranks", comm->size);
    for (int r = 0; r < comm->size; r++) {
        comm->pids[r] = facts[r].pid;
        memcpy(comm->vendors[r], facts[r].vendor, sizeof(comm->vendors[r]));
        comm->any_device |= strcmp(facts[r].vendor, "cpu") != 0;
        if (facts[r].chunk_least > comm->chunk_min)
            comm->chunk_min = facts[r].chunk_least;
        if (facts[r].chunk_most > comm->chunk_max)
            comm->chunk_max = facts[r].chunk_most;
    }
    code = build_topo(comm, facts);
    if (!code)
        code = setup_memory(comm, facts);
    if (!code)
        code = setup_mine(comm);
    if (!code)
        code = gather_nets(comm, facts);
    if (!code)
        code = check_forced(comm);
    if (!code)
        code = setup_shadow(comm);
    if (!code)
        code = p2p_open(comm);
    if (code)
        return code;
    choose_spin(comm);
    if (comm->topo.nodes > 1 && comm->chunk_max < CHUNK_NETWORK)
        comm->chunk_max = CHUNK_NETWORK;
    if (comm->cfg->chunk)
        comm->chunk_max = comm->cfg->chunk;
    comm->small_ok = comm->one_node && all_islands_fit(&comm->topo);
    comm->island_ipc = island_reaches_devices(comm);
    topo_choose_levels(&comm->topo, comm->cfg->levels, why, sizeof(why));
    log_map(comm, why);
    return HETMPI_SUCCESS;
}

int comm_setup(MPI_Comm user, const struct cfg *cfg, struct comm *comm)
{
    struct comm_facts *facts;
    int code;

    comm->user = user;
    comm->cfg = cfg;
    comm->shadow = MPI_COMM_NULL;
    comm->ctl_seg.fd = -1;
    MPI_Comm_rank(user, &comm->rank);
    MPI_Comm_size(user, &comm->size);
    if (comm->size == 1)
        return setup_alone(comm);
    facts = malloc(((size_t)comm->size + 1) * sizeof(*facts));
    if (!facts) {
        code = err_set(HETMPI_ERR_MEMORY, "no memory for the facts of %d ranks", comm->size);
        goto release;
    }
    facts_fill(comm, &facts[comm->size]);
    code = gather_facts(comm, facts);
    if (code) {
        comm_leave_to_mpi(facts);
        goto release;
    }
    code = setup_from_facts(comm, facts);
    free(facts);
    if (code)
        goto release;
    return HETMPI_SUCCESS;

release:
    comm_release(comm);
    return code;
}

void comm_close_paths(struct comm *comm)
{
    if (comm->island)
        comm->island->ops->close(comm->island);
    if (comm->wire_shm)
        comm->wire_shm->ops->close(comm->wire_shm);
    if (comm->wire_ipc)
        comm->wire_ipc->ops->close(comm->wire_ipc);
    if (comm->wire_verbs)
        comm->wire_verbs->ops->close(comm->wire_verbs);
    if (comm->wire_mpi)
        comm->wire_mpi->ops->close(comm->wire_mpi);
    comm->island = NULL;
    comm->wire_shm = comm->wire_ipc = comm->wire_mpi = comm->wire_verbs = NULL;
}

void comm_release(struct comm *comm)
{
    engine_comm_release(comm);
    p2p_close(comm);
    meet_release(comm);
    notice_send_due(comm);
    mail_release(comm);
    comm_close_paths(comm);
    if (comm->mine != comm->ctl)
        free(comm->mine);
    comm->mine = NULL;
    unmap_ctls(comm);
    /* After a failure MPI_Comm_free might wait for the dead: the handle is left to MPI_Finalize. */
    if (comm->shadow != MPI_COMM_NULL && !comm->stillborn && !atomic_load(&comm->failed))
        MPI_Comm_free(&comm->shadow);
    topo_clear(&comm->topo);
    free(comm->leaders);
    free(comm->pids);
    free(comm->vendors);
    free(comm->nets);
    comm->nets = NULL;
    comm->leaders = NULL;
    comm->pids = NULL;
    comm->vendors = NULL;
}
