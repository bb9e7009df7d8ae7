/*
 * Random messages against an oracle: every rank knows the whole list of a round's messages, made from a seed: who sends
 * what to whom, with which tag, from which memory. All are started in an order of each rank's own, nonblocking or on
 * streams, in a group or not, collectives among them, and completed in any order. Messages of one source and tag must
 * match in order; statuses, contents, the bytes around the buffers and truncation are checked.
 *
 *     p2p_random [ROUNDS [SEED [multiple]]]
 */
#include "common.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MESSAGES_MAX 48
#define TAGS 3
#define BYTES_MAX (2u << 20)

/* How the receives of a rank match in a round. */
enum matching { EXACT, ANY_TAG, ANY_SOURCE };

struct message {
    int source, dest, tag;
    size_t bytes;
    enum t_place from, to;
    bool short_room;
    struct t_buf out, in;
    hetmpi_request_t sent, received;
    bool got;                 /* a receive has taken it */
};

struct receive { int source, tag; struct message *place; };   /* place: whose buffer and room it uses */

static struct message messages[MESSAGES_MAX];
static int n_messages;
static uint64_t seed, drawn, own;   /* own: numbers that need not be the same on all ranks */
static unsigned char *image;
static hetmpi_stream_t streams[2];

static unsigned pick(unsigned n) { return (unsigned)(t_hash64(seed, ++drawn, 1) % n); }
static unsigned pick_own(unsigned n) { return (unsigned)(t_hash64(seed, ++own, 100 + (uint64_t)t_rank) % n); }

static size_t pick_bytes(void)
{
    switch (pick(10)) {
    case 0: return 0;
    case 1: case 2: case 3: return 1 + pick(200);
    case 4: return 8190 + pick(5);
    case 5: return 1 + pick(8192);
    case 6: return 8 * (size_t)(1 + pick(3000));
    case 7: return 64000 + pick(200000);
    case 8: return pick(4) ? 9000 + pick(30000) : 1000000 + pick(BYTES_MAX - 1000000);
    default: return 4 * (size_t)(1 + pick(1000));
    }
}

static unsigned char byte_of(const struct message *m, size_t i)
{
    return (unsigned char)((size_t)(m - messages) * 37 + i * 11 + (i >> 7) + seed);
}

static void make_round(void)
{
    n_messages = 4 + (int)pick(MESSAGES_MAX - 4);
    for (int i = 0; i < n_messages; i++) {
        struct message *m = &messages[i];
        *m = (struct message){ .source = (int)pick((unsigned)t_ranks), .dest = (int)pick((unsigned)t_ranks),
                               .tag = (int)pick(TAGS), .bytes = pick_bytes(), .from = pick(T_PLACES),
                               .to = pick(T_PLACES), .short_room = pick(12) == 0 };
        if (m->source == t_rank) {
            t_buf_new(&m->out, m->from, m->bytes);
            t_buf_use(&m->out, m->bytes, pick_own(8));
            for (size_t b = 0; b < m->bytes; b++)
                image[b] = byte_of(m, b);
            t_buf_put(&m->out, image);
        }
    }
}

static MPI_Datatype type_for(size_t bytes, size_t *count)
{
    *count = bytes / 8;
    if (bytes % 8 == 0 && bytes % 24)
        return MPI_DOUBLE;
    *count = bytes / 4;
    if (bytes % 4 == 0 && bytes % 12)
        return MPI_INT32_T;
    *count = bytes;
    return MPI_BYTE;
}

/* The oracle: the first message of the list, not yet taken, that this receive matches. */
static struct message *expect(const struct receive *r)
{
    for (int i = 0; i < n_messages; i++) {
        struct message *m = &messages[i];
        if (m->dest == t_rank && !m->got && m->source == r->source && (r->tag == MPI_ANY_TAG || m->tag == r->tag)) {
            m->got = true;
            return m;
        }
    }
    return NULL;
}

