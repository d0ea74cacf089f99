/* SPDX-License-Identifier: Apache-2.0 */ /* worker/models/yolo/darknet_weights.h - darknet .weights files (specs yolov3 section 2): floats without names, so all hangs on the count.
 * A file ends where a convolution of the network ends, or has as many numbers as the whole network at another class count; then the
 * convolutions before heads are stepped over. Nothing is ever read across such a boundary silently. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;
struct darknet_net;

/* The arrays of one convolution, in host memory of the caller. scale, mean and var are NULL without batch normalisation; bias is then the
 * bias, with it the shift (beta). weights: [filters][size][size][channels] (KRSC); the file holds OIHW. */
struct darknet_block {
    int layer; /* index in the network, for messages and load_until */
    int filters, channels, size;
    float *bias, *scale, *mean, *var, *weights;
    int anchors; /* of the head it feeds: filters = anchors * (5 + classes), and it has no normalisation; 0: it feeds none */
    bool loaded; /* set: what was in the file is in the arrays */
};

struct darknet_weights_info {
    int major, minor, revision;
    int64_t seen;   /* images consumed in training */
    size_t nloaded; /* blocks filled; the others keep what they held */
    int classes;    /* of the file's heads where that is another count than the blocks', else 0 */
    char note[256]; /* an odd header; "" if there is nothing to say */
};

/* Fills blocks (ascending layers) from the file: all that it holds, but only layers < load_until when that is >= 0. The file may be of
 * another class count, which its size tells: then blocks before heads are left out. With load_until in front of the first head it may hold
 * anything behind, where enough running variances are read to tell that the numbers are not shifted.
 * ERR_DATA where sizes do not fit (the message names the two nearest boundaries), where they leave a choice, where a running variance
 * is none, which means that the numbers are shifted, where a number is not finite, and where nothing is to be loaded. On errors nothing is written. */
int darknet_weights_load(const char *path, struct darknet_block *blocks, size_t n, int load_until, struct darknet_weights_info *ret_info,
                         struct err *err);
/* The same from memory; `label` is what messages call it. */
int darknet_weights_parse(const void *bytes, size_t size, const char *label, struct darknet_block *blocks, size_t n, int load_until,
                          struct darknet_weights_info *ret_info, struct err *err);
