/* What the entry points share: type and operation look-up, error reporting, requests. */
#ifndef HETMPI_API_H
#define HETMPI_API_H

#include <stdbool.h>

#include <mpi.h>

#include "core/engine.h"
#include "hetmpi.h"

/* types.c. Unknown handles: HETMPI_ERR_TYPE, HETMPI_ERR_OP, without a message. MPI must be up. */
int types_find(MPI_Datatype type, enum red_type *found);
int types_find_op(MPI_Op op, enum red_op *found);
void types_describe(MPI_Datatype type, char *text, size_t bytes);   /* MPI's name of it */

/* errors.c: passes an error (text in err_text) through the communicator's MPI error handler, and returns its code. */
int api_report(MPI_Comm comm, const char *function, int code);

struct hetmpi_request {
    struct op op;
    MPI_Comm user;
    uint64_t comm_serial;
    const char *function;
    size_t bytes;              /* of the result, for the status */
    bool persistent, active;
    bool alone;                /* a communicator of one rank: the whole call is a copy */
};

/* collectives.c */
int coll_start(struct hetmpi_request *request);

#endif
