/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/test_feed.c - uses: proto trainer cpu cuda
 * Batches of any form arrive on the device as they were made. The task has a canvas that follows from a shard's
 * samples, pictures of bytes, one more array a sample, and a list in a list in a list. */
#include "tests/device/devices.h"

#include "worker/data/image/image.h"
#include "worker/data/loader.h"
#include "worker/data/sample/task.h"
#include "worker/train/feed.h"

enum { SAMPLES = 23, BATCH = 12, SHARDS = 4, STEPS = 9, MOST = 3, SEED = 77 };
enum { PICTURE, CAMERA, KIND, POINT, ARRAYS };
enum { THING, OUTLINE, POINTS, LISTS };

static const struct batch_form form = {
    .narrays = ARRAYS,
    .nlists = LISTS,
    .array = { [PICTURE] = { "picture", DTYPE_U8, BATCH_IMAGES, true, 3 },
               [CAMERA] = { "camera", DTYPE_F32, BATCH_IMAGES, false, 9 },
               [KIND] = { "kind", DTYPE_I32, THING, false, 1 },
               [POINT] = { "point", DTYPE_F32, POINTS, false, 2 } },
    .list = { [THING] = { "thing", BATCH_IMAGES }, [OUTLINE] = { "outline", THING }, [POINTS] = { "points", OUTLINE } },
};

/* ---- the task, and its expected batches ---- */

/* The number of rows of row r of a list's owner in a sample: 0 .. MOST. */
static int length_of(int32_t sample, int list, int r)
{
    return (int)((unsigned)(sample * 7 + list * 5 + r * 3) % (MOST + 1));
}

static struct canvas wish(int32_t sample)
{
    return (struct canvas){ 4 + sample % 5, 3 + sample % 7 };
}

static struct canvas largest_wish(const struct draw *draw, int n)
{
    struct canvas c = { 1, 1 };

    for (int i = 0; i < n; i++) {
        struct canvas w = wish(draw[i].sample);

        c.h = w.h > c.h ? w.h : c.h;
        c.w = w.w > c.w ? w.w : c.w;
    }
    return c;
}

static struct canvas canvas_of(const struct task *t, int64_t step, const struct draw *draw, int n)
{
    (void)t, (void)step;
    return draw ? largest_wish(draw, n) : (struct canvas){ 0 };
}

static uint8_t byte_of(int32_t sample, int64_t step, int i)
{
    return (uint8_t)(sample * 31 + (int)step * 5 + i);
}

static int make(struct task *t, struct hand *hand, int64_t step, struct draw draw, struct canvas canvas, const struct sample *ret,
                struct err *err)
{
    uint8_t *picture = ret->array[PICTURE];
    float *camera = ret->array[CAMERA], *point = ret->array[POINT];
    int32_t *kind = ret->array[KIND];
    int things = length_of(draw.sample, THING, 0), outlines = 0, points = 0;

    (void)t, (void)hand, (void)err;
    for (int i = 0; i < canvas.h * canvas.w * 3; i++)
        picture[i] = byte_of(draw.sample, step, i);
    for (int i = 0; i < 9; i++)
        camera[i] = (float)(draw.sample * 10 + i);
    ret->length[THING][0] = things;
    for (int i = 0; i < things; i++) {
        kind[i] = draw.sample * 100 + i;
        outlines += ret->length[OUTLINE][i] = length_of(draw.sample, OUTLINE, i);
    }
    for (int i = 0; i < outlines; i++)
        points += ret->length[POINTS][i] = length_of(draw.sample, POINTS, i);
    for (int i = 0; i < 2 * points; i++)
        point[i] = (float)(draw.sample * 1000 + i);
    return 0;
}

static void nothing(struct task *t)
{
    (void)t;
}

static const struct task_ops ops = { canvas_of, make, nothing };
static struct task task = { .ops = &ops,
                            .form = &form,
                            .seed = SEED,
                            .samples = SAMPLES,
                            .source = "made up",
                            .largest = { 8, 9 },
                            .room = { MOST, MOST *MOST, MOST *MOST *MOST } };

/* ---- the batches that arrived ---- */

static void *fetched(struct device *dev, const void *ptr, size_t bytes)
{
    void *p = malloc(bytes + 1);

    assert_non_null(p);
    if (bytes)
        get(dev, p, ptr, bytes);
    return p;
}

static void check_arrays(struct device *dev, const struct batch *b, const struct shard_batch *s)
{
    size_t bytes = (size_t)s->canvas.h * (size_t)s->canvas.w * 3;
    struct tensor x = batch_tensor(&form, s, PICTURE), camera = batch_tensor(&form, s, CAMERA);
    uint8_t *picture = fetched(dev, x.data, bytes * (size_t)s->n);
    float *k = fetched(dev, camera.data, (size_t)s->n * 9 * sizeof *k);

    assert_true(x.n == s->n && x.h == s->canvas.h && x.w == s->canvas.w && x.c == 3 && x.dtype == DTYPE_U8);
    assert_true(camera.n == s->n && camera.h == 1 && camera.c == 9 && camera.dtype == DTYPE_F32);
    for (int i = 0; i < s->n; i++) {
        for (size_t e = 0; e < bytes; e++)
            assert_int_equal(picture[(size_t)i * bytes + e], byte_of(s->index[i], b->step, (int)e));
        for (int e = 0; e < 9; e++)
            assert_true(k[i * 9 + e] == (float)(s->index[i] * 10 + e));
    }
    free(picture);
    free(k);
}

