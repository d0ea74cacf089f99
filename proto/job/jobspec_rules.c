/* SPDX-License-Identifier: Apache-2.0 */ /* proto/job/jobspec_rules.c - rules between keys, and defaults that depend on
 * other keys. */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "proto/hash/hash.h"
#include "proto/job/jobspec_table.h"

enum { JITTER_AMOUNTS = 4 };
/* Metres of a network's unit if the second camera stands 0.015 units away: specs featdepth section 2.5. */
enum { KITTI_METRES = 36 };

int job_error(struct err *err, const char *path, const char *fmt, ...)
{
    char text[600];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return err_field(err, ERR_INPUT, path, "%s: %s", path, text);
}

static bool power_of_two(int64_t n)
{
    return n > 0 && (n & (n - 1)) == 0;
}

int jobspec_default_shards(int64_t batch, int shard_images)
{
    int shards = 8;

    while (shards > 1 && (batch % shards != 0 || batch / shards < shard_images))
        shards /= 2;
    return shards;
}

int jobspec_choose(struct jobspec *s, const struct job_presets *presets, struct err *err)
{
    if (s->program_command) {
        s->family = &job_program;
        return 0;
    }
    if (!s->model_preset && !s->model_cfg)
        return job_error(err, "model.preset", "is required (or model.cfg)");
    if (s->model_preset && s->model_cfg)
        return job_error(err, "model.cfg", "cannot be combined with model.preset");
    s->preset = s->model_preset ? job_preset_find(presets, s->model_preset) : NULL;
    s->family = s->preset ? s->preset->family : presets->cfg;
    return s->family ? 0 : job_error(err, "model.cfg", "describes no network of this program");
}

double job_usual(const struct jobspec *s, int key)
{
    const struct job_default *d = job_default_find(s->family, job_keys[key].path);

    return strtod(d ? job_default_text(s, d) : job_keys[key].def, NULL);
}

static int finish_model(struct jobspec *s, struct err *err)
{
    if (s->model_cfg && s->model_width != 1.0)
        return job_error(err, "model.width", "scales presets only, not model.cfg");
    if (s->model_size.w < 0 && s->preset && s->preset->size > 0)
        s->model_size = (struct jobspec_size){ s->preset->size, s->preset->size };
    if (isnan(s->model_assign_iou_thresh) && s->preset && job_key_of(&job_keys[JOB_KEY_model_assign_iou_thresh], s->family))
        s->model_assign_iou_thresh = 1; /* a .cfg has a value of its own */
    if (s->model_load_until >= 0 && !s->model_init)
        return job_error(err, "model.load_until", "needs model.init");
    if (json_array_size(s->train_freeze) > 0 && !s->model_init)
        return job_error(err, "train.freeze", "needs model.init: layers without pretrained weights cannot be frozen");
    if (s->model_sync_bn && s->model_freeze_bn)
        return job_error(err, "model.sync_bn", "cannot be combined with model.freeze_bn");
    return 0;
}

/* Frozen statistics of random weights let activations grow beyond all finite numbers: specs rcnn section 2.2. */
static int refuse_frozen(const struct jobspec *s, struct err *err)
{
    if (s->model_init)
        return 0;
    if (s->model_freeze_bn)
        return job_error(err, "model.freeze_bn", "needs model.init: without weights there are no statistics to normalise with");
    if (s->model_freeze_at > 0)
        return job_error(err, "model.freeze_at", "needs model.init: layers without pretrained weights cannot be frozen; is %lld",
                         (long long)s->model_freeze_at);
    return 0;
}

static int set_word(char **field, const char *word, struct err *err)
{
    *field = strdup(word);
    return *field ? 0 : err_set(err, -ENOMEM, "out of memory");
}

int64_t job_all_foreground(const struct jobspec *s)
{
    int64_t n = (int64_t)((double)s->model_roi_batch * s->model_roi_positive);

    return n > 0 ? n : 1;
}

