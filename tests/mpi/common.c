/* Shared helpers of the mpirun tests: see common.h. */
#include "common.h"

#include <ctype.h>
#include <dirent.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define GUARD 64
#define GUARD_BYTE 0xC7
#define SHIFT_MAX 64
#define SHOWN_MAX 20

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

int t_rank, t_ranks;

static const char *test_name = "?";
static _Atomic int failures;
static char stage[512] = "start";

int t_failures(void)
{
    return failures;
}

bool t_sanitized(void)
{
    return SANITIZED != 0;
}

void t_stage(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(stage, sizeof stage, format, args);
    va_end(args);
}

/* In a signal handler: write() alone is allowed. */
static void put_text(const char *text)
{
    ssize_t ignored = write(STDERR_FILENO, text, strlen(text));
    (void)ignored;
}

static void on_alarm(int signal)
{
    (void)signal;
    char rank[16], *p = rank + sizeof rank - 1;
    *p = '\0';
    int n = t_rank;
    do {
        *--p = (char)('0' + n % 10);
        n /= 10;
    } while (n > 0);
    put_text(test_name);
    put_text(": rank ");
    put_text(p);
    put_text(" hangs; it was at: ");
    put_text(stage);
    put_text("\n");
    _exit(3);
}

void t_watchdog(unsigned seconds)
{
    alarm(seconds);
}

void t_fatal(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char text[512];
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(stderr, "%s: rank %d: fatal: %s (at: %s)\n", test_name, t_rank, text, stage);
    fflush(NULL);
    int initialized = 0;
    MPI_Initialized(&initialized);
    if (initialized)
        MPI_Abort(MPI_COMM_WORLD, 2);
    exit(2);
}

/* A build for GPUs on a machine without one. */
static void skip_without_device(void)
{
    void *memory;
    if (!strstr(hetmpi_build_info(), "backend cuda") && !strstr(hetmpi_build_info(), "backend hip"))
        return;
    int mine = hetmpi_malloc(1, HETMPI_MEM_DEVICE, &memory), any = 0;
    MPI_Allreduce(&mine, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (any == HETMPI_ERR_DEVICE)
        t_skip("%s", mine ? hetmpi_last_error() : "another rank has no device");
    if (!mine)
        T_OK(hetmpi_free(memory));
}

void t_begin(int *argc, char ***argv, const char *name, int level)
{
    test_name = name;
    struct sigaction action = { .sa_handler = on_alarm };
    sigaction(SIGALRM, &action, NULL);
    t_watchdog(T_WATCHDOG);
    /* Ranks are more than cores here, and MPICH polls a thousand times before it lets another rank run. */
    setenv("MPIR_CVAR_POLLS_BEFORE_YIELD", "20", 0);
    int provided = 0;
    if (MPI_Init_thread(argc, argv, level, &provided) != MPI_SUCCESS)
        t_fatal("MPI_Init_thread failed");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &t_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &t_ranks);
    const char *ranks = getenv("HETMPI_TEST_RANKS");
    if (ranks && atoi(ranks) != t_ranks)
        t_fatal("MPI_COMM_WORLD has %d ranks, the test asked for %s: is this the mpiexec of another MPI?", t_ranks,
                ranks);
    const char *backends = getenv("HETMPI_TEST_BACKEND");
    if (backends && !strstr(hetmpi_build_info(), backends))
        t_fatal("this is \"%s\", the test asked for \"%s\"", hetmpi_build_info(), backends);
    skip_without_device();
}

int t_verdict(void)
{
    int mine = failures, all = 0;
    t_stage("end");
    MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (mine > SHOWN_MAX)
        fprintf(stderr, "%s: rank %d: %d failures in all\n", test_name, t_rank, mine);
    fflush(stderr);
    if (t_rank == 0)
        printf("%s: %d ranks: %s (%d failures)\n", test_name, t_ranks, all ? "FAILED" : "passed", all);
    fflush(stdout);
    return all ? 1 : 0;
}

int t_end(void)
{
    int status = t_verdict();
    t_stage("MPI_Finalize");
    MPI_Finalize();
    return status;
}

