/* Life of what hetmpi keeps for a communicator: look-up by attribute, failure, end. Set-up is in setup.c. */
#include "core/comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/engine.h"
#include "core/log.h"
#include "core/notice.h"
#include "core/proc.h"
#include "hetmpi.h"
#include "wire/wire.h"

static struct comm *all_comms;              /* under the engine's lock, as is the next */
static uint64_t serials;
static _Atomic unsigned generation = 1;     /* changes whenever a communicator ends */

/* The last look-up of this thread: an MPI attribute look-up costs more than the rest of a small call. */
static _Thread_local struct { MPI_Comm user; struct comm *comm; unsigned generation; } last;

struct comm *comm_first(void) { return all_comms; }

bool comm_lives(uint64_t serial)
{
    const struct comm *comm;

    engine_lock();
    for (comm = all_comms; comm && comm->serial != serial; comm = comm->next)
        ;
    engine_unlock();
    return comm != NULL;
}

unsigned comm_generation(void)
{
    return atomic_load_explicit(&generation, memory_order_acquire);
}

bool comm_lives_still(uint64_t serial, unsigned *seen)
{
    unsigned now = comm_generation();

    if (*seen == now)
        return true;
    if (!comm_lives(serial))
        return false;
    *seen = now;
    return true;
}

/* Without a question to MPI, for threads that may not ask it. */
static struct comm *lookup_listed(MPI_Comm user)
{
    struct comm *comm;

    engine_lock();
    for (comm = all_comms; comm && comm->user != user; comm = comm->next)
        ;
    engine_unlock();
    return comm;
}

static struct comm *lookup_attribute(MPI_Comm user)
{
    struct comm *comm = NULL;
    int found = 0;

    if (user == MPI_COMM_NULL || MPI_Comm_get_attr(user, proc_comm_keyval(), &comm, &found) != MPI_SUCCESS || !found)
        return NULL;
    return comm;
}

/* Also one whose set-up ended in a timeout. */
static struct comm *lookup(MPI_Comm user)
{
    unsigned now = atomic_load_explicit(&generation, memory_order_acquire);
    struct comm *comm;

    if (last.user == user && last.generation == now && last.comm)
        return last.comm;
    comm = proc_may_interrupt_mpi() ? lookup_attribute(user) : lookup_listed(user);
    if (!comm)
        return NULL;
    last.user = user;
    last.comm = comm;
    last.generation = now;
    return comm;
}

struct comm *comm_find(MPI_Comm user)
{
    struct comm *comm = lookup(user);

    return comm && comm->stillborn ? NULL : comm;
}

/* Settings of one communicator: the process's, changed by the entries of info. NULL with *code set on error.
 * *islands: whether ISLANDS is among them. */
static struct cfg *settings_from_info(MPI_Info info, int *code, bool *islands)
{
    char key[MPI_MAX_INFO_KEY + 1], value[MPI_MAX_INFO_VAL + 1];
    struct cfg *cfg = malloc(sizeof(*cfg));
    int n = 0, flag;

    if (!cfg) {
        *code = err_set(HETMPI_ERR_MEMORY, "no memory for the settings of a communicator");
        return NULL;
    }
    *cfg = *cfg_process();
    MPI_Info_get_nkeys(info, &n);
    for (int i = 0; i < n; i++) {
        MPI_Info_get_nthkey(info, i, key);
        MPI_Info_get(info, key, MPI_MAX_INFO_VAL, value, &flag);
        *code = flag ? cfg_set_info(cfg, key, value) : HETMPI_SUCCESS;
        if (*code) {
            free(cfg);
            return NULL;
        }
        *islands |= strcmp(key, "islands") == 0;
    }
    *code = HETMPI_SUCCESS;
    return cfg;
}

static int check_user_comm(MPI_Comm user)
{
    int inter = 0;

    if (user == MPI_COMM_NULL)
        return err_set(HETMPI_ERR_ARG, "the communicator is MPI_COMM_NULL");
    MPI_Comm_test_inter(user, &inter);
    if (inter)
        return err_set(HETMPI_ERR_ARG, "the communicator is an intercommunicator: hetmpi serves intracommunicators only");
    return HETMPI_SUCCESS;
}

/* This process could not start (a bad setting, no device), but the others do not know and are about to set the
 * communicator up: tells them, so that all ranks get the error instead of waiting for this one. */
