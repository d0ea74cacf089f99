/* SPDX-License-Identifier: Apache-2.0 */ /* cuda/rpn_propose.cu - from logits to proposals: a block for each level of
 * an image, then a block for each image, then a block for each shard. */
#include "cuda/cuda.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/select.h"
#include "cuda/suppress.h"
#include "worker/kernels/rpn.h"

enum { THREADS = 256 };

struct propose_level {
    const float *z, *d; // of the image
    int z_stride, d_stride, anchors, level, best, image;
    uint64_t *key, *sorted; // [anchors]; room for `best`
    float *box, *score;     // [best][4], [best]
    int32_t *gone, *keep;   // [best]
    uint64_t *kept;         // [best] keys of the image's selection; SELECT_NONE: empty
};

struct propose_image {
    struct rpn_grid grid;
    const int32_t *size;
    int32_t *broken, *count;
    uint64_t *kept, *sorted; // of all levels, [most]; room for `post`
    int most;
};

struct propose_shard {
    struct rpn_proposals ret;
    int first, n; // first image; images
};

struct propose_args {
    const struct propose_level *level; // [images][nlevels]
    const struct propose_image *image;
    const struct propose_shard *shard;
    struct rpn_head head;
    struct rpn_selection sel;
};

static __device__ int not_finite(float x)
{
    return !(x - x == 0.0f);
}

static __global__ void __launch_bounds__(THREADS) keys_kernel(const struct propose_args a)
{
    const struct propose_level *s = &a.level[blockIdx.y];

    for (int i = (int)(blockIdx.x * THREADS + threadIdx.x); i < s->anchors; i += (int)gridDim.x * THREADS) {
        float z = s->z[(size_t)(i / a.head.nratios) * (size_t)s->z_stride + (size_t)(i % a.head.nratios)];

        s->key[i] = select_by_score(z, (uint32_t)i);
        if (not_finite(z))
            atomicAdd(a.image[s->image].broken, 1);
    }
}

static __device__ void decode_best(const struct propose_args *a, const struct propose_level *s, int n)
{
    const struct propose_image *image = &a->image[s->image];

    for (int i = (int)threadIdx.x; i < n; i += SELECT_THREADS) {
        int anchor = (int)select_index(s->sorted[i]), bad;
        size_t pixel = (size_t)(anchor / a->head.nratios), ratio = (size_t)(anchor % a->head.nratios);
        float z = s->z[pixel * (size_t)s->z_stride + ratio];
        struct box b;

        s->gone[i] = !rpn_proposal(&b, &bad, &a->sel, rpn_anchor(&a->head, &image->grid, s->level, anchor), z,
                                   s->d + pixel * (size_t)s->d_stride + 4 * ratio, (float)image->size[0], (float)image->size[1]);
        s->box[4 * i] = b.x1;
        s->box[4 * i + 1] = b.y1;
        s->box[4 * i + 2] = b.x2;
        s->box[4 * i + 3] = b.y2;
        s->score[i] = a->sel.sigmoid ? math_sigmoid(z) : z;
        if (bad && !not_finite(z))
            atomicAdd(image->broken, 1);
    }
}

static __global__ void __launch_bounds__(SELECT_THREADS) level_kernel(const struct propose_args a)
{
    const struct propose_level *s = &a.level[blockIdx.x];
    int n = block_select(s->sorted, s->key, s->anchors, s->best, false), kept;

    decode_best(&a, s, n);
    __syncthreads();
    kept = block_suppress(s->box, n, s->gone, a.sel.nms, a.sel.post, s->keep);
    __syncthreads();
    for (int i = (int)threadIdx.x; i < s->best; i += SELECT_THREADS)
        s->kept[i] = i < kept ? select_by_score(s->score[s->keep[i]], (uint32_t)(s->level * a.sel.pre + s->keep[i])) : SELECT_NONE;
}