void t_skip(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (t_rank == 0) {
        printf("%s: skipped: ", test_name);
        vprintf(format, args);
        printf("\n");
        fflush(stdout);
    }
    va_end(args);
    MPI_Finalize();
    exit(T_SKIPPED);
}

bool t_fail(const char *file, int line, const char *format, ...)
{
    int number = ++failures;
    if (number > SHOWN_MAX)
        return false;
    va_list args;
    va_start(args, format);
    char text[1024];
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    const char *slash = strrchr(file, '/');
    fprintf(stderr, "%s:%d: rank %d of %d: %s (at: %s)\n", slash ? slash + 1 : file, line, t_rank, t_ranks, text,
            stage);
    fflush(stderr);
    return false;
}

const char *t_code_name(int code)
{
    static const char *const names[] = {
        "SUCCESS", "ARG", "TYPE", "OP", "COUNT", "ROOT", "RANK", "TAG", "BUFFER", "MISMATCH", "TIMEOUT", "PEER",
        "DEVICE", "MPI", "MEMORY", "CONFIG", "UNSUPPORTED", "STATE", "ABORTED", "TRUNCATE", "INTERNAL"
    };
    _Static_assert(sizeof names / sizeof *names == HETMPI_ERR_LAST, "one name for each code");
    return code >= 0 && code < HETMPI_ERR_LAST ? names[code] : "no hetmpi code";
}

bool t_code(const char *file, int line, const char *call, int expected, int got)
{
    if (got == expected)
        return true;
    return t_fail(file, line, "%.200s returned %d (%s), not %s: %s", call, got, t_code_name(got),
                  t_code_name(expected), hetmpi_last_error());
}

double t_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void t_sleep(double seconds)
{
    struct timespec t = { .tv_sec = (time_t)seconds, .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9) };
    nanosleep(&t, NULL);
}

void t_yield(void)
{
    t_sleep(1e-5); /* sched_yield gives nothing to ranks that the kernel schedules in groups of their own */
}

void *t_malloc(size_t bytes)
{
    void *p = malloc(bytes ? bytes : 1);
    if (!p)
        t_fatal("no memory for %zu bytes", bytes);
    return p;
}

