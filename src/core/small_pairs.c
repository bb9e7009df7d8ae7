/*
 * What ranks tell each other in the meeting where only pairs of them know the counts (gatherv, scatterv, alltoallv), and
 * the short cut. No rank can tell beforehand whether all counts are small, so each posts a word that says whether its
 * data are there, and they are used when all are; else the meeting is the beginning of a collective by schedule. For
 * that the word of gatherv and scatterv says how long the rank's block is too.
 *
 * A post: the word; where a sender has several receivers, the place of each one's block in the data; the data.
 */
#include <string.h>

#include "core/tables.h"
#include "hetmpi.h"

#define PAIRS_RANKS 64                 /* most ranks */
#define PAIRS_BYTES 8192u              /* most bytes that a rank sends, and receives */

/* The word: this bit, and above it the length of the rank's block. */
#define DATA_HERE UINT64_C(1)
#define LENGTH_SHIFT 1

typedef uint32_t place_t;   /* of a block in the data of a post */
_Static_assert(sizeof(uint64_t) + PAIRS_RANKS * sizeof(place_t) + PAIRS_BYTES <= CTL_SMALL_MAX, "a post has room for it");

bool pairs_tell(const struct comm *comm, enum coll_kind kind)
{
    return coll_tells(kind) && comm->topo.islands > 1 && comm->size <= MEET_WORDS_MAX;
}

size_t pairs_told(const struct comm *comm, uint64_t number, size_t *counts)
{
    size_t most = 0, count;

    for (int r = 0; r < comm->size; r++) {
        count = (size_t)(meet_word(comm, r, number) >> LENGTH_SHIFT);
        most = count > most ? count : most;
        if (counts)
            counts[r] = count;
    }
    return most;
}

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
    return sizeof(uint64_t) + (has_places(call, sender) ? sizeof(place_t) * (size_t)comm->size : 0);
}

static size_t place_at(int receiver)
{
    return sizeof(uint64_t) + sizeof(place_t) * (size_t)receiver;
}

/* The length of this rank's block that it tells. */
static uint64_t own_length(const struct comm *comm, const struct call *call)
{
    if (!coll_tells(call->kind))
        return 0;
    return comm->rank == call->root ? call->counts[SIDE_SEND][comm->rank] : call->count;
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

int pairs_post(struct comm *comm, struct meet *meet, const struct call *call, bool may)
{
    bool here = may && is_short(comm, call);
    uint64_t word = own_length(comm, call) << LENGTH_SHIFT | (here ? DATA_HERE : 0);
    size_t element = red_size(call->type);
    place_t at = (place_t)header(comm, call, comm->rank);
    unsigned char *post;
    int code = meet_begin(comm, meet, &post);

    if (code)
        return code;
    memcpy(post, &word, sizeof(word));
    for (int r = 0; r < comm->size && here; r++) {
        size_t length = sends(comm, call, r) * element;
        if (has_places(call, comm->rank))
            memcpy(post + place_at(r), &at, sizeof(at));
        if (length)
            memcpy(post + at, call->kind == COLL_GATHERV ? (const char *)call->send : place(call, SIDE_SEND, r), length);
        at += (place_t)length;
    }
    meet_publish(comm, meet, call_what(call), call->agree);
    return HETMPI_SUCCESS;
}

bool pairs_all_here(const struct comm *comm, uint64_t number)
{
    uint64_t word = DATA_HERE;

    for (int r = 0; r < comm->size && word & DATA_HERE; r++)
        memcpy(&word, meet_data(comm, r, number), sizeof(word));
    return word & DATA_HERE;
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
        place_t at = (place_t)header(comm, call, r);
        if (!count)
            continue;
        if (has_places(call, r))
            memcpy(&at, post + place_at(comm->rank), sizeof(at));
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
