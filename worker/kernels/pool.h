/* SPDX-License-Identifier: Apache-2.0 */ /* worker/kernels/pool.h - maximum pooling of one element; darknet's padding,
 * specs yolov3 section 1.3. A window starts at i * stride - pad_total / 2; positions outside the map never win; the
 * first maximum in row-major order wins. */
#pragma once
#include <stdbool.h>

#include "worker/kernels/act.h"
#include "worker/ops/pool.h"

KERNEL_FN int maxpool_out(int in, const struct pooling *p)
{
    return (in + p->pad_total - p->size) / p->stride + 1;
}

/* A window along one axis, clipped to the map: [from, to). Never empty, as pad_total < size. */
struct maxpool_range {
    int from, to;
};

KERNEL_FN struct maxpool_range maxpool_range(int i, int in, const struct pooling *p)
{
    struct maxpool_range r;

    r.from = i * p->stride - p->pad_total / 2;
    r.to = r.from + p->size;
    r.from = r.from < 0 ? 0 : r.from;
    r.to = r.to > in ? in : r.to;
    return r;
}

/* The outputs [from, to) along one axis with windows that hold input i. */
KERNEL_FN struct maxpool_range maxpool_readers(int i, int out, const struct pooling *p)
{
    struct maxpool_range r;
    int first = i + p->pad_total / 2 - p->size + 1;

    r.from = first > 0 ? (first + p->stride - 1) / p->stride : 0;
    r.to = (i + p->pad_total / 2) / p->stride + 1;
    r.to = r.to > out ? out : r.to;
    return r;
}

KERNEL_FN float max_first(float best, float v)
{
    return v > best ? v : best;
}

/* Gradient of corner i of a window of four that no other window touches. */
KERNEL_FN float maxpool4_grad(float v0, float v1, float v2, float v3, int i, float dy, float old)
{
    float best = v0;
    int win = 0;

    win = v1 > best ? 1 : win;
    best = max_first(best, v1);
    win = v2 > best ? 2 : win;
    best = max_first(best, v2);
    win = v3 > best ? 3 : win;
    return win == i ? old + dy : old;
}

/* A channel of a map. */
struct maxpool_plane {
    const float *x;
    int h, w, stride; /* stride: floats from one pixel to the next */
    bool pending;
    float scale, shift, slope; /* read only if pending */
};

KERNEL_FN float maxpool_read(const struct maxpool_plane *m, int pixel)
{
    float v = m->x[(size_t)pixel * (size_t)m->stride];

    return m->pending ? act_pending(v, m->scale, m->shift, m->slope) : v;
}

/* Output (oy, ox); *ret_pixel (unless NULL) is the winner's y * w + x. */
KERNEL_FN float maxpool_element(const struct pooling *p, const struct maxpool_plane *m, int oy, int ox, int *ret_pixel)
{
    struct maxpool_range ry = maxpool_range(oy, m->h, p), rx = maxpool_range(ox, m->w, p);
    int win = ry.from * m->w + rx.from;
    float best = maxpool_read(m, win);

    for (int y = ry.from; y < ry.to; y++)
        for (int x = rx.from; x < rx.to; x++) {
            float v = maxpool_read(m, y * m->w + x);

            if (v > best) {
                best = v;
                win = y * m->w + x;
            }
        }
    if (ret_pixel)
        *ret_pixel = win;
    return best;
}

/* Gradient of input (y, x): old (0 where beta is 0), then dy of the windows it won, added one by one in row-major order
 * of the outputs. */
KERNEL_FN float maxpool_grad(const struct pooling *p, const struct maxpool_plane *m, const float *dy, int dy_stride, int oh, int ow, int y,
                             int x, float old)
{
    struct maxpool_range ry = maxpool_readers(y, oh, p), rx = maxpool_readers(x, ow, p);
    int win;

    for (int oy = ry.from; oy < ry.to; oy++)
        for (int ox = rx.from; ox < rx.to; ox++) {
            maxpool_element(p, m, oy, ox, &win);
            if (win == y * m->w + x)
                old += dy[((size_t)oy * (size_t)ow + (size_t)ox) * (size_t)dy_stride];
        }
    return old;
}
