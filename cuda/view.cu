/* SPDX-License-Identifier: Apache-2.0 */ /* cuda/view.cu - pictures in the form that networks read, channels that
 * become pixels. Both move bytes: a thread owns a pixel, or a few channels of it. */
#include "cuda/cuda.h"

#include <string.h>

#include "cuda/vec.h"
#include "worker/kernels/view.h"

enum { PICTURE_THREADS = 256, RUN = 2 /* pixels per thread */ };

// ---- pictures ----

struct picture_shard {
    const uint8_t *src;
    void *dst;
    const int32_t *size; // NULL: pictures fill their canvas
    int n, h, w, stride;
};

struct picture_args {
    struct picture_shard shard[SHARDS_AT_ONCE];
    struct view_colours colours;
};

template <typename T> static __global__ void __launch_bounds__(PICTURE_THREADS) picture_kernel(const struct picture_args a)
{
    const struct picture_shard *s = &a.shard[blockIdx.y];
    size_t i = (size_t)blockIdx.x * PICTURE_THREADS + threadIdx.x, image = i / ((size_t)s->h * (size_t)s->w);
    int y = (int)(i / (size_t)s->w % (size_t)s->h), x = (int)(i % (size_t)s->w);
    T *dst = (T *)s->dst + i * (size_t)s->stride;

    if (image >= (size_t)s->n)
        return;
    const bool inside = !s->size || (y < s->size[2 * image] && x < s->size[2 * image + 1]);
    for (int k = 0; k < 3; k++)
        from_float(&dst[k], inside ? view_colour(&a.colours, s->src + 3 * i, k) : 0.0f);
}

int cuda_view_normalise(struct device *dev, struct tensor *y, const struct tensor *x, const int32_t *const *size,
                        const struct view_colours *colours, int nshards, struct err *err)
{
    struct picture_args a;

    memset(&a, 0, sizeof(a));
    a.colours = *colours;
    for (int first = 0; first < nshards; first += SHARDS_AT_ONCE) {
        int n = nshards - first < SHARDS_AT_ONCE ? nshards - first : SHARDS_AT_ONCE;
        size_t most = 0;

        for (int v = 0; v < n; v++) {
            const struct tensor *t = &y[first + v];
            struct picture_shard *s = &a.shard[v];

            s->src = (const uint8_t *)x[first + v].data;
            s->dst = t->data;
            s->size = size ? size[first + v] : NULL;
            s->n = t->n;
            s->h = t->h;
            s->w = t->w;
            s->stride = t->stride;
            most = tensor_pixels(t) > most ? tensor_pixels(t) : most;
        }
        dim3 grid(cuda_blocks(most, PICTURE_THREADS), (unsigned)n, 1), block(PICTURE_THREADS, 1, 1);
        if (y[0].dtype == DTYPE_BF16)
            CUDA_LAUNCH((picture_kernel<bf16>), grid, block, cuda_device(dev)->stream, a);
        else
            CUDA_LAUNCH((picture_kernel<float>), grid, block, cuda_device(dev)->stream, a);
    }
    return cuda_check(cudaPeekAtLastError(), "view_normalise", err);
}

// ---- shuffle: the four quarters of a pixel are four "pixels" of c channels each ----

struct shuffle_shard {
    const void *src; /* x, or dy */
    void *dst;       /* y, or dx */
    int n, h, w;     /* size of the small side */
    int small_stride, large_stride;
};

struct shuffle_args {
    struct shuffle_shard shard[SHARDS_AT_ONCE];
    const float *bias;
    int c; /* channels of the large side */
    float beta;
};

/* The place of quarter i % 4 of pixel i / 4 on both sides. */
DEVICE_FN void places(const struct shuffle_args *a, const struct shuffle_shard *s, size_t i, size_t *ret_small, size_t *ret_large)
{
    size_t pixel = i / 4, image = pixel / ((size_t)s->h * (size_t)s->w), at = pixel % ((size_t)s->h * (size_t)s->w);
    int q = (int)(i % 4);

    *ret_small = pixel * (size_t)s->small_stride + (size_t)(q * a->c);
    *ret_large = (image * 4 * (size_t)s->h * (size_t)s->w + view_quarter((int)(at / (size_t)s->w), (int)(at % (size_t)s->w), s->w, q)) *
                 (size_t)s->large_stride;
}

