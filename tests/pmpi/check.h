/* What the drop-in's test programs share. They are programs of MPI alone: nothing here knows hetmpi. */
#ifndef HETMPI_TESTS_PMPI_CHECK_H
#define HETMPI_TESTS_PMPI_CHECK_H

#include <stdbool.h>

#include <mpi.h>

extern int world_rank, world_size;
extern bool dropped_in;              /* run with the drop-in, not with MPI alone */

/* Calls that the drop-in must run on hetmpi, or pass on: counted, and compared with what it says at the end. The call
 * must succeed. */
#define ON(call) check_call(true, (call), #call, __FILE__, __LINE__)
#define OFF(call) check_call(false, (call), #call, __FILE__, __LINE__)
/* Any other call. */
#define MPI(call) check_success((call), #call, __FILE__, __LINE__)
#define CHECK(condition, ...) ((condition) ? true : check_fail(__FILE__, __LINE__, __VA_ARGS__))

void check_call(bool on_hetmpi, int code, const char *call, const char *file, int line);
void check_expect(bool on_hetmpi);   /* counts alone */
void check_success(int code, const char *call, const char *file, int line);
bool check_fail(const char *file, int line, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Collective: says what the drop-in should have counted; finalises MPI; the exit status. */
int check_end(void);

/* data.c: calls that move data, with data types that differ between the ranks. */
void check_moves(MPI_Comm comm, int elements, int round);
void make_forms(void);
void free_forms(void);

#endif
