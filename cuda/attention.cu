/* SPDX-License-Identifier: Apache-2.0 */ /* cuda/attention.cu - multi-head attention. A warp owns a query or, for their
 * gradients, a key and its value: lanes are first the other rows, then channels. fp32 gives the bits of
 * worker/cpu/attention.c. */
#include <errno.h>
#include <stdlib.h>

#include "cuda/vec.h"
#include "worker/kernels/attention.h"

enum { WARP = 32, WARPS = 4 /* of a block */ };

struct attn_shard {
    struct tensor qkv, o, d_o, ret; // ret: o, or the gradient of qkv
    float *stats;
};

struct attn_args {
    const struct attn_shard *shard;
    int rows, heads, d; // d: channels of a head
    float beta;
};

// n rows of d channels: the queries, keys ... of a head.
template <typename T> struct head_rows {
    T *at;
    size_t stride;
    int n, d;
};

// part: 0 queries, 1 keys, 2 values, where the tensor has them.
template <typename T> DEVICE_FN struct head_rows<T> rows_of(const struct attn_args *a, const struct tensor *t, int part) {
    struct head_rows<T> r;

    r.n = a->rows;
    r.d = a->d;
    r.stride = (size_t)t->stride;
    r.at = (T *)t->data + (size_t)(blockIdx.y / a->heads * a->rows) * r.stride + (part * a->heads + (int)blockIdx.y % a->heads) * a->d;
    return r;
}

template <int W, typename T>
DEVICE_FN float dot(const struct head_rows<T> &a, int i, const struct head_rows<T> &b, int j)
{
    const T *x = a.at + (size_t)i * a.stride, *y = b.at + (size_t)j * b.stride;
    float sum = 0.0f, f[W], g[W];

    for (int k = 0; k < a.d; k += W) {
        vec_unpack(f, vec_load<W>(x + k));
        vec_unpack(g, vec_load<W>(y + k));
#pragma unroll
        for (int l = 0; l < W; l++)
            sum = fmaf(f[l], g[l], sum);
    }
    return sum;
}

// Row `own` of to = beta * itself + factor * the sum of weight[i] * row i.
template <typename T>
DEVICE_FN void mix(const struct head_rows<T> &to, int own, float beta, float factor, const float *weight, const struct head_rows<T> &rows)
{
    T *dst = to.at + (size_t)own * to.stride;

    for (int k = (int)threadIdx.x; k < rows.d; k += WARP) {
        float sum = 0.0f;

        for (int i = 0; i < rows.n; i++)
            sum = fmaf(weight[i], to_float(rows.at[(size_t)i * rows.stride + k]), sum);
        sum *= factor;
        from_float(&dst[k], beta != 0.0f ? fmaf(beta, to_float(dst[k]), sum) : sum);
    }
}

DEVICE_FN float *stats_of(const struct attn_args *a, const struct attn_shard *s)
{
    return s->stats + 2 * (size_t)blockIdx.y * (size_t)a->rows;
}

// Is the head of this block one of the shard?
DEVICE_FN bool has_head(const struct attn_args *a, const struct attn_shard *s)
{
    return (int)blockIdx.y < s->qkv.n / a->rows * a->heads;
}

template <typename T, int W> static __global__ void __launch_bounds__(WARP *WARPS) attn_fwd_kernel(const struct attn_args a)
{
    SHARED(float, weights, WARPS *ATTN_MAX_ROWS);
    const struct attn_shard *s = &a.shard[blockIdx.z];
    int own = (int)(blockIdx.x * WARPS + threadIdx.y), lane = (int)threadIdx.x;
    float *p = weights + threadIdx.y * ATTN_MAX_ROWS, max, sum = 0.0f;
    struct head_rows<T> q, k;

    if (!has_head(&a, s) || own >= a.rows)
        return;
    q = rows_of<T>(&a, &s->qkv, 0);
    k = rows_of<T>(&a, &s->qkv, 1);
    for (int j = lane; j < a.rows; j += WARP)
        p[j] = dot<W>(q, own, k, j) * attn_scale(a.d);
    __syncwarp();
    max = p[0];
    for (int j = lane; j < a.rows; j += WARP)
        max = p[j] > max ? p[j] : max;
    for (int i = 1; i < WARP; i *= 2) {
        float other = __shfl_xor_sync(~0u, max, i);

        max = other > max ? other : max;
    }
    for (int j = lane; j < a.rows && lane < SUM_LANES; j += SUM_LANES)
        sum += math_exp(p[j] - max);
    for (int i = 1; i < SUM_LANES; i *= 2)
        sum += __shfl_xor_sync(~0u, sum, i);
    sum = __shfl_sync(~0u, sum, 0);
    for (int j = lane; j < a.rows; j += WARP)
        p[j] = attn_weight(p[j], max, sum);
    __syncwarp();
    mix(rows_of<T>(&a, &s->ret, 0), own, 0.0f, 1.0f, p, rows_of<T>(&a, &s->qkv, 2));
    if (lane == 0) {
        stats_of(&a, s)[2 * own] = max;
        stats_of(&a, s)[2 * own + 1] = sum;
    }
}