/* Family sparse. */
static int finish_sparse(struct jobspec *s, struct err *err)
{
    const int64_t channels = s->model_fpn_channels, heads = s->model_heads;

    if (strcmp(s->family->name, "sparse") != 0)
        return 0;
    if (channels % heads != 0)
        return job_error(err, "model.heads", "must divide model.fpn_channels, is %lld of %lld", (long long)heads, (long long)channels);
    if (channels / heads > JOB_MAX_HEAD_CHANNELS)
        return job_error(err, "model.heads", "a head has at most %d channels, has %lld", JOB_MAX_HEAD_CHANNELS,
                         (long long)(channels / heads));
    if (s->model_dynamic_channels % JOB_REGION_GRAIN != 0)
        return job_error(err, "model.dynamic_channels", "must be a multiple of %d, is %lld", JOB_REGION_GRAIN,
                         (long long)s->model_dynamic_channels);
    return refuse_frozen(s, err);
}

/* Family rcnn: sets keys that follow from the flavor. */
static int finish_rcnn(struct jobspec *s, struct err *err)
{
    bool tv = s->model_flavor && strcmp(s->model_flavor, "tv") == 0;
    int rc = 0;

    if (strcmp(s->family->name, "rcnn") != 0)
        return 0;
    if (!s->model_backbone)
        rc = set_word(&s->model_backbone, tv ? "torchvision" : "msra", err);
    if (s->model_rpn_post_nms < 0)
        s->model_rpn_post_nms = tv ? 2000 : 1000;
    if (s->model_mask_rois < 0)
        s->model_mask_rois = job_all_foreground(s);
    if (s->model_anchors.n != 5)
        return job_error(err, "model.anchors", "must be 5 numbers, of P2 to P6, are %d", s->model_anchors.n);
    for (int i = 0; i < 5; i++)
        if (!(s->model_anchors.v[i] >= 1 && s->model_anchors.v[i] <= 8192))
            return job_error(err, "model.anchors", "must be 1 .. 8192 pixels; number %d is %g", i + 1, s->model_anchors.v[i]);
    return rc < 0 ? rc : refuse_frozen(s, err);
}

static int whole_grains(const struct jobspec_size *size, const char *key, int64_t least, struct err *err)
{
    if (size->w % JOB_SIZE_GRAIN != 0 || size->h % JOB_SIZE_GRAIN != 0)
        return job_error(err, key, "must be multiples of %d, is [%lld, %lld]", JOB_SIZE_GRAIN, (long long)size->w, (long long)size->h);
    if (size->w < least || size->h < least)
        return job_error(err, key, "must be at least %lld each way, is [%lld, %lld]", (long long)least, (long long)size->w,
                         (long long)size->h);
    return 0;
}

/* Family depth. Features of the last stage, a 32nd of the picture, are mirrored at their edges, which takes two
 * features in each direction. An autoencoder's features need second differences, which take three: specs featdepth
 * section 1.1. */
static int finish_depth(struct jobspec *s, struct err *err)
{
    enum job_depth kind = job_preset_depth(s->preset);
    int64_t pose = s->model_pose_layers;
    int rc;

    if (strcmp(s->family->name, "depth") != 0)
        return 0;
    if (s->model_size.w < 0)
        s->model_size = (struct jobspec_size){ 640, 192 };
    if (s->model_pose_size.w < 0)
        s->model_pose_size = s->model_size;
    rc = whole_grains(&s->model_size, "model.size", kind == JOB_DEPTH_AUTOENCODER || kind == JOB_DEPTH_JOINT ? 96 : 64, err);
    if (rc == 0)
        rc = whole_grains(&s->model_pose_size, "model.pose_size", 32, err);
    if (rc == 0 && pose != 18 && pose != 34 && pose != 50 && pose != 101)
        rc = job_error(err, "model.pose_layers", "must be 18, 34, 50 or 101, is %lld", (long long)pose);
    if (rc == 0 && s->model_min_depth >= s->model_max_depth)
        rc = job_error(err, "model.max_depth", "must be above model.min_depth (%g), is %g", s->model_min_depth, s->model_max_depth);
    if (rc == 0 && kind == JOB_DEPTH_FEATURES && !s->model_init && !s->model_init_extractor)
        rc = job_error(err, "model.init_extractor",
                       "is required: features of random weights are of no use (a featdepth_autoencoder job trains "
                       "them; featdepth_joint and featdepth_baseline work without)");
    if (rc == 0 && s->model_freeze_bn && !s->model_init)
        rc = job_error(err, "model.freeze_bn", "needs model.init: without weights there are no statistics to normalise with");
    return rc;
}

