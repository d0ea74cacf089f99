/* SPDX-License-Identifier: Apache-2.0 */ /* tests/bench/bench_layers.c - uses: proto worker/backend trainer cpu
 * Every layer class of a network on one device, beside the best matrix product and the best copy of the same run.
 * Usage: bench_layers [device=cuda] [model=yolov3] [precision=bf16] [size=416] [batch=16] [repeats=20] [ceiling=8192]
 * Prints one line a class: time, TFLOP/s of the plain definition or GB/s of the least bytes that have to move, and the
 * share of the ceiling. ceiling= is the side of that matrix product (512 on the CPU). Numbers are random, because zeros
 * take less power and so run at a higher clock. On a GPU calls take turns between several sets of maps (SPREAD): in a
 * step a map has left the cache when it is read again. On the CPU a single set is enough, as in a step of few
 * images. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "proto/err.h"
#include "worker/core/device.h"
#include "worker/backend/devices.h"
#include "worker/models/yolo/darknet_net.h"
#include "worker/models/yolo/presets.h"
#include "worker/ops/families.h"

enum { MAX_SETS = 64, NOISE_COUNT = 1 << 20 };
static const double SPREAD = 256e6; /* bytes of maps between two uses of one: twice the largest L2 cache (126 MB, B200) */

struct options {
    int size, batch, repeats, ceiling;
    char device[16], precision[16], model[32];
};

static struct options opt = { 416, 16, 20, 0, "cuda", "bf16", "yolov3" };
static struct device *dev;
static void *noise[2];                /* of each dtype: NOISE_COUNT random numbers in device memory */
static double best_flops, best_bytes; /* the ceilings, per second */

