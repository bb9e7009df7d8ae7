/* What this copy of the library is. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "mem/mem.h"

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

const char *hetmpi_version(void)
{
    return TEXT(HETMPI_VERSION_MAJOR) "." TEXT(HETMPI_VERSION_MINOR) "." TEXT(HETMPI_VERSION_PATCH);
}

static char build_text[512];

static void write_build_text(void)
{
    char mpi[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;

    MPI_Get_library_version(mpi, &length);
    mpi[strcspn(mpi, ",\n")] = '\0';   /* the first words name it */
    snprintf(build_text, sizeof(build_text), "hetmpi %s; backend %s; wires mpi, shm; providers shm, ipc, mpi; %.200s; "
             "compiled by %s", hetmpi_version(), mem_backend(), mpi,
#ifdef __clang__
             "clang " __clang_version__
#else
             "gcc " __VERSION__
#endif
             );
}

const char *hetmpi_build_info(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, write_build_text);
    return build_text;
}