static uint64_t mix(uint64_t x)
{
    x += UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

uint64_t t_hash64(uint64_t a, uint64_t b, uint64_t c)
{
    return mix(mix(mix(a) ^ b) ^ c);
}

uint64_t t_fold(uint64_t hash, const void *bytes, size_t n)
{
    const unsigned char *p = bytes;
    for (; n >= 8; n -= 8, p += 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        hash = (hash ^ word) * UINT64_C(0x100000001B3);
        hash ^= hash >> 29;
    }
    for (; n > 0; n--, p++)
        hash = (hash ^ *p) * UINT64_C(0x100000001B3);
    return mix(hash);
}

bool t_same_everywhere(MPI_Comm comm, uint64_t hash, const char *what)
{
    uint64_t first = hash;
    T_MPI(MPI_Bcast(&first, 1, MPI_UINT64_T, 0, comm));
    int differs = first != hash, any = 0;
    T_CHECK(!differs, "%s: other bits here than on rank 0 of the communicator", what);
    T_MPI(MPI_Allreduce(&differs, &any, 1, MPI_INT, MPI_LOR, comm));
    return !any;
}

/*
 * Buffers
 */
const char *t_place_name(enum t_place place)
{
    static const char *const names[] = { "pageable", "pinned", "device" };
    return names[place];
}

void t_buf_new(struct t_buf *buf, enum t_place place, size_t capacity)
{
    *buf = (struct t_buf){ .place = place, .capacity = capacity };
    size_t total = capacity + 2 * GUARD + SHIFT_MAX;
    void *raw = NULL;
    if (place == T_PAGEABLE)
        raw = t_malloc(total);
    else if (hetmpi_malloc(total, place == T_PINNED ? HETMPI_MEM_HOST : HETMPI_MEM_DEVICE, &raw) || !raw)
        t_fatal("hetmpi_malloc(%zu, %s): %s", total, t_place_name(place), hetmpi_last_error());
    buf->raw = raw;
}

void t_buf_free(struct t_buf *buf)
{
    if (buf->place == T_PAGEABLE)
        free(buf->raw);
    else
        T_OK(hetmpi_free(buf->raw));
    *buf = (struct t_buf){ 0 };
}

static void copy(void *dst, const void *src, size_t bytes, enum t_place place)
{
    if (bytes == 0)
        return;
    if (place == T_PAGEABLE)
        memcpy(dst, src, bytes);
    else if (hetmpi_memcpy(dst, src, bytes))
        t_fatal("hetmpi_memcpy of %zu bytes (%s): %s", bytes, t_place_name(place), hetmpi_last_error());
}

void t_buf_use(struct t_buf *buf, size_t bytes, size_t shift)
{
    if (bytes > buf->capacity || shift > SHIFT_MAX)
        t_fatal("buffer of %zu bytes used for %zu, shifted by %zu", buf->capacity, bytes, shift);
    unsigned char guard[GUARD];
    memset(guard, GUARD_BYTE, sizeof guard);
    buf->bytes = bytes;
    buf->data = buf->raw + GUARD + shift;
    copy(buf->data - GUARD, guard, GUARD, buf->place);
    copy(buf->data + bytes, guard, GUARD, buf->place);
}

bool t_buf_guards(const struct t_buf *buf)
{
    unsigned char guard[2 * GUARD];
    copy(guard, buf->data - GUARD, GUARD, buf->place);
    copy(guard + GUARD, buf->data + buf->bytes, GUARD, buf->place);
    for (int i = 0; i < 2 * GUARD; i++)
        if (guard[i] != GUARD_BYTE)
            return t_fail(__FILE__, __LINE__, "%s byte %d %s the buffer of %zu bytes was written (0x%02x)",
                          t_place_name(buf->place), i < GUARD ? GUARD - i : i - GUARD,
                          i < GUARD ? "before" : "behind", buf->bytes, guard[i]);
    return true;
}

void t_buf_put(struct t_buf *buf, const void *host)
{
    copy(buf->data, host, buf->bytes, buf->place);
}

void t_buf_get(const struct t_buf *buf, void *host)
{
    copy(host, buf->data, buf->bytes, buf->place);
}

void t_buf_fill(struct t_buf *buf, int byte)
{
    if (buf->bytes == 0)
        return;
    if (buf->place == T_PAGEABLE)
        memset(buf->data, byte, buf->bytes);
    else if (hetmpi_memset(buf->data, byte, buf->bytes))
        t_fatal("hetmpi_memset: %s", hetmpi_last_error());
}

/*
 * Facts of this process
 */
static long entries(const char *folder)
{
    DIR *dir = opendir(folder);
    if (!dir)
        return -1;
    long n = 0;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        n += entry->d_name[0] != '.';
    closedir(dir);
    return n;
}

long t_open_fds(void)
{
    return entries("/proc/self/fd");
}

long t_threads(void)
{
    return entries("/proc/self/task");
}

long t_rss_kib(void)
{
    FILE *file = fopen("/proc/self/status", "r");
    if (!file)
        return -1;
    char line[256];
    long kib = -1;
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "VmRSS: %ld", &kib) == 1)
            break;
    fclose(file);
    return kib;
}

bool t_names_rank(const char *text, int rank)
{
    char want[32];
    int n = snprintf(want, sizeof want, "rank %d", rank);
    for (const char *at = text; (at = strstr(at, want)) != NULL; at++)
        if (!isdigit((unsigned char)at[n]))
            return true;
    return false;
}

bool t_open_stream(hetmpi_stream_t *stream)
{
    T_OK(hetmpi_stream_create(stream));
    t_stage("probing on_stream");
    int code = hetmpi_barrier_on_stream(MPI_COMM_WORLD, *stream), lowest = 0, highest = 0;
    T_MPI(MPI_Allreduce(&code, &lowest, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD));
    T_MPI(MPI_Allreduce(&code, &highest, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD));
    T_CHECK(lowest == highest, "on_stream gives %s here, %s to %s on the ranks", t_code_name(code),
            t_code_name(lowest), t_code_name(highest));
    if (code == HETMPI_SUCCESS)
        T_OK(hetmpi_stream_synchronize(*stream));
    else
        T_CODE(HETMPI_ERR_UNSUPPORTED, code);
    return lowest == HETMPI_SUCCESS && highest == HETMPI_SUCCESS;
}
