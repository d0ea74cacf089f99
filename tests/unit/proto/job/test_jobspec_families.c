/* SPDX-License-Identifier: Apache-2.0 */ /* Keys of the job file that only some networks have, and their defaults.
 * uses: proto */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/proto/job/job_file.h"

/* A program with networks of its own: they have the keys of every family, and defaults of their own. */
static void other_networks(void **state)
{
    static const struct job_family toy = { "toy", 1, 1 };
    static const struct job_preset rows[] = { { "toy_small", &toy, 96 }, { "toy_large", &toy, 128 } };
    const struct job_presets presets = { rows, 2, NULL };
    json_t *root = job("model.preset=toy_small;train.batch=2;model.load_until=null"), *full, *part;
    struct jobspec *s = NULL, *again = NULL;
    struct err err;

    (void)state;
    assert_int_equal(jobspec_parse(root, &s, &err), ERR_INPUT);
    assert_string_equal(
        err.msg,
        "model.preset: must be yolov3, yolov3_tiny, yolov3_spp, faster_rcnn_r18_fpn, faster_rcnn_r34_fpn, faster_rcnn_r50_fpn, "
        "faster_rcnn_r101_fpn, mask_rcnn_r18_fpn, mask_rcnn_r34_fpn, mask_rcnn_r50_fpn, mask_rcnn_r101_fpn, sparse_rcnn_r18_fpn, "
        "sparse_rcnn_r34_fpn, sparse_rcnn_r50_fpn, sparse_rcnn_r101_fpn, featdepth_r18, featdepth_r50, "
        "featdepth_baseline_r18, featdepth_baseline_r50, featdepth_autoencoder_r18, featdepth_autoencoder_r50, featdepth_joint_r18 "
        "or featdepth_joint_r50, is \"toy_small\"");
    assert_int_equal(jobspec_parse_for(&presets, root, false, &s, &err), 0);
    assert_ptr_equal(s->preset, &rows[0]);
    assert_ptr_equal(s->family, &toy);
    assert_int_equal(s->model_size.h, 96);
    assert_int_equal(s->train_shards, 2);
    full = jobspec_json(s);
    part = jobspec_deciding(s, NULL);
    assert_null(at(full, "model.box_gain"));
    assert_null(at(full, "val.conf"));
    assert_non_null(at(full, "model.sync_bn"));
    assert_null(at(part, "model.box_gain"));
    assert_non_null(at(part, "model.sync_bn"));
    assert_int_equal(jobspec_parse_for(&presets, full, true, &again, &err), 0);
    jobspec_free(again);
    assert_int_equal(jobspec_override(root, "model.box_gain=1", &err), 0);
    assert_int_equal(jobspec_parse_for(&presets, root, false, &again, &err), ERR_INPUT);
    assert_string_equal(err.msg, "model.box_gain: not a key of preset 'toy_small', only of models of the family yolo");
    assert_string_equal(err.field, "model.box_gain");
    assert_int_equal(jobspec_parse_for(&presets, root, true, &again, &err), 0); /* stored when it was a key of all */
    jobspec_free(again);
    json_decref(root);
    root = job("model.preset=null;model.cfg=x.cfg");
    assert_int_equal(jobspec_parse_for(&presets, root, false, &again, &err), ERR_INPUT);
    assert_string_equal(err.msg, "model.cfg: describes no network of this program");
    json_decref(root);
    root = job("model.preset=yolov3");
    assert_int_equal(jobspec_parse_for(&presets, root, false, &again, &err), ERR_INPUT);
    assert_string_equal(err.msg, "model.preset: must be toy_small or toy_large, is \"yolov3\"");
    json_decref(root);
    json_decref(full);
    json_decref(part);
    jobspec_free(s);
}

static void bad(const char *set, const char *field, const char *msg)
{
    json_t *root = job(set);
    struct jobspec *s = NULL;
    struct err err = { 0 };

    assert_int_equal(jobspec_parse(root, &s, &err), ERR_INPUT);
    assert_string_equal(err.field, field);
    assert_string_equal(err.msg, msg);
    json_decref(root);
}

#define RCNN  "model.preset=mask_rcnn_r50_fpn;"
#define BOXES "model.preset=faster_rcnn_r50_fpn;"

