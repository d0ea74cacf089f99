/* SPDX-License-Identifier: Apache-2.0 */ /* cuda/norm.cu - batch normalisation: scale and shift from statistics, sums
 * of shards, the second pass of backward, running statistics. The sums over pixels are in norm_sums.cu. fp32 gives the
 * bits of worker/cpu/norm.c. */
#include <errno.h>
#include <stdlib.h>

#include "cuda/fold.h"
#include "cuda/norm.h"

enum {
    CHANNEL_THREADS = 128, /* block size of kernels with a thread per channel */
    APPLY_RUN = 8,         /* pixels per thread */
    APPLY_AHEAD = 4,       /* pixels loaded at once */
    ROWS_AT_ONCE = 64      /* pointers in the arguments of a launch; more go in a table */
};

/* ---- one thread a channel ---- */

struct prepare_shard {
    const double *stats;
    struct norm_vectors to;
};

struct prepare_args {
    struct prepare_shard shard[SHARDS_AT_ONCE];
    const float *gamma, *beta;
    float eps;
    int c;
};

static __global__ void prepare_kernel(struct prepare_args a)
{
    const struct prepare_shard *s = &a.shard[blockIdx.y];
    int k = (int)(blockIdx.x * blockDim.x + threadIdx.x);

    if (k < a.c)
        norm_put(&s->to, k, norm_channel(s->stats[1 + k], s->stats[1 + a.c + k] / s->stats[0], a.gamma[k], a.beta[k], a.eps));
}

int cuda_norm_prepare(struct device *dev, float *const *mean, float *const *invstd, float *const *scale, float *const *shift,
                      const double *const *stats, const float *gamma, const float *beta, float eps, int c, int nshards, struct err *err)
{
    struct prepare_args a;

    a.gamma = gamma;
    a.beta = beta;
    a.eps = eps;
    a.c = c;
    for (int first = 0, n; first < nshards; first += n) {
        n = norm_at_once(nshards - first);
        for (int i = 0; i < n; i++) {
            struct prepare_shard s = { stats[first + i], { mean[first + i], invstd[first + i], scale[first + i], shift[first + i] } };

            a.shard[i] = s;
        }
        CUDA_LAUNCH(prepare_kernel, dim3(cuda_blocks((size_t)c, CHANNEL_THREADS), (unsigned)n), dim3(CHANNEL_THREADS),
                    cuda_device(dev)->stream, a);
    }
    return norm_checked("norm_prepare", err);
}

static __global__ void prepare_running_kernel(float *invstd, float *scale, float *shift, const float *mean, const float *var,
                                              const float *gamma, const float *beta, float eps, int c)
{
    int k = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    struct norm_channel n;

    if (k >= c)
        return;
    n = norm_channel((double)mean[k], (double)var[k], gamma[k], beta[k], eps);
    invstd[k] = n.invstd;
    scale[k] = n.scale;
    shift[k] = n.shift;
}

int cuda_norm_prepare_running(struct device *dev, float *invstd, float *scale, float *shift, const float *mean, const float *var,
                              const float *gamma, const float *beta, float eps, int c, struct err *err)
{
    CUDA_LAUNCH(prepare_running_kernel, dim3(cuda_blocks((size_t)c, CHANNEL_THREADS)), dim3(CHANNEL_THREADS), cuda_device(dev)->stream,
                invstd, scale, shift, mean, var, gamma, beta, eps, c);
    return norm_checked("norm_prepare_running", err);
}

/* Arrays of doubles, one for each shard of the job. */
struct rows {
    const double *at[ROWS_AT_ONCE];
    const double *const *table; /* device memory; NULL: at[] */
    int n;
};

DEVICE_FN const double *row(const struct rows *r, int i)
{
    return r->table ? r->table[i] : r->at[i];
}

