/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/daemon/job/test_life.c - uses: proto daemon */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "daemon/job/life.h"
#include "tests/stand/states_dot.h"

#define CELL(phase, fact, next, action, within)                                                           \
    {                                                                                                     \
        LIFE_##phase, LIFE_FACT_##fact, LIFE_##next, LIFE_##action, within, #phase, #fact, #next, #action \
    }

/* The meaning of each fact in each phase. A fact without an entry here means nothing. */
static const struct {
    enum life_phase phase;
    enum life_fact fact;
    enum life_phase next;
    enum life_action action;
    int within_s;
    const char *phase_name, *fact_name, *next_name, *action_name;
} cells[] = {
    CELL(IDLE, ADOPTED, STARTED, NOTHING, 60),
    CELL(IDLE, FOUND, LEAVING, NOTHING, 60),
    CELL(IDLE, GRANTED, COMMITTING, COMMIT, 0),
    CELL(IDLE, HELLO, LEAVING, NOTHING, 60),

    CELL(COMMITTING, COMMITTED, WAITING, NOTHING, 0),
    CELL(COMMITTING, ENDED, LEAVING, NOTHING, 20),
    CELL(COMMITTING, UNCOMMITTED, STARTED, NOTHING, 60),

    CELL(WAITING, DUE, PREPARING, PREPARE, 0),
    CELL(WAITING, ENDED, LEAVING, NOTHING, 20),

    CELL(PREPARING, READY, STARTED, NOTHING, 60),
    CELL(PREPARING, REFUSED, WAITING, TELL_REFUSED, 0),
    CELL(PREPARING, UNREADABLE, WAITING, TELL_UNREADABLE, 0),
    CELL(PREPARING, UNREACHABLE, WAITING, TELL_UNREACHABLE, 0),
    CELL(PREPARING, HELD, WAITING, TELL_HELD, 0),
    CELL(PREPARING, HELLO, CONNECTED, NOTHING, 0),
    CELL(PREPARING, ENDED, LEAVING, NOTHING, 20),

    CELL(STARTED, REFUSED, WAITING, TELL_REFUSED, 0),
    CELL(STARTED, UNREADABLE, WAITING, TELL_UNREADABLE, 0),
    CELL(STARTED, UNREACHABLE, WAITING, TELL_UNREACHABLE, 0),
    CELL(STARTED, HELLO, CONNECTED, NOTHING, 0),
    CELL(STARTED, EXITED, STARTED, NOTHING, 5),
    CELL(STARTED, ENDED, LEAVING, NOTHING, 20),
    CELL(STARTED, LOST, COMMITTING, LOSE, 0),
    CELL(STARTED, LEFT, IDLE, RELEASE, 0),
    CELL(STARTED, OVERDUE, STUCK, KILL, 20),

    CELL(CONNECTED, HELLO, CONNECTED, NOTHING, 0),
    CELL(CONNECTED, GONE, STARTED, NOTHING, 60),
    CELL(CONNECTED, EXITED, STARTED, NOTHING, 5),
    CELL(CONNECTED, ENDED, LEAVING, NOTHING, 60),
    CELL(CONNECTED, OVERDUE, STUCK, KILL, 20),

    CELL(LEAVING, EXITED, LEAVING, NOTHING, 5),
    CELL(LEAVING, LOST, COMMITTING, LOSE, 0),
    CELL(LEAVING, LEFT, IDLE, RELEASE, 0),
    CELL(LEAVING, OVERDUE, STUCK, KILL, 20),

    CELL(STUCK, LOST, COMMITTING, LOSE, 0),
    CELL(STUCK, LEFT, IDLE, RELEASE, 0),
    CELL(STUCK, OVERDUE, STUCK, NAME, 60),
};

static void every_fact_in_every_phase(void **state)
{
    (void)state;
    for (int p = 0; p < LIFE_PHASE_COUNT; p++)
        for (int f = 0; f < LIFE_FACT_COUNT; f++) {
            struct life l = { .phase = (enum life_phase)p, .deadline = 77 };
            enum life_action action = life_next(&l, (enum life_fact)f, 1000), want = LIFE_NOTHING;
            enum life_phase next = (enum life_phase)p;
            double deadline = 77;

            for (size_t i = 0; i < sizeof cells / sizeof *cells; i++)
                if (cells[i].phase == (enum life_phase)p && cells[i].fact == (enum life_fact)f) {
                    next = cells[i].next;
                    want = cells[i].action;
                    deadline = cells[i].within_s ? 1000 + cells[i].within_s : 0;
                }
            if (l.phase != next || action != want || l.deadline != deadline)
                fail_msg("phase %d, fact %d: phase %d, action %d, deadline %g", p, f, (int)l.phase, (int)action, l.deadline);
        }
}

