/* SPDX-License-Identifier: Apache-2.0 */ /* worker/models/pyramid.h - a ResNet with a feature pyramid (Lin et al. 2017,
 * arXiv:1612.03144), which the detectors of R-CNN's family begin with: its parameters, their names and initial values,
 * and its forward pass. Source: specs rcnn section 2. */
#pragma once
#include <stdbool.h>

#include "worker/layers/layers.h"
#include "worker/models/rcnn/names.h"
#include "worker/models/resnet.h"

struct err;
struct jobspec;
struct model;

enum { PYRAMID_LEVELS = 4 /* P2 .. P5 */ };

struct pyramid {
    struct model *m;
    struct view_colours colours;
    struct resnet body;
    struct net_conv lateral[PYRAMID_LEVELS], output[PYRAMID_LEVELS]; /* of C2 .. C5 */
    struct rcnn_named *named; /* [m->nparams], by param.index: the name of each parameter of the whole detector */
    int nnamed;
};

/* A detector under construction. Once rc is an error, which *err describes, nothing more is added. */
struct pyramid_build {
    struct pyramid *p;
    const struct jobspec *spec;
    enum rcnn_spelling spelling; /* of the pyramid's parameters */
    bool frozen;                 /* added parameters do not train */
    int rc;
    struct err *err;
};

/* Adds the parameters of body and pyramid to m as the job says, all of group 0. Errors name the key, or the part that
 * lacked memory. */
int pyramid_open(struct pyramid_build *b, struct model *m);
void pyramid_close(struct pyramid *p);
/* Adds a further parameter of the detector; see model_add_param(). NULL: b->rc is an error. */
struct param *pyramid_param(struct pyramid_build *b, const struct rcnn_part *part, enum rcnn_array array, const char *name,
                            enum param_kind kind, int k, int size, int c);
/* The same for a weight or a bias, named in the build's spelling. */
struct param *pyramid_spelled(struct pyramid_build *b, const struct rcnn_part *part, enum rcnn_array array, int k, int size, int c);
/* A convolution with a bias, which starts at 0. */
struct net_conv pyramid_conv(struct pyramid_build *b, enum rcnn_place place, int i, int k, int size, int c);
/* Sets how a parameter starts; p may be NULL. */
void pyramid_start(struct param *p, enum param_init init, double value);

/* Pictures to P2 .. P5. size: [shards] device memory, [n][2] height and width of each picture. */
void pyramid_forward(const struct pyramid *p, struct tape *t, const struct tensor *images, const int32_t *const *size,
                     struct value *ret[PYRAMID_LEVELS]);
/* Visits the convolutions of level i, 0 .. PYRAMID_LEVELS - 1, on maps of h x w. */
void pyramid_visit(const struct pyramid *p, struct net_visit *v, int i, int h, int w);
/* How regions are cut out of P2 .. P5: aligned as in detectron2, else as in torchvision. */
struct roi_align pyramid_align(int pool, int sampling, bool aligned);
