/*
 * The command line: the options of the OSU micro-benchmarks, and ours.
 */
#include <argp.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "bench.h"

enum { KEY_TYPE = 256, KEY_OP, KEY_IN_PLACE, KEY_COMPARE, KEY_BOUND, KEY_JSON, KEY_FORM, KEY_ROOT, KEY_SECONDS, KEY_WIRE };

static const struct argp_option entries[] = {
    {NULL, 0, NULL, 0, "As in the OSU micro-benchmarks:", 1},
    {"message-size", 'm', "[MIN:]MAX", 0, "Bytes of the smallest and the largest message (K, M, G are understood; "
     "default 8:64M; 8:4M for point to point). Sizes double, and are rounded up to whole elements (of every rank, for "
     "reduce_scatter)", 1},
    {"iterations", 'i', "N", 0, "Timed calls of each size (default 1000; 100 above 8 KiB)", 1},
    {"warmup", 'x', "N", 0, "Calls before them (default 200; 10 above 8 KiB)", 1},
    {"full", 'f', NULL, 0, "Also print the fastest and slowest rank, and the number of timed calls", 1},
    {"validation", 'c', "on|off", OPTION_ARG_OPTIONAL, "Check the results on every rank, for every size "
     "(default on)", 1},
    {"mem-limit", 'M', "BYTES", 0, "Memory that one process may take (default 512M): larger messages are left out", 1},
    {"accelerator", 'd', "WHERE", 0, "Where the buffers are: host (default); device: whatever device the ranks have; "
     "cuda, rocm, sim: the same, and it must be that one. No device: an error, never a figure", 1},
    {"help", 'h', NULL, 0, "Print this and stop", 1},
    {"version", 'v', NULL, 0, "Print version and build, and stop", 1},
    {NULL, 0, NULL, 0, "The call:", 2},
    {"type", KEY_TYPE, "TYPE", 0, "float32 (default), float64, float16, bfloat16, float8_e4m3, float8_e5m2, "
     "float8_e4m3fnuz, float8_e5m2fnuz, int8 ... int64, uint8 ... uint64, complex64, complex128, bool, byte, char, "
     "wchar", 2},
    {"op", KEY_OP, "OP", 0, "sum (default), prod, min, max, avg, band, bor, bxor, land, lor, lxor", 2},
    {"in-place", KEY_IN_PLACE, NULL, 0, "MPI_IN_PLACE, where the collective takes it", 2},
    {"root", KEY_ROOT, "RANK", 0, "Root of reduce, bcast, gather and scatter (default 0)", 2},
    {"form", KEY_FORM, "FORM", 0, "blocking (default), nonblocking (call, then wait), persistent (start, then wait)",
     2},
    {"wire", KEY_WIRE, "WIRE", 0, "verbs, mpi or shm: what carries the data between islands, and messages (default: as "
     "HETMPI_WIRE says)", 2},
    {NULL, 0, NULL, 0, "The figures:", 3},
    {"compare", KEY_COMPARE, "mpi", 0, "Time MPI's own blocking collective too, in turn with ours, on the same buffers "
     "(device buffers: on host copies, the copies counted). Adds its latency and the ratio, MPI's time over ours; "
     "both are then medians over ten blocks of calls", 3},
    {"bound", KEY_BOUND, NULL, 0, "Measure what the memory or the device links allow. Adds that time and our share of "
     "it, bound over the time of the slowest rank", 3},
    {"json", KEY_JSON, "FILE", 0, "Also write one JSON object a line and size", 3},
    {"seconds", KEY_SECONDS, "S", 0, "Time for the calls of one size, ours and MPI's each; fewer calls are made where "
     "it would take longer (default 2; without limit when -i is given)", 3},
    {0},
};

/* Says what is wrong (unless this rank is silent) and goes on: the caller ends the program, on every rank alike. */
static void __attribute__((format(printf, 2, 3))) reject(struct argp_state *state, const char *format, ...)
{
    struct bench_options *options = state->input;
    char text[256];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    argp_error(state, "%s", text);
    options->wrong = true;
}