static void it_is_drawn(void **state)
{
    char *text = NULL, within[32];
    size_t len;
    FILE *f = open_memstream(&text, &len);

    (void)state;
    fputs("// The launch life cycle of a job in detd (daemon/job/life.c): fact / action, and the time limit of the next state. Written by "
          "tests/unit/daemon/job/test_life.c.\ndigraph life {\n",
          f);
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) {
        snprintf(within, sizeof within, "%d s", cells[i].within_s);
        states_arrow(f, cells[i].phase_name, cells[i].fact_name, cells[i].next_name, cells[i].action_name, cells[i].within_s ? within : "");
    }
    fputs("}\n", f);
    fclose(f);
    states_compare("docs/internals/states/life.dot", text);
    free(text);
}

static void each_start_that_is_refused_waits_longer(void **state)
{
    static const double pauses[] = { 1, 2, 4, 8, 16, 32, 60, 60 };
    struct life l = { .phase = LIFE_WAITING };
    double now = 5;

    (void)state;
    for (size_t i = 0; i < sizeof pauses / sizeof *pauses; i++) {
        assert_int_equal(life_clock(&l, now), LIFE_FACT_DUE);
        assert_int_equal(life_next(&l, LIFE_FACT_DUE, now), LIFE_PREPARE);
        if (i % 2) { /* by the system, or by its supervisor after the start of the supervisor */
            assert_int_equal(life_next(&l, LIFE_FACT_READY, now), LIFE_NOTHING);
            assert_int_equal(life_next(&l, LIFE_FACT_EXITED, now), LIFE_NOTHING);
        }
        assert_int_equal(life_next(&l, LIFE_FACT_REFUSED, now), LIFE_TELL_REFUSED);
        assert_int_equal(life_clock(&l, now + pauses[i] - 0.5), LIFE_FACT_COUNT);
        now += pauses[i];
    }
    life_next(&l, LIFE_FACT_DUE, now);
    life_next(&l, LIFE_FACT_READY, now);
    life_next(&l, LIFE_FACT_HELLO, now); /* its disk may fail before the first report */
    assert_int_equal(life_next(&l, LIFE_FACT_EXITED, now), LIFE_NOTHING);
    assert_int_equal(life_next(&l, LIFE_FACT_REFUSED, now), LIFE_TELL_REFUSED);
    assert_true(life_is_in_vain(&l, now + 1));
    life_reported(&l);
    assert_false(life_is_in_vain(&l, now + 1));
}

/* The exit of the process is reported later, as for any process that this daemon started. A free lock before that means
 * nothing. */
static void a_hello_may_be_quicker_than_the_word_of_the_start(void **state)
{
    struct life l = { .phase = LIFE_PREPARING };

    (void)state;
    assert_int_equal(life_next(&l, LIFE_FACT_HELLO, 1), LIFE_NOTHING);
    assert_true(l.child && l.known && !l.tried);
    assert_int_equal(life_next(&l, LIFE_FACT_GONE, 2), LIFE_NOTHING);
    assert_false(life_is_to_look(&l));
    assert_int_equal(life_next(&l, LIFE_FACT_EXITED, 3), LIFE_NOTHING);
    assert_true(life_is_to_look(&l));
}

/* The lock is mostly held for a moment only: it is tried every second, and the interval does not grow. */
static void a_lock_that_is_held_is_tried_every_second(void **state)
{
    struct life l = { .phase = LIFE_WAITING };

    (void)state;
    for (double now = 50; now < 55; now++) {
        assert_int_equal(life_next(&l, LIFE_FACT_DUE, now), LIFE_PREPARE);
        assert_int_equal(life_next(&l, LIFE_FACT_HELD, now), LIFE_TELL_HELD);
        assert_int_equal(life_clock(&l, now + 0.9), LIFE_FACT_COUNT);
        assert_int_equal(life_clock(&l, now + 1), LIFE_FACT_DUE);
    }
    assert_int_equal(l.refusals, 5);
}

