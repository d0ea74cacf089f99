/* SPDX-License-Identifier: Apache-2.0 */ /* tests/stand/emu/engine.c - cuda/engine.h in plain loops: every output is
 * one chain of fused multiply-adds in the order r, s, c (weights: image, row, column), in fp32, rounded once when it is
 * stored. A convolution is one task on the stream; its "plan" is the key as a line of text. Convolutions of
 * cuda/stem.cu are left to it, as on a GPU. */
#include "cuda/engine.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/stem.h"
#include "tests/stand/emu/emu.h"
#include "tests/stand/emu/internal.h"

struct plan_line {
    char *text;
    int asked; /* the last turn in which it was requested */
    bool here; /* else it was dropped */
};

struct engine {
    struct cuda_device *d;
    struct plan_line *line; /* sorted */
    size_t n;
    int turn;
};

struct job {
    struct conv_key key;
    struct conv_args args;
    int oh, ow;
};

int engine_open(struct cuda_device *d, struct engine **ret_engine, struct err *err)
{
    struct engine *e = calloc(1, sizeof(*e));

    if (!e)
        return err_set(err, -ENOMEM, "out of memory: engine");
    e->d = d;
    *ret_engine = e;
    return 0;
}

void engine_close(struct engine *e)
{
    if (!e)
        return;
    for (size_t i = 0; i < e->n; i++)
        free(e->line[i].text);
    free(e->line);
    free(e);
}

/* ---- numbers ---- */

static float bf16_to_float(uint16_t b)
{
    uint32_t u = (uint32_t)b << 16;
    float x;

    memcpy(&x, &u, sizeof(x));
    return x;
}

static uint16_t bf16_of(float x)
{
    uint32_t u;

    memcpy(&u, &x, sizeof(u));
    if ((u & 0x7FFFFFFFu) > 0x7F800000u)
        return 0x7FFF;
    return (uint16_t)((u + 0x7FFFu + (u >> 16 & 1u)) >> 16);
}

static float load(const void *p, enum dtype dtype, size_t i)
{
    return dtype == DTYPE_BF16 ? bf16_to_float(((const uint16_t *)p)[i]) : ((const float *)p)[i];
}

static void store(void *p, enum dtype dtype, size_t i, float x)
{
    if (dtype == DTYPE_BF16)
        ((uint16_t *)p)[i] = bf16_of(x);
    else
        ((float *)p)[i] = x;
}

static float *floats(size_t n)
{
    float *p = malloc(n * sizeof(*p));

    if (!p)
        emu_violation("no memory for a convolution's %zu numbers", n);
    return p;
}

/* [pixels][c] as floats. */
static float *dense(const void *p, enum dtype dtype, size_t pixels, int c, int stride)
{
    float *ret = floats(pixels * (size_t)c);

    for (size_t i = 0; i < pixels; i++)
        for (int k = 0; k < c; k++)
            ret[i * (size_t)c + (size_t)k] = load(p, dtype, i * (size_t)stride + (size_t)k);
    return ret;
}

/* acc[i] = fma(v, row[i], acc[i]) */
#define CHAIN                                 \
    do                                        \
        for (int i = 0; i < n; i++)           \
            acc[i] = fmaf(v, row[i], acc[i]); \
    while (0)

__attribute__((target("fma,avx2"), optimize("O3"))) static void chain_fma(float *restrict acc, const float *restrict row, float v, int n)
{
    CHAIN;
}

static void chain(float *acc, const float *row, float v, int n)
{
    if (__builtin_cpu_supports("fma") && __builtin_cpu_supports("avx2"))
        chain_fma(acc, row, v, n);
    else
        CHAIN;
}

/* ---- the three directions ---- */

static size_t filter_count(const struct conv_key *k)
{
    return (size_t)k->k * (size_t)k->r * (size_t)k->s * (size_t)k->c;
}

/* The input row or column that output i reads at tap r, or -1: padding. */
static int tap(int i, int r, int stride, int pad, int size)
{
    int at = i * stride + r - pad;

    return at >= 0 && at < size ? at : -1;
}

