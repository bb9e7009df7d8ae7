/* Injected faults of the simulated device: SIM_FAULT, a comma-separated list of copy@N, kernel@N, alloc@N, pin@N,
 * ipc@N, stream@N (the N-th operation of that kind in this process fails; pin: allocation or registration of host
 * memory; stream: creation of one) and slow@N:TIME (each operation of a stream from the N-th on takes TIME longer). */
#include "mem/sim.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/config.h"
#include "core/log.h"
#include "hetmpi.h"

#define FAULTS 16

static struct {
    int n;
    struct { enum sim_fault_kind kind; uint64_t number; int64_t slow; } list[FAULTS];
    _Atomic uint64_t count[FAULT_KINDS];
} faults;

static const char *const kind_names[FAULT_KINDS] = {
    [FAULT_COPY] = "copy", [FAULT_KERNEL] = "kernel", [FAULT_ALLOC] = "alloc", [FAULT_IPC] = "ipc",
    [FAULT_PIN] = "pin", [FAULT_STREAM] = "stream", [FAULT_SLOW] = "slow",
};

static int bad_item(const char *item, const char *why)
{
    faults.n = 0;
    return err_set(HETMPI_ERR_CONFIG, "SIM_FAULT: \"%s\": %s; write copy@N, kernel@N, alloc@N, pin@N, ipc@N, "
                   "stream@N (the N-th operation, from 1) or slow@N:TIME, separated by commas", item, why);
}

static int parse_item(const char *item)
{
    const char *at = strchr(item, '@');
    enum sim_fault_kind kind = 0;
    unsigned long long number;
    double seconds = 0;
    char *end;

    if (!at)
        return bad_item(item, "there is no @");
    while (kind < FAULT_KINDS && (strlen(kind_names[kind]) != (size_t)(at - item) ||
                                  strncmp(kind_names[kind], item, (size_t)(at - item)) != 0))
        kind++;
    if (kind == FAULT_KINDS)
        return bad_item(item, "no such kind of operation");
    errno = 0;
    number = strtoull(at + 1, &end, 10);
    if (at[1] < '0' || at[1] > '9' || number == 0 || errno)
        return bad_item(item, "the number of the operation is wrong");
    if (kind == FAULT_SLOW) {
        if (*end != ':' || !cfg_parse_time(end + 1, &seconds) || seconds < 0 || seconds > 1e6)
            return bad_item(item, "slow needs a time, as in slow@10:50ms");
    } else if (*end != '\0') {
        return bad_item(item, "there is something after the number");
    }
    if (faults.n == FAULTS)
        return bad_item(item, "more than 16 faults");
    faults.list[faults.n].kind = kind;
    faults.list[faults.n].number = number;
    faults.list[faults.n].slow = (int64_t)(seconds * 1e9);
    faults.n++;
    return HETMPI_SUCCESS;
}

int sim_fault_set(const char *text)
{
    char item[64];
    int rc = HETMPI_SUCCESS;

    faults.n = 0;
    for (int kind = 0; kind < FAULT_KINDS; kind++)
        atomic_store(&faults.count[kind], 0);
    while (text && *text && !rc) {
        size_t length = strcspn(text, ",");

        if (length >= sizeof(item))
            return bad_item(text, "too long");
        memcpy(item, text, length);
        item[length] = '\0';
        rc = parse_item(item);
        text += length;
        if (*text == ',' && *++text == '\0')
            return bad_item("", "nothing after the last comma");
    }
    return rc;
}

uint64_t sim_fault_hit(enum sim_fault_kind kind)
{
    uint64_t number;

    if (faults.n == 0)
        return 0;
    number = atomic_fetch_add_explicit(&faults.count[kind], 1, memory_order_relaxed) + 1;
    for (int i = 0; i < faults.n; i++)
        if (faults.list[i].kind == kind && faults.list[i].number == number)
            return number;
    return 0;
}

uint64_t sim_fault_count(enum sim_fault_kind kind)
{
    return atomic_load_explicit(&faults.count[kind], memory_order_relaxed);
}

int64_t sim_fault_slow(void)
{
    uint64_t number;
    int64_t slow = 0;

    if (faults.n == 0)
        return 0;
    number = atomic_fetch_add_explicit(&faults.count[FAULT_SLOW], 1, memory_order_relaxed) + 1;
    for (int i = 0; i < faults.n; i++)
        if (faults.list[i].kind == FAULT_SLOW && number >= faults.list[i].number)
            slow += faults.list[i].slow;
    return slow;
}
