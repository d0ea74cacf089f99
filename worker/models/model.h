/* worker/models/model.h - what the trainer knows of a model: parameters, loss terms, and how to compute them.
 * A model is a sequence of layer calls and losses. Two-stage detectors, depth networks with several encoders: another struct model_ops. */
#pragma once
#include <stdint.h>

#include "worker/core/canvas.h"
#include "worker/core/device.h"
#include "worker/layers/tape.h"
#include "worker/ops/yolo.h"

struct batch;
struct err;
struct model;
struct model_family;
struct norm;

enum aggregate {
    TERM_RATIO, /* sum of numerators / sum of denominators, over everything */
    TERM_MEAN,  /* mean over shards in training, over images in validation */
};

struct loss_term {
    const char *name; /* as in the store; terms[0] is "total", the optimised objective */
    enum aggregate aggregate;
};

struct detect_options {
    float conf, nms; /* lowest score; IoU of suppression within a class */
    int max_det;
};

struct model_ops {
    const char *name;
    const struct loss_term *terms;
    int nterms;
    /* Initial values of p where those that its kind has are not to be: w is [p->count], filled with those. NULL: they all are. */
    void (*init)(const struct model *m, const struct param *p, float *w);
    /* Forward with losses on the tape, in the tape's mode; arrays and lists of b lie in device memory. raw[shard]: [m->raw_terms] doubles of device memory, written.
     * The seeds of the gradients are multiplied by grad_scale: 1 / (images of the global batch) where a loss is a sum over images. */
    int (*loss)(struct model *m, struct tape *t, const struct batch *b, float grad_scale, double *const *raw, struct err *err);
    /* What loss() left of one shard of `images` images, now in host memory, as [2 * nterms] doubles: numerator and denominator of each
     * term. Pure. */
    void (*sum_terms)(const struct model *m, const double *raw, int images, double *ret);
    /* Lets the device make ready what nshards shards of n images of that canvas will need in its tier: a hint of what is coming. */
    int (*plan)(struct model *m, enum tape_mode mode, int n, int nshards, struct canvas canvas, struct err *err);
    /* Forward only, for prediction. */
    int (*forward)(struct model *m, struct tape *t, const struct tensor *images, struct err *err);
    /* Detections of one image of the last loss() or forward(), best first, in pixels of the network input. At most opt->max_det; host
     * memory. */
    int (*detect)(struct model *m, int shard, int image, const struct detect_options *opt, struct candidate *ret, int *ret_count,
                  struct err *err);
    void (*free)(struct model *m);
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
    size_t raw_terms;     /* doubles of a shard that loss() writes */
    struct canvas canvas; /* nominal network input: of validation and prediction */
    int grain;            /* input sides must be multiples of it */
    char loaded[400];     /* what came from model.init and what did not, in a sentence; "" without */
};

/* Initial weights of every parameter, which depend on (seed, name) alone. */
int model_init_weights(struct model *m, uint64_t seed, struct err *err);
void model_free(struct model *m);
