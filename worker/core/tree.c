#include "worker/core/tree.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <assert.h>
#include <string.h>

#include "worker/kernels/moments.h"
#include "worker/kernels/reduce.h"

int tree_segments(int lo, int hi, struct tree_span ret[TREE_MAX_SEGMENTS])
{
    int n = 0;

    assert(lo >= 0 && lo <= hi && hi < 1 << 30);
    while (lo < hi) {
        int size = 1;

        while (lo % (2 * size) == 0 && lo + 2 * size <= hi)
            size *= 2;
        ret[n++] = (struct tree_span){ lo, lo + size };
        lo += size;
    }
    return n;
}

bool tree_is_segment(int lo, int hi)
{
    int size = hi - lo;

    return lo >= 0 && size > 0 && (size & (size - 1)) == 0 && lo % size == 0;
}

bool tree_parts_adjacent(const struct tree_part *parts, int nparts)
{
    for (int p = 0; p < nparts; p++)
        if (!tree_is_segment(parts[p].lo, parts[p].hi) || (p > 0 && parts[p].lo != parts[p - 1].hi))
            return false;
    return nparts > 0;
}

static void add_two(float *dst, const float *a, const float *b, size_t count)
{
    for (size_t i = 0; i < count; i++)
        dst[i] = a[i] + b[i];
}

enum { CHUNK = 256 }; /* partial sums of a chunk stay in the first-level cache */

/* tree_element() of count <= CHUNK elements at `first`, level by level. Leaves are read in place; sums stay on the
 * stack. */
static void add_chunk(float *dst, const struct tree_part *parts, int nparts, size_t first, size_t count)
{
    float sum[TREE_PENDING][CHUNK];
    const float *at[TREE_PENDING];
    int lo[TREE_PENDING], n = 0;

    for (int p = 0; p < nparts; p++) {
        at[n] = parts[p].data + first;
        lo[n++] = parts[p].lo;
        while (n > 1 && (p == nparts - 1 || tree_siblings(lo[n - 2], lo[n - 1], parts[p].hi))) {
            add_two(n == 2 && p == nparts - 1 ? dst + first : sum[n - 2], at[n - 2], at[n - 1], count);
            at[n - 2] = sum[n - 2];
            n--;
        }
    }
}

/* dst may be one of the parts: every element is read before it is written. */
void tree_add_host(float *dst, const struct tree_part *parts, int nparts, size_t count)
{
    assert(tree_parts_adjacent(parts, nparts));
    if (nparts == 2)
        add_two(dst, parts[0].data, parts[1].data, count);
    else if (nparts > 2)
        for (size_t i = 0; i < count; i += CHUNK)
            add_chunk(dst, parts, nparts, i, count - i < CHUNK ? count - i : CHUNK);
    else if (dst != parts[0].data)
        memcpy(dst, parts[0].data, count * sizeof(*dst));
}

/* Leaf i is x[order[i]], or x[i * stride] if order is NULL. */
static double sum_leaves(const double *x, size_t stride, const uint32_t *order, int n)
{
    double sum[TREE_DEPTH] = { 0.0 };
    int depth = 0;

    for (int i = 0; i < n; i++) {
        sum[depth++] = x[order ? order[i] : (size_t)i * stride];
        for (int below = i + 1; below % 2 == 0; below /= 2, depth--)
            sum[depth - 2] += sum[depth - 1];
    }
    for (; depth > 1; depth--)
        sum[depth - 2] += sum[depth - 1];
    return sum[0];
}

double tree_sum(const double *x, size_t stride, int n)
{
    return sum_leaves(x, stride, NULL, n);
}

double tree_sum_ordered(const double *x, const uint32_t *order, int n)
{
    return sum_leaves(x, 1, order, n);
}

void tree_sum_rows(double *dst, const double *const *rows, int nrows, size_t count)
{
    for (size_t j = 0; j < count; j++) {
        double sum[TREE_DEPTH] = { 0.0 };
        int depth = 0;

        for (int i = 0; i < nrows; i++) {
            sum[depth++] = rows[i][j];
            for (int below = i + 1; below % 2 == 0; below /= 2, depth--)
                sum[depth - 2] += sum[depth - 1];
        }
        for (; depth > 1; depth--)
            sum[depth - 2] += sum[depth - 1];
        dst[j] = sum[0];
    }
}

static struct moments channel_of(const double *stats, int c, int k)
{
    return (struct moments){ stats[0], stats[1 + k], stats[1 + c + k] };
}

struct moments tree_moments_channel(const double *const *stats, int nstats, size_t at, int c, int k)
{
    struct moments part[TREE_DEPTH] = { { 0.0, 0.0, 0.0 } };
    int depth = 0;

    for (int i = 0; i < nstats; i++) {
        part[depth++] = channel_of(stats[i] + at, c, k);
        for (int below = i + 1; below % 2 == 0; below /= 2, depth--)
            part[depth - 2] = moments_merge(part[depth - 2], part[depth - 1]);
    }
    for (; depth > 1; depth--)
        part[depth - 2] = moments_merge(part[depth - 2], part[depth - 1]);
    return part[0];
}

void tree_moments(double *dst, const double *const *stats, int nstats, int c)
{
    for (int k = 0; k < c; k++) {
        struct moments m = tree_moments_channel(stats, nstats, 0, c, k);

        dst[0] = m.count;
        dst[1 + k] = m.mean;
        dst[1 + c + k] = m.m2;
    }
}
