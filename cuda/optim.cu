/* SPDX-License-Identifier: Apache-2.0 */ /* cuda/optim.cu - parameter updates: one launch for all parameters of a step,
 * in blocks of 4096 numbers of one parameter each. If convolutions read a bf16 copy of a weight, it is written together
 * with the weight. If hashes of the new weights are wanted, they are computed from registers. The norm of the gradient
 * stays on the device. */
#include "cuda/cuda.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/derived.h"
#include "cuda/hash.h"
#include "cuda/items.h"
#include "worker/kernels/optim.h"

enum { THREADS = HASH_THREADS, BLOCK_NUMBERS = HASH_NUMBERS };

struct step_item {
    float *w, *state[OPTIM_STATES];
    const float *g;
    float *ema;             /* NULL: no average */
    bf16 *copy;             /* NULL: no copy, or a stale one */
    struct hash128 *hashes; /* NULL: not wanted */
    size_t count;
    unsigned first; /* first block */
    bool wide;      /* all arrays may be read and written four at a time */
    float lr, decay, ema_decay;
};

/* ---- the optimizers: number of arrays, and the update of one element ---- */

struct sgd_how {
    enum { STATES = 1 };
    struct sgd how;
    __device__ void operator()(float *w, float *const s[], float g, const struct step_item *t) const
    {
        sgd_element(w, s[0], g, t->lr, t->decay, &how);
    }
};

struct adam_how {
    enum { STATES = 2 };
    struct adam how;
    __device__ void operator()(float *w, float *const s[], float g, const struct step_item *t) const
    {
        adam_element(w, s[0], s[1], g, t->lr, t->decay, &how);
    }
};

struct adamw_how {
    enum { STATES = 2 };
    struct adam how;
    __device__ void operator()(float *w, float *const s[], float g, const struct step_item *t) const
    {
        adamw_element(w, s[0], s[1], g, t->lr, t->decay, &how);
    }
};

/* Updates W numbers from index i on; w: the new weights. */
template <int W, class HOW> DEVICE_FN void step_numbers(float (&w)[W], const struct step_item *t, const HOW &how, float factor, size_t i)
{
    float s[HOW::STATES][W], g[W], ema[W];
    pack<float, W> pw = vec_load<W>((const float *)t->w + i), ps[HOW::STATES], pg = vec_load<W>(t->g + i);

#pragma unroll
    for (int k = 0; k < HOW::STATES; k++)
        ps[k] = vec_load<W>((const float *)t->state[k] + i);
    vec_unpack(w, pw);
    vec_unpack(g, pg);
#pragma unroll
    for (int k = 0; k < HOW::STATES; k++)
        vec_unpack(s[k], ps[k]);
#pragma unroll
    for (int j = 0; j < W; j++) {
        float *const mine[OPTIM_STATES] = { &s[0][j], &s[HOW::STATES - 1][j] };

        how(&w[j], mine, factor * g[j], t);
    }
    if (t->ema) {
        vec_unpack(ema, vec_load<W>((const float *)t->ema + i));
#pragma unroll
        for (int j = 0; j < W; j++)
            ema_element(&ema[j], w[j], t->ema_decay);
        vec_store(t->ema + i, ema);
    }
    vec_store(t->w + i, w);
#pragma unroll
    for (int k = 0; k < HOW::STATES; k++)
        vec_store(t->state[k] + i, s[k]);
    if (t->copy)
        vec_store(t->copy + i, w);
}

/* Hashes the numbers at the end that were not written as fours. They are read again. */
DEVICE_FN void hash_rest(uint64_t (&sums)[HASH_SUMS], const struct step_item *t, size_t first, size_t from, size_t end)
{
#pragma unroll
    for (int r = 0; r < HASH_AT_ONCE; r++) {
        size_t i = first + ((size_t)r * THREADS + threadIdx.x) * 4;
        float v[4];

        if (i < from)
            continue;
#pragma unroll
        for (size_t k = 0; k < 4; k++)
            v[k] = i + k < end ? t->w[i + k] : 0.0f;
        hash_four(sums, r, v);
    }
}

