/*
 * Reports: when waiting ends in an error, and on demand, what every rank is doing, as far as it can be learnt: as text, and
 * as JSON in the file that the setting REPORT names. The ranks that something is wrong with come first.
 */
#ifndef HETMPI_REPORT_H
#define HETMPI_REPORT_H

#include "core/status.h"

enum report_why { REPORT_TIMEOUT, REPORT_PEER, REPORT_MISMATCH, REPORT_DUMP };

/* What the reporting rank knows by itself. */
struct report {
    enum report_why why;
    const char *head;          /* the error's first words */
    uint64_t number;           /* of the collective that does not go on; 0: none */
    uint64_t what, count;      /* as this rank called it: see meet.h */
    int missing;               /* rank of another node whose node has not come to it, -1 */
    int peer;                  /* other end of the message that is waited for, -1 */
};

/* One rank of a node reports for all: true for the first that claims it, for a moment. The others hear of the failure
 * from it. */
bool report_claim(struct comm *comm);
/* Gathers what the ranks do, writes the report, and puts into text the error's words. HETMPI_SUCCESS, or the failure of
 * the communicator that another rank reported meanwhile. Takes 0.6 s at most. */
int report_failure(struct comm *comm, const struct report *report, char *text, size_t bytes);
/* The ranks called different things; all know, rank 0 writes the file. */
void report_mismatch(struct comm *comm, uint64_t number, const char *text);
/* Set-up of a communicator ended: nothing is known of its ranks but what this process's other communicators tell. Under
 * the engine's lock. */
void report_setup(const char *text);
/* On demand; comm is waited on, NULL: in set-up. Under the engine's lock. */
void report_dump(struct comm *comm);

#endif
