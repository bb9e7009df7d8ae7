/* The provider without hardware itself: writes to the same and to another process, into host and device memory, and what it
 * refuses as a NIC does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hetmpi.h"
#include "mem/mem.h"

#define BYTES 10000
#define GID 3              /* RoCE v2 with an IPv4 address */

/* One end of a connection. */
struct end {
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    struct ibv_srq *srq;
    struct ibv_qp *qp;
    struct ibv_mr *host, *device;
    unsigned char *bytes;
    void *memory;
};

/* What the other end must know. */
struct address { union ibv_gid gid; uint32_t qp, host_key, device_key; uint64_t host, device; };

static int partner = -1;   /* socket to the other process */
static pid_t partner_pid;

static void require(bool right, const char *what)
{
    if (!right) {
        fprintf(stderr, "process %d: %s failed\n", getpid(), what);
        abort();
    }
}
#define REQUIRE(what) require((what), #what)

static void end_open(struct end *end)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_srq_init_attr srq = {.attr = {.max_wr = 16, .max_sge = 0}};
    struct ibv_qp_init_attr qp = {.qp_type = IBV_QPT_RC, .cap = {.max_send_wr = 16, .max_send_sge = 1, .max_inline_data = 64}};
    const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

    memset(end, 0, sizeof(*end));
    REQUIRE(end->context = ibv_open_device(list[0]));
    ibv_free_device_list(list);
    REQUIRE(end->pd = ibv_alloc_pd(end->context));
    REQUIRE(end->channel = ibv_create_comp_channel(end->context));
    REQUIRE(end->cq = ibv_create_cq(end->context, 64, end, end->channel, 0));
    REQUIRE(end->srq = ibv_create_srq(end->pd, &srq));
    qp.send_cq = qp.recv_cq = end->cq;
    qp.srq = end->srq;
    REQUIRE(end->qp = ibv_create_qp(end->pd, &qp));
    REQUIRE(end->bytes = calloc(1, BYTES));
    REQUIRE(end->host = ibv_reg_mr(end->pd, end->bytes, BYTES, access));
    if (mem_has_device()) {
        REQUIRE(mem_alloc(BYTES, &end->memory) == HETMPI_SUCCESS);
        REQUIRE(end->device = ibv_reg_mr(end->pd, end->memory, BYTES, access));   /* as peer memory */
    }
}

static void end_close(struct end *end)
{
    REQUIRE(ibv_destroy_qp(end->qp) == 0);
    REQUIRE(ibv_destroy_srq(end->srq) == 0);
    REQUIRE(ibv_destroy_cq(end->cq) == 0);
    REQUIRE(ibv_destroy_comp_channel(end->channel) == 0);
    REQUIRE(ibv_dealloc_pd(end->pd) != 0);   /* its memory is still registered */
    REQUIRE(ibv_dereg_mr(end->host) == 0);
    if (end->device)
        REQUIRE(ibv_dereg_mr(end->device) == 0);
    REQUIRE(ibv_dealloc_pd(end->pd) == 0);
    REQUIRE(ibv_close_device(end->context) == 0);
    mem_free(end->memory);
    free(end->bytes);
}

static struct address end_address(const struct end *end)
{
    struct address out = {.qp = end->qp->qp_num, .host_key = end->host->rkey, .host = (uintptr_t)end->bytes,
                          .device_key = end->device ? end->device->rkey : 0, .device = (uintptr_t)end->memory};

    REQUIRE(ibv_query_gid(end->context, 1, GID, &out.gid) == 0);
    return out;
}

