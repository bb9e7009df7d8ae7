/* Which entry of a port's GID table names the port to others: see verbs_gid.h. */
#include "wire/verbs/verbs_gid.h"

#include <arpa/inet.h>
#include <string.h>

static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

bool verbs_gid_is_ipv4(const uint8_t gid[16])
{
    return memcmp(gid, mapped, sizeof(mapped)) == 0;
}

static bool is_link_local(const uint8_t gid[16])
{
    return gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80;
}

static bool is_empty(const uint8_t gid[16])
{
    static const uint8_t none[16];

    return memcmp(gid, none, sizeof(none)) == 0;
}

/* The higher the better; 0: not usable. */
static int merit(const struct verbs_gid *gid, bool ethernet)
{
    if (is_empty(gid->raw))
        return 0;
    if (!ethernet)
        return gid->type == VERBS_GID_IB ? 1 : 0;
    if (gid->type == VERBS_GID_ROCE_V2)
        return verbs_gid_is_ipv4(gid->raw) ? 5 : is_link_local(gid->raw) ? 3 : 4;
    return gid->type == VERBS_GID_ROCE_V1 ? (verbs_gid_is_ipv4(gid->raw) ? 2 : 1) : 0;
}

const struct verbs_gid *verbs_gid_choose(const struct verbs_gid *table, int n, bool ethernet, int wanted)
{
    const struct verbs_gid *best = NULL;
    int best_merit = 0;

    for (int i = 0; i < n; i++) {
        int m = merit(&table[i], ethernet);
        if (wanted >= 0) {
            if (table[i].index == wanted && m)
                return &table[i];
        } else if (m > best_merit || (m && m == best_merit && table[i].index < best->index)) {
            best = &table[i];
            best_merit = m;
        }
    }
    return best;
}

int verbs_gid_common(const uint8_t a[16], const uint8_t b[16])
{
    int bits = 0;

    if (verbs_gid_is_ipv4(a) != verbs_gid_is_ipv4(b))
        return 0;
    for (int i = 0; i < 16; i++) {
        uint8_t differ = a[i] ^ b[i];
        if (!differ) {
            bits += 8;
            continue;
        }
        while (!(differ & 0x80)) {
            differ = (uint8_t)(differ << 1);
            bits++;
        }
        break;
    }
    return bits;
}

void verbs_gid_text(const uint8_t gid[16], char text[40])
{
    if (verbs_gid_is_ipv4(gid))
        inet_ntop(AF_INET, gid + 12, text, 40);
    else
        inet_ntop(AF_INET6, gid, text, 40);
}
