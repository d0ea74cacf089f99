/* SPDX-License-Identifier: Apache-2.0 */ /* worker/models/yolo/darknet_write.h - a trained network in darknet's form:
 * FILE.cfg and FILE.weights (specs yolov3 sections 1 and 2), which darknet and OpenCV read. darknet_cfg.h and
 * darknet_weights.h read them. */
#pragma once
#include <stdint.h>

struct darknet_net;
struct err;
struct file_out;
struct model;

/* model_family.write_files(): `path`, which ends in ".weights", and its .cfg beside it. The last line of the .cfg has
 * the hash of the .weights. ERR_INPUT: the path has another ending, or one of the names belongs to a file that detd did
 * not write. */
int darknet_write_pair(struct model *m, const char *path, int64_t seen, struct err *err);
