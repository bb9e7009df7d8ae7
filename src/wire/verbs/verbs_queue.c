/* The verbs wire: the queues of a rail, queue pairs, posting to them, and what their completions say. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "core/proc.h"
#include "hetmpi.h"
#include "mem/reg_cache.h"
#include "wire/verbs/verbs.h"

#define POLL_BATCH 32
#define RECV_BATCH 32
#define RECEIVE UINT64_MAX               /* wr_id of receive requests */
#define INLINE_WANTED 256
#define PIECES_PLANNED 64                /* granted at once, of all peers: what receive requests are reckoned with */

static int no_resource(const struct verbs_rail *rail, const char *what, int value)
{
    return err_set(HETMPI_ERR_UNSUPPORTED, "verbs wire: port %s: %s (%d) fails: %s%s", rail->port->name, what, value,
                   strerror(errno), errno == ENOMEM ? "; is ulimit -l large enough?" : "");
}

static int least(int a, int b) { return a < b ? a : b; }

/* Receive requests have no memory: what is written goes where its sender was told to. */
static int post_receives(struct verbs_rail *rail, int n)
{
    struct ibv_recv_wr wrs[RECV_BATCH], *bad;

    while (n > 0) {
        int batch = least(n, RECV_BATCH);
        for (int i = 0; i < batch; i++)
            wrs[i] = (struct ibv_recv_wr){.wr_id = RECEIVE, .next = i + 1 < batch ? &wrs[i + 1] : NULL};
        int error = ibv_post_srq_recv(rail->srq, wrs, &bad);
        if (error)
            return err_set(HETMPI_ERR_INTERNAL, "verbs wire: port %s takes no receive requests: %s", rail->port->name,
                           strerror(error));
        n -= batch;
    }
    return HETMPI_SUCCESS;
}

int verbs_rail_open(struct verbs *v, struct verbs_rail *rail, const struct verbs_port *port)
{
    int peers = v->wire.comm->size - 1, links = VERBS_RAILS_MAX;
    int receives = peers * (v->ring_depth + links) + PIECES_PLANNED * VERBS_STRIPES_MAX;
    struct ibv_srq_init_attr srq = {.attr = {.max_sge = 1}};
    int rc;

    *rail = (struct verbs_rail){.port = port};
    rail->pd = ibv_alloc_pd(port->context);
    if (!rail->pd)
        return no_resource(rail, "ibv_alloc_pd", 0);
    receives = least(receives, port->max_srq_wr);
    srq.attr.max_wr = (uint32_t)receives;
    rail->srq = ibv_create_srq(rail->pd, &srq);
    if (!rail->srq) {
        rc = no_resource(rail, "ibv_create_srq", receives);
        goto fail;
    }
    int entries = least(receives + peers * 2 * v->ring_depth, port->max_cqe);
    rail->cq = ibv_create_cq(port->context, entries, NULL, NULL, 0);
    if (!rail->cq) {
        rc = no_resource(rail, "ibv_create_cq", entries);
        goto fail;
    }
    rc = reg_cache_create(rail->pd, NULL, &rail->cache);
    if (!rc)
        rc = post_receives(rail, receives);
    if (!rc)
        return HETMPI_SUCCESS;
fail:
    verbs_rail_close(rail);
    return rc;
}

void verbs_rail_close(struct verbs_rail *rail)
{
    reg_cache_destroy(rail->cache);
    if (rail->srq)
        ibv_destroy_srq(rail->srq);
    if (rail->cq)
        ibv_destroy_cq(rail->cq);
    if (rail->pd)
        ibv_dealloc_pd(rail->pd);
    free(rail->links);
    free(rail->table);
    *rail = (struct verbs_rail){0};
}

/* ---- which link of a rail a completion is about: its queue pair's number says so ---- */

static uint32_t hash(uint32_t qp) { return qp * 2654435761u >> 7; }

