/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/models/rcnn/test_rcnn_flavors.c
 * uses: proto worker/models worker/layers worker/data worker/eval worker/mask worker/comm worker/core cpu
 * The initial state of Faster and Mask R-CNN in each flavor: names, distributions of weights, decay. Source: specs rcnn
 * sections 2.5, 7.2 and 9. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "proto/err.h"
#include "proto/job/jobspec.h"
#include "worker/layers/layers.h"
#include "worker/models/builtin.h"
#include "worker/models/rcnn/network.h"
#include "worker/models/rcnn/rcnn.h"
#include "worker/models/rcnn/settings.h"
#include "worker/models/registry.h"

const struct device_ops *cpu_backend_generic(void);

enum { CLASSES = 4, WIDE = 48 /* of the mask head */, ENOUGH = 500 /* numbers that are enough to estimate a deviation */ };

static const char *body; /* model.backbone of jobs; NULL: as the flavor has it */

static struct jobspec *spec_of(const char *preset, const char *flavor)
{
    json_t *root = json_pack("{s:{s:s,s:s,s:f,s:i,s:i,s:i},s:{s:{s:s,s:s}},s:{s:i,s:i}}", "model", "preset", preset, "flavor", flavor,
                             "width", 0.125, "fpn_channels", 40, "head_channels", 56, "mask_channels", WIDE, "data", "train", "annotations",
                             "a", "images", "i", "train", "steps", 1, "batch", 1);
    struct jobspec *spec = NULL;
    struct err err;

    assert_non_null(root);
    if (body)
        json_object_set_new(json_object_get(root, "model"), "backbone", json_string(body));
    if (jobspec_parse(root, &spec, &err) < 0)
        fail_msg("%s", err.msg);
    json_decref(root);
    return spec;
}

static struct model *opened_of(const char *preset, const char *flavor)
{
    struct device_options opt = { 1, "generic", PRECISION_FP32 };
    struct jobspec *spec = spec_of(preset, flavor);
    struct model *m = NULL;
    struct device *dev;
    struct err err;

    if (cpu_backend_generic()->open(0, &opt, &dev, &err) < 0 ||
        model_open(&models_builtin, spec, (struct model_classes){ CLASSES, NULL, NULL }, dev, &m, &err) < 0)
        fail_msg("%s", err.msg);
    jobspec_free(spec);
    return m;
}

static struct model *opened(const char *flavor)
{
    return opened_of("mask_rcnn_r18_fpn", flavor);
}

static void closed(struct model *m)
{
    struct device *dev = m->dev;

    model_free(m);
    dev->ops->close(dev);
}

/* ---- where weights begin ---- */

enum form { ZERO, UNIFORM /* at most so far from 0 */, NORMAL /* of that deviation */ };

struct begin {
    enum form form;
    double value;
};

static struct begin uniform(double bound)
{
    return (struct begin){ UNIFORM, bound };
}

static struct begin normal(double deviation)
{
    return (struct begin){ NORMAL, deviation };
}

static struct begin begin_of_weight(bool tv, enum rcnn_place place, const struct param *p)
{
    double in = (double)p->r * p->s * p->c, out = (double)p->r * p->s * p->k;

    switch (place) {
    case RCNN_LATERAL:
    case RCNN_OUTPUT:
        return uniform(sqrt(3 / in));
    case RCNN_RPN:
    case RCNN_OBJECTNESS:
    case RCNN_DELTAS:
        return normal(0.01);
    case RCNN_FC:
        return uniform(tv ? 1 / sqrt(in) : sqrt(3 / in));
    case RCNN_CLASSES:
        return tv ? uniform(1 / sqrt(in)) : normal(0.01);
    case RCNN_BOXES:
        return tv ? uniform(1 / sqrt(in)) : normal(0.001);
    case RCNN_DECONV:
        return normal(sqrt(2.0 / (4 * WIDE)));
    case RCNN_PREDICTOR:
        return normal(tv ? sqrt(2.0 / (CLASSES + 1)) : 0.001);
    case RCNN_STEM:
    case RCNN_BLOCK:
    case RCNN_SHORTCUT:
    case RCNN_MASK_CONV:
    case RCNN_PLACES:
        break;
    }
    return normal(sqrt(2 / out));
}

