/* SPDX-License-Identifier: Apache-2.0 */ /* cuda/fold.h - the pairwise tree of core/tree.h in device code: over numbers
 * or moments, and over many rows by one block of threads. Complete aligned groups of 2^i leaves may be folded by
 * themselves first: the additions are the same. */
#pragma once
#include "cuda/vec.h"
#include "worker/kernels/moments.h"
#include "worker/kernels/reduce.h"

DEVICE_FN float join(float a, float b)
{
    return a + b;
}

DEVICE_FN double join(double a, double b)
{
    return a + b;
}

/* moments_merge(), without its divisions when both sets have the same size, as in most of a tree: the quotients are
 * then exact. */
DEVICE_FN struct moments join(struct moments a, struct moments b)
{
    const double exact = 67108864.0; /* 2^26: the square of a count has no more bits than a double */
    struct moments r;
    double d = b.mean - a.mean;

    if (a.count != b.count || a.count == 0.0 || a.count > exact)
        return moments_merge(a, b);
    r.count = a.count + b.count;
    r.mean = a.mean + d * 0.5;
    r.m2 = a.m2 + b.m2 + d * d * (a.count * 0.5);
    return r;
}

/* Subtrees that wait for their sibling, largest first. */
template <typename T> struct fold {
    T part[TREE_DEPTH];
    int depth;
    unsigned count;
};

template <typename T> DEVICE_FN void fold_start(fold<T> *f)
{
    f->depth = 0;
    f->count = 0;
}

/* x: the next leaf, or the sum of the next `leaves` ones (a power of two that divides the count so far). */
template <typename T> DEVICE_FN void fold_push(fold<T> *f, T x, unsigned leaves)
{
    f->count += leaves;
    for (unsigned n = f->count / leaves; n % 2 == 0; n /= 2)
        x = join(f->part[--f->depth], x);
    f->part[f->depth++] = x;
}

/* At least one leaf has been pushed. Missing leaves on the right are left out. */
template <typename T> DEVICE_FN T fold_finish(fold<T> *f)
{
    T x = f->part[--f->depth];

    while (f->depth > 0)
        x = join(f->part[--f->depth], x);
    return x;
}

/* Leaves that are read before the first is added. */
enum { FOLD_AHEAD = 8 };

template <typename T> DEVICE_FN T fold_four(const T *a)
{
    return join(join(a[0], a[1]), join(a[2], a[3]));
}

/* The next leaves: FOLD_AHEAD of them or, for the last time, the first n of a. */
template <typename T> DEVICE_FN void fold_some(fold<T> *f, T (&a)[FOLD_AHEAD], unsigned n)
{
    if (n >= FOLD_AHEAD) {
        fold_push(f, join(fold_four(a), fold_four(a + 4)), 8u);
        return;
    }
    if (n & 4) {
        fold_push(f, fold_four(a), 4u);
        a[0] = a[4], a[1] = a[5], a[2] = a[6];
    }
    if (n & 2) {
        fold_push(f, join(a[0], a[1]), 2u);
        a[0] = a[2];
    }
    if (n & 1)
        fold_push(f, a[0], 1u);
}

/* The tree in T over n >= 1 numbers x[0], x[stride] ... */
template <typename T, typename S> DEVICE_FN T fold_rows(const S *x, size_t stride, unsigned n)
{
    fold<T> f;

    fold_start(&f);
    for (unsigned i = 0; i < n; i += FOLD_AHEAD) {
        T a[FOLD_AHEAD];

#pragma unroll
        for (unsigned l = 0; l < FOLD_AHEAD; l++)
            if (i + l < n)
                a[l] = (T)x[(i + l) * stride];
        fold_some(&f, a, n - i);
    }
    return fold_finish(&f);
}

/* A block of FOLD_WIDTH x FOLD_RUNS threads folds FOLD_WIDTH neighbouring columns of n rows: each thread a run of rows,
 * then one thread of a column its runs. */
enum { FOLD_WIDTH = 32, FOLD_RUNS = 16, FOLD_THREADS = FOLD_WIDTH * FOLD_RUNS };

/* Rows of a run: the smallest power of two that needs no more than FOLD_RUNS of them. */
DEVICE_FN unsigned fold_run(unsigned n)
{
    unsigned run = 1;

    while (run * FOLD_RUNS < n)
        run *= 2;
    return run;
}

/* Runs of n rows. */
DEVICE_FN unsigned fold_runs(unsigned n)
{
    return (n + fold_run(n) - 1) / fold_run(n);
}

/* All threads of the block must call it with the fold of their run; the value of a thread without a run is not used.
 * `runs` holds FOLD_THREADS. The result is right in the threads of row 0. */
template <typename T> DEVICE_FN T fold_block(T *runs, T mine, unsigned n)
{
    runs[threadIdx.y * FOLD_WIDTH + threadIdx.x] = mine;
    __syncthreads();
    return threadIdx.y == 0 ? fold_rows<T>(runs + threadIdx.x, FOLD_WIDTH, fold_runs(n)) : mine;
}
