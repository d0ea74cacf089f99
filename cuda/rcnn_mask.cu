/* SPDX-License-Identifier: Apache-2.0 */ /* cuda/rcnn_mask.cu - targets and losses of masks. A block computes the
 * targets of a row; if bitmaps need memory, some blocks compute all rows of a shard. */
#include "cuda/cuda.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/select.h"
#include "cuda/terms.h"
#include "worker/kernels/mask_bits.h"
#include "worker/kernels/rpn.h"

enum { BITMAPS = 64 /* blocks with memory of their own */ };

// ---- targets ----

struct mask_target_args {
    struct rcnn_outlines outlines;
    struct rcnn_samples samples;
    const int32_t *size;
    float *target;
    char *memory;
    size_t bytes; // bytes of a block
    int images, binary, side;
};

static __device__ void draw_outlines(const struct mask_target_args *a, float *target, int from, int to, struct box box)
{
    SHARED(unsigned long long, one, RCNN_MAX_MASK_SIDE);
    SHARED(unsigned long long, all, RCNN_MAX_MASK_SIDE);
    struct mask_frame f = mask_frame(box, a->side);
    int column = (int)threadIdx.x;

    if (column < a->side)
        all[column] = 0;
    for (int p = from; p < to; p++) {
        int n = a->outlines.point[p + 1] - a->outlines.point[p];

        if (column < a->side)
            one[column] = 0;
        __syncthreads();
        for (int i = (int)threadIdx.x; i < n; i += SELECT_THREADS) {
            struct polygon_edge e = mask_edge(&f, a->outlines.xy + (size_t)a->outlines.point[p] * 2, n, i);
            int first, last;

            polygon_columns(&e, a->side, &first, &last);
            for (int c = first; c <= last; c++)
                atomicXor(&one[c], mask_turned(&f, &e, c));
        }
        __syncthreads();
        if (column < a->side)
            all[column] |= one[column];
        __syncthreads();
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < a->side * a->side; i += SELECT_THREADS)
        target[i] = all[i % a->side] >> i / a->side & 1u ? 1.0f : 0.0f;
    __syncthreads();
}

static __device__ void bits_of_polygons(const struct mask_window *w, const struct rcnn_outlines *o, int from, int to)
{
    for (int p = from; p < to; p++) {
        const double *xy = o->xy + (size_t)o->point[p] * 2;
        int n = o->point[p + 1] - o->point[p];

        for (size_t i = threadIdx.x; i < mask_window_words(w); i += SELECT_THREADS)
            w->turn[i] = 0;
        __syncthreads();
        for (int i = (int)threadIdx.x; i < n; i += SELECT_THREADS) {
            struct polygon_edge e = polygon_edge(xy + (size_t)i * 2, xy + (size_t)(i + 1 < n ? i + 1 : 0) * 2);
            int first, last;

            polygon_columns(&e, w->x_end, &first, &last);
            for (int c = first > w->x ? first : w->x; c <= last; c++) {
                int row = polygon_row(&e, c, w->height);

                if (row < w->height)
                    atomicXor(&w->turn[mask_word(w, c, row)], 1u << row % 32);
            }
        }
        __syncthreads();
        for (int c = w->x + (int)threadIdx.x; c < w->x_end; c += SELECT_THREADS)
            mask_fill_column(w, c);
        __syncthreads();
    }
}

// Sets the bits of runs of ones. Each thread has one run and knows the sum of the lengths before it.
static __device__ void bits_of_runs(const struct mask_window *w, const struct rcnn_outlines *o, int from, int to)
{
    int64_t at = 0;

    for (int base = from; base < to; base += SELECT_THREADS) {
        int r = base + (int)threadIdx.x, length = r < to ? o->length[r] : 0, before, all = block_place(length, &before), c, last;
        int64_t start = at + before, end = start + length;

        if (r < to && (r - from) % 2 == 1 && length > 0) {
            mask_run_columns(w, start, end, &c, &last);
            for (; c < last; c++) {
                int top, bottom;

                mask_run_rows(w, start, end, c, &top, &bottom);
                for (int k = top / 32; 32 * k < bottom; k++)
                    atomicOr(&w->bits[mask_word(w, c, 32 * k)], bits_between(k, top, bottom));
            }
        }
        at += all;
    }
    __syncthreads();
}