/* Missing values follow from the family, the flavor, and the presence of weights. Given values stay. */
static void defaults_of_a_family(void **state)
{
    struct jobspec *s = good(RCNN "train.batch=4");
    json_t *root;
    struct err err;

    (void)state;
    assert_true(s->train_lr == 0.005);
    assert_true(s->train_weight_decay == 0.0001 && s->val_conf == 0.05 && s->val_nms == 0.5);
    assert_string_equal(s->train_warmup, "linear");
    assert_true(s->train_warmup_factor == 0.001 && s->train_burn_in == 200);
    assert_int_equal(s->val_max_det, 100);
    assert_string_equal(s->model_backbone, "msra");
    assert_int_equal(s->train_shards, 1);
    assert_int_equal(s->model_rpn_post_nms, 1000);
    assert_int_equal(s->model_mask_rois, 128);
    assert_false(s->model_freeze_bn);
    assert_int_equal(s->model_freeze_at, 0);
    assert_int_equal(s->model_size.w, -1);
    jobspec_free(s);
    s = good(RCNN "model.init=/w;model.flavor=tv;train.lr=0.5;val.conf=0.25;train.steps=90000");
    assert_true(s->model_freeze_bn);
    assert_int_equal(s->train_shards, 8);
    assert_int_equal(s->model_freeze_at, 2);
    assert_string_equal(s->model_backbone, "torchvision");
    assert_int_equal(s->model_rpn_post_nms, 2000);
    assert_true(s->train_lr == 0.5 && s->val_conf == 0.25);
    assert_true(s->train_warmup_factor == 0.001 && s->train_burn_in == 1000 && s->val_max_det == 100);
    jobspec_free(s);
    s = good(RCNN "model.flavor=tv;train.steps=600"); /* the same in both flavors, because no job file knows the length of an epoch */
    assert_int_equal(s->train_burn_in, 30);
    jobspec_free(s);
    s = good(RCNN "model.init=/w;model.sync_bn=true");
    assert_false(s->model_freeze_bn);
    assert_int_equal(s->train_shards, 8); /* of one picture each */
    jobspec_free(s);
    s = good(RCNN "train.steps=5"); /* too short for the default warm-up */
    assert_int_equal(s->train_burn_in, 0);
    jobspec_free(s);
    s = good(RCNN "train.warmup=power;train.burn_in=0"); /* no warm-up, but the rate falls a step earlier */
    assert_string_equal(s->train_warmup, "power");
    jobspec_free(s);
    bad(RCNN "model.freeze_bn=true", "model.freeze_bn",
        "model.freeze_bn: needs model.init: without weights there are no statistics to normalise with");
    bad(RCNN "model.freeze_at=1", "model.freeze_at",
        "model.freeze_at: needs model.init: layers without pretrained weights cannot be frozen; is 1");
    bad(RCNN "model.size=416", "model.size", "model.size: not a key of preset 'mask_rcnn_r50_fpn'");
    bad(RCNN "model.fpn_channels=12", "model.fpn_channels", "model.fpn_channels: must be a multiple of 8, is 12");
    root = job(RCNN "model.fpn_channels=12"); /* stored before there was that rule */
    assert_int_equal(jobspec_parse_stored(root, &s, &err), 0);
    assert_int_equal(s->model_fpn_channels, 12);
    jobspec_free(s);
    json_decref(root);
    bad(RCNN "model.anchors=[8,16,32]", "model.anchors", "model.anchors: must be 5 numbers, of P2 to P6, are 3");
    bad(RCNN "model.anchors=[8,16,32,64,0]", "model.anchors", "model.anchors: must be 1 .. 8192 pixels; number 5 is 0");
}

static void falls_at(const char *set, int64_t first, int64_t second)
{
    struct jobspec *s = good(set), *again = NULL;
    json_t *full = jobspec_json(s);
    struct err err;

    assert_int_equal(s->train_lr_steps.n, 2);
    assert_int_equal(llround(s->train_lr_steps.v[0] * (double)s->train_steps), first);
    assert_int_equal(llround(s->train_lr_steps.v[1] * (double)s->train_steps), second);
    assert_int_equal(jobspec_parse_stored(full, &again, &err), 0);
    assert_memory_equal(&again->train_lr_steps, &s->train_lr_steps, sizeof s->train_lr_steps);
    json_decref(full);
    jobspec_free(again);
    jobspec_free(s);
}

