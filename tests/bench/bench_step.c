/* SPDX-License-Identifier: Apache-2.0 */ /* tests/bench/bench_step.c - images per second of a training step on one
 * device, with synthetic images. uses: proto worker/backend trainer cpu
 * Usage: bench_step [device=cpu] [model=yolov3_tiny] [precision=fp32] [tier=off] [threads=2] [size=416] [batch=8]
 * [shards=1] [freeze=0] [steps=5]
 *                   [flavor=d2] [isa=auto]
 * size=608x320 is an input of that width and height. freeze=1: frozen statistics, of R-CNN the first two stages too.
 * A record "step" a case: its median step, its best step (best_ms), processors busy during all, memory at most so far
 * (peak_mib), of R-CNN the regions of the mask head (on the CPU) and, on the CPU, the median share of convolutions in a
 * step; then "op" records: where its time goes. shards=1,4,8 and tier=off,rerun,world take turns between the cases,
 * step by step, so that a busy machine slows all alike. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "proto/job/jobspec.h"
#include "tests/stand/batches.h"
#include "tests/bench/bench.h"
#include "tests/bench/device_memory.h"
#include "tests/bench/made_up.h"
#include "worker/comm/comm.h"
#include "worker/data/sample/frames.h"
#include "worker/comm/staged.h"
#include "worker/core/arena.h"
#include "worker/layers/tape.h"
#include "worker/backend/devices.h"
#include "worker/layers/layers.h"
#include "worker/models/builtin.h"
#include "worker/models/rcnn/network.h"
#include "worker/models/rcnn/rcnn.h"
#include "worker/models/weights.h"
#include "worker/ops/families.h"
#include "worker/gradients/gradients.h"

enum { CLASSES = 80, BOXES = 4, MAX_TIMED = 80, MAX_STEPS = 200, MAX_CASES = 4 };
#define LAST_SCALE 0.2f /* of the last normalisation of a block of ResNet: as in peer_rcnn.py */

/* ---- the device with a stop watch around every op ---- */

struct clocks {
    int n;
    struct {
        const char *name;
        double seconds;
    } op[MAX_TIMED];
};
static struct clocks *spent; /* of the sharding that is running */

static double *clock_of(const char *name)
{
    for (int i = 0; i < spent->n; i++)
        if (spent->op[i].name == name)
            return &spent->op[i].seconds;
    spent->op[spent->n].name = name;
    return &spent->op[spent->n++].seconds;
}

static double conv_seconds(void)
{
    double sum = 0;

    for (int i = 0; i < spent->n; i++)
        sum += strncmp(spent->op[i].name, "conv", 4) == 0 ? spent->op[i].seconds : 0;
    return sum;
}

static const struct families *real;

#define TIMED(family, name, params, args)              \
    static int timed_##family##_##name params          \
    {                                                  \
        static const char label[] = #family "_" #name; \
        double start = bench_now();                    \
        int rc = real->family->name args;              \
                                                       \
        *clock_of(label) += bench_now() - start;       \
        return rc;                                     \
    }
#define ROW(family, name, params, args) .name = timed_##family##_##name,
#define TABLE(family, LIST)             LIST(TIMED) static const struct family##_ops timed_##family = { LIST(ROW) };
FAMILIES(TABLE)
#undef TABLE
#undef ROW

static int masks; /* regions that were last pooled for the mask head, of all shards */

static int counted_align_fwd(struct device *dev, const struct roi_align *roi, struct tensor *y, const struct tensor *const *x,
                             const struct roi_rows *rows, int nshards, struct err *err)
{
    if (roi->pool != RCNN_BOX_POOL)
        masks = 0;
    for (int v = 0; v < nshards && roi->pool != RCNN_BOX_POOL; v++)
        masks += *rows[v].count;
    return timed_roi_align_fwd(dev, roi, y, x, rows, nshards, err);
}

static const struct families *with_clocks(const struct families *on)
{
    static struct families timed;
    static struct roi_ops roi;

    real = on;
#define FAMILY(family, LIST) timed.family = on->family ? &timed_##family : NULL;
    FAMILIES(FAMILY)
#undef FAMILY
    roi = timed_roi;
    roi.align_fwd = counted_align_fwd;
    timed.roi = on->roi ? &roi : NULL;
    return &timed;
}

