/*
 * The pieces of messages that do not fit in their envelopes: a window of them is in flight, each handed to MPI from the
 * caller's memory, or from a pinned slot that it is copied to or from by the device. See p2p.c.
 */
#include <string.h>

#include "core/engine.h"
#include "core/log.h"
#include "core/p2p_state.h"
#include "hetmpi.h"

#define STAGED_PIECE_MIN (64u << 10)
#define DIRECT_PIECE (4u << 20)        /* between host memories MPI has a pipeline of its own */

static struct p2p_piece *piece_of(struct p2p_msg *m, size_t n) { return &m->window[n % P2P_WINDOW]; }

/* Hands a piece to MPI, or its place. */
static int move_piece(struct comm *comm, struct op *op, size_t n)
{
    struct p2p *p2p = comm->p2p;
    struct p2p_msg *m = &op->message;
    struct p2p_piece *piece = piece_of(m, n);
    MPI_Request request;
    int code = p2p_reserve(p2p, 1);

    if (code)
        return code;
    if (m->send)
        code = MPI_Isend(piece->memory, (int)piece->bytes, MPI_BYTE, m->peer, p2p_piece_tag(m), p2p->bulk, &request);
    else
        code = MPI_Irecv(piece->memory, (int)piece->bytes, MPI_BYTE, m->peer, p2p_piece_tag(m), p2p->bulk, &request);
    if (code != MPI_SUCCESS)
        return comm_mpi_error(code, "moving a piece of a message");
    p2p_add(p2p, request, op, P2P_PIECE + (int)(n % P2P_WINDOW));
    piece->state = PIECE_MOVING;
    m->open++;
    return HETMPI_SUCCESS;
}

/* Between the caller's memory and what the piece passes through. */
static int copy_piece(struct p2p *p2p, const struct p2p_msg *m, struct p2p_piece *piece)
{
    mem_stream_t **stream = m->send ? &p2p->out : &p2p->in;
    char *user = m->buffer + piece->at;
    int code = HETMPI_SUCCESS;

    piece->state = PIECE_COPYING;
    if (!m->staged) {
        memcpy(m->send ? piece->memory : user, m->send ? user : piece->memory, piece->bytes);
        return HETMPI_SUCCESS;
    }
    if (!*stream)
        code = mem_stream_create(stream);
    if (!code && !piece->buf->event)
        code = mem_event_create(&piece->buf->event);
    if (!code)
        code = mem_copy_async(m->send ? piece->memory : user, m->send ? user : piece->memory, piece->bytes, *stream);
    return code ? code : mem_event_record(piece->buf->event, *stream);
}

static int piece_copied(const struct p2p_msg *m, const struct p2p_piece *piece, bool *done)
{
    *done = true;
    return m->staged ? mem_event_query(piece->buf->event, done) : HETMPI_SUCCESS;
}

/* The next piece gets its place in the window; *begun is false while there is no slot for it. */
static int begin_piece(struct comm *comm, struct p2p_msg *m, bool *begun)
{
    struct p2p *p2p = comm->p2p;
    struct p2p_piece *piece = piece_of(m, m->next);
    size_t at = m->next * m->piece, left = m->bytes - at;

    *begun = false;
    *piece = (struct p2p_piece){.at = at, .bytes = left < m->piece ? left : m->piece, .memory = m->buffer + at};
    if (m->way == P2P_SMALL) {
        piece->buf = m->bounce;
        piece->memory = p2p_data(m->bounce);
    } else if (m->staged) {
        int code;
        if (m->next > m->first && (size_t)p2p->slots.taken >= p2p->slots_max)
            return HETMPI_SUCCESS;
        code = p2p_take(&p2p->slots, &piece->buf);
        if (code)
            return code;
        piece->memory = piece->buf->memory;
    }
    m->next++;
    *begun = true;
    return HETMPI_SUCCESS;
}

void p2p_end_pieces(struct p2p *p2p, struct p2p_msg *m, bool all)
{
    for (; m->first < m->next; m->first++) {
        struct p2p_piece *piece = piece_of(m, m->first);
        if (!all && piece->state != PIECE_DONE)
            return;
        if (piece->buf && piece->buf != m->bounce)
            p2p_give(&p2p->slots, piece->buf);
    }
}

