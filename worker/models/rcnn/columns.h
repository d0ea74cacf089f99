/* SPDX-License-Identifier: Apache-2.0 */ /* worker/models/rcnn/columns.h - rows of arrays that depend on the class
 * count: their orders in other programs, and conversion between orders. Pure. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worker/models/rcnn/names.h"

/* The rows of one array for `classes` classes. With background_first the background has the first row. Else scores have
 * its row last, and boxes and masks have no row for it. */
struct rcnn_rows {
    enum rcnn_place place; /* RCNN_CLASSES, RCNN_BOXES or RCNN_PREDICTOR */
    int classes;
    bool background_first;
    /* With background_first: the row of each class, which in torchvision's programs is the category's id, 91 rows for
     * COCO's 80 classes; ascending and above 0. Rows that are no id belong to no class. NULL: the classes follow each
     * other. */
    const int64_t *id;
};

bool rcnn_has_rows(enum rcnn_place place);
int rcnn_row_count(const struct rcnn_rows *r);
/* Converts from [rcnn_row_count(a)][width] to to [rcnn_row_count(b)][width]; place and classes must be the same. Rows
 * that only b has are 0. */
void rcnn_turn_rows(const struct rcnn_rows *a, const float *from, const struct rcnn_rows *b, float *to, size_t width);
/* Biases of scores, rcnn_row_count(r) of them: a row of no class gets a bias with which it is never found and takes no
 * part of the others' scores. */
void rcnn_silence_rows(const struct rcnn_rows *r, float *bias);
