/* SPDX-License-Identifier: Apache-2.0 */ /* proto/job/data_format.h - what form a data set has, by its file. */
#pragma once

/* Of a set that is to be used in the place of one of the form `like` (of data.train.format): coco for .json, yolo for .yaml and .yml, darknet for .data; voc for a
 * folder where `like` is coco, which has none. Everything else, and all sets of frames, are as `like`. */
const char *data_format(const char *path, const char *like);
