/* SPDX-License-Identifier: Apache-2.0 */ /* cuda/norm_sums.cu - sums over the pixels of a shard for each channel: those
 * of the normalisation's backward, with the bits of worker/cpu/norm.c, and the statistics of a convolution's output, in
 * slabs of this device's own. A thread's slab is one fp32 chain for each channel. A block folds its slabs to one row of
 * partials; a second kernel folds the rows. */
#include <errno.h>
#include <stdlib.h>

#include "cuda/fold.h"
#include "cuda/norm.h"

enum {
    SLAB_THREADS = 256,    /* of a block, at most */
    SLAB_THREADS_FEW = 64, /* of a block, if larger blocks would leave multiprocessors idle: a small map has few, long chains */
    SLAB_BLOCKS = 512,     /* number of blocks that keeps all multiprocessors busy */
    STATS_THREADS = 128,   /* of a block for statistics; their bits depend on it, so it does not depend on the shards in a launch */
    SLAB_LANES = 32,       /* threads of a block side by side, at most; other threads take later slabs */
    SLAB_BYTES = 8,        /* bytes of an access. Chains are few and long, and narrow accesses give twice as many threads */
    SLAB_AHEAD = 16,       /* pixels loaded while a chain waits: each chain must keep the memory busy */
    STATS_AHEAD = 32,      /* the same for a pixel with one access instead of two */
    STATS_CHAIN = 8        /* pixels of statistics added up before they join the sum of the slab */
};

/* fn<T, W>(...): T by dtype; W is the channels of an access. */
#define SLAB_WIDTH(T) (SLAB_BYTES / (int)sizeof(T))
#define SLAB_CALL(fn, dtype, wide, ...)                                                                    \
    ((dtype) == DTYPE_BF16 ? ((wide) ? fn<bf16, SLAB_WIDTH(bf16)>(__VA_ARGS__) : fn<bf16, 1>(__VA_ARGS__)) \
                           : ((wide) ? fn<float, SLAB_WIDTH(float)>(__VA_ARGS__) : fn<float, 1>(__VA_ARGS__)))

struct slab_shard {
    const void *x, *da; /* da: backward sums only */
    struct affine act;
    const float *mean, *invstd;
    double *part; /* [blocks][2][c] sums, or [blocks][c] struct moments */
    unsigned npixels;
    int x_stride, da_stride;
};

struct slab_args {
    struct slab_shard shard[SHARDS_AT_ONCE];
    int c;
    unsigned slab; /* pixels */
};

/* The shape of the slabs of a launch. Both kernels must use the same. */
struct slab_shape {
    dim3 block;
    unsigned across;
};

static int slab_width(enum dtype dtype, bool wide)
{
    return wide ? SLAB_BYTES / (int)dtype_bytes(dtype) : 1;
}

static struct slab_shape slab_shape(int c, int w, unsigned threads)
{
    unsigned groups = ((unsigned)c + (unsigned)w - 1) / (unsigned)w, across = cuda_blocks(groups, SLAB_LANES);
    unsigned x = (groups + across - 1) / across, y = 1;
    struct slab_shape s;

    while (2 * y * x <= threads)
        y *= 2; /* a power of two: a block's slabs are one subtree */
    s.block = dim3(x, y);
    s.across = across;
    return s;
}

/* Rows of partials for npixels pixels, `per` pixels a row. */
static __host__ __device__ unsigned slab_rows(unsigned npixels, unsigned per)
{
    return (npixels + per - 1) / per;
}

struct slab_place {
    int k;             /* first channel of this thread */
    unsigned from, to; /* pixels of its slab; empty: the thread has no slab */
    unsigned rows;     /* slabs of this block; 0: the block is idle */
};

template <int W> DEVICE_FN struct slab_place slab_place(const struct slab_args *a, unsigned npixels)
{
    unsigned first = blockIdx.x * blockDim.y, nslabs = (npixels + a->slab - 1) / a->slab;
    struct slab_place p;

    p.k = vec_channel<W>();
    p.rows = first >= nslabs ? 0 : vec_least(nslabs - first, blockDim.y);
    p.from = (first + threadIdx.y) * a->slab;
    p.to = vec_least(p.from + a->slab, npixels);
    if (p.k >= a->c || p.from >= npixels)
        p.from = p.to = 0;
    return p;
}

/* The values of a thread's channels during a slab. */
template <int W> struct bwd_channels {
    struct vec_affine<W> act;
    float mean[W], invstd[W];
    float s0[W], s1[W];
};

