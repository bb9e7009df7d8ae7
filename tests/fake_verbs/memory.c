/* Protection domains and memory regions: see fake.h. Freeing one that is in use fails, as in the kernel. */
#define _GNU_SOURCE   /* process_vm_readv */
#include "fake.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <unistd.h>

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
    static _Atomic uint32_t last;
    struct fake_pd *made = calloc(1, sizeof(*made));

    if (!made)
        return NULL;
    made->pd.context = context;
    made->number = atomic_fetch_add(&last, 1) + 1;
    atomic_fetch_add(&fake_context_of(context)->pds, 1);
    return &made->pd;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
    struct fake_pd *mine = (struct fake_pd *)pd;

    if (atomic_load(&mine->users) > 0)
        return EBUSY;
    atomic_fetch_sub(&fake_context_of(pd->context)->pds, 1);
    free(mine);
    return 0;
}

/* A place in the table; 0: it is full. */
static uint32_t take_region(const struct fake_region *wanted)
{
    struct fake_hub *hub = fake_self()->hub;

    for (uint32_t i = 0; i < FAKE_REGIONS; i++) {
        struct fake_region *region = &hub->region[i];
        uint32_t none = 0, key;

        if (atomic_load(&region->key) != 0 || !atomic_compare_exchange_strong(&region->key, &none, UINT32_MAX))
            continue;
        key = fake_number(i, FAKE_REGIONS);
        region->access = wanted->access;
        region->pd = wanted->pd;
        region->base = wanted->base;
        region->bytes = wanted->bytes;
        region->fd = wanted->fd;
        region->offset = wanted->offset;
        region->host = wanted->host;
        atomic_store(&region->key, key);
        return key;
    }
    return 0;
}

static struct ibv_mr *register_region(struct ibv_pd *pd, void *base, size_t bytes, struct fake_region *region)
{
    struct ibv_mr *made = calloc(1, sizeof(*made));

    region->base = (uint64_t)(uintptr_t)base;
    region->bytes = bytes;
    region->pd = ((struct fake_pd *)pd)->number;
    if (made)
        made->lkey = made->rkey = take_region(region);
    if (!made || !made->lkey) {
        free(made);
        errno = ENOMEM;
        return NULL;
    }
    made->context = pd->context;
    made->pd = pd;
    made->addr = base;
    made->length = bytes;
    atomic_fetch_add(&((struct fake_pd *)pd)->users, 1);
    return made;
}

/* The kernel refuses to pin what the process cannot touch. */
static bool can_touch(void *base)
{
    char byte;
    struct iovec local = {&byte, 1}, remote = {base, 1};

    return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == 1;
}

/* This process's descriptor of the file with that number; -1: none. */
static int descriptor_of(dev_t device, ino_t inode)
{
    for (int fd = 0; fd < (int)sysconf(_SC_OPEN_MAX); fd++) {
        struct stat what;

        if (fstat(fd, &what) == 0 && what.st_dev == device && what.st_ino == inode)
            return fcntl(fd, F_DUPFD_CLOEXEC, 0);
    }
    return -1;
}

/* What a peer-memory module knows of its device: here, which file is mapped at the address. */
static int file_behind(uint64_t at, uint64_t *offset)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512];
    int fd = -1;

    while (maps && fd < 0 && fgets(line, sizeof(line), maps)) {
        unsigned long long first, end, from, inode;
        unsigned major, minor;

        if (sscanf(line, "%llx-%llx %*s %llx %x:%x %llu", &first, &end, &from, &major, &minor, &inode) != 6 || at < first ||
            at >= end)
            continue;
        fd = descriptor_of(makedev(major, minor), inode);
        *offset = from + (at - first);
    }
    if (maps)
        fclose(maps);
    return fd;
}

static struct ibv_mr *register_peer(struct ibv_pd *pd, void *addr, size_t bytes, struct fake_region *region)
{
    struct ibv_mr *made;

    if (fake_context_of(pd->context)->peer_error) {
        errno = fake_context_of(pd->context)->peer_error;
        return NULL;
    }
    region->fd = file_behind((uint64_t)(uintptr_t)addr, &region->offset);
    if (region->fd < 0) {
        errno = EFAULT;
        return NULL;
    }
    made = register_region(pd, addr, bytes, region);
    if (!made)
        close(region->fd);
    return made;
}

static struct ibv_mr *register_host(struct ibv_pd *pd, void *addr, size_t bytes, struct fake_region *region)
{
    struct fake_context *context = fake_context_of(pd->context);
    struct ibv_mr *made = NULL;

    region->host = 1;
    if (atomic_fetch_add(&context->locked, bytes) + bytes <= context->memlock)
        made = register_region(pd, addr, bytes, region);
    else
        errno = ENOMEM;
    if (!made)
        atomic_fetch_sub(&context->locked, bytes);
    return made;
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t bytes, uint64_t iova, unsigned access)
{
    struct fake_region region = {.access = access, .fd = -1};

    if (bytes == 0 || iova != (uint64_t)(uintptr_t)addr) {
        errno = EINVAL;
        return NULL;
    }
    return can_touch(addr) ? register_host(pd, addr, bytes, &region) : register_peer(pd, addr, bytes, &region);
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t bytes, int access)
{
    return ibv_reg_mr_iova2(pd, addr, bytes, (uint64_t)(uintptr_t)addr, (unsigned)access);
}

struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t bytes, uint64_t iova, int access)
{
    return ibv_reg_mr_iova2(pd, addr, bytes, iova, (unsigned)access);
}

struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t bytes, uint64_t iova, int fd, int access)
{
    struct fake_region region = {.access = (uint32_t)access, .fd = -1, .offset = offset};
    struct ibv_mr *made;

    if (fake_context_of(pd->context)->dmabuf_error) {
        errno = fake_context_of(pd->context)->dmabuf_error;
        return NULL;
    }
    region.fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (region.fd < 0)
        return NULL;
    made = register_region(pd, (void *)(uintptr_t)iova, bytes, &region);
    if (!made)
        close(region.fd);
    return made;
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
    struct fake_region *region = &fake_self()->hub->region[mr->lkey % FAKE_REGIONS];

    if (atomic_load(&region->key) != mr->lkey)
        return EINVAL;
    if (region->fd >= 0)
        close(region->fd);
    if (region->host)
        atomic_fetch_sub(&fake_context_of(mr->context)->locked, mr->length);
    atomic_store(&region->key, 0);
    atomic_fetch_sub(&((struct fake_pd *)mr->pd)->users, 1);
    free(mr);
    return 0;
}
