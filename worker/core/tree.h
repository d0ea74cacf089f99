/* SPDX-License-Identifier: Apache-2.0 */ /* worker/core/tree.h - the canonical tree over shards 0 .. V-1: sums have one
 * shape and so one result, however the shards are distributed. T(a, c) = leaf a where c - a = 1, else T(a, m) + T(m, c)
 * with m halfway; V is a power of two. Pure: no state, no I/O. A range of leaves splits into maximal aligned subtrees
 * ("segments"); partial sums exist for segments only, so any cut of the shards over ranks and waves leads to the same
 * additions. Source: specs determinism section 6.2. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worker/kernels/moments.h"

/* Most segments of any range: two per level. */
enum { TREE_MAX_SEGMENTS = 64 };

/* A leaf or subtree over shards [lo, hi). */
struct tree_part {
    int lo, hi;
    const float *data;
};

struct tree_span {
    int lo, hi; /* shards [lo, hi); hi - lo is a power of two and divides lo */
};

/* The maximal aligned subtrees of [lo, hi), ascending. Returns how many (0 for an empty range). 0 <= lo <= hi <
 * 2^30. */
int tree_segments(int lo, int hi, struct tree_span ret[TREE_MAX_SEGMENTS]);
/* Is [lo, hi) one subtree? */
bool tree_is_segment(int lo, int hi);
/* Are parts ascending, adjacent subtrees? Device op tree_add requires it. */
bool tree_parts_adjacent(const struct tree_part *parts, int nparts);
/* dst[i] = the tree over parts, single-threaded, the bits of device op tree_add: for threads that do not own the
 * compute threads. If the parts form no subtree, the rest is added from the right. dst may be one of the parts' data,
 * but must not overlap them otherwise. */
void tree_add_host(float *dst, const struct tree_part *parts, int nparts, size_t count);

/* The tree over n doubles x[0], x[stride], ... If n is not a power of two, the missing leaves on the right are left
 * out. n = 0: 0. */
double tree_sum(const double *x, size_t stride, int n);
/* The same over x[order[0]], x[order[1]] ...; order NULL: over x[0], x[1] ... */
double tree_sum_ordered(const double *x, const uint32_t *order, int n);
/* dst[j] = the tree over rows[0][j], rows[1][j], ...; nrows >= 1. dst may be rows[0]. */
void tree_sum_rows(double *dst, const double *const *rows, int nrows, size_t count);
/* Merges batch statistics [2c + 1] (count, mean[c], M2[c]) of nstats shards in tree order (Chan, kernels/moments.h).
 * nstats >= 1. dst must not overlap the inputs. */
void tree_moments(double *dst, const double *const *stats, int nstats, int c);
/* The same for channel k of c alone; each shard's statistics begin at `at`. */
struct moments tree_moments_channel(const double *const *stats, int nstats, size_t at, int c, int k);
