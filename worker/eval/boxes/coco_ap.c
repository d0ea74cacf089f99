#include "worker/eval/boxes/coco_ap.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <limits.h>
#include <stdlib.h>

#include "proto/err.h"
#include "worker/eval/boxes/pr_curve.h"

const char *const coco_stat_name[COCO_STATS] = { "AP", "AP50", "AP75", "APs", "APm", "APl", "AR1", "AR10", "AR100", "ARs", "ARm", "ARl" };

struct scoring {
    struct coco_verdict *verdicts; /* by class, then falling score */
    size_t nverdicts;
    size_t *npos;   /* [nclasses][COCO_AREAS]: number of truths to find */
    uint8_t *flags; /* scratch: one class at one threshold */
};

static int compare_verdicts(const void *a, const void *b)
{
    const struct coco_verdict *p = a, *q = b;

    if (p->cls != q->cls)
        return p->cls < q->cls ? -1 : 1;
    if (p->score != q->score)
        return p->score > q->score ? -1 : 1;
    if (p->image != q->image)
        return p->image < q->image ? -1 : 1;
    return (p->rank > q->rank) - (p->rank < q->rank);
}

/* Mean of the added values; -1 if there are no values. */
struct mean {
    double sum;
    size_t n;
};

static void mean_add(struct mean *m, double v)
{
    m->sum += v;
    m->n++;
}

static double mean_value(const struct mean *m)
{
    return m->n ? m->sum / (double)m->n : -1;
}

enum { ALL = INT_MAX }; /* no limit: all matched detections */

/* Collects the flags of one class's detections with rank < limit, by falling score. Returns their number. */
static size_t gather(const struct scoring *s, size_t from, size_t to, int a, int t, int limit)
{
    size_t n = 0;

    for (size_t i = from; i < to; i++)
        if (s->verdicts[i].rank < limit)
            s->flags[n++] = s->verdicts[i].flag[a][t];
    return n;
}

static double recall(const struct scoring *s, size_t from, size_t to, int a, int t, int limit, size_t npos)
{
    size_t n = gather(s, from, to, a, t, limit), tp = 0;

    for (size_t i = 0; i < n; i++)
        tp += s->flags[i] == PR_TP;
    return (double)tp / (double)npos;
}

struct means {
    struct mean stat[COCO_STATS], at_iou[COCO_THRESHOLDS];
};

static void add_precision(const struct scoring *s, struct means *m, struct mean *cls, size_t from, size_t to, int a, int t, size_t npos)
{
    double ap = pr_average_precision(s->flags, gather(s, from, to, a, t, ALL), npos, PR_101_POINTS);

    if (a > 0) {
        mean_add(&m->stat[COCO_AP75 + a], ap);
        return;
    }
    mean_add(&m->stat[COCO_AP], ap);
    mean_add(&m->at_iou[t], ap);
    mean_add(cls, ap);
    if (t == 0)
        mean_add(&m->stat[COCO_AP50], ap);
    if (t == 5)
        mean_add(&m->stat[COCO_AP75], ap);
}

static void add_recall(const struct scoring *s, struct means *m, struct mean *cls, size_t from, size_t to, int a, int t, size_t npos)
{
    double all = recall(s, from, to, a, t, ALL, npos);

    mean_add(&m->stat[COCO_AR_ALL + a], all);
    if (a > 0)
        return;
    mean_add(cls, all);
    mean_add(&m->stat[COCO_AR1], recall(s, from, to, a, t, 1, npos));
    mean_add(&m->stat[COCO_AR10], recall(s, from, to, a, t, 10, npos));
}

static void score_class(const struct scoring *s, struct means *m, struct coco_ap *ap, int cls, size_t from, size_t to)
{
    struct mean precision = { 0 }, full = { 0 };

    for (int a = 0; a < COCO_AREAS; a++) {
        size_t npos = s->npos[cls * COCO_AREAS + a];

        for (int t = 0; t < COCO_THRESHOLDS && npos > 0; t++) {
            add_precision(s, m, &precision, from, to, a, t, npos);
            add_recall(s, m, &full, from, to, a, t, npos);
            if (a == 0 && t == 0)
                ap->class_ap50[cls] = precision.sum;
        }
    }
    ap->class_ap[cls] = mean_value(&precision);
    ap->class_ar[cls] = mean_value(&full);
}

