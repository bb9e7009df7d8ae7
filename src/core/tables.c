/* Comparing the counts of pairs of ranks: see tables.h. */
#include "core/tables.h"

#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "core/report.h"
#include "hetmpi.h"

/* Finding the pair that disagrees. */
struct tables {
    struct meet meet;          /* on one node: to which the tables are brought */
    MPI_Request request;       /* else: the exchange */
    int round;                 /* ... of counts, then of what each rank found */
    uint64_t found[3], *all;   /* [3 * size] pair, what is sent and what received */
    uint64_t *sends, *receives, *theirs;   /* [size] in one block of memory with `all` */
};

uint64_t tables_sent_to(const struct comm *comm, const struct call *call, int rank)
{
    if (rank == comm->rank)
        return TABLES_NOT_SENT;   /* checked by this rank alone */
    switch (call->kind) {
    case COLL_GATHERV:
        return rank == call->root ? call->count : TABLES_NOT_SENT;
    case COLL_SCATTERV:
        return comm->rank == call->root ? call->counts[SIDE_SEND][rank] : TABLES_NOT_SENT;
    default:
        return call->counts[SIDE_SEND][rank];
    }
}

uint64_t tables_received_from(const struct comm *comm, const struct call *call, int rank)
{
    if (rank == comm->rank)
        return TABLES_NOT_SENT;
    switch (call->kind) {
    case COLL_GATHERV:
        return comm->rank == call->root ? call->counts[SIDE_RECV][rank] : TABLES_NOT_SENT;
    case COLL_SCATTERV:
        return rank == call->root ? call->count : TABLES_NOT_SENT;
    default:
        return call->counts[SIDE_RECV][rank];
    }
}

/* Not linear in the count, so that wrong counts do not cancel. */
static uint64_t hash_pair(uint64_t pair, uint64_t count)
{
    uint64_t x = count * UINT64_C(0x9e3779b97f4a7c15) + pair + 1;

    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27 ^ pair << 20) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

uint64_t tables_sum(const struct comm *comm, const struct call *call)
{
    uint64_t sum = 0, n = (uint64_t)comm->size, me = (uint64_t)comm->rank;

    for (uint64_t r = 0; r < n; r++) {
        uint64_t sends = tables_sent_to(comm, call, (int)r), receives = tables_received_from(comm, call, (int)r);
        sum += sends == TABLES_NOT_SENT ? 0 : hash_pair(me * n + r, sends);
        sum -= receives == TABLES_NOT_SENT ? 0 : hash_pair(r * n + me, receives);
    }
    return sum;
}

static int differ(struct comm *comm, const struct call *call, uint64_t number, const uint64_t found[3])
{
    int from = (int)(found[0] / (uint64_t)comm->size), to = (int)(found[0] % (uint64_t)comm->size), code;

    if (found[0] == TABLES_NOT_SENT)
        code = err_set(HETMPI_ERR_MISMATCH, "collective call %llu: in %s the counts of some pair of ranks differ",
                       (unsigned long long)number, coll_name(call->kind));
    else
        code = err_set(HETMPI_ERR_MISMATCH, "collective call %llu: the counts of ranks %d and %d differ: in %s rank %d "
                       "sends %llu elements to rank %d, which receives %llu", (unsigned long long)number, from, to,
                       coll_name(call->kind), from, (unsigned long long)found[1], to, (unsigned long long)found[2]);
    report_mismatch(comm, number, err_text());
    return code;
}

void tables_release(struct comm *comm)
{
    struct tables *t = comm->tables;

    comm->tables = NULL;
    if (t && t->request != MPI_REQUEST_NULL)
        comm_leave_to_mpi(t);
    else
        free(t);
}

static int new_tables(struct comm *comm, const struct call *call)
{
    size_t n = (size_t)comm->size;
    struct tables *t = calloc(1, sizeof(*t) + 6 * n * sizeof(uint64_t));

    if (!t)
        return err_set(HETMPI_ERR_MEMORY, "no memory to compare the counts of %d ranks", comm->size);
    t->request = MPI_REQUEST_NULL;
    t->sends = (uint64_t *)(t + 1);
    t->receives = t->sends + n;
    t->theirs = t->receives + n;
    t->all = t->theirs + n;
    for (size_t r = 0; r < n; r++) {
        t->sends[r] = tables_sent_to(comm, call, (int)r);
        t->receives[r] = tables_received_from(comm, call, (int)r);
    }
    comm->tables = t;
    return HETMPI_SUCCESS;
}

