/*
 * hetmpi_doctor: what is wrong with the machines of a job, what it costs, and what mends it.
 *
 *   doctor.c    arguments, the order of things, exit code
 *   files.c     what the kernel says in /proc and /sys, below a root that tests choose
 *   system.c    limits, shared memory, kernel modules, IOMMU
 *   pci.c       GPUs, their drivers, how far they are from the NICs
 *   nic.c       RDMA NICs: state, addresses, MTU, errors that grow
 *   reach.c     TCP between nodes: refused, dropped, or open and silent
 *   ranks.c     MPI, hetmpi, and a test of every rank and every pair
 *   gather.c    everybody's answers to rank 0
 *   print.c     text and JSON
 *   fields.c    fields of JSON objects
 *
 * Facts and findings are JSON objects from the beginning: they travel and are printed as such.
 */
#ifndef HETMPI_DOCTOR_H
#define HETMPI_DOCTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include <json-c/json.h>
#include <mpi.h>

/* The exit code is that of the worst finding. */
enum severity {
    NOTE,        /* worth knowing; exit code 0 */
    WARNING,     /* works, slower or less safely than it could; exit code 1 */
    FAULT,       /* does not work; exit code 2 */
};
enum { EXIT_NOT_RUN = 3 };   /* wrong arguments, or no MPI to start */

struct options {
    const char *root;        /* in front of /proc, /sys, /boot and /dev; "" */
    double seconds;          /* of the tests */
    bool json;
    const char *probe;       /* HOST:PORT, NULL: none */
    int listen;              /* a port, 0: no */
};

struct doctor {
    struct options options;
    char host[64];
    int rank, ranks;         /* in MPI_COMM_WORLD */
    bool leader;             /* of the ranks of this machine */
    MPI_Comm leaders;        /* MPI_COMM_NULL but on leaders */
    struct json_object *facts;      /* of this machine; only the leader's is filled */
    struct json_object *findings;
    struct json_object *pairs;      /* measured by this rank */
};

/* what: printf-like. cost, mend: what it costs, and the command or the step that mends it; "" for nothing. */
void find(struct doctor *doctor, enum severity severity, const char *topic, const char *cost, const char *mend,
          const char *what, ...) __attribute__((format(printf, 6, 7)));

/* ---- fields.c. A field that is not there is "" and 0. */
void add_text(struct json_object *object, const char *key, const char *text);
const char *text_of(struct json_object *object, const char *key);
double number_of(struct json_object *object, const char *key);

/* ---- files.c. Paths are printf-like, without the root. */
/* The file's text without the last end of line; false, and "": none. */
bool file_text(const struct doctor *doctor, char *text, size_t bytes, const char *path, ...)
    __attribute__((format(printf, 4, 5)));
bool file_exists(const struct doctor *doctor, const char *path, ...) __attribute__((format(printf, 2, 3)));
/* The file's first line that begins so, whole; false: none. */
bool file_line(const struct doctor *doctor, char *line, size_t bytes, const char *begin, const char *path, ...)
    __attribute__((format(printf, 5, 6)));
long long file_number(const struct doctor *doctor, long long otherwise, const char *path, ...)
    __attribute__((format(printf, 3, 4)));
/* The names in a folder, sorted; free each and the array. */
int folder_list(const struct doctor *doctor, char ***names, const char *path, ...)
    __attribute__((format(printf, 3, 4)));
void folder_free(char **names, int n);
/* Where a path leads, links followed, without the root. */
bool file_real(const struct doctor *doctor, char *real, size_t bytes, const char *path, ...)
    __attribute__((format(printf, 4, 5)));

/* ---- the checks of a machine; each adds to facts and findings */
void check_pci(struct doctor *doctor);            /* first: the others look at facts.gpus */
void check_nics(struct doctor *doctor);           /* second */
void check_system(struct doctor *doctor);
void check_distances(struct doctor *doctor);
void check_nic_errors(struct doctor *doctor);     /* after the tests: what grew since check_nics */
int facts_gpus(const struct doctor *doctor, const char *vendor);   /* how many; NULL: all */
int facts_nics(const struct doctor *doctor);

/* ---- reach.c */
void check_reach(struct doctor *doctor);          /* collective over the leaders */
void check_probe(struct doctor *doctor);          /* options.probe */
int listen_until_killed(int port, double seconds);   /* exit code */

/* ---- ranks.c, gather.c, print.c: collective over all ranks */
void check_ranks(struct doctor *doctor);
struct json_object *gather(struct doctor *doctor);   /* rank 0: the report; NULL elsewhere */
enum severity report_worst(struct json_object *report);
int report_print(struct json_object *report, const struct options *options);   /* 0, or an error of standard output */

#endif
