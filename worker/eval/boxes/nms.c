#include "worker/eval/boxes/nms.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <stdbool.h>
#include <stdlib.h>

#include "worker/kernels/box.h"

static int by_score(const void *pa, const void *pb)
{
    const struct candidate *a = pa, *b = pb;

    if (a->score != b->score)
        return a->score > b->score ? -1 : 1;
    if (a->slot != b->slot)
        return a->slot < b->slot ? -1 : 1;
    return (a->cls > b->cls) - (a->cls < b->cls);
}

static size_t drop_nan(struct candidate *cand, size_t count)
{
    size_t n = 0;

    for (size_t i = 0; i < count; i++)
        if (cand[i].score == cand[i].score)
            cand[n++] = cand[i];
    return n;
}

static struct box box_of(const struct candidate *c)
{
    return (struct box){ c->x1, c->y1, c->x2, c->y2 };
}

/* Compares products instead of a quotient: no division, and boxes without area do not overlap. */
static bool overlaps(const struct candidate *a, const struct candidate *b, float thresh)
{
    struct box p = box_of(a), q = box_of(b);
    float inter = box_intersection(p, q);

    return inter > thresh * (box_area(p) + box_area(q) - inter);
}

static bool suppressed(const struct candidate *kept, size_t nkept, const struct candidate *c, float thresh)
{
    for (size_t i = 0; i < nkept; i++)
        if (kept[i].cls == c->cls && overlaps(&kept[i], c, thresh))
            return true;
    return false;
}

size_t nms(struct candidate *cand, size_t count, float iou_thresh, int max_det)
{
    size_t kept = 0;

    count = drop_nan(cand, count);
    if (count > 1)
        qsort(cand, count, sizeof(*cand), by_score);
    for (size_t i = 0; i < count && max_det > 0 && kept < (size_t)max_det; i++)
        if (!suppressed(cand, kept, &cand[i], iou_thresh))
            cand[kept++] = cand[i];
    return kept;
}
