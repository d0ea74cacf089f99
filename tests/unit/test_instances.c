/* tests/unit/test_instances.c - uses: proto worker/core worker/mask worker/data worker/data/sample
 * The task of two-stage detectors: what a sample is, to the number, and that it is the same for any ranks, waves, threads and resumes. */
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
#include "proto/jobspec.h"
#include "tests/harness.h"
#include "worker/core/stress.h"
#include "worker/data/check.h"
#include "worker/data/coco.h"
#include "worker/data/image.h"
#include "worker/data/loader.h"
#include "worker/data/mask_resize.h"
#include "worker/data/problems.h"
#include "worker/data/sample/instances.h"
#include "worker/mask/rle.h"

#define DATA "../shared/data"

static uint64_t random_state = 88172645463325252;

static int below(int n)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (int)(random_state % (uint64_t)n);
}

/* ---- a mask in a picture of another size ---- */

/* Column-major bitmap. */
static void fill_runs(const int32_t *run, int64_t n, uint8_t *bits)
{
    for (int64_t i = 0; i < n; i++)
        for (int k = 0; k < run[i]; k++)
            *bits++ = (uint8_t)(i % 2);
}

static void check_resized(const struct resizing *z, const int32_t *run, int64_t n)
{
    int64_t parts = mask_column_parts(run, n, z->h), most = mask_resized_most(parts, z->w, z->to.w), got;
    size_t from = (size_t)z->h * (size_t)z->w, to = (size_t)z->to.h * (size_t)z->to.w;
    uint8_t *bits = malloc(from), *want = malloc(to), *back = malloc(to);
    void *scratch = malloc(mask_resize_scratch(parts, z));
    int32_t *ret = malloc((size_t)most * sizeof *ret);
    int64_t sum = 0;

    fill_runs(run, n, bits);
    for (int t = 0; t < z->to.w; t++)
        for (int u = 0; u < z->to.h; u++)
            want[t * z->to.h + u] = bits[resize_nearest_column(z, t) * z->h + resize_nearest_row(z, u)];
    got = mask_resize(run, n, z, scratch, ret, most);
    assert_in_range(got, 1, most);
    for (int64_t i = 0; i < got; i++) {
        assert_true(ret[i] > 0 || (i == 0 && ret[i] == 0));
        sum += ret[i];
    }
    assert_int_equal(sum, to);
    fill_runs(ret, got, back);
    assert_memory_equal(back, want, to);
    ret[0] = -5; /* with too little room nothing is written beyond it, and all are counted */
    assert_int_equal(mask_resize(run, n, z, scratch, ret, 0), got);
    assert_int_equal(ret[0], -5);
    free(ret);
    free(scratch);
    free(back);
    free(want);
    free(bits);
}

static void runs_are_the_bitmap_s(void **state)
{
    int32_t run[64];

    (void)state;
    for (int round = 0; round < 600; round++) {
        int h = 1 + below(17), w = 1 + below(17), left = h * w, n = 0, longest = 1 + below(left);

        while (left > 0 && n < 60) {
            run[n] = below(longest + 1);
            run[n] = run[n] > left ? left : run[n];
            left -= run[n++];
        }
        if (left > 0)
            run[n++] = left;
        for (int k = 0; k < 4; k++) {
            const struct resizing z = { k & 1 ? RESIZE_TV : RESIZE_D2, h, w, { 1 + below(40), 1 + below(40) }, k & 2 };

            check_resized(&z, run, n);
        }
    }
}

/* ---- a data set ---- */

struct fixture {
    char dir[TEMP_MAX], json[TEMP_MAX + 16];
    struct dataset *d;
};

static void write_picture(const char *dir, const char *name, int w, int h)
{
    uint8_t *rgb = malloc((size_t)w * (size_t)h * 3);
    char path[TEMP_MAX + 64];
    struct err err;

    for (size_t i = 0; i < (size_t)w * (size_t)h * 3; i++)
        rgb[i] = (uint8_t)(i * 37 ^ i >> 5 ^ (size_t)w);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    assert_int_equal(image_write_png(path, rgb, w, h, &err), 0);
    free(rgb);
}

/* Sizes of pictures 0.png, 1.png ..., w and h, closed by 0. annotations: the text between the brackets; image i has the id i + 1. */
static struct fixture open_set(const int (*sizes)[2], const char *annotations, bool masks)
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
    if (check_split(&(struct check_options){ f.json, f.dir, BAD_ERROR, 1, masks }, &p, &f.d, &err) != 0)
        fail_msg("%s", err.msg);
    return f;
}

static void close_set(struct fixture *f)
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

static struct instances_options plain(void)
{
    return (struct instances_options){ .seed = 9, .nsizes = 1, .size = { 60 }, .longest = 100, .grain = 32 };
}

static struct task *task_of(const struct dataset *d, const struct instances_options *o)
{
    struct task *t = NULL;
    struct err err = { 0 };

    if (instances_open(d, o, &t, &err) < 0)
        fail_msg("%s", err.msg);
    return t;
}

static const void *array(const struct batch *b, int v, const char *name)
{
    return b->shard[v].array[batch_array_of(b->form, name)];
}