#define SPARSE "model.preset=sparse_rcnn_r50_fpn;"

/* specs sparse_rcnn section 14 */
static void sparse_networks(void **state)
{
    struct jobspec *s = good(SPARSE "train.batch=8"), *again = NULL;
    json_t *full = jobspec_json(s);
    struct err err;

    (void)state;
    assert_true(s->train_lr == 1.25e-5 && s->train_weight_decay == 0.0001 && s->train_clip_norm == 1 && s->train_warmup_factor == 0.01);
    assert_string_equal(s->train_optimizer, "adamw");
    assert_string_equal(s->train_warmup, "linear");
    assert_string_equal(s->model_backbone, "torchvision");
    assert_true(s->model_min_size.n == 11 && s->model_min_size.v[0] == 480 && s->model_min_size.v[10] == 800);
    assert_true(s->model_bn_momentum == 0.1 && s->model_cls_gain == 2 && s->model_l1_gain == 5 && s->model_giou_gain == 2);
    assert_true(s->data_keep_empty && s->data_augment_crop == 0 && s->train_backbone_lr == 1);
    assert_true(s->val_conf == 0 && s->val_batch == 1 && s->val_max_det == 100 && s->train_shards == 2 && s->model_freeze_at == 0);
    assert_null(at(full, "model.flavor"));
    assert_null(at(full, "val.nms"));
    assert_int_equal(jobspec_parse_stored(full, &again, &err), 0);
    assert_true(again->model_delta_clamp == 8.740336742730447 && again->model_min_size.n == 11);
    jobspec_free(again);
    json_decref(full);
    jobspec_free(s);
    s = good(SPARSE "model.proposals=300;model.init=/w;model.backbone=null;model.min_size=null;val.max_det=null");
    assert_true(s->val_max_det == 300 && s->model_freeze_bn && s->model_freeze_at == 2 && s->model_min_size.n == 11);
    assert_string_equal(s->model_backbone, "torchvision"); /* null is as not given */
    jobspec_free(s);
    falls_at(SPARSE "train.steps=270000", 210000, 250000);
    bad(SPARSE "model.heads=7", "model.heads", "model.heads: must divide model.fpn_channels, is 7 of 256");
    bad(SPARSE "model.fpn_channels=1024;model.heads=2", "model.heads", "model.heads: a head has at most 256 channels, has 512");
    bad(SPARSE "model.dynamic_channels=12", "model.dynamic_channels", "model.dynamic_channels: must be a multiple of 8, is 12");
    bad(SPARSE "model.fpn_channels=12;model.heads=4", "model.fpn_channels", "model.fpn_channels: must be a multiple of 8, is 12");
    bad(SPARSE "model.cls_prior=1", "model.cls_prior", "model.cls_prior: must be at most 0.999999, is 1");
    bad(SPARSE "model.freeze_at=1", "model.freeze_at",
        "model.freeze_at: needs model.init: layers without pretrained weights cannot be frozen; is 1");
    bad(SPARSE "val.nms=0.5", "val.nms", "val.nms: not a key of preset 'sparse_rcnn_r50_fpn', only of models of the families yolo rcnn");
}

/* The number of detections needs the number of classes. Other families have no such limit. */
static void detections_of_proposals(void **state)
{
    struct jobspec *s = good(SPARSE "model.proposals=20;val.max_det=60");
    struct err err;

    (void)state;
    assert_int_equal(jobspec_check_detections(s, 3, &err), 0);
    assert_int_equal(jobspec_check_detections(s, 2, &err), ERR_INPUT);
    assert_string_equal(err.msg, "val.max_det: must be at most model.proposals * classes, is 60 of 40");
    jobspec_free(s);
    s = good(BOXES "val.max_det=300");
    assert_int_equal(jobspec_check_detections(s, 1, &err), 0);
    jobspec_free(s);
}

