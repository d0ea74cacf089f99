/* SPDX-License-Identifier: Apache-2.0 */ /* cuda/reduce.cu - sums over flat arrays with a fixed shape, and evidence
 * hashes. Memory limits them, so four numbers are loaded at once where addresses allow. */
#include "cuda/cuda.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/hash.h"
#include "cuda/items.h"
#include "worker/kernels/reduce.h"

enum {
    THREADS = 256,
    LEAVES_AT_ONCE = 64, /* parts in the arguments of a launch; more go in a table */
    SHALLOW = 8          /* waiting sums in nearly every tree: V shards need log2 V + 1 levels */
};

static bool is_aligned(const void *p, size_t bytes)
{
    return (uintptr_t)p % bytes == 0;
}

/* ---- the canonical tree ---- */

/* A part, and the number of waiting sums to add to it. tree_element() computes that number for every element. */
struct leaf {
    const float *data;
    int folds;
};

struct tree_args {
    float *dst;
    size_t count, vectors; /* the first 4 * vectors elements are added four at a time */
    int nleaves;
    const struct leaf *table; /* NULL: leaf[] */
    struct leaf leaf[LEAVES_AT_ONCE];
};

static __device__ float add(float a, float b)
{
    return a + b;
}

static __device__ float4 add(float4 a, float4 b)
{
    return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

/* Number i of type T of the tree over 2, 4 or 8 parts of one size: neighbours are added, then neighbours of these. dst
 * may be one of the parts. */
template <class T, int LEAVES> static __device__ void add_even(const struct tree_args *a, size_t i)
{
    T sum[LEAVES];

#pragma unroll
    for (int p = 0; p < LEAVES; p++)
        sum[p] = ((const T *)a->leaf[p].data)[i];
#pragma unroll
    for (int step = 1; step < LEAVES; step *= 2)
#pragma unroll
        for (int p = 0; p < LEAVES; p += 2 * step)
            sum[p] = add(sum[p], sum[p + step]);
    ((T *)a->dst)[i] = sum[0];
}

/* The same for any parts with at most DEPTH waiting sums. */
template <class T, int DEPTH> static __device__ void add_any(const struct tree_args *a, size_t i)
{
    const struct leaf *leaf = a->table ? a->table : a->leaf;
    T sum[DEPTH], top = ((const T *)leaf[0].data)[i];
    int n = 0;

    for (int p = 1; p < a->nleaves; p++) {
        sum[n++] = top;
        top = ((const T *)leaf[p].data)[i];
        for (int f = leaf[p].folds; f > 0; f--)
            top = add(sum[--n], top);
    }
    ((T *)a->dst)[i] = top;
}

template <int LEAVES> static __global__ void __launch_bounds__(THREADS) tree_even_kernel(const struct tree_args a)
{
    size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;

    if (i < a.vectors)
        add_even<float4, LEAVES>(&a, i);
    else if ((i += 3 * a.vectors) < a.count)
        add_even<float, LEAVES>(&a, i);
}

static __global__ void __launch_bounds__(THREADS) tree_any_kernel(const struct tree_args a)
{
    size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;

    if (i < a.vectors)
        add_any<float4, SHALLOW>(&a, i);
    else if ((i += 3 * a.vectors) < a.count)
        add_any<float, SHALLOW>(&a, i);
}

static __global__ void __launch_bounds__(THREADS) tree_deep_kernel(const struct tree_args a)
{
    size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;

    if (i < a.count)
        add_any<float, TREE_PENDING>(&a, i);
}

/* Finds the folds that tree_element() would do. Returns the largest number of waiting sums, without the top one. */
static int plan_folds(struct leaf *leaf, const struct tree_part *parts, int nparts)
{
    int lo[TREE_PENDING + 1], n = 0, deepest = 0;

    for (int p = 0; p < nparts; p++) {
        leaf[p].data = parts[p].data;
        leaf[p].folds = 0;
        lo[n++] = parts[p].lo;
        deepest = n - 1 > deepest ? n - 1 : deepest;
        for (; n > 1 && (p == nparts - 1 || tree_siblings(lo[n - 2], lo[n - 1], parts[p].hi)); n--)
            leaf[p].folds++;
    }
    return deepest;
}

/* True for the full tree over 2, 4 or 8 parts. There the k-th part ends as many subtrees as k + 1 has factors of
 * two. */
static bool is_even(const struct leaf *leaf, int n)
{
    if (n != 2 && n != 4 && n != 8)
        return false;
    for (int p = 0; p < n; p++)
        if (leaf[p].folds != __builtin_ctz((unsigned)p + 1))
            return false;
    return true;
}

static bool all_aligned(const struct tree_args *a, const struct leaf *leaf)
{
    bool yes = is_aligned(a->dst, sizeof(float4));

    for (int p = 0; p < a->nleaves; p++)
        yes = yes && is_aligned(leaf[p].data, sizeof(float4));
    return yes;
}

static int launch_tree(struct cuda_device *d, struct tree_args *a, const struct leaf *leaf, int deepest, struct err *err)
{
    bool even = is_even(leaf, a->nleaves), deep = deepest > SHALLOW;
    unsigned blocks;

    a->vectors = !deep && all_aligned(a, leaf) ? a->count / 4 : 0;
    blocks = cuda_blocks(a->count - 3 * a->vectors, THREADS);
    if (deep)
        CUDA_LAUNCH(tree_deep_kernel, blocks, THREADS, d->stream, *a);
    else if (!even)
        CUDA_LAUNCH(tree_any_kernel, blocks, THREADS, d->stream, *a);
    else if (a->nleaves == 2)
        CUDA_LAUNCH(tree_even_kernel<2>, blocks, THREADS, d->stream, *a);
    else if (a->nleaves == 4)
        CUDA_LAUNCH(tree_even_kernel<4>, blocks, THREADS, d->stream, *a);
    else
        CUDA_LAUNCH(tree_even_kernel<8>, blocks, THREADS, d->stream, *a);
    return cuda_check(cudaPeekAtLastError(), "tree_add", err);
}

static int add_table(struct device *dev, struct tree_args *a, const struct tree_part *parts, struct err *err)
{
    struct leaf *leaf = (struct leaf *)calloc((size_t)a->nleaves, sizeof(*leaf));
    int deepest, rc = -ENOMEM;

    if (!leaf)
        return err_set(err, -ENOMEM, "tree_add: out of memory for %d parts", a->nleaves);
    deepest = plan_folds(leaf, parts, a->nleaves);
    a->table = (const struct leaf *)cuda_table(dev, leaf, (size_t)a->nleaves * sizeof(*leaf), err);
    if (a->table)
        rc = launch_tree(cuda_device(dev), a, leaf, deepest, err);
    free(leaf);
    return rc;
}

int cuda_reduce_tree_add(struct device *dev, float *dst, const struct tree_part *parts, int nparts, size_t count, struct err *err)
{
    struct tree_args a;

    assert(nparts >= 1);
    if (count == 0)
        return 0;
    memset(&a, 0, sizeof(a));
    a.dst = dst;
    a.count = count;
    a.nleaves = nparts;
    if (nparts > LEAVES_AT_ONCE)
        return add_table(dev, &a, parts, err);
    return launch_tree(cuda_device(dev), &a, a.leaf, plan_folds(a.leaf, parts, nparts), err);
}

/* ---- sums of squares ---- */

enum {
    SQUARES_THREADS = 128, /* few, so that a bucket of gradients keeps all multiprocessors busy */
    SQUARES_AHEAD = 32     /* loads of a thread at once */
};

static_assert((int)SUM_BLOCK == (int)HASH_BLOCK, "a block is squared and hashed in one pass");

/* Hashes numbers 16 i + lane of a block, from row i = `row` on. The halves of a word are in two neighbouring threads:
 * the even one adds to lane 0 of the hash, the odd one to lane 1. */
DEVICE_FN uint64_t hash_rows(const float (&v)[SQUARES_AHEAD], unsigned row)
{
    unsigned odd = threadIdx.x % 2;
    const uint64_t *key = HASH_KEY + row * (SUM_LANES / 2) + threadIdx.x % SUM_LANES / 2 + odd;
    uint64_t sum = 0;

#pragma unroll
    for (unsigned i = 0; i < SQUARES_AHEAD; i++) {
        float other = __shfl_xor_sync(0xFFFFFFFFu, v[i], 1);

        sum += hash_product(odd ? hash_word_of(other, v[i]) : hash_word_of(v[i], other), key[i * (SUM_LANES / 2)]);
    }
    return sum;
}

/* 16 threads own the lanes of a block of 1024 numbers; see sum_squares_block(). The loads have their own test:
 * otherwise the compiler moves each to its use. For hashes all threads of a warp go through all rows, since they
 * exchange halves. */
template <bool HASH>
static __global__ void __launch_bounds__(SQUARES_THREADS)
    squares_kernel(double *blocks, struct hash128 *hashes, const float *g, size_t count)
{
    size_t block = ((size_t)blockIdx.x * SQUARES_THREADS + threadIdx.x) / SUM_LANES, first = block * SUM_BLOCK;
    unsigned lane = threadIdx.x % SUM_LANES, left = 0;
    double sum = 0.0;
    uint64_t hash = 0;

    if (first < count)
        left = ((count - first < SUM_BLOCK ? (unsigned)(count - first) : SUM_BLOCK) + SUM_LANES - 1 - lane) / SUM_LANES;
    g += first + lane;
    for (unsigned n, row = 0; HASH ? row < SUM_BLOCK / SUM_LANES : left > 0;
         left -= n, row += SQUARES_AHEAD, g += SQUARES_AHEAD * SUM_LANES) {
        float v[SQUARES_AHEAD];

        n = left < SQUARES_AHEAD ? left : SQUARES_AHEAD;
#pragma unroll
        for (unsigned i = 0; i < SQUARES_AHEAD; i++)
            if (i < n)
                v[i] = g[i * SUM_LANES];
            else if (HASH)
                v[i] = 0.0f;
#pragma unroll
        for (unsigned i = 0; i < SQUARES_AHEAD; i++) {
            if (i >= n)
                break;
            sum += (double)v[i] * (double)v[i];
        }
        if (HASH)
            hash += hash_rows(v, row);
    }
    for (int step = 1; step < SUM_LANES; step *= 2)
        sum += __shfl_down_sync(0xFFFFFFFFu, sum, (unsigned)step, SUM_LANES);
    for (int step = HASH_LANES; HASH && step < SUM_LANES; step *= 2)
        hash += __shfl_down_sync(0xFFFFFFFFu, (unsigned long long)hash, (unsigned)step, SUM_LANES);
    if (lane == 0 && first < count)
        blocks[block] = sum;
    if (HASH && lane < HASH_LANES && first < count)
        hashes[block].lane[lane] = hash;
}

int cuda_reduce_sum_squares(struct device *dev, double *blocks, struct hash128 *hashes, const float *g, size_t count, struct err *err)
{
    unsigned grid = cuda_blocks((count + SUM_BLOCK - 1) / SUM_BLOCK, SQUARES_THREADS / SUM_LANES);
    cudaStream_t stream = cuda_device(dev)->stream;

    if (count == 0)
        return 0;
    if (hashes)
        CUDA_LAUNCH(squares_kernel<true>, grid, SQUARES_THREADS, stream, blocks, hashes, g, count);
    else
        CUDA_LAUNCH(squares_kernel<false>, grid, SQUARES_THREADS, stream, blocks, hashes, g, count);
    return cuda_check(cudaPeekAtLastError(), "sum_squares", err);
}

/* ---- hashes ---- */

struct blocks_item {
    struct hash_item of;
    unsigned first; /* first block of threads */
    bool wide;      /* may be read four at a time */
};

static __global__ void __launch_bounds__(HASH_THREADS) hash_blocks_kernel(const struct blocks_item *items, int n)
{
    SHARED(uint64_t, shared, HASH_SUMS * HASH_WARPS);
    struct blocks_item t = *item_of_block(items, n);
    size_t first = (size_t)(blockIdx.x - t.first) * HASH_NUMBERS, rest = t.of.count - first,
           here = rest < HASH_NUMBERS ? rest : HASH_NUMBERS;
    const float *data = t.of.data + first;
    uint64_t sums[HASH_SUMS];

#pragma unroll
    for (int r = 0; r < HASH_AT_ONCE; r++) {
        size_t i = ((size_t)r * HASH_THREADS + threadIdx.x) * 4;
        float v[4];

        if (t.wide && i + 4 <= here)
            vec_unpack(v, vec_load<4>(data + i));
        else
#pragma unroll
            for (size_t k = 0; k < 4; k++)
                v[k] = i + k < here ? data[i + k] : 0.0f;
        hash_four(sums, r, v);
    }
    hash_store(t.of.blocks + first / HASH_BLOCK, (unsigned)((here + HASH_BLOCK - 1) / HASH_BLOCK * HASH_LANES), sums, shared);
}

/* Returns the number of thread blocks. */
static unsigned fill_items(struct blocks_item *to, const struct hash_item *items, int nitems)
{
    unsigned blocks = 0;

    for (int i = 0; i < nitems; i++) {
        to[i].of = items[i];
        to[i].first = blocks;
        to[i].wide = is_aligned(items[i].data, sizeof(float4));
        blocks += (unsigned)((items[i].count + HASH_NUMBERS - 1) / HASH_NUMBERS);
    }
    return blocks;
}

int cuda_reduce_hash_blocks(struct device *dev, const struct hash_item *items, int nitems, struct err *err)
{
    struct blocks_item *host = (struct blocks_item *)calloc((size_t)nitems + 1, sizeof(*host));
    const struct blocks_item *table;
    unsigned blocks;
    int rc = 0;

    if (!host)
        return err_set(err, -ENOMEM, "hash_blocks: out of memory for %d tensors", nitems);
    blocks = fill_items(host, items, nitems);
    if (blocks > 0) {
        table = (const struct blocks_item *)cuda_table(dev, host, (size_t)nitems * sizeof(*host), err);
        rc = table ? 0 : err->code;
        if (table)
            CUDA_LAUNCH(hash_blocks_kernel, blocks, HASH_THREADS, cuda_device(dev)->stream, table, nitems);
    }
    free(host);
    return rc < 0 ? rc : cuda_check(cudaPeekAtLastError(), "hash_blocks", err);
}

/* A block of threads for each piece. */
static __global__ void __launch_bounds__(HASH_THREADS) hash_tensors_kernel(struct hash128 *ret, const struct hash_piece *pieces)
{
    SHARED(uint64_t, shared, HASH_LANES * HASH_WARPS);
    struct hash_piece p = pieces[blockIdx.x];
    uint64_t sums[HASH_LANES] = { 0, 0 };

    for (int i = (int)threadIdx.x; i < p.nblocks; i += HASH_THREADS) {
        uint64_t b = (uint64_t)p.first + (uint64_t)i;

        sums[0] += hash_word(p.blocks[i].lane[0], p.kappa, b, HASH_MUL_0);
        sums[1] += hash_word(p.blocks[i].lane[1], p.kappa, b, HASH_MUL_1);
    }
    hash_store(ret + blockIdx.x, HASH_LANES, sums, shared);
}

int cuda_reduce_hash_tensors(struct device *dev, struct hash128 *ret, const struct hash_piece *pieces, int npieces, struct err *err)
{
    const struct hash_piece *table;

    if (npieces == 0)
        return 0;
    table = (const struct hash_piece *)cuda_table(dev, pieces, (size_t)npieces * sizeof(*pieces), err);
    if (!table)
        return err->code;
    CUDA_LAUNCH(hash_tensors_kernel, (unsigned)npieces, HASH_THREADS, cuda_device(dev)->stream, ret, table);
    return cuda_check(cudaPeekAtLastError(), "hash_tensors", err);
}
