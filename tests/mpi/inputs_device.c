/*
 * Inputs that people's programs met elsewhere, about devices: kernels that still write a buffer when a collective is
 * called; a process that uses another device than the first; two ranks on one device and a third elsewhere; a source in
 * device and a destination in host memory; addresses that were freed and allocated again. For 3 ranks. Needs the device
 * runtime's own calls for work on streams, so internals are linked.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common.h"
#include "mem/mem.h"

static int device;   /* of this rank, -1: none */

/* Nothing that hetmpi does moves the caller to another device. */
static void check_device(const char *after)
{
    T_CHECK(mem_device() == device, "device %d after %s, not %d", mem_device(), after, device);
}

static void fill(int32_t *x, size_t n, int32_t base)
{
    for (size_t i = 0; i < n; i++)
        x[i] = base + (int32_t)(i % 1000) + t_rank;
}

static size_t wrong_sums(const int32_t *x, size_t n, int32_t base)
{
    size_t wrong = 0;
    for (size_t i = 0; i < n; i++)
        wrong += x[i] != (base + (int32_t)(i % 1000)) * t_ranks + t_ranks * (t_ranks - 1) / 2;
    return wrong;
}

/* A queue of slow copies to the buffer; the last brings the data that counts. */
enum { SLOW = 20 };
static void write_slowly(void *x, void *const sources[SLOW], size_t bytes, hetmpi_stream_t stream)
{
    for (int i = 0; i < SLOW; i++)
        T_OK(mem_copy_async(x, sources[i], bytes, (mem_stream_t *)stream));
}

static void check_slow_kernel(size_t n)
{
    size_t bytes = n * sizeof(int32_t);
    void *x = NULL, *sources[SLOW], *result = NULL;
    hetmpi_stream_t stream;
    t_stage("a buffer still being written, %zu elements", n);
    T_OK(hetmpi_stream_create(&stream));
    T_OK(hetmpi_malloc(bytes, HETMPI_MEM_DEVICE, &x));
    T_OK(hetmpi_malloc(bytes, HETMPI_MEM_HOST, &result));
    for (int i = 0; i < SLOW; i++) {
        T_OK(hetmpi_malloc(bytes, HETMPI_MEM_HOST, &sources[i]));
        fill(sources[i], n, i);
    }
    /* In the stream's order: exact, and so is the work that comes behind it. */
    write_slowly(x, sources, bytes, stream);
    T_OK(hetmpi_allreduce_on_stream(MPI_IN_PLACE, x, n, MPI_INT32_T, MPI_SUM, MPI_COMM_WORLD, stream));
    T_OK(mem_copy_async(result, x, bytes, (mem_stream_t *)stream));
    T_OK(mem_set_async(x, 0, bytes, (mem_stream_t *)stream));
    T_OK(hetmpi_stream_synchronize(stream));
    T_CHECK(wrong_sums(result, n, SLOW - 1) == 0, "on_stream: %zu wrong elements", wrong_sums(result, n, SLOW - 1));
    /* The blocking form: the caller synchronises first, as hetmpi.h says. */
    write_slowly(x, sources, bytes, stream);
    T_OK(hetmpi_stream_synchronize(stream));
    T_OK(hetmpi_allreduce(MPI_IN_PLACE, x, n, MPI_INT32_T, MPI_SUM, MPI_COMM_WORLD));
    T_OK(hetmpi_memcpy(result, x, bytes));
    T_CHECK(wrong_sums(result, n, SLOW - 1) == 0, "blocking: %zu wrong elements", wrong_sums(result, n, SLOW - 1));
    /* Who does not gets what stands there: shown, since it may have come in time. */
    write_slowly(x, sources, bytes, stream);
    T_OK(hetmpi_allreduce(x, result, n, MPI_INT32_T, MPI_SUM, MPI_COMM_WORLD));
    T_OK(hetmpi_stream_synchronize(stream));
    if (t_rank == 0)
        printf("without synchronising: %zu of %zu elements are of older data\n", wrong_sums(result, n, SLOW - 1), n);
    for (int i = 0; i < SLOW; i++)
        T_OK(hetmpi_free(sources[i]));
    T_OK(hetmpi_free(x));
    T_OK(hetmpi_free(result));
    T_OK(hetmpi_stream_destroy(stream));
    check_device("calls on a stream");
}

