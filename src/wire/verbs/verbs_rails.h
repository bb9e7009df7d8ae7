/*
 * What a rank publishes of its rails, and how the rails of two ranks are joined to links. Pure functions: both ends
 * have the same records and find the same links, whatever their numbers of rails.
 */
#ifndef HETMPI_VERBS_RAILS_H
#define HETMPI_VERBS_RAILS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VERBS_RAILS_MAX 8

struct verbs_rail_facts {
    uint8_t gid[16];
    uint32_t mbps;                           /* signalling rate, Mbit/s */
    uint16_t lid;
    uint8_t mtu;                             /* enum ibv_mtu */
    uint8_t ethernet;
};

struct verbs_facts {
    uint32_t n, spare;                       /* rails; 0: none */
    struct verbs_rail_facts rails[VERBS_RAILS_MAX];
};

/* A link: rail `a` of the one end, rail `b` of the other. */
struct verbs_pair { uint8_t a, b; };

/* Is this a record that can be relied on? */
bool verbs_facts_sane(const struct verbs_facts *facts);

/* The links between two ranks, of which `a` is the lower: each rail of the end that has more gets one; those whose GIDs
 * have most in common (one subnet) are joined first, of equals the lower numbers. Returns how many. */
int verbs_pair_rails(const struct verbs_facts *a, const struct verbs_facts *b,
                     struct verbs_pair pairs[VERBS_RAILS_MAX]);

/* Shares of a message over n links so that all end at the same time: link i has `backlog[i]` bytes before it and
 * carries rate[i] bytes a second (0: not to be used). Shares are multiples of `unit` but for one; none is smaller than
 * `least` unless the message is. */
void verbs_stripe(size_t bytes, int n, const double *rate, const size_t *backlog, size_t least, size_t unit,
                  size_t *shares);

#endif
