/*
 * Messages. An envelope with the caller's tag goes out when the call is made, on a duplicate communicator on which MPI
 * matches it with the receives in the order of the calls. What the bytes do:
 *
 *   inline   they stand in the envelope: short messages that the CPU can read when the call is made
 *   small    short ones that it cannot (device memory, or a stream has yet to come to the call): one piece behind the
 *            envelope, on a second duplicate, sent as soon as it can be; it waits in the receiver's bounce buffer
 *   large    longer than the setting EAGER: when the receive has matched, the receiver says how long pieces shall be (or
 *            that it wants none, its buffer being too short), and a window of pieces is kept in flight; device memory is
 *            staged through pinned slots at each end, host memory is read and written directly by MPI
 *
 * A message in flight always gets one slot, whatever others hold, so messages cannot block each other; more than one
 * only within the setting STAGING.
 */
#include "core/p2p.h"

#include <stdio.h>
#include <string.h>

#include "core/engine.h"
#include "core/log.h"
#include "core/p2p_state.h"
#include "core/proc.h"
#include "hetmpi.h"

#define STAGED_PIECE_MIN (64u << 10)
#define DIRECT_PIECE (4u << 20)        /* between host memories MPI has a pipeline of its own */

/* A piece being sent is copied, then moves; one being received moves, is here, and is copied. */
enum piece_state { PIECE_COPYING, PIECE_MOVING, PIECE_HERE, PIECE_DONE };

static struct p2p_piece *piece_of(struct p2p_msg *m, size_t n) { return &m->window[n % P2P_WINDOW]; }
static int piece_tag(const struct p2p_msg *m) { return 2 * m->channel; }
static int go_tag(const struct p2p_msg *m) { return 2 * m->channel + 1; }

/* ---- buffers of envelopes, free of the engine's lock where one thread sends or receives again and again ---- */

static int take_bounce(struct p2p *p2p, struct p2p_buf **buf)
{
    int code;

    *buf = atomic_exchange_explicit(&p2p->spare, NULL, memory_order_acquire);
    if (*buf)
        return HETMPI_SUCCESS;
    engine_lock();
    code = p2p_take(&p2p->bounces, buf);
    engine_unlock();
    return code;
}

static void give_bounce(struct p2p *p2p, struct p2p_buf *buf)
{
    struct p2p_buf *none = NULL;

    if (atomic_compare_exchange_strong_explicit(&p2p->spare, &none, buf, memory_order_release, memory_order_relaxed))
        return;
    engine_lock();
    p2p_give(&p2p->bounces, buf);
    engine_unlock();
}

/* ---- the envelope ---- */

static bool on_device(const void *buffer)
{
    struct mem_pointer what;

    if (!mem_has_device())
        return false;
    mem_query(buffer, &what);
    return what.kind == MEM_DEVICE;
}

static int post_send(struct comm *comm, struct p2p_msg *m)
{
    struct p2p *p2p = comm->p2p;
    struct p2p_envelope envelope = {.bytes = m->room, .staged = m->staged};
    size_t length = sizeof(envelope);
    int code = MPI_SUCCESS;

    m->bytes = m->room;
    if (m->bytes == 0 || (m->bytes <= comm->cfg->eager && !m->staged && m->ready)) {
        m->way = P2P_INLINE;
        length += m->bytes;
        if (m->bytes)
            memcpy(p2p_data(m->bounce), m->buffer, m->bytes);
    } else {
        m->way = m->bytes <= comm->cfg->eager ? P2P_SMALL : P2P_LARGE;
        m->channel = (int)(atomic_fetch_add(&p2p->channel[m->peer], 1) % (uint32_t)p2p->channels);
        envelope.channel = (uint32_t)m->channel;
        m->piece = m->bytes;
        m->pieces = m->way == P2P_SMALL;
    }
    envelope.way = m->way;
    memcpy(m->bounce->memory, &envelope, sizeof(envelope));
    if (m->way == P2P_LARGE)
        code = MPI_Irecv(&m->go, 1, MPI_UINT32_T, m->peer, go_tag(m), p2p->bulk, &m->go_request);
    if (code == MPI_SUCCESS)
        code = MPI_Isend(m->bounce->memory, (int)length, MPI_BYTE, m->peer, m->tag, p2p->match, &m->envelope);
    return comm_mpi_error(code, "sending a message");
}

