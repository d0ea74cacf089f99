/* SPDX-License-Identifier: Apache-2.0 */ /* cuda/pool.cu - maximum pooling. A thread owns a few channels of a window or
 * of an input. Windows of 2 x 2 with stride 2 have their own kernels. Backward of overlapping windows takes two passes:
 * first the position of each window's maximum, then every input reads the windows that contain it. */
#include "cuda/cuda.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "cuda/vec.h"
#include "worker/kernels/pool.h"

enum { RUN = 2 /* pixels per thread */ };

struct pool_shard {
    const void *x, *dy;
    void *dst; /* y, or dx */
    struct affine act;
    uint16_t *win; /* [n][oh][ow][c]: position of each maximum in its window, row by row */
    int n, h, w, oh, ow, x_stride, dy_stride, dst_stride;
};

struct pool_args {
    struct pool_shard shard[SHARDS_AT_ONCE];
    struct pooling p;
    int c;
    float beta;
};

/* ---- reading ---- */

struct place {
    int image, y, x;
};

/* Place number i in images of h x w. */
DEVICE_FN struct place place_of(unsigned i, int h, int w)
{
    unsigned row = i / (unsigned)w;
    struct place p;

    p.image = (int)(row / (unsigned)h);
    p.y = (int)(row % (unsigned)h);
    p.x = (int)(i % (unsigned)w);
    return p;
}

/* Pixel (y, x) of an image of h x w. */
DEVICE_FN size_t pixel_at(int image, int h, int w, int y, int x)
{
    return ((size_t)image * (size_t)h + (size_t)y) * (size_t)w + (size_t)x;
}

/* The pending operation of a thread's channels. */
template <int W> struct pending {
    bool any;
    vec_affine<W> act;
};

template <int W> DEVICE_FN void pending_load(struct pending<W> *ret, const struct affine *act, int k)
{
    ret->any = act->scale != NULL;
    if (ret->any)
        vec_affine_load(&ret->act, act, k);
}

template <typename T, int W> DEVICE_FN void read_pixel(float (&ret)[W], const pack<T, W> &p, const struct pending<W> *pend)
{
    vec_unpack(ret, p);
    if (pend->any)
        vec_pending(ret, pend->act);
}

/* ---- forward, and the choice of each window ---- */

/* The maximum of a window and its position; see maxpool_element(). x points to the thread's channels in pixel 0 of the
 * image. */
template <typename T, int W>
DEVICE_FN void window_max(float (&best)[W], int (&win)[W], const struct pool_args *a, const struct pool_shard *s, const T *x, int oy,
                          int ox, const struct pending<W> *pend)
{
    struct maxpool_range ry = maxpool_range(oy, s->h, &a->p), rx = maxpool_range(ox, s->w, &a->p);
    int top = oy * a->p.stride - a->p.pad_total / 2, left = ox * a->p.stride - a->p.pad_total / 2;
    bool first = true;

    for (int y = ry.from; y < ry.to; y++)
        for (int px = rx.from; px < rx.to; px++) {
            int at = (y - top) * a->p.size + px - left;
            float v[W];

            read_pixel(v, vec_load<W>(x + pixel_at(0, s->h, s->w, y, px) * (size_t)s->x_stride), pend);
#pragma unroll
            for (int i = 0; i < W; i++) {
                bool wins = first || v[i] > best[i];

                win[i] = wins ? at : win[i];
                best[i] = wins ? v[i] : best[i];
            }
            first = false;
        }
}

/* A whole window of 2 x 2. All four pixels are loaded before the first is used. */
template <typename T, int W>
DEVICE_FN void four_max(float (&best)[W], const struct pool_shard *s, const T *x, int oy, int ox, const struct pending<W> *pend)
{
    const T *at = x + pixel_at(0, s->h, s->w, 2 * oy, 2 * ox) * (size_t)s->x_stride;
    pack<T, W> p[4];
    float v[W];

    p[0] = vec_load<W>(at);
    p[1] = vec_load<W>(at + s->x_stride);
    p[2] = vec_load<W>(at + (size_t)s->w * (size_t)s->x_stride);
    p[3] = vec_load<W>(at + ((size_t)s->w + 1) * (size_t)s->x_stride);
    read_pixel(best, p[0], pend);
#pragma unroll
    for (int j = 1; j < 4; j++) {
        read_pixel(v, p[j], pend);
#pragma unroll
        for (int i = 0; i < W; i++)
            best[i] = max_first(best[i], v[i]);
    }
}

DEVICE_FN bool is_two_by_two(const struct pooling *p)
{
    return p->size == 2 && p->stride == 2; /* pad_total is 0 or 1: no padding on the left */
}

