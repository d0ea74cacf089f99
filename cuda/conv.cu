/* SPDX-License-Identifier: Apache-2.0 */ /* cuda/conv.cu - the convolution ops: groups of shards for the engine,
 * weights and bias in the element type of the activations, and the bias gradient with the bits of worker/cpu/conv.c. */
#include "cuda/engine.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/derived.h"
#include "cuda/flat.h"
#include "cuda/fold.h"

enum {
    BIAS_SLAB = 256, /* pixels summed in one fp32 chain */
    BIAS_AHEAD = 64  /* pixels loaded into registers while the chain waits: there are few chains, so waiting decides the time */
};

/* ---- inputs of convolutions besides the activations ---- */

static struct cuda_derived *derived_new(struct device *dev, struct param *w, struct err *err)
{
    struct cuda_derived *d = (struct cuda_derived *)calloc(1, sizeof *d);

    if (d)
        d->bf16 = cuda_alloc(dev, w->count * sizeof(bf16));
    if (!d || !d->bf16) {
        free(d);
        err_set(err, -ENOMEM, "out of GPU memory: %zu bytes for the bf16 copy of '%s'", w->count * sizeof(bf16), w->name);
        return NULL;
    }
    d->version = w->version - 1; /* stale */
    w->derived = d;
    return d;
}

/* The weights in the dtype of the activations. NULL: see *err. */
static const void *weights(struct device *dev, struct param *w, struct err *err)
{
    struct cuda_derived *d = cuda_derived(w);

    if (dev->dtype == DTYPE_F32)
        return w->data;
    if (!d)
        d = derived_new(dev, w, err);
    if (!d || d->version == w->version)
        return d ? d->bf16 : NULL;
    flat<bf16, float, false>(dev, (bf16 *)d->bf16, w->data, w->count);
    if (cuda_check(cudaPeekAtLastError(), "conv: weights to bf16", err) < 0)
        return NULL;
    d->version = w->version;
    return d->bf16;
}

void cuda_param_release(struct device *dev, struct param *p)
{
    struct cuda_derived *d = cuda_derived(p);

    if (!d)
        return;
    cuda_free(dev, d->bf16);
    free(d);
    p->derived = NULL;
}

/* The bias in that dtype. The engine has its own workspace, so scratch memory keeps the bias until the convolution is
 * queued. */
static int bias_in_dtype(struct device *dev, const void **ret, const float *bias, int k, struct err *err)
{
    *ret = bias;
    if (!bias || dev->dtype == DTYPE_F32)
        return 0;
    *ret = cuda_scratch(dev, (size_t)k * sizeof(bf16), "conv_fwd: bias", err);
    if (!*ret)
        return err->code;
    flat<bf16, float, false>(dev, (bf16 *)*ret, bias, (size_t)k);
    return cuda_check(cudaPeekAtLastError(), "conv_fwd: bias", err);
}

/* ---- shards that are one batch ---- */

static bool same_shape(const struct tensor *a, const struct tensor *b)
{
    return a->n == b->n && a->h == b->h && a->w == b->w && a->c == b->c && a->stride == b->stride;
}

/* True if b begins where a ends. Without memory only shapes count: shards of a value lie one after the other. */
static bool follows(const struct tensor *a, const struct tensor *b)
{
    size_t bytes = tensor_pixels(a) * (size_t)a->stride * dtype_bytes(a->dtype);

    return same_shape(a, b) && (!a->data || (const char *)a->data + bytes == (const char *)b->data);
}

/* The library's engines count the elements of a tensor in 31 bits. */
static bool countable(const struct tensor *t, int shards)
{
    return tensor_pixels(t) * (size_t)t->stride * (size_t)shards < (size_t)1 << 31;
}

struct conv_call {
    struct device *dev;
    enum conv_dir dir;
    const struct conv *cv;
    const struct param *w;
    const struct operand *in; /* x of forward and weight gradient */
    const struct tensor *x;   /* dx, or x if `in` is NULL */
    const struct tensor *y;   /* y or dy */
    int nshards;
    bool bias, add;
};

static const struct tensor *x_of(const struct conv_call *q, int v)
{
    return q->in ? &q->in[v].x : &q->x[v];
}

/* The number of shards from v on to compute together. In TIER_WORLD it is 1: the library could choose another algorithm
 * for another number. */
static int together(const struct conv_call *q, int v)
{
    int n = 1;

    if (cuda_device(q->dev)->tier == TIER_WORLD)
        return 1;
    while (v + n < q->nshards && follows(x_of(q, v + n - 1), x_of(q, v + n)) && follows(&q->y[v + n - 1], &q->y[v + n]) &&
           countable(x_of(q, v), n + 1) && countable(&q->y[v], n + 1))
        n++;
    return n;
}

