/* SPDX-License-Identifier: Apache-2.0 */ /* tests/golden/rcnn_net.h - the networks of make_rcnn_net.py: Faster and Mask R-CNN of few channels on a device, with weights, pictures and objects that are
 * formulas. */
#pragma once
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
#include "worker/core/arena.h"
#include "worker/core/safetensors.h"
#include "worker/data/sample/instances.h"
#include "worker/layers/layers.h"
#include "worker/layers/tape.h"
#include "worker/models/builtin.h"
#include "worker/models/rcnn/network.h"
#include "worker/models/rcnn/rcnn.h"
#include "worker/models/weights.h"

enum { IMAGES = 2, CLASSES = 3, STEPS = 10, MAX_PARAMS = 512, EVERY = 5, LARGE = 1000, MAX_RUNS = 4096, NBOXES = 5 };
#define MASKS 60 /* in the scene of edges: how much larger the weights of mask logits are */

/* The pictures and objects that make_rcnn_net.py gives to a network. */
struct scene {
    int h, w;
    int32_t size[IMAGES][2], picture[IMAGES][2]; /* of the pictures on the canvas, and as they were */
    struct {
        int image, cls;
        float box[4]; /* x1 y1 x2 y2 */
    } box[NBOXES];
};

static const struct scene plain_scene = {
    96,
    128,
    { { 96, 128 }, { 80, 112 } },
    { { 96, 128 }, { 80, 112 } },
    { { 0, 0, { 10.5f, 12.25f, 52.0f, 60.5f } },
      { 0, 2, { 60.0f, 20.0f, 121.5f, 90.25f } },
      { 0, 1, { 30.25f, 50.0f, 44.0f, 66.0f } },
      { 1, 1, { 8.0f, 9.5f, 40.0f, 71.75f } },
      { 1, 0, { 50.5f, 30.0f, 108.25f, 76.0f } } },
};

/* This scene shows details that the scene above does not show. */
static const struct scene edges = {
    96,
    160,
    { { 96, 160 }, { 81, 141 } },
    { { 103, 167 }, { 95, 162 } },
    { { 0, 0, { 2.0f, 8.0f, 158.7999f, 88.0f } },
      { 0, 2, { 3.5f, 1.25f, 157.0f, 93.5f } },
      { 0, 1, { 20.0f, 50.0f, 44.0f, 86.0f } },
      { 1, 1, { 15.0f, 12.0f, 70.0f, 75.0f } },
      { 1, 0, { 70.5f, 20.0f, 130.25f, 78.0f } } },
};
static const struct {
    const char *name;
    uint32_t at;
    float value;
} biases_of_edges[2][6] = {
    /* of detectron2, of torchvision */
    {
        { "rpn.head.cls_logits.bias", 0, 20.15f },
        { "rpn.head.cls_logits.bias", 1, 20 },
        { "rpn.head.cls_logits.bias", 2, 19.95f },
        { "rpn.head.bbox_pred.bias", 2, -10 },
        { "roi_heads.box_predictor.bbox_pred.bias", 6, -55 },
        { "roi_heads.mask_predictor.mask_fcn_logits.bias", 2, 0.85f },
    },
    {
        { "rpn.head.cls_logits.bias", 0, 20.15f },
        { "rpn.head.cls_logits.bias", 1, 20 },
        { "rpn.head.cls_logits.bias", 2, 19.95f },
        { "rpn.head.bbox_pred.bias", 2, -9.7f },
        { "roi_heads.box_predictor.bbox_pred.bias", 10, -55 },
        { "roi_heads.mask_predictor.mask_fcn_logits.bias", 3, 0.85f },
    },
};

/* ---- inputs: the formulas of make_rcnn_net.py ---- */

static uint32_t noise(uint32_t i)
{
    i = i * 2654435761u + 1;
    i ^= i >> 15;
    i *= 2246822519u;
    return i ^ i >> 13;
}

