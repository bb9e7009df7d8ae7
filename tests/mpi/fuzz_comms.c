/* The random differential test: communicators of random shapes and settings. See fuzz.h. */
#include "fuzz.h"

#include <stdio.h>
#include <string.h>

#define FREE_SECONDS 20   /* below the timeout that the tests set */

uint64_t fz_draw(struct fz_random *random)
{
    return t_hash64(random->seed, random->stream, ++random->drawn);
}

unsigned fz_pick(struct fz_random *random, unsigned n)
{
    return (unsigned)(fz_draw(random) % n);
}

struct fz_random fz_common(uint64_t seed, uint64_t purpose)
{
    return (struct fz_random){ .seed = seed, .stream = purpose << 8 };
}

struct fz_random fz_own(uint64_t seed, uint64_t purpose)
{
    return (struct fz_random){ .seed = seed, .stream = purpose << 8 | (uint64_t)(t_rank + 1) };
}

void fz_shuffle(struct fz_random *random, int *list, int n)
{
    for (int i = 0; i < n; i++) {
        int j = (int)fz_pick(random, (unsigned)i + 1);
        list[i] = list[j];
        list[j] = i;
    }
}

/* A communicator of the members alone, made without the others. */
static MPI_Comm subset(struct fz_random *random, int tag)
{
    MPI_Group world, group;
    MPI_Comm comm = MPI_COMM_NULL;
    int order[FZ_RANKS], n = 1 + (int)fz_pick(random, (unsigned)t_ranks);
    bool member = false;
    fz_shuffle(random, order, t_ranks);
    for (int i = 0; i < n; i++)
        member |= order[i] == t_rank;
    T_MPI(MPI_Comm_group(MPI_COMM_WORLD, &world));
    T_MPI(MPI_Group_incl(world, n, order, &group));
    if (member)
        T_MPI(MPI_Comm_create_group(MPI_COMM_WORLD, group, tag, &comm));
    T_MPI(MPI_Group_free(&group));
    T_MPI(MPI_Group_free(&world));
    return comm;
}

static MPI_Comm make_shape(struct fz_random *random, int number, const char **what)
{
    MPI_Comm comm = MPI_COMM_NULL;
    int colours[FZ_RANKS], keys[FZ_RANKS], parts = 2 + (int)fz_pick(random, 2);
    for (int r = 0; r < t_ranks; r++) {
        colours[r] = (int)fz_pick(random, (unsigned)parts);
        keys[r] = (int)fz_pick(random, 8);
    }
    switch (fz_pick(random, 8)) {
    case 0:
    case 1:
        *what = "duplicate of the world";
        T_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
        break;
    case 2:
        *what = "reversed world";
        T_MPI(MPI_Comm_split(MPI_COMM_WORLD, 0, -t_rank, &comm));
        break;
    case 3:
        *what = "shuffled world";
        T_MPI(MPI_Comm_split(MPI_COMM_WORLD, 0, keys[t_rank], &comm));
        break;
    case 4:
    case 5:
        *what = "part of a split";
        T_MPI(MPI_Comm_split(MPI_COMM_WORLD, colours[t_rank], keys[t_rank], &comm));
        break;
    case 6:
        *what = "subset";
        comm = subset(random, number);
        break;
    default:
        *what = "one rank";
        T_MPI(MPI_Comm_dup(MPI_COMM_SELF, &comm));
    }
    return comm;
}

