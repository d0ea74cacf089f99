// cuda/reduce.cu - sums over flat arrays with a fixed shape, and the evidence hash. Memory-bound: four numbers a load where addresses
// allow.
#include "cuda/cuda.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/hash_mix.h"
#include "worker/kernels/reduce.h"

enum {
    THREADS = 256,
    LEAVES_AT_ONCE = 64, /* parts that travel in the arguments of a launch; more come as a table */
    SHALLOW = 8          /* sums that wait at once in nearly every tree: V shards wait on log2 V + 1 levels */
};

static bool is_aligned(const void *p, size_t bytes)
{
    return (uintptr_t)p % bytes == 0;
}

/* ---- the canonical tree ---- */

/* A part, and how many of the sums that wait are added once it is there: what tree_element() finds out for every element. */
struct leaf {
    const float *data;
    int folds;
};

struct tree_args {
    float *dst;
    size_t count, vectors; /* the first 4 * vectors elements go by fours */
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

/* Number i of type T of the tree over 2, 4 or 8 parts of one size: neighbours, then neighbours of those. dst may be one of the parts. */
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

/* The same for any parts of which no more than DEPTH sums wait at once. */
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

/* How tree_element() would fold the parts. Returns the most sums that ever wait, the top one not counted. */
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

/* Is the tree the full one over 2, 4 or 8 parts? Then the k-th part ends as many subtrees as k + 1 has factors of two. */
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
    SQUARES_THREADS = 128, /* few, so that a bucket of gradients fills all multiprocessors */
    SQUARES_AHEAD = 32     /* loads of a thread that are on their way together */
};

/* 16 threads own the lanes of a block of 1024 numbers; see sum_squares_block(). The loads stand behind a test of their own, or the compiler
 * would move each down to where it is used. */
static __global__ void __launch_bounds__(SQUARES_THREADS) squares_kernel(double *blocks, const float *g, size_t count)
{
    size_t block = ((size_t)blockIdx.x * SQUARES_THREADS + threadIdx.x) / SUM_LANES, first = block * SUM_BLOCK;
    unsigned lane = threadIdx.x % SUM_LANES, left = 0;
    double sum = 0.0;

    if (first < count)
        left = ((count - first < SUM_BLOCK ? (unsigned)(count - first) : SUM_BLOCK) + SUM_LANES - 1 - lane) / SUM_LANES;
    g += first + lane;
    for (unsigned n; left > 0; left -= n, g += SQUARES_AHEAD * SUM_LANES) {
        float v[SQUARES_AHEAD];

        n = left < SQUARES_AHEAD ? left : SQUARES_AHEAD;
#pragma unroll
        for (unsigned i = 0; i < SQUARES_AHEAD; i++)
            if (i < n)
                v[i] = g[i * SUM_LANES];
#pragma unroll
        for (unsigned i = 0; i < SQUARES_AHEAD; i++) {
            if (i >= n)
                break;
            sum += (double)v[i] * (double)v[i];
        }
    }
    for (int step = 1; step < SUM_LANES; step *= 2)
        sum += __shfl_down_sync(0xFFFFFFFFu, sum, (unsigned)step, SUM_LANES);
    if (lane == 0 && first < count)
        blocks[block] = sum;
}

int cuda_reduce_sum_squares(struct device *dev, double *blocks, const float *g, size_t count, struct err *err)
{
    size_t nblocks = (count + SUM_BLOCK - 1) / SUM_BLOCK;

    if (count == 0)
        return 0;
    CUDA_LAUNCH(squares_kernel, cuda_blocks(nblocks, SQUARES_THREADS / SUM_LANES), SQUARES_THREADS, cuda_device(dev)->stream, blocks, g,
                count);
    return cuda_check(cudaPeekAtLastError(), "sum_squares", err);
}

/* ---- evidence hash ---- */

enum { WORDS_PER_THREAD = 16, WARPS = THREADS / 32 };

