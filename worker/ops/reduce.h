/* SPDX-License-Identifier: Apache-2.0 */ /* worker/ops/reduce.h - sums over flat arrays: trees over shards
 * (core/tree.h), norms and hashes. */
#pragma once
#include "proto/hash/hash.h"
#include "worker/core/device.h"
#include "worker/core/tree.h"
#include "worker/ops/family.h"

/* Hashes of blocks (proto/hash/hash_keys.h) of a flat array: ceil(count / 1024). */
struct hash_item {
    const float *data; /* [count] */
    size_t count;
    struct hash128 *blocks;
};

/* A tensor, or neighbouring blocks of a tensor: the first block has number `first` in the tensor. kappa: hash_name() of
 * its name. */
struct hash_piece {
    const struct hash128 *blocks; /* [nblocks] */
    int nblocks, first;
    uint64_t kappa;
};

/* clang-format off */
#define REDUCE_OPS(X)                                                                                                                      \
    /* dst[i] = the canonical tree over `parts` (ascending, adjacent, together one subtree; otherwise the rest is added                    \
     * from the right). dst may be one of them. */                                                                                         \
    X(reduce, tree_add, (struct device *dev, float *dst, const struct tree_part *parts, int nparts, size_t count, struct err *err),        \
      (dev, dst, parts, nparts, count, err))                                                                                               \
    /* SyncBN: dst = the statistics [2c + 1] of all shards in tree order (core/tree.h tree_moments()); dst[j] = the tree                   \
     * over rows[.][j]. */                                                                                                                 \
    X(reduce, tree_moments, (struct device *dev, double *dst, const double *const *stats, int nstats, int c, struct err *err),             \
      (dev, dst, stats, nstats, c, err))                                                                                                   \
    X(reduce, tree_sums, (struct device *dev, double *dst, const double *const *rows, int nrows, size_t count, struct err *err),           \
      (dev, dst, rows, nrows, count, err))                                                                                                 \
    /* blocks[j] = sum of squares of g[1024 j .. 1024 j + 1023] (16 virtual lanes, pairwise), as double; hashes[j] =                       \
     * that block's hash, NULL: not wanted. */                                                                                             \
    X(reduce, sum_squares, (struct device *dev, double *blocks, struct hash128 *hashes, const float *g, size_t count, struct err *err),    \
      (dev, blocks, hashes, g, count, err))                                                                                                \
    /* Evidence (proto/hash/hash.h): the hashes of all blocks of the items. */                                                             \
    X(reduce, hash_blocks, (struct device *dev, const struct hash_item *items, int nitems, struct err *err), (dev, items, nitems, err))    \
    /* ret[i] = the hash of piece i, from those of its blocks. Hashes of a tensor's pieces add up to the tensor's, lane                    \
     * by lane. */                                                                                                                         \
    X(reduce, hash_tensors, (struct device *dev, struct hash128 *ret, const struct hash_piece *pieces, int npieces, struct err *err),      \
      (dev, ret, pieces, npieces, err))
/* clang-format on */

OPS_FAMILY(reduce, REDUCE_OPS)
