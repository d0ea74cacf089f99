/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/proto/job/test_jobspec_extend.c - uses: proto
 * The steps that a job shares with a longer job, and the reasons that exclude other steps. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "proto/err.h"
#include "proto/job/jobspec.h"
#include "tests/unit/proto/job/job_file.h"

#define VAL ";data.val={\"annotations\":\"v.json\",\"images\":\"i\"}"

/* Checks a job with these keys. step: the newest step, up to its last, that a longer job shares. key: the key that
 * excludes the last step ("": the last step is shared). */
static void newest(const char *keys, int64_t step, const char *key)
{
    struct jobspec *s = good(keys);
    int64_t found = s->train_steps;
    struct err err = { 0 };

    while (found > 0 && !jobspec_on_the_way(s, found))
        found--;
    if (found != step)
        fail_msg("%s: %lld, not %lld", keys, (long long)found, (long long)step);
    if (*key) {
        assert_int_equal(jobspec_not_on_the_way(s, &err), ERR_INPUT);
        assert_string_equal(err.field, key);
    }
    jobspec_free(s);
}

static void steps_on_the_way(void **state)
{
    (void)state;
    newest("train.steps=100;train.schedule=constant", 100, "");
    newest("train.steps=100;train.lr_steps=[]", 100, "");
    newest("train.steps=100;train.lr_steps=[40, 80]", 100, "");
    newest("train.steps=100;train.schedule=cosine", 0, "train.schedule");
    newest("train.steps=100;train.schedule=poly", 0, "train.schedule");
    newest("train.steps=100", 79, "train.lr_steps");                    /* .8: step 80 is the first with another rate */
    newest("train.steps=11;train.lr_steps=[0.5]", 5, "train.lr_steps"); /* 5.5 is rounded to 6 */
    newest("train.steps=100;train.schedule=constant;data.augment.multiscale=true", 95, "data.augment.multiscale");
    newest("train.steps=19;train.log_every=1;train.schedule=constant;data.augment.multiscale=true", 19, "");
    newest("train.steps=8000;train.schedule=constant;data.augment.multiscale=true", 7800, "data.augment.multiscale");
    newest("train.steps=105;train.schedule=constant", 104, "train.log_every");
    newest("train.steps=100;train.schedule=constant;val.every=30" VAL, 99, "val.every");
    newest("train.steps=90;train.schedule=constant;val.every=30" VAL, 90, "");
}

static void more_steps(void **state)
{
    struct jobspec *s = good("train.steps=100;train.schedule=constant" VAL), *was = NULL, *is;
    json_t *root = jobspec_json(s), *before = json_deep_copy(root);
    struct err err;

    (void)state;
    assert_int_equal(jobspec_extend(root, 250, &was, &err), 0);
    assert_int_equal(was->train_steps, 100);
    assert_int_equal(jobspec_parse_stored(root, &is, &err), 0);
    assert_int_equal(is->train_steps, 250);
    assert_int_equal(is->val_every, 10); /* the value that was computed */
    assert_int_equal(is->train_burn_in, 5);
    json_object_set_new(json_object_get(before, "train"), "steps", json_integer(250));
    assert_true(json_equal(root, before));
    jobspec_free(was);
    for (int64_t steps = 250; steps <= 200000000; steps += 199999750) {
        was = NULL;
        assert_int_equal(jobspec_extend(root, steps, &was, &err), ERR_INPUT);
        assert_string_equal(err.field, "train.steps");
        assert_null(was);
    }
    json_decref(root);
    json_decref(before);
    jobspec_free(is);
    jobspec_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(steps_on_the_way), cmocka_unit_test(more_steps) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
