/*
 * MPI's own calls with buffers in device memory, which a program gets from hetmpi: plain data types, and ones with gaps
 * on some ranks, which are staged. Usage: device_test ranks hetmpi
 */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "hetmpi.h"

enum { INTS = 4096, HOLE = -7 };
static int host[INTS], wanted[INTS];

static void *device;

static void put(void)
{
    memcpy(wanted, host, sizeof(wanted));
    CHECK(hetmpi_memcpy(device, host, sizeof(host)) == HETMPI_SUCCESS, "%s", hetmpi_last_error());
}

static void is_wanted(const char *call)
{
    CHECK(hetmpi_memcpy(host, device, sizeof(host)) == HETMPI_SUCCESS, "%s", hetmpi_last_error());
    for (int i = 0; i < INTS; i++)
        if (!CHECK(host[i] == wanted[i], "%s: int %d is %d, not %d", call, i, host[i], wanted[i]))
            return;
}

int main(int argc, char **argv)
{
    MPI_Datatype every_third, third;
    int n, numbers = 100, rank, own;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    dropped_in = true;
    rank = world_rank;
    n = world_size;
    if (argc < 2 || n != atoi(argv[1]))
        MPI_Abort(MPI_COMM_WORLD, 2);
    CHECK(hetmpi_malloc(sizeof(host), HETMPI_MEM_DEVICE, &device) == HETMPI_SUCCESS, "%s", hetmpi_last_error());
    MPI(MPI_Type_create_hindexed(1, (int[]){1}, (MPI_Aint[]){4}, MPI_INT, &third));
    MPI(MPI_Type_create_resized(third, 0, 12, &every_third));
    MPI(MPI_Type_commit(&every_third));

    for (int i = 0; i < INTS; i++)
        host[i] = rank;
    put();
    for (int i = 0; i < INTS; i++)
        wanted[i] = n * (n - 1) / 2;
    ON(MPI_Allreduce(MPI_IN_PLACE, device, INTS, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    is_wanted("allreduce");

    /* Even ranks have the numbers in a row, odd ones in every third place, from the second on. */
    own = rank % 2;
    for (int i = 0; i < INTS; i++)
        host[i] = HOLE;
    put();
    if (rank == n - 1) {
        for (int i = 0; i < numbers; i++)
            host[own ? 3 * i + 1 : i] = 1000 + i;
        put();
    }
    for (int i = 0; i < numbers; i++)
        wanted[own ? 3 * i + 1 : i] = 1000 + i;
    ON(MPI_Bcast(device, numbers, own ? every_third : MPI_INT, n - 1, MPI_COMM_WORLD));
    is_wanted("bcast");

    for (int i = 0; i < INTS; i++)
        host[i] = HOLE;
    host[own ? 3 * rank + 1 : rank] = 5000 + rank;
    put();
    for (int r = 0; r < n; r++)
        wanted[own ? 3 * r + 1 : r] = 5000 + r;
    ON(MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, device, 1, own ? every_third : MPI_INT, MPI_COMM_WORLD));
    is_wanted("allgather in place");

    MPI(MPI_Type_free(&every_third));
    MPI(MPI_Type_free(&third));
    hetmpi_free(device);
    return check_end();
}
