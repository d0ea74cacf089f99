/* SPDX-License-Identifier: Apache-2.0 */ /* cuda/photo_loss.cu - losses that take the least of several candidates: a
 * thread, or half a warp, for each pixel; half a warp for the sum of each row; a block for the tree of each shard. */
#include "cuda/cuda.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/vec.h"
#include "worker/core/carve.h"
#include "worker/kernels/photo.h"

enum { THREADS = 256 };

#define FULL 0xFFFFFFFFu /* all lanes of a warp */

/* Numbers of a pixel: at data + pixel * stride. */
struct pixels {
    float *data;
    int stride;
};

struct loss_shard {
    struct pixels identity[PHOTO_MAX_SOURCES], warped[PHOTO_MAX_SOURCES], target;
    struct pixels dwarped[PHOTO_MAX_SOURCES], dtarget; /* NULL: not wanted */
    const struct philox_key *key[PHOTO_MAX_SOURCES];   /* keys of the shard's images */
    float *value;                                      /* [pixels] */
    double *rows, *ret;                                /* [n h] */
    int n, h, w, c;
    float grad; /* of a pixel */
};

struct photo_loss_args {
    const struct loss_shard *shard;
    int nidentity, nwarped;
    enum automask_kind kind;
    float sigma, noise_scale, weight;
    float beta[PHOTO_MAX_SOURCES], beta_target;
};

DEVICE_FN float *at_pixel(struct pixels p, unsigned pixel)
{
    return p.data + (size_t)pixel * (size_t)p.stride;
}

DEVICE_FN unsigned pixels_of(const struct loss_shard *s)
{
    return (unsigned)s->n * (unsigned)s->h * (unsigned)s->w;
}

// ---- the least of maps ----

static __global__ void __launch_bounds__(THREADS) least_kernel(const struct photo_loss_args a)
{
    const struct loss_shard *s = &a.shard[blockIdx.y];
    unsigned pixel = blockIdx.x * THREADS + threadIdx.x, size = (unsigned)s->h * (unsigned)s->w;
    int chosen = 0;
    float best = 0.0f;

    if (pixel >= pixels_of(s))
        return;
    for (int i = 0; i < a.nidentity + a.nwarped; i++) {
        float v = *at_pixel(i < a.nidentity ? s->identity[i] : s->warped[i - a.nidentity], pixel);

        if (i < a.nidentity && a.kind != AUTOMASK_NONE)
            v += photo_noise(a.kind, s->key[i] + pixel / size, pixel % size, a.sigma, a.noise_scale);
        if (i == 0 || photo_less(v, best)) {
            best = v;
            chosen = i;
        }
    }
    s->value[pixel] = best;
    for (int i = 0; i < a.nwarped; i++)
        if (s->dwarped[i].data)
            *at_pixel(s->dwarped[i], pixel) = chosen == a.nidentity + i ? s->grad : 0.0f;
}

// ---- the nearest features: half a warp for each pixel ----

/* The sum of the lanes of half a warp, added in pairs. */
template <typename T> DEVICE_FN T sum_half(T x)
{
    for (int step = 1; step < PHOTO_LANES; step *= 2)
        x += __shfl_xor_sync(FULL, x, step);
    return x;
}

DEVICE_FN void add_slope(float *dst, float beta, float d, float g)
{
    *dst = act_store(beta, dst, g * (d / robust(d)));
}

DEVICE_FN void pixel_grads(const struct photo_loss_args *a, const struct loss_shard *s, unsigned pixel, int chosen, int lane)
{
    const float *x = at_pixel(s->warped[chosen], pixel), *b = at_pixel(s->target, pixel);

    for (int k = lane; k < s->c; k += PHOTO_LANES) {
        float d = x[k] - b[k];

        for (int i = 0; i < a->nwarped; i++) {
            float *dst = s->dwarped[i].data ? at_pixel(s->dwarped[i], pixel) + k : NULL;

            if (dst && i == chosen)
                add_slope(dst, a->beta[i], d, s->grad);
            else if (dst)
                *dst = act_store(a->beta[i], dst, 0.0f);
        }
        if (s->dtarget.data)
            add_slope(at_pixel(s->dtarget, pixel) + k, a->beta_target, d, -s->grad);
    }
}

