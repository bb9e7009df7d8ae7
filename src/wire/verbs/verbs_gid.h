/*
 * Which entry of a port's GID table names the port to others: pure functions over a table that was read, so that they
 * are tested without hardware.
 */
#ifndef HETMPI_VERBS_GID_H
#define HETMPI_VERBS_GID_H

#include <stdbool.h>
#include <stdint.h>

enum verbs_gid_type { VERBS_GID_IB, VERBS_GID_ROCE_V1, VERBS_GID_ROCE_V2 };

struct verbs_gid {
    uint8_t raw[16];
    int index;
    enum verbs_gid_type type;
};

bool verbs_gid_is_ipv4(const uint8_t gid[16]);         /* an IPv4 address, mapped: ::ffff:a.b.c.d */

/* On Ethernet: RoCE v2 with an IPv4 address before RoCE v2 with a routable IPv6 address, before link-local ones, before
 * RoCE v1; of equals the lowest index. On InfiniBand the lowest index. `wanted` >= 0: that index alone (GID_INDEX).
 * NULL: there is none. */
const struct verbs_gid *verbs_gid_choose(const struct verbs_gid *table, int n, bool ethernet, int wanted);

/* How many leading bits two GIDs have in common, 0 when only one of them is an IPv4 address: most in one subnet. */
int verbs_gid_common(const uint8_t a[16], const uint8_t b[16]);

void verbs_gid_text(const uint8_t gid[16], char text[40]);

#endif
