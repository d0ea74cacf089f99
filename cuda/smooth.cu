/* SPDX-License-Identifier: Apache-2.0 */ /* cuda/smooth.cu - edge-aware smoothness. A thread owns the weights of a
 * pixel, the sum of a pixel, row or image, or a number of the gradient. */
#include "cuda/cuda.h"

#include <string.h>

#include "cuda/vec.h"
#include "worker/kernels/smooth.h"

enum { THREADS = 128 };

struct smooth_shard {
    const float *x, *picture;
    float *edge, *dx;
    double *sums, *part;
    int n, h, w, c, stride, dx_stride, H, W, picture_stride;
    double numbers; /* images in the mean of the loss, times channels */
    double *ret[1]; /* destination of the shard's loss */
};

struct smooth_args {
    struct smooth_shard shard[SHARDS_AT_ONCE];
    struct smoothness s;
    float beta, scale;
};

DEVICE_FN size_t own_unit(void)
{
    return (size_t)blockIdx.x * THREADS + threadIdx.x;
}

DEVICE_FN struct smooth_plane plane_of(const struct smooth_shard *s, size_t image)
{
    size_t pixels = (size_t)s->h * (size_t)s->w;
    struct smooth_plane p;

    p.x = s->x + image * pixels * (size_t)s->stride;
    p.edge = s->edge + image * pixels * SMOOTH_EDGES;
    p.h = s->h;
    p.w = s->w;
    p.stride = s->stride;
    return p;
}

static __global__ void __launch_bounds__(THREADS) edges_kernel(const struct smooth_args a)
{
    const struct smooth_shard *s = &a.shard[blockIdx.y];
    size_t i = own_unit(), pixels = (size_t)s->h * (size_t)s->w, image = i / pixels;
    struct smooth_picture p;

    if (image >= (size_t)s->n)
        return;
    p.at = s->picture + image * (size_t)s->H * (size_t)s->W * (size_t)s->picture_stride;
    p.stride = s->picture_stride;
    p.H = s->H;
    p.W = s->W;
    p.h = s->h;
    p.w = s->w;
    smooth_edges(&a.s, &p, (int)(i % pixels / (size_t)s->w), (int)(i % (size_t)s->w), s->numbers, s->edge + i * SMOOTH_EDGES);
}

static __global__ void __launch_bounds__(THREADS) pixels_kernel(const struct smooth_args a)
{
    const struct smooth_shard *s = &a.shard[blockIdx.y];
    size_t i = own_unit(), pixels = (size_t)s->h * (size_t)s->w, image = i / pixels;
    double sum[SMOOTH_SUMS] = { 0, 0 };
    struct smooth_steps steps;
    struct smooth_plane p;
    const float *at;

    if (image >= (size_t)s->n)
        return;
    p = plane_of(s, image);
    steps = smooth_steps(&p, (int)(i % pixels / (size_t)s->w), (int)(i % (size_t)s->w));
    at = p.x + i % pixels * (size_t)s->stride;
    for (int k = 0; k < s->c; k++) {
        sum[0] += (double)smooth_value(at + k, &steps, p.edge + i % pixels * SMOOTH_EDGES);
        sum[1] += (double)at[k];
    }
    s->part[SMOOTH_SUMS * i] = sum[0];
    s->part[SMOOTH_SUMS * i + 1] = sum[1];
}

/* The sum of a row replaces that of its first pixel. */
static __global__ void __launch_bounds__(THREADS) rows_kernel(const struct smooth_args a)
{
    const struct smooth_shard *s = &a.shard[blockIdx.y];
    size_t i = own_unit();
    double *row = s->part + i * (size_t)s->w * SMOOTH_SUMS, sum[SMOOTH_SUMS] = { 0, 0 };

    if (i >= (size_t)s->n * (size_t)s->h)
        return;
    for (int x = 0; x < s->w; x++)
        for (int k = 0; k < SMOOTH_SUMS; k++)
            sum[k] += row[SMOOTH_SUMS * x + k];
    row[0] = sum[0];
    row[1] = sum[1];
}

