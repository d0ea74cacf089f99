/* SPDX-License-Identifier: Apache-2.0 */ /* proto/job/jobspec_idle.c - keys that have no effect in a job: it refuses
 * some, and the submitter gets a note about the others. */
#include <math.h>
#include <string.h>

#include "proto/err.h"
#include "proto/job/jobspec_table.h"

/* ---- refused ---- */

/* Refuses mask keys of a network that finds boxes alone. A key with its default value may come from a copy of a job
 * with masks. */
static int refuse_masks(const struct jobspec *s, struct err *err)
{
    static const char needs[] = "a network that finds masks, mask_rcnn_...";
    const bool masks = job_preset_masks(s->preset);
    const struct job_wanted keys[] = { { "model.mask_channels", s->model_mask_channels != 256, masks, needs },
                                       { "model.mask_rois", s->model_mask_rois != job_all_foreground(s), masks, needs },
                                       { "model.mask_pool", s->model_mask_pool != 14, masks, needs } };

    return strcmp(s->family->name, "rcnn") == 0 ? job_all_fit(keys, sizeof keys / sizeof *keys, err) : 0;
}

/* A GPU supports no other widths of the pyramid, and the job's device is not known here. Jobs on a CPU that are older
 * than this rule go on. */
static int refuse_channels(const struct jobspec *s, struct err *err)
{
    if (!job_key_of(&job_keys[JOB_KEY_model_fpn_channels], s->family) || s->model_fpn_channels % JOB_REGION_GRAIN == 0)
        return 0;
    return job_error(err, "model.fpn_channels", "must be a multiple of %d, is %lld", JOB_REGION_GRAIN, (long long)s->model_fpn_channels);
}

/* Refuses keys of terms and parts that this kind of depth network does not have. */
static int refuse_terms(const struct jobspec *s, struct err *err)
{
    static const char of_depth[] = "a depth network other than featdepth_autoencoder", of_features[] = "featdepth_r.. or featdepth_joint",
                      of_encoder[] = "featdepth_autoencoder or featdepth_joint", of_frozen[] = "featdepth_r..",
                      of_motion[] = "frames in data.sources: data.stereo alone shows no motion";
    const struct jobspec_size *pose = &s->model_pose_size;
    const enum job_depth kind = job_preset_depth(s->preset);
    const bool depth = kind != JOB_DEPTH_AUTOENCODER, frozen = kind == JOB_DEPTH_FEATURES, encoder = kind != JOB_DEPTH_BASELINE && !frozen;
    const bool motion = s->data_sources.v[0] != 0, sized = pose->w != s->model_size.w || pose->h != s->model_size.h;
    const struct job_wanted keys[] = {
        { "model.decoder", strcmp(s->model_decoder, "crp") != 0, depth, of_depth },
        { "model.pose_layers", s->model_pose_layers != 18, depth, of_depth },
        { "data.sources", !job_reads_as(&s->data_sources, job_keys[JOB_KEY_data_sources].def), depth, of_depth },
        { "data.stereo", s->data_stereo, depth, of_depth },
        { "data.stride", s->data_stride != 1, depth, of_depth },
        { "data.missing_neighbour", strcmp(s->data_missing_neighbour, "drop") != 0, depth, of_depth },
        { "model.pose_size", sized, depth, of_depth },
        { "model.min_depth", s->model_min_depth != 0.1, depth, of_depth },
        { "model.max_depth", s->model_max_depth != 100, depth, of_depth },
        { "model.align_corners", !s->model_align_corners, depth, of_depth },
        { "model.automask_noise", strcmp(s->model_automask_noise, "uniform") != 0, depth, of_depth },
        { "model.smoothness", s->model_smoothness != 1e-3, depth, of_depth },
        { "model.automask", strcmp(s->model_automask, "auto") != 0, depth, of_depth },
        { "model.disp_norm", strcmp(s->model_disp_norm, "auto") != 0, depth, of_depth },
        { "model.init_depth", s->model_init_depth, depth, of_depth },
        { "model.init_pose", s->model_init_pose, depth, of_depth },
        { "val.depth_least", s->val_depth_least != 1e-3, depth, of_depth },
        { "val.depth_cap", s->val_depth_cap != 80, depth, of_depth },
        { "val.depth_factor", !isnan(s->val_depth_factor), depth, of_depth },
        { "model.pose_layers", s->model_pose_layers != 18, motion, of_motion },
        { "model.pose_size", sized, motion, of_motion },
        { "model.init_pose", s->model_init_pose, motion, of_motion },
        { "data.stride", s->data_stride != 1, motion, of_motion },
        { "model.perception", s->model_perception != 1e-3, depth && kind != JOB_DEPTH_BASELINE, of_features },
        { "model.dis", s->model_dis != 1e-3, encoder, of_encoder },
        { "model.cvt", s->model_cvt != 1e-3, encoder, of_encoder },
        { "model.target_pyramid", strcmp(s->model_target_pyramid, "direct") != 0, encoder, of_encoder },
        { "model.init_extractor", s->model_init_extractor, kind != JOB_DEPTH_BASELINE, "a network with an extractor of features" },
        { "model.extractor_bn", strcmp(s->model_extractor_bn, "running") != 0, frozen, of_frozen },
    };

    return kind == JOB_DEPTH_NONE ? 0 : job_all_fit(keys, sizeof keys / sizeof *keys, err);
}