static int rows_make(struct device *dev, struct rows *ret, const double *const *p, int n, struct err *err)
{
    ret->n = n;
    ret->table = NULL;
    for (int i = 0; i < n && i < ROWS_AT_ONCE; i++)
        ret->at[i] = p[i];
    if (n <= ROWS_AT_ONCE)
        return 0;
    ret->table = (const double *const *)cuda_table(dev, p, (size_t)n * sizeof *p, err);
    return ret->table ? 0 : err->code;
}

/* FOLD_AHEAD rows of statistics at one channel. They are loaded together: these kernels mostly wait for memory. */
struct stats_rows {
    double count[FOLD_AHEAD], mean[FOLD_AHEAD], m2[FOLD_AHEAD];
};

/* Reads up to FOLD_AHEAD rows from `first` on. Returns the number of all rows from there. */
DEVICE_FN unsigned stats_read(struct stats_rows *ret, const struct rows *r, size_t at, int first, int c, int k)
{
#pragma unroll
    for (int i = 0; i < FOLD_AHEAD; i++)
        if (first + i < r->n) {
            const double *s = row(r, first + i) + at;

            ret->count[i] = s[0];
            ret->mean[i] = s[1 + k];
            ret->m2[i] = s[1 + c + k];
        }
    return (unsigned)(r->n - first);
}

/* Computes tree_moments_channel(). */
DEVICE_FN struct moments merged_channel(const struct rows *r, size_t at, int c, int k)
{
    struct moments a[FOLD_AHEAD];
    fold<struct moments> f;
    struct stats_rows s;

    fold_start(&f);
    for (int first = 0; first < r->n; first += FOLD_AHEAD) {
        unsigned n = stats_read(&s, r, at, first, c, k);

#pragma unroll
        for (int i = 0; i < FOLD_AHEAD; i++) {
            a[i].count = s.count[i];
            a[i].mean = s.mean[i];
            a[i].m2 = s.m2[i];
        }
        fold_some(&f, a, n);
    }
    return fold_finish(&f);
}

static __global__ void __launch_bounds__(CHANNEL_THREADS) merge_moments_kernel(double *dst, struct rows r, int c)
{
    int k = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    struct moments m;

    if (k >= c)
        return;
    m = merged_channel(&r, 0, c, k);
    if (k == 0)
        dst[0] = m.count;
    dst[1 + k] = m.mean;
    dst[1 + c + k] = m.m2;
}

int cuda_reduce_tree_moments(struct device *dev, double *dst, const double *const *stats, int nstats, int c, struct err *err)
{
    struct rows r;
    int rc = rows_make(dev, &r, stats, nstats, err);

    if (rc < 0)
        return rc;
    CUDA_LAUNCH(merge_moments_kernel, dim3(cuda_blocks((size_t)c, CHANNEL_THREADS)), dim3(CHANNEL_THREADS), cuda_device(dev)->stream, dst,
                r, c);
    return norm_checked("merge_moments", err);
}

static __global__ void __launch_bounds__(CHANNEL_THREADS) merge_sums_kernel(double *dst, struct rows r, size_t count)
{
    size_t j = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    double x[FOLD_AHEAD];
    fold<double> f;

    if (j >= count)
        return;
    fold_start(&f);
    for (int first = 0; first < r.n; first += FOLD_AHEAD) {
#pragma unroll
        for (int i = 0; i < FOLD_AHEAD; i++)
            if (first + i < r.n)
                x[i] = row(&r, first + i)[j];
        fold_some(&f, x, (unsigned)(r.n - first));
    }
    dst[j] = fold_finish(&f);
}

int cuda_reduce_tree_sums(struct device *dev, double *dst, const double *const *rows, int nrows, size_t count, struct err *err)
{
    struct rows r;
    int rc = rows_make(dev, &r, rows, nrows, err);

    if (rc < 0)
        return rc;
    CUDA_LAUNCH(merge_sums_kernel, dim3(cuda_blocks(count, CHANNEL_THREADS)), dim3(CHANNEL_THREADS), cuda_device(dev)->stream, dst, r,
                count);
    return norm_checked("merge_sums", err);
}

