/* SPDX-License-Identifier: Apache-2.0 */ /* VOC average precision and the precision/recall curve under it; numbers from
 * the vectors average_precision and voc_matching of the specification.
 * uses: proto worker/eval worker/mask worker/core */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "proto/err.h"
#include "tests/unit/worker/eval/boxes/eval_scores.h"
#include "worker/eval/boxes/voc_eval.h"

static const struct {
    const char *flags; /* 'T' hit, 'F' miss, 'i' ignored, by falling score */
    size_t npos;
    double all, eleven, hundred;
} curves[] = {
    { "TTFTFFT", 5, .6642857142857144, .6948051948051948, .6676096181046672 },
    { "FT", 2, .25, .2727272727272727, .2524752475247525 },
    { "", 3, 0, 0, 0 },
    { "TTT", 3, 1, 1, 1 },
    { "iTTiFTiFFTi", 5, .6642857142857144, .6948051948051948, .6676096181046672 },
    { "FFF", 0, 0, 0, 0 },
};

static void average_precision_matches_the_vectors(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof curves / sizeof *curves; i++) {
        size_t n = strlen(curves[i].flags);
        uint8_t flags[16];

        for (size_t j = 0; j < n; j++)
            flags[j] = curves[i].flags[j] == 'T' ? PR_TP : curves[i].flags[j] == 'F' ? PR_FP : PR_IGNORED;
        assert_true(fabs(pr_average_precision(flags, n, curves[i].npos, PR_ALL_POINTS) - curves[i].all) < 1e-12);
        assert_true(fabs(pr_average_precision(flags, n, curves[i].npos, PR_11_POINTS) - curves[i].eleven) < 1e-12);
        assert_true(fabs(pr_average_precision(flags, n, curves[i].npos, PR_101_POINTS) - curves[i].hundred) < 1e-12);
    }
}

/* Corners x1 y1 x2 y2 of the vector as x y width height. */
static const struct truth truths[] = {
    { .box = { 10, 10, 40, 40 } },
    { .box = { 60, 60, 40, 40 }, .difficult = true },
};
static const struct detection dets[] = {
    { .score = .9, .slot = 0, .box = { 12, 12, 40, 40 } }, /* hit */
    { .score = .8, .slot = 1, .box = { 11, 9, 38, 42 } },  /* second on the same box: miss */
    { .score = .7, .slot = 2, .box = { 61, 61, 38, 38 } }, /* difficult: ignored */
    { .score = .6, .slot = 3, .box = { 0, 60, 20, 20 } },  /* miss */
};

static double map_of(const struct detection *d, size_t nd, const struct truth *t, size_t nt, int nclasses)
{
    struct voc_ap ap;
    double map;

    ap = voc_scores(d, nd, t, nt, nclasses);
    map = ap.map;
    voc_ap_free(&ap);
    return map;
}

static void matching_follows_the_vector(void **state)
{
    struct voc_ap ap;
    struct detection late[4];

    (void)state;
    ap = voc_scores(dets, 4, truths, 2, 1);
    assert_int_equal(ap.npos[0], 1);
    assert_true(fabs(ap.map - 1) < 1e-12);
    voc_ap_free(&ap);
    memcpy(late, dets, sizeof late);
    late[0].score = .1; /* now the other one hits first, and this one misses */
    assert_true(fabs(map_of(late, 4, truths, 2, 1) - 1) < 1e-12);
    late[1].score = .65; /* the ignored one in front does not count */
    assert_true(fabs(map_of(late, 4, truths, 2, 1) - 1) < 1e-12);
    late[3].score = .95; /* a miss in front halves the precision */
    assert_true(fabs(map_of(late, 4, truths, 2, 1) - .5) < 1e-12);
}

/* A detection matches only the box that it overlaps most. If that box is taken, it has no second try; of two boxes with
 * equal overlap it matches the first. */
static void the_first_of_the_best_decides(void **state)
{
    struct truth t[2] = { truths[0], { .box = { 60, 60, 40, 40 } } };

    (void)state;
    assert_true(fabs(map_of(dets, 3, t, 2, 1) - (.5 + .5 * 2 / 3)) < 1e-12); /* hit, miss, hit */
    t[0].difficult = true;
    t[1] = truths[0];
    assert_true(map_of(dets, 1, t, 2, 1) == 0);
}

