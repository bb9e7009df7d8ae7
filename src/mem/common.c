/* The table of memory ranges, pinned host memory, and the behaviour of a rank without a device. See common.h. */
#include "mem/common.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "core/log.h"
#include "hetmpi.h"

/*
 * The table is an array sorted by address, guarded for readers by a sequence number (odd while a writer changes it).
 * Fields are atomics with release stores and acquire loads, so that a reader that saw a new field also sees the new
 * sequence number and tries again. Outgrown arrays are kept until range_clear, because a reader may still be in them.
 */
enum { CELL_BASE, CELL_BYTES, CELL_ID, CELL_KIND, CELL_OWNER, CELL_FIELDS };

struct range_cell { _Atomic uint64_t field[CELL_FIELDS]; };

struct range_table {
    struct range_table *older;
    size_t room;
    struct range_cell cells[];
};

static struct {
    pthread_mutex_t lock;                 /* of writers */
    _Atomic uint64_t sequence;
    _Atomic(struct range_table *) table;
    _Atomic size_t n;
    _Atomic uint64_t last_id;
} ranges = {.lock = PTHREAD_MUTEX_INITIALIZER};

#define SPINS_BEFORE_YIELD 64
#define FIRST_ROOM 64

uint64_t range_new_id(void)
{
    return atomic_fetch_add_explicit(&ranges.last_id, 1, memory_order_relaxed) + 1;
}

static uint64_t cell_get(const struct range_cell *cell, int field)
{
    return atomic_load_explicit(&cell->field[field], memory_order_acquire);
}

static void cell_read(const struct range_cell *cell, struct range *out)
{
    out->base = (uintptr_t)cell_get(cell, CELL_BASE);
    out->bytes = (size_t)cell_get(cell, CELL_BYTES);
    out->id = cell_get(cell, CELL_ID);
    out->kind = (enum range_kind)cell_get(cell, CELL_KIND);
    out->owner = (void *)(uintptr_t)cell_get(cell, CELL_OWNER);
}

static void cell_write(struct range_cell *cell, const struct range *range)
{
    atomic_store_explicit(&cell->field[CELL_BASE], range->base, memory_order_release);
    atomic_store_explicit(&cell->field[CELL_BYTES], range->bytes, memory_order_release);
    atomic_store_explicit(&cell->field[CELL_ID], range->id, memory_order_release);
    atomic_store_explicit(&cell->field[CELL_KIND], (uint64_t)range->kind, memory_order_release);
    atomic_store_explicit(&cell->field[CELL_OWNER], (uint64_t)(uintptr_t)range->owner, memory_order_release);
}

