/* SPDX-License-Identifier: Apache-2.0 */ /* worker/predict/way.h - the way of a camera: frames of one sequence in a
 * folder with intrinsics.json, in their order, and the motion that a depth network sees from each to the next. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "worker/eval/depth/depth_view.h"
#include "worker/eval/result.h"

struct dataset;
struct err;
struct jobspec;
struct way;

/* Is an argument of predict such a folder rather than a picture? */
bool way_is(const char *path);
/* Finds the frames of `folder`, from the first existing one on, as far apart as the nearest source of the job behind
 * its target, until a frame is missing. ERR_DATA names the file; ERR_INPUT: the job has no such source. Caller
 * closes. */
int way_open(const char *folder, const struct jobspec *spec, struct way **ret, struct err *err);
void way_close(struct way *w);
/* Their paths, [*ret_n], at least one; borrowed. */
char *const *way_frames(const struct way *w, int *ret_n);
/* The number of the missing frame behind the last one if later ones exist; -1: no later ones exist. */
long long way_gap(const struct way *w);

/* The size of each frame in pixels, from intrinsics.json. */
void way_size(const struct way *w, int *ret_w, int *ret_h);

/* Frame i cannot be read: it is no frame's next one, and not part of the way. */
void way_lose(struct way *w, int i);
bool way_lost(const struct way *w, int i);
/* Number of frames that way_write() writes: the unbroken row from the first one that is not lost, *ret_first, on. 0:
 * all are lost. */
int way_length(const struct way *w, int *ret_first);

/* Frame i as the only target of a data set, with the next one as its source; further sources that the network wants are
 * the frame itself. Borrowed until the next call. */
const struct dataset *way_set(struct way *w, int i);
/* Its camera. */
struct depth_lens way_lens(const struct way *w, int i);
/* Adds the result of frame i; frames must come in their order. Keeps the motion to the next one, which is in
 * *ret_motion until the way is closed. NULL: there is no next one, or it is lost. */
int way_add(struct way *w, int i, const struct result *r, const double **ret_motion, struct err *err);
/* Writes at least one frame, see way_length(): positions times factor, from the first of them on, in the forms of
 * trajectory.h. The caller must have checked the paths. */
int way_write(const struct way *w, double factor, const char *tum, const char *kitti, struct err *err);