template <typename T, int W> DEVICE_FN void bwd_pixel(struct bwd_channels<W> *b, const pack<T, W> &px, const pack<T, W> &pda)
{
    float x[W], da[W];

    vec_unpack(x, px);
    vec_unpack(da, pda);
#pragma unroll
    for (int i = 0; i < W; i++) {
        float dy = norm_dy(da[i], x[i], b->act.scale[i], b->act.shift[i], b->act.slope[i]);

        b->s0[i] += dy;
        b->s1[i] = fmaf(dy, norm_xhat(x[i], b->mean[i], b->invstd[i]), b->s1[i]);
    }
}

/* The loads have their own test, even if all pixels exist: otherwise the compiler moves them to their use, a few at a
 * time. */
template <typename T, int W> DEVICE_FN void bwd_slab(struct bwd_channels<W> *b, const struct slab_shard *s, struct slab_place at)
{
    const T *x = (const T *)s->x + (size_t)at.from * s->x_stride + at.k, *da = (const T *)s->da + (size_t)at.from * s->da_stride + at.k;

    for (unsigned left = at.to - at.from, n; left > 0; left -= n) {
        pack<T, W> px[SLAB_AHEAD], pda[SLAB_AHEAD];

        n = vec_least(left, SLAB_AHEAD);
#pragma unroll
        for (unsigned i = 0; i < SLAB_AHEAD; i++)
            if (i < n) {
                px[i] = vec_load<W>(x + (size_t)i * s->x_stride);
                pda[i] = vec_load<W>(da + (size_t)i * s->da_stride);
            }
#pragma unroll
        for (unsigned i = 0; i < SLAB_AHEAD; i++) {
            if (i >= n)
                break;
            bwd_pixel(b, px[i], pda[i]);
        }
        x += (size_t)n * s->x_stride;
        da += (size_t)n * s->da_stride;
    }
}

/* Writes two chains of every channel to shared memory: [2][slab][channel of the block]. */
template <int W> DEVICE_FN void put_chains(float *chains, const float (&s0)[W], const float (&s1)[W])
{
    unsigned width = blockDim.x * W, at = threadIdx.y * width + threadIdx.x * W;

#pragma unroll
    for (int i = 0; i < W; i++) {
        chains[at + (unsigned)i] = s0[i];
        chains[blockDim.y * width + at + (unsigned)i] = s1[i];
    }
    __syncthreads();
}

template <typename T, int W> static __global__ void __launch_bounds__(SLAB_THREADS) bwd_slabs_kernel(struct slab_args a)
{
    SHARED(float, chains, 2 * SLAB_THREADS * W);
    const struct slab_shard *s = &a.shard[blockIdx.z];
    struct slab_place at = slab_place<W>(&a, s->npixels);
    unsigned width = blockDim.x * W, threads = blockDim.x * blockDim.y;
    struct bwd_channels<W> b;

    if (at.rows == 0)
        return;
#pragma unroll
    for (int i = 0; i < W; i++)
        b.s0[i] = b.s1[i] = 0.0f;
    if (at.from < at.to) {
        vec_affine_load(&b.act, &s->act, at.k);
        vec_channels(b.mean, s->mean, at.k);
        vec_channels(b.invstd, s->invstd, at.k);
        bwd_slab<T>(&b, s, at);
    }
    put_chains(chains, b.s0, b.s1);
    for (unsigned j = threadIdx.y * blockDim.x + threadIdx.x; j < 2 * width; j += threads) {
        unsigned which = j / width, k = blockIdx.y * width + j % width;

        if (k < (unsigned)a.c)
            s->part[(2 * (size_t)blockIdx.x + which) * (unsigned)a.c + k] =
                fold_rows<double>(chains + which * blockDim.y * width + j % width, width, at.rows);
    }
}

/* Shards that a block of the second kernel folds together, and its shared numbers. */
enum { SUMS_AT_ONCE = 4, SUMS_RUNS = SUMS_AT_ONCE * FOLD_THREADS, SUMS_COLUMNS = SUMS_AT_ONCE * FOLD_WIDTH };

/* A shard's rows of partials and their destinations. */
struct sums_shard {
    const double *part;
    double *ret;   /* [2c] */
    float *dst[2]; /* [c] each */
    unsigned npixels;
};

struct sums_args {
    struct sums_shard shard[SHARDS_AT_ONCE];
    const struct sums_shard *table; /* device memory, for more shards than shard[] holds; NULL: shard[] */
    unsigned nshards, per;          /* per: pixels of a row */
    float beta[2];
    int c;
};

