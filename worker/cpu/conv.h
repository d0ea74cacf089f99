/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/conv.h - shared by the convolution paths of the CPU device. A
 * layer's shape alone decides its path: winograd_conv.c and winograd_dw.c for 3x3 stride 1, conv_rows_conv.c and
 * conv_rows_dw.c for everything else, and for all of bf16; conv_forms.c packs the weights of the latter. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "worker/core/carve.h"
#include "worker/cpu/cpu.h"

static inline float *carve_floats(struct carve *c, size_t count)
{
    return carve(c, count * sizeof(float));
}

/* ---- conv_derived.c: forms of a parameter that outlive an op, by key ---- */
enum form_kind { FORM_WINO_FWD, FORM_WINO_BACK, FORM_ROWS_FWD, FORM_ROWS_BACK, FORM_TILES_FWD, FORM_TILES_BACK };
struct form_key {
    enum form_kind kind;
    int a, b; /* further dependence of the form: points of both axes, or stride and pad */
};
/* Memory of `count` floats for the form, kept with the parameter; *ret_stale: the caller must fill it, for this
 * version. NULL: out of memory, *err tells it. */
float *cpu_form(struct param *p, const struct form_key *key, size_t count, bool *ret_stale, struct err *err);
/* The same for a form that was asked for before and has another version: the caller must fill it. Else returns NULL. */
float *cpu_form_due(struct param *p, const struct form_key *key, size_t count);

/* ---- conv_slabs.c: partial sums in a pairwise tree ---- */
/* A stack of partial arrays of n floats: slab_next() is the place for the next partial result, slab_push() takes it in
 * and adds equal subtrees, slab_finish() adds the rest and returns the sum. Complete aligned groups of 2^i partials,
 * summed by themselves first, give the same bits, so slabs can be shared out among threads. */
struct slabs {
    float *stack; /* slab_levels(count) * n floats */
    size_t n;
    int depth;
    unsigned count;
};
int slab_levels(int count);
float *slab_next(struct slabs *s);
void slab_push(struct slabs *s);
const float *slab_finish(struct slabs *s);
/* dst[i] = beta * dst[i] + src[i]; beta 0 never reads dst. */
void slab_write(float *dst, float beta, const float *src, size_t n);
/* dst[i] = beta * dst[i] + the same tree over part[count][n], which is overwritten. */
void slab_sum(struct threads *threads, float *dst, float beta, float *part, int count, size_t n);

/* Moments of the slabs of one shard to count, mean[k], M2[k]. moments: [slabs][3][ld] floats (shift, sum and sum of
 * squares of y - shift), pixels[slab] values each. stack: slab_levels(slabs) * 2 * k doubles. */
void cpu_moments(const float *moments, int ld, const int *pixels, int slabs, int k, double *stack, double *ret_stats);

/* ---- the paths; shards [0, nshards) have equal shapes ---- */
struct conv_call {
    struct device *dev;
    const struct operand *x; /* forward and weight gradient: inputs */
    struct tensor *y;        /* destination: outputs, or dx */
    const struct tensor *dy;
    const struct norm_grad *norm; /* for weight gradients, or NULL: stands for dy */
    struct param *w;              /* NULL for weight gradients, which need its size only */
    int r, s, stride, pad;
    int nshards;
    float beta;
    const float *bias;
    double *const *stats;
    float *const *dw;
};

/* Output gradients of a shard; with norm only their shape is valid. */
static inline const struct tensor *conv_dy(const struct conv_call *q, int v)
{
    return q->norm ? &q->norm->x[v].x : &q->dy[v];
}

/* Are the results, which replace old ones, so large that they go past the caches (VSTREAMS), and do they consist of
 * whole lines? */
bool conv_streams(const struct conv_call *q);

/* Is Winograd cheaper, and worth it, for a stride-1 3x3 layer with outputs h x w? */
bool wino_fits(int h, int w, int c, int k);
int wino_conv_fwd(const struct conv_call *q, struct err *err);
int wino_conv_bwd_data(const struct conv_call *q, struct err *err);
int wino_conv_bwd_weights(const struct conv_call *q, struct err *err);
int rows_conv_fwd(const struct conv_call *q, struct err *err);
int rows_conv_bwd_data(const struct conv_call *q, struct err *err);
int rows_conv_bwd_weights(const struct conv_call *q, struct err *err);
