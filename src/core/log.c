/* Messages for people: the log on stderr, and the last error of each thread. */
#include "core/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "hetmpi.h"

#define LINE_BYTES 1024
#define ERROR_BYTES 1024

static _Atomic int current_level = LOG_WARN;
static _Atomic int current_rank = -1;

static _Thread_local struct {
    int code;
    char text[ERROR_BYTES];
} last_error;

void log_set_level(enum log_level level)
{
    atomic_store_explicit(&current_level, level, memory_order_relaxed);
}

enum log_level log_get_level(void)
{
    return (enum log_level)atomic_load_explicit(&current_level, memory_order_relaxed);
}

void log_set_rank(int world_rank)
{
    atomic_store_explicit(&current_rank, world_rank, memory_order_relaxed);
}

/* The text printed is cut to what fits; the cut is shown by "...". */
static void format_cut(char *text, size_t bytes, const char *format, va_list arguments)
{
    int length = vsnprintf(text, bytes, format, arguments);

    if (length < 0)
        snprintf(text, bytes, "(message could not be formatted: %.40s)", format);
    else if ((size_t)length >= bytes)
        memcpy(text + bytes - 4, "...", 4);
}

/* What MPI and other libraries say may have several lines; a message of ours is one. */
static void make_one_line(char *text)
{
    char *out = text;
    bool broken = false;

    for (const char *in = text; *in; in++) {
        if ((unsigned char)*in < ' ') {
            broken = true;
        } else if (!broken || *in != ' ') {
            if (broken && out > text && out[-1] != ' ')
                *out++ = ' ';
            broken = false;
            *out++ = *in;
        }
    }
    while (out > text && out[-1] == ' ')
        out--;
    *out = '\0';
}

/* One write for each line, so that lines of several ranks and threads do not mix. */
void log_print(enum log_level level, const char *format, ...)
{
    static const char *const names[] = {"error", "warn", "info", "debug", "trace"};
    char line[LINE_BYTES + 1];   /* + the newline */
    int rank = atomic_load_explicit(&current_rank, memory_order_relaxed);
    int start;
    size_t length;
    va_list arguments;

    if (rank >= 0)
        start = snprintf(line, LINE_BYTES, "hetmpi[%d] %s: ", rank, names[level]);
    else
        start = snprintf(line, LINE_BYTES, "hetmpi %s: ", names[level]);
    va_start(arguments, format);
    format_cut(line + start, LINE_BYTES - (size_t)start, format, arguments);
    va_end(arguments);
    make_one_line(line);
    length = strlen(line);
    line[length++] = '\n';
    for (size_t sent = 0; sent < length;) {
        ssize_t n = write(STDERR_FILENO, line + sent, length - sent);
        if (n <= 0)
            break;   /* nowhere to complain */
        sent += (size_t)n;
    }
}

/* Memory may be short because the process's addresses are limited: then the message says so. */
static void name_limit(char *text, size_t bytes)
{
    struct rlimit limit;
    size_t used = strlen(text);

    if (!strstr(text, "ulimit") && getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        snprintf(text + used, bytes - used, " (ulimit -v is %llu)", (unsigned long long)limit.rlim_cur / 1024);
}

int err_set(int code, const char *format, ...)
{
    char text[ERROR_BYTES];   /* the arguments may point into the old message */
    va_list arguments;

    va_start(arguments, format);
    format_cut(text, sizeof(text), format, arguments);
    va_end(arguments);
    if (code == HETMPI_ERR_MEMORY)
        name_limit(text, sizeof(text));
    err_copy(code, text);
    return code;
}

void err_copy(int code, const char *text)
{
    char line[ERROR_BYTES];

    snprintf(line, sizeof(line), "%s", text);
    make_one_line(line);
    memcpy(last_error.text, line, sizeof(line));
    last_error.code = code;
    log_debug("%s: %s", err_name(code), last_error.text);
}

const char *err_text(void)
{
    return last_error.text;
}

int err_code(void)
{
    return last_error.code;
}

const char *err_name(int code)
{
    static const char *const names[HETMPI_ERR_LAST] = {
        [HETMPI_SUCCESS] = "HETMPI_SUCCESS",
        [HETMPI_ERR_ARG] = "HETMPI_ERR_ARG",
        [HETMPI_ERR_TYPE] = "HETMPI_ERR_TYPE",
        [HETMPI_ERR_OP] = "HETMPI_ERR_OP",
        [HETMPI_ERR_COUNT] = "HETMPI_ERR_COUNT",
        [HETMPI_ERR_ROOT] = "HETMPI_ERR_ROOT",
        [HETMPI_ERR_RANK] = "HETMPI_ERR_RANK",
        [HETMPI_ERR_TAG] = "HETMPI_ERR_TAG",
        [HETMPI_ERR_BUFFER] = "HETMPI_ERR_BUFFER",
        [HETMPI_ERR_MISMATCH] = "HETMPI_ERR_MISMATCH",
        [HETMPI_ERR_TIMEOUT] = "HETMPI_ERR_TIMEOUT",
        [HETMPI_ERR_PEER] = "HETMPI_ERR_PEER",
        [HETMPI_ERR_DEVICE] = "HETMPI_ERR_DEVICE",
        [HETMPI_ERR_MPI] = "HETMPI_ERR_MPI",
        [HETMPI_ERR_MEMORY] = "HETMPI_ERR_MEMORY",
        [HETMPI_ERR_CONFIG] = "HETMPI_ERR_CONFIG",
        [HETMPI_ERR_UNSUPPORTED] = "HETMPI_ERR_UNSUPPORTED",
        [HETMPI_ERR_STATE] = "HETMPI_ERR_STATE",
        [HETMPI_ERR_ABORTED] = "HETMPI_ERR_ABORTED",
        [HETMPI_ERR_TRUNCATE] = "HETMPI_ERR_TRUNCATE",
        [HETMPI_ERR_INTERNAL] = "HETMPI_ERR_INTERNAL",
    };

    return code >= 0 && code < HETMPI_ERR_LAST ? names[code] : "unknown code";
}
