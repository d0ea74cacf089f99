/* SPDX-License-Identifier: Apache-2.0 */ /* cuda/photo.cu - the photometric difference of two pictures, and its
 * gradient. Forward: a thread for each pixel. Backward: a thread for each number computes the shares of its window,
 * then a thread for each number adds the shares of its windows. */
#include "cuda/cuda.h"

#include <errno.h>
#include <stdlib.h>

#include "cuda/vec.h"
#include "worker/core/carve.h"
#include "worker/kernels/photo.h"

enum { THREADS = 256 };

struct photo_shard {
    const float *a, *b, *dmap;
    float *dst;               /* the map, or da */
    struct ssim_share *share; /* [n][h][w][c] */
    unsigned numbers, pixels; /* n h w c, n h w */
    int h, w, c, a_stride, b_stride;
    int map_stride, dst_stride;
};

struct photo_args {
    const struct photo_shard *shard;
    float ssim_weight, beta;
};

/* Reads the windows of a number of a and b. y, x: its pixel in image `image`. */
DEVICE_FN struct ssim_window window_of(const struct photo_shard *s, unsigned image, int y, int x, int k, float *ret_a, float *ret_b)
{
    float a[3][3], b[3][3];

#pragma unroll
    for (int i = 0; i < 3; i++)
#pragma unroll
        for (int j = 0; j < 3; j++) {
            int row = photo_mirror(y - 1 + i, s->h), column = photo_mirror(x - 1 + j, s->w);
            size_t pixel = ((size_t)image * (size_t)s->h + (size_t)row) * (size_t)s->w + (size_t)column;

            a[i][j] = s->a[pixel * (size_t)s->a_stride + k];
            b[i][j] = s->b[pixel * (size_t)s->b_stride + k];
        }
    *ret_a = a[1][1];
    *ret_b = b[1][1];
    return ssim_window(&a[0][1], &a[1][1], &a[2][1], &b[0][1], &b[1][1], &b[2][1], 1);
}

static __global__ void __launch_bounds__(THREADS) map_kernel(const struct photo_args p)
{
    const struct photo_shard *s = &p.shard[blockIdx.y];
    unsigned pixel = blockIdx.x * THREADS + threadIdx.x, row = pixel / (unsigned)s->w;
    int x = (int)(pixel % (unsigned)s->w), y = (int)(row % (unsigned)s->h);
    float sum = 0.0f;

    if (pixel >= s->pixels)
        return;
    for (int k = 0; k < s->c; k++) {
        float a, b, term;
        struct ssim_window w = window_of(s, row / (unsigned)s->h, y, x, k, &a, &b);

        term = photo_value(p.ssim_weight, &w, a, b);
        sum = k == 0 ? term : sum + term;
    }
    s->dst[(size_t)pixel * (size_t)s->dst_stride] = sum * (1.0f / (float)s->c);
}

static __global__ void __launch_bounds__(THREADS) share_kernel(const struct photo_args p)
{
    const struct photo_shard *s = &p.shard[blockIdx.y];
    unsigned i = blockIdx.x * THREADS + threadIdx.x, pixel = i / (unsigned)s->c, row = pixel / (unsigned)s->w;
    struct ssim_window w;
    float a, b;

    if (i >= s->numbers)
        return;
    w = window_of(s, row / (unsigned)s->h, (int)(row % (unsigned)s->h), (int)(pixel % (unsigned)s->w), (int)(i % (unsigned)s->c), &a, &b);
    s->share[i] = ssim_share(&w, s->dmap[(size_t)pixel * (size_t)s->map_stride] * (p.ssim_weight / (float)s->c));
}

/* Sums of shares in column x over the rows that have row y in their windows. */
DEVICE_FN struct ssim_share column_of(const struct photo_shard *s, const struct ssim_share *image, int y, int x, int k)
{
    struct ssim_share sum = { 0.0f, 0.0f, 0.0f };

#pragma unroll
    for (int d = -1; d < 2; d++) {
        float times = photo_times(y, y + d, s->h);
        struct ssim_share of;

        if (times == 0.0f)
            continue;
        of = image[((size_t)(y + d) * (size_t)s->w + (size_t)x) * (size_t)s->c + k];
        sum.a = fmaf(times, of.a, sum.a);
        sum.b = fmaf(times, of.b, sum.b);
        sum.c = fmaf(times, of.c, sum.c);
    }
    return sum;
}