/* A normalisation in a launch over all of them. Its blocks begin at first_block. */
struct running_layer {
    float *mean, *var;
    size_t at;
    int c;
    unsigned first_block;
    bool sync;
};

/* The layer that block b belongs to. */
DEVICE_FN struct running_layer layer_of(const struct running_layer *layer, int n, unsigned b)
{
    int lo = 0, hi = n;

    while (hi - lo > 1) {
        int mid = (lo + hi) / 2;

        if (layer[mid].first_block <= b)
            lo = mid;
        else
            hi = mid;
    }
    return layer[lo];
}

/* The values that one update adds to channel k. nvars is 0 if there is no unbiased variance. */
struct running_values {
    double mean, var;
    int nvars;
};

DEVICE_FN struct running_values running_merged(const struct rows *stats, const struct running_layer *l, int k)
{
    struct moments m = merged_channel(stats, l->at, l->c, k);
    struct running_values v;

    v.mean = m.mean;
    v.var = norm_unbiased(m.m2, m.count);
    v.nvars = m.count > 1.0;
    return v;
}

DEVICE_FN struct running_values running_shards(const struct rows *stats, const struct running_layer *l, int k)
{
    struct running_values v;
    struct stats_rows s;
    fold<double> f, g;

    v.nvars = 0;
    fold_start(&f);
    fold_start(&g);
    for (int first = 0; first < stats->n; first += FOLD_AHEAD) {
        unsigned n = stats_read(&s, stats, l->at, first, l->c, k);

#pragma unroll
        for (unsigned i = 0; i < FOLD_AHEAD; i++)
            if (i < n) {
                s.m2[i] = norm_unbiased(s.m2[i], s.count[i]);
                v.nvars += s.count[i] > 1.0;
            }
        fold_some(&f, s.mean, n);
        fold_some(&g, s.m2, n);
    }
    v.mean = fold_finish(&f) / (double)stats->n;
    v.var = fold_finish(&g) / (double)v.nvars;
    return v;
}

static __global__ void __launch_bounds__(CHANNEL_THREADS)
    running_kernel(const struct running_layer *layers, int nlayers, struct rows stats, float momentum, const int32_t *skip)
{
    struct running_layer l = layer_of(layers, nlayers, blockIdx.x);
    int k = (int)((blockIdx.x - l.first_block) * blockDim.x + threadIdx.x), skipped = *skip;
    struct running_values v;

    if (k >= l.c)
        return;
    v = l.sync ? running_merged(&stats, &l, k) : running_shards(&stats, &l, k);
    if (skipped != 0)
        return;
    l.mean[k] = norm_running_value(l.mean[k], v.mean, momentum);
    if (v.nvars > 0)
        l.var[k] = norm_running_value(l.var[k], v.var, momentum);
}

/* The layers in device memory, and the number of their blocks. NULL: see *err. */
static const struct running_layer *layers_make(struct device *dev, const struct running_item *items, int nitems, unsigned *ret_blocks,
                                               struct err *err)
{
    struct running_layer *layers = (struct running_layer *)calloc((size_t)nitems, sizeof *layers);
    const struct running_layer *table = NULL;

    *ret_blocks = 0;
    if (!layers) {
        err_set(err, -ENOMEM, "norm_running: out of memory");
        return NULL;
    }
    for (int i = 0; i < nitems; i++) {
        size_t c = items[i].mean->count;
        struct running_layer l = { items[i].mean->data, items[i].var->data, items[i].at, (int)c, *ret_blocks, items[i].sync };

        layers[i] = l;
        *ret_blocks += cuda_blocks(c, CHANNEL_THREADS);
    }
    table = (const struct running_layer *)cuda_table(dev, layers, (size_t)nitems * sizeof *layers, err);
    free(layers);
    return table;
}

