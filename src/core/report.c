/* Reports of what the ranks do: see report.h. The JSON is made in report_json.c. */
#include "core/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/ask.h"
#include "core/log.h"
#include "core/proc.h"
#include "core/report_json.h"
#include "hetmpi.h"

#define PATIENCE_S 0.6             /* how long other nodes have to answer */
#define PATIENCE_PEER_S 0.15       /* ... when the reason is known already */
#define CLAIM_NS 900000000u        /* a claim that led to nothing is void after this */
#define LOGGED_RANKS 64            /* most lines of a report in the log, beside those of suspects */

/* ---- who is to blame ---- */

static bool called_other(const struct report *report, const struct status_rank *s)
{
    return s->what != report->what || (!(s->what & MEET_SUMS) && s->count != report->count);
}

enum suspicion report_judge(const struct comm *comm, const struct report *report, const struct status_rank *s)
{
    if (s->life == LIFE_ENDED)
        return SUSPECT_ENDED;
    if (s->life == LIFE_STOPPED)
        return SUSPECT_STOPPED;
    if (s->life == LIFE_UNKNOWN)
        return report->number && s->rank == report->missing ? SUSPECT_ABSENT : SUSPECT_SILENT;
    if (report->number && s->posted < report->number)
        return SUSPECT_ABSENT;
    if (report->number && s->posted == report->number && called_other(report, s))
        return SUSPECT_OTHER;
    if (s->rank == report->peer)
        return SUSPECT_PEER;
    if (s->rank != comm->rank && status_in_collective(s) && !status_waits(s))
        return SUSPECT_IDLE;
    return SUSPECT_NONE;
}

const char *report_reason(enum suspicion suspicion)
{
    static const char *const reasons[] = {
        [SUSPECT_NONE] = NULL, [SUSPECT_IDLE] = "does not go on", [SUSPECT_SILENT] = "does not answer",
        [SUSPECT_PEER] = "is the message's other end", [SUSPECT_OTHER] = "called something else",
        [SUSPECT_ABSENT] = "has not called it", [SUSPECT_STOPPED] = "is stopped", [SUSPECT_ENDED] = "has ended",
    };

    return reasons[suspicion];
}

bool report_claim(struct comm *comm)
{
    struct ctl *ctl = comm_leader_ctl(comm);
    uint64_t now = proc_now_ns(), claimed;

    if (!ctl)
        return true;
    claimed = atomic_load(&ctl->claim.value);
    return (!claimed || now - claimed > CLAIM_NS) && atomic_compare_exchange_strong(&ctl->claim.value, &claimed, now);
}

/* ---- text ---- */

static void rank_line(const struct comm *comm, const struct report *report, const struct status_rank *s, char *line,
                      size_t bytes)
{
    enum suspicion suspicion = report_judge(comm, report, s);
    char doing[256];

    status_describe(s, doing, sizeof(doing));
    if (suspicion == SUSPECT_NONE)
        snprintf(line, bytes, "rank %d: %s", s->rank, doing);
    else if (suspicion == SUSPECT_ABSENT)
        snprintf(line, bytes, "waiting for rank %d, which has not called it: %s", s->rank, doing);
    else
        snprintf(line, bytes, "rank %d %s: %s", s->rank, report_reason(suspicion), doing);
}

/* The error's words: as many ranks as there is room for, the suspects first. */
static void write_text(const struct comm *comm, const struct report *report, const struct status_rank *all, char *text,
                       size_t bytes)
{
    size_t used = (size_t)snprintf(text, bytes, "%s", report->head);
    char line[384];

    for (int suspicion = SUSPECT_ENDED; suspicion >= SUSPECT_NONE; suspicion--)
        for (int r = 0; r < comm->size && used + 1 < bytes; r++) {
            if ((int)report_judge(comm, report, &all[r]) != suspicion || (r == comm->rank && !suspicion))
                continue;
            rank_line(comm, report, &all[r], line, sizeof(line));
            used += (size_t)snprintf(text + used, bytes - used, "; %s", line);
        }
}

static void log_ranks(const struct comm *comm, const struct report *report, const struct status_rank *all)
{
    char line[384];
    int told = 0;

    log_print(LOG_WARN, "%s", report->head);
    for (int r = 0; r < comm->size; r++) {
        if (report_judge(comm, report, &all[r]) == SUSPECT_NONE && ++told > LOGGED_RANKS)
            continue;
        rank_line(comm, report, &all[r], line, sizeof(line));
        log_print(LOG_WARN, "report: %s", line);
    }
}

