/*
 * A program of MPI alone, which must get the same answers with the drop-in as without: every blocking collective, on
 * communicators of all kinds, with arguments that hetmpi serves and others that it must leave to MPI on all ranks.
 * It knows for each call which it is, and says at its end what the drop-in should have counted.
 *
 *     pmpi_test ranks [hetmpi]     hetmpi: with the drop-in
 */
#include <complex.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

/* ---- reductions ---- */

#define MOST 6000

static double in[5 * MOST], out[5 * MOST];

static double value(int rank, int i) { return (double)((rank + 1) * (i % 31 + 1)); }

/* The sum of the values of ranks first..last. */
static double sum(int first, int last, int i)
{
    double total = 0;

    for (int r = first; r <= last; r++)
        total += value(r, i);
    return total;
}

static void fill(double *data, int rank, int n)
{
    for (int i = 0; i < n; i++)
        data[i] = value(rank, i);
}

static void is_sum(const char *call, const double *data, int offset, int n, int first, int last)
{
    for (int i = 0; i < n; i++)
        if (!CHECK(data[i] == sum(first, last, offset + i), "%s: element %d is %g, not %g", call, i, data[i],
                   sum(first, last, offset + i)))
            return;
}

static void check_sums(MPI_Comm comm, int count)
{
    int rank, n, counts[64], before = 0;

    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &n);
    for (int in_place = 0; in_place < 2; in_place++) {
        void *send = in_place ? MPI_IN_PLACE : in;
        double *recv = in_place ? in : out;

        fill(in, rank, count);
        ON(MPI_Allreduce(send, recv, count, MPI_DOUBLE, MPI_SUM, comm));
        is_sum("allreduce", recv, 0, count, 0, n - 1);
        for (int root = 0; root < n; root++) {
            fill(in, rank, count);
            /* MPICH 4.0 itself crashes when a root other than 0 reduces many elements in place, or NULL stands where it
             * means nothing. */
            bool place_in = in_place && (dropped_in || root == 0);
            double *result = place_in ? in : out;
            ON(MPI_Reduce(place_in && rank == root ? MPI_IN_PLACE : in, rank == root ? result : dropped_in ? NULL : out,
                          count, MPI_DOUBLE, MPI_SUM, root, comm));
            if (rank == root)
                is_sum("reduce", result, 0, count, 0, n - 1);
        }
        fill(in, rank, n * count);
        ON(MPI_Reduce_scatter_block(send, recv, count, MPI_DOUBLE, MPI_SUM, comm));
        is_sum("reduce_scatter_block", recv, rank * count, count, 0, n - 1);
        before = 0;
        for (int r = 0; r < n; r++) {
            counts[r] = r % 2 ? 0 : count - r;
            before += r < rank ? counts[r] : 0;
        }
        fill(in, rank, n * count);
        ON(MPI_Reduce_scatter(send, recv, counts, MPI_DOUBLE, MPI_SUM, comm));
        is_sum("reduce_scatter", recv, before, counts[rank], 0, n - 1);
        fill(in, rank, count);
        ON(MPI_Scan(send, recv, count, MPI_DOUBLE, MPI_SUM, comm));
        is_sum("scan", recv, 0, count, 0, rank);
        fill(in, rank, count);
        ON(MPI_Exscan(send, recv, count, MPI_DOUBLE, MPI_SUM, comm));
        if (rank > 0)
            is_sum("exscan", recv, 0, count, 0, rank - 1);
    }
}

