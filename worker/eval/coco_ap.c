#include "worker/eval/coco_ap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "worker/eval/pr_curve.h"

enum { AREAS = 4, KEPT = 100 /* detections of an image and class that count */ };

/* Bounds are inclusive, in square pixels. */
static const double area_range[AREAS][2] = { { 0, 1e10 }, { 0, 32 * 32 }, { 32 * 32, 96 * 96 }, { 96 * 96, 1e10 } };

const char *const coco_stat_name[COCO_STATS] = { "AP", "AP50", "AP75", "APs", "APm", "APl", "AR1", "AR10", "AR100", "ARs", "ARm", "ARl" };

/* A kept detection and what it was, for every size class and threshold. */
struct verdict {
    int32_t image, cls, rank; /* rank: place in its image and class */
    double score;
    uint8_t flag[AREAS][COCO_THRESHOLDS];
};

struct scoring {
    struct detection *dets; /* sorted by detection_compare() */
    size_t ndets;
    const struct truth **truths; /* by image and class, else as given */
    size_t ntruths;
    struct verdict *verdicts; /* by class, then falling score */
    size_t nverdicts;
    size_t *npos;   /* [nclasses][AREAS] truths that count */
    uint8_t *flags; /* scratch: one class at one threshold */
    /* Scratch of one image and class, as many as the largest group of truths. */
    double *overlap;            /* [KEPT][truths] */
    const struct truth **order; /* those that count first */
    int *column;                /* of order[i] in overlap */
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

static int compare_truths(const void *a, const void *b)
{
    const struct truth *p = *(const struct truth *const *)a, *q = *(const struct truth *const *)b;

    if (p->image != q->image)
        return p->image < q->image ? -1 : 1;
    if (p->cls != q->cls)
        return p->cls < q->cls ? -1 : 1;
    return (p > q) - (p < q);
}

static int compare_verdicts(const void *a, const void *b)
{
    const struct verdict *p = a, *q = b;

    if (p->cls != q->cls)
        return p->cls < q->cls ? -1 : 1;
    if (p->score != q->score)
        return p->score > q->score ? -1 : 1;
    if (p->image != q->image)
        return p->image < q->image ? -1 : 1;
    return (p->rank > q->rank) - (p->rank < q->rank);
}

/* Truths that count first, else in the order given. */
static void order_truths(struct scoring *s, const struct truth *const *truths, int n, int a)
{
    int to = 0;

    for (int pass = 0; pass < 2; pass++)
        for (int g = 0; g < n; g++) {
            bool ignored = truths[g]->crowd || !in_range(truths[g]->area, a);

            if (ignored != (pass == 1))
                continue;
            s->order[to] = truths[g];
            s->column[to] = g;
            s->ignored[to++] = ignored;
        }
}

/* The best truth for a detection: free (or crowd), overlap >= least; one that counts is never left for one that does not. -1: none. */
static int best_truth(const struct scoring *s, const double *overlap, int n, double least)
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

static void match(struct scoring *s, struct verdict *v, const struct detection *dets, int ndets, int ntruths, int a, int t)
{
    memset(s->taken, 0, (size_t)ntruths * sizeof *s->taken);
    for (int d = 0; d < ndets; d++) {
        int g = best_truth(s, s->overlap + (size_t)d * (size_t)ntruths, ntruths, threshold(t));

        if (g >= 0) {
            s->taken[g] = true;
            v[d].flag[a][t] = s->ignored[g] ? PR_IGNORED : PR_TP;
        } else {
            v[d].flag[a][t] = in_range(dets[d].box[2] * dets[d].box[3], a) ? PR_FP : PR_IGNORED;
        }
    }
}

/* One image and class. */
static void score_group(struct scoring *s, const struct detection *dets, size_t found, const struct truth *const *truths, int ntruths)
{
    int ndets = found < KEPT ? (int)found : KEPT;
    struct verdict *v = s->verdicts + s->nverdicts;

    for (int d = 0; d < ndets; d++) {
        v[d] = (struct verdict){ .image = dets[d].image, .cls = dets[d].cls, .rank = d, .score = dets[d].score };
        for (int g = 0; g < ntruths; g++)
            s->overlap[d * ntruths + g] = box_overlap(dets[d].box, truths[g]->box, truths[g]->crowd);
    }
    for (int a = 0; a < AREAS; a++) {
        order_truths(s, truths, ntruths, a);
        for (int g = 0; g < ntruths; g++)
            s->npos[truths[g]->cls * AREAS + a] += !s->ignored[g];
        for (int t = 0; t < COCO_THRESHOLDS; t++)
            match(s, v, dets, ndets, ntruths, a, t);
    }
    s->nverdicts += (size_t)ndets;
}

static int compare_groups(const struct scoring *s, size_t d, size_t g)
{
    if (d == s->ndets || g == s->ntruths)
        return d == s->ndets ? 1 : -1;
    if (s->dets[d].image != s->truths[g]->image)
        return s->dets[d].image < s->truths[g]->image ? -1 : 1;
    return (s->dets[d].cls > s->truths[g]->cls) - (s->dets[d].cls < s->truths[g]->cls);
}

static size_t det_group_end(const struct scoring *s, size_t d)
{
    size_t end = d;

    while (end < s->ndets && s->dets[end].image == s->dets[d].image && s->dets[end].cls == s->dets[d].cls)
        end++;
    return end;
}

static size_t truth_group_end(const struct scoring *s, size_t g)
{
    size_t end = g;

    while (end < s->ntruths && s->truths[end]->image == s->truths[g]->image && s->truths[end]->cls == s->truths[g]->cls)
        end++;
    return end;
}

/* Walks both sorted lists in step. */
static void score_all(struct scoring *s)
{
    size_t d = 0, g = 0;

    while (d < s->ndets || g < s->ntruths) {
        int order = compare_groups(s, d, g);
        size_t dend = order <= 0 ? det_group_end(s, d) : d, gend = order >= 0 ? truth_group_end(s, g) : g;

        score_group(s, s->dets + d, dend - d, s->truths + g, (int)(gend - g));
        d = dend;
        g = gend;
    }
    qsort(s->verdicts, s->nverdicts, sizeof *s->verdicts, compare_verdicts);
}

/* Mean of what has been added; -1 of nothing. */
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

/* The flags of one class's detections with rank < limit, by falling score; returns their number. */
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
    double ap = pr_average_precision(s->flags, gather(s, from, to, a, t, KEPT), npos, PR_101_POINTS);

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
    double all = recall(s, from, to, a, t, KEPT, npos);

