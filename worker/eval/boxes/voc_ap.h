/* SPDX-License-Identifier: Apache-2.0 */ /* worker/eval/boxes/voc_ap.h - Pascal VOC average precision at one overlap
 * (specs yolov3 section 7.2), areas without the extra pixel. Pictures are matched one by one, in any order. Pure. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "worker/eval/detection.h"
#include "worker/eval/boxes/pr_curve.h"

struct err;
struct voc_matcher;

/* A detection and its verdict. */
struct voc_verdict {
    int32_t image, cls, rank; /* rank: place in its image */
    int32_t flag;             /* enum pr_flag */
    double score;
};

struct voc_ap {
    double map; /* mean over classes with truths; -1 if there are no truths */
    int nclasses;
    double *class_ap; /* [nclasses], -1 without truths */
    size_t *npos;     /* [nclasses], truths that are neither difficult nor crowd */
};

/* truths must outlive it. Crowds count as difficult. The truth that a detection overlaps most decides on the detection.
 * -ENOMEM. Caller closes. */
int voc_matcher_open(const struct truth *truths, size_t ntruths, double iou, struct voc_matcher **ret, struct err *err);
void voc_matcher_close(struct voc_matcher *m);
/* All detections of one image, in any order, once. */
int voc_match(struct voc_matcher *m, const struct detection *dets, size_t ndets, struct err *err);
/* The verdicts on all images so far; borrowed until the next call. */
const struct voc_verdict *voc_verdicts(const struct voc_matcher *m, size_t *ret_n);
/* Reorders the verdicts on all detections. truths: all of the split; classes are 0 .. nclasses - 1. -ENOMEM. Caller
 * frees with voc_ap_free(). */
int voc_ap_score(struct voc_verdict *verdicts, size_t n, const struct truth *truths, size_t ntruths, int nclasses, enum pr_points points,
                 struct voc_ap *ret_ap, struct err *err);
void voc_ap_free(struct voc_ap *ap);
