/* SPDX-License-Identifier: Apache-2.0 */ /* cuda/rcnn.cu - regions for training, losses of their boxes, detections. A
 * block for each image draws and writes; a thread for each row computes losses. */
#include "cuda/cuda.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/select.h"
#include "cuda/terms.h"
#include "worker/kernels/rcnn.h"
#include "worker/kernels/rpn.h"

enum { THREADS = 128 };

// ---- drawing regions ----

struct regions_image {
    struct rpn_proposals proposals; // of the shard
    struct rcnn_truth truth;
    struct rcnn_samples ret;
    struct philox_key key[2];      // background, foreground
    int image, images;             // index in its shard; images of the shard
    int most;                      // room for candidates
    int32_t *arg, *choice, *count; // [most]; count: of all images of the shard: [2] chosen, with masks
    uint64_t *draw[2];             // [most]
};

struct regions_args {
    const struct regions_image *image;
    struct rcnn_head head;
};

static __device__ int candidates_of(const struct regions_args *a, const struct regions_image *s)
{
    int proposals = s->proposals.offset[s->image + 1] - s->proposals.offset[s->image];

    return proposals + (a->head.append_truth ? s->truth.offset[s->image + 1] - s->truth.offset[s->image] : 0);
}

static __device__ const float *candidate_box(const struct regions_image *s, int i)
{
    int from = s->proposals.offset[s->image], n = s->proposals.offset[s->image + 1] - from;

    return i < n ? s->proposals.box + (size_t)(from + i) * 4 : s->truth.box + (size_t)(s->truth.offset[s->image] + i - n) * 4;
}

static __device__ void match(const struct regions_args *a, const struct regions_image *s, int i)
{
    struct box box = box_at(candidate_box(s, i));
    int first = s->truth.offset[s->image], end = s->truth.offset[s->image + 1], arg = 0, foreground;
    float area = box_area(box), best = 0.0f;

    for (int t = first; t < end; t++) {
        struct box truth = box_at(s->truth.box + (size_t)t * 4);
        float iou = rpn_iou(truth, box_area(truth), box, area);

        if (iou > best) {
            best = iou;
            arg = t - first;
        }
    }
    foreground = end > first && rcnn_foreground(&a->head, best, s->truth.cls[first + arg]);
    s->arg[i] = arg;
    s->choice[i] = RCNN_LEFT;
    for (int kind = 0; kind < 2; kind++)
        s->draw[kind][i] = foreground == kind ? select_draw(&s->key[kind], (uint32_t)i) : SELECT_NONE;
}

// Draws at or below a threshold become `choice`.
static __device__ int draw(const struct regions_image *s, int kind, int n, int want, int choice)
{
    int count;
    uint64_t threshold = block_threshold(s->draw[kind], n, want, &count);

    for (int i = (int)threadIdx.x; i < n && count > 0; i += SELECT_THREADS)
        if (s->draw[kind][i] <= threshold)
            s->choice[i] = choice;
    __syncthreads();
    return count;
}

static __global__ void __launch_bounds__(SELECT_THREADS) draw_kernel(const struct regions_args a)
{
    const struct regions_image *s = &a.image[blockIdx.x];
    int n = candidates_of(&a, s), batch = a.head.batch, want = a.head.max_foreground < batch ? a.head.max_foreground : batch, chosen, masks;

    for (int i = (int)threadIdx.x; i < n; i += SELECT_THREADS)
        match(&a, s, i);
    __syncthreads();
    chosen = draw(s, 1, n, want, RCNN_CHOSEN);
    masks = a.head.max_masks < chosen ? a.head.max_masks : chosen;
    draw(s, 1, n, masks, RCNN_MASKED);
    chosen += draw(s, 0, n, batch - chosen, RCNN_BACKGROUND);
    if (threadIdx.x == 0) {
        s->count[2 * s->image] = chosen;
        s->count[2 * s->image + 1] = masks;
    }
}

struct row_dest {
    float *box;
    int32_t *image, *label, *truth;
};

static __device__ struct row_dest dest_of(const struct rcnn_samples *r, int masks)
{
    struct row_dest d;

    d.box = masks ? r->mask_box : r->box;
    d.image = masks ? r->mask_image : r->image;
    d.label = masks ? r->mask_label : r->label;
    d.truth = masks ? r->mask_truth : r->truth;
    return d;
}

// box NULL: writes zeros.
static __device__ void write_row(const struct row_dest *d, int at, const float *box, int image, int label, int truth)
{
    for (int c = 0; c < 4; c++)
        d->box[(size_t)at * 4 + (size_t)c] = box ? box[c] : 0.0f;
    d->image[at] = image;
    d->label[at] = label;
    d->truth[at] = truth;
}

