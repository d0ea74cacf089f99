/* SPDX-License-Identifier: Apache-2.0 */ /* worker/kernels/rcnn.h - one region of a second stage: the loss of its
 * outputs, the target of its mask, its detections. Specs rcnn sections 4 to 6. */
#pragma once
#include "worker/ops/rcnn.h"
#include "worker/kernels/delta.h"
#include "worker/kernels/polygon.h"
#include "worker/kernels/reduce.h"
#include "worker/kernels/select.h"

/* State of a candidate after the draw. */
enum rcnn_choice { RCNN_LEFT, RCNN_BACKGROUND, RCNN_CHOSEN, RCNN_MASKED /* chosen, and its mask is drawn */ };

/* ---- drawing regions ---- */

/* Is a candidate foreground? It overlaps a truth of class cls most, by `best`. A truth of an unknown class has no
 * column in any head. Only background is drawn for it, so that later code need not check. */
KERNEL_FN int rcnn_foreground(const struct rcnn_head *h, float best, int32_t cls)
{
    return best >= h->fg_iou && cls >= 0 && cls < h->classes;
}

/* ---- the box head ---- */

/* Columns of class c (head->classes: the background), and of its deltas. */
KERNEL_FN int rcnn_column(const struct rcnn_head *h, int c)
{
    return h->background_first ? (c == h->classes ? 0 : c + 1) : c;
}

KERNEL_FN int rcnn_delta_column(const struct rcnn_head *h, int c)
{
    return h->agnostic ? 0 : 4 * rcnn_column(h, c);
}

/* Skips NaN: the sum finds it. */
KERNEL_FN float softmax_max(const float *z, int n, int *ret_at)
{
    int at = 0;

    for (int i = 1; i < n; i++)
        at = z[i] > z[at] ? i : at;
    *ret_at = at;
    return z[at];
}

/* Sum of e^(z - m): number i goes to lane i mod 16. */
KERNEL_FN float softmax_sum(const float *z, int n, float m)
{
    float lane[SUM_LANES] = { 0.0f };
    int i = 0;

    for (; i + SUM_LANES <= n; i += SUM_LANES)
        for (int l = 0; l < SUM_LANES; l++)
            lane[l] += math_exp(z[i + l] - m);
    for (int l = 0; i < n; i++, l++)
        lane[l] += math_exp(z[i] - m);
    return sum_lanes32(lane);
}

/* The loss of a row: cross-entropy, smooth L1; right: its class is right. */
struct rcnn_cost {
    float cls, box;
    int right;
};

/* The background has no weight. */
KERNEL_FN float rcnn_class_weight(const struct rcnn_head *h, int label)
{
    return h->class_weight && label < h->classes ? h->class_weight[label] : 1.0f;
}

/* z [classes + 1], dz the same, or NULL: all are written. */
KERNEL_FN struct rcnn_cost rcnn_class_cost(float *dz, const float *z, const struct rcnn_head *h, int label, float scale)
{
    int n = h->classes + 1, column = rcnn_column(h, label), top;
    float m = softmax_max(z, n, &top), sum = softmax_sum(z, n, m), weight = rcnn_class_weight(h, label);
    struct rcnn_cost c;

    scale *= weight;
    c.cls = weight * (math_log(sum) + m - z[column]);
    c.box = 0.0f;
    c.right = top == column;
    for (int k = 0; dz && k < n; k++)
        dz[k] = scale * (math_exp(z[k] - m) / sum);
    if (dz)
        dz[column] = scale * (math_exp(z[column] - m) / sum - 1.0f);
    return c;
}

/* For a foreground row; d and dd (or NULL) point to the whole row; four of its numbers are read and written. */
KERNEL_FN float rcnn_box_cost(float *dd, const float *d, const struct rcnn_head *h, int label, const float *box, const float *truth,
                              float scale)
{
    int at = rcnn_delta_column(h, label);
    float target[4];

    delta_encode(target, box_at(box), box_at(truth), h->weights);
    return delta_loss(dd ? dd + at : dd, d + at, target, h->beta, scale);
}

/* sums: over the rows, in the order of the terms. */
KERNEL_FN void rcnn_box_finish(double *terms, const double *sums, int rows)
{
    terms[RCNN_CLS] = mean_of(sums[RCNN_CLS], (double)rows);
    terms[RCNN_BOX] = mean_of(sums[RCNN_BOX], (double)rows);
    terms[RCNN_ROWS] = (double)rows;
    terms[RCNN_FOREGROUND] = sums[RCNN_FOREGROUND];
    terms[RCNN_RIGHT] = sums[RCNN_RIGHT];
}

