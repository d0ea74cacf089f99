/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/supervisor/test_orders.c - commands of detd and SIGTERM: the
 * facts that follow, and what waits for rank 0. uses: proto supervisor */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include <uv.h>

#include "supervisor/orders.h"

enum { NO_FACT = -1 };

static int told;

/* The wish is remembered, as the table does. */
static void hear(void *arg, enum going_fact fact, const char *text)
{
    (void)text;
    told = (int)fact;
    going_next(arg, fact);
}

static void take(struct orders *o, const char *text)
{
    json_t *msg = json_loads(text, 0, NULL);

    assert_non_null(msg);
    told = NO_FACT;
    orders_take(o, msg);
    json_decref(msg);
}

/* Ranks that are on their way out: nothing is passed to them. */
static void each_command_by_what_was_wished_before(void **state)
{
    static const struct {
        unsigned wishes;
        const char *text;
        int fact;
        unsigned waiting;
        double stop_s;
    } cases[] = {
        { 0, "{\"word\":\"cancel\"}", GOING_FACT_CANCEL, 0, 30 },
        { 0, "{\"word\":\"cancel\",\"deadline\":7}", GOING_FACT_CANCEL, 0, 7 },
        { 0, "{\"word\":\"cancel\",\"deadline\":-1}", GOING_FACT_CANCEL, 0, 86400 },
        { 0, "{\"word\":\"pause\"}", GOING_FACT_PAUSE, 0, 0 },
        { 0, "{\"word\":\"pause\",\"deadline\":1e9}", GOING_FACT_PAUSE, 0, 86400 },
        { GOING_WISH_PAUSE, "{\"word\":\"pause\"}", NO_FACT, 0, 0 },
        { GOING_WISH_PAUSE, "{\"word\":\"cancel\"}", GOING_FACT_CANCEL, 0, 30 },
        { GOING_WISH_CANCEL, "{\"word\":\"cancel\"}", NO_FACT, 0, 0 },
        { GOING_WISH_CANCEL, "{\"word\":\"pause\",\"deadline\":7}", NO_FACT, 0, 0 },
        { GOING_WISH_LEAVE, "{\"word\":\"pause\",\"deadline\":7}", GOING_FACT_PAUSE, 0, 7 },
        { GOING_WISH_LIMIT, "{\"word\":\"pause\",\"deadline\":7}", GOING_FACT_PAUSE, 0, 7 },
        { 0, "{\"word\":\"checkpoint\"}", NO_FACT, ORDERS_CHECKPOINT, 0 },
        { 0, "{\"word\":\"eval\"}", NO_FACT, ORDERS_EVAL, 0 },
        { 0, "{\"word\":\"tier\",\"tier\":\"world\"}", NO_FACT, ORDERS_TIER, 0 },
        { 0, "{\"word\":\"tier\",\"tier\":\"sixteen letters_\"}", NO_FACT, 0, 0 },
        { 0, "{\"word\":\"tier\"}", NO_FACT, 0, 0 },
        { 0, "{\"word\":\"dance\"}", NO_FACT, 0, 0 },
        { 0, "{}", NO_FACT, 0, 0 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct going g = { .phase = GOING_STOPPING, .wishes = cases[i].wishes };
        struct orders o = { .going = &g, .fact = hear, .arg = &g };

        take(&o, cases[i].text);
        if (told != cases[i].fact || o.waiting != cases[i].waiting || (told != NO_FACT && o.stop_s != cases[i].stop_s))
            fail_msg("%s: fact %d, waiting %u, %g s", cases[i].text, told, o.waiting, o.stop_s);
    }
}

static void a_signal_counts_once(void **state)
{
    struct going g = { .phase = GOING_STOPPING };
    struct orders o = { .going = &g, .fact = hear, .arg = &g };

    (void)state;
    orders_leave(&o);
    assert_true(told == GOING_FACT_LEAVE && o.stop == ORDERS_PAUSE && o.stop_s == 60);
    told = NO_FACT;
    orders_leave(&o);
    assert_int_equal(told, NO_FACT);
}

static void a_tier_is_asked_for_until_it_is_settled(void **state)
{
    struct going g = { .phase = GOING_GREETING };
    struct orders o = { .going = &g, .fact = hear, .arg = &g };

    (void)state;
    take(&o, "{\"word\":\"tier\",\"tier\":\"world\"}");
    o.waiting = 0; /* it was passed */
    take(&o, "{\"word\":\"tier\",\"tier\":\"world\"}");
    assert_int_equal(o.waiting, 0); /* given again after a reconnect */
    orders_attempt_begins(&o);
    assert_int_equal(o.waiting, ORDERS_TIER);
    o.waiting = 0;
    orders_tier_settled(&o, "rerun");
    orders_attempt_begins(&o);
    assert_int_equal(o.waiting, ORDERS_TIER);
    o.waiting = 0;
    orders_tier_settled(&o, "world");
    orders_attempt_begins(&o);
    assert_int_equal(o.waiting, 0);
    take(&o, "{\"word\":\"tier\",\"tier\":\"world\"}");
    assert_int_equal(o.waiting, ORDERS_TIER);
}

/* The pause was passed without a deadline. */
static void a_deadline_may_come_later(void **state)
{
    static const char hurry[] = "{\"word\":\"pause\",\"deadline\":1000}", again[] = "{\"word\":\"pause\",\"deadline\":2000}";
    struct going g = { .phase = GOING_STOPPING, .wishes = GOING_WISH_PAUSE };
    struct orders o = { .going = &g, .fact = hear, .arg = &g };
    uint64_t due;
    uv_loop_t loop;

    (void)state;
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(uv_timer_init(&loop, &o.deadline), 0);
    take(&o, hurry);
    assert_false(uv_is_active((uv_handle_t *)&o.deadline)); /* the ranks leave already */
    g.phase = GOING_RUNNING;
    take(&o, "{\"word\":\"pause\"}");
    assert_false(uv_is_active((uv_handle_t *)&o.deadline));
    take(&o, hurry);
    assert_true(uv_is_active((uv_handle_t *)&o.deadline));
    due = uv_timer_get_due_in(&o.deadline);
    take(&o, again);
    assert_true(uv_timer_get_due_in(&o.deadline) <= due); /* nothing is put off */
    orders_attempt_over(&o);
    assert_false(uv_is_active((uv_handle_t *)&o.deadline));
    uv_close((uv_handle_t *)&o.deadline, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_command_by_what_was_wished_before),
        cmocka_unit_test(a_signal_counts_once),
        cmocka_unit_test(a_tier_is_asked_for_until_it_is_settled),
        cmocka_unit_test(a_deadline_may_come_later),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
