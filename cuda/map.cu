/* SPDX-License-Identifier: Apache-2.0 */ /* cuda/map.cu - activations, the sum of two values, and change of element
 * type, over strided tensors. fp32 gives the bits of worker/cpu/map.c. Dense tensors without parameters per channel are
 * rows of one vector, so any number of channels is fast. */
#include "cuda/vec.h"
#include "worker/kernels/philox.h"

#include <assert.h>

enum {
    RUN = 8,  /* pixels per thread */
    AHEAD = 4 /* pixels loaded at once */
};

/* How a kernel uses its operands a and b. */
enum {
    PENDING_A = 1,
    PENDING_B = 2,
    READ_B = 4,   /* b exists */
    READ_DST = 8, /* beta is not 0 */
    GRAD = 16     /* b is the output, and the result is a times its slope; otherwise the sum of a and b, or the activation of a */
};

struct act_shard {
    void *dst;
    const void *a, *b;
    struct affine pending_a, pending_b;
    size_t npixels;
    int dst_stride, a_stride, b_stride;
};

struct act_args {
    struct act_shard shard[SHARDS_AT_ONCE];
    enum act_kind kind;
    float beta;
    int c;
};

/* ---- kernels ---- */

/* The curved kinds need much code. They go one number at a time, since arithmetic limits them, not memory. */
static bool is_curved(enum act_kind kind)
{
    return kind == ACT_LOGISTIC || kind == ACT_TANH || kind == ACT_ELU;
}

template <int W> DEVICE_FN void values(enum act_kind kind, float (&x)[W])
{
#define CASE(k)                        \
    case k:                            \
        for (int i = 0; i < W; i++)    \
            x[i] = act_value(k, x[i]); \
        break;
    switch (kind) {
        CASE(ACT_LEAKY)
        CASE(ACT_RELU)
    case ACT_LOGISTIC:
    case ACT_TANH:
    case ACT_ELU:
        if (W == 1)
            x[0] = act_value(kind, x[0]);
        break;
    case ACT_LINEAR:
        break;
    }
#undef CASE
}

template <int W> DEVICE_FN void gradients(enum act_kind kind, float (&dy)[W], const float (&y)[W])
{
#define CASE(k)                               \
    case k:                                   \
        for (int i = 0; i < W; i++)           \
            dy[i] = act_grad(k, dy[i], y[i]); \
        break;
    switch (kind) {
        CASE(ACT_LEAKY)
        CASE(ACT_RELU)
        CASE(ACT_LOGISTIC)
        CASE(ACT_TANH)
        CASE(ACT_ELU)
    case ACT_LINEAR:
        break;
    }
#undef CASE
}

template <int W> struct act_channels {
    struct vec_affine<W> a, b;
};

/* Computes the result in a. */
template <int OP, int W>
DEVICE_FN void compute(float (&a)[W], float (&b)[W], const float (&old)[W], const struct act_channels<W> &p, const struct act_args *args)
{
    if (OP & PENDING_A)
        vec_pending(a, p.a);
    if (OP & PENDING_B)
        vec_pending(b, p.b);
    if ((OP & GRAD) && (OP & READ_B))
        gradients(args->kind, a, b);
    if (!(OP & GRAD) && !(OP & READ_B))
        values(args->kind, a);
#pragma unroll
    for (int i = 0; i < W; i++) {
        if (!(OP & GRAD) && (OP & READ_B))
            a[i] += b[i];
        if (OP & READ_DST)
            a[i] = act_store(args->beta, &old[i], a[i]);
    }
}

