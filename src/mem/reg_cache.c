/* Registrations that are kept by allocation, in a table by id and a list by time of use: see reg_cache.h. */
#include "mem/reg_cache.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>

#include "core/log.h"
#include "hetmpi.h"
#include "mem/mem.h"
#include "mem/reg_register.h"

#define BUCKETS 256             /* a power of two */
#define DEFAULT_BYTES ((size_t)64 << 30)
#define DEFAULT_ENTRIES 1024
#define REMOTE (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

struct entry {
    struct reg reg;             /* first: what callers hold */
    struct ibv_mr *mr;          /* NULL: this memory cannot be registered */
    uint64_t id;                /* of the allocation */
    unsigned access, users;
    bool kept;                  /* in the table: found by others */
    struct entry *next;         /* of the bucket, or of the spare entries */
    struct entry *newer, *older;   /* kept and without users, by time of use */
};

struct reg_cache {
    pthread_mutex_t lock;
    struct reg_ways ways;
    struct reg_limits limits;
    struct reg_stats stats;
    struct entry *bucket[BUCKETS];
    struct entry *newest, *oldest, *spare;
    struct reg_cache *next;     /* of all caches */
};

static struct {
    pthread_mutex_t lock;
    struct reg_cache *first;
    _Atomic bool forked;        /* this is a child: what verbs objects there are belong to the parent */
} caches = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void note_fork(void)
{
    atomic_store(&caches.forked, true);
}

static void watch_fork(void)
{
    if (pthread_atfork(NULL, NULL, note_fork))
        log_warn("registered memory: no memory to watch for fork(); a child process must not end by exit()");
}

void reg_fork_init(void)
{
    int error;

    if (ibv_is_fork_initialized() != IBV_FORK_DISABLED)   /* done, or the kernel copies pinned pages at fork */
        return;
    error = ibv_fork_init();
    if (error)
        log_warn("registered memory: ibv_fork_init fails (%s): a child process made by fork() may take pages away from the "
                 "NIC. Set RDMAV_FORK_SAFE=1 where ranks are started, or use Linux 5.12 or newer", strerror(error));
}

int reg_cache_create(struct ibv_pd *pd, const struct reg_limits *limits, struct reg_cache **cache)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct reg_cache *made = calloc(1, sizeof(*made));

    if (!made)
        return err_set(HETMPI_ERR_MEMORY, "registered memory: no memory for its table (%zu bytes)", sizeof(*made));
    pthread_once(&once, watch_fork);
    pthread_mutex_init(&made->lock, NULL);
    made->ways.pd = pd;
    made->limits = limits ? *limits : (struct reg_limits){DEFAULT_BYTES, DEFAULT_ENTRIES};
    pthread_mutex_lock(&caches.lock);
    made->next = caches.first;
    caches.first = made;
    pthread_mutex_unlock(&caches.lock);
    *cache = made;
    return HETMPI_SUCCESS;
}

/*
 * Entries. All that follows but the public functions is called with the cache's lock held.
 */

static struct entry **bucket_of(struct reg_cache *cache, uint64_t id)
{
    return &cache->bucket[id & (BUCKETS - 1)];
}

static struct entry *find(struct reg_cache *cache, uint64_t id, unsigned access)
{
    struct entry *entry = *bucket_of(cache, id);

    while (entry && (entry->id != id || entry->access != access))
        entry = entry->next;
    return entry;
}

static void idle_add(struct reg_cache *cache, struct entry *entry)
{
    entry->older = cache->newest;
    entry->newer = NULL;
    *(cache->newest ? &cache->newest->newer : &cache->oldest) = entry;
    cache->newest = entry;
}

static void idle_remove(struct reg_cache *cache, struct entry *entry)
{
    *(entry->newer ? &entry->newer->older : &cache->newest) = entry->older;
    *(entry->older ? &entry->older->newer : &cache->oldest) = entry->newer;
}

/* Nobody finds it any more. */
static void unlist(struct reg_cache *cache, struct entry *entry)
{
    struct entry **link = bucket_of(cache, entry->id);

    while (*link != entry)
        link = &(*link)->next;
    *link = entry->next;
    entry->kept = false;
    if (entry->users == 0)
        idle_remove(cache, entry);
}