/* Writes an output. x points to the thread's channels in pixel 0 of the image. */
template <typename T, int W>
DEVICE_FN void write_max(const struct pool_args *a, const struct pool_shard *s, unsigned out, struct place at, int k, const T *x,
                         const struct pending<W> *pend)
{
    float best[W];
    int win[W];

    if (is_two_by_two(&a->p) && 2 * at.y + 1 < s->h && 2 * at.x + 1 < s->w)
        four_max(best, s, x, at.y, at.x, pend);
    else
        window_max(best, win, a, s, x, at.y, at.x, pend);
    vec_store((T *)s->dst + (size_t)out * (size_t)s->dst_stride + k, best);
}

template <typename T, int W>
DEVICE_FN void write_winners(const struct pool_args *a, const struct pool_shard *s, unsigned out, struct place at, int k, const T *x,
                             const struct pending<W> *pend)
{
    pack<uint16_t, W> places;
    float best[W];
    int win[W];

    window_max(best, win, a, s, x, at.y, at.x, pend);
#pragma unroll
    for (int i = 0; i < W; i++)
        places.v[i] = (uint16_t)win[i];
    *(pack<uint16_t, W> *)(s->win + (size_t)out * (size_t)a->c + k) = places;
}

/* WINNERS: writes positions, otherwise maxima. */
template <typename T, int W, bool WINNERS>
static __global__ void __launch_bounds__(VEC_THREADS) pool_outputs_kernel(const struct pool_args a)
{
    const struct pool_shard *s = &a.shard[blockIdx.z];
    int k = vec_channel<W>();
    size_t n = (size_t)s->n * (size_t)s->oh * (size_t)s->ow, out = vec_pixel<RUN>();
    struct pending<W> pend;

    if (k >= a.c)
        return;
    pending_load(&pend, &s->act, k);
    for (int r = 0; r < RUN && out < n; r++, out += vec_step()) {
        struct place at = place_of((unsigned)out, s->oh, s->ow);
        const T *x = (const T *)s->x + pixel_at(at.image, s->h, s->w, 0, 0) * (size_t)s->x_stride + k;

        if (WINNERS)
            write_winners(&a, s, (unsigned)out, at, k, x, &pend);
        else
            write_max(&a, s, (unsigned)out, at, k, x, &pend);
    }
}

/* ---- backward of any window, second pass ---- */

/* The initial value of an input's gradient. */
template <typename T, int W> DEVICE_FN void start_grad(float (&ret)[W], const T *dx, float beta)
{
#pragma unroll
    for (int i = 0; i < W; i++)
        ret[i] = 0.0f;
    if (beta == 0.0f)
        return;
    vec_unpack(ret, vec_load<W>(dx));
#pragma unroll
    for (int i = 0; i < W; i++)
        ret[i] = beta * ret[i];
}

/* See maxpool_grad(). */
template <typename T, int W> DEVICE_FN void pool_input(const struct pool_args *a, const struct pool_shard *s, unsigned in, int k)
{
    struct place at = place_of(in, s->h, s->w);
    struct maxpool_range ry = maxpool_readers(at.y, s->oh, &a->p), rx = maxpool_readers(at.x, s->ow, &a->p);
    int y = at.y + a->p.pad_total / 2, x = at.x + a->p.pad_total / 2;
    T *dx = (T *)s->dst + (size_t)in * (size_t)s->dst_stride + k;
    float sum[W], dy[W];

    start_grad(sum, (const T *)dx, a->beta);
    for (int oy = ry.from; oy < ry.to; oy++)
        for (int ox = rx.from; ox < rx.to; ox++) {
            size_t out = pixel_at(at.image, s->oh, s->ow, oy, ox);
            int own = (y - oy * a->p.stride) * a->p.size + x - ox * a->p.stride;
            pack<uint16_t, W> win = vec_load<W>((const uint16_t *)s->win + out * (size_t)a->c + k);

            vec_unpack(dy, vec_load<W>((const T *)s->dy + out * (size_t)s->dy_stride + k));
#pragma unroll
            for (int i = 0; i < W; i++)
                sum[i] = win.v[i] == own ? sum[i] + dy[i] : sum[i];
        }
    vec_store(dx, sum);
}

template <typename T, int W> static __global__ void __launch_bounds__(VEC_THREADS) pool_inputs_kernel(const struct pool_args a)
{
    const struct pool_shard *s = &a.shard[blockIdx.z];
    int k = vec_channel<W>();
    size_t n = (size_t)s->n * (size_t)s->h * (size_t)s->w, in = vec_pixel<RUN>();

    for (int r = 0; r < RUN && in < n && k < a.c; r++, in += vec_step())
        pool_input<T, W>(&a, s, (unsigned)in, k);
}

