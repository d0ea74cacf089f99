/* SPDX-License-Identifier: Apache-2.0 */ /* worker/kernels/setloss.h - detection as a set: first boxes, boxes moved by
 * deltas, costs of matching, losses and gradients. Specs sparse_rcnn sections 2.2, 3.7, 4.1, 4.2, 5, 6. All in fp32, in
 * one order, without FMA: matches depend on the last bit. */
#pragma once
#include "worker/ops/set.h"
#include "worker/kernels/act.h"
#include "worker/kernels/delta.h"
#include "worker/kernels/reduce.h"

/* The picture's side along coordinate c of x1 y1 x2 y2, or of cx cy w h. size: height, width. */
KERNEL_FN float set_side(const int32_t *size, int c)
{
    return (float)size[1 - c % 2];
}

KERNEL_FN float *set_row(const struct tensor *t, size_t r)
{
    return (float *)t->data + r * (size_t)t->stride;
}

/* ---- proposals. A row has 4 + d numbers: its box and its features ---- */

/* Those of a shard. Backward: box and q are the gradients, de and df are written (NULL: not wanted). */
struct set_first {
    const float *boxes, *features; /* as ops/set.h has them */
    const int32_t *size;
    float *box, *de, *df;
    struct tensor q;
    float de_beta, df_beta;
    int n, proposals;
};

/* Number i of the shard's rows. */
KERNEL_FN void set_first_number(const struct set_first *s, size_t i)
{
    size_t r = i / (size_t)(4 + s->q.c), p = r % (size_t)s->proposals;
    int c = (int)(i % (size_t)(4 + s->q.c)), axis = c % 2;
    const float *e = s->boxes + 4 * p;

    if (c >= 4)
        set_row(&s->q, r)[c - 4] = s->features[p * (size_t)s->q.c + (size_t)(c - 4)];
    else
        s->box[4 * r + (size_t)c] =
            (c < 2 ? e[axis] - 0.5f * e[axis + 2] : e[axis] + 0.5f * e[axis + 2]) * set_side(s->size + r / (size_t)s->proposals * 2, c);
}

/* Number i of the gradients of all proposals. */
KERNEL_FN void set_first_back(const struct set_first *s, size_t i)
{
    size_t p = i / (size_t)(4 + s->q.c);
    int c = (int)(i % (size_t)(4 + s->q.c));
    float *dst = c < 4 ? s->de : s->df, sum = 0.0f;

    if (!dst)
        return;
    dst += c < 4 ? 4 * p + (size_t)c : p * (size_t)s->q.c + (size_t)(c - 4);
    for (int image = 0; image < s->n; image++) {
        size_t r = (size_t)image * (size_t)s->proposals + p;
        const float *g = s->box + 4 * r + c % 2;

        sum += c >= 4 ? set_row(&s->q, r)[c - 4] : set_side(s->size + 2 * image, c) * (c < 2 ? g[0] + g[2] : 0.5f * (g[2] - g[0]));
    }
    *dst = act_store(c < 4 ? s->de_beta : s->df_beta, dst, sum);
}

/* ---- deltas ---- */

/* The logarithm of a side's growth, within the head's limits. NaN stays NaN. */
KERNEL_FN float set_growth(const struct set_head *h, float d)
{
    d = d > h->clamp ? h->clamp : d;
    return h->floor && d < -h->clamp ? -h->clamp : d;
}

KERNEL_FN void set_decode(float *ret, const struct set_head *h, const float *box, const float *d)
{
    const float weights[4] = { 2.0f, 2.0f, 1.0f, 1.0f }, within[4] = { d[0], d[1], set_growth(h, d[2]), set_growth(h, d[3]) };
    struct box b = delta_decode_within(box_at(box), within, weights, h->clamp);

    memcpy(ret, &b, sizeof b);
}

/* From the gradient g of a moved box: those of its deltas and of the box before (each NULL: not wanted). */
KERNEL_FN void set_decode_back(float *dd, float *dbox, const struct set_head *h, const float *box, const float *d, const float *g)
{
    for (int a = 0; a < 2; a++) {
        float side = box[a + 2] - box[a], at = g[a] + g[a + 2], wide = 0.5f * (g[a + 2] - g[a]);
        float log_growth = set_growth(h, d[a + 2]), growth = math_exp(log_growth), both = 0.5f * (at * d[a]) + wide * growth;

        if (dd) {
            dd[a] = 0.5f * (at * side);
            dd[a + 2] = log_growth == d[a + 2] ? wide * side * growth : 0.0f;
        }
        if (dbox) {
            dbox[a] = 0.5f * at - both;
            dbox[a + 2] = 0.5f * at + both;
        }
    }
}

