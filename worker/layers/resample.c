/* SPDX-License-Identifier: Apache-2.0 */ /* worker/layers/resample.c - operations that move or combine pixels or
 * channels. All read pending values. */
#include <assert.h>

#include "worker/layers/layer_op.h"

static void concat_shape(const struct layer_call *c, int shard, struct tensor *y)
{
    for (int i = 1; i < c->nin; i++) {
        const struct tensor *x = &c->in[i]->x[shard];

        assert(x->n == y->n && x->h == y->h && x->w == y->w && x->dtype == y->dtype);
        y->c += x->c;
    }
}

/* The channels of y that input i fills, as a tensor for each shard. */
static struct tensor *slices(const struct layer_call *c, const struct tensor *y, int i)
{
    struct tensor *s = tape_host(c->t, (size_t)c->nshards * sizeof *s);
    int first = 0;

    for (int k = 0; k < i; k++)
        first += c->in[k]->x[0].c;
    for (int v = 0; v < c->nshards; v++) {
        s[v] = y[v];
        s[v].data = (char *)y[v].data + (size_t)first * dtype_bytes(y[v].dtype);
        s[v].c = c->in[i]->x[0].c;
    }
    return s;
}

static int concat_fwd(const struct layer_call *c, struct err *err)
{
    int rc = 0;

    for (int i = 0; i < c->nin && rc >= 0; i++)
        rc = c->dev->on->map->act_fwd(c->dev, ACT_LINEAR, slices(c, c->out->x, i), tape_operands(c->t, c->in[i]), c->nshards, err);
    return rc;
}

static int concat_bwd(const struct layer_call *c, int i, float beta, struct err *err)
{
    return c->dev->on->map->act_bwd(c->dev, ACT_LINEAR, c->in[i]->grad, beta, slices(c, c->out->grad, i), NULL, c->nshards, err);
}

static const struct layer_kind concat = { "concat", 0, concat_shape, concat_fwd, concat_bwd, NULL };

struct value *layer_concat(struct tape *t, struct value *const *parts, int nparts)
{
    return layer_op(t, &concat, parts, nparts, NULL, 0);
}

static void channels_shape(const struct layer_call *c, int shard, struct tensor *y)
{
    (void)shard;
    y->c = *(const int *)c->args;
}

/* All shards of x with only the channels that both sides have. */
static struct tensor *common(const struct layer_call *c, const struct tensor *x)
{
    struct tensor *s = tape_host(c->t, (size_t)c->nshards * sizeof *s);
    int least = c->in[0]->x[0].c < c->out->x[0].c ? c->in[0]->x[0].c : c->out->x[0].c;

    for (int v = 0; v < c->nshards; v++) {
        s[v] = x[v];
        s[v].c = least;
    }
    return s;
}

static int channels_zero(const struct layer_call *c, const struct tensor *x, struct err *err)
{
    int rc = 0;

    for (int v = 0; v < c->nshards && rc >= 0; v++)
        rc = c->dev->ops->zero(c->dev, x[v].data, tensor_pixels(&x[v]) * (size_t)x[v].stride * dtype_bytes(x[v].dtype), err);
    return rc;
}

static int channels_fwd(const struct layer_call *c, struct err *err)
{
    struct operand *from = tape_operands(c->t, c->in[0]);
    struct tensor *to = common(c, c->out->x);
    int rc = to[0].c < c->out->x[0].c ? channels_zero(c, c->out->x, err) : 0;

    for (int v = 0; v < c->nshards; v++)
        from[v].x.c = to[v].c;
    return rc < 0 ? rc : c->dev->on->map->act_fwd(c->dev, ACT_LINEAR, to, from, c->nshards, err);
}

static int channels_bwd(const struct layer_call *c, int i, float beta, struct err *err)
{
    struct tensor *to = common(c, c->in[i]->grad), *from = common(c, c->out->grad);
    int rc = beta == 0.0f && to[0].c < c->in[i]->x[0].c ? channels_zero(c, c->in[i]->grad, err) : 0;

    return rc < 0 ? rc : c->dev->on->map->act_bwd(c->dev, ACT_LINEAR, to, beta, from, NULL, c->nshards, err);
}

static const struct layer_kind channels = { "channels", 0, channels_shape, channels_fwd, channels_bwd, NULL };

struct value *layer_channels(struct tape *t, struct value *x, int c)
{
    return tape_failed(t) || x->x[0].c == c ? x : layer_op(t, &channels, &x, 1, &c, sizeof c);
}

static void upsample_shape(const struct layer_call *c, int shard, struct tensor *y)
{
    const int factor = *(const int *)c->args;

    (void)shard;
    y->h *= factor;
    y->w *= factor;
}

static int upsample_fwd(const struct layer_call *c, struct err *err)
{
    return c->dev->on->resample->upsample_fwd(c->dev, *(const int *)c->args, c->out->x, tape_operands(c->t, c->in[0]), c->nshards, err);
}

static int upsample_bwd(const struct layer_call *c, int i, float beta, struct err *err)
{
    return c->dev->on->resample->upsample_bwd(c->dev, *(const int *)c->args, c->in[i]->grad, beta, c->out->grad, c->nshards, err);
}