/* inputs: of the layer. */
static struct begin begin_of_bias(bool tv, enum rcnn_place place, double inputs)
{
    switch (place) {
    case RCNN_FC:
    case RCNN_CLASSES:
    case RCNN_BOXES:
    case RCNN_PREDICTOR:
        return tv ? uniform(1 / sqrt(inputs)) : (struct begin){ ZERO, 0 };
    case RCNN_DECONV:
        return tv ? uniform(1 / sqrt(4.0 * WIDE)) : (struct begin){ ZERO, 0 };
    default:
        return (struct begin){ ZERO, 0 };
    }
}

static void check_begin(const struct param *p, struct begin want)
{
    const float *w = p->data;
    double most = 0, squares = 0, deviation;

    for (size_t i = 0; i < p->count; i++) {
        most = fabs((double)w[i]) > most ? fabs((double)w[i]) : most;
        squares += (double)w[i] * (double)w[i];
    }
    deviation = sqrt(squares / (double)p->count);
    if (want.form == ZERO ? most != 0 : most == 0)
        fail_msg("%s: numbers reach %g", p->name, most);
    if (want.form == UNIFORM && most > want.value * (1 + 1e-6))
        fail_msg("%s: numbers reach %g, should reach %g", p->name, most, want.value);
    if (want.form == UNIFORM && p->count >= ENOUGH && most < 0.95 * want.value)
        fail_msg("%s: numbers reach %g only, should reach %g", p->name, most, want.value);
    if (want.form == NORMAL && most < 2 * want.value)
        fail_msg("%s: no number beyond %g, which a deviation of %g would have", p->name, most, want.value);
    if (want.form == NORMAL && fabs(deviation - want.value) > want.value * (p->count >= ENOUGH ? 0.1 : 0.3))
        fail_msg("%s: deviation %g, should be %g", p->name, deviation, want.value);
}

static void check_beginnings(const char *flavor)
{
    struct model *m = opened(flavor);
    const struct rcnn_network *net = rcnn_network_of(m);
    bool tv = strcmp(flavor, "tv") == 0;
    double inputs = 0;
    int weights = 0, biases = 0;

    for (int i = 0; i < net->front.nnamed; i++) {
        const struct rcnn_named *a = &net->front.named[i];

        if (a->array == RCNN_WEIGHT) {
            weights++;
            inputs = (double)a->p->r * a->p->s * a->p->c; /* its bias follows */
            check_begin(a->p, begin_of_weight(tv, a->part.place, a->p));
        } else if (a->array == RCNN_BIAS) {
            biases++;
            check_begin(a->p, begin_of_bias(tv, a->part.place, inputs));
        }
    }
    assert_int_equal(biases, 8 + 3 + 4 + 6);
    assert_true(weights > biases);
    closed(m);
}

static void weights_begin_as_the_flavor_says(void **state)
{
    (void)state;
    check_beginnings("d2");
    check_beginnings("tv");
}

/* ---- decay ---- */

static void norms_decay_in_torchvision_alone(void **state)
{
    static const char *const flavors[] = { "d2", "tv" };

    (void)state;
    for (int tv = 0; tv < 2; tv++) {
        struct model *m = opened(flavors[tv]);
        const struct rcnn_network *net = rcnn_network_of(m);
        int norms = 0;

        for (int i = 0; i < net->front.nnamed; i++) {
            const struct param_group *g = &m->groups[net->front.named[i].p->group];
            bool norm = net->front.named[i].array == RCNN_GAMMA || net->front.named[i].array == RCNN_BETA;

            norms += norm;
            assert_true(g->lr == 1);
            if (net->front.named[i].array <= RCNN_BETA)
                assert_true(g->decay == (norm && !tv ? 0 : 1));
        }
        assert_int_equal(norms, 2 * m->nnorms);
        closed(m);
    }
}

/* ---- names ---- */

static bool has(const struct model *m, const char *name)
{
    for (int i = 0; i < m->nparams; i++)
        if (strcmp(m->params[i]->name, name) == 0)
            return true;
    return false;
}

static void arrays_have_the_flavors_names(void **state)
{
    static const char *const d2[] = { "backbone.bottom_up.stem.conv1.weight", "backbone.bottom_up.res3.0.shortcut.norm.running_var",
                                      "backbone.fpn_lateral2.bias",           "proposal_generator.rpn_head.anchor_deltas.weight",
                                      "roi_heads.box_head.fc1.weight",        "roi_heads.mask_head.predictor.bias" };
    static const char *const tv[] = { "backbone.body.conv1.weight",         "backbone.body.layer2.0.downsample.1.running_var",
                                      "backbone.fpn.inner_blocks.0.0.bias", "rpn.head.bbox_pred.weight",
                                      "roi_heads.box_head.fc6.weight",      "roi_heads.mask_predictor.mask_fcn_logits.bias" };
    struct model *a = opened("d2"), *b = opened("tv");

    (void)state;
    for (size_t i = 0; i < sizeof d2 / sizeof *d2; i++) {
        assert_true(has(a, d2[i]) && !has(a, tv[i]));
        assert_true(has(b, tv[i]) && !has(b, d2[i]));
    }
    closed(a);
    closed(b);
}