static void end_connect(struct end *end, const struct address *to)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};

    REQUIRE(ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = to->qp,
                                .ah_attr = {.is_global = 1, .grh = {.dgid = to->gid, .sgid_index = GID}, .port_num = 1}};
    REQUIRE(ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 6, .rnr_retry = 6};
    REQUIRE(ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                          IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

static void post_receives(struct end *end, int n)
{
    for (int i = 0; i < n; i++) {
        struct ibv_recv_wr wr = {.wr_id = 100 + (uint64_t)i}, *bad;

        REQUIRE(ibv_post_srq_recv(end->srq, &wr, &bad) == 0);
    }
}

static enum ibv_wc_status post_write(struct end *end, struct ibv_mr *from, uint64_t at, size_t bytes, uint64_t to, uint32_t key,
                                     unsigned imm)
{
    struct ibv_sge sge = {.addr = at, .length = (uint32_t)bytes, .lkey = from ? from->lkey : 0};
    struct ibv_send_wr wr = {.wr_id = 7, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .imm_data = imm,
                             .send_flags = IBV_SEND_SIGNALED | (from ? 0 : IBV_SEND_INLINE),
                             .wr.rdma = {.remote_addr = to, .rkey = key}}, *bad;
    struct ibv_wc wc[2];

    REQUIRE(ibv_post_send(end->qp, &wr, &bad) == 0);
    REQUIRE(ibv_poll_cq(end->cq, 1, wc) == 1);
    REQUIRE(wc[0].wr_id == 7);
    return wc[0].status;
}

static void fill(unsigned char *bytes, unsigned seed)
{
    for (size_t i = 0; i < BYTES; i++)
        bytes[i] = (unsigned char)(seed + i * 37 % 251);
}

static bool filled(const unsigned char *bytes, size_t n, unsigned seed)
{
    for (size_t i = 0; i < n; i++)
        if (bytes[i] != (unsigned char)(seed + i * 37 % 251))
            return false;
    return true;
}

static void connect_pair(struct end *a, struct end *b)
{
    struct address to_a, to_b;

    end_open(a);
    end_open(b);
    to_a = end_address(a);
    to_b = end_address(b);
    end_connect(a, &to_b);
    end_connect(b, &to_a);
}

static void writes_within_a_process(void **state)
{
    struct end a, b;
    struct address to;
    struct ibv_wc wc;

    (void)state;
    connect_pair(&a, &b);
    to = end_address(&b);
    post_receives(&b, 2);
    fill(a.bytes, 1);
    assert_int_equal(post_write(&a, a.host, (uintptr_t)a.bytes, 5000, to.host, to.host_key, 77), IBV_WC_SUCCESS);
    assert_int_equal(ibv_poll_cq(b.cq, 1, &wc), 1);
    assert_int_equal(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
    assert_int_equal(wc.imm_data, 77);
    assert_int_equal(wc.byte_len, 5000);
    assert_int_equal(wc.wr_id, 100);
    assert_int_equal(wc.qp_num, b.qp->qp_num);
    assert_true(filled(b.bytes, 5000, 1));
    assert_int_equal(b.bytes[5000], 0);
    assert_int_equal(post_write(&a, NULL, (uintptr_t)a.bytes, 0, 0, 0, 78), IBV_WC_SUCCESS);   /* a message without bytes */
    assert_int_equal(ibv_poll_cq(b.cq, 1, &wc), 1);
    assert_int_equal(wc.byte_len, 0);
    assert_int_equal(post_write(&a, NULL, (uintptr_t)a.bytes, 8, to.host, to.host_key, 79), IBV_WC_RNR_RETRY_EXC_ERR);
    assert_int_equal(post_write(&a, NULL, (uintptr_t)a.bytes, 8, to.host, to.host_key, 80), IBV_WC_WR_FLUSH_ERR);
    end_close(&a);
    end_close(&b);
}

/* One that fails, on a fresh connection each. */
static enum ibv_wc_status wrong_write(size_t bytes, size_t offset, uint32_t key_change, struct ibv_mr **foreign)
{
    struct end a, b;
    struct address to;
    enum ibv_wc_status status;

    connect_pair(&a, &b);
    to = end_address(&b);
    post_receives(&b, 1);
    fill(a.bytes, 2);
    status = post_write(&a, foreign ? b.host : a.host, (uintptr_t)a.bytes, bytes, to.host + offset, to.host_key + key_change, 1);
    assert_int_equal(b.bytes[0], status ? 0 : 2);
    end_close(&a);
    end_close(&b);
    return status;
}

static void refuses_what_is_out_of_range(void **state)
{
    struct ibv_mr *foreign = NULL;

    (void)state;
    assert_int_equal(wrong_write(BYTES, 0, 0, NULL), IBV_WC_SUCCESS);
    assert_int_equal(wrong_write(BYTES, 1, 0, NULL), IBV_WC_REM_ACCESS_ERR);
    assert_int_equal(wrong_write(10, BYTES, 0, NULL), IBV_WC_REM_ACCESS_ERR);
    assert_int_equal(wrong_write(10, (size_t)-1, 0, NULL), IBV_WC_REM_ACCESS_ERR);
    assert_int_equal(wrong_write(10, 0, 4096, NULL), IBV_WC_REM_ACCESS_ERR);
    assert_int_equal(wrong_write(10, 0, 0, &foreign), IBV_WC_LOC_PROT_ERR);   /* another domain's key */
}

static void loses_a_device_when_told(void **state)
{
    struct end a, b;
    struct address to;

    (void)state;
    setenv("FAKE_VERBS_FAIL", "0:3", 1);
    connect_pair(&a, &b);
    unsetenv("FAKE_VERBS_FAIL");
    to = end_address(&b);
    post_receives(&b, 3);
    for (int i = 1; i <= 3; i++)
        assert_int_equal(post_write(&a, NULL, (uintptr_t)a.bytes, 8, to.host, to.host_key, 1),
                         i < 3 ? IBV_WC_SUCCESS : IBV_WC_RETRY_EXC_ERR);
    end_close(&a);
    end_close(&b);
}

static void writes_to_another_process(void **state)
{
    struct end a;
    struct address mine, to;
    bool right;

    (void)state;
    end_open(&a);
    mine = end_address(&a);
    REQUIRE(write(partner, &mine, sizeof(mine)) == (ssize_t)sizeof(mine));
    REQUIRE(read(partner, &to, sizeof(to)) == (ssize_t)sizeof(to));
    end_connect(&a, &to);
    fill(a.bytes, 3);
    assert_int_equal(post_write(&a, a.host, (uintptr_t)a.bytes, BYTES, to.host, to.host_key, 5), IBV_WC_SUCCESS);
    if (a.device) {
        REQUIRE(mem_copy(a.memory, a.bytes, BYTES) == HETMPI_SUCCESS);
        assert_int_equal(post_write(&a, a.device, (uintptr_t)a.memory, BYTES, to.device, to.device_key, 6), IBV_WC_SUCCESS);
    }
    REQUIRE(read(partner, &right, sizeof(right)) == (ssize_t)sizeof(right));
    assert_true(right);
    kill(partner_pid, SIGKILL);
    waitpid(partner_pid, NULL, 0);
    assert_int_equal(post_write(&a, a.host, (uintptr_t)a.bytes, BYTES, to.host, to.host_key, 5), IBV_WC_RETRY_EXC_ERR);
    end_close(&a);
}

static void start_device(void)
{
    struct mem_setup setup = {.vendor = "nvidia", .device = -1, .fault = ""};

    REQUIRE(mem_init(&setup) == HETMPI_SUCCESS);
}

/* The other process: waits at its channel for the messages, and says whether their bytes are right. */
static void be_partner(int socket)
{
    struct end b;
    struct address to, mine;
    unsigned char copy[BYTES];
    int messages = mem_has_device() ? 2 : 1;
    bool right;

    end_open(&b);
    if (read(socket, &to, sizeof(to)) != (ssize_t)sizeof(to))
        _exit(0);   /* the tests ended before */
    end_connect(&b, &to);
    post_receives(&b, 2);
    mine = end_address(&b);
    REQUIRE(ibv_req_notify_cq(b.cq, 0) == 0);
    REQUIRE(write(socket, &mine, sizeof(mine)) == (ssize_t)sizeof(mine));
    for (int got = 0; got < messages;) {
        struct pollfd wait = {.fd = b.channel->fd, .events = POLLIN};
        struct ibv_wc wc;
        struct ibv_cq *cq;
        void *user;

        REQUIRE(poll(&wait, 1, 10000) == 1);
        REQUIRE(ibv_get_cq_event(b.channel, &cq, &user) == 0 && cq == b.cq && user == &b);
        ibv_ack_cq_events(cq, 1);
        REQUIRE(ibv_req_notify_cq(b.cq, 0) == 0);
        while (ibv_poll_cq(b.cq, 1, &wc) == 1)
            REQUIRE(wc.status == IBV_WC_SUCCESS && wc.imm_data == 5u + (unsigned)got++);
    }
    right = filled(b.bytes, BYTES, 3);
    if (b.device) {
        REQUIRE(mem_copy(copy, b.memory, BYTES) == HETMPI_SUCCESS);
        right = right && filled(copy, BYTES, 3);
    }
    REQUIRE(write(socket, &right, sizeof(right)) == (ssize_t)sizeof(right));
    (void)!read(socket, &right, sizeof(right));   /* until it is killed, or the tests are over */
    _exit(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_within_a_process),
        cmocka_unit_test(refuses_what_is_out_of_range),
        cmocka_unit_test(loses_a_device_when_told),
        cmocka_unit_test(writes_to_another_process),   /* the last: it ends the partner */
    };
    int sockets[2], failed;

    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
    partner_pid = fork();
    REQUIRE(partner_pid >= 0);
    partner = sockets[0];
    close(sockets[partner_pid ? 1 : 0]);
    start_device();
    if (partner_pid == 0)
        be_partner(sockets[1]);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    close(partner);
    mem_fini();
    return failed;
}
