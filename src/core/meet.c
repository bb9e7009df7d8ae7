/* The meeting at the beginning of every collective: see meet.h. */
#include "core/meet.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "core/proc.h"
#include "core/report.h"
#include "hetmpi.h"

/* What a group's leader tells the others: the call of its lowest rank, and the first rank of the group that differs. */
struct net_message {
    uint64_t number, what, count;
    uint64_t bad_what, bad_count;
    int64_t bad_rank;          /* -1: the group agrees */
    uint64_t words[];          /* MEET_WORDS: of the group's ranks, ascending */
};

/* A leader's exchange with the other leaders. Messages: two of each, by the meeting's parity. */
struct meet_net {
    bool begun;
    size_t bytes;              /* of the messages of all groups, of one meeting */
    char *recv;
    size_t *at;                /* [n_groups + 1] where each group's message begins in them */
    int *taken;                /* [n_groups] words, while a table of all is made */
    struct net_message *send[2];
    MPI_Request *requests;     /* [2 * n_groups] */
};

struct verdict {
    uint64_t what, count, bad_what, bad_count;
    int64_t bad_rank;
};

void meet_describe(uint64_t what, uint64_t count, char *text, size_t bytes)
{
    enum coll_kind kind = (enum coll_kind)(what & 255);
    unsigned traits = coll_traits(kind);
    char counts[48] = "", op[32] = "", root[24] = "";
    const char *in_place = what & MEET_IN_PLACE ? ", MPI_IN_PLACE" : "";

    if (kind == COLL_BARRIER) {
        snprintf(text, bytes, "barrier");
        return;
    }
    if (traits & COLL_TABLE)
        snprintf(counts, sizeof(counts), "counts with hash %016llx, ", (unsigned long long)count);
    else if (!(traits & COLL_OWN_TABLE))
        snprintf(counts, sizeof(counts), "count %llu, ", (unsigned long long)count);
    if (traits & COLL_REDUCES)
        snprintf(op, sizeof(op), ", %s",
                 what & MEET_PREMUL ? "premul_sum" : red_op_name((enum red_op)(what >> 16 & 255)));
    if (traits & COLL_ROOTED)
        snprintf(root, sizeof(root), ", root %d", (int)(what >> 32));
    snprintf(text, bytes, "%s(%s%s%s%s%s)", coll_name(kind), counts, red_type_name((enum red_type)(what >> 8 & 255)), op,
             root, in_place);
}

static bool differ(uint64_t what, uint64_t count, uint64_t other_what, uint64_t other_count)
{
    return what != other_what || (count != other_count && !(what & MEET_SUMS));
}

static const char *differing_field(const struct verdict *v)
{
    uint64_t x = v->what ^ v->bad_what;

    if (x & 255)
        return "kind";
    if (v->count != v->bad_count && !(v->what & MEET_SUMS))
        return coll_traits((enum coll_kind)(v->what & 255)) & COLL_TABLE ? "counts" : "count";
    if (x >> 8 & 255)
        return "type";
    if (x >> 16 & 255 || x & MEET_PREMUL)
        return "op";
    return x & MEET_IN_PLACE ? "MPI_IN_PLACE" : "root";
}

/* 8-bit floats come in two families, whose bytes mean different numbers: what to do where ranks mix them. */
static const char *family(uint64_t what)
{
    switch ((enum red_type)(what >> 8 & 255)) {
    case RED_E4M3:
    case RED_E5M2:
        return "OCP";
    case RED_E4M3_FNUZ:
    case RED_E5M2_FNUZ:
        return "FNUZ";
    default:
        return NULL;
    }
}

static void family_text(const struct verdict *v, char *text, size_t bytes)
{
    const char *here = family(v->what), *there = family(v->bad_what);

    text[0] = '\0';
    if (here && there && here != there)
        snprintf(text, bytes, ": the same bytes are other numbers in the fp8 formats of the %s family and of the %s family "
                 "(rank 0's); hetmpi converts neither: let all ranks use one family, every rank can reduce both", there,
                 here);
}

