/*
 * Latency of one collective, as the OSU micro-benchmarks measure it: the time of each call on each rank, a barrier
 * between calls, the mean over calls, then mean, least and most over ranks. Messages come without barriers between.
 * Compiled once for each kind, with BENCH_KIND set.
 *
 * With --compare, calls come in ten blocks, ours and MPI's in turn, and the figures are medians over the blocks of that
 * same mean, so that neither a slow moment of the machine nor its drift favours a side.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

#define LARGE_BYTES 8192
#define BLOCKS 10

typedef void call_fn(struct bench *bench);

/* Seconds that this rank spent in `times` calls. */
static double time_calls(struct bench *bench, call_fn *call, int times)
{
    double sum = 0, start;

    if (kind_is(bench->options->kind, KIND_MESSAGES)) {
        MPI(MPI_Barrier(bench->comm));
        start = seconds_now();
        for (int i = 0; i < times; i++)
            call(bench);
        return seconds_now() - start;
    }
    for (int i = 0; i < times; i++) {
        MPI(MPI_Barrier(bench->comm));
        start = seconds_now();
        call(bench);
        sum += seconds_now() - start;
    }
    return sum;
}

/* How many of `wanted` calls of this length fit into the time; at least one. */
static int fitting(int wanted, double each, double seconds)
{
    double most = each > 0 ? seconds / each : wanted;

    return most >= wanted ? wanted : most < 1 ? 1 : (int)most;
}

struct plan { int warmup, warmup_other, iterations, blocks; };

static struct plan plan_calls(struct bench *bench)
{
    const struct bench_options *options = bench->options;
    bool large = bench->shape.bytes > LARGE_BYTES;
    struct plan plan = {0};

    plan.warmup = options->warmup >= 0 ? options->warmup : large ? 10 : 200;
    plan.iterations = options->iterations > 0 ? options->iterations : large ? 100 : 1000;
    plan.warmup_other = plan.warmup;

    double ours = largest(bench, time_calls(bench, call_ours, 2) / 2), other = 0;
    if (bench->other)
        other = largest(bench, time_calls(bench, call_other, 2) / 2);
    plan.warmup = fitting(plan.warmup, ours, options->seconds / 4);
    plan.warmup_other = fitting(plan.warmup_other, other, options->seconds / 4);
    plan.iterations = fitting(plan.iterations, ours > other ? ours : other, options->seconds);
    plan.blocks = !bench->other ? 1 : plan.iterations < BLOCKS ? plan.iterations : BLOCKS;
    return plan;
}

/* Calls of one block; the blocks share the iterations evenly. */
static int block_calls(const struct plan *plan, int block)
{
    return plan->iterations / plan->blocks + (block < plan->iterations % plan->blocks);
}

/* One block of one side: microseconds a call or message, on this rank. The first call of a block, on caches that the other side
 * left, is not counted. */
static double time_block(struct bench *bench, call_fn *call, int times)
{
    if (bench->other)
        call(bench);
    return time_calls(bench, call, times) / times / messages_of_call(bench) * 1e6;
}

/* Over the blocks: the median of what `combine` makes of the ranks' figures. */
static double over_ranks(const struct bench *bench, const double *blocks, int n, MPI_Op combine)
{
    double all[BLOCKS];

    MPI(MPI_Allreduce(blocks, all, n, MPI_DOUBLE, combine, bench->comm));
    return median(all, n) / (combine == MPI_SUM ? bench->ranks : 1);
}

static void time_size(struct bench *bench, struct bench_result *result)
{
    struct plan plan = plan_calls(bench);
    double ours[BLOCKS] = {0}, other[BLOCKS] = {0};

    time_calls(bench, call_ours, plan.warmup);
    if (bench->other)
        time_calls(bench, call_other, plan.warmup_other);
    for (int block = 0; block < plan.blocks; block++) {
        int times = block_calls(&plan, block);
        /* Each side is first in every other block. */
        if (bench->other && block % 2)
            other[block] = time_block(bench, call_other, times);
        ours[block] = time_block(bench, call_ours, times);
        if (bench->other && block % 2 == 0)
            other[block] = time_block(bench, call_other, times);
    }
    result->iterations = plan.iterations;
    result->latency = over_ranks(bench, ours, plan.blocks, MPI_SUM);
    result->min = over_ranks(bench, ours, plan.blocks, MPI_MIN);
    result->max = over_ranks(bench, ours, plan.blocks, MPI_MAX);
    if (bench->other) {
        result->other = over_ranks(bench, other, plan.blocks, MPI_SUM);
        result->ratio = result->other / result->latency;
    }
}

