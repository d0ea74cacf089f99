/* SPDX-License-Identifier: Apache-2.0 */ /* cuda/set.cu - proposals, boxes moved by deltas, losses of a stage. Each
 * shard has its own launch: rows are few. */
#include "cuda/cuda.h"

#include "cuda/fold.h"
#include "worker/kernels/setloss.h"

enum { THREADS = 256 };

// ---- proposals and boxes ----

static __global__ void __launch_bounds__(THREADS) start_kernel(const struct set_first s, size_t n)
{
    size_t i = blockIdx.x * (size_t)THREADS + threadIdx.x;

    if (i < n)
        set_first_number(&s, i);
}

static __global__ void __launch_bounds__(THREADS) start_back_kernel(const struct set_first s, size_t n)
{
    size_t i = blockIdx.x * (size_t)THREADS + threadIdx.x;

    if (i < n)
        set_first_back(&s, i);
}

int cuda_set_start_fwd(struct device *dev, const struct set_head *head, float *const *box, struct tensor *q, const float *boxes,
                       const float *features, const struct rcnn_images *images, int nshards, struct err *err)
{
    struct set_first s = {};

    s.boxes = boxes;
    s.features = features;
    s.proposals = head->proposals;
    for (int v = 0; v < nshards; v++) {
        size_t n = (size_t)q[v].n * (size_t)(4 + q[v].c);

        s.size = images[v].size;
        s.box = box[v];
        s.q = q[v];
        CUDA_LAUNCH(start_kernel, cuda_blocks(n, THREADS), THREADS, cuda_device(dev)->stream, s, n);
    }
    return cuda_check(cudaPeekAtLastError(), "set_start_fwd", err);
}

// To one destination, the shards are added in ascending order.
int cuda_set_start_bwd(struct device *dev, const struct set_head *head, struct sums_dest dboxes, struct sums_dest dfeatures,
                       const float *const *dbox, const struct tensor *dq, const struct rcnn_images *images, int nshards, struct err *err)
{
    struct set_first s = {};

    s.proposals = head->proposals;
    for (int v = 0; v < nshards; v++) {
        size_t n = (size_t)head->proposals * (size_t)(4 + dq[v].c);

        s.size = images[v].size;
        s.box = (float *)dbox[v];
        s.q = dq[v];
        s.de = dboxes.dst ? dboxes.dst[v] : NULL;
        s.df = dfeatures.dst ? dfeatures.dst[v] : NULL;
        s.de_beta = v > 0 && s.de && s.de == dboxes.dst[0] ? 1.0f : dboxes.beta;
        s.df_beta = v > 0 && s.df && s.df == dfeatures.dst[0] ? 1.0f : dfeatures.beta;
        s.n = images[v].n;
        CUDA_LAUNCH(start_back_kernel, cuda_blocks(n, THREADS), THREADS, cuda_device(dev)->stream, s, n);
    }
    return cuda_check(cudaPeekAtLastError(), "set_start_bwd", err);
}

static __global__ void __launch_bounds__(THREADS)
    decode_kernel(float *ret, const struct set_head head, const float *box, const struct tensor deltas)
{
    size_t r = blockIdx.x * (size_t)THREADS + threadIdx.x;

    if (r < (size_t)deltas.n)
        set_decode(ret + 4 * r, &head, box + 4 * r, set_row(&deltas, r));
}

int cuda_set_decode(struct device *dev, const struct set_head *head, float *const *ret, const float *const *box,
                    const struct tensor *deltas, int nshards, struct err *err)
{
    for (int v = 0; v < nshards; v++)
        CUDA_LAUNCH(decode_kernel, cuda_blocks((size_t)deltas[v].n, THREADS), THREADS, cuda_device(dev)->stream, ret[v], *head, box[v],
                    deltas[v]);
    return cuda_check(cudaPeekAtLastError(), "set_decode", err);
}

// ---- losses ----

// A thread for each lane of the sum over classes. rows: [R][SET_TERMS].
static __global__ void __launch_bounds__(THREADS)
    rows_kernel(double *rows, const struct set_view s, const struct set_head head, float grad_scale)
{
    size_t i = blockIdx.x * (size_t)THREADS + threadIdx.x, r = i / SUM_LANES;
    double sum = 0.0;

    for (int k = (int)(i % SUM_LANES); r < (size_t)s.z.n && k < head.classes; k += SUM_LANES)
        sum += set_class_loss(&s, &head, r, k, grad_scale);
    for (int step = 1; step < SUM_LANES; step *= 2)
        sum += __shfl_xor_sync(0xFFFFFFFFu, sum, step);
    if (r >= (size_t)s.z.n || i % SUM_LANES > 0)
        return;
    rows[r * SET_TERMS + SET_CLS] = sum;
    set_box_loss(rows + r * SET_TERMS, &s, &head, r, grad_scale);
}

enum { TERMS_IMAGES = 32, TERMS_THREADS = SET_TERMS * TERMS_IMAGES };

// Adds the rows of each image, `each` numbers apart, into its first row, and then the images.
static __global__ void __launch_bounds__(TERMS_THREADS) terms_kernel(double *ret, double *rows, int images, size_t each)
{
    double *mine = rows + threadIdx.x;

    for (int i = (int)threadIdx.y; i < images; i += TERMS_IMAGES)
        mine[(size_t)i * each] = fold_rows<double>(mine + (size_t)i * each, SET_TERMS, (unsigned)(each / SET_TERMS));
    __syncthreads();
    if (threadIdx.y == 0)
        ret[threadIdx.x] = images > 0 ? fold_rows<double>(mine, each, (unsigned)images) : 0.0;
}

int cuda_set_loss(struct device *dev, const struct set_head *head, int stage, struct tensor *dlogits, struct tensor *ddeltas,
                  float *const *dbase, float grad_scale, double *const *terms, bool by_image, const struct tensor *logits,
                  const struct tensor *deltas, const float *const *base, const float *const *box, const struct set_match *match,
                  const struct rcnn_images *images, const struct rcnn_truth *truth, int nshards, struct err *err)
{
    cudaStream_t stream = cuda_device(dev)->stream;
    size_t each = (size_t)head->proposals * SET_TERMS;

    for (int v = 0; v < nshards; v++) {
        struct set_view s = set_view(head, stage, &images[v], &truth[v], &match[v], &logits[v], box[v]);
        double *rows = (double *)cuda_scratch(dev, (size_t)images[v].n * each * sizeof *rows, "set_loss", err);

        if (!rows)
            return err->code;
        s.base = base[v];
        s.d = deltas[v];
        if (dlogits)
            s.dz = dlogits[v];
        if (ddeltas)
            s.dd = ddeltas[v];
        s.dbase = dbase ? dbase[v] : NULL;
        CUDA_LAUNCH(rows_kernel, cuda_blocks((size_t)s.z.n * SUM_LANES, THREADS), THREADS, stream, rows, s, *head, grad_scale);
        for (int i = 0; by_image && i < images[v].n; i++)
            CUDA_LAUNCH(terms_kernel, 1, dim3(SET_TERMS, TERMS_IMAGES), stream, *terms++, rows + (size_t)i * each, 1, each);
        if (!by_image)
            CUDA_LAUNCH(terms_kernel, 1, dim3(SET_TERMS, TERMS_IMAGES), stream, *terms++, rows, images[v].n, each);
    }
    return cuda_check(cudaPeekAtLastError(), "set_loss", err);
}
