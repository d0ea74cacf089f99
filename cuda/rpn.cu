/* SPDX-License-Identifier: Apache-2.0 */ /* cuda/rpn.cu - labels anchors and draws samples: a thread matches and labels
 * an anchor, a block draws for an image. */
#include "cuda/cuda.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/select.h"
#include "worker/kernels/rpn.h"

enum { THREADS = 256 };

struct anchors_image {
    struct rpn_grid grid;
    const int32_t *offset; // of the image
    const float *box;      // of the shard
    float *best;
    int32_t *arg;
    uint64_t *draw[2];  // keys of negative and of positive anchors
    uint64_t *selected; // room for the batch
    int32_t *top;       // of the shard's boxes: the largest overlap with an anchor, as bits
    struct philox_key key[2];
    int32_t *anchor, *truth, *count; // results
};

struct anchors_args {
    const struct anchors_image *image;
    struct rpn_head head;
};

static __device__ float anchor_iou(const struct anchors_image *s, int t, struct box a, float area)
{
    struct box truth = box_at(s->box + (size_t)t * 4);

    return rpn_iou(truth, box_area(truth), a, area);
}

static __device__ struct box anchor_of(const struct anchors_args *a, const struct anchors_image *s, int anchor)
{
    int l = rpn_level_of(&s->grid, anchor);

    return rpn_anchor(&a->head, &s->grid, l, anchor - s->grid.level[l].first);
}

static __global__ void __launch_bounds__(THREADS) match_kernel(const struct anchors_args a)
{
    const struct anchors_image *s = &a.image[blockIdx.y];
    int anchor = (int)(blockIdx.x * THREADS + threadIdx.x), first = s->offset[0], end = s->offset[1], arg = 0;
    struct box box;
    float area, best = 0.0f;

    if (anchor >= s->grid.anchors)
        return;
    box = anchor_of(&a, s, anchor);
    area = box_area(box);
    for (int t = first; t < end; t++) {
        float iou = anchor_iou(s, t, box, area);
        int32_t bits = (int32_t)float_bits(iou);

        if (iou > best) {
            best = iou;
            arg = t - first;
        }
        if (iou > 0.0f && bits > s->top[t])
            atomicMax(&s->top[t], bits);
    }
    s->best[anchor] = best;
    s->arg[anchor] = arg;
}

// True if the anchor overlaps a box as much as the best anchor does.
static __device__ int is_low_match(const struct anchors_image *s, struct box box, float best)
{
    float area = box_area(box);

    for (int t = s->offset[0]; t < s->offset[1]; t++) {
        float top = bits_float((uint32_t)s->top[t]);

        if (top > 0.0f && top <= best && anchor_iou(s, t, box, area) == top)
            return 1;
    }
    return 0;
}

static __global__ void __launch_bounds__(THREADS) label_kernel(const struct anchors_args a)
{
    const struct anchors_image *s = &a.image[blockIdx.y];
    int anchor = (int)(blockIdx.x * THREADS + threadIdx.x), label;
    float best;

    if (anchor >= s->grid.anchors)
        return;
    best = s->best[anchor];
    label = rpn_label(&a.head, best, a.head.low_quality && best > 0.0f && is_low_match(s, anchor_of(&a, s, anchor), best));
    for (int kind = 0; kind < 2; kind++)
        s->draw[kind][anchor] = label == kind ? select_draw(&s->key[kind], (uint32_t)anchor) : SELECT_NONE;
}

static __global__ void __launch_bounds__(SELECT_THREADS) draw_kernel(const struct anchors_args a)
{
    const struct anchors_image *s = &a.image[blockIdx.x];
    int batch = a.head.batch, want = a.head.max_positive < batch ? a.head.max_positive : batch, positive, drawn;

    positive = block_select(s->selected, s->draw[1], s->grid.anchors, want, true);
    for (int i = (int)threadIdx.x; i < positive; i += SELECT_THREADS) {
        s->anchor[i] = (int32_t)s->selected[i];
        s->truth[i] = s->offset[0] + s->arg[s->selected[i]];
    }
    __syncthreads();
    drawn = positive + block_select(s->selected, s->draw[0], s->grid.anchors, batch - positive, true);
    for (int i = positive + (int)threadIdx.x; i < batch; i += SELECT_THREADS) {
        s->anchor[i] = i < drawn ? (int32_t)s->selected[i - positive] : 0;
        s->truth[i] = -1;
    }
    if (threadIdx.x == 0) {
        s->count[0] = drawn;
        s->count[1] = positive;
    }
}