/* ---- the occasions ---- */

/* What the ranks of this node do. */
static struct status_rank *new_table(const struct comm *comm, uint64_t number)
{
    struct status_rank *all = malloc((size_t)comm->size * sizeof(*all));

    if (!all)
        log_warn("no memory for a report on %d ranks", comm->size);
    for (int r = 0; all && r < comm->size; r++)
        status_read(comm, r, number, &all[r]);
    return all;
}

static void write_json(struct comm *comm, const struct report *report, const struct status_rank *all, const char *text)
{
    struct report_json *json = report_json_begin(report->why, text);

    report_json_add(json, comm, report, all);
    report_json_write(json);
}

int report_failure(struct comm *comm, const struct report *report, char *text, size_t bytes)
{
    struct status_rank *all = new_table(comm, report->number);
    int code = HETMPI_SUCCESS;

    snprintf(text, bytes, "%s", report->head);
    if (!all)
        return HETMPI_SUCCESS;
    code = ask_nodes(comm, report->number, all, report->why == REPORT_PEER ? PATIENCE_PEER_S : PATIENCE_S);
    if (!code) {
        write_text(comm, report, all, text, bytes);
        if (log_get_level() >= LOG_WARN)
            log_ranks(comm, report, all);
        write_json(comm, report, all, text);
    }
    free(all);
    return code;
}

void report_mismatch(struct comm *comm, uint64_t number, const char *text)
{
    struct report report = {.why = REPORT_MISMATCH, .head = text, .number = number, .missing = -1, .peer = -1};
    struct status_rank *all;

    if (comm->rank != 0 || !cfg_process()->report[0])
        return;
    all = new_table(comm, number);
    if (!all)
        return;
    /* Rank 0's call is what the others are held against. */
    report.what = all[0].what;
    report.count = all[0].count;
    if (!ask_nodes(comm, number, all, PATIENCE_PEER_S))
        write_json(comm, &report, all, text);
    free(all);
}

/* What this rank says of itself is what the others are held against. */
static struct report report_of(const struct comm *comm, enum report_why why, const struct status_rank *all)
{
    const struct status_rank *me = &all[comm->rank], *leader = &all[comm_leader(comm)];
    struct report report = {.why = why, .missing = -1, .peer = -1};

    if (!status_in_collective(me)) {
        if (status_waits(me) && (me->wait == WAIT_SEND || me->wait == WAIT_RECV))
            report.peer = me->peer;
        return report;
    }
    report.number = me->posted;
    /* The rank that speaks for this node in meetings knows which other node has not come. */
    if (leader->posted == me->posted && leader->phase == PHASE_MEET)
        report.missing = leader->waits_for;
    report.what = me->what;
    report.count = me->count;
    return report;
}

/* Every communicator of the process that something is under way on, or all; those of other nodes are asked where it is
 * the one that is waited on. */
static void dump_all(struct comm *waited, enum report_why why, const char *text, bool idle_too)
{
    struct report_json *json = report_json_begin(why, text);

    if (why == REPORT_DUMP)
        log_print(LOG_WARN, "%s", text);
    for (struct comm *comm = comm_first(); comm; comm = comm->next) {
        struct status_rank *all;
        struct report report;
        char head[96];

        if (comm->size == 1 || comm->stillborn || (comm != waited && !idle_too && !comm->head && !p2p_first(comm)))
            continue;
        all = new_table(comm, 0);
        if (!all)
            continue;
        if (comm == waited)
            ask_nodes(comm, 0, all, PATIENCE_S);
        report = report_of(comm, why, all);
        snprintf(head, sizeof(head), "communicator of %d ranks, %d nodes; this is rank %d:", comm->size,
                 comm->topo.nodes, comm->rank);
        report.head = head;
        if (why == REPORT_DUMP || log_get_level() >= LOG_WARN)
            log_ranks(comm, &report, all);
        report_json_add(json, comm, &report, all);
        free(all);
    }
    report_json_write(json);
}

void report_setup(const char *text)
{
    dump_all(NULL, REPORT_TIMEOUT, text, true);
}

void report_dump(struct comm *comm)
{
    dump_all(comm, REPORT_DUMP, comm ? "what this job is doing (setting DUMP)"
                                     : "what this job is doing (setting DUMP): this rank sets a communicator up", !comm);
}
