#include "worker/eval/boxes/coco_match.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "proto/grow.h"
#include "worker/eval/boxes/pr_curve.h"

/* Bounds are inclusive, in square pixels. */
static const double area_range[COCO_AREAS][2] = { { 0, 1e10 }, { 0, 32 * 32 }, { 32 * 32, 96 * 96 }, { 96 * 96, 1e10 } };

struct coco_matcher {
    const struct truth *given;
    const struct truth **truths; /* sorted by image and class, otherwise in the given order */
    size_t ntruths;
    int counted; /* limit of detections of an image and class */
    struct coco_verdict *verdicts;
    size_t nverdicts, room;
    const struct detection **dets; /* of one image, sorted by detection_compare() */
    size_t dets_room;
    /* Scratch of one image and class. */
    double *area, *overlap; /* [detections]; [detections][truths] */
    size_t area_room, overlap_room;
    /* [truths of the largest group]. */
    const struct truth **order; /* truths that count first */
    int *column;                /* column of order[i] in overlap */
    bool *taken, *ignored;
};

/* linspace(.5, .95, 10) as the reference computes it. */
static double threshold(int t)
{
    return t == COCO_THRESHOLDS - 1 ? 0.95 : t * ((0.95 - 0.5) / (COCO_THRESHOLDS - 1)) + 0.5;
}

static bool in_range(double area, int a)
{
    return area >= area_range[a][0] && area <= area_range[a][1];
}

bool coco_counts(const struct truth *t, int area)
{
    return !t->crowd && in_range(t->area, area);
}

static int compare_truths(const void *a, const void *b)
{
    const struct truth *p = *(const struct truth *const *)a, *q = *(const struct truth *const *)b;

    if (p->image != q->image)
        return p->image < q->image ? -1 : 1;
    if (p->cls != q->cls)
        return p->cls < q->cls ? -1 : 1;
    return (p > q) - (p < q);
}

/* Puts the truths that count in area range a first, and otherwise keeps the order. */
static void order_truths(struct coco_matcher *s, const struct truth *const *truths, int n, int a)
{
    int to = 0;

    for (int pass = 0; pass < 2; pass++)
        for (int g = 0; g < n; g++) {
            bool ignored = !coco_counts(truths[g], a);

            if (ignored != (pass == 1))
                continue;
            s->order[to] = truths[g];
            s->column[to] = g;
            s->ignored[to++] = ignored;
        }
}

/* Returns the truth with the largest overlap >= least that is free or a crowd. A truth that counts is preferred to any
 * that is ignored. -1: no truth fits. */
static int best_truth(const struct coco_matcher *s, const double *overlap, int n, double least)
{
    int best = -1;

    for (int g = 0; g < n; g++) {
        if (s->taken[g] && !s->order[g]->crowd)
            continue;
        if (best >= 0 && !s->ignored[best] && s->ignored[g])
            break;
        if (overlap[s->column[g]] < least)
            continue;
        least = overlap[s->column[g]];
        best = g;
    }
    return best;
}

static void match(struct coco_matcher *s, struct coco_verdict *v, int ndets, int ntruths, int a, int t)
{
    memset(s->taken, 0, (size_t)ntruths * sizeof *s->taken);
    for (int d = 0; d < ndets; d++) {
        int g = best_truth(s, s->overlap + (size_t)d * (size_t)ntruths, ntruths, threshold(t));

        if (g >= 0) {
            s->taken[g] = true;
            v[d].flag[a][t] = s->ignored[g] ? PR_IGNORED : PR_TP;
        } else {
            v[d].flag[a][t] = in_range(s->area[d], a) ? PR_FP : PR_IGNORED;
        }
    }
}

/* `by` numbers the detections from dets[0]. */
struct measured {
    const struct detection *dets;
    const struct coco_measure *by;
};

static double area_of(const struct measured *m, const struct detection *d)
{
    return m->by ? m->by->area(m->by->of, (size_t)(d - m->dets)) : d->box[2] * d->box[3];
}

static double overlap_of(const struct coco_matcher *s, const struct measured *m, const struct detection *d, const struct truth *t)
{
    return m->by ? m->by->overlap(m->by->of, (size_t)(d - m->dets), (size_t)(t - s->given)) : box_overlap(d->box, t->box, t->crowd);
}

/* Matches one image and class. Returns false if memory is out. */
static bool match_group(struct coco_matcher *s, const struct measured *m, const struct detection *const *dets, size_t found,
                        const struct truth *const *truths, int ntruths)
{
    int ndets = found < (size_t)s->counted ? (int)found : s->counted;
    struct coco_verdict *v = s->verdicts + s->nverdicts;

    if (!GROW(s->area, s->area_room, ndets) || !GROW(s->overlap, s->overlap_room, (size_t)ndets * (size_t)ntruths))
        return false;

    for (int d = 0; d < ndets; d++) {
        memset(&v[d], 0, sizeof v[d]); /* padding is sent to other ranks too */
        v[d].image = dets[d]->image;
        v[d].cls = dets[d]->cls;
        v[d].rank = d;
        v[d].score = dets[d]->score;
        s->area[d] = area_of(m, dets[d]);
        for (int g = 0; g < ntruths; g++)
            s->overlap[(size_t)d * (size_t)ntruths + (size_t)g] = overlap_of(s, m, dets[d], truths[g]);
    }
    for (int a = 0; a < COCO_AREAS; a++) {
        order_truths(s, truths, ntruths, a);
        for (int t = 0; t < COCO_THRESHOLDS; t++)
            match(s, v, ndets, ntruths, a, t);
    }
    s->nverdicts += (size_t)ndets;
    return true;
}