static int judge(struct comm *comm, struct meet *meet, const struct verdict *v)
{
    char here[128], there[128], families[256];
    int code;

    if (!comm->cfg->check)
        return HETMPI_SUCCESS;
    if (v->bad_rank < 0) {
        meet->sum = v->what & MEET_SUMS ? v->count : 0;
        return HETMPI_SUCCESS;
    }
    meet_describe(v->what, v->count, here, sizeof(here));
    meet_describe(v->bad_what, v->bad_count, there, sizeof(there));
    family_text(v, families, sizeof(families));
    code = err_set(HETMPI_ERR_MISMATCH, "collective call %llu: the %s of rank %lld differs: it called %s, rank 0 called "
                   "%s%s", (unsigned long long)meet->number, differing_field(v), (long long)v->bad_rank, there, here,
                   families);
    report_mismatch(comm, meet->number, err_text());
    return code;
}

/* Groups are the nodes, which are numbered by their lowest ranks too; or each rank is one. */
static int group_of(const struct comm *comm, int rank)
{
    return comm->n_groups == comm->size ? rank : comm->topo.node_of[rank];
}

/* The control segments of this rank's group, ascending. */
static int group_size(const struct comm *comm)
{
    return comm->n_local ? comm->n_local : 1;
}

static struct ctl *group_ctl(const struct comm *comm, int i)
{
    return comm->n_local ? comm->ctls[comm->local[i]] : comm->mine;
}

/* Where the groups' messages stand. */
static void lay_out(const struct comm *comm, struct meet_net *net)
{
    int groups = comm->n_groups;

    for (int r = 0; r < comm->size && comm->size <= MEET_WORDS_MAX; r++)
        net->at[group_of(comm, r) + 1] += sizeof(uint64_t);
    for (int g = 0; g < groups; g++)
        net->at[g + 1] += net->at[g] + sizeof(struct net_message);
    net->bytes = net->at[groups];
}

static int open_net(struct comm *comm, struct meet_net *net)
{
    size_t n = (size_t)comm->n_groups, mine;

    net->at = calloc(n + 1, sizeof(*net->at));
    net->taken = malloc(n * sizeof(*net->taken));
    net->requests = malloc(2 * n * sizeof(MPI_Request));
    for (size_t i = 0; i < 2 * n && net->requests; i++)
        net->requests[i] = MPI_REQUEST_NULL;
    if (net->at)
        lay_out(comm, net);
    net->recv = calloc(2, net->bytes);
    mine = sizeof(struct net_message) + (size_t)group_size(comm) * sizeof(uint64_t);
    net->send[0] = malloc(mine);
    net->send[1] = malloc(mine);
    if (!net->at || !net->taken || !net->requests || !net->recv || !net->send[0] || !net->send[1])
        return err_set(HETMPI_ERR_MEMORY, "no memory for meetings of %d groups", comm->n_groups);
    return HETMPI_SUCCESS;
}

int meet_open(struct comm *comm)
{
    int code;

    if (comm->one_node || comm->net)
        return HETMPI_SUCCESS;
    comm->net = calloc(1, sizeof(*comm->net));
    if (!comm->net)
        return err_set(HETMPI_ERR_MEMORY, "no memory for meetings");
    code = open_net(comm, comm->net);
    if (code)
        meet_release(comm);
    return code;
}

void meet_release(struct comm *comm)
{
    struct meet_net *net = comm->net;

    if (!net)
        return;
    for (int i = 0; i < 2 * comm->n_groups && net->requests; i++)
        if (net->requests[i] != MPI_REQUEST_NULL) {
            MPI_Cancel(&net->requests[i]);
            MPI_Request_free(&net->requests[i]);
        }
    free(net->send[0]);
    free(net->send[1]);
    free(net->recv);
    free(net->requests);
    free(net->taken);
    free(net->at);
    free(net);
    comm->net = NULL;
}

