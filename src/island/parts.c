/* Copies and reductions of parts of virtual vectors: see parts.h. */
#include "island/parts.h"

#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "hetmpi.h"

/* Partials of groups: small enough to stay in the CPU's cache, large enough for a kernel. */
#define PIECE_HOST ((size_t)64 << 10)
#define PIECE_DEVICE ((size_t)1 << 20)

size_t part_space(const struct comm *comm, const struct island_op *op, int members)
{
    size_t first, length;

    part_of(comm, op, op->step->owners == OWNERS_ROOT ? op->step->root : members - 1, &first, &length);
    return first + length;
}

void part_taken(const struct comm *comm, const struct island_op *op, int from, int to, size_t *first, size_t *length)
{
    size_t begin, n, end;

    sched_owner_part(&comm->topo, op->step, from, &op->chunk, first, length);
    sched_reader_part(&comm->topo, op->step, to, &op->chunk, &begin, &n);
    end = *first + *length < begin + n ? *first + *length : begin + n;
    *first = *first > begin ? *first : begin;
    *length = end > *first ? end - *first : 0;
}

int part_copy(const struct sched_view *to, const struct sched_view *from, size_t first, size_t length, bool device,
              mem_stream_t *stream)
{
    size_t v, n, end = first + length;

    for (v = first; v < end; v += n) {
        void *dst, *src;
        int code;

        n = sched_view_run(from, v, end - v, &src);
        n = sched_view_run(to, v, n, &dst);
        if (dst == src)
            continue;
        if (device) {
            code = mem_copy_async(dst, src, n * from->element, stream);
            if (code != HETMPI_SUCCESS)
                return code;
        } else {
            memcpy(dst, src, n * from->element);
        }
    }
    return HETMPI_SUCCESS;
}

static int run_call(const struct part_reducer *r, const struct red_call *call, mem_stream_t *stream)
{
    if (r->device)
        return mem_reduce_async(call, stream);
    red_run(call);
    return HETMPI_SUCCESS;
}

/* All inputs in r->srcs, contiguous: groups of RED_MAX_INPUTS to partials, then the partials to dst. */
static int reduce_groups(const struct part_reducer *r, const struct island_op *op, void *dst, size_t count,
                         mem_stream_t *stream)
{
    const void *partials[RED_MAX_INPUTS];
    uint32_t group, groups = (r->n + RED_MAX_INPUTS - 1) / RED_MAX_INPUTS;
    struct red_call call = {.type = op->type, .op = op->op, .count = count};
    int code;

    call.dst_wide = true;
    for (group = 0; group < groups; group++) {
        uint32_t first = group * RED_MAX_INPUTS, left = r->n - first;

        call.n = left < RED_MAX_INPUTS ? left : RED_MAX_INPUTS;
        call.srcs = r->srcs + first;
        call.dst = r->partials + group * r->piece;
        partials[group] = call.dst;
        code = run_call(r, &call, stream);
        if (code != HETMPI_SUCCESS)
            return code;
    }
    call.src_wide = true;
    call.dst_wide = op->out_wide;
    call.divide_by = op->divide_by;
    call.n = groups;
    call.srcs = partials;
    call.dst = dst;
    return run_call(r, &call, stream);
}

int part_reduce(const struct part_reducer *r, const struct island_op *op, size_t first, size_t length,
                mem_stream_t *stream)
{
    size_t v, n, end = first + length, most = r->partials ? r->piece / red_wide_size(op->type) : SIZE_MAX;
    struct red_call call = {.type = op->type, .op = op->op, .dst_wide = op->out_wide, .divide_by = op->divide_by,
                            .n = r->n, .srcs = r->srcs};

    for (v = first; v < end; v += n) {
        void *address;
        int code;

        n = end - v < most ? end - v : most;
        for (uint32_t i = 0; i < r->n; i++) {
            n = sched_view_run(&r->inputs[i], v, n, &address);
            r->srcs[i] = address;
        }
        n = sched_view_run(&op->out, v, n, &address);
        if (r->partials) {
            code = reduce_groups(r, op, address, n, stream);
        } else {
            call.dst = address;
            call.count = n;
            code = run_call(r, &call, stream);
        }
        if (code != HETMPI_SUCCESS)
            return code;
    }
    return HETMPI_SUCCESS;
}

int part_reducer_open(struct part_reducer *r, uint32_t n, bool device)
{
    uint32_t groups = (n + RED_MAX_INPUTS - 1) / RED_MAX_INPUTS;
    void *partials = NULL;
    int code = HETMPI_SUCCESS;

    *r = (struct part_reducer){.device = device, .n = n, .piece = device ? PIECE_DEVICE : PIECE_HOST};
    if (groups > RED_MAX_INPUTS)
        return err_set(HETMPI_ERR_UNSUPPORTED, "an island of %u ranks: at most %u (divide it with the setting ISLANDS)",
                       n, RED_MAX_INPUTS * RED_MAX_INPUTS);
    r->inputs = calloc(n, sizeof(*r->inputs));
    r->srcs = calloc(n, sizeof(*r->srcs));
    if (!r->inputs || !r->srcs) {
        code = err_set(HETMPI_ERR_MEMORY, "no memory for the operands of an island of %u ranks", n);
        goto close;
    }
    if (groups > 1) {
        code = mem_alloc(groups * r->piece, &partials);
        if (code != HETMPI_SUCCESS)
            goto close;
        r->partials = partials;
    }
    return HETMPI_SUCCESS;

close:
    part_reducer_close(r);
    return code;
}

void part_reducer_close(struct part_reducer *r)
{
    mem_free(r->partials);
    free(r->inputs);
    free(r->srcs);
    *r = (struct part_reducer){0};
}
