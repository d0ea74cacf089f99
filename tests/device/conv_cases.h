/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/conv_cases.h - convolutions of every kind, their results on a
 * device, and the plain definition in double precision that they are compared with. For test_conv.c (the CPU's builds:
 * equal bits) and test_conv_gpu.c. */
#pragma once
#include "tests/device/bf16.h"

#include <math.h>

enum { MAX_SHARDS = 4 };

enum { PENDING = 1, SLICE = 2, UNBIASED = 4 };

struct conv_case {
    int flags;
    int c, k, size, stride, pad;
    int nshards;
    struct {
        int n, h, w; /* inputs */
    } shard[MAX_SHARDS];
};

#define ONE(n_, h_, w_) \
    1,                  \
    {                   \
        {               \
            n_, h_, w_  \
        }               \
    }
#define TWO(n_, h_, w_) \
    2,                  \
    {                   \
        { n_, h_, w_ }, \
        {               \
            n_, h_, w_  \
        }               \
    }
#define FOUR(n_, h_, w_)                                \
    4,                                                  \
    {                                                   \
        { n_, h_, w_ }, { n_, h_, w_ }, { n_, h_, w_ }, \
        {                                               \
            n_, h_, w_                                  \
        }                                               \
    }

static const struct conv_case cases[] = {
    /* Winograd: tiles of 4, of 5, of both; borders; odd channels; small images */
    { 0, 16, 16, 3, 1, 1, ONE(1, 8, 8) },
    { PENDING, 16, 32, 3, 1, 1, TWO(1, 16, 12) },
    { 0, 16, 16, 3, 1, 1, ONE(2, 13, 13) },
    { PENDING | SLICE, 48, 40, 3, 1, 1, TWO(1, 13, 7) },
    { PENDING, 24, 17, 3, 1, 1, ONE(1, 10, 5) },
    { 0, 32, 64, 3, 1, 0, ONE(1, 6, 9) },
    { PENDING, 19, 33, 3, 1, 2, ONE(1, 5, 5) },
    { 0, 16, 16, 3, 1, 3, ONE(1, 4, 4) },
    { PENDING, 16, 16, 3, 1, 1, ONE(1, 3, 290) },
    { PENDING | SLICE, 16, 16, 3, 1, 1, 3, { { 1, 9, 6 }, { 1, 9, 6 }, { 2, 4, 14 } } },
    { PENDING, 160, 128, 3, 1, 1, FOUR(1, 13, 13) },
    { SLICE, 224, 130, 3, 1, 1, ONE(2, 9, 13) },
    { 0, 352, 352, 3, 1, 1, ONE(1, 5, 5) },
    { 0, 16, 16, 3, 1, 1, TWO(3, 40, 44) },
    /* rows */
    { 0, 3, 16, 3, 1, 1, TWO(1, 20, 20) },
    { 0, 3, 16, 3, 1, 1, ONE(1, 40, 150) },
    { 0, 3, 16, 3, 1, 1, ONE(1, 14, 151) },
    { 0, 3, 20, 7, 2, 3, ONE(1, 23, 30) },
    { PENDING, 16, 32, 3, 2, 1, TWO(1, 13, 12) },
    { PENDING | SLICE, 40, 24, 3, 2, 1, ONE(2, 7, 7) },
    { PENDING, 16, 16, 3, 1, 1, ONE(2, 1, 1) },
    { 0, 16, 24, 3, 1, 1, ONE(1, 2, 2) },
    { PENDING, 64, 255, 1, 1, 0, ONE(1, 13, 13) },
    { SLICE, 255, 24, 1, 1, 0, TWO(1, 5, 7) },
    { PENDING | SLICE, 96, 64, 1, 1, 0, FOUR(2, 13, 13) },
    { PENDING, 20, 12, 1, 2, 0, ONE(2, 7, 9) },
    /* pixels that are read in place, or that lie too far apart for it */
    { SLICE, 36, 64, 1, 2, 0, TWO(2, 8, 9) },
    { 0, 24, 48, 1, 1, 0, ONE(2, 9, 31) },
    { 0, 512, 16, 1, 2, 0, ONE(1, 5, 6) },
    { 0, 1024, 40, 1, 1, 0, ONE(1, 1, 19) },
    /* chains so long, over so many rows, that they are summed in pieces; rows of taps, some of them together; a partial
     * piece at the end */
    { PENDING, 200, 48, 1, 1, 0, ONE(1, 1, 125) },
    { 0, 36, 40, 3, 2, 1, TWO(1, 5, 230) },
    { 0, 8, 40, 5, 1, 2, ONE(1, 6, 30) },
    { 0, 16, 32, 1, 1, 1, ONE(1, 4, 6) },
    { PENDING, 5, 7, 5, 3, 2, ONE(1, 11, 14) },
    { 0, 4, 6, 2, 4, 0, ONE(1, 11, 9) },
    { 0, 16, 16, 2, 4, 0, TWO(1, 24, 128) },
    { PENDING, 1, 1, 3, 1, 1, ONE(1, 6, 6) },
    { PENDING | SLICE, 6, 5, 4, 1, 0, 2, { { 2, 6, 9 }, { 1, 4, 4 } } },
};