/* ---- boxes against boxes ---- */

/* Slope of max(a, b) by a; PyTorch's rule where both are equal. */
KERNEL_FN float set_share(float a, float b)
{
    return a > b ? 1.0f : a < b ? 0.0f : 0.5f;
}

/* Generalised IoU (Rezatofighi et al. 2019, arXiv:1902.09630) of a prediction p and a truth t that has an area. grad
 * (or NULL): adds scale times the gradient of 1 - GIoU by p. */
KERNEL_FN float set_giou(float *grad, float scale, const float *p, const float *t)
{
    float side[2], in[2], hull[2], inter, both, c, by_inter, by_area, by_hull;

    for (int a = 0; a < 2; a++) {
        side[a] = p[a + 2] - p[a];
        in[a] = box_min(p[a + 2], t[a + 2]) - box_max(p[a], t[a]);
        hull[a] = box_max(p[a + 2], t[a + 2]) - box_min(p[a], t[a]);
    }
    inter = box_max(in[0], 0.0f) * box_max(in[1], 0.0f);
    both = side[0] * side[1] + (t[2] - t[0]) * (t[3] - t[1]) - inter;
    c = hull[0] * hull[1];
    by_area = inter / both / both - 1.0f / c;
    by_inter = -1.0f / both - by_area;
    by_hull = both / c / c;
    for (int a = 0; grad && a < 2; a++) {
        float cut = in[a] >= 0.0f ? by_inter * box_max(in[1 - a], 0.0f) : 0.0f, area = by_area * side[1 - a], wide = by_hull * hull[1 - a];

        grad[a] -= scale * (cut * set_share(p[a], t[a]) + area + wide * set_share(t[a], p[a]));
        grad[a + 2] += scale * (cut * set_share(t[a + 2], p[a + 2]) + area + wide * set_share(p[a + 2], t[a + 2]));
    }
    return inter / both - (c - both) / c;
}

/* ---- costs of matching, in units of 2^-24 ---- */

#define SET_COST_MOST ((int64_t)1 << 48) /* no cost is larger */

KERNEL_FN float set_power(float x, float gamma)
{
    return gamma == 2.0f ? x * x : (float)math_pow64((double)x, (double)gamma);
}

/* z: the logit of the truth's class. */
KERNEL_FN float set_class_cost(const struct set_head *h, float z)
{
    float p = math_sigmoid(z), q = 1.0f - p;

    return h->alpha * set_power(q, h->gamma) * -math_log(p + 1e-8f) - (1.0f - h->alpha) * set_power(p, h->gamma) * -math_log(q + 1e-8f);
}

/* z [classes]. A truth of an unknown class has no logit: its box alone counts. */
KERNEL_FN float set_cost(const struct set_head *h, const float *z, int32_t cls, const float *box, const float *truth, const int32_t *size)
{
    float l1 = 0.0f, by_class = cls >= 0 && cls < h->classes ? set_class_cost(h, z[cls]) : 0.0f;

    for (int c = 0; c < 4; c++)
        l1 += fabsf(box[c] / set_side(size, c) - truth[c] / set_side(size, c));
    return h->l1_gain * l1 + h->cls_gain * by_class + h->giou_gain * -set_giou(NULL, 0.0f, box, truth);
}

/* Costs of a prediction against `count` truths from row `from` on, `step` apart. Returns 1 if it is broken (struct
 * set_match): all its costs then are the largest. Before rounding, which is to even, whole costs are exact. */
KERNEL_FN int set_costs(int64_t *cost, size_t step, const struct set_head *h, const float *z, const float *box,
                        const struct rcnn_truth *truth, int from, int count, const int32_t *size)
{
    const float most = 16777216.0f; /* 2^24 */
    float x = box[2] - box[0], y = box[3] - box[1];
    int broken = !(x >= 0.0f && x - x == 0.0f && y >= 0.0f && y - y == 0.0f);

    for (int k = 0; k < h->classes; k++)
        broken |= z[k] - z[k] != 0.0f;
    for (int j = from; j < from + count && !broken; j++) {
        float c = set_cost(h, z, truth->cls[j], box, truth->box + (size_t)j * 4, size);

        broken = c - c != 0.0f;
        c = c > most ? most : c < -most ? -most : c;
        cost[(size_t)(j - from) * step] = broken ? 0 : (int64_t)rint((double)c * (double)most);
    }
    for (int j = 0; j < count && broken; j++)
        cost[(size_t)j * step] = SET_COST_MOST;
    return broken;
}

