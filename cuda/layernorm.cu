/* SPDX-License-Identifier: Apache-2.0 */ /* cuda/layernorm.cu - layer normalisation. SUM_LANES threads own a row, a
 * thread owns a channel of a slab. fp32 gives the bits of worker/cpu/layernorm.c. */
#include <errno.h>
#include <stdlib.h>

#include "cuda/fold.h"
#include "worker/kernels/layernorm.h"

enum { ROWS_BLOCK = 16 /* rows of a block of threads */, SLAB_THREADS = 64 };

// y: the result, or its gradient.
enum { X, RESIDUAL, Y, DX, TENSORS = DX + 2 };

struct rows_shard {
    struct tensor t[TENSORS];     // data NULL: not there
    float *stats, *part, *dst[2]; // part: [slabs][2][c]
    unsigned npixels;
};

struct rows_args {
    const struct rows_shard *shard;
    struct rows_norm how;
    float beta[2], dest_beta[2];
    int c, nshards;
    bool one; // all shards have the same destination, which gets their sum
};

DEVICE_FN float get_at(const struct tensor *t, size_t row, int k)
{
    size_t at = row * (size_t)t->stride + (size_t)k;

    return t->dtype == DTYPE_BF16 ? to_float(((const bf16 *)t->data)[at]) : ((const float *)t->data)[at];
}

DEVICE_FN void put_at(const struct tensor *t, size_t row, int k, float beta, float x)
{
    size_t at = row * (size_t)t->stride + (size_t)k;

    x = beta != 0.0f ? fmaf(beta, get_at(t, row, k), x) : x;
    if (t->dtype == DTYPE_BF16)
        from_float((bf16 *)t->data + at, x);
    else
        ((float *)t->data)[at] = x;
}

DEVICE_FN float x_at(const struct rows_shard *s, size_t row, int k)
{
    float x = get_at(&s->t[X], row, k);

    return s->t[RESIDUAL].data ? x + get_at(&s->t[RESIDUAL], row, k) : x;
}

// The sum of the lanes of a row, pairwise; every thread of the row gets it.
DEVICE_FN float lanes_sum(float lane)
{
    for (int i = 1; i < SUM_LANES; i *= 2)
        lane += __shfl_xor_sync(~0u, lane, i);
    return lane;
}

// Threads past the last row compute it again and write nothing.
static __global__ void __launch_bounds__(ROWS_BLOCK *SUM_LANES) rows_fwd_kernel(const struct rows_args a)
{
    const struct rows_shard *s = &a.shard[blockIdx.y];
    unsigned own = blockIdx.x * ROWS_BLOCK + threadIdx.y, row = vec_least(own, s->npixels - 1);
    float mean, rho, sum = 0.0f, squares = 0.0f;

    if (s->npixels == 0)
        return;
    for (int k = (int)threadIdx.x; k < a.c; k += SUM_LANES)
        sum += x_at(s, row, k);
    mean = rows_mean(lanes_sum(sum), a.c);
    for (int k = (int)threadIdx.x; k < a.c; k += SUM_LANES) {
        float d = x_at(s, row, k) - mean;

        squares = fmaf(d, d, squares);
    }
    rho = rows_rho(lanes_sum(squares), a.c, a.how.eps);
    if (own >= s->npixels)
        return;
    for (int k = (int)threadIdx.x; k < a.c; k += SUM_LANES)
        put_at(&s->t[Y], row, k, 0.0f, rows_value(&a.how, norm_xhat(x_at(s, row, k), mean, rho), k));
    if (threadIdx.x == 0) {
        s->stats[2 * (size_t)row] = mean;
        s->stats[2 * (size_t)row + 1] = rho;
    }
}

// Number k of a row: xhat, and the gradient of gamma * xhat + beta.
DEVICE_FN float xhat_at(const struct rows_args *a, const struct rows_shard *s, size_t row, int k, float *ret_dy)
{
    float xhat = norm_xhat(x_at(s, row, k), s->stats[2 * row], s->stats[2 * row + 1]);

    *ret_dy = rows_dy(&a->how, get_at(&s->t[Y], row, k), xhat, k);
    return xhat;
}