// Writes the rows of one image, for all regions or for those with masks, from row `at` on, in the order of candidates.
static __device__ void write_rows(const struct regions_args *a, const struct regions_image *s, int n, int masks, int at)
{
    struct row_dest d = dest_of(&s->ret, masks);

    for (int base = 0; base < n; base += SELECT_THREADS) {
        int i = base + (int)threadIdx.x, choice = i < n ? s->choice[i] : RCNN_LEFT, before;
        int yes = masks ? choice == RCNN_MASKED : choice != RCNN_LEFT, all = block_place(yes, &before);
        int truth = choice == RCNN_BACKGROUND || !yes ? -1 : s->truth.offset[s->image] + s->arg[i];

        if (yes)
            write_row(&d, at + before, candidate_box(s, i), s->image, truth >= 0 ? s->truth.cls[truth] : a->head.classes, truth);
        at += all;
    }
}

static __global__ void __launch_bounds__(SELECT_THREADS) write_kernel(const struct regions_args a)
{
    const struct regions_image *s = &a.image[blockIdx.x];
    int n = candidates_of(&a, s);

    for (int masks = 0; masks < 2; masks++) {
        int32_t *offset = masks ? s->ret.mask_offset : s->ret.offset;
        int cap = masks ? s->ret.mask_cap : s->ret.cap, at = 0, end;
        struct row_dest d = dest_of(&s->ret, masks);

        for (int i = 0; i < s->image; i++)
            at += s->count[2 * i + masks];
        end = at + s->count[2 * s->image + masks];
        if (threadIdx.x == 0) {
            offset[s->image] = at;
            if (s->image == s->images - 1)
                offset[s->images] = end;
        }
        write_rows(&a, s, n, masks, at);
        for (int row = end + (int)threadIdx.x; s->image == s->images - 1 && row < cap; row += SELECT_THREADS)
            write_row(&d, row, NULL, 0, 0, 0);
    }
}

static size_t fill_samples(struct carve *c, struct regions_image *item, const struct rcnn_head *head, const struct rcnn_images *images,
                           const struct rcnn_truth *truth, const struct rpn_proposals *proposals, const struct philox_key *const key[2],
                           const struct rcnn_samples *ret, int nshards)
{
    size_t n = 0;

    for (int v = 0; v < nshards; v++) {
        int32_t *count = (int32_t *)cuda_carve(c, 2 * (size_t)images[v].n * sizeof(int32_t));

        for (int i = 0; i < images[v].n; i++, n++) {
            struct regions_image one, *s = item ? &item[n] : &one;
            size_t most = (size_t)(proposals[v].cap + (head->append_truth ? truth[v].rows : 0));

            s->proposals = proposals[v];
            s->truth = truth[v];
            s->ret = ret[v];
            s->image = i;
            s->images = images[v].n;
            s->most = (int)most;
            s->count = count;
            s->arg = (int32_t *)cuda_carve(c, most * sizeof(int32_t));
            s->choice = (int32_t *)cuda_carve(c, most * sizeof(int32_t));
            for (int kind = 0; kind < 2; kind++) {
                s->draw[kind] = (uint64_t *)cuda_carve(c, most * sizeof(uint64_t));
                s->key[kind] = key[kind][n];
            }
        }
    }
    return n;
}

int cuda_rcnn_sample(struct device *dev, const struct rcnn_head *head, const struct rcnn_images *images, const struct rcnn_truth *truth,
                     const struct rpn_proposals *proposals, const struct philox_key *foreground, const struct philox_key *background,
                     struct rcnn_samples *ret, int nshards, struct err *err)
{
    const struct philox_key *const key[2] = { background, foreground };
    struct cuda_device *d = cuda_device(dev);
    struct carve c = { NULL, 0 };
    struct regions_image *item;
    struct regions_args a;
    size_t n = fill_samples(&c, NULL, head, images, truth, proposals, key, ret, nshards);

    item = (struct regions_image *)calloc(n, sizeof *item);
    if (!item)
        return err_set(err, -ENOMEM, "out of memory: rcnn_sample");
    c.base = (char *)cuda_scratch(dev, c.used, "rcnn_sample", err);
    c.used = 0;
    if (c.base)
        fill_samples(&c, item, head, images, truth, proposals, key, ret, nshards);
    a.head = *head;
    a.image = c.base ? (const struct regions_image *)cuda_table(dev, item, n * sizeof *item, err) : NULL;
    free(item);
    if (!a.image)
        return err->code;
    CUDA_LAUNCH(draw_kernel, (unsigned)n, SELECT_THREADS, d->stream, a);
    CUDA_LAUNCH(write_kernel, (unsigned)n, SELECT_THREADS, d->stream, a);
    return cuda_check(cudaPeekAtLastError(), "rcnn_sample", err);
}