/* Types of one format under several names, which MPI takes for the same; other formats and operations. */
static void check_types(MPI_Comm comm)
{
    int rank, n, one = 1, got = 0;
    float complex z, z_sum = 0;
    unsigned char byte, bytes = 0;

    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &n);
    ON(MPI_Allreduce(&one, &got, 1, rank % 2 ? MPI_INT : MPI_INT32_T, MPI_SUM, comm));
    CHECK(got == n, "int and int32_t: %d", got);
    ON(MPI_Allreduce(&rank, &got, 1, MPI_INTEGER, MPI_MAX, comm));
    CHECK(got == n - 1, "MPI_INTEGER, MPI_MAX: %d", got);
    z = (float)rank + 1.0f * I;
    ON(MPI_Allreduce(&z, &z_sum, 1, MPI_C_FLOAT_COMPLEX, MPI_SUM, comm));
    CHECK(crealf(z_sum) == (float)(n * (n - 1) / 2) && cimagf(z_sum) == (float)n, "complex: %g + %g i",
          (double)crealf(z_sum), (double)cimagf(z_sum));
    byte = (unsigned char)(1 << rank % 8);
    ON(MPI_Allreduce(&byte, &bytes, 1, MPI_BYTE, MPI_BOR, comm));
    CHECK(bytes == (n >= 8 ? 255 : (1 << n) - 1), "MPI_BYTE, MPI_BOR: %d", bytes);
}

static void add_ints(void *a, void *b, int *n, MPI_Datatype *type)
{
    (void)type;
    for (int i = 0; i < *n; i++)
        ((int *)b)[i] += ((int *)a)[i];
}

#if MPI_VERSION >= 4
/* Calls of large counts on some ranks, the others on the rest. */
static void check_large(MPI_Comm comm)
{
    int rank, n, one = 1, got = 0, all[64], counts[64], displs[64];
    MPI_Count large_counts[64];
    MPI_Aint large_displs[64];

    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &n);
    if (rank % 2)
        ON(MPI_Allreduce_c(&one, &got, 1, MPI_INT, MPI_SUM, comm));
    else
        ON(MPI_Allreduce(&one, &got, 1, MPI_INT, MPI_SUM, comm));
    CHECK(got == n, "allreduce of a large count: %d", got);
    for (int r = 0; r < n; r++) {
        large_counts[r] = counts[r] = 1;
        large_displs[r] = displs[r] = n - 1 - r;
    }
    if (rank % 2)
        ON(MPI_Allgatherv_c(&rank, 1, MPI_INT, all, large_counts, large_displs, MPI_INT, comm));
    else
        ON(MPI_Allgatherv(&rank, 1, MPI_INT, all, counts, displs, MPI_INT, comm));
    for (int r = 0; r < n; r++)
        CHECK(all[n - 1 - r] == r, "allgatherv of large counts: block %d is %d", r, all[n - 1 - r]);
}
#else
static void check_large(MPI_Comm comm)
{
    (void)comm;
}
#endif

/* What hetmpi has not: all ranks must go to MPI. */
static void check_not_served(MPI_Comm comm)
{
    struct { double value; int index; } pair, least = {0, 0};
    long double x = 1, x_sum = 0;
    int rank, n, one = 1, got = 0, flag, all;
    MPI_Datatype twice;
    MPI_Op op;

    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &n);
    pair.value = rank == n / 2 ? -1 : 1;
    pair.index = rank;
    OFF(MPI_Allreduce(&pair, &least, 1, MPI_DOUBLE_INT, MPI_MINLOC, comm));
    CHECK(least.value == -1 && least.index == n / 2, "MPI_MINLOC: %g at %d", least.value, least.index);
    OFF(MPI_Allreduce(&x, &x_sum, 1, MPI_LONG_DOUBLE, MPI_SUM, comm));
    CHECK(x_sum == (long double)n, "long double: %Lg", x_sum);
    MPI(MPI_Op_create(add_ints, 1, &op));
    OFF(MPI_Allreduce(&one, &got, 1, MPI_INT, op, comm));
    CHECK(got == n, "an operation of the program's own: %d", got);
    MPI(MPI_Type_contiguous(1, MPI_INT, &twice));
    MPI(MPI_Type_commit(&twice));
    got = 0;
    OFF(MPI_Reduce(&one, &got, 1, twice, op, 0, comm));
    CHECK(rank != 0 || got == n, "a data type and an operation of the program's own: %d", got);
    OFF(MPI_Scan(&one, &got, 1, MPI_INT, op, comm));
    CHECK(got == rank + 1, "scan with an operation of the program's own: %d", got);
    MPI(MPI_Type_free(&twice));
    MPI(MPI_Op_free(&op));
    flag = rank == 0;
    OFF(MPI_Allreduce(&flag, &all, 1, MPI_LOGICAL, MPI_LOR, comm));
    CHECK(all, "MPI_LOGICAL: %d", all);
    /* Pairs are moved. */
    ON(MPI_Bcast(&pair, 1, MPI_DOUBLE_INT, n / 2, comm));
    CHECK(pair.value == -1 && pair.index == n / 2, "bcast of a pair: %g at %d", pair.value, pair.index);
}

