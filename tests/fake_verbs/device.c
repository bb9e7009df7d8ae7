/* Devices, their port and its addresses: see fake.h. */
#include "fake.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEVICES_MAX 8
#define GIDS 4

static struct ibv_device devices[DEVICES_MAX];

struct ibv_device **ibv_get_device_list(int *n)
{
    const char *text = getenv("FAKE_VERBS_DEVICES");
    int wanted = text ? atoi(text) : 1;
    struct ibv_device **list;

    wanted = wanted > DEVICES_MAX ? DEVICES_MAX : wanted;
    list = calloc((size_t)wanted + 1, sizeof(*list));
    if (!list)
        return NULL;
    for (int i = 0; i < wanted; i++) {
        devices[i].node_type = IBV_NODE_CA;
        devices[i].transport_type = IBV_TRANSPORT_IB;
        snprintf(devices[i].name, sizeof(devices[i].name), "fake%d", i);
        snprintf(devices[i].dev_name, sizeof(devices[i].dev_name), "uverbs%d", i);
        list[i] = &devices[i];
    }
    if (n)
        *n = wanted;
    return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
    free(list);
}

const char *ibv_get_device_name(struct ibv_device *device)
{
    return device->name;
}

int ibv_get_device_index(struct ibv_device *device)
{
    return (int)(device - devices);
}

__be64 ibv_get_device_guid(struct ibv_device *device)
{
    return htonl((uint32_t)ibv_get_device_index(device) + 1);
}

/* FAKE_VERBS_FAIL, if it is about this device. */
static uint64_t fail_from(struct ibv_device *device)
{
    const char *text = getenv("FAKE_VERBS_FAIL"), *colon = text ? strchr(text, ':') : NULL;

    return colon && atoi(text) == ibv_get_device_index(device) ? strtoull(colon + 1, NULL, 10) : 0;
}

static int error_setting(const char *name)
{
    static const struct { const char *name; int number; } errors[] = {
        {"ok", 0}, {"EOPNOTSUPP", EOPNOTSUPP}, {"EINVAL", EINVAL}, {"EFAULT", EFAULT}, {"ENOMEM", ENOMEM},
    };
    const char *text = getenv(name);

    for (size_t i = 0; text && i < sizeof(errors) / sizeof(errors[0]); i++)
        if (strcmp(text, errors[i].name) == 0)
            return errors[i].number;
    if (text) {
        fprintf(stderr, "%s=%s: not ok or the name of an error known here\n", name, text);
        abort();
    }
    return 0;
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
    struct fake_context *made = calloc(1, sizeof(*made));
    const char *memlock = getenv("FAKE_VERBS_MEMLOCK"), *move = getenv("FAKE_VERBS_MOVE");
    int fds[2];

    if (!made)
        return NULL;
    if (pipe(fds)) {
        free(made);
        return NULL;
    }
    made->context.device = device;
    made->context.num_comp_vectors = 1;
    made->context.async_fd = fds[0];
    made->context.cmd_fd = fds[1];   /* what is written here is an event */
    pthread_mutex_init(&made->context.mutex, NULL);
    made->dmabuf_error = error_setting("FAKE_VERBS_DMABUF");
    made->peer_error = error_setting("FAKE_VERBS_PEER");
    made->fail_from = fail_from(device);
    made->move_most = move ? strtoull(move, NULL, 0) : SIZE_MAX;
    made->context.ops.poll_cq = fake_poll_cq;
    made->context.ops.req_notify_cq = fake_req_notify_cq;
    made->context.ops.post_srq_recv = fake_post_srq_recv;
    made->context.ops.post_send = fake_post_send;
    made->memlock = memlock ? strtoull(memlock, NULL, 0) : SIZE_MAX;
    return &made->context;
}

int ibv_close_device(struct ibv_context *context)
{
    if (atomic_load(&fake_context_of(context)->pds) > 0)
        return EBUSY;
    close(context->async_fd);
    close(context->cmd_fd);
    pthread_mutex_destroy(&context->mutex);
    free(context);
    return 0;
}

