/* hetmpi_doctor: arguments and the order of things. See doctor.h. */
#include "doctor.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/config.h"

static void usage(FILE *to)
{
    fprintf(to,
            "usage: hetmpi_doctor [OPTION]...     this machine; under mpiexec: all machines of the job, and between them\n"
            "       --json                       the report as JSON\n"
            "       --seconds SECONDS            time for the tests of all pairs (10)\n"
            "       --probe HOST:PORT            only see whether a doctor that listens there answers; starts no MPI\n"
            "       --listen PORT                only answer such doctors, for that many seconds; starts no MPI\n"
            "       --root FOLDER                read FOLDER/proc, /sys, /boot and /dev (of another machine, or a test)\n"
            "       exit code 0                  nothing wrong, or only notes\n"
            "       exit code 1                  warnings: it works, slower or less safely than it could\n"
            "       exit code 2                  faults: something does not work\n"
            "       exit code 3                  wrong arguments, or the doctor could not run\n");
}

static bool parse_seconds(const char *text, struct options *options)
{
    return cfg_parse_time(text, &options->seconds) && options->seconds > 0;
}

static bool parse_probe(const char *text, struct options *options)
{
    options->probe = text;
    return strrchr(text, ':') && strrchr(text, ':') != text;
}

static bool parse_listen(const char *text, struct options *options)
{
    char *end;
    long port = strtol(text, &end, 10);

    options->listen = (int)port;
    return *text && !*end && port > 0 && port < 65536;
}

static bool parse_root(const char *text, struct options *options)
{
    options->root = text;
    return access(text, X_OK) == 0;
}

static int refuse(const char *option, const char *value)
{
    fprintf(stderr, value ? "hetmpi_doctor: %s %s is not understood\n" : "hetmpi_doctor: %s is not understood, or lacks its "
            "value\n", option, value);
    usage(stderr);
    return EXIT_NOT_RUN + 1;
}

/* 0: go on; else the exit code + 1. */
static int parse(int argc, char **argv, struct options *options)
{
    static const struct { const char *name; bool (*parse)(const char *, struct options *); } valued[] = {
        {"--seconds", parse_seconds}, {"--probe", parse_probe}, {"--listen", parse_listen}, {"--root", parse_root},
    };
    const size_t n = sizeof(valued) / sizeof(valued[0]);

    *options = (struct options){.root = "", .seconds = 10};
    for (int i = 1; i < argc; i++) {
        size_t at = 0;

        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            usage(stdout);
            return EXIT_SUCCESS + 1;
        }
        if (strcmp(argv[i], "--json") == 0) {
            options->json = true;
            continue;
        }
        while (at < n && strcmp(argv[i], valued[at].name) != 0)
            at++;
        if (at == n || i + 1 == argc)
            return refuse(argv[i], NULL);
        i++;
        if (!valued[at].parse(argv[i], options))
            return refuse(argv[i - 1], argv[i]);
    }
    return 0;
}

static void doctor_begin(struct doctor *doctor)
{
    gethostname(doctor->host, sizeof(doctor->host) - 1);
    doctor->leaders = MPI_COMM_NULL;
    doctor->leader = true;
    doctor->ranks = 1;
    doctor->facts = json_object_new_object();
    doctor->findings = json_object_new_array();
    doctor->pairs = json_object_new_array();
    add_text(doctor->facts, "host", doctor->host);
}

static void doctor_end(struct doctor *doctor)
{
    json_object_put(doctor->facts);
    json_object_put(doctor->findings);
    json_object_put(doctor->pairs);
}

/* One rank of each machine looks at it. */
static void choose_leaders(struct doctor *doctor)
{
    MPI_Comm machine;
    int rank;

    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine);
    MPI_Comm_rank(machine, &rank);
    MPI_Comm_free(&machine);
    doctor->leader = rank == 0;
    MPI_Comm_split(MPI_COMM_WORLD, doctor->leader ? 0 : MPI_UNDEFINED, 0, &doctor->leaders);
}

static void check_machine(struct doctor *doctor)
{
    check_pci(doctor);
    check_nics(doctor);
    check_system(doctor);
    check_distances(doctor);
}

static int finish(struct doctor *doctor, struct json_object *report)
{
    int code = (int)report_worst(report);

    if (report_print(report, &doctor->options)) {
        perror("hetmpi_doctor: standard output");
        code = EXIT_NOT_RUN;
    }
    json_object_put(report);
    return code;
}

static int examine_job(struct doctor *doctor, int *argc, char ***argv)
{
    struct json_object *report;
    int level, code = EXIT_SUCCESS;

    if (MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &level) != MPI_SUCCESS) {
        fprintf(stderr, "hetmpi_doctor: MPI does not start\n");
        return EXIT_NOT_RUN;
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &doctor->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &doctor->ranks);
    choose_leaders(doctor);
    if (doctor->leader) {
        check_machine(doctor);
        check_reach(doctor);
    }
    check_ranks(doctor);
    if (doctor->leader)
        check_nic_errors(doctor);
    report = gather(doctor);
    if (report)
        code = finish(doctor, report);
    if (doctor->leader)
        MPI_Comm_free(&doctor->leaders);
    MPI_Finalize();
    return code;
}

int main(int argc, char **argv)
{
    struct doctor doctor = {.rank = 0};
    int code = parse(argc, argv, &doctor.options);

    if (code)
        return code - 1;
    if (doctor.options.listen)
        return listen_until_killed(doctor.options.listen, doctor.options.seconds);
    doctor_begin(&doctor);
    if (doctor.options.probe) {
        doctor.leader = false;   /* nothing is said of this machine */
        check_probe(&doctor);
        code = finish(&doctor, gather(&doctor));
    } else {
        code = examine_job(&doctor, &argc, &argv);
    }
    doctor_end(&doctor);
    return code;
}
