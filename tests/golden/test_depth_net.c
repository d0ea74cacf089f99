/* SPDX-License-Identifier: Apache-2.0 */ /* uses: proto trainer cpu cuda
 * tests/golden/test_depth_net.c - depth networks against PyTorch in double precision: terms and gradients of the first
 * step, statistics and the terms of validation after it, and the terms of ten steps (make_depth_net.py). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <jansson.h>

#include "proto/err.h"
#include "proto/job/jobspec.h"
#include "worker/comm/comm.h"
#include "worker/comm/staged.h"
#include "worker/core/arena.h"
#include "worker/data/sample/frames.h"
#include "worker/gradients/gradients.h"
#include "worker/layers/layers.h"
#include "worker/models/builtin.h"
#include "worker/models/depth/depth.h"
#include "worker/models/registry.h"
#include "worker/models/weights.h"
#include "worker/optim/optimizer.h"
#include "worker/optim/schedule.h"
#include "worker/train/statistics.h"

const struct device_ops *cpu_backend_avx512(void);
const struct device_ops *cpu_backend_avx2(void);
const struct device_ops *cpu_backend_generic(void);
const struct device_ops *cuda_backend_emu(void);

enum { H = 96, W = 128, IMAGES = 2, STEPS = 10, KEYED_STEPS = 4, VECTORS = 3, MAX_BUFFERS = 16 };

/* The cases of the files: presets as they are; then presets with every key at another value than its default, and
 * ResNet-50. */
enum { BASELINE, UPCONV, FEATURES, JOINT, AUTOENCODER, PLAIN_CASES };
enum { FEATURES_KEYS, JOINT_KEYS, AUTOENCODER_KEYS, DEEP, KEYED_CASES };
static const char plain_file[] = "tests/golden/depth_net.json", keyed_file[] = "tests/golden/depth_net_keys.json";

/* ---- inputs: the formulas of make_depth_net.py ---- */

static uint32_t noise(uint32_t i)
{
    i = i * 2654435761u + 1;
    i ^= i >> 15;
    i *= 2246822519u;
    return i ^ i >> 13;
}

static double uniform(const char *name, uint32_t i)
{
    uint32_t h = 2166136261u;

    for (; *name; name++)
        h = (h ^ (uint8_t)*name) * 16777619u;
    return (noise(h + i) >> 8) / 16777216.0;
}

static bool ends(const char *text, const char *end)
{
    return strlen(text) >= strlen(end) && strcmp(text + strlen(text) - strlen(end), end) == 0;
}

static float value(const struct param *p, uint32_t i)
{
    double u = uniform(p->name, i);

    if (ends(p->name, "running_mean"))
        return (float)(0.2 * u - 0.1);
    if (ends(p->name, "running_var"))
        return (float)(0.75 + 0.5 * u);
    if (p->layout == LAYOUT_VECTOR && (strstr(p->name, ".bn") || strstr(p->name, "downsample.1")))
        return (float)(ends(p->name, "weight") ? 0.75 + 0.5 * u : 0.2 * u - 0.1);
    if (p->layout == LAYOUT_VECTOR)
        return (float)(0.1 * u - 0.05);
    return (float)((u - 0.5) * sqrt(6.0 / (p->c * p->r * p->s)));
}

/* A pixel of a moving camera: which = -1, 0, 1, or 2 for the other camera. */
static uint8_t pixel(int which, int image, int y, int x, int c)
{
    int v = (5 * x + 3 * y + 90 * c + 60 * image + 11 * which + 2 * 512 + x * y / 16) % 512;

    v = v < 256 ? v : 511 - v;
    return (uint8_t)(v * 15 / 16 + (int)(noise((uint32_t)(((image * H + y) * W + x) * 3 + c + 1000003 * (which + 1))) >> 28));
}

