/* SPDX-License-Identifier: Apache-2.0 */ /* worker/kernels/optim.h - parameter updates of one element, and the clip
 * factor of a gradient's norm. Sources: worker/ops/optim.h; specs yolov3 section 6.1. g is the gradient times the clip
 * factor. */
#pragma once
#include "worker/kernels/math.h"
#include "worker/ops/optim.h"

/* Multiplies the gradient by weight. A norm above max_norm (> 0: there is a limit) is then brought down to it. */
KERNEL_FN struct clip clip_of(double square, double weight, double max_norm)
{
    double norm = weight * sqrt(square);
    struct clip c;

    c.square = square;
    c.factor = (float)(weight * (max_norm > 0.0 && norm > max_norm ? max_norm / norm : 1.0));
    c.skip = !(square - square == 0.0); /* neither NaN nor infinity */
    return c;
}

KERNEL_FN void sgd_element(float *w, float *m, float g, float lr, float decay, const struct sgd *s)
{
    float step = fmaf(decay, *w, g);

    *m = fmaf(s->momentum, *m, step);
    *w = fmaf(-lr, s->nesterov ? fmaf(s->momentum, *m, step) : *m, *w);
}

/* The part of both Adams without decay. */
KERNEL_FN void adam_move(float *w, float *m, float *v, float g, float lr, const struct adam *a)
{
    *m = fmaf(a->beta1, *m, a->rest1 * g);
    *v = fmaf(a->beta2, *v, a->rest2 * g * g);
    *w = fmaf(-lr, a->unbias1 * *m / fmaf(a->unbias2, sqrtf(*v), a->eps), *w);
}

KERNEL_FN void adam_element(float *w, float *m, float *v, float g, float lr, float decay, const struct adam *a)
{
    adam_move(w, m, v, fmaf(decay, *w, g), lr, a);
}

KERNEL_FN void adamw_element(float *w, float *m, float *v, float g, float lr, float decay, const struct adam *a)
{
    *w = fmaf(-lr * decay, *w, *w);
    adam_move(w, m, v, g, lr, a);
}

/* Moving average of the weights after the step: ema = w + decay * (ema - w). decay 1 keeps it, 0 takes w. */
KERNEL_FN void ema_element(float *ema, float w, float decay)
{
    *ema = fmaf(decay, *ema - w, w);
}
