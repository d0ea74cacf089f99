/* SPDX-License-Identifier: Apache-2.0 */ /* worker/kernels/roi.h - RoIAlign in its separable form. A box sees the h x w
 * cells X of its level as A X B^T, A [P, h] and B [P, w], because the weights, clamping and validity of a bin's points
 * are separate along each axis. Specs rcnn section 4.4, determinism section 5.2.
 *
 * A row of A has few numbers that are not 0, its band. Bands of all boxes are computed first. Then each output, or each
 * number of a gradient, is one chain over them. Weights of 0 are left out, so that a number that is not finite reaches
 * only the outputs that see it. */
#pragma once
#include <stdbool.h>

#include "worker/kernels/math.h"
#include "worker/ops/roi.h"

/* Cells of the level: a box beyond them sees nothing. Closer positions are computed with an error below half a cell, on
 * which roi_room() counts. */
#define ROI_REACH 1048576.0f

/* ---- which level ---- */

/* Levels count from 0. Boxes without a size, inside out or NaN take the first.
 * Specs determinism section 3.7 would compare the area with thresholds, as log2f() has other bits in each library. The
 * logarithm here is the project's own, in double and from + - * and fma alone (kernels/math.h), so it has one value
 * everywhere. The guards, which the flavors have inside and outside of it, are as in specs rcnn section 4.3, to the bit
 * that decides at a border. */
KERNEL_FN int roi_level(const struct roi_align *roi, const float *box)
{
    float ratio = sqrtf((box[2] - box[0]) * (box[3] - box[1])) / roi->canonical_side, level;

    if (roi->levels == ROI_LEVELS_D2)
        ratio += 1e-8f;
    if (!(ratio > 0.0f))
        return 0;
    level = (float)roi->canonical_level + (float)(math_log64((double)ratio) * 1.44269504088896340736);
    if (roi->levels == ROI_LEVELS_TV)
        level += 1e-6f;
    if (!(level >= (float)roi->first_level))
        return 0;
    return level < (float)(roi->first_level + roi->nlevels) ? (int)level - roi->first_level : roi->nlevels - 1;
}

/* The image of a row, in a shard of n images. */
KERNEL_FN int roi_image(const struct roi_rows *r, int n, int row)
{
    return r->image ? r->image[row] : row / (r->cap / n);
}

/* ---- an axis of a box on its level ---- */

struct roi_axis {
    float start, bin; /* cells: start of the box, and length of a bin; negative: it is inside out */
    int grid;         /* points a bin; 0: the box sees nothing */
    int cells;        /* of the level along this axis */
};

KERNEL_FN struct roi_axis roi_axis(const struct roi_align *roi, float from, float to, float scale, int cells)
{
    float offset = roi->aligned ? 0.5f : 0.0f, size;
    struct roi_axis a;

    a.start = from * scale - offset;
    size = to * scale - offset - a.start;
    if (!roi->aligned && size < 1.0f)
        size = 1.0f;
    a.bin = size / (float)roi->pool;
    a.cells = cells;
    a.grid = 0;
    if (!(fabsf(a.start) < ROI_REACH && fabsf(size) < ROI_REACH))
        return a;
    if (roi->sampling > 0)
        a.grid = roi->sampling;
    else if (a.bin > 0.0f)
        a.grid = (int)ceilf(a.bin);
    return a;
}

/* Position of point i of bin p, in cells. It never decreases as i grows, unless the box is inside out: each operation
 * is monotonic. */
KERNEL_FN float roi_point(const struct roi_axis *a, int p, int i)
{
    return a->start + (float)p * a->bin + ((float)i + 0.5f) * a->bin / (float)a->grid;
}

/* The first point of bin p that does not lie before the level. */
KERNEL_FN int roi_first_point(const struct roi_axis *a, int p)
{
    int from = 0, to = a->grid;

    if (a->bin < 0.0f)
        return 0;
    while (from < to) {
        int i = from + (to - from) / 2;

        if (roi_point(a, p, i) < -1.0f)
            from = i + 1;
        else
            to = i;
    }
    return from;
}

/* ---- bands ---- */

/* The cells [first, end) that a bin sees: w[at + cell] is the weight of a cell; w is the axis' memory of roi_room(). */
struct roi_band {
    int32_t first, end, at;
};

/* Floats for an axis' bands. A bin ends at most two cells, plus rounding, behind the first cell of the next one. Bands
 * that stand at their first cell + 3 * (number of the bin along the level) therefore do not overlap. */
KERNEL_FN int roi_room(const struct roi_align *roi, int cells)
{
    return cells + 3 * roi->pool;
}

KERNEL_FN void roi_band_add(struct roi_band *b, float *w, int cell, float weight)
{
    if (b->first == b->end)
        b->first = b->end = cell;
    while (cell < b->first)
        w[b->at + --b->first] = 0.0f;
    while (cell >= b->end)
        w[b->at + b->end++] = 0.0f;
    w[b->at + cell] += weight;
}