// ---- launching ----

static size_t fill_images(struct carve *c, struct anchors_image *item, const struct rpn_head *head, const struct rcnn_images *images,
                          const struct rcnn_truth *truth, const struct tensor *const *shape, const struct philox_key *const key[2],
                          struct rpn_samples *ret, int nshards, int *ret_most)
{
    size_t n = 0;

    *ret_most = 0;
    for (int v = 0; v < nshards; v++) {
        struct rpn_grid grid = rpn_grid(head, images[v].canvas, shape, v);
        int32_t *top = (int32_t *)cuda_carve(c, (size_t)truth[v].rows * sizeof(int32_t)); // comes first in the memory of each shard

        *ret_most = grid.anchors > *ret_most ? grid.anchors : *ret_most;
        for (int i = 0; i < images[v].n; i++, n++) {
            struct anchors_image one, *s = item ? &item[n] : &one;
            size_t anchors = (size_t)grid.anchors, rows = (size_t)i * (size_t)head->batch;

            s->grid = grid;
            s->offset = truth[v].offset + i;
            s->box = truth[v].box;
            s->top = top;
            s->best = (float *)cuda_carve(c, anchors * sizeof(float));
            s->arg = (int32_t *)cuda_carve(c, anchors * sizeof(int32_t));
            for (int kind = 0; kind < 2; kind++) {
                s->draw[kind] = (uint64_t *)cuda_carve(c, anchors * sizeof(uint64_t));
                s->key[kind] = key[kind][n];
            }
            s->selected = (uint64_t *)cuda_carve(c, select_room(head->batch) * sizeof(uint64_t));
            s->anchor = ret[v].anchor + rows;
            s->truth = ret[v].truth + rows;
            s->count = ret[v].count + 2 * i;
        }
    }
    return n;
}

int cuda_rpn_sample(struct device *dev, const struct rpn_head *head, const struct rcnn_images *images, const struct rcnn_truth *truth,
                    const struct tensor *const *shape, const struct philox_key *positive, const struct philox_key *negative,
                    struct rpn_samples *ret, int nshards, struct err *err)
{
    const struct philox_key *const key[2] = { negative, positive };
    struct cuda_device *d = cuda_device(dev);
    struct carve c = { NULL, 0 };
    struct anchors_args a;
    struct anchors_image *item;
    int most, rc = 0;
    size_t n = fill_images(&c, NULL, head, images, truth, shape, key, ret, nshards, &most);

    item = (struct anchors_image *)calloc(n, sizeof *item);
    c.base = item ? (char *)cuda_scratch(dev, c.used, "rpn_sample", err) : NULL;
    if (!c.base) {
        free(item);
        return item ? -ENOMEM : err_set(err, -ENOMEM, "out of memory: rpn_sample");
    }
    c.used = 0;
    fill_images(&c, item, head, images, truth, shape, key, ret, nshards, &most);
    a.head = *head;
    a.image = (const struct anchors_image *)cuda_table(dev, item, n * sizeof *item, err);
    if (!a.image)
        rc = err->code;
    for (size_t i = 0; i < n && rc == 0; i++)
        if (i == 0 || item[i].top != item[i - 1].top) // top ends where the arrays of the shard's first image begin
            rc = cuda_zero(dev, item[i].top, (size_t)((char *)item[i].best - (char *)item[i].top), err);
    free(item);
    if (rc < 0)
        return rc;
    CUDA_LAUNCH(match_kernel, dim3(cuda_blocks((size_t)most, THREADS), (unsigned)n), THREADS, d->stream, a);
    CUDA_LAUNCH(label_kernel, dim3(cuda_blocks((size_t)most, THREADS), (unsigned)n), THREADS, d->stream, a);
    CUDA_LAUNCH(draw_kernel, (unsigned)n, SELECT_THREADS, d->stream, a);
    return cuda_check(cudaPeekAtLastError(), "rpn_sample", err);
}