/* ---- buffers ---- */

static void check_empty(MPI_Comm comm)
{
    int n, zeros[64] = {0}, numbers[64] = {0};

    MPI_Comm_size(comm, &n);
    ON(MPI_Allreduce(NULL, NULL, 0, MPI_INT, MPI_SUM, comm));
    ON(MPI_Bcast(NULL, 0, MPI_INT, 0, comm));
    ON(MPI_Allgather(NULL, 0, MPI_INT, NULL, 0, MPI_INT, comm));
    ON(MPI_Alltoallv(numbers, zeros, zeros, MPI_INT, numbers, zeros, zeros, MPI_DOUBLE, comm));
    ON(MPI_Gatherv(NULL, 0, MPI_BYTE, NULL, zeros, zeros, MPI_DOUBLE, n - 1, comm));
    ON(MPI_Barrier(comm));
}

/* Data types of absolute addresses. */
static void check_bottom(MPI_Comm comm)
{
    static int a, b;
    int rank;
    MPI_Aint places[2];
    MPI_Datatype both;

    MPI_Comm_rank(comm, &rank);
    MPI_Get_address(&a, &places[0]);
    MPI_Get_address(&b, &places[1]);
    MPI(MPI_Type_create_hindexed_block(2, 1, places, MPI_INT, &both));
    MPI(MPI_Type_commit(&both));
    a = rank ? 0 : 11;
    b = rank ? 0 : 22;
    ON(MPI_Bcast(MPI_BOTTOM, 1, both, 0, comm));
    CHECK(a == 11 && b == 22, "bcast at MPI_BOTTOM: %d %d", a, b);
    MPI(MPI_Type_free(&both));
}

/* ---- communicators ---- */

static void check_intercomm(void)
{
    int color = world_rank % 2, number = world_rank * 10, got = -1, all = 0, others, leader = 1 - color;
    MPI_Comm half, inter, merged;

    if (world_size < 2)
        return;
    MPI(MPI_Comm_split(MPI_COMM_WORLD, color, 0, &half));
    MPI(MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, leader, 5, &inter));
    MPI_Comm_remote_size(inter, &others);
    OFF(MPI_Barrier(inter));
    OFF(MPI_Allreduce(&number, &all, 1, MPI_INT, MPI_SUM, inter));
    for (int r = leader; r < world_size; r += 2)
        all -= r * 10;
    CHECK(all == 0, "allreduce over an intercommunicator is off by %d", all);
    got = number;
    OFF(MPI_Bcast(&got, 1, MPI_INT, color ? 0 : world_rank == 0 ? MPI_ROOT : MPI_PROC_NULL, inter));
    CHECK(got == (color ? 0 : number), "bcast over an intercommunicator: %d", got);
    MPI(MPI_Intercomm_merge(inter, color, &merged));
    ON(MPI_Allreduce(&world_rank, &got, 1, MPI_INT, MPI_MAX, merged));
    CHECK(got == world_size - 1, "allreduce over the merged communicator: %d", got);
    MPI(MPI_Comm_free(&merged));
    MPI(MPI_Comm_free(&inter));
    MPI(MPI_Comm_free(&half));
}

