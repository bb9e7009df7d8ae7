/* Rails of two ranks joined to links, and messages cut into shares for them: see verbs_rails.h. */
#include "wire/verbs/verbs_rails.h"

#include <string.h>

#include "wire/verbs/verbs_gid.h"

bool verbs_facts_sane(const struct verbs_facts *facts)
{
    if (facts->n > VERBS_RAILS_MAX)
        return false;
    for (uint32_t i = 0; i < facts->n; i++)
        if (facts->rails[i].mtu < 1 || facts->rails[i].mtu > 5 || facts->rails[i].ethernet > 1 || !facts->rails[i].mbps)
            return false;
    return true;
}

/* How well two rails fit, < 0: not at all. */
static int fit(const struct verbs_rail_facts *a, const struct verbs_rail_facts *b)
{
    return a->ethernet == b->ethernet ? verbs_gid_common(a->gid, b->gid) : -1;
}

int verbs_pair_rails(const struct verbs_facts *a, const struct verbs_facts *b, struct verbs_pair pairs[VERBS_RAILS_MAX])
{
    unsigned most = a->n > b->n ? a->n : b->n, few = a->n < b->n ? a->n : b->n;
    unsigned used_a[VERBS_RAILS_MAX] = {0}, used_b[VERBS_RAILS_MAX] = {0}, limit_a = 1, limit_b = 1;
    unsigned n = 0;

    if (!few)
        return 0;
    /* The end with fewer rails has each in several links. */
    if (a->n < b->n)
        limit_a = (most + few - 1) / few;
    else
        limit_b = (most + few - 1) / few;
    while (n < most) {
        int best = -1;
        unsigned best_high = 0;
        for (unsigned i = 0; i < a->n; i++)
            for (unsigned j = 0; j < b->n; j++) {
                int f = fit(&a->rails[i], &b->rails[j]);
                unsigned high = i > j ? i : j;
                if (used_a[i] >= limit_a || used_b[j] >= limit_b || f < best || (f == best && high >= best_high))
                    continue;
                best = f;
                best_high = high;
                pairs[n] = (struct verbs_pair){(uint8_t)i, (uint8_t)j};
            }
        if (best < 0)
            break;
        used_a[pairs[n].a]++;
        used_b[pairs[n].b]++;
        n++;
    }
    return (int)n;
}

/* The time by which all could be done, if links 0 .. n-1 with used[i] carried everything. */
static double level(size_t bytes, int n, const double *rate, const size_t *backlog, const bool *used)
{
    double work = (double)bytes, speed = 0;

    for (int i = 0; i < n; i++)
        if (used[i]) {
            work += (double)backlog[i];
            speed += rate[i];
        }
    return speed > 0 ? work / speed : 0;
}

void verbs_stripe(size_t bytes, int n, const double *rate, const size_t *backlog, size_t least, size_t unit,
                  size_t *shares)
{
    bool used[VERBS_RAILS_MAX] = {false};
    size_t left = bytes;
    int best = -1;
    bool changed = true;
    double t = 0;

    for (int i = 0; i < n; i++) {
        used[i] = rate[i] > 0;
        shares[i] = 0;
    }
    /* Drops links that would get nothing worth sending, the worst first. */
    while (changed) {
        int worst = -1, count = 0;
        double worst_share = 0;
        t = level(bytes, n, rate, backlog, used);
        changed = false;
        for (int i = 0; i < n; i++) {
            double share = t * rate[i] - (double)backlog[i];
            if (!used[i])
                continue;
            count++;
            if (share < (double)least && (worst < 0 || share < worst_share)) {
                worst = i;
                worst_share = share;
            }
        }
        if (worst >= 0 && count > 1) {
            used[worst] = false;
            changed = true;
        }
    }
    for (int i = 0; i < n; i++) {
        double share = t * rate[i] - (double)backlog[i];
        if (!used[i])
            continue;
        shares[i] = share > 0 ? (size_t)share / unit * unit : 0;
        if (shares[i] > left)
            shares[i] = left / unit * unit;
        left -= shares[i];
        if (best < 0 || rate[i] > rate[best])
            best = i;
    }
    if (best >= 0)
        shares[best] += left;
}
