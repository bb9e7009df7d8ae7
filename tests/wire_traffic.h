/*
 * Random traffic over wires, for their tests: every rank computes from one seed who sends what to whom, moves its part
 * as the engine would (begin in order, try again when refused, poll everything), and checks every byte. Addresses
 * are computed here on their own, not by the library.
 */
#ifndef WIRE_TRAFFIC_H
#define WIRE_TRAFFIC_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/comm.h"
#include "core/log.h"
#include "mem/mem.h"
#include "wire/wire.h"

enum traffic_order {
    TRAFFIC_WINDOW,    /* as the engine: a window of chunks, older messages first */
    TRAFFIC_BACKWARDS, /* everything is sent at once, received one by one from the last to the first */
};

struct traffic {
    struct comm *comm;
    uint32_t seed;
    int ops, chunks, channels, window;
    size_t most;               /* elements of a message */
    enum traffic_order order;
    bool device;               /* buffers of some messages are device memory */
    bool one_way;              /* only from lower to higher ranks */
    double seconds;            /* longest run */
    /* Results. */
    int refused, moved;
    char error[512];
};

struct traffic_message {
    int src, dst, layout, blocks;
    uint64_t op;
    uint32_t chunk, hash;
    uint16_t channel;
    size_t element, length;
    bool send, device;         /* of this rank's side */
    int state;                 /* 0 to begin, 1 begun, 2 done */
    struct wire_xfer xfer;
    int ranks[5];
    unsigned char *image;      /* what the buffer holds, for receives: must hold at the end */
    void *buffer;
    size_t bytes;
};

static uint32_t traffic_hash(uint32_t a, uint32_t b)
{
    uint32_t h = a * 2654435761u ^ (b + 0x9e3779b9u + (a << 6));

    h ^= h >> 16;
    h *= 0x7feb352du;
    h ^= h >> 15;
    h *= 0x846ca68bu;
    return h ^ h >> 16;
}

static double traffic_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* A message of bytes, by hand. */
static inline struct wire_xfer traffic_plain(int peer, void *base, size_t bytes)
{
    return (struct wire_xfer){ .peer = peer, .op = 1, .length = bytes,
                               .view = { .base = base, .element = 1, .layout = LAYOUT_NONE } };
}

/* Polls it to its end. False: an error, or it takes too long. */
static inline bool traffic_finish(struct wire *wire, struct wire_xfer *x)
{
    double until = traffic_now() + 30;
    bool done = false;

    while (!done && traffic_now() < until)
        if (wire->ops->poll(wire, x, &done))
            return false;
    return done;
}

/* Byte offset of element i of the message in its buffer. */
static size_t traffic_place(const struct traffic_message *m, size_t i)
{
    const struct sched_view *v = &m->xfer.view;
    size_t at = m->xfer.first + i;

    switch (v->layout) {
    case LAYOUT_NONE:
        return (at - v->first) * v->element;
    case LAYOUT_VECTOR:
        return (v->chunk_first + at) * v->element;
    default:
        return ((size_t)m->ranks[at / v->L] * v->count + v->chunk_first + at % v->L) * v->element;
    }
}

/* The buffer of a message: elements with their values (if filled), everything else marked. */
static void traffic_image(struct traffic_message *m, unsigned char mark, bool filled)
{
    memset(m->image, mark, m->bytes);
    for (size_t i = 0; filled && i < m->length; i++) {
        unsigned char *to = m->image + traffic_place(m, i);
        uint32_t word = (uint32_t)i * 2246822519u + m->hash;
        for (size_t b = 0; b < m->element; b++)
            to[b] = (unsigned char)(word >> 8 * (b % 4)) ^ (unsigned char)(b / 4 * 31);
    }
}

