/* cuda/norm.cu - batch normalisation: statistics of a convolution's output, scale and shift from them, the backward in two passes over memory, running
 * statistics. fp32 gives the bits of cpu/norm.c but for the statistics, whose slabs are this device's own. */
#include "cuda/fold.h"

#include <assert.h>

#include "worker/kernels/norm.h"

enum {
    CHANNEL_THREADS = 128, /* blocks of kernels with a thread per channel */
    SLAB_THREADS = 128,    /* of the sums over pixels: few, because a thread of them keeps much in registers */
    SLAB_LANES = 32,       /* of these at most so many side by side; the others take slabs further down */
    SLAB_AHEAD = 8,        /* pixels on their way while a chain waits: chains are long and few, so each must keep the memory busy */
    APPLY_RUN = 8,         /* pixels of a thread */
    APPLY_AHEAD = 4,       /* of them on their way at once */
    ROWS_AT_ONCE = 64      /* pointers in the arguments of a launch; more come as a table */
};

static int at_once(int left)
{
    return left < SHARDS_AT_ONCE ? left : SHARDS_AT_ONCE;
}

static int checked(const char *what, struct err *err)
{
    return cuda_check(cudaPeekAtLastError(), what, err);
}

/* ---- one thread a channel ---- */

struct prepare_shard {
    const double *stats;
    float *mean, *invstd, *scale, *shift;
};

struct prepare_args {
    struct prepare_shard shard[SHARDS_AT_ONCE];
    const float *gamma, *beta;
    float eps;
    int c;
};

static __global__ void prepare_kernel(struct prepare_args a)
{
    const struct prepare_shard *s = &a.shard[blockIdx.y];
    int k = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    struct norm_channel n;

    if (k >= a.c)
        return;
    n = norm_channel(s->stats[1 + k], s->stats[1 + a.c + k] / s->stats[0], a.gamma[k], a.beta[k], a.eps);
    s->mean[k] = n.mean;
    s->invstd[k] = n.invstd;
    s->scale[k] = n.scale;
    s->shift[k] = n.shift;
}

int cuda_norm_prepare(struct device *dev, float *const *mean, float *const *invstd, float *const *scale, float *const *shift,
                      const double *const *stats, const float *gamma, const float *beta, float eps, int c, int nshards, struct err *err)
{
    struct prepare_args a;

    a.gamma = gamma;
    a.beta = beta;
    a.eps = eps;
    a.c = c;
    for (int first = 0, n; first < nshards; first += n) {
        n = at_once(nshards - first);
        for (int i = 0; i < n; i++) {
            struct prepare_shard s = { stats[first + i], mean[first + i], invstd[first + i], scale[first + i], shift[first + i] };

            a.shard[i] = s;
        }
        CUDA_LAUNCH(prepare_kernel, dim3(cuda_blocks((size_t)c, CHANNEL_THREADS), (unsigned)n), dim3(CHANNEL_THREADS),
                    cuda_device(dev)->stream, a);
    }
    return checked("norm_prepare", err);
}

static __global__ void prepare_running_kernel(float *invstd, float *scale, float *shift, const float *mean, const float *var,
                                              const float *gamma, const float *beta, float eps, int c)
{
    int k = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    struct norm_channel n;

    if (k >= c)
        return;
    n = norm_channel((double)mean[k], (double)var[k], gamma[k], beta[k], eps);
    invstd[k] = n.invstd;
    scale[k] = n.scale;
    shift[k] = n.shift;
}

int cuda_norm_prepare_running(struct device *dev, float *invstd, float *scale, float *shift, const float *mean, const float *var,
                              const float *gamma, const float *beta, float eps, int c, struct err *err)
{
    CUDA_LAUNCH(prepare_running_kernel, dim3(cuda_blocks((size_t)c, CHANNEL_THREADS)), dim3(CHANNEL_THREADS), cuda_device(dev)->stream,
                invstd, scale, shift, mean, var, gamma, beta, eps, c);
    return checked("norm_prepare_running", err);
}

