/*
 * Waiting: how a rank passes the time until its peers come, and what it looks at meanwhile: failures that others
 * report, ranks that died, and the timeout with its report.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "core/engine.h"
#include "core/log.h"
#include "core/notice.h"
#include "core/proc.h"
#include "hetmpi.h"

#define LOOK_EVERY_NS 2000000u      /* how often the slow checks run */
#define SLEEP_AFTER_NS 20000000u    /* a wait this long is no longer about latency */
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

/* Has the process ended? One that nobody has waited for yet (a zombie) has. */
static bool process_ended(int pid)
{
    char path[64], line[256], *after_name;
    FILE *file;
    bool ended = false;

    if (kill(pid, 0) != 0)
        return errno == ESRCH;
    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    file = fopen(path, "r");
    if (!file)
        return errno == ENOENT;
    if (fgets(line, sizeof(line), file) && (after_name = strrchr(line, ')')) && after_name[1])
        ended = after_name[2] == 'Z' || after_name[2] == 'X';
    fclose(file);
    return ended;
}

/* What one rank of the node is doing, as far as its control segment tells. */
static void describe_rank(const struct comm *comm, int rank, char *text, size_t bytes)
{
    const struct ctl *ctl = comm->ctls[rank];
    uint64_t seq0 = atomic_load_explicit(&ctl->meet[0].seq, memory_order_acquire);
    uint64_t seq1 = atomic_load_explicit(&ctl->meet[1].seq, memory_order_acquire);
    uint64_t call = seq0 > seq1 ? seq0 : seq1;
    uint32_t phase = atomic_load_explicit(&ctl->status.phase, memory_order_relaxed);
    int waits_for = atomic_load_explicit(&ctl->status.waits_for, memory_order_relaxed);
    size_t used;

    if (!call) {
        snprintf(text, bytes, "rank %d has called no collective yet", rank);
        return;
    }
    used = (size_t)snprintf(text, bytes, "rank %d came to call %llu (%s)", rank, (unsigned long long)call,
                            coll_name((enum coll_kind)(ctl->meet[call & 1].what & 255)));
    if (used < bytes && atomic_load_explicit(&ctl->status.call, memory_order_relaxed) == call && phase != PHASE_MEET) {
        used += (size_t)snprintf(text + used, bytes - used, ", %s, chunk %llu", sched_phase_name((enum sched_phase)phase),
                                 (unsigned long long)atomic_load_explicit(&ctl->status.chunk, memory_order_relaxed));
        if (used < bytes && waits_for >= 0)
            snprintf(text + used, bytes - used, ", waits for rank %d", waits_for);
    }
}

/* Who waits for whom. The ranks that have not come are named first: they are what a person looks for. */
static void write_message_report(const struct comm *comm, const struct op *op, double seconds, char *text, size_t bytes)
{
    char what[256], one[160];
    size_t used;

    p2p_describe(op, what, sizeof(what));
    used = (size_t)snprintf(text, bytes, "%s; nothing moved on rank %d for %.3g s (setting TIMEOUT)", what, comm->rank,
                            seconds);
    for (int i = 0; i < comm->n_local && used + 1 < bytes; i++) {
        if (comm->local[i] == comm->rank)
            continue;
        describe_rank(comm, comm->local[i], one, sizeof(one));
        used += (size_t)snprintf(text + used, bytes - used, "; %s", one);
    }
}

static void write_report(const struct comm *comm, const struct meet *meet, const struct call *call, double seconds,
                         char *text, size_t bytes)
{
    char one[160], where[160] = "";
    size_t used;
    int missing = -1;

    if (meet)
        missing = meet_missing(comm, meet);
    exec_describe(comm, where, sizeof(where));
    used = (size_t)snprintf(text, bytes, "%s (call %llu, count %zu) on rank %d: nothing moved for %.3g s (setting TIMEOUT)",
                            coll_name(call->kind), (unsigned long long)comm->meetings, call->count, comm->rank, seconds);
    if (missing >= 0 && used < bytes)
        used += (size_t)snprintf(text + used, bytes - used, "; waiting for rank %d%s, which has not called it", missing,
                                 comm_is_local(comm, missing) ? "" : " or another rank of its node");
    else if (where[0] && used < bytes)
        used += (size_t)snprintf(text + used, bytes - used, "; here: %s", where);
    for (int i = 0; i < comm->n_local && used + 1 < bytes; i++) {
        if (comm->local[i] == comm->rank)
            continue;
        describe_rank(comm, comm->local[i], one, sizeof(one));
        used += (size_t)snprintf(text + used, bytes - used, "; %s", one);
    }
}

static int look_around(struct watch *watch, struct comm *comm, const struct meet *meet, const struct call *call,
                       uint64_t now)
{
    uint64_t progress = atomic_load_explicit(&comm->progress, memory_order_relaxed);
    double timeout = comm->cfg->timeout;
    char text[sizeof(comm->failed_text)];
    int flag, code;

    for (int i = 0; i < comm->n_local; i++) {
        int rank = comm->local[i];
        if (rank == comm->rank || !process_ended(comm->pids[rank]))
            continue;
        /* One that ended because of a failure has told us before. */
        code = comm_failed(comm);
        if (code)
            return code;
        snprintf(text, sizeof(text), "rank %d (process %d) has died; rank %d was waiting for it or others", rank,
                 comm->pids[rank], comm->rank);
        return comm_fail(comm, HETMPI_ERR_PEER, text);
    }
    code = notice_look(comm);
    if (code)
        return code;
    if (progress != watch->progress) {
        watch->progress = progress;
        watch->began_ns = now;
    }
    if (timeout > 0 && (double)(now - watch->began_ns) > timeout * 1e9) {
        double seconds = (double)(now - watch->began_ns) / 1e9;
        const struct op *message = watch->op && watch->op->p2p ? watch->op : NULL;
        if (!watch->locked)
            engine_lock();   /* the queue may be moving in another thread */
        if (!message && !call && !comm->head)
            message = p2p_first(comm);
        if (message)
            write_message_report(comm, message, seconds, text, sizeof(text));
        else if (call)
            write_report(comm, meet, call, seconds, text, sizeof(text));
        else if (comm->head)
            write_report(comm, comm->head->state == OP_MEET ? &comm->head->meet : NULL, &comm->head->call, seconds, text,
                         sizeof(text));
        else
            text[0] = '\0';
        if (!watch->locked)
            engine_unlock();
        return text[0] ? comm_fail(comm, HETMPI_ERR_TIMEOUT, text) : HETMPI_SUCCESS;
    }
    /* A peer may be stuck in an MPI call that needs this process to make progress. */
    if (proc_may_call_mpi())
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &flag, MPI_STATUS_IGNORE);
    return HETMPI_SUCCESS;
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
        proc_nap(50000);
    else if (comm->crowded && watch->polls > (unsigned)comm->spin + CROWDED_YIELDS)
        proc_nap(10000);
    if (now - watch->looked_ns < LOOK_EVERY_NS)
        return HETMPI_SUCCESS;
    watch->looked_ns = now;
    return look_around(watch, comm, meet, call, now);
}
