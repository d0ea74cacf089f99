/* SPDX-License-Identifier: Apache-2.0 */ /* tests/golden/test_yolov3.c - the whole YOLOv3 graph against PyTorch: losses
 * of ten steps, gradients of step 0 (make_yolov3.py).
 * uses: proto worker/models worker/layers worker/data worker/eval worker/mask worker/comm worker/core cpu cuda */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "proto/err.h"
#include "proto/job/jobspec.h"
#include "tests/stand/batches.h"
#include "tests/device/plugin.h"
#include "worker/core/arena.h"
#include "worker/core/safetensors.h"
#include "worker/layers/tape.h"
#include "worker/layers/layers.h"
#include "worker/models/builtin.h"

const struct device_ops *cpu_backend_avx512(void);
const struct device_ops *cpu_backend_avx2(void);
const struct device_ops *cpu_backend_generic(void);
const struct device_ops *cuda_backend_emu(void);

enum { BATCH = 4, CLASSES = 3, STEPS = 10, WIDE_STEPS = 5, MAX_PARAMS = 512, MAX_SHARDS = 4, MAX_STATS = 1 << 16 };

/* image, class, centre x, centre y, width, height; as BOXES in make_yolov3.py */
static const struct {
    int image, cls;
    float box[4];
} boxes[] = {
    { 0, 0, { .30f, .65f, .42f, .60f } }, { 0, 2, { .71f, .22f, .13f, .11f } }, { 1, 1, { .52f, .48f, .85f, .9f } },
    { 1, 1, { .12f, .83f, .2f, .15f } },  { 1, 0, { .55f, .31f, .23f, .44f } }, { 3, 2, { .82f, .77f, .3f, .35f } },
    { 3, 0, { .4f, .4f, .09f, .2f } },
};
enum { NBOXES = sizeof boxes / sizeof *boxes };

static uint32_t noise(uint32_t i)
{
    i = i * 2654435761u + 1;
    i ^= i >> 15;
    i *= 2246822519u;
    return i ^ i >> 13;
}

static float weight(int param, size_t element, int fan_in)
{
    double u = (noise((uint32_t)param * 1000003u + (uint32_t)element) >> 8) / 16777216.0 - 0.5;

    return (float)(u * sqrt(24.0 / fan_in));
}

/* A model on a device, and everything a step needs, in plain buffers. */
struct net {
    struct device *dev;
    struct jobspec *spec;
    struct model *model;
    struct arena *arena;
    struct tape *tape;
    int nshards;
    float *grad[MAX_SHARDS][MAX_PARAMS], *momentum[MAX_PARAMS], *images;
    double *raw[MAX_SHARDS], *stats[MAX_SHARDS];
    void *lists[MAX_SHARDS][3];
    struct clip *clip;
    struct tensor x[MAX_SHARDS];
    struct box_list truth[MAX_SHARDS];
};

/* Each once: one build may stand in for all (make ISAS=). */
static const struct device_ops *const *backends(void)
{
    static const struct device_ops *list[4];
    int n = 0;

    if (__builtin_cpu_supports("x86-64-v4"))
        list[n++] = cpu_backend_avx512();
    if (__builtin_cpu_supports("x86-64-v3") && (n == 0 || cpu_backend_avx2() != list[n - 1]))
        list[n++] = cpu_backend_avx2();
    if (n == 0 || cpu_backend_generic() != list[n - 1])
        list[n++] = cpu_backend_generic();
    return list;
}

/* Weights and biases as in the generator: OIHW there, KRSC here; parameters with gradients are counted in order. */
static void fill(struct net *n)
{
    for (int i = 0, counted = 0; i < n->model->nparams; i++) {
        struct param *p = n->model->params[i];
        float *w = calloc(p->count, sizeof *w);
        struct err err;

        for (size_t e = 0; e < p->count; e++) {
            size_t c = e % (size_t)p->c, s = e / (size_t)p->c % (size_t)p->s, r = e / (size_t)(p->c * p->s) % (size_t)p->r;
            size_t k = e / (size_t)(p->c * p->s * p->r);

            if (p->kind == PARAM_CONV)
                w[e] = weight(counted, ((k * (size_t)p->c + c) * (size_t)p->r + r) * (size_t)p->s + s, p->c * p->r * p->s);
            else
                w[e] = p->kind == PARAM_SCALE || p->kind == PARAM_VAR;
        }
        counted += param_trainable(p);
        assert_int_equal(n->dev->ops->upload(n->dev, p->data, w, p->count * sizeof *w, &err), 0);
        p->version++;
        free(w);
    }
}

