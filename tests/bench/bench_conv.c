/* SPDX-License-Identifier: Apache-2.0 */ /* tests/bench/bench_conv.c - uses: proto worker/core cpu
 * Speed of each class of convolution on the CPU device, beside the FMA peak measured in the same run.
 * Usage: bench_conv [layer=part of a name] [pass=forward|data|weights] [precision=fp32|bf16] [threads=N, default: one
 * thread, then all] [isa=avx512|avx2] [seconds=.3, of a pass] [plain=1: as under frozen normalisation]
 * Prints a record "peak" for each number of threads, and a record "conv" for each layer and pass: GF/s count a
 * convolution as its plain definition does, so Winograd may exceed the peak. In bf16 the peak is that of the CPU's bf16
 * unit, if this process may use it. Best of repeated runs. */
#include <immintrin.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/host/cpu.h"
#include "proto/err.h"
#include "tests/bench/bench.h"
#include "worker/core/device.h"
#include "worker/core/threads.h"
#include "worker/ops/families.h"

const struct device_ops *cpu_backend_avx512(void);
const struct device_ops *cpu_backend_avx2(void);

static const struct layer {
    const char *name;
    int n, hw_h, hw_w, c, k, size, stride;
    int weight; /* how often it stands in yolov3-tiny; 0: not part of it */
    bool plain; /* no function is pending on its input, and statistics are not needed: as under frozen normalisation */
} layers[] = {
    { "3->16@416", 8, 416, 416, 3, 16, 3, 1, 1, false },
    { "16->32@208", 8, 208, 208, 16, 32, 3, 1, 1, false },
    { "32->64@104", 8, 104, 104, 32, 64, 3, 1, 1, false },
    { "64->128@52", 8, 52, 52, 64, 128, 3, 1, 1, false },
    { "128->256@26", 8, 26, 26, 128, 256, 3, 1, 1, false },
    { "384->256@26", 8, 26, 26, 384, 256, 3, 1, 1, false },
    { "256->512@13", 8, 13, 13, 256, 512, 3, 1, 2, false },
    { "512->1024@13", 8, 13, 13, 512, 1024, 3, 1, 1, false },
    { "1x1:1024->256@13", 8, 13, 13, 1024, 256, 1, 1, 1, false },
    { "1x1:512->255@13", 8, 13, 13, 512, 255, 1, 1, 1, false },
    { "1x1:256->128@13", 8, 13, 13, 256, 128, 1, 1, 1, false },
    { "1x1:256->255@26", 8, 26, 26, 256, 255, 1, 1, 1, false },
    { "64->64@200x304", 2, 200, 304, 64, 64, 3, 1, 0, false },
    { "256->256@50x76", 2, 50, 76, 256, 256, 3, 1, 0, false },
    { "1x1:256->64@104", 2, 104, 104, 256, 64, 1, 1, 0, false },
    { "1x1:64->256@120", 2, 120, 120, 64, 256, 1, 1, 0, true },
    { "1x1:1024->256@30", 2, 30, 30, 1024, 256, 1, 1, 0, true },
    { "1x1/2:256->512@120", 2, 120, 120, 256, 512, 1, 2, 0, true },
    { "1x1:12544->1024@512", 1, 1, 512, 12544, 1024, 1, 1, 0, true },
    { "7x7/2:3->64@416", 2, 416, 416, 3, 64, 7, 2, 0, false },
    { "3x3/2:128->256@104", 2, 104, 104, 128, 256, 3, 2, 0, false },
};

/* ---- FMA peak: 12 independent chains of full vectors ---- */
enum { CHAINS = 12, ROUNDS = 400000 };
static bool all_plain;
static const char *only_pass;
static enum precision precision = PRECISION_FP32;
static double seconds = 0.3; /* seconds of a pass, and of the peak: longer than another program's turn on a core */
static volatile float sink;

__attribute__((target("avx512f"))) static double flops_avx512(void)
{
    __m512 a[CHAINS], b = _mm512_set1_ps(0.999f), c = _mm512_set1_ps(0.001f);

    for (int i = 0; i < CHAINS; i++)
        a[i] = _mm512_set1_ps((float)i);
    for (int r = 0; r < ROUNDS; r++)
#pragma GCC unroll 12
        for (int i = 0; i < CHAINS; i++)
            a[i] = _mm512_fmadd_ps(a[i], b, c);
    for (int i = 1; i < CHAINS; i++)
        a[0] = _mm512_add_ps(a[0], a[i]);
    sink = _mm512_cvtss_f32(a[0]);
    return 2.0 * 16 * CHAINS * ROUNDS;
}

