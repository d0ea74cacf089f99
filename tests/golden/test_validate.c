/* SPDX-License-Identifier: Apache-2.0 */ /* uses: proto worker/backend trainer cpu
 * tests/golden/test_validate.c - a validation of pictures that are not square, in shards of 4 and 1, against PyTorch
 * and a second evaluator (make_trainer.py, scores.py, make_beyond.py): every loss term and every score, on one rank and
 * on two. */
#include <math.h>

#include "tests/golden/job.h"

static json_t *golden(const char *path)
{
    json_error_t why;
    json_t *want = json_load_file(path, 0, &why);

    if (!want)
        fail_msg("%s:%d: %s", path, why.line, why.text);
    return want;
}

static void check_terms(const json_t *terms, json_t *want)
{
    const char *name;
    json_t *pair;

    assert_int_equal(json_object_size(terms), json_object_size(want));
    json_object_foreach (want, name, pair) {
        const json_t *have = json_object_get(terms, name);
        double num = json_number_value(json_array_get(have, 0)), den = json_number_value(json_array_get(have, 1));
        double w = json_number_value(json_array_get(pair, 0));

        if (!(fabs(num - w) <= 1e-5 * w) || den != json_number_value(json_array_get(pair, 1)))
            fail_msg("%s is %.9g of %g, PyTorch says %.9g of %g", name, num, den, w, json_number_value(json_array_get(pair, 1)));
    }
}

/* How many metrics are of single classes beyond their AP, which the scores of the reference have; the mean of their
 * AP50 is that of all. */
static size_t of_classes(const json_t *metrics)
{
    static const char *const kinds[] = { "AP50:", "P50:", "R50:", "conf:", "n:" };
    size_t count = 0, classes = 0;
    const char *name;
    double sum = 0;
    json_t *value;

    json_object_foreach ((json_t *)metrics, name, value) {
        for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
            count += strncmp(name, kinds[k], strlen(kinds[k])) == 0;
        if (strncmp(name, "AP50:", 5) == 0) {
            sum += json_number_value(value);
            classes++;
        }
    }
    assert_true(classes > 0 && count == classes * (sizeof kinds / sizeof kinds[0]));
    assert_true(fabs(sum / (double)classes - json_number_value(json_object_get(metrics, "AP50"))) < 1e-12);
    return count;
}

/* Scores are ratios of small whole numbers and means of them: nothing but the last bits may differ. */
static void check_metrics(const json_t *metrics, json_t *want)
{
    const char *name;
    json_t *value;

    assert_int_equal(json_object_size(metrics), json_object_size(want) + of_classes(metrics));
    json_object_foreach (want, name, value) {
        const json_t *have = json_object_get(metrics, name);

        assert_non_null(have);
        if (json_is_null(have) != json_is_null(value) || fabs(json_number_value(have) - json_number_value(value)) > 1e-12)
            fail_msg("%s is %.9g, should be %.9g", name, json_number_value(have), json_number_value(value));
    }
}

static const json_t *metrics_of(const json_t *all)
{
    const json_t *found = NULL, *msg;
    size_t i;

    json_array_foreach (all, i, msg) {
        if (strcmp(text_of(msg, "type"), "eval") != 0)
            continue;
        assert_null(found);
        found = json_object_get(msg, "metrics");
    }
    assert_non_null(found);
    return found;
}

/* Runs validate.json with assignments. */
static void check_job(const char *name, int nranks, const char *const *assignments, json_t *terms, json_t *metrics)
{
    struct jobspec *spec = read_job("validate", assignments);
    json_t *all;
    char dir[128];

    job_folder(name, dir);
    run_job(spec, dir, nranks);
    all = reports(dir);
    check_terms(loss_of(all, "val", 1), terms);
    check_metrics(metrics_of(all), metrics);
    json_decref(all);
    jobspec_free(spec);
}

static void one_rank(void **state)
{
    json_t *want = golden(GOLDEN "/validated.json");

    (void)state;
    check_job("one", 1, NULL, json_object_get(want, "terms"), json_object_get(want, "metrics"));
    json_decref(want);
}

static void a_shard_a_rank(void **state)
{
    json_t *want = golden(GOLDEN "/validated.json");

    (void)state;
    check_job("two", 2, NULL, json_object_get(want, "terms"), json_object_get(want, "metrics"));
    json_decref(want);
}

/* Objects that reach over their pictures (make_beyond.py): losses are of their visible parts, as before, scores are of
 * the boxes as annotated. */
static void beyond_the_picture(void **state)
{
    static const char *const beyond[] = { "data.val.annotations=beyond.json", NULL };
    json_t *want = golden(GOLDEN "/validated.json"), *scores = golden(GOLDEN "/beyond_scores.json");

    (void)state;
    check_job("beyond", 1, beyond, json_object_get(want, "terms"), scores);
    json_decref(want);
    json_decref(scores);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(one_rank), cmocka_unit_test(a_shard_a_rank),
                                        cmocka_unit_test(beyond_the_picture) };

    return cmocka_run_group_tests(tests, make_root, remove_root);
}
