/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/models/sparse/test_sparse_load.c
 * uses: proto worker/models worker/layers worker/data worker/eval worker/mask worker/comm worker/core cpu
 * Weights of Sparse R-CNN from files of the reference, of mmdetection and of other detectors, and into them. Source:
 * specs sparse_rcnn section 13. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/stand/harness.h"
#include "tests/unit/worker/models/sparse/sparse_models.h"
#include "worker/core/safetensors.h"
#include "worker/models/weights.h"

enum { CLASSES = 3 };

static char folder[TEMP_MAX];

static int open_all(void **state)
{
    return mkdtemp(temp_path(folder, sizeof folder, "test_sparse_load-XXXXXX")) ? open_device(state) : -1;
}

static int close_all(void **state)
{
    rmdir(folder);
    return close_device(state);
}

/* A file of m's weights in a dialect, without arrays that begin with `without`. told: with the traits. Overwritten by
 * the next. */
static const char *file_of(struct model *m, int dialect, const char *without, bool told)
{
    static char path[TEMP_MAX + 32];
    struct st_array *a, *kept;
    struct err err;
    size_t n, left = 0;

    snprintf(path, sizeof path, "%s/weights.safetensors", folder);
    assert_int_equal(m->family->export_as(m, dialect, (struct model_classes){ CLASSES, NULL, NULL }, &a, &n, &err), 0);
    kept = calloc(n, sizeof *kept);
    assert_non_null(kept);
    for (size_t i = 0; i < n; i++)
        if (!without || strncmp(a[i].name, without, strlen(without)) != 0)
            kept[left++] = a[i];
    if (safetensors_write(path, kept, left, m->traits, told ? (size_t)m->ntraits : 0, &err) < 0)
        fail_msg("%s", err.msg);
    free(kept);
    weights_named_free(a, n);
    return path;
}

/* The number of arrays with other numbers; arrays whose name has `but` in it are not compared. */
static int differing(struct model *a, struct model *b, const char *but)
{
    int n = 0;

    for (int i = 0; i < a->nparams; i++) {
        const struct param *x = a->params[i], *y = param_named(b, x->name);

        if (y && !(but && strstr(x->name, but)))
            n += memcmp(x->data, y->data, x->count * sizeof(float)) != 0;
    }
    return n;
}

/* Changes all numbers of m. */
static void change(struct model *m)
{
    for (int i = 0; i < m->nparams; i++)
        for (size_t k = 0; k < m->params[i]->count; k++)
            ((float *)m->params[i]->data)[k] += 0.5f;
}

/* Opens a network from a file, which is then removed. */
static struct model *again(const char *keys, const char *path, int classes)
{
    struct model *m = opened(keys, path, classes);

    unlink(path);
    return m;
}

static void both_dialects_there_and_back(void **state)
{
    static const char *const said[] = { "(detectron2's names)", "(mmdetection's names)" };
    struct model *m = opened(SPARSE_SMALL, NULL, CLASSES), *b;

    (void)state;
    change(m);
    for (int dialect = 0; dialect < 2; dialect++) {
        b = again(SPARSE_SMALL, file_of(m, dialect, NULL, true), CLASSES);
        assert_non_null(strstr(b->loaded, said[dialect]));
        assert_null(strstr(b->loaded, "; "));
        assert_int_equal(differing(m, b, NULL), 0);
        model_free(b);
    }
    model_free(m);
}

