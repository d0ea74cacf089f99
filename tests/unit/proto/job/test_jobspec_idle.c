/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/proto/job/test_jobspec_idle.c - uses: proto
 * No key is ignored in silence: a key without effect is refused, or its submitter gets a note. The test walks through
 * every key of the table. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "proto/job/jobspec_table.h"
#include "tests/unit/proto/job/job_file.h"

/* Keys without effect in some jobs: such a job, and a job in which the key has an effect. */
static const struct {
    const char *key, *idle, *works;
} sometimes[] = {
    { "model.width", "model.preset=null;model.cfg=/x.cfg;model.width=0.5", "model.width=0.5" },
    { "model.load_until", "model.load_until=3", "model.init=/w;model.load_until=3" },
    { "model.sync_bn", "model.sync_bn=true;train.shards=1", "model.sync_bn=true;train.shards=2" },
    { "model.freeze_bn", "model.preset=faster_rcnn_r50_fpn;model.freeze_bn=true",
      "model.preset=faster_rcnn_r50_fpn;model.init=/w;model.freeze_bn=true" },
    { "model.bn_momentum", "model.freeze_bn=true;model.bn_momentum=0.5", "model.bn_momentum=0.5" },
    { "model.freeze_at", "model.preset=faster_rcnn_r50_fpn;model.freeze_at=2",
      "model.preset=faster_rcnn_r50_fpn;model.init=/w;model.freeze_at=2" },
    { "model.mask_channels", "model.preset=faster_rcnn_r50_fpn;model.mask_channels=64",
      "model.preset=mask_rcnn_r50_fpn;model.mask_channels=64" },
    { "model.mask_rois", "model.preset=faster_rcnn_r50_fpn;model.mask_rois=7", "model.preset=mask_rcnn_r50_fpn;model.mask_rois=7" },
    { "model.mask_pool", "model.preset=faster_rcnn_r50_fpn;model.mask_pool=7", "model.preset=mask_rcnn_r50_fpn;model.mask_pool=7" },
    { "model.pose_layers", "model.preset=featdepth_autoencoder_r18;data.train.format=frames;model.pose_layers=50",
      "model.preset=featdepth_baseline_r18;data.train.format=frames;model.pose_layers=50" },
    { "model.decoder", "model.preset=featdepth_autoencoder_r18;data.train.format=frames;model.decoder=upconv",
      "model.preset=featdepth_baseline_r18;data.train.format=frames;model.decoder=upconv" },
    { "model.min_depth", "model.preset=featdepth_autoencoder_r18;data.train.format=frames;model.min_depth=1",
      "model.preset=featdepth_baseline_r18;data.train.format=frames;model.min_depth=1" },
    { "model.max_depth", "model.preset=featdepth_autoencoder_r18;data.train.format=frames;model.max_depth=50",
      "model.preset=featdepth_baseline_r18;data.train.format=frames;model.max_depth=50" },
    { "model.pose_size", "model.preset=featdepth_baseline_r18;data.train.format=frames;data.sources=0;data.stereo=true;model.pose_size=96",
      "model.preset=featdepth_baseline_r18;data.train.format=frames;model.pose_size=96" },
    { "model.perception", "model.preset=featdepth_baseline_r18;data.train.format=frames;model.perception=1",
      "model.preset=featdepth_joint_r18;data.train.format=frames;model.perception=1" },
    { "model.smoothness", "model.preset=featdepth_autoencoder_r18;data.train.format=frames;model.smoothness=1",
      "model.preset=featdepth_baseline_r18;data.train.format=frames;model.smoothness=1" },
    { "model.dis", "model.preset=featdepth_baseline_r18;data.train.format=frames;model.dis=1",
      "model.preset=featdepth_autoencoder_r18;data.train.format=frames;model.dis=1" },
    { "model.cvt", "model.preset=featdepth_baseline_r18;data.train.format=frames;model.cvt=1",
      "model.preset=featdepth_autoencoder_r18;data.train.format=frames;model.cvt=1" },
    { "model.automask", "model.preset=featdepth_autoencoder_r18;data.train.format=frames;model.automask=on",
      "model.preset=featdepth_baseline_r18;data.train.format=frames;model.automask=on" },
    { "model.automask_noise", "model.preset=featdepth_baseline_r18;data.train.format=frames;model.automask=off;model.automask_noise=none",
      "model.preset=featdepth_baseline_r18;data.train.format=frames;model.automask_noise=none" },
    { "model.disp_norm", "model.preset=featdepth_baseline_r18;data.train.format=frames;model.smoothness=0;model.disp_norm=on",
      "model.preset=featdepth_baseline_r18;data.train.format=frames;model.disp_norm=on" },
    { "model.align_corners", "model.preset=featdepth_autoencoder_r18;data.train.format=frames;model.align_corners=false",
      "model.preset=featdepth_baseline_r18;data.train.format=frames;model.align_corners=false" },
    { "model.extractor_bn", "model.preset=featdepth_baseline_r18;data.train.format=frames;model.extractor_bn=batch",
      "model.preset=featdepth_r18;data.train.format=frames;model.init_extractor=/w;model.extractor_bn=batch" },
    { "model.target_pyramid", "model.preset=featdepth_baseline_r18;data.train.format=frames;model.target_pyramid=progressive",
      "model.preset=featdepth_autoencoder_r18;data.train.format=frames;model.target_pyramid=progressive" },
    { "model.init_depth", "model.preset=featdepth_autoencoder_r18;data.train.format=frames;model.init_depth=/w",
      "model.preset=featdepth_baseline_r18;data.train.format=frames;model.init_depth=/w" },
    { "model.init_pose", "model.preset=featdepth_baseline_r18;data.train.format=frames;data.sources=0;data.stereo=true;model.init_pose=/w",
      "model.preset=featdepth_baseline_r18;data.train.format=frames;model.init_pose=/w" },
    { "model.init_extractor", "model.preset=featdepth_baseline_r18;data.train.format=frames;model.init_extractor=/w",
      "model.preset=featdepth_autoencoder_r18;data.train.format=frames;model.init_extractor=/w" },
    { "data.val.format", "data.val.format=voc", "data.val.annotations=/v;data.val.format=voc" },
    { "data.val.images", "data.val.images=/v", "data.val.annotations=/v;data.val.images=/v" },
    { "data.val.fraction", "data.val.annotations=/v;data.val.images=/v;data.val.fraction=0.1", "data.val.fraction=0.1" },
    { "data.names", "data.names=/n", "data.train.format=voc;data.names=/n" },
    { "data.voc_boxes", "data.voc_boxes=corners", "data.train.format=voc;data.voc_boxes=corners" },
    { "data.voc_difficult", "data.voc_difficult=object", "data.train.format=voc;data.voc_difficult=object" },
    { "data.sources", "model.preset=featdepth_autoencoder_r18;data.train.format=frames;data.sources=[-2]",
      "model.preset=featdepth_baseline_r18;data.train.format=frames;data.sources=[-2]" },
    { "data.stereo", "model.preset=featdepth_autoencoder_r18;data.train.format=frames;data.stereo=true",
      "model.preset=featdepth_baseline_r18;data.train.format=frames;data.stereo=true" },
    { "data.stride", "model.preset=featdepth_baseline_r18;data.train.format=frames;data.sources=0;data.stereo=true;data.stride=2",
      "model.preset=featdepth_baseline_r18;data.train.format=frames;data.stride=2" },
    { "data.missing_neighbour", "model.preset=featdepth_autoencoder_r18;data.train.format=frames;data.missing_neighbour=repeat",
      "model.preset=featdepth_baseline_r18;data.train.format=frames;data.missing_neighbour=repeat" },
    { "data.depth_pattern", "model.preset=featdepth_baseline_r18;data.train.format=frames;data.depth_pattern=d%d.png",
      "model.preset=featdepth_baseline_r18;data.train.format=frames;data.val.annotations=/v;data.val.images=/"
      "v;data.val.format=frames;data.depth_pattern=d%d.png" },
    { "data.depth_unit_m", "model.preset=featdepth_baseline_r18;data.train.format=frames;data.depth_unit_m=0.1",
      "model.preset=featdepth_baseline_r18;data.train.format=frames;data.val.annotations=/v;data.val.images=/"
      "v;data.val.format=frames;data.depth_unit_m=0.1" },
    { "data.augment.size_min", "data.augment.size_min=32", "data.augment.multiscale=true;data.augment.size_min=32" },
    { "data.augment.size_max", "data.augment.size_max=640", "data.augment.multiscale=true;data.augment.size_max=640" },
    { "data.augment.color_jitter",
      "model.preset=featdepth_baseline_r18;data.train.format=frames;data.augment.color_jitter_prob=0;data.augment.color_jitter=[1,1,1,0.5]",
      "model.preset=featdepth_baseline_r18;data.train.format=frames;data.augment.color_jitter=[1,1,1,0.5]" },
    { "data.augment.color_jitter_prob",
      "model.preset=featdepth_baseline_r18;data.train.format=frames;data.augment.color_jitter=[0,0,0,0];data.augment.color_jitter_prob=1",
      "model.preset=featdepth_baseline_r18;data.train.format=frames;data.augment.color_jitter_prob=1" },
    { "train.momentum", "train.optimizer=adam;train.momentum=0.5", "train.momentum=0.5" },
    { "train.nesterov", "train.optimizer=adam;train.nesterov=true", "train.nesterov=true" },
    { "train.beta1", "train.beta1=0.5", "train.optimizer=adam;train.beta1=0.5" },
    { "train.beta2", "train.beta2=0.5", "train.optimizer=adamw;train.beta2=0.5" },
    { "train.eps", "train.eps=0.5", "train.optimizer=adam;train.eps=0.5" },
    { "train.warmup", "train.schedule=cosine;train.burn_in=0;train.warmup=linear", "train.warmup=linear" },
    { "train.warmup_factor", "model.preset=faster_rcnn_r50_fpn;train.burn_in=0;train.warmup_factor=0.5",
      "model.preset=faster_rcnn_r50_fpn;train.warmup_factor=0.5" },
    { "train.burn_in_power", "train.warmup=linear;train.burn_in_power=2", "train.burn_in_power=2" },
    { "train.lr_end", "train.lr_end=0.5", "train.schedule=cosine;train.lr_end=0.5" },
    { "train.poly_power", "train.poly_power=0.5", "train.schedule=poly;train.poly_power=0.5" },
    { "train.lr_steps", "train.schedule=constant;train.lr_steps=[9]", "train.lr_steps=[9]" },
    { "train.lr_scale", "train.lr_steps=[];train.lr_scale=0.5", "train.lr_scale=0.5" },
    { "train.freeze", "train.freeze=0-3", "model.init=/w;train.freeze=0-3" },
    { "train.stop_after", "train.stop_after=3", "data.val.annotations=/v;data.val.images=/v;train.stop_after=3" },
    { "val.every", "val.every=3", "data.val.annotations=/v;data.val.images=/v;val.every=3" },
    { "val.depth_crop", "model.preset=featdepth_autoencoder_r18;data.train.format=frames;val.depth_crop=eigen",
      "model.preset=featdepth_baseline_r18;data.train.format=frames;val.depth_crop=eigen" },
    { "val.depth_least", "model.preset=featdepth_autoencoder_r18;data.train.format=frames;val.depth_least=1",
      "model.preset=featdepth_baseline_r18;data.train.format=frames;val.depth_least=1" },
    { "val.depth_cap", "model.preset=featdepth_autoencoder_r18;data.train.format=frames;val.depth_cap=50",
      "model.preset=featdepth_baseline_r18;data.train.format=frames;val.depth_cap=50" },
    { "val.depth_factor", "model.preset=featdepth_baseline_r18;data.train.format=frames;val.depth_scale=median;val.depth_factor=2",
      "model.preset=featdepth_baseline_r18;data.train.format=frames;val.depth_factor=2" },
    { "run.ranks_per_gpu", "run.device=cpu;run.ranks=2;run.ranks_per_gpu=2", "run.ranks=2;run.ranks_per_gpu=2" },
    { "run.isa", "run.device=cuda;run.isa=avx2", "run.isa=avx2" },
    { "run.after_ok", "run.after_ok=true", "run.after=3;run.after_ok=true" },
    { "run.on_corruption", "run.on_corruption=fail", "run.ranks=2;run.on_corruption=fail" },
    { "errand.from", "errand.from=1", "errand.evidence=/e;errand.from=1" },
    { "errand.to", "errand.to=1", "errand.evidence=/e;errand.to=1" },
    { "errand.step", "errand.step=1", "data.val.annotations=/v;data.val.images=/v;errand.run=/r;errand.step=1" },
    { "errand.job", "errand.job=1", "data.val.annotations=/v;data.val.images=/v;errand.run=/r;errand.step=1;errand.set=x;errand.job=1" },
    { "errand.set", "errand.set=x", "data.val.annotations=/v;data.val.images=/v;errand.run=/r;errand.step=1;errand.set=x" },
};