/* Detections with equal scores are kept or dropped together. */
static struct coco_best find_best(const struct scoring *s, size_t from, size_t to, size_t npos)
{
    struct coco_best best = { -1, -1, npos > 0 ? 0 : -1, npos };
    size_t tp = 0, fp = 0;
    double best_f1 = 0;

    for (size_t i = from; i < to && npos > 0; i++) {
        const struct coco_verdict *v = &s->verdicts[i];
        double f1;

        tp += v->flag[0][0] == PR_TP;
        fp += v->flag[0][0] == PR_FP;
        if (tp + fp == 0 || (i + 1 < to && v[1].score == v->score))
            continue;
        f1 = 2 * (double)tp / (double)(tp + fp + npos);
        if (f1 > best_f1) {
            best_f1 = f1;
            best = (struct coco_best){ v->score, (double)tp / (double)(tp + fp), (double)tp / (double)npos, npos };
        }
    }
    return best;
}

static void summarize(const struct scoring *s, struct coco_ap *ap)
{
    struct means m = { 0 };
    size_t from = 0;

    for (int cls = 0; cls < ap->nclasses; cls++) {
        size_t to = from;

        while (to < s->nverdicts && s->verdicts[to].cls == cls)
            to++;
        ap->class_ap50[cls] = -1;
        score_class(s, &m, ap, cls, from, to);
        ap->class_best[cls] = find_best(s, from, to, s->npos[cls * COCO_AREAS]);
        from = to;
    }
    for (int i = 0; i < COCO_STATS; i++)
        ap->stat[i] = mean_value(&m.stat[i]);
    for (int t = 0; t < COCO_THRESHOLDS; t++)
        ap->at_iou[t] = mean_value(&m.at_iou[t]);
}

static int result_new(struct coco_ap *ap, int nclasses)
{
    size_t room = (size_t)nclasses + 1;

    *ap = (struct coco_ap){ .nclasses = nclasses };
    ap->class_ap = malloc(room * sizeof *ap->class_ap);
    ap->class_ap50 = malloc(room * sizeof *ap->class_ap50);
    ap->class_ar = malloc(room * sizeof *ap->class_ar);
    ap->class_best = malloc(room * sizeof *ap->class_best);
    return ap->class_ap && ap->class_ap50 && ap->class_ar && ap->class_best ? 0 : -ENOMEM;
}

int coco_ap_score(struct coco_verdict *verdicts, size_t n, const struct truth *truths, size_t ntruths, int nclasses, struct coco_ap *ret_ap,
                  struct err *err)
{
    struct scoring s = { .verdicts = verdicts, .nverdicts = n };
    int rc = result_new(ret_ap, nclasses);

    s.flags = calloc(n + 1, 1);
    s.npos = calloc((size_t)nclasses * COCO_AREAS + 1, sizeof *s.npos);
    if (rc == 0 && s.flags && s.npos) {
        for (size_t i = 0; i < ntruths; i++)
            for (int a = 0; a < COCO_AREAS; a++)
                s.npos[truths[i].cls * COCO_AREAS + a] += coco_counts(&truths[i], a);
        if (n > 0)
            qsort(verdicts, n, sizeof *verdicts, compare_verdicts);
        summarize(&s, ret_ap);
    } else {
        coco_ap_free(ret_ap);
        rc = err_set(err, -ENOMEM, "COCO evaluation: out of memory");
    }
    free(s.flags);
    free(s.npos);
    return rc;
}

void coco_ap_free(struct coco_ap *ap)
{
    free(ap->class_ap);
    free(ap->class_ap50);
    free(ap->class_ar);
    free(ap->class_best);
    *ap = (struct coco_ap){ 0 };
}
