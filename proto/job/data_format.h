/* SPDX-License-Identifier: Apache-2.0 */ /* proto/job/data_format.h - the format of a data set, by its file. */
#pragma once

/* The format of a set that replaces a set of the format `like` (of data.train.format). It is coco for .json, yolo for
 * .yaml and .yml, and darknet for .data. A folder is voc if `like` is coco, which has no folders. All other files, and
 * all sets of frames, are as `like`. */
const char *data_format(const char *path, const char *like);