/* Words of 8 bytes, little-endian; `have` of them are there, the others count as zero. T: the widest type the address is aligned to. */
template <class T> static __device__ uint64_t read_word(const unsigned char *p, size_t have)
{
    uint64_t word = 0;

    if (have >= 8)
        for (int i = 0; i < (int)(8 / sizeof(T)); i++)
            word |= (uint64_t)((const T *)p)[i] << (8 * sizeof(T) * (size_t)i % 64);
    else
        for (size_t i = 0; i < have; i++)
            word |= (uint64_t)p[i] << (8 * i);
    return word;
}

static __device__ uint64_t add_over_warp(uint64_t s)
{
    for (unsigned step = 16; step > 0; step /= 2)
        s += __shfl_down_sync(0xFFFFFFFFu, (unsigned long long)s, step);
    return s;
}

/* Integer sums need no order. */
template <class T>
static __global__ void __launch_bounds__(THREADS)
    hash_words_kernel(unsigned long long *out, const unsigned char *data, size_t bytes, uint64_t kappa, uint64_t first_word)
{
    SHARED(unsigned long long, part, 2 * WARPS);
    size_t first = (size_t)blockIdx.x * THREADS * WORDS_PER_THREAD + threadIdx.x, words = (bytes + 7) / 8;
    int warp = (int)threadIdx.x / 32;
    uint64_t s0 = 0, s1 = 0;

    for (int i = 0; i < WORDS_PER_THREAD; i++) {
        size_t j = first + (size_t)i * THREADS;

        if (j < words) {
            uint64_t w = read_word<T>(data + 8 * j, bytes - 8 * j);

            s0 += hash_word(w, kappa, first_word + j, HASH_MUL_0);
            s1 += hash_word(w, kappa, first_word + j, HASH_MUL_1);
        }
    }
    s0 = add_over_warp(s0);
    s1 = add_over_warp(s1);
    if (threadIdx.x % 32 == 0) {
        part[warp] = s0;
        part[WARPS + warp] = s1;
    }
    __syncthreads();
    if (threadIdx.x < 2) {
        unsigned long long sum = 0;

        for (int i = 0; i < WARPS; i++)
            sum += part[(int)threadIdx.x * WARPS + i];
        atomicAdd(out + threadIdx.x, sum);
    }
}

static void launch_hash(struct device *dev, unsigned long long *out, const unsigned char *data, size_t bytes, uint64_t kappa,
                        uint64_t first_word)
{
    unsigned blocks = cuda_blocks((bytes + 7) / 8, THREADS * WORDS_PER_THREAD);
    cudaStream_t stream = cuda_device(dev)->stream;

    if (is_aligned(data, 8))
        CUDA_LAUNCH(hash_words_kernel<uint64_t>, blocks, THREADS, stream, out, data, bytes, kappa, first_word);
    else if (is_aligned(data, 4))
        CUDA_LAUNCH(hash_words_kernel<uint32_t>, blocks, THREADS, stream, out, data, bytes, kappa, first_word);
    else
        CUDA_LAUNCH(hash_words_kernel<unsigned char>, blocks, THREADS, stream, out, data, bytes, kappa, first_word);
}

int cuda_reduce_hash(struct device *dev, uint64_t out[2], const void *data, size_t bytes, uint64_t kappa, uint64_t first_word,
                     struct err *err)
{
    unsigned long long host[2], *sums;
    int rc;

    if (bytes == 0)
        return 0;
    sums = (unsigned long long *)cuda_scratch(dev, sizeof(host), "hash", err);
    if (!sums)
        return -ENOMEM;
    rc = cuda_zero(dev, sums, sizeof(host), err);
    if (rc < 0)
        return rc;
    launch_hash(dev, sums, (const unsigned char *)data, bytes, kappa, first_word);
    rc = cuda_check(cudaPeekAtLastError(), "hash", err);
    if (rc == 0)
        rc = cuda_download(dev, host, sums, sizeof(host), err);
    for (int i = 0; rc == 0 && i < 2; i++)
        out[i] += host[i];
    return rc;
}