/* ---- the step ---- */

struct options {
    int threads, batch, shards[MAX_CASES], nshardings, freeze, steps, ntiers;
    struct canvas size;
    enum tier tier[MAX_CASES];
    char isa[16], device[16], precision[16], model[32], flavor[4];
    struct device *dev, *side;
    struct comm *host, *link;
};

struct bench {
    int batch, shards;
    struct canvas size;
    enum tier tier;
    struct device *dev;
    struct jobspec *spec;
    struct model *model;
    struct arena *arena;
    struct tape *tape;
    struct gradients *gradients;
    struct shard_batch shard[JOB_MAX_SHARDS];
    struct batch inputs;
    double **raw, **stats;
    double *raw_host;
    struct optim_item *items;
    int nitems;
    struct clip *clip;
    struct clocks clocks;
    double seconds[MAX_STEPS], conv_share[MAX_STEPS]; /* [step] */
    double cpu_seconds;
    int masks;
};

static void die(const struct err *err)
{
    fprintf(stderr, "bench_step: %s\n", err->msg);
    exit(1);
}

static bool is_of(const struct bench *b, const char *family)
{
    return strcmp(b->spec->family->name, family) == 0;
}

static bool is_rcnn(const struct bench *b)
{
    return is_of(b, "rcnn");
}

static float *grad_dest(void *arg, const struct param *p, int shard, bool *ret_written)
{
    return gradients_dest(((struct bench *)arg)->gradients, p, shard, ret_written);
}

static int grad_ready(void *arg, const struct param *p, struct err *err)
{
    return gradients_ready(((struct bench *)arg)->gradients, p, err);
}

static double *stats_dest(void *arg, int index, int use, int shard)
{
    struct bench *b = arg;
    size_t at = 0;

    (void)use;
    for (int i = 0; i < index; i++)
        at += 2 * b->model->norms[i].mean->count + 1;
    return b->stats[shard] + at;
}

static struct box_list make_truth(struct bench *b, int images)
{
    int32_t *offset = calloc((size_t)images + 1, sizeof *offset), *cls = calloc((size_t)images * BOXES, sizeof *cls);
    float *box = calloc((size_t)images * BOXES * 4, sizeof *box);
    struct box_list list = { .rows = images * BOXES };

    for (int i = 0; i < images * BOXES; i++) {
        offset[i / BOXES + 1] = (i / BOXES + 1) * BOXES;
        cls[i] = i % CLASSES;
        for (int k = 0; k < 4; k++)
            box[i * 4 + k] = 0.1f + 0.05f * (float)((i * 7 + k * 3) % 11);
    }
    list.offset = bench_device_memory(b->dev, offset, ((size_t)images + 1) * sizeof *offset);
    list.cls = bench_device_memory(b->dev, cls, (size_t)list.rows * sizeof *cls);
    list.box = bench_device_memory(b->dev, box, (size_t)list.rows * 4 * sizeof *box);
    free(offset);
    free(cls);
    free(box);
    return list;
}

static void make_boxes(struct bench *b, int per)
{
    size_t count = (size_t)b->size.h * (size_t)b->size.w * 3;
    float *pixels = malloc((size_t)b->batch * count * sizeof *pixels), *mem;
    struct tensor images[JOB_MAX_SHARDS];
    struct box_list truth[JOB_MAX_SHARDS];

    for (size_t i = 0; i < (size_t)b->batch * count; i++)
        pixels[i] = (float)((i * 2654435761u >> 8) & 255) / 255.0f;
    mem = bench_device_memory(b->dev, pixels, (size_t)b->batch * count * sizeof *mem);
    free(pixels);
    for (int v = 0; v < b->shards; v++) {
        images[v] = tensor_f32(mem + (size_t)v * (size_t)per * count, per, b->size.h, b->size.w, 3);
        truth[v] = make_truth(b, per);
    }
    b->inputs = boxes_batch(b->shard, images, truth, b->shards);
}

