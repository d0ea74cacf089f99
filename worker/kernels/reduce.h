/* SPDX-License-Identifier: Apache-2.0 */ /* worker/kernels/reduce.h - sums with a fixed shape: the canonical tree over
 * shards, and blocks of 1024 numbers. */
#pragma once
#include <stdbool.h>

#include "worker/core/tree.h"
#include "worker/kernels/math.h"

enum {
    SUM_BLOCK = 1024,
    SUM_LANES = 16,   /* virtual lanes: the same on every ISA */
    TREE_DEPTH = 32,  /* partial sums that wait for their sibling: one per level */
    TREE_PENDING = 64 /* the same if the parts form no subtree: two per level */
};

/* Are [lo, mid) and [mid, hi) the two halves of one subtree? */
KERNEL_FN bool tree_siblings(int lo, int mid, int hi)
{
    return mid - lo == hi - mid && lo % (hi - lo) == 0;
}

/* Element i of the tree over parts (ascending, adjacent subtrees): siblings are added as soon as both are there. Parts
 * that form no subtree leave several sums at the end; these are added from the right, so the leaves 0, 1, 2 give (0 +
 * 1) + 2. */
KERNEL_FN float tree_element(const struct tree_part *parts, int nparts, size_t i)
{
    float sum[TREE_PENDING];
    int lo[TREE_PENDING + 1], n = 0;

    sum[0] = 0.0f;
    for (int p = 0; p < nparts; p++) {
        sum[n] = parts[p].data[i];
        lo[n++] = parts[p].lo;
        while (n > 1 && (p == nparts - 1 || tree_siblings(lo[n - 2], lo[n - 1], parts[p].hi))) {
            sum[n - 2] += sum[n - 1];
            n--;
        }
    }
    return sum[0];
}

/* Adds 16 lanes pairwise: (0, 1), (2, 3) ..., then pairs of those. */
KERNEL_FN double sum_lanes(double lane[SUM_LANES])
{
    for (int half = SUM_LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            lane[i] = lane[2 * i] + lane[2 * i + 1];
    return lane[0];
}

/* The same in fp32. */
KERNEL_FN float sum_lanes32(float lane[SUM_LANES])
{
    for (int half = SUM_LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            lane[i] = lane[2 * i] + lane[2 * i + 1];
    return lane[0];
}

/* Sum of squares of count <= 1024 numbers: number i goes to lane i mod 16. Squares of floats are exact in double. */
KERNEL_FN double sum_squares_block(const float *g, size_t count)
{
    double lane[SUM_LANES] = { 0.0 };
    size_t i = 0;

    for (; i + SUM_LANES <= count; i += SUM_LANES)
        for (int l = 0; l < SUM_LANES; l++)
            lane[l] += (double)g[i + (size_t)l] * (double)g[i + (size_t)l];
    for (int l = 0; i < count; i++, l++)
        lane[l] += (double)g[i] * (double)g[i];
    return sum_lanes(lane);
}

/* Sum of n numbers, x[0], x[stride] ...: number i goes to lane i mod 16. */
KERNEL_FN double sum_in_lanes(const double *x, size_t stride, int n)
{
    double lane[SUM_LANES] = { 0.0 };

    for (int i = 0; i < n; i++)
        lane[i % SUM_LANES] += x[(size_t)i * stride];
    return sum_lanes(lane);
}
