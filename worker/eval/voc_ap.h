/* worker/eval/voc_ap.h - Pascal VOC average precision at one overlap (specs yolov3 section 7.2), areas without the extra pixel. Pure. */
#pragma once
#include <stddef.h>

#include "worker/eval/detection.h"
#include "worker/eval/pr_curve.h"

struct err;

struct voc_ap {
    double map; /* mean over classes with truths; -1 where there is none */
    int nclasses;
    double *class_ap; /* [nclasses], -1 without truths */
    size_t *npos;     /* [nclasses], truths that are neither difficult nor crowd */
};

/* Crowd truths count as difficult. Same inputs and errors as coco_ap_compute(). Caller frees with voc_ap_free(). */
int voc_ap_compute(const struct detection *dets, size_t ndets, const struct truth *truths, size_t ntruths, int nclasses, double iou,
                   enum pr_points points, struct voc_ap *ret_ap, struct err *err);
void voc_ap_free(struct voc_ap *ap);
