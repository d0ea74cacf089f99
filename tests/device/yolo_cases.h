/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/yolo_cases.h - YOLO heads with their logits and boxes, and the
 * loss that a device makes of them. For test_yolo.c and test_yolo_decode.c. */
#pragma once
#include "tests/device/bf16.h"

#include <jansson.h>
#include <math.h>

#include "tests/stand/harness.h"
#include "worker/kernels/yolo.h"

enum { MAX_IMAGES = 8, MAX_ROWS = 64 };

/* A batch on the host: NHWC logits and boxes of up to 8 images, cut into shards. */
struct yolo_case {
    struct yolo_head head;
    struct canvas net;                       /* of all shards */
    struct canvas second;                    /* of the second one, where h is not 0 */
    int gh, gw, nshards, images[MAX_IMAGES]; /* images of each shard */
    float *logits;
    int32_t offset[MAX_IMAGES + 1], cls[MAX_ROWS];
    float box[MAX_ROWS][4], grad_scale;
    const float *class_weight; /* [classes], NULL: no weights */
    bool validate;
    enum dtype dtype;
    int gap; /* logits and gradients are slices of wider tensors by so many channels */
};

struct yolo_result {
    double terms[MAX_IMAGES][YOLO_TERMS]; /* of each shard */
    float grad[];
};

static inline int channels(const struct yolo_head *h)
{
    return h->nanchors * (5 + h->classes);
}

static inline size_t image_pixels(const struct yolo_case *t)
{
    return (size_t)t->gh * (size_t)t->gw;
}

static inline size_t image_floats(const struct yolo_case *t)
{
    return image_pixels(t) * (size_t)channels(&t->head);
}

static inline int images_of(const struct yolo_case *t)
{
    int n = 0;

    for (int v = 0; v < t->nshards; v++)
        n += t->images[v];
    return n;
}

static inline size_t result_bytes(const struct yolo_case *t)
{
    return sizeof(struct yolo_result) + (size_t)images_of(t) * image_floats(t) * sizeof(float);
}

/* The number in the gaps of a slice. */
static const float in_gap = 3.0f;

/* Logits of n pixels, each with its gap. */
static inline struct tensor put_slice(struct device *dev, const struct yolo_case *t, const float *logits, int images)
{
    size_t c = (size_t)channels(&t->head), n = (size_t)images * image_pixels(t), wide = c + (size_t)t->gap;
    float *host = malloc(n * wide * sizeof(float));
    struct tensor ret = tensor_f32(NULL, images, t->gh, t->gw, (int)c);

    assert_non_null(host);
    for (size_t i = 0; i < n * wide; i++)
        host[i] = i % wide < c ? logits[i / wide * c + i % wide] : in_gap;
    ret.stride = (int)wide;
    ret.data = put_numbers(dev, host, n * wide, t->dtype);
    ret.dtype = held_as(dev, t->dtype);
    free(host);
    return ret;
}

/* Gets the slice alone; the gaps must hold the numbers that put_slice() left there. */
static inline void get_slice(struct device *dev, const struct yolo_case *t, float *ret, const struct tensor *x)
{
    size_t n = tensor_pixels(x), wide = (size_t)x->stride, c = (size_t)x->c;
    float *host = malloc(n * wide * sizeof(float));

    assert_non_null(host);
    get_numbers(dev, host, x->data, n * wide, t->dtype);
    for (size_t i = 0; i < n * wide; i++)
        if (i % wide < c)
            ret[i / wide * c + i % wide] = host[i];
        else
            assert_true(host[i] == in_gap);
    free(host);
}