/* ---- backward, 2 x 2 with stride 2: every input is in at most one window, so one pass writes all ---- */

/* Up to four inputs that share a window. Those past the rim do not exist. */
struct square {
    bool there[4];
    size_t pixel[4];
};

DEVICE_FN struct square square_at(const struct pool_shard *s, struct place at)
{
    struct square q;

#pragma unroll
    for (int j = 0; j < 4; j++) {
        int y = 2 * at.y + j / 2, x = 2 * at.x + j % 2;

        q.there[j] = y < s->h && x < s->w;
        q.pixel[j] = pixel_at(at.image, s->h, s->w, y, x);
    }
    return q;
}

/* Finds the input with the maximum; see maxpool_element(). */
template <typename T, int W>
DEVICE_FN void square_winner(int (&win)[W], const struct pool_shard *s, const struct square *q, int k, const struct pending<W> *pend)
{
    pack<T, W> x[4];
    float best[W], v[W];

#pragma unroll
    for (int j = 0; j < 4; j++)
        if (q->there[j])
            x[j] = vec_load<W>((const T *)s->x + q->pixel[j] * (size_t)s->x_stride + k);
#pragma unroll
    for (int j = 0; j < 4; j++) {
        if (!q->there[j])
            continue;
        read_pixel(v, x[j], pend);
#pragma unroll
        for (int i = 0; i < W; i++) {
            bool wins = j == 0 || v[i] > best[i];

            win[i] = wins ? j : win[i];
            best[i] = wins ? v[i] : best[i];
        }
    }
}

/* Writes all inputs of a square. A square past the last output is in no window, so its inputs get no gradient. */
template <typename T, int W>
DEVICE_FN void pool_square(const struct pool_args *a, const struct pool_shard *s, struct place at, int k, const struct pending<W> *pend)
{
    size_t out = pixel_at(at.image, s->oh, s->ow, at.y, at.x);
    struct square q = square_at(s, at);
    bool window = at.y < s->oh && at.x < s->ow;
    float dy[W] = { 0.0f }, dx[W];
    int win[W] = { 0 };

    if (window) {
        square_winner<T>(win, s, &q, k, pend);
        vec_unpack(dy, vec_load<W>((const T *)s->dy + out * (size_t)s->dy_stride + k));
    }
#pragma unroll
    for (int j = 0; j < 4; j++) {
        T *dst = (T *)s->dst + q.pixel[j] * (size_t)s->dst_stride + k;

        if (!q.there[j])
            continue;
        start_grad(dx, (const T *)dst, a->beta);
#pragma unroll
        for (int i = 0; i < W; i++)
            dx[i] = window && win[i] == j ? dx[i] + dy[i] : dx[i];
        vec_store(dst, dx);
    }
}

template <typename T, int W> static __global__ void __launch_bounds__(VEC_THREADS) pool_squares_kernel(const struct pool_args a)
{
    const struct pool_shard *s = &a.shard[blockIdx.z];
    int k = vec_channel<W>(), rows = (s->h + 1) / 2, cols = (s->w + 1) / 2;
    size_t n = (size_t)s->n * (size_t)rows * (size_t)cols, i = vec_pixel<RUN>();
    struct pending<W> pend;

    if (k >= a.c)
        return;
    pending_load(&pend, &s->act, k);
    for (int r = 0; r < RUN && i < n; r++, i += vec_step())
        pool_square<T, W>(&a, s, place_of((unsigned)i, rows, cols), k, &pend);
}

/* ---- launching ---- */

struct pool_call {
    cudaStream_t stream;
    struct pool_args a;
    int nshards;
    size_t outputs, inputs, squares; /* of the largest shard */
};

template <typename T, int W> static void launch_fwd(struct pool_call *c)
{
    struct vec_grid g = vec_grid(c->outputs, c->a.c, W, RUN, c->nshards);

    CUDA_LAUNCH((pool_outputs_kernel<T, W, false>), g.grid, g.block, c->stream, c->a);
}

template <typename T, int W> static void launch_bwd(struct pool_call *c)
{
    struct vec_grid out = vec_grid(c->outputs, c->a.c, W, RUN, c->nshards), in = vec_grid(c->inputs, c->a.c, W, RUN, c->nshards);

    CUDA_LAUNCH((pool_outputs_kernel<T, W, true>), out.grid, out.block, c->stream, c->a);
    CUDA_LAUNCH((pool_inputs_kernel<T, W>), in.grid, in.block, c->stream, c->a);
}

