/*
 * Scarce resources: the process's limits stand close to what it uses when hetmpi comes to a communicator. Every call must
 * give its result, or the same error on all ranks, and then the rank that ran into the limit names it. Never a signal, a
 * wait that only a timeout ends, or an error once there is room again.
 *
 *     limits nofile|as|fsize|memlock|none
 *
 * memlock, and none (for limits from outside: shm.sh): everything must work.
 */
#include "common.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { LONG = 100003, SHORT = 7 };

static int32_t *x, *y;
static char text[600];       /* of the first error of a round */

static int note(int code)
{
    if (code && !text[0])
        snprintf(text, sizeof text, "%s", hetmpi_last_error());
    return code;
}

static void fill(void)
{
    for (size_t i = 0; i < LONG; i++)
        x[i] = (int32_t)i + t_rank;
}

static int allreduce(MPI_Comm comm, size_t n)
{
    fill();
    int code = note(hetmpi_allreduce(x, y, n, MPI_INT32_T, MPI_SUM, comm));
    int32_t want = (int32_t)(n - 1) * t_ranks + t_ranks * (t_ranks - 1) / 2;
    T_CHECK(code || y[n - 1] == want, "allreduce of %zu: %d, not %d", n, y[n - 1], want);
    return code;
}

static int ring(MPI_Comm comm)
{
    int left = (t_rank + t_ranks - 1) % t_ranks;
    fill();
    int code = note(hetmpi_sendrecv(x, LONG, MPI_INT32_T, (t_rank + 1) % t_ranks, 0, y, LONG, MPI_INT32_T, left, 0, comm,
                                    MPI_STATUS_IGNORE));
    T_CHECK(code || y[LONG - 1] == LONG - 1 + left, "sendrecv: %d, not %d", y[LONG - 1], LONG - 1 + left);
    return code;
}

static int device(void)
{
    void *memory = NULL;
    int code = note(hetmpi_malloc(4096, HETMPI_MEM_DEVICE, &memory));
    return code ? code : note(hetmpi_free(memory));
}

/* One communicator under the limit; the first error. */
static int use(MPI_Comm comm)
{
    int code;
    text[0] = '\0';
    code = note(hetmpi_comm_attach(comm, MPI_INFO_NULL));
    if (!code)
        code = allreduce(comm, SHORT);
    if (!code)
        code = allreduce(comm, LONG);
    if (!code)
        code = ring(comm);
    return code;
}

static rlim_t in_use(int what)
{
    unsigned long pages = 0;
    if (what == RLIMIT_NOFILE)
        return (rlim_t)t_open_fds();
    if (what != RLIMIT_AS)
        return 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%lu", &pages) != 1)
        t_fatal("cannot read /proc/self/statm");
    fclose(file);
    return (rlim_t)pages * 4096;
}

/* Whether the error of one rank says what stood in the way. */
static void check_text(int code, const char *name)
{
    int named = strstr(text, name) != NULL, any = 0;
    T_CHECK(code == HETMPI_ERR_MEMORY || code == HETMPI_ERR_DEVICE || code == HETMPI_SUCCESS, "%s: %s", t_code_name(code),
            text);
    T_MPI(MPI_Allreduce(&named, &any, 1, MPI_INT, MPI_LOR, MPI_COMM_WORLD));
    T_CHECK(any || !code, "no rank names %s: %s", name, text);
}

static bool one_round(int what, const char *name, rlim_t more)
{
    struct rlimit old, tight;
    MPI_Comm comm;
    int code, worst = 0;
    t_stage("%s: %llu more than is in use", name, (unsigned long long)more);
    T_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    T_MPI(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    T_MPI(MPI_Barrier(MPI_COMM_WORLD));
    getrlimit(what, &old);
    tight = old;
    tight.rlim_cur = in_use(what) + more;
    if (setrlimit(what, &tight) != 0)
        t_fatal("setrlimit of %s failed", name);
    code = use(comm);
    int here = code ? code : device();
    setrlimit(what, &old);
    T_MPI(MPI_Allreduce(&code, &worst, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD));
    T_CHECK(code == worst || code == 0, "%s here, %s on another rank", t_code_name(code), t_code_name(worst));
    check_text(here, name);
    T_MPI(MPI_Comm_free(&comm));
    return worst == 0;
}

/* With room again a new communicator works. */
static void check_again(void)
{
    MPI_Comm comm;
    t_stage("with room again");
    T_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    T_MPI(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    T_CHECK(use(comm) == HETMPI_SUCCESS && device() == HETMPI_SUCCESS, "%s", text);
    T_MPI(MPI_Comm_free(&comm));
}

static void check_limit(int what, const char *name, const rlim_t *more, int n)
{
    int right = 0;
    for (int i = 0; i < n; i++)
        right += one_round(what, name, more[i]);
    if (t_rank == 0)
        printf("%s: %d of %d rounds ended with right results, the others with an error that names it\n", name, right, n);
    T_CHECK(right > 0, "%s: no round had room enough", name);
    check_again();
}

int main(int argc, char **argv)
{
    static const rlim_t files[] = { 0, 1, 2, 3, 4, 6, 8, 12, 20 };
    /* Open MPI itself crashes with less. */
    static const rlim_t addresses[] = { 6 << 20, 8 << 20, 12 << 20, 16 << 20, 32 << 20, 64 << 20, 128 << 20, 256 << 20,
                                        (rlim_t)4 << 30 };
    static const rlim_t lengths[] = { 0, 4096, 65536, 1 << 20, 64 << 20 };
    static const rlim_t locked[] = { 0, 65536 };
    t_begin(&argc, &argv, "limits", MPI_THREAD_MULTIPLE);
    x = t_malloc(LONG * sizeof *x);
    y = t_malloc(LONG * sizeof *y);
    if (argc > 1 && strcmp(argv[1], "nofile") == 0) {
        check_limit(RLIMIT_NOFILE, "ulimit -n", files, sizeof files / sizeof *files);
    } else if (argc > 1 && strcmp(argv[1], "as") == 0) {
        check_limit(RLIMIT_AS, "ulimit -v", addresses, sizeof addresses / sizeof *addresses);
    } else if (argc > 1 && strcmp(argv[1], "fsize") == 0) {
        check_limit(RLIMIT_FSIZE, "ulimit -f", lengths, sizeof lengths / sizeof *lengths);
    } else if (argc > 1 && strcmp(argv[1], "memlock") == 0) {
        for (int i = 0; i < 2; i++)
            T_CHECK(one_round(RLIMIT_MEMLOCK, "ulimit -l", locked[i]), "%s", text);
        check_again();
    } else {
        check_again();
    }
    free(x);
    free(y);
    return t_end();
}