static const int32_t *offsets(const struct batch *b, int v, const char *name)
{
    return b->shard[v].offset[batch_list_of(b->form, name)];
}

static void assert_box(const struct batch *b, int row, float x1, float y1, float x2, float y2)
{
    const float *box = (const float *)array(b, 0, "truth.box") + 4 * row;

    if (box[0] != x1 || box[1] != y1 || box[2] != x2 || box[3] != y2)
        fail_msg("box %d: %.9g %.9g %.9g %.9g", row, box[0], box[1], box[2], box[3]);
}

/* The picture as resize() makes it, and nothing around it. */
static void check_picture(const struct fixture *f, const struct batch *b, int i, const struct resizing *z)
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

/* 40 x 20 becomes 100 x 50 (the longer side decides), 10 x 30 becomes 33 x 100; the shard's canvas holds both. */
static void a_sample_to_the_number(void **state)
{
    static const int sizes[][2] = { { 40, 20 }, { 10, 30 }, { 0, 0 } };
    static const double want[7][2] = { { 10, 5 }, { 36.25, 5 }, { 36.25, 20 }, { -7.5, 62.5 }, { 5, 47.5 }, { 2.5, 2.5 }, { 0, 10 } };
    struct fixture f = open_set(sizes, POLYGONS, true);
    const struct instances_options o = plain();
    const struct loader_options l = { .batch = 2, .ranks = 1, .workers = 2 };
    struct task *t = task_of(f.d, &o);
    const double(*xy)[2];
    const int32_t *cls;
    struct loader *loader;
    struct batch b;
    struct err err;

    (void)state;
    assert_true(t->largest.h == 128 && t->largest.w == 128);
    assert_int_equal(loader_open(t, &l, &loader, &err), 0);
    assert_int_equal(loader_next(loader, &b, &err), 0);
    assert_true(b.shard[0].canvas.h == 128 && b.shard[0].canvas.w == 128);
    check_picture(&f, &b, 0, &(struct resizing){ RESIZE_D2, 20, 40, { 50, 100 }, false });
    check_picture(&f, &b, 1, &(struct resizing){ RESIZE_D2, 30, 10, { 100, 33 }, false });
    assert_true(offsets(&b, 0, "truth")[1] == 2 && offsets(&b, 0, "truth")[2] == 3);
    cls = array(&b, 0, "truth.class");
    assert_true(cls[0] == 1 && cls[1] == 0 && cls[2] == 0);
    assert_box(&b, 0, 10, 5, 36.25f, 20);
    assert_box(&b, 1, 75, 37.5f, 100, 50);
    assert_box(&b, 2, (float)(33 / 10.), (float)(2 * (100 / 30.)), (float)(4 * (33 / 10.)), (float)(6 * (100 / 30.)));
    assert_true(offsets(&b, 0, "polygon")[1] == 2 && offsets(&b, 0, "polygon")[2] == 3 && offsets(&b, 0, "polygon")[3] == 3);
    assert_true(offsets(&b, 0, "point")[1] == 3 && offsets(&b, 0, "point")[2] == 7 && offsets(&b, 0, "point")[3] == 11);
    xy = array(&b, 0, "point.xy");
    assert_memory_equal(xy, want, sizeof want);
    assert_true(offsets(&b, 0, "run")[2] == 0 && offsets(&b, 0, "run")[3] == b.shard[0].rows[batch_list_of(b.form, "run")]);
    assert_true(offsets(&b, 0, "run")[3] > 0);
    loader_close(loader);
    task_free(t);
    close_set(&f);
}

/* Of runs: the same pixels as the bitmap's, mirrored or not; of polygons under tv: those of the polygons drawn before. */
static void check_runs(const struct batch *b, int row, const int32_t *run, int64_t n, const struct resizing *z)
{
    const int32_t *offset = offsets(b, 0, "run"), *got = (const int32_t *)array(b, 0, "run.length") + offset[row];
    int32_t *want = malloc(sizeof *want * 100000);
    void *scratch = malloc(mask_resize_scratch(mask_column_parts(run, n, z->h), z));
    int64_t count = mask_resize(run, n, z, scratch, want, 100000);

    assert_int_equal(offset[row + 1] - offset[row], count);
    assert_memory_equal(got, want, (size_t)count * sizeof *want);
    free(scratch);
    free(want);
}