static void share_start_error(MPI_Comm user, int code)
{
    struct comm *comm;
    char text[512];
    int size = 0, inter = 0;

    if (!proc_mpi_is_up() || MPI_Comm_size(user, &size) != MPI_SUCCESS || size == 1)
        return;
    /* Ranks that could start refuse an intercommunicator at once. */
    if (MPI_Comm_test_inter(user, &inter) != MPI_SUCCESS || inter)
        return;
    snprintf(text, sizeof(text), "%s", err_text());
    comm = calloc(1, sizeof(*comm));
    if (comm)
        comm_setup(user, NULL, comm);
    free(comm);
    err_copy(code, text);
}

/* From now on calls on the communicator find it. */
static int enlist(struct comm *comm)
{
    if (MPI_Comm_set_attr(comm->user, proc_comm_keyval(), comm) != MPI_SUCCESS)
        return err_set(HETMPI_ERR_MPI, "MPI_Comm_set_attr failed");
    engine_lock();
    comm->serial = ++serials;
    comm->next = all_comms;
    all_comms = comm;
    engine_unlock();
    return HETMPI_SUCCESS;
}

int comm_get(MPI_Comm user, MPI_Info info, struct comm **out)
{
    struct comm *comm;
    int code, listed;

    code = proc_start();
    if (code) {
        if (code != HETMPI_ERR_STATE && user != MPI_COMM_NULL)
            share_start_error(user, code);
        return code;
    }
    comm = lookup(user);
    if (comm && comm->stillborn)
        return comm_failed(comm);
    if (comm && info != MPI_INFO_NULL)
        return err_set(HETMPI_ERR_STATE, "this communicator is set up already: settings can be given to the first "
                       "hetmpi call on it only (hetmpi_comm_attach)");
    if (comm) {
        *out = comm;
        return HETMPI_SUCCESS;
    }
    code = check_user_comm(user);
    if (code)
        return code;
    comm = calloc(1, sizeof(*comm));
    if (!comm)
        return err_set(HETMPI_ERR_MEMORY, "no memory for a communicator");
    comm->cfg = cfg_process();
    if (info != MPI_INFO_NULL) {
        comm->cfg_own = settings_from_info(info, &code, &comm->islands_own);
        comm->cfg = comm->cfg_own;
        /* A rank whose info is bad still takes part, or the others would wait for it: setup.c spreads the error. */
    }
    code = comm_setup(user, code ? NULL : comm->cfg, comm);
    if (code && !comm->stillborn)
        goto free_comm;
    if (code) {
        /* Late ranks may still answer what was given up: another attempt would take their answers for its own. */
        snprintf(comm->failed_text, sizeof(comm->failed_text), "%s", err_text());
        atomic_store(&comm->failed, code);
    }
    listed = enlist(comm);
    if (listed) {
        code = listed;
        goto release;
    }
    *out = comm;
    return code;

release:
    comm_release(comm);
free_comm:
    free(comm->cfg_own);
    free(comm);
    return code;
}

/* A rank may be done while another still has to map its memory to read what it left there: where regions may have been
 * made, all ranks meet once more before any goes. */
static bool needs_goodbye(struct comm *comm)
{
    return comm->size > 1 && comm->ran && !comm->goodbye_said && !comm_failed(comm);
}

static void goodbye(struct comm *comm, struct op *op)
{
    memset(op, 0, sizeof(*op));
    op->comm = comm;
    op->call.kind = COLL_BARRIER;
    comm->goodbye_said = true;
    engine_submit(op);
}

/* After the goodbye, and before any rank waits for another in the end of this or another communicator. */
static void part(struct comm *comm)
{
    if (comm->wire_verbs && !comm_failed(comm))
        comm->wire_verbs->ops->part(comm->wire_verbs);
}

/* Ends what is pending. */
static void wind_up(struct comm *comm)
{
    struct op op;

    engine_drain(comm);
    if (needs_goodbye(comm)) {
        goodbye(comm, &op);
        engine_wait(&op);
        part(comm);
    }
}