static const struct layer_kind upsample = { "upsample", 0, upsample_shape, upsample_fwd, upsample_bwd, NULL };

struct value *layer_upsample(struct tape *t, struct value *x, int factor)
{
    assert(factor >= 1);
    return layer_op(t, &upsample, &x, 1, &factor, sizeof factor);
}

/* ---- mirrored ---- */

enum { MIRROR_PARTS = 4 };

struct mirrored {
    struct mirror part[MIRROR_PARTS];
};

static void mirror_shape(const struct layer_call *c, int shard, struct tensor *y)
{
    const struct mirrored *m = c->args;
    int h = 0, w = 0;

    y->c = 0;
    for (int i = 0; i < c->nin; i++) {
        const struct tensor *x = &c->in[i]->x[shard];
        const struct mirror *part = &m->part[i];

        assert(i == 0 || (x->h * part->factor == h && x->w * part->factor == w && x->n == y->n && x->dtype == y->dtype));
        h = x->h * part->factor;
        w = x->w * part->factor;
        assert(part->pad < h && part->pad < w);
        y->c += x->c;
    }
    y->h = h + 2 * m->part[0].pad;
    y->w = w + 2 * m->part[0].pad;
}

static int mirror_fwd(const struct layer_call *c, struct err *err)
{
    const struct mirrored *m = c->args;
    int rc = 0;

    for (int i = 0; i < c->nin && rc >= 0; i++)
        rc = c->dev->on->resample->mirror_fwd(c->dev, &m->part[i], slices(c, c->out->x, i), tape_operands(c->t, c->in[i]), c->nshards, err);
    return rc;
}

static int mirror_bwd(const struct layer_call *c, int i, float beta, struct err *err)
{
    const struct mirrored *m = c->args;

    return c->dev->on->resample->mirror_bwd(c->dev, &m->part[i], c->in[i]->grad, beta, slices(c, c->out->grad, i), c->nshards, err);
}

static const struct layer_kind mirror = { "mirrored pixels", 0, mirror_shape, mirror_fwd, mirror_bwd, NULL };

struct value *layer_mirror(struct tape *t, struct value *const *parts, const int *factor, int nparts, int pad)
{
    struct mirrored m = { 0 };

    assert(nparts >= 1 && nparts <= MIRROR_PARTS && pad >= 0 && pad <= MIRROR_MAX_PAD);
    for (int i = 0; i < nparts; i++) {
        assert(factor[i] >= 1 && factor[i] <= MIRROR_MAX_FACTOR);
        m.part[i] = (struct mirror){ factor[i], pad };
    }
    return layer_op(t, &mirror, parts, nparts, &m, sizeof m);
}

/* ---- bilinear ---- */

struct sides {
    int h, w;
};

static void resize_shape(const struct layer_call *c, int shard, struct tensor *y)
{
    const struct sides *s = c->args;

    assert(c->in[0]->x[shard].dtype == DTYPE_F32);
    (void)shard;
    y->h = s->h;
    y->w = s->w;
}

static int resize_fwd(const struct layer_call *c, struct err *err)
{
    return c->dev->on->resample->bilinear_fwd(c->dev, c->out->x, tape_operands(c->t, c->in[0]), c->nshards, err);
}

static int resize_bwd(const struct layer_call *c, int i, float beta, struct err *err)
{
    return c->dev->on->resample->bilinear_bwd(c->dev, c->in[i]->grad, beta, c->out->grad, c->nshards, err);
}

static const struct layer_kind resize = { "resized", 0, resize_shape, resize_fwd, resize_bwd, NULL };

struct value *layer_resize(struct tape *t, struct value *x, int h, int w)
{
    bool same = true;

    if (tape_failed(t))
        return NULL;
    assert(h >= 1 && w >= 1);
    for (int s = 0; s < tape_shards(t); s++)
        same = same && x->x[s].h == h && x->x[s].w == w;
    return same ? x : layer_op(t, &resize, &x, 1, &(struct sides){ h, w }, sizeof(struct sides));
}

/* ---- means ---- */

static void mean_shape(const struct layer_call *c, int shard, struct tensor *y)
{
    (void)c, (void)shard;
    y->h = y->w = 1;
}

static int mean_fwd(const struct layer_call *c, struct err *err)
{
    return c->dev->on->resample->mean_fwd(c->dev, *(const float *)c->args, c->out->x, tape_operands(c->t, c->in[0]), c->nshards, err);
}

static int mean_bwd(const struct layer_call *c, int i, float beta, struct err *err)
{
    return c->dev->on->resample->mean_bwd(c->dev, *(const float *)c->args, c->in[i]->grad, beta, c->out->grad, c->nshards, err);
}

static const struct layer_kind mean = { "means of images", 0, mean_shape, mean_fwd, mean_bwd, NULL };

struct value *layer_mean(struct tape *t, struct value *x, float factor)
{
    return layer_op(t, &mean, &x, 1, &factor, sizeof factor);
}
