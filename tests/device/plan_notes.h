/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/plan_notes.h - the convolutions that models say they need, as
 * cuda/conv.cu makes keys of them. */
#pragma once
#include "tests/device/plan_keys.h"
#include "worker/models/model.h"
#include "worker/ops/families.h"

static struct {
    struct keys keys;
    enum precision precision;
    enum tier tier;
    int asked;
} seen;

/* Makes the same keys as cuda/conv.cu. */
static int note_conv(struct device *dev, const struct tensor *x, const struct conv *cv, const struct param *w, bool bias,
                     enum conv_passes passes, int nshards, struct err *err)
{
    struct conv_key k = { .dtype = dev->dtype,
                          .precision = seen.precision,
                          .tier = seen.tier,
                          .n = x->n,
                          .h = x->h,
                          .w = x->w,
                          .c = x->c,
                          .k = w->k,
                          .r = w->r,
                          .s = w->s,
                          .stride = cv->stride,
                          .pad = cv->pad,
                          .x_stride = x->stride,
                          .y_stride = device_stride(dev, w->k) };

    (void)err;
    assert_int_equal(nshards, 1);
    seen.asked++;
    k.bias = bias;
    add_key(&seen.keys, &k);
    k.bias = false;
    k.dir = CONV_BWD_WEIGHTS;
    if (passes >= CONV_WEIGHTS)
        add_key(&seen.keys, &k);
    k.dir = CONV_BWD_DATA;
    k.add = passes == CONV_DATA_ADD;
    if (passes >= CONV_DATA)
        add_key(&seen.keys, &k);
    return 0;
}

static const struct plan_ops notes = { .conv = note_conv };
static const struct families noting = { .plan = &notes };

/* The model itself reports the convolutions that it needs. For the model, the device is a GPU with this precision and
 * tier. */
static void note_model(struct model *m, enum precision precision, enum tier tier, int n, struct canvas canvas)
{
    struct device gpu = { .on = &noting, .dtype = precision == PRECISION_BF16 ? DTYPE_BF16 : DTYPE_F32, .row = CUDA_ROW }, *own = m->dev;
    struct err err;

    seen.precision = precision;
    seen.tier = tier;
    m->dev = &gpu;
    assert_int_equal(m->ops->plan(m, TAPE_TRAIN, n, 1, canvas, &err), 0);
    assert_int_equal(m->ops->plan(m, TAPE_EVAL, n, 1, canvas, &err), 0);
    m->dev = own;
}
