/* SPDX-License-Identifier: Apache-2.0 */ /* The job file: epochs, and texts with a unit, become steps once the images
 * are counted. uses: proto */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/err.h"
#include "proto/job/jobspec_table.h"
#include "tests/unit/proto/job/job_file.h"

/* train.epochs becomes a number of steps once the images are counted. */
static void epochs_become_steps(void **state)
{
    static const struct {
        const char *epochs;
        int batch;
        int64_t images, steps;
    } rows[] = { { "12", 16, 117266, 87950 },                        /* 87949.5 */
                 { "0.5", 8, 160, 10 },       { "0.07", 1, 100, 7 }, /* 7.000000000000001 in doubles */
                 { "1", 16, 161, 11 },        { "1e-300", 16, 1, 1 }, { "1e8", 1, 1, 100000000 } };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        json_t *root, *want;
        struct jobspec *s = NULL;
        struct err err = { 0 };
        int64_t steps = 0;
        char set[96];

        snprintf(set, sizeof set, "train.steps=null;train.epochs=%s;train.batch=%d", rows[i].epochs, rows[i].batch);
        root = job(set);
        snprintf(set, sizeof set, "train.steps=%lld;train.batch=%d", (long long)rows[i].steps, rows[i].batch);
        want = job(set);
        assert_int_equal(jobspec_parse_uncounted(&job_presets, root, &s, &err), 0);
        assert_int_equal(s->train_steps, -1);
        assert_int_equal(jobspec_count_steps(root, s, rows[i].images, &steps, &err), 0);
        assert_true(steps == rows[i].steps);
        assert_true(json_equal(root, want));
        jobspec_free(s);
        json_decref(root);
        json_decref(want);
    }
}