int64_t job_default_size_min(int64_t side)
{
    return side > 128 ? side - 96 : 32;
}

int64_t job_default_size_max(int64_t side)
{
    return side + 96 > 2048 ? 2048 : side + 96;
}

/* With model.cfg and no model.size the sizes stay null: only the worker reads the cfg. */
static int finish_sizes(struct jobspec *s, struct err *err)
{
    int64_t *min = &s->data_augment_size_min, *max = &s->data_augment_size_max;
    int64_t side = s->model_size.w > s->model_size.h ? s->model_size.w : s->model_size.h;

    if (*min < 0 && side >= 0)
        *min = job_default_size_min(side);
    if (*max < 0 && side >= 0)
        *max = job_default_size_max(side);
    if (*min >= 0 && *min % JOB_SIZE_GRAIN != 0)
        return job_error(err, "data.augment.size_min", "must be a multiple of %d, is %lld", JOB_SIZE_GRAIN, (long long)*min);
    if (*max >= 0 && *max % JOB_SIZE_GRAIN != 0)
        return job_error(err, "data.augment.size_max", "must be a multiple of %d, is %lld", JOB_SIZE_GRAIN, (long long)*max);
    if (*min >= 0 && *max >= 0 && *min > *max)
        return job_error(err, "data.augment.size_max", "must be at least data.augment.size_min (%lld), is %lld", (long long)*min,
                         (long long)*max);
    return 0;
}

/* Sets and checks sizes for models that keep a picture's shape. */
static int finish_pictures(struct jobspec *s, struct err *err)
{
    struct jobspec_list *sizes = &s->model_min_size;

    if (!job_key_of(&job_keys[JOB_KEY_model_min_size], s->family))
        return 0;
    if (sizes->n == 0 && strcmp(s->model_flavor, "tv") == 0)
        *sizes = (struct jobspec_list){ 1, { 800 } };
    else if (sizes->n == 0)
        *sizes = (struct jobspec_list){ 6, { 640, 672, 704, 736, 768, 800 } };
    for (int i = 0; i < sizes->n; i++)
        if (sizes->v[i] > (double)s->model_max_size)
            return job_error(err, "model.min_size", "must be at most model.max_size (%lld), one is %.0f", (long long)s->model_max_size,
                             sizes->v[i]);
    if (s->model_size_divisible % JOB_SIZE_GRAIN != 0)
        return job_error(err, "model.size_divisible", "must be a multiple of %d, is %lld", JOB_SIZE_GRAIN,
                         (long long)s->model_size_divisible);
    return 0;
}

static int finish_shards(struct jobspec *s, struct err *err)
{
    bool own = !s->model_freeze_bn && !s->model_sync_bn;

    if (s->train_shards < 0)
        s->train_shards = jobspec_default_shards(s->train_batch, own ? s->family->own_images : s->family->shard_images);
    if (!power_of_two(s->train_shards))
        return job_error(err, "train.shards", "must be a power of two, is %lld", (long long)s->train_shards);
    if (s->train_batch % s->train_shards != 0)
        return job_error(err, "train.shards", "must divide train.batch (%lld), is %lld", (long long)s->train_batch,
                         (long long)s->train_shards);
    if (s->run_ranks > s->train_shards)
        return job_error(err, "run.ranks", "must be at most train.shards (%lld), is %lld", (long long)s->train_shards,
                         (long long)s->run_ranks);
    if (s->model_sync_bn && s->train_waves > 1)
        return job_error(err, "train.waves", "must be 1 with model.sync_bn, is %lld", (long long)s->train_waves);
    return 0;
}

