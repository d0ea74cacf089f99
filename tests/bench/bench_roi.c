/* SPDX-License-Identifier: Apache-2.0 */ /* tests/bench/bench_roi.c - RoIAlign of a pyramid's four levels on the CPU
 * device, forward and backward. uses: proto worker/core cpu Usage: bench_roi [threads=2] [images=2] [height=480]
 * [width=640] [channels=256] [repeats=5] [isa=avx512|avx2]
 * Boxes are those of peer_roi.py: a side of 16 to 512 pixels, a shape of 1 : 2 to 2 : 1, anywhere. A record "roi" for
 * each head and flavor: best times. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "tests/bench/bench.h"
#include "worker/core/device.h"
#include "worker/ops/families.h"

const struct device_ops *cpu_backend_avx512(void);
const struct device_ops *cpu_backend_avx2(void);
const struct device_ops *cpu_backend_generic(void);

enum { LEVELS = 4 };

static const struct head {
    const char *name;
    int rows, pool; /* of an image */
} heads[] = { { "box", 512, 7 }, { "mask", 128, 14 } };

static int images, height, width, channels, repeats;
static struct device *dev;

static void die(const char *why)
{
    fprintf(stderr, "bench_roi: %s\n", why);
    exit(1);
}

static void *take(size_t bytes)
{
    void *p = dev->ops->alloc(dev, bytes);

    if (!p)
        die("out of memory");
    return p;
}

static float *noise(size_t n)
{
    float *x = take(n * sizeof *x);

    for (size_t i = 0; i < n; i++)
        x[i] = (float)bench_uniform((uint32_t)i) - 0.5f;
    return x;
}

static float clip(double x, int most)
{
    return (float)(x < 0 ? 0 : x > most ? most : x);
}

static struct roi_rows rows_of(const struct head *h)
{
    int cap = h->rows * images;
    float *box = take((size_t)cap * 4 * sizeof *box);
    int32_t *image = take((size_t)cap * sizeof *image), *count = take(sizeof *count);

    for (int r = 0; r < cap; r++) {
        const uint32_t at = (uint32_t)r * 4;
        double side = 16, shape = 0.5 + bench_uniform(at + 1), x = bench_uniform(at + 2) * width, y = bench_uniform(at + 3) * height;

        for (double u = bench_uniform(at) * 5; u > 0; u -= 1) /* 16 * 2^5u, piece by piece */
            side *= u < 1 ? 1 + u : 2;
        box[4 * r] = clip(x - side * shape / 2, width);
        box[4 * r + 1] = clip(y - side / shape / 2, height);
        box[4 * r + 2] = clip(x + side * shape / 2, width);
        box[4 * r + 3] = clip(y + side / shape / 2, height);
        image[r] = r / h->rows;
    }
    *count = cap;
    return (struct roi_rows){ box, image, count, cap };
}

static void run(const struct head *h, int sampling)
{
    struct roi_align roi = { .nlevels = LEVELS,
                             .first_level = 2,
                             .canonical_level = 4,
                             .canonical_side = 224,
                             .pool = h->pool,
                             .sampling = sampling,
                             .aligned = sampling == 0 };
    struct roi_rows rows = rows_of(h);
    struct tensor x[LEVELS], dx[LEVELS], y;
    const struct tensor *in[LEVELS];
    struct tensor *back[LEVELS];
    const float beta[LEVELS] = { 0 };
    double fwd = 1e9, bwd = 1e9;
    struct err err;

    for (int l = 0; l < LEVELS; l++) {
        roi.scale[l] = 0.25f / (float)(1 << l);
        x[l] = tensor_f32(NULL, images, height >> (2 + l), width >> (2 + l), channels);
        dx[l] = x[l];
        x[l].data = noise(tensor_count(&x[l]));
        dx[l].data = noise(tensor_count(&dx[l]));
        in[l] = &x[l];
        back[l] = &dx[l];
    }
    y = tensor_f32(NULL, rows.cap, h->pool, h->pool, channels);
    y.data = noise(tensor_count(&y));
    for (int i = 0; i < repeats; i++) {
        double t0 = bench_now(), t1, t2;

        if (dev->on->roi->align_fwd(dev, &roi, &y, in, &rows, 1, &err) < 0)
            die(err.msg);
        t1 = bench_now();
        if (dev->on->roi->align_bwd(dev, &roi, back, beta, &y, &rows, 1, &err) < 0)
            die(err.msg);
        t2 = bench_now();
        fwd = t1 - t0 < fwd ? t1 - t0 : fwd;
        bwd = t2 - t1 < bwd ? t2 - t1 : bwd;
    }
    printf("roi head=%s flavor=%s rows=%d pool=%d fwd_ms=%.2f bwd_ms=%.2f\n", h->name, sampling ? "tv" : "d2", rows.cap, h->pool, fwd * 1e3,
           bwd * 1e3);
    for (int l = 0; l < LEVELS; l++) {
        dev->ops->free(dev, x[l].data);
        dev->ops->free(dev, dx[l].data);
    }
    dev->ops->free(dev, y.data);
    dev->ops->free(dev, (void *)rows.box);
    dev->ops->free(dev, (void *)rows.image);
    dev->ops->free(dev, (void *)rows.count);
}

int main(int argc, char **argv)
{
    static const struct device_ops *(*const backend[])(void) = { cpu_backend_avx512, cpu_backend_avx2, cpu_backend_generic };
    struct device_options options = { .threads = bench_count(argc, argv, "threads", 2) };
    const char *isa = bench_word(argc, argv, "isa", "");
    struct err err;

    images = bench_count(argc, argv, "images", 2);
    height = bench_count(argc, argv, "height", 480);
    width = bench_count(argc, argv, "width", 640);
    channels = bench_count(argc, argv, "channels", 256);
    repeats = bench_count(argc, argv, "repeats", 5);
    for (size_t i = 0; i < sizeof backend / sizeof *backend && !dev; i++)
        if (strstr(backend[i]()->name, isa) && backend[i]()->available(&err) == 0 && backend[i]()->open(0, &options, &dev, &err) < 0)
            die(err.msg);
    if (!dev)
        die("no such build runs on this CPU");
    for (size_t h = 0; h < sizeof heads / sizeof *heads; h++)
        for (int sampling = 0; sampling <= 2; sampling += 2)
            run(&heads[h], sampling);
    dev->ops->close(dev);
    return 0;
}