static void die(const struct err *err)
{
    fprintf(stderr, "bench_layers: %s\n", err->msg);
    exit(1);
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void *take(size_t bytes)
{
    void *p = dev->ops->alloc(dev, bytes);
    struct err err;

    if (!p) {
        err_set(&err, ERR_DEVICE, "out of memory: %zu MiB", bytes >> 20);
        die(&err);
    }
    return p;
}

static void *noise_open(enum dtype dtype)
{
    float *f = malloc(NOISE_COUNT * sizeof *f);
    uint16_t *half = malloc(NOISE_COUNT * sizeof *half);
    size_t bytes = NOISE_COUNT * dtype_bytes(dtype);
    void *to = take(bytes);
    uint32_t x = 1, bits;
    struct err err;

    if (!f || !half)
        abort();
    for (int i = 0; i < NOISE_COUNT; i++) {
        x = x * 1664525u + 1013904223u;
        f[i] = (float)(int32_t)x * 0x1p-31f;
        memcpy(&bits, &f[i], sizeof bits);
        half[i] = (uint16_t)(bits >> 16);
    }
    if (dev->ops->upload(dev, to, dtype == DTYPE_F32 ? (void *)f : half, bytes, &err) < 0)
        die(&err);
    free(f);
    free(half);
    return to;
}

/* count numbers between -1 and 1. */
static void *take_random(enum dtype dtype, size_t count)
{
    size_t bytes = count * dtype_bytes(dtype), block = NOISE_COUNT * dtype_bytes(dtype);
    char *p = take(bytes);
    struct err err;

    for (size_t at = 0; at < bytes; at += block)
        if (dev->ops->copy_async(dev, p + at, noise[dtype], bytes - at < block ? bytes - at : block, &err) < 0)
            die(&err);
    return p;
}

/* Laid out as a step does it: images (of 3 channels) are dense. */
static struct tensor map(int h, int w, int c)
{
    struct tensor t = tensor_f32(NULL, opt.batch, h, w, c);

    t.dtype = dev->dtype;
    t.stride = c == 3 ? c : device_stride(dev, c);
    t.data = take_random(t.dtype, tensor_pixels(&t) * (size_t)t.stride);
    return t;
}

static double map_bytes(const struct tensor *t)
{
    return (double)(tensor_count(t) * dtype_bytes(t->dtype));
}

/* The number of sets that take turns, if a call reads and writes that many bytes of one set. */
static int sets_of(double bytes)
{
    double n = dev->host_memory ? 1 : SPREAD / bytes + 1;
    int most = opt.repeats < MAX_SETS ? opt.repeats : MAX_SETS;

    return n < most ? (int)n : most;
}

/* Seconds of one call: repeats are queued one after another, the queue is waited for at the end; the best of three. The
 * calls take turns between the nsets elements of `sets`. */
static double seconds(int (*run)(void *set, struct err *err), void *sets, size_t set_bytes, int nsets)
{
    double best = 1e9;
    struct err err = { 0 };

    for (int round = 0; round < 4; round++) {
        double start = now();

        for (int i = 0; i < (round ? opt.repeats : nsets + 1); i++) /* the first round makes plans and scratch memory */
            if (run((char *)sets + (size_t)(i % nsets) * set_bytes, &err) < 0)
                die(&err);
        if (dev->ops->sync(dev, &err) < 0)
            die(&err);
        if (round && (now() - start) / opt.repeats < best)
            best = (now() - start) / opt.repeats;
    }
    return best;
}

/* ---- convolutions ---- */

struct conv_run {
    struct conv cv;
    struct param w;
    struct operand x;
    struct tensor y, dx;
    float *dw;
};

static int run_fwd(void *arg, struct err *err)
{
    struct conv_run *r = arg;

    return dev->on->conv->fwd(dev, &r->y, &r->x, &r->cv, &r->w, NULL, NULL, 1, err);
}

static int run_data(void *arg, struct err *err)
{
    struct conv_run *r = arg;

    return dev->on->conv->bwd_data(dev, &r->dx, 0, &r->y, &r->cv, &r->w, 1, err);
}

static int run_weights(void *arg, struct err *err)
{
    struct conv_run *r = arg;

    return dev->on->conv->bwd_weights(dev, &r->dw, 0, &r->x, &r->y, &r->cv, &r->w, 1, err);
}

static struct conv_run conv_open(int h, int w, int c, int k, int size, int stride, int pad)
{
    struct conv_run r = { .cv = { stride, pad }, .w = { .kind = PARAM_CONV, .k = k, .r = size, .s = size, .c = c, .version = 1 } };

    r.w.count = (size_t)k * (size_t)size * (size_t)size * (size_t)c;
    snprintf(r.w.name, sizeof r.w.name, "conv");
    r.w.data = take_random(DTYPE_F32, r.w.count);
    r.dw = take(r.w.count * sizeof(float));
    r.x.x = map(h, w, c);
    r.dx = map(h, w, c);
    r.y = map((h + 2 * pad - size) / stride + 1, (w + 2 * pad - size) / stride + 1, k);
    return r;
}

static void conv_close(struct conv_run *r)
{
    dev->ops->param_release(dev, &r->w);
    dev->ops->free(dev, r->w.data);
    dev->ops->free(dev, r->dw);
    dev->ops->free(dev, r->x.x.data);
    dev->ops->free(dev, r->dx.data);
    dev->ops->free(dev, r->y.data);
}

static double conv_flops(const struct conv_run *r)
{
    return 2.0 * (double)tensor_pixels(&r->y) * (double)r->w.count;
}

static void bench_conv(const struct darknet_layer *l, int times)
{
    int (*const pass[])(void *, struct err *) = { run_fwd, run_data, run_weights };
    struct conv_run r[MAX_SETS] = { conv_open(l->in.h, l->in.w, l->in.c, l->filters, l->size, l->stride, l->pad) };
    int sets = sets_of(map_bytes(&r[0].x.x) + map_bytes(&r[0].y));
    double flops = conv_flops(&r[0]);

    printf("conv %dx%d/%d %4d->%-4d %3dx%-3d x%-2d ", l->size, l->size, l->stride, l->in.c, l->filters, l->in.h, l->in.w, times);
    for (int i = 1; i < sets; i++)
        r[i] = conv_open(l->in.h, l->in.w, l->in.c, l->filters, l->size, l->stride, l->pad);
    for (int i = 0; i < 3; i++) {
        double t = seconds(pass[i], r, sizeof *r, sets);

        printf("  %7.3f ms %6.1f TFLOP/s %.2f", 1e3 * t, flops / t * 1e-12, flops / t / best_flops);
    }
    printf("\n");
    for (int i = 0; i < sets; i++)
        conv_close(&r[i]);
}

/* Same shape as an earlier convolution? Then it was measured there. */
static int earlier(const struct darknet_net *net, int i)
{
    const struct darknet_layer *b = &net->layers[i];

    for (int j = 0; j < i; j++) {
        const struct darknet_layer *a = &net->layers[j];

        if (a->type == DARKNET_CONV && a->filters == b->filters && a->size == b->size && a->stride == b->stride && a->in.c == b->in.c &&
            a->in.h == b->in.h)
            return 1;
    }
    return 0;
}

static int same_layers(const struct darknet_net *net, int i)
{
    int n = 0;

    for (int j = i; j < net->nlayers; j++) {
        const struct darknet_layer *a = &net->layers[i], *b = &net->layers[j];

        n += b->type == DARKNET_CONV && a->filters == b->filters && a->size == b->size && a->stride == b->stride && a->in.c == b->in.c &&
             a->in.h == b->in.h;
    }
    return n;
}

/* ---- classes that move memory ---- */

struct flow {
    struct tensor a, b, y;
    struct affine act;
    float *vector;        /* [7][c] */
    double *sums, *count; /* [2c + 1]; of count only the first is read: pixels */
    float *mean, *invstd, *grad[2];
};

static int run_copy(void *arg, struct err *err)
{
    struct flow *f = arg;

    return dev->ops->copy_async(dev, f->y.data, f->a.data, (size_t)map_bytes(&f->a), err);
}

static int run_act(void *arg, struct err *err)
{
    struct flow *f = arg;

    return dev->on->map->act_fwd(dev, ACT_LINEAR, &f->y, &(struct operand){ f->a, f->act }, 1, err);
}

static int run_add(void *arg, struct err *err)
{
    struct flow *f = arg;

    return dev->on->map->add_fwd(dev, &f->y, &(struct operand){ f->a, f->act }, &(struct operand){ .x = f->b }, 1, err);
}

static int run_reduce(void *arg, struct err *err)
{
    struct flow *f = arg;
    const struct sums_dest dest[2] = { { &f->grad[0], 0 }, { &f->grad[1], 0 } };

    return dev->on->norm->bwd_reduce(dev, &f->sums, dest, &(struct operand){ f->a, f->act }, (const float *const *)&f->mean,
                                     (const float *const *)&f->invstd, &f->b, 1, err);
}

static int run_apply(void *arg, struct err *err)
{
    struct flow *f = arg;
    const double *sums = f->sums, *count = f->count;

    return dev->on->norm->bwd_apply(dev, &f->b, &f->b, &(struct operand){ f->a, f->act }, (const float *const *)&f->mean,
                                    (const float *const *)&f->invstd, &sums, &count, 1, err);
}

static void bench_flow(const char *name, int (*run)(void *, struct err *), struct flow *f, int sets, double maps)
{
    double t = seconds(run, f, sizeof *f, sets), bytes = maps * map_bytes(&f->a);

    printf("%-16s %3dx%-3d %4d  %7.3f ms %7.0f GB/s %.2f\n", name, f->a.h, f->a.w, f->a.c, 1e3 * t, bytes / t * 1e-9,
           bytes / t / best_bytes);
}

/* scale and invstd are 1, so that values normalised in place again and again keep their size. */
static struct flow flow_open(int side, int c)
{
    struct flow f = { .a = map(side, side, c), .b = map(side, side, c), .y = map(side, side, c) };
    float *ones = malloc((size_t)c * sizeof *ones);
    double pixels = (double)tensor_pixels(&f.a);
    struct err err;

    if (!ones)
        abort();
    for (int i = 0; i < c; i++)
        ones[i] = 1;
    f.vector = take_random(DTYPE_F32, (size_t)c * 7);
    f.sums = take(((size_t)c * 2 + 1) * sizeof(double));
    f.count = take(((size_t)c * 2 + 1) * sizeof(double));
    f.act = (struct affine){ f.vector, f.vector + c, f.vector + 2 * c };
    f.mean = f.vector + 3 * c;
    f.invstd = f.vector + 4 * c;
    f.grad[0] = f.vector + 5 * c;
    f.grad[1] = f.vector + 6 * c;
    if (dev->ops->upload(dev, f.vector, ones, (size_t)c * sizeof *ones, &err) < 0 ||
        dev->ops->upload(dev, f.invstd, ones, (size_t)c * sizeof *ones, &err) < 0 ||
        dev->ops->upload(dev, f.count, &pixels, sizeof pixels, &err) < 0)
        die(&err);
    free(ones);
    return f;
}

static void flow_close(struct flow *f)
{
    dev->ops->free(dev, f->a.data);
    dev->ops->free(dev, f->b.data);
    dev->ops->free(dev, f->y.data);
    dev->ops->free(dev, f->vector);
    dev->ops->free(dev, f->sums);
    dev->ops->free(dev, f->count);
}

static void bench_flows(int side, int c)
{
    struct flow f[MAX_SETS] = { flow_open(side, c) };
    int sets = sets_of(2 * map_bytes(&f[0].a));

    for (int i = 1; i < sets; i++)
        f[i] = flow_open(side, c);
    bench_flow("norm + act", run_act, f, sets, 2);
    bench_flow("norm + act + add", run_add, f, sets, 3);
    bench_flow("norm bwd sums", run_reduce, f, sets, 2);
    bench_flow("norm bwd dx", run_apply, f, sets, 3);
    for (int i = 0; i < sets; i++)
        flow_close(&f[i]);
}

/* ---- ceilings ---- */

static void measure_ceilings(void)
{
    int batch = opt.batch, side = opt.ceiling ? opt.ceiling : dev->host_memory ? 512 : 8192, edge = dev->host_memory ? side : side / 2;
    struct conv_run r;
    struct flow f;
    double t;

    opt.batch = 1;
    r = conv_open(128, 64, side, side, 1, 1, 0);
    best_flops = conv_flops(&r) / seconds(run_fwd, &r, sizeof r, 1);
    conv_close(&r);
    f = flow_open(edge, 32);
    t = seconds(run_copy, &f, sizeof f, 1);
    best_bytes = 2 * map_bytes(&f.a) / t;
    flow_close(&f);
    opt.batch = batch;
    printf("ceilings: matrix product %.1f TFLOP/s, copy %.0f GB/s (read and written)\n", best_flops * 1e-12, best_bytes * 1e-9);
}

static void parse(int argc, char **argv)
{
    const struct {
        const char *name;
        int *number;
        char *word;
        size_t size;
    } keys[] = { { "size=", &opt.size, NULL, 0 },
                 { "batch=", &opt.batch, NULL, 0 },
                 { "repeats=", &opt.repeats, NULL, 0 },
                 { "ceiling=", &opt.ceiling, NULL, 0 },
                 { "device=", NULL, opt.device, sizeof opt.device },
                 { "model=", NULL, opt.model, sizeof opt.model },
                 { "precision=", NULL, opt.precision, sizeof opt.precision } };

    for (int i = 1; i < argc; i++)
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
            size_t len = strlen(keys[k].name);

            if (strncmp(argv[i], keys[k].name, len) != 0)
                continue;
            if (keys[k].number)
                *keys[k].number = atoi(argv[i] + len);
            else
                snprintf(keys[k].word, keys[k].size, "%s", argv[i] + len);
        }
}