static struct verbs_link *link_of(const struct verbs_rail *rail, uint32_t qp)
{
    for (uint32_t i = hash(qp); rail->table_room; i++) {
        struct verbs_link *link = rail->table[i & (rail->table_room - 1)];
        if (!link || link->qp->qp_num == qp)
            return link;
    }
    return NULL;
}

static void table_fill(struct verbs_rail *rail)
{
    memset(rail->table, 0, rail->table_room * sizeof(*rail->table));
    for (uint32_t l = 0; l < rail->n_links; l++) {
        uint32_t at = hash(rail->links[l]->qp->qp_num) & (rail->table_room - 1);
        while (rail->table[at])
            at = (at + 1) & (rail->table_room - 1);
        rail->table[at] = rail->links[l];
    }
}

static int table_add(struct verbs_link *link)
{
    struct verbs_rail *rail = link->rail;

    if (4 * (rail->n_links + 1) > rail->table_room) {
        uint32_t room = rail->table_room ? 2 * rail->table_room : 16;
        struct verbs_link **table = malloc(room * sizeof(*table));
        struct verbs_link **links = realloc(rail->links, room / 4 * sizeof(*links));
        if (links)
            rail->links = links;
        if (!table || !links) {
            free(table);
            return err_set(HETMPI_ERR_MEMORY, "verbs wire: no memory for a table of %u links", rail->n_links);
        }
        free(rail->table);
        rail->table = table;
        rail->table_room = room;
    }
    rail->links[rail->n_links++] = link;
    table_fill(rail);
    return HETMPI_SUCCESS;
}

static void table_remove(struct verbs_link *link)
{
    struct verbs_rail *rail = link->rail;

    for (uint32_t l = 0; l < rail->n_links; l++)
        if (rail->links[l] == link) {
            rail->links[l] = rail->links[--rail->n_links];
            table_fill(rail);
            return;
        }
}

/* ---- links ---- */

static struct ibv_qp *create_qp(struct verbs_link *link)
{
    struct ibv_qp_init_attr attr = {.send_cq = link->rail->cq, .recv_cq = link->rail->cq, .srq = link->rail->srq,
                                    .qp_type = IBV_QPT_RC, .cap = {.max_send_wr = link->depth, .max_send_sge = 1}};

    /* How much goes inline is known by trying alone. */
    for (uint32_t most = INLINE_WANTED;; most /= 2) {
        attr.cap.max_inline_data = most;
        struct ibv_qp *qp = ibv_create_qp(link->rail->pd, &attr);
        if (qp || most < 32) {
            link->max_inline = attr.cap.max_inline_data;
            return qp;
        }
    }
}

int verbs_link_create(struct verbs_link *link)
{
    const struct cfg *cfg = link->peer->verbs->wire.comm->cfg;
    const struct verbs_port *port = link->rail->port;
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .pkey_index = (uint16_t)cfg->pkey_index,
                               .port_num = port->number,
                               .qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE};

    link->depth = (uint32_t)least(2 * link->peer->verbs->ring_depth, port->max_qp_wr);
    link->posted = calloc(link->depth, sizeof(*link->posted));
    if (!link->posted)
        return err_set(HETMPI_ERR_MEMORY, "verbs wire: no memory for a queue of %u requests", link->depth);
    link->qp = create_qp(link);
    if (!link->qp)
        return no_resource(link->rail, "ibv_create_qp", (int)link->depth);
    link->psn = (uint32_t)(proc_now_ns() >> 4) & 0xffffff;
    link->rate = (double)port->facts.mbps * 1e6 / 8;
    if (ibv_modify_qp(link->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)) {
        int rc = no_resource(link->rail, "a queue pair's way to INIT, PKEY_INDEX", cfg->pkey_index);
        ibv_destroy_qp(link->qp);
        link->qp = NULL;
        return rc;
    }
    return table_add(link);
}

