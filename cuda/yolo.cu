/* SPDX-License-Identifier: Apache-2.0 */ /* cuda/yolo.cu - loss of a YOLO head. A block computes the claims of an
 * image, a warp the loss of a slab of 64 slots; then come the same trees of sums as on the CPU. All lanes write a
 * slot's 5 + classes gradients, so that neighbouring lanes write neighbouring addresses. */
#include "cuda/cuda.h"

#include <errno.h>
#include <string.h>

#include "cuda/vec.h"
#include "worker/kernels/yolo.h"

enum { THREADS = 256, SLABS_PER_BLOCK = 4, SLAB_THREADS = 32 * SLABS_PER_BLOCK };

#define FULL 0xFFFFFFFFu /* all lanes of a warp */

/* ---- the data of a launch for a shard ---- */

struct loss_shard {
    const void *z;
    void *dz; /* NULL in validation */
    struct box_list truth;
    double *terms;
    int32_t *owner; /* [n][slots] */
    uint32_t *bits; /* [n][slots][words]: classes */
    double *slabs;  /* [n][slabs][YOLO_TERMS] */
    int n, gh, gw, slots, nslabs, z_stride, dz_stride;
    struct canvas net;
};

struct loss_args {
    struct loss_shard shard[SHARDS_AT_ONCE];
    unsigned first[SHARDS_AT_ONCE + 1]; /* first block of each shard */
    int nshards, words;
    float grad_scale;
    struct yolo_head head;
};

static __device__ const struct loss_shard *shard_of_block(const struct loss_args *a, unsigned *ret_block)
{
    int v = 0;

    while (blockIdx.x >= a->first[v + 1])
        v++;
    *ret_block = blockIdx.x - a->first[v];
    return &a->shard[v];
}

/* ---- claims: a block for each image ---- */

static __device__ void claim_row(const struct loss_args *a, const struct loss_shard *s, int32_t *owner, const struct yolo_truth *truth,
                                 int t)
{
    const float *box = truth->box + (size_t)t * 4;
    int best = yolo_best_anchor(&a->head, s->net, box[2], box[3]);

    for (int i = 0; i < a->head.nanchors; i++) {
        int kind = yolo_claim(&a->head, s->net, box, best, i);

        if (kind)
            atomicMax(&owner[yolo_slot(box, i, s->gh, s->gw)], yolo_owner(kind, t));
    }
}

/* The classes of a slot: those of every claim of the winning kind. A class out of range is ignored. */
static __device__ void unite_row(const struct loss_args *a, const struct loss_shard *s, uint32_t *bits, const int32_t *owner,
                                 const struct yolo_truth *truth, int t)
{
    const float *box = truth->box + (size_t)t * 4;
    int best = yolo_best_anchor(&a->head, s->net, box[2], box[3]), cls = truth->cls[t];

    for (int i = 0; i < a->head.nanchors && cls >= 0 && cls < a->head.classes; i++) {
        int kind = yolo_claim(&a->head, s->net, box, best, i), slot = yolo_slot(box, i, s->gh, s->gw);

        if (kind && owner[slot] >> YOLO_KIND_SHIFT == kind)
            atomicOr(&bits[(size_t)slot * (size_t)a->words + (size_t)cls / 32], 1u << (cls % 32));
    }
}

static __global__ void __launch_bounds__(THREADS) claim_slots_kernel(const struct loss_args a)
{
    unsigned image;
    const struct loss_shard *s = shard_of_block(&a, &image);
    struct yolo_truth truth = yolo_truth(&s->truth, (int)image);
    int32_t *owner = s->owner + (size_t)image * (size_t)s->slots;
    uint32_t *bits = s->bits + (size_t)image * (size_t)s->slots * (size_t)a.words;

    for (int i = (int)threadIdx.x; i < s->slots; i += THREADS)
        owner[i] = 0;
    for (int i = (int)threadIdx.x; i < s->slots * a.words; i += THREADS)
        bits[i] = 0;
    __syncthreads();
    for (int t = (int)threadIdx.x; t < truth.count; t += THREADS)
        claim_row(&a, s, owner, &truth, t);
    __syncthreads();
    for (int t = (int)threadIdx.x; t < truth.count; t += THREADS)
        unite_row(&a, s, bits, owner, &truth, t);
}