static void make_instances(struct bench *b, int per)
{
    for (int v = 0; v < b->shards; v++)
        b->shard[v] = made_up_instances(b->dev, v, v * per, per, b->size, CLASSES, strcmp(b->spec->model_flavor, "tv") == 0);
    b->inputs = (struct batch){ .form = task_instances.form, .seed = 1, .step = 1, .nshards = b->shards, .shard = b->shard };
}

/* Noise in two sixteenths of the picture's sides, which moves from frame to frame: for depth networks such frames cost
 * as much as a street. */
static void make_frames(struct bench *b, int per)
{
    int ids[FRAMES_MAX_SOURCES], nsources = frames_sources(b->spec, ids);
    const struct batch_form *form = frames_form(nsources);
    const float camera[4] = { 0.9f * (float)b->size.w, 0.9f * (float)b->size.w, 0.5f * (float)b->size.w, 0.5f * (float)b->size.h };

    for (int v = 0; v < b->shards; v++) {
        struct shard_batch *s = &b->shard[v];

        *s = (struct shard_batch){ .shard = v, .n = per, .canvas = b->size };
        for (int k = 0; k < form->narrays; k++) {
            size_t bytes = batch_bytes(form, s, k);
            uint8_t *host = calloc(1, bytes);

            for (size_t i = 0; i < bytes && form->array[k].canvas; i++)
                host[i] = (uint8_t)(255 * bench_uniform((uint32_t)((i / 3 + (size_t)(3 * k)) / 16 + i % 3 * 7919 + (size_t)v)));
            for (int i = 0; i < per && strcmp(form->array[k].name, "camera") == 0; i++)
                memcpy(host + (size_t)i * sizeof camera, camera, sizeof camera);
            s->array[k] = bench_device_memory(b->dev, host, bytes);
            free(host);
        }
    }
    b->inputs = (struct batch){ .form = form, .seed = 1, .step = 1, .nshards = b->shards, .shard = b->shard };
}

static void make_batch(struct bench *b)
{
    size_t stats = 0;

    for (int i = 0; i < b->model->nnorms; i++)
        stats += 2 * b->model->norms[i].mean->count + 1;
    b->raw = calloc((size_t)b->shards, sizeof *b->raw);
    b->stats = calloc((size_t)b->shards, sizeof *b->stats);
    b->raw_host = calloc(b->model->raw_terms, sizeof *b->raw_host);
    for (int v = 0; v < b->shards; v++) {
        b->raw[v] = bench_device_memory(b->dev, NULL, b->model->raw_terms * sizeof(double));
        b->stats[v] = bench_device_memory(b->dev, NULL, (stats + 1) * sizeof(double));
    }
    b->clip = bench_device_memory(b->dev, NULL, sizeof *b->clip);
    (is_rcnn(b) || is_of(b, "sparse")                      ? make_instances
     : job_preset_depth(b->spec->preset) != JOB_DEPTH_NONE ? make_frames
                                                           : make_boxes)(b, b->batch / b->shards);
}

/* Each block adds to its input: with random weights and frozen statistics, sixteen blocks would make numbers that no
 * trained network has. */
static void calm(struct bench *b)
{
    const struct rcnn_network *net = rcnn_network_of(b->model);
    struct err err;

    for (int i = 0; i < net->front.nnamed; i++) {
        const struct rcnn_named *a = &net->front.named[i];
        float *scale;

        if (a->array != RCNN_GAMMA || a->part.place != RCNN_BLOCK ||
            a->part.i != net->front.body.block[a->part.stage][a->part.block].nconvs - 1)
            continue;
        scale = malloc(a->p->count * sizeof *scale);
        for (size_t k = 0; k < a->p->count; k++)
            scale[k] = LAST_SCALE;
        if (weights_put(b->model, a->p, scale, &err) < 0)
            die(&err);
        free(scale);
    }
}