static int finish_run(struct jobspec *s, struct err *err)
{
    struct hash128 hash;

    if (strcmp(s->run_device, "cpu") == 0 && strcmp(s->run_precision, "tf32") == 0)
        return job_error(err, "run.precision", "the CPU computes in fp32 or bf16; tf32 needs run.device cuda");
    if (s->run_data_hash && hash_parse(s->run_data_hash, &hash) < 0)
        return job_error(err, "errand.data_hash", "must be 32 hexadecimal digits, 0-9 and a-f, is '%s'", s->run_data_hash);
    return 0;
}

int job_all_fit(const struct job_wanted *keys, size_t n, struct err *err)
{
    for (size_t i = 0; i < n; i++)
        if (keys[i].said && !keys[i].fits)
            return job_error(err, keys[i].key, "needs %s", keys[i].needs);
    return 0;
}

/* The keys of each optimizer. Each word of train.optimizer needs a row, or no job can have it. */
static const struct optimizer_keys {
    const char *optimizer, *keys[4];
} optimizer_keys[] = { { "sgd", { "train.momentum", "train.nesterov" } },
                       { "adam", { "train.beta1", "train.beta2", "train.eps" } },
                       { "adamw", { "train.beta1", "train.beta2", "train.eps" } } };
enum { OPTIMIZERS = sizeof optimizer_keys / sizeof *optimizer_keys };

static bool has_key(const struct optimizer_keys *o, const char *key)
{
    for (size_t i = 0; i < sizeof o->keys / sizeof *o->keys && o->keys[i]; i++)
        if (strcmp(o->keys[i], key) == 0)
            return true;
    return false;
}

static int refuse_of_another(const char *key, struct err *err)
{
    char whose[128] = "";
    size_t used = 0;

    for (int i = 0; i < OPTIMIZERS && used < sizeof whose; i++)
        if (has_key(&optimizer_keys[i], key))
            used += (size_t)snprintf(whose + used, sizeof whose - used, "%s%s", used ? " or " : "", optimizer_keys[i].optimizer);
    return job_error(err, key, "needs train.optimizer %s", whose);
}

static int finish_optimizer(struct jobspec *s, struct err *err)
{
    const struct {
        const char *key;
        bool said;
    } keys[] = { { "train.momentum", s->train_momentum != 0.9 },
                 { "train.nesterov", s->train_nesterov },
                 { "train.beta1", s->train_beta1 != 0.9 },
                 { "train.beta2", s->train_beta2 != 0.999 },
                 { "train.eps", s->train_eps != 1e-8 } };
    const struct optimizer_keys *own = NULL;

    for (int i = 0; i < OPTIMIZERS; i++)
        if (strcmp(optimizer_keys[i].optimizer, s->train_optimizer) == 0)
            own = &optimizer_keys[i];
    if (!own)
        return job_error(err, "train.optimizer", "'%s' has no row of keys in this program", s->train_optimizer);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (keys[i].said && !has_key(own, keys[i].key))
            return refuse_of_another(keys[i].key, err);
    if (s->train_nesterov && !(s->train_momentum > 0))
        return job_error(err, "train.nesterov", "needs train.momentum above 0");
    return 0;
}

static int finish_steps(struct jobspec *s, struct err *err)
{
    bool epochs = !isnan(s->train_epochs);

    if (s->train_steps < 0 && !epochs)
        return job_error(err, "train.steps", "is required (or train.epochs)");
    if (s->train_steps >= 0 && epochs)
        return job_error(err, "train.epochs", "cannot be combined with train.steps (train.steps=null takes that out)");
    return 0;
}

bool job_reads_as(const struct jobspec_list *a, const char *text)
{
    json_t *list = json_loads(text, 0, NULL);
    bool same = list && json_array_size(list) == (size_t)a->n;

    for (int i = 0; i < a->n && same; i++)
        same = json_number_value(json_array_get(list, (size_t)i)) == a->v[i];
    json_decref(list);
    return same;
}

/* Whether the job chose the steps at which the rate falls. Defaults, here or in the table, do not count. */
static bool says_steps(const struct jobspec *s)
{
    const struct job_default *d = job_default_find(s->family, "train.lr_steps");
    const struct jobspec_list *at = &s->train_lr_steps;

    return at->n > 0 && !job_reads_as(at, job_keys[JOB_KEY_train_lr_steps].def) && !(d && job_reads_as(at, job_default_text(s, d)));
}

