/* SPDX-License-Identifier: Apache-2.0 */ /* cuda/plan.h - how one convolution is computed: the library, the algorithm
 * and the amount of memory. It is a pure function of the key, the GPU, and the versions of the libraries and of the
 * plugin.
 *
 * If the plugin's table has a row for the key that the filter allows, that row decides. Otherwise a rule takes the
 * first choice of the heuristics: the plugin's own kernels take the convolution of images (cuda/stem.h), cuBLASLt takes
 * 1x1 convolutions with stride 1, cuDNN takes the rest and all that cuBLASLt refuses. Adding to a data gradient is part
 * of the library's operation: cuDNN has as many engines with it as without. Weight gradients have one plan, whether
 * they are added to or not. cuDNN gives those of bf16 tensors in bf16; a kernel of the plugin widens them. */
#pragma once
#include "cuda/cudnn_plan.h"
#include "cuda/lt_plan.h"

enum { PLAN_TEXT = PLAN_KEY_TEXT + CUDNN_PLAN_TEXT + 256, PLAN_TITLE_TEXT = 256, PLAN_NAME_TEXT = CUDNN_NAME_TEXT + 32 };
/* More than the names of any convolution. */
enum { PLAN_NAMES = LT_CANDIDATES + CUDNN_NAMES + 1 };

/* Only one thread at a time may use both halves. */
struct plan_target {
    struct cudnn_target dnn;
    struct lt_target lt;
    /* rows of a table of measured choices (cuda/plan_table.h) below its title; NULL: no rows for this GPU */
    const char *rows;
    char title[PLAN_TITLE_TEXT];
};

enum plan_library { PLAN_CUDNN, PLAN_CUBLASLT, PLAN_OWN };

/* Work that is left after the library's. */
enum plan_finish {
    PLAN_DONE,
    PLAN_ADD,  /* dw is fp32: nothing, or if it is added to, dw += scratch */
    PLAN_CAST, /* dw = or += scratch, bf16 */
};

struct plan {
    struct plan_key key;
    enum plan_library library;
    struct cudnn_plan dnn;
    struct lt_plan lt;
    enum plan_finish finish;
    size_t workspace;          /* of the library */
    size_t scratch;            /* for the work that is left, if any */
    struct cudnn_tally tally;  /* engines of cuDNN that were examined */
    struct lt_tally lt_tally;  /* algorithms of cuBLASLt */
    char name[PLAN_NAME_TEXT]; /* argument of plan_make_named() */
    char text[PLAN_TEXT];      /* a line without its newline: the key, then the choice */
};

/* Opens the target of this process's GPU. Needs the current CUDA device. */
int plan_target_open(struct plan_target *t, struct err *err);
/* Takes the choices that were measured on such a GPU, if any, from a table that must stay valid. gpu: a description
 * that is the same for equal GPUs only. With the libraries' versions it forms the title, kept in t->title. */
void plan_target_table(struct plan_target *t, const char *table, const char *gpu);
void plan_target_close(struct plan_target *t);

/* ERR_UNSUPPORTED names the key and the outcome of the engines; *ret's key and tallies are valid even then. Free with
 * plan_free() on success. */
int plan_make(struct plan *ret, const struct plan_target *t, const struct plan_key *key, struct err *err);
void plan_free(struct plan *p);

/* A way to compute a convolution that the filter allows: "own stem", "cublaslt algo 66 ..." or "cudnn engine 43 knobs
 * 2=5 then widen". */
struct plan_name {
    char text[PLAN_NAME_TEXT];
    enum plan_library library;
    bool deterministic;
    bool runtime; /* compiled when the plan is made, which takes seconds */
};

/* All names, in the order in which plan_make() tries them. Returns their number. */
int plan_names(const struct plan_target *t, const struct plan_key *key, struct plan_name ret[PLAN_NAMES]);
/* Like plan_make(), with this name only, else ERR_UNSUPPORTED. */
int plan_make_named(struct plan *ret, const struct plan_target *t, const struct plan_key *key, const char *name, struct err *err);
