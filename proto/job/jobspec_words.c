/* SPDX-License-Identifier: Apache-2.0 */ /* proto/job/jobspec_words.c - unknown keys: our names for other programs'
 * keys, and the most similar key. */
#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "proto/err.h"
#include "proto/job/jobspec_table.h"
#include "proto/near.h"

static const char no_augmentation[] = "no such augmentation is there: data.augment has flip, scale, jitter and colours",
                  one_node[] = "a job runs on one node", of_data[] = "the data set says how many classes there are, and their names",
                  command[] = "detctl resume ID is a command", folder[] = "detctl show ID names the folder of a job",
                  shared[] = "all jobs share this node; run.priority says which of them run first";

/* Keys and options of ultralytics, detectron2, MMDetection, Lightning, torchrun, Slurm and darknet, given by the last
 * parts of a path. */
const struct job_word job_words[] = {
    { "accelerator", "run.device", "" },
    { "account", NULL, shared },
    { "accumulate", "train.waves", "" },
    { "accumulate_grad_batches", "train.waves", "" },
    { "accumulation_steps", "train.waves", "" },
    { "amp", "run.precision", "With bf16 activations take half the memory" },
    { "amp.enabled", "run.precision", "With bf16 activations take half the memory" },
    { "anchor_generator.sizes", "model.anchors", "" },
    { "ann_file", "data.train.annotations", "" },
    { "array", NULL, "detctl clone ID KEY=VALUE queues a job once more, with other keys" },
    { "backbone_multiplier", "train.backbone_lr", "" },
    { "backbone_weights", "model.init", "" },
    { "base_lr", "train.lr", "" },
    { "batch_size", "train.batch", "" },
    { "box", "model.box_gain", "" },
    { "box_loss_gain", "model.box_gain", "" },
    { "check_val_every_n_epoch", "val.every", "It takes \"1 epochs\", too" },
    { "checkpoint.interval", "checkpoint.every", "" },
    { "checkpoint_config.interval", "checkpoint.every", "" },
    { "checkpoint_period", "checkpoint.every", "" },
    { "class_weight", "train.class_weights", "" },
    { "classes", NULL, of_data },
    { "clip_grad", "train.clip_norm", "" },
    { "clip_value", "train.clip_norm", "" },
    { "close_mosaic", NULL, no_augmentation },
    { "cls", "model.cls_gain", "" },
    { "cls_pw", "train.class_weights", "" },
    { "copy_paste", NULL, no_augmentation },
    { "cos_lr", "train.schedule", "cosine is one of its values" },
    { "cpus_per_task", "run.threads", "" },
    { "crop.enabled", "data.augment.crop", "It is a probability, as 0.5" },
    { "data_root", "data.train.images", "" },
    { "datasets.test", "data.val.annotations", "" },
    { "datasets.train", "data.train.annotations", "" },
    { "decay", "train.weight_decay", "" },
    { "degrees", NULL, no_augmentation },
    { "dependency", "run.after", "detctl submit --after ID:ok waits until job ID has completed" },
    { "detections_per_image", "val.max_det", "" },
    { "devices", "run.ranks", "" },
    { "dim_dynamic", "model.dynamic_channels", "" },
    { "dim_feedforward", "model.ffn_channels", "" },
    { "early_stopping", "train.stop_after", "" },
    { "ema_decay", "train.ema", "" },
    { "erasing", NULL, no_augmentation },
    { "eval_period", "val.every", "" },
    { "evaluation.interval", "val.every", "" },
    { "exp_name", "name", "" },
    { "feedforward_channels", "model.ffn_channels", "" },
    { "filter_empty_annotations", "data.keep_empty", "It says the opposite" },
    { "flip_prob", "data.augment.flip", "" },
    { "fliplr", "data.augment.flip", "" },
    { "flipud", "data.augment.vflip", "" },
    { "fp16", "run.precision", "With bf16 activations take half the memory" },
    { "frozen_stages", "model.freeze_at", "" },
    { "gamma", "train.lr_scale", "" },
    { "giou_weight", "model.giou_gain", "" },
    { "gpu", "run.ranks", "With run.device=cuda each rank has a GPU" },
    { "gpus_per_node", "run.ranks", "With run.device=cuda each rank has a GPU" },
    { "grad_clip", "train.clip_norm", "" },
    { "gradient_accumulation_steps", "train.waves", "" },
    { "gradient_clip_val", "train.clip_norm", "" },
    { "gres", "run.ranks", "With run.device=cuda each rank has a GPU" },
    { "hsv_h", "data.augment.hue", "" },
    { "hsv_s", "data.augment.saturation", "It is a factor, as 1.5" },
    { "hsv_v", "data.augment.exposure", "It is a factor, as 1.5" },
    { "image_size", "model.size", "It is model.min_size of R-CNN" },
    { "img_prefix", "data.train.images", "" },
    { "img_scale", "model.size", "It is model.min_size of R-CNN" },
    { "img_size", "model.size", "It is model.min_size of R-CNN" },
    { "imgsz", "model.size", "It is model.min_size of R-CNN" },
    { "ims_per_batch", "train.batch", "" },
    { "iou", "val.nms", "" },
    { "iou_threshold", "val.nms", "" },
    { "job_name", "name", "" },
    { "l1_weight", "model.l1_gain", "" },
    { "learning_rate", "train.lr", "" },
    { "load_from", "model.init", "" },
    { "log_config.interval", "train.log_every", "" },
    { "loss_cls.alpha", "model.focal_alpha", "" },
    { "loss_cls.gamma", "model.focal_gamma", "" },
    { "lr0", "train.lr", "" },
    { "lr_config.step", "train.lr_steps", "" },
    { "lrf", "train.lr_end", "" },
    { "mail_type", "run.on_end", "It is a shell command, as 'mail me@example.org'" },
    { "mask_on", "model.preset", "mask_rcnn_r50_fpn finds masks, faster_rcnn_r50_fpn boxes" },
    { "max_batches", "train.steps", "" },
    { "max_epochs", "train.epochs", "" },
    { "max_iter", "train.steps", "" },
    { "max_iters", "train.steps", "" },
    { "max_keep_ckpts", "checkpoint.keep", "" },
    { "max_norm", "train.clip_norm", "" },
    { "max_per_img", "val.max_det", "" },
    { "max_size_train", "model.max_size", "" },
    { "max_steps", "train.steps", "" },
    { "mem", NULL, "the node limits the memory of a job (detd-launch --memory); train.waves lowers the memory it needs" },
    { "milestones", "train.lr_steps", "" },
    { "min_size_test", "model.min_size", "Validation takes the last of its sizes" },
    { "min_size_train", "model.min_size", "" },
    { "mixup", NULL, no_augmentation },
    { "mosaic", NULL, no_augmentation },
    { "multi_scale", "data.augment.multiscale", "" },
    { "nc", NULL, of_data },
    { "nheads", "model.heads", "" },
    { "nice", "run.priority", "Higher runs first" },
    { "nms_thresh_test", "val.nms", "" },
    { "nnodes", NULL, one_node },
    { "nodes", NULL, one_node },
    { "norm_eval", "model.freeze_bn", "" },
    { "nproc_per_node", "run.ranks", "" },
    { "ntasks", "run.ranks", "" },
    { "ntasks_per_node", "run.ranks", "" },
    { "num_classes", NULL, of_data },
    { "num_cls", "model.cls_layers", "" },
    { "num_cls_fcs", "model.cls_layers", "" },
    { "num_epochs", "train.epochs", "" },
    { "num_gpus", "run.ranks", "With run.device=cuda each rank has a GPU" },
    { "num_machines", NULL, one_node },
    { "num_nodes", NULL, one_node },
    { "num_proposals", "model.proposals", "" },
    { "num_reg", "model.reg_layers", "" },
    { "num_reg_fcs", "model.reg_layers", "" },
    { "num_workers", "data.workers", "" },
    { "optim_wrapper.type", "train.optimizer", "" },
    { "output_dir", NULL, folder },
    { "partition", NULL, shared },
    { "patience", "train.stop_after", "" },
    { "perspective", NULL, no_augmentation },
    { "policy", "train.schedule", "" },
    { "post_nms_topk_test", "model.rpn_post_nms_val", "" },
    { "post_nms_topk_train", "model.rpn_post_nms", "" },
    { "pre_nms_topk_test", "model.rpn_pre_nms_val", "" },
    { "pre_nms_topk_train", "model.rpn_pre_nms", "" },
    { "pretrained", "model.init", "" },
    { "prior_prob", "model.cls_prior", "" },
    { "project", "name", "" },
    { "qos", NULL, shared },
    { "random_flip", "data.augment.flip", "" },
    { "requeue", "run.restarts", "" },
    { "resume", NULL, command },
    { "resume_from", "model.init", "detctl resume and extend go on from the checkpoints of a job" },
    { "roi_head.num_stages", "model.stages", "" },
    { "roi_heads.batch_size_per_image", "model.roi_batch", "" },
    { "rpn.batch_size_per_image", "model.rpn_batch", "" },
    { "samples_per_gpu", "train.batch", "It counts the images of all ranks" },
    { "save_best", "checkpoint.best", "" },
    { "save_period", "checkpoint.every", "" },
    { "score_thr", "val.conf", "" },
    { "score_thresh_test", "val.conf", "" },
    { "shear", NULL, no_augmentation },
    { "solver.steps", "train.lr_steps", "" },
    { "sparsercnn.alpha", "model.focal_alpha", "" },
    { "sparsercnn.class_weight", "model.cls_gain", "" },
    { "sparsercnn.gamma", "model.focal_gamma", "" },
    { "sparsercnn.hidden_dim", "model.fpn_channels", "" },
    { "sparsercnn.num_heads", "model.stages", "" },
    { "subdivisions", "train.waves", "" },
    { "time", "run.time_limit", "It counts seconds; detctl submit --time takes 12h" },
    { "total_epochs", "train.epochs", "" },
    { "translate", NULL, no_augmentation },
    { "use_amp", "run.precision", "With bf16 activations take half the memory" },
    { "val_interval", "val.every", "" },
    { "warmup_epochs", "train.burn_in", "It counts steps" },
    { "warmup_iters", "train.burn_in", "" },
    { "warmup_ratio", "train.warmup_factor", "" },
    { "weights", "model.init", "" },
    { "work_dir", NULL, folder },
    { "workers_per_gpu", "data.workers", "" },
    { "world_size", "run.ranks", "" },
    { NULL, NULL, NULL },
};

