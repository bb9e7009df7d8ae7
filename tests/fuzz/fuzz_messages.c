/*
 * What comes in messages of MPI: envelopes of point-to-point messages and the receiver's word to go on, notices of
 * failures, answers to the question what ranks are doing. The first byte says which, the rest is the message.
 */
#include "core/ask.h"
#include "core/log.h"
#include "core/notice.h"
#include "core/p2p_state.h"
#include "core/report_json.h"
#include "fuzz.h"
#include "hetmpi.h"

#define RANKS 4
#define ID 7

static struct cfg cfg;
static struct p2p p2p = {.channels = 100, .slots = {.each = 1 << 20}};
static struct comm comm;
static char (vendors[RANKS])[8];
static int32_t pids[RANKS];

/* Four ranks on as many nodes. */
static void begin(void)
{
    struct topo_rank ranks[RANKS];
    char *const nothing[] = {NULL};

    if (comm.cfg)
        return;
    /* The JSON of a report is made, and cannot be written. */
    setenv("HETMPI_REPORT", "/nowhere/report.json", 1);
    setenv("HETMPI_LOG", "error", 1);
    FUZZ_CHECK(!cfg_load(&cfg, nothing) && cfg_process());
    p2p.bounces.each = (sizeof(struct p2p_envelope) + cfg.eager + 63) / 64 * 64;
    comm = (struct comm){.user = MPI_COMM_NULL, .shadow = MPI_COMM_NULL, .size = RANKS, .cfg = &cfg, .p2p = &p2p,
                         .pids = pids, .vendors = vendors, .n_groups = RANKS};
    for (int r = 0; r < RANKS; r++)
        ranks[r] = (struct topo_rank){.island_key = (uint64_t)r, .node_key = (uint64_t)r, .weight = 1};
    FUZZ_CHECK(!topo_build(&comm.topo, ranks, RANKS, 0));
}

/* What p2p.c and p2p_pieces.c rely on afterwards. */
static void envelope(struct fuzz_input *in)
{
    struct p2p_buf bounce = {.memory = calloc(1, p2p.bounces.each)};
    struct p2p_msg m = {.room = fuzz_short(in), .staged = fuzz_byte(in) & 1, .bounce = &bounce};
    size_t length = in->size < p2p.bounces.each ? in->size : p2p.bounces.each;
    int code;

    FUZZ_CHECK(bounce.memory);
    memcpy(bounce.memory, in->data, length);
    code = p2p_match(&comm, &m, 1, 5, length);
    FUZZ_CHECK(!code || (code == HETMPI_ERR_INTERNAL && !m.matched));
    if (!code) {
        FUZZ_CHECK(m.matched && m.peer == 1 && m.tag == 5 && m.truncated == (m.bytes > m.room));
        FUZZ_CHECK(m.channel >= 0 && m.channel < p2p.channels);
        FUZZ_CHECK(m.way == P2P_LARGE || sizeof(struct p2p_envelope) + m.bytes <= p2p.bounces.each);
        for (size_t n = m.first; n < m.next; n++)
            FUZZ_CHECK(m.window[n].memory + m.window[n].bytes <= bounce.memory + length);
    }
    free(bounce.memory);
}

static void go(struct fuzz_input *in)
{
    struct p2p_msg m = {.send = true, .peer = 1, .way = P2P_LARGE, .staged = fuzz_byte(in) & 1};
    int code;

    for (int i = 0; i < 6; i++)
        m.bytes = m.bytes << 8 | fuzz_byte(in);
    for (int i = 0; i < 4; i++)
        m.go = m.go << 8 | fuzz_byte(in);
    code = p2p_set_pieces(&comm, &m);
    FUZZ_CHECK(!code || (code == HETMPI_ERR_INTERNAL && !m.gone));
    if (!code && m.go)
        FUZZ_CHECK(m.piece <= INT32_MAX && (!m.staged || m.piece <= p2p.slots.each) &&
                   m.pieces == m.bytes / m.piece + (m.bytes % m.piece != 0));
}

static void notice(struct fuzz_input *in)
{
    char text[128];
    int code = notice_read(&comm, 1, in->data, in->size, text, sizeof(text));

    FUZZ_CHECK(code > 0 && code < HETMPI_ERR_LAST && text[0] && memchr(text, '\0', sizeof(text)));
}

/* Whatever an answer says, it is told of the ranks that it may speak of, and can be told. */
static void answer(struct fuzz_input *in)
{
    const struct report report = {.why = REPORT_TIMEOUT, .head = "a report", .number = fuzz_byte(in) % 4,
                                  .what = 0, .count = 1, .missing = 2, .peer = 3};
    struct status_rank all[RANKS];
    struct report_json *json;
    char text[512];
    void *copy = malloc(in->size + 1);   /* aligned, with nothing behind it */

    FUZZ_CHECK(copy);
    memcpy(copy, in->data, in->size);
    for (int r = 0; r < RANKS; r++)
        all[r] = (struct status_rank){.rank = r, .waits_for = -1};
    ask_read_answer(&comm, copy, in->size, ID, all);
    free(copy);
    FUZZ_CHECK(all[0].life == LIFE_UNKNOWN);
    for (int r = 0; r < RANKS; r++) {
        FUZZ_CHECK(all[r].rank == r && all[r].life <= LIFE_ENDED);
        status_describe(&all[r], text, sizeof(text));
        FUZZ_CHECK(text[0] && memchr(text, '\0', sizeof(text)));
        report_reason(report_judge(&comm, &report, &all[r]));
    }
    json = report_json_begin(REPORT_TIMEOUT, "a report");
    FUZZ_CHECK(json);
    report_json_add(json, &comm, &report, all);
    report_json_write(json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const kinds[])(struct fuzz_input *) = {envelope, go, notice, answer};
    struct fuzz_input in = {data, size};

    begin();
    kinds[fuzz_byte(&in) % 4](&in);
    return 0;
}
