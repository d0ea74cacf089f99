/* SPDX-License-Identifier: Apache-2.0 */ /* worker/models/rcnn/columns.h - rows of arrays that depend on the class count: in which order programs have them, and from one to the other. Pure. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worker/models/rcnn/names.h"

/* The rows of one array for `classes` classes. With background_first the background has the first, else scores have its row last, boxes and masks none. */
struct rcnn_rows {
    enum rcnn_place place; /* RCNN_CLASSES, RCNN_BOXES or RCNN_PREDICTOR */
    int classes;
    bool background_first;
    /* With background_first: the row of each class, as torchvision's programs have a category's id for it, 91 rows for COCO's 80 classes; ascending and
     * above 0. Rows of none are nobody's. NULL: one class after the other. */
    const int64_t *id;
};

bool rcnn_has_rows(enum rcnn_place place);
int rcnn_row_count(const struct rcnn_rows *r);
/* to [rcnn_row_count(b)][width] from from [rcnn_row_count(a)][width]; the same place and classes. Rows that only b has are 0. */
void rcnn_turn_rows(const struct rcnn_rows *a, const float *from, const struct rcnn_rows *b, float *to, size_t width);
/* Biases of scores, rcnn_row_count(r) of them: a row that is nobody's gets one with which it is never found, and takes no part of the others' scores. */
void rcnn_silence_rows(const struct rcnn_rows *r, float *bias);
