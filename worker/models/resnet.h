/* SPDX-License-Identifier: Apache-2.0 */ /* worker/models/resnet.h - residual networks (He et al. 2016, arXiv:1512.03385): what detectors and depth networks see pictures with. Who has one names
 * its parameters and says which of them train. */
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

/* A convolution and what follows it: a bias or a normalisation. */
struct net_conv {
    struct param *w, *bias; /* NULL: it is not there, has none */
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
    int channels[RESNET_STAGES + 1]; /* of the stem, and of what each stage gives */
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
    double width;       /* factor of all channels but the input's; these are multiples of RESNET_CHANNEL_GRAIN then */
    int input;          /* channels of the input */
    int stages;         /* built of RESNET_STAGES; 0: the stem alone */
    bool first_strides; /* the stride of a bottleneck is its first convolution's, as in the paper; else its 3x3's, as torchvision has it */
    /* Adds a convolution without bias, and its normalisation, to the model: k outputs, size x size x c. Errors name what lacked memory. */
    int (*add)(void *arg, const struct resnet_part *part, int k, int size, int c, int stride, struct net_conv *ret, struct err *err);
    void *arg;
};

/* NULL: there is none of so many layers. */
const struct resnet_depth *resnet_depth(int layers);
/* channels * width, to the nearest grain, at least one. */
int resnet_scaled(int channels, double width);
/* Fills *r for model m, whose normalisations it names by index. */
int resnet_open(struct resnet *r, struct model *m, const struct resnet_options *o, struct err *err);

/* One convolution with its bias. */
struct value *net_plain(struct tape *t, struct value *x, const struct net_conv *c);
/* ReLU of what has no other reader. */
struct value *net_relu(struct tape *t, struct value *x);
/* y, after the last reader of x. */
struct value *net_last_reader(struct tape *t, struct value *x, struct value *y);
/* x, which is dropped, as f32: a value that losses and selections read. */
struct value *net_f32(struct tape *t, struct value *x);

/* The stem's features, at half the sides; x is not dropped. */
struct value *resnet_stem(const struct resnet *r, struct tape *t, struct value *x);
/* What each stage gives, at a quarter of the input's sides and so on, of the stem's features, which are not dropped. */
void resnet_stages(const struct resnet *r, struct tape *t, struct value *stem, struct value *ret[RESNET_STAGES]);

/* A convolution on an input of h x w. */
struct net_use {
    const struct net_conv *conv;
    int h, w;
    bool picture; /* reads the pictures themselves */
    bool dense;   /* its input lies without gaps */
    bool rows;    /* its images are regions: of the mask head where `mask` */
    bool mask;
    bool enlarges; /* its bias is no part of it: outputs become pixels first */
    bool last;     /* nobody reads its input later: backward it is the first to write that gradient */
};
/* Calls fn for each use, until it fails: rc is what it returned last, 0 at first. */
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
/* Visits each convolution, for pictures of that canvas. others: something else reads what a stage gives, after the next stage did. */
void resnet_each_conv(const struct resnet *r, struct canvas canvas, bool others, struct net_visit *v);
/* Chooses the plans of a use, on a device that has plans. */
int net_plan(struct device *dev, const struct net_use *use, enum tape_mode mode, int images, int nshards, struct err *err);