__attribute__((target("avx2,fma"))) static double flops_avx2(void)
{
    __m256 a[CHAINS], b = _mm256_set1_ps(0.999f), c = _mm256_set1_ps(0.001f);

    for (int i = 0; i < CHAINS; i++)
        a[i] = _mm256_set1_ps((float)i);
    for (int r = 0; r < ROUNDS; r++)
#pragma GCC unroll 12
        for (int i = 0; i < CHAINS; i++)
            a[i] = _mm256_fmadd_ps(a[i], b, c);
    for (int i = 1; i < CHAINS; i++)
        a[0] = _mm256_add_ps(a[0], a[i]);
    sink = _mm256_cvtss_f32(a[0]);
    return 2.0 * 8 * CHAINS * ROUNDS;
}

#if __GNUC__ >= 11
/* The permission to use the unit belongs to the process: the device has asked for it. */
__attribute__((target("avx512f,amx-tile,amx-bf16"))) static double flops_amx(void)
{
    static const struct {
        unsigned char palette, rest[15];
        unsigned short bytes[16];
        unsigned char rows[16];
    } config = { .palette = 1, .bytes = { 64, 64, 64, 64, 64, 64, 64, 64 }, .rows = { 16, 16, 16, 16, 16, 16, 16, 16 } };
    unsigned short numbers[4][512]; /* zeros would take less power, at a higher clock */

    for (unsigned i = 0; i < 4 * 512; i++)
        numbers[i / 512][i % 512] = (unsigned short)(0x3F80 | (i * 2654435761u >> 16 & 0x807F));
    _tile_loadconfig(&config);
    _tile_loadd(4, numbers[0], 64);
    _tile_loadd(5, numbers[1], 64);
    _tile_loadd(6, numbers[2], 64);
    _tile_loadd(7, numbers[3], 64);
    for (int r = 0; r < ROUNDS / 4; r++) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_release();
    return 2.0 * 16 * 16 * 32 * 4 * (ROUNDS / 4);
}
#endif

struct peak {
    double (*flops)(void);
};

static void peak_run(void *arg, size_t index, int thread)
{
    const struct peak *p = arg;

    (void)index, (void)thread;
    (void)p->flops();
}

static double peak(int threads, double (*flops)(void))
{
    struct peak p = { flops };
    struct threads *all;
    struct err err;
    double best = 1e9, one = flops(), end = bench_now() + seconds;

    if (threads_new(threads, &all, &err) < 0)
        return 0;
    do {
        double t = bench_now();

        threads_each(all, (size_t)threads, peak_run, &p);
        t = bench_now() - t;
        best = t < best ? t : best;
    } while (bench_now() < end);
    threads_free(all);
    return one * threads / best * 1e-9;
}

/* ---- one layer ---- */
struct run {
    struct device *dev;
    struct conv cv;
    struct param w;
    struct operand x;
    struct tensor y, dx;
    float *dw;
    double *stats;
};

static void *memory(struct device *dev, size_t count)
{
    float *p = dev->ops->alloc(dev, count * sizeof(float));

    if (!p) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    for (size_t i = 0; i < count; i++)
        p[i] = (float)(i * 2654435761u % 1024) / 1024.0f - 0.5f;
    return p;
}

/* Halves of the words that memory() gives are numbers of about the same size. */
static struct tensor tensor_of(struct device *dev, int n, int h, int w, int c)
{
    struct tensor t = tensor_f32(NULL, n, h, w, c);

    t.dtype = dev->dtype;
    t.data = memory(dev, (tensor_count(&t) * dtype_bytes(t.dtype) + 3) / 4);
    if (t.dtype == DTYPE_BF16)
        for (size_t i = 0; i < tensor_count(&t); i++)
            ((uint16_t *)t.data)[i] = (uint16_t)(0x3C00 + i % 512);
    return t;
}

static void setup(struct run *r, struct device *dev, const struct layer *l)
{
    bool plain = l->plain || all_plain;
    int pad = l->size / 2, oh = (l->hw_h + 2 * pad - l->size) / l->stride + 1, ow = (l->hw_w + 2 * pad - l->size) / l->stride + 1;

    *r = (struct run){ .dev = dev, .cv = { l->stride, pad } };
    r->w = (struct param){ .k = l->k, .r = l->size, .s = l->size, .c = l->c, .version = 1 };
    r->w.count = (size_t)(l->k * l->size * l->size * l->c);
    r->w.data = memory(dev, r->w.count);
    r->dw = memory(dev, r->w.count);
    r->x.x = tensor_of(dev, l->n, l->hw_h, l->hw_w, l->c);
    r->dx = tensor_of(dev, l->n, l->hw_h, l->hw_w, l->c);
    r->y = tensor_of(dev, l->n, oh, ow, l->k);
    r->stats = plain ? NULL : memory(dev, 2 * (2 * (size_t)l->k + 1));
    if (l->c > 3 && !plain)
        r->x.act = (struct affine){ memory(dev, (size_t)l->c), memory(dev, (size_t)l->c), memory(dev, (size_t)l->c) };
}