DEVICE_FN struct sums_shard sums_shard(const struct sums_args *a, unsigned v)
{
    return a->table ? a->table[v] : a->shard[v];
}

/* Folds this thread's run of rows of column j. */
DEVICE_FN void sums_run(double *runs, const struct sums_shard &s, unsigned columns, unsigned j, unsigned per)
{
    unsigned n = slab_rows(s.npixels, per), run = fold_run(n), first = threadIdx.y * run;

    if (first < n)
        runs[threadIdx.y * FOLD_WIDTH + threadIdx.x] =
            fold_rows<double>(s.part + (size_t)first * columns + j, columns, vec_least(n - first, run));
}

/* ret[j] = the tree over the rows of partials; a shard without pixels has no rows. A block has one shard, or all. If it
 * has all, it adds their sums in order, in double, for their common destination. */
static __global__ void __launch_bounds__(FOLD_THREADS) bwd_fold_kernel(struct sums_args a)
{
    SHARED(double, runs, SUMS_RUNS);
    SHARED(double, sums, SUMS_COLUMNS);
    unsigned j = blockIdx.x * FOLD_WIDTH + threadIdx.x, columns = 2 * (unsigned)a.c, which = j / (unsigned)a.c;
    double total = -0.0; /* leaves every number added to it unchanged */

    for (unsigned first = blockIdx.y; first < a.nshards; first += SUMS_AT_ONCE * gridDim.y) {
        unsigned mine = first + threadIdx.y * gridDim.y;

        for (unsigned i = 0; i < SUMS_AT_ONCE && first + i * gridDim.y < a.nshards; i++)
            if (j < columns)
                sums_run(runs + i * FOLD_THREADS, sums_shard(&a, first + i * gridDim.y), columns, j, a.per);
        __syncthreads();
        if (threadIdx.y < SUMS_AT_ONCE && mine < a.nshards && j < columns) {
            struct sums_shard s = sums_shard(&a, mine);
            unsigned n = slab_rows(s.npixels, a.per);
            double sum = n > 0 ? fold_rows<double>(runs + threadIdx.y * FOLD_THREADS + threadIdx.x, FOLD_WIDTH, fold_runs(n)) : 0.0;

            s.ret[j] = sum;
            sums[threadIdx.y * FOLD_WIDTH + threadIdx.x] = sum;
        }
        __syncthreads();
        for (unsigned i = 0; i < SUMS_AT_ONCE && first + i * gridDim.y < a.nshards; i++)
            if (threadIdx.y == 0 && j < columns)
                total += sums[i * FOLD_WIDTH + threadIdx.x];
    }
    if (threadIdx.y == 0 && j < columns) {
        float *dst = sums_shard(&a, blockIdx.y).dst[which] + (j - which * (unsigned)a.c);

        *dst = act_store(a.beta[which], dst, (float)total);
    }
}

enum { SUMS = 2, MOMENTS = 3 };

/* Doubles for partials of one shard, `each` for each block and channel. */
static size_t part_size(const struct tensor *t, unsigned slab, struct slab_shape shape, size_t each)
{
    return (size_t)slab_rows((unsigned)tensor_pixels(t), slab * shape.block.y) * each * (size_t)t->c;
}

/* The shape for backward sums. Their bits do not depend on it, and large blocks leave few rows to fold. */
static struct slab_shape bwd_shape(const struct tensor *da, bool wide, unsigned slab, int nshards)
{
    unsigned threads = SLAB_THREADS;
    struct slab_shape s;
    size_t blocks;

    do {
        s = slab_shape(da[0].c, slab_width(da[0].dtype, wide), threads);
        blocks = 0;
        for (int v = 0; v < nshards; v++)
            blocks += (size_t)slab_rows((unsigned)tensor_pixels(&da[v]), slab * s.block.y) * s.across;
        threads /= 2;
    } while (blocks < SLAB_BLOCKS && threads >= SLAB_THREADS_FEW);
    return s;
}

static unsigned most_pixels(const struct slab_args *a, int n)
{
    unsigned most = 0;

    for (int i = 0; i < n; i++)
        most = a->shard[i].npixels > most ? a->shard[i].npixels : most;
    return most;
}