/* Results have type T, operands type S. */
template <typename T, typename S, int W, int OP> static __global__ void __launch_bounds__(VEC_THREADS, 2) act_kernel(struct act_args args)
{
    const struct act_shard *s = &args.shard[vec_shard_back()];
    int k = vec_channel<W>();
    size_t p = vec_pixel_back<RUN>();
    struct act_channels<W> channels;

    if (k >= args.c || p >= s->npixels)
        return;
    if (OP & PENDING_A)
        vec_affine_load(&channels.a, &s->pending_a, k);
    if (OP & PENDING_B)
        vec_affine_load(&channels.b, &s->pending_b, k);
    for (int done = 0; done < RUN; done += AHEAD, p += AHEAD * vec_step()) {
        pack<S, W> pa[AHEAD], pb[AHEAD];
        pack<T, W> pold[AHEAD];

#pragma unroll
        for (unsigned i = 0; i < AHEAD; i++) {
            size_t at = p + i * vec_step();

            if (at >= s->npixels)
                break;
            pa[i] = vec_load<W>((const S *)s->a + at * s->a_stride + k);
            if (OP & READ_B)
                pb[i] = vec_load<W>((const S *)s->b + at * s->b_stride + k);
            if (OP & READ_DST)
                pold[i] = vec_load<W>((const T *)s->dst + at * s->dst_stride + k);
        }
#pragma unroll
        for (unsigned i = 0; i < AHEAD; i++) {
            size_t at = p + i * vec_step();
            float a[W], b[W], old[W];

            if (at >= s->npixels)
                return;
            vec_unpack(a, pa[i]);
            if (OP & READ_B)
                vec_unpack(b, pb[i]);
            if (OP & READ_DST)
                vec_unpack(old, pold[i]);
            compute<OP>(a, b, old, channels, &args);
            vec_store((T *)s->dst + at * s->dst_stride + k, a);
        }
    }
}

/* ---- the shards of an op ---- */

/* One op over all shards, with operands (a, b) or plain tensors (ta, tb). An unused one is NULL. */
struct act_op {
    const char *what;
    const struct tensor *dst, *ta, *tb;
    const struct operand *a, *b;
    enum act_kind kind;
    float beta;
};

/* The tensors of one shard; data is NULL for an unused one. */
struct views {
    struct tensor dst;
    struct operand a, b;
};

static struct views views(const struct act_op *op, int v)
{
    struct views r = {};

    r.dst = op->dst[v];
    if (op->a)
        r.a = op->a[v];
    if (op->ta)
        r.a.x = op->ta[v];
    if (op->b)
        r.b = op->b[v];
    if (op->tb)
        r.b.x = op->tb[v];
    return r;
}

static bool is_dense(const struct tensor *t)
{
    return !t->data || t->stride == t->c;
}

/* True if the numbers can be read w at a time. in_rows: channel by channel; otherwise all as one row. */
static bool is_wide(const struct tensor *t, int w, bool in_rows)
{
    struct tensor row = *t;

    if (!in_rows)
        row.c = row.stride = tensor_count(t) % (size_t)w == 0 ? w : 1;
    return !t->data || vec_fits(&row, w);
}

/* The same for all shards of an op. */
struct act_way {
    bool in_rows, wide;
};

static struct act_way way_of(const struct act_op *op, int w, int nshards)
{
    struct act_way way = { false, true };

    for (int v = 0; v < nshards; v++) {
        struct views s = views(op, v);

        if (s.a.act.scale || s.b.act.scale || !is_dense(&s.dst) || !is_dense(&s.a.x) || !is_dense(&s.b.x))
            way.in_rows = true;
    }
    for (int v = 0; v < nshards; v++) {
        struct views s = views(op, v);

        way.wide = way.wide && is_wide(&s.dst, w, way.in_rows) && is_wide(&s.a.x, w, way.in_rows) && is_wide(&s.b.x, w, way.in_rows);
    }
    return way;
}

/* c: number of channels for the kernel. */
static struct act_shard make_shard(const struct views *v, struct act_way way, int c)
{
    struct act_shard s = {};

    s.dst = v->dst.data;
    s.a = v->a.x.data;
    s.b = v->b.x.data;
    s.pending_a = v->a.act;
    s.pending_b = v->b.act;
    s.npixels = way.in_rows ? tensor_pixels(&v->dst) : tensor_count(&v->dst) / (size_t)c;
    s.dst_stride = way.in_rows ? v->dst.stride : c;
    s.a_stride = way.in_rows ? v->a.x.stride : c;
    s.b_stride = way.in_rows ? v->b.x.stride : c;
    return s;
}

/* Collects the shards of one launch. Returns their number. */
static int gather(struct act_args *a, const struct act_op *op, int first, int nshards, struct act_way way, int w)
{
    int n = nshards - first < SHARDS_AT_ONCE ? nshards - first : SHARDS_AT_ONCE;

    a->kind = op->kind;
    a->beta = op->beta;
    a->c = way.in_rows ? op->dst[0].c : way.wide ? w : 1;
    for (int i = 0; i < n; i++) {
        struct views v = views(op, first + i);

        a->shard[i] = make_shard(&v, way, a->c);
    }
    return n;
}

