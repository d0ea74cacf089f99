/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/report/test_window.c - sums of loss terms over shards,
 * steps and the job. uses: proto trainer cpu */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "worker/report/window.h"

static const struct loss_term terms[] = { { "total", TERM_RATIO }, { "depth", TERM_MEAN } };

/* Shards of 3 images and 1: the ratio is over images, the mean over shards; a mean of means would give 2 for both. */
static void ratios_and_means(void **state)
{
    double records[2][4] = { { 3.0, 3, 6.0, 3 }, { 3.0, 1, 6.0, 1 } }, sums[4];
    const double *rows[2] = { records[0], records[1] };
    struct window w;

    (void)state;
    for (int v = 0; v < 2; v++)
        window_record(terms, 2, records[v]);
    window_sum(2, rows, 2, sums);
    window_reset(&w, 2);
    window_add(&w, sums, 4);
    assert_true(window_value(&w, 0) == 1.5);
    assert_true(window_value(&w, 1) == 4.0);
    window_add(&w, sums, 4);
    assert_true(window_value(&w, 0) == 1.5);
    assert_int_equal(w.images, 8);
}

/* Leaves pair up as (0 + 1) + (2 + 3): one after another, the first two small numbers would be lost. */
static void tree_order(void **state)
{
    double records[4][2] = { { 1, 1 }, { 1, 1 }, { 0x1p53, 1 }, { 0, 1 } }, sums[2];
    const double *rows[4] = { records[0], records[1], records[2], records[3] };

    (void)state;
    window_sum(1, rows, 4, sums);
    assert_true(sums[0] == 0x1p53 + 2);
    assert_true(sums[1] == 4);
}

static void not_finite(void **state)
{
    double record[4] = { 1, 1, 2, 1 };
    struct window w;

    (void)state;
    assert_int_equal(window_nonfinite(record, 2), -1);
    record[2] = NAN;
    assert_int_equal(window_nonfinite(record, 2), 1);
    record[1] = INFINITY;
    assert_int_equal(window_nonfinite(record, 2), 1); /* the term that made the total non-finite, if it is known */
    record[2] = 2;
    assert_int_equal(window_nonfinite(record, 2), 0);
    window_reset(&w, 2);
    assert_true(isnan(window_value(&w, 0)));
    record[1] = record[3] = 0; /* a term without a denominator must not hide another */
    record[2] = NAN;
    window_record(terms, 2, record);
    assert_int_equal(window_nonfinite(record + 2, 1), 0);
}

/* Objects may be missing where numerators are not: such records are added as they are, and only the last sum is divided
 * by 1. A term that nothing was counted for has no value. */
static void no_objects(void **state)
{
    struct window w;

    (void)state;
    window_reset(&w, 2);
    window_add(&w, (const double[]){ 6, 0, 0, 0 }, 2);
    assert_true(window_denominator(&w, 0) == 1 && window_value(&w, 0) == 6);
    assert_true(window_denominator(&w, 1) == 0 && isnan(window_value(&w, 1)));
    window_add(&w, (const double[]){ 6, 3, 0, 2 }, 2);
    assert_true(window_denominator(&w, 0) == 3 && window_value(&w, 0) == 4);
    assert_true(window_denominator(&w, 1) == 2 && window_value(&w, 1) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(ratios_and_means), cmocka_unit_test(tree_order), cmocka_unit_test(not_finite),
                                        cmocka_unit_test(no_objects) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
