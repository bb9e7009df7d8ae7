/*
 * The simulated device: a GPU in host memory. Its memory faults when the host touches it, because users see it through
 * a mapping without access; the runtime touches the same memory through a second mapping.
 *
 * A claimed vendor of "cpu" means: no device, as in host.c.
 */
#define _GNU_SOURCE
#include "mem/sim.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/log.h"
#include "hetmpi.h"

struct sim sim = {.lock = PTHREAD_MUTEX_INITIALIZER, .vendor = "cpu", .device = -1, .fd = -1};

#define ARENA_MOST ((size_t)64 << 30)
#define WINDOW_LEAST ((size_t)64 << 20)
#define SLAB_BLOCKS 256

struct sim_slab { struct sim_slab *next; struct sim_block blocks[SLAB_BLOCKS]; };

int mem_init(const struct mem_setup *setup)
{
    const char *vendor = setup->vendor ? setup->vendor : "cpu";
    int rc;

    if (sim.ready)
        return err_set(HETMPI_ERR_STATE, "sim: the device runtime was already started");
    if (strcmp(vendor, "cpu") != 0 && strcmp(vendor, "nvidia") != 0 && strcmp(vendor, "amd") != 0)
        return err_set(HETMPI_ERR_CONFIG, "SIM_VENDORS: \"%s\" is no vendor; use cpu, nvidia or amd", vendor);
    if (!(setup->bandwidth >= 0) || !(setup->peer_bandwidth >= 0) || !(setup->latency >= 0 && setup->latency < 1e6))
        return err_set(HETMPI_ERR_CONFIG, "sim: bandwidth %g, peer bandwidth %g, latency %g: none may be negative "
                       "(0: unlimited, none)", setup->bandwidth, setup->peer_bandwidth, setup->latency);
    rc = sim_fault_set(setup->fault);
    if (rc)
        return rc;
    snprintf(sim.vendor, sizeof(sim.vendor), "%s", vendor);
    sim.has_device = strcmp(vendor, "cpu") != 0;
    sim.device = !sim.has_device ? -1 : setup->device >= 0 ? setup->device : 0;
    sim.peer_bandwidth = setup->peer_bandwidth;
    sim.latency = (int64_t)(setup->latency * 1e9 + 0.5);
    sim_lane_init(&sim.to_host, setup->bandwidth);
    sim_lane_init(&sim.to_device, setup->bandwidth);
    sim.ready = true;
    return HETMPI_SUCCESS;
}

static void window_clear(struct sim_window *window)
{
    if (window->base)
        munmap((void *)window->base, window->bytes);
    atomic_store(&window->base, 0);
    atomic_store(&window->bytes, 0);
    sim_space_clear(&window->space);
}

static void arena_clear(void)
{
    if (sim.head)
        munmap(sim.head, sim.arena.bytes);
    window_clear(&sim.arena);
    window_clear(&sim.peers);
    if (sim.fd >= 0)
        close(sim.fd);
    sim.head = NULL;
    sim.fd = -1;
    sim.slots_used = sim.slots_free = 0;
}

void mem_fini(void)
{
    struct range range;

    if (!sim.ready) {
        plain_clear();
        return;
    }
    atomic_store(&sim.stopping, true);
    sim_streams_stop();
    while (range_take(&range)) {
        if (range.kind == RANGE_HEAP)
            free((void *)range.base);
        else if (range.kind == RANGE_PEER)
            sim_ipc_clear_peer(&range);
    }
    range_clear();
    arena_clear();
    for (struct sim_peer *peer = sim.peer, *next; peer; peer = next) {
        next = peer->next;
        sim_lane_clear(&peer->read);
        sim_lane_clear(&peer->write);
        free(peer);
    }
    for (struct sim_slab *slab = sim.slabs, *next; slab; slab = next) {
        next = slab->next;
        free(slab);
    }
    for (struct sim_error *error = sim.errors, *next; error; error = next) {
        next = error->next;
        free(error);
    }
    sim_lane_clear(&sim.to_host);
    sim_lane_clear(&sim.to_device);
    sim.peer = NULL;
    sim.slabs = NULL;
    sim.blocks_free = NULL;
    sim.errors = NULL;
    snprintf(sim.vendor, sizeof(sim.vendor), "cpu");
    sim.has_device = false;
    sim.device = -1;
    sim.ready = false;
    atomic_store(&sim.stopping, false);
}

