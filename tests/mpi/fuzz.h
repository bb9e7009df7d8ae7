/*
 * The random differential test (fuzz_collectives.c): what its files share. A round has communicators, and batches of
 * cases that are in flight together; a case is one collective or message on one communicator. All is drawn from the
 * round's seed: what the ranks must agree on by the same numbers, the rest (kinds of memory, order of waiting) by
 * numbers of each rank's own, so a round can be run again alone.
 */
#ifndef HETMPI_TESTS_MPI_FUZZ_H
#define HETMPI_TESTS_MPI_FUZZ_H

#include "oracle.h"

#define FZ_RANKS 16       /* most ranks of the job */
#define FZ_COMMS 4        /* communicators of a round */
#define FZ_FLIGHT 8       /* cases of a batch */
#define FZ_STREAMS FZ_COMMS

/* Numbers by seed. */
struct fz_random { uint64_t seed, stream, drawn; };
uint64_t fz_draw(struct fz_random *random);
unsigned fz_pick(struct fz_random *random, unsigned n);   /* 0 .. n-1 */
/* The same on all ranks, or each rank's own, for one purpose. */
struct fz_random fz_common(uint64_t seed, uint64_t purpose);
struct fz_random fz_own(uint64_t seed, uint64_t purpose);
/* A random order of 0 .. n-1. */
void fz_shuffle(struct fz_random *random, int *list, int n);

/* fuzz_comms.c */
struct fz_comm {
    bool member;              /* this rank is in it; else only `what` is set */
    MPI_Comm comm, mpi;       /* mpi: a duplicate for MPI's own calls */
    int rank, ranks;
    bool attached;            /* set up before its first call */
    size_t chunk, small;      /* its settings, for counts near them */
    char what[128];
};
int fz_comms_make(uint64_t seed, struct fz_comm comms[FZ_COMMS]);
void fz_comm_free(struct fz_comm *comm);     /* what hetmpi uses; a call may be pending */
void fz_comms_end(struct fz_comm comms[FZ_COMMS], int n);

enum fz_kind { FZ_ALLREDUCE, FZ_REDUCE, FZ_REDUCE_SCATTER_BLOCK, FZ_REDUCE_SCATTER, FZ_SCAN, FZ_EXSCAN, FZ_BCAST,
               FZ_ALLGATHER, FZ_ALLGATHERV, FZ_GATHER, FZ_GATHERV, FZ_SCATTER, FZ_SCATTERV, FZ_ALLTOALL, FZ_ALLTOALLV,
               FZ_BARRIER, FZ_MESSAGE, FZ_SENDRECV, FZ_KINDS };
enum fz_form { FZ_BLOCKING, FZ_NONBLOCKING, FZ_STREAM, FZ_PERSISTENT, FZ_FORMS };
/* SEPARATE; MPI_IN_PLACE; what counts as in place: equal pointers, or this rank's block of the other buffer. */
enum fz_way { FZ_SEPARATE, FZ_IN_PLACE, FZ_ALIASED };
extern const char *const fz_kind_names[FZ_KINDS], *const fz_form_names[FZ_FORMS];

/* How the counts of blocks differ, where they may. */
enum fz_blocks_how { FZ_EVEN, FZ_SPARSE, FZ_GROWING, FZ_LAST_ONLY, FZ_HASHED, FZ_NOTHING, FZ_HOWS };

struct fz_case {
    int number;               /* in the round */
    uint64_t seed;            /* of its data */
    enum fz_kind kind;
    enum fz_form form;
    enum fz_way way;
    enum t_fmt fmt;
    enum t_op op;
    bool premul;              /* a sum of what each rank multiplies by a factor of its own */
    enum t_data data;
    enum fz_blocks_how how;
    int root, peer;           /* message: from root to peer */
    size_t n;                 /* elements of the vector or of a block */
    int stream, starts;       /* starts: of a persistent request */
    bool reference;           /* ask MPI too */
    bool gaps, backwards;     /* between and of the blocks of v-variants */
    /* This rank's own. */
    enum t_place from, to;
    size_t from_shift, to_shift;
    bool bare;                /* NULL for buffers of no elements */
};

/* What a batch allows. */
struct fz_rules {
    bool blocking;            /* blocking calls: all ranks call in one order */
    bool streams, messages_on_streams;
    bool reordered;           /* ranks call in other orders: a stream for each communicator */
    bool once;                /* persistent requests start once */
};

/* fuzz_draw.c */
void fz_draw_case(struct fz_case *c, const struct fz_comm *comm, int comm_number, uint64_t seed, int number,
                  const struct fz_rules *rules);
void fz_describe(const struct fz_case *c, const struct fz_comm *comm, char text[256]);
bool fz_reduces(enum fz_kind kind);
bool fz_has_counts(enum fz_kind kind);       /* blocks of different lengths */

/* Blocks by rank in one buffer, in elements. */
struct fz_blocks { size_t count[FZ_RANKS], displ[FZ_RANKS], total; };

/* A case under way on this rank. */
struct fz_run {
    struct fz_case c;
    const struct fz_comm *comm;
    uint64_t seed;                            /* of the round */
    size_t size;                              /* bytes of an element */
    struct fz_blocks out, in;
    size_t arrays[4][FZ_RANKS];               /* what the call gets: recvcounts, rdispls, sendcounts, sdispls */
    struct t_buf from, to;
    unsigned char *send_image, *recv_image, *want_image, *got;
    unsigned char *patterns, *sum;            /* T_PATTERN elements of each rank; of the result */
    unsigned char *operands;                  /* what is combined: the patterns, or their products */
    const void *sendbuf;
    void *recvbuf;
    hetmpi_request_t request;
    MPI_Status status;
    bool active, broken;                      /* broken: a call failed, the rest is left out */
};

/* fuzz_run.c: buffers and what they hold. */
void fz_open(struct fz_run *r);
void fz_fill(struct fz_run *r, int start);    /* new data for this start of the call */
void fz_close(struct fz_run *r);
size_t fz_between(const struct fz_run *r, int i, int j);   /* elements that rank i has for rank j */
size_t fz_vector(const struct fz_run *r);                  /* elements of a rank's input to a reduction */
size_t fz_before(const struct fz_run *r, int rank);        /* elements of the blocks before the rank's */
size_t fz_first(const struct fz_run *r, int j);            /* where in its pattern a rank's data for rank j begins */
size_t fz_recv_elements(const struct fz_run *r);
size_t fz_send_elements(const struct fz_run *r);
bool fz_has_recv(const struct fz_run *r);
bool fz_is_root(const struct fz_run *r);
/* The elements of the result of a reduction on this rank: how many, where in the receive buffer, and of which part of
 * the ranks' vectors. */
size_t fz_result(const struct fz_run *r, size_t *at, size_t *first);
#define FZ_FACTOR_BYTES 16
void fz_factor(const struct fz_run *r, int rank, unsigned char factor[FZ_FACTOR_BYTES]);   /* of a premultiplied sum */
/* How many ranks, from the first on, are combined in the result on this rank. */
int fz_combined(const struct fz_run *r);

/* fuzz_call.c */
int fz_call(struct fz_run *r, const hetmpi_stream_t *streams);    /* a persistent one is only made */

/* fuzz_check.c: compares all that a completed call may and may not have written. Collective over r->comm->mpi. */
void fz_check(struct fz_run *r, int start);

#endif
