/* SPDX-License-Identifier: Apache-2.0 */ /* worker/eval/evaluator.h - how results become scores. Every rank adds the results of its pictures, each of which is matched with what is there at
 * once; records of the matches, never pictures' worth of pixels, go to rank 0, which scores. Which rank saw which picture, and in which order, does
 * not show. Another measure is another struct evaluator_ops; a family of models lists those of its results (models/registry.h). */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worker/eval/depth_metrics.h"
#include "worker/eval/metrics.h"
#include "worker/eval/result.h"

struct err;
struct rle;

/* Masks of truths, read when their picture is scored. */
struct eval_masks {
    void *of;
    /* Of truths[k], as large as its picture (mask/rle.h). Errors are those of reading it. */
    int (*read)(void *of, size_t k, struct rle *ret, struct err *err);
};

/* Measured depth, read when its picture is scored. */
struct eval_depth {
    int w, h;            /* of the picture's size */
    const float *metres; /* [h][w], 0: unknown. Borrowed until the next one is read. NULL: that picture has none */
};
struct eval_depths {
    void *of;
    /* Of that image. Errors are those of reading it. */
    int (*read)(void *of, int image, struct eval_depth *ret, struct err *err);
    struct depth_rule rule; /* how it is compared */
};

/* True motion from frame to frame. */
struct eval_poses {
    void *of;
    /* That of an image to its next frame: rows of [R | t] from its camera to the next one's, and the image which that frame is, or -1. False where it is not known. */
    bool (*motion)(void *of, int image, double ret[RESULT_POSE], int *ret_next);
    int view; /* of a result: the next frame's */
};

/* What there is to be found. Borrowed for the life of an evaluator. */
struct eval_split {
    int nimages, nclasses;
    const int64_t *class_id;       /* [nclasses] */
    const char *const *class_name; /* [nclasses] */
    const struct truth *truths;
    size_t ntruths;
    const struct eval_masks *masks;   /* NULL: there are none, and nothing is said of masks */
    const struct eval_depths *depths; /* NULL: there are none, and nothing is said of depth */
    const struct eval_poses *poses;   /* likewise */
    int max_det; /* detections that a model gives of an image, at most; COCO's scores count 100 of each class or, where it is more, it */
};

/* An implementation's own struct begins with this one. */
struct evaluator {
    const struct evaluator_ops *ops;
};

struct evaluator_ops {
    const char *name;
    int (*open)(const struct eval_split *split, struct evaluator **ret, struct err *err);
    /* One picture's result, once each. ERR_INPUT where it is none of these, or of another kind than the evaluator takes. */
    int (*add)(struct evaluator *e, const struct result *r, struct err *err);
    /* Records of all that was added: plain bytes, borrowed until the next call. */
    const void *(*pack)(const struct evaluator *e, size_t *ret_bytes);
    /* The records of all ranks, one after the other; may be put in another order. Appends to *ret. */
    int (*score)(const struct evaluator *e, void *records, size_t bytes, struct metrics *ret, struct err *err);
    void (*close)(struct evaluator *e); /* NULL: it is one block of memory */
};

/* Several, over one split. */
struct evaluators {
    int n;
    struct evaluator *each[]; /* [n] */
};

/* list ends with NULL. Caller closes. */
int evaluators_open(const struct evaluator_ops *const *list, const struct eval_split *split, struct evaluators **ret, struct err *err);
void evaluators_close(struct evaluators *all);
int evaluators_add(struct evaluators *all, const struct result *r, struct err *err);