const char *mem_backend(void)
{
    return "sim";
}

const char *mem_vendor(void)
{
    return sim.vendor;
}

bool mem_has_device(void)
{
    return sim.has_device;
}

/* Each stream is a thread; two of a rank's are usually at work. */
int mem_threads(void)
{
    return sim.has_device ? 2 : 0;
}

int mem_device(void)
{
    return sim.device;
}

void mem_chunk_limits(size_t *least, size_t *most)
{
    *least = (size_t)32 << 10;
    *most = (size_t)(sim.has_device ? 1024 : 256) << 10;
}

/*
 * The arena
 */

void *sim_window_reserve(size_t *bytes, int fd)
{
    int flags = (fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED) | MAP_NORESERVE;
    void *base;

    for (; *bytes >= WINDOW_LEAST; *bytes /= 2) {
        base = mmap(NULL, *bytes, PROT_NONE, flags, fd, 0);
        if (base != MAP_FAILED) {
            (void)madvise(base, *bytes, MADV_DONTDUMP);
            return base;
        }
    }
    return NULL;
}

/* As much memory as the machine has, at most ARENA_MOST, and what a file of this process may hold. */
static size_t arena_most(void)
{
    size_t most = ARENA_MOST, memory = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    struct rlimit limit;

    if (memory > WINDOW_LEAST && memory < most)
        most = memory;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < most)
        most = (size_t)limit.rlim_cur;
    return most - most % SIM_PAGE;
}

/* Both mappings of `*bytes` of the memfd, or of half as much, and so on. */
static bool arena_map(size_t *bytes, void **seen, void **touched)
{
    while ((*seen = sim_window_reserve(bytes, sim.fd))) {
        *touched = mmap(NULL, *bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, sim.fd, 0);
        if (*touched != MAP_FAILED)
            return true;
        munmap(*seen, *bytes);
        *bytes /= 2;
    }
    return false;
}

int sim_arena_need(void)
{
    size_t bytes = arena_most();
    void *seen, *touched;
    int rc;

    if (sim.head)
        return HETMPI_SUCCESS;
    if (bytes < WINDOW_LEAST)
        return err_set(HETMPI_ERR_MEMORY, "sim: no file, nor device memory, may have %zu bytes here (raise ulimit -f?)",
                       WINDOW_LEAST);
    sim.fd = memfd_create("hetmpi-sim", MFD_CLOEXEC);
    if (sim.fd < 0)
        return err_set(HETMPI_ERR_MEMORY, "sim: no descriptor for the device's memory: %s (raise ulimit -n?)",
                       strerror(errno));
    if (ftruncate(sim.fd, (off_t)bytes) != 0) {
        rc = err_set(HETMPI_ERR_MEMORY, "sim: cannot make device memory of %zu bytes: %s", bytes, strerror(errno));
        goto close_fd;
    }
    if (!arena_map(&bytes, &seen, &touched)) {
        rc = err_set(HETMPI_ERR_MEMORY, "sim: no addresses for device memory, not even twice %zu bytes: %s "
                     "(ulimit -v?)", WINDOW_LEAST, strerror(errno));
        goto close_fd;
    }
    (void)madvise(touched, bytes, MADV_DONTDUMP);
    rc = sim_space_init(&sim.arena.space, SIM_HEAD_BYTES, bytes);
    if (rc)
        goto unmap;
    sim.head = touched;
    sim.head->magic = SIM_MAGIC;
    sim.head->pid = getpid();
    sim.head->device = sim.device;
    memcpy(sim.head->vendor, sim.vendor, sizeof(sim.head->vendor));
    if (getrandom(&sim.head->cookie, sizeof(sim.head->cookie), GRND_NONBLOCK) != sizeof(sim.head->cookie))
        sim.head->cookie = (uint64_t)sim_now() ^ ((uint64_t)getpid() << 40);
    atomic_store(&sim.arena.bytes, bytes);
    atomic_store(&sim.arena.base, (uintptr_t)seen);
    log_debug("sim: %s device %d with %zu MiB of memory", sim.vendor, sim.device, bytes >> 20);
    return HETMPI_SUCCESS;

unmap:
    munmap(touched, bytes);
    munmap(seen, bytes);
close_fd:
    close(sim.fd);
    sim.fd = -1;
    return rc;
}

