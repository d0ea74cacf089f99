/* SPDX-License-Identifier: Apache-2.0 */ /* worker/kernels/delta.h - boxes as deltas of other boxes, and the loss of a
 * deviation. Specs rcnn sections 3.5, 3.6. All in fp32, in one order, without FMA: labels and proposals depend on the
 * last bit. */
#pragma once
#include "worker/kernels/box.h"
#include "worker/kernels/math.h"

#define DELTA_MAX 4.135166556742356f /* ln(1000 / 16): a side grows by no more */

KERNEL_FN struct box box_at(const float *p)
{
    struct box b;

    b.x1 = p[0];
    b.y1 = p[1];
    b.x2 = p[2];
    b.y2 = p[3];
    return b;
}

/* The deltas that decode from `from` to `to`; the sides of `from` are positive. weights: x y w h. */
KERNEL_FN void delta_encode(float ret[4], struct box from, struct box to, const float *weights)
{
    float w = from.x2 - from.x1, h = from.y2 - from.y1, tw = to.x2 - to.x1, th = to.y2 - to.y1;
    float x = from.x1 + 0.5f * w, y = from.y1 + 0.5f * h;

    ret[0] = weights[0] * (to.x1 + 0.5f * tw - x) / w;
    ret[1] = weights[1] * (to.y1 + 0.5f * th - y) / h;
    ret[2] = weights[2] * math_log(tw / w);
    ret[3] = weights[3] * math_log(th / h);
}

/* NaN in d gives NaN. most: the largest logarithm of the growth of a side. */
KERNEL_FN struct box delta_decode_within(struct box from, const float *d, const float *weights, float most)
{
    float w = from.x2 - from.x1, h = from.y2 - from.y1;
    float dw = d[2] / weights[2], dh = d[3] / weights[3], x, y;

    x = d[0] / weights[0] * w + (from.x1 + 0.5f * w);
    y = d[1] / weights[1] * h + (from.y1 + 0.5f * h);
    dw = dw > most ? most : dw;
    dh = dh > most ? most : dh;
    return box_of_centre(x, y, w * math_exp(dw), h * math_exp(dh));
}

KERNEL_FN struct box delta_decode(struct box from, const float *d, const float *weights)
{
    return delta_decode_within(from, d, weights, DELTA_MAX);
}

KERNEL_FN int box_finite(struct box b)
{
    return b.x1 - b.x1 == 0.0f && b.y1 - b.y1 == 0.0f && b.x2 - b.x2 == 0.0f && b.y2 - b.y2 == 0.0f;
}

/* Cuts a box to a picture of h x w. */
KERNEL_FN struct box box_clip(struct box b, float h, float w)
{
    b.x1 = box_min(box_max(b.x1, 0.0f), w);
    b.y1 = box_min(box_max(b.y1, 0.0f), h);
    b.x2 = box_min(box_max(b.x2, 0.0f), w);
    b.y2 = box_min(box_max(b.y2, 0.0f), h);
    return b;
}

/* Suppression: does a kept box remove another one? Boxes without area remove nothing. Specs determinism section 3.7 has
 * inter > thresh * union. This code compares the quotient, because torchvision's kernels, which detectron2 calls too,
 * compare it. The quotient is rounded once by IEEE's rules on every device (nvcc divides so unless told otherwise; no
 * product is contracted into a sum). The two rules differ by rounding near the threshold, and there the same boxes must
 * stay as in torchvision. */
KERNEL_FN int box_suppresses(struct box a, float area_a, struct box b, float area_b, float thresh)
{
    float w = box_max(box_min(a.x2, b.x2) - box_max(a.x1, b.x1), 0.0f), h = box_max(box_min(a.y2, b.y2) - box_max(a.y1, b.y1), 0.0f);
    float inter = w * h;

    return inter / (area_a + area_b - inter) > thresh;
}

/* Smooth L1 of e, and its slope. beta 0: L1, of slope 0 at 0. Source: Girshick 2015, Fast R-CNN, arXiv:1504.08083,
 * equations 2 and 3. */
KERNEL_FN float smooth_l1(float e, float beta)
{
    float a = fabsf(e);

    return a < beta ? 0.5f * e * e / beta : a - 0.5f * beta;
}

KERNEL_FN float smooth_l1_slope(float e, float beta)
{
    if (fabsf(e) < beta)
        return e / beta;
    return e > 0.0f ? 1.0f : e < 0.0f ? -1.0f : e; /* 0 and NaN stay themselves */
}

/* Loss of four deltas against their targets: returns the sum, writes scale times the slopes. */
KERNEL_FN float delta_loss(float *grad, const float *d, const float *target, float beta, float scale)
{
    float sum = 0.0f;

    for (int c = 0; c < 4; c++) {
        float e = d[c] - target[c];

        sum += smooth_l1(e, beta);
        if (grad)
            grad[c] = scale * smooth_l1_slope(e, beta);
    }
    return sum;
}

/* sum / n; a mean over nothing is 0. */
KERNEL_FN double mean_of(double sum, double n)
{
    return n > 0.0 ? sum / n : 0.0;
}
