/* SPDX-License-Identifier: Apache-2.0 */ /* worker/models/depth/load.h - weights of depth networks from files: ours, FeatDepth's, and torchvision's ResNets. Source: specs featdepth section 1.1. */
#pragma once
#include "worker/models/registry.h"

/* model.init: all networks whose arrays the file has; of a ResNet alone the one that sees depth, and features that train. model.init_depth, .init_pose and
 * .init_extractor: that network, or its ResNet alone. A network is in a file whole or not at all. As model_family.load(). */
int depth_load(struct model *m, const struct jobspec *spec, struct model_classes classes, struct err *err);