/*
 * Ranges and their blocks
 */

static struct sim_block *block_new(void)
{
    struct sim_block *block;

    pthread_mutex_lock(&sim.lock);
    if (!sim.blocks_free) {
        struct sim_slab *slab = calloc(1, sizeof(*slab));

        for (int i = 0; slab && i < SLAB_BLOCKS; i++) {
            slab->blocks[i].next = sim.blocks_free;
            sim.blocks_free = &slab->blocks[i];
        }
        if (slab) {
            slab->next = sim.slabs;
            sim.slabs = slab;
        }
    }
    block = sim.blocks_free;
    if (block)
        sim.blocks_free = block->next;
    pthread_mutex_unlock(&sim.lock);
    return block;
}

void sim_block_free(struct sim_block *block)
{
    if (!block)
        return;
    pthread_mutex_lock(&sim.lock);
    block->next = sim.blocks_free;
    sim.blocks_free = block;
    pthread_mutex_unlock(&sim.lock);
}

int sim_enter(uintptr_t base, size_t bytes, enum range_kind kind, intptr_t shift, struct sim_peer *peer)
{
    struct sim_block *block = block_new();
    struct range range;
    int rc;

    if (!block)
        return err_set(HETMPI_ERR_MEMORY, "sim: no memory for the record of %zu bytes at %#zx", bytes, (size_t)base);
    block->shift = shift;
    block->peer = peer;
    block->slot = -1;
    range = (struct range){.base = base, .bytes = bytes, .id = range_new_id(), .kind = kind, .owner = block};
    atomic_store(&block->id, range.id);
    rc = range_add(&range);
    if (rc) {
        atomic_store(&block->id, 0);
        sim_block_free(block);
    }
    return rc;
}

int sim_leave(const void *ptr, unsigned kinds, const char *what, struct range *range)
{
    struct backoff backoff = {0};
    struct sim_block *block;

    if (!range_remove((uintptr_t)ptr, kinds, range))
        return err_set(HETMPI_ERR_ARG, "%s: %p is not the start of such memory (given back twice, or from elsewhere?)",
                       what, ptr);
    block = range->owner;
    if (!block)
        return HETMPI_SUCCESS;   /* from before mem_init */
    /* Both sides are sequentially consistent: an operation either sees that the id is gone, or is seen as busy. */
    atomic_store(&block->id, 0);
    while (atomic_load(&block->busy) > 0)
        backoff_wait(&backoff);
    return HETMPI_SUCCESS;
}

static bool in_window(const struct sim_window *window, uintptr_t first, uintptr_t last)
{
    uintptr_t base = atomic_load_explicit(&window->base, memory_order_acquire);

    return base != 0 && last >= base && first < base + atomic_load_explicit(&window->bytes, memory_order_relaxed);
}

static int place_wrong(const void *ptr, size_t bytes, const char *what, const char *why)
{
    return err_set(HETMPI_ERR_DEVICE, "%s: the range of %zu bytes at %p %s", what, bytes, ptr, why);
}

int sim_place_take(const void *ptr, size_t bytes, unsigned sides, const char *what, struct sim_place *place)
{
    static const enum sim_side side_of[] = {
        [RANGE_HEAP] = SIDE_PINNED, [RANGE_REGISTERED] = SIDE_PINNED, [RANGE_DEVICE] = SIDE_DEVICE,
        [RANGE_PEER] = SIDE_PEER,
    };
    uintptr_t first = (uintptr_t)ptr, last = first + (bytes - 1);
    struct sim_block *block = NULL;
    struct range range;

    *place = (struct sim_place){.at = (char *)first, .side = SIDE_HOST};
    if (first < SIM_PAGE || last < first)
        return place_wrong(ptr, bytes, what, "is not memory at all");
    if (range_find(first, &range)) {
        bool inside = last - range.base < range.bytes;

        place->side = side_of[range.kind];
        if (!inside && place->side != SIDE_PINNED)
            return err_set(HETMPI_ERR_DEVICE, "%s: the range of %zu bytes at %p goes beyond its allocation of %zu bytes "
                           "at %#zx", what, bytes, ptr, range.bytes, (size_t)range.base);
        if (!inside)
            place->side = SIDE_HOST;
        block = range.owner;
    }
    if (place->side == SIDE_HOST && (in_window(&sim.arena, first, last) || in_window(&sim.peers, first, last)))
        return place_wrong(ptr, bytes, what, "lies outside any allocation of device memory (freed, or a wrong "
                           "address?)");
    if (!(sides & (1u << place->side)))
        return place_wrong(ptr, bytes, what, place->side == SIDE_HOST
                           ? "lies in ordinary host memory, which the device cannot reach; pin it first"
                           : "lies in device memory; pinned host memory is needed");
    if (!block)
        return HETMPI_SUCCESS;
    atomic_fetch_add(&block->busy, 1);
    if (atomic_load(&block->id) != range.id) {
        atomic_fetch_sub(&block->busy, 1);
        return place_wrong(ptr, bytes, what, "lies in memory that is being freed");
    }
    place->block = block;
    place->at += block->shift;
    return HETMPI_SUCCESS;
}

