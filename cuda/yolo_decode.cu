/* SPDX-License-Identifier: Apache-2.0 */ /* cuda/yolo_decode.cu - candidates of a YOLO head in order of slot, then
 * class. One launch counts those of each slot; the next writes them behind those of earlier slots. A warp handles a
 * slot. */
#include "cuda/cuda.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "cuda/vec.h"
#include "worker/kernels/yolo.h"

enum { THREADS = 256, WARPS = THREADS / 32, SLOTS_PER_BLOCK = 64 };

#define FULL 0xFFFFFFFFu /* all lanes of a warp */

struct decode_args {
    const void *z; /* the image's first logit */
    int gh, gw, stride, slots, first_slot, cap;
    float conf;
    int *count; /* [slots], then the sum */
    struct candidate *found;
    struct yolo_head head;
    struct canvas net;
};

template <class T> static __device__ const T *decode_logits(const struct decode_args *a, struct yolo_cell c)
{
    return (const T *)a->z + ((size_t)c.row * (size_t)a->gw + (size_t)c.col) * (size_t)a->stride + (size_t)(c.a * (5 + a->head.classes));
}

/* Counts the candidates of a slot with a warp. If `ret` is not NULL, writes them from index `at` on, in order of
 * class. */
template <class T> static __device__ int decode_slot(const struct decode_args *a, int slot, struct candidate *ret, int at, int lane)
{
    struct yolo_cell c = yolo_cell(slot, a->gh, a->gw, a->net);
    const T *z = decode_logits<T>(a, c);
    float head[5], obj;
    struct box b;
    int n = 0;

    for (int i = 0; i < 5; i++)
        head[i] = to_float(z[i]);
    obj = math_sigmoid(head[4]);
    if (!(obj > a->conf))
        return 0;
    b = yolo_box_pixels(&a->head, head, c);
    for (int first = 0; first < a->head.classes; first += 32) {
        int k = first + lane;
        float score = k < a->head.classes ? yolo_score(obj, to_float(z[5 + k])) : 0.0f;
        bool yes = k < a->head.classes && score > a->conf;
        unsigned mask = __ballot_sync(FULL, yes);
        int i = at + n + __popc(mask & ((1u << lane) - 1));

        if (yes && ret && i < a->cap) {
            struct candidate found = { b.x1, b.y1, b.x2, b.y2, score, k, a->first_slot + slot };

            ret[i] = found;
        }
        n += __popc(mask);
    }
    return n;
}

template <class T> static __global__ void __launch_bounds__(THREADS) count_candidates_kernel(const struct decode_args a)
{
    int first = (int)blockIdx.x * SLOTS_PER_BLOCK, lane = (int)threadIdx.x % 32;

    for (int i = (int)threadIdx.x / 32; i < SLOTS_PER_BLOCK && first + i < a.slots; i += WARPS) {
        int n = decode_slot<T>(&a, first + i, NULL, 0, lane);

        if (lane == 0)
            a.count[first + i] = n;
    }
}

/* The number of candidates in the slots [0, to). All threads of the block get the sum. */
static __device__ int count_before(const int *count, int to)
{
    SHARED(int, part, WARPS);
    int sum = 0;

    for (int i = (int)threadIdx.x; i < to; i += THREADS)
        sum += count[i];
    for (unsigned step = 16; step > 0; step /= 2)
        sum += __shfl_down_sync(FULL, sum, step);
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = 0;
    for (int i = 0; i < WARPS; i++)
        sum += part[i];
    return sum;
}

template <class T> static __global__ void __launch_bounds__(THREADS) write_candidates_kernel(const struct decode_args a)
{
    int first = (int)blockIdx.x * SLOTS_PER_BLOCK, lane = (int)threadIdx.x % 32, at = count_before(a.count, first), slot = first;
    int end = first + SLOTS_PER_BLOCK < a.slots ? first + SLOTS_PER_BLOCK : a.slots;

    for (; slot < end; slot++) {
        if (slot % WARPS == (int)threadIdx.x / 32 && a.count[slot] > 0)
            decode_slot<T>(&a, slot, a.found, at, lane);
        at += a.count[slot];
    }
    if (end == a.slots && threadIdx.x == 0)
        a.count[a.slots] = at;
}

static int launch_decode(struct cuda_device *d, const struct decode_args *a, enum dtype dtype, struct err *err)
{
    unsigned blocks = cuda_blocks((size_t)a->slots, SLOTS_PER_BLOCK);

    if (dtype == DTYPE_BF16) {
        CUDA_LAUNCH(count_candidates_kernel<bf16>, blocks, THREADS, d->stream, *a);
        CUDA_LAUNCH(write_candidates_kernel<bf16>, blocks, THREADS, d->stream, *a);
    } else {
        CUDA_LAUNCH(count_candidates_kernel<float>, blocks, THREADS, d->stream, *a);
        CUDA_LAUNCH(write_candidates_kernel<float>, blocks, THREADS, d->stream, *a);
    }
    return cuda_check(cudaPeekAtLastError(), "yolo_decode", err);
}

int cuda_yolo_decode(struct device *dev, const struct yolo_head *head, struct canvas net, const struct tensor *logits, int image,
                     float conf, int first_slot, struct candidate *ret, int cap, int *ret_count, struct err *err)
{
    size_t image_bytes = (size_t)logits->h * (size_t)logits->w * (size_t)logits->stride * dtype_bytes(logits->dtype), counts;
    int slots = head->nanchors * logits->h * logits->w, most = slots * head->classes, count, rc;
    struct decode_args a;

    assert(image >= 0 && image < logits->n && logits->c == head->nanchors * (5 + head->classes));
    memset(&a, 0, sizeof(a));
    a.cap = cap < most ? cap : most;
    counts = ((size_t)slots + 1) * sizeof(int);
    a.count = (int *)cuda_scratch(dev, counts + (size_t)a.cap * sizeof(struct candidate), "yolo_decode", err);
    if (!a.count)
        return -ENOMEM;
    a.found = (struct candidate *)(a.count + slots + 1);
    a.z = (const char *)logits->data + (size_t)image * image_bytes;
    a.net = net;
    a.gh = logits->h;
    a.gw = logits->w;
    a.stride = logits->stride;
    a.slots = slots;
    a.first_slot = first_slot;
    a.conf = conf;
    a.head = *head;
    rc = launch_decode(cuda_device(dev), &a, logits->dtype, err);
    if (rc == 0)
        rc = cuda_download(dev, &count, a.count + slots, sizeof(count), err);
    if (rc == 0 && count > 0)
        rc = cuda_download(dev, ret, a.found, (size_t)(count < a.cap ? count : a.cap) * sizeof(*ret), err);
    if (rc == 0)
        *ret_count = count;
    return rc;
}
