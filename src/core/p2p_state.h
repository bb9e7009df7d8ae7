/* What p2p.c and p2p_pool.c share: a communicator's messages, the memory they pass through, and their MPI requests. */
#ifndef HETMPI_P2P_STATE_H
#define HETMPI_P2P_STATE_H

#include "core/comm.h"
#include "core/p2p.h"

/* What stands before the data. */
struct p2p_envelope { uint64_t bytes; uint32_t way, channel, staged, spare; };
_Static_assert(sizeof(struct p2p_envelope) == 24, "the envelope is part of the protocol");

/* Which of an op's requests it is; from P2P_PIECE on, the place in the window. */
enum p2p_what { P2P_ENVELOPE, P2P_GO, P2P_PIECE };

/* A piece being sent is copied, then moves; one being received moves, is here, and is copied. */
enum piece_state { PIECE_COPYING, PIECE_MOVING, PIECE_HERE, PIECE_DONE };

/* On the second duplicate. */
static inline int p2p_piece_tag(const struct p2p_msg *m) { return 2 * m->channel; }
static inline int p2p_go_tag(const struct p2p_msg *m) { return 2 * m->channel + 1; }

struct p2p_slab;

struct p2p_pool {
    struct p2p_buf *free;
    struct p2p_slab *slabs;
    size_t each;                   /* bytes of a buffer */
    int per_slab, taken;
};

struct p2p {
    MPI_Comm match, bulk;          /* envelopes; pieces and words of go */
    int tag_max, channels;
    _Atomic uint32_t *channel;     /* [size] of the last message to each rank */
    /* Under the engine's lock. */
    struct op *oldest, *newest;
    struct op *look, **look_end;   /* to be looked at in the next pass */
    _Atomic int n_ops;
    MPI_Request *requests;         /* [n] under way; parallel to uses */
    struct p2p_use { struct op *op; int what; } *uses;
    int *indices;
    MPI_Status *statuses;
    int n, room;
    struct p2p_pool bounces, slots;
    size_t slots_max;              /* beyond it, a message has one slot at most */
    struct p2p_word *words;
    struct p2p_slab *word_slabs;
    mem_stream_t *out, *in;        /* copies from and to the callers' device memory */
    bool abandoned;                /* MPI still holds some of the memory */
    /* Free of the lock: the bounce buffer that blocking calls use again and again. */
    _Atomic(struct p2p_buf *) spare;
};

/* A buffer's data stands behind the envelope. */
static inline char *p2p_data(struct p2p_buf *bounce) { return bounce->memory + sizeof(struct p2p_envelope); }

/* p2p_pieces.c. *look: something is under way that MPI does not report. */
int p2p_move_pieces(struct comm *comm, struct op *op, bool *moved, bool *look);
/* Frees the slots of the pieces that are done, or of all. */
void p2p_end_pieces(struct p2p *p2p, struct p2p_msg *m, bool all);
int p2p_say_go(struct comm *comm, struct op *op);
int p2p_set_pieces(const struct comm *comm, struct p2p_msg *m);   /* go has been said */

/* p2p.c. The envelope has come, `length` bytes of it: takes it in, or refuses what no sender writes. */
int p2p_match(const struct comm *comm, struct p2p_msg *m, int source, int tag, size_t length);

/* p2p_pool.c */
int p2p_take(struct p2p_pool *pool, struct p2p_buf **buf);
void p2p_give(struct p2p_pool *pool, struct p2p_buf *buf);
int p2p_take_word(struct p2p *p2p, struct p2p_word **word);
/* Room for one more request; then add cannot fail. */
int p2p_reserve(struct p2p *p2p, int more);
void p2p_add(struct p2p *p2p, MPI_Request request, struct op *op, int what);
/* Drops the requests that are MPI_REQUEST_NULL. */
void p2p_compact(struct p2p *p2p);
/* After a failure: cancels what can be cancelled, and gives up the rest. */
void p2p_abandon(struct p2p *p2p);

#endif
