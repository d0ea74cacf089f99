/* SPDX-License-Identifier: Apache-2.0 */ /* cuda/resample.cu - nearest-neighbour upsampling. A thread owns a few
 * channels of an input pixel. Forward reads them once and writes them factor^2 times; backward is the reverse. */
#include "cuda/cuda.h"

#include <assert.h>
#include <string.h>

#include "cuda/vec.h"
#include "worker/kernels/resample.h"

enum { RUN = 2 /* pixels per thread */ };

struct upsample_shard {
    const void *src; /* x, or dy */
    void *dst;       /* y, or dx */
    struct affine act;
    int n, h, w, src_stride, dst_stride; /* n, h and w of the small side */
};

struct upsample_args {
    struct upsample_shard shard[SHARDS_AT_ONCE];
    int factor, c;
    float beta;
};

/* The first pixel on the large side that belongs to small pixel i. */
DEVICE_FN size_t large_pixel(const struct upsample_args *a, const struct upsample_shard *s, unsigned i)
{
    unsigned row = i / (unsigned)s->w, x = i % (unsigned)s->w; /* on both sides all rows of all images form one list */

    return ((size_t)row * (size_t)s->w * (size_t)a->factor + x) * (size_t)a->factor;
}

/* FACTOR 0: any. With a constant factor the compiler keeps stores whole; in a loop it splits them into single
 * numbers. */
template <typename T, int W, int FACTOR>
DEVICE_FN void spread(const struct upsample_args *a, const struct upsample_shard *s, unsigned i, int k)
{
    pack<T, W> p = vec_load<W>((const T *)s->src + (size_t)i * (size_t)s->src_stride + k);
    T *dst = (T *)s->dst + large_pixel(a, s, i) * (size_t)s->dst_stride + k;
    size_t row = (size_t)s->w * (size_t)a->factor * (size_t)s->dst_stride;
    int factor = FACTOR ? FACTOR : a->factor;
    vec_affine<W> act;
    float v[W];

    vec_unpack(v, p);
    if (s->act.scale) {
        vec_affine_load(&act, &s->act, k);
        vec_pending(v, act);
    }
#pragma unroll
    for (int y = 0; y < factor; y++)
#pragma unroll
        for (int x = 0; x < factor; x++)
            vec_store(dst + (size_t)y * row + (size_t)(x * s->dst_stride), v);
}

/* One chain in row-major order; see upsample_grad(). FACTOR 0: any. */
template <typename T, int W, int FACTOR>
DEVICE_FN void gather(const struct upsample_args *a, const struct upsample_shard *s, unsigned i, int k)
{
    const T *dy = (const T *)s->src + large_pixel(a, s, i) * (size_t)s->src_stride + k;
    T *dx = (T *)s->dst + (size_t)i * (size_t)s->dst_stride + k;
    size_t row = (size_t)s->w * (size_t)a->factor * (size_t)s->src_stride;
    int factor = FACTOR ? FACTOR : a->factor;
    float sum[W] = { 0.0f }, v[W];

#pragma unroll
    for (int y = 0; y < factor; y++)
#pragma unroll
        for (int x = 0; x < factor; x++) {
            vec_unpack(v, vec_load<W>(dy + (size_t)y * row + (size_t)(x * s->src_stride)));
#pragma unroll
            for (int j = 0; j < W; j++)
                sum[j] += v[j];
        }
    if (a->beta != 0.0f) {
        vec_unpack(v, vec_load<W>((const T *)dx));
#pragma unroll
        for (int j = 0; j < W; j++)
            sum[j] = act_store(a->beta, &v[j], sum[j]);
    }
    vec_store(dx, sum);
}

template <typename T, int W, int FACTOR> static __global__ void __launch_bounds__(VEC_THREADS) upsample_kernel(const struct upsample_args a)
{
    const struct upsample_shard *s = &a.shard[blockIdx.z];
    int k = vec_channel<W>();
    size_t n = (size_t)s->n * (size_t)s->h * (size_t)s->w, i = vec_pixel<RUN>();

    for (int r = 0; r < RUN && i < n && k < a.c; r++, i += vec_step())
        spread<T, W, FACTOR>(&a, s, (unsigned)i, k);
}

