/* SPDX-License-Identifier: Apache-2.0 */ /* The job file: its full form, as jobs are stored and compared.
 * uses: proto */
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

/* The full form parses to itself. */
static void full_form(void **state)
{
    struct jobspec *s = good("train.lr_steps=[0.5,3000];run.env.A=b;run.priority=-3;model.ignore_thresh=0.6"), *again = NULL;
    json_t *full = jobspec_json(s), *second;
    struct err err = { 0 };

    (void)state;
    assert_int_equal(json_integer_value(json_object_get(json_object_get(full, "train"), "shards")), 4);
    assert_true(json_is_null(json_object_get(json_object_get(full, "run"), "threads")));
    assert_null(at(full, "train.epochs"));
    if (jobspec_parse(full, &again, &err) < 0)
        fail_msg("%s", err.msg);
    second = jobspec_json(again);
    assert_true(json_equal(full, second));
    json_decref(full);
    json_decref(second);
    jobspec_free(s);
    jobspec_free(again);
}

static size_t leaves(const json_t *object)
{
    const char *name;
    json_t *value;
    size_t n = 0;

    json_object_foreach ((json_t *)object, name, value)
        n += json_is_object(value) ? leaves(value) : 1;
    return n;
}

static bool of_yolo(const char *families)
{
    return !*families || *families == '!' || strstr(families, "yolo");
}

static void neutral_values(void **state)
{
    static const struct {
        const char *key, *neutral, *families;
    } rows[] = {
#define X(field, key, type, def, neutral, families, ...) { key, neutral, families },
        JOB_KEYS(X)
#undef X
    };
    json_t *root = job(""), *all, *but;
    struct jobspec *s = NULL;
    struct err err;
    size_t given = 0;
    char set[160];

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!of_yolo(rows[i].families))
            continue;
        given += strcmp(rows[i].neutral, "-") == 0;
        snprintf(set, sizeof set, "%s=%s", rows[i].key, rows[i].neutral);
        if (!strchr("-*~", rows[i].neutral[0]))
            assert_int_equal(jobspec_override(root, set, &err), 0);
    }
    assert_int_equal(jobspec_parse(root, &s, &err), 0);
    all = jobspec_deciding(s, NULL);
    assert_int_equal(leaves(all), given);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(at(all, rows[i].key) != NULL, of_yolo(rows[i].families) && strcmp(rows[i].neutral, "-") == 0);
        but = jobspec_deciding(s, rows[i].key);
        assert_null(at(but, rows[i].key));
        assert_int_equal(leaves(but), given - (at(all, rows[i].key) != NULL));
        json_decref(but);
    }
    json_decref(all);
    json_decref(root);
    jobspec_free(s);
}

/* Every value of a key that is marked as code is hidden, and no other value. */
static void code_is_hidden(void **state)
{
    static const struct {
        const char *set, *names;
    } rows[] = { { "", "[]" },
                 { "run.env={}", "[]" },
                 { "run.env={\"A\": \"x\", \"B\": \"\"}", "[\"run.env\"]" },
                 { "run.on_end=true;run.env={\"A\": \"x\"}", "[\"run.on_end\", \"run.env\"]" } };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct jobspec *s = good(rows[i].set);
        json_t *open = jobspec_json(s), *hidden = jobspec_json(s), *names = jobspec_hide_code(hidden),
               *env = json_object_get(json_object_get(hidden, "run"), "env"), *value;
        char *text = json_dumps(names, 0);
        const char *key;

        assert_string_equal(text, rows[i].names);
        assert_int_equal(json_object_size(env), json_object_size(json_object_get(json_object_get(open, "run"), "env")));
        json_object_foreach (env, key, value) {
            assert_true(json_is_null(value));
        }
        assert_true(json_is_null(json_object_get(json_object_get(hidden, "run"), "on_end")));
        for (int k = 0; k < 2; k++) {
            json_object_del(json_object_get(k ? open : hidden, "run"), "env");
            json_object_del(json_object_get(k ? open : hidden, "run"), "on_end");
        }
        assert_true(json_equal(open, hidden));
        free(text);
        json_decref(names);
        json_decref(open);
        json_decref(hidden);
        jobspec_free(s);
    }
}