static void flavors_and_mirrors(void **state)
{
    static const int sizes[][2] = { { 40, 20 }, { 10, 30 }, { 0, 0 } };
    static const int32_t runs[] = { 32, 2, 28, 3, 235 };
    static const double polygon[][2] = { { 30, 15 }, { 40, 15 }, { 40, 20 }, { 30, 20 } };
    static const int64_t first[] = { 0, 4 };
    struct fixture f = open_set(sizes, POLYGONS, true);
    struct rle drawn = { 0 };
    struct err err;

    (void)state;
    assert_int_equal(rle_from_polygons(&drawn, 20, 40, polygon, first, 1, &err), 0);
    for (enum resize_rule rule = RESIZE_D2; rule <= RESIZE_TV; rule++)
        for (int flip = 0; flip < 2; flip++) {
            struct instances_options o = plain();
            const struct loader_options l = {
                .train = true, .batch = 1, .shards = 1, .shard_hi = 1, .waves = 1, .first_step = 1, .steps = 2, .workers = 1
            };
            struct task *t;
            struct loader *loader;
            struct batch b;

            o.train = true;
            o.rule = rule;
            o.flip = (float)flip;
            t = task_of(f.d, &o);
            assert_int_equal(loader_open(t, &l, &loader, &err), 0);
            for (int k = 0; k < 2; k++) {
                assert_int_equal(loader_next(loader, &b, &err), 0);
                if (b.shard[0].index[0] == 1) {
                    const struct resizing z = { rule, 30, 10, { rule == RESIZE_TV ? 99 : 100, 33 }, flip }; /* 100 / 30 is low in float32 */
                    float x1 = flip ? 33 - 4 * 3.3f : 3.3f, x2 = flip ? 33 - 3.3f : 4 * 3.3f;
                    const float *box = array(&b, 0, "truth.box");

                    assert_true(b.shard[0].canvas.h == 128 && b.shard[0].canvas.w == 64);
                    check_picture(&f, &b, 0, &z);
                    check_runs(&b, 0, runs, 5, &z);
                    assert_float_equal(box[0], x1, 1e-5);
                    assert_float_equal(box[2], x2, 1e-5);
                    continue;
                }
                const struct resizing z = { rule, 20, 40, { 50, 100 }, flip };

                assert_true(b.shard[0].canvas.h == 64 && b.shard[0].canvas.w == 128);
                check_picture(&f, &b, 0, &z);
                assert_box(&b, 0, flip ? 63.75f : 10, 5, flip ? 90 : 36.25f, 20);
                assert_box(&b, 1, flip ? 0 : 75, 37.5f, flip ? 25 : 100, 50);
                if (rule == RESIZE_D2)
                    assert_true(((const double *)array(&b, 0, "point.xy"))[4] == (flip ? 63.75 : 36.25));
                else
                    check_runs(&b, 1, drawn.run, (int64_t)drawn.n, &z);
                assert_int_equal(b.shard[0].rows[batch_list_of(b.form, "polygon")], rule == RESIZE_D2 ? 3 : 0);
            }
            loader_close(loader);
            task_free(t);
        }
    rle_free(&drawn);
    close_set(&f);
}

/* ---- limits ---- */

/* A line of pixels, objects of one pixel, one that vanishes as the picture shrinks, an image without any, masks that reach outside. */
static void odd_shapes(void **state)
{
    static const int sizes[][2] = { { 5000, 1 }, { 1, 3000 }, { 64, 64 }, { 0, 0 } };
    static const char annotations[] =
        "{\"id\": 1, \"image_id\": 1, \"category_id\": 90, \"bbox\": [2500, 0, 1, 1], \"segmentation\": [[2500, 0, 2501, 0, 2501, 1, 2500, "
        "1]]},"
        "{\"id\": 2, \"image_id\": 1, \"category_id\": 90, \"bbox\": [7, 0, 1, 1], \"segmentation\": {\"size\": [1, 5000], \"counts\": [7, "
        "1, "
        "4992]}},"
        "{\"id\": 3, \"image_id\": 1, \"category_id\": 7, \"bbox\": [0, 0, 5000, 1], \"segmentation\": [[-1e6, -1e6, 1e6, -1e6, 1e6, "
        "1e6]]},"
        "{\"id\": 4, \"image_id\": 2, \"category_id\": 7, \"bbox\": [0, 2999, 1, 1], \"segmentation\": {\"size\": [3000, 1], \"counts\": "
        "[1500, "
        "1500]}},"
        "{\"id\": 5, \"image_id\": 2, \"category_id\": 7, \"bbox\": [0, 2999.9999999, 1, 1e-7], \"segmentation\": [[0, 0, 1, 0, 1, 1]]},"
        "{\"id\": 6, \"image_id\": 1, \"category_id\": 7, \"bbox\": [4999.9999, 0, 1e-4, 1], \"segmentation\": [[0, 0, 1, 0, 1, 1]]}";
    struct fixture f = open_set(sizes, annotations, true);
    const struct instances_options o = plain();
    const struct loader_options l = { .batch = 1, .ranks = 1, .workers = 1 };
    struct task *t = task_of(f.d, &o);
    struct loader *loader;
    struct batch b;
    struct err err;

    (void)state;
    assert_int_equal(loader_open(t, &l, &loader, &err), 0);
    assert_int_equal(loader_next(loader, &b, &err), 0);
    assert_true(b.shard[0].canvas.h == 32 && b.shard[0].canvas.w == 128);
    check_picture(&f, &b, 0, &(struct resizing){ RESIZE_D2, 1, 5000, { 1, 100 }, false });
    assert_int_equal(offsets(&b, 0, "truth")[1], 2); /* column 7 is no centre of 25, 75 ...: without a pixel there is no object */
    assert_box(&b, 0, 50, 0, (float)(2501 * (100 / 5000.)), 1);
    assert_box(&b, 1, 0, 0, 100, 1);
    assert_int_equal(loader_next(loader, &b, &err), 0);
    assert_true(b.shard[0].canvas.h == 128 && b.shard[0].canvas.w == 32);
    assert_int_equal(offsets(&b, 0, "truth")[1], 1); /* the other box is thinner than any detector could see */
    assert_int_equal(offsets(&b, 0, "run")[1], 2);
    assert_true(((const int32_t *)array(&b, 0, "run.length"))[0] == 50 && ((const int32_t *)array(&b, 0, "run.length"))[1] == 50);
    assert_int_equal(loader_next(loader, &b, &err), 0);
    assert_int_equal(offsets(&b, 0, "truth")[1], 0);
    assert_true(b.shard[0].canvas.h == 64 && b.shard[0].canvas.w == 64);
    loader_close(loader);
    task_free(t);
    close_set(&f);
}