// The first a.rows warps of a head own queries, the others keys.
template <typename T, int W> static __global__ void __launch_bounds__(WARP *WARPS) attn_bwd_kernel(const struct attn_args a)
{
    SHARED(float, weights, WARPS *ATTN_MAX_ROWS);
    SHARED(float, slopes, WARPS *ATTN_MAX_ROWS);
    const struct attn_shard *s = &a.shard[blockIdx.z];
    int warp = (int)(blockIdx.x * WARPS + threadIdx.y), own = warp % a.rows;
    float *p = weights + threadIdx.y * ATTN_MAX_ROWS, *ds = slopes + threadIdx.y * ATTN_MAX_ROWS, scale = attn_scale(a.d);
    struct head_rows<T> q, k, v, o, d_o;
    bool keys = warp >= a.rows;

    if (!has_head(&a, s) || warp >= 2 * a.rows)
        return;
    q = rows_of<T>(&a, &s->qkv, 0);
    k = rows_of<T>(&a, &s->qkv, 1);
    v = rows_of<T>(&a, &s->qkv, 2);
    o = rows_of<T>(&a, &s->o, 0);
    d_o = rows_of<T>(&a, &s->d_o, 0);
    for (int other = (int)threadIdx.x; other < a.rows; other += WARP) {
        int i = keys ? other : own, j = keys ? own : other;
        const float *stats = stats_of(&a, s) + 2 * i;

        p[other] = attn_weight(dot<W>(q, i, k, j) * scale, stats[0], stats[1]);
        ds[other] = attn_slope(p[other], dot<W>(d_o, i, v, j), dot<W>(d_o, i, o, i));
    }
    __syncwarp();
    if (keys) {
        mix(rows_of<T>(&a, &s->ret, 1), own, a.beta, scale, ds, q);
        mix(rows_of<T>(&a, &s->ret, 2), own, a.beta, 1.0f, p, d_o);
    } else {
        mix(rows_of<T>(&a, &s->ret, 0), own, a.beta, scale, ds, k);
    }
}

// ---- host ----

template <typename T, int W> static void attn_launch(struct device *dev, const struct attn_args *a, bool backward, int images, int nshards)
{
    dim3 grid(cuda_blocks((size_t)a->rows * (backward ? 2 : 1), WARPS), (unsigned)(images * a->heads), (unsigned)nshards),
        block(WARP, WARPS);

    if (backward)
        CUDA_LAUNCH((attn_bwd_kernel<T, W>), grid, block, cuda_device(dev)->stream, *a);
    else
        CUDA_LAUNCH((attn_fwd_kernel<T, W>), grid, block, cuda_device(dev)->stream, *a);
}

// All shards of a call; o and d_o NULL: forward.
static int attn_run(struct device *dev, const struct attn *how, const struct tensor *ret, float beta, float *const *stats,
                    const struct tensor *qkv, const struct tensor *o, const struct tensor *d_o, int nshards, struct err *err)
{
    struct attn_shard *shard = (struct attn_shard *)calloc((size_t)nshards, sizeof *shard);
    struct attn_args a = { NULL, how->rows, how->heads, qkv[0].c / 3 / how->heads, beta };
    int w = vec_width(qkv[0].dtype), images = 0;
    bool wide = a.d % w == 0;

    if (!shard)
        return err_set(err, -ENOMEM, "out of memory: attention");
    for (int v = 0; v < nshards; v++) {
        shard[v].qkv = qkv[v];
        shard[v].ret = ret[v];
        shard[v].stats = stats[v];
        wide = wide && vec_fits(&qkv[v], w) && (!o || (vec_fits(&o[v], w) && vec_fits(&d_o[v], w)));
        images = qkv[v].n / how->rows > images ? qkv[v].n / how->rows : images;
        if (o) {
            shard[v].o = o[v];
            shard[v].d_o = d_o[v];
        }
    }
    a.shard = (const struct attn_shard *)cuda_table(dev, shard, (size_t)nshards * sizeof *shard, err);
    free(shard);
    if (!a.shard)
        return err->code;
    if (images > 0)
        VEC_CALL(attn_launch, qkv[0].dtype, wide, dev, &a, o != NULL, images, nshards);
    return cuda_check(cudaPeekAtLastError(), "attention", err);
}

int cuda_attn_fwd(struct device *dev, const struct attn *how, struct tensor *o, float *const *stats, const struct tensor *qkv, int nshards,
                  struct err *err)
{
    return attn_run(dev, how, o, 0.0f, stats, qkv, NULL, NULL, nshards, err);
}

int cuda_attn_bwd(struct device *dev, const struct attn *how, struct tensor *dqkv, float beta, const struct tensor *d_o,
                  const float *const *stats, const struct tensor *qkv, const struct tensor *o, int nshards, struct err *err)
{
    return attn_run(dev, how, dqkv, beta, (float *const *)stats, qkv, o, d_o, nshards, err);
}
