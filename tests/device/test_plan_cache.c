/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/test_plan_cache.c - uses: plans proto worker/core
 * Plans by key, requested in any order. */
#include "cuda/plan_cache.h"
#include "tests/device/plans.h"

enum { CACHED = 12 };

static struct plan_key cached(int i)
{
    struct conv_key k = conv((enum conv_dir)(i % 3), i % 2 ? PRECISION_BF16 : PRECISION_TF32, TIER_RERUN, 2, 13, 64 + 8 * (i / 6), 64, 3);

    return plan_key_make(&k, NULL);
}

static struct plan_cache *open_cache(int threads)
{
    struct plan_target t;
    struct plan_cache *c;
    struct err err;

    assert_int_equal(plan_cache_new(NULL, &c, &err), 0);
    for (int i = 0; i < threads; i++) {
        describe(&t, "sm_90");
        assert_int_equal(plan_cache_add(c, &t, &err), 0);
    }
    return c;
}

/* The plans and their lines are the same for any order of requests, ahead or when needed, by one thread or three. */
static void order_of_asking_does_not_matter(void **state)
{
    struct plan_cache *a = open_cache(3), *b = open_cache(1);
    struct plan *p, *again;
    char *text_a, *text_b;
    struct err err;
    int lines = 0;

    (void)state;
    for (int i = 0; i < CACHED; i++) {
        struct plan_key up = cached(i), down = cached(CACHED - 1 - i);

        assert_int_equal(plan_cache_prepare(a, &up, &err), 0);
        assert_int_equal(plan_cache_get(b, &down, &p, &err), 0);
        assert_memory_equal(&p->key, &down, sizeof down);
        assert_int_equal(plan_cache_get(b, &down, &again, &err), 0);
        assert_ptr_equal(p, again);
    }
    for (int i = CACHED - 1; i >= 0; i--) {
        struct plan_key key = cached(i);

        assert_int_equal(plan_cache_get(a, &key, &p, &err), 0);
    }
    text_a = plan_cache_text(a);
    text_b = plan_cache_text(b);
    assert_string_equal(text_a, text_b);
    for (const char *at = text_a, *end; (end = strchr(at, '\n')) != NULL; at = end + 1, lines++) {
        const char *next = strchr(end + 1, '\n');

        assert_true(!next || strcmp(at, end + 1) < 0);
    }
    assert_int_equal(lines, CACHED);
    free(text_a);
    free(text_b);
    plan_cache_free(a);
    plan_cache_free(b);
}

/* The error of a plan that cannot be made names the convolution and stays; other plans are not touched. Queued plans
 * are dropped. */
static void what_cannot_be_planned_says_why(void **state)
{
    struct plan_cache *c = open_cache(2);
    struct conv_key k = conv(CONV_FWD, PRECISION_FP32, TIER_RERUN, 64, 8192, 65536, 65536, 63);
    struct plan_key key = plan_key_make(&k, NULL), good = cached(0);
    struct plan *p;
    struct err err;
    char *text;

    (void)state;
    assert_int_equal(plan_cache_prepare(c, &key, &err), 0);
    for (int i = 0; i < 2; i++) {
        assert_true(plan_cache_get(c, &key, &p, &err) < 0);
        assert_non_null(strstr(err.msg, "fwd fp32 rerun x[64,8192,8192,65536] w[65536,63,63,65536] stride 1 pad 31"));
    }
    printf("%s\n", err.msg);
    assert_int_equal(plan_cache_get(c, &good, &p, &err), 0);
    text = plan_cache_text(c);
    assert_non_null(strstr(text, "fwd tf32 rerun"));
    assert_null(strstr(text, "x[64,"));
    free(text);
    for (int i = 0; i < CACHED; i++) {
        good = cached(i);
        assert_int_equal(plan_cache_prepare(c, &good, &err), 0);
    }
    plan_cache_free(c);
}

/* The number of lines of plans, and of plans that are made or known. */
static int count_lines(struct plan_cache *c)
{
    char *text = plan_cache_text(c);
    int n = 0;

    for (const char *at = text; *at; at++)
        n += *at == '\n';
    free(text);
    return n;
}

static struct plan *asked(struct plan_cache *c, int i)
{
    struct plan_key key = cached(i);
    struct plan *p;
    struct err err;

    assert_int_equal(plan_cache_get(c, &key, &p, &err), 0);
    assert_memory_equal(&p->key, &key, sizeof key);
    return p;
}

/* In turn i plan i is requested, and plan 0 in each. There are twelve plans, ten too many: those requested longest ago
 * are dropped. Plan 0 and the plans of the last turns stay. The lines of dropped plans stay, and a dropped plan comes
 * back on request, ahead or not, with the same line. */
static void the_longest_unused_are_dropped(void **state)
{
    struct plan_cache *c = open_cache(2);
    struct plan *kept[CACHED], *first;
    struct plan_readiness before, after;
    struct plan_key key;
    char *text, *again;
    struct err err;

    (void)state;
    for (int i = 0; i < CACHED; i++) {
        kept[i] = asked(c, i);
        first = asked(c, 0);
        assert_int_equal(plan_cache_begin(c, 3, i + 1), 0); /* they are not too many */
    }
    text = plan_cache_text(c);
    plan_cache_wait(c, &before);
    assert_int_equal(plan_cache_begin(c, 3, CACHED - 1), CACHED - 1 - 2); /* the turn is CACHED + 1: 0, 10 and 11 are recent */
    plan_cache_drop(c, 3, 8);                                             /* 1 to 4 go */
    for (int i = 5; i < CACHED; i++)
        assert_ptr_equal(asked(c, i), kept[i]);
    assert_ptr_equal(asked(c, 0), first);
    assert_int_equal(count_lines(c), CACHED);
    assert_int_equal(plan_cache_begin(c, 0, 8), 0);
    key = cached(1);
    assert_int_equal(plan_cache_prepare(c, &key, &err), 0);
    for (int i = 1; i < 5; i++)
        asked(c, i);
    assert_int_equal(plan_cache_begin(c, 1, 8), CACHED - 4);
    plan_cache_drop(c, 1, 0); /* plans 1 to 4 are of the last turn, so they stay even with a limit of 0 */
    assert_int_equal(plan_cache_begin(c, 1, 3), 4);
    again = plan_cache_text(c);
    plan_cache_wait(c, &after);
    assert_string_equal(again, text);
    assert_memory_equal(&after, &before, sizeof after);
    free(again);
    free(text);
    plan_cache_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(order_of_asking_does_not_matter),
        cmocka_unit_test(what_cannot_be_planned_says_why),
        cmocka_unit_test(the_longest_unused_are_dropped),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