/* Every shard gets an offset list of its own; the rows stay where they are. */
static inline void run_loss(struct device *dev, const void *arg, void *ret)
{
    const struct yolo_case *t = arg;
    struct tensor z[MAX_IMAGES] = { 0 }, dz[MAX_IMAGES] = { 0 };
    struct box_list list[MAX_IMAGES];
    struct canvas net[MAX_IMAGES];
    struct yolo_result *r = ret;
    double *terms[MAX_IMAGES] = { NULL };
    struct yolo_head head = t->head;
    const int32_t *cls = put(dev, t->cls, sizeof(t->cls));
    const float *box = put(dev, t->box, sizeof(t->box));
    struct err err;

    for (int v = 0, first = 0; v < t->nshards; first += t->images[v++]) {
        const float *logits = t->logits + (size_t)first * image_floats(t);

        net[v] = t->net;
        if (v == 1 && t->second.h > 0)
            net[v] = t->second;
        z[v] = put_slice(dev, t, logits, t->images[v]);
        dz[v] = put_slice(dev, t, logits, t->images[v]); /* anything but zeros: every element is written */
        terms[v] = put(dev, NULL, sizeof(r->terms[v]));
        list[v] = (struct box_list){ put(dev, t->offset + first, (size_t)(t->images[v] + 1) * sizeof(int32_t)), cls, box,
                                     t->offset[first + t->images[v]] - t->offset[first] };
    }
    if (t->class_weight)
        head.class_weight = put(dev, t->class_weight, (size_t)head.classes * sizeof *t->class_weight);
    assert_int_equal(dev->on->yolo->loss(dev, &head, net, t->validate ? NULL : dz, t->grad_scale, terms, z, list, t->nshards, &err), 0);
    memset(r->terms, 0, sizeof(r->terms));
    for (int v = 0, first = 0; v < t->nshards; first += t->images[v++]) {
        get(dev, r->terms[v], terms[v], sizeof(r->terms[v]));
        get_slice(dev, t, r->grad + (size_t)first * image_floats(t), &dz[v]);
    }
}

static inline struct yolo_result *loss_of(const struct yolo_case *t)
{
    struct yolo_result *r = calloc(1, result_bytes(t));

    assert_non_null(r);
    same_on_all(run_loss, t, r, result_bytes(t));
    return r;
}

/* ---- members of the vectors ---- */

static inline double number(json_t *object, const char *name)
{
    return json_number_value(json_object_get(object, name));
}

static inline double item(json_t *array, size_t i)
{
    return json_number_value(json_array_get(array, i));
}

/* Channel-first [image][channel][row][col] at our place. */
static inline size_t vector_index(const struct yolo_case *t, size_t i)
{
    size_t c = (size_t)channels(&t->head), cells = (size_t)t->gh * (size_t)t->gw, pixel = i % cells, channel = i / cells % c,
           image = i / cells / c;

    return (image * cells + pixel) * c + channel;
}

static inline void load_case(json_t *j, struct yolo_case *t)
{
    json_t *anchors = json_object_get(j, "anchors_px"), *mask = json_object_get(j, "mask"), *targets = json_object_get(j, "targets");
    json_t *mode = json_object_get(j, "mode_darknet"), *logits = json_object_get(j, "logits");
    int row = 0;

    memset(t, 0, sizeof(*t));
    t->head.ntotal = (int)json_array_size(anchors);
    for (size_t i = 0; i < json_array_size(anchors); i++)
        for (size_t d = 0; d < 2; d++)
            t->head.anchor[i][d] = (float)item(json_array_get(anchors, i), d);
    t->head.nanchors = (int)json_array_size(mask);
    for (size_t i = 0; i < json_array_size(mask); i++)
        t->head.mask[i] = (int)item(mask, i);
    t->head.classes = (int)number(j, "classes");
    t->net.w = t->net.h = (int)number(j, "img");
    t->head.ignore_thresh = (float)number(mode, "ignore_thresh");
    t->head.truth_thresh = (float)number(mode, "truth_thresh");
    t->head.assign_iou_thresh = (float)number(mode, "assign_iou_thresh");
    t->head.box_gain = t->head.obj_gain = t->head.noobj_gain = t->head.cls_gain = t->head.scale_xy = t->grad_scale = 1.0f;
    if (json_object_get(j, "scale_x_y"))
        t->head.scale_xy = (float)number(j, "scale_x_y");
    t->head.new_coords = number(j, "new_coords") != 0;
    t->gh = t->gw = (int)number(j, "grid");
    t->nshards = 1;
    t->images[0] = (int)number(j, "batch");
    for (size_t i = 0; i < json_array_size(targets); i++) {
        json_t *rows = json_array_get(targets, i);

        for (size_t k = 0; k < json_array_size(rows); k++, row++) {
            t->cls[row] = (int32_t)item(json_array_get(rows, k), 0);
            for (size_t d = 0; d < 4; d++)
                t->box[row][d] = (float)item(json_array_get(rows, k), d + 1);
        }
        t->offset[i + 1] = row;
    }
    t->logits = malloc(json_array_size(logits) * sizeof(float));
    for (size_t i = 0; i < json_array_size(logits); i++)
        t->logits[vector_index(t, i)] = (float)item(logits, i);
}