/* [r][s][c][k] of a [k][r][s][c] filter. */
static float *transposed(const void *w, const struct conv_key *key)
{
    size_t inner = filter_count(key) / (size_t)key->k;
    float *ret = floats(filter_count(key));

    for (size_t k = 0; k < (size_t)key->k; k++)
        for (size_t i = 0; i < inner; i++)
            ret[i * (size_t)key->k + k] = load(w, key->dtype, k * inner + i);
    return ret;
}

static void fwd_pixel(const struct job *j, const float *x, const float *w, int oy, int ox, float *acc)
{
    const struct conv_key *k = &j->key;

    memset(acc, 0, (size_t)k->k * sizeof(*acc));
    for (int r = 0; r < k->r; r++)
        for (int s = 0; s < k->s; s++) {
            int y = tap(oy, r, k->stride, k->pad, k->h), q = tap(ox, s, k->stride, k->pad, k->w);

            if (y < 0 || q < 0)
                continue;
            for (int c = 0; c < k->c; c++)
                chain(acc, w + ((size_t)(r * k->s + s) * (size_t)k->c + (size_t)c) * (size_t)k->k,
                      x[((size_t)y * (size_t)k->w + (size_t)q) * (size_t)k->c + (size_t)c], k->k);
        }
}

static void forward(const struct job *j)
{
    const struct conv_key *k = &j->key;
    size_t in = (size_t)k->h * (size_t)k->w, out = (size_t)j->oh * (size_t)j->ow;
    float *x = dense(j->args.x, k->dtype, (size_t)k->n * in, k->c, k->x_stride), *w = transposed(j->args.w, k), *acc = floats((size_t)k->k);

    for (size_t p = 0; p < (size_t)k->n * out; p++) {
        fwd_pixel(j, x + p / out * in * (size_t)k->c, w, (int)(p % out) / j->ow, (int)(p % out) % j->ow, acc);
        for (int i = 0; i < k->k; i++)
            store(j->args.y, k->dtype, p * (size_t)k->y_stride + (size_t)i,
                  k->bias ? acc[i] + load(j->args.bias, k->dtype, (size_t)i) : acc[i]);
    }
    free(x);
    free(w);
    free(acc);
}

/* The output that reads input row or column `at` at tap r, or -1. */
static int reader(int at, int r, int stride, int pad, int size)
{
    int i = at + pad - r;

    return i >= 0 && i % stride == 0 && i / stride < size ? i / stride : -1;
}

static void bwd_data_pixel(const struct job *j, const float *dy, const float *w, int y, int x, float *acc)
{
    const struct conv_key *k = &j->key;

    memset(acc, 0, (size_t)k->c * sizeof(*acc));
    for (int r = 0; r < k->r; r++)
        for (int s = 0; s < k->s; s++) {
            int oy = reader(y, r, k->stride, k->pad, j->oh), ox = reader(x, s, k->stride, k->pad, j->ow);

            if (oy < 0 || ox < 0)
                continue;
            for (int i = 0; i < k->k; i++)
                chain(acc, w + ((size_t)(i * k->r + r) * (size_t)k->s + (size_t)s) * (size_t)k->c,
                      dy[((size_t)oy * (size_t)j->ow + (size_t)ox) * (size_t)k->k + (size_t)i], k->c);
        }
}

static void backward_data(const struct job *j)
{
    const struct conv_key *k = &j->key;
    size_t in = (size_t)k->h * (size_t)k->w, out = (size_t)j->oh * (size_t)j->ow;
    float *dy = dense(j->args.y, k->dtype, (size_t)k->n * out, k->k, k->y_stride), *acc = floats((size_t)k->c);
    float *w = dense(j->args.w, k->dtype, filter_count(k), 1, 1);

    for (size_t p = 0; p < (size_t)k->n * in; p++) {
        bwd_data_pixel(j, dy + p / in * out * (size_t)k->k, w, (int)(p % in) / k->w, (int)(p % in) % k->w, acc);
        for (int c = 0; c < k->c; c++) {
            size_t at = p * (size_t)k->x_stride + (size_t)c;

            store(j->args.x, k->dtype, at, k->add ? load(j->args.x, k->dtype, at) + acc[c] : acc[c]);
        }
    }
    free(dy);
    free(w);
    free(acc);
}

