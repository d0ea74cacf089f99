/* SPDX-License-Identifier: Apache-2.0 */ /* worker/ops/mat.h - products of many small matrices, one for each row of a
 * batch. Specs sparse_rcnn section 11.1. */
#pragma once
#include <stdbool.h>

#include "worker/core/device.h"
#include "worker/ops/family.h"

/* One side of a product: `batch` matrices of a shard, of f32 or bf16. Element (i, j) of matrix b stands at
 * data[b * step + i * pitch + j], in numbers. */
struct mat {
    void *data;
    int pitch;
    long step;
    bool turned; /* of a factor: its rows and columns change places */
};

/* C[b] = A[b] . B[b] for b = 0 .. batch - 1: m x n from m x k and k x n, after turning. All of one dtype. */
struct mat_shape {
    int m, n, k;
    enum dtype dtype;
};

/* clang-format off */
#define MAT_OPS(X)                                                                                                                         \
    /* c[v] = beta * c[v] + a[v] . b[v] over batch[v] matrices. Every number is one chain of fused multiply-adds over k,                   \
     * ascending, from 0, in fp32; then beta * c is added by one more and the sum rounded to the dtype once. c is not                      \
     * turned and overlaps no factor. a, b, c, batch: host, [nshards]. */                                                                  \
    X(mat, mul, (struct device *dev, const struct mat_shape *shape, const struct mat *c, float beta, const struct mat *a,                  \
                 const struct mat *b, const int *batch, int nshards, struct err *err), (dev, shape, c, beta, a, b, batch, nshards, err))
/* clang-format on */

OPS_FAMILY(mat, MAT_OPS)
