/* Started as two ranks at configure time: succeeds when they find each other in one job. */
#include <stdio.h>

#include <mpi.h>

int main(int argc, char **argv)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int size, length;

    MPI_Init(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Get_library_version(version, &length);
    if (size != 2)
        printf("MPI_COMM_WORLD has %d rank(s), 2 were asked for; the library is %s\n", size, version);
    MPI_Finalize();
    return size == 2 ? 0 : 1;
}
