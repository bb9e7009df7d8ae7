/* What the entry points share: type and operation look-up, error reporting, requests. */
#ifndef HETMPI_API_H
#define HETMPI_API_H

#include <stdbool.h>

#include <mpi.h>

#include "core/engine.h"
#include "hetmpi.h"

/* No buffer is larger: what programs can address on today's machines. Sums of such sizes do not overflow. */
#define API_MOST_BYTES ((size_t)1 << 47)

/* types.c. Unknown handles: HETMPI_ERR_TYPE, HETMPI_ERR_OP, without a message. MPI must be up. */
int types_find(MPI_Datatype type, enum red_type *found);
int types_want(const char *function, MPI_Datatype type, enum red_type *found);   /* types_find with the message */
int types_find_op(MPI_Op op, enum red_op *found);
/* A premultiplied sum of ours: its type and scalar. False: op is none. */
struct types_premul { enum red_type type; unsigned char scale[RED_SCALE_BYTES]; };
bool types_find_premul(MPI_Op op, struct types_premul *found);
void types_describe(MPI_Datatype type, char *text, size_t bytes);   /* MPI's name of it */

/* errors.c: passes an error (text in err_text) through the communicator's MPI error handler, and returns its code. */
int api_report(MPI_Comm comm, const char *function, int code);

struct hetmpi_request {
    struct op op;
    MPI_Comm user;
    uint64_t comm_serial;
    unsigned generation;       /* for comm_lives_still */
    const char *function;
    size_t bytes;              /* of the result, for the status */
    bool persistent, active;
    bool grouped;              /* starts at hetmpi_group_end */
    mem_stream_t *stream;      /* of an on_stream call */
    bool alone;                /* a communicator of one rank: the whole call is a copy */
};

/* collectives.c, p2p.c: starts the request now. */
int coll_start(struct hetmpi_request *request);
int msg_start(struct hetmpi_request *request);

/* requests.c; MPI_STATUS_IGNORE is fine. */
void api_fill_status(MPI_Status *status, int source, int tag, size_t bytes, int error);
void api_message_status(MPI_Status *status, const struct op *op);   /* of a message that is complete */

/* group.c: start a request now, or at the end of this thread's group. After an error of a call on a stream, its request
 * is freed. */
int api_start(struct hetmpi_request *request);
int api_start_on_stream(struct hetmpi_request *request, mem_stream_t *stream);
/* The two ends of a nonblocking call: there must be a place for the request; and when that was made (code 0), it starts and
 * is put there. Returns what the call returns, its error reported. */
int api_want_request(const char *function, const hetmpi_request_t *out);
int api_launch(MPI_Comm user, const char *function, int code, struct hetmpi_request *request, hetmpi_request_t *out);
/* A call that waits must not stand inside a group: HETMPI_ERR_STATE. */
int api_refuse_in_group(const char *function);

#endif