static __global__ void __launch_bounds__(ROWS_BLOCK *SUM_LANES) rows_bwd_kernel(const struct rows_args a)
{
    const struct rows_shard *s = &a.shard[blockIdx.y];
    unsigned own = blockIdx.x * ROWS_BLOCK + threadIdx.y, row = vec_least(own, s->npixels - 1);
    float dy, mean_t = 0.0f, mean_tx = 0.0f;

    if (s->npixels == 0)
        return;
    for (int k = (int)threadIdx.x; k < a.c; k += SUM_LANES) {
        float xhat = xhat_at(&a, s, row, k, &dy), t = dy * a.how.gamma[k];

        mean_t += t;
        mean_tx = fmaf(t, xhat, mean_tx);
    }
    mean_t = rows_mean(lanes_sum(mean_t), a.c);
    mean_tx = rows_mean(lanes_sum(mean_tx), a.c);
    for (int k = (int)threadIdx.x; own < s->npixels && k < a.c; k += SUM_LANES) {
        float xhat = xhat_at(&a, s, row, k, &dy);
        float dx = norm_dx(dy * a.how.gamma[k], xhat, s->stats[2 * (size_t)row + 1], mean_t, mean_tx);

        for (int i = 0; i < 2; i++)
            if (s->t[DX + i].data)
                put_at(&s->t[DX + i], row, k, a.beta[i], dx);
    }
}

static __host__ __device__ unsigned slabs_of(unsigned npixels)
{
    return (npixels + ROWS_SLAB - 1) / ROWS_SLAB;
}

static __global__ void __launch_bounds__(SLAB_THREADS) rows_slabs_kernel(const struct rows_args a)
{
    const struct rows_shard *s = &a.shard[blockIdx.z];
    unsigned from = blockIdx.x * ROWS_SLAB, to = vec_least(from + ROWS_SLAB, s->npixels);
    int k = (int)(blockIdx.y * SLAB_THREADS + threadIdx.x);
    float *part = s->part + 2 * (size_t)blockIdx.x * (size_t)a.c + k, dgamma = 0.0f, dbeta = 0.0f, dy;

    if (k >= a.c || from >= s->npixels)
        return;
#pragma unroll 8
    for (unsigned row = from; row < to; row++) {
        float xhat = xhat_at(&a, s, row, k, &dy);

        dgamma = fmaf(dy, xhat, dgamma);
        dbeta += dy;
    }
    part[0] = dgamma;
    part[a.c] = dbeta;
}

// Column j of the partial sums of a shard: the tree over its slabs, in the threads of row 0.
DEVICE_FN float slabs_sum(float *runs, const struct rows_shard *s, unsigned j, unsigned columns)
{
    unsigned n = slabs_of(s->npixels), run = fold_run(n), first = threadIdx.y * run;
    float sum = 0.0f;

    if (j < columns && first < n)
        sum = fold_rows<float>(s->part + (size_t)first * columns + j, columns, vec_least(n - first, run));
    return n > 0 ? fold_block(runs, sum, n) : 0.0f;
}

static __global__ void __launch_bounds__(FOLD_THREADS) rows_fold_kernel(const struct rows_args a)
{
    SHARED(float, runs, FOLD_THREADS);
    unsigned j = blockIdx.x * FOLD_WIDTH + threadIdx.x, columns = 2 * (unsigned)a.c, which = j >= (unsigned)a.c;
    float sum = slabs_sum(runs, &a.shard[blockIdx.y], j, columns), *dst = a.shard[blockIdx.y].dst[which];

    for (int v = 1; a.one && v < a.nshards; v++) {
        __syncthreads();
        sum += slabs_sum(runs, &a.shard[v], j, columns);
    }
    if (j >= columns || threadIdx.y > 0 || !dst)
        return;
    dst += j - which * (unsigned)a.c;
    *dst = act_store(a.dest_beta[which], dst, sum);
}

// ---- host ----

