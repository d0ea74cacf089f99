/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/test_plan_names.c - uses: plans proto worker/core
 * Ways to compute a convolution by their names, and the table of the measured ways. */
#include "cuda/plan_table.h"
#include "tests/device/plans.h"

/* Each way to compute a convolution has a name, and can be made by it. The first way that can be made is taken. */
static void ways_are_made_by_name(void **state)
{
    static struct plan_name name[PLAN_NAMES];
    struct plan_target t;

    (void)state;
    describe(&t, "sm_90");
    for (int dir = CONV_FWD; dir <= CONV_BWD_WEIGHTS; dir++) {
        struct conv_key k = conv((enum conv_dir)dir, PRECISION_BF16, TIER_RERUN, 8, 52, 128, 256, 3);
        struct plan_key key = plan_key_make(&k, NULL);
        int n = plan_names(&t, &key, name), nmade = 0;
        struct plan p, first;
        struct err err;

        made(&first, &t, &k);
        assert_in_range(n, 2, PLAN_NAMES);
        for (int i = 0; i < n; i++) {
            assert_true(name[i].deterministic);
            if (plan_make_named(&p, &t, &key, name[i].text, &err) < 0)
                continue;
            assert_string_equal(p.name, name[i].text);
            if (nmade++ == 0) {
                assert_string_equal(p.text, first.text);
                assert_int_equal(p.finish, first.finish);
            }
            plan_free(&p);
        }
        assert_in_range(nmade, 2, n);
        plan_free(&first);
        assert_int_equal(plan_make_named(&p, &t, &key, "cudnn engine 12345 knobs -", &err), ERR_UNSUPPORTED);
        assert_int_equal(plan_make_named(&p, &t, &key, "cublaslt algo 66", &err), ERR_UNSUPPORTED);
        assert_non_null(strstr(err.msg, "cublaslt algo 66"));
    }
    plan_target_close(&t);
}

/* A name must not bypass the filter: a way for tier off is refused where results have to repeat. */
static void names_pass_the_filter(void **state)
{
    static struct plan_name name[PLAN_NAMES];
    struct conv_key k = conv(CONV_BWD_DATA, PRECISION_TF32, TIER_OFF, 8, 416, 3, 64, 7);
    struct plan_key off, rerun;
    struct plan_target t;
    struct plan p;
    struct err err;

    (void)state;
    describe(&t, "sm_90");
    k.stride = 2;
    off = plan_key_make(&k, NULL);
    k.tier = TIER_RERUN;
    rerun = plan_key_make(&k, NULL);
    assert_true(plan_names(&t, &off, name) > 0);
    assert_false(name[0].deterministic);
    assert_int_equal(plan_make_named(&p, &t, &off, name[0].text, &err), 0);
    plan_free(&p);
    assert_int_equal(plan_make_named(&p, &t, &rerun, name[0].text, &err), ERR_UNSUPPORTED);
    plan_target_close(&t);
}

/* A row of the table is followed in every tier with a filter that accepts it, otherwise the next row. If all rows are
 * refused, the rule decides. */
static void measured_choices_are_followed(void **state)
{
    static const struct {
        const char *gpu;
        int n; /* the first is stale, the second not for tiers that promise bits */
    } rows[] = { { "empty", 0 }, { "good", 3 }, { "stale", 1 } };
    static struct plan_name name[PLAN_NAMES];
    char table[4096], any[PLAN_KEY_TEXT];
    struct plan_target t;

    (void)state;
    describe(&t, "sm_90");
    for (int tier = TIER_OFF; tier <= TIER_WORLD; tier++) {
        struct conv_key k = conv(CONV_BWD_DATA, PRECISION_TF32, (enum tier)tier, 8, 416, 3, 64, 7);
        struct plan rule, p;
        struct plan_key key;
        int loose = -1, fixed = -1, n;

        k.stride = 2;
        key = plan_key_make(&k, NULL);
        t.rows = NULL;
        made(&rule, &t, &k);
        key.conv.tier = TIER_OFF;
        for (int i = plan_names(&t, &key, name) - 1; i >= 0; i--) /* not the rule's */
            if (strcmp(name[i].text, rule.name) != 0)
                *(name[i].deterministic ? &fixed : &loose) = i;
        assert_true(loose >= 0 && fixed >= 0);
        plan_key_any_tier(&key, any);
        n = snprintf(table, sizeof table, "# why\n");
        for (size_t g = 0; g < sizeof rows / sizeof *rows; g++) {
            const char *row[] = { "cudnn engine 12345 knobs -", name[loose].text, name[fixed].text };

            plan_target_table(&t, "", rows[g].gpu);
            n += snprintf(table + n, sizeof table - (size_t)n, "%s\n", t.title);
            for (int i = 0; i < rows[g].n; i++)
                n += snprintf(table + n, sizeof table - (size_t)n, "%s: %s\n", any, row[i]);
        }
        for (size_t g = 0; g < sizeof rows / sizeof *rows; g++) {
            plan_target_table(&t, table, rows[g].gpu);
            made(&p, &t, &k);
            assert_string_equal(p.name, rows[g].n < 3 ? rule.name : name[tier == TIER_OFF ? loose : fixed].text);
            assert_int_equal(strstr(p.text, "; measured") != NULL, rows[g].n == 3);
            assert_int_equal(strstr(p.text, "; not as measured") != NULL, rows[g].n == 1);
            if (rows[g].n == 0)
                assert_string_equal(p.text, rule.text);
            plan_free(&p);
        }
        plan_target_table(&t, table, "unknown");
        assert_null(t.rows);
        made(&p, &t, &k);
        assert_string_equal(p.text, rule.text);
        plan_free(&p);
        plan_free(&rule);
    }
    plan_target_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ways_are_made_by_name),
        cmocka_unit_test(names_pass_the_filter),
        cmocka_unit_test(measured_choices_are_followed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
