/*
 * Communicators: the island map of world, reversed, split, duplicate and lone ones; several in use at once, in another
 * order on each rank; completion of many requests; freed with a request pending.
 */
#include "common.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char vendors[64][16]; /* of the world's ranks, as they say themselves */

static bool item(const char *list, int index, char *out, size_t bytes)
{
    const char *at = list;
    for (int i = 0; i < index && at; i++) {
        at = strchr(at, ',');
        at = at ? at + 1 : NULL;
    }
    if (!at)
        return false;
    snprintf(out, bytes, "%.*s", (int)strcspn(at, ","), at);
    return true;
}

/* What decides a rank's island and node: the settings, read here a second time. */
static void place_of(int world_rank, char island[64], char node[32])
{
    const char *nodes = getenv("HETMPI_SIM_NODES"), *labels = getenv("HETMPI_ISLANDS");
    char label[32];
    snprintf(node, 32, "0");
    if (nodes && *nodes)
        T_CHECK(item(nodes, world_rank, node, 32), "HETMPI_SIM_NODES has no entry %d", world_rank);
    snprintf(island, 64, "%s@%s", vendors[world_rank], node);
    if (labels && *labels && strcmp(labels, "auto") != 0 && item(labels, world_rank, label, sizeof label))
        snprintf(island, 64, "%s", label);
}

static void learn_vendors(void)
{
    hetmpi_comm_info_t info;
    char mine[16] = "", claimed[16];
    const char *list = getenv("HETMPI_SIM_VENDORS");
    if (T_OK(hetmpi_comm_info(MPI_COMM_WORLD, &info)))
        memcpy(mine, info.vendor, sizeof mine);
    if (list && *list && item(list, t_rank, claimed, sizeof claimed))
        T_CHECK(strcmp(mine, claimed) == 0, "vendor is %s, HETMPI_SIM_VENDORS says %s", mine, claimed);
    T_MPI(MPI_Allgather(mine, 16, MPI_CHAR, vendors, 16, MPI_CHAR, MPI_COMM_WORLD));
}

static void check_map(MPI_Comm comm, const char *what)
{
    MPI_Group world, group;
    int rank, ranks, all[64], members[64];
    char islands[64][64], nodes[64][32];
    int island_of[64], node_of[64], n_islands = 0, n_nodes = 0, size = 0, position = 0;
    hetmpi_comm_info_t info;
    t_stage("map of %s", what);
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &ranks);
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Comm_group(comm, &group);
    for (int r = 0; r < ranks; r++)
        all[r] = r;
    MPI_Group_translate_ranks(group, ranks, all, world, members);
    MPI_Group_free(&group);
    MPI_Group_free(&world);
    for (int r = 0; r < ranks; r++) {
        place_of(members[r], islands[r], nodes[r]);
        island_of[r] = node_of[r] = -1;
        for (int q = 0; q < r; q++) {
            if (strcmp(islands[q], islands[r]) == 0)
                island_of[r] = island_of[q];
            if (strcmp(nodes[q], nodes[r]) == 0)
                node_of[r] = node_of[q];
        }
        island_of[r] = island_of[r] < 0 ? n_islands++ : island_of[r];
        node_of[r] = node_of[r] < 0 ? n_nodes++ : node_of[r];
    }
    for (int r = 0; r < ranks; r++) {
        size += island_of[r] == island_of[rank];
        position += r < rank && island_of[r] == island_of[rank];
    }
    if (!T_OK(hetmpi_comm_info(comm, &info)))
        return;
    T_CHECK(info.ranks == ranks && info.rank == rank, "rank %d of %d, not %d of %d", info.rank, info.ranks, rank,
            ranks);
    T_CHECK(info.islands == n_islands && info.island == island_of[rank], "%s: island %d of %d, not %d of %d", what,
            info.island, info.islands, island_of[rank], n_islands);
    T_CHECK(info.island_ranks == size && info.island_rank == position, "%s: place %d of %d in the island, not %d of %d",
            what, info.island_rank, info.island_ranks, position, size);
    T_CHECK(info.nodes == n_nodes && info.node == node_of[rank], "%s: node %d of %d, not %d of %d", what, info.node,
            info.nodes, node_of[rank], n_nodes);
    T_CHECK((strcmp(info.provider, "none") == 0) == (size == 1), "%s: provider %s of an island of %d", what,
            info.provider, size);
    T_CHECK((strcmp(info.wire, "none") == 0) == (n_islands == 1), "%s: wire %s with %d islands", what, info.wire,
            n_islands);
    T_CHECK(n_islands == 1 ? info.rails == 0 : info.rails >= 1, "%s: %d rails with %d islands", what, info.rails,
            n_islands);
    const char *wire = getenv("HETMPI_WIRE"), *provider = getenv("HETMPI_PROVIDER");
    if (n_islands > 1 && wire && strcmp(wire, "auto") != 0)
        T_CHECK(strcmp(info.wire, wire) == 0, "%s: wire %s, HETMPI_WIRE=%s", what, info.wire, wire);
    if (size > 1 && provider && strcmp(provider, "auto") != 0)
        T_CHECK(strcmp(info.provider, provider) == 0, "%s: provider %s, HETMPI_PROVIDER=%s", what, info.provider,
                provider);
}

