/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/network_keys.h - the convolutions of a darknet network as a
 * training step asks the CUDA device for them. */
#pragma once
#include "cuda/engine.h"
#include "worker/models/yolo/darknet_net.h"

/* The layer that gives the output of layer i: a route with a single source passes on that source. -1: the images. */
static inline int value_of(const struct darknet_net *net, int i)
{
    while (i >= 0 && net->layers[i].type == DARKNET_ROUTE && net->layers[i].nsources == 1)
        i = net->layers[i].source[0];
    return i;
}

static inline bool reads(const struct darknet_net *net, int layer, int value)
{
    const struct darknet_layer *l = &net->layers[layer];
    bool any = l->type != DARKNET_ROUTE && value_of(net, layer - 1) == value;

    for (int i = 0; i < l->nsources; i++)
        any = any || ((l->type != DARKNET_ROUTE || l->nsources > 1) && value_of(net, l->source[i]) == value);
    return any;
}

/* Backwards, the last reader of a value is the first writer of its gradient; those before it add to it. */
static inline bool adds_to_gradient(const struct darknet_net *net, int layer)
{
    for (int j = layer + 1; j < net->nlayers; j++)
        if (reads(net, j, value_of(net, layer - 1)))
            return true;
    return false;
}

/* Layer i, a convolution, of n images together: forward, without bias. Values have the device's pitch, images have no
 * pitch. */
static inline struct conv_key network_key(const struct darknet_net *net, int i, enum precision precision, enum tier tier, int n)
{
    const struct device gpu = { .dtype = precision == PRECISION_BF16 ? DTYPE_BF16 : DTYPE_F32, .row = CUDA_ROW };
    const struct darknet_layer *l = &net->layers[i];

    return (struct conv_key){ .dtype = gpu.dtype,
                              .precision = precision,
                              .tier = tier,
                              .n = n,
                              .h = l->in.h,
                              .w = l->in.w,
                              .c = l->in.c,
                              .k = l->filters,
                              .r = l->size,
                              .s = l->size,
                              .stride = l->stride,
                              .pad = l->pad,
                              .x_stride = value_of(net, i - 1) >= 0 ? device_stride(&gpu, l->in.c) : l->in.c,
                              .y_stride = device_stride(&gpu, l->filters) };
}
