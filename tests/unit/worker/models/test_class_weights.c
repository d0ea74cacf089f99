/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/models/test_class_weights.c
 * uses: proto worker/models worker/layers worker/data worker/eval worker/mask worker/comm worker/core cpu
 * Train.class_weights: the names of a data set become a row of the device's memory, and an unknown name is the user's
 * error. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "proto/err.h"
#include "proto/job/jobspec.h"
#include "tests/unit/worker/generic_cpu.h"
#include "worker/data/set/dataset.h"
#include "worker/models/builtin.h"

static struct dataset_class kinds[] = { { 1, (char *)"circle" }, { 2, (char *)"square" }, { 5, (char *)"ring" }, { 9, (char *)"ring" } };

/* weights: JSON. named: the model gets the names of its classes. */
static int opened(const char *preset, const char *weights, bool named, struct model **ret, struct err *err)
{
    json_t *json =
        json_pack("{s:{s:s,s:f},s:{s:{s:s,s:s}},s:{s:i,s:i,s:o}}", "model", "preset", preset, "width", 0.02, "data", "train", "annotations",
                  "none", "images", "none", "train", "steps", 1, "batch", 1, "class_weights", json_loads(weights, 0, NULL));
    struct jobspec *spec = NULL;
    int rc = jobspec_parse(json, &spec, err);

    if (rc >= 0)
        rc = model_open(&models_builtin, spec, (struct model_classes){ 4, NULL, named ? kinds : NULL }, dev, ret, err);
    jobspec_free(spec);
    json_decref(json);
    return rc;
}

static void by_name(void **state)
{
    static const char *const preset[] = { "yolov3_tiny", "faster_rcnn_r18_fpn" };
    const float want[4] = { 0.5f, 3, 1, 1 };

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct model *m = NULL;
        struct err err = { 0 };

        assert_int_equal(opened(preset[i], "{\"square\": 3, \"circle\": 0.5}", true, &m, &err), 0);
        assert_non_null(m->class_weight);
        assert_memory_equal(m->class_weight, want, sizeof want);
        model_free(m);
        assert_int_equal(opened(preset[i], "{\"square\": 3}", false, &m, &err), 0);
        assert_null(m->class_weight);
        model_free(m);
        assert_int_equal(opened(preset[i], "{}", true, &m, &err), 0);
        assert_null(m->class_weight);
        model_free(m);
    }
}

static void unknown(void **state)
{
    static const struct {
        const char *weights, *msg;
    } t[] = { { "{\"sqare\": 3}", "train.class_weights: the data set has no category 'sqare'; did you mean 'square'?" },
              { "{\"aeroplane\": 3}", "train.class_weights: the data set has no category 'aeroplane'" },
              { "{\"ring\": 3}", "train.class_weights: 2 categories of the data set are called 'ring'" } };

    (void)state;
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct model *m = NULL;
        struct err err = { 0 };

        assert_int_equal(opened("yolov3_tiny", t[i].weights, true, &m, &err), ERR_INPUT);
        if (strncmp(err.msg, t[i].msg, strlen(t[i].msg)) != 0)
            fail_msg("%s", err.msg);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(by_name), cmocka_unit_test(unknown) };

    return cmocka_run_group_tests(tests, open_generic, close_generic);
}