/* Values show whose they are, so a wrong order of ranks is seen. */
static void use(MPI_Comm comm, const char *what, size_t n)
{
    int rank, ranks;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &ranks);
    int64_t *x = t_malloc(n * sizeof *x), *all = t_malloc(n * (size_t)ranks * sizeof *all);
    t_stage("collectives on %s, count %zu", what, n);
    for (size_t i = 0; i < n; i++)
        x[i] = (int64_t)i * 1000 + rank;
    T_OK(hetmpi_allgather(x, n, MPI_INT64_T, all, n, MPI_INT64_T, comm));
    for (size_t i = 0; i < n * (size_t)ranks; i++)
        if (!T_CHECK(all[i] == (int64_t)(i % n) * 1000 + (int64_t)(i / n), "%s: allgather: element %zu is %lld", what,
                     i, (long long)all[i]))
            break;
    T_OK(hetmpi_reduce_scatter_block(all, x, n, MPI_INT64_T, MPI_SUM, comm));
    for (size_t i = 0; i < n; i++)
        if (!T_CHECK(x[i] == ((int64_t)i * 1000 + rank) * ranks, "%s: reduce_scatter_block: element %zu is %lld", what,
                     i, (long long)x[i]))
            break;
    T_OK(hetmpi_bcast(x, n, MPI_INT64_T, ranks - 1, comm));
    T_OK(hetmpi_allreduce(MPI_IN_PLACE, x, n, MPI_INT64_T, MPI_SUM, comm));
    for (size_t i = 0; i < n; i++)
        if (!T_CHECK(x[i] == ((int64_t)i * 1000 + ranks - 1) * ranks * ranks, "%s: allreduce: element %zu is %lld",
                     what, i, (long long)x[i]))
            break;
    free(x);
    free(all);
}

static void check_and_use(MPI_Comm comm, const char *what)
{
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    check_map(comm, what);
    use(comm, what, 3);
    use(comm, what, 30011);
}

/* Settings for one communicator leave the job's lists what they are: by rank in the world, which here is not the rank
 * in the communicator. A list given for the communicator is by its own ranks. */
static void check_own_settings(void)
{
    MPI_Comm comm;
    MPI_Info info;
    hetmpi_comm_info_t map;
    char labels[2 * 64 + 1] = "";
    int rank;
    t_stage("settings of one communicator");
    T_MPI(MPI_Info_create(&info));
    T_MPI(MPI_Info_set(info, "chunk", "16K"));
    T_MPI(MPI_Comm_split(MPI_COMM_WORLD, 0, -t_rank, &comm));
    T_OK(hetmpi_comm_attach(comm, info));
    check_and_use(comm, "reversed, with a chunk size of its own");
    T_MPI(MPI_Comm_free(&comm));
    for (int r = 0; r < t_ranks; r++)   /* the first rank alone */
        snprintf(labels + strlen(labels), sizeof labels - strlen(labels), "%s%c", r ? "," : "", r ? 'q' : 'p');
    T_MPI(MPI_Info_set(info, "islands", labels));
    T_MPI(MPI_Comm_split(MPI_COMM_WORLD, 0, -t_rank, &comm));
    MPI_Comm_rank(comm, &rank);
    T_OK(hetmpi_comm_attach(comm, info));
    T_OK(hetmpi_comm_info(comm, &map));
    T_CHECK(map.island == (rank > 0) && map.islands == (t_ranks > 1 ? 2 : 1), "islands=%s: island %d of %d on rank %d",
            labels, map.island, map.islands, rank);
    use(comm, "reversed, with islands of its own", 3);
    T_MPI(MPI_Comm_free(&comm));
    T_MPI(MPI_Info_free(&info));
}