/* Keys that have an effect in every job of their families. */
static const char *const always[] = { "name",
                                      "model.preset",
                                      "model.cfg",
                                      "model.size",
                                      "model.init",
                                      "model.obj_prior",
                                      "model.anchor_sizes",
                                      "model.ignore_thresh",
                                      "model.assign_iou_thresh",
                                      "model.box_gain",
                                      "model.obj_gain",
                                      "model.noobj_gain",
                                      "model.cls_gain",
                                      "model.flavor",
                                      "model.backbone",
                                      "model.bn_eps",
                                      "model.fpn_channels",
                                      "model.head_channels",
                                      "model.anchors",
                                      "model.rpn_batch",
                                      "model.rpn_positive",
                                      "model.rpn_pre_nms",
                                      "model.rpn_pre_nms_val",
                                      "model.rpn_post_nms",
                                      "model.rpn_post_nms_val",
                                      "model.rpn_nms",
                                      "model.roi_batch",
                                      "model.roi_positive",
                                      "model.min_size",
                                      "model.max_size",
                                      "model.size_divisible",
                                      "model.proposals",
                                      "model.proposal_init",
                                      "model.stages",
                                      "model.heads",
                                      "model.dynamic_channels",
                                      "model.ffn_channels",
                                      "model.cls_layers",
                                      "model.reg_layers",
                                      "model.cls_prior",
                                      "model.delta_clamp",
                                      "model.delta_floor",
                                      "model.focal_alpha",
                                      "model.focal_gamma",
                                      "model.l1_gain",
                                      "model.giou_gain",
                                      "model.ssim_weight",
                                      "data.train.format",
                                      "data.train.annotations",
                                      "data.train.images",
                                      "data.val.annotations",
                                      "data.on_bad",
                                      "data.frame_pattern",
                                      "data.workers",
                                      "data.aspect_groups",
                                      "data.keep_empty",
                                      "data.augment.flip",
                                      "data.augment.crop",
                                      "data.augment.vflip",
                                      "data.augment.jitter",
                                      "data.augment.scale",
                                      "data.augment.hue",
                                      "data.augment.saturation",
                                      "data.augment.exposure",
                                      "data.augment.multiscale",
                                      "train.steps",
                                      "train.epochs",
                                      "train.batch",
                                      "train.shards",
                                      "train.waves",
                                      "train.seed",
                                      "train.optimizer",
                                      "train.lr",
                                      "train.backbone_lr",
                                      "train.weight_decay",
                                      "train.burn_in",
                                      "train.schedule",
                                      "train.clip_norm",
                                      "train.ema",
                                      "train.class_weights",
                                      "train.log_every",
                                      "val.batch",
                                      "val.conf",
                                      "val.nms",
                                      "val.max_det",
                                      "val.depth_scale",
                                      "checkpoint.every",
                                      "checkpoint.keep",
                                      "checkpoint.best",
                                      "program.command",
                                      "program.directory",
                                      "program.gpus",
                                      "program.steps",
                                      "program.silent_after",
                                      "program.on_pause",
                                      "program.stop_signal",
                                      "program.stop_grace",
                                      "program.umask",
                                      "program.limits",
                                      "program.terminal",
                                      "program.commit",
                                      "program.changes",
                                      "program.script",
                                      "run.device",
                                      "run.ranks",
                                      "run.threads",
                                      "run.deterministic",
                                      "run.precision",
                                      "run.restarts",
                                      "run.on_hang",
                                      "run.on_end",
                                      "run.after",
                                      "run.time_limit",
                                      "run.priority",
                                      "errand.stress",
                                      "run.env",
                                      "run.evidence",
                                      "errand.data_hash",
                                      "errand.evidence",
                                      "errand.run" };