/* ---- cases of our own ---- */

static const int rows_per_image[MAX_IMAGES] = { 0, 3, 0, 0, 9, 1, 4, 0 }; /* empty at the start, in the middle, at the end */

static inline void random_case(struct yolo_case *t, int classes)
{
    struct philox_key key = { .seed = 77 };
    int row = 0;

    memset(t, 0, sizeof(*t));
    t->net = (struct canvas){ 96, 128 };
    t->head = (struct yolo_head){ .nanchors = 3,
                                  .mask = { 1, 2, 4 },
                                  .ntotal = 5,
                                  .anchor = { { 8, 10 }, { 14, 30 }, { 30, 20 }, { 40, 44 }, { 90, 80 } },
                                  .classes = classes,
                                  .ignore_thresh = 0.5f,
                                  .truth_thresh = 1.0f,
                                  .assign_iou_thresh = 0.4f,
                                  .box_gain = 1.5f,
                                  .obj_gain = 0.8f,
                                  .noobj_gain = 0.5f,
                                  .cls_gain = 2.0f,
                                  .scale_xy = 1.0f };
    t->gh = 6;
    t->gw = 8;
    t->nshards = 1;
    t->images[0] = MAX_IMAGES;
    t->grad_scale = 0.25f;
    for (int i = 0; i < MAX_IMAGES; i++) {
        for (int k = 0; k < rows_per_image[i]; k++, row++) {
            t->cls[row] = (int32_t)philox_below(&key, 100 * (uint64_t)row, (uint32_t)classes);
            for (int d = 0; d < 4; d++)
                t->box[row][d] =
                    (d < 2 ? 0.0f : 0.05f) + (d < 2 ? 1.0f : 0.6f) * philox_uniform(&key, 100 * (uint64_t)row + 1 + (uint64_t)d);
        }
        t->offset[i + 1] = row;
    }
    t->logits = numbers((size_t)MAX_IMAGES * image_floats(t), 78, -1.5f, 1.5f);
}

static float one_slot_logits[6];

/* A single cell of an anchor of 32 x 32 in a net of 64 x 64: its prediction is the box (.5, .5, .5, .5) itself. The
 * truth is as wide and twice as high, so their IoU is exactly .5; the anchor that fits it best is another head's. */
static inline struct yolo_case one_slot(void)
{
    return (struct yolo_case){ .net = { 64, 64 },
                               .head = { .nanchors = 1,
                                         .mask = { 0 },
                                         .ntotal = 2,
                                         .anchor = { { 32, 32 }, { 32, 64 } },
                                         .classes = 1,
                                         .ignore_thresh = 1,
                                         .truth_thresh = 1,
                                         .assign_iou_thresh = 1,
                                         .box_gain = 1,
                                         .obj_gain = 1,
                                         .noobj_gain = 1,
                                         .cls_gain = 1,
                                         .scale_xy = 1 },
                               .gh = 1,
                               .gw = 1,
                               .nshards = 1,
                               .images = { 1 },
                               .logits = one_slot_logits,
                               .offset = { 0, 1 },
                               .box = { { .5f, .5f, .5f, 1 } },
                               .grad_scale = 1 };
}