/* Adds the contribution of one output pixel (dy: its k gradients) to dw; x: its image. */
static void bwd_weights_pixel(const struct job *j, const float *x, const float *dy, int oy, int ox, float *dw)
{
    const struct conv_key *k = &j->key;

    for (int r = 0; r < k->r; r++)
        for (int s = 0; s < k->s; s++) {
            int y = tap(oy, r, k->stride, k->pad, k->h), q = tap(ox, s, k->stride, k->pad, k->w);

            if (y < 0 || q < 0)
                continue;
            for (int i = 0; i < k->k; i++)
                chain(dw + ((size_t)(i * k->r + r) * (size_t)k->s + (size_t)s) * (size_t)k->c,
                      x + ((size_t)y * (size_t)k->w + (size_t)q) * (size_t)k->c, dy[i], k->c);
        }
}

static void backward_weights(const struct job *j)
{
    const struct conv_key *k = &j->key;
    size_t in = (size_t)k->h * (size_t)k->w, out = (size_t)j->oh * (size_t)j->ow, count = filter_count(k);
    float *x = dense(j->args.x, k->dtype, (size_t)k->n * in, k->c, k->x_stride);
    float *dy = dense(j->args.y, k->dtype, (size_t)k->n * out, k->k, k->y_stride), *dw = floats(count);

    memset(dw, 0, count * sizeof(*dw));
    for (size_t p = 0; p < (size_t)k->n * out; p++)
        bwd_weights_pixel(j, x + p / out * in * (size_t)k->c, dy + p * (size_t)k->k, (int)(p % out) / j->ow, (int)(p % out) % j->ow, dw);
    for (size_t i = 0; i < count; i++)
        j->args.dw[i] = j->args.add ? j->args.dw[i] + dw[i] : dw[i];
    free(x);
    free(dy);
    free(dw);
}

static int run(void *arg)
{
    static void (*const fn[])(const struct job *) = { forward, backward_data, backward_weights };
    const struct job *j = arg;

    fn[j->key.dir](j);
    return EMU_DONE;
}

/* ---- the engine ---- */

static int by_text(const void *a, const void *b)
{
    const struct plan_line *x = a, *y = b;

    return strcmp(x->text, y->text);
}

/* Tests may request lists, in the files named by these variables: of plans that a convolution had to make itself
 * because it was not announced, and of dropped plans. */
static const char unplanned[] = "EMU_UNPLANNED", dropped[] = "EMU_DROPPED";

static void note(const char *list, const char *line)
{
    const char *path = getenv(list);
    FILE *f = path ? fopen(path, "a") : NULL;

    if (f) {
        fprintf(f, "%s\n", line);
        fclose(f);
    }
}

static int add_line(struct engine *e, const char *text, struct plan_line **ret, struct err *err)
{
    struct plan_line *more = realloc(e->line, (e->n + 1) * sizeof *more), line = { .text = strdup(text) };

    if (more)
        e->line = more;
    if (!more || !line.text) {
        free(line.text);
        return err_set(err, -ENOMEM, "out of memory: plan");
    }
    e->line[e->n++] = line;
    qsort(e->line, e->n, sizeof *e->line, by_text);
    *ret = bsearch(&line, e->line, e->n, sizeof *e->line, by_text);
    return 0;
}

/* args: NULL before the convolution is asked for. */
static int make_plan(struct engine *e, const struct conv_key *k, const struct conv_args *args, struct err *err)
{
    static const char *const dir[] = { "fwd", "bwd_data", "bwd_weights" };
    struct plan_key full = plan_key_make(k, args);
    char text[256];
    struct plan_line key = { .text = text }, *line;
    int rc;

    snprintf(text, sizeof text, "%s %s precision %d tier %d x %dx%dx%dx%d w %dx%dx%d stride %d pad %d pixels %d %d%s%s: %s", dir[k->dir],
             k->dtype == DTYPE_BF16 ? "bf16" : "f32", k->precision, k->tier, k->n, k->h, k->w, k->c, k->k, k->r, k->s, k->stride, k->pad,
             k->x_stride, k->y_stride, k->bias ? " bias" : "", k->add ? " add" : "", stem_takes(&full) ? "own stem" : "plain loops");
    line = e->n > 0 ? bsearch(&key, e->line, e->n, sizeof *e->line, by_text) : NULL;
    if (args && (!line || !line->here))
        note(unplanned, text);
    if (!line) {
        rc = add_line(e, text, &line, err);
        if (rc < 0)
            return rc;
    }
    line->here = true;
    line->asked = e->turn;
    return 0;
}