/* Combinations that are refused for new jobs only: stored jobs continue as before. */
static void idle_keys_of_stored_jobs(void **state)
{
    static const struct {
        const char *set, *then;
    } rows[] = { { "train.warmup=linear;train.burn_in=1;train.schedule=cosine", "train.burn_in=0" },
                 { "train.burn_in_power=2;train.burn_in=1", "train.burn_in=0" },
                 { "train.steps=20;train.burn_in=20", "train.burn_in=21" } };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct jobspec *s = good(rows[i].set), *again = NULL;
        json_t *full = jobspec_json(s);
        struct err err;

        assert_int_equal(jobspec_override(full, rows[i].then, &err), 0);
        assert_int_equal(jobspec_parse(full, &again, &err), ERR_INPUT);
        assert_int_equal(jobspec_parse_stored(full, &again, &err), 0);
        assert_int_equal(again->train_burn_in, atoi(strchr(rows[i].then, '=') + 1));
        json_decref(full);
        jobspec_free(s);
        jobspec_free(again);
    }
}

/* A key that was added later decides a job only if its value is not neutral. A stored job without the key has the
 * neutral value. */
static void keys_of_later_days(void **state)
{
    struct jobspec *s = good("train.ema=0.5"), *again = NULL;
    json_t *full = jobspec_json(s), *part = jobspec_deciding(s, NULL);
    struct err err;

    (void)state;
    assert_float_equal(json_real_value(at(part, "train.ema")), 0.5, 0);
    assert_null(at(part, "run"));
    assert_null(at(part, "name"));
    json_object_del(json_object_get(full, "train"), "ema");
    assert_int_equal(jobspec_parse_stored(full, &again, &err), 0);
    assert_float_equal(again->train_ema, 0, 0);
    json_decref(full);
    json_decref(part);
    jobspec_free(s);
    jobspec_free(again);
}

/* The keys of a comparison decide no result. By default a job is compared from step 0 to its last step. */
static void verifying(void **state)
{
    struct jobspec *plain = good(""), *s = good("errand.evidence=/jobs/3"),
                   *part = good("errand.evidence=/jobs/3;errand.from=9;errand.to=10"),
                   *sure = good("errand.data_hash=0123456789abcdef0123456789abcdef;run.evidence=off"), *again = NULL;
    json_t *a = jobspec_deciding(plain, NULL), *b = jobspec_deciding(part, NULL), *c = jobspec_deciding(sure, NULL),
           *full = jobspec_json(plain);
    struct err err;

    (void)state;
    assert_true(plain->verify_from == -1 && plain->verify_to == -1 && !plain->verify_evidence && !plain->run_data_hash);
    assert_string_equal(plain->run_evidence, "tensors");
    assert_true(s->verify_from == 0 && s->verify_to == 4000);
    assert_true(part->verify_from == 9 && part->verify_to == 10);
    assert_true(json_equal(a, b) && json_equal(a, c));
    assert_null(json_object_get(full, JOB_ERRAND));
    json_object_del(json_object_get(full, "run"), "evidence");
    assert_int_equal(jobspec_parse_stored(full, &again, &err), 0);
    assert_true(again->verify_from == -1 && !again->verify_evidence);
    assert_string_equal(again->run_evidence, "tensors");
    json_decref(a);
    json_decref(b);
    json_decref(c);
    json_decref(full);
    jobspec_free(plain);
    jobspec_free(s);
    jobspec_free(part);
    jobspec_free(sure);
    jobspec_free(again);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(full_form),          cmocka_unit_test(neutral_values),
        cmocka_unit_test(code_is_hidden),     cmocka_unit_test(idle_keys_of_stored_jobs),
        cmocka_unit_test(keys_of_later_days), cmocka_unit_test(verifying),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