/* ---- detections ---- */

/* Are the boxes of all classes of a row finite? If a box is not, no class of the row is a candidate. */
KERNEL_FN int rcnn_row_finite(const struct rcnn_head *h, const float *d, const float *box)
{
    int finite = 1;

    for (int c = 0; c < (h->agnostic ? 1 : h->classes); c++)
        finite = finite && box_finite(delta_decode(box_at(box), d + rcnn_delta_column(h, c), h->weights));
    return finite;
}

/* Class c of a row with softmax maximum m and sum. Returns 1 if it is a candidate, provided that the row is finite. */
KERNEL_FN int rcnn_candidate(struct candidate *ret, const struct rcnn_head *h, const float *z, float m, float sum, const float *d,
                             const float *box, int c, float score, float min_side, float height, float width)
{
    float p = math_exp(z[rcnn_column(h, c)] - m) / sum;
    struct box b;

    if (!(p > score))
        return 0;
    b = box_clip(delta_decode(box_at(box), d + rcnn_delta_column(h, c), h->weights), height, width);
    ret->x1 = b.x1;
    ret->y1 = b.y1;
    ret->x2 = b.x2;
    ret->y2 = b.y2;
    ret->score = p;
    ret->cls = c;
    return b.x2 - b.x1 >= min_side && b.y2 - b.y1 >= min_side;
}

/* ---- masks: outlines drawn on the region's cells ---- */

/* Maps a point of the picture to the cells of a region. */
struct mask_frame {
    double x, y, cells_x, cells_y; /* cells a pixel */
    int side;                      /* cells along either axis */
};

KERNEL_FN struct mask_frame mask_frame(struct box b, int side)
{
    double w = (double)(b.x2 - b.x1), h = (double)(b.y2 - b.y1);
    struct mask_frame f;

    f.side = side;
    f.x = (double)b.x1;
    f.y = (double)b.y1;
    f.cells_x = side / (w > 0.1 ? w : 0.1);
    f.cells_y = side / (h > 0.1 ? h : 0.1);
    return f;
}

/* Edge i of a polygon of n points, on a region's cells. */
KERNEL_FN struct polygon_edge mask_edge(const struct mask_frame *f, const double *xy, int n, int i)
{
    const double *p = xy + (size_t)i * 2, *q = xy + (size_t)(i + 1 < n ? i + 1 : 0) * 2;
    double a[2], b[2];

    a[0] = (p[0] - f->x) * f->cells_x;
    a[1] = (p[1] - f->y) * f->cells_y;
    b[0] = (q[0] - f->x) * f->cells_x;
    b[1] = (q[1] - f->y) * f->cells_y;
    return polygon_edge(a, b);
}

/* Cells that an edge inverts in column c: all cells from a row on, of at most RCNN_MAX_MASK_SIDE. */
KERNEL_FN uint64_t mask_turned(const struct mask_frame *f, const struct polygon_edge *e, int c)
{
    int row = polygon_row(e, c, f->side);

    return row < f->side ? ~(uint64_t)0 << row : 0;
}

/* ---- masks: bitmaps sampled. Bits stand in columns of words, low bits above ---- */

KERNEL_FN int bit_words(int height)
{
    return (height + 31) / 32;
}

/* Each bit becomes 1 if an odd number of bits at or before it were set; carry: all ones if that number was odd before
 * the word. */
KERNEL_FN uint32_t bits_parity(uint32_t w, uint32_t carry)
{
    w ^= w << 1;
    w ^= w << 2;
    w ^= w << 4;
    w ^= w << 8;
    w ^= w << 16;
    return w ^ carry;
}

/* Word k of a column that has ones in bits [from, to). */
KERNEL_FN uint32_t bits_between(int k, int from, int to)
{
    int lo = from - 32 * k, hi = to - 32 * k;

    if (hi <= 0 || lo >= 32 || hi <= lo)
        return 0;
    return (lo > 0 ? ~0u << lo : ~0u) & (hi < 32 ? ~(~0u << hi) : ~0u);
}

/* ---- the mask head ---- */

/* A cell: returns its loss and, if dz is not NULL, writes its slope. */
KERNEL_FN float mask_cost(float *dz, float z, float target, float scale)
{
    if (dz)
        *dz = scale * (math_sigmoid(z) - target);
    return math_bce(z, target);
}

/* For masks of `cells` cells. */
KERNEL_FN void rcnn_mask_finish(double *terms, double sum, int rows, int cells)
{
    terms[RCNN_MASK] = mean_of(sum, (double)rows * cells);
    terms[RCNN_MASK_ROWS] = (double)rows;
}
