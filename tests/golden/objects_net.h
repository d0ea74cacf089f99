/* SPDX-License-Identifier: Apache-2.0 */ /* tests/golden/objects_net.h - a network of few channels on a device, with a
 * batch of the task "instances": pictures and objects that are formulas. */
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

enum { IMAGES = 2, CLASSES = 3, STEPS = 10, MAX_PARAMS = 512, EVERY = 5, LARGE = 1000, MAX_RUNS = 4096, MAX_BOXES = 9 };

/* The pictures and objects that make_rcnn_net.py and make_sparse_net.py give to a network. */
struct scene {
    int h, w, n;                                 /* of the canvas; n boxes, image by image */
    int32_t size[IMAGES][2], picture[IMAGES][2]; /* of the pictures on the canvas, and as they were */
    struct {
        int image, cls;
        float box[4]; /* x1 y1 x2 y2 */
    } box[MAX_BOXES];
};

/* ---- inputs: the formulas of the generators ---- */

static inline uint32_t noise(uint32_t i)
{
    i = i * 2654435761u + 1;
    i ^= i >> 15;
    i *= 2246822519u;
    return i ^ i >> 13;
}

static inline uint32_t key_of(const char *name)
{
    uint32_t h = 2166136261u;

    for (; *name; name++)
        h = (h ^ (uint8_t)*name) * 16777619u;
    return h;
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

static inline void *put(struct net *n, const void *host, size_t bytes)
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
static inline bool inside(const float box[4], int y, int x)
{
    int x1 = (int)rintf(box[0]), y1 = (int)rintf(box[1]), x2 = (int)rintf(box[2]), y2 = (int)rintf(box[3]), corner = (y2 - y1) / 3;

    return x >= x1 && x < x2 && y >= y1 && y < y2 && !(y - y1 < corner && x < x1 + corner - (y - y1));
}

/* Run lengths down the columns of the picture. */
static inline int runs_of(const struct scene *s, int b, int32_t *ret)
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

static inline void make_batch(struct net *n)
{
    const struct batch_form *f = task_instances.form;
    const struct scene *scene = n->scene;
    size_t pixels = (size_t)(IMAGES * scene->h * scene->w * 3);
    uint8_t *pixel = malloc(pixels);
    static int32_t run[MAX_RUNS];
    int32_t offset[IMAGES + 1] = { 0 }, cls[MAX_BOXES], at[MAX_BOXES + 1] = { 0 }, none[MAX_BOXES + 1] = { 0 };
    int32_t polygon[MAX_BOXES + 1] = { 0 }, point[MAX_BOXES + 1] = { 0 };
    double xy[MAX_BOXES * 8];
    float box[MAX_BOXES][4];
    struct shard_batch *s = &n->shard;
    static const int32_t index[IMAGES] = { 0, 1 };

    for (uint32_t i = 0; i < pixels; i++)
        pixel[i] = (uint8_t)(noise(i + 77) >> 24);
    for (int b = 0; b < scene->n; b++) {
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
    for (int i = 0; i < IMAGES; i++)
        offset[i + 1] = offset[i + 1] > offset[i] ? offset[i + 1] : offset[i];
    *s = (struct shard_batch){ .n = IMAGES, .canvas = { scene->h, scene->w }, .index = index };
    s->array[batch_array_of(f, "image")] = put(n, pixel, pixels);
    s->array[batch_array_of(f, "size")] = put(n, scene->size, sizeof scene->size);
    s->array[batch_array_of(f, "truth.class")] = put(n, cls, sizeof cls);
    s->array[batch_array_of(f, "truth.box")] = put(n, box, sizeof box);
    s->array[batch_array_of(f, "run.length")] = put(n, run, (size_t)at[scene->n] * sizeof *run);
    s->array[batch_array_of(f, "point.xy")] = put(n, xy, sizeof xy);
    s->offset[batch_list_of(f, "truth")] = put(n, offset, sizeof offset);
    s->offset[batch_list_of(f, "run")] = put(n, n->tv ? at : none, sizeof at);
    s->offset[batch_list_of(f, "polygon")] = put(n, n->tv ? none : polygon, sizeof polygon);
    s->offset[batch_list_of(f, "point")] = put(n, point, sizeof point);
    s->rows[batch_list_of(f, "truth")] = scene->n;
    s->rows[batch_list_of(f, "run")] = n->tv ? at[scene->n] : 0;
    s->rows[batch_list_of(f, "polygon")] = n->tv ? 0 : scene->n;
    s->rows[batch_list_of(f, "point")] = n->tv ? 0 : 4 * scene->n;
    n->batch = (struct batch){ .form = f, .seed = 1, .step = 1, .nshards = 1, .shard = s };
    free(pixel);
}

/* Opens the job's model, with weights that fill() puts there, and makes the batch of the scene. Owns spec. */
static inline void net_begin(struct net *n, const struct device_ops *ops, const struct scene *scene, struct jobspec *spec,
                             void (*fill)(struct net *))
{
    struct device_options opt = { 2, "auto", PRECISION_FP32 };
    struct err err = { 0 };

    n->scene = scene;
    n->spec = spec;
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
