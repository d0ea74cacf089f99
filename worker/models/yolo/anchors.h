/* SPDX-License-Identifier: Apache-2.0 */ /* worker/models/yolo/anchors.h - sizes of anchors from the sizes of boxes:
 * k-means by IoU, like darknet (specs yolov3 section 1; Redmon 2017, arXiv:1612.08242, section 2). Pure: the same boxes
 * give the same anchors, in any order, as they are sorted first. */
#pragma once
#include <stddef.h>

struct err;

/* For each box b the IoU with its best anchor, both with one centre; returns the mean over all n. box, anchor: width
 * and height, > 0. */
double anchors_mean_iou(const double (*box)[2], size_t n, const double (*anchor)[2], int k);
/* k anchors for n boxes, smallest area first, in *ret [k]. Sorts `box`. ERR_DATA: fewer boxes than anchors. */
int anchors_fit(double (*box)[2], size_t n, int k, double (*ret)[2], struct err *err);
