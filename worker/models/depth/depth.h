/* SPDX-License-Identifier: Apache-2.0 */ /* worker/models/depth/depth.h - self-supervised depth: networks that say depth and motion learn from how well they predict a video's frames from each other.
 * Source: specs featdepth. Maps, cameras and losses are computed in f32, whatever the device's convolutions are in. */
#pragma once
#include "worker/models/model.h"

struct depth_network;
struct err;
struct jobspec;

/* Network and losses of spec->preset, as model_family.open(); classes are nobody's. */
int depth_new(const struct jobspec *spec, int classes, struct device *dev, struct model **ret_model, struct err *err);
const struct depth_network *depth_network_of(const struct model *m);
