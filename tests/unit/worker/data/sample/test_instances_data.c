/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/data/sample/test_instances_data.c - uses: proto worker/core worker/mask worker/data
 * Real data sets as the task of two-stage detectors sees them. */
#include "tests/unit/worker/data/sample/instances_set.h"
#include "worker/data/read/coco/coco.h"
#include "worker/data/loader.h"

#define DATA "../shared/data"

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
    if (coco_read(&(struct coco_options){ .annotations = json, .images = images, .on_bad = BAD_ERROR, .masks = true }, &p, &d, &err) != 0)
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
        cmocka_unit_test(polygons_and_runs_agree),
        cmocka_unit_test(real_sets_train),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