int jobspec_refuse_idle(const struct jobspec *s, struct err *err)
{
    static const char needs[] = "train.burn_in above 0 (its default is a twentieth of the steps)";
    static const char or_steps[] = "train.burn_in above 0 (its default is a twentieth of the steps), or train.schedule steps";
    const char *form = job_default_find(s->family, "train.warmup") ? "linear" : "power";
    const bool warms = s->train_burn_in != 0;
    const bool counts =
        warms || (strcmp(s->train_schedule, "steps") == 0 && s->train_lr_steps.n > 0); /* it also says at which step the rate falls */
    const struct job_wanted warmup[] = { { "train.warmup", strcmp(s->train_warmup, form) != 0, counts, or_steps },
                                         { "train.burn_in_power", s->train_burn_in_power != 4, warms, needs } };
    int rc;

    if (jobspec_is_program(s))
        return 0;
    if (s->train_steps >= 0 && s->train_burn_in > s->train_steps)
        return job_error(err, "train.burn_in", "must be at most train.steps (%lld), is %lld", (long long)s->train_steps,
                         (long long)s->train_burn_in);
    rc = job_all_fit(warmup, sizeof warmup / sizeof *warmup, err);
    if (rc >= 0)
        rc = refuse_channels(s, err);
    if (rc >= 0)
        rc = refuse_terms(s, err);
    return rc < 0 ? rc : refuse_masks(s, err);
}

/* ---- told to the submitter ---- */

static bool is(const char *word, const char *other)
{
    return word && strcmp(word, other) == 0;
}

static bool automasks(const struct jobspec *s)
{
    return is(s->model_automask, "on") || (is(s->model_automask, "auto") && !s->data_stereo);
}

static bool jitters(const struct jobspec *s)
{
    for (int i = 0; i < s->data_augment_color_jitter.n; i++)
        if (s->data_augment_color_jitter.v[i] > 0)
            return true;
    return false;
}

