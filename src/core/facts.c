/* What a rank tells the others of a communicator, and what it accepts of them: see facts.h. */
#include "core/facts.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/log.h"
#include "core/proc.h"
#include "hetmpi.h"
#include "wire/wire.h"

#define PROTOCOL 4             /* changes whenever two builds could not work together */
#define MAGIC "hetmpi\1"

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

    facts->node_key = seg_host_key();
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
void facts_fill(struct comm *comm, struct comm_facts *facts)
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
    if (!code && (comm->cfg->wire == CFG_WIRE_AUTO || comm->cfg->wire == CFG_WIRE_VERBS)) {
        facts->rdma = wire_verbs_present();
        if (strcmp(comm->cfg->rails, "auto") != 0)
            code = wire_verbs_net(comm->cfg, &(struct wire_net){{0}});
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

/* What is wrong with a record, NULL: nothing. One of a rank that has an error of its own may be half empty. */
static const char *damage(const struct comm_facts *f)
{
    size_t length = strnlen(f->vendor, sizeof(f->vendor));

    if (f->error < 0 || f->error >= HETMPI_ERR_LAST)
        return "error code";
    if (f->pid <= 0)
        return "process number";
    if (f->error)
        return f->error_text[0] > ' ' && f->error_text[0] < 127 ? NULL : "error text";
    if (!length || length == sizeof(f->vendor) || strspn(f->vendor, "abcdefghijklmnopqrstuvwxyz0123456789") != length)
        return "vendor";
    if (f->ctl.bytes && (f->ctl.pid != f->pid || f->ctl.fd < 0))
        return "control segment";
    if (f->chunk_most == 0 || f->chunk_least > f->chunk_most)
        return "range of chunk sizes";
    return NULL;
}

int facts_check(const struct comm_facts *facts, int size, int me)
{
    for (int r = 0; r < size; r++) {
        if (memcmp(facts[r].magic, MAGIC, sizeof(MAGIC)) != 0)
            return err_set(HETMPI_ERR_MISMATCH, "rank %d runs something that is not this hetmpi (%s)", r,
                           hetmpi_version());
        if (facts[r].protocol != facts[0].protocol)
            return err_set(HETMPI_ERR_MISMATCH, "rank %d runs hetmpi %.15s (protocol %u), rank 0 hetmpi %.15s (protocol "
                           "%u): use the same version on all ranks", r, facts[r].version, facts[r].protocol,
                           facts[0].version, facts[0].protocol);
        if (damage(&facts[r]))
            return err_set(HETMPI_ERR_INTERNAL, "what rank %d published of itself is damaged: its %s is none", r,
                           damage(&facts[r]));
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