static __global__ void __launch_bounds__(SELECT_THREADS) merge_kernel(const struct propose_args a)
{
    const struct propose_image *s = &a.image[blockIdx.x];
    int n = block_select(s->sorted, s->kept, s->most, a.sel.post, false);

    if (threadIdx.x == 0)
        *s->count = n;
}

static __device__ void write_row(const struct propose_args *a, const struct propose_shard *s, int row)
{
    const struct rpn_proposals *ret = &s->ret;
    bool used = row < ret->offset[s->n];
    int image = 0, at;

    while (used && row >= ret->offset[image + 1])
        image++;
    ret->image[row] = image;
    ret->score[row] = 0.0f;
    for (int c = 0; c < 4; c++)
        ret->box[4 * (size_t)row + (size_t)c] = 0.0f;
    if (used) {
        uint32_t index = select_index(a->image[s->first + image].sorted[row - ret->offset[image]]);
        const struct propose_level *l = &a->level[(s->first + image) * a->head.nlevels + (int)(index / (uint32_t)a->sel.pre)];

        at = (int)(index % (uint32_t)a->sel.pre);
        ret->score[row] = l->score[at];
        for (int c = 0; c < 4; c++)
            ret->box[4 * (size_t)row + (size_t)c] = l->box[4 * at + c];
    }
}

static __global__ void __launch_bounds__(SELECT_THREADS) write_kernel(const struct propose_args a)
{
    const struct propose_shard *s = &a.shard[blockIdx.x];

    if (threadIdx.x == 0) {
        int broken = 0, at = 0;

        for (int i = 0; i < s->n; i++) {
            s->ret.offset[i] = at;
            at += *a.image[s->first + i].count;
            broken += *a.image[s->first + i].broken;
        }
        s->ret.offset[s->n] = at;
        *s->ret.broken = broken;
    }
    __syncthreads();
    for (int row = (int)threadIdx.x; row < s->ret.cap; row += SELECT_THREADS)
        write_row(&a, s, row);
}

// ---- launching ----

struct propose_call {
    const struct rpn_head *head;
    const struct rpn_selection *sel;
    const struct rcnn_images *images;
    const struct tensor *const *logits, *const *deltas;
    struct rpn_proposals *ret;
    int nshards, nimages;
};

static void fill_level(struct carve *c, struct propose_level *s, const struct propose_call *k, int v, int i, int l)
{
    const struct tensor *z = &k->logits[l][v], *d = &k->deltas[l][v];
    size_t pixels = (size_t)z->h * (size_t)z->w, best;

    s->anchors = (int)pixels * k->head->nratios;
    s->best = s->anchors < k->sel->pre ? s->anchors : k->sel->pre;
    best = (size_t)s->best;
    s->z = (const float *)z->data + (size_t)i * pixels * (size_t)z->stride;
    s->d = (const float *)d->data + (size_t)i * pixels * (size_t)d->stride;
    s->z_stride = z->stride;
    s->d_stride = d->stride;
    s->level = l;
    s->key = (uint64_t *)cuda_carve(c, (size_t)s->anchors * sizeof(uint64_t));
    s->sorted = (uint64_t *)cuda_carve(c, select_room(s->best) * sizeof(uint64_t));
    s->box = (float *)cuda_carve(c, best * 4 * sizeof(float));
    s->score = (float *)cuda_carve(c, best * sizeof(float));
    s->gone = (int32_t *)cuda_carve(c, best * sizeof(int32_t));
    s->keep = (int32_t *)cuda_carve(c, best * sizeof(int32_t));
}