template <typename T, int W> static void launch_squares(struct pool_call *c)
{
    struct vec_grid g = vec_grid(c->squares, c->a.c, W, RUN, c->nshards);

    CUDA_LAUNCH((pool_squares_kernel<T, W>), g.grid, g.block, c->stream, c->a);
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* y may also be dy: the side of the outputs. */
static void fill_shard(struct pool_call *c, int v, const struct operand *x, const struct tensor *y)
{
    struct pool_shard *s = &c->a.shard[v];
    const struct tensor *t = &x->x;

    assert(c->a.p.size < 256 && tensor_pixels(t) < 1u << 31);
    s->x = t->data;
    s->act = x->act;
    s->n = t->n;
    s->h = t->h;
    s->w = t->w;
    s->oh = y->h;
    s->ow = y->w;
    s->x_stride = t->stride;
    c->outputs = larger(c->outputs, tensor_pixels(y));
    c->inputs = larger(c->inputs, tensor_pixels(t));
    c->squares = larger(c->squares, (size_t)t->n * (size_t)((t->h + 1) / 2) * (size_t)((t->w + 1) / 2));
}

static void start_call(struct pool_call *c, struct device *dev, const struct pooling *p, float beta, int channels, int nshards)
{
    memset(c, 0, sizeof(*c));
    c->stream = cuda_device(dev)->stream;
    c->a.p = *p;
    c->a.c = channels;
    c->a.beta = beta;
    c->nshards = nshards < SHARDS_AT_ONCE ? nshards : SHARDS_AT_ONCE;
}

int cuda_pool_max_fwd(struct device *dev, const struct pooling *p, struct tensor *y, const struct operand *x, int nshards, struct err *err)
{
    enum dtype dtype = y[0].dtype;
    struct pool_call c;

    for (int first = 0; first < nshards; first += SHARDS_AT_ONCE) {
        bool wide = true;

        start_call(&c, dev, p, 0.0f, y[0].c, nshards - first);
        for (int v = 0; v < c.nshards; v++) {
            const struct tensor *dst = &y[first + v];

            fill_shard(&c, v, &x[first + v], dst);
            c.a.shard[v].dst = dst->data;
            c.a.shard[v].dst_stride = dst->stride;
            wide = wide && vec_fits(dst, vec_width(dtype)) && vec_fits(&x[first + v].x, vec_width(dtype));
        }
        VEC_CALL(launch_fwd, dtype, wide, &c);
    }
    return cuda_check(cudaPeekAtLastError(), "maxpool_fwd", err);
}

/* Memory for the winners of all shards. NULL: see *err. */
static uint16_t *winners(struct device *dev, const struct tensor *dy, int nshards, struct err *err)
{
    size_t count = 0;

    for (int v = 0; v < nshards; v++)
        count += (tensor_count(&dy[v]) + 7) / 8 * 8;
    return (uint16_t *)cuda_scratch(dev, count * sizeof(uint16_t), "maxpool_bwd", err);
}

static bool fill_bwd(struct pool_call *c, int v, struct tensor *dx, const struct tensor *dy, const struct operand *x, uint16_t *win)
{
    struct pool_shard *s = &c->a.shard[v];
    int w = vec_width(dx->dtype);

    fill_shard(c, v, x, dy);
    s->dst = dx->data;
    s->dst_stride = dx->stride;
    s->dy = dy->data;
    s->dy_stride = dy->stride;
    s->win = win;
    return vec_fits(dx, w) && vec_fits(dy, w) && vec_fits(&x->x, w);
}

int cuda_pool_max_bwd(struct device *dev, const struct pooling *p, struct tensor *dx, float beta, const struct tensor *dy,
                      const struct operand *x, int nshards, struct err *err)
{
    bool squares = p->size == 2 && p->stride == 2;
    uint16_t *win = squares ? NULL : winners(dev, dy, nshards, err);
    struct pool_call c;

    if (!squares && !win)
        return -ENOMEM;
    for (int first = 0; first < nshards; first += SHARDS_AT_ONCE) {
        bool wide = true;

        start_call(&c, dev, p, beta, dx[0].c, nshards - first);
        for (int v = first; v < first + c.nshards; v++) {
            wide = fill_bwd(&c, v - first, &dx[v], &dy[v], &x[v], win) && wide;
            win += squares ? 0 : (tensor_count(&dy[v]) + 7) / 8 * 8;
        }
        if (squares)
            VEC_CALL(launch_squares, dx[0].dtype, wide, &c);
        else
            VEC_CALL(launch_bwd, dx[0].dtype, wide, &c);
    }
    return cuda_check(cudaPeekAtLastError(), "maxpool_bwd", err);
}
