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
#define _GNU_SOURCE
#include "common.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LARGE 400009
#define LIFE_S 0.15          /* of the victim, once the loop runs */
#define PATIENCE_S 20.0      /* for the other survivors to leave their files */

static char folder[400];
static int death = SIGKILL;   /* the signal */

static void write_file(const char *name, const char *text)
{
    char path[512], temporary[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    snprintf(temporary, sizeof temporary, "%s/.%s", folder, name);
    FILE *file = fopen(temporary, "w");
    if (!file)
        t_fatal("cannot write %s", temporary);
    fputs(text, file);
    fclose(file);
    rename(temporary, path); /* readers see all of it or nothing */
}

static void *die(void *arg)
{
    char text[64];
    (void)arg;
    t_sleep(LIFE_S);
    snprintf(text, sizeof text, "%.6f %d\n", t_now(), (int)getpid());
    write_file("death", text);
    kill(getpid(), death);
    return NULL;
}

static double death_time(int *victim_pid)
{
    char path[512];
    double at = t_now();
    *victim_pid = 0;
    snprintf(path, sizeof path, "%s/death", folder);
    FILE *file = fopen(path, "r");
    if (!file)
        return at;
    if (fscanf(file, "%lf %d", &at, victim_pid) != 2)
        at = t_now();
    fclose(file);
    return at;
}

/* The first that leaves may make mpiexec end the rest: wait until all have written. */
static void wait_for_others(int victim)
{
    double until = t_now() + PATIENCE_S;
    for (int r = 0; r < t_ranks; r++) {
        char path[512];
        snprintf(path, sizeof path, "%s/rank.%d", folder, r);
        while (r != victim && access(path, F_OK) != 0 && t_now() < until)
            t_sleep(0.005);
    }
}

int main(int argc, char **argv)
{
    signal(SIGTERM, SIG_IGN); /* of an mpiexec that ends the job because one rank died */
    signal(SIGUSR1, SIG_IGN); /* by which MPICH's mpiexec tells the others, whether they listen or not */
    t_begin(&argc, &argv, "kill", MPI_THREAD_SINGLE);
    t_watchdog(60);
    if (argc < 4 || t_ranks < 2)
        t_fatal("usage: kill FOLDER small|large|messages VICTIM [stop], on 2 ranks or more");
    if (argc > 4 && strcmp(argv[4], "stop") == 0)
        death = SIGSTOP;
    snprintf(folder, sizeof folder, "%s", argv[1]);
    size_t n = strcmp(argv[2], "small") == 0 ? 7 : LARGE;
    bool messages = strcmp(argv[2], "messages") == 0;
    int victim = atoi(argv[3]), code = HETMPI_SUCCESS;
    int right_rank = (t_rank + 1) % t_ranks, left_rank = (t_rank + t_ranks - 1) % t_ranks;
    int32_t *x = t_malloc(n * sizeof *x), *y = t_malloc(n * sizeof *y);
    pthread_t thread;
    MPI_Comm others;
    T_MPI(MPI_Comm_split(MPI_COMM_WORLD, t_rank == victim, t_rank, &others));
    T_MPI(MPI_Comm_set_errhandler(others, MPI_ERRORS_RETURN));
    T_OK(hetmpi_comm_attach(others, MPI_INFO_NULL));
    T_OK(hetmpi_barrier(MPI_COMM_WORLD));
    if (t_rank == victim && pthread_create(&thread, NULL, die, NULL))
        t_fatal("pthread_create failed");
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
    double seconds = t_now() - death_time(&victim_pid);
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
    write_file(name, text);
    wait_for_others(victim);
    if (death == SIGSTOP && t_rank == (victim == 0) && victim_pid > 0)
        kill(victim_pid, SIGKILL); /* mpiexec waits for it */
    _exit(0); /* MPI_Finalize cannot end well without the victim */
}