int jobspec_idle(const struct jobspec *s, struct jobspec_idle ret[JOB_MAX_IDLE])
{
    static const char multiscale[] = "data.augment.multiscale=true", gpu[] = "run.device cuda or auto";
    const int64_t side = s->model_size.w > s->model_size.h ? s->model_size.w : s->model_size.h;
    const bool cpu = is(s->run_device, "cpu"), cuda = is(s->run_device, "cuda"), several = s->run_ranks > 1,
               depth = job_preset_depth(s->preset) != JOB_DEPTH_AUTOENCODER;
    const struct jobspec_list *jitter = &s->data_augment_color_jitter;
    const char *format = is(s->family->name, "depth") ? "frames" : "coco";
    const struct job_wanted keys[] = {
        { "model.bn_momentum", s->model_bn_momentum != job_usual(s, JOB_KEY_model_bn_momentum), !s->model_freeze_bn,
          "model.freeze_bn=false" },
        { "model.sync_bn", s->model_sync_bn, s->train_shards > 1, "train.shards above 1" },
        { "model.automask_noise", !is(s->model_automask_noise, "uniform"), automasks(s), "model.automask=on" },
        { "model.disp_norm", !is(s->model_disp_norm, "auto"), s->model_smoothness > 0, "model.smoothness above 0" },
        { "data.val.format", !is(s->data_val_format, format), s->data_val_annotations, "data.val.annotations" },
        { "data.depth_pattern", s->data_depth_pattern, depth && s->data_val_annotations,
          "data.val, with a depth network other than featdepth_autoencoder" },
        { "data.depth_unit_m", !isnan(s->data_depth_unit_m), depth && s->data_val_annotations,
          "data.val, with a depth network other than featdepth_autoencoder" },
        { "data.augment.size_min", s->data_augment_size_min >= 0 && s->data_augment_size_min != job_default_size_min(side),
          s->data_augment_multiscale, multiscale },
        { "data.augment.size_max", s->data_augment_size_max >= 0 && s->data_augment_size_max != job_default_size_max(side),
          s->data_augment_multiscale, multiscale },
        { "data.augment.color_jitter", !job_reads_as(jitter, job_keys[JOB_KEY_data_augment_color_jitter].def),
          s->data_augment_color_jitter_prob > 0, "data.augment.color_jitter_prob above 0" },
        { "data.augment.color_jitter_prob", s->data_augment_color_jitter_prob != 0.5, jitters(s),
          "an amount above 0 in data.augment.color_jitter" },
        { "train.warmup_factor", s->train_warmup_factor != job_usual(s, JOB_KEY_train_warmup_factor), s->train_burn_in != 0,
          "train.burn_in above 0" },
        { "train.lr_scale", s->train_lr_scale != job_usual(s, JOB_KEY_train_lr_scale), s->train_lr_steps.n > 0, "train.lr_steps" },
        { "val.depth_crop", is(s->val_depth_crop, "garg") || is(s->val_depth_crop, "eigen"), depth,
          "a depth network other than featdepth_autoencoder" },
        { "run.ranks_per_gpu", s->run_ranks_per_gpu > 1, !cpu, gpu },
        { "run.ranks_per_gpu", s->run_ranks_per_gpu > 1, cpu || several, "run.ranks above 1" },
        { "run.isa", !is(s->run_isa, "auto"), !cuda, "run.device cpu or auto" },
        { "run.after_ok", s->run_after_ok, s->run_after > 0, "run.after" },
        { "run.on_corruption", !is(s->run_on_corruption, "restart"), several && is(s->run_evidence, "tensors"),
          "run.ranks above 1 and run.evidence=tensors" },
    };
    int n = 0;

    for (size_t i = 0; i < sizeof keys / sizeof *keys && n < JOB_MAX_IDLE && !jobspec_is_program(s); i++)
        if (keys[i].said && !keys[i].fits && job_key_of(job_key_find(keys[i].key, strlen(keys[i].key)), s->family))
            ret[n++] = (struct jobspec_idle){ keys[i].key, keys[i].needs };
    return n;
}

const char *jobspec_doubt(const struct jobspec *s)
{
    const struct job_default *lr = job_default_find(s->family, "train.lr");

    if (!is(s->family->name, "sparse") || s->model_init ||
        s->train_lr != job_usual(s, JOB_KEY_train_lr) * ((double)s->train_batch / lr->batch))
        return NULL;
    return "train.lr: the default, 2.5e-5 for 16 images, is for weights of model.init; without them training needs a larger rate, such as "
           "1e-3";
}
