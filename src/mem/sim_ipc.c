/*
 * Device memory of other processes: a handle names the owner's arena (a memfd, opened through the owner's /proc entry)
 * and the place in it. The head of the arena says which exported allocations are still alive.
 */
#define _GNU_SOURCE
#include "mem/sim.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/log.h"
#include "core/seg.h"
#include "hetmpi.h"

#define PEER_ADDRESSES ((size_t)256 << 30)

struct ipc_handle {
    uint64_t machine, cookie;
    uint64_t at, bytes, id;          /* offset in the arena; of the whole allocation */
    uint32_t magic;
    int32_t pid, fd, slot;
    char vendor[SIM_VENDOR_BYTES];
};
#define HANDLE_MAGIC ((uint32_t)SIM_MAGIC)
_Static_assert(sizeof(struct ipc_handle) <= MEM_IPC_BYTES, "the handle does not fit");

/* A slot of the head for the block's id. Called with the lock held. */
static int take_slot(struct sim_block *block)
{
    if (block->slot >= 0)
        return HETMPI_SUCCESS;
    if (sim.slots_free > 0)
        block->slot = sim.slot_free[--sim.slots_free];
    else if (sim.slots_used < SIM_SLOTS)
        block->slot = sim.slots_used++;
    else
        return err_set(HETMPI_ERR_DEVICE, "sim: %d device allocations are exported already, there is no room for "
                       "another", SIM_SLOTS);
    atomic_store(&sim.head->live[block->slot], atomic_load(&block->id));
    return HETMPI_SUCCESS;
}

void sim_ipc_forget(struct sim_block *block)
{
    if (block->slot < 0)
        return;
    atomic_store(&sim.head->live[block->slot], 0);
    sim.slot_free[sim.slots_free++] = block->slot;
    block->slot = -1;
}

int mem_ipc_export(const void *ptr, mem_ipc_t *handle)
{
    struct ipc_handle out = {.magic = HANDLE_MAGIC};
    struct sim_block *block;
    struct range range;
    int rc;

    if (!sim.has_device)
        return plain_no_ipc();
    if (!range_find((uintptr_t)ptr, &range) || range.kind != RANGE_DEVICE || range.base != (uintptr_t)ptr)
        return err_set(HETMPI_ERR_DEVICE, "export of %p: it is not the start of an allocation of this process's device",
                       ptr);
    block = range.owner;
    pthread_mutex_lock(&sim.lock);
    rc = take_slot(block);
    out.slot = block->slot;
    pthread_mutex_unlock(&sim.lock);
    if (rc)
        return rc;
    out.machine = seg_host_key();
    out.cookie = sim.head->cookie;
    out.at = range.base - sim.arena.base;
    out.bytes = range.bytes;
    out.id = range.id;
    out.pid = sim.head->pid;
    out.fd = sim.fd;
    memcpy(out.vendor, sim.vendor, sizeof(out.vendor));
    memset(handle, 0, sizeof(*handle));
    memcpy(handle->bytes, &out, sizeof(out));
    return HETMPI_SUCCESS;
}

/* Whether the handle can be for us at all. */
static int check_handle(const struct ipc_handle *in)
{
    if (in->magic != HANDLE_MAGIC || in->slot < 0 || in->slot >= SIM_SLOTS || in->bytes == 0 || in->at % SIM_PAGE != 0)
        return err_set(HETMPI_ERR_DEVICE, "sim: these bytes are no handle of simulated device memory");
    if (memcmp(in->vendor, sim.vendor, sizeof(in->vendor)) != 0)
        return err_set(HETMPI_ERR_DEVICE, "sim: the handle is of %.8s device memory (process %d); an %s device cannot "
                       "open it", in->vendor, in->pid, sim.vendor);
    if (in->machine != seg_host_key())
        return err_set(HETMPI_ERR_DEVICE, "sim: the handle of process %d is from another node (or another process "
                       "namespace)", in->pid);
    if (in->pid == getpid())
        return err_set(HETMPI_ERR_DEVICE, "sim: the handle is of this process's own memory; use its address");
    return HETMPI_SUCCESS;
}

