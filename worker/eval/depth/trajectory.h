/* SPDX-License-Identifier: Apache-2.0 */ /* worker/eval/depth/trajectory.h - the way of a camera as text files that
 * other programs read: TUM's (time, position, quaternion x y z w) and KITTI's (three rows of the matrix that takes
 * points of the camera to the first one's), a frame a line. Times are the frames' numbers. KITTI's form has no room for
 * a mark of its writer. Instead the numbers of the first line have signs, which other programs do not write. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "worker/eval/result.h"

struct err;

enum trajectory_form { TRAJECTORY_TUM, TRAJECTORY_KITTI };

struct trajectory_frames {
    long long first, step; /* numbers */
    size_t n;
};

/* From n motions, rows of [R | t] from a frame's camera to the next one's: ret [n + 1], the first is the identity;
 * positions are multiplied by factor. R may deviate from a rotation by float's precision; the rotations of ret are
 * exact to double's. */
void trajectory_of(const double (*motion)[RESULT_POSE], size_t n, double factor, double (*ret)[RESULT_POSE]);
/* The rotation of a pose as x y z w, w not negative. */
void trajectory_quaternion(const double pose[RESULT_POSE], double ret[4]);
/* Writes pose[frames.n], the first is the identity. Atomically (worker/core/file.h). Numbers have twelve digits, enough
 * for a rotation to be one within 1e-11. */
int trajectory_write(const char *path, enum trajectory_form form, const double (*pose)[RESULT_POSE], struct trajectory_frames frames,
                     struct err *err);
/* Did trajectory_write() write the file, judged by its first line? */
bool trajectory_is_own(const char *path);
