/*
 * Training that outlives its ranks: the digits of train_digits.c, on an MPI with fault tolerance (User Level Failure
 * Mitigation: Open MPI 5, started with --with-ft ulfm). When a rank dies, hetmpi_allreduce returns an error on the others;
 * they shrink the communicator, agree on the last step that all of them have, share the batches among themselves anew,
 * and go on. hetmpi needs nothing for it: its next call on the new communicator sets that up.
 *
 *     train_survivors --data digits.csv.gz [--epochs N] [--die RANK:STEP ...] [--save FILE] [--from FILE]
 *
 * --die kills a rank at the beginning of a step (a batch; counted from 0 over all epochs). --save writes what the
 * survivors go on from: the step, weights and momentum. --from starts there, with as many ranks as there are, and must
 * end with the same bits as the survivors did: the last line shows a hash of the weights.
 */
#include <argp.h>
#include <hetmpi.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#if defined(OPEN_MPI) && defined(__has_include)
#if __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif
#endif

#include "digits.h"

enum { MAX_DEATHS = 8 };

struct settings {
    const char *data, *save, *from;
    int epochs, deaths;
    struct { int rank; long step; } die[MAX_DEATHS];
};

/* All that a step starts from; the order of the images follows from the step. */
struct state {
    long step;
    float weights[WEIGHTS], speed[WEIGHTS];
};

static struct state now, before;   /* before: the step that was taken last, which another rank may lack */
static bool lost_ranks;

static void stop(const char *what)
{
    fprintf(stderr, "train_survivors: %s: %s\n", what, hetmpi_last_error());
    fflush(stderr);
    MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}

/* The images' order in an epoch: as many shuffles as there were epochs. */
static const int *order_of(long epoch)
{
    static int order[MAX_IMAGES];
    static long shuffled;
    static uint64_t state;

    if (shuffled == 0 || shuffled > epoch + 1) {   /* after a step back, from the start */
        state = 7;
        shuffled = 0;
        for (int i = 0; i < train.n; i++)
            order[i] = i;
    }
    for (; shuffled < epoch + 1; shuffled++)
        digits_shuffle(order, &state);
    return order;
}

/* One step on all ranks of comm; nothing has changed when it returns an error. */
static int take_step(MPI_Comm comm, void *device)
{
    static float gradient[FUSED];
    long steps = train.n / BATCH;
    const int *order = order_of(now.step / steps) + now.step % steps * BATCH;
    int rank, ranks, code;

    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &ranks);
    digits_share(now.weights, order, rank, ranks, gradient);
    if (hetmpi_memcpy(device, gradient, sizeof(gradient)))
        stop("to the device");
    code = hetmpi_allreduce(MPI_IN_PLACE, device, FUSED, MPI_FLOAT, MPI_SUM, comm);
    if (code)
        return code;
    if (hetmpi_memcpy(gradient, device, sizeof(gradient)))
        stop("from the device");
    before = now;
    digits_step(now.weights, now.speed, gradient);
    now.step++;
    return HETMPI_SUCCESS;
}

static void load(const char *path)
{
    FILE *file = fopen(path, "rb");

    if (!file || fread(&now, sizeof(now), 1, file) != 1) {
        perror(path);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    fclose(file);
}

#ifdef OMPI_HAVE_MPI_EXT_FTMPI
static void save(const char *path, int ranks)
{
    FILE *file = fopen(path, "wb");

    if (!file || fwrite(&now, sizeof(now), 1, file) != 1 || fclose(file) != 0) {
        perror(path);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    printf("%d ranks go on from step %ld, written to %s\n", ranks, now.step, path);
}

/* A rank died: a communicator of the others, at the same step on all of them. */
static MPI_Comm go_on(MPI_Comm broken, const char *save_path)
{
    MPI_Comm comm;
    long least;
    int rank, ranks;

    lost_ranks = true;
    MPIX_Comm_revoke(broken);   /* whoever waits in MPI on it learns of it */
    if (MPIX_Comm_shrink(broken, &comm) != MPI_SUCCESS)
        stop("MPIX_Comm_shrink");
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Comm_free(&broken);
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &ranks);
    /* A step needs all ranks, so that none is ahead by more than one. */
    if (MPI_Allreduce(&now.step, &least, 1, MPI_LONG, MPI_MIN, comm) != MPI_SUCCESS)
        return go_on(comm, save_path);   /* another one died */
    if (now.step > least)
        now = before;
    if (rank == 0 && save_path)
        save(save_path, ranks);
    return comm;
}
#else
static MPI_Comm go_on(MPI_Comm broken, const char *save_path)
{
    (void)broken, (void)save_path;
    stop("a rank is lost, and this MPI has no fault tolerance");
    return MPI_COMM_NULL;
}
#endif

/* All ranks must hold the same bits. */
static bool finish(MPI_Comm comm)
{
    uint64_t hash = digits_hash(now.weights), all[1024];
    int rank, ranks;
    bool same = true;

    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &ranks);
    if (ranks > 1024 || hetmpi_allgather(&hash, 1, MPI_UINT64_T, all, 1, MPI_UINT64_T, comm))
        stop("comparing the weights");
    for (int r = 0; r < ranks; r++)
        same &= all[r] == hash;
    if (rank == 0)
        printf("%ld steps, at the end %d ranks: accuracy %.4f, weights %016llx, %s on all ranks\n", now.step, ranks,
               digits_accuracy(now.weights), (unsigned long long)hash, same ? "the same" : "NOT the same");
    return same;
}