template <typename T, int W> static void bwd_launch(struct device *dev, const struct slab_args *a, struct slab_shape shape, int n)
{
    dim3 grid(cuda_blocks(most_pixels(a, n), a->slab * shape.block.y), shape.across, (unsigned)n);

    CUDA_LAUNCH((bwd_slabs_kernel<T, W>), grid, shape.block, cuda_device(dev)->stream, *a);
}

static struct slab_shard bwd_shard(const struct operand *x, const float *mean, const float *invstd, const struct tensor *da)
{
    struct slab_shard s = {};

    s.x = x->x.data;
    s.da = da->data;
    s.act = x->act;
    s.mean = mean;
    s.invstd = invstd;
    s.npixels = (unsigned)tensor_pixels(da);
    s.x_stride = x->x.stride;
    s.da_stride = da->stride;
    return s;
}

/* Memory for the partials of all shards, one after the other. */
static double *part_memory(struct device *dev, const struct tensor *t, int nshards, unsigned slab, struct slab_shape shape, size_t each,
                           const char *what, struct err *err)
{
    size_t sum = 0;

    for (int v = 0; v < nshards; v++)
        sum += part_size(&t[v], slab, shape, each);
    return (double *)cuda_scratch(dev, sum * sizeof(double), what, err);
}

/* Launches the second kernel, once for all shards. */
static int sums_launch(struct device *dev, const struct sums_shard *shards, const struct sums_dest dest[2], int c, unsigned per,
                       int nshards, struct err *err)
{
    bool one_dest = nshards > 1 && dest[0].dst[0] == dest[0].dst[1];
    struct sums_args a = {};

    assert(!one_dest || (dev->one_dest && dest[1].dst[0] == dest[1].dst[1]));
    if (nshards > SHARDS_AT_ONCE) {
        a.table = (const struct sums_shard *)cuda_table(dev, shards, (size_t)nshards * sizeof *shards, err);
        if (!a.table)
            return err->code;
    } else {
        memcpy(a.shard, shards, (size_t)nshards * sizeof *shards);
    }
    a.nshards = (unsigned)nshards;
    a.per = per;
    a.beta[0] = dest[0].beta;
    a.beta[1] = dest[1].beta;
    a.c = c;
    CUDA_LAUNCH(bwd_fold_kernel, dim3(cuda_blocks(2 * (size_t)c, FOLD_WIDTH), one_dest ? 1u : (unsigned)nshards),
                dim3(FOLD_WIDTH, FOLD_RUNS), cuda_device(dev)->stream, a);
    return norm_checked("norm_bwd_reduce", err);
}

int cuda_norm_bwd_reduce(struct device *dev, double *const *sums, const struct sums_dest dest[2], const struct operand *x,
                         const float *const *mean, const float *const *invstd, const struct tensor *da, int nshards, struct err *err)
{
    bool wide = norm_wide(x, da, nshards);
    struct slab_shape shape;
    struct sums_shard *shards;
    struct slab_args a;
    double *part;
    int rc;

    norm_check_pixels(da, nshards);
    a.c = da[0].c;
    a.slab = (unsigned)norm_slab_pixels(a.c);
    shape = bwd_shape(da, wide, a.slab, nshards);
    part = part_memory(dev, da, nshards, a.slab, shape, SUMS, "norm_bwd_reduce", err);
    if (!part)
        return err->code;
    shards = (struct sums_shard *)calloc((size_t)nshards, sizeof *shards);
    if (!shards)
        return err_set(err, -ENOMEM, "norm_bwd_reduce: out of memory");
    for (int first = 0, n; first < nshards; first += n) {
        n = norm_at_once(nshards - first);
        for (int i = 0; i < n; i++) {
            int v = first + i;
            struct sums_shard s = { part, sums[v], { dest[0].dst[v], dest[1].dst[v] }, (unsigned)tensor_pixels(&da[v]) };

            shards[v] = s;
            a.shard[i] = bwd_shard(&x[v], mean[v], invstd[v], &da[v]);
            a.shard[i].part = part;
            part += part_size(&da[v], a.slab, shape, SUMS);
        }
        SLAB_CALL(bwd_launch, da[0].dtype, wide, dev, &a, shape, n);
    }
    rc = sums_launch(dev, shards, dest, a.c, a.slab * shape.block.y, nshards, err);
    free(shards);
    return rc;
}

/* ---- statistics: sums of y and of squares of y - shift; shift is the value of the block's first pixel, so no digits
 * are lost far from zero ---- */

/* Pixels of a slab of statistics; depends only on the number of channels. No other device needs these bits, so slabs
 * are short enough to keep all multiprocessors busy with a small map. */
