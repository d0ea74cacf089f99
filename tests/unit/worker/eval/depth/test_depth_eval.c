/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/eval/depth/test_depth_eval.c
 * uses: proto worker/eval worker/mask worker/core
 * Depth against truths: the numbers equal NumPy's for the same maps (tests/golden/make_depth_scores.py), for any
 * distribution of pictures to ranks. */
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "proto/err.h"
#include "worker/eval/depth/depth_eval.h"

enum { H = 24, W = 40, SEEDS = 16 };

static json_t *golden;

static int setup(void **state)
{
    (void)state;
    golden = json_load_file("tests/golden/depth_scores.json", 0, NULL);
    return golden ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    json_decref(golden);
    return 0;
}

static void maps(int h, int w, int seed, float *truth, float *prediction)
{
    for (int i = 0; i < h * w; i++) {
        uint32_t v = (uint32_t)(i + seed * 1000003) * 2654435761u, far;

        v = (v ^ v >> 15) * 2246822519u;
        far = v >> 8 & 0x3fff;
        truth[i] = v % 3 == 0 ? 0 : (float)far / 128;
        prediction[i] = (float)(far + (v >> 22 & 0x3ff) * (uint32_t)seed + 1) / 1024;
    }
}

static enum depth_crop crop_named(const json_t *name)
{
    const char *s = json_string_value(name);

    return strcmp(s, "garg") == 0 ? DEPTH_CROP_GARG : strcmp(s, "eigen") == 0 ? DEPTH_CROP_EIGEN : DEPTH_CROP_NONE;
}

static double number(const json_t *row, size_t k)
{
    const json_t *x = json_array_get(row, k);

    return json_is_null(x) ? (double)NAN : json_number_value(x);
}

static void near(double is, double should)
{
    if (!(fabs(is - should) <= 1e-11 * fabs(should) + 1e-13))
        fail_msg("%.17g, not %.17g", is, should);
}

static void numbers_of_a_picture(void **state)
{
    const json_t *row;
    size_t i;

    (void)state;
    assert_true(json_array_size(json_object_get(golden, "one")) > 40);
    json_array_foreach (json_object_get(golden, "one"), i, row) {
        int h = (int)number(row, 0), w = (int)number(row, 1);
        struct depth_rule rule = { crop_named(json_array_get(row, 3)), number(row, 4), number(row, 5), number(row, 6) };
        float *truth = malloc((size_t)h * (size_t)w * sizeof *truth), *value = malloc((size_t)h * (size_t)w * sizeof *value);
        struct result_map map = { w, h, value };
        struct depth_score s;
        struct err err;

        maps(h, w, (int)number(row, 2), truth, value);
        assert_int_equal(depth_score(&rule, &map, truth, &s, &err), 0);
        assert_int_equal(s.pixels, (int64_t)number(row, 7));
        near(s.ratio, number(row, 8));
        for (size_t k = 0; k < DEPTH_SCORES; k++)
            near(s.value[k], number(row, 9 + k));
        free(truth);
        free(value);
    }
}

static void crops(void **state)
{
    const json_t *row;
    size_t i;

    (void)state;
    json_array_foreach (json_object_get(golden, "crop"), i, row) {
        struct depth_window c = depth_crop_of(crop_named(json_array_get(row, 2)), (int)number(row, 1), (int)number(row, 0));

        assert_int_equal(c.top, (int)number(row, 3));
        assert_int_equal(c.bottom, (int)number(row, 4));
        assert_int_equal(c.left, (int)number(row, 5));
        assert_int_equal(c.right, (int)number(row, 6));
    }
}

/* ---- several pictures ---- */

struct truths {
    const json_t *seeds;
    float metres[H * W], prediction[H * W];
    int missing; /* the picture without a truth; -1: no such picture */
    int w;       /* that truths say they have */
};

static int read_truth(void *of, int image, struct eval_depth *ret, struct err *err)
{
    struct truths *t = of;

    (void)err;
    maps(H, W, (int)json_integer_value(json_array_get(t->seeds, (size_t)image)), t->metres, t->prediction);
    *ret = (struct eval_depth){ t->w, H, image == t->missing ? NULL : t->metres };
    return 0;
}

