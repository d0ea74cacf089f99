/* SPDX-License-Identifier: Apache-2.0 */ /* worker/ops/map.h - element by element: activations, sums of two values,
 * copies into slices and other dtypes. All but cast read pending values.
 *
 * Values are f32 or bf16, independent of the device's dtype. All values of a call have one shape and, except for cast,
 * one dtype. */
#pragma once
#include "worker/core/device.h"
#include "worker/core/philox.h"
#include "worker/ops/family.h"
#include "worker/ops/operand.h"

enum act_kind { ACT_LINEAR, ACT_LEAKY, ACT_RELU, ACT_LOGISTIC, ACT_TANH, ACT_ELU /* alpha 1 */ };
#define LEAKY_SLOPE 0.1f /* of ACT_LEAKY, darknet's; specs yolov3 section 1.3 */

/* clang-format off */
#define MAP_OPS(X)                                                                                                                         \
    /* y = x in y's dtype, for images on their way in. */                                                                                  \
    X(map, cast, (struct device *dev, struct tensor *y, const struct tensor *x, int nshards, struct err *err), (dev, y, x, nshards, err))  \
    X(map, act_fwd, (struct device *dev, enum act_kind kind, struct tensor *y, const struct operand *x, int nshards, struct err *err),     \
      (dev, kind, y, x, nshards, err))                                                                                                     \
    /* dx = beta * dx + dy * act'(y), the slope expressed by the output y (leaky: y > 0). Materialised values with                         \
     * ACT_LINEAR: plain accumulate. */                                                                                                    \
    X(map, act_bwd, (struct device *dev, enum act_kind kind, struct tensor *dx, float beta, const struct tensor *dy,                       \
                const struct tensor *y, int nshards, struct err *err), (dev, kind, dx, beta, dy, y, nshards, err))                         \
    /* y = act(a) + act(b) */                                                                                                              \
    X(map, add_fwd, (struct device *dev, struct tensor *y, const struct operand *a, const struct operand *b, int nshards,                  \
        struct err *err),                                                                                                                  \
      (dev, y, a, b, nshards, err))                                                                                                        \
    /* y = beta * y + act(x) / (1 - rate) where a draw keeps the element, else 0: element j of an image by number j of                     \
     * its key. keys: host, one for every image, shard after shard. The way back does the same to dy. */                                   \
    X(map, dropout, (struct device *dev, float rate, const struct philox_key *keys, struct tensor *y, float beta, const struct operand *x, \
                int nshards, struct err *err), (dev, rate, keys, y, beta, x, nshards, err))
/* clang-format on */

OPS_FAMILY(map, MAP_OPS)
