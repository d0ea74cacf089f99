/* SPDX-License-Identifier: Apache-2.0 */ /* worker/data/read/frames/poses.h - positions of a camera: a text file with a
 * line a frame, 12 numbers, the upper three rows of the matrix that takes points of its camera to the world's, like
 * KITTI's odometry. Line k belongs to frame k, counted from 0. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

struct err;

/* Its name in a data set, beside intrinsics.json. */
#define POSES_FILE "poses.txt"

enum { POSES_NUMBERS = 12, POSES_MAX_BYTES = 256 << 20 };

struct poses {
    size_t n;
    double (*pose)[POSES_NUMBERS]; /* [n] */
};

/* From memory; messages call it `name`. ERR_DATA names file and line: not 12 finite numbers, or three columns that are
 * no rotation. -ENOMEM. Free with poses_free(). */
int poses_parse(const char *name, const char *bytes, size_t len, struct poses *ret, struct err *err);
void poses_free(struct poses *p);
