/* Settings' values as text: parsing, writing, lists of words. Nothing here depends on the locale, which belongs to the
 * application. */
#include "core/config_text.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
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

/* Number of the word in a list separated by spaces, -1: not among them. */
int cfg_word_index(const char *words, const char *word)
{
    size_t length = strlen(word);

    for (int i = 0; *words; i++) {
        size_t n = strcspn(words, " ");
        if (n == length && memcmp(words, word, n) == 0)
            return i;
        words += n;
        words += strspn(words, " ");
    }
    return -1;
}

void cfg_word_at(const char *words, int index, char *text, size_t bytes)
{
    for (; index > 0 && *words; index--) {
        words += strcspn(words, " ");
        words += strspn(words, " ");
    }
    snprintf(text, bytes, "%.*s", (int)strcspn(words, " "), words);
}

int cfg_distance(const char *a, const char *b)
{
    enum { MOST = 40 };
    int row[MOST + 1];
    int length = (int)strlen(b);

    if (length > MOST || strlen(a) > MOST)
        return MOST;
    if (strlen(a) > 2 && (strstr(b, a) || strstr(a, b)))
        return strcmp(a, b) != 0;
    for (int j = 0; j <= length; j++)
        row[j] = j;
    for (int i = 1; *a; i++, a++) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= length; j++) {
            int best = diagonal + (toupper((unsigned char)*a) != b[j - 1]);
            diagonal = row[j];
            if (diagonal + 1 < best)
                best = diagonal + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            row[j] = best;
        }
    }
    return row[length];
}

/* In the largest unit that needs no fraction. */
void cfg_write_size(size_t size, char *text, size_t bytes)
{
    int unit = 0;

    while (size && size % 1024 == 0 && unit < 4) {
        size /= 1024;
        unit++;
    }
    snprintf(text, bytes, "%zu%.*s", size, unit > 0, &"KMGT"[unit > 0 ? unit - 1 : 0]);
}

/* In the largest unit that needs no fraction; to the nanosecond, and to the microsecond where a double holds no more: the
 * text reads back as what writes it. */
void cfg_write_time(double seconds, char *text, size_t bytes)
{
    long long ns = seconds < 1e6 ? llround(seconds * 1e9) : llround(seconds * 1e6) * 1000;

    if (ns % 1000000000 == 0)
        snprintf(text, bytes, "%lld", ns / 1000000000);
    else if (ns % 1000000 == 0)
        snprintf(text, bytes, "%lldms", ns / 1000000);
    else if (ns % 1000 == 0)
        snprintf(text, bytes, "%lldus", ns / 1000);
    else
        snprintf(text, bytes, "%lldns", ns);
}
