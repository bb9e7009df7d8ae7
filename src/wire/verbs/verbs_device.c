/* The verbs wire: the ports of this process's NICs, found and opened once, and which of them a communicator uses. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "core/proc.h"
#include "hetmpi.h"
#include "mem/reg_cache.h"
#include "wire/verbs/verbs.h"
#include "wire/verbs/verbs_gid.h"

#define PORTS_MAX 32
#define GIDS_MAX 256

static struct {
    pthread_mutex_t lock;
    bool found;
    int n;
    struct verbs_port ports[PORTS_MAX];
} all = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Mbit/s, from the codes of the InfiniBand specification. */
static uint32_t port_mbps(const struct ibv_port_attr *attr)
{
    static const struct { uint8_t code; uint32_t mbps; } speeds[] = {
        {1, 2500}, {2, 5000}, {4, 10000}, {8, 10000}, {16, 14000}, {32, 25000}, {64, 50000}, {128, 100000}
    };
    static const struct { uint8_t code; uint32_t lanes; } widths[] = {{1, 1}, {2, 4}, {4, 8}, {8, 12}, {16, 2}};
    uint32_t mbps = 2500, lanes = 1;

    for (size_t i = 0; i < sizeof(speeds) / sizeof(speeds[0]); i++)
        if (speeds[i].code == attr->active_speed)
            mbps = speeds[i].mbps;
    for (size_t i = 0; i < sizeof(widths) / sizeof(widths[0]); i++)
        if (widths[i].code == attr->active_width)
            lanes = widths[i].lanes;
    return mbps * lanes;
}

static int read_gids(struct ibv_context *context, uint8_t port, struct verbs_gid *gids)
{
    struct ibv_gid_entry *entries = calloc(GIDS_MAX, sizeof(*entries));
    ssize_t n = entries ? ibv_query_gid_table(context, entries, GIDS_MAX, 0) : 0;
    int kept = 0;

    for (ssize_t i = 0; i < n; i++) {
        if (entries[i].port_num != port)
            continue;
        memcpy(gids[kept].raw, entries[i].gid.raw, 16);
        gids[kept].index = (int)entries[i].gid_index;
        gids[kept].type = entries[i].gid_type == IBV_GID_TYPE_ROCE_V2 ? VERBS_GID_ROCE_V2 :
                          entries[i].gid_type == IBV_GID_TYPE_ROCE_V1 ? VERBS_GID_ROCE_V1 : VERBS_GID_IB;
        kept++;
    }
    free(entries);
    return kept;
}

/* Takes the port up, if it is one that can be used now. */
static void add_port(struct ibv_context *context, const struct ibv_device_attr *device, uint8_t number,
                     const struct cfg *cfg)
{
    struct verbs_port *port = &all.ports[all.n];
    struct verbs_gid *gids;
    const struct verbs_gid *gid;
    struct ibv_port_attr attr;
    const char *name = ibv_get_device_name(context->device);
    char text[40];

    if (all.n == PORTS_MAX || ibv_query_port(context, number, &attr))
        return;
    *port = (struct verbs_port){.context = context, .number = number, .max_qp_wr = device->max_qp_wr,
                                .max_srq_wr = device->max_srq_wr, .max_cqe = device->max_cqe};
    snprintf(port->name, sizeof(port->name), device->phys_port_cnt > 1 ? "%s:%d" : "%s", name, number);
    if (attr.state != IBV_PORT_ACTIVE) {
        log_info("verbs: port %s is not active (%s)", port->name, ibv_port_state_str(attr.state));
        return;
    }
    port->facts = (struct verbs_rail_facts){.mbps = port_mbps(&attr), .lid = attr.lid, .mtu = (uint8_t)attr.active_mtu,
                                            .ethernet = attr.link_layer == IBV_LINK_LAYER_ETHERNET};
    gids = calloc(GIDS_MAX, sizeof(*gids));
    if (!gids)
        return;
    gid = verbs_gid_choose(gids, read_gids(context, number, gids), port->facts.ethernet, cfg->gid_index);
    if (gid) {
        memcpy(port->facts.gid, gid->raw, 16);
        port->gid_index = gid->index;
        verbs_gid_text(gid->raw, text);
        log_info("verbs: port %s, %u Mbit/s, MTU %d, GID %d %s", port->name, port->facts.mbps,
                 128 << attr.active_mtu, gid->index, text);
        all.n++;
    } else {
        log_warn("verbs: port %s is not used: it has no usable GID%s", port->name,
                 cfg->gid_index >= 0 ? " at the index that GID_INDEX names" : "");
    }
    free(gids);
}

static void open_device(struct ibv_device *device, const struct cfg *cfg)
{
    struct ibv_context *context = ibv_open_device(device);
    struct ibv_device_attr attr;
    int before = all.n;

    if (!context) {
        log_info("verbs: %s cannot be opened: %s", ibv_get_device_name(device), strerror(errno));
        return;
    }
    fcntl(context->async_fd, F_SETFL, fcntl(context->async_fd, F_GETFL) | O_NONBLOCK);
    if (!ibv_query_device(context, &attr))
        for (int port = 1; port <= attr.phys_port_cnt; port++)
            add_port(context, &attr, (uint8_t)port, cfg);
    if (all.n == before)
        ibv_close_device(context);
}

static void close_all(void)
{
    pthread_mutex_lock(&all.lock);
    for (int i = 0; i < all.n; i++)
        if (i == 0 || all.ports[i].context != all.ports[i - 1].context)
            ibv_close_device(all.ports[i].context);
    all.n = 0;
    all.found = false;
    pthread_mutex_unlock(&all.lock);
}

static void find_all(void)
{
    const struct cfg *cfg = cfg_process();
    struct ibv_device **list;

    all.found = true;
    if (!cfg)
        return;
    reg_fork_init();
    list = ibv_get_device_list(NULL);
    for (struct ibv_device **device = list; device && *device; device++)
        open_device(*device, cfg);
    if (list)
        ibv_free_device_list(list);
    if (all.n)
        proc_at_finalize(close_all);
}

int verbs_ports(const struct verbs_port **ports)
{
    pthread_mutex_lock(&all.lock);
    if (!all.found)
        find_all();
    pthread_mutex_unlock(&all.lock);
    *ports = all.ports;
    return all.n;
}

int verbs_ports_chosen(const struct cfg *cfg, int chosen[VERBS_RAILS_MAX], int *n)
{
    const struct verbs_port *ports;
    int found = verbs_ports(&ports), wanted = cfg_list_length(cfg->rails);
    char name[64];

    *n = 0;
    if (strcmp(cfg->rails, "auto") == 0) {
        while (*n < found && *n < VERBS_RAILS_MAX) {
            chosen[*n] = *n;
            ++*n;
        }
        return HETMPI_SUCCESS;
    }
    for (int i = 0; i < wanted; i++) {
        int p = 0;
        cfg_list_item(cfg->rails, i, name, sizeof(name));
        while (p < found && strcmp(ports[p].name, name) != 0)
            p++;
        if (p == found)
            return err_set(HETMPI_ERR_CONFIG, "RAILS=%.60s: this node has no active port %s; ibv_devices lists the NICs",
                           cfg->rails, name);
        if (*n == VERBS_RAILS_MAX)
            return err_set(HETMPI_ERR_CONFIG, "RAILS=%.60s: at most %d rails", cfg->rails, VERBS_RAILS_MAX);
        chosen[(*n)++] = p;
    }
    return HETMPI_SUCCESS;
}