static int pieces_out(struct comm *comm, struct op *op, bool *moved, bool *look)
{
    struct p2p_msg *m = &op->message;
    bool done = true, begun;
    int code;

    p2p_end_pieces(comm->p2p, m, false);
    while (m->next < m->pieces && m->next - m->first < P2P_WINDOW) {
        code = begin_piece(comm, m, &begun);
        if (code)
            return code;
        if (!begun) {
            *look = true;
            break;
        }
        *moved = true;
        code = piece_of(m, m->next - 1)->buf ? copy_piece(comm->p2p, m, piece_of(m, m->next - 1))
                                             : move_piece(comm, op, m->next - 1);
        if (code)
            return code;
    }
    /* In order: the receiver knows pieces by nothing else. */
    for (size_t n = m->first; n < m->next; n++) {
        struct p2p_piece *piece = piece_of(m, n);
        if (piece->state != PIECE_COPYING)
            continue;
        code = piece_copied(m, piece, &done);
        if (!code && done)
            code = move_piece(comm, op, n);
        if (code)
            return code;
        if (!done) {
            *look = true;
            return HETMPI_SUCCESS;
        }
        *moved = true;
    }
    return HETMPI_SUCCESS;
}

/* A piece is here: to the caller's memory with it, unless that is where it came or the message is too long. */
static int take_in(struct p2p *p2p, const struct p2p_msg *m, struct p2p_piece *piece)
{
    if (piece->buf && !m->truncated)
        return copy_piece(p2p, m, piece);
    piece->state = PIECE_DONE;
    return HETMPI_SUCCESS;
}

static int pieces_in(struct comm *comm, struct op *op, bool *moved, bool *look)
{
    struct p2p_msg *m = &op->message;
    bool done, begun;
    int code = HETMPI_SUCCESS;

    for (size_t n = m->first; n < m->next && !code; n++) {
        struct p2p_piece *piece = piece_of(m, n);
        if (piece->state == PIECE_HERE)
            code = take_in(comm->p2p, m, piece);
        if (code || piece->state != PIECE_COPYING)
            continue;
        code = piece_copied(m, piece, &done);
        if (done)
            piece->state = PIECE_DONE;
        else
            *look = true;
        *moved |= done;
    }
    if (code)
        return code;
    p2p_end_pieces(comm->p2p, m, false);
    while (m->next < m->pieces && m->next - m->first < P2P_WINDOW) {
        code = begin_piece(comm, m, &begun);
        if (!code && begun)
            code = move_piece(comm, op, m->next - 1);
        if (code)
            return code;
        if (!begun) {
            *look = true;
            break;
        }
    }
    return HETMPI_SUCCESS;
}

int p2p_move_pieces(struct comm *comm, struct op *op, bool *moved, bool *look)
{
    return op->message.send ? pieces_out(comm, op, moved, look) : pieces_in(comm, op, moved, look);
}

/* ---- go ---- */

int p2p_set_pieces(const struct comm *comm, struct p2p_msg *m)
{
    size_t most = comm->p2p->slots.each;

    if (!m->staged && most < DIRECT_PIECE)
        most = DIRECT_PIECE;
    if (m->go > most)
        return err_set(HETMPI_ERR_INTERNAL, "send on rank %d: rank %d asks for pieces of %u bytes, there is memory for "
                       "%zu", comm->rank, m->peer, m->go, most);
    m->gone = true;
    m->piece = m->go;
    m->pieces = m->go ? (m->bytes + m->piece - 1) / m->piece : 0;
    return HETMPI_SUCCESS;
}

/* Short enough that both ends' copies overlap, long enough to be worth a message. */
static uint32_t choose_piece(const struct comm *comm, const struct p2p_msg *m, bool staged)
{
    size_t most = comm->p2p->slots.each, piece = m->bytes / 8;

    if (comm->cfg->chunk)
        return (uint32_t)most;
    if (!staged)
        return DIRECT_PIECE;
    piece = piece < STAGED_PIECE_MIN ? STAGED_PIECE_MIN : piece;
    return (uint32_t)(piece < most ? piece : most);
}

int p2p_say_go(struct comm *comm, struct op *op)
{
    struct p2p_msg *m = &op->message;
    MPI_Request request;
    int code = p2p_reserve(comm->p2p, 1);

    if (code)
        return code;
    m->go = m->truncated ? 0 : choose_piece(comm, m, m->staged || m->far_staged);
    code = p2p_set_pieces(comm, m);
    if (code)
        return code;
    code = comm_mpi_error(MPI_Isend(&m->go, 1, MPI_UINT32_T, m->peer, p2p_go_tag(m), comm->p2p->bulk, &request),
                          "asking for a message");
    if (code)
        return code;
    p2p_add(comm->p2p, request, op, P2P_GO);
    m->open++;
    return HETMPI_SUCCESS;
}
