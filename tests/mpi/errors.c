/*
 * Wrong arguments and wrong order of calls: the code, the message, the communicator's error handler, nothing written,
 * and no crash before MPI_Init and after MPI_Finalize.
 *
 *     errors          everything below
 *     errors fatal    a wrong call under MPI_ERRORS_ARE_FATAL (MPI's default): the program must not go on; it prints
 *                     "went on" if it does
 */
#include "common.h"

#include <stdio.h>
#include <string.h>

static int handler_calls, handler_code;
static MPI_Comm handler_comm;

static void on_error(MPI_Comm *comm, int *code, ...)
{
    handler_calls++;
    handler_code = *code;
    handler_comm = *comm;
}

/* A call that one rank gets wrong alone is reported by this rank alone: so all ranks make it here. The receive buffer
 * (a struct of known bytes) must stay as it was. */
static unsigned char in[4096], out[4096];

static void reset(void)
{
    memset(in, 1, sizeof in);
    memset(out, 0x77, sizeof out);
    handler_calls = 0;
    handler_comm = MPI_COMM_NULL;
}

/* After a call on `comm`, which has on_error as its handler. */
static void check_handler(MPI_Comm comm, const char *text)
{
    char message[MPI_MAX_ERROR_STRING + 1] = "";
    int length = 0;
    T_CHECK(handler_calls == 1, "the error handler was called %d times", handler_calls);
    if (handler_calls == 0)
        return;
    T_CHECK(handler_comm == comm, "the error handler got another communicator");
    T_CHECK(handler_code != MPI_SUCCESS, "the error handler got MPI_SUCCESS");
    T_MPI(MPI_Error_string(handler_code, message, &length));
    /* MPI may cut the text; its beginning must be there. */
    char begin[80];
    snprintf(begin, sizeof begin, "%s", text);
    T_CHECK(strstr(message, begin) != NULL, "MPI_Error_string gives \"%s\", not \"%s\"", message, text);
}