static void check_kinds(void)
{
    MPI_Comm comm;
    check_and_use(MPI_COMM_WORLD, "the world");
    check_and_use(MPI_COMM_SELF, "MPI_COMM_SELF");
    T_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    check_and_use(comm, "a duplicate");
    T_MPI(MPI_Comm_free(&comm));
    T_MPI(MPI_Comm_split(MPI_COMM_WORLD, 0, -t_rank, &comm));
    check_and_use(comm, "reversed");
    T_MPI(MPI_Comm_free(&comm));
    T_MPI(MPI_Comm_split(MPI_COMM_WORLD, t_rank % 2, t_rank, &comm));
    check_and_use(comm, "even or odd ranks");
    T_MPI(MPI_Comm_free(&comm));
    T_MPI(MPI_Comm_split(MPI_COMM_WORLD, t_rank < t_ranks / 2, (t_rank * 5) % 8, &comm));
    check_and_use(comm, "half, shuffled");
    T_MPI(MPI_Comm_free(&comm));
    /* The members alone make and use it: the other ranks are in no hetmpi call. */
    if (t_ranks >= 3 && t_rank != 1) {
        MPI_Group world, group;
        int left_out = 1;
        MPI_Comm_group(MPI_COMM_WORLD, &world);
        MPI_Group_excl(world, 1, &left_out, &group);
        T_MPI(MPI_Comm_create_group(MPI_COMM_WORLD, group, 11, &comm));
        check_and_use(comm, "all but rank 1");
        T_MPI(MPI_Comm_free(&comm));
        MPI_Group_free(&group);
        MPI_Group_free(&world);
    }
    T_MPI(MPI_Barrier(MPI_COMM_WORLD));
}

/*
 * Several in flight
 */
#define FLIGHT 8
#define LONG 20021

static int32_t *flight[FLIGHT];
static hetmpi_request_t requests[FLIGHT];

static size_t flight_count(int i)
{
    return i % 3 == 0 ? 5 : i % 3 == 1 ? 1000 : LONG;
}

static void launch(int i, MPI_Comm comm)
{
    for (size_t k = 0; k < flight_count(i); k++)
        flight[i][k] = (int32_t)k + i + t_rank;
    T_OK(hetmpi_iallreduce(MPI_IN_PLACE, flight[i], flight_count(i), MPI_INT32_T, MPI_SUM, comm, &requests[i]));
}

static void landed(int i, const char *what)
{
    T_CHECK(requests[i] == HETMPI_REQUEST_NULL, "%s: request %d is not null", what, i);
    for (size_t k = 0; k < flight_count(i); k++) {
        int32_t want = ((int32_t)k + i) * t_ranks + t_ranks * (t_ranks - 1) / 2;
        if (!T_CHECK(flight[i][k] == want, "%s: call %d, element %zu is %d, not %d", what, i, k, flight[i][k], want))
            return;
    }
}

static void check_orders(MPI_Comm a, MPI_Comm b)
{
    t_stage("two communicators, in another order on each rank");
    for (int round = 0; round < 4; round++) {
        /* Calls of one communicator keep their order; which communicator comes first differs by rank. */
        for (int part = 0; part < 2; part++) {
            int half = part ^ ((t_rank + round) % 2);
            for (int i = half * FLIGHT / 2; i < (half + 1) * FLIGHT / 2; i++)
                launch(i, half ? b : a);
        }
        for (int i = FLIGHT - 1; i >= 0; i--)
            T_OK(hetmpi_wait(&requests[i], MPI_STATUS_IGNORE));
        for (int i = 0; i < FLIGHT; i++)
            landed(i, "two communicators");
    }
}

/* Blocking calls on one communicator while a call on another is pending, which not all ranks have started yet. */
static void check_nested(MPI_Comm a, MPI_Comm b)
{
    int32_t one = 1;
    t_stage("blocking call on one communicator inside a pending call on another");
    if (t_rank % 2 == 0)
        launch(2, a);
    T_OK(hetmpi_allreduce(MPI_IN_PLACE, &one, 1, MPI_INT32_T, MPI_SUM, b));
    T_CHECK(one == t_ranks, "sum of ones is %d", one);
    if (t_rank % 2 == 1)
        launch(2, a);
    T_OK(hetmpi_wait(&requests[2], MPI_STATUS_IGNORE));
    landed(2, "nested");
}

