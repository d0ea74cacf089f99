/* SPDX-License-Identifier: Apache-2.0 */ /* worker/layers/conv.h - shared by the layers that contain a convolution. */
#pragma once
#include "worker/layers/layers.h"

/* The raw output; stats as in device_ops.conv_fwd (may be NULL). Records the way back. */
struct value *conv_raw(struct tape *t, struct value *x, const struct conv *cv, struct param *w, struct param *bias, double *const *stats);
/* In backward: the bias's gradient, from the gradient of the sum that it is part of. */
int conv_bias_backward(struct tape *t, const struct param *bias, const struct tensor *dy, struct err *err);
/* In backward: the weights' gradient, from dy, the gradient of the outputs. dy NULL: from the gradient that a
 * normalisation would write (conv_norm). */
int conv_weights_backward(struct tape *t, const struct conv *cv, struct param *w, struct value *x, const struct tensor *dy,
                          const struct norm_grad *norm, struct err *err);