    mean_add(&m->stat[COCO_AR100 + a], all);
    if (a > 0)
        return;
    mean_add(cls, all);
    mean_add(&m->stat[COCO_AR1], recall(s, from, to, a, t, 1, npos));
    mean_add(&m->stat[COCO_AR10], recall(s, from, to, a, t, 10, npos));
}

static void score_class(const struct scoring *s, struct means *m, struct coco_ap *ap, int cls, size_t from, size_t to)
{
    struct mean precision = { 0 }, full = { 0 };

    for (int a = 0; a < AREAS; a++) {
        size_t npos = s->npos[cls * AREAS + a];

        for (int t = 0; t < COCO_THRESHOLDS && npos > 0; t++) {
            add_precision(s, m, &precision, from, to, a, t, npos);
            add_recall(s, m, &full, from, to, a, t, npos);
            if (a == 0 && t == 0)
                ap->class_ap50[cls] = precision.sum;
        }
    }
    ap->class_ap[cls] = mean_value(&precision);
    ap->class_ar100[cls] = mean_value(&full);
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
        from = to;
    }
    for (int i = 0; i < COCO_STATS; i++)
        ap->stat[i] = mean_value(&m.stat[i]);
    for (int t = 0; t < COCO_THRESHOLDS; t++)
        ap->at_iou[t] = mean_value(&m.at_iou[t]);
}