/* Arrays of doubles, one a shard of the job. */
struct rows {
    const double *at[ROWS_AT_ONCE];
    const double *const *table; /* device memory; NULL: at[] */
    int n;
};

DEVICE_FN const double *row(const struct rows *r, int i)
{
    return r->table ? r->table[i] : r->at[i];
}

static int rows_make(struct device *dev, struct rows *ret, const double *const *p, int n, struct err *err)
{
    ret->n = n;
    ret->table = NULL;
    for (int i = 0; i < n && i < ROWS_AT_ONCE; i++)
        ret->at[i] = p[i];
    if (n <= ROWS_AT_ONCE)
        return 0;
    ret->table = (const double *const *)cuda_table(dev, p, (size_t)n * sizeof *p, err);
    return ret->table ? 0 : err->code;
}

static __global__ void merge_moments_kernel(double *dst, struct rows r, int c)
{
    int k = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    fold<struct moments> f;
    struct moments m;

    if (k >= c)
        return;
    fold_start(&f);
    for (int i = 0; i < r.n; i++) {
        const double *s = row(&r, i);

        m.count = s[0];
        m.mean = s[1 + k];
        m.m2 = s[1 + c + k];
        fold_push(&f, m, 1u);
    }
    m = fold_finish(&f);
    if (k == 0)
        dst[0] = m.count;
    dst[1 + k] = m.mean;
    dst[1 + c + k] = m.m2;
}

int cuda_merge_moments(struct device *dev, double *dst, const double *const *stats, int nstats, int c, struct err *err)
{
    struct rows r;
    int rc = rows_make(dev, &r, stats, nstats, err);

    if (rc < 0)
        return rc;
    CUDA_LAUNCH(merge_moments_kernel, dim3(cuda_blocks((size_t)c, CHANNEL_THREADS)), dim3(CHANNEL_THREADS), cuda_device(dev)->stream, dst,
                r, c);
    return checked("merge_moments", err);
}

static __global__ void merge_sums_kernel(double *dst, struct rows r, size_t count)
{
    size_t j = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    fold<double> f;

    if (j >= count)
        return;
    fold_start(&f);
    for (int i = 0; i < r.n; i++)
        fold_push(&f, row(&r, i)[j], 1u);
    dst[j] = fold_finish(&f);
}

int cuda_merge_sums(struct device *dev, double *dst, const double *const *rows, int nrows, size_t count, struct err *err)
{
    struct rows r;
    int rc = rows_make(dev, &r, rows, nrows, err);

    if (rc < 0)
        return rc;
    CUDA_LAUNCH(merge_sums_kernel, dim3(cuda_blocks(count, CHANNEL_THREADS)), dim3(CHANNEL_THREADS), cuda_device(dev)->stream, dst, r,
                count);
    return checked("merge_sums", err);
}

/* One destination of all rows gets their sum, added in order in double and rounded once. */
static __global__ void narrow_sum_kernel(float *dst, float beta, struct rows src, size_t count)
{
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    double sum = 0.0;

    if (i >= count)
        return;
    for (int v = 0; v < src.n; v++)
        sum += row(&src, v)[i];
    dst[i] = act_store(beta, &dst[i], (float)sum);
}

struct narrow_args {
    struct {
        float *dst;
        const double *src;
    } shard[SHARDS_AT_ONCE];
    float beta;
    size_t count;
};

static __global__ void narrow_kernel(struct narrow_args a)
{
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    float *dst = a.shard[blockIdx.y].dst;

    if (i < a.count)
        dst[i] = act_store(a.beta, &dst[i], (float)a.shard[blockIdx.y].src[i]);
}

static void narrow_each(struct device *dev, float *const *dst, float beta, const double *const *src, size_t count, int nshards)
{
    struct narrow_args a;

    a.beta = beta;
    a.count = count;
    for (int first = 0, n; first < nshards; first += n) {
        n = at_once(nshards - first);
        for (int i = 0; i < n; i++) {
            a.shard[i].dst = dst[first + i];
            a.shard[i].src = src[first + i];
        }
        CUDA_LAUNCH(narrow_kernel, dim3(cuda_blocks(count, CHANNEL_THREADS), (unsigned)n), dim3(CHANNEL_THREADS), cuda_device(dev)->stream,
                    a);
    }
}