template <typename T, int W, int FACTOR>
static __global__ void __launch_bounds__(VEC_THREADS) upsample_back_kernel(const struct upsample_args a)
{
    const struct upsample_shard *s = &a.shard[blockIdx.z];
    int k = vec_channel<W>();
    size_t n = (size_t)s->n * (size_t)s->h * (size_t)s->w, i = vec_pixel<RUN>();

    for (int r = 0; r < RUN && i < n && k < a.c; r++, i += vec_step())
        gather<T, W, FACTOR>(&a, s, (unsigned)i, k);
}

/* ---- launching ---- */

struct upsample_call {
    cudaStream_t stream;
    struct upsample_args a;
    int nshards;
    size_t pixels; /* of the largest shard */
    bool wide;
};

template <typename T, int W> static void launch_fwd(struct upsample_call *c)
{
    struct vec_grid g = vec_grid(c->pixels, c->a.c, W, RUN, c->nshards);

    if (c->a.factor == 2)
        CUDA_LAUNCH((upsample_kernel<T, W, 2>), g.grid, g.block, c->stream, c->a);
    else
        CUDA_LAUNCH((upsample_kernel<T, W, 0>), g.grid, g.block, c->stream, c->a);
}

template <typename T, int W> static void launch_bwd(struct upsample_call *c)
{
    struct vec_grid g = vec_grid(c->pixels, c->a.c, W, RUN, c->nshards);

    if (c->a.factor == 2)
        CUDA_LAUNCH((upsample_back_kernel<T, W, 2>), g.grid, g.block, c->stream, c->a);
    else
        CUDA_LAUNCH((upsample_back_kernel<T, W, 0>), g.grid, g.block, c->stream, c->a);
}

static void start_call(struct upsample_call *c, struct device *dev, int factor, float beta, int channels, int nshards)
{
    memset(c, 0, sizeof(*c));
    c->stream = cuda_device(dev)->stream;
    c->a.factor = factor;
    c->a.c = channels;
    c->a.beta = beta;
    c->wide = true;
    c->nshards = nshards < SHARDS_AT_ONCE ? nshards : SHARDS_AT_ONCE;
}

/* `small` and `large` are the shapes of the two sides. Either dst or src is the small one. */
static void fill_shard(struct upsample_call *c, int v, const struct tensor *dst, const struct tensor *src, const struct tensor *small,
                       const struct tensor *large)
{
    struct upsample_shard *s = &c->a.shard[v];
    int w = vec_width(dst->dtype);

    assert(tensor_pixels(large) < 1u << 31);
    s->src = src->data;
    s->dst = dst->data;
    s->src_stride = src->stride;
    s->dst_stride = dst->stride;
    s->n = small->n;
    s->h = small->h;
    s->w = small->w;
    c->pixels = tensor_pixels(small) > c->pixels ? tensor_pixels(small) : c->pixels;
    c->wide = c->wide && vec_fits(dst, w) && vec_fits(src, w);
}

int cuda_resample_upsample_fwd(struct device *dev, int factor, struct tensor *y, const struct operand *x, int nshards, struct err *err)
{
    struct upsample_call c;

    for (int first = 0; first < nshards; first += SHARDS_AT_ONCE) {
        start_call(&c, dev, factor, 0.0f, y[0].c, nshards - first);
        for (int v = 0; v < c.nshards; v++) {
            fill_shard(&c, v, &y[first + v], &x[first + v].x, &x[first + v].x, &y[first + v]);
            c.a.shard[v].act = x[first + v].act;
        }
        VEC_CALL(launch_fwd, y[0].dtype, c.wide, &c);
    }
    return cuda_check(cudaPeekAtLastError(), "upsample_fwd", err);
}

int cuda_resample_upsample_bwd(struct device *dev, int factor, struct tensor *dx, float beta, const struct tensor *dy, int nshards,
                               struct err *err)
{
    struct upsample_call c;

    for (int first = 0; first < nshards; first += SHARDS_AT_ONCE) {
        start_call(&c, dev, factor, beta, dx[0].c, nshards - first);
        for (int v = 0; v < c.nshards; v++)
            fill_shard(&c, v, &dx[first + v], &dy[first + v], &dx[first + v], &dy[first + v]);
        VEC_CALL(launch_bwd, dx[0].dtype, c.wide, &c);
    }
    return cuda_check(cudaPeekAtLastError(), "upsample_bwd", err);
}
