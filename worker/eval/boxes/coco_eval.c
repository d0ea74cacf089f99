#include "worker/eval/boxes/coco_eval.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "worker/eval/boxes/coco_ap.h"
#include "worker/eval/boxes/coco_masks.h"

struct coco_eval {
    struct evaluator base;
    const struct eval_split *split;
    struct coco_matcher *matcher;
    struct coco_masks *masks; /* for coco_segm, if any */
};

static struct coco_eval *self(const struct evaluator *e)
{
    return (struct coco_eval *)e;
}

static void coco_close(struct evaluator *e)
{
    coco_matcher_close(self(e)->matcher);
    coco_masks_close(self(e)->masks);
    free(e);
}

/* The number of detections that count, of an image and class. */
static int counted(const struct eval_split *split)
{
    return split->max_det > COCO_COUNTED ? split->max_det : COCO_COUNTED;
}

static int open_eval(const struct evaluator_ops *ops, const struct eval_split *split, struct coco_eval **ret, struct err *err)
{
    struct coco_eval *e = calloc(1, sizeof *e);
    int rc =
        e ? truths_check(split->truths, split->ntruths, split->nclasses, err) : err_set(err, -ENOMEM, "COCO evaluation: out of memory");

    if (rc >= 0)
        rc = coco_matcher_open(split->truths, split->ntruths, counted(split), &e->matcher, err);
    if (rc < 0) {
        free(e);
        return rc;
    }
    e->base.ops = ops;
    e->split = split;
    *ret = e;
    return 0;
}

static int boxes_open(const struct eval_split *split, struct evaluator **ret, struct err *err)
{
    struct coco_eval *e;
    int rc = open_eval(&coco_boxes, split, &e, err);

    if (rc >= 0)
        *ret = &e->base;
    return rc;
}

static int segm_open(const struct eval_split *split, struct evaluator **ret, struct err *err)
{
    struct coco_eval *e;
    int rc = open_eval(&coco_segm, split, &e, err);

    if (rc < 0)
        return rc;
    if (split->masks)
        rc = coco_masks_open(split, &e->masks, err);
    if (rc < 0)
        coco_close(&e->base);
    else
        *ret = &e->base;
    return rc;
}

static int boxes_add(struct evaluator *e, const struct result *r, struct err *err)
{
    int rc = result_boxes_check(r, self(e)->split->nclasses, err);

    return rc < 0 ? rc : coco_match(self(e)->matcher, r->boxes, (size_t)r->n, NULL, err);
}

static int segm_add(struct evaluator *e, const struct result *r, struct err *err)
{
    struct coco_eval *s = self(e);
    struct coco_measure by;
    const struct truth *const *truths;
    size_t ntruths;
    int rc;

    if (!s->masks)
        return result_boxes_check(r, s->split->nclasses, err);
    rc = result_masks_check(r, s->split->nclasses, err);
    if (rc < 0)
        return rc;
    truths = coco_truths_of(s->matcher, r->image, &ntruths);
    rc = coco_masks_begin(s->masks, r, truths, ntruths, &by, err);
    return rc < 0 ? rc : coco_match(s->matcher, r->boxes, (size_t)r->n, &by, err);
}

static const void *coco_pack(const struct evaluator *e, size_t *ret_bytes)
{
    size_t n;
    const struct coco_verdict *v = coco_verdicts(self(e)->matcher, &n);

    *ret_bytes = n * sizeof *v;
    return v;
}

/* ---- scores by class ---- */

/* Scores of each class. No prefix may be longer than the first: a class's name is cut to fit the first and must be the
 * same in all scores. */
enum { CLASS_AP50, CLASS_AP, CLASS_PRECISION, CLASS_RECALL, CLASS_CONF, CLASS_TRUTHS, CLASS_SCORES };
static const char *const class_prefix[CLASS_SCORES] = { "AP50:", "AP:", "P50:", "R50:", "conf:", "n:" };

struct name {
    char text[RECORD_MAX_NAME + 1];
};

/* The name of a class, cut between characters so that the id stays whole. Control characters become blanks. */
static struct name class_metric(const struct eval_split *s, const char *what, int c, bool with_id)
{
    struct name n;
    char id[32] = "";
    size_t room = RECORD_MAX_NAME - strlen(class_prefix[CLASS_AP50]) - strlen(what), len = strlen(s->class_name[c]);

