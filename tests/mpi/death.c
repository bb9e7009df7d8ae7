/* A rank that dies on purpose: see death.h. */
#define _GNU_SOURCE
#include "death.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common.h"

#define PATIENCE_S 20.0      /* for the other survivors to leave their files */

static struct {
    char folder[400];
    int signal;
    double seconds;
    const char *(*phase)(void);
} plan;

void death_prepare(const char *folder, int by)
{
    signal(SIGTERM, SIG_IGN); /* of an mpiexec that ends the job because one rank died */
    signal(SIGUSR1, SIG_IGN); /* by which MPICH's mpiexec tells the others, whether they listen or not */
    snprintf(plan.folder, sizeof plan.folder, "%s", folder);
    plan.signal = by;
}

void death_write(const char *name, const char *text)
{
    char path[512], temporary[512];
    snprintf(path, sizeof path, "%s/%s", plan.folder, name);
    snprintf(temporary, sizeof temporary, "%s/.%s", plan.folder, name);
    FILE *file = fopen(temporary, "w");
    if (!file)
        t_fatal("cannot write %s", temporary);
    fputs(text, file);
    fclose(file);
    rename(temporary, path); /* readers see all of it or nothing */
}

static void *die(void *arg)
{
    char text[128];
    (void)arg;
    t_sleep(plan.seconds);
    snprintf(text, sizeof text, "%.6f %d %s\n", t_now(), (int)getpid(), plan.phase ? plan.phase() : "-");
    death_write("death", text);
    kill(getpid(), plan.signal);
    return NULL;
}

void death_plan(double seconds, const char *(*phase)(void))
{
    pthread_t thread;
    plan.seconds = seconds;
    plan.phase = phase;
    if (pthread_create(&thread, NULL, die, NULL))
        t_fatal("pthread_create failed");
}

bool death_happened(double *when, int *victim)
{
    char path[512];
    *when = t_now();
    *victim = 0;
    snprintf(path, sizeof path, "%s/death", plan.folder);
    FILE *file = fopen(path, "r");
    if (!file)
        return false;
    bool there = fscanf(file, "%lf %d", when, victim) == 2;
    fclose(file);
    return there;
}

void death_leave(int victim)
{
    double until = t_now() + PATIENCE_S, when;
    int process;
    for (int r = 0; r < t_ranks; r++) {
        char path[512];
        snprintf(path, sizeof path, "%s/rank.%d", plan.folder, r);
        while (r != victim && access(path, F_OK) != 0 && t_now() < until)
            t_sleep(0.005);
    }
    if (plan.signal == SIGSTOP && t_rank == (victim == 0) && death_happened(&when, &process) && process > 0)
        kill(process, SIGKILL); /* mpiexec waits for it */
    _exit(0); /* MPI_Finalize cannot end well without the victim */
}
