/* SPDX-License-Identifier: Apache-2.0 */ /* cuda/lt_plan.h - 1x1 convolutions with stride 1 as matrix products by
 * cuBLASLt: pixels are rows, channels columns, a pitch is a leading dimension.
 *
 * It does three things that cuDNN does not: an fp32 weight gradient straight from bf16 tensors, slices of channels
 * without a copy, and the bias in the epilogue for any channel count. The algorithm is the first of the heuristic that
 * sums in fp32 in a fixed order. The heuristic is asked once and its answer kept. */
#pragma once
#include <cublasLt.h>

#include "cuda/libs.h"
#include "cuda/plan_key.h"

/* Fixed for all keys: the heuristic's answer depends on it. */
#define LT_WORKSPACE ((size_t)32 << 20)

enum { LT_NAME_TEXT = 160, LT_PLAN_TEXT = LT_NAME_TEXT + 32, LT_CANDIDATES = 16 };

/* Handles may be used by several threads. */
struct lt_target {
    const struct cublaslt_api *api; /* NULL: no library, as when plans are made for a description of a GPU */
    cublasLtHandle_t handle;
};

enum lt_operand { LT_X, LT_W, LT_Y };

/* Column-major D[m,n] = A'[m,k] B'[k,n], where ' transposes if asked; a tensor's row-major rows are columns here. */
struct lt_product {
    int64_t m, n, k;
    enum lt_operand a, b, d; /* operands of the convolution; LT_W is dw in CONV_BWD_WEIGHTS */
    bool transpose_a, transpose_b;
    int64_t lda, ldb, ldd; /* elements from column to column */
};

/* Numbers of the algorithms that the heuristic named, by outcome. */
struct lt_tally {
    int named;
    int untold;      /* refused: they do not tell how they sum, which a newer library may bring */
    int unordered;   /* parts of a sum are added in order of arrival, or rounded before */
    int reduced;     /* sums are not fp32 */
    int tensor_core; /* refused because strict fp32 was asked for */
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
    char name[LT_NAME_TEXT]; /* the algorithm and its settings, as in the text; valid for one version of the library */
    char text[LT_PLAN_TEXT];
};

/* Needs the current CUDA device. */
int lt_target_open(struct lt_target *t, struct err *err);
void lt_target_close(struct lt_target *t);

/* Is this convolution a matrix product? */
bool lt_is_product(const struct conv_key *k);
struct lt_product lt_product(const struct conv_key *k);

/* only: the name of the one algorithm to use, or NULL. Adds to *tally. ERR_UNSUPPORTED: cuBLASLt has no allowed
 * algorithm for the key. This depends on the key alone. Other errors may depend on more, so the caller must not make
 * another choice after them. */
int lt_plan_make(struct lt_plan *ret, const struct lt_target *t, const struct plan_key *key, const char *only, struct lt_tally *tally,
                 struct err *err);
/* The allowed algorithms, the heuristic's best first. Returns their number. */
int lt_plan_names(const struct lt_target *t, const struct plan_key *key, char ret[LT_CANDIDATES][LT_NAME_TEXT]);
void lt_plan_free(struct lt_plan *p);
/* add: adds to the destination; otherwise the destination is never read. */
int lt_plan_run(struct lt_plan *p, const struct lt_target *t, const struct conv_args *args, bool add, void *workspace, cudaStream_t stream,
                struct err *err);
