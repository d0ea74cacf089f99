/* SPDX-License-Identifier: Apache-2.0 */ /* worker/data/read/frames/pose_truth.h - the true motion from frame to frame
 * of a data set of frames (views.h), from its files poses.txt (poses.h): of one sequence, or of several, each with its
 * own file. Pictures of the other camera have no true motion. */
#pragma once
#include <stdbool.h>

#include "worker/data/read/frames/poses.h"

struct dataset;
struct err;
struct pose_truth;

enum { POSE_TRUTH_TEXT = 480 };

/* Index of the views' source that is the next frame, if the set has poses; -1: it has no poses, or no source comes
 * after its target. */
int pose_truth_view(const struct dataset *d);
/* Number of targets that have a next frame but no true motion to it: their sequence has no poses, or the file ends
 * before. It is 0 too if the set has no poses at all. Else text tells it, and names the first target with a file that
 * ends before. Fails like pose_truth_open(). */
int pose_truth_lacking(const struct dataset *d, int *ret_count, char text[POSE_TRUTH_TEXT], struct err *err);
/* Reads the files; d outlives it. Caller closes. ERR_DATA or -errno name the file, and the faulty line, if any;
 * ERR_DATA also if a file has changed since it was checked. */
int pose_truth_open(const struct dataset *d, struct pose_truth **ret, struct err *err);
void pose_truth_close(struct pose_truth *t);
/* The motion from an image's camera to the camera of its next frame, rows of [R | t]: takes points of the first to the
 * second, in the files' unit. *ret_next: the image of the next frame. False if it is not known: the image is no target,
 * has no next frame, or the file ends before. `of` is the struct pose_truth. */
bool pose_truth_motion(void *of, int image, double ret[POSES_NUMBERS], int *ret_next);