static __device__ void sample_bitmap(const struct mask_target_args *a, float *target, int image, int truth, struct box box)
{
    const struct rcnn_outlines *o = &a->outlines;
    struct mask_window w =
        mask_window(a->memory + (size_t)blockIdx.x * a->bytes, a->side, a->binary, box, a->size[2 * image], a->size[2 * image + 1]);
    int columns;

    if ((int)threadIdx.x < a->side)
        mask_window_band(&w, (int)threadIdx.x);
    __syncthreads();
    mask_window_columns(&w);
    columns = w.x_end - w.x;
    for (size_t i = threadIdx.x; i < mask_window_words(&w); i += SELECT_THREADS)
        w.bits[i] = 0;
    __syncthreads();
    if (o->run && o->run[truth + 1] > o->run[truth])
        bits_of_runs(&w, o, o->run[truth], o->run[truth + 1]);
    else if (o->polygon)
        bits_of_polygons(&w, o, o->polygon[truth], o->polygon[truth + 1]);
    for (int i = (int)threadIdx.x; i < a->side * columns; i += SELECT_THREADS)
        mask_window_sum(&w, i / columns, w.x + i % columns);
    __syncthreads();
    for (int i = (int)threadIdx.x; i < a->side * a->side; i += SELECT_THREADS)
        target[i] = mask_window_value(&w, i);
    __syncthreads();
}

static __global__ void __launch_bounds__(SELECT_THREADS) targets_kernel(const struct mask_target_args a)
{
    const struct rcnn_outlines *o = &a.outlines;

    for (int r = (int)blockIdx.x; r < a.samples.mask_offset[a.images]; r += (int)gridDim.x) {
        int truth = a.samples.mask_truth[r];
        struct box box = box_at(a.samples.mask_box + (size_t)r * 4);
        float *target = a.target + (size_t)r * (size_t)(a.side * a.side);

        if (a.binary && !(o->run && o->run[truth + 1] > o->run[truth]))
            draw_outlines(&a, target, o->polygon ? o->polygon[truth] : 0, o->polygon ? o->polygon[truth + 1] : 0, box);
        else
            sample_bitmap(&a, target, a.samples.mask_image[r], truth, box);
    }
}

int cuda_rcnn_mask_targets(struct device *dev, const struct rcnn_head *head, const struct rcnn_images *images,
                           const struct rcnn_outlines *outlines, float *const *target, const struct rcnn_samples *samples, int nshards,
                           struct err *err)
{
    bool bitmaps = head->masks == RCNN_MASKS_OF_BITMAPS;
    struct mask_target_args a;
    size_t bytes = 0;

    memset(&a, 0, sizeof a);
    for (int v = 0; v < nshards; v++) {
        size_t need = mask_window_bytes(images[v].canvas, head->mask_side);

        bytes = need > bytes ? need : bytes;
        bitmaps = bitmaps || outlines[v].run;
    }
    if (bitmaps) {
        a.memory = (char *)cuda_scratch(dev, BITMAPS * bytes, "rcnn_mask_targets", err);
        if (!a.memory)
            return -ENOMEM;
    }
    a.bytes = bytes;
    a.binary = head->masks == RCNN_MASKS_OF_OUTLINES;
    a.side = head->mask_side;
    for (int v = 0; v < nshards; v++) {
        int blocks = samples[v].mask_cap < BITMAPS || !bitmaps ? samples[v].mask_cap : BITMAPS;

        a.outlines = outlines[v];
        a.samples = samples[v];
        a.size = images[v].size;
        a.target = target[v];
        a.images = images[v].n;
        if (blocks > 0)
            CUDA_LAUNCH(targets_kernel, (unsigned)blocks, SELECT_THREADS, cuda_device(dev)->stream, a);
    }
    return cuda_check(cudaPeekAtLastError(), "rcnn_mask_targets", err);
}

// ---- loss ----

struct mask_loss_shard {
    struct rcnn_samples samples;
    const float *z, *target;
    float *dz;
    int images, z_stride, dz_stride;
    double *rows; // [mask_cap]
};

struct mask_loss_args {
    const struct mask_loss_shard *shard;
    const struct terms_of *terms;
    int channels, first, cells;
    float grad_scale;
};

// A thread for each number of the gradient.
static __global__ void __launch_bounds__(SELECT_THREADS) gradient_kernel(const struct mask_loss_args a)
{
    const struct mask_loss_shard *s = &a.shard[blockIdx.y];
    size_t i = blockIdx.x * (size_t)SELECT_THREADS + threadIdx.x, pixel = i / (size_t)a.channels, row = pixel / (size_t)a.cells;
    int channel = (int)(i % (size_t)a.channels), count = s->samples.mask_offset[s->images];
    float grad = 0.0f;

    if (row >= (size_t)s->samples.mask_cap)
        return;
    if (row < (size_t)count && channel == s->samples.mask_label[row] + a.first)
        mask_cost(&grad, s->z[pixel * (size_t)s->z_stride + (size_t)channel], s->target[pixel],
                  loss_scale(a.grad_scale, (double)count * a.cells));
    s->dz[pixel * (size_t)s->dz_stride + (size_t)channel] = grad;
}