static void check_completion(MPI_Comm a, MPI_Comm b)
{
    MPI_Status statuses[FLIGHT], status;
    int flag, index, seen[FLIGHT] = { 0 };
    t_stage("waitall");
    for (int i = 0; i < FLIGHT; i++) {
        launch(i, i % 2 ? a : b);
        statuses[i].MPI_ERROR = -1;
    }
    T_OK(hetmpi_waitall(FLIGHT, requests, statuses));
    for (int i = 0; i < FLIGHT; i++) {
        landed(i, "waitall");
        T_CHECK(statuses[i].MPI_ERROR == 0 || statuses[i].MPI_ERROR == -1, "status %d: error %d", i,
                statuses[i].MPI_ERROR);
    }
    t_stage("waitany");
    for (int i = 0; i < FLIGHT; i++)
        launch(i, i % 2 ? a : b);
    for (int i = 0; i < FLIGHT; i++) {
        index = -7;
        T_OK(hetmpi_waitany(FLIGHT, requests, &index, &status));
        if (!T_CHECK(index >= 0 && index < FLIGHT && !seen[index], "waitany gave index %d", index))
            break;
        seen[index] = 1;
        landed(index, "waitany");
    }
    T_OK(hetmpi_waitany(FLIGHT, requests, &index, MPI_STATUS_IGNORE));
    T_CHECK(index == MPI_UNDEFINED, "waitany of nothing gave index %d", index);
    t_stage("testall");
    for (int i = 0; i < FLIGHT; i++)
        launch(i, i % 2 ? a : b);
    for (flag = 0; !flag; t_yield()) {
        if (!T_OK(hetmpi_testall(FLIGHT, requests, &flag, MPI_STATUSES_IGNORE)))
            break;
        /* All or nothing: no request may be gone while the flag is 0. */
        for (int i = 0; i < FLIGHT && !flag; i++)
            if (!T_CHECK(requests[i] != HETMPI_REQUEST_NULL, "testall: request %d is gone, flag 0", i))
                flag = 1;
    }
    for (int i = 0; i < FLIGHT; i++)
        landed(i, "testall");
    t_stage("request_free of an active request");
    launch(2, a);
    T_OK(hetmpi_request_free(&requests[2]));
    T_OK(hetmpi_barrier(a)); /* after it in a's order, so the freed one is complete */
    landed(2, "freed request");
}

static void check_persistent(MPI_Comm a, MPI_Comm b)
{
    hetmpi_request_t persistent[4];
    int64_t x[4][300];
    t_stage("startall of persistent requests");
    for (int i = 0; i < 4; i++)
        T_OK(hetmpi_allreduce_init(MPI_IN_PLACE, x[i], 300, MPI_INT64_T, MPI_SUM, i % 2 ? a : b, MPI_INFO_NULL,
                                   &persistent[i]));
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < 4; i++)
            for (int k = 0; k < 300; k++)
                x[i][k] = k + i + round;
        T_OK(hetmpi_startall(4, persistent));
        T_OK(hetmpi_waitall(4, persistent, MPI_STATUSES_IGNORE));
        for (int i = 0; i < 4; i++)
            T_CHECK(x[i][299] == (int64_t)(299 + i + round) * t_ranks, "round %d, call %d: %lld", round, i,
                    (long long)x[i][299]);
    }
    for (int i = 0; i < 4; i++)
        T_OK(hetmpi_request_free(&persistent[i]));
}

