/* The C entry points, made from the table: each runs the call on hetmpi or hands it to what stands behind us. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>

#include "pmpi/pmpi.h"

#define FILL(kind, name) FILL_##kind(name)
#define FILL_IN(name) .name = name
#define FILL_OUT(name) .name = name
#define FILL_BUFFER(name) .name = name
#define FILL_COUNT(name) .name = name
#define FILL_COUNTS(name) .name = {name, sizeof(*name)}
#define FILL_DISPLS(name) .name = {name, sizeof(*name)}
#define FILL_TYPE(name) .name = name
#define FILL_OP(name) .name = name
#define FILL_ROOT(name) .name = name
#define FILL_COMM(name) .name = name

/*
 * What stands behind us: another tool's function or MPI's own. Looked up at each call's first use; threads that race
 * find the same.
 */
static void *behind(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

/* ISO C has no conversion between pointers to objects and to functions; dlsym needs one. */
#define BEHIND(pointer, name, fallback)                                                                     \
    do {                                                                                                    \
        union { void *object; __typeof__(&fallback) function; } found_ = {behind(name)};                    \
        (pointer) = found_.object ? found_.function : fallback;                                             \
    } while (0)

#define ENTRY(function, public, Name, NAME, DECLARE, ...)                                                   \
    static __typeof__(&PMPI_##Name) _Atomic next_##Name;                                                    \
    int function(COLL_EACH(DECLARE, __VA_ARGS__))                                                           \
    {                                                                                                       \
        const struct pmpi_args args = {.call = PMPI_CALL_##NAME, COLL_EACH(FILL, __VA_ARGS__)};             \
        __typeof__(&PMPI_##Name) next = atomic_load_explicit(&next_##Name, memory_order_relaxed);           \
        int answer;                                                                                         \
                                                                                                            \
        if (pmpi_serve(&args, &answer))                                                                     \
            return answer;                                                                                  \
        if (!next) {                                                                                        \
            BEHIND(next, "MPI_" #Name, PMPI_##Name);                                                        \
            atomic_store_explicit(&next_##Name, next, memory_order_relaxed);                                \
        }                                                                                                   \
        return next(COLL_EACH(PMPI_NAME, __VA_ARGS__));                                                     \
    }                                                                                                       \
    int public(COLL_EACH(DECLARE, __VA_ARGS__)) __attribute__((alias(#function)));

#define CALL(Name, name, NAME, traits, ...) ENTRY(entry_##name, MPI_##Name, Name, NAME, PMPI_DECLARE, __VA_ARGS__)
COLL_ALL(CALL)
#undef CALL

#if MPI_VERSION >= 4
/* A program may call these on some ranks and the others on the rest. */
#define CALL(Name, name, NAME, traits, ...)                                                                 \
    static int large_##name(COLL_EACH(PMPI_DECLARE_LARGE, __VA_ARGS__));                                    \
    ENTRY(large_##name, MPI_##Name##_c, Name##_c, NAME, PMPI_DECLARE_LARGE, __VA_ARGS__)
COLL_COUNTED(CALL)
#undef CALL
#endif

int entry_finalize(void)
{
    __typeof__(&PMPI_Finalize) next;

    pmpi_stop();
    BEHIND(next, "MPI_Finalize", PMPI_Finalize);
    return next();
}

int MPI_Finalize(void) __attribute__((alias("entry_finalize")));
