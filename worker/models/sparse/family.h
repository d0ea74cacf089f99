/* SPDX-License-Identifier: Apache-2.0 */ /* worker/models/sparse/family.h - Sparse R-CNN: ResNet 18, 34, 50 and 101
 * with a feature pyramid. */
#pragma once
#include "worker/models/registry.h"

extern const struct model_family sparse_models;
