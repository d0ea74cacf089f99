/* SPDX-License-Identifier: Apache-2.0 */ /* worker/kernels/moments.h - count, mean and sum of squared deviations of a
 * set of numbers, and of the union of two sets. Source: Chan, Golub, LeVeque 1979, Updating formulae and a pairwise
 * algorithm for computing sample variances. */
#pragma once
#include "worker/kernels/kernel.h"

struct moments {
    double count, mean, m2;
};

/* a before b: in tree order the lower shards come first. An empty set changes nothing. */
KERNEL_FN struct moments moments_merge(struct moments a, struct moments b)
{
    struct moments r;
    double n = a.count + b.count, d = b.mean - a.mean;

    if (b.count == 0.0)
        return a;
    if (a.count == 0.0)
        return b;
    r.count = n;
    r.mean = a.mean + d * (b.count / n);
    r.m2 = a.m2 + b.m2 + d * d * (a.count * b.count / n);
    return r;
}