/* The default of the rate is for weights that are trained already. */
static void doubts(void **state)
{
    static const char *const quiet[] = { SPARSE "model.init=/w", SPARSE "train.lr=0.001", RCNN, "train.steps=9" };
    struct jobspec *s = good(SPARSE "train.batch=4");

    (void)state;
    assert_memory_equal(jobspec_doubt(s), "train.lr: the default", 21);
    jobspec_free(s);
    for (size_t i = 0; i < sizeof quiet / sizeof *quiet; i++) {
        s = good(quiet[i]);
        assert_null(jobspec_doubt(s));
        jobspec_free(s);
    }
}

#define DEPTH "model.preset=featdepth_baseline_r18;"

/* specs featdepth section 5.1 */
static void depth_networks(void **state)
{
    struct jobspec *s = good(DEPTH "train.batch=4");

    (void)state;
    assert_string_equal(s->train_optimizer, "adam");
    assert_true(s->train_lr == 1e-4 && s->train_weight_decay == 0 && s->train_clip_norm == 35 && s->model_bn_momentum == 0.1);
    assert_string_equal(s->train_warmup, "linear");
    assert_true(s->train_warmup_factor == 0.33333333 && s->train_lr_scale == 0.5);
    assert_true(s->model_size.w == 640 && s->model_size.h == 192 && s->model_pose_size.w == 640 && s->model_pose_size.h == 192);
    assert_int_equal(s->train_shards, 4);
    assert_int_equal(job_preset_depth(s->preset), JOB_DEPTH_BASELINE);
    jobspec_free(s);
    s = good(DEPTH
             "train.schedule=cosine;model.size=[320,96];model.pose_size=64"); /* defaults of other schedules are not the job's choice */
    assert_true(s->model_size.w == 320 && s->model_pose_size.w == 64 && s->model_pose_size.h == 64);
    jobspec_free(s);
    s = good("model.preset=featdepth_r50;model.init_extractor=/w");
    assert_int_equal(job_preset_depth(s->preset), JOB_DEPTH_FEATURES);
    jobspec_free(s);
    s = good("model.preset=featdepth_autoencoder_r18;model.size=96");
    assert_int_equal(job_preset_depth(s->preset), JOB_DEPTH_AUTOENCODER);
    jobspec_free(s);
    bad("model.preset=featdepth_r18", "model.init_extractor",
        "model.init_extractor: is required: features of random weights are of no use (a featdepth_autoencoder job trains them; "
        "featdepth_joint "
        "and featdepth_baseline work without)");
    bad("model.preset=featdepth_joint_r18;model.size=[320,64]", "model.size", "model.size: must be at least 96 each way, is [320, 64]");
    bad("model.preset=featdepth_baseline_r18;model.size=[64,32]", "model.size", "model.size: must be at least 64 each way, is [64, 32]");
    bad(DEPTH "model.pose_layers=20", "model.pose_layers", "model.pose_layers: must be 18, 34, 50 or 101, is 20");
    bad(DEPTH "model.min_depth=5;model.max_depth=5", "model.max_depth", "model.max_depth: must be above model.min_depth (5), is 5");
    bad(DEPTH "model.freeze_bn=true", "model.freeze_bn",
        "model.freeze_bn: needs model.init: without weights there are no statistics to normalise with");
    bad(DEPTH "model.perception=0.5", "model.perception", "model.perception: needs featdepth_r.. or featdepth_joint");
    bad("model.preset=featdepth_joint_r18;model.extractor_bn=batch", "model.extractor_bn", "model.extractor_bn: needs featdepth_r..");
}

/* Adds each of `keys`, a key with its value, to `job`: it must be refused, because it needs something else. */
static void all_bad(const char *job, const char *const *keys, size_t n, const char *needs)
{
    for (size_t i = 0; i < n; i++) {
        char set[256], key[64], why[192];

        snprintf(key, sizeof key, "%.*s", (int)strcspn(keys[i], "="), keys[i]);
        snprintf(set, sizeof set, "%s%s", job, keys[i]);
        snprintf(why, sizeof why, "%s: needs %s", key, needs);
        bad(set, key, why);
    }
}

