/* SPDX-License-Identifier: Apache-2.0 */ /* tests/stand/toy/registry.h - the registry that has the toy, and nothing
 * else. */
#pragma once
#include "tests/stand/toy/toy.h"

static const struct evaluator_ops toy_depth = { .name = "depth", .open = toy_eval_open }, *const toy_evaluators[] = { &toy_depth, NULL };
static const struct model_family toy_family = {
    .name = "toy", .task = &toy_pairs, .needs = NEEDS_conv | NEEDS_norm | NEEDS_map, .evaluators = toy_evaluators, .open = toy_open
};
static const struct model_family *const toy_families[] = { &toy_family };
static const struct job_family toy_keys = { "toy", 1, 1 };
static const struct job_preset toy_preset = { "toy", &toy_keys, 32 };
static const struct job_presets toy_presets = { &toy_preset, 1, NULL };
static const struct model_registry toy_models = { &toy_presets, toy_families, 1 };
