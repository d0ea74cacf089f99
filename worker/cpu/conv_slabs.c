/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/conv_slabs.c - partial sums of slabs of pixels in a pairwise
 * tree, and Chan's merge of moments in the same tree. */
#include <string.h>

#include "worker/core/simd.h"
#include "worker/cpu/conv.h"

int slab_levels(int count)
{
    int levels = 2;

    for (int n = 1; n < count; n *= 2)
        levels++;
    return levels;
}

float *slab_next(struct slabs *s)
{
    return s->stack + (size_t)s->depth * s->n;
}

static void add_top(struct slabs *s)
{
    float *to = s->stack + (size_t)(s->depth - 2) * s->n, *from = to + s->n;
    size_t i = 0;

    for (; i + VW <= s->n; i += VW)
        vstore(to + i, vadd(vload(to + i), vload(from + i)));
    for (; i < s->n; i++)
        to[i] += from[i];
    s->depth--;
}

void slab_push(struct slabs *s)
{
    s->depth++;
    s->count++;
    for (unsigned n = s->count; n % 2 == 0; n /= 2)
        add_top(s);
}

const float *slab_finish(struct slabs *s)
{
    while (s->depth > 1)
        add_top(s);
    return s->stack;
}

struct parts {
    float *part, *dst;
    size_t n;
    int count;
    float beta;
};

static void sum_range(void *arg, size_t from, size_t to)
{
    const struct parts *a = arg;

    for (int w = 1; w < a->count; w *= 2)
        for (int i = 0; i + w < a->count; i += 2 * w) {
            float *dst = a->part + (size_t)i * a->n;
            const float *src = dst + (size_t)w * a->n;

            for (size_t e = from; e < to; e++)
                dst[e] += src[e];
        }
    slab_write(a->dst + from, a->beta, a->part + from, to - from);
}

void slab_sum(struct threads *threads, float *dst, float beta, float *part, int count, size_t n)
{
    struct parts a = { part, dst, n, count, beta };

    threads_run(threads, n, sum_range, &a);
}

void slab_write(float *dst, float beta, const float *src, size_t n)
{
    if (beta == 0.0f) {
        memcpy(dst, src, n * sizeof *dst);
        return;
    }
    for (size_t i = 0; i < n; i++)
        dst[i] = fmaf(beta, dst[i], src[i]);
}

/* a and b: mean[k], M2[k] over na and nb values; the union goes to a. */
static void merge(double *a, double na, const double *b, double nb, int k)
{
    double share = nb / (na + nb), weight = na * share;

    for (int i = 0; i < k; i++) {
        double d = b[i] - a[i];

        a[i] = a[i] + d * share;
        a[k + i] = a[k + i] + b[k + i] + d * d * weight;
    }
}

static void from_slab(const float *m, int ld, double n, int k, double *ret)
{
    for (int i = 0; i < k; i++) {
        double sum = m[ld + i], m2 = m[2 * ld + i] - sum * sum / n;

        ret[i] = m[i] + sum / n;
        ret[k + i] = m2 > 0 ? m2 : 0;
    }
}

static void merge_top(double *stack, double *count, int *depth, int k)
{
    double *top = stack + (size_t)(*depth - 1) * 2 * (size_t)k;

    merge(top - 2 * (size_t)k, count[*depth - 2], top, count[*depth - 1], k);
    count[*depth - 2] += count[*depth - 1];
    (*depth)--;
}

void cpu_moments(const float *moments, int ld, const int *pixels, int slabs, int k, double *stack, double *ret_stats)
{
    double count[34] = { 0 };
    int depth = 0;

    for (int s = 0; s < slabs; s++) {
        from_slab(moments + (size_t)s * 3 * (size_t)ld, ld, pixels[s], k, stack + (size_t)depth * 2 * (size_t)k);
        count[depth++] = pixels[s];
        for (int n = s + 1; n % 2 == 0; n /= 2)
            merge_top(stack, count, &depth, k);
    }
    while (depth > 1)
        merge_top(stack, count, &depth, k);
    ret_stats[0] = count[0];
    memcpy(ret_stats + 1, stack, sizeof *stack * 2 * (size_t)k);
}