static void a_thousand_objects(void **state)
{
    static const int sizes[][2] = { { 128, 128 }, { 40, 40 }, { 0, 0 } };
    char *text = malloc(400000), *p = text;
    struct instances_options o = plain();
    const struct loader_options l = { .batch = 2, .ranks = 1, .workers = 2 };
    struct fixture f;
    struct loader *loader;
    struct task *t;
    struct batch b;
    struct err err;

    (void)state;
    for (int i = 0; i < 1000; i++) {
        int x = i % 32 * 4, y = i / 32 * 4;

        p +=
            sprintf(p,
                    "%s{\"id\": %d, \"image_id\": 1, \"category_id\": 7, \"bbox\": [%d, %d, 3, 3], \"segmentation\": [[%d, %d, %d, %d, %d, "
                    "%d]]}",
                    i ? "," : "", i + 1, x, y, x, y, x + 3, y, x + 3, y + 3);
    }
    f = open_set(sizes, text, true);
    o.size[0] = 100;
    t = task_of(f.d, &o);
    assert_int_equal(loader_open(t, &l, &loader, &err), 0);
    assert_int_equal(loader_next(loader, &b, &err), 0);
    assert_true(offsets(&b, 0, "truth")[1] == 1000 && offsets(&b, 0, "truth")[2] == 1000);
    assert_int_equal(offsets(&b, 0, "point")[1000], 3000);
    assert_true(((const double *)array(&b, 0, "point.xy"))[5999] == (999 / 32 * 4 + 3) * (100 / 128.));
    loader_close(loader);
    task_free(t);
    close_set(&f);
    free(text);
}

/* Without masks there are none, whatever the file has. */
static void boxes_alone(void **state)
{
    static const int sizes[][2] = { { 40, 20 }, { 10, 30 }, { 0, 0 } };
    struct fixture f = open_set(sizes, POLYGONS, false);
    const struct instances_options o = plain();
    const struct loader_options l = { .batch = 2, .ranks = 1, .workers = 1 };
    struct task *t = task_of(f.d, &o);
    struct loader *loader;
    struct batch b;
    struct err err;

    (void)state;
    assert_int_equal(loader_open(t, &l, &loader, &err), 0);
    assert_int_equal(loader_next(loader, &b, &err), 0);
    assert_int_equal(offsets(&b, 0, "truth")[2], 3);
    assert_int_equal(offsets(&b, 0, "polygon")[3], 0);
    assert_int_equal(offsets(&b, 0, "run")[3], 0);
    loader_close(loader);
    task_free(t);
    close_set(&f);
}

#define OBJECT(id, image, crowd, w, h) \
    "{\"id\": " #id ", \"image_id\": " #image ", \"category_id\": 7, \"iscrowd\": " #crowd ", \"bbox\": [0, 0, " #w ", " #h "]}"

static void which_pictures_train(void **state)
{
    static const int sizes[][2] = { { 8, 8 }, { 8, 8 }, { 8, 8 }, { 8, 8 }, { 0, 0 } };
    struct fixture f = open_set(sizes, OBJECT(1, 2, 1, 4, 4) "," OBJECT(2, 3, 0, 1, 4) "," OBJECT(3, 4, 0, 3, 3), false);
    struct instances_options o = plain();
    struct task *t;
    struct err err;

    (void)state;
    t = task_of(f.d, &o);
    assert_true(t->samples == 4 && task_image(t, 2) == 2);
    task_free(t);
    o.train = true;
    t = task_of(f.d, &o);
    assert_true(t->samples == 2 && task_image(t, 0) == 2 && task_image(t, 1) == 3);
    task_free(t);
    o.rule = RESIZE_TV;
    t = task_of(f.d, &o);
    assert_true(t->samples == 2 && task_image(t, 0) == 1 && task_image(t, 1) == 3);
    task_free(t);
    o.keep_empty = true;
    t = task_of(f.d, &o);
    assert_int_equal(t->samples, 4);
    task_free(t);
    o.keep_empty = false;
    f.d->offset[4] = f.d->offset[3] = f.d->offset[2] = f.d->offset[1] = 0;
    assert_int_equal(instances_open(f.d, &o, &t, &err), ERR_DATA);
    assert_non_null(strstr(err.msg, "no image has an object to train on"));
    close_set(&f);
}