/* ---- losses ---- */

/* The focal loss (Lin et al. 2017, arXiv:1708.02002) of a logit z; y: it should be 1. Finite for every finite z. */
KERNEL_FN float set_focal(float *ret_slope, const struct set_head *h, float z, int y)
{
    float e = math_exp(-fabsf(z)), s = 1.0f / (1.0f + e), t = y ? z : -z; /* right is the sigmoid of t */
    float right = t < 0.0f ? e * s : s, wrong = t < 0.0f ? s : e * s, loss = (t < 0.0f ? -t : 0.0f) + math_log1p(e);
    float factor = (y ? h->alpha : 1.0f - h->alpha) * set_power(wrong, h->gamma), slope = factor * (h->gamma * right * loss + wrong);

    *ret_slope = y ? -slope : slope;
    return factor * loss;
}

/* A stage of one shard. */
struct set_view {
    struct rcnn_truth truth;
    const int32_t *size;
    struct set_match match; /* of the stage */
    const float *base, *box;
    float *dbase;               /* NULL: not wanted */
    struct tensor z, d, dz, dd; /* data NULL: not wanted */
};

/* Host. The arguments that matching and losses share. */
static inline struct set_view set_view(const struct set_head *h, int stage, const struct rcnn_images *images,
                                       const struct rcnn_truth *truth, const struct set_match *match, const struct tensor *z,
                                       const float *box)
{
    size_t at = (size_t)stage * (size_t)images->n;
    struct set_view s;

    memset(&s, 0, sizeof s);
    s.truth = *truth;
    s.size = images->size;
    s.match.truth = match->truth + at * (size_t)h->proposals;
    s.match.broken = match->broken + at;
    s.z = *z;
    s.box = box;
    return s;
}

/* The loss of class k of row r, with its weight. */
KERNEL_FN double set_class_loss(const struct set_view *s, const struct set_head *h, size_t r, int k, float grad_scale)
{
    int t = s->match.truth[r];
    float weight = h->class_weight ? h->class_weight[k] : 1.0f, slope, loss;

    loss = set_focal(&slope, h, set_row(&s->z, r)[k], t >= 0 && s->truth.cls[t] == k);
    if (s->dz.data)
        set_row(&s->dz, r)[k] = grad_scale * h->cls_gain * (weight * slope);
    return (double)(weight * loss);
}

/* All other terms of row r, with its gradients. The rows' sums are the terms of the image. */
KERNEL_FN void set_box_loss(double *row, const struct set_view *s, const struct set_head *h, size_t r, float grad_scale)
{
    int image = (int)(r / (size_t)h->proposals), p = (int)(r % (size_t)h->proposals), t = s->match.truth[r];
    const float *box = s->box + 4 * r, *truth = s->truth.box + (t >= 0 ? 4 * (size_t)t : 0);
    float g[4] = { 0.0f, 0.0f, 0.0f, 0.0f }, l1 = 0.0f;

    for (int c = 0; c < 4 && t >= 0; c++) {
        float side = set_side(s->size + 2 * image, c), e = box[c] - truth[c];

        l1 += fabsf(e) / side;
        g[c] = grad_scale * h->l1_gain * (smooth_l1_slope(e, 0.0f) / side);
    }
    row[SET_L1] = (double)l1;
    row[SET_GIOU] = t >= 0 ? (double)(1.0f - set_giou(g, grad_scale * h->giou_gain, box, truth)) : 0.0;
    row[SET_PAIRS] = t >= 0 ? 1.0 : 0.0;
    row[SET_BROKEN] = p == 0 ? (double)s->match.broken[image] : 0.0;
    set_decode_back(s->dd.data ? set_row(&s->dd, r) : NULL, s->dbase ? s->dbase + 4 * r : NULL, h, s->base + 4 * r, set_row(&s->d, r), g);
}
