#include "proto/job/presets.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <stddef.h>
#include <string.h>

#define X(name, images, own) static const struct job_family name##_family = { #name, images, own };
JOB_FAMILIES(X)
#undef X

#define X(name, family, size) { #name, &family##_family, size },
static const struct job_preset rows[] = { JOB_PRESETS(X) };
#undef X

const struct job_family job_program = { "program", 1, 1 };

const struct job_presets job_presets = { rows, sizeof rows / sizeof *rows, &yolo_family };

const struct job_preset *job_preset_find(const struct job_presets *presets, const char *name)
{
    for (int i = 0; i < presets->n; i++)
        if (strcmp(presets->row[i].name, name) == 0)
            return &presets->row[i];
    return NULL;
}

bool job_preset_masks(const struct job_preset *p)
{
    return p && strncmp(p->name, "mask_", 5) == 0;
}

enum job_depth job_preset_depth(const struct job_preset *p)
{
    static const struct {
        const char *prefix;
        enum job_depth kind;
    } kinds[] = { { "featdepth_baseline_", JOB_DEPTH_BASELINE },
                  { "featdepth_autoencoder_", JOB_DEPTH_AUTOENCODER },
                  { "featdepth_joint_", JOB_DEPTH_JOINT },
                  { "featdepth_", JOB_DEPTH_FEATURES } };

    for (size_t i = 0; p && i < sizeof kinds / sizeof *kinds; i++)
        if (strncmp(p->name, kinds[i].prefix, strlen(kinds[i].prefix)) == 0)
            return kinds[i].kind;
    return JOB_DEPTH_NONE;
}

/* specs rcnn section 7. Batch statistics from other weights work only frozen, and small shards make poor ones. The rate
 * falls as in both programs: after 60000 and 80000 of 90000 steps, or after 16 and 22 of 26 epochs. */
const struct job_default job_defaults[] = {
    { "rcnn", "model.freeze_bn", "false", "true", NULL, 0 },
    { "rcnn", "model.freeze_at", "0", "2", NULL, 0 },
    { "rcnn", "model.bn_momentum", "0.1", NULL, NULL, 0 },
    { "rcnn", "train.lr", "0.02", NULL, NULL, 16 },
    { "rcnn", "train.weight_decay", "0.0001", NULL, NULL, 0 },
    { "rcnn", "train.warmup", "\"linear\"", NULL, NULL, 0 },
    { "rcnn", "train.lr_steps", "[0.66666667, 0.88888889]", NULL, "[0.61538462, 0.84615385]", 0 },
    { "rcnn", "val.batch", "1", NULL, NULL, 0 },
    { "rcnn", "val.conf", "0.05", NULL, NULL, 0 },
    { "rcnn", "val.nms", "0.5", NULL, NULL, 0 },
    /* specs sparse_rcnn section 14; the rate falls after 210000 and 250000 of 270000 steps */
    { "sparse", "model.backbone", "\"torchvision\"", NULL, NULL, 0 },
    { "sparse", "model.freeze_bn", "false", "true", NULL, 0 },
    { "sparse", "model.freeze_at", "0", "2", NULL, 0 },
    { "sparse", "model.bn_momentum", "0.1", NULL, NULL, 0 },
    { "sparse", "model.cls_gain", "2", NULL, NULL, 0 },
    { "sparse", "model.min_size", "[480, 512, 544, 576, 608, 640, 672, 704, 736, 768, 800]", NULL, NULL, 0 },
    { "sparse", "data.keep_empty", "true", NULL, NULL, 0 },
    { "sparse", "train.optimizer", "\"adamw\"", NULL, NULL, 0 },
    { "sparse", "train.lr", "2.5e-5", NULL, NULL, 16 },
    { "sparse", "train.weight_decay", "0.0001", NULL, NULL, 0 },
    { "sparse", "train.warmup", "\"linear\"", NULL, NULL, 0 },
    { "sparse", "train.warmup_factor", "0.01", NULL, NULL, 0 },
    { "sparse", "train.lr_steps", "[0.77777778, 0.92592593]", NULL, NULL, 0 },
    { "sparse", "train.clip_norm", "1", NULL, NULL, 0 },
    { "sparse", "val.batch", "1", NULL, NULL, 0 },
    { "sparse", "val.conf", "0", NULL, NULL, 0 },
    /* specs featdepth section 5.1; the rate halves after 20 and 30 of 40 epochs */
    { "depth", "data.train.format", "\"frames\"", NULL, NULL, 0 },
    { "depth", "data.val.format", "\"frames\"", NULL, NULL, 0 },
    { "depth", "model.bn_momentum", "0.1", NULL, NULL, 0 },
    { "depth", "train.optimizer", "\"adam\"", NULL, NULL, 0 },
    { "depth", "train.lr", "0.0001", NULL, NULL, 0 },
    { "depth", "train.weight_decay", "0", NULL, NULL, 0 },
    { "depth", "train.clip_norm", "35", NULL, NULL, 0 },
    { "depth", "train.warmup", "\"linear\"", NULL, NULL, 0 },
    { "depth", "train.warmup_factor", "0.33333333", NULL, NULL, 0 },
    { "depth", "train.lr_steps", "[0.5, 0.75]", NULL, NULL, 0 },
    { "depth", "train.lr_scale", "0.5", NULL, NULL, 0 },
    { "depth", "val.batch", "4", NULL, NULL, 0 },
    { NULL, NULL, NULL, NULL, NULL, 0 },
};

const struct job_default *job_default_find(const struct job_family *family, const char *key)
{
    for (const struct job_default *d = job_defaults; family && d->family; d++)
        if (strcmp(d->family, family->name) == 0 && strcmp(d->key, key) == 0)
            return d;
    return NULL;
}