/* Source: section 13.2. */
static void mmdetection_has_its_own_names(void **state)
{
    /* %: roi_head.bbox_head. */
    char names[] = "backbone.conv1.weight backbone.layer2.0.downsample.1.running_var neck.lateral_convs.0.conv.bias "
                   "neck.fpn_convs.3.conv.weight rpn_head.init_proposal_bboxes.weight rpn_head.init_proposal_features.weight "
                   "%1.attention.attn.in_proj_weight %1.attention.attn.out_proj.bias %0.attention_norm.weight "
                   "%0.instance_interactive_conv.dynamic_layer.bias %0.instance_interactive_conv.norm_in.weight "
                   "%0.instance_interactive_conv.norm_out.bias %0.instance_interactive_conv.fc_layer.weight "
                   "%0.instance_interactive_conv.fc_norm.weight %0.instance_interactive_conv_norm.weight %0.ffn.layers.0.0.weight "
                   "%0.ffn.layers.1.bias %0.ffn_norm.bias %0.cls_fcs.1.weight %0.reg_fcs.7.bias %0.fc_cls.weight %0.fc_reg.bias";
    struct model *m = opened(SPARSE_SMALL, NULL, CLASSES), *b;
    const char *path = file_of(m, 1, NULL, false);
    struct safetensors *file;
    struct err err;

    (void)state;
    assert_int_equal(safetensors_open(path, &file, &err), 0);
    for (char *word = strtok(names, " "); word; word = strtok(NULL, " ")) {
        char name[96];

        snprintf(name, sizeof name, "%s%s", *word == '%' ? "roi_head.bbox_head." : "", word + (*word == '%'));
        if (!safetensors_find(file, name))
            fail_msg("%s", name);
    }
    safetensors_close(file);
    b = opened(SPARSE_SMALL, path, CLASSES);
    assert_non_null(strstr(b->loaded, "its model.delta_clamp is 4.135166556742356, the job's is 8.74033674273044"));
    assert_non_null(strstr(b->loaded, "its model.delta_floor is true, the job's is false"));
    model_free(b);
    b = again(SPARSE_SMALL ", \"delta_clamp\": 4.135166556742356, \"delta_floor\": true", path, CLASSES);
    assert_null(strstr(b->loaded, "delta"));
    model_free(b);
    model_free(m);
}

/* ---- files of other jobs ---- */

static void what_differs_begins_anew(void **state)
{
    static const struct {
        const char *keys, *without; /* of the job; beginning of names that the file lacks */
        int classes;
        const char *said, *kept; /* m->loaded has it; names of arrays that begin anew have it in them */
    } rows[] = {
        { "", NULL, 5, "left out, as the file is of 3 classes and the job of 5: the class scores", "class_logits" },
        { ", \"proposals\": 9", NULL, CLASSES, "left out, as the file has 6 and the job 9: the proposals", "init_proposal" },
        { ", \"stages\": 3", NULL, CLASSES, "; not in the file: stage 3", "head_series.2" },
        { ", \"stages\": 1", NULL, CLASSES, "; without a place in the model: head.head_series.1.", "head_series.1" },
        { "", "head.head_series.0.", CLASSES, "(detectron2's names); not in the file: stage 1", "head_series.0" },
    };
    struct model *m = opened(SPARSE_SMALL, NULL, CLASSES);

    (void)state;
    change(m);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char keys[400];
        struct model *b;

        snprintf(keys, sizeof keys, SPARSE_SMALL "%s", rows[i].keys);
        b = again(keys, file_of(m, 0, rows[i].without, true), rows[i].classes);
        if (!strstr(b->loaded, rows[i].said))
            fail_msg("%s", b->loaded);
        assert_int_equal(differing(m, b, rows[i].kept), 0);
        model_free(b);
    }
    model_free(m);
}

static void sizes_are_told_by_key(void **state)
{
    static const struct {
        const char *keys, *said;
    } rows[] = {
        { ", \"dynamic_channels\": 16", "model.dynamic_channels: the file has 8, the job 16" },
        { ", \"ffn_channels\": 32", "model.ffn_channels: the file has 24, the job 32" },
        { ", \"fpn_channels\": 32", "model.fpn_channels: the file has 16, the job 32" },
        { ", \"heads\": 4", "model.heads: the file has 2, the job 4" },
        { ", \"reg_layers\": 4", "head.head_series.0.reg_module.9.weight is not in the file, which has detectron2's names" },
        { ", \"cls_layers\": 2", "head.head_series.0.cls_module.3.weight is not in the file, which has detectron2's names" },
        { ", \"backbone\": \"msra\"", "the file is of a job with model.backbone=torchvision; it is msra" },
    };
    struct model *m = opened(SPARSE_SMALL, NULL, CLASSES), *b;
    const char *path = file_of(m, 0, NULL, true);

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char keys[400];
        struct err err;

        snprintf(keys, sizeof keys, SPARSE_SMALL "%s", rows[i].keys);
        assert_int_equal(try_open(keys, path, CLASSES, false, &b, &err), ERR_DATA);
        if (!strstr(err.msg, rows[i].said))
            fail_msg("%s", err.msg);
    }
    unlink(path);
    model_free(m);
}

