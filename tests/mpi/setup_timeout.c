/* A rank that makes its first hetmpi call on a communicator too late: nobody waits for ever, neither the ranks that came in
 * time nor the late one. HETMPI_TIMEOUT is 1 here. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common.h"

int main(int argc, char **argv)
{
    MPI_Comm comm;
    float one = 1, sum = -7;
    double began;
    int rank, size, code;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (!getenv("HETMPI_TEST_RANKS") || size != atoi(getenv("HETMPI_TEST_RANKS"))) {
        fprintf(stderr, "setup_timeout: %d ranks, not the number asked for\n", size);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    if (rank == size - 1)
        sleep(4);
    for (int call = 0; call < 2; call++) {
        began = MPI_Wtime();
        code = hetmpi_allreduce(&one, &sum, 1, MPI_FLOAT, MPI_SUM, comm);
        if (code != HETMPI_ERR_TIMEOUT || sum != -7 || !strstr(hetmpi_last_error(), "first hetmpi call")) {
            fprintf(stderr, "setup_timeout: rank %d, call %d: code %d, sum %g, %s\n", rank, call, code, sum,
                    hetmpi_last_error());
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
        if (MPI_Wtime() - began > (call ? 0.5 : 30)) {
            fprintf(stderr, "setup_timeout: rank %d, call %d took %.1f s\n", rank, call, MPI_Wtime() - began);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    }
    if (rank == 0)
        printf("setup_timeout: %d ranks: passed\n", size);
    MPI_Finalize();
    return 0;
}
