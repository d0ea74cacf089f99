/* SPDX-License-Identifier: Apache-2.0 */ /* uses: proto worker/core worker/mask worker/data
 * tests/bench/bench_loader.c - images per second and core: JPEG file to augmented network input. pillow_loader.py does
 * the same work with Pillow and NumPy.
 *     bench_loader annotations=FILE images=FOLDER [size=416] [repeats=5]
 * A record "loader" a kind of work; images_per_s are those of one core. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "proto/err.h"
#include "tests/bench/bench.h"
#include "worker/data/read/coco/coco.h"
#include "worker/data/image/image.h"
#include "worker/data/loader.h"
#include "worker/data/set/problems.h"
#include "worker/data/sample/boxes.h"

static double cpu_seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double decode_rate(const struct dataset *d, int repeats)
{
    struct decoder *dec = decoder_new();
    char path[DATASET_MAX_PATH];
    struct image img;
    struct err err = { 0 };
    double start = cpu_seconds();

    for (int r = 0; r < repeats; r++)
        for (int i = 0; i < d->nimages; i++)
            if (image_read(dec, dataset_path(d, i, path), &img, &err) < 0)
                fprintf(stderr, "%s\n", err.msg);
    start = cpu_seconds() - start;
    decoder_free(dec);
    return repeats * d->nimages / start;
}

static double loader_rate(const struct dataset *d, int size, int repeats, bool colour, size_t cache_bytes)
{
    const struct boxes_options boxes = {
        .train = true,
        .seed = 1,
        .steps = (int64_t)d->nimages * repeats / 8,
        .scales = { { size, size }, size, size, size, size },
        .augment = { .flip = .5f, .jitter = .3f, .hue = colour ? .1f : 0, .saturation = colour ? 1.5f : 1, .exposure = colour ? 1.5f : 1 },
        .cache_bytes = cache_bytes,
    };
    const struct loader_options o = {
        .train = true,
        .batch = 8,
        .shards = 1,
        .shard_hi = 1,
        .waves = 1,
        .first_step = 1,
        .steps = boxes.steps,
        .workers = 1,
    };
    struct task *task;
    struct loader *l;
    struct batch b;
    struct err err = { 0 };
    double start;
    long images = 0;

    if (boxes_open(d, &boxes, &task, &err) < 0 || loader_open(task, &o, &l, &err) < 0) {
        fprintf(stderr, "%s\n", err.msg);
        exit(1);
    }
    start = cpu_seconds();
    while (loader_next(l, &b, &err) == 0)
        images += b.shard[0].n;
    start = cpu_seconds() - start;
    loader_close(l);
    task_free(task);
    return (double)images / start;
}

int main(int argc, char **argv)
{
    static struct problems problems;
    const char *annotations = bench_word(argc, argv, "annotations", NULL), *images = bench_word(argc, argv, "images", NULL);
    int size = bench_count(argc, argv, "size", 416), repeats = bench_count(argc, argv, "repeats", 5);
    struct dataset *d;
    struct err err = { 0 };

    if (!annotations || !images ||
        coco_read(&(struct coco_options){ .annotations = annotations, .images = images, .on_bad = BAD_SKIP }, &problems, &d, &err) < 0) {
        fprintf(stderr, "bench_loader: %s\n", annotations && images ? err.msg : "annotations= and images= say what is read");
        return 1;
    }
    printf("loader work=decode images_per_s=%.1f\n", decode_rate(d, repeats));
    printf("loader work=decode+place images_per_s=%.1f\n", loader_rate(d, size, repeats, false, 0));
    printf("loader work=decode+place+colour images_per_s=%.1f\n", loader_rate(d, size, repeats, true, 0));
    printf("loader work=cached+place+colour images_per_s=%.1f\n", loader_rate(d, size, 2 * repeats, true, (size_t)1 << 30));
    dataset_free(d);
    return 0;
}
