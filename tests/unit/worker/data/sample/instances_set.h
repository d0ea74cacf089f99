/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/data/sample/instances_set.h - for tests of the task of
 * two-stage detectors: a small data set on disk, options, and access to the arrays of a batch. */
#pragma once
#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "proto/err.h"
#include "tests/stand/harness.h"
#include "worker/data/read/check.h"
#include "worker/data/image/image.h"
#include "worker/data/set/problems.h"
#include "worker/data/sample/instances.h"

struct fixture {
    char dir[TEMP_MAX], json[TEMP_MAX + 16];
    struct dataset *d;
};

__attribute__((unused)) static void write_picture(const char *dir, const char *name, int w, int h)
{
    uint8_t *rgb = malloc((size_t)w * (size_t)h * 3);
    char path[TEMP_MAX + 64];
    struct err err;

    for (size_t i = 0; i < (size_t)w * (size_t)h * 3; i++)
        rgb[i] = (uint8_t)(i * 37 ^ i >> 5 ^ (size_t)w ^ (size_t)name[0] << 2);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    assert_int_equal(image_write_png(path, rgb, w, h, &err), 0);
    free(rgb);
}

/* Sizes of pictures 0.png, 1.png ..., w and h, closed by 0. annotations: the text between the brackets; image i has the
 * id i + 1. */
__attribute__((unused)) static struct fixture open_set(const int (*sizes)[2], const char *annotations, bool masks)
{
    static struct problems p;
    struct fixture f = { 0 };
    char name[32];
    struct err err = { 0 };
    FILE *file;

    assert_non_null(mkdtemp(temp_path(f.dir, sizeof f.dir, "detd-instances-XXXXXX")));
    snprintf(f.json, sizeof f.json, "%s/a.json", f.dir);
    file = fopen(f.json, "w");
    fprintf(file, "{\"categories\": [{\"id\": 90, \"name\": \"z\"}, {\"id\": 7, \"name\": \"a\"}], \"images\": [");
    for (int i = 0; sizes[i][0]; i++) {
        snprintf(name, sizeof name, "%d.png", i);
        write_picture(f.dir, name, sizes[i][0], sizes[i][1]);
        fprintf(file, "%s{\"id\": %d, \"file_name\": \"%s\"}", i ? ", " : "", i + 1, name);
    }
    fprintf(file, "], \"annotations\": [%s]}", annotations);
    fclose(file);
    memset(&p, 0, sizeof p);
    if (check_split(&(struct check_options){ .annotations = f.json, .images = f.dir, .on_bad = BAD_ERROR, .threads = 1, .masks = masks },
                    &p, &f.d, &err) != 0)
        fail_msg("%s", err.msg);
    return f;
}

__attribute__((unused)) static void close_set(struct fixture *f)
{
    DIR *dir = opendir(f->dir);
    char path[TEMP_MAX + 300];
    struct dirent *e;

    while ((e = readdir(dir))) {
        snprintf(path, sizeof path, "%s/%s", f->dir, e->d_name);
        unlink(path);
    }
    closedir(dir);
    assert_int_equal(rmdir(f->dir), 0);
    dataset_free(f->d);
}

__attribute__((unused)) static struct instances_options plain(void)
{
    return (struct instances_options){ .seed = 9, .nsizes = 1, .size = { 60 }, .longest = 100, .grain = 32 };
}

__attribute__((unused)) static struct task *task_of(const struct dataset *d, const struct instances_options *o)
{
    struct task *t = NULL;
    struct err err = { 0 };

    if (instances_open(d, o, &t, &err) < 0)
        fail_msg("%s", err.msg);
    return t;
}

__attribute__((unused)) static const void *array(const struct batch *b, int v, const char *name)
{
    return b->shard[v].array[batch_array_of(b->form, name)];
}

__attribute__((unused)) static const int32_t *offsets(const struct batch *b, int v, const char *name)
{
    return b->shard[v].offset[batch_list_of(b->form, name)];
}

__attribute__((unused)) static void assert_box(const struct batch *b, int row, float x1, float y1, float x2, float y2)
{
    const float *box = (const float *)array(b, 0, "truth.box") + 4 * row;

    if (box[0] != x1 || box[1] != y1 || box[2] != x2 || box[3] != y2)
        fail_msg("box %d: %.9g %.9g %.9g %.9g", row, box[0], box[1], box[2], box[3]);
}

/* The picture as resize() makes it, and nothing around it. */
__attribute__((unused)) static void check_picture(const struct fixture *f, const struct batch *b, int i, const struct resizing *z)
{
    const struct shard_batch *s = &b->shard[0];
    const int32_t *size = (const int32_t *)array(b, 0, "size") + 2 * i;
    size_t pitch = (size_t)s->canvas.w * 3, bytes = pitch * (size_t)s->canvas.h;
    const uint8_t *got = (const uint8_t *)array(b, 0, "image") + bytes * (size_t)i;
    struct decoder *dec = decoder_new();
    uint8_t *want = calloc(1, bytes);
    void *scratch = malloc(resize_scratch(z));
    char path[DATASET_MAX_PATH];
    struct image img;
    struct err err;

    assert_true(size[0] == z->to.h && size[1] == z->to.w);
    assert_int_equal(image_read(dec, dataset_path(f->d, s->index[i], path), &img, &err), 0);
    resize(z, img.rgb, want, pitch, scratch);
    assert_memory_equal(got, want, bytes);
    decoder_free(dec);
    free(scratch);
    free(want);
}

#define POLYGONS                                                                                                                \
    "{\"id\": 1, \"image_id\": 1, \"category_id\": 90, \"bbox\": [4, 2, 10.5, 6], \"segmentation\": [[4, 2, 14.5, 2, 14.5, 8]," \
    "[-3, 25, 2, 19, 1, 1, 0, 4]]}, {\"id\": 2, \"image_id\": 1, \"category_id\": 7, \"bbox\": [0, 0, 40, 20], \"iscrowd\": 1," \
    "\"segmentation\": {\"size\": [20, 40], \"counts\": [0, 800]}}, {\"id\": 3, \"image_id\": 2, \"category_id\": 7, \"bbox\":" \
    "[1, 2, 3, 4], \"segmentation\": {\"size\": [30, 10], \"counts\": [32, 2, 28, 3, 235]}}, {\"id\": 4, \"image_id\": 1, "     \
    "\"category_id\": 7, \"bbox\": [30, 15, 10, 5], \"segmentation\": [[30, 15, 40, 15, 40, 20, 30, 20]]}"

#define OBJECT(id, image, crowd, w, h) \
    "{\"id\": " #id ", \"image_id\": " #image ", \"category_id\": 7, \"iscrowd\": " #crowd ", \"bbox\": [0, 0, " #w ", " #h "]}"

__attribute__((unused)) static struct instances_options drawn(void)
{
    return (struct instances_options){ .train = true,
                                       .seed = 4,
                                       .nsizes = 3,
                                       .size = { 32, 48, 64 },
                                       .longest = 80,
                                       .grain = 32,
                                       .flip = 0.5f,
                                       .groups = true,
                                       .keep_empty = true };
}
