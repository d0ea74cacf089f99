/* tests/bench/bench_loader.c - uses: proto worker/core worker/data
 * Images per second and core: JPEG file to augmented network input. pillow_loader.py does the same work with Pillow and NumPy.
 *     bench_loader ANNOTATIONS IMAGES [SIZE [REPEATS]] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "proto/err.h"
#include "worker/data/coco.h"
#include "worker/data/image.h"
#include "worker/data/loader.h"
#include "worker/data/problems.h"

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
    struct loader_options o = {
        .train = true,
        .seed = 1,
        .batch = 8,
        .shards = 1,
        .shard_hi = 1,
        .waves = 1,
        .first_step = 1,
        .steps = (int64_t)d->nimages * repeats / 8,
        .size_min = size,
        .size_max = size,
        .augment = { .flip = .5f, .jitter = .3f, .hue = colour ? .1f : 0, .saturation = colour ? 1.5f : 1, .exposure = colour ? 1.5f : 1 },
        .workers = 1,
        .cache_bytes = cache_bytes,
    };
    struct loader *l;
    struct batch b;
    struct err err = { 0 };
    double start;
    long images = 0;

    if (loader_open(d, &o, &l, &err) < 0) {
        fprintf(stderr, "%s\n", err.msg);
        exit(1);
    }
    start = cpu_seconds();
    while (loader_next(l, &b, &err) == 0)
        images += b.shard[0].n;
    start = cpu_seconds() - start;
    loader_close(l);
    return (double)images / start;
}

int main(int argc, char **argv)
{
    static struct problems problems;
    int size = argc > 3 ? atoi(argv[3]) : 416, repeats = argc > 4 ? atoi(argv[4]) : 5;
    struct dataset *d;
    struct err err = { 0 };

    if (argc < 3 || size < 1 || repeats < 1 || coco_read(argv[1], argv[2], BAD_SKIP, &problems, &d, &err) < 0) {
        fprintf(stderr, "%s\n", argc < 3 ? "usage: bench_loader ANNOTATIONS IMAGES [SIZE [REPEATS]]" : err.msg);
        return 1;
    }
    printf("decode               %7.0f images/s per core\n", decode_rate(d, repeats));
    printf("decode+place         %7.0f\n", loader_rate(d, size, repeats, false, 0));
    printf("decode+place+colour  %7.0f\n", loader_rate(d, size, repeats, true, 0));
    printf("cached place+colour  %7.0f\n", loader_rate(d, size, 2 * repeats, true, (size_t)1 << 30));
    dataset_free(d);
    return 0;
}
