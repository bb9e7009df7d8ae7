/*
 * Faults planted in the library, to see that the random differential test finds them: linked with the library's own
 * objects and --wrap, this stands between the engine and the reductions, and between it and the builders of schedules.
 * HETMPI_TEST_FAULT names the fault:
 *
 *     bit        one bit of every 30th reduction's result
 *     operand    the last operand of a schedule's last reduction is left out
 *     undivided  a schedule's last reduction is taken for one of partial results
 *     block      the sources of two messages of equal shape are exchanged
 *     unordered  reductions and messages do not wait for what they read
 *     behind     a reduction writes one byte behind its result
 *     scale      a premultiplied sum's operands are not multiplied
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core/sched.h"
#include "hetmpi.h"
#include "reduce/reduce.h"

void __real_red_run(const struct red_call *call);
void __wrap_red_run(const struct red_call *call);
int __real_sched_build(const struct topo *topo, const struct sched_call *call, struct sched **out);
int __wrap_sched_build(const struct topo *topo, const struct sched_call *call, struct sched **out);

static bool planted(const char *fault)
{
    const char *name = getenv("HETMPI_TEST_FAULT");
    return name && strcmp(name, fault) == 0;
}

void __wrap_red_run(const struct red_call *call)
{
    static _Atomic unsigned calls;
    size_t bytes = call->count * (call->dst_wide ? red_wide_size(call->type) : red_size(call->type));
    struct red_call unscaled = *call;
    unscaled.scale = NULL;
    __real_red_run(planted("scale") ? &unscaled : call);
    if (planted("bit") && bytes && ++calls % 30 == 0)
        ((unsigned char *)call->dst)[bytes / 2] ^= 0x10;
    if (planted("behind") && bytes && ++calls % 10 == 0)
        ((unsigned char *)call->dst)[bytes] ^= 0x10;
}

static struct sched_step *last_reduce(struct sched *s)
{
    for (int i = s->n_steps - 1; i >= 0; i--)
        if (s->steps[i].kind == STEP_REDUCE && s->steps[i].n_in > 1)
            return &s->steps[i];
    return NULL;
}

static void exchange_sources(struct sched *s)
{
    for (int i = 0; i < s->n_steps; i++)
        for (int k = i + 1; k < s->n_steps; k++)
            if (s->steps[i].kind == STEP_SEND && s->steps[k].kind == STEP_SEND &&
                s->steps[i].in.buffer == s->steps[k].in.buffer && s->kind == COLL_ALLTOALL) {
                struct sched_ref ref = s->steps[i].in;
                s->steps[i].in = s->steps[k].in;
                s->steps[k].in = ref;
                return;
            }
}

/* The reductions of what came in messages no longer wait for it. */
static void forget_waiting(struct sched *s)
{
    for (int i = 0; i < s->n_steps; i++)
        if (s->steps[i].kind == STEP_REDUCE || s->steps[i].kind == STEP_SEND)
            memset(s->steps[i].deps, 0, sizeof s->steps[i].deps);
}

int __wrap_sched_build(const struct topo *topo, const struct sched_call *call, struct sched **out)
{
    int code = __real_sched_build(topo, call, out);
    struct sched_step *reduce;
    if (code || !*out)
        return code;
    reduce = last_reduce(*out);
    if (planted("operand") && reduce)
        reduce->n_in--;
    if (planted("undivided") && reduce)
        reduce->final = false;
    if (planted("block"))
        exchange_sources(*out);
    if (planted("unordered"))
        forget_waiting(*out);
    return code;
}
