/*
 * What a run prints: header and lines in the form of the OSU micro-benchmarks, so that their parsers work, and one JSON
 * object a line and size. Columns that OSU does not have come only with the options that ask for them.
 */
#include <json-c/json.h>
#include <math.h>
#include <stdio.h>

#include "bench.h"

#define SIZE_WIDTH 10
#define WIDTH 20

static void print_facts(const struct bench *bench)
{
    const struct bench_options *options = bench->options;
    static const char *const forms[] = {"blocking", "nonblocking", "persistent"};

    printf("# %s\n", hetmpi_build_info());
    printf("# ranks %d, nodes %d, islands %d; this rank: %s, provider %s, wire %s\n", bench->ranks, bench->info.nodes,
           bench->info.islands, bench->info.vendor, bench->info.provider, bench->info.wire);
    printf("# %s", kind_is(options->kind, KIND_MESSAGES) ? "messages" : forms[options->form]);
    if (!kind_is(options->kind, KIND_EMPTY))
        printf(", %s, buffers: %s", options->type->name, options->device);
    if (bench->reduces)
        printf(", %s", op_name(options->op));
    printf("%s%s\n", options->in_place ? ", in place" : "", options->validate ? "" : ", results not checked");
    if (options->compare && bench->other)
        printf("# MPI: %s; both latencies are medians over blocks of calls, in turn\n",
               bench->device ? "on host copies, copies counted" : "on the same buffers");
    else if (options->compare)
        printf("# MPI has no such type or operation: nothing to compare with\n");
    if (!options->bound || kind_is(options->kind, KIND_EMPTY | KIND_MESSAGES))
        return;
    if (bench->device && bench->info.islands < 2)
        printf("# Bound: none, no data crosses between islands\n");
    else if (bench->device)
        printf("# Bound: bytes that must cross between islands, over the device links' measured bandwidth\n");
    else if (bench->node_ranks < bench->ranks)
        printf("# Bound: none, the ranks are on several nodes, whose network is not measured\n");
    else
        printf("# Bound: memory traffic that cannot be avoided, at the measured speed of this node's memory\n");
}

static bool rates(enum bench_kind kind)
{
    return kind_is(kind, KIND_MESSAGES) && kind != BENCH_LATENCY && kind != BENCH_P2P;
}

void print_header(const struct bench *bench)
{
    const struct bench_options *options = bench->options;
    bool rate = rates(options->kind);

    printf("# hetmpi %s%s Test v%s\n", kind_facts(options->kind)->title,
           kind_is(options->kind, KIND_MESSAGES) ? "" : " Latency", hetmpi_version());
    print_facts(bench);
    if (kind_is(options->kind, KIND_EMPTY))
        printf("# Avg Latency(us)");
    else
        printf("%-*s%*s", SIZE_WIDTH, "# Size", WIDTH, rate ? "Bandwidth (MB/s)" :
               kind_is(options->kind, KIND_MESSAGES) ? "Latency (us)" : "Avg Latency(us)");
    if (options->kind == BENCH_P2P)
        printf("%*s", WIDTH, "Bandwidth (MB/s)");
    if (options->kind == BENCH_MBW_MR || options->kind == BENCH_P2P)
        printf("%*s", WIDTH, "Messages/s");
    if (options->full)
        printf("%*s%*s%*s", WIDTH, "Min Latency(us)", WIDTH, "Max Latency(us)", WIDTH, "Iterations");
    if (options->compare)
        printf("%*s%*s", WIDTH, rate ? "MPI (MB/s)" : "MPI Latency(us)", WIDTH, "Ratio");
    if (options->bound)
        printf("%*s%*s", WIDTH, "Bound(us)", WIDTH, "Share");
    putchar('\n');
    fflush(stdout);
}

static void print_number(double value, int digits)
{
    if (value < 0)
        printf("%*s", WIDTH, "-");
    else
        printf("%*.*f", WIDTH, digits, value);
}

void print_line(const struct bench *bench, const struct bench_result *result)
{
    const struct bench_options *options = bench->options;

    double bytes = rates(options->kind) ? (double)bench->shape.bytes : 0;

    if (kind_is(options->kind, KIND_EMPTY))
        printf("%*.2f", (int)sizeof("# Avg Latency(us)") - 1, result->latency);
    else
        printf("%-*zu%*.2f", SIZE_WIDTH, bench->shape.bytes, WIDTH, bytes > 0 ? bytes / result->latency : result->latency);
    if (options->kind == BENCH_MBW_MR)
        printf("%*.2f", WIDTH, 1e6 / result->latency);
    if (options->kind == BENCH_P2P)
        printf("%*.2f%*.2f", WIDTH, (double)bench->shape.bytes / result->window, WIDTH, 1e6 / result->window);
    if (options->full)
        printf("%*.2f%*.2f%*d", WIDTH, result->min, WIDTH, result->max, WIDTH, result->iterations);
    if (options->compare) {
        print_number(bytes > 0 && result->other > 0 ? bytes / result->other : result->other, 2);
        print_number(result->ratio, 2);
    }
    if (options->bound) {
        print_number(result->bound, 2);
        print_number(result->share, 3);
    }
    printf("%s\n", result->valid == 0 ? "  FAIL" : "");
    fflush(stdout);
}

static void add_text(struct json_object *object, const char *key, const char *text)
{
    json_object_object_add(object, key, text ? json_object_new_string(text) : NULL);
}

static void add_number(struct json_object *object, const char *key, double value)
{
    struct json_object *number = NULL;

    if (value >= 0 && isfinite(value)) {
        number = json_object_new_double(value);
        json_object_set_serializer(number, json_object_double_to_json_string, (void *)(uintptr_t)"%.6g", NULL);
    }
    json_object_object_add(object, key, number);
}

static void add_bool(struct json_object *object, const char *key, int value)
{
    json_object_object_add(object, key, value < 0 ? NULL : json_object_new_boolean(value));
}

void print_json(const struct bench *bench, const struct bench_result *result, void *file)
{
    const struct bench_options *options = bench->options;
    bool sized = !kind_is(options->kind, KIND_EMPTY);
    struct json_object *object = json_object_new_object();

    if (!object)
        die("out of memory: JSON object");
    add_text(object, "collective", kind_name(options->kind));
    add_text(object, "type", sized ? options->type->name : NULL);
    add_text(object, "op", bench->reduces ? op_name(options->op) : NULL);
    json_object_object_add(object, "ranks", json_object_new_int(bench->ranks));
    json_object_object_add(object, "bytes", sized ? json_object_new_int64((int64_t)bench->shape.bytes) : NULL);
    add_bool(object, "in_place", kind_is(options->kind, KIND_PLACES) ? options->in_place : -1);
    add_text(object, "where", sized ? bench->device ? "device" : "host" : NULL);
    add_number(object, "latency_us", result->latency);
    add_number(object, "slowest_us", result->max);
    double message = result->window > 0 ? result->window : result->latency;
    add_number(object, "bandwidth_GBs", sized ? (double)bench->shape.bytes / message / 1e3 : -1);
    add_number(object, "messages_per_s", result->window > 0 ? 1e6 / result->window : -1);
    add_text(object, "other", result->other >= 0 ? "mpi" : NULL);
    add_number(object, "other_latency_us", result->other);
    add_number(object, "ratio", result->ratio);
    add_number(object, "bound_us", result->bound);
    add_number(object, "share", result->share);
    add_bool(object, "valid", result->valid);
    fprintf(file, "%s\n", json_object_to_json_string_ext(object, JSON_C_TO_STRING_PLAIN));
    fflush(file);
    json_object_put(object);
}