/* Settings of the communicator's own, some of them; the rest is the job's. */
static void attach(struct fz_random *random, struct fz_comm *c)
{
    static const struct { const char *name; size_t bytes; } chunks[] = {
        { "4K", 4096 }, { "13K", 13312 }, { "64K", 65536 }, { "256K", 262144 } };
    static const struct { const char *name; size_t bytes; } smalls[] = { { "0", 0 }, { "64", 64 }, { "1K", 1024 } };
    static const char *const eager[] = { "0", "100", "64K" }, *const windows[] = { "1", "2", "5" };
    char text[80] = "", labels[2 * FZ_RANKS + 1] = "";
    MPI_Info info;
    T_MPI(MPI_Info_create(&info));
#define SET(key, value)                                                                                   \
    do {                                                                                                  \
        T_MPI(MPI_Info_set(info, key, value));                                                            \
        snprintf(text + strlen(text), sizeof text - strlen(text), " %s=%s", key, value);                  \
    } while (0)
    unsigned set = (unsigned)fz_draw(random), pick = (unsigned)(fz_draw(random) >> 7);
    if (set & 1) {
        SET("chunk", chunks[pick % 4].name);
        c->chunk = chunks[pick % 4].bytes;
    }
    if ((set & 6) == 6) {
        SET("small", smalls[pick / 4 % 3].name);
        c->small = smalls[pick / 4 % 3].bytes;
    }
    if ((set & 24) == 24)
        SET("eager", eager[pick / 16 % 3]);
    if ((set & 96) == 96)
        SET("window", windows[pick / 64 % 3]);
    if ((set & 0x180) == 0x180)
        SET("staging", "64K");
    if ((set & 0x600) == 0x600)
        SET("wire_precision", "exact");
    if ((set & 0x3800) == 0x3800)
        SET("wire", "mpi");
    if ((set & 0xC000) == 0xC000)
        SET("provider", "mpi");
    if ((set & 0x70000) == 0x70000)
        SET("check", "0");
    for (int r = 0; r < c->ranks; r++)
        snprintf(labels + strlen(labels), sizeof labels - strlen(labels), "%s%c", r ? "," : "",
                 'a' + (int)fz_pick(random, 3));
    if ((set & 0x180000) == 0x180000)
        SET("islands", labels);
#undef SET
    size_t used = strlen(c->what);
    snprintf(c->what + used, sizeof c->what - used, "%s", text);
    if (T_OK(hetmpi_comm_attach(c->comm, info)))
        c->attached = true;
    T_MPI(MPI_Info_free(&info));
}

static void make(uint64_t seed, int number, struct fz_comm *c)
{
    struct fz_random random = fz_common(seed, 100 + (uint64_t)number);
    const char *what = "the world";
    bool world = number == 0 && fz_pick(&random, 2);
    *c = (struct fz_comm){ .comm = world ? MPI_COMM_WORLD : make_shape(&random, number, &what), .chunk = 0,
                           .small = 16384 };
    c->member = c->comm != MPI_COMM_NULL;
    snprintf(c->what, sizeof c->what, "%s", what);
    if (!c->member)
        return;
    T_MPI(MPI_Comm_set_errhandler(c->comm, MPI_ERRORS_RETURN));
    T_MPI(MPI_Comm_dup(c->comm, &c->mpi));
    T_MPI(MPI_Comm_rank(c->comm, &c->rank));
    T_MPI(MPI_Comm_size(c->comm, &c->ranks));
    switch (world ? 3 : fz_pick(&random, 4)) {
    case 0: break;   /* set up by its first call */
    case 1:
    case 2: attach(&random, c); break;
    default: c->attached = T_OK(hetmpi_comm_attach(c->comm, MPI_INFO_NULL));
    }
}

int fz_comms_make(uint64_t seed, struct fz_comm comms[FZ_COMMS])
{
    struct fz_random random = fz_common(seed, 99);
    int n = 1 + (int)fz_pick(&random, FZ_COMMS);
    for (int i = 0; i < n; i++)
        make(seed, i, &comms[i]);
    return n;
}

/* MPI_Comm_free cannot say that it gave up waiting for the others: so it is timed. */
void fz_comm_free(struct fz_comm *c)
{
    double start = t_now();
    if (!c->member || c->comm == MPI_COMM_WORLD || c->comm == MPI_COMM_NULL)
        return;
    T_MPI(MPI_Comm_free(&c->comm));
    T_CHECK(t_now() - start < FREE_SECONDS, "MPI_Comm_free took %.1f s: %s", t_now() - start, c->what);
}

void fz_comms_end(struct fz_comm comms[FZ_COMMS], int n)
{
    for (int i = 0; i < n; i++) {
        fz_comm_free(&comms[i]);
        if (comms[i].member)
            T_MPI(MPI_Comm_free(&comms[i].mpi));
    }
}