static uint32_t key_of(const char *name)
{
    uint32_t h = 2166136261u;

    for (; *name; name++)
        h = (h ^ (uint8_t)*name) * 16777619u;
    return h;
}

static bool ends(const char *text, const char *end)
{
    return strlen(text) >= strlen(end) && strcmp(text + strlen(text) - strlen(end), end) == 0;
}

/* Element i of an array; fan_in numbers make an output (1: an element of a vector). */
static float value(const char *name, uint32_t i, bool vector, int fan_in)
{
    double u = (noise(key_of(name) + i) >> 8) / 16777216.0;

    if (ends(name, "running_mean"))
        return (float)(0.2 * u - 0.1);
    if (ends(name, "running_var"))
        return (float)(0.75 + 0.5 * u);
    if (vector && (strstr(name, ".bn") || strstr(name, "downsample.1")))
        return (float)(ends(name, "weight") ? (0.75 + 0.5 * u) * (strstr(name, ".bn3") ? 0.25 : 1) : 0.2 * u - 0.1);
    if (vector)
        return (float)(0.1 * u - 0.05);
    return (float)((u - 0.5) * sqrt((strstr(name, "rpn.head.bbox") || strstr(name, "box_predictor") ? 0.2 : 6.0) / fan_in));
}

/* A model on a device, and everything a step needs, in plain buffers. */
struct net {
    struct device *dev;
    struct jobspec *spec;
    bool tv;
    const struct scene *scene;
    struct model *model;
    struct arena *arena;
    struct tape *tape;
    float *grad[MAX_PARAMS];
    double *raw[IMAGES];
    struct shard_batch shard;
    struct batch batch;
    int nbuffers;
    void *buffer[16];
};

/* Torchvision's name of parameter i, in any flavor. */
static const char *name_of(const struct net *n, int i)
{
    static char name[128];
    const struct rcnn_named *a = &rcnn_network_of(n->model)->front.named[i];

    assert_true(rcnn_spell(RCNN_TV, &a->part, a->array, name, sizeof name));
    return name;
}

/* The weights for the scene `edges`. */
static float edge_value(bool tv, const char *name, uint32_t e, float w)
{
    for (size_t i = 0; i < sizeof biases_of_edges[0] / sizeof *biases_of_edges[0]; i++)
        if (biases_of_edges[tv][i].at == e && strcmp(biases_of_edges[tv][i].name, name) == 0)
            return biases_of_edges[tv][i].value;
    return strcmp(name, "roi_heads.mask_predictor.mask_fcn_logits.weight") == 0 ? MASKS * w : w;
}

static void fill(struct net *n)
{
    for (int i = 0; i < n->model->nparams; i++) {
        struct param *p = n->model->params[i];
        const char *name = name_of(n, i);
        float *w = calloc(p->count, sizeof *w);
        int fan_in = p->layout == LAYOUT_IOHW ? p->c : p->c * p->r * p->s;
        float scale = !n->tv && strcmp(name, "backbone.body.conv1.weight") == 0 ? 1.0f / 64 : 1; /* pictures reach 150 there */
        struct err err;

        for (size_t e = 0; e < p->count; e++)
            w[e] = scale * value(name, (uint32_t)e, p->layout == LAYOUT_VECTOR, fan_in);
        for (size_t e = 0; e < p->count && n->scene == &edges; e++)
            w[e] = edge_value(n->tv, name, (uint32_t)e, w[e]);
        assert_int_equal(weights_put_stored(n->model, p, w, false, &err), 0);
        free(w);
    }
}

static void *put(struct net *n, const void *host, size_t bytes)
{
    void *p = n->dev->ops->alloc(n->dev, bytes + 1);
    struct err err;

    assert_non_null(p);
    n->buffer[n->nbuffers++] = p;
    if (host)
        assert_int_equal(n->dev->ops->upload(n->dev, p, host, bytes, &err), 0);
    return p;
}

