/*
 * The region of the shm wire that another process writes: its head, the descriptors of fragments, the words beside them.
 * A message in three fragments is there; edits come before it is mapped and between the polls of its receive.
 */
#include <unistd.h>

#include "core/log.h"
#include "fuzz.h"
#include "hetmpi.h"
#include "wire/shm.h"

#define SLOT 4096u
#define SLOTS 4u
#define DESCS 8u
#define BYTES 10000u
#define ROUNDS 6
#define LONG_WAIT 2100   /* polls that see nothing: then a starving peer's fragments are moved away */

static struct cfg cfg;
static struct ctl *ctls[2];
static struct seg region = {.fd = -1};
static struct seg_name region_name;
static struct shm_head *head;
static struct ctl_word *starving;
static struct shm_desc *rings;
static unsigned char *slots;

static void begin(void)
{
    char *const nothing[] = {NULL};
    size_t ahead;

    if (head)
        return;
    FUZZ_CHECK(!mem_init(&(struct mem_setup){.vendor = "cpu", .device = -1, .fault = ""}));
    FUZZ_CHECK(!cfg_load(&cfg, nothing));
    for (int r = 0; r < 2; r++) {
        ctls[r] = aligned_alloc(CTL_LINE, sizeof(struct ctl));
        FUZZ_CHECK(ctls[r]);
    }
    ahead = sizeof(*head) + 2 * sizeof(*starving) + 2 * DESCS * sizeof(*rings) + SLOTS * sizeof(struct ctl_word);
    ahead = (ahead + SLOT - 1) / SLOT * SLOT;
    FUZZ_CHECK(!seg_create(&region, ahead + SLOTS * SLOT, &region_name));
    head = region.base;
    starving = (struct ctl_word *)(head + 1);
    rings = (struct shm_desc *)(starving + 2);
    slots = (unsigned char *)region.base + ahead;
}

/* As rank 1 leaves it after sending to rank 0. */
static void fill(void)
{
    memset(head + 1, 0, (size_t)(slots - (unsigned char *)(head + 1)));
    head->cookie = region_name.cookie;
    head->shape = (struct shm_shape){.slot_bytes = SLOT, .slots = SLOTS, .descs = DESCS, .locals = 2, .rank = 1};
    for (uint32_t n = 0; n * SLOT < BYTES; n++) {
        uint32_t bytes = BYTES - n * SLOT < SLOT ? BYTES - n * SLOT : SLOT;
        rings[n + 1].part = (struct shm_part){.op = 1, .total = BYTES, .offset = n * SLOT, .ticket = n + 1, .chunk = 2,
                                              .slot = n, .bytes = bytes, .channel = 3};
        atomic_store(&rings[n + 1].seq, n + 1);
        memset(slots + n * SLOT, (int)n + 1, bytes);
    }
}

static void edits(struct fuzz_input *in, int n)
{
    for (; n > 0 && in->size; n--)
        fuzz_edit(in, head, (size_t)(slots - (unsigned char *)head));
}

static int receive(struct wire *wire, struct wire_xfer *x, struct fuzz_input *in, bool *done)
{
    int code = wire->ops->recv(wire, x), polls;

    for (int round = 0; round < ROUNDS && !code && !*done; round++) {
        uint8_t how = fuzz_byte(in);
        edits(in, how & 15);
        polls = how >> 4 == 15 ? LONG_WAIT : 2;
        for (; polls > 0 && !code && !*done; polls--)
            code = wire->ops->poll(wire, x, done);
        if (code == COMM_AGAIN)
            code = HETMPI_SUCCESS;
    }
    return code;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static unsigned char buffer[BYTES];
    struct fuzz_input in = {data, size};
    int local[2] = {0, 1};
    int32_t pids[2] = {getpid(), getpid()};
    struct comm comms[2];
    struct wire_xfer x = {.peer = 1, .op = 1, .chunk = 2, .channel = 3, .length = BYTES,
                          .view = {.base = (char *)buffer, .element = 1, .layout = LAYOUT_NONE}};
    struct wire *wire;
    bool done = false;
    int code;

    begin();
    fill();
    memset(buffer, 0, sizeof(buffer));
    for (int r = 0; r < 2; r++) {
        memset(ctls[r], 0, sizeof(*ctls[r]));
        comms[r] = (struct comm){.user = MPI_COMM_NULL, .shadow = MPI_COMM_NULL, .rank = r, .size = 2, .cfg = &cfg,
                                 .pids = pids, .ctl = ctls[r], .ctls = ctls, .local = local, .n_local = 2,
                                 .one_node = true};
    }
    FUZZ_CHECK(!comm_region_publish(&comms[1], REGION_WIRE, &region_name, NULL));
    x.view.element = in.size % 3 == 0 ? 4 : 1;
    x.length = BYTES / x.view.element;
    FUZZ_CHECK(!wire_shm.open(&comms[0], &wire));
    code = receive(wire, &x, &in, &done);
    FUZZ_CHECK(!code || (err_code() == code && err_text()[0]));
    if (size == 0) {   /* nothing was edited: it must have come */
        FUZZ_CHECK(done);
        for (size_t i = 0; i < BYTES; i++)
            FUZZ_CHECK(buffer[i] == i / SLOT + 1);
    }
    atomic_store(&comms[0].failed, HETMPI_ERR_ABORTED);   /* close does not wait */
    wire->ops->close(wire);
    return 0;
}
