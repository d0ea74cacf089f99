/* SPDX-License-Identifier: Apache-2.0 */ /* worker/models/model.h - the trainer's view of a model: parameters, loss
 * terms, and how to compute them. A model is a sequence of layer calls and losses. Two-stage detectors and depth
 * networks with several encoders have another struct model_ops. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "worker/core/canvas.h"
#include "worker/core/device.h"
#include "worker/core/philox.h"
#include "worker/data/make/augment.h"
#include "worker/eval/result.h"
#include "worker/layers/tape.h"
#include "worker/ops/yolo.h"

struct batch;
struct batch_form;
struct err;
struct jobspec;
struct model;
struct model_family;
struct norm;
struct shard_batch;
struct st_meta;

enum { MODEL_TRAITS = 4 };

enum aggregate {
    TERM_RATIO, /* sum of numerators / sum of denominators, over everything */
    TERM_MEAN,  /* mean over shards in training, over images in validation */
};

struct loss_term {
    const char *name; /* as in the store; terms[0] is "total", the optimised objective */
    enum aggregate aggregate;
};

/* The wanted outputs of forward(). */
struct model_want {
    bool results; /* model_ops.result() may be called afterwards */
    bool views;   /* and also tells the poses of a picture's sources, in networks that see several (result.views) */
    /* Losses; NULL: not wanted. Rows of [m->raw_terms] doubles of device memory, written: in training one a shard, in
     * TAPE_EVAL one an image, shard after shard; normalisers are then the image's. */
    double *const *raw;
    /* Training: of the whole job. Seeds of the gradients are 1 / images_of_step for losses that are sums over images, 1
     * / shards_of_step for means over shards. */
    int images_of_step, shards_of_step;
};

/* A picture and its place on the canvas. */
struct model_picture {
    int32_t index; /* for result.image */
    int w, h;
    struct placement place;
};

struct model_ops {
    const char *name;
    /* Makes a pass over the batch in the tape's mode, for all wanted outputs. Arrays and lists of b lie in device
     * memory. If no loss is wanted, arrays that are not the network's input may be missing. */
    int (*forward)(struct model *m, struct tape *t, const struct batch *b, const struct model_want *want, struct err *err);
    /* A row of raw, now in host memory, as [2 * nterms] doubles: numerator and denominator of each term, over `images`
     * images. For TERM_RATIO terms the row may also be the sum of several images' rows. Pure. */
    void (*sum_terms)(const struct model *m, const double *raw, int images, double *ret);
    /* The number of objects of a training shard, from the lists of b in host memory. The trainer multiplies the
     * gradient, which forward() seeds with 1 / images_of_step, by images_of_step / max(1, objects of all shards of the
     * step). NULL: the gradient stays as it is. */
    int64_t (*objects)(const struct model *m, const struct batch_form *form, const struct shard_batch *b);
    /* terms: a row of sum_terms() that is not finite. *ret: the cause and what to do about it, to follow ": " in an
     * error; left alone if the model does not know. Pure. NULL: it never knows. */
    void (*explain)(const struct model *m, const double *terms, char *ret, size_t size);
    /* Lets the device prepare for nshards shards of n images of that canvas in its tier: a hint of coming work. Canvas
     * { 0, 0 }: only the parts that depend on no canvas, which shards of several canvases compute together. */
    int (*plan)(struct model *m, enum tape_mode mode, int n, int nshards, struct canvas canvas, struct err *err);
    /* The objects found in one image of the last forward(), with a score of `least` or more; NAN: the job's limit. *ret
     * belongs to the model, until the next call. NULL: the model finds nothing, and want.results must not be set. */
    int (*result)(struct model *m, int shard, int image, const struct model_picture *picture, double least, struct result *ret,
                  struct err *err);
    void (*free)(struct model *m); /* NULL: the model is one block of memory */
};

struct model {
    const struct model_ops *ops;
    const struct model_family *family; /* of registry.h */
    struct device *dev;
    struct param **params; /* all, by index; running statistics too */
    int nparams;
    const struct param_group *groups; /* by param.group */
    struct norm *norms;               /* normalisations with trainable statistics, by norm.index */
    int nnorms;
    const struct loss_term *terms; /* [nterms]; may depend on the job. Outlive the model */
    int nterms;
    size_t raw_terms;     /* doubles of a row of raw */
    float *class_weight;  /* [classes] of device memory: train.class_weights; NULL: all are 1 */
    struct canvas canvas; /* nominal network input: of validation and prediction */
    int grain;            /* input sides must be multiples of it */
    /* Keys of the job that the weights depend on, beyond their names and shapes; every file of weights has them.
     * Outlive the model */
    const struct st_meta *traits; /* [ntraits], at most MODEL_TRAITS */
    int ntraits;
    const char *notes; /* lines on ignored parts of the cfg, each with its '\n'; NULL: none. Lives as the model does */
    char loaded[1000]; /* a sentence: the parts that came from model.init, and the parts that did not; "" without */
};

/* For constructors. Adds a parameter after the existing ones, [k][r][s][c] (vectors: r = s = c = 1), with memory on the
 * device. It is of group 0 and trains if its kind does. Convolutions begin as in He et al. and are stored OIHW; the
 * rest are vectors of 0, scales and variances of 1. The caller may change this afterwards. NULL: out of memory, *err
 * names it. */
struct param *model_add_param(struct model *m, const char *name, enum param_kind kind, int k, int r, int s, int c, struct err *err);
/* Adds a normalisation of k channels that is used once in a step, as the job's model.sync_bn and model.freeze_bn say,
 * with its parameters: NAME.weight, .bias, .running_mean and .running_var. Returns its index in m->norms, or
 * ERR_DEVICE: out of memory. */
int model_add_norm(struct model *m, const char *name, int k, const struct jobspec *spec, struct err *err);
/* Initial weights of every parameter, which depend on (seed, name) alone. */
int model_init_weights(struct model *m, uint64_t seed, struct err *err);
/* Adds the text of model_ops.explain() to the error in *err about these terms. Returns the error's code. */
int model_explain(const struct model *m, const double *terms, struct err *err);
void model_free(struct model *m);
/* The key of image `image` of local shard `shard` for one purpose ("rcnn.sample"): of (seed, step, shard, image) in
 * training, of (seed, place in the data set) in validation. */
struct philox_key model_key(const struct batch *b, const char *purpose, int shard, int image);
