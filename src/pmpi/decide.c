/* Which calls hetmpi serves: the setting, the communicator, and in reductions type and operation. See pmpi.h. */
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "core/log.h"
#include "hetmpi.h"
#include "pmpi/layout.h"
#include "pmpi/pmpi.h"

#define ALL_CALLS ((1u << PMPI_CALL_N) - 1)

static struct {
    pthread_mutex_t lock;
    _Atomic int state;                 /* enum state */
    unsigned calls;                    /* bit of each enum pmpi_call that hetmpi may serve */
    int keyval;                        /* on communicators: SERVED or NOT_SERVED, as a pointer */
    _Atomic unsigned generation;       /* changes whenever a communicator ends */
    _Atomic uint64_t served, passed;
} process = {.lock = PTHREAD_MUTEX_INITIALIZER, .keyval = MPI_KEYVAL_INVALID, .generation = 1};

enum state { BEFORE, RUNNING, ENDED };
enum { SERVED = 1, NOT_SERVED = 2 };

/* The last communicator of this thread: asking MPI costs more than the rest of the decision. */
static _Thread_local struct { MPI_Comm comm; unsigned generation; bool served; } last;

/* ---- the setting ---- */

/* "allreduce,bcast", "all,-alltoallv", "-barrier" (of all): hetmpi has checked that there are no other words. */
static unsigned parse_calls(char *list)
{
    static const char *const names[PMPI_CALL_N] = {
#define CALL(Name, name, NAME, traits, ...) [PMPI_CALL_##NAME] = #name,
        COLL_ALL(CALL)
#undef CALL
    };
    unsigned calls = *list == '-' ? ALL_CALLS : 0;
    char *rest = NULL;

    for (char *word = strtok_r(list, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
        unsigned bits = strcmp(word, "all") == 0 ? ALL_CALLS : 0;
        bool less = *word == '-';

        if (strcmp(word, "none") == 0)
            calls = 0;
        for (int i = 0; i < PMPI_CALL_N; i++)
            if (strcmp(word + less, names[i]) == 0)
                bits = 1u << i;
        calls = less ? calls & ~bits : calls | bits;
    }
    return calls;
}

/* A process whose settings are wrong cannot know which calls the others give to hetmpi: the job ends here. */
static void read_settings(void)
{
    char text[512];
    int code = hetmpi_setting("PMPI", text, sizeof(text));

    if (code) {
        log_print(LOG_ERROR, "%s", hetmpi_last_error());
        PMPI_Abort(MPI_COMM_WORLD, code);
    }
    process.calls = parse_calls(text);
    if (hetmpi_setting("LOG", text, sizeof(text)) == HETMPI_SUCCESS &&
        (strcmp(text, "info") == 0 || strcmp(text, "debug") == 0 || strcmp(text, "trace") == 0))
        log_set_level(LOG_INFO);
}

/* ---- start and end ---- */

static int on_comm_end(MPI_Comm comm, int keyval, void *value, void *extra)
{
    (void)comm, (void)keyval, (void)value, (void)extra;
    atomic_fetch_add(&process.generation, 1);
    return MPI_SUCCESS;
}

static bool start(void)
{
    int initialized = 0, finalized = 0, rank;

    if (atomic_load(&process.state) == ENDED)
        return false;
    PMPI_Initialized(&initialized);
    PMPI_Finalized(&finalized);
    if (!initialized || finalized)
        return false;
    pthread_mutex_lock(&process.lock);
    if (atomic_load(&process.state) == BEFORE) {
        PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
        log_set_rank(rank);
        read_settings();
        if (PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, on_comm_end, &process.keyval, NULL) != MPI_SUCCESS ||
            layout_start() != MPI_SUCCESS) {
            log_print(LOG_ERROR, "pmpi: MPI gives no attribute keys");
            PMPI_Abort(MPI_COMM_WORLD, MPI_ERR_OTHER);
        }
        atomic_store_explicit(&process.state, RUNNING, memory_order_release);
    }
    pthread_mutex_unlock(&process.lock);
    return atomic_load(&process.state) == RUNNING;
}

