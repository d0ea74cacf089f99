/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/eval/test_evaluator.c
 * uses: proto worker/eval worker/mask worker/core
 * Results become scores by name, independent of the distribution of pictures; results that cannot be scored are
 * refused. */
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
#include "proto/record.h"
#include "worker/eval/boxes/coco_ap.h"
#include "worker/eval/boxes/coco_eval.h"
#include "worker/eval/boxes/voc_eval.h"
#include "worker/mask/rle.h"

enum { IMAGES = 6, CLASSES = 3, EACH = 5, METRICS = 12 + 6 * CLASSES + 1 };

static const int64_t ids[CLASSES] = { 7, 9, 11 };
static const char *const names[CLASSES] = { "a cat", "dog", "a cat" };
static struct truth truths[IMAGES];
static struct detection dets[IMAGES][EACH];
static const struct eval_split split = { IMAGES, CLASSES, ids, names, truths, IMAGES, NULL, NULL, NULL, 0 };
static uint8_t full[50 * 7];
static struct result_mask masks[IMAGES][EACH]; /* which fill their boxes */
static const struct evaluator_ops *const both[] = { &coco_boxes, &voc_boxes, NULL }, *const all_three[] = { &coco_boxes, &coco_segm,
                                                                                                            &voc_boxes, NULL };

static int mask_of_truth(void *of, size_t k, struct rle *ret, struct err *err)
{
    (void)of;
    return rle_from_box(ret, 100, 120, truths[k].box, err);
}

static const struct eval_masks truth_masks = { NULL, mask_of_truth };
static const struct eval_split with_masks = { IMAGES, CLASSES, ids, names, truths, IMAGES, &truth_masks, NULL, NULL, 0 };

/* A box in every picture; the detections lie ever further from it, and every other picture has a detection of another
 * class. */
static int setup(void **state)
{
    (void)state;
    for (int i = 0; i < IMAGES; i++) {
        truths[i] = (struct truth){ .image = i, .cls = i % CLASSES, .area = 2500, .box = { 10, 10, 50, 50 } };
        for (int k = 0; k < EACH; k++) {
            int x = 10 + 4 * i * (k + 1);

            dets[i][k] = (struct detection){ i, (i + (k == 1 && i % 2)) % CLASSES, k, 0.9 - 0.1 * k - 0.01 * i, { x, 10, 50, 50 } };
            masks[i][k] = (struct result_mask){ x, 10, 50, 50, full };
        }
    }
    memset(full, 0xff, sizeof full);
    return 0;
}

static struct result result_of(int image)
{
    return (struct result){ .kind = RESULT_BOXES, .image = image, .n = EACH, .boxes = dets[image] };
}

static struct result masked_result_of(int image)
{
    return (struct result){ .kind = RESULT_MASKS, .image = image, .n = EACH, .boxes = dets[image], .masks = masks[image] };
}

/* Scores where rank r of `ranks` saw the pictures that leave r, last ones first if `backwards`. */
static struct metrics scored_by(const struct evaluator_ops *const *list, const struct eval_split *of_what, int ranks, bool backwards)
{
    struct metrics m = { 0 };
    struct evaluators *of[3] = { NULL };
    char *all = calloc(1, 1 << 20);
    struct err err;

    assert_non_null(all);
    for (int r = 0; r < ranks; r++) {
        assert_int_equal(evaluators_open(list, of_what, &of[r], &err), 0);
        for (int k = 0; k < IMAGES; k++) {
            int image = backwards ? IMAGES - 1 - k : k;
            struct result result = list == both ? result_of(image) : masked_result_of(image);

            if (result.image % ranks == r)
                assert_int_equal(evaluators_add(of[r], &result, &err), 0);
        }
    }
    for (int k = 0; k < of[0]->n; k++) {
        size_t used = 0, bytes;

        for (int r = 0; r < ranks; r++, used += bytes) {
            const void *mine = of[r]->each[k]->ops->pack(of[r]->each[k], &bytes);

            if (bytes > 0)
                memcpy(all + used, mine, bytes);
        }
        assert_int_equal(of[0]->each[k]->ops->score(of[0]->each[k], all, used, &m, &err), 0);
    }
    for (int r = 0; r < ranks; r++)
        evaluators_close(of[r]);
    free(all);
    return m;
}

static struct metrics scored(int ranks, bool backwards)
{
    return scored_by(both, &split, ranks, backwards);
}

static void same_metrics(const struct metrics *a, const struct metrics *b)
{
    assert_int_equal(a->n, b->n);
    for (int i = 0; i < a->n; i++) {
        assert_string_equal(a->row[i].name, b->row[i].name);
        assert_memory_equal(&a->row[i].value, &b->row[i].value, sizeof a->row[i].value);
    }
}

static void ranks_and_order_do_not_show(void **state)
{
    struct metrics one = scored(1, false), masked = scored_by(all_three, &with_masks, 1, false);

    (void)state;
    for (int ranks = 1; ranks <= 3; ranks++) {
        struct metrics other = scored(ranks, true), others = scored_by(all_three, &with_masks, ranks, true);

        same_metrics(&other, &one);
        same_metrics(&others, &masked);
        free(other.row);
        free(others.row);
    }
    free(one.row);
    free(masked.row);
}