static __global__ void __launch_bounds__(THREADS) images_kernel(const struct smooth_args a)
{
    const struct smooth_shard *s = &a.shard[blockIdx.y];
    size_t i = own_unit(), step = (size_t)s->w * SMOOTH_SUMS;
    const double *row = s->part + i * (size_t)s->h * step;
    double sum[SMOOTH_SUMS] = { 0, 0 };

    if (i >= (size_t)s->n)
        return;
    for (int y = 0; y < s->h; y++)
        for (int k = 0; k < SMOOTH_SUMS; k++)
            sum[k] += row[(size_t)y * step + (size_t)k];
    s->sums[SMOOTH_SUMS * i] = sum[0];
    s->sums[SMOOTH_SUMS * i + 1] = sum[1];
}

/* One thread for each shard: it has few images. */
static __global__ void __launch_bounds__(THREADS) loss_kernel(const struct smooth_args a)
{
    const struct smooth_shard *s = &a.shard[blockIdx.y];
    double sum = 0, numbers = (double)s->h * s->w * s->c;

    if (own_unit() > 0)
        return;
    for (int i = 0; i < s->n; i++)
        sum += smooth_image(&a.s, s->sums + SMOOTH_SUMS * i, numbers);
    *s->ret[0] = sum;
}

static __global__ void __launch_bounds__(THREADS) back_kernel(const struct smooth_args a)
{
    const struct smooth_shard *s = &a.shard[blockIdx.y];
    size_t i = own_unit(), k = i % (size_t)s->c, pixel = i / (size_t)s->c, pixels = (size_t)s->h * (size_t)s->w, image = pixel / pixels;
    struct smooth_readers of;
    struct smooth_plane p;
    float *dx;

    if (image >= (size_t)s->n)
        return;
    p = plane_of(s, image);
    dx = s->dx + pixel * (size_t)s->dx_stride + k;
    smooth_readers(&p, (int)(pixel % pixels / (size_t)s->w), (int)(pixel % (size_t)s->w), &of);
    *dx = act_store(a.beta, dx,
                    a.scale * smooth_normalised(&a.s, smooth_grad(p.x + pixel % pixels * (size_t)s->stride + k, &of),
                                                s->sums + SMOOTH_SUMS * image, (double)s->h * s->w * s->c));
}

// ---- launching ----

struct smooth_call {
    struct smooth_args a;
    int n;         /* shards of this launch */
    size_t pixels; /* of the largest shard: images times sides */
};

static void fill_map(struct smooth_call *c, int first, int nshards, const struct smooth_in *in)
{
    c->n = nshards - first < SHARDS_AT_ONCE ? nshards - first : SHARDS_AT_ONCE;
    c->pixels = 0;
    for (int v = 0; v < c->n; v++) {
        const struct tensor *x = &in->x[first + v];
        struct smooth_shard *s = &c->a.shard[v];

        s->x = (const float *)x->data;
        s->edge = (float *)in->edge[first + v].data;
        s->n = x->n;
        s->h = x->h;
        s->w = x->w;
        s->c = x->c;
        s->stride = x->stride;
        c->pixels = tensor_pixels(x) > c->pixels ? tensor_pixels(x) : c->pixels;
    }
}

static void launch(struct device *dev, const struct smooth_call *c, void (*kernel)(const struct smooth_args), size_t units)
{
    dim3 grid(cuda_blocks(units, THREADS), (unsigned)c->n, 1), block(THREADS, 1, 1);

    CUDA_LAUNCH(kernel, grid, block, cuda_device(dev)->stream, c->a);
}

