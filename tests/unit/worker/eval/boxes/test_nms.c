/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/eval/boxes/test_nms.c - non-maximum suppression: ties,
 * classes, limits. uses: proto worker/core worker/eval worker/mask */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>

#include "worker/eval/boxes/nms.h"

static struct candidate square(float x, float side, float score, int cls, int slot)
{
    return (struct candidate){ x, 0, x + side, side, score, cls, slot };
}

static void ties_and_limits(void **state)
{
    struct candidate c[] = { square(0, 10, 0.5f, 0, 9),  square(1, 10, 0.5f, 0, 3),   square(100, 10, 0.5f, 1, 3),
                             square(101, 10, NAN, 0, 1), square(200, 10, 0.9f, 2, 8), square(300, 10, 0.1f, 0, 0) };
    struct candidate d[6];

    (void)state;
    for (size_t i = 0; i < 6; i++)
        d[i] = c[5 - i]; /* the order they come in changes nothing */
    assert_int_equal(nms(c, 6, 0.45f, 100), 4);
    assert_int_equal(nms(d, 6, 0.45f, 100), 4);
    assert_memory_equal(c, d, 4 * sizeof(c[0]));
    assert_true(c[0].slot == 8 && c[1].slot == 3 && c[1].cls == 0 && c[2].cls == 1 && c[3].slot == 0);
    assert_int_equal(nms(c, 4, 0.45f, 2), 2);
    assert_int_equal(nms(c, 2, 0.45f, 0), 0);
    assert_int_equal(nms(c, 0, 0.45f, 10), 0);
}

/* The overlap must be over the threshold, not at it. A suppressed box and a box of another class suppress no box. */
static void threshold(void **state)
{
    struct candidate c[] = { square(0, 10, 0.9f, 0, 0), square(5, 10, 0.8f, 0, 1), square(10, 10, 0.7f, 0, 2) };

    (void)state;
    assert_int_equal(nms(c, 3, 0.34f, 10), 3); /* neighbours overlap by 1/3 */
    assert_int_equal(nms(c, 3, 0.33f, 10), 2);
    assert_true(c[0].slot == 0 && c[1].slot == 2);
    c[1] = square(1, 10, 0.8f, 1, 1);
    assert_int_equal(nms(c, 2, 0.33f, 10), 2);
    c[0] = (struct candidate){ 0, 0, 8, 4, 0.9f, 0, 0 };
    c[1] = (struct candidate){ 0, 0, 4, 4, 0.8f, 0, 1 };
    assert_int_equal(nms(c, 2, 0.5f, 10), 2); /* by exactly one half */
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(ties_and_limits), cmocka_unit_test(threshold) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
