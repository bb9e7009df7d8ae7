/*
 * Asking a running job what it is doing: the setting DUMP names a signal, or a file whose appearance or change asks. It
 * is looked for by whoever waits, never on a fast path.
 */
#ifndef HETMPI_DUMP_H
#define HETMPI_DUMP_H

#include "core/comm.h"

/* Installs the signal's handler, which calls the one that was there; HETMPI_ERR_CONFIG for what is neither. */
int dump_start(const char *setting);
void dump_stop(void);
/* Has somebody asked since the last time? comm: one that is waited on, or NULL. */
bool dump_asked(const struct comm *comm);

#endif
