/* Queue pairs, and the writes that are posted to them: see fake.h. */
#define _GNU_SOURCE   /* process_vm_writev */
#include "fake.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#define SGE_MAX 16
#define INLINE_MAX 512

struct fake_qp {
    struct ibv_qp qp;
    struct ibv_qp_init_attr init;
    struct fake_peer *peer;        /* from RTR on */
    uint32_t peer_number;
};

static struct fake_qp_place *place_of(struct ibv_qp *qp)
{
    return &fake_self()->hub->qp[qp->qp_num % FAKE_QPS];
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
    struct fake_hub *hub = fake_self()->hub;
    struct fake_qp *made = calloc(1, sizeof(*made));
    uint32_t place = 0, none = 0;

    while (made && place < FAKE_QPS && !atomic_compare_exchange_strong(&hub->qp[place].number, &none, UINT32_MAX)) {
        place++;
        none = 0;
    }
    if (!made || place == FAKE_QPS || attr->qp_type != IBV_QPT_RC || !attr->srq || attr->cap.max_inline_data > INLINE_MAX) {
        if (made && place < FAKE_QPS)
            atomic_store(&hub->qp[place].number, 0);
        free(made);
        errno = EINVAL;
        return NULL;
    }
    made->init = *attr;
    made->qp = (struct ibv_qp){.context = pd->context, .qp_context = attr->qp_context, .pd = pd, .send_cq = attr->send_cq,
                               .recv_cq = attr->recv_cq, .srq = attr->srq, .qp_num = fake_number(place, FAKE_QPS) & 0xffffff,
                               .state = IBV_QPS_RESET, .qp_type = IBV_QPT_RC};
    hub->qp[place].pd = ((struct fake_pd *)pd)->number;
    hub->qp[place].cq = attr->recv_cq->handle;
    hub->qp[place].srq = attr->srq->handle;
    atomic_store(&hub->qp[place].ready, 0);
    atomic_store(&hub->qp[place].number, made->qp.qp_num);
    atomic_fetch_add(&((struct fake_pd *)pd)->users, 1);
    return &made->qp;
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
    atomic_store(&place_of(qp)->number, 0);
    atomic_fetch_sub(&((struct fake_pd *)qp->pd)->users, 1);
    free(qp);
    return 0;
}

/* The process is in the last bytes of the address: see ibv_query_gid. */
static struct fake_peer *peer_at(const union ibv_gid *gid)
{
    return fake_peer_of(gid->raw[13] << 16 | gid->raw[14] << 8 | gid->raw[15]);
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
    static const int needed[] = {
        [IBV_QPS_INIT] = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
        [IBV_QPS_RTR] = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                        IBV_QP_MIN_RNR_TIMER,
        [IBV_QPS_RTS] = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
    };
    struct fake_qp *mine = (struct fake_qp *)qp;

    if (!(mask & IBV_QP_STATE))
        return 0;
    if (attr->qp_state <= IBV_QPS_RTS && attr->qp_state != IBV_QPS_RESET &&
        (qp->state != attr->qp_state - 1 || (mask & needed[attr->qp_state]) != needed[attr->qp_state]))
        return EINVAL;
    if (attr->qp_state == IBV_QPS_RTR) {
        mine->peer = peer_at(&attr->ah_attr.grh.dgid);
        mine->peer_number = attr->dest_qp_num;
        if (!mine->peer)
            return ETIMEDOUT;   /* as where an address cannot be resolved */
    }
    qp->state = attr->qp_state;
    atomic_store(&place_of(qp)->ready, qp->state == IBV_QPS_RTR || qp->state == IBV_QPS_RTS);
    return 0;
}

int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init)
{
    (void)mask;
    *attr = (struct ibv_qp_attr){.qp_state = qp->state, .cur_qp_state = qp->state, .dest_qp_num = ((struct fake_qp *)qp)->peer_number};
    *init = ((struct fake_qp *)qp)->init;
    return 0;
}

/* The bytes of a request, as this process can touch them. */
static enum ibv_wc_status gather(struct ibv_qp *qp, const struct ibv_send_wr *wr, struct iovec *from, size_t *bytes)
{
    *bytes = 0;
    for (int i = 0; i < wr->num_sge; i++) {
        const struct ibv_sge *sge = &wr->sg_list[i];
        const struct fake_region *region = NULL;

        from[i] = (struct iovec){(void *)(uintptr_t)sge->addr, sge->length};
        *bytes += sge->length;
        if ((wr->send_flags & IBV_SEND_INLINE) || sge->length == 0)
            continue;
        region = fake_find(fake_self(), sge->lkey, sge->addr, sge->length, 0, ((struct fake_pd *)qp->pd)->number);
        if (!region)
            return IBV_WC_LOC_PROT_ERR;
        if (region->fd >= 0)
            from[i].iov_base = fake_touch(fake_self(), region, sge->addr);
        if (!from[i].iov_base)
            return IBV_WC_LOC_PROT_ERR;
    }
    return IBV_WC_SUCCESS;
}