/* Posts what MPI matches. On an error nothing is under way, and the communicator has failed. */
static int post_envelope(struct op *op)
{
    struct comm *comm = op->comm;
    struct p2p *p2p = comm->p2p;
    struct p2p_msg *m = &op->message;
    char text[sizeof(comm->failed_text)];
    int code = comm_failed(comm);

    if (code)
        return code;
    m->envelope = m->go_request = MPI_REQUEST_NULL;
    m->staged = m->room && on_device(m->buffer);
    m->ready = !op->stream_value;
    if (!m->ready)
        code = mem_event_query(op->event, &m->ready);
    if (!code)
        code = take_bounce(p2p, &m->bounce);
    if (code)
        return code;
    if (m->send)
        code = post_send(comm, m);
    else
        code = comm_mpi_error(MPI_Irecv(m->bounce->memory, (int)p2p->bounces.each, MPI_BYTE, m->peer, m->tag, p2p->match,
                                        &m->envelope), "receiving a message");
    if (!code)
        return HETMPI_SUCCESS;
    if (m->go_request != MPI_REQUEST_NULL) {
        MPI_Cancel(&m->go_request);
        MPI_Request_free(&m->go_request);
    }
    snprintf(text, sizeof(text), "rank %d: %.400s", comm->rank, err_text());
    return comm_fail(comm, code, text);
}

/* The envelope has come. */
static void match(struct p2p_msg *m, const MPI_Status *status)
{
    struct p2p_envelope envelope;

    memcpy(&envelope, m->bounce->memory, sizeof(envelope));
    m->matched = true;
    m->peer = status->MPI_SOURCE;
    m->tag = status->MPI_TAG;
    m->bytes = envelope.bytes;
    m->truncated = m->bytes > m->room;
    m->way = (uint8_t)envelope.way;
    m->channel = (int)envelope.channel;
    m->piece = m->bytes;
    m->staged = m->staged && !m->truncated;
    if (m->way == P2P_LARGE) {
        m->far_staged = envelope.staged;
    } else if (m->way == P2P_SMALL) {
        m->pieces = 1;
    } else if (m->bytes && !m->truncated) {
        m->pieces = m->next = 1;
        m->window[0] = (struct p2p_piece){.state = PIECE_HERE, .buf = m->bounce, .memory = p2p_data(m->bounce),
                                          .bytes = m->bytes};
    }
}

static void enveloped(struct p2p_msg *m, const MPI_Status *status)
{
    m->envelope = MPI_REQUEST_NULL;
    if (!m->send)
        match(m, status);
}

/* ---- pieces ---- */

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
        code = MPI_Isend(piece->memory, (int)piece->bytes, MPI_BYTE, m->peer, piece_tag(m), p2p->bulk, &request);
    else
        code = MPI_Irecv(piece->memory, (int)piece->bytes, MPI_BYTE, m->peer, piece_tag(m), p2p->bulk, &request);
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

static void end_pieces(struct p2p *p2p, struct p2p_msg *m, bool all)
{
    for (; m->first < m->next; m->first++) {
        struct p2p_piece *piece = piece_of(m, m->first);
        if (!all && piece->state != PIECE_DONE)
            return;
        if (piece->buf && piece->buf != m->bounce)
            p2p_give(&p2p->slots, piece->buf);
    }
}