/* MPI_Comm_free, hetmpi_comm_detach and the end of the process all come here. */
int comm_on_delete(MPI_Comm user, int keyval, void *value, void *extra)
{
    struct comm *comm = value, **link;

    (void)user, (void)keyval, (void)extra;
    wind_up(comm);
    engine_lock();
    for (link = &all_comms; *link; link = &(*link)->next)
        if (*link == comm) {
            *link = comm->next;
            break;
        }
    engine_unlock();
    atomic_fetch_add(&generation, 1);
    comm_release(comm);
    free(comm->cfg_own);
    free(comm);
    return MPI_SUCCESS;
}

/* What is left of a communicator with a rank that does not answer: its failure, for calls to come. */
static int leave_failure(MPI_Comm user, int code, const char *text)
{
    struct comm *comm = calloc(1, sizeof(*comm));

    if (!comm)
        return err_set(HETMPI_ERR_MEMORY, "no memory for a communicator");
    comm->user = user;
    comm->cfg = cfg_process();
    comm->shadow = MPI_COMM_NULL;
    comm->ctl_seg.fd = -1;
    MPI_Comm_rank(user, &comm->rank);
    MPI_Comm_size(user, &comm->size);
    comm->stillborn = true;
    snprintf(comm->failed_text, sizeof(comm->failed_text), "%s", text);
    atomic_store(&comm->failed, code);
    code = enlist(comm);
    if (code)
        free(comm);
    return code;
}

int comm_detach(struct comm *comm)
{
    MPI_Comm user = comm->user;
    int before = comm_failed(comm), failed, code;
    char text[sizeof(comm->failed_text)];

    wind_up(comm);
    failed = comm_failed(comm);
    snprintf(text, sizeof(text), "%s", comm->failed_text);
    code = comm_mpi_error(MPI_Comm_delete_attr(user, proc_comm_keyval()), "MPI_Comm_delete_attr");
    if (!code && (failed == HETMPI_ERR_PEER || failed == HETMPI_ERR_TIMEOUT))
        code = leave_failure(user, failed, text);
    if (!code && failed && !before) {
        err_copy(failed, text);
        code = failed;
    }
    return code;
}

void comm_free_all(void)
{
    struct comm *comm;
    struct op *ops, *op;
    size_t n = 0;

    /* Ranks have their communicators in different orders: goodbyes are said on all before one is waited for. */
    for (comm = all_comms; comm; comm = comm->next)
        n++;
    ops = n ? calloc(n, sizeof(*ops)) : NULL;
    op = ops;
    for (comm = all_comms; comm && ops; comm = comm->next)
        if (needs_goodbye(comm))
            goodbye(comm, op++);
    for (struct op *said = ops; said != op; said++)
        engine_wait(said);
    while (op != ops)
        part((--op)->comm);
    free(ops);
    while (all_comms)
        if (MPI_Comm_delete_attr(all_comms->user, proc_comm_keyval()) != MPI_SUCCESS)
            break;
}

int comm_fail(struct comm *comm, int code, const char *text)
{
    bool may_be_death = code == HETMPI_ERR_MPI || code == HETMPI_ERR_MEMORY || code == HETMPI_ERR_DEVICE;
    int dead = may_be_death && comm->n_local > 1 ? watch_blame_dead(comm, code) : HETMPI_SUCCESS;

    if (dead)
        return dead;
    if (!comm_failed(comm))
        notice_send(comm, code, text);
    return comm_fail_here(comm, code, text);
}

int comm_lose_call(struct comm *comm, int code)
{
    char text[sizeof(comm->failed_text)];

    if (comm->size == 1 || (code != HETMPI_ERR_MEMORY && code != HETMPI_ERR_DEVICE && code != HETMPI_ERR_MPI &&
                            code != HETMPI_ERR_INTERNAL))
        return code;
    snprintf(text, sizeof(text), "%.500s", err_text());
    return comm_fail(comm, code, text);
}

int comm_abort(struct comm *comm, const char *text)
{
    if (proc_may_interrupt_mpi())
        return comm_fail(comm, HETMPI_ERR_ABORTED, text);
    notice_send_later(comm);
    return comm_fail_here(comm, HETMPI_ERR_ABORTED, text);
}

