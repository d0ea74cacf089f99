#include "worker/cpu/overlap.h" /* SPDX-License-Identifier: Apache-2.0 */

#include "worker/kernels/rpn.h"

struct overlap_boxes overlap_boxes(float *memory, size_t n)
{
    return (struct overlap_boxes){ memory, memory + n, memory + 2 * n, memory + 3 * n, memory + 4 * n };
}

void overlap_set(const struct overlap_boxes *b, size_t i, struct box box)
{
    b->x1[i] = box.x1;
    b->y1[i] = box.y1;
    b->x2[i] = box.x2;
    b->y2[i] = box.y2;
    b->area[i] = box_area(box);
}

/* Computes rpn_iou() without a branch. */
static inline float iou_at(const struct overlap_boxes *b, size_t i, struct box t, float area)
{
    float w = box_min(t.x2, b->x2[i]) - box_max(t.x1, b->x1[i]), h = box_min(t.y2, b->y2[i]) - box_max(t.y1, b->y1[i]);
    float cw = w > 0.0f ? w : 0.0f, ch = h > 0.0f ? h : 0.0f, inter = cw * ch;
    float iou = inter / (area + b->area[i] - inter);

    return inter > 0.0f ? iou : 0.0f;
}

float overlap_match(const struct overlap_boxes *b, size_t from, size_t to, struct box truth, int32_t t, float *restrict best,
                    int32_t *restrict arg)
{
    float area = box_area(truth);
    int32_t peak = 0; /* as bits, which have the same order for numbers >= 0 */

    for (size_t i = from; i < to; i++) {
        float iou = iou_at(b, i, truth, area);
        int32_t bits = (int32_t)float_bits(iou), more = iou > best[i];

        peak = bits > peak ? bits : peak;
        best[i] = more ? iou : best[i];
        arg[i] = more ? t : arg[i];
    }
    return bits_float((uint32_t)peak);
}

void overlap_equal(const struct overlap_boxes *b, size_t from, size_t to, struct box truth, float peak, int32_t *restrict mark)
{
    float area = box_area(truth);

    for (size_t i = from; i < to; i++)
        mark[i] |= iou_at(b, i, truth, area) == peak;
}

static void suppress_after(const struct overlap_boxes *b, size_t kept, size_t n, int32_t *restrict gone, float thresh)
{
    struct box k = { b->x1[kept], b->y1[kept], b->x2[kept], b->y2[kept] };
    float area = b->area[kept];

    for (size_t j = kept + 1; j < n; j++) {
        struct box o = { b->x1[j], b->y1[j], b->x2[j], b->y2[j] };

        gone[j] |= box_suppresses(k, area, o, b->area[j], thresh);
    }
}

size_t overlap_suppress(const struct overlap_boxes *b, size_t n, int32_t *gone, float thresh, size_t most, int32_t *keep)
{
    size_t kept = 0;

    for (size_t i = 0; i < n && kept < most; i++) {
        if (gone[i])
            continue;
        keep[kept++] = (int32_t)i;
        suppress_after(b, i, n, gone, thresh);
    }
    return kept;
}
