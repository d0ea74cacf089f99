#include "worker/models/pass.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "worker/core/tree.h"
#include "worker/data/make/batch.h"

struct pass {
    struct pass_options opt;
    int images;           /* images of the last batch */
    struct canvas canvas; /* its canvas */
    double *raw, *host;   /* [opt.images][model->raw_terms]: raw on the device, host its copy */
    double **rows;        /* [opt.images], pointers into raw */
    double *sum;          /* [model->raw_terms] */
    double *each;         /* [opt.images][2 * nterms] */
};

static size_t raw_bytes(const struct pass *p, int images)
{
    return (size_t)images * p->opt.model->raw_terms * sizeof *p->raw;
}

static int open_losses(struct pass *p, struct err *err)
{
    const struct model *m = p->opt.model;
    size_t n = (size_t)p->opt.images;

    p->raw = m->dev->ops->alloc(m->dev, raw_bytes(p, p->opt.images));
    p->host = malloc(raw_bytes(p, p->opt.images));
    p->rows = calloc(n, sizeof *p->rows);
    p->sum = calloc(m->raw_terms, sizeof *p->sum);
    p->each = calloc(n * 2 * (size_t)m->nterms, sizeof *p->each);
    if (!p->raw || !p->host || !p->rows || !p->sum || !p->each)
        return err_set(err, ERR_DEVICE, "out of memory: losses of %d images", p->opt.images);
    for (size_t i = 0; i < n; i++)
        p->rows[i] = p->raw + i * m->raw_terms;
    return 0;
}

int pass_open(const struct pass_options *opt, struct pass **ret, struct err *err)
{
    struct pass *p = calloc(1, sizeof *p);
    int rc;

    if (!p)
        return err_set(err, ERR_DEVICE, "out of memory");
    p->opt = *opt;
    rc = opt->losses ? open_losses(p, err) : 0;
    if (rc < 0)
        pass_close(p);
    else
        *ret = p;
    return rc;
}

void pass_close(struct pass *p)
{
    if (!p)
        return;
    if (p->raw)
        p->opt.model->dev->ops->free(p->opt.model->dev, p->raw);
    free(p->host);
    free(p->rows);
    free(p->sum);
    free(p->each);
    free(p);
}

int pass_run(struct pass *p, const struct batch *b, struct err *err)
{
    const struct model_want want = { .results = p->opt.results, .views = p->opt.views, .raw = p->rows };
    struct model *m = p->opt.model;
    int rc;

    p->images = b->shard[0].n;
    p->canvas = b->shard[0].canvas;
    assert(b->nshards == 1 && p->images <= p->opt.images);
    tape_begin(p->opt.tape, TAPE_EVAL, 1, NULL);
    rc = m->ops->forward(m, p->opt.tape, b, &want, err);
    if (rc >= 0 && p->raw)
        rc = m->dev->ops->download(m->dev, p->host, p->raw, raw_bytes(p, p->images), err);
    return rc;
}

/* A mean over images. Each image counts with its quotient, or with 0 if its denominator is 0. */
static void mean_term(const struct pass *p, int term, int images, double *ret)
{
    size_t stride = 2 * (size_t)p->opt.model->nterms;

    for (int i = 0; i < images; i++) {
        double *r = p->each + (size_t)i * stride + 2 * term;

        r[0] = r[1] != 0 || !isfinite(r[0]) ? r[0] / r[1] : 0; /* infinities and NaNs are kept */
    }
    ret[0] = tree_sum(p->each + 2 * term, stride, images);
    ret[1] = images;
}

/* Moves the rows of the images that count to the front. Returns their number. */
static int rows_that_count(struct pass *p, const bool *left_out)
{
    size_t terms = p->opt.model->raw_terms;
    int n = 0;

    for (int i = 0; i < p->images; i++)
        if (!left_out || !left_out[i])
            memmove(p->host + (size_t)n++ * terms, p->host + (size_t)i * terms, terms * sizeof *p->host);
    return n;
}

void pass_losses(struct pass *p, const bool *left_out, double *ret)
{
    const struct model *m = p->opt.model;
    int images = rows_that_count(p, left_out);

    memset(ret, 0, 2 * (size_t)m->nterms * sizeof *ret);
    if (images == 0)
        return;
    for (size_t k = 0; k < m->raw_terms; k++)
        p->sum[k] = tree_sum(p->host + k, m->raw_terms, images);
    m->ops->sum_terms(m, p->sum, images, ret);
    for (int i = 0; i < images; i++)
        m->ops->sum_terms(m, p->host + (size_t)i * m->raw_terms, 1, p->each + (size_t)i * 2 * (size_t)m->nterms);
    for (int k = 0; k < m->nterms; k++)
        if (m->terms[k].aggregate == TERM_MEAN)
            mean_term(p, k, images, ret + 2 * k);
}

int pass_result(struct pass *p, int i, int32_t index, int w, int h, double least, struct result *ret, struct err *err)
{
    const struct model_picture picture = { index, w, h, place_letterbox(w, h, p->canvas) };

    return p->opt.model->ops->result(p->opt.model, 0, i, &picture, least, ret, err);
}