int cuda_narrow(struct device *dev, float *const *dst, float beta, const double *const *src, size_t count, int nshards, struct err *err)
{
    struct rows r;
    int rc;

    if (nshards < 2 || dst[0] != dst[1]) {
        narrow_each(dev, dst, beta, src, count, nshards);
        return checked("narrow", err);
    }
    assert(dev->merges);
    rc = rows_make(dev, &r, src, nshards, err);
    if (rc < 0)
        return rc;
    CUDA_LAUNCH(narrow_sum_kernel, dim3(cuda_blocks(count, CHANNEL_THREADS)), dim3(CHANNEL_THREADS), cuda_device(dev)->stream, dst[0], beta,
                r, count);
    return checked("narrow", err);
}

static __global__ void running_kernel(float *mean, float *var, struct rows stats, float momentum, int c, const int32_t *skip)
{
    int k = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    fold<double> f, g;

    if (k >= c || *skip != 0)
        return;
    fold_start(&f);
    fold_start(&g);
    for (int i = 0; i < stats.n; i++) {
        const double *s = row(&stats, i);

        if (s[0] < 2.0)
            return; /* one pixel has no unbiased variance */
        fold_push(&f, s[1 + k], 1u);
        fold_push(&g, s[1 + c + k] / (s[0] - 1.0), 1u);
    }
    mean[k] = norm_running_value(mean[k], fold_finish(&f) / (double)stats.n, momentum);
    var[k] = norm_running_value(var[k], fold_finish(&g) / (double)stats.n, momentum);
}

int cuda_norm_running(struct device *dev, float *mean, float *var, const double *const *stats, int nstats, float momentum, int c,
                      const int32_t *skip, struct err *err)
{
    struct rows r;
    int rc = rows_make(dev, &r, stats, nstats, err);

    if (rc < 0)
        return rc;
    CUDA_LAUNCH(running_kernel, dim3(cuda_blocks((size_t)c, CHANNEL_THREADS)), dim3(CHANNEL_THREADS), cuda_device(dev)->stream, mean, var,
                r, momentum, c, skip);
    return checked("norm_running", err);
}

/* ---- sums over pixels: a thread's slab is one fp32 chain per channel; a block folds its slabs to one row of partials, a second kernel folds these ---- */

struct slab_shard {
    const void *x, *da; /* da: backward sums only */
    const float *scale, *shift, *slope, *mean, *invstd;
    double *part; /* [blocks][2][c] */
    double *ret;  /* backward: [2c] sums; statistics: count, mean[c], M2[c] */
    unsigned npixels;
    int x_stride, da_stride;
};

struct slab_args {
    struct slab_shard shard[SHARDS_AT_ONCE];
    int c;
    unsigned slab; /* pixels */
};

/* Where the slabs of a launch stand; part of the geometry, so that both kernels agree. */
struct slab_shape {
    dim3 block;
    unsigned across;
};

static struct slab_shape slab_shape(int c, int w)
{
    unsigned groups = ((unsigned)c + (unsigned)w - 1) / (unsigned)w, across = cuda_blocks(groups, SLAB_LANES);
    unsigned x = (groups + across - 1) / across, y = 1;
    struct slab_shape s;

    while (2 * y * x <= SLAB_THREADS)
        y *= 2; /* a power of two: a block's slabs are one subtree */
    s.block = dim3(x, y);
    s.across = across;
    return s;
}

/* Rows of partials of npixels pixels. */
static __host__ __device__ unsigned slab_blocks(unsigned npixels, unsigned slab, unsigned slabs_a_block)
{
    return (npixels + slab * slabs_a_block - 1) / (slab * slabs_a_block);
}

struct slab_place {
    int k;             /* first channel of this thread */
    unsigned from, to; /* pixels of its slab; empty where it has none */
    unsigned rows;     /* slabs of this block; 0: the block has nothing to do */
};

