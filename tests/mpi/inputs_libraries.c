/*
 * Two libraries of one program use hetmpi: one is linked, the other loaded later with its symbols to itself, as plugins
 * are. Both have calls pending at once; one closes down while the other goes on; the program uses hetmpi itself too.
 *
 *     inputs_libraries PLUGIN.so
 */
#include <dlfcn.h>
#include <string.h>

#include "common.h"
#define LIBRARY linked
#include "inputs_library.h"

struct library {
    int (*open)(MPI_Comm), (*begin)(int), (*end)(int, int *), (*close)(void);
};

static void *symbol(void *handle, const char *name)
{
    void *p = dlsym(handle, name);
    if (!p)
        t_fatal("dlsym(%s): %s", name, dlerror());
    return p;
}

static void load(struct library *plugin, void *handle)
{
    void *p;   /* ISO C has no cast between the two kinds of pointer */
    p = symbol(handle, "plugin_open");
    memcpy(&plugin->open, &p, sizeof p);
    p = symbol(handle, "plugin_begin");
    memcpy(&plugin->begin, &p, sizeof p);
    p = symbol(handle, "plugin_end");
    memcpy(&plugin->end, &p, sizeof p);
    p = symbol(handle, "plugin_close");
    memcpy(&plugin->close, &p, sizeof p);
}

static void end(const struct library *library, int round, const char *name)
{
    int wrong = -1;
    t_stage("%s library, round %d", name, round);
    T_OK(library->end(round, &wrong));
    T_CHECK(wrong == 0, "%d wrong elements", wrong);
}

int main(int argc, char **argv)
{
    const struct library first = { linked_open, linked_begin, linked_end, linked_close };
    struct library plugin;
    int32_t ones = 1;
    t_begin(&argc, &argv, "inputs_libraries", MPI_THREAD_SINGLE);
    void *handle = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!handle)
        t_fatal("cannot load the plugin %s: %s", argc > 1 ? argv[1] : "(none given)", argc > 1 ? dlerror() : "");
    load(&plugin, handle);
    T_OK(first.open(MPI_COMM_WORLD));
    T_OK(plugin.open(MPI_COMM_WORLD));
    for (int round = 0; round < 20; round++) {
        T_OK(first.begin(round));
        T_OK(plugin.begin(round + 100));
        ones = 1;
        T_OK(hetmpi_allreduce(MPI_IN_PLACE, &ones, 1, MPI_INT32_T, MPI_SUM, MPI_COMM_WORLD));
        T_CHECK(ones == t_ranks, "the program's own sum is %d", ones);
        end(t_rank % 2 ? &plugin : &first, t_rank % 2 ? round + 100 : round, "one");
        end(t_rank % 2 ? &first : &plugin, t_rank % 2 ? round : round + 100, "the other");
    }
    T_OK(first.begin(7));
    T_OK(plugin.close());
    end(&first, 7, "remaining");
    T_OK(first.close());
    T_OK(hetmpi_barrier(MPI_COMM_WORLD));
    return t_end();   /* the plugin stays loaded: what hetmpi holds lives until MPI_Finalize */
}
