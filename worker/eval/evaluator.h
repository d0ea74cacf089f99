/* SPDX-License-Identifier: Apache-2.0 */ /* worker/eval/evaluator.h - turns results into scores. Every rank adds the
 * results of its pictures, which are matched with the truth at once. Only small records of the matches, never masks or
 * maps, go to rank 0, which scores. The scores do not depend on which rank saw which picture, or in which order.
 * Another measure needs another struct evaluator_ops; a family of models lists the measures of its results
 * (models/registry.h). */
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
    /* The mask of truths[k], as large as its picture (mask/rle.h). Errors come from reading it. */
    int (*read)(void *of, size_t k, struct rle *ret, struct err *err);
};

/* Measured depth, read when its picture is scored. */
struct eval_depth {
    int w, h;            /* of the picture's size */
    const float *metres; /* [h][w], 0: unknown. Borrowed until the next one is read. NULL: that picture has no depth */
};
struct eval_depths {
    void *of;
    /* The depth of that image. Errors come from reading it. */
    int (*read)(void *of, int image, struct eval_depth *ret, struct err *err);
    struct depth_rule rule; /* the rule of the comparison */
};

/* True motion from frame to frame. */
struct eval_poses {
    void *of;
    /* The motion of an image to its next frame: rows of [R | t] from its camera to the next one's, and the next frame's
     * image, or -1. False if it is not known. */
    bool (*motion)(void *of, int image, double ret[RESULT_POSE], int *ret_next);
    int view; /* the result's view of the next frame */
};

/* The truth of a split. Borrowed for the life of an evaluator. */
struct eval_split {
    int nimages, nclasses;
    const int64_t *class_id;       /* [nclasses] */
    const char *const *class_name; /* [nclasses] */
    const struct truth *truths;
    size_t ntruths;
    const struct eval_masks *masks;   /* NULL: no masks, and no scores of masks */
    const struct eval_depths *depths; /* NULL: no depth, and no scores of depth */
    const struct eval_poses *poses;   /* NULL: no poses, and no scores of poses */
    /* most detections of a model per image; COCO's scores count 100 of each class, or max_det if that is more */
    int max_det;
};

/* An implementation's own struct begins with this one. */
struct evaluator {
    const struct evaluator_ops *ops;
};

struct evaluator_ops {
    const char *name;
    int (*open)(const struct eval_split *split, struct evaluator **ret, struct err *err);
    /* Adds one picture's result; each must be added once. ERR_INPUT if the picture is not in the split, or the result
     * has the wrong kind. */
    int (*add)(struct evaluator *e, const struct result *r, struct err *err);
    /* Records of all added results: plain bytes, borrowed until the next call. */
    const void *(*pack)(const struct evaluator *e, size_t *ret_bytes);
    /* The records of all ranks, one after the other; may be reordered. Appends to *ret. */
    int (*score)(const struct evaluator *e, void *records, size_t bytes, struct metrics *ret, struct err *err);
    void (*close)(struct evaluator *e); /* NULL: the evaluator is one block of memory */
};

/* Several evaluators over one split. */
struct evaluators {
    int n;
    struct evaluator *each[]; /* [n] */
};

/* list ends with NULL. Caller closes. */
int evaluators_open(const struct evaluator_ops *const *list, const struct eval_split *split, struct evaluators **ret, struct err *err);
void evaluators_close(struct evaluators *all);
int evaluators_add(struct evaluators *all, const struct result *r, struct err *err);
