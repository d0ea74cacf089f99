/* SPDX-License-Identifier: Apache-2.0 */ /* worker/models/depth/load.h - weights of depth networks from files: detd's
 * own, FeatDepth's, and torchvision's ResNets. Source: specs featdepth section 1.1. */
#pragma once
#include "worker/models/registry.h"

/* model.init: loads all networks in the file. A ResNet alone goes into the network that sees depth, and into features
 * that train. model.init_depth, .init_pose and .init_extractor: load that network, or its ResNet alone. A file must
 * hold a network whole or not at all. Contract: model_family.load(). */
int depth_load(struct model *m, const struct jobspec *spec, struct model_classes classes, struct err *err);
