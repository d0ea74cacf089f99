/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/models/test_freeze.c
 * uses: proto worker/models worker/layers worker/data worker/eval worker/mask worker/comm worker/core cpu
 * Train.freeze: names, globs, parts and layers by number; normalisations that stay; an entry without a match is
 * reported with similar names. */
#include <fnmatch.h>
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
#include "worker/layers/layers.h"
#include "worker/models/builtin.h"
#include "worker/models/freeze.h"

static struct model *opened(const char *preset, bool sync)
{
    json_t *json = json_pack("{s:{s:s,s:f,s:b},s:{s:{s:s,s:s}},s:{s:i,s:i}}", "model", "preset", preset, "width", 0.02, "sync_bn",
                             (int)sync, "data", "train", "annotations", "none", "images", "none", "train", "steps", 1, "batch", 1);
    struct jobspec *spec = NULL;
    struct model *m = NULL;
    struct err err = { 0 };

    if (jobspec_parse(json, &spec, &err) < 0 ||
        model_open(&models_builtin, spec, (struct model_classes){ 2, NULL, NULL }, dev, &m, &err) < 0)
        fail_msg("%s", err.msg);
    jobspec_free(spec);
    json_decref(json);
    return m;
}

/* texts: separated by blanks */
static int freeze(struct model *m, const char *texts, struct err *err)
{
    json_t *list = json_array();
    char copy[200], *rest = copy, *text;
    int rc;

    snprintf(copy, sizeof copy, "%s", texts);
    while ((text = strtok_r(rest, " ", &rest)))
        json_array_append_new(list, json_string(text));
    rc = model_freeze(m, list, err);
    json_decref(list);
    return rc;
}

static bool is_one_of(const char *name, const char *const *globs)
{
    for (; *globs; globs++)
        if (fnmatch(*globs, name, 0) == 0)
            return true;
    return false;
}

/* The parameters named by the globs stop training, and no others do. */
static void freezes(const char *preset, const char *texts, const char *const *globs)
{
    struct model *m = opened(preset, false), *fresh = opened(preset, false);
    struct err err = { 0 };
    int frozen = 0;

    if (freeze(m, texts, &err) < 0)
        fail_msg("%s", err.msg);
    for (int i = 0; i < m->nparams; i++) {
        bool named = is_one_of(m->params[i]->name, globs);

        if (m->params[i]->trainable != (fresh->params[i]->trainable && !named))
            fail_msg("%s: %s", texts, m->params[i]->name);
        frozen += named;
    }
    assert_true(frozen > 0);
    model_free(m);
    model_free(fresh);
}

static void names_globs_parts_and_numbers(void **state)
{
    (void)state;
    freezes("yolov3_tiny", "module_list.13.conv_13.weight", (const char *[]){ "module_list.13.conv_13.weight", NULL });
    freezes("yolov3_tiny", "module_list.1?.*", (const char *[]){ "module_list.1[0-9].*", NULL });
    freezes("yolov3_tiny", "module_list.10", (const char *[]){ "module_list.10.*", NULL });
    freezes("yolov3_tiny", "*.bias", (const char *[]){ "*.bias", NULL });
    freezes("yolov3_tiny", "0", (const char *[]){ "module_list.0.*", NULL });
    freezes("yolov3_tiny", "10-14", (const char *[]){ "module_list.10.*", "module_list.1[234].*", NULL });
    freezes("yolov3_tiny", "0-4 module_list.22 18",
            (const char *[]){ "module_list.[0-4].*", "module_list.22.*", "module_list.18.*", NULL });
    freezes("faster_rcnn_r18_fpn", "backbone.bottom_up.*", (const char *[]){ "backbone.bottom_up.*", NULL });
    freezes("faster_rcnn_r18_fpn", "backbone", (const char *[]){ "backbone.*", NULL });
    freezes("faster_rcnn_r18_fpn", "proposal_generator roi_heads.box_head",
            (const char *[]){ "proposal_generator.*", "roi_heads.box_head.*", NULL });
    freezes("featdepth_baseline_r18", "depth.encoder pose", (const char *[]){ "depth.encoder.*", "pose.*", NULL });
}

