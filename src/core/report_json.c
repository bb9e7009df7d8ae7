/* The JSON of a report: see report_json.h. */
#include "core/report_json.h"

#include <errno.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/log.h"
#include "core/proc.h"
#include "hetmpi.h"

struct report_json { struct json_object *root, *comms; };

static void add_text(struct json_object *object, const char *key, const char *text)
{
    json_object_object_add(object, key, text ? json_object_new_string(text) : NULL);
}

static void add_number(struct json_object *object, const char *key, int64_t value)
{
    json_object_object_add(object, key, json_object_new_int64(value));
}

static void add_rank_or_null(struct json_object *object, const char *key, int rank)
{
    json_object_object_add(object, key, rank >= 0 ? json_object_new_int(rank) : NULL);
}

struct report_json *report_json_begin(enum report_why why, const char *text)
{
    static const char *const whys[] = {"timeout", "peer", "mismatch", "dump"};
    const struct cfg *cfg = cfg_process();
    struct report_json *json;
    char when[32];
    time_t now = time(NULL);
    struct tm utc;

    if (!cfg || !cfg->report[0])
        return NULL;
    json = calloc(1, sizeof(*json));
    if (!json)
        return NULL;
    json->root = json_object_new_object();
    json->comms = json_object_new_array();
    gmtime_r(&now, &utc);
    strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%SZ", &utc);
    add_text(json->root, "hetmpi", hetmpi_version());
    add_text(json->root, "time", when);
    add_text(json->root, "why", whys[why]);
    add_text(json->root, "message", text);
    add_number(json->root, "world_rank", proc_world_rank());
    add_number(json->root, "world_size", proc_world_size());
    json_object_object_add(json->root, "communicators", json->comms);
    return json;
}

static struct json_object *call_object(const struct status_rank *s)
{
    unsigned traits = coll_traits((enum coll_kind)(s->what & 255));
    struct json_object *call = json_object_new_object();

    add_number(call, "number", (int64_t)s->posted);
    add_text(call, "collective", coll_name((enum coll_kind)(s->what & 255)));
    if ((s->what & 255) == COLL_BARRIER)
        return call;
    if (!(traits & (COLL_TABLE | COLL_OWN_TABLE)))
        add_number(call, "count", (int64_t)s->count);
    add_text(call, "type", red_type_name((enum red_type)(s->what >> 8 & 255)));
    if (traits & COLL_REDUCES)
        add_text(call, "op", red_op_name((enum red_op)(s->what >> 16 & 255)));
    if (traits & COLL_ROOTED)
        add_number(call, "root", (int64_t)(s->what >> 32));
    json_object_object_add(call, "in_place", json_object_new_boolean((s->what & MEET_IN_PLACE) != 0));
    return call;
}

static void add_place(struct json_object *object, const struct status_rank *s)
{
    static const char *const steps[] = {"local_reduce", "local_spread", "send", "recv", "reduce", "copy"};

    add_text(object, "phase", sched_phase_name((enum sched_phase)s->phase));
    if (s->phase != PHASE_MEET) {
        add_text(object, "step", s->step < sizeof(steps) / sizeof(steps[0]) ? steps[s->step] : NULL);
        add_number(object, "chunk", (int64_t)s->chunk);
        add_number(object, "chunks", (int64_t)s->chunks);
    }
    add_rank_or_null(object, "peer", s->waits_for);
}

static void add_wait(struct json_object *object, const struct status_rank *s)
{
    static const char *const waits[] = {"nothing", "collective", "send", "recv", "elsewhere", "set-up"};
    struct json_object *message;

    add_text(object, "waits_in", status_waits(s) && s->wait < sizeof(waits) / sizeof(waits[0]) ? waits[s->wait] : NULL);
    if (!status_waits(s))
        return;
    if (s->wait == WAIT_SEND || s->wait == WAIT_RECV) {
        message = json_object_new_object();
        add_rank_or_null(message, "peer", s->peer);
        add_rank_or_null(message, "tag", s->tag);
        add_number(message, "bytes", (int64_t)s->bytes);
        json_object_object_add(object, "message", message);
    } else if (s->wait == WAIT_ELSEWHERE) {
        add_text(object, "elsewhere", coll_name((enum coll_kind)(s->other_what & 255)));
    }
}

