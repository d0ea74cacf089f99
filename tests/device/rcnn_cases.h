/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/rcnn_cases.h - shards of images with boxes, logits and draws
 * for tests of families rpn and rcnn, on every device. */
#pragma once
#include "tests/device/devices.h"

#include "worker/layers/rcnn.h"

enum { CASE_SHARDS = 3, CASE_IMAGES = 3, CASE_ALL = CASE_SHARDS * CASE_IMAGES, CASE_TRUTH = 1200, CASE_LEVELS = 3 };

/* Levels of stride 4, 8, 16; every shard's canvas is its own. */
struct rcnn_case {
    int nshards, n[CASE_SHARDS];
    struct canvas canvas[CASE_SHARDS];
    int32_t size[CASE_SHARDS][CASE_IMAGES][2];
    int32_t offset[CASE_SHARDS][CASE_IMAGES + 1];
    int32_t cls[CASE_SHARDS][CASE_TRUTH];
    float truth[CASE_SHARDS][CASE_TRUTH][4];
    struct rpn_head rpn;
    struct rpn_selection sel;
    struct rcnn_head rcnn;
    float *logits[CASE_LEVELS][CASE_SHARDS], *deltas[CASE_LEVELS][CASE_SHARDS]; /* dense */
    struct philox_key key[4][CASE_ALL];
};

static inline struct tensor case_tensor(const struct rcnn_case *c, int l, int v, int per_anchor)
{
    int stride = 4 << l;

    return tensor_f32(NULL, c->n[v], c->canvas[v].h / stride, c->canvas[v].w / stride, c->rpn.nratios * per_anchor);
}

static inline int case_anchors(const struct rcnn_case *c, int v)
{
    int n = 0;

    for (int l = 0; l < CASE_LEVELS; l++)
        n += (int)(tensor_count(&(struct tensor){ .n = 1, .h = c->canvas[v].h / (4 << l), .w = c->canvas[v].w / (4 << l), .c = 3 }));
    return n;
}

static inline int case_images(const struct rcnn_case *c)
{
    int n = 0;

    for (int v = 0; v < c->nshards; v++)
        n += c->n[v];
    return n;
}

__attribute__((unused)) static void draw_truth(struct rcnn_case *c, int v, int image, int count, uint64_t seed)
{
    float *x = numbers((size_t)count * 4, seed, 0.0f, 1.0f);
    int at = c->offset[v][image];

    assert_true(at + count <= CASE_TRUTH);
    for (int i = 0; i < count; i++) {
        float h = (float)c->size[v][image][0], w = (float)c->size[v][image][1], *b = c->truth[v][at + i];

        b[0] = x[4 * i] * w * 0.8f;
        b[1] = x[4 * i + 1] * h * 0.8f;
        b[2] = b[0] + 2.0f + x[4 * i + 2] * (w - b[0] - 2.0f);
        b[3] = b[1] + 2.0f + x[4 * i + 3] * (h - b[1] - 2.0f);
        c->cls[v][at + i] = i % c->rcnn.classes;
    }
    for (int i = image + 1; i <= CASE_IMAGES; i++)
        c->offset[v][i] = at + count;
    free(x);
}

/* Flavor d2, or (tv) torchvision. boxes: of each image, but every third image has no box. */
__attribute__((unused)) static struct rcnn_case *case_new(bool tv, int nshards, int boxes, uint64_t seed)
{
    const float side[CASE_LEVELS] = { 16, 32, 64 };
    const double ratio[3] = { 0.5, 1, 2 };
    struct rcnn_case *c = calloc(1, sizeof *c);

    assert_non_null(c);
    c->nshards = nshards;
    c->rpn = (struct rpn_head){ .nlevels = CASE_LEVELS,
                                .nratios = 3,
                                .stride = { 4, 8, 16 },
                                .infer_stride = tv,
                                .pos_iou = 0.7f,
                                .neg_iou = 0.3f,
                                .low_quality = true,
                                .batch = 64,
                                .max_positive = 32,
                                .beta = tv ? 1.0f / 9 : 0.0f,
                                .count_sampled = tv };
    rpn_set_anchors(&c->rpn, side, ratio, tv);
    c->sel = (struct rpn_selection){ .pre = 150, .post = 100, .nms = 0.7f, .min_side = tv ? 1e-3f : 0.0f, .keep_min = tv, .sigmoid = tv };
    c->rcnn = (struct rcnn_head){ .classes = 5,
                                  .background_first = tv,
                                  .append_truth = true,
                                  .fg_iou = 0.5f,
                                  .batch = 48,
                                  .max_foreground = 12,
                                  .max_masks = 8,
                                  .weights = { 10, 10, 5, 5 },
                                  .beta = tv ? 1.0f / 9 : 0.0f,
                                  .masks = tv ? RCNN_MASKS_OF_BITMAPS : RCNN_MASKS_OF_OUTLINES,
                                  .mask_side = 28 };
    for (int v = 0, at = 0; v < nshards; v++) {
        c->n[v] = 1 + (v + 1) % CASE_IMAGES;
        c->canvas[v] = (struct canvas){ 64 + 32 * (v % 2), 96 - 32 * (v % 2) };
        for (int i = 0; i < c->n[v]; i++, at++) {
            c->size[v][i][0] = c->canvas[v].h - 5 * i;
            c->size[v][i][1] = c->canvas[v].w - 7 * i;
            draw_truth(c, v, i, at % 3 == 2 ? 0 : boxes, seed + (uint64_t)at + 1);
            for (int k = 0; k < 4; k++)
                c->key[k][at] = (struct philox_key){ .seed = seed, .op = (uint16_t)k, .shard = (uint16_t)v, .substream = (uint16_t)i };
        }
        for (int l = 0; l < CASE_LEVELS; l++) {
            struct tensor z = case_tensor(c, l, v, 1), d = case_tensor(c, l, v, 4);

            c->logits[l][v] = numbers(tensor_count(&z), seed + 100 + (uint64_t)(l * 10 + v), -3.0f, 3.0f);
            c->deltas[l][v] = numbers(tensor_count(&d), seed + 200 + (uint64_t)(l * 10 + v), -0.5f, 0.5f);
        }
    }
    return c;
}

