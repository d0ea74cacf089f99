#include "worker/eval/voc_ap.h"

#include <errno.h>
#include <stdlib.h>

#include "proto/err.h"

struct matching {
    struct detection *dets;      /* by class, falling score, image, slot */
    const struct truth **truths; /* by class, image, as given */
    bool *taken;                 /* beside truths */
    uint8_t *flags;              /* beside dets */
    size_t ndets, ntruths;
};

static int compare_dets(const void *a, const void *b)
{
    const struct detection *p = a, *q = b;

    if (p->cls != q->cls)
        return p->cls < q->cls ? -1 : 1;
    if (p->score != q->score)
        return p->score > q->score ? -1 : 1;
    return detection_compare(a, b);
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

/* First truth at or behind (cls, image). */
static size_t find_truths(const struct matching *m, int32_t cls, int32_t image)
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

/* A detection stands or falls with the truth it overlaps most; the second best is not tried. */
static enum pr_flag judge(struct matching *m, const struct detection *d, double iou)
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
    if (best < iou)
        return PR_FP;
    if (m->truths[at]->difficult || m->truths[at]->crowd)
        return PR_IGNORED;
    if (m->taken[at])
        return PR_FP;
    m->taken[at] = true;
    return PR_TP;
}

static int prepare(struct matching *m, const struct detection *dets, const struct truth *truths)
{
    m->dets = malloc((m->ndets + 1) * sizeof *m->dets);
    m->truths = malloc((m->ntruths + 1) * sizeof *m->truths);
    m->taken = calloc(m->ntruths + 1, sizeof *m->taken);
    m->flags = calloc(m->ndets + 1, 1);
    if (!m->dets || !m->truths || !m->taken || !m->flags)
        return -ENOMEM;
    for (size_t i = 0; i < m->ndets; i++)
        m->dets[i] = dets[i];
    for (size_t i = 0; i < m->ntruths; i++)
        m->truths[i] = &truths[i];
    qsort(m->dets, m->ndets, sizeof *m->dets, compare_dets);
    qsort(m->truths, m->ntruths, sizeof *m->truths, compare_truths);
    return 0;
}

static void summarize(struct matching *m, double iou, enum pr_points points, struct voc_ap *ap)
{
    int counted = 0;

    for (size_t i = 0; i < m->ndets; i++)
        m->flags[i] = (uint8_t)judge(m, &m->dets[i], iou);
    for (size_t g = 0; g < m->ntruths; g++)
        ap->npos[m->truths[g]->cls] += !m->truths[g]->difficult && !m->truths[g]->crowd;
    for (size_t from = 0, to, cls = 0; cls < (size_t)ap->nclasses; cls++, from = to) {
        for (to = from; to < m->ndets && m->dets[to].cls == (int32_t)cls;)
            to++;
        ap->class_ap[cls] = ap->npos[cls] ? pr_average_precision(m->flags + from, to - from, ap->npos[cls], points) : -1;
        ap->map += ap->npos[cls] ? ap->class_ap[cls] : 0;
        counted += ap->npos[cls] > 0;
    }
    ap->map = counted ? ap->map / counted : -1;
}

int voc_ap_compute(const struct detection *dets, size_t ndets, const struct truth *truths, size_t ntruths, int nclasses, double iou,
                   enum pr_points points, struct voc_ap *ret_ap, struct err *err)
{
    struct matching m = { .ndets = ndets, .ntruths = ntruths };
    struct voc_ap ap = { .nclasses = nclasses };
    int rc = detections_check(dets, ndets, nclasses, err);

    if (rc == 0)
        rc = truths_check(truths, ntruths, nclasses, err);
    if (rc < 0)
        return rc;
    ap.class_ap = calloc((size_t)nclasses + 1, sizeof *ap.class_ap);
    ap.npos = calloc((size_t)nclasses + 1, sizeof *ap.npos);
    rc = ap.class_ap && ap.npos ? prepare(&m, dets, truths) : -ENOMEM;
    if (rc == 0) {
        summarize(&m, iou, points, &ap);
        *ret_ap = ap;
    } else {
        voc_ap_free(&ap);
        err_set(err, rc, "VOC evaluation: out of memory");
    }
    free(m.dets);
    free(m.truths);
    free(m.taken);
    free(m.flags);
    return rc;
}

void voc_ap_free(struct voc_ap *ap)
{
    free(ap->class_ap);
    free(ap->npos);
    *ap = (struct voc_ap){ 0 };
}