template <class HOW, bool HASH>
static __global__ void __launch_bounds__(THREADS)
    step_blocks_kernel(const struct step_item *items, int n, const HOW how, const struct clip *clip)
{
    SHARED(uint64_t, shared, HASH_SUMS * HASH_WARPS);
    struct step_item t = *item_of_block(items, n);
    struct clip c = *clip;
    size_t first = (size_t)(blockIdx.x - t.first) * BLOCK_NUMBERS, end = t.count - first < BLOCK_NUMBERS ? t.count : first + BLOCK_NUMBERS;
    size_t wide_end = t.wide ? end / 4 * 4 : first;
    uint64_t sums[HASH_SUMS];

    if (c.skip)
        return;
#pragma unroll
    for (int r = 0; r < HASH_AT_ONCE; r++) {
        size_t i = first + ((size_t)r * THREADS + threadIdx.x) * 4;
        float w[4];

        if (i >= wide_end)
            continue;
        step_numbers<4>(w, &t, how, c.factor, i);
        if (HASH)
            hash_four(sums, r, w);
    }
    for (size_t i = wide_end + threadIdx.x; i < end; i += THREADS) {
        float w[1];

        step_numbers<1>(w, &t, how, c.factor, i);
    }
    if (!HASH || !t.hashes)
        return;
    __syncthreads();
    hash_rest(sums, &t, first, wide_end, end);
    hash_store(t.hashes + first / HASH_BLOCK, (unsigned)((end - first + HASH_BLOCK - 1) / HASH_BLOCK * HASH_LANES), sums, shared);
}

static bool all_aligned(const struct step_item *t)
{
    uintptr_t any = (uintptr_t)t->w | (uintptr_t)t->g | (uintptr_t)t->ema | (uintptr_t)t->copy;

    for (int k = 0; k < OPTIM_STATES; k++)
        any |= (uintptr_t)t->state[k];
    return (any & 15) == 0;
}

/* Returns the number of blocks. */
static unsigned fill_items(struct step_item *to, const struct optim_item *items, int nitems)
{
    unsigned blocks = 0;

    for (int i = 0; i < nitems; i++) {
        struct param *p = items[i].param;

        to[i].w = p->data;
        memcpy(to[i].state, items[i].state, sizeof(to[i].state));
        to[i].g = items[i].grad;
        to[i].ema = items[i].ema;
        to[i].copy = derived_fresh(p) ? (bf16 *)cuda_derived(p)->bf16 : NULL;
        to[i].hashes = items[i].hashes;
        to[i].count = p->count;
        to[i].first = blocks;
        to[i].wide = all_aligned(&to[i]);
        to[i].lr = items[i].lr;
        to[i].decay = items[i].decay;
        to[i].ema_decay = items[i].ema_decay;
        blocks += (unsigned)((p->count + BLOCK_NUMBERS - 1) / BLOCK_NUMBERS);
    }
    return blocks;
}

/* Sets the versions of the written copies to those of the new weights. */
static void bump_versions(const struct optim_item *items, int nitems)
{
    for (int i = 0; i < nitems; i++) {
        struct param *p = items[i].param;
        bool fresh = derived_fresh(p);

        p->version++;
        if (fresh)
            cuda_derived(p)->version = p->version;
    }
}

static bool any_hashes(const struct optim_item *items, int nitems)
{
    for (int i = 0; i < nitems; i++)
        if (items[i].hashes)
            return true;
    return false;
}

template <class HOW>
static void launch_step(struct device *dev, unsigned blocks, const struct step_item *table, const struct optim_item *items, int nitems,
                        const HOW &how, const struct clip *clip)
{
    cudaStream_t stream = cuda_device(dev)->stream;

    if (any_hashes(items, nitems))
        CUDA_LAUNCH((step_blocks_kernel<HOW, true>), blocks, THREADS, stream, table, nitems, how, clip);
    else
        CUDA_LAUNCH((step_blocks_kernel<HOW, false>), blocks, THREADS, stream, table, nitems, how, clip);
}

template <class HOW>
static int run(struct device *dev, const struct optim_item *items, int nitems, const HOW &how, const struct clip *clip, const char *what,
               struct err *err)
{
    struct step_item *host = (struct step_item *)calloc((size_t)nitems + 1, sizeof(*host));
    const struct step_item *table;
    unsigned blocks;
    int rc = 0;