#define WRONG(comm, expected, call)                                                                         \
    do {                                                                                                    \
        reset();                                                                                            \
        t_stage("%s", #call);                                                                               \
        T_CODE(expected, call);                                                                             \
        char text_[512];                                                                                    \
        snprintf(text_, sizeof text_, "%s", hetmpi_last_error());                                           \
        T_CHECK(text_[0] != '\0', "no message");                                                            \
        check_handler(comm, text_);                                                                         \
        T_CHECK(out[0] == 0x77 && memcmp(out, out + 1, sizeof out - 1) == 0, "the receive buffer was written"); \
    } while (0)

static void check_arguments(MPI_Comm comm)
{
    hetmpi_request_t request = HETMPI_REQUEST_NULL;
    size_t huge = SIZE_MAX / 2;
    WRONG(comm, HETMPI_ERR_BUFFER, hetmpi_allreduce(NULL, out, 4, MPI_INT, MPI_SUM, comm));
    WRONG(comm, HETMPI_ERR_BUFFER, hetmpi_allreduce(in, NULL, 4, MPI_INT, MPI_SUM, comm));
    WRONG(comm, HETMPI_ERR_BUFFER, hetmpi_allreduce(in, in + 4, 4, MPI_INT, MPI_SUM, comm));
    WRONG(comm, HETMPI_ERR_BUFFER, hetmpi_allreduce(in + 12, in, 4, MPI_INT, MPI_SUM, comm));
    WRONG(comm, HETMPI_ERR_BUFFER, hetmpi_allreduce(in, MPI_IN_PLACE, 4, MPI_INT, MPI_SUM, comm));
    WRONG(comm, HETMPI_ERR_TYPE, hetmpi_allreduce(in, out, 4, MPI_DATATYPE_NULL, MPI_SUM, comm));
    WRONG(comm, HETMPI_ERR_OP, hetmpi_allreduce(in, out, 4, MPI_FLOAT, MPI_BAND, comm));
    WRONG(comm, HETMPI_ERR_COUNT, hetmpi_allreduce(in, out, huge, MPI_DOUBLE, MPI_SUM, comm));
    /* More bytes than a program can address, though the number is in range: 2^47 and up. */
    WRONG(comm, HETMPI_ERR_COUNT, hetmpi_allreduce(in, out, ((size_t)1 << 45) + 1, MPI_INT, MPI_SUM, comm));
    T_CHECK(strstr(hetmpi_last_error(), "35184372088833") != NULL, "the count is not named: %s", hetmpi_last_error());
    WRONG(comm, HETMPI_ERR_COUNT, hetmpi_bcast(out, (size_t)1 << 60, MPI_BYTE, 0, comm));
    WRONG(comm, HETMPI_ERR_COUNT, hetmpi_send(in, ((size_t)1 << 47) + 1, MPI_BYTE, MPI_PROC_NULL, 1, comm));
    WRONG(comm, HETMPI_ERR_BUFFER, hetmpi_iallreduce(NULL, out, 4, MPI_INT, MPI_SUM, comm, &request));
    T_CHECK(request == HETMPI_REQUEST_NULL, "a refused call gave a request");
    WRONG(comm, HETMPI_ERR_ARG, hetmpi_iallreduce(in, out, 4, MPI_INT, MPI_SUM, comm, NULL));
    WRONG(comm, HETMPI_ERR_BUFFER,
          hetmpi_allreduce_init(NULL, out, 4, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &request));

    WRONG(comm, HETMPI_ERR_ROOT, hetmpi_bcast(out, 4, MPI_INT, -1, comm));
    WRONG(comm, HETMPI_ERR_ROOT, hetmpi_bcast(out, 4, MPI_INT, t_ranks, comm));
    WRONG(comm, HETMPI_ERR_ROOT, hetmpi_bcast(NULL, 0, MPI_INT, t_ranks, comm));
    WRONG(comm, HETMPI_ERR_ROOT, hetmpi_bcast(out, 4, MPI_INT, MPI_PROC_NULL, comm));
    WRONG(comm, HETMPI_ERR_BUFFER, hetmpi_bcast(NULL, 4, MPI_INT, 0, comm));
    WRONG(comm, HETMPI_ERR_BUFFER, hetmpi_bcast(MPI_IN_PLACE, 4, MPI_INT, 0, comm));
    WRONG(comm, HETMPI_ERR_TYPE, hetmpi_bcast(out, 4, MPI_LONG_DOUBLE, 0, comm));

    WRONG(comm, HETMPI_ERR_ROOT, hetmpi_reduce(in, out, 4, MPI_INT, MPI_SUM, t_ranks, comm));
    WRONG(comm, HETMPI_ERR_ROOT, hetmpi_ireduce(in, out, 4, MPI_INT, MPI_SUM, -5, comm, &request));
    WRONG(comm, HETMPI_ERR_BUFFER, hetmpi_reduce(NULL, out, 4, MPI_INT, MPI_SUM, 0, comm));
    WRONG(comm, HETMPI_ERR_OP, hetmpi_reduce(in, out, 4, MPI_BYTE, MPI_SUM, 0, comm));

    WRONG(comm, HETMPI_ERR_BUFFER, hetmpi_allgather(NULL, 4, MPI_INT, out, 4, MPI_INT, comm));
    WRONG(comm, HETMPI_ERR_BUFFER, hetmpi_allgather(in, 4, MPI_INT, NULL, 4, MPI_INT, comm));
    WRONG(comm, HETMPI_ERR_COUNT, hetmpi_allgather(in, 4, MPI_INT, out, 5, MPI_INT, comm));
    WRONG(comm, HETMPI_ERR_TYPE, hetmpi_allgather(in, 4, MPI_INT, out, 4, MPI_FLOAT, comm));
    WRONG(comm, HETMPI_ERR_COUNT, hetmpi_allgather(in, huge, MPI_INT, out, huge, MPI_INT, comm));
    /* One byte beside this rank's block, and inside another's. */
    WRONG(comm, HETMPI_ERR_BUFFER, hetmpi_allgather(in + 16 * t_rank + 4, 4, MPI_INT, in, 4, MPI_INT, comm));

    WRONG(comm, HETMPI_ERR_BUFFER, hetmpi_reduce_scatter_block(NULL, out, 4, MPI_INT, MPI_SUM, comm));
    WRONG(comm, HETMPI_ERR_BUFFER, hetmpi_reduce_scatter_block(in, NULL, 4, MPI_INT, MPI_SUM, comm));
    WRONG(comm, HETMPI_ERR_BUFFER, hetmpi_reduce_scatter_block(in, in + 16 * t_rank + 4, 4, MPI_INT, MPI_SUM, comm));
    WRONG(comm, HETMPI_ERR_OP, hetmpi_reduce_scatter_block(in, out, 4, MPI_C_BOOL, MPI_SUM, comm));
    WRONG(comm, HETMPI_ERR_ARG, hetmpi_ibarrier(comm, NULL));
}

/* None of these has a communicator that could report. */
static void check_without_communicator(void)
{
    hetmpi_request_t none = HETMPI_REQUEST_NULL;
    hetmpi_comm_info_t info;
    MPI_Status status = { .MPI_ERROR = -1 };
    int flag = 0, index = 0, error = 0;
    void *p = in;
    reset();
    t_stage("MPI_COMM_NULL");
    T_CODE(HETMPI_ERR_ARG, hetmpi_allreduce(in, out, 4, MPI_INT, MPI_SUM, MPI_COMM_NULL));
    T_CODE(HETMPI_ERR_ARG, hetmpi_barrier(MPI_COMM_NULL));
    T_CODE(HETMPI_ERR_ARG, hetmpi_ibarrier(MPI_COMM_NULL, &none));
    T_CODE(HETMPI_ERR_ARG, hetmpi_comm_attach(MPI_COMM_NULL, MPI_INFO_NULL));
    T_CODE(HETMPI_ERR_ARG, hetmpi_comm_detach(MPI_COMM_NULL));
    T_CODE(HETMPI_ERR_ARG, hetmpi_comm_info(MPI_COMM_NULL, &info));
    T_CODE(HETMPI_ERR_ARG, hetmpi_comm_error(MPI_COMM_NULL, &error));
    T_CODE(HETMPI_ERR_ARG, hetmpi_comm_abort(MPI_COMM_NULL));
    t_stage("requests that are not active");
    T_OK(hetmpi_wait(&none, &status));
    T_OK(hetmpi_test(&none, &flag, MPI_STATUS_IGNORE));
    T_CHECK(flag, "test of HETMPI_REQUEST_NULL gave flag 0");
    T_OK(hetmpi_waitall(1, &none, MPI_STATUSES_IGNORE));
    T_OK(hetmpi_waitall(0, NULL, MPI_STATUSES_IGNORE));
    T_OK(hetmpi_testall(1, &none, &flag, MPI_STATUSES_IGNORE));
    T_OK(hetmpi_waitany(1, &none, &index, MPI_STATUS_IGNORE));
    T_CHECK(index == MPI_UNDEFINED, "waitany of no active request gave index %d", index);
    T_CODE(HETMPI_ERR_STATE, hetmpi_start(&none));
    T_CODE(HETMPI_ERR_ARG, hetmpi_wait(NULL, &status));
    T_CODE(HETMPI_ERR_ARG, hetmpi_malloc(8, HETMPI_MEM_HOST, NULL));
    T_CODE(HETMPI_ERR_ARG, hetmpi_malloc(8, (hetmpi_mem_t)17, &p));
    T_OK(hetmpi_malloc(0, HETMPI_MEM_DEVICE, &p));
    T_CHECK(p == NULL, "hetmpi_malloc of 0 bytes gave %p", p);
    T_OK(hetmpi_free(NULL));
    T_CHECK(hetmpi_error_string(-1) && hetmpi_error_string(99999), "an unknown code has no text");
    for (int code = 0; code < HETMPI_ERR_LAST; code++)
        T_CHECK(hetmpi_error_string(code) && hetmpi_error_string(code)[0], "code %d has no text", code);
}

/* What a program can ask about the library. */
static void check_questions(void)
{
    hetmpi_comm_info_t info;
    hetmpi_mem_t where = HETMPI_MEM_DEVICE;
    char text[64] = "", message[MPI_MAX_ERROR_STRING + 1] = "";
    int length = 0, class = 0;
    void *p;
    t_stage("questions");
    T_OK(hetmpi_setting("TIMEOUT", text, sizeof text));
    T_CHECK(strcmp(text, "0") == 0, "TIMEOUT is \"%s\"", text);
    T_CODE(HETMPI_ERR_ARG, hetmpi_setting("TIMEOUTS", text, sizeof text));
    T_CODE(HETMPI_ERR_ARG, hetmpi_setting("SMALL", text, 3));
    T_CODE(HETMPI_ERR_ARG, hetmpi_setting(NULL, text, sizeof text));
    T_CODE(HETMPI_ERR_ARG, hetmpi_setting("SMALL", NULL, 0));
    T_CODE(HETMPI_ERR_ARG, hetmpi_op_supported(MPI_INT, MPI_SUM, NULL));
    T_OK(hetmpi_mem_where(text, &where));
    T_CHECK(where == HETMPI_MEM_HOST, "the stack is device memory");
    T_OK(hetmpi_mem_where(NULL, &where));
    T_CODE(HETMPI_ERR_ARG, hetmpi_mem_where(text, NULL));
    T_OK(hetmpi_comm_info(MPI_COMM_SELF, &info));
    T_OK(hetmpi_malloc(4096, HETMPI_MEM_DEVICE, &p));
    T_OK(hetmpi_mem_where((char *)p + 4095, &where));
    T_CHECK((where == HETMPI_MEM_DEVICE) == (info.device >= 0),
            "device memory, with device %d: %d", info.device, (int)where);
    T_OK(hetmpi_free(p));
    T_CHECK(hetmpi_mpi_code(HETMPI_SUCCESS) == MPI_SUCCESS, "success is an error");
    T_CODE(HETMPI_ERR_ROOT, hetmpi_bcast(in, 1, MPI_INT, -1, MPI_COMM_WORLD));
    T_MPI(MPI_Error_string(hetmpi_mpi_code(HETMPI_ERR_ROOT), message, &length));
    T_CHECK(strstr(message, "hetmpi_bcast") != NULL, "the last message is \"%s\"", message);
    T_MPI(MPI_Error_class(hetmpi_mpi_code(HETMPI_ERR_DEVICE), &class));
    T_CHECK(class > MPI_ERR_LASTCODE, "hetmpi's error class is %d", class);
    T_CHECK(hetmpi_mpi_code(-5) == hetmpi_mpi_code(HETMPI_ERR_INTERNAL), "an unknown code is not internal");
}

static void check_requests(MPI_Comm comm)
{
    hetmpi_request_t request = HETMPI_REQUEST_NULL, plain = HETMPI_REQUEST_NULL;
    int32_t x = 1;
    t_stage("persistent request used out of order");
    reset();
    T_OK(hetmpi_allreduce_init(MPI_IN_PLACE, &x, 1, MPI_INT32_T, MPI_SUM, comm, MPI_INFO_NULL, &request));
    T_OK(hetmpi_wait(&request, MPI_STATUS_IGNORE)); /* inactive: at once */
    T_OK(hetmpi_start(&request));
    T_CODE(HETMPI_ERR_STATE, hetmpi_start(&request));
    T_OK(hetmpi_wait(&request, MPI_STATUS_IGNORE));
    T_CHECK(x == t_ranks, "sum of ones is %d", x);
    T_OK(hetmpi_request_free(&request));
    T_OK(hetmpi_iallreduce(MPI_IN_PLACE, &x, 1, MPI_INT32_T, MPI_MAX, comm, &plain));
    T_CODE(HETMPI_ERR_STATE, hetmpi_start(&plain));
    T_OK(hetmpi_wait(&plain, MPI_STATUS_IGNORE));
}

static void check_settings_calls(MPI_Comm comm)
{
    MPI_Info info;
    MPI_Comm fresh;
    T_MPI(MPI_Info_create(&info));
    T_MPI(MPI_Info_set(info, "timeout", "30"));
    WRONG(comm, HETMPI_ERR_STATE, hetmpi_comm_attach(comm, info));
    t_stage("info keys");
    T_OK(hetmpi_comm_attach(comm, MPI_INFO_NULL));
    T_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &fresh));
    T_MPI(MPI_Comm_set_errhandler(fresh, MPI_ERRORS_RETURN));
    T_MPI(MPI_Info_set(info, "no_such_setting", "1"));
    T_CODE(HETMPI_ERR_CONFIG, hetmpi_comm_attach(fresh, info));
    T_CHECK(strstr(hetmpi_last_error(), "no_such_setting") || strstr(hetmpi_last_error(), "NO_SUCH_SETTING"),
            "the message does not name the key: %s", hetmpi_last_error());
    T_MPI(MPI_Info_delete(info, "no_such_setting"));
    T_MPI(MPI_Info_set(info, "wire_precision", "sometimes"));
    T_CODE(HETMPI_ERR_CONFIG, hetmpi_comm_attach(fresh, info));
    T_CHECK(strstr(hetmpi_last_error(), "sometimes") != NULL, "the message does not show the value: %s",
            hetmpi_last_error());
    /* One rank alone has a bad value: all hear of it. */
    T_MPI(MPI_Info_set(info, "wire_precision", t_rank == t_ranks - 1 ? "never" : "exact"));
    T_CODE(HETMPI_ERR_CONFIG, hetmpi_comm_attach(fresh, info));
    /* Nothing of it stuck. */
    T_MPI(MPI_Info_set(info, "wire_precision", "exact"));
    T_OK(hetmpi_comm_attach(fresh, info));
    T_OK(hetmpi_barrier(fresh));
    T_MPI(MPI_Info_free(&info));
    T_MPI(MPI_Comm_free(&fresh));
}