// ---- the box head ----

struct box_shard {
    struct rcnn_samples samples;
    const float *truth, *z, *d;
    float *dz, *dd;
    int images, z_stride, d_stride, dz_stride, dd_stride;
    double *rows; // [cap][RCNN_BOX_TERMS]
};

struct box_loss_args {
    const struct box_shard *shard;
    const struct terms_of *terms;
    struct rcnn_head head;
    float grad_scale;
    int columns; // number of columns of deltas
};

static __global__ void __launch_bounds__(THREADS) box_rows_kernel(const struct box_loss_args a)
{
    const struct box_shard *s = &a.shard[blockIdx.y];
    int count = s->samples.offset[s->images], columns = a.columns, classes = a.head.classes + 1, label, truth;
    size_t r = blockIdx.x * (size_t)THREADS + threadIdx.x;
    float scale = loss_scale(a.grad_scale, (double)count);
    struct rcnn_cost c;
    double *row;
    float *dz, *dd;

    if (r >= (size_t)s->samples.cap)
        return;
    dz = s->dz ? s->dz + r * (size_t)s->dz_stride : NULL;
    dd = s->dd ? s->dd + r * (size_t)s->dd_stride : NULL;
    for (int i = 0; dd && i < columns; i++)
        dd[i] = 0.0f;
    if (r >= (size_t)count) {
        for (int i = 0; dz && i < classes; i++)
            dz[i] = 0.0f;
        return;
    }
    label = s->samples.label[r];
    truth = s->samples.truth[r];
    c = rcnn_class_cost(dz, s->z + r * (size_t)s->z_stride, &a.head, label, scale);
    if (truth >= 0)
        c.box =
            rcnn_box_cost(dd, s->d + r * (size_t)s->d_stride, &a.head, label, s->samples.box + r * 4, s->truth + (size_t)truth * 4, scale);
    row = s->rows + r * RCNN_BOX_TERMS;
    row[RCNN_CLS] = (double)c.cls;
    row[RCNN_BOX] = (double)c.box;
    row[RCNN_ROWS] = 1.0;
    row[RCNN_FOREGROUND] = truth >= 0 ? 1.0 : 0.0;
    row[RCNN_RIGHT] = (double)c.right;
}

static __global__ void __launch_bounds__(SELECT_THREADS) box_terms_kernel(const struct box_loss_args a)
{
    const struct terms_of *t = &a.terms[blockIdx.x];
    int n = *t->to - *t->from;
    const double *rows = t->rows + (size_t)*t->from * RCNN_BOX_TERMS;
    double sums[RCNN_BOX_TERMS];

    for (int i = 0; i < RCNN_BOX_TERMS; i++)
        sums[i] = block_lanes(rows + i, RCNN_BOX_TERMS, n);
    if (threadIdx.x == 0)
        rcnn_box_finish(t->terms, sums, n);
}

int cuda_rcnn_box_loss(struct device *dev, const struct rcnn_head *head, const struct rcnn_images *images, const struct rcnn_truth *truth,
                       struct tensor *dlogits, struct tensor *ddeltas, float grad_scale, double *const *terms, bool by_image,
                       const struct tensor *logits, const struct tensor *deltas, const struct rcnn_samples *samples, int nshards,
                       struct err *err)
{
    struct cuda_device *d = cuda_device(dev);
    size_t rows = 0, shard_bytes = (size_t)nshards * sizeof(struct box_shard), bytes, n = 0;
    struct box_loss_args a;
    struct box_shard *shard;
    struct terms_of *item;
    double *memory;
    char *host;
    int most = 0, nterms = 0;

