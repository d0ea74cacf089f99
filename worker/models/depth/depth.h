/* SPDX-License-Identifier: Apache-2.0 */ /* worker/models/depth/depth.h - self-supervised depth: networks for depth and
 * motion learn from predicting a video's frames from each other. Source: specs featdepth. Maps, cameras and losses are
 * computed in f32, for every precision of the device's convolutions. */
#pragma once
#include "worker/models/model.h"

struct depth_network;
struct err;
struct jobspec;

/* Network and losses of spec->preset, for model_family.open(); classes is not used. */
int depth_new(const struct jobspec *spec, int classes, struct device *dev, struct model **ret_model, struct err *err);
const struct depth_network *depth_network_of(const struct model *m);