static int finish_form(struct jobspec *s, struct err *err)
{
    const char *form = s->train_schedule;
    bool steps = strcmp(form, "steps") == 0, poly = strcmp(form, "poly") == 0, power = strcmp(s->train_warmup, "power") == 0;
    const struct job_wanted keys[] = {
        { "train.lr_steps", says_steps(s), steps, "train.schedule steps" },
        { "train.lr_scale", s->train_lr_scale != job_usual(s, JOB_KEY_train_lr_scale), steps, "train.schedule steps" },
        { "train.lr_end", s->train_lr_end != 0, poly || strcmp(form, "cosine") == 0, "train.schedule cosine or poly" },
        { "train.poly_power", s->train_poly_power != 0.9, poly, "train.schedule poly" },
        { "train.burn_in_power", s->train_burn_in_power != 4, power, "train.warmup power" },
        { "train.warmup_factor", s->train_warmup_factor != job_usual(s, JOB_KEY_train_warmup_factor), !power, "train.warmup linear" }
    };

    return job_all_fit(keys, sizeof keys / sizeof *keys, err);
}

/* A rule that needs the number of steps. */
static int finish_schedule(struct jobspec *s, struct err *err)
{
    double last = 0;

    if (s->train_burn_in < 0)
        s->train_burn_in = s->train_steps / 20 < 1000 ? s->train_steps / 20 : 1000;
    for (int i = 0; i < s->train_lr_steps.n; i++) {
        double x = s->train_lr_steps.v[i], at = x < 1 ? x * (double)s->train_steps : x;

        if (!(x > 0) || (x >= 1 && x != floor(x)))
            return job_error(err, "train.lr_steps", "must be whole steps, or fractions between 0 and 1; number %d is %g", i + 1, x);
        if (at <= last)
            return job_error(err, "train.lr_steps", "must ascend; number %d is step %g after step %g", i + 1, at, last);
        last = at;
    }
    return 0;
}

static bool one_of(const char *word, const char *const *words)
{
    while (*words && strcmp(*words, word) != 0)
        words++;
    return *words;
}

/* True for formats with labels in many files, which say where their pictures are. */
static bool of_labels(const char *format)
{
    static const char *const labels[] = { "voc", "darknet", "yolo", NULL };

    return one_of(format, labels);
}

static int finish_format(const struct jobspec *s, const char *format, const char *key, struct err *err)
{
    static const char *const frames[] = { "frames", "kitti", NULL };
    bool depth = strcmp(s->family->name, "depth") == 0;

    if (depth == one_of(format, frames))
        return 0;
    return job_error(err, key, "must be %s, is \"%s\"", depth ? "\"frames\" or \"kitti\"" : "\"coco\", \"voc\", \"darknet\" or \"yolo\"",
                     format);
}

/* Refuses keys of formats that neither split has. */
static int finish_labels(struct jobspec *s, struct err *err)
{
    const char *train = s->data_train_format, *val = s->data_val_annotations ? s->data_val_format : train;
    const bool voc = strcmp(train, "voc") == 0 || strcmp(val, "voc") == 0, labels = of_labels(train) || of_labels(val);
    static const char of_voc[] = "data.train.format or data.val.format voc";
    const struct job_wanted keys[] = { { "data.names", s->data_names, labels, "data.train.format or data.val.format voc, darknet or yolo" },
                                       { "data.voc_boxes", strcmp(s->data_voc_boxes, "devkit") != 0, voc, of_voc },
                                       { "data.voc_difficult", strcmp(s->data_voc_difficult, "ignore") != 0, voc, of_voc } };

    return strcmp(s->family->name, "depth") == 0 ? 0 : job_all_fit(keys, sizeof keys / sizeof *keys, err);
}