/* Tests may set a limit below ENGINE_PLANS. When it is passed, all unused plans are dropped. */
int engine_begin(struct engine *e, int keep, struct err *err)
{
    const char *text = getenv("EMU_PLANS");
    size_t most = text ? strtoul(text, NULL, 10) : ENGINE_PLANS, n = 0;

    (void)err;
    e->turn++;
    for (size_t i = 0; i < e->n; i++)
        n += e->line[i].here;
    for (size_t i = 0; i < e->n && n > most; i++)
        if (e->line[i].here && e->turn - e->line[i].asked > keep) {
            e->line[i].here = false;
            note(dropped, e->line[i].text);
        }
    return 0;
}

int engine_prepare(struct engine *e, const struct conv_key *k, struct err *err)
{
    return make_plan(e, k, NULL, err);
}

void engine_ready(struct engine *e, struct plan_readiness *ret)
{
    *ret = (struct plan_readiness){ .plans = (int)e->n };
}

/* Rejects arguments that the libraries would refuse, or read as garbage. */
static void check(const struct conv_key *k, const struct conv_args *a)
{
    const void *const ptr[] = { a->x, k->dir == CONV_BWD_WEIGHTS ? NULL : a->w, a->y, k->bias ? a->bias : NULL,
                                k->dir == CONV_BWD_WEIGHTS ? a->dw : NULL };

    if (k->x_stride < k->c || k->y_stride < k->k || k->n < 1 || k->stride < 1 || k->pad < 0 || (k->bias && k->dir != CONV_FWD) ||
        (k->add && k->dir != CONV_BWD_DATA) || (a->add && k->dir != CONV_BWD_WEIGHTS) || (k->dtype != DTYPE_F32 && k->dtype != DTYPE_BF16))
        emu_violation("a convolution's key makes no sense: %d images %dx%dx%d, pixels %d and %d apart, %d filters %dx%d", k->n, k->h, k->w,
                      k->c, k->x_stride, k->y_stride, k->k, k->r, k->s);
    for (size_t i = 0; i < sizeof ptr / sizeof *ptr; i++)
        if (ptr[i]) {
            struct cudaPointerAttributes attr;

            cudaPointerGetAttributes(&attr, ptr[i]);
            if (attr.type != cudaMemoryTypeDevice)
                emu_violation("argument %zu of a convolution is not device memory", i);
        }
}

static int run_stem(struct engine *e, const struct conv_key *key, const struct conv_args *args, struct err *err)
{
    size_t bytes = stem_workspace(key);
    void *workspace = bytes > 0 ? cuda_scratch(&e->d->dev, bytes, "conv", err) : NULL;

    return bytes > 0 && !workspace ? err->code : stem_run(key, args, workspace, e->d->stream, err);
}

int engine_conv(struct engine *e, const struct conv_key *key, const struct conv_args *args, struct err *err)
{
    struct plan_key full;
    struct job j;
    int rc = make_plan(e, key, args, err);

    if (rc < 0)
        return rc;
    check(key, args);
    full = plan_key_make(key, args);
    if (stem_takes(&full))
        return run_stem(e, key, args, err);
    memset(&j, 0, sizeof j);
    j.key = *key;
    j.args = *args;
    j.oh = (key->h + 2 * key->pad - key->r) / key->stride + 1;
    j.ow = (key->w + 2 * key->pad - key->s) / key->stride + 1;
    return cuda_check((cudaError_t)emu_task(e->d->stream, "a convolution", run, &j, sizeof j), "conv", err);
}

char *engine_plans(struct engine *e)
{
    size_t bytes = 1;
    char *text, *at;

    for (size_t i = 0; i < e->n; i++)
        bytes += strlen(e->line[i].text) + 1;
    text = malloc(bytes);
    if (!text)
        return NULL;
    at = text;
    *at = '\0';
    for (size_t i = 0; i < e->n; i++)
        at += sprintf(at, "%s\n", e->line[i].text);
    return text;
}
