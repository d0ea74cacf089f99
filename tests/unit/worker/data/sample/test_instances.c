/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/data/sample/test_instances.c
 * uses: proto worker/core worker/mask worker/data
 * The task of two-stage detectors: the exact numbers of a sample. */
#include "tests/unit/worker/data/sample/instances_set.h"
#include "proto/job/jobspec.h"
#include "worker/core/philox.h"
#include "worker/data/loader.h"
#include "worker/data/make/crop.h"
#include "worker/data/make/mask_resize.h"
#include "worker/mask/rle.h"

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
    ret[0] = -5; /* with too little room, no write goes beyond it, and all runs are counted */
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

/* Masks from runs: the same pixels as the bitmap's, mirrored or not. Masks from polygons under tv: the pixels of the
 * polygons drawn before. */
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
                    const struct resizing z = { rule, 30, 10, { 100, 33 }, flip }; /* in float32, 100 / 30 would be low */
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

/* ---- parts of pictures ---- */

/* Resizes the whole picture, takes the window pixel by pixel, and resizes that. The caller frees. */
static uint8_t *part_of(const struct fixture *f, int32_t image, const struct crop *c, struct canvas to)
{
    const struct resizing z = { RESIZE_D2, c->window.h, c->window.w, to, false };
    const size_t scratch = resize_scratch(&z) + resize_scratch(&c->scaled);
    uint8_t *whole = malloc(crop_bytes(c)), *part = malloc(crop_bytes(c)), *memory = malloc(scratch);
    uint8_t *ret = malloc((size_t)to.h * (size_t)to.w * 3);
    struct decoder *dec = decoder_new();
    char path[DATASET_MAX_PATH];
    struct image img;
    struct err err;

    assert_int_equal(image_read(dec, dataset_path(f->d, image, path), &img, &err), 0);
    resize_any(&c->scaled, img.rgb, whole, (size_t)c->scaled.to.w * 3, memory);
    for (int y = 0; y < c->window.h; y++)
        for (int x = 0; x < c->window.w; x++)
            for (int k = 0; k < 3; k++)
                part[(y * c->window.w + x) * 3 + k] = whole[((y + c->y) * c->scaled.to.w + x + c->x) * 3 + k];
    resize_any(&z, part, ret, (size_t)to.w * 3, memory);
    decoder_free(dec);
    free(whole);
    free(part);
    free(memory);
    return ret;
}

/* The boxes of image i of the batch, from row `row` on. Returns the row after them. */
static int check_boxes(const struct fixture *f, const struct batch *b, int i, int row, const struct crop *c, struct canvas to)
{
    const int32_t image = b->shard[0].index[i];
    const double sx = (double)to.w / c->window.w, sy = (double)to.h / c->window.h;

    for (int64_t k = f->d->offset[image]; k < f->d->offset[image + 1]; k++) {
        struct dataset_box part;

        if (f->d->boxes[k].crowd || !crop_box(c, &f->d->boxes[k], &part))
            continue;
        const float *box = (const float *)array(b, 0, "truth.box") + 4 * row;

        assert_float_equal(box[0], part.x * sx, 1e-3);
        assert_float_equal(box[1], part.y * sy, 1e-3);
        assert_float_equal(box[2], (part.x + part.w) * sx, 1e-3);
        assert_float_equal(box[3], (part.y + part.h) * sy, 1e-3);
        assert_int_equal(((const int32_t *)array(b, 0, "truth.class"))[row++], f->d->boxes[k].cls);
    }
    assert_int_equal(row, offsets(b, 0, "truth")[i + 1]);
    return row;
}

static struct canvas check_part(const struct fixture *f, const struct batch *b, const struct instances_options *o, int i, int *row)
{
    const struct philox_key flips = { .seed = o->seed, .step = (uint32_t)b->epoch, .op = philox_op("data.flip") };
    const struct philox_key sizes = { .seed = o->seed, .step = (uint32_t)(b->step - 1), .op = philox_op("data.size") };
    const int32_t image = b->shard[0].index[i], *size = (const int32_t *)array(b, 0, "size") + 2 * i;
    const struct dataset_image *im = &f->d->images[image];
    const int shorter = o->size[philox_below(&sizes, 0, (uint32_t)o->nsizes)];
    const struct canvas on = b->shard[0].canvas;
    const bool flip = philox_uniform(&flips, (uint64_t)image) < o->flip;
    struct canvas to;
    struct crop c;
    uint8_t *want;

    assert_true(crop_draw(1, o->seed, b->epoch, image, im->h, im->w, flip, &c));
    to = resize_target(RESIZE_D2, c.window.h, c.window.w, shorter, o->longest);
    assert_true(size[0] == to.h && size[1] == to.w && to.h <= on.h && to.w <= on.w);
    *row = check_boxes(f, b, i, *row, &c, to);
    want = part_of(f, image, &c, to);
    for (int y = 0; y < on.h; y++)
        for (int x = 0; x < on.w * 3; x++) {
            const uint8_t *got = (const uint8_t *)array(b, 0, "image") + ((size_t)i * (size_t)on.h + (size_t)y) * (size_t)on.w * 3;

            assert_int_equal(got[x], y < to.h && x < to.w * 3 ? want[y * to.w * 3 + x] : 0);
        }
    free(want);
    return to;
}