static void *put(struct net *n, const void *host, size_t bytes)
{
    void *p = n->dev->ops->alloc(n->dev, bytes + 1);
    struct err err;

    assert_non_null(p);
    if (host)
        assert_int_equal(n->dev->ops->upload(n->dev, p, host, bytes, &err), 0);
    return p;
}

static void split(struct net *n)
{
    struct canvas c = n->model->canvas;
    size_t count = (size_t)c.h * (size_t)c.w * 3;
    float *images = calloc(BATCH * count, sizeof *images);
    int per = BATCH / n->nshards;

    for (uint32_t i = 0; i < BATCH * count; i++)
        images[i] = (float)((noise(i + 77) >> 24) / 255.0);
    n->images = put(n, images, BATCH * count * sizeof *images);
    free(images);
    for (int v = 0; v < n->nshards; v++) {
        int32_t offset[BATCH + 1] = { 0 }, cls[NBOXES], rows = 0;
        float box[NBOXES][4];

        for (int im = 0; im < per; im++) {
            for (int b = 0; b < NBOXES; b++) {
                if (boxes[b].image != v * per + im)
                    continue;
                cls[rows] = boxes[b].cls;
                memcpy(box[rows++], boxes[b].box, sizeof boxes[b].box);
            }
            offset[im + 1] = rows;
        }
        n->x[v] = tensor_f32(n->images + (size_t)v * (size_t)per * count, per, c.h, c.w, 3);
        n->lists[v][0] = put(n, offset, sizeof offset);
        n->lists[v][1] = put(n, cls, (size_t)rows * sizeof *cls);
        n->lists[v][2] = put(n, box, (size_t)rows * sizeof *box);
        n->truth[v] = (struct box_list){ n->lists[v][0], n->lists[v][1], n->lists[v][2], rows };
        n->raw[v] = put(n, NULL, n->model->raw_terms * sizeof(double));
        n->stats[v] = put(n, NULL, MAX_STATS * sizeof(double));
    }
    n->clip = put(n, &(struct clip){ .factor = 1 }, sizeof(struct clip));
}

/* size: of the job file, NULL: that of the cfg. */
static void net_open(struct net *n, const struct device_ops *ops, const char *cfg, json_t *size, int nshards, struct device_options opt)
{
    struct err err = { 0 };
    json_t *root = json_pack("{s:{s:s},s:{s:{s:s,s:s}},s:{s:i,s:i,s:i}}", "model", "cfg", cfg, "data", "train", "annotations", "none",
                             "images", "none", "train", "steps", STEPS, "batch", BATCH, "shards", nshards);

    memset(n, 0, sizeof *n);
    n->nshards = nshards;
    assert_int_equal(json_object_set_new(json_object_get(root, "model"), "ignore_thresh", json_real(0.5)), 0);
    if (size)
        assert_int_equal(json_object_set_new(json_object_get(root, "model"), "size", size), 0);
    if (jobspec_parse(root, &n->spec, &err) < 0 || ops->open(0, &opt, &n->dev, &err) < 0 ||
        model_open(&models_builtin, n->spec, (struct model_classes){ CLASSES, NULL, NULL }, n->dev, &n->model, &err) < 0)
        fail_msg("%s", err.msg);
    json_decref(root);
    n->arena = arena_new(n->dev, 16 << 20);
    n->tape = tape_new(n->dev, n->arena, n->model->nparams);
    assert_true(n->model->nparams <= MAX_PARAMS);
    for (int i = 0; i < n->model->nparams; i++) {
        for (int v = 0; v < nshards; v++)
            n->grad[v][i] = n->dev->ops->alloc(n->dev, n->model->params[i]->count * sizeof(float));
        n->momentum[i] = n->dev->ops->alloc(n->dev, n->model->params[i]->count * sizeof(float));
    }
    fill(n);
    split(n);
}