/* Is the pixel the object's? A box of whole pixels without a corner, as bitmap() in make_rcnn_net.py. */
static bool inside(const float box[4], int y, int x)
{
    int x1 = (int)rintf(box[0]), y1 = (int)rintf(box[1]), x2 = (int)rintf(box[2]), y2 = (int)rintf(box[3]), corner = (y2 - y1) / 3;

    return x >= x1 && x < x2 && y >= y1 && y < y2 && !(y - y1 < corner && x < x1 + corner - (y - y1));
}

/* Run lengths down the columns of the picture. */
static int runs_of(const struct scene *s, int b, int32_t *ret)
{
    const int32_t *size = s->size[s->box[b].image];
    bool now = false;
    int n = 1;

    ret[0] = 0;
    for (int x = 0; x < size[1]; x++)
        for (int y = 0; y < size[0]; y++) {
            if (inside(s->box[b].box, y, x) != now) {
                now = !now;
                ret[n++] = 0;
            }
            ret[n - 1]++;
        }
    return n;
}

static void make_batch(struct net *n)
{
    const struct batch_form *f = task_instances.form;
    const struct scene *scene = n->scene;
    size_t pixels = (size_t)(IMAGES * scene->h * scene->w * 3);
    uint8_t *pixel = malloc(pixels);
    static int32_t run[MAX_RUNS];
    int32_t offset[IMAGES + 1] = { 0 }, cls[NBOXES], at[NBOXES + 1] = { 0 }, none[NBOXES + 1] = { 0 };
    int32_t polygon[NBOXES + 1] = { 0 }, point[NBOXES + 1] = { 0 };
    double xy[NBOXES * 8];
    float box[NBOXES][4];
    struct shard_batch *s = &n->shard;
    static const int32_t index[IMAGES] = { 0, 1 };

    for (uint32_t i = 0; i < pixels; i++)
        pixel[i] = (uint8_t)(noise(i + 77) >> 24);
    for (int b = 0; b < NBOXES; b++) {
        cls[b] = scene->box[b].cls;
        memcpy(box[b], scene->box[b].box, sizeof box[b]);
        offset[scene->box[b].image + 1] = b + 1;
        at[b + 1] = at[b] + runs_of(scene, b, run + at[b]);
        assert_true(at[b + 1] < MAX_RUNS - 1024);
        polygon[b + 1] = b + 1;
        point[b + 1] = 4 * (b + 1);
        for (int k = 0; k < 8; k++) /* the box, corner by corner */
            xy[8 * b + k] = (double)box[b][(k % 2 ? 1 : 0) + (k % 2 ? k >= 4 : k == 2 || k == 4) * 2];
    }
    *s = (struct shard_batch){ .n = IMAGES, .canvas = { scene->h, scene->w }, .index = index };
    s->array[batch_array_of(f, "image")] = put(n, pixel, pixels);
    s->array[batch_array_of(f, "size")] = put(n, scene->size, sizeof scene->size);
    s->array[batch_array_of(f, "truth.class")] = put(n, cls, sizeof cls);
    s->array[batch_array_of(f, "truth.box")] = put(n, box, sizeof box);
    s->array[batch_array_of(f, "run.length")] = put(n, run, (size_t)at[NBOXES] * sizeof *run);
    s->array[batch_array_of(f, "point.xy")] = put(n, xy, sizeof xy);
    s->offset[batch_list_of(f, "truth")] = put(n, offset, sizeof offset);
    s->offset[batch_list_of(f, "run")] = put(n, n->tv ? at : none, sizeof at);
    s->offset[batch_list_of(f, "polygon")] = put(n, n->tv ? none : polygon, sizeof polygon);
    s->offset[batch_list_of(f, "point")] = put(n, point, sizeof point);
    s->rows[batch_list_of(f, "truth")] = NBOXES;
    s->rows[batch_list_of(f, "run")] = n->tv ? at[NBOXES] : 0;
    s->rows[batch_list_of(f, "polygon")] = n->tv ? 0 : NBOXES;
    s->rows[batch_list_of(f, "point")] = n->tv ? 0 : 4 * NBOXES;
    n->batch = (struct batch){ .form = f, .seed = 1, .step = 1, .nshards = 1, .shard = s };
    free(pixel);
}