static int stats_slab_pixels(int c)
{
    return norm_slab_pixels(c) / 2;
}

/* Adds a few numbers at a time: short chains round less. */
template <typename T, int W>
DEVICE_FN void stats_chain(float (&s0)[W], float (&s1)[W], const float (&shift)[W], const pack<T, W> *p, unsigned n)
{
    float t0[W] = {}, t1[W] = {};

#pragma unroll
    for (unsigned i = 0; i < STATS_CHAIN; i++) {
        float f[W];

        if (i >= n)
            break;
        vec_unpack(f, p[i]);
#pragma unroll
        for (int l = 0; l < W; l++) {
            float d = f[l] - shift[l];

            t0[l] += d;
            t1[l] = fmaf(d, d, t1[l]);
        }
    }
#pragma unroll
    for (int l = 0; l < W; l++) {
        s0[l] += t0[l];
        s1[l] += t1[l];
    }
}

template <typename T, int W>
DEVICE_FN void stats_slab(float (&s0)[W], float (&s1)[W], const float (&shift)[W], const struct slab_shard *s, struct slab_place at)
{
    const T *y = (const T *)s->x + (size_t)at.from * s->x_stride + at.k;

    for (unsigned left = at.to - at.from, n; left > 0; left -= n) {
        pack<T, W> p[STATS_AHEAD];

        n = vec_least(left, STATS_AHEAD);
#pragma unroll
        for (unsigned i = 0; i < STATS_AHEAD; i++)
            if (i < n)
                p[i] = vec_load<W>(y + (size_t)i * s->x_stride);
#pragma unroll
        for (unsigned i = 0; i < STATS_AHEAD; i += STATS_CHAIN) {
            if (i >= n)
                break;
            stats_chain(s0, s1, shift, p + i, n - i);
        }
        y += (size_t)n * s->x_stride;
    }
}

template <typename T, int W> static __global__ void __launch_bounds__(STATS_THREADS) stats_slabs_kernel(struct slab_args a)
{
    SHARED(float, chains, 2 * STATS_THREADS * W);
    const struct slab_shard *s = &a.shard[blockIdx.z];
    struct slab_place at = slab_place<W>(&a, s->npixels);
    unsigned width = blockDim.x * W, per = a.slab * blockDim.y;
    const T *first = (const T *)s->x + (size_t)blockIdx.x * per * s->x_stride;
    float s0[W], s1[W], shift[W];

    if (at.rows == 0)
        return;
#pragma unroll
    for (int i = 0; i < W; i++)
        s0[i] = s1[i] = 0.0f;
    if (at.from < at.to) {
        vec_unpack(shift, vec_load<W>(first + at.k));
        stats_slab<T>(s0, s1, shift, s, at);
    }
    put_chains(chains, s0, s1);
    for (unsigned l = threadIdx.y * blockDim.x + threadIdx.x; l < width; l += blockDim.x * blockDim.y) {
        unsigned k = blockIdx.y * width + l;
        double sum, squares;
        struct moments m;

        if (k >= (unsigned)a.c)
            continue;
        sum = fold_rows<double>(chains + l, width, at.rows);
        squares = fold_rows<double>(chains + blockDim.y * width + l, width, at.rows);
        m.count = (double)vec_least(s->npixels - blockIdx.x * per, per);
        m.mean = (double)to_float(first[k]) + sum / m.count;
        m.m2 = squares - sum * sum / m.count;
        if (m.m2 < 0.0) /* NaN stays NaN */
            m.m2 = 0.0;
        ((struct moments *)s->part)[(size_t)blockIdx.x * (unsigned)a.c + k] = m;
    }
}

/* A shard's rows of moments and their destinations. */
struct moments_shard {
    const struct moments *part;
    double *ret; /* count, mean[c], M2[c] */
    struct norm_vectors to;
    unsigned npixels;
};

struct moments_args {
    struct moments_shard shard[SHARDS_AT_ONCE];
    const float *gamma, *beta; /* NULL: only statistics are wanted */
    float eps;
    int c;
    unsigned per; /* pixels of a row */
};

