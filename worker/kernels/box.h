/* SPDX-License-Identifier: Apache-2.0 */ /* worker/kernels/box.h - intersection over union. No "+ 1 pixel"; specs
 * yolov3 section 4.1. */
#pragma once
#include "worker/kernels/kernel.h"

KERNEL_FN float box_min(float a, float b)
{
    return a < b ? a : b;
}

KERNEL_FN float box_max(float a, float b)
{
    return a > b ? a : b;
}

/* IoU of two boxes with a common centre. */
KERNEL_FN float box_shape_iou(float w1, float h1, float w2, float h2)
{
    float inter = box_min(w1, w2) * box_min(h1, h2);

    return inter / (w1 * h1 + w2 * h2 - inter);
}

struct box {
    float x1, y1, x2, y2;
};

/* A box from its centre and size. */
KERNEL_FN struct box box_of_centre(float x, float y, float w, float h)
{
    struct box b;

    b.x1 = x - 0.5f * w;
    b.y1 = y - 0.5f * h;
    b.x2 = x + 0.5f * w;
    b.y2 = y + 0.5f * h;
    return b;
}

KERNEL_FN float box_intersection(struct box a, struct box b)
{
    float w = box_min(a.x2, b.x2) - box_max(a.x1, b.x1), h = box_min(a.y2, b.y2) - box_max(a.y1, b.y1);

    return w > 0.0f && h > 0.0f ? w * h : 0.0f;
}

KERNEL_FN float box_area(struct box b)
{
    return (b.x2 - b.x1) * (b.y2 - b.y1);
}

/* 0 if the boxes do not overlap. */
KERNEL_FN float box_iou(struct box a, struct box b)
{
    float inter = box_intersection(a, b);

    return inter > 0.0f ? inter / (box_area(a) + box_area(b) - inter) : 0.0f;
}
