/* How data types lie in memory, and moving their data to and from plain bytes. */
#ifndef HETMPI_PMPI_LAYOUT_H
#define HETMPI_PMPI_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>

#include <mpi.h>

struct layout {
    MPI_Datatype type;
    size_t size;                /* bytes of data in one element */
    MPI_Aint extent;            /* from one element to the next */
    MPI_Aint first, last;       /* where one element's data lies, from its address */
    bool plain;                 /* elements are bytes one after the other, in order, from the address on */
};

/* layout.c: all return MPI_SUCCESS or an MPI error, which has been through an error handler. */
int layout_start(void);
void layout_stop(void);
int layout_of(MPI_Comm comm, MPI_Datatype type, struct layout *layout);
int layout_pack(MPI_Comm comm, const struct layout *layout, const void *from, size_t count, void *bytes);
int layout_unpack(MPI_Comm comm, const struct layout *layout, const void *bytes, size_t count, void *to);
/* The address `elements` behind buffer, which may be MPI_BOTTOM. */
void *layout_at(const void *buffer, const struct layout *layout, long long elements);

#endif