static void what_is_overdue(void **state)
{
    struct life l = { .phase = LIFE_STARTED, .deadline = 10 };

    (void)state;
    assert_int_equal(life_clock(&l, 10), LIFE_FACT_COUNT);
    assert_int_equal(life_clock(&l, 10.5), LIFE_FACT_OVERDUE);
    l = (struct life){ .phase = LIFE_CONNECTED, .silent_s = LIFE_SILENT_S + 1 };
    assert_int_equal(life_clock(&l, 1e9), LIFE_FACT_COUNT); /* it never announced heartbeats */
    l.beats = true;
    assert_int_equal(life_clock(&l, 1e9), LIFE_FACT_OVERDUE);
    l.silent_s = LIFE_SILENT_S;
    assert_int_equal(life_clock(&l, 1e9), LIFE_FACT_COUNT);
    l = (struct life){ .phase = LIFE_WAITING, .not_before = 7, .deadline = 1 };
    assert_int_equal(life_clock(&l, 6), LIFE_FACT_COUNT);
    assert_int_equal(life_clock(&l, 7), LIFE_FACT_DUE);
    l = (struct life){ .deadline = 0 };
    life_within(&l, 100, 20);
    life_within(&l, 110, 20);
    assert_true(l.obey_by == 120);
    life_within(&l, 100, 5);
    assert_true(l.obey_by == 105);
    l.phase = LIFE_CONNECTED; /* a supervisor that reconnects does not put it off */
    for (double now = 101; now < 105; now++) {
        life_next(&l, LIFE_FACT_HELLO, now);
        life_next(&l, LIFE_FACT_GONE, now);
    }
    life_next(&l, LIFE_FACT_HELLO, 105);
    assert_int_equal(life_clock(&l, 105), LIFE_FACT_COUNT);
    assert_int_equal(life_clock(&l, 106), LIFE_FACT_OVERDUE);
    life_next(&l, LIFE_FACT_ENDED, 105); /* it has obeyed */
    assert_int_equal(life_clock(&l, 105 + LIFE_OBEY_S), LIFE_FACT_COUNT);
}

/* A shortage may pass quickly. A broken folder must be repaired by the submitter. */
static void who_waits_in_vain(void **state)
{
    struct life l = { .phase = LIFE_WAITING };
    double now = 5;

    (void)state;
    for (int i = 1; i <= LIFE_REFUSALS_MAX; i++) {
        life_next(&l, LIFE_FACT_DUE, now);
        life_next(&l, LIFE_FACT_REFUSED, now);
        assert_int_equal(life_is_in_vain(&l, now), i == LIFE_REFUSALS_MAX);
        assert_false(life_is_in_vain(&l, l.not_before)); /* it must be tried first */
        now = l.not_before;
    }
    l = (struct life){ .phase = LIFE_WAITING };
    life_next(&l, LIFE_FACT_DUE, now);
    life_next(&l, LIFE_FACT_READY, now);
    assert_int_equal(life_next(&l, LIFE_FACT_UNREACHABLE, now), LIFE_TELL_UNREACHABLE);
    assert_true(life_is_in_vain(&l, now));
    l.phase = LIFE_STARTED;
    assert_false(life_is_in_vain(&l, now));
    life_next(&l, LIFE_FACT_HELLO, now);
    assert_int_equal(l.unreachable, 0);
}

static void who_looks_at_the_lock(void **state)
{
    (void)state;
    for (int p = 0; p < LIFE_PHASE_COUNT; p++) {
        struct life l = { .phase = (enum life_phase)p };

        assert_int_equal(life_is_to_look(&l), p == LIFE_STARTED || p == LIFE_LEAVING || p == LIFE_STUCK);
        l.child = true; /* its exit will be reported, together with its output */
        assert_false(life_is_to_look(&l));
        life_next(&l, LIFE_FACT_EXITED, 1);
        assert_false(l.child);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_fact_in_every_phase),
        cmocka_unit_test(it_is_drawn),
        cmocka_unit_test(a_hello_may_be_quicker_than_the_word_of_the_start),
        cmocka_unit_test(each_start_that_is_refused_waits_longer),
        cmocka_unit_test(a_lock_that_is_held_is_tried_every_second),
        cmocka_unit_test(what_is_overdue),
        cmocka_unit_test(who_waits_in_vain),
        cmocka_unit_test(who_looks_at_the_lock),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