int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
    return read(context->async_fd, event, sizeof(*event)) == (ssize_t)sizeof(*event) ? 0 : -1;
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
    (void)event;
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
    *attr = (struct ibv_device_attr){
        .node_guid = ibv_get_device_guid(context->device), .max_mr_size = UINT64_MAX, .page_size_cap = 4096,
        .max_qp = FAKE_QPS, .max_qp_wr = 4096, .max_sge = 16, .max_cq = FAKE_CQS, .max_cqe = FAKE_RING, .max_mr = FAKE_REGIONS,
        .max_pd = 1024, .max_qp_rd_atom = 16, .max_qp_init_rd_atom = 16, .max_srq = FAKE_SRQS, .max_srq_wr = FAKE_RING,
        .max_srq_sge = 4, .max_pkeys = 1, .phys_port_cnt = 1,
    };
    snprintf(attr->fw_ver, sizeof(attr->fw_ver), "0.0.0");
    return 0;
}

int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *out)
{
    struct ibv_port_attr *attr = (struct ibv_port_attr *)out;

    (void)context;
    if (port != 1)
        return EINVAL;
    *attr = (struct ibv_port_attr){
        .state = IBV_PORT_ACTIVE, .max_mtu = IBV_MTU_4096, .active_mtu = IBV_MTU_4096, .gid_tbl_len = GIDS,
        .max_msg_sz = 1u << 30, .pkey_tbl_len = 1, .active_width = 2, .active_speed = 32, .phys_state = 5,
        .link_layer = IBV_LINK_LAYER_ETHERNET,
    };
    return 0;
}

/* As a RoCE port has them: link local and from an IPv4 address, each in version 1 and 2. The address is the process. */
int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
    uint32_t pid = (uint32_t)getpid();

    (void)context;
    if (port != 1 || index < 0 || index >= GIDS) {
        errno = EINVAL;
        return -1;
    }
    memset(gid, 0, sizeof(*gid));
    if (index < 2) {
        gid->raw[0] = 0xfe;
        gid->raw[1] = 0x80;
    } else {
        gid->raw[10] = gid->raw[11] = 0xff;
    }
    gid->raw[12] = 10;
    for (int i = 0; i < 3; i++)
        gid->raw[13 + i] = (uint8_t)(pid >> (8 * (2 - i)));
    return 0;
}

int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index, struct ibv_gid_entry *entry,
                      uint32_t flags, size_t bytes)
{
    (void)flags;
    (void)bytes;
    if (ibv_query_gid(context, (uint8_t)port, (int)index, &entry->gid))
        return errno;
    entry->gid_index = index;
    entry->port_num = port;
    entry->gid_type = index % 2 ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_ROCE_V1;
    entry->ndev_ifindex = 0;
    return 0;
}

ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries, size_t room, uint32_t flags,
                             size_t bytes)
{
    size_t n = 0;

    for (; n < GIDS && n < room; n++)
        _ibv_query_gid_ex(context, 1, (uint32_t)n, &entries[n], flags, bytes);
    return (ssize_t)n;
}

int ibv_query_pkey(struct ibv_context *context, uint8_t port, int index, __be16 *pkey)
{
    (void)context;
    if (port != 1 || index != 0)
        return -1;
    *pkey = htons(0xffff);
    return 0;
}

const char *ibv_wc_status_str(enum ibv_wc_status status)
{
    static const char *const names[] = {
        [IBV_WC_SUCCESS] = "success", [IBV_WC_LOC_PROT_ERR] = "local protection error",
        [IBV_WC_WR_FLUSH_ERR] = "Work Request Flushed Error", [IBV_WC_REM_ACCESS_ERR] = "remote access error",
        [IBV_WC_RETRY_EXC_ERR] = "transport retry counter exceeded", [IBV_WC_RNR_RETRY_EXC_ERR] = "RNR retry counter exceeded",
    };

    return status < sizeof(names) / sizeof(names[0]) && names[status] ? names[status] : "unknown";
}

const char *ibv_event_type_str(enum ibv_event_type event)
{
    return event == IBV_EVENT_PORT_ERR ? "port error" : event == IBV_EVENT_PORT_ACTIVE ? "port active" : "other event";
}

const char *ibv_port_state_str(enum ibv_port_state state)
{
    return state == IBV_PORT_ACTIVE ? "active" : "other state";
}

int ibv_fork_init(void)
{
    return 0;
}

enum ibv_fork_status ibv_is_fork_initialized(void)
{
    return IBV_FORK_UNNEEDED;
}
