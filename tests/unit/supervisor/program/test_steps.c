/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/supervisor/program/test_steps.c - steps that all ranks have
 * named, and those that are given up. uses: proto supervisor */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "supervisor/program/steps.h"

enum { RANKS = 3 };

static char told[1000];

static void complete(void *arg, int64_t step, struct steps_item *const *items)
{
    const struct steps *s = arg;

    snprintf(told + strlen(told), sizeof told - strlen(told), "%lld of", (long long)step);
    for (int i = 0; i < s->nranks; i++)
        if (items[i])
            snprintf(told + strlen(told), sizeof told - strlen(told), " %d", i);
    strcat(told, "\n");
}

static void given_up(void *arg, int64_t step, int rank, const char *why)
{
    (void)arg;
    snprintf(told + strlen(told), sizeof told - strlen(told), "not %lld: rank %d %s\n", (long long)step, rank, why);
}

static bool name(struct steps *s, int rank, int64_t step)
{
    struct steps_item *item = malloc(sizeof *item);
    bool taken;

    assert_non_null(item);
    *item = (struct steps_item){ .step = step, .bytes = sizeof *item };
    taken = steps_add(s, rank, item);
    if (!taken)
        free(item);
    return taken;
}

static void expect(const char *text)
{
    assert_string_equal(told, text);
    told[0] = '\0';
}

static struct steps begin(int max_open, size_t max_bytes)
{
    told[0] = '\0';
    return (struct steps){ .nranks = RANKS, .max_open = max_open, .max_bytes = max_bytes, .complete = complete, .given_up = given_up };
}

/* A rank may be several steps ahead of the others. */
static void the_oldest_step_comes_first(void **state)
{
    struct steps s = begin(8, SIZE_MAX);

    (void)state;
    s.arg = &s;
    for (int step = 10; step <= 30; step += 10)
        assert_true(name(&s, 2, step) && name(&s, 0, step));
    expect("");
    assert_false(name(&s, 0, 30));
    assert_true(name(&s, 1, 10));
    expect("10 of 0 1 2\n");
    assert_true(name(&s, 1, 30));
    expect("not 20: rank 1 reports a later step and lacks this one\n30 of 0 1 2\n");
    steps_done(&s, 1);
    assert_false(name(&s, 1, 40));
    assert_true(name(&s, 0, 40) && name(&s, 2, 40));
    expect("40 of 0 2\n");
    assert_true(name(&s, 0, 50));
    steps_failed(&s, 2);
    expect("not 50: rank 2 failed before it reported it\n");
    assert_true(name(&s, 0, 60));
    expect("");
    steps_close(&s);
}

static void what_waits_is_bounded(void **state)
{
    struct steps s = begin(2, 3 * sizeof(struct steps_item));

    (void)state;
    s.arg = &s;
    for (int step = 1; step <= 3; step++)
        name(&s, 0, step);
    expect("not 1: rank 1 has not reported it, and too many wait\n");
    name(&s, 2, 2);
    expect("");
    name(&s, 2, 3); /* too many bytes */
    expect("not 2: rank 1 has not reported it, and too many wait\n");
    name(&s, 1, 3);
    expect("3 of 0 1 2\n");
    assert_int_equal(s.bytes, 0);
    steps_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(the_oldest_step_comes_first), cmocka_unit_test(what_waits_is_bounded) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