static void drop(struct run *r)
{
    const struct device_ops *o = r->dev->ops;

    o->param_release(r->dev, &r->w);
    o->free(r->dev, r->w.data), o->free(r->dev, r->dw), o->free(r->dev, r->x.x.data), o->free(r->dev, r->dx.data);
    o->free(r->dev, r->y.data), o->free(r->dev, r->stats), o->free(r->dev, (void *)r->x.act.scale);
    o->free(r->dev, (void *)r->x.act.shift), o->free(r->dev, (void *)r->x.act.slope);
}

enum pass { FWD, BWD_DATA, BWD_WEIGHTS, PASSES };

static int pass_once(struct run *r, enum pass p, struct err *err)
{
    const struct conv_ops *conv = r->dev->on->conv;

    r->w.version++; /* as in training: derived forms are made anew in every step */
    if (p == FWD)
        return conv->fwd(r->dev, &r->y, &r->x, &r->cv, &r->w, NULL, r->stats ? &r->stats : NULL, 1, err);
    if (p == BWD_DATA)
        return conv->bwd_data(r->dev, &r->dx, 0.0f, &r->y, &r->cv, &r->w, 1, err);
    return conv->bwd_weights(r->dev, &r->dw, 0.0f, &r->x, &r->y, &r->cv, &r->w, 1, err);
}

/* The time of the best of at least five runs; with seconds=0 of the first. */
static double pass_time(struct run *r, enum pass p)
{
    double best = 1e9, end = bench_now() + seconds;

    for (int i = 0; i < (seconds > 0 ? 5 : 1) || bench_now() < end; i++) {
        struct err err;
        double t = bench_now();

        if (pass_once(r, p, &err) < 0) {
            fprintf(stderr, "%s\n", err.msg);
            exit(1);
        }
        t = bench_now() - t;
        best = t < best ? t : best;
    }
    return best;
}

static void bench(const struct device_ops *ops, int threads, double (*flops)(void), const char *only)
{
    struct device_options opt = { .threads = threads, .precision = precision };
    static const char *const passes[] = { [FWD] = "forward", [BWD_DATA] = "data", [BWD_WEIGHTS] = "weights" };
    double top, total = 0;
    struct device *dev;
    struct err err;

    if (ops->open(0, &opt, &dev, &err) < 0) {
        fprintf(stderr, "%s\n", err.msg);
        exit(1);
    }
#if __GNUC__ >= 11
    if (precision == PRECISION_BF16 && cpu_has_bf16_unit())
        flops = flops_amx;
#endif
    top = peak(threads, flops);
    printf("peak threads=%d isa=%s gflops=%.1f\n", threads, ops->name, top);
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        const struct layer *l = &layers[i];
        struct run r;

        if (only && !strstr(l->name, only))
            continue;
        setup(&r, dev, l);
        for (enum pass p = FWD; p < PASSES; p++) {
            double t, work = 2.0 * (double)tensor_pixels(&r.y) * (double)r.w.count;

            if ((p == BWD_DATA && l->c == 3) || (only_pass && strcmp(only_pass, passes[p]) != 0))
                continue; /* images need no gradient */
            t = pass_time(&r, p);
            total += t * l->weight;
            printf("conv threads=%d layer=%-20s pass=%-8s gflops=%-8.1f of_peak=%-6.3f ms=%.3f\n", threads, l->name, passes[p],
                   work / t * 1e-9, work / t * 1e-9 / top, t * 1e3);
            fflush(stdout);
        }
        drop(&r);
    }
    if (!only && !only_pass)
        printf("convs_of_step threads=%d ms=%.1f\n", threads, total * 1e3); /* yolov3-tiny, 416, batch 8 */
    ops->close(dev);
}

int main(int argc, char **argv)
{
    const char *only = bench_word(argc, argv, "layer", NULL), *isa = bench_word(argc, argv, "isa", "");
    int threads = (int)bench_number(argc, argv, "threads", 0), avx512 = __builtin_cpu_supports("x86-64-v4") && strcmp(isa, "avx2") != 0;
    const struct device_ops *ops = avx512 ? cpu_backend_avx512() : cpu_backend_avx2();
    double (*flops)(void) = avx512 ? flops_avx512 : flops_avx2;

    if (!__builtin_cpu_supports("x86-64-v3")) {
        printf("bench_conv: skipped, this CPU has neither AVX-512 nor AVX2\n");
        return 0;
    }
    seconds = bench_number(argc, argv, "seconds", seconds);
    only_pass = bench_word(argc, argv, "pass", NULL);
    precision = strcmp(bench_word(argc, argv, "precision", "fp32"), "bf16") == 0 ? PRECISION_BF16 : PRECISION_FP32;
    all_plain = bench_number(argc, argv, "plain", 0) != 0;
    bench(ops, threads > 0 ? threads : 1, flops, only);
    if (threads == 0)
        bench(ops, (int)sysconf(_SC_NPROCESSORS_ONLN), flops, only);
    return 0;
}