int cuda_norm_running(struct device *dev, const struct running_item *items, int nitems, const double *const *stats, int nstats,
                      float momentum, const int32_t *skip, struct err *err)
{
    const struct running_layer *layers;
    unsigned blocks;
    struct rows r;
    int rc;

    if (nitems == 0)
        return 0;
    rc = rows_make(dev, &r, stats, nstats, err);
    if (rc < 0)
        return rc;
    layers = layers_make(dev, items, nitems, &blocks, err);
    if (!layers)
        return err->code;
    CUDA_LAUNCH(running_kernel, dim3(blocks), dim3(CHANNEL_THREADS), cuda_device(dev)->stream, layers, nitems, r, momentum, skip);
    for (int i = 0; i < nitems; i++) {
        items[i].mean->version++;
        items[i].var->version++;
    }
    return norm_checked("norm_running", err);
}

/* ---- the second pass of the backward ---- */

struct apply_shard {
    void *dx;
    const void *da, *x;
    struct affine act;
    const float *mean, *invstd;
    const double *sums, *stats;
    unsigned npixels;
    int x_stride, da_stride, dx_stride;
};

struct apply_args {
    struct apply_shard shard[SHARDS_AT_ONCE];
    int c;
};

template <int W> struct apply_channels {
    struct vec_affine<W> act;
    float mean[W], invstd[W], mean_dy[W], mean_dyxhat[W];
};

template <bool FROZEN, int W> DEVICE_FN void apply_pixel(float (&da)[W], const float (&x)[W], const struct apply_channels<W> &b)
{
#pragma unroll
    for (int i = 0; i < W; i++) {
        float dy = norm_dy(da[i], x[i], b.act.scale[i], b.act.shift[i], b.act.slope[i]);

        da[i] = FROZEN ? b.act.scale[i] * dy
                       : norm_dx(dy, norm_xhat(x[i], b.mean[i], b.invstd[i]), b.act.scale[i], b.mean_dy[i], b.mean_dyxhat[i]);
    }
}

/* The means of dy and dy * xhat for the block's channels, [2][VEC_THREADS * W]. They need divisions of doubles, so each
 * is done once per block. */
template <int W> DEVICE_FN void block_means(float *means, const struct apply_shard *s, unsigned c)
{
    unsigned width = blockDim.x * W, threads = blockDim.x * blockDim.y;
    const double *sums = s->sums + blockIdx.y * width;
    double n = s->stats[0];

#pragma unroll 2
    for (unsigned j = threadIdx.y * blockDim.x + threadIdx.x; j < width && blockIdx.y * width + j < c; j += threads) {
        double dy = sums[j], dyxhat = sums[c + j];

        means[j] = (float)(dy / n);
        means[VEC_THREADS * W + j] = (float)(dyxhat / n);
    }
    __syncthreads();
}

/* The pixels of a thread that are being loaded. */
template <typename T, int W> struct apply_ahead {
    pack<T, W> x[APPLY_AHEAD], da[APPLY_AHEAD];
};

/* Loads pixels from p on, as far as they exist. */
template <typename T, int W> DEVICE_FN void apply_load(struct apply_ahead<T, W> *ret, const struct apply_shard *s, size_t p, int k)
{
#pragma unroll
    for (unsigned i = 0; i < APPLY_AHEAD; i++) {
        size_t at = p + i * vec_step();

        if (at < s->npixels) {
            ret->x[i] = vec_load<W>((const T *)s->x + at * s->x_stride + k);
            ret->da[i] = vec_load<W>((const T *)s->da + at * s->da_stride + k);
        }
    }
}

template <bool FROZEN, typename T, int W>
DEVICE_FN void apply_store(const struct apply_ahead<T, W> *ahead, const struct apply_shard *s, const struct apply_channels<W> &b, size_t p,
                           int k)
{
#pragma unroll
    for (unsigned i = 0; i < APPLY_AHEAD; i++) {
        size_t at = p + i * vec_step();
        float x[W], da[W];

        if (at >= s->npixels)
            return;
        vec_unpack(x, ahead->x[i]);
        vec_unpack(da, ahead->da[i]);
        apply_pixel<FROZEN>(da, x, b);
        vec_store((T *)s->dx + at * s->dx_stride + k, da);
    }
}

