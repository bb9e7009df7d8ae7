/* Put in front of libhetmpi: a message arrives with one byte wrong. */
#define _GNU_SOURCE   /* RTLD_NEXT */
#include <dlfcn.h>

#include "hetmpi.h"

int hetmpi_sendrecv(const void *sendbuf, size_t sendcount, MPI_Datatype sendtype, int dest, int sendtag, void *recvbuf,
                    size_t recvcount, MPI_Datatype recvtype, int source, int recvtag, MPI_Comm comm, MPI_Status *status)
{
    int (*real)(const void *, size_t, MPI_Datatype, int, int, void *, size_t, MPI_Datatype, int, int, MPI_Comm,
                MPI_Status *) = NULL;
    int code;

    *(void **)&real = dlsym(RTLD_NEXT, "hetmpi_sendrecv");
    code = real(sendbuf, sendcount, sendtype, dest, sendtag, recvbuf, recvcount, recvtype, source, recvtag, comm, status);
    return code ? code : hetmpi_memset((char *)recvbuf + recvcount / 2, 0x5a, 1);
}