static void net_close(struct net *n)
{
    for (int i = 0; i < n->model->nparams; i++) {
        for (int v = 0; v < n->nshards; v++)
            n->dev->ops->free(n->dev, n->grad[v][i]);
        n->dev->ops->free(n->dev, n->momentum[i]);
    }
    for (int v = 0; v < n->nshards; v++) {
        for (int i = 0; i < 3; i++)
            n->dev->ops->free(n->dev, n->lists[v][i]);
        n->dev->ops->free(n->dev, n->raw[v]);
        n->dev->ops->free(n->dev, n->stats[v]);
    }
    n->dev->ops->free(n->dev, n->clip);
    n->dev->ops->free(n->dev, n->images);
    tape_free(n->tape);
    arena_free(n->arena);
    model_free(n->model);
    n->dev->ops->close(n->dev);
    jobspec_free(n->spec);
}

static float *grad_dest(void *arg, const struct param *p, int shard, bool *ret_written)
{
    struct net *n = arg;

    *ret_written = false;
    return n->grad[shard][p->index];
}

/* Folds the shards in tree order into the first one's memory. */
static int grad_ready(void *arg, const struct param *p, struct err *err)
{
    struct net *n = arg;
    struct tree_part parts[MAX_SHARDS];

    for (int v = 0; v < n->nshards; v++)
        parts[v] = (struct tree_part){ v, v + 1, n->grad[v][p->index] };
    return n->dev->on->reduce->tree_add(n->dev, n->grad[0][p->index], parts, n->nshards, p->count, err);
}

/* The statistics are not read here: every normalisation may overwrite the last one's, but they must stay until its
 * backward. */
static double *stats_dest(void *arg, int index, int use, int shard)
{
    struct net *n = arg;
    size_t at = 0;

    (void)use;
    for (int i = 0; i < index; i++)
        at += 2 * n->model->norms[i].mean->count + 1;
    assert_true(at + 2 * n->model->norms[index].mean->count + 1 <= MAX_STATS);
    return n->stats[shard] + at;
}

/* Gradients of one step in n->grad[0]; returns the loss per image. */
static double step(struct net *n)
{
    const struct tape_hooks hooks = { n, grad_dest, grad_ready, stats_dest, NULL };
    struct shard_batch shard[MAX_SHARDS];
    const struct batch b = boxes_batch(shard, n->x, n->truth, n->nshards);
    const struct model_want want = { .raw = n->raw, .images_of_step = BATCH, .shards_of_step = n->nshards };
    double raw[64], record[64], total = 0;
    struct err err = { 0 };

    n->dev->ops->set_tier(n->dev, TIER_WORLD);
    tape_begin(n->tape, TAPE_TRAIN, n->nshards, &hooks);
    if (n->model->ops->forward(n->model, n->tape, &b, &want, &err) < 0 ||
        tape_backward(n->tape, n->model->params, n->model->nparams, &err) < 0)
        fail_msg("%s", err.msg);
    for (int v = 0; v < n->nshards; v++) {
        assert_int_equal(n->dev->ops->download(n->dev, raw, n->raw[v], n->model->raw_terms * sizeof *raw, &err), 0);
        n->model->ops->sum_terms(n->model, raw, BATCH / n->nshards, record);
        total += record[0];
    }
    return total / BATCH;
}

static void update(struct net *n)
{
    struct optim_item items[MAX_PARAMS];
    struct err err;
    int count = 0;

    for (int i = 0; i < n->model->nparams; i++) {
        struct param *p = n->model->params[i];

        if (param_trainable(p))
            items[count++] = (struct optim_item){ .param = p,
                                                  .state = { n->momentum[i] },
                                                  .grad = n->grad[0][i],
                                                  .lr = 0.002f,
                                                  .decay = 0.0005f * n->model->groups[p->group].decay };
    }
    assert_int_equal(n->dev->on->optim->sgd(n->dev, items, count, &(struct sgd){ .momentum = 0.9f }, n->clip, &err), 0);
}

/* Squared distance of a parameter's gradient from the golden one, and the golden one's squared norm. */
static void compare(const struct net *n, const struct param *p, const struct st_array *golden, double *ret_distance, double *ret_norm)
{
    float *want = malloc(p->count * sizeof *want), *have = malloc(p->count * sizeof *have);
    struct err err;

    assert_int_equal(n->dev->ops->download(n->dev, have, n->grad[0][p->index], p->count * sizeof *have, &err), 0);
    assert_int_equal(st_count(golden), p->count);
    assert_int_equal(safetensors_f32(golden, want, &err), 0);
    *ret_distance = *ret_norm = 0;
    for (int k = 0; k < p->k; k++)
        for (int r = 0; r < p->r; r++)
            for (int s = 0; s < p->s; s++)
                for (int c = 0; c < p->c; c++) {
                    double w = (double)want[((k * p->c + c) * p->r + r) * p->s + s],
                           d = (double)have[((k * p->r + r) * p->s + s) * p->c + c] - w;

                    *ret_distance += d * d;
                    *ret_norm += w * w;
                }
    free(want);
    free(have);
}