static int traffic_prepare(struct traffic_message *m)
{
    struct wire_xfer *x = &m->xfer;
    struct sched_view *v = &x->view;

    memset(x, 0, sizeof(*x));
    x->peer = m->send ? m->dst : m->src;
    x->op = m->op;
    x->chunk = m->chunk;
    x->channel = m->channel;
    x->length = m->length;
    x->first = 1;
    v->element = m->element;
    v->layout = (uint8_t)m->layout;
    if (m->layout == LAYOUT_NONE) {
        x->first = 8;
        v->first = 7;
        m->bytes = (m->length + 2) * m->element;
    } else if (m->layout == LAYOUT_VECTOR) {
        v->chunk_first = 5;
        v->L = m->length + 2;
        m->bytes = (m->length + 9) * m->element;
    } else {
        for (int b = 0; b < m->blocks; b++)
            m->ranks[b] = m->blocks - 1 - b;
        v->ranks = m->ranks;
        v->L = (m->length + 1) / (size_t)m->blocks + 1;
        v->chunk_first = 2;
        v->count = v->L + 3;
        m->bytes = (size_t)m->blocks * v->count * m->element;
    }
    m->image = malloc(m->bytes);
    if (!m->image)
        return -2;
    traffic_image(m, m->send ? 0x5a : 0xee, m->send);
    int rc = m->device ? mem_alloc(m->bytes, &m->buffer) : 0;
    if (!m->device && !(m->buffer = malloc(m->bytes)))
        return -2;
    if (!rc && m->device)
        rc = mem_copy(m->buffer, m->image, m->bytes);
    else if (!rc)
        memcpy(m->buffer, m->image, m->bytes);
    v->base = m->buffer;
    return rc;
}

static void traffic_drop(struct traffic_message *m)
{
    if (m->device)
        mem_free(m->buffer);
    else
        free(m->buffer);
    free(m->image);
    m->buffer = NULL;
    m->image = NULL;
}

/* The message is done: is every byte of its buffer as it should be? */
static bool traffic_check(struct traffic *t, struct traffic_message *m)
{
    unsigned char *now = m->device ? malloc(m->bytes) : m->buffer;
    bool good = now && (!m->device || !mem_copy(now, m->buffer, m->bytes));

    if (!m->send)
        traffic_image(m, 0xee, true);
    for (size_t i = 0; good && i < m->bytes; i++)
        if (now[i] != m->image[i]) {
            snprintf(t->error, sizeof(t->error), "rank %d: %s %d->%d op %d chunk %u channel %u: byte %zu of %zu is "
                     "%02x, not %02x (layout %d, element %zu, length %zu)", t->comm->rank,
                     m->send ? "send" : "recv", m->src, m->dst, (int)m->op, m->chunk, m->channel, i, m->bytes, now[i],
                     m->image[i], m->layout, m->element, m->length);
            good = false;
        }
    if (m->device)
        free(now);
    return good;
}

static int traffic_rank_order(const void *a, const void *b)
{
    const struct traffic_message *x = a, *y = b;

    if (x->op != y->op)
        return x->op < y->op ? -1 : 1;
    if (x->chunk != y->chunk)
        return x->chunk < y->chunk ? -1 : 1;
    if (x->channel != y->channel)
        return x->channel < y->channel ? -1 : 1;
    return (x->hash > y->hash) - (x->hash < y->hash);
}

/* This rank's messages, in (op, chunk) order. */
static struct traffic_message *traffic_plan(const struct traffic *t, int *n)
{
    const struct comm *comm = t->comm;
    size_t most = (size_t)comm->size * 2 * (size_t)t->ops * (size_t)t->chunks * (size_t)t->channels;
    struct traffic_message *list = calloc(most, sizeof(*list));
    static const size_t elements[] = { 1, 2, 4, 8, 16 };

    *n = 0;
    for (int src = 0; list && src < comm->size; src++)
        for (int dst = 0; dst < comm->size; dst++) {
            bool mates = comm->topo.island_of[src] == comm->topo.island_of[dst];
            if ((src != comm->rank && dst != comm->rank) || (mates && !comm->island_ipc) || src == dst ||
                (t->one_way && src > dst))
                continue;
            for (int k = 0; k < t->ops * t->chunks * t->channels; k++) {
                uint32_t h = traffic_hash(traffic_hash(t->seed, (uint32_t)(src * 64 + dst)), (uint32_t)k);
                uint32_t side = traffic_hash(h, src == comm->rank);
                struct traffic_message *m = &list[*n];
                if (h % 8 == 0)
                    continue;
                *m = (struct traffic_message){ .src = src, .dst = dst, .hash = h, .send = src == comm->rank };
                m->op = 1 + (uint64_t)(k / t->channels / t->chunks);
                m->chunk = (uint32_t)(k / t->channels % t->chunks);
                m->channel = (uint16_t)(k % t->channels);
                m->element = elements[h / 8 % 5];
                m->length = 1 + traffic_hash(h, 77) % (h / 64 % 3 == 0 ? t->most : t->most / 50 + 1);
                m->layout = side % 3 == 0 ? LAYOUT_BLOCKS : side % 3 == 1 ? LAYOUT_VECTOR : LAYOUT_NONE;
                m->blocks = 1 + (int)(side / 8 % 5);
                m->device = t->device && side / 64 % 3 != 0;
                ++*n;
            }
        }
    if (list)
        qsort(list, (size_t)*n, sizeof(*list), traffic_rank_order);
    return list;
}