/* Handles of freed communicators are used again for others. */
static void check_freed(void)
{
    for (int i = 0; i < 30; i++) {
        int n, one = 1, got = 0, color = (world_rank + i) % 2;
        MPI_Comm comm, dup;

        MPI(MPI_Comm_split(MPI_COMM_WORLD, color, -world_rank, &comm));
        MPI(MPI_Comm_dup(comm, &dup));
        MPI_Comm_size(dup, &n);
        ON(MPI_Allreduce(&one, &got, 1, MPI_INT, MPI_SUM, dup));
        CHECK(got == n, "communicator %d: %d of %d ranks", i, got, n);
        ON(MPI_Bcast(&got, 1, MPI_INT, n - 1, comm));
        MPI(MPI_Comm_free(&comm));
        MPI(MPI_Comm_free(&dup));
    }
}

/* Ranks that wait in a collective must let MPI's messages go on. */
static void check_messages(void)
{
    enum { NUMBERS = 1 << 18 };
    static int sent[NUMBERS], received[NUMBERS];
    int next = (world_rank + 1) % world_size, previous = (world_rank + world_size - 1) % world_size, got = 0;
    MPI_Request requests[2];

    for (int i = 0; i < NUMBERS; i++)
        sent[i] = world_rank + i;
    MPI(MPI_Irecv(received, NUMBERS, MPI_INT, previous, 1, MPI_COMM_WORLD, &requests[0]));
    if (world_rank == 0)   /* returns when the receiver, who waits in the barrier, takes it */
        MPI(MPI_Send(sent, NUMBERS, MPI_INT, next, 1, MPI_COMM_WORLD));
    else
        MPI(MPI_Isend(sent, NUMBERS, MPI_INT, next, 1, MPI_COMM_WORLD, &requests[1]));
    ON(MPI_Barrier(MPI_COMM_WORLD));
    for (int i = 0; i < (world_rank ? 2 : 1); i++)
        MPI(MPI_Wait(&requests[i], MPI_STATUS_IGNORE));
    CHECK(received[NUMBERS - 1] == previous + NUMBERS - 1, "a message across a barrier: %d", received[NUMBERS - 1]);
    MPI(MPI_Iallreduce(&world_rank, &got, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD, &requests[0]));
    ON(MPI_Bcast(sent, 5, MPI_INT, world_size - 1, MPI_COMM_WORLD));
    MPI(MPI_Wait(&requests[0], MPI_STATUS_IGNORE));
    CHECK(got == world_size - 1 && sent[0] == world_size - 1, "iallreduce across a bcast: %d, %d", got, sent[0]);
}

/* ---- errors ---- */

static int handler_code;

static void on_error(MPI_Comm *comm, int *code, ...)
{
    (void)comm;
    handler_code = *code;
}

static void is_class(const char *what, int code, int wanted)
{
    int class = -1;

    check_expect(false);
    MPI_Error_class(code, &class);
    CHECK(class == wanted, "%s: error class %d, not %d", what, class, wanted);
    CHECK(handler_code == code, "%s: the handler got %d, the call returned %d", what, handler_code, code);
    handler_code = 0;
}