static __global__ void __launch_bounds__(SELECT_THREADS) row_loss_kernel(const struct mask_loss_args a)
{
    SHARED(double, cost, RCNN_MAX_MASK_CELLS);
    const struct mask_loss_shard *s = &a.shard[blockIdx.y];
    size_t row = blockIdx.x;
    double sum;

    if (row >= (size_t)s->samples.mask_offset[s->images])
        return;
    for (size_t i = threadIdx.x; i < (size_t)a.cells; i += SELECT_THREADS) {
        size_t pixel = row * (size_t)a.cells + i, at = pixel * (size_t)s->z_stride + (size_t)(s->samples.mask_label[row] + a.first);

        cost[i] = (double)mask_cost(NULL, s->z[at], s->target[pixel], 0.0f);
    }
    __syncthreads();
    sum = block_lanes(cost, 1, a.cells);
    if (threadIdx.x == 0)
        s->rows[row] = sum;
}

static __global__ void __launch_bounds__(SELECT_THREADS) mask_terms_kernel(const struct mask_loss_args a)
{
    const struct terms_of *t = &a.terms[blockIdx.x];
    int n = *t->to - *t->from;
    double sum = block_lanes(t->rows + *t->from, 1, n);

    if (threadIdx.x == 0)
        rcnn_mask_finish(t->terms, sum, n, a.cells);
}

static int launch_loss(struct cuda_device *d, const struct mask_loss_args *a, bool gradients, int most, int nshards, int nterms,
                       struct err *err)
{
    size_t numbers = (size_t)most * (size_t)a->cells * (size_t)a->channels;

    if (gradients && most > 0)
        CUDA_LAUNCH(gradient_kernel, dim3(cuda_blocks(numbers, SELECT_THREADS), (unsigned)nshards), SELECT_THREADS, d->stream, *a);
    if (most > 0)
        CUDA_LAUNCH(row_loss_kernel, dim3((unsigned)most, (unsigned)nshards), SELECT_THREADS, d->stream, *a);
    CUDA_LAUNCH(mask_terms_kernel, (unsigned)nterms, SELECT_THREADS, d->stream, *a);
    return cuda_check(cudaPeekAtLastError(), "rcnn_mask_loss", err);
}

int cuda_rcnn_mask_loss(struct device *dev, const struct rcnn_head *head, const struct rcnn_images *images, struct tensor *dlogits,
                        float grad_scale, double *const *terms, bool by_image, const struct tensor *logits, const float *const *target,
                        const struct rcnn_samples *samples, int nshards, struct err *err)
{
    size_t rows = 0, shard_bytes = (size_t)nshards * sizeof(struct mask_loss_shard), bytes, n = 0;
    struct mask_loss_shard *shard;
    struct terms_of *item;
    struct mask_loss_args a;
    double *memory;
    char *host;
    int most = 0, nterms = 0;

    for (int v = 0; v < nshards; v++) {
        rows += (size_t)samples[v].mask_cap;
        most = samples[v].mask_cap > most ? samples[v].mask_cap : most;
        n += by_image ? (size_t)images[v].n : 1;
    }
    bytes = shard_bytes + n * sizeof(struct terms_of);
    memory = (double *)cuda_scratch(dev, (rows + 1) * sizeof(double), "rcnn_mask_loss", err);
    if (!memory)
        return -ENOMEM;
    host = (char *)calloc(1, bytes);
    if (!host)
        return err_set(err, -ENOMEM, "out of memory: rcnn_mask_loss");
    shard = (struct mask_loss_shard *)host;
    item = (struct terms_of *)(host + shard_bytes);
    for (int v = 0; v < nshards; v++) {
        struct mask_loss_shard *s = &shard[v];

        s->samples = samples[v];
        s->images = images[v].n;
        s->z = (const float *)logits[v].data;
        s->z_stride = logits[v].stride;
        s->dz = dlogits ? (float *)dlogits[v].data : NULL;
        s->dz_stride = dlogits ? dlogits[v].stride : 0;
        s->target = target[v];
        s->rows = memory;
        nterms += fill_terms(item + nterms, samples[v].mask_offset, images[v].n, memory, terms + nterms, by_image);
        memory += samples[v].mask_cap;
    }
    a.shard = (const struct mask_loss_shard *)cuda_table(dev, host, bytes, err);
    free(host);
    if (!a.shard)
        return err->code;
    a.terms = (const struct terms_of *)((const char *)a.shard + shard_bytes);
    a.channels = rcnn_mask_channels(head);
    a.cells = rcnn_mask_cells(head);
    a.first = head->background_first ? 1 : 0;
    a.grad_scale = grad_scale;
    return launch_loss(cuda_device(dev), &a, dlogits != NULL, most, nshards, nterms, err);
}
