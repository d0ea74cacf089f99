/* SPDX-License-Identifier: Apache-2.0 */ /* worker/models/yolo/darknet_write.h - a trained network as darknet has it: FILE.cfg and FILE.weights (specs yolov3 sections 1 and 2), which darknet
 * and OpenCV read. The way in is darknet_cfg.h and darknet_weights.h. */
#pragma once
#include <stdint.h>

struct darknet_net;
struct err;
struct file_out;
struct model;

/* model_family.write_files(): `path`, which ends in ".weights", and its .cfg beside it. The last line of the .cfg
 * has the hash of the .weights. ERR_INPUT: the path ends otherwise, or a file that detd did not write has one of the names. */
int darknet_write_pair(struct model *m, const char *path, int64_t seen, struct err *err);
