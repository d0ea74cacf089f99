/* SPDX-License-Identifier: Apache-2.0 */ /* worker/models/yolo/darknet_weights.h - darknet .weights files (specs yolov3
 * section 2): floats without names, so all hangs on the count. A file ends at the end of one of the network's
 * convolutions, or has as many numbers as the whole network at another class count; then the convolutions before heads
 * are stepped over. Nothing is ever read across such a boundary silently. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;
struct darknet_net;

/* The arrays of one convolution, in host memory of the caller. scale, mean and var are NULL without batch
 * normalisation; bias is then the bias, with it the shift (beta). weights: [filters][size][size][channels] (KRSC); the
 * file holds OIHW. */
struct darknet_block {
    int layer; /* index in the network, for messages and load_until */
    int filters, channels, size;
    float *bias, *scale, *mean, *var, *weights;
    /* of the head it feeds: filters = anchors * (5 + classes), without normalisation; 0: it feeds no head */
    int anchors;
    bool loaded; /* set: the file's numbers are in the arrays */
};

struct darknet_weights_info {
    int major, minor, revision;
    int64_t seen;   /* images consumed in training */
    size_t nloaded; /* number of blocks filled; the others keep their old numbers */
    int classes;    /* of the file's heads if it differs from the blocks', else 0 */
    char note[256]; /* note on an odd header; "" if there is nothing to say */
};

/* Fills blocks (ascending layers) with all numbers of the file, or with layers < load_until when that is >= 0. The
 * file's size may show another class count: then blocks before heads are left out. With load_until before the first
 * head the rest of the file may hold anything; enough running variances are read there to see that the numbers are not
 * shifted. ERR_DATA if sizes do not fit (the message names the two nearest boundaries) or leave a choice, if a running
 * variance is invalid (the numbers are then shifted), if a number is not finite, and if there is nothing to load. On
 * errors nothing is written. */
int darknet_weights_load(const char *path, struct darknet_block *blocks, size_t n, int load_until, struct darknet_weights_info *ret_info,
                         struct err *err);
/* The same from memory; messages call it `label`. */
int darknet_weights_parse(const void *bytes, size_t size, const char *label, struct darknet_block *blocks, size_t n, int load_until,
                          struct darknet_weights_info *ret_info, struct err *err);