/* The limits of deltas that a file of detd is made with, to the last digit. */
static void a_file_tells_its_limits(void **state)
{
    const char *keys = SPARSE_SMALL ", \"delta_clamp\": 4.13516655, \"delta_floor\": true, \"backbone\": \"msra\"", *path;
    struct model *m = opened(keys, NULL, CLASSES), *b;
    struct err err;

    (void)state;
    path = file_of(m, 0, NULL, true);
    b = opened(SPARSE_SMALL ", \"backbone\": \"msra\", \"delta_clamp\": 4.1352", path, CLASSES);
    assert_non_null(strstr(b->loaded, "; its model.delta_clamp is 4.13516655, the job's is 4.1352"));
    assert_non_null(strstr(b->loaded, "; its model.delta_floor is true, the job's is false"));
    model_free(b);
    assert_int_equal(try_open(SPARSE_SMALL, path, CLASSES, false, &b, &err), ERR_DATA);
    assert_non_null(strstr(err.msg, "the file is of a job with model.backbone=msra"));
    b = again(keys, path, CLASSES);
    assert_null(strstr(b->loaded, "; "));
    model_free(b);
    model_free(m);
}

/* A detector of another family gives its front, a backbone only itself. */
static void other_networks_give_what_they_have(void **state)
{
    struct model *faster = opened("\"preset\": \"faster_rcnn_r18_fpn\", \"width\": 0.0625, \"fpn_channels\": 16, \"head_channels\": 16, "
                                  "\"backbone\": \"torchvision\"",
                                  NULL, CLASSES);
    struct model *m = opened(SPARSE_SMALL, NULL, CLASSES), *b;

    (void)state;
    change(faster);
    for (int dialect = 0; dialect < 2; dialect++) { /* torchvision's names, detectron2's */
        b = again(SPARSE_SMALL, file_of(faster, dialect, NULL, true), CLASSES);
        assert_non_null(strstr(b->loaded, "; not in the file: the proposals, stage 1, stage 2; without a place in the model: "));
        assert_int_equal(differing(faster, b, NULL), 0);
        assert_int_equal(differing(m, b, "backbone."), 0); /* the rest is as it begins */
        model_free(b);
    }
    b = again(SPARSE_SMALL, file_of(m, 0, "backbone.fpn", false), CLASSES);
    assert_non_null(strstr(b->loaded, "; not in the file: the feature pyramid"));
    model_free(b);
    model_free(m);
    model_free(faster);
}

static void programs_are_told_what_to_set(void **state)
{
    static const struct {
        const char *keys;
        int dialect;
        const char *said;
    } rows[] = { { "", 0, "detectron2's defaults are the job's" },
                 { ", \"backbone\": \"msra\", \"delta_clamp\": 4", 0, "STRIDE_IN_1X1 True; scale_clamp 4 of the stages" },
                 { "", 1, "mmdetection is to be set up as the job was: wh_ratio_clip 0.00016 of the box coders, for growing sides alone" },
                 { ", \"delta_clamp\": 4.135166556742356, \"delta_floor\": true", 1, "mmdetection's defaults are the job's" } };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char keys[400], said[512];
        struct model *m;

        snprintf(keys, sizeof keys, SPARSE_SMALL "%s", rows[i].keys);
        m = opened(keys, NULL, CLASSES);
        m->family->export_told(m, rows[i].dialect, said, sizeof said);
        if (!strstr(said, rows[i].said))
            fail_msg("%s", said);
        model_free(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_dialects_there_and_back), cmocka_unit_test(mmdetection_has_its_own_names),
        cmocka_unit_test(what_differs_begins_anew),     cmocka_unit_test(sizes_are_told_by_key),
        cmocka_unit_test(a_file_tells_its_limits),      cmocka_unit_test(other_networks_give_what_they_have),
        cmocka_unit_test(programs_are_told_what_to_set)
    };

    return cmocka_run_group_tests(tests, open_all, close_all);
}