    if (!host)
        return err_set(err, -ENOMEM, "%s: out of memory for %d parameters", what, nitems);
    blocks = fill_items(host, items, nitems);
    if (blocks > 0) {
        table = (const struct step_item *)cuda_table(dev, host, (size_t)nitems * sizeof(*host), err);
        rc = table ? 0 : err->code;
        if (table)
            launch_step(dev, blocks, table, items, nitems, how, clip);
    }
    if (rc == 0)
        rc = cuda_check(cudaPeekAtLastError(), what, err);
    if (rc == 0)
        bump_versions(items, nitems);
    free(host);
    return rc;
}

int cuda_optim_sgd(struct device *dev, const struct optim_item *items, int nitems, const struct sgd *how, const struct clip *clip,
                   struct err *err)
{
    struct sgd_how h = { *how };

    return run(dev, items, nitems, h, clip, "sgd", err);
}

int cuda_optim_adam(struct device *dev, const struct optim_item *items, int nitems, const struct adam *how, const struct clip *clip,
                    struct err *err)
{
    struct adam_how h = { *how };

    return run(dev, items, nitems, h, clip, "adam", err);
}

int cuda_optim_adamw(struct device *dev, const struct optim_item *items, int nitems, const struct adam *how, const struct clip *clip,
                     struct err *err)
{
    struct adamw_how h = { *how };

    return run(dev, items, nitems, h, clip, "adamw", err);
}

/* ---- the length of the gradient ---- */

enum { SUM_THREADS = 512, SUM_NUMBERS = 2 * SUM_THREADS }; /* a power of two, so that a block of threads adds a subtree */

/* Adds level by level: neighbours are added, an odd one goes up unchanged. That equals the binary counter of
 * tree_sum(). */
DEVICE_FN double tree_of_block(double *sum, const double *x, const uint32_t *order, int n)
{
    for (int i = threadIdx.x; i < n; i += SUM_THREADS)
        sum[i] = x[order ? order[i] : (unsigned)i];
    for (; n > 1; n = (n + 1) / 2) {
        double up = 0.0;
        int i = 2 * (int)threadIdx.x;

        __syncthreads();
        if (i < n)
            up = i + 1 < n ? sum[i] + sum[i + 1] : sum[i];
        __syncthreads();
        if (i < n)
            sum[i / 2] = up;
    }
    __syncthreads();
    return n > 0 ? sum[0] : 0.0;
}

static __global__ void __launch_bounds__(SUM_THREADS) tree_kernel(double *to, const double *x, const uint32_t *order, int n)
{
    SHARED(double, sum, SUM_NUMBERS);
    int first = (int)blockIdx.x * SUM_NUMBERS, rest = n - first < SUM_NUMBERS ? n - first : SUM_NUMBERS;
    double all = tree_of_block(sum, order ? x : x + first, order ? order + first : NULL, rest);

    if (threadIdx.x == 0)
        to[blockIdx.x] = all;
}

static __global__ void __launch_bounds__(SUM_THREADS)
    clip_kernel(struct clip *ret, const double *x, const uint32_t *order, int n, double weight, double max_norm)
{
    SHARED(double, sum, SUM_NUMBERS);
    double all = tree_of_block(sum, x, order, n);

    if (threadIdx.x == 0)
        *ret = clip_of(all, weight, max_norm);
}

int cuda_optim_clip(struct device *dev, struct clip *ret, const double *blocks, const uint32_t *order, int n, double weight,
                    double max_norm, struct err *err)
{
    cudaStream_t stream = cuda_device(dev)->stream;
    double *sums = NULL;

    if (n > SUM_NUMBERS)
        sums = (double *)cuda_scratch(dev, (size_t)(n + SUM_NUMBERS - 1) / SUM_NUMBERS * 2 * sizeof(*sums), "clip", err);
    if (n > SUM_NUMBERS && !sums)
        return -ENOMEM;
    while (n > SUM_NUMBERS) {
        unsigned subtrees = cuda_blocks((size_t)n, SUM_NUMBERS);

        CUDA_LAUNCH(tree_kernel, subtrees, SUM_THREADS, stream, sums, blocks, order, n);
        blocks = sums;
        sums += subtrees;
        order = NULL;
        n = (int)subtrees;
    }
    CUDA_LAUNCH(clip_kernel, 1, SUM_THREADS, stream, ret, blocks, order, n, weight, max_norm);
    return cuda_check(cudaPeekAtLastError(), "clip", err);
}