/* A key that would change nothing is refused as a mistake. */
static void keys_that_do_nothing(void **state)
{
    static const char *const of_depth[] = { "model.decoder=upconv",      "model.pose_layers=50", "data.sources=1",
                                            "data.stereo=true",          "data.stride=2",        "data.missing_neighbour=repeat",
                                            "model.pose_size=64",        "model.min_depth=0.2",  "model.max_depth=50",
                                            "model.align_corners=false", "model.smoothness=1",   "model.automask=on",
                                            "model.disp_norm=off",       "model.init_depth=/w",  "model.init_pose=/w",
                                            "model.automask_noise=none" };
    static const char *const of_motion[] = { "model.pose_layers=50", "model.pose_size=64", "model.init_pose=/w", "data.stride=2" };

    (void)state;
    all_bad("model.preset=featdepth_autoencoder_r18;", of_depth, sizeof of_depth / sizeof *of_depth,
            "a depth network other than featdepth_autoencoder");
    all_bad(DEPTH "data.stereo=true;data.sources=0;", of_motion, sizeof of_motion / sizeof *of_motion,
            "frames in data.sources: data.stereo alone shows no motion");
}

#define SPLIT "data.train.format=kitti;data.val.format=kitti;data.val.annotations=/l;data.val.images=/k;"

/* If the job does not say how measured depth is compared, the data decides. */
static void scores_of_depth_networks(void **state)
{
    struct jobspec *s = good("model.preset=featdepth_baseline_r18;data.train.format=frames");

    (void)state;
    assert_string_equal(s->val_depth_crop, "none");
    assert_string_equal(s->val_depth_scale, "median");
    assert_true(s->val_depth_least == 1e-3 && s->val_depth_cap == 80 && isnan(s->val_depth_factor));
    jobspec_free(s);
    s = good("model.preset=featdepth_baseline_r18;" SPLIT "data.stereo=true");
    assert_string_equal(s->val_depth_crop, "garg");
    assert_string_equal(s->val_depth_scale, "factor");
    assert_true(s->val_depth_factor == 36);
    jobspec_free(s);
    s = good("model.preset=featdepth_baseline_r18;" SPLIT "data.stereo=true;val.depth_scale=median;val.depth_crop=eigen");
    assert_string_equal(s->val_depth_crop, "eigen");
    assert_true(isnan(s->val_depth_factor));
    jobspec_free(s);
    s = good("model.preset=featdepth_baseline_r18;data.train.format=frames;val.depth_factor=5.4");
    assert_string_equal(s->val_depth_scale, "factor");
    jobspec_free(s);
    bad("model.preset=featdepth_baseline_r18;" SPLIT "val.depth_scale=factor", "val.depth_factor",
        "val.depth_factor: is required with val.depth_scale factor: it is known only for kitti with data.stereo");
    bad("model.preset=featdepth_baseline_r18;" SPLIT "val.depth_scale=median;val.depth_factor=2", "val.depth_factor",
        "val.depth_factor: needs val.depth_scale factor");
    bad("model.preset=featdepth_baseline_r18;" SPLIT "val.depth_cap=2;val.depth_least=3", "val.depth_cap",
        "val.depth_cap: must be above val.depth_least (3), is 2");
    bad("model.preset=featdepth_baseline_r18;" SPLIT "val.depth_cap=3;val.depth_least=3", "val.depth_cap",
        "val.depth_cap: must be above val.depth_least (3), is 3");
    bad("model.preset=featdepth_autoencoder_r18;" SPLIT "val.depth_cap=50", "val.depth_cap",
        "val.depth_cap: needs a depth network other than featdepth_autoencoder");
}

