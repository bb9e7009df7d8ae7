/* Which parts of a stretch of addresses are free: a sorted list of holes, best fit, neighbours joined. See sim.h. */
#include "mem/sim.h"

#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "hetmpi.h"

#define FIRST_HOLES 64

/* Room for as many holes as there can be once everything given out was given back one by one. */
static bool need_room(struct sim_space *space)
{
    size_t most = space->taken + 2, room = space->room ? space->room : FIRST_HOLES;
    struct sim_hole *holes;

    if (most < space->n + 2)
        most = space->n + 2;
    while (room < most)
        room *= 2;
    if (room == space->room)
        return true;
    holes = realloc(space->holes, room * sizeof(*holes));
    if (!holes)
        return false;
    space->holes = holes;
    space->room = room;
    return true;
}

int sim_space_init(struct sim_space *space, size_t first, size_t bytes)
{
    *space = (struct sim_space){.bytes = bytes - first};
    if (!need_room(space))
        return err_set(HETMPI_ERR_MEMORY, "sim: no memory for the list of free device memory");
    space->holes[0] = (struct sim_hole){.at = first, .bytes = bytes - first};
    space->n = 1;
    return HETMPI_SUCCESS;
}

void sim_space_clear(struct sim_space *space)
{
    free(space->holes);
    *space = (struct sim_space){0};
}

static void remove_hole(struct sim_space *space, size_t i)
{
    memmove(&space->holes[i], &space->holes[i + 1], (space->n - i - 1) * sizeof(space->holes[0]));
    space->n--;
}

bool sim_space_take(struct sim_space *space, size_t bytes, size_t *at)
{
    size_t best = space->n;

    if (!need_room(space))
        return false;
    for (size_t i = 0; i < space->n; i++)
        if (space->holes[i].bytes >= bytes && (best == space->n || space->holes[i].bytes < space->holes[best].bytes))
            best = i;
    if (best == space->n)
        return false;
    *at = space->holes[best].at;
    space->holes[best].at += bytes;
    space->holes[best].bytes -= bytes;
    if (space->holes[best].bytes == 0)
        remove_hole(space, best);
    space->taken++;
    space->used += bytes;
    return true;
}

void sim_space_give(struct sim_space *space, size_t at, size_t bytes)
{
    size_t i = 0;
    bool joins_before, joins_after;

    while (i < space->n && space->holes[i].at < at)
        i++;
    joins_before = i > 0 && space->holes[i - 1].at + space->holes[i - 1].bytes == at;
    joins_after = i < space->n && at + bytes == space->holes[i].at;
    if (joins_before) {
        space->holes[i - 1].bytes += bytes;
        if (joins_after) {
            space->holes[i - 1].bytes += space->holes[i].bytes;
            remove_hole(space, i);
        }
    } else if (joins_after) {
        space->holes[i].at = at;
        space->holes[i].bytes += bytes;
    } else {
        memmove(&space->holes[i + 1], &space->holes[i], (space->n - i) * sizeof(space->holes[0]));
        space->holes[i] = (struct sim_hole){.at = at, .bytes = bytes};
        space->n++;
    }
    space->taken--;
    space->used -= bytes;
}

size_t sim_space_largest(const struct sim_space *space)
{
    size_t largest = 0;

    for (size_t i = 0; i < space->n; i++)
        if (space->holes[i].bytes > largest)
            largest = space->holes[i].bytes;
    return largest;
}