static int to_ready_to_receive(struct verbs_link *link, const struct verbs_hello_link *to,
                               const struct verbs_rail_facts *facts)
{
    const struct cfg *cfg = link->peer->verbs->wire.comm->cfg;
    const struct verbs_port *port = link->rail->port;
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR, .path_mtu = (enum ibv_mtu)least(port->facts.mtu, facts->mtu),
                               .dest_qp_num = to->qp, .rq_psn = to->psn, .max_dest_rd_atomic = 1, .min_rnr_timer = 12,
                               .ah_attr = {.dlid = facts->lid, .sl = (uint8_t)cfg->service_level,
                                           .port_num = port->number}};

    if (port->facts.ethernet || memcmp(port->facts.gid, facts->gid, 8) != 0) {
        attr.ah_attr.is_global = 1;
        memcpy(attr.ah_attr.grh.dgid.raw, facts->gid, 16);
        attr.ah_attr.grh.sgid_index = (uint8_t)port->gid_index;
        attr.ah_attr.grh.hop_limit = 64;
        attr.ah_attr.grh.traffic_class = (uint8_t)cfg->traffic_class;
    }
    return ibv_modify_qp(link->qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                              IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

int verbs_link_connect(struct verbs_link *link, const struct verbs_hello_link *to, const struct verbs_rail_facts *facts)
{
    const struct cfg *cfg = link->peer->verbs->wire.comm->cfg;
    /* A receiver is never without a receive request, by the credits; rnr_retry 7 (for ever) is for a slow driver. */
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS, .timeout = (uint8_t)cfg->retry_timeout,
                               .retry_cnt = (uint8_t)cfg->retry_count, .rnr_retry = 7, .sq_psn = link->psn,
                               .max_rd_atomic = 1};

    if (to_ready_to_receive(link, to, facts))
        return no_resource(link->rail, "a queue pair's way to RTR, peer", link->peer->rank);
    if (ibv_modify_qp(link->qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                           IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC))
        return no_resource(link->rail, "a queue pair's way to RTS, peer", link->peer->rank);
    return HETMPI_SUCCESS;
}

/* Nothing is sent or received any more; what was posted is still known. */
void verbs_link_end(struct verbs_link *link)
{
    if (!link->qp)
        return;
    table_remove(link);
    ibv_destroy_qp(link->qp);
    link->qp = NULL;
}

void verbs_link_destroy(struct verbs_link *link)
{
    verbs_link_end(link);
    free(link->posted);
    link->posted = NULL;
    link->sent = link->retired = link->signalled = link->received = 0;
    link->backlog = 0;
    link->told = link->probe_done = false;
}

/* ---- sending ---- */

bool verbs_link_has_room(const struct verbs_link *link)
{
    return link->sent - link->retired < link->depth;
}

int verbs_link_post(struct verbs_link *link, const void *local, size_t bytes, uint32_t lkey, uint64_t address,
                    uint32_t rkey, uint32_t imm, const struct verbs_posted *what)
{
    bool notify = what->kind == VERBS_DATA || what->kind == VERBS_PROBE || what->wanted ||
                  link->sent + 1 - link->signalled >= link->depth / 4;
    struct ibv_sge sge = {.addr = (uintptr_t)local, .length = (uint32_t)bytes, .lkey = lkey};
    struct ibv_send_wr wr = {.wr_id = link->sent, .sg_list = &sge, .num_sge = bytes > 0,
                             .opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .imm_data = htonl(imm),
                             .send_flags = (notify ? IBV_SEND_SIGNALED : 0) |
                                           (bytes <= link->max_inline ? IBV_SEND_INLINE : 0),
                             .wr.rdma = {.remote_addr = address, .rkey = rkey}}, *bad;
    struct verbs_posted *kept = &link->posted[link->sent % link->depth];
    int error;

    /* Remembered first: what a queue pair refuses is lost as what it could not deliver is. */
    *kept = *what;
    kept->bytes = what->kind == VERBS_DATA ? bytes : 0;
    if (kept->bytes && !link->backlog)
        link->busy_ns = proc_now_ns();
    link->backlog += kept->bytes;
    if (notify)
        link->signalled = link->sent + 1;
    link->sent++;
    error = ibv_post_send(link->qp, &wr, &bad);
    return error ? verbs_link_lost(link, strerror(error)) : HETMPI_SUCCESS;
}