int comm_fail_here(struct comm *comm, int code, const char *text)
{
    int none = 0;

    if (!atomic_compare_exchange_strong(&comm->failed, &none, -1))
        return comm_failed(comm);
    snprintf(comm->failed_text, sizeof(comm->failed_text), "%s", text);
    atomic_store_explicit(&comm->failed, code, memory_order_release);
    if (comm->ctl) {
        /* The text stands in our segment; every rank of the node is pointed to it. */
        snprintf(comm->ctl->failure_text, sizeof(comm->ctl->failure_text), "%s", text);
        for (int i = 0; i < comm->n_local; i++) {
            uint64_t zero = 0;
            atomic_compare_exchange_strong(&comm->ctls[comm->local[i]]->failure.value, &zero,
                                           (uint64_t)code << 32 | (uint32_t)(comm->rank + 1));
        }
    }
    err_copy(code, comm->failed_text);
    return code;
}

/* Another rank of the node ended the communicator's use: takes its code and text over. */
static int adopt_failure(struct comm *comm, uint64_t word)
{
    int none = 0, code = (int)(word >> 32), rank = (int)((uint32_t)word - 1);

    if (code <= 0 || code >= HETMPI_ERR_LAST || rank < 0 || rank >= comm->size || !comm->ctls[rank])
        return comm_fail_here(comm, HETMPI_ERR_INTERNAL, "this communicator's state in shared memory is damaged");
    if (atomic_compare_exchange_strong(&comm->failed, &none, -1)) {
        char text[sizeof(comm->failed_text)];
        snprintf(text, sizeof(text), "%s", comm->ctls[rank]->failure_text);
        if (rank == comm->rank)
            snprintf(comm->failed_text, sizeof(comm->failed_text), "%s", text);
        else
            snprintf(comm->failed_text, sizeof(comm->failed_text), "rank %d reported: %.480s", rank, text);
        atomic_store_explicit(&comm->failed, code, memory_order_release);
    }
    return comm_failed(comm);
}

int comm_failed(struct comm *comm)
{
    int code = atomic_load_explicit(&comm->failed, memory_order_acquire);
    uint64_t word;

    if (code == 0 && comm->ctl) {
        word = atomic_load_explicit(&comm->ctl->failure.value, memory_order_acquire);
        if (word)
            return adopt_failure(comm, word);
    }
    while (code == -1)   /* another thread is writing the text: a few instructions */
        code = atomic_load_explicit(&comm->failed, memory_order_acquire);
    if (code)
        err_copy(code, comm->failed_text);
    return code;
}

int comm_take_async(struct comm *comm)
{
    int code;

    if (!atomic_load_explicit(&comm->async_code, memory_order_acquire))
        return HETMPI_SUCCESS;
    code = atomic_exchange(&comm->async_code, HETMPI_SUCCESS);
    if (code)
        err_copy(code, comm->async_text);
    return code;
}

int comm_mpi_error(int mpi_code, const char *call)
{
    char text[MPI_MAX_ERROR_STRING + 1];
    int length = 0;

    if (mpi_code == MPI_SUCCESS)
        return HETMPI_SUCCESS;
    text[0] = '\0';
    MPI_Error_string(mpi_code, text, &length);
    return err_set(HETMPI_ERR_MPI, "%s: %s", call, text);
}

int comm_region_publish(struct comm *comm, enum ctl_region_kind kind, const struct seg_name *name, const mem_ipc_t *ipc)
{
    struct ctl_region *region = &comm->ctl->region[kind];

    if (name)
        region->name = *name;
    if (ipc)
        region->ipc = *ipc;
    atomic_store_explicit(&region->ready, 1, memory_order_release);
    return HETMPI_SUCCESS;
}

int comm_region_lost(struct comm *comm, enum ctl_region_kind kind, int code)
{
    code = comm_lose_call(comm, code);
    atomic_store_explicit(&comm->ctl->region[kind].ready, 2, memory_order_release);
    return code;
}

int comm_region_name(struct comm *comm, int rank, enum ctl_region_kind kind, struct seg_name *name, mem_ipc_t *ipc)
{
    const struct ctl_region *region = &comm->ctls[rank]->region[kind];

    switch (atomic_load_explicit(&region->ready, memory_order_acquire)) {
    case 0:
        return COMM_AGAIN;
    case 1:
        if (name)
            *name = region->name;
        if (ipc)
            *ipc = region->ipc;
        return HETMPI_SUCCESS;
    default:
        return err_set(HETMPI_ERR_MEMORY, "rank %d could not make its shared memory region (see its own message)", rank);
    }
}
