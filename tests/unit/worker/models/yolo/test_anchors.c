/* SPDX-License-Identifier: Apache-2.0 */ /* Anchors from boxes: clusters are found, order changes nothing, and the mean
 * IoU is that of a plain count.
 * uses: proto worker/models worker/layers worker/data worker/eval worker/mask worker/comm worker/core cpu */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "proto/err.h"
#include "worker/models/yolo/anchors.h"

enum { GROUPS = 5, EACH = 40, N = GROUPS * EACH };

static const double centre[GROUPS][2] = { { 8, 10 }, { 30, 12 }, { 14, 40 }, { 90, 80 }, { 60, 200 } };

/* Boxes around the centres, within a tenth of them, in an order of `seed`. */
static void boxes(double ret[N][2], unsigned seed)
{
    for (int i = 0; i < N; i++) {
        const double *c = centre[i % GROUPS];

        ret[i][0] = c[0] * (1 + ((i * 7) % 19 - 9) / 90.0);
        ret[i][1] = c[1] * (1 + ((i * 11) % 17 - 8) / 80.0);
    }
    for (int i = N - 1; i > 0; i--) {
        int j = (int)((seed = seed * 1664525u + 1013904223u) >> 8) % (i + 1);
        double t[2] = { ret[i][0], ret[i][1] };

        memcpy(ret[i], ret[j], sizeof t);
        memcpy(ret[j], t, sizeof t);
    }
}

static void clusters_are_found(void **state)
{
    double box[N][2], anchor[GROUPS][2];
    struct err err;

    (void)state;
    boxes(box, 1);
    assert_int_equal(anchors_fit(box, N, GROUPS, anchor, &err), 0);
    for (int i = 0; i < GROUPS; i++)
        for (int k = 0; k < 2; k++)
            assert_true(fabs(anchor[i][k] / centre[i][k] - 1) < 0.02);
    assert_true(anchors_mean_iou((const double(*)[2])box, N, (const double(*)[2])anchor, GROUPS) > 0.88);
}

static void order_changes_nothing(void **state)
{
    double box[N][2], first[GROUPS][2], again[GROUPS][2];
    struct err err;

    (void)state;
    boxes(box, 1);
    assert_int_equal(anchors_fit(box, N, GROUPS, first, &err), 0);
    for (unsigned seed = 2; seed < 6; seed++) {
        boxes(box, seed);
        assert_int_equal(anchors_fit(box, N, GROUPS, again, &err), 0);
        assert_memory_equal(first, again, sizeof first);
    }
}

/* The resulting anchors are at least as good as any start and any mean. */
static void more_anchors_fit_better(void **state)
{
    double box[N][2], anchor[N][2], last = 0;
    struct err err;

    (void)state;
    boxes(box, 3);
    for (int k = 1; k <= 12; k++) {
        double fit;

        assert_int_equal(anchors_fit(box, N, k, anchor, &err), 0);
        fit = anchors_mean_iou((const double(*)[2])box, N, (const double(*)[2])anchor, k);
        assert_true(fit > last - 0.01);
        for (int i = 1; i < k; i++)
            assert_true(anchor[i - 1][0] * anchor[i - 1][1] <= anchor[i][0] * anchor[i][1]);
        last = fit > last ? fit : last;
    }
    assert_int_equal(anchors_fit(box, N, N, anchor, &err), 0);
    assert_true(anchors_mean_iou((const double(*)[2])box, N, (const double(*)[2])anchor, N) > 0.999);
}

static void the_mean_is_that_of_the_best_fits(void **state)
{
    const double box[3][2] = { { 2, 2 }, { 4, 1 }, { 10, 10 } }, anchor[2][2] = { { 2, 2 }, { 5, 10 } };

    (void)state;
    /* 1; 2 / (4 + 4 - 2); 50 / (100 + 50 - 50) */
    assert_true(fabs(anchors_mean_iou(box, 3, anchor, 2) - (1 + 2.0 / 6 + 0.5) / 3) < 1e-12);
    assert_true(anchors_mean_iou(box, 0, anchor, 2) == 0);
}

static void too_few_boxes(void **state)
{
    double box[2][2] = { { 1, 2 }, { 3, 4 } }, anchor[3][2];
    struct err err;

    (void)state;
    assert_int_equal(anchors_fit(box, 2, 3, anchor, &err), ERR_DATA);
    assert_string_equal(err.msg, "2 boxes are too few for 3 anchors");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clusters_are_found),      cmocka_unit_test(order_changes_nothing),
        cmocka_unit_test(more_anchors_fit_better), cmocka_unit_test(the_mean_is_that_of_the_best_fits),
        cmocka_unit_test(too_few_boxes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
