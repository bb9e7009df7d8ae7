/*
 * More than 2^31 elements: an in-place allreduce of 2^31 + 12345 bytes, every byte of it checked. Two ranks need about
 * 5 GiB; skipped where that is not free.
 */
#include "oracle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT (((size_t)1 << 31) + 12345)
#define NEEDED_KIB_A_RANK ((size_t)2600 * 1024)

static size_t free_kib(void)
{
    char line[256];
    size_t kib = 0;
    FILE *file = fopen("/proc/meminfo", "r");
    if (!file)
        return 0;
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "MemAvailable: %zu", &kib) == 1)
            break;
    fclose(file);
    /* A container may have less than the machine. */
    static const char *const files[2][2] = { { "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current" },
        { "/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes" } };
    for (int i = 0; i < 2; i++) {
        unsigned long long limit = 0, used = 0;
        FILE *max = fopen(files[i][0], "r"), *now = fopen(files[i][1], "r");
        if (max && now && fscanf(max, "%llu", &limit) == 1 && fscanf(now, "%llu", &used) == 1 && limit > used &&
            (limit - used) / 1024 < kib)
            kib = (size_t)((limit - used) / 1024);
        if (max)
            fclose(max);
        if (now)
            fclose(now);
    }
    return kib;
}

int main(int argc, char **argv)
{
    t_begin(&argc, &argv, "big", MPI_THREAD_SINGLE);
    size_t have = free_kib(), least = 0;
    int fits;
    T_MPI(MPI_Allreduce(&have, &least, 1, MPI_UNSIGNED_LONG, MPI_MIN, MPI_COMM_WORLD));
    fits = least >= NEEDED_KIB_A_RANK * (size_t)t_ranks;
    if (!fits)
        t_skip("%zu MiB of memory are free, %zu MiB are needed", least / 1024,
               NEEDED_KIB_A_RANK * (size_t)t_ranks / 1024);
    unsigned char patterns[16][T_PATTERN], sum[T_PATTERN];
    const void *pointers[16];
    if (t_ranks > 16)
        t_fatal("made for few ranks");
    for (int r = 0; r < t_ranks; r++) {
        t_pattern(T_U8, T_SUM, T_EXACT, 31, r, patterns[r]);
        pointers[r] = patterns[r];
    }
    t_oracle(T_U8, T_SUM, pointers, t_ranks, sum);
    unsigned char *x = t_malloc(COUNT + 64);
    t_stage("allreduce of %zu bytes", COUNT);
    t_repeat(x, patterns[t_rank], 1, 0, COUNT);
    memset(x + COUNT, 0xC7, 64);
    double start = t_now();
    T_OK(hetmpi_allreduce(MPI_IN_PLACE, x, COUNT, MPI_UINT8_T, MPI_SUM, MPI_COMM_WORLD));
    if (t_rank == 0)
        printf("allreduce of %zu bytes: %.2f s\n", COUNT, t_now() - start);
    t_expect(T_U8, x, sum, 0, COUNT, "allreduce of more than 2^31 elements");
    for (int i = 0; i < 64; i++)
        if (!T_CHECK(x[COUNT + (size_t)i] == 0xC7, "byte %d behind the buffer was written", i))
            break;
    /* The same count as a mismatch in its upper half: 2^32 more on one rank must be seen, not cut off. */
    if (t_ranks > 1)
        T_CODE(HETMPI_ERR_MISMATCH,
               hetmpi_bcast(x, t_rank == 1 ? 5 : 5 + ((size_t)1 << 32), MPI_BYTE, 1, MPI_COMM_WORLD));
    free(x);
    return t_end();
}