/* Returns whether the key is refused or noted. */
static bool is_idle(const char *key, const char *set)
{
    struct jobspec_idle idle[JOB_MAX_IDLE];
    struct jobspec *s = NULL;
    struct err err = { 0 };
    json_t *root = job(set);
    bool ret = false;

    if (jobspec_parse(root, &s, &err) < 0) {
        ret = strstr(err.msg, key) != NULL;
        if (!ret)
            fail_msg("%s: %s", set, err.msg);
    } else {
        for (int i = 0, n = jobspec_idle(s, idle); i < n; i++)
            ret |= strcmp(idle[i].key, key) == 0;
    }
    jobspec_free(s);
    json_decref(root);
    return ret;
}

static void each_key_is_known(void **state)
{
    (void)state;
    for (size_t i = 0; i < JOB_KEY_COUNT; i++) {
        int found = 0;

        for (size_t k = 0; k < sizeof sometimes / sizeof *sometimes; k++)
            found += strcmp(sometimes[k].key, job_keys[i].path) == 0;
        for (size_t k = 0; k < sizeof always / sizeof *always; k++)
            found += strcmp(always[k], job_keys[i].path) == 0;
        if (found != 1)
            fail_msg("%s stands %d times in the lists of this test: can it be without an effect, and is that told?", job_keys[i].path,
                     found);
    }
}

