#include "worker/models/yolo/darknet_cfg.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "worker/core/file.h"
#include "worker/core/file_kind.h"
#include "worker/models/yolo/cfg_text.h"
#include "worker/models/yolo/darknet_keys.h"

static const char *const activations[] = { "linear", "leaky", "relu", "logistic", "tanh", NULL }; /* in the order of enum act_kind */

/* stride_x and stride_y must equal stride. */
static void check_strides(struct cfg_text *p, const struct cfg_section *s, const struct darknet_layer *l)
{
    cfg_only(p, s, "stride_x", l->stride);
    cfg_only(p, s, "stride_y", l->stride);
}

static void build_conv(struct cfg_text *p, const struct cfg_section *s, struct darknet_layer *l, int index)
{
    (void)index;
    l->filters = cfg_int(p, s, "filters", 1, 1, DARKNET_MAX_FILTERS);
    l->size = cfg_int(p, s, "size", 1, 1, DARKNET_MAX_KERNEL);
    l->stride = cfg_int(p, s, "stride", 1, 1, DARKNET_MAX_KERNEL);
    l->pad = cfg_int(p, s, "padding", 0, 0, DARKNET_MAX_KERNEL);
    if (cfg_int(p, s, "pad", 0, 0, 1))
        l->pad = l->size / 2;
    l->bn = cfg_int(p, s, "batch_normalize", 0, 0, 1);
    l->act = (enum act_kind)cfg_word(p, s, "activation", ACT_LOGISTIC, activations);
    check_strides(p, s, l);
}

/* darknet's sources: negative counts back from the layer itself. */
static int absolute(struct cfg_text *p, const struct cfg_section *s, double source, int index)
{
    int at = (int)source < 0 ? index + (int)source : (int)source;

    if (at < 0 || at >= index)
        cfg_fail(p, s->line, "layer %d: source %d is no layer before it", index, (int)source);
    return at;
}

static void build_shortcut(struct cfg_text *p, const struct cfg_section *s, struct darknet_layer *l, int index)
{
    double from[1] = { -1 };

    if (cfg_list(p, s, "from", from, 1, -DARKNET_MAX_LAYERS, DARKNET_MAX_LAYERS, true) == 0)
        cfg_fail(p, s->line, "a [shortcut] needs from=");
    l->nsources = 1;
    l->source[0] = absolute(p, s, from[0], index);
    l->act = (enum act_kind)cfg_word(p, s, "activation", ACT_LINEAR, activations);
}

static void build_route(struct cfg_text *p, const struct cfg_section *s, struct darknet_layer *l, int index)
{
    double from[DARKNET_MAX_SOURCES];

    l->nsources = cfg_list(p, s, "layers", from, DARKNET_MAX_SOURCES, -DARKNET_MAX_LAYERS, DARKNET_MAX_LAYERS, true);
    if (l->nsources == 0)
        cfg_fail(p, s->line, "a [route] needs layers=");
    for (int i = 0; i < l->nsources; i++)
        l->source[i] = absolute(p, s, from[i], index);
}

static void build_upsample(struct cfg_text *p, const struct cfg_section *s, struct darknet_layer *l, int index)
{
    (void)index;
    l->stride = cfg_int(p, s, "stride", 2, 1, DARKNET_MAX_KERNEL);
}

static void build_maxpool(struct cfg_text *p, const struct cfg_section *s, struct darknet_layer *l, int index)
{
    (void)index;
    l->stride = cfg_int(p, s, "stride", 1, 1, DARKNET_MAX_KERNEL);
    l->size = cfg_int(p, s, "size", l->stride, 1, DARKNET_MAX_KERNEL);
    l->pad = cfg_int(p, s, "padding", l->size - 1, 0, DARKNET_MAX_KERNEL);
    check_strides(p, s, l);
    if (p->rc == 0 && l->pad / 2 >= l->size)
        cfg_fail(p, s->line, "padding=%d: windows of size %d would lie outside", l->pad, l->size);
}