// The counters of all images come first, so that one call zeroes them.
static void fill(struct carve *c, struct propose_level *level, struct propose_image *image, struct propose_shard *shard,
                 const struct propose_call *k, size_t *ret_widest)
{
    int32_t *counters = (int32_t *)cuda_carve(c, 2 * (size_t)k->nimages * sizeof(int32_t));
    int n = 0;

    *ret_widest = 0;
    for (int v = 0; v < k->nshards; v++) {
        shard[v].ret = k->ret[v];
        shard[v].first = n;
        shard[v].n = k->images[v].n;
        for (int i = 0; i < k->images[v].n; i++, n++) {
            struct propose_image *m = &image[n];

            m->grid = rpn_grid(k->head, k->images[v].canvas, k->logits, v);
            m->size = k->images[v].size + 2 * i;
            m->broken = counters + n;
            m->count = counters + k->nimages + n;
            m->most = 0;
            for (int l = 0; l < k->head->nlevels; l++) {
                struct propose_level *s = &level[n * k->head->nlevels + l];

                fill_level(c, s, k, v, i, l);
                s->image = n;
                m->most += s->best;
                *ret_widest = (size_t)s->anchors > *ret_widest ? (size_t)s->anchors : *ret_widest;
            }
            m->kept = (uint64_t *)cuda_carve(c, (size_t)m->most * sizeof(uint64_t));
            m->sorted = (uint64_t *)cuda_carve(c, select_room(k->sel->post) * sizeof(uint64_t));
            for (int l = 0, at = 0; l < k->head->nlevels; at += level[n * k->head->nlevels + l++].best)
                level[n * k->head->nlevels + l].kept = m->kept + at;
        }
    }
}

int cuda_rpn_propose(struct device *dev, const struct rpn_head *head, const struct rpn_selection *sel, const struct rcnn_images *images,
                     const struct tensor *const *logits, const struct tensor *const *deltas, struct rpn_proposals *ret, int nshards,
                     struct err *err)
{
    struct propose_call k = { head, sel, images, logits, deltas, ret, nshards, 0 };
    struct cuda_device *d = cuda_device(dev);
    struct carve c = { NULL, 0 };
    struct propose_args a;
    size_t levels, bytes[3], widest;
    char *host;
    const char *table;
    int rc;

    for (int v = 0; v < nshards; v++)
        k.nimages += images[v].n;
    levels = (size_t)k.nimages * (size_t)head->nlevels;
    bytes[0] = levels * sizeof(struct propose_level);
    bytes[1] = (size_t)k.nimages * sizeof(struct propose_image);
    bytes[2] = (size_t)nshards * sizeof(struct propose_shard);
    host = (char *)calloc(1, bytes[0] + bytes[1] + bytes[2]);
    if (!host)
        return err_set(err, -ENOMEM, "out of memory: rpn_propose");
    for (int round = 0; round < 2; round++) {
        c.used = 0;
        fill(&c, (struct propose_level *)host, (struct propose_image *)(host + bytes[0]),
             (struct propose_shard *)(host + bytes[0] + bytes[1]), &k, &widest);
        if (round == 0)
            c.base = (char *)cuda_scratch(dev, c.used, "rpn_propose", err);
        if (!c.base)
            break;
    }
    table = c.base ? (const char *)cuda_table(dev, host, bytes[0] + bytes[1] + bytes[2], err) : NULL;
    free(host);
    if (!table)
        return err->code;
    a.level = (const struct propose_level *)table;
    a.image = (const struct propose_image *)(table + bytes[0]);
    a.shard = (const struct propose_shard *)(table + bytes[0] + bytes[1]);
    a.head = *head;
    a.sel = *sel;
    rc = cuda_zero(dev, c.base, 2 * (size_t)k.nimages * sizeof(int32_t), err);
    if (rc < 0)
        return rc;
    CUDA_LAUNCH(keys_kernel, dim3(cuda_blocks(widest, THREADS), (unsigned)levels), THREADS, d->stream, a);
    CUDA_LAUNCH(level_kernel, (unsigned)levels, SELECT_THREADS, d->stream, a);
    CUDA_LAUNCH(merge_kernel, (unsigned)k.nimages, SELECT_THREADS, d->stream, a);
    CUDA_LAUNCH(write_kernel, (unsigned)nshards, SELECT_THREADS, d->stream, a);
    return cuda_check(cudaPeekAtLastError(), "rpn_propose", err);
}
