/* The random differential test: comparing what a call wrote, and did not. See fuzz.h. */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLOSE_MAX 3000          /* elements that are compared with a tolerance, at either end */
#define REFERENCE_MAX (1u << 20) /* bytes of the largest buffer that MPI's own call gets too */

/* Bytes outside of the result of a reduction, and all others' bytes, have one right value. */
static bool bytes_are(const struct fz_run *r, const unsigned char *got, const unsigned char *want, size_t from,
                      size_t to, const char *what)
{
    size_t wrong = 0, at = 0;
    if (memcmp(got + from, want + from, to - from) == 0)
        return true;
    for (size_t i = from; i < to; i++)
        if (got[i] != want[i] && wrong++ == 0)
            at = i;
    return t_fail(__FILE__, __LINE__, "%s: %zu of %zu bytes wrong, the first in element %zu: 0x%02x instead of 0x%02x",
                  what, wrong, to - from, at / r->size, got[at], want[at]);
}

/* A result with roundings: within the error that they allow. The same bits everywhere are checked elsewhere. */
static bool check_close(const struct fz_run *r, const unsigned char *got, size_t first, size_t n)
{
    const void *operands[FZ_RANKS];
    size_t head = n < CLOSE_MAX ? n : CLOSE_MAX;
    int roundings = r->comm->ranks + 2;
    for (int i = 0; i < r->comm->ranks; i++)
        operands[i] = r->operands + (size_t)i * T_PATTERN * r->size;
    return t_expect_close(r->c.fmt, r->c.op, got, operands, fz_combined(r), roundings, first, head, "result") &&
           t_expect_close(r->c.fmt, r->c.op, got + (n - head) * r->size, operands, fz_combined(r), roundings,
                          first + n - head, head, "end of the result");
}

static void check_result(struct fz_run *r)
{
    size_t bytes = fz_recv_elements(r) * r->size, at = 0, first = 0, n = 0;
    if (bytes == 0)
        return;
    t_buf_get(&r->to, r->got);
    if (fz_reduces(r->c.kind))
        n = fz_result(r, &at, &first);
    if (n == 0) {
        bytes_are(r, r->got, r->want_image, 0, bytes, "receive buffer");
        return;
    }
    bytes_are(r, r->got, r->want_image, 0, at * r->size, "before the result");
    bytes_are(r, r->got, r->want_image, (at + n) * r->size, bytes, "behind the result");
    if (r->c.data == T_RANDOM && fz_combined(r) > 1)
        check_close(r, r->got + at * r->size, first, n);
    else
        t_expect(r->c.fmt, r->got + at * r->size, r->sum, first, n, "result");
}

/* Allreduce gives all ranks the same bits, roundings and NaNs included. */
static void check_same(const struct fz_run *r)
{
    uint64_t hash = 0;
    if (r->c.kind != FZ_ALLREDUCE || r->c.data == T_EXACT)
        return;
    if (!r->broken)
        hash = t_fold(0, r->got, r->c.n * r->size);
    t_same_everywhere(r->comm->mpi, hash, "allreduce");
}

/* MPI's own result of a reduction is ours too where no rounding, no NaN and no sign of zero is in play, and no short
 * integers: with AVX, Open MPI 4.1 saturates their sums. MPICH 4.0 compares unsigned integers as signed ones. */
static bool mpi_can(const struct fz_run *r)
{
    size_t largest = r->c.n * r->size * (size_t)r->comm->ranks;
    bool compares = r->c.op == T_MIN || r->c.op == T_MAX;
    bool has_sign = r->c.fmt != T_U32 && r->c.fmt != T_U64;
    bool right = r->c.fmt >= T_I32 ? has_sign || !compares : r->c.op != T_SUM && !compares;
    bool exact = (r->c.fmt <= T_U64 && right) || r->c.fmt == T_BOOL || r->c.fmt == T_BYTE;
    if (r->c.kind == FZ_ALLGATHERV && r->comm->ranks == 1)
        return false;   /* MPICH 4.0 takes no notice of the displacement */
    if (!r->c.reference || largest > REFERENCE_MAX || r->c.kind == FZ_BARRIER || r->c.kind == FZ_MESSAGE ||
        r->c.kind == FZ_SENDRECV)
        return false;
    return !fz_reduces(r->c.kind) || (exact && r->c.op != T_AVG);
}

/* This rank's input as MPI gets it, never in place, and multiplied before; `room` bytes. */
static void reference_input(const struct fz_run *r, unsigned char *in)
{
    int me = r->comm->rank;
    const unsigned char *pattern = r->operands + (size_t)me * T_PATTERN * r->size;
    if (fz_reduces(r->c.kind))
        t_repeat(in, pattern, r->size, 0, fz_vector(r));
    else if (r->c.kind == FZ_SCATTER || r->c.kind == FZ_SCATTERV || r->c.kind == FZ_ALLTOALL ||
             r->c.kind == FZ_ALLTOALLV)
        for (int j = 0; j < r->comm->ranks; j++)
            t_repeat(in + r->out.displ[j] * r->size, pattern, r->size, fz_first(r, j), r->out.count[j]);
    else
        t_repeat(in, pattern, r->size, 0, fz_between(r, me, r->c.root));
}

static void to_int(int to[FZ_RANKS], const size_t from[FZ_RANKS])
{
    for (int i = 0; i < FZ_RANKS; i++)
        to[i] = (int)from[i];
}

