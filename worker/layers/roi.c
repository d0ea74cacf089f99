/* SPDX-License-Identifier: Apache-2.0 */ /* worker/layers/roi.c - RoIAlign over the levels of a feature pyramid. One
 * call computes all levels, forward and backward; backward adds to the gradient of each level. */
#include "worker/layers/layers.h"

#include <assert.h>
#include <string.h>

struct recorded {
    struct roi_align roi;
    struct roi_rows *rows; /* [nshards] */
};

static void check(const struct tape *t, struct value *const *level, const struct roi_align *roi)
{
    assert(roi->nlevels >= 1 && roi->nlevels <= ROI_MAX_LEVELS && roi->pool >= 1 && roi->pool <= ROI_MAX_POOL && roi->sampling >= 0);
    for (int l = 0; l < roi->nlevels; l++)
        for (int s = 0; s < tape_shards(t); s++) {
            const struct tensor *x = &level[l]->x[s], *first = &level[0]->x[s];

            assert(x->n == first->n && x->c == first->c && x->dtype == first->dtype);
            (void)x, (void)first;
        }
}

static int backward(struct tape *t, struct node *n, struct err *err)
{
    const struct recorded *r = n->ctx;
    struct device *dev = tape_device(t);
    struct tensor *dx[ROI_MAX_LEVELS] = { NULL };
    float beta[ROI_MAX_LEVELS] = { 0 };
    int rc = 0;

    for (int l = 0; l < r->roi.nlevels && rc >= 0; l++) {
        if (!n->in[l]->needs_grad)
            continue;
        rc = tape_grad(t, n->in[l], &beta[l], err);
        dx[l] = n->in[l]->grad;
    }
    return rc < 0 ? rc : dev->on->roi->align_bwd(dev, &r->roi, dx, beta, n->out->grad, r->rows, tape_shards(t), err);
}

/* Makes the value for the output. */
static struct value *output(struct tape *t, struct value *const *level, const struct roi_align *roi, const struct roi_rows *rows)
{
    struct tensor *y = tape_host(t, (size_t)tape_shards(t) * sizeof *y);
    bool needs_grad = false;

    for (int l = 0; l < roi->nlevels; l++)
        needs_grad = needs_grad || level[l]->needs_grad;
    for (int s = 0; s < tape_shards(t); s++) {
        y[s] = level[0]->x[s];
        y[s].n = rows[s].cap;
        y[s].h = y[s].w = roi->pool;
        y[s].rows = rows[s].count;
    }
    return tape_value(t, y, needs_grad, "roi_align");
}

struct value *layer_roi_align(struct tape *t, struct value *const *level, const struct roi_align *roi, const struct roi_rows *rows)
{
    size_t bytes = (size_t)tape_shards(t) * sizeof *rows;
    const struct tensor *x[ROI_MAX_LEVELS];
    struct device *dev = tape_device(t);
    struct recorded *r;
    struct value *out;

    if (tape_failed(t))
        return NULL;
    check(t, level, roi);
    for (int l = 0; l < roi->nlevels; l++) {
        x[l] = tape_plain(t, level[l]);
        if (!x[l])
            return NULL;
    }
    out = output(t, level, roi, rows);
    if (!out || tape_fail(t, dev->on->roi->align_fwd(dev, roi, out->x, x, rows, tape_shards(t), tape_err(t)), tape_err(t)) < 0)
        return NULL;
    r = tape_host(t, sizeof *r);
    r->roi = *roi;
    r->rows = tape_host(t, bytes);
    memcpy(r->rows, rows, bytes);
    tape_record(t, backward, out, level, roi->nlevels, 0, r);
    return out;
}
