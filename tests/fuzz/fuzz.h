/*
 * What the fuzz targets share. A target is one file with LLVMFuzzerTestOneInput: under libFuzzer (clang) it gets random
 * inputs, in every build replay.c gives it the kept ones. Wherever a target would have to guess whole records, the input
 * is a list of edits of a right one.
 */
#ifndef HETMPI_FUZZ_H
#define HETMPI_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FUZZ_CHECK(what)                                                                                            \
    do {                                                                                                            \
        if (!(what)) {                                                                                              \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #what);                               \
            abort();                                                                                                \
        }                                                                                                           \
    } while (0)

/* The part of the input that is not used yet. */
struct fuzz_input { const uint8_t *data; size_t size; };

/* The next byte, 0 at the end. */
static inline uint8_t fuzz_byte(struct fuzz_input *in)
{
    if (!in->size)
        return 0;
    in->size--;
    return *in->data++;
}

static inline uint16_t fuzz_short(struct fuzz_input *in)
{
    uint16_t low = fuzz_byte(in);

    return (uint16_t)(low | fuzz_byte(in) << 8);
}

/* One edit of a record of `bytes` bytes: at which byte, then its new value, for up to 8 in a row. */
static inline void fuzz_edit(struct fuzz_input *in, void *record, size_t bytes)
{
    size_t at = fuzz_short(in) % bytes, n = fuzz_byte(in) % 8 + 1;

    for (; n > 0 && at < bytes; n--, at++)
        ((uint8_t *)record)[at] = fuzz_byte(in);
}

#endif
