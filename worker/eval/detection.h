/* SPDX-License-Identifier: Apache-2.0 */ /* worker/eval/detection.h - detections and true objects: the two records that
 * scoring, drawing and exporting share. Boxes are x, y, width, height in pixels of the original image, as in COCO. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;

struct detection {
    /* index into the split; ascending index must mean ascending image id if the COCO order of ties matters */
    int32_t image;
    int32_t cls;  /* 0 .. classes - 1 */
    int32_t slot; /* breaks ties between equal scores: lower first */
    double score;
    double box[4];
};

struct truth {
    int32_t image, cls;
    bool crowd;     /* COCO: a region of many objects, may be matched repeatedly */
    bool difficult; /* VOC: neither wanted nor wrong */
    double area;    /* COCO's area field, which may differ from the box; decides small / medium / large */
    double box[4];
};

/* qsort order: image, class, falling score, slot, then the box. Equal therefore means identical, and the order in which
 * ranks delivered never shows. */
int detection_compare(const void *a, const void *b);
/* Intersection over union; with `crowd`, over the area of the detection alone. Empty intersections give 0. */
double box_overlap(const double det[4], const double truth[4], bool crowd);

/* ERR_INPUT if a class lies outside 0 .. nclasses - 1, an image is negative or a number is not finite; the message
 * names the record. */
int detections_check(const struct detection *dets, size_t n, int nclasses, struct err *err);
int truths_check(const struct truth *truths, size_t n, int nclasses, struct err *err);