/* Opens the owner's arena and looks whether the allocation is still there. */
static int open_arena(const struct ipc_handle *in, int *out)
{
    char path[64];
    struct sim_head head;      /* only the fields before the slots are read */
    uint64_t live = 0;
    size_t fields = offsetof(struct sim_head, live);
    int rc, fd;

    snprintf(path, sizeof(path), "/proc/%d/fd/%d", in->pid, in->fd);
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return err_set(HETMPI_ERR_DEVICE, "sim: cannot open the device memory of process %d: %s%s", in->pid,
                       strerror(errno), errno == ENOENT ? " (it has ended, or freed all)" :
                       errno == EMFILE ? " (raise ulimit -n?)" : "");
    if (pread(fd, &head, fields, 0) != (ssize_t)fields || head.magic != SIM_MAGIC || head.cookie != in->cookie ||
        head.pid != in->pid) {
        rc = err_set(HETMPI_ERR_DEVICE, "sim: the device memory of process %d that the handle names is gone", in->pid);
        goto close_fd;
    }
    if (pread(fd, &live, sizeof(live), (off_t)(fields + (size_t)in->slot * sizeof(live))) != sizeof(live) ||
        live != in->id) {
        rc = err_set(HETMPI_ERR_DEVICE, "sim: the handle is stale: process %d freed its buffer %llu of %llu bytes",
                     in->pid, (unsigned long long)in->id, (unsigned long long)in->bytes);
        goto close_fd;
    }
    *out = fd;
    return HETMPI_SUCCESS;

close_fd:
    close(fd);
    return rc;
}

/* The peer with this cookie, known or new. Called with the lock held. */
static struct sim_peer *find_peer(uint64_t cookie)
{
    struct sim_peer *peer = sim.peer;

    while (peer && peer->cookie != cookie)
        peer = peer->next;
    if (peer)
        return peer;
    peer = calloc(1, sizeof(*peer));
    if (!peer)
        return NULL;
    peer->cookie = cookie;
    sim_lane_init(&peer->read, sim.peer_bandwidth);
    sim_lane_init(&peer->write, sim.peer_bandwidth);
    peer->next = sim.peer;
    sim.peer = peer;
    return peer;
}

/* The addresses that all opened handles share, so that an address of a closed one is known for what it is. Called with
 * the lock held. */
static int peers_need(void)
{
    size_t bytes = PEER_ADDRESSES;
    void *base;
    int rc;

    if (sim.peers.base)
        return HETMPI_SUCCESS;
    base = sim_window_reserve(&bytes, -1);
    if (!base)
        return err_set(HETMPI_ERR_MEMORY, "sim: no addresses for the device memory of other processes (ulimit -v?)");
    rc = sim_space_init(&sim.peers.space, 0, bytes);
    if (rc) {
        munmap(base, bytes);
        return rc;
    }
    atomic_store(&sim.peers.bytes, bytes);
    atomic_store(&sim.peers.base, (uintptr_t)base);
    return HETMPI_SUCCESS;
}

/* Makes the addresses unusable again without giving them up. */
static void hide(uintptr_t seen, size_t whole)
{
    (void)mmap((void *)seen, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    sim_space_give(&sim.peers.space, seen - sim.peers.base, whole);
}

/* Maps the allocation twice: without access in the window, and for the runtime. */
static int map_peer(const struct ipc_handle *in, int fd, uintptr_t *seen, void **touched, struct sim_peer **peer)
{
    size_t whole = sim_pages(in->bytes), at;
    int rc;

    pthread_mutex_lock(&sim.lock);
    rc = peers_need();
    if (rc)
        goto unlock;
    *peer = find_peer(in->cookie);
    if (!*peer || !sim_space_take(&sim.peers.space, whole, &at)) {
        rc = err_set(HETMPI_ERR_MEMORY, "sim: no addresses for %zu bytes of process %d", whole, in->pid);
        goto unlock;
    }
    *seen = sim.peers.base + at;
    *touched = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, (off_t)in->at);
    if (*touched == MAP_FAILED) {
        rc = err_set(HETMPI_ERR_MEMORY, "sim: cannot map %zu bytes of process %d: %s", whole, in->pid, strerror(errno));
        goto give_addresses;
    }
    (void)madvise(*touched, whole, MADV_DONTDUMP);
    if (mmap((void *)*seen, whole, PROT_NONE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd,
             (off_t)in->at) == MAP_FAILED) {
        rc = err_set(HETMPI_ERR_MEMORY, "sim: cannot map %zu bytes of process %d: %s", whole, in->pid, strerror(errno));
        goto unmap;
    }
    goto unlock;

unmap:
    munmap(*touched, whole);
give_addresses:
    sim_space_give(&sim.peers.space, at, whole);
unlock:
    pthread_mutex_unlock(&sim.lock);
    return rc;
}

