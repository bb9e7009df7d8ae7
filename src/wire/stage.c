/* Copies between the elements of a message and staging memory; see stage.h. */
#include "wire/stage.h"

#include <string.h>

#include "hetmpi.h"

void *stage_span(const struct sched_view *view, size_t first, size_t length)
{
    void *start;
    size_t done = sched_view_run(view, first, length, &start);

    while (done < length) {
        void *next;
        size_t run = sched_view_run(view, first + done, length - done, &next);
        if ((char *)next != (char *)start + done * view->element)
            return NULL;
        done += run;
    }
    return start;
}

void stage_copy_now(enum stage_way way, const struct sched_view *view, size_t first, size_t length, void *staging)
{
    char *side = staging;

    for (size_t done = 0; done < length;) {
        void *address;
        size_t run = sched_view_run(view, first + done, length - done, &address);
        if (way == STAGE_OUT)
            memcpy(side, address, run * view->element);
        else
            memcpy(address, side, run * view->element);
        side += run * view->element;
        done += run;
    }
}

int stage_copy_async(struct stage_lane *lane, enum stage_way way, const struct sched_view *view, size_t first,
                     size_t length, void *staging, mem_event_t **event)
{
    mem_stream_t **stream = &lane->streams[lane->turn++ % STAGE_STREAMS];
    char *side = staging;
    int rc;

    if (!*stream && (rc = mem_stream_create(stream)))
        return rc;
    if (!*event && (rc = mem_event_create(event)))
        return rc;
    for (size_t done = 0; done < length;) {
        void *address;
        size_t run = sched_view_run(view, first + done, length - done, &address);
        size_t bytes = run * view->element;
        rc = way == STAGE_OUT ? mem_copy_async(side, address, bytes, *stream)
                              : mem_copy_async(address, side, bytes, *stream);
        if (rc)
            return rc;
        side += bytes;
        done += run;
    }
    return mem_event_record(*event, *stream);
}

int stage_lane_clear(struct stage_lane *lane)
{
    int first = HETMPI_SUCCESS;

    for (int i = 0; i < STAGE_STREAMS; i++) {
        if (!lane->streams[i])
            continue;
        int rc = mem_stream_destroy(lane->streams[i]);
        if (!first)
            first = rc;
        lane->streams[i] = NULL;
    }
    return first;
}