/* The counts of MPI's calls are ints. */
static bool other_takes(const struct bench *bench)
{
    size_t blocks = kind_facts(bench->options->kind)->send >= EXTENT_ALL ||
                    kind_facts(bench->options->kind)->recv >= EXTENT_ALL ? (size_t)bench->ranks : 1;

    return bench->shape.count <= INT32_MAX / blocks;
}

static void measure_window(struct bench *bench, struct bench_result *result)
{
    struct bench_result window = {0};

    bench->windowed = true;
    if (bench->options->validate && !check_call(bench))
        result->valid = false;
    time_size(bench, &window);
    result->window = window.latency;
    bench->windowed = false;
}

static struct bench_result run_size(struct bench *bench)
{
    const struct bench_options *options = bench->options;
    struct bench_result result = {-1, -1, -1, -1, -1, -1, -1, -1, 0, -1};
    bool other = bench->other;

    bench->other = other && other_takes(bench);
    calls_open(bench);
    if (options->validate)
        result.valid = check_call(bench);
    /* In place, every call would feed on the last one's result: zeroes stay zeroes. */
    if (!options->validate || (options->in_place && bench->reduces))
        buffers_zero(bench);
    time_size(bench, &result);
    if (options->kind == BENCH_P2P)
        measure_window(bench, &result);
    if (options->validate && !check_call(bench))
        result.valid = false;
    calls_close(bench);
    bench->other = other;

    double bound = bound_time(bench);
    if (bound >= 0) {
        result.bound = bound * 1e6;
        /* Of the slowest rank: one that only sends may be done before its data are there. */
        result.share = result.bound / result.max;
    }
    return result;
}

/* The build's line names its backend; "sim" must not be found in another word. */
static bool has_word(const char *text, const char *word)
{
    size_t length = strlen(word);

    for (const char *at = text; (at = strstr(at, word)) != NULL; at += length) {
        if ((at == text || !isalnum((unsigned char)at[-1])) && !isalnum((unsigned char)at[length]))
            return true;
    }
    return false;
}

/* Does this rank have the device that -d names? The reason if not. */
static const char *device_missing(const struct bench *bench)
{
    static const struct { const char *option, *backend; } backends[] = {
        {"sim", "sim"}, {"cuda", "cuda"}, {"rocm", "hip"},
    };
    size_t i = 0;

    if (bench->info.device < 0)
        return "this rank has no device";
    if (strcmp(bench->options->device, "device") == 0)
        return NULL;
    while (strcmp(bench->options->device, backends[i].option) != 0)
        i++;
    return has_word(hetmpi_build_info(), backends[i].backend) ? NULL : "this build is for other devices";
}

/* All ranks must have it; one that does not says so. */
static bool devices_there(const struct bench *bench)
{
    const char *reason = bench->device ? device_missing(bench) : NULL;
    int mine = reason ? bench->rank : bench->ranks, first;

    MPI(MPI_Allreduce(&mine, &first, 1, MPI_INT, MPI_MIN, bench->comm));
    if (reason && first == bench->rank)
        fprintf(stderr, "-d %s: rank %d: %s (%s)\n", bench->options->device, bench->rank, reason, hetmpi_build_info());
    return first == bench->ranks;
}

static void choose_wire(const struct bench *bench)
{
    MPI_Info settings;

    MPI(MPI_Info_create(&settings));
    MPI(MPI_Info_set(settings, "wire", bench->options->wire));
    HETMPI(hetmpi_comm_attach(bench->comm, settings));
    MPI(MPI_Info_free(&settings));
}

static bool bench_open(struct bench *bench, const struct bench_options *options)
{
    *bench = (struct bench){.options = options, .comm = MPI_COMM_WORLD, .node_comm = MPI_COMM_NULL};
    MPI(MPI_Comm_set_errhandler(bench->comm, MPI_ERRORS_RETURN));
    MPI(MPI_Comm_rank(bench->comm, &bench->rank));
    MPI(MPI_Comm_size(bench->comm, &bench->ranks));
    MPI(MPI_Comm_split_type(bench->comm, MPI_COMM_TYPE_SHARED, bench->rank, MPI_INFO_NULL, &bench->node_comm));
    MPI(MPI_Comm_size(bench->node_comm, &bench->node_ranks));
    bench->reduces = kind_is(options->kind, KIND_REDUCES);
    bench->element = (size_t)options->type->bytes;
    bench->device = options->where == WHERE_DEVICE;
    bench->other = options->compare && (!bench->reduces || (type_in_mpi(options->type) && op_in_mpi(options->op)));
    const char *corrupt = getenv("HETMPI_TEST_BENCH_CORRUPT");
    bench->corrupt = corrupt && strcmp(corrupt, "1") == 0;
    if (options->root >= bench->ranks) {
        if (bench->rank == 0)
            fprintf(stderr, "--root %d: there are %d ranks\n", options->root, bench->ranks);
        return false;
    }
    if (kind_is(options->kind, KIND_MESSAGES) && !messages_fit(options->kind, bench->ranks)) {
        if (bench->rank == 0)
            fprintf(stderr, "%s: there are %d ranks; start it with %s\n", kind_name(options->kind), bench->ranks,
                    options->kind == BENCH_MBW_MR ? "an even number" : "2");
        return false;
    }
    if (options->wire)
        choose_wire(bench);
    HETMPI(hetmpi_comm_info(bench->comm, &bench->info));
    if (!devices_there(bench))
        return false;
    bench->type = type_handle(options->type);
    bench->op = bench->reduces ? op_handle(options->op) : MPI_OP_NULL;

    size_t bytes = 0;
    HETMPI(hetmpi_type_size(bench->type, &bytes));
    if (bytes != bench->element)
        die("hetmpi_type_size: %zu bytes for %s, expected %zu", bytes, options->type->name, bench->element);
    return true;
}