static void keys_without_an_effect(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof sometimes / sizeof *sometimes; k++) {
        if (!is_idle(sometimes[k].key, sometimes[k].idle))
            fail_msg("%s is ignored in silence: %s", sometimes[k].key, sometimes[k].idle);
        if (is_idle(sometimes[k].key, sometimes[k].works))
            fail_msg("%s is told to have no effect: %s", sometimes[k].key, sometimes[k].works);
    }
}

static json_t *some_value(const struct job_key *k)
{
    const char *word = k->values;

    if (k->type == TYPE_ENUM)
        return json_stringn(word, strcspn(word, "|"));
    if (k->type == TYPE_ARGS)
        return json_pack("[s]", "/x");
    if (strcmp(k->def, "null") != 0 && strcmp(k->def, "-") != 0)
        return json_loads(k->def, JSON_DECODE_ANY, NULL);
    return k->type == TYPE_PATH || k->type == TYPE_STR ? json_string("/x") : k->type == TYPE_SIZE ? json_integer(64) : json_real(k->max);
}

/* A key of another family's model gives an error that names the key. */
static void keys_of_other_families(void **state)
{
    static const char *const models[] = { "model.preset=yolov3_tiny", "model.preset=mask_rcnn_r50_fpn", "model.preset=sparse_rcnn_r50_fpn",
                                          "model.preset=featdepth_baseline_r18;data.train.format=frames" };

    (void)state;
    for (size_t m = 0; m < sizeof models / sizeof *models; m++)
        for (size_t i = 0; i < JOB_KEY_COUNT; i++) {
            const struct job_key *k = &job_keys[i];
            json_t *root = job(models[m]), *at = root;
            struct jobspec *s = NULL;
            struct err err = { 0 };
            const char *name = k->path, *dot;

            if (i != JOB_KEY_model_cfg && !job_key_of(k, jobspec_preset(root)->family)) { /* beside a preset that key has no meaning */
                for (; (dot = strchr(name, '.')); name = dot + 1) {
                    char group[32];

                    snprintf(group, sizeof group, "%.*s", (int)(dot - name), name);
                    if (!json_object_get(at, group))
                        json_object_set_new(at, group, json_object());
                    at = json_object_get(at, group);
                }
                json_object_set_new(at, name, some_value(k));
                assert_int_equal(jobspec_parse(root, &s, &err), ERR_INPUT);
                /* program.command makes the job a program, so that the preset is wrong */
                assert_string_equal(err.field, i == JOB_KEY_program_command ? "model.preset" : k->path);
                if (!strstr(err.msg, "not a key of") && !strstr(err.msg, "needs program.command"))
                    fail_msg("%s", err.msg);
            }
            json_decref(root);
        }
}

