/* SPDX-License-Identifier: Apache-2.0 */ /* tests/bench/bench_warp.c - a picture, and features, as another camera sees
 * them, there and back, on the CPU device. uses: proto worker/core cpu Usage: bench_warp [threads=2] [images=4]
 * [width=320] [height=192] [repeats=9] [isa=avx512|avx2]
 * Depths and motion are those of peer_depth.py. A record "warp" each: best time, in which positions are computed from
 * depth and motion, too. */
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

static int images, repeats;
static struct device *dev;

static void die(const char *why)
{
    fprintf(stderr, "bench_warp: %s\n", why);
    exit(1);
}

/* [images, h, w, c] in [lo, hi]; caller frees the data. */
static struct tensor noise(int h, int w, int c, double lo, double hi)
{
    struct tensor x = tensor_f32(NULL, images, h, w, c);
    float *data = dev->ops->alloc(dev, tensor_count(&x) * sizeof *data);

    if (!data)
        die("out of memory");
    for (size_t i = 0; i < tensor_count(&x); i++)
        data[i] = (float)(lo + (hi - lo) * bench_uniform((uint32_t)i));
    x.data = data;
    return x;
}

/* Sideways by a tenth, with depths of 2.4 to 4.8. */
static void move(struct tensor *pose, float *camera, int w, int h)
{
    for (int i = 0; i < images; i++) {
        float *p = (float *)pose->data + i * POSE_OUT;

        memset(p, 0, POSE_OUT * sizeof *p);
        p[0] = p[5] = p[10] = 1;
        p[3] = 0.1f;
        memcpy(camera + i * CAMERA_NUMBERS, (float[]){ 0.9f * (float)w, 0.9f * (float)w, 0.5f * (float)w, 0.5f * (float)h },
               CAMERA_NUMBERS * sizeof *camera);
    }
}

static void run(const char *what, int h, int w, int channels, bool learns)
{
    const struct warp how = { 0.1f, 100, true, 1 };
    struct tensor source = noise(h, w, channels, 0, 1), disp = noise(h, w, 1, 0.02, 0.04), pose = noise(1, 1, POSE_OUT, 0, 0),
                  y = noise(h, w, channels, 0, 0), dy = noise(h, w, channels, 0, 1), dsource = noise(h, w, channels, 0, 0),
                  ddisp = noise(h, w, 1, 0, 0), dpose = noise(1, 1, POSE_OUT, 0, 0), camera = noise(1, 1, CAMERA_NUMBERS, 0, 0);
    struct tensor *const all[] = { &source, &disp, &pose, &y, &dy, &dsource, &ddisp, &dpose, &camera };
    const float *of = camera.data;
    const struct warp_in in = { &source, &disp, &pose, &of };
    double best = 1e9;
    struct err err;

    move(&pose, camera.data, w, h);
    for (int i = 0; i < repeats; i++) {
        double start = bench_now(), took;

        if (dev->on->warp->fwd(dev, &how, &y, &in, 1, &err) < 0 ||
            dev->on->warp->bwd(dev, &how, &ddisp, 0, &dpose, 0, &dy, &in, 1, &err) < 0 ||
            (learns && dev->on->warp->bwd_source(dev, &how, &dsource, 0, &dy, &in, 1, &err) < 0))
            die(err.msg);
        took = bench_now() - start;
        best = took < best ? took : best;
    }
    printf("warp what=%s ms=%.3f\n", what, best * 1e3);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        dev->ops->free(dev, all[i]->data);
}

int main(int argc, char **argv)
{
    static const struct device_ops *(*const backend[])(void) = { cpu_backend_avx512, cpu_backend_avx2, cpu_backend_generic };
    struct device_options options = { .threads = bench_count(argc, argv, "threads", 2) };
    const char *isa = bench_word(argc, argv, "isa", "");
    int width = bench_count(argc, argv, "width", 320), height = bench_count(argc, argv, "height", 192);
    struct err err;

    images = bench_count(argc, argv, "images", 4);
    repeats = bench_count(argc, argv, "repeats", 9);
    for (size_t i = 0; i < sizeof backend / sizeof *backend && !dev; i++)
        if (strstr(backend[i]()->name, isa) && backend[i]()->available(&err) == 0 && backend[i]()->open(0, &options, &dev, &err) < 0)
            die(err.msg);
    if (!dev)
        die("no such build runs on this CPU");
    run("picture", height, width, 3, false);
    run("features", height / 2, width / 2, 64, true);
    dev->ops->close(dev);
    return 0;
}