int meet_begin(struct comm *comm, struct meet *meet, unsigned char **data)
{
    int code = meet_open(comm);

    if (code)
        return code;
    *meet = (struct meet){.number = ++comm->meetings};
    if (comm->net)
        comm->net->begun = false;
    *data = comm->mine->meet[meet->number & 1].data;   /* runs on into `more`, which follows */
    return HETMPI_SUCCESS;
}

void meet_publish(struct comm *comm, const struct meet *meet, uint64_t what, uint64_t count)
{
    struct ctl_meet *post = &comm->mine->meet[meet->number & 1];

    atomic_store_explicit(&post->what, what, memory_order_relaxed);
    atomic_store_explicit(&post->count, count, memory_order_relaxed);
    atomic_store_explicit(&post->seq, meet->number, memory_order_release);
}

int meet_post(struct comm *comm, struct meet *meet, uint64_t what, uint64_t count, const void *data, size_t bytes)
{
    unsigned char *place;
    int code = meet_begin(comm, meet, &place);

    if (code)
        return code;
    if (bytes)
        memcpy(place, data, bytes);
    meet_publish(comm, meet, what, count);
    return HETMPI_SUCCESS;
}

#define POSTED(post, field) atomic_load_explicit(&(post)->field, memory_order_relaxed)

/* Compares what the ranks of this node posted with the lowest of them. */
static void compare_local(const struct comm *comm, const struct meet *meet, struct verdict *v)
{
    unsigned parity = meet->number & 1;
    const struct ctl_meet *first = &comm_leader_ctl(comm)->meet[parity];

    *v = (struct verdict){.what = POSTED(first, what), .count = POSTED(first, count), .bad_rank = -1};
    for (int i = 1; i < comm->n_local; i++) {
        const struct ctl_meet *other = &comm->ctls[comm->local[i]]->meet[parity];
        uint64_t what = POSTED(other, what), count = POSTED(other, count);
        if (differ(v->what, v->count, what, count)) {
            v->bad_what = what;
            v->bad_count = count;
            v->bad_rank = comm->local[i];
            return;
        }
        if (what & MEET_SUMS)
            v->count += count;
    }
}

static bool has_words(const struct comm *comm, uint64_t what)
{
    return what & MEET_WORDS && comm->size <= MEET_WORDS_MAX;
}

/* What a group's leader said. */
static struct net_message *message_of(const struct comm *comm, const struct meet *meet, int group)
{
    const struct meet_net *net = comm->net;

    return (struct net_message *)(void *)(net->recv + (meet->number & 1) * net->bytes + net->at[group]);
}

/* What this leader says. Returns its bytes. */
static size_t speak(struct comm *comm, const struct meet *meet, struct net_message *mine)
{
    size_t bytes = sizeof(*mine);
    struct verdict v;

    compare_local(comm, meet, &v);
    *mine = (struct net_message){.number = meet->number, .what = v.what, .count = v.count, .bad_what = v.bad_what,
                                 .bad_count = v.bad_count, .bad_rank = v.bad_rank};
    for (int i = 0; i < group_size(comm) && has_words(comm, v.what); i++, bytes += sizeof(uint64_t))
        memcpy(&mine->words[i], group_ctl(comm, i)->meet[meet->number & 1].data, sizeof(uint64_t));
    return bytes;
}

