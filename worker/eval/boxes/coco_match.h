/* SPDX-License-Identifier: Apache-2.0 */ /* worker/eval/boxes/coco_match.h - matches detections of a picture to its
 * objects, by the rules of the COCO evaluation: for each size class and each least overlap. Pictures are matched one by
 * one, in any order; coco_ap.h makes scores of the verdicts. Pure. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worker/eval/detection.h"

struct coco_matcher;
struct err;

enum {
    COCO_THRESHOLDS = 10, /* .50, .55 ... .95 */
    COCO_AREAS = 4,       /* all, small, medium, large */
    COCO_COUNTED = 100,   /* counted detections of an image and class, unless more are asked for */
};

/* A kept detection and its verdict: enum pr_flag, for every size class and threshold. */
struct coco_verdict {
    int32_t image, cls, rank; /* rank: place in its image and class, below the number that counts */
    double score;
    uint8_t flag[COCO_AREAS][COCO_THRESHOLDS];
};

/* truths must outlive it; their order only matters for exactly equal overlaps (the later truth is taken). counted: so
 * many best detections of an image and class are matched, pycocotools' largest maxDets; >= 1. -ENOMEM. Caller
 * closes. */
int coco_matcher_open(const struct truth *truths, size_t ntruths, int counted, struct coco_matcher **ret, struct err *err);
void coco_matcher_close(struct coco_matcher *s);
/* Measures of detections and truths other than their boxes: by place in the given arrays. For a class, the counted
 * detections are asked for, and each of them before its overlaps. */
struct coco_measure {
    void *of;
    double (*area)(void *of, size_t det);
    double (*overlap)(void *of, size_t det, size_t truth);
};
/* All detections of one image, in any order, once. by: NULL: boxes. */
int coco_match(struct coco_matcher *s, const struct detection *dets, size_t ndets, const struct coco_measure *by, struct err *err);
/* The truths of an image, by class, else as given; borrowed. */
const struct truth *const *coco_truths_of(const struct coco_matcher *s, int32_t image, size_t *ret_n);
/* The verdicts on all images so far; borrowed until the next call. */
const struct coco_verdict *coco_verdicts(const struct coco_matcher *s, size_t *ret_n);
/* Is a truth wanted in a size class? */
bool coco_counts(const struct truth *t, int area);
