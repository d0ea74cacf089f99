/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/eval/boxes/eval_scores.h - scores of a list of
 * detections: its pictures are matched one after the other, the last one first, because the order must not matter. */
#pragma once
#include <stdlib.h>
#include <string.h>

#include "worker/eval/boxes/coco_ap.h"
#include "worker/eval/boxes/voc_ap.h"

/* Sorted by picture; the caller frees. */
static inline struct detection *by_picture(const struct detection *dets, size_t n)
{
    struct detection *all = malloc((n + 1) * sizeof *all);

    assert_non_null(all);
    for (size_t i = 0; i < n; i++)
        all[i] = dets[i];
    qsort(all, n, sizeof *all, detection_compare);
    return all;
}

/* The first index of the picture that ends at `end`. */
static inline size_t picture_begin(const struct detection *all, size_t end)
{
    size_t from = end;

    while (from > 0 && all[from - 1].image == all[end - 1].image)
        from--;
    return from;
}

/* counted: detections of an image and class. */
static inline struct coco_ap coco_scores_of(const struct detection *dets, size_t n, const struct truth *truths, size_t ntruths,
                                            int nclasses, int counted)
{
    struct detection *all = by_picture(dets, n);
    struct coco_verdict *verdicts;
    struct coco_matcher *m;
    struct coco_ap ap;
    struct err err;
    size_t nverdicts;

    assert_int_equal(coco_matcher_open(truths, ntruths, counted, &m, &err), 0);
    for (size_t end = n, from; end > 0; end = from) {
        from = picture_begin(all, end);
        assert_int_equal(coco_match(m, all + from, end - from, NULL, &err), 0);
    }
    coco_verdicts(m, &nverdicts);
    verdicts = calloc(nverdicts + 1, sizeof *verdicts);
    assert_non_null(verdicts);
    if (nverdicts > 0)
        memcpy(verdicts, coco_verdicts(m, &nverdicts), nverdicts * sizeof *verdicts);
    assert_int_equal(coco_ap_score(verdicts, nverdicts, truths, ntruths, nclasses, &ap, &err), 0);
    coco_matcher_close(m);
    free(verdicts);
    free(all);
    return ap;
}

static inline struct coco_ap coco_scores(const struct detection *dets, size_t n, const struct truth *truths, size_t ntruths, int nclasses)
{
    return coco_scores_of(dets, n, truths, ntruths, nclasses, COCO_COUNTED);
}

static inline struct voc_ap voc_scores(const struct detection *dets, size_t n, const struct truth *truths, size_t ntruths, int nclasses)
{
    struct detection *all = by_picture(dets, n);
    struct voc_verdict *verdicts;
    struct voc_matcher *m;
    struct voc_ap ap;
    struct err err;
    size_t nverdicts;

    assert_int_equal(voc_matcher_open(truths, ntruths, 0.5, &m, &err), 0);
    for (size_t end = n, from; end > 0; end = from) {
        from = picture_begin(all, end);
        assert_int_equal(voc_match(m, all + from, end - from, &err), 0);
    }
    voc_verdicts(m, &nverdicts);
    verdicts = calloc(nverdicts + 1, sizeof *verdicts);
    assert_non_null(verdicts);
    if (nverdicts > 0)
        memcpy(verdicts, voc_verdicts(m, &nverdicts), nverdicts * sizeof *verdicts);
    assert_int_equal(voc_ap_score(verdicts, nverdicts, truths, ntruths, nclasses, PR_ALL_POINTS, &ap, &err), 0);
    voc_matcher_close(m);
    free(verdicts);
    free(all);
    return ap;
}