/* *look: something is under way here that MPI does not report. */
static int pieces_out(struct comm *comm, struct op *op, bool *moved, bool *look)
{
    struct p2p_msg *m = &op->message;
    bool done = true, begun;
    int code;

    end_pieces(comm->p2p, m, false);
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
    end_pieces(comm->p2p, m, false);
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

/* ---- go ---- */

static void set_pieces(struct p2p_msg *m)
{
    m->gone = true;
    m->piece = m->go;
    m->pieces = m->go ? (m->bytes + m->piece - 1) / m->piece : 0;
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

static int say_go(struct comm *comm, struct op *op)
{
    struct p2p_msg *m = &op->message;
    MPI_Request request;
    int code = p2p_reserve(comm->p2p, 1);

    if (code)
        return code;
    m->go = m->truncated ? 0 : choose_piece(comm, m, m->staged || m->far_staged);
    set_pieces(m);
    code = comm_mpi_error(MPI_Isend(&m->go, 1, MPI_UINT32_T, m->peer, go_tag(m), comm->p2p->bulk, &request),
                          "asking for a message");
    if (code)
        return code;
    p2p_add(comm->p2p, request, op, P2P_GO);
    m->open++;
    return HETMPI_SUCCESS;
}

/* ---- progress ---- */

static void look_later(struct p2p *p2p, struct op *op)
{
    if (op->message.polled)
        return;
    op->message.polled = true;
    op->next = NULL;
    *p2p->look_end = op;
    p2p->look_end = &op->next;
}

/* All that can be done for one message now. */
static int step(struct comm *comm, struct op *op, bool *moved, bool *look, bool *done)
{
    struct p2p_msg *m = &op->message;
    int code = HETMPI_SUCCESS;

    if (!m->send && !m->matched)
        return HETMPI_SUCCESS;
    if (!m->ready) {
        code = mem_event_query(op->event, &m->ready);
        *look = !m->ready;
        if (code || !m->ready)
            return code;
        *moved = true;
    }
    if (m->way == P2P_LARGE && !m->gone) {
        if (m->send)
            return HETMPI_SUCCESS;
        code = say_go(comm, op);
    }
    if (!code)
        code = m->send ? pieces_out(comm, op, moved, look) : pieces_in(comm, op, moved, look);
    *done = !code && m->open == 0 && m->first == m->pieces;
    return code;
}

static int result(const struct comm *comm, const struct p2p_msg *m)
{
    if (!m->truncated)
        return HETMPI_SUCCESS;
    return err_set(HETMPI_ERR_TRUNCATE, "recv on rank %d: the message from rank %d with tag %d has %zu bytes, the buffer "
                   "has room for %zu; nothing was written", comm->rank, m->peer, m->tag, m->bytes, m->room);
}

/* The op may be gone when this returns. */
static void finish(struct comm *comm, struct op *op, int code)
{
    struct p2p *p2p = comm->p2p;
    struct p2p_msg *m = &op->message;

    *(m->older ? &m->older->message.newer : &p2p->oldest) = m->newer;
    *(m->newer ? &m->newer->message.older : &p2p->newest) = m->older;
    atomic_fetch_sub(&p2p->n_ops, 1);
    end_pieces(p2p, m, true);
    p2p_give(&p2p->bounces, m->bounce);
    m->bounce = NULL;
    if (m->word) {
        m->word->next = p2p->words;
        p2p->words = m->word;
    }
    engine_op_end(op, code);
}

static void note(struct op *op, int what, const MPI_Status *status)
{
    struct p2p_msg *m = &op->message;

    m->open--;
    switch (what) {
    case P2P_ENVELOPE:
        enveloped(m, status);
        break;
    case P2P_GO:
        if (m->send)
            set_pieces(m);
        break;
    default:
        m->window[what - P2P_PIECE].state = m->send ? PIECE_DONE : PIECE_HERE;
    }
}

static int complete_requests(struct p2p *p2p, bool *moved)
{
    int count = 0, code;

    if (!p2p->n)
        return HETMPI_SUCCESS;
    code = MPI_Testsome(p2p->n, p2p->requests, &count, p2p->indices, p2p->statuses);
    if (code != MPI_SUCCESS) {
        for (int i = 0; i < count; i++)
            if (p2p->statuses[i].MPI_ERROR != MPI_SUCCESS)
                code = p2p->statuses[i].MPI_ERROR;
        return comm_mpi_error(code, "moving a message");
    }
    if (count == 0 || count == MPI_UNDEFINED)
        return HETMPI_SUCCESS;
    for (int i = 0; i < count; i++) {
        const struct p2p_use *use = &p2p->uses[p2p->indices[i]];
        note(use->op, use->what, &p2p->statuses[i]);
        look_later(p2p, use->op);
    }
    p2p_compact(p2p);
    *moved = true;
    return HETMPI_SUCCESS;
}

static int look_at_all(struct comm *comm, bool *moved)
{
    struct p2p *p2p = comm->p2p;
    struct op *next = p2p->look;
    int code = HETMPI_SUCCESS;

    p2p->look = NULL;
    p2p->look_end = &p2p->look;
    while (next && !code) {
        struct op *op = next;
        bool look = false, done = false;
        next = op->next;
        op->message.polled = false;
        code = step(comm, op, moved, &look, &done);
        if (done)
            finish(comm, op, result(comm, &op->message));
        else if (look)
            look_later(p2p, op);
        *moved |= done;
    }
    return code;
}

/* After a failure nothing may go on touching the callers' buffers. */
static void end_all(struct comm *comm, int code)
{
    struct p2p *p2p = comm->p2p;

    p2p_abandon(p2p);
    if (p2p->out)
        mem_stream_synchronize(p2p->out);
    if (p2p->in)
        mem_stream_synchronize(p2p->in);
    p2p->look = NULL;
    p2p->look_end = &p2p->look;
    while (p2p->oldest) {
        err_copy(code, comm->failed_text);
        finish(comm, p2p->oldest, code);
    }
}

bool p2p_progress(struct comm *comm)
{
    struct p2p *p2p = comm->p2p;
    char text[sizeof(comm->failed_text)];
    bool moved = false;
    int code;

    if (!p2p || !p2p->oldest || !proc_may_call_mpi())
        return false;
    code = comm_failed(comm);
    if (!code) {
        code = complete_requests(p2p, &moved);
        if (!code)
            code = look_at_all(comm, &moved);
        if (code) {
            snprintf(text, sizeof(text), "message on rank %d: %.400s", comm->rank, err_text());
            code = comm_fail(comm, code, text);
        }
    }
    if (code) {
        end_all(comm, code);
        return true;
    }
    if (moved)
        atomic_fetch_add_explicit(&comm->progress, 1, memory_order_relaxed);
    return moved;
}

/* ---- starting ---- */

/* Hands a message to the engine, with the requests that it has. */
static void list(struct op *op)
{
    struct comm *comm = op->comm;
    struct p2p *p2p = comm->p2p;
    struct p2p_msg *m = &op->message;

    engine_lock();
    m->listed = true;
    m->older = p2p->newest;
    *(p2p->newest ? &p2p->newest->message.newer : &p2p->oldest) = op;
    p2p->newest = op;
    atomic_fetch_add(&p2p->n_ops, 1);
    if (p2p_reserve(p2p, 2)) {
        comm_fail(comm, HETMPI_ERR_MEMORY, "no memory for the MPI requests of messages");
        p2p->abandoned = true;   /* by the next progress, which ends all */
    } else {
        if (m->envelope != MPI_REQUEST_NULL) {
            p2p_add(p2p, m->envelope, op, P2P_ENVELOPE);
            m->open++;
        }
        if (m->go_request != MPI_REQUEST_NULL) {
            p2p_add(p2p, m->go_request, op, P2P_GO);
            m->open++;
        }
    }
    look_later(p2p, op);
    engine_op_begin(op);
    engine_unlock();
}

static int test_envelope(struct op *op, int *flag)
{
    struct p2p_msg *m = &op->message;
    MPI_Status status;
    int code = comm_mpi_error(MPI_Test(&m->envelope, flag, &status), "moving a message");

    if (code)
        return comm_fail(op->comm, code, err_text());
    if (*flag)
        enveloped(m, &status);
    return HETMPI_SUCCESS;
}

/* The whole message was in the envelope, and nothing but a copy by the CPU is left to do. */
static void finish_here(struct op *op)
{
    struct comm *comm = op->comm;
    struct p2p_msg *m = &op->message;

    if (!m->send && m->bytes && !m->truncated)
        memcpy(m->buffer, p2p_data(m->bounce), m->bytes);
    give_bounce(comm->p2p, m->bounce);
    m->bounce = NULL;
    atomic_fetch_add_explicit(&comm->progress, 1, memory_order_relaxed);
    op->error = result(comm, m);
    if (op->error)
        snprintf(op->text, sizeof(op->text), "%s", err_text());
    atomic_store_explicit(&op->done, true, memory_order_release);
}

int p2p_start(struct op *op)
{
    const struct p2p_msg *m = &op->message;
    int code = post_envelope(op), flag = 0;

    if (code)
        return code;
    if (m->send && m->way == P2P_INLINE && !op->stream_value && !test_envelope(op, &flag) && flag)
        finish_here(op);
    else
        list(op);
    return HETMPI_SUCCESS;
}

int p2p_run(struct op *op)
{
    const struct p2p_msg *m = &op->message;
    struct watch watch;
    int code = post_envelope(op), flag = 0;

    if (code)
        return code;
    watch_begin(&watch, op->comm, op);
    while (!(m->send && m->way != P2P_INLINE)) {
        code = test_envelope(op, &flag);
        if (code || flag)
            break;
        if (engine_pending() && engine_progress())
            watch.polls = 0;
        else if (watch_pause(&watch, op->comm, NULL, NULL))
            break;   /* a failure: the engine cleans up */
    }
    if (flag && m->way == P2P_INLINE && !m->staged) {
        finish_here(op);
        return op->error;
    }
    list(op);
    return engine_wait(op);
}

int p2p_mark_stream(struct op *op)
{
    struct p2p_word *word;
    int code;

    engine_lock();
    code = p2p_take_word(op->comm->p2p, &word);
    engine_unlock();
    if (code)
        return code;
    op->message.word = word;
    op->stream_word = word->word;
    op->stream_value = ++word->value;
    return HETMPI_SUCCESS;
}

void p2p_unmark_stream(struct op *op)
{
    struct p2p *p2p = op->comm->p2p;

    engine_lock();
    op->message.word->next = p2p->words;
    p2p->words = op->message.word;
    engine_unlock();
}

/* ---- reports ---- */

const struct op *p2p_first(const struct comm *comm) { return comm->p2p ? comm->p2p->oldest : NULL; }

void p2p_describe(const struct op *op, char *text, size_t bytes)
{
    const struct p2p_msg *m = &op->message;
    char peer[32] = "any rank", tag[32] = "any tag";
    size_t through = m->first * m->piece < m->bytes ? m->first * m->piece : m->bytes;

    if (m->peer != MPI_ANY_SOURCE)
        snprintf(peer, sizeof(peer), "rank %d", m->peer);
    if (m->tag != MPI_ANY_TAG)
        snprintf(tag, sizeof(tag), "tag %d", m->tag);
    if (!m->send && !m->matched)
        snprintf(text, bytes, "recv of at most %zu bytes from %s with %s: no such message has come", m->room, peer, tag);
    else if (!m->ready)
        snprintf(text, bytes, "%s of %zu bytes %s %s with %s: the stream has not come to it", m->send ? "send" : "recv",
                 m->bytes, m->send ? "to" : "from", peer, tag);
    else if (m->send && (m->way == P2P_INLINE || (m->way == P2P_LARGE && !m->gone)))
        snprintf(text, bytes, "send of %zu bytes to %s with %s: it has not received them", m->bytes, peer, tag);
    else
        snprintf(text, bytes, "%s of %zu bytes %s %s with %s: %zu bytes are through", m->send ? "send" : "recv", m->bytes,
                 m->send ? "to" : "from", peer, tag, m->way == P2P_LARGE && !m->gone ? 0 : through);
}
