/*
 * The buffers of a run: how large they are, where they are, and how numbers get into and out of them. Device memory is
 * reached through a bounce buffer, host memory directly.
 */
#include <stdlib.h>
#include <string.h>

#include "bench.h"

#define ALIGNMENT 4096

static bool copies_for_mpi(const struct bench *bench)
{
    return bench->device && bench->other;
}

static size_t scratch_size(const struct bench *bench, const struct bench_shape *shape)
{
    if (!bench->options->bound || bench->device)
        return 0;
    return (shape->send > shape->recv ? shape->send : shape->recv) * bench->element;
}

size_t buffers_memory(const struct bench *bench, const struct bench_shape *shape)
{
    size_t bytes = (shape->send + shape->recv) * bench->element;

    return bytes * (copies_for_mpi(bench) ? 2 : 1) + 2 * scratch_size(bench, shape);
}

static unsigned char *allocate(const struct bench *bench, size_t bytes)
{
    void *memory = NULL;

    if (bench->device)
        HETMPI(hetmpi_malloc(bytes + GUARD_BYTES, HETMPI_MEM_DEVICE, &memory));
    else if (posix_memalign(&memory, ALIGNMENT, bytes + GUARD_BYTES) != 0)
        die("out of memory: %zu bytes (see -m and -M)", bytes);
    return memory;
}

/* Host memory that copies to and from the device run at full speed with. */
static unsigned char *allocate_pinned(size_t bytes)
{
    void *memory = NULL;

    HETMPI(hetmpi_malloc(bytes, HETMPI_MEM_HOST, &memory));
    return memory;
}

static unsigned char *allocate_plain(size_t bytes)
{
    void *memory = NULL;

    if (bytes && posix_memalign(&memory, ALIGNMENT, bytes) != 0)
        die("out of memory: %zu bytes (see -m and -M)", bytes);
    return memory;
}

void buffers_alloc(struct bench *bench, const struct bench_shape *shape)
{
    size_t send = shape->send * bench->element, recv = shape->recv * bench->element;

    bench->send = allocate(bench, send);
    bench->recv = allocate(bench, recv);
    if (copies_for_mpi(bench)) {
        bench->host_send = allocate_pinned(send);
        bench->host_recv = allocate_pinned(recv);
    }
    bench->bounce = allocate_plain(BOUNCE_BYTES);
    bench->input = allocate_plain(PERIOD * bench->element);
    bench->expected = allocate_plain(PERIOD * bench->element);
    bench->scratch_bytes = scratch_size(bench, shape);
    for (int i = 0; i < 2; i++) {
        bench->scratch[i] = allocate_plain(bench->scratch_bytes);
        if (bench->scratch[i])
            memset(bench->scratch[i], 0, bench->scratch_bytes);
    }
}

void buffers_free(struct bench *bench)
{
    if (bench->device) {
        HETMPI(hetmpi_free(bench->send));
        HETMPI(hetmpi_free(bench->recv));
        HETMPI(hetmpi_free(bench->host_send));
        HETMPI(hetmpi_free(bench->host_recv));
    } else {
        free(bench->send);
        free(bench->recv);
    }
    free(bench->bounce);
    free(bench->input);
    free(bench->expected);
    free(bench->scratch[0]);
    free(bench->scratch[1]);
    free(bench->link);
    free(bench->island_of);
}

/* A window into a buffer that the CPU can work on: the buffer itself, or the bounce buffer. */
static size_t window(const struct bench *bench, size_t left)
{
    return bench->device && left > BOUNCE_BYTES ? BOUNCE_BYTES : left;
}

static unsigned char *window_open(const struct bench *bench, const unsigned char *at, size_t bytes, bool read)
{
    if (!bench->device)
        return (unsigned char *)(uintptr_t)at;
    if (read)
        HETMPI(hetmpi_memcpy(bench->bounce, at, bytes));
    return bench->bounce;
}

static void window_write(const struct bench *bench, unsigned char *at, size_t bytes)
{
    if (bench->device)
        HETMPI(hetmpi_memcpy(at, bench->bounce, bytes));
}

void buffers_zero(struct bench *bench)
{
    size_t send = bench->shape.send * bench->element, recv = bench->shape.recv * bench->element;

    if (send)
        buffer_poison(bench, bench->send, 0, send, 0);
    if (recv)
        buffer_poison(bench, bench->recv, 0, recv, 0);
}

void buffer_fill(const struct bench *bench, unsigned char *buffer, size_t offset, size_t bytes,
                 const unsigned char *table, size_t period, size_t from)
{
    from %= period;
    for (size_t left = bytes, n; left > 0; left -= n) {
        n = window(bench, left);
        unsigned char *at = window_open(bench, buffer + offset, n, false);
        for (size_t done = 0, piece; done < n; done += piece) {
            piece = period - from < n - done ? period - from : n - done;
            memcpy(at + done, table + from, piece);
            from = (from + piece) % period;
        }
        window_write(bench, buffer + offset, n);
        offset += n;
    }
}

static size_t first_difference(const unsigned char *a, const unsigned char *b)
{
    size_t i = 0;

    while (a[i] == b[i])
        i++;
    return i;
}

bool buffer_check(const struct bench *bench, const unsigned char *buffer, size_t offset, size_t bytes,
                  const unsigned char *table, size_t period, size_t from, size_t *wrong)
{
    from %= period;
    for (size_t left = bytes, n; left > 0; left -= n) {
        n = window(bench, left);
        const unsigned char *at = window_open(bench, buffer + offset, n, true);
        for (size_t done = 0, piece; done < n; done += piece) {
            piece = period - from < n - done ? period - from : n - done;
            if (memcmp(at + done, table + from, piece) != 0) {
                *wrong = offset + done + first_difference(at + done, table + from);
                return false;
            }
            from = (from + piece) % period;
        }
        offset += n;
    }
    return true;
}

void buffer_poison(const struct bench *bench, unsigned char *buffer, size_t offset, size_t bytes, unsigned char poison)
{
    for (size_t left = bytes, n; left > 0; left -= n) {
        n = window(bench, left);
        memset(window_open(bench, buffer + offset, n, false), poison, n);
        window_write(bench, buffer + offset, n);
        offset += n;
    }
}

bool buffer_poisoned(const struct bench *bench, const unsigned char *buffer, size_t offset, size_t bytes,
                     unsigned char poison, size_t *wrong)
{
    for (size_t left = bytes, n; left > 0; left -= n) {
        n = window(bench, left);
        const unsigned char *at = window_open(bench, buffer + offset, n, true);
        for (size_t i = 0; i < n; i++) {
            if (at[i] != poison) {
                *wrong = offset + i;
                return false;
            }
        }
        offset += n;
    }
    return true;
}