/* ---- one node ---- */

static bool fits_meeting(const struct comm *comm)
{
    return 2 * (size_t)comm->size * sizeof(uint64_t) <= CTL_INLINE + CTL_SMALL_MAX;
}

static uint64_t posted(const struct comm *comm, int rank, uint64_t number, size_t i)
{
    uint64_t value;

    memcpy(&value, meet_data(comm, rank, number) + i * sizeof(value), sizeof(value));
    return value;
}

static void search_posted(const struct comm *comm, uint64_t number, uint64_t found[3])
{
    size_t n = (size_t)comm->size;

    found[0] = TABLES_NOT_SENT;
    for (size_t a = 0; a < n && fits_meeting(comm); a++)
        for (size_t b = 0; b < n; b++) {
            uint64_t sends = posted(comm, (int)a, number, b), receives = posted(comm, (int)b, number, n + a);
            if (sends == receives)
                continue;
            found[0] = a * n + b;
            found[1] = sends;
            found[2] = receives;
            return;
        }
}

static int begin_meeting(struct comm *comm, const struct call *call)
{
    size_t bytes = fits_meeting(comm) ? 2 * (size_t)comm->size * sizeof(uint64_t) : 0;

    return meet_post(comm, &comm->tables->meet, call_what(call), 0, comm->tables->sends, bytes);
}

/* ---- several nodes ---- */

static int begin_exchange(struct comm *comm)
{
    struct tables *t = comm->tables;

    return comm_mpi_error(MPI_Ialltoall(t->sends, 1, MPI_UINT64_T, t->theirs, 1, MPI_UINT64_T, comm->shadow,
                                        &t->request), "MPI_Ialltoall");
}

/* The counts are here: tells all what this rank found. */
static int begin_telling(struct comm *comm)
{
    struct tables *t = comm->tables;
    uint64_t n = (uint64_t)comm->size;

    t->found[0] = TABLES_NOT_SENT;
    for (uint64_t r = 0; r < n && t->found[0] == TABLES_NOT_SENT; r++)
        if (t->theirs[r] != t->receives[r]) {
            t->found[0] = r * n + (uint64_t)comm->rank;
            t->found[1] = t->theirs[r];
            t->found[2] = t->receives[r];
        }
    t->round++;
    return comm_mpi_error(MPI_Iallgather(t->found, 3, MPI_UINT64_T, t->all, 3, MPI_UINT64_T, comm->shadow, &t->request),
                          "MPI_Iallgather");
}

static int poll_exchange(struct comm *comm, bool *done)
{
    struct tables *t = comm->tables;
    int flag = 0, code = comm_mpi_error(MPI_Test(&t->request, &flag, MPI_STATUS_IGNORE), "comparing counts");

    if (code || !flag)
        return code;
    if (t->round == 0)
        return begin_telling(comm);
    for (int r = 0; r < comm->size; r++)
        if (t->all[3 * r] < t->found[0])
            memcpy(t->found, &t->all[3 * r], sizeof(t->found));
    *done = true;
    return HETMPI_SUCCESS;
}

int tables_check(struct comm *comm, const struct call *call, const struct meet *meet)
{
    uint64_t found[3];
    bool done = false;
    int code;

    if (!meet->sum)
        return HETMPI_SUCCESS;
    if (!comm->tables) {
        code = new_tables(comm, call);
        if (!code)
            code = comm->one_node ? begin_meeting(comm, call) : begin_exchange(comm);
        return code ? code : COMM_AGAIN;
    }
    code = comm->one_node ? meet_poll(comm, &comm->tables->meet, &done) : poll_exchange(comm, &done);
    if (code || !done)
        return code ? code : COMM_AGAIN;
    if (comm->one_node)
        search_posted(comm, comm->tables->meet.number, found);
    else
        memcpy(found, comm->tables->found, sizeof(found));
    tables_release(comm);
    return differ(comm, call, meet->number, found);
}
