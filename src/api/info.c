/* What this copy of the library is. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "core/config.h"
#include "core/log.h"
#include "mem/mem.h"
#include "wire/wire.h"

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
    snprintf(build_text, sizeof(build_text), "hetmpi %s; backend %s; wires mpi, shm%s; providers shm, ipc, mpi; %.200s; "
             "compiled by %s", hetmpi_version(), mem_backend(),
             wire_verbs.send ? ", verbs" : "", mpi,
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

static int find_setting(const char *name, char *text, size_t bytes)
{
    const struct cfg *cfg = cfg_process();

    if (!cfg)
        return HETMPI_ERR_CONFIG;
    if (!name || !text || !bytes)
        return err_set(HETMPI_ERR_ARG, "setting: %s", !name ? "name is NULL" : "there is no room for the text");
    for (size_t i = 0; i < cfg_rows(); i++) {
        if (strcmp(cfg_row(i)->name, name) != 0)
            continue;
        cfg_value(cfg, i, text, bytes);
        if (strlen(text) + 1 == bytes)
            return err_set(HETMPI_ERR_ARG, "setting: the value of %s is longer than %zu bytes", name, bytes);
        return HETMPI_SUCCESS;
    }
    return err_set(HETMPI_ERR_ARG, "setting: there is no setting %.40s (hetmpi_info lists all)", name);
}

int hetmpi_setting(const char *name, char *text, size_t bytes)
{
    int code = find_setting(name, text, bytes);

    return code ? api_report(MPI_COMM_NULL, "setting", code) : HETMPI_SUCCESS;
}