static void build_anchors(struct cfg_text *p, const struct cfg_section *s, struct yolo_head *y)
{
    double v[2 * YOLO_MAX_ANCHORS];
    int n = cfg_list(p, s, "anchors", v, 2 * YOLO_MAX_ANCHORS, 1e-3, 1e5, false);

    if (n == 0 || n % 2 != 0)
        cfg_fail(p, s->line, "anchors: pairs of width and height expected, %d numbers found", n);
    y->ntotal = n / 2;
    for (int i = 0; i < n; i++)
        y->anchor[i / 2][i % 2] = (float)v[i];
    n = cfg_int(p, s, "num", 1, 1, YOLO_MAX_ANCHORS);
    if (n != y->ntotal)
        cfg_fail(p, s->line, "num=%d, but there are %d anchors", n, y->ntotal);
}

static void build_masks(struct cfg_text *p, const struct cfg_section *s, struct yolo_head *y)
{
    double v[YOLO_MAX_ANCHORS];

    y->nanchors = cfg_list(p, s, "mask", v, YOLO_MAX_ANCHORS, 0, y->ntotal - 1, true);
    for (int i = 0; i < y->nanchors; i++) {
        y->mask[i] = (int)v[i];
        for (int j = 0; j < i; j++)
            if (y->mask[j] == y->mask[i])
                cfg_fail(p, s->line, "mask: anchor %d stands there twice", y->mask[i]);
    }
    if (y->nanchors > 0)
        return;
    y->nanchors = y->ntotal;
    for (int i = 0; i < y->ntotal; i++)
        y->mask[i] = i;
}

static void build_yolo(struct cfg_text *p, const struct cfg_section *s, struct darknet_layer *l, int index)
{
    (void)index;
    build_anchors(p, s, &l->yolo);
    build_masks(p, s, &l->yolo);
    l->yolo.classes = cfg_int(p, s, "classes", 20, 1, DARKNET_MAX_CLASSES);
    l->yolo.ignore_thresh = (float)cfg_real(p, s, "ignore_thresh", .5, 0, 1);
    l->yolo.truth_thresh = (float)cfg_real(p, s, "truth_thresh", 1, 0, 1);
    l->yolo.assign_iou_thresh = (float)cfg_real(p, s, "iou_thresh", 1, 0, 1);
    l->yolo.box_gain = l->yolo.obj_gain = l->yolo.noobj_gain = l->yolo.cls_gain = 1.0f;
    l->jitter = cfg_real(p, s, "jitter", .2, 0, 1e3);
    l->random = cfg_real(p, s, "random", 0, 0, 1e3) != 0;
    l->yolo.scale_xy = (float)cfg_real(p, s, "scale_x_y", 1, 1, 4);
    l->yolo.new_coords = cfg_int(p, s, "new_coords", 0, 0, 1);
}

static const struct layer_kind {
    const char *name;
    enum darknet_type type;
    void (*build)(struct cfg_text *p, const struct cfg_section *s, struct darknet_layer *l, int index);
} kinds[] = {
    { "convolutional", DARKNET_CONV, build_conv },    { "conv", DARKNET_CONV, build_conv },
    { "shortcut", DARKNET_SHORTCUT, build_shortcut }, { "route", DARKNET_ROUTE, build_route },
    { "upsample", DARKNET_UPSAMPLE, build_upsample }, { "maxpool", DARKNET_MAXPOOL, build_maxpool },
    { "max", DARKNET_MAXPOOL, build_maxpool },        { "yolo", DARKNET_YOLO, build_yolo },
};

/* The kind of a section. NULL: unknown, and p has failed with a list of known names. */
static const struct layer_kind *find_kind(struct cfg_text *p, const struct cfg_section *s, int index)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i].name, s->name) == 0)
            return &kinds[i];
    cfg_fail(p, s->line, "layer %d: [%.40s] is not supported; supported are convolutional, shortcut, route, upsample, maxpool and yolo",
             index, s->name);
    return NULL;
}

/* The full name of a kind; some have a short one, too. */
static const char *full_name(enum darknet_type type)
{
    size_t i = 0;

    while (kinds[i].type != type)
        i++;
    return kinds[i].name;
}

