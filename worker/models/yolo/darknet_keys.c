#include "worker/models/yolo/darknet_keys.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <stdlib.h>
#include <string.h>

#include "proto/near.h"
#include "worker/models/yolo/cfg_text.h"

enum rule {
    READ,    /* read by darknet_cfg.c */
    NEUTRAL, /* only this value is supported; "": no value */
    JOB,     /* about training: ignored, since the job file has its own keys */
    IDLE,    /* ignored: memory, printing, tracking in videos */
};

static const char loss_is_mse[] = "boxes are trained with squared differences of their coordinates";
static const char box_gain[] = "the job's key model.box_gain scales this loss";
static const char cls_gain[] = "the job's key model.cls_gain scales this loss";
static const char obj_gain[] = "the job's keys model.obj_gain and model.noobj_gain scale this loss";
static const char weights_order[] = "all weights are read and written";
static const char own_freeze[] = "the job's key train.freeze names the layers that do not train";

/* section "" means every layer. */
static const struct {
    const char *section, *name;
    enum rule rule;
    const char *neutral, *hint; /* hint: NULL if there is nothing to add */
} keys[] = {
    { "net", "width", READ, NULL, NULL },
    { "net", "height", READ, NULL, NULL },
    { "net", "channels", READ, NULL, NULL },
    { "net", "batch", JOB, NULL, NULL },
    { "net", "subdivisions", JOB, NULL, NULL },
    { "net", "max_batches", JOB, NULL, NULL },
    { "net", "learning_rate", JOB, NULL, NULL },
    { "net", "learning_rate_min", JOB, NULL, NULL },
    { "net", "momentum", JOB, NULL, NULL },
    { "net", "decay", JOB, NULL, NULL },
    { "net", "burn_in", JOB, NULL, NULL },
    { "net", "power", JOB, NULL, NULL },
    { "net", "policy", JOB, NULL, NULL },
    { "net", "step", JOB, NULL, NULL },
    { "net", "scale", JOB, NULL, NULL },
    { "net", "steps", JOB, NULL, NULL },
    { "net", "scales", JOB, NULL, NULL },
    { "net", "seq_scales", JOB, NULL, NULL },
    { "net", "gamma", JOB, NULL, NULL },
    { "net", "sgdr_cycle", JOB, NULL, NULL },
    { "net", "sgdr_mult", JOB, NULL, NULL },
    { "net", "adam", JOB, NULL, NULL },
    { "net", "B1", JOB, NULL, NULL },
    { "net", "B2", JOB, NULL, NULL },
    { "net", "eps", JOB, NULL, NULL },
    { "net", "optimizer", JOB, NULL, NULL },
    { "net", "ema_alpha", JOB, NULL, NULL },
    { "net", "angle", JOB, NULL, NULL },
    { "net", "aspect", JOB, NULL, NULL },
    { "net", "saturation", JOB, NULL, NULL },
    { "net", "exposure", JOB, NULL, NULL },
    { "net", "hue", JOB, NULL, NULL },
    { "net", "flip", JOB, NULL, NULL },
    { "net", "blur", JOB, NULL, NULL },
    { "net", "gaussian_noise", JOB, NULL, NULL },
    { "net", "mixup", JOB, NULL, NULL },
    { "net", "cutmix", JOB, NULL, NULL },
    { "net", "mosaic", JOB, NULL, NULL },
    { "net", "mosaic_bound", JOB, NULL, NULL },
    { "net", "max_crop", JOB, NULL, NULL },
    { "net", "min_crop", JOB, NULL, NULL },
    { "net", "center", JOB, NULL, NULL },
    { "net", "random", JOB, NULL, NULL },
    { "net", "resize_step", JOB, NULL, NULL },
    { "net", "dynamic_minibatch", JOB, NULL, NULL },
    { "net", "sequential_subdivisions", JOB, NULL, NULL },
    { "net", "augment_speed", JOB, NULL, NULL },
    { "net", "loss_scale", JOB, NULL, NULL },
    { "net", "try_fix_nan", JOB, NULL, NULL },
    { "net", "letter_box", NEUTRAL, "1", "pictures keep their shape, with grey bars" },
    { "net", "inputs", NEUTRAL, "", "width, height and channels say it" },
    { "net", "time_steps", NEUTRAL, "1", NULL },
    { "net", "track", NEUTRAL, "0", NULL },
    { "net", "contrastive", NEUTRAL, "0", NULL },
    { "net", "contrastive_jit_flip", NEUTRAL, "0", NULL },
    { "net", "contrastive_color", NEUTRAL, "0", NULL },
    { "net", "unsupervised", NEUTRAL, "0", NULL },
    { "net", "adversarial_lr", NEUTRAL, "0", NULL },
    { "net", "attention", NEUTRAL, "0", NULL },
    { "net", "label_smooth_eps", NEUTRAL, "0", NULL },
    { "net", "weights_reject_freq", NEUTRAL, "0", NULL },
    { "net", "equidistant_point", NEUTRAL, "0", NULL },
    { "net", "badlabels_rejection_percentage", NEUTRAL, "0", NULL },
    { "net", "num_sigmas_reject_badlabels", NEUTRAL, "0", NULL },
    { "net", "notruth", NEUTRAL, "0", NULL },
    { "net", "max_chart_loss", IDLE, NULL, NULL },
    { "net", "show_receptive_field", IDLE, NULL, NULL },
    { "net", "use_cuda_graph", IDLE, NULL, NULL },
    { "net", "optimized_memory", IDLE, NULL, NULL },
    { "net", "workspace_size_limit_MB", IDLE, NULL, NULL },

    { "", "learning_rate", READ, NULL, NULL },
    { "", "stopbackward", READ, NULL, NULL },
    { "", "onlyforward", NEUTRAL, "0", own_freeze },
    { "", "dont_update", NEUTRAL, "0", own_freeze },
    { "", "burnin_update", NEUTRAL, "0", own_freeze },
    { "", "train_only_bn", NEUTRAL, "0", own_freeze },
    { "", "dontload", NEUTRAL, "0", weights_order },
    { "", "dontloadscales", NEUTRAL, "0", weights_order },
    { "", "dontsave", NEUTRAL, "0", weights_order },
    { "", "numload", NEUTRAL, "0", weights_order },
    { "", "clip", NEUTRAL, "0", "the job's key train.clip_norm bounds the gradient" },
    { "", "truth", NEUTRAL, "0", NULL },
    { "", "smooth", NEUTRAL, "0", NULL },
    { "", "keep_delta_gpu", IDLE, NULL, NULL },

    { "convolutional", "filters", READ, NULL, NULL },
    { "convolutional", "size", READ, NULL, NULL },
    { "convolutional", "stride", READ, NULL, NULL },
    { "convolutional", "stride_x", READ, NULL, NULL },
    { "convolutional", "stride_y", READ, NULL, NULL },
    { "convolutional", "pad", READ, NULL, NULL },
    { "convolutional", "padding", READ, NULL, NULL },
    { "convolutional", "batch_normalize", READ, NULL, NULL },
    { "convolutional", "activation", READ, NULL, NULL },
    { "convolutional", "groups", NEUTRAL, "1", NULL },
    { "convolutional", "dilation", NEUTRAL, "1", NULL },
    { "convolutional", "antialiasing", NEUTRAL, "0", NULL },
    { "convolutional", "share_index", NEUTRAL, "", NULL },
    { "convolutional", "cbn", NEUTRAL, "0", NULL },
    { "convolutional", "binary", NEUTRAL, "0", NULL },
    { "convolutional", "xnor", NEUTRAL, "0", NULL },
    { "convolutional", "bin_output", NEUTRAL, "0", NULL },
    { "convolutional", "sway", NEUTRAL, "0", NULL },
    { "convolutional", "rotate", NEUTRAL, "0", NULL },
    { "convolutional", "stretch", NEUTRAL, "0", NULL },
    { "convolutional", "stretch_sway", NEUTRAL, "0", NULL },
    { "convolutional", "angle", NEUTRAL, "15", NULL },
    { "convolutional", "flipped", NEUTRAL, "0", NULL },
    { "convolutional", "dot", NEUTRAL, "0", NULL },
    { "convolutional", "grad_centr", NEUTRAL, "0", NULL },
    { "convolutional", "reverse", NEUTRAL, "0", NULL },
    { "convolutional", "coordconv", NEUTRAL, "0", NULL },
    { "convolutional", "assisted_excitation", NEUTRAL, "0", NULL },
    { "convolutional", "stream", IDLE, NULL, NULL },
    { "convolutional", "wait_stream", IDLE, NULL, NULL },

    { "shortcut", "from", READ, NULL, NULL },
    { "shortcut", "activation", READ, NULL, NULL },
    { "shortcut", "weights_type", NEUTRAL, "none", NULL },
    { "shortcut", "weights_normalization", NEUTRAL, "none", NULL },
    { "shortcut", "alpha", NEUTRAL, "1", NULL },
    { "shortcut", "beta", NEUTRAL, "1", NULL },

    { "route", "layers", READ, NULL, NULL },
    { "route", "groups", NEUTRAL, "1", NULL },
    { "route", "group_id", NEUTRAL, "0", NULL },
    { "route", "stream", IDLE, NULL, NULL },
    { "route", "wait_stream", IDLE, NULL, NULL },

    { "upsample", "stride", READ, NULL, NULL },
    { "upsample", "scale", NEUTRAL, "1", NULL },

    { "maxpool", "size", READ, NULL, NULL },
    { "maxpool", "stride", READ, NULL, NULL },
    { "maxpool", "stride_x", READ, NULL, NULL },
    { "maxpool", "stride_y", READ, NULL, NULL },
    { "maxpool", "padding", READ, NULL, NULL },
    { "maxpool", "maxpool_depth", NEUTRAL, "0", NULL },
    { "maxpool", "out_channels", NEUTRAL, "1", NULL },
    { "maxpool", "antialiasing", NEUTRAL, "0", NULL },
    { "maxpool", "maxpool_zero_nonmax", NEUTRAL, "0", NULL },

    { "yolo", "mask", READ, NULL, NULL },
    { "yolo", "anchors", READ, NULL, NULL },
    { "yolo", "num", READ, NULL, NULL },
    { "yolo", "classes", READ, NULL, NULL },
    { "yolo", "ignore_thresh", READ, NULL, NULL },
    { "yolo", "truth_thresh", READ, NULL, NULL },
    { "yolo", "iou_thresh", READ, NULL, NULL },
    { "yolo", "scale_x_y", READ, NULL, NULL },
    { "yolo", "new_coords", READ, NULL, NULL },
    { "yolo", "jitter", JOB, NULL, NULL },
    { "yolo", "random", JOB, NULL, NULL },
    { "yolo", "resize", JOB, NULL, NULL },
    { "yolo", "max", IDLE, NULL, NULL }, /* all boxes of a picture count */
    { "yolo", "iou_loss", NEUTRAL, "mse", loss_is_mse },
    { "yolo", "iou_thresh_kind", NEUTRAL, "iou", NULL },
    { "yolo", "iou_normalizer", NEUTRAL, "1", box_gain },
    { "yolo", "obj_normalizer", NEUTRAL, "1", obj_gain },
    { "yolo", "cls_normalizer", NEUTRAL, "1", cls_gain },
    { "yolo", "delta_normalizer", NEUTRAL, "1", NULL },
    { "yolo", "label_smooth_eps", NEUTRAL, "0", NULL },
    { "yolo", "objectness_smooth", NEUTRAL, "0", NULL },
    { "yolo", "focal_loss", NEUTRAL, "0", NULL },
    { "yolo", "counters_per_class", NEUTRAL, "", "the job's key train.class_weights weighs classes" },
    { "yolo", "map", NEUTRAL, "", NULL },
    { "yolo", "embedding_layer", NEUTRAL, "", NULL },
    { "yolo", "nms_kind", NEUTRAL, "default", "boxes are suppressed by their IoU" },
    { "yolo", "max_delta", IDLE, NULL, NULL }, /* for the losses that iou_loss would select, like the next three */
    { "yolo", "beta_nms", IDLE, NULL, NULL },
    { "yolo", "beta1", IDLE, NULL, NULL },
    { "yolo", "uc_normalizer", IDLE, NULL, NULL },
    { "yolo", "show_details", IDLE, NULL, NULL },
    { "yolo", "track_history_size", IDLE, NULL, NULL },
    { "yolo", "sim_thresh", IDLE, NULL, NULL },
    { "yolo", "dets_for_track", IDLE, NULL, NULL },
    { "yolo", "dets_for_show", IDLE, NULL, NULL },
    { "yolo", "track_ciou_norm", IDLE, NULL, NULL },
};
enum { NKEYS = sizeof keys / sizeof *keys };
_Static_assert(sizeof keys / sizeof *keys <= DARKNET_MAX_KEYS, "a row for each key");