/* Where a rank's memory is, and that results are right, from any thread. */
static void use_device(MPI_Comm comm, size_t n)
{
    int32_t *host = t_malloc(n * sizeof *host);
    struct mem_pointer pointer;
    hetmpi_comm_info_t info;
    void *x = NULL;
    T_OK(hetmpi_malloc(n * sizeof *host, HETMPI_MEM_DEVICE, &x));
    T_OK(mem_query(x, &pointer));
    T_CHECK(pointer.kind == MEM_DEVICE && pointer.device == device, "memory of device %d, not %d", pointer.device,
            device);
    fill(host, n, 5);
    T_OK(hetmpi_memcpy(x, host, n * sizeof *host));
    check_device("hetmpi_memcpy");
    T_OK(hetmpi_allreduce(MPI_IN_PLACE, x, n, MPI_INT32_T, MPI_SUM, comm));
    check_device("hetmpi_allreduce");
    T_OK(hetmpi_memcpy(host, x, n * sizeof *host));
    T_CHECK(wrong_sums(host, n, 5) == 0, "%zu wrong elements", wrong_sums(host, n, 5));
    T_OK(hetmpi_comm_info(comm, &info));
    T_CHECK(info.device == device, "hetmpi_comm_info says device %d, not %d", info.device, device);
    T_OK(hetmpi_free(x));
    check_device("hetmpi_free");
    free(host);
}

static void *in_thread(void *arg)
{
    check_device("the start of a thread");
    use_device(*(MPI_Comm *)arg, 3);
    use_device(*(MPI_Comm *)arg, 50021);
    return NULL;
}

static void check_devices(void)
{
    enum { THREADS = 2 };
    pthread_t threads[THREADS];
    MPI_Comm comms[THREADS];
    int provided = 0;
    t_stage("device %d", device);
    use_device(MPI_COMM_WORLD, 3);
    use_device(MPI_COMM_WORLD, 50021);
    MPI_Query_thread(&provided);
    if (provided < MPI_THREAD_MULTIPLE)
        return;
    t_stage("device %d, from threads", device);
    for (int i = 0; i < THREADS; i++)
        T_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]));
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, in_thread, &comms[i]))
            t_fatal("pthread_create failed");
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++)
        T_MPI(MPI_Comm_free(&comms[i]));
}

/* From device to host memory and back, on the same rank. */
static void check_two_places(enum t_place from_place, enum t_place to_place, size_t n)
{
    size_t all = n * (size_t)t_ranks, bytes = all * sizeof(int32_t), wrong = 0;
    int32_t *host = t_malloc(bytes);
    struct t_buf from, to;
    t_stage("%s to %s memory, %zu elements", t_place_name(from_place), t_place_name(to_place), n);
    t_buf_new(&from, from_place, bytes);
    t_buf_new(&to, to_place, bytes);
    t_buf_use(&from, bytes, 4);
    t_buf_use(&to, bytes, 4);
    fill(host, all, 9);
    t_buf_put(&from, host);
    T_OK(hetmpi_allreduce(from.data, to.data, all, MPI_INT32_T, MPI_SUM, MPI_COMM_WORLD));
    t_buf_get(&to, host);
    T_CHECK(wrong_sums(host, all, 9) == 0, "allreduce: %zu wrong elements", wrong_sums(host, all, 9));
    T_OK(hetmpi_alltoall(from.data, n, MPI_INT32_T, to.data, n, MPI_INT32_T, MPI_COMM_WORLD));
    t_buf_get(&to, host);
    for (size_t i = 0; i < all; i++)
        wrong += host[i] != 9 + (int32_t)(((size_t)t_rank * n + i % n) % 1000) + (int32_t)(i / n);
    T_CHECK(wrong == 0, "alltoall: %zu wrong elements", wrong);
    T_OK(hetmpi_allgather(from.data, n, MPI_INT32_T, to.data, n, MPI_INT32_T, MPI_COMM_WORLD));
    t_buf_get(&to, host);
    wrong = 0;
    for (size_t i = 0; i < all; i++)
        wrong += host[i] != 9 + (int32_t)(i % n % 1000) + (int32_t)(i / n);
    T_CHECK(wrong == 0, "allgather: %zu wrong elements", wrong);
    t_buf_guards(&to);
    t_buf_guards(&from);
    t_buf_free(&from);
    t_buf_free(&to);
    free(host);
}

