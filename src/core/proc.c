/* The process-wide part of hetmpi: see proc.h. */
#define _GNU_SOURCE
#include "core/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "core/comm.h"
#include "core/dump.h"
#include "core/engine.h"
#include "core/log.h"
#include "core/status.h"
#include "hetmpi.h"
#include "mem/mem.h"

#define MAX_HOOKS 8

static struct {
    pthread_mutex_t lock;
    _Atomic int device_state, mpi_state;   /* 0: not started, 1: started */
    int thread_level, world_rank, world_size, comm_keyval, self_keyval;
    void (*hooks[MAX_HOOKS])(void);
    int n_hooks;
    atomic_flag nudging;
    MPI_Request nudge;                     /* see proc_let_mpi_progress */
    bool nudge_made;
    char vendor[16];
} proc = {.lock = PTHREAD_MUTEX_INITIALIZER, .comm_keyval = MPI_KEYVAL_INVALID, .self_keyval = MPI_KEYVAL_INVALID,
          .world_rank = -1, .nudging = ATOMIC_FLAG_INIT};

static _Thread_local bool is_progress_thread;
static _Thread_local int is_main_thread = -1;

uint64_t proc_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Without stdio, which would allocate in the middle of a wait. */
int proc_life(int pid)
{
    char path[64], line[256], *after_name, state;
    ssize_t n;
    int file;

    if (kill(pid, 0) != 0 && errno == ESRCH)
        return LIFE_ENDED;
    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return errno == ENOENT ? LIFE_ENDED : LIFE_RUNS;
    n = read(file, line, sizeof(line) - 1);
    close(file);
    line[n > 0 ? n : 0] = '\0';
    after_name = strrchr(line, ')');
    state = after_name && after_name[1] ? after_name[2] : 'R';
    return state == 'Z' || state == 'X' ? LIFE_ENDED : state == 'T' || state == 't' ? LIFE_STOPPED : LIFE_RUNS;
}

void proc_nap(long ns)
{
    int slack = prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0);

    prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0);
    nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
    if (slack > 0)
        prctl(PR_SET_TIMERSLACK, slack, 0, 0, 0);
}

uint64_t proc_hash(uint64_t seed, const void *data, size_t bytes)
{
    const unsigned char *byte = data;

    for (size_t i = 0; i < bytes; i++)
        seed = (seed ^ byte[i]) * 1099511628211u;
    return seed;
}

bool proc_mpi_is_up(void)
{
    int initialized = 0, finalized = 0;

    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    return initialized && !finalized;
}

int proc_want_mpi(void)
{
    int finalized = 0;

    if (proc_mpi_is_up())
        return HETMPI_SUCCESS;
    MPI_Finalized(&finalized);
    return err_set(HETMPI_ERR_STATE, "hetmpi was called %s", finalized ? "after MPI_Finalize" : "before MPI_Init");
}

static int rank_of_launcher(const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const char *text = getenv(names[i]);
        if (text)
            return atoi(text);
    }
    return 0;
}

/* This process's rank in MPI_COMM_WORLD. Before MPI_Init it is what the launcher says: device memory may be asked for
 * that early, and the simulated runtime must know which vendor to be. */
static int find_world_rank(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"};
    int rank = 0;

    if (proc_mpi_is_up()) {
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        return rank;
    }
    return rank_of_launcher(names, sizeof(names) / sizeof(names[0]));
}

/* Its number among those of its node, as the launcher says it. */
static int find_local_rank(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PMI_LOCAL_RANK",
                                        "MV2_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"};

    return rank_of_launcher(names, sizeof(names) / sizeof(names[0]));
}

/* SIM_FAULT entries may end in %rank: keeps those meant for this rank. */
static void faults_of_rank(const char *list, int rank, char *out, size_t bytes)
{
    char item[256];

    out[0] = '\0';
    for (int i = 0; cfg_list_item(list, i, item, sizeof(item)); i++) {
        char *percent = strchr(item, '%');
        if (percent) {
            if (atoi(percent + 1) != rank)
                continue;
            *percent = '\0';
        }
        if (strlen(out) + strlen(item) + 2 > bytes)
            return;
        if (out[0])
            strcat(out, ",");
        strcat(out, item);
    }
}

