/* SPDX-License-Identifier: Apache-2.0 */ /* worker/models/builtin.h - the networks of this program. A new family needs
 * a row here and in proto/job/presets.h, and a folder beside yolo/. */
#pragma once
#include "worker/models/registry.h"

extern const struct model_registry models_builtin;