static struct vec_grid grid_of(const struct act_args *a, int n, int w)
{
    size_t most = 0;

    for (int i = 0; i < n; i++)
        most = a->shard[i].npixels > most ? a->shard[i].npixels : most;
    return vec_grid(most, a->c, w, RUN, n);
}

/* ---- ops ---- */

/* Makes `op` a constant of the kernel. */
template <typename T, int W> static void launch(struct device *dev, const struct act_args *a, int n, int op)
{
    struct vec_grid g = grid_of(a, n, W);

#define CASE(flags)                                                                                 \
    case flags:                                                                                     \
        CUDA_LAUNCH((act_kernel<T, T, W, (flags)>), g.grid, g.block, cuda_device(dev)->stream, *a); \
        break;
    switch (op) {
        CASE(0)
        CASE(PENDING_A)
        CASE(READ_B)
        CASE(READ_B | PENDING_A)
        CASE(READ_B | PENDING_B)
        CASE(READ_B | PENDING_A | PENDING_B)
        CASE(GRAD)
        CASE(GRAD | READ_B)
        CASE(GRAD | READ_DST)
        CASE(GRAD | READ_B | READ_DST)
    }
#undef CASE
}

static int run(struct device *dev, const struct act_op *op, int flags, int nshards, struct err *err)
{
    int w = vec_width(op->dst[0].dtype);
    struct act_way way = way_of(op, w, nshards);
    struct act_args a;

    if (!(flags & GRAD) && is_curved(op->kind))
        way.wide = false;
    for (int first = 0, n; first < nshards; first += n) {
        n = gather(&a, op, first, nshards, way, w);
        VEC_CALL(launch, op->dst[0].dtype, way.wide, dev, &a, n, flags);
    }
    return cuda_check(cudaPeekAtLastError(), op->what, err);
}

/* Returns flag if the shards have a pending operation: all have one, or all have none. */
static int pending(const struct operand *x, int flag, int nshards)
{
    for (int v = 0; v < nshards; v++)
        assert(!x[v].act.scale == !x[0].act.scale);
    (void)nshards;
    return x[0].act.scale ? flag : 0;
}

int cuda_map_act_fwd(struct device *dev, enum act_kind kind, struct tensor *y, const struct operand *x, int nshards, struct err *err)
{
    struct act_op op = {};

    op.what = "act_fwd";
    op.dst = y;
    op.a = x;
    op.kind = kind;
    return run(dev, &op, pending(x, PENDING_A, nshards), nshards, err);
}

int cuda_map_act_bwd(struct device *dev, enum act_kind kind, struct tensor *dx, float beta, const struct tensor *dy, const struct tensor *y,
                     int nshards, struct err *err)
{
    struct act_op op = {};

    op.what = "act_bwd";
    op.dst = dx;
    op.ta = dy;
    op.tb = kind == ACT_LINEAR ? NULL : y;
    op.kind = kind;
    op.beta = beta;
    return run(dev, &op, GRAD | (op.tb ? READ_B : 0) | (beta != 0.0f ? READ_DST : 0), nshards, err);
}

int cuda_map_add_fwd(struct device *dev, struct tensor *y, const struct operand *a, const struct operand *b, int nshards, struct err *err)
{
    struct act_op op = {};

    op.what = "add_fwd";
    op.dst = y;
    op.a = a;
    op.b = b;
    return run(dev, &op, READ_B | pending(a, PENDING_A, nshards) | pending(b, PENDING_B, nshards), nshards, err);
}

// ---- dropout: a thread owns a number ----

enum { DROPOUT_THREADS = 256 };

struct dropout_shard {
    const void *src;
    void *dst;
    struct affine act;
    struct philox_key key; /* key of the image */
    size_t count;
    int src_stride, dst_stride;
};

struct dropout_args {
    struct dropout_shard shard[SHARDS_AT_ONCE];
    float rate, beta;
    int c;
};