/* At least 1. */
static size_t largest_truth_group(const struct scoring *s)
{
    size_t largest = 1, end;

    for (size_t g = 0; g < s->ntruths; g = end) {
        end = truth_group_end(s, g);
        if (end - g > largest)
            largest = end - g;
    }
    return largest;
}

static int prepare(struct scoring *s, const struct detection *dets, const struct truth *truths, int nclasses)
{
    size_t room;

    s->dets = malloc((s->ndets + 1) * sizeof *s->dets);
    s->truths = malloc((s->ntruths + 1) * sizeof *s->truths);
    s->verdicts = malloc((s->ndets + 1) * sizeof *s->verdicts);
    s->flags = calloc(s->ndets + 1, 1);
    s->npos = calloc((size_t)nclasses * AREAS + 1, sizeof *s->npos);
    if (!s->dets || !s->truths || !s->verdicts || !s->flags || !s->npos)
        return -ENOMEM;
    for (size_t i = 0; i < s->ndets; i++)
        s->dets[i] = dets[i];
    for (size_t i = 0; i < s->ntruths; i++)
        s->truths[i] = &truths[i];
    qsort(s->dets, s->ndets, sizeof *s->dets, detection_compare);
    qsort(s->truths, s->ntruths, sizeof *s->truths, compare_truths);
    room = largest_truth_group(s);
    s->overlap = calloc(room, KEPT * sizeof *s->overlap);
    s->order = malloc(room * sizeof *s->order);
    s->column = malloc(room * sizeof *s->column);
    s->taken = malloc(room * sizeof *s->taken);
    s->ignored = malloc(room * sizeof *s->ignored);
    return s->overlap && s->order && s->column && s->taken && s->ignored ? 0 : -ENOMEM;
}

static void scoring_free(struct scoring *s)
{
    free(s->dets);
    free(s->truths);
    free(s->verdicts);
    free(s->flags);
    free(s->npos);
    free(s->overlap);
    free(s->order);
    free(s->column);
    free(s->taken);
    free(s->ignored);
}

static int result_new(struct coco_ap *ap, int nclasses)
{
    size_t room = (size_t)nclasses + 1;

    *ap = (struct coco_ap){ .nclasses = nclasses };
    ap->class_ap = malloc(room * sizeof *ap->class_ap);
    ap->class_ap50 = malloc(room * sizeof *ap->class_ap50);
    ap->class_ar100 = malloc(room * sizeof *ap->class_ar100);
    return ap->class_ap && ap->class_ap50 && ap->class_ar100 ? 0 : -ENOMEM;
}

int coco_ap_compute(const struct detection *dets, size_t ndets, const struct truth *truths, size_t ntruths, int nclasses,
                    struct coco_ap *ret_ap, struct err *err)
{
    struct scoring s = { .ndets = ndets, .ntruths = ntruths };
    struct coco_ap ap;
    int rc = detections_check(dets, ndets, nclasses, err);

    if (rc == 0)
        rc = truths_check(truths, ntruths, nclasses, err);
    if (rc < 0)
        return rc;
    rc = result_new(&ap, nclasses);
    if (rc == 0)
        rc = prepare(&s, dets, truths, nclasses);
    if (rc == 0) {
        score_all(&s);
        summarize(&s, &ap);
        *ret_ap = ap;
    } else {
        coco_ap_free(&ap);
        err_set(err, rc, "COCO evaluation: out of memory");
    }
    scoring_free(&s);
    return rc;
}

void coco_ap_free(struct coco_ap *ap)
{
    free(ap->class_ap);
    free(ap->class_ap50);
    free(ap->class_ar100);
    *ap = (struct coco_ap){ 0 };
}