static const char *last_part(const char *path)
{
    const char *dot = strrchr(path, '.');

    return dot ? dot + 1 : path;
}

/* The key path that is most similar, or NULL. */
static const char *nearest(const char *path)
{
    const char *best = NULL;
    unsigned best_far = near_bound(path);

    for (size_t i = 0; i < JOB_KEY_COUNT; i++) {
        unsigned far = near_distance(path, job_keys[i].path);

        if (job_word_is_errand(job_keys[i].path))
            continue;
        if (far > 1 && strcasecmp(last_part(path), last_part(job_keys[i].path)) == 0)
            far = 1; /* the right name in the wrong place */
        if (far < best_far) {
            best = job_keys[i].path;
            best_far = far;
        }
    }
    return best;
}

/* Whether the last parts of `path` are `theirs`. Case does not count, and - counts as _, as in options of Slurm. */
static bool ends_with(const char *path, const char *theirs)
{
    size_t n = strlen(path), m = strlen(theirs), i = 0;

    if (n < m || (n > m && path[n - m - 1] != '.'))
        return false;
    while (i < m && tolower((unsigned char)(path[n - m + i] == '-' ? '_' : path[n - m + i])) == theirs[i])
        i++;
    return i == m;
}

/* The longest word at the end of path: "sparsercnn.gamma" before "gamma". NULL: there is no word. */
static const struct job_word *word_of(const char *path)
{
    const struct job_word *best = NULL;

    for (const struct job_word *w = job_words; w->theirs; w++)
        if (ends_with(path, w->theirs) && (!best || strlen(w->theirs) > strlen(best->theirs)))
            best = w;
    return best;
}

int job_key_unknown(struct err *err, const char *path)
{
    static const char all[] = "detctl submit --help-keys lists the keys";
    const struct job_word *w = word_of(path);
    const char *near = nearest(path);

    if (w && !w->ours)
        return job_error(err, path, "unknown key; %s; %s", w->said, all);
    if (w)
        return job_error(err, path, "unknown key; did you mean %s?%s%s", w->ours, *w->said ? " " : "", w->said);
    return near ? job_error(err, path, "unknown key; did you mean %s?", near) : job_error(err, path, "unknown key; %s", all);
}
