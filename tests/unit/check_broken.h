/* What tests of the symbolic checker share: small topologies, and copies of schedules to break. */
#ifndef HETMPI_CHECK_BROKEN_H
#define HETMPI_CHECK_BROKEN_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "check_sched.h"
#include "core/log.h"

enum { MAX_RANKS = 8 };

/* The island of each rank, a character each; behind a colon its node. */
static inline void build_topology(struct topo *topo, const char *islands)
{
    struct topo_rank facts[MAX_RANKS] = {0};
    const char *nodes = strchr(islands, ':');
    int ranks = nodes ? (int)(nodes - islands) : (int)strlen(islands);
    char why[96];
    for (int i = 0; i < ranks; i++)
        facts[i] = (struct topo_rank){.island_key = (uint64_t)islands[i], .weight = (uint32_t)(1 + i % 2),
                                      .node_key = nodes ? (uint64_t)nodes[1 + i] : 0};
    assert_int_equal(topo_build(topo, facts, ranks, 0), 0);
    topo_choose_levels(topo, 0, why, sizeof(why));
    assert_int_equal(topo->levels, nodes ? 2 : 1);
}

static inline void *copy_of(const void *from, size_t used, size_t room)
{
    void *to = calloc(1, room + 1);
    assert_non_null(to);
    if (used)
        memcpy(to, from, used);
    return to;
}

/* With room for one more step and scratch. */
static inline struct sched *clone(const struct sched *s)
{
    struct sched *c = copy_of(s, sizeof(*s), sizeof(*s));
    size_t steps = (size_t)s->n_steps * sizeof(*s->steps), refs = (size_t)s->n_refs * sizeof(*s->refs);
    size_t scratch = (size_t)s->n_scratch * sizeof(*s->scratch);
    c->steps = copy_of(s->steps, steps, steps + sizeof(*s->steps));
    c->refs = copy_of(s->refs, refs, refs);
    c->scratch = copy_of(s->scratch, scratch, scratch + sizeof(*s->scratch));
    return c;
}

static inline bool is_local(const struct sched_step *s)
{
    return s->kind == STEP_LOCAL_REDUCE || s->kind == STEP_LOCAL_SPREAD;
}

#endif