static void check_freed_while_pending(void)
{
    for (int i = 0; i < 3; i++) {
        MPI_Comm comm;
        t_stage("communicator freed while a request is pending, count %zu", flight_count(i));
        T_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
        T_MPI(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
        if (i)
            T_OK(hetmpi_barrier(comm));
        if (t_rank == t_ranks - 1)
            t_sleep(0.02); /* the others' call is surely pending when they free */
        launch(i, comm);
        T_MPI(MPI_Comm_free(&comm));
        if (i == 1) {
            int index = -1;
            T_OK(hetmpi_waitany(1, &requests[i], &index, MPI_STATUS_IGNORE));
            T_CHECK(index == 0, "waitany's index is %d", index);
        } else {
            T_OK(hetmpi_wait(&requests[i], MPI_STATUS_IGNORE));
        }
        landed(i, "freed communicator");
    }
    /* A persistent request outlives its communicator. */
    MPI_Comm comm;
    hetmpi_request_t request = HETMPI_REQUEST_NULL;
    int32_t one = 1;
    t_stage("persistent request of a freed communicator");
    T_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    T_OK(hetmpi_allreduce_init(MPI_IN_PLACE, &one, 1, MPI_INT32_T, MPI_SUM, comm, MPI_INFO_NULL, &request));
    T_OK(hetmpi_start(&request));
    T_OK(hetmpi_wait(&request, MPI_STATUS_IGNORE));
    T_MPI(MPI_Comm_free(&comm));
    T_OK(hetmpi_request_free(&request));
    T_CHECK(one == t_ranks, "sum of ones is %d", one);
}

/* Only the first two ranks have data in the calls on a communicator: the others must part from it as these do. */
static void check_idle_ranks(void)
{
    size_t counts[64] = { 0 }, displs[64] = { 0 };
    int peer = t_rank ^ 1;
    if (t_ranks < 3)
        return;
    for (int round = 0; round < 2; round++) {
        MPI_Comm comm;
        hetmpi_request_t request;
        t_stage("ranks without data, %s", round ? "detach" : "free");
        T_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
        T_MPI(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
        if (t_rank < 2) {
            counts[peer] = LONG;
            flight[0][0] = t_rank + 5;
        }
        T_OK(hetmpi_ialltoallv(flight[0], counts, displs, MPI_INT32_T, flight[1], counts, displs, MPI_INT32_T, comm,
                               &request));
        if (round) {
            T_OK(hetmpi_wait(&request, MPI_STATUS_IGNORE));
            T_OK(hetmpi_comm_detach(comm));
            T_MPI(MPI_Comm_free(&comm));
        } else {
            T_MPI(MPI_Comm_free(&comm));
            T_OK(hetmpi_wait(&request, MPI_STATUS_IGNORE));
        }
        if (t_rank < 2)
            T_CHECK(flight[1][0] == peer + 5, "got %d", flight[1][0]);
    }
}

/* A short call takes another way on a rank that still has another one pending: all must part from the communicator alike. */
static void check_mixed_ways(void)
{
    size_t counts[64], displs[64];
    MPI_Comm comm;
    hetmpi_request_t request;
    t_stage("a short call behind a pending one, then free");
    for (int r = 0; r < t_ranks; r++) {
        counts[r] = 1;
        displs[r] = (size_t)r;
        flight[0][r] = 100 * t_rank + r;
    }
    T_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    T_MPI(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    T_OK(hetmpi_comm_attach(comm, MPI_INFO_NULL));
    if (t_rank > 0)
        t_sleep(0.02);   /* the first rank's barrier is pending when its next call begins */
    T_OK(hetmpi_ibarrier(comm, &request));
    if (t_rank > 0)
        T_OK(hetmpi_wait(&request, MPI_STATUS_IGNORE));
    T_OK(hetmpi_alltoallv(flight[0], counts, displs, MPI_INT32_T, flight[1], counts, displs, MPI_INT32_T, comm));
    T_OK(hetmpi_wait(&request, MPI_STATUS_IGNORE));
    for (int r = 0; r < t_ranks; r++)
        T_CHECK(flight[1][r] == 100 * r + t_rank, "from rank %d: %d", r, flight[1][r]);
    double start = t_now();
    T_MPI(MPI_Comm_free(&comm));
    T_CHECK(t_now() - start < 10, "MPI_Comm_free took %.1f s", t_now() - start);
}

/* Short blocks whose counts differ. The last rank is told so after the others, who have posted their next call meanwhile
 * where the short blocks stood: it must part from the communicator as they do. */
static void check_late_mismatch(void)
{
    size_t counts[64], displs[64];
    MPI_Comm comm;
    hetmpi_request_t request;
    bool late = t_rank == t_ranks - 1;
    int flag = 0, zero = 0, zeros = 0, code = HETMPI_SUCCESS;
    t_stage("counts that differ, then free");
    for (int r = 0; r < t_ranks; r++) {
        counts[r] = 1;
        displs[r] = (size_t)(2 * r);
    }
    counts[t_rank ? t_rank : 1] = t_rank ? 1 : 2;   /* rank 0 sends more to rank 1 than that expects */
    T_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    T_MPI(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    T_OK(hetmpi_comm_attach(comm, MPI_INFO_NULL));
    T_OK(hetmpi_ialltoallv(flight[0], counts, displs, MPI_INT32_T, flight[1], counts, displs, MPI_INT32_T, comm,
                           &request));
    for (int i = 0; late && !flag && i < 10; i++) {   /* comes as far as comparing counts, and looks no further */
        code = hetmpi_test(&request, &flag, MPI_STATUS_IGNORE);
        t_sleep(0.001);
    }
    t_sleep(late ? 0.1 : 0.03);
    if (!flag)
        code = hetmpi_wait(&request, MPI_STATUS_IGNORE);
    T_CODE(HETMPI_ERR_MISMATCH, code);
    T_OK(hetmpi_allreduce(&zero, &zeros, 1, MPI_INT, MPI_SUM, comm));
    double start = t_now();
    T_MPI(MPI_Comm_free(&comm));
    T_CHECK(t_now() - start < 10, "MPI_Comm_free took %.1f s", t_now() - start);
}

static void check_detach(void)
{
    MPI_Comm comm;
    t_stage("attach, use, detach, use again");
    T_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    T_MPI(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    for (int round = 0; round < 3; round++) {
        T_OK(hetmpi_comm_attach(comm, MPI_INFO_NULL));
        use(comm, "an attached communicator", 100);
        use(comm, "an attached communicator", LONG);
        T_OK(hetmpi_comm_detach(comm));
    }
    T_OK(hetmpi_comm_detach(comm)); /* nothing there: nothing to do */
    use(comm, "a detached communicator", 100);
    T_MPI(MPI_Comm_free(&comm));
}

/* Aborting ends pending and later calls on every rank, and nothing else. */
static void check_abort(void)
{
    MPI_Comm comm;
    hetmpi_request_t request = HETMPI_REQUEST_NULL;
    int32_t x = 1;
    int error = -1, code;
    if (t_ranks < 2)
        return;
    t_stage("hetmpi_comm_abort");
    T_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    T_MPI(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    if (t_rank == 0) /* alone, before set-up: must not wait for the others */
        T_CODE(HETMPI_ERR_STATE, hetmpi_comm_abort(comm));
    T_OK(hetmpi_barrier(comm));
    T_OK(hetmpi_comm_error(comm, &error));
    T_CODE(HETMPI_SUCCESS, error);
    T_MPI(MPI_Barrier(MPI_COMM_WORLD)); /* all have looked */
    if (t_rank == 0) { /* never makes the call */
        t_sleep(0.02);
        T_OK(hetmpi_comm_abort(comm));
    } else {
        code = hetmpi_iallreduce(MPI_IN_PLACE, &x, 1, MPI_INT32_T, MPI_SUM, comm, &request);
        if (code == HETMPI_SUCCESS)
            code = hetmpi_wait(&request, MPI_STATUS_IGNORE);
        T_CODE(HETMPI_ERR_ABORTED, code);
    }
    T_CODE(HETMPI_ERR_ABORTED, hetmpi_barrier(comm));
    T_OK(hetmpi_comm_error(comm, &error));
    T_CODE(HETMPI_ERR_ABORTED, error);
    T_MPI(MPI_Comm_free(&comm));
    use(MPI_COMM_WORLD, "the world after an abort elsewhere", 100);
}

int main(int argc, char **argv)
{
    t_begin(&argc, &argv, "comms", MPI_THREAD_SINGLE);
    MPI_Comm a, b;
    for (int i = 0; i < FLIGHT; i++)
        flight[i] = t_malloc(LONG * sizeof **flight);
    learn_vendors();
    check_kinds();
    check_own_settings();
    T_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &a));
    T_MPI(MPI_Comm_split(MPI_COMM_WORLD, 0, -t_rank, &b));
    T_MPI(MPI_Comm_set_errhandler(a, MPI_ERRORS_RETURN));
    T_MPI(MPI_Comm_set_errhandler(b, MPI_ERRORS_RETURN));
    T_OK(hetmpi_comm_attach(a, MPI_INFO_NULL));
    T_OK(hetmpi_comm_attach(b, MPI_INFO_NULL));
    check_orders(a, b);
    check_nested(a, b);
    check_completion(a, b);
    check_persistent(a, b);
    T_MPI(MPI_Comm_free(&a));
    T_MPI(MPI_Comm_free(&b));
    check_freed_while_pending();
    check_idle_ranks();
    check_mixed_ways();
    if (t_ranks > 2)
        check_late_mismatch();
    check_detach();
    check_abort();
    for (int i = 0; i < FLIGHT; i++)
        free(flight[i]);
    return t_end();
}
