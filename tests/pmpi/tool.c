/* Another tool between a program and MPI, as profilers are: counts the calls of MPI_Allreduce and MPI_Send that come to
 * it, passes them on to PMPI, and says the numbers at MPI_Finalize. */
#include <stdio.h>

#include <mpi.h>

static int allreduces, sends, rank;

int MPI_Allreduce(const void *sendbuf, void *recvbuf, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    allreduces++;
    return PMPI_Allreduce(sendbuf, recvbuf, count, type, op, comm);
}

int MPI_Send(const void *buf, int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm)
{
    sends++;
    return PMPI_Send(buf, count, type, dest, tag, comm);
}

int MPI_Finalize(void)
{
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    fprintf(stderr, "tool[%d]: %d allreduces, %d sends\n", rank, allreduces, sends);
    return PMPI_Finalize();
}
