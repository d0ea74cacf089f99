#include "worker/models/rcnn/columns.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <string.h>

bool rcnn_has_rows(enum rcnn_place place)
{
    return place == RCNN_CLASSES || place == RCNN_BOXES || place == RCNN_PREDICTOR;
}

/* Rows for each class. */
static int rows_each(enum rcnn_place place)
{
    return place == RCNN_BOXES ? 4 : 1;
}

/* The first row of class k; k = classes is the background. -1: the background has no row. */
static int first_row(const struct rcnn_rows *r, int k)
{
    int at = k;

    if (r->background_first)
        at = k == r->classes ? 0 : r->id ? (int)r->id[k] : k + 1;
    else if (k == r->classes && r->place != RCNN_CLASSES)
        return -1;
    return at * rows_each(r->place);
}

int rcnn_row_count(const struct rcnn_rows *r)
{
    bool background = r->background_first || r->place == RCNN_CLASSES;

    if (r->background_first && r->id)
        return (int)(r->id[r->classes - 1] + 1) * rows_each(r->place);
    return (r->classes + (background ? 1 : 0)) * rows_each(r->place);
}

void rcnn_turn_rows(const struct rcnn_rows *a, const float *from, const struct rcnn_rows *b, float *to, size_t width)
{
    size_t each = (size_t)rows_each(a->place) * width;

    memset(to, 0, (size_t)rcnn_row_count(b) * width * sizeof *to);
    for (int k = 0; k <= a->classes; k++) {
        int src = first_row(a, k), dst = first_row(b, k);

        if (dst >= 0 && src >= 0)
            memcpy(to + (size_t)dst * width, from + (size_t)src * width, each * sizeof *to);
    }
}

void rcnn_silence_rows(const struct rcnn_rows *r, float *bias)
{
    const float never = -10000; /* exp() of it is 0, also in half precision */
    int k = 0;

    for (int row = 1; r->background_first && r->id && row < rcnn_row_count(r); row++) {
        if (row == r->id[k])
            k++;
        else
            bias[row] = never;
    }
}
