/*
 * The drop-in for unchanged programs: MPI's blocking collectives, run on hetmpi where it serves them, and handed on to
 * MPI's own functions otherwise.
 *
 * The ranks of a call must decide alike without asking each other, so the decision stands on what MPI makes the same on
 * all of them and each can see:
 *   - the communicator: hetmpi takes intracommunicators whose ranks are all in this process's MPI_COMM_WORLD (the others
 *     may be programs without the drop-in);
 *   - in reductions, type and operation: both must be the same everywhere. User-defined operations, pairs and the like
 *     are MPI's;
 *   - in calls that only move data, nothing else: types may differ between the ranks as long as their signatures agree,
 *     and some ranks cannot see a type at all. So all go as bytes, packed where a type has gaps;
 *   - the setting PMPI, which is compared when a communicator is set up.
 * Arguments that MPI forbids go to MPI, which then answers with its own error: such a call is wrong on this rank
 * whatever the others do.
 */
#ifndef HETMPI_PMPI_H
#define HETMPI_PMPI_H

#include <stdbool.h>
#include <stddef.h>

#include <mpi.h>

#include "pmpi/table.h"

enum pmpi_call {
#define CALL(Name, name, NAME, traits, ...) PMPI_CALL_##NAME,
    COLL_ALL(CALL)
#undef CALL
    PMPI_CALL_N
};

/* The table's traits of a call. */
static inline unsigned pmpi_traits(enum pmpi_call call)
{
    static const unsigned char traits_of[PMPI_CALL_N] = {
#define CALL(Name, name, NAME, traits, ...) [PMPI_CALL_##NAME] = traits,
        COLL_ALL(CALL)
#undef CALL
    };

    return traits_of[call];
}

/* An array of counts or displacements: int, or wider in MPI 4's calls of large counts. */
struct pmpi_array { const void *at; size_t width; };
long long pmpi_item(const struct pmpi_array *array, int index);

/* A call as the program made it; the fields are those of COLL_ALL. Calls with one buffer, count or type use the
 * receiving side's. */
struct pmpi_args {
    enum pmpi_call call;
    const void *sendbuf;
    void *recvbuf;
    long long sendcount, recvcount;
    struct pmpi_array sendcounts, sdispls, recvcounts, rdispls;
    MPI_Datatype sendtype, recvtype;
    MPI_Op op;
    int root;
    MPI_Comm comm;
};

/* decide.c. True: hetmpi ran the call, *answer is what the MPI function returns. False: it is MPI's. */
bool pmpi_serve(const struct pmpi_args *args, int *answer);
void pmpi_stop(void);              /* at MPI_Finalize: all later calls are MPI's */

/* reduce.c, move.c: run a call on hetmpi; false if it is wrong in a way that MPI answers. */
bool pmpi_reduce(const struct pmpi_args *args, int *answer);
bool pmpi_move(const struct pmpi_args *args, int *answer);
/* What hetmpi returned, as MPI returns it. */
int pmpi_answer(int code);
/* An error of this library itself, of an MPI class: through the communicator's handler. Returns the code. */
int pmpi_error(MPI_Comm comm, int mpi_class, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* wrappers.c: the entry points without their public names, for the Fortran ones. */
#define CALL(Name, name, NAME, traits, ...) int entry_##name(COLL_EACH(PMPI_DECLARE, __VA_ARGS__));
COLL_ALL(CALL)
#undef CALL
int entry_finalize(void);

#endif
