/* A small network that learns digits: see digits.h. */
#include "digits.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

struct data train, test;

bool digits_load(const char *path)
{
    char line[1024];
    gzFile file = gzopen(path, "rb");
    int row = 0;

    if (!file)
        return false;
    while (gzgets(file, line, sizeof(line))) {
        struct data *to = row++ % 5 == 4 ? &test : &train;
        char *at = line;

        if (to->n == MAX_IMAGES)
            break;
        for (int i = 0; i < PIXELS; i++, at += *at == ',')
            to->pixels[to->n][i] = strtof(at, &at) / 16;
        to->label[to->n++] = (unsigned char)strtol(at, NULL, 10);
    }
    gzclose(file);
    return train.n > BATCH && test.n > 0;
}

uint32_t digits_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

void digits_first_weights(float *w)
{
    uint64_t state = 2026;

    memset(w, 0, WEIGHTS * sizeof(*w));
    for (int i = 0; i < B1; i++)
        w[W1 + i] = ((float)digits_random(&state) / 1073741824.0f - 1) * 0.2f;
    for (int i = 0; i < HIDDEN * CLASSES; i++)
        w[W2 + i] = ((float)digits_random(&state) / 1073741824.0f - 1) * 0.2f;
}

/* Probabilities of the classes; hidden activations too. */
static void forward(const float *w, const float *x, float *hidden, float *p)
{
    float top = -INFINITY, sum = 0;

    for (int h = 0; h < HIDDEN; h++) {
        float a = w[B1 + h];
        for (int i = 0; i < PIXELS; i++)
            a += w[W1 + h * PIXELS + i] * x[i];
        hidden[h] = a > 0 ? a : 0;
    }
    for (int c = 0; c < CLASSES; c++) {
        p[c] = w[B2 + c];
        for (int h = 0; h < HIDDEN; h++)
            p[c] += w[W2 + c * HIDDEN + h] * hidden[h];
        top = p[c] > top ? p[c] : top;
    }
    for (int c = 0; c < CLASSES; c++)
        sum += p[c] = expf(p[c] - top);
    for (int c = 0; c < CLASSES; c++)
        p[c] /= sum;
}

/* Adds the gradient of one image's loss, and the loss. */
static void backward(const float *w, const float *x, int label, float *gradient)
{
    float hidden[HIDDEN], p[CLASSES];

    forward(w, x, hidden, p);
    gradient[LOSS] -= logf(p[label] > 1e-30f ? p[label] : 1e-30f);
    p[label] -= 1;   /* now the gradient of the logits */
    for (int h = 0; h < HIDDEN; h++) {
        float back = 0;
        for (int c = 0; c < CLASSES; c++) {
            back += p[c] * w[W2 + c * HIDDEN + h];
            gradient[W2 + c * HIDDEN + h] += p[c] * hidden[h];
        }
        if (hidden[h] <= 0)
            continue;
        gradient[B1 + h] += back;
        for (int i = 0; i < PIXELS; i++)
            gradient[W1 + h * PIXELS + i] += back * x[i];
    }
    for (int c = 0; c < CLASSES; c++)
        gradient[B2 + c] += p[c];
}

void digits_share(const float *w, const int *order, int rank, int ranks, float *gradient)
{
    memset(gradient, 0, FUSED * sizeof(*gradient));
    for (int i = rank; i < BATCH; i += ranks)
        backward(w, train.pixels[order[i]], train.label[order[i]], gradient);
}

void digits_step(float *w, float *speed, const float *gradient)
{
    for (int i = 0; i < WEIGHTS; i++) {
        speed[i] = 0.9f * speed[i] - 0.2f / BATCH * gradient[i];
        w[i] += speed[i];
    }
}

float digits_accuracy(const float *w)
{
    float hidden[HIDDEN], p[CLASSES];
    int right = 0;

    for (int i = 0; i < test.n; i++) {
        int best = 0;
        forward(w, test.pixels[i], hidden, p);
        for (int c = 1; c < CLASSES; c++)
            best = p[c] > p[best] ? c : best;
        right += best == test.label[i];
    }
    return (float)right / (float)test.n;
}

void digits_shuffle(int *order, uint64_t *state)
{
    for (int i = train.n - 1; i > 0; i--) {
        int j = (int)(digits_random(state) % (uint32_t)(i + 1)), t = order[i];
        order[i] = order[j];
        order[j] = t;
    }
}

uint64_t digits_hash(const float *weights)
{
    uint64_t hash = 1469598103934665603u;
    const unsigned char *byte = (const unsigned char *)weights;

    for (size_t i = 0; i < WEIGHTS * sizeof(*weights); i++)
        hash = (hash ^ byte[i]) * 1099511628211u;
    return hash;
}