/* The metrics of masks stand between those of boxes and the last metric, with the same names behind "segm_". */
static void masks_that_fill_their_boxes_score_as_boxes(void **state)
{
    struct metrics boxes = scored(1, false), m = scored_by(all_three, &with_masks, 2, true);

    (void)state;
    assert_int_equal(m.n, 2 * METRICS - 1);
    for (int i = 0; i < METRICS - 1; i++) {
        assert_string_equal(m.row[i].name, boxes.row[i].name);
        assert_memory_equal(m.row[METRICS - 1 + i].name, "segm_", 5);
        assert_string_equal(m.row[METRICS - 1 + i].name + 5, boxes.row[i].name);
        assert_memory_equal(&m.row[i].value, &boxes.row[i].value, sizeof m.row[i].value);
        assert_memory_equal(&m.row[METRICS - 1 + i].value, &boxes.row[i].value, sizeof m.row[i].value);
    }
    free(boxes.row);
    free(m.row);
}

/* For a data set read without masks, no score of masks is reported, and results with boxes alone are accepted. */
static void without_masks_nothing_is_said_of_them(void **state)
{
    struct metrics boxes = scored(1, false), m = scored_by(all_three, &split, 2, true);
    const struct result r = result_of(0);
    struct evaluator *e;
    struct err err;

    (void)state;
    same_metrics(&m, &boxes);
    assert_int_equal(coco_segm.open(&split, &e, &err), 0);
    assert_int_equal(coco_segm.add(e, &r, &err), 0);
    coco_segm.close(e);
    free(boxes.row);
    free(m.row);
}

static int no_mask(void *of, size_t k, struct rle *ret, struct err *err)
{
    (void)of;
    (void)ret;
    return err_set(err, ERR_DATA, "truth %zu has no mask", k);
}

static void bad_masks_are_named(void **state)
{
    static const struct eval_masks broken = { NULL, no_mask };
    const struct eval_split of_broken = { IMAGES, CLASSES, ids, names, truths, IMAGES, &broken, NULL, NULL, 0 };
    struct result_mask bad[EACH];
    struct result r = masked_result_of(1), boxes = result_of(1);
    struct evaluator *e;
    struct err err;

    (void)state;
    assert_int_equal(coco_segm.open(&of_broken, &e, &err), 0);
    assert_int_equal(coco_segm.add(e, &r, &err), ERR_DATA);
    assert_string_equal(err.msg, "truth 1 has no mask");
    coco_segm.close(e);
    assert_int_equal(coco_segm.open(&with_masks, &e, &err), 0);
    assert_int_equal(coco_segm.add(e, &boxes, &err), ERR_INPUT);
    assert_string_equal(err.msg, "a result without masks");
    r.masks = memcpy(bad, masks[1], sizeof bad);
    bad[2].x = -1;
    assert_int_equal(coco_segm.add(e, &r, &err), ERR_INPUT);
    assert_string_equal(err.msg, "detection 2: a mask of 50 x 50 pixels at -1, 10");
    bad[2] = (struct result_mask){ 16380, 0, 5, 1, full };
    assert_int_equal(coco_segm.add(e, &r, &err), ERR_INPUT);
    bad[2] = (struct result_mask){ 0, 16380, 1, 5, full };
    assert_int_equal(coco_segm.add(e, &r, &err), ERR_INPUT);
    bad[2] = (struct result_mask){ 0 }; /* a mask may be empty */
    assert_int_equal(coco_segm.add(e, &r, &err), 0);
    coco_segm.close(e);
}

static void scores_have_names(void **state)
{
    static const char *const want[METRICS] = { "AP",
                                               "AP50",
                                               "AP75",
                                               "APs",
                                               "APm",
                                               "APl",
                                               "AR1",
                                               "AR10",
                                               "AR100",
                                               "ARs",
                                               "ARm",
                                               "ARl",
                                               "AP50:a cat #7",
                                               "AP50:dog #9",
                                               "AP50:a cat #11",
                                               "AP:a cat #7",
                                               "AP:dog #9",
                                               "AP:a cat #11",
                                               "P50:a cat #7",
                                               "P50:dog #9",
                                               "P50:a cat #11",
                                               "R50:a cat #7",
                                               "R50:dog #9",
                                               "R50:a cat #11",
                                               "conf:a cat #7",
                                               "conf:dog #9",
                                               "conf:a cat #11",
                                               "n:a cat #7",
                                               "n:dog #9",
                                               "n:a cat #11",
                                               "voc_AP50" };
    struct metrics m = scored(2, false);

    (void)state;
    assert_int_equal(m.n, METRICS);
    for (int i = 0; i < METRICS; i++)
        assert_string_equal(m.row[i].name, want[i]);
    assert_true(m.row[1].value > 0.5 && m.row[1].value < 1);
    assert_true(isnan(m.row[3].value));                          /* no truth is small */
    assert_float_equal(m.row[METRICS - 1].value, 5. / 6, 1e-12); /* 1, 1, and of two truths one, that is found first */
    free(m.row);
}

