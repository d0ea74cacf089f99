/* SPDX-License-Identifier: Apache-2.0 */ /* cuda/cudnn_plan.h - chooses the engine of cuDNN that computes a graph, and
 * runs it.
 *
 * Engines come in the order of cuDNN's heuristics: mode A, then the fallbacks. For a bf16 weight gradient the
 * precompiled engines of mode A come before its others. An engine is chosen if the key's tier and precision allow its
 * numerical notes, its workspace stays under the limit and its plan can be made. The first such engine wins. Nothing is
 * measured, so equal keys, libraries and GPUs choose alike. */
#pragma once
#include "cuda/cudnn_graph.h"

/* The limit is fixed, so that the amount of free memory does not choose. Three channels are padded to eight in
 * workspace: the first layer of 64 images of 608 x 608 needs 361 MiB, or an engine without tensor cores. */
#define CUDNN_WORKSPACE_MAX ((size_t)1 << 30)

enum { CUDNN_CANDIDATES = 64, CUDNN_NAMES = 2 * CUDNN_CANDIDATES, CUDNN_NAME_TEXT = 352, CUDNN_PLAN_TEXT = CUDNN_NAME_TEXT + 96 };

/* The target of plans: a handle of this process's GPU, or a description of some GPU. With a description plans are made
 * but cannot run. Used by one thread at a time. */
struct cudnn_target {
    const struct cudnn_api *api;
    cudnnHandle_t handle;            /* NULL with a description */
    cudnnBackendDescriptor_t device; /* NULL with a handle */
};

/* Numbers of the engines that the heuristics named, by outcome. */
struct cudnn_tally {
    int named;
    int nondeterministic, reduced, tensor_core, down_convert; /* refused by a numerical note */
    int unmade, unmade_runtime; /* plans that could not be made; among them, of engines that are compiled at run time */
    int too_big;                /* workspace over the limit */
};

/* An engine with its knobs, as a plan's text has it: "engine 43 knobs 2=5,12=0". The name is valid for one version of
 * the library only. */
struct cudnn_name {
    char text[CUDNN_NAME_TEXT];
    bool deterministic;
    bool runtime; /* compiled when the plan is made, which takes seconds */
};

struct cudnn_plan {
    struct cudnn_descs descs; /* the graph and the engine's configuration, on which the plan depends */
    cudnnBackendDescriptor_t plan;
    size_t workspace;
    uint32_t notes; /* numerical notes of the engine, one bit each */
    bool runtime;   /* the engine was compiled for this plan */
    char name[CUDNN_NAME_TEXT];
    char text[CUDNN_PLAN_TEXT];
};

/* Needs the current CUDA device. */
int cudnn_target_open(struct cudnn_target *t, struct err *err);
/* json: a device's record, as CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION gives it. */
int cudnn_target_describe(struct cudnn_target *t, const char *json, struct err *err);
void cudnn_target_close(struct cudnn_target *t);

/* only: the name of the one engine to use, or NULL. The filter must allow it like any other. Adds to *tally.
 * ERR_UNSUPPORTED: no engine is left; the caller names the key. -ENOMEM: an engine that may be the right one could not
 * be examined. */
int cudnn_plan_make(struct cudnn_plan *ret, const struct cudnn_target *t, const struct plan_key *key, const char *only,
                    struct cudnn_tally *tally, struct err *err);
/* The engines that the filter allows, in the order in which cudnn_plan_make() tries them; each once. Returns their
 * number. */
int cudnn_plan_names(const struct cudnn_target *t, const struct plan_key *key, struct cudnn_name ret[CUDNN_NAMES]);
void cudnn_plan_free(struct cudnn_plan *p);
/* Queues the plan on the handle's stream. w is dw for a weight gradient. */
int cudnn_plan_run(const struct cudnn_plan *p, cudnnHandle_t handle, void *x, const void *w, void *y, const void *bias, void *workspace,
                   struct err *err);
