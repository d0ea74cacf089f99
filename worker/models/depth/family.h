/* SPDX-License-Identifier: Apache-2.0 */ /* worker/models/depth/family.h - networks that learn depth from video, as the
 * registry lists them. */
#pragma once
#include "worker/models/registry.h"

extern const struct model_family depth_models;
