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
#include <sys/stat.h>
#include <unistd.h>

#include "core/comm.h"
#include "core/engine.h"
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

#define PROTOCOL 3             /* changes whenever two builds could not work together */
#define MAGIC "hetmpi\1"
#define CHUNK_NETWORK ((size_t)1 << 20)   /* a message between nodes costs more than a copy */

/* What one rank tells the others. Its size never changes, so that different versions can read each other's head. */
struct comm_facts {
    char magic[8];
    uint32_t protocol;
    int32_t error;             /* this rank cannot take part: its code, */
    char error_text[192];      /* and why */
    char version[16];
    char vendor[8];
    int32_t pid, world_rank, device;
    uint32_t weight;
    uint64_t node_key, island_key;
    struct seg_name ctl;       /* bytes 0: none */
    uint32_t agree[CFG_AGREE_MAX];
    uint32_t chunk_least, chunk_most;   /* that this rank's device likes */
    char spare[512 - 392];
};
_Static_assert(sizeof(struct comm_facts) == 512, "the facts' size is part of the protocol");
_Static_assert(sizeof(((struct comm_facts *)0)->agree) == 96, "CFG_AGREE_MAX is part of the protocol");

/* Processes with this key can open each other's memory: same kernel, same process numbers. */
static uint64_t host_key(void)
{
    char boot_id[64] = "";
    struct stat pid_space;
    uint64_t key = PROC_HASH_START;
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");

    if (file) {
        if (fgets(boot_id, sizeof(boot_id), file))
            key = proc_hash(key, boot_id, strlen(boot_id));
        fclose(file);
    }
    if (stat("/proc/self/ns/pid", &pid_space) == 0)
        key = proc_hash(key, &pid_space.st_ino, sizeof(pid_space.st_ino));
    return key;
}

/* The item of a list setting for this rank: `index` is the rank in MPI_COMM_WORLD, or in this communicator when the
 * list was given for it alone. */
static int list_item(int index, const char *name, const char *list, char *item, size_t bytes)
{
    if (cfg_list_item(list, index, item, bytes))
        return HETMPI_SUCCESS;
    return err_set(HETMPI_ERR_CONFIG, "%s=%s has %d entries, rank %d has none: give one for each rank", name, list,
                   cfg_list_length(list), index);
}

static int fill_place(const struct comm *comm, struct comm_facts *facts)
{
    char item[64];
    int code;

    facts->node_key = host_key();
    if (comm->cfg->sim_nodes[0]) {
        code = list_item(proc_world_rank(), "SIM_NODES", comm->cfg->sim_nodes, item, sizeof(item));
        if (code)
            return code;
        facts->node_key = proc_hash(facts->node_key, item, strlen(item));
    }
    if (strcmp(comm->cfg->islands, "auto") == 0) {
        facts->island_key = proc_hash(facts->node_key, facts->vendor, strlen(facts->vendor));
        return HETMPI_SUCCESS;
    }
    code = list_item(comm->islands_own ? comm->rank : proc_world_rank(), "ISLANDS", comm->cfg->islands, item,
                     sizeof(item));
    if (code)
        return code;
    facts->island_key = proc_hash(PROC_HASH_START, item, strlen(item));
    return HETMPI_SUCCESS;
}

/* This rank's facts; also makes its control segment. An error is a fact too. */
static void fill_facts(struct comm *comm, struct comm_facts *facts)
{
    unsigned agree[CFG_AGREE_MAX];
    int code = comm->cfg ? HETMPI_SUCCESS : err_code();
    size_t least, most;

    memset(facts, 0, sizeof(*facts));
    memcpy(facts->magic, MAGIC, sizeof(MAGIC));
    facts->protocol = PROTOCOL;
    snprintf(facts->version, sizeof(facts->version), "%s", hetmpi_version());
    facts->pid = getpid();
    facts->world_rank = proc_world_rank();
    facts->weight = 1;
    if (!code) {
        snprintf(facts->vendor, sizeof(facts->vendor), "%s", mem_vendor());
        facts->device = mem_device();
        mem_chunk_limits(&least, &most);
        facts->chunk_least = (uint32_t)least;
        facts->chunk_most = (uint32_t)most;
        code = fill_place(comm, facts);
    }
    if (!code) {
        cfg_agree(comm->cfg, agree);
        for (int i = 0; i < CFG_AGREE_MAX; i++)
            facts->agree[i] = agree[i];
        if (seg_create(&comm->ctl_seg, sizeof(struct ctl), &facts->ctl) != HETMPI_SUCCESS) {
            log_warn("no control segment, so no shared memory with other ranks: %s", err_text());
            facts->ctl.bytes = 0;
        }
    }
    if (code) {
        facts->error = code;
        snprintf(facts->error_text, sizeof(facts->error_text), "%s", err_text());
    }
}