/* Keys are compared as bytes, so padding must be zero. */
static struct conv_key key_of(const struct conv_call *q, int v, int shards)
{
    const struct tensor *x = x_of(q, v);
    struct conv_key key;

    memset(&key, 0, sizeof key);
    key.dir = q->dir;
    key.dtype = q->dev->dtype;
    key.precision = cuda_device(q->dev)->precision;
    key.tier = cuda_device(q->dev)->tier;
    key.n = x->n * shards;
    key.h = x->h;
    key.w = x->w;
    key.c = x->c;
    key.k = q->w->k;
    key.r = q->w->r;
    key.s = q->w->s;
    key.stride = q->cv->stride;
    key.pad = q->cv->pad;
    key.x_stride = x->stride;
    key.y_stride = q->y[v].stride;
    key.bias = q->bias;
    key.add = q->add;
    return key;
}

static void check_nothing_pends(const struct conv_call *q)
{
    for (int v = 0; v < q->nshards; v++)
        assert(!q->in || !q->in[v].act.scale); /* dev->pending is false, so layers apply pending operations first */
    (void)q;
}

static int engine_of(struct device *dev, struct engine **ret, struct err *err)
{
    struct cuda_device *d = cuda_device(dev);
    int rc = d->engine ? 0 : engine_open(d, &d->engine, err);

    *ret = d->engine;
    return rc;
}

/* ---- ops ---- */

int cuda_conv_fwd(struct device *dev, struct tensor *y, const struct operand *x, const struct conv *cv, struct param *w, const float *bias,
                  double *const *stats, int nshards, struct err *err)
{
    struct conv_call q = { dev, CONV_FWD, cv, w, x, NULL, y, nshards, bias != NULL, false };
    struct conv_args args = {};
    struct engine *engine;
    int rc = engine_of(dev, &engine, err);

    check_nothing_pends(&q);
    if (rc < 0)
        return rc;
    args.w = weights(dev, w, err);
    if (!args.w)
        return err->code;
    rc = bias_in_dtype(dev, &args.bias, bias, w->k, err);
    for (int v = 0, n; v < nshards && rc >= 0; v += n) {
        struct conv_key key;

        n = together(&q, v);
        key = key_of(&q, v, n);
        args.x = x[v].x.data;
        args.y = y[v].data;
        rc = engine_conv(engine, &key, &args, err);
    }
    return rc < 0 || !stats ? rc : cuda_norm_stats(dev, stats, y, nshards, err);
}

int cuda_conv_bwd_data(struct device *dev, struct tensor *dx, float beta, const struct tensor *dy, const struct conv *cv, struct param *w,
                       int nshards, struct err *err)
{
    struct conv_call q = { dev, CONV_BWD_DATA, cv, w, NULL, dx, dy, nshards, false, beta != 0.0f };
    struct conv_args args = {};
    struct engine *engine;
    int rc = engine_of(dev, &engine, err);

    check_nothing_pends(&q);
    assert(beta == 0.0f || beta == 1.0f);
    if (rc < 0)
        return rc;
    args.w = weights(dev, w, err);
    if (!args.w)
        return err->code;
    for (int v = 0, n; v < nshards && rc >= 0; v += n) {
        struct conv_key key;

        n = together(&q, v);
        key = key_of(&q, v, n);
        args.x = dx[v].data;
        args.y = dy[v].data;
        rc = engine_conv(engine, &key, &args, err);
    }
    return rc;
}

/* True if all shards have the same destination. */
static bool one_dest(struct device *dev, float *const *dst, int nshards)
{
    bool one = nshards > 1 && dst[0] == dst[1];

    assert(!one || dev->one_dest);
    (void)dev;
    return one;
}

int cuda_conv_bwd_weights(struct device *dev, float *const *dw, float beta, const struct operand *x, const struct tensor *dy,
                          const struct conv *cv, const struct param *w, int nshards, struct err *err)
{
    struct conv_call q = { dev, CONV_BWD_WEIGHTS, cv, w, x, NULL, dy, nshards, false, false };
    bool one = one_dest(dev, dw, nshards);
    struct conv_args args = {};
    struct engine *engine;
    int rc = engine_of(dev, &engine, err);

    check_nothing_pends(&q);
    assert(beta == 0.0f || beta == 1.0f);
    for (int v = 0, n; v < nshards && rc >= 0; v += n) {
        struct conv_key key;

        n = one ? together(&q, v) : 1;
        key = key_of(&q, v, n);
        args.add = beta != 0.0f || (one && v > 0);
        args.x = x[v].x.data;
        args.y = dy[v].data;
        args.dw = dw[v];
        rc = engine_conv(engine, &key, &args, err);
    }
    return rc;
}