static void check_received(const struct receive *r, enum matching how, int code, const MPI_Status *status)
{
    struct receive asked = *r;
    struct t_buf *in = &r->place->in;
    const struct message *m;
    int count = -1;
    if (how == ANY_SOURCE)
        asked.source = status->MPI_SOURCE;
    m = expect(&asked);
    if (!T_CHECK(m != NULL, "a message from %d that nobody sent", status->MPI_SOURCE))
        return;
    T_CHECK(status->MPI_SOURCE == m->source && status->MPI_TAG == m->tag, "source %d, tag %d instead of %d, %d",
            status->MPI_SOURCE, status->MPI_TAG, m->source, m->tag);
    bool fits = m->bytes <= in->bytes;
    if (!T_CHECK(code == (fits ? HETMPI_SUCCESS : HETMPI_ERR_TRUNCATE), "%s for %zu bytes in %zu: %s",
                 t_code_name(code), m->bytes, in->bytes, hetmpi_last_error()))
        return;
    t_buf_guards(in);
    t_buf_get(in, image);
    size_t good = fits ? m->bytes : 0;
    for (size_t b = 0; b < in->bytes; b++)
        if (image[b] != (b < good ? byte_of(m, b) : 0x5B)) {
            t_fail(__FILE__, __LINE__, "message %d of %zu bytes from %d (%s) in %zu (%s): byte %zu is 0x%02x",
                   (int)(m - messages), m->bytes, m->source, t_place_name(m->from), in->bytes, t_place_name(in->place),
                   b, image[b]);
            break;
        }
    if (fits) {
        size_t want;
        MPI_Datatype type = type_for(m->bytes, &want);
        MPI_Get_count((MPI_Status *)(uintptr_t)status, type, &count);
        T_CHECK(count == (int)want, "MPI_Get_count gives %d, not %zu", count, want);
    }
}

static void shuffle(int *list, int n)
{
    for (int i = n - 1; i > 0; i--) {
        int j = (int)pick_own((unsigned)i + 1), x = list[i];
        list[i] = list[j];
        list[j] = x;
    }
}

static void start_send(struct message *m, MPI_Comm comm, bool streamed)
{
    size_t count;
    MPI_Datatype type = type_for(m->bytes, &count);
    if (streamed)
        T_OK(hetmpi_send_on_stream(m->out.data, count, type, m->dest, m->tag, comm, streams[pick_own(2)]));
    else
        T_OK(hetmpi_isend(m->out.data, count, type, m->dest, m->tag, comm, &m->sent));
}

static void start_receive(struct message *m, const struct receive *r, enum matching how, bool short_room, MPI_Comm comm,
                          bool streamed)
{
    size_t room = short_room ? (pick_own(2) ? m->bytes / 2 : m->bytes - 1) : how == EXACT ? m->bytes : BYTES_MAX;
    t_buf_new(&m->in, m->to, room);
    t_buf_use(&m->in, room, pick_own(8));
    t_buf_fill(&m->in, 0x5B);
    if (streamed)
        T_OK(hetmpi_recv_on_stream(m->in.data, room, MPI_BYTE, r->source, r->tag, comm, streams[pick_own(2)]));
    else
        T_OK(hetmpi_irecv(m->in.data, room, MPI_BYTE, how == ANY_SOURCE ? MPI_ANY_SOURCE : r->source, r->tag, comm,
                          &m->received));
}