/* Default values give no notes: a job's own keys, all of them, can be submitted again without a note. */
static void defaults_are_quiet(void **state)
{
    static const char *const sets[] = {
        "",
        "model.size=96",
        "model.init=/w",
        "model.preset=mask_rcnn_r50_fpn;model.init=/w",
        "model.preset=mask_rcnn_r50_fpn;model.init=/w;model.flavor=tv",
        "model.preset=sparse_rcnn_r50_fpn;model.init=/w",
        "model.preset=sparse_rcnn_r18_fpn;train.lr=0.001;train.schedule=cosine",
        "model.preset=featdepth_baseline_r18;data.train.format=frames",
        "model.preset=featdepth_autoencoder_r18;data.train.format=frames",
        "model.preset=featdepth_baseline_r18;data.train.format=kitti;data.stereo=true;data.val.format=kitti;"
        "data.val.annotations=/v;data.val.images=/v"
    };

    (void)state;
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        struct jobspec_idle idle[JOB_MAX_IDLE];
        struct jobspec *s = NULL, *again = NULL;
        struct err err = { 0 };
        json_t *root = job(sets[i]), *all;

        assert_int_equal(jobspec_parse(root, &s, &err), 0);
        all = jobspec_json(s);
        if (jobspec_parse(all, &again, &err) < 0)
            fail_msg("%s: %s", sets[i], err.msg);
        if (jobspec_idle(s, idle) || jobspec_idle(again, idle))
            fail_msg("%s: %s needs %s", sets[i], idle[0].key, idle[0].needs);
        jobspec_free(s);
        jobspec_free(again);
        json_decref(root);
        json_decref(all);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(each_key_is_known), cmocka_unit_test(keys_without_an_effect),
                                        cmocka_unit_test(keys_of_other_families), cmocka_unit_test(defaults_are_quiet) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
