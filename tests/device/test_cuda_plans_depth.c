/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/test_cuda_plans_depth.c
 * uses: plans cpu proto worker/models worker/layers worker/data worker/eval worker/mask worker/comm worker/core
 * CuDNN plans every convolution that depth networks need, on GPUs that are described: by default of the kind that
 * trains all networks at once, at a small size. With TEST_LONG: all kinds, both depths and decoders, at the reference's
 * size, for 1, 2 and 4 pictures in all tiers. */
#include "proto/job/jobspec.h"
#include "tests/device/plan_notes.h"
#include "worker/models/depth/depth.h"

const struct device_ops *cpu_backend_generic(void);

static struct jobspec *spec_of(const char *preset, const char *decoder, struct canvas size)
{
    json_t *root = json_pack("{s:{s:s,s:[i,i]},s:{s:{s:s,s:s}},s:{s:i,s:i}}", "model", "preset", preset, "size", size.w, size.h, "data",
                             "train", "annotations", "a", "images", "i", "train", "steps", 1, "batch", 1);
    struct jobspec *spec = NULL;
    struct err err;

    assert_non_null(root);
    if (!strstr(preset, "autoencoder"))
        json_object_set_new(json_object_get(root, "model"), "decoder", json_string(decoder));
    if (!strstr(preset, "_joint") && !strstr(preset, "_baseline") && !strstr(preset, "_autoencoder"))
        json_object_set_new(json_object_get(root, "model"), "init_extractor", json_string("/weights"));
    if (jobspec_parse(root, &spec, &err) < 0)
        fail_msg("%s: %s", preset, err.msg);
    json_decref(root);
    return spec;
}

static void note_preset(struct device *dev, const char *preset, const char *decoder)
{
    struct canvas size = test_long() ? (struct canvas){ 320, 1024 } : (struct canvas){ 192, 320 };
    struct jobspec *spec = spec_of(preset, decoder, size);
    struct model *m;
    struct err err;

    if (depth_new(spec, 0, dev, &m, &err) < 0)
        fail_msg("%s", err.msg);
    for (int precision = PRECISION_FP32; precision <= PRECISION_BF16; precision++)
        for (int tier = TIER_OFF; tier <= TIER_WORLD; tier++)
            for (int n = 1; n <= 4; n *= 2)
                if (test_long() || (tier == TIER_RERUN && n == 2))
                    note_model(m, (enum precision)precision, (enum tier)tier, n, size);
    model_free(m);
    jobspec_free(spec);
}

static void note_presets(void)
{
    static const char *const presets[] = { "featdepth_joint_r18",    "featdepth_joint_r50",      "featdepth_r50",
                                           "featdepth_baseline_r18", "featdepth_baseline_r50",   "featdepth_autoencoder_r50",
                                           "featdepth_r18",          "featdepth_autoencoder_r18" };
    struct device_options opt = { 1, "generic", PRECISION_FP32 };
    struct device *dev;
    struct err err;

    assert_int_equal(cpu_backend_generic()->open(0, &opt, &dev, &err), 0);
    for (size_t i = 0; i < (test_long() ? sizeof presets / sizeof *presets : 1); i++) {
        note_preset(dev, presets[i], "crp");
        if (test_long())
            note_preset(dev, presets[i], "upconv");
    }
    dev->ops->close(dev);
}

static void every_convolution_has_a_plan(void **state)
{
    (void)state;
    if (driver_is_there())
        SKIP("a driver is here, and plans for other GPUs would be compiled");
    note_presets();
    assert_true(seen.asked > 2 * 3 * 20); /* three ResNet-18, in training and validation, and decoders */
    for (size_t i = 0; i < sizeof gpus / sizeof *gpus; i++)
        plan_all(gpus[i], &seen.keys);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_convolution_has_a_plan) };

    return cmocka_run_group_tests_name("cuda_plans_depth", tests, NULL, NULL);
}
