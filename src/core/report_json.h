/* The JSON of a report, written to the file that the setting REPORT names: docs/report.md describes it. */
#ifndef HETMPI_REPORT_JSON_H
#define HETMPI_REPORT_JSON_H

#include "core/report.h"

/* What is wrong with a rank, the worst last. */
enum suspicion {
    SUSPECT_NONE, SUSPECT_IDLE, SUSPECT_SILENT, SUSPECT_PEER, SUSPECT_OTHER, SUSPECT_ABSENT, SUSPECT_STOPPED,
    SUSPECT_ENDED
};
/* report.c */
enum suspicion report_judge(const struct comm *comm, const struct report *report, const struct status_rank *s);
const char *report_reason(enum suspicion suspicion);

struct report_json;
/* NULL where no file is asked for (or memory is short): the others do nothing then. */
struct report_json *report_json_begin(enum report_why why, const char *text);
void report_json_add(struct report_json *json, const struct comm *comm, const struct report *report,
                     const struct status_rank *all);
/* Puts the file in place as a whole, and frees. Trouble is told in the log. */
void report_json_write(struct report_json *json);

#endif