static uint64_t traffic_key(const struct traffic *t, const struct traffic_message *m)
{
    return m->op * (uint64_t)t->chunks + m->chunk;
}

/* Begins one message. 1: begun, 0: refused, -1: error. */
static int traffic_begin(struct traffic *t, struct traffic_message *m)
{
    struct wire *wire;
    int rc = m->buffer ? 0 : traffic_prepare(m);

    if (!rc)
        rc = wire_for(t->comm, m->xfer.peer, &wire);
    if (!rc)
        rc = m->send ? wire->ops->send(wire, &m->xfer) : wire->ops->recv(wire, &m->xfer);
    if (rc == COMM_AGAIN) {
        t->refused++;
        return 0;
    }
    if (rc) {
        snprintf(t->error, sizeof(t->error), "rank %d: begin: code %d: %s", t->comm->rank, rc, err_text());
        return -1;
    }
    m->state = 1;
    return 1;
}

/* Begins what the order allows; false on an error. */
static bool traffic_begin_all(struct traffic *t, struct traffic_message *list, int n)
{
    bool refused[2] = { false, false };
    uint64_t oldest = UINT64_MAX;
    bool receiving = false;

    for (int i = 0; i < n; i++) {
        if (list[i].state != 2 && traffic_key(t, &list[i]) < oldest)
            oldest = traffic_key(t, &list[i]);
        receiving = receiving || (!list[i].send && list[i].state == 1);
    }
    for (int k = 0; k < n; k++) {
        struct traffic_message *m = &list[k];
        if (m->state != 0 || refused[m->send])
            continue;
        if (t->order == TRAFFIC_WINDOW && traffic_key(t, m) >= oldest + (uint64_t)t->window)
            break;
        if (t->order == TRAFFIC_BACKWARDS && !m->send)
            continue;
        int rc = traffic_begin(t, m);
        if (rc < 0)
            return false;
        refused[m->send] = rc == 0;
    }
    for (int k = n - 1; t->order == TRAFFIC_BACKWARDS && !receiving && k >= 0; k--)
        if (!list[k].send && list[k].state == 0) {
            if (traffic_begin(t, &list[k]) < 0)
                return false;
            receiving = true;
        }
    return true;
}

static bool traffic_poll_all(struct traffic *t, struct traffic_message *list, int n, uint32_t round, bool *moved)
{
    int start = n ? (int)(traffic_hash(t->seed, round) % (uint32_t)n) : 0;

    *moved = false;
    for (int k = 0; k < n; k++) {
        struct traffic_message *m = &list[(start + k) % n];
        struct wire *wire;
        bool done = false;
        if (m->state != 1)
            continue;
        int rc = wire_for(t->comm, m->xfer.peer, &wire);
        if (!rc)
            rc = wire->ops->poll(wire, &m->xfer, &done);
        if (rc) {
            snprintf(t->error, sizeof(t->error), "rank %d: poll: code %d: %s", t->comm->rank, rc, err_text());
            return false;
        }
        if (!done)
            continue;
        *moved = true;
        t->moved++;
        m->state = 2;
        if (!traffic_check(t, m))
            return false;
        traffic_drop(m);
    }
    return true;
}

/* Moves all of it. On false, t->error says what went wrong. Buffers of a failed run are left to the process's end. */
static bool traffic_run(struct traffic *t)
{
    int n, left = 1;
    struct traffic_message *list = traffic_plan(t, &n);
    double until = traffic_now() + t->seconds;

    t->error[0] = 0;
    for (uint32_t round = 0; list && left; round++) {
        bool moved;
        if (!traffic_begin_all(t, list, n) || !traffic_poll_all(t, list, n, round, &moved))
            return false;
        left = 0;
        for (int i = 0; i < n; i++)
            left += list[i].state != 2;
        if (!moved)
            sched_yield();
        if (traffic_now() < until)
            continue;
        for (int i = 0; i < n && left; i++)
            if (list[i].state != 2) {
                snprintf(t->error, sizeof(t->error), "rank %d: %d of %d messages not done after %.0f s, first %d->%d "
                         "op %d chunk %u channel %u state %d", t->comm->rank, left, n, t->seconds, list[i].src,
                         list[i].dst,
                         (int)list[i].op, list[i].chunk, list[i].channel, list[i].state);
                return false;
            }
    }
    free(list);
    return list != NULL;
}

#endif
