#include "worker/models/yolo/darknet_net.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"

void darknet_net_free(struct darknet_net *net)
{
    if (!net)
        return;
    free(net->layers);
    free(net->warnings);
    free(net->name);
    free(net);
}

static int layer_err(const struct darknet_net *net, int i, struct err *err, const char *what)
{
    return err_set(err, ERR_INPUT, "%s:%d: layer %d: %s", net->name, net->layers[i].line, i, what);
}

/* True if layer i outputs logits that darknet would activate: a [yolo] section, or the convolution before it in case of
 * new_coords. */
static bool is_of_head(const struct darknet_net *net, int i)
{
    return net->layers[i].type == DARKNET_YOLO || (darknet_net_is_head_conv(net, i) && net->layers[i + 1].yolo.new_coords);
}

static int check_inputs(const struct darknet_net *net, int i, struct err *err)
{
    const struct darknet_layer *l = &net->layers[i];
    int from = l->type != DARKNET_ROUTE && l->type != DARKNET_YOLO && i > 0 && is_of_head(net, i - 1) ? i - 1 : -1;

    for (int s = 0; s < l->nsources; s++)
        from = is_of_head(net, l->source[s]) ? l->source[s] : from;
    return from < 0
               ? 0
               : err_set(err, ERR_INPUT, "%s:%d: layer %d: reads layer %d, an output of a [yolo] section, which no other layer may read",
                         net->name, l->line, i, from);
}

/* Rows or columns of a window op; 0 if the window does not fit. */
static int window_count(int in, int pad_total, int size, int stride)
{
    return in + pad_total < size ? 0 : (in + pad_total - size) / stride + 1;
}

static int shape_window(struct darknet_net *net, int i, struct err *err)
{
    struct darknet_layer *l = &net->layers[i];
    bool conv = l->type == DARKNET_CONV;
    int pad_total = conv ? 2 * l->pad : l->pad;

    l->out.c = conv ? l->filters : l->in.c;
    l->out.h = window_count(l->in.h, pad_total, l->size, l->stride);
    l->out.w = window_count(l->in.w, pad_total, l->size, l->stride);
    if (l->out.h == 0 || l->out.w == 0)
        return layer_err(net, i, err, "its window is larger than its input");
    return 0;
}

static int shape_shortcut(struct darknet_net *net, int i, struct err *err)
{
    struct darknet_layer *l = &net->layers[i];
    const struct darknet_shape *a = &l->in, *b = &net->layers[l->source[0]].out;

    if (a->h != b->h || a->w != b->w)
        return err_set(err, ERR_INPUT, "%s:%d: layer %d: shortcut adds %dx%d (layer %d) to %dx%d: sides must be equal", net->name, l->line,
                       i, b->h, b->w, l->source[0], a->h, a->w);
    l->out = l->in;
    return 0;
}

static int shape_route(struct darknet_net *net, int i, struct err *err)
{
    struct darknet_layer *l = &net->layers[i];

    l->in = l->out = net->layers[l->source[0]].out;
    for (int s = 1; s < l->nsources; s++) {
        const struct darknet_shape *o = &net->layers[l->source[s]].out;

        if (o->h != l->out.h || o->w != l->out.w)
            return err_set(err, ERR_INPUT, "%s:%d: layer %d: route joins %dx%d (layer %d) with %dx%d (layer %d)", net->name, l->line, i,
                           l->out.h, l->out.w, l->source[0], o->h, o->w, l->source[s]);
        l->out.c += o->c;
    }
    return l->out.c > DARKNET_MAX_FILTERS ? layer_err(net, i, err, "too many channels") : 0;
}

static int shape_upsample(struct darknet_net *net, int i, struct err *err)
{
    struct darknet_layer *l = &net->layers[i];

    (void)err;
    l->out = (struct darknet_shape){ l->in.c, l->in.h * l->stride, l->in.w * l->stride };
    return 0;
}

static int shape_yolo(struct darknet_net *net, int i, struct err *err)
{
    struct darknet_layer *l = &net->layers[i];
    const struct darknet_layer *conv = i > 0 ? &net->layers[i - 1] : NULL;
    int want = l->yolo.nanchors * (5 + l->yolo.classes);

    if (!conv || conv->type != DARKNET_CONV)
        return layer_err(net, i, err, "a [yolo] section follows a [convolutional] one");
    if (conv->filters != want)
        return err_set(err, ERR_INPUT, "%s:%d: layer %d: filters=%d before [yolo] must be %d = %d masks * (5 + %d classes)", net->name,
                       conv->line, i - 1, conv->filters, want, l->yolo.nanchors, l->yolo.classes);
    if (conv->bn)
        return layer_err(net, i - 1, err, "the convolution before [yolo] must be without batch_normalize");
    if (conv->act != (l->yolo.new_coords ? ACT_LOGISTIC : ACT_LINEAR))
        return layer_err(net, i - 1, err,
                         l->yolo.new_coords ? "the convolution before [yolo] with new_coords=1 must have activation=logistic"
                                            : "the convolution before [yolo] must have activation=linear");
    if (net->nheads > 0 && l->yolo.classes != net->classes)
        return err_set(err, ERR_INPUT, "%s:%d: layer %d: classes=%d, but %d in a [yolo] section before", net->name, l->line, i,
                       l->yolo.classes, net->classes);
    net->classes = l->yolo.classes;
    net->nheads++;
    l->out = l->in;
    return 0;
}

