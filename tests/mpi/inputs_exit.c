/*
 * Programs that end without order: MPI_Finalize while requests, memory and streams of hetmpi's are still there, which
 * are freed later; and exit() without MPI_Finalize, in the middle of everything.
 *
 *     inputs_exit late|exit
 */
#include "common.h"

#include <stdlib.h>
#include <string.h>

#define N 40009

static int32_t numbers[4][N];
static hetmpi_request_t persistent, pending, early, expected;
static hetmpi_stream_t stream;
static void *on_device, *pinned;

/* Uses everything, and leaves it. */
static void use(MPI_Comm comm)
{
    T_OK(hetmpi_malloc(N * sizeof(int32_t), HETMPI_MEM_DEVICE, &on_device));
    T_OK(hetmpi_malloc(N * sizeof(int32_t), HETMPI_MEM_HOST, &pinned));
    T_OK(hetmpi_memset(on_device, 0, N * sizeof(int32_t)));
    T_OK(hetmpi_stream_create(&stream));
    T_OK(hetmpi_allreduce(MPI_IN_PLACE, on_device, N, MPI_INT32_T, MPI_SUM, comm));
    T_OK(hetmpi_allreduce_init(MPI_IN_PLACE, numbers[0], N, MPI_INT32_T, MPI_SUM, comm, MPI_INFO_NULL, &persistent));
    T_OK(hetmpi_start(&persistent));
    T_OK(hetmpi_wait(&persistent, MPI_STATUS_IGNORE));
    T_OK(hetmpi_bcast_init(numbers[1], N, MPI_INT32_T, 0, comm, MPI_INFO_NULL, &pending));
    T_OK(hetmpi_start(&pending));
    T_OK(hetmpi_iallreduce(MPI_IN_PLACE, numbers[2], N, MPI_INT32_T, MPI_SUM, comm, &early));
    int code = hetmpi_bcast_on_stream(on_device, N, MPI_INT32_T, 0, comm, stream);
    T_CHECK(code == HETMPI_SUCCESS || code == HETMPI_ERR_UNSUPPORTED, "on_stream: %s", hetmpi_last_error());
}

/* Whatever a completion after MPI_Finalize says, it says so, and the handle is freed. */
static void finish(hetmpi_request_t *request, const char *what)
{
    t_stage("wait for %s after MPI_Finalize", what);
    int code = hetmpi_wait(request, MPI_STATUS_IGNORE);
    T_CHECK(code == HETMPI_SUCCESS || code == HETMPI_ERR_STATE || code == HETMPI_ERR_ABORTED, "%s: %s",
            t_code_name(code), hetmpi_last_error());
    if (*request != HETMPI_REQUEST_NULL)
        T_OK(hetmpi_request_free(request));
}

static int late(MPI_Comm comm)
{
    use(comm);
    MPI_Comm_free(&comm);
    T_OK(hetmpi_allreduce(MPI_IN_PLACE, numbers[3], N, MPI_INT32_T, MPI_SUM, MPI_COMM_WORLD));
    int status = t_verdict(), before = t_failures();
    t_stage("MPI_Finalize");
    MPI_Finalize();
    finish(&early, "a collective");
    finish(&pending, "a persistent collective");
    finish(&persistent, "nothing");
    t_stage("memory and streams after MPI_Finalize");
    T_OK(hetmpi_stream_synchronize(stream));
    T_OK(hetmpi_stream_destroy(stream));
    T_OK(hetmpi_memcpy(pinned, on_device, N * sizeof(int32_t)));
    T_OK(hetmpi_free(on_device));
    T_OK(hetmpi_free(pinned));
    return status || t_failures() != before;
}

int main(int argc, char **argv)
{
    MPI_Comm comm;
    bool leave = argc > 1 && strcmp(argv[1], "exit") == 0;
    t_begin(&argc, &argv, "inputs_exit", MPI_THREAD_MULTIPLE);
    T_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    T_MPI(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    if (!leave)
        return late(comm);
    use(comm);
    T_OK(hetmpi_irecv(numbers[3], N, MPI_INT32_T, MPI_ANY_SOURCE, 1, comm, &expected));   /* never sent */
    MPI_Barrier(MPI_COMM_WORLD);   /* who leaves earlier is a dead peer to the others */
    exit(t_failures() ? 1 : 0);
}
