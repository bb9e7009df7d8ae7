/* What ranks publish of themselves when a communicator is set up: records of several ranks, edited. */
#include <unistd.h>

#include "core/facts.h"
#include "core/log.h"
#include "fuzz.h"
#include "hetmpi.h"

#define RANKS_MAX 6

static struct cfg cfg;
static struct comm mine;
static struct comm_facts right;

/* One right record, made as a rank makes it, with a real control segment. */
static void begin(void)
{
    char *const nothing[] = {NULL};

    if (mine.cfg)
        return;
    FUZZ_CHECK(!mem_init(&(struct mem_setup){.vendor = "cpu", .device = -1, .fault = ""}));
    FUZZ_CHECK(!cfg_load(&cfg, nothing));
    mine.cfg = &cfg;
    facts_fill(&mine, &right);
    FUZZ_CHECK(!right.error && right.ctl.bytes);
}

/* As setup.c goes on: none of it may crash, whatever facts_check let through. */
static void use(const struct comm_facts *facts, int size, int me)
{
    struct topo_rank ranks[RANKS_MAX];
    struct topo topo;
    struct seg seg = {.fd = -1};

    for (int r = 0; r < size; r++) {
        FUZZ_CHECK(facts[r].pid > 0 && strnlen(facts[r].vendor, sizeof(facts[r].vendor)) < sizeof(facts[r].vendor));
        ranks[r] = (struct topo_rank){.island_key = facts[r].island_key, .node_key = facts[r].node_key,
                                      .weight = facts[r].weight};
        if (facts[r].ctl.bytes && facts[r].pid == getpid() && !seg_open(&seg, &facts[r].ctl)) {
            FUZZ_CHECK(seg.bytes <= sizeof(struct ctl));
            FUZZ_CHECK(((volatile char *)seg.base)[seg.bytes - 1] == 0);
            seg_clear(&seg);
        }
    }
    if (topo_build(&topo, ranks, size, me))
        return;
    for (int r = 0; r < size; r++)
        FUZZ_CHECK(topo_member(&topo, topo.island_of[r], topo.position_of[r]) == r && topo.node_of[r] < topo.nodes);
    topo_clear(&topo);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    struct comm_facts facts[RANKS_MAX];
    int ranks = fuzz_byte(&in) % RANKS_MAX + 1, code, first = 0;

    begin();
    for (int r = 0; r < ranks; r++)
        facts[r] = right;
    while (in.size)
        fuzz_edit(&in, facts, (size_t)ranks * sizeof(facts[0]));
    for (int me = 0; me < ranks; me++) {
        code = facts_check(facts, ranks, me);
        first = me ? first : code;
        FUZZ_CHECK(code == first && (!code || (err_code() == code && err_text()[0])));
        FUZZ_CHECK(code >= 0 && code < HETMPI_ERR_LAST);
        if (!code)
            use(facts, ranks, me);
    }
    return 0;
}
