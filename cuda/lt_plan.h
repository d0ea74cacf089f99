/* SPDX-License-Identifier: Apache-2.0 */ /* cuda/lt_plan.h - 1x1 convolutions with stride 1 as matrix products by cuBLASLt: pixels are rows, channels columns, a pitch is a leading
 * dimension.
 *
 * Three things it does that cuDNN does not: an fp32 weight gradient straight from bf16 tensors, slices of channels without a copy, and the
 * bias in the epilogue whatever the channel count. The algorithm is the heuristic's first that sums in fp32 in a fixed order, asked once
 * and kept. */
#pragma once
#include <cublasLt.h>

#include "cuda/libs.h"
#include "cuda/plan_key.h"

/* Fixed for all keys: the heuristic's answer depends on it. */
#define LT_WORKSPACE ((size_t)32 << 20)

enum { LT_NAME_TEXT = 160, LT_PLAN_TEXT = LT_NAME_TEXT + 32, LT_CANDIDATES = 16 };

/* Handles may be used by several threads. */
struct lt_target {
    const struct cublaslt_api *api; /* NULL: there is none, as where plans are made for a description of a GPU */
    cublasLtHandle_t handle;
};

enum lt_operand { LT_X, LT_W, LT_Y };

/* Column-major D[m,n] = A'[m,k] B'[k,n], where ' transposes if asked; a tensor's row-major rows are columns here. */
struct lt_product {
    int64_t m, n, k;
    enum lt_operand a, b, d; /* which tensors of the convolution these are; LT_W is dw in CONV_BWD_WEIGHTS */
    bool transpose_a, transpose_b;
    int64_t lda, ldb, ldd; /* elements from column to column */
};

/* What became of the algorithms that the heuristic named. */
struct lt_tally {
    int named;
    int untold;      /* refused: they do not say how they sum, as those of a newer library may not */
    int unordered;   /* parts of a sum are added as they come, or rounded before */
    int reduced;     /* sums are not fp32 */
    int tensor_core; /* where strict fp32 was asked for */
    int too_big;     /* workspace over the limit */
    int unmade;      /* cannot be used after all */
};

struct lt_plan {
    const struct cublaslt_api *api;
    struct lt_product product;
    cublasLtMatmulDesc_t op;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulAlgo_t algo;
    size_t workspace;
    bool bias;
    char name[LT_NAME_TEXT]; /* the algorithm and its settings, as the text has them; of one version of the library */
    char text[LT_PLAN_TEXT];
};

/* Needs the current CUDA device. */
int lt_target_open(struct lt_target *t, struct err *err);
void lt_target_close(struct lt_target *t);

/* Is this convolution a matrix product? */
bool lt_is_product(const struct conv_key *k);
struct lt_product lt_product(const struct conv_key *k);

/* only: the name of the one algorithm that is wanted, or NULL. Adds to *tally. ERR_UNSUPPORTED: cuBLASLt has no algorithm for it that is
 * allowed, which depends on the key alone. Other errors do not, so no other choice may follow them. */
int lt_plan_make(struct lt_plan *ret, const struct lt_target *t, const struct plan_key *key, const char *only, struct lt_tally *tally,
                 struct err *err);
/* The allowed algorithms, best first in the heuristic's eyes. Returns how many. */
int lt_plan_names(const struct lt_target *t, const struct plan_key *key, char ret[LT_CANDIDATES][LT_NAME_TEXT]);
void lt_plan_free(struct lt_plan *p);
/* add: to what stands at the destination; else it is never read. */
int lt_plan_run(struct lt_plan *p, const struct lt_target *t, const struct conv_args *args, bool add, void *workspace, cudaStream_t stream,
                struct err *err);