static int prepare(struct engine *e, struct conv_call *q, enum conv_dir dir, int v, int shards, struct err *err)
{
    struct conv_key key;

    q->dir = dir;
    key = key_of(q, v, shards);
    key.bias = q->bias && dir == CONV_FWD;
    key.add = q->add && dir == CONV_BWD_DATA;
    return engine_prepare(e, &key, err);
}

static int plan_all(struct conv_call *q, enum conv_passes passes, struct err *err)
{
    struct engine *e;
    int rc = engine_of(q->dev, &e, err);

    for (int v = 0, n; v < q->nshards && rc >= 0; v += n) {
        n = together(q, v);
        rc = prepare(e, q, CONV_FWD, v, n, err);
        if (rc >= 0 && passes >= CONV_WEIGHTS)
            rc = prepare(e, q, CONV_BWD_WEIGHTS, v, n, err);
        if (rc >= 0 && passes >= CONV_DATA)
            rc = prepare(e, q, CONV_BWD_DATA, v, n, err);
    }
    return rc;
}

int cuda_plan_conv(struct device *dev, const struct tensor *x, const struct conv *cv, const struct param *w, bool bias,
                   enum conv_passes passes, int nshards, struct err *err)
{
    struct tensor *y = (struct tensor *)malloc((size_t)nshards * sizeof *y);
    struct conv_call q = { dev, CONV_FWD, cv, w, NULL, x, y, nshards, bias, passes == CONV_DATA_ADD };
    int rc;

    if (!y)
        return err_set(err, -ENOMEM, "out of memory: plans of %d shards", nshards);
    for (int v = 0; v < nshards; v++) {
        y[v] = x[v];
        y[v].h = (x[v].h + 2 * cv->pad - w->r) / cv->stride + 1;
        y[v].w = (x[v].w + 2 * cv->pad - w->s) / cv->stride + 1;
        y[v].c = w->k;
        y[v].stride = device_stride(dev, w->k);
    }
    check_nothing_pends(&q);
    rc = plan_all(&q, passes, err);
    free(y);
    return rc;
}

int cuda_plan_ready(struct device *dev, struct plan_readiness *ret, struct err *err)
{
    struct engine *e;
    int rc = engine_of(dev, &e, err);

    if (rc >= 0)
        engine_ready(e, ret);
    return rc;
}

int cuda_plan_begin(struct device *dev, int keep, struct err *err)
{
    struct engine *e = cuda_device(dev)->engine;

    return e ? engine_begin(e, keep, err) : 0;
}

int cuda_plan_text(struct device *dev, char **ret, struct err *err)
{
    struct engine *e = cuda_device(dev)->engine;
    char *text = e ? engine_plans(e) : strdup("");

    if (!text)
        return err_set(err, -ENOMEM, "out of memory: the list of plans");
    *ret = text;
    return 0;
}

/* ---- bias: slabs of pixels are chains, which are added pairwise ---- */

struct bias_shard {
    const void *dy;
    float *db;
    float *part; /* [slabs][c] */
    unsigned npixels;
    int stride;
};

struct bias_args {
    struct bias_shard shard[SHARDS_AT_ONCE];
    int nshards, c;
    bool one; /* all shards have the same destination, which gets their sum */
    float beta;
};

static __host__ __device__ unsigned bias_slabs(unsigned npixels)
{
    return (npixels + BIAS_SLAB - 1) / BIAS_SLAB;
}

template <typename T, int W> static __global__ void __launch_bounds__(VEC_THREADS) bias_slabs_kernel(struct bias_args a)
{
    constexpr unsigned AHEAD = BIAS_AHEAD / (sizeof(pack<T, W>) > 4 ? (int)sizeof(pack<T, W>) / 4 : 1);
    const struct bias_shard *s = &a.shard[blockIdx.z];
    unsigned slab = blockIdx.x * blockDim.y + threadIdx.y, from = slab * BIAS_SLAB, left;
    int k = vec_channel<W>();
    float sum[W] = {};
    const T *dy;

    if (k >= a.c || from >= s->npixels)
        return;
    dy = (const T *)s->dy + (size_t)from * s->stride + k;
    left = vec_least(s->npixels - from, BIAS_SLAB);
    for (; left > 0; left -= vec_least(left, AHEAD), dy += (size_t)AHEAD * s->stride) {
        pack<T, W> p[AHEAD];

#pragma unroll
        for (unsigned i = 0; i < AHEAD; i++)
            if (i < left)
                p[i] = vec_load<W>(dy + (size_t)i * s->stride);
#pragma unroll
        for (unsigned i = 0; i < AHEAD; i++) {
            float f[W];

            if (i >= left)
                break;
            vec_unpack(f, p[i]);
#pragma unroll
            for (int l = 0; l < W; l++)
                sum[l] += f[l];
        }
    }
    vec_store(s->part + (size_t)slab * a.c + k, sum);
}