/* Texts with a unit become numbers once the images are counted. */
static void texts_become_steps(void **state)
{
    static const struct {
        const char *set, *path, *want; /* of 24 images, batch 16: an epoch is 1.5 steps */
    } rows[] = {
        { "val.every=2 epochs", "val.every", "3" },
        { "val.every=1epoch", "val.every", "2" },
        { "val.every=0.1 epochs", "val.every", "1" },
        { "val.every=7 steps", "val.every", "7" },
        { "checkpoint.every=4 epochs", "checkpoint.every", "6" },
        { "train.lr_steps=[\"8 epochs\", \"11 epochs\"]", "train.lr_steps", "[12,17]" },
        { "train.lr_steps=[0.125, \"11 epochs\", 90, \"95 steps\"]", "train.lr_steps", "[0.125,17,90,95]" },
        { "train.lr_steps=8 epochs", "train.lr_steps", "[12]" },
        { "train.steps=null;train.epochs=12;train.lr_steps=[\"8 epochs\"]", "train.lr_steps", "[12]" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char set[256];
        struct jobspec *s = NULL, *counted = NULL;
        struct err err = { 0 };
        int64_t steps = -1;
        bool epochs;

        snprintf(set, sizeof set, "train.steps=100;train.batch=16;data.val.annotations=/v;data.val.images=/v;%s", rows[i].set);
        json_t *root = job(set);
        assert_true(jobspec_has_units(root, &epochs));
        assert_int_equal(epochs, strstr(rows[i].set, "epoch") != NULL);
        assert_int_equal(jobspec_parse_uncounted(&job_presets, root, &s, &err), 0);
        assert_int_equal(jobspec_parse(root, &counted, &err), ERR_INPUT);
        assert_non_null(strstr(err.msg, "only detctl submit"));
        assert_int_equal(jobspec_count_steps(root, s, 24, &steps, &err), 0);
        assert_false(jobspec_has_units(root, &epochs));
        assert_int_equal(steps, strstr(rows[i].set, "train.epochs") ? 18 : -1);
        if (jobspec_parse(root, &counted, &err) < 0)
            fail_msg("%s", err.msg);
        char *now = json_dumps(at(root, rows[i].path), JSON_ENCODE_ANY | JSON_COMPACT);
        if (strcmp(now, rows[i].want) != 0)
            fail_msg("%s: %s, not %s", rows[i].set, now, rows[i].want);
        free(now);
        jobspec_free(s);
        jobspec_free(counted);
        json_decref(root);
    }
}

static void texts_that_say_no_steps(void **state)
{
    static const struct {
        const char *set, *msg;
    } rows[] = {
        { "val.every=two epochs", "val.every: 'two epochs' is neither a number of steps nor a text as \"2 epochs\"" },
        { "val.every=-1 epochs", "val.every: '-1 epochs' is neither a number of steps nor a text as \"2 epochs\"" },
        { "val.every=0x2 epochs", "val.every: '0x2 epochs' is neither a number of steps nor a text as \"2 epochs\"" },
        { "val.every=2 hours", "val.every: '2 hours' has no unit that is known: \"2 epochs\" and \"100 steps\" have one" },
        { "val.every=0 epochs", "val.every: must be above 0 epochs, is '0 epochs'" },
        { "val.every=1.5 steps", "val.every: must be whole steps, is '1.5 steps'" },
        { "checkpoint.every=[\"1 epochs\"]", "checkpoint.every: must be a whole number, is a list" },
        { "train.lr_steps=[\"1 epochs\", \"x\"]", "train.lr_steps: 'x' is neither a number of steps nor a text as \"2 epochs\"" },
        { "train.log_every=2 epochs", "train.log_every: must be a whole number, is \"2 epochs\"" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        json_t *root = job(rows[i].set);
        struct jobspec *s = NULL;
        struct err err = { 0 };

        assert_int_equal(jobspec_parse_uncounted(&job_presets, root, &s, &err), ERR_INPUT);
        assert_string_equal(err.msg, rows[i].msg);
        assert_int_equal(jobspec_parse(root, &s, &err), ERR_INPUT);
        assert_string_equal(err.msg, rows[i].msg);
        json_decref(root);
    }
    for (int i = 0; i < 2; i++) {
        json_t *root = job(i ? "val.every=1e300 epochs;train.batch=24" : "val.every=1e8 epochs;train.batch=16");
        struct jobspec *s = NULL;
        struct err err = { 0 };
        int64_t steps;

        assert_int_equal(jobspec_parse_uncounted(&job_presets, root, &s, &err), 0);
        assert_int_equal(jobspec_count_steps(root, s, 24, &steps, &err), ERR_INPUT);
        assert_string_equal(err.msg,
                            i ? "val.every: '1e300 epochs' of 24 images, batch 24, are 1e+300 steps; at most 100000000 are possible"
                              : "val.every: '1e8 epochs' of 24 images, batch 16, are 150000000 steps; at most 100000000 are possible");
        jobspec_free(s);
        json_decref(root);
    }
}

static void epochs_are_bounded(void **state)
{
    json_t *root = job("train.steps=null;train.epochs=1e8;train.lr_steps=[0.5,90]"), *before = json_deep_copy(root);
    struct jobspec *s = NULL;
    struct err err = { 0 };
    int64_t steps = 7;

    (void)state;
    assert_int_equal(jobspec_parse_uncounted(&job_presets, root, &s, &err), 0); /* it is not known whether 90 comes after half of them */
    assert_int_equal(jobspec_count_steps(root, s, 24, &steps, &err), ERR_INPUT);
    assert_string_equal(err.msg,
                        "train.epochs: 100000000 epochs of 24 images, batch 16, are 150000000 steps; at most 100000000 are possible");
    assert_string_equal(err.field, "train.epochs");
    assert_true(json_equal(root, before) && steps == 7);
    jobspec_free(s);
    json_decref(root);
    json_decref(before);
}

/* If train.steps is given, counting changes nothing. Before counting, every rule that does not need the count is
 * checked. */
static void uncounted_jobs_are_checked(void **state)
{
    static const char *const refused[] = { "train.lr_steps=[0.9,100]", "train.steps=null", "train.epochs=2",
                                           "train.steps=null;train.epochs=2;train.shards=3",
                                           "train.steps=null;train.epochs=2;val.every=10" };
    struct jobspec *s = NULL;
    struct err err = { 0 };
    json_t *root = job("");

    (void)state;
    assert_int_equal(jobspec_parse_uncounted(&job_presets, root, &s, &err), 0);
    assert_true(s->train_steps == 4000 && s->checkpoint_every == 400);
    jobspec_free(s);
    json_decref(root);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        root = job(refused[i]);
        assert_int_equal(jobspec_parse_uncounted(&job_presets, root, &s, &err), ERR_INPUT);
        json_decref(root);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(epochs_become_steps), cmocka_unit_test(texts_become_steps),         cmocka_unit_test(texts_that_say_no_steps),
        cmocka_unit_test(epochs_are_bounded),  cmocka_unit_test(uncounted_jobs_are_checked),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
