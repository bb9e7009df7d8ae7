/* Parsers of the settings' values. They do not depend on the locale, which belongs to the application. */
#include <ctype.h>
#include <math.h>
#include <string.h>

#include "core/config.h"

/* "12" or "12.5": the part before the point exactly, the digits after it as a fraction. Returns what follows, NULL if
 * there is no number or it does not fit. */
static const char *parse_decimal(const char *text, size_t *whole, double *fraction)
{
    double weight = 0.1;

    if (!isdigit((unsigned char)*text))
        return NULL;
    *whole = 0;
    *fraction = 0;
    for (; isdigit((unsigned char)*text); text++) {
        if (__builtin_mul_overflow(*whole, (size_t)10, whole) ||
            __builtin_add_overflow(*whole, (size_t)(*text - '0'), whole))
            return NULL;
    }
    if (*text != '.')
        return text;
    if (!isdigit((unsigned char)*++text))
        return NULL;
    for (; isdigit((unsigned char)*text); text++, weight /= 10)
        *fraction += (*text - '0') * weight;
    return text;
}

bool cfg_parse_size(const char *text, size_t *bytes)
{
    static const char suffixes[] = "KMGT";
    size_t whole, value;
    double fraction;
    int shift = 0;
    const char *rest = parse_decimal(text, &whole, &fraction);

    if (!rest)
        return false;
    if (*rest) {
        const char *suffix = strchr(suffixes, toupper((unsigned char)*rest));
        if (!suffix || rest[1])
            return false;
        shift = 10 * (int)(suffix - suffixes + 1);
    }
    if (__builtin_mul_overflow(whole, (size_t)1 << shift, &value) ||
        __builtin_add_overflow(value, (size_t)(fraction * (double)((size_t)1 << shift) + 0.5), &value))
        return false;
    if (fraction > 0 && shift == 0)
        return false;   /* half a byte */
    *bytes = value;
    return true;
}

bool cfg_parse_time(const char *text, double *seconds)
{
    static const struct { const char *name; double seconds; } units[] = {
        {"", 1}, {"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}
    };
    size_t whole;
    double fraction;
    const char *rest = parse_decimal(text, &whole, &fraction);

    if (!rest)
        return false;
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        if (strcmp(rest, units[i].name) == 0) {
            *seconds = ((double)whole + fraction) * units[i].seconds;
            return true;
        }
    }
    return false;
}

bool cfg_list_item(const char *list, int index, char *out, size_t bytes)
{
    size_t length;

    if (index < 0 || !*list)
        return false;
    for (; index > 0; index--) {
        list = strchr(list, ',');
        if (!list)
            return false;
        list++;
    }
    length = strcspn(list, ",");
    if (length >= bytes)
        return false;
    memcpy(out, list, length);
    out[length] = '\0';
    return true;
}

int cfg_list_length(const char *list)
{
    int length = *list != '\0';

    for (; *list; list++)
        length += *list == ',';
    return length;
}
