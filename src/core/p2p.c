/*
 * Messages. An envelope with the caller's tag goes out when the call is made, on a duplicate communicator on which MPI
 * matches it with the receives in the order of the calls. What the bytes do:
 *
 *   inline   they stand in the envelope: short messages that the CPU can read when the call is made
 *   small    short ones that it cannot (device memory, or a stream has yet to come to the call): one piece behind the
 *            envelope, on a second duplicate, sent as soon as it can be; it waits in the receiver's bounce buffer
 *   large    longer than the setting EAGER: when the receive has matched, the receiver says how long pieces shall be
 *            (or that it wants none, its buffer being too short), and a window of pieces is kept in flight; device
 *            memory is staged through pinned slots at each end, MPI itself reads and writes host memory
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

#define TESTS_PER_PAUSE 8

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
        code = MPI_Irecv(&m->go, 1, MPI_UINT32_T, m->peer, p2p_go_tag(m), p2p->bulk, &m->go_request);
    if (code == MPI_SUCCESS)
        code = MPI_Isend(m->bounce->memory, (int)length, MPI_BYTE, m->peer, m->tag, p2p->match, &m->envelope);
    return comm_mpi_error(code, "sending a message");
}

/* Posts what MPI matches. On an error nothing is under way. */
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
    m->staged = m->room && mem_on_device(m->buffer);
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
        code = comm_mpi_error(MPI_Irecv(m->bounce->memory, (int)p2p->bounces.each, MPI_BYTE, m->peer, m->tag,
                                        p2p->match, &m->envelope), "receiving a message");
    if (!code)
        return HETMPI_SUCCESS;
    if (m->go_request != MPI_REQUEST_NULL) {
        MPI_Cancel(&m->go_request);
        MPI_Request_free(&m->go_request);
    }
    snprintf(text, sizeof(text), "rank %d: %.400s", comm->rank, err_text());
    return comm_fail(comm, code, text);
}

static bool envelope_fits(const struct comm *comm, const struct p2p_envelope *envelope, size_t length)
{
    size_t behind = length - sizeof(*envelope);

    if (length < sizeof(*envelope) || length > comm->p2p->bounces.each ||
        envelope->channel >= (uint32_t)comm->p2p->channels)
        return false;
    switch (envelope->way) {
    case P2P_INLINE:
        return behind == envelope->bytes;
    case P2P_SMALL:
        return behind == 0 && envelope->bytes <= comm->cfg->eager;
    case P2P_LARGE:
        return behind == 0 && envelope->bytes > comm->cfg->eager;
    default:
        return false;
    }
}

int p2p_match(const struct comm *comm, struct p2p_msg *m, int source, int tag, size_t length)
{
    struct p2p_envelope envelope;

    memcpy(&envelope, m->bounce->memory, sizeof(envelope));
    if (!envelope_fits(comm, &envelope, length))
        return err_set(HETMPI_ERR_INTERNAL, "recv on rank %d: the message from rank %d with tag %d has a head that no "
                       "sender writes (%zu bytes, way %u, channel %u, for %llu bytes)", comm->rank, source, tag, length,
                       envelope.way, envelope.channel, (unsigned long long)envelope.bytes);
    m->matched = true;
    m->peer = source;
    m->tag = tag;
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
    return HETMPI_SUCCESS;
}

static int enveloped(const struct comm *comm, struct p2p_msg *m, const MPI_Status *status)
{
    int length = 0;

    m->envelope = MPI_REQUEST_NULL;
    if (m->send)
        return HETMPI_SUCCESS;
    MPI_Get_count(status, MPI_BYTE, &length);
    return p2p_match(comm, m, status->MPI_SOURCE, status->MPI_TAG, (size_t)length);
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
        code = p2p_say_go(comm, op);
    }
    if (!code)
        code = p2p_move_pieces(comm, op, moved, look);
    *done = !code && m->open == 0 && m->first == m->pieces;
    return code;
}

static int result(const struct comm *comm, const struct p2p_msg *m)
{
    if (!m->truncated)
        return HETMPI_SUCCESS;
    return err_set(HETMPI_ERR_TRUNCATE, "recv on rank %d: the message from rank %d with tag %d has %zu bytes, the "
                   "buffer has room for %zu; nothing was written", comm->rank, m->peer, m->tag, m->bytes, m->room);
}

/* The op may be gone when this returns. */
static void finish(struct comm *comm, struct op *op, int code)
{
    struct p2p *p2p = comm->p2p;
    struct p2p_msg *m = &op->message;

    *(m->older ? &m->older->message.newer : &p2p->oldest) = m->newer;
    *(m->newer ? &m->newer->message.older : &p2p->newest) = m->older;
    atomic_fetch_sub(&p2p->n_ops, 1);
    p2p_end_pieces(p2p, m, true);
    p2p_give(&p2p->bounces, m->bounce);
    m->bounce = NULL;
    if (m->word) {
        m->word->next = p2p->words;
        p2p->words = m->word;
    }
    engine_op_end(op, code);
}

static int note(struct op *op, int what, const MPI_Status *status)
{
    struct p2p_msg *m = &op->message;

    m->open--;
    switch (what) {
    case P2P_ENVELOPE:
        return enveloped(op->comm, m, status);
    case P2P_GO:
        return m->send ? p2p_set_pieces(op->comm, m) : HETMPI_SUCCESS;
    default:
        m->window[what - P2P_PIECE].state = m->send ? PIECE_DONE : PIECE_HERE;
        return HETMPI_SUCCESS;
    }
}

static int complete_requests(struct p2p *p2p, bool *moved)
{
    int count = 0, code, bad = HETMPI_SUCCESS;

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
        code = note(use->op, use->what, &p2p->statuses[i]);
        bad = bad ? bad : code;
        look_later(p2p, use->op);
    }
    p2p_compact(p2p);
    *moved = true;
    return bad;
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

    if (!code && *flag)
        code = enveloped(op->comm, m, &status);
    if (code)
        *flag = 0;   /* the engine, which ends all messages, has this one to end too */
    return code ? comm_fail(op->comm, code, err_text()) : HETMPI_SUCCESS;
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
    unsigned tests = 0;

    if (code)
        return code;
    watch_begin(&watch, op->comm, op);
    while (!(m->send && m->way != P2P_INLINE)) {
        code = test_envelope(op, &flag);
        if (code || flag)
            break;
        /* A test is pause enough while the message is on its way. */
        if (++tests % TESTS_PER_PAUSE)
            continue;
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
        snprintf(text, bytes, "recv of at most %zu bytes from %s with %s: no such message has come", m->room, peer,
                 tag);
    else if (!m->ready)
        snprintf(text, bytes, "%s of %zu bytes %s %s with %s: the stream has not come to it", m->send ? "send" : "recv",
                 m->bytes, m->send ? "to" : "from", peer, tag);
    else if (m->send && (m->way == P2P_INLINE || (m->way == P2P_LARGE && !m->gone)))
        snprintf(text, bytes, "send of %zu bytes to %s with %s: it has not received them", m->bytes, peer, tag);
    else
        snprintf(text, bytes, "%s of %zu bytes %s %s with %s: %zu bytes are through", m->send ? "send" : "recv",
                 m->bytes, m->send ? "to" : "from", peer, tag, m->way == P2P_LARGE && !m->gone ? 0 : through);
}