static const struct norm *norm_of(const struct model *m, const char *gamma)
{
    for (int i = 0; i < m->nnorms; i++)
        if (strcmp(m->norms[i].gamma->name, gamma) == 0)
            return &m->norms[i];
    fail_msg("%s", gamma);
    return NULL;
}

/* If both of its arrays are frozen, a normalisation is frozen whole. If only one is frozen, its statistics continue. */
static void statistics_stay_with_scale_and_shift(void **state)
{
    struct model *m = opened("yolov3_tiny", true);
    struct err err;

    (void)state;
    assert_true(norm_of(m, "module_list.0.batch_norm_0.weight")->sync);
    assert_int_equal(freeze(m, "0 module_list.2.*.weight", &err), 0);
    assert_true(norm_of(m, "module_list.0.batch_norm_0.weight")->frozen && !norm_of(m, "module_list.0.batch_norm_0.weight")->sync);
    assert_true(!norm_of(m, "module_list.2.batch_norm_2.weight")->frozen && norm_of(m, "module_list.2.batch_norm_2.weight")->sync);
    assert_false(norm_of(m, "module_list.4.batch_norm_4.weight")->frozen);
    model_free(m);
}

static void nothing_is_changed_by_nothing(void **state)
{
    struct model *m = opened("featdepth_baseline_r18", false), *fresh = opened("featdepth_baseline_r18", false);
    struct err err;

    (void)state;
    assert_int_equal(freeze(m, "", &err), 0);
    for (int i = 0; i < m->nparams; i++)
        assert_int_equal(m->params[i]->trainable, fresh->params[i]->trainable);
    for (int i = 0; i < m->nnorms; i++)
        assert_int_equal(m->norms[i].frozen, fresh->norms[i].frozen);
    model_free(m);
    model_free(fresh);
}

static void refuses(const char *preset, const char *texts, const char *said)
{
    struct model *m = opened(preset, false);
    struct err err = { 0 };

    assert_int_equal(freeze(m, texts, &err), ERR_INPUT);
    if (strncmp(err.msg, said, strlen(said)) != 0)
        fail_msg("%s: '%s'", texts, err.msg);
    model_free(m);
}

static void what_names_nothing_is_told_with_what_is_near(void **state)
{
    (void)state;
    refuses("faster_rcnn_r18_fpn", "backbone.bottom_op.*",
            "train.freeze: nothing is called 'backbone.bottom_op.*'; similar names are backbone.bottom_up, ");
    refuses("faster_rcnn_r18_fpn", "backbone roi_head", "train.freeze: nothing is called 'roi_head'; similar names are roi_heads, ");
    refuses("yolov3_tiny", "module_list.1",
            "train.freeze: nothing is called 'module_list.1'; similar names are module_list.0, module_list.2, ");
    refuses("yolov3_tiny", "23-40", "train.freeze: no layer with weights has the number '23-40'; numbers are 0 to 22; ");
    refuses("yolov3_tiny", "1", "train.freeze: no layer with weights has the number '1'; numbers are 0 to 22; ");
    refuses("yolov3_tiny", "14-10", "train.freeze: no layer with weights has the number '14-10'; ");
    refuses("yolov3_tiny", "*", "train.freeze: nothing is left that trains");
    refuses("yolov3_tiny", "0-22", "train.freeze: nothing is left that trains");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_globs_parts_and_numbers),
        cmocka_unit_test(statistics_stay_with_scale_and_shift),
        cmocka_unit_test(nothing_is_changed_by_nothing),
        cmocka_unit_test(what_names_nothing_is_told_with_what_is_near),
    };

    return cmocka_run_group_tests(tests, open_generic, close_generic);
}