template <typename T, int W> static __global__ void __launch_bounds__(VEC_THREADS) shuffle_kernel(const struct shuffle_args a)
{
    const struct shuffle_shard *s = &a.shard[blockIdx.z];
    int k = vec_channel<W>();
    size_t n = 4 * (size_t)s->n * (size_t)s->h * (size_t)s->w, i = vec_pixel<RUN>();

    for (int r = 0; r < RUN && i < n && k < a.c; r++, i += vec_step()) {
        float v[W], bias[W];
        size_t small, large;

        places(&a, s, i, &small, &large);
        vec_unpack(v, vec_load<W>((const T *)s->src + small + k));
        if (a.bias) {
            vec_channels(bias, a.bias, k);
#pragma unroll
            for (int j = 0; j < W; j++)
                v[j] += bias[j];
        }
        vec_store((T *)s->dst + large + k, v);
    }
}

template <typename T, int W> static __global__ void __launch_bounds__(VEC_THREADS) shuffle_back_kernel(const struct shuffle_args a)
{
    const struct shuffle_shard *s = &a.shard[blockIdx.z];
    int k = vec_channel<W>();
    size_t n = 4 * (size_t)s->n * (size_t)s->h * (size_t)s->w, i = vec_pixel<RUN>();

    for (int r = 0; r < RUN && i < n && k < a.c; r++, i += vec_step()) {
        float v[W], old[W];
        size_t small, large;
        T *dst;

        places(&a, s, i, &small, &large);
        dst = (T *)s->dst + small + k;
        vec_unpack(v, vec_load<W>((const T *)s->src + large + k));
        if (a.beta != 0.0f) {
            vec_unpack(old, vec_load<W>((const T *)dst));
#pragma unroll
            for (int j = 0; j < W; j++)
                v[j] = act_store(a.beta, &old[j], v[j]);
        }
        vec_store(dst, v);
    }
}

struct shuffle_call {
    cudaStream_t stream;
    struct shuffle_args a;
    int nshards;
    size_t quarters; /* of the largest shard */
    bool wide, back;
};

template <typename T, int W> static void launch_shuffle(struct shuffle_call *c)
{
    struct vec_grid g = vec_grid(c->quarters, c->a.c, W, RUN, c->nshards);

    if (c->back)
        CUDA_LAUNCH((shuffle_back_kernel<T, W>), g.grid, g.block, c->stream, c->a);
    else
        CUDA_LAUNCH((shuffle_kernel<T, W>), g.grid, g.block, c->stream, c->a);
}

/* back: dst is the small side. */
static void shuffle(struct device *dev, struct tensor *dst, const struct tensor *src, const float *bias, float beta, bool back, int nshards)
{
    struct shuffle_call c;

    for (int first = 0; first < nshards; first += SHARDS_AT_ONCE) {
        memset(&c, 0, sizeof(c));
        c.stream = cuda_device(dev)->stream;
        c.a.bias = bias;
        c.a.beta = beta;
        c.a.c = (back ? src : dst)[0].c;
        c.wide = c.a.c % vec_width(dst[0].dtype) == 0;
        c.back = back;
        c.nshards = nshards - first < SHARDS_AT_ONCE ? nshards - first : SHARDS_AT_ONCE;
        for (int v = 0; v < c.nshards; v++) {
            const struct tensor *small = back ? &dst[first + v] : &src[first + v], *large = back ? &src[first + v] : &dst[first + v];
            struct shuffle_shard *s = &c.a.shard[v];

            s->src = src[first + v].data;
            s->dst = dst[first + v].data;
            s->n = small->n;
            s->h = small->h;
            s->w = small->w;
            s->small_stride = small->stride;
            s->large_stride = large->stride;
            c.quarters = 4 * tensor_pixels(small) > c.quarters ? 4 * tensor_pixels(small) : c.quarters;
            c.wide = c.wide && vec_fits(small, vec_width(small->dtype)) && vec_fits(large, vec_width(large->dtype));
        }
        VEC_CALL(launch_shuffle, dst[0].dtype, c.wide, &c);
    }
}

int cuda_view_shuffle_fwd(struct device *dev, struct tensor *y, const struct tensor *x, const float *bias, int nshards, struct err *err)
{
    shuffle(dev, y, x, bias, 0.0f, false, nshards);
    return cuda_check(cudaPeekAtLastError(), "view_shuffle_fwd", err);
}

int cuda_view_shuffle_bwd(struct device *dev, struct tensor *dx, float beta, const struct tensor *dy, int nshards, struct err *err)
{
    shuffle(dev, dx, dy, NULL, beta, true, nshards);
    return cuda_check(cudaPeekAtLastError(), "view_shuffle_bwd", err);
}