static void order_of_arrival_does_not_show(void **state)
{
    struct detection shuffled[4] = { dets[2], dets[0], dets[3], dets[1] };

    (void)state;
    for (int i = 0; i < 4; i++)
        shuffled[i].score = .5; /* all tie: the slot decides */
    assert_true(fabs(map_of(shuffled, 4, truths, 2, 1) - 1) < 1e-12);
    for (int i = 0; i < 4; i++)
        shuffled[i].slot = 9 - shuffled[i].slot;
    assert_true(map_of(shuffled, 4, truths, 2, 1) < .9);
}

static void classes_and_images_are_kept_apart(void **state)
{
    struct truth t[2] = { truths[0], truths[0] };
    struct detection d[2] = { dets[0], dets[0] };

    (void)state;
    t[1].cls = 1;
    d[1].image = 1;
    assert_true(fabs(map_of(d, 2, t, 2, 3) - .5) < 1e-12); /* class 0: 1, class 1: 0, class 2 has no truths */
    d[0].cls = 1;
    d[1].cls = 1;
    assert_true(fabs(map_of(d, 2, t, 2, 3) - .5) < 1e-12);
    assert_true(map_of(d, 2, NULL, 0, 3) == -1);
    assert_true(map_of(NULL, 0, t, 2, 3) == 0);
}

static void an_overlap_of_exactly_the_threshold_counts(void **state)
{
    struct truth t = { .box = { 0, 0, 10, 10 } };
    struct detection d = { .score = .5, .box = { 0, 0, 10, 5 } };

    (void)state;
    assert_float_equal(map_of(&d, 1, &t, 1, 1), 1, 1e-9);
    d.box[3] = 4.9999999;
    assert_true(map_of(&d, 1, &t, 1, 1) == 0);
}

static void a_crowd_is_neither_wanted_nor_wrong(void **state)
{
    const struct truth crowd = { .box = { 60, 60, 40, 40 }, .crowd = true };
    const struct truth both[2] = { truths[0], crowd };
    struct detection d[2] = { dets[2], dets[0] };

    (void)state;
    d[0].score = 1; /* in front of the hit: as a miss it would halve the precision */
    assert_float_equal(map_of(d, 2, both, 2, 1), 1, 1e-12);
}

static void equal_detections_are_ordered_by_their_boxes(void **state)
{
    struct detection a = dets[0], b = dets[0];

    (void)state;
    assert_int_equal(detection_compare(&a, &b), 0);
    for (int k = 0; k < 4; k++) {
        b.box[k] += 1;
        assert_true(detection_compare(&a, &b) < 0 && detection_compare(&b, &a) > 0);
        b.box[k] -= 1;
    }
}

static void bad_records_are_refused(void **state)
{
    const struct eval_split split = { .nimages = 1, .nclasses = 1, .truths = truths, .ntruths = 2 };
    struct detection d = dets[0];
    const struct result r = { .kind = RESULT_BOXES, .n = 1, .boxes = &d };
    struct evaluator *e;
    struct err err;

    (void)state;
    d.cls = -1;
    assert_int_equal(voc_boxes.open(&split, &e, &err), 0);
    assert_int_equal(voc_boxes.add(e, &r, &err), ERR_INPUT);
    assert_string_equal(err.msg, "detection 0: class -1 of 1");
    voc_boxes.close(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(average_precision_matches_the_vectors),
        cmocka_unit_test(matching_follows_the_vector),
        cmocka_unit_test(order_of_arrival_does_not_show),
        cmocka_unit_test(classes_and_images_are_kept_apart),
        cmocka_unit_test(an_overlap_of_exactly_the_threshold_counts),
        cmocka_unit_test(the_first_of_the_best_decides),
        cmocka_unit_test(a_crowd_is_neither_wanted_nor_wrong),
        cmocka_unit_test(equal_detections_are_ordered_by_their_boxes),
        cmocka_unit_test(bad_records_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
