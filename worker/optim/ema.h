/* SPDX-License-Identifier: Apache-2.0 */ /* worker/optim/ema.h - a moving average of the weights: trained beside them,
 * validated and saved in their place. Every trainable parameter has an average; running statistics are averages already
 * and stay unchanged. The averaging itself is part of the optimizer step (ops/optim.h). Source: Polyak and Juditsky
 * 1992; the decay of the first steps is that of TensorFlow's ExponentialMovingAverage with num_updates. */
#pragma once
#include <stdint.h>

struct device;
struct ema;
struct err;
struct param;

/* Decay of step t, counted from 1: min(decay, (1 + t) / (10 + t)), so that the weights at the start are soon forgotten.
 * In double, rounded once. */
float ema_decay(double decay, int64_t t);
/* The averages start as the parameters' present values. Caller closes before the parameters and the device go.
 * ERR_DEVICE: out of memory, names the parameter. */
int ema_open(struct device *dev, struct param *const *params, int nparams, struct ema **ret_ema, struct err *err);
void ema_close(struct ema *e);
/* Device memory [count] of the i-th parameter: its average, or its weights between two swaps; NULL if it has no
 * average. e NULL: no averages. */
float *ema_other(const struct ema *e, int i);
/* Averages and weights change places, by pointers only: work queued on the device stays right. A second call swaps
 * back. NULL is ignored. */
void ema_swap(struct ema *e);
