/*
 * Rails that come and go while collectives run: rank 0 calls the shell commands of its arguments, one after the other, at
 * equal distances, the others and it go on. Every result must be right, and no call may take longer than it is given.
 * Usage: rails_lost SECONDS LONGEST COMMAND...
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../mpi/common.h"

#define ELEMENTS ((size_t)1 << 19)       /* 2 MiB: chunks, several at once; each is striped */
#define FEW ((size_t)1500)               /* 6 KB: the rings' entries */

static uint32_t *send_buffer, *recv_buffer;

/* What rank r gives in round n at place i. */
static uint32_t value(int r, unsigned n, size_t i)
{
    return (uint32_t)(i * 2654435761u) ^ (n * 40503u + (uint32_t)r * 977u);
}

static void one_allreduce(unsigned round, size_t count, double *longest)
{
    double began = t_now(), took;
    size_t wrong = 0;

    for (size_t i = 0; i < count; i++)
        send_buffer[i] = value(t_rank, round, i);
    memset(recv_buffer, 0xff, count * sizeof(uint32_t));
    T_OK(hetmpi_allreduce(send_buffer, recv_buffer, count, MPI_UINT32_T, MPI_SUM, MPI_COMM_WORLD));
    took = t_now() - began;
    if (took > *longest)
        *longest = took;
    for (size_t i = 0; i < count; i++) {
        uint32_t sum = 0;
        for (int r = 0; r < t_ranks; r++)
            sum += value(r, round, i);
        wrong += recv_buffer[i] != sum;
    }
    T_CHECK(!wrong, "round %u: %zu of %zu elements are wrong", round, wrong, count);
}

static void start(const char *command)
{
    pid_t pid = fork();

    if (pid == 0) {
        execl("/bin/bash", "bash", "-c", command, (char *)NULL);
        _exit(127);
    }
}

int main(int argc, char **argv)
{
    double longest = 0, seconds, most, began, next;
    int command = 3, go_on = 1;
    unsigned round = 0;
    hetmpi_comm_info_t info;

    t_begin(&argc, &argv, "rails_lost", MPI_THREAD_SINGLE);
    if (argc < 3)
        t_fatal("usage: rails_lost SECONDS LONGEST COMMAND...");
    seconds = atof(argv[1]);
    most = atof(argv[2]);
    send_buffer = t_malloc(ELEMENTS * sizeof(uint32_t));
    recv_buffer = t_malloc(ELEMENTS * sizeof(uint32_t));
    one_allreduce(round++, ELEMENTS, &longest);
    began = t_now();
    next = seconds / (argc - 2);
    longest = 0;
    while (go_on && !t_failures()) {
        if (t_rank == 0 && command < argc && t_now() - began > next * (command - 2)) {
            start(argv[command]);
            fprintf(stderr, "rails_lost: round %u, longest call so far %.2f s: %s\n", round, longest, argv[command]);
            command++;
        }
        one_allreduce(round++, ELEMENTS, &longest);
        one_allreduce(round++, FEW, &longest);
        go_on = t_now() - began < seconds;
        T_MPI(MPI_Bcast(&go_on, 1, MPI_INT, 0, MPI_COMM_WORLD));
    }
    T_OK(hetmpi_comm_info(MPI_COMM_WORLD, &info));
    T_CHECK(longest < most, "a call took %.2f s, it may take %.2f", longest, most);
    if (t_rank == 0)
        fprintf(stderr, "rails_lost: %u calls, the longest %.2f s; wire %s, %d rails\n", round, longest, info.wire, info.rails);
    return t_end();
}
