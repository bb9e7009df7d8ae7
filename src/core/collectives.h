/*
 * The collectives, each described once: its name in C, in settings and in Fortran's capitals, what schedules and meetings
 * know of its kind, and its parameters as (kind, name). The entry points, names and traits of the library, those of the
 * drop-in in C and Fortran, the names that the setting PMPI takes, and the benchmarks' calls are made from this table.
 * include/hetmpi.h spells the parameters out for its readers: where the two differ, nothing compiles.
 */
#ifndef HETMPI_COLLECTIVES_H
#define HETMPI_COLLECTIVES_H

/* What the kind says of a collective's calls. */
enum {
    COLL_REDUCES = 1,       /* has an operation */
    COLL_ROOTED = 2,        /* has a root */
    COLL_BLOCKS = 4,        /* local steps on SPACE_BLOCKS: see sched.h */
    COLL_PAIRS = 8,         /* messages between any two ranks, of one island too */
    COLL_TABLE = 16,        /* blocks of different lengths, which all ranks know */
    COLL_OWN_TABLE = 32,    /* blocks of different lengths, of which each rank knows its own */
    COLL_CHAIN = 64,        /* in the order of the ranks: scan, exscan */
};

/* CALL(Name, name, NAME, traits, parameters...). A call with one count or type has the receiving side's; BUFFER is read
 * or written. COLL_COUNTED: those that MPI 4 has with large counts too. Other versions of the library know the kinds by
 * their numbers: a new one comes last, before barrier, with a new PROTOCOL (facts.c). */
#define COLL_COUNTED(CALL)                                                                                          \
    CALL(Allreduce, allreduce, ALLREDUCE, COLL_REDUCES,                                                             \
         (IN, sendbuf), (OUT, recvbuf), (COUNT, recvcount), (TYPE, recvtype), (OP, op), (COMM, comm))               \
    CALL(Reduce, reduce, REDUCE, COLL_REDUCES | COLL_ROOTED,                                                        \
         (IN, sendbuf), (OUT, recvbuf), (COUNT, recvcount), (TYPE, recvtype), (OP, op), (ROOT, root), (COMM, comm)) \
    CALL(Bcast, bcast, BCAST, COLL_ROOTED,                                                                          \
         (BUFFER, recvbuf), (COUNT, recvcount), (TYPE, recvtype), (ROOT, root), (COMM, comm))                       \
    CALL(Allgather, allgather, ALLGATHER, COLL_BLOCKS,                                                              \
         (IN, sendbuf), (COUNT, sendcount), (TYPE, sendtype),                                                       \
         (OUT, recvbuf), (COUNT, recvcount), (TYPE, recvtype), (COMM, comm))                                        \
    CALL(Reduce_scatter_block, reduce_scatter_block, REDUCE_SCATTER_BLOCK, COLL_REDUCES | COLL_BLOCKS,              \
         (IN, sendbuf), (OUT, recvbuf), (COUNT, recvcount), (TYPE, recvtype), (OP, op), (COMM, comm))               \
    CALL(Reduce_scatter, reduce_scatter, REDUCE_SCATTER, COLL_REDUCES | COLL_BLOCKS | COLL_TABLE,                   \
         (IN, sendbuf), (OUT, recvbuf), (COUNTS, recvcounts), (TYPE, recvtype), (OP, op), (COMM, comm))             \
    CALL(Allgatherv, allgatherv, ALLGATHERV, COLL_BLOCKS | COLL_TABLE,                                              \
         (IN, sendbuf), (COUNT, sendcount), (TYPE, sendtype),                                                       \
         (OUT, recvbuf), (COUNTS, recvcounts), (DISPLS, rdispls), (TYPE, recvtype), (COMM, comm))                   \
    CALL(Gather, gather, GATHER, COLL_ROOTED | COLL_BLOCKS,                                                         \
         (IN, sendbuf), (COUNT, sendcount), (TYPE, sendtype),                                                       \
         (OUT, recvbuf), (COUNT, recvcount), (TYPE, recvtype), (ROOT, root), (COMM, comm))                          \
    CALL(Scatter, scatter, SCATTER, COLL_ROOTED | COLL_BLOCKS,                                                      \
         (IN, sendbuf), (COUNT, sendcount), (TYPE, sendtype),                                                       \
         (OUT, recvbuf), (COUNT, recvcount), (TYPE, recvtype), (ROOT, root), (COMM, comm))                          \
    CALL(Gatherv, gatherv, GATHERV, COLL_ROOTED | COLL_BLOCKS | COLL_OWN_TABLE,                                     \
         (IN, sendbuf), (COUNT, sendcount), (TYPE, sendtype),                                                       \
         (OUT, recvbuf), (COUNTS, recvcounts), (DISPLS, rdispls), (TYPE, recvtype), (ROOT, root), (COMM, comm))     \
    CALL(Scatterv, scatterv, SCATTERV, COLL_ROOTED | COLL_BLOCKS | COLL_OWN_TABLE,                                  \
         (IN, sendbuf), (COUNTS, sendcounts), (DISPLS, sdispls), (TYPE, sendtype),                                  \
         (OUT, recvbuf), (COUNT, recvcount), (TYPE, recvtype), (ROOT, root), (COMM, comm))                          \
    CALL(Alltoall, alltoall, ALLTOALL, COLL_PAIRS,                                                                  \
         (IN, sendbuf), (COUNT, sendcount), (TYPE, sendtype),                                                       \
         (OUT, recvbuf), (COUNT, recvcount), (TYPE, recvtype), (COMM, comm))                                        \
    CALL(Alltoallv, alltoallv, ALLTOALLV, COLL_PAIRS | COLL_OWN_TABLE,                                              \
         (IN, sendbuf), (COUNTS, sendcounts), (DISPLS, sdispls), (TYPE, sendtype),                                  \
         (OUT, recvbuf), (COUNTS, recvcounts), (DISPLS, rdispls), (TYPE, recvtype), (COMM, comm))                   \
    CALL(Scan, scan, SCAN, COLL_REDUCES | COLL_PAIRS | COLL_CHAIN,                                                  \
         (IN, sendbuf), (OUT, recvbuf), (COUNT, recvcount), (TYPE, recvtype), (OP, op), (COMM, comm))               \
    CALL(Exscan, exscan, EXSCAN, COLL_REDUCES | COLL_PAIRS | COLL_CHAIN,                                            \
         (IN, sendbuf), (OUT, recvbuf), (COUNT, recvcount), (TYPE, recvtype), (OP, op), (COMM, comm))

