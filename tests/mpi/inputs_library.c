/*
 * A library that uses hetmpi and does not know of others that do: built twice, under two prefixes (LIBRARY), for
 * inputs_libraries.c. It keeps a communicator, a persistent request and a pending call of its own.
 */
#include <stdlib.h>
#include <string.h>

#include "inputs_library.h"

#define N 20011

static MPI_Comm comm;
static hetmpi_request_t persistent, pending;
static int64_t kept[64], moved[N];
static int ranks, me;

int LIBRARY_OPEN(MPI_Comm parent)
{
    int code;
    MPI_Comm_dup(parent, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Comm_size(comm, &ranks);
    MPI_Comm_rank(comm, &me);
    code = hetmpi_comm_attach(comm, MPI_INFO_NULL);
    return code ? code : hetmpi_allreduce_init(MPI_IN_PLACE, kept, 64, MPI_INT64_T, MPI_SUM, comm, MPI_INFO_NULL,
                                               &persistent);
}

/* Leaves a call pending, which LIBRARY_END completes. */
int LIBRARY_BEGIN(int round)
{
    int code;
    for (int i = 0; i < 64; i++)
        kept[i] = i + round;
    for (int i = 0; i < N; i++)
        moved[i] = me == round % ranks ? i * 3 + round : -1;
    code = hetmpi_start(&persistent);
    return code ? code : hetmpi_ibcast(moved, N, MPI_INT64_T, round % ranks, comm, &pending);
}

int LIBRARY_END(int round, int *wrong)
{
    int code = hetmpi_wait(&pending, MPI_STATUS_IGNORE);
    if (!code)
        code = hetmpi_wait(&persistent, MPI_STATUS_IGNORE);
    *wrong = 0;
    for (int i = 0; i < 64; i++)
        *wrong += kept[i] != (int64_t)(i + round) * ranks;
    for (int i = 0; i < N; i++)
        *wrong += moved[i] != i * 3 + round;
    return code;
}

int LIBRARY_CLOSE(void)
{
    int code = hetmpi_request_free(&persistent);
    if (!code)
        code = hetmpi_comm_detach(comm);
    MPI_Comm_free(&comm);
    return code;
}