/* What a job's keys say. */
static void tasks_of_jobs(void **state)
{
    static const int sizes[][2] = { { 8, 8 }, { 8, 30 }, { 8, 8 }, { 8, 8 }, { 0, 0 } };
    struct fixture f = open_set(sizes, OBJECT(1, 2, 1, 4, 4) "," OBJECT(2, 3, 0, 1, 4) "," OBJECT(3, 4, 0, 3, 3), false);
    struct jobspec spec = {
        .train_seed = 3, .model_flavor = (char *)"d2", .model_min_size = { 2, { 16, 40 } }, .model_max_size = 70, .model_size_divisible = 64
    };
    struct task_options o = { .spec = &spec, .train = true, .grain = 64 };
    struct task *t;
    struct err err;

    (void)state;
    assert_int_equal(task_instances.count(f.d, &spec), 2);
    assert_int_equal(task_instances.open(f.d, &o, &t, &err), 0);
    assert_true(t->samples == 2 && t->seed == 3 && !t->group && t->largest.h == 64 && t->largest.w == 64);
    task_free(t);
    o.train = false;
    assert_int_equal(task_instances.open(f.d, &o, &t, &err), 0);
    assert_true(t->samples == 4 && t->largest.h == 128 && t->largest.w == 64);
    task_free(t);
    o.train = spec.data_aspect_groups = spec.data_keep_empty = true;
    assert_int_equal(task_instances.count(f.d, &spec), 4);
    assert_int_equal(task_instances.open(f.d, &o, &t, &err), 0);
    assert_true(t->samples == 4 && t->group[0] == 1);
    task_free(t);
    spec.data_keep_empty = false;
    spec.model_flavor = (char *)"tv";
    assert_int_equal(task_instances.count(f.d, &spec), 2);
    assert_int_equal(task_instances.open(f.d, &o, &t, &err), 0);
    assert_true(task_image(t, 0) == 1 && t->group[0] == 7 && t->group[1] == 4);
    task_free(t);
    close_set(&f);
}

static void options_that_do_not_fit(void **state)
{
    static const int sizes[][2] = { { 8, 8 }, { 0, 0 } };
    struct fixture f = open_set(sizes, OBJECT(1, 1, 0, 4, 4), false);
    struct instances_options o[] = { plain(), plain(), plain(), plain() };
    struct task *t;
    struct err err;

    (void)state;
    o[0].nsizes = 0;
    o[1].size[0] = 101;
    o[2].grain = 0;
    o[3].size[0] = 0;
    for (int i = 0; i < 4; i++)
        assert_int_equal(instances_open(f.d, &o[i], &t, &err), ERR_INPUT);
    close_set(&f);
}

static void groups_by_shape(void **state)
{
    (void)state;
    assert_int_equal(instances_group(RESIZE_D2, 480, 640), 0);
    assert_int_equal(instances_group(RESIZE_D2, 640, 480), 1);
    assert_int_equal(instances_group(RESIZE_D2, 5, 5), 1);
    assert_int_equal(instances_group(RESIZE_TV, 49, 100), 0);
    assert_int_equal(instances_group(RESIZE_TV, 50, 100), 1);
    assert_int_equal(instances_group(RESIZE_TV, 480, 640), 2);
    assert_int_equal(instances_group(RESIZE_TV, 5, 5), 4);
    assert_int_equal(instances_group(RESIZE_TV, 199, 100), 6);
    assert_int_equal(instances_group(RESIZE_TV, 200, 100), 7);
    assert_int_equal(instances_group(RESIZE_TV, 5000, 1), 7);
}

/* ---- the same, whoever makes it ---- */

enum { PICTURES = 13, STEPS = 9, SHARDS = 4, BATCH = 8 };

static struct fixture many(void)
{
    int sizes[PICTURES + 1][2] = { { 0 } };
    char text[4000], *p = text;

    for (int i = 0; i < PICTURES; i++) {
        sizes[i][0] = 20 + i * 7 % 30;
        sizes[i][1] = 20 + i * 11 % 30;
        if (i % 5)
            p +=
                sprintf(p,
                        "%s{\"id\": %d, \"image_id\": %d, \"category_id\": 7, \"bbox\": [%d, 2, 9, 9.5], \"segmentation\": [[%d, 2, %d, 9, "
                        "3, 7, 4, 4]]}",
                        p == text ? "" : ",", i + 1, i + 1, i, i, i + 9);
    }
    return open_set(sizes, text, true);
}

static struct instances_options drawn(void)
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

/* hash: of each sample as it was made, index and canvas with it. */
struct seen {
    struct hash128 hash[STEPS + 1][BATCH];
    struct canvas canvas[STEPS + 1][SHARDS];
    int32_t index[STEPS + 1][BATCH];
};