static bool is_of(int row, const char *kind)
{
    return strcmp(keys[row].section, kind) == 0 || (keys[row].section[0] == '\0' && strcmp(kind, "net") != 0);
}

static int find(const char *kind, const char *name)
{
    for (int i = 0; i < NKEYS; i++)
        if (is_of(i, kind) && strcmp(keys[i].name, name) == 0)
            return i;
    return -1;
}

static const char *meant(const char *kind, const char *name)
{
    const char *best = NULL;
    unsigned best_far = near_bound(name);

    for (int i = 0; i < NKEYS; i++) {
        unsigned far = is_of(i, kind) ? near_distance(name, keys[i].name) : best_far;

        if (far < best_far) {
            best = keys[i].name;
            best_far = far;
        }
    }
    return best;
}

/* True for the same word, or the same number in another spelling. */
static bool is_same(const char *value, const char *neutral)
{
    char *end, *neutral_end;
    double v = strtod(value, &end), n = strtod(neutral, &neutral_end);

    if (strcmp(value, neutral) == 0)
        return true;
    return end != value && *end == '\0' && neutral_end != neutral && *neutral_end == '\0' && v == n;
}

static void check_neutral(struct cfg_text *p, const struct cfg_entry *e, int row)
{
    const char *neutral = keys[row].neutral, *hint = keys[row].hint;

    if (*neutral == '\0')
        cfg_fail(p, e->line, "%s is not supported%s%s", e->key, hint ? ": " : "", hint ? hint : "");
    else if (!is_same(e->value, neutral))
        cfg_fail(p, e->line, "%s=%.40s is not supported, only %s%s%s", e->key, e->value, neutral, hint ? ": " : "", hint ? hint : "");
}