/* ---- depth ---- */

/* He et al. 2016, Deep Residual Learning, arXiv:1512.03385, table 1. */
static void networks_are_as_deep_as_they_are_called(void **state)
{
    static const struct {
        const char *preset;
        int blocks[RESNET_STAGES], convs;
    } rows[] = {
        { "mask_rcnn_r18_fpn", { 2, 2, 2, 2 }, 2 },
        { "mask_rcnn_r34_fpn", { 3, 4, 6, 3 }, 2 },
        { "mask_rcnn_r50_fpn", { 3, 4, 6, 3 }, 3 },
        { "mask_rcnn_r101_fpn", { 3, 4, 23, 3 }, 3 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct model *m = opened_of(rows[i].preset, "d2");

        for (int stage = 0; stage < RESNET_STAGES; stage++)
            for (int more = 0; more < 2; more++) {
                char block[80], conv[80];

                snprintf(block, sizeof block, "backbone.bottom_up.res%d.%d.conv1.weight", stage + 2, rows[i].blocks[stage] - 1 + more);
                snprintf(conv, sizeof conv, "backbone.bottom_up.res%d.0.conv%d.weight", stage + 2, rows[i].convs + more);
                if (has(m, block) == more || has(m, conv) == more)
                    fail_msg("%s: %s or %s", rows[i].preset, block, conv);
            }
        closed(m);
    }
}

/* ---- a case that no network shows: a side of exactly the least ---- */

static void torchvision_keeps_proposals_of_the_least_side(void **state)
{
    static const char *const flavors[] = { "d2", "tv" };

    (void)state;
    for (int tv = 0; tv < 2; tv++) {
        struct jobspec *spec = spec_of("mask_rcnn_r18_fpn", flavors[tv]);
        struct rcnn_settings how;

        rcnn_settings_of(spec, CLASSES, &how);
        assert_true(how.train.keep_min == tv && how.val.keep_min == tv);
        assert_true(how.train.min_side == (tv ? 1e-3f : 0) && how.val.min_side == (tv ? 1e-3f : 0));
        jobspec_free(spec);
    }
}

/* A job with another program's body, and jobs with other heads: the note lists the differences. */
static void a_program_is_told_what_it_does_otherwise(void **state)
{
    static const struct {
        const char *flavor, *body;
        int dialect;
        const char *said, *silent;
    } rows[] = {
        { "tv", "torchvision", 0, "torchvision's defaults are the job's", "image_mean" },
        { "d2", "msra", 0,
          "image_mean=[103.53, 116.28, 123.675] and image_std=[1, 1, 1], bottlenecks have their stride in conv1; anchors are not rounded",
          "INPUT" },
        { "d2", "torchvision", 0, "as the job was: anchors are not rounded", "image_mean" },
        { "d2", "msra", 1, "detectron2's defaults are the job's", "INPUT" },
        { "d2", "torchvision", 1, "INPUT.FORMAT RGB, MODEL.PIXEL_MEAN [123.675, 116.28, 103.53]", "rounded" },
        { "tv", "torchvision", 1, "STRIDE_IN_1X1 False; anchors are rounded", "image_mean" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct model *m;
        char said[512];

        body = rows[i].body;
        m = opened(rows[i].flavor);
        body = NULL;
        m->family->export_told(m, rows[i].dialect, said, sizeof said);
        if (!strstr(said, rows[i].said) || strstr(said, rows[i].silent))
            fail_msg("%s, %s: %s", rows[i].flavor, rows[i].body, said);
        closed(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(weights_begin_as_the_flavor_says),
                                        cmocka_unit_test(norms_decay_in_torchvision_alone),
                                        cmocka_unit_test(arrays_have_the_flavors_names),
                                        cmocka_unit_test(networks_are_as_deep_as_they_are_called),
                                        cmocka_unit_test(torchvision_keeps_proposals_of_the_least_side),
                                        cmocka_unit_test(a_program_is_told_what_it_does_otherwise) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
