/* The verbs wire's pure parts: which GID names a port, which rails make a link, how a message is cut. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "wire/verbs/verbs_gid.h"
#include "wire/verbs/verbs_rails.h"

#define IPV4(a, b, c, d) {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d}
#define LINK_LOCAL(x) {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, x}
#define GLOBAL(x) {0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, x}

/* A RoCE port as Linux fills its table: each address as v1 and as v2. */
static const struct verbs_gid roce[] = {
    {LINK_LOCAL(1), 0, VERBS_GID_ROCE_V1}, {LINK_LOCAL(1), 1, VERBS_GID_ROCE_V2},
    {GLOBAL(1), 2, VERBS_GID_ROCE_V1},     {GLOBAL(1), 3, VERBS_GID_ROCE_V2},
    {IPV4(10, 7, 0, 1), 4, VERBS_GID_ROCE_V1}, {IPV4(10, 7, 0, 1), 5, VERBS_GID_ROCE_V2},
    {IPV4(10, 8, 0, 1), 7, VERBS_GID_ROCE_V2}
};

static void gids(void **state)
{
    static const struct verbs_gid ib[] = {{{0}, 0, VERBS_GID_IB}, {LINK_LOCAL(9), 1, VERBS_GID_IB}};
    char text[40];

    (void)state;
    assert_int_equal(verbs_gid_choose(roce, 7, true, -1)->index, 5);
    assert_int_equal(verbs_gid_choose(roce, 4, true, -1)->index, 3);
    assert_int_equal(verbs_gid_choose(roce, 2, true, -1)->index, 1);
    assert_int_equal(verbs_gid_choose(roce, 1, true, -1)->index, 0);
    assert_int_equal(verbs_gid_choose(roce, 7, true, 2)->index, 2);    /* as the setting has it */
    assert_null(verbs_gid_choose(roce, 7, true, 6));
    assert_null(verbs_gid_choose(roce, 0, true, -1));
    assert_int_equal(verbs_gid_choose(ib, 2, false, -1)->index, 1);    /* an empty entry is none */
    assert_null(verbs_gid_choose(ib, 2, true, -1));
    verbs_gid_text(roce[5].raw, text);
    assert_string_equal(text, "10.7.0.1");
    assert_int_equal(verbs_gid_common(roce[5].raw, roce[5].raw), 128);
    assert_int_equal(verbs_gid_common(roce[5].raw, roce[6].raw), 108);
    assert_int_equal(verbs_gid_common(roce[5].raw, roce[3].raw), 0);
}

static struct verbs_facts rails(int n, const uint8_t (*gid)[16])
{
    struct verbs_facts facts = {.n = (uint32_t)n};

    for (int i = 0; i < n; i++) {
        facts.rails[i] = (struct verbs_rail_facts){.mbps = 100000, .mtu = 5, .ethernet = 1};
        memcpy(facts.rails[i].gid, gid[i], 16);
    }
    return facts;
}

static void pairing(void **state)
{
    static const uint8_t here[3][16] = {IPV4(10, 7, 0, 1), IPV4(10, 7, 1, 1), IPV4(10, 7, 2, 1)};
    static const uint8_t crossed[2][16] = {IPV4(10, 7, 1, 2), IPV4(10, 7, 0, 2)};
    static const uint8_t one_net[2][16] = {IPV4(10, 7, 0, 8), IPV4(10, 7, 0, 8)};
    struct verbs_facts a = rails(2, here), b = rails(2, crossed), c = rails(1, crossed), three = rails(3, here), none = {0};
    struct verbs_facts same = rails(2, one_net), ib = rails(1, here);
    struct verbs_pair p[VERBS_RAILS_MAX];

    (void)state;
    assert_int_equal(verbs_pair_rails(&a, &b, p), 2);     /* by subnet, not by number */
    assert_true(p[0].a != p[0].b && p[1].a != p[1].b && p[0].a != p[1].a);
    assert_int_equal(verbs_pair_rails(&same, &same, p), 2);
    assert_true(p[0].a == p[0].b && p[1].a == p[1].b);
    assert_int_equal(verbs_pair_rails(&a, &c, p), 2);     /* 2 here, 1 there: that one has both */
    assert_true(p[0].a == 1 && p[0].b == 0 && p[1].a == 0 && p[1].b == 0);
    assert_int_equal(verbs_pair_rails(&c, &three, p), 3);
    assert_int_equal(verbs_pair_rails(&b, &three, p), 3);
    for (int l = 0, used[2] = {0}; l < 3; l++)
        assert_true(++used[p[l].a] <= 2);
    assert_int_equal(verbs_pair_rails(&a, &none, p), 0);
    ib.rails[0].ethernet = 0;
    assert_int_equal(verbs_pair_rails(&a, &ib, p), 0);
    a.n = VERBS_RAILS_MAX + 1;
    assert_false(verbs_facts_sane(&a));
    b.rails[1].mtu = 9;
    assert_false(verbs_facts_sane(&b));
    assert_true(verbs_facts_sane(&three) && verbs_facts_sane(&none));
}

static size_t sum(const size_t *shares, int n)
{
    size_t total = 0;

    for (int i = 0; i < n; i++)
        total += shares[i];
    return total;
}

static void striping(void **state)
{
    size_t s[VERBS_RAILS_MAX], idle[VERBS_RAILS_MAX] = {0};

    (void)state;
    verbs_stripe(1 << 20, 2, (const double[]){1e9, 1e9}, idle, 16384, 1024, s);
    assert_true(s[0] == 1 << 19 && s[1] == 1 << 19);
    verbs_stripe(1 << 20, 2, (const double[]){3e9, 1e9}, idle, 16384, 1024, s);   /* uneven rails, uneven shares */
    assert_true(s[0] == 3 << 18 && s[1] == 1 << 18);
    verbs_stripe(1 << 20, 2, (const double[]){1e9, 0}, idle, 16384, 1024, s);     /* lost */
    assert_true(s[0] == 1 << 20 && s[1] == 0);
    verbs_stripe(20000, 2, (const double[]){1e9, 1.1e9}, idle, 16384, 1024, s);   /* not worth two */
    assert_true(s[0] == 0 && s[1] == 20000);
    verbs_stripe(1 << 20, 2, (const double[]){1e9, 1e9}, (const size_t[]){1 << 20, 0}, 16384, 1024, s);
    assert_true(s[0] == 0 && s[1] == 1 << 20);                                    /* the other is busy for as long */
    verbs_stripe(1000, 2, (const double[]){0, 0}, idle, 16384, 1024, s);
    assert_true(s[0] == 0 && s[1] == 0);
    srand(7);
    for (int round = 0; round < 20000; round++) {
        int n = rand() % VERBS_RAILS_MAX + 1;
        size_t bytes = (size_t)rand() % (64 << 20) + 1, unit = (size_t)1 << rand() % 13, left[VERBS_RAILS_MAX];
        double rate[VERBS_RAILS_MAX];
        for (int i = 0; i < n; i++) {
            rate[i] = i && rand() % 4 == 0 ? 0 : 1e8 + rand();
            left[i] = rand() % 2 ? 0 : (size_t)rand() % (4 << 20);
        }
        verbs_stripe(bytes, n, rate, left, 16384, unit, s);
        assert_int_equal(sum(s, n), bytes);
        for (int i = 0; i < n; i++)
            assert_true(rate[i] > 0 || s[i] == 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(gids), cmocka_unit_test(pairing), cmocka_unit_test(striping)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