template <int W> DEVICE_FN struct slab_place slab_place(const struct slab_args *a, unsigned npixels)
{
    unsigned first = blockIdx.x * blockDim.y, nslabs = (npixels + a->slab - 1) / a->slab;
    struct slab_place p;

    p.k = vec_channel<W>();
    p.rows = first >= nslabs ? 0 : nslabs - first < blockDim.y ? nslabs - first : blockDim.y;
    p.from = (first + threadIdx.y) * a->slab;
    p.to = p.from + a->slab < npixels ? p.from + a->slab : npixels;
    if (p.k >= a->c || p.from >= npixels)
        p.from = p.to = 0;
    return p;
}

/* What is kept per channel while a slab goes by. */
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

template <typename T, int W> DEVICE_FN void bwd_slab(struct bwd_channels<W> *b, const struct slab_shard *s, struct slab_place at)
{
    const T *x = (const T *)s->x + (size_t)at.from * s->x_stride + at.k, *da = (const T *)s->da + (size_t)at.from * s->da_stride + at.k;
    unsigned left = at.to - at.from;

    for (; left >= SLAB_AHEAD; left -= SLAB_AHEAD) {
        pack<T, W> px[SLAB_AHEAD], pda[SLAB_AHEAD];

#pragma unroll
        for (int i = 0; i < SLAB_AHEAD; i++) {
            px[i] = vec_load<W>(x);
            pda[i] = vec_load<W>(da);
            x += s->x_stride;
            da += s->da_stride;
        }
#pragma unroll
        for (int i = 0; i < SLAB_AHEAD; i++)
            bwd_pixel(b, px[i], pda[i]);
    }
    for (; left > 0; left--) {
        bwd_pixel(b, vec_load<W>(x), vec_load<W>(da));
        x += s->x_stride;
        da += s->da_stride;
    }
}

/* Two chains of every channel go to shared memory: [2][slab][channel of the block]. */
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

/* The tree over the block's chains of one channel. */
DEVICE_FN double fold_chains(const float *chain, unsigned width, unsigned rows)
{
    fold<double> f;

    fold_start(&f);
    for (unsigned r = 0; r < rows; r++)
        fold_push(&f, (double)chain[r * width], 1u);
    return fold_finish(&f);
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
        struct affine act = { s->scale, s->shift, s->slope };

        vec_affine_load(&b.act, &act, at.k);
        vec_channels(b.mean, s->mean, at.k);
        vec_channels(b.invstd, s->invstd, at.k);
        bwd_slab<T>(&b, s, at);
    }
    put_chains(chains, b.s0, b.s1);
    for (unsigned j = threadIdx.y * blockDim.x + threadIdx.x; j < 2 * width; j += threads) {
        unsigned which = j / width, k = blockIdx.y * width + j % width;

        if (k < (unsigned)a.c)
            s->part[(2 * (size_t)blockIdx.x + which) * (unsigned)a.c + k] =
                fold_chains(chains + which * blockDim.y * width + j % width, width, at.rows);
    }
}

/* ret[j] = the tree over the rows of partials; a shard without pixels has no rows. */
static __global__ void bwd_fold_kernel(struct slab_args a, unsigned slabs_a_block)
{
    SHARED(double, runs, FOLD_WIDTH *FOLD_RUNS);
    const struct slab_shard *s = &a.shard[blockIdx.y];
    unsigned n = slab_blocks(s->npixels, a.slab, slabs_a_block), run = fold_run(n), first = threadIdx.y * run;
    unsigned j = blockIdx.x * FOLD_WIDTH + threadIdx.x, columns = 2 * (unsigned)a.c;
    double sum = 0.0;

    if (j < columns && first < n)
        sum = fold_rows(s->part + (size_t)first * columns + j, columns, n - first < run ? n - first : run);
    if (n > 0)
        sum = fold_block(runs, sum, n);
    if (j < columns && threadIdx.y == 0)
        s->ret[j] = sum;
}