/* Ends the registration of an entry that is not kept and has no users. */
static void end(struct reg_cache *cache, struct entry *entry)
{
    int error = entry->mr ? ibv_dereg_mr(entry->mr) : 0;

    if (error)
        log_warn("registered memory: ibv_dereg_mr of %zu bytes at %#zx fails (%s); the NIC keeps it until the process ends",
                 entry->reg.bytes, (size_t)entry->reg.base, strerror(error));
    cache->stats.entries--;
    cache->stats.bytes -= entry->mr ? entry->reg.bytes : 0;
    entry->next = cache->spare;
    cache->spare = entry;
}

static void drop(struct reg_cache *cache, struct entry *entry)
{
    cache->stats.dropped++;
    unlist(cache, entry);
    end(cache, entry);
}

/* Gives up what was freed since: its pages would stay with the NIC for nothing. */
static void drop_freed(struct reg_cache *cache)
{
    struct entry *entry = cache->oldest, *newer;
    struct mem_pointer what;

    for (; entry; entry = newer) {
        newer = entry->newer;
        mem_query((const void *)entry->reg.base, &what);
        if (what.id != entry->id)
            drop(cache, entry);
    }
}

/* Makes room for one more of that many bytes; false: what is in use leaves too little. */
static bool make_room(struct reg_cache *cache, size_t bytes)
{
    if (bytes > cache->limits.bytes || cache->limits.entries == 0)
        return false;
    while (cache->oldest && (cache->stats.entries >= cache->limits.entries ||
                             cache->stats.bytes > cache->limits.bytes - bytes))
        drop(cache, cache->oldest);
    return cache->stats.entries < cache->limits.entries && cache->stats.bytes <= cache->limits.bytes - bytes;
}

static struct entry *new_entry(struct reg_cache *cache)
{
    struct entry *entry = cache->spare;

    if (!entry)
        return calloc(1, sizeof(*entry));
    cache->spare = entry->next;
    memset(entry, 0, sizeof(*entry));
    return entry;
}

/* Registers what entry->reg says. When memory is short, all that is kept for later is given up for it. */
static int begin(struct reg_cache *cache, struct entry *entry, enum mem_kind kind)
{
    void *base = (void *)entry->reg.base;
    int code = reg_register(&cache->ways, kind, base, entry->reg.bytes, entry->access, cache->stats.bytes, &entry->mr,
                            &entry->reg.way);

    if (code == HETMPI_ERR_MEMORY && cache->oldest) {
        while (cache->oldest)
            drop(cache, cache->oldest);
        code = reg_register(&cache->ways, kind, base, entry->reg.bytes, entry->access, cache->stats.bytes, &entry->mr,
                            &entry->reg.way);
    }
    if (code)
        return code;
    entry->reg.lkey = entry->mr->lkey;
    entry->reg.rkey = entry->mr->rkey;
    return HETMPI_SUCCESS;
}

/* A registration made for this call. The whole allocation if it may be kept, else the bytes asked for. */
static int add(struct reg_cache *cache, const void *ptr, size_t bytes, const struct mem_pointer *what, unsigned access,
               bool keep, struct entry **out)
{
    struct entry *entry;
    int code;

    drop_freed(cache);
    keep = keep && make_room(cache, what->bytes);
    entry = new_entry(cache);
    if (!entry)
        return err_set(HETMPI_ERR_MEMORY, "registered memory: no memory for an entry");
    entry->reg.base = keep ? (uintptr_t)what->base : (uintptr_t)ptr;
    entry->reg.bytes = keep ? what->bytes : bytes;
    entry->access = access;
    entry->id = what->id;
    code = begin(cache, entry, what->kind);
    if (code == HETMPI_SUCCESS || (code == HETMPI_ERR_UNSUPPORTED && keep)) {
        cache->stats.entries++;
        cache->stats.bytes += entry->mr ? entry->reg.bytes : 0;
        entry->kept = keep;
        entry->users = 1;
        if (keep) {
            entry->next = *bucket_of(cache, entry->id);
            *bucket_of(cache, entry->id) = entry;
        }
        *out = entry;
        return HETMPI_SUCCESS;
    }
    entry->next = cache->spare;
    cache->spare = entry;
    return code;
}

static void release(struct reg_cache *cache, struct entry *entry)
{
    if (--entry->users > 0)
        return;
    if (entry->kept)
        idle_add(cache, entry);
    else
        end(cache, entry);
}

