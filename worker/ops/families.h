/* SPDX-License-Identifier: Apache-2.0 */ /* worker/ops/families.h - the operations of a device: dev->on->conv->fwd(dev,
 * ...). A family that a device lacks is NULL.
 *
 * Operations take one array element per local shard. Shapes may differ between shards. If all shards have one shape and
 * lie contiguous, a device may treat them as one batch, as long as the bits of a shard do not depend on its neighbours.
 * An operation returns as soon as it is queued on the device's stream (on the CPU: when it is done); host code that
 * reads results calls sync() first. Every pointer to numbers is device memory unless its comment says host; arrays of
 * pointers, of tensors and of structs are host memory and are read before the operation returns. Scalars that depend on
 * data stay in device memory. Backward operations (bwd) take beta: 0 = overwrite and never read the destination, 1 =
 * add to it. Shapes are checked once, by the layer that records the operation.
 *
 * A new operation needs a row in its family's list, a function <device>_<family>_<row>() in the file of the family in
 * worker/cpu and cuda, and a test in tests/device. A new family also needs a line below. Data-dependent row counts:
 * tensor.rows. */
#pragma once
#include <stddef.h>

#include "worker/ops/attn.h"
#include "worker/ops/conv.h"
#include "worker/ops/map.h"
#include "worker/ops/mat.h"
#include "worker/ops/norm.h"
#include "worker/ops/optim.h"
#include "worker/ops/photo.h"
#include "worker/ops/plan.h"
#include "worker/ops/pool.h"
#include "worker/ops/rcnn.h"
#include "worker/ops/reduce.h"
#include "worker/ops/resample.h"
#include "worker/ops/view.h"
#include "worker/ops/warp.h"
#include "worker/ops/roi.h"
#include "worker/ops/set.h"
#include "worker/ops/smooth.h"
#include "worker/ops/rows.h"
#include "worker/ops/rpn.h"
#include "worker/ops/yolo.h"

/* Every device has these. */
#define FAMILIES_OF_ALL(X)    \
    X(conv, CONV_OPS)         \
    X(norm, NORM_OPS)         \
    X(map, MAP_OPS)           \
    X(pool, POOL_OPS)         \
    X(resample, RESAMPLE_OPS) \
    X(reduce, REDUCE_OPS)     \
    X(optim, OPTIM_OPS)       \
    X(view, VIEW_OPS)         \
    X(yolo, YOLO_OPS)         \
    X(roi, ROI_OPS)           \
    X(rpn, RPN_OPS)           \
    X(rcnn, RCNN_OPS)         \
    X(smooth, SMOOTH_OPS)     \
    X(warp, WARP_OPS)         \
    X(photo, PHOTO_OPS)       \
    X(mat, MAT_OPS)           \
    X(rows, ROWS_OPS)         \
    X(attn, ATTN_OPS)         \
    X(set, SET_OPS)
/* Families of CUDA only: it chooses algorithms, and reads a convolution's output again for its statistics. */
#define FAMILIES_OF_CUDA(X) \
    X(plan, PLAN_OPS)       \
    X(norm_apart, NORM_OPS_APART)
/* Families of the CPU only: a convolution makes the gradients that it alone reads at the moment it reads them. */
#define FAMILIES_OF_CPU(X) X(conv_norm, CONV_NORM_OPS)
#define FAMILIES(X)        FAMILIES_OF_ALL(X) FAMILIES_OF_CUDA(X) FAMILIES_OF_CPU(X)

#define FAMILY(family, LIST) const struct family##_ops *family;
struct families {
    FAMILIES(FAMILY)
};
#undef FAMILY

/* Sets of families: NEEDS_conv | NEEDS_norm ... */
#define FAMILY(family, LIST) FAMILY_INDEX_##family,
enum { FAMILIES(FAMILY) };
#undef FAMILY
#define FAMILY(family, LIST) NEEDS_##family = 1u << FAMILY_INDEX_##family,
enum { FAMILIES(FAMILY) };
#undef FAMILY

/* The name of a family of the set that the device lacks, or NULL. */
static inline const char *families_lacking(const struct families *on, unsigned needs)
{
#define FAMILY(family, LIST)                     \
    if ((needs & NEEDS_##family) && !on->family) \
        return #family;
    FAMILIES(FAMILY)

#undef FAMILY
    return NULL;
}
