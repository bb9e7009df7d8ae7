/*
 * Settings: HETMPI_* environment variables, the file named by HETMPI_CONFIG, and MPI_Info keys, all from one table.
 * Parsed once at start, checked strictly, listed by hetmpi_info and in docs/settings.md. Nothing here calls MPI.
 */
#ifndef HETMPI_CONFIG_H
#define HETMPI_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum cfg_wire { CFG_WIRE_AUTO, CFG_WIRE_MPI, CFG_WIRE_SHM, CFG_WIRE_VERBS };
enum cfg_provider {
    CFG_PROVIDER_AUTO, CFG_PROVIDER_SHM, CFG_PROVIDER_IPC, CFG_PROVIDER_NCCL, CFG_PROVIDER_RCCL, CFG_PROVIDER_MPI
};
enum cfg_progress { CFG_PROGRESS_AUTO, CFG_PROGRESS_THREAD, CFG_PROGRESS_WAIT };
enum cfg_precision { CFG_PRECISION_ELEMENT, CFG_PRECISION_EXACT };
enum cfg_lost { CFG_LOST_MPI, CFG_LOST_ERROR };
enum cfg_origin { CFG_DEFAULT, CFG_FILE, CFG_ENVIRONMENT, CFG_INFO };

struct cfg {
    char islands[16384];      /* "auto" or one label a rank */
    int wire, provider, progress, wire_precision, log;   /* the enums above; log: enum log_level */
    char rails[256];          /* "auto" or names, comma separated */
    size_t stripe;            /* smallest message (bytes) that goes over several rails */
    size_t zero_copy;         /* smallest message (bytes) that is not staged if it can be registered; 0: all are */
    int queue_depth, gid_index, service_level, traffic_class, pkey_index, retry_count, retry_timeout;
    int rails_lost;           /* enum cfg_lost: when none is left */
    size_t chunk;             /* bytes of a pipeline chunk; 0: chosen by size */
    size_t small;             /* largest message (bytes) of the one-exchange short cut */
    size_t eager;             /* largest point-to-point message (bytes) that is sent before its receiver is known */
    size_t staging;           /* bytes of staging memory a communicator may take on a wire */
    size_t mpi_piece;         /* bytes of the pieces of the mpi wire's messages to other nodes; 0: whole messages */
    int window;               /* chunks in flight; 0: chosen */
    int levels;               /* 0: chosen; 1: islands exchange directly; 2: those of a node first */
    double timeout;           /* seconds a wait may last; 0: for ever */
    bool check;               /* mismatch detection */
    int spin;                 /* polls before a waiting thread yields; -1: by the number of ranks and cores */
    int device;               /* -1: chosen (local rank modulo devices) */
    char sim_vendors[16384];  /* one a world rank, or "" */
    char sim_nodes[16384];
    double sim_bandwidth, sim_peer_bandwidth, sim_latency;
    char sim_fault[256];
    char report[1024], dump[1024];   /* "" or a file; "", a signal's name, or a file */
    char pmpi[256];           /* calls that libhetmpi_pmpi serves: words, comma separated */
};

/* One row of the table, for listings. */
struct cfg_row {
    const char *name;         /* "TIMEOUT"; the variable is HETMPI_TIMEOUT, the info key "timeout" */
    const char *values;       /* what is accepted: "seconds (us ms s), 0: none" */
    const char *help;
    bool must_agree;          /* must be equal on all ranks of a communicator */
    bool per_comm;            /* may be given as an MPI_Info key */
};

/* Fills *cfg from defaults, then the file, then the environment (environ-style array "NAME=value").
 * An unknown HETMPI_* name, a bad value, an unreadable file: HETMPI_ERR_CONFIG, message names it. *cfg is set only
 * on success. */
int cfg_load(struct cfg *cfg, char *const *environment);
/* One value, by lower-case key (an MPI_Info entry). An unknown key, or one that is not per_comm, is an error. */
int cfg_set_info(struct cfg *cfg, const char *key, const char *value);
/* The process's settings: parsed at the first call, then fixed. NULL after an error (kept in err_text). */
const struct cfg *cfg_process(void);

size_t cfg_rows(void);
const struct cfg_row *cfg_row(size_t index);
void cfg_value(const struct cfg *cfg, size_t index, char *text, size_t bytes);   /* as it would be written */
enum cfg_origin cfg_row_origin(size_t index);      /* of the process's settings */
/* For comparing ranks: one hash for each must_agree row (unused entries 0), and the setting's name for entry i. */
#define CFG_AGREE_MAX 24
void cfg_agree(const struct cfg *cfg, unsigned hash[CFG_AGREE_MAX]);
const char *cfg_agree_name(size_t i);

/* Parsers of the table, used by tools too: "64K" -> 65536, "1.5ms" -> 0.0015. Return false on bad text. */
bool cfg_parse_size(const char *text, size_t *bytes);
bool cfg_parse_time(const char *text, double *seconds);
/* Item number index of a comma-separated list copied to out; false if there is none. */
bool cfg_list_item(const char *list, int index, char *out, size_t bytes);
int cfg_list_length(const char *list);

#endif
