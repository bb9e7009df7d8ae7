/*
 * The benchmarks' own interface: one set of sources makes one program for each collective and each test of messages, in
 * the manner of the OSU micro-benchmarks. Nothing of hetmpi is used but its public header and its table of collectives.
 */
#ifndef HETMPI_BENCH_H
#define HETMPI_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <mpi.h>

#include "core/collectives.h"
#include "hetmpi.h"

enum bench_kind {
#define KIND(Name, name, NAME, ...) BENCH_##NAME,
    COLL_ALL(KIND)
#undef KIND
    BENCH_LATENCY, BENCH_BW, BENCH_BIBW, BENCH_MBW_MR, BENCH_P2P, BENCH_KINDS
};
enum bench_form { FORM_BLOCKING, FORM_NONBLOCKING, FORM_PERSISTENT };
enum bench_where { WHERE_HOST, WHERE_DEVICE };
enum bench_exit { EXIT_RIGHT = 0, EXIT_WRONG = 1, EXIT_CANNOT = 2 };

/* Data types and operations, by the names that --type and --op take. */
enum type_class { TYPE_SIGNED, TYPE_UNSIGNED, TYPE_FLOAT, TYPE_COMPLEX, TYPE_BOOL, TYPE_BYTE, TYPE_MOVED };
enum bench_op { OP_SUM, OP_PROD, OP_MIN, OP_MAX, OP_AVG, OP_BAND, OP_BOR, OP_BXOR, OP_LAND, OP_LOR, OP_LXOR, OP_COUNT };

struct bench_type {
    const char *name, *alias;   /* alias: NULL or another name in use */
    enum type_class class;
    int bytes;                  /* of one element */
    int mantissa, bias;         /* floating point: bits of the fraction; exponent bias */
    bool unsigned_zero;         /* the FNUZ formats have no -0 */
};

const struct bench_type *type_find(const char *name);             /* NULL: no such type */
const struct bench_type *type_at(size_t index);                   /* NULL: end of the list */
MPI_Datatype type_handle(const struct bench_type *type);
bool type_in_mpi(const struct bench_type *type);                  /* MPI can reduce it */
bool op_find(const char *name, enum bench_op *op);
const char *op_name(enum bench_op op);
MPI_Op op_handle(enum bench_op op);
bool op_in_mpi(enum bench_op op);
bool op_defined(const struct bench_type *type, enum bench_op op); /* the table in hetmpi.h */

/* What there is to know of a kind. */
enum {
    KIND_REDUCES = 1,           /* takes an operation */
    KIND_ROOTED = 2,
    KIND_PLACES = 4,            /* takes MPI_IN_PLACE; with a root, there alone */
    KIND_CUTS = 8,              /* the vector whose bytes are printed is cut into one block for each rank */
    KIND_EMPTY = 16,            /* no data */
    KIND_PREFIX = 32,           /* reduces up to this rank */
    KIND_MESSAGES = 64,         /* point to point, between rank i and rank i + n/2 */
};
enum bench_extent { EXTENT_NONE, EXTENT_ONE, EXTENT_ALL, EXTENT_ALL_AT_ROOT };   /* blocks of a buffer */

struct bench_kind_facts {
    const char *name, *title;
    unsigned traits;
    enum bench_extent send, recv;
};

/* bench_kinds.c */
const struct bench_kind_facts *kind_facts(enum bench_kind kind);
const char *kind_name(enum bench_kind kind);
bool kind_is(enum bench_kind kind, unsigned trait);

/* What the command line says. */
struct bench_options {
    enum bench_kind kind;
    size_t min_bytes, max_bytes, memory;
    int iterations, warmup;     /* -1: by size */
    double seconds;             /* for one size and one side */
    bool full, validate, in_place, compare, bound;
    bool help, version;         /* asked for: print it and do nothing else */
    bool type_given, op_given;
    bool wrong;                 /* not understood */
    enum bench_where where;
    const char *device;         /* as given: "host", "device", "cuda", "rocm", "sim" */
    enum bench_form form;
    const struct bench_type *type;
    enum bench_op op;
    int root;
    const char *json;           /* NULL: none */
    const char *wire;           /* NULL: as HETMPI_WIRE says */
};

/* Parses on every rank; `speaks`: this rank prints usage and errors. False: not understood. */
bool options_parse(struct bench_options *options, enum bench_kind kind, int argc, char **argv, bool speaks);

/* One size of one run. */
struct bench_shape {
    size_t bytes;               /* what is printed: the vector, the block of one rank, or the message */
    size_t count;               /* as the call takes it: elements of a block */
    size_t send, recv;          /* elements in this rank's two buffers */
    bool in_place;              /* MPI_IN_PLACE stands on this rank for the buffer that has none */
};

/* The arguments of a call, as the two libraries take them. All blocks have `count` elements, in rank order. */
struct bench_arguments {
    const void *send;
    void *recv;
    size_t count;
    size_t *counts, *displs;    /* [ranks] */
    MPI_Datatype type;
    MPI_Op op;
    int root;
    MPI_Comm comm;
};
struct bench_mpi_arguments {
    const void *send;
    void *recv;
    int count;
    int *counts, *displs;
    MPI_Datatype type;
    MPI_Op op;
    int root;
    MPI_Comm comm;
};

struct bench {
    const struct bench_options *options;
    MPI_Comm comm;
    int rank, ranks;
    MPI_Datatype type;
    MPI_Op op;
    size_t element;
    bool reduces;               /* KIND_REDUCES */
    bool device;                /* buffers are device memory */
    bool other;                 /* MPI's own collective can do the same */
    bool corrupt;               /* a test asks for a wrong result */
    int node_ranks;             /* ranks that share this rank's memory, really */
    MPI_Comm node_comm;
    hetmpi_comm_info_t info;