/* What ranks of a job see from a step on. */
static void look(const struct dataset *d, const struct instances_options *o, int first, int ranks, int waves, int workers, struct seen *ret)
{
    const struct stress forced = { (uint64_t)(ranks * 10 + waves), 0, 1 }; /* pictures are taken and made in another order */

    for (int rank = 0; rank < ranks; rank++) {
        struct loader_options l = { .train = true,
                                    .batch = BATCH,
                                    .shards = SHARDS,
                                    .shard_lo = rank * SHARDS / ranks,
                                    .shard_hi = (rank + 1) * SHARDS / ranks,
                                    .waves = waves,
                                    .first_step = first,
                                    .steps = STEPS,
                                    .hashes = true,
                                    .workers = workers,
                                    .stress = workers > 1 ? &forced : NULL };
        struct task *t = task_of(d, o);
        struct loader *loader;
        struct batch b;
        struct err err = { 0 };

        assert_int_equal(loader_open(t, &l, &loader, &err), 0);
        while (loader_next(loader, &b, &err) == 0)
            for (int v = 0; v < b.nshards; v++) {
                const struct shard_batch *s = &b.shard[v];

                struct draw draw[BATCH] = { { 0 } };

                assert_int_equal(s->n, BATCH / SHARDS);
                for (int i = 0; i < s->n; i++)
                    draw[i] = (struct draw){ b.epoch, s->index[i], s->shard };
                assert_true(canvas_equal(t->ops->canvas(t, b.step, draw, s->n), s->canvas));
                ret->canvas[b.step][s->shard] = s->canvas;
                for (int i = 0; i < s->n; i++) {
                    ret->hash[b.step][s->shard * s->n + i] = s->hash[i];
                    ret->index[b.step][s->shard * s->n + i] = s->index[i];
                }
            }
        loader_close(loader);
        task_free(t);
    }
}

static void ranks_threads_and_resumes(void **state)
{
    struct fixture f = many();
    struct instances_options o = drawn();
    static struct seen want, got, tv;
    int drawn_of[PICTURES] = { 0 }, mixed = 0;

    (void)state;
    look(f.d, &o, 1, 1, 1, 1, &want);
    for (int ranks = 1; ranks <= SHARDS; ranks++)
        for (int waves = 1; waves <= 3; waves += 2) {
            memset(&got, 0, sizeof got);
            look(f.d, &o, 1, ranks, waves, 3, &got);
            assert_memory_equal(&got, &want, sizeof want);
        }
    o.rule = RESIZE_TV;
    memset(&tv, 0, sizeof tv);
    look(f.d, &o, 1, 1, 1, 1, &tv);
    memset(&got, 0, sizeof got);
    look(f.d, &o, 1, 3, 2, 4, &got);
    assert_memory_equal(&got, &tv, sizeof tv);
    assert_memory_not_equal(&want, &tv, sizeof tv);
    o.rule = RESIZE_D2;
    memset(&got, 0, sizeof got);
    look(f.d, &o, 6, 2, 1, 2, &got);
    assert_memory_equal(got.hash[6], want.hash[6], sizeof want.hash[6] * (STEPS - 5));
    assert_memory_equal(got.canvas[6], want.canvas[6], sizeof want.canvas[6] * (STEPS - 5));
    for (int g = 0; g < STEPS * BATCH / PICTURES * PICTURES; g++)
        drawn_of[want.index[1 + g / BATCH][g % BATCH]]++;
    for (int i = 0; i < PICTURES; i++)
        assert_int_equal(drawn_of[i], STEPS * BATCH / PICTURES);
    for (int g = 0; g < STEPS * BATCH; g += 2) {
        const struct dataset_image *a = &f.d->images[want.index[1 + g / BATCH][g % BATCH]];
        const struct dataset_image *b = &f.d->images[want.index[1 + g / BATCH][g % BATCH + 1]];

        mixed += (a->w > a->h) != (b->w > b->h);
    }
    assert_true(mixed <= 2 * (STEPS * BATCH / PICTURES + 1));
    close_set(&f);
}

/* Each size is drawn, by step and shard alone; each picture is mirrored about as often as not, by epoch and picture alone. */
static void what_is_drawn(void **state)
{
    struct fixture f = many();
    struct instances_options o = drawn();
    struct task *t;
    int count[3] = { 0 }, alike = 0;

    (void)state;
    o.grain = 1;
    t = task_of(f.d, &o);
    for (int step = 1, last = 0, same = 0; step <= 300; step++, same = 0)
        for (int shard = 0; shard < 4; shard++) {
            const struct draw a[2] = { { 0, 0, shard }, { 3, 5, shard } };
            struct canvas first = t->ops->canvas(t, step, a, 1), both = t->ops->canvas(t, step, a, 2), of[3];
            int k = 0;

            for (int i = 0; i < 3; i++)
                of[i] = resize_target(RESIZE_D2, f.d->images[0].h, f.d->images[0].w, o.size[i], o.longest);
            while (k < 2 && !canvas_equal(first, of[k]))
                k++;
            assert_true(canvas_equal(first, of[k]));
            count[k]++;
            same += shard == 0 || k == last;
            last = k;
            alike += same == 4;
            assert_true(both.h >= first.h && both.w >= first.w && both.h <= t->largest.h && both.w <= t->largest.w);
        }
    for (int k = 0; k < 3; k++)
        assert_in_range(count[k], 300, 500);
    assert_in_range(alike, 1, 40); /* one step in 27 */
    assert_true(t->ops->canvas(t, 1, NULL, 0).h == 0);
    task_free(t);
    close_set(&f);
}