static __global__ void __launch_bounds__(FOLD_THREADS) stats_fold_kernel(struct moments_args a)
{
    SHARED(struct moments, runs, FOLD_THREADS);
    const struct moments_shard *s = &a.shard[blockIdx.y];
    unsigned n = slab_rows(s->npixels, a.per), run = fold_run(n), first = threadIdx.y * run;
    unsigned k = blockIdx.x * FOLD_WIDTH + threadIdx.x, c = (unsigned)a.c;
    struct moments m = { 0.0, 0.0, 0.0 };

    if (k < c && first < n)
        m = fold_rows<struct moments>(s->part + (size_t)first * c + k, c, vec_least(n - first, run));
    if (n > 0)
        m = fold_block(runs, m, n);
    if (k >= c || threadIdx.y != 0)
        return;
    if (k == 0)
        s->ret[0] = (double)s->npixels;
    s->ret[1 + k] = m.mean;
    s->ret[1 + c + k] = m.m2;
    if (a.gamma)
        norm_put(&s->to, (int)k, norm_channel(m.mean, m.m2 / (double)s->npixels, a.gamma[k], a.beta[k], a.eps));
}

template <typename T, int W>
static void stats_launch(struct device *dev, const struct slab_args *a, const struct moments_args *m, struct slab_shape shape, int n)
{
    dim3 grid(cuda_blocks(most_pixels(a, n), a->slab * shape.block.y), shape.across, (unsigned)n);
    dim3 columns(cuda_blocks((size_t)a->c, FOLD_WIDTH), (unsigned)n);

    CUDA_LAUNCH((stats_slabs_kernel<T, W>), grid, shape.block, cuda_device(dev)->stream, *a);
    CUDA_LAUNCH(stats_fold_kernel, columns, dim3(FOLD_WIDTH, FOLD_RUNS), cuda_device(dev)->stream, *m);
}

static struct slab_shard stats_shard(const struct tensor *y, double *part)
{
    struct slab_shard s = {};

    s.x = y->data;
    s.npixels = (unsigned)tensor_pixels(y);
    s.x_stride = y->stride;
    s.part = part;
    return s;
}

/* m: the wanted results besides statistics. to: destinations of each shard; NULL: only statistics. */
static int stats_of(struct device *dev, double *const *stats, const struct norm_vectors *to, struct moments_args *m, const struct tensor *y,
                    int nshards, const char *what, struct err *err)
{
    bool wide = true;
    struct slab_shape shape;
    struct slab_args a;
    double *part;

    for (int v = 0; v < nshards; v++) {
        assert(tensor_pixels(&y[v]) < (size_t)1 << 31);
        wide = wide && vec_fits(&y[v], vec_width(y[v].dtype));
    }
    a.c = m->c = y[0].c;
    a.slab = (unsigned)stats_slab_pixels(a.c);
    shape = slab_shape(a.c, slab_width(y[0].dtype, wide), STATS_THREADS);
    m->per = a.slab * shape.block.y;
    part = part_memory(dev, y, nshards, a.slab, shape, MOMENTS, what, err);
    if (!part)
        return err->code;
    for (int first = 0, n; first < nshards; first += n) {
        n = norm_at_once(nshards - first);
        for (int i = 0; i < n; i++) {
            int v = first + i;
            struct moments_shard s = { (const struct moments *)part, stats[v], {}, (unsigned)tensor_pixels(&y[v]) };

            if (to)
                s.to = to[v];
            m->shard[i] = s;
            a.shard[i] = stats_shard(&y[v], part);
            part += part_size(&y[v], a.slab, shape, MOMENTS);
        }
        SLAB_CALL(stats_launch, y[0].dtype, wide, dev, &a, m, shape, n);
    }
    return norm_checked(what, err);
}

int cuda_norm_stats(struct device *dev, double *const *stats, const struct tensor *y, int nshards, struct err *err)
{
    struct moments_args m = {};

    return stats_of(dev, stats, NULL, &m, y, nshards, "conv_fwd: statistics", err);
}

int cuda_norm_apart_batch(struct device *dev, double *const *stats, float *const *mean, float *const *invstd, float *const *scale,
                          float *const *shift, const struct tensor *y, const float *gamma, const float *beta, float eps, int nshards,
                          struct err *err)
{
    struct norm_vectors *to = (struct norm_vectors *)calloc((size_t)nshards, sizeof *to);
    struct moments_args m = {};
    int rc;

    if (!to)
        return err_set(err, -ENOMEM, "norm_batch: out of memory");
    for (int v = 0; v < nshards; v++) {
        struct norm_vectors n = { mean[v], invstd[v], scale[v], shift[v] };

        to[v] = n;
    }
    m.gamma = gamma;
    m.beta = beta;
    m.eps = eps;
    rc = stats_of(dev, stats, to, &m, y, nshards, "norm_batch", err);
    free(to);
    return rc;
}
