#include "worker/eval/boxes/voc_eval.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "proto/err.h"
#include "worker/eval/boxes/voc_ap.h"

struct voc_eval {
    struct evaluator base;
    const struct eval_split *split;
    struct voc_matcher *matcher;
};

static struct voc_eval *self(const struct evaluator *e)
{
    return (struct voc_eval *)e;
}

static void voc_close(struct evaluator *e)
{
    voc_matcher_close(self(e)->matcher);
    free(e);
}

static int voc_open(const struct eval_split *split, struct evaluator **ret, struct err *err)
{
    struct voc_eval *e = calloc(1, sizeof *e);
    int rc = e ? truths_check(split->truths, split->ntruths, split->nclasses, err) : err_set(err, -ENOMEM, "VOC evaluation: out of memory");

    if (rc >= 0)
        rc = voc_matcher_open(split->truths, split->ntruths, 0.5, &e->matcher, err);
    if (rc < 0) {
        free(e);
        return rc;
    }
    e->base.ops = &voc_boxes;
    e->split = split;
    *ret = &e->base;
    return 0;
}

static int voc_add(struct evaluator *e, const struct result *r, struct err *err)
{
    int rc = result_boxes_check(r, self(e)->split->nclasses, err);

    return rc < 0 ? rc : voc_match(self(e)->matcher, r->boxes, (size_t)r->n, err);
}

static const void *voc_pack(const struct evaluator *e, size_t *ret_bytes)
{
    size_t n;
    const struct voc_verdict *v = voc_verdicts(self(e)->matcher, &n);

    *ret_bytes = n * sizeof *v;
    return v;
}

static int voc_score(const struct evaluator *e, void *records, size_t bytes, struct metrics *ret, struct err *err)
{
    const struct eval_split *s = self(e)->split;
    struct voc_ap ap;
    int rc = voc_ap_score(records, bytes / sizeof(struct voc_verdict), s->truths, s->ntruths, s->nclasses, PR_ALL_POINTS, &ap, err);

    if (rc < 0)
        return rc;
    rc = metrics_add(ret, "voc_AP50", ap.map < 0 ? NAN : ap.map, err);
    voc_ap_free(&ap);
    return rc;
}

const struct evaluator_ops voc_boxes = { "VOC boxes", voc_open, voc_add, voc_pack, voc_score, voc_close };
