/*
 * One rank kills itself, as kill -9 would, in the middle of a loop of allreduces, or of messages around a ring; the
 * others must end with an error that names it. Started by kill.sh, which judges by the files that the
 * survivors leave (the MPI's own end of such a job means nothing):
 *
 *     kill FOLDER small|large|messages VICTIM [stop]
 *
 * FOLDER/rank.R: "CODE SECONDS MESSAGE" of rank R, seconds since the victim's death. stop: it stops instead of dying, until
 * all others have given up on it. A communicator without the victim goes on working in both cases.
 */
#include "common.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "death.h"

#define LARGE 400009
#define LIFE_S 0.15          /* of the victim, once the loop runs */

int main(int argc, char **argv)
{
    if (argc > 1)
        death_prepare(argv[1], argc > 4 && strcmp(argv[4], "stop") == 0 ? SIGSTOP : SIGKILL);
    t_begin(&argc, &argv, "kill", MPI_THREAD_SINGLE);
    t_watchdog(60);
    if (argc < 4 || t_ranks < 2)
        t_fatal("usage: kill FOLDER small|large|messages VICTIM [stop], on 2 ranks or more");
    size_t n = strcmp(argv[2], "small") == 0 ? 7 : LARGE;
    bool messages = strcmp(argv[2], "messages") == 0;
    int victim = atoi(argv[3]), code = HETMPI_SUCCESS;
    int right_rank = (t_rank + 1) % t_ranks, left_rank = (t_rank + t_ranks - 1) % t_ranks;
    int32_t *x = t_malloc(n * sizeof *x), *y = t_malloc(n * sizeof *y);
    MPI_Comm others;
    T_MPI(MPI_Comm_split(MPI_COMM_WORLD, t_rank == victim, t_rank, &others));
    T_MPI(MPI_Comm_set_errhandler(others, MPI_ERRORS_RETURN));
    T_OK(hetmpi_comm_attach(others, MPI_INFO_NULL));
    T_OK(hetmpi_barrier(MPI_COMM_WORLD));
    if (t_rank == victim)
        death_plan(LIFE_S, NULL);
    bool right = true;
    t_stage("loop of %s", messages ? "messages" : "allreduces");
    for (int call = 0; code == HETMPI_SUCCESS; call++) {
        for (size_t i = 0; i < n; i++)
            x[i] = call + (int32_t)i;
        if (messages)
            code = hetmpi_sendrecv(x, n, MPI_INT32_T, right_rank, 1, y, n, MPI_INT32_T, left_rank, 1, MPI_COMM_WORLD,
                                   MPI_STATUS_IGNORE);
        else
            code = hetmpi_allreduce(MPI_IN_PLACE, x, n, MPI_INT32_T, MPI_SUM, MPI_COMM_WORLD);
        if (code == HETMPI_SUCCESS)
            right &= (messages ? y[n - 1] : x[n - 1]) == (call + (int32_t)(n - 1)) * (messages ? 1 : t_ranks);
    }
    char text[700], name[32], message[512];
    int victim_pid;
    double death;
    death_happened(&death, &victim_pid);
    double seconds = t_now() - death;
    snprintf(message, sizeof message, "%s", hetmpi_last_error());
    right &= strchr(message, '\n') == NULL; /* whatever MPI's own text is */
    /* Later calls must fail at once, not wait again. */
    double start = t_now();
    int later = hetmpi_barrier(MPI_COMM_WORLD);
    right &= later != HETMPI_SUCCESS && t_now() - start < 1;
    /* Those that live go on without it. */
    for (int round = 0; round < 3; round++) {
        size_t count = round == 1 ? LARGE : 7;
        int32_t *ones = t_malloc(count * sizeof *ones);
        for (size_t i = 0; i < count; i++)
            ones[i] = 1;
        int alive = hetmpi_allreduce(MPI_IN_PLACE, ones, count, MPI_INT32_T, MPI_SUM, others);
        if (alive != HETMPI_SUCCESS || ones[count - 1] != t_ranks - 1) {
            right = false;
            snprintf(message, sizeof message, "without the victim: %s: %.400s", t_code_name(alive),
                     hetmpi_last_error());
        }
        free(ones);
    }
    snprintf(text, sizeof text, "%s %.3f %s\n", right ? t_code_name(code) : "WRONG", seconds, message);
    snprintf(name, sizeof name, "rank.%d", t_rank);
    death_write(name, text);
    death_leave(victim);
}