static int begin_net(struct comm *comm, const struct meet *meet)
{
    struct meet_net *net = comm->net;
    struct net_message *mine = net->send[meet->number & 1];
    size_t bytes = speak(comm, meet, mine);
    int code = MPI_SUCCESS, tag = TAG_MEET + (int)(meet->number & 1);

    for (int g = 0; g < comm->n_groups && code == MPI_SUCCESS; g++) {
        struct net_message *theirs = message_of(comm, meet, g);
        if (comm->leaders[g] == comm->rank) {
            memcpy(theirs, mine, bytes);
            continue;
        }
        /* Those who called something else may say more or less. */
        code = MPI_Irecv(theirs, (int)(net->at[g + 1] - net->at[g]), MPI_BYTE, comm->leaders[g], tag, comm->shadow,
                         &net->requests[2 * g]);
        if (code == MPI_SUCCESS)
            code = MPI_Isend(mine, (int)bytes, MPI_BYTE, comm->leaders[g], tag, comm->shadow,
                             &net->requests[2 * g + 1]);
    }
    return comm_mpi_error(code, "exchanging a meeting");
}

/* The same on every leader: rank 0's call against every group's, in order. */
static void compare_net(const struct comm *comm, const struct meet *meet, struct verdict *v)
{
    const struct net_message *first = message_of(comm, meet, 0);

    *v = (struct verdict){.what = first->what, .count = first->count, .bad_rank = -1};
    for (int g = 0; g < comm->n_groups && v->bad_rank < 0; g++) {
        const struct net_message *said = message_of(comm, meet, g);
        if (differ(v->what, v->count, said->what, said->count)) {
            v->bad_what = said->what;
            v->bad_count = said->count;
            v->bad_rank = comm->leaders[g];
        } else if (said->bad_rank >= 0) {
            v->bad_what = said->bad_what;
            v->bad_count = said->bad_count;
            v->bad_rank = said->bad_rank;
        } else if (g && (v->what & MEET_SUMS)) {
            v->count += said->count;
        }
    }
}

/* The words of all ranks, for this group. */
static void hand_words(struct comm *comm, const struct meet *meet)
{
    unsigned char *table = comm->mine->meet[meet->number & 1].data;
    int *taken = comm->net->taken;

    memset(taken, 0, (size_t)comm->n_groups * sizeof(*taken));
    for (int r = 0; r < comm->size; r++) {
        int g = group_of(comm, r);
        memcpy(table + (size_t)r * sizeof(uint64_t), &message_of(comm, meet, g)->words[taken[g]++], sizeof(uint64_t));
    }
}

uint64_t meet_word(const struct comm *comm, int rank, uint64_t number)
{
    uint64_t word;

    if (comm->one_node)
        memcpy(&word, meet_data(comm, rank, number), sizeof(word));
    else
        memcpy(&word, comm_leader_ctl(comm)->meet[number & 1].data + (size_t)rank * sizeof(word), sizeof(word));
    return word;
}

/* The leader of the first group that has not come, -1: all came. */
static int missing_leader(const struct comm *comm)
{
    for (int g = 0; g < comm->n_groups; g++)
        if (comm->net->requests[2 * g] != MPI_REQUEST_NULL)
            return comm->leaders[g];
    return -1;
}

/* Completes the exchange's requests in order, up to the first that is not done. */
static int test_exchange(struct comm *comm, int *all)
{
    MPI_Request *requests = comm->net->requests;
    int code = MPI_SUCCESS;

    *all = 1;
    for (int i = 0; i < 2 * comm->n_groups && *all && code == MPI_SUCCESS; i++)
        if (requests[i] != MPI_REQUEST_NULL)
            code = MPI_Test(&requests[i], all, MPI_STATUS_IGNORE);
    return comm_mpi_error(code, "exchanging a meeting");
}

/* Messages of one pair come in order, so these are of this meeting, or not from a hetmpi. */
static int check_numbers(const struct comm *comm, const struct meet *meet)
{
    for (int g = 0; g < comm->n_groups; g++) {
        uint64_t number = message_of(comm, meet, g)->number;
        if (number != meet->number)
            return err_set(HETMPI_ERR_INTERNAL, "collective call %llu: rank %d sent a meeting with the number %llu",
                           (unsigned long long)meet->number, comm->leaders[g], (unsigned long long)number);
    }
    return HETMPI_SUCCESS;
}

