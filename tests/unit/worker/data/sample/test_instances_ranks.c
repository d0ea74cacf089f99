/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/data/sample/test_instances_ranks.c
 * uses: proto worker/core worker/mask worker/data
 * Samples of two-stage detectors are the same for any ranks, waves, threads and resumes, and their random draws are
 * spread as expected. */
#include "tests/unit/worker/data/sample/instances_set.h"
#include "worker/core/stress.h"
#include "worker/data/loader.h"

enum { PICTURES = 13, STEPS = 9, SHARDS = 4, BATCH = 8 };

static struct fixture many(bool masks)
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
    return open_set(sizes, text, masks);
}

/* hash: of each whole sample, with index and canvas. */
struct seen {
    struct hash128 hash[STEPS + 1][BATCH];
    struct canvas canvas[STEPS + 1][SHARDS];
    int32_t index[STEPS + 1][BATCH];
};

/* The samples that the ranks of a job get from a step on. */
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
                    draw[i] = (struct draw){ ((b.step - 1) * BATCH + s->shard * s->n + i) / PICTURES, s->index[i], s->shard };
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
    struct fixture f = many(true);
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

/* So are parts of pictures. */
static void parts_for_any_ranks(void **state)
{
    struct fixture f = many(false);
    struct instances_options o = drawn();
    static struct seen want, got, whole;

    (void)state;
    look(f.d, &o, 1, 1, 1, 1, &whole);
    o.crop = 0.5f;
    look(f.d, &o, 1, 1, 1, 1, &want);
    look(f.d, &o, 1, 3, 2, 4, &got);
    assert_memory_equal(&got, &want, sizeof want);
    assert_memory_not_equal(want.canvas, whole.canvas, sizeof want.canvas);
    memset(&got, 0, sizeof got);
    look(f.d, &o, 6, 2, 1, 2, &got);
    assert_memory_equal(got.hash[6], want.hash[6], sizeof want.hash[6] * (STEPS - 5));
    close_set(&f);
}

/* Each size is drawn by step and shard alone. Each picture is mirrored about half of the time, by epoch and picture
 * alone. */
static void what_is_drawn(void **state)
{
    struct fixture f = many(true);
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
    /* no size is stated, so the picture is missed while the file is read; a picture damaged behind its header is missed
     * later */
    assert_int_equal(
        check_split(&(struct check_options){ .annotations = f.json, .images = f.dir, .on_bad = BAD_SKIP, .threads = 1, .masks = true }, &p,
                    &d, &err),
        0);
    m = dataset_mask(d, 0);
    assert_true(d->nimages == 1 && m.kind == MASK_RUNS && m.n == 5 && memcmp(m.run, runs, sizeof runs) == 0);
    dataset_free(d);
    write_picture(f.dir, "0.png", 40, 20);
    assert_int_equal(truncate(path, 200), 0);
    assert_int_equal(
        check_split(&(struct check_options){ .annotations = f.json, .images = f.dir, .on_bad = BAD_SKIP, .threads = 1, .masks = true }, &p,
                    &d, &err),
        0);
    m = dataset_mask(d, 0);
    assert_true(d->nimages == 1 && m.kind == MASK_RUNS && m.n == 5 && memcmp(m.run, runs, sizeof runs) == 0);
    dataset_free(d);
    close_set(&f);
}

/* A missing picture is replaced by the next. If that does not fit the canvas, it is shrunk. */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_threads_and_resumes), cmocka_unit_test(parts_for_any_ranks),         cmocka_unit_test(what_is_drawn),
        cmocka_unit_test(mirrors_are_drawn),         cmocka_unit_test(masks_stay_with_their_boxes), cmocka_unit_test(a_substitute_fits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