void pmpi_stop(void)
{
    pthread_mutex_lock(&process.lock);
    if (atomic_exchange(&process.state, ENDED) == RUNNING) {
        log_info("pmpi: %llu calls on hetmpi, %llu passed on", (unsigned long long)atomic_load(&process.served),
                 (unsigned long long)atomic_load(&process.passed));
        PMPI_Comm_free_keyval(&process.keyval);
        layout_stop();
    }
    pthread_mutex_unlock(&process.lock);
}

/* ---- communicators ---- */

/* Whether all ranks of an intracommunicator are of this process's MPI_COMM_WORLD: all of them find the same. */
static bool inside_world(MPI_Comm comm)
{
    enum { PIECE = 256 };
    MPI_Group group, world;
    int size = 0, ranks[PIECE], there[PIECE];
    bool inside = true;

    PMPI_Comm_group(comm, &group);
    PMPI_Comm_group(MPI_COMM_WORLD, &world);
    PMPI_Group_size(group, &size);
    for (int first = 0; first < size && inside; first += PIECE) {
        int n = size - first < PIECE ? size - first : PIECE;
        for (int i = 0; i < n; i++)
            ranks[i] = first + i;
        PMPI_Group_translate_ranks(group, n, ranks, world, there);
        for (int i = 0; i < n; i++)
            inside &= there[i] != MPI_UNDEFINED;
    }
    PMPI_Group_free(&group);
    PMPI_Group_free(&world);
    return inside;
}

static bool find_out(MPI_Comm comm)
{
    int inter = 1;
    bool served;

    if (PMPI_Comm_test_inter(comm, &inter) != MPI_SUCCESS)
        return false;
    served = !inter && inside_world(comm);
    PMPI_Comm_set_attr(comm, process.keyval, (void *)(uintptr_t)(served ? SERVED : NOT_SERVED));
    return served;
}

static bool comm_served(MPI_Comm comm)
{
    unsigned generation = atomic_load_explicit(&process.generation, memory_order_acquire);
    void *value = NULL;
    int found = 0;
    bool served;

    if (last.generation == generation && last.comm == comm)
        return last.served;
    /* A handle that is none: MPI says so in the call itself. */
    if (comm == MPI_COMM_NULL || memcmp(&comm, &(MPI_Comm){0}, sizeof(comm)) == 0 ||
        PMPI_Comm_get_attr(comm, process.keyval, &value, &found) != MPI_SUCCESS)
        return false;
    served = found ? (uintptr_t)value == SERVED : find_out(comm);
    last.comm = comm;
    last.served = served;
    last.generation = generation;
    return served;
}

/* ---- the decision ---- */

static bool on_hetmpi(const struct pmpi_args *args, int *answer)
{
    int exists = 0;

    if (!comm_served(args->comm) || !(process.calls >> args->call & 1))
        return false;
    if (!(pmpi_traits(args->call) & COLL_REDUCES))
        return pmpi_move(args, answer);
    return hetmpi_op_supported(args->recvtype, args->op, &exists) == HETMPI_SUCCESS && exists &&
           pmpi_reduce(args, answer);
}

bool pmpi_serve(const struct pmpi_args *args, int *answer)
{
    bool served;

    if (atomic_load_explicit(&process.state, memory_order_acquire) != RUNNING && !start())
        return false;
    served = on_hetmpi(args, answer);
    atomic_fetch_add_explicit(served ? &process.served : &process.passed, 1, memory_order_relaxed);
    return served;
}

/* ---- answers ---- */

int pmpi_answer(int code)
{
    return code ? hetmpi_mpi_code(code) : MPI_SUCCESS;
}

int pmpi_error(MPI_Comm comm, int mpi_class, const char *format, ...)
{
    char text[512];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    log_print(LOG_ERROR, "%s", text);
    PMPI_Comm_call_errhandler(comm, mpi_class);
    return mpi_class;
}