/* The tree over one shard's slabs of column k, computed by the threads of row 0. */
DEVICE_FN float bias_sum(float *runs, const struct bias_shard *s, unsigned k, unsigned c)
{
    unsigned n = bias_slabs(s->npixels), run = fold_run(n), first = threadIdx.y * run;
    float sum = 0.0f;

    if (k < c && first < n)
        sum = fold_rows<float>(s->part + (size_t)first * c + k, c, vec_least(n - first, run));
    return n > 0 ? fold_block(runs, sum, n) : 0.0f;
}

static __global__ void __launch_bounds__(FOLD_THREADS) bias_fold_kernel(struct bias_args a)
{
    SHARED(float, runs, FOLD_THREADS);
    unsigned k = blockIdx.x * FOLD_WIDTH + threadIdx.x, first = blockIdx.y;
    float *db = a.shard[first].db, sum = bias_sum(runs, &a.shard[first], k, (unsigned)a.c);

    for (int v = 1; a.one && v < a.nshards; v++) {
        __syncthreads();
        sum += bias_sum(runs, &a.shard[v], k, (unsigned)a.c);
    }
    if (k < (unsigned)a.c && threadIdx.y == 0)
        db[k] = act_store(a.beta, &db[k], sum);
}

template <typename T, int W> static void bias_launch(struct device *dev, const struct bias_args *a)
{
    unsigned most = 0;
    struct vec_grid g;

    for (int i = 0; i < a->nshards; i++)
        most = a->shard[i].npixels > most ? a->shard[i].npixels : most;
    g = vec_grid(bias_slabs(most), a->c, W, 1, a->nshards);
    CUDA_LAUNCH((bias_slabs_kernel<T, W>), g.grid, g.block, cuda_device(dev)->stream, *a);
    CUDA_LAUNCH(bias_fold_kernel, dim3(cuda_blocks((size_t)a->c, FOLD_WIDTH), a->one ? 1u : (unsigned)a->nshards),
                dim3(FOLD_WIDTH, FOLD_RUNS), cuda_device(dev)->stream, *a);
}

/* Shards [first, first + n) and their parts of `memory`. */
static void bias_gather(struct bias_args *a, float *memory, float *const *db, const struct tensor *dy, int first, int nshards)
{
    a->nshards = nshards - first < SHARDS_AT_ONCE ? nshards - first : SHARDS_AT_ONCE;
    for (int i = 0; i < a->nshards; i++) {
        const struct tensor *t = &dy[first + i];
        struct bias_shard s = { t->data, db[first + i], memory, (unsigned)tensor_pixels(t), t->stride };

        a->shard[i] = s;
        memory += (size_t)bias_slabs(s.npixels) * (size_t)a->c;
    }
}

int cuda_conv_bwd_bias(struct device *dev, float *const *db, float beta, const struct tensor *dy, int nshards, struct err *err)
{
    size_t floats = 0;
    bool wide = true;
    struct bias_args a;
    float *memory;

    a.c = dy[0].c;
    a.one = one_dest(dev, db, nshards);
    a.beta = beta;
    for (int v = 0; v < nshards; v++) {
        assert(tensor_pixels(&dy[v]) < (size_t)1 << 31);
        wide = wide && vec_fits(&dy[v], vec_width(dy[v].dtype));
        floats += (size_t)bias_slabs((unsigned)tensor_pixels(&dy[v])) * (size_t)a.c;
    }
    memory = (float *)cuda_scratch(dev, floats * sizeof(float), "conv_bwd_bias", err);
    if (!memory)
        return err->code;
    for (int first = 0; first < nshards; first += SHARDS_AT_ONCE) {
        bias_gather(&a, memory, db, dy, first, nshards);
        VEC_CALL(bias_launch, dy[0].dtype, wide, dev, &a);
        a.beta = a.one ? 1.0f : beta;
    }
    return cuda_check(cudaPeekAtLastError(), "conv_bwd_bias", err);
}
