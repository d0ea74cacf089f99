/* SPDX-License-Identifier: Apache-2.0 */ /* cuda/rpn_loss.cu - losses of the drawn anchors. All other gradients are
 * zero. */
#include "cuda/cuda.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/select.h"
#include "worker/kernels/rpn.h"

enum { THREADS = 256 };

struct zero_item {
    float *x;
    size_t pixels;
    int c, stride;
};

static __global__ void __launch_bounds__(THREADS) zero_kernel(const struct zero_item *items)
{
    const struct zero_item *t = &items[blockIdx.y];
    size_t n = t->pixels * (size_t)t->c;

    for (size_t i = blockIdx.x * (size_t)THREADS + threadIdx.x; i < n; i += (size_t)gridDim.x * THREADS)
        t->x[i / (size_t)t->c * (size_t)t->stride + i % (size_t)t->c] = 0.0f;
}

struct rpn_loss_image {
    struct rpn_grid grid;
    int image, first, images;                           // index in its shard; index of the shard's first image; images of the shard
    const int32_t *anchor, *matched, *count, *broken;   // of the image; count: of the shard
    const float *truth;                                 // of the shard
    const float *z[RPN_MAX_LEVELS], *d[RPN_MAX_LEVELS]; // of the shard
    float *dz[RPN_MAX_LEVELS], *dd[RPN_MAX_LEVELS];
    int z_stride[RPN_MAX_LEVELS], d_stride[RPN_MAX_LEVELS], dz_stride[RPN_MAX_LEVELS], dd_stride[RPN_MAX_LEVELS];
    double *sums, *cost; // [2][batch]; [2] of this image
    double *terms;       // of the image, or of the shard at its first image; NULL: not wanted
};

struct rpn_loss_args {
    const struct rpn_loss_image *image;
    struct rpn_head head;
    float grad_scale;
    int by_image;
};

static __device__ int sum_counts(const struct rpn_loss_image *s, int which)
{
    int sum = 0;

    for (int i = 0; i < s->images; i++)
        sum += s->count[2 * i + which];
    return sum;
}

static __device__ struct rpn_cost cost_of(const struct rpn_loss_args *a, const struct rpn_loss_image *s, int anchor, int truth, float scale)
{
    const struct rpn_grid *g = &s->grid;
    int l = rpn_level_of(g, anchor), i = anchor - g->level[l].first;
    const struct rpn_level *level = &g->level[l];
    float *dz = s->dz[l] ? s->dz[l] + rpn_place(level, g->nratios, s->image, i, s->dz_stride[l], 1) : NULL;
    float *dd = s->dz[l] ? s->dd[l] + rpn_place(level, g->nratios, s->image, i, s->dd_stride[l], 4) : NULL;

    return rpn_cost(dz, dd, s->z[l][rpn_place(level, g->nratios, s->image, i, s->z_stride[l], 1)],
                    s->d[l] + rpn_place(level, g->nratios, s->image, i, s->d_stride[l], 4), rpn_anchor(&a->head, g, l, i),
                    truth >= 0 ? s->truth + (size_t)truth * 4 : NULL, a->head.beta, scale);
}

static __global__ void __launch_bounds__(SELECT_THREADS) image_loss_kernel(const struct rpn_loss_args a)
{
    const struct rpn_loss_image *s = &a.image[blockIdx.x];
    int n = s->count[2 * s->image];
    float scale = loss_scale(a.grad_scale, rpn_norm(&a.head, sum_counts(s, 0), s->images));
    double cls, box;

    for (int i = (int)threadIdx.x; i < n; i += SELECT_THREADS) {
        struct rpn_cost c = cost_of(&a, s, s->anchor[i], s->matched[i], scale);

        s->sums[i] = (double)c.cls;
        s->sums[a.head.batch + i] = (double)c.box;
    }
    __syncthreads();
    cls = block_lanes(s->sums, 1, n);
    box = block_lanes(s->sums + a.head.batch, 1, n);
    if (threadIdx.x == 0) {
        s->cost[0] = cls;
        s->cost[1] = box;
    }
}

// A thread for each row of terms. The images of a shard are one chain.
static __global__ void terms_kernel(const struct rpn_loss_args a, int n)
{
    int index = (int)(blockIdx.x * blockDim.x + threadIdx.x), sampled;
    const struct rpn_loss_image *s = &a.image[index < n ? index : 0];
    double cls = 0.0, box = 0.0;
    int broken;

    if (index >= n || !s->terms)
        return;
    broken = s->broken && *s->broken > 0;
    if (a.by_image) {
        sampled = s->count[2 * s->image];
        rpn_finish(s->terms, s->cost[0], s->cost[1], sampled, s->count[2 * s->image + 1], rpn_norm(&a.head, sampled, 1), broken);
        return;
    }
    for (int i = 0; i < s->images; i++) {
        cls += a.image[s->first + i].cost[0];
        box += a.image[s->first + i].cost[1];
    }
    sampled = sum_counts(s, 0);
    rpn_finish(s->terms, cls, box, sampled, sum_counts(s, 1), rpn_norm(&a.head, sampled, s->images), broken);
}

// ---- launching ----

struct loss_call {
    const struct rpn_head *head;
    const struct rcnn_images *images;
    const struct rcnn_truth *truth;
    struct tensor *const *dlogits, *const *ddeltas;
    double *const *terms;
    const struct tensor *const *logits, *const *deltas;
    const struct rpn_samples *samples;
    const int32_t *const *broken;
    int by_image, nshards;
};