#define COLL_ALL(CALL) COLL_COUNTED(CALL) CALL(Barrier, barrier, BARRIER, 0, (COMM, comm))

/* COLL_EACH(DO, (kind, name), ...): DO(kind, name), ... for up to ten parameters. */
#define COLL_EACH(DO, ...)                                                                                           \
    COLL_PICK_(__VA_ARGS__, COLL_10_, COLL_9_, COLL_8_, COLL_7_, COLL_6_, COLL_5_, COLL_4_, COLL_3_, COLL_2_,        \
               COLL_1_, )(DO, __VA_ARGS__)
#define COLL_PICK_(a, b, c, d, e, f, g, h, i, j, name, ...) name
#define COLL_1_(DO, a) DO a
#define COLL_2_(DO, a, ...) DO a, COLL_1_(DO, __VA_ARGS__)
#define COLL_3_(DO, a, ...) DO a, COLL_2_(DO, __VA_ARGS__)
#define COLL_4_(DO, a, ...) DO a, COLL_3_(DO, __VA_ARGS__)
#define COLL_5_(DO, a, ...) DO a, COLL_4_(DO, __VA_ARGS__)
#define COLL_6_(DO, a, ...) DO a, COLL_5_(DO, __VA_ARGS__)
#define COLL_7_(DO, a, ...) DO a, COLL_6_(DO, __VA_ARGS__)
#define COLL_8_(DO, a, ...) DO a, COLL_7_(DO, __VA_ARGS__)
#define COLL_9_(DO, a, ...) DO a, COLL_8_(DO, __VA_ARGS__)
#define COLL_10_(DO, a, ...) DO a, COLL_9_(DO, __VA_ARGS__)

/* A parameter as it is declared in C, by its kind; `count` and `displ` are the types of the two. */
#define COLL_DECLARE(kind, name, count, displ) COLL_DECLARE_##kind(name, count, displ)
#define COLL_DECLARE_IN(name, count, displ) const void *name
#define COLL_DECLARE_OUT(name, count, displ) void *name
#define COLL_DECLARE_BUFFER(name, count, displ) void *name
#define COLL_DECLARE_COUNT(name, count, displ) count name
#define COLL_DECLARE_COUNTS(name, count, displ) const count name[]
#define COLL_DECLARE_DISPLS(name, count, displ) const displ name[]
#define COLL_DECLARE_TYPE(name, count, displ) MPI_Datatype name
#define COLL_DECLARE_OP(name, count, displ) MPI_Op name
#define COLL_DECLARE_ROOT(name, count, displ) int name
#define COLL_DECLARE_COMM(name, count, displ) MPI_Comm name

#endif
