/* Publishing, reading and describing what ranks are doing: see status.h. */
#include "core/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/proc.h"

#define READ_TRIES 1000   /* a rank does not post so many meetings while one is read: then its words are not to be trusted */

#define PUT(field, value) atomic_store_explicit(&status->field, (value), memory_order_relaxed)
#define GET(field) atomic_load_explicit(&status->field, memory_order_relaxed)

static void beat_on(struct comm *comm, enum status_wait wait, const struct call *call, const struct op *message,
                    uint64_t number, uint64_t now)
{
    struct ctl_status *status = comm->mine ? &comm->mine->status : NULL;

    if (!status)
        return;
    if (message) {
        const struct p2p_msg *m = &message->message;
        PUT(wait_peer, m->peer);
        PUT(wait_tag, m->tag);
        PUT(wait_bytes, m->send || m->matched ? m->bytes : m->room);
    } else if (wait == WAIT_ELSEWHERE) {
        PUT(wait_call, number);
        PUT(wait_what, call ? call_what(call) : COLL_KINDS);
    }
    PUT(wait, (uint32_t)wait);
    PUT(beat_ns, now);
}

void status_beat(struct comm *comm, const struct call *call, const struct op *op)
{
    const struct op *message = op && op->p2p ? op : NULL;
    enum status_wait here = WAIT_COLLECTIVE, elsewhere = comm ? WAIT_ELSEWHERE : WAIT_SETUP;
    uint64_t now = proc_now_ns();

    if (comm && !message && !call && comm->head)
        call = &comm->head->call;
    if (comm && !message && !call)
        message = p2p_first(comm);
    if (message)
        here = message->message.send ? WAIT_SEND : WAIT_RECV;
    for (struct comm *other = comm_first(); other; other = other->next)
        if (other == comm)
            beat_on(other, here, NULL, message, 0, now);
        else
            beat_on(other, elsewhere, call, NULL, comm ? comm->meetings : 0, now);
}

/* Another rank may be writing: what belongs to a number is taken only when the number stayed the same. */
static void read_posted(const struct ctl *ctl, uint64_t number, struct status_rank *out)
{
    uint64_t seq[2], again;
    int tries = 0;

    do {
        for (int i = 0; i < 2; i++)
            seq[i] = atomic_load_explicit(&ctl->meet[i].seq, memory_order_acquire);
        out->posted = seq[0] > seq[1] ? seq[0] : seq[1];
        if (number && seq[number & 1] == number)
            out->posted = number;
        const struct ctl_meet *post = &ctl->meet[out->posted & 1];
        out->what = atomic_load_explicit(&post->what, memory_order_acquire);    /* before `seq` is read again */
        out->count = atomic_load_explicit(&post->count, memory_order_acquire);
        again = atomic_load_explicit(&post->seq, memory_order_relaxed);
    } while (out->posted && again != out->posted && ++tries < READ_TRIES);
}

void status_read(const struct comm *comm, int rank, uint64_t number, struct status_rank *out)
{
    const struct ctl *ctl = rank == comm->rank ? comm->mine : comm_is_local(comm, rank) ? comm->ctls[rank] : NULL;
    const struct ctl_status *status = ctl ? &ctl->status : NULL;
    uint64_t beat, now = proc_now_ns();

    *out = (struct status_rank){.rank = rank, .pid = comm->pids ? comm->pids[rank] : getpid(), .waits_for = -1,
                                .idle_ms = UINT32_MAX};
    if (!ctl && rank != comm->rank)
        return;
    out->life = rank == comm->rank ? LIFE_RUNS : (uint32_t)proc_life(out->pid);
    if (!ctl)
        return;
    read_posted(ctl, number, out);
    out->finished = GET(finished);
    if (GET(call) == out->posted) {
        out->phase = GET(phase);
        out->step = GET(step);
        out->chunk = GET(chunk);
        out->chunks = GET(chunks);
        out->waits_for = GET(waits_for);
    }
    beat = GET(beat_ns);
    if (beat)
        out->idle_ms = now > beat ? (uint32_t)((now - beat) / 1000000 % UINT32_MAX) : 0;
    out->wait = GET(wait);
    out->peer = GET(wait_peer);
    out->tag = GET(wait_tag);
    out->bytes = GET(wait_bytes);
    out->other_call = GET(wait_call);
    out->other_what = GET(wait_what);
}

