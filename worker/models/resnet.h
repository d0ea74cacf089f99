/* SPDX-License-Identifier: Apache-2.0 */ /* worker/models/resnet.h - residual networks (He et al. 2016,
 * arXiv:1512.03385): the backbones of detectors and depth networks. The owner names its parameters and decides which of
 * them train. */
#pragma once
#include <stdbool.h>

#include "worker/core/canvas.h"
#include "worker/layers/layers.h"

struct err;
struct model;

enum { RESNET_STAGES = 4, RESNET_MAX_BLOCKS = 23, RESNET_STEM_CHANNELS = 64, RESNET_CHANNEL_GRAIN = 8 };

struct resnet_depth {
    int layers, blocks[RESNET_STAGES];
    bool bottleneck;
};

/* A convolution and its bias or normalisation. */
struct net_conv {
    struct param *w, *bias; /* w NULL: there is no convolution; bias NULL: it has no bias */
    int norm;               /* index in model.norms, or -1 */
    struct conv cv;
};

struct resnet_block {
    struct net_conv conv[3], shortcut;
    int nconvs;
};

struct resnet {
    struct model *m;
    struct net_conv stem;
    int nstages, nblocks[RESNET_STAGES];
    struct resnet_block block[RESNET_STAGES][RESNET_MAX_BLOCKS];
    int channels[RESNET_STAGES + 1]; /* of the stem, and of each stage's output */
};

enum resnet_place {
    RESNET_STEM,
    RESNET_BLOCK, /* convolution `i` of block `block` of stage `stage`, all from 0 */
    RESNET_SHORTCUT,
};

struct resnet_part {
    enum resnet_place place;
    int stage, block, i;
};

struct resnet_options {
    const struct resnet_depth *depth;
    double width; /* factor of all channels except the input's; they are then multiples of RESNET_CHANNEL_GRAIN */
    int input;    /* channels of the input */
    int stages;   /* built of RESNET_STAGES; 0: the stem alone */
    /* a bottleneck has its stride in its first convolution, as in the paper; else in its 3x3, as in torchvision */
    bool first_strides;
    /* Adds a convolution without bias, and its normalisation, to the model: k outputs, size x size x c. Errors name the
     * part that lacked memory. */
    int (*add)(void *arg, const struct resnet_part *part, int k, int size, int c, int stride, struct net_conv *ret, struct err *err);
    void *arg;
};

/* NULL: no network has so many layers. */
const struct resnet_depth *resnet_depth(int layers);
/* channels * width, to the nearest grain, at least one. */
int resnet_scaled(int channels, double width);
/* Fills *r for model m; *r names m's normalisations by index. */
int resnet_open(struct resnet *r, struct model *m, const struct resnet_options *o, struct err *err);

/* Computes a convolution with its bias. */
struct value *net_plain(struct tape *t, struct value *x, const struct net_conv *c);
/* ReLU of a value without another reader. */
struct value *net_relu(struct tape *t, struct value *x);
/* Drops x, which has had its last reader, and returns y. */
struct value *net_last_reader(struct tape *t, struct value *x, struct value *y);
/* x, which is dropped, as f32: a value that losses and selections read. */
struct value *net_f32(struct tape *t, struct value *x);

/* The stem's features, at half the sides; x is not dropped. */
struct value *resnet_stem(const struct resnet *r, struct tape *t, struct value *x);
/* The output of each stage, at a quarter of the input's sides and so on, from the stem's features, which are not
 * dropped. */
void resnet_stages(const struct resnet *r, struct tape *t, struct value *stem, struct value *ret[RESNET_STAGES]);

/* A convolution on an input of h x w. */
struct net_use {
    const struct net_conv *conv;
    int h, w;
    bool picture; /* reads the pictures themselves */
    bool dense;   /* its input lies without gaps */
    bool rows;    /* its images are regions: of the mask head if `mask` */
    bool mask;
    bool enlarges; /* its bias is no part of it: outputs become pixels first */
    bool last;     /* no later reader has its input: in backward it is the first to write that gradient */
};
/* Calls fn for each use, until it fails: rc is its last return value, 0 at first. */
struct net_visit {
    int (*fn)(void *arg, const struct net_use *use, struct err *err);
    void *arg;
    struct err *err;
    int rc;
};
void net_visit(struct net_visit *v, const struct net_use *use);
/* A side behind a layer of stride 2. */
static inline int net_halved(int side)
{
    return (side + 1) / 2;
}
/* Visits each convolution, for pictures of that canvas. others: a stage's output has a further reader after the next
 * stage. */
void resnet_each_conv(const struct resnet *r, struct canvas canvas, bool others, struct net_visit *v);
/* Chooses the plans of a use, on a device that has plans. */
int net_plan(struct device *dev, const struct net_use *use, enum tape_mode mode, int images, int nshards, struct err *err);