/* Bin p's band and its weights: its points' weights in their order, divided by their number. */
KERNEL_FN struct roi_band roi_band(const struct roi_align *roi, const struct roi_axis *a, int p, float *w)
{
    struct roi_band b;

    b.first = b.end = 0;
    b.at = 3 * (a->bin < 0.0f ? roi->pool - 1 - p : p);
    for (int i = roi_first_point(a, p); i < a->grid; i++) {
        float t = roi_point(a, p, i);
        int cell;

        if (t > (float)a->cells && a->bin >= 0.0f)
            break;
        if (t < -1.0f || t > (float)a->cells)
            continue;
        cell = t > 0.0f ? (int)t : 0;
        if (cell >= a->cells - 1) {
            roi_band_add(&b, w, a->cells - 1, 1.0f);
            continue;
        }
        t = t > 0.0f ? t - (float)cell : 0.0f;
        roi_band_add(&b, w, cell, 1.0f - t);
        if (t > 0.0f)
            roi_band_add(&b, w, cell + 1, t);
    }
    for (int i = b.first; i < b.end; i++)
        w[b.at + i] /= (float)a->grid;
    return b;
}

KERNEL_FN float roi_weight(const struct roi_band *b, const float *w, int cell)
{
    return cell >= b->first && cell < b->end ? w[b->at + cell] : 0.0f;
}

/* ---- boxes of a shard ---- */

enum { ROI_Y, ROI_X, ROI_AXES };

/* A row, on its level. */
struct roi_place {
    int32_t level, image;                 /* level -1: it sees nothing */
    int32_t from[ROI_AXES], to[ROI_AXES]; /* the cells it sees */
};

/* Data of the rows of a shard that is computed before the first number is read. */
struct roi_table {
    struct roi_place *place; /* [cap] */
    struct roi_band *band;   /* [cap][ROI_AXES][pool] */
    float *weight;           /* [cap][room[ROI_Y] + room[ROI_X]] */
    int32_t room[ROI_AXES];
    int32_t pool;
};

KERNEL_FN struct roi_band *roi_bands(const struct roi_table *t, int row, int axis)
{
    return t->band + ((size_t)row * ROI_AXES + (size_t)axis) * (size_t)t->pool;
}

KERNEL_FN float *roi_weights(const struct roi_table *t, int row, int axis)
{
    return t->weight + (size_t)row * ((size_t)t->room[ROI_Y] + (size_t)t->room[ROI_X]) + (axis == ROI_X ? (size_t)t->room[ROI_Y] : 0);
}

KERNEL_FN bool roi_touches(const struct roi_place *p, int level, int image, int y, int y_end, int x, int x_end)
{
    return p->level == level && p->image == image && p->from[ROI_Y] < y_end && p->to[ROI_Y] > y && p->from[ROI_X] < x_end &&
           p->to[ROI_X] > x;
}

/* ---- one number ---- */

/* Bands and weights of a row. */
struct roi_view {
    const struct roi_band *band[ROI_AXES];
    const float *weight[ROI_AXES];
};

KERNEL_FN struct roi_view roi_view(const struct roi_table *t, int row)
{
    struct roi_view v;

    for (int axis = 0; axis < ROI_AXES; axis++) {
        v.band[axis] = roi_bands(t, row, axis);
        v.weight[axis] = roi_weights(t, row, axis);
    }
    return v;
}

/* A channel of bin (p, q): a chain over the rows of cells of chains over their columns. x: the channel of cell (0, 0)
 * of the row's level and image, w cells wide. */
KERNEL_FN float roi_value(const struct roi_view *v, int p, int q, const float *x, int w, int stride)
{
    const struct roi_band *by = &v->band[ROI_Y][p], *bx = &v->band[ROI_X][q];
    float sum = 0.0f;

    for (int i = by->first; i < by->end; i++) {
        float a = roi_weight(by, v->weight[ROI_Y], i), part = 0.0f;

        if (a == 0.0f)
            continue;
        for (int j = bx->first; j < bx->end; j++) {
            float b = roi_weight(bx, v->weight[ROI_X], j);

            if (b != 0.0f)
                part = fmaf(b, x[((size_t)i * (size_t)w + (size_t)j) * (size_t)stride], part);
        }
        sum = fmaf(a, part, sum);
    }
    return sum;
}

/* Adds one row's part of the gradient of cell (i, j): a chain over the columns of bins of chains over their rows. dy:
 * the channel of the row's bin (0, 0). */
KERNEL_FN float roi_gradient(const struct roi_view *v, int pool, int i, int j, const float *dy, int stride, float sum)
{
    for (int q = 0; q < pool; q++) {
        float b = roi_weight(&v->band[ROI_X][q], v->weight[ROI_X], j), part = 0.0f;
        bool any = false;

        for (int p = 0; p < pool && b != 0.0f; p++) {
            float a = roi_weight(&v->band[ROI_Y][p], v->weight[ROI_Y], i);

            if (a == 0.0f)
                continue;
            part = fmaf(a, dy[((size_t)p * (size_t)pool + (size_t)q) * (size_t)stride], part);
            any = true;
        }
        sum = any ? fmaf(b, part, sum) : sum;
    }
    return sum;
}
