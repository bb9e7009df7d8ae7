/*
 * The control segment that another rank of the node writes: its part in meetings, what it says it is doing, the word of
 * its failure. Right at first, then edited.
 */
#include <unistd.h>

#include "core/log.h"
#include "core/meet.h"
#include "core/report_json.h"
#include "core/tables.h"
#include "fuzz.h"
#include "hetmpi.h"

static struct cfg cfg;
static struct ctl *ctls[2];
static struct topo topo;

static void begin(void)
{
    const struct topo_rank ranks[2] = {{.island_key = 1, .node_key = 1, .weight = 1},
                                       {.island_key = 2, .node_key = 1, .weight = 1}};
    char *const nothing[] = {NULL};

    if (ctls[0])
        return;
    setenv("HETMPI_LOG", "error", 1);
    FUZZ_CHECK(!cfg_load(&cfg, nothing) && cfg_process());
    FUZZ_CHECK(!topo_build(&topo, ranks, 2, 0));
    for (int r = 0; r < 2; r++) {
        ctls[r] = aligned_alloc(CTL_LINE, sizeof(struct ctl));
        FUZZ_CHECK(ctls[r]);
    }
}

/* The offsets that matter lie apart: the second meeting and what follows it are 16 KiB and more behind the first. */
static void edit(struct fuzz_input *in, struct ctl *ctl)
{
    switch (fuzz_byte(in) % 4) {
    case 0: fuzz_edit(in, &ctl->meet[0], 64); break;
    case 1: fuzz_edit(in, &ctl->meet[1], 64); break;
    case 2: fuzz_edit(in, &ctl->region, sizeof(*ctl) - offsetof(struct ctl, region)); break;
    default: fuzz_edit(in, &ctls[0]->failure, sizeof(ctl->failure) + sizeof(ctl->failure_text));   /* others write it */
    }
}

static void describe(const struct comm *comm, int rank, uint64_t number)
{
    struct status_rank s;
    char text[512];

    status_read(comm, rank, number, &s);
    status_describe(&s, text, sizeof(text));
    FUZZ_CHECK(text[0] && memchr(text, '\0', sizeof(text)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    int local[2] = {0, 1}, code;
    int32_t pids[2] = {getpid(), getpid()};
    struct comm comm;
    struct meet meet = {0};
    struct seg_name name;
    mem_ipc_t ipc;
    bool done = false;
    uint64_t what = meet_what((enum coll_kind)(fuzz_byte(&in) % COLL_KINDS), RED_INT32, RED_SUM, 0, false);

    begin();
    for (int r = 0; r < 2; r++)
        memset(ctls[r], 0, sizeof(*ctls[r]));
    comm = (struct comm){.user = MPI_COMM_NULL, .shadow = MPI_COMM_NULL, .size = 2, .cfg = &cfg, .pids = pids,
                         .ctl = ctls[0], .mine = ctls[0], .ctls = ctls, .local = local, .n_local = 2, .one_node = true,
                         .n_groups = 1, .topo = topo};
    FUZZ_CHECK(!meet_post(&comm, &meet, what, 3, "data", 4));
    ctls[1]->meet[1].what = what;
    ctls[1]->meet[1].count = 3;
    ctls[1]->meet[1].seq = meet.number;
    while (in.size)
        edit(&in, ctls[1]);

    code = meet_poll(&comm, &meet, &done);
    FUZZ_CHECK(code == HETMPI_SUCCESS || (code == HETMPI_ERR_MISMATCH && done && err_text()[0]));
    if (size <= 1)
        FUZZ_CHECK(done && !code);
    if (!done)
        meet_missing(&comm, &meet);
    describe(&comm, 0, meet.number);
    describe(&comm, 1, meet.number);
    describe(&comm, 1, 0);
    code = comm_region_name(&comm, 1, REGION_WIRE, &name, &ipc);
    FUZZ_CHECK(code == HETMPI_SUCCESS || code == COMM_AGAIN || code == HETMPI_ERR_MEMORY);
    code = comm_failed(&comm);
    FUZZ_CHECK(code >= 0 && code < HETMPI_ERR_LAST && (!code || comm.failed_text[0] || !ctls[0]->failure_text[0]));
    return 0;
}
