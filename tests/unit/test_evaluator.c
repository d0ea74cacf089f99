/* tests/unit/test_evaluator.c - results become scores by name: whoever saw which picture does not show, and what cannot be scored is refused.
 * uses: proto worker/eval worker/mask worker/core */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "proto/err.h"
#include "worker/eval/coco_eval.h"
#include "worker/eval/voc_eval.h"

enum { IMAGES = 6, CLASSES = 3, EACH = 5, METRICS = 12 + CLASSES + 1 };

static const int64_t ids[CLASSES] = { 7, 9, 11 };
static const char *const names[CLASSES] = { "a cat", "dog", "a cat" };
static struct truth truths[IMAGES];
static struct detection dets[IMAGES][EACH];
static const struct eval_split split = { IMAGES, CLASSES, ids, names, truths, IMAGES, NULL };
static const struct evaluator_ops *const both[] = { &coco_boxes, &voc_boxes, NULL };

/* A box in every picture; what was found lies ever further from it, and every other picture has one of another class. */
static int setup(void **state)
{
    (void)state;
    for (int i = 0; i < IMAGES; i++) {
        truths[i] = (struct truth){ .image = i, .cls = i % CLASSES, .area = 2500, .box = { 10, 10, 50, 50 } };
        for (int k = 0; k < EACH; k++)
            dets[i][k] = (struct detection){
                i, (i + (k == 1 && i % 2)) % CLASSES, k, 0.9 - 0.1 * k - 0.01 * i, { 10.0 + 4 * i * (k + 1), 10, 50, 50 }
            };
    }
    return 0;
}

static struct result result_of(int image)
{
    return (struct result){ .kind = RESULT_BOXES, .image = image, .n = EACH, .boxes = dets[image] };
}

/* Scores where rank r of `ranks` saw the pictures that leave r, last ones first if `backwards`. */
static struct metrics scored(int ranks, bool backwards)
{
    struct metrics m = { 0 };
    struct evaluators *of[3] = { NULL };
    char *all = calloc(1, 1 << 20);
    struct err err;

    assert_non_null(all);
    for (int r = 0; r < ranks; r++) {
        assert_int_equal(evaluators_open(both, &split, &of[r], &err), 0);
        for (int k = 0; k < IMAGES; k++) {
            struct result result = result_of(backwards ? IMAGES - 1 - k : k);

            if (result.image % ranks == r)
                assert_int_equal(evaluators_add(of[r], &result, &err), 0);
        }
    }
    for (int k = 0; k < of[0]->n; k++) {
        size_t used = 0, bytes;

        for (int r = 0; r < ranks; r++, used += bytes) {
            const void *mine = of[r]->each[k]->ops->pack(of[r]->each[k], &bytes);

            memcpy(all + used, mine, bytes);
        }
        assert_int_equal(of[0]->each[k]->ops->score(of[0]->each[k], all, used, &m, &err), 0);
    }
    for (int r = 0; r < ranks; r++)
        evaluators_close(of[r]);
    free(all);
    return m;
}

static void ranks_and_order_do_not_show(void **state)
{
    struct metrics one = scored(1, false);

    (void)state;
    for (int ranks = 1; ranks <= 3; ranks++) {
        struct metrics other = scored(ranks, true);

        assert_int_equal(other.n, one.n);
        for (int i = 0; i < one.n; i++) {
            assert_string_equal(other.row[i].name, one.row[i].name);
            assert_memory_equal(&other.row[i].value, &one.row[i].value, sizeof one.row[i].value);
        }
        free(other.row);
    }
    free(one.row);
}

static void scores_have_names(void **state)
{
    static const char *const want[METRICS] = { "AP",      "AP50", "AP75",          "APs",         "APm",
                                               "APl",     "AR1",  "AR10",          "AR100",       "ARs",
                                               "ARm",     "ARl",  "AP50:a cat #7", "AP50:dog #9", "AP50:a cat #11",
                                               "voc_AP50" };
    struct metrics m = scored(2, false);

    (void)state;
    assert_int_equal(m.n, METRICS);
    for (int i = 0; i < METRICS; i++)
        assert_string_equal(m.row[i].name, want[i]);
    assert_true(m.row[1].value > 0.5 && m.row[1].value < 1);
    assert_true(isnan(m.row[3].value)); /* no truth is small */
    assert_true(m.row[15].value > 0.5 && m.row[15].value < 1);
    free(m.row);
}

static void other_results_are_refused(void **state)
{
    (void)state;
    for (int k = 0; both[k]; k++) {
        struct result depth = { .kind = RESULT_DEPTH }, r = result_of(2);
        struct detection bad[1] = { dets[2][0] };
        struct evaluator *e;
        struct err err;

        assert_int_equal(both[k]->open(&split, &e, &err), 0);
        assert_int_equal(both[k]->add(e, &depth, &err), ERR_INPUT);
        r.image = 3;
        assert_int_equal(both[k]->add(e, &r, &err), ERR_INPUT);
        assert_string_equal(err.msg, "detection 0: image 2 in a result of image 3");
        bad[0].cls = CLASSES;
        r = (struct result){ .kind = RESULT_BOXES, .image = 2, .n = 1, .boxes = bad };
        assert_int_equal(both[k]->add(e, &r, &err), ERR_INPUT);
        assert_string_equal(err.msg, "detection 0: class 3 of 3");
        both[k]->close(e);
    }
}

static void bad_truths_are_named(void **state)
{
    struct truth bad = { .box = { 0, 0, NAN, 1 } };
    const struct eval_split of_it = { 1, CLASSES, ids, names, &bad, 1, NULL };

    (void)state;
    for (int k = 0; both[k]; k++) {
        struct evaluators *all;
        struct err err;

        assert_int_equal(evaluators_open(both, &of_it, &all, &err), ERR_INPUT);
        assert_string_equal(err.msg, "truth 0: a number is not finite");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_and_order_do_not_show),
        cmocka_unit_test(scores_have_names),
        cmocka_unit_test(other_results_are_refused),
        cmocka_unit_test(bad_truths_are_named),
    };

    return cmocka_run_group_tests(tests, setup, NULL);
}