/* The limit of counted detections is the model's, but at least 100. The name of the recall holds this limit. */
static void recall_is_named_by_what_counts(void **state)
{
    static const struct {
        int max_det;
        const char *boxes, *masks;
    } rows[] = {
        { 0, "AR100", "segm_AR100" }, { 40, "AR100", "segm_AR100" }, { 101, "AR101", "segm_AR101" }, { 10000, "AR10000", "segm_AR10000" }
    };
    struct metrics m;

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct eval_split of = with_masks;

        of.max_det = rows[i].max_det;
        m = scored_by(all_three, &of, 1, false);
        assert_string_equal(m.row[COCO_AR_ALL].name, rows[i].boxes);
        assert_string_equal(m.row[METRICS - 1 + COCO_AR_ALL].name, rows[i].masks);
        free(m.row);
    }
}

/* The only object is found by the last of 150 boxes: it counts if the model may give so many. */
static void what_a_model_gives_counts(void **state)
{
    static struct detection many[150];
    struct eval_split of = {
        .nimages = 1, .nclasses = 1, .class_id = ids, .class_name = names, .truths = truths, .ntruths = 1, .max_det = 150
    };
    struct evaluator *e;
    struct metrics m = { 0 };
    char records[150 * 256];
    struct err err;
    size_t bytes;

    (void)state;
    for (int k = 0; k < 150; k++)
        many[k] = (struct detection){ 0, 0, k, 1 - k / 150.0, { k < 149 ? 500 : 10, 10, 50, 50 } };
    for (int round = 0; round < 2; round++, of.max_det = 100) {
        const struct result r = { .kind = RESULT_BOXES, .n = 150, .boxes = many };
        const void *packed;

        assert_int_equal(coco_boxes.open(&of, &e, &err), 0);
        assert_int_equal(coco_boxes.add(e, &r, &err), 0);
        packed = coco_boxes.pack(e, &bytes);
        assert_true(bytes <= sizeof records);
        memcpy(records, packed, bytes);
        m.n = 0;
        assert_int_equal(coco_boxes.score(e, records, bytes, &m, &err), 0);
        assert_true(m.row[COCO_AR_ALL].value == (round == 0));
        assert_true((m.row[COCO_AP50].value > 0) == (round == 0));
        coco_boxes.close(e);
    }
    free(m.row);
}

/* A letter of two bytes is never cut in half, and ids stay whole. */
static void long_names_are_cut_before_the_id(void **state)
{
    static char name[2 * RECORD_MAX_NAME + 1];
    static const char *const alike[CLASSES] = { name, name, name };
    const struct eval_split of_long = { IMAGES, CLASSES, ids, alike, truths, IMAGES, &truth_masks, NULL, NULL, 0 };
    struct metrics m;
    int seen = 0;

    (void)state;
    for (size_t i = 0; i + 1 < sizeof name; i += 2)
        memcpy(name + i, "\xc3\xa9", 2);
    m = scored_by(all_three, &of_long, 1, false);
    for (int i = 0; i < m.n; i++) {
        const char *from = strstr(m.row[i].name, "AP50:"), *id = strchr(m.row[i].name, '#');

        if (!from)
            continue;
        assert_true(id && strtoll(id + 1, NULL, 10) == ids[seen++ % CLASSES]);
        assert_int_equal((id - 1 - (from + 5)) % 2, 0);
        assert_true(strlen(m.row[i].name) > RECORD_MAX_NAME - 3);
    }
    assert_int_equal(seen, 2 * CLASSES);
    free(m.row);
}

static void what_nobody_looks_for_has_no_score(void **state)
{
    const struct eval_split nothing = { IMAGES, CLASSES, ids, names, truths, 0, NULL, NULL, NULL, 0 };
    struct metrics m = scored_by(both, &nothing, 1, false);

    (void)state;
    assert_int_equal(m.n, METRICS);
    for (int i = 0; i < m.n; i++)
        assert_true(strncmp(m.row[i].name, "n:", 2) == 0 ? m.row[i].value == 0 : isnan(m.row[i].value));
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
        r.image = 1;
        assert_int_equal(both[k]->add(e, &r, &err), ERR_INPUT);
        assert_string_equal(err.msg, "detection 0: image 2 in a result of image 1");
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
    const struct eval_split of_it = { 1, CLASSES, ids, names, &bad, 1, NULL, NULL, NULL, 0 };

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
        cmocka_unit_test(masks_that_fill_their_boxes_score_as_boxes),
        cmocka_unit_test(without_masks_nothing_is_said_of_them),
        cmocka_unit_test(bad_masks_are_named),
        cmocka_unit_test(scores_have_names),
        cmocka_unit_test(recall_is_named_by_what_counts),
        cmocka_unit_test(what_a_model_gives_counts),
        cmocka_unit_test(long_names_are_cut_before_the_id),
        cmocka_unit_test(what_nobody_looks_for_has_no_score),
        cmocka_unit_test(other_results_are_refused),
        cmocka_unit_test(bad_truths_are_named),
    };

    return cmocka_run_group_tests(tests, setup, NULL);
}