static int finish_sources(const struct jobspec *s, struct err *err)
{
    static const char key[] = "data.sources";
    const struct jobspec_list *l = &s->data_sources;
    bool none = l->n == 1 && l->v[0] == 0;

    if (none && !s->data_stereo && job_preset_depth(s->preset) != JOB_DEPTH_AUTOENCODER)
        return job_error(err, key, "is 0, which needs data.stereo");
    if (l->n + s->data_stereo > JOB_MAX_SOURCES && !none)
        return job_error(err, key, "must be at most %d frames%s, are %d", JOB_MAX_SOURCES - s->data_stereo,
                         s->data_stereo ? " with data.stereo" : "", l->n);
    for (int i = 0; i < l->n && !none; i++) {
        if (l->v[i] == 0)
            return job_error(err, key, "0, the target itself, must stand alone");
        for (int k = 0; k < i; k++)
            if (l->v[k] == l->v[i])
                return job_error(err, key, "%g is there twice", l->v[i]);
    }
    return 0;
}

static int finish_frames(struct jobspec *s, struct err *err)
{
    static const char *const of[JITTER_AMOUNTS] = { "brightness", "contrast", "saturation", "hue" };
    int rc = finish_format(s, s->data_train_format, "data.train.format", err);

    if (rc == 0 && s->data_val_annotations)
        rc = finish_format(s, s->data_val_format, "data.val.format", err);
    if (rc < 0 || strcmp(s->family->name, "depth") != 0)
        return rc;
    for (int i = 0; i < JITTER_AMOUNTS; i++) {
        double most = i == JITTER_AMOUNTS - 1 ? 0.5 : 1, x = s->data_augment_color_jitter.v[i];

        if (!(x >= 0 && x <= most))
            return job_error(err, "data.augment.color_jitter", "%s must be at least 0 and at most %g, is %g", of[i], most, x);
    }
    return finish_sources(s, err);
}

static int copy_text(char **to, const char *from, struct err *err)
{
    char *copy = from ? strdup(from) : NULL;

    if (from && !copy)
        return err_set(err, -ENOMEM, "out of memory");
    free(*to);
    *to = copy;
    return 0;
}

/* The validation part of the training split is read from the same files. */
static int finish_fraction(struct jobspec *s, struct err *err)
{
    int rc;

    if (isnan(s->data_val_fraction))
        return 0;
    if (s->data_val_annotations && strcmp(s->data_val_annotations, s->data_train_annotations) != 0)
        return job_error(err, "data.val.fraction", "is a part of the training split: remove data.val.annotations");
    if (s->data_val_images && (!s->data_train_images || strcmp(s->data_val_images, s->data_train_images) != 0))
        return job_error(err, "data.val.fraction", "is a part of the training split: remove data.val.images");
    rc = copy_text(&s->data_val_annotations, s->data_train_annotations, err);
    if (rc == 0)
        rc = copy_text(&s->data_val_images, s->data_train_images, err);
    return rc == 0 ? copy_text(&s->data_val_format, s->data_train_format, err) : rc;
}

static int finish_val(struct jobspec *s, struct err *err)
{
    bool have = s->data_val_annotations;

    if (s->val_max_det < 0)
        s->val_max_det = strcmp(s->family->name, "sparse") == 0 ? s->model_proposals : 100;
    if (!s->data_train_images && !of_labels(s->data_train_format))
        return job_error(err, "data.train.images", "is required (folder of the training split's images)");
    if (have && !s->data_val_images && !of_labels(s->data_val_format))
        return job_error(err, "data.val.images", "is required with data.val.annotations");
    if (!have && s->data_val_images)
        return job_error(err, "data.val.annotations", "is required with data.val.images");
    if (!have && s->val_every > 0)
        return job_error(err, "val.every", "needs data.val");
    if (!have)
        s->val_every = 0;
    return 0;
}

