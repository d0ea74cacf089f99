/* worker/train/scores.h - what a validation found, as metrics of the store: the numbers of COCO and VOC, and AP50 of every class. */
#pragma once
#include <stdint.h>

struct coco_ap;
struct dataset;
struct err;
struct report;
struct voc_ap;

/* Rank 0. "AP50:" and the name of the class, cut to what the store takes; where two classes would share a name all carry their id. */
int scores_report(struct report *r, int64_t step, const struct dataset *d, const struct coco_ap *coco, const struct voc_ap *voc,
                  struct err *err);