int verbs_link_probe(struct verbs_link *link)
{
    return verbs_link_post(link, NULL, 0, 0, 0, 0, VERBS_IMM(VERBS_PROBE, 0),
                           &(struct verbs_posted){.kind = VERBS_PROBE});
}

/* ---- completions ---- */

/* A weighed mean of what the link carried while it had something to carry. */
static void measure(struct verbs_link *link, size_t bytes)
{
    uint64_t now = proc_now_ns();
    double seconds = (double)(now - link->busy_ns) * 1e-9;

    if (seconds > 0 && bytes >= VERBS_STRIPE_LEAST)
        link->rate += ((double)bytes / seconds - link->rate) / 16;
    link->busy_ns = now;
}

/* Requests below `end` are done: the peer has what they wrote. */
void verbs_link_retire(struct verbs_link *link, uint64_t end)
{
    for (; link->retired < end; link->retired++) {
        struct verbs_posted *done = &link->posted[link->retired % link->depth];
        link->backlog -= done->bytes;
        switch (done->kind) {
        case VERBS_RING:
            verbs_ring_arrived(link->peer, done->serial);
            break;
        case VERBS_DATA:
            measure(link, done->bytes);
            verbs_stripe_arrived(done->stripe);
            break;
        case VERBS_PROBE:
            link->probe_done = true;
            break;
        default:
            break;
        }
    }
}

static int receive(struct verbs_link *link, uint32_t imm, uint32_t bytes)
{
    link->received++;
    switch (VERBS_IMM_KIND(imm)) {
    case VERBS_RING:
        return verbs_ring_came(link->peer, VERBS_IMM_REST(imm), bytes);
    case VERBS_CREDIT:
        verbs_ring_credit(link->peer, VERBS_IMM_REST(imm));
        return HETMPI_SUCCESS;
    case VERBS_DATA:
        return verbs_recv_data(link->peer, VERBS_IMM_REST(imm), bytes);
    default:
        return HETMPI_SUCCESS;
    }
}

static int complete(struct verbs_rail *rail, const struct ibv_wc *wc)
{
    struct verbs_link *link = link_of(rail, wc->qp_num);

    if (wc->wr_id == RECEIVE)
        rail->used++;
    if (!link || link->state == LINK_DOWN || link->state == LINK_CLOSED)
        return HETMPI_SUCCESS;   /* what it brought is sent again over another link */
    if (wc->status != IBV_WC_SUCCESS)
        return verbs_link_lost(link, ibv_wc_status_str(wc->status));
    if (wc->wr_id == RECEIVE)
        return receive(link, ntohl(wc->imm_data), wc->byte_len);
    if (wc->wr_id < link->sent)
        verbs_link_retire(link, wc->wr_id + 1);
    return HETMPI_SUCCESS;
}

/* One rail's completions; *more: there may be others. */
static int poll_rail(struct verbs_rail *rail, bool *more)
{
    struct ibv_wc wc[POLL_BATCH];
    int n = ibv_poll_cq(rail->cq, POLL_BATCH, wc), rc = HETMPI_SUCCESS;

    if (n < 0)
        return err_set(HETMPI_ERR_INTERNAL, "verbs wire: port %s: its completion queue cannot be read",
                       rail->port->name);
    for (int i = 0; i < n && !rc; i++)
        rc = complete(rail, &wc[i]);
    *more = n == POLL_BATCH;
    if (!rc && rail->used >= RECV_BATCH) {
        rc = post_receives(rail, rail->used);
        rail->used = 0;
    }
    return rc;
}

int verbs_poll_queues(struct verbs *v)
{
    for (int r = 0; r < v->n_rails; r++) {
        bool more = true;
        while (more) {
            int rc = poll_rail(&v->rails[r], &more);
            if (rc)
                return rc;
        }
    }
    return HETMPI_SUCCESS;
}
