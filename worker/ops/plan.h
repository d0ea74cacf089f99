/* SPDX-License-Identifier: Apache-2.0 */ /* worker/ops/plan.h - algorithms that a device chooses, which takes it time: hints of what will be computed, so that no step waits. NULL: the
 * device knows one way to compute. */
#pragma once
#include "worker/ops/conv.h"

/* Which passes over a convolution will come; each means those before it too, but of data gradients there is one. */
enum conv_passes {
    CONV_FORWARD,
    CONV_WEIGHTS,
    CONV_DATA,     /* dx is overwritten: beta = 0 */
    CONV_DATA_ADD, /* beta = 1: another reader of x has written it before */
};

/* What conv() has come to so far. */
struct plan_readiness {
    int plans, compiled; /* convolutions made ready; of these, by a compiler */
};

/* clang-format off */
#define PLAN_OPS(X)                                                                                                                        \
    /* A hint: makes ready what a convolution of this shape, into a value of device_stride(), will need in the device's tier, without      \
     * waiting for it (data of x is NULL). */                                                                                              \
    X(plan, conv, (struct device *dev, const struct tensor *x, const struct conv *cv, const struct param *w, bool bias,                    \
             enum conv_passes passes, int nshards, struct err *err), (dev, x, cv, w, bias, passes, nshards, err))                          \
    /* Waits until all is ready that conv() was told of; what cannot be shows when it is computed. */                                      \
    X(plan, ready, (struct device *dev, struct plan_readiness *ret, struct err *err), (dev, ret, err))                                     \
    /* A step begins. The device may drop what conv() was not told of and no convolution used since `keep` other steps began, and makes it \
     * anew when it is asked for. */                                                                                                       \
    X(plan, begin, (struct device *dev, int keep, struct err *err), (dev, keep, err))                                                      \
    /* The choices made so far, dropped ones too, as sorted text lines: part of a run's identity. Host memory, caller frees with free(). */\
    X(plan, text, (struct device *dev, char **ret, struct err *err), (dev, ret, err))
/* clang-format on */

OPS_FAMILY(plan, PLAN_OPS)
