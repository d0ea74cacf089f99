#include "worker/eval/depth/depth_eval.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "proto/err.h"
#include "proto/grow.h"
#include "worker/eval/depth_metrics.h"

/* The record of one picture that is sent to rank 0. */
struct depth_record {
    int64_t image;
    struct depth_score score;
};

struct depth_eval {
    struct evaluator base;
    const struct eval_depths *depths; /* NULL: no depths */
    int nimages;
    struct depth_record *records; /* [n] */
    size_t n, room;
};

static struct depth_eval *self(const struct evaluator *e)
{
    return (struct depth_eval *)e;
}

static void depth_close(struct evaluator *e)
{
    free(self(e)->records);
    free(e);
}

static int depth_open(const struct eval_split *split, struct evaluator **ret, struct err *err)
{
    struct depth_eval *e = calloc(1, sizeof *e);

    if (!e)
        return err_set(err, -ENOMEM, "depth evaluation: out of memory");
    e->base.ops = &depth_maps;
    e->depths = split->depths;
    e->nimages = split->nimages;
    *ret = &e->base;
    return 0;
}

static int keep(struct depth_eval *e, const struct depth_record *r, struct err *err)
{
    if (!GROW(e->records, e->room, e->n + 1))
        return err_set(err, -ENOMEM, "depth evaluation: out of memory");
    e->records[e->n++] = *r;
    return 0;
}

static int depth_add(struct evaluator *base, const struct result *r, struct err *err)
{
    struct depth_eval *e = self(base);
    struct depth_record record = { .image = r->image };
    struct eval_depth truth = { 0 };
    int rc;

    if (r->kind != RESULT_DEPTH)
        return err_set(err, ERR_INPUT, "a result without depth");
    if (r->image < 0 || r->image >= e->nimages)
        return err_set(err, ERR_INPUT, "depth of picture %d, of %d", r->image, e->nimages);
    rc = e->depths ? e->depths->read(e->depths->of, r->image, &truth, err) : 0;
    if (rc < 0 || !truth.metres)
        return rc;
    if (truth.w != r->depth.w || truth.h != r->depth.h)
        return err_set(err, ERR_DATA, "picture %d: the measured depth is %d x %d pixels, the picture %d x %d", r->image, truth.w, truth.h,
                       r->depth.w, r->depth.h);
    rc = depth_score(&e->depths->rule, &r->depth, truth.metres, &record.score, err);
    return rc < 0 || record.score.pixels == 0 ? rc : keep(e, &record, err);
}

static const void *depth_pack(const struct evaluator *e, size_t *ret_bytes)
{
    *ret_bytes = self(e)->n * sizeof *self(e)->records;
    return self(e)->records;
}

/* ---- all pictures ---- */

static int by_image(const void *a, const void *b)
{
    const struct depth_record *x = a, *y = b;

    return x->image < y->image ? -1 : x->image > y->image;
}

static int ascending(const void *a, const void *b)
{
    const double *x = a, *y = b;

    return *x < *y ? -1 : *x > *y;
}

/* Adds the median of the ratios, and their standard deviation divided by the median. */
static int ratios_score(const struct depth_record *r, size_t n, struct metrics *ret, struct err *err)
{
    double *ratio = malloc((n + 1) * sizeof *ratio), median, mean = 0, square = 0;
    int rc;

    if (!ratio)
        return err_set(err, -ENOMEM, "depth evaluation: out of memory");
    for (size_t i = 0; i < n; i++)
        ratio[i] = r[i].score.ratio;
    qsort(ratio, n, sizeof *ratio, ascending);
    median = n % 2 ? ratio[n / 2] : (ratio[n / 2 - 1] + ratio[n / 2]) / 2;
    for (size_t i = 0; i < n; i++)
        mean += ratio[i] / median / (double)n;
    for (size_t i = 0; i < n; i++)
        square += (ratio[i] / median - mean) * (ratio[i] / median - mean) / (double)n;
    free(ratio);
    rc = metrics_add(ret, "scale_median", median, err);
    return rc < 0 ? rc : metrics_add(ret, "scale_std", sqrt(square), err);
}

static int depth_scores(const struct evaluator *e, void *records, size_t bytes, struct metrics *ret, struct err *err)
{
    struct depth_record *r = records;
    size_t n = bytes / sizeof *r;
    int rc = 0;

    if (!self(e)->depths)
        return 0;
    if (n > 0)
        qsort(r, n, sizeof *r, by_image);
    for (int k = 0; k < DEPTH_SCORES && rc >= 0; k++) {
        double sum = 0;

        for (size_t i = 0; i < n; i++)
            sum += r[i].score.value[k];
        rc = metrics_add(ret, depth_score_name[k], n ? sum / (double)n : NAN, err);
    }
    if (rc >= 0 && n > 0)
        rc = ratios_score(r, n, ret, err);
    return rc < 0 ? rc : metrics_add(ret, "depth_images", (double)n, err);
}

const struct evaluator_ops depth_maps = { "depth", depth_open, depth_add, depth_pack, depth_scores, depth_close };