static struct json_object *rank_object(const struct comm *comm, const struct report *report,
                                       const struct status_rank *s)
{
    static const char *const lives[] = {"no answer", "running", "stopped", "ended"};
    struct json_object *object = json_object_new_object();
    char doing[256];

    status_describe(s, doing, sizeof(doing));
    add_number(object, "rank", s->rank);
    add_number(object, "node", comm->topo.node_of[s->rank]);
    add_number(object, "island", comm->topo.island_of[s->rank]);
    add_text(object, "vendor", comm->vendors ? comm->vendors[s->rank] : NULL);
    add_number(object, "process", s->pid);
    add_text(object, "state", s->life < sizeof(lives) / sizeof(lives[0]) ? lives[s->life] : NULL);
    add_text(object, "suspect", report_reason(report_judge(comm, report, s)));
    add_text(object, "doing", doing);
    if (s->life == LIFE_UNKNOWN)
        return object;
    add_number(object, "last_finished", (int64_t)s->finished);
    json_object_object_add(object, "in_call", json_object_new_boolean(status_in_collective(s)));
    json_object_object_add(object, "call", s->posted ? call_object(s) : NULL);   /* the last, maybe finished */
    if (status_in_collective(s))
        add_place(object, s);
    add_wait(object, s);
    return object;
}

void report_json_add(struct report_json *json, const struct comm *comm, const struct report *report,
                     const struct status_rank *all)
{
    struct json_object *object, *ranks, *suspects;

    if (!json)
        return;
    object = json_object_new_object();
    ranks = json_object_new_array();
    suspects = json_object_new_array();
    add_number(object, "size", comm->size);
    add_number(object, "rank", comm->rank);
    add_number(object, "nodes", comm->topo.nodes);
    add_number(object, "islands", comm->topo.islands);
    json_object_object_add(object, "call", report->number ? json_object_new_int64((int64_t)report->number) : NULL);
    for (int r = 0; r < comm->size; r++) {
        json_object_array_add(ranks, rank_object(comm, report, &all[r]));
        if (report_judge(comm, report, &all[r]) != SUSPECT_NONE)
            json_object_array_add(suspects, json_object_new_int(r));
    }
    json_object_object_add(object, "suspects", suspects);
    json_object_object_add(object, "ranks", ranks);
    json_object_array_add(json->comms, object);
}

/* %r is this rank of MPI_COMM_WORLD. */
static void expand(const char *path, char *out, size_t bytes)
{
    size_t used = 0;

    while (*path && used + 1 < bytes) {
        if (path[0] == '%' && path[1] == 'r') {
            int n = snprintf(out + used, bytes - used, "%d", proc_world_rank());
            used += n > 0 ? (size_t)n : 0;
            path += 2;
        } else {
            out[used++] = *path++;
        }
    }
    out[used < bytes ? used : bytes - 1] = '\0';
}

void report_json_write(struct report_json *json)
{
    char path[sizeof(((struct cfg *)0)->report) + 16], fresh[sizeof(path) + 32];

    if (!json)
        return;
    expand(cfg_process()->report, path, sizeof(path));
    /* Readers see all of a report or none; of two at once the later stays. */
    snprintf(fresh, sizeof(fresh), "%s.%d.tmp", path, (int)getpid());
    if (json_object_to_file_ext(fresh, json->root, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_NOSLASHESCAPE) != 0) {
        log_warn("REPORT=%s: cannot write %s: %s", cfg_process()->report, fresh, strerror(errno));
        unlink(fresh);
    } else if (rename(fresh, path) != 0) {
        log_warn("REPORT=%s: cannot rename %s to %s: %s", cfg_process()->report, fresh, path, strerror(errno));
        unlink(fresh);
    } else {
        log_info("report written to %s", path);
    }
    json_object_put(json->root);
    free(json);
}