/* "64K" -> 65536; also the end of the number. */
static bool parse_size(const char *text, size_t *bytes, const char **end)
{
    static const char suffixes[] = "KMG";
    char *after;

    if (*text < '0' || *text > '9')
        return false;
    errno = 0;
    unsigned long long value = strtoull(text, &after, 10);
    const char *suffix = *after ? strchr(suffixes, *after & ~0x20) : NULL;
    int shift = suffix && *suffix ? 10 * (int)(suffix - suffixes + 1) : 0;

    if (errno || value > (SIZE_MAX >> 1) >> shift)
        return false;
    *bytes = (size_t)value << shift;
    *end = after + (shift > 0);
    return true;
}

static void take_sizes(struct argp_state *state, struct bench_options *options, const char *text)
{
    size_t first, second;
    const char *end;

    if (!parse_size(text, &first, &end) || (*end && *end != ':'))
        reject(state, "-m %s: not MIN:MAX or MAX in bytes", text);
    else if (!*end)
        options->max_bytes = first;
    else if (!end[1])
        options->min_bytes = first;
    else if (!parse_size(end + 1, &second, &end) || *end)
        reject(state, "-m %s: not MIN:MAX or MAX in bytes", text);
    else
        options->min_bytes = first, options->max_bytes = second;
}

static int take_number(struct argp_state *state, const char *what, const char *text, int least)
{
    char *end;

    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno || end == text || *end || value < least || value > 1000000000) {
        reject(state, "%s %s: not a whole number from %d", what, text, least);
        return least;
    }
    return (int)value;
}

/* 1: on, 0: off, -1: neither. */
static int read_switch(const char *text)
{
    if (strcasecmp(text, "on") == 0 || strcmp(text, "1") == 0)
        return 1;
    return strcasecmp(text, "off") == 0 || strcmp(text, "0") == 0 ? 0 : -1;
}

static void take_switch(struct argp_state *state, struct bench_options *options, const char *text)
{
    int value = text ? read_switch(text) : 1;

    if (value < 0)
        reject(state, "-c %s: not on or off", text);
    options->validate = value != 0;
}

/* getopt takes the value of an optional argument only when it is joined to the option: "-c off" becomes "-coff". */
static int join_switch(int argc, char **argv)
{
    static char on[] = "-con", off[] = "-coff";

    for (int i = 1; i + 1 < argc; i++) {
        int value = strcmp(argv[i], "-c") == 0 ? read_switch(argv[i + 1]) : -1;
        if (value < 0)
            continue;
        argv[i] = value ? on : off;
        for (int j = i + 1; j < argc; j++)
            argv[j] = argv[j + 1];
        argc--;
    }
    return argc;
}

static void take_where(struct argp_state *state, struct bench_options *options, const char *text)
{
    static const char *const names[] = {"host", "device", "cuda", "rocm", "sim"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(text, names[i]) == 0) {
            options->device = names[i];
            options->where = i == 0 ? WHERE_HOST : WHERE_DEVICE;
            return;
        }
    }
    reject(state, "-d %s: not host, device, cuda, rocm or sim", text);
}

static void take_form(struct argp_state *state, struct bench_options *options, const char *text)
{
    if (strcmp(text, "blocking") == 0)
        options->form = FORM_BLOCKING;
    else if (strcmp(text, "nonblocking") == 0)
        options->form = FORM_NONBLOCKING;
    else if (strcmp(text, "persistent") == 0)
        options->form = FORM_PERSISTENT;
    else
        reject(state, "--form %s: not blocking, nonblocking or persistent", text);
}

static void take_seconds(struct argp_state *state, struct bench_options *options, const char *text)
{
    char *end;
    double value = strtod(text, &end);

    if (end == text || *end || !(value > 0 && value < 1e6))
        reject(state, "--seconds %s: not a time", text);
    else
        options->seconds = value;
}

/* A prefix of a product of complex numbers can have parts that are zero, and their signs depend on the order. */
static bool op_known(const struct bench_options *options)
{
    if (!op_defined(options->type, options->op))
        return false;
    return !kind_is(options->kind, KIND_PREFIX) ||
           (options->op != OP_AVG && !(options->op == OP_PROD && options->type->class == TYPE_COMPLEX));
}