/* How many of the first n ranges begin at or below the address. */
static size_t cells_below(const struct range_table *table, size_t n, uintptr_t address)
{
    size_t lo = 0, hi = n;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;

        if (cell_get(&table->cells[mid], CELL_BASE) <= address)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

bool range_find(uintptr_t address, struct range *out)
{
    for (unsigned tries = 1;; tries++) {
        uint64_t sequence = atomic_load_explicit(&ranges.sequence, memory_order_acquire);
        size_t n = atomic_load_explicit(&ranges.n, memory_order_acquire);
        const struct range_table *table = atomic_load_explicit(&ranges.table, memory_order_acquire);
        bool found = false;

        if (n == 0 && !(sequence & 1))
            return false;
        if (!(sequence & 1) && table && n <= table->room) {
            size_t below = cells_below(table, n, address);

            if (below > 0) {
                cell_read(&table->cells[below - 1], out);
                found = address - out->base < out->bytes;
            }
            if (atomic_load_explicit(&ranges.sequence, memory_order_relaxed) == sequence)
                return found;
        }
        if (tries % SPINS_BEFORE_YIELD == 0)
            sched_yield();
    }
}

static void write_begin(void)
{
    atomic_fetch_add_explicit(&ranges.sequence, 1, memory_order_acq_rel);
}

static void write_end(void)
{
    atomic_fetch_add_explicit(&ranges.sequence, 1, memory_order_acq_rel);
}

/* A table with room for n + 1 ranges, holding the n of the present one. Called with the lock held. */
static struct range_table *table_with_room(struct range_table *table, size_t n)
{
    struct range_table *larger;
    size_t room;

    if (table && n < table->room)
        return table;
    room = table ? 2 * table->room : FIRST_ROOM;
    larger = calloc(1, sizeof(*larger) + room * sizeof(larger->cells[0]));
    if (!larger)
        return NULL;
    larger->older = table;
    larger->room = room;
    for (size_t i = 0; i < n; i++) {
        struct range range;

        cell_read(&table->cells[i], &range);
        cell_write(&larger->cells[i], &range);
    }
    return larger;
}

/* The range that overlaps *range, if any. Called with the lock held. */
static bool find_overlap(const struct range_table *table, size_t n, const struct range *range, struct range *other)
{
    size_t below = table ? cells_below(table, n, range->base + (range->bytes - 1)) : 0;

    if (below == 0)
        return false;
    cell_read(&table->cells[below - 1], other);
    return other->base >= range->base || range->base - other->base < other->bytes;
}

int range_add(const struct range *range)
{
    struct range_table *table;
    struct range other;
    size_t n, place;
    int rc = HETMPI_SUCCESS;

    pthread_mutex_lock(&ranges.lock);
    table = atomic_load_explicit(&ranges.table, memory_order_relaxed);
    n = atomic_load_explicit(&ranges.n, memory_order_relaxed);
    if (find_overlap(table, n, range, &other)) {
        rc = err_set(HETMPI_ERR_ARG, "memory: %zu bytes at %#zx overlap %zu bytes at %#zx that are already %s; "
                     "release those first", range->bytes, (size_t)range->base, other.bytes, (size_t)other.base,
                     other.kind == RANGE_REGISTERED ? "registered" : "allocated");
        goto unlock;
    }
    table = table_with_room(table, n);
    if (!table) {
        rc = err_set(HETMPI_ERR_MEMORY, "memory: no memory for the table of %zu ranges", n + 1);
        goto unlock;
    }
    place = cells_below(table, n, range->base);
    write_begin();
    atomic_store_explicit(&ranges.table, table, memory_order_release);
    for (size_t i = n; i > place; i--) {
        cell_read(&table->cells[i - 1], &other);
        cell_write(&table->cells[i], &other);
    }
    cell_write(&table->cells[place], range);
    atomic_store_explicit(&ranges.n, n + 1, memory_order_release);
    write_end();
unlock:
    pthread_mutex_unlock(&ranges.lock);
    return rc;
}

/* Removes entry `place` of n. Called with the lock held. */
static void remove_at(struct range_table *table, size_t n, size_t place)
{
    struct range moved;

    write_begin();
    for (size_t i = place; i + 1 < n; i++) {
        cell_read(&table->cells[i + 1], &moved);
        cell_write(&table->cells[i], &moved);
    }
    atomic_store_explicit(&ranges.n, n - 1, memory_order_release);
    write_end();
}

bool range_remove(uintptr_t base, unsigned kinds, struct range *out)
{
    struct range_table *table;
    size_t n, below;
    bool found = false;

    pthread_mutex_lock(&ranges.lock);
    table = atomic_load_explicit(&ranges.table, memory_order_relaxed);
    n = atomic_load_explicit(&ranges.n, memory_order_relaxed);
    below = table ? cells_below(table, n, base) : 0;
    if (below > 0) {
        cell_read(&table->cells[below - 1], out);
        found = out->base == base && (kinds & RANGE_BIT(out->kind));
    }
    if (found)
        remove_at(table, n, below - 1);
    pthread_mutex_unlock(&ranges.lock);
    return found;
}

bool range_take(struct range *out)
{
    struct range_table *table;
    size_t n;

    pthread_mutex_lock(&ranges.lock);
    table = atomic_load_explicit(&ranges.table, memory_order_relaxed);
    n = atomic_load_explicit(&ranges.n, memory_order_relaxed);
    if (n > 0) {
        cell_read(&table->cells[n - 1], out);
        remove_at(table, n, n - 1);
    }
    pthread_mutex_unlock(&ranges.lock);
    return n > 0;
}

void range_clear(void)
{
    struct range_table *table, *older;

    pthread_mutex_lock(&ranges.lock);
    table = atomic_load_explicit(&ranges.table, memory_order_relaxed);
    write_begin();
    atomic_store_explicit(&ranges.n, 0, memory_order_release);
    atomic_store_explicit(&ranges.table, NULL, memory_order_release);
    write_end();
    pthread_mutex_unlock(&ranges.lock);
    for (; table; table = older) {
        older = table->older;
        free(table);
    }
}

#define BACKOFF_YIELDS 20
#define BACKOFF_MIN_NS 10000
#define BACKOFF_MAX_NS 1000000

void backoff_wait(struct backoff *backoff)
{
    struct timespec now, pause = {0, 0};
    int64_t waited;

    if (backoff->calls++ < BACKOFF_YIELDS) {
        sched_yield();
        return;
    }
    clock_gettime(CLOCK_MONOTONIC, &now);
    waited = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec - backoff->since;
    if (backoff->since == 0) {
        backoff->since = waited;
        waited = 0;
    }
    pause.tv_nsec = waited / 8;
    if (pause.tv_nsec < BACKOFF_MIN_NS)
        pause.tv_nsec = BACKOFF_MIN_NS;
    if (pause.tv_nsec > BACKOFF_MAX_NS)
        pause.tv_nsec = BACKOFF_MAX_NS;
    nanosleep(&pause, NULL);
}

#define PAGE 4096
#define HUGE_PAGE ((size_t)2 << 20)

void *heap_alloc(size_t bytes)
{
    bool huge = bytes >= 2 * HUGE_PAGE;
    size_t align = huge ? HUGE_PAGE : PAGE;
    size_t whole = bytes + (align - 1) - (bytes + (align - 1)) % align;
    void *ptr;

    if (whole < bytes)
        return NULL;
    ptr = aligned_alloc(align, whole);
    if (ptr && huge)
        (void)madvise(ptr, whole, MADV_HUGEPAGE);   /* a wish: fewer TLB misses in reductions */
    return ptr;
}

int plain_alloc(size_t bytes, void **ptr)
{
    struct range range;
    void *memory;
    int rc;

    if (bytes == 0) {
        *ptr = NULL;
        return HETMPI_SUCCESS;
    }
    memory = heap_alloc(bytes);
    if (!memory)
        return err_set(HETMPI_ERR_MEMORY, "memory: cannot allocate %zu bytes of host memory", bytes);
    range = (struct range){.base = (uintptr_t)memory, .bytes = bytes, .id = range_new_id(), .kind = RANGE_HEAP};
    rc = range_add(&range);
    if (rc) {
        free(memory);
        return rc;
    }
    *ptr = memory;
    return HETMPI_SUCCESS;
}

int plain_free(void *ptr)
{
    struct range range;

    if (!ptr)
        return HETMPI_SUCCESS;
    if (!range_remove((uintptr_t)ptr, RANGE_BIT(RANGE_HEAP), &range))
        return err_set(HETMPI_ERR_ARG, "memory: free of %p, which is not the start of an allocation (freed twice, or "
                       "allocated elsewhere)", ptr);
    free(ptr);
    return HETMPI_SUCCESS;
}

int register_check(const void *ptr, size_t bytes)
{
    if (!ptr || bytes == 0 || (uintptr_t)ptr + (bytes - 1) < (uintptr_t)ptr)
        return err_set(HETMPI_ERR_ARG, "memory: cannot register %zu bytes at %p; give existing host memory", bytes,
                       ptr);
    return HETMPI_SUCCESS;
}

int plain_register(void *ptr, size_t bytes)
{
    struct range range;
    int rc = register_check(ptr, bytes);

    if (rc)
        return rc;
    range = (struct range){.base = (uintptr_t)ptr, .bytes = bytes, .id = range_new_id(), .kind = RANGE_REGISTERED};
    return range_add(&range);
}

int plain_unregister(void *ptr)
{
    struct range range;

    if (!range_remove((uintptr_t)ptr, RANGE_BIT(RANGE_REGISTERED), &range))
        return err_set(HETMPI_ERR_ARG, "memory: %p is not the start of registered memory (unregistered twice?)", ptr);
    return HETMPI_SUCCESS;
}

void plain_clear(void)
{
    struct range range;

    while (range_take(&range))
        if (range.kind == RANGE_HEAP)
            free((void *)range.base);
    range_clear();
}

void plain_query(const void *ptr, struct mem_pointer *out)
{
    struct range range;

    *out = (struct mem_pointer){.kind = MEM_HOST, .device = -1};
    if (!range_find((uintptr_t)ptr, &range))
        return;
    out->kind = MEM_HOST_PINNED;
    out->base = (void *)range.base;
    out->bytes = range.bytes;
    out->id = range.id;
}

void plain_copy(void *dst, const void *src, size_t bytes)
{
    if (bytes > 0 && dst != src)
        memcpy(dst, src, bytes);
}

void plain_wait_value(const _Atomic uint64_t *word, uint64_t value)
{
    struct backoff backoff = {0};

    while (atomic_load_explicit(word, memory_order_acquire) < value)
        backoff_wait(&backoff);
}

int plain_no_ipc(void)
{
    return err_set(HETMPI_ERR_UNSUPPORTED, "device memory handles: this rank has no device (vendor cpu)");
}

int plain_no_dmabuf(void)
{
    return err_set(HETMPI_ERR_UNSUPPORTED, "dma-buf: this rank has no device, hence no device memory");
}