    for (int v = 0; v < nshards; v++) {
        rows += (size_t)samples[v].cap;
        most = samples[v].cap > most ? samples[v].cap : most;
        n += by_image ? (size_t)images[v].n : 1;
    }
    bytes = shard_bytes + n * sizeof(struct terms_of);
    memory = (double *)cuda_scratch(dev, rows * RCNN_BOX_TERMS * sizeof(double), "rcnn_box_loss", err);
    if (!memory)
        return -ENOMEM;
    host = (char *)calloc(1, bytes);
    if (!host)
        return err_set(err, -ENOMEM, "out of memory: rcnn_box_loss");
    shard = (struct box_shard *)host;
    item = (struct terms_of *)(host + shard_bytes);
    for (int v = 0; v < nshards; v++) {
        struct box_shard *s = &shard[v];

        s->samples = samples[v];
        s->truth = truth[v].box;
        s->images = images[v].n;
        s->z = (const float *)logits[v].data;
        s->d = (const float *)deltas[v].data;
        s->z_stride = logits[v].stride;
        s->d_stride = deltas[v].stride;
        s->dz = dlogits ? (float *)dlogits[v].data : NULL;
        s->dd = ddeltas ? (float *)ddeltas[v].data : NULL;
        s->dz_stride = dlogits ? dlogits[v].stride : 0;
        s->dd_stride = ddeltas ? ddeltas[v].stride : 0;
        s->rows = memory;
        nterms += fill_terms(item + nterms, samples[v].offset, images[v].n, memory, terms + nterms, by_image);
        memory += (size_t)samples[v].cap * RCNN_BOX_TERMS;
    }
    a.shard = (const struct box_shard *)cuda_table(dev, host, bytes, err);
    free(host);
    if (!a.shard)
        return err->code;
    a.terms = (const struct terms_of *)((const char *)a.shard + shard_bytes);
    a.head = *head;
    a.grad_scale = grad_scale;
    a.columns = rcnn_box_columns(head);
    CUDA_LAUNCH(box_rows_kernel, dim3(cuda_blocks((size_t)most, THREADS), (unsigned)nshards), THREADS, d->stream, a);
    CUDA_LAUNCH(box_terms_kernel, (unsigned)nterms, SELECT_THREADS, d->stream, a);
    return cuda_check(cudaPeekAtLastError(), "rcnn_box_loss", err);
}

// ---- detections: one block, a thread for each row; rows in order ----

struct rcnn_decode_args {
    const float *z, *d, *box;
    const int32_t *offset, *size; // of the image
    int z_stride, d_stride, cap;
    float score, min_side;
    int *count;
    struct candidate *found;
    struct rcnn_head head;
};

// The candidates of a row; with write they are written from `at` on. Returns their number.
static __device__ int decode_row(const struct rcnn_decode_args *a, int r, int at, bool write)
{
    const float *z = a->z + (size_t)r * (size_t)a->z_stride, *d = a->d + (size_t)r * (size_t)a->d_stride, *box = a->box + (size_t)r * 4;
    int classes = a->head.classes, n = 0, top;
    float m = softmax_max(z, classes + 1, &top), sum = softmax_sum(z, classes + 1, m);

    for (int c = 0; c < classes; c++) {
        struct candidate one;

        if (!rcnn_candidate(&one, &a->head, z, m, sum, d, box, c, a->score, a->min_side, (float)a->size[0], (float)a->size[1]))
            continue;
        if (n == 0 && !rcnn_row_finite(&a->head, d, box))
            return 0;
        one.slot = r * classes + c;
        if (write && at + n < a->cap)
            a->found[at + n] = one;
        n++;
    }
    return n;
}

static __global__ void __launch_bounds__(SELECT_THREADS) decode_kernel(const struct rcnn_decode_args a)
{
    int at = 0;

    for (int base = a.offset[0]; base < a.offset[1]; base += SELECT_THREADS) {
        int r = base + (int)threadIdx.x, mine = r < a.offset[1] ? decode_row(&a, r, 0, false) : 0, before;
        int all = block_place(mine, &before);

        if (mine > 0)
            decode_row(&a, r, at + before, true);
        at += all;
    }
    if (threadIdx.x == 0)
        *a.count = at;
}

int cuda_rcnn_decode(struct device *dev, const struct rcnn_head *head, const struct rcnn_images *images, const struct tensor *logits,
                     const struct tensor *deltas, const struct rpn_proposals *proposals, int image, float score, float min_side,
                     struct candidate *ret, int cap, int *ret_count, struct err *err)
{
    struct rcnn_decode_args a;
    int count, rc;

    assert(image >= 0 && image < images->n && logits->c == head->classes + 1 && deltas->c == rcnn_box_columns(head));
    a.count = (int *)cuda_scratch(dev, 256 + (size_t)cap * sizeof(struct candidate), "rcnn_decode", err);
    if (!a.count)
        return -ENOMEM;
    a.found = (struct candidate *)((char *)a.count + 256);
    a.z = (const float *)logits->data;
    a.d = (const float *)deltas->data;
    a.z_stride = logits->stride;
    a.d_stride = deltas->stride;
    a.box = proposals->box;
    a.offset = proposals->offset + image;
    a.size = images->size + 2 * image;
    a.cap = cap;
    a.score = score;
    a.min_side = min_side;
    a.head = *head;
    CUDA_LAUNCH(decode_kernel, 1u, SELECT_THREADS, cuda_device(dev)->stream, a);
    rc = cuda_check(cudaPeekAtLastError(), "rcnn_decode", err);
    if (rc == 0)
        rc = cuda_download(dev, &count, a.count, sizeof(count), err);
    if (rc == 0 && count > 0)
        rc = cuda_download(dev, ret, a.found, (size_t)(count < cap ? count : cap) * sizeof(*ret), err);
    if (rc == 0)
        *ret_count = count;
    return rc;
}