/* A step without foreground is less work than any step of a job, so it is no measurement. */
static void check_masks(const struct bench *b)
{
    const struct rcnn_network *net = rcnn_network_of(b->model);
    const struct param *p = net->predictor.w;
    float *grad;
    bool any = false;
    struct err err = { 0 };

    if (!net->masks)
        return;
    grad = malloc(p->count * sizeof *grad);
    if (b->dev->ops->download(b->dev, grad, gradients_sum(b->gradients, p), p->count * sizeof *grad, &err) < 0)
        die(&err);
    for (size_t i = 0; i < p->count; i++) {
        any = any || grad[i] != 0;
        if (!isfinite(grad[i]))
            err_set(&err, ERR_DEVICE, "a gradient of the mask head is not finite");
    }
    if (!any || (b->dev->host_memory && b->masks == 0))
        err_set(&err, ERR_DEVICE, "no foreground in a step: %d regions for the mask head, gradients %s", b->masks, any ? "" : "zero");
    if (err.code)
        die(&err);
    free(grad);
}

static enum precision precision_of(const char *name)
{
    return strcmp(name, "bf16") == 0 ? PRECISION_BF16 : strcmp(name, "tf32") == 0 ? PRECISION_TF32 : PRECISION_FP32;
}

static void devices_open(struct options *o)
{
    struct device_options opt = { o->threads, o->isa, precision_of(o->precision) }, side = { 1, o->isa, opt.precision };
    struct comm_options co = { .fd = -1, .nranks = 1, .timeout_ms = 60000 };
    const struct device_ops *ops;
    struct err err = { 0 };

    if (device_backend(o->device, o->isa, &ops, &err) < 0 || ops->open(0, &opt, &o->dev, &err) < 0 ||
        ops->open(0, &side, &o->side, &err) < 0 || comm_open_shm(&co, &o->host, &err) < 0)
        die(&err);
    o->link = o->host;
    if (!o->dev->host_memory && comm_open_staged(o->host, o->dev, o->side, &o->link, &err) < 0)
        die(&err);
    if (o->dev->host_memory)
        o->dev->on = with_clocks(o->dev->on);
}

/* The model's keys. Frozen statistics ask for weights to begin with. */
static json_t *model_of(const struct options *o)
{
    const struct job_preset *preset = job_preset_find(&job_presets, o->model);

    if (job_preset_depth(preset) == JOB_DEPTH_FEATURES)
        return json_pack("{s:s,s:[i,i],s:s}", "preset", o->model, "size", o->size.w, o->size.h, "init_extractor", "/made/up");
    if (job_preset_depth(preset) != JOB_DEPTH_NONE)
        return json_pack("{s:s,s:[i,i]}", "preset", o->model, "size", o->size.w, o->size.h);
    if (preset && strcmp(preset->family->name, "sparse") == 0) /* the small one of specs sparse_rcnn section 12.1 */
        return json_pack("{s:s,s:f,s:i,s:i,s:i,s:i,s:i}", "preset", o->model, "width", 0.25, "fpn_channels", 64, "proposals", 20, "stages",
                         3, "dynamic_channels", 16, "ffn_channels", 256);
    if (!preset || strcmp(preset->family->name, "rcnn") != 0)
        return json_pack("{s:s,s:[i,i],s:b}", "preset", o->model, "size", o->size.w, o->size.h, "freeze_bn", o->freeze);
    return json_pack("{s:s,s:s,s:i,s:b,s:s}", "preset", o->model, "flavor", o->flavor, "freeze_at", o->freeze ? 2 : 0, "freeze_bn",
                     o->freeze, "init", "/made/up");
}

static struct jobspec *spec_of(const struct options *o, int shards)
{
    json_t *root = json_pack("{s:o,s:{s:{s:s,s:s}},s:{s:i,s:i,s:i}}", "model", model_of(o), "data", "train", "annotations", "none",
                             "images", "none", "train", "steps", 1000, "batch", o->batch, "shards", shards);
    struct jobspec *spec;
    struct err err;

    if (jobspec_parse(root, &spec, &err) < 0)
        die(&err);
    json_decref(root);
    jobspec_forget_inits(spec);
    return spec;
}