/* One round. Sends start in the order of the list, receives in the order of `receives`, both mixed. */
static void run(MPI_Comm comm, bool multiple)
{
    int order[MESSAGES_MAX], n_receives = 0, sends = 0, received = 0, n_wait = 0, collectives = (int)pick(3);
    struct receive receives[MESSAGES_MAX];
    bool streamed[MESSAGES_MAX] = { false };
    hetmpi_request_t sums[2];
    int32_t values[2][3] = { { 0 } };
    enum matching how = pick_own(6) == 0 ? ANY_SOURCE : pick_own(5) == 0 ? ANY_TAG : EXACT;
    bool group = pick_own(3) == 0, small_rooms = how == EXACT;

    make_round();
    for (int i = 0; i < n_messages; i++)
        if (messages[i].dest == t_rank)
            order[n_receives++] = i;
    if (how == EXACT)
        shuffle(order, n_receives);
    /* In EXACT, receive i asks for the source and tag of message order[i], and gets the first of these not yet taken:
     * its room must be that one's. */
    bool taken[MESSAGES_MAX] = { false };
    for (int i = 0; i < n_receives; i++) {
        struct message *m = &messages[order[i]];
        receives[i] = (struct receive){ .source = m->source, .tag = how == EXACT ? m->tag : MPI_ANY_TAG, .place = m };
        for (int k = 0; k < n_messages && how == EXACT; k++)
            if (messages[k].dest == t_rank && !taken[k] && messages[k].source == m->source &&
                messages[k].tag == m->tag) {
                taken[k] = true;
                receives[i].place = &messages[k];
                break;
            }
    }
    if (group)
        T_OK(hetmpi_group_start());
    int next_collective = 0;
    for (int at = 0;;) {
        while (sends < n_messages && messages[sends].source != t_rank)
            sends++;
        bool more_sends = sends < n_messages, more_receives = received < n_receives;
        if (next_collective < collectives && (pick_own(4) == 0 || (!more_sends && !more_receives))) {
            for (int v = 0; v < 3; v++)
                values[next_collective][v] = t_rank + v;
            T_OK(hetmpi_iallreduce(MPI_IN_PLACE, values[next_collective], 3, MPI_INT32_T, MPI_SUM, comm,
                                   &sums[next_collective]));
            next_collective++;
            continue;
        }
        if (!more_sends && !more_receives)
            break;
        bool on_stream = multiple && group && pick_own(3) == 0;
        if (more_sends && (!more_receives || pick_own(2))) {
            start_send(&messages[sends++], comm, on_stream);
        } else {
            struct message *m = receives[received].place;
            streamed[received] = on_stream && how == EXACT && !m->short_room;
            start_receive(m, &receives[received], how, small_rooms && m->short_room && m->bytes, comm,
                          streamed[received]);
            received++;
        }
        at++;
        if (!group && pick_own(9) == 0) {
            int flag;
            MPI_Status status;
            hetmpi_request_t *any = at % 2 && next_collective ? &sums[0] : NULL;
            if (any) /* a test in between must do no harm */
                T_OK(hetmpi_test(any, &flag, &status));
        }
    }
    if (group)
        T_OK(hetmpi_group_end());
    for (int i = 0; i < 2 && multiple; i++)
        T_OK(hetmpi_stream_synchronize(streams[i]));
    /* Complete in any order; check in the order of matching. */
    int codes[MESSAGES_MAX] = { 0 }, list[MESSAGES_MAX];
    MPI_Status statuses[MESSAGES_MAX];
    for (int i = 0; i < n_receives; i++)
        list[n_wait++] = i;
    shuffle(list, n_wait);
    for (int i = 0; i < n_wait; i++) {
        hetmpi_request_t *request = &receives[list[i]].place->received;
        int flag = 0;
        if (streamed[list[i]])
            continue;
        for (int tries = (int)pick_own(20); tries > 0 && !flag; tries--)
            codes[list[i]] = hetmpi_test(request, &flag, &statuses[list[i]]);
        if (!flag)
            codes[list[i]] = hetmpi_wait(request, &statuses[list[i]]);
    }
    for (int i = 0; i < n_receives; i++) {
        if (streamed[i]) { /* no status: what the oracle says is taken for it */
            statuses[i].MPI_SOURCE = receives[i].source;
            statuses[i].MPI_TAG = receives[i].tag;
            MPI_Status_set_elements_x(&statuses[i], MPI_BYTE, (MPI_Count)receives[i].place->bytes);
        }
        check_received(&receives[i], how, codes[i], &statuses[i]);
    }
    for (int i = n_messages - 1; i >= 0; i--)
        T_OK(hetmpi_wait(&messages[i].sent, MPI_STATUS_IGNORE));
    for (int i = 0; i < next_collective; i++) {
        T_OK(hetmpi_wait(&sums[i], MPI_STATUS_IGNORE));
        T_CHECK(values[i][2] == t_ranks * (t_ranks - 1) / 2 + 2 * t_ranks, "sum is %d", values[i][2]);
    }
    for (int i = 0; i < n_messages; i++) {
        if (messages[i].source == t_rank)
            t_buf_free(&messages[i].out);
        if (messages[i].dest == t_rank)
            t_buf_free(&messages[i].in);
    }
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 40, provided = 0;
    uint64_t first = argc > 2 ? strtoull(argv[2], NULL, 0) : 1;
    MPI_Comm comm;
    t_begin(&argc, &argv, "p2p_random", argc > 3 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE);
    MPI_Query_thread(&provided);
    bool multiple = argc > 3 && provided == MPI_THREAD_MULTIPLE;
    T_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    T_MPI(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    T_OK(hetmpi_comm_attach(comm, MPI_INFO_NULL));
    image = t_malloc(BYTES_MAX);
    for (int i = 0; i < 2; i++)
        T_OK(hetmpi_stream_create(&streams[i]));
    for (int round = 0; round < rounds && !t_failures(); round++) {
        seed = first + (uint64_t)round;
        drawn = own = 0;
        t_stage("seed %llu", (unsigned long long)seed);
        run(comm, multiple);
        /* A receive from any source must not take a message of the next round. */
        T_MPI(MPI_Barrier(MPI_COMM_WORLD));
    }
    for (int i = 0; i < 2; i++)
        T_OK(hetmpi_stream_destroy(streams[i]));
    free(image);
    T_MPI(MPI_Comm_free(&comm));
    return t_end();
}
