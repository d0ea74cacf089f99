/* SPDX-License-Identifier: Apache-2.0 */ /* worker/kernels/mask_bits.h - bitmaps of objects, from which a region takes
 * a mask's values: RoIAlign of ones and zeros at the picture's own scale. Specs rcnn sections 4.4 and 5.2. Only the
 * columns that the region sees are made. */
#pragma once
#include "worker/kernels/rcnn.h"
#include "worker/kernels/roi.h"

/* The window of one region; the arrays lie in working memory of mask_window_bytes(). */
struct mask_window {
    struct roi_align roi;
    struct roi_axis axis[ROI_AXES];
    struct roi_band *band[ROI_AXES]; /* [side] each */
    float *weight[ROI_AXES];
    int height, width, words; /* of the picture; words of a column */
    int x, x_end;             /* the columns that are present */
    uint32_t *bits, *turn;    /* columns of words; the same for the polygon that is drawn now */
    float *sum;               /* [side][columns]: down the rows of a bin */
    bool binary;              /* values are cut at 1/2 */
};

/* Enough for any picture on the canvas. */
KERNEL_FN size_t mask_window_bytes(struct canvas c, int side)
{
    size_t axes = (size_t)ROI_AXES * (size_t)side * sizeof(struct roi_band);
    size_t weights = ((size_t)c.h + (size_t)c.w + (size_t)2 * 3 * (size_t)side) * sizeof(float);
    size_t bits = 2 * (size_t)c.w * (size_t)bit_words(c.h) * sizeof(uint32_t), sums = (size_t)side * (size_t)c.w * sizeof(float);

    return (axes + weights + bits + sums + 63) / 64 * 64;
}

KERNEL_FN struct mask_window mask_window(char *memory, int side, bool binary, struct box b, int height, int width)
{
    struct mask_window w;

    memset(&w, 0, sizeof w);
    w.roi.pool = side;
    w.roi.aligned = binary;
    w.binary = binary;
    w.height = height;
    w.width = width;
    w.words = bit_words(height);
    w.axis[ROI_Y] = roi_axis(&w.roi, b.y1, b.y2, 1.0f, height);
    w.axis[ROI_X] = roi_axis(&w.roi, b.x1, b.x2, 1.0f, width);
    if (w.axis[ROI_Y].grid == 0 || w.axis[ROI_X].grid == 0)
        w.axis[ROI_Y].grid = w.axis[ROI_X].grid = 0;
    w.band[ROI_Y] = (struct roi_band *)memory;
    w.band[ROI_X] = w.band[ROI_Y] + side;
    w.weight[ROI_Y] = (float *)(w.band[ROI_X] + side);
    w.weight[ROI_X] = w.weight[ROI_Y] + roi_room(&w.roi, height);
    w.sum = w.weight[ROI_X] + roi_room(&w.roi, width);
    w.bits = (uint32_t *)(w.sum + (size_t)side * (size_t)width);
    w.turn = w.bits + (size_t)width * (size_t)w.words;
    return w;
}

/* Bin p of both axes. Bins share no cell of the weights' memory. */
KERNEL_FN void mask_window_band(const struct mask_window *w, int p)
{
    for (int axis = 0; axis < ROI_AXES; axis++)
        w->band[axis][p] = roi_band(&w->roi, &w->axis[axis], p, w->weight[axis]);
}

/* Must come after the bands. */
KERNEL_FN void mask_window_columns(struct mask_window *w)
{
    w->x = w->width;
    w->x_end = 0;
    for (int p = 0; p < w->roi.pool; p++) {
        const struct roi_band *b = &w->band[ROI_X][p];

        if (b->first >= b->end)
            continue;
        w->x = b->first < w->x ? b->first : w->x;
        w->x_end = b->end > w->x_end ? b->end : w->x_end;
    }
    w->x = w->x < w->x_end ? w->x : w->x_end;
}

KERNEL_FN size_t mask_window_words(const struct mask_window *w)
{
    return (size_t)(w->x_end - w->x) * (size_t)w->words;
}

KERNEL_FN size_t mask_word(const struct mask_window *w, int column, int row)
{
    return (size_t)(column - w->x) * (size_t)w->words + (size_t)(row / 32);
}

/* Adds column c of the polygon that is drawn now to the object. */
KERNEL_FN void mask_fill_column(const struct mask_window *w, int c)
{
    uint32_t carry = 0;

    for (int k = 0; k < w->words; k++) {
        size_t at = mask_word(w, c, 32 * k);
        uint32_t word = bits_parity(w->turn[at], carry);

        w->bits[at] |= word;
        carry = word >> 31 ? ~0u : 0u;
    }
}

/* Rows [ret_from, ret_to) of column c that a run of places [at, end) down the columns covers. */
KERNEL_FN void mask_run_rows(const struct mask_window *w, int64_t at, int64_t end, int c, int *ret_from, int *ret_to)
{
    int64_t top = (int64_t)c * w->height, from = at - top, to = end - top;

    *ret_from = (int)(from > 0 ? from : 0);
    *ret_to = (int)(to < w->height ? to : w->height);
}

/* Columns of the window that the run meets. */
KERNEL_FN void mask_run_columns(const struct mask_window *w, int64_t at, int64_t end, int *ret_from, int *ret_to)
{
    int64_t from = at / w->height, to = (end + w->height - 1) / w->height;

    *ret_from = from > w->x ? (int)(from < w->x_end ? from : w->x_end) : w->x;
    *ret_to = to < w->x_end ? (int)to : w->x_end;
}

/* Sets a run of ones. */
KERNEL_FN void mask_fill_run(const struct mask_window *w, int64_t at, int64_t end)
{
    int column, last;

    mask_run_columns(w, at, end, &column, &last);
    for (; column < last && end > at; column++) {
        int from, to;

        mask_run_rows(w, at, end, column, &from, &to);
        for (int k = from / 32; 32 * k < to; k++)
            w->bits[mask_word(w, column, 32 * k)] |= bits_between(k, from, to);
    }
}

/* Sum over bin p's rows of column c: a chain of the weights where bits are ones. */
KERNEL_FN void mask_window_sum(const struct mask_window *w, int p, int c)
{
    const struct roi_band *b = &w->band[ROI_Y][p];
    float sum = 0.0f;

    for (int i = b->first; i < b->end; i++)
        if (w->bits[mask_word(w, c, i)] >> i % 32 & 1u)
            sum += roi_weight(b, w->weight[ROI_Y], i);
    w->sum[(size_t)p * (size_t)w->width + (size_t)c] = sum;
}

/* Value of cell i, row by row. */
KERNEL_FN float mask_window_value(const struct mask_window *w, int i)
{
    const struct roi_band *b = &w->band[ROI_X][i % w->roi.pool];
    const float *sums = w->sum + (size_t)(i / w->roi.pool) * (size_t)w->width;
    float value = 0.0f;

    for (int c = b->first; c < b->end; c++)
        value = fmaf(roi_weight(b, w->weight[ROI_X], c), sums[c], value);
    return w->binary ? (value >= 0.5f ? 1.0f : 0.0f) : value;
}
