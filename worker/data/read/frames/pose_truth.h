/* SPDX-License-Identifier: Apache-2.0 */ /* worker/data/read/frames/pose_truth.h - the true motion from frame to frame of a data set of frames (views.h), from the files poses.txt (poses.h) that belong to it: of
 * one sequence, or of several, each its own. Pictures of the other camera have none. */
#pragma once
#include <stdbool.h>

#include "worker/data/read/frames/poses.h"

struct dataset;
struct err;
struct pose_truth;

enum { POSE_TRUTH_TEXT = 480 };

/* Which of the views' sources is the next frame, where the set has poses; -1: it has none, or no source comes after its target. */
int pose_truth_view(const struct dataset *d);
/* How many targets have a next frame and no true motion to it: their sequence has no poses, or the file ends before. 0 too where the set has none at all.
 * Else text says so, and of the first of these targets whose file ends before which that is. Errors as of pose_truth_open(). */
int pose_truth_lacking(const struct dataset *d, int *ret_count, char text[POSE_TRUTH_TEXT], struct err *err);
/* Reads the files; d outlives it. Caller closes. ERR_DATA or -errno name the file, and the line where one is at fault; ERR_DATA also where a file has changed
 * since it was checked. */
int pose_truth_open(const struct dataset *d, struct pose_truth **ret, struct err *err);
void pose_truth_close(struct pose_truth *t);
/* From an image's camera to that of its next frame, rows of [R | t]: takes points of the one to the other, in the files' unit. *ret_next: the image which that
 * frame is. False where it is not known: the image is no target, has no next frame, or the file ends before. `of` is the struct pose_truth. */
bool pose_truth_motion(void *of, int image, double ret[POSES_NUMBERS], int *ret_next);
