/* SPDX-License-Identifier: Apache-2.0 */ /* worker/data/read/frames/depth_truth.h - measured depth of a data set of frames (views.h), read when it is wanted: PNG files of 16 bits, or the points of a laser
 * projected into the picture (KITTI). One map is in memory at a time. */
#pragma once
#include <stdbool.h>

struct dataset;
struct depth_truth;
struct err;
struct views_file;

enum { DEPTH_TRUTH_TEXT = 480 };

struct depth_map {
    int w, h;            /* of the frame's size */
    const float *metres; /* [h][w], 0: unknown. Borrowed until the next one is read. NULL: the frame has none */
};

/* Whether any frame has one. Also of data sets without frames, which have none. */
bool depth_truth_any(const struct dataset *d);
/* Whether there is a pattern of files of measured depth, and none of the targets has its file: text says so then. Of a set that was just read alone. */
bool depth_truth_nowhere(const struct dataset *d, char text[DEPTH_TRUTH_TEXT]);
/* d outlives it. Caller closes. -ENOMEM. */
int depth_truth_open(const struct dataset *d, struct depth_truth **ret, struct err *err);
void depth_truth_close(struct depth_truth *t);
/* Of an image of the data set; of one that is no target, or has no depth, *ret is all zero. ERR_DATA or -errno, naming the file, also where it has changed
 * since it was checked. */
int depth_truth_read(struct depth_truth *t, int image, struct depth_map *ret, struct err *err);
/* The same of a target that has one, before its file is known: says in *ret_file, all but its name, what is found. */
int depth_truth_look(struct depth_truth *t, int image, struct views_file *ret_file, struct err *err);
