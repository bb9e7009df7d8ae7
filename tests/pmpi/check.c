/* Counting of calls and failures; see check.h. */
#include "check.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

int world_rank, world_size;
bool dropped_in;
static unsigned long on, off;
static int failures;

bool check_fail(const char *file, int line, const char *format, ...)
{
    va_list arguments;
    char text[512];

    if (++failures <= 20) {
        va_start(arguments, format);
        vsnprintf(text, sizeof(text), format, arguments);
        va_end(arguments);
        fprintf(stderr, "rank %d: %s:%d: %s\n", world_rank, file, line, text);
    }
    return false;
}

void check_success(int code, const char *call, const char *file, int line)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length;

    if (code == MPI_SUCCESS)
        return;
    MPI_Error_string(code, text, &length);
    fprintf(stderr, "rank %d: %s:%d: %s: %s\n", world_rank, file, line, call, text);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

void check_expect(bool on_hetmpi)
{
    on_hetmpi ? on++ : off++;
}

void check_call(bool on_hetmpi, int code, const char *call, const char *file, int line)
{
    check_expect(on_hetmpi);
    check_success(code, call, file, line);
}

int check_end(void)
{
    int all = 0;

    ON(MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    if (dropped_in)   /* as the drop-in says it, for run.sh to compare */
        fprintf(stderr, "expected[%d]: pmpi: %lu calls on hetmpi, %lu passed on\n", world_rank, on, off);
    if (world_rank == 0)
        printf("%s: %d failures\n", all ? "FAILED" : "passed", all);
    MPI_Finalize();
    return all ? EXIT_FAILURE : EXIT_SUCCESS;
}