/* ---- loss: a warp for each slab ---- */

/* The index of a slot's first logit and first gradient. */
struct slot_at {
    size_t z, dz;
};

static __device__ struct slot_at slot_at(const struct loss_shard *s, unsigned image, struct yolo_cell c, int per_slot)
{
    size_t pixel = ((size_t)image * (size_t)s->gh + (size_t)c.row) * (size_t)s->gw + (size_t)c.col;
    struct slot_at at;

    at.z = pixel * (size_t)s->z_stride + (size_t)(c.a * per_slot);
    at.dz = pixel * (size_t)s->dz_stride + (size_t)(c.a * per_slot);
    return at;
}

static __device__ struct slot_at shfl_slot(struct slot_at at, int from)
{
    struct slot_at r;

    r.z = (size_t)__shfl_sync(FULL, (unsigned long long)at.z, from);
    r.dz = (size_t)__shfl_sync(FULL, (unsigned long long)at.dz, from);
    return r;
}

/* The sum over the classes of a positive slot. Lanes compute the terms; every lane then adds them in one chain, in
 * order of class; see yolo_class_loss(). Writes the slopes if dz is not NULL. */
template <class T> static __device__ double warp_classes(const struct loss_args *a, T *dz, const T *z, struct yolo_wanted wanted, int lane)
{
    float gain = a->grad_scale * a->head.cls_gain;
    double sum = 0.0;

    for (int first = 0; first < a->head.classes; first += 32) {
        int k = first + lane, n = a->head.classes - first < 32 ? a->head.classes - first : 32;
        double term = 0.0;

        if (k < a->head.classes) {
            float logit = to_float(z[5 + k]), t = yolo_class_target(wanted, k), w = yolo_class_weight(&a->head, k);

            term = yolo_class_term(&a->head, w, logit, t);
            if (dz)
                from_float(&dz[5 + k], yolo_class_slope(&a->head, gain, w, logit, t));
        }
        for (int i = 0; i < n; i++)
            sum += __shfl_sync(FULL, term, i);
    }
    return sum;
}

static __device__ struct yolo_wanted shfl_wanted(struct yolo_wanted w, int from)
{
    struct yolo_wanted r;

    r.bits = (const uint32_t *)__shfl_sync(FULL, (unsigned long long)w.bits, from);
    r.cls = __shfl_sync(FULL, w.cls, from);
    return r;
}

/* The whole warp handles the slots of its lanes in turn: the classes of a slot with a box, or all gradients of a slot
 * without. Returns the lane's own sum over classes. */
template <class T>
static __device__ double warp_channels(const struct loss_args *a, const struct loss_shard *s, struct slot_at own, struct yolo_answer answer,
                                       float slope, int nslots, int lane)
{
    const T *z = (const T *)s->z;
    T *dz = (T *)s->dz;
    double own_sum = 0.0;

    for (int i = 0; i < nslots; i++) {
        bool positive = __shfl_sync(FULL, answer.row, i) >= 0;
        struct slot_at at = shfl_slot(own, i);
        float at4 = __shfl_sync(FULL, slope, i);

        if (positive) {
            double sum = warp_classes<T>(a, dz ? dz + at.dz : NULL, z + at.z, shfl_wanted(answer.wanted, i), lane);

            own_sum = lane == i ? sum : own_sum;
        } else if (dz) {
            for (int k = lane; k < 5 + a->head.classes; k += 32)
                from_float(&dz[at.dz + k], k == 4 ? at4 : 0.0f);
        }
    }
    return own_sum;
}

