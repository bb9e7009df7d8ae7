/*
 * The timing model: links that carry one transfer after the other, booked on the clock.
 *
 * A stream's thread books its transfer when it comes to it, for the time at which the transfer could have begun in the
 * model, even if the thread woke late; it then shows the end of the transfer at the booked time. So the rate of a link
 * is exact although threads are scheduled late, as long as they are not late all the time. Two streams that share a
 * link may be late in turns; therefore the link remembers its last idle times, and a transfer that was ready then uses
 * them. No transfer is booked before it was queued, so a link is never faster than its bandwidth.
 */
#include "mem/sim.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#define SECOND 1000000000ll
#define SLEEP_SLICE (SECOND / 20)   /* how late a long sleep sees that the runtime is stopping */

void sim_lane_init(struct sim_lane *lane, double bandwidth)
{
    memset(lane, 0, sizeof(*lane));
    pthread_mutex_init(&lane->lock, NULL);
    lane->bandwidth = bandwidth;
}

void sim_lane_clear(struct sim_lane *lane)
{
    pthread_mutex_destroy(&lane->lock);
}

static void gap_remove(struct sim_lane *lane, int i)
{
    memmove(&lane->gap[i], &lane->gap[i + 1], (size_t)(lane->gaps - i - 1) * sizeof(lane->gap[0]));
    lane->gaps--;
}

/* Inserts an idle time as number i. When there are too many, the oldest goes. */
static void gap_insert(struct sim_lane *lane, int i, int64_t from, int64_t to)
{
    if (lane->gaps == SIM_GAPS) {
        gap_remove(lane, 0);
        i = i > 0 ? i - 1 : 0;
    }
    memmove(&lane->gap[i + 1], &lane->gap[i], (size_t)(lane->gaps - i) * sizeof(lane->gap[0]));
    lane->gap[i].from = from;
    lane->gap[i].to = to;
    lane->gaps++;
}

/* Uses idle times from `ready` on for *need ns; returns the end of the last that was used (0: none). */
static int64_t use_gaps(struct sim_lane *lane, int64_t ready, int64_t *need)
{
    int64_t end = 0;
    int i = 0;

    while (i < lane->gaps && *need > 0) {
        int64_t from = lane->gap[i].from, to = lane->gap[i].to;
        int64_t start = from > ready ? from : ready;

        if (start >= to) {
            i++;
            continue;
        }
        end = to - start < *need ? to : start + *need;
        *need -= end - start;
        gap_remove(lane, i);
        if (start > from)
            gap_insert(lane, i++, from, start);
        if (end < to)
            gap_insert(lane, i++, end, to);
    }
    return end;
}

int64_t sim_lane_book(struct sim_lane *lane, int64_t ready, size_t bytes)
{
    int64_t need, end;

    if (lane->bandwidth <= 0)
        return ready;
    pthread_mutex_lock(&lane->lock);
    need = (int64_t)((double)bytes / lane->bandwidth * 1e9 + 0.5);
    end = use_gaps(lane, ready, &need);
    if (end < ready)
        end = ready;
    if (need > 0) {
        if (lane->free_at < ready) {
            gap_insert(lane, lane->gaps, lane->free_at, ready);
            lane->free_at = ready;
        }
        lane->free_at += need;
        end = lane->free_at;
    }
    pthread_mutex_unlock(&lane->lock);
    return end;
}

int64_t sim_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * SECOND + now.tv_nsec;
}

void sim_sleep_until(int64_t when)
{
    int64_t now;

    while ((now = sim_now()) < when && !atomic_load_explicit(&sim.stopping, memory_order_relaxed)) {
        int64_t until = when - now > SLEEP_SLICE ? now + SLEEP_SLICE : when;
        struct timespec at = {.tv_sec = until / SECOND, .tv_nsec = until % SECOND};

        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
            ;
    }
}