static int shape_layer(struct darknet_net *net, int i, struct err *err)
{
    static int (*const shape[])(struct darknet_net *, int, struct err *) = {
        [DARKNET_CONV] = shape_window, [DARKNET_MAXPOOL] = shape_window,    [DARKNET_SHORTCUT] = shape_shortcut,
        [DARKNET_ROUTE] = shape_route, [DARKNET_UPSAMPLE] = shape_upsample, [DARKNET_YOLO] = shape_yolo,
    };
    int rc;

    net->layers[i].in = i > 0 ? net->layers[i - 1].out : (struct darknet_shape){ net->channels, net->height, net->width };
    rc = check_inputs(net, i, err);
    return rc < 0 ? rc : shape[net->layers[i].type](net, i, err);
}

/* Computes sources and the product of strides since the input. They do not depend on the input's size. */
static int scale_layer(struct darknet_net *net, int i, struct err *err)
{
    struct darknet_layer *l = &net->layers[i];

    for (int s = 0; s < l->nsources; s++)
        if (l->source[s] < 0 || l->source[s] >= i)
            return layer_err(net, i, err, "a source must be a layer before this one");
    l->scale = i > 0 ? net->layers[i - 1].scale : 1;
    if (l->type == DARKNET_ROUTE)
        l->scale = net->layers[l->source[0]].scale;
    if (l->type == DARKNET_CONV || l->type == DARKNET_MAXPOOL)
        l->scale *= l->stride;
    if (l->scale > DARKNET_MAX_SIDE)
        return layer_err(net, i, err, "strides multiply to more than the largest input");
    if (l->type == DARKNET_UPSAMPLE && l->scale % l->stride != 0)
        return layer_err(net, i, err, "upsamples beyond the network's input");
    if (l->type == DARKNET_UPSAMPLE)
        l->scale /= l->stride;
    return 0;
}

/* Every stride must divide the sides evenly; otherwise a head's grid would not cover the input exactly. */
static int check_sides(const struct darknet_net *net, struct err *err)
{
    int stride = darknet_net_stride(net);

    if (net->width < 1 || net->height < 1 || net->channels < 1)
        return err_set(err, ERR_INPUT, "%s: width, height and channels must be set in [net]", net->name);
    if (net->width > DARKNET_MAX_SIDE || net->height > DARKNET_MAX_SIDE)
        return err_set(err, ERR_INPUT, "%s: input %dx%d: sides are limited to %d", net->name, net->width, net->height, DARKNET_MAX_SIDE);
    if (net->width % stride == 0 && net->height % stride == 0)
        return 0;
    return err_set(err, ERR_INPUT, "%s: input %dx%d: both sides must be multiples of %d", net->name, net->width, net->height, stride);
}

int darknet_net_shape(struct darknet_net *net, struct err *err)
{
    int64_t floats = 0;
    int rc = 0;

    net->nheads = net->classes = 0;
    for (int i = 0; i < net->nlayers && rc == 0; i++)
        rc = scale_layer(net, i, err);
    if (rc == 0)
        rc = check_sides(net, err);
    for (int i = 0; i < net->nlayers && rc == 0; i++) {
        rc = shape_layer(net, i, err);
        floats += darknet_layer_floats(&net->layers[i]);
        if (rc == 0 && floats > DARKNET_MAX_FLOATS)
            rc = layer_err(net, i, err, "the network has too many parameters");
    }
    return rc;
}

/* Copies the layers: a change is tried on the copy, so that a failure leaves the net unchanged. */
static struct darknet_layer *layers_copy(const struct darknet_net *net)
{
    size_t bytes = (size_t)net->nlayers * sizeof *net->layers;
    struct darknet_layer *copy = malloc(bytes + 1);

    if (copy && bytes)
        memcpy(copy, net->layers, bytes);
    return copy;
}

