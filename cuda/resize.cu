/* SPDX-License-Identifier: Apache-2.0 */ /* cuda/resize.cu - mirrored pixels at the edges, bilinear resizing, means of
 * whole images. A thread owns one number of the result. */
#include "cuda/cuda.h"

#include <string.h>

#include "cuda/vec.h"
#include "worker/kernels/resample.h"

enum { THREADS = 256 };

struct resize_shard {
    const void *src; /* x, or dy */
    void *dst;       /* y, or dx */
    struct affine act;
    int n, sh, sw, dh, dw, src_stride, dst_stride;
};

struct resize_args {
    struct resize_shard shard[SHARDS_AT_ONCE];
    struct mirror mirror;
    float beta, factor;
    int c;
};

/* The number of dst that this thread owns: image, row, column and channel. */
struct number {
    int image, y, x, k;
};

DEVICE_FN bool own_number(const struct resize_shard *s, int c, struct number *ret)
{
    size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;

    ret->k = (int)(i % (size_t)c);
    i /= (size_t)c;
    ret->x = (int)(i % (size_t)s->dw);
    i /= (size_t)s->dw;
    ret->y = (int)(i % (size_t)s->dh);
    i /= (size_t)s->dh;
    ret->image = (int)i;
    return i < (size_t)s->n;
}

template <typename T> DEVICE_FN T *own_place(const struct resize_shard *s, const struct number *o)
{
    return (T *)s->dst + (((size_t)o->image * (size_t)s->dh + (size_t)o->y) * (size_t)s->dw + (size_t)o->x) * (size_t)s->dst_stride + o->k;
}

template <typename T> DEVICE_FN float read_at(const struct resize_shard *s, int image, int y, int x, int k)
{
    return to_float(
        ((const T *)s->src)[(((size_t)image * (size_t)s->sh + (size_t)y) * (size_t)s->sw + (size_t)x) * (size_t)s->src_stride + k]);
}

template <typename T> DEVICE_FN float read_pending(const struct resize_shard *s, int image, int y, int x, int k)
{
    float v = read_at<T>(s, image, y, x, k);

    return s->act.scale ? act_pending(v, s->act.scale[k], s->act.shift[k], s->act.slope[k]) : v;
}

template <typename T> DEVICE_FN void write_grad(float beta, T *dst, float value)
{
    float old = beta != 0.0f ? to_float(*dst) : 0.0f;

    from_float(dst, act_store(beta, &old, value));
}

template <typename T> static __global__ void __launch_bounds__(THREADS) mirror_kernel(const struct resize_args a)
{
    const struct resize_shard *s = &a.shard[blockIdx.y];
    struct number o;

    if (own_number(s, a.c, &o))
        from_float(own_place<T>(s, &o),
                   read_pending<T>(s, o.image, mirror_source(&a.mirror, s->sh, o.y), mirror_source(&a.mirror, s->sw, o.x), o.k));
}

template <typename T> static __global__ void __launch_bounds__(THREADS) mirror_back_kernel(const struct resize_args a)
{
    const struct resize_shard *s = &a.shard[blockIdx.y];
    int rows[MIRROR_MOST], columns[MIRROR_MOST], nrows, ncolumns;
    float sum = 0.0f;
    struct number o;

    if (!own_number(s, a.c, &o))
        return;
    nrows = mirror_readers(&a.mirror, s->dh, o.y, rows);
    ncolumns = mirror_readers(&a.mirror, s->dw, o.x, columns);
    for (int i = 0; i < nrows; i++)
        for (int j = 0; j < ncolumns; j++)
            sum += read_at<T>(s, o.image, rows[i], columns[j], o.k);
    write_grad(a.beta, own_place<T>(s, &o), sum);
}

static __global__ void __launch_bounds__(THREADS) bilinear_kernel(const struct resize_args a)
{
    const struct resize_shard *s = &a.shard[blockIdx.y];
    struct between by, bx;
    struct number o;

    if (!own_number(s, a.c, &o))
        return;
    by = between_of(s->sh, s->dh, o.y);
    bx = between_of(s->sw, s->dw, o.x);
    from_float(own_place<float>(s, &o), between_mix(between_mix(read_pending<float>(s, o.image, by.lo, bx.lo, o.k),
                                                                read_pending<float>(s, o.image, by.lo, bx.hi, o.k), bx.f),
                                                    between_mix(read_pending<float>(s, o.image, by.hi, bx.lo, o.k),
                                                                read_pending<float>(s, o.image, by.hi, bx.hi, o.k), bx.f),
                                                    by.f));
}

static __global__ void __launch_bounds__(THREADS) bilinear_back_kernel(const struct resize_args a)
{
    const struct resize_shard *s = &a.shard[blockIdx.y];
    struct number o;

    if (!own_number(s, a.c, &o))
        return;
    const float *dy = (const float *)s->src + (size_t)o.image * (size_t)s->sh * (size_t)s->sw * (size_t)s->src_stride + o.k;
    write_grad(a.beta, own_place<float>(s, &o), bilinear_grad(dy, s->src_stride, s->dh, s->dw, s->sh, s->sw, o.y, o.x));
}

template <typename T> static __global__ void __launch_bounds__(THREADS) mean_kernel(const struct resize_args a)
{
    const struct resize_shard *s = &a.shard[blockIdx.y];
    struct number o;
    double sum = 0;

    if (!own_number(s, a.c, &o))
        return;
    for (int y = 0; y < s->sh; y++)
        for (int x = 0; x < s->sw; x++)
            sum += (double)read_pending<T>(s, o.image, y, x, o.k);
    from_float(own_place<T>(s, &o), mean_of(sum, (size_t)s->sh * (size_t)s->sw, a.factor));
}