static void refuse_unknown(struct cfg_text *p, const struct cfg_entry *e, const char *kind)
{
    const char *near = meant(kind, e->key);

    cfg_fail(p, e->line, "unknown key '%.40s' in [%s]%s%s", e->key, kind, near ? "; did you mean " : "; remove the line", near ? near : "");
}

void darknet_keys_check(struct cfg_text *p, const struct cfg_section *s, const char *kind, struct darknet_ignored *ignored)
{
    for (int i = s->from; i < s->to; i++) {
        const struct cfg_entry *e = &p->entries[i];
        int row = find(kind, e->key);

        if (row < 0)
            refuse_unknown(p, e, kind);
        else if (keys[row].rule == NEUTRAL)
            check_neutral(p, e, row);
        else
            ignored->row[row] |= keys[row].rule != READ;
    }
}

/* "batch, subdivisions": the ignored keys with that rule, each once. */
static void list(const struct darknet_ignored *ignored, enum rule rule, char *text, size_t size)
{
    size_t at = 0;

    *text = '\0';
    for (int i = 0; i < NKEYS; i++) {
        bool again = false;

        for (int k = 0; k < i; k++)
            again |= ignored->row[k] && strcmp(keys[k].name, keys[i].name) == 0;
        if (ignored->row[i] && keys[i].rule == rule && !again && at < size)
            at += (size_t)snprintf(text + at, size - at, "%s%s", at > 0 ? ", " : "", keys[i].name);
    }
}

void darknet_keys_tell(struct cfg_text *p, const struct darknet_ignored *ignored)
{
    char text[2048];

    list(ignored, JOB, text, sizeof text);
    if (*text)
        cfg_warn(p, 0, "ignored, because the job's keys say how to train: %s", text);
    list(ignored, IDLE, text, sizeof text);
    if (*text)
        cfg_warn(p, 0, "ignored, because they change no result here: %s", text);
}
