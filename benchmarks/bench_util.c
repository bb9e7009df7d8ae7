/*
 * What every file of the benchmarks uses: checked calls, agreement between ranks, and the median.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "bench.h"

static int my_rank(void)
{
    int rank = 0;

    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return rank;
}

/* Other ranks may be inside a collective with this one, so only MPI_Abort ends the job for sure. */
void die(const char *format, ...)
{
    va_list arguments;

    fprintf(stderr, "rank %d: ", my_rank());
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    fflush(NULL);
    MPI_Abort(MPI_COMM_WORLD, EXIT_WRONG);
    abort();
}

void check_hetmpi(int code, const char *what)
{
    if (code != HETMPI_SUCCESS) {
        const char *message = hetmpi_last_error();
        die("%s: %s: %s", what, hetmpi_error_string(code), message);
    }
}

void check_mpi(int code, const char *what)
{
    char text[MPI_MAX_ERROR_STRING] = "unknown error";
    int length;

    if (code != MPI_SUCCESS) {
        MPI_Error_string(code, text, &length);
        die("%s: %s", what, text);
    }
}

double seconds_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

bool all_agree(const struct bench *bench, bool mine)
{
    int value = mine, all;

    MPI(MPI_Allreduce(&value, &all, 1, MPI_INT, MPI_MIN, bench->comm));
    return all;
}

double largest(const struct bench *bench, double mine)
{
    double all;

    MPI(MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_MAX, bench->comm));
    return all;
}

static int compare(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;

    return (a > b) - (a < b);
}

double median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof(values[0]), compare);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}
