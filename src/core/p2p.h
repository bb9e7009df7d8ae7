/*
 * Point to point: messages between two ranks, whatever memory their buffers lie in. Matching is MPI's own, on a
 * duplicate communicator: an envelope with the caller's tag travels when the call is made, so messages match in the
 * order of the calls; what does not fit in it follows in pieces. See p2p.c.
 */
#ifndef HETMPI_P2P_H
#define HETMPI_P2P_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <mpi.h>

#include "mem/mem.h"

struct comm;
struct op;

#define P2P_WINDOW 4               /* pieces of a message in flight */

/* Memory that a message passes through (pinned), with an event for copies to or from it. */
struct p2p_buf { struct p2p_buf *next; char *memory; mem_event_t *event; };

/* What a stream waits for: a word of pinned memory whose value grows with each use. */
struct p2p_word { struct p2p_word *next; _Atomic uint64_t *word; uint64_t value; };

/* How a message's bytes travel. */
enum p2p_way {
    P2P_INLINE,                    /* in the envelope */
    P2P_SMALL,                     /* behind it, in one piece, at once: the CPU cannot read them yet when it leaves */
    P2P_LARGE,                     /* in pieces, when the receiver says go */
};

struct p2p_piece {
    uint8_t state;                 /* enum piece_state */
    struct p2p_buf *buf;           /* what it passes through; NULL: nothing */
    char *memory;                  /* in buf, or the caller's own */
    size_t at, bytes;
};

/* One message of one rank; part of its op. The caller fills in send to room, the rest is p2p.c's. */
struct p2p_msg {
    bool send;
    int peer, tag;                 /* of a receive: as asked, then as it came */
    char *buffer;
    size_t room;                   /* bytes of the buffer */
    size_t bytes;                  /* of the message, known when it has matched */

    struct op *older, *newer;      /* all of the communicator */
    bool listed;                   /* among these */
    bool polled;                   /* in the list of those that are to be looked at (op->next) */
    bool ready;                    /* the stream has come to the call (or it is on none) */
    bool matched, truncated;       /* of a receive: the envelope has come */
    bool staged, far_staged;       /* the CPU may not touch the buffer, here and at the sender of a large one */
    bool gone;                     /* of a large one: the receiver has said go, or this receiver has */
    uint8_t way;                   /* enum p2p_way */
    int channel;                   /* names the pieces */
    int open;                      /* MPI requests under way */
    uint32_t go;                   /* the receiver's word: bytes of a piece, 0: keep it */
    size_t piece;
    size_t pieces, first, next;    /* pieces first .. next-1 are in flight, n in window[n % P2P_WINDOW] */
    struct p2p_piece window[P2P_WINDOW];
    struct p2p_buf *bounce;        /* of the envelope */
    struct p2p_word *word;         /* on a stream */
    MPI_Request envelope, go_request;   /* until the op is listed */
};

/* Set-up, collective where the communicator has more than one rank. */
int p2p_open(struct comm *comm);
void p2p_close(struct comm *comm);
/* The same for a communicator of one rank, at its first message. */
int p2p_want(struct comm *comm);
int p2p_tag_max(const struct comm *comm);

/* A message (comm and message filled in; on a stream: its event, and p2p_mark_stream called). The op must stay in place
 * until done. start returns at once, run when the message is complete. */
int p2p_start(struct op *op);
int p2p_run(struct op *op);
/* Gives the op the word that its stream will wait for. */
int p2p_mark_stream(struct op *op);
void p2p_unmark_stream(struct op *op);

/* Under the engine's lock: lets every message of comm move that can; true if something did. */
bool p2p_progress(struct comm *comm);
/* Messages under way. */
int p2p_pending(const struct comm *comm);
/* For reports: the oldest under way (NULL: none), and what one waits for. */
const struct op *p2p_first(const struct comm *comm);
void p2p_describe(const struct op *op, char *text, size_t bytes);

#endif