static void fill_levels(struct rpn_loss_image *s, const struct loss_call *k, int v)
{
    for (int l = 0; l < k->head->nlevels; l++) {
        s->z[l] = (const float *)k->logits[l][v].data;
        s->d[l] = (const float *)k->deltas[l][v].data;
        s->z_stride[l] = k->logits[l][v].stride;
        s->d_stride[l] = k->deltas[l][v].stride;
        s->dz[l] = k->dlogits ? (float *)k->dlogits[l][v].data : NULL;
        s->dd[l] = k->dlogits ? (float *)k->ddeltas[l][v].data : NULL;
        s->dz_stride[l] = k->dlogits ? k->dlogits[l][v].stride : 0;
        s->dd_stride[l] = k->dlogits ? k->ddeltas[l][v].stride : 0;
    }
}

static void fill_images(struct rpn_loss_image *item, const struct loss_call *k, double *memory)
{
    size_t n = 0, batch = (size_t)k->head->batch;

    for (int v = 0; v < k->nshards; v++) {
        struct rpn_grid grid = rpn_grid(k->head, k->images[v].canvas, k->logits, v);
        int first = (int)n;

        for (int i = 0; i < k->images[v].n; i++, n++) {
            struct rpn_loss_image *s = &item[n];

            s->grid = grid;
            s->image = i;
            s->first = first;
            s->images = k->images[v].n;
            s->anchor = k->samples[v].anchor + (size_t)i * batch;
            s->matched = k->samples[v].truth + (size_t)i * batch;
            s->count = k->samples[v].count;
            s->broken = k->broken ? k->broken[v] : NULL;
            s->truth = k->truth[v].box;
            s->sums = memory + n * (2 * batch + 2);
            s->cost = s->sums + 2 * batch;
            s->terms = k->by_image ? k->terms[n] : i == 0 ? k->terms[v] : NULL;
            fill_levels(s, k, v);
        }
    }
}

static int zero_gradients(struct device *dev, const struct loss_call *k, struct err *err)
{
    int n = 2 * k->head->nlevels * k->nshards, at = 0;
    struct zero_item *item = (struct zero_item *)calloc((size_t)n, sizeof *item);
    const struct zero_item *table = NULL;
    size_t most = 0;

    if (!item)
        return err_set(err, -ENOMEM, "out of memory: rpn_loss");
    for (int l = 0; l < k->head->nlevels; l++)
        for (int v = 0; v < k->nshards; v++)
            for (int kind = 0; kind < 2; kind++, at++) {
                const struct tensor *t = kind ? &k->ddeltas[l][v] : &k->dlogits[l][v];

                item[at].x = (float *)t->data;
                item[at].pixels = tensor_pixels(t);
                item[at].c = t->c;
                item[at].stride = t->stride;
                most = tensor_count(t) > most ? tensor_count(t) : most;
            }
    table = (const struct zero_item *)cuda_table(dev, item, (size_t)n * sizeof *item, err);
    free(item);
    if (!table)
        return err->code;
    CUDA_LAUNCH(zero_kernel, dim3(cuda_blocks(most, 4 * THREADS), (unsigned)n), THREADS, cuda_device(dev)->stream, table);
    return cuda_check(cudaPeekAtLastError(), "rpn_loss", err);
}

int cuda_rpn_loss(struct device *dev, const struct rpn_head *head, const struct rcnn_images *images, const struct rcnn_truth *truth,
                  struct tensor *const *dlogits, struct tensor *const *ddeltas, float grad_scale, double *const *terms, bool by_image,
                  const struct tensor *const *logits, const struct tensor *const *deltas, const struct rpn_samples *samples,
                  const int32_t *const *broken, int nshards, struct err *err)
{
    struct loss_call k = { head, images, truth, dlogits, ddeltas, terms, logits, deltas, samples, broken, by_image, nshards };
    struct cuda_device *d = cuda_device(dev);
    struct rpn_loss_image *item;
    struct rpn_loss_args a;
    double *memory;
    int n = 0, rc = 0;

    for (int v = 0; v < nshards; v++)
        n += images[v].n;
    memory = (double *)cuda_scratch(dev, (size_t)n * (2 * (size_t)head->batch + 2) * sizeof(double), "rpn_loss", err);
    if (!memory)
        return -ENOMEM;
    if (dlogits)
        rc = zero_gradients(dev, &k, err);
    item = (struct rpn_loss_image *)calloc((size_t)n, sizeof *item);
    if (!item || rc < 0) {
        free(item);
        return rc < 0 ? rc : err_set(err, -ENOMEM, "out of memory: rpn_loss");
    }
    fill_images(item, &k, memory);
    a.image = (const struct rpn_loss_image *)cuda_table(dev, item, (size_t)n * sizeof *item, err);
    free(item);
    if (!a.image)
        return err->code;
    a.head = *head;
    a.grad_scale = grad_scale;
    a.by_image = by_image;
    CUDA_LAUNCH(image_loss_kernel, (unsigned)n, SELECT_THREADS, d->stream, a);
    CUDA_LAUNCH(terms_kernel, cuda_blocks((size_t)n, 32), 32, d->stream, a, n);
    return cuda_check(cudaPeekAtLastError(), "rpn_loss", err);
}