static __global__ void __launch_bounds__(THREADS) nearest_kernel(const struct photo_loss_args a)
{
    const struct loss_shard *s = &a.shard[blockIdx.y];
    unsigned pixel = (blockIdx.x * THREADS + threadIdx.x) / PHOTO_LANES;
    int lane = (int)threadIdx.x % PHOTO_LANES, chosen = 0;
    bool inside = pixel < pixels_of(s);
    float best = 0.0f;

    for (int i = 0; i < a.nwarped; i++) {
        float sum = 0.0f;

        for (int k = lane; inside && k < s->c; k += PHOTO_LANES)
            sum += robust(at_pixel(s->warped[i], pixel)[k] - at_pixel(s->target, pixel)[k]);
        sum = sum_half(sum) * (1.0f / (float)s->c);
        if (i == 0 || photo_less(sum, best)) {
            best = sum;
            chosen = i;
        }
    }
    if (!inside)
        return;
    if (lane == 0)
        s->value[pixel] = best;
    pixel_grads(&a, s, pixel, chosen, lane);
}

// ---- sums ----

static __global__ void __launch_bounds__(THREADS) row_kernel(const struct photo_loss_args a)
{
    const struct loss_shard *s = &a.shard[blockIdx.y];
    unsigned row = (blockIdx.x * THREADS + threadIdx.x) / PHOTO_LANES;
    int lane = (int)threadIdx.x % PHOTO_LANES;
    bool inside = row < (unsigned)(s->n * s->h);
    double sum = 0.0;

    for (int x = lane; inside && x < s->w; x += PHOTO_LANES)
        sum += (double)s->value[(size_t)row * (size_t)s->w + (size_t)x];
    sum = sum_half(sum);
    if (inside && lane == 0)
        s->rows[row] = sum;
}

