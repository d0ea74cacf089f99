/* SPDX-License-Identifier: Apache-2.0 */ /* worker/data/read/frames/depth_truth.h - measured depth of a data set of
 * frames (views.h), read on request: PNG files of 16 bits, or the points of a laser projected into the picture (KITTI).
 * Only one map is in memory at a time. */
#pragma once
#include <stdbool.h>

struct dataset;
struct depth_truth;
struct err;
struct views_file;

enum { DEPTH_TRUTH_TEXT = 480 };

struct depth_map {
    int w, h;            /* of the frame's size */
    const float *metres; /* [h][w], 0: unknown. Borrowed until the next one is read. NULL: the frame has no depth */
};

/* Does any frame have one? Works also for data sets without frames: false. */
bool depth_truth_any(const struct dataset *d);
/* Is there a pattern of files of measured depth, although no target has its file? text then tells it. Only for a set
 * that was just read. */
bool depth_truth_nowhere(const struct dataset *d, char text[DEPTH_TRUTH_TEXT]);
/* d outlives it. Caller closes. -ENOMEM. */
int depth_truth_open(const struct dataset *d, struct depth_truth **ret, struct err *err);
void depth_truth_close(struct depth_truth *t);
/* Reads the depth of an image of the data set; *ret is all zero for an image that is no target or has no depth.
 * ERR_DATA or -errno, naming the file, also if it has changed since it was checked. */
int depth_truth_read(struct depth_truth *t, int image, struct depth_map *ret, struct err *err);
/* The same for a target with depth, before its file is known: *ret_file gets all facts but its name. */
int depth_truth_look(struct depth_truth *t, int image, struct views_file *ret_file, struct err *err);
