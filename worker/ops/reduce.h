/* worker/ops/reduce.h - sums over flat arrays: trees over shards (core/tree.h), norms and hashes. */
#pragma once
#include "worker/core/device.h"
#include "worker/core/tree.h"
#include "worker/ops/family.h"

/* clang-format off */
#define REDUCE_OPS(X)                                                                                                                      \
    /* dst[i] = the canonical tree over `parts` (ascending, adjacent, together one subtree; where they are none, what is left over is added \
     * from the right). dst may be one of them. */                                                                                         \
    X(reduce, tree_add, (struct device *dev, float *dst, const struct tree_part *parts, int nparts, size_t count, struct err *err),        \
      (dev, dst, parts, nparts, count, err))                                                                                               \
    /* SyncBN: dst = the statistics [2c + 1] of all shards in tree order (core/tree.h tree_moments()); dst[j] = the tree over rows[.][j]. */ \
    X(reduce, tree_moments, (struct device *dev, double *dst, const double *const *stats, int nstats, int c, struct err *err),             \
      (dev, dst, stats, nstats, c, err))                                                                                                   \
    X(reduce, tree_sums, (struct device *dev, double *dst, const double *const *rows, int nrows, size_t count, struct err *err),           \
      (dev, dst, rows, nrows, count, err))                                                                                                 \
    /* blocks[j] = sum of squares of g[1024 j .. 1024 j + 1023] (16 virtual lanes, pairwise), as double. */                                \
    X(reduce, sum_squares, (struct device *dev, double *blocks, const float *g, size_t count, struct err *err), (dev, blocks, g, count, err)) \
    /* Evidence hash of `bytes` bytes (determinism 9.2): out[0], out[1] (host) += the two lanes' sums, words counted from first_word.      \
     * Waits. */                                                                                                                           \
    X(reduce, hash, (struct device *dev, uint64_t out[2], const void *data, size_t bytes, uint64_t kappa, uint64_t first_word, struct err *err), \
      (dev, out, data, bytes, kappa, first_word, err))
/* clang-format on */

OPS_FAMILY(reduce, REDUCE_OPS)
