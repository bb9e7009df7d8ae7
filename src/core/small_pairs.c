/*
 * The short cut of collectives whose counts only pairs of ranks know (gatherv, scatterv, alltoallv). No rank can tell
 * beforehand whether all of them are short, so each posts a word that says whether its data are there, and they are
 * used when all are; else the meeting is the beginning of a collective by schedule.
 *
 * A post: the word; where a sender has several receivers, the place of each one's block in the data; the data.
 */
#include <string.h>

#include "core/tables.h"
#include "hetmpi.h"

#define PAIRS_RANKS 64                 /* most ranks */
#define PAIRS_BYTES 4096u              /* most bytes that a rank sends, and receives */

typedef uint32_t word;

bool pairs_may(const struct comm *comm, const struct call *call)
{
    return coll_traits(call->kind) & COLL_OWN_TABLE && comm->small_ok && comm->size <= PAIRS_RANKS;
}

static bool has_places(const struct call *call, int sender)
{
    return call->kind == COLL_ALLTOALLV || (call->kind == COLL_SCATTERV && sender == call->root);
}

static size_t header(const struct comm *comm, const struct call *call, int sender)
{
    return sizeof(word) * (1 + (has_places(call, sender) ? (size_t)comm->size : 0));
}

/* Elements for another rank and from it; a rank's own block is not posted. */
static size_t sends(const struct comm *comm, const struct call *call, int to)
{
    uint64_t count = tables_sent_to(comm, call, to);

    return count == TABLES_NOT_SENT ? 0 : (size_t)count;
}

static size_t receives(const struct comm *comm, const struct call *call, int from)
{
    uint64_t count = tables_received_from(comm, call, from);

    return count == TABLES_NOT_SENT ? 0 : (size_t)count;
}

/* Where a rank's block stands in a buffer of this rank's. */
static char *place(const struct call *call, int side, int rank)
{
    char *base = side == SIDE_SEND ? (char *)(uintptr_t)call->send : call->recv;

    return base + (call->displs[side] ? call->displs[side][rank] * red_size(call->type) : 0);
}

static bool is_short(const struct comm *comm, const struct call *call)
{
    size_t limit = comm->cfg->small < PAIRS_BYTES ? comm->cfg->small : PAIRS_BYTES, out = 0, in = 0;

    limit /= red_size(call->type);
    for (int r = 0; r < comm->size; r++) {
        size_t to = sends(comm, call, r), from = receives(comm, call, r);
        if (to > limit || from > limit)
            return false;
        out += to;
        in += from;
    }
    return out <= limit && in <= limit;
}

int pairs_post(struct comm *comm, struct meet *meet, const struct call *call, bool readable)
{
    unsigned char post[(1 + PAIRS_RANKS) * sizeof(word) + PAIRS_BYTES];
    word here = readable && is_short(comm, call), at;
    size_t bytes = sizeof(word), element = red_size(call->type);

    if (here) {
        bytes = header(comm, call, comm->rank);
        for (int r = 0; r < comm->size; r++) {
            size_t length = sends(comm, call, r) * element;
            at = (word)bytes;
            if (has_places(call, comm->rank))
                memcpy(post + sizeof(word) * (1 + (size_t)r), &at, sizeof(at));
            if (length)
                memcpy(post + bytes, call->kind == COLL_GATHERV ? (const char *)call->send : place(call, SIDE_SEND, r),
                       length);
            bytes += length;
        }
    }
    memcpy(post, &here, sizeof(here));
    return meet_post(comm, meet, call_what(call), call->agree, post, bytes);
}

bool pairs_all_here(const struct comm *comm, uint64_t number)
{
    word here = 1;

    for (int r = 0; r < comm->size && here; r++)
        memcpy(&here, meet_data(comm, r, number), sizeof(here));
    return here;
}

/* This rank's own block, which travels nowhere. */
static void keep_own(const struct comm *comm, const struct call *call)
{
    const char *from = call->send;
    char *to = call->recv;
    size_t count;

    if (call->in_place || (call->kind != COLL_ALLTOALLV && comm->rank != call->root))
        return;
    if (call->kind != COLL_GATHERV)
        from = place(call, SIDE_SEND, comm->rank);
    if (call->kind != COLL_SCATTERV)
        to = place(call, SIDE_RECV, comm->rank);
    count = call->counts[call->kind == COLL_SCATTERV ? SIDE_SEND : SIDE_RECV][comm->rank];
    if (count && from != to)
        memcpy(to, from, count * red_size(call->type));
}

void pairs_combine(const struct comm *comm, const struct call *call, uint64_t number)
{
    size_t element = red_size(call->type);

    keep_own(comm, call);
    for (int r = 0; r < comm->size; r++) {
        const unsigned char *post = meet_data(comm, r, number);
        size_t count = receives(comm, call, r);
        word at = (word)header(comm, call, r);
        if (!count)
            continue;
        if (has_places(call, r))
            memcpy(&at, post + sizeof(word) * (1 + (size_t)comm->rank), sizeof(at));
        memcpy(call->kind == COLL_SCATTERV ? (char *)call->recv : place(call, SIDE_RECV, r), post + at,
               count * element);
    }
}

int pairs_run(struct comm *comm, const struct call *call, struct meet *meet)
{
    int code = comm_failed(comm);

    if (!code)
        code = pairs_post(comm, meet, call, true);
    if (!code)
        code = small_wait(comm, meet, call);
    if (code)
        return code;
    if (meet->sum || !pairs_all_here(comm, meet->number))
        return COMM_AGAIN;
    pairs_combine(comm, call, meet->number);
    atomic_store_explicit(&comm->mine->status.finished, meet->number, memory_order_relaxed);
    return HETMPI_SUCCESS;
}
