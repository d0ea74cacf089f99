/* cuda/fold.h - the pairwise tree of core/tree.h in device code: over numbers or moments, and over many rows by one block of threads.
 * Complete aligned groups of 2^i leaves may be folded by themselves first: the additions are the same ones. */
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

/* moments_merge(), without its divisions where both sets have one size, as in most of a tree: the quotients are exact then. */
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

/* The tree in T over n >= 1 numbers x[0], x[stride] ...: eight are on their way at once. */
template <typename T, typename S> DEVICE_FN T fold_rows(const S *x, size_t stride, unsigned n)
{
    fold<T> f;
    unsigned i = 0;

    fold_start(&f);
    for (; i + 8 <= n; i += 8) {
        T a[8];

#pragma unroll
        for (int l = 0; l < 8; l++)
            a[l] = (T)x[(i + (unsigned)l) * stride];
        fold_push(&f, join(join(join(a[0], a[1]), join(a[2], a[3])), join(join(a[4], a[5]), join(a[6], a[7]))), 8u);
    }
    for (; i < n; i++)
        fold_push(&f, (T)x[i * stride], 1u);
    return fold_finish(&f);
}

/* A block of FOLD_WIDTH x FOLD_RUNS threads folds FOLD_WIDTH neighbouring columns of n rows: each thread a run of rows, then one thread of a column its runs. */
enum { FOLD_WIDTH = 32, FOLD_RUNS = 8 };

/* Rows of a run: the smallest power of two that needs no more than FOLD_RUNS of them. */
DEVICE_FN unsigned fold_run(unsigned n)
{
    unsigned run = 1;

    while (run * FOLD_RUNS < n)
        run *= 2;
    return run;
}

/* Called by all threads of the block with the fold of their run (nothing where there is none); `runs` holds FOLD_WIDTH * FOLD_RUNS. The result is right in
 * the threads of row 0. */
template <typename T> DEVICE_FN T fold_block(T *runs, T mine, unsigned n)
{
    unsigned nruns = (n + fold_run(n) - 1) / fold_run(n);

    runs[threadIdx.y * FOLD_WIDTH + threadIdx.x] = mine;
    __syncthreads();
    return threadIdx.y == 0 ? fold_rows<T>(runs + threadIdx.x, FOLD_WIDTH, nruns) : mine;
}
