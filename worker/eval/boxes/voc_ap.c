#include "worker/eval/boxes/voc_ap.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "proto/err.h"
#include "proto/grow.h"

struct voc_matcher {
    const struct truth **truths; /* by class, then image, otherwise in the given order */
    size_t ntruths;
    bool *taken; /* for each of truths */
    double iou;
    struct detection *dets; /* of one image, sorted by detection_compare() */
    size_t dets_room;
    struct voc_verdict *verdicts;
    size_t nverdicts, room;
};

static int compare_verdicts(const void *a, const void *b)
{
    const struct voc_verdict *p = a, *q = b;

    if (p->cls != q->cls)
        return p->cls < q->cls ? -1 : 1;
    if (p->score != q->score)
        return p->score > q->score ? -1 : 1;
    if (p->image != q->image)
        return p->image < q->image ? -1 : 1;
    return (p->rank > q->rank) - (p->rank < q->rank);
}

static int compare_truths(const void *a, const void *b)
{
    const struct truth *p = *(const struct truth *const *)a, *q = *(const struct truth *const *)b;

    if (p->cls != q->cls)
        return p->cls < q->cls ? -1 : 1;
    if (p->image != q->image)
        return p->image < q->image ? -1 : 1;
    return (p > q) - (p < q);
}

/* The first truth not before (cls, image). */
static size_t find_truths(const struct voc_matcher *m, int32_t cls, int32_t image)
{
    size_t lo = 0, hi = m->ntruths;

    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        const struct truth *t = m->truths[mid];

        if (t->cls < cls || (t->cls == cls && t->image < image))
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* Only the truth with the largest overlap decides on a detection; the second best is not tried. */
static enum pr_flag judge(struct voc_matcher *m, const struct detection *d)
{
    double best = -1;
    size_t at = 0;

    for (size_t g = find_truths(m, d->cls, d->image); g < m->ntruths; g++) {
        double overlap = box_overlap(d->box, m->truths[g]->box, false);

        if (m->truths[g]->cls != d->cls || m->truths[g]->image != d->image)
            break;
        if (overlap > best) {
            best = overlap;
            at = g;
        }
    }
    if (best < m->iou)
        return PR_FP;
    if (m->truths[at]->difficult || m->truths[at]->crowd)
        return PR_IGNORED;
    if (m->taken[at])
        return PR_FP;
    m->taken[at] = true;
    return PR_TP;
}

int voc_matcher_open(const struct truth *truths, size_t ntruths, double iou, struct voc_matcher **ret, struct err *err)
{
    struct voc_matcher *m = calloc(1, sizeof *m);

    if (m) {
        m->ntruths = ntruths;
        m->iou = iou;
        m->truths = malloc((ntruths + 1) * sizeof *m->truths);
        m->taken = calloc(ntruths + 1, sizeof *m->taken);
    }
    if (!m || !m->truths || !m->taken) {
        voc_matcher_close(m);
        return err_set(err, -ENOMEM, "VOC evaluation: out of memory");
    }
    for (size_t i = 0; i < ntruths; i++)
        m->truths[i] = &truths[i];
    qsort(m->truths, ntruths, sizeof *m->truths, compare_truths);
    *ret = m;
    return 0;
}

void voc_matcher_close(struct voc_matcher *m)
{
    if (!m)
        return;
    free(m->truths);
    free(m->taken);
    free(m->dets);
    free(m->verdicts);
    free(m);
}

int voc_match(struct voc_matcher *m, const struct detection *dets, size_t ndets, struct err *err)
{
    if (!GROW(m->verdicts, m->room, m->nverdicts + ndets) || !GROW(m->dets, m->dets_room, ndets))
        return err_set(err, -ENOMEM, "VOC evaluation: out of memory");
    for (size_t i = 0; i < ndets; i++)
        m->dets[i] = dets[i];
    if (ndets > 0)
        qsort(m->dets, ndets, sizeof *m->dets, detection_compare);
    for (size_t i = 0; i < ndets; i++) {
        const struct detection *d = &m->dets[i];

        m->verdicts[m->nverdicts++] = (struct voc_verdict){ d->image, d->cls, (int32_t)i, (int32_t)judge(m, d), d->score };
    }
    return 0;
}

const struct voc_verdict *voc_verdicts(const struct voc_matcher *m, size_t *ret_n)
{
    *ret_n = m->nverdicts;
    return m->verdicts;
}

static void summarize(const struct voc_verdict *v, size_t n, uint8_t *flags, enum pr_points points, struct voc_ap *ap)
{
    int counted = 0;

    for (size_t i = 0; i < n; i++)
        flags[i] = (uint8_t)v[i].flag;
    for (size_t from = 0, to, cls = 0; cls < (size_t)ap->nclasses; cls++, from = to) {
        for (to = from; to < n && v[to].cls == (int32_t)cls;)
            to++;
        ap->class_ap[cls] = ap->npos[cls] ? pr_average_precision(flags + from, to - from, ap->npos[cls], points) : -1;
        ap->map += ap->npos[cls] ? ap->class_ap[cls] : 0;
        counted += ap->npos[cls] > 0;
    }
    ap->map = counted ? ap->map / counted : -1;
}

int voc_ap_score(struct voc_verdict *verdicts, size_t n, const struct truth *truths, size_t ntruths, int nclasses, enum pr_points points,
                 struct voc_ap *ret_ap, struct err *err)
{
    struct voc_ap ap = { .nclasses = nclasses };
    uint8_t *flags = calloc(n + 1, 1);

    ap.class_ap = calloc((size_t)nclasses + 1, sizeof *ap.class_ap);
    ap.npos = calloc((size_t)nclasses + 1, sizeof *ap.npos);
    if (!flags || !ap.class_ap || !ap.npos) {
        free(flags);
        voc_ap_free(&ap);
        return err_set(err, -ENOMEM, "VOC evaluation: out of memory");
    }
    for (size_t i = 0; i < ntruths; i++)
        ap.npos[truths[i].cls] += !truths[i].difficult && !truths[i].crowd;
    if (n > 0)
        qsort(verdicts, n, sizeof *verdicts, compare_verdicts);
    summarize(verdicts, n, flags, points, &ap);
    free(flags);
    *ret_ap = ap;
    return 0;
}

void voc_ap_free(struct voc_ap *ap)
{
    free(ap->class_ap);
    free(ap->npos);
    *ap = (struct voc_ap){ 0 };
}