/* Up to 32 slots from `first` on, one for each lane. terms: of the lane's slot. */
template <class T>
static __device__ void warp_slots(double terms[YOLO_TERMS], const struct loss_args *a, const struct loss_shard *s, unsigned image,
                                  int first, int nslots, int lane)
{
    struct yolo_truth truth = yolo_truth(&s->truth, (int)image);
    struct yolo_cell cell = yolo_cell(first + lane, s->gh, s->gw, s->net);
    struct slot_at at = slot_at(s, image, cell, 5 + a->head.classes);
    size_t claim = (size_t)image * (size_t)s->slots + (size_t)(first + lane);
    struct yolo_answer answer = { -1, 0.0f, { NULL, -1 }, true };
    float z[5] = { 0.0f }, grad[5], slope = 0.0f;
    T *dz = (T *)s->dz;
    double classes;

    for (int i = 0; i < YOLO_TERMS; i++)
        terms[i] = 0.0;
    if (lane < nslots) {
        for (int i = 0; i < 5; i++)
            z[i] = to_float(((const T *)s->z)[at.z + (size_t)i]);
        answer = yolo_answer(&a->head, z, cell, &truth, s->owner[claim], s->bits + claim * (size_t)a->words);
        if (answer.row < 0)
            slope = yolo_negative_loss(terms, a->grad_scale, &a->head, z, answer.ignored);
    }
    classes = warp_channels<T>(a, s, at, answer, slope, nslots, lane);
    if (answer.row < 0)
        return;
    yolo_positive_loss(terms, grad, a->grad_scale, &a->head, z, cell, truth.box + (size_t)answer.row * 4, answer.iou, classes);
    for (int i = 0; i < 5 && dz; i++)
        from_float(&dz[at.dz + (size_t)i], grad[i]);
}

/* A slab is one chain of its slots in order. Lane i owns term i. */
template <class T> static __global__ void __launch_bounds__(SLAB_THREADS) slab_loss_kernel(const struct loss_args a)
{
    SHARED(double, shared, SLABS_PER_BLOCK * 32 * YOLO_TERMS);
    unsigned block;
    const struct loss_shard *s = shard_of_block(&a, &block);
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    unsigned slab = block * SLABS_PER_BLOCK + (unsigned)warp, image = slab / (unsigned)s->nslabs;
    int from = (int)(slab % (unsigned)s->nslabs) * YOLO_SLAB, to = from + YOLO_SLAB < s->slots ? from + YOLO_SLAB : s->slots;
    double *terms = shared + warp * 32 * YOLO_TERMS, sum = 0.0;

    if (image >= (unsigned)s->n)
        return;
    for (int first = from; first < to; first += 32) {
        int n = to - first < 32 ? to - first : 32;

        warp_slots<T>(terms + lane * YOLO_TERMS, &a, s, image, first, n, lane);
        __syncwarp();
        for (int i = 0; i < n && lane < YOLO_TERMS; i++)
            sum += terms[i * YOLO_TERMS + lane];
        __syncwarp();
    }
    if (lane < YOLO_TERMS)
        s->slabs[(size_t)slab * YOLO_TERMS + (size_t)lane] = sum;
}

/* ---- trees: slabs of an image, then images of a shard; see tree_sum() ---- */

/* Adds neighbours, then neighbours of these. Row 0 of rows [n][YOLO_TERMS], `stride` doubles apart, becomes the sum.
 * Called by one block. */
static __device__ void add_rows(double *rows, size_t stride, int n)
{
    for (int step = 1; step < n; step *= 2) {
        int pairs = (n - step + 2 * step - 1) / (2 * step);

        for (int i = (int)threadIdx.x; i < pairs * YOLO_TERMS; i += THREADS) {
            double *to = rows + (size_t)(i / YOLO_TERMS) * 2 * (size_t)step * stride + i % YOLO_TERMS;

            *to += to[(size_t)step * stride];
        }
        __syncthreads();
    }
}

static __global__ void __launch_bounds__(THREADS) add_slabs_kernel(const struct loss_args a)
{
    unsigned image;
    const struct loss_shard *s = shard_of_block(&a, &image);

    add_rows(s->slabs + (size_t)image * (size_t)s->nslabs * YOLO_TERMS, YOLO_TERMS, s->nslabs);
}

static __global__ void __launch_bounds__(THREADS) add_images_kernel(const struct loss_args a)
{
    const struct loss_shard *s = &a.shard[blockIdx.x];

    add_rows(s->slabs, (size_t)s->nslabs * YOLO_TERMS, s->n);
    if (threadIdx.x < YOLO_TERMS)
        s->terms[threadIdx.x] = s->slabs[threadIdx.x];
}

/* ---- launching ---- */

static int slots_of(const struct yolo_head *head, const struct tensor *t)
{
    return head->nanchors * t->h * t->w;
}

static int class_words(const struct yolo_head *head)
{
    return (head->classes + 31) / 32;
}