static bool fits(const struct bench *bench, size_t bytes)
{
    struct bench_shape shape = shape_of(bench, bytes);

    return all_agree(bench, buffers_memory(bench, &shape) <= bench->options->memory);
}

/* The largest size, halved until it fits into -M; 0: none does. */
static size_t largest_size(const struct bench *bench)
{
    size_t most = bench->options->min_bytes ? bench->options->min_bytes : 1;

    if (!fits(bench, most))
        return 0;
    while (most <= bench->options->max_bytes / 2 && fits(bench, most * 2))
        most *= 2;
    return most;
}

static FILE *json_open(const struct bench *bench)
{
    FILE *file = NULL;

    if (bench->options->json && bench->rank == 0) {
        file = fopen(bench->options->json, "w");
        if (!file)
            die("--json %s: cannot be written", bench->options->json);
    }
    return file;
}

/* All sizes; false if a result was wrong. */
static bool run_sizes(struct bench *bench, size_t most)
{
    size_t least = bench->options->min_bytes ? bench->options->min_bytes : 1;
    FILE *json = json_open(bench);
    bool right = true;

    if (bench->rank == 0)
        print_header(bench);
    if (bench->rank == 0 && most <= bench->options->max_bytes / 2 && !kind_is(bench->options->kind, KIND_EMPTY))
        printf("# Messages above %zu bytes are left out: they need more memory than -M allows (%zu bytes)\n", most,
               bench->options->memory);
    for (size_t bytes = least, last = 0; bytes <= most; bytes *= 2) {
        bench->shape = shape_of(bench, bytes);
        if (bench->shape.bytes == last && !kind_is(bench->options->kind, KIND_EMPTY))
            continue;   /* rounded up to the size before */
        last = bench->shape.bytes;
        struct bench_result result = run_size(bench);
        if (result.valid == 0)
            right = false;
        if (bench->rank == 0) {
            print_line(bench, &result);
            if (json)
                print_json(bench, &result, json);
        }
        if (kind_is(bench->options->kind, KIND_EMPTY))
            break;
    }
    if (json && fclose(json) != 0)
        die("--json %s: not written", bench->options->json);
    return right;
}

static int run(const struct bench_options *options)
{
    struct bench bench;
    int code = EXIT_CANNOT;

    if (!bench_open(&bench, options))
        goto done;
    size_t most = largest_size(&bench);
    if (most == 0) {
        if (bench.rank == 0)
            fprintf(stderr, "-M %zu: not enough memory for messages of %zu bytes\n", options->memory,
                    options->min_bytes);
        goto done;
    }
    struct bench_shape shape = shape_of(&bench, most);
    buffers_alloc(&bench, &shape);
    bound_open(&bench);
    code = run_sizes(&bench, most) ? EXIT_RIGHT : EXIT_WRONG;
    buffers_free(&bench);
done:
    if (bench.node_comm != MPI_COMM_NULL)
        MPI(MPI_Comm_free(&bench.node_comm));
    return code;
}

int main(int argc, char **argv)
{
    struct bench_options options;
    int rank, level, code = EXIT_RIGHT;

    /* As the OSU benchmarks: without the locks of MPI_THREAD_MULTIPLE, so that MPI is not handicapped. */
    MPI(MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level));
    MPI(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    if (!options_parse(&options, BENCH_KIND, argc, argv, rank == 0))
        code = EXIT_CANNOT;
    else if (options.version && rank == 0)
        printf("hetmpi %s: %s\n", hetmpi_version(), hetmpi_build_info());
    else if (!options.help && !options.version)
        code = run(&options);
    MPI(MPI_Finalize());
    return code;
}
