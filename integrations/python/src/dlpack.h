/* DLPack 1.0's structures, as capsules carry them (a stable ABI; only what is used here has names). */
#ifndef DLPACK_H
#define DLPACK_H

#include <stdint.h>

struct dl_device {
    int32_t type;
    int32_t id;
};

struct dl_tensor {
    void *data;
    struct dl_device device;
    int32_t ndim;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } dtype;
    int64_t *shape;
    int64_t *strides;        /* in elements; NULL: rows first, without gaps */
    uint64_t byte_offset;
};

/* In a capsule "dltensor"; "used_dltensor" once somebody took it. */
struct dl_managed {
    struct dl_tensor tensor;
    void *context;
    void (*deleter)(struct dl_managed *self);
};

/* In a capsule "dltensor_versioned". */
struct dl_versioned {
    struct {
        uint32_t major, minor;
    } version;
    void *context;
    void (*deleter)(struct dl_versioned *self);
    uint64_t flags;
    struct dl_tensor tensor;
};
#define DL_READ_ONLY UINT64_C(1)

#endif