/* Doubles of partials of one shard. */
static size_t part_size(const struct tensor *t, unsigned slab, struct slab_shape shape)
{
    return (size_t)slab_blocks((unsigned)tensor_pixels(t), slab, shape.block.y) * 2 * (size_t)t->c;
}

static unsigned most_pixels(const struct slab_args *a, int n)
{
    unsigned most = 0;

    for (int i = 0; i < n; i++)
        most = a->shard[i].npixels > most ? a->shard[i].npixels : most;
    return most;
}

template <typename T, int W> static void bwd_launch(struct device *dev, const struct slab_args *a, int n)
{
    struct slab_shape shape = slab_shape(a->c, W);
    dim3 grid(cuda_blocks(most_pixels(a, n), a->slab * shape.block.y), shape.across, (unsigned)n);
    dim3 columns(cuda_blocks(2 * (size_t)a->c, FOLD_WIDTH), (unsigned)n);

    CUDA_LAUNCH((bwd_slabs_kernel<T, W>), grid, shape.block, cuda_device(dev)->stream, *a);
    CUDA_LAUNCH(bwd_fold_kernel, columns, dim3(FOLD_WIDTH, FOLD_RUNS), cuda_device(dev)->stream, *a, shape.block.y);
}

static void check_shapes(const struct operand *x, const struct tensor *da, int nshards)
{
    for (int v = 0; v < nshards; v++) {
        assert(x[v].act.scale && tensor_count(&x[v].x) == tensor_count(&da[v]) && x[v].x.c == da[v].c && da[v].c == da[0].c);
        assert(x[v].x.dtype == da[v].dtype && da[v].dtype == da[0].dtype && tensor_pixels(&da[v]) < (size_t)1 << 31);
    }
    (void)x, (void)da, (void)nshards;
}

static bool wide_pair(const struct operand *x, const struct tensor *da, int nshards)
{
    int w = vec_width(da[0].dtype);
    bool wide = true;

    for (int v = 0; v < nshards; v++)
        wide = wide && vec_fits(&x[v].x, w) && vec_fits(&da[v], w);
    return wide;
}

static struct slab_shard bwd_shard(const struct operand *x, const float *mean, const float *invstd, const struct tensor *da)
{
    struct slab_shard s = { x->x.data, da->data, x->act.scale, x->act.shift, x->act.slope, mean, invstd };

    s.npixels = (unsigned)tensor_pixels(da);
    s.x_stride = x->x.stride;
    s.da_stride = da->stride;
    return s;
}

/* Partials of the shards of one launch; the next launch of this op may overwrite them, it comes later on the stream. */
static double *part_memory(struct device *dev, const struct tensor *t, int nshards, unsigned slab, struct slab_shape shape,
                           const char *what, struct err *err)
{
    size_t most = 0;

    for (int first = 0; first < nshards; first += SHARDS_AT_ONCE) {
        size_t sum = 0;

        for (int i = 0; i < at_once(nshards - first); i++)
            sum += part_size(&t[first + i], slab, shape);
        most = sum > most ? sum : most;
    }
    return (double *)cuda_scratch(dev, most * sizeof(double), what, err);
}

int cuda_norm_bwd_reduce(struct device *dev, double *const *sums, const struct operand *x, const float *const *mean,
                         const float *const *invstd, const struct tensor *da, int nshards, struct err *err)
{
    bool wide = wide_pair(x, da, nshards);
    struct slab_shape shape = slab_shape(da[0].c, wide ? vec_width(da[0].dtype) : 1);
    struct slab_args a;
    double *memory;

    check_shapes(x, da, nshards);
    a.c = da[0].c;
    a.slab = (unsigned)norm_slab_pixels(a.c);
    memory = part_memory(dev, da, nshards, a.slab, shape, "norm_bwd_reduce", err);
    if (!memory)
        return err->code;
    for (int first = 0, n; first < nshards; first += n) {
        double *part = memory;

        n = at_once(nshards - first);
        for (int i = 0; i < n; i++) {
            int v = first + i;

            a.shard[i] = bwd_shard(&x[v], mean[v], invstd[v], &da[v]);
            a.shard[i].part = part;
            a.shard[i].ret = sums[v];
            part += part_size(&da[v], a.slab, shape);
        }
        VEC_CALL(bwd_launch, da[0].dtype, wide, dev, &a, n);
    }
    return checked("norm_bwd_reduce", err);
}