/* Depth networks learn from frames, detectors from annotations. */
static void frames_of_depth_networks(void **state)
{
#define MONO "model.preset=featdepth_baseline_r18;"
    struct jobspec *s = good(MONO);

    (void)state;
    assert_string_equal(s->data_train_format, "frames");
    assert_true(s->data_sources.n == 2 && s->data_sources.v[0] == -1 && s->data_sources.v[1] == 1 && !s->data_stereo &&
                s->data_stride == 1);
    assert_string_equal(s->data_missing_neighbour, "drop");
    assert_true(s->data_augment_color_jitter.v[3] == 0.1 && s->data_augment_color_jitter_prob == 0.5);
    jobspec_free(s);
    jobspec_free(good(MONO "data.train.format=kitti;data.stereo=true;data.sources=0"));
    jobspec_free(good(MONO "data.sources=[-2, -1, 1]"));
    bad(MONO "data.train.format=coco", "data.train.format", "data.train.format: must be \"frames\" or \"kitti\", is \"coco\"");
    bad("data.train.format=frames", "data.train.format",
        "data.train.format: must be \"coco\", \"voc\", \"darknet\" or \"yolo\", is \"frames\"");
    bad(MONO "data.sources=0", "data.sources", "data.sources: is 0, which needs data.stereo");
    bad(MONO "data.sources=[0, 1]", "data.sources", "data.sources: 0, the target itself, must stand alone");
    bad(MONO "data.sources=[1, -1, 1]", "data.sources", "data.sources: 1 is there twice");
    bad(MONO "data.sources=[1, -1, 2, 3]", "data.sources", "data.sources: must be at most 3 frames, are 4");
    bad(MONO "data.sources=[1, -1, 2];data.stereo=true", "data.sources", "data.sources: must be at most 2 frames with data.stereo, are 3");
    bad(MONO "data.augment.color_jitter=[0.2, 0.2, 0.2, 0.6]", "data.augment.color_jitter",
        "data.augment.color_jitter: hue must be at least 0 and at most 0.5, is 0.6");
    bad(MONO "data.augment.multiscale=true", "data.augment.multiscale",
        "data.augment.multiscale: not a key of preset 'featdepth_baseline_r18', only of models of the family yolo");
#undef MONO
}

/* The default is that of the flavor's program. In a job with another schedule the default does not count as a
 * choice. */
static void steps_of_the_rate(void **state)
{
    struct jobspec *s = good(RCNN "train.schedule=cosine"), *again = NULL;
    json_t *full = jobspec_json(s);
    struct err err;

    (void)state;
    falls_at("train.steps=90000", 72000, 81000);
    falls_at(RCNN "train.steps=90000", 60000, 80000);
    falls_at(RCNN "train.steps=270000", 180000, 240000);
    falls_at(RCNN "model.flavor=tv;train.steps=26000", 16000, 22000);
    falls_at(RCNN "train.steps=90000;train.lr_steps=[0.8, 0.9]", 72000, 81000);
    assert_int_equal(jobspec_parse(full, &again, &err), 0); /* a copy of the job */
    jobspec_free(again);
    assert_int_equal(jobspec_override(full, "train.lr_steps=[0.8, 0.9]", &err), 0); /* of an older version */
    assert_int_equal(jobspec_parse_stored(full, &again, &err), 0);
    json_decref(full);
    jobspec_free(again);
    jobspec_free(s);
    bad(RCNN "train.schedule=cosine;train.lr_steps=[0.61538462, 0.84615385]", "train.lr_steps",
        "train.lr_steps: needs train.schedule steps"); /* the default of the other flavor */
    jobspec_free(good(RCNN "model.flavor=tv;train.schedule=cosine;train.lr_steps=[0.61538462, 0.84615385]"));
}

/* Keys for masks are refused for networks without masks. A copy of a job may still hold their defaults. */
static void keys_of_masks(void **state)
{
    static const char needs[] = "needs a network that finds masks, mask_rcnn_...";
    struct jobspec *s;
    char said[128];

    (void)state;
    s = good(RCNN);
    assert_int_equal(s->model_mask_pool, 14);
    jobspec_free(s);
    s = good(RCNN "model.mask_pool=32");
    assert_int_equal(s->model_mask_pool, 32);
    jobspec_free(s);
    jobspec_free(good(RCNN "model.mask_pool=4"));
    jobspec_free(good(BOXES "model.mask_pool=14"));
    bad(RCNN "model.mask_pool=3", "model.mask_pool", "model.mask_pool: must be at least 4, is 3");
    bad(RCNN "model.mask_pool=33", "model.mask_pool", "model.mask_pool: must be at most 32, is 33");
    snprintf(said, sizeof said, "model.mask_pool: %s", needs);
    bad(BOXES "model.mask_pool=28", "model.mask_pool", said);
    jobspec_free(good(RCNN "model.mask_channels=64;model.mask_rois=4"));
    jobspec_free(good(BOXES "model.mask_channels=256;model.mask_rois=128"));
    snprintf(said, sizeof said, "model.mask_channels: %s", needs);
    bad(BOXES "model.mask_channels=64", "model.mask_channels", said);
    snprintf(said, sizeof said, "model.mask_rois: %s", needs);
    bad(BOXES "model.mask_rois=4", "model.mask_rois", said);
}

