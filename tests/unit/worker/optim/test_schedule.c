/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/optim/test_schedule.c - uses: proto trainer cpu
 * Learning rate, and the steps at which actions are due. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "worker/optim/schedule.h"

static struct jobspec darknet(void)
{
    return (struct jobspec){ .train_lr = 0.001,
                             .train_burn_in = 1000,
                             .train_burn_in_power = 4,
                             .train_steps = 500200,
                             .train_lr_steps = { 2, { 400000, 450000 } },
                             .train_lr_scale = 0.1,
                             .train_warmup = "power",
                             .train_schedule = "steps" };
}

static void is_close(float have, double want)
{
    assert_true((double)have > want * (1 - 1e-5) && (double)have < want * (1 + 1e-5));
}

static void is_exactly(float have, float want)
{
    assert_memory_equal(&have, &want, sizeof want);
}

/* The examples of specs yolov3, section 6.2. */
static void burn_in_and_steps(void **state)
{
    struct jobspec s = darknet();

    (void)state;
    is_close(schedule_lr(&s, 1), 1e-15);
    is_close(schedule_lr(&s, 100), 1e-7);
    is_close(schedule_lr(&s, 500), 6.25e-5);
    is_close(schedule_lr(&s, 999), 9.96006e-4);
    is_close(schedule_lr(&s, 1000), 1e-3);
    is_close(schedule_lr(&s, 399999), 1e-3);
    is_close(schedule_lr(&s, 400000), 1e-4);
    is_close(schedule_lr(&s, 450000), 1e-5);
}

static void fractions_of_the_job(void **state)
{
    struct jobspec s = darknet();

    (void)state;
    s.train_steps = 1000;
    s.train_burn_in = 0;
    s.train_lr_steps = (struct jobspec_list){ 1, { 0.8 } };
    is_close(schedule_lr(&s, 1), 1e-3);
    is_close(schedule_lr(&s, 799), 1e-3);
    is_close(schedule_lr(&s, 800), 1e-4);
}

static void linear_warm_up(void **state)
{
    struct jobspec s = darknet();

    (void)state;
    s.train_warmup = "linear";
    s.train_warmup_factor = 0.1;
    is_close(schedule_lr(&s, 1), 1e-4);
    is_close(schedule_lr(&s, 501), 5.5e-4);
    is_close(schedule_lr(&s, 1000), 9.991e-4);
    is_close(schedule_lr(&s, 1001), 1e-3);
}

/* The numbers of specs rcnn, section 7.1, with iterations counted from 0, and with the step before each fall. */
static void iterations_of_detectron2(void **state)
{
    struct jobspec s = darknet();

    (void)state;
    s.train_lr = 0.02;
    s.train_warmup = "linear";
    s.train_warmup_factor = 0.001;
    s.train_steps = 90000;
    s.train_lr_steps = (struct jobspec_list){ 2, { 60000, 80000 } };
    is_exactly(schedule_lr(&s, 1), 0.00002f);
    is_exactly(schedule_lr(&s, 1000), 0.01998002f);
    is_exactly(schedule_lr(&s, 1001), 0.02f);
    is_exactly(schedule_lr(&s, 60000), 0.02f);
    is_exactly(schedule_lr(&s, 60001), 0.002f);
    is_exactly(schedule_lr(&s, 80000), 0.002f);
    is_exactly(schedule_lr(&s, 80001), 0.0002f);
    s.train_lr_steps = (struct jobspec_list){ 2, { 0.66666667, 0.88888889 } };
    is_exactly(schedule_lr(&s, 60000), 0.02f);
    is_exactly(schedule_lr(&s, 60001), 0.002f);
    is_exactly(schedule_lr(&s, 80001), 0.0002f);
    s.train_burn_in = 0;
    is_exactly(schedule_lr(&s, 1), 0.02f);
}

/* The rate falls from the full rate at the end of the warm-up; the last step still has a rate above zero. */
static void falling_to_the_end(void **state)
{
    struct jobspec s = darknet();

    (void)state;
    s.train_steps = 1100;
    s.train_burn_in = 101;
    s.train_poly_power = 2;
    s.train_schedule = "constant";
    is_close(schedule_lr(&s, 101), 1e-3);
    is_close(schedule_lr(&s, 1100), 1e-3);
    s.train_schedule = "cosine";
    is_close(schedule_lr(&s, 101), 1e-3);
    is_close(schedule_lr(&s, 601), 0.5e-3);
    is_close(schedule_lr(&s, 1100), 2.4674e-9);
    s.train_lr_end = 0.2;
    is_close(schedule_lr(&s, 101), 1e-3);
    is_close(schedule_lr(&s, 601), 0.6e-3);
    s.train_schedule = "poly";
    is_close(schedule_lr(&s, 601), 0.4e-3);
    s.train_burn_in = 0;
    s.train_lr_end = 0;
    is_close(schedule_lr(&s, 1), 1e-3);
    is_close(schedule_lr(&s, 551), 0.25e-3);
    is_close(schedule_lr(&s, 1100), 1e-3 / 1100 / 1100);
    s.train_warmup = "linear";
    is_close(schedule_lr(&s, 1), 1e-3);
    s.train_burn_in = 100;
    is_close(schedule_lr(&s, 100), 0.99e-3);
    is_close(schedule_lr(&s, 101), 1e-3);
    is_close(schedule_lr(&s, 601), 0.25e-3);
}

static void due_by_number_and_at_the_end(void **state)
{
    (void)state;
    assert_false(schedule_due(10, 9, 25));
    assert_true(schedule_due(10, 10, 25));
    assert_true(schedule_due(10, 25, 25));
    assert_false(schedule_due(0, 25, 25));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(burn_in_and_steps),  cmocka_unit_test(fractions_of_the_job),
                                        cmocka_unit_test(linear_warm_up),     cmocka_unit_test(iterations_of_detectron2),
                                        cmocka_unit_test(falling_to_the_end), cmocka_unit_test(due_by_number_and_at_the_end) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