/* Family depth: sets how validation compares depth. */
static int finish_depth_scores(struct jobspec *s, struct err *err)
{
    bool kitti = s->data_val_annotations && strcmp(s->data_val_format, "kitti") == 0, known = kitti && s->data_stereo;
    bool factor = known || !isnan(s->val_depth_factor);
    int rc = 0;

    if (strcmp(s->family->name, "depth") != 0)
        return 0;
    if (!s->val_depth_crop)
        rc = set_word(&s->val_depth_crop, kitti ? "garg" : "none", err);
    if (rc == 0 && !s->val_depth_scale)
        rc = set_word(&s->val_depth_scale, factor ? "factor" : "median", err);
    if (rc < 0)
        return rc;
    factor = strcmp(s->val_depth_scale, "factor") == 0;
    if (factor && isnan(s->val_depth_factor) && known)
        s->val_depth_factor = KITTI_METRES;
    if (factor && isnan(s->val_depth_factor))
        return job_error(err, "val.depth_factor", "is required with val.depth_scale factor: it is known only for kitti with data.stereo");
    if (!factor && !isnan(s->val_depth_factor))
        return job_error(err, "val.depth_factor", "needs val.depth_scale factor");
    if (s->val_depth_least >= s->val_depth_cap)
        return job_error(err, "val.depth_cap", "must be above val.depth_least (%g), is %g", s->val_depth_least, s->val_depth_cap);
    return 0;
}

int64_t jobspec_default_every(int64_t steps)
{
    return steps / 10 > 0 ? steps / 10 : 1;
}

/* A rule that needs the number of steps. */
static int finish_intervals(struct jobspec *s, struct err *err)
{
    const int64_t tenth = jobspec_default_every(s->train_steps);

    if (s->val_every < 0)
        s->val_every = tenth;
    if (s->checkpoint_every < 0)
        s->checkpoint_every = s->val_every > 0 ? s->val_every : tenth;
    if (s->train_stop_after > 0 && s->val_every == 0)
        return job_error(err, "train.stop_after", "needs data.val, and val.every above 0: it counts validations");
    return 0;
}

/* A rule that needs the number of steps. */
static int finish_verify(struct jobspec *s, struct err *err)
{
    const struct job_wanted keys[] = { { "errand.from", s->verify_from >= 0, s->verify_evidence, "errand.evidence" },
                                       { "errand.to", s->verify_to >= 0, s->verify_evidence, "errand.evidence" } };

    if (!s->verify_evidence)
        return job_all_fit(keys, sizeof keys / sizeof *keys, err);
    if (strcmp(s->run_evidence, "off") == 0)
        return job_error(err, "run.evidence", "must not be off where errand.evidence is given");
    if (s->verify_from < 0)
        s->verify_from = 0;
    if (s->verify_to < 0)
        s->verify_to = s->train_steps;
    if (s->verify_to > s->train_steps)
        return job_error(err, "errand.to", "must be at most train.steps (%lld), is %lld", (long long)s->train_steps,
                         (long long)s->verify_to);
    if (s->verify_from >= s->verify_to)
        return job_error(err, "errand.from", "must be below errand.to (%lld), is %lld", (long long)s->verify_to, (long long)s->verify_from);
    return 0;
}

static int finish_eval(struct jobspec *s, struct err *err)
{
    const struct job_wanted keys[] = { { "errand.step", s->eval_step >= 0, s->eval_run, "errand.run" },
                                       { "errand.job", s->eval_job >= 0, s->eval_run && s->eval_set, "errand.run and errand.set" },
                                       { "errand.set", s->eval_set, s->eval_run, "errand.run" } };

    if (s->eval_run && s->eval_step < 0)
        return job_error(err, "errand.step", "is required with errand.run");
    if (s->eval_run && !s->data_val_annotations)
        return job_error(err, "data.val.annotations", "is required with errand.run: the data set to evaluate on");
    if (s->eval_run && s->verify_evidence)
        return job_error(err, "errand.evidence", "cannot be combined with errand.run");
    return job_all_fit(keys, sizeof keys / sizeof *keys, err);
}

int jobspec_check_detections(const struct jobspec *s, int classes, struct err *err)
{
    const int64_t most = s->model_proposals * classes;

    if (strcmp(s->family->name, "sparse") != 0 || s->val_max_det <= most)
        return 0;
    return job_error(err, "val.max_det", "must be at most model.proposals * classes, is %lld of %lld", (long long)s->val_max_det,
                     (long long)most);
}

typedef int rule(struct jobspec *s, struct err *err);

static int follow(rule *const *rules, size_t n, struct jobspec *s, struct err *err)
{
    int rc = 0;

    for (size_t i = 0; i < n && rc == 0; i++)
        rc = rules[i](s, err);
    return rc;
}

