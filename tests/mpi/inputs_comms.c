/*
 * Inputs that people's programs met elsewhere: communicators of a few ranks, each with a right island map of its own,
 * and their duplicates; a subset beside single ranks; groups that the two halves of the job list differently.
 * Made for 4 ranks: two of one vendor, then two of another.
 */
#include "common.h"

#include <stdio.h>
#include <string.h>

static char vendors[4][16];

/* The number of islands is that of different vendors: all are on one node. */
static void check_map(MPI_Comm comm, const int *members, int n, const char *what)
{
    hetmpi_comm_info_t info;
    int islands = 0, mine = 0, position = 0, rank, seen[4];
    MPI_Comm_rank(comm, &rank);
    t_stage("map of %s", what);
    for (int i = 0; i < n; i++) {
        seen[i] = -1;
        for (int k = 0; k < i; k++)
            if (strcmp(vendors[members[k]], vendors[members[i]]) == 0)
                seen[i] = seen[k];
        if (seen[i] < 0)
            seen[i] = islands++;
    }
    for (int i = 0; i < n; i++) {
        mine += seen[i] == seen[rank];
        position += i < rank && seen[i] == seen[rank];
    }
    if (T_OK(hetmpi_comm_info(comm, &info)))
        T_CHECK(info.ranks == n && info.rank == rank && info.islands == islands && info.island == seen[rank] &&
                info.island_ranks == mine && info.island_rank == position,
                "rank %d of %d, island %d of %d, place %d of %d; not %d of %d, %d of %d, %d of %d", info.rank,
                info.ranks, info.island, info.islands, info.island_rank, info.island_ranks, rank, n, seen[rank], islands,
                position, mine);
}

static void use(MPI_Comm comm, const int *members, int n, const char *what)
{
    int32_t all[4], sum = 0, want = 0, mine = t_rank + 1;
    t_stage("collectives on %s", what);
    T_OK(hetmpi_allgather(&mine, 1, MPI_INT32_T, all, 1, MPI_INT32_T, comm));
    T_OK(hetmpi_allreduce(&mine, &sum, 1, MPI_INT32_T, MPI_SUM, comm));
    for (int i = 0; i < n; i++) {
        T_CHECK(all[i] == members[i] + 1, "block %d is %d, not %d", i, all[i], members[i] + 1);
        want += members[i] + 1;
    }
    T_CHECK(sum == want, "sum %d, not %d", sum, want);
    T_OK(hetmpi_barrier(comm));
}

static MPI_Comm of_group(const int *members, int n, int tag)
{
    MPI_Group world, group;
    MPI_Comm comm = MPI_COMM_NULL;
    T_MPI(MPI_Comm_group(MPI_COMM_WORLD, &world));
    T_MPI(MPI_Group_incl(world, n, members, &group));
    T_MPI(MPI_Comm_create_group(MPI_COMM_WORLD, group, tag, &comm));
    T_MPI(MPI_Group_free(&group));
    T_MPI(MPI_Group_free(&world));
    T_MPI(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    return comm;
}

static void check_few(void)
{
    static const struct { int members[2], n; const char *what; } sets[] = {
        { { 0, 2 }, 2, "{0,2}" }, { { 0, 1 }, 2, "{0,1}" }, { { 2, 3 }, 2, "{2,3}" }, { { 1 }, 1, "{1}" },
    };
    MPI_Comm comms[4] = { MPI_COMM_NULL, MPI_COMM_NULL, MPI_COMM_NULL, MPI_COMM_NULL }, dup;
    for (int s = 0; s < 4; s++)
        for (int i = 0; i < sets[s].n; i++)
            if (sets[s].members[i] == t_rank)
                comms[s] = of_group(sets[s].members, sets[s].n, s);
    /* All of them are alive at once. */
    for (int s = 0; s < 4; s++)
        if (comms[s] != MPI_COMM_NULL) {
            check_map(comms[s], sets[s].members, sets[s].n, sets[s].what);
            use(comms[s], sets[s].members, sets[s].n, sets[s].what);
            T_MPI(MPI_Comm_dup(comms[s], &dup));
            check_map(dup, sets[s].members, sets[s].n, "its duplicate");
            use(dup, sets[s].members, sets[s].n, "its duplicate");
            T_MPI(MPI_Comm_free(&dup));
            use(comms[s], sets[s].members, sets[s].n, "what was duplicated");
        }
    for (int s = 0; s < 4; s++)
        if (comms[s] != MPI_COMM_NULL)
            T_MPI(MPI_Comm_free(&comms[s]));
}

/* A subset, and each other rank by itself; every rank is left alone once. */
static void check_alone(void)
{
    for (int alone = 0; alone < 4; alone++) {
        int members[4], n = 0;
        MPI_Comm comm;
        for (int r = 0; r < 4; r++)
            if (r != alone)
                members[n++] = r;
        t_stage("split: rank %d alone", alone);
        T_MPI(MPI_Comm_split(MPI_COMM_WORLD, t_rank == alone, t_rank, &comm));
        if (t_rank == alone) {
            members[0] = alone;
            n = 1;
        }
        T_OK(hetmpi_barrier(comm));
        check_map(comm, members, n, "a subset beside a single rank");
        use(comm, members, n, "a subset beside a single rank");
        T_MPI(MPI_Comm_free(&comm));
        T_OK(hetmpi_barrier(MPI_COMM_WORLD));
    }
}

/* The halves make their communicators by lists of their own, in an order of their own, one half more of them. */
static void check_halves(void)
{
    static const int lower[3][2] = { { 0, 1 }, { 1, 0 }, { 0, 1 } }, upper[2][2] = { { 3, 2 }, { 2, 3 } };
    bool low = t_rank < 2;
    MPI_Comm comms[3];
    t_stage("halves with lists of their own");
    for (int i = 0; i < (low ? 3 : 2); i++) {
        const int *members = low ? lower[i] : upper[i];
        comms[i] = of_group(members, 2, 20 + i);
        T_OK(hetmpi_barrier(comms[i]));
        check_map(comms[i], members, 2, "one half");
        use(comms[i], members, 2, "one half");
    }
    T_OK(hetmpi_barrier(MPI_COMM_WORLD));
    for (int i = 0; i < (low ? 3 : 2); i++)
        T_MPI(MPI_Comm_free(&comms[i]));
    T_OK(hetmpi_barrier(MPI_COMM_WORLD));
}

int main(int argc, char **argv)
{
    hetmpi_comm_info_t info;
    char mine[16] = "";
    t_begin(&argc, &argv, "inputs_comms", MPI_THREAD_SINGLE);
    if (t_ranks != 4)
        t_skip("made for 4 ranks");
    if (T_OK(hetmpi_comm_info(MPI_COMM_WORLD, &info)))
        memcpy(mine, info.vendor, sizeof mine);
    T_MPI(MPI_Allgather(mine, 16, MPI_CHAR, vendors, 16, MPI_CHAR, MPI_COMM_WORLD));
    check_few();
    check_alone();
    check_halves();
    return t_end();
}