static void check_intercommunicator(void)
{
    MPI_Comm half, inter;
    if (t_ranks < 2)
        return;
    t_stage("intercommunicator");
    reset();
    T_MPI(MPI_Comm_split(MPI_COMM_WORLD, t_rank % 2, t_rank, &half));
    T_MPI(MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, t_rank % 2 ? 0 : 1, 7, &inter));
    T_MPI(MPI_Comm_set_errhandler(inter, MPI_ERRORS_RETURN));
    T_CODE(HETMPI_ERR_ARG, hetmpi_allreduce(in, out, 4, MPI_INT, MPI_SUM, inter));
    T_CODE(HETMPI_ERR_ARG, hetmpi_barrier(inter));
    T_CODE(HETMPI_ERR_ARG, hetmpi_comm_attach(inter, MPI_INFO_NULL));
    T_MPI(MPI_Comm_free(&inter));
    T_MPI(MPI_Comm_free(&half));
}

/* A call while MPI is not there: HETMPI_ERR_STATE with a message, and memory works all the same. */
static void check_outside(const char *when)
{
    hetmpi_request_t request = HETMPI_REQUEST_NULL;
    hetmpi_comm_info_t info;
    MPI_Status status;
    void *p = NULL;
    int flag = 0, index = 0;
    int32_t x = 5, y = 0;
    t_stage("%s", when);
    T_CODE(HETMPI_ERR_STATE, hetmpi_allreduce(&x, &y, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    T_CHECK(hetmpi_last_error()[0] != '\0', "no message");
    T_CHECK(y == 0, "the receive buffer was written");
    T_CODE(HETMPI_ERR_STATE, hetmpi_barrier(MPI_COMM_WORLD));
    T_CODE(HETMPI_ERR_STATE, hetmpi_iallreduce(&x, &y, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request));
    T_CODE(HETMPI_ERR_STATE, hetmpi_comm_attach(MPI_COMM_WORLD, MPI_INFO_NULL));
    T_CODE(HETMPI_ERR_STATE, hetmpi_comm_info(MPI_COMM_WORLD, &info));
    T_CODE(HETMPI_ERR_STATE, hetmpi_comm_detach(MPI_COMM_WORLD));
    T_CHECK(request == HETMPI_REQUEST_NULL, "a refused call gave a request");
    T_OK(hetmpi_wait(&request, &status));
    T_OK(hetmpi_test(&request, &flag, &status));
    T_OK(hetmpi_waitany(1, &request, &index, &status));
    T_CHECK(flag && index == MPI_UNDEFINED, "no request: flag %d, index %d", flag, index);
    T_CHECK(hetmpi_version()[0] && hetmpi_build_info()[0] && hetmpi_error_string(HETMPI_ERR_STATE)[0], "no texts");
    T_CODE(HETMPI_ERR_STATE, hetmpi_op_supported(MPI_INT, MPI_SUM, &flag));
    T_CHECK(hetmpi_mpi_code(HETMPI_ERR_STATE) == MPI_ERR_OTHER, "an MPI error code without MPI");
    T_OK(hetmpi_malloc(64, HETMPI_MEM_DEVICE, &p));
    T_OK(hetmpi_memcpy(p, &x, sizeof x));
    T_OK(hetmpi_memcpy(&y, p, sizeof x));
    T_CHECK(y == 5, "memory gave back %d, not 5", y);
    T_OK(hetmpi_free(p));
}

static int fatal(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int32_t x = 1;
    hetmpi_allreduce(&x, &x, 1, MPI_INT32_T, MPI_SUM, MPI_COMM_WORLD);
    hetmpi_bcast(&x, 1, MPI_INT32_T, 12345, MPI_COMM_WORLD);
    printf("went on\n");
    fflush(stdout);
    MPI_Finalize();
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "fatal") == 0)
        return fatal(argc, argv);
    check_outside("before MPI_Init");
    t_begin(&argc, &argv, "errors", MPI_THREAD_SINGLE);
    MPI_Errhandler handler;
    MPI_Comm comm;
    T_MPI(MPI_Comm_create_errhandler(on_error, &handler));
    T_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    T_MPI(MPI_Comm_set_errhandler(comm, handler));
    T_MPI(MPI_Errhandler_free(&handler));
    check_arguments(comm);  /* as first calls on the communicator, */
    T_OK(hetmpi_barrier(comm));
    check_arguments(comm);  /* and once it is set up */
    check_requests(comm);
    check_settings_calls(comm);
    /* MPI_ERRORS_RETURN: the code alone. */
    T_MPI(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    reset();
    T_CODE(HETMPI_ERR_ROOT, hetmpi_bcast(out, 1, MPI_INT, -1, comm));
    T_CHECK(handler_calls == 0, "a handler that is no longer set was called");
    check_without_communicator();
    check_questions();
    check_intercommunicator();
    T_OK(hetmpi_barrier(comm));
    T_MPI(MPI_Comm_free(&comm));
    T_OK(hetmpi_barrier(MPI_COMM_WORLD));
    int status = t_verdict(), before = t_failures();
    MPI_Finalize();
    check_outside("after MPI_Finalize");
    return status || t_failures() != before ? 1 : 0;
}
