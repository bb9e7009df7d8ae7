/* RDMA NICs as the kernel shows them: see doctor.h. */
#include "doctor.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROCE_GOOD_MTU 4200   /* room for RoCE packets of 4096 bytes */

/* Errors that a healthy fabric does not have. */
static const struct { const char *file, *meaning; } counters[] = {
    {"counters/symbol_error", "cable or transceiver"},
    {"counters/link_error_recovery", "cable or transceiver"},
    {"counters/link_downed", "cable, transceiver or switch"},
    {"counters/local_link_integrity_errors", "cable or transceiver"},
    {"counters/port_rcv_errors", "cable or transceiver"},
    {"counters/port_rcv_remote_physical_errors", "a cable further away"},
    {"counters/port_xmit_discards", "congestion: the port cannot send"},
    {"hw_counters/out_of_sequence", "lost packets: congestion without flow control"},
    {"hw_counters/packet_seq_err", "lost packets: congestion without flow control"},
    {"hw_counters/local_ack_timeout_err", "lost packets"},
    {"hw_counters/rnr_nak_retry_err", "a receiver that was not ready"},
};
#define COUNTERS (sizeof(counters) / sizeof(counters[0]))

int facts_nics(const struct doctor *doctor)
{
    return (int)json_object_array_length(json_object_object_get(doctor->facts, "nics"));
}

static bool gid_is_set(const char *gid)
{
    return strspn(gid, "0:") != strlen(gid) && strcmp(gid, "fe80:0000:0000:0000:0000:0000:0000:0000") != 0;
}

/* The port's addresses; how many of RoCE version 2 with an IPv4 address, which is what can be routed. */
static int read_gids(struct doctor *doctor, const char *nic, const char *port, struct json_object *gids)
{
    char **names, gid[64], type[32];
    int n = folder_list(doctor, &names, "/sys/class/infiniband/%s/ports/%s/gids", nic, port), routable = 0;

    for (int i = 0; i < n; i++) {
        struct json_object *entry;

        file_text(doctor, gid, sizeof(gid), "/sys/class/infiniband/%s/ports/%s/gids/%s", nic, port, names[i]);
        if (!gid_is_set(gid))
            continue;
        file_text(doctor, type, sizeof(type), "/sys/class/infiniband/%s/ports/%s/gid_attrs/types/%s", nic, port, names[i]);
        entry = json_object_new_object();
        json_object_object_add(entry, "index", json_object_new_int(atoi(names[i])));
        add_text(entry, "gid", gid);
        add_text(entry, "type", type);
        json_object_array_add(gids, entry);
        routable += strcmp(type, "RoCE v2") == 0 && strncmp(gid, "0000:0000:0000:0000:0000:ffff:", 30) == 0;
    }
    folder_free(names, n);
    return routable;
}

static void check_state(struct doctor *doctor, const char *nic, const char *port, const char *state, bool ethernet)
{
    char mend[256];

    if (strstr(state, "ACTIVE"))
        return;
    if (strstr(state, "INIT"))
        find(doctor, FAULT, "nic", "no traffic over this port", "start a subnet manager: systemctl start opensm on one node, or "
             "the switch's", "%s port %s is in state %s: no subnet manager has set it up", nic, port, state);
    else {
        snprintf(mend, sizeof(mend), "%s; look at cable and switch port: 'rdma link show', 'ethtool -m'",
                 ethernet ? "ip link set dev <its interface> up" : "ibportstate enable");
        find(doctor, WARNING, "nic", "no traffic over this port: one rail less", mend, "%s port %s is in state %s", nic, port,
             state);
    }
}

static void check_roce(struct doctor *doctor, const char *nic, const char *port, int routable, struct json_object *entry)
{
    char **interfaces;
    int n = folder_list(doctor, &interfaces, "/sys/class/infiniband/%s/device/net", nic);
    char device[128] = "";
    long long mtu;

    if (n > 0)
        snprintf(device, sizeof(device), "%s", interfaces[0]);
    folder_free(interfaces, n);
    if (!*device)   /* Soft-RoCE, or a NIC of a bond */
        file_text(doctor, device, sizeof(device), "/sys/class/infiniband/%s/ports/%s/gid_attrs/ndevs/0", nic, port);
    if (!*device)
        return;
    mtu = file_number(doctor, 0, "/sys/class/net/%s/mtu", device);
    add_text(entry, "interface", device);
    json_object_object_add(entry, "mtu", json_object_new_int64(mtu));
    if (mtu > 0 && mtu < ROCE_GOOD_MTU) {
        char mend[256];

        snprintf(mend, sizeof(mend), "ip link set dev %s mtu 9000, on all nodes and on the switches", device);
        find(doctor, NOTE, "mtu", "packets of 1024 bytes instead of 4096: some 5 % of the bandwidth, and the NIC's packet rate",
             mend, "%s (%s) has MTU %lld", nic, device, mtu);
    }
    if (routable == 0) {
        char mend[256];

        snprintf(mend, sizeof(mend), "ip addr add <address>/<prefix> dev %s", device);
        find(doctor, WARNING, "gid", "the port reaches its own Ethernet segment at best", mend,
             "%s port %s has no address of RoCE v2 that can be routed: %s has no IPv4 address", nic, port, device);
    }
}