static struct safetensors *open_golden(const char *path)
{
    struct safetensors *f;
    struct err err;

    if (safetensors_open(path, &f, &err) < 0)
        fail_msg("%s", err.msg);
    return f;
}

static const struct st_array *array(const struct safetensors *f, const char *fmt, ...)
{
    char name[160];
    const struct st_array *a;
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(name, sizeof name, fmt, ap);
    va_end(ap);
    a = safetensors_find(f, name);
    if (!a)
        fail_msg("no array '%s'", name);
    return a;
}

/* ---- tests ---- */

#define SQUARE "tests/golden/yolov3_logistic.safetensors"
#define WIDE   "tests/golden/yolov3_wide.safetensors"

/* NULL: the file has no gradient. */
static const struct st_array *gradient(const struct safetensors *f, int nshards, const struct param *p)
{
    char name[160];

    snprintf(name, sizeof name, "v%d.grad.%s", nshards, p->name);
    return safetensors_find(f, name);
}

static const struct device_options in_fp32 = { 2, "auto", PRECISION_FP32 };

/* Losses of `steps` steps, and those gradients of the first that the file has. size: as net_open(). */
static void logistic(const struct device_ops *ops, const char *golden, json_t *size, int steps, int nshards, uint64_t *ret_bits)
{
    struct safetensors *f = open_golden(golden);
    float want[STEPS];
    struct err err;
    struct net n;
    int compared = 0;

    net_open(&n, ops, "tests/golden/yolov3_logistic.cfg", size, nshards, in_fp32);
    safetensors_f32(array(f, "v%d.losses", nshards), want, &err);
    for (int i = 0; i < steps; i++) {
        double loss = step(&n);

        if (fabs(loss - (double)want[i]) > 1e-4 * (double)want[i])
            fail_msg("V = %d step %d: loss %.7g, reference %.7g", nshards, i, loss, (double)want[i]);
        for (int k = 0; i == 0 && k < n.model->nparams; k++) {
            const struct param *p = n.model->params[k];
            const struct st_array *a = gradient(f, nshards, p);
            double distance, norm;

            if (!a)
                continue;
            compared++;
            compare(&n, p, a, &distance, &norm);
            if (!(sqrt(distance) <= 1e-4 * sqrt(norm)))
                fail_msg("V = %d: gradient of %s is %.2g of its norm off", nshards, p->name, sqrt(distance / norm));
        }
        memcpy(&ret_bits[i], &loss, sizeof loss);
        update(&n);
    }
    assert_true(compared >= 7); /* the first convolution, three heads */
    net_close(&n);
    safetensors_close(f);
}

/* Ten losses and every gradient of step 0 as the reference has them; the same bits from every build of the device. */
static void logistic_net(void **state)
{
    const struct device_ops *const *list = backends();

    (void)state;
    for (int nshards = 1; nshards <= 2; nshards++) {
        uint64_t first[STEPS], bits[STEPS];

        for (int b = 0; list[b]; b++) {
            logistic(list[b], SQUARE, NULL, STEPS, nshards, b ? bits : first);
            if (b)
                assert_memory_equal(bits, first, sizeof first);
        }
    }
}

/* The same net where the input is no square: cells and anchors have two measures. */
static void wide_net(void **state)
{
    (void)state;
    for (int nshards = 1; nshards <= 2; nshards++) {
        uint64_t bits[WIDE_STEPS];

        logistic(backends()[0], WIDE, json_pack("[i, i]", 96, 64), WIDE_STEPS, nshards, bits);
    }
}

/* The CUDA device, on a real GPU where one is named, else on an emulated one: the same losses and gradients, within the
 * same bounds. */
static void logistic_net_on_gpus(void **state)
{
    const struct device_ops *plugin = cuda_plugin(), *ops = plugin ? plugin : cuda_backend_emu();
    uint64_t wide[WIDE_STEPS];

    (void)state;
    for (int nshards = 1; nshards <= 2; nshards++) {
        uint64_t bits[STEPS];

        logistic(ops, SQUARE, NULL, STEPS, nshards, bits);
    }
    logistic(ops, WIDE, json_pack("[i, i]", 96, 64), WIDE_STEPS, 2, wide);
}