/* A model on a device, and everything a step needs, in plain buffers. */
struct net {
    struct device *dev, *side;
    struct jobspec *spec;
    struct model *model;
    struct arena *arena;
    struct tape *tape;
    struct comm *comm, *link; /* link: over the device's memory */
    struct gradients *gradients;
    struct optimizer *optimizer;
    struct statistics *statistics;
    double *raw[IMAGES];
    int32_t *skip; /* 0: no step is left out */
    int nshards;   /* 1, or one an image, with normalisations over all of them */
    bool dim;      /* the networks of depth and motion see other colours than losses do */
    double near;   /* permitted distance of a gradient from its file's, as a fraction of its length */
    struct shard_batch shard[IMAGES];
    struct batch batch;
    int nbuffers;
    void *buffer[MAX_BUFFERS];
};

static void *put(struct net *n, const void *host, size_t bytes)
{
    void *p = n->dev->ops->alloc(n->dev, bytes);
    struct err err;

    assert_non_null(p);
    assert_true(n->nbuffers < MAX_BUFFERS);
    n->buffer[n->nbuffers++] = p;
    if (host)
        assert_int_equal(n->dev->ops->upload(n->dev, p, host, bytes, &err), 0);
    return p;
}

/* dim: of a sample with changed colours. */
static void *put_picture(struct net *n, int which, bool dim)
{
    static uint8_t bytes[IMAGES][H][W][3];

    for (int i = 0; i < IMAGES; i++)
        for (int y = 0; y < H; y++)
            for (int x = 0; x < W; x++)
                for (int c = 0; c < 3; c++)
                    bytes[i][y][x][c] = (uint8_t)(dim ? pixel(which, i, y, x, c) * 7 / 8 : pixel(which, i, y, x, c));
    return put(n, bytes, sizeof bytes);
}

/* The same pictures cut into shards. */
static void cut(struct net *n)
{
    struct shard_batch all = n->shard[0];

    for (int i = 0; i < n->nshards; i++) {
        struct shard_batch *s = &n->shard[i];

        *s = all;
        s->n = IMAGES / n->nshards;
        s->shard = i;
        s->index += i * s->n;
        for (int k = 0; k < n->batch.form->narrays; k++)
            if (all.array[k])
                s->array[k] = (char *)all.array[k] + (size_t)i * batch_bytes(n->batch.form, s, k);
    }
}

static void make_batch(struct net *n)
{
    static const int32_t index[IMAGES] = { 0, 1 };
    static const float stereo[IMAGES] = { -0.015f, 0.015f };
    int id[FRAMES_MAX_SOURCES], nsources = frames_sources(n->spec, id);
    const struct batch_form *f = frames_form(nsources);
    struct shard_batch *s = &n->shard[0];
    float camera[IMAGES][4];
    char name[24];

    *s = (struct shard_batch){ .n = IMAGES, .canvas = { H, W }, .index = index };
    for (int i = 0; i < IMAGES; i++)
        for (int k = 0; k < 4; k++)
            camera[i][k] = (float)((double[4]){ 0.9 * W + 3 * i, 1.1 * H - 2 * i, W / 2 + 3 + i, H / 2 - 2 }[k]);
    s->array[batch_array_of(f, "picture")] = put_picture(n, 0, false);
    s->array[batch_array_of(f, "seen")] = put_picture(n, 0, n->dim);
    for (int i = 0; i < nsources; i++) {
        snprintf(name, sizeof name, "source%d", i);
        s->array[batch_array_of(f, name)] = put_picture(n, id[i] == FRAMES_STEREO ? 2 : id[i], false);
        snprintf(name, sizeof name, "seen%d", i);
        s->array[batch_array_of(f, name)] = put_picture(n, id[i] == FRAMES_STEREO ? 2 : id[i], n->dim);
    }
    s->array[batch_array_of(f, "camera")] = put(n, camera, sizeof camera);
    s->array[batch_array_of(f, "stereo")] = put(n, stereo, sizeof stereo);
    n->batch = (struct batch){ .form = f, .step = 1, .last = true, .nshards = n->nshards, .shard = s };
    cut(n);
}

