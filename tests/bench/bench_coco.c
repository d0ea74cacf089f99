/* SPDX-License-Identifier: Apache-2.0 */ /* tests/bench/bench_coco.c - uses: proto worker/core worker/mask worker/data
 * Reading a large COCO file: boxes alone, and with the outlines kept. The file is made up, in COCO's proportions: about
 * seven objects an image, outlines of about forty points with two decimals.
 *     bench_coco file=PATH [mb=500] [masks=0]
 * The file is made where it is not there yet. A record "coco": seconds and MiB a second of reading, size of the file,
 * and the most memory held. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "proto/err.h"
#include "tests/bench/bench.h"
#include "worker/data/read/coco/coco.h"
#include "worker/data/set/problems.h"

enum { W = 640, H = 480, CLASSES = 80, OBJECTS = 7, POINTS = 40 };

/* A single object: its outline goes round its box. */
static void put_object(FILE *f, int id, int image, uint32_t *seed)
{
    double w = 20 + 200 * bench_uniform(*seed), h = 20 + 150 * bench_uniform(*seed + 1);
    double x = (W - w) * bench_uniform(*seed + 2), y = (H - h) * bench_uniform(*seed + 3);

    fprintf(f, "%s{\"segmentation\": [[", id > 1 ? ", " : "");
    for (int k = 0; k < POINTS; k++) {
        int side = k / (POINTS / 4);
        double t = (k % (POINTS / 4)) / (POINTS / 4.0);

        fprintf(f, "%s%.2f, %.2f", k ? ", " : "",
                x + w * (side == 0   ? t
                         : side == 1 ? 1
                         : side == 2 ? 1 - t
                                     : 0),
                y + h * (side == 0   ? 0
                         : side == 1 ? t
                         : side == 2 ? 1
                                     : 1 - t));
    }
    fprintf(f, "]], \"area\": %.4f, \"iscrowd\": 0, \"image_id\": %d, \"bbox\": [%.2f, %.2f, %.2f, %.2f], \"category_id\": %u, \"id\": %d}",
            w * h, image, x, y, w, h, 1 + bench_noise(*seed + 4) % CLASSES, id);
    *seed += 5;
}

static int make(const char *path, int64_t bytes)
{
    FILE *f = fopen(path, "w");
    uint32_t seed = 1;
    int images = 0, id = 0;

    if (!f)
        return -1;
    fputs("{\"categories\": [", f);
    for (int c = 1; c <= CLASSES; c++)
        fprintf(f, "%s{\"supercategory\": \"thing\", \"id\": %d, \"name\": \"class %d\"}", c > 1 ? ", " : "", c, c);
    fputs("], \"annotations\": [", f);
    for (; ftell(f) < bytes; images++)
        for (int k = 0; k < OBJECTS; k++, id++)
            put_object(f, id + 1, images + 1, &seed);
    fputs("], \"images\": [", f);
    for (int i = 1; i <= images; i++)
        fprintf(f, "%s{\"license\": 4, \"file_name\": \"%012d.jpg\", \"height\": %d, \"width\": %d, \"id\": %d}", i > 1 ? ", " : "", i, H,
                W, i);
    fputs("]}\n", f);
    return fclose(f);
}

int main(int argc, char **argv)
{
    const char *path = bench_word(argc, argv, "file", NULL);
    int64_t bytes = (int64_t)(bench_number(argc, argv, "mb", 500) * 1e6);
    bool masks = bench_number(argc, argv, "masks", 0) != 0;
    static struct problems problems;
    struct dataset *d;
    struct stat st;
    struct err err;
    double start;
    int rc;

    if (!path) {
        fprintf(stderr, "bench_coco: file=PATH is needed\n");
        return 2;
    }
    if (stat(path, &st) < 0 && (make(path, bytes) < 0 || stat(path, &st) < 0)) {
        perror(path);
        return 1;
    }
    start = bench_now();
    rc = coco_read(&(struct coco_options){ .annotations = path, .images = ".", .on_bad = BAD_ERROR, .masks = masks }, &problems, &d, &err);
    start = bench_now() - start;
    if (rc < 0) {
        fprintf(stderr, "bench_coco: %s\n", err.msg);
        return 1;
    }
    printf("coco masks=%d mib=%.2f seconds=%.4f mib_per_s=%.1f boxes=%lld peak_mib=%.1f\n", masks, (double)st.st_size / 1048576, start,
           (double)st.st_size / 1048576 / start, (long long)d->offset[d->nimages], bench_peak_mib());
    dataset_free(d);
    return 0;
}
