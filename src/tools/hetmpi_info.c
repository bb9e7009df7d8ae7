/* hetmpi_info: what this copy of the library is; the settings, with the values that a program started here would get, and where
 * they come from; the islands and wires of a job. Only the last starts MPI. --markdown writes docs/settings.md. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <mpi.h>

#include "core/config.h"
#include "core/log.h"
#include "hetmpi.h"

static struct cfg defaults;

/* A library for GPUs where none can be used is told apart from one that works. */
static void print_device(void)
{
    void *memory;

    if (hetmpi_malloc(1, HETMPI_MEM_DEVICE, &memory))
        printf("No device: %s\n", hetmpi_last_error());
    else
        hetmpi_free(memory);
}

static int list(void)
{
    static const char *const origins[] = {"default", "file", "environment"};
    static char value[sizeof(defaults.islands)];
    const struct cfg *cfg = cfg_process();

    if (!cfg) {
        fprintf(stderr, "hetmpi_info: %s\n", err_text());
        return EXIT_FAILURE;
    }
    printf("%s\n", hetmpi_build_info());
    print_device();
    printf("\n%-25s %-16s %-12s %s\n", "Name", "Value", "Origin", "Meaning");
    for (size_t i = 0; i < cfg_rows(); i++) {
        char name[64];

        snprintf(name, sizeof(name), "HETMPI_%s", cfg_row(i)->name);
        cfg_value(cfg, i, value, sizeof(value));
        printf("%-25s %-16s %-12s %s (%s)\n", name, *value ? value : "-", origins[cfg_row_origin(i)],
               cfg_row(i)->help, cfg_row(i)->values);
    }
    return EXIT_SUCCESS;
}

static int markdown(void)
{
    char *const nothing[] = {NULL};
    static char value[sizeof(defaults.islands)];

    if (cfg_load(&defaults, nothing)) {
        fprintf(stderr, "hetmpi_info: %s\n", err_text());
        return EXIT_FAILURE;
    }
    printf("# Settings\n\n"
           "<!-- Written by: hetmpi_info --markdown > docs/settings.md (a test compares them) -->\n\n"
           "A setting is given by the environment variable `HETMPI_<NAME>`, or by a line `NAME = value` in the file that "
           "`HETMPI_CONFIG` names\n(`#` starts a comment; the environment wins over the file). Settings marked *info* may "
           "also be given for one communicator, as an\n`MPI_Info` key in lower case to `hetmpi_comm_attach`; that wins "
           "over both. Settings marked *same* must be equal on all ranks of a\ncommunicator. Unknown names and bad values "
           "are errors, found at the first call. `hetmpi_info` lists the values in force here.\nNames beginning with "
           "`HETMPI_TEST_` are left to test programs, and `HETMPI_ROOT` to builds.\n\n"
           "| Name | Default | Values | Meaning | |\n|---|---|---|---|---|\n");
    for (size_t i = 0; i < cfg_rows(); i++) {
        const struct cfg_row *row = cfg_row(i);

        cfg_value(&defaults, i, value, sizeof(value));
        printf("| `%s` | %s%s%s | %s | %s | %s%s%s |\n", row->name, *value ? "`" : "", value, *value ? "`" : "",
               row->values, row->help, row->must_agree ? "same" : "", row->must_agree && row->per_comm ? ", " : "",
               row->per_comm ? "info" : "");
    }
    return EXIT_SUCCESS;
}

struct rank_info { hetmpi_comm_info_t info; char host[64]; };

static void print_job(const struct rank_info *ranks)
{
    printf("%s\n%d ranks, %d nodes, %d islands\n\n", hetmpi_build_info(), ranks[0].info.ranks, ranks[0].info.nodes,
           ranks[0].info.islands);
    printf("%6s %-24s %6s %7s %-8s %6s %-9s %-10s %5s\n", "Rank", "Host", "Node", "Island", "Vendor", "Device", "Provider", "Wire",
           "Rails");
    for (int i = 0; i < ranks[0].info.ranks; i++) {
        const hetmpi_comm_info_t *info = &ranks[i].info;

        printf("%6d %-24s %6d %7d %-8s %6d %-9s %-10s %5d\n", info->rank, ranks[i].host, info->node, info->island, info->vendor,
               info->device, info->provider, info->wire, info->rails);
    }
}

/* Under mpiexec: what hetmpi makes of the job. An error is MPI's to report, and ends the job. */
static int job(int *argc, char ***argv)
{
    struct rank_info mine = {.host = ""}, *all = NULL;
    int rank, ranks;

    MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    hetmpi_comm_info(MPI_COMM_WORLD, &mine.info);
    gethostname(mine.host, sizeof(mine.host) - 1);
    if (rank == 0 && !(all = calloc((size_t)ranks, sizeof(*all))))
        MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
    MPI_Gather(&mine, sizeof(mine), MPI_BYTE, all, sizeof(mine), MPI_BYTE, 0, MPI_COMM_WORLD);
    if (rank == 0)
        print_job(all);
    free(all);
    MPI_Finalize();
    return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    int code;

    if (argc == 1) {
        code = list();
    } else if (argc == 2 && strcmp(argv[1], "--markdown") == 0) {
        code = markdown();
    } else if (argc == 2 && strcmp(argv[1], "--job") == 0) {
        code = job(&argc, &argv);
    } else {
        bool help = argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0);

        fprintf(help ? stdout : stderr,
                "usage: hetmpi_info              list the settings, their values here, and where these come from\n"
                "       hetmpi_info --job        under mpiexec: the job's ranks, their islands, and the wires between them\n"
                "       hetmpi_info --markdown   the settings as a table for the documentation, with the defaults\n");
        code = help ? EXIT_SUCCESS : EXIT_FAILURE;
    }
    if (fflush(stdout)) {
        perror("hetmpi_info: standard output");
        code = EXIT_FAILURE;
    }
    return code;
}