static void read_errors(struct doctor *doctor, const char *nic, const char *port, long long values[COUNTERS])
{
    for (size_t i = 0; i < COUNTERS; i++)
        values[i] = file_number(doctor, 0, "/sys/class/infiniband/%s/ports/%s/%s", nic, port, counters[i].file);
}

static void add_errors(struct json_object *entry, const long long values[COUNTERS])
{
    struct json_object *errors = json_object_new_object();

    for (size_t i = 0; i < COUNTERS; i++)
        json_object_object_add(errors, strchr(counters[i].file, '/') + 1, json_object_new_int64(values[i]));
    json_object_object_add(entry, "errors", errors);
}

static void check_port(struct doctor *doctor, const char *nic, const char *port, struct json_object *nics)
{
    struct json_object *entry = json_object_new_object(), *gids = json_object_new_array();
    char state[64], layer[32], rate[64], pci[512] = "";
    long long errors[COUNTERS];
    bool ethernet;
    int routable;

    file_text(doctor, state, sizeof(state), "/sys/class/infiniband/%s/ports/%s/state", nic, port);
    file_text(doctor, layer, sizeof(layer), "/sys/class/infiniband/%s/ports/%s/link_layer", nic, port);
    file_text(doctor, rate, sizeof(rate), "/sys/class/infiniband/%s/ports/%s/rate", nic, port);
    if (file_real(doctor, pci, sizeof(pci), "/sys/class/infiniband/%s/device", nic))
        memmove(pci, strrchr(pci, '/') + 1, strlen(strrchr(pci, '/')));
    ethernet = strcmp(layer, "Ethernet") == 0;
    add_text(entry, "name", nic);
    add_text(entry, "port", port);
    add_text(entry, "pci", pci);
    add_text(entry, "state", state);
    add_text(entry, "link", layer);
    add_text(entry, "rate", rate);
    json_object_object_add(entry, "numa", json_object_new_int64(file_number(doctor, -1, "/sys/class/infiniband/%s/device/numa_node",
                                                                            nic)));
    routable = read_gids(doctor, nic, port, gids);
    json_object_object_add(entry, "gids", gids);
    read_errors(doctor, nic, port, errors);
    add_errors(entry, errors);
    check_state(doctor, nic, port, state, ethernet);
    if (ethernet && strstr(state, "ACTIVE"))
        check_roce(doctor, nic, port, routable, entry);
    json_object_array_add(nics, entry);
}

/* A NIC is of no use to a process that may not open it. */
static void check_access(struct doctor *doctor)
{
    char **verbs;
    int n = folder_list(doctor, &verbs, "/sys/class/infiniband_verbs"), seen = 0;

    for (int i = 0; i < n; i++) {
        char path[1024];

        if (strncmp(verbs[i], "uverbs", 6) != 0)
            continue;
        seen++;
        snprintf(path, sizeof(path), "%s/dev/infiniband/%s", doctor->options.root, verbs[i]);
        if (access(path, R_OK | W_OK) != 0)
            find(doctor, FAULT, "nic-access", "RDMA cannot be used by this process", "in a container: docker run "
                 "--device=/dev/infiniband; else: chmod 666 /dev/infiniband/uverbs* (udev rules of rdma-core)",
                 "/dev/infiniband/%s cannot be opened by this user", verbs[i]);
    }
    folder_free(verbs, n);
    if (seen == 0 && facts_nics(doctor) > 0)
        find(doctor, FAULT, "nic-access", "RDMA cannot be used", "modprobe ib_uverbs", "there are NICs, but the kernel's module "
             "ib_uverbs is not loaded");
}

void check_nics(struct doctor *doctor)
{
    struct json_object *all = json_object_new_array();
    char **nics, **ports;
    int n = folder_list(doctor, &nics, "/sys/class/infiniband");

    json_object_object_add(doctor->facts, "nics", all);
    for (int i = 0; i < n; i++) {
        int n_ports = folder_list(doctor, &ports, "/sys/class/infiniband/%s/ports", nics[i]);

        for (int p = 0; p < n_ports; p++)
            check_port(doctor, nics[i], ports[p], all);
        folder_free(ports, n_ports);
    }
    folder_free(nics, n);
    check_access(doctor);
}

void check_nic_errors(struct doctor *doctor)
{
    struct json_object *nics = json_object_object_get(doctor->facts, "nics");

    for (size_t i = 0; i < json_object_array_length(nics); i++) {
        struct json_object *nic = json_object_array_get_idx(nics, i), *before = json_object_object_get(nic, "errors");
        const char *name = text_of(nic, "name");
        const char *port = text_of(nic, "port");
        long long now[COUNTERS];

        read_errors(doctor, name, port, now);
        for (size_t c = 0; c < COUNTERS; c++) {
            const char *counter = strchr(counters[c].file, '/') + 1;
            long long grown = now[c] - json_object_get_int64(json_object_object_get(before, counter));

            if (grown > 0)
                find(doctor, WARNING, "nic-errors", "packets are sent again: bandwidth comes and goes, and rails are lost",
                     "mlxlink or 'ethtool -S' for the port; replace the cable; for lost packets: flow control (PFC or ECN) on "
                     "NICs and switches", "%s port %s: %s grew by %lld during the test (%s)", name, port, counter, grown,
                     counters[c].meaning);
        }
        add_errors(nic, now);
    }
}
