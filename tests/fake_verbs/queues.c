/* Completion queues, their channels, shared receive queues: see fake.h. */
#include "fake.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

struct fake_channel { struct ibv_comp_channel channel; int write_fd; };

static struct ibv_cq *cq_of_place[FAKE_CQS];   /* of this process, for events */

static struct fake_cq_ring *ring_of(struct ibv_cq *cq)
{
    return &fake_self()->hub->cq[cq->handle % FAKE_CQS];
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
    struct fake_channel *made = calloc(1, sizeof(*made));
    int fds[2];

    if (!made)
        return NULL;
    if (pipe(fds)) {
        free(made);
        return NULL;
    }
    made->channel.context = context;
    made->channel.fd = fds[0];
    made->write_fd = fds[1];
    return &made->channel;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
    if (channel->refcnt > 0)
        return EBUSY;
    close(channel->fd);
    close(((struct fake_channel *)channel)->write_fd);
    free(channel);
    return 0;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int entries, void *user, struct ibv_comp_channel *channel,
                             int vector)
{
    struct fake_hub *hub = fake_self()->hub;
    struct ibv_cq *made = calloc(1, sizeof(*made));
    uint32_t place = 0, none = 0;

    (void)vector;
    while (made && place < FAKE_CQS && !atomic_compare_exchange_strong(&hub->cq[place].number, &none, UINT32_MAX)) {
        place++;
        none = 0;
    }
    if (!made || place == FAKE_CQS || entries <= 0 || entries > FAKE_RING) {
        if (made && place < FAKE_CQS)
            atomic_store(&hub->cq[place].number, 0);
        free(made);
        errno = entries <= 0 || entries > FAKE_RING ? EINVAL : ENOMEM;
        return NULL;
    }
    made->context = context;
    made->channel = channel;
    made->cq_context = user;
    made->cqe = entries;
    made->handle = fake_number(place, FAKE_CQS);
    hub->cq[place].armed = 0;
    hub->cq[place].event_fd = channel ? ((struct fake_channel *)channel)->write_fd : -1;
    hub->cq[place].head = hub->cq[place].tail = 0;
    hub->cq[place].room = (uint64_t)entries;
    cq_of_place[place] = made;
    if (channel)
        channel->refcnt++;
    atomic_store(&hub->cq[place].number, made->handle);
    return made;
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
    struct fake_cq_ring *ring = ring_of(cq);

    fake_lock(&ring->lock);
    atomic_store(&ring->number, 0);
    pthread_mutex_unlock(&ring->lock);
    if (cq->channel)
        cq->channel->refcnt--;
    free(cq);
    return 0;
}

int fake_req_notify_cq(struct ibv_cq *cq, int solicited)
{
    struct fake_cq_ring *ring = ring_of(cq);

    (void)solicited;
    fake_lock(&ring->lock);
    ring->armed = 1;
    pthread_mutex_unlock(&ring->lock);
    return 0;
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **user)
{
    uint32_t place;

    if (read(channel->fd, &place, sizeof(place)) != (ssize_t)sizeof(place))
        return -1;
    *cq = cq_of_place[place];
    *user = (*cq)->cq_context;
    return 0;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned n)
{
    (void)cq;
    (void)n;
}

/* Wakes whoever waits at the channel of a queue, of this process or another. */
static void wake(struct fake_peer *peer, uint32_t number, int event_fd)
{
    uint32_t place = number % FAKE_CQS;
    int fd = event_fd;

    if (peer != fake_self()) {
        pthread_mutex_lock(&peer->lock);
        if (peer->channel[place].number != number) {
            if (peer->channel[place].number)
                close(peer->channel[place].fd);
            peer->channel[place].fd = fake_open(peer->pid, event_fd, O_WRONLY | O_NONBLOCK);
            peer->channel[place].number = number;
        }
        fd = peer->channel[place].fd;
        pthread_mutex_unlock(&peer->lock);
    }
    (void)!write(fd, &place, sizeof(place));
}

bool fake_cq_push(struct fake_peer *peer, uint32_t number, const struct ibv_wc *wc)
{
    struct fake_cq_ring *ring = &peer->hub->cq[number % FAKE_CQS];
    int event_fd = -1;
    bool room;

    fake_lock(&ring->lock);
    room = atomic_load(&ring->number) == number && ring->tail - ring->head < ring->room;
    if (room) {
        ring->wc[ring->tail++ % FAKE_RING] = *wc;
        if (ring->armed)
            event_fd = ring->event_fd;
        ring->armed = 0;
    }
    pthread_mutex_unlock(&ring->lock);
    if (event_fd >= 0)
        wake(peer, number, event_fd);
    return room;
}

int fake_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
    struct fake_cq_ring *ring = ring_of(cq);
    int got = 0;

    fake_lock(&ring->lock);
    while (got < n && ring->head < ring->tail)
        wc[got++] = ring->wc[ring->head++ % FAKE_RING];
    pthread_mutex_unlock(&ring->lock);
    return got;
}

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
    struct fake_hub *hub = fake_self()->hub;
    struct ibv_srq *made = calloc(1, sizeof(*made));
    uint32_t place = 0, none = 0;

    while (made && place < FAKE_SRQS && !atomic_compare_exchange_strong(&hub->srq[place].number, &none, UINT32_MAX)) {
        place++;
        none = 0;
    }
    if (!made || place == FAKE_SRQS || attr->attr.max_wr > FAKE_RING) {
        if (made && place < FAKE_SRQS)
            atomic_store(&hub->srq[place].number, 0);
        free(made);
        errno = ENOMEM;
        return NULL;
    }
    made->context = pd->context;
    made->pd = pd;
    made->srq_context = attr->srq_context;
    made->handle = fake_number(place, FAKE_SRQS);
    hub->srq[place].head = hub->srq[place].tail = 0;
    hub->srq[place].room = attr->attr.max_wr;
    atomic_fetch_add(&((struct fake_pd *)pd)->users, 1);
    atomic_store(&hub->srq[place].number, made->handle);
    return made;
}

int ibv_destroy_srq(struct ibv_srq *srq)
{
    struct fake_srq_ring *ring = &fake_self()->hub->srq[srq->handle % FAKE_SRQS];

    fake_lock(&ring->lock);
    atomic_store(&ring->number, 0);
    pthread_mutex_unlock(&ring->lock);
    atomic_fetch_sub(&((struct fake_pd *)srq->pd)->users, 1);
    free(srq);
    return 0;
}

int fake_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    struct fake_srq_ring *ring = &fake_self()->hub->srq[srq->handle % FAKE_SRQS];
    int error = 0;

    fake_lock(&ring->lock);
    for (; wr && !error; wr = wr->next) {
        if (wr->num_sge > 0)
            error = EINVAL;   /* no sends here */
        else if (ring->tail - ring->head >= ring->room)
            error = ENOMEM;
        else
            ring->wr_id[ring->tail++ % FAKE_RING] = wr->wr_id;
        if (error)
            *bad = wr;
    }
    pthread_mutex_unlock(&ring->lock);
    return error;
}

bool fake_srq_pop(struct fake_peer *peer, uint32_t number, uint64_t *wr_id)
{
    struct fake_srq_ring *ring = &peer->hub->srq[number % FAKE_SRQS];
    bool found;

    fake_lock(&ring->lock);
    found = atomic_load(&ring->number) == number && ring->head < ring->tail;
    if (found)
        *wr_id = ring->wr_id[ring->head++ % FAKE_RING];
    pthread_mutex_unlock(&ring->lock);
    return found;
}