/* The first pixels are loaded before the means are ready, since the means take a wait of their own. */
template <typename T, int W, bool FROZEN> static __global__ void __launch_bounds__(VEC_THREADS, 2) apply_kernel(struct apply_args a)
{
    const struct apply_shard *s = &a.shard[vec_shard_back()];
    size_t p = vec_pixel_back<APPLY_RUN>();
    int k = vec_channel<W>();
    struct apply_channels<W> b;
    struct apply_ahead<T, W> ahead;

    if (p - threadIdx.y >= s->npixels) /* the whole block has no pixels */
        return;
    if (k < a.c)
        apply_load(&ahead, s, p, k);
    if (!FROZEN) {
        SHARED(float, means, 2 * VEC_THREADS * W);

        block_means<W>(means, s, (unsigned)a.c);
        vec_channels(b.mean_dy, means, (int)threadIdx.x * W);
        vec_channels(b.mean_dyxhat, means, (VEC_THREADS + (int)threadIdx.x) * W);
    }
    if (k >= a.c)
        return;
    vec_affine_load(&b.act, &s->act, k);
    if (!FROZEN) {
        vec_channels(b.mean, s->mean, k);
        vec_channels(b.invstd, s->invstd, k);
    }
    apply_store<FROZEN>(&ahead, s, b, p, k);
    for (int done = APPLY_AHEAD; done < APPLY_RUN; done += APPLY_AHEAD) {
        p += APPLY_AHEAD * vec_step();
        apply_load(&ahead, s, p, k);
        apply_store<FROZEN>(&ahead, s, b, p, k);
    }
}

template <typename T, int W> static void apply_launch(struct device *dev, const struct apply_args *a, int n, bool frozen)
{
    size_t most = 0;
    struct vec_grid g;

    for (int i = 0; i < n; i++)
        most = a->shard[i].npixels > most ? a->shard[i].npixels : most;
    g = vec_grid(most, a->c, W, APPLY_RUN, n);
    if (frozen)
        CUDA_LAUNCH((apply_kernel<T, W, true>), g.grid, g.block, cuda_device(dev)->stream, *a);
    else
        CUDA_LAUNCH((apply_kernel<T, W, false>), g.grid, g.block, cuda_device(dev)->stream, *a);
}

int cuda_norm_bwd_apply(struct device *dev, struct tensor *dx, const struct tensor *da, const struct operand *x, const float *const *mean,
                        const float *const *invstd, const double *const *sums, const double *const *stats, int nshards, struct err *err)
{
    bool wide = norm_wide(x, da, nshards) && norm_wide(x, dx, nshards);
    struct apply_args a;

    norm_check_pixels(da, nshards);
    a.c = da[0].c;
    for (int first = 0, n; first < nshards; first += n) {
        n = norm_at_once(nshards - first);
        for (int i = 0; i < n; i++) {
            int v = first + i;
            struct apply_shard s = {};

            s.dx = dx[v].data;
            s.da = da[v].data;
            s.x = x[v].x.data;
            s.act = x[v].act;
            s.npixels = (unsigned)tensor_pixels(&da[v]);
            s.x_stride = x[v].x.stride;
            s.da_stride = da[v].stride;
            s.dx_stride = dx[v].stride;
            if (sums) {
                s.mean = mean[v];
                s.invstd = invstd[v];
                s.sums = sums[v];
                s.stats = stats[v];
            }
            a.shard[i] = s;
        }
        VEC_CALL(apply_launch, da[0].dtype, wide, dev, &a, n, !sums);
    }
    return norm_checked("norm_bwd_apply", err);
}