/* Offsets are compared with a second count; rows of a list are stored sample by sample. host: the same shard in host
 * memory. */
static void check_lists(struct device *dev, const struct shard_batch *s, const struct shard_batch *host)
{
    int32_t *offset[LISTS], *kind = fetched(dev, s->array[KIND], batch_bytes(&form, s, KIND)), at[LISTS] = { 0 };
    float *point = fetched(dev, s->array[POINT], batch_bytes(&form, s, POINT));

    for (int l = 0; l < LISTS; l++)
        offset[l] = fetched(dev, s->offset[l], ((size_t)batch_rows(s, form.list[l].of) + 1) * sizeof(int32_t));
    for (int i = 0; i < s->n; i++) {
        int outlines = 0, points = 0;

        assert_int_equal(offset[THING][i], at[THING]);
        for (int r = 0; r < length_of(s->index[i], THING, 0); r++, at[THING]++) {
            assert_int_equal(kind[at[THING]], s->index[i] * 100 + r);
            assert_int_equal(offset[OUTLINE][at[THING]], at[OUTLINE]);
            for (int o = 0; o < length_of(s->index[i], OUTLINE, r); o++, at[OUTLINE]++) {
                assert_int_equal(offset[POINTS][at[OUTLINE]], at[POINTS]);
                for (int p = 0; p < length_of(s->index[i], POINTS, outlines); p++, at[POINTS]++, points++)
                    assert_true(point[2 * at[POINTS]] == (float)(s->index[i] * 1000 + 2 * points) &&
                                point[2 * at[POINTS] + 1] == (float)(s->index[i] * 1000 + 2 * points + 1));
                outlines++;
            }
        }
    }
    for (int l = 0; l < LISTS; l++) {
        assert_int_equal(s->rows[l], at[l]);
        assert_int_equal(offset[l][batch_rows(s, form.list[l].of)], at[l]);
        assert_memory_equal(host->offset[l], offset[l], ((size_t)batch_rows(s, form.list[l].of) + 1) * sizeof(int32_t));
        free(offset[l]);
    }
    free(kind);
    free(point);
}

static void check_batch(struct device *dev, const struct batch *b, const struct shard_batch *host)
{
    for (int v = 0; v < b->nshards; v++) {
        const struct shard_batch *s = &b->shard[v];
        struct draw draw[BATCH];

        for (int i = 0; i < s->n; i++)
            draw[i] = (struct draw){ .sample = s->index[i] };
        assert_true(canvas_equal(s->canvas, largest_wish(draw, s->n)));
        if (v > 0) /* pictures follow each other */
            assert_ptr_equal(s->array[PICTURE], (char *)b->shard[v - 1].array[PICTURE] + batch_bytes(&form, &b->shard[v - 1], PICTURE));
        check_arrays(dev, b, s);
        check_lists(dev, s, &host[v]);
    }
}

static void run_feed(struct device *dev, const struct loader_options *o, int passes, int want)
{
    struct device *side;
    struct loader *l;
    struct feed *f;
    struct batch b;
    struct err err = { 0 };
    int canvases = 0, batches = 0, rc = 0;

    if (dev->ops->open(0, &(struct device_options){ .threads = 1 }, &side, &err) < 0 || loader_open(&task, o, &l, &err) < 0)
        fail_msg("%s", err.msg);
    f = feed_open(dev, side, l);
    assert_non_null(f);
    for (int pass = 0; pass < passes; pass++) {
        if (pass > 0)
            feed_rewind(f);
        while ((rc = feed_next(f, &b, &err)) == 0) {
            assert_ptr_equal(b.form, &form);
            assert_int_equal(b.seed, SEED);
            check_batch(dev, &b, feed_host(f));
            feed_ahead(f);
            canvases += b.nshards > 1 && !canvas_equal(b.shard[0].canvas, b.shard[1].canvas);
            batches++;
        }
        assert_int_equal(rc, LOADER_END);
    }
    assert_int_equal(batches, want);
    assert_true(!o->train || canvases > batches / 2); /* they do differ inside a wave */
    feed_close(f);
    loader_close(l);
    side->ops->close(side);
}

static void batches_arrive_as_they_were_made(void **state)
{
    (void)state;
    for (int i = 0; i < devices.n; i++) {
        struct loader_options o = { .train = true,
                                    .batch = BATCH,
                                    .shards = SHARDS,
                                    .shard_hi = SHARDS,
                                    .waves = 1,
                                    .first_step = 1,
                                    .steps = STEPS,
                                    .dev = devices.dev[i],
                                    .workers = 1 + i % 3 };

        use_device(i);
        run_feed(devices.dev[i], &o, 1, STEPS);
        o.train = false; /* 23 samples in shards of 5 */
        o.batch = 5;
        o.ranks = 1;
        run_feed(devices.dev[i], &o, 2, 10);
    }
}

static void arrays_and_lists_have_names(void **state)
{
    (void)state;
    assert_int_equal(batch_array_of(&form, "camera"), CAMERA);
    assert_int_equal(batch_list_of(&form, "points"), POINTS);
    assert_int_equal(batch_array_of(&form, "points"), -1);
    assert_int_equal(batch_list_of(&form, "camera"), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(batches_arrive_as_they_were_made), cmocka_unit_test(arrays_and_lists_have_names) };

    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