int cuda_smooth_edges(struct device *dev, const struct smoothness *s, struct tensor *edge, const struct tensor *picture, int c,
                      const int *images, int nshards, struct err *err)
{
    struct smooth_call call;

    memset(&call, 0, sizeof(call));
    call.a.s = *s;
    for (int first = 0; first < nshards; first += SHARDS_AT_ONCE) {
        struct smooth_in in = { edge, edge };

        fill_map(&call, first, nshards, &in);
        for (int v = 0; v < call.n; v++) {
            const struct tensor *p = &picture[first + v];
            struct smooth_shard *to = &call.a.shard[v];

            to->picture = (const float *)p->data;
            to->H = p->h;
            to->W = p->w;
            to->picture_stride = p->stride;
            to->numbers = (double)images[first + v] * c;
        }
        launch(dev, &call, edges_kernel, call.pixels);
    }
    return cuda_check(cudaPeekAtLastError(), "smooth_edges", err);
}

int cuda_smooth_sums(struct device *dev, double *const *sums, double *const *part, const struct smooth_in *in, int nshards, struct err *err)
{
    struct smooth_call call;

    memset(&call, 0, sizeof(call));
    for (int first = 0; first < nshards; first += SHARDS_AT_ONCE) {
        fill_map(&call, first, nshards, in);
        for (int v = 0; v < call.n; v++) {
            call.a.shard[v].sums = sums[first + v];
            call.a.shard[v].part = part[first + v];
        }
        launch(dev, &call, pixels_kernel, call.pixels);
        launch(dev, &call, rows_kernel, call.pixels);
        launch(dev, &call, images_kernel, call.pixels);
    }
    return cuda_check(cudaPeekAtLastError(), "smooth_sums", err);
}

/* Images with a loss of their own are shards of one image. */
static void launch_apart(struct device *dev, struct smooth_call *call, double *const *ret, double *const *sums, const struct smooth_in *in,
                         int nshards)
{
    int row = 0;

    call->n = 0;
    for (int v = 0; v < nshards; v++)
        for (int i = 0; i < in->x[v].n; i++) {
            struct smooth_shard *s = &call->a.shard[call->n++];

            s->n = 1;
            s->h = in->x[v].h;
            s->w = in->x[v].w;
            s->c = in->x[v].c;
            s->sums = sums[v] + SMOOTH_SUMS * i;
            s->ret[0] = ret[row++];
            if (call->n == SHARDS_AT_ONCE) {
                launch(dev, call, loss_kernel, 1);
                call->n = 0;
            }
        }
    if (call->n > 0)
        launch(dev, call, loss_kernel, 1);
}

int cuda_smooth_loss(struct device *dev, const struct smoothness *s, double *const *ret, bool apart, double *const *sums,
                     const struct smooth_in *in, int nshards, struct err *err)
{
    struct smooth_call call;

    memset(&call, 0, sizeof(call));
    call.a.s = *s;
    if (apart)
        launch_apart(dev, &call, ret, sums, in, nshards);
    for (int first = 0; first < nshards && !apart; first += SHARDS_AT_ONCE) {
        fill_map(&call, first, nshards, in);
        for (int v = 0; v < call.n; v++) {
            call.a.shard[v].sums = sums[first + v];
            call.a.shard[v].ret[0] = ret[first + v];
        }
        launch(dev, &call, loss_kernel, 1);
    }
    return cuda_check(cudaPeekAtLastError(), "smooth_loss", err);
}

int cuda_smooth_bwd(struct device *dev, const struct smoothness *s, struct tensor *dx, float beta, float scale, double *const *sums,
                    const struct smooth_in *in, int nshards, struct err *err)
{
    struct smooth_call call;

    memset(&call, 0, sizeof(call));
    call.a.s = *s;
    call.a.beta = beta;
    call.a.scale = scale;
    for (int first = 0; first < nshards; first += SHARDS_AT_ONCE) {
        size_t most = 0;

        fill_map(&call, first, nshards, in);
        for (int v = 0; v < call.n; v++) {
            call.a.shard[v].sums = sums[first + v];
            call.a.shard[v].dx = (float *)dx[first + v].data;
            call.a.shard[v].dx_stride = dx[first + v].stride;
            most = tensor_count(&dx[first + v]) > most ? tensor_count(&dx[first + v]) : most;
        }
        launch(dev, &call, back_kernel, most);
    }
    return cuda_check(cudaPeekAtLastError(), "smooth_bwd", err);
}
