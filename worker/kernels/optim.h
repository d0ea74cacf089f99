/* worker/kernels/optim.h - parameter updates of one element. Source: Sutskever et al. 2013 (classical momentum); specs yolov3 section 6.1. */
#pragma once
#include "worker/ops/optim.h"
#include "worker/kernels/math.h"

/* m = momentum * m + (scale * g + decay * w); w = w - lr * m. */
KERNEL_FN void sgd_element(float *w, float *m, float g, const struct sgd *s)
{
    float step = fmaf(s->decay, *w, s->scale * g);

    *m = fmaf(s->momentum, *m, step);
    *w = fmaf(-s->lr, *m, *w);
}

/* Moving average of the weights after the step: ema = w + decay * (ema - w). decay 1 keeps it, 0 takes w. */
KERNEL_FN void ema_element(float *ema, float w, float decay)
{
    *ema = fmaf(decay, *ema - w, w);
}