static int out_size(const struct conv_case *t, int in)
{
    return (in + 2 * t->pad - t->size) / t->stride + 1;
}

/* ---- faults: printed at once and counted, so that one run on a device reports every case ---- */
static struct {
    int n;
    char of[160]; /* the current device, tier and case */
} faults;

__attribute__((format(printf, 1, 2))) static void fault(const char *fmt, ...)
{
    char text[512];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    faults.n++;
    print_message("FAULT %s: %s\n", faults.of, text);
}

/* Fails the running test if there were faults. */
static void no_faults(void)
{
    int n = faults.n;

    faults.n = 0;
    if (n > 0)
        fail_msg("%d faults, a line each above", n);
}

static void looking_at(const struct device *dev, const char *tier, const struct conv_case *t)
{
    snprintf(faults.of, sizeof faults.of, "%s %s %s, %dx%d stride %d pad %d, %d to %d channels, %d x [%d,%d,%d]", dev->ops->name,
             dev->dtype == DTYPE_BF16 ? "bf16" : "fp32", tier, t->size, t->size, t->stride, t->pad, t->c, t->k, t->nshards, t->shard[0].n,
             t->shard[0].h, t->shard[0].w);
}

#define DONE(call)                           \
    do {                                     \
        struct err err = { 0 };              \
        if ((call) < 0)                      \
            fault("%s: %s", #call, err.msg); \
    } while (0)

/* ---- inputs and results on the host ---- */
struct shard_data {
    struct tensor x, y; /* shapes; data of y is the gradient dy, inputs both */
    float *scale, *shift, *slope;
    float *dx0, *dw0, *db0; /* beta = 1 adds to these */
};
struct plain {
    double *y, *dx, *dw, *db; /* dense */
};
struct data {
    const struct conv_case *t;
    enum dtype dtype;    /* of activations; weights and bias are such as it holds */
    enum dtype dw_dtype; /* weight gradients may have been rounded to this before they were widened to fp32 */
    float *w, *bias;
    size_t w_count, out_bytes;
    struct shard_data s[MAX_SHARDS];
    struct plain plain[MAX_SHARDS]; /* made when it is first asked for */
    bool one_by_one;                /* runs shard by shard, with weights that had other values before */
};

static size_t floats_of(const struct tensor *t)
{
    return tensor_pixels(t) * (size_t)t->stride;
}

static struct tensor shape(int n, int h, int w, int c, bool slice, float *data)
{
    struct tensor t = tensor_f32(data, n, h, w, c);

    t.stride = slice ? c + 5 : c;
    return t;
}

/* The results of a shard, one after the other: y, dx, dx (beta 1), dw, dw (beta 1), db, db (beta 1), stats. */
static size_t result_bytes(const struct data *d, int v)
{
    const struct shard_data *s = &d->s[v];

    return (floats_of(&s->y) + 2 * floats_of(&s->x) + 2 * d->w_count + 2 * (size_t)d->t->k) * sizeof(float) +
           (2 * (size_t)d->t->k + 1) * sizeof(double);
}

static void make(const struct conv_case *t, enum dtype dtype, struct data *d)
{
    *d = (struct data){ .t = t, .dtype = dtype, .dw_dtype = DTYPE_F32, .w_count = (size_t)(t->k * t->c * t->size * t->size) };
    d->w = numbers_of(dtype, d->w_count, 1, -1.0f, 1.0f);
    d->bias = t->flags & UNBIASED ? calloc((size_t)t->k, sizeof *d->bias) : numbers_of(dtype, (size_t)t->k, 2, -1.0f, 1.0f);
    for (int v = 0; v < t->nshards; v++) {
        struct shard_data *s = &d->s[v];
        uint64_t seed = 10 * (uint64_t)(v + 1);
        int n = t->shard[v].n, h = t->shard[v].h, w = t->shard[v].w;

        s->x = shape(n, h, w, t->c, t->flags & SLICE, NULL);
        s->y = shape(n, out_size(t, h), out_size(t, w), t->k, t->flags & SLICE, NULL);
        s->x.data = numbers_of(dtype, floats_of(&s->x), seed, -1.0f, 1.5f);
        s->y.data = numbers_of(dtype, floats_of(&s->y), seed + 1, -1.0f, 1.0f);
        s->scale = numbers((size_t)t->c, seed + 2, 0.5f, 1.5f);
        s->shift = numbers((size_t)t->c, seed + 3, -0.5f, 0.5f);
        s->slope = numbers((size_t)t->c, seed + 4, 0.0f, 0.3f);
        s->dx0 = numbers_of(dtype, floats_of(&s->x), seed + 5, -1.0f, 1.0f);
        s->dw0 = numbers(d->w_count, seed + 6, -1.0f, 1.0f);
        s->db0 = numbers((size_t)t->k, seed + 7, -1.0f, 1.0f);
        d->out_bytes += result_bytes(d, v);
    }
}

static void drop(struct data *d)
{
    for (int v = 0; v < d->t->nshards; v++) {
        struct shard_data *s = &d->s[v];

        free(s->x.data), free(s->y.data), free(s->scale), free(s->shift), free(s->slope);
        free(s->dx0), free(s->dw0), free(s->db0);
        free(d->plain[v].y), free(d->plain[v].dx), free(d->plain[v].dw), free(d->plain[v].db);
    }
    free(d->w), free(d->bias);
}

/* ---- on a device ---- */
static inline bool is_gpu(const struct device *dev)
{
    return strncmp(dev->ops->name, "cuda", 4) == 0;
}

struct on_device {
    struct tensor y[MAX_SHARDS], dy[MAX_SHARDS], dx[2][MAX_SHARDS];
    struct operand x[MAX_SHARDS];
    float *dw[2][MAX_SHARDS], *db[2][MAX_SHARDS];
    double *stats[MAX_SHARDS];
};

/* The input of convolutions that read no pending values, as layers make it. */
static struct operand computed(struct device *dev, const struct operand *x)
{
    struct operand y = { .x = x->x };

    y.x.data = put(dev, NULL, floats_of(&x->x) * dtype_bytes(x->x.dtype));
    DONE(dev->on->map->act_fwd(dev, ACT_LINEAR, &y.x, x, 1, &err));
    return y;
}

static struct tensor put_tensor(struct device *dev, const struct tensor *t, const float *numbers, enum dtype dtype)
{
    struct tensor r = *t;
    float *zero = calloc(floats_of(t), sizeof *zero);

    r.dtype = dev->dtype;
    r.data = put_numbers(dev, numbers ? numbers : zero, floats_of(t), dtype);
    free(zero);
    return r;
}

static void upload(struct device *dev, const struct data *d, struct on_device *o)
{
    size_t c = (size_t)d->t->c * sizeof(float), k = (size_t)d->t->k * sizeof(float);

    for (int v = 0; v < d->t->nshards; v++) {
        const struct shard_data *s = &d->s[v];

        o->x[v] = (struct operand){ .x = put_tensor(dev, &s->x, s->x.data, d->dtype) };
        if (d->t->flags & PENDING) {
            o->x[v].act = (struct affine){ put(dev, s->scale, c), put(dev, s->shift, c), put(dev, s->slope, c) };
            if (!dev->pending)
                o->x[v] = computed(dev, &o->x[v]);
        }
        o->y[v] = put_tensor(dev, &s->y, NULL, d->dtype);
        o->dy[v] = put_tensor(dev, &s->y, s->y.data, d->dtype);
        for (int beta = 0; beta < 2; beta++) {
            o->dx[beta][v] = put_tensor(dev, &s->x, s->dx0, d->dtype);
            o->dw[beta][v] = put(dev, s->dw0, d->w_count * sizeof(float));
            o->db[beta][v] = put(dev, s->db0, k);
        }
        o->stats[v] = put(dev, NULL, (2 * (size_t)d->t->k + 1) * sizeof(double));
    }
}

static void run_shards(struct device *dev, const struct data *d, struct on_device *o, struct param *w, const float *bias, int v, int n)
{
    struct conv cv = { .stride = d->t->stride, .pad = d->t->pad };

    DONE(dev->on->conv->fwd(dev, o->y + v, o->x + v, &cv, w, bias, o->stats + v, n, &err));
    for (int beta = 0; beta < 2; beta++) {
        DONE(dev->on->conv->bwd_data(dev, o->dx[beta] + v, (float)beta, o->dy + v, &cv, w, n, &err));
        DONE(dev->on->conv->bwd_weights(dev, o->dw[beta] + v, (float)beta, o->x + v, o->dy + v, &cv, w, n, &err));
        DONE(dev->on->conv->bwd_bias(dev, o->db[beta] + v, (float)beta, o->dy + v, n, &err));
    }
}

static char *fetch(struct device *dev, char *to, const void *from, size_t bytes)
{
    get(dev, to, from, bytes);
    return to + bytes;
}

static char *fetch_numbers(struct device *dev, char *to, const struct tensor *t, enum dtype dtype)
{
    get_numbers(dev, (float *)(void *)to, t->data, floats_of(t), dtype);
    return to + floats_of(t) * sizeof(float);
}

/* Runs both directions with other weights, so that the device keeps copies of an older version. */
static void run_older(struct device *dev, const struct data *d, struct on_device *o, struct param *w, const float *bias)
{
    struct conv cv = { .stride = d->t->stride, .pad = d->t->pad };
    float *older = calloc(d->w_count, sizeof *older);

    DONE(dev->ops->upload(dev, w->data, older, d->w_count * sizeof *older, &err));
    DONE(dev->on->conv->fwd(dev, o->y, o->x, &cv, w, bias, o->stats, 1, &err));
    DONE(dev->on->conv->bwd_data(dev, o->dx[0], 0.0f, o->dy, &cv, w, 1, &err));
    DONE(dev->ops->upload(dev, w->data, d->w, d->w_count * sizeof *d->w, &err));
    w->version++;
    free(older);
}

static void run(struct device *dev, const void *arg, void *ret)
{
    const struct data *d = arg;
    int step = d->one_by_one ? 1 : d->t->nshards;
    struct param w = {
        .kind = PARAM_CONV, .k = d->t->k, .r = d->t->size, .s = d->t->size, .c = d->t->c, .count = d->w_count, .version = 1
    };
    struct on_device o;
    float *bias = d->t->flags & UNBIASED ? NULL : put(dev, d->bias, (size_t)d->t->k * sizeof(float));
    char *to = ret;

    w.data = put(dev, d->w, d->w_count * sizeof(float));
    upload(dev, d, &o);
    if (d->one_by_one)
        run_older(dev, d, &o, &w, bias);
    for (int v = 0; v < d->t->nshards; v += step)
        run_shards(dev, d, &o, &w, bias, v, step);
    dev->ops->param_release(dev, &w);
    assert_null(w.derived);
    for (int v = 0; v < d->t->nshards; v++) {
        to = fetch_numbers(dev, to, &o.y[v], d->dtype);
        for (int beta = 0; beta < 2; beta++)
            to = fetch_numbers(dev, to, &o.dx[beta][v], d->dtype);
        for (int beta = 0; beta < 2; beta++)
            to = fetch(dev, to, o.dw[beta][v], d->w_count * sizeof(float));
        for (int beta = 0; beta < 2; beta++)
            to = fetch(dev, to, o.db[beta][v], (size_t)d->t->k * sizeof(float));
        to = fetch(dev, to, o.stats[v], (2 * (size_t)d->t->k + 1) * sizeof(double));
    }
    assert_ptr_equal(to, (char *)ret + d->out_bytes);
}

/* ---- the plain definition ---- */
static float input(const struct data *d, const struct shard_data *s, size_t pixel, int c)
{
    float x = ((const float *)s->x.data)[pixel * (size_t)s->x.stride + (size_t)c], t;

    if (!(d->t->flags & PENDING))
        return x;
    t = fmaf(x, s->scale[c], s->shift[c]);
    return stored(t > 0.0f ? t : s->slope[c] * t, d->dtype);
}

/* A single pair of input and output pixel under tap (r, q). */
static void pair(const struct data *d, const struct shard_data *s, size_t in, size_t out, int tap, struct plain *p)
{
    const struct conv_case *t = d->t;
    const float *dy = (const float *)s->y.data + out * (size_t)s->y.stride;

    for (int k = 0; k < t->k; k++)
        for (int c = 0; c < t->c; c++) {
            size_t at = ((size_t)k * (size_t)(t->size * t->size) + (size_t)tap) * (size_t)t->c + (size_t)c;
            double x = input(d, s, in, c), w = d->w[at];

            p->y[out * (size_t)t->k + (size_t)k] += x * w;
            p->dx[in * (size_t)t->c + (size_t)c] += w * dy[k];
            p->dw[at] += x * dy[k];
        }
}

static void plain_image(const struct data *d, const struct shard_data *s, int i, struct plain *p)
{
    const struct conv_case *t = d->t;

    for (int oy = 0; oy < s->y.h; oy++)
        for (int ox = 0; ox < s->y.w; ox++)
            for (int tap = 0; tap < t->size * t->size; tap++) {
                int y = oy * t->stride + tap / t->size - t->pad, x = ox * t->stride + tap % t->size - t->pad;

                if (y >= 0 && y < s->x.h && x >= 0 && x < s->x.w)
                    pair(d, s, (size_t)((i * s->x.h + y) * s->x.w + x), (size_t)((i * s->y.h + oy) * s->y.w + ox), tap, p);
            }
}

static const struct plain *plain_shard(struct data *d, int v)
{
    const struct shard_data *s = &d->s[v];
    struct plain *p = &d->plain[v];

    if (p->y)
        return p;
    p->y = calloc(tensor_count(&s->y), sizeof(double));
    p->dx = calloc(tensor_count(&s->x), sizeof(double));
    p->dw = calloc(d->w_count, sizeof(double));
    p->db = calloc((size_t)d->t->k, sizeof(double));
    for (int i = 0; i < s->x.n; i++)
        plain_image(d, s, i, p);
    for (size_t i = 0; i < tensor_pixels(&s->y); i++)
        for (int k = 0; k < d->t->k; k++) {
            p->y[i * (size_t)d->t->k + (size_t)k] += (double)d->bias[k];
            p->db[k] += (double)((const float *)s->y.data)[i * (size_t)s->y.stride + (size_t)k];
        }
    return p;
}

/* ---- comparisons ---- */
/* Errors are judged against the rms of the expected values: Winograd's errors do not shrink with a single value. add:
 * the values that beta = 1 added to. dtype: how the result was stored. In bf16 half a unit in the last place is at most
 * 2^-8 of a value, and the summed values may have been rounded, too. */
static const char *check(enum dtype dtype, const char *what, const char *from, const struct tensor *view, const double *want,
                         const float *add)
{
    const float *got = (const float *)from;
    const double half = dtype == DTYPE_BF16 ? 1 : 0, unit = half / 256;
    double sum = 0, worst = 0, beyond = 0, errors = 0;
    size_t n = tensor_count(view), pixels = tensor_pixels(view), c = (size_t)view->c, stride = (size_t)view->stride;

    for (size_t i = 0; i < n; i++)
        sum += want[i] * want[i];
    for (size_t i = 0; i < pixels; i++)
        for (size_t k = 0; k < c; k++) {
            double added = add ? (double)add[i * stride + k] : 0, value = want[i * c + k] + added;
            double e = fabs((double)got[i * stride + k] - value), rounding = unit * fabs(value);

            errors += e * e;
            worst = e > worst || isnan(e) ? e : worst;
            beyond = e - rounding > beyond || isnan(e) ? e - rounding : beyond;
        }
    if (!(beyond <= (1.5e-4 + 0.03 * half) * sqrt(sum / (double)n) + (add ? 1e-6 : 1e-30)) ||
        !(errors <= (64e-12 + 16e-6 * half) * sum + (add ? (1e-13 + 16e-6 * half) * (double)n : 0)))
        fault("%s is off by %g, rms %g, of values of rms %g", what, worst, sqrt(errors / (double)n), sqrt(sum / (double)n));
    return from + pixels * stride * sizeof(float);
}

/* The gaps between the slices of a wider tensor must be unchanged. */
static void check_gaps(const char *from, const struct tensor *view, const float *before)
{
    const float *got = (const float *)from;
    size_t changed = 0;

    for (size_t i = 0; i < tensor_pixels(view); i++)
        for (size_t k = (size_t)view->c; k < (size_t)view->stride; k++)
            changed += got[i * (size_t)view->stride + k] != (before ? before[i * (size_t)view->stride + k] : 0.0f);
    if (changed)
        fault("%zu values between slices were written", changed);
}

/* Compares the statistics with those of the stored outputs. */
static const char *check_stats(const struct data *d, const struct shard_data *s, const char *from, const float *y)
{
    size_t n = tensor_pixels(&s->y), count = (size_t)d->t->k, stride = (size_t)s->y.stride;
    double stats[1 + 2 * 400];

    memcpy(stats, from, (1 + 2 * count) * sizeof(double));
    if (stats[0] != (double)n)
        fault("statistics of %g values, not of %zu", stats[0], n);
    for (size_t k = 0; k < count; k++) {
        double sum = 0, m2 = 0, size = 0;

        for (size_t i = 0; i < n; i++) {
            sum += (double)y[i * stride + k];
            size += (double)y[i * stride + k] * (double)y[i * stride + k];
        }
        for (size_t i = 0; i < n; i++)
            m2 += pow((double)y[i * stride + k] - sum / (double)n, 2);
        if (!(fabs(stats[1 + k] - sum / (double)n) <= 1e-6 * sqrt(size / (double)n)) || !(fabs(stats[1 + count + k] - m2) <= 5e-6 * size)) {
            fault("statistics of channel %zu: %g and %g, should be %g and %g", k, stats[1 + k], stats[1 + count + k], sum / (double)n, m2);
            break;
        }
    }
    return from + (1 + 2 * count) * sizeof(double);
}

static void check_case(struct data *d, const char *got)
{
    const struct conv_case *t = d->t;

    for (int v = 0; v < t->nshards; v++) {
        const struct shard_data *s = &d->s[v];
        struct tensor dw = tensor_f32(NULL, 1, 1, 1, (int)d->w_count), db = tensor_f32(NULL, 1, 1, 1, t->k);
        const float *y = (const float *)(const void *)got;
        const struct plain *p = plain_shard(d, v);

        check_gaps(got, &s->y, NULL);
        got = check(d->dtype, "y", got, &s->y, p->y, NULL);
        check_gaps(got, &s->x, s->dx0);
        got = check(d->dtype, "dx", got, &s->x, p->dx, NULL);
        check_gaps(got, &s->x, s->dx0);
        got = check(d->dtype, "dx + dx", got, &s->x, p->dx, s->dx0);
        got = check(d->dw_dtype, "dw", got, &dw, p->dw, NULL);
        got = check(d->dw_dtype, "dw + dw", got, &dw, p->dw, s->dw0);
        got = check(DTYPE_F32, "db", got, &db, p->db, NULL);
        got = check(DTYPE_F32, "db + db", got, &db, p->db, s->db0);
        got = check_stats(d, s, got, y);
    }
}

/* A device must use changed weights as soon as their version is bumped: every path, forward and back. */
__attribute__((unused)) static void check_versions(struct device *dev)
{
    static const struct conv_case kinds[] = { { 0, 16, 16, 3, 1, 1, ONE(1, 8, 8) }, { 0, 16, 16, 1, 1, 0, ONE(1, 4, 4) } };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct param w = { .k = 16, .r = kinds[i].size, .s = kinds[i].size, .c = 16, .version = 1 };
        struct conv cv = { .stride = 1, .pad = kinds[i].pad };
        struct data d;
        struct on_device o;
        float *zero, *got, sum = 0;

        looking_at(dev, "versions", &kinds[i]);
        make(&kinds[i], dev->dtype, &d);
        zero = calloc(d.w_count, sizeof *zero);
        got = malloc(floats_of(&d.s[0].y) * sizeof *got);
        upload(dev, &d, &o);
        w.count = d.w_count;
        w.data = put(dev, d.w, d.w_count * sizeof(float));
        run_shards(dev, &d, &o, &w, NULL, 0, 1);
        DONE(dev->ops->upload(dev, w.data, zero, d.w_count * sizeof(float), &err));
        w.version++;
        DONE(dev->on->conv->fwd(dev, o.y, o.x, &cv, &w, NULL, NULL, 1, &err));
        get_numbers(dev, got, o.y[0].data, floats_of(&d.s[0].y), d.dtype);
        for (size_t e = 0; e < floats_of(&d.s[0].y); e++)
            sum += fabsf(got[e]);
        DONE(dev->on->conv->bwd_data(dev, o.dx[0], 0.0f, o.dy, &cv, &w, 1, &err));
        get_numbers(dev, got, o.dx[0][0].data, floats_of(&d.s[0].x), d.dtype);
        for (size_t e = 0; e < floats_of(&d.s[0].x); e++)
            sum += fabsf(got[e]);
        assert_true(sum == 0.0f);
        dev->ops->param_release(dev, &w);
        free_buffers();
        free(zero), free(got);
        drop(&d);
    }
    no_faults();
}