/* What only the whole command line shows. */
static void finish(struct argp_state *state, struct bench_options *options)
{
    const char *name = kind_name(options->kind);
    bool reduces = kind_is(options->kind, KIND_REDUCES);

    if (!options->max_bytes)
        options->max_bytes = (size_t)(kind_is(options->kind, KIND_MESSAGES) ? 4 : 64) << 20;
    if (options->min_bytes > options->max_bytes)
        reject(state, "-m: the smallest message (%zu) is larger than the largest (%zu)", options->min_bytes,
                   options->max_bytes);
    else if (kind_is(options->kind, KIND_EMPTY) && (options->type_given || options->where != WHERE_HOST))
        reject(state, "a barrier has no data: --type and -d mean nothing");
    else if (options->op_given && !reduces)
        reject(state, "%s has no operation: --op means nothing", name);
    else if (options->in_place && !kind_is(options->kind, KIND_PLACES))
        reject(state, "%s is never in place: --in-place means nothing", name);
    else if (options->root && !kind_is(options->kind, KIND_ROOTED))
        reject(state, "%s has no root: --root means nothing", name);
    else if (options->form != FORM_BLOCKING && kind_is(options->kind, KIND_MESSAGES))
        reject(state, "%s has one form: --form means nothing", name);
    else if (options->compare && options->kind == BENCH_P2P)
        reject(state, "p2p compares nothing: --compare is for latency and bw");
    else if (reduces && !op_known(options))
        reject(state, "--op %s is not defined for --type %s%s", op_name(options->op), options->type->name,
               op_defined(options->type, options->op) ? " here" : "");
    if (options->seconds < 0)
        options->seconds = options->iterations >= 0 ? 1e9 : 2;
}

static error_t take_option(int key, char *text, struct argp_state *state)
{
    struct bench_options *options = state->input;
    const char *end;

    switch (key) {
    case 'm': take_sizes(state, options, text); break;
    case 'i': options->iterations = take_number(state, "-i", text, 1); break;
    case 'x': options->warmup = take_number(state, "-x", text, 0); break;
    case 'f': options->full = true; break;
    case 'c': take_switch(state, options, text); break;
    case 'M':
        if (!parse_size(text, &options->memory, &end) || *end)
            reject(state, "-M %s: not a number of bytes", text);
        break;
    case 'd': take_where(state, options, text); break;
    case 'h': options->help = true; break;
    case 'v': options->version = true; break;
    case KEY_TYPE:
        options->type_given = true;
        if (type_find(text))
            options->type = type_find(text);
        else
            reject(state, "--type %s: no such type", text);
        break;
    case KEY_OP:
        options->op_given = true;
        if (!op_find(text, &options->op))
            reject(state, "--op %s: no such operation", text);
        break;
    case KEY_IN_PLACE: options->in_place = true; break;
    case KEY_ROOT: options->root = take_number(state, "--root", text, 0); break;
    case KEY_FORM: take_form(state, options, text); break;
    case KEY_COMPARE:
        options->compare = true;
        if (strcmp(text, "mpi") != 0)
            reject(state, "--compare %s: only mpi", text);
        break;
    case KEY_BOUND: options->bound = true; break;
    case KEY_WIRE: options->wire = text; break;
    case KEY_JSON: options->json = text; break;
    case KEY_SECONDS: take_seconds(state, options, text); break;
    case ARGP_KEY_ARG: reject(state, "%s: not an option", text); break;
    case ARGP_KEY_END: finish(state, options); break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

bool options_parse(struct bench_options *options, enum bench_kind kind, int argc, char **argv, bool speaks)
{
    static const struct argp parser = {entries, take_option, NULL, "Latency of one hetmpi collective, or speed of "
                                       "its messages, as the OSU micro-benchmarks measure it. Start it with mpiexec.", NULL, NULL, NULL};
    *options = (struct bench_options){
        .kind = kind, .min_bytes = 8, .memory = (size_t)512 << 20, .iterations = -1,
        .warmup = -1, .seconds = -1, .validate = true, .device = "host", .type = type_find("float32"), .op = OP_SUM,
    };

    argc = join_switch(argc, argv);
    error_t error = argp_parse(&parser, argc, argv, speaks ? ARGP_NO_EXIT | ARGP_NO_HELP : ARGP_SILENT, NULL, options);
    if (speaks && options->help)
        argp_help(&parser, stdout, ARGP_HELP_USAGE | ARGP_HELP_LONG | ARGP_HELP_DOC, argv[0]);
    return error == 0 && !options->wrong;
}