/* For the reports of this node's ranks, which know nothing of the exchange between the leaders. */
static void publish_wait(struct comm *comm, const struct meet *meet)
{
    struct ctl_status *status = &comm->mine->status;

    atomic_store_explicit(&status->call, meet->number, memory_order_relaxed);
    atomic_store_explicit(&status->phase, PHASE_MEET, memory_order_relaxed);
    atomic_store_explicit(&status->waits_for, missing_leader(comm), memory_order_relaxed);
}

static int poll_leader(struct comm *comm, struct meet *meet, bool *done)
{
    unsigned parity = meet->number & 1;
    struct verdict v;
    int code, flag;

    if (!proc_may_call_mpi())
        return HETMPI_SUCCESS;
    if (!comm->net->begun) {
        code = begin_net(comm, meet);
        if (code)
            return code;
        comm->net->begun = true;
    }
    code = test_exchange(comm, &flag);
    if (!code && !flag)
        publish_wait(comm, meet);
    if (code || !flag)
        return code;
    code = check_numbers(comm, meet);
    if (code)
        return code;
    compare_net(comm, meet, &v);
    if (v.bad_rank < 0 && has_words(comm, v.what))
        hand_words(comm, meet);
    if (comm->ctl) {
        _Static_assert(sizeof(v) <= sizeof(comm->ctl->verdict_data[0]), "a verdict fits its place");
        memcpy(comm->ctl->verdict_data[parity], &v, sizeof(v));
        atomic_store_explicit(&comm->ctl->verdict[parity].value, meet->number, memory_order_release);
    }
    *done = true;
    return judge(comm, meet, &v);
}

static int poll_verdict(struct comm *comm, struct meet *meet, bool *done)
{
    unsigned parity = meet->number & 1;
    const struct ctl *leader = comm_leader_ctl(comm);
    struct verdict v;

    if (atomic_load_explicit(&leader->verdict[parity].value, memory_order_acquire) != meet->number)
        return HETMPI_SUCCESS;
    memcpy(&v, leader->verdict_data[parity], sizeof(v));
    *done = true;
    return judge(comm, meet, &v);
}

int meet_poll(struct comm *comm, struct meet *meet, bool *done)
{
    unsigned parity = meet->number & 1;
    struct verdict v;

    *done = false;
    while (meet->arrived < comm->n_local) {
        const struct ctl *ctl = comm->ctls[comm->local[meet->arrived]];
        if (atomic_load_explicit(&ctl->meet[parity].seq, memory_order_acquire) != meet->number)
            return HETMPI_SUCCESS;
        meet->arrived++;
    }
    if (comm->one_node) {
        *done = true;
        if (!comm->cfg->check)
            return HETMPI_SUCCESS;
        compare_local(comm, meet, &v);
        return judge(comm, meet, &v);
    }
    if (comm_leader(comm) == comm->rank)
        return poll_leader(comm, meet, done);
    return poll_verdict(comm, meet, done);
}

int meet_missing(const struct comm *comm, const struct meet *meet)
{
    const struct ctl_status *status;

    for (int i = 0; i < comm->n_local; i++) {
        const struct ctl *ctl = comm->ctls[comm->local[i]];
        if (atomic_load_explicit(&ctl->meet[meet->number & 1].seq, memory_order_relaxed) < meet->number)
            return comm->local[i];
    }
    if (!comm->net)
        return -1;
    if (comm_leader(comm) == comm->rank)
        return comm->net->begun ? missing_leader(comm) : -1;
    status = &comm->ctls[comm_leader(comm)]->status;
    if (atomic_load_explicit(&status->call, memory_order_relaxed) != meet->number ||
        atomic_load_explicit(&status->phase, memory_order_relaxed) != PHASE_MEET)
        return -1;
    return atomic_load_explicit(&status->waits_for, memory_order_relaxed);
}
