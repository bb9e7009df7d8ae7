/*
 * Waiting: how a rank passes the time until its peers come, and what it looks at meanwhile: failures that others
 * report, ranks that died, and the timeout with its report.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>

#include "core/ask.h"
#include "core/dump.h"
#include "core/notice.h"
#include "core/proc.h"
#include "core/report.h"
#include "hetmpi.h"

#define LOOK_EVERY_NS 2000000u      /* how often the slow checks run */
#define SLEEP_AFTER_NS 20000000u    /* a wait this long is no longer about latency */
#define NAP_NS 50000u
#define NAP_MOST_NS 1000000u        /* one that has lasted a second: a rank that waits so long uses no core to speak of */
/* ... after an error that may be what a death looks like first: MPI's own come from far, and memory that cannot be
 * opened goes moments before its process counts as ended. */
#define DEATH_LOOKS 15u
#define DEATH_LOOKS_MEMORY 5u
/* On a crowded node a few yields must do: the kernel may schedule each rank in a group of its own (as it does those that
 * MPICH's mpiexec starts), and then a yield gives the core to no other rank, but a sleep does. */
#define CROWDED_YIELDS 10u
/* Polls in which nothing moved before naps get longer: a rank that naps shortly for long still takes much of a core. */
#define CROWDED_NAPS 30u

static inline void cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

void watch_begin(struct watch *watch, const struct comm *comm, const struct op *op)
{
    watch->op = op;
    watch->began_ns = 0;   /* the clock is first read when spinning ends */
    watch->looked_ns = 0;
    watch->polls = 0;
    watch->locked = false;
    watch->progress = atomic_load_explicit(&comm->progress, memory_order_relaxed);
}

/* Another rank died, or time is over: gathers what all ranks do, and ends the use of the communicator. */
static int fail_with_report(struct comm *comm, int code, const struct report *report)
{
    char text[sizeof(comm->failed_text)];
    int other = report_failure(comm, report, text, sizeof(text));

    return other ? other : comm_fail(comm, code, text);
}

/* The words of a timeout in a collective. */
static void collective_head(const struct comm *comm, const struct meet *meet, const struct call *call, double seconds,
                            struct report *report, char *text, size_t bytes)
{
    char where[160] = "";
    size_t used;

    report->number = comm->meetings;
    report->what = call_what(call);
    report->count = call->agree;
    used = (size_t)snprintf(text, bytes, "%s (call %llu, count %zu) on rank %d: nothing moved for %.3g s (setting TIMEOUT)",
                            coll_name(call->kind), (unsigned long long)comm->meetings, call->count, comm->rank, seconds);
    if (!meet) {
        exec_describe(comm, where, sizeof(where));
        if (where[0] && used < bytes)
            snprintf(text + used, bytes - used, "; here: %s", where);
        return;
    }
    report->missing = meet_missing(comm, meet);
    if (report->missing >= 0 && !comm_is_local(comm, report->missing) && used < bytes)
        snprintf(text + used, bytes - used, "; waiting for rank %d or another rank of its node", report->missing);
}

/* What is waited for: a message, a short cut's call, or the head of the queue. False: nothing that has a timeout. */
static bool describe_wait(const struct watch *watch, const struct comm *comm, const struct meet *meet,
                          const struct call *call, double seconds, struct report *report, char *text, size_t bytes)
{
    const struct op *message = watch->op && watch->op->p2p ? watch->op : NULL, *head = comm->head;
    char what[256];

    if (!message && !call && !head)
        message = p2p_first(comm);
    if (message) {
        p2p_describe(message, what, sizeof(what));
        snprintf(text, bytes, "%s; nothing moved on rank %d for %.3g s (setting TIMEOUT)", what, comm->rank, seconds);
        report->peer = message->message.peer;
    } else if (call) {
        collective_head(comm, meet, call, seconds, report, text, bytes);
    } else if (head) {
        collective_head(comm, head->state == OP_MEET ? &head->meet : NULL, &head->call, seconds, report, text, bytes);
    } else {
        return false;
    }
    return true;
}

static int time_out(struct watch *watch, struct comm *comm, const struct meet *meet, const struct call *call,
                    double seconds)
{
    struct report report = {.why = REPORT_TIMEOUT, .missing = -1, .peer = -1};
    char head[320];
    bool waits;

    report.head = head;
    if (!watch->locked)
        engine_lock();   /* the queue may be moving in another thread */
    waits = describe_wait(watch, comm, meet, call, seconds, &report, head, sizeof(head));
    if (!watch->locked)
        engine_unlock();
    if (!waits || !report_claim(comm))
        return HETMPI_SUCCESS;   /* of another rank's report this one hears soon */
    return fail_with_report(comm, HETMPI_ERR_TIMEOUT, &report);
}