/* Over the epochs, and of the pictures of an epoch. */
static void mirrors_are_drawn(void **state)
{
    static const int sizes[][2] = { { 12, 10 }, { 12, 10 }, { 0, 0 } };
    struct fixture f = open_set(sizes, OBJECT(1, 1, 0, 4, 4) "," OBJECT(2, 2, 0, 3, 4), false);
    struct instances_options o = plain();
    const struct loader_options l = {
        .train = true, .batch = 1, .shards = 1, .shard_hi = 1, .waves = 1, .first_step = 1, .steps = 400, .workers = 2
    };
    struct loader *loader;
    struct task *t;
    struct batch b;
    struct err err;
    int flips[2] = { 0 }, both = 0;

    (void)state;
    o.train = true;
    o.flip = 0.5f;
    o.size[0] = 10;
    o.longest = 12;
    t = task_of(f.d, &o);
    assert_int_equal(loader_open(t, &l, &loader, &err), 0);
    for (int step = 0, last = 0; loader_next(loader, &b, &err) == 0; step++) {
        int flip = ((const float *)array(&b, 0, "truth.box"))[0] != 0, image = b.shard[0].index[0];

        check_picture(&f, &b, 0, &(struct resizing){ RESIZE_D2, 10, 12, { 10, 12 }, flip });
        assert_box(&b, 0, flip ? (image ? 9 : 8) : 0, 0, flip ? 12 : (image ? 3 : 4), 4);
        flips[image] += flip;
        both += step % 2 && flip == last;
        last = flip;
    }
    for (int k = 0; k < 2; k++)
        assert_in_range(flips[k], 70, 130);
    assert_in_range(both, 70, 130);
    loader_close(loader);
    task_free(t);
    close_set(&f);
}

/* Masks go with their boxes where a picture is left out. */
static void masks_stay_with_their_boxes(void **state)
{
    static const int sizes[][2] = { { 40, 20 }, { 10, 30 }, { 0, 0 } };
    static const uint32_t runs[] = { 32, 2, 28, 3, 235 };
    static struct problems p;
    struct fixture f = open_set(sizes, POLYGONS, true);
    char path[DATASET_MAX_PATH];
    struct dataset *d;
    struct err err;
    struct mask m;

    (void)state;
    unlink(dataset_path(f.d, 0, path));
    memset(&p, 0, sizeof p);
    /* sizes are stated nowhere, so the picture is missed while the file is read; damaged behind its head it is missed later */
    assert_int_equal(check_split(&(struct check_options){ f.json, f.dir, BAD_SKIP, 1, true }, &p, &d, &err), 0);
    m = dataset_mask(d, 0);
    assert_true(d->nimages == 1 && m.kind == MASK_RUNS && m.n == 5 && memcmp(m.run, runs, sizeof runs) == 0);
    dataset_free(d);
    write_picture(f.dir, "0.png", 40, 20);
    assert_int_equal(truncate(path, 200), 0);
    assert_int_equal(check_split(&(struct check_options){ f.json, f.dir, BAD_SKIP, 1, true }, &p, &d, &err), 0);
    m = dataset_mask(d, 0);
    assert_true(d->nimages == 1 && m.kind == MASK_RUNS && m.n == 5 && memcmp(m.run, runs, sizeof runs) == 0);
    dataset_free(d);
    close_set(&f);
}

/* A picture that is gone is replaced by the next; where that does not fit the canvas, it is shrunk. */
static void a_substitute_fits(void **state)
{
    static const int sizes[][2] = { { 10, 40 }, { 80, 20 }, { 0, 0 } };
    struct fixture f = open_set(sizes, OBJECT(1, 1, 0, 4, 4) "," OBJECT(2, 2, 0, 40, 10), false);
    struct instances_options o = plain();
    const struct loader_options l = {
        .train = true, .batch = 1, .shards = 1, .shard_hi = 1, .waves = 1, .first_step = 1, .steps = 4, .workers = 1, .on_bad = BAD_SKIP
    };
    char path[DATASET_MAX_PATH];
    struct loader *loader;
    struct task *t;
    struct batch b;
    struct err err;
    int small = 0;

    (void)state;
    unlink(dataset_path(f.d, 0, path));
    o.train = true;
    t = task_of(f.d, &o);
    assert_int_equal(loader_open(t, &l, &loader, &err), 0);
    for (int k = 0; k < 4; k++) {
        assert_int_equal(loader_next(loader, &b, &err), 0);
        assert_int_equal(b.shard[0].index[0], 1);
        if (b.shard[0].canvas.w == 128) {
            check_picture(&f, &b, 0, &(struct resizing){ RESIZE_D2, 20, 80, { 25, 100 }, false });
            continue;
        }
        assert_true(b.shard[0].canvas.h == 128 && b.shard[0].canvas.w == 32);
        check_picture(&f, &b, 0, &(struct resizing){ RESIZE_D2, 20, 80, { 8, 32 }, false });
        assert_box(&b, 0, 0, 0, 16, 4);
        small++;
    }
    assert_int_equal(small, 2);
    loader_close(loader);
    task_free(t);
    close_set(&f);
}

/* ---- real data ---- */

static bool have_data(void)
{
    return access(DATA "/nuclei/train.json", R_OK) == 0;
}

static struct dataset *real_set(const char *json, const char *images)
{
    static struct problems p;
    struct dataset *d;
    struct err err = { 0 };

    memset(&p, 0, sizeof p);
    if (coco_read_masks(json, images, BAD_ERROR, &p, &d, &err) != 0)
        fail_msg("%s", err.msg);
    return d;
}