/* The first truth not before (image, cls). */
static size_t find_truths(const struct coco_matcher *s, int32_t image, int32_t cls)
{
    size_t lo = 0, hi = s->ntruths;

    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        const struct truth *t = s->truths[mid];

        if (t->image < image || (t->image == image && t->cls < cls))
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static size_t group_end(const struct coco_matcher *s, size_t g)
{
    size_t end = g;

    while (end < s->ntruths && s->truths[end]->image == s->truths[g]->image && s->truths[end]->cls == s->truths[g]->cls)
        end++;
    return end;
}

/* Never less than 1. */
static size_t largest_group(const struct coco_matcher *s)
{
    size_t largest = 1, end;

    for (size_t g = 0; g < s->ntruths; g = end) {
        end = group_end(s, g);
        if (end - g > largest)
            largest = end - g;
    }
    return largest;
}

static bool sort_truths(struct coco_matcher *s, const struct truth *truths)
{
    s->truths = malloc((s->ntruths + 1) * sizeof *s->truths);
    if (!s->truths)
        return false;
    for (size_t i = 0; i < s->ntruths; i++)
        s->truths[i] = &truths[i];
    qsort(s->truths, s->ntruths, sizeof *s->truths, compare_truths);
    return true;
}

int coco_matcher_open(const struct truth *truths, size_t ntruths, int counted, struct coco_matcher **ret, struct err *err)
{
    struct coco_matcher *s = calloc(1, sizeof *s);
    size_t room;

    if (s) {
        s->given = truths;
        s->ntruths = ntruths;
        s->counted = counted;
    }
    if (s && sort_truths(s, truths)) {
        room = largest_group(s);
        s->order = malloc(room * sizeof *s->order);
        s->column = malloc(room * sizeof *s->column);
        s->taken = malloc(room * sizeof *s->taken);
        s->ignored = malloc(room * sizeof *s->ignored);
    }
    if (!s || !s->order || !s->column || !s->taken || !s->ignored) {
        coco_matcher_close(s);
        return err_set(err, -ENOMEM, "COCO evaluation: out of memory");
    }
    *ret = s;
    return 0;
}

void coco_matcher_close(struct coco_matcher *s)
{
    if (!s)
        return;
    free(s->truths);
    free(s->verdicts);
    free(s->dets);
    free(s->area);
    free(s->overlap);
    free(s->order);
    free(s->column);
    free(s->taken);
    free(s->ignored);
    free(s);
}

static int compare_detections(const void *a, const void *b)
{
    const struct detection *p = *(const struct detection *const *)a, *q = *(const struct detection *const *)b;
    int order = detection_compare(p, q);

    return order ? order : (p > q) - (p < q);
}

int coco_match(struct coco_matcher *s, const struct detection *dets, size_t ndets, const struct coco_measure *by, struct err *err)
{
    const struct measured m = { dets, by };

    if (!GROW(s->verdicts, s->room, s->nverdicts + ndets) || !GROW(s->dets, s->dets_room, ndets))
        return err_set(err, -ENOMEM, "COCO evaluation: out of memory");
    for (size_t i = 0; i < ndets; i++)
        s->dets[i] = &dets[i];
    if (ndets > 0)
        qsort(s->dets, ndets, sizeof *s->dets, compare_detections);
    for (size_t d = 0, end; d < ndets; d = end) {
        size_t g = find_truths(s, s->dets[d]->image, s->dets[d]->cls), gend = g;

        for (end = d; end < ndets && s->dets[end]->cls == s->dets[d]->cls;)
            end++;
        if (g < s->ntruths && s->truths[g]->image == s->dets[d]->image && s->truths[g]->cls == s->dets[d]->cls)
            gend = group_end(s, g);
        if (!match_group(s, &m, s->dets + d, end - d, s->truths + g, (int)(gend - g)))
            return err_set(err, -ENOMEM, "COCO evaluation: out of memory");
    }
    return 0;
}

const struct truth *const *coco_truths_of(const struct coco_matcher *s, int32_t image, size_t *ret_n)
{
    size_t first = find_truths(s, image, INT32_MIN), end = first;

    while (end < s->ntruths && s->truths[end]->image == image)
        end++;
    *ret_n = end - first;
    return s->truths + first;
}

const struct coco_verdict *coco_verdicts(const struct coco_matcher *s, size_t *ret_n)
{
    *ret_n = s->nverdicts;
    return s->verdicts;
}
