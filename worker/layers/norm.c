/* SPDX-License-Identifier: Apache-2.0 */ /* worker/layers/norm.c - batch normalisation + leaky activation, pending on a
 * convolution's raw output. */
#include "worker/layers/conv.h"

#include <assert.h>

struct norm_ctx {
    const struct norm *n;
    float **mean, **invstd; /* [nshards] -> [c]; running statistics: the same for all shards */
    double **stats;         /* [nshards] -> [2c + 1]; SyncBN: the same for all shards; NULL: running statistics */
    struct conv cv;         /* the convolution before it, with input x */
    struct param *w;
    struct value *x;
};

/* One array of `bytes` bytes in device memory for each shard. Returns [nshards] pointers. */
static void **shard_arrays(struct tape *t, size_t bytes, const char *what)
{
    int nshards = tape_shards(t);
    void **ret = tape_host(t, (size_t)nshards * sizeof *ret);
    char *mem = tape_device_mem(t, bytes * (size_t)nshards, what);

    if (!mem)
        return NULL;
    for (int s = 0; s < nshards; s++)
        ret[s] = mem + (size_t)s * bytes;
    return ret;
}

/* Merges the sums over all shards of the job. Every local shard then points to the same array. */
static int merged(struct tape *t, enum merge_kind kind, double **local, int n, struct err *err)
{
    const struct tape_hooks *hooks = tape_hooks_of(t);
    double *all = tape_device_mem(t, (size_t)n * sizeof *all, "SyncBN");
    int rc;

    if (!all)
        return tape_status(t, err);
    rc = hooks->merge(hooks->arg, kind, (const double *const *)local, n, all, err);
    for (int s = 0; s < tape_shards(t); s++)
        local[s] = all;
    return rc;
}

/* Memory for the gradient of a frozen parameter, which is never read. */
static float *const *nowhere(struct tape *t, const struct param *p)
{
    int own = tape_device(t)->one_dest ? 0 : 1;
    float **dest = tape_host(t, (size_t)tape_shards(t) * sizeof *dest);
    float *mem = tape_device_mem(t, p->count * (own ? (size_t)tape_shards(t) : 1) * sizeof *mem, p->name);

    for (int s = 0; mem && s < tape_shards(t); s++)
        dest[s] = mem + (size_t)(own * s) * p->count;
    return mem ? dest : NULL;
}

static struct sums_dest sums_dest(struct tape *t, const struct param *p, struct err *err)
{
    struct sums_dest d = { NULL, 0 };

    if (param_trainable(p))
        d.dst = tape_grad_dest(t, p, &d.beta, err);
    else if (!(d.dst = nowhere(t, p)))
        tape_status(t, err);
    return d;
}

/* Computes the sums of each shard, which are the gradients of beta and gamma. */
static int sums_backward(struct tape *t, const struct node *node, const struct operand *x, double *const *sums, struct err *err)
{
    const struct norm_ctx *c = node->ctx;
    const struct param *p[2] = { c->n->beta, c->n->gamma };
    struct device *dev = tape_device(t);
    struct sums_dest dest[2];
    int rc;

    for (int i = 0; i < 2; i++) {
        dest[i] = sums_dest(t, p[i], err);
        if (!dest[i].dst)
            return err->code;
    }
    rc = dev->on->norm->bwd_reduce(dev, sums, dest, x, (const float *const *)c->mean, (const float *const *)c->invstd, node->out->grad,
                                   tape_shards(t), err);
    for (int i = 0; i < 2 && rc >= 0; i++)
        rc = param_trainable(p[i]) ? tape_grad_done(t, p[i], err) : 0;
    return rc;
}

/* True if only the weights need the gradient of the raw output. Then it is computed in pieces: the convolution finds no
 * gradient and does nothing. */
static bool is_read_once(struct tape *t, const struct norm_ctx *c)
{
    return tape_device(t)->on->conv_norm && !c->x->needs_grad && c->w->c < CONV_NORM_CHANNELS;
}

static int norm_backward(struct tape *t, struct node *node, struct err *err)
{
    const struct norm_ctx *c = node->ctx;
    struct device *dev = tape_device(t);
    struct value *v = node->out, *raw = node->in[0];
    const float *const *mean = (const float *const *)c->mean, *const *invstd = (const float *const *)c->invstd;
    const struct operand *x = tape_operands(t, v);
    int nshards = tape_shards(t), nch = (int)v->x[0].c, rc = 0;
    const struct tensor *da;
    double **sums = NULL;

    if (c->stats) {
        sums = (double **)shard_arrays(t, (size_t)nch * 2 * sizeof(double), "normalisation sums");
        if (!sums)
            return tape_status(t, err);
        rc = sums_backward(t, node, x, sums, err);
        if (rc < 0 || !raw->needs_grad)
            return rc;
        if (c->n->sync)
            rc = merged(t, MERGE_SUMS, sums, 2 * nch, err);
    }
    if (rc >= 0 && is_read_once(t, c)) {
        const struct norm_grad grad = { v->grad, x, mean, invstd, (const double *const *)sums, (const double *const *)c->stats };

        return conv_weights_backward(t, &c->cv, c->w, c->x, NULL, &grad, err);
    }
    if (rc >= 0)
        rc = tape_grad_turn(t, v, &da, err);
    if (rc >= 0)
        rc = dev->on->norm->bwd_apply(dev, v->grad, da, x, mean, invstd, (const double *const *)sums, (const double *const *)c->stats,
                                      nshards, err);
    return rc < 0 ? rc : tape_grad_hand_on(t, v, raw, err);
}

