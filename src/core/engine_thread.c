/* The engine's lock, and the progress thread, which drives what is queued where nobody waits for it. */
#include <pthread.h>
#include <string.h>

#include "core/engine_parts.h"
#include "core/log.h"
#include "core/proc.h"
#include "hetmpi.h"

static struct {
    pthread_mutex_t lock;
    pthread_cond_t work;           /* something was queued */
    pthread_t id;
    bool runs;                     /* under lock */
    _Atomic bool stop;
} thread = {.lock = PTHREAD_MUTEX_INITIALIZER, .work = PTHREAD_COND_INITIALIZER};

void engine_lock(void) { pthread_mutex_lock(&thread.lock); }
void engine_unlock(void) { pthread_mutex_unlock(&thread.lock); }
bool engine_trylock(void) { return pthread_mutex_trylock(&thread.lock) == 0; }

void thread_wake(void)
{
    if (thread.runs)
        pthread_cond_signal(&thread.work);
}

/* Is there anything that the progress thread could drive? */
static bool any_queued(void)
{
    for (const struct comm *comm = comm_first(); comm; comm = comm->next)
        if (comm->head || (p2p_pending(comm) && proc_may_call_mpi()))
            return true;
    return false;
}

/* Nobody but a stream waits for a call on it: dead ranks and the timeout are looked for here. What the stream itself has
 * to do before the call is no wait for others. Called with the lock held. */
static void look_for_streams(void)
{
    for (struct comm *comm = comm_first(); comm; comm = comm->next) {
        struct op *op = comm->head;
        if (!op || !op->stream_value || op->state == OP_WAIT_STREAM)
            continue;
        op->watch.locked = true;
        watch_look(&op->watch, comm);   /* a failure ends the op in the next progress */
    }
}

/* The progress thread sleeps while nothing is queued, and naps when nothing moves: those who wait poll themselves. */
static void *thread_main(void *unused)
{
    unsigned idle = 0;
    bool moved;

    (void)unused;
    proc_mark_progress_thread();
    engine_lock();
    while (!atomic_load(&thread.stop)) {
        if (!any_queued()) {
            pthread_cond_wait(&thread.work, &thread.lock);
            idle = 0;
            continue;
        }
        moved = engine_progress_all();
        idle = moved ? 0 : idle + 1;
        if (idle)
            look_for_streams();
        engine_unlock();
        if (idle)
            proc_nap(idle < 50 ? 10000 : 50000);
        engine_lock();
    }
    engine_unlock();
    return NULL;
}

bool engine_thread_allowed(const struct comm *comm)
{
    return comm->cfg->progress != CFG_PROGRESS_WAIT &&
           (comm->shadow == MPI_COMM_NULL || proc_thread_level() == MPI_THREAD_MULTIPLE);
}

bool engine_p2p_thread_allowed(const struct comm *comm)
{
    return comm->cfg->progress != CFG_PROGRESS_WAIT && proc_thread_level() == MPI_THREAD_MULTIPLE;
}

static int start_thread(void)
{
    int error;

    engine_lock();
    if (!thread.runs) {
        error = pthread_create(&thread.id, NULL, thread_main, NULL);
        if (error) {
            engine_unlock();
            return err_set(HETMPI_ERR_MEMORY, "cannot start the progress thread: %s", strerror(error));
        }
        thread.runs = true;
    }
    engine_unlock();
    return HETMPI_SUCCESS;
}

static int no_thread(const struct comm *comm, const char *why)
{
    return err_set(HETMPI_ERR_UNSUPPORTED, "a call on a stream needs a progress thread: %s",
                   comm->cfg->progress == CFG_PROGRESS_WAIT ? "the setting PROGRESS=wait forbids it" : why);
}

int engine_want_thread(struct comm *comm)
{
    if (!engine_thread_allowed(comm))
        return no_thread(comm, "this communicator uses MPI between its ranks, so initialise MPI with "
                         "MPI_THREAD_MULTIPLE");
    return start_thread();
}

int engine_want_p2p_thread(struct comm *comm)
{
    if (!engine_p2p_thread_allowed(comm))
        return no_thread(comm, "messages go over MPI, so initialise MPI with MPI_THREAD_MULTIPLE");
    return start_thread();
}

void engine_stop(void)
{
    bool runs;

    engine_lock();
    runs = thread.runs;
    thread.runs = false;
    atomic_store(&thread.stop, true);
    pthread_cond_signal(&thread.work);
    engine_unlock();
    if (runs)
        pthread_join(thread.id, NULL);
    atomic_store(&thread.stop, false);
    stage_stop();
}
