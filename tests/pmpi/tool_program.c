/* A program under two tools at once (see tools.sh): three allreduces, two of them of a kind that hetmpi serves. */
#include <stdio.h>
#include <stdlib.h>

#include <mpi.h>

int main(int argc, char **argv)
{
    int rank, ranks, got = 0, one = 1, bad = 0;
    long double x = 1, y = 0;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int i = 0; i < 2; i++) {
        MPI_Allreduce(&one, &got, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        bad |= got != ranks;
    }
    MPI_Allreduce(&x, &y, 1, MPI_LONG_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    bad |= y != (long double)ranks;
    if (rank == 0 && ranks > 1)
        MPI_Send(&one, 1, MPI_INT, 1, 0, MPI_COMM_WORLD);
    if (rank == 1)
        MPI_Recv(&got, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Finalize();
    return bad ? EXIT_FAILURE : EXIT_SUCCESS;
}