/* Two pictures make an epoch of one step. The canvas holds both parts and no more. */
static void parts_of_pictures(void **state)
{
    static const int sizes[][2] = { { 90, 60 }, { 50, 80 }, { 0, 0 } };
    struct fixture f =
        open_set(sizes, OBJECT(1, 1, 0, 50, 40) "," OBJECT(2, 1, 0, 9, 3) "," OBJECT(3, 2, 0, 50, 70) "," OBJECT(4, 2, 1, 4, 4), false);
    const struct loader_options l = {
        .train = true, .batch = 2, .shards = 1, .shard_hi = 1, .waves = 1, .first_step = 1, .steps = 30, .workers = 2
    };
    struct instances_options o = plain();
    struct loader *loader;
    struct batch b;
    struct task *t;
    struct err err;

    (void)state;
    o.train = true;
    o.nsizes = 2;
    o.size[1] = 72;
    o.flip = 0.5f;
    o.crop = 1;
    t = task_of(f.d, &o);
    assert_int_equal(loader_open(t, &l, &loader, &err), 0);
    for (int step = 0; step < 30; step++) {
        int row = 0, h = 0, w = 0;

        assert_int_equal(loader_next(loader, &b, &err), 0);
        for (int i = 0; i < 2; i++) {
            struct canvas to = check_part(&f, &b, &o, i, &row);

            h = to.h > h ? to.h : h;
            w = to.w > w ? to.w : w;
        }
        assert_int_equal(b.shard[0].canvas.h, (h + 31) / 32 * 32);
        assert_int_equal(b.shard[0].canvas.w, (w + 31) / 32 * 32);
        assert_true(b.shard[0].canvas.h <= t->largest.h && b.shard[0].canvas.w <= t->largest.w);
    }
    loader_close(loader);
    task_free(t);
    close_set(&f);
}

/* The largest canvas is met: a high narrow part of a flat picture, and validation cuts nothing. */
static void largest_of_parts(void **state)
{
    static const int sizes[][2] = { { 100, 100 }, { 0, 0 } };
    struct fixture f = open_set(sizes, OBJECT(1, 1, 0, 50, 40), false);
    struct instances_options o = plain();
    struct canvas met = { 0, 0 };
    struct task *t;

    (void)state;
    o.grain = 1;
    o.train = true;
    o.crop = 1;
    t = task_of(f.d, &o);
    for (int epoch = 0; epoch < 30000; epoch++) {
        const struct draw draw = { .epoch = epoch };
        struct canvas c = t->ops->canvas(t, 1, &draw, 1);

        met.h = c.h > met.h ? c.h : met.h;
        met.w = c.w > met.w ? c.w : met.w;
        assert_true(c.h <= t->largest.h && c.w <= t->largest.w);
    }
    assert_true(t->largest.h == 94 && t->largest.w == 94); /* 600 of 384 */
    assert_true(met.h >= 92 && met.w >= 92);
    task_free(t);
    o.train = false;
    t = task_of(f.d, &o);
    assert_true(t->largest.h == 60 && t->largest.w == 60);
    task_free(t);
    close_set(&f);
}

/* ---- limits ---- */

/* A line of pixels, objects of one pixel, an object that vanishes as the picture shrinks, an image without objects,
 * masks that reach outside. */
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
    assert_int_equal(offsets(&b, 0, "truth")[1], 2); /* no pixel centre (25, 75 ...) maps to column 7: without a pixel there is no object */
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

/* Without masks in the options a batch has no masks, even if the file has some. */
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

/* Pictures of one size; some are left out. Each sample has the pixels of its own picture. */
static void check_pixels(const struct fixture *f, struct task *t)
{
    const struct loader_options l = { .batch = 2, .ranks = 1, .workers = 1 };
    struct loader *loader;
    struct batch b;
    struct err err;

    assert_int_equal(loader_open(t, &l, &loader, &err), 0);
    assert_int_equal(loader_next(loader, &b, &err), 0);
    for (int i = 0; i < 2; i++)
        check_picture(f, &b, i, &(struct resizing){ RESIZE_D2, 8, 8, { 60, 60 }, false });
    loader_close(loader);
}

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
    check_pixels(&f, t);
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

/* The options that follow from a job's keys. */
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
    struct instances_options o[] = { plain(), plain(), plain(), plain(), plain() };
    static const int of_masks[][2] = { { 40, 20 }, { 10, 30 }, { 0, 0 } };
    struct fixture masks = open_set(of_masks, POLYGONS, true);
    struct task *t;
    struct err err;

    (void)state;
    o[0].nsizes = 0;
    o[1].size[0] = 101;
    o[2].grain = 0;
    o[3].size[0] = 0;
    o[4].crop = 1;
    o[4].rule = RESIZE_TV;
    for (int i = 0; i < 5; i++)
        assert_int_equal(instances_open(f.d, &o[i], &t, &err), ERR_INPUT);
    o[4].rule = RESIZE_D2;
    assert_int_equal(instances_open(masks.d, &o[4], &t, &err), ERR_INPUT);
    assert_non_null(strstr(err.msg, "with masks"));
    close_set(&masks);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_are_the_bitmap_s),   cmocka_unit_test(a_sample_to_the_number),
        cmocka_unit_test(flavors_and_mirrors),     cmocka_unit_test(odd_shapes),
        cmocka_unit_test(a_thousand_objects),      cmocka_unit_test(boxes_alone),
        cmocka_unit_test(which_pictures_train),    cmocka_unit_test(tasks_of_jobs),
        cmocka_unit_test(options_that_do_not_fit), cmocka_unit_test(groups_by_shape),
        cmocka_unit_test(parts_of_pictures),       cmocka_unit_test(largest_of_parts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
