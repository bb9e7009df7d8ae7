/*
 * Data-parallel training on a mixed cluster: a small multi-layer perceptron learns handwritten digits. Each rank computes
 * the gradients of its share of every batch; hetmpi_allreduce sums them over all ranks, whatever their vendors, and every
 * rank takes the same step. At the end the run is compared with the same training on one rank.
 *
 *     train_digits --data digits.csv.gz --out DIR [--epochs N]
 *
 * Tolerances. Sums over ranks are taken in another order than over the samples of a batch, so losses differ from one
 * rank's in the last bits, and training lets that grow: each epoch's loss must agree within 1 % with gradients in
 * float32, and within 10 % (or 0.01) with gradients that travel as bfloat16 (8 significant bits). Accuracy on the
 * held-out images must be 0.95 or more, and within 0.012 of one rank's. Weights must be the same, bit for bit, on all
 * ranks. The exit code says whether all that held.
 */
#include <argp.h>
#include <hetmpi.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "digits.h"

struct settings {
    const char *data, *out;
    int epochs;
};

struct curve {
    const char *name;
    float loss[MAX_EPOCHS], accuracy[MAX_EPOCHS];
    double seconds, reduce_seconds;
    float weights[WEIGHTS];
};

static void check(int code)
{
    if (code != HETMPI_SUCCESS) {
        fprintf(stderr, "train_digits: %s\n", hetmpi_last_error());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static uint16_t to_bfloat16(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float from_bfloat16(uint16_t value)
{
    uint32_t bits = (uint32_t)value << 16;
    float result;

    memcpy(&result, &bits, sizeof(result));
    return result;
}

/* Sums the gradients of all ranks: one fused buffer on the device. */
static void sum_gradients(MPI_Comm comm, float *gradient, void *device, bool bfloat16)
{
    uint16_t narrow[FUSED];

    if (!bfloat16) {
        check(hetmpi_memcpy(device, gradient, FUSED * sizeof(float)));
        check(hetmpi_allreduce(MPI_IN_PLACE, device, FUSED, MPI_FLOAT, MPI_SUM, comm));
        check(hetmpi_memcpy(gradient, device, FUSED * sizeof(float)));
        return;
    }
    for (int i = 0; i < FUSED; i++)
        narrow[i] = to_bfloat16(gradient[i]);
    check(hetmpi_memcpy(device, narrow, sizeof(narrow)));
    check(hetmpi_allreduce(MPI_IN_PLACE, device, FUSED, HETMPI_BFLOAT16, MPI_SUM, comm));
    check(hetmpi_memcpy(narrow, device, sizeof(narrow)));
    for (int i = 0; i < FUSED; i++)
        gradient[i] = from_bfloat16(narrow[i]);
}

/* Trains on all ranks of comm; the result is in *curve on every rank. */
static void train_on(MPI_Comm comm, int epochs, bool bfloat16, bool talk, struct curve *curve)
{
    static int order[MAX_IMAGES];
    static float gradient[FUSED], speed[WEIGHTS];
    float *w = curve->weights;
    uint64_t state = 7;
    double start = MPI_Wtime();
    void *device;
    int rank, ranks;

    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &ranks);
    check(hetmpi_malloc(FUSED * sizeof(float), HETMPI_MEM_DEVICE, &device));
    digits_first_weights(w);
    memset(speed, 0, sizeof(speed));
    for (int i = 0; i < train.n; i++)
        order[i] = i;
    curve->reduce_seconds = 0;
    for (int epoch = 0; epoch < epochs; epoch++) {
        double loss = 0, reduce_before = curve->reduce_seconds, epoch_start = MPI_Wtime();
        int seen = 0;

        digits_shuffle(order, &state);   /* the same everywhere */
        for (int at = 0; at + BATCH <= train.n; at += BATCH, seen += BATCH) {
            double before;

            digits_share(w, order + at, rank, ranks, gradient);
            before = MPI_Wtime();
            sum_gradients(comm, gradient, device, bfloat16);
            curve->reduce_seconds += MPI_Wtime() - before;
            digits_step(w, speed, gradient);
            loss += gradient[LOSS];
        }
        curve->loss[epoch] = (float)(loss / seen);
        curve->accuracy[epoch] = digits_accuracy(w);
        if (talk && (epoch == 0 || epoch % 5 == 4 || epoch == epochs - 1))
            printf("%-22s epoch %3d  loss %.5f  accuracy %.4f  gradients' exchange %4.1f %% of the time\n", curve->name,
                   epoch + 1, curve->loss[epoch], curve->accuracy[epoch],
                   100 * (curve->reduce_seconds - reduce_before) / (MPI_Wtime() - epoch_start));
    }
    curve->seconds = MPI_Wtime() - start;
    check(hetmpi_free(device));
}

static void print_islands(int rank, int ranks)
{
    hetmpi_comm_info_t mine, *all = malloc((size_t)ranks * sizeof(*all));

    check(hetmpi_comm_info(MPI_COMM_WORLD, &mine));
    MPI_Gather(&mine, sizeof(mine), MPI_BYTE, all, sizeof(mine), MPI_BYTE, 0, MPI_COMM_WORLD);
    for (int i = 0; rank == 0 && i < mine.islands; i++) {
        printf("island %d:", i);
        for (int r = 0; r < ranks; r++)
            if (all[r].island == i)
                printf(" rank %d (%s, provider %s, wire %s)", r, all[r].vendor, all[r].provider, all[r].wire);
        printf("\n");
    }
    free(all);
}

/* Do all ranks hold the same bits? */
static bool same_on_all_ranks(const struct curve *curve, int ranks)
{
    uint64_t hash = digits_hash(curve->weights), *all = malloc((size_t)ranks * sizeof(*all));
    bool same = true;

    check(hetmpi_allgather(&hash, 1, MPI_UINT64_T, all, 1, MPI_UINT64_T, MPI_COMM_WORLD));
    for (int r = 0; r < ranks; r++)
        same &= all[r] == all[0];
    free(all);
    return same;
}

/* One line for each thing that was promised, and whether it held. */
static bool judge(const struct curve *run, const struct curve *one, int epochs, bool bits, float share, float floor)
{
    float worst = 0, last = run->accuracy[epochs - 1], reference = one->accuracy[epochs - 1];
    bool loss_ok = true, accuracy_ok = last >= 0.95f && fabsf(last - reference) <= 0.012f;

    for (int e = 0; e < epochs; e++) {
        float difference = fabsf(run->loss[e] - one->loss[e]);
        worst = fmaxf(worst, difference / one->loss[e]);
        loss_ok &= difference <= fmaxf(share * one->loss[e], floor);
    }
    printf("%s: accuracy %.4f, one rank %.4f: %s\n", run->name, last, reference, accuracy_ok ? "ok" : "FAIL");
    printf("%s: losses differ from one rank's by at most %.3g %%: %s\n", run->name, 100 * worst, loss_ok ? "ok" : "FAIL");
    printf("%s: weights bit-identical on all ranks: %s\n", run->name, bits ? "ok" : "FAIL");
    return loss_ok && accuracy_ok && bits;
}

static bool write_csv(const char *dir, int epochs, const struct curve *a, const struct curve *b, const struct curve *one)
{
    char path[4096];
    FILE *file;

    snprintf(path, sizeof(path), "%s/loss.csv", dir);
    file = fopen(path, "w");
    if (!file) {
        perror(path);
        return false;
    }
    fprintf(file, "epoch,mixed_float32,mixed_bfloat16,one_rank,accuracy_float32,accuracy_bfloat16,accuracy_one_rank\n");
    for (int e = 0; e < epochs; e++)
        fprintf(file, "%d,%.6g,%.6g,%.6g,%.4f,%.4f,%.4f\n", e + 1, a->loss[e], b->loss[e], one->loss[e], a->accuracy[e],
                b->accuracy[e], one->accuracy[e]);
    return fclose(file) == 0;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct settings *settings = state->input;

    switch (key) {
    case 'd':
        settings->data = arg;
        return 0;
    case 'o':
        settings->out = arg;
        return 0;
    case 'e':
        settings->epochs = atoi(arg);
        if (settings->epochs < 1 || settings->epochs > MAX_EPOCHS)
            argp_error(state, "--epochs %s: from 1 to %d", arg, MAX_EPOCHS);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

int main(int argc, char **argv)
{
    static const struct argp_option options[] = {
        {"data", 'd', "FILE", 0, "the images, digits.csv.gz", 0},
        {"out", 'o', "DIR", 0, "write loss.csv there (rank 0)", 0},
        {"epochs", 'e', "N", 0, "passes over the training images (50)", 0},
        {0}};
    static struct curve mixed = {.name = "all ranks, float32"}, narrow = {.name = "all ranks, bfloat16"};
    static struct curve one = {.name = "one rank"};
    struct settings settings = {.data = "examples/data/digits.csv.gz", .epochs = 50};
    int rank, ranks, ok = 0;
    bool bits, narrow_bits;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    argp_parse(&(struct argp){options, parse, NULL, "Trains on handwritten digits with all ranks.", NULL, NULL, NULL},
               argc, argv, 0, NULL, &settings);
    if (!digits_load(settings.data)) {
        fprintf(stderr, "train_digits: rank %d cannot read %s\n", rank, settings.data);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    if (rank == 0)
        printf("%d ranks; %d images to learn, %d held out; %d weights\n", ranks, train.n, test.n, WEIGHTS);
    print_islands(rank, ranks);
    train_on(MPI_COMM_WORLD, settings.epochs, false, rank == 0, &mixed);
    bits = same_on_all_ranks(&mixed, ranks);
    train_on(MPI_COMM_WORLD, settings.epochs, true, rank == 0, &narrow);
    narrow_bits = same_on_all_ranks(&narrow, ranks);
    if (rank == 0) {
        train_on(MPI_COMM_SELF, settings.epochs, false, false, &one);
        ok = judge(&mixed, &one, settings.epochs, bits, 0.01f, 0);
        ok &= judge(&narrow, &one, settings.epochs, narrow_bits, 0.1f, 0.01f);
        printf("%d epochs took %.2f s on %d ranks, %.2f s on one (simulated devices share this machine's cores)\n",
               settings.epochs, mixed.seconds, ranks, one.seconds);
        if (settings.out)
            ok &= write_csv(settings.out, settings.epochs, &mixed, &narrow, &one);
        printf("%s\n", ok ? "PASS" : "FAIL");
    }
    MPI_Bcast(&ok, 1, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Finalize();
    return ok ? 0 : 1;
}
