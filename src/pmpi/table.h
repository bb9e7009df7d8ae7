/*
 * The calls that the drop-in serves, each described once: its name in C, in settings and in Fortran's capitals, and its
 * parameters as (kind, name), named as the fields of struct pmpi_args. What includes this makes of it C and Fortran
 * entry points and the names that HETMPI_PMPI takes. PMPI_COUNTED: the calls that MPI 4 has with large counts too.
 */
#ifndef HETMPI_PMPI_TABLE_H
#define HETMPI_PMPI_TABLE_H

#define PMPI_COUNTED(CALL)                                                                                            \
    CALL(Allreduce, allreduce, ALLREDUCE,                                                                            \
         (IN, sendbuf), (OUT, recvbuf), (COUNT, recvcount), (TYPE, recvtype), (OP, op), (COMM, comm))                \
    CALL(Reduce, reduce, REDUCE,                                                                                     \
         (IN, sendbuf), (OUT, recvbuf), (COUNT, recvcount), (TYPE, recvtype), (OP, op), (ROOT, root), (COMM, comm))  \
    CALL(Bcast, bcast, BCAST,                                                                                        \
         (OUT, recvbuf), (COUNT, recvcount), (TYPE, recvtype), (ROOT, root), (COMM, comm))                           \
    CALL(Reduce_scatter_block, reduce_scatter_block, REDUCE_SCATTER_BLOCK,                                           \
         (IN, sendbuf), (OUT, recvbuf), (COUNT, recvcount), (TYPE, recvtype), (OP, op), (COMM, comm))                \
    CALL(Reduce_scatter, reduce_scatter, REDUCE_SCATTER,                                                             \
         (IN, sendbuf), (OUT, recvbuf), (COUNTS, recvcounts), (TYPE, recvtype), (OP, op), (COMM, comm))              \
    CALL(Allgather, allgather, ALLGATHER,                                                                            \
         (IN, sendbuf), (COUNT, sendcount), (TYPE, sendtype),                                                        \
         (OUT, recvbuf), (COUNT, recvcount), (TYPE, recvtype), (COMM, comm))                                         \
    CALL(Allgatherv, allgatherv, ALLGATHERV,                                                                         \
         (IN, sendbuf), (COUNT, sendcount), (TYPE, sendtype),                                                        \
         (OUT, recvbuf), (COUNTS, recvcounts), (DISPLS, rdispls), (TYPE, recvtype), (COMM, comm))                    \
    CALL(Gather, gather, GATHER,                                                                                     \
         (IN, sendbuf), (COUNT, sendcount), (TYPE, sendtype),                                                        \
         (OUT, recvbuf), (COUNT, recvcount), (TYPE, recvtype), (ROOT, root), (COMM, comm))                           \
    CALL(Gatherv, gatherv, GATHERV,                                                                                  \
         (IN, sendbuf), (COUNT, sendcount), (TYPE, sendtype),                                                        \
         (OUT, recvbuf), (COUNTS, recvcounts), (DISPLS, rdispls), (TYPE, recvtype), (ROOT, root), (COMM, comm))      \
    CALL(Scatter, scatter, SCATTER,                                                                                  \
         (IN, sendbuf), (COUNT, sendcount), (TYPE, sendtype),                                                        \
         (OUT, recvbuf), (COUNT, recvcount), (TYPE, recvtype), (ROOT, root), (COMM, comm))                           \
    CALL(Scatterv, scatterv, SCATTERV,                                                                               \
         (IN, sendbuf), (COUNTS, sendcounts), (DISPLS, sdispls), (TYPE, sendtype),                                   \
         (OUT, recvbuf), (COUNT, recvcount), (TYPE, recvtype), (ROOT, root), (COMM, comm))                           \
    CALL(Alltoall, alltoall, ALLTOALL,                                                                               \
         (IN, sendbuf), (COUNT, sendcount), (TYPE, sendtype),                                                        \
         (OUT, recvbuf), (COUNT, recvcount), (TYPE, recvtype), (COMM, comm))                                         \
    CALL(Alltoallv, alltoallv, ALLTOALLV,                                                                            \
         (IN, sendbuf), (COUNTS, sendcounts), (DISPLS, sdispls), (TYPE, sendtype),                                   \
         (OUT, recvbuf), (COUNTS, recvcounts), (DISPLS, rdispls), (TYPE, recvtype), (COMM, comm))                    \
    CALL(Scan, scan, SCAN,                                                                                           \
         (IN, sendbuf), (OUT, recvbuf), (COUNT, recvcount), (TYPE, recvtype), (OP, op), (COMM, comm))                \
    CALL(Exscan, exscan, EXSCAN,                                                                                     \
         (IN, sendbuf), (OUT, recvbuf), (COUNT, recvcount), (TYPE, recvtype), (OP, op), (COMM, comm))

#define PMPI_CALLS(CALL) PMPI_COUNTED(CALL) CALL(Barrier, barrier, BARRIER, (COMM, comm))

/* PMPI_EACH(DO, (kind, name), ...): DO(kind, name), ... for up to ten parameters. */
#define PMPI_EACH(DO, ...)                                                                                           \
    PMPI_PICK_(__VA_ARGS__, PMPI_10_, PMPI_9_, PMPI_8_, PMPI_7_, PMPI_6_, PMPI_5_, PMPI_4_, PMPI_3_, PMPI_2_,        \
               PMPI_1_, )(DO, __VA_ARGS__)
#define PMPI_PICK_(a, b, c, d, e, f, g, h, i, j, name, ...) name
#define PMPI_1_(DO, a) DO a
#define PMPI_2_(DO, a, ...) DO a, PMPI_1_(DO, __VA_ARGS__)
#define PMPI_3_(DO, a, ...) DO a, PMPI_2_(DO, __VA_ARGS__)
#define PMPI_4_(DO, a, ...) DO a, PMPI_3_(DO, __VA_ARGS__)
#define PMPI_5_(DO, a, ...) DO a, PMPI_4_(DO, __VA_ARGS__)
#define PMPI_6_(DO, a, ...) DO a, PMPI_5_(DO, __VA_ARGS__)
#define PMPI_7_(DO, a, ...) DO a, PMPI_6_(DO, __VA_ARGS__)
#define PMPI_8_(DO, a, ...) DO a, PMPI_7_(DO, __VA_ARGS__)
#define PMPI_9_(DO, a, ...) DO a, PMPI_8_(DO, __VA_ARGS__)
#define PMPI_10_(DO, a, ...) DO a, PMPI_9_(DO, __VA_ARGS__)

/* The parameters' types in C; counts are int, and MPI_Count in MPI 4's calls of large counts. */
#define PMPI_DECLARE(kind, name) PMPI_DECLARE_##kind(name, int, int)
#define PMPI_DECLARE_LARGE(kind, name) PMPI_DECLARE_##kind(name, MPI_Count, MPI_Aint)
#define PMPI_DECLARE_IN(name, count, displ) const void *name
#define PMPI_DECLARE_OUT(name, count, displ) void *name
#define PMPI_DECLARE_COUNT(name, count, displ) count name
#define PMPI_DECLARE_COUNTS(name, count, displ) const count name[]
#define PMPI_DECLARE_DISPLS(name, count, displ) const displ name[]
#define PMPI_DECLARE_TYPE(name, count, displ) MPI_Datatype name
#define PMPI_DECLARE_OP(name, count, displ) MPI_Op name
#define PMPI_DECLARE_ROOT(name, count, displ) int name
#define PMPI_DECLARE_COMM(name, count, displ) MPI_Comm name
#define PMPI_NAME(kind, name) name

#endif