static void check_errors(void)
{
    int x = 1, y = 2;
    char text[MPI_MAX_ERROR_STRING];
    MPI_Errhandler handler;
    MPI_Comm comm;
    int numbers[6] = {0}, length, code;

    MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    MPI(MPI_Comm_create_errhandler(on_error, &handler));
    MPI(MPI_Comm_set_errhandler(comm, handler));
    MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler));   /* for errors of no communicator; MPI 4: self */
    MPI(MPI_Comm_set_errhandler(MPI_COMM_SELF, handler));
    is_class("count", MPI_Bcast(&x, -1, MPI_INT, 0, comm), MPI_ERR_COUNT);
    is_class("root", MPI_Bcast(&x, 1, MPI_INT, world_size, comm), MPI_ERR_ROOT);
    is_class("type", MPI_Bcast(&x, 1, MPI_DATATYPE_NULL, 0, comm), MPI_ERR_TYPE);
    is_class("operation", MPI_Allreduce(&x, &y, 1, MPI_FLOAT, MPI_BAND, comm), MPI_ERR_OP);
    is_class("communicator", MPI_Barrier(MPI_COMM_NULL), MPI_ERR_COMM);
    CHECK(y == 2, "a wrong call wrote %d", y);
    ON(MPI_Allreduce(&x, &y, 1, MPI_INT, MPI_SUM, comm));
    CHECK(y == world_size, "after the errors: %d", y);
    if (dropped_in) {
        /* An error that hetmpi finds: a code of its own, with its message. */
        code = MPI_Allreduce(numbers, numbers + 1, 4, MPI_INT, MPI_SUM, comm);
        check_expect(true);
        MPI(MPI_Error_string(code, text, &length));
        CHECK(code != MPI_SUCCESS && handler_code == code && strstr(text, "hetmpi_allreduce") && strstr(text, "overlap"),
              "overlapping buffers: code %d, handler %d, \"%s\"", code, handler_code, text);
    }
    MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL));
    MPI(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL));
    MPI(MPI_Errhandler_free(&handler));
    MPI(MPI_Comm_free(&comm));
}

/* ---- threads ---- */

static void *many_calls(void *argument)
{
    MPI_Comm comm = *(MPI_Comm *)argument;
    int n;

    MPI_Comm_size(comm, &n);
    for (int i = 0; i < 200; i++) {
        int got = 0, one = 1;
        MPI(MPI_Allreduce(&one, &got, 1, MPI_INT, MPI_SUM, comm));
        CHECK(got == n, "thread: %d of %d", got, n);
    }
    return NULL;
}

static void check_threads(void)
{
    MPI_Comm comms[2];
    pthread_t thread;
    int level;

    MPI_Query_thread(&level);
    if (level < MPI_THREAD_MULTIPLE)
        return;
    for (int i = 0; i < 2; i++)
        MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]));
    pthread_create(&thread, NULL, many_calls, &comms[0]);
    many_calls(&comms[1]);
    pthread_join(thread, NULL);
    for (int i = 0; i < 2 * 200; i++)
        check_expect(true);
    for (int i = 0; i < 2; i++)
        MPI(MPI_Comm_free(&comms[i]));
}

/* ---- the end ---- */

/* Called by MPI_Finalize: the drop-in is gone by then, on all ranks alike. */
static int barrier_at_finalize(MPI_Comm comm, int keyval, void *value, void *extra)
{
    (void)comm, (void)keyval, (void)value, (void)extra;
    return MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    int level, keyval;
    MPI_Comm reversed;

    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    dropped_in = argc > 2;
    if (argc < 2 || world_size != atoi(argv[1])) {
        fprintf(stderr, "%d ranks: usage: pmpi_test ranks [hetmpi]\n", world_size);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    MPI(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, barrier_at_finalize, &keyval, NULL));
    MPI(MPI_Comm_set_attr(MPI_COMM_SELF, keyval, NULL));
    MPI(MPI_Comm_split(MPI_COMM_WORLD, 0, -world_rank, &reversed));
    make_forms();
    check_errors();
    for (int i = 0; i < 3; i++) {
        MPI_Comm comm = i == 0 ? MPI_COMM_WORLD : i == 1 ? reversed : MPI_COMM_SELF;
        check_sums(comm, 7);
        check_sums(comm, MOST);
        check_types(comm);
        check_large(comm);
        check_not_served(comm);
        check_empty(comm);
        check_bottom(comm);
        /* Long ones with types that differ are more than MPICH 4.0 can do itself. */
        for (int round = 0; round < 10; round++)
            check_moves(comm, round == 9 && dropped_in ? 5000 : round + 1, round);
    }
    check_intercomm();
    check_freed();
    check_messages();
    check_threads();
    free_forms();
    MPI(MPI_Comm_free(&reversed));
    return check_end();
}
