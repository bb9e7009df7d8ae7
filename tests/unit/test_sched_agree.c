/*
 * Does the symbolic checker see faults of several ranks that agree with each other: schedules that run, but too slowly,
 * never to the end, or to another result than all ranks should have?
 */
#include "check_broken.h"

enum { L = 64 };

struct setting {
    struct topo topo;
    struct check_case c;
    struct sched *scheds[MAX_RANKS];
};

static void set_up(struct setting *s, const char *islands, enum coll_kind kind)
{
    build_topology(&s->topo, islands);
    s->c = (struct check_case){.call = {.kind = kind}, .count = 6 * L, .chunk = L, .window = 2, .delay = 1, .seed = 3};
    assert_int_equal(check_build(&s->topo, &s->c, s->scheds), 0);
}

static void expect_found(struct setting *s, const char *what)
{
    char why[CHECK_WHY];
    bool good = check_schedules(&s->topo, &s->c, s->scheds, why);
    check_free(&s->topo, s->scheds);
    topo_clear(&s->topo);
    check_end();
    assert_false(good);
    if (!strstr(why, what))
        fail_msg("found something else: %s", why);
}

static void delay_of_the_window(void **state)
{
    (void)state;
    struct setting s;
    set_up(&s, "0011", COLL_ALLREDUCE);
    s.c.delay = s.c.window;
    expect_found(&s, "deadlock");
}

static void all_lags_swapped(void **state)
{
    (void)state;
    struct setting s;
    set_up(&s, "0011", COLL_ALLREDUCE);
    for (int r = 0; r < s.topo.ranks; r++)
        for (int i = 0; i < s.scheds[r]->n_steps; i++)
            s.scheds[r]->steps[i].lag = is_local(&s.scheds[r]->steps[i]) && !s.scheds[r]->steps[i].lag;
    expect_found(&s, "deadlock");
}

/* The first message from a rank, and its other end. */
static struct sched_step *message(struct setting *s, int rank, struct sched_step **other)
{
    for (int i = 0; i < s->scheds[rank]->n_steps; i++) {
        struct sched_step *send = &s->scheds[rank]->steps[i];
        if (send->kind != STEP_SEND)
            continue;
        struct sched *peer = s->scheds[send->peer];
        for (int j = 0; j < peer->n_steps; j++) {
            *other = &peer->steps[j];
            if ((*other)->kind == STEP_RECV && (*other)->peer == rank && (*other)->channel == send->channel)
                return send;
        }
    }
    fail_msg("no message");
    return NULL;
}

static void message_missing_at_both_ends(void **state)
{
    (void)state;
    struct setting s;
    struct sched_step *recv;
    set_up(&s, "0011", COLL_ALLREDUCE);
    struct sched_step *send = message(&s, 1, &recv);
    send->in.range.hi = send->in.range.lo;
    recv->out.range = send->in.range;
    expect_found(&s, "undefined");
}

static void two_messages_of_one_channel(void **state)
{
    (void)state;
    struct setting s;
    set_up(&s, "012", COLL_ALLREDUCE);
    for (int r = 0; r < 3; r++)
        for (int i = 0; i < s.scheds[r]->n_steps; i++)
            s.scheds[r]->steps[i].channel = 0;
    expect_found(&s, "one channel");
}

/* Right results, but one message goes twice. */
static void too_many_bytes(void **state)
{
    (void)state;
    struct setting s;
    set_up(&s, "0011", COLL_REDUCE);
    struct sched_step *recv, *send = message(&s, 3, &recv), more_send = *send, more_recv = *recv;
    int peer = send->peer;
    struct sched *from = clone(s.scheds[3]), *to = clone(s.scheds[peer]);
    sched_free(s.scheds[3]);
    sched_free(s.scheds[peer]);
    s.scheds[3] = from;
    s.scheds[peer] = to;
    more_send.channel = more_recv.channel = 5;
    to->scratch[to->n_scratch] = (struct sched_scratch){.range = more_recv.out.range};
    more_recv.out.scratch = (uint16_t)to->n_scratch++;
    from->steps[from->n_steps++] = more_send;
    to->steps[to->n_steps++] = more_recv;
    expect_found(&s, "its share is");
}

/* Right schedules, but those of one level where two are asked for: right results in another order of operands, or too
 * many bytes over the network. */
static void one_level_instead_of_two(void **state)
{
    (void)state;
    static const enum coll_kind kinds[] = {COLL_ALLREDUCE, COLL_REDUCE, COLL_BCAST, COLL_ALLGATHER,
                                           COLL_REDUCE_SCATTER_BLOCK};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
        struct setting s;
        set_up(&s, "00112233:00001111", kinds[i]);
        check_free(&s.topo, s.scheds);
        s.topo.levels = 1;
        assert_int_equal(check_build(&s.topo, &s.c, s.scheds), 0);
        s.topo.levels = 2;
        expect_found(&s, "over the network");
    }
}

/* Blocks one by one where they should be gathered: too many messages. */
static void blocks_not_gathered(void **state)
{
    (void)state;
    struct setting s;
    set_up(&s, "0000111:0000111", COLL_ALLTOALL);
    s.c.call.gathered = true;
    expect_found(&s, "messages over the network");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(delay_of_the_window), cmocka_unit_test(all_lags_swapped),
        cmocka_unit_test(message_missing_at_both_ends), cmocka_unit_test(two_messages_of_one_channel),
        cmocka_unit_test(too_many_bytes), cmocka_unit_test(one_level_instead_of_two),
        cmocka_unit_test(blocks_not_gathered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