static void fill(struct net *n)
{
    struct err err = { 0 };

    for (int i = 0; i < n->model->nparams; i++) {
        struct param *p = n->model->params[i];
        float *w = calloc(p->count, sizeof *w);

        assert_non_null(w);
        for (size_t e = 0; e < p->count; e++)
            w[e] = value(p, (uint32_t)e);
        if (weights_put_stored(n->model, p, w, false, &err) < 0)
            fail_msg("%s", err.msg);
        free(w);
    }
}

static struct jobspec *spec_of(json_t *of, int nshards)
{
    const char *kind = json_string_value(json_object_get(of, "kind"));
    bool features = strcmp(kind, "features") == 0, encoder = strcmp(kind, "autoencoder") == 0;
    json_t *layers = json_object_get(of, "layers"), *keys = json_object_get(of, "keys");
    char preset[48];
    struct jobspec *spec;
    struct err err = { 0 };
    json_t *root;

    snprintf(preset, sizeof preset, "featdepth_%s%sr%d", features ? "" : kind, features ? "" : "_",
             layers ? (int)json_integer_value(layers) : 18);
    root = json_pack("{s:{s:s,s:f,s:[i,i]},s:{s:{s:s,s:s}},s:{s:i,s:i,s:i,s:f,s:f,s:s,s:i}}", "model", "preset", preset, "width", 0.125,
                     "size", W, H, "data", "train", "annotations", "none", "images", "none", "train", "steps", 1000, "batch", IMAGES,
                     "shards", nshards, "lr", 1e-4, "clip_norm", 0.5, "schedule", "constant", "burn_in", 0);
    json_object_set_new(json_object_get(root, "model"), "sync_bn", json_boolean(nshards > 1));
    if (!encoder) {
        json_object_set_new(json_object_get(root, "model"), "automask_noise", json_string("none"));
        json_object_set(json_object_get(root, "model"), "decoder", json_object_get(of, "decoder"));
        json_object_set(json_object_get(root, "data"), "sources", json_object_get(of, "sources"));
        json_object_set(json_object_get(root, "data"), "stereo", json_object_get(of, "stereo"));
    }
    if (features)
        json_object_set_new(json_object_get(root, "model"), "init_extractor", json_string("/made/up"));
    if (keys)
        json_object_update(json_object_get(root, "model"), keys);
    if (jobspec_parse(root, &spec, &err) < 0)
        fail_msg("%s", err.msg);
    json_decref(root);
    jobspec_forget_inits(spec);
    return spec;
}

static void net_open(struct net *n, const struct device_ops *ops, json_t *of, int nshards)
{
    const struct device_options one = { 1, "auto", PRECISION_FP32 };
    const struct comm_options alone = { .fd = -1, .nranks = 1, .timeout_ms = 60000 };
    struct gradients_options opt = { .nshards = nshards, .nwaves = 1 };
    struct err err = { 0 };

    *n = (struct net){ .spec = spec_of(of, nshards), .nshards = nshards, .dim = json_object_get(of, "keys") != NULL };
    if (ops->open(0, &one, &n->dev, &err) < 0 || ops->open(0, &one, &n->side, &err) < 0 ||
        model_open(&models_builtin, n->spec, (struct model_classes){ 0, NULL, NULL }, n->dev, &n->model, &err) < 0 ||
        comm_open_shm(&alone, &n->comm, &err) < 0)
        fail_msg("%s", err.msg);
    n->link = n->comm;
    if (!n->dev->host_memory)
        assert_int_equal(comm_open_staged(n->comm, n->dev, n->side, &n->link, &err), 0);
    opt.dev = n->dev;
    opt.side = n->side;
    opt.comm = n->link;
    n->arena = arena_new(n->dev, (size_t)256 << 20);
    n->tape = tape_new(n->dev, n->arena, n->model->nparams);
    if (gradients_open(&opt, n->model->params, n->model->nparams, &n->gradients, &err) < 0 ||
        optimizer_open(n->dev, n->spec, n->model->params, n->model->nparams, n->model->groups, &n->optimizer, &err) < 0)
        fail_msg("%s", err.msg);
    if (statistics_open(&(struct statistics_options){ n->dev, n->link, n->model, nshards, 1 }, &n->statistics, &err) < 0)
        fail_msg("%s", err.msg);
    n->skip = put(n, &(int32_t){ 0 }, sizeof(int32_t));
    for (int i = 0; i < IMAGES; i++)
        n->raw[i] = put(n, NULL, n->model->raw_terms * sizeof(double));
    fill(n);
    make_batch(n);
}