// Sends the table of shards. Returns the largest number of rows of a shard, or an error. t, dest: NULL where not there.
static int send_shards(struct device *dev, struct rows_args *a, const struct tensor *const t[TENSORS], float *const *stats,
                       const struct sums_dest *dest, struct err *err)
{
    struct rows_shard *shard = (struct rows_shard *)calloc((size_t)a->nshards, sizeof *shard);
    size_t floats = 0;
    unsigned most = 0;
    float *part;

    if (!shard)
        return err_set(err, -ENOMEM, "out of memory: rows_norm");
    for (int v = 0; v < a->nshards; v++)
        floats += slabs_of((unsigned)tensor_pixels(&t[X][v])) * 2 * (size_t)a->c;
    part = (float *)cuda_scratch(dev, dest ? floats * sizeof *part : 0, "rows_norm", err);
    for (int v = 0; v < a->nshards && part; v++) {
        struct rows_shard *s = &shard[v];

        for (int i = 0; i < TENSORS; i++)
            if (t[i])
                s->t[i] = t[i][v];
        for (int i = 0; i < 2 && dest; i++)
            s->dst[i] = dest[i].dst ? dest[i].dst[v] : NULL;
        s->stats = stats[v];
        s->npixels = (unsigned)tensor_pixels(&t[X][v]);
        s->part = part;
        part += dest ? slabs_of(s->npixels) * 2 * (size_t)a->c : 0;
        most = s->npixels > most ? s->npixels : most;
    }
    a->shard = part ? (const struct rows_shard *)cuda_table(dev, shard, (size_t)a->nshards * sizeof *shard, err) : NULL;
    free(shard);
    return a->shard ? (int)most : err->code;
}

int cuda_rows_norm_fwd(struct device *dev, const struct rows_norm *how, struct tensor *y, float *const *stats, const struct tensor *x,
                       const struct tensor *residual, int nshards, struct err *err)
{
    const struct tensor *const t[TENSORS] = { x, residual, y, NULL, NULL };
    struct rows_args a = { NULL, *how, {}, {}, x[0].c, nshards, false };
    int most = send_shards(dev, &a, t, stats, NULL, err);

    if (most < 0)
        return most;
    CUDA_LAUNCH(rows_fwd_kernel, dim3(cuda_blocks((size_t)most, ROWS_BLOCK), (unsigned)nshards), dim3(SUM_LANES, ROWS_BLOCK),
                cuda_device(dev)->stream, a);
    return cuda_check(cudaPeekAtLastError(), "rows_norm_fwd", err);
}

int cuda_rows_norm_bwd(struct device *dev, const struct rows_norm *how, struct tensor *dx, struct tensor *dresidual, const float *beta,
                       const struct sums_dest dest[2], const struct tensor *dy, const float *const *stats, const struct tensor *x,
                       const struct tensor *residual, int nshards, struct err *err)
{
    const struct tensor *const t[TENSORS] = { x, residual, dy, dx, dresidual };
    struct rows_args a = { NULL, *how, { beta[0], beta[1] }, { dest[0].beta, dest[1].beta }, x[0].c, nshards, false };
    int most = send_shards(dev, &a, t, (float *const *)stats, dest, err);
    cudaStream_t stream = cuda_device(dev)->stream;

    if (most < 0)
        return most;
    for (int i = 0; i < 2; i++)
        a.one = a.one || (dest[i].dst && nshards > 1 && dest[i].dst[0] == dest[i].dst[1]);
    if (dest[0].dst || dest[1].dst) {
        CUDA_LAUNCH(rows_slabs_kernel,
                    dim3(cuda_blocks((size_t)most, ROWS_SLAB), cuda_blocks((size_t)a.c, SLAB_THREADS), (unsigned)nshards),
                    dim3(SLAB_THREADS), stream, a);
        CUDA_LAUNCH(rows_fold_kernel, dim3(cuda_blocks(2 * (size_t)a.c, FOLD_WIDTH), a.one ? 1u : (unsigned)nshards),
                    dim3(FOLD_WIDTH, FOLD_RUNS), stream, a);
    }
    if (dx || dresidual)
        CUDA_LAUNCH(rows_bwd_kernel, dim3(cuda_blocks((size_t)most, ROWS_BLOCK), (unsigned)nshards), dim3(SUM_LANES, ROWS_BLOCK), stream,
                    a);
    return cuda_check(cudaPeekAtLastError(), "rows_norm_bwd", err);
}
