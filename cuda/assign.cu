/* SPDX-License-Identifier: Apache-2.0 */ /* cuda/assign.cu - matches predictions with the truth. A block for each stage
 * and image: its threads compute costs, then its first warp solves the problem. */
#include "cuda/cuda.h"

#include "cuda/vec.h"

#define ASSIGN_FN          DEVICE_FN
#define ASSIGN_MEET()      __syncwarp()
#define ASSIGN_LEAST(keys) warp_least(keys)
static __device__ struct assign_key warp_least(struct assign_key key);
#include "worker/kernels/assign.h"

enum { THREADS = 256, WARP = 32 };

/* A shard. */
struct match_args {
    struct set_view first; // stage 0
    const float *z[SET_MAX_STAGES], *box[SET_MAX_STAGES];
    struct set_head head;
    int images;
    int64_t *room; // [stages] of assign_room()
};

// Lanes may meet in any order: keys have one.
static __device__ struct assign_key warp_least(struct assign_key key)
{
    for (int step = WARP / 2; step > 0; step /= 2) {
        struct assign_key other;

        other.dist = __shfl_xor_sync(0xFFFFFFFFu, key.dist, step);
        other.place = __shfl_xor_sync(0xFFFFFFFFu, key.place, step);
        key = assign_before(other, key) ? other : key;
    }
    return key;
}

static __global__ void __launch_bounds__(THREADS) match_kernel(const struct match_args a)
{
    SHARED(int, broken, 1);
    size_t at = (size_t)blockIdx.y * (size_t)a.images, proposals = (size_t)a.head.proposals;
    int image = (int)blockIdx.x, from = a.first.truth.offset[image], count = a.first.truth.offset[image + 1] - from, mine;
    int64_t *room = a.room + blockIdx.y * assign_room((size_t)a.images, proposals, (size_t)a.first.truth.rows);
    struct assign p = assign_in(room + assign_room((size_t)image, proposals, (size_t)from), a.head.proposals, count);
    struct set_view s = a.first;

    s.z.data = (void *)a.z[blockIdx.y];
    s.box = a.box[blockIdx.y];
    s.match.truth += at * proposals;
    s.match.broken += at;
    if (threadIdx.x == 0)
        *broken = 0;
    __syncthreads();
    mine = assign_costs(&p, &s, &a.head, image, (int)threadIdx.x, THREADS);
    if (mine > 0)
        atomicAdd(broken, mine);
    __syncthreads();
    if (threadIdx.x == 0)
        s.match.broken[image] = *broken;
    if (threadIdx.x < WARP)
        assign_image(&p, &s, &a.head, image, (int)threadIdx.x, WARP);
}

int cuda_set_match(struct device *dev, const struct set_head *head, const struct set_match *ret, const struct tensor *const *logits,
                   const float *const *const *box, const struct rcnn_images *images, const struct rcnn_truth *truth, int nshards,
                   struct err *err)
{
    size_t most = 0, stages = (size_t)head->stages;
    struct match_args a;

    for (int v = 0; v < nshards; v++) {
        size_t room = assign_room((size_t)images[v].n, (size_t)head->proposals, (size_t)truth[v].rows);

        most = room > most ? room : most;
    }
    a.head = *head;
    a.room = (int64_t *)cuda_scratch(dev, stages * most * sizeof *a.room, "set_match", err);
    if (!a.room)
        return err->code;
    for (int v = 0; v < nshards; v++) {
        a.first = set_view(head, 0, &images[v], &truth[v], &ret[v], &logits[0][v], box[0][v]);
        a.images = images[v].n;
        for (size_t i = 0; i < stages; i++) {
            a.z[i] = (const float *)logits[i][v].data;
            a.box[i] = box[i][v];
        }
        if (a.images > 0)
            CUDA_LAUNCH(match_kernel, dim3((unsigned)a.images, (unsigned)stages), THREADS, cuda_device(dev)->stream, a);
    }
    return cuda_check(cudaPeekAtLastError(), "set_match", err);
}