template <typename T> static __global__ void __launch_bounds__(THREADS) mean_back_kernel(const struct resize_args a)
{
    const struct resize_shard *s = &a.shard[blockIdx.y];
    struct number o;

    if (own_number(s, a.c, &o))
        write_grad(a.beta, own_place<T>(s, &o),
                   mean_of((double)read_at<T>(s, o.image, 0, 0, o.k), (size_t)s->dh * (size_t)s->dw, a.factor));
}

// ---- launching ----

struct resize_call {
    struct device *dev;
    struct tensor *dst;
    const struct tensor *src; /* alternative: x */
    const struct operand *x;
    int nshards;
    struct resize_args a;
};

static dim3 fill_shards(struct resize_call *c, int first)
{
    int n = c->nshards - first < SHARDS_AT_ONCE ? c->nshards - first : SHARDS_AT_ONCE;
    size_t most = 0;

    for (int v = 0; v < n; v++) {
        const struct tensor *dst = &c->dst[first + v], *src = c->x ? &c->x[first + v].x : &c->src[first + v];
        struct resize_shard *s = &c->a.shard[v];

        memset(s, 0, sizeof(*s));
        s->src = src->data;
        s->dst = dst->data;
        if (c->x)
            s->act = c->x[first + v].act;
        s->n = dst->n;
        s->sh = src->h;
        s->sw = src->w;
        s->dh = dst->h;
        s->dw = dst->w;
        s->src_stride = src->stride;
        s->dst_stride = dst->stride;
        most = tensor_count(dst) > most ? tensor_count(dst) : most;
    }
    c->a.c = c->dst[0].c;
    return dim3(cuda_blocks(most, THREADS), (unsigned)n, 1);
}

#define RESIZE_LAUNCH(kernel, call)                                                                 \
    for (int first = 0; first < (call)->nshards; first += SHARDS_AT_ONCE) {                         \
        dim3 grid = fill_shards(call, first), block(THREADS, 1, 1);                                 \
        if ((call)->dst[0].dtype == DTYPE_BF16)                                                     \
            CUDA_LAUNCH((kernel<bf16>), grid, block, cuda_device((call)->dev)->stream, (call)->a);  \
        else                                                                                        \
            CUDA_LAUNCH((kernel<float>), grid, block, cuda_device((call)->dev)->stream, (call)->a); \
    }
#define RESIZE_LAUNCH_F32(kernel, call)                                                \
    for (int first = 0; first < (call)->nshards; first += SHARDS_AT_ONCE) {            \
        dim3 grid = fill_shards(call, first), block(THREADS, 1, 1);                    \
        CUDA_LAUNCH(kernel, grid, block, cuda_device((call)->dev)->stream, (call)->a); \
    }

static struct resize_call call_of(struct device *dev, struct tensor *dst, const struct tensor *src, const struct operand *x, int nshards)
{
    struct resize_call c;

    memset(&c, 0, sizeof(c));
    c.dev = dev;
    c.dst = dst;
    c.src = src;
    c.x = x;
    c.nshards = nshards;
    return c;
}

int cuda_resample_mirror_fwd(struct device *dev, const struct mirror *m, struct tensor *y, const struct operand *x, int nshards,
                             struct err *err)
{
    struct resize_call c = call_of(dev, y, NULL, x, nshards);

    c.a.mirror = *m;
    RESIZE_LAUNCH(mirror_kernel, &c)
    return cuda_check(cudaPeekAtLastError(), "mirror_fwd", err);
}

int cuda_resample_mirror_bwd(struct device *dev, const struct mirror *m, struct tensor *dx, float beta, const struct tensor *dy,
                             int nshards, struct err *err)
{
    struct resize_call c = call_of(dev, dx, dy, NULL, nshards);

    c.a.mirror = *m;
    c.a.beta = beta;
    RESIZE_LAUNCH(mirror_back_kernel, &c)
    return cuda_check(cudaPeekAtLastError(), "mirror_bwd", err);
}

int cuda_resample_bilinear_fwd(struct device *dev, struct tensor *y, const struct operand *x, int nshards, struct err *err)
{
    struct resize_call c = call_of(dev, y, NULL, x, nshards);

    RESIZE_LAUNCH_F32(bilinear_kernel, &c)
    return cuda_check(cudaPeekAtLastError(), "bilinear_fwd", err);
}

int cuda_resample_bilinear_bwd(struct device *dev, struct tensor *dx, float beta, const struct tensor *dy, int nshards, struct err *err)
{
    struct resize_call c = call_of(dev, dx, dy, NULL, nshards);

    c.a.beta = beta;
    RESIZE_LAUNCH_F32(bilinear_back_kernel, &c)
    return cuda_check(cudaPeekAtLastError(), "bilinear_bwd", err);
}

int cuda_resample_mean_fwd(struct device *dev, float factor, struct tensor *y, const struct operand *x, int nshards, struct err *err)
{
    struct resize_call c = call_of(dev, y, NULL, x, nshards);

    c.a.factor = factor;
    RESIZE_LAUNCH(mean_kernel, &c)
    return cuda_check(cudaPeekAtLastError(), "mean_fwd", err);
}

int cuda_resample_mean_bwd(struct device *dev, float factor, struct tensor *dx, float beta, const struct tensor *dy, int nshards,
                           struct err *err)
{
    struct resize_call c = call_of(dev, dx, dy, NULL, nshards);

    c.a.factor = factor;
    c.a.beta = beta;
    RESIZE_LAUNCH(mean_back_kernel, &c)
    return cuda_check(cudaPeekAtLastError(), "mean_bwd", err);
}