int mem_ipc_open(const mem_ipc_t *handle, void **ptr)
{
    struct sim_peer *peer;
    struct ipc_handle in;
    uintptr_t seen = 0;
    void *touched = NULL;
    uint64_t fault;
    int rc, fd;

    if (!sim.has_device)
        return plain_no_ipc();
    memcpy(&in, handle->bytes, sizeof(in));
    fault = sim_fault_hit(FAULT_IPC);
    if (fault)
        return err_set(HETMPI_ERR_DEVICE, "sim: injected fault: opening of handle %llu fails",
                       (unsigned long long)fault);
    rc = check_handle(&in);
    if (rc)
        return rc;
    rc = open_arena(&in, &fd);
    if (rc)
        return rc;
    rc = map_peer(&in, fd, &seen, &touched, &peer);
    close(fd);
    if (rc)
        return rc;
    rc = sim_enter(seen, in.bytes, RANGE_PEER, (intptr_t)((uintptr_t)touched - seen), peer);
    if (rc) {
        munmap(touched, sim_pages(in.bytes));
        pthread_mutex_lock(&sim.lock);
        hide(seen, sim_pages(in.bytes));
        pthread_mutex_unlock(&sim.lock);
        return rc;
    }
    *ptr = (void *)seen;
    return HETMPI_SUCCESS;
}

void sim_ipc_clear_peer(const struct range *range)
{
    const struct sim_block *block = range->owner;

    munmap((void *)(range->base + (uintptr_t)block->shift), sim_pages(range->bytes));
    hide(range->base, sim_pages(range->bytes));
}

int mem_ipc_close(void *ptr)
{
    struct range range;
    int rc;

    if (!sim.has_device)
        return plain_no_ipc();
    rc = sim_leave(ptr, RANGE_BIT(RANGE_PEER), "closing another process's device memory", &range);
    if (rc)
        return rc;
    pthread_mutex_lock(&sim.lock);
    sim_ipc_clear_peer(&range);
    pthread_mutex_unlock(&sim.lock);
    sim_block_free(range.owner);
    return HETMPI_SUCCESS;
}

/* The arena's own descriptor: no dma-buf, so that a kernel refuses it; whoever plays a NIC may map it. */
int mem_dmabuf(const void *ptr, size_t bytes, int *fd, uint64_t *offset)
{
    uintptr_t at = (uintptr_t)ptr;
    struct range range;
    int copy;

    if (!sim.has_device)
        return plain_no_dmabuf();
    if (!range_find(at, &range) || range.kind != RANGE_DEVICE || bytes > range.bytes - (at - range.base))
        return err_set(HETMPI_ERR_DEVICE, "dma-buf: %zu bytes at %p are not in one allocation of this process's device",
                       bytes, ptr);
    copy = fcntl(sim.fd, F_DUPFD_CLOEXEC, 0);
    if (copy < 0)
        return err_set(HETMPI_ERR_DEVICE, "dma-buf: no descriptor for %zu bytes at %p: %s", bytes, ptr, strerror(errno));
    *fd = copy;
    *offset = at - sim.arena.base;
    return HETMPI_SUCCESS;
}

int mem_flush_remote_writes(void)
{
    return HETMPI_SUCCESS;
}
