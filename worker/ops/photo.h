/* SPDX-License-Identifier: Apache-2.0 */ /* worker/ops/photo.h - differences of pictures, pixel by pixel, and losses
 * that take the least of several candidates. Specs featdepth sections 3.1 to 3.4. Everything is f32, and nothing is
 * pending.
 *
 * Results are weight times the mean over all pixels of a shard; gradients are those of weight * grad_scale times that
 * mean. */
#pragma once
#include "worker/core/device.h"
#include "worker/core/philox.h"
#include "worker/ops/family.h"

enum { PHOTO_MAX_SOURCES = 8 };

enum automask_kind { AUTOMASK_NONE, AUTOMASK_UNIFORM, AUTOMASK_NORMAL };

/* Noise that is added to the maps of sources that are not warped, so that no two are equal. Element of a key: y * w +
 * x. */
struct automask_noise {
    enum automask_kind kind;
    float sigma;
    const struct philox_key *const *key; /* [sources], host: [images of all shards], shard after shard */
};

/* Candidates for each pixel, maps [n, h, w, 1]: identity before warped. The first of equal candidates is taken; NaN
 * comes before all numbers. */
struct photo_maps {
    int nidentity, nwarped;                                                       /* at most PHOTO_MAX_SOURCES each */
    const struct tensor *identity[PHOTO_MAX_SOURCES], *warped[PHOTO_MAX_SOURCES]; /* [nshards] */
    struct automask_noise noise;
};

/* Features [n, h, w, c] that are candidates for the target's. */
struct photo_features {
    int nwarped;
    const struct tensor *warped[PHOTO_MAX_SOURCES], *target; /* [nshards] */
};

/* Destinations of gradients. NULL: not wanted. */
struct photo_grads {
    struct tensor *warped[PHOTO_MAX_SOURCES], *target; /* [nshards] */
    float beta[PHOTO_MAX_SOURCES], beta_target;
};

/* clang-format off */
#define PHOTO_OPS(X)                                                                                                                       \
    /* map: [n, h, w, 1] = ssim_weight * (1 - SSIM) / 2 + (1 - ssim_weight) * robust distance of a and b [n, h, w, c],                     \
     * means over channels; h, w >= 2. */                                                                                                  \
    X(photo, map_fwd, (struct device *dev, float ssim_weight, struct tensor *map, const struct tensor *a, const struct tensor *b,          \
                int nshards, struct err *err), (dev, ssim_weight, map, a, b, nshards, err))                                                \
    X(photo, map_bwd, (struct device *dev, float ssim_weight, struct tensor *da, float beta, const struct tensor *dmap,                    \
                const struct tensor *a, const struct tensor *b, int nshards, struct err *err),                                             \
      (dev, ssim_weight, da, beta, dmap, a, b, nshards, err))                                                                              \
    /* ret[v] = weight * mean of the least. dwarped: [nwarped] maps, each number written; a NULL list or entry is not                      \
     * wanted. */                                                                                                                          \
    X(photo, least, (struct device *dev, const struct photo_maps *in, struct tensor *const *dwarped, float weight, float grad_scale,       \
              double *const *ret, int nshards, struct err *err), (dev, in, dwarped, weight, grad_scale, ret, nshards, err))                \
    /* ret[v] = weight * mean of the least robust distance, a mean over channels. to NULL: no gradients. */                                \
    X(photo, nearest, (struct device *dev, const struct photo_features *in, const struct photo_grads *to, float weight, float grad_scale,  \
                double *const *ret, int nshards, struct err *err), (dev, in, to, weight, grad_scale, ret, nshards, err))
/* clang-format on */

OPS_FAMILY(photo, PHOTO_OPS)