/* Nuclei have the same masks as polygons and as runs: drawn at the stored size they are the same pixels, where a mask has no hole. */
static void polygons_and_runs_agree(void **state)
{
    struct dataset *polygons, *runs;
    struct instances_options o = plain();
    const struct loader_options l = { .batch = 2, .ranks = 1, .workers = 2 };
    int other = 0, objects = 0;

    (void)state;
    if (!have_data())
        SKIP("no " DATA "/nuclei");
    polygons = real_set(DATA "/nuclei/val.json", DATA "/nuclei/images");
    runs = real_set(DATA "/nuclei/val_rle.json", DATA "/nuclei/images");
    o.rule = RESIZE_TV;
    o.size[0] = 200;
    o.longest = 320;
    struct task *a = task_of(polygons, &o), *b = task_of(runs, &o);
    struct loader *la, *lb;
    struct batch x, y;
    struct err err;

    assert_int_equal(loader_open(a, &l, &la, &err), 0);
    assert_int_equal(loader_open(b, &l, &lb, &err), 0);
    for (int k = 0; k < 12; k++) {
        assert_int_equal(loader_next(la, &x, &err), 0);
        assert_int_equal(loader_next(lb, &y, &err), 0);
        const int32_t *from = offsets(&x, 0, "run"), *to = offsets(&y, 0, "run");
        int n = offsets(&x, 0, "truth")[x.shard[0].n];

        assert_int_equal(n, offsets(&y, 0, "truth")[y.shard[0].n]);
        assert_memory_equal(array(&x, 0, "truth.box"), array(&y, 0, "truth.box"), (size_t)n * 16);
        for (int i = 0; i < n; i++, objects++)
            other += from[i + 1] - from[i] != to[i + 1] - to[i] ||
                     memcmp((const int32_t *)array(&x, 0, "run.length") + from[i], (const int32_t *)array(&y, 0, "run.length") + to[i],
                            (size_t)(from[i + 1] - from[i]) * 4) != 0;
    }
    assert_true(objects > 500 && other <= 3);
    loader_close(la);
    loader_close(lb);
    task_free(a);
    task_free(b);
    dataset_free(polygons);
    dataset_free(runs);
}

/* Each picture with the most objects of its shard is whole. */
static void real_sets_train(void **state)
{
    static const struct {
        const char *json, *images;
        int samples;
    } rows[] = { { DATA "/nuclei/train_rle.json", DATA "/nuclei/images", 268 },
                 { DATA "/nuclei/train.json", DATA "/nuclei/images", 268 },
                 { DATA "/coco_tiny/instances_train.json", DATA "/coco_tiny/train", 13 } };

    (void)state;
    if (!have_data())
        SKIP("no " DATA "/nuclei");
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
        for (enum resize_rule rule = RESIZE_D2; rule <= RESIZE_TV; rule++) {
            struct dataset *d = real_set(rows[r].json, rows[r].images);
            struct instances_options o = drawn();
            const struct loader_options l = {
                .train = true, .batch = 8, .shards = 2, .shard_hi = 2, .waves = 1, .first_step = 1, .steps = 3, .workers = 2
            };
            struct task *t;
            struct loader *loader;
            struct batch b;
            struct err err = { 0 };

            o.rule = rule;
            o.keep_empty = false;
            t = task_of(d, &o);
            assert_int_equal(t->samples, rows[r].samples);
            assert_int_equal(loader_open(t, &l, &loader, &err), 0);
            while (loader_next(loader, &b, &err) == 0)
                for (int v = 0; v < 2; v++) {
                    int n = offsets(&b, v, "truth")[b.shard[v].n];
                    const float *box = array(&b, v, "truth.box");

                    assert_true(n > 0 && b.shard[v].canvas.h % 32 == 0 && b.shard[v].canvas.w % 32 == 0);
                    for (int i = 0; i < n; i++)
                        assert_true(offsets(&b, v, "run")[i] < offsets(&b, v, "run")[i + 1] ||
                                    offsets(&b, v, "polygon")[i] < offsets(&b, v, "polygon")[i + 1]);
                    for (int i = 0; i < n; i++)
                        assert_true(box[4 * i] < box[4 * i + 2] && box[4 * i + 1] < box[4 * i + 3] && box[4 * i] >= 0 &&
                                    box[4 * i + 2] <= (float)b.shard[v].canvas.w);
                }
            loader_close(loader);
            task_free(t);
            dataset_free(d);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_are_the_bitmap_s),
        cmocka_unit_test(a_sample_to_the_number),
        cmocka_unit_test(flavors_and_mirrors),
        cmocka_unit_test(odd_shapes),
        cmocka_unit_test(a_thousand_objects),
        cmocka_unit_test(boxes_alone),
        cmocka_unit_test(which_pictures_train),
        cmocka_unit_test(tasks_of_jobs),
        cmocka_unit_test(options_that_do_not_fit),
        cmocka_unit_test(groups_by_shape),
        cmocka_unit_test(what_is_drawn),
        cmocka_unit_test(ranks_threads_and_resumes),
        cmocka_unit_test(a_substitute_fits),
        cmocka_unit_test(mirrors_are_drawn),
        cmocka_unit_test(masks_stay_with_their_boxes),
        cmocka_unit_test(polygons_and_runs_agree),
        cmocka_unit_test(real_sets_train),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
