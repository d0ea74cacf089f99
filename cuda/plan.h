/* SPDX-License-Identifier: Apache-2.0 */ /* cuda/plan.h - how one convolution is computed: by which library, with which algorithm and how much memory. A pure function of the key,
 * the GPU, the libraries' versions and the plugin's.
 *
 * Where the plugin's table has a row for the key that the filter lets through, that; else a rule, the first that the heuristics name:
 * kernels of ours take the convolution of images (cuda/stem.h), cuBLASLt 1x1 convolutions with stride 1, cuDNN the rest and what cuBLASLt
 * refuses. Adding to a data gradient is part of the library's operation: cuDNN has as many engines with it as without. Weight gradients have
 * one plan, whether they are added to or not; cuDNN gives those of bf16 tensors in bf16, and a kernel of ours widens them. */
#pragma once
#include "cuda/cudnn_plan.h"
#include "cuda/lt_plan.h"

enum { PLAN_TEXT = PLAN_KEY_TEXT + CUDNN_PLAN_TEXT + 256, PLAN_TITLE_TEXT = 256, PLAN_NAME_TEXT = CUDNN_NAME_TEXT + 32 };
/* More than there are for one convolution. */
enum { PLAN_NAMES = LT_CANDIDATES + CUDNN_NAMES + 1 };

/* Both halves are used by one thread at a time. */
struct plan_target {
    struct cudnn_target dnn;
    struct lt_target lt;
    const char *rows; /* of a table of measured choices (cuda/plan_table.h) below its title; NULL: there are none for this GPU */
    char title[PLAN_TITLE_TEXT];
};

enum plan_library { PLAN_CUDNN, PLAN_CUBLASLT, PLAN_OWN };

/* What is left to do when the library is done. */
enum plan_finish {
    PLAN_DONE,
    PLAN_ADD,  /* dw is fp32: nothing, or where it is added to, dw += scratch */
    PLAN_CAST, /* dw = or += scratch, bf16 */
};

struct plan {
    struct plan_key key;
    enum plan_library library;
    struct cudnn_plan dnn;
    struct lt_plan lt;
    enum plan_finish finish;
    size_t workspace;          /* of the library */
    size_t scratch;            /* for what is left to finish, where anything is */
    struct cudnn_tally tally;  /* engines of cuDNN that were looked at */
    struct lt_tally lt_tally;  /* algorithms of cuBLASLt */
    char name[PLAN_NAME_TEXT]; /* what plan_make_named() takes */
    char text[PLAN_TEXT];      /* a line without its end: the key, then the choice */
};

/* Of this process's GPU. Needs the current CUDA device. */
int plan_target_open(struct plan_target *t, struct err *err);
/* Takes the choices that were measured on such a GPU, if any, from a table that has to stay. gpu: what it is, in words that are the same for
 * equal GPUs only; with the libraries' versions they are the title, in t->title from then on. */
void plan_target_table(struct plan_target *t, const char *table, const char *gpu);
void plan_target_close(struct plan_target *t);

/* ERR_UNSUPPORTED names the key and says what became of the engines; *ret's key and tallies are valid even then. Free with plan_free() on
 * success. */
int plan_make(struct plan *ret, const struct plan_target *t, const struct plan_key *key, struct err *err);
void plan_free(struct plan *p);

/* A way to compute a convolution that the filter lets through: "own stem", "cublaslt algo 66 ..." or "cudnn engine 43 knobs 2=5 then
 * widen". */
struct plan_name {
    char text[PLAN_NAME_TEXT];
    enum plan_library library;
    bool deterministic;
    bool runtime; /* compiled when it is made, which takes seconds */
};

/* All of them, in the order in which plan_make() tries them. Returns how many. */
int plan_names(const struct plan_target *t, const struct plan_key *key, struct plan_name ret[PLAN_NAMES]);
/* As plan_make(), this one or ERR_UNSUPPORTED. */
int plan_make_named(struct plan *ret, const struct plan_target *t, const struct plan_key *key, const char *name, struct err *err);
