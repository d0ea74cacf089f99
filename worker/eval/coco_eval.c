#include "worker/eval/coco_eval.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "worker/eval/coco_ap.h"

struct coco_eval {
    struct evaluator base;
    const struct eval_split *split;
    struct coco_matcher *matcher;
};

static struct coco_eval *self(const struct evaluator *e)
{
    return (struct coco_eval *)e;
}

static void coco_close(struct evaluator *e)
{
    coco_matcher_close(self(e)->matcher);
    free(e);
}

static int coco_open(const struct eval_split *split, struct evaluator **ret, struct err *err)
{
    struct coco_eval *e = calloc(1, sizeof *e);
    int rc =
        e ? truths_check(split->truths, split->ntruths, split->nclasses, err) : err_set(err, -ENOMEM, "COCO evaluation: out of memory");

    if (rc >= 0)
        rc = coco_matcher_open(split->truths, split->ntruths, &e->matcher, err);
    if (rc < 0) {
        free(e);
        return rc;
    }
    e->base.ops = &coco_boxes;
    e->split = split;
    *ret = &e->base;
    return 0;
}

static int coco_add(struct evaluator *e, const struct result *r, struct err *err)
{
    int rc = result_boxes_check(r, self(e)->split->nclasses, err);

    return rc < 0 ? rc : coco_match(self(e)->matcher, r->boxes, (size_t)r->n, err);
}

static const void *coco_pack(const struct evaluator *e, size_t *ret_bytes)
{
    size_t n;
    const struct coco_verdict *v = coco_verdicts(self(e)->matcher, &n);

    *ret_bytes = n * sizeof *v;
    return v;
}

/* ---- names of AP50 by class ---- */

struct name {
    char text[RECORD_MAX_NAME + 1];
};

/* Cut at a character, so that the id stays whole; what would break a line of text is blank. */
static struct name class_metric(const struct eval_split *s, int c, bool with_id)
{
    static const char prefix[] = "AP50:";
    struct name n;
    char id[32] = "";
    size_t room = RECORD_MAX_NAME - (sizeof prefix - 1), len = strlen(s->class_name[c]);

    if (with_id)
        room -= (size_t)snprintf(id, sizeof id, " #%lld", (long long)s->class_id[c]);
    if (len > room)
        for (len = room; len > 0 && ((unsigned char)s->class_name[c][len] & 0xc0) == 0x80;)
            len--;
    snprintf(n.text, sizeof n.text, "%s%.*s%s", prefix, (int)len, s->class_name[c], id);
    for (char *p = n.text; *p; p++)
        if ((unsigned char)*p < 0x20)
            *p = ' ';
    return n;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(((const struct name *)a)->text, ((const struct name *)b)->text);
}

/* Spoils the order of the names. */
static bool any_twice(struct name *names, int n)
{
    bool twice = false;

    qsort(names, (size_t)n, sizeof *names, by_text);
    for (int i = 1; i < n; i++)
        twice = twice || by_text(&names[i - 1], &names[i]) == 0;
    return twice;
}

static void name_classes(const struct eval_split *s, struct name *ret)
{
    bool with_id;

    for (int c = 0; c < s->nclasses; c++)
        ret[c] = class_metric(s, c, false);
    with_id = any_twice(ret, s->nclasses);
    for (int c = 0; c < s->nclasses; c++)
        ret[c] = class_metric(s, c, with_id);
}

/* Scores are -1 where there is nothing to score; users read that as null. */
static double score_or_nan(double score)
{
    return score < 0 ? NAN : score;
}

static int add_metrics(const struct eval_split *s, const struct coco_ap *ap, struct metrics *ret, struct err *err)
{
    struct name *names = calloc((size_t)s->nclasses + 1, sizeof *names);
    int rc = names ? 0 : err_set(err, -ENOMEM, "COCO evaluation: out of memory");

    for (int i = 0; i < COCO_STATS && rc >= 0; i++)
        rc = metrics_add(ret, coco_stat_name[i], score_or_nan(ap->stat[i]), err);
    if (rc >= 0)
        name_classes(s, names);
    for (int c = 0; c < s->nclasses && rc >= 0; c++)
        rc = metrics_add(ret, names[c].text, score_or_nan(ap->class_ap50[c]), err);
    free(names);
    return rc;
}

static int coco_score(const struct evaluator *e, void *records, size_t bytes, struct metrics *ret, struct err *err)
{
    const struct eval_split *s = self(e)->split;
    struct coco_ap ap;
    int rc = coco_ap_score(records, bytes / sizeof(struct coco_verdict), s->truths, s->ntruths, s->nclasses, &ap, err);

    if (rc < 0)
        return rc;
    rc = add_metrics(s, &ap, ret, err);
    coco_ap_free(&ap);
    return rc;
}

const struct evaluator_ops coco_boxes = { "COCO boxes", coco_open, coco_add, coco_pack, coco_score, coco_close };