static enum ibv_wc_status move(struct fake_peer *peer, const struct fake_region *region, uint64_t at, const struct iovec *from,
                               int n, size_t bytes)
{
    struct iovec to = {(void *)(uintptr_t)at, bytes};
    char *target = region->fd >= 0 ? fake_touch(peer, region, at) : peer == fake_self() ? to.iov_base : NULL;

    if (!target)
        return region->fd < 0 && process_vm_writev(peer->pid, from, (unsigned long)n, &to, 1, 0) == (ssize_t)bytes
                   ? IBV_WC_SUCCESS : IBV_WC_RETRY_EXC_ERR;   /* the process is gone */
    for (int i = 0; i < n; i++) {
        memcpy(target, from[i].iov_base, from[i].iov_len);
        target += from[i].iov_len;
    }
    return IBV_WC_SUCCESS;
}

/* Tells the other side, which has a receive ready; a sender who keeps to what the receiver allows always finds one. */
static enum ibv_wc_status notify(struct fake_qp *mine, const struct fake_qp_place *place, const struct ibv_send_wr *wr,
                                 size_t bytes)
{
    struct ibv_wc wc = {.status = IBV_WC_SUCCESS, .opcode = IBV_WC_RECV_RDMA_WITH_IMM, .byte_len = (uint32_t)bytes,
                        .imm_data = wr->imm_data, .qp_num = mine->peer_number, .src_qp = mine->qp.qp_num,
                        .wc_flags = IBV_WC_WITH_IMM};

    if (!fake_srq_pop(mine->peer, place->srq, &wc.wr_id))
        return IBV_WC_RNR_RETRY_EXC_ERR;
    return fake_cq_push(mine->peer, place->cq, &wc) ? IBV_WC_SUCCESS : IBV_WC_RETRY_EXC_ERR;
}

static enum ibv_wc_status transfer(struct fake_qp *mine, const struct ibv_send_wr *wr)
{
    struct fake_context *context = fake_context_of(mine->qp.context);
    const struct fake_qp_place *place = &mine->peer->hub->qp[mine->peer_number % FAKE_QPS];
    const struct fake_region *region;
    struct iovec from[SGE_MAX];
    enum ibv_wc_status status;
    size_t bytes;

    if (mine->qp.state == IBV_QPS_ERR)
        return IBV_WC_WR_FLUSH_ERR;
    if (context->fail_from && atomic_fetch_add(&context->posts, 1) + 1 >= context->fail_from)
        return IBV_WC_RETRY_EXC_ERR;
    if (atomic_load(&place->number) != mine->peer_number || !atomic_load(&place->ready))
        return IBV_WC_RETRY_EXC_ERR;
    status = gather(&mine->qp, wr, from, &bytes);
    if (status || bytes == 0)
        goto tell;
    region = fake_find(mine->peer, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr, bytes, IBV_ACCESS_REMOTE_WRITE, place->pd);
    if (!region)
        return IBV_WC_REM_ACCESS_ERR;
    if (bytes <= context->move_most)
        status = move(mine->peer, region, wr->wr.rdma.remote_addr, from, wr->num_sge, bytes);
tell:
    if (!status && wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
        status = notify(mine, place, wr, bytes);
    return status;
}

int fake_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    struct fake_qp *mine = (struct fake_qp *)qp;

    for (; wr; wr = wr->next) {
        struct ibv_wc wc = {.wr_id = wr->wr_id, .opcode = IBV_WC_RDMA_WRITE, .qp_num = qp->qp_num};

        *bad = wr;
        if ((qp->state != IBV_QPS_RTS && qp->state != IBV_QPS_ERR) || wr->num_sge > SGE_MAX ||
            (wr->opcode != IBV_WR_RDMA_WRITE && wr->opcode != IBV_WR_RDMA_WRITE_WITH_IMM))
            return EINVAL;
        wc.status = transfer(mine, wr);
        if (wc.status) {
            qp->state = IBV_QPS_ERR;
            atomic_store(&place_of(qp)->ready, 0);
        }
        if (wc.status || mine->init.sq_sig_all || (wr->send_flags & IBV_SEND_SIGNALED))
            if (!fake_cq_push(fake_self(), qp->send_cq->handle, &wc))
                return ENOMEM;
    }
    return 0;
}