static __global__ void __launch_bounds__(THREADS) slope_kernel(const struct photo_args p)
{
    const struct photo_shard *s = &p.shard[blockIdx.y];
    unsigned i = blockIdx.x * THREADS + threadIdx.x, pixel = i / (unsigned)s->c, row = pixel / (unsigned)s->w;
    int k = (int)(i % (unsigned)s->c), x = (int)(pixel % (unsigned)s->w), y = (int)(row % (unsigned)s->h);
    const struct ssim_share *image = s->share + (size_t)(row / (unsigned)s->h) * (size_t)s->h * (size_t)s->w * (size_t)s->c;
    struct ssim_share sum = { 0.0f, 0.0f, 0.0f };
    float g, *dst;

    if (i >= s->numbers)
        return;
#pragma unroll
    for (int d = -1; d < 2; d++) {
        float times = photo_times(x, x + d, s->w);
        struct ssim_share of;

        if (times == 0.0f)
            continue;
        of = column_of(s, image, y, x + d, k);
        sum.a = fmaf(times, of.a, sum.a);
        sum.b = fmaf(times, of.b, sum.b);
        sum.c = fmaf(times, of.c, sum.c);
    }
    g = s->dmap[(size_t)pixel * (size_t)s->map_stride] * ((1.0f - p.ssim_weight) / (float)s->c);
    dst = s->dst + (size_t)pixel * (size_t)s->dst_stride + k;
    *dst = act_store(
        p.beta, dst,
        photo_slope(sum.a, sum.b, sum.c, s->a[(size_t)pixel * (size_t)s->a_stride + k], s->b[(size_t)pixel * (size_t)s->b_stride + k], g));
}

// ---- launching ----

struct photo_call {
    struct photo_args p;
    struct photo_shard *shard; /* host, [nshards] */
    unsigned most;             /* numbers of the largest shard */
    cudaStream_t stream;
};

static void fill(struct photo_call *c, struct carve *at, const struct tensor *dst, const struct tensor *dmap, const struct tensor *a,
                 const struct tensor *b, int nshards)
{
    for (int v = 0; v < nshards; v++) {
        struct photo_shard *s = &c->shard[v];

        s->a = (const float *)a[v].data;
        s->b = (const float *)b[v].data;
        s->dst = (float *)dst[v].data;
        s->numbers = (unsigned)tensor_count(&a[v]);
        s->pixels = (unsigned)tensor_pixels(&a[v]);
        s->h = a[v].h;
        s->w = a[v].w;
        s->c = a[v].c;
        s->a_stride = a[v].stride;
        s->b_stride = b[v].stride;
        s->dst_stride = dst[v].stride;
        c->most = s->numbers > c->most ? s->numbers : c->most;
        if (!dmap)
            continue;
        s->dmap = (const float *)dmap[v].data;
        s->map_stride = dmap[v].stride;
        s->share = (struct ssim_share *)carve(at, (size_t)s->numbers * sizeof *s->share);
    }
}

/* After it the table is being sent and, with dmap, scratch is ready. */
static int call_open(struct photo_call *c, struct device *dev, const struct tensor *dst, const struct tensor *dmap, const struct tensor *a,
                     const struct tensor *b, int nshards, struct err *err)
{
    struct carve at = { NULL, 0 };

    c->shard = (struct photo_shard *)calloc((size_t)nshards, sizeof *c->shard);
    if (!c->shard)
        return err_set(err, -ENOMEM, "out of memory: photo");
    fill(c, &at, dst, dmap, a, b, nshards);
    if (dmap) {
        at.base = (char *)cuda_scratch(dev, at.used, "photo", err);
        if (!at.base)
            return -ENOMEM;
        at.used = 0;
        fill(c, &at, dst, dmap, a, b, nshards);
    }
    c->stream = cuda_device(dev)->stream;
    c->p.shard = (const struct photo_shard *)cuda_table(dev, c->shard, (size_t)nshards * sizeof *c->shard, err);
    return c->p.shard ? 0 : err->code;
}

int cuda_photo_map_fwd(struct device *dev, float ssim_weight, struct tensor *map, const struct tensor *a, const struct tensor *b,
                       int nshards, struct err *err)
{
    struct photo_call c = { { NULL, ssim_weight, 0.0f }, NULL, 0, NULL };
    int rc = call_open(&c, dev, map, NULL, a, b, nshards, err);

    if (rc == 0) {
        CUDA_LAUNCH(map_kernel, dim3(cuda_blocks(c.most / (unsigned)a[0].c, THREADS), (unsigned)nshards), THREADS, c.stream, c.p);
        rc = cuda_check(cudaPeekAtLastError(), "photo_map_fwd", err);
    }
    free(c.shard);
    return rc;
}

int cuda_photo_map_bwd(struct device *dev, float ssim_weight, struct tensor *da, float beta, const struct tensor *dmap,
                       const struct tensor *a, const struct tensor *b, int nshards, struct err *err)
{
    struct photo_call c = { { NULL, ssim_weight, beta }, NULL, 0, NULL };
    int rc = call_open(&c, dev, da, dmap, a, b, nshards, err);

    if (rc == 0) {
        dim3 grid(cuda_blocks(c.most, THREADS), (unsigned)nshards);

        CUDA_LAUNCH(share_kernel, grid, THREADS, c.stream, c.p);
        CUDA_LAUNCH(slope_kernel, grid, THREADS, c.stream, c.p);
        rc = cuda_check(cudaPeekAtLastError(), "photo_map_bwd", err);
    }
    free(c.shard);
    return rc;
}