__attribute__((unused)) static void case_free(struct rcnn_case *c)
{
    for (int l = 0; l < CASE_LEVELS; l++)
        for (int v = 0; v < CASE_SHARDS; v++) {
            free(c->logits[l][v]);
            free(c->deltas[l][v]);
        }
    free(c);
}

/* A case in the memory of a device. There are gaps after the channels, as in values of a GPU. */
struct rcnn_there {
    struct rcnn_images images[CASE_SHARDS];
    struct rcnn_truth truth[CASE_SHARDS];
    struct tensor logits[CASE_LEVELS][CASE_SHARDS], deltas[CASE_LEVELS][CASE_SHARDS];
    const struct tensor *z[CASE_LEVELS], *d[CASE_LEVELS];
};

/* A tensor on the device with `gap` numbers after each pixel's, filled from dense numbers; host NULL: with 7s. */
__attribute__((unused)) static void put_tensor(struct device *dev, struct tensor *t, const float *host, int gap)
{
    size_t pixels = tensor_pixels(t), stride = (size_t)(t->c + gap);
    float *x = malloc(pixels * stride * sizeof *x + 1);

    assert_non_null(x);
    for (size_t i = 0; i < pixels * stride; i++)
        x[i] = host && i % stride < (size_t)t->c ? host[i / stride * (size_t)t->c + i % stride] : 7.0f;
    t->stride = (int)stride;
    t->data = put(dev, x, pixels * stride * sizeof *x);
    free(x);
}

/* Dense numbers of a tensor there. */
__attribute__((unused)) static void get_tensor(struct device *dev, float *ret, const struct tensor *t)
{
    size_t pixels = tensor_pixels(t), stride = (size_t)t->stride;
    float *x = malloc(pixels * stride * sizeof *x + 1);

    assert_non_null(x);
    get(dev, x, t->data, pixels * stride * sizeof *x);
    for (size_t i = 0; i < pixels * stride; i++) {
        if (i % stride < (size_t)t->c)
            ret[i / stride * (size_t)t->c + i % stride] = x[i];
        else
            assert_true(x[i] == 7.0f); /* gaps are never written */
    }
    free(x);
}

__attribute__((unused)) static void put_case(struct device *dev, const struct rcnn_case *c, struct rcnn_there *t)
{
    for (int v = 0; v < c->nshards; v++) {
        t->images[v] = (struct rcnn_images){ c->n[v], c->canvas[v], put(dev, c->size[v], sizeof c->size[v]) };
        t->truth[v] = (struct rcnn_truth){ put(dev, c->offset[v], sizeof c->offset[v]), put(dev, c->cls[v], sizeof c->cls[v]),
                                           put(dev, c->truth[v], sizeof c->truth[v]), c->offset[v][c->n[v]] };
        for (int l = 0; l < CASE_LEVELS; l++) {
            t->logits[l][v] = case_tensor(c, l, v, 1);
            t->deltas[l][v] = case_tensor(c, l, v, 4);
            put_tensor(dev, &t->logits[l][v], c->logits[l][v], 1);
            put_tensor(dev, &t->deltas[l][v], c->deltas[l][v], 0);
        }
    }
    for (int l = 0; l < CASE_LEVELS; l++) {
        t->z[l] = t->logits[l];
        t->d[l] = t->deltas[l];
    }
}

__attribute__((unused)) static void put_proposals(struct device *dev, struct rpn_proposals *p, int images, int cap)
{
    *p = (struct rpn_proposals){ put(dev, NULL, (size_t)cap * 16),
                                 put(dev, NULL, (size_t)cap * 4),
                                 put(dev, NULL, (size_t)cap * 4),
                                 put(dev, NULL, ((size_t)images + 1) * 4),
                                 put(dev, NULL, 4),
                                 cap };
}

#define CALL(...)                     \
    do {                              \
        struct err err_;              \
        struct err *err = &err_;      \
        if ((__VA_ARGS__) < 0)        \
            fail_msg("%s", err->msg); \
    } while (0)