static void bench_open(struct bench *b, const struct options *o, int shards, enum tier tier)
{
    struct gradients_options r = { .dev = o->dev, .side = o->side, .comm = o->link, .nshards = shards, .nwaves = 1 };
    struct err err = { 0 };

    *b = (struct bench){ .batch = o->batch, .size = o->size, .shards = shards, .tier = tier, .dev = o->dev, .spec = spec_of(o, shards) };
    if (model_open(&models_builtin, b->spec, (struct model_classes){ CLASSES, NULL, NULL }, b->dev, &b->model, &err) < 0)
        die(&err);
    if (is_rcnn(b) && o->freeze)
        calm(b);
    b->arena = arena_new(b->dev, (size_t)256 << 20);
    b->tape = tape_new(b->dev, b->arena, b->model->nparams);
    if (gradients_open(&r, b->model->params, b->model->nparams, &b->gradients, &err) < 0)
        die(&err);
    b->items = calloc((size_t)b->model->nparams, sizeof *b->items);
    for (int i = 0; i < b->model->nparams; i++) {
        struct param *p = b->model->params[i];

        if (param_trainable(p))
            b->items[b->nitems++] = (struct optim_item){
                .param = p, .state = { bench_device_memory(b->dev, NULL, p->count * sizeof(float)) }, .lr = 1e-6f, .decay = 5e-4f
            };
    }
    make_batch(b);
}

static void step(struct bench *b)
{
    const struct tape_hooks hooks = { b, grad_dest, grad_ready, stats_dest, NULL };
    const struct model_want want = { .raw = b->raw, .images_of_step = b->batch, .shards_of_step = b->shards };
    const struct sgd sgd = { .momentum = 0.9f };
    struct square_sums squares;
    struct err err = { 0 };

    b->dev->ops->set_tier(b->dev, b->tier);
    gradients_begin(b->gradients);
    gradients_wave(b->gradients, 0);
    tape_begin(b->tape, TAPE_TRAIN, b->shards, &hooks);
    if (b->model->ops->forward(b->model, b->tape, &b->inputs, &want, &err) < 0 ||
        tape_backward(b->tape, b->model->params, b->model->nparams, &err) < 0 || gradients_wait(b->gradients, &err) < 0)
        die(&err);
    for (int i = 0; i < b->nitems; i++)
        b->items[i].grad = gradients_sum(b->gradients, b->items[i].param);
    squares = gradients_squares(b->gradients);
    if (b->dev->ops->download(b->dev, b->raw_host, b->raw[0], b->model->raw_terms * sizeof(double), &err) < 0 ||
        b->dev->on->optim->clip(b->dev, b->clip, squares.blocks, squares.order, squares.n, 1, 0, &err) < 0 ||
        b->dev->on->optim->sgd(b->dev, b->items, b->nitems, &sgd, b->clip, &err) < 0 ||
        (b->dev->host_memory ? 0 : b->dev->ops->sync(b->dev, &err)) < 0)
        die(&err);
}

static void timed_step(struct bench *b, int number)
{
    double start = bench_now(), cpu = bench_cpu_seconds(), conv;

    spent = &b->clocks;
    conv = conv_seconds();
    step(b);
    b->seconds[number] = bench_now() - start;
    b->cpu_seconds += bench_cpu_seconds() - cpu;
    b->masks = masks;
    if (is_rcnn(b))
        check_masks(b);
    b->conv_share[number] = (conv_seconds() - conv) / b->seconds[number];
}

static void parse_shards(struct options *o, const char *text)
{
    for (char *end; o->nshardings < MAX_CASES; text = end + 1) {
        o->shards[o->nshardings++] = (int)strtol(text, &end, 10);
        if (*end != ',')
            break;
    }
}

static void parse_tiers(struct options *o, const char *text)
{
    static const char *const names[] = { "off", "rerun", "world" };

    for (; *text && o->ntiers < MAX_CASES; text += strcspn(text, ","), text += *text == ',')
        for (int i = 0; i < 3; i++)
            if (strncmp(text, names[i], strlen(names[i])) == 0)
                o->tier[o->ntiers++] = (enum tier)i;
}