int jobspec_finish(struct jobspec *s, bool uncounted, struct err *err)
{
    static rule *const all[] = { finish_model,    finish_rcnn,   finish_sparse,       finish_depth,  finish_sizes, finish_pictures,
                                 finish_fraction, finish_frames, finish_labels,       finish_shards, finish_run,   finish_optimizer,
                                 finish_form,     finish_val,    finish_depth_scores, finish_eval,   finish_steps };
    static rule *const of_steps[] = { finish_schedule, finish_intervals, finish_verify };
    int rc = follow(all, sizeof all / sizeof *all, s, err);

    if (rc < 0 || (s->train_steps < 0 && uncounted))
        return rc;
    if (s->train_steps < 0)
        return job_error(err, "train.epochs", "only detctl submit and detctl check make steps of it; train.steps is needed here");
    return follow(of_steps, sizeof of_steps / sizeof *of_steps, s, err);
}

/* ---- the best checkpoint ---- */

/* To these comes AR with the number of detections that count, see is_recall(). */
static const char *const box_metrics[] = { "AP",  "AP50", "AP75",     "APs", "APm", "APl",  "AR1", "AR10", "ARs",
                                           "ARm", "ARl",  "voc_AP50", "P50", "R50", "conf", "n",   NULL };
static const char *const depth_metrics[] = { "abs_rel", "sq_rel",  "rmse",         "rmse_log",  "a1",           "a2", "a3",
                                             "ate",     "ate_std", "scale_median", "scale_std", "depth_images", NULL };

static bool is_one_of(const char *const *names, const char *name, size_t len)
{
    for (; *names; names++)
        if (strlen(*names) == len && strncmp(*names, name, len) == 0)
            return true;
    return false;
}

/* The name of recall with all detections that count: "AR100", or "AR300" with that many in val.max_det. Returns its
 * length. */
static size_t recall_name(const struct jobspec *s, char ret[24])
{
    return (size_t)snprintf(ret, 24, "AR%lld", (long long)(s->val_max_det > 100 ? s->val_max_det : 100));
}

static bool is_recall(const struct jobspec *s, const char *name, size_t len)
{
    char recall[24];

    return recall_name(s, recall) == len && strncmp(recall, name, len) == 0;
}

static int no_such_metric(const struct jobspec *s, bool depth, bool masks, struct err *err)
{
    char recall[24];

    recall_name(s, recall);
    if (depth)
        return job_error(err, "checkpoint.best",
                         "'%s' is not a metric of %s: metrics are loss, abs_rel, sq_rel, rmse, rmse_log, a1, a2, a3, ate and ate_std",
                         s->checkpoint_best, s->preset ? s->preset->name : "its network");
    return job_error(
        err, "checkpoint.best",
        "'%s' is not a metric of %s: metrics are loss, AP, AP50, AP75, APs, APm, APl, AR1, AR10, %s, ARs, ARm, ARl, voc_AP50, AP:CLASS and "
        "AP50:CLASS%s",
        s->checkpoint_best, s->preset ? s->preset->name : "its network", recall, masks ? ", of masks with segm_ before it" : "");
}

int jobspec_check_best(const struct jobspec *s, struct err *err)
{
    const char *name = s->checkpoint_best, *of_masks = strncmp(name, "segm_", 5) == 0 ? name + 5 : name;
    const bool depth = strcmp(s->family->name, "depth") == 0, masks = job_preset_masks(s->preset);
    const char *const *names = depth ? depth_metrics : box_metrics;
    const char *plain = masks ? of_masks : name;

    if (strcmp(name, "loss") == 0 || s->eval_run || jobspec_is_program(s))
        return 0;
    if (s->val_every == 0 || (!s->data_val_annotations && isnan(s->data_val_fraction)))
        return job_error(err, "checkpoint.best", "'%s' is a metric of validations: needs data.val, and val.every above 0", name);
    if (is_one_of(names, plain, strcspn(plain, ":")) || (!depth && is_recall(s, plain, strcspn(plain, ":"))))
        return 0;
    return no_such_metric(s, depth, masks, err);
}