static void die_if_asked(const struct settings *settings, int world_rank)
{
    for (int i = 0; i < settings->deaths; i++)
        if (settings->die[i].rank == world_rank && settings->die[i].step == now.step)
            raise(SIGKILL);
}

static bool train_all(const struct settings *settings, int world_rank)
{
    long steps = (long)settings->epochs * (train.n / BATCH);
    MPI_Comm comm;
    void *device;
    bool ok;

    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    if (hetmpi_malloc(FUSED * sizeof(float), HETMPI_MEM_DEVICE, &device))
        stop("device memory");
    digits_first_weights(now.weights);
    if (settings->from)
        load(settings->from);
    while (now.step < steps) {
        die_if_asked(settings, world_rank);
        if (take_step(comm, device) == HETMPI_SUCCESS)
            continue;
        fprintf(stderr, "rank %d, step %ld: %s\n", world_rank, now.step, hetmpi_last_error());
        comm = go_on(comm, settings->save);
    }
    ok = finish(comm);
    hetmpi_free(device);
    if (!lost_ranks)
        MPI_Comm_free(&comm);
    return ok;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct settings *settings = state->input;

    switch (key) {
    case 'd':
        settings->data = arg;
        return 0;
    case 'e':
        settings->epochs = atoi(arg);
        if (settings->epochs < 1 || settings->epochs > MAX_EPOCHS)
            argp_error(state, "--epochs %s: from 1 to %d", arg, MAX_EPOCHS);
        return 0;
    case 'k':
        if (settings->deaths == MAX_DEATHS ||
            sscanf(arg, "%d:%ld", &settings->die[settings->deaths].rank, &settings->die[settings->deaths].step) != 2)
            argp_error(state, "--die %s: RANK:STEP, at most %d times", arg, MAX_DEATHS);
        settings->deaths++;
        return 0;
    case 's':
        settings->save = arg;
        return 0;
    case 'f':
        settings->from = arg;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

int main(int argc, char **argv)
{
    static const struct argp_option options[] = {
        {"data", 'd', "FILE", 0, "the images, digits.csv.gz", 0},
        {"epochs", 'e', "N", 0, "passes over the training images (10)", 0},
        {"die", 'k', "RANK:STEP", 0, "this rank kills itself when it comes to this step", 0},
        {"save", 's', "FILE", 0, "write what the survivors go on from", 0},
        {"from", 'f', "FILE", 0, "start there", 0},
        {0}};
    struct settings settings = {.data = "examples/data/digits.csv.gz", .epochs = 10};
    int rank, failed;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    argp_parse(&(struct argp){options, parse, NULL, "Trains on handwritten digits, whoever dies.", NULL, NULL, NULL},
               argc, argv, 0, NULL, &settings);
    if (!digits_load(settings.data)) {
        fprintf(stderr, "train_survivors: rank %d cannot read %s\n", rank, settings.data);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    failed = !train_all(&settings, rank);
    fflush(NULL);
    if (lost_ranks)
        _exit(failed);   /* MPI_Finalize may wait for the dead */
    MPI_Finalize();
    return failed;
}