/* Outputs, then input gradients, of the first shard. */
static void use(struct device *dev, const struct data *d, struct param *w, float *ret)
{
    struct conv cv = { .stride = d->t->stride, .pad = d->t->pad };
    struct on_device o;

    upload(dev, d, &o);
    DONE(dev->on->conv->fwd(dev, o.y, o.x, &cv, w, NULL, NULL, 1, &err));
    DONE(dev->on->conv->bwd_data(dev, o.dx[0], 0.0f, o.dy, &cv, w, 1, &err));
    get_numbers(dev, ret, o.y[0].data, floats_of(&d->s[0].y), d->dtype);
    get_numbers(dev, ret + floats_of(&d->s[0].y), o.dx[0][0].data, floats_of(&d->s[0].x), d->dtype);
}

/* Convolutions of other strides and pads share a parameter. A device's copy for one convolution must not be taken for
 * another, nor a copy of older weights. */
__attribute__((unused)) static void check_many_uses(struct device *dev)
{
    static const struct conv_case kinds[] = {
        { 0, 32, 32, 3, 2, 1, ONE(1, 8, 8) }, { 0, 32, 32, 3, 2, 0, ONE(1, 8, 8) }, { 0, 32, 32, 3, 1, 1, ONE(1, 8, 8) },
        { 0, 32, 32, 3, 1, 0, ONE(1, 8, 8) }, { 0, 32, 32, 3, 3, 1, ONE(1, 8, 8) },
    };
    struct param shared = { .k = 32, .r = 3, .s = 3, .c = 32, .version = 1 };

    for (int round = 0; round < 2; round++)
        for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
            struct param own = { .k = 32, .r = 3, .s = 3, .c = 32, .version = 1 };
            float *got[2];
            struct data d;

            looking_at(dev, "many uses", &kinds[i]);
            make(&kinds[i], dev->dtype, &d);
            for (size_t e = 0; e < d.w_count && round == 0; e++)
                d.w[e] = -d.w[e];
            shared.count = own.count = d.w_count;
            shared.data = own.data = put(dev, d.w, d.w_count * sizeof(float)); /* copies kept by the device outlive it */
            for (int way = 0; way < 2; way++) {
                got[way] = malloc((floats_of(&d.s[0].y) + floats_of(&d.s[0].x)) * sizeof(float));
                use(dev, &d, way == 0 ? &shared : &own, got[way]);
            }
            assert_memory_equal(got[0], got[1], (floats_of(&d.s[0].y) + floats_of(&d.s[0].x)) * sizeof(float));
            dev->ops->param_release(dev, &own);
            free_buffers();
            free(got[0]), free(got[1]);
            drop(&d);
            shared.version += round == 0 && i + 1 == sizeof kinds / sizeof *kinds;
        }
    dev->ops->param_release(dev, &shared);
    no_faults();
}