    if (with_id)
        room -= (size_t)snprintf(id, sizeof id, " #%lld", (long long)s->class_id[c]);
    if (len > room)
        for (len = room; len > 0 && ((unsigned char)s->class_name[c][len] & 0xc0) == 0x80;)
            len--;
    snprintf(n.text, sizeof n.text, "%.*s%s", (int)len, s->class_name[c], id);
    for (char *p = n.text; *p; p++)
        if ((unsigned char)*p < 0x20)
            *p = ' ';
    return n;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(((const struct name *)a)->text, ((const struct name *)b)->text);
}

/* True if a name occurs twice. Changes the order of the names. */
static bool any_twice(struct name *names, int n)
{
    bool twice = false;

    qsort(names, (size_t)n, sizeof *names, by_text);
    for (int i = 1; i < n; i++)
        twice = twice || by_text(&names[i - 1], &names[i]) == 0;
    return twice;
}

static void name_classes(const struct eval_split *s, const char *what, struct name *ret)
{
    bool with_id;

    for (int c = 0; c < s->nclasses; c++)
        ret[c] = class_metric(s, what, c, false);
    with_id = any_twice(ret, s->nclasses);
    for (int c = 0; c < s->nclasses; c++)
        ret[c] = class_metric(s, what, c, with_id);
}

/* -1 means that there is nothing to score; users see null. */
static double score_or_nan(double score)
{
    return score < 0 ? NAN : score;
}

static double class_score(const struct coco_ap *ap, int c, int what)
{
    const struct coco_best *best = &ap->class_best[c];
    const double score[CLASS_SCORES] = {
        [CLASS_AP50] = ap->class_ap50[c], [CLASS_AP] = ap->class_ap[c], [CLASS_PRECISION] = best->precision,
        [CLASS_RECALL] = best->recall,    [CLASS_CONF] = best->conf,    [CLASS_TRUTHS] = (double)best->truths
    };

    return score_or_nan(score[what]);
}

static int add_class_scores(const char *what, const struct coco_ap *ap, const struct name *names, int score, struct metrics *ret,
                            struct err *err)
{
    char name[RECORD_MAX_NAME + 32];
    int rc = 0;

    for (int c = 0; c < ap->nclasses && rc >= 0; c++) {
        snprintf(name, sizeof name, "%s%s%s", what, class_prefix[score], names[c].text);
        rc = metrics_add(ret, name, class_score(ap, c, score), err);
    }
    return rc;
}

static int add_metrics(const struct eval_split *s, const char *what, const struct coco_ap *ap, struct metrics *ret, struct err *err)
{
    struct name *names = calloc((size_t)s->nclasses + 1, sizeof *names), stat;
    int rc = names ? 0 : err_set(err, -ENOMEM, "COCO evaluation: out of memory");

    for (int i = 0; i < COCO_STATS && rc >= 0; i++) {
        if (i == COCO_AR_ALL)
            snprintf(stat.text, sizeof stat.text, "%sAR%d", what, counted(s));
        else
            snprintf(stat.text, sizeof stat.text, "%s%s", what, coco_stat_name[i]);
        rc = metrics_add(ret, stat.text, score_or_nan(ap->stat[i]), err);
    }
    if (rc >= 0)
        name_classes(s, what, names);
    for (int k = 0; k < CLASS_SCORES && rc >= 0; k++)
        rc = add_class_scores(what, ap, names, k, ret, err);
    free(names);
    return rc;
}

static int score(const struct evaluator *e, const char *what, void *records, size_t bytes, struct metrics *ret, struct err *err)
{
    const struct eval_split *s = self(e)->split;
    struct coco_ap ap;
    int rc = coco_ap_score(records, bytes / sizeof(struct coco_verdict), s->truths, s->ntruths, s->nclasses, &ap, err);

    if (rc < 0)
        return rc;
    rc = add_metrics(s, what, &ap, ret, err);
    coco_ap_free(&ap);
    return rc;
}

static int boxes_score(const struct evaluator *e, void *records, size_t bytes, struct metrics *ret, struct err *err)
{
    return score(e, "", records, bytes, ret, err);
}

static int segm_score(const struct evaluator *e, void *records, size_t bytes, struct metrics *ret, struct err *err)
{
    return self(e)->masks ? score(e, "segm_", records, bytes, ret, err) : 0;
}

const struct evaluator_ops coco_boxes = { "COCO boxes", boxes_open, boxes_add, coco_pack, boxes_score, coco_close };
const struct evaluator_ops coco_segm = { "COCO masks", segm_open, segm_add, coco_pack, segm_score, coco_close };
