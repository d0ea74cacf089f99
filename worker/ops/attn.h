/* SPDX-License-Identifier: Apache-2.0 */ /* worker/ops/attn.h - multi-head attention among the rows of an image
 * (Vaswani et al. 2017, arXiv:1706.03762), without mask and positions. Specs sparse_rcnn sections 3.2, 6.7, 10.1. */
#pragma once
#include "worker/core/device.h"
#include "worker/ops/family.h"

enum { ATTN_MAX_CHANNELS = 256 /* of a head */, ATTN_MAX_ROWS = 1024 /* of an image */ };

/* qkv: [images * rows, 1, 1, 3 * d] with the queries, keys and values of d channels side by side; head h owns channels
 * h * d / heads .. of each. */
struct attn {
    int rows;  /* of an image, which sees no other; a shard has tensor.n / rows images */
    int heads; /* divides d */
};

/* clang-format off */
#define ATTN_OPS(X)                                                                                                                        \
    /* o [images * rows, 1, 1, d], of qkv's dtype. stats[v]: [images][heads][rows][2] floats, written: maximum and sum                     \
     * of the exponentials, from which bwd makes the same probabilities again. */                                                          \
    X(attn, fwd, (struct device *dev, const struct attn *how, struct tensor *o, float *const *stats, const struct tensor *qkv,             \
                  int nshards, struct err *err), (dev, how, o, stats, qkv, nshards, err))                                                  \
    /* dqkv = beta * dqkv + the gradient. Every number has one owner: a chain over keys for queries, over queries for                      \
     * keys and values. */                                                                                                                 \
    X(attn, bwd, (struct device *dev, const struct attn *how, struct tensor *dqkv, float beta, const struct tensor *d_o,                   \
                  const float *const *stats, const struct tensor *qkv, const struct tensor *o, int nshards, struct err *err),              \
      (dev, how, dqkv, beta, d_o, stats, qkv, o, nshards, err))
/* clang-format on */

OPS_FAMILY(attn, ATTN_OPS)
