/*
 * The smallest hetmpi program: every rank puts its rank into a buffer on its device (host memory where there is none),
 * all ranks sum, and rank 0 prints. Build and run:
 *     mpicc hello_allreduce.c $(pkg-config --cflags --libs hetmpi) -o hello && mpirun -n 2 ./hello
 */
#include <hetmpi.h>
#include <stdio.h>

enum { N = 1000 };

int main(int argc, char **argv)
{
    float values[N];
    void *buffer;
    int rank, ranks, wrong = 0;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);

    for (int i = 0; i < N; i++)
        values[i] = (float)(rank + i);
    hetmpi_malloc(sizeof(values), HETMPI_MEM_DEVICE, &buffer);
    hetmpi_memcpy(buffer, values, sizeof(values));

    /* As MPI_Allreduce, but the buffer may be on a GPU of any vendor. */
    hetmpi_allreduce(MPI_IN_PLACE, buffer, N, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);

    hetmpi_memcpy(values, buffer, sizeof(values));
    for (int i = 0; i < N; i++)
        wrong += values[i] != (float)(ranks * (ranks - 1) / 2 + ranks * i);
    if (rank == 0)
        printf("%d ranks, sum of element 1 is %g: %s\n", ranks, values[1], wrong ? "WRONG" : "right");
    hetmpi_free(buffer);
    MPI_Finalize();
    return wrong != 0;
}