static int get(struct reg_cache *cache, const void *ptr, size_t bytes, unsigned access, struct entry **out)
{
    struct mem_pointer what;
    struct entry *entry = NULL;
    uintptr_t at = (uintptr_t)ptr;
    bool keep;
    int code;

    mem_query(ptr, &what);
    if (what.kind == MEM_DEVICE && reg_out_of_reach(&cache->ways))
        return HETMPI_ERR_UNSUPPORTED;
    keep = what.id && !(access & REMOTE) && at - (uintptr_t)what.base <= what.bytes &&
           bytes <= what.bytes - (at - (uintptr_t)what.base);
    if (keep)
        entry = find(cache, what.id, access);
    if (entry) {
        if (entry->users++ == 0)
            idle_remove(cache, entry);
        cache->stats.hits++;
    } else {
        cache->stats.misses++;
        code = add(cache, ptr, bytes, &what, access, keep, &entry);
        if (code == HETMPI_ERR_MEMORY && keep)   /* not the whole allocation; maybe this part of it */
            code = add(cache, ptr, bytes, &what, access, false, &entry);
        if (code)
            return code == HETMPI_ERR_MEMORY ? HETMPI_ERR_UNSUPPORTED : code;
    }
    if (!entry->mr) {
        release(cache, entry);
        return err_set(HETMPI_ERR_UNSUPPORTED, "%zu bytes of memory at %#zx could not be registered before",
                       entry->reg.bytes, (size_t)entry->reg.base);
    }
    *out = entry;
    return HETMPI_SUCCESS;
}

int reg_get(struct reg_cache *cache, const void *ptr, size_t bytes, unsigned access, const struct reg **reg)
{
    struct entry *entry = NULL;
    int code;

    if (atomic_load_explicit(&caches.forked, memory_order_relaxed))
        return err_set(HETMPI_ERR_STATE, "registered memory: this process was made by fork(), and its parent's NICs are not "
                       "its own; start it as an MPI process instead");
    pthread_mutex_lock(&cache->lock);
    code = get(cache, ptr, bytes, access, &entry);
    pthread_mutex_unlock(&cache->lock);
    if (!code)
        *reg = &entry->reg;
    return code;
}

void reg_put(struct reg_cache *cache, const struct reg *reg)
{
    if (atomic_load_explicit(&caches.forked, memory_order_relaxed))
        return;
    pthread_mutex_lock(&cache->lock);
    release(cache, (struct entry *)(uintptr_t)reg);
    pthread_mutex_unlock(&cache->lock);
}

void reg_cache_destroy(struct reg_cache *cache)
{
    struct reg_cache **link = &caches.first;
    struct entry *spare, *next;

    if (!cache || atomic_load(&caches.forked))
        return;
    pthread_mutex_lock(&caches.lock);
    while (*link != cache)
        link = &(*link)->next;
    *link = cache->next;
    pthread_mutex_unlock(&caches.lock);
    while (cache->oldest)
        drop(cache, cache->oldest);
    if (cache->stats.entries > 0)
        log_warn("registered memory: %zu registrations (%zu bytes) are still in use when their cache ends",
                 cache->stats.entries, cache->stats.bytes);
    for (spare = cache->spare; spare; spare = next) {
        next = spare->next;
        free(spare);
    }
    pthread_mutex_destroy(&cache->lock);
    free(cache);
}

void reg_cache_stats(struct reg_cache *cache, struct reg_stats *stats)
{
    pthread_mutex_lock(&cache->lock);
    *stats = cache->stats;
    pthread_mutex_unlock(&cache->lock);
}

enum reg_way reg_cache_way(struct reg_cache *cache, char *why, size_t bytes)
{
    enum reg_way way;

    pthread_mutex_lock(&cache->lock);
    way = cache->ways.device;
    reg_why(&cache->ways, why, bytes);
    pthread_mutex_unlock(&cache->lock);
    return way;
}

/* Drops, or takes from the sight of others, all that is kept of an allocation. */
static void forget(struct reg_cache *cache, uint64_t id)
{
    struct entry *entry = *bucket_of(cache, id), *next;

    for (; entry; entry = next) {
        next = entry->next;
        if (entry->id != id)
            continue;
        if (entry->users == 0)
            drop(cache, entry);
        else
            unlist(cache, entry);
    }
}

void reg_forget(const void *ptr)
{
    struct mem_pointer what;

    mem_query(ptr, &what);
    if (!what.id || atomic_load(&caches.forked))
        return;
    pthread_mutex_lock(&caches.lock);
    for (struct reg_cache *cache = caches.first; cache; cache = cache->next) {
        pthread_mutex_lock(&cache->lock);
        forget(cache, what.id);
        pthread_mutex_unlock(&cache->lock);
    }
    pthread_mutex_unlock(&caches.lock);
}