/* Values far from zero with little spread: sums of squares would lose the variance. */
__attribute__((unused)) static void check_far_from_zero(struct device *dev)
{
    static const struct conv_case kinds[] = { { 0, 16, 16, 3, 1, 1, ONE(1, 24, 24) }, { 0, 4, 16, 1, 1, 0, ONE(1, 24, 24) } };

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct data d;
        char *got;

        looking_at(dev, "far from zero", &kinds[i]);
        make(&kinds[i], DTYPE_F32, &d);
        for (int k = 0; k < kinds[i].k; k++)
            d.bias[k] = 3000.0f;
        got = malloc(d.out_bytes);
        run(dev, &d, got);
        {
            const double *stats = (const double *)(const void *)(got + d.out_bytes) - (1 + 2 * kinds[i].k);
            const float *y = (const float *)(const void *)got;
            size_t pixels = tensor_pixels(&d.s[0].y);

            for (size_t k = 0; k < 16; k++) {
                double mean = 0, m2 = 0;

                for (size_t e = 0; e < pixels; e++)
                    mean += (double)y[e * 16 + k] / (double)pixels;
                for (size_t e = 0; e < pixels; e++)
                    m2 += pow((double)y[e * 16 + k] - mean, 2);
                assert_true(fabs(stats[17 + k] - m2) <= 1e-5 * m2);
                assert_true(fabs(stats[1 + k] - mean) <= 1e-7 * mean);
            }
        }
        free_buffers();
        free(got);
        drop(&d);
    }
    no_faults();
}

/* The results of all shards together are so large that they bypass the caches where the ISA can, in fp32 or in bf16;
 * those of a single shard are not. The values equal those of plain stores. */
__attribute__((unused)) static void check_large_results(struct device *dev)
{
    static const struct conv_case kinds[] = {
        { UNBIASED, 16, 32, 1, 1, 0, FOUR(1, 128, 257) }, { UNBIASED, 32, 16, 1, 1, 0, FOUR(1, 128, 257) },
        { UNBIASED, 32, 16, 1, 1, 0, FOUR(1, 256, 257) }, { 0, 16, 32, 1, 1, 0, FOUR(1, 128, 257) },
        { SLICE, 16, 32, 1, 1, 0, FOUR(1, 128, 257) },
    };

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct data d;
        char *got[2];

        looking_at(dev, "large results", &kinds[i]);
        make(&kinds[i], dev->dtype, &d);
        for (int way = 0; way < 2; way++) {
            got[way] = malloc(d.out_bytes);
            d.one_by_one = way == 1;
            run(dev, &d, got[way]);
            free_buffers();
        }
        assert_memory_equal(got[0], got[1], d.out_bytes);
        free(got[0]), free(got[1]);
        drop(&d);
    }
    no_faults();
}
