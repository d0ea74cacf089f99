/* SPDX-License-Identifier: Apache-2.0 */ /* worker/layers/smooth.c - edge-aware smoothness of disparities, and the
 * regularisation of features. */
#include "worker/layers/depth.h"

#include <assert.h>

#include "worker/ops/families.h"

/* ret[s] points to `each` doubles for every image of shard s. */
static double **image_arrays(struct tape *t, const struct tensor *x, size_t each)
{
    double **ret = tape_host(t, (size_t)tape_shards(t) * sizeof *ret);
    size_t images = 0;
    double *mem;

    for (int s = 0; s < tape_shards(t); s++)
        images += (size_t)x[s].n;
    mem = tape_device_mem(t, images * each * sizeof *mem, "smoothness");
    if (!mem)
        return NULL;
    for (int s = 0; s < tape_shards(t); s++) {
        ret[s] = mem;
        mem += (size_t)x[s].n * each;
    }
    return ret;
}

static struct value *edges_of(struct tape *t, const struct tensor *x, const struct tensor *picture, const struct smoothness *s)
{
    struct device *dev = tape_device(t);
    struct tensor *shape = tape_host(t, (size_t)tape_shards(t) * sizeof *shape);
    int *images = tape_host(t, (size_t)tape_shards(t) * sizeof *images);
    struct value *edge;

    for (int v = 0; v < tape_shards(t); v++) {
        assert(x[v].dtype == DTYPE_F32 && picture[v].dtype == DTYPE_F32 && picture[v].c == 3 && picture[v].n == x[v].n);
        assert(x[v].h >= 2 && x[v].w >= 2 && picture[v].h >= x[v].h && picture[v].w >= x[v].w && (!s->normalise || x[v].c == 1));
        shape[v] = x[v];
        shape[v].c = SMOOTH_EDGES;
        images[v] = tape_mode_of(t) == TAPE_EVAL ? 1 : x[v].n;
    }
    edge = tape_dense(t, shape, "smoothness");
    if (!edge ||
        tape_fail(t, dev->on->smooth->edges(dev, s, edge->x, picture, x[0].c, images, tape_shards(t), tape_err(t)), tape_err(t)) < 0)
        return NULL;
    return edge;
}

/* Computes the gradient of x in the same call. */
static int put_gradient(struct tape *t, struct value *x, const struct smoothness *s, float scale, double *const *sums,
                        const struct smooth_in *in)
{
    struct device *dev = tape_device(t);
    float beta;
    int rc = tape_grad(t, x, &beta, tape_err(t));

    if (rc >= 0)
        rc = dev->on->smooth->bwd(dev, s, x->grad, beta, scale, sums, in, tape_shards(t), tape_err(t));
    return tape_fail(t, rc, tape_err(t));
}

int layer_smoothness(struct tape *t, struct value *x, const struct tensor *picture, const struct smoothness *s, float grad_scale,
                     double *const *ret)
{
    struct device *dev = tape_device(t);
    bool apart = tape_mode_of(t) == TAPE_EVAL;
    double **sums, **part;
    struct smooth_in in;
    struct value *edge;
    int rc;

    if (tape_failed(t))
        return tape_status(t, tape_err(t));
    in.x = tape_plain(t, x);
    edge = in.x ? edges_of(t, in.x, picture, s) : NULL;
    sums = edge ? image_arrays(t, in.x, SMOOTH_SUMS) : NULL;
    part = sums ? image_arrays(t, in.x, (size_t)in.x[0].h * (size_t)in.x[0].w * SMOOTH_SUMS) : NULL;
    if (!part)
        return tape_status(t, tape_err(t));
    in.edge = edge->x;
    rc = dev->on->smooth->sums(dev, sums, part, &in, tape_shards(t), tape_err(t));
    if (rc >= 0)
        rc = dev->on->smooth->loss(dev, s, ret, apart, sums, &in, tape_shards(t), tape_err(t));
    rc = tape_fail(t, rc, tape_err(t));
    if (rc >= 0 && !apart && x->needs_grad)
        rc = put_gradient(t, x, s, grad_scale, sums, &in);
    tape_drop(t, edge);
    return rc;
}
