/*
 * What the drop-in costs a call that it passes on: MPI's function through libhetmpi_pmpi against PMPI's, in turns, on
 * one rank. Fails when a call costs more than so many nanoseconds.
 *
 *     pmpi_bench [nanoseconds]     100, unless told otherwise
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <mpi.h>

enum { BATCHES = 200, CALLS = 1000 };

typedef int allreduce(const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm);

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void add(void *a, void *b, int *n, MPI_Datatype *type)
{
    (void)type;
    for (int i = 0; i < *n; i++)
        ((int *)b)[i] += ((int *)a)[i];
}

static double batch(allreduce *function, MPI_Datatype type, MPI_Op op)
{
    static char in[16], out[16];
    double start = now();

    for (int i = 0; i < CALLS; i++)
        function(in, out, 1, type, op, MPI_COMM_SELF);
    return (now() - start) / CALLS;
}

/* Nanoseconds that a call takes longer. The fastest batch of each: what disturbs one only makes it slower. */
static double cost(const char *what, MPI_Datatype type, MPI_Op op)
{
    double direct = 1, through = 1;

    for (int i = 0; i < BATCHES; i++) {
        double a = batch(PMPI_Allreduce, type, op), b = batch(MPI_Allreduce, type, op);
        direct = a < direct ? a : direct;
        through = b < through ? b : through;
    }
    printf("%-34s %8.1f ns %8.1f ns %8.1f ns\n", what, direct * 1e9, through * 1e9, (through - direct) * 1e9);
    return (through - direct) * 1e9;
}

int main(int argc, char **argv)
{
    double most = argc > 1 ? atof(argv[1]) : 100, user, pair, wide, worst;
    MPI_Op op;

    MPI_Init(&argc, &argv);
    if (most <= 0) {
        fprintf(stderr, "usage: pmpi_bench [nanoseconds]\n");
        return 2;
    }
    MPI_Op_create(add, 1, &op);
    printf("%-34s %11s %11s %11s\n", "MPI_Allreduce of one element", "PMPI", "drop-in", "cost");
    user = cost("an operation of the program's own", MPI_INT, op);
    pair = cost("MPI_MINLOC of a pair", MPI_2INT, MPI_MINLOC);
    wide = cost("MPI_LONG_DOUBLE", MPI_LONG_DOUBLE, MPI_SUM);
    MPI_Op_free(&op);
    worst = user > pair ? user : pair;
    worst = wide > worst ? wide : worst;
    MPI_Finalize();
    if (worst <= most)
        return EXIT_SUCCESS;
    fprintf(stderr, "FAILED: a call that is passed on costs %.1f ns; at most %.1f are allowed\n", worst, most);
    return EXIT_FAILURE;
}