/* Kinks flip between precisions, so only step 0 can be compared: the reference's own fp32 is the yardstick. */
static void leaky_net(void **state)
{
    struct safetensors *f = open_golden("tests/golden/yolov3_leaky.safetensors");
    double distance = 0, loss;
    float want, fp32;
    struct err err;
    struct net n;

    (void)state;
    net_open(&n, backends()[0], "tests/golden/yolov3_leaky.cfg", NULL, 1, in_fp32);
    safetensors_f32(array(f, "loss"), &want, &err);
    safetensors_f32(array(f, "fp32_distance"), &fp32, &err);
    loss = step(&n);
    assert_true(fabs(loss - (double)want) <= 1e-5 * (double)want);
    for (int k = 0; k < n.model->nparams; k++) {
        const struct param *p = n.model->params[k];
        double d, norm;

        if (!param_trainable(p))
            continue;
        compare(&n, p, array(f, "grad.%s", p->name), &d, &norm);
        distance += d;
    }
    print_message("gradient: %.2g from fp64, the reference's own fp32 %.2g\n", sqrt(distance), (double)fp32);
    assert_true(sqrt(distance) <= 10 * (double)fp32);
    net_close(&n);
    safetensors_close(f);
}

/* The distance of all gradients from those in fp64. */
static double gradient_distance(const struct net *n, const struct safetensors *exact)
{
    double sum = 0;

    for (int k = 0; k < n->model->nparams; k++) {
        double d, norm;

        if (!param_trainable(n->model->params[k]))
            continue;
        compare(n, n->model->params[k], array(exact, "v1.grad.%s", n->model->params[k]->name), &d, &norm);
        sum += d;
    }
    return sqrt(sum);
}

/* Two ways of rounding affect maps of 2 x 2, normalised over 16 pixels, partly by chance: over six sets of numbers,
 * including these, the ratio of the gradient's distances was .65 to 1.29, in the geometric mean .94. */
#define LUCK 1.25

/* The error of bf16: ten losses are no farther from fp64 than the reference's own under autocast. The gradient of step
 * 0 is not farther either, apart from chance. Every build gives equal bits. */
static void bf16_on(const struct device_ops *ops, int threads, double ret_losses[STEPS])
{
    struct safetensors *exact = open_golden(SQUARE), *reference = open_golden("tests/golden/yolov3_bf16.safetensors");
    float want[STEPS], off[STEPS], distance, farthest = 0;
    double own = 0;
    struct err err;
    struct net n;

    net_open(&n, ops, "tests/golden/yolov3_logistic.cfg", NULL, 1, (struct device_options){ threads, "auto", PRECISION_BF16 });
    safetensors_f32(array(exact, "v1.losses"), want, &err);
    safetensors_f32(array(reference, "losses"), off, &err);
    safetensors_f32(array(reference, "distance"), &distance, &err);
    for (int i = 0; i < STEPS; i++)
        farthest = off[i] > farthest ? off[i] : farthest;
    for (int i = 0; i < STEPS; i++) {
        ret_losses[i] = step(&n);
        own = fmax(own, fabs(ret_losses[i] - (double)want[i]));
        if (i == 0) {
            double d = gradient_distance(&n, exact);

            print_message("bf16: gradient %.3g from fp64, the reference's %.3g\n", d, (double)distance);
            assert_true(d <= LUCK * (double)distance);
        }
        update(&n);
    }
    print_message("bf16: losses at most %.3g from fp64, the reference's %.3g\n", own, (double)farthest);
    assert_true(own <= (double)farthest);
    net_close(&n);
    safetensors_close(exact);
    safetensors_close(reference);
}

static void bf16_net(void **state)
{
    const struct device_ops *const *list = backends();
    double first[STEPS], other[STEPS];

    (void)state;
    for (int b = 0; list[b]; b++) {
        bf16_on(list[b], 1 + b, b ? other : first);
        if (b)
            assert_memory_equal(other, first, sizeof first);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(logistic_net), cmocka_unit_test(wide_net), cmocka_unit_test(logistic_net_on_gpus),
                                        cmocka_unit_test(leaky_net), cmocka_unit_test(bf16_net) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