static int start_device_locked(void)
{
    const struct cfg *cfg = cfg_process();
    struct mem_setup setup;
    char fault[256];
    int code;

    if (!cfg)
        return err_code() ? err_code() : HETMPI_ERR_CONFIG;
    log_set_level((enum log_level)cfg->log);
    proc.world_rank = find_world_rank();
    log_set_rank(proc.world_rank);
    strcpy(proc.vendor, "cpu");
    if (cfg->sim_vendors[0] && !cfg_list_item(cfg->sim_vendors, proc.world_rank, proc.vendor, sizeof(proc.vendor)))
        return err_set(HETMPI_ERR_CONFIG, "SIM_VENDORS=%s names %d vendors, but this is rank %d of MPI_COMM_WORLD: give "
                       "one for each rank", cfg->sim_vendors, cfg_list_length(cfg->sim_vendors), proc.world_rank);
    if (!cfg->sim_vendors[0] && strcmp(mem_backend(), "sim") == 0)
        strcpy(proc.vendor, "nvidia");
    if (strcmp(proc.vendor, "cpu") && strcmp(proc.vendor, "nvidia") && strcmp(proc.vendor, "amd"))
        return err_set(HETMPI_ERR_CONFIG, "SIM_VENDORS: '%s' of rank %d is not cpu, nvidia or amd", proc.vendor,
                       proc.world_rank);
    faults_of_rank(cfg->sim_fault, proc.world_rank, fault, sizeof(fault));
    setup = (struct mem_setup){.vendor = proc.vendor, .device = cfg->device, .local_rank = find_local_rank(),
                               .bandwidth = cfg->sim_bandwidth, .peer_bandwidth = cfg->sim_peer_bandwidth,
                               .latency = cfg->sim_latency, .fault = fault};
    code = dump_start(cfg->dump);
    if (!code)
        code = mem_init(&setup);
    if (code == HETMPI_SUCCESS)
        atomic_store_explicit(&proc.device_state, 1, memory_order_release);
    return code;
}

int proc_start_device(void)
{
    int code = HETMPI_SUCCESS;

    if (atomic_load_explicit(&proc.device_state, memory_order_acquire))
        return HETMPI_SUCCESS;
    pthread_mutex_lock(&proc.lock);
    if (!atomic_load(&proc.device_state))
        code = start_device_locked();
    pthread_mutex_unlock(&proc.lock);
    return code;
}

/* MPI calls this at the start of MPI_Finalize, while MPI still works. */
static int on_finalize(MPI_Comm comm, int keyval, void *value, void *extra)
{
    (void)comm, (void)keyval, (void)value, (void)extra;
    comm_free_all();
    engine_stop();
    for (int i = proc.n_hooks - 1; i >= 0; i--)
        proc.hooks[i]();
    proc.n_hooks = 0;
    MPI_Comm_free_keyval(&proc.comm_keyval);
    MPI_Comm_free_keyval(&proc.self_keyval);
    dump_stop();
    atomic_store(&proc.mpi_state, 0);
    /* The device runtime stays: device memory may outlive MPI. */
    return MPI_SUCCESS;
}

static int start_mpi_locked(void)
{
    int code = proc_want_mpi();

    if (code)
        return code;
    MPI_Query_thread(&proc.thread_level);
    MPI_Comm_rank(MPI_COMM_WORLD, &proc.world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &proc.world_size);
    log_set_rank(proc.world_rank);
    if (MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, comm_on_delete, &proc.comm_keyval, NULL) != MPI_SUCCESS)
        return err_set(HETMPI_ERR_MPI, "MPI_Comm_create_keyval failed");
    if (MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, on_finalize, &proc.self_keyval, NULL) != MPI_SUCCESS ||
        MPI_Comm_set_attr(MPI_COMM_SELF, proc.self_keyval, &proc) != MPI_SUCCESS)
        return err_set(HETMPI_ERR_MPI, "cannot set an attribute of MPI_COMM_SELF");
    atomic_store_explicit(&proc.mpi_state, 1, memory_order_release);
    return HETMPI_SUCCESS;
}