static void net_close(struct net *n)
{
    statistics_close(n->statistics);
    optimizer_close(n->optimizer);
    gradients_close(n->gradients);
    if (n->link != n->comm)
        comm_close(n->link);
    comm_close(n->comm);
    tape_free(n->tape);
    arena_free(n->arena);
    for (int i = 0; i < n->nbuffers; i++)
        n->dev->ops->free(n->dev, n->buffer[i]);
    model_free(n->model);
    n->side->ops->close(n->side);
    n->dev->ops->close(n->dev);
    jobspec_free(n->spec);
}

/* ---- a step ---- */

static float *sum_dest(void *arg, const struct param *p, int shard, bool *ret_written)
{
    return gradients_dest(((struct net *)arg)->gradients, p, shard, ret_written);
}

static int sum_ready(void *arg, const struct param *p, struct err *err)
{
    return gradients_ready(((struct net *)arg)->gradients, p, err);
}

static double *stats_dest(void *arg, int index, int use, int shard)
{
    return statistics_dest(((struct net *)arg)->statistics, index, use, shard);
}

static int merge(void *arg, enum merge_kind kind, const double *const *local, int nnumbers, double *ret, struct err *err)
{
    struct net *n = arg;

    return statistics_merge(n->statistics, kind, (struct span){ 0, n->nshards }, local, nnumbers, ret, err);
}

static const struct loss_term *term_at(const struct net *n, int k)
{
    return &n->model->terms[k];
}

/* Sums of rows `row` to row + rows - 1 of raw, compared as terms. */
static void check_terms(struct net *n, int row, int rows, json_t *want, double tol, const char *when)
{
    double raw[64], part[64], record[64] = { 0 }, sum = 0;
    struct err err;

    for (int i = 0; i < rows; i++) {
        assert_int_equal(n->dev->ops->download(n->dev, raw, n->raw[row + i], n->model->raw_terms * sizeof *raw, &err), 0);
        n->model->ops->sum_terms(n->model, raw, 1, part);
        for (int k = 0; k < 2 * n->model->nterms; k++)
            record[k] += part[k];
    }
    assert_int_equal(json_object_size(want), n->model->nterms - 1);
    for (int k = 1; k < n->model->nterms; k++) {
        double w = json_number_value(json_object_get(want, term_at(n, k)->name)), got = record[2 * k] / record[2 * k + 1];

        if (!(fabs(got - w) <= tol * fabs(w) + 1e-7))
            fail_msg("%s, %s: %.9g, should be %.9g", when, term_at(n, k)->name, got, w);
        sum += w;
    }
    assert_true(fabs(record[0] / record[1] - sum) <= tol * fabs(sum) + 1e-6);
}

/* The length of n numbers and their products with the vectors of a name, compared with the expected values. */
static void check_probe(const char *name, const float *x, size_t n, json_t *want, double tol)
{
    double length = json_number_value(json_array_get(want, 0)), got[VECTORS + 1] = { 0 };
    char vector[128];

    for (size_t i = 0; i < n; i++)
        got[0] += (double)x[i] * (double)x[i];
    got[0] = sqrt(got[0]);
    for (int k = 0; k < VECTORS; k++) {
        snprintf(vector, sizeof vector, "%s:%d", name, k);
        for (size_t i = 0; i < n; i++)
            got[k + 1] += (double)x[i] * (uniform(vector, (uint32_t)i) - 0.5);
    }
    assert_int_equal(json_array_size(want), VECTORS + 1);
    for (int k = 0; k <= VECTORS; k++)
        if (!(fabs(got[k] - json_number_value(json_array_get(want, (size_t)k))) <= tol * length + 1e-9))
            fail_msg("%s: product %d is %.9g, should be %.9g, of length %g", name, k, got[k],
                     json_number_value(json_array_get(want, (size_t)k)), length);
}

