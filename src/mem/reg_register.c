/* Registering memory with a NIC by dma-buf or by its address: see reg_register.h. */
#include "mem/reg_register.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#include "core/log.h"
#include "core/proc.h"
#include "hetmpi.h"

#define LOGGED_MAX 64

const char *reg_way_name(enum reg_way way)
{
    static const char *const names[] = {
        [REG_UNTRIED] = "not tried yet", [REG_STAGED] = "staged through host memory", [REG_HOST] = "host memory",
        [REG_PEER] = "peer memory (by address)", [REG_DMABUF] = "dma-buf",
    };

    return names[way];
}

/* Says something once for each device and reason, however many caches and communicators find it. */
static void log_once(const struct reg_ways *ways, enum reg_way way, const char *why)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static uint64_t logged[LOGGED_MAX];
    static size_t n;
    const char *device = ibv_get_device_name(ways->pd->context->device);
    uint64_t hash = proc_hash(proc_hash(PROC_HASH_START, device, strlen(device)), why, strlen(why));
    bool known = false;

    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < n && !known; i++)
        known = logged[i] == hash;
    if (!known && n < LOGGED_MAX)
        logged[n++] = hash;
    else
        known = true;
    pthread_mutex_unlock(&lock);
    if (!known)
        log_info("%s reaches device memory by: %s%s%s", device, reg_way_name(way), *why ? ". Not better: " : "", why);
}

/* Whether a failure may pass: memory is short, or a signal came. */
static bool may_pass(int error)
{
    return error == ENOMEM || error == EAGAIN || error == EINTR;
}

static void learn(enum reg_seen *seen, int error)
{
    if (!error)
        *seen = SEEN_WORKING;
    else if (*seen != SEEN_WORKING && !may_pass(error))
        *seen = SEEN_FAILING;
}

/* These two return 0, or the error's number after they stored why. */
static int by_dmabuf(struct reg_ways *ways, void *base, size_t bytes, unsigned access, struct ibv_mr **mr)
{
    uint64_t offset;
    int fd, error = 0;
    int code = mem_dmabuf(base, bytes, &fd, &offset);

    if (code) {
        snprintf(ways->no_dmabuf, sizeof(ways->no_dmabuf), "%s", err_text());
        if (code == HETMPI_ERR_UNSUPPORTED)   /* by the runtime; anything else is about this memory */
            learn(&ways->dmabuf, ENOTSUP);
        return ENOTSUP;
    }
    *mr = ibv_reg_dmabuf_mr(ways->pd, offset, bytes, (uint64_t)(uintptr_t)base, fd, (int)access);
    if (!*mr)
        error = errno;
    close(fd);
    learn(&ways->dmabuf, error);
    if (error)
        snprintf(ways->no_dmabuf, sizeof(ways->no_dmabuf), "dma-buf: ibv_reg_dmabuf_mr fails with %s (a kernel, an "
                 "rdma-core and a NIC's driver that know dma-buf are needed)", strerror(error));
    return error;
}

static int by_address(struct reg_ways *ways, void *base, size_t bytes, unsigned access, struct ibv_mr **mr)
{
    int error = 0;

    *mr = ibv_reg_mr(ways->pd, base, bytes, access);
    if (!*mr)
        error = errno;
    learn(&ways->peer, error);
    if (error)
        snprintf(ways->no_peer, sizeof(ways->no_peer), "peer memory: ibv_reg_mr of a device address fails with %s (is the "
                 "vendor's module loaded? For NVIDIA: modprobe nvidia-peermem)", strerror(error));
    return error;
}

void reg_why(const struct reg_ways *ways, char *text, size_t bytes)
{
    bool dmabuf = ways->device != REG_DMABUF && ways->no_dmabuf[0];
    bool peer = ways->device == REG_STAGED && ways->no_peer[0];

    snprintf(text, bytes, "%s%s%s", dmabuf ? ways->no_dmabuf : "", dmabuf && peer ? "; " : "", peer ? ways->no_peer : "");
}

int reg_out_of_reach(const struct reg_ways *ways)
{
    if (ways->dmabuf != SEEN_FAILING || ways->peer != SEEN_FAILING)
        return HETMPI_SUCCESS;
    return err_set(HETMPI_ERR_UNSUPPORTED, "device memory cannot be registered with %s: %s; %s",
                   ibv_get_device_name(ways->pd->context->device), ways->no_dmabuf, ways->no_peer);
}

static int register_device(struct reg_ways *ways, void *base, size_t bytes, unsigned access, struct ibv_mr **mr,
                           enum reg_way *way)
{
    char why[2 * REG_WHY_BYTES + 2];
    bool passing = false;
    int error = ENOTSUP;

    if (ways->dmabuf != SEEN_FAILING) {
        *way = REG_DMABUF;
        error = by_dmabuf(ways, base, bytes, access, mr);
        passing = may_pass(error);
    }
    if (error && ways->peer != SEEN_FAILING) {
        *way = REG_PEER;
        error = by_address(ways, base, bytes, access, mr);
        passing = passing || may_pass(error);
    }
    if (error)
        *way = REG_STAGED;
    ways->device = *way;
    reg_why(ways, why, sizeof(why));
    log_once(ways, *way, why);
    if (!error)
        return HETMPI_SUCCESS;
    return err_set(passing ? HETMPI_ERR_MEMORY : HETMPI_ERR_UNSUPPORTED, "%zu bytes of device memory cannot be registered "
                   "with %s: %s", bytes, ibv_get_device_name(ways->pd->context->device), why);
}

static int register_host(struct reg_ways *ways, void *base, size_t bytes, unsigned access, size_t held,
                         struct ibv_mr **mr)
{
    const char *device = ibv_get_device_name(ways->pd->context->device);
    struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
    int error;

    *mr = ibv_reg_mr(ways->pd, base, bytes, access);
    if (*mr)
        return HETMPI_SUCCESS;
    error = errno;
    (void)getrlimit(RLIMIT_MEMLOCK, &limit);
    if (may_pass(error) && limit.rlim_cur != RLIM_INFINITY)
        return err_set(HETMPI_ERR_MEMORY, "%zu bytes of host memory cannot be registered with %s, which has %zu registered "
                       "here: a process may lock %llu bytes (ulimit -l). Raise it: 'ulimit -l unlimited' where ranks are "
                       "started, or LimitMEMLOCK=infinity of the service that starts them", bytes, device, held,
                       (unsigned long long)limit.rlim_cur);
    return err_set(may_pass(error) ? HETMPI_ERR_MEMORY : HETMPI_ERR_UNSUPPORTED, "%zu bytes of host memory at %p cannot be "
                   "registered with %s: %s", bytes, base, device, strerror(error));
}

int reg_register(struct reg_ways *ways, enum mem_kind kind, void *base, size_t bytes, unsigned access, size_t held,
                 struct ibv_mr **mr, enum reg_way *way)
{
    if (kind == MEM_DEVICE)
        return register_device(ways, base, bytes, access, mr, way);
    *way = REG_HOST;
    return register_host(ways, base, bytes, access, held, mr);
}