/* The same verdict on every rank. */
static int check_facts(const struct comm_facts *facts, int size, int me)
{
    for (int r = 0; r < size; r++) {
        if (memcmp(facts[r].magic, MAGIC, sizeof(MAGIC)) != 0)
            return err_set(HETMPI_ERR_MISMATCH, "rank %d runs something that is not this hetmpi (%s)", r,
                           hetmpi_version());
        if (facts[r].protocol != facts[0].protocol)
            return err_set(HETMPI_ERR_MISMATCH, "rank %d runs hetmpi %.15s (protocol %u), rank 0 hetmpi %.15s (protocol "
                           "%u): use the same version on all ranks", r, facts[r].version, facts[r].protocol,
                           facts[0].version, facts[0].protocol);
    }
    for (int r = 0; r < size; r++)
        if (facts[r].error) {
            if (r == me)
                return err_set(facts[r].error, "%.191s", facts[r].error_text);
            return err_set(facts[r].error, "rank %d: %.191s", r, facts[r].error_text);
        }
    for (int r = 1; r < size; r++)
        for (int i = 0; i < CFG_AGREE_MAX; i++)
            if (facts[r].agree[i] != facts[0].agree[i])
                return err_set(HETMPI_ERR_CONFIG, "setting %s differs between rank 0 and rank %d of the communicator: "
                               "it must be the same on all ranks", cfg_agree_name((size_t)i), r);
    return HETMPI_SUCCESS;
}

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

/* Waiting spins while every rank of the node (and what works for it) can have a core, and yields soon otherwise. */
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
    comm->spin = comm->cfg->spin >= 0 ? comm->cfg->spin : comm->crowded ? 20 : 4000;
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

/* It stays within reach, so that tools do not take it for a leak. */
void comm_leave_to_mpi(void *memory)
{
    static struct left { struct left *next; void *memory; } *_Atomic all;
    struct left *left = malloc(sizeof(*left));

    if (!left)
        return;
    left->memory = memory;
    left->next = atomic_load(&all);
    while (!atomic_compare_exchange_weak(&all, &left->next, left))
        ;
}

/* Waits for a collective of MPI's own. Another rank may come only after what is under way here on other communicators:
 * that goes on. After a timeout MPI still owns the call's buffers. */
static int wait_for_all(struct comm *comm, MPI_Request *request)
{
    double timeout = comm->cfg ? comm->cfg->timeout : 0;
    uint64_t began = proc_now_ns();
    struct watch watch = {0};
    unsigned idle = 0;
    int done = 0, code;

    for (;;) {
        code = MPI_Test(request, &done, MPI_STATUS_IGNORE);
        if (code != MPI_SUCCESS)
            return comm_mpi_error(code, "setting up a communicator");
        if (done)
            return HETMPI_SUCCESS;
        if (timeout > 0 && (double)(proc_now_ns() - began) > timeout * 1e9) {
            comm->stillborn = true;
            code = err_set(HETMPI_ERR_TIMEOUT, "setting up a communicator of %d ranks: rank %d waited %.3g s (setting "
                           "TIMEOUT) and some rank has not made its first hetmpi call on it", comm->size, comm->rank,
                           timeout);
            engine_lock();
            report_setup(err_text());
            engine_unlock();
            return code;
        }
        if (engine_progress())
            idle = 0;
        else if (++idle < 1000)
            sched_yield();
        else {   /* a yield may give the core to nobody */
            proc_nap(50000);
            watch_setup(&watch);
        }
    }
}

/* The ranks' facts, this rank's being in all[size] already. */
static int gather_facts(struct comm *comm, struct comm_facts *all)
{
    MPI_Request request;
    int code;

    code = comm_mpi_error(MPI_Iallgather(&all[comm->size], sizeof(*all), MPI_BYTE, all, sizeof(*all), MPI_BYTE,
                                         comm->user, &request), "MPI_Iallgather");
    return code ? code : wait_for_all(comm, &request);
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
        code = wait_for_all(comm, &request);
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

/* A wire or provider that is asked for by name must be able to serve; every rank learns of every other's trouble. */
static int check_forced(struct comm *comm)
{
    int mine = HETMPI_SUCCESS, worst, rank, code;

    if (comm->cfg->wire == CFG_WIRE_VERBS)
        return err_set(HETMPI_ERR_UNSUPPORTED, "WIRE=verbs: this hetmpi is built without verbs: use auto, shm or mpi");
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
    int code;

    if (comm->one_node && comm->cfg->wire != CFG_WIRE_MPI && comm->cfg->provider != CFG_PROVIDER_MPI)
        return HETMPI_SUCCESS;
    code = comm_mpi_error(MPI_Comm_dup(comm->user, &comm->shadow), "MPI_Comm_dup");
    if (code)
        return code;
    MPI_Comm_set_errhandler(comm->shadow, MPI_ERRORS_RETURN);
    return HETMPI_SUCCESS;
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
    int code = check_facts(facts, comm->size, comm->rank);
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
    fill_facts(comm, &facts[comm->size]);
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
    if (comm->wire_mpi)
        comm->wire_mpi->ops->close(comm->wire_mpi);
    comm->island = NULL;
    comm->wire_shm = comm->wire_mpi = NULL;
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
    if (comm->shadow != MPI_COMM_NULL && !atomic_load(&comm->failed))
        MPI_Comm_free(&comm->shadow);
    topo_clear(&comm->topo);
    free(comm->leaders);
    free(comm->pids);
    free(comm->vendors);
    comm->leaders = NULL;
    comm->pids = NULL;
    comm->vendors = NULL;
}
