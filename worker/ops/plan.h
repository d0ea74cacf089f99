/* SPDX-License-Identifier: Apache-2.0 */ /* worker/ops/plan.h - hints of coming convolutions, for a device that needs
 * time to choose algorithms, so that no step waits. NULL: the device knows one way to compute. */
#pragma once
#include "worker/ops/conv.h"

/* The coming passes over a convolution. Each includes the ones before it, but CONV_DATA_ADD stands in place of
 * CONV_DATA. */
enum conv_passes {
    CONV_FORWARD,
    CONV_WEIGHTS,
    CONV_DATA,     /* dx is overwritten: beta = 0 */
    CONV_DATA_ADD, /* beta = 1: another reader of x has written it before */
};

/* The outcome of conv() so far. */
struct plan_readiness {
    int plans, compiled; /* convolutions made ready; among them, by a compiler */
};

/* clang-format off */
#define PLAN_OPS(X)                                                                                                                        \
    /* A hint: prepares, without waiting, a convolution of this shape into a value of device_stride(), in the device's                     \
     * tier (data of x is NULL). */                                                                                                        \
    X(plan, conv, (struct device *dev, const struct tensor *x, const struct conv *cv, const struct param *w, bool bias,                    \
             enum conv_passes passes, int nshards, struct err *err), (dev, x, cv, w, bias, passes, nshards, err))                          \
    /* Waits until all that conv() has asked for is ready; a failure appears when the convolution is computed. */                          \
    X(plan, ready, (struct device *dev, struct plan_readiness *ret, struct err *err), (dev, ret, err))                                     \
    /* Begins a step. The device may drop a plan that conv() did not ask for and no convolution used since `keep` other                    \
     * steps began; it makes the plan anew on request. */                                                                                  \
    X(plan, begin, (struct device *dev, int keep, struct err *err), (dev, keep, err))                                                      \
    /* The choices made so far, dropped ones too, as sorted text lines: part of a run's identity. Host memory, caller                      \
     * frees with free(). */                                                                                                               \
    X(plan, text, (struct device *dev, char **ret, struct err *err), (dev, ret, err))
/* clang-format on */

OPS_FAMILY(plan, PLAN_OPS)
