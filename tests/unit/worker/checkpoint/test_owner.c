/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/checkpoint/test_owner.c - uses: proto trainer cpu
 * A checkpoint of another job is refused with the keys that differ. So is a checkpoint of a version that did not keep
 * the keys, as far as this can be found. */
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "proto/err.h"
#include "proto/job/jobspec.h"
#include "tests/stand/harness.h"
#include "worker/checkpoint/owner.h"
#include "worker/checkpoint/state.h"

/* assignments: separated by blanks. */
static struct jobspec *spec_of(const char *assignments)
{
    json_t *json = json_pack("{s:{s:s},s:{s:{s:s,s:s}},s:{s:i,s:i}}", "model", "preset", "yolov3_tiny", "data", "train", "annotations",
                             "/a.json", "images", "/i", "train", "steps", 100, "batch", 8);
    char text[256], *rest = text, *one;
    struct jobspec *spec;
    struct err err;

    snprintf(text, sizeof text, "%s", assignments);
    while ((one = strsep(&rest, " ")))
        if (*one && jobspec_override(json, one, &err) < 0)
            fail_msg("%s", err.msg);
    if (jobspec_parse(json, &spec, &err) < 0)
        fail_msg("%s", err.msg);
    json_decref(json);
    return spec;
}

/* A checkpoint of step 4 as that job leaves it. */
static void save(const char *dir, const char *assignments)
{
    struct jobspec *spec = spec_of(assignments);
    char *text = owner_text(spec);
    float number = 1;
    const struct st_array array = { "a", ST_F32, 1, { 1 }, &number };
    const struct st_meta job = { STATE_JOB, text };
    const struct ckpt_part model = { &array, 1, NULL, 0 }, state = { &array, 1, &job, 1 };
    struct ckpt_identity id;
    int64_t bytes;
    struct err err;

    assert_int_equal(owner_identity(spec, "store", &id, &err), 0);
    if (ckpt_write(dir, 4, &id, &model, &state, &bytes, &err) < 0 || ckpt_publish(dir, 4, &err) < 0)
        fail_msg("%s", err.msg);
    free(text);
    jobspec_free(spec);
}

/* The error for a job with these assignments. */
static void refuses(const char *dir, const char *store, const char *assignments, const char *field, const char *said)
{
    struct jobspec *spec = spec_of(assignments);
    struct ckpt_identity id;
    struct err err = { 0 };
    int64_t step;

    assert_int_equal(owner_identity(spec, store, &id, &err), 0);
    assert_int_equal(ckpt_pick(dir, &id, NULL, NULL, &step, &err), ERR_STATE);
    assert_int_equal(owner_refuse(spec, store, dir, &err), ERR_INPUT);
    assert_string_equal(err.field, field);
    if (!strstr(err.msg, said))
        fail_msg("said '%s', not '%s'", err.msg, said);
    jobspec_free(spec);
}

static void in_folder(void (*test)(const char *dir))
{
    char dir[TEMP_MAX], cmd[TEMP_MAX + 16];

    assert_non_null(mkdtemp(temp_path(dir, sizeof dir, "detd-owner-XXXXXX")));
    test(dir);
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", dir);
    assert_int_equal(system(cmd), 0);
}

static void another_job(const char *dir)
{
    save(dir, "train.ema=0.5");
    refuses(dir, "store", "train.ema=0.5 train.optimizer=adamw", "train.optimizer",
            "/step-4' was trained with train.optimizer \"sgd\"; other values need a new job");
    refuses(dir, "store", "train.optimizer=adamw train.lr=0.01", "train.optimizer",
            "was trained with train.optimizer \"sgd\", train.lr 0.001, train.ema 0.5; other");
    refuses(dir, "store", "train.ema=0.5 train.optimizer=adam train.beta1=0.8", "train.optimizer",
            "was trained with train.optimizer \"sgd\", train.beta1 0.9; other");
    refuses(dir, "store", "", "train.ema", "train.ema: '");
    refuses(dir, "another", "train.ema=0.5", "", "it was trained by another job");
    refuses(dir, "another", "train.lr=0.01", "", "it was trained by another job");
}

/* With other rates from the first step on, no step is shared with a longer job: this is refused, and the files stay. */
static void without_a_way(const char *dir)
{
    static const char keys[] = "train.schedule=cosine train.burn_in=0 checkpoint.every=4", more[] = "train.steps=200";
    char all[sizeof keys + sizeof more];
    struct jobspec *longer;
    struct err err = { 0 };
    int64_t step = -1;

    save(dir, keys);
    snprintf(all, sizeof all, "%s %s", keys, more);
    longer = spec_of(all);
    assert_int_equal(owner_pick_shorter(longer, "store", dir, &step, &err), ERR_STATE);
    assert_int_equal(step, -1);
    refuses(dir, "store", all, "train.steps", "was trained with train.steps 100; other");
    jobspec_free(longer);
}

static void names_what_differs(void **state)
{
    (void)state;
    in_folder(another_job);
}

static void keeps_what_is_on_no_way(void **state)
{
    (void)state;
    in_folder(without_a_way);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(names_what_differs), cmocka_unit_test(keeps_what_is_on_no_way) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