void *sim_address(const void *ptr)
{
    struct range range;

    if (!range_find((uintptr_t)ptr, &range) || (range.kind != RANGE_DEVICE && range.kind != RANGE_PEER))
        return (void *)(uintptr_t)ptr;
    return (char *)(uintptr_t)ptr + ((struct sim_block *)range.owner)->shift;
}

void sim_place_give(struct sim_place *place)
{
    if (place->block)
        atomic_fetch_sub(&place->block->busy, 1);
    place->block = NULL;
}

struct sim_error *sim_error_new(int code, const char *format, ...)
{
    struct sim_error *error = calloc(1, sizeof(*error));
    va_list args;

    if (!error) {
        log_print(LOG_ERROR, "sim: no memory for the message of an error of queued work");
        abort();   /* the error would be lost, and wrong data would pass for right */
    }
    error->code = code;
    va_start(args, format);
    vsnprintf(error->text, sizeof(error->text), format, args);
    va_end(args);
    pthread_mutex_lock(&sim.lock);
    error->next = sim.errors;
    sim.errors = error;
    pthread_mutex_unlock(&sim.lock);
    return error;
}

int sim_error_report(struct sim_error *error)
{
    atomic_store_explicit(&error->reported, true, memory_order_relaxed);
    err_copy(error->code, error->text);
    return error->code;
}

/*
 * Memory
 */

/* The memory itself goes back to the system, and reads as zero when it is used again. */
static void arena_give(size_t at, size_t bytes)
{
    (void)fallocate(sim.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)at, (off_t)bytes);
    sim_space_give(&sim.arena.space, at, bytes);
}

int mem_alloc(size_t bytes, void **ptr)
{
    size_t whole = sim_pages(bytes), at = 0;
    uint64_t fault;
    uintptr_t base;
    int rc;

    if (!sim.has_device)
        return plain_alloc(bytes, ptr);
    if (bytes == 0) {
        *ptr = NULL;
        return HETMPI_SUCCESS;
    }
    fault = sim_fault_hit(FAULT_ALLOC);
    if (fault)
        return err_set(HETMPI_ERR_MEMORY, "sim: injected fault: allocation %llu (%zu bytes) fails",
                       (unsigned long long)fault, bytes);
    pthread_mutex_lock(&sim.lock);
    rc = sim_arena_need();
    if (!rc && (whole < bytes || !sim_space_take(&sim.arena.space, whole, &at)))
        rc = err_set(HETMPI_ERR_MEMORY, "sim: cannot allocate %zu bytes of device memory: %zu of %zu are in use, the "
                     "largest free piece has %zu", bytes, sim.arena.space.used, sim.arena.space.bytes,
                     sim_space_largest(&sim.arena.space));
    pthread_mutex_unlock(&sim.lock);
    if (rc)
        return rc;
    base = sim.arena.base + at;
    rc = sim_enter(base, bytes, RANGE_DEVICE, (intptr_t)((uintptr_t)sim.head - sim.arena.base), NULL);
    if (rc) {
        pthread_mutex_lock(&sim.lock);
        arena_give(at, whole);
        pthread_mutex_unlock(&sim.lock);
        return rc;
    }
    *ptr = (void *)base;
    return HETMPI_SUCCESS;
}