static int add(struct evaluator *e, struct truths *t, int image, struct err *err)
{
    static float value[H * W];
    struct result r = { .kind = RESULT_DEPTH, .image = image, .depth = { W, H, value } };

    maps(H, W, (int)json_integer_value(json_array_get(t->seeds, (size_t)image)), t->metres, value);
    return e->ops->add(e, &r, err);
}

/* Scores where rank r of `ranks` saw the pictures that leave r, last ones first. */
static struct metrics scored_by(const struct eval_split *split, struct truths *t, int ranks)
{
    char all[SEEDS * 256];
    size_t used = 0, bytes;
    struct metrics m = { 0 };
    struct evaluator *e = NULL;
    struct err err;

    for (int r = 0; r < ranks; r++) {
        const void *mine;

        if (e)
            e->ops->close(e);
        assert_int_equal(depth_maps.open(split, &e, &err), 0);
        for (int k = split->nimages - 1; k >= 0; k--)
            if (k % ranks == r)
                assert_int_equal(add(e, t, k, &err), 0);
        mine = e->ops->pack(e, &bytes);
        assert_true(used + bytes <= sizeof all);
        if (bytes)
            memcpy(all + used, mine, bytes);
        used += bytes;
    }
    assert_int_equal(e->ops->score(e, all, used, &m, &err), 0);
    e->ops->close(e);
    return m;
}

static const char *const metric_names[] = { "abs_rel", "sq_rel", "rmse", "rmse_log", "a1", "a2", "a3", "scale_median", "scale_std" };
enum { METRICS = DEPTH_SCORES + 2 };

static void means_over_pictures(void **state)
{
    const json_t *row;
    size_t i;

    (void)state;
    json_array_foreach (json_object_get(golden, "many"), i, row) {
        struct truths t = { json_array_get(row, 0), { 0 }, { 0 }, -1, W };
        struct eval_depths depths = { &t, read_truth, { crop_named(json_array_get(row, 1)), 1e-3, number(row, 2), number(row, 3) } };
        struct eval_split split = { .nimages = (int)json_array_size(t.seeds), .depths = &depths };
        struct metrics one = scored_by(&split, &t, 1), three = scored_by(&split, &t, 3);

        assert_int_equal(one.n, METRICS + 1);
        for (int k = 0; k < METRICS; k++) {
            assert_string_equal(one.row[k].name, metric_names[k]);
            near(one.row[k].value, number(row, 4 + (size_t)k));
        }
        assert_string_equal(one.row[METRICS].name, "depth_images");
        assert_true(one.row[METRICS].value == split.nimages);
        for (int k = 0; k <= METRICS; k++)
            assert_memory_equal(&one.row[k].value, &three.row[k].value, sizeof(double));
        free(one.row);
        free(three.row);
    }
}

/* A picture without a truth, or without pixels in the range, counts for nothing. If no picture has a truth, the numbers
 * are missing. */
static void pictures_without_a_truth(void **state)
{
    json_t *seeds = json_pack("[i, i, i]", 1, 2, 3), *two = json_pack("[i, i]", 1, 2);
    struct truths t = { seeds, { 0 }, { 0 }, 2, W }, u = { two, { 0 }, { 0 }, -1, W };
    struct eval_depths depths = { &t, read_truth, { DEPTH_CROP_GARG, 1e-3, 80, (double)NAN } }, fewer = depths, none = depths;
    struct eval_split split = { .nimages = 3, .depths = &depths }, less = { .nimages = 2, .depths = &fewer }, silent = { .nimages = 3 };
    struct metrics a, b;

    (void)state;
    fewer.of = &u;
    a = scored_by(&split, &t, 2);
    b = scored_by(&less, &u, 1);
    for (int k = 0; k <= METRICS; k++)
        assert_memory_equal(&a.row[k].value, &b.row[k].value, sizeof(double));
    free(a.row);
    free(b.row);
    none.rule.least = 1000;
    none.rule.most = 2000;
    split.depths = &none;
    a = scored_by(&split, &t, 1);
    assert_int_equal(a.n, DEPTH_SCORES + 1);
    for (int k = 0; k < DEPTH_SCORES; k++)
        assert_true(isnan(a.row[k].value));
    assert_true(a.row[DEPTH_SCORES].value == 0);
    free(a.row);
    a = scored_by(&silent, &t, 1);
    assert_int_equal(a.n, 0);
    json_decref(seeds);
    json_decref(two);
}

