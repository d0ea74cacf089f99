/* SPDX-License-Identifier: Apache-2.0 */ /* worker/models/yolo/darknet_cfg.h - reads .cfg files of the YOLOv3 family
 * (specs yolov3 section 1). Numbers with trailing garbage, values out of range and layers that do not fit are errors
 * "file:line: ...". So are unknown keys and keys that ask for an unsupported feature (darknet_keys.h). Doubled and
 * ignored keys are warnings in net->warnings. */
#pragma once
#include <stddef.h>

#include "worker/models/yolo/darknet_net.h"

struct err;

/* Parses text[size], at most CFG_MAX_BYTES (cfg_text.h); `name` stands for the file in messages. Caller frees with
 * darknet_net_free(). */
int darknet_cfg_parse(const char *text, size_t size, const char *name, struct darknet_net **ret_net, struct err *err);
int darknet_cfg_read(const char *path, struct darknet_net **ret_net, struct err *err);