/* ---- statistics: sums of y and of squares of y - shift, where shift is the value of the block's first pixel: no digits are lost far from zero ---- */

template <typename T, int W>
DEVICE_FN void stats_slab(float (&s0)[W], float (&s1)[W], const float (&shift)[W], const struct slab_shard *s, struct slab_place at)
{
    const T *y = (const T *)s->x + (size_t)at.from * s->x_stride + at.k;

    for (unsigned left = at.to - at.from; left > 0;) {
        unsigned n = left < SLAB_AHEAD ? left : SLAB_AHEAD;
        pack<T, W> p[SLAB_AHEAD];

#pragma unroll
        for (unsigned i = 0; i < SLAB_AHEAD; i++)
            if (i < n)
                p[i] = vec_load<W>(y + (size_t)i * s->x_stride);
#pragma unroll
        for (unsigned i = 0; i < SLAB_AHEAD; i++) {
            float f[W];

            if (i >= n)
                break;
            vec_unpack(f, p[i]);
#pragma unroll
            for (int l = 0; l < W; l++) {
                float d = f[l] - shift[l];

                s0[l] += d;
                s1[l] = fmaf(d, d, s1[l]);
            }
        }
        y += (size_t)n * s->x_stride;
        left -= n;
    }
}

/* Pixels of block b. */
DEVICE_FN unsigned block_pixels(const struct slab_shard *s, unsigned b, unsigned per)
{
    return s->npixels - b * per < per ? s->npixels - b * per : per;
}

template <typename T, int W> static __global__ void __launch_bounds__(SLAB_THREADS) stats_slabs_kernel(struct slab_args a)
{
    SHARED(float, chains, 2 * SLAB_THREADS * W);
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
        double sum, squares, n = (double)block_pixels(s, blockIdx.x, per);
        double *ret = s->part + 2 * (size_t)blockIdx.x * (unsigned)a.c + k;

        if (k >= (unsigned)a.c)
            continue;
        sum = fold_chains(chains + l, width, at.rows);
        squares = fold_chains(chains + blockDim.y * width + l, width, at.rows) - sum * sum / n;
        ret[0] = (double)to_float(first[k]) + sum / n;
        ret[a.c] = squares < 0.0 ? 0.0 : squares; /* NaN stays NaN */
    }
}

static __global__ void stats_fold_kernel(struct slab_args a, unsigned slabs_a_block)
{
    SHARED(struct moments, runs, FOLD_WIDTH * FOLD_RUNS);
    const struct slab_shard *s = &a.shard[blockIdx.y];
    unsigned per = a.slab * slabs_a_block, n = slab_blocks(s->npixels, a.slab, slabs_a_block), run = fold_run(n);
    unsigned k = blockIdx.x * FOLD_WIDTH + threadIdx.x, first = threadIdx.y * run, to = first + run < n ? first + run : n;
    struct moments m = { 0.0, 0.0, 0.0 };

    if (k < (unsigned)a.c && first < to) {
        fold<struct moments> f;

        fold_start(&f);
        for (unsigned b = first; b < to; b++) {
            const double *p = s->part + 2 * (size_t)b * (unsigned)a.c + k;
            struct moments leaf = { (double)block_pixels(s, b, per), p[0], p[a.c] };

            fold_push(&f, leaf, 1u);
        }
        m = fold_finish(&f);
    }
    if (n > 0)
        m = fold_block(runs, m, n);
    if (k >= (unsigned)a.c || threadIdx.y != 0)
        return;
    if (k == 0)
        s->ret[0] = (double)s->npixels;
    s->ret[1 + k] = m.mean;
    s->ret[1 + (unsigned)a.c + k] = m.m2;
}

