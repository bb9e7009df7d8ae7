/*
 * Premultiplied sums: MPI_Op handles of which each carries a type and a scalar of this rank's. The handle is MPI's, so
 * that it is never one of another operation; what it means is kept in a table here.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "core/log.h"
#include "core/proc.h"

static struct {
    pthread_mutex_t lock;
    struct made { MPI_Op handle; struct types_premul what; } *made;
    size_t n, room;
    bool hooked;               /* free_all will run in MPI_Finalize */
} premul = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void free_all(void)
{
    pthread_mutex_lock(&premul.lock);
    for (size_t i = 0; i < premul.n; i++)
        MPI_Op_free(&premul.made[i].handle);
    free(premul.made);
    premul.made = NULL;
    premul.n = premul.room = 0;
    pthread_mutex_unlock(&premul.lock);
}

/* In a call of MPI's own: there is no way to return an error from here. */
static void premul_in_mpi(void *in, void *inout, int *count, MPI_Datatype *type)
{
    (void)in, (void)inout, (void)count, (void)type;
    log_print(LOG_ERROR, "a premultiplied sum of hetmpi was given to a call of MPI itself: it works in hetmpi's calls only");
    MPI_Abort(MPI_COMM_WORLD, HETMPI_ERR_OP);
}

bool types_find_premul(MPI_Op op, struct types_premul *found)
{
    bool is = false;

    pthread_mutex_lock(&premul.lock);
    for (size_t i = 0; i < premul.n && !is; i++) {
        is = premul.made[i].handle == op;
        if (is)
            *found = premul.made[i].what;
    }
    pthread_mutex_unlock(&premul.lock);
    return is;
}

/* Called with the lock held. */
static int make_room(void)
{
    size_t room = premul.room ? 2 * premul.room : 8;
    struct made *larger;

    if (!premul.hooked)
        proc_at_finalize(free_all);
    premul.hooked = true;
    if (premul.n < premul.room)
        return HETMPI_SUCCESS;
    larger = realloc(premul.made, room * sizeof(*larger));
    if (!larger)
        return err_set(HETMPI_ERR_MEMORY, "op_create_premul_sum: no memory for %zu operations", room);
    premul.made = larger;
    premul.room = room;
    return HETMPI_SUCCESS;
}

static int keep(const struct types_premul *what, MPI_Op *op)
{
    int code;

    pthread_mutex_lock(&premul.lock);
    code = make_room();
    if (!code && MPI_Op_create(premul_in_mpi, 1, op) != MPI_SUCCESS)
        code = err_set(HETMPI_ERR_MPI, "op_create_premul_sum: MPI_Op_create failed");
    if (!code)
        premul.made[premul.n++] = (struct made){*op, *what};
    pthread_mutex_unlock(&premul.lock);
    return code;
}

static int check_type(MPI_Datatype type, enum red_type *found)
{
    int code = types_want("op_create_premul_sum", type, found);

    if (!code && !red_supported(*found, RED_SUM))
        code = err_set(HETMPI_ERR_OP, "op_create_premul_sum: a premultiplied sum does not exist for %s (the table is in "
                       "hetmpi.h)", red_type_name(*found));
    return code;
}

/* The scalar may lie anywhere. */
static int read_scalar(const void *scalar, size_t bytes, unsigned char *out)
{
    if (mem_on_device(scalar))
        return mem_copy(out, scalar, bytes);
    memcpy(out, scalar, bytes);
    return HETMPI_SUCCESS;
}

static int create(const void *scalar, MPI_Datatype type, MPI_Op *op)
{
    struct types_premul what = {0};
    MPI_Op made;
    int code;

    if (!op || !scalar)
        return err_set(HETMPI_ERR_ARG, "op_create_premul_sum: %s is NULL", op ? "scalar" : "op");
    code = check_type(type, &what.type);
    if (!code)
        code = read_scalar(scalar, red_size(what.type), what.scale);
    if (!code)
        code = keep(&what, &made);
    if (!code)
        *op = made;
    return code;
}

int hetmpi_op_create_premul_sum(const void *scalar, MPI_Datatype type, MPI_Op *op)
{
    int code = create(scalar, type, op);

    return code ? api_report(MPI_COMM_NULL, "op_create_premul_sum", code) : HETMPI_SUCCESS;
}

/* Takes the handle out of the table; false: it is not there. */
static bool drop(MPI_Op op)
{
    bool found = false;

    pthread_mutex_lock(&premul.lock);
    for (size_t i = 0; i < premul.n && !found; i++) {
        found = premul.made[i].handle == op;
        if (found)
            premul.made[i] = premul.made[--premul.n];
    }
    pthread_mutex_unlock(&premul.lock);
    return found;
}

int hetmpi_op_free(MPI_Op *op)
{
    int code = op ? proc_start() : err_set(HETMPI_ERR_ARG, "op_free: op is NULL");

    if (!code && !drop(*op))
        code = err_set(HETMPI_ERR_OP, "op_free: the operation is none that hetmpi_op_create_premul_sum made");
    if (!code && MPI_Op_free(op) != MPI_SUCCESS)
        code = err_set(HETMPI_ERR_MPI, "op_free: MPI_Op_free failed");
    return code ? api_report(MPI_COMM_NULL, "op_free", code) : HETMPI_SUCCESS;
}