int mem_free(void *ptr)
{
    struct range range;
    int rc;

    if (!sim.has_device)
        return plain_free(ptr);
    if (!ptr)
        return HETMPI_SUCCESS;
    rc = sim_leave(ptr, RANGE_BIT(RANGE_DEVICE), "free of device memory", &range);
    if (rc)
        return rc;
    pthread_mutex_lock(&sim.lock);
    sim_ipc_forget(range.owner);
    arena_give(range.base - sim.arena.base, sim_pages(range.bytes));
    pthread_mutex_unlock(&sim.lock);
    sim_block_free(range.owner);
    return HETMPI_SUCCESS;
}

int mem_host_alloc(size_t bytes, void **ptr)
{
    void *memory;
    uint64_t fault;
    int rc;

    if (!sim.has_device || bytes == 0)
        return plain_alloc(bytes, ptr);
    fault = sim_fault_hit(FAULT_PIN);
    if (fault)
        return err_set(HETMPI_ERR_MEMORY, "sim: injected fault: pinning %llu (an allocation of %zu bytes) fails",
                       (unsigned long long)fault, bytes);
    memory = heap_alloc(bytes);
    if (!memory)
        return err_set(HETMPI_ERR_MEMORY, "sim: cannot allocate %zu bytes of pinned host memory", bytes);
    rc = sim_enter((uintptr_t)memory, bytes, RANGE_HEAP, 0, NULL);
    if (rc) {
        free(memory);
        return rc;
    }
    *ptr = memory;
    return HETMPI_SUCCESS;
}

int mem_host_free(void *ptr)
{
    struct range range;
    int rc;

    if (!sim.has_device || !ptr)
        return plain_free(ptr);
    rc = sim_leave(ptr, RANGE_BIT(RANGE_HEAP), "free of pinned host memory", &range);
    if (rc)
        return rc;
    sim_block_free(range.owner);
    free(ptr);
    return HETMPI_SUCCESS;
}

int mem_host_register(void *ptr, size_t bytes)
{
    uint64_t fault;
    int rc;

    if (!sim.has_device)
        return plain_register(ptr, bytes);
    rc = register_check(ptr, bytes);
    if (rc)
        return rc;
    if (in_window(&sim.arena, (uintptr_t)ptr, (uintptr_t)ptr + (bytes - 1)) ||
        in_window(&sim.peers, (uintptr_t)ptr, (uintptr_t)ptr + (bytes - 1)))
        return err_set(HETMPI_ERR_ARG, "sim: cannot register %zu bytes at %p as host memory: it is device memory",
                       bytes, ptr);
    fault = sim_fault_hit(FAULT_PIN);
    if (fault)
        return err_set(HETMPI_ERR_DEVICE, "sim: injected fault: pinning %llu (registration of %zu bytes) fails",
                       (unsigned long long)fault, bytes);
    return sim_enter((uintptr_t)ptr, bytes, RANGE_REGISTERED, 0, NULL);
}

int mem_host_unregister(void *ptr)
{
    struct range range;
    int rc;

    if (!sim.has_device)
        return plain_unregister(ptr);
    rc = sim_leave(ptr, RANGE_BIT(RANGE_REGISTERED), "unregistering host memory", &range);
    if (!rc)
        sim_block_free(range.owner);
    return rc;
}

/* An address of device memory that is in no allocation is MEM_DEVICE with no base: nobody may touch it. */
int mem_query(const void *ptr, struct mem_pointer *out)
{
    struct range range;
    uintptr_t at = (uintptr_t)ptr;

    *out = (struct mem_pointer){.kind = MEM_HOST, .device = -1};
    if (range_find(at, &range)) {
        bool device = range.kind == RANGE_DEVICE || range.kind == RANGE_PEER;

        *out = (struct mem_pointer){.kind = device ? MEM_DEVICE : MEM_HOST_PINNED, .base = (void *)range.base,
                                    .bytes = range.bytes, .id = range.id, .device = device ? sim.device : -1};
    } else if (in_window(&sim.arena, at, at) || in_window(&sim.peers, at, at)) {
        out->kind = MEM_DEVICE;
        out->device = sim.device;
    }
    return HETMPI_SUCCESS;
}