template <typename T, int W> static void stats_launch(struct device *dev, const struct slab_args *a, int n)
{
    struct slab_shape shape = slab_shape(a->c, W);
    dim3 grid(cuda_blocks(most_pixels(a, n), a->slab * shape.block.y), shape.across, (unsigned)n);
    dim3 columns(cuda_blocks((size_t)a->c, FOLD_WIDTH), (unsigned)n);

    CUDA_LAUNCH((stats_slabs_kernel<T, W>), grid, shape.block, cuda_device(dev)->stream, *a);
    CUDA_LAUNCH(stats_fold_kernel, columns, dim3(FOLD_WIDTH, FOLD_RUNS), cuda_device(dev)->stream, *a, shape.block.y);
}

int cuda_norm_stats(struct device *dev, double *const *stats, const struct tensor *y, int nshards, struct err *err)
{
    bool wide = true;
    struct slab_shape shape;
    struct slab_args a;
    double *memory;

    for (int v = 0; v < nshards; v++) {
        assert(y[v].c == y[0].c && y[v].dtype == y[0].dtype && tensor_pixels(&y[v]) < (size_t)1 << 31);
        wide = wide && vec_fits(&y[v], vec_width(y[v].dtype));
    }
    a.c = y[0].c;
    a.slab = (unsigned)norm_slab_pixels(a.c);
    shape = slab_shape(a.c, wide ? vec_width(y[0].dtype) : 1);
    memory = part_memory(dev, y, nshards, a.slab, shape, "conv_fwd: statistics", err);
    if (!memory)
        return err->code;
    for (int first = 0, n; first < nshards; first += n) {
        double *part = memory;

        n = at_once(nshards - first);
        for (int i = 0; i < n; i++) {
            struct slab_shard s = { y[first + i].data };

            s.npixels = (unsigned)tensor_pixels(&y[first + i]);
            s.x_stride = y[first + i].stride;
            s.part = part;
            s.ret = stats[first + i];
            a.shard[i] = s;
            part += part_size(&y[first + i], a.slab, shape);
        }
        VEC_CALL(stats_launch, y[0].dtype, wide, dev, &a, n);
    }
    return checked("conv_fwd: statistics", err);
}

/* ---- the second pass of the backward: in place on da ---- */

struct apply_shard {
    void *da;
    const void *x;
    struct affine act;
    const float *mean, *invstd;
    const double *sums, *stats;
    unsigned npixels;
    int x_stride, da_stride;
};

struct apply_args {
    struct apply_shard shard[SHARDS_AT_ONCE];
    int c;
};

template <int W> struct apply_channels {
    struct vec_affine<W> act;
    float mean[W], invstd[W], mean_dy[W], mean_dyxhat[W];
};

template <bool FROZEN, int W> DEVICE_FN void apply_pixel(float (&da)[W], const float (&x)[W], const struct apply_channels<W> &b)
{
#pragma unroll
    for (int i = 0; i < W; i++) {
        float dy = norm_dy(da[i], x[i], b.act.scale[i], b.act.shift[i], b.act.slope[i]);

        da[i] = FROZEN ? b.act.scale[i] * dy
                       : norm_dx(dy, norm_xhat(x[i], b.mean[i], b.invstd[i]), b.act.scale[i], b.mean_dy[i], b.mean_dyxhat[i]);
    }
}

/* Means of dy and dy * xhat of the block's channels, [2][VEC_THREADS * W]: divisions of doubles, so each is done once a block. */
template <int W> DEVICE_FN void block_means(float *means, const struct apply_shard *s, int c)
{
    unsigned width = blockDim.x * W, threads = blockDim.x * blockDim.y;

    for (unsigned j = threadIdx.y * blockDim.x + threadIdx.x; j < 2 * width; j += threads) {
        unsigned which = j / width, k = blockIdx.y * width + j % width;

        if (k < (unsigned)c)
            means[which * VEC_THREADS * W + j % width] = (float)(s->sums[which * (unsigned)c + k] / s->stats[0]);
    }
    __syncthreads();
}