template <typename T> static __global__ void __launch_bounds__(DROPOUT_THREADS) dropout_kernel(const struct dropout_args a)
{
    const struct dropout_shard *s = &a.shard[blockIdx.y];
    size_t i = (size_t)blockIdx.x * DROPOUT_THREADS + threadIdx.x, pixel = i / (size_t)a.c;
    int k = (int)(i % (size_t)a.c);
    float factor[4], x, old;
    T *dst;

    if (i >= s->count)
        return;
    philox_dropout(&s->key, i / 4, a.rate, factor);
    x = to_float(((const T *)s->src)[pixel * (size_t)s->src_stride + k]);
    if (s->act.scale)
        x = act_pending(x, s->act.scale[k], s->act.shift[k], s->act.slope[k]);
    dst = (T *)s->dst + pixel * (size_t)s->dst_stride + k;
    old = a.beta != 0.0f ? to_float(*dst) : 0.0f;
    from_float(dst, act_store(a.beta, &old, x * factor[i % 4]));
}

/* Images from `first` on of all local shards, at most SHARDS_AT_ONCE; each is a shard of the launch. Returns their
 * number. */
static int dropout_images(struct dropout_args *a, const struct philox_key *keys, const struct tensor *y, const struct operand *x,
                          int nshards, int first)
{
    int n = 0, image = 0;

    for (int v = 0; v < nshards; v++)
        for (int i = 0; i < y[v].n; i++, image++) {
            size_t pixels = (size_t)y[v].h * (size_t)y[v].w, bytes = dtype_bytes(y[v].dtype);
            struct dropout_shard *s = &a->shard[n];

            if (image < first || n == SHARDS_AT_ONCE)
                continue;
            s->src = (const char *)x[v].x.data + (size_t)i * pixels * (size_t)x[v].x.stride * bytes;
            s->dst = (char *)y[v].data + (size_t)i * pixels * (size_t)y[v].stride * bytes;
            s->act = x[v].act;
            s->key = keys[image];
            s->count = pixels * (size_t)y[v].c;
            s->src_stride = x[v].x.stride;
            s->dst_stride = y[v].stride;
            n++;
        }
    return n;
}

int cuda_map_dropout(struct device *dev, float rate, const struct philox_key *keys, struct tensor *y, float beta, const struct operand *x,
                     int nshards, struct err *err)
{
    struct dropout_args a;
    int n;

    memset(&a, 0, sizeof(a));
    a.rate = rate;
    a.beta = beta;
    a.c = y[0].c;
    for (int first = 0; (n = dropout_images(&a, keys, y, x, nshards, first)) > 0; first += n) {
        size_t most = 0;

        for (int i = 0; i < n; i++)
            most = a.shard[i].count > most ? a.shard[i].count : most;
        dim3 grid(cuda_blocks(most, DROPOUT_THREADS), (unsigned)n, 1), block(DROPOUT_THREADS, 1, 1);
        if (y[0].dtype == DTYPE_BF16)
            CUDA_LAUNCH((dropout_kernel<bf16>), grid, block, cuda_device(dev)->stream, a);
        else
            CUDA_LAUNCH((dropout_kernel<float>), grid, block, cuda_device(dev)->stream, a);
    }
    return cuda_check(cudaPeekAtLastError(), "dropout", err);
}

// ---- casts ----

template <typename T, typename S> static void launch_cast(struct device *dev, const struct act_args *a, int n, bool wide)
{
    struct vec_grid g = grid_of(a, n, wide ? VEC_WIDTH(bf16) : 1);

    if (wide)
        CUDA_LAUNCH((act_kernel<T, S, VEC_WIDTH(bf16), 0>), g.grid, g.block, cuda_device(dev)->stream, *a);
    else
        CUDA_LAUNCH((act_kernel<T, S, 1, 0>), g.grid, g.block, cuda_device(dev)->stream, *a);
}

int cuda_map_cast(struct device *dev, struct tensor *y, const struct tensor *x, int nshards, struct err *err)
{
    struct act_op op = {};
    struct act_way way;
    struct act_args a;

    op.what = "cast";
    op.dst = y;
    op.ta = x;
    if (x[0].dtype == y[0].dtype)
        return run(dev, &op, 0, nshards, err);
    way = way_of(&op, VEC_WIDTH(bf16), nshards);
    for (int first = 0, n; first < nshards; first += n) {
        n = gather(&a, &op, first, nshards, way, VEC_WIDTH(bf16));
        if (y[0].dtype == DTYPE_BF16)
            launch_cast<bf16, float>(dev, &a, n, way.wide);
        else
            launch_cast<float, bf16>(dev, &a, n, way.wide);
    }
    return cuda_check(cudaPeekAtLastError(), "cast", err);
}