/* The gradient of p as its file would have it. */
static float *gradient(struct net *n, struct param *p)
{
    float *weights = p->data, *ret;
    struct err err;

    p->data = gradients_sum(n->gradients, p);
    ret = weights_get_stored(n->model, p, &err);
    p->data = weights;
    assert_non_null(ret);
    return ret;
}

static void check_gradients(struct net *n, json_t *want)
{
    size_t trained = 0;

    for (int i = 0; i < n->model->nparams; i++) {
        struct param *p = n->model->params[i];
        json_t *of = json_object_get(want, p->name);
        float *got;

        if (!param_trainable(p)) {
            assert_null(of);
            continue;
        }
        if (!of)
            fail_msg("%s trains, and is not in the golden file", p->name);
        got = gradient(n, p);
        check_probe(p->name, got, p->count, of, n->near);
        free(got);
        trained++;
    }
    assert_int_equal(trained, json_object_size(want));
}

static void check_statistics(struct net *n, json_t *want)
{
    size_t found = 0;

    for (int i = 0; i < n->model->nparams; i++) {
        struct param *p = n->model->params[i];
        json_t *of = json_object_get(want, p->name);
        struct err err;
        float *got;

        if (!strstr(p->name, "running"))
            continue;
        if (!of)
            fail_msg("%s is not in the golden file", p->name);
        got = weights_get_stored(n->model, p, &err);
        assert_non_null(got);
        check_probe(p->name, got, p->count, of, 1e-4);
        free(got);
        found++;
    }
    assert_int_equal(found, json_object_size(want));
}

/* A row an image, with running statistics and without random draws. */
static void check_validation(struct net *n, json_t *want)
{
    const struct model_want of = { .raw = n->raw };
    struct err err = { 0 };
    char when[32];

    n->batch.step = 0;
    tape_begin(n->tape, TAPE_EVAL, n->nshards, NULL);
    if (n->model->ops->forward(n->model, n->tape, &n->batch, &of, &err) < 0)
        fail_msg("%s", err.msg);
    for (int i = 0; i < IMAGES; i++) {
        snprintf(when, sizeof when, "image %d", i);
        check_terms(n, i, 1, json_array_get(want, (size_t)i), 2e-3, when);
    }
}

static void step(struct net *n, int at, json_t *of)
{
    const struct tape_hooks hooks = { n, sum_dest, sum_ready, stats_dest, n->nshards > 1 ? merge : NULL };
    const struct model_want want = { .raw = n->raw, .images_of_step = IMAGES, .shards_of_step = n->nshards };
    struct err err = { 0 };
    char when[32];

    snprintf(when, sizeof when, "step %d", at);
    n->batch.step = at + 1;
    n->dev->ops->set_tier(n->dev, TIER_WORLD);
    gradients_begin(n->gradients);
    gradients_wave(n->gradients, 0);
    tape_begin(n->tape, TAPE_TRAIN, n->nshards, &hooks);
    if (n->model->ops->forward(n->model, n->tape, &n->batch, &want, &err) < 0 ||
        tape_backward(n->tape, n->model->params, n->model->nparams, &err) < 0 || gradients_wait(n->gradients, &err) < 0)
        fail_msg("%s", err.msg);
    check_terms(n, 0, n->nshards, json_array_get(json_object_get(of, "terms"), (size_t)at), at == 0 ? 1e-5 : 5e-3, when);
    if (at == 0)
        check_gradients(n, json_object_get(of, "gradients"));
    if (statistics_gather(n->statistics, &err) < 0 || statistics_update(n->statistics, 0.1f, n->skip, &err) < 0 ||
        optimizer_step(n->optimizer, n->gradients, 1, schedule_lr(n->spec, at + 1), at + 1, &err) < 0)
        fail_msg("%s", err.msg);
    if (at > 0)
        return;
    check_statistics(n, json_object_get(of, "statistics"));
    check_validation(n, json_object_get(of, "validation"));
}