int watch_find_dead(const struct comm *comm)
{
    for (int i = 0; comm->pids && i < comm->n_local; i++)
        if (comm->local[i] != comm->rank && proc_life(comm->pids[comm->local[i]]) == LIFE_ENDED)
            return comm->local[i];
    return -1;
}

static int look_for_dead(struct comm *comm)
{
    char head[160];
    int code, rank = watch_find_dead(comm);

    if (rank < 0)
        return HETMPI_SUCCESS;
    /* One that ended because of a failure has told us before. */
    code = comm_failed(comm);
    if (code || !report_claim(comm))
        return code;
    snprintf(head, sizeof(head), "rank %d (process %d) has died; rank %d was waiting for it or others", rank,
             comm->pids[rank], comm->rank);
    return fail_with_report(comm, HETMPI_ERR_PEER, &(struct report){.why = REPORT_PEER, .head = head, .missing = -1,
                                                                    .peer = -1});
}

int watch_blame_dead(struct comm *comm, int code_so_far)
{
    unsigned looks = code_so_far == HETMPI_ERR_MPI ? DEATH_LOOKS : DEATH_LOOKS_MEMORY;

    for (unsigned look = 0; look < looks; look++) {
        int code = comm_failed(comm);   /* or another rank of the node, which found it, has told */
        if (!code)
            code = look_for_dead(comm);
        if (code)
            return code;
        proc_nap(LOOK_EVERY_NS);
    }
    return HETMPI_SUCCESS;
}

/* Tells other ranks that a thread waits here, answers what they ask, and dumps when that is asked for. */
static void be_seen(struct watch *watch, struct comm *comm, const struct call *call)
{
    if (!watch->locked && !engine_trylock())
        return;
    status_beat(comm, call, watch->op);
    ask_serve();
    for (struct comm *any = comm_first(); any; any = any->next)
        notice_send_due(any);
    if (dump_asked(comm))
        report_dump(comm);
    if (!watch->locked)
        engine_unlock();
}

static int look_around(struct watch *watch, struct comm *comm, const struct meet *meet, const struct call *call,
                       uint64_t now)
{
    uint64_t progress = atomic_load_explicit(&comm->progress, memory_order_relaxed);
    double timeout = comm->cfg->timeout, seconds;
    int code;

    be_seen(watch, comm, call);
    code = look_for_dead(comm);
    if (!code)
        code = notice_look(comm);
    if (code)
        return code;
    if (progress != watch->progress) {
        watch->progress = progress;
        watch->began_ns = now;
    }
    seconds = (double)(now - watch->began_ns) / 1e9;
    if (timeout > 0 && seconds > timeout)
        return time_out(watch, comm, meet, call, seconds);
    proc_let_mpi_progress();
    return HETMPI_SUCCESS;
}

void watch_setup(struct watch *watch)
{
    uint64_t now = proc_now_ns();

    if (now - watch->looked_ns < LOOK_EVERY_NS)
        return;
    watch->looked_ns = now;
    be_seen(watch, NULL, NULL);
}

int watch_look(struct watch *watch, struct comm *comm)
{
    uint64_t now = proc_now_ns();

    if (!watch->began_ns)
        watch->began_ns = watch->looked_ns = now;
    if (now - watch->looked_ns < LOOK_EVERY_NS)
        return HETMPI_SUCCESS;
    watch->looked_ns = now;
    return look_around(watch, comm, NULL, NULL, now);
}

/* A thousandth of what was waited is not missed. */
static long nap_for(uint64_t waited_ns)
{
    uint64_t nap = waited_ns / 1000;

    return (long)(nap < NAP_NS ? NAP_NS : nap > NAP_MOST_NS ? NAP_MOST_NS : nap);
}

int watch_pause(struct watch *watch, struct comm *comm, const struct meet *meet, const struct call *call)
{
    uint64_t now;
    int code;

    if (watch->polls++ < (unsigned)comm->spin) {
        cpu_relax();
        return HETMPI_SUCCESS;
    }
    code = comm_failed(comm);
    if (code)
        return code;
    sched_yield();
    now = proc_now_ns();
    if (!watch->began_ns)
        watch->began_ns = watch->looked_ns = now;
    if (watch->polls > (unsigned)comm->spin + CROWDED_NAPS &&
        (comm->crowded || now - watch->began_ns > SLEEP_AFTER_NS))
        proc_nap(nap_for(now - watch->began_ns));
    else if (comm->crowded && watch->polls > (unsigned)comm->spin + CROWDED_YIELDS)
        proc_nap(10000);
    if (now - watch->looked_ns < LOOK_EVERY_NS)
        return HETMPI_SUCCESS;
    watch->looked_ns = now;
    return look_around(watch, comm, meet, call, now);
}