/* ---- a model ---- */

/* Additional keys of jobs: "model.bn_eps=0"; ends with NULL. */
static const char *const no_keys[] = { NULL }, *const *more_keys = no_keys;

static struct jobspec *spec_of(const char *preset, bool tv)
{
    static const char text[] =
        "{\"model\":{\"preset\":\"%s\",\"flavor\":\"%s\",\"init\":\"/none\",\"width\":0.0625,\"fpn_channels\":16,\"head_channels\":24,"
        "%s\"anchors\":[8,16,32,64,128],\"rpn_batch\":4096,\"rpn_pre_nms\":200,\"rpn_pre_nms_val\":200,"
        "\"rpn_post_nms\":60,\"rpn_post_nms_val\":60,\"roi_positive\":0.5},"
        "\"data\":{\"train\":{\"annotations\":\"a\",\"images\":\"i\"}},\"train\":{\"steps\":10,\"batch\":2,\"shards\":1,\"lr\":0.002,"
        "\"weight_decay\":0.1,\"schedule\":\"constant\"}}";
    char *full = NULL;
    struct jobspec *spec = NULL;
    struct err err = { 0 };
    json_t *root;

    assert_true(asprintf(&full, text, preset, tv ? "tv" : "d2", preset[0] == 'm' ? "\"mask_channels\":8," : "") > 0);
    root = json_loads(full, 0, NULL);
    assert_non_null(root);
    for (int i = 0; more_keys[i]; i++)
        assert_int_equal(jobspec_override(root, more_keys[i], &err), 0);
    if (jobspec_parse(root, &spec, &err) < 0)
        fail_msg("%s", err.msg);
    json_decref(root);
    free(full);
    free(spec->model_init); /* weights are a formula here */
    spec->model_init = NULL;
    return spec;
}

static void net_open(struct net *n, const struct device_ops *ops, const struct scene *scene, const char *preset, bool tv)
{
    struct device_options opt = { 2, "auto", PRECISION_FP32 };
    struct err err = { 0 };

    memset(n, 0, sizeof *n);
    n->tv = tv;
    n->scene = scene;
    n->spec = spec_of(preset, tv);
    if (ops->open(0, &opt, &n->dev, &err) < 0 ||
        model_open(&models_builtin, n->spec, (struct model_classes){ CLASSES, NULL, NULL }, n->dev, &n->model, &err) < 0)
        fail_msg("%s", err.msg);
    n->arena = arena_new(n->dev, 16 << 20);
    n->tape = tape_new(n->dev, n->arena, n->model->nparams);
    assert_true(n->model->nparams <= MAX_PARAMS);
    for (int i = 0; i < n->model->nparams; i++) {
        n->grad[i] = n->dev->ops->alloc(n->dev, n->model->params[i]->count * sizeof(float));
        assert_non_null(n->grad[i]);
    }
    fill(n);
    make_batch(n);
    for (int i = 0; i < IMAGES; i++)
        n->raw[i] = put(n, NULL, n->model->raw_terms * sizeof(double));
}

static void net_close(struct net *n)
{
    for (int i = 0; i < n->model->nparams; i++)
        n->dev->ops->free(n->dev, n->grad[i]);
    while (n->nbuffers > 0)
        n->dev->ops->free(n->dev, n->buffer[--n->nbuffers]);
    tape_free(n->tape);
    arena_free(n->arena);
    model_free(n->model);
    n->dev->ops->close(n->dev);
    jobspec_free(n->spec);
}

/* ---- hooks of a step: gradients go to n->grad ---- */

static inline float *grad_dest(void *arg, const struct param *p, int shard, bool *ret_written)
{
    (void)shard;
    *ret_written = false;
    return ((struct net *)arg)->grad[p->index];
}

static inline int grad_ready(void *arg, const struct param *p, struct err *err)
{
    (void)arg, (void)p, (void)err;
    return 0;
}