    struct bench_shape shape;
    bool windowed;              /* of p2p: the window of messages is next, not the round trip */
    uint32_t seed;              /* of the data: another one for each checked call, so that stale data shows */
    unsigned char *send, *recv; /* one guard behind each */
    unsigned char *host_send, *host_recv;     /* MPI's host copies of device buffers */
    unsigned char *bounce;      /* host memory, BOUNCE_BYTES */
    unsigned char *scratch[2];  /* for measuring memory; NULL without --bound */
    size_t scratch_bytes;
    struct bench_arguments ours;
    struct bench_mpi_arguments mpi;
    hetmpi_request_t request;   /* FORM_PERSISTENT */

    unsigned char *input, *expected; /* tables of PERIOD elements */
    double *link;               /* [ranks * 2] bytes/s out of and into each rank's device; NULL: not measured */
    int *island_of;             /* [ranks], with link */
};

/* What one size gave; negative: does not apply. Times in microseconds, of a call or of a message. */
struct bench_result {
    double latency, min, max, other, ratio, bound, share;
    double window;              /* of p2p: of a message of a window */
    int iterations;
    int valid;                  /* -1: not checked */
};

/* bench_util.c: ends the job with the library's message when a call failed. */
void check_hetmpi(int code, const char *what);
void check_mpi(int code, const char *what);
#define HETMPI(call) check_hetmpi((call), #call)
#define MPI(call) check_mpi((call), #call)
void die(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
bool all_agree(const struct bench *bench, bool mine);             /* true on every rank, or false on every rank */
double largest(const struct bench *bench, double mine);
double seconds_now(void);                                         /* of a clock that all ranks of a node share */
double median(double *values, int n);                             /* sorts them */

/* bench_buffers.c */
#define GUARD_BYTES 64           /* behind each buffer, empty ones too */
#define BOUNCE_BYTES ((size_t)1 << 20)
struct bench_shape shape_of(const struct bench *bench, size_t bytes);
size_t buffers_memory(const struct bench *bench, const struct bench_shape *shape);
void buffers_alloc(struct bench *bench, const struct bench_shape *largest_shape);
void buffers_free(struct bench *bench);
void buffers_zero(struct bench *bench);
/* Fills [offset, offset + bytes) of a buffer from a table of period bytes, starting `from` bytes into it; and compares:
 * false with the offset of the first wrong byte. */
void buffer_fill(const struct bench *bench, unsigned char *buffer, size_t offset, size_t bytes,
                 const unsigned char *table, size_t period, size_t from);
bool buffer_check(const struct bench *bench, const unsigned char *buffer, size_t offset, size_t bytes,
                  const unsigned char *table, size_t period, size_t from, size_t *wrong);
void buffer_poison(const struct bench *bench, unsigned char *buffer, size_t offset, size_t bytes, unsigned char poison);
bool buffer_poisoned(const struct bench *bench, const unsigned char *buffer, size_t offset, size_t bytes,
                     unsigned char poison, size_t *wrong);

/* bench_kinds.c: what goes in and what must come out, in elements. */
/* This rank's input: `count` elements from `first` of the receive or the send buffer. */
struct bench_input { bool in_recv; size_t first, count; };
struct bench_input input_of(const struct bench *bench);
size_t input_elements(const struct bench *bench);                 /* of every rank that has one */
/* This rank's result is pieces that follow each other from the start of recv: elements of the input of rank `source`,
 * or of the reduction, from element `from` on. */
enum { SOURCE_REDUCTION = -1 };
struct bench_piece { size_t at, count; int source; size_t from; };
int result_pieces(const struct bench *bench);
struct bench_piece result_piece(const struct bench *bench, int number);
size_t result_elements(const struct bench *bench);

/* bench_data.c: the numbers. Both tables hold at most PERIOD elements; the inputs repeat after that. PERIOD is a prime,
 * so no cut of a vector into chunks or shares falls in step with it. */
#define PERIOD 65521
void data_input(const struct bench *bench, int rank, uint32_t seed, size_t elements, unsigned char *table);
void data_expected(const struct bench *bench, int ranks, uint32_t seed, size_t elements, unsigned char *table);

/* bench_calls.c: one call, ours or MPI's. Of messages: a round trip, or a window of them. */
void calls_open(struct bench *bench);
void calls_close(struct bench *bench);
void call_ours(struct bench *bench);
void call_other(struct bench *bench);

/* bench_messages.c */
void messages_ours(struct bench *bench);
void messages_other(struct bench *bench);
bool messages_are_trips(const struct bench *bench);              /* a call is a round trip, not a window */
bool messages_fit(enum bench_kind kind, int ranks);              /* can that many ranks do it */
double messages_of_call(const struct bench *bench);              /* 1 for a collective */

/* bench_check.c: one call on fresh data; true when every rank has the right result and touched nothing else. */
bool check_call(struct bench *bench);

/* bench_bound.c */
void bound_open(struct bench *bench);                             /* measures the device links, if they matter */
double bound_time(struct bench *bench);                           /* seconds, for the current shape; negative: none */

/* bench_print.c: rank 0 only. */
void print_header(const struct bench *bench);
void print_line(const struct bench *bench, const struct bench_result *result);
void print_json(const struct bench *bench, const struct bench_result *result, void *file);

#endif
