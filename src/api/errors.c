/* Errors as MPI has them: codes, texts, and the communicator's error handler. */
#include <pthread.h>
#include <stdio.h>

#include "api/api.h"
#include "core/log.h"
#include "core/proc.h"

static struct {
    pthread_mutex_t lock;
    int codes[HETMPI_ERR_LAST];   /* MPI error codes of ours; 0: not made yet */
    int error_class;
} errors = {.lock = PTHREAD_MUTEX_INITIALIZER};

const char *hetmpi_error_string(int code)
{
    static const char *const texts[HETMPI_ERR_LAST] = {
        [HETMPI_SUCCESS] = "success",
        [HETMPI_ERR_ARG] = "invalid argument",
        [HETMPI_ERR_TYPE] = "data type not supported",
        [HETMPI_ERR_OP] = "operation not supported",
        [HETMPI_ERR_COUNT] = "invalid count",
        [HETMPI_ERR_ROOT] = "invalid root",
        [HETMPI_ERR_RANK] = "invalid rank",
        [HETMPI_ERR_TAG] = "invalid tag",
        [HETMPI_ERR_BUFFER] = "invalid buffer",
        [HETMPI_ERR_MISMATCH] = "the ranks called different things",
        [HETMPI_ERR_TIMEOUT] = "timeout",
        [HETMPI_ERR_PEER] = "a rank died",
        [HETMPI_ERR_DEVICE] = "device error",
        [HETMPI_ERR_MPI] = "error in MPI",
        [HETMPI_ERR_MEMORY] = "out of memory",
        [HETMPI_ERR_CONFIG] = "invalid setting",
        [HETMPI_ERR_UNSUPPORTED] = "not supported here",
        [HETMPI_ERR_STATE] = "call out of order",
        [HETMPI_ERR_ABORTED] = "communicator aborted",
        [HETMPI_ERR_TRUNCATE] = "message truncated",
        [HETMPI_ERR_INTERNAL] = "internal error",
    };

    return code >= 0 && code < HETMPI_ERR_LAST ? texts[code] : "unknown error code";
}

const char *hetmpi_last_error(void)
{
    return err_text();
}

/* The MPI error code for one of ours. Under the lock. */
static int mpi_code_locked(int code)
{
    if (!errors.error_class)
        MPI_Add_error_class(&errors.error_class);
    if (!errors.codes[code]) {
        MPI_Add_error_code(errors.error_class, &errors.codes[code]);
        MPI_Add_error_string(errors.codes[code], hetmpi_error_string(code));
    }
    return errors.codes[code];
}

int hetmpi_mpi_code(int code)
{
    int mpi_code;

    if (code == HETMPI_SUCCESS)
        return MPI_SUCCESS;
    if (!proc_mpi_is_up())
        return MPI_ERR_OTHER;
    pthread_mutex_lock(&errors.lock);
    mpi_code = mpi_code_locked(code > 0 && code < HETMPI_ERR_LAST ? code : HETMPI_ERR_INTERNAL);
    pthread_mutex_unlock(&errors.lock);
    return mpi_code;
}

/* The same, its text being the message of now. */
static int mpi_code_of(const char *function, int code)
{
    char text[MPI_MAX_ERROR_STRING];
    int mpi_code;

    pthread_mutex_lock(&errors.lock);
    mpi_code = mpi_code_locked(code);
    snprintf(text, sizeof(text), "hetmpi_%s: %s: %s", function, err_name(code), err_text());
    MPI_Add_error_string(mpi_code, text);
    pthread_mutex_unlock(&errors.lock);
    return mpi_code;
}

/* A program that is about to be stopped shows the whole message itself: MPI's own line is short, and not every MPI
 * brings it to the terminal when several ranks stop at once. */
static void show_if_fatal(MPI_Comm comm, const char *function)
{
    MPI_Errhandler handler;

    if (MPI_Comm_get_errhandler(comm, &handler) != MPI_SUCCESS)
        return;
    if (handler == MPI_ERRORS_ARE_FATAL)
        log_print(LOG_ERROR, "hetmpi_%s: %s", function, err_text());
    if (handler != MPI_ERRHANDLER_NULL)
        MPI_Errhandler_free(&handler);
}

/* Below MPI_THREAD_SERIALIZED the handler, which is MPI's, is for the main thread alone. */
static bool may_call_handler(void)
{
    int level = MPI_THREAD_SINGLE, is_main = 0;

    MPI_Query_thread(&level);
    MPI_Is_thread_main(&is_main);
    return level >= MPI_THREAD_SERIALIZED || is_main;
}

int api_report(MPI_Comm comm, const char *function, int code)
{
    if (code == HETMPI_SUCCESS)
        return code;
    if (!proc_mpi_is_up()) {
        /* There is no handler to ask. */
        log_print(LOG_ERROR, "hetmpi_%s: %s", function, err_text());
        return code;
    }
    if (!may_call_handler()) {
        log_print(LOG_ERROR, "hetmpi_%s: %s", function, err_text());
        return code;
    }
    if (comm == MPI_COMM_NULL)
        comm = MPI_COMM_WORLD;   /* as MPI does for errors of no communicator */
    show_if_fatal(comm, function);
    MPI_Comm_call_errhandler(comm, mpi_code_of(function, code));
    return code;
}