/* Checkpoints older than the key have masks of 28 x 28, and fit a job with such masks. */
static void masks_of_older_jobs(void **state)
{
    struct jobspec *s = good(RCNN "model.mask_pool=28"), *older = good(RCNN), *again = NULL;
    json_t *part = jobspec_deciding(s, NULL), *full;
    struct err err;

    (void)state;
    assert_int_equal(json_integer_value(at(part, "model.mask_pool")), 28);
    json_decref(part);
    part = jobspec_deciding(older, NULL);
    assert_null(at(part, "model.mask_pool"));
    json_decref(part);
    full = jobspec_json(s);
    assert_int_equal(json_object_del(json_object_get(full, "model"), "mask_pool"), 0);
    assert_int_equal(jobspec_parse_stored(full, &again, &err), 0);
    assert_int_equal(again->model_mask_pool, 14);
    json_decref(full);
    jobspec_free(again);
    jobspec_free(older);
    jobspec_free(s);
}

/* A single number or several. Missing values follow from the flavor. */
static void sizes_of_pictures(void **state)
{
    struct jobspec *s = good(RCNN);
    json_t *part;

    (void)state;
    assert_true(s->model_min_size.n == 6 && s->model_min_size.v[0] == 640 && s->model_min_size.v[5] == 800);
    assert_true(s->model_max_size == 1333 && s->model_size_divisible == 32 && s->data_aspect_groups);
    part = jobspec_deciding(s, NULL);
    assert_int_equal(json_array_size(at(part, "model.min_size")), 6);
    assert_null(at(part, "data.augment.jitter"));
    assert_non_null(at(part, "data.augment.flip"));
    json_decref(part);
    jobspec_free(s);
    s = good(RCNN "model.flavor=tv");
    assert_true(s->model_min_size.n == 1 && s->model_min_size.v[0] == 800);
    part = jobspec_json(s);
    assert_int_equal(json_integer_value(at(part, "model.min_size")), 800);
    json_decref(part);
    jobspec_free(s);
    s = good(RCNN "model.min_size=[480, 640];model.max_size=640");
    assert_true(s->model_min_size.n == 2 && s->model_min_size.v[0] == 480 && s->model_min_size.v[1] == 640);
    jobspec_free(s);
    bad(RCNN "model.min_size=[]", "model.min_size", "model.min_size: must have 1 to 64 numbers, has 0");
    bad(RCNN "model.min_size=big", "model.min_size", "model.min_size: must be a whole number or a list of them, is \"big\"");
    bad(RCNN "model.min_size=[480, 2.5]", "model.min_size", "model.min_size: must be a whole number, is 2.5");
    bad(RCNN "model.min_size=[480, 0]", "model.min_size", "model.min_size: must be at least 1, is 0");
    bad(RCNN "model.min_size=800;model.max_size=640", "model.min_size", "model.min_size: must be at most model.max_size (640), one is 800");
    bad(RCNN "model.size_divisible=48", "model.size_divisible", "model.size_divisible: must be a multiple of 32, is 48");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_networks),           cmocka_unit_test(defaults_of_a_family),
        cmocka_unit_test(keys_that_do_nothing),     cmocka_unit_test(sparse_networks),
        cmocka_unit_test(detections_of_proposals),  cmocka_unit_test(doubts),
        cmocka_unit_test(depth_networks),           cmocka_unit_test(scores_of_depth_networks),
        cmocka_unit_test(steps_of_the_rate),        cmocka_unit_test(keys_of_masks),
        cmocka_unit_test(masks_of_older_jobs),      cmocka_unit_test(sizes_of_pictures),
        cmocka_unit_test(frames_of_depth_networks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
