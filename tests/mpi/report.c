/*
 * What a job says of itself: started by report.sh, which then reads the JSON files that this leaves in FOLDER.
 *
 *     report FOLDER [file]
 *
 * HETMPI_REPORT is FOLDER/report.json; after each of the following it is renamed. absent: the last rank never calls;
 * elsewhere: it calls on another communicator; message: it waits for a message; other: it calls something else; dump: the
 * others wait for it, and it comes once they have been asked what they do, by a signal to rank 0 (HETMPI_DUMP=SIGUSR2), or
 * by FOLDER/ask (HETMPI_DUMP), and have answered.
 */
#include "common.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define N 70001
#define LATER_S 0.4

static int32_t data[N];
static char folder[400];
static _Atomic int handled;   /* signals that this program's own handler saw */

static bool exists(const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

static void own_handler(int signal)
{
    (void)signal;
    handled++;
}

static void *ask_by_signal(void *arg)
{
    (void)arg;
    t_sleep(0.3);
    kill(getpid(), SIGUSR2);
    return NULL;
}

static int allreduce(MPI_Comm comm)
{
    return hetmpi_allreduce(MPI_IN_PLACE, data, N, MPI_INT32_T, MPI_SUM, comm);
}

/* Before anybody can write the next one. */
static void keep_report(const char *mode)
{
    char from[512], to[512];
    snprintf(from, sizeof from, "%s/report.json", folder);
    snprintf(to, sizeof to, "%s/%s.json", folder, mode);
    T_CHECK(rename(from, to) == 0, "%s: no report", mode);
}

static void one_is_absent(MPI_Comm comm, MPI_Comm others, bool last)
{
    if (!last)
        T_CODE(HETMPI_ERR_TIMEOUT, allreduce(comm));
    if (!last)
        T_MPI(MPI_Barrier(others));
    if (t_rank == 0)
        keep_report("absent");
    T_MPI(MPI_Barrier(MPI_COMM_WORLD));
}

static void one_is_elsewhere(MPI_Comm comm, MPI_Comm others, bool last)
{
    if (!last) {
        T_CODE(HETMPI_ERR_TIMEOUT, allreduce(comm));
        T_MPI(MPI_Barrier(others));
    }
    if (t_rank == 0)
        keep_report("elsewhere");
    T_OK(hetmpi_bcast(data, N, MPI_INT32_T, 0, MPI_COMM_WORLD)); /* has no timeout: the last rank waits in it */
}

static void one_waits_for_message(MPI_Comm comm, bool last)
{
    if (last) {
        t_sleep(LATER_S); /* the others' time is over first */
        T_CODE(HETMPI_ERR_TIMEOUT, hetmpi_recv(data, 5, MPI_INT32_T, 0, 42, comm, MPI_STATUS_IGNORE));
    } else {
        T_CODE(HETMPI_ERR_TIMEOUT, allreduce(comm));
    }
    T_MPI(MPI_Barrier(MPI_COMM_WORLD));
    if (t_rank == 0)
        keep_report("message");
}

static void one_calls_other(MPI_Comm comm, bool last)
{
    T_CODE(HETMPI_ERR_MISMATCH, last ? hetmpi_bcast(data, N, MPI_INT32_T, 0, comm) : allreduce(comm));
    if (t_rank == 0)
        keep_report("other");
    T_OK(allreduce(comm));
}

static void ask_by_file(void)
{
    char path[512];
    FILE *file;
    t_sleep(0.3);
    snprintf(path, sizeof path, "%s/ask", folder);
    file = fopen(path, "w");
    if (T_CHECK(file != NULL, "cannot write %s", path))
        fclose(file);
}

static void dump(bool by_file, bool last)
{
    pthread_t thread;
    if (t_rank == 0 && !by_file && pthread_create(&thread, NULL, ask_by_signal, NULL) != 0)
        t_fatal("no thread");
    if (last) {
        double until = t_now() + 20;
        if (by_file)
            ask_by_file();
        while (!exists("report.json") && t_now() < until)
            t_sleep(0.01);
        if (by_file)
            t_sleep(0.6); /* each node answers */
        keep_report("dump");
    }
    T_OK(allreduce(MPI_COMM_WORLD));
    if (t_rank == 0 && !by_file) {
        pthread_join(thread, NULL);
        T_CHECK(handled == 1, "the handler that was there before saw %d signals", (int)handled);
    }
}

/* On which two calls were made, and the third is the one of interest. */
static MPI_Comm new_comm(MPI_Info info)
{
    MPI_Comm comm;
    T_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    T_MPI(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    T_OK(hetmpi_comm_attach(comm, info));
    T_OK(hetmpi_barrier(comm));
    T_OK(hetmpi_barrier(comm));
    return comm;
}

int main(int argc, char **argv)
{
    MPI_Comm comm[4], others;
    MPI_Info info;
    signal(SIGUSR2, own_handler);
    t_begin(&argc, &argv, "report", MPI_THREAD_SINGLE);
    if (argc < 2 || t_ranks < 2)
        t_fatal("usage: report FOLDER [file], on 2 ranks or more");
    snprintf(folder, sizeof folder, "%s", argv[1]);
    bool last = t_rank == t_ranks - 1, by_file = argc > 2 && strcmp(argv[2], "file") == 0;
    T_MPI(MPI_Comm_split(MPI_COMM_WORLD, last, t_rank, &others));
    T_MPI(MPI_Info_create(&info));
    T_MPI(MPI_Info_set(info, "timeout", "1"));
    for (int i = 0; i < 4; i++)
        comm[i] = new_comm(i ? info : MPI_INFO_NULL);
    T_OK(hetmpi_barrier(MPI_COMM_WORLD));
    T_OK(hetmpi_barrier(MPI_COMM_WORLD));
    t_stage("dump");
    dump(by_file, last);
    t_stage("something else");
    one_calls_other(comm[0], last);
    t_stage("absent");
    one_is_absent(comm[1], others, last);
    t_stage("message");
    one_waits_for_message(comm[2], last);
    t_stage("elsewhere");
    one_is_elsewhere(comm[3], others, last);
    for (int i = 0; i < 4; i++)
        T_MPI(MPI_Comm_free(&comm[i]));
    T_MPI(MPI_Info_free(&info));
    T_MPI(MPI_Comm_free(&others));
    return t_end();
}