/* ---- text ---- */

struct line { char *text; size_t bytes, used; };

static void add(struct line *line, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add(struct line *line, const char *format, ...)
{
    va_list arguments;
    int n;

    if (line->used + 1 >= line->bytes)
        return;
    va_start(arguments, format);
    n = vsnprintf(line->text + line->used, line->bytes - line->used, format, arguments);
    va_end(arguments);
    if (n > 0)
        line->used += (size_t)n;
}

static void add_collective(struct line *line, const struct status_rank *s)
{
    const char *step = sched_step_name((enum sched_kind)s->step);
    char what[128];

    meet_describe(s->what, s->count, what, sizeof(what));
    add(line, "in call %llu: %s", (unsigned long long)s->posted, what);
    if (s->phase != PHASE_MEET) {
        add(line, ", %s, chunk %llu of %llu", sched_phase_name((enum sched_phase)s->phase), (unsigned long long)s->chunk,
            (unsigned long long)s->chunks);
        if (step)
            add(line, ", %s", step);
    }
    if (s->waits_for >= 0)
        add(line, ", waits for rank %d", s->waits_for);
    if (!status_waits(s) && s->idle_ms != UINT32_MAX)
        add(line, "; nobody there has waited for it for %.1f s", s->idle_ms / 1e3);
    else if (!status_waits(s))
        add(line, "; nobody there waits for it");
}

static void add_wait(struct line *line, const struct status_rank *s)
{
    char peer[32] = "any rank", tag[32] = "any tag";

    if (s->peer >= 0)
        snprintf(peer, sizeof(peer), "rank %d", s->peer);
    if (s->tag >= 0)
        snprintf(tag, sizeof(tag), "tag %d", s->tag);
    switch (s->wait) {
    case WAIT_SEND:
        add(line, "waits in a send of %llu bytes to %s with %s", (unsigned long long)s->bytes, peer, tag);
        break;
    case WAIT_RECV:
        add(line, "waits in a recv of at most %llu bytes from %s with %s", (unsigned long long)s->bytes, peer, tag);
        break;
    case WAIT_ELSEWHERE:
        if ((s->other_what & 255) >= COLL_KINDS)
            add(line, "waits for a message on another communicator");
        else
            add(line, "waits in %s, call %llu of another communicator", coll_name((enum coll_kind)(s->other_what & 255)),
            (unsigned long long)s->other_call);
        break;
    case WAIT_SETUP:
        add(line, "waits in the set-up of another communicator");
        break;
    default:
        add(line, "is in hetmpi");
    }
}

void status_describe(const struct status_rank *s, char *text, size_t bytes)
{
    struct line line = {text, bytes, 0};
    bool other_wait = status_waits(s) && s->wait != WAIT_COLLECTIVE && s->wait != WAIT_NOTHING;

    text[0] = '\0';
    if (s->life == LIFE_UNKNOWN) {
        add(&line, "no answer");
        return;
    }
    if (s->life == LIFE_ENDED)
        add(&line, "its process %d has ended, ", s->pid);
    else if (s->life == LIFE_STOPPED)
        add(&line, "its process %d is stopped (SIGSTOP or a debugger), ", s->pid);
    if (status_in_collective(s))
        add_collective(&line, s);
    else if (!other_wait)
        add(&line, "not in a hetmpi call");
    if (other_wait) {
        add(&line, "%s", status_in_collective(s) ? "; " : "");
        add_wait(&line, s);
    }
    if (status_in_collective(s))
        return;
    if (s->finished)
        add(&line, ", last finished call %llu", (unsigned long long)s->finished);
    else
        add(&line, ", has called no collective yet");
}