static int reshape_or_restore(struct darknet_net *net, const struct darknet_net *old, struct darknet_layer *old_layers, struct err *err)
{
    int rc = darknet_net_shape(net, err);

    if (rc < 0) {
        free(net->layers);
        *net = *old;
        net->layers = old_layers;
        return rc;
    }
    free(old_layers);
    return 0;
}

int darknet_net_set_classes(struct darknet_net *net, int classes, struct err *err)
{
    struct darknet_net old = *net;
    struct darknet_layer *old_layers;

    if (classes < 1 || classes > DARKNET_MAX_CLASSES)
        return err_set(err, ERR_INPUT, "%s: %d classes: must be 1 to %d", net->name, classes, DARKNET_MAX_CLASSES);
    if (!(old_layers = layers_copy(net)))
        return err_set(err, -ENOMEM, "%s: out of memory", net->name);
    for (int i = 1; i < net->nlayers; i++) {
        if (net->layers[i].type != DARKNET_YOLO)
            continue;
        net->layers[i].yolo.classes = classes;
        net->layers[i - 1].filters = net->layers[i].yolo.nanchors * (5 + classes);
    }
    return reshape_or_restore(net, &old, old_layers, err);
}

int darknet_net_set_size(struct darknet_net *net, int width, int height, struct err *err)
{
    struct darknet_net old = *net;
    struct darknet_layer *old_layers = layers_copy(net);

    if (!old_layers)
        return err_set(err, -ENOMEM, "%s: out of memory", net->name);
    net->width = width;
    net->height = height;
    return reshape_or_restore(net, &old, old_layers, err);
}

/* The nearest multiple of 8, at least 8; 0 if it is above the limit. */
static int scaled_filters(int filters, double factor)
{
    double units = floor((double)filters * factor / 8.0 + 0.5);

    if (units < 1.0)
        units = 1.0;
    return units * 8.0 > DARKNET_MAX_FILTERS ? 0 : (int)units * 8;
}

int darknet_net_set_width(struct darknet_net *net, double factor, struct err *err)
{
    struct darknet_net old = *net;
    struct darknet_layer *old_layers;

    if (!(factor > 0.0) || !isfinite(factor))
        return err_set(err, ERR_INPUT, "%s: width factor %g: must be > 0", net->name, factor);
    for (int i = 0; i < net->nlayers; i++)
        if (net->layers[i].type == DARKNET_CONV && scaled_filters(net->layers[i].filters, factor) == 0)
            return err_set(err, ERR_INPUT, "%s: width factor %g: more than %d channels", net->name, factor, DARKNET_MAX_FILTERS);
    if (!(old_layers = layers_copy(net)))
        return err_set(err, -ENOMEM, "%s: out of memory", net->name);
    for (int i = 0; i < net->nlayers; i++)
        if (net->layers[i].type == DARKNET_CONV && !darknet_net_is_head_conv(net, i))
            net->layers[i].filters = scaled_filters(net->layers[i].filters, factor);
    return reshape_or_restore(net, &old, old_layers, err);
}

int darknet_net_set_anchors(struct darknet_net *net, const double *sides, int n, struct err *err)
{
    for (int i = 0; i < n; i++)
        if (!(sides[i] >= 1e-3 && sides[i] <= 1e5))
            return err_set(err, ERR_INPUT, "must be pixels above 0, number %d is %g", i + 1, sides[i]);
    for (int i = 0; i < net->nlayers; i++)
        if (net->layers[i].type == DARKNET_YOLO && 2 * net->layers[i].yolo.ntotal != n)
            return err_set(err, ERR_INPUT, "must be %d numbers, width and height of each of the %d anchors of %s, are %d",
                           2 * net->layers[i].yolo.ntotal, net->layers[i].yolo.ntotal, net->name, n);
    for (int i = 0; i < net->nlayers; i++)
        for (int a = 0; net->layers[i].type == DARKNET_YOLO && a < n; a++)
            net->layers[i].yolo.anchor[a / 2][a % 2] = (float)sides[a];
    return 0;
}

int darknet_net_stride(const struct darknet_net *net)
{
    int stride = 1;

    for (int i = 0; i < net->nlayers; i++)
        if (net->layers[i].scale > stride)
            stride = net->layers[i].scale;
    return stride;
}

bool darknet_net_is_head_conv(const struct darknet_net *net, int layer)
{
    return net->layers[layer].type == DARKNET_CONV && layer + 1 < net->nlayers && net->layers[layer + 1].type == DARKNET_YOLO;
}

static int64_t conv_weights(const struct darknet_layer *l)
{
    return (int64_t)l->filters * l->in.c * l->size * l->size;
}

int64_t darknet_layer_floats(const struct darknet_layer *l)
{
    return l->type == DARKNET_CONV ? conv_weights(l) + (int64_t)l->filters * (l->bn ? 4 : 1) : 0;
}
