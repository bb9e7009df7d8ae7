/*
 * A multi-layer perceptron that learns handwritten digits, on one rank: what the training programs share. Nothing here
 * knows of other ranks.
 */
#ifndef DIGITS_H
#define DIGITS_H

#include <stdbool.h>
#include <stdint.h>

enum { PIXELS = 64, HIDDEN = 64, CLASSES = 10, BATCH = 128, MAX_IMAGES = 4096, MAX_EPOCHS = 200 };
/* All weights in one vector: hidden layer, its bias, output layer, its bias. */
enum {
    W1 = 0, B1 = W1 + PIXELS * HIDDEN, W2 = B1 + HIDDEN, B2 = W2 + HIDDEN * CLASSES, WEIGHTS = B2 + CLASSES,
    LOSS = WEIGHTS,            /* the summed loss of the batch travels with the gradients */
    FUSED
};

struct data {
    int n;
    float pixels[MAX_IMAGES][PIXELS];
    unsigned char label[MAX_IMAGES];
};

extern struct data train, test;

/* Reads both; every fifth image is held out. */
bool digits_load(const char *path);
/* The same numbers on every rank and every machine. */
uint32_t digits_random(uint64_t *state);
void digits_shuffle(int *order, uint64_t *state);    /* [train.n] */
void digits_first_weights(float *w);
/* What rank `rank` of `ranks` gives to the gradient of one batch: that of every so many images of `order`, BATCH of them. */
void digits_share(const float *w, const int *order, int rank, int ranks, float *gradient);
/* The step that follows from a batch's whole gradient. */
void digits_step(float *w, float *speed, const float *gradient);
float digits_accuracy(const float *w);               /* on the images held out */
uint64_t digits_hash(const float *weights);          /* of all bits */

#endif