int main(int argc, char **argv)
{
    struct device_options o = { .precision = PRECISION_FP32 };
    const struct device_ops *ops;
    struct darknet_net *net;
    struct device_info info;
    struct err err = { 0 };

    setvbuf(stdout, NULL, _IOLBF, 0); /* a run that is interrupted has printed the rows so far */
    parse(argc, argv);
    o.precision = strcmp(opt.precision, "bf16") == 0   ? PRECISION_BF16
                  : strcmp(opt.precision, "tf32") == 0 ? PRECISION_TF32
                                                       : PRECISION_FP32;
    if (device_backend(opt.device, "auto", &ops, &err) < 0 || ops->open(0, &o, &dev, &err) < 0 || preset_net(opt.model, &net, &err) < 0 ||
        darknet_net_set_size(net, opt.size, opt.size, &err) < 0)
        die(&err);
    noise[DTYPE_F32] = noise_open(DTYPE_F32);
    if (dev->dtype != DTYPE_F32)
        noise[dev->dtype] = noise_open(dev->dtype);
    dev->ops->info(dev, &info);
    printf("%s, %s, %s %d, batch %d\n", info.name, opt.precision, opt.model, opt.size, opt.batch);
    measure_ceilings();
    for (int i = 0; i < net->nlayers; i++)
        if (net->layers[i].type == DARKNET_CONV && !earlier(net, i))
            bench_conv(&net->layers[i], same_layers(net, i));
    for (int scale = 1; scale <= 32; scale *= 2)
        bench_flows(opt.size / scale, 32 * scale);
    darknet_net_free(net);
    for (int i = 0; i < 2; i++)
        dev->ops->free(dev, noise[i]);
    dev->ops->close(dev);
    return 0;
}