/* What hetmpi remembers of an address must not outlive the memory there. */
static void check_again(enum t_place place, size_t n)
{
    void *before = NULL;
    int again = 0;
    int32_t *host = t_malloc(2 * n * sizeof *host);
    t_stage("%s memory freed and allocated again", t_place_name(place));
    for (int round = 0; round < 12; round++) {
        struct t_buf buf;
        size_t used = round % 3 == 2 ? n / 2 : n;
        t_buf_new(&buf, place, round % 2 ? n * sizeof *host : (n + 8) * sizeof *host);
        again += buf.raw == before;
        before = buf.raw;
        t_buf_use(&buf, used * sizeof *host, 0);
        fill(host, used, round);
        t_buf_put(&buf, host);
        T_OK(hetmpi_allreduce(MPI_IN_PLACE, buf.data, used, MPI_INT32_T, MPI_SUM, MPI_COMM_WORLD));
        t_buf_get(&buf, host);
        T_CHECK(wrong_sums(host, used, round) == 0, "round %d: %zu wrong elements", round,
                wrong_sums(host, used, round));
        t_buf_free(&buf);
    }
    if (place == T_DEVICE && !t_sanitized())
        T_CHECK(again > 0, "no address came back: the test shows nothing");
    free(host);
}

/* One host address that is plain, registered, plain again, and gone in between. */
static void check_mapped(size_t n)
{
    size_t bytes = (n * sizeof(int32_t) + 4095) / 4096 * 4096;
    int32_t *x = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    t_stage("host memory that is registered, unmapped, mapped again");
    for (int round = 0; round < 6; round++) {
        if (x == MAP_FAILED)
            t_fatal("mmap of %zu bytes failed", bytes);
        if (round % 3 == 1)
            T_OK(hetmpi_register(x, bytes));
        fill(x, n, round);
        T_OK(hetmpi_allreduce(MPI_IN_PLACE, x, n, MPI_INT32_T, MPI_SUM, MPI_COMM_WORLD));
        T_CHECK(wrong_sums(x, n, round) == 0, "round %d: %zu wrong elements", round, wrong_sums(x, n, round));
        if (round % 3 == 1)
            T_OK(hetmpi_deregister(x));
        munmap(x, bytes);
        x = mmap(x, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    }
    munmap(x, bytes);
}

int main(int argc, char **argv)
{
    t_begin(&argc, &argv, "inputs_device", MPI_THREAD_MULTIPLE);
    int provided = 0;
    MPI_Query_thread(&provided);
    if (t_ranks != 3)
        t_skip("made for 3 ranks");
    /* Ranks 0 and 1, of two vendors, say the same number, the third another; none is the first device. */
    setenv("HETMPI_DEVICE", t_rank < 2 ? "1" : "2", 1);
    device = t_rank < 2 ? 1 : 2;
    check_devices();
    if (provided == MPI_THREAD_MULTIPLE) {
        check_slow_kernel(100);
        check_slow_kernel(30011);
    }
    for (size_t n = 5; n < 100000; n *= 5000) {
        check_two_places(T_DEVICE, T_PAGEABLE, n);
        check_two_places(T_DEVICE, T_PINNED, n);
        check_two_places(T_PAGEABLE, T_DEVICE, n);
    }
    check_again(T_DEVICE, 100003);
    check_again(T_PINNED, 100003);
    check_again(T_PAGEABLE, 100003);
    check_mapped(100003);
    return t_end();
}