static int slabs_of(const struct yolo_head *head, const struct tensor *t)
{
    return (slots_of(head, t) + YOLO_SLAB - 1) / YOLO_SLAB;
}

/* Bytes of scratch of a shard: slabs, then owners, then class bits. */
static size_t shard_bytes(const struct yolo_head *head, const struct tensor *z)
{
    size_t slots = (size_t)z->n * (size_t)slots_of(head, z), slabs = (size_t)z->n * (size_t)slabs_of(head, z);

    return (slabs * YOLO_TERMS * sizeof(double) + slots * (1 + (size_t)class_words(head)) * sizeof(int32_t) + 7) / 8 * 8;
}

static void fill_shard(struct loss_shard *s, const struct yolo_head *head, struct canvas net, const struct tensor *dz, double *terms,
                       const struct tensor *z, const struct box_list *truth, void *scratch)
{
    s->z = z->data;
    s->dz = dz ? dz->data : NULL;
    s->truth = *truth;
    s->terms = terms;
    s->n = z->n;
    s->gh = z->h;
    s->gw = z->w;
    s->net = net;
    s->slots = slots_of(head, z);
    s->nslabs = slabs_of(head, z);
    s->z_stride = z->stride;
    s->dz_stride = dz ? dz->stride : 0;
    s->slabs = (double *)scratch;
    s->owner = (int32_t *)(s->slabs + (size_t)s->n * (size_t)s->nslabs * YOLO_TERMS);
    s->bits = (uint32_t *)(s->owner + (size_t)s->n * (size_t)s->slots);
}

static unsigned count_blocks(struct loss_args *a, bool by_image)
{
    for (int v = 0; v < a->nshards; v++) {
        unsigned n = (unsigned)a->shard[v].n;

        a->first[v + 1] = a->first[v] + (by_image ? n : cuda_blocks((size_t)n * (size_t)a->shard[v].nslabs, SLABS_PER_BLOCK));
    }
    return a->first[a->nshards];
}

static int launch_loss(struct cuda_device *d, struct loss_args *a, enum dtype dtype, struct err *err)
{
    unsigned images = count_blocks(a, true), blocks;

    CUDA_LAUNCH(claim_slots_kernel, images, THREADS, d->stream, *a);
    blocks = count_blocks(a, false);
    if (dtype == DTYPE_BF16)
        CUDA_LAUNCH(slab_loss_kernel<bf16>, blocks, SLAB_THREADS, d->stream, *a);
    else
        CUDA_LAUNCH(slab_loss_kernel<float>, blocks, SLAB_THREADS, d->stream, *a);
    count_blocks(a, true);
    CUDA_LAUNCH(add_slabs_kernel, images, THREADS, d->stream, *a);
    CUDA_LAUNCH(add_images_kernel, (unsigned)a->nshards, THREADS, d->stream, *a);
    return cuda_check(cudaPeekAtLastError(), "yolo_loss", err);
}

int cuda_yolo_loss(struct device *dev, const struct yolo_head *head, const struct canvas *net, struct tensor *dlogits, float grad_scale,
                   double *const *terms, const struct tensor *logits, const struct box_list *truth, int nshards, struct err *err)
{
    struct loss_args a;
    size_t bytes = 0;
    char *scratch;
    int rc = 0;

    for (int v = 0; v < nshards; v++)
        bytes += shard_bytes(head, &logits[v]);
    scratch = (char *)cuda_scratch(dev, bytes, "yolo_loss", err);
    if (!scratch)
        return -ENOMEM;
    memset(&a, 0, sizeof(a));
    a.words = class_words(head);
    a.grad_scale = grad_scale;
    a.head = *head;
    for (int v = 0; v < nshards && rc == 0; v += a.nshards) {
        a.nshards = nshards - v < SHARDS_AT_ONCE ? nshards - v : SHARDS_AT_ONCE;
        for (int i = 0; i < a.nshards; i++) {
            fill_shard(&a.shard[i], head, net[v + i], dlogits ? &dlogits[v + i] : NULL, terms[v + i], &logits[v + i], &truth[v + i],
                       scratch);
            scratch += shard_bytes(head, &logits[v + i]);
        }
        rc = launch_loss(cuda_device(dev), &a, logits[0].dtype, err);
    }
    return rc;
}
