/* Asking a running job what it is doing: see dump.h. */
#define _GNU_SOURCE
#include "core/dump.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "core/log.h"
#include "core/proc.h"
#include "hetmpi.h"

#define STAT_EVERY_NS 250000000u

static struct {
    _Atomic bool asked;            /* by the signal */
    int signal;                    /* 0: none */
    struct sigaction before;
    const char *file;              /* NULL: none */
    _Atomic uint64_t changed;      /* of the file, as last seen, ns */
    _Atomic uint64_t looked_ns;
} dump;

static const struct { const char *name; int number; } signals[] = {
    {"SIGUSR1", SIGUSR1}, {"SIGUSR2", SIGUSR2}, {"SIGHUP", SIGHUP}, {"SIGQUIT", SIGQUIT}, {"SIGURG", SIGURG},
    {"SIGWINCH", SIGWINCH}, {"SIGIO", SIGIO},
};

/* Nothing here but what a signal handler may do. */
static void on_signal(int number, siginfo_t *info, void *context)
{
    atomic_store_explicit(&dump.asked, true, memory_order_relaxed);
    if (dump.before.sa_flags & SA_SIGINFO)
        dump.before.sa_sigaction(number, info, context);
    else if (dump.before.sa_handler != SIG_DFL && dump.before.sa_handler != SIG_IGN)
        dump.before.sa_handler(number);
}

/* When the file last changed; 0: it is not there. */
static uint64_t file_time(void)
{
    struct stat facts;

    if (stat(dump.file, &facts) != 0)
        return 0;
    return (uint64_t)facts.st_mtim.tv_sec * 1000000000u + (uint64_t)facts.st_mtim.tv_nsec;
}

int dump_start(const char *setting)
{
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART};

    if (!*setting || dump.signal || dump.file)
        return HETMPI_SUCCESS;
    if (strchr(setting, '/')) {
        dump.file = setting;
        atomic_store(&dump.changed, file_time());
        return HETMPI_SUCCESS;
    }
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
        if (strcmp(signals[i].name, setting) != 0)
            continue;
        if (sigaction(signals[i].number, NULL, &dump.before) || sigaction(signals[i].number, &action, NULL))
            return err_set(HETMPI_ERR_CONFIG, "DUMP=%s: the signal cannot be caught", setting);
        dump.signal = signals[i].number;
        return HETMPI_SUCCESS;
    }
    return err_set(HETMPI_ERR_CONFIG, "DUMP=%s: neither one of SIGUSR1 SIGUSR2 SIGHUP SIGQUIT SIGURG SIGWINCH SIGIO, nor "
                   "a file's path with a / in it", setting);
}

void dump_stop(void)
{
    struct sigaction now;

    /* The application may have put its own in our place since. */
    if (dump.signal && sigaction(dump.signal, NULL, &now) == 0 && now.sa_flags & SA_SIGINFO &&
        now.sa_sigaction == on_signal)
        sigaction(dump.signal, &dump.before, NULL);
    dump.signal = 0;
    dump.file = NULL;
}

/* Of the ranks of a node, all of which see the file, the first answers for all. */
static bool is_first(const struct comm *comm, uint64_t changed)
{
    struct ctl *ctl = comm ? comm_leader_ctl(comm) : NULL;
    uint64_t last;

    if (!ctl)
        return true;
    last = atomic_load(&ctl->dumped.value);
    while (last != changed)
        if (atomic_compare_exchange_strong(&ctl->dumped.value, &last, changed))
            return true;
    return false;
}

static bool file_changed(const struct comm *comm)
{
    uint64_t now = proc_now_ns(), looked = atomic_load(&dump.looked_ns), changed, before;

    if (now - looked < STAT_EVERY_NS || !atomic_compare_exchange_strong(&dump.looked_ns, &looked, now))
        return false;
    changed = file_time();
    before = atomic_exchange(&dump.changed, changed);
    return changed && changed != before && is_first(comm, changed);
}

bool dump_asked(const struct comm *comm)
{
    if (dump.signal)
        return atomic_load_explicit(&dump.asked, memory_order_relaxed) && atomic_exchange(&dump.asked, false);
    return dump.file && file_changed(comm);
}