static void parse(struct options *o, int argc, char **argv)
{
    const struct {
        const char *name;
        int *value;
    } number[] = { { "threads=", &o->threads }, { "batch=", &o->batch }, { "freeze=", &o->freeze }, { "steps=", &o->steps } };

    for (int i = 1; i < argc; i++) {
        const struct {
            const char *name;
            char *value;
            size_t size;
        } word[] = { { "isa=", o->isa, sizeof o->isa },
                     { "device=", o->device, sizeof o->device },
                     { "precision=", o->precision, sizeof o->precision },
                     { "model=", o->model, sizeof o->model },
                     { "flavor=", o->flavor, sizeof o->flavor } };

        if (strncmp(argv[i], "shards=", 7) == 0)
            parse_shards(o, argv[i] + 7);
        if (strncmp(argv[i], "size=", 5) == 0 && sscanf(argv[i] + 5, "%dx%d", &o->size.w, &o->size.h) == 1)
            o->size.h = o->size.w;
        if (strncmp(argv[i], "tier=", 5) == 0)
            parse_tiers(o, argv[i] + 5);
        for (size_t k = 0; k < sizeof word / sizeof *word; k++)
            if (strncmp(argv[i], word[k].name, strlen(word[k].name)) == 0)
                snprintf(word[k].value, word[k].size, "%s", argv[i] + strlen(word[k].name));
        for (size_t k = 0; k < sizeof number / sizeof *number; k++)
            if (strncmp(argv[i], number[k].name, strlen(number[k].name)) == 0)
                *number[k].value = atoi(argv[i] + strlen(number[k].name));
    }
    if (o->nshardings == 0)
        parse_shards(o, "1");
    if (o->ntiers == 0)
        parse_tiers(o, "off");
    o->steps = o->steps < 1 ? 1 : o->steps > MAX_STEPS ? MAX_STEPS : o->steps;
    if (o->size.w < 32 || o->size.h < 32 || o->size.w % 32 != 0 || o->size.h % 32 != 0) {
        fprintf(stderr, "bench_step: size=%dx%d: both are multiples of 32\n", o->size.w, o->size.h);
        exit(2);
    }
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void print(struct bench *b, int steps)
{
    static const char *const tiers[] = { "off", "rerun", "world" };
    double median, total = 0;

    qsort(b->conv_share, (size_t)steps, sizeof *b->conv_share, compare);
    qsort(b->seconds, (size_t)steps, sizeof *b->seconds, compare);
    median = (b->seconds[(steps - 1) / 2] + b->seconds[steps / 2]) / 2;
    for (int i = 0; i < steps; i++)
        total += b->seconds[i];
    printf("step shards=%d tier=%s images_per_s=%.3f ms=%.3f best_ms=%.3f conv_share=%.4f cpus=%.2f arena_mib=%zu peak_mib=%.0f masks=%d\n",
           b->shards, tiers[b->tier], b->batch / median, 1e3 * median, 1e3 * b->seconds[0], b->conv_share[steps / 2],
           b->cpu_seconds / total, arena_held(b->arena) >> 20, bench_peak_mib(), b->masks);
    for (int i = 0; i < b->clocks.n; i++)
        printf("op shards=%d tier=%s name=%-18s ms=%-8.2f share=%.3f\n", b->shards, tiers[b->tier], b->clocks.op[i].name,
               1e3 * b->clocks.op[i].seconds / steps, b->clocks.op[i].seconds / total);
}

int main(int argc, char **argv)
{
    static struct bench bench[MAX_CASES * MAX_CASES];
    struct options o = { .threads = 2,
                         .size = { 416, 416 },
                         .batch = 8,
                         .steps = 5,
                         .isa = "auto",
                         .device = "cpu",
                         .precision = "fp32",
                         .model = "yolov3_tiny",
                         .flavor = "d2" };
    int cases = 0;

    parse(&o, argc, argv);
    devices_open(&o);
    for (int k = 0; k < o.nshardings; k++)
        for (int i = 0; i < o.ntiers; i++)
            bench_open(&bench[cases++], &o, o.shards[k], o.tier[i]);
    for (int k = 0; k < cases; k++) {
        timed_step(&bench[k], 0); /* arena, derived weights and plans are made */
        timed_step(&bench[k], 0);
        bench[k].clocks = (struct clocks){ 0 };
        bench[k].cpu_seconds = 0;
    }
    for (int i = 0; i < o.steps; i++)
        for (int k = 0; k < cases; k++)
            timed_step(&bench[k], i);
    for (int k = 0; k < cases; k++)
        print(&bench[k], o.steps);
    return 0;
}