template <typename T, int W, bool FROZEN> DEVICE_FN void apply_run(const struct apply_shard *s, const struct apply_channels<W> &b, int k)
{
    size_t p = vec_pixel<APPLY_RUN>();

    for (int done = 0; done < APPLY_RUN; done += APPLY_AHEAD, p += APPLY_AHEAD * vec_step()) {
        pack<T, W> px[APPLY_AHEAD], pda[APPLY_AHEAD];

#pragma unroll
        for (unsigned i = 0; i < APPLY_AHEAD; i++) {
            size_t at = p + i * vec_step();

            if (at < s->npixels) {
                px[i] = vec_load<W>((const T *)s->x + at * s->x_stride + k);
                pda[i] = vec_load<W>((const T *)s->da + at * s->da_stride + k);
            }
        }
#pragma unroll
        for (unsigned i = 0; i < APPLY_AHEAD; i++) {
            size_t at = p + i * vec_step();
            float x[W], da[W];

            if (at >= s->npixels)
                return;
            vec_unpack(x, px[i]);
            vec_unpack(da, pda[i]);
            apply_pixel<FROZEN>(da, x, b);
            vec_store((T *)s->da + at * s->da_stride + k, da);
        }
    }
}

template <typename T, int W, bool FROZEN> static __global__ void __launch_bounds__(VEC_THREADS) apply_kernel(struct apply_args a)
{
    const struct apply_shard *s = &a.shard[blockIdx.z];
    int k = vec_channel<W>();
    struct apply_channels<W> b;

    if ((size_t)blockIdx.x * (blockDim.y * APPLY_RUN) >= s->npixels)
        return;
    if (!FROZEN) {
        SHARED(float, means, 2 * VEC_THREADS * W);

        block_means<W>(means, s, a.c);
        vec_channels(b.mean_dy, means, (int)threadIdx.x * W);
        vec_channels(b.mean_dyxhat, means, (VEC_THREADS + (int)threadIdx.x) * W);
    }
    if (k >= a.c)
        return;
    vec_affine_load(&b.act, &s->act, k);
    if (!FROZEN) {
        vec_channels(b.mean, s->mean, k);
        vec_channels(b.invstd, s->invstd, k);
    }
    apply_run<T, W, FROZEN>(s, b, k);
}

template <typename T, int W> static void apply_launch(struct device *dev, const struct apply_args *a, int n, bool frozen)
{
    size_t most = 0;
    struct vec_grid g;

    for (int i = 0; i < n; i++)
        most = a->shard[i].npixels > most ? a->shard[i].npixels : most;
    g = vec_grid(most, a->c, W, APPLY_RUN, n);
    if (frozen)
        CUDA_LAUNCH((apply_kernel<T, W, true>), g.grid, g.block, cuda_device(dev)->stream, *a);
    else
        CUDA_LAUNCH((apply_kernel<T, W, false>), g.grid, g.block, cuda_device(dev)->stream, *a);
}

int cuda_norm_bwd_apply(struct device *dev, struct tensor *da, const struct operand *x, const float *const *mean,
                        const float *const *invstd, const double *const *sums, const double *const *stats, int nshards, struct err *err)
{
    bool wide = wide_pair(x, da, nshards);
    struct apply_args a;

    check_shapes(x, da, nshards);
    a.c = da[0].c;
    for (int first = 0, n; first < nshards; first += n) {
        n = at_once(nshards - first);
        for (int i = 0; i < n; i++) {
            int v = first + i;
            struct apply_shard s = { da[v].data, x[v].x.data, x[v].act };

            s.npixels = (unsigned)tensor_pixels(&da[v]);
            s.x_stride = x[v].x.stride;
            s.da_stride = da[v].stride;
            if (sums) {
                s.mean = mean[v];
                s.invstd = invstd[v];
                s.sums = sums[v];
                s.stats = stats[v];
            }
            a.shard[i] = s;
        }
        VEC_CALL(apply_launch, da[0].dtype, wide, dev, &a, n, !sums);
    }
    return checked("norm_bwd_apply", err);
}
