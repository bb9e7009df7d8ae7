/*
 * Symbolic checker of schedules: runs the schedules of all ranks of a topology at once, on sets of contributions
 * instead of numbers, and says what is wrong with them.
 *
 * Found without running: dependencies that are missing (two steps touch the same memory, one writes, and nothing orders
 * them; buffers in place and scratch included), ranges outside buffers, messages without a partner or with an ambiguous
 * one, local steps that disagree with the owners' parts, wire bytes over the bound (of nodes too), unfair shares.
 * Found by running, with steps completing in a chosen order: deadlock, local steps issued in different orders, use of
 * undefined data, missing, doubled or misplaced contributions, operands in another order than the rule, wrong formats.
 */
#ifndef HETMPI_CHECK_SCHED_H
#define HETMPI_CHECK_SCHED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/sched.h"

enum check_order { CHECK_RANDOM, CHECK_OLDEST, CHECK_NEWEST, CHECK_LOW_RANKS, CHECK_HIGH_RANKS, CHECK_ORDERS };
enum { CHECK_STAGE_SEND = 1, CHECK_STAGE_RECV = 2 };

struct check_case {
    struct sched_call call;        /* stage_*: not used, see staged */
    bool same;                     /* allreduce, reduce: one pointer for both buffers; reduce_scatter, and
                                    * reduce_scatter_block without in_place: the result is this rank's block of the
                                    * input */
    const size_t *counts;          /* blocks of different lengths: for each rank; alltoallv: [from * ranks + to] */
    size_t gap;                    /* between displacements */
    const unsigned char *staged;   /* for each rank; NULL: none. Buffers in place must be staged both or not at all */
    size_t count, chunk;           /* count: with counts, the largest */
    int window, delay;
    enum check_order order;
    uint64_t seed;
};

/* Builds the schedules of all ranks; a code of hetmpi_error. check_free frees them (NULL entries are fine). */
int check_build(const struct topo *topo, const struct check_case *c, struct sched **scheds);
void check_free(const struct topo *topo, struct sched **scheds);
/* True when the schedules do what the collective is defined to do; else `why` says what is wrong. */
#define CHECK_WHY 400
bool check_schedules(const struct topo *topo, const struct check_case *c, struct sched *const *scheds,
                     char why[CHECK_WHY]);
/* Gives back the memory that the checker keeps between calls. */
void check_end(void);

#endif