/* True if one call computes the statistics and their results, instead of the convolution. SyncBN needs an exchange in
 * between. */
static bool in_one(struct tape *t, const struct norm *n)
{
    return tape_device(t)->on->norm_apart && !n->sync;
}

/* Computes mean, invstd, scale and shift of each shard from batch statistics. */
static int prepare_batch(struct tape *t, const struct value *raw, const struct norm *n, const struct norm_ctx *c, float **scale,
                         float **shift)
{
    struct device *dev = tape_device(t);
    struct err *err = tape_err(t);
    int nch = raw->x[0].c, rc;

    if (in_one(t, n))
        return dev->on->norm_apart->batch(dev, c->stats, c->mean, c->invstd, scale, shift, raw->x, n->gamma->data, n->beta->data, n->eps,
                                          tape_shards(t), err);
    rc = n->sync ? merged(t, MERGE_MOMENTS, c->stats, 2 * nch + 1, err) : 0;
    if (rc < 0)
        return rc;
    return dev->on->norm->prepare(dev, c->mean, c->invstd, scale, shift, (const double *const *)c->stats, n->gamma->data, n->beta->data,
                                  n->eps, nch, tape_shards(t), err);
}

static int prepare_running(struct tape *t, const struct norm *n, const struct norm_ctx *c, float **scale, float **shift)
{
    struct device *dev = tape_device(t);

    for (int s = 0; s < tape_shards(t); s++) {
        c->mean[s] = n->mean->data;
        c->invstd[s] = c->invstd[0];
        scale[s] = scale[0];
        shift[s] = shift[0];
    }
    return dev->on->norm->prepare_running(dev, c->invstd[0], scale[0], shift[0], n->mean->data, n->var->data, n->gamma->data, n->beta->data,
                                          n->eps, (int)n->mean->count, tape_err(t));
}

static struct value *norm_act(struct tape *t, struct value *raw, const struct norm *n, double **stats, float slope,
                              const struct norm_ctx *conv)
{
    int nshards = tape_shards(t), nch = raw->x[0].c, rc;
    size_t bytes = (size_t)nch * sizeof(float);
    struct norm_ctx *c = tape_host(t, sizeof *c);
    struct affine *act = tape_host(t, (size_t)nshards * sizeof *act);
    float **scale = (float **)shard_arrays(t, bytes, "normalisation"), **shift = (float **)shard_arrays(t, bytes, "normalisation");
    struct value *v;

    *c = *conv;
    c->n = n;
    c->stats = stats;
    c->mean = (float **)shard_arrays(t, bytes, "normalisation");
    c->invstd = (float **)shard_arrays(t, bytes, "normalisation");
    if (tape_failed(t))
        return NULL;
    rc = stats ? prepare_batch(t, raw, n, c, scale, shift) : prepare_running(t, n, c, scale, shift);
    if (tape_fail(t, rc, tape_err(t)) < 0)
        return NULL;
    for (int s = 0; s < nshards; s++)
        act[s] = (struct affine){ scale[s], shift[s], tape_constant(t, slope, nch) };
    if (c->stats) {
        tape_use(t, n->gamma);
        tape_use(t, n->beta);
    }
    v = tape_alias(t, raw, act, raw->needs_grad || (c->stats && (param_trainable(n->gamma) || param_trainable(n->beta))));
    tape_record(t, norm_backward, v, &raw, 1, READS_OUTPUT, c);
    if (c->stats)
        tape_takes_pooled(t, v);
    tape_drop(t, raw);
    return v;
}

/* The destinations of this layer's batch statistics, one for each local shard. */
static double **stats_dest(struct tape *t, const struct norm *n)
{
    const struct tape_hooks *hooks = tape_hooks_of(t);
    double **stats = tape_host(t, (size_t)tape_shards(t) * sizeof *stats);
    int use = tape_norm_use(t, n->index);

    assert(use < n->uses);
    for (int s = 0; s < tape_shards(t); s++)
        stats[s] = hooks->stats_dest(hooks->arg, n->index, use, s);
    return stats;
}

struct value *layer_conv_norm(struct tape *t, struct value *x, const struct conv *cv, struct param *w, const struct norm *n, float slope)
{
    bool running = n->frozen || tape_mode_of(t) == TAPE_EVAL;
    double **stats = NULL;
    struct value *raw;

    if (tape_failed(t))
        return NULL;
    if (!running)
        stats = stats_dest(t, n);
    raw = conv_raw(t, x, cv, w, NULL, in_one(t, n) ? NULL : stats);
    return raw ? norm_act(t, raw, n, stats, slope, &(struct norm_ctx){ .cv = *cv, .w = w, .x = x }) : NULL;
}
