/*
 * What an idle job costs: ranks that are joined by the verbs wire do nothing for some seconds, and their processors must
 * show it.
 *
 *     idle [SECONDS]
 */
#include "common.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#define SHARE_MOST 0.01

static double processor_seconds(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

int main(int argc, char **argv)
{
    t_begin(&argc, &argv, "idle", MPI_THREAD_MULTIPLE);
    double seconds = argc > 1 ? atof(argv[1]) : 10;
    int32_t x[1000] = { 0 };
    for (int i = 0; i < 3; i++)
        T_OK(hetmpi_allreduce(MPI_IN_PLACE, x, 1000, MPI_INT32_T, MPI_SUM, MPI_COMM_WORLD));
    double used = processor_seconds();
    t_sleep(seconds);
    used = (processor_seconds() - used) / seconds;
    printf("rank %d: %.2f %% of a core in %.0f s\n", t_rank, used * 100, seconds);
    T_CHECK(used < SHARE_MOST, "%.2f %% of a core", used * 100);
    T_OK(hetmpi_allreduce(MPI_IN_PLACE, x, 1000, MPI_INT32_T, MPI_SUM, MPI_COMM_WORLD));
    return t_end();
}