int proc_start(void)
{
    int code;

    if (atomic_load_explicit(&proc.mpi_state, memory_order_acquire))
        return HETMPI_SUCCESS;
    code = proc_start_device();
    if (code)
        return code;
    pthread_mutex_lock(&proc.lock);
    if (!atomic_load(&proc.mpi_state))
        code = start_mpi_locked();
    pthread_mutex_unlock(&proc.lock);
    return code;
}

bool proc_started(void) { return atomic_load_explicit(&proc.mpi_state, memory_order_acquire); }
int proc_thread_level(void) { return proc.thread_level; }
int proc_comm_keyval(void) { return proc.comm_keyval; }
int proc_world_rank(void) { return proc.world_rank; }
int proc_world_size(void) { return proc.world_size; }
void proc_mark_progress_thread(void) { is_progress_thread = true; }

bool proc_may_interrupt_mpi(void)
{
    if (!atomic_load_explicit(&proc.mpi_state, memory_order_acquire))
        return false;
    return proc.thread_level == MPI_THREAD_MULTIPLE ||
           (proc.thread_level != MPI_THREAD_SERIALIZED && proc_may_call_mpi());
}

bool proc_may_call_mpi(void)
{
    if (!atomic_load_explicit(&proc.mpi_state, memory_order_relaxed))
        return false;
    if (proc.thread_level == MPI_THREAD_MULTIPLE)
        return true;
    if (is_progress_thread)
        return false;
    if (proc.thread_level == MPI_THREAD_SERIALIZED)
        return true;
    if (is_main_thread < 0)
        MPI_Is_thread_main(&is_main_thread);
    return is_main_thread > 0;
}

static int nudge_query(void *state, MPI_Status *status)
{
    (void)state;
    MPI_Status_set_elements(status, MPI_BYTE, 0);
    MPI_Status_set_cancelled(status, 0);
    status->MPI_SOURCE = status->MPI_TAG = MPI_UNDEFINED;
    return MPI_SUCCESS;
}

static int nudge_free(void *state)
{
    (void)state;
    return MPI_SUCCESS;
}

static int nudge_cancel(void *state, int complete)
{
    (void)state, (void)complete;
    return MPI_SUCCESS;
}

static void end_nudge(void)
{
    MPI_Grequest_complete(proc.nudge);
    MPI_Wait(&proc.nudge, MPI_STATUS_IGNORE);
    proc.nudge_made = false;
}

/* MPI promises progress to whoever tests a request that is not complete, and this one never is. (A probe is not enough:
 * MPICH's on MPI_COMM_SELF looks nowhere else.) */
void proc_let_mpi_progress(void)
{
    int flag;

    if (!proc_may_call_mpi() || atomic_flag_test_and_set_explicit(&proc.nudging, memory_order_acquire))
        return;
    if (!proc.nudge_made &&
        MPI_Grequest_start(nudge_query, nudge_free, nudge_cancel, NULL, &proc.nudge) == MPI_SUCCESS) {
        proc.nudge_made = true;
        proc_at_finalize(end_nudge);
    }
    if (proc.nudge_made)
        MPI_Test(&proc.nudge, &flag, MPI_STATUS_IGNORE);
    atomic_flag_clear_explicit(&proc.nudging, memory_order_release);
}

void proc_at_finalize(void (*function)(void))
{
    pthread_mutex_lock(&proc.lock);
    if (proc.n_hooks < MAX_HOOKS)
        proc.hooks[proc.n_hooks++] = function;
    pthread_mutex_unlock(&proc.lock);
}
