/*
 * What a failed call leaves behind: once it has returned its error, nothing touches the caller's buffers any more,
 * whatever was queued on the device. hetmpi_comm_abort from another thread ends calls at many places; a slow simulated
 * device (HETMPI_SIM_FAULT=slow@1:TIME) makes sure that there is work in its queues. On
 * other nodes too, whatever thread of the program aborts, and below MPI_THREAD_MULTIPLE without a call of MPI from it.
 *
 *     failed [funneled|serialized]
 */
#include "common.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define N 60013
#define STALE 0x5A
#define TURNS 12

static pthread_t main_thread;
static _Atomic int foreign;   /* MPI calls of other threads */

/* MPI calls that hetmpi makes in this file's tests go through these. */
static void count_foreign(void)
{
    if (!pthread_equal(pthread_self(), main_thread))
        foreign++;
}

int MPI_Comm_get_attr(MPI_Comm comm, int keyval, void *value, int *flag)
{
    count_foreign();
    return PMPI_Comm_get_attr(comm, keyval, value, flag);
}

int MPI_Isend(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *request)
{
    count_foreign();
    return PMPI_Isend(data, count, type, to, tag, comm, request);
}

int MPI_Improbe(int from, int tag, MPI_Comm comm, int *flag, MPI_Message *message, MPI_Status *status)
{
    count_foreign();
    return PMPI_Improbe(from, tag, comm, flag, message, status);
}

int MPI_Comm_call_errhandler(MPI_Comm comm, int code)
{
    count_foreign();
    return PMPI_Comm_call_errhandler(comm, code);
}

struct abort_later { MPI_Comm comm; double seconds; };

static void *abort_later(void *argument)
{
    const struct abort_later *later = argument;
    t_sleep(later->seconds);
    T_OK(hetmpi_comm_abort(later->comm));
    T_CODE(HETMPI_ERR_STATE, hetmpi_comm_abort(MPI_COMM_SELF)); /* never used with hetmpi here */
    return NULL;
}

static void check_buffers(size_t count, double seconds)
{
    struct abort_later later = { .seconds = seconds };
    pthread_t thread;
    size_t bytes = count * sizeof(int32_t), i = 0;
    unsigned char *in = t_malloc(bytes), *out = t_malloc(bytes);

    t_stage("%zu elements, aborted after %.0f ms", count, 1e3 * seconds);
    memset(in, 1, bytes);
    T_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &later.comm));
    T_MPI(MPI_Comm_set_errhandler(later.comm, MPI_ERRORS_RETURN));
    T_OK(hetmpi_barrier(later.comm));
    T_MPI(MPI_Barrier(MPI_COMM_WORLD)); /* some may be in hetmpi's barrier still when others are through */
    if (t_rank == 0 && pthread_create(&thread, NULL, abort_later, &later) != 0)
        t_fatal("no thread");
    int code = HETMPI_SUCCESS;
    while (code == HETMPI_SUCCESS)
        code = hetmpi_allreduce(in, out, count, MPI_INT32_T, MPI_SUM, later.comm);
    T_CODE(HETMPI_ERR_ABORTED, code);
    memset(in, STALE, bytes);   /* a sanitizer of threads sees late reads */
    memset(out, STALE, bytes);
    t_sleep(0.1);
    while (i < bytes && out[i] == STALE)
        i++;
    T_CHECK(i == bytes, "byte %zu of the receive buffer was written after the call had failed", i);
    if (t_rank == 0)
        pthread_join(thread, NULL);
    T_MPI(MPI_Comm_free(&later.comm));
    free(in);
    free(out);
}

int main(int argc, char **argv)
{
    const char *level = argc > 1 ? argv[1] : "multiple";
    bool multiple = strcmp(level, "multiple") == 0, serialized = strcmp(level, "serialized") == 0;
    t_begin(&argc, &argv, "failed",
            multiple ? MPI_THREAD_MULTIPLE : serialized ? MPI_THREAD_SERIALIZED : MPI_THREAD_FUNNELED);
    main_thread = pthread_self();
    for (int turn = 0; turn < TURNS; turn += serialized ? 5 : 1) {
        check_buffers(N, 0.02 + 0.007 * turn);
        check_buffers(300, 0.001 * turn);
    }
    T_CHECK(multiple || foreign == 0, "%d calls of MPI from a thread that is not the main one", (int)foreign);
    return t_end();
}
