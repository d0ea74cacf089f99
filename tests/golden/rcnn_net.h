/* SPDX-License-Identifier: Apache-2.0 */ /* tests/golden/rcnn_net.h - the networks of make_rcnn_net.py: Faster and Mask
 * R-CNN of few channels on a device, with weights, pictures and objects that are formulas. */
#pragma once
#include "tests/golden/objects_net.h"
#include "worker/models/rcnn/network.h"
#include "worker/models/rcnn/rcnn.h"
#include "worker/models/weights.h"

enum { NBOXES = 5 };
#define MASKS 60 /* in the scene of edges: how much larger the weights of mask logits are */

static const struct scene plain_scene = {
    96,
    128,
    NBOXES,
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
    NBOXES,
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
    memset(n, 0, sizeof *n);
    n->tv = tv;
    net_begin(n, ops, scene, spec_of(preset, tv), fill);
}