static void build_layer(struct cfg_text *p, const struct cfg_section *s, struct darknet_layer *l, int index,
                        struct darknet_ignored *ignored)
{
    const struct layer_kind *kind = find_kind(p, s, index);

    l->line = s->line;
    if (!kind)
        return;
    l->type = kind->type;
    darknet_keys_check(p, s, full_name(l->type), ignored);
    kind->build(p, s, l, index);
    l->learning_rate = cfg_real(p, s, "learning_rate", 1, 0, 1e6);
    l->stop_backward = cfg_int(p, s, "stopbackward", 0, 0, 1);
}

static void build_net(struct cfg_text *p, const struct cfg_section *s, struct darknet_net *net, struct darknet_ignored *ignored)
{
    darknet_keys_check(p, s, "net", ignored);
    net->width = cfg_int(p, s, "width", 0, 1, DARKNET_MAX_SIDE);
    net->height = cfg_int(p, s, "height", 0, 1, DARKNET_MAX_SIDE);
    net->channels = cfg_int(p, s, "channels", 0, 1, 1024);
}

/* Checks the kinds of all sections before any key is read. */
static void check_sections(struct cfg_text *p)
{
    const struct cfg_section *first = p->sections;

    if (p->nsections == 0 || (strcmp(first->name, "net") != 0 && strcmp(first->name, "network") != 0)) {
        cfg_fail(p, p->nsections ? first->line : 1, "the first section must be [net]");
        return;
    }
    if (p->nsections - 1 < 1 || p->nsections - 1 > DARKNET_MAX_LAYERS)
        cfg_fail(p, first->line, "%d layers: must be 1 to %d", p->nsections - 1, DARKNET_MAX_LAYERS);
    for (int i = 1; i < p->nsections; i++)
        find_kind(p, &p->sections[i], i - 1);
}

static void build(struct cfg_text *p, struct darknet_net *net)
{
    struct darknet_ignored ignored = { 0 };

    check_sections(p);
    if (p->rc < 0)
        return;
    net->layers = calloc((size_t)p->nsections, sizeof *net->layers);
    if (!net->layers) {
        p->rc = err_set(p->err, -ENOMEM, "%s: out of memory", p->name);
        return;
    }
    build_net(p, p->sections, net, &ignored);
    for (; net->nlayers < p->nsections - 1 && p->rc == 0; net->nlayers++)
        build_layer(p, &p->sections[net->nlayers + 1], &net->layers[net->nlayers], net->nlayers, &ignored);
    if (p->rc == 0)
        p->rc = darknet_net_shape(net, p->err);
    if (p->rc == 0)
        darknet_keys_tell(p, &ignored);
}

int darknet_cfg_parse(const char *text, size_t size, const char *name, struct darknet_net **ret_net, struct err *err)
{
    struct darknet_net *net = calloc(1, sizeof *net);
    struct cfg_text p;
    int rc;

    if (!net || !(net->name = strdup(name))) {
        free(net);
        return err_set(err, -ENOMEM, "%s: out of memory", name);
    }
    if (cfg_text_open(&p, text, size, name, err) == 0)
        build(&p, net);
    rc = cfg_text_close(&p, &net->warnings);
    if (rc < 0)
        darknet_net_free(net);
    else
        *ret_net = net;
    return rc;
}

/* If the file is no text, replaces the error by the kind of the file. */
static void name_kind(const char *path, const struct file_map *map, struct err *err)
{
    const char *kind = file_kind(map->data, map->size, WEIGHTS_NONE);

    if (kind && strncmp(kind, "text", 4) != 0)
        err_set(err, ERR_INPUT, "%s: not a darknet .cfg; it is %s", path, kind);
}

int darknet_cfg_read(const char *path, struct darknet_net **ret_net, struct err *err)
{
    struct file_map map;
    int rc = file_map_open(path, CFG_MAX_BYTES, &map, err);

    if (rc < 0)
        return rc;
    rc = darknet_cfg_parse((const char *)map.data, map.size, path, ret_net, err);
    if (rc == ERR_INPUT)
        name_kind(path, &map, err);
    file_map_close(&map);
    return rc;
}
