/* SPDX-License-Identifier: Apache-2.0 */ /* worker/kernels/rpn.h - one anchor: its place, its overlap with a box, its
 * label, its loss. Specs rcnn section 3. */
#pragma once
#include "worker/ops/rpn.h"
#include "worker/kernels/delta.h"
#include "worker/kernels/select.h"

struct rpn_level {
    int h, w, first; /* number of its first anchor */
    float step_x, step_y;
};

/* The anchors of an image of a shard. */
struct rpn_grid {
    int nlevels, nratios, anchors;
    struct rpn_level level[RPN_MAX_LEVELS];
};

/* shape: [nlevels][nshards] of the logits. Host. */
static inline struct rpn_grid rpn_grid(const struct rpn_head *head, struct canvas canvas, const struct tensor *const *shape, int shard)
{
    struct rpn_grid g = { head->nlevels, head->nratios, 0, { { 0, 0, 0, 0, 0 } } };

    for (int l = 0; l < head->nlevels; l++) {
        const struct tensor *t = &shape[l][shard];

        g.level[l].h = t->h;
        g.level[l].w = t->w;
        g.level[l].first = g.anchors;
        g.level[l].step_x = (float)(head->infer_stride ? canvas.w / t->w : head->stride[l]);
        g.level[l].step_y = (float)(head->infer_stride ? canvas.h / t->h : head->stride[l]);
        g.anchors += t->h * t->w * head->nratios;
    }
    return g;
}

/* Anchor of column x, row y. */
KERNEL_FN struct box rpn_anchor_at(const float *cell, float step_x, float step_y, int x, int y)
{
    float at_x = (float)x * step_x, at_y = (float)y * step_y;
    struct box b;

    b.x1 = at_x + cell[0];
    b.y1 = at_y + cell[1];
    b.x2 = at_x + cell[2];
    b.y2 = at_y + cell[3];
    return b;
}

/* Anchor i of a level. */
KERNEL_FN struct box rpn_anchor(const struct rpn_head *head, const struct rpn_grid *g, int level, int i)
{
    const struct rpn_level *l = &g->level[level];

    return rpn_anchor_at(head->cell[level][i % g->nratios], l->step_x, l->step_y, i / g->nratios % l->w, i / g->nratios / l->w);
}

KERNEL_FN int rpn_level_of(const struct rpn_grid *g, int anchor)
{
    int l = 0;

    while (l + 1 < g->nlevels && g->level[l + 1].first <= anchor)
        l++;
    return l;
}

/* A fixed order of operations, as low-quality matches compare for equality: areas are added with the image's box
 * first. */
KERNEL_FN float rpn_iou(struct box truth, float truth_area, struct box a, float area)
{
    float w = box_min(truth.x2, a.x2) - box_max(truth.x1, a.x1), h = box_min(truth.y2, a.y2) - box_max(truth.y1, a.y1);
    float inter = w > 0.0f && h > 0.0f ? w * h : 0.0f;

    return inter > 0.0f ? inter / (truth_area + area - inter) : 0.0f;
}

/* 1: positive, 0: negative, -1: between the two. low: it overlaps some box more than, or as much as, all other anchors
 * do. */
KERNEL_FN int rpn_label(const struct rpn_head *head, float best, int low)
{
    return low || best >= head->pos_iou ? 1 : best < head->neg_iou ? 0 : -1;
}

/* The divisor of losses. */
KERNEL_FN double rpn_norm(const struct rpn_head *head, int sampled, int images)
{
    return head->count_sampled ? (double)sampled : (double)head->batch * (double)images;
}

/* grad_scale over the normaliser. */
KERNEL_FN float loss_scale(float grad_scale, double norm)
{
    return norm > 0.0 ? (float)((double)grad_scale / norm) : 0.0f;
}

KERNEL_FN void rpn_finish(double *terms, double cls, double box, int sampled, int positive, double norm, int broken)
{
    terms[RPN_CLS] = mean_of(cls, norm);
    terms[RPN_BOX] = broken ? bits_double(0x7FF8000000000000u) : mean_of(box, norm);
    terms[RPN_SAMPLED] = (double)sampled;
    terms[RPN_POSITIVE] = (double)positive;
}

/* ---- one anchor that was drawn ---- */

/* Index at which its numbers begin in its level's tensor, which has per_anchor numbers an anchor. */
KERNEL_FN size_t rpn_place(const struct rpn_level *l, int nratios, int image, int i, int stride, int per_anchor)
{
    size_t pixel = (size_t)image * (size_t)l->h * (size_t)l->w + (size_t)(i / nratios);

    return pixel * (size_t)stride + (size_t)(i % nratios * per_anchor);
}

struct rpn_cost {
    float cls, box;
};

/* z: its logit, d: its four deltas. truth NULL: negative. dz NULL: no gradients; else 1 and, with a truth, 4 are
 * written. */
KERNEL_FN struct rpn_cost rpn_cost(float *dz, float *dd, float z, const float *d, struct box anchor, const float *truth, float beta,
                                   float scale)
{
    const float ones[4] = { 1.0f, 1.0f, 1.0f, 1.0f };
    struct rpn_cost c = { 0.0f, 0.0f };
    float y = truth ? 1.0f : 0.0f, target[4];

    c.cls = math_bce(z, y);
    if (dz)
        *dz = scale * (math_sigmoid(z) - y);
    if (!truth)
        return c;
    delta_encode(target, anchor, box_at(truth), ones);
    c.box = delta_loss(dd, d, target, beta, scale);
    return c;
}

/* ---- proposals ---- */

/* Decodes and cuts a box. Returns 1 if the box stays; *ret_broken: its numbers are not finite. */
KERNEL_FN int rpn_proposal(struct box *ret, int *ret_broken, const struct rpn_selection *sel, struct box anchor, float score,
                           const float *d, float h, float w)
{
    const float ones[4] = { 1.0f, 1.0f, 1.0f, 1.0f };
    struct box b = delta_decode(anchor, d, ones);
    float bw, bh;

    *ret_broken = !(box_finite(b) && score - score == 0.0f);
    *ret = b = box_clip(b, h, w);
    bw = b.x2 - b.x1;
    bh = b.y2 - b.y1;
    if (*ret_broken)
        return 0;
    return sel->keep_min ? bw >= sel->min_side && bh >= sel->min_side : bw > sel->min_side && bh > sel->min_side;
}