static void check_net(const struct device_ops *ops, json_t *of, int nshards, int steps)
{
    struct net n;

    net_open(&n, ops, json_object_get(of, "case"), nshards);
    n.near = json_object_get(json_object_get(of, "case"), "layers") ? 0.25 : 2e-3;
    for (int i = 0; i < steps; i++)
        step(&n, i, of);
    net_close(&n);
}

static void check_of(const char *file, size_t cases, const struct device_ops *ops, size_t of, int nshards, int steps)
{
    json_t *root = json_load_file(file, 0, NULL);

    assert_int_equal(json_array_size(root), cases);
    check_net(ops, json_array_get(root, of), nshards, steps);
    json_decref(root);
}

static void check(const struct device_ops *ops, size_t of, int nshards, int steps)
{
    check_of(plain_file, PLAIN_CASES, ops, of, nshards, steps);
}

static void check_keyed(const struct device_ops *ops, size_t of, int nshards, int steps)
{
    check_of(keyed_file, KEYED_CASES, ops, of, nshards, steps);
}

static const struct device_ops *cpu(void)
{
    return __builtin_cpu_supports("x86-64-v4")   ? cpu_backend_avx512()
           : __builtin_cpu_supports("x86-64-v3") ? cpu_backend_avx2()
                                                 : cpu_backend_generic();
}

static void baseline(void **state)
{
    (void)state;
    check(cpu(), BASELINE, 1, STEPS);
}

static void baseline_of_monodepth(void **state)
{
    (void)state;
    check(cpu(), UPCONV, 1, STEPS);
}

static void features_and_stereo(void **state)
{
    (void)state;
    check(cpu(), FEATURES, 1, STEPS);
}

static void joint(void **state)
{
    (void)state;
    check(cpu(), JOINT, 1, STEPS);
}

/* Normalisations see the other shards: the numbers equal those of the batch as a whole, running statistics too. Only
 * for networks without dropout, because shards draw separately. */
static void in_shards(void **state)
{
    (void)state;
    check(cpu(), UPCONV, IMAGES, STEPS);
    check(cpu(), AUTOENCODER, IMAGES, STEPS);
}

static void autoencoder(void **state)
{
    (void)state;
    check(cpu(), AUTOENCODER, 1, STEPS);
}

/* Heavy terms drive small differences apart sooner. */
static void features_with_keys(void **state)
{
    (void)state;
    check_keyed(cpu(), FEATURES_KEYS, 1, KEYED_STEPS);
}

static void joint_with_keys(void **state)
{
    (void)state;
    check_keyed(cpu(), JOINT_KEYS, 1, KEYED_STEPS);
}

static void autoencoder_with_keys(void **state)
{
    (void)state;
    check_keyed(cpu(), AUTOENCODER_KEYS, 1, KEYED_STEPS);
}

/* Only the size and direction of its gradients are compared: weights that differ by a millionth give gradients that
 * differ by a tenth, in double precision, too. */
static void joint_of_resnet_50(void **state)
{
    (void)state;
    check_keyed(cpu(), DEEP, 1, 1);
}

static void joint_on_emulated_gpu(void **state)
{
    (void)state;
    check(cuda_backend_emu(), JOINT, 1, 1);
}

static void features_with_keys_on_emulated_gpu(void **state)
{
    (void)state;
    check_keyed(cuda_backend_emu(), FEATURES_KEYS, 1, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(baseline),
        cmocka_unit_test(baseline_of_monodepth),
        cmocka_unit_test(features_and_stereo),
        cmocka_unit_test(joint),
        cmocka_unit_test(in_shards),
        cmocka_unit_test(autoencoder),
        cmocka_unit_test(features_with_keys),
        cmocka_unit_test(joint_with_keys),
        cmocka_unit_test(autoencoder_with_keys),
        cmocka_unit_test(joint_of_resnet_50),
        cmocka_unit_test(joint_on_emulated_gpu),
        cmocka_unit_test(features_with_keys_on_emulated_gpu),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
