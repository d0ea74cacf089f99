/* SPDX-License-Identifier: Apache-2.0 */ /* worker/eval/boxes/coco_ap.h - COCO average precision of boxes: the twelve
 * numbers, AP per threshold and per class. Pure. Source: the rules of the COCO evaluation (specs yolov3 section
 * 7.3). */
#pragma once
#include <stddef.h>

#include "worker/eval/boxes/coco_match.h"

struct err;

enum { COCO_STATS = 12 };

/* AP, AP50, AP75, AP small, medium, large; AR with 1, 10 and all counted detections of an image and class, AR small,
 * medium, large. */
/* clang-format off */
enum coco_stat {
    COCO_AP, COCO_AP50, COCO_AP75, COCO_AP_SMALL, COCO_AP_MEDIUM, COCO_AP_LARGE,
    COCO_AR1, COCO_AR10, COCO_AR_ALL, COCO_AR_SMALL, COCO_AR_MEDIUM, COCO_AR_LARGE
};
/* clang-format on */
/* Names for reports: "AP", "AP50", "AP75", "APs", "APm", "APl", "AR1", "AR10", "AR100", "ARs", "ARm", "ARl". If another
 * number of detections counts, it stands in the name of COCO_AR_ALL. */
extern const char *const coco_stat_name[COCO_STATS];

/* For a class: the score from which on its detections have the best F1 at IoU .50 (the highest such score), and their
 * precision and recall there. */
struct coco_best {
    /* -1: undefined, as nothing was detected rightly or, for recall too, there is nothing to detect */
    double conf, precision, recall;
    size_t truths; /* without crowds */
};

/* Everything is -1 if there is no ground truth for it. */
struct coco_ap {
    double stat[COCO_STATS];
    double at_iou[COCO_THRESHOLDS]; /* .50, .55 ... .95 */
    int nclasses;
    double *class_ap, *class_ap50, *class_ar; /* [nclasses]; class_ar: COCO_AR_ALL */
    struct coco_best *class_best;             /* [nclasses] */
};

/* Reorders the verdicts on all detections (coco_match.h). truths: all of the split; classes are 0 .. nclasses - 1.
 * -ENOMEM. Caller frees the result's arrays with coco_ap_free(). */
int coco_ap_score(struct coco_verdict *verdicts, size_t n, const struct truth *truths, size_t ntruths, int nclasses, struct coco_ap *ret_ap,
                  struct err *err);
void coco_ap_free(struct coco_ap *ap);