static void call_mpi(const struct fz_run *r, const unsigned char *in, unsigned char *out)
{
    MPI_Datatype type = t_mpi_type(r->c.fmt);
    MPI_Op op = fz_reduces(r->c.kind) ? t_mpi_op(r->c.op) : MPI_OP_NULL;
    MPI_Comm comm = r->comm->mpi;
    int sc[FZ_RANKS], sd[FZ_RANKS], rc[FZ_RANKS], rd[FZ_RANKS], n = (int)r->c.n, root = r->c.root;
    int mine = (int)fz_between(r, r->comm->rank, root), handed = (int)fz_between(r, root, r->comm->rank);
    to_int(sc, r->out.count);
    to_int(sd, r->out.displ);
    to_int(rc, r->in.count);
    to_int(rd, r->in.displ);
    switch (r->c.kind) {
    case FZ_ALLREDUCE: T_MPI(MPI_Allreduce(in, out, n, type, op, comm)); break;
    case FZ_REDUCE: T_MPI(MPI_Reduce(in, out, n, type, op, root, comm)); break;
    case FZ_REDUCE_SCATTER_BLOCK: T_MPI(MPI_Reduce_scatter_block(in, out, n, type, op, comm)); break;
    case FZ_REDUCE_SCATTER: T_MPI(MPI_Reduce_scatter(in, out, sc, type, op, comm)); break;
    case FZ_SCAN: T_MPI(MPI_Scan(in, out, n, type, op, comm)); break;
    case FZ_EXSCAN: T_MPI(MPI_Exscan(in, out, n, type, op, comm)); break;
    case FZ_BCAST: T_MPI(MPI_Bcast(out, n, type, root, comm)); break;
    case FZ_ALLGATHER: T_MPI(MPI_Allgather(in, n, type, out, n, type, comm)); break;
    case FZ_ALLGATHERV: T_MPI(MPI_Allgatherv(in, mine, type, out, rc, rd, type, comm)); break;
    case FZ_GATHER: T_MPI(MPI_Gather(in, n, type, out, n, type, root, comm)); break;
    case FZ_GATHERV: T_MPI(MPI_Gatherv(in, mine, type, out, rc, rd, type, root, comm)); break;
    case FZ_SCATTER: T_MPI(MPI_Scatter(in, n, type, out, n, type, root, comm)); break;
    case FZ_SCATTERV: T_MPI(MPI_Scatterv(in, sc, sd, type, out, handed, type, root, comm)); break;
    case FZ_ALLTOALL: T_MPI(MPI_Alltoall(in, n, type, out, n, type, comm)); break;
    case FZ_ALLTOALLV: T_MPI(MPI_Alltoallv(in, sc, sd, type, out, rc, rd, type, comm)); break;
    default: t_fatal("MPI has no %s", fz_kind_names[r->c.kind]);
    }
}

/* The same call by MPI itself, in host memory, against what was expected of ours. */
static void check_reference(struct fz_run *r)
{
    size_t largest = r->out.total + r->in.total + fz_vector(r) + r->c.n + 1, at, first;
    if (!mpi_can(r))
        return;
    unsigned char *in = t_malloc(largest * r->size), *out = t_malloc(largest * r->size);
    reference_input(r, in);
    /* What MPI leaves alone must stand there as in our buffer. */
    memset(out, 0, largest * r->size);
    if (!fz_reduces(r->c.kind))
        memcpy(out, r->recv_image, fz_recv_elements(r) * r->size);
    call_mpi(r, in, out);
    if (fz_reduces(r->c.kind)) {
        size_t n = fz_result(r, &at, &first);
        bytes_are(r, out, r->want_image + at * r->size, 0, n * r->size, "the oracle is not of MPI's opinion");
    } else if (fz_recv_elements(r)) {
        bytes_are(r, out, r->want_image, 0, fz_recv_elements(r) * r->size, "the oracle is not of MPI's opinion");
    }
    free(in);
    free(out);
}

static void check_status(const struct fz_run *r)
{
    bool received = r->c.kind == FZ_SENDRECV || (r->c.kind == FZ_MESSAGE && fz_has_recv(r));
    int ranks = r->comm->ranks, count = -1;
    int source = r->c.kind == FZ_SENDRECV ? (r->comm->rank + ranks - 1) % ranks : r->c.root;
    if (!received || r->c.form == FZ_STREAM)
        return;
    MPI_Get_count((MPI_Status *)(uintptr_t)&r->status, t_mpi_type(r->c.fmt), &count);
    T_CHECK(r->status.MPI_SOURCE == source && count == (int)r->c.n,
            "the status says %d elements from %d, not %zu from %d", count, r->status.MPI_SOURCE, r->c.n, source);
}

void fz_check(struct fz_run *r, int start)
{
    char text[256];
    fz_describe(&r->c, r->comm, text);
    t_stage("seed %llu, %s, start %d", (unsigned long long)r->seed, text, start);
    if (!r->broken) {
        check_result(r);
        t_buf_guards(&r->to);
        t_buf_guards(&r->from);
        check_status(r);
    }
    check_same(r);   /* of r->got */
    if (!r->broken && r->from.bytes) {
        t_buf_get(&r->from, r->got);
        bytes_are(r, r->got, r->send_image, 0, r->from.bytes, "the send buffer was changed");
    }
    check_reference(r);
}
