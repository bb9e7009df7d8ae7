/*
 * What all mpirun tests share: start and end, checks that say rank and values, buffers with guard bytes in any kind
 * of memory, and a watchdog that says where a rank hangs.
 */
#ifndef HETMPI_TESTS_MPI_COMMON_H
#define HETMPI_TESTS_MPI_COMMON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <mpi.h>

#include "hetmpi.h"

#define T_SKIPPED 77 /* exit status that CTest takes for "could not run here" */

extern int t_rank, t_ranks; /* of MPI_COMM_WORLD */

/* Initialises MPI with at least `level` where the MPI grants it, sets MPI_ERRORS_RETURN on the world, and aborts when
 * the number of ranks is not the one that HETMPI_TEST_RANKS asks for (another MPI's mpiexec starts single ranks). */
void t_begin(int *argc, char ***argv, const char *name, int level);
/* Collective: sums the failures of all ranks, prints the verdict, finalises MPI. The exit status. */
int t_end(void);
/* The verdict alone, for tests that finalise MPI themselves. */
int t_verdict(void);
/* Collective: all ranks leave with T_SKIPPED, rank 0 prints the reason. */
void t_skip(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
void t_fatal(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* What this rank does now: shown with failures and by the watchdog. Cheap. */
void t_stage(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Ends the process with a message after so many seconds; 0: never. t_begin starts one of T_WATCHDOG seconds. */
#define T_WATCHDOG 170
void t_watchdog(unsigned seconds);

/* Counts a failure and prints it (the first 20 of a rank). Returns false. */
bool t_fail(const char *file, int line, const char *format, ...) __attribute__((format(printf, 3, 4)));
int t_failures(void);
#define T_CHECK(condition, ...) ((condition) ? true : t_fail(__FILE__, __LINE__, __VA_ARGS__))
/* A hetmpi call that must return this code; true if it did. */
bool t_code(const char *file, int line, const char *call, int expected, int got);
#define T_CODE(expected, call) t_code(__FILE__, __LINE__, #call, (expected), (call))
#define T_OK(call) T_CODE(HETMPI_SUCCESS, call)
/* A call of MPI's own: failure ends the test. */
#define T_MPI(call)                                                                             \
    do {                                                                                        \
        int t_mpi_code_ = (call);                                                               \
        if (t_mpi_code_ != MPI_SUCCESS)                                                         \
            t_fatal("%s:%d: %s returned %d", __FILE__, __LINE__, #call, t_mpi_code_);           \
    } while (0)
const char *t_code_name(int code);
/* Does the text say "rank 1", and not as the beginning of "rank 12"? */
bool t_names_rank(const char *text, int rank);
double t_now(void);                 /* seconds, monotonic */
void t_sleep(double seconds);
void t_yield(void);                 /* in loops that poll: ranks are more than cores */
void *t_malloc(size_t bytes);       /* fatal when there is none; never NULL */

/* Random numbers by seed: the same on every machine. */
uint64_t t_hash64(uint64_t a, uint64_t b, uint64_t c);
/* Running hash of bytes, to compare results of ranks. Start with 0. */
uint64_t t_fold(uint64_t hash, const void *bytes, size_t n);
/* Collective over comm: whether all ranks gave the same value; the ranks that differ from rank 0 are reported. */
bool t_same_everywhere(MPI_Comm comm, uint64_t hash, const char *what);

/*
 * Buffers. Guard bytes stand right before and behind the bytes in use.
 */
enum t_place { T_PAGEABLE, T_PINNED, T_DEVICE, T_PLACES };
struct t_buf {
    unsigned char *data;    /* NULL when `bytes` is 0 */
    size_t bytes;           /* in use */
    enum t_place place;
    unsigned char *raw;
    size_t capacity;
};
void t_buf_new(struct t_buf *buf, enum t_place place, size_t capacity);
void t_buf_free(struct t_buf *buf);
/* Takes `bytes` into use, `shift` bytes behind the aligned place, and plants the guards. */
void t_buf_use(struct t_buf *buf, size_t bytes, size_t shift);
void t_buf_put(struct t_buf *buf, const void *host);
void t_buf_get(const struct t_buf *buf, void *host);
void t_buf_fill(struct t_buf *buf, int byte);
bool t_buf_guards(const struct t_buf *buf);
const char *t_place_name(enum t_place place);
/* Whether the library has memory of its own for T_DEVICE is not for a test to know: host backends give host memory. */

/* Collective: makes a stream. Whether collectives can be called on it here, on all ranks alike. */
bool t_open_stream(hetmpi_stream_t *stream);

/* Facts of this process, for tests that nothing is left behind; -1 where they cannot be read. */
long t_open_fds(void);
long t_threads(void);
long t_rss_kib(void);
bool t_sanitized(void);             /* built with a sanitizer: memory and time are no measure */

#endif
