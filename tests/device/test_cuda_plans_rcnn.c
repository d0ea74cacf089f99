/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/test_cuda_plans_rcnn.c
 * uses: plans cpu proto worker/models worker/layers worker/data worker/eval worker/mask worker/comm worker/core
 * CuDNN plans every convolution and linear layer that Faster, Mask and Sparse R-CNN need, at 800/1333, on GPUs that are
 * described. With TEST_LONG: all depths, both orientations, for 1, 2 and 4 pictures in all tiers. */
#include "proto/job/jobspec.h"
#include "tests/device/plan_notes.h"
#include "worker/models/rcnn/family.h"
#include "worker/models/sparse/family.h"

const struct device_ops *cpu_backend_generic(void);

enum { CLASSES = 80 };

/* The body, the pyramid, and RPN of five levels or six stages of twelve linear layers. A validation has the two-stage
 * heads twice: for losses and for results. */
static const struct preset {
    const struct model_family *family;
    const char *name;
    int once, heads; /* convolutions and linear layers */
} presets[] = {
    { &rcnn_models, "mask_rcnn_r50_fpn", 53 + 8 + 5 * 3, 4 + 6 },   { &sparse_models, "sparse_rcnn_r50_fpn", 53 + 8 + 6 * 12, 0 },
    { &rcnn_models, "mask_rcnn_r18_fpn", 20 + 8 + 5 * 3, 4 + 6 },   { &rcnn_models, "mask_rcnn_r34_fpn", 36 + 8 + 5 * 3, 4 + 6 },
    { &rcnn_models, "mask_rcnn_r101_fpn", 104 + 8 + 5 * 3, 4 + 6 }, { &rcnn_models, "faster_rcnn_r50_fpn", 53 + 8 + 5 * 3, 4 },
    { &sparse_models, "sparse_rcnn_r18_fpn", 20 + 8 + 6 * 12, 0 },
};
enum { PRESETS = sizeof presets / sizeof *presets, SHORT = 2 /* presets without TEST_LONG */ };

/* With and without frozen stages: this decides which input gradients are needed. */
static struct jobspec *spec_of(const char *preset, bool frozen)
{
    json_t *root = json_pack("{s:{s:s},s:{s:{s:s,s:s}},s:{s:i,s:i}}", "model", "preset", preset, "data", "train", "annotations", "a",
                             "images", "i", "train", "steps", 1, "batch", 1);
    struct jobspec *spec = NULL;
    struct err err;

    assert_non_null(root);
    if (frozen)
        json_object_update_new(json_object_get(root, "model"), json_pack("{s:s,s:i}", "init", "/weights", "freeze_at", 2));
    if (jobspec_parse(root, &spec, &err) < 0)
        fail_msg("%s", err.msg);
    json_decref(root);
    return spec;
}

static void note_once(struct model *m, const struct preset *p, enum precision precision, enum tier tier, int n, struct canvas canvas)
{
    const int before = seen.asked;

    note_model(m, precision, tier, n, canvas);
    assert_int_equal(seen.asked - before, 2 * p->once + 3 * p->heads);
}

static void note_preset(struct device *dev, const struct preset *p, bool frozen)
{
    static const struct canvas canvases[] = { { 800, 1344 }, { 1344, 800 } };
    struct jobspec *spec = spec_of(p->name, frozen);
    struct model *m;
    struct err err;

    if (p->family->open(spec, CLASSES, dev, &m, &err) < 0)
        fail_msg("%s", err.msg);
    for (int precision = PRECISION_FP32; precision <= PRECISION_BF16; precision++)
        for (int tier = TIER_OFF; tier <= TIER_WORLD; tier++)
            for (int n = 1; n <= 4; n *= 2)
                for (size_t c = 0; c < (test_long() ? sizeof canvases / sizeof *canvases : 1); c++)
                    if (test_long() || (tier == TIER_RERUN && n == 2))
                        note_once(m, p, (enum precision)precision, (enum tier)tier, n, canvases[c]);
    model_free(m);
    jobspec_free(spec);
}

static void note_presets(void)
{
    struct device_options opt = { 1, "generic", PRECISION_FP32 };
    struct device *dev;
    struct err err;

    assert_int_equal(cpu_backend_generic()->open(0, &opt, &dev, &err), 0);
    for (int i = 0; i < (test_long() ? PRESETS : SHORT); i++) {
        note_preset(dev, &presets[i], true);
        if (test_long())
            note_preset(dev, &presets[i], false);
    }
    dev->ops->close(dev);
}

static void every_convolution_has_a_plan(void **state)
{
    (void)state;
    if (driver_is_there())
        SKIP("a driver is here, and plans for other GPUs would be compiled");
    note_presets();
    for (size_t i = 0; i < sizeof gpus / sizeof *gpus; i++)
        plan_all(gpus[i], &seen.keys);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_convolution_has_a_plan) };

    return cmocka_run_group_tests_name("cuda_plans_rcnn", tests, NULL, NULL);
}