/* Adds like tree_sum(). */
static __global__ void __launch_bounds__(THREADS) tree_kernel(const struct photo_loss_args a)
{
    const struct loss_shard *s = &a.shard[blockIdx.x];
    int n = s->n * s->h;

    for (int step = 1; step < n; step *= 2) {
        int pairs = (n - step + 2 * step - 1) / (2 * step);

        for (int i = (int)threadIdx.x; i < pairs; i += THREADS)
            s->rows[(size_t)i * 2 * (size_t)step] += s->rows[((size_t)i * 2 + 1) * (size_t)step];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        *s->ret = (double)a.weight * (s->rows[0] / (double)pixels_of(s));
}

// ---- launching ----

struct loss_call {
    struct photo_loss_args a;
    struct loss_shard *shard; /* host, [nshards] */
    int nshards;
    size_t pixels, rows; /* of the largest shard */
    cudaStream_t stream;
};

static int call_open(struct loss_call *c, int nshards, struct err *err)
{
    memset(c, 0, sizeof *c);
    c->nshards = nshards;
    c->shard = (struct loss_shard *)calloc((size_t)nshards, sizeof *c->shard);
    return c->shard ? 0 : err_set(err, -ENOMEM, "out of memory: photo");
}

static struct pixels pixels_at(const struct tensor *t, int v)
{
    struct pixels p = { t ? (float *)t[v].data : NULL, t ? t[v].stride : 0 };

    return p;
}

/* Sets the sizes and weights of all shards from one of their tensors. */
static void set_sides(struct loss_call *c, const struct tensor *t, float weight, float grad_scale, double *const *ret)
{
    c->a.weight = weight;
    for (int v = 0; v < c->nshards; v++) {
        struct loss_shard *s = &c->shard[v];
        size_t pixels = tensor_pixels(&t[v]), rows = (size_t)t[v].n * (size_t)t[v].h;

        s->n = t[v].n;
        s->h = t[v].h;
        s->w = t[v].w;
        s->c = t[v].c;
        s->ret = ret[v];
        s->grad = photo_pixel_grad(weight, grad_scale, pixels);
        c->pixels = pixels > c->pixels ? pixels : c->pixels;
        c->rows = rows > c->rows ? rows : c->rows;
    }
}

/* Gives each shard a piece of scratch. base NULL: only counts. */
static void lay_out(struct loss_call *c, struct carve *at)
{
    for (int v = 0; v < c->nshards; v++) {
        struct loss_shard *s = &c->shard[v];
        size_t rows = (size_t)s->n * (size_t)s->h;

        s->value = (float *)carve(at, rows * (size_t)s->w * sizeof *s->value);
        s->rows = (double *)carve(at, rows * sizeof *s->rows);
    }
}

static int call_start(struct loss_call *c, struct device *dev, struct err *err)
{
    struct carve at = { NULL, 0 };

    lay_out(c, &at);
    at.base = (char *)cuda_scratch(dev, at.used, "photo_loss", err);
    if (!at.base)
        return -ENOMEM;
    at.used = 0;
    lay_out(c, &at);
    c->stream = cuda_device(dev)->stream;
    c->a.shard = (const struct loss_shard *)cuda_table(dev, c->shard, (size_t)c->nshards * sizeof *c->shard, err);
    return c->a.shard ? 0 : err->code;
}

static int finish(struct loss_call *c, const char *what, struct err *err)
{
    CUDA_LAUNCH(row_kernel, dim3(cuda_blocks(c->rows * PHOTO_LANES, THREADS), (unsigned)c->nshards), THREADS, c->stream, c->a);
    CUDA_LAUNCH(tree_kernel, (unsigned)c->nshards, THREADS, c->stream, c->a);
    return cuda_check(cudaPeekAtLastError(), what, err);
}

/* Puts the keys of all images of all sources on the device. */
static int set_keys(struct loss_call *c, struct device *dev, const struct photo_maps *in, struct err *err)
{
    const struct philox_key *key;
    int n = 0;

    if (in->noise.kind == AUTOMASK_NONE)
        return 0;
    for (int v = 0; v < c->nshards; v++)
        n += c->shard[v].n;
    for (int i = 0; i < in->nidentity; i++) {
        key = (const struct philox_key *)cuda_table(dev, in->noise.key[i], (size_t)n * sizeof *key, err);
        if (!key)
            return err->code;
        for (int v = 0; v < c->nshards; key += c->shard[v++].n)
            c->shard[v].key[i] = key;
    }
    return 0;
}

static int least(struct loss_call *c, struct device *dev, const struct photo_maps *in, struct tensor *const *dwarped, float weight,
                 float grad_scale, double *const *ret, struct err *err)
{
    int rc;

    set_sides(c, in->warped[0], weight, grad_scale, ret);
    c->a.nidentity = in->nidentity;
    c->a.nwarped = in->nwarped;
    c->a.kind = in->noise.kind;
    c->a.sigma = in->noise.sigma;
    c->a.noise_scale = photo_uniform_scale(in->noise.sigma);
    for (int v = 0; v < c->nshards; v++) {
        for (int i = 0; i < in->nidentity; i++)
            c->shard[v].identity[i] = pixels_at(in->identity[i], v);
        for (int i = 0; i < in->nwarped; i++) {
            c->shard[v].warped[i] = pixels_at(in->warped[i], v);
            c->shard[v].dwarped[i] = pixels_at(dwarped ? dwarped[i] : NULL, v);
        }
    }
    rc = set_keys(c, dev, in, err);
    if (rc == 0)
        rc = call_start(c, dev, err);
    if (rc < 0)
        return rc;
    CUDA_LAUNCH(least_kernel, dim3(cuda_blocks(c->pixels, THREADS), (unsigned)c->nshards), THREADS, c->stream, c->a);
    return finish(c, "photo_least", err);
}

int cuda_photo_least(struct device *dev, const struct photo_maps *in, struct tensor *const *dwarped, float weight, float grad_scale,
                     double *const *ret, int nshards, struct err *err)
{
    struct loss_call c;
    int rc = call_open(&c, nshards, err);

    if (rc == 0)
        rc = least(&c, dev, in, dwarped, weight, grad_scale, ret, err);
    free(c.shard);
    return rc;
}

static int nearest(struct loss_call *c, struct device *dev, const struct photo_features *in, const struct photo_grads *to, float weight,
                   float grad_scale, double *const *ret, struct err *err)
{
    int rc;

    set_sides(c, in->target, weight, grad_scale, ret);
    c->a.nwarped = in->nwarped;
    c->a.beta_target = to ? to->beta_target : 0.0f;
    for (int i = 0; i < in->nwarped; i++)
        c->a.beta[i] = to ? to->beta[i] : 0.0f;
    for (int v = 0; v < c->nshards; v++) {
        struct loss_shard *s = &c->shard[v];

        s->grad *= 1.0f / (float)s->c;
        s->target = pixels_at(in->target, v);
        s->dtarget = pixels_at(to ? to->target : NULL, v);
        for (int i = 0; i < in->nwarped; i++) {
            s->warped[i] = pixels_at(in->warped[i], v);
            s->dwarped[i] = pixels_at(to ? to->warped[i] : NULL, v);
        }
    }
    rc = call_start(c, dev, err);
    if (rc < 0)
        return rc;
    CUDA_LAUNCH(nearest_kernel, dim3(cuda_blocks(c->pixels * PHOTO_LANES, THREADS), (unsigned)c->nshards), THREADS, c->stream, c->a);
    return finish(c, "photo_nearest", err);
}

int cuda_photo_nearest(struct device *dev, const struct photo_features *in, const struct photo_grads *to, float weight, float grad_scale,
                       double *const *ret, int nshards, struct err *err)
{
    struct loss_call c;
    int rc = call_open(&c, nshards, err);

    if (rc == 0)
        rc = nearest(&c, dev, in, to, weight, grad_scale, ret, err);
    free(c.shard);
    return rc;
}