static void refused(void **state)
{
    json_t *seeds = json_pack("[i, i]", 1, 2);
    struct truths t = { seeds, { 0 }, { 0 }, -1, W - 1 };
    struct eval_depths depths = { &t, read_truth, { DEPTH_CROP_NONE, 1e-3, 80, (double)NAN } };
    struct eval_split split = { .nimages = 2, .depths = &depths };
    static float value[H * W];
    struct result boxes = { .kind = RESULT_BOXES }, other = { .kind = RESULT_DEPTH, .image = 2, .depth = { W, H, value } }, own = other;
    struct evaluator *e;
    struct err err;

    (void)state;
    assert_int_equal(depth_maps.open(&split, &e, &err), 0);
    assert_int_equal(e->ops->add(e, &boxes, &err), ERR_INPUT);
    assert_string_equal(err.msg, "a result without depth");
    assert_int_equal(e->ops->add(e, &other, &err), ERR_INPUT);
    assert_string_equal(err.msg, "depth of picture 2, of 2");
    assert_int_equal(add(e, &t, 1, &err), ERR_DATA);
    assert_string_equal(err.msg, "picture 1: the measured depth is 39 x 24 pixels, the picture 40 x 24");
    t.w = W;
    own.image = 1; /* of a network that says 0 */
    assert_int_equal(e->ops->add(e, &own, &err), ERR_NONFINITE);
    assert_string_equal(err.msg, "a depth is 0: it must be a number above 0");
    value[0] = (float)INFINITY;
    for (int i = 1; i < H * W; i++)
        value[i] = (float)INFINITY;
    assert_int_equal(e->ops->add(e, &own, &err), ERR_NONFINITE);
    e->ops->close(e);
    json_decref(seeds);
}

static int compare_floats(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;

    return x < y ? -1 : x > y;
}

/* Against a sort: values of one bucket, of many, alike, subnormal and 0. */
static void medians(void **state)
{
    float value[257] = { 0 }, sorted[257];
    uint32_t v = 1;

    (void)state;
    for (int round = 0; round < 60; round++)
        for (int n = 1; n <= 257; n = n < 6 ? n + 1 : 2 * n - 3) {
            double is, should;
            struct err err;

            for (int i = 0; i < n; i++) {
                v = v * 1664525u + 1013904223u;
                value[i] = round % 4 == 0   ? (float)(v >> 30)
                           : round % 4 == 1 ? 1 + (float)(v >> 16) / (1 << 23)
                                            : ldexpf((float)v, (int)(v >> 24) - 170);
            }
            memcpy(sorted, value, (size_t)n * sizeof *sorted);
            qsort(sorted, (size_t)n, sizeof *sorted, compare_floats);
            should = ((double)sorted[(n - 1) / 2] + (double)sorted[n / 2]) / 2;
            assert_int_equal(depth_median(value, n, &is, &err), 0);
            assert_true(is == should);
        }
}

static void saturated(void **state)
{
    static const float depth[] = { 0.1f, 0.1049f, 0.1051f, 0.2f, 90, 0.1f, 0.103f, 4 };

    (void)state;
    assert_float_equal(depth_saturated(&(struct result_map){ 4, 2, depth }, 0.1), 0.5, 0);
    assert_float_equal(depth_saturated(&(struct result_map){ 4, 2, depth }, 0.03), 0, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_of_a_picture),
        cmocka_unit_test(crops),
        cmocka_unit_test(means_over_pictures),
        cmocka_unit_test(pictures_without_a_truth),
        cmocka_unit_test(refused),
        cmocka_unit_test(medians),
        cmocka_unit_test(saturated),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
